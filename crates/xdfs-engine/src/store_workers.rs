//! Workers that read and write packs of small files, and open sources and sinks of slow stores, to
//! keep this work off the session thread.
//!
//! A whole pack is held in memory, which it gets with its first byte. Workers are started on demand
//! and assume the session's ids before they access a store.
//! [`Limits::open_files_max`](xdfs_proto::Limits::open_files_max) bounds the number of concurrent
//! packs, and the memory of the server that of their bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use xdfs_proto::pack::{Failures, PACK_BYTES_MAX, PackRequest, PackWriter};
use xdfs_proto::path::Call;
use xdfs_proto::{Code, Fault, FileId, SourceTag};
use xdfs_store::{OpenedSink, PackOptions, SinkRequest, Source, SourceInfo, Store, SyncGroup};
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::Notifier;

use crate::environment::{Environment, Task, Turn, Worker, receive, wake};
use crate::guard::guarded;
use crate::memory::{Account, Reserved};
use crate::pool::{Buffer, Memory};
use crate::security::assume_ids;

/// Workers per session: directories of one file system rarely scale to more writers.
const THREADS_MAX: usize = 4;
/// Workers per session while packs wait for the disk, since packs that wait together share one
/// synchronisation, or for a store whose calls take long, such as one on a network.
const WAITING_THREADS_MAX: usize = 16;
/// A pack has waited if this part of its time was not its processor's.
const WAITING: f64 = 0.75;
/// Less time says nothing.
const MEASURED_MIN: Duration = Duration::from_millis(2);
/// Number of pack buffers kept for reuse.
const SPARES_MAX: usize = 16;
/// Minimum size of such a buffer in bytes: most packs fit.
const SPARE_BYTES: usize = 1 << 20;

/// Reusable pack buffers: fresh memory costs more than filling it.
#[derive(Clone, Debug)]
pub struct Spares {
    free: Arc<Mutex<Vec<Memory>>>,
    account: Account,
}

impl Default for Spares {
    fn default() -> Self {
        Self::new(Account::unbounded())
    }
}

impl Spares {
    /// Buffers that count in `account`.
    fn new(account: Account) -> Self {
        let free = Arc::default();
        Self { free, account }
    }

    /// A buffer of at least `length` bytes, with arbitrary content.
    #[must_use]
    pub fn take(&self, length: usize) -> Vec<u8> {
        self.take_at_once(length).bytes
    }

    /// Returns a buffer.
    pub fn give(&self, bytes: Vec<u8>) {
        let reserved = self.account.take_at_once(bytes.capacity());
        self.give_memory(Memory { bytes, reserved });
    }

    fn take_at_once(&self, length: usize) -> Memory {
        self.pop(length).unwrap_or_else(|| {
            let size = length.max(SPARE_BYTES);
            fresh(size, self.account.take_at_once(size))
        })
    }

    /// Like [`Self::take`]; `None` without memory. A single buffer is there in any case.
    fn try_take(&self, length: usize) -> Option<Memory> {
        self.pop(length).or_else(|| {
            let size = length.max(SPARE_BYTES);
            let take = || self.account.take(size, size);
            let reserved = take().or_else(|| {
                self.clear();
                take()
            });
            Some(fresh(size, reserved?))
        })
    }

    fn pop(&self, length: usize) -> Option<Memory> {
        let spare = self.lock().pop();
        spare.filter(|spare| spare.bytes.len() >= length)
    }

    fn give_memory(&self, memory: Memory) {
        let mut free = self.lock();
        if free.len() < SPARES_MAX && memory.bytes.capacity() > 0 {
            free.push(memory);
        }
    }

    /// Frees the buffers that are not in use.
    fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Memory>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fresh(size: usize, reserved: Reserved) -> Memory {
    // Zeroed memory comes from the system untouched.
    let bytes = vec![0; size];
    Memory { bytes, reserved }
}

/// A complete pack as a source.
#[derive(Debug)]
pub struct PackSource {
    memory: Arc<Vec<u8>>,
    /// What `memory` takes; `None` once it went to `spares`.
    reserved: Option<Reserved>,
    info: SourceInfo,
    spares: Spares,
}

impl PackSource {
    /// A source of the first `length` bytes of `memory`, which is returned to `spares` afterwards.
    #[must_use]
    pub fn new(memory: Vec<u8>, length: usize, spares: Spares) -> Self {
        let reserved = spares.account.take_at_once(memory.capacity());
        Self::of(memory, reserved, length, spares)
    }

    fn of(memory: Vec<u8>, reserved: Reserved, length: usize, spares: Spares) -> Self {
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
            reserved: Some(reserved),
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

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, is_uniform,
        shared);
}

impl Drop for PackSource {
    fn drop(&mut self) {
        // A channel that is still sending it keeps a reference.
        if let Some(memory) = Arc::get_mut(&mut self.memory)
            && let Some(reserved) = self.reserved.take()
        {
            let bytes = std::mem::take(memory);
            self.spares.give_memory(Memory { bytes, reserved });
        }
    }
}

/// An arriving pack and its memory.
#[derive(Debug)]
pub(crate) struct ArrivingPack {
    store: Arc<dyn Store>,
    root: Vec<u8>,
    options: PackOptions,
    /// For the last pack of a tree, the files that it waits for.
    pub(crate) last: Option<Vec<FileId>>,
    /// `None` before its first bytes come, and while lent to a channel.
    memory: Option<Buffer>,
    is_lent: bool,
    /// Some of the memory has been filled.
    is_begun: bool,
    length: usize,
    spares: Spares,
}

impl ArrivingPack {
    /// Whether bytes of the pack can't be taken yet.
    pub(crate) fn lacks_memory(&self) -> bool {
        self.memory.is_none() && !self.is_lent
    }

    /// Gets the memory that it lacks; `None` if there is none.
    pub(crate) fn get_memory(&mut self) -> Option<()> {
        let memory = self.spares.try_take(self.length)?;
        self.memory = Some(Buffer::of(memory, self.length));
        Some(())
    }

    /// Lends the memory to a channel that is about to read a block into it, if the block is the
    /// whole pack and no other channel has the memory or has brought parts of it.
    pub(crate) fn lend(&mut self, offset: u64, length: usize) -> Option<Buffer> {
        let is_whole = offset == 0 && length == self.length && !self.is_begun;
        let memory = self.memory.take_if(|_| is_whole)?;
        self.is_lent = true;
        Some(memory)
    }

    /// Takes the memory back, completely filled if it is `whole`. If another channel has brought
    /// the same block meanwhile, a second buffer exists, which may be incomplete.
    pub(crate) fn take_back(&mut self, memory: Buffer, whole: bool) {
        self.is_lent = false;
        if whole || self.memory.is_none() {
            self.memory = Some(memory);
        }
    }

    /// Copies bytes into the pack. Bytes past its end are dropped; the machine lets none through.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if let Some(room) = self.room(offset, bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    /// Fills a range with zeros.
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
        // A block may arrive twice, and the channel that borrowed the memory for the first copy may
        // never finish.
        let memory = self.memory.get_or_insert_with(|| {
            let memory = self.spares.take_at_once(self.length);
            Buffer::of(memory, self.length)
        });
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
        memory: Memory,
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

/// An open sink or, in a dry run, the result of the check.
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

/// The result of a [`StoreJob`].
#[derive(Debug)]
pub(crate) enum StoreCompletion {
    PackRead {
        file: FileId,
        pack: Result<PackSource, Fault>,
    },
    PackWritten {
        file: FileId,
        failures: Result<Failures, Fault>,
        /// The time it took, the time to make the pack durable included.
        writing: Duration,
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

/// The pipeline's side of the queue.
#[derive(Debug)]
pub(crate) struct StoreWorkers {
    environment: Arc<dyn Environment>,
    ids: Option<Ids>,
    /// All threads of the session; `None` if durability is requested by other threads than the
    /// session's.
    sync_group: Option<Arc<SyncGroup>>,
    notifier: Notifier,
    /// For packs that are read.
    read_spares: Spares,
    /// For packs that arrive. They are counted separately, so that neither wait for the others.
    write_spares: Spares,
    /// `None` when the session is over.
    jobs: Option<mpsc::Sender<StoreJob>>,
    queue: Arc<Mutex<mpsc::Receiver<StoreJob>>>,
    done_sender: mpsc::Sender<StoreCompletion>,
    done: mpsc::Receiver<StoreCompletion>,
    workers: Vec<Worker>,
    /// The last pack waited.
    waits: Arc<AtomicBool>,
    /// Number of jobs running or queued.
    running: usize,
}

impl StoreWorkers {
    pub(crate) fn new(
        environment: Arc<dyn Environment>,
        ids: Option<Ids>,
        sync_group: Option<Arc<SyncGroup>>,
        notifier: Notifier,
        account: impl Fn() -> Account,
    ) -> Self {
        let (jobs, queue) = mpsc::channel();
        let (done_sender, done) = mpsc::channel();
        Self {
            environment,
            ids,
            sync_group,
            notifier,
            read_spares: Spares::new(account()),
            write_spares: Spares::new(account()),
            jobs: Some(jobs),
            queue: Arc::new(Mutex::new(queue)),
            done_sender,
            done,
            workers: Vec::new(),
            waits: Arc::default(),
            running: 0,
        }
    }

    /// An arriving pack of `length` bytes.
    pub(crate) fn arriving(
        &self,
        store: Arc<dyn Store>,
        root: Vec<u8>,
        options: PackOptions,
        length: usize,
        last: Option<Vec<FileId>>,
    ) -> ArrivingPack {
        let length = length.min(PACK_BYTES_MAX);
        ArrivingPack {
            store,
            root,
            options,
            last,
            memory: None,
            is_lent: false,
            is_begun: false,
            length,
            spares: self.write_spares.clone(),
        }
    }

    /// Memory for a pack that is to be read; `None` if there is none.
    pub(crate) fn memory_to_read(&self) -> Option<Memory> {
        self.read_spares.try_take(0)
    }

    /// Frees memory that is not in use.
    pub(crate) fn trim(&self) {
        self.read_spares.clear();
        self.write_spares.clear();
    }

    /// Queues the making of a pack, which begins in `memory`.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn submit_read_pack(
        &mut self,
        file: FileId,
        store: Arc<dyn Store>,
        root: Vec<u8>,
        pack_request: PackRequest,
        memory: Memory,
    ) -> Result<(), Fault> {
        self.submit(StoreJob::ReadPack {
            file,
            store,
            root,
            pack_request,
            memory,
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
        let (queue, done) = (Arc::clone(&self.queue), self.done_sender.clone());
        let notifier = self.notifier.clone();
        let (read_spares, write_spares) = (self.read_spares.clone(), self.write_spares.clone());
        let (waits, sync_group) = (Arc::clone(&self.waits), self.sync_group.clone());
        let ids = self.ids.clone();
        let make = move || {
            let ids = assume_ids(ids.as_ref());
            if let Some(sync_group) = sync_group {
                sync_group.join();
            }
            StoreWorkerTask {
                environment,
                queue,
                next: None,
                done,
                notifier,
                read_spares,
                write_spares,
                waits,
                ids,
            }
        };
        Worker::start(&*self.environment, "xdfs-packs", &self.notifier, make)
    }

    /// The next result, if there is one.
    pub(crate) fn completion(&mut self) -> Option<StoreCompletion> {
        let done = self.done.try_recv().ok()?;
        self.running -= 1;
        Some(done)
    }

    /// Lets the workers end after their current jobs, and returns them.
    pub(crate) fn finish(&mut self) -> Vec<Worker> {
        self.jobs = None;
        // Drops jobs not started.
        if let Ok(queue) = self.queue.try_lock() {
            while queue.try_recv().is_ok() {}
        }
        std::mem::take(&mut self.workers)
    }
}

/// A worker.
struct StoreWorkerTask {
    environment: Arc<dyn Environment>,
    queue: Arc<Mutex<mpsc::Receiver<StoreJob>>>,
    /// The job received while waiting.
    next: Option<StoreJob>,
    done: mpsc::Sender<StoreCompletion>,
    notifier: Notifier,
    read_spares: Spares,
    write_spares: Spares,
    waits: Arc<AtomicBool>,
    /// Whether the worker may access a store.
    ids: Result<(), Fault>,
}

impl Task for StoreWorkerTask {
    fn turn(&mut self) -> Turn {
        let job = match (self.next.take(), self.queue.try_lock()) {
            (Some(job), _) => job,
            // Another worker is waiting for a job.
            (None, Err(TryLockError::WouldBlock)) => return Turn::Wait(None),
            (None, Err(TryLockError::Poisoned(_))) => return Turn::Ended,
            (None, Ok(queue)) => match queue.try_recv() {
                Ok(job) => job,
                Err(TryRecvError::Empty) => return Turn::Wait(None),
                Err(TryRecvError::Disconnected) => return Turn::Ended,
            },
        };
        let done = self.work(job);
        // After the end of the session nobody receives it.
        let _ = self.done.send(done);
        wake(&self.notifier);
        Turn::Again
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // The end is detected in the next turn.
        let come = receive(&queue, timeout);
        let has_come = !matches!(come, Err(RecvTimeoutError::Timeout));
        self.next = come.ok();
        has_come
    }
}

impl StoreWorkerTask {
    /// Handles a pack, and learns whether it was waiting most of the time. `waits` if that is known
    /// before.
    fn measured<R>(&self, waits: bool, handle: impl FnOnce() -> R) -> R {
        if waits {
            self.waits.store(true, Ordering::Relaxed);
        }
        let (began, before) = (self.environment.now(), self.environment.thread_time());
        let result = handle();
        let (took, after) = (
            self.environment.now().saturating_duration_since(began),
            self.environment.thread_time(),
        );
        let busy = before.zip(after).map(|(from, to)| to.saturating_sub(from));
        if !waits && let Some(busy) = busy {
            let waited = took.saturating_sub(busy);
            let has_waited = took >= MEASURED_MIN && waited >= took.mul_f64(WAITING);
            self.waits.store(has_waited, Ordering::Relaxed);
        }
        result
    }

    fn work(&self, job: StoreJob) -> StoreCompletion {
        match job {
            StoreJob::ReadPack {
                file,
                store,
                root,
                pack_request,
                memory,
            } => {
                let pack = self.ids.clone().and_then(|()| {
                    let Memory {
                        bytes,
                        mut reserved,
                    } = memory;
                    let mut writer = PackWriter::new(bytes, PACK_BYTES_MAX);
                    let read = || store.read_pack(&root, &pack_request, &mut writer);
                    let result = self.measured(false, || guarded("read", read)).flatten();
                    let entries = writer.entries();
                    let (memory, length) = writer.finish();
                    reserved.grow_to(memory.capacity());
                    let spares = self.read_spares.clone();
                    let source = PackSource::of(memory, reserved, length, spares);
                    result?;
                    if entries == 0 {
                        let cause = "the attributes of its first entry are too large to be sent";
                        let fault = Fault::new(Code::LimitExceeded, "read", cause);
                        return Err(fault.path(&root));
                    }
                    Ok(source)
                });
                StoreCompletion::PackRead { file, pack }
            }
            StoreJob::WritePack { file, pack } => {
                let began = self.environment.now();
                // An empty pack has none.
                let memory = pack.memory.as_deref().unwrap_or_default();
                let failures = self.ids.clone().and_then(|()| {
                    let write = || {
                        let failures = pack.store.write_pack(&pack.root, pack.options, memory)?;
                        if pack.last.is_some() && !pack.options.relaxed {
                            let path = pack.root.clone();
                            pack.store.call(&Call::Sync { path }, &mut |_| Ok(()))?;
                        }
                        Ok(failures)
                    };
                    let waits = || !pack.options.relaxed && pack.store.packs_wait(&pack.root);
                    let waits = guarded("write", waits)?;
                    self.measured(waits, || guarded("write", write)).flatten()
                });
                if let Some(buffer) = pack.memory {
                    self.write_spares.give_memory(buffer.into_memory());
                }
                StoreCompletion::PackWritten {
                    file,
                    failures,
                    writing: self.environment.now() - began,
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
