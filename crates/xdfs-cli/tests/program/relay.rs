//! Files that a relay takes, and delivers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Place, Run, Running, Server, assert_content, content, names, program, xdfs};
use crate::third_party::CONNECTS;
use crate::unheard::{beneath, can_trace};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A relay and a target.
pub(crate) struct Scene {
    pub(crate) place: Place,
    pub(crate) relay: Server,
    pub(crate) target: Option<Server>,
    pub(crate) target_address: String,
}

fn start_relay(place: &Place, listen: &str, flags: &[&str]) -> Server {
    let spool = place.here("spool");
    Server::start_named(
        &[&["relay", "--spool", &spool, "--listen", listen], flags].concat(),
        |command| command,
    )
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(&CONNECTS)
    }

    pub(crate) fn with(flags: &[&str]) -> Self {
        Self::at(Place::new(), flags)
    }

    /// In a place where files for the flags may be.
    pub(crate) fn at(place: Place, flags: &[&str]) -> Self {
        let relay = start_relay(&place, "127.0.0.1:0", flags);
        let target = Server::start(&place.root());
        let target_address = target.addresses[0].clone();
        // The relay knows the servers that its user knows.
        xdfs(["ls", &target.url("/")]).ok();
        Self {
            place,
            relay,
            target: Some(target),
            target_address,
        }
    }

    pub(crate) fn relay_url(&self) -> String {
        self.relay.url("")
    }

    pub(crate) fn stop_target(&mut self) {
        self.target.as_mut().unwrap().running.kill();
        self.target = None;
    }

    pub(crate) fn start_target(&mut self) {
        let flags = ["--listen", &self.target_address];
        self.target = Some(Server::start_with(&self.place.root(), &flags));
    }

    pub(crate) fn restart_relay(&mut self) {
        self.relay.running.kill();
        let address = self.relay.addresses[0].clone();
        self.relay = start_relay(&self.place, &address, &CONNECTS);
    }

    fn command<'a>(&self, flags: &[&'a str], source: &'a str, to: &str) -> Vec<String> {
        let target = format!("xdfs://{}{to}", self.target_address);
        let via = self.relay_url();
        let mut words = vec!["cp".to_owned(), "--json".into(), "--via".into(), via];
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        words.extend([source.to_owned(), target]);
        words
    }

    pub(crate) fn cp(&self, flags: &[&str], source: &str, to: &str) -> Run {
        xdfs(self.command(flags, source, to))
    }

    pub(crate) fn status(&self, id: &str) -> Value {
        let run = xdfs(["status", "--json", id, &self.relay_url()]).ok();
        run.json().remove(0)
    }

    fn wait(&self, id: &str) -> Run {
        xdfs(["wait", "--json", id, &self.relay_url()])
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, id: &str, state: &str) -> Value {
        let mut last = Value::Null;
        let is_so = xdfs_testkit::wait::until(PATIENCE, || {
            last = self.status(id);
            last["state"] == state
        });
        assert!(is_so, "{last}");
        last
    }

    pub(crate) fn remote(&self, name: &str) -> PathBuf {
        self.place.remote(name)
    }
}

/// The identifier that a run has printed.
pub(crate) fn id_of(run: &Run) -> String {
    let records = run.json();
    let found = records.iter().find(|record| record["type"] == "detached");
    let found = found.unwrap_or_else(|| panic!("{run:?}"));
    found["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_file_is_delivered_by_a_relay() {
    let scene = Scene::new();
    let bytes = content(3, 5_000_001);
    let source = scene.place.make_here("big", &bytes);
    let id = id_of(&scene.cp(&["--wait"], &source, "/copy").ok());
    assert_content(scene.remote("copy"), &bytes);
    let status = scene.status(&id);
    assert_eq!(
        (&status["type"], &status["state"], &status["attempts"]),
        (&"parcel-status".into(), &"delivered".into(), &1.into())
    );
    assert_eq!(status["delivered"], bytes.len());
    assert_ne!(status["digest"], Value::Null);
    let time = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(time(scene.remote("copy")), time(source.into()));
    assert_eq!(names(scene.place.root()), ["copy"]);
    // Into a directory, and an empty file.
    fs::create_dir(scene.remote("dir")).unwrap();
    let empty = scene.place.make_here("empty", b"");
    scene.cp(&["--wait"], &empty, "/dir").ok();
    assert_content(scene.remote("dir/empty"), b"");
    // The spool has nothing of it any more.
    let segments = fs::read_dir(scene.place.here("spool/segments")).unwrap();
    let left: u64 = segments
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(left < 1_000_000, "{left}");
    // Without --json there is a line with the identifier.
    let url = format!("xdfs://{}/third", scene.target_address);
    let run = xdfs(["cp", "--via", &scene.relay_url(), &empty, &url]).ok();
    let id = run.text().lines().last().unwrap().to_owned();
    let line = xdfs(["wait", &id, &scene.relay_url()]).ok().text();
    assert!(line.starts_with("delivered: 0 B to xdfs://"), "{line}");
}

#[test]
fn the_source_may_go_while_the_target_is_down() {
    let mut scene = Scene::new();
    let bytes = content(4, 3_000_000);
    let source = scene.place.make_here("big", &bytes);
    scene.stop_target();
    let id = id_of(&scene.cp(&[], &source, "/copy").ok());
    fs::remove_file(&source).unwrap();
    let is_waiting = xdfs_testkit::wait::until(PATIENCE, || {
        let status = scene.status(&id);
        status["state"] == "held" && status["error"]["code"] == "connection-refused"
    });
    assert!(is_waiting, "{}", scene.status(&id));
    // The relay dies too, and knows it afterwards.
    scene.restart_relay();
    assert_eq!(scene.status(&id)["bytes"], bytes.len());
    scene.start_target();
    let began = Instant::now();
    scene.wait_for(&id, "delivered");
    eprintln!("delivered {:?} after the target was up", began.elapsed());
    assert_content(scene.remote("copy"), &bytes);
    assert_eq!(names(scene.place.root()), ["copy"]);
}

#[test]
fn the_same_identifier_is_one_delivery() {
    let mut scene = Scene::new();
    let bytes = content(5, 24_000_000);
    let source = scene.place.make_here("big", &bytes);
    let id = "00112233445566778899aabbccddeeff";
    // The client dies while the relay takes the file, and then the relay.
    let mut command = program();
    let flags = ["--parcel", id, "--limit-rate", "8M", "--retries=0"];
    command.args(scene.command(&flags, &source, "/copy"));
    let mut running = Running::start(&mut command);
    let has_begun = || scene_arrived(&scene, id) > 0;
    assert!(xdfs_testkit::wait::until(PATIENCE, has_begun));
    running.kill();
    scene.restart_relay();
    let before = scene.status(id);
    assert_eq!(before["state"], "arriving");
    let arrived = before["arrived"].as_u64().unwrap();
    assert!(arrived > 0 && arrived < bytes.len() as u64, "{before}");
    let run = scene.cp(&["--parcel", id], &source, "/copy").ok();
    let records = run.json();
    let file = records.iter().find(|record| record["type"] == "file");
    let resumed = file.unwrap()["resumed_bytes"].as_u64().unwrap();
    assert!(resumed >= arrived, "{resumed} {arrived}");
    scene.wait(id).ok();
    assert_content(scene.remote("copy"), &bytes);
    // Once more changes nothing, also if the receiver has taken the file away.
    fs::remove_file(scene.remote("copy")).unwrap();
    assert_eq!(
        id_of(&scene.cp(&["--parcel", id], &source, "/copy").ok()),
        id
    );
    assert_eq!(scene.status(id)["state"], "delivered");
    scene.restart_relay();
    assert_eq!(
        id_of(&scene.cp(&["--parcel", id], &source, "/copy").ok()),
        id
    );
    scene.wait(id).ok();
    assert_eq!(names(scene.place.root()), Vec::<String>::new());
    // Another file with the identifier is refused.
    let other = scene.place.make_here("other", b"other");
    scene
        .cp(&["--parcel", id], &other, "/copy")
        .fails(6, &["another parcel"]);
}

fn scene_arrived(scene: &Scene, id: &str) -> u64 {
    let run = xdfs(["status", "--json", id, &scene.relay_url()]);
    match run.code {
        Some(0) => run.json()[0]["arrived"].as_u64().unwrap(),
        _ => 0,
    }
}

/// The relay and the target are killed at any moment while files are delivered, each of which has
/// to come once: a receiver takes each away as soon as it is there, so that a second delivery
/// would show.
#[test]
fn whatever_is_killed_each_file_comes_once() {
    let mut scene = Scene::new();
    let rounds = std::env::var("XDFS_TEST_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap());
    fs::create_dir(scene.remote("in")).unwrap();
    let mut ids = Vec::new();
    let mut came = Vec::new();
    let mut sent = Vec::new();
    for round in 0..rounds {
        for at in 0..3_u64 {
            let name = format!("f{round}-{at}");
            let bytes = content(round * 10 + at, 200_000 + 1_500_000 * at as usize);
            let source = scene.place.make_here(&name, &bytes);
            let run = scene
                .cp(&["--retries=5"], &source, &format!("/in/{name}"))
                .ok();
            ids.push(id_of(&run));
            sent.push((name, bytes));
            take(&scene, &mut came, &sent);
        }
        match round % 3 {
            0 => scene.restart_relay(),
            1 => {
                scene.stop_target();
                take(&scene, &mut came, &sent);
                scene.start_target();
            }
            _ => {
                scene.stop_target();
                scene.restart_relay();
                scene.start_target();
            }
        }
        take(&scene, &mut came, &sent);
    }
    for id in &ids {
        scene.wait_for(id, "delivered");
        take(&scene, &mut came, &sent);
    }
    // Nothing comes after a start either.
    scene.restart_relay();
    let (name, bytes) = ("last".to_owned(), content(77, 1000));
    let source = scene.place.make_here(&name, &bytes);
    sent.push((name, bytes));
    scene.cp(&["--wait"], &source, "/in/last").ok();
    take(&scene, &mut came, &sent);
    came.sort();
    let mut expected: Vec<_> = sent.iter().map(|(name, _)| name.clone()).collect();
    expected.sort();
    assert_eq!(came, expected);
    assert_eq!(names(scene.remote("in")), Vec::<String>::new());
}

/// Takes away the files that are there, which have to be whole.
fn take(scene: &Scene, came: &mut Vec<String>, sent: &[(String, Vec<u8>)]) {
    for name in names(scene.remote("in")) {
        if name.starts_with('.') {
            continue;
        }
        let path = scene.remote("in").join(&name);
        let (_, bytes) = sent.iter().find(|(own, _)| *own == name).unwrap();
        assert_content(&path, bytes);
        fs::remove_file(path).unwrap();
        came.push(name);
    }
}

#[test]
fn what_can_not_be_delivered_is_given_up_and_put_back() {
    let scene = Scene::new();
    let source = scene.place.make_here("file", b"content");
    fs::write(scene.remote("taken"), b"old").unwrap();
    // It exists, and isn't to be replaced.
    let taken = format!("server {}: cannot rename '/taken'", scene.target_address);
    let run = scene.cp(&["--wait"], &source, "/taken").fails(6, &[&taken]);
    let id = id_of(&run);
    let dead = scene.status(&id);
    assert_eq!(
        (&dead["state"], &dead["error"]["code"]),
        (&"dead".into(), &"already-exists".into())
    );
    assert_eq!(names(scene.place.root()), ["taken"]);
    assert_eq!(fs::read(scene.remote("taken")).unwrap(), b"old");
    xdfs(["retry", &id, &scene.relay_url()]).ok();
    scene.wait(&id).fails(6, &[&taken]);
    fs::remove_file(scene.remote("taken")).unwrap();
    xdfs(["retry", &id, &scene.relay_url()]).ok();
    scene.wait(&id).ok();
    assert_content(scene.remote("taken"), b"content");
    xdfs(["retry", &id, &scene.relay_url()]).fails(2, &["delivered"]);
    // With --force it is replaced.
    let other = scene.place.make_here("other", b"new");
    scene.cp(&["--wait", "--force"], &other, "/taken").ok();
    assert_content(scene.remote("taken"), b"new");
    // There is no such directory, and a relay makes none.
    scene.cp(&["--wait"], &source, "/no/file").fails(4, &["no"]);
}

#[test]
fn a_parcel_is_cancelled_or_expires() {
    let mut scene = Scene::new();
    let source = scene.place.make_here("file", b"content");
    scene.stop_target();
    let id = id_of(&scene.cp(&[], &source, "/copy").ok());
    let other = id_of(&scene.cp(&["--expire", "1s"], &source, "/other").ok());
    xdfs(["cancel", &id, &scene.relay_url()]).ok();
    scene.wait(&id).fails(130, &["cancelled"]);
    scene
        .cp(&["--parcel", &id], &source, "/copy")
        .fails(130, &["cancelled"]);
    // It is looked at when it is due.
    scene.wait(&other).fails(11, &["within 1 s"]);
    scene.start_target();
    let third = scene.cp(&["--wait"], &source, "/third").ok();
    assert_eq!(names(scene.place.root()), ["third"]);
    assert_eq!(scene.status(&id_of(&third))["state"], "delivered");
}

#[test]
fn a_relay_takes_only_what_it_may_deliver() {
    let scene = Scene::with(&[]);
    let source = scene.place.make_here("file", b"content");
    scene.cp(&[], &source, "/copy").fails(5, &["--connect-to"]);
    let elsewhere = Scene::with(&["--connect-to", "127.0.0.9"]);
    let source = elsewhere.place.make_here("file", b"content");
    let run = elsewhere.cp(&[], &source, "/copy");
    run.fails(5, &["don't allow connections", "--connect-to"]);
    assert_eq!(names(elsewhere.place.root()), Vec::<String>::new());
    // It serves nothing else, and other servers are no relays.
    let url = elsewhere.relay.url("/file");
    xdfs(["cp", &source, &url]).fails(5, &[]);
    let scene = Scene::new();
    let target = scene.target.as_ref().unwrap();
    let to = target.url("/x");
    xdfs(["cp", "--via", &target.url(""), &source, &to]).fails(14, &["no relay"]);
    // A server that the relay doesn't know.
    let unknown = Server::start(&scene.place.root());
    let run = xdfs([
        "cp",
        "--wait",
        "--via",
        &scene.relay_url(),
        &source,
        &unknown.url("/x"),
    ]);
    run.fails(17, &[]);
    let user = format!("xdfs://bob@{}/x", scene.target_address);
    xdfs(["cp", "--via", &scene.relay_url(), &source, &user]).fails(2, &["by itself"]);
    let here = scene.place.here("y");
    xdfs(["cp", "--via", &scene.relay_url(), &source, &here]).fails(2, &["no URL"]);
    // One process has the spool.
    let spool = scene.place.here("spool");
    xdfs(["relay", "--listen", "127.0.0.1:0", "--spool", &spool]).fails(12, &["another process"]);
}

#[test]
fn a_full_spool_holds_the_sender_back() {
    let mut scene = Scene::with(&[CONNECTS[0], CONNECTS[1], "--spool-max", "1000000"]);
    scene.stop_target();
    let source = scene.place.make_here("file", &content(1, 600_000));
    let first = id_of(&scene.cp(&[], &source, "/first").ok());
    scene
        .cp(&["--retries=0"], &source, "/second")
        .fails(7, &["parcels may take"]);
    scene.start_target();
    scene.wait(&first).ok();
    scene.cp(&["--wait"], &source, "/second").ok();
    assert_content(scene.remote("second"), &content(1, 600_000));
}

/// Whether a thread of a process is in one of the calls that rename.
fn renames(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let calls = threads.into_iter().flatten().flatten();
    let mut calls =
        calls.filter_map(|thread| fs::read_to_string(thread.path().join("syscall")).ok());
    let numbers: &[&str] = match cfg!(target_arch = "x86_64") {
        true => &["82", "264", "316"],
        // Of all newer processors.
        false => &["38", "276"],
    };
    calls.any(|call| {
        let number = call.split(' ').next().unwrap_or_default();
        numbers.contains(&number)
    })
}

/// The names that relays have left in a directory, of files that are whole.
fn hidden(dir: &Path) -> Vec<String> {
    let mut all = names(dir);
    all.retain(|name| {
        let mark = name.strip_prefix(".xdfs-parcel-");
        mark.is_some_and(|mark| mark.len() == 32)
    });
    all
}

/// Relay and target die in the moment before the file gets its name, and then the disk of the
/// target isn't mounted.
#[test]
fn a_file_whose_directory_is_away_is_not_taken_for_delivered() {
    if !can_trace() {
        return;
    }
    let mut scene = Scene::new();
    fs::create_dir(scene.remote("in")).unwrap();
    let bytes = content(6, 500_000);
    let source = scene.place.make_here("file", &bytes);
    scene.stop_target();
    let flags = ["--listen", &scene.target_address];
    let slow = |command: Command| {
        let mut strace = Command::new("strace");
        strace.args([
            "-D",
            "-f",
            "-o",
            "/dev/null",
            "-e",
            "trace=rename,renameat,renameat2",
        ]);
        strace.args(["-e", "inject=rename,renameat,renameat2:delay_enter=5000000"]);
        beneath(strace, &command)
    };
    let target = Server::start_as(&scene.place.root(), &flags, slow);
    let process = target.running.id();
    scene.target = Some(target);
    let id = id_of(&scene.cp(&[], &source, "/in/file").ok());
    // It has got the hidden name by a rename, too, whose end is seen for a moment.
    let mut seen = 0;
    let is_placed = || {
        let is_so = !hidden(&scene.remote("in")).is_empty() && renames(process);
        seen = if is_so { seen + 1 } else { 0 };
        seen > 50
    };
    assert!(xdfs_testkit::wait::until(PATIENCE, is_placed));
    scene.stop_target();
    scene.restart_relay();
    assert_eq!(hidden(&scene.remote("in")).len(), 1);
    fs::rename(scene.remote("in"), scene.remote("away")).unwrap();
    fs::create_dir(scene.remote("in")).unwrap();
    scene.start_target();
    let waits = || {
        let status = scene.status(&id);
        assert_eq!(names(scene.remote("in")), Vec::<String>::new());
        status["state"] != "delivered" && status["error"]["code"] == "not-found"
    };
    assert!(
        xdfs_testkit::wait::until(PATIENCE, waits),
        "{}",
        scene.status(&id)
    );
    fs::remove_dir(scene.remote("in")).unwrap();
    fs::rename(scene.remote("away"), scene.remote("in")).unwrap();
    scene.wait(&id).ok();
    assert_content(scene.remote("in/file"), &bytes);
    assert_eq!(names(scene.remote("in")), ["file"]);
}

#[test]
fn a_cancellation_survives_a_kill() {
    let mut scene = Scene::new();
    let source = scene.place.make_here("file", &content(7, 100_000));
    scene.target.as_ref().unwrap().running.signal("STOP");
    let id = id_of(&scene.cp(&[], &source, "/file").ok());
    scene.wait_for(&id, "delivering");
    xdfs(["cancel", &id, &scene.relay_url()]).ok();
    scene.restart_relay();
    scene.target.as_ref().unwrap().running.signal("CONT");
    scene.wait(&id).fails(130, &["cancelled"]);
    assert_eq!(names(scene.place.root()), Vec::<String>::new());
    // One who waits hears of it.
    scene.stop_target();
    let other = "0123456789abcdef0123456789abcdef";
    let mut command = program();
    command.args(scene.command(&["--wait", "--parcel", other], &source, "/file"));
    let mut waiting = Running::start(&mut command);
    let is_held = || {
        let run = xdfs(["status", "--json", other, &scene.relay_url()]);
        run.code == Some(0) && run.json()[0]["state"] == "held"
    };
    assert!(xdfs_testkit::wait::until(PATIENCE, is_held));
    xdfs(["cancel", other, &scene.relay_url()]).ok();
    waiting.wait().fails(130, &["cancelled"]);
}

#[test]
fn a_file_that_never_arrived_is_not_taken() {
    let scene = Scene::new();
    let source = scene.place.make_here("file", &content(8, 24_000_000));
    let id = "fedcba9876543210fedcba9876543210";
    let mut command = program();
    let flags = ["--parcel", id, "--expire", "9s", "--limit-rate", "1M"];
    command.args(scene.command(&flags, &source, "/file"));
    let mut running = Running::start(&mut command);
    assert!(xdfs_testkit::wait::until(PATIENCE, || scene_arrived(
        &scene, id
    ) > 0));
    // A part of it is at the target already.
    let is_there = || !names(scene.place.root()).is_empty();
    assert!(xdfs_testkit::wait::until(PATIENCE, is_there));
    running.kill();
    // The relay looks once a minute.
    let is_over = || scene.status(id)["state"] == "cancelled";
    assert!(xdfs_testkit::wait::until(3 * PATIENCE, is_over));
    scene
        .cp(&["--parcel", id, "--expire", "9s"], &source, "/file")
        .fails(130, &["cancelled"]);
    xdfs(["retry", id, &scene.relay_url()]).fails(2, &["cancelled"]);
    assert_eq!(names(scene.place.root()), Vec::<String>::new());
}

#[test]
fn a_target_is_known_by_its_name() {
    let scene = Scene::with(&["--connect-to", "localhost", "--connect-to", "127.0.0.1"]);
    let source = scene.place.make_here("file", b"content");
    let (_, port) = scene.target_address.rsplit_once(':').unwrap();
    let url = format!("xdfs://localhost:{port}/file");
    let words = ["cp", "--wait", "--via", &scene.relay_url(), &source, &url];
    let unknown = format!("localhost:{port}");
    xdfs(words).fails(17, &["trust add", &unknown]);
    xdfs(["ls", &format!("xdfs://localhost:{port}/")]).ok();
    xdfs(words).ok();
    assert_content(scene.remote("file"), b"content");
}
