//! The trees of the table, the same in each run.

use std::fs;
use std::io;
use std::path::Path;

/// A sequence of numbers that look random (the constants are of Knuth's MMIX generator).
#[derive(Debug)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new() -> Self {
        Self(0x5eed_0f7e)
    }

    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 16
    }

    /// Bytes that don't compress.
    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(4)).map(|_| self.next() as u32);
        let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        bytes.truncate(count);
        bytes
    }
}

/// Files of these sizes in directories side by side.
pub(super) fn make(at: &Path, files: usize, folders: usize, bytes: (u64, u64)) -> io::Result<()> {
    let mut numbers = Numbers::new();
    for folder in 0..folders {
        fs::create_dir_all(at.join(format!("d{folder}")))?;
    }
    for file in 0..files {
        let (least, most) = bytes;
        let size = least + numbers.next() % (most - least + 1);
        let path = at.join(format!("d{}/f{file}", file % folders));
        fs::write(path, numbers.bytes(usize::try_from(size).unwrap_or(0)))?;
    }
    Ok(())
}

/// Whether two trees have the same files with the same content.
pub(super) fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    if one.is_file() {
        return Ok(fs::read(one)? == fs::read(other)?);
    }
    let names = |at: &Path| -> io::Result<Vec<_>> {
        let names = fs::read_dir(at)?.map(|entry| entry.map(|entry| entry.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    };
    let found = names(one)?;
    if found != names(other)? {
        return Ok(false);
    }
    for name in found {
        if !is_same(&one.join(&name), &other.join(&name))? {
            return Ok(false);
        }
    }
    Ok(true)
}
