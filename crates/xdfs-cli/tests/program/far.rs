//! Servers that are far away: what the program chooses for a long path, over an emulated network.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::wan::{Link, Plan, Side, Wan};

use crate::support::{Place, Run, Running, Server, content, program};
use crate::verdict::ATTEMPTS;

/// `None`, with the reason told, where there can't be such a network.
#[track_caller]
pub(crate) fn network(link: Link) -> Option<Wan> {
    network_of(Plan::new(link).with_offload())
}

/// The same by its plan.
#[track_caller]
pub(crate) fn network_of(plan: Plan) -> Option<Wan> {
    match Wan::new(plan) {
        Ok(wan) => Some(wan),
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            xdfs_testkit::skip::test(format_args!("no emulated network: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The same command on a host of the network.
pub(crate) fn on(side: &Side, command: &Command) -> Command {
    let mut there = side.command(command.get_program());
    there.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => there.env(name, value),
            None => there.env_remove(name),
        };
    }
    there
}

pub(crate) fn serve(wan: &Wan, root: &Path, flags: &[&str]) -> Server {
    serve_as(wan, root, &[&["--insecure"], flags].concat(), |serve| serve)
}

/// The same with no flags but these, by a command that `change` makes of the usual one.
pub(crate) fn serve_as(
    wan: &Wan,
    root: &Path,
    flags: &[&str],
    change: impl FnOnce(Command) -> Command,
) -> Server {
    let listen = format!("{}:0", wan.right().address());
    let flags = [&["--listen", &listen], flags].concat();
    Server::start_as(root, &flags, |serve| on(wan.right(), &change(serve)))
}

pub(crate) fn run(wan: &Wan, words: &[&str]) -> Run {
    start_as(wan, words, |command| command).wait()
}

/// Starts the program by a command that `change` makes of the usual one.
pub(crate) fn start_as(
    wan: &Wan,
    words: &[&str],
    change: impl FnOnce(Command) -> Command,
) -> Running {
    let mut command = program();
    command.args(words);
    let mut command = on(wan.left(), &change(command));
    Running::start(command.stdin(Stdio::null()))
}

/// Whether the system has bbr. Root may use it whatever the users are allowed.
fn has_bbr() -> bool {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let names = fs::read_to_string(path).unwrap_or_default();
    names.split_whitespace().any(|name| name == "bbr")
}

const SUITED: &str = "a channel suits a long path congestion=\"bbr\"";
const REFUSED: &str = "the system refuses bbr";

#[test]
fn both_ends_of_a_long_path_use_what_suits_it() {
    let Some(wan) = network(Link::delay(Duration::from_millis(15))) else {
        return;
    };
    let place = Place::new();
    let server_log = place.here("server.log");
    let server = serve(
        &wan,
        &place.root(),
        &["--log", "debug", "--log-file", &server_log],
    );
    let source = content(1, 40 << 20);
    let local = place.make_here("big", &source);
    let flags = ["cp", "-vv", "--insecure"];
    let up = run(&wan, &[&flags[..], &[&local, &server.url("/big")]].concat()).ok();
    assert_eq!(fs::read(place.remote("big")).unwrap(), source);
    let back = place.here("back");
    let down = run(&wan, &[&flags[..], &[&server.url("/big"), &back]].concat()).ok();
    assert_eq!(fs::read(&back).unwrap(), source);
    drop(server);
    let logs = [
        up.stderr,
        down.stderr,
        fs::read_to_string(&server_log).unwrap(),
    ];
    if !has_bbr() {
        xdfs_testkit::skip::part("the system has no bbr");
        for log in &logs {
            assert!(log.contains(REFUSED), "{log}");
        }
        // Once a session, however many channels it has.
        assert_eq!(logs[0].matches(REFUSED).count(), 1, "{}", logs[0]);
        return;
    }
    for log in &logs {
        // Each channel once.
        assert!(log.matches(SUITED).count() > 1, "{log}");
        assert!(!log.contains(REFUSED), "{log}");
    }
}

#[test]
fn a_near_path_keeps_the_systems_choice() {
    let Some(wan) = network(Link::delay(Duration::from_micros(200))) else {
        return;
    };
    let place = Place::new();
    let server = serve(&wan, &place.root(), &[]);
    let source = content(2, 20 << 20);
    let local = place.make_here("big", &source);
    let run = run(
        &wan,
        &["cp", "-vv", "--insecure", &local, &server.url("/big")],
    )
    .ok();
    assert!(!run.stderr.contains("a channel suits"), "{}", run.stderr);
    assert_eq!(fs::read(place.remote("big")).unwrap(), source);
}

/// The changes of the number of channels in an upload of a large file with further flags.
fn changes_of_upload(link: Link, flags: &[&str]) -> Option<Vec<String>> {
    let wan = network(link)?;
    let place = Place::new();
    let server = serve(&wan, &place.root(), &[]);
    let source = content(3, 48 << 20);
    let local = place.make_here("big", &source);
    let words = [&["cp", "-v", "--insecure"], flags].concat();
    let run = run(&wan, &[&words[..], &[&local, &server.url("/big")]].concat()).ok();
    assert_eq!(fs::read(place.remote("big")).unwrap(), source);
    // Nothing was lost for channels that went.
    assert!(!run.stderr.contains("; retry "), "{}", run.stderr);
    let lines = run.stderr.lines();
    let changes = lines.filter(|line| line.contains("the number of channels changes"));
    Some(changes.map(str::to_owned).collect())
}

#[test]
fn channels_are_added_where_each_is_limited_by_its_window() {
    let link = Link::delay(Duration::from_millis(10));
    let Some(changes) = changes_of_upload(link, &["-w", "16K"]) else {
        return;
    };
    assert!(!changes.is_empty());
    assert!(changes[0].contains("before=8 wanted=16"), "{changes:?}");
}

#[test]
fn a_full_path_gets_no_further_channels() {
    let link = Link::delay(Duration::from_millis(10)).with_bandwidth(8_000_000);
    let Some(changes) = changes_of_upload(link, &[]) else {
        return;
    };
    assert!(changes.is_empty(), "{changes:?}");
}

/// Channels that have connected early don't keep the one that logs in anew from being opened.
#[test]
fn a_method_that_is_not_taken_costs_no_deadline_of_other_channels() {
    let Some(wan) = network(Link::delay(Duration::from_millis(15))) else {
        return;
    };
    let place = Place::new();
    let listen = format!("{}:0", wan.right().address());
    let flags = ["--listen", &listen];
    let server = Server::start_as(&place.root(), &flags, |serve| on(wan.right(), &serve));
    // From then on the server is known, and the proof goes ahead.
    run(&wan, &["ls", &server.url("/")]).ok();
    let local = place.make_here("big", &content(6, 40 << 20));
    let words = ["cp", "-vv", "--anonymous", &local, &server.url("/big")];
    let run = run(&wan, &words).fails(16, &["the server takes none"]);
    assert!(run.stderr.contains("went ahead"), "{}", run.stderr);
    assert!(!run.stderr.contains("did not answer"), "{}", run.stderr);
}

#[test]
fn a_number_of_channels_that_was_asked_for_stays() {
    let link = Link::delay(Duration::from_millis(10)).with_bandwidth(10_000_000);
    let Some(wan) = network(link) else { return };
    let place = Place::new();
    let server = serve(&wan, &place.root(), &[]);
    let source = content(4, 40 << 20);
    let local = place.make_here("big", &source);
    let words = ["cp", "-v", "-n", "2", "--insecure", &local];
    let run = run(&wan, &[&words[..], &[&server.url("/big")]].concat()).ok();
    assert_eq!(fs::read(place.remote("big")).unwrap(), source);
    assert!(
        !run.stderr.contains("number of channels changes"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_narrow_link_is_named_as_the_bottleneck() {
    let Some(wan) = network(Link::delay(Duration::from_millis(1)).with_bandwidth(4 << 20)) else {
        return;
    };
    let place = Place::new();
    let server = serve(&wan, &place.root(), &[]);
    let local = place.make_here("big", &content(2, 8 << 20));
    let (there, back) = (server.url("/big"), place.here("back"));
    for ends in [[&local, &there], [&there, &back]] {
        let mut said = Vec::new();
        let is_named = ATTEMPTS.into_iter().any(|_| {
            let flags = ["cp", "--insecure", "--force", "--stats", ends[0], ends[1]];
            said.push(run(&wan, &flags).ok().stderr);
            said.concat().contains("limited by     the network: ")
        });
        assert!(is_named, "{said:?}");
    }
}
