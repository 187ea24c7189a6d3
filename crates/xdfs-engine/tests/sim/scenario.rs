//! One run: a client and a server, what goes wrong, and what has to hold afterwards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use xdfs_engine::kernel::Readiness;
use xdfs_engine::{
    Acceptor, AcceptorConfig, AcceptorControl, AccessPolicy, Command, Commands, Dial, Pipeline,
    Route, TransferEvent,
};
use xdfs_engine::{Task, Turn};
use xdfs_proto::frame::Level;
use xdfs_proto::{Fault, FileId};
use xdfs_sim::store::SimStore;
use xdfs_sim::transport;
use xdfs_sim::{Host, Random, Scheduler, World};

use crate::setup::{Content, Settings, habits, weather};
use crate::transfers::{Moved, Stores, check_fault, look};
use crate::users::User;

/// Steps after which a run is taken to hang, and from half of which on nothing more goes wrong.
const STEPS_MAX: u64 = 400_000;
/// The same in simulated time.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// What came of a run, or of several together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Files and packs that are whole, and those that aren't.
    pub(crate) complete: u64,
    pub(crate) failed: u64,
    /// Why they aren't.
    pub(crate) reasons: BTreeMap<&'static str, u64>,
    pub(crate) retries: u64,
    pub(crate) sessions: u64,
    /// Calls that were answered, and those of which nobody knows what came.
    pub(crate) answers: u64,
    pub(crate) unknown: u64,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// Runs in which nothing went wrong.
    pub(crate) calm: u64,
    /// Runs in which all is whole, although something went wrong.
    pub(crate) recovered: u64,
    pub(crate) steps: u64,
    /// The longest run, in simulated time.
    pub(crate) time: Duration,
    pub(crate) trace: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: &Self) {
        self.complete += other.complete;
        self.failed += other.failed;
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
        self.retries += other.retries;
        self.sessions += other.sessions;
        self.answers += other.answers;
        self.unknown += other.unknown;
        for (fault, count) in &other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        self.calm += other.calm;
        self.recovered += other.recovered;
        self.steps += other.steps;
        self.time = self.time.max(other.time);
    }

    pub(crate) fn faults_met(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// How a session or a server ended; `None` as long as it has not.
type End = Arc<Mutex<Option<Result<(), Fault>>>>;

/// The session that a client has now.
struct Session {
    commands: Commands,
    next_file: u32,
    next_call: u64,
    end: End,
    is_closing: bool,
}

/// The pipeline of a client, which tells when it has ended.
struct ClientTask {
    pipeline: Pipeline<Readiness>,
    end: End,
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

/// The listener of a server, which tells when it has ended.
struct ServerTask {
    acceptor: Acceptor,
    end: End,
}

impl Task for ServerTask {
    fn turn(&mut self) -> Turn {
        let turn = self.acceptor.turn();
        if turn == Turn::Ended {
            *self.end.lock().unwrap() = Some(Ok(()));
        }
        turn
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.acceptor.wait(timeout)
    }
}

struct Server {
    control: AcceptorControl,
    end: End,
}

struct Scenario {
    world: Arc<World>,
    scheduler: Scheduler,
    here: SimStore,
    there: SimStore,
    moved: Vec<Moved>,
    users: Vec<User>,
    session: Option<Session>,
    server: Option<Server>,
    /// There is no other session, and no other server, before.
    connects_at: Duration,
    serves_at: Duration,
    /// A server was told to end in an orderly way.
    was_drained: bool,
    settings: Settings,
    /// Of the server.
    memory_bytes_max: usize,
    outcome: Outcome,
}

/// Runs a seed; the problem, if there is one.
pub(crate) fn run(seed: u64) -> Result<Outcome, String> {
    let world = World::new(seed);
    let mut scenario = Scenario::new(&world);
    scenario.drive()?;
    scenario.let_end()?;
    scenario.check()?;
    let mut outcome = scenario.outcome;
    outcome.faults = world.faults();
    if outcome.faults_met() == 0 && !scenario.settings.are_slow() {
        outcome.calm = 1;
        if (outcome.retries, outcome.failed, outcome.sessions) != (0, 0, 1) {
            return Err(format!("nothing went wrong, and yet: {outcome:?}"));
        }
    }
    outcome.recovered = u64::from(outcome.faults_met() > 0 && outcome.failed == 0);
    outcome.steps = scenario.scheduler.steps();
    outcome.time = world.time();
    outcome.trace = world.trace();
    Ok(outcome)
}

impl Scenario {
    fn new(world: &Arc<World>) -> Self {
        let mut chance = world.choose(|random| Random::new(random.draw()));
        let random = &mut chance;
        let weather = weather(random);
        let Content {
            moved,
            sources: [here_sources, there_sources],
            files: [here_files, there_files],
        } = Content::new(random, weather.forgeries > 0);
        let mut store = |sources, files: BTreeMap<Vec<u8>, Vec<u8>>| {
            let store = SimStore::new(world, habits(random), sources);
            for (path, bytes) in files {
                store.put(&path, bytes);
            }
            store
        };
        let here = store(here_sources, here_files);
        let there = store(there_sources, there_files);
        let faults = random.range(0, 12);
        world.network().set_weather(weather, faults);
        world.refuse_workers(random.pick(&[0, 0, 2, 10]));
        let settings = Settings::new(random);
        let users = (0..settings.users)
            .map(|number| User::new(number, random))
            .collect();
        Self {
            memory_bytes_max: random.pick(&[usize::MAX, 2 << 20, 0]),
            world: Arc::clone(world),
            scheduler: Scheduler::new(world, settings.slowness),
            here,
            there,
            moved,
            users,
            session: None,
            server: None,
            connects_at: Duration::ZERO,
            serves_at: Duration::ZERO,
            was_drained: false,
            settings,
            outcome: Outcome::default(),
        }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if crate::shows_one() {
            println!("{:?}: {}", self.world.time(), what());
        }
    }

    fn serve(&mut self) -> Result<(), String> {
        let listener = transport::stack(&self.world).listen(&transport::endpoint());
        let listener = listener.map_err(|error| error.to_string())?;
        let config = AcceptorConfig {
            listeners: vec![listener],
            access: AccessPolicy::Open(Arc::new(self.there.clone()), None),
            sessions_max: 100,
            memory_bytes_max: self.memory_bytes_max,
            tunnels: xdfs_engine::tunnel::TunnelLimits::default(),
            limits: self.settings.limits.clone(),
        };
        let made = Acceptor::within(self.world.environment(Host::Server), config);
        let (acceptor, control) = made.map_err(|fault| fault.to_string())?;
        let end = End::default();
        let task = ServerTask {
            acceptor,
            end: Arc::clone(&end),
        };
        self.scheduler.add(Host::Server, "acceptor", Box::new(task));
        self.server = Some(Server { control, end });
        Ok(())
    }

    /// Opens a session.
    fn connect(&mut self) -> Result<(), String> {
        let dial = Dial {
            rate: None,
            routes: vec![Route {
                endpoint: transport::endpoint(),
                stack: transport::stack(&self.world),
            }],
            channels: self.settings.channels,
            block_size: Some(self.settings.block_size),
            window: None,
            start: self.settings.start,
            user: String::new(),
            identity: None,
            level: Level::Private,
            yields: false,
        };
        let environment = self.world.environment(Host::Client);
        let kernel = Readiness::within(environment).map_err(|e| e.to_string())?;
        let limits = self.settings.limits.clone();
        let made = Pipeline::initiate(kernel, dial, limits);
        let (pipeline, commands) = made.map_err(|fault| fault.to_string())?;
        let end = End::default();
        let task = ClientTask {
            pipeline,
            end: Arc::clone(&end),
        };
        self.scheduler.add(Host::Client, "client", Box::new(task));
        self.outcome.sessions += 1;
        self.session = Some(Session {
            commands,
            next_file: 1,
            next_call: 0,
            end,
            is_closing: false,
        });
        Ok(())
    }

    /// Whether everything has its result.
    fn is_done(&self) -> bool {
        let moved = self.moved.iter().all(|moved| moved.result.is_some());
        moved && self.users.iter().all(User::is_done)
    }

    /// What the client's user does: takes results, tries again, asks, disturbs.
    fn act(&mut self) -> Result<(), String> {
        self.take_results()?;
        let now = self.world.time();
        let Some(mut session) = self.session.take() else {
            return match self.is_done() || now < self.connects_at {
                true => Ok(()),
                false => self.connect(),
            };
        };
        let end = session.end.lock().unwrap().clone();
        if let Some(end) = end {
            return self.session_ended(&session, &end);
        }
        if !session.is_closing {
            self.start_transfers(&mut session);
            for user in &mut self.users {
                user.act(&self.world, &session.commands, &mut session.next_call);
            }
            self.disturb(&session);
            if self.is_done() {
                session.is_closing = true;
                let _ = session.commands.send(Command::Close);
                self.world.act(11);
            }
        }
        self.session = Some(session);
        Ok(())
    }

    fn take_results(&mut self) -> Result<(), String> {
        let stores = Stores {
            here: &self.here,
            there: &self.there,
        };
        for moved in &mut self.moved {
            let Some((file, events)) = &moved.events else {
                continue;
            };
            match look(events) {
                Poll::Ready(Some(TransferEvent::Progress(progress))) => {
                    self.world.note(progress.bytes);
                    if progress.bytes_total.is_some_and(|all| progress.bytes > all) {
                        let what = format!("more than all has come: {progress:?}");
                        self.world.violation(what);
                    }
                }
                Poll::Ready(Some(TransferEvent::Ended(result))) => {
                    if crate::shows_one() {
                        let name = String::from_utf8_lossy(&moved.path);
                        println!("{:?}: {name} as {file}: {result:?}", self.world.time());
                    }
                    moved.ended(result, &stores, &self.world);
                }
                Poll::Pending => {}
                Poll::Ready(None) => {
                    return Err(format!("{moved:?} ended without a word"));
                }
            }
        }
        Ok(())
    }

    /// Starts in a session what isn't done.
    fn start_transfers(&mut self, session: &mut Session) {
        let stores = Stores {
            here: &self.here,
            there: &self.there,
        };
        let now = self.world.time();
        for moved in &mut self.moved {
            if moved.result.is_some() || moved.events.is_some() || now < moved.next_try {
                continue;
            }
            self.outcome.retries += u64::from(moved.tries > 0);
            let file = FileId(session.next_file);
            session.next_file += 1;
            match moved.job(file, &stores) {
                // A session that has ended drops the job, and its sender with it.
                Ok(job) => drop(session.commands.send(Command::Start(Box::new(job)))),
                Err(fault) => moved.ended(Err(fault), &stores, &self.world),
            }
            self.world.act(9);
        }
    }

    fn session_ended(&mut self, session: &Session, end: &Result<(), Fault>) -> Result<(), String> {
        self.world.act(12);
        self.tell(|| format!("the session ends: {end:?}"));
        for user in &mut self.users {
            user.session_ended(&self.world, &session.commands, false);
        }
        let pause = self.world.choose(|random| random.range(1, 3000));
        self.connects_at = self.world.time() + Duration::from_millis(pause);
        if let Err(fault) = end {
            check_fault(fault, &self.world);
        }
        match end {
            Ok(()) if !session.is_closing && !self.was_drained => {
                Err("the session ended by itself".into())
            }
            Err(fault) if !fault.ends_session => Err(format!("its end is not marked: {fault}")),
            _ => Ok(()),
        }
    }

    /// Orders that are not part of a transfer.
    fn disturb(&mut self, session: &Session) {
        if self.settings.disturbances == 0 || !self.world.choose(|random| random.permille(5)) {
            return;
        }
        self.settings.disturbances -= 1;
        self.world.act(13);
        let command = match self.world.choose(|random| random.below(5)) {
            0 => Some(("channel broken on order", Command::BreakChannel)),
            1 => Some(("channel left", Command::Leave)),
            2 => {
                let mut users = self.users.iter_mut();
                let abandoned = users.find_map(|user| user.abandon(&self.world));
                abandoned.map(|command| ("call abandoned", command))
            }
            number => {
                let running = self.moved.iter_mut().find(|moved| moved.events.is_some());
                running.and_then(|moved| {
                    moved.is_given_up = number == 4;
                    let (file, _) = moved.events.as_ref()?;
                    Some(("transfer cancelled", Command::Cancel(*file)))
                })
            }
        };
        if let Some((what, command)) = command {
            self.tell(|| what.into());
            self.world.count(what);
            let _ = session.commands.send(command);
        }
    }

    /// Ends a whole side, sometimes, and begins the server again.
    fn restart(&mut self) -> Result<(), String> {
        let now = self.world.time();
        if let Some(server) = &self.server
            && server.end.lock().unwrap().is_some()
        {
            self.server = None;
            let pause = self.world.choose(|random| random.range(0, 20_000));
            self.serves_at = now + Duration::from_millis(pause);
        }
        if self.server.is_none() {
            if now >= self.serves_at {
                self.serve()?;
            }
            return Ok(());
        }
        let may = self.settings.restarts > 0 && self.session.is_some();
        if !may || !self.world.choose(|random| random.permille(3)) {
            return Ok(());
        }
        self.settings.restarts -= 1;
        let (kind, is_silent) = self.world.choose(|r| (r.below(5), r.permille(300)));
        if kind < 4 && is_silent {
            self.world.network().silence(now);
        }
        match kind {
            0..2 => {
                self.tell(|| format!("the server is killed, silent: {is_silent}"));
                self.world.count("server killed");
                self.scheduler.kill(Host::Server);
                self.there.crash();
                for user in &mut self.users {
                    user.server_crashed(&self.world);
                }
                let pause = self.world.choose(|random| random.range(0, 20_000));
                self.serves_at = now + Duration::from_millis(pause);
                self.server = None;
            }
            2..4 => {
                self.tell(|| format!("the client is killed, silent: {is_silent}"));
                self.world.count("client killed");
                self.scheduler.kill(Host::Client);
                for moved in &mut self.moved {
                    moved.events = None;
                }
                if let Some(session) = self.session.take() {
                    for user in &mut self.users {
                        user.session_ended(&self.world, &session.commands, true);
                    }
                }
            }
            _ => {
                self.tell(|| "the server is drained".into());
                self.world.count("server drained");
                self.was_drained = true;
                let grace = self.world.choose(|random| random.range(0, 5_000));
                if let Some(server) = &self.server {
                    server.control.drain(Duration::from_millis(grace));
                }
            }
        }
        Ok(())
    }

    /// Until everything has a result and the session is over.
    fn drive(&mut self) -> Result<(), String> {
        self.serve()?;
        loop {
            self.act()?;
            if self.is_done() && self.session.is_none() {
                return Ok(());
            }
            self.restart()?;
            self.round()?;
        }
    }

    /// Until nothing runs any more, and nothing is left open.
    fn let_end(&mut self) -> Result<(), String> {
        if let Some(server) = self.server.take() {
            server.control.drain(Duration::from_secs(5));
        }
        while !self.scheduler.is_empty() {
            self.round()?;
        }
        for moved in &mut self.moved {
            moved.events = None;
        }
        match (self.world.held(), self.world.network().open_channels()) {
            (0, 0) => Ok(()),
            open => Err(format!(
                "sources and sinks, and channels, are left open: {open:?}"
            )),
        }
    }

    fn round(&mut self) -> Result<(), String> {
        self.scheduler.round();
        let violations = self.world.violations();
        if !violations.is_empty() {
            return Err(violations.join("; "));
        }
        let (steps, time) = (self.scheduler.steps(), self.world.time());
        if steps > STEPS_MAX / 2 || time > TIME_MAX / 2 {
            // From here on it has to come to an end.
            self.world.network().clear_up();
            self.here.mend();
            self.there.mend();
        }
        if steps > STEPS_MAX || time > TIME_MAX {
            let left = self.moved.iter().filter(|moved| moved.result.is_none());
            let left: Vec<_> = left.collect();
            let network = self.world.network();
            let limits = &self.settings.limits;
            return Err(format!(
                "no end after {steps} steps, {time:?} {:?} {:?}: {left:?} {network:?} {limits:?}",
                self.scheduler,
                self.world.faults()
            ));
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        let stores = Stores {
            here: &self.here,
            there: &self.there,
        };
        for moved in &self.moved {
            moved.check(&stores, &self.world)?;
            match &moved.result {
                Some(Err(fault)) => {
                    self.outcome.failed += 1;
                    *self.outcome.reasons.entry(fault.code.as_str()).or_default() += 1;
                }
                _ => self.outcome.complete += 1,
            }
        }
        let there = self.there.tree();
        for user in &mut self.users {
            user.check(&there)?;
            self.outcome.answers += user.answers;
            self.outcome.unknown += user.unknown;
        }
        let is_known = |path: &[u8], is_upload| {
            let to_known =
                |moved: &Moved| moved.is_upload == is_upload && path.starts_with(&moved.path);
            path.starts_with(b"/tree")
                || (is_upload && path.starts_with(b"/user-"))
                || self.moved.iter().any(to_known)
        };
        for (store, is_upload) in [(&self.here, false), (&self.there, true)] {
            let tree = store.tree();
            let stray = tree
                .beneath(b"")
                .into_keys()
                .find(|path| !is_known(path, is_upload));
            if let Some(path) = stray {
                return Err(format!("{} was never sent", String::from_utf8_lossy(&path)));
            }
        }
        match self.world.violations() {
            problems if problems.is_empty() => Ok(()),
            problems => Err(problems.join("; ")),
        }
    }
}
