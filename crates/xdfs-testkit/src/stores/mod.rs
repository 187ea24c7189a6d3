//! One list of cases for every store that has paths: [`store_behaviour`](crate::store_behaviour)
//! makes a test of each. A store says by its capabilities what it can't do.
//!
//! The rest are helpers, of these cases and of others. All of them panic where a store fails.

#![expect(clippy::unwrap_used, reason = "a case that can't go on has failed")]

#[doc(hidden)]
pub mod cases;

use std::any::Any;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use xdfs_proto::digest::{BlockHasher, DigestKind, Fragment};
use xdfs_proto::frame::Resume;
use xdfs_proto::{ByteRange, Code, Fault, FileId, SourceTag};
use xdfs_store::{OpenedSink, SinkRequest, Source, Store};

/// The tag of a source that may be resumed.
pub const TAG: SourceTag = SourceTag([7; 16]);
/// The block size of requests.
pub const BLOCK: u32 = 4096;

/// Makes a file of this name, as another program would.
pub type Make = Box<dyn Fn(&str, &[u8])>;

/// An empty store.
pub struct Subject {
    /// Its name in messages.
    pub label: &'static str,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The directory of its files, up to their names: paths are this and a name.
    pub prefix: Vec<u8>,
    /// Makes a file of this name, as another program would.
    pub make: Make,
    /// The names of everything that is stored, also of what is hidden, in order; `None` if that
    /// can't be seen from outside.
    pub names: Option<Box<dyn Fn() -> Vec<String>>>,
    /// Dropped after the store.
    pub keeps: Box<dyn Any>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("label", &self.label)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl Subject {
    /// The path of a name.
    #[must_use]
    pub fn path(&self, name: &str) -> Vec<u8> {
        [self.prefix.as_slice(), name.as_bytes()].concat()
    }
}

/// Makes a test of each case, for the stores that this expression gives: a
/// `Vec<xdfs_testkit::stores::Subject>`, evaluated for each case.
#[macro_export]
macro_rules! store_behaviour {
    ($subjects:expr) => {
        $crate::store_behaviour! { @ $subjects =>
            what_is_published_is_read_back
            blocks_come_in_any_order_and_in_pieces
            what_was_never_written_is_zeros
            a_shorter_end_than_what_was_written_cuts
            nothing_is_visible_before_it_is_published
            a_target_that_exists_is_replaced_only_on_demand
            a_target_that_appears_meanwhile_stays
            a_check_promises_the_path_and_makes_nothing
            each_version_has_its_own_tag
            reads_past_the_end_are_empty
            a_directory_takes_the_name_of_the_request
            durable_stores_go_on_where_they_were
        }
    };
    (@ $subjects:expr => $($case:ident)+) => {$(
        #[test]
        fn $case() {
            for subject in $subjects {
                eprintln!("store: {}", subject.label);
                $crate::stores::cases::$case(&subject);
            }
        }
    )+};
}

/// A request for a new target at `path`.
#[must_use]
pub fn request(path: impl AsRef<[u8]>) -> SinkRequest {
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
#[must_use]
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8)
        .collect()
}

/// Writes a range.
pub fn write(opened: &mut OpenedSink, offset: u64, bytes: &[u8]) {
    opened
        .sink
        .write_at(offset, &[IoSlice::new(bytes)])
        .unwrap();
}

/// The fragment of a range with these bytes.
#[must_use]
pub fn fragment(kind: DigestKind, offset: u64, bytes: &[u8]) -> Fragment {
    let mut hasher = BlockHasher::new(kind, false, offset);
    hasher.update(bytes);
    hasher.finish(FileId(1)).1
}

/// Writes a range, makes it durable, and records it.
pub fn save(opened: &mut OpenedSink, offset: u64, bytes: &[u8]) {
    write(opened, offset, bytes);
    opened.sink.sync().unwrap();
    opened
        .sink
        .record(&[fragment(DigestKind::Crc64Nvme, offset, bytes)])
        .unwrap();
}

/// Publishes a file with these bytes.
///
/// # Errors
/// The fault of the store.
pub fn put(store: &dyn Store, request: &SinkRequest, bytes: &[u8]) -> Result<(), Fault> {
    let mut opened = store.open_sink(request)?;
    opened.sink.write_at(0, &[IoSlice::new(bytes)])?;
    opened.sink.publish(bytes.len() as u64, &[])
}

/// All bytes of a source.
#[must_use]
pub fn read_all(source: &mut dyn Source) -> Vec<u8> {
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
pub fn assert_fault<T>(result: Result<T, Fault>, code: Code, path: impl AsRef<[u8]>) {
    let fault = result.map(|_| ()).unwrap_err();
    assert_eq!(fault.code, code, "{fault}");
    assert_eq!(
        fault.path.escape_ascii().to_string(),
        path.as_ref().escape_ascii().to_string()
    );
    assert!(!fault.cause.is_empty());
}

/// The range from `start` to `end`.
#[must_use]
pub fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}
