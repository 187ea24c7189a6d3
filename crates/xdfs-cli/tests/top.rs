//! `xdfs top` at a terminal and without one, of a server and of a service.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::process::Guard;
use xdfs_testkit::terminal::Terminal;
use xdfs_testkit::tree::TempTree;

const PATIENCE: Duration = Duration::from_secs(60);
/// Leaves the alternate screen.
const LEFT: &str = "\x1b[?1049l";

/// The program, with keys and state of these tests.
fn program(tree: &TempTree) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    command
        .env("NO_COLOR", "1")
        .env("TERM", "xterm")
        .env("XDFS_CONFIG_DIR", tree.join("keys"))
        .env("XDFS_STATE_DIR", tree.join("state"));
    command
}

/// A server with metrics, and their URL.
fn server(tree: &TempTree) -> (Guard, String) {
    for folder in ["root", "keys", "state"] {
        std::fs::create_dir(tree.join(folder)).unwrap();
    }
    let mut command = program(tree);
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
    ]);
    let server = Guard::spawn(command.arg("--root").arg(tree.join("root"))).unwrap();
    let url = server.line(PATIENCE, |line| {
        line.strip_prefix("metrics at ").map(str::to_owned)
    });
    (server, url.unwrap())
}

#[track_caller]
fn sees(terminal: &Terminal, words: &str, from: usize) -> usize {
    let at = terminal.wait_for(words, from, PATIENCE);
    at.unwrap_or_else(|| panic!("'{words}' was not shown: {:?}", terminal.text()))
}

#[test]
fn a_server_is_watched_until_q_and_the_terminal_is_as_before() {
    let tree = TempTree::new(1).unwrap();
    let (server, url) = server(&tree);
    // A shell shows how the terminal is before and after.
    let mut command = Command::new("sh");
    for (name, value) in program(&tree).get_envs() {
        command.env(name, value.unwrap());
    }
    command.args([
        "-c",
        "stty -g; \"$0\" top \"$1\"; echo code $?; stty -g; echo end",
    ]);
    command.args([env!("CARGO_BIN_EXE_xdfs"), &url]);
    let mut terminal = Terminal::start(&command).unwrap();
    let at = sees(&terminal, "xdfs server at", 0);
    sees(&terminal, "sessions", at);
    sees(&terminal, "q quits", at);
    // The next reading knows rates.
    sees(&terminal, "0 B/s", at);
    terminal.send(b"q").unwrap();
    let at = sees(&terminal, LEFT, at);
    sees(&terminal, "code 0", at);
    sees(&terminal, "end", at);
    let text = terminal.text();
    let settings: Vec<_> = text
        .lines()
        .filter(|line| line.matches(':').count() > 20)
        .collect();
    assert_eq!(settings.len(), 2, "{text:?}");
    assert_eq!(settings[0].trim(), settings[1].trim());
    drop(server);
}

#[test]
fn a_server_that_ends_is_told_and_a_signal_restores_the_terminal() {
    let tree = TempTree::new(2).unwrap();
    let (mut server, url) = server(&tree);
    let mut command = program(&tree);
    command.args(["top", &url]);
    let mut terminal = Terminal::start(&command).unwrap();
    let at = sees(&terminal, "q quits", 0);
    server.kill().unwrap();
    let at = sees(&terminal, "! ", at);
    terminal.send(b"\x03").unwrap();
    sees(&terminal, LEFT, at);
    let status = terminal.wait(PATIENCE).unwrap();
    assert!(status.success(), "{:?}", terminal.text());
    assert!(
        !terminal.text().contains("panicked"),
        "{:?}",
        terminal.text()
    );
}

#[test]
fn it_draws_in_any_size_and_ends_with_its_terminal() {
    let tree = TempTree::new(3).unwrap();
    let (_server, url) = server(&tree);
    let mut command = program(&tree);
    command.args(["top", &url]);
    let mut terminal = Terminal::start(&command).unwrap();
    let mut at = sees(&terminal, "q quits", 0);
    for (columns, rows) in [(80, 24), (20, 5), (1, 1), (120, 40)] {
        terminal.resize(columns, rows).unwrap();
        if columns > 20 {
            at = sees(&terminal, "q quits", at);
        }
    }
    let status = terminal.hang_up(PATIENCE).unwrap().unwrap();
    assert!(status.success(), "{:?}", terminal.text());
    assert!(
        !terminal.text().contains("panicked"),
        "{:?}",
        terminal.text()
    );
}

#[test]
fn without_a_terminal_it_is_one_report_in_lines() {
    let tree = TempTree::new(4).unwrap();
    let (_server, url) = server(&tree);
    let run = program(&tree)
        .args(["top", &url])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{text}");
    for words in [
        "xdfs server at http://",
        "\nsessions: 0 of 256\n",
        "\nin: 0 B/s\n",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains('\x1b'), "{text:?}");

    let nothing = program(&tree)
        .args(["top", "http://127.0.0.1:1"])
        .output()
        .unwrap();
    assert_eq!(nothing.status.code(), Some(3));
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(
        said.contains("http://127.0.0.1:1") && said.contains("xdfs serve --metrics"),
        "{said}"
    );
    let other = program(&tree)
        .args(["top", "https://host"])
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(2));
}

#[test]
fn a_service_of_this_user_is_found_with_its_jobs() {
    let tree = TempTree::new(5).unwrap();
    let (server, _) = server(&tree);
    let address = server.line(PATIENCE, |line| {
        line.strip_prefix("listening on ").map(str::to_owned)
    });
    let target = format!("xdfs://{}/target", address.unwrap());
    let mut command = program(&tree);
    command.args(["service", "--listen", "127.0.0.1:0"]);
    let service = Guard::spawn(&mut command).unwrap();
    assert!(
        service
            .line(PATIENCE, |line| line.strip_prefix("open ").map(drop))
            .is_some()
    );
    let run = |words: &[&str]| {
        let run = program(&tree).args(words).output().unwrap();
        let errors = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{words:?}: {errors}");
        String::from_utf8(run.stdout).unwrap()
    };
    // From now on the server is known.
    run(&["ls", &target.replace("target", "")]);
    let source = tree.join("source");
    std::fs::write(&source, vec![1; 3_000_000]).unwrap();
    let source = source.to_str().unwrap();
    // In one word: only what changes is drawn, and spaces may be there already.
    let label = "slow-copy";
    run(&[
        "submit",
        "--label",
        label,
        "--limit-rate",
        "100k",
        source,
        &target,
    ]);
    let shown = xdfs_testkit::wait::until(PATIENCE, || {
        let text = run(&["top"]);
        assert!(text.starts_with("xdfs service at http://"), "{text}");
        text.contains("\nrunning: 1\n") && text.contains(label)
    });
    assert!(shown, "{}", run(&["top"]));
    let terminal = Terminal::start(program(&tree).arg("top")).unwrap();
    let at = sees(&terminal, "xdfs service at", 0);
    sees(&terminal, label, at);
    drop(service);
}
