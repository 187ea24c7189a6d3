//! Copies files back to back: starts a few ahead, reports them in order, tries again what is
//! worth it, and stops in an orderly way.
//!
//! A session is opened for each server when its first file comes, and opened again after it broke.
//! Only what a later attempt can change is tried again: a broken connection (what has arrived is
//! durable, so that going on is cheap), and whatever the fault itself says.

use std::collections::VecDeque;
use std::time::Duration;

use xdfs::{Code, Fault, Progress, RemotePlace, Retry, Side, TransferOptions, TransferResult};

use super::plan::Job;
use crate::interrupt::Interrupt;
use crate::report::Reporter;
use crate::session::{Connect, Running, Session, follow};

/// Transfers that are started before the first of them has ended.
const AHEAD: usize = 4;

/// Tries in a row without any byte more, after the first one.
const RETRIES_MAX: u32 = 5;

/// First and longest pause before another try.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));

/// Longest pause that a peer can ask for.
const PAUSE_ASKED_MAX: Duration = Duration::from_secs(10);

/// A job and what has been tried.
#[derive(Debug)]
struct Task {
    job: Job,
    /// Index of its server.
    server: usize,
    /// Tries since the last one that brought a byte.
    retries: u32,
    /// Most bytes that were ever there.
    bytes: u64,
    /// It was once handed to a session.
    started: bool,
}

/// A task that was started, or could not be.
enum State<R> {
    Running(R),
    Failed(Fault),
}

/// A server and the session with it.
enum Server<S> {
    Closed,
    Open(S),
    /// It can't be reached: no other file need try.
    Gone(Fault),
}

/// Copies the files of one command.
pub(crate) struct Queue<'a, C: Connect> {
    connector: &'a C,
    options: TransferOptions,
    interrupt: &'a Interrupt,
    pause: &'a dyn Fn(Duration),
    places: Vec<RemotePlace>,
    servers: Vec<Server<C::Session>>,
    /// Servers that have answered at least once.
    reached: Vec<bool>,
}

/// Whether nothing more can come over the session after this fault.
fn ends_session(code: Code) -> bool {
    matches!(
        code,
        Code::ConnectionRefused
            | Code::ConnectionLost
            | Code::DeadlineExceeded
            | Code::ShuttingDown
            | Code::BadMagic
            | Code::VersionUnsupported
            | Code::FrameTooLarge
            | Code::MalformedFrame
            | Code::ProtocolViolation
            | Code::SessionUnknown
    )
}

/// The pause before the try after `retries` others.
fn pause_before(retries: u32, fault: &Fault) -> Duration {
    let own = PAUSE.0.saturating_mul(1 << retries.min(10)).min(PAUSE.1);
    match fault.retry {
        Retry::AfterMs(ms) => own.max(Duration::from_millis(ms.into()).min(PAUSE_ASKED_MAX)),
        _ => own,
    }
}

impl<'a, C: Connect> Queue<'a, C> {
    /// A queue that opens its sessions by `connector` and sleeps by `pause`.
    pub(crate) fn new(
        connector: &'a C,
        options: TransferOptions,
        interrupt: &'a Interrupt,
        pause: &'a dyn Fn(Duration),
    ) -> Self {
        let (places, servers, reached) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            connector,
            options,
            interrupt,
            pause,
            places,
            servers,
            reached,
        }
    }

    /// Copies the files of `jobs` and reports each.
    pub(crate) fn run(mut self, jobs: Vec<Job>, reporter: &mut Reporter) {
        let mut waiting: VecDeque<Task> = jobs.into_iter().map(|job| self.task(job)).collect();
        let mut active: VecDeque<(Task, State<<C::Session as Session>::Running>)> = VecDeque::new();
        self.interrupt.orderly(true);
        loop {
            let blocked = |active: &VecDeque<(Task, State<_>)>| {
                matches!(active.back(), Some((_, State::Failed(_))))
            };
            while active.len() < AHEAD && !blocked(&active) && !self.interrupt.requested() {
                let Some(mut task) = waiting.pop_front() else {
                    break;
                };
                let state = self.start(&mut task);
                active.push_back((task, state));
            }
            let Some((mut task, state)) = active.pop_front() else {
                break;
            };
            let outcome = match state {
                State::Failed(fault) => Err(fault),
                State::Running(running) => self.follow(&mut task, running, &active, reporter),
            };
            match outcome {
                Ok(result) => {
                    self.reached[task.server] = true;
                    reporter.file_done(&task.job.label, result);
                }
                Err(fault) => {
                    self.reached[task.server] |= fault.side == Side::Remote;
                    let ended = ends_session(fault.code);
                    if ended {
                        take_back(&mut active, &mut waiting, task.server);
                        if !matches!(self.servers[task.server], Server::Gone(_)) {
                            self.servers[task.server] = Server::Closed;
                        }
                    }
                    if self.is_worth_retrying(&task, &fault) {
                        self.wait_before_retry(&mut task, &fault, reporter);
                        waiting.push_front(task);
                    } else {
                        if ended && !self.reached[task.server] {
                            self.servers[task.server] = Server::Gone(fault.clone());
                        }
                        reporter.failure(Some(&task.job.label), &explained(fault, &task));
                    }
                }
            }
            if self.interrupt.requested() {
                break;
            }
        }
        if self.interrupt.requested() && !(active.is_empty() && waiting.is_empty()) {
            // Files that had not begun: one word about all of them.
            let rest = active.iter().map(|(task, _)| task).chain(&waiting);
            let label = rest.map(|task| task.job.label.clone()).next();
            let fault = Interrupt::fault("copy").hint("run the same command again to go on");
            reporter.failure(label.as_ref(), &fault);
        }
    }

    /// Follows the first of the started tasks to its end.
    fn follow(
        &mut self,
        task: &mut Task,
        running: <C::Session as Session>::Running,
        others: &VecDeque<(Task, State<<C::Session as Session>::Running>)>,
        reporter: &mut Reporter,
    ) -> Result<TransferResult, Fault> {
        let Task {
            job,
            server,
            retries,
            bytes,
            ..
        } = task;
        let reached = &mut self.reached[*server];
        let on_progress = |progress: &Progress| {
            *reached |= progress.channels > 0 || progress.bytes > 0;
            if progress.bytes > *bytes {
                *bytes = progress.bytes;
                *retries = 0;
            }
        };
        let on_stop = || {
            for (_, state) in others {
                if let State::Running(running) = state {
                    running.cancel();
                }
            }
        };
        follow(
            running,
            &job.label,
            reporter,
            self.interrupt,
            on_progress,
            on_stop,
        )
    }

    fn task(&mut self, job: Job) -> Task {
        let same = |place: &RemotePlace| {
            place.address == job.server.address && place.user == job.server.user
        };
        let server = self.places.iter().position(same).unwrap_or_else(|| {
            self.places.push(job.server.clone());
            self.servers.push(Server::Closed);
            self.reached.push(false);
            self.places.len() - 1
        });
        Task {
            job,
            server,
            retries: 0,
            bytes: 0,
            started: false,
        }
    }

    /// Hands a task to the session with its server, which is opened first if need be.
    fn start(&mut self, task: &mut Task) -> State<<C::Session as Session>::Running> {
        if let Some(fault) = task.job.refused.clone() {
            return State::Failed(fault);
        }
        if matches!(self.servers[task.server], Server::Closed) {
            // Nothing is lost by an end at once while a connection is being made.
            self.interrupt.orderly(false);
            let connected = self.connector.connect(&self.places[task.server]);
            self.interrupt.orderly(true);
            match connected {
                Ok(session) => self.servers[task.server] = Server::Open(session),
                Err(fault) => {
                    return State::Failed(fault);
                }
            }
        }
        match &self.servers[task.server] {
            Server::Open(session) => {
                let mut options = self.options.clone();
                // What this very command has brought over is not to be sent again.
                options.resume |= task.bytes > 0;
                match session.start(&task.job.route, &options) {
                    Ok(running) => {
                        task.started = true;
                        State::Running(running)
                    }
                    Err(fault) => State::Failed(fault),
                }
            }
            Server::Gone(fault) => State::Failed(fault.clone()),
            Server::Closed => State::Failed(Fault::new(
                Code::Internal,
                "open a session",
                "no session was opened",
            )),
        }
    }

    fn is_worth_retrying(&self, task: &Task, fault: &Fault) -> bool {
        if self.interrupt.requested()
            || task.retries >= RETRIES_MAX
            || matches!(self.servers[task.server], Server::Gone(_))
            || task.job.is_stream() && task.started
        {
            return false;
        }
        match fault.code {
            Code::ConnectionLost => true,
            // A server that was there a moment ago may be on its way back; one that has come back
            // doesn't know the session any more, and a new one is needed.
            Code::ConnectionRefused | Code::ShuttingDown | Code::SessionUnknown
                if self.reached[task.server] =>
            {
                true
            }
            _ => fault.retry != Retry::Never,
        }
    }

    fn wait_before_retry(&self, task: &mut Task, fault: &Fault, reporter: &mut Reporter) {
        let pause = pause_before(task.retries, fault);
        task.retries += 1;
        reporter.console().detail(&format!(
            "{}: {fault}; try {} of {RETRIES_MAX} in {:.1} s",
            task.job.label.source,
            task.retries,
            pause.as_secs_f64(),
        ));
        (self.pause)(pause);
    }
}

/// Tasks that had been started on a session that ended wait again, in their order.
fn take_back<R: Running>(
    active: &mut VecDeque<(Task, State<R>)>,
    waiting: &mut VecDeque<Task>,
    server: usize,
) {
    let mut kept = VecDeque::with_capacity(active.len());
    let mut back = Vec::new();
    for (task, state) in active.drain(..) {
        // A stream that was begun can't be begun again; its own fault tells what came of it.
        if let State::Running(running) = &state
            && task.server == server
            && !task.job.is_stream()
        {
            // The session may take a moment to notice its end, and is not to do it twice.
            running.cancel();
            back.push(task);
        } else {
            kept.push_back((task, state));
        }
    }
    *active = kept;
    for task in back.into_iter().rev() {
        waiting.push_front(task);
    }
}

/// The fault with what the user can do, where the fault itself doesn't say it.
fn explained(fault: Fault, task: &Task) -> Fault {
    let resumable = matches!(
        fault.code,
        Code::Cancelled | Code::ConnectionLost | Code::ShuttingDown
    );
    if !resumable {
        return fault;
    }
    if task.job.is_stream() {
        return fault.hint("a stream can't be resumed: run the command again from the start");
    }
    if !fault.hint.is_empty() {
        return fault;
    }
    fault.hint("run the same command again to go on")
}

#[cfg(test)]
mod tests;
