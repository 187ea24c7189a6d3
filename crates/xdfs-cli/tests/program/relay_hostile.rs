//! Hops that lose or lie, targets that can't have a file, and wrong clocks.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use xdfs_spool::{Spool, SpoolLimits};
use xdfs_testkit::wait::until;

use crate::relay::{PATIENCE, id_of};
use crate::relay_hops::{Hop, Line, status, wait_for};
use crate::support::{Place, assert_content, content, names, xdfs};
use crate::third_party::CONNECTS;

const DAY_S: u64 = 24 * 3600;

/// A relay that has said that it has a file, and has lost it with its spool: the file doesn't pass
/// for delivered, and isn't sent by itself again, since it may have been.
#[test]
fn a_hop_that_loses_what_it_has_taken_is_found_out() {
    let mut line = Line::new();
    let source = line.place.make_here("file", &content(1, 100_000));
    line.target.stop();
    let id = id_of(&line.cp(&[], &source, "/copy").ok());
    wait_for(&line.first, &id, |status| {
        status["holder"] == line.second.url("")
    });
    line.second.stop();
    fs::remove_dir_all(line.place.here("second")).unwrap();
    line.second.start();
    line.target.start();
    let run = xdfs(["wait", &id, &line.first.url("")]);
    run.fails(4, &["the relay that had it doesn't know it any more"]);
    assert_eq!(status(&line.first, &id).unwrap()["state"], "dead");
    assert_eq!(names(line.remote("")), Vec::<String>::new());
}

#[test]
fn a_name_that_the_target_can_not_have_is_given_up() {
    let line = Line::new();
    let source = line.place.make_here("file", b"content");
    let long = format!("/{}", "x".repeat(300));
    let run = line.cp(&["--wait"], &source, &long);
    assert!(!matches!(run.code, Some(0) | None), "{run:?}");
    assert!(run.stderr.contains("name"), "{run:?}");
    let dead = status(&line.first, &id_of(&run)).unwrap();
    assert_eq!(dead["state"], "dead", "{dead}");
    // A directory in its place.
    fs::create_dir_all(line.remote("dir/file")).unwrap();
    let run = line.cp(&["--wait", "--force"], &source, "/dir/");
    assert!(!matches!(run.code, Some(0) | None), "{run:?}");
    assert_eq!(names(line.remote("dir")), ["file"]);
    assert!(line.remote("dir/file").is_dir());
    assert_eq!(names(line.remote("")), ["dir"]);
}

#[test]
fn two_relays_that_deliver_the_same_harm_nothing() {
    let place = Place::new();
    let mut relays = [
        Hop::relay(&place, "one", &CONNECTS),
        Hop::relay(&place, "two", &CONNECTS),
    ];
    let mut target = Hop::target(&place, "target");
    let bytes = content(2, 3_000_000);
    let source = place.make_here("file", &bytes);
    let root = PathBuf::from(place.here("target"));
    let to = target.url("/copy");
    target.stop();
    let leave = |relay: &Hop, flags: &[&str]| {
        let words = ["cp", "--json", "--via", &relay.address];
        id_of(&xdfs([&words, flags, &[&source, &to]].concat()).ok())
    };
    let ids = relays.each_ref().map(|relay| leave(relay, &[]));
    target.start();
    let mut codes = Vec::new();
    for (relay, id) in relays.iter().zip(&ids) {
        codes.push(xdfs(["wait", id, &relay.url("")]).code.unwrap());
    }
    codes.sort_unstable();
    assert_eq!(codes, [0, 6], "one of them is first");
    assert_content(root.join("copy"), &bytes);
    // Where both may replace it, each does so with a whole file.
    target.stop();
    let ids = relays.each_ref().map(|relay| leave(relay, &["--force"]));
    target.start();
    for (relay, id) in relays.iter().zip(&ids) {
        xdfs(["wait", id, &relay.url("")]).ok();
    }
    assert_content(root.join("copy"), &bytes);
    assert_eq!(names(&root), ["copy"]);
    relays.iter_mut().for_each(Hop::stop);
}

/// The machine of a relay starts with a clock that is a year behind or ahead of the last one that
/// it has shown: no file grows old by that.
#[test]
fn a_wrong_clock_ends_no_life() {
    let place = Place::new();
    let mut relay = Hop::relay(&place, "spool", &CONNECTS);
    let mut target = Hop::target(&place, "target");
    target.stop();
    let source = place.make_here("file", b"content");
    let now_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    for (round, seen_s) in [now_s + 365 * DAY_S, now_s - 365 * DAY_S]
        .into_iter()
        .enumerate()
    {
        relay.stop();
        let spool = Spool::open(place.here("spool").as_ref(), SpoolLimits::default()).unwrap();
        spool.set_clock(seen_s).unwrap();
        drop(spool);
        relay.start();
        let to = target.url(&format!("/{round}"));
        let words = ["cp", "--json", "--expire", "1d", "--via", &relay.address];
        let id = id_of(&xdfs([&words[..], &[&source, &to]].concat()).ok());
        relay.restart();
        let waits = || {
            status(&relay, &id).is_some_and(|status| {
                assert_eq!(status["state"], "held", "{status}");
                assert!(status["seconds"].as_u64().unwrap() < DAY_S, "{status}");
                status["error"]["code"] == "connection-refused"
            })
        };
        assert!(until(PATIENCE, waits), "{:?}", status(&relay, &id));
        target.start();
        xdfs(["wait", &id, &relay.url("")]).ok();
        target.stop();
    }
    assert_eq!(names(place.here("target")), ["0", "1"]);
}
