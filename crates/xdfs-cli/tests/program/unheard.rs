//! A file was published, and whoever did it, whoever waits for the word of it, or both are killed
//! before it is heard. Nothing on the disk tells of it any more; the same command ends with 0.
//!
//! `strace` stops the publishing program when its journal is removed, which is the last it does
//! before it tells.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Place, Running, Server, assert_content, content, names, program, xdfs};

const SIZE: usize = 300_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// What `strace` notes of each thread that stops.
const STOPPED: &str = "stopped by SIGSTOP";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    Server,
    Both,
}

#[track_caller]
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it never came so far");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same command beneath `strace`, which isn't its parent.
fn traced(command: &Command, trace: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "-o"]).arg(trace);
    strace.args(["-P", ".target.xdfs-journal", "-e", "trace=unlinkat"]);
    strace.args(["-e", "inject=unlinkat:signal=SIGSTOP"]);
    beneath(strace, command)
}

/// A command that is the argument of `strace`.
pub(crate) fn beneath(mut strace: Command, command: &Command) -> Command {
    strace.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    strace.stdin(Stdio::null());
    strace
}

/// Whether `strace` can do it here; says so if not.
pub(crate) fn can_trace() -> bool {
    let mut able = Command::new("strace");
    able.args(["-D", "-e", "trace=none", "true"]);
    let status = able.stderr(Stdio::null()).status();
    let can = status.is_ok_and(|status| status.success());
    if !can {
        xdfs_testkit::skip::test("there is no strace that can trace a program");
    }
    can
}

/// Lets the program go on from its look for an older journal, and waits until it has removed its
/// own.
#[track_caller]
fn stopped_behind_publication(publisher: &Running, trace: &Path, target: &Path) {
    let noted = |words: &str| std::fs::read_to_string(trace).is_ok_and(|t| t.contains(words));
    wait_until(|| noted(STOPPED));
    assert!(!target.exists());
    publisher.signal("CONT");
    wait_until(|| noted(".target.xdfs-journal\", 0) = 0"));
    assert_eq!(names(target.parent().unwrap()), ["target"]);
}

fn round(is_upload: bool, victim: Victim) {
    let place = Place::new();
    let (trace, bytes) = (place.path().join("trace"), content(71, SIZE));
    let (source, target): (PathBuf, PathBuf) = if is_upload {
        (place.here("source").into(), place.remote("target"))
    } else {
        (place.remote("source"), place.here("target").into())
    };
    std::fs::write(&source, &bytes).unwrap();
    let listen = ["--listen", "127.0.0.1:0"];
    let mut server = if is_upload {
        Server::start_as(&place.root(), &listen, |serve| traced(&serve, &trace))
    } else {
        Server::start_with(&place.root(), &listen)
    };
    let address = server.addresses[0].clone();
    let mut copy = program();
    copy.args(["cp", "--json", "-n", "1"]);
    if is_upload {
        copy.arg(&source).arg(server.url("/target"));
    } else {
        copy.arg(server.url("/source")).arg(&target);
    }
    copy.stdin(Stdio::null());
    let mut client = if is_upload {
        Running::start(&mut copy)
    } else {
        Running::start(&mut traced(&copy, &trace))
    };
    let publisher = if is_upload { &server.running } else { &client };
    stopped_behind_publication(publisher, &trace, &target);
    if victim != Victim::Server {
        client.kill();
    }
    if victim == Victim::Client {
        server.running.signal("CONT");
    } else {
        server.running.kill();
        server = Server::start_with(&place.root(), &["--listen", &address]);
    }
    if victim == Victim::Server {
        // It goes on by itself.
        client.signal("CONT");
        client.wait().ok();
    }
    let args: Vec<_> = copy.get_args().map(ToOwned::to_owned).collect();
    let again = xdfs(&args).ok();
    assert_eq!(again.result()["resumed_bytes"], SIZE, "{}", again.text());
    assert_content(&target, &bytes);
    assert_eq!(names(target.parent().unwrap()), ["target"]);
    // It is that file alone which is taken for it.
    let time = std::fs::metadata(&target).unwrap().modified().unwrap();
    let mut other = bytes;
    other[SIZE / 2] ^= 1;
    std::fs::write(&target, &other).unwrap();
    let file = std::fs::File::options().write(true).open(&target).unwrap();
    file.set_modified(time).unwrap();
    // Size and time are the same: only the content tells.
    let flag = OsString::from("--ignore-times");
    let exactly = args.iter().chain([&flag]);
    xdfs(exactly).fails(6, &["the target exists", "--force"]);
    assert_content(&target, &other);
    drop(server);
}

#[test]
fn uploads_that_nobody_heard_of() {
    if can_trace() {
        for victim in [Victim::Client, Victim::Server, Victim::Both] {
            round(true, victim);
        }
    }
}

#[test]
fn downloads_that_nobody_heard_of() {
    if can_trace() {
        for victim in [Victim::Client, Victim::Server, Victim::Both] {
            round(false, victim);
        }
    }
}
