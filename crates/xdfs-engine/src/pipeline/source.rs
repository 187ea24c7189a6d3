//! The sources of files that are being sent, and which of them take their time.

use std::time::Duration;

use xdfs_proto::frame::Frame;
use xdfs_proto::{DigestKind, Fault, FileId};
use xdfs_store::Source;

use crate::feeder::Feeder;
use crate::reader::SlowReader;

/// A source that is being sent.
#[derive(Debug)]
pub(super) struct OpenSource {
    pub(super) reader: Reader,
    /// Offset in the source of the first byte of the transfer.
    pub(super) offset: u64,
    pub(super) digest: DigestKind,
    /// Up to where reads were announced.
    pub(super) announced: u64,
    /// Up to where the source holds data, as far as it was looked.
    pub(super) data_until: u64,
    pub(super) busy: Duration,
    pub(super) opened_at: Duration,
    /// What EOFR told of the time that the store took. It is told again unchanged, since a frame
    /// that is sent again is the same frame.
    pub(super) told_wait: Option<u16>,
    /// Whether it was found unchanged after all of it was read.
    pub(super) verification: Verification,
}

/// Whether a source was found unchanged.
#[derive(Debug)]
pub(super) enum Verification {
    NotAsked,
    /// It is looked at; this frame is sent then.
    Asked(Frame),
    Unchanged,
    /// It changed: its end was never told, and never is.
    Failed(Fault),
}

/// How a source is read.
#[derive(Debug)]
pub(super) enum Reader {
    /// Anywhere, in the pipeline's own thread.
    Random(Box<dyn Source>),
    /// Anywhere, in a thread of its own.
    Slow(SlowReader),
    /// From front to back, by a feeder that starts once the block size is known.
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
            busy: Duration::ZERO,
            opened_at: now,
            told_wait: None,
            verification: Verification::NotAsked,
        }
    }
}

/// Files whose sources have nothing now, or are read by other threads, in order.
#[derive(Debug, Default)]
pub(super) struct SlowSources {
    files: Vec<FileId>,
}

impl SlowSources {
    /// Looks for what a source has later.
    pub(super) fn wait_for(&mut self, file: FileId) {
        if let Err(at) = self.files.binary_search(&file) {
            self.files.insert(at, file);
        }
    }

    /// Takes all of them, for those that still have nothing to be put back.
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
