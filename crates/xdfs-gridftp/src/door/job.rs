//! What a session works on, one step after the other.

use std::time::Instant;

use xdfs_proto::Fault;

use super::checksum::ChecksumJob;
use super::download::Download;
use super::exchange::Transaction;
use super::link::{Link, Step};
use super::segment::SegmentMemory;
use super::upload::Upload;
use crate::command::Mode;

/// Work in progress.
#[derive(Debug)]
pub(super) enum Job {
    Checksum(Box<ChecksumJob>),
    Download(Box<Download>),
    Upload(Box<Upload>),
}

impl Job {
    /// Goes on.
    ///
    /// # Errors
    /// The job has failed and is to be dropped.
    pub(super) fn step(&mut self, link: &mut Link<'_>) -> Result<Step, Fault> {
        link.look_at_limit();
        if let Some(until) = link.paused_until {
            // What waits for a rate limit doesn't stall.
            link.has_moved = true;
            return Ok(Step::Paused(until));
        }
        let step = match self {
            Self::Checksum(job) => job.step(link),
            Self::Download(job) => job.step(link),
            Self::Upload(job) => job.step(link),
        }?;
        Ok(match (step, link.paused_until) {
            (Step::Wait | Step::Again, Some(until)) => Step::Paused(until),
            (step, _) => step,
        })
    }

    /// How it uses data connections; `None` if it uses none.
    pub(super) fn mode(&self) -> Option<Mode> {
        match self {
            Self::Checksum(_) => None,
            Self::Download(job) => Some(job.mode()),
            Self::Upload(job) => Some(job.mode()),
        }
    }

    /// Whether it reads into the buffer of the session.
    pub(super) fn uses_buffer(&self) -> bool {
        !matches!(self, Self::Download(_))
    }

    /// The memory of a segment, once it is sent or stored.
    pub(super) fn take_memory(&mut self) -> Option<SegmentMemory> {
        match self {
            Self::Checksum(_) => None,
            Self::Download(job) => job.take_memory(),
            Self::Upload(job) => job.take_memory(),
        }
    }

    /// It goes on in MODE X, over so many connections if this side opens them.
    pub(super) fn exchange(&mut self, transaction: Transaction, connections: u32) {
        match self {
            Self::Checksum(_) => {}
            Self::Download(job) => job.exchange(transaction, connections),
            Self::Upload(job) => job.exchange(transaction),
        }
    }

    /// Bytes of payload that a data node has moved.
    pub(super) fn payload(&self) -> u64 {
        match self {
            Self::Checksum(_) => 0,
            Self::Download(job) => job.payload(),
            Self::Upload(job) => job.payload(),
        }
    }

    /// It has failed: what can't be gone on with is removed.
    pub(super) fn discard(&mut self) {
        if let Self::Upload(job) = self {
            job.discard();
        }
    }

    /// When it has something to do without an event.
    pub(super) fn next_time(&self) -> Option<Instant> {
        match self {
            Self::Checksum(_) => None,
            Self::Download(job) => job.next_time(),
            Self::Upload(job) => job.next_time(),
        }
    }
}
