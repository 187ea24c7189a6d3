//! Large local files past the page cache. Several requests at once keep a disk busy, where the page
//! cache has one after the other, and nothing else is evicted for a large file.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use xdfs_proto::{ByteRange, Fault};
use xdfs_sys::fs::{self, Meta, Storage};

use crate::DirectWriter;

/// Files from this length on are read and written past the page cache where the file system
/// supports it: a large file would evict everything else, and its copy into the cache costs as much
/// as the disk.
pub(super) const DIRECT_BYTES_MIN: u64 = 64 << 20;

/// Opens a file to read it by direct I/O, where that may be faster and the system tells what is in
/// memory already.
pub(super) fn open(file: &File, meta: &Meta) -> Option<Arc<File>> {
    let may_pay = meta.length >= DIRECT_BYTES_MIN
        && !meta.is_sparse()
        && fs::storage_of(file) == Storage::Extents
        && fs::cached_bytes(file, 0, DIRECT_BYTES_MIN).is_some();
    may_pay
        .then(|| fs::open_direct_to_read(file))?
        .map(Arc::new)
}

/// Whether less than half of a range is in the page cache.
pub(super) fn is_cold(file: &File, range: ByteRange) -> bool {
    fs::cached_bytes(file, range.start, range.len()).is_some_and(|cached| cached < range.len() / 2)
}

/// A file that is written by direct I/O where that is possible, from any thread.
#[derive(Debug)]
pub(super) struct DirectFile {
    direct: File,
    /// The same file by the page cache.
    cached: File,
    path: Vec<u8>,
    /// The disk has larger sectors, or the file system reported support by mistake.
    is_refused: AtomicBool,
}

impl DirectFile {
    /// `None` where there is no direct I/O.
    pub(super) fn open(file: &File, path: &[u8]) -> Option<Self> {
        Some(Self {
            direct: fs::open_direct(file)?,
            cached: file.try_clone().ok()?,
            path: path.to_vec(),
            is_refused: AtomicBool::new(false),
        })
    }

    /// Writes all bytes, by the page cache if offset, a length or an address isn't aligned.
    pub(super) fn write_all(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let aligned = |n: usize| n.is_multiple_of(fs::DIRECT_ALIGNMENT);
        let fits = offset.is_multiple_of(fs::DIRECT_ALIGNMENT as u64)
            && bufs
                .iter()
                .all(|buf| aligned(buf.len()) && aligned(buf.as_ptr().addr()));
        if fits && !self.is_refused.load(Ordering::Relaxed) {
            match fs::write_all_at(&self.direct, bufs, offset) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.is_refused.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        fs::write_all_at(&self.cached, bufs, offset)
    }
}

impl DirectWriter for DirectFile {
    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let written = self.write_all(offset, bufs);
        written.map_err(|error| Fault::from_io("write", &self.path, &error))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_in_memory_is_cold() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        let whole = ByteRange {
            start: 0,
            end: 1 << 20,
        };
        if fs::cached_bytes(&file, 0, 1 << 20).is_none() {
            return xdfs_testkit::skip::test("the system doesn't tell what is in the page cache");
        }
        assert!(!is_cold(&file, whole));
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if fs::cached_bytes(&file, 0, 1 << 20) == Some(1 << 20) {
            return xdfs_testkit::skip::test("the file system has nothing but memory");
        }
        assert!(is_cold(&file, whole));
    }
}
