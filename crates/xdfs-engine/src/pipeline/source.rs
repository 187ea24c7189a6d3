//! The sources of the files that are sent, and the files whose sources are polled.

use std::time::Duration;

use xdfs_proto::frame::Frame;
use xdfs_proto::{DigestKind, Fault, FileId};
use xdfs_store::Source;

use crate::feeder::Feeder;
use crate::reader::SlowReader;

/// The source of a file that is sent.
#[derive(Debug)]
pub(super) struct OpenSource {
    pub(super) reader: Reader,
    /// Offset in the source of the first byte of the transfer.
    pub(super) offset: u64,
    pub(super) digest: DigestKind,
    /// The end of the range announced to the store.
    pub(super) announced: u64,
    /// The end of the range known to hold data.
    pub(super) data_until: u64,
    /// Time spent waiting for the store.
    pub(super) store_wait: Duration,
    pub(super) opened_at: Duration,
    /// Share of the time reported in EOFR. A repeated EOFR must be identical.
    pub(super) eofr_wait_permille: Option<u16>,
    /// Whether it is unchanged, checked after its last byte was read.
    pub(super) verification: Verification,
}

/// Verification that a source is unchanged.
#[derive(Debug)]
pub(super) enum Verification {
    NotAsked,
    /// A worker checks it. This EOFR is sent when it is done.
    Asked(Frame),
    Unchanged,
    /// It has changed, so EOFR is never sent.
    Failed(Fault),
}

/// How a source is read.
#[derive(Debug)]
pub(super) enum Reader {
    /// At any offset, in the session thread.
    Random(Box<dyn Source>),
    /// At any offset, by a worker.
    Slow(SlowReader),
    /// In order, by a feeder that starts once the block size is known.
    Stream(Option<Box<dyn Source>>, Option<Feeder>),
}

impl OpenSource {
    pub(super) fn new(reader: Reader, offset: u64, digest: DigestKind, now: Duration) -> Self {
        Self {
            reader,
            offset,
            digest,
            announced: 0,
            data_until: 0,
            store_wait: Duration::ZERO,
            opened_at: now,
            eofr_wait_permille: None,
            verification: Verification::NotAsked,
        }
    }
}

/// Files whose sources have no data now or are read by workers, in ascending order.
#[derive(Debug, Default)]
pub(super) struct SlowSources {
    files: Vec<FileId>,
}

impl SlowSources {
    /// Adds a file, to be polled later.
    pub(super) fn wait_for(&mut self, file: FileId) {
        if let Err(at) = self.files.binary_search(&file) {
            self.files.insert(at, file);
        }
    }

    /// Takes all files. Those that still have no data are to be added again.
    pub(super) fn take(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.files)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = FileId> {
        self.files.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}
