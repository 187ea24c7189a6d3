//! The order of files, retries and stops, with simulated sessions and a clock set by the test.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use xdfs_engine::{LimitedBy, Outcome, Progress, TimeShares};
use xdfs_proto::frame::Resume;
use xdfs_proto::pack::Failures;
use xdfs_proto::{Code, DigestValue, Retry};

use super::*;
use crate::events::{QueueEvent, TransferResult};
use crate::retry::RetryPolicy;
use crate::transfer::LocalPlace;

/// The next attempt of a file: transfers this many bytes, then ends like this.
type Step = (u64, Result<(), Fault>);

#[derive(Default)]
struct World {
    /// Outcomes of connects; empty means success.
    connects: VecDeque<Fault>,
    /// Outcomes of transfers by source; the last one is repeated.
    steps: Vec<(String, VecDeque<Step>)>,
    log: Vec<String>,
    resumes: Vec<bool>,
    /// Running transfers, by the number of their session.
    under_way: Vec<(usize, String)>,
    sessions: usize,
    /// Sessions that ended while idle.
    over: Vec<usize>,
    /// The transfer that stalls until it is cancelled.
    stuck: Option<String>,
}

#[derive(Clone, Default)]
struct Fake(Rc<RefCell<World>>);

struct FakeSession(Fake, usize);

struct FakeRunning {
    world: Fake,
    session: usize,
    name: String,
    step: Option<Step>,
    shown: bool,
    is_cancelled: RefCell<bool>,
}

impl Connect for Fake {
    type Session = FakeSession;

    fn connect(&mut self, place: &RemotePlace) -> Result<FakeSession, Fault> {
        let mut world = self.0.borrow_mut();
        world.log.push(format!("connect {}", place.address));
        world.sessions += 1;
        match world.connects.pop_front() {
            Some(fault) => Err(fault),
            None => Ok(FakeSession(self.clone(), world.sessions)),
        }
    }
}

impl Session for FakeSession {
    type RunningTransfer = FakeRunning;

    fn start(
        &self,
        route: &TransferRoute,
        options: &TransferOptions,
    ) -> Result<FakeRunning, Fault> {
        let name = name_of(route);
        let mut world = self.0.0.borrow_mut();
        world.log.push(format!("start {name}"));
        let resumes = options.parameters.resume != Resume::Never;
        world.resumes.push(resumes);
        world.under_way.push((self.1, name.clone()));
        let step = match world.steps.iter_mut().find(|(n, _)| *n == name) {
            Some((_, steps)) if steps.len() > 1 => steps.pop_front(),
            Some((_, steps)) => steps.front().cloned(),
            None => Some((10, Ok(()))),
        };
        drop(world);
        Ok(FakeRunning {
            world: self.0.clone(),
            session: self.1,
            name,
            step,
            shown: false,
            is_cancelled: RefCell::new(false),
        })
    }

    fn is_over(&self) -> bool {
        self.0.0.borrow().over.contains(&self.1)
    }
}

impl RunningTransfer for FakeRunning {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<TransferEvent> {
        let mut world = self.world.0.borrow_mut();
        let own = (self.session, self.name.clone());
        // Back to back, as in a session.
        let is_first = world.under_way.iter().find(|(at, _)| *at == own.0) == Some(&own);
        let is_cancelled = *self.is_cancelled.borrow();
        if !is_cancelled && (!is_first || world.stuck.as_ref() == Some(&self.name)) {
            return Poll::Pending;
        }
        let Some((bytes, end)) = self.step.clone() else {
            return Poll::Pending;
        };
        if !std::mem::replace(&mut self.shown, true) {
            return Poll::Ready(TransferEvent::Progress(Progress {
                bytes,
                bytes_total: None,
                resumed_bytes: 0,
                channels: u32::from(bytes > 0),
            }));
        }
        self.step = None;
        world.under_way.retain(|one| *one != own);
        world.log.push(format!("end {}", self.name));
        let end = match is_cancelled {
            true => Err(Fault::new(Code::Cancelled, "copy", "cancelled")),
            false => end,
        };
        Poll::Ready(TransferEvent::Ended(end.map(|()| outcome(bytes))))
    }

    fn cancel(&self) {
        self.is_cancelled.replace(true);
        self.world
            .0
            .borrow_mut()
            .log
            .push(format!("cancel {}", self.name));
    }
}

impl Drop for FakeRunning {
    fn drop(&mut self) {
        let own = (self.session, self.name.clone());
        self.world
            .0
            .borrow_mut()
            .under_way
            .retain(|one| *one != own);
    }
}

fn name_of(route: &TransferRoute) -> String {
    match route.local() {
        LocalPlace::Path(path) => path.to_string_lossy().into_owned(),
        _ => "-".into(),
    }
}

fn outcome(bytes: u64) -> Outcome {
    Outcome {
        bytes,
        elapsed: Duration::from_secs(1),
        channels: 1,
        resumed_bytes: 0,
        retransmitted_bytes: 0,
        digest: DigestValue::None,
        target: Vec::new(),
        time_shares: TimeShares::only(LimitedBy::Network),
        failures: Failures::default(),
        is_skipped: false,
        passage: None,
        mtime_ns: None,
    }
}

fn job(name: &str, url: &str) -> FileCopy {
    let server: RemotePlace = url.parse().unwrap();
    let from = match name {
        "-" => LocalPlace::Standard,
        _ => LocalPlace::Path(name.into()),
    };
    FileCopy {
        route: TransferRoute::Upload {
            from,
            to: server.path.clone(),
        },
        server,
        options: TransferOptions::default(),
    }
}

fn jobs(names: &[&str]) -> Vec<FileCopy> {
    names.iter().map(|name| job(name, "xdfs://h/d/")).collect()
}

fn steps(name: &str, steps: Vec<Step>) -> (String, VecDeque<Step>) {
    (name.into(), steps.into())
}

fn lost() -> Fault {
    Fault::new(Code::ConnectionLost, "read", "connection reset").ending_session()
}

fn refused() -> Fault {
    Fault::new(Code::ConnectionRefused, "connect", "refused").ending_session()
}

/// Records events as text, and breaks at a given one.
#[derive(Clone, Default)]
struct Heard {
    events: Arc<Mutex<Vec<String>>>,
    last: Option<&'static str>,
}

impl Observer for Heard {
    fn on_job(&mut self, number: u64, event: QueueEvent<'_>) -> ControlFlow<()> {
        let text = match event {
            QueueEvent::Started => format!("{number} started"),
            QueueEvent::Progress(progress) => format!("{number} at {}", progress.bytes),
            QueueEvent::Retry { retry, pause, .. } => {
                format!("{number} retry {retry} in {} ms", pause.as_millis())
            }
            QueueEvent::Done(result) => format!("{number} done {}", result.bytes),
            QueueEvent::Failed(fault) => format!("{number} failed {}", fault.code.as_str()),
        };
        let is_last = self.last == Some(&text);
        self.events.lock().unwrap().push(text);
        match is_last {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// A queue in a simulated world.
struct Scene {
    world: Fake,
    commands: Sender<QueueCommand>,
    schedule: Schedule<Fake>,
    heard: Heard,
    now: Instant,
    count: u64,
    transfers: Vec<Transfer>,
    pauses: Vec<u128>,
}

impl Scene {
    fn new(world: World) -> Self {
        Self::with(world, QueueOptions::default(), Heard::default())
    }

    fn with(world: World, options: QueueOptions, heard: Heard) -> Self {
        let (commands, mailbox) = mailbox();
        let world = Fake(Rc::new(RefCell::new(world)));
        let observer = Box::new(heard.clone());
        Self {
            schedule: Schedule::new(world.clone(), options, observer, mailbox),
            world,
            commands,
            heard,
            now: Instant::now(),
            count: 0,
            transfers: Vec::new(),
            pauses: Vec::new(),
        }
    }

    fn command(&self, command: QueueCommand) {
        assert!(self.commands.send(command).is_ok());
    }

    fn add(&mut self, jobs: Vec<FileCopy>) {
        let mut tasks = Vec::new();
        for job in jobs {
            let (sender, events) = mailbox();
            let end = SessionEnd::default();
            self.transfers.push(Transfer::new(|| (), events, end));
            tasks.push(QueuedJob::new(self.count, job, sender));
            self.count += 1;
        }
        self.command(QueueCommand::Add(tasks));
    }

    fn turn(&mut self) -> Turn {
        let mut context = Context::from_waker(Waker::noop());
        self.schedule.turn(self.now, &mut context)
    }

    /// Advances the time until nothing is left to do.
    fn run(&mut self) {
        self.command(QueueCommand::Close);
        for _ in 0..1000 {
            match self.turn() {
                Turn::Done => return,
                Turn::Wait(Some(time)) => {
                    assert!(time > self.now, "it would turn for ever");
                    self.pauses.push((time - self.now).as_millis());
                    self.now = time;
                }
                Turn::Wait(None) => panic!("nothing goes on: {:?}", self.log()),
            }
        }
        panic!("it does not end");
    }

    fn log(&self) -> String {
        self.world.0.borrow().log.join(", ")
    }

    fn connects(&self) -> usize {
        let world = self.world.0.borrow();
        world
            .log
            .iter()
            .filter(|l| l.starts_with("connect"))
            .count()
    }

    fn heard(&self) -> Vec<String> {
        self.heard.events.lock().unwrap().clone()
    }

    /// The results of all jobs.
    fn results(self) -> Vec<Result<TransferResult, Fault>> {
        self.transfers.into_iter().map(Transfer::wait).collect()
    }

    fn codes(self) -> Vec<Option<Code>> {
        let results = self.results().into_iter();
        results.map(|result| result.err().map(|f| f.code)).collect()
    }
}

fn run(world: World, jobs: Vec<FileCopy>) -> Scene {
    let mut scene = Scene::new(world);
    scene.add(jobs);
    scene.run();
    scene
}

#[test]
fn files_share_a_session_and_start_ahead() {
    let scene = run(World::default(), jobs(&["a", "b", "c", "d", "e", "f"]));
    assert_eq!(
        scene.log(),
        "connect h:2799, start a, start b, start c, start d, end a, start e, end b, start f, \
         end c, end d, end e, end f"
    );
    assert_eq!(scene.codes(), [None; 6]);
}

#[test]
fn the_bound_on_what_runs_is_kept_and_is_at_least_one() {
    for (running_max, log) in [
        (
            0,
            "connect h:2799, start a, end a, start b, end b, start c, end c",
        ),
        (
            2,
            "connect h:2799, start a, start b, end a, start c, end b, end c",
        ),
    ] {
        let options = QueueOptions {
            running_max,
            ..QueueOptions::default()
        };
        let mut scene = Scene::with(World::default(), options, Heard::default());
        scene.add(jobs(&["a", "b", "c"]));
        scene.run();
        assert_eq!(scene.log(), log);
    }
}

#[test]
fn a_result_counts_the_time_of_all_attempts() {
    let lost = (30, Err(lost()));
    let world = World {
        steps: vec![steps(
            "a",
            vec![lost.clone(), lost.clone(), lost, (100, Ok(()))],
        )],
        ..World::default()
    };
    let mut scene = run(world, jobs(&["a", "b"]));
    let paused: u128 = scene.pauses.drain(..).sum();
    let results: Vec<_> = scene.results().into_iter().map(Result::unwrap).collect();
    assert!(paused > 1000, "{paused}");
    assert!(results[0].seconds * 1000.0 >= paused as f64, "{results:?}");
    assert!((results[1].seconds * 1000.0 - paused as f64).abs() < 1.0);
}

#[test]
fn each_server_has_one_session() {
    let jobs = vec![
        job("a", "xdfs://h/d/"),
        job("b", "xdfs://i/d/"),
        job("c", "xdfs://h/e/"),
        job("d", "xdfs://me@h/e/"),
    ];
    let scene = run(World::default(), jobs);
    assert_eq!(scene.connects(), 3);
    assert_eq!(scene.codes(), [None; 4]);
}

#[test]
fn a_slow_server_does_not_hold_up_another() {
    let world = World {
        stuck: Some("a".into()),
        ..World::default()
    };
    let mut scene = Scene::new(world);
    scene.add(vec![job("a", "xdfs://h/d"), job("b", "xdfs://i/d")]);
    assert_eq!(scene.turn(), Turn::Wait(None));
    assert_eq!(scene.heard().last().unwrap(), "1 done 10");
    scene.world.0.borrow_mut().stuck = None;
    scene.run();
    assert_eq!(scene.codes(), [None; 2]);
}

#[test]
fn what_is_added_later_uses_the_session_that_is_open() {
    let mut scene = Scene::new(World::default());
    for names in [["a", "b"], ["c", "d"]] {
        scene.add(jobs(&names));
        assert_eq!(scene.turn(), Turn::Wait(None));
    }
    assert_eq!(scene.connects(), 1);
    // Unless it has ended in the meantime.
    scene.world.0.borrow_mut().over.push(1);
    scene.add(jobs(&["e"]));
    scene.run();
    assert_eq!(scene.connects(), 2);
    assert_eq!(scene.codes(), [None; 5]);
}

#[test]
fn a_failure_leaves_the_others_alone() {
    let full = Fault::new(Code::NoSpace, "write", "full");
    let world = World {
        steps: vec![steps("b", vec![(0, Err(full))])],
        ..World::default()
    };
    let scene = run(world, jobs(&["a", "b", "c"]));
    assert!(scene.pauses.is_empty());
    assert_eq!(scene.connects(), 1);
    assert_eq!(scene.codes(), [None, Some(Code::NoSpace), None]);
}

#[test]
fn a_lost_connection_is_made_again_and_the_order_stays() {
    let world = World {
        steps: vec![steps("a", vec![(5, Err(lost())), (10, Ok(()))])],
        ..World::default()
    };
    let mut fresh = jobs(&["a", "b"]);
    for job in &mut fresh {
        job.options.parameters.resume = Resume::Never;
    }
    let scene = run(world, fresh);
    assert_eq!(
        scene.log(),
        "connect h:2799, start a, start b, end a, cancel b, connect h:2799, start a, start b, \
         end a, end b"
    );
    assert_eq!(
        scene.heard().join(", "),
        "0 started, 1 started, 0 at 5, 0 retry 1 in 200 ms, 0 started, 1 started, 0 at 10, \
         0 done 10, 1 at 10, 1 done 10"
    );
    // The second attempt continues from the bytes of the first, even without `resume`.
    assert_eq!(scene.world.0.borrow().resumes, [false, false, true, false]);
    assert_eq!(scene.codes(), [None; 2]);
}

#[test]
fn tries_are_bounded_and_progress_renews_them() {
    let world = World {
        steps: vec![steps("a", vec![(5, Err(lost())), (0, Err(lost()))])],
        ..World::default()
    };
    let scene = run(world, jobs(&["a"]));
    assert_eq!(scene.pauses[..7], [200, 400, 800, 1600, 3200, 6400, 10_000]);
    assert_eq!(scene.pauses.len(), 30);
    assert_eq!(scene.pauses[29], 10_000);
    assert_eq!(scene.codes(), [Some(Code::ConnectionLost)]);

    let mut tries: Vec<Step> = (1..=12).map(|bytes| (bytes, Err(lost()))).collect();
    tries.push((20, Ok(())));
    let world = World {
        steps: vec![steps("a", tries)],
        ..World::default()
    };
    let scene = run(world, jobs(&["a"]));
    assert_eq!(scene.pauses, [200; 12]);
    assert_eq!(scene.codes(), [None]);
}

/// It closes each connection: it may be busy, but rather is no such server.
#[test]
fn a_server_that_never_answered_gets_few_tries() {
    for (retries_max, expected) in [(30, 5), (3, 3)] {
        let options = QueueOptions {
            retry: RetryPolicy {
                retries_max,
                ..RetryPolicy::default()
            },
            ..QueueOptions::default()
        };
        let world = World {
            steps: vec![steps("a", vec![(0, Err(lost()))])],
            ..World::default()
        };
        let mut scene = Scene::with(world, options, Heard::default());
        scene.add(jobs(&["a"]));
        scene.run();
        assert_eq!(scene.pauses.len(), expected);
        assert_eq!(scene.codes(), [Some(Code::ConnectionLost)]);
    }
}

#[test]
fn a_server_has_a_session_for_each_profile() {
    let mut jobs = jobs(&["a", "b", "c", "d"]);
    for (job, name) in jobs.iter_mut().zip(["one", "other", "one", "other"]) {
        job.server.profile = Some(name.into());
    }
    let scene = run(World::default(), jobs);
    assert_eq!(scene.connects(), 2);
    assert_eq!(scene.codes(), [None; 4]);
}

#[test]
fn the_limits_are_those_of_its_user() {
    let options = QueueOptions {
        retry: RetryPolicy {
            retries_max: 3,
            pause_first: Duration::from_millis(7),
            pause_max: Duration::from_millis(20),
            ..RetryPolicy::default()
        },
        ..QueueOptions::default()
    };
    let world = World {
        steps: vec![steps("a", vec![(0, Err(lost()))])],
        ..World::default()
    };
    let mut scene = Scene::with(world, options, Heard::default());
    scene.add(jobs(&["a"]));
    scene.run();
    assert_eq!(scene.pauses, [7, 14, 20]);
}

#[test]
fn a_server_that_is_not_there_is_asked_once() {
    let world = World {
        connects: vec![refused(); 3].into(),
        ..World::default()
    };
    let mut scene = run(world, jobs(&["a", "b", "c"]));
    assert_eq!(scene.log(), "connect h:2799");
    // Later jobs connect again.
    scene.world.0.borrow_mut().connects.clear();
    scene.add(jobs(&["d"]));
    scene.run();
    assert_eq!(scene.connects(), 2);
    let gone = Some(Code::ConnectionRefused);
    assert_eq!(scene.codes(), [gone, gone, gone, None]);
}

#[test]
fn a_server_that_turns_out_not_to_be_there_is_asked_once() {
    // A session opens in the background: an absent server shows in the first transfer.
    let world = World {
        steps: vec![steps("a", vec![(0, Err(refused()))])],
        ..World::default()
    };
    let scene = run(world, jobs(&["a", "b", "c", "d", "e"]));
    assert!(scene.pauses.is_empty());
    assert_eq!(scene.connects(), 1);
    assert!(!scene.log().contains("end b") && !scene.log().contains("start e"));
    assert_eq!(scene.codes(), [Some(Code::ConnectionRefused); 5]);
}

#[test]
fn a_server_that_lets_nobody_in_is_asked_once() {
    // Each further proof would count as a guess, and lock the user out.
    let wrong = Fault::new(
        Code::AuthenticationFailed,
        "log in",
        "the password is wrong",
    )
    .remote()
    .ending_session();
    let world = World {
        steps: vec![steps("a", vec![(0, Err(wrong))])],
        ..World::default()
    };
    let scene = run(world, jobs(&["a", "b", "c", "d", "e"]));
    assert!(scene.pauses.is_empty());
    assert_eq!(scene.connects(), 1);
    assert_eq!(scene.codes(), [Some(Code::AuthenticationFailed); 5]);
}

#[test]
fn a_server_that_is_not_there_costs_the_others_nothing() {
    let world = World {
        steps: vec![steps("a", vec![(0, Err(refused()))])],
        ..World::default()
    };
    let jobs = vec![
        job("a", "xdfs://h/d"),
        job("b", "xdfs://i/d"),
        job("c", "xdfs://h/d"),
    ];
    let gone = Some(Code::ConnectionRefused);
    assert_eq!(run(world, jobs).codes(), [gone, None, gone]);
}

/// Nothing gets through to a server for longer than a session lives: it was there, and is waited
/// for. One that never answered is not.
#[test]
fn a_server_that_falls_silent_is_waited_for() {
    let silent = || Fault::new(Code::DeadlineExceeded, "connect", "no answer").ending_session();
    let world = World {
        steps: vec![steps("a", vec![(5, Err(lost())), (10, Ok(()))])],
        ..World::default()
    };
    let mut scene = Scene::new(world);
    scene.add(jobs(&["a"]));
    assert!(matches!(scene.turn(), Turn::Wait(Some(_))));
    scene.world.0.borrow_mut().connects = vec![silent(); 2].into();
    scene.run();
    assert_eq!(scene.connects(), 4);
    assert_eq!(scene.codes(), [None]);
    let world = World {
        steps: vec![steps("a", vec![(0, Err(silent()))])],
        ..World::default()
    };
    let scene = run(world, jobs(&["a"]));
    assert_eq!(scene.connects(), 1);
    assert_eq!(scene.codes(), [Some(Code::DeadlineExceeded)]);
}

#[test]
fn a_server_that_restarts_is_waited_for() {
    let world = World {
        steps: vec![steps("a", vec![(5, Err(lost())), (10, Ok(()))])],
        ..World::default()
    };
    let mut scene = Scene::new(world);
    scene.add(jobs(&["a"]));
    // The first connect works, the next two don't.
    assert!(matches!(scene.turn(), Turn::Wait(Some(_))));
    scene.world.0.borrow_mut().connects = vec![refused(); 2].into();
    scene.run();
    // The first of the pauses was not over when the others began to be counted.
    assert_eq!(scene.pauses, [200, 400, 800]);
    assert_eq!(scene.codes(), [None]);
}

#[test]
fn a_server_that_forgot_the_session_gets_a_new_one() {
    let forgot = Fault::new(Code::SessionUnknown, "join", "no such session");
    let forgot = forgot.remote().ending_session();
    let world = World {
        steps: vec![steps("a", vec![(5, Err(forgot)), (10, Ok(()))])],
        ..World::default()
    };
    let scene = run(world, jobs(&["a"]));
    assert_eq!(scene.connects(), 2);
    assert_eq!(scene.codes(), [None]);
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
    let scene = run(world, jobs(&["a", "b"]));
    assert_eq!(scene.pauses, [700]);
    // The session stayed open, and the other file did not wait.
    assert_eq!(
        scene.log(),
        "connect h:2799, start a, start b, end a, end b, start a, end a"
    );
    assert_eq!(scene.codes(), [None; 2]);
}

#[test]
fn a_peer_cannot_make_us_wait_for_ever() {
    let world = |ms| {
        let busy = Fault::new(Code::Busy, "open", "in use").retry(Retry::AfterMs(ms));
        World {
            steps: vec![steps("a", vec![(0, Err(busy)), (10, Ok(()))])],
            ..World::default()
        }
    };
    assert_eq!(run(world(u32::MAX), jobs(&["a"])).pauses, [10_000]);
    assert_eq!(run(world(0), jobs(&["a"])).pauses, [200]);
}

#[test]
fn a_stream_is_not_tried_again() {
    let world = World {
        steps: vec![steps("-", vec![(5, Err(lost()))])],
        ..World::default()
    };
    let scene = run(world, vec![job("-", "xdfs://h/x")]);
    assert!(scene.pauses.is_empty());
    assert_eq!(scene.codes(), [Some(Code::ConnectionLost)]);
}

#[test]
fn a_stream_that_was_begun_is_not_taken_back() {
    let world = World {
        steps: vec![steps("a", vec![(5, Err(lost())), (10, Ok(()))])],
        ..World::default()
    };
    let scene = run(world, vec![job("a", "xdfs://h/x"), job("-", "xdfs://h/y")]);
    assert_eq!(scene.log().matches("start -").count(), 1);
    assert!(!scene.log().contains("cancel"));
    assert_eq!(scene.codes(), [None; 2]);
}

#[test]
fn a_stop_cancels_what_runs_and_begins_nothing_more() {
    let world = World {
        stuck: Some("b".into()),
        ..World::default()
    };
    let mut scene = Scene::new(world);
    scene.add(jobs(&["a", "b", "c", "d", "e", "f", "g"]));
    assert_eq!(scene.turn(), Turn::Wait(None));
    scene.command(QueueCommand::Stop);
    scene.add(jobs(&["h"]));
    scene.run();
    let log = scene.log();
    assert!(
        log.contains("cancel b, cancel c, cancel d, cancel e, end b"),
        "{log}"
    );
    assert!(
        !log.contains("start f") && !log.contains("start h"),
        "{log}"
    );
    let codes = scene.codes();
    assert_eq!(codes[0], None);
    assert_eq!(codes[1..], [Some(Code::Cancelled); 7]);
}

#[test]
fn a_stop_ends_pauses() {
    let world = World {
        steps: vec![steps("a", vec![(5, Err(lost()))])],
        ..World::default()
    };
    let mut scene = Scene::new(world);
    scene.add(jobs(&["a", "b"]));
    assert!(matches!(scene.turn(), Turn::Wait(Some(_))));
    scene.command(QueueCommand::Stop);
    scene.run();
    assert!(scene.pauses.is_empty());
    assert_eq!(scene.codes(), [Some(Code::Cancelled); 2]);
}

#[test]
fn an_observer_stops_the_queue_by_whatever_it_is_told() {
    let events = [
        "0 started",
        "0 at 10",
        "0 done 10",
        "1 retry 1 in 200 ms",
        "2 failed no-space",
    ];
    for last in events {
        let world = World {
            steps: vec![
                steps("b", vec![(0, Err(lost())), (10, Ok(()))]),
                steps(
                    "c",
                    vec![(0, Err(Fault::new(Code::NoSpace, "write", "full")))],
                ),
            ],
            ..World::default()
        };
        let heard = Heard {
            last: Some(last),
            ..Heard::default()
        };
        let options = QueueOptions {
            running_max: 1,
            ..QueueOptions::default()
        };
        let mut scene = Scene::with(world, options, heard);
        scene.add(jobs(&["a", "b", "c", "d"]));
        scene.run();
        let heard = scene.heard();
        let after: Vec<&String> = heard.iter().skip_while(|e| *e != last).skip(1).collect();
        assert!(heard.iter().any(|event| event == last), "{heard:?}");
        assert!(!after.iter().any(|e| e.ends_with("started")), "{heard:?}");
        assert_eq!(scene.codes()[3], Some(Code::Cancelled), "{last}");
    }
}

#[test]
fn one_job_is_cancelled_wherever_it_is() {
    let busy = Fault::new(Code::Busy, "open", "in use").retry(Retry::AfterMs(700));
    let world = World {
        stuck: Some("b".into()),
        steps: vec![steps("a", vec![(0, Err(busy))])],
        ..World::default()
    };
    let mut scene = Scene::new(world);
    scene.add(jobs(&["a", "b", "c", "d", "e", "f", "g"]));
    assert!(matches!(scene.turn(), Turn::Wait(_)));
    // Waiting for its retry, running, and waiting for its first attempt.
    for number in [0, 1, 6] {
        scene.command(QueueCommand::Cancel(number));
    }
    scene.run();
    assert!(scene.pauses.is_empty(), "{:?}", scene.pauses);
    let cancelled = Some(Code::Cancelled);
    assert_eq!(
        scene.codes(),
        [cancelled, cancelled, None, None, None, None, cancelled]
    );
}
