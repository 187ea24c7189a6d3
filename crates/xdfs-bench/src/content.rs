//! Making source files and comparing copies with them.
//!
//! Sources hold pseudo-random bytes: no file system or tool can shrink them or skip holes. Called
//! by `session`.

use std::{
    fs::{self, File},
    io::{self, Read, Write as _},
    path::Path,
};

/// Files are made and compared in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// Writes `bytes` pseudo-random bytes to a new file at `path`.
pub(crate) fn make(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes;
    let mut piece = vec![0_u8; PIECE_BYTES];
    let mut remaining = bytes;
    while remaining > 0 {
        fill_random(&mut piece, &mut state);
        let count = piece
            .len()
            .min(usize::try_from(remaining).unwrap_or(usize::MAX));
        file.write_all(&piece[..count])?;
        remaining -= count as u64;
    }
    Ok(())
}

/// The next pseudo-random number: xorshift64*, as any generator without a short period does.
pub(crate) fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Fills a buffer, whose length is a multiple of 8, with pseudo-random bytes.
pub(crate) fn fill_random(bytes: &mut [u8], state: &mut u64) {
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&next(state).to_le_bytes());
    }
}

/// Whether two files hold the same bytes.
pub(crate) fn same(left: &Path, right: &Path) -> io::Result<bool> {
    let (mut left, mut right) = (File::open(left)?, File::open(right)?);
    let (mut ours, mut theirs) = (vec![0_u8; PIECE_BYTES], vec![0_u8; PIECE_BYTES]);
    loop {
        let count = fill(&mut left, &mut ours)?;
        if fill(&mut right, &mut theirs)? != count || ours[..count] != theirs[..count] {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
    }
}

/// Empties a folder, which is made when it is missing.
pub(crate) fn empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(folder)
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        for bytes in [0, 2, PIECE_BYTES as u64, PIECE_BYTES as u64 + 3] {
            make(&one, bytes).unwrap();
            assert_eq!(fs::metadata(&one).unwrap().len(), bytes);
            fs::copy(&one, &two).unwrap();
            assert!(same(&one, &two).unwrap());
            let mut content = fs::read(&one).unwrap();
            content.push(0);
            fs::write(&two, &content).unwrap();
            assert!(!same(&one, &two).unwrap(), "longer");
            content.pop();
            if let Some(last) = content.last_mut() {
                *last ^= 1;
                fs::write(&two, &content).unwrap();
                assert!(!same(&one, &two).unwrap(), "one bit");
            }
        }
    }

    #[test]
    fn emptying_makes_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        empty(&inner).unwrap();
        fs::write(inner.join("file"), "x").unwrap();
        empty(&inner).unwrap();
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 0);
    }
}
