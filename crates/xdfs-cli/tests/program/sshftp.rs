//! `xdfs serve --gridftp-over-ssh`: globus-url-copy through a real ssh and sshd, and by hand.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::{nobody, skip, wait};

use crate::ssh::Sshd;
use crate::support::{Place, Running, assert_content, content, program};

/// Longest wait for the end of a process.
const PATIENCE: Duration = Duration::from_secs(60);

/// What globus-url-copy starts for `sshftp://` URLs.
const HELPER: &str = "/usr/share/globus/gridftp-ssh";

/// globus-url-copy that finds a helper of ours, which starts the ssh of `sshd`, in a namespace of
/// mounts.
fn globus_url_copy(place: &Place, sshd: &Sshd) -> Command {
    let script = format!(
        "#!/bin/sh\nexec ssh -F '{}' -p \"$3\" \"$2\" '{} serve --gridftp-over-ssh'\n",
        sshd.client_config(),
        env!("CARGO_BIN_EXE_xdfs"),
    );
    let path = place.path().join("gridftp-ssh");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let run = "mount --bind \"$0\" \"$1\" && shift && exec globus-url-copy \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", run]).arg(path).arg(HELPER);
    command
}

/// globus-url-copy moves files and a tree both ways, in stream mode and in MODE E.
#[test]
fn globus_url_copy_comes_through_ssh() {
    if !Path::new(HELPER).exists() || !nobody::is_root() {
        return skip::test("it needs globus-gass-copy-progs and root");
    }
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    let bytes = content(3, 5_000_000);
    let here = place.make_here("f", &bytes);
    let tree = place.path().join("tree/inner");
    fs::create_dir_all(&tree).unwrap();
    for number in 0..20 {
        fs::write(tree.join(format!("f{number}")), content(number, 1000)).unwrap();
    }
    let url = |path: &str| {
        let root = place.root();
        format!(
            "sshftp://127.0.0.1:{}{}/{path}",
            sshd.port(),
            root.display()
        )
    };
    let copy = |words: &[&str], from: &str, to: &str| {
        let mut command = globus_url_copy(&place, &sshd);
        command.args(words).args([from, to]);
        let run = Running::start(command.stdin(Stdio::null())).wait();
        run.ok();
    };
    for (number, words) in [&[][..], &["-p", "4"], &["-fast"]].into_iter().enumerate() {
        let up = format!("up{number}");
        copy(words, &format!("file://{here}"), &url(&up));
        assert_content(place.remote(&up), &bytes);
        let down = place.path().join(format!("down{number}"));
        copy(words, &url(&up), &format!("file://{}", down.display()));
        assert_content(&down, &bytes);
    }
    let from = format!("file://{}/tree/", place.path().display());
    copy(&["-r", "-cd"], &from, &url("tree/"));
    let back = format!("file://{}/back/", place.path().display());
    copy(&["-r", "-cd"], &url("tree/"), &back);
    for number in 0..20 {
        let name = format!("back/inner/f{number}");
        assert_content(place.path().join(name), &content(number, 1000));
    }
}

/// Sends a line, and waits for the end of its reply.
#[track_caller]
fn ask(running: &mut Running, line: &str, reply: &str) -> String {
    running.write_input(format!("{line}\r\n").as_bytes());
    running.wait_for_output(reply)
}

/// The address that a client of PASV is told.
fn passive(reply: &str) -> (String, u16) {
    let numbers = reply.split(['(', ')']).nth(1).unwrap();
    let numbers: Vec<u16> = numbers.split(',').map(|n| n.parse().unwrap()).collect();
    let ip = numbers[..4].iter().map(u16::to_string);
    let ip = ip.collect::<Vec<_>>().join(".");
    (ip, numbers[4] * 256 + numbers[5])
}

fn started(connection: &str) -> Running {
    let mut command = program();
    command.args(["serve", "--gridftp-over-ssh"]);
    command.env("SSH_CONNECTION", connection);
    let running = Running::start(command.stdin(Stdio::piped()));
    running.wait_for_output("220 ");
    running
}

/// Any name logs in, data connections go nowhere else, and what has not come to its end when ssh
/// goes is not published.
#[test]
fn the_session_is_that_of_its_ssh() {
    let place = Place::new();
    let target = place.remote("half");
    let mut running = started("127.0.0.1 1 127.0.0.1 22");
    ask(&mut running, "USER somebody", "331 ");
    ask(&mut running, "PASS x", "230 ");
    let home = std::env::current_dir().unwrap();
    let shown = format!("257 \"{}\"", home.display());
    ask(&mut running, "PWD", &shown);
    ask(&mut running, "AUTH TLS", "\n5");
    // Nobody else's host.
    ask(&mut running, "PORT 192,0,2,1,200,200", "\n500 ");
    let reply = ask(&mut running, "PASV", "\n227 ");
    let reply = reply.lines().find(|line| line.starts_with("227")).unwrap();
    let (ip, port) = passive(reply);
    assert_eq!(ip, "127.0.0.1");
    let mut data = TcpStream::connect((ip, port)).unwrap();
    let store = format!("STOR {}", target.display());
    ask(&mut running, &store, "\n150 ");
    data.write_all(&content(1, 100_000)).unwrap();
    running.close_input();
    let run = running.wait();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    drop(data);
    assert!(!target.exists());
}

/// Commands that wait don't hide that the client is gone before its data connection ends.
#[test]
fn waiting_commands_hide_no_end() {
    let place = Place::new();
    let target = place.remote("half");
    let mut running = started("127.0.0.1 1 127.0.0.1 22");
    ask(&mut running, "USER somebody", "331 ");
    ask(&mut running, "PASS x", "230 ");
    let reply = ask(&mut running, "PASV", "\n227 ");
    let reply = reply.lines().find(|line| line.starts_with("227")).unwrap();
    let mut data = TcpStream::connect(passive(reply)).unwrap();
    ask(
        &mut running,
        &format!("STOR {}", target.display()),
        "\n150 ",
    );
    data.write_all(&content(1, 100_000)).unwrap();
    running.write_input(
        "CWD /a-directory-with-a-long-name\r\n"
            .repeat(2600)
            .as_bytes(),
    );
    running.close_input();
    // The pump has passed it on by then.
    std::thread::sleep(Duration::from_millis(300));
    drop(data);
    let run = running.wait();
    assert!(!target.exists(), "{}", run.text());
}

/// Without somebody who reads the replies the process ends.
#[test]
fn it_ends_when_nobody_listens() {
    let mut command = program();
    command.args(["serve", "--gridftp-over-ssh"]);
    command.env("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 22");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut greeting = [0; 4];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 ");
    drop(stdout);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"NOOP\r\nNOOP\r\n").unwrap();
    let has_ended = wait::until(PATIENCE, || child.try_wait().unwrap().is_some());
    let _ = child.kill();
    assert!(has_ended);
}
