//! Files whose content follows from a seed: the same seed and name give the same bytes on every
//! machine, so that a failing test can be repeated, and no two files are alike.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// A generator of pseudo-random numbers (xorshift, 64 bits). Good enough to tell bytes apart, and
/// for nothing secret.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator; equal seeds give equal numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Spreads seeds that differ in few bits, and keeps away from zero, where xorshift stays.
        Self((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd134_2543_de82_ef95) | 1)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number under `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let number = self.next_u64().to_le_bytes();
            part.copy_from_slice(&number[..part.len()]);
        }
    }
}

/// `len` bytes that follow from `seed`.
#[must_use]
pub fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new(seed).fill(&mut bytes);
    bytes
}

/// Makes a named pipe. Needs mkfifo(1).
///
/// # Errors
/// There is no such program, or it can't be made there.
#[cfg(unix)]
pub fn make_pipe(path: impl AsRef<Path>) -> io::Result<()> {
    let made = std::process::Command::new("mkfifo")
        .arg(path.as_ref())
        .status()?;
    match made.success() {
        true => Ok(()),
        false => Err(io::Error::other("mkfifo failed")),
    }
}

/// A temporary folder that is removed with everything in it when dropped.
#[derive(Debug)]
pub struct TempTree {
    folder: tempfile::TempDir,
    seed: u64,
}

impl TempTree {
    /// An empty folder where the system keeps temporary files.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(seed: u64) -> io::Result<Self> {
        Ok(Self {
            folder: tempfile::tempdir()?,
            seed,
        })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The path of `name` in the folder, whether it exists or not.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a file of `len` bytes, with the folders it needs. Its content follows from the seed
    /// of the tree, its name and nothing else: a longer file begins with the shorter one.
    ///
    /// # Errors
    /// What the system says.
    pub fn file(&self, name: &str, len: u64) -> io::Result<PathBuf> {
        let path = self.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut random = Random::new(name.bytes().fold(self.seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }));
        let mut file = File::create(&path)?;
        let mut chunk = vec![0; 1 << 20];
        let mut left = len;
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            random.fill(&mut chunk);
            file.write_all(&chunk[..part])?;
            left -= part as u64;
        }
        Ok(path)
    }

    /// Makes `count` files in folders under `name`, of lengths from 0 to `longest` bytes that
    /// follow from the seed, and answers their paths.
    ///
    /// # Errors
    /// What the system says.
    pub fn files(&self, name: &str, count: u32, longest: u64) -> io::Result<Vec<PathBuf>> {
        let mut random = Random::new(self.seed);
        (0..count)
            .map(|i| {
                let len = random.below(longest.saturating_add(1));
                self.file(&format!("{name}/{:02}/{i:05}", i / 100), len)
            })
            .collect()
    }
}

/// Where two files differ first; the shorter one's length if one begins with the other. `None`
/// means that they are equal.
///
/// # Errors
/// What the system says on reading.
pub fn first_difference(a: &Path, b: &Path) -> io::Result<Option<u64>> {
    let (mut a, mut b) = (
        BufReader::new(File::open(a)?),
        BufReader::new(File::open(b)?),
    );
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut at = 0;
    loop {
        let (n, m) = (
            read_full(&mut a, &mut left)?,
            read_full(&mut b, &mut right)?,
        );
        // As a whole first: byte by byte takes unoptimized code seconds for a large file.
        if left[..n] != right[..m] {
            let pairs = left[..n].iter().zip(&right[..m]);
            let same = pairs.take_while(|(x, y)| x == y).count();
            return Ok(Some(at + same as u64));
        }
        if n == 0 {
            return Ok(None);
        }
        at += n as u64;
    }
}

/// Reads until `buf` is full or the file ends.
fn read_full(file: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match file.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_follows_from_seed_and_name() {
        let (one, same, other) = (
            TempTree::new(1).unwrap(),
            TempTree::new(1).unwrap(),
            TempTree::new(2).unwrap(),
        );
        let bytes = |tree: &TempTree, name| fs::read(tree.file(name, 3000).unwrap()).unwrap();
        assert!(bytes(&one, "a") == bytes(&same, "a"));
        assert!(bytes(&one, "a") != bytes(&one, "b"));
        assert!(bytes(&one, "a") != bytes(&other, "a"));
    }

    #[test]
    fn a_longer_file_begins_with_the_shorter() {
        let tree = TempTree::new(3).unwrap();
        let short = fs::read(tree.file("deep/er/file", (1 << 20) + 5).unwrap()).unwrap();
        let long = fs::read(tree.file("deep/er/file", (2 << 20) + 1).unwrap()).unwrap();
        assert_eq!(short.len(), (1 << 20) + 5);
        assert!(long[..short.len()] == short);
        assert!(long[..1 << 20] != long[1 << 20..2 << 20]);
    }

    #[test]
    fn many_files_have_many_lengths() {
        let tree = TempTree::new(4).unwrap();
        let files = tree.files("many", 120, 2000).unwrap();
        let mut lengths: Vec<u64> = files
            .iter()
            .map(|f| fs::metadata(f).unwrap().len())
            .collect();
        assert_eq!(lengths.len(), 120);
        assert!(lengths.iter().all(|len| *len <= 2000));
        lengths.sort_unstable();
        lengths.dedup();
        assert!(lengths.len() > 80);
    }

    #[test]
    fn differences_are_found_where_they_are() {
        let tree = TempTree::new(5).unwrap();
        let a = tree.file("a", 200_000).unwrap();
        let b = tree.join("b");
        fs::copy(&a, &b).unwrap();
        assert_eq!(first_difference(&a, &b).unwrap(), None);
        let mut bytes = fs::read(&a).unwrap();
        bytes[150_001] ^= 1;
        fs::write(&b, &bytes).unwrap();
        assert_eq!(first_difference(&a, &b).unwrap(), Some(150_001));
        fs::write(&b, &fs::read(&a).unwrap()[..70_000]).unwrap();
        assert_eq!(first_difference(&a, &b).unwrap(), Some(70_000));
        assert_eq!(first_difference(&b, &a).unwrap(), Some(70_000));
    }

    #[test]
    fn the_folder_goes_with_the_tree() {
        let tree = TempTree::new(6).unwrap();
        let path = tree.file("x", 1).unwrap();
        drop(tree);
        assert!(!path.exists());
    }
}
