//! `--log-file`: the log and the messages of a command in a file.

use std::fs;

use crate::support::{Place, Server, program, run_with_input, xdfs};

#[test]
fn messages_go_to_the_file_too() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("file", b"content");
    let log = place.here("log");
    let read = || fs::read_to_string(&log).unwrap();
    let (url, none) = (server.url("/file"), server.url("/none/"));
    let run = xdfs(["--log-file", &log, "cp", &source, &url]).ok();
    assert!(run.stderr.contains("file: 7 B in "), "{}", run.stderr);
    let first = read();
    let line = first
        .lines()
        .find(|line| line.contains("file: 7 B in "))
        .unwrap();
    // A time in UTC, and a level.
    assert!(
        line.contains(" INFO ") && line.contains('T') && line.contains("Z "),
        "{line}"
    );
    // Appended, with errors and their hints; quiet or not; without the engine's log at -v.
    let run = xdfs(["cp", "-f", "-I", "-q", &source, &url, "--log-file", &log]).ok();
    assert_eq!(run.stderr, "");
    let run = xdfs(["cp", "-vv", "--log-file", &log, &source, &none]);
    let run = run.fails(4, &["error: server "]);
    assert!(!run.stderr.contains(" DEBUG "), "{}", run.stderr);
    let text = read();
    assert!(text.starts_with(&first));
    assert_eq!(text.matches("file: 7 B in ").count(), 2, "{text}");
    assert!(text.contains(" DEBUG "), "{text}");
    let line = text.lines().find(|line| line.contains(" ERROR ")).unwrap();
    assert!(
        line.contains("error: server ") && line.contains("/none"),
        "{line}"
    );
    // Of commands about paths, and of a script with all its commands.
    xdfs(["ls", &server.url("/gone"), "--log-file", &log]).fails(4, &["/gone"]);
    assert!(read().contains("/gone"));
    let mut command = program();
    command.args(["shell", "--log-file", &log, &server.url("/")]);
    run_with_input(&mut command, b"ls\nls not-there\n").fails(4, &["/not-there"]);
    assert!(read().contains("/not-there"));
    let mut command = program();
    command.args(["shell", &server.url("/")]);
    let line = format!("ls --log-file {log}");
    run_with_input(&mut command, line.as_bytes()).fails(2, &["xdfs shell"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(fs::metadata(&log).unwrap().mode() & 0o777, 0o600);
    }
    // A log that can't be kept stops the command.
    let bad = place.here("no/log");
    xdfs(["--log-file", &bad, "rm", &url]).fails(4, &["open the log file", "no/log"]);
    assert!(place.remote("file").exists());
}

#[test]
fn a_server_logs_to_its_file() {
    let place = Place::new();
    let log = place.here("log");
    let flags = [
        "--listen",
        "127.0.0.1:0",
        "--log",
        "debug",
        "--log-file",
        &log,
    ];
    let mut server = Server::start_with(&place.root(), &flags);
    xdfs(["ls", &server.url("/")]).ok();
    server.running.kill();
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains(" DEBUG "), "{text}");
    // Warnings are shown too, and the log isn't.
    let shown = server.running.wait().stderr;
    assert!(
        !shown.contains(" DEBUG ") && !shown.contains(" INFO "),
        "{shown}"
    );
}

/// A line of the log that can't be written is lost, and nothing else is.
#[cfg(target_os = "linux")]
#[test]
fn what_can_not_be_logged_ends_nothing() {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use crate::support::Running;

    let closed_pipe = "mkfifo \"$PIPE\"; exec 4<>\"$PIPE\" 2>\"$PIPE\" 4<&-; exec \"$@\"";
    let cases = [
        ("exec \"$@\" >/dev/full 2>/dev/full", None),
        ("exec \"$@\" >&- 2>&-", None),
        (closed_pipe, None),
        ("exec \"$@\"", Some("/dev/full")),
        ("exec \"$@\" 2>/dev/full", Some("/dev/full")),
    ];
    for (script, log_file) in cases {
        let place = Place::new();
        let socket = place.here("socket");
        let through = |args: &[&str]| {
            let mut command = program();
            command.args(args).args(["-vv"]);
            if let Some(path) = log_file {
                command.args(["--log-file", path]);
            }
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh"]).arg(command.get_program());
            shell
                .args(command.get_args())
                .env("PIPE", place.here("pipe"));
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => shell.env(name, value),
                    None => shell.env_remove(name),
                };
            }
            let _ = fs::remove_file(place.here("pipe"));
            Running::start(shell.stdin(Stdio::null()))
        };
        let root = place.root();
        let listen = format!("unix:{socket}");
        let root = root.to_str().unwrap();
        let mut server = through(&["serve", "--root", root, "--listen", &listen]);
        let url = format!("xdfs+unix://{}/", socket.replace('/', "%2F"));
        let is_there = || xdfs(["ls", &url]).code == Some(0);
        assert!(
            xdfs_testkit::wait::until(Duration::from_secs(60), is_there),
            "{script}"
        );
        for number in 0..5 {
            let source = place.make_here("file", b"content");
            let target = format!("{url}file{number}");
            xdfs(["cp", &source, &target]).ok();
            // A client that can't say anything does its work too.
            let run = through(&["cp", &target, &place.here(&format!("back{number}"))]).wait();
            assert_eq!(run.code, Some(0), "{script}");
            xdfs(["rm", &format!("{url}none")]).fails(4, &[]);
        }
        assert!(!server.has_ended(), "{script}");
        server.signal("TERM");
        assert_eq!(server.wait().code, Some(0), "{script}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_log_that_is_full_is_said_once() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let run = xdfs(["--log-file", "/dev/full", "ls", "-l", &server.url("/none")]);
    let run = run.fails(4, &["error: server "]);
    let warning = "warning: cannot write the log file '/dev/full': no space left on device";
    assert_eq!(run.stderr.matches(warning).count(), 1, "{}", run.stderr);
}

/// A warning is something to look after, and a client that leaves isn't.
#[cfg(target_os = "linux")]
#[test]
fn clients_that_leave_are_no_warning() {
    use std::process::Stdio;

    use crate::support::Running;

    let place = Place::new();
    let mut server = Server::start(&place.root());
    let url = server.url("");
    xdfs(["perf", "--download", "--seconds", "0.2", "-n", "4", &url]).ok();
    xdfs(["perf", "--seconds", "0.2", "-n", "4", &url]).ok();
    server.running.wait_for_messages("a session ends", 2);
    let mut command = program();
    command.args(["cp", "--json", "-n", "4", "--limit-rate", "1M"]);
    command.args([&place.make_here("big", &[7; 8 << 20]), &server.url("/big")]);
    let mut copy = Running::start(command.stdin(Stdio::null()));
    copy.wait_for_bytes(1);
    copy.kill();
    server.running.wait_for_messages("a session ends", 3);
    server.running.signal("TERM");
    let log = server.running.wait().stderr;
    for line in log.lines().filter(|line| line.contains("a session ends")) {
        assert!(line.contains(" INFO "), "{line}");
        let (_, rest) = line.split_once("channels=").unwrap();
        let channels: String = rest.chars().take_while(char::is_ascii_digit).collect();
        assert!(
            (1..=4).contains(&channels.parse::<u32>().unwrap()),
            "{line}"
        );
    }
}
