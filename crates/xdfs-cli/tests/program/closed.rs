//! Standard streams that are closed when the program starts.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::process::Guard;
use xdfs_testkit::wait;

use crate::support::{Place, Run, Running, Server, assert_content, content, names, program};

const PATIENCE: Duration = Duration::from_secs(60);
/// Which of standard input, output and error are closed, in words of the shell.
const CLOSED: [&str; 7] = [
    "<&-",
    ">&-",
    "2>&-",
    ">&- 2>&-",
    "<&- >&-",
    "<&- 2>&-",
    "<&- >&- 2>&-",
];

/// The program, started by a shell with these streams closed, in a session of its own or not.
fn without(closed: &str, has_session: bool, words: &[&str]) -> Command {
    let own = program();
    let mut shell = match has_session {
        true => Command::new("setsid"),
        false => Command::new("sh"),
    };
    if has_session {
        shell.args(["--wait", "sh"]);
    }
    shell.args(["-c", &format!("exec \"$0\" \"$@\" {closed}")]);
    shell.arg(own.get_program()).args(words);
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

fn run(closed: &str, has_session: bool, words: &[&str]) -> Run {
    let mut command = without(closed, has_session, words);
    Running::start(command.stdin(Stdio::null())).wait()
}

/// Data goes into the files that it is for, and messages go nowhere.
#[test]
fn no_file_takes_the_place_of_a_closed_stream() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let bytes = content(61, 300_000);
    let source = place.make_here("source", &bytes);
    for (number, closed) in CLOSED.into_iter().enumerate() {
        for has_session in [false, true] {
            let name = format!("f{number}-{has_session}");
            let target = place.here(&name);
            let url = server.url(&format!("/{name}"));
            // With messages on both streams, and several channels and files.
            let flags = ["cp", "-vv", "-n", "3"];
            run(
                closed,
                has_session,
                &[&flags[..], &[&source, &url]].concat(),
            )
            .ok();
            run(
                closed,
                has_session,
                &[&flags[..], &[&url, &target]].concat(),
            )
            .ok();
            assert_content(place.remote(&name), &bytes);
            assert_content(&target, &bytes);
            let none = server.url("/none");
            let words = ["cp", "-vv", none.as_str(), target.as_str(), "--force"];
            let failed = run(closed, has_session, &words);
            assert_eq!(failed.code, Some(4), "{closed}: {}", failed.stderr);
            let log = place.here("log");
            let words = ["--log-file", &log, "stat", &url];
            let ran = run(closed, has_session, &words);
            assert!(matches!(ran.code, Some(0 | 15)), "{closed}: {ran:?}");
            assert_content(&target, &bytes);
        }
    }
    assert_content(&source, &bytes);
}

/// A closed standard input isn't an empty file.
#[test]
fn input_that_was_never_there_is_an_error() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::write(place.remote("there"), b"content").unwrap();
    for (name, flag) in [("/new", "-q"), ("/there", "--force")] {
        for closed in ["<&-", "<&- >&- 2>&-"] {
            let run = run(closed, false, &["cp", flag, "-", &server.url(name)]);
            assert_eq!(run.code, Some(15), "{closed} {}", run.stderr);
        }
    }
    run("<&-", false, &["cp", "-", &server.url("/new")]).fails(15, &["standard input", "closed"]);
    assert!(!place.remote("new").exists());
    assert_eq!(fs::read(place.remote("there")).unwrap(), b"content");
    run("< /dev/null", false, &["cp", "-", &server.url("/new")]).ok();
    assert_eq!(fs::read(place.remote("new")).unwrap(), b"");
}

/// Output that can't be printed is an error, since it would be lost.
#[test]
fn output_that_would_be_lost_is_an_error() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("source", b"content");
    fs::write(place.remote("file"), b"content").unwrap();
    let (all, file, other) = (server.url("/"), server.url("/file"), server.url("/other"));
    let pages = place.here("pages");
    for words in [
        &["--help"][..],
        &["-h"],
        &["cp", "--help"],
        &["cp", "-h"],
        &["gridftp", "data-node", "--help"],
        &["gridftp", "-h"],
        &["--version"],
        &["-V"],
        &["man", &pages],
        &["ls", &all],
        &["ls", "--json", &all],
        &["cat", &file],
        &["stat", &file],
        &["sum", &file],
        &["find", &all],
        &["df", &all],
        &["cp", &file, "-"],
        &["cp", "--json", &source, &other],
        &["completions", "bash"],
    ] {
        for has_session in [false, true] {
            let closed = run(">&-", has_session, words);
            closed.fails(15, &["standard output", "it is closed"]);
        }
        assert_eq!(
            run(">&- 2>&- <&-", false, words).code,
            Some(15),
            "{words:?}"
        );
        // Who doesn't want the output says so.
        if !words.contains(&"--json") {
            run("> /dev/null", false, words).ok();
            run("<> /dev/null >&0", false, words).ok();
        }
    }
    // There is nothing to print.
    run(">&-", false, &["mkdir", &server.url("/d")]).ok();
    run(">&-", false, &["rm", &file]).ok();
}

#[test]
fn a_server_serves_without_standard_streams() {
    let place = Place::new();
    let socket = place.here("socket");
    let root = place.root();
    let listen = format!("unix:{socket}");
    let words = [
        "serve",
        "--root",
        root.to_str().unwrap(),
        "--listen",
        &listen,
    ];
    let mut command = without(
        "<&- >&- 2>&-",
        false,
        &[&words[..], &["--insecure"]].concat(),
    );
    let server = Guard::spawn(&mut command).unwrap();
    let is_there = || fs::symlink_metadata(&socket).is_ok();
    assert!(wait::until(PATIENCE, is_there));
    let bytes = content(62, 300_000);
    let source = place.make_here("source", &bytes);
    let url = format!("xdfs+unix://{}/", socket.replace('/', "%2F"));
    for name in ["a", "b"] {
        crate::support::xdfs(["cp", "--insecure", &source, &format!("{url}{name}")]).ok();
        assert_content(place.remote(name), &bytes);
    }
    crate::support::xdfs(["ls", "--insecure", &format!("{url}none")]).fails(4, &["/none"]);
    assert_eq!(names(&root), ["a", "b"]);
    for number in 0..3 {
        let stream = fs::read_link(format!("/proc/{}/fd/{number}", server.id())).unwrap();
        assert_eq!(stream.to_str(), Some("/dev/null"), "{number}");
    }
}
