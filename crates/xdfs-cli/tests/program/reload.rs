//! A running server: its log, SIGHUP, and its service manager.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Place, Run, Running, Server, assert_content, content, names, program, xdfs};

/// The program with keys and known servers of this test: its server has a key of its own, and a
/// later one may get the same port.
fn own_program(place: &Place) -> Command {
    let mut command = program();
    command.env("XDFS_CONFIG_DIR", place.here("config"));
    command
}

fn own<const N: usize>(place: &Place, args: [&str; N]) -> Run {
    Running::start(own_program(place).args(args).stdin(Stdio::null())).wait()
}

fn start(place: &Place, config: &str) -> Server {
    let flags = ["--config", config];
    Server::start_as(&place.root(), &flags, |mut serve| {
        serve.env("XDFS_CONFIG_DIR", place.here("config"));
        serve
    })
}

/// A server with its own folder, and exports as in `exports`.
fn settings(place: &Place, exports: &[(&str, &str)]) -> String {
    let mut text =
        "listen = [\"127.0.0.1:0\"]\nfolder = \"server\"\nowner = \"owner\"\n".to_owned();
    for (name, user) in exports {
        text += &format!(
            "[[export]]\nname = \"{name}\"\npath = \"../root\"\n[[export.grant]]\n\
             user = \"{user}\"\nrights = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\n"
        );
    }
    place.make_here("xdfs.toml", text.as_bytes())
}

/// Makes a key that the server lists for `user`, and returns its path.
fn key_of(place: &Place, user: &str) -> String {
    let key = place.here(&format!("key-{user}"));
    let line = own(place, ["keygen", "--file", &key]).ok().text();
    std::fs::create_dir_all(place.here("server/keys")).unwrap();
    std::fs::write(place.here(&format!("server/keys/{user}")), line).unwrap();
    key
}

/// An upload by the owner that takes some seconds.
fn slow_upload(place: &Place, target: &str) -> Running {
    begun_upload(place, target, &["--limit-rate", "2M"])
}

/// An upload that takes longer than a test waits for: the server is to end it.
fn endless_upload(place: &Place, target: &str, more: &[&str]) -> Running {
    begun_upload(place, target, &[&["--limit-rate", "20k"], more].concat())
}

/// An upload of which some bytes have arrived.
fn begun_upload(place: &Place, target: &str, flags: &[&str]) -> Running {
    let source = place.here("source");
    if !std::path::Path::new(&source).exists() {
        std::fs::write(&source, content(31, 8 << 20)).unwrap();
    }
    let mut upload = own_program(place);
    upload.args(["cp", "--json"]);
    upload.args(flags).args([&source, target]);
    let mut upload = Running::start(&mut upload);
    upload.wait_for_bytes(1);
    upload
}

#[test]
fn a_reload_changes_exports_and_leaves_transfers_alone() {
    let place = Place::new();
    let config = settings(&place, &[("data", "*")]);
    let server = start(&place, &config);
    let mut upload = slow_upload(&place, &server.url("/data/slow"));
    own(&place, ["ls", &server.url("/more")]).fails(4, &["/more"]);
    settings(&place, &[("data", "*"), ("more", "*")]);
    server.running.signal("HUP");
    server
        .running
        .wait_for_message("the settings were reloaded");
    own(&place, ["ls", &server.url("/more")]).ok();
    let run = upload.wait().ok();
    assert!(!run.stderr.contains("connect"), "{}", run.stderr);
    assert_content(place.remote("slow"), &content(31, 8 << 20));
}

#[test]
fn an_invalid_file_changes_nothing() {
    let place = Place::new();
    let config = settings(&place, &[("data", "*")]);
    let server = start(&place, &config);
    let source = place.make_here("a", b"abc");
    let mut text = std::fs::read_to_string(&config).unwrap();
    text += "[[export]]\nname = \"more\"\npath = \"../none\"\npublic = true\n";
    std::fs::write(&config, &text).unwrap();
    server.running.signal("HUP");
    server.running.wait_for_message("here/../none");
    server.running.wait_for_message("xdfs.toml line 10)");
    server
        .running
        .wait_for_message("the old ones stay in effect");
    own(&place, ["cp", &source, &server.url("/data/one")]).ok();
    std::fs::write(&config, text.replace("public", "pubic")).unwrap();
    server.running.signal("HUP");
    server.running.wait_for_message("unknown setting `pubic`");
    own(&place, ["cp", &source, &server.url("/data/two")]).ok();
    assert_eq!(names(place.root()), ["one", "two"]);
}

/// A file that was emptied, cut off or replaced would have everything served to everybody.
#[test]
fn settings_that_were_lost_are_not_reloaded() {
    let place = Place::new();
    let config = settings(&place, &[("data", "*")]);
    let server = start(&place, &config);
    let source = place.make_here("a", b"abc");
    let text = std::fs::read_to_string(&config).unwrap();
    let refused = |number: usize, words: &str| {
        server.running.signal("HUP");
        server.running.wait_for_message(words);
        let target = server.url(&format!("/data/{number}"));
        own(&place, ["cp", &source, &target]).ok();
        let served = own(&place, ["ls", &server.url("/")]).ok().text();
        assert_eq!(served.trim_end().trim_end_matches('/'), "data");
    };
    let cut = text.split("[[export]]").next().unwrap();
    let long = format!("{text}{}", "# long\n".repeat(300_000));
    for (number, (text, words)) in [
        ("", "the file has no settings"),
        (cut, "the file names no directory any more"),
        (&long, "the file has more than 1048576 bytes"),
    ]
    .into_iter()
    .enumerate()
    {
        std::fs::write(&config, text).unwrap();
        refused(number, words);
    }
    std::fs::remove_file(&config).unwrap();
    xdfs_testkit::tree::make_pipe(&config).unwrap();
    refused(3, "it isn't a regular file");
    // The next one is as ever.
    std::fs::remove_file(&config).unwrap();
    settings(&place, &[("data", "*"), ("more", "*")]);
    server.running.signal("HUP");
    let words = "the settings were reloaded";
    server.running.wait_for_message(words);
    own(&place, ["ls", &server.url("/more")]).ok();
}

#[test]
fn settings_that_can_not_change_are_named() {
    let place = Place::new();
    let config = settings(&place, &[("data", "*")]);
    let server = start(&place, &config);
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text
        .replace("127.0.0.1:0", "127.0.0.1:1")
        .replace("\"server\"", "\"other\"");
    let text = format!(
        "sessions_max = 3\nmemory_max = \"9M\"\ngrace_seconds = 3\naudit = \"audit\"\n{text}"
    );
    std::fs::write(&config, text).unwrap();
    server.running.signal("HUP");
    server
        .running
        .wait_for_message("the settings were reloaded");
    for setting in [
        "listen",
        "sessions_max",
        "memory_max",
        "grace_seconds",
        "folder",
        "audit",
    ] {
        let words = format!("it takes effect at the next start only setting=\"{setting}\"");
        server.running.wait_for_message(&words);
    }
    own(&place, ["ls", &server.url("/data")]).ok();
    assert!(!place.path().join("here/other").exists());
    assert!(!place.path().join("here/audit").exists());
}

/// Uploads of users who are removed end at once, and no others.
#[test]
fn sessions_of_removed_users_end() {
    let place = Place::new();
    let config = settings(&place, &[("data", "*")]);
    let key = key_of(&place, "bob");
    let server = start(&place, &config);
    let users = |words: &[&str]| {
        let mut command = own_program(&place);
        command.args(["user", "--config", &config]).args(words);
        crate::support::run_with_input(&mut command, b"correct horse\n").ok();
    };
    // Before the uploads, which it may outlast on a busy machine.
    users(&["add", "alice"]);
    let mut owner = slow_upload(&place, &server.url("/data/owner"));
    let url = server.url("/data/bob").replace("xdfs://", "xdfs://bob@");
    let mut bob = endless_upload(&place, &url, &["--key", &key]);
    let password = place.make_here("password", b"correct horse\n");
    let url = server
        .url("/data/alice")
        .replace("xdfs://", "xdfs://alice@");
    let mut alice = endless_upload(&place, &url, &["--password-file", &password]);
    std::fs::remove_file(place.here("server/keys/bob")).unwrap();
    users(&["remove", "alice"]);
    server.running.signal("HUP");
    let words = "the settings were reloaded sessions_ended=2";
    server.running.wait_for_message(words);
    for user in ["bob", "alice"] {
        let why = "why=\"the right to log in was withdrawn\"";
        let words = format!("user=\"{user}\" {why}");
        server.running.wait_for_message(&words);
    }
    bob.wait().fails(16, &["error: server "]);
    alice.wait().fails(16, &["error: server "]);
    owner.wait().ok();
    let found = names(place.root());
    let published: Vec<_> = found.iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(published, ["owner"]);
}

#[test]
fn sessions_with_more_rights_than_now_end() {
    let place = Place::new();
    let config = settings(&place, &[("data", "*")]);
    let key = key_of(&place, "bob");
    let server = start(&place, &config);
    let url = server.url("/data/bob").replace("xdfs://", "xdfs://bob@");
    let mut bob = endless_upload(&place, &url, &["--key", &key]);
    settings(&place, &[("data", "owner"), ("other", "*")]);
    server.running.signal("HUP");
    server
        .running
        .wait_for_message("the settings were reloaded sessions_ended=1");
    let words = "user=\"bob\" why=\"some rights were withdrawn\"";
    server.running.wait_for_message(words);
    // It may come again, and finds what it may use now.
    bob.wait().fails(4, &["error: server "]);
    assert!(!place.remote("bob").exists());
    let other = url.replace("/data/", "/other/");
    own(&place, ["cp", "--key", &key, &place.here("source"), &other]).ok();
}

/// The quota counts what was there before the reload, and what moves meanwhile.
#[test]
fn quotas_are_counted_across_a_reload() {
    let place = Place::new();
    let config = settings(&place, &[("data", "*")]);
    let text = std::fs::read_to_string(&config).unwrap();
    let with = |quota: &str| text.replace("name", &format!("quota_bytes = \"{quota}\"\nname"));
    std::fs::write(&config, with("10M")).unwrap();
    let server = start(&place, &config);
    let space = || {
        let found = own(&place, ["df", "--json", &server.url("/data")])
            .ok()
            .json();
        let number = |name: &str| found[0][name].as_u64().unwrap();
        [number("total"), number("free"), number("available")]
    };
    assert_eq!(space(), [10 << 20; 3]);
    // A session that goes on under the settings of before.
    let first = place.make_here("first", &content(33, 2 << 20));
    let second = place.make_here("second", &content(34, 6 << 20));
    let url = server.url("/data");
    let mut shell = own_program(&place);
    shell.args(["shell", &url]).stdin(Stdio::piped());
    let mut shell = Running::start(&mut shell);
    shell.write_input(format!("put {first}\nls first\n").as_bytes());
    shell.wait_for_output("first\n");
    std::fs::write(&config, with("9M")).unwrap();
    server.running.signal("HUP");
    let words = "the settings were reloaded sessions_ended=0";
    server.running.wait_for_message(words);
    assert_eq!(space(), [9 << 20, 7 << 20, 7 << 20]);
    shell.write_input(format!("put {second}\nls second\n").as_bytes());
    shell.wait_for_output("second\n");
    assert_eq!(space(), [9 << 20, 1 << 20, 1 << 20]);
    own(&place, ["cp", &first, &server.url("/data/more")]).fails(7, &["quota"]);
    let text = own(&place, ["df", &url]).ok().text();
    let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["9216", "8192", "1024", "89%"], "{text}");
}

fn lines_with<'a>(text: &'a str, words: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.contains(words)).collect()
}

#[test]
fn logins_refusals_and_transfers_are_logged() {
    let place = Place::new();
    let config = settings(&place, &[("data", "*")]);
    let key = key_of(&place, "bob");
    let mut server = start(&place, &config);
    let source = place.make_here("a", b"abcde");
    let base = server.url("").replace("xdfs://", "xdfs://bob@");
    let bob = |path: &str| format!("{base}{path}");
    own(&place, ["cp", "--key", &key, &source, &bob("/data/a b")]).ok();
    own(
        &place,
        ["cp", "--key", &key, &bob("/data/a b"), &place.here("back")],
    )
    .ok();
    let tree = place.here("tree");
    std::fs::create_dir(&tree).unwrap();
    for i in 0..50 {
        std::fs::write(format!("{tree}/{i}"), "12345").unwrap();
    }
    own(&place, ["cp", "-r", "--key", &key, &tree, &bob("/data/")]).ok();
    // Refused: by a key that isn't bob's, many times, and by a password.
    let strange = place.here("strange");
    let line = own(&place, ["keygen", "--file", &strange]).ok().text();
    for _ in 0..5 {
        own(&place, ["ls", "--key", &strange, &bob("/data")]);
    }
    let password = place.make_here("password", b"very secret\n");
    own(&place, ["ls", "--password-file", &password, &bob("/data")]);
    server.running.signal("TERM");
    let log = server.running.wait().ok().stderr;
    let shown = lines_with(&log, "login user=\"bob\" method=\"key\" key=\"SHA256:");
    assert_eq!(shown.len(), 3, "{log}");
    assert!(shown[0].contains("from=\"127.0.0.1:"), "{log}");
    let moved = lines_with(&log, " bytes=5 ");
    assert_eq!(moved.len(), 2, "{log}");
    for (line, kind) in moved.iter().zip(["upload", "download"]) {
        let words = [
            "path=\"/data/a b\"",
            "seconds=",
            "outcome=\"ok\"",
            "user=\"bob\"",
            "SHA256:",
        ];
        for word in words.iter().chain([&kind]) {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
    // A line for the pack, and none for each of its files.
    let entries: u64 = lines_with(&log, " entries=")
        .iter()
        .map(|line| {
            let rest = line.split_once("entries=").unwrap().1;
            rest.split(' ').next().unwrap().parse::<u64>().unwrap()
        })
        .sum();
    assert!(
        entries >= 50 && lines_with(&log, "upload").len() < 20,
        "{log}"
    );
    let refused = lines_with(&log, "WARN");
    let refused: Vec<_> = refused
        .iter()
        .filter(|l| l.contains("login refused"))
        .collect();
    let by_key: Vec<_> = refused
        .iter()
        .filter(|l| l.contains("method=\"key\""))
        .collect();
    assert!(!by_key.is_empty() && by_key.len() < 5, "{log}");
    for word in ["user=\"bob\"", "key=\"SHA256:", "from=\"127.0.0.1:"] {
        assert!(by_key[0].contains(word), "{word}: {log}");
    }
    assert!(!lines_with(&log, "repeats=").is_empty(), "{log}");
    let blob = line.split(' ').nth(1).unwrap();
    assert!(!log.contains("very secret") && !log.contains(blob), "{log}");
}

#[test]
fn the_level_of_the_log_is_a_choice() {
    let place = Place::new();
    let source = place.make_here("a", b"abc");
    for (level, sees) in [("warn", false), ("off", false), ("info", true)] {
        let flags = ["--listen", "127.0.0.1:0", "--log", level];
        let mut server = Server::start_with(&place.root(), &flags);
        xdfs(["cp", &source, &server.url(&format!("/{level}"))]).ok();
        server.running.signal("TERM");
        let log = server.running.wait().ok().stderr;
        assert_eq!(log.contains("upload"), sees, "{level}: {log}");
        assert_eq!(log.contains("login"), sees, "{level}: {log}");
    }
}

/// A command whose descriptor 3 is `socket`, as from a service manager.
fn handed(serve: &Command, socket: impl Into<OwnedFd>) -> Command {
    let mut command = Command::new("sh");
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3<&0 </dev/null";
    command.args(["-c", script, "sh"]).arg(serve.get_program());
    command.args(serve.get_args());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::from(socket.into()));
    command
}

#[test]
fn sockets_of_a_service_manager_are_used() {
    let place = Place::new();
    let root = place.root();
    let source = place.make_here("a", b"abc");
    let mut serve = program();
    serve.args(["serve", "--root", root.to_str().unwrap()]);
    serve.args(["--listen", "192.0.2.1:1"]);
    // A session opens many channels at once, and the queue of this socket is short.
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    // Those of QUIC can't be handed over.
    serve.args(["--listen", "quic://127.0.0.1:0"]);
    let running = Running::start(&mut handed(&serve, tcp.try_clone().unwrap()));
    running.wait_for_output(&format!("listening on {address}\n"));
    running.wait_for_output("listening on quic://127.0.0.1:");
    xdfs(["cp", "-n", "16", &source, &format!("xdfs://{address}/tcp")]).ok();
    drop(running);
    let path = place.here("socket");
    let unix = UnixListener::bind(&path).unwrap();
    let mut running = Running::start(&mut handed(&serve, unix));
    running.wait_for_output(&format!("listening on unix:{path}\n"));
    let url = format!("xdfs+unix://{}/unix", path.replace('/', "%2F"));
    xdfs(["cp", &source, &url]).ok();
    assert_eq!(names(&root), ["tcp", "unix"]);
    // It belongs to the service manager.
    running.signal("TERM");
    running.wait().ok();
    assert!(std::path::Path::new(&path).exists());
    // Not everybody may come without authentication, whoever opened the socket.
    serve.args(["--insecure=false"]);
    let datagrams = UnixDatagram::bind(place.here("datagrams")).unwrap();
    let run = Running::start(&mut handed(&serve, datagrams)).wait();
    run.fails(2, &["socket of the service manager"]);
}

#[test]
fn a_service_manager_is_told() {
    let place = Place::new();
    let path = place.here("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let told = || {
        let mut bytes = [0; 4096];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let flags = ["--listen", "127.0.0.1:0"];
    let mut server = Server::start_as(&place.root(), &flags, |mut serve| {
        serve.env("NOTIFY_SOCKET", &path);
        serve
    });
    assert_eq!(told().trim(), "READY=1");
    server.running.signal("HUP");
    let reloading = told();
    assert!(
        reloading.contains("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(told().trim(), "READY=1");
    server.running.signal("TERM");
    assert_eq!(told().trim(), "STOPPING=1");
    server.running.wait().ok();
}
