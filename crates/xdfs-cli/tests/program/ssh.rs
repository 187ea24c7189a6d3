//! `ssh://` URLs, with a real sshd of these tests on this machine.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::{skip, sshd, wait};

use crate::support::{Place, Run, Running, content, program, run_with_input};

const SSHD: &str = "/usr/sbin/sshd";
/// Longest wait for what has to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// An sshd, and a place for what is copied through it.
#[derive(Debug)]
pub(crate) struct Sshd {
    place: Place,
    port: u16,
    daemon: sshd::Sshd,
}

impl Sshd {
    /// Starts one; `None` where there is none, and the test is over.
    #[track_caller]
    pub(crate) fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// Starts one with further settings.
    #[track_caller]
    pub(crate) fn start_with(settings: &str) -> Option<Self> {
        let place = Place::new();
        let daemon = sshd::Sshd::start(place.path(), settings).unwrap()?;
        Some(Self {
            place,
            port: daemon.port(),
            daemon,
        })
    }

    /// The port that it listens at, on loopback.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The settings of a client.
    pub(crate) fn client_config(&self) -> String {
        self.daemon.client_config().display().to_string()
    }

    /// The ssh command for it.
    pub(crate) fn ssh(&self) -> String {
        format!("ssh -F '{}'", self.client_config())
    }

    /// The program, with the ssh command and the program to start there in the environment.
    fn command(&self) -> Command {
        let mut command = program();
        command.env("XDFS_SSH", self.ssh());
        command.env("XDFS_REMOTE_PROGRAM", env!("CARGO_BIN_EXE_xdfs"));
        // The socket of what goes through ssh goes here.
        let temporary = self.place.path().join("tmp");
        std::fs::create_dir_all(&temporary).unwrap();
        command.env("TMPDIR", temporary);
        command.stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> Run {
        Running::start(self.command().args(words)).wait()
    }

    /// The URL of an absolute path.
    fn url(&self, path: &Path) -> String {
        format!("ssh://127.0.0.1:{}{}", self.port, path.display())
    }

    /// The URL of a path in `root`.
    fn root_url(&self, name: &str) -> String {
        self.url(&self.place.remote(name))
    }
}

/// The ids and command lines of all processes.
pub(crate) fn processes() -> Vec<(String, String)> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let line = |process: std::fs::DirEntry| {
        let line = std::fs::read(process.path().join("cmdline")).ok()?;
        let id = process.file_name().into_string().ok()?;
        Some((id, String::from_utf8_lossy(&line).replace('\0', " ")))
    };
    all.filter_map(line).collect()
}

/// The running ssh with these settings: its id, and the socket of the server that it started.
fn running_ssh(sshd: &Sshd) -> Option<(String, String)> {
    let own = sshd.place.path().display().to_string();
    let ours = |line: &str| line.starts_with("ssh ") && line.contains(&own);
    processes().into_iter().find_map(|(id, line)| {
        let (_, socket) = line.rsplit_once("--over-ssh ").filter(|_| ours(&line))?;
        Some((id, socket.trim().to_owned()))
    })
}

/// Whether the server with this socket runs, or the ssh that started it.
fn runs(socket: &str) -> bool {
    let ours = |line: &str| line.contains("--over-ssh") && line.contains(socket);
    processes().iter().any(|(_, line)| ours(line))
}

#[track_caller]
fn wait_until(what: &str, fact: impl FnMut() -> bool) {
    assert!(wait::until(PATIENCE, fact), "{what}: never");
}

#[test]
fn files_go_both_ways_and_nothing_stays() {
    let Some(sshd) = Sshd::start() else { return };
    let bytes = content(1, 3_000_000);
    let file = sshd.place.make_here("f", &bytes);
    let run = sshd.run(&["cp", &file, &sshd.root_url("")]).ok();
    assert!(!run.stderr.contains("through ssh"), "{}", run.stderr);
    assert_eq!(std::fs::read(sshd.place.remote("f")).unwrap(), bytes);
    let back = sshd.place.here("back");
    sshd.run(&["cp", &sshd.root_url("f"), &back]).ok();
    assert_eq!(std::fs::read(back).unwrap(), bytes);
    // Neither side keeps anything: no socket, key or known server.
    let temporary = sshd.place.path().join("tmp");
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
    assert_eq!(running_ssh(&sshd), None);
}

#[test]
fn trees_and_synchronisations() {
    let Some(sshd) = Sshd::start() else { return };
    let tree = PathBuf::from(sshd.place.here("tree"));
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    for at in 0..300 {
        std::fs::write(tree.join(format!("a/b/{at}")), format!("{at}")).unwrap();
    }
    std::fs::write(tree.join("large"), content(2, 2_000_000)).unwrap();
    let tree = tree.to_str().unwrap();
    sshd.run(&["cp", "-r", tree, &sshd.root_url("")]).ok();
    let there = sshd.place.remote("tree");
    assert_eq!(std::fs::read(there.join("a/b/299")).unwrap(), b"299");
    std::fs::remove_file(there.join("a/b/7")).unwrap();
    std::fs::write(there.join("a/more"), "more").unwrap();
    sshd.run(&["sync", "--delete", tree, &sshd.root_url("tree")])
        .ok();
    assert_eq!(std::fs::read(there.join("a/b/7")).unwrap(), b"7");
    assert!(!there.join("a/more").exists());
    let back = sshd.place.here("back");
    sshd.run(&["sync", &sshd.root_url("tree"), &back]).ok();
    let large = std::fs::read(Path::new(&back).join("large")).unwrap();
    assert_eq!(large, content(2, 2_000_000));
}

#[test]
fn paths_are_those_of_a_login() {
    let Some(sshd) = Sshd::start() else { return };
    let file = sshd.place.make_here("f", b"content");
    // An absolute link is followed as in a login, although it leads out of any directory served.
    std::fs::create_dir(sshd.place.remote("data")).unwrap();
    std::os::unix::fs::symlink(sshd.place.remote("data"), sshd.place.remote("link")).unwrap();
    sshd.run(&["cp", &file, &sshd.root_url("link/")]).ok();
    assert_eq!(
        std::fs::read(sshd.place.remote("data/f")).unwrap(),
        b"content"
    );
    // The account's own home isn't touched: the server begins elsewhere.
    let home = sshd.place.root();
    let program = format!("cd '{}' && {}", home.display(), env!("CARGO_BIN_EXE_xdfs"));
    let at = |path: &str| format!("ssh://127.0.0.1:{}{path}", sshd.port);
    let in_home = |words: &[&str]| {
        let mut command = sshd.command();
        command.env("XDFS_REMOTE_PROGRAM", &program).args(words);
        Running::start(&mut command).wait()
    };
    for (url, expected) in [
        ("", "data\nlink\n"),
        ("/~", "data\nlink\n"),
        ("/~/data", "f\n"),
        ("/~/data/../data/", "f\n"),
    ] {
        assert_eq!(in_home(&["ls", &at(url)]).ok().text(), expected, "{url}");
    }
    in_home(&["cp", &file, &at("")]).ok();
    in_home(&["cp", &file, &at("/~/g")]).ok();
    in_home(&["cp", &file, &file.replace("/f", "/./f"), &at("/~/data/")]).fails(2, &["'f'"]);
    for name in ["f", "g"] {
        assert_eq!(std::fs::read(home.join(name)).unwrap(), b"content");
    }
    let second = sshd.place.make_here("second", b"2");
    in_home(&["cp", "--force", &file, &second, &at("/~/data")]).ok();
    assert_eq!(std::fs::read(home.join("data/second")).unwrap(), b"2");
    // A shell has one ssh for all its commands, and begins in the home.
    let mut command = sshd.command();
    command.env("XDFS_REMOTE_PROGRAM", &program);
    command.args(["shell", &at("")]);
    let input = format!("pwd\nls\ncd data\nls\nls {}\n", at("/~/data"));
    let run = run_with_input(&mut command, input.as_bytes()).ok();
    let expected = format!(
        "{}\ndata\nf\ng\nlink\nf\nsecond\nf\nsecond\n",
        home.display()
    );
    assert_eq!(run.text(), expected);
    // One for each command before, and one for the shell.
    assert_eq!(sshd.daemon.logins(), 1 + 4 + 3 + 1);
}

#[test]
fn addresses_are_found_whatever_sshd_knows() {
    let Some(sshd) = Sshd::start() else { return };
    std::fs::write(sshd.place.remote("f"), "content").unwrap();
    let ssh = format!("{} -o HostName=127.0.0.1", sshd.ssh());
    let url = sshd.root_url("f").replace("127.0.0.1", "no-name.invalid");
    let cat = |connection: &str| {
        let program = env!("CARGO_BIN_EXE_xdfs");
        let program = format!("env SSH_CONNECTION='{connection}' '{program}'");
        let mut command = sshd.command();
        command.env("XDFS_REMOTE_PROGRAM", program);
        command.env("XDFS_SSH", &ssh).args(["cat", &url]);
        Running::start(&mut command).wait().ok()
    };
    // Nobody says where ssh came in: the settings of ssh know what the alias stands for.
    let run = cat("UNKNOWN 1 UNKNOWN 2");
    assert_eq!(run.text(), "content");
    assert_eq!(run.stderr, "");
    // An address that isn't one of that machine: nothing but the socket is left.
    let run = cat("127.0.0.1 1 203.0.113.7 22");
    assert_eq!(run.text(), "content");
    assert!(run.stderr.contains("through ssh, since no port"));
}

#[test]
fn what_cant_go_directly_goes_through_ssh() {
    let Some(sshd) = Sshd::start() else { return };
    let can = Command::new("unshare").args(["-n", "true"]).output();
    if !can.is_ok_and(|run| run.status.success()) {
        return skip::test("it needs a network of its own");
    }
    // The server there listens in a network that nobody reaches: only ssh leads into it.
    let config = sshd.place.path().join("sshd_config");
    let ssh = format!(
        "{} -o 'ProxyCommand=unshare -n {SSHD} -i -f {}'",
        sshd.ssh(),
        config.display()
    );
    let file = sshd.place.make_here("f", &content(3, 5_000_000));
    let through = |words: &[&str]| {
        let mut command = sshd.command();
        command.env("XDFS_SSH", &ssh).args(words);
        Running::start(&mut command).wait()
    };
    let said = "through ssh, since port ";
    let run = through(&["cp", "-n", "4", &file, &sshd.root_url("f")]).ok();
    assert_eq!(run.stderr.matches(said).count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("of 127.0.0.1 can't be reached"));
    let back = sshd.place.here("back");
    let run = through(&["cp", "-q", &sshd.root_url("f"), &back]).ok();
    assert_eq!(run.stderr, "");
    assert_eq!(std::fs::read(back).unwrap(), content(3, 5_000_000));
    through(&["cp", "-r", &sshd.place.here(""), &sshd.root_url("")]).ok();
    let temporary = sshd.place.path().join("tmp");
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
    // If ssh may not forward either, nothing works.
    let forbids = std::fs::read_to_string(&config).unwrap() + "DisableForwarding yes\n";
    std::fs::write(&config, forbids).unwrap();
    through(&["ls", &sshd.root_url("")]).fails(
        3,
        &["can't be reached, and ssh forwards nothing", "firewall"],
    );
}

#[test]
fn a_killed_command_leaves_no_server() {
    let Some(sshd) = Sshd::start() else { return };
    let file = sshd.place.make_here("f", &content(4, 8_000_000));
    let mut command = sshd.command();
    command.args(["cp", "--json", "--limit-rate", "1M", &file]);
    let mut running = Running::start(command.arg(sshd.root_url("f")));
    running.wait_for_bytes(1);
    let (_, socket) = running_ssh(&sshd).unwrap();
    assert!(runs(&socket) && Path::new(&socket).exists());
    running.kill();
    wait_until("the server ends", || !runs(&socket));
    assert!(!Path::new(&socket).exists(), "its socket is there");
    // What arrived is kept.
    sshd.run(&["cp", &file, &sshd.root_url("f")]).ok();
    let there = std::fs::read(sshd.place.remote("f")).unwrap();
    assert_eq!(there, content(4, 8_000_000));
}

#[test]
fn ctrl_c_stops_in_an_orderly_way() {
    let Some(sshd) = Sshd::start() else { return };
    let file = sshd.place.make_here("f", &content(8, 8_000_000));
    let mut command = sshd.command();
    command.args(["cp", "--json", "--limit-rate", "1M", &file]);
    // As on a terminal: ssh gets the signal too.
    command.arg(sshd.root_url("f")).process_group(0);
    let mut running = Running::start(&mut command);
    running.wait_for_bytes(1);
    let (_, socket) = running_ssh(&sshd).unwrap();
    running.signal_group("INT");
    running
        .wait()
        .fails(130, &["stopping in an orderly way", "to resume"]);
    wait_until("the server ends", || !runs(&socket));
}

#[test]
fn a_broken_ssh_ends_the_command() {
    let Some(sshd) = Sshd::start() else { return };
    for at in 0..12 {
        sshd.place
            .make_here(&format!("f{at}"), &content(at, 700_000));
    }
    let tree = sshd.place.here("");
    let mut command = sshd.command();
    command.args(["cp", "-r", "--json", "--limit-rate", "500K", &tree]);
    let mut running = Running::start(command.arg(sshd.root_url("")));
    running.wait_for_bytes(1);
    let (ssh, socket) = running_ssh(&sshd).unwrap();
    let killed = Command::new("kill").args(["-9", &ssh]).status();
    assert!(killed.unwrap().success());
    let run = running.wait();
    assert_ne!(run.code, Some(0));
    assert!(
        run.stderr.contains("the connection of ssh to"),
        "{}",
        run.stderr
    );
    wait_until("the server ends", || !runs(&socket));
}

#[test]
fn no_command_line_holds_a_secret() {
    let Some(sshd) = Sshd::start() else { return };
    let file = sshd.place.make_here("f", &content(6, 4_000_000));
    // What the server hands over, through an ssh that keeps a copy.
    let copy = sshd.place.path().join("copy");
    let wrapper = sshd.place.path().join("wrapper");
    let script = format!(
        "#!/bin/sh\nssh -F '{}' \"$@\" | tee -a '{}'\n",
        sshd.place.path().join("ssh_config").display(),
        copy.display()
    );
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o700)).unwrap();
    let mut command = sshd.command();
    command.args(["cp", "--json", "--limit-rate", "1M", "--ssh"]);
    command.arg(&wrapper).arg(&file);
    let mut running = Running::start(command.arg(sshd.root_url("f")));
    running.wait_for_bytes(1);
    let handed_over = std::fs::read_to_string(&copy).unwrap();
    let ticket = handed_over.split("\"ticket\":\"").nth(1).unwrap();
    let ticket = ticket.split('"').next().unwrap();
    assert!(ticket.len() > 40, "{handed_over}");
    let lines = processes();
    assert!(lines.iter().any(|(_, line)| line.contains("--over-ssh")));
    assert!(!lines.iter().any(|(_, line)| line.contains(ticket)));
    running.kill();
}

#[test]
fn what_is_wrong_is_told() {
    let Some(sshd) = Sshd::start() else { return };
    let url = sshd.root_url("");
    let missing = ["ls", "--remote-program", "no-such-xdfs", &url];
    sshd.run(&missing)
        .fails(4, &["no program 'no-such-xdfs' there", "--remote-program"]);
    // A program of that name which is something else, or older.
    for (program, words) in [
        ("false", "ended before it listened"),
        ("sh -c 'exit 2' --", "doesn't know serve --over-ssh"),
        ("echo xdfs-over-ssh 2", "of another version"),
    ] {
        let run = sshd.run(&["ls", "--remote-program", program, &url]);
        assert_ne!(run.code, Some(0));
        assert!(run.stderr.contains(words), "{program}: {}", run.stderr);
    }
    // What the user's start-up files print is no answer.
    for print in ["echo welcome", "printf hello"] {
        let chatty = format!("{print}; {}", env!("CARGO_BIN_EXE_xdfs"));
        sshd.run(&["ls", "--remote-program", &chatty, &url]).ok();
    }
    let wrong = sshd.place.path().join("wrong");
    let ssh = format!("{} -o UserKnownHostsFile='{}'", sshd.ssh(), wrong.display());
    sshd.run(&["ls", "--ssh", &ssh, &url])
        .fails(3, &["HOST IDENTIFICATION HAS CHANGED", "could not connect"]);
    let other = sshd.place.path().join("other");
    let ssh = format!("ssh -i '{}' -F none -o BatchMode=yes", other.display());
    sshd.run(&["ls", "--ssh", &ssh, &url])
        .fails(3, &["could not connect or log in"]);
    sshd.run(&["ls", "--ssh", "/no/such/ssh", &url])
        .fails(4, &["/no/such/ssh", "--ssh"]);
    sshd.run(&["ls", "--ssh", "ssh 'x", &url])
        .fails(2, &["read the ssh command"]);
    for flag in [
        &["--insecure"][..],
        &["--known-only"],
        &["--key", "k"],
        &["--password-file", "p"],
    ] {
        let words = [&["ls"], flag, &[&url]].concat();
        sshd.run(&words).fails(2, &["ssh logs in"]);
    }
    for bad in ["ssh://-oProxyCommand=x/", "ssh:///x", "ssh://a;b/"] {
        sshd.run(&["ls", bad]).fails(2, &["read the URL"]);
    }
    // A port that nobody listens at.
    let port = sshd::free_port().unwrap();
    let file = sshd.place.make_here("f", b"1");
    let nobody_there = format!("ssh://127.0.0.1:{port}/x");
    sshd.run(&["cp", &file, &nobody_there])
        .fails(3, &["could not connect"]);
    let temporary = sshd.place.path().join("tmp");
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
}

/// Each of two names for a machine is reached by its own ssh.
#[test]
fn names_of_servers_have_an_ssh_of_their_own() {
    let Some(sshd) = Sshd::start() else { return };
    std::fs::write(sshd.place.remote("f"), "1").unwrap();
    let folder = sshd.place.here("config");
    std::fs::create_dir(&folder).unwrap();
    let url = sshd.root_url("");
    let remote =
        |name: &str, ssh: &str| format!("[remote.{name}]\nurl = \"{url}\"\nssh = \"{ssh}\"\n");
    let text = [
        remote("lab", &sshd.ssh()),
        remote("wrong", &format!("{} -o HostKeyAlias=other", sshd.ssh())),
    ];
    std::fs::write(format!("{folder}/config.toml"), text.concat()).unwrap();
    let run = |words: &[&str]| {
        let mut command = sshd.command();
        command
            .env("XDFS_CONFIG_DIR", &folder)
            .env("XDFS_SSH", "false");
        Running::start(command.args(words)).wait()
    };
    assert_eq!(run(&["ls", "lab:"]).ok().text(), "f\n");
    let refused = run(&["ls", "lab:", "wrong:"]).fails(3, &["could not connect or log in"]);
    assert!(refused.text().contains('f'), "{refused:?}");
    run(&["ls", "--ssh", &sshd.ssh(), "wrong:"]).ok();
}

#[test]
fn the_server_ends_with_its_input_and_takes_only_its_ticket() {
    let place = Place::new();
    let socket = place.path().join("s");
    let mut command = program();
    command.arg("serve").arg("--over-ssh").arg(&socket);
    command.env("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 22");
    command.stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    running.wait_for_output("xdfs-over-ssh 1 ");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let encoded = socket.to_str().unwrap().replace('/', "%2F");
    // Neither the keys of this user nor guesses open it.
    let url = format!("xdfs+unix://{encoded}/");
    let words = ["ls", &url];
    let run = Running::start(program().args(words).stdin(Stdio::null())).wait();
    run.fails(16, &[]);
    running.close_input();
    let run = running.wait();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(!socket.exists());
    assert!(run.text().contains("\"addresses\":[\"127.0.0.1:"));
}

#[test]
fn a_file_goes_on_over_another_ssh() {
    let Some(sshd) = Sshd::start() else { return };
    let file = sshd.place.make_here("f", &content(7, 6_000_000));
    let mut command = sshd.command();
    command.args(["cp", "--json", "--limit-rate", "1M", &file]);
    let mut running = Running::start(command.arg(sshd.root_url("f")));
    running.wait_for_bytes(1);
    let (ssh, _) = running_ssh(&sshd).unwrap();
    let killed = Command::new("kill").args(["-9", &ssh]).status();
    assert!(killed.unwrap().success());
    running.wait().ok();
    let there = std::fs::read(sshd.place.remote("f")).unwrap();
    assert_eq!(there, content(7, 6_000_000));
    assert_eq!(sshd.daemon.logins(), 2);
}
