//! The order of files, retries and stops, on a network that is only pretended.

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
fn a_server_that_forgot_the_session_gets_a_new_one() {
    let forgot = Fault::new(Code::SessionUnknown, "join", "no such session").remote();
    let world = World {
        steps: vec![steps("a", vec![(5, Err(forgot)), (10, Ok(()))])],
        ..World::default()
    };
    let ended = simple(world, vec![job("a", "xdfs://h/x")]);
    assert_eq!(ended.code, 0);
    assert_eq!(
        ended
            .log
            .iter()
            .filter(|line| line.starts_with("connect"))
            .count(),
        2
    );
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
