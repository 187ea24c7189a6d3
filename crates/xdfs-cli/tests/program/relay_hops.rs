//! Files that go by several relays.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use xdfs_testkit::tree::Random;
use xdfs_testkit::wait::until;

use crate::relay::{PATIENCE, id_of};
use crate::support::{Place, Run, Running, Server, assert_content, content, names, program, xdfs};
use crate::third_party::CONNECTS;

/// A server that is killed and started again at its address.
pub(crate) struct Hop {
    words: Vec<String>,
    pub(crate) address: String,
    pub(crate) server: Option<Server>,
}

impl Hop {
    fn new(words: &[&str]) -> Self {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let listen = ["--listen".to_owned(), "127.0.0.1:0".to_owned()];
        let server = Server::start_named(&[&words[..], &listen].concat(), |command| command);
        // All processes of the test know it.
        xdfs(["ls", &server.url("/")]).ok();
        Self {
            words,
            address: server.addresses[0].clone(),
            server: Some(server),
        }
    }

    pub(crate) fn relay(place: &Place, name: &str, flags: &[&str]) -> Self {
        let spool = place.here(name);
        Self::new(&[&["relay", "--spool", &spool], flags].concat())
    }

    pub(crate) fn target(place: &Place, name: &str) -> Self {
        let root = place.here(name);
        fs::create_dir_all(&root).unwrap();
        Self::new(&["serve", "--root", &root])
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("xdfs://{}{path}", self.address)
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.running.kill();
        }
    }

    pub(crate) fn start(&mut self) {
        let listen = ["--listen".to_owned(), self.address.clone()];
        let words = [&self.words[..], &listen].concat();
        self.server = Some(Server::start_named(&words, |command| command));
    }

    pub(crate) fn restart(&mut self) {
        self.stop();
        self.start();
    }

    pub(crate) fn signal(&self, name: &str) {
        self.server.as_ref().unwrap().running.signal(name);
    }
}

/// The status of a file at a relay.
pub(crate) fn status(relay: &Hop, id: &str) -> Option<Value> {
    let run = xdfs(["status", "--json", id, &relay.url("")]);
    (run.code == Some(0)).then(|| run.json().remove(0))
}

/// Waits until the status of a file is so.
#[track_caller]
pub(crate) fn wait_for(relay: &Hop, id: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
    let mut last = None;
    let was_so = until(PATIENCE, || {
        last = status(relay, id);
        last.as_ref().is_some_and(&mut is_so)
    });
    assert!(was_so, "{last:?}");
    last.unwrap()
}

/// Two relays and a target.
pub(crate) struct Line {
    pub(crate) place: Place,
    pub(crate) first: Hop,
    pub(crate) second: Hop,
    pub(crate) target: Hop,
}

impl Line {
    pub(crate) fn new() -> Self {
        let place = Place::new();
        Self {
            first: Hop::relay(&place, "first", &CONNECTS),
            second: Hop::relay(&place, "second", &CONNECTS),
            target: Hop::target(&place, "target"),
            place,
        }
    }

    fn via(&self) -> String {
        format!("{},{}", self.first.address, self.second.address)
    }

    pub(crate) fn words(&self, flags: &[&str], source: &str, to: &str) -> Vec<String> {
        let mut words = vec!["cp".to_owned(), "--json".into(), "--via".into(), self.via()];
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        words.extend([source.to_owned(), self.target.url(to)]);
        words
    }

    pub(crate) fn cp(&self, flags: &[&str], source: &str, to: &str) -> Run {
        xdfs(self.words(flags, source, to))
    }

    pub(crate) fn remote(&self, name: &str) -> PathBuf {
        PathBuf::from(self.place.here("target")).join(name)
    }

    /// Bytes in the segments of a relay.
    pub(crate) fn spooled(&self, relay: &str) -> u64 {
        let segments = fs::read_dir(self.place.here(relay) + "/segments").unwrap();
        let sizes = segments.map(|entry| entry.unwrap().metadata().map_or(0, |meta| meta.len()));
        sizes.sum()
    }

    /// Waits until the second relay has a file, and the first one knows that.
    #[track_caller]
    fn wait_for_second(&self, id: &str) -> Value {
        wait_for(&self.first, id, |status| {
            status["holder"] == self.second.url("")
        })
    }
}

#[test]
fn a_file_goes_by_two_relays() {
    let line = Line::new();
    let bytes = content(3, 5_000_001);
    let source = line.place.make_here("big", &bytes);
    let id = id_of(&line.cp(&["--wait"], &source, "/copy").ok());
    assert_content(line.remote("copy"), &bytes);
    assert_eq!(names(line.remote("")), ["copy"]);
    let at_first = status(&line.first, &id).unwrap();
    assert_eq!(at_first["state"], "delivered");
    assert_eq!(at_first["delivered"], bytes.len());
    assert_ne!(at_first["digest"], Value::Null);
    let time = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(time(line.remote("copy")), time(source.into()));
    // Neither has anything of it any more.
    for relay in ["first", "second"] {
        assert!(
            until(PATIENCE, || line.spooled(relay) < 1_000_000),
            "{relay}"
        );
    }
    // An empty file, into a directory.
    fs::create_dir(line.remote("dir")).unwrap();
    let empty = line.place.make_here("empty", b"");
    line.cp(&["--wait"], &empty, "/dir/").ok();
    assert_content(line.remote("dir/empty"), b"");
    // One identifier is one file, also if the receiver has taken it away.
    fs::remove_file(line.remote("copy")).unwrap();
    let source = line.place.here("big");
    line.cp(&["--wait", "--parcel", &id], &source, "/copy").ok();
    assert_eq!(names(line.remote("")), ["dir"]);
}

#[test]
fn each_hop_may_go_once_the_next_one_has_the_file() {
    let mut line = Line::new();
    let bytes = content(4, 3_000_000);
    let source = line.place.make_here("big", &bytes);
    line.target.stop();
    line.second.stop();
    let id = id_of(&line.cp(&[], &source, "/copy").ok());
    fs::remove_file(&source).unwrap();
    let held = wait_for(&line.first, &id, |status| {
        status["state"] == "held" && status["error"]["code"] == "connection-refused"
    });
    assert_eq!(held["holder"], Value::Null);
    line.second.start();
    line.wait_for_second(&id);
    assert!(line.spooled("first") < 1_000_000, "it was removed behind");
    // The first one says what the second one knows of the target.
    let waits = wait_for(&line.first, &id, |status| {
        status["error"]["code"] == "connection-refused"
    });
    assert_eq!(waits["state"], "held");
    let text = xdfs(["status", &id, &line.first.url("")]).ok().text();
    assert!(
        text.contains(&format!(" at {} to ", line.second.url(""))),
        "{text}"
    );
    line.first.stop();
    line.target.start();
    assert!(until(PATIENCE, || line.remote("copy").exists()));
    assert_content(line.remote("copy"), &bytes);
    line.first.start();
    let run = xdfs(["wait", "--json", &id, &line.first.url("")]).ok();
    assert_eq!(run.json()[0]["state"], "delivered");
    assert_eq!(names(line.remote("")), ["copy"]);
}

#[test]
fn a_loop_of_relays_ends() {
    let line = Line::new();
    let source = line.place.make_here("file", b"content");
    let via = format!("{},{}", line.via(), line.first.address);
    let to = line.target.url("/file");
    let run = xdfs(["cp", "--wait", "--via", &via, &source, &to]);
    run.fails(2, &["has passed this relay already"]);
    // Straight back to itself.
    let via = format!("{0},{0}", line.first.address);
    let run = xdfs(["cp", "--wait", "--via", &via, &source, &to]);
    run.fails(2, &["has passed this relay already"]);
    let long = [line.first.address.as_str(); 9].join(",");
    xdfs(["cp", "--via", &long, &source, &to]).fails(2, &["8 relays"]);
    assert_eq!(names(line.remote("")), Vec::<String>::new());
}

#[test]
fn a_cancellation_reaches_the_hop_that_has_the_file() {
    let mut line = Line::new();
    let source = line.place.make_here("file", &content(5, 100_000));
    line.target.stop();
    let id = id_of(&line.cp(&[], &source, "/copy").ok());
    line.wait_for_second(&id);
    // It survives that the first one dies, while the second one can't be reached.
    line.second.stop();
    xdfs(["cancel", &id, &line.first.url("")]).ok();
    line.first.restart();
    line.second.start();
    xdfs(["wait", &id, &line.first.url("")]).fails(130, &["cancelled"]);
    line.target.start();
    let other = line.place.make_here("other", b"other");
    line.cp(&["--wait"], &other, "/other").ok();
    assert_eq!(names(line.remote("")), ["other"]);
    for relay in ["first", "second"] {
        assert!(until(PATIENCE, || line.spooled(relay) == 0), "{relay}");
    }
}

#[test]
fn what_was_given_up_at_another_hop_is_put_back_from_the_first() {
    let line = Line::new();
    let source = line.place.make_here("file", b"content");
    fs::write(line.remote("taken"), b"old").unwrap();
    let why = format!("server {}: cannot rename '/taken'", line.target.address);
    let run = line.cp(&["--wait"], &source, "/taken").fails(6, &[&why]);
    let id = id_of(&run);
    let dead = status(&line.first, &id).unwrap();
    assert_eq!(
        (&dead["state"], &dead["holder"]),
        (&"dead".into(), &line.second.url("").into())
    );
    let wait = || xdfs(["wait", &id, &line.first.url("")]);
    xdfs(["retry", &id, &line.first.url("")]).ok();
    wait().fails(6, &[&why]);
    fs::remove_file(line.remote("taken")).unwrap();
    xdfs(["retry", &id, &line.first.url("")]).ok();
    wait().ok();
    assert_content(line.remote("taken"), b"content");
    // A hop that may not connect to the next one says so at once, or to who sent it.
    let closed = Hop::relay(&line.place, "closed", &["--connect-to", "127.0.0.9"]);
    let to = line.target.url("/x");
    let via = format!("{},{}", line.first.address, closed.address);
    let run = xdfs(["cp", "--wait", "--via", &via, &source, &to]);
    run.fails(5, &[&closed.address, "don't allow connections"]);
    let via = format!("{},{}", closed.address, line.first.address);
    let run = xdfs(["cp", "--via", &via, &source, &to]);
    run.fails(5, &["don't allow connections"]);
    let via = format!("{},{}", line.first.address, line.target.address);
    let run = xdfs(["cp", "--wait", "--via", &via, &source, &to]);
    run.fails(14, &["no relay"]);
}

/// One file goes by two relays, while one of them or the target is killed at any moment. The
/// receiver takes the file away as soon as it is there, so that a second delivery would show.
#[test]
fn kills_of_hops() {
    let rounds = std::env::var("XDFS_TEST_ROUNDS").map_or(10, |rounds| rounds.parse().unwrap());
    let seed = std::process::id().into();
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    let mut line = Line::new();
    fs::create_dir(line.remote("in")).unwrap();
    let bytes = content(6, 24_000_000);
    let source = line.place.make_here("big", &bytes);
    let mut came = 0;
    let mut take = |line: &Line| {
        for name in names(line.remote("in")) {
            if name == "big" {
                let path = line.remote("in/big");
                assert_content(&path, &bytes);
                fs::remove_file(path).unwrap();
                came += 1;
            }
        }
    };
    let id = "0123456789abcdef0123456789abcdef";
    let leave = |line: &Line| {
        let mut command = program();
        let flags = ["--parcel", id, "--retries=1000", "--limit-rate", "20M"];
        command.args(line.words(&flags, &source, "/in/"));
        Running::start(&mut command)
    };
    let mut client = leave(&line);
    for _ in 0..rounds {
        thread::sleep(Duration::from_millis(random.below(400)));
        take(&line);
        match random.below(4) {
            0 => line.first.restart(),
            1 => line.second.restart(),
            2 => line.target.restart(),
            _ => {
                client.kill();
                client = leave(&line);
            }
        }
        take(&line);
    }
    let is_left = until(PATIENCE, || {
        take(&line);
        if client.has_ended() {
            let is_left = client.wait().code == Some(0);
            if !is_left {
                client = leave(&line);
            }
            return is_left;
        }
        false
    });
    assert!(is_left, "{:?}", client.wait());
    wait_for(&line.first, id, |status| {
        take(&line);
        status["state"] == "delivered"
    });
    take(&line);
    // Nothing comes after a start either.
    line.first.restart();
    line.second.restart();
    let last = line.place.make_here("last", b"last");
    line.cp(&["--wait"], &last, "/in/").ok();
    take(&line);
    assert_eq!(came, 1);
    assert_eq!(names(line.remote("in")), ["last"]);
}

/// Targets that take nothing, with more files each than are sent to one at the same time, hold no
/// other one up.
#[test]
fn slow_targets_hold_no_other_up() {
    let place = Place::new();
    let relay = Hop::relay(&place, "spool", &CONNECTS);
    let source = place.make_here("file", &content(7, 300_000));
    let slow: Vec<_> = (0..4)
        .map(|at| Hop::target(&place, &format!("slow{at}")))
        .collect();
    let quick = Hop::target(&place, "quick");
    let cp = |flags: &[&str], to: &str| {
        let words = ["cp", "--json", "--via", &relay.address];
        id_of(&xdfs([&words, flags, &[&source, to]].concat()).ok())
    };
    let mut ids = Vec::new();
    for slow in &slow {
        slow.signal("STOP");
        ids.extend((0..5).map(|at| cp(&[], &slow.url(&format!("/{at}")))));
    }
    cp(&["--wait"], &quick.url("/file"));
    assert_content(
        PathBuf::from(place.here("quick")).join("file"),
        &content(7, 300_000),
    );
    let is_waiting = |id: &String| status(&relay, id).unwrap()["state"] != "delivered";
    assert!(ids.iter().all(is_waiting));
    slow.iter().for_each(|slow| slow.signal("CONT"));
    for id in &ids {
        xdfs(["wait", id, &relay.url("")]).ok();
    }
    for at in 0..4 {
        let root = PathBuf::from(place.here(&format!("slow{at}")));
        assert_eq!(names(root), ["0", "1", "2", "3", "4"]);
    }
}

/// A file that is damaged in the spool isn't tried again and again.
#[test]
fn a_damaged_file_is_given_up() {
    let place = Place::new();
    let relay = Hop::relay(&place, "spool", &CONNECTS);
    let mut target = Hop::target(&place, "target");
    let source = place.make_here("file", &content(8, 500_000));
    target.stop();
    let words = ["cp", "--json", "--via", &relay.address, &source];
    let id = id_of(&xdfs([&words[..], &[&target.url("/file")]].concat()).ok());
    for entry in fs::read_dir(place.here("spool") + "/segments").unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    target.start();
    xdfs(["wait", &id, &relay.url("")]).fails(15, &["is damaged"]);
    assert_eq!(status(&relay, &id).unwrap()["state"], "dead");
}
