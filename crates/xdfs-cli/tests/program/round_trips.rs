//! The round trips of commands, as `docs/protocol/round-trips.md` promises them.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use xdfs_testkit::proxy::{FaultProxy, Plan};
use xdfs_testkit::wait::until;

use crate::support::{Place, Running, Server, content, program};

const TABLE: &str = include_str!("../../../../docs/protocol/round-trips.md");

/// The numbers of the table, by command. A command is written as in the table.
fn promised(command: &str) -> u64 {
    let begin = format!("| `{command}` |");
    let row = TABLE.lines().find(|line| line.starts_with(&begin));
    let row = row.unwrap_or_else(|| panic!("no row of {command}"));
    let cell = row.trim_end_matches('|').rsplit('|').next().unwrap();
    cell.trim().parse().unwrap()
}

#[test]
fn commands_take_no_more_than_they_promise() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let target = server.addresses[0].parse().unwrap();
    let delayed = || {
        let proxy = FaultProxy::new(target).unwrap();
        // What is sent together arrives together.
        let later = |faults: &mut xdfs_testkit::proxy::Faults| {
            faults.delay = Duration::from_millis(30);
        };
        proxy.set_plan(Plan::up(later).and_down(later));
        proxy
    };
    let first = delayed();
    // One proxy for all, since a client knows a server by its address.
    let url = |path: &str| format!("xdfs://{}{path}", first.addr());
    let run = |command: &str, words: &[&str]| {
        let before = first.client_flights();
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        for word in &mut words {
            *word = word.replace("URL", &url(""));
        }
        let mut program = program();
        program.env("XDFS_STATE_DIR", place.path().join("state"));
        Running::start(program.args(&words).stdin(Stdio::null()))
            .wait()
            .ok();
        // The last bytes are still on their way.
        let gone = || first.live().is_empty();
        assert!(until(Duration::from_secs(10), gone), "{command}");
        // The client has the last word.
        let taken = first.client_flights() - before - 1;
        let promised = promised(command);
        println!("{command}: {taken} of {promised}");
        assert!(taken <= promised, "{command}: {taken} > {promised}");
        taken
    };
    let small = place.make_here("small", b"2");
    fs::create_dir(place.remote("d")).unwrap();
    fs::write(place.remote("d/file"), b"2").unwrap();
    run("ls, of a new server", &["ls", "URL/d"]);
    let ls = run("ls", &["ls", "URL/d"]);
    assert_eq!(ls, promised("ls"), "the table is out of date");
    run("stat", &["stat", "URL/d/file"]);
    run("mkdir", &["mkdir", "URL/new"]);
    run("rm", &["rm", "URL/d/file"]);
    let up = run("cp FILE URL", &["cp", &small, "URL/up"]);
    assert_eq!(up, promised("cp FILE URL"), "the table is out of date");
    assert_eq!(fs::read(place.remote("up")).unwrap(), b"2");
    run("cp URL FILE", &["cp", "URL/up", &place.here("down")]);
    assert_eq!(fs::read(place.here("down")).unwrap(), b"2");
    for number in 0..5 {
        fs::create_dir_all(place.here(&format!("tree/{number}"))).unwrap();
        for file in 0..3 {
            let name = format!("tree/{number}/{file}");
            place.make_here(&name, &content(number * 3 + file, 100));
        }
    }
    let tree = place.here("tree");
    run("cp -r TREE URL", &["cp", "-r", &tree, "URL/d/"]);
    run("cp -r TREE URL, again", &["cp", "-r", &tree, "URL/d/"]);
    let back = place.here("back");
    run("cp -r URL TREE", &["cp", "-r", "URL/d/tree", &back]);
    run("sync TREE URL, unchanged", &["sync", &tree, "URL/d/tree"]);
}
