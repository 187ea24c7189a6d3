//! A ruler for the disk: a copy in one process whose reads and writes don't wait for each other.
//!
//! Four readers and four writers with direct I/O, and nothing else: no network, no check value. The
//! copy is durable at the end. Started by a `CommandLine` of `tool`.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use rustix::fs::OFlags;

/// The first word of its command line.
pub(crate) const COMMAND: &str = "overlap";
const READERS: u64 = 4;
const WRITERS: u64 = 4;
/// Bytes of one read or write.
const BLOCK_BYTES: usize = 2 << 20;
/// Blocks that are read or written at a time.
const BLOCKS: u64 = READERS + WRITERS;
/// Alignment that direct I/O needs, in bytes.
const ALIGNMENT: usize = 4096;

/// Runs `overlap SOURCE TARGET`.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let result = match arguments {
        [source, target] => copy(source, target),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{COMMAND} {}: {error}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// Memory of a block, which begins at a page.
struct Block {
    bytes: Vec<u8>,
    start: usize,
    at: u64,
    len: usize,
}

impl Block {
    fn new() -> Self {
        let bytes = vec![0; BLOCK_BYTES + ALIGNMENT];
        let address = bytes.as_ptr().addr();
        Self {
            start: address.next_multiple_of(ALIGNMENT) - address,
            bytes,
            at: 0,
            len: 0,
        }
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + BLOCK_BYTES]
    }
}

fn copy(source: &str, target: &str) -> io::Result<()> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
    let from = OpenOptions::new()
        .read(true)
        .custom_flags(direct)
        .open(source)?;
    let length = from.metadata()?.len();
    let plain = File::create(target)?;
    // Otherwise writes that extend the file would wait for each other.
    let _ = rustix::fs::fallocate(&plain, rustix::fs::FallocateFlags::empty(), 0, length);
    plain.set_len(length)?;
    let to = OpenOptions::new()
        .write(true)
        .custom_flags(direct)
        .open(target)?;
    let next = AtomicU64::new(0);
    let (free_sender, free) = mpsc::channel();
    for _ in 0..BLOCKS {
        let _ = free_sender.send(Block::new());
    }
    let (free, (full_sender, full)) = (Mutex::new(free), mpsc::channel::<Block>());
    let full = Mutex::new(full);
    let taken = |blocks: &Mutex<mpsc::Receiver<Block>>| {
        let blocks = blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.recv().ok()
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..READERS {
            let full = full_sender.clone();
            let (next, free, from, taken) = (&next, &free, &from, &taken);
            threads.push(scope.spawn(move || {
                loop {
                    let at = next.fetch_add(BLOCK_BYTES as u64, Ordering::Relaxed);
                    if at >= length {
                        return Ok(());
                    }
                    let Some(mut block) = taken(free) else {
                        return Ok(());
                    };
                    let wanted = (length - at).min(BLOCK_BYTES as u64) as usize;
                    block.at = at;
                    block.len = 0;
                    while block.len < wanted {
                        let filled = block.len;
                        match from.read_at(&mut block.room()[filled..], at + filled as u64)? {
                            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                            n => block.len += n,
                        }
                    }
                    let _ = full.send(block);
                }
            }));
        }
        drop(full_sender);
        for _ in 0..WRITERS {
            let free = free_sender.clone();
            let (full, to, taken) = (&full, &to, &taken);
            threads.push(scope.spawn(move || {
                while let Some(mut block) = taken(full) {
                    // The last block ends behind the file, which is cut afterwards.
                    let (at, len) = (block.at, block.len.next_multiple_of(ALIGNMENT));
                    to.write_all_at(&block.room()[..len], at)?;
                    let _ = free.send(block);
                }
                Ok(())
            }));
        }
        drop(free_sender);
        threads.into_iter().try_for_each(|thread| {
            let ended: thread::Result<io::Result<()>> = thread.join();
            ended.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    })?;
    plain.set_len(length)?;
    plain.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let bytes: Vec<u8> = (0..9 * BLOCK_BYTES + 4097)
            .map(|i| (i % 251) as u8)
            .collect();
        std::fs::write(path("source"), &bytes).unwrap();
        match copy(&path("source"), &path("target")) {
            Ok(()) => assert!(std::fs::read(path("target")).unwrap() == bytes),
            // The file system has no direct I/O.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::InvalidInput),
        }
    }
}
