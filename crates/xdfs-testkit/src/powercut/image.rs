//! What a disk holds.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

const PAGE_BYTES: usize = 4096;
/// How much is read from a file at once.
const CHUNK_BYTES: u64 = 1 << 20;

type Page = [u8; PAGE_BYTES];

/// The content of a disk. Copies share what they have in common, so a copy is cheap.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// By their number; what isn't here is zero.
    pages: HashMap<u64, Arc<Page>>,
    length: u64,
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        let holds = |one: &Self, other: &Self| {
            let mut pages = one.pages.iter();
            pages.all(|(number, page)| other.page(*number) == page.as_slice())
        };
        self.length == other.length && holds(self, other) && holds(other, self)
    }
}

impl Image {
    /// Reads the image in a file. Holes cost nothing.
    ///
    /// # Errors
    /// What the system says.
    pub fn load(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut image = Self {
            length: file.metadata()?.len(),
            ..Self::default()
        };
        let mut at = 0;
        let mut chunk = vec![0; usize::try_from(CHUNK_BYTES).unwrap_or(PAGE_BYTES)];
        while at < image.length {
            let begin = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(begin) => begin / CHUNK_BYTES * CHUNK_BYTES,
                // Nothing but a hole is left.
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            let begin = begin.max(at);
            let bytes = CHUNK_BYTES.min(image.length - begin);
            let bytes = &mut chunk[..usize::try_from(bytes).unwrap_or(PAGE_BYTES)];
            file.read_exact_at(bytes, begin)?;
            for (place, page) in (begin..).step_by(PAGE_BYTES).zip(bytes.chunks(PAGE_BYTES)) {
                if page.iter().any(|byte| *byte != 0) {
                    image.write(place, page);
                }
            }
            at = begin + CHUNK_BYTES;
        }
        Ok(image)
    }

    /// Writes it into a new file, with holes.
    ///
    /// # Errors
    /// What the system says.
    pub fn store(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.length)?;
        for (number, page) in &self.pages {
            let at = number * PAGE_BYTES as u64;
            let bytes = (self.length.saturating_sub(at)).min(PAGE_BYTES as u64);
            file.write_all_at(&page[..usize::try_from(bytes).unwrap_or(0)], at)?;
        }
        Ok(())
    }

    /// Bytes of the disk.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Writes at a place; what lies beyond the end is dropped.
    pub fn write(&mut self, mut at: u64, bytes: &[u8]) {
        let left = usize::try_from(self.length.saturating_sub(at)).unwrap_or(bytes.len());
        let mut bytes = &bytes[..bytes.len().min(left)];
        while !bytes.is_empty() {
            let (number, within) = split(at);
            let count = bytes.len().min(PAGE_BYTES - within);
            let page = self.pages.entry(number);
            let page = page.or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[within..within + count].copy_from_slice(&bytes[..count]);
            at += count as u64;
            bytes = &bytes[count..];
        }
    }

    /// Up to `count` bytes from a place on; fewer at the end.
    #[must_use]
    pub fn read(&self, mut at: u64, count: usize) -> Vec<u8> {
        let left = usize::try_from(self.length.saturating_sub(at)).unwrap_or(count);
        let count = count.min(left);
        let mut bytes = Vec::with_capacity(count);
        while bytes.len() < count {
            let (number, within) = split(at);
            let part = (count - bytes.len()).min(PAGE_BYTES - within);
            bytes.extend_from_slice(&self.page(number)[within..within + part]);
            at += part as u64;
        }
        bytes
    }

    fn page(&self, number: u64) -> &[u8] {
        const ZERO: &Page = &[0; PAGE_BYTES];
        self.pages.get(&number).map_or(ZERO, |page| page.as_ref())
    }
}

/// The number of a place's page, and where in it the place is.
fn split(at: u64) -> (u64, usize) {
    let within = usize::try_from(at % PAGE_BYTES as u64).unwrap_or(0);
    (at / PAGE_BYTES as u64, within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let file = File::create(&path).unwrap();
        file.set_len(10_000_000).unwrap();
        file.write_all_at(b"here", 5_000_000).unwrap();
        let mut image = Image::load(&path).unwrap();
        assert_eq!(image.read(4_999_999, 6), b"\0here\0");
        let before = image.clone();
        image.write(4094, b"over a border");
        assert_eq!(image.read(4094, 13), b"over a border");
        assert_eq!(before.read(4094, 13), [0; 13]);
        assert!(image != before);
        image.write(9_999_998, b"end");
        assert_eq!(image.read(9_999_997, 100), b"\0en");
        image.store(&path).unwrap();
        assert!(Image::load(&path).unwrap() == image);
    }
}
