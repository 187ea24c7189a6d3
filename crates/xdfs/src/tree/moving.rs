//! What is under way of a tree: packs and large files in bounded numbers, and what came of them.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use xdfs_proto::pack::{Content, Entry, PackReader};
use xdfs_proto::{Code, Fault, Limits};

use super::{LARGE_MAX, Observer, PACKS_MAX, SyncStep, TreeEvent, TreeOptions, TreeResult};
use crate::transfer::{Transfer, TransferOptions};

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// What an entry counts as when it is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Other,
    /// Only what is known of an entry that was moved before.
    Attributes,
}

/// An entry of a pack: its path, what it counts as, and its bytes.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
}

impl Item {
    /// What is moved by an entry.
    pub(super) fn of(entry: &Entry<'_>) -> Self {
        let (kind, bytes) = match entry.content {
            Content::File(bytes) => (Kind::File, bytes.len() as u64),
            Content::Directory => (Kind::Directory, 0),
            Content::Attributes => (Kind::Attributes, 0),
            _ => (Kind::Other, 0),
        };
        Self {
            path: entry.path.to_vec(),
            kind,
            bytes,
        }
    }

    /// What is moved by a pack that was made here.
    pub(super) fn of_pack(pack: &[u8]) -> Vec<Self> {
        let limits = Limits::default();
        let entries = PackReader::new(pack, &limits);
        entries
            .map_while(Result::ok)
            .map(|e| Self::of(&e))
            .collect()
    }
}

/// Counts and tells.
pub(super) struct Report<'a> {
    observer: &'a mut Observer<'a>,
    pub(super) result: TreeResult,
    began: Instant,
    told: Instant,
    stopped: bool,
}

impl<'a> Report<'a> {
    pub(super) fn new(observer: &'a mut Observer<'a>) -> Self {
        let now = Instant::now();
        Self {
            observer,
            result: TreeResult::default(),
            began: now,
            told: now,
            stopped: false,
        }
    }

    /// Whether the observer wants no more.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether there is anything to be made durable.
    pub(super) fn has_moved(&self) -> bool {
        self.result.files + self.result.directories + self.result.others > 0
    }

    pub(super) fn moved(&mut self, item: &Item) {
        match item.kind {
            Kind::File => self.result.files += 1,
            Kind::Directory => self.result.directories += 1,
            Kind::Other => self.result.others += 1,
            Kind::Attributes => {}
        }
        self.result.bytes += item.bytes;
    }

    pub(super) fn failed(&mut self, path: &[u8], fault: &Fault) {
        self.result.failed += 1;
        self.tell(&TreeEvent::Failed { path, fault });
    }

    pub(super) fn step(&mut self, step: SyncStep, path: &[u8], from: Option<&[u8]>) {
        self.tell(&TreeEvent::Step { step, path, from });
    }

    /// The next of what others give, while progress is told; `None` if nothing more comes, or the
    /// observer wants no more.
    pub(super) fn next<T>(&mut self, given: &mpsc::Receiver<T>) -> Option<T> {
        while !self.stopped {
            match given.recv_timeout(PROGRESS_INTERVAL) {
                Ok(next) => return Some(next),
                Err(RecvTimeoutError::Timeout) => self.progress(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    pub(super) fn progress(&mut self) {
        if self.told.elapsed() >= PROGRESS_INTERVAL {
            self.told = Instant::now();
            self.result.elapsed = self.began.elapsed();
            let result = self.result.clone();
            self.tell(&TreeEvent::Progress(&result));
        }
    }

    fn tell(&mut self, event: &TreeEvent<'_>) {
        let event = match event {
            TreeEvent::Progress(result) => TreeEvent::Progress(result),
            TreeEvent::Failed { path, fault } => TreeEvent::Failed { path, fault },
            TreeEvent::Step { step, path, from } => TreeEvent::Step {
                step: *step,
                path,
                from: *from,
            },
        };
        self.stopped |= (self.observer)(event) == ControlFlow::Break(());
    }

    /// The end.
    ///
    /// # Errors
    /// The observer stopped it.
    pub(super) fn finish(mut self) -> Result<TreeResult, Fault> {
        if self.stopped {
            let cause = "it was stopped";
            return Err(Fault::new(Code::Cancelled, "copy a tree", cause)
                .hint("run the same command again to go on"));
        }
        self.result.elapsed = self.began.elapsed();
        Ok(self.result)
    }
}

/// A pack that is under way.
#[derive(Debug)]
pub(super) struct MovingPack {
    pub(super) transfer: Transfer,
    pub(super) items: Vec<Item>,
}

/// A large file that is under way.
#[derive(Debug)]
struct MovingFile {
    transfer: Transfer,
    path: Vec<u8>,
}

/// Large files that are under way.
#[derive(Debug, Default)]
pub(super) struct LargeFiles(VecDeque<MovingFile>);

impl LargeFiles {
    /// Adds one, when there is room for it.
    ///
    /// # Errors
    /// The session ended.
    pub(super) fn push(
        &mut self,
        path: Vec<u8>,
        transfer: Transfer,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        self.0.push_back(MovingFile { transfer, path });
        while self.0.len() >= LARGE_MAX {
            self.wait(report)?;
        }
        Ok(())
    }

    /// Waits for the one that was begun first.
    ///
    /// # Errors
    /// The session ended.
    pub(super) fn wait(&mut self, report: &mut Report<'_>) -> Result<(), Fault> {
        let Some(mut file) = self.0.pop_front() else {
            return Ok(());
        };
        while !file.transfer.is_finished() {
            if report.is_stopped() {
                file.transfer.cancel();
                for file in self.0.drain(..) {
                    file.transfer.cancel();
                }
            }
            file.transfer.progress(PROGRESS_INTERVAL);
            report.progress();
        }
        match file.transfer.wait() {
            Ok(result) => {
                report.result.matched_bytes += result.resumed_bytes;
                report.moved(&Item {
                    path: file.path,
                    kind: Kind::File,
                    bytes: result.bytes,
                });
            }
            Err(fault) if ends_session(&fault) => return Err(fault),
            Err(fault) => report.failed(&file.path, &fault),
        }
        Ok(())
    }

    /// Waits for all of them.
    ///
    /// # Errors
    /// The session ended.
    pub(super) fn finish(mut self, report: &mut Report<'_>) -> Result<(), Fault> {
        while !self.0.is_empty() {
            self.wait(report)?;
        }
        Ok(())
    }
}

/// Packs that are under way.
pub(super) struct Packs<T>(VecDeque<T>);

impl<T> Packs<T> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn push(&mut self, pack: T) {
        self.0.push_back(pack);
    }

    /// The one that was begun first, if no more may be begun before it ends.
    pub(super) fn take_if_full(&mut self) -> Option<T> {
        (self.0.len() >= PACKS_MAX).then(|| self.0.pop_front())?
    }

    /// The one that was begun first.
    pub(super) fn take(&mut self) -> Option<T> {
        self.0.pop_front()
    }
}

/// Waits for a pack that was sent.
///
/// # Errors
/// The session ended.
pub(super) fn wait_for_pack(pack: MovingPack, report: &mut Report<'_>) -> Result<(), Fault> {
    match pack.transfer.wait_for_pack() {
        Ok(failures) => {
            for (number, item) in (0..).zip(&pack.items) {
                match failures.of(number) {
                    Some(fault) => {
                        let fault = fault.clone().path(&item.path);
                        report.failed(&item.path, &fault);
                    }
                    None => report.moved(item),
                }
            }
        }
        Err(fault) if ends_session(&fault) => return Err(fault),
        Err(fault) => {
            for item in &pack.items {
                report.failed(&item.path, &fault);
            }
        }
    }
    report.progress();
    Ok(())
}

/// Whether nothing more can be moved after a fault.
pub(super) fn ends_session(fault: &Fault) -> bool {
    matches!(
        fault.code,
        Code::ConnectionLost
            | Code::ConnectionRefused
            | Code::ShuttingDown
            | Code::ProtocolViolation
    )
}

/// How a pack, or a large file, is transferred.
pub(super) fn transfer_options(options: &TreeOptions) -> TransferOptions {
    TransferOptions {
        rate_bytes_per_s_max: options.rate_bytes_per_s_max,
        overwrite: options.overwrite,
        digest: options.digest,
        ..TransferOptions::default()
    }
}
