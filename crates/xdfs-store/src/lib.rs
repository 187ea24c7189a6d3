//! Storage: the traits [`Store`], [`Source`] and [`Sink`], and the built-in stores.
//!
//! A store opens sources and sinks by path. A sink declares its [`Capabilities`], from which the
//! engine chooses its data path once per file, never per block.
//!
//! These traits have no default methods. A store of its own names the methods that it has no use
//! for in [`defaults!`], and a layer over another store those that it passes on in [`forward!`]: so
//! a method that is new, or that was forgotten, doesn't compile.

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod builtin;
mod checksum;
mod delta;
mod file;
#[doc(hidden)]
pub mod layer;
pub mod local;
pub mod memory;
mod packs;
mod pattern;
pub mod place;
pub mod rate;
mod shared;
pub mod stream;
pub mod tally;
pub mod tree_journal;
mod work;

pub use builtin::{NullSink, ServerStore, ZeroSource};
pub use checksum::checksum;
pub use delta::seed;
pub use file::{File, FileRequest, OpenedFile};
pub use local::{
    Added, LocalStore, PackBuilder, PackChange, PackOptions, PackRules, RemovedName, SyncGroup,
};
pub use memory::MemStore;
pub use packs::{read_pack, write_pack};
pub use pattern::{NamePattern, PathPattern};
pub use place::{Place, Traits};
pub use shared::{SharedPartial, SharedSource, SharedStore, unshared};
pub use stream::{StreamSink, StreamSource};
pub use work::{check_cancelled, watched};

use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::digest::{DigestKind, Fragment};
use xdfs_proto::frame::Resume;
use xdfs_proto::pack::{Failures, PackRequest, PackWriter};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{ByteRange, Fault, SourceTag};

/// The capabilities of a sink. The engine adapts to a missing one, or refuses the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Writes may come in any order of offsets.
    pub random_writes: bool,
    /// Writes are slow enough for a thread of their own; false for sinks in memory.
    pub slow_writes: bool,
    /// `sync` makes data durable, and a journal survives, so that a transfer can be resumed.
    pub durable: bool,
    /// `publish` is atomic: the target has the old content or the new, never a mixture.
    pub atomic_publish: bool,
}

/// The attributes of a source at the time when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// Number of bytes; `None` for a stream of unknown length.
    pub length: Option<u64>,
    /// The version of the content; all zero if it can't be read twice.
    pub tag: SourceTag,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: Option<i64>,
    /// Reads may be at any offset; false for a stream, which is read once from front to back.
    pub random_reads: bool,
    /// It occupies less storage than its length, because of holes or otherwise.
    pub sparse: bool,
}

/// Bytes that can be read.
pub trait Source: Send + fmt::Debug {
    /// Its attributes when it was opened.
    fn info(&self) -> &SourceInfo;

    /// Fills `buf` from `offset` on. Returns less than `buf.len()` only at the end of the source.
    ///
    /// # Errors
    /// A fault that names the path; [`xdfs_proto::Code::SourceChanged`] if the source turns out to
    /// be shorter than its `length`.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault>;

    /// The first range at or after `offset` that holds data, up to `end`; `None` if only a hole is
    /// left. A store without holes returns `offset..end`.
    ///
    /// # Errors
    /// A fault that names the path.
    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<ByteRange>, Fault>;

    /// Announces that `range` will be read soon. A hint.
    fn will_read(&mut self, range: ByteRange);

    /// Whether `range` has to come from a disk, and [`Self::direct`] is a faster way to get it.
    fn is_cold(&self, range: ByteRange) -> bool;

    /// The same version of the source for another thread, which reads past the page cache: several
    /// of them keep a disk busy. `None` if there is no such way.
    fn direct(&self) -> Option<Box<dyn Source>>;

    /// Whether reads are slow, as over a network. Then workers read a few blocks ahead, and
    /// [`Self::next_data`], [`Self::will_read`] and [`Self::memory`] are not called.
    fn is_slow(&self) -> bool;

    /// All bytes of the source, if they are in memory and do not change: they are sent from there.
    fn memory(&self) -> Option<Arc<Vec<u8>>>;

    /// Whether every block of equal length has equal content, so that a block and its check value
    /// can be made once. True of `mem:zero` only.
    fn is_uniform(&self) -> bool;

    /// The way to count what other processes read in place of this source; `None` if nothing is
    /// counted.
    fn shared(&mut self) -> Option<&mut dyn SharedSource>;

    /// Checks after the last read that the source is still the version of [`SourceInfo::tag`].
    ///
    /// # Errors
    /// [`xdfs_proto::Code::SourceChanged`].
    fn verify_unchanged(&mut self) -> Result<(), Fault>;
}

/// A request to open a sink.
#[derive(Clone, Debug)]
pub struct SinkRequest {
    /// The target path, as bytes.
    pub path: Vec<u8>,
    /// Name to use if `path` is a directory (or ends in '/'); empty refuses directories.
    pub name: Vec<u8>,
    /// Number of bytes to come, if known: used to preallocate.
    pub length: Option<u64>,
    /// First byte of the source, if the receiver requested a part of it; a journal of another part
    /// is discarded. Otherwise 0: then the tag distinguishes the parts.
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
    /// Replace an existing target.
    pub overwrite: bool,
    /// Whether to resume from a journal.
    pub resume: Resume,
    /// The source is sparse. A store that supports holes reserves no storage, and leaves zeros out
    /// unless other bytes may have been written there.
    pub sparse: bool,
}

impl SinkRequest {
    /// A request that finds the unfinished file of a target, and changes nothing.
    pub(crate) fn of_partial(path: &[u8]) -> Self {
        Self {
            path: path.to_vec(),
            name: Vec::new(),
            length: None,
            offset: 0,
            tag: SourceTag::default(),
            mode: None,
            mtime_ns: None,
            digest: DigestKind::None,
            block_size: 1,
            overwrite: true,
            resume: Resume::Never,
            sparse: false,
        }
    }
}

/// An open sink, and the durable ranges of an earlier attempt.
#[derive(Debug)]
pub struct OpenedSink {
    /// The sink.
    pub sink: Box<dyn Sink>,
    /// The path that will be published.
    pub path: Vec<u8>,
    /// Durable fragments of an earlier attempt, from the journal. Empty for a fresh start.
    pub durable: Vec<Fragment>,
    /// They must be verified by [`Sink::verify`] before anything is claimed or written.
    pub unverified: bool,
    /// The block grid to use: the journal's if there is one, else the requested one.
    pub block_size: u32,
}

/// Writes into an open sink from any thread.
pub trait DirectWriter: Send + Sync + fmt::Debug {
    /// Writes all bytes of `bufs`, which are adjacent in the file, at `offset`.
    ///
    /// # Errors
    /// A fault, for [`Sink::end_direct`].
    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault>;
}

/// A target being written; it gets its name only by [`Sink::publish`].
///
/// The save order (principles 1 to 3): `write_at`, then `sync`, then `record`, then the ranges may
/// be claimed durable. All calls come from one thread at a time.
pub trait Sink: Send + fmt::Debug {
    /// Its capabilities.
    fn capabilities(&self) -> Capabilities;

    /// Writes all bytes of `bufs`, which are adjacent in the file, at `offset`.
    ///
    /// # Errors
    /// A fault that names the path.
    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault>;

    /// Begins a write of `range` by another thread, past the page cache, while others are under
    /// way: as many requests keep a disk busy. `None` where [`Self::write_at`] is the only way. The
    /// ranges don't overlap, and each is [ended](Self::end_direct) before the next call of any
    /// other method.
    ///
    /// # Errors
    /// A fault that names the path.
    fn begin_direct(&mut self, range: ByteRange) -> Result<Option<Arc<dyn DirectWriter>>, Fault>;

    /// Ends a write of another thread, with its result.
    ///
    /// # Errors
    /// The fault of the write, which names the path.
    fn end_direct(&mut self, range: ByteRange, result: Result<(), Fault>) -> Result<(), Fault>;

    /// Declares `range` to be zeros that will not be written: its storage may be released. Sinks
    /// that accept only writes in order get the zeros by `write_at` instead.
    fn hole(&mut self, range: ByteRange);

    /// Starts to write `range` back to the disk without waiting, where the system can. A hint.
    fn begin_write_back(&mut self, range: ByteRange);

    /// Makes all data written so far durable. After an error nothing written since the last success
    /// may be claimed: the bytes must be written again (principle 2).
    ///
    /// # Errors
    /// A fault that names the path.
    fn sync(&mut self) -> Result<(), Fault>;

    /// Verifies the data of an earlier attempt step by step, some MiB per call. Returns `None`
    /// while more is left, and at the end the intact fragments. The others are removed from the
    /// journal and must be written again. If [`OpenedSink::unverified`] is set, it must be called
    /// until then.
    ///
    /// # Errors
    /// A fault that names the path.
    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault>;

    /// Reads what was written and isn't published yet: the bytes at `offset`, as many as there are
    /// and `buf` takes. Returns their number, 0 only at the end.
    ///
    /// # Errors
    /// A fault that names the path; [`Unsupported`](xdfs_proto::Code::Unsupported) if what was
    /// written can't be read.
    fn read_back(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault>;

    /// The unfinished file, for other processes that write into it; `None` if only this sink can.
    fn shared(&mut self) -> Option<&mut dyn SharedPartial>;

    /// Appends durable fragments to the journal and makes the journal durable.
    ///
    /// # Errors
    /// A fault that names the path.
    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault>;

    /// Sets the final length, mode and time, makes everything durable, atomically gives the file
    /// its name, makes the directory durable, and removes the journal. `fresh` are the fragments
    /// written and verified since the last [`Self::record`]: with them the next attempt recognises
    /// a complete file after a crash in between.
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

/// A namespace of files.
pub trait Store: Send + Sync + fmt::Debug {
    /// Whether opening a source or a sink is slow, as over a network. Then workers do it, and more
    /// calls are answered at once, since most of them wait. Sources and sinks declare separately
    /// whether they are slow.
    fn is_slow(&self) -> bool;

    /// Opens a source.
    ///
    /// # Errors
    /// A fault that names the path.
    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault>;

    /// Opens a sink, with the journal of an earlier attempt where there is one.
    ///
    /// # Errors
    /// A fault that names the path. [`xdfs_proto::Code::Busy`] if another transfer writes there.
    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault>;

    /// Makes the checks of `open_sink` and returns the path that would be published, without
    /// writing anything.
    ///
    /// # Errors
    /// The faults that `open_sink` would return, as far as they can be foreseen.
    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault>;

    /// Reads the requested names beneath the directory `root` into a pack: one entry per name, in
    /// the order of the request; with [`PackRequest::follow`] it is that to which a symbolic link
    /// leads. A name that can't be read becomes [`xdfs_proto::pack::Content::Failed`], a file too
    /// large for any pack [`xdfs_proto::pack::Content::Large`]. It stops before the first name for
    /// which the pack has no room.
    ///
    /// # Errors
    /// A fault that names `root`; [`xdfs_proto::Code::Unsupported`] in a store without names.
    fn read_pack(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault>;

    /// Writes the entries of a pack beneath the directory `root`, in order, each as a whole or not
    /// at all. Unless [`PackOptions::relaxed`] is set, the content of a file is durable before it
    /// gets its name; names and the rest are durable after a later [`Call::Sync`]. Missing parent
    /// directories are made, `root` too. Entries of the kinds `Large` and `Failed` are failures.
    ///
    /// # Errors
    /// A fault that names `root`, also for a pack that can't be decoded.
    /// [`xdfs_proto::Code::Unsupported`] in a store without names.
    fn write_pack(&self, root: &[u8], options: PackOptions, pack: &[u8])
    -> Result<Failures, Fault>;

    /// Whether packs that are not relaxed mostly wait for a disk, so that writing more packs at
    /// once is faster. A hint.
    fn packs_wait(&self, root: &[u8]) -> bool;

    /// Answers a call about paths: passes the parts before the last to `part`, in order and none of
    /// them large, and returns the last one. Use [`watched`] to cancel calls that read or copy
    /// files.
    ///
    /// # Errors
    /// A fault that names the path, or the one that `part` returned to cancel the call.
    /// [`xdfs_proto::Code::Unsupported`] in a store without names.
    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault>;

    /// Opens a file for access in place. Calls of [`Call::File`] are never passed to
    /// [`Self::call`]: the session answers them by this method and by [`File`].
    ///
    /// # Errors
    /// A fault that names the path. [`xdfs_proto::Code::Stale`] if the path names another file than
    /// requested; [`xdfs_proto::Code::Busy`] with the time of a retry while something is missing,
    /// such as the reader of a pipe; [`xdfs_proto::Code::Unsupported`] in a store without access in
    /// place.
    fn open_file(&self, request: &FileRequest) -> Result<OpenedFile, Fault>;
}

/// The time until the retry of a busy target.
pub const BUSY_RETRY: Duration = Duration::from_millis(200);
