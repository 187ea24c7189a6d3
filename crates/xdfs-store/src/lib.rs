//! Where bytes rest: [`Store`], [`Source`] and [`Sink`], and the stores that are built in.
//!
//! A store opens sources and sinks by path. It declares what it can do in [`Capabilities`]; the
//! engine chooses its data path by them once a file, never once a block.

#![forbid(unsafe_code)]

pub mod builtin;
mod delta;
mod file;
pub mod local;
pub mod memory;
pub mod rate;
pub mod stream;
pub mod tree_journal;
mod work;

pub use builtin::{NullSink, ServerStore, ZeroSource};
pub use delta::seed;
pub use file::{File, FileRequest, OpenedFile};
pub use local::{
    Added, LocalStore, PackBuilder, PackChange, PackOptions, PackRules, RemovedName, SyncGroup,
};
pub use memory::MemStore;
pub use stream::{StreamSink, StreamSource};
pub use work::watched;

use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::digest::{DigestKind, Fragment};
use xdfs_proto::frame::Resume;
use xdfs_proto::pack::{Failures, PackRequest, PackWriter};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{ByteRange, Code, Fault, SourceTag};

/// What a sink can do. Where a capability is missing the engine adapts or refuses clearly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Writes may come in any order of offsets.
    pub random_writes: bool,
    /// Writes take long enough to be given to a storage thread; false for sinks in memory.
    pub slow_writes: bool,
    /// `sync` makes data durable, and a journal survives, so that a transfer can be resumed.
    pub durable: bool,
    /// `publish` is atomic: the target is the old content or the new, never a mix.
    pub atomic_publish: bool,
}

/// What is known of a source when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// Number of bytes in all; `None` for a stream that ends when it ends.
    pub length: Option<u64>,
    /// The version of the content; all zero if it can't be read twice.
    pub tag: SourceTag,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: Option<i64>,
    /// Reads may be at any offset; false for a stream, which is read once from front to back.
    pub random_reads: bool,
    /// It takes less storage than it has bytes, by holes or otherwise.
    pub sparse: bool,
}

/// Bytes that can be read.
pub trait Source: Send + fmt::Debug {
    /// What was known at the open.
    fn info(&self) -> &SourceInfo;

    /// Fills `buf` from `offset` on as far as the source goes: less than `buf.len()` only at the
    /// end of the source.
    ///
    /// # Errors
    /// A fault that names the path; [`xdfs_proto::Code::SourceChanged`] if the source turns out to
    /// be shorter than its `length`.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault>;

    /// The first range at or after `offset` that holds data, up to `end`; `None` if only a hole
    /// is left. A store that knows no holes returns `offset..end`.
    ///
    /// # Errors
    /// A fault that names the path.
    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<ByteRange>, Fault> {
        Ok((offset < end).then_some(ByteRange { start: offset, end }))
    }

    /// Tells the store that `range` will be read soon. Only a hint.
    fn will_read(&mut self, range: ByteRange) {
        let _ = range;
    }

    /// Reads may take long, as over a network: they are done in a thread of their own, a few blocks
    /// ahead. [`Self::next_data`], [`Self::will_read`] and [`Self::memory`] aren't asked then.
    fn is_slow(&self) -> bool {
        false
    }

    /// All bytes of the source, where they are in memory anyway and stay as they are: then they are
    /// sent from there.
    fn memory(&self) -> Option<Arc<Vec<u8>>> {
        None
    }

    /// Whether every block of equal length has equal content, so that a block and its check value
    /// can be made once. True of `mem:zero` only.
    fn is_uniform(&self) -> bool {
        false
    }

    /// Checks after the last read that the source is still the version of [`SourceInfo::tag`].
    ///
    /// # Errors
    /// [`xdfs_proto::Code::SourceChanged`].
    fn verify_unchanged(&mut self) -> Result<(), Fault>;
}

/// What a sink is to become.
#[derive(Clone, Debug)]
pub struct SinkRequest {
    /// The target path, as bytes.
    pub path: Vec<u8>,
    /// Name to use if `path` is a directory (or ends in '/'); empty refuses directories.
    pub name: Vec<u8>,
    /// Number of bytes to come, if known: used to preallocate.
    pub length: Option<u64>,
    /// First byte of the source, for whoever asked for a part of it; a journal of another part is
    /// discarded. 0 where that isn't known: then the tag tells one part from another.
    pub offset: u64,
    /// The version of the source; a journal of another version is discarded.
    pub tag: SourceTag,
    /// Permission bits to give to the target; `None` for the store's default.
    pub mode: Option<u32>,
    /// Modification time to give to the target.
    pub mtime_ns: Option<i64>,
    /// The digest whose fragments the journal keeps; a journal of another kind is discarded.
    pub digest: DigestKind,
    /// Grid of the blocks in bytes; kept in the journal.
    pub block_size: u32,
    /// Replace a target that exists.
    pub overwrite: bool,
    /// What becomes of a journal if there is one.
    pub resume: Resume,
    /// The source is sparse: no storage is reserved, and what is zero is left out where nothing
    /// else can have been written, in stores that know holes.
    pub sparse: bool,
}

/// A sink and what it holds already.
#[derive(Debug)]
pub struct OpenedSink {
    /// Where to write.
    pub sink: Box<dyn Sink>,
    /// The path that will be published.
    pub path: Vec<u8>,
    /// Durable fragments of an earlier attempt, from the journal. Empty for a fresh start.
    pub durable: Vec<Fragment>,
    /// They have to be read again by [`Sink::verify`] before anything is claimed or written.
    pub unverified: bool,
    /// The block grid to use: the journal's if there is one, else the one asked for.
    pub block_size: u32,
}

/// Bytes that can be written, not visible under their name before [`Sink::publish`].
///
/// The save order (principles 1 to 3): `write_at`, then `sync`, then `record`, then the ranges may
/// be claimed durable. All calls come from one thread at a time.
pub trait Sink: Send + fmt::Debug {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Writes all bytes of `bufs`, which are adjacent in the file, at `offset`.
    ///
    /// # Errors
    /// A fault that names the path.
    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault>;

    /// Tells that `range` is zeros that nobody will write: storage that was reserved for it may be
    /// given back. Sinks that take writes in order only get the zeros by `write_at` instead.
    fn hole(&mut self, range: ByteRange) {
        let _ = range;
    }

    /// Starts to write `range` back to the disk without waiting, where the system can. A hint.
    fn begin_write_back(&mut self, range: ByteRange) {
        let _ = range;
    }

    /// Makes all data written so far durable. After an error nothing written since the last
    /// success may be claimed: the bytes have to be written again (principle 2).
    ///
    /// # Errors
    /// A fault that names the path.
    fn sync(&mut self) -> Result<(), Fault>;

    /// Reads again some of what an earlier attempt has left: `None` while there is more to read,
    /// then the fragments that are as they were recorded. Those that aren't have to be written
    /// again, and are in the journal no more. To be called until it is done if
    /// [`OpenedSink::unverified`] says so; each call takes as long as some MiB take to be read.
    ///
    /// # Errors
    /// A fault that names the path.
    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault> {
        Ok(Some(Vec::new()))
    }

    /// Appends durable fragments to the journal and makes the journal durable.
    ///
    /// # Errors
    /// A fault that names the path.
    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault>;

    /// Sets the final length, mode and time, makes everything durable, gives the file its name
    /// atomically, makes the directory durable, and removes the journal. `fresh` is what was
    /// written and verified since the last [`Self::record`], so that who comes after a crash in
    /// between can tell that this file is complete.
    ///
    /// # Errors
    /// A fault that names the path; the previous target is intact then.
    fn publish(&mut self, length: u64, fresh: &[Fragment]) -> Result<(), Fault>;

    /// Removes the partial file and its journal.
    ///
    /// # Errors
    /// A fault that names the path.
    fn discard(&mut self) -> Result<(), Fault>;
}

/// A place with paths. What isn't overridden is refused.
pub trait Store: Send + Sync + fmt::Debug {
    /// Opening a source or a sink may take long, as over a network: it is done in threads of their
    /// own. Each source and sink says for itself whether it is slow.
    fn is_slow(&self) -> bool {
        false
    }

    /// Opens a source.
    ///
    /// # Errors
    /// A fault that names the path.
    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        Err(unsupported(
            "open the source",
            path,
            "it can only be written",
        ))
    }

    /// Opens a sink, with the journal of an earlier attempt where there is one.
    ///
    /// # Errors
    /// A fault that names the path. [`xdfs_proto::Code::Busy`] if another transfer writes there.
    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        Err(only_read(&request.path))
    }

    /// Checks what `open_sink` would check and tells the path that it would publish, without
    /// writing anything.
    ///
    /// # Errors
    /// The faults that `open_sink` would give, as far as they can be foreseen.
    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        Err(only_read(&request.path))
    }

    /// Puts what is asked for beneath the directory `root` into a pack: an entry for each name of
    /// the request, in its order, one that can't be had as [`xdfs_proto::pack::Content::Failed`].
    /// It ends before the first name for which the pack has no room; a file that no pack has room
    /// for is named as large.
    ///
    /// # Errors
    /// A fault that names `root`; [`xdfs_proto::Code::Unsupported`] in a store without names.
    fn read_pack(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        let _ = (request, pack);
        Err(no_names("read a pack", root))
    }

    /// Carries out the entries of a pack beneath the directory `root`, in order: each as a whole or
    /// not at all. Unless [`PackOptions::relaxed`], what a file has is durable before it gets its
    /// name; the names, and all else, are with a later [`Call::Sync`]. Directories above an entry
    /// that are missing are made, `root` too. Entries that only answers to requests have are
    /// failures.
    ///
    /// # Errors
    /// A fault that names `root`, or a pack that can't be decoded: entries before may have been
    /// carried out. [`xdfs_proto::Code::Unsupported`] in a store without names.
    fn write_pack(&self, root: &[u8], how: PackOptions, pack: &[u8]) -> Result<Failures, Fault> {
        let _ = (how, pack);
        Err(no_names("write a pack", root))
    }

    /// Whether a pack that is carried out beneath `root`, and not relaxed, waits for a disk most of
    /// the time, so that more of them at once get through sooner. Only a hint.
    fn packs_wait(&self, root: &[u8]) -> bool {
        let _ = root;
        false
    }

    /// Answers a call about paths: gives the parts before the end to `part`, in order and none of
    /// them large, and returns the end. Who wants to break off calls that read or copy files does
    /// so by [`watched`].
    ///
    /// # Errors
    /// A fault that names the path, or the one that `part` returned: then nobody wants the rest.
    /// [`xdfs_proto::Code::Unsupported`] in a store without names.
    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        let _ = part;
        Err(no_names(call.operation(), call.path()))
    }

    /// Opens a file to work on it in place. Calls of [`Call::File`] never come to [`Self::call`]:
    /// who keeps the open files of a session answers them by this and by [`File`].
    ///
    /// # Errors
    /// A fault that names the path. [`Code::Stale`] if it isn't the file that was asked for;
    /// [`Code::Busy`] with a time after which to try again where somebody else has to come first,
    /// as whoever reads a pipe; [`Code::Unsupported`] in a store whose content isn't worked on so.
    fn open_file(&self, request: &FileRequest) -> Result<OpenedFile, Fault> {
        Err(file::unsupported(&request.path))
    }
}

fn only_read(path: &[u8]) -> Fault {
    unsupported("open the target", path, "it can only be read")
}

fn no_names(operation: &str, path: &[u8]) -> Fault {
    let cause = "this place has no names that could be looked at";
    unsupported(operation, path, cause)
}

fn unsupported(operation: &str, path: &[u8], cause: &str) -> Fault {
    Fault::new(Code::Unsupported, operation, cause).path(path)
}

/// Time after which a busy target is worth another try.
pub const BUSY_RETRY: Duration = Duration::from_millis(200);
