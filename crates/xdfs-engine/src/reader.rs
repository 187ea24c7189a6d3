//! Reads blocks ahead in threads of their own: those of a slow source, such as one behind a
//! network, so that it delays no other file of the session, and those of a file that has to come
//! from a disk, several at a time, so that the disk is busy while the session sends.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use xdfs_proto::digest::{BlockHasher, Fragment};
use xdfs_proto::sender::Extent;
use xdfs_proto::{Code, DigestKind, Fault};
use xdfs_store::Source;
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::Notifier;

use crate::environment::{Environment, Task, Turn, Worker, receive, wake};
use crate::guard::guarded;
use crate::pool::BlockMemory;
use crate::security::assume_ids;

/// Blocks that are being read or wait for a channel, if there is one worker.
const AHEAD: usize = 4;
/// The same for each of several workers: one is read while the one before waits.
const AHEAD_EACH: usize = 2;
const READ: &str = "read the source";

/// A block to be read.
#[derive(Debug)]
pub(crate) struct WantedBlock {
    pub(crate) extent: Extent,
    /// Where it begins in the source.
    pub(crate) offset: u64,
    pub(crate) memory: BlockMemory,
    /// The digest of the file.
    pub(crate) digest: DigestKind,
    /// It needs a check value.
    pub(crate) check: bool,
}

/// A block that was read, shorter than its extent only at the end of the source.
#[derive(Debug)]
pub(crate) struct ReadBlock {
    /// Its place in the order of requests.
    place: u64,
    pub(crate) extent: Extent,
    pub(crate) memory: BlockMemory,
    /// Its check value, 0 without a check.
    pub(crate) value: u32,
    pub(crate) fragment: Fragment,
    /// It has a check value.
    pub(crate) check: bool,
}

/// A request to a thread.
#[derive(Debug)]
enum ReaderRequest {
    /// Read a block, with its place in the order of requests.
    Read(u64, WantedBlock),
    /// Check that the source is unchanged.
    Verify,
}

/// A result of a thread.
#[derive(Debug)]
enum ReaderResult {
    /// A block, and the number of the thread.
    Block(usize, ReadBlock),
    /// The source is unchanged.
    Unchanged,
}

/// An event of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderEvent {
    /// A block can be [taken](BlockReader::next).
    Read,
    /// The source is unchanged.
    Unchanged,
}

/// The pipeline's side of the reader.
#[derive(Debug)]
pub(crate) struct BlockReader {
    /// The threads, each with the number of its requests for blocks.
    workers: Vec<(mpsc::Sender<ReaderRequest>, usize)>,
    answers: mpsc::Receiver<Result<ReaderResult, Fault>>,
    /// Blocks that were read, by their places. They are taken in the order of requests, since some
    /// sinks accept bytes in order only.
    ready: BTreeMap<u64, ReadBlock>,
    /// The places of the next request, and of the next block to be taken.
    next_place: u64,
    next_taken: u64,
    /// Blocks that are being read.
    reading: usize,
    /// Bytes that are being read or wait for a channel.
    held_bytes: u64,
    is_verifying: bool,
    ahead: usize,
}

impl BlockReader {
    /// Starts a thread for each source, with the session's `ids`: all of them read the same one. A
    /// source of unknown length is not read ahead, since it may end.
    ///
    /// # Errors
    /// A thread can't be started.
    pub(crate) fn start(
        environment: &dyn Environment,
        sources: Vec<Box<dyn Source>>,
        notifier: &Notifier,
        ids: Option<&Ids>,
    ) -> Result<Self, Fault> {
        let ahead = match sources.as_slice() {
            [only] => only.info().length.map_or(1, |_| AHEAD),
            several => several.len() * AHEAD_EACH,
        };
        let (answer_sender, answers) = mpsc::channel();
        let mut workers = Vec::with_capacity(sources.len());
        for (number, source) in sources.into_iter().enumerate() {
            let (requests, request_receiver) = mpsc::channel();
            let (answers, ids) = (answer_sender.clone(), ids.cloned());
            let waker = notifier.clone();
            let make = move || ReaderTask {
                number,
                source,
                requests: request_receiver,
                next: None,
                answers,
                notifier: waker,
                ids: assume_ids(ids.as_ref()),
            };
            Worker::start(environment, "xdfs-reader", notifier, make)
                .map_err(|e| Fault::from_io("start a thread", "", &e))?;
            workers.push((requests, 0));
        }
        Ok(Self {
            workers,
            answers,
            ready: BTreeMap::new(),
            next_place: 0,
            next_taken: 0,
            reading: 0,
            held_bytes: 0,
            is_verifying: false,
            ahead,
        })
    }

    /// Whether another block may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.reading + self.ready.len() < self.ahead
    }

    /// Requests a block from the thread that has the fewest to read.
    pub(crate) fn read(&mut self, wanted: WantedBlock) {
        self.reading += 1;
        self.held_bytes += wanted.extent.range.len();
        if let Some((requests, count)) = self.workers.iter_mut().min_by_key(|(_, count)| *count) {
            *count += 1;
            // If the thread has ended, this shows when its result is polled.
            let _ = requests.send(ReaderRequest::Read(self.next_place, wanted));
            self.next_place += 1;
        }
    }

    /// Requests the verification that the source is unchanged.
    pub(crate) fn verify(&mut self) {
        self.is_verifying = true;
        if let Some((requests, _)) = self.workers.first() {
            let _ = requests.send(ReaderRequest::Verify);
        }
    }

    /// The next answer of the worker, if there is one.
    pub(crate) fn poll(&mut self) -> Option<Result<ReaderEvent, Fault>> {
        let answer = match self.answers.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Disconnected) if self.reading > 0 || self.is_verifying => {
                let cause = "the thread that reads it is gone";
                Err(Fault::new(Code::Internal, READ, cause))
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return None,
        };
        Some(match answer {
            Ok(ReaderResult::Block(number, block)) => {
                self.reading -= 1;
                if let Some((_, count)) = self.workers.get_mut(number) {
                    *count -= 1;
                }
                self.ready.insert(block.place, block);
                Ok(ReaderEvent::Read)
            }
            Ok(ReaderResult::Unchanged) => {
                self.is_verifying = false;
                Ok(ReaderEvent::Unchanged)
            }
            Err(fault) => Err(fault),
        })
    }

    /// Bytes that are being read or wait for a channel.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Whether no request is pending and no block is waiting.
    pub(crate) fn is_idle(&self) -> bool {
        self.reading == 0 && self.ready.is_empty()
    }

    /// The next block, if it was read.
    pub(crate) fn next(&mut self) -> Option<ReadBlock> {
        let block = self.ready.remove(&self.next_taken)?;
        self.next_taken += 1;
        self.held_bytes -= block.extent.range.len();
        Some(block)
    }
}

/// The side of a thread.
struct ReaderTask {
    number: usize,
    source: Box<dyn Source>,
    requests: mpsc::Receiver<ReaderRequest>,
    /// A request received while waiting.
    next: Option<ReaderRequest>,
    answers: mpsc::Sender<Result<ReaderResult, Fault>>,
    notifier: Notifier,
    /// Whether the thread may access the source.
    ids: Result<(), Fault>,
}

impl ReaderTask {
    fn answer(&mut self, request: ReaderRequest) -> Result<ReaderResult, Fault> {
        self.ids.clone()?;
        match request {
            ReaderRequest::Read(
                place,
                WantedBlock {
                    extent,
                    offset,
                    mut memory,
                    digest,
                    check,
                },
            ) => {
                let length = usize::try_from(extent.range.len()).unwrap_or(usize::MAX);
                let source = &mut self.source;
                memory.fill(length, |room| {
                    guarded(READ, || source.read_at(offset, room)).flatten()
                })?;
                let mut hasher = BlockHasher::new(digest, check, extent.range.start);
                hasher.update(memory.filled());
                let (value, fragment) = hasher.finish(extent.file);
                let block = ReadBlock {
                    place,
                    extent,
                    memory,
                    value,
                    fragment,
                    check,
                };
                Ok(ReaderResult::Block(self.number, block))
            }
            ReaderRequest::Verify => {
                let verify = || self.source.verify_unchanged();
                guarded(READ, verify)
                    .flatten()
                    .map(|()| ReaderResult::Unchanged)
            }
        }
    }
}

impl Task for ReaderTask {
    fn turn(&mut self) -> Turn {
        let request = match self
            .next
            .take()
            .map_or_else(|| self.requests.try_recv(), Ok)
        {
            Ok(request) => request,
            Err(TryRecvError::Empty) => return Turn::Wait(None),
            Err(TryRecvError::Disconnected) => return Turn::Ended,
        };
        let answer = self.answer(request);
        if self.answers.send(answer).is_err() {
            // The reader was dropped, so its requests are no longer needed.
            return Turn::Ended;
        }
        wake(&self.notifier);
        Turn::Again
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        // The end is detected in the next turn.
        let come = receive(&self.requests, timeout);
        let has_come = !matches!(come, Err(RecvTimeoutError::Timeout));
        self.next = come.ok();
        has_come
    }
}
