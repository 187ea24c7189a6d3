//! Files that go on to the next hop while they arrive.

use std::fs;

use xdfs_testkit::wait::until;

use crate::relay::PATIENCE;
use crate::relay_hops::{Hop, Line, status, wait_for};
use crate::support::{Place, Running, assert_content, content, names, program, xdfs};

const ID: &str = "0123456789abcdef0123456789abcdef";
/// Bytes of a file that takes half a minute.
const LENGTH: usize = 30_000_000;

/// Leaves a file slowly, under [`ID`].
fn leave(line: &Line, flags: &[&str], source: &str, to: &str) -> Running {
    let own = ["--parcel", ID, "--retries=1000", "--limit-rate", "1M"];
    let mut command = program();
    command.args(line.words(&[&own, flags].concat(), source, to));
    Running::start(&mut command)
}

/// Leaves the rest of it as fast as it goes.
fn leave_rest(line: &Line, flags: &[&str], source: &str, to: &str) {
    let own = ["--parcel", ID, "--retries=1000"];
    line.cp(&[&own, flags].concat(), source, to).ok();
}

/// State and durable bytes of the only parcel of a relay; `None` if it can't be asked, or has none.
fn at(relay: &Hop) -> Option<(String, u64)> {
    let mut words = vec!["relay", "ls", "--json"];
    for state in ["arriving", "held", "delivering", "dead", "cancelled"] {
        words.extend(["--state", state]);
    }
    let run = xdfs([&words[..], &[&relay.url("")]].concat());
    let records = (run.code == Some(0)).then(|| run.json())?;
    let parcel = records
        .iter()
        .find(|record| record["type"] == "parcel-status")?;
    let arrived = parcel["arrived"].as_u64().unwrap();
    Some((parcel["state"].as_str().unwrap().to_owned(), arrived))
}

/// Waits until a relay has more of the file than this, but not all of it. Returns how much.
#[track_caller]
fn wait_for_part(relay: &Hop, beyond: u64) -> u64 {
    let mut last = None;
    let has_come = until(PATIENCE, || {
        last = at(relay);
        last.as_ref().is_some_and(|(_, arrived)| *arrived > beyond)
    });
    assert!(has_come, "{last:?}");
    let (state, arrived) = last.unwrap();
    assert_eq!(state, "arriving");
    assert!((arrived as usize) < LENGTH);
    arrived
}

/// Waits until a part of the file is at the target under a hidden name.
#[track_caller]
fn wait_for_hidden(line: &Line) {
    let is_there = |name: &String| name.contains(".xdfs-parcel-");
    let has_come = until(PATIENCE, || names(line.remote("")).iter().any(is_there));
    assert!(has_come, "{:?}", names(line.remote("")));
}

#[test]
fn a_file_goes_on_while_it_arrives() {
    let line = Line::new();
    let bytes = content(1, LENGTH);
    let source = line.place.make_here("big", &bytes);
    let mut client = leave(&line, &[], &source, "/copy");
    let part = wait_for_part(&line.second, 0);
    wait_for_hidden(&line);
    // Neither end of the way answers for it yet.
    let first = status(&line.first, ID).unwrap();
    assert_eq!(first["state"], "arriving");
    assert!(first["arrived"].as_u64().unwrap() >= part);
    assert!(!line.remote("copy").exists());
    client.kill();
    leave_rest(&line, &["--wait"], &source, "/copy");
    assert_content(line.remote("copy"), &bytes);
    assert_eq!(names(line.remote("")), ["copy"]);
    for relay in ["first", "second"] {
        assert!(
            until(PATIENCE, || line.spooled(relay) < 1_000_000),
            "{relay}"
        );
    }
}

/// Each hop and the client are killed while a part of the file is at all of them: what the second
/// one has acknowledged stays, and counts.
#[test]
fn whatever_is_killed_goes_on_from_what_was_acknowledged() {
    let mut line = Line::new();
    let bytes = content(2, LENGTH);
    let source = line.place.make_here("big", &bytes);
    let mut client = leave(&line, &[], &source, "/copy");
    let mut part = wait_for_part(&line.second, 0);
    wait_for_hidden(&line);
    for hop in 0..4 {
        match hop {
            0 => line.first.restart(),
            1 => line.second.restart(),
            2 => line.target.restart(),
            _ => {
                client.kill();
                client = leave(&line, &[], &source, "/copy");
            }
        }
        let (_, kept) = at(&line.second).unwrap();
        assert!(kept >= part, "{hop}: {kept} of {part}");
        part = wait_for_part(&line.second, kept);
    }
    client.kill();
    leave_rest(&line, &[], &source, "/copy");
    wait_for(&line.first, ID, |status| status["state"] == "delivered");
    assert_content(line.remote("copy"), &bytes);
    assert_eq!(names(line.remote("")), ["copy"]);
}

#[test]
fn what_went_ahead_is_withdrawn_when_the_rest_does_not_come() {
    let mut line = Line::new();
    let source = line.place.make_here("big", &content(3, LENGTH));
    let mut client = leave(&line, &[], &source, "/copy");
    wait_for_part(&line.second, 0);
    wait_for_hidden(&line);
    client.kill();
    // It survives that the first one dies, while the second one can't be reached.
    line.second.stop();
    xdfs(["cancel", ID, &line.first.url("")]).ok();
    line.first.restart();
    // Nothing more is taken meanwhile.
    let own = ["--parcel", ID];
    line.cp(&own, &source, "/copy").fails(130, &["cancelled"]);
    line.second.start();
    xdfs(["wait", ID, &line.first.url("")]).fails(130, &["cancelled"]);
    let is_over = || at(&line.second).is_some_and(|(state, _)| state == "cancelled");
    assert!(until(PATIENCE, is_over), "{:?}", at(&line.second));
    let is_empty = || names(line.remote("")).is_empty();
    assert!(until(PATIENCE, is_empty), "{:?}", names(line.remote("")));
    for relay in ["first", "second"] {
        assert!(until(PATIENCE, || line.spooled(relay) == 0), "{relay}");
    }
}

/// A source that changes before all of it has arrived: nothing of the old version stays anywhere.
#[test]
fn another_version_replaces_what_went_ahead() {
    let line = Line::new();
    let source = line.place.make_here("big", &content(4, LENGTH));
    let mut client = leave(&line, &[], &source, "/copy");
    wait_for_part(&line.second, 0);
    wait_for_hidden(&line);
    client.kill();
    let bytes = content(5, LENGTH);
    fs::write(&source, &bytes).unwrap();
    leave_rest(&line, &["--wait"], &source, "/copy");
    assert_content(line.remote("copy"), &bytes);
    assert_eq!(names(line.remote("")), ["copy"]);
}

/// A next hop that refuses what goes ahead is no reason to refuse the rest of the file.
#[test]
fn a_next_hop_that_refuses_ends_no_parcel_before_it_is_there() {
    let place = Place::new();
    let line = Line::new();
    let closed = Hop::relay(&place, "closed", &["--connect-to", "127.0.0.9"]);
    let source = place.make_here("big", &content(6, 8_000_000));
    let via = format!("{},{}", line.first.address, closed.address);
    let words = ["cp", "--wait", "--limit-rate", "2M", "--json", "--parcel"];
    let run = xdfs(
        [
            &words[..],
            &[ID, "--via", &via, &source, &line.target.url("/x")],
        ]
        .concat(),
    );
    run.fails(5, &["don't allow connections"]);
    let dead = status(&line.first, ID).unwrap();
    assert_eq!(
        (&dead["state"], &dead["arrived"]),
        (&"dead".into(), &8_000_000.into())
    );
    assert_eq!(at(&closed), None);
}
