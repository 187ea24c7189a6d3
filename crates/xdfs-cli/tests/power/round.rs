//! One round: work, a power cut, recovery, the same command, and a comparison.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use xdfs_testkit::powercut::{Image, Kind, Plan};
use xdfs_testkit::process::Guard;
use xdfs_testkit::tree::Random;
use xdfs_testkit::wait;

use crate::content::{Tree, Wrong};
use crate::inplace::{Record, Writer};
use crate::options::Form;
use crate::scene::{PATIENCE, Scene};
use crate::stage::Stage;
use crate::work::{self, Task, Work};

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Problem {
    /// After the cut something stood under a name that is neither old nor new.
    Torn,
    /// The command had ended with 0, and what it had copied isn't there.
    Claimed,
    /// The same command ended with another code than 0, or hung.
    Ended,
    /// The same command ended with 0, and bytes or names are wrong.
    Wrong,
    /// The same, and permissions, times or links are wrong.
    Attributes,
    /// The bench itself could not go on.
    Bench,
}

/// What came of a round.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Cuts and errors while the command ran.
    pub(crate) middle: u32,
    /// Cuts after it had ended.
    pub(crate) late: u32,
    /// Errors that the disk answered.
    pub(crate) errors: u32,
    /// Names of unfinished things at the end.
    pub(crate) hidden: usize,
    /// Events or milliseconds of a run that was not cut.
    pub(crate) length: Option<u64>,
    pub(crate) problems: Vec<(Problem, String)>,
    /// What was done, for a person.
    pub(crate) story: Vec<String>,
}

pub(crate) struct Round<'a> {
    pub(crate) scene: &'a mut Scene,
    pub(crate) work: Work,
    pub(crate) kind: Kind,
    pub(crate) form: Form,
    pub(crate) seed: u64,
    /// Events or milliseconds that a run takes, as far as is known.
    pub(crate) length: u64,
    /// Errors of the disk instead of power cuts.
    pub(crate) errors: bool,
}

/// Who uses the disk, and where everything is.
struct Sides {
    /// Whether the server's root is on the disk that forgets.
    hot_root: bool,
    /// Whether the client's target and state are.
    hot_here: bool,
    root: PathBuf,
    state: PathBuf,
    target: PathBuf,
}

/// The client: the program, or for work in place the library.
enum Actor {
    Program(Guard),
    Writer(Writer),
}

struct Play<'a> {
    round: Round<'a>,
    random: Random,
    sides: Sides,
    command: work::Command,
    old: Tree,
    new: Tree,
    address: String,
    /// The same for GridFTP.
    gridftp: String,
    server: Option<Guard>,
    /// Of work in place, what is known of the file.
    record: Option<Record>,
    /// Whether the command has ended with 0.
    claimed: bool,
    /// It told that an error of the disk had kept it from recording what it did.
    unrecorded: bool,
    report: Report,
}

impl Round<'_> {
    pub(crate) fn run(self) -> Report {
        let mut random = Random::new(self.seed);
        let (source, old) = self.work.source();
        let (new, old_tree) = (self.scene.tree(source), old.map(|old| self.scene.tree(old)));
        let (hot_root, hot_here) = match (self.work.up, random.below(6)) {
            (false, _) | (true, 0) if self.work.task != Task::InPlace => (false, true),
            (_, 1 | 2) => (true, true),
            _ => (true, false),
        };
        let image = self.scene.prepared(self.kind, old);
        let (hot, cold) = (self.scene.path("hot"), self.scene.path("cold"));
        let place = |is_hot: bool| if is_hot { hot.clone() } else { cold.clone() };
        // What a round before this one left.
        std::fs::remove_dir_all(&cold).unwrap();
        std::fs::create_dir(&cold).unwrap();
        self.scene.fill(&cold, old);
        let up = self.work.up;
        let sides = Sides {
            hot_root,
            hot_here,
            root: if up {
                place(hot_root).join("root")
            } else {
                self.scene.path("sources")
            },
            state: place(hot_here).join("state"),
            target: if up {
                place(hot_root).join("root/copy")
            } else {
                place(hot_here).join("here/copy")
            },
        };
        let command = self.work.command(&mut random);
        let mut play = Play {
            round: self,
            random,
            sides,
            command,
            old: old_tree.unwrap_or_default(),
            new,
            address: "127.0.0.1:0".into(),
            gridftp: "127.0.0.1:0".into(),
            server: None,
            record: None,
            claimed: false,
            unrecorded: false,
            report: Report::default(),
        };
        if let Err(error) = play.play(image) {
            play.problem(Problem::Bench, error);
        }
        play.report
    }
}

impl Play<'_> {
    fn problem(&mut self, problem: Problem, what: impl Into<String>) {
        self.report.problems.push((problem, what.into()));
    }

    fn say(&mut self, what: impl Into<String>) {
        self.report.story.push(what.into());
    }

    fn play(&mut self, mut image: Image) -> Result<(), String> {
        let words = self.command.words.join(" ");
        let (hot_root, hot_here) = (self.sides.hot_root, self.sides.hot_here);
        self.say(format!(
            "{words}; on the disk: root {hot_root}, here {hot_here}"
        ));
        let cuts = 1 + u32::from(self.random.below(4) == 0);
        let mut survivor = None;
        for cut in 0..cuts {
            let mut stage = self.mount(&image)?;
            self.check_between(cut);
            self.start_server()?;
            if let Some(survivor) = survivor.take() {
                self.check_survivor(survivor);
            }
            if self.is_over() {
                self.check_again();
                self.end(stage);
                return Ok(());
            }
            if self.round.work.task == Task::Resume && cut == 0 {
                let mut first = self.start(Some("6M"));
                let time = Duration::from_millis(50 + self.random.below(450));
                match first.wait(time).unwrap() {
                    Some(status) => self.claimed = status.success(),
                    None => drop(first.kill().unwrap()),
                }
            }
            let (plan, time) = self.plan();
            // Read before the plan begins: after the cut the disk lets whoever writes wait, and
            // behind a write a read may wait too.
            let old = self.target();
            stage.begin(plan, Some(time));
            let actor = self.act(old);
            (image, survivor) = self.cut(stage, actor);
        }
        let stage = self.mount(&image)?;
        self.check_between(cuts);
        self.start_server()?;
        if let Some(survivor) = survivor {
            self.check_survivor(survivor);
        }
        // It may have ended with 0, and nobody heard it.
        self.check_again();
        self.end(stage);
        Ok(())
    }

    /// Whether the command said that all is done, and would move nothing now.
    fn is_over(&self) -> bool {
        let is_once = matches!(
            self.round.work.task,
            Task::Copy | Task::Resume | Task::Tree | Task::Ftp | Task::FtpTree
        );
        self.claimed && is_once
    }

    fn end(&mut self, stage: Stage) {
        let mut server = self.server.take();
        stage.end(server.iter_mut().collect());
    }

    fn mount(&mut self, image: &Image) -> Result<Stage, String> {
        let disk = (self.round.form, self.round.kind);
        Stage::mount(self.round.scene, disk, image, &mut self.random)
    }

    fn start_server(&mut self) -> Result<(), String> {
        if self.server.is_none() {
            let gridftp = self.round.work.is_ftp().then_some(&mut self.gridftp);
            let root = &self.sides.root;
            let server = self.round.scene.serve(root, &mut self.address, gridftp);
            self.server = Some(server?);
        }
        Ok(())
    }

    /// Starts the command.
    fn start(&self, rate: Option<&str>) -> Guard {
        let mut command: Command = self.round.scene.program(&self.sides.state);
        command.args(&self.command.words).args(["--insecure", "-v"]);
        if let Some(rate) = rate {
            command.args(["--limit-rate", rate]);
        }
        let (source, _) = self.round.work.source();
        // Of a tree what is in it.
        let slash = match self.round.work.task {
            Task::Tree | Task::FtpTree => "/",
            _ => "",
        };
        let server = match self.round.work.is_ftp() {
            true => format!("ftp://{}", self.gridftp),
            false => format!("xdfs://{}", self.address),
        };
        if self.round.work.up {
            let sources = self.round.scene.path("sources");
            command.arg(format!("{}/{source}{slash}", sources.display()));
            command.arg(format!("{server}/copy"));
        } else {
            command.arg(format!("{server}/{source}{slash}"));
            command.arg(&self.sides.target);
        }
        Guard::spawn(&mut command).unwrap()
    }

    /// What the target holds, of work in place.
    fn target(&self) -> Vec<u8> {
        match self.round.work.task {
            Task::InPlace => std::fs::read(&self.sides.target).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn act(&mut self, old: Vec<u8>) -> Actor {
        if self.round.work.task != Task::InPlace {
            // A slow run lets the kernel write more on its own.
            let rate = (self.random.below(3) == 0).then_some("20M");
            return Actor::Program(self.start(rate));
        }
        Actor::Writer(Writer::start(&self.address, self.round.seed, old))
    }

    /// What is to happen, and when.
    fn plan(&mut self) -> (Plan, Duration) {
        // Some cuts come after the end.
        let at = 1 + self
            .random
            .below(self.round.length + self.round.length / 10);
        let mut plan = Plan {
            seed: self.random.next_u64(),
            ..Plan::default()
        };
        // An image that is copied has nobody to answer errors.
        let chance = self.random.below(if self.round.errors { 2 } else { 12 });
        let what = match (self.round.form, chance) {
            (Form::Disk, 0) => {
                plan.fail_write_at = Some(at);
                "a write fails"
            }
            (Form::Disk, 1) => {
                // There are fewer of them.
                plan.fail_flush_at = Some(at.div_ceil(8));
                "a flush fails"
            }
            _ => {
                plan.cut_at = Some(at);
                "the power is cut"
            }
        };
        self.say(format!("{what} at {at} of some {}", self.round.length));
        (plan, Duration::from_millis(at))
    }

    /// Waits for the cut or for the end, and answers what is left on the disk, and the client if
    /// it goes on.
    fn cut(&mut self, stage: Stage, actor: Actor) -> (Image, Option<Guard>) {
        let start = Instant::now();
        let mut actor = actor;
        let mut code = None;
        let in_time = wait::until(PATIENCE, || match &mut actor {
            Actor::Program(program) => {
                code = program
                    .wait(Duration::ZERO)
                    .unwrap()
                    .map(|status| status.code());
                code.is_some() || stage.is_cut()
            }
            Actor::Writer(writer) => writer.has_ended() || stage.is_cut(),
        });
        let (events, failed) = (stage.events(), stage.has_failed());
        self.report.errors += u32::from(failed);
        let ended = match &actor {
            Actor::Program(_) => code.is_some(),
            Actor::Writer(writer) => writer.has_ended(),
        };
        if ended {
            self.report.late += 1;
            let milliseconds = u64::try_from(start.elapsed().as_millis()).unwrap_or(0);
            self.report.length = Some(if events > 0 { events } else { milliseconds });
        } else {
            self.report.middle += 1;
        }
        self.say(format!(
            "{} ms, {events} events, failed {failed}, ended {code:?}",
            start.elapsed().as_millis()
        ));
        let only_server = self.sides.hot_root && !self.sides.hot_here;
        let client_lives = only_server && !ended && self.random.below(3) == 0;
        let server_lives = !self.sides.hot_root && self.random.below(2) == 0;
        // An error of a disk may be followed by a power cut or not.
        let cuts = !failed || self.random.below(2) == 0;
        let mut doomed = Vec::new();
        if !server_lives {
            doomed.extend(self.server.as_mut());
        }
        if let Actor::Program(program) = &mut actor
            && !client_lives
            && !ended
        {
            doomed.push(program);
        }
        let image = if cuts {
            stage.cut(doomed)
        } else {
            stage.end(doomed)
        };
        if !server_lives {
            self.server = None;
        }
        match actor {
            Actor::Program(program) => {
                self.claimed = code == Some(Some(0));
                if !in_time {
                    let said = program.output();
                    self.problem(Problem::Ended, format!("it hangs: {said:?}"));
                }
                if failed && ended {
                    let said = program.output();
                    let is_told = |line: &String| {
                        line.contains("journal") && !line.contains("is copied again")
                    };
                    self.unrecorded = said.iter().any(is_told);
                    self.say(format!("{said:?}"));
                }
                match code {
                    Some(Some(0)) => self.say("claimed"),
                    Some(code) if !failed => {
                        let said = format!("{code:?} without a cut: {:?}", program.output());
                        self.problem(Problem::Ended, said);
                    }
                    _ => {}
                }
                (image, client_lives.then_some(program))
            }
            Actor::Writer(writer) => {
                self.record = Some(writer.record());
                (image, None)
            }
        }
    }
}

/// What is compared.
impl Play<'_> {
    /// After `cuts`, before anything else: each name has its old content or its new one, and if the
    /// command had ended with 0, the new one.
    fn check_between(&mut self, cuts: u32) {
        if cuts == 0 {
            return;
        }
        if let Some(record) = &self.record {
            let found = self.target();
            if let Some(problem) = record.problem(&found) {
                self.problem(Problem::Claimed, problem);
            }
        } else if self.claimed {
            self.check_claim();
        } else {
            let found = Tree::read(&self.sides.target);
            let found = found.unwrap_or_else(|error| {
                self.problem(Problem::Torn, format!("can't be read: {error}"));
                Tree::default()
            });
            for torn in found.between(&self.old, &self.new, self.command.deletes) {
                self.problem(Problem::Torn, torn);
            }
        }
    }

    fn check_claim(&mut self) {
        let wrong = self.compare();
        for wrong in wrong.bytes.into_iter().chain(wrong.attributes) {
            self.problem(Problem::Claimed, wrong);
        }
    }

    /// What differs between source and target.
    fn compare(&mut self) -> Wrong {
        match Tree::read(&self.sides.target) {
            Ok(found) => {
                self.report.hidden = found.hidden();
                found.after(&self.old, &self.new, &self.command)
            }
            Err(error) => Wrong {
                bytes: vec![format!("can't be read: {error}")],
                attributes: Vec::new(),
            },
        }
    }

    /// A client whose server lost its power may fail, but must not claim what isn't so.
    fn check_survivor(&mut self, mut survivor: Guard) {
        let start = Instant::now();
        let Some(status) = survivor.wait(PATIENCE).unwrap() else {
            let said = survivor.output();
            return self.problem(Problem::Ended, format!("it hangs on: {said:?}"));
        };
        let time = start.elapsed().as_millis();
        self.say(format!(
            "the client that lived ended {:?}, {time} ms",
            status.code()
        ));
        if status.success() {
            self.claimed = true;
            self.check_claim();
        }
    }

    /// The same command again, without a power cut.
    fn check_again(&mut self) {
        if self.round.work.task == Task::InPlace {
            return self.check_writer();
        }
        let start = Instant::now();
        let may_refuse = self.claimed && self.unrecorded && self.round.work.task == Task::Tree;
        let said = loop {
            let mut again = self.start(None);
            match again.wait(PATIENCE).unwrap().map(|status| status.code()) {
                None => break Some(format!("it hangs: {:?}", again.output())),
                Some(Some(0)) => break None,
                // It was told that the command will not know its own work again.
                Some(Some(6)) if may_refuse => break None,
                // A server that lives may still be at the end of the session before.
                Some(Some(12)) if start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Some(code) => break Some(format!("{code:?}: {:?}", again.output())),
            }
        };
        if let Some(said) = said {
            return self.problem(Problem::Ended, said);
        }
        let wrong = self.compare();
        for wrong in wrong.bytes {
            self.problem(Problem::Wrong, wrong);
        }
        for wrong in wrong.attributes {
            self.problem(Problem::Attributes, wrong);
        }
    }

    fn check_writer(&mut self) {
        let old = self.target();
        let Actor::Writer(writer) = self.act(old) else {
            return;
        };
        let record = writer.record();
        if record.outcome != Some(Ok(())) {
            self.problem(Problem::Ended, format!("{:?}", record.outcome));
        }
        let found = self.target();
        if let Some(problem) = record.problem(&found) {
            self.problem(Problem::Wrong, problem);
        }
    }
}
