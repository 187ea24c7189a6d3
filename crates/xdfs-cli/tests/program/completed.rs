//! Completion of paths on servers: what the program answers to the scripts, and the scripts in real
//! shells.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::terminal::Terminal;

use crate::support::{Place, Run, Running, Server, names, program, run_with_input, xdfs};

const PATIENCE: Duration = Duration::from_secs(60);

/// What follows the word, which the answer begins with.
#[track_caller]
fn rests(run: &Run, word: &str) -> Vec<String> {
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let text = run.text();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(word), "{text}");
    lines.map(str::to_owned).collect()
}

/// A server that the user of these tests has met before.
#[track_caller]
fn known(place: &Place) -> Server {
    let server = Server::start(&place.root());
    xdfs(["ls", &server.url("/")]).ok();
    server
}

#[test]
fn names_on_a_server_continue_the_last_word() {
    let place = Place::new();
    let server = known(&place);
    for directory in ["runs of may/deep", "to"] {
        fs::create_dir_all(place.remote(directory)).unwrap();
    }
    for file in [
        "runs of may/it's 100%?#",
        "runs of may/.hidden",
        "gr\u{fc}n",
        "c\nd",
        "mem:x",
    ] {
        fs::write(place.remote(file), "").unwrap();
    }
    std::os::unix::fs::symlink("to", place.remote("link")).unwrap();
    let answer = |start: &str, end: &str| {
        let line = format!("xdfs {start}{}", server.url(end));
        rests(&xdfs(["complete-paths", &line]), &server.url(end))
    };
    let all = ["c%0Ad", "gr%C3%BCn", "link", "runs%20of%20may/", "to/"];
    assert_eq!(answer("ls ", "/"), all);
    assert_eq!(answer("cp -n $N \"$file\" ", "/ru"), ["ns%20of%20may/"]);
    assert_eq!(answer("find -mtime 1 ", "/g"), ["r%C3%BCn"]);
    // One link is followed.
    assert_eq!(answer("ls ", "/li"), ["nk/"]);
    assert_eq!(answer("ls ", "/gr%C3%b"), ["Cn"]);
    let inside = ["deep/", "it%27s%20100%25%3F%23"];
    assert_eq!(answer("mv ", "/runs%20of%20may/"), inside);
    assert_eq!(answer("ls ", "/runs%20of%20may/."), ["hidden"]);
    assert_eq!(answer("ls ", "/to"), ["/"]);
    for nothing in ["/x", "/nothing/", "/m", "/%", "/?pin=x"] {
        assert_eq!(answer("ls ", nothing), [""; 0], "{nothing}");
    }
    // Quotes are those of a shell.
    let word = server.url("/runs of may/d");
    for quote in ["'", "\""] {
        let line = format!("xdfs ls {quote}{word}");
        assert_eq!(rests(&xdfs(["complete-paths", &line]), &word), ["eep/"]);
    }
    let line = format!("xdfs ls {}", word.replace(' ', "\\ "));
    assert_eq!(rests(&xdfs(["complete-paths", &line]), &word), ["eep/"]);
}

#[test]
fn names_of_servers_begin_words_too() {
    let place = Place::new();
    let server = known(&place);
    fs::create_dir_all(place.remote("named/runs")).unwrap();
    fs::write(place.remote("named/two words"), "").unwrap();
    let folder = place.path().join("config");
    fs::create_dir(&folder).unwrap();
    let usual = program();
    let (_, usual) = usual
        .get_envs()
        .find(|(name, _)| *name == "XDFS_CONFIG_DIR")
        .unwrap();
    // The keys and known servers of these tests.
    for name in ["id_ed25519", "known_hosts"] {
        fs::copy(Path::new(usual.unwrap()).join(name), folder.join(name)).unwrap();
    }
    let config = folder.join("config.toml");
    let text = format!("[remote.lab]\nurl = '{}'\n", server.url("/named"));
    fs::write(&config, text).unwrap();
    let answer = |word: &str| {
        let mut command = program();
        command.env("XDFS_CONFIG_DIR", &folder);
        run_with_input(
            command.args(["complete-paths", &format!("xdfs ls {word}")]),
            b"",
        )
    };
    // What would need an escape isn't offered: after such a name there are none.
    assert_eq!(rests(&answer("lab:"), "lab:"), ["runs/"]);
    assert_eq!(rests(&answer("lab:/na"), "lab:/na"), ["med/"]);
    assert_eq!(answer("other:").text(), "");
    fs::write(&config, "[remote.lab").unwrap();
    let broken = answer("lab:");
    assert_eq!((broken.text().as_str(), broken.stderr.as_str()), ("", ""));
}

#[test]
fn words_that_name_no_place_are_left_to_the_shell() {
    for line in [
        "",
        "xdfs ls",
        "xdfs ls ",
        "xdfs cp a:b",
        "xdfs cp ./xdfs://h/",
        "xdfs cp http://h/",
        "xdfs cp xdfs://h/ # x",
        "xdfs cp xdfs://h/\n",
    ] {
        let run = xdfs(["complete-paths", line]).ok();
        assert_eq!(
            (run.text().as_str(), run.stderr.as_str()),
            ("", ""),
            "{line}"
        );
    }
    // A place without candidates is none for local files.
    for word in ["ssh://h/", "xdfs://h:x/", "xdfs+unix://%2Fnothing/a"] {
        let line = format!("xdfs ls {word}");
        assert_eq!(rests(&xdfs(["complete-paths", &line]), word), [""; 0]);
    }
    xdfs(["complete-paths"]).fails(2, &["complete-paths"]);
    let help = xdfs(["--help"]).ok().text();
    assert!(!help.contains("complete-paths"), "{help}");
}

#[test]
fn of_very_many_names_the_first_and_the_last_are_offered() {
    let place = Place::new();
    let server = known(&place);
    for i in 0..1100 {
        fs::write(place.remote(&format!("n{i:04}")), "").unwrap();
    }
    fs::write(place.remote("nz"), "").unwrap();
    let word = server.url("/n");
    let found = rests(&xdfs(["complete-paths", &format!("xdfs ls {word}")]), &word);
    assert_eq!(found.len(), 1000);
    assert_eq!((found[998].as_str(), found[999].as_str()), ("0998", "z"));
}

#[test]
fn a_completion_neither_asks_nor_trusts_nor_writes() {
    let place = Place::new();
    let server = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "--ticket"]);
    let ticket = server.line_with("ticket=").trim().to_owned();
    let key = Path::new(&own_folder()).join("id_ed25519");
    xdfs(["ls", &server.url("/")]).ok();
    fs::write(place.remote("run"), "").unwrap();
    let word = server.url("/r");
    let folder = place.here("stranger");
    let stranger = |flags: &str| {
        let mut command = program();
        command.env("XDFS_CONFIG_DIR", &folder);
        command.args(["complete-paths", &format!("xdfs cp {flags} a {word}")]);
        rests(&run_with_input(&mut command, b"secret\n"), &word)
    };
    let file = place.make_here("ticket", format!("{ticket}\n").as_bytes());
    let pin = ticket.split_once("pin=").unwrap().1;
    let with_key = format!("--key {}", key.display());
    // Unknown, or without what the user would be asked for, or would use up.
    let refused = [
        "",
        &with_key,
        &format!("--pin {pin}"),
        &format!("--pin {pin} --password-file -"),
        &format!("--pin {pin} --ticket-file -"),
        &format!("--ticket-file {file}"),
        &format!("{with_key} --pin $PIN"),
        &format!("{with_key} --pin {pin} --insecure"),
        "--insecure",
    ];
    for flags in refused {
        assert_eq!(stranger(flags), [""; 0], "{flags}");
    }
    assert_eq!(stranger(&format!("{with_key} --pin {pin}")), ["un"]);
    assert!(!Path::new(&folder).exists());
    // A terminal shows no question.
    let mut command = program();
    let line = format!("xdfs ls --password-file - {word}");
    command.args(["complete-paths", &line]);
    let mut terminal = Terminal::start(&command).unwrap();
    assert!(terminal.wait(PATIENCE).unwrap().success());
    assert_eq!(terminal.text().trim(), word);
    // The ticket still lets in.
    let mut command = program();
    command.env("XDFS_CONFIG_DIR", &folder);
    command.args(["ls", "--ticket-file", &file, &server.url("/")]);
    assert_eq!(run_with_input(&mut command, b"").ok().text(), "run\n");
}

#[test]
fn known_servers_are_offered_and_silent_ones_are_given_up() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let folder = place.here("config");
    let own = |args: &[&str]| {
        let mut command = program();
        command.env("XDFS_CONFIG_DIR", &folder).args(args);
        run_with_input(&mut command, b"")
    };
    let pin = format!("SHA256:{}", "A".repeat(43));
    for host in ["localhost", &format!("127.0.0.1:{port}"), "data.example:7"] {
        own(&["trust", "add", host, &pin]).ok();
    }
    let offered = rests(&own(&["complete-paths", "xdfs ls xdfs://"]), "xdfs://");
    let silent = format!("127.0.0.1:{port}/");
    assert_eq!(offered, [&*silent, "data.example:7/", "localhost/"]);
    let word = "xdfs://me@l";
    let offered = rests(&own(&["complete-paths", &format!("xdfs ls {word}")]), word);
    assert_eq!(offered, ["ocalhost/"]);
    // It accepts connections and says nothing.
    let word = format!("xdfs://{silent}");
    let offered = rests(&own(&["complete-paths", &format!("xdfs ls {word}")]), &word);
    assert_eq!(offered, [""; 0]);
    let before = names(&folder);
    fs::write(Path::new(&folder).join("known_hosts"), "garbage").unwrap();
    let run = own(&["complete-paths", "xdfs ls xdfs://"]);
    assert_eq!(rests(&run, "xdfs://"), [""; 0]);
    assert_eq!(names(&folder), before);
}

/// The folder with the key of the user of these tests.
fn own_folder() -> String {
    let command = program();
    let mut variables = command.get_envs();
    let own = variables.find(|(name, _)| *name == "XDFS_CONFIG_DIR");
    own.unwrap().1.unwrap().to_str().unwrap().to_owned()
}

/// Whether a shell is there; the test that needs it says if not.
fn is_there(shell: &str) -> bool {
    let run = Command::new(shell)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    run.is_ok_and(|run| run.status.success())
}

/// A shell with nothing of its user's, in which `xdfs` is the program.
fn shell(place: &Place, words: &[&str]) -> Command {
    let own = program();
    let program = Path::new(own.get_program());
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(place.here(""));
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("PATH", path).env("HOME", place.here(""));
    command
        .env("XDG_CONFIG_HOME", place.here(""))
        .env("LC_ALL", "C.UTF-8");
    command
        .env("INPUTRC", "/dev/null")
        .env("HISTFILE", "/dev/null");
    command
        .env("PS1", "ready> ")
        .env_remove("PROMPT")
        .env_remove("RPS1");
    command
}

/// The files of the tests in shells, and their server.
fn scene() -> (Place, Server) {
    let place = Place::new();
    let server = known(&place);
    fs::create_dir_all(place.remote("runs of may/deep")).unwrap();
    for (file, content) in [
        ("runs of may/a file.txt", "what it says\n"),
        ("runs of may/deep/it's", "what else it says\n"),
        ("runs of may/b\u{e4}1", ""),
        ("runs of may/b\u{fc}2", ""),
    ] {
        fs::write(place.remote(file), content).unwrap();
    }
    place.make_here("local name", b"what is here\n");
    (place, server)
}

/// Types what is common to bash and zsh; `list` are the keys that list what differs after them.
#[track_caller]
fn types_paths(place: &Place, server: &Server, command: &Command, start: &str, list: &str) {
    let mut terminal = Terminal::start(command).unwrap();
    let mut at = 0;
    let mut step = |keys: &str, expected: &[&str]| {
        terminal.send(keys.as_bytes()).unwrap();
        for words in expected {
            match terminal.wait_for(words, at, PATIENCE) {
                Some(end) => at = end,
                None => panic!("'{words}' after '{keys}': {:?}", terminal.text()),
            }
        }
    };
    step("", &["ready> "]);
    step(start, &["begun", "ready> "]);
    let url = server.url("");
    // Two words, so that a blank has to follow a file, and none a directory.
    let both = format!("xdfs cat {url}/ru\ta\t{url}/ru\td\ti\t\r");
    step(&both, &["what it says", "what else it says", "ready> "]);
    for quote in ["'", "\""] {
        let quoted = format!("xdfs cat {quote}{url}/runs of may/a\t\r");
        step(&quoted, &["what it says", "ready> "]);
    }
    let escaped = format!("xdfs cat {url}/runs\\ of\\ may/deep/it\\'\t\r");
    step(&escaped, &["what else it says", "ready> "]);
    // Names that differ within a percent-encoded character.
    let differing = format!("xdfs ls {url}/runs%20of%20may/b{list}");
    step(&differing, &["b%C3%A41", "b%C3%BC2"]);
    step("BC\t\r", &["b%C3%BC2", "ready> "]);
    // Flags, and local files, also as targets.
    step("xdfs cp --no-res\t", &["ume "]);
    step(&format!("loc\t{url}/up\r"), &["local name: ", "ready> "]);
    assert!(place.remote("up").exists());
    step(
        &format!("xdfs cp -f {url}/up loc\t\r"),
        &["name", "ready> "],
    );
    step("exit\r", &[]);
    assert!(
        terminal.wait(PATIENCE).unwrap().success(),
        "{}",
        terminal.text()
    );
    let line = fs::read(place.here("local name")).unwrap();
    assert_eq!(line, b"what is here\n");
}

#[test]
fn bash_completes_paths_on_servers() {
    if !is_there("bash") {
        return xdfs_testkit::skip::test("bash is not installed");
    }
    let (place, server) = scene();
    let script = xdfs(["completions", "bash"]).ok();
    place.make_here("script", &script.stdout);
    let command = shell(&place, &["bash", "--norc", "--noprofile", "-i"]);
    types_paths(
        &place,
        &server,
        &command,
        ". ./script; echo beg''un\r",
        "\t\t\t",
    );
    // Local files are no substitute where a server has no names.
    let lines = "source ./script; COMP_LINE='xdfs ls xdfs://etc/pas'; COMP_POINT=22; COMP_CWORD=4; \
                 COMP_WORDS=(xdfs ls xdfs : //etc/pas); _xdfs_places xdfs //etc/pas :; \
                 echo ${#COMPREPLY[@]}";
    let mut command = shell(&place, &["bash", "--norc", "--noprofile", "-c", lines]);
    let run = Running::start(command.stdin(Stdio::null())).wait().ok();
    assert_eq!(run.text(), "0\n");
}

#[test]
fn zsh_completes_paths_on_servers() {
    if !is_there("zsh") {
        return xdfs_testkit::skip::test("zsh is not installed");
    }
    let (place, server) = scene();
    let script = xdfs(["completions", "zsh"]).ok();
    let command = shell(&place, &["zsh", "-f", "-i"]);
    // As a file that zsh finds by itself, and as a script.
    fs::create_dir(place.here("functions")).unwrap();
    place.make_here("functions/_xdfs", &script.stdout);
    place.make_here("script", &script.stdout);
    let found = "fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D; \
                 echo beg''un\r";
    types_paths(&place, &server, &command, found, "\t\t");
    fs::remove_file(place.remote("up")).unwrap();
    let read = "autoload -Uz compinit; compinit -u -D; . ./script; echo beg''un\r";
    types_paths(&place, &server, &command, read, "\t\t");
}

#[test]
fn fish_completes_paths_on_servers() {
    if !is_there("fish") {
        return xdfs_testkit::skip::test("fish is not installed");
    }
    let (place, server) = scene();
    let script = xdfs(["completions", "fish"]).ok();
    place.make_here("script", &script.stdout);
    let completed = |line: &str| -> Vec<String> {
        let words = [
            "fish",
            "--no-config",
            "-c",
            "source script; complete -C $LINE",
        ];
        let mut command = shell(&place, &words);
        command.env("LINE", line).stdin(Stdio::null());
        let run = Running::start(&mut command).wait().ok();
        run.text().lines().map(str::to_owned).collect()
    };
    let url = server.url("");
    let found = completed(&format!("xdfs cat {url}/ru"));
    assert_eq!(found, [format!("{url}/runs%20of%20may/")]);
    for word in [
        format!("'{url}/runs of may/d"),
        format!("{url}/runs\\ of\\ may/d"),
    ] {
        let found = completed(&format!("xdfs cat a {word}"));
        assert_eq!(found, [format!("{url}/runs of may/deep/")]);
    }
    let found = completed(&format!("xdfs cp {url}/runs%20of%20may/"));
    let expected = ["a%20file.txt", "b%C3%A41", "b%C3%BC2", "deep/"];
    let expected = expected.map(|name| format!("{url}/runs%20of%20may/{name}"));
    assert_eq!(found, expected);
    // A file that is there is complete, and local files are no substitute.
    let whole = format!("{url}/runs%20of%20may/deep/it%27s");
    assert_eq!(completed(&format!("xdfs cat {whole}")), [whole]);
    assert_eq!(completed("xdfs ls xdfs://etc/pas"), [""; 0]);
    assert_eq!(completed("xdfs cp loc"), ["local name"]);
    let flags = completed("xdfs cp --no-res");
    assert!(flags[0].starts_with("--no-resume\t"), "{flags:?}");
}
