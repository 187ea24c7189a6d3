//! Workers that read and write packs of small files, and open sources and sinks of slow stores.
//! They keep this work off the session thread.
//!
//! A pack is held in memory as a whole. The workers are started on demand and take on the ids of
//! the session before they touch a store. How many packs there are at once
//! is bounded by [`Limits::open_files_max`](xdfs_proto::Limits::open_files_max).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use xdfs_proto::pack::{Failures, PACK_BYTES_MAX, PackRequest, PackWriter};
use xdfs_proto::{Code, Fault, FileId, SourceTag};
use xdfs_store::{OpenedSink, PackOptions, SinkRequest, Source, SourceInfo, Store, SyncGroup};
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::Notifier;

use crate::environment::{Environment, Task, Turn, Worker, receive, wake};
use crate::guard::guarded;
use crate::pool::Buffer;
use crate::security::assume_ids;

/// Threads of a session: directories of one file system rarely take more writers well.
const THREADS_MAX: usize = 4;
/// Likewise while packs wait until a disk has what is in them: then those that wait share that.
const WAITING_THREADS_MAX: usize = 16;
/// Memory of packs that is kept for the next ones.
const SPARES_MAX: usize = 16;
/// The least length of such memory in bytes: most packs have room in it.
const SPARE_BYTES: usize = 1 << 20;

/// Memory that packs were in, for further ones: fresh memory costs more than filling it.
#[derive(Clone, Debug, Default)]
pub struct Spares(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spares {
    /// Memory of at least `length` bytes, with any content.
    #[must_use]
    pub fn take(&self, length: usize) -> Vec<u8> {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = spares.pop().filter(|spare| spare.len() >= length);
        // Zeroed memory comes from the system untouched.
        spare.unwrap_or_else(|| vec![0; length.max(SPARE_BYTES)])
    }

    /// Gives memory back.
    pub fn give(&self, memory: Vec<u8>) {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARES_MAX && memory.capacity() > 0 {
            spares.push(memory);
        }
    }
}

/// A pack that was made, to be sent.
#[derive(Debug)]
pub struct PackSource {
    memory: Arc<Vec<u8>>,
    info: SourceInfo,
    spares: Spares,
}

impl PackSource {
    /// The first `length` bytes of `memory`, which goes to `spares` afterwards.
    #[must_use]
    pub fn new(memory: Vec<u8>, length: usize, spares: Spares) -> Self {
        let info = SourceInfo {
            length: Some(length.min(memory.len()) as u64),
            tag: SourceTag::default(),
            mode: None,
            mtime_ns: None,
            random_reads: true,
            sparse: false,
        };
        Self {
            memory: Arc::new(memory),
            info,
            spares,
        }
    }
}

impl Source for PackSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let length = usize::try_from(self.info.length.unwrap_or(0)).unwrap_or(0);
        let at = usize::try_from(offset).unwrap_or(usize::MAX).min(length);
        let bytes = &self.memory[at..length];
        let count = bytes.len().min(buf.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn memory(&self) -> Option<Arc<Vec<u8>>> {
        Some(Arc::clone(&self.memory))
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

impl Drop for PackSource {
    fn drop(&mut self) {
        // A channel that is sending it still keeps it.
        if let Some(memory) = Arc::get_mut(&mut self.memory) {
            self.spares.give(std::mem::take(memory));
        }
    }
}

/// A pack whose blocks are arriving, with its memory.
#[derive(Debug)]
pub(crate) struct ArrivingPack {
    store: Arc<dyn Store>,
    root: Vec<u8>,
    how: PackOptions,
    /// `None` while a channel has it.
    memory: Option<Buffer>,
    /// A part of the memory is filled.
    is_begun: bool,
    length: usize,
}

impl ArrivingPack {
    /// Gives the memory to a channel that reads a block into it, if the block is all of the pack,
    /// and no other channel has it or brings the same in parts.
    pub(crate) fn lend(&mut self, offset: u64, length: usize) -> Option<Buffer> {
        let is_whole = offset == 0 && length == self.length && !self.is_begun;
        self.memory.take_if(|_| is_whole)
    }

    /// Takes the memory back, with all of the pack if it is `whole`. If another channel brings the
    /// same block meanwhile, there is other memory, in which a part may be missing.
    pub(crate) fn take_back(&mut self, memory: Buffer, whole: bool) {
        if whole || self.memory.is_none() {
            self.memory = Some(memory);
        }
    }

    /// Takes bytes; what lies past the end is left out, as the machine lets nothing through there.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if let Some(room) = self.room(offset, bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    /// Takes zeros.
    pub(crate) fn zero(&mut self, offset: u64, length: u64) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if let Some(room) = self.room(offset, length) {
            room.fill(0);
        }
    }

    fn room(&mut self, offset: u64, length: usize) -> Option<&mut [u8]> {
        let at = usize::try_from(offset).ok()?;
        let end = at.checked_add(length)?;
        self.is_begun = true;
        // A block may come twice, and a channel that has the memory for the first may never end.
        let memory = self
            .memory
            .get_or_insert_with(|| Buffer::of(Vec::new(), self.length));
        memory.get_mut(at..end)
    }
}

#[derive(Debug)]
enum StoreJob {
    /// Make a pack of the requested names beneath `root`.
    ReadPack {
        file: FileId,
        store: Arc<dyn Store>,
        root: Vec<u8>,
        pack_request: PackRequest,
    },
    /// Write the entries of a pack that has arrived.
    WritePack { file: FileId, pack: ArrivingPack },
    /// Open a source.
    OpenSource {
        file: FileId,
        store: Arc<dyn Store>,
        path: Vec<u8>,
    },
    /// Open a sink or, in a dry run, check whether it could be opened.
    OpenSink {
        file: FileId,
        store: Arc<dyn Store>,
        request: Box<SinkRequest>,
        dry_run: bool,
    },
}

/// An open sink or, in a dry run, the result of its check.
#[derive(Debug)]
pub(crate) enum SinkOutcome {
    /// In a dry run: the path that would be published.
    Checked(Vec<u8>),
    Open(OpenedSink),
}

/// Opens a sink or, in a dry run, checks whether it could be opened.
pub(crate) fn open_or_check_sink(
    store: &dyn Store,
    request: &SinkRequest,
    dry_run: bool,
) -> Result<SinkOutcome, Fault> {
    match dry_run {
        true => store.check_sink(request).map(SinkOutcome::Checked),
        false => store.open_sink(request).map(SinkOutcome::Open),
    }
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum StoreCompletion {
    PackRead {
        file: FileId,
        pack: Result<PackSource, Fault>,
    },
    PackWritten {
        file: FileId,
        failures: Result<Failures, Fault>,
        busy: Duration,
    },
    SourceOpened {
        file: FileId,
        source: Result<Box<dyn Source>, Fault>,
    },
    SinkOpened {
        file: FileId,
        opened: Result<SinkOutcome, Fault>,
    },
}

/// The pipeline's end of the queue.
#[derive(Debug)]
pub(crate) struct StoreWorkers {
    environment: Arc<dyn Environment>,
    ids: Option<Ids>,
    /// The threads of the session, these and others; `None` where those that ask for what was
    /// written to be durable are no threads of it.
    sync_group: Option<Arc<SyncGroup>>,
    notifier: Notifier,
    spares: Spares,
    /// `None` when the session is over.
    jobs: Option<mpsc::Sender<StoreJob>>,
    queue: Arc<Mutex<mpsc::Receiver<StoreJob>>>,
    teller: mpsc::Sender<StoreCompletion>,
    done: mpsc::Receiver<StoreCompletion>,
    workers: Vec<Worker>,
    /// The last pack waited for a disk.
    waits: Arc<AtomicBool>,
    /// Jobs that run or wait for a thread.
    running: usize,
}

impl StoreWorkers {
    pub(crate) fn new(
        environment: Arc<dyn Environment>,
        ids: Option<Ids>,
        sync_group: Option<Arc<SyncGroup>>,
        notifier: Notifier,
    ) -> Self {
        let (jobs, queue) = mpsc::channel();
        let (teller, done) = mpsc::channel();
        Self {
            environment,
            ids,
            sync_group,
            notifier,
            spares: Spares::default(),
            jobs: Some(jobs),
            queue: Arc::new(Mutex::new(queue)),
            teller,
            done,
            workers: Vec::new(),
            waits: Arc::default(),
            running: 0,
        }
    }

    /// Memory for a pack of `length` bytes that is going to arrive.
    pub(crate) fn arriving(
        &self,
        store: Arc<dyn Store>,
        root: Vec<u8>,
        how: PackOptions,
        length: usize,
    ) -> ArrivingPack {
        let length = length.min(PACK_BYTES_MAX);
        ArrivingPack {
            store,
            root,
            how,
            memory: Some(Buffer::of(self.spares.take(length), length)),
            is_begun: false,
            length,
        }
    }

    /// Queues the making of a pack.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn submit_read_pack(
        &mut self,
        file: FileId,
        store: Arc<dyn Store>,
        root: Vec<u8>,
        pack_request: PackRequest,
    ) -> Result<(), Fault> {
        self.submit(StoreJob::ReadPack {
            file,
            store,
            root,
            pack_request,
        })
    }

    /// Queues the writing of a pack.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn submit_write_pack(
        &mut self,
        file: FileId,
        pack: ArrivingPack,
    ) -> Result<(), Fault> {
        self.submit(StoreJob::WritePack { file, pack })
    }

    /// Queues the opening of a source.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn submit_open_source(
        &mut self,
        file: FileId,
        store: Arc<dyn Store>,
        path: Vec<u8>,
    ) -> Result<(), Fault> {
        self.submit(StoreJob::OpenSource { file, store, path })
    }

    /// Queues the opening of a sink, or in a dry run its check.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn submit_open_sink(
        &mut self,
        file: FileId,
        store: Arc<dyn Store>,
        request: SinkRequest,
        dry_run: bool,
    ) -> Result<(), Fault> {
        let request = Box::new(request);
        self.submit(StoreJob::OpenSink {
            file,
            store,
            request,
            dry_run,
        })
    }

    fn submit(&mut self, job: StoreJob) -> Result<(), Fault> {
        let count = self.workers.len();
        let most = match self.waits.load(Ordering::Relaxed) {
            true => WAITING_THREADS_MAX,
            false => THREADS_MAX,
        };
        if count < most && self.running >= count {
            match self.start() {
                Ok(worker) => self.workers.push(worker),
                Err(error) if count == 0 => {
                    return Err(Fault::from_io("start a thread for packs", "", &error));
                }
                Err(error) => tracing::warn!(%error, "a thread for packs could not be started"),
            }
        }
        self.running += 1;
        if let Some(jobs) = &self.jobs {
            // The other end of the queue is here.
            let _ = jobs.send(job);
        }
        Ok(())
    }

    fn start(&self) -> std::io::Result<Worker> {
        let environment = Arc::clone(&self.environment);
        let (queue, done) = (Arc::clone(&self.queue), self.teller.clone());
        let (notifier, spares) = (self.notifier.clone(), self.spares.clone());
        let (waits, sync_group) = (Arc::clone(&self.waits), self.sync_group.clone());
        let ids = self.ids.clone();
        let make = move || {
            let ids = assume_ids(ids.as_ref());
            if let Some(sync_group) = sync_group {
                sync_group.join();
            }
            StoreTask {
                environment,
                queue,
                next: None,
                done,
                notifier,
                spares,
                waits,
                ids,
            }
        };
        Worker::start(&*self.environment, "xdfs-packs", &self.notifier, make)
    }

    /// What was done since the last call.
    pub(crate) fn completion(&mut self) -> Option<StoreCompletion> {
        let done = self.done.try_recv().ok()?;
        self.running -= 1;
        Some(done)
    }

    /// Lets the threads end when they have done what was begun, and returns them.
    pub(crate) fn finish(&mut self) -> Vec<Worker> {
        self.jobs = None;
        // What nobody began isn't begun.
        if let Ok(queue) = self.queue.try_lock() {
            while queue.try_recv().is_ok() {}
        }
        std::mem::take(&mut self.workers)
    }
}

/// One thread.
struct StoreTask {
    environment: Arc<dyn Environment>,
    queue: Arc<Mutex<mpsc::Receiver<StoreJob>>>,
    /// Came while it waited.
    next: Option<StoreJob>,
    done: mpsc::Sender<StoreCompletion>,
    notifier: Notifier,
    spares: Spares,
    waits: Arc<AtomicBool>,
    /// Whether it may touch a store.
    ids: Result<(), Fault>,
}

impl Task for StoreTask {
    fn turn(&mut self) -> Turn {
        let job = match (self.next.take(), self.queue.try_lock()) {
            (Some(job), _) => job,
            // Another thread waits for a job.
            (None, Err(TryLockError::WouldBlock)) => return Turn::Wait(None),
            (None, Err(TryLockError::Poisoned(_))) => return Turn::Ended,
            (None, Ok(queue)) => match queue.try_recv() {
                Ok(job) => job,
                Err(TryRecvError::Empty) => return Turn::Wait(None),
                Err(TryRecvError::Disconnected) => return Turn::Ended,
            },
        };
        let done = self.work(job);
        // If the session is over nobody listens.
        let _ = self.done.send(done);
        wake(&self.notifier);
        Turn::Again
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // An end shows at the next turn.
        let come = receive(&queue, timeout);
        let has_come = !matches!(come, Err(RecvTimeoutError::Timeout));
        self.next = come.ok();
        has_come
    }
}

impl StoreTask {
    fn work(&self, job: StoreJob) -> StoreCompletion {
        match job {
            StoreJob::ReadPack {
                file,
                store,
                root,
                pack_request,
            } => {
                let pack = self.ids.clone().and_then(|()| {
                    let mut writer = PackWriter::new(self.spares.take(0), PACK_BYTES_MAX);
                    let read = || store.read_pack(&root, &pack_request, &mut writer);
                    let result = guarded("make a pack", read).flatten();
                    let entries = writer.entries();
                    let (memory, length) = writer.finish();
                    let source = PackSource::new(memory, length, self.spares.clone());
                    result?;
                    if entries == 0 {
                        let cause = "a pack has no room for the first of the names";
                        let fault = Fault::new(Code::LimitExceeded, "make a pack", cause);
                        return Err(fault.path(&root));
                    }
                    Ok(source)
                });
                StoreCompletion::PackRead { file, pack }
            }
            StoreJob::WritePack { file, pack } => {
                let began = self.environment.now();
                let memory = pack.memory.unwrap_or_else(|| Buffer::of(Vec::new(), 0));
                let failures = self.ids.clone().and_then(|()| {
                    let write = || {
                        let waits = !pack.how.relaxed && pack.store.packs_wait(&pack.root);
                        self.waits.store(waits, Ordering::Relaxed);
                        pack.store.write_pack(&pack.root, pack.how, &memory)
                    };
                    guarded("carry out a pack", write).flatten()
                });
                self.spares.give(memory.into_bytes());
                StoreCompletion::PackWritten {
                    file,
                    failures,
                    busy: self.environment.now() - began,
                }
            }
            StoreJob::OpenSource { file, store, path } => {
                let open = || store.open_source(&path);
                let ids = self.ids.clone();
                let source = ids.and_then(|()| guarded("open the source", open).flatten());
                StoreCompletion::SourceOpened { file, source }
            }
            StoreJob::OpenSink {
                file,
                store,
                request,
                dry_run,
            } => {
                let open = || open_or_check_sink(&*store, &request, dry_run);
                let ids = self.ids.clone();
                let opened = ids.and_then(|()| guarded("open the target", open).flatten());
                StoreCompletion::SinkOpened { file, opened }
            }
        }
    }
}

#[cfg(test)]
mod tests;
