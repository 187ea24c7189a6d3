//! Reads a slow source, such as one behind a network, in a thread of its own and a few blocks
//! ahead, so that it delays no other file of the session.

use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use xdfs_proto::sender::Extent;
use xdfs_proto::{Code, Fault};
use xdfs_store::Source;
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::Notifier;

use crate::environment::{Environment, Task, Turn, Worker, receive, wake};
use crate::guard::guarded;
use crate::pool::BlockMemory;
use crate::security::assume_ids;

/// Blocks that are being read or wait for a channel.
const AHEAD: usize = 4;
const READ: &str = "read the source";

/// A request to the thread.
#[derive(Debug)]
enum ReaderRequest {
    /// Read an extent at this offset of the source.
    Read(Extent, u64, BlockMemory),
    /// Check that the source is unchanged.
    Verify,
}

/// A result of the thread.
#[derive(Debug)]
enum ReaderResult {
    /// The bytes of an extent, fewer only at the end of the source.
    Block(Extent, BlockMemory),
    /// The source is unchanged.
    Unchanged,
}

/// An event of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderEvent {
    /// An extent can be [taken](SlowReader::next).
    Read,
    /// The source is unchanged.
    Unchanged,
}

/// The pipeline's side of the reader.
#[derive(Debug)]
pub(crate) struct SlowReader {
    requests: mpsc::Sender<ReaderRequest>,
    answers: mpsc::Receiver<Result<ReaderResult, Fault>>,
    /// Extents that were read and wait for a channel.
    ready: VecDeque<(Extent, BlockMemory)>,
    /// Extents that are being read.
    reading: usize,
    /// Bytes that are being read or wait for a channel.
    held_bytes: u64,
    is_verifying: bool,
    ahead: usize,
}

impl SlowReader {
    /// Starts the thread, with the session's `ids`. A source of unknown length is not read ahead,
    /// since it may end.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn start(
        environment: &dyn Environment,
        source: Box<dyn Source>,
        notifier: Notifier,
        ids: Option<Ids>,
    ) -> Result<Self, Fault> {
        let ahead = source.info().length.map_or(1, |_| AHEAD);
        let (requests, request_receiver) = mpsc::channel();
        let (answer_sender, answers) = mpsc::channel();
        let waker = notifier.clone();
        let make = move || ReaderTask {
            source,
            requests: request_receiver,
            next: None,
            answers: answer_sender,
            notifier,
            ids: assume_ids(ids.as_ref()),
        };
        Worker::start(environment, "xdfs-reader", &waker, make)
            .map_err(|e| Fault::from_io("start a thread", "", &e))?;
        Ok(Self {
            requests,
            answers,
            ready: VecDeque::new(),
            reading: 0,
            held_bytes: 0,
            is_verifying: false,
            ahead,
        })
    }

    /// Whether another extent may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.reading + self.ready.len() < self.ahead
    }

    /// Requests an extent, which begins at `offset` of the source.
    pub(crate) fn read(&mut self, extent: Extent, offset: u64, memory: BlockMemory) {
        self.reading += 1;
        self.held_bytes += extent.range.len();
        self.send(ReaderRequest::Read(extent, offset, memory));
    }

    /// Requests the verification that the source is unchanged.
    pub(crate) fn verify(&mut self) {
        self.is_verifying = true;
        self.send(ReaderRequest::Verify);
    }

    fn send(&self, request: ReaderRequest) {
        // If the thread has ended, this shows when its result is polled.
        let _ = self.requests.send(request);
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
            Ok(ReaderResult::Block(extent, memory)) => {
                self.reading -= 1;
                self.ready.push_back((extent, memory));
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

    /// The next extent that was read.
    pub(crate) fn next(&mut self) -> Option<(Extent, BlockMemory)> {
        let (extent, memory) = self.ready.pop_front()?;
        self.held_bytes -= extent.range.len();
        Some((extent, memory))
    }
}

/// The thread's side of the reader.
struct ReaderTask {
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
            ReaderRequest::Read(extent, offset, mut memory) => {
                let length = usize::try_from(extent.range.len()).unwrap_or(usize::MAX);
                let source = &mut self.source;
                memory.fill(length, |room| {
                    guarded(READ, || source.read_at(offset, room)).flatten()
                })?;
                Ok(ReaderResult::Block(extent, memory))
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
