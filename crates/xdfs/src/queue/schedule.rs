//! What a queue decides: which file is started next, what is tried again and when, and what a fault
//! means for the other files of its server. It has no clock and no threads: [`Schedule::turn`] is
//! told the time, does what can be done, and says when it has to be called again.
//!
//! Rules that it keeps:
//! - The files of a server start in the order in which they came, also after its session broke.
//! - A session that ended gives back what it had: those files start again in another one, and only
//!   that whose fault told of the end counts a try.
//! - A stream that was begun isn't begun again.
//! - A server that was never reached is asked once: all that waits for it fails by the same fault.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use xdfs_engine::mailbox::{Mailbox, Sender};
use xdfs_engine::{Outcome, Progress, TransferEvent};
use xdfs_proto::{Code, Fault, Retry, Side};

use crate::events::{Observer, QueueEvent};
use crate::remote::RemotePlace;
use crate::transfer::{LocalPlace, TransferOptions, TransferRoute};

/// A file for a [`Queue`](crate::Queue).
#[derive(Clone, Debug)]
pub struct Job {
    /// The server; its path is not used. Jobs with the same address and user share a session.
    pub server: RemotePlace,
    /// The two ends.
    pub route: TransferRoute,
    /// How it is copied.
    pub options: TransferOptions,
}

/// The limits of a [`Queue`](crate::Queue).
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// Most transfers that are handed to sessions and have not ended, at least 1. A session carries
    /// out its own back to back: those that are started ahead save it the pauses between.
    pub running_max: usize,
    /// Most tries of a job after the first one; each that brings bytes begins the count anew.
    pub retries_max: u32,
    /// The pause before the first of them; each further one is twice as long.
    pub pause_first: Duration,
    /// The longest pause of its own choice.
    pub pause_max: Duration,
    /// The longest pause that a server can ask for.
    pub pause_asked_max: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            running_max: 4,
            retries_max: 5,
            pause_first: Duration::from_millis(200),
            pause_max: Duration::from_secs(3),
            pause_asked_max: Duration::from_secs(10),
        }
    }
}

impl QueueOptions {
    /// The pause before the try after `retries` others.
    fn pause(&self, retries: u32, fault: &Fault) -> Duration {
        let doubled = self.pause_first.saturating_mul(1 << retries.min(20));
        let own = doubled.min(self.pause_max);
        match fault.retry {
            Retry::AfterMs(ms) => {
                own.max(Duration::from_millis(ms.into()).min(self.pause_asked_max))
            }
            _ => own,
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
    type Running: Running;

    /// Starts a transfer; those that were started before it go first.
    fn start(
        &self,
        route: &TransferRoute,
        options: &TransferOptions,
    ) -> Result<Self::Running, Fault>;

    /// Whether it has ended.
    fn is_over(&self) -> bool;
}

/// A transfer that was started.
pub(super) trait Running {
    /// What it tells next. Nothing follows its end.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<TransferEvent>;

    /// Ends it in an orderly way.
    fn cancel(&self);
}

/// An order to a queue.
pub(super) enum Order {
    /// Takes these, in their order.
    Add(Vec<Task>),
    /// Ends one job.
    Cancel(u64),
    /// Ends all jobs, and takes no more.
    Stop,
    /// Nothing more comes.
    Close,
}

/// A job and what has been tried.
pub(super) struct Task {
    number: u64,
    job: Job,
    /// Where its progress and its end are told.
    events: Sender<TransferEvent>,
    /// Tries since the last one that brought a byte.
    retries: u32,
    /// Most bytes that were ever there.
    bytes: u64,
    /// It was once handed to a session.
    was_started: bool,
    is_cancelled: bool,
}

impl Task {
    pub(super) fn new(number: u64, job: Job, events: Sender<TransferEvent>) -> Self {
        Self {
            number,
            job,
            events,
            retries: 0,
            bytes: 0,
            was_started: false,
            is_cancelled: false,
        }
    }

    fn record(&mut self, progress: &Progress) {
        if progress.bytes > self.bytes {
            self.bytes = progress.bytes;
            self.retries = 0;
        }
    }

    /// Whether an end is a stream, which can be read or written only once.
    fn is_stream(&self) -> bool {
        *self.job.route.local() == LocalPlace::Standard
    }
}

/// A server and what is to be done there.
struct Server<S> {
    place: RemotePlace,
    session: Option<S>,
    /// It has answered at least once.
    is_reached: bool,
    /// The session of now, or the last one, was open: what ended it was no refusal to let in.
    is_admitted: bool,
    /// Nothing is started before.
    pause_end: Option<Instant>,
    /// By their numbers.
    waiting: BTreeMap<u64, Task>,
    /// Tasks that wait for a time of their own.
    paused: Vec<(Instant, Task)>,
}

/// What to do after a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Another one when the waker is woken, or at this time.
    Wait(Option<Instant>),
    /// Nothing is left, and nothing more comes.
    Done,
}

/// The state of a queue.
pub(super) struct Schedule<C: Connect> {
    connector: C,
    options: QueueOptions,
    observer: Box<dyn Observer + Send>,
    orders: Mailbox<Order>,
    servers: Vec<Server<C::Session>>,
    /// With the index of its server.
    running: Vec<(usize, Task, <C::Session as Session>::Running)>,
    /// Everything that is here ends, and nothing is begun any more.
    is_stopping: bool,
    /// Nothing more comes.
    is_closed: bool,
}

impl<C: Connect> Schedule<C> {
    pub(super) fn new(
        connector: C,
        options: QueueOptions,
        observer: Box<dyn Observer + Send>,
        orders: Mailbox<Order>,
    ) -> Self {
        Self {
            connector,
            options: QueueOptions {
                running_max: options.running_max.max(1),
                ..options
            },
            observer,
            orders,
            servers: Vec::new(),
            running: Vec::new(),
            is_stopping: false,
            is_closed: false,
        }
    }

    /// Does what can be done now. The waker of `context` is woken when there is more.
    pub(super) fn turn(&mut self, now: Instant, context: &mut Context<'_>) -> Turn {
        while let Poll::Ready(order) = self.orders.poll_recv(context) {
            match order {
                Some(order) => self.obey(order),
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

    fn obey(&mut self, order: Order) {
        match order {
            Order::Add(tasks) => {
                for task in tasks {
                    let server = self.server(&task.job.server);
                    self.servers[server].waiting.insert(task.number, task);
                }
            }
            Order::Cancel(number) => self.cancel(number),
            Order::Stop => self.stop(),
            Order::Close => self.is_closed = true,
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
        let waiting: Vec<Task> = waiting.collect();
        for task in waiting {
            self.tell_end(task, Err(cancelled()));
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
            self.tell_end(task, Err(cancelled()));
        }
    }

    /// The index of a server; those of which nothing is left are forgotten.
    fn server(&mut self, place: &RemotePlace) -> usize {
        let is_same = |server: &Server<_>| {
            server.place.address == place.address && server.place.user == place.user
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

    /// Starts what may run.
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
            match self.start(index, &mut task) {
                Ok(running) => {
                    self.tell(number, QueueEvent::Started);
                    self.running.push((index, task, running));
                }
                Err(fault) => self.settle(index, task, Err(fault), now),
            }
        }
    }

    /// Hands a task to the session with its server, which is opened first if need be.
    fn start(
        &mut self,
        server: usize,
        task: &mut Task,
    ) -> Result<<C::Session as Session>::Running, Fault> {
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
        // What this very job has brought over is not to be sent again.
        options.resume |= task.bytes > 0;
        let running = session.start(&task.job.route, &options)?;
        task.was_started = true;
        Ok(running)
    }

    /// Takes what is told, up to the next end.
    fn poll_running(
        &mut self,
        context: &mut Context<'_>,
    ) -> Option<(usize, Task, Result<Outcome, Fault>)> {
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
                let told = QueueEvent::Progress(&progress);
                self.is_stopping |= observe(&mut *self.observer, task.number, told);
                // Nobody may be listening any more.
                let _ = task.events.send(TransferEvent::Progress(progress));
            }
        }
        None
    }

    /// A try has ended, or could not begin.
    fn settle(
        &mut self,
        index: usize,
        mut task: Task,
        result: Result<Outcome, Fault>,
        now: Instant,
    ) {
        let server = &mut self.servers[index];
        let fault = match result {
            Ok(outcome) => {
                server.is_reached = true;
                server.is_admitted = true;
                self.tell_end(task, Ok(outcome));
                return;
            }
            Err(fault) => fault,
        };
        server.is_reached |= fault.side == Side::Remote;
        server.is_admitted |= !fault.ends_session;
        if fault.ends_session {
            server.session = None;
            take_back(&mut self.running, index, &mut server.waiting);
        }
        if self.is_worth_retrying(index, &task, &fault) {
            let pause = self.options.pause(task.retries, &fault);
            task.retries += 1;
            let event = QueueEvent::Retry {
                fault: &fault,
                retry: task.retries,
                pause,
            };
            self.tell(task.number, event);
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
        // Who was refused once is refused again, and may be locked out for asking.
        let is_refused = !server.is_admitted && fault.retry == Retry::Never;
        let is_gone = fault.ends_session && (!server.is_reached || is_refused);
        let others = match is_gone {
            true => server.take_waiting(),
            false => BTreeMap::new(),
        };
        self.tell_end(task, Err(fault.clone()));
        for other in others.into_values() {
            self.tell_end(other, Err(fault.clone()));
        }
    }

    fn is_worth_retrying(&self, server: usize, task: &Task, fault: &Fault) -> bool {
        if self.is_stopping
            || task.is_cancelled
            || task.retries >= self.options.retries_max
            || task.is_stream() && task.was_started
        {
            return false;
        }
        match fault.code {
            Code::ConnectionLost => true,
            // A server that was there a moment ago may be on its way back; one that has come back
            // doesn't know the session any more, and a new one is needed.
            Code::ConnectionRefused | Code::ShuttingDown | Code::SessionUnknown
                if self.servers[server].is_reached =>
            {
                true
            }
            _ => fault.retry != Retry::Never,
        }
    }

    fn tell_end(&mut self, task: Task, result: Result<Outcome, Fault>) {
        match &result {
            Ok(outcome) => self.tell(task.number, QueueEvent::Done(&outcome.clone().into())),
            Err(fault) => self.tell(task.number, QueueEvent::Failed(fault)),
        }
        // Nobody may be listening any more.
        let _ = task.events.send(TransferEvent::Ended(result));
    }

    fn tell(&mut self, number: u64, event: QueueEvent<'_>) {
        self.is_stopping |= observe(&mut *self.observer, number, event);
    }

    /// When something can be started that can't be now.
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

/// Whether the observer wants no more.
fn observe(observer: &mut dyn Observer, number: u64, event: QueueEvent<'_>) -> bool {
    observer.on_job(number, event) == ControlFlow::Break(())
}

/// Tasks of a session that ended wait again.
fn take_back<R: Running>(
    running: &mut Vec<(usize, Task, R)>,
    server: usize,
    waiting: &mut BTreeMap<u64, Task>,
) {
    // A stream that was begun can't be begun again; its own fault tells what came of it. So it is
    // with what somebody wants to end.
    let is_back = |(at, task, _): &mut (usize, Task, R)| {
        *at == server && !task.is_stream() && !task.is_cancelled
    };
    for (_, task, running) in running.extract_if(.., is_back) {
        // The session may take a moment to notice its end, and is not to do it twice.
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

    fn take_waiting(&mut self) -> BTreeMap<u64, Task> {
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
