//! Jobs of the storage thread, and their results.

use std::time::Duration;

use xdfs_proto::digest::{DigestKind, Fragment};
use xdfs_proto::{ByteRange, Fault, FileId};
use xdfs_store::Sink;

use crate::pool::Buffer;

/// Work on the sink of a file.
#[derive(Debug)]
pub(crate) enum SinkJob {
    /// Take over an open sink with `resumed` durable bytes. Jobs for it follow; if it is
    /// `unverified`, only after [`SinkCompletion::Verified`].
    Attach {
        file: FileId,
        sink: Box<dyn Sink>,
        kind: DigestKind,
        resumed: u64,
        unverified: bool,
    },
    /// Make the data durable, record it, and close the sink, if it is still open: the last job of a
    /// file that failed.
    Detach(FileId),
    /// Close the sink and delete its content.
    Discard(FileId),
    /// All bytes of this fragment are written and verified. One that is `late` is recorded only
    /// together with the publication: an unencrypted one may have been changed in transit, and a
    /// resumed attempt would trust its digest state before the digest of the file agrees; the
    /// ragged end of a file of unknown length looks like a whole block to that attempt.
    Held {
        file: FileId,
        fragment: Fragment,
        late: bool,
    },
    /// Publish the file.
    Publish { file: FileId, length: u64 },
    /// The region is a hole. Sinks that take bytes in order only get zeros written.
    /// Its fragments are held like those of a block.
    Hole {
        file: FileId,
        range: ByteRange,
        fragments: Vec<Fragment>,
        late: bool,
    },
    /// Write `len` bytes of `buffer` at `offset`.
    Write {
        file: FileId,
        offset: u64,
        buffer: Buffer,
        len: usize,
    },
}

/// The result of a [`SinkJob`].
#[derive(Debug)]
pub(crate) enum SinkCompletion {
    /// A buffer is free again.
    Buffer(Buffer),
    /// The file has no sink any more: the answer to each [`SinkJob::Detach`].
    Closed(FileId),
    /// The file failed; its sink is closed, durable ranges are kept.
    Failed { file: FileId, fault: Fault },
    /// The file has its final name.
    Published { file: FileId, time: StoreTime },
    /// This many bytes of the file are durable and recorded.
    Recorded { file: FileId, bytes: u64 },
    /// The data of an earlier attempt was reread; these fragments are intact.
    Verified {
        file: FileId,
        durable: Vec<Fragment>,
    },
}

/// Times that a store took for one file, in whichever thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreTime {
    /// For writing, and for rereading the data of an earlier attempt.
    pub(crate) writing: Duration,
    /// For making data durable, and for publication.
    pub(crate) syncing: Duration,
}
