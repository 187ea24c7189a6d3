//! Commands at a terminal: colours and questions; and `xdfs shell`: the prompt, completion, lines
//! of earlier times, Ctrl-C, and connections that are lost.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::terminal::Terminal;
use xdfs_testkit::tree::make_pipe;
use xdfs_testkit::wait;

use crate::support::{Place, Server, assert_content, content, program, run_with_input};

const PATIENCE: Duration = Duration::from_secs(60);

/// A shell at a terminal, and how much of what it showed was looked at.
struct Typed {
    terminal: Terminal,
    at: usize,
}

impl Typed {
    #[track_caller]
    fn start(place: &Place, url: &str) -> Self {
        let mut command = program();
        command.args(["shell", url]).env("TERM", "xterm");
        command.current_dir(place.here(""));
        // The key is made when it is first used.
        crate::support::xdfs(["ls", url]).ok();
        // A folder of its own, with the key that the servers of these tests know.
        let own = command
            .get_envs()
            .find(|(name, _)| *name == "XDFS_CONFIG_DIR");
        let key = Path::new(own.unwrap().1.unwrap()).join("id_ed25519");
        let folder = place.here(".config");
        fs::create_dir_all(&folder).unwrap();
        fs::copy(key, Path::new(&folder).join("id_ed25519")).unwrap();
        command.env("XDFS_CONFIG_DIR", folder);
        let terminal = Terminal::start(&command).unwrap();
        let mut typed = Self { terminal, at: 0 };
        typed.sees("> ");
        typed
    }

    #[track_caller]
    fn types(&mut self, keys: &str) {
        self.terminal.send(keys.as_bytes()).unwrap();
    }

    /// Waits for words after those that were seen before.
    #[track_caller]
    fn sees(&mut self, words: &str) {
        match self.terminal.wait_for(words, self.at, PATIENCE) {
            Some(at) => self.at = at,
            None => panic!("'{words}' was not shown: {:?}", self.terminal.text()),
        }
    }

    /// Ends the shell as people do.
    #[track_caller]
    fn leave(mut self) -> String {
        self.types("\x04");
        let status = self.terminal.wait(PATIENCE);
        assert_eq!(
            status.and_then(|s| s.code()),
            Some(0),
            "{}",
            self.terminal.text()
        );
        self.terminal.text()
    }
}

#[test]
fn paths_are_completed_on_both_sides() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir_all(place.remote("runs of may/deep")).unwrap();
    fs::write(place.remote("runs of may/a file.txt"), "what it says").unwrap();
    fs::write(place.remote("runs of may/b1"), "").unwrap();
    fs::write(place.remote("runs of may/b2"), "").unwrap();
    place.make_here("local name", b"from here");
    let mut typed = Typed::start(&place, &server.url("/"));
    typed.types("cat ru\ta\t");
    typed.sees("runs\\ of\\ may/");
    typed.sees("a\\ file.txt");
    typed.types("\r");
    typed.sees("what it says");
    typed.sees("> ");
    // A command, a directory, and names that differ later.
    typed.types("pw\t\r");
    typed.sees("\n/");
    typed.sees("> ");
    typed.types("cd ru\t\r");
    typed.sees(":/runs of may> ");
    typed.types("ls b\t\t");
    typed.sees("b1");
    typed.sees("b2");
    // What was typed is taken back.
    typed.types("\x15put loc\t\r");
    typed.sees("local\\ name");
    typed.sees("> ");
    // What is new is found, and flags and their values are completed.
    typed.types("ls loc\t\r");
    typed.sees("/runs of may/local name");
    typed.sees("> ");
    typed.types("sum --dig\tb\t b1\r");
    typed.sees("af1349b9f5f9a1a6a0404dea36dcc949");
    typed.sees("> ");
    typed.leave();
    assert_content(place.remote("runs of may/local name"), b"from here");
}

#[test]
fn lines_are_remembered_unless_they_begin_with_a_blank() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir(place.remote("d")).unwrap();
    fs::create_dir(place.remote("secret")).unwrap();
    let mut typed = Typed::start(&place, &server.url("/"));
    typed.types("cd d\r");
    typed.sees(":/d> ");
    typed.types(" cd ../secret\r");
    typed.sees(":/secret> ");
    typed.leave();
    let file = place.here(".config/state/shell_history");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept = fs::read_to_string(&file).unwrap();
    assert!(kept.contains("cd d") && !kept.contains("secret"), "{kept}");
    let mut typed = Typed::start(&place, &server.url("/"));
    typed.types("\x1b[A");
    typed.sees("cd d");
    typed.types("\r");
    typed.sees(":/d> ");
    typed.types("history\r");
    typed.sees("1  cd d");
    typed.sees("> ");
    typed.leave();
}

#[test]
fn lines_that_are_pasted_are_carried_out_one_by_one() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for name in ["old", "new"] {
        fs::write(place.remote(name), name).unwrap();
    }
    let mut typed = Typed::start(&place, &server.url("/"));
    typed.types("\x1b[200~rm old\nget new\n# it's all\nmkdir 'a\nb'\x1b[201~\r");
    typed.sees("new: ");
    typed.sees("> ");
    typed.types("history\r");
    typed.sees("1  rm old");
    typed.sees("2  get new");
    typed.sees("> ");
    // One that fails is told, and the others are carried out.
    typed.types("\x1b[200~cat gone\nmkdir after\x1b[201~\r");
    typed.sees("/gone");
    typed.sees("> ");
    typed.leave();
    assert_content(place.here("new"), b"new");
    assert!(place.remote("new").exists() && !place.remote("old").exists());
    assert!(place.remote("a\nb").is_dir() && place.remote("after").is_dir());
}

/// Lines that come at once, or while a command runs, are run one after the other.
#[test]
fn what_is_typed_ahead_is_kept() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir(place.remote("st")).unwrap();
    fs::write(place.remote("st/inside"), "").unwrap();
    make_pipe(place.remote("p")).unwrap();
    let mut typed = Typed::start(&place, &server.url("/"));
    typed.types("cd st\rpwd\rls\r");
    typed.sees("\n/st");
    typed.sees("\ninside");
    typed.sees(":/st> ");
    typed.types("cat ../p\r");
    let mut writer = fs::OpenOptions::new()
        .write(true)
        .open(place.remote("p"))
        .unwrap();
    writer.write_all(b"something came\n").unwrap();
    typed.sees("something came");
    typed.types("mkdir one\rmkdir two\rls\rpw");
    // The terminal shows it before the command ends.
    typed.sees("mkdir two");
    drop(writer);
    typed.sees("inside");
    typed.sees("one");
    typed.sees("two");
    // The line that has no end yet.
    typed.types("d\r");
    typed.sees("\n/st");
    typed.sees("> ");
    typed.leave();
}

#[test]
fn ctrl_c_ends_what_waits_for_a_pipe_and_not_the_shell() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let pipe = place.remote("p");
    make_pipe(&pipe).unwrap();
    let mut typed = Typed::start(&place, &server.url("/"));
    typed.types("cat p\r");
    let mut writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    writer.write_all(b"something came\n").unwrap();
    typed.sees("something came");
    typed.types("\x03");
    typed.sees("stopped by the user");
    typed.sees("> ");
    // Nobody is left that would take what comes.
    let broken = wait::until(PATIENCE, || writer.write_all(b"more\n").is_err());
    assert!(broken, "{}", typed.terminal.text());
    typed.types("ls\r");
    typed.sees("opening another session");
    typed.sees("\x1b[33mp\x1b[0m");
    typed.sees("> ");
    let text = typed.leave();
    assert!(!text.contains("more"), "{text}");
}

#[test]
fn ctrl_c_ends_a_long_transfer_that_goes_on_later() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(7, 30_000_000);
    fs::write(place.remote("big"), &expected).unwrap();
    let mut typed = Typed::start(&place, &server.url("/"));
    typed.types("get --limit-rate 4M big\r");
    typed.sees("MB");
    typed.types("\x03");
    typed.sees("stopping in an orderly way");
    typed.sees("> ");
    // The session is the same one.
    typed.types("get big\r");
    typed.sees("30.0 MB in");
    typed.sees("> ");
    let text = typed.leave();
    assert!(!text.contains("opening another session"), "{text}");
    assert_content(place.here("big"), &expected);
}

#[test]
fn a_lost_connection_is_opened_again() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir(place.remote("d")).unwrap();
    let mut typed = Typed::start(&place, &server.url("/d"));
    let address = server.addresses[0].clone();
    drop(server);
    typed.types("mkdir while-away\r");
    typed.sees("error:");
    typed.sees("> ");
    let again = Server::start_with(&place.root(), &["--listen", &address]);
    typed.types("mkdir back\r");
    typed.sees("opening another session");
    typed.sees("> ");
    typed.types("ls\r");
    typed.sees("back");
    typed.sees(":/d> ");
    typed.leave();
    drop(again);
    assert!(place.remote("d/back").is_dir());
}

#[test]
fn a_signal_at_the_prompt_is_no_end_and_that_of_a_script_is() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let mut typed = Typed::start(&place, &server.url("/"));
    typed.types("mkdir 'half\x03");
    // The line has ended, and what is typed from now on belongs to the next one.
    typed.sees("\x1b[?2004l");
    typed.sees("> ");
    typed.types("pwd\r");
    typed.sees("\n/");
    typed.sees("> ");
    typed.leave();
    make_pipe(place.remote("p")).unwrap();
    let mut command = program();
    command.args(["shell", "--keep-going", &server.url("/")]);
    command.stdin(Stdio::piped());
    let mut running = crate::support::Running::start(&mut command);
    running.write_input(b"cat p\nmkdir after\n");
    let mut writer = fs::OpenOptions::new()
        .write(true)
        .open(place.remote("p"))
        .unwrap();
    writer.write_all(b"x").unwrap();
    running.wait_for_output("x");
    running.signal("INT");
    assert_eq!(running.wait().code, Some(130));
    assert!(!place.remote("after").exists());
}

#[test]
fn names_are_coloured_on_a_terminal_that_allows_it() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir(place.remote("one")).unwrap();
    let url = server.url("/");
    let shown = |no_color: &str, term: &str| {
        let mut command = program();
        command
            .args(["ls", &url])
            .env("TERM", term)
            .env("NO_COLOR", no_color);
        let mut terminal = Terminal::start(&command).unwrap();
        assert!(terminal.wait(PATIENCE).unwrap().success());
        terminal.text()
    };
    let blue = "\x1b[1;34mone\x1b[0m";
    assert!(shown("", "xterm").contains(blue));
    for (no_color, term) in [("1", "xterm"), ("", "dumb")] {
        let text = shown(no_color, term);
        assert!(text.contains("one") && !text.contains('\x1b'), "{text:?}");
    }
}

#[test]
fn removal_asks_on_a_terminal_only_if_told_to() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir(place.remote("empty")).unwrap();
    fs::write(place.remote("big.img"), "1").unwrap();
    let mut command = program();
    command.args(["rm", "-r", &server.url("/empty")]);
    let mut terminal = Terminal::start(&command).unwrap();
    assert!(terminal.wait(PATIENCE).unwrap().success());
    assert!(!place.remote("empty").exists());
    let mut command = program();
    command.args(["rm", "-i", &server.url("/big.img")]);
    let mut terminal = Terminal::start(&command).unwrap();
    terminal.wait_for("[y/N]", 0, PATIENCE).unwrap();
    terminal.send(b"y\r").unwrap();
    assert!(terminal.wait(PATIENCE).unwrap().success());
    assert!(!place.remote("big.img").exists());
}

/// A server where `alice` has a password, and the command line at a terminal of someone whose own
/// key lets nobody in.
struct Guarded {
    place: Place,
    server: Server,
}

const PROMPT: &str = "Password for alice@127.0.0.1:";

impl Guarded {
    fn start() -> Self {
        let place = Place::new();
        let mut add = program();
        add.env("XDFS_CONFIG_DIR", place.here("theirs"));
        add.args(["user", "add", "alice"]);
        run_with_input(&mut add, b"correct horse\n").ok();
        let settings = "listen = [\"127.0.0.1:0\"]\nfolder = \"theirs/server\"\n";
        let file = place.make_here("server.toml", settings.as_bytes());
        let server = Server::start_with(&place.root(), &["--config", &file]);
        Self { place, server }
    }

    fn url(&self, path: &str) -> String {
        self.server.url(path).replace("xdfs://", "xdfs://alice@")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.env("XDFS_CONFIG_DIR", self.place.here("own"));
        command.env("TERM", "xterm").args(args);
        command.current_dir(self.place.here(""));
        command
    }

    fn types(&self, args: &[&str]) -> Typed {
        let terminal = Terminal::start(&self.command(args)).unwrap();
        Typed { terminal, at: 0 }
    }
}

impl Typed {
    /// Waits for the end, and returns its code and what was shown.
    #[track_caller]
    fn ends(mut self) -> (Option<i32>, String) {
        let status = self.terminal.wait(PATIENCE);
        let text = self.terminal.text();
        (status.unwrap_or_else(|| panic!("{text}")).code(), text)
    }
}

#[test]
fn a_password_is_asked_for_where_the_key_does_not_do() {
    let guarded = Guarded::start();
    let files = ["one", "two"].map(|name| guarded.place.make_here(name, b"content"));
    let words = ["cp", &files[0], &files[1], &guarded.url("/")];
    let mut typed = guarded.types(&words);
    // The server is known by then, and nothing is drawn meanwhile.
    typed.sees("is trusted from now on");
    typed.sees(PROMPT);
    let drawn = typed
        .terminal
        .wait_for("\x1b[", typed.at, Duration::from_millis(500));
    assert_eq!(drawn, None, "{:?}", typed.terminal.text());
    typed.types("battery staple\r");
    typed.sees("the login was refused: try again");
    typed.sees(PROMPT);
    typed.types("correct horse\r");
    let (code, text) = typed.ends();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches(PROMPT).count(), 2, "{text}");
    assert_eq!(text.matches("trusted from now on").count(), 1, "{text}");
    assert!(
        !text.contains("staple") && !text.contains("horse"),
        "{text}"
    );
    assert!(guarded.place.remote("two").exists());
    // Each kind of command, whatever else it says.
    for words in [
        &["ls", &guarded.url("/"), &guarded.url("/one")][..],
        &[
            "cp",
            "-q",
            "-f",
            "--ignore-times",
            &files[0],
            &guarded.url("/one"),
        ],
        &["cp", "-r", &guarded.url("/"), "copy"],
        &["whoami", &guarded.url("")],
    ] {
        let mut typed = guarded.types(words);
        typed.sees(PROMPT);
        typed.types("correct horse\r");
        let (code, text) = typed.ends();
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(text.matches(PROMPT).count(), 1, "{text}");
    }
}

#[test]
fn three_wrong_passwords_are_enough_and_none_is_one_too() {
    let guarded = Guarded::start();
    let file = guarded.place.make_here("one", b"content");
    let mut typed = guarded.types(&["cp", &file, &guarded.url("/")]);
    for _ in 0..3 {
        typed.sees(PROMPT);
        typed.types("battery staple\r");
    }
    // The server lets wait who fails so often, which is no answer about the last one.
    let (code, text) = typed.ends();
    assert_eq!(code, Some(16), "{text}");
    assert_eq!(text.matches(PROMPT).count(), 3, "{text}");
    assert!(
        text.contains("refused the login of 'alice' (password)"),
        "{text}"
    );
    assert!(!text.contains("too many attempts"), "{text}");
    assert!(!guarded.place.remote("one").exists());
}

/// A script can tell by the exit code that it was the login, and by the JSON that no password was
/// wrong.
#[test]
fn a_login_that_is_put_off_is_a_refused_login() {
    let guarded = Guarded::start();
    let password = guarded.place.make_here("wrong", b"battery staple\n");
    let url = guarded.url("/");
    let words = ["ls", "--json", "--password-file", &password, &url];
    // The pauses double, so that one of them is longer than it takes to start the program.
    let put_off = (0..16).find_map(|_| {
        let run = run_with_input(&mut guarded.command(&words), b"").fails(16, &["error: server "]);
        let is_put_off = run.json()[0]["code"] == "limit-exceeded";
        is_put_off.then_some(run)
    });
    let run = put_off.unwrap();
    let fault = &run.json()[0];
    assert!(fault["retry_after_ms"].as_u64() > Some(0), "{fault}");
    assert_eq!(fault["exit_code"], 16);
    for words in [
        "refused the login of 'alice' (password) without checking it",
        "too many wrong passwords of this user came from this address",
        "hint: try again in ",
    ] {
        assert!(run.stderr.contains(words), "{}", run.stderr);
    }
    assert!(!run.stderr.contains("check the name"), "{}", run.stderr);
}

#[test]
fn nobody_is_asked_without_need() {
    let guarded = Guarded::start();
    // Not in scripts, not where a credential was named, and not where no user is.
    let script = run_with_input(&mut guarded.command(&["ls", &guarded.url("/")]), b"x\n");
    let refused = ": cannot log in: the server refused the login of 'alice' (key SHA256:";
    script.fails(16, &[refused, "--password-file -"]);
    let password = guarded.place.make_here("wrong", b"battery staple\n");
    for words in [
        &["ls", "--password-file", &password, &guarded.url("/")][..],
        &["ls", &guarded.server.url("/")],
    ] {
        let (code, text) = guarded.types(words).ends();
        assert_eq!(code, Some(16), "{text}");
        assert!(!text.contains("Password"), "{text}");
    }
    // Who gives up is told why the key doesn't do.
    let mut typed = guarded.types(&["cp", &password, &guarded.url("/")]);
    typed.sees(PROMPT);
    typed.types("\r");
    let (code, text) = typed.ends();
    assert_eq!(code, Some(16), "{text}");
    assert_eq!(text.matches(PROMPT).count(), 1, "{text}");
    assert!(text.contains("refused the login of 'alice' (key"), "{text}");
}

#[test]
fn a_password_lasts_as_long_as_a_shell() {
    let guarded = Guarded::start();
    let folder = guarded.place.here("own");
    fs::create_dir(&folder).unwrap();
    let remote = format!("[remote.lab]\nurl = \"{}\"\n", guarded.url("/"));
    fs::write(Path::new(&folder).join("config.toml"), remote).unwrap();
    let mut typed = guarded.types(&["shell", "lab:"]);
    typed.sees(PROMPT);
    typed.types("correct horse\r");
    typed.sees("lab:/> ");
    let address = guarded.server.addresses[0].clone();
    let Guarded { place, server } = guarded;
    drop(server);
    let file = place.here("server.toml");
    let words = ["--config", &file, "--listen", &address];
    let again = Server::start_with(&place.root(), &words);
    typed.types("mkdir back\r");
    typed.sees("lab:/> ");
    typed.types("put -n 2 server.toml\r");
    typed.sees("lab:/> ");
    typed.types("mkdir -p back/more\r");
    typed.sees("lab:/> ");
    let text = typed.leave();
    drop(again);
    assert!(place.remote("back/more").is_dir(), "{text}");
    assert!(place.remote("server.toml").exists(), "{text}");
    assert_eq!(text.matches(PROMPT).count(), 1, "{text}");
}

#[test]
fn a_prompt_that_is_left_leaves_the_terminal_as_it_was() {
    let guarded = Guarded::start();
    let inner = guarded.command(&["ls", &guarded.url("/")]);
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "trap : INT; \"$@\"; echo \"code $?\"; stty -a; echo end",
        "sh",
    ]);
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let terminal = Terminal::start(&command).unwrap();
    let mut typed = Typed { terminal, at: 0 };
    typed.sees(PROMPT);
    typed.types("half\x03");
    typed.sees("code 130");
    let from = typed.at;
    typed.sees("end");
    let shown = &typed.terminal.text()[from..];
    assert!(
        shown.contains(" echo ") && shown.contains(" icanon "),
        "{shown}"
    );
}
