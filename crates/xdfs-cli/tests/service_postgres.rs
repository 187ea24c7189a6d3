//! Services that share a database of PostgreSQL: whichever process is killed, and when the database
//! itself is, every job ends as it should, once.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use xdfs_service::{JobDetail, JobId, ServiceClient, StateName};
use xdfs_testkit::postgres::Postgres;
use xdfs_testkit::process::Guard;
use xdfs_testkit::tree::{TempTree, first_difference};
use xdfs_testkit::{skip, wait};

const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of a copy, and the rate at which it is done.
const SIZE: u64 = 12_000_000;
const RATE: &str = "2M";
const FILES: u64 = 6;
/// Seconds of a lease.
const LEASE: &str = "3";

/// Rounds of kills; more by hand.
fn rounds() -> usize {
    let set = std::env::var("XDFS_TEST_ROUNDS").ok();
    set.map_or(3, |rounds| rounds.parse().unwrap())
}

/// A server, a database, and places for services.
struct Scene {
    tree: TempTree,
    _server: Guard,
    url: String,
    database: Postgres,
    database_url: String,
}

/// A running service.
struct Running {
    guard: Guard,
    data: PathBuf,
}

impl Scene {
    /// `None` if PostgreSQL isn't installed.
    fn new(seed: u64) -> Option<Self> {
        let database = Postgres::start().unwrap()?;
        let database_url = database.create("jobs").unwrap();
        let tree = TempTree::new(seed).unwrap();
        for folder in ["root", "here", "keys", "here/tree"] {
            std::fs::create_dir(tree.join(folder)).unwrap();
        }
        tree.file("here/file", SIZE).unwrap();
        for number in 0..FILES {
            tree.file(&format!("here/tree/{number}"), SIZE / FILES)
                .unwrap();
        }
        let root = tree.join("root");
        let mut command = program(&tree);
        command.args(["serve", "--listen", "127.0.0.1:0", "--root"]);
        let server = Guard::spawn(command.arg(root)).unwrap();
        let address = server.line(PATIENCE, |line| {
            line.strip_prefix("listening on ").map(str::to_owned)
        });
        let url = format!("xdfs://{}", address.unwrap());
        // From now on it is known, and there is a key.
        let known = program(&tree).arg("ls").arg(format!("{url}/")).output();
        assert!(known.unwrap().status.success());
        Some(Self {
            tree,
            _server: server,
            url,
            database,
            database_url,
        })
    }

    /// Starts a service with a folder of this name, and waits until it listens.
    fn service(&self, name: &str) -> Running {
        let data = self.tree.join(name);
        let mut command = program(&self.tree);
        command.args(["service", "--listen", "127.0.0.1:0", "--lease", LEASE]);
        command.env("XDFS_SERVICE_DATABASE", &self.database_url);
        command.arg("--journals").arg(self.tree.join("journals"));
        let guard = Guard::spawn(command.arg("--data").arg(&data)).unwrap();
        let link = guard.line(PATIENCE, |line| line.starts_with("open ").then_some(()));
        assert!(link.is_some(), "{:?}", guard.output());
        Running { guard, data }
    }

    /// Submits the copies of a file and of a tree.
    fn submit(&self, service: &Running, name: &str) -> [JobId; 2] {
        let submit = |words: &[&str], source: &str, target: &str| {
            let mut command = program(&self.tree);
            command.arg("submit").arg("--data").arg(&service.data);
            command.args(["--limit-rate", RATE]).args(words);
            command.arg(self.tree.join(source));
            let run = command
                .arg(format!("{}/{target}", self.url))
                .output()
                .unwrap();
            assert!(run.status.success(), "{run:?}");
            String::from_utf8(run.stdout)
                .unwrap()
                .trim()
                .parse()
                .unwrap()
        };
        [
            submit(&[], "here/file", &format!("file{name}")),
            submit(&["-r"], "here/tree", &format!("tree{name}")),
        ]
    }

    /// Checks that the jobs have ended, each once, with the same bytes at the target.
    #[track_caller]
    fn check(&self, service: &Running, jobs: [JobId; 2], name: &str) {
        for id in jobs {
            let ended = service.until(id, |detail| detail.job.state.is_end());
            assert_eq!(ended.job.state, StateName::Succeeded, "{ended:#?}");
            let ends = ended.transitions.iter().filter(|one| one.to.is_end());
            assert_eq!(ends.count(), 1, "{ended:#?}");
        }
        let mut files = vec![("here/file".to_owned(), format!("root/file{name}"))];
        files.extend((0..FILES).map(|number| {
            (
                format!("here/tree/{number}"),
                format!("root/tree{name}/{number}"),
            )
        }));
        for (source, target) in files {
            let target = self.tree.join(target);
            let difference = first_difference(&self.tree.join(source), &target);
            assert!(difference.unwrap().is_none(), "{}", target.display());
        }
        let (file, tree) = (format!("root/file{name}"), format!("root/tree{name}"));
        let copied = std::fs::read_dir(self.tree.join(&tree));
        assert_eq!(copied.unwrap().count() as u64, FILES);
        // Many rounds need no more room than one.
        std::fs::remove_file(self.tree.join(file)).unwrap();
        std::fs::remove_dir_all(self.tree.join(tree)).unwrap();
    }
}

impl Running {
    fn job(&self, id: JobId) -> Option<JobDetail> {
        let client = ServiceClient::new(&self.data, None);
        client.ok()?.job(id).ok()
    }

    /// Waits until the job is as expected. The database may be away meanwhile.
    #[track_caller]
    fn until(&self, id: JobId, expected: impl Fn(&JobDetail) -> bool) -> JobDetail {
        let mut last = None;
        let came = wait::until(PATIENCE, || {
            last = self.job(id).or_else(|| last.take());
            last.as_ref().is_some_and(&expected)
        });
        assert!(came, "{last:#?} {:?}", self.guard.output());
        last.unwrap()
    }
}

fn program(tree: &TempTree) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    command
        .env("NO_COLOR", "1")
        .env("XDFS_CONFIG_DIR", tree.join("keys"));
    command
}

/// The id of the process whose worker took the job last.
fn process(detail: &JobDetail) -> Option<u32> {
    let mut actors = detail.transitions.iter().rev();
    let worker = actors.find_map(|one| one.actor.strip_prefix("worker "))?;
    worker.split_once('-')?.0.parse().ok()
}

#[test]
fn the_jobs_of_a_killed_service_are_those_of_another_one() {
    let Some(scene) = Scene::new(1) else {
        return skip::test("PostgreSQL isn't installed");
    };
    let mut services = [scene.service("a"), scene.service("b")];
    for round in 0..rounds() {
        let name = round.to_string();
        let jobs = scene.submit(&services[round % 2], &name);
        let followed = jobs[round % 2];
        // In the middle of it.
        let running = services[0].until(followed, |detail| {
            detail.job.state == StateName::Running && detail.job.counts.bytes > SIZE / 4
        });
        let killed = process(&running).unwrap();
        let index = services
            .iter()
            .position(|service| service.guard.id() == killed)
            .unwrap();
        services[index].guard.kill().unwrap();
        scene.check(&services[1 - index], jobs, &name);
        let ended = services[1 - index].job(followed).unwrap();
        let reasons = ended.transitions.iter().map(|one| one.reason.as_str());
        assert!(
            reasons
                .into_iter()
                .any(|reason| reason.contains("had ended")),
            "{ended:#?}"
        );
        services[index] = scene.service(["a", "b"][index]);
    }
}

#[test]
fn jobs_outlive_a_crash_of_the_database() {
    let Some(mut scene) = Scene::new(2) else {
        return skip::test("PostgreSQL isn't installed");
    };
    let services = [scene.service("a"), scene.service("b")];
    for round in 0..rounds() {
        let name = round.to_string();
        let jobs = scene.submit(&services[0], &name);
        let least = SIZE / 4 * (round as u64 % 4);
        services[1].until(jobs[0], |detail| {
            detail.job.state.is_end() || detail.job.counts.bytes >= least
        });
        scene.database.crash().unwrap();
        scene.database.start_again().unwrap();
        scene.check(&services[round % 2], jobs, &name);
    }
}

#[test]
fn a_password_is_not_for_the_command_line() {
    let tree = TempTree::new(3).unwrap();
    let file = tree.join("url");
    std::fs::write(&file, "postgres://me:secret@127.0.0.1:1/jobs\n").unwrap();
    let run = |words: &[&str]| {
        let mut command = program(&tree);
        command
            .arg("service")
            .args(words)
            .arg("--data")
            .arg(tree.join("data"));
        let run = command.output().unwrap();
        assert!(!run.status.success());
        let text = String::from_utf8(run.stderr).unwrap();
        assert!(!text.contains("secret"), "{text}");
        text
    };
    let refused = run(&["--database", "postgres://me:secret@127.0.0.1:1/jobs"]);
    assert!(refused.contains("--database-file"), "{refused}");
    // A file that others can read is no better.
    let file = file.to_str().unwrap();
    let set = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(file, mode).unwrap();
    };
    set(0o644);
    let refused = run(&["--database-file", file]);
    assert!(refused.contains(file), "{refused}");
    set(0o600);
    let tried = run(&["--database-file", file]);
    assert!(tried.contains("postgres://me@127.0.0.1:1/jobs"), "{tried}");
    let refused = run(&["backup", "--database-file", file, "copy"]);
    assert!(refused.contains("pg_dump"), "{refused}");
}
