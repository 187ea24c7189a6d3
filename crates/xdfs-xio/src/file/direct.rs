//! Reading and writing past the page cache: whole blocks from and to aligned memory.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::socket::uninterrupted;

/// What offsets, lengths and memory are multiples of: the largest block of common disks.
const BLOCK: usize = 4096;
/// Bytes of one call.
const STEP: usize = 1 << 20;

/// Aligned memory for one call.
#[derive(Debug)]
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

impl Memory {
    fn new() -> Self {
        let bytes = vec![0; STEP + BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK).min(BLOCK);
        Self { bytes, start }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + STEP]
    }
}

/// Reads a file.
#[derive(Debug)]
pub(super) struct Reader {
    memory: Memory,
    /// The offset of what the memory holds, and how much that is.
    at: u64,
    filled: usize,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            memory: Memory::new(),
            at: 0,
            filled: 0,
        }
    }

    /// Reads from `at` on; `Ok(0)` is the end.
    pub(super) fn read(&mut self, file: &File, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let ahead = at.checked_sub(self.at).map(usize::try_from);
        let mut from = match ahead {
            Some(Ok(from)) => from,
            _ => self.filled,
        };
        if from >= self.filled {
            // The offset is below a block.
            from = (at % BLOCK as u64) as usize;
            (self.at, self.filled) = (at - from as u64, 0);
            let memory = self.memory.get();
            self.filled = uninterrupted(|| file.read_at(memory, at - from as u64))?;
        }
        let held = self.memory.get();
        let held = held.get(from..self.filled).unwrap_or(&[]);
        let n = held.len().min(buf.len());
        buf[..n].copy_from_slice(&held[..n]);
        Ok(n)
    }
}

/// Writes a file from one offset on. What doesn't fill a block goes through the page cache when it
/// has to be written, and stays here to be written again with its block.
#[derive(Debug)]
pub(super) struct Writer {
    memory: Memory,
    /// The offset of the first byte held, a multiple of a block.
    at: u64,
    len: usize,
    /// Bytes at the front that are written already.
    kept: usize,
}

impl Writer {
    /// `at` is a multiple of [`BLOCK`].
    pub(super) fn new(at: u64) -> Self {
        Self {
            memory: Memory::new(),
            at,
            len: 0,
            kept: 0,
        }
    }

    /// Takes some of `bytes`.
    pub(super) fn write(&mut self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        if self.len == STEP {
            self.write_blocks(file)?;
        }
        let n = bytes.len().min(STEP - self.len);
        self.memory.get()[self.len..self.len + n].copy_from_slice(&bytes[..n]);
        self.len += n;
        Ok(n)
    }

    /// Writes whole blocks.
    fn write_blocks(&mut self, file: &File) -> io::Result<()> {
        let whole = self.len / BLOCK * BLOCK;
        let memory = self.memory.get();
        let mut done = 0;
        while done < whole {
            let at = self.at + done as u64;
            let n = uninterrupted(|| file.write_at(&memory[done..whole], at))?;
            // The rest of a block that was begun is written again.
            match n / BLOCK * BLOCK {
                0 => return Err(ErrorKind::WriteZero.into()),
                blocks => done += blocks,
            }
        }
        memory.copy_within(whole..self.len, 0);
        self.at += whole as u64;
        self.len -= whole;
        self.kept = self.kept.saturating_sub(whole);
        Ok(())
    }

    /// Writes everything.
    pub(super) fn flush(&mut self, file: &File) -> io::Result<()> {
        self.write_blocks(file)?;
        if !self.has_unflushed() {
            return Ok(());
        }
        set_direct(file, false)?;
        let written = file.write_all_at(&self.memory.get()[..self.len], self.at);
        set_direct(file, true)?;
        written?;
        self.kept = self.len;
        Ok(())
    }

    /// Whether [`Self::flush`] has something to write.
    pub(super) fn has_unflushed(&self) -> bool {
        self.len > self.kept
    }
}

fn set_direct(file: &File, direct: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(fcntl_setfl(file, flags)?)
}
