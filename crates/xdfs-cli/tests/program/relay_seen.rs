//! The files at a relay as users and its operator see them, and its metrics.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::relay::{Scene, id_of};
use crate::support::{Run, content, xdfs};
use crate::third_party::CONNECTS;

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `xdfs relay` with a word and flags at the relay of a scene.
fn relay(scene: &Scene, words: &[&str]) -> Run {
    let url = scene.relay_url();
    xdfs([&["relay"], words, &[&url]].concat())
}

fn ids(run: &Run) -> Vec<String> {
    let records = run.json();
    let ids = records.iter().map(|record| record["id"].as_str().unwrap());
    ids.map(str::to_owned).collect()
}

#[test]
fn what_is_at_a_relay_is_listed_put_back_and_dropped() {
    let mut scene = Scene::new();
    let source = scene.place.make_here("file", &content(1, 2_500_000));
    fs::write(scene.remote("taken"), b"old").unwrap();
    fs::write(scene.remote("other"), b"old").unwrap();
    let done = id_of(&scene.cp(&["--wait"], &source, "/done").ok());
    let dead = id_of(&scene.cp(&["--wait"], &source, "/taken").fails(6, &[]));
    let other = id_of(&scene.cp(&["--wait"], &source, "/other").fails(6, &[]));
    scene.stop_target();
    let held = id_of(&scene.cp(&[], &source, "/held").ok());
    let waits = || {
        let status = scene.status(&held);
        status["state"] == "held" && status["error"]["code"] == "connection-refused"
    };
    assert!(xdfs_testkit::wait::until(PATIENCE, waits));

    // In the order in which they came; what was delivered only where it is asked for.
    let all = relay(&scene, &["ls", "--json"]).ok();
    assert_eq!(ids(&all), [&*dead, &other, &held]);
    let records = all.json();
    assert_eq!(records[0]["type"], "parcel-status");
    assert_eq!(records[0]["error"]["code"], "already-exists");
    assert_ne!(records[0]["user"], Value::Null);
    let delivered = relay(&scene, &["ls", "--json", "--state", "delivered"]).ok();
    assert_eq!(ids(&delivered), [&*done]);
    let two = ["ls", "--json", "--state", "dead", "--state", "delivered"];
    assert_eq!(ids(&relay(&scene, &two).ok()), [&*done, &dead, &other]);
    let table = relay(&scene, &["ls"]).ok().text();
    let lines: Vec<&str> = table.lines().collect();
    let target = &scene.target_address;
    assert!(
        lines[0].starts_with("ID ") && lines[0].ends_with("TRIES  TARGET"),
        "{table}"
    );
    assert!(
        lines[1].starts_with(&dead)
            && lines[1].contains("  dead         2.50 MB  ")
            && lines[1].ends_with(&format!("xdfs://{target}/taken")),
        "{table}"
    );
    assert_eq!(lines[1].find("xdfs://"), lines[0].find("TARGET"), "{table}");
    let fault = format!("  server {target}: cannot rename '/taken'");
    assert!(lines[2].starts_with(&fault), "{table}");
    relay(&scene, &["ls", "--state", "gone"]).fails(2, &["expected one of arriving, held"]);

    let shown = relay(&scene, &["show", &held]).ok().text();
    for line in [
        format!("parcel         {held}"),
        "state          held".into(),
        format!("target         xdfs://{target}/held"),
        "at the relay   2.50 MB of 2.50 MB".into(),
        "at the target  0 B of 2.50 MB".into(),
    ] {
        assert!(shown.lines().any(|own| own == line), "{line}: {shown}");
    }
    assert!(
        shown.contains("next attempt   in ") && shown.contains("last fault     "),
        "{shown}"
    );
    let shown = relay(&scene, &["show", "--json", &dead])
        .ok()
        .json()
        .remove(0);
    assert_eq!(
        (&shown["id"], &shown["state"]),
        (&dead.as_str().into(), &"dead".into())
    );

    // The cause is gone.
    scene.start_target();
    scene.wait_for(&held, "delivered");
    fs::remove_file(scene.remote("taken")).unwrap();
    relay(&scene, &["retry", &dead]).ok();
    scene.wait_for(&dead, "delivered");
    relay(&scene, &["retry", &dead]).fails(2, &["it is delivered"]);
    relay(&scene, &["drop", &other]).ok();
    scene.wait_for(&other, "cancelled");
    assert_eq!(
        ids(&relay(&scene, &["ls", "--json"]).ok()),
        Vec::<String>::new()
    );
    assert_eq!(relay(&scene, &["ls"]).ok().text(), "");
    assert_eq!(fs::read(scene.remote("other")).unwrap(), b"old");

    // All at once.
    let again: Vec<String> = (0..3)
        .map(|_| id_of(&scene.cp(&["--wait"], &source, "/other").fails(6, &[])))
        .collect();
    let run = relay(&scene, &["retry", "--dead"]).ok();
    assert_eq!(run.text().lines().collect::<Vec<_>>(), again);
    again.iter().for_each(|id| drop(scene.wait_for(id, "dead")));
    let run = relay(&scene, &["drop", "--dead", "--json"]).ok();
    assert_eq!(ids(&run), again);
    assert_eq!(relay(&scene, &["drop", "--dead"]).ok().text(), "");
    again
        .iter()
        .for_each(|id| drop(scene.wait_for(id, "cancelled")));
    relay(&scene, &["drop"]).fails(2, &["--dead"]);
    relay(&scene, &["retry", &dead, "--dead"]).fails(2, &["--dead"]);
    let none = "0".repeat(32);
    relay(&scene, &["show", &none]).fails(4, &["no parcel"]);
    relay(&scene, &["drop", &none]).fails(4, &["no parcel"]);
    let target = scene.target.as_ref().unwrap().url("");
    xdfs(["relay", "ls", &target]).fails(14, &["no relay"]);
}

/// A relay with a second user, and the flags with which that one logs in.
fn with_bob() -> (Scene, String, [String; 2]) {
    let place = crate::support::Place::new();
    let settings =
        "folder = \"server\"\naudit = \"audit.log\"\n[metrics]\nlisten = \"127.0.0.1:0\"\n";
    let config = place.make_here("relay.toml", settings.as_bytes());
    let key = place.here("key-bob");
    let line = xdfs(["keygen", "--file", &key]).ok().text();
    fs::create_dir_all(place.here("server/keys")).unwrap();
    fs::write(place.here("server/keys/bob"), line).unwrap();
    let flags = [&CONNECTS[..], &["--config", &config]].concat();
    let scene = Scene::at(place, &flags);
    let bob = scene.relay_url().replace("xdfs://", "xdfs://bob@");
    (scene, bob, ["--key".into(), key])
}

#[test]
fn users_see_their_own_and_the_operator_those_of_all() {
    let (mut scene, bob, [flag, key]) = with_bob();
    let source = scene.place.make_here("file", b"content");
    fs::write(scene.remote("taken"), b"old").unwrap();
    let url = format!("xdfs://{}/taken", scene.target_address);
    let via = [
        "cp", "--json", "--wait", "--via", &bob, &flag, &key, &source, &url,
    ];
    let his = id_of(&xdfs(via).fails(6, &[]));
    scene.stop_target();
    let mine = id_of(&scene.cp(&[], &source, "/mine").ok());
    let by_bob = |words: &[&str]| xdfs([&["relay"], words, &[&flag, &key, &bob]].concat());

    // Each has his own.
    assert_eq!(ids(&by_bob(&["ls", "--json"]).ok()), [&*his]);
    assert_eq!(ids(&relay(&scene, &["ls", "--json"]).ok()), [&*mine]);
    by_bob(&["ls", "--all-users"]).fails(5, &["the user who runs the relay"]);
    by_bob(&["show", &mine]).fails(4, &["no parcel"]);
    by_bob(&["drop", &mine]).fails(4, &["no parcel"]);
    let owner = relay(&scene, &["ls", "--json"]).ok().json()[0]["user"].clone();
    let owner = owner.as_str().unwrap().to_owned();
    for word in ["show", "drop", "retry"] {
        by_bob(&[word, "--user", &owner, &mine]).fails(5, &["the user who runs the relay"]);
    }
    by_bob(&["retry", "--dead", "--all-users"]).fails(5, &["the user who runs the relay"]);
    // His own name is his.
    by_bob(&["show", "--user", "bob", &his]).ok();

    // The operator has all.
    let all = relay(&scene, &["ls", "--json", "--all-users"]).ok();
    assert_eq!(ids(&all), [&*his, &mine]);
    assert_eq!(all.json()[0]["user"], "bob");
    let table = relay(&scene, &["ls", "--all-users"]).ok().text();
    assert!(
        table.contains(&format!("{his}  bob           dead")),
        "{table}"
    );
    relay(&scene, &["show", &his]).fails(4, &["no parcel"]);
    let shown = relay(&scene, &["show", "--json", "--user", "bob", &his]).ok();
    assert_eq!(shown.json()[0]["state"], "dead");
    scene.start_target();
    scene.wait_for(&mine, "delivered");
    fs::remove_file(scene.remote("taken")).unwrap();
    let run = relay(&scene, &["retry", "--dead", "--all-users"]).ok();
    assert_eq!(run.text().trim(), his);
    xdfs(["wait", &flag, &key, &his, &bob]).ok();
    assert_eq!(fs::read(scene.remote("taken")).unwrap(), b"content");
    let his = id_of(&xdfs(via).fails(6, &[]));
    relay(&scene, &["drop", "--user", "bob", &his]).ok();
    xdfs(["wait", &flag, &key, &his, &bob]).fails(130, &["cancelled"]);
    let audit = fs::read_to_string(scene.place.here("audit.log")).unwrap();
    let line = audit
        .lines()
        .find(|line| line.contains("cancel the parcel"));
    assert!(
        line.is_some_and(|line| line.contains("bob") && line.contains(&his)),
        "{audit}"
    );
}

/// The samples that are read at an address, by name and labels, and the text.
fn scrape(address: &str) -> (BTreeMap<String, f64>, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, text) = answer.split_once("\r\n\r\n").unwrap();
    let lines = text.lines().filter(|line| line.starts_with("xdfs_relay_"));
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    (samples.collect(), text.to_owned())
}

#[test]
fn a_relay_counts_what_it_holds_and_delivers() {
    let (mut scene, bob, [flag, key]) = with_bob();
    let line = scene.relay.line_with("metrics at ");
    let address = line.split("http://").nth(1).unwrap();
    let address = address.trim_end_matches("/metrics").to_owned();
    let bytes = 1_500_000.0;
    let source = scene.place.make_here("file", &content(2, 1_500_000));
    scene.cp(&["--wait"], &source, "/one").ok();
    scene.cp(&["--wait"], &source, "/two").ok();
    let dead = id_of(&scene.cp(&["--wait"], &source, "/two").fails(6, &[]));
    scene.stop_target();
    let held = id_of(&scene.cp(&[], &source, "/held").ok());
    let late = id_of(&scene.cp(&["--expire", "1s"], &source, "/late").ok());
    scene.wait_for(&late, "dead");
    let dropped = id_of(&scene.cp(&[], &source, "/dropped").ok());
    relay(&scene, &["drop", &dropped]).ok();
    scene.wait_for(&dropped, "cancelled");
    let mut now = BTreeMap::new();
    let mut until = |name: &str, expected: &dyn Fn(f64) -> bool| {
        let is_so = xdfs_testkit::wait::until(PATIENCE, || {
            now = scrape(&address).0;
            expected(now[name])
        });
        assert!(is_so, "{name}: {now:#?}");
    };
    until("xdfs_relay_parcels{state=\"held\"}", &|count| count == 1.0);
    until("xdfs_relay_parcels{state=\"dead\"}", &|count| count == 2.0);
    until("xdfs_relay_parcels{state=\"arriving\"}", &|count| {
        count == 0.0
    });
    for (result, count) in [
        ("delivered", 2.0),
        ("dead", 1.0),
        ("expired", 1.0),
        ("cancelled", 1.0),
    ] {
        let name = format!("xdfs_relay_parcels_ended_total{{result=\"{result}\"}}");
        until(&name, &|found| found == count);
    }
    until("xdfs_relay_delivered_bytes_total", &|found| {
        found == 2.0 * bytes
    });
    until("xdfs_relay_reserved_bytes", &|found| found == 3.0 * bytes);
    let in_spool = |found| found >= 3.0 * bytes && found < 4.0 * bytes;
    until("xdfs_relay_spool_bytes", &in_spool);
    until("xdfs_relay_oldest_seconds", &|age| age >= 1.0);
    until("xdfs_relay_attempts_total", &|count| count >= 4.0);
    until("xdfs_relay_attempts_failed_total", &|count| count >= 1.0);
    scene.start_target();
    scene.wait_for(&held, "delivered");
    until("xdfs_relay_oldest_seconds", &|age| age == 0.0);
    until("xdfs_relay_reserved_bytes", &|found| found == 2.0 * bytes);
    relay(&scene, &["drop", &dead]).ok();
    until(
        "xdfs_relay_parcels_ended_total{result=\"cancelled\"}",
        &|count| count == 2.0,
    );
    until("xdfs_relay_parcels{state=\"dead\"}", &|count| count == 1.0);
    // Files of another user count too, and his name isn't shown.
    let url = format!("xdfs://{}/bobs", scene.target_address);
    xdfs(["cp", "--wait", "--via", &bob, &flag, &key, &source, &url]).ok();
    until(
        "xdfs_relay_parcels_ended_total{result=\"delivered\"}",
        &|count| count == 4.0,
    );
    let (samples, text) = scrape(&address);
    assert!(
        !text.contains("bob") && !text.contains(&scene.target_address),
        "{text}"
    );

    // The page has the names.
    const PAGE: &str = include_str!("../../../../docs/metrics.md");
    let (_, section) = PAGE.split_once("## Of a relay\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let mut documented: Vec<_> = rows
        .map(|row| {
            let cells: Vec<_> = row
                .split('|')
                .map(|cell| cell.trim().trim_matches('`'))
                .collect();
            let [_, name, kind, label, help, _] = cells[..] else {
                panic!("{row}");
            };
            [name, kind, label, help].map(str::to_owned)
        })
        .collect();
    let mut answered: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE xdfs_relay_"))
        .map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            let name = format!("xdfs_relay_{name}");
            let head = format!("# HELP {name} ");
            let help = text.lines().find_map(|line| line.strip_prefix(&head));
            let total = format!("{name}_total");
            let sample = samples.keys().find(|key| {
                let base = key.split('{').next().unwrap();
                base == name || base == total
            });
            let label = sample.unwrap().split_once('{');
            let label = label.map_or("", |(_, rest)| rest.split('=').next().unwrap());
            [name.as_str(), kind, label, help.unwrap()].map(str::to_owned)
        })
        .collect();
    documented.sort();
    answered.sort();
    assert_eq!(answered, documented);
}
