//! Threads that write several ranges of files at once, past the page cache, where sinks
//! [allow it](xdfs_store::Sink::begin_direct): the storage thread would wait for each of them.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use xdfs_proto::{ByteRange, Code, Fault, FileId};
use xdfs_store::DirectWriter;
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::Notifier;

use crate::environment::{Environment, wake};
use crate::guard::guarded;
use crate::pool::Buffer;
use crate::work_queue::{self, Work};

pub(crate) const WRITE: &str = "write the file";
/// Offset, buffer and number of bytes of a piece to be written.
pub(crate) type Piece = (u64, Buffer, usize);

/// Writes under way at most: as many requests keep a disk busy.
const WRITES_AT_ONCE: usize = 4;

/// Adjacent pieces to be written. Their end is reported when this is dropped, so that none is
/// waited for in vain.
struct Request {
    surroundings: Surroundings,
    ended: mpsc::Sender<EndedWrite>,
    file: FileId,
    range: ByteRange,
    writer: Option<Arc<dyn DirectWriter>>,
    pieces: Vec<Piece>,
    result: Result<(), Fault>,
    begun: Instant,
}

impl Work for Request {
    fn perform(mut self, refusal: Option<&Fault>) {
        self.result = match (refusal, &self.writer) {
            (Some(fault), _) => Err(fault.clone()),
            (None, Some(writer)) => {
                let slices: Vec<IoSlice<'_>> = self
                    .pieces
                    .iter()
                    .map(|(_, buffer, len)| IoSlice::new(&buffer[..*len]))
                    .collect();
                guarded(WRITE, || writer.write_at(self.range.start, &slices)).flatten()
            }
            (None, None) => Err(lost()),
        };
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // The file is closed first.
        self.writer = None;
        let result = std::mem::replace(&mut self.result, Ok(()));
        // Without a session neither results nor buffers are needed.
        let _ = self.ended.send(EndedWrite {
            file: self.file,
            range: self.range,
            result,
            times: (self.begun, self.surroundings.environment.now()),
        });
        for (_, buffer, _) in self.pieces.drain(..) {
            let _ = self.surroundings.give_back.send(buffer);
        }
        wake(&self.surroundings.notifier);
    }
}

/// A write that has ended.
#[derive(Debug)]
pub(crate) struct EndedWrite {
    pub(crate) file: FileId,
    pub(crate) range: ByteRange,
    pub(crate) result: Result<(), Fault>,
    /// When it began and ended.
    pub(crate) times: (Instant, Instant),
}

/// What threads need: it is the same as that of the storage thread.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) notifier: Notifier,
    pub(crate) ids: Option<Ids>,
    /// The way back of buffers to the session.
    pub(crate) give_back: mpsc::Sender<Buffer>,
}

/// The threads, started on demand, as the storage thread sees them.
#[derive(Debug)]
pub(crate) struct DiskWriters {
    surroundings: Surroundings,
    workers: Vec<mpsc::Sender<Request>>,
    /// Writes under way, with the number of their worker.
    under_way: Vec<(FileId, ByteRange, usize)>,
    ended: mpsc::Receiver<EndedWrite>,
    ended_sender: mpsc::Sender<EndedWrite>,
}

impl DiskWriters {
    pub(crate) fn new(surroundings: Surroundings) -> Self {
        let (ended_sender, ended) = mpsc::channel();
        Self {
            surroundings,
            workers: Vec::new(),
            under_way: Vec::new(),
            ended,
            ended_sender,
        }
    }

    /// Whether a range can be written now, beside those under way.
    pub(crate) fn takes(&self, file: FileId, range: ByteRange) -> bool {
        let overlaps = |(other, at, _): &(FileId, ByteRange, usize)| {
            *other == file && at.start < range.end && range.start < at.end
        };
        self.under_way.len() < WRITES_AT_ONCE && !self.under_way.iter().any(overlaps)
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Ensures that there is a thread for another write.
    ///
    /// # Errors
    /// It can't be started.
    pub(crate) fn prepare(&mut self) -> Result<(), Fault> {
        match self.free() {
            Some(_) => Ok(()),
            None => self.start(),
        }
    }

    fn free(&self) -> Option<usize> {
        let is_busy = |number: &usize| self.under_way.iter().any(|(.., busy)| busy == number);
        (0..self.workers.len()).find(|number| !is_busy(number))
    }

    /// Begins a write that is [taken](Self::takes) and [prepared](Self::prepare).
    pub(crate) fn begin(
        &mut self,
        file: FileId,
        range: ByteRange,
        writer: Arc<dyn DirectWriter>,
        pieces: Vec<Piece>,
    ) {
        let number = self.free().unwrap_or_default();
        self.under_way.push((file, range, number));
        let request = Request {
            surroundings: self.surroundings.clone(),
            ended: self.ended_sender.clone(),
            file,
            range,
            writer: Some(writer),
            pieces,
            result: Err(lost()),
            begun: self.surroundings.environment.now(),
        };
        // A thread that has ended drops it.
        if let Some(worker) = self.workers.get(number) {
            let _ = worker.send(request);
        }
    }

    fn start(&mut self) -> Result<(), Fault> {
        let surroundings = &self.surroundings;
        let worker = work_queue::start(
            &*surroundings.environment,
            "xdfs-writer",
            &surroundings.notifier,
            surroundings.ids.clone(),
        );
        let worker = worker.map_err(|e| Fault::from_io("start a thread that writes", "", &e))?;
        self.workers.push(worker);
        Ok(())
    }

    /// The next write that has ended; `None` if none has, or with `waits` if none is under way.
    pub(crate) fn next_ended(&mut self, waits: bool) -> Option<EndedWrite> {
        if self.under_way.is_empty() {
            return None;
        }
        let ended = match waits {
            true => self.ended.recv().ok(),
            false => self.ended.try_recv().ok(),
        }?;
        let is_it = |(file, range, _): &(FileId, ByteRange, usize)| {
            *file == ended.file && *range == ended.range
        };
        if let Some(at) = self.under_way.iter().position(is_it) {
            self.under_way.swap_remove(at);
        }
        Some(ended)
    }
}

/// The fault of a write whose thread has ended.
fn lost() -> Fault {
    Fault::new(Code::Internal, WRITE, "the thread that writes it is gone")
}
