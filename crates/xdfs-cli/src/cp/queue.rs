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
            // A server that was there a moment ago may be on its way back.
            Code::ConnectionRefused | Code::ShuttingDown if self.reached[task.server] => true,
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
    if !fault.hint.is_empty() || !resumable {
        return fault;
    }
    if task.job.is_stream() {
        return fault.hint("a stream can't be resumed: run the command again from the start");
    }
    fault.hint("run the same command again to go on")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ffi::OsStr;
    use std::rc::Rc;

    use xdfs::{DigestValue, LimitedBy, LocalPlace};

    use super::*;
    use crate::flags::OutputFlags;
    use crate::place::Place;
    use crate::report::{Label, Run};
    use crate::session::{Route, local_file};

    /// What the fake network does next with a file: bring so many bytes, then end so.
    type Step = (u64, Result<(), Fault>);

    #[derive(Default)]
    struct World {
        /// Outcomes of connects; empty means success.
        connects: VecDeque<Fault>,
        /// Outcomes of transfers by source; the last one is repeated.
        steps: Vec<(String, VecDeque<Step>)>,
        log: Vec<String>,
        resumes: Vec<bool>,
        stop_at: Option<(String, Interrupt)>,
    }

    #[derive(Clone, Default)]
    struct Fake(Rc<RefCell<World>>);

    struct FakeRunning {
        world: Fake,
        name: String,
        step: Step,
        shown: bool,
        cancelled: RefCell<bool>,
    }

    impl Connect for Fake {
        type Session = Self;
        fn connect(&self, place: &RemotePlace) -> Result<Self, Fault> {
            let mut world = self.0.borrow_mut();
            world.log.push(format!("connect {}", place.address));
            match world.connects.pop_front() {
                Some(fault) => Err(fault),
                None => Ok(self.clone()),
            }
        }
    }

    impl Session for Fake {
        type Running = FakeRunning;
        fn start(&self, route: &Route, options: &TransferOptions) -> Result<FakeRunning, Fault> {
            let name = crate::session::local_text(route.local());
            let mut world = self.0.borrow_mut();
            world.log.push(format!("start {name}"));
            world.resumes.push(options.resume);
            let step = match world.steps.iter_mut().find(|(n, _)| *n == name) {
                Some((_, steps)) if steps.len() > 1 => steps.pop_front().unwrap(),
                Some((_, steps)) => steps[0].clone(),
                None => (10, Ok(())),
            };
            drop(world);
            Ok(FakeRunning {
                world: self.clone(),
                name,
                step,
                shown: false,
                cancelled: RefCell::new(false),
            })
        }
    }

    impl Running for FakeRunning {
        fn progress(&mut self, _: Duration) -> Option<Progress> {
            if std::mem::replace(&mut self.shown, true) {
                return None;
            }
            if let Some((name, interrupt)) = &self.world.0.borrow().stop_at
                && *name == self.name
            {
                interrupt.request();
                // One more look at the wish to stop before the end.
                self.step.1 = Err(Fault::new(Code::Cancelled, "copy", "cancelled"));
            }
            let bytes = self.step.0;
            Some(Progress {
                bytes,
                bytes_total: None,
                resumed_bytes: 0,
                channels: u32::from(bytes > 0),
            })
        }
        fn is_finished(&self) -> bool {
            true
        }
        fn cancel(&self) {
            self.cancelled.replace(true);
            self.world
                .0
                .borrow_mut()
                .log
                .push(format!("cancel {}", self.name));
        }
        fn wait(self) -> Result<TransferResult, Fault> {
            self.world
                .0
                .borrow_mut()
                .log
                .push(format!("wait {}", self.name));
            self.step.1.map(|()| TransferResult {
                bytes: self.step.0,
                seconds: 1.0,
                channels: 1,
                resumed_bytes: 0,
                retransmitted_bytes: 0,
                digest: DigestValue::None,
                target: Vec::new(),
                limited_by: LimitedBy::Network,
            })
        }
    }

    fn job(name: &str, url: &str) -> Job {
        let Place::Remote(server) = Place::parse(OsStr::new(url)).unwrap() else {
            panic!()
        };
        let from = if name == "-" {
            LocalPlace::Standard
        } else {
            local_file(name)
        };
        Job {
            label: Label {
                source: name.into(),
                target: url.into(),
            },
            route: Route::Upload {
                from,
                to: server.path.clone(),
            },
            server,
            bytes: None,
            refused: None,
        }
    }

    struct Ended {
        code: u8,
        log: Vec<String>,
        pauses: Vec<Duration>,
        resumes: Vec<bool>,
    }

    fn run(world: World, jobs: Vec<Job>, interrupt: &Interrupt, resume: bool) -> Ended {
        let fake = Fake(Rc::new(RefCell::new(world)));
        let flags = OutputFlags {
            quiet: true,
            ..OutputFlags::default()
        };
        let files = jobs.len() as u64;
        let mut reporter = Reporter::new(
            flags,
            Run {
                files,
                ..Run::default()
            },
        );
        let pauses = RefCell::new(Vec::new());
        let pause = |time: Duration| pauses.borrow_mut().push(time);
        let options = TransferOptions {
            resume,
            ..TransferOptions::default()
        };
        Queue::new(&fake, options, interrupt, &pause).run(jobs, &mut reporter);
        let code = reporter.finish();
        let world = fake.0.take();
        Ended {
            code,
            log: world.log,
            pauses: pauses.into_inner(),
            resumes: world.resumes,
        }
    }

    fn simple(world: World, jobs: Vec<Job>) -> Ended {
        run(world, jobs, &Interrupt::default(), true)
    }

    fn steps(name: &str, steps: Vec<Step>) -> (String, VecDeque<Step>) {
        (name.into(), steps.into())
    }

    fn lost() -> Fault {
        Fault::new(Code::ConnectionLost, "read", "connection reset")
    }

    #[test]
    fn files_share_a_session_and_start_ahead() {
        let jobs = ["a", "b", "c", "d", "e", "f"]
            .map(|name| job(name, "xdfs://h/d/"))
            .to_vec();
        let ended = simple(World::default(), jobs);
        assert_eq!(ended.code, 0);
        let log = ended.log.join(", ");
        assert!(
            log.starts_with(
                "connect h:2799, start a, start b, start c, start d, wait a, start e, wait b"
            ),
            "{log}"
        );
        assert_eq!(ended.log.len(), 13);
    }

    #[test]
    fn each_server_has_one_session() {
        let jobs = vec![
            job("a", "xdfs://h/d/"),
            job("b", "xdfs://i/d/"),
            job("c", "xdfs://h/e/"),
        ];
        let ended = simple(World::default(), jobs);
        let connects = ended
            .log
            .iter()
            .filter(|line| line.starts_with("connect"))
            .count();
        assert_eq!((ended.code, connects), (0, 2));
    }

    #[test]
    fn a_failure_leaves_the_others_alone() {
        let world = World {
            steps: vec![steps(
                "b",
                vec![(0, Err(Fault::new(Code::NoSpace, "write", "full")))],
            )],
            ..World::default()
        };
        let jobs = ["a", "b", "c"]
            .map(|name| job(name, "xdfs://h/d/"))
            .to_vec();
        let ended = simple(world, jobs);
        assert_eq!(ended.code, Code::NoSpace.exit_code());
        assert!(ended.log.contains(&"wait c".into()));
        assert!(ended.pauses.is_empty());
    }

    #[test]
    fn a_lost_connection_is_made_again_and_the_order_stays() {
        let world = World {
            steps: vec![steps("a", vec![(5, Err(lost())), (10, Ok(()))])],
            ..World::default()
        };
        let ended = run(
            world,
            vec![job("a", "xdfs://h/d/"), job("b", "xdfs://h/d/")],
            &Interrupt::default(),
            false,
        );
        assert_eq!(ended.code, 0);
        assert_eq!(
            ended.log.join(", "),
            "connect h:2799, start a, start b, wait a, cancel b, connect h:2799, start a, start b, \
             wait a, wait b"
        );
        // The second try goes on with what this command has brought over, even with --no-resume.
        assert_eq!(ended.resumes, [false, false, true, false]);
    }

    #[test]
    fn tries_are_bounded_and_progress_renews_them() {
        let world = World {
            steps: vec![steps("a", vec![(0, Err(lost()))])],
            ..World::default()
        };
        let ended = simple(world, vec![job("a", "xdfs://h/x")]);
        assert_eq!(ended.code, Code::ConnectionLost.exit_code());
        let pauses: Vec<u128> = ended.pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(pauses, [200, 400, 800, 1600, 3000]);

        let mut tries: Vec<Step> = (1..=12).map(|bytes| (bytes, Err(lost()))).collect();
        tries.push((20, Ok(())));
        let world = World {
            steps: vec![steps("a", tries)],
            ..World::default()
        };
        let ended = simple(world, vec![job("a", "xdfs://h/x")]);
        assert_eq!((ended.code, ended.pauses.len()), (0, 12));
    }

    #[test]
    fn a_server_that_is_not_there_is_asked_once() {
        let refused = Fault::new(Code::ConnectionRefused, "connect", "refused");
        let world = World {
            connects: vec![refused; 3].into(),
            ..World::default()
        };
        let jobs = ["a", "b", "c"]
            .map(|name| job(name, "xdfs://h/d/"))
            .to_vec();
        let ended = simple(world, jobs);
        assert_eq!(ended.code, 3);
        assert_eq!(ended.log, ["connect h:2799"]);
    }

    #[test]
    fn a_server_that_turns_out_not_to_be_there_is_asked_once() {
        // A session opens in the background: that nobody is there shows in the first transfer.
        let refused = Fault::new(Code::ConnectionRefused, "connect", "refused");
        let world = World {
            steps: vec![steps("a", vec![(0, Err(refused))])],
            ..World::default()
        };
        let jobs = ["a", "b", "c"]
            .map(|name| job(name, "xdfs://h/d/"))
            .to_vec();
        let ended = simple(world, jobs);
        assert_eq!((ended.code, ended.pauses.len()), (3, 0));
        assert_eq!(
            ended
                .log
                .iter()
                .filter(|line| line.starts_with("connect"))
                .count(),
            1
        );
        assert!(!ended.log.contains(&"wait b".into()));
    }

    #[test]
    fn a_server_that_restarts_is_waited_for() {
        let refused = Fault::new(Code::ConnectionRefused, "connect", "refused");
        let world = World {
            steps: vec![steps("a", vec![(5, Err(lost())), (10, Ok(()))])],
            ..World::default()
        };
        let fake = Fake(Rc::new(RefCell::new(world)));
        // The first connect works, the next two don't.
        let pauses = RefCell::new(0);
        let pause = |_: Duration| {
            *pauses.borrow_mut() += 1;
            if *pauses.borrow() == 1 {
                fake.0.borrow_mut().connects = vec![refused.clone(); 2].into();
            }
        };
        let flags = OutputFlags {
            quiet: true,
            ..OutputFlags::default()
        };
        let mut reporter = Reporter::new(
            flags,
            Run {
                files: 1,
                ..Run::default()
            },
        );
        let interrupt = Interrupt::default();
        Queue::new(&fake, TransferOptions::default(), &interrupt, &pause)
            .run(vec![job("a", "xdfs://h/x")], &mut reporter);
        assert_eq!(reporter.finish(), 0);
        assert_eq!(*pauses.borrow(), 3);
    }

    #[test]
    fn a_busy_target_is_tried_again_as_the_peer_asks() {
        let busy = Fault::new(Code::Busy, "open", "in use")
            .retry(Retry::AfterMs(700))
            .remote();
        let world = World {
            steps: vec![steps("a", vec![(0, Err(busy)), (10, Ok(()))])],
            ..World::default()
        };
        let ended = simple(world, vec![job("a", "xdfs://h/x")]);
        assert_eq!(
            (ended.code, ended.pauses),
            (0, vec![Duration::from_millis(700)])
        );
        // The session stayed open.
        assert_eq!(
            ended
                .log
                .iter()
                .filter(|line| line.starts_with("connect"))
                .count(),
            1
        );
    }

    #[test]
    fn a_peer_cannot_make_us_wait_for_ever() {
        let fault = Fault::new(Code::Busy, "open", "in use").retry(Retry::AfterMs(u32::MAX));
        assert_eq!(pause_before(0, &fault), PAUSE_ASKED_MAX);
        assert_eq!(pause_before(u32::MAX, &lost()), PAUSE.1);
    }

    #[test]
    fn a_stream_is_not_tried_again() {
        let world = World {
            steps: vec![steps("-", vec![(5, Err(lost()))])],
            ..World::default()
        };
        let ended = simple(world, vec![job("-", "xdfs://h/x")]);
        assert_eq!((ended.code, ended.pauses.len()), (3, 0));
    }

    #[test]
    fn a_stop_cancels_what_runs_and_begins_nothing_more() {
        let interrupt = Interrupt::default();
        let world = World {
            stop_at: Some(("b".into(), interrupt.clone())),
            ..World::default()
        };
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let ended = run(
            world,
            names.map(|name| job(name, "xdfs://h/d/")).to_vec(),
            &interrupt,
            true,
        );
        assert_eq!(ended.code, 130);
        let log = ended.log.join(", ");
        assert!(
            log.contains("cancel b, cancel c, cancel d, cancel e, wait b"),
            "{log}"
        );
        assert!(!log.contains("start f") && !log.contains("wait c"), "{log}");
    }
}
