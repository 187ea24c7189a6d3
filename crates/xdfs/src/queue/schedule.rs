//! The decisions of a queue: which job starts next, which failed job is retried and when, and which
//! other jobs a fault affects. It has no clock and no threads: [`Schedule::turn`] takes the time,
//! does everything that can be done, and returns when to call it again.
//!
//! Rules:
//! - The jobs of a server start in the order in which they were added, even after its session
//!   broke.
//! - The unfinished jobs of a broken session restart in another one. Only for the job whose fault
//!   reported the break does this count as an attempt.
//! - A standard stream is never restarted.
//! - If a server was never reached, one failed connection fails all jobs that wait for it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::task::{Context, Poll};
use std::time::Instant;

use xdfs_engine::mailbox::{Mailbox, Sender};
use xdfs_engine::{Outcome, Progress, TransferEvent};
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, Fault, Retry, Side};

use crate::events::{Observer, QueueEvent};
use crate::remote::RemotePlace;
use crate::retry::RetryPolicy;
use crate::transfer::{LocalPlace, TransferOptions, TransferRoute};

/// Retries of a server that never answered, where a fault says that they may help: about six
/// seconds.
const FIRST_RETRIES_MAX: u32 = 5;

/// A file to copy, as a job of a [`Queue`](crate::Queue).
#[derive(Clone, Debug)]
pub struct FileCopy {
    /// The server; its path is not used. Jobs with the same address, user and profile share a
    /// session.
    pub server: RemotePlace,
    /// Source and target.
    pub route: TransferRoute,
    /// Options of the transfer.
    pub options: TransferOptions,
}

/// The limits of a [`Queue`](crate::Queue).
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// Largest number of unfinished transfers in all sessions, at least 1. A session runs its
    /// transfers back to back: starting the next one early avoids pauses.
    pub running_max: usize,
    /// Retries of a job. An attempt that transfers bytes is progress.
    pub retry: RetryPolicy,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            running_max: 4,
            retry: RetryPolicy::default(),
        }
    }
}

/// Opens sessions.
pub(super) trait Connect {
    type Session: Session;

    fn connect(&mut self, server: &RemotePlace) -> Result<Self::Session, Fault>;
}

/// An open session.
pub(super) trait Session {
    type RunningTransfer: RunningTransfer;

    /// Starts a transfer, which runs after those started before.
    fn start(
        &self,
        route: &TransferRoute,
        options: &TransferOptions,
    ) -> Result<Self::RunningTransfer, Fault>;

    /// Whether it has ended.
    fn is_over(&self) -> bool;
}

/// A started transfer.
pub(super) trait RunningTransfer {
    /// Its next event. Nothing follows its end.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<TransferEvent>;

    /// Ends it in an orderly way.
    fn cancel(&self);
}

/// A command to a queue's thread.
pub(super) enum QueueCommand {
    /// Adds jobs, in their order.
    Add(Vec<QueuedJob>),
    /// Cancels a job.
    Cancel(u64),
    /// Cancels all jobs, and those added later.
    Stop,
    /// Ends the thread when all jobs have ended.
    Close,
}

/// A job with its state.
pub(super) struct QueuedJob {
    number: u64,
    job: FileCopy,
    /// Receives its progress and its end.
    events: Sender<TransferEvent>,
    /// Retries since the last attempt that transferred bytes.
    retries: u32,
    /// Largest number of bytes transferred so far.
    bytes: u64,
    /// Bytes that were at the target before its first attempt that got so far.
    resumed_bytes: Option<u64>,
    /// Start of its first attempt.
    began: Option<Instant>,
    /// It was started in a session before.
    was_started: bool,
    /// More than once.
    is_repeated: bool,
    is_cancelled: bool,
}

impl QueuedJob {
    pub(super) fn new(number: u64, job: FileCopy, events: Sender<TransferEvent>) -> Self {
        Self {
            number,
            job,
            events,
            retries: 0,
            bytes: 0,
            resumed_bytes: None,
            began: None,
            was_started: false,
            is_repeated: false,
            is_cancelled: false,
        }
    }

    fn record(&mut self, progress: &Progress) {
        if progress.bytes > 0 {
            self.resumed_bytes.get_or_insert(progress.resumed_bytes);
        }
        if progress.bytes > self.bytes {
            self.bytes = progress.bytes;
            self.retries = 0;
        }
    }

    /// The outcome of all attempts, by that of the last.
    fn outcome_of_all(&self, mut last: Outcome, now: Instant) -> Outcome {
        if self.is_repeated {
            let began = self.began.unwrap_or(now);
            last.elapsed = now.saturating_duration_since(began).max(last.elapsed);
            let before = self.resumed_bytes.unwrap_or(last.resumed_bytes);
            last.resumed_bytes = last.resumed_bytes.min(before);
            // An earlier attempt moved it, and its answer was lost.
            last.is_skipped &= self.bytes == before;
        }
        last
    }

    /// Whether the local end is a standard stream, which can be read or written only once.
    fn is_stream(&self) -> bool {
        *self.job.route.local() == LocalPlace::Standard
    }
}

/// A server and its jobs.
struct Server<S> {
    place: RemotePlace,
    session: Option<S>,
    /// It has answered at least once.
    is_reached: bool,
    /// The current session, or the last one, was open: its end was not a refusal.
    is_admitted: bool,
    /// No job starts before this time.
    pause_end: Option<Instant>,
    /// Waiting jobs by number.
    waiting: BTreeMap<u64, QueuedJob>,
    /// Jobs that wait for the time of their retry.
    paused: Vec<(Instant, QueuedJob)>,
}

/// When to call the next turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// When the waker is woken, or at this time.
    Wait(Option<Instant>),
    /// Never: all jobs have ended, and the queue is closed.
    Done,
}

/// The state of a queue.
pub(super) struct Schedule<C: Connect> {
    connector: C,
    options: QueueOptions,
    observer: Box<dyn Observer + Send>,
    commands: Mailbox<QueueCommand>,
    servers: Vec<Server<C::Session>>,
    /// Started jobs, each with the index of its server.
    running: Vec<(usize, QueuedJob, <C::Session as Session>::RunningTransfer)>,
    /// Everything is cancelled.
    is_stopping: bool,
    /// No further job will be added.
    is_closed: bool,
}

impl<C: Connect> Schedule<C> {
    pub(super) fn new(
        connector: C,
        options: QueueOptions,
        observer: Box<dyn Observer + Send>,
        commands: Mailbox<QueueCommand>,
    ) -> Self {
        Self {
            connector,
            options: QueueOptions {
                running_max: options.running_max.max(1),
                ..options
            },
            observer,
            commands,
            servers: Vec::new(),
            running: Vec::new(),
            is_stopping: false,
            is_closed: false,
        }
    }

    /// Does everything that can be done now. The waker of `context` is woken when there is more.
    pub(super) fn turn(&mut self, now: Instant, context: &mut Context<'_>) -> Turn {
        while let Poll::Ready(command) = self.commands.poll_recv(context) {
            match command {
                Some(command) => self.handle_command(command),
                None => {
                    self.is_closed = true;
                    break;
                }
            }
        }
        self.start_next(now);
        while let Some((server, task, result)) = self.poll_running(context) {
            self.settle(server, task, result, now);
            self.start_next(now);
        }
        if self.is_stopping {
            // The observer may have asked for that just now.
            self.stop();
        }
        let is_idle = self.running.is_empty() && self.servers.iter().all(Server::is_idle);
        match self.is_closed && is_idle {
            true => Turn::Done,
            false => Turn::Wait(self.next_time(now)),
        }
    }

    fn handle_command(&mut self, command: QueueCommand) {
        match command {
            QueueCommand::Add(tasks) => {
                for task in tasks {
                    let server = self.server(&task.job.server);
                    self.servers[server].waiting.insert(task.number, task);
                }
            }
            QueueCommand::Cancel(number) => self.cancel(number),
            QueueCommand::Stop => self.stop(),
            QueueCommand::Close => self.is_closed = true,
        }
    }

    fn cancel(&mut self, number: u64) {
        let running = self.running.iter_mut();
        for (_, task, running) in running.filter(|(_, task, _)| task.number == number) {
            task.is_cancelled = true;
            running.cancel();
        }
        let waiting = self.servers.iter_mut().filter_map(|server| {
            let paused = server
                .paused
                .iter()
                .position(|(_, task)| task.number == number);
            match paused {
                Some(index) => Some(server.paused.remove(index).1),
                None => server.waiting.remove(&number),
            }
        });
        let waiting: Vec<QueuedJob> = waiting.collect();
        for task in waiting {
            self.report_end(task, Err(cancelled()));
        }
    }

    fn stop(&mut self) {
        self.is_stopping = true;
        for (_, task, running) in &mut self.running {
            if !std::mem::replace(&mut task.is_cancelled, true) {
                running.cancel();
            }
        }
        let mut waiting = BTreeMap::new();
        for server in &mut self.servers {
            waiting.append(&mut server.take_waiting());
        }
        for task in waiting.into_values() {
            self.report_end(task, Err(cancelled()));
        }
    }

    /// The index of a server. The place of a server without jobs and session is reused.
    fn server(&mut self, place: &RemotePlace) -> usize {
        let is_same = |server: &Server<_>| {
            let own = &server.place;
            (&own.address, &own.user, &own.profile) == (&place.address, &place.user, &place.profile)
        };
        if let Some(index) = self.servers.iter().position(is_same) {
            return index;
        }
        let server = Server {
            place: place.clone(),
            session: None,
            is_reached: false,
            is_admitted: false,
            pause_end: None,
            waiting: BTreeMap::new(),
            paused: Vec::new(),
        };
        let is_used = |index| self.running.iter().any(|(server, ..)| *server == index);
        let unused = |(index, server): (usize, &Server<C::Session>)| {
            server.session.is_none() && server.is_idle() && !is_used(index)
        };
        match self.servers.iter().enumerate().position(unused) {
            Some(index) => {
                self.servers[index] = server;
                index
            }
            None => {
                self.servers.push(server);
                self.servers.len() - 1
            }
        }
    }

    /// Starts jobs up to the limit.
    fn start_next(&mut self, now: Instant) {
        for server in &mut self.servers {
            server.resume(now);
        }
        while self.running.len() < self.options.running_max && !self.is_stopping {
            let ready = self
                .servers
                .iter()
                .enumerate()
                .filter_map(|(index, server)| {
                    let first = server.waiting.keys().next()?;
                    server.pause_end.is_none().then_some((*first, index))
                });
            let Some((number, index)) = ready.min() else {
                break;
            };
            let Some(mut task) = self.servers[index].waiting.remove(&number) else {
                break;
            };
            match self.start(index, &mut task, now) {
                Ok(running) => {
                    self.report(number, QueueEvent::Started);
                    self.running.push((index, task, running));
                }
                Err(fault) => self.settle(index, task, Err(fault), now),
            }
        }
    }

    /// Passes a job to the session with its server, which is opened if necessary.
    fn start(
        &mut self,
        server: usize,
        task: &mut QueuedJob,
        now: Instant,
    ) -> Result<<C::Session as Session>::RunningTransfer, Fault> {
        let server = &mut self.servers[server];
        let open = server.session.take().filter(|session| !session.is_over());
        let session = match open {
            Some(session) => session,
            None => {
                server.is_admitted = false;
                let connected = self.connector.connect(&server.place);
                connected.map_err(Fault::ending_session)?
            }
        };
        let session = server.session.insert(session);
        let mut options = task.job.options.clone();
        // Bytes that this job has transferred already are not sent again.
        let resume = &mut options.parameters.resume;
        if task.bytes > 0 && *resume == Resume::Never {
            *resume = Resume::Trust;
        }
        let running = session.start(&task.job.route, &options)?;
        task.is_repeated = task.was_started;
        task.was_started = true;
        task.began.get_or_insert(now);
        Ok(running)
    }

    /// Processes events of running transfers, up to the next end.
    fn poll_running(
        &mut self,
        context: &mut Context<'_>,
    ) -> Option<(usize, QueuedJob, Result<Outcome, Fault>)> {
        for index in 0..self.running.len() {
            let (server, task, running) = &mut self.running[index];
            while let Poll::Ready(event) = running.poll_event(context) {
                let progress = match event {
                    TransferEvent::Progress(progress) => progress,
                    TransferEvent::Ended(result) => {
                        let (server, task, _) = self.running.remove(index);
                        return Some((server, task, result));
                    }
                };
                let is_open = progress.channels > 0 || progress.bytes > 0;
                self.servers[*server].is_reached |= is_open;
                self.servers[*server].is_admitted |= is_open;
                task.record(&progress);
                let event = QueueEvent::Progress(&progress);
                self.is_stopping |= observe(&mut *self.observer, task.number, event);
                // Nobody may be listening any more.
                let _ = task.events.send(TransferEvent::Progress(progress));
            }
        }
        None
    }

    /// Handles the end of an attempt, or one that could not start.
    fn settle(
        &mut self,
        index: usize,
        mut task: QueuedJob,
        result: Result<Outcome, Fault>,
        now: Instant,
    ) {
        let server = &mut self.servers[index];
        let fault = match result {
            Ok(outcome) => {
                server.is_reached = true;
                server.is_admitted = true;
                let outcome = task.outcome_of_all(outcome, now);
                self.report_end(task, Ok(outcome));
                return;
            }
            Err(fault) => fault,
        };
        server.is_reached |= fault.side == Side::Remote;
        server.is_admitted |= !fault.ends_session;
        if fault.ends_session {
            server.session = None;
            requeue(&mut self.running, index, &mut server.waiting);
        }
        if self.is_worth_retrying(index, &task, &fault) {
            let pause = self.options.retry.pause(task.retries, &fault);
            task.retries += 1;
            let event = QueueEvent::Retry {
                fault: &fault,
                retry: task.retries,
                retries_max: self.retries_max(index),
                pause,
            };
            self.report(task.number, event);
            let server = &mut self.servers[index];
            if fault.ends_session {
                server.pause_end = Some(now + pause);
                server.waiting.insert(task.number, task);
            } else {
                server.paused.push((now + pause, task));
            }
            return;
        }
        let server = &mut self.servers[index];
        // A refusal would repeat, and further attempts might lock the user out.
        let is_refused = !server.is_admitted && fault.retry == Retry::Never;
        let is_gone = fault.ends_session && (!server.is_reached || is_refused);
        let others = match is_gone {
            true => server.take_waiting(),
            false => BTreeMap::new(),
        };
        self.report_end(task, Err(fault.clone()));
        for other in others.into_values() {
            self.report_end(other, Err(fault.clone()));
        }
    }

    /// The largest number of retries in a row for a job of this server. One that never answered is
    /// more likely not what it is taken for than away for a while.
    fn retries_max(&self, server: usize) -> u32 {
        let most = self.options.retry.retries_max;
        match self.servers[server].is_reached {
            true => most,
            false => most.min(FIRST_RETRIES_MAX),
        }
    }

    fn is_worth_retrying(&self, server: usize, task: &QueuedJob, fault: &Fault) -> bool {
        if self.is_stopping
            || task.is_cancelled
            || task.retries >= self.retries_max(server)
            || task.is_stream() && task.was_started
        {
            return false;
        }
        match fault.code {
            Code::ConnectionLost => true,
            // A server that answered before may be restarting. After a restart it doesn't know the
            // session any more, and a new one is needed.
            Code::ConnectionRefused | Code::ShuttingDown | Code::SessionUnknown
                if self.servers[server].is_reached =>
            {
                true
            }
            // Or nothing gets through to it for a while.
            Code::DeadlineExceeded if fault.ends_session && self.servers[server].is_reached => true,
            _ => fault.retry != Retry::Never,
        }
    }

    fn report_end(&mut self, task: QueuedJob, result: Result<Outcome, Fault>) {
        match &result {
            Ok(outcome) => self.report(task.number, QueueEvent::Done(&outcome.clone().into())),
            Err(fault) => self.report(task.number, QueueEvent::Failed(fault)),
        }
        // Nobody may be listening any more.
        let _ = task.events.send(TransferEvent::Ended(result));
    }

    fn report(&mut self, number: u64, event: QueueEvent<'_>) {
        self.is_stopping |= observe(&mut *self.observer, number, event);
    }

    /// When the next paused job can start.
    fn next_time(&self, now: Instant) -> Option<Instant> {
        if self.running.len() >= self.options.running_max {
            return None;
        }
        let times = self.servers.iter().flat_map(|server| {
            let whole = server.pause_end.filter(|_| !server.waiting.is_empty());
            server.paused.iter().map(|(time, _)| *time).chain(whole)
        });
        times.min().map(|time| time.max(now))
    }
}

/// Whether the observer stops the queue.
fn observe(observer: &mut dyn Observer, number: u64, event: QueueEvent<'_>) -> bool {
    observer.on_job(number, event) == ControlFlow::Break(())
}

/// Returns the running jobs of an ended session to its queue.
fn requeue<R: RunningTransfer>(
    running: &mut Vec<(usize, QueuedJob, R)>,
    server: usize,
    waiting: &mut BTreeMap<u64, QueuedJob>,
) {
    // Started streams can't be restarted, and cancelled jobs must not be: they end with their own
    // faults.
    let is_back = |(at, task, _): &mut (usize, QueuedJob, R)| {
        *at == server && !task.is_stream() && !task.is_cancelled
    };
    for (_, task, running) in running.extract_if(.., is_back) {
        // The session may not have noticed its end yet, and must not run the transfer any further.
        running.cancel();
        waiting.insert(task.number, task);
    }
}

fn cancelled() -> Fault {
    Fault::new(Code::Cancelled, "copy", "it was cancelled before it began")
}

impl<S> Server<S> {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.paused.is_empty()
    }

    fn take_waiting(&mut self) -> BTreeMap<u64, QueuedJob> {
        let paused = self.paused.drain(..).map(|(_, task)| (task.number, task));
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.extend(paused);
        waiting
    }

    /// Ends the pauses that are over.
    fn resume(&mut self, now: Instant) {
        self.pause_end = self.pause_end.filter(|end| *end > now);
        let over = self.paused.extract_if(.., |(end, _)| *end <= now);
        let over = over.map(|(_, task)| (task.number, task));
        self.waiting.extend(over);
    }
}
