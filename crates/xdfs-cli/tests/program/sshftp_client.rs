//! `sshftp://` places of the client, through a real ssh and sshd, at xdfs and the Globus server.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::sshd::free_port;
use xdfs_testkit::terminal::Terminal;
use xdfs_testkit::{nobody, skip, wait};

use crate::ssh::{Sshd, processes};
use crate::support::{
    Place, Run, Running, Server, assert_content, content, names, program, run_with_input,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that need several data connections.
const LARGE: usize = 12_000_001;

/// A machine that is reached by ssh. Its logins begin in the served directory of `place`.
struct Machine {
    place: Place,
    sshd: Sshd,
}

impl Machine {
    /// Starts its sshd, whose logins start this script for GridFTP; `None` where there is no sshd.
    #[track_caller]
    fn start(script: &str) -> Option<Self> {
        Self::commanded(script, "exec sh -c \"$SSH_ORIGINAL_COMMAND\"")
    }

    /// The same, where all that logins may do is this command.
    #[track_caller]
    fn commanded(script: &str, command: &str) -> Option<Self> {
        let place = Place::new();
        let home = place.path().join("home");
        fs::create_dir_all(home.join(".globus")).unwrap();
        write_script(&home.join(".globus/sshftp"), script);
        let forced = format!("ForceCommand cd '{}' && {command}", home.display());
        let sshd = Sshd::start_with(&forced)?;
        Some(Self { place, sshd })
    }

    /// The script of xdfs.
    fn xdfs() -> Option<Self> {
        let program = env!("CARGO_BIN_EXE_xdfs");
        Self::start(&format!("exec '{program}' serve --gridftp-over-ssh"))
    }

    /// The script of the Globus server.
    #[track_caller]
    fn globus() -> Option<Self> {
        if !Path::new("/usr/sbin/globus-gridftp-server").exists() {
            skip::test("it needs globus-gridftp-server-progs");
            return None;
        }
        let flags = match nobody::is_root() {
            true => " -aa -anonymous-user root -allow-root",
            false => "",
        };
        Self::start(&format!(
            "PATH=$PATH:/usr/sbin exec globus-gridftp-server -ssh{flags}"
        ))
    }

    fn command(&self) -> Command {
        let mut command = program();
        // Only ssh:// places start it.
        command.env("XDFS_REMOTE_PROGRAM", "false");
        command.env("XDFS_SSH", self.sshd.ssh());
        command.stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> Run {
        let mut command = self.command();
        command.arg(words[0]).args(["--protect", "clear"]);
        Running::start(command.args(&words[1..])).wait()
    }

    /// The URL of a name in the served directory.
    fn url(&self, name: &str) -> String {
        let root = self.place.root();
        format!(
            "sshftp://127.0.0.1:{}/{}/{name}",
            self.sshd.port(),
            root.display()
        )
    }

    /// The ids of its clients' ssh that run.
    fn connections(&self) -> Vec<String> {
        let config = self.sshd.client_config();
        let is_own = |line: &str| line.contains(&config) && line.contains("xdfs-sshftp");
        let all = processes().into_iter();
        all.filter(|(_, line)| is_own(line))
            .map(|(id, _)| id)
            .collect()
    }

    /// Kills them.
    #[track_caller]
    fn cut(&self) {
        let ids = self.connections();
        assert!(!ids.is_empty());
        for id in ids {
            // It may have ended by itself.
            let _ = Command::new("kill").args(["-9", &id]).status();
        }
    }
}

fn write_script(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes a tree of small files and one large one.
fn make_tree(at: &Path) {
    fs::create_dir_all(at.join("a/b c")).unwrap();
    for number in 0..80 {
        fs::write(at.join(format!("a/b c/{number}")), content(number, 700)).unwrap();
    }
    fs::write(at.join("large"), content(5, LARGE)).unwrap();
    fs::write(at.join("empty"), "").unwrap();
}

#[track_caller]
fn assert_tree(at: &Path) {
    for number in 0..80 {
        assert_content(at.join(format!("a/b c/{number}")), &content(number, 700));
    }
    assert_content(at.join("large"), &content(5, LARGE));
    assert_content(at.join("empty"), b"");
    assert_eq!(names(at), ["a", "empty", "large"]);
}

/// Every command that has something to do with paths.
#[track_caller]
fn works(machine: &Machine) {
    let place = &machine.place;
    let bytes = content(1, LARGE);
    let file = place.make_here("f", &bytes);
    for streams in ["1", "4"] {
        machine
            .run(&["cp", "-f", "-n", streams, &file, &machine.url("f")])
            .ok();
        assert_content(place.remote("f"), &bytes);
        let back = place.here("back");
        machine
            .run(&["cp", "-f", "-n", streams, &machine.url("f"), &back])
            .ok();
        assert_content(&back, &bytes);
    }
    assert_eq!(names(place.root()), ["f"]);
    let there = machine.run(&["sum", &machine.url("f")]).ok().text();
    let here = Running::start(program().args(["sum", &file]))
        .wait()
        .ok()
        .text();
    assert_eq!(there.split(' ').next(), here.split(' ').next());
    machine.run(&["mkdir", "-p", &machine.url("d/e")]).ok();
    machine
        .run(&["mv", &machine.url("f"), &machine.url("d/e/g")])
        .ok();
    let listed = machine.run(&["ls", "-l", &machine.url("d/e")]).ok().text();
    assert!(
        listed.contains(&LARGE.to_string()) && listed.contains('g'),
        "{listed}"
    );
    assert!(
        machine
            .run(&["stat", &machine.url("d")])
            .ok()
            .text()
            .contains("directory")
    );
    let used = machine.run(&["du", "-s", &machine.url("d")]).ok().text();
    let kib = LARGE.div_ceil(1024).to_string();
    assert!(used.starts_with(&kib), "{used}");
    machine.run(&["rm", "-r", &machine.url("d")]).ok();
    assert_eq!(names(place.root()), [""; 0]);
    let tree = PathBuf::from(place.here("tree"));
    make_tree(&tree);
    let (tree, back) = (tree.to_str().unwrap(), place.here("tree-back"));
    machine.run(&["cp", "-r", tree, &machine.url("tree")]).ok();
    assert_tree(&place.remote("tree"));
    machine.run(&["cp", "-r", &machine.url("tree"), &back]).ok();
    assert_tree(Path::new(&back));
    fs::remove_file(place.remote("tree/a/b c/7")).unwrap();
    fs::write(place.remote("tree/more"), "more").unwrap();
    machine
        .run(&["sync", "--delete", tree, &machine.url("tree")])
        .ok();
    assert_tree(&place.remote("tree"));
    machine.run(&["rm", "-r", &machine.url("tree")]).ok();
    assert_eq!(names(place.root()), [""; 0]);
    assert!(wait::until(PATIENCE, || machine.connections().is_empty()));
}

#[test]
fn everything_goes_both_ways_at_xdfs() {
    if let Some(machine) = Machine::xdfs() {
        works(&machine);
        // The directory of the login is that of ssh.
        let url = format!("sshftp://127.0.0.1:{}/~/x", machine.sshd.port());
        let file = machine.place.make_here("x", b"1");
        machine.run(&["cp", &file, &url]).ok();
        assert_content(machine.place.path().join("home/x"), b"1");
    }
}

#[test]
fn everything_goes_both_ways_at_globus() {
    if let Some(machine) = Machine::globus() {
        works(&machine);
    }
}

/// Data in clear has to be wanted, and ssh alone logs in.
#[test]
fn consent_is_needed() {
    let Some(machine) = Machine::xdfs() else {
        return;
    };
    fs::write(machine.place.remote("f"), "content").unwrap();
    let url = machine.url("f");
    let run = |words: &[&str]| Running::start(machine.command().args(words)).wait();
    run(&["cat", &url]).fails(17, &["unencrypted", "--protect clear", "ssh://"]);
    for level in ["private", "safe"] {
        run(&["cat", "--protect", level, &url]).fails(17, &["--protect clear"]);
    }
    // Which is what there is.
    let unauthenticated = run(&["cat", "--protect", "unauthenticated", &url]);
    assert_eq!(unauthenticated.ok().text(), "content");
    assert_eq!(run(&["cat", "--insecure", &url]).ok().text(), "content");
    for flag in [
        &["--known-only"][..],
        &["--key", "k"],
        &["--password-file", "p"],
    ] {
        run(&[&["cat"], flag, &[&url]].concat()).fails(2, &["ssh logs in"]);
    }
    // A server with a name has it in its settings.
    let folder = machine.place.here("config");
    fs::create_dir(&folder).unwrap();
    let root = machine.url("");
    let text = format!("[remote.lab]\nurl = \"{root}\"\nprotect = \"clear\"\n");
    fs::write(format!("{folder}/config.toml"), text).unwrap();
    let mut command = machine.command();
    command
        .env("XDFS_CONFIG_DIR", &folder)
        .args(["cat", "lab:f"]);
    assert_eq!(Running::start(&mut command).wait().ok().text(), "content");
}

/// What ssh says last, and what is wrong with what it starts, is in the message.
#[test]
fn what_is_wrong_is_told() {
    let Some(machine) = Machine::start("echo no more seats >&2; exit 3") else {
        return;
    };
    let url = machine.url("f");
    let cat = |flags: &[&str], url: &str| machine.run(&[&["cat"], flags, &[url]].concat());
    cat(&[], &url).fails(3, &["exit status: 3", "no more seats"]);
    let script = machine.place.path().join("home/.globus/sshftp");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
    cat(&[], &url).fails(3, &["ssh has ended", "ermission denied"]);
    fs::remove_file(&script).unwrap();
    if !Path::new("/etc/grid-security/sshftp").exists() {
        let words = ["Server is not configured for SSHFTP", "~/.globus/sshftp"];
        cat(&[], &url).fails(14, &words);
    }
    cat(&["--remote-program", "no-such-program"], &url).fails(3, &["no-such-program"]);
    // Not even ssh gets there.
    let ssh = machine.sshd.ssh();
    let with = |option: &str| format!("{ssh} -o {option}");
    let unknown = with("HostKeyAlias=other");
    cat(&["--ssh", &unknown], &url).fails(
        3,
        &[
            "could not connect or log in",
            "Host key verification failed",
        ],
    );
    let wrong = with("User=nobody-of-this-name");
    cat(&["--ssh", &wrong], &url).fails(3, &["could not connect", "ermission denied"]);
    cat(&["--ssh", "/no/such/ssh"], &url).fails(4, &["/no/such/ssh", "--ssh"]);
    let nobody_there = format!("sshftp://127.0.0.1:{}/x", free_port().unwrap());
    cat(&[], &nobody_there).fails(3, &["could not connect", "Connection refused"]);
    cat(&[], "sshftp://no-such-host.invalid/x").fails(3, &["could not connect"]);
    for empty in ["", "  "] {
        cat(&["--remote-program", empty], &url).fails(2, &["names no program"]);
    }
    // What comes in place of a server, after sshd has told where it is.
    let noise = "printf 'no\\033[2J seats\\r\\n'; sleep 60";
    cat(&["--remote-program", noise], &url).fails(10, &["'no\\x1b[2J seats'", "see what"]);
    for bad in [
        "sshftp://@127.0.0.1/x",
        "sshftp://-oProxyCommand=x/",
        "sshftp:///x",
        "sshftp://me:secret@h/",
    ] {
        let run = cat(&[], bad).fails(2, &["read the URL"]);
        assert!(!run.stderr.contains("secret"), "{}", run.stderr);
        assert!(run.stderr.contains("write sshftp://"), "{}", run.stderr);
    }
    assert!(wait::until(PATIENCE, || machine.connections().is_empty()));
}

/// Another program may be started, the user's shell may say something first, and a key may allow
/// only the server.
#[test]
fn the_beginning_is_found() {
    let serve = format!("'{}' serve --gridftp-over-ssh", env!("CARGO_BIN_EXE_xdfs"));
    let forced = format!("exec {serve}");
    let chatty = "echo welcome; exec sh -c \"$SSH_ORIGINAL_COMMAND\"";
    // Without a line end.
    let curt = "printf hello; exec sh -c \"$SSH_ORIGINAL_COMMAND\"";
    for (command, flags) in [
        (forced.as_str(), &[][..]),
        (chatty, &[]),
        (curt, &[]),
        (chatty, &["--remote-program", serve.as_str()]),
    ] {
        let script = format!("exec {serve}");
        let Some(machine) = Machine::commanded(&script, command) else {
            return;
        };
        if !flags.is_empty() {
            fs::remove_file(machine.place.path().join("home/.globus/sshftp")).unwrap();
        }
        fs::write(machine.place.remote("f"), "content").unwrap();
        let url = machine.url("f");
        let words = [&["cat"], flags, &[&url]].concat();
        assert_eq!(machine.run(&words).ok().text(), "content", "{command}");
    }
    let endless = "yes welcome";
    if let Some(machine) = Machine::commanded("", endless) {
        machine
            .run(&["cat", &machine.url("f")])
            .fails(10, &["prints too much"]);
    }
}

/// A file whose ssh is killed is copied through another one, and never stands there in part.
#[test]
fn a_killed_ssh_leaves_no_half_files() {
    let Some(machine) = Machine::xdfs() else {
        return;
    };
    let place = &machine.place;
    let bytes = content(9, 6_000_000);
    let file = place.make_here("f", &bytes);
    fs::write(place.remote("f"), &bytes).unwrap();
    let back = place.here("back");
    for (from, to, target) in [
        (file, machine.url("up"), place.remote("up")),
        (machine.url("f"), back.clone(), PathBuf::from(&back)),
    ] {
        let mut command = machine.command();
        command.args(["cp", "--json", "--protect", "clear", "--limit-rate", "2M"]);
        let mut running = Running::start(command.args([&from, &to]));
        running.wait_for_bytes(1);
        machine.cut();
        assert!(!target.exists());
        running.wait().ok();
        assert_content(&target, &bytes);
    }
    // The hidden file of the broken upload is gone too.
    assert!(wait::until(PATIENCE, || names(place.root()) == ["f", "up"]));
}

/// If there is no way back, the copy fails, and nothing is published.
#[test]
fn a_killed_server_fails_the_copy() {
    let Some(machine) = Machine::xdfs() else {
        return;
    };
    let file = machine.place.make_here("f", &content(9, 6_000_000));
    let mut command = machine.command();
    command.args([
        "cp",
        "--json",
        "--protect",
        "clear",
        "--limit-rate",
        "2M",
        "--retries",
        "1",
    ]);
    let mut running = Running::start(command.args([&file, &machine.url("up")]));
    running.wait_for_bytes(1);
    let script = machine.place.path().join("home/.globus/sshftp");
    write_script(&script, "exit 9");
    machine.cut();
    let run = running.wait();
    assert_eq!(run.code, Some(3), "{}", run.text());
    assert!(run.text().contains("exit status: 9"), "{}", run.text());
    assert!(!machine.place.remote("up").exists());
}

/// A server that answers every command, and names another host for its data.
const ELSEWHERE: &str = "\
printf '220 hello\\r\\n'
while read -r verb rest; do
    case \"$verb\" in
        USER*) printf '230 in\\r\\n';;
        TYPE*) printf '200 ok\\r\\n';;
        PWD*) printf '257 \"/\"\\r\\n';;
        SIZE*) printf '213 5\\r\\n';;
        MDTM*) printf '213 20200101000000\\r\\n';;
        PASV*) printf '227 (192,0,2,1,200,1)\\r\\n';;
        *) printf '550 No such file or directory\\r\\n';;
    esac
done";

/// No server sends this machine to a third host, and one that says nothing is not waited for when
/// the user has enough.
#[test]
fn servers_that_break_the_rules() {
    let Some(machine) = Machine::start(ELSEWHERE) else {
        return;
    };
    let run = machine.run(&["cp", &machine.url("f"), &machine.place.here("f")]);
    assert!(
        run.stderr
            .contains("the server names 192.0.2.1 for its data"),
        "{}",
        run.stderr
    );
    assert_ne!(run.code, Some(0));
    let script = machine.place.path().join("home/.globus/sshftp");
    for silent in ["exec sleep 60", "printf '220 hello\\r\\n'; exec sleep 60"] {
        write_script(&script, silent);
        let mut command = machine.command();
        command.args(["cat", "--protect", "clear", &machine.url("f")]);
        let mut running = Running::start(command.process_group(0));
        assert!(wait::until(PATIENCE, || !machine.connections().is_empty()));
        // As a terminal does, so that ssh gets it too.
        running.signal_group("INT");
        let run = running.wait();
        assert_ne!(run.code, Some(0), "{}", run.stderr);
        assert!(wait::until(PATIENCE, || machine.connections().is_empty()));
    }
}

/// With other servers files go through this machine.
#[test]
fn it_is_relayed_between_servers() {
    let Some(machine) = Machine::xdfs() else {
        return;
    };
    let place = &machine.place;
    let bytes = content(4, LARGE);
    fs::write(place.remote("f"), &bytes).unwrap();
    let flags = ["--listen", "127.0.0.1:0", "--insecure"];
    let server = Server::start_with(&place.root(), &flags);
    let run = |words: &[&str]| {
        Running::start(machine.command().arg("cp").arg("--insecure").args(words)).wait()
    };
    run(&[&machine.url("f"), &server.url("/one")]).ok();
    assert_content(place.remote("one"), &bytes);
    run(&[&server.url("/one"), &machine.url("two")]).ok();
    assert_content(place.remote("two"), &bytes);
    machine
        .run(&["cp", &machine.url("two"), &machine.url("three")])
        .ok();
    assert_content(place.remote("three"), &bytes);
    run(&[
        "--between",
        "direct",
        &machine.url("two"),
        &server.url("/four"),
    ])
    .fails(14, &[]);
}

/// One shell, several lines, of which one needs a connection of its own.
#[test]
fn a_shell_has_such_a_place() {
    let Some(machine) = Machine::xdfs() else {
        return;
    };
    let place = &machine.place;
    place.make_here("file", &content(1, 70_000));
    let mut command = machine.command();
    command.args(["shell", "--protect", "clear", &machine.url("")]);
    command.current_dir(place.here(""));
    let lines = "mkdir d\nput file d\ncd d\nls\nput -n 2 -f file other\nget other back\nsum file\n";
    let run = run_with_input(&mut command, lines.as_bytes()).ok();
    assert!(run.text().contains("file"), "{}", run.text());
    assert_content(place.remote("d/other"), &content(1, 70_000));
    assert_content(place.here("back"), &content(1, 70_000));
}

/// Each connection of a tree is a login.
#[track_caller]
fn within_reason(commands: &str) {
    let logins = commands.matches("USER ").count();
    assert!((1..=8).contains(&logins), "{logins}");
}

/// What is compared can't be forged by those who carry data.
#[test]
fn checksums_are_those_that_nobody_can_forge() {
    let Some(machine) = Machine::xdfs() else {
        return;
    };
    let script = machine.place.path().join("home/.globus/sshftp");
    let log = machine.place.path().join("commands");
    let keeps = fs::read_to_string(&script).unwrap();
    let serve = keeps.lines().last().unwrap().trim_start_matches("exec ");
    write_script(&script, &format!("tee -a '{}' | {serve}", log.display()));
    let asked = || {
        let text = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        text
    };
    let file = machine.place.make_here("f", &content(1, 100_000));
    machine.run(&["cp", &file, &machine.url("f")]).ok();
    let text = asked();
    assert!(text.contains("CKSM BLAKE3"), "{text}");
    machine
        .run(&["cp", &machine.url("f"), &machine.place.here("back")])
        .ok();
    let text = asked();
    assert!(text.contains("CKSM BLAKE3"), "{text}");
    let tree = PathBuf::from(machine.place.here("tree"));
    make_tree(&tree);
    let (tree, back) = (tree.to_str().unwrap(), machine.place.here("tree-back"));
    machine.run(&["cp", "-r", tree, &machine.url("tree")]).ok();
    let text = asked();
    assert!(
        text.contains("SCKS BLAKE3") && text.contains("ESTO T"),
        "{text}"
    );
    assert!(!text.contains("CRC64"), "{text}");
    within_reason(&text);
    machine.run(&["cp", "-r", &machine.url("tree"), &back]).ok();
    let text = asked();
    assert!(
        text.contains("CKSM BLAKE3") && !text.contains("ERET T"),
        "{text}"
    );
    assert!(!text.contains("CRC64"), "{text}");
    within_reason(&text);
}

/// Ctrl-C at a terminal ends ssh too, and the shell goes on with another one.
#[test]
fn a_shell_at_a_terminal_logs_in_again() {
    let Some(machine) = Machine::xdfs() else {
        return;
    };
    let place = &machine.place;
    fs::write(place.remote("large"), content(3, 30_000_000)).unwrap();
    fs::write(place.remote("name of it"), "content").unwrap();
    let mut command = program();
    command.args(["shell", "--protect", "clear", "--ssh", &machine.sshd.ssh()]);
    command.arg(machine.url("")).env("TERM", "xterm");
    command.current_dir(place.here(""));
    let mut terminal = Terminal::start(&command).unwrap();
    let mut at = 0;
    let mut sees = |terminal: &Terminal, words: &str| match terminal.wait_for(words, at, PATIENCE) {
        Some(next) => at = next,
        None => panic!("'{words}' was not shown: {:?}", terminal.text()),
    };
    sees(&terminal, "/root> ");
    terminal.send(b"get --limit-rate 1M large\r").unwrap();
    let has_part = || !names(place.here("")).is_empty();
    assert!(wait::until(PATIENCE, has_part), "{:?}", terminal.text());
    terminal.send(b"\x03").unwrap();
    sees(&terminal, "/root> ");
    assert!(!Path::new(&place.here("large")).exists());
    terminal.send(b"cat 'name of it'\r").unwrap();
    sees(&terminal, "\ncontent");
    sees(&terminal, "/root> ");
    terminal.send(b"\x04").unwrap();
    let status = terminal.wait(PATIENCE);
    let succeeded = status.is_some_and(|status| status.success());
    assert!(succeeded, "{:?}", terminal.text());
    assert!(wait::until(PATIENCE, || machine.connections().is_empty()));
}

/// As ssh at a password: it hides what is typed, and shows it again if it is asked to end.
const ASKS: &str = "\
for word in \"$@\"; do
    if [ \"$word\" = -G ]; then echo 'hostname 127.0.0.1'; exit 0; fi
done
trap 'stty echo < /dev/tty; exit 255' TERM
stty -echo < /dev/tty
echo \"asks $$\" > /dev/tty
while :; do sleep 0.01; done
";

/// A stop while ssh asks for a password leaves no terminal that hides what is typed.
#[test]
fn a_stopped_prompt_leaves_the_terminal_as_it_was() {
    let place = Place::new();
    let ssh = place.path().join("ssh");
    write_script(&ssh, ASKS);
    let target = place.here("x");
    // The first signal may ask for an orderly end.
    let script = "\"$@\" & id=$!; read -r go; kill -TERM $id; sleep 0.3; \
                  kill -TERM $id 2> /dev/null; wait $id; echo \"ended $?\"; stty -a";
    for words in [
        &["cat", "--protect", "clear", "sshftp://127.0.0.1/x"][..],
        &["cp", "--protect", "clear", "sshftp://127.0.0.1/x", &target],
        &["cat", "ssh://127.0.0.1/x"],
        &["cp", "ssh://127.0.0.1/x", &target],
    ] {
        let mut command = program();
        let own = command.get_program().to_owned();
        let variables: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(own).envs(variables);
        command.args(words).env("XDFS_SSH", &ssh);
        let mut terminal = Terminal::start(&command).unwrap();
        let asks = terminal.wait_for("asks ", 0, PATIENCE);
        assert!(asks.is_some(), "{words:?}: {:?}", terminal.text());
        terminal.send(b"\r").unwrap();
        let ended = terminal.wait_for("ended ", 0, PATIENCE);
        assert!(ended.is_some(), "{words:?}: {:?}", terminal.text());
        assert!(terminal.wait(PATIENCE).is_some());
        let text = terminal.text();
        assert!(
            text.contains(" echo ") && !text.contains("-echo "),
            "{words:?}: {text}"
        );
        // It has ended, and not only shown it again.
        let id = text.split("asks ").nth(1).unwrap();
        let id: String = id.chars().take_while(char::is_ascii_digit).collect();
        assert!(!Path::new(&format!("/proc/{id}")).exists(), "{words:?}");
    }
}

/// The settings of ssh may start programs, which are not waited for without end.
#[test]
fn settings_of_ssh_are_not_waited_for() {
    let place = Place::new();
    let ssh = place.path().join("ssh");
    write_script(&ssh, "exec sleep 100");
    let mut command = program();
    command.args(["cat", "--protect", "clear", "sshftp://127.0.0.1/x"]);
    command.env("XDFS_SSH", &ssh);
    let run = Running::start(&mut command).wait();
    run.fails(11, &["read the settings of ssh", "10s", "Match exec"]);
}
