//! The storage side of a receiving session: writes, durability and publication, in a thread of
//! their own, so that the pipeline keeps receiving while the disk is busy.
//!
//! This is the papers' asynchronous disk I/O: another thread and a queue of buffers. Only this
//! module decides the order of data, sync and journal. Sinks in memory take no time: the pipeline's
//! thread runs the same [`Writer`] inline for them.

mod job;
mod publishers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use xdfs_proto::digest::{DigestKind, Fragment, FragmentMap};
use xdfs_proto::{ByteRange, Code, Fault, FileId};
use xdfs_store::Sink;
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::Notifier;

use crate::disk_writers::{DiskWriters, Piece, Surroundings, WRITE};
use crate::environment::{Environment, Task, Turn, Worker, receive, wake};
use crate::guard::guarded;
use crate::pool::Buffer;
use crate::security::assume_ids;

pub(crate) use job::{SinkCompletion, SinkJob, StoreTime};

use publishers::{Publication, Publishers, UnderWay};

/// Bytes between two checkpoints of a file: data is made durable and recorded in the journal.
const CHECKPOINT_BYTES: u64 = 512 << 20;
/// Longest time between two checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that are gathered, so that one write covers adjacent pieces.
const GATHER_BYTES: usize = 4 << 20;
/// The same of a sink with several writes under way.
const GATHER_BYTES_DIRECT: usize = 2 << 20;
/// Bytes after which the system is asked to start write-back.
const WRITE_BACK_BYTES: u64 = 8 << 20;
/// Buffers given back before the pipeline is woken for them.
const WAKE_BUFFERS: usize = 4;
/// Jobs done between two steps of verifying the data of an earlier attempt.
const JOBS_BEFORE_VERIFYING: u32 = 32;

#[derive(Debug)]
struct OpenSink {
    sink: Box<dyn Sink>,
    /// The data of an earlier attempt is being verified.
    unverified: bool,
    durable_sink: bool,
    /// Fragments written since the last checkpoint.
    fresh: FragmentMap,
    /// Fragments that no checkpoint records.
    late: FragmentMap,
    /// Payload bytes of the fresh fragments.
    fresh_bytes: u64,
    durable_bytes: u64,
    checkpoint_at: Instant,
    write_back: ByteRange,
    time: StoreTime,
    /// The last write was one of several under way.
    is_direct: bool,
}

impl OpenSink {
    /// Whether a checkpoint would record anything.
    fn has_fresh(&self) -> bool {
        !self.fresh.ranges().as_slice().is_empty()
    }

    /// The rest of the work on a complete file.
    fn into_publication(self, file: FileId, length: u64) -> Publication {
        let fresh = self.fresh.fragments().chain(self.late.fragments());
        Publication {
            file,
            length,
            fresh: fresh.copied().collect(),
            sink: self.sink,
            time: self.time,
        }
    }

    /// Writes adjacent pieces, and starts their write-back in time.
    fn write(&mut self, run: &[Piece]) -> Result<(), Fault> {
        let Some((start, ..)) = run.first() else {
            return Ok(());
        };
        let slices: Vec<IoSlice<'_>> = run
            .iter()
            .map(|(_, buffer, len)| IoSlice::new(&buffer[..*len]))
            .collect();
        let len: u64 = run.iter().map(|(_, _, len)| *len as u64).sum();
        self.sink.write_at(*start, &slices)?;
        let range = ByteRange {
            start: *start,
            end: start + len,
        };
        if self.write_back.end == range.start {
            self.write_back.end = range.end;
        } else {
            self.write_back = range;
        }
        if self.write_back.len() >= WRITE_BACK_BYTES {
            self.sink.begin_write_back(self.write_back);
            self.write_back.start = self.write_back.end;
        }
        Ok(())
    }
}

/// Performs the jobs, in the storage thread or in the pipeline's.
#[derive(Debug)]
struct Writer {
    environment: Arc<dyn Environment>,
    sinks: BTreeMap<FileId, OpenSink>,
    /// Pieces of one file, to be written together.
    gathered: Vec<Piece>,
    gathered_file: Option<FileId>,
    gathered_bytes: usize,
    done: VecDeque<SinkCompletion>,
    /// Time spent in all sinks together, until it is taken.
    spent: Duration,
    /// The threads of direct writes; `None` in the session's thread.
    disk: Option<DiskWriters>,
    /// The threads that publish; `None` in the session's thread.
    publishers: Option<Publishers>,
    /// Publications that begin once the results before them are sent.
    prepared: Vec<publishers::Request>,
    /// The end of the last direct write: times that overlap count once.
    written_until: Instant,
}

impl Writer {
    /// Without threads of its own.
    fn new(environment: Arc<dyn Environment>) -> Self {
        Self {
            disk: None,
            publishers: None,
            prepared: Vec::new(),
            written_until: environment.now(),
            environment,
            sinks: BTreeMap::new(),
            gathered: Vec::new(),
            gathered_file: None,
            gathered_bytes: 0,
            done: VecDeque::new(),
            spent: Duration::ZERO,
        }
    }

    fn handle(&mut self, job: SinkJob) {
        match job {
            SinkJob::Attach {
                file,
                sink,
                kind,
                resumed,
                unverified,
            } => {
                let open = OpenSink {
                    unverified,
                    durable_sink: sink.capabilities().durable,
                    sink,
                    fresh: FragmentMap::new(kind),
                    late: FragmentMap::new(kind),
                    fresh_bytes: 0,
                    durable_bytes: resumed,
                    checkpoint_at: self.environment.now(),
                    write_back: ByteRange { start: 0, end: 0 },
                    time: StoreTime::default(),
                    is_direct: false,
                };
                self.sinks.insert(file, open);
            }
            SinkJob::Detach(file) => {
                self.flush();
                self.checkpoint(file);
                self.sinks.remove(&file);
                self.done.push_back(SinkCompletion::Closed(file));
            }
            SinkJob::Discard(file) => {
                self.flush();
                self.settle();
                if let Some(mut open) = self.sinks.remove(&file) {
                    // The file has failed already; a leftover partial file does no further harm.
                    let discarded = guarded("discard the file", || open.sink.discard());
                    if let Err(fault) = discarded.flatten() {
                        tracing::warn!(%fault, "the partial file could not be removed");
                    }
                }
            }
            SinkJob::Held {
                file,
                fragment,
                late,
            } => {
                if self.hold(file, &[fragment], late, fragment.range.len()) {
                    self.flush();
                    self.checkpoint(file);
                }
            }
            SinkJob::Hole {
                file,
                range,
                fragments,
                late,
            } => {
                self.fill(file, range);
                self.hold(file, &fragments, late, 0);
            }
            SinkJob::Publish { file, length } => {
                self.flush();
                self.settle();
                self.publish(file, length);
            }
            SinkJob::Write {
                file,
                offset,
                buffer,
                len,
            } => {
                let end = offset + len as u64;
                let again = self
                    .gathered
                    .iter()
                    .any(|(at, _, len)| *at < end && offset < at + *len as u64);
                // Repeated bytes replace earlier ones, which must be written first.
                if self.gathered_file != Some(file) || again {
                    self.flush();
                    self.gathered_file = Some(file);
                }
                self.gathered_bytes += len;
                self.gathered.push((offset, buffer, len));
                let is_direct = self.sinks.get(&file).is_some_and(|open| open.is_direct);
                let most = match is_direct {
                    true => GATHER_BYTES_DIRECT,
                    false => GATHER_BYTES,
                };
                if self.gathered_bytes >= most {
                    self.flush();
                }
            }
        }
    }

    /// Publishes a file of which everything is written: beside other files, if there are any.
    fn publish(&mut self, file: FileId, length: u64) {
        let Some(open) = self.sinks.remove(&file) else {
            return;
        };
        let mut publication = open.into_publication(file, length);
        if let Some(publishers) = &mut self.publishers
            && !(self.sinks.is_empty() && publishers.are_idle())
        {
            match publishers.prepare(publication) {
                Ok(prepared) => return self.prepared.push(prepared),
                Err(refused) => publication = refused,
            }
        }
        let start = self.environment.now();
        let completion = publication.perform(&*self.environment);
        self.spent += self.environment.now() - start;
        self.done.push_back(completion);
    }

    /// Begins the publications that other threads do.
    fn begin_publications(&mut self) {
        if let Some(publishers) = &self.publishers {
            let prepared = self.prepared.drain(..);
            prepared.for_each(|request| publishers.begin(request));
        }
    }

    /// Notes fragments that are written, with so many bytes of payload, for the next checkpoint or
    /// for the publication. Returns whether a checkpoint is due for their bytes.
    fn hold(&mut self, file: FileId, fragments: &[Fragment], late: bool, payload: u64) -> bool {
        let open = self.sinks.get_mut(&file);
        let Some(open) = open.filter(|open| open.durable_sink) else {
            return false;
        };
        if late {
            for fragment in fragments {
                let _ = open.late.insert(*fragment);
            }
            return false;
        }
        for fragment in fragments {
            let _ = open.fresh.insert(*fragment);
        }
        open.fresh_bytes += payload;
        open.fresh_bytes >= CHECKPOINT_BYTES
    }

    /// Writes the zeros of a hole if the sink can't leave them out.
    fn fill(&mut self, file: FileId, range: ByteRange) {
        // A damaged block may cover the same range and must not be written afterwards.
        self.flush();
        self.settle();
        let Some(open) = self.sinks.get_mut(&file) else {
            return;
        };
        if open.sink.capabilities().random_writes {
            open.sink.hole(range);
            return;
        }
        let zeros = vec![0; 256 << 10];
        let mut at = range.start;
        while at < range.end {
            let Some(open) = self.sinks.get_mut(&file) else {
                return;
            };
            let len = usize::try_from(range.end - at)
                .unwrap_or(usize::MAX)
                .min(zeros.len());
            let slices = [IoSlice::new(&zeros[..len])];
            let write = || open.sink.write_at(at, &slices);
            if let Err(fault) = guarded(WRITE, write).flatten() {
                self.fail(file, fault);
                return;
            }
            at += len as u64;
        }
    }

    /// Writes the gathered pieces, each run of adjacent ones by one call.
    fn flush(&mut self) {
        let Some(file) = self.gathered_file.take() else {
            return;
        };
        self.gathered_bytes = 0;
        let mut pieces = std::mem::take(&mut self.gathered);
        pieces.sort_unstable_by_key(|(offset, ..)| *offset);
        while !pieces.is_empty() {
            let adjacent = |pair: &[Piece]| pair[0].0 + pair[0].2 as u64 == pair[1].0;
            let count = 1 + pieces.windows(2).take_while(|pair| adjacent(pair)).count();
            let run: Vec<Piece> = pieces.drain(..count).collect();
            let Some(run) = self.begin_direct(file, run) else {
                continue;
            };
            self.write(file, &run);
            let buffers = run
                .into_iter()
                .map(|(_, buffer, _)| SinkCompletion::Buffer(buffer));
            self.done.extend(buffers);
        }
        self.gathered = pieces;
    }

    /// Writes adjacent pieces.
    fn write(&mut self, file: FileId, run: &[Piece]) {
        let Some(open) = self.sinks.get_mut(&file) else {
            return;
        };
        let start = self.environment.now();
        let result = guarded(WRITE, || open.write(run)).flatten();
        let took = self.environment.now() - start;
        self.spent += took;
        open.time.writing += took;
        if let Err(fault) = result {
            self.fail(file, fault);
        }
    }

    /// Has another thread write adjacent pieces. Returns them if that can't be.
    fn begin_direct(&mut self, file: FileId, run: Vec<Piece>) -> Option<Vec<Piece>> {
        let (start, length) = (
            run.first()?.0,
            run.iter().map(|(.., len)| *len as u64).sum(),
        );
        let range = ByteRange::at(start, length).filter(|_| self.disk.is_some());
        let Some(range) = range else {
            return Some(run);
        };
        while self
            .disk
            .as_ref()
            .is_some_and(|disk| !disk.takes(file, range))
        {
            self.end_write(true);
        }
        let (Some(open), Some(disk)) = (self.sinks.get_mut(&file), &mut self.disk) else {
            return Some(run);
        };
        let begun = guarded(WRITE, || open.sink.begin_direct(range)).flatten();
        let begun = begun.and_then(|writer| match writer {
            Some(_) => disk.prepare().map(|()| writer),
            None => Ok(None),
        });
        match begun {
            Ok(Some(writer)) => {
                open.is_direct = true;
                disk.begin(file, range, writer, run);
                None
            }
            Ok(None) => Some(run),
            Err(fault) => {
                self.fail(file, fault);
                Some(run)
            }
        }
    }

    /// Ends a direct write, and `waits` for one if necessary. Returns whether there was one.
    fn end_write(&mut self, waits: bool) -> bool {
        let Some(ended) = self.disk.as_mut().and_then(|disk| disk.next_ended(waits)) else {
            return false;
        };
        let (begun, until) = ended.times;
        let took = until.saturating_duration_since(begun.max(self.written_until));
        self.written_until = self.written_until.max(until);
        // Otherwise it has failed before.
        if let Some(open) = self.sinks.get_mut(&ended.file) {
            open.time.writing += took;
            let end = || open.sink.end_direct(ended.range, ended.result);
            if let Err(fault) = guarded(WRITE, end).flatten() {
                self.fail(ended.file, fault);
            }
        }
        true
    }

    /// Waits for all direct writes.
    fn settle(&mut self) {
        while self.end_write(true) {}
    }

    /// Writes what was gathered if nothing else is under way; otherwise waits for a direct write,
    /// so that more may be gathered. Returns whether that was so.
    fn flush_or_wait(&mut self) -> bool {
        let is_busy = self.disk.as_ref().is_some_and(|disk| !disk.is_idle());
        let waits = is_busy && self.gathered_file.is_some();
        match waits {
            true => self.end_write(true),
            false => {
                self.flush();
                false
            }
        }
    }

    /// Makes data durable and then records it in the journal: only then is a range claimed.
    fn checkpoint(&mut self, file: FileId) {
        self.settle();
        let Some(open) = self.sinks.get_mut(&file) else {
            return;
        };
        if !open.has_fresh() {
            return;
        }
        let start = self.environment.now();
        let fresh: Vec<Fragment> = open.fresh.fragments().copied().collect();
        let save = || open.sink.sync().and_then(|()| open.sink.record(&fresh));
        let result = guarded("make the file durable", save).flatten();
        open.checkpoint_at = self.environment.now();
        let took = open.checkpoint_at - start;
        self.spent += took;
        open.time.syncing += took;
        match result {
            Ok(()) => {
                open.durable_bytes += open.fresh.ranges().total();
                open.fresh_bytes = 0;
                open.fresh = FragmentMap::new(open.fresh.kind());
                let bytes = open.durable_bytes;
                self.done
                    .push_back(SinkCompletion::Recorded { file, bytes });
            }
            // Data written since the last success may be lost. The transfer fails, and the next
            // attempt resumes from the ranges in the journal.
            Err(fault) => self.fail(file, fault),
        }
    }

    fn checkpoint_due(&mut self) {
        let now = self.environment.now();
        let due: Vec<FileId> = self
            .sinks
            .iter()
            .filter(|(_, o)| o.has_fresh() && now - o.checkpoint_at >= CHECKPOINT_INTERVAL)
            .map(|(&file, _)| file)
            .collect();
        if !due.is_empty() {
            self.flush();
        }
        for file in due {
            self.checkpoint(file);
        }
    }

    /// Rereads some data of an earlier attempt; `false` if none is unverified. It works in steps,
    /// so that other files of the session make progress, and so that it ends with the session.
    fn verify(&mut self) -> bool {
        let unverified = self.sinks.iter_mut().find(|(_, open)| open.unverified);
        let Some((&file, open)) = unverified else {
            return false;
        };
        let start = self.environment.now();
        let result = guarded("verify the resumed data", || open.sink.verify()).flatten();
        open.time.writing += self.environment.now() - start;
        match result {
            Ok(None) => {}
            Ok(Some(durable)) => {
                open.unverified = false;
                open.durable_bytes = durable.iter().map(|f| f.range.len()).sum();
                self.done
                    .push_back(SinkCompletion::Verified { file, durable });
            }
            Err(fault) => self.fail(file, fault),
        }
        true
    }

    fn fail(&mut self, file: FileId, fault: Fault) {
        let Some(open) = self.sinks.remove(&file) else {
            return;
        };
        // Another attempt may write into the file as soon as its sink is closed.
        self.settle();
        drop(open);
        self.done.push_back(SinkCompletion::Failed { file, fault });
    }
}

/// The storage thread.
#[derive(Debug)]
struct WriterTask {
    writer: Writer,
    jobs: mpsc::Receiver<SinkJob>,
    done: mpsc::Sender<SinkCompletion>,
    notifier: Notifier,
    /// The job received while waiting.
    next: Option<SinkJob>,
    /// The thread could not assume its ids: every job fails.
    refusal: Option<Fault>,
    /// Completions since the pipeline was woken.
    quiet: usize,
    unverified_jobs: u32,
}

impl WriterTask {
    fn handle(&mut self, job: SinkJob) {
        let Some(fault) = &self.refusal else {
            self.writer.handle(job);
            return;
        };
        let completion = match job {
            SinkJob::Attach { file, .. } | SinkJob::Publish { file, .. } => {
                let fault = fault.clone();
                SinkCompletion::Failed { file, fault }
            }
            SinkJob::Write { buffer, .. } => SinkCompletion::Buffer(buffer),
            SinkJob::Detach(file) => SinkCompletion::Closed(file),
            SinkJob::Discard(_) | SinkJob::Held { .. } | SinkJob::Hole { .. } => return,
        };
        self.writer.done.push_back(completion);
    }
}

impl Task for WriterTask {
    fn turn(&mut self) -> Turn {
        let job = match self.next.take().map_or_else(|| self.jobs.try_recv(), Ok) {
            Ok(job) => Some(job),
            Err(TryRecvError::Empty) => {
                if self.writer.flush_or_wait() {
                    return Turn::Again;
                }
                None
            }
            Err(TryRecvError::Disconnected) => {
                self.writer.flush();
                let files: Vec<FileId> = self.writer.sinks.keys().copied().collect();
                for file in files {
                    self.writer.checkpoint(file);
                }
                return Turn::Ended;
            }
        };
        let waited = job.is_none();
        if let Some(job) = job {
            self.handle(job);
            self.unverified_jobs += 1;
        }
        while self.writer.end_write(false) {}
        self.writer.checkpoint_due();
        let mut verifies = false;
        if waited || self.unverified_jobs >= JOBS_BEFORE_VERIFYING {
            self.unverified_jobs = 0;
            verifies = self.writer.verify();
        }
        let mut urgent = false;
        for completion in self.writer.done.drain(..) {
            self.quiet += 1;
            urgent |= !matches!(completion, SinkCompletion::Buffer(_));
            if self.done.send(completion).is_err() {
                // The pipeline is gone; data is still made durable at the end.
                break;
            }
        }
        self.writer.begin_publications();
        if urgent || self.quiet >= WAKE_BUFFERS || (waited && self.quiet > 0) {
            self.quiet = 0;
            wake(&self.notifier);
        }
        match waited && !verifies {
            true => Turn::Wait(Some(CHECKPOINT_INTERVAL)),
            false => Turn::Again,
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.unwrap_or(CHECKPOINT_INTERVAL);
        // The end is detected in the next turn.
        let come = receive(&self.jobs, Some(timeout));
        let has_come = !matches!(come, Err(RecvTimeoutError::Timeout));
        self.next = come.ok();
        has_come
    }
}

#[derive(Debug)]
struct Thread {
    jobs: mpsc::Sender<SinkJob>,
    done: mpsc::Receiver<SinkCompletion>,
    /// Buffers of the threads that write for it.
    given_back: mpsc::Receiver<Buffer>,
}

impl Thread {
    fn completion(&self) -> Option<SinkCompletion> {
        let given_back = || self.given_back.try_recv().ok().map(SinkCompletion::Buffer);
        self.done.try_recv().ok().or_else(given_back)
    }
}

/// The pipeline's side of the queue.
#[derive(Debug)]
pub(crate) struct Storage {
    environment: Arc<dyn Environment>,
    inline: Writer,
    inline_files: Vec<FileId>,
    /// Files whose sinks the thread has.
    thread_files: BTreeSet<FileId>,
    /// Files that the thread was to publish and whose result hasn't come, and whether they are to
    /// be [detached](SinkJob::Detach) after it.
    publishing: BTreeMap<FileId, bool>,
    /// Publications beside the thread.
    under_way: UnderWay,
    thread: Option<Thread>,
    worker: Option<Worker>,
    notifier: Notifier,
    /// The ids that the thread assumes, the same as the pipeline's.
    ids: Option<Ids>,
}

impl Storage {
    pub(crate) fn new(
        environment: Arc<dyn Environment>,
        notifier: Notifier,
        ids: Option<Ids>,
    ) -> Self {
        Self {
            inline: Writer::new(Arc::clone(&environment)),
            environment,
            inline_files: Vec::new(),
            thread_files: BTreeSet::new(),
            publishing: BTreeMap::new(),
            under_way: UnderWay::default(),
            thread: None,
            worker: None,
            notifier,
            ids,
        }
    }

    /// Takes over a sink, and decides which thread performs its jobs.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn attach(
        &mut self,
        file: FileId,
        sink: Box<dyn Sink>,
        kind: DigestKind,
        resumed: u64,
        unverified: bool,
    ) -> Result<(), Fault> {
        // Verification is slow in any store.
        if !sink.capabilities().slow_writes && !unverified {
            self.inline_files.push(file);
        } else if self.thread.is_none() {
            let (jobs, job_receiver) = mpsc::channel();
            let (done_sender, done) = mpsc::channel();
            let (give_back, given_back) = mpsc::channel();
            let (notifier, ids) = (self.notifier.clone(), self.ids.clone());
            let environment = Arc::clone(&self.environment);
            let surroundings = Surroundings {
                environment: Arc::clone(&environment),
                notifier: notifier.clone(),
                ids: ids.clone(),
                give_back,
            };
            let publishers = Publishers::new(
                surroundings.clone(),
                done_sender.clone(),
                self.under_way.clone(),
            );
            let make = move || WriterTask {
                writer: Writer {
                    disk: Some(DiskWriters::new(surroundings)),
                    publishers: Some(publishers),
                    ..Writer::new(environment)
                },
                jobs: job_receiver,
                done: done_sender,
                notifier,
                next: None,
                refusal: assume_ids(ids.as_ref()).err(),
                quiet: 0,
                unverified_jobs: 0,
            };
            let name = "xdfs-storage";
            let worker = Worker::start(&*self.environment, name, &self.notifier, make)
                .map_err(|e| Fault::from_io("start the storage thread", "", &e))?;
            self.thread = Some(Thread {
                jobs,
                done,
                given_back,
            });
            self.worker = Some(worker);
        }
        if !self.inline_files.contains(&file) {
            self.thread_files.insert(file);
        }
        self.submit(
            file,
            SinkJob::Attach {
                file,
                sink,
                kind,
                resumed,
                unverified,
            },
        );
        Ok(())
    }

    /// Has a job done; those of a file whose sink isn't open need nothing.
    pub(crate) fn submit(&mut self, file: FileId, job: SinkJob) {
        let detaches = matches!(job, SinkJob::Detach(_));
        let last = detaches || matches!(job, SinkJob::Discard(_) | SinkJob::Publish { .. });
        if self.inline_files.contains(&file) {
            self.inline.handle(job);
            self.inline.flush();
            if last {
                self.inline_files.retain(|f| *f != file);
            }
        } else if self.thread_files.contains(&file)
            && let Some(thread) = &self.thread
        {
            // After the content was discarded the sink is to be detached still.
            if last && !matches!(job, SinkJob::Discard(_)) {
                self.thread_files.remove(&file);
            }
            if matches!(job, SinkJob::Publish { .. }) {
                self.publishing.insert(file, false);
            }
            let completion = match thread.jobs.send(job) {
                Err(mpsc::SendError(SinkJob::Publish { .. } | SinkJob::Write { .. })) => {
                    let cause = "the storage thread has ended";
                    let fault = Fault::new(Code::Internal, WRITE, cause);
                    SinkCompletion::Failed { file, fault }
                }
                Err(mpsc::SendError(SinkJob::Detach(_))) => SinkCompletion::Closed(file),
                _ => return,
            };
            self.inline.done.push_back(completion);
        } else if detaches {
            match self.publishing.get_mut(&file) {
                // Its sink may still be open.
                Some(is_detached) => *is_detached = true,
                None => self.inline.done.push_back(SinkCompletion::Closed(file)),
            }
        } else if let SinkJob::Write { buffer, .. } = job {
            self.inline.done.push_back(SinkCompletion::Buffer(buffer));
        }
    }

    /// The next result, if there is one.
    pub(crate) fn completion(&mut self) -> Option<SinkCompletion> {
        let in_thread = || self.thread.as_ref().and_then(Thread::completion);
        let completion = self.inline.done.pop_front().or_else(in_thread)?;
        if let SinkCompletion::Failed { file, .. } = completion {
            // The thread has closed its sink, and would answer nothing more about it.
            self.thread_files.remove(&file);
        }
        if let SinkCompletion::Failed { file, .. } | SinkCompletion::Published { file, .. } =
            completion
            && self.publishing.remove(&file) == Some(true)
        {
            self.inline.done.push_front(SinkCompletion::Closed(file));
        }
        Some(completion)
    }

    /// The time that jobs took in the caller's thread since the last call.
    pub(crate) fn take_inline_time(&mut self) -> Duration {
        std::mem::take(&mut self.inline.spent)
    }

    /// Makes all data durable, records it, and ends the thread after all publications.
    pub(crate) fn finish(&mut self) {
        self.thread = None;
    }

    /// Whether the thread has ended or never started, and nothing is being published.
    pub(crate) fn has_ended(&self) -> bool {
        // In this order, since the thread begins publications.
        self.worker.as_ref().is_none_or(Worker::has_ended) && self.under_way.is_none()
    }
}

#[cfg(test)]
mod direct_tests;
#[cfg(test)]
mod publish_tests;
#[cfg(test)]
mod tests;
