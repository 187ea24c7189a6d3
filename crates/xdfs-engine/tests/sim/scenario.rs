//! One run: what is moved over which network, what goes wrong, and what has to hold afterwards.

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xdfs_engine::command::JobKind;
use xdfs_engine::kernel::Readiness;
use xdfs_engine::mailbox::{Mailbox, mailbox};
use xdfs_engine::{
    Acceptor, AcceptorConfig, AcceptorControl, Access, CallJob, CallPart, Command, Commands, Dial,
    DownloadJob, Job, Pipeline, TransferEvent, Turn, UploadJob,
};
use xdfs_engine::{Environment, Task};
use xdfs_proto::frame::{Level, Resume, Start};
use xdfs_proto::path::Call;
use xdfs_proto::{ByteRange, Code, DigestKind, Fault, FileId, Limits};
use xdfs_store::Store as _;

use crate::network::{self, Weather};
use crate::random::Random;
use crate::store::{Disk, FileContent, SimStore};
use crate::world::{Outside, Scheduler, World};

/// Steps after which a run is taken to hang.
const STEPS_MAX: u64 = 2_000_000;
/// Times that a file is tried before its last fault stands.
const TRIES_MAX: u32 = 8;

/// What came of a run, or of several together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) complete: u64,
    pub(crate) failed: u64,
    pub(crate) retries: u64,
    pub(crate) sessions: u64,
    pub(crate) calls: u64,
    pub(crate) faults_met: u64,
    /// Runs in which nothing went wrong.
    pub(crate) calm: u64,
    pub(crate) steps: u64,
    pub(crate) trace: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: &Self) {
        self.complete += other.complete;
        self.failed += other.failed;
        self.retries += other.retries;
        self.sessions += other.sessions;
        self.calls += other.calls;
        self.faults_met += other.faults_met;
        self.calm += other.calm;
        self.steps += other.steps;
    }
}

/// A file that is moved.
struct Moved {
    path: Vec<u8>,
    is_upload: bool,
    digest: DigestKind,
    resume: Resume,
    rate: Option<u64>,
    tries: u32,
    events: Option<(FileId, Mailbox<TransferEvent>)>,
    result: Option<Result<(), Fault>>,
}

/// The session that a client has now.
struct Session {
    commands: Commands,
    next_file: u32,
    end: Arc<Mutex<Option<Result<(), Fault>>>>,
    is_closing: bool,
    /// It is drained or broken on purpose at this time.
    calls: Vec<Mailbox<CallPart>>,
    next_call: u64,
}

/// The pipeline of a client, which tells when it has ended.
struct ClientTask {
    pipeline: Pipeline<Readiness>,
    end: Arc<Mutex<Option<Result<(), Fault>>>>,
}

impl Task for ClientTask {
    fn turn(&mut self) -> Turn {
        let turn = self.pipeline.turn();
        if turn == Turn::Ended {
            *self.end.lock().unwrap() = Some(self.pipeline.result());
        }
        turn
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.pipeline.wait(timeout)
    }
}

struct Scenario {
    world: Arc<World>,
    scheduler: Scheduler,
    here: SimStore,
    there: SimStore,
    moved: Vec<Moved>,
    session: Option<Session>,
    limits: Limits,
    /// Most time that a worker takes for a turn.
    slowness: Duration,
    channels: Option<u32>,
    block_size: u32,
    start: Start,
    disturbances: u64,
    disturbed: u64,
    outcome: Outcome,
}

/// Runs a seed; the problem, if there is one.
pub(crate) fn run(seed: u64) -> Result<Outcome, String> {
    let world = World::new(seed);
    let mut scenario = Scenario::new(&world);
    let control = scenario.serve()?;
    scenario.drive()?;
    control.drain(Duration::from_secs(5));
    scenario.let_end()?;
    scenario.check()?;
    let mut outcome = scenario.outcome;
    for store in [&scenario.here, &scenario.there] {
        outcome.faults_met += store.disk.lock().unwrap().faults_met;
    }
    outcome.faults_met += world.network.faults_met() + world.refused_workers();
    outcome.faults_met += scenario.disturbed;
    // Workers that take longer than the peers' patience are a fault of their own.
    let is_slow = scenario.slowness * 4 > scenario.limits.stall_timeout;
    if outcome.faults_met == 0 && !is_slow {
        outcome.calm = 1;
        if (outcome.retries, outcome.failed, outcome.sessions) != (0, 0, 1) {
            return Err(format!("nothing went wrong, and yet: {outcome:?}"));
        }
    }
    outcome.steps = scenario.scheduler.steps;
    outcome.trace = world.trace();
    Ok(outcome)
}

fn weather(random: &mut Random) -> Weather {
    let rough = random.permille(600);
    let chance = |random: &mut Random, most| if rough { random.range(0, most) } else { 0 };
    Weather {
        latency: Duration::from_micros(random.pick(&[0, 50, 1_000, 20_000, 150_000])),
        rate: random.pick(&[100_000, 1_000_000, 100_000_000, 10_000_000_000]),
        // Less would take all of the steps on a long path.
        room: random.pick(&[20_000, 200_000, 1 << 20]),
        breaks: chance(random, 20),
        stalls: chance(random, 10),
        damages: chance(random, 60),
        refusals: chance(random, 100),
        local: random.permille(300),
    }
}

fn disk(random: &mut Random) -> Disk {
    let bad = random.permille(350);
    let chance = |random: &mut Random, most| if bad { random.range(0, most) } else { 0 };
    Disk {
        failing_opens: chance(random, 150),
        failing_reads: chance(random, 60),
        changed_sources: chance(random, 300),
        failing_writes: chance(random, 100),
        failing_syncs: chance(random, 200),
        failing_publishes: chance(random, 200),
        faults_left: random.range(0, 4),
        room: match random.permille(100) {
            true => random.range(10_000, 300_000),
            false => u64::MAX,
        },
        slow_writes: random.permille(700),
        random_writes: random.permille(850),
        is_slow: random.permille(400),
        ..Disk::default()
    }
}

fn content(random: &mut Random) -> FileContent {
    let most = random.pick(&[0, 1, 1_000, 5_000, 70_000, 300_000]);
    let length = random.range(0, most);
    let hole = match random.permille(200) {
        true => {
            let start = random.range(0, length);
            let end = random.range(start, length);
            ByteRange { start, end }
        }
        false => ByteRange { start: 0, end: 0 },
    };
    FileContent {
        seed: random.next(),
        length,
        hole,
        is_stream: random.permille(120),
    }
}

impl Scenario {
    fn new(world: &Arc<World>) -> Self {
        let mut chance = world.choose(|random| Random::new(random.next()));
        let random = &mut chance;
        let count = random.range(1, 6);
        let mut sources = [BTreeMap::new(), BTreeMap::new()];
        let mut moved = Vec::new();
        for number in 0..count {
            let path = format!("/file-{number}").into_bytes();
            let is_upload = random.permille(500);
            sources[usize::from(is_upload)].insert(path.clone(), content(random));
            moved.push(Moved {
                path,
                is_upload,
                digest: random.pick(&[DigestKind::Crc64Nvme, DigestKind::Blake3]),
                resume: random.pick(&[Resume::Never, Resume::Trust, Resume::Trust, Resume::Verify]),
                rate: random
                    .permille(100)
                    .then(|| random.range(50_000, 5_000_000)),
                tries: 0,
                events: None,
                result: None,
            });
        }
        let [there, here] = sources;
        let store = |disk, sources| SimStore {
            world: Arc::clone(world),
            disk: Arc::new(Mutex::new(disk)),
            sources: Arc::new(sources),
        };
        let (here, there) = (store(disk(random), here), store(disk(random), there));
        let faults = random.range(0, 12);
        world.network.set_weather(weather(random), faults);
        let slowness = random.pick(&[0, 100, 10_000, 300_000, 3_000_000]);
        let slowness = Duration::from_micros(slowness);
        let patience = random.pick(&[2, 15, 60]);
        let limits = Limits {
            idle_timeout: Duration::from_secs(patience),
            stall_timeout: Duration::from_secs(patience.min(10) / 2),
            ..Limits::default()
        };
        Self {
            world: Arc::clone(world),
            scheduler: Scheduler::new(world, slowness),
            slowness,
            here,
            there,
            moved,
            session: None,
            limits,
            channels: random.pick(&[None, Some(1), Some(2), Some(4), Some(9)]),
            block_size: random.pick(&[1 << 10, 1 << 12, 1 << 14, 1 << 16]),
            start: random.pick(&[Start::Elastic, Start::Elastic, Start::Strict]),
            disturbances: random.range(0, 3),
            disturbed: 0,
            outcome: Outcome::default(),
        }
    }

    fn outside(&self) -> Arc<dyn Environment> {
        Arc::new(Outside(Arc::clone(&self.world)))
    }

    fn serve(&mut self) -> Result<AcceptorControl, String> {
        let listener = network::stack(&self.world).listen(&network::endpoint());
        let listener = listener.map_err(|error| error.to_string())?;
        let config = AcceptorConfig {
            listeners: vec![listener],
            access: Access::Open(Arc::new(self.there.clone())),
            sessions_max: 100,
            limits: self.limits.clone(),
        };
        let made = Acceptor::within(self.outside(), config);
        let (acceptor, control) = made.map_err(|fault| fault.to_string())?;
        self.scheduler.add(Box::new(acceptor));
        Ok(control)
    }

    /// Opens a session, and starts in it what isn't done.
    fn connect(&mut self) -> Result<(), String> {
        let dial = Dial {
            endpoints: vec![network::endpoint()],
            stack: network::stack(&self.world),
            channels: self.channels,
            block_size: Some(self.block_size),
            window: None,
            start: self.start,
            user: String::new(),
            identity: None,
            level: Level::Private,
        };
        let kernel = Readiness::within(self.outside()).map_err(|e| e.to_string())?;
        let (pipeline, commands) = Pipeline::initiate(kernel, dial, self.limits.clone())
            .map_err(|fault| fault.to_string())?;
        let end = Arc::new(Mutex::new(None));
        self.scheduler.add(Box::new(ClientTask {
            pipeline,
            end: Arc::clone(&end),
        }));
        self.outcome.sessions += 1;
        let mut session = Session {
            commands,
            next_file: 1,
            end,
            is_closing: false,
            calls: Vec::new(),
            next_call: 0,
        };
        for number in 0..self.moved.len() {
            self.start(number, &mut session);
        }
        self.session = Some(session);
        Ok(())
    }

    /// Starts a file, if it isn't done.
    fn start(&mut self, number: usize, session: &mut Session) {
        let moved = &mut self.moved[number];
        if moved.result.is_some() || moved.events.is_some() {
            return;
        }
        moved.tries += 1;
        self.outcome.retries += u64::from(moved.tries > 1);
        let file = FileId(session.next_file);
        session.next_file += 1;
        let path = moved.path.clone();
        let kind = match moved.is_upload {
            true => match self.here.open_source(&path) {
                Ok(source) => JobKind::Upload(UploadJob {
                    source,
                    source_path: path.clone(),
                    target: path,
                    name: Vec::new(),
                    pack: false,
                    relaxed: false,
                }),
                Err(fault) => {
                    self.ended(number, Err(fault));
                    return;
                }
            },
            false => JobKind::Download(DownloadJob {
                source: path.clone(),
                store: Arc::new(self.here.clone()),
                target: path,
                name: Vec::new(),
                wish: None,
            }),
        };
        let (events, receiver) = mailbox();
        let job = Job {
            file,
            offset: 0,
            length: None,
            duration: None,
            rate_bytes_per_s_max: moved.rate,
            digest: moved.digest,
            overwrite: false,
            resume: moved.resume,
            dry_run: false,
            kind,
            events,
        };
        moved.events = Some((file, receiver));
        // A session that has ended drops the job, and its sender with it.
        let _ = session.commands.send(Command::Start(Box::new(job)));
        self.world.act(9);
    }

    /// A file was tried; it is tried again unless that makes no sense.
    fn ended(&mut self, number: usize, result: Result<(), Fault>) {
        let store = match self.moved[number].is_upload {
            true => &self.there,
            false => &self.here,
        };
        let moved = &mut self.moved[number];
        let path = &moved.path;
        moved.events = None;
        if crate::shows_one() {
            println!("{:?}: file {number}: {result:?}", self.world.time());
        }
        self.world.act(10);
        match result {
            Ok(()) => {
                // It was said to be published: so it has to stand there, as of now.
                if store.file(path).is_none() {
                    self.world
                        .violation("a file was told to be published and isn't");
                }
                moved.result = Some(Ok(()));
            }
            // A try before published it, and nobody heard of that.
            Err(fault) if fault.code == Code::AlreadyExists => moved.result = Some(Ok(())),
            Err(fault) if moved.tries >= TRIES_MAX => moved.result = Some(Err(fault)),
            Err(_) => {}
        }
    }

    /// What the client's user does: takes results, tries again, asks, disturbs.
    fn act(&mut self) -> Result<(), String> {
        for number in 0..self.moved.len() {
            let Some((_, events)) = &self.moved[number].events else {
                continue;
            };
            match events.recv_timeout(Duration::ZERO) {
                Ok(TransferEvent::Progress(progress)) => self.world.note(progress.bytes),
                Ok(TransferEvent::Ended(result)) => self.ended(number, result.map(drop)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("file {number} ended without a word"));
                }
            }
        }
        let Some(mut session) = self.session.take() else {
            let is_done = self.moved.iter().all(|moved| moved.result.is_some());
            return if is_done { Ok(()) } else { self.connect() };
        };
        let end = session.end.lock().unwrap().clone();
        if let Some(end) = end {
            return self.session_ended(&session, &end);
        }
        if session.is_closing {
            self.session = Some(session);
            return Ok(());
        }
        for number in 0..self.moved.len() {
            self.start(number, &mut session);
        }
        self.disturb(&mut session);
        if self.moved.iter().all(|moved| moved.result.is_some()) {
            session.is_closing = true;
            let _ = session.commands.send(Command::Close);
            self.world.act(11);
        }
        self.session = Some(session);
        Ok(())
    }

    fn session_ended(&mut self, session: &Session, end: &Result<(), Fault>) -> Result<(), String> {
        self.world.act(12);
        if crate::shows_one() {
            println!("{:?}: the session ends: {end:?}", self.world.time());
        }
        for call in &session.calls {
            let parts = std::iter::from_fn(|| call.recv_timeout(Duration::ZERO).ok());
            let answers = parts.filter(|part| part.last).count();
            if answers != 1 {
                return Err(format!("a call had {answers} answers"));
            }
            self.outcome.calls += 1;
        }
        match end {
            Ok(()) if !session.is_closing => Err("the session ended by itself".into()),
            Err(fault) if !fault.ends_session => Err(format!("its end is not marked: {fault}")),
            _ => Ok(()),
        }
    }

    /// Orders that are not part of a transfer.
    fn disturb(&mut self, session: &mut Session) {
        if self.disturbances == 0 || !self.world.choose(|random| random.permille(5)) {
            return;
        }
        self.disturbances -= 1;
        self.disturbed += 1;
        self.world.act(13);
        let command = match self.world.choose(|random| random.below(5)) {
            0 => Command::BreakChannel,
            1 => Command::Leave,
            2 => {
                let running = self.moved.iter().find_map(|moved| moved.events.as_ref());
                let Some((file, _)) = running else { return };
                Command::Cancel(*file)
            }
            _ => {
                let (parts, answers) = mailbox();
                session.calls.push(answers);
                let number = session.next_call;
                session.next_call += 1;
                let path = b"/".to_vec();
                let call = Call::Sync { path };
                Command::Call(CallJob {
                    number,
                    call,
                    parts,
                })
            }
        };
        let _ = session.commands.send(command);
    }

    /// Until all files have a result and the session is over.
    fn drive(&mut self) -> Result<(), String> {
        loop {
            self.act()?;
            let is_done = self.moved.iter().all(|moved| moved.result.is_some());
            if is_done && self.session.is_none() {
                return Ok(());
            }
            self.round()?;
        }
    }

    /// Until nothing runs any more.
    fn let_end(&mut self) -> Result<(), String> {
        while !self.scheduler.is_empty() {
            self.round()?;
        }
        Ok(())
    }

    fn round(&mut self) -> Result<(), String> {
        self.scheduler.round();
        let violations = self.world.violations();
        if !violations.is_empty() {
            return Err(violations.join("; "));
        }
        if self.scheduler.steps > STEPS_MAX / 2 {
            // From here on it has to come to an end.
            self.world.network.clear_up();
            self.here.mend();
            self.there.mend();
        }
        if self.scheduler.steps > STEPS_MAX {
            let left = self.moved.iter().filter(|moved| moved.result.is_none());
            let left: Vec<_> = left
                .map(|m| {
                    let store = if m.is_upload { &self.here } else { &self.there };
                    (m.is_upload, m.tries, &store.sources[&m.path])
                })
                .collect();
            return Err(format!(
                "no end after {STEPS_MAX} steps, {:?}: {left:?} {:?} {:?} {:?}",
                self.world.time(),
                self.world.network,
                self.limits,
                (self.channels, self.block_size, self.start),
            ));
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        for moved in &self.moved {
            let (source, target) = match moved.is_upload {
                true => (&self.here, &self.there),
                false => (&self.there, &self.here),
            };
            let expected = source.sources[&moved.path].bytes();
            let name = String::from_utf8_lossy(&moved.path);
            match (target.file(&moved.path), &moved.result) {
                (Some(there), _) if there != expected => {
                    let at = there
                        .iter()
                        .zip(&expected)
                        .position(|(one, other)| one != other);
                    return Err(format!(
                        "{name} differs at {at:?}; {} bytes of {}",
                        there.len(),
                        expected.len()
                    ));
                }
                (None, Some(Ok(()))) => return Err(format!("{name} is gone")),
                (_, Some(Ok(()))) => self.outcome.complete += 1,
                (_, Some(Err(_))) => self.outcome.failed += 1,
                (_, None) => return Err(format!("nobody heard of {name}")),
            }
        }
        let published = self.here.published().len() + self.there.published().len();
        if published > self.moved.len() {
            return Err("a file stands where none was sent".into());
        }
        Ok(())
    }
}
