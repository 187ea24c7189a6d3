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
