//! Helpers of the cases.

use std::io::IoSlice;
use std::path::Path;

use xdfs_proto::FileId;
use xdfs_proto::digest::{BlockHasher, DigestKind, Fragment};
use xdfs_proto::frame::Resume;
use xdfs_proto::{ByteRange, SourceTag};
use xdfs_proto::{Code, Fault};
use xdfs_store::{LocalStore, OpenedSink, SinkRequest, Source, Store};

/// The tag of a source that may be resumed.
pub(crate) const TAG: SourceTag = SourceTag([7; 16]);
pub(crate) const BLOCK: u32 = 4096;

/// A request for a new target at `path`.
pub(crate) fn request(path: impl AsRef<[u8]>) -> SinkRequest {
    SinkRequest {
        path: path.as_ref().to_vec(),
        name: Vec::new(),
        offset: 0,
        length: None,
        tag: TAG,
        mode: None,
        mtime_ns: None,
        digest: DigestKind::Crc64Nvme,
        block_size: BLOCK,
        overwrite: false,
        resume: Resume::Trust,
        sparse: false,
    }
}

/// Bytes that differ from block to block.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8)
        .collect()
}

pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

pub(crate) fn rooted(dir: &Path) -> LocalStore {
    LocalStore::rooted(dir, false).unwrap()
}

pub(crate) fn write(opened: &mut OpenedSink, offset: u64, bytes: &[u8]) {
    opened
        .sink
        .write_at(offset, &[IoSlice::new(bytes)])
        .unwrap();
}

pub(crate) fn fragment(kind: DigestKind, offset: u64, bytes: &[u8]) -> Fragment {
    let mut hasher = BlockHasher::new(kind, false, offset);
    hasher.update(bytes);
    hasher.finish(FileId(1)).1
}

/// Writes a range, makes it durable, and records it.
pub(crate) fn save(opened: &mut OpenedSink, offset: u64, bytes: &[u8]) {
    write(opened, offset, bytes);
    opened.sink.sync().unwrap();
    opened
        .sink
        .record(&[fragment(DigestKind::Crc64Nvme, offset, bytes)])
        .unwrap();
}

pub(crate) fn put(store: &dyn Store, request: &SinkRequest, bytes: &[u8]) -> Result<(), Fault> {
    let mut opened = store.open_sink(request)?;
    opened.sink.write_at(0, &[IoSlice::new(bytes)])?;
    opened.sink.publish(bytes.len() as u64, &[])
}

pub(crate) fn read_all(source: &mut dyn Source) -> Vec<u8> {
    let mut out = Vec::new();
    let mut buf = [0; 1000];
    loop {
        let count = source.read_at(out.len() as u64, &mut buf).unwrap();
        out.extend_from_slice(&buf[..count]);
        if count < buf.len() {
            return out;
        }
    }
}

/// Asserts the code of a failure, and that it names the path and says why.
#[track_caller]
pub(crate) fn assert_fault<T>(result: Result<T, Fault>, code: Code, path: impl AsRef<[u8]>) {
    let fault = result.map(|_| ()).unwrap_err();
    assert_eq!(fault.code, code, "{fault}");
    assert_eq!(
        fault.path.escape_ascii().to_string(),
        path.as_ref().escape_ascii().to_string()
    );
    assert!(!fault.cause.is_empty());
}

/// The names in a directory, in order.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

pub(crate) fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

/// Whether files in a directory can have holes. Says so if not.
#[cfg(unix)]
pub(crate) fn knows_holes(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let file = tempfile::tempfile_in(dir).unwrap();
    file.set_len(1 << 20).unwrap();
    let can = file.metadata().unwrap().blocks() == 0;
    if !can {
        xdfs_testkit::skip::part("this file system knows no holes");
    }
    can
}
