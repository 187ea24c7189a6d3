//! The round trips of commands, as `docs/protocol/round-trips.md` promises them.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use xdfs_testkit::proxy::{FaultProxy, Plan};
use xdfs_testkit::wait::until;

use crate::support::{Place, Running, Server, content, program};

/// Attempts to see a command take no more than it needs; the names that it makes have their number.
const ATTEMPTS: [&str; 3] = ["1", "2", "3"];

/// Longest wait for what has to happen.
const PATIENCE: Duration = Duration::from_secs(60);

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
fn commands_take_what_they_promise() {
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
    let flights = |words: &[&str], attempt: &str, state: &str| {
        let before = first.client_flights();
        let words = words.iter();
        let words = words.map(|word| word.replace("URL", &url("")).replace('#', attempt));
        let mut program = program();
        program.env("XDFS_STATE_DIR", place.path().join(state));
        Running::start(program.args(words).stdin(Stdio::null()))
            .wait()
            .ok();
        // The last bytes are still on their way.
        assert!(until(PATIENCE, || first.live().is_empty()));
        // The client has the last word.
        first.client_flights() - before - 1
    };
    let check = |command: &str, words: &[&str]| {
        let promised = promised(command);
        let mut taken = Vec::new();
        // On a busy machine what was sent together may arrive apart.
        for attempt in ATTEMPTS {
            taken.push(flights(words, attempt, "state"));
            if taken.contains(&promised) {
                return;
            }
        }
        panic!("{command}: the table is out of date: {promised} and not one of {taken:?}");
    };
    let small = place.make_here("small", b"2");
    fs::create_dir(place.remote("d")).unwrap();
    for attempt in ATTEMPTS {
        fs::write(place.remote(&format!("d/file{attempt}")), b"2").unwrap();
        fs::create_dir(place.remote(&format!("d{attempt}"))).unwrap();
    }
    // A server is new to a client without a state; the first one of the others has it from then on.
    let (mut taken, most) = (Vec::new(), promised("ls, of a new server"));
    let is_kept = ["state", "state2", "state3"].into_iter().any(|state| {
        taken.push(flights(&["ls", "URL/d"], "", state));
        taken.last() <= Some(&most)
    });
    assert!(is_kept, "{most} and not one of {taken:?}");
    check("ls", &["ls", "URL/d"]);
    check("stat", &["stat", "URL/d/file1"]);
    check("mkdir", &["mkdir", "URL/new#"]);
    check("rm", &["rm", "URL/d/file#"]);
    check("cp FILE URL", &["cp", &small, "URL/up#"]);
    assert_eq!(fs::read(place.remote("up1")).unwrap(), b"2");
    check("cp URL FILE", &["cp", "URL/up1", &place.here("down#")]);
    assert_eq!(fs::read(place.here("down1")).unwrap(), b"2");
    // No more directories than are listed at the same time on a short path.
    for number in 0..4 {
        fs::create_dir_all(place.here(&format!("tree/{number}"))).unwrap();
        for file in 0..3 {
            let name = format!("tree/{number}/{file}");
            place.make_here(&name, &content(number * 3 + file, 100));
        }
    }
    let tree = place.here("tree");
    check("cp -r TREE URL", &["cp", "-r", &tree, "URL/d#/"]);
    check("cp -r TREE URL, again", &["cp", "-r", &tree, "URL/d1/"]);
    check(
        "cp -r URL TREE",
        &["cp", "-r", "URL/d1/tree", &place.here("back#")],
    );
    check("sync TREE URL, unchanged", &["sync", &tree, "URL/d1/tree"]);
    #[cfg(unix)]
    agent_takes_what_it_promises(&place, &first);
}

/// Listings through an agent, whose session stays open.
#[cfg(unix)]
fn agent_takes_what_it_promises(place: &Place, proxy: &FaultProxy) {
    let xdfs = |words: &[&str]| {
        let mut program = program();
        program.env("XDFS_STATE_DIR", place.path().join("agent"));
        Running::start(program.args(words).stdin(Stdio::null()))
    };
    let url = format!("xdfs://{}/d", proxy.addr());
    let _agent = xdfs(&["agent", "run"]);
    let status = || xdfs(&["agent", "status"]).wait().code;
    assert!(until(PATIENCE, || status() == Some(0)));
    let flights = |count: u64| {
        let before = proxy.client_flights();
        for _ in 0..count {
            xdfs(&["ls", &url]).wait().ok();
        }
        proxy.client_flights() - before
    };
    let first = flights(1);
    let promised_first = promised("ls, the first with an agent");
    assert!(first <= promised_first + 1, "{first} of {promised_first}");
    // That an answer was taken goes along with the next call, or arrives between.
    let (least, most) = (promised("ls, with an agent") * 4, 4 + 2);
    let mut taken = Vec::new();
    for _ in ATTEMPTS {
        taken.push(flights(4));
        if taken
            .last()
            .is_some_and(|taken| (least..=most).contains(taken))
        {
            return;
        }
    }
    panic!("ls, with an agent: 4 take {least} to {most} and not one of {taken:?}");
}
