//! One file that goes by a relay to several targets.

use std::fs;
use std::path::PathBuf;

use xdfs_testkit::wait::until;

use crate::relay::PATIENCE;
use crate::relay_hops::{Hop, status, wait_for};
use crate::support::{Place, Run, assert_content, content, names, xdfs};
use crate::third_party::CONNECTS;

/// A relay, maybe a second one, and three targets.
struct Star {
    place: Place,
    relays: Vec<Hop>,
    targets: Vec<Hop>,
}

impl Star {
    fn new(relays: &[&str]) -> Self {
        let place = Place::new();
        let relays = relays
            .iter()
            .map(|name| Hop::relay(&place, name, &CONNECTS));
        let targets = ["a", "b", "c"].map(|name| Hop::target(&place, name));
        Self {
            relays: relays.collect(),
            targets: targets.into(),
            place,
        }
    }

    fn cp(&self, flags: &[&str], source: &str) -> Run {
        let via: Vec<_> = self.relays.iter().map(|relay| &*relay.address).collect();
        let [a, b, c] = [0, 1, 2].map(|at| self.targets[at].url("/copy"));
        let (via, also) = (via.join(","), "--also-to");
        let words = [
            "cp", "--json", "--via", &via, source, &a, also, &b, also, &c,
        ];
        xdfs([&words[..], flags].concat())
    }

    fn copy(&self, target: &str) -> PathBuf {
        PathBuf::from(self.place.here(target)).join("copy")
    }

    fn spooled(&self, relay: &str) -> u64 {
        let segments = fs::read_dir(self.place.here(relay) + "/segments").unwrap();
        let sizes = segments.map(|entry| entry.unwrap().metadata().map_or(0, |meta| meta.len()));
        sizes.sum()
    }
}

/// The identifiers that a run has printed, in the order of the targets.
fn ids_of(run: &Run) -> Vec<String> {
    let records = run.json();
    let found = records.iter().filter(|record| record["type"] == "detached");
    let ids = found.map(|record| record["id"].as_str().unwrap().to_owned());
    ids.collect()
}

#[test]
fn each_target_gets_the_file_by_itself() {
    let mut star = Star::new(&["spool"]);
    let bytes = content(3, 4_000_000);
    let source = star.place.make_here("file", &bytes);
    // One is down, and one takes nothing.
    star.targets[2].stop();
    star.targets[1].signal("STOP");
    let run = star.cp(&[], &source).ok();
    let sent = run.json();
    let files = sent.iter().filter(|record| record["type"] == "file");
    assert_eq!(files.count(), 1, "it is sent once");
    let ids = ids_of(&run);
    assert_eq!(ids.len(), 3);
    fs::remove_file(&source).unwrap();
    let relay = star.relays[0].url("");
    xdfs(["wait", &ids[0], &relay]).ok();
    assert_content(star.copy("a"), &bytes);
    assert_ne!(
        status(&star.relays[0], &ids[1]).unwrap()["state"],
        "delivered"
    );
    star.targets[1].signal("CONT");
    xdfs(["wait", &ids[1], &relay]).ok();
    assert_content(star.copy("b"), &bytes);
    // It is there for the late one, also after a kill, and stored once.
    star.relays[0].restart();
    let stored = star.spooled("spool");
    assert!((4_000_000..5_000_000).contains(&stored), "{stored}");
    star.targets[2].start();
    xdfs(["wait", &ids[2], &relay]).ok();
    assert_content(star.copy("c"), &bytes);
    assert!(until(PATIENCE, || star.spooled("spool") < 1_000_000));
}

#[test]
fn one_target_is_cancelled_or_given_up_without_the_others() {
    let mut star = Star::new(&["spool"]);
    let bytes = content(4, 300_000);
    let source = star.place.make_here("file", &bytes);
    fs::write(star.copy("b"), b"taken").unwrap();
    star.targets[0].stop();
    star.targets[2].stop();
    let id = "00000000000000000000000000000007";
    let ids = ids_of(&star.cp(&["--parcel", id], &source).ok());
    assert_eq!(
        ids[1..],
        [
            "00000000000000000000000000000008",
            "00000000000000000000000000000009"
        ]
    );
    let relay = star.relays[0].url("");
    // The file came with the first.
    xdfs(["cancel", &ids[0], &relay]).ok();
    xdfs(["wait", &ids[0], &relay]).fails(130, &["cancelled"]);
    xdfs(["wait", &ids[1], &relay]).fails(6, &["the name is taken"]);
    star.targets[2].start();
    xdfs(["wait", &ids[2], &relay]).ok();
    assert_content(star.copy("c"), &bytes);
    fs::remove_file(star.copy("b")).unwrap();
    xdfs(["retry", &ids[1], &relay]).ok();
    xdfs(["wait", &ids[1], &relay]).ok();
    assert_content(star.copy("b"), &bytes);
    assert!(until(PATIENCE, || star.spooled("spool") == 0));
    star.targets[0].start();
    let other = star.place.make_here("other", b"other");
    let to = star.targets[0].url("/other");
    xdfs(["cp", "--wait", "--via", &relay, &other, &to]).ok();
    assert_eq!(names(star.place.here("a")), ["other"]);
    // A repetition changes nothing.
    star.cp(&["--parcel", id], &source)
        .fails(130, &["cancelled"]);
    let again = star.cp(&["--parcel", &ids[1]], &source);
    again.fails(6, &["another parcel"]);
}

#[test]
fn a_next_relay_gets_the_file_once() {
    let mut star = Star::new(&["first", "second"]);
    let bytes = content(5, 4_000_000);
    let source = star.place.make_here("file", &bytes);
    star.targets.iter_mut().for_each(Hop::stop);
    let ids = ids_of(&star.cp(&[], &source).ok());
    let (first, second) = (&star.relays[0], star.relays[1].url(""));
    for id in &ids {
        wait_for(first, id, |status| status["holder"] == *second);
    }
    let stored = star.spooled("second");
    assert!((4_000_000..5_000_000).contains(&stored), "{stored}");
    assert!(until(PATIENCE, || star.spooled("first") < 1_000_000));
    star.targets.iter_mut().for_each(Hop::start);
    for (id, target) in ids.iter().zip(["a", "b", "c"]) {
        xdfs(["wait", id, &star.relays[0].url("")]).ok();
        assert_content(star.copy(target), &bytes);
    }
    assert!(until(PATIENCE, || star.spooled("second") < 1_000_000));
}

#[test]
fn files_in_an_order_come_one_after_the_other() {
    let mut star = Star::new(&["first", "second"]);
    let via = format!("{},{}", star.relays[0].address, star.relays[1].address);
    let relay = star.relays[0].url("");
    fs::create_dir(star.place.here("a") + "/in").unwrap();
    star.targets[0].stop();
    let mut ids = Vec::new();
    for at in 0..8_u64 {
        let name = at.to_string();
        // The first takes longest, and one can't be delivered.
        let bytes = content(at, if at == 0 { 8_000_000 } else { 1000 });
        let source = star.place.make_here(&name, &bytes);
        let to = match at {
            3 => star.targets[0].url("/no/such/directory"),
            _ => star.targets[0].url("/in/"),
        };
        let words = [
            "cp",
            "--json",
            "--in-order",
            "nightly",
            "--via",
            &via,
            &source,
            &to,
        ];
        ids.extend(ids_of(&xdfs(words).ok()));
    }
    star.relays[1].restart();
    star.targets[0].start();
    let expected = ["0", "1", "2", "4", "5", "6", "7"];
    let mut seen = 0;
    let is_done = until(PATIENCE, || {
        let mut there = names(star.place.here("a") + "/in");
        there.retain(|name| !name.starts_with('.'));
        assert_eq!(there, expected[..there.len()]);
        seen += usize::from(!there.is_empty() && there.len() < expected.len());
        if seen == 2 {
            star.relays[1].restart();
        }
        there.len() == expected.len()
    });
    assert!(is_done);
    for (at, id) in ids.iter().enumerate() {
        let ended = xdfs(["wait", id, &relay]);
        match at {
            3 => drop(ended.fails(4, &[])),
            _ => drop(ended.ok()),
        }
    }
    // One that is cancelled lets the next go.
    star.targets[1].stop();
    let source = star.place.make_here("file", b"file");
    let left = |name: &str| {
        let to = star.targets[1].url(name);
        let words = [
            "cp",
            "--json",
            "--in-order",
            "x",
            "--via",
            &relay,
            &source,
            &to,
        ];
        ids_of(&xdfs(words).ok()).remove(0)
    };
    let (first, last) = (left("/first"), left("/last"));
    xdfs(["cancel", &first, &relay]).ok();
    star.targets[1].start();
    xdfs(["wait", &last, &relay]).ok();
    assert_eq!(names(star.place.here("b")), ["last"]);
}
