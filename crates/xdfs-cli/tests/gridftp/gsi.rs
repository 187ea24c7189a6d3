//! GSI at the server: the tools of Globus with certificates and proxies, and clients that aren't
//! let in.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use xdfs_testkit::skip;

use crate::grid::{ALICE, Grid, SIGNS, has_tools};
use crate::stage::{PATIENCE, Stage, assert_bytes, assert_same_tree, outcome, run};

const BIG: usize = 3_000_000;
const CLEAR: &str = "protect = \"clear\"";

fn file_url(path: &std::path::Path) -> String {
    format!("file://{}", path.display())
}

#[track_caller]
fn refused(command: &mut Command, why: &str) {
    let (succeeded, text) = outcome(command);
    assert!(!succeeded && text.contains(why), "{command:?}: {text}");
}

/// Whether nothing but ALLO tells that a file is whole: globus-url-copy doesn't send it for empty
/// files.
fn needs_size(flags: &[&str]) -> bool {
    flags.contains(&"-dcpriv") && !flags.contains(&"-fast")
}

/// alice stores a file with these flags, and gets it again.
#[track_caller]
fn there_and_back(stage: &Stage, grid: &Grid, proxy: &str, flags: &[&str]) {
    for bytes in [0, 1, BIG] {
        let wanted = Stage::make(&stage.here("file"), bytes);
        let (url, back) = (stage.gsi_url("/alice/up"), stage.here("back"));
        let words = [&file_url(&stage.here("file")), &url];
        if bytes == 0 && needs_size(flags) {
            refused(grid.copy(proxy, flags).args(words), "end of TLS");
            assert!(!stage.root("alice/up").exists());
            continue;
        }
        run(grid.copy(proxy, flags).args(words));
        assert_bytes(&stage.root("alice/up"), &wanted);
        run(grid.copy(proxy, flags).args([&url, &file_url(&back)]));
        assert_bytes(&back, &wanted);
        fs::remove_file(stage.root("alice/up")).unwrap();
        fs::remove_file(back).unwrap();
    }
}

#[test]
fn globus_url_copy_moves_protected_files_of_users() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(80, "", "");
    for flags in [
        &["-dcpriv"][..],
        &["-dcsafe", "-fast"],
        &["-dcpriv", "-fast", "-p", "4"],
    ] {
        there_and_back(&stage, &grid, "alice", flags);
    }
    // Each kind of proxy, and the certificate itself.
    // Globus itself takes the old form from users without key usage only.
    grid.certify("plain", ALICE, "ca", &["basicConstraints=CA:FALSE"]);
    for (name, user, flags) in [
        ("old", "plain", &["-old"][..]),
        ("limited", "alice", &["-limited"]),
        ("bits", "alice", &["-bits", "4096"]),
    ] {
        grid.proxy(name, user, flags);
        there_and_back(&stage, &grid, name, &["-dcpriv"]);
    }
    // A tree, over cached connections and several control connections.
    for (name, bytes) in [
        ("a", 100),
        ("empty", 0),
        ("sub/c d.txt", (256 << 10) + 1),
        ("b", BIG),
    ] {
        Stage::make(&stage.root("alice/tree").join(name), bytes);
    }
    let flags = ["-dcpriv", "-fast", "-r", "-cd", "-cc", "2"];
    let (tree, here) = (stage.gsi_url("/alice/tree/"), stage.here("tree/"));
    run(grid.copy("alice", &flags).args([&tree, &file_url(&here)]));
    assert_same_tree(&here, &stage.root("alice/tree"));
    let again = stage.gsi_url("/alice/again/");
    run(grid.copy("alice", &flags).args([&file_url(&here), &again]));
    assert_same_tree(&here, &stage.root("alice/again"));
    // A pipe has no size, and without it nothing tells that its end is not one of somebody else.
    let pipe = stage.here("pipe");
    run(Command::new("mkfifo").arg(&pipe));
    let send = |flags: &[&str]| {
        let from = stage.here("tree/sub/c d.txt");
        let mut cat = Command::new("dd");
        let cat = cat.arg(format!("if={}", from.display()));
        let mut cat = cat.arg(format!("of={}", pipe.display())).spawn().unwrap();
        let words = [&file_url(&pipe), &stage.gsi_url("/alice/piped")];
        let sent = outcome(grid.copy("alice", flags).args(words));
        let _ = cat.kill();
        cat.wait().unwrap();
        sent
    };
    let (succeeded, text) = send(&["-dcpriv"]);
    assert!(!succeeded && text.contains("end of TLS"), "{text}");
    assert!(!stage.root("alice/piped").exists());
    let (succeeded, text) = send(&["-dcpriv", "-fast"]);
    assert!(succeeded, "{text}");
    assert_same_tree(&stage.root("alice/piped"), &stage.here("tree/sub/c d.txt"));
    // What isn't protected is refused, and so is what is another user's.
    let url = stage.gsi_url("/alice/tree/a");
    let back = file_url(&stage.here("back"));
    refused(grid.copy("alice", &[]).args([&url, &back]), "521");
    refused(grid.copy("alice", &["-nodcau"]).args([&url, &back]), "534");
    refused(grid.copy("bob", &["-dcpriv"]).args([&url, &back]), "550");
    let audit = fs::read_to_string(stage.beside("audit.jsonl")).unwrap();
    let words = [
        "\"gridftp\"",
        "\"alice\"",
        "\"certificate\"",
        "upload",
        "alice/up",
    ];
    let is_upload = |line: &str| words.iter().all(|word| line.contains(word));
    assert!(audit.lines().any(is_upload), "{audit}");
    // Delegated keys aren't written.
    let files = run(Command::new("grep")
        .args(["-rl", "PRIVATE KEY"])
        .arg(stage.beside("server")));
    let key = stage.beside("server/server.key").display().to_string();
    assert_eq!(files.trim(), key);
}

#[test]
fn data_is_authenticated_and_clear_where_the_settings_let_it() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(81, CLEAR, "");
    for flags in [
        &[][..],
        &["-fast"],
        &["-fast", "-p", "4"],
        &["-nodcau"],
        &["-nodcau", "-fast", "-p", "4"],
        &["-dcpriv"],
    ] {
        there_and_back(&stage, &grid, "alice", flags);
    }
    let url = stage.gsi_url("/alice/");
    Stage::make(&stage.root("alice/listed"), 10);
    let text = run(grid.copy("alice", &["-list", &url]).arg("-fast"));
    assert!(text.contains("listed"), "{text}");
}

#[test]
fn tls_1_2_is_spoken_too() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(82, CLEAR, "");
    for flags in [
        &[][..],
        &["-fast", "-p", "3"],
        &["-dcpriv"],
        &["-dcpriv", "-fast"],
    ] {
        let wanted = Stage::make(&stage.here("file"), BIG);
        let (url, back) = (stage.gsi_url("/alice/up"), stage.here("back"));
        for (from, to) in [
            (&file_url(&stage.here("file")), &url),
            (&url, &file_url(&back)),
        ] {
            let mut copy = grid.copy("alice", flags);
            // That it is, the matrix of clients and servers sees on the wire.
            run(copy
                .env("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", "TLS1_2_VERSION")
                .args([from, to]));
        }
        assert_bytes(&stage.root("alice/up"), &wanted);
        assert_bytes(&back, &wanted);
    }
}

#[test]
fn users_are_those_of_the_grid_map() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(83, "", "");
    Stage::make(&stage.root("alice/file"), 10);
    let back = file_url(&stage.here("back"));
    let get = |user: &str, proxy: &str| {
        let url = stage
            .gsi_url("/alice/file")
            .replace("://", &format!("://{user}"));
        outcome(grid.copy(proxy, &["-dcpriv"]).args([&url, &back]))
    };
    assert!(get("", "alice").0);
    assert!(get("alice@", "alice").0);
    let audit = fs::read_to_string(stage.beside("audit.jsonl")).unwrap();
    let login = audit.lines().next().unwrap();
    let subject = format!("\"subject\":\"{ALICE}\"");
    assert!(login.contains(&subject), "{login}");
    let log = stage.server.output().join("\n");
    assert!(log.contains(ALICE), "{log}");
    // The second of the line is a user without rights; others aren't in it.
    let (succeeded, text) = get("second@", "alice");
    assert!(!succeeded && text.contains("550"), "{text}");
    for user in ["bob@", "root@"] {
        let (succeeded, text) = get(user, "alice");
        assert!(!succeeded && !text.contains("150"), "{user}: {text}");
    }
    // Anonymous users have no certificate to show, and here no rights.
    grid.certify("carol", "/O=Grid/OU=Test/CN=Carol", "ca", &[SIGNS]);
    grid.proxy("carol", "carol", &[]);
    let (succeeded, text) = get("", "carol");
    assert!(!succeeded && text.contains("530"), "{text}");
    // A change of the map takes effect.
    let mut map = fs::read_to_string(grid.path("grid-mapfile")).unwrap();
    map += "/O=Grid/OU=Test/CN=Carol alice\n";
    fs::write(grid.path("grid-mapfile"), map).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !get("", "carol").0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn certificates_that_are_not_valid_do_not_log_in() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(84, "", "limited_proxies = \"refused\"");
    Stage::make(&stage.root("alice/file"), 10);
    let (url, back) = (stage.gsi_url("/alice/file"), file_url(&stage.here("back")));
    let get = |proxy: &str| outcome(grid.copy(proxy, &["-dcpriv"]).args([&url, &back]));
    assert!(get("alice").0);
    grid.proxy("limited", "alice", &["-limited"]);
    let (succeeded, text) = get("limited");
    assert!(!succeeded && text.contains("535"), "{text}");
    // The same name by an authority that nobody trusts. The client's tools don't care.
    grid.certify("forged", ALICE, "evil", &[SIGNS]);
    let parts = ["forged.pem", "forged.key", "evil.pem"].map(|name| fs::read(grid.path(name)));
    let parts: Vec<u8> = parts.into_iter().flat_map(Result::unwrap).collect();
    write_proxy(&grid, "forged", &parts);
    let (succeeded, text) = get("forged");
    assert!(!succeeded, "{text}");
    // Revoked.
    fs::write(grid.path("index.txt"), "").unwrap();
    fs::write(grid.path("crlnumber"), "01\n").unwrap();
    let config = "[ca]\ndefault_ca = d\n[d]\ndatabase = index.txt\ncrlnumber = crlnumber\n\
                  default_md = sha256\n";
    fs::write(grid.path("ca.cnf"), config).unwrap();
    let ca = "-config ca.cnf -cert ca.pem -keyfile ca.key";
    let list = grid.of_authority("ca", "r0");
    let publish = |days: &str| {
        let words = format!("ca {ca} -gencrl {days}");
        let mut gencrl = grid.openssl(&words);
        run(gencrl.arg("-out").arg(&list));
    };
    publish("-crldays 1");
    assert!(get("alice").0);
    run(&mut grid.openssl(&format!("ca {ca} -revoke alice.pem")));
    publish("-crldays 1");
    assert!(!get("alice").0);
    // A list that has ended is the server's failure: it isn't counted for the client, who isn't
    // told where the server has its files.
    publish("-crlsec 1");
    std::thread::sleep(Duration::from_secs(2));
    // The client of Globus would refuse the server by the same list.
    let client = stage.here("certificates");
    fs::create_dir(&client).unwrap();
    for ending in ["0", "signing_policy"] {
        let from = grid.of_authority("ca", ending);
        fs::copy(&from, client.join(from.file_name().unwrap())).unwrap();
    }
    let get_bob = || {
        let mut copy = grid.copy("bob", &["-dcpriv"]);
        outcome(copy.env("X509_CERT_DIR", &client).args([&url, &back]))
    };
    for _ in 0..8 {
        let (succeeded, text) = get_bob();
        assert!(!succeeded && text.contains("535"), "{text}");
        assert!(text.contains("ask the administrator"), "{text}");
        assert!(!text.contains(list.to_str().unwrap()), "{text}");
    }
    let log = stage.server.output().join("\n");
    assert!(log.contains(list.to_str().unwrap()), "{log}");
    publish("-crldays 1");
    let (_, text) = get("bob");
    assert!(
        text.contains("550"),
        "logged in, and without rights: {text}"
    );
    fs::remove_file(&list).unwrap();
    // An authority without a policy is none.
    fs::remove_file(grid.of_authority("ca", "signing_policy")).unwrap();
    assert!(!get("bob").0);
    let log = stage.server.output().join("\n");
    assert!(!log.contains("panicked"), "{log}");
}

/// alice sends what is written to a pipe, and holds her session until the pipe is closed.
struct Held {
    copy: Child,
    pipe: Option<fs::File>,
}

impl Held {
    fn begin(stage: &Stage, grid: &Grid, proxy: &str, flags: &[&str], more: &[String]) -> Self {
        let path = stage.here("pipe");
        run(Command::new("mkfifo").arg(&path));
        let list = stage.here("list");
        let first = format!("{} {}\n", file_url(&path), stage.gsi_url("/alice/held"));
        fs::write(&list, first + &more.join("\n")).unwrap();
        let mut copy = grid.copy(proxy, flags);
        copy.arg("-f").arg(&list);
        copy.stdout(Stdio::piped()).stderr(Stdio::piped());
        let copy = copy.spawn().unwrap();
        let mut open = fs::OpenOptions::new();
        let mut pipe = open.read(true).write(true).open(&path).unwrap();
        pipe.write_all(b"begin ").unwrap();
        Self {
            copy,
            pipe: Some(pipe),
        }
    }

    /// What globus-url-copy says, and whether it succeeds.
    fn end(mut self) -> (bool, String) {
        drop(self.pipe.take());
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        // Without effect on one that has ended.
        let _ = self.copy.kill();
        let ended = self.copy.wait_with_output().unwrap();
        let text = [ended.stdout, ended.stderr].concat();
        (
            ended.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    fn is_running(&mut self) -> bool {
        self.copy.try_wait().unwrap().is_none()
    }
}

/// Waits until something is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn sessions_end_with_their_proof() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(89, CLEAR, "");
    Stage::make(&stage.here("more"), 10);
    // A proxy that ends while a file moves: the file is moved, and no other one.
    let valid = [
        "proxy",
        "init",
        "--cert=alice.pem",
        "--key=alice.key",
        "--valid=12s",
    ];
    let made = Instant::now();
    run(&mut xdfs(
        &grid,
        &[&valid[..], &["--file=short.proxy"]].concat(),
    ));
    let next = format!(
        "{} {}",
        file_url(&stage.here("more")),
        stage.gsi_url("/alice/more")
    );
    let flags = ["-nodcau", "-c", "-dbg"];
    let held = Held::begin(&stage, &grid, "short", &flags, &[next]);
    std::thread::sleep(Duration::from_secs(14).saturating_sub(made.elapsed()));
    let (succeeded, text) = held.end();
    assert!(!succeeded && text.contains("has expired"), "{text}");
    assert_eq!(fs::read(stage.root("alice/held")).unwrap(), b"begin ");
    assert!(!stage.root("alice/more").exists());
    // A line that goes away takes the session with it, malformed lines or not.
    fs::remove_file(stage.here("pipe")).unwrap();
    let mut held = Held::begin(&stage, &grid, "alice", &["-dcpriv", "-fast"], &[]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(held.is_running());
    let map = "/O=Grid/OU=Test/CN=Bob bob\nwhat is this\n";
    fs::write(grid.path("grid-mapfile"), map).unwrap();
    // globus-url-copy itself waits for the pipe.
    until("the session goes on", || {
        let audit = fs::read_to_string(stage.beside("audit.jsonl")).unwrap();
        let mut uploads = audit.lines().filter(|line| line.contains("\"upload\""));
        uploads.any(|line| !line.contains("\"result\":\"ok\""))
    });
    held.copy.kill().unwrap();
    assert!(!held.end().0);
    let log = stage.server.output().join("\n");
    assert!(log.contains("a line of the grid map is left out"), "{log}");
}

#[test]
fn strangers_at_a_passive_port_do_not_end_a_transfer() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let port = 23_894;
    let ports = format!("[gridftp]\nports = \"{port}-{port}\"");
    let (stage, grid) = Stage::with_gsi(90, &ports, "");
    let mut held = Held::begin(&stage, &grid, "alice", &["-dcpriv", "-fast"], &[]);
    let mut strangers = Vec::new();
    until("nothing listens", || {
        strangers.extend(TcpStream::connect(("127.0.0.1", port)));
        !strangers.is_empty()
    });
    for text in ["GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\0\x05hello", ""] {
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stranger.write_all(text.as_bytes()).unwrap();
        strangers.push(stranger);
    }
    std::thread::sleep(Duration::from_secs(2));
    assert!(held.is_running());
    let pipe = held.pipe.as_mut().unwrap();
    pipe.write_all(b"and end").unwrap();
    let (succeeded, text) = held.end();
    assert!(succeeded, "{text}");
    assert_eq!(
        fs::read(stage.root("alice/held")).unwrap(),
        b"begin and end"
    );
    let log = stage.server.output().join("\n");
    assert!(log.contains("a data connection of somebody else"), "{log}");
}

fn write_proxy(grid: &Grid, name: &str, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = grid.path(&format!("{name}.proxy"));
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A control connection without TLS, line by line.
struct Raw(BufReader<TcpStream>);

impl Raw {
    fn open(stage: &Stage) -> Self {
        let stream = TcpStream::connect(&stage.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut raw = Self(BufReader::new(stream));
        assert!(raw.line().starts_with("220 "));
        raw
    }

    /// The next line; empty at the end of the connection.
    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.0.read_line(&mut line);
        read.map_or_else(|_| String::new(), |_| line)
    }

    fn say(&mut self, command: &[u8]) -> String {
        let stream = self.0.get_mut();
        // The server may have closed it already.
        let _ = stream.write_all(&[command, b"\r\n"].concat());
        self.line()
    }
}

#[test]
fn garbage_instead_of_tokens_ends_the_session() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, _grid) = Stage::with_gsi(85, "", "");
    let mut raw = Raw::open(&stage);
    // Nothing of GSI without AUTH.
    for command in [
        "ADAT AAAA",
        "ENC AAAA",
        "MIC AAAA",
        "CONF AAAA",
        "DCAU A",
        "PROT P",
        "PBSZ 0",
    ] {
        let reply = raw.say(command.as_bytes());
        assert!(reply.starts_with("503 "), "{command}: {reply}");
    }
    for command in [
        "CCC", "DCAU X", "DCAU S", "PROT E", "ADAT", "ADAT =", "ADAT AAA", "AUTH X",
    ] {
        let reply = raw.say(command.as_bytes());
        assert!(reply.starts_with('5'), "{command}: {reply}");
    }
    assert!(raw.say(b"USER :globus-mapping:").starts_with("530 "));
    let long = |bytes: usize| [b"ADAT ".to_vec(), vec![b'A'; bytes]].concat();
    for token in [
        b"ADAT AAAA".to_vec(),
        b"ADAT FgMBAAUBAAAA".to_vec(),
        b"ADAT /////w==".to_vec(),
        long(4096),
        long(40_000),
    ] {
        let mut raw = Raw::open(&stage);
        assert!(raw.say(b"auth gssapi").starts_with("334 "));
        let reply = raw.say(&token);
        // Addresses with failures wait, which is told by the same code.
        assert!(reply.starts_with("535 "), "{reply}");
        assert_eq!(raw.line(), "", "the session goes on");
    }
    let mut raw = Raw::open(&stage);
    assert!(raw.say(b"AUTH GSSAPI").starts_with("334 "));
    let reply = raw.say(&long(60_000));
    assert!(reply.contains("at most 49152 bytes"), "{reply}");
    for (token, code) in [(long(60_000), "500 "), (b"ADAT *".to_vec(), "501 ")] {
        let mut raw = Raw::open(&stage);
        assert!(raw.say(b"AUTH GSSAPI").starts_with("334 "));
        let reply = raw.say(&token);
        assert!(reply.starts_with(code), "{reply}");
        assert!(raw.say(b"AUTH GSSAPI").starts_with("503 "));
    }
    let log = stage.server.output().join("\n");
    assert!(!log.contains("panicked"), "{log}");
}

/// A server of Globus that serves everything to alice's certificate, as this user.
pub(crate) fn globus_server(grid: &Grid) -> (xdfs_testkit::process::Guard, String) {
    globus_server_with(grid, &[])
}

/// The same, with more flags.
pub(crate) fn globus_server_with(
    grid: &Grid,
    flags: &[&str],
) -> (xdfs_testkit::process::Guard, String) {
    let user = run(Command::new("id").arg("-un"));
    let map = format!("\"{ALICE}\" {}\n", user.trim());
    fs::write(grid.path("globus-mapfile"), map).unwrap();
    let mut serve = Command::new("globus-gridftp-server");
    serve
        .env("X509_CERT_DIR", grid.path("certificates"))
        .env("X509_USER_CERT", grid.path("host.pem"))
        .env("X509_USER_KEY", grid.path("host.key"))
        .env("GRIDMAP", grid.path("globus-mapfile"))
        .args([
            "-control-interface",
            "127.0.0.1",
            "-data-interface",
            "127.0.0.1",
        ])
        .args([
            "-p",
            "0",
            "-disable-usage-stats",
            "-no-detach",
            "-allow-root",
        ])
        .args(flags);
    let server = xdfs_testkit::process::Guard::spawn(&mut serve).unwrap();
    let address = |line: &str| {
        let port = line
            .strip_prefix("Server listening at ")?
            .rsplit_once(':')?
            .1;
        Some(format!("localhost:{}", port.trim()))
    };
    let Some(address) = server.line(PATIENCE, address) else {
        panic!("the server of Globus did not start: {:?}", server.output());
    };
    (server, address)
}

#[test]
fn files_move_between_this_server_and_that_of_globus() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(86, CLEAR, "");
    let (_server, address) = globus_server(&grid);
    let there = format!("gsiftp://{address}{}", stage.here("there").display());
    for flags in [
        &[][..],
        &["-fast", "-p", "2"],
        &["-dcpriv", "-fast"],
        &["-nodcau"],
    ] {
        let wanted = Stage::make(&stage.root("alice/file"), BIG);
        let from = stage.gsi_url("/alice/file");
        run(grid.copy("alice", flags).args([&from, &there]));
        assert_bytes(&stage.here("there"), &wanted);
        let back = stage.gsi_url("/alice/back");
        run(grid.copy("alice", flags).args([&there, &back]));
        assert_bytes(&stage.root("alice/back"), &wanted);
        fs::remove_file(stage.here("there")).unwrap();
        fs::remove_file(stage.root("alice/back")).unwrap();
    }
}

fn xdfs(grid: &Grid, words: &[&str]) -> Command {
    let mut xdfs = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    xdfs.current_dir(grid.path(""))
        .env_remove("HOME")
        .env_remove("X509_USER_CERT")
        .env_remove("X509_USER_KEY")
        .args(words);
    xdfs
}

#[test]
fn proxies_of_xdfs_are_those_of_globus() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(88, "", "");
    Stage::make(&stage.root("alice/file"), 10);
    let (url, back) = (stage.gsi_url("/alice/file"), file_url(&stage.here("back")));
    let own = ["--cert=alice.pem", "--key=alice.key", "--file=own.proxy"];
    let init = |flags: &[&str]| xdfs(&grid, &[&["proxy", "init"], &own[..], flags].concat());
    for (flags, kind) in [
        (&[][..], "RFC 3820 compliant impersonation proxy"),
        (
            &["--limited", "--valid=30m"],
            "RFC 3820 compliant limited proxy",
        ),
        (
            &["--path-length=1", "--bits=3072"],
            "RFC 3820 compliant impersonation proxy",
        ),
    ] {
        run(&mut init(flags));
        let mut look = Command::new("grid-proxy-info");
        let text = run(look.arg("-f").arg(grid.path("own.proxy")));
        assert!(text.contains(kind) && text.contains(ALICE), "{text}");
        let wanted = match flags.contains(&"--valid=30m") {
            true => ["timeleft : 0:30:00", "timeleft : 0:29:"],
            false => ["timeleft : 12:00:00", "timeleft : 11:59:"],
        };
        assert!(wanted.iter().any(|left| text.contains(left)), "{text}");
        run(grid.copy("own", &["-dcpriv"]).args([&url, &back]));
        let text = run(&mut xdfs(&grid, &["proxy", "info", "--file=own.proxy"]));
        assert!(text.contains(ALICE), "{text}");
        assert_eq!(text.contains("limited"), kind.contains("limited"), "{text}");
    }
    run(&mut init(&["--legacy"]));
    let mut look = Command::new("grid-proxy-info");
    let text = run(look.arg("-f").arg(grid.path("own.proxy")));
    assert!(text.contains("legacy globus proxy"), "{text}");
    // The tools of Globus make others from it for data connections, as from their own.
    grid.certify("plain", ALICE, "ca", &["basicConstraints=CA:FALSE"]);
    let plain = ["--cert=plain.pem", "--key=plain.key", "--file=plain.proxy"];
    run(&mut xdfs(
        &grid,
        &[&["proxy", "init", "--legacy"], &plain[..]].concat(),
    ));
    let (_globus, address) = globus_server(&grid);
    let there = format!("gsiftp://{address}{}", stage.here("there").display());
    for flags in [&["-dcpriv"][..], &[]] {
        run(grid
            .copy("plain", flags)
            .args([&file_url(&stage.root("alice/file")), &there]));
    }
    run(grid.copy("plain", &["-dcpriv"]).args([&url, &back]));
    // The default place is that of Globus, and a pipe there doesn't hold anything.
    let mut look = xdfs(&grid, &["proxy", "info"]);
    let look = look
        .env_remove("X509_USER_PROXY")
        .env("TMPDIR", grid.path(""));
    let (_, text) = outcome(look);
    assert!(
        !text.contains("TMPDIR") && !text.contains(grid.path("").to_str().unwrap()),
        "{text}"
    );
    run(Command::new("mkfifo").arg(grid.path("pipe")));
    for verb in ["info", "destroy"] {
        refused(
            &mut xdfs(&grid, &["proxy", verb, "--file=pipe"]),
            "regular file",
        );
    }
    refused(&mut init(&["--valid=0s"]), "at least a second");
    refused(&mut init(&["--valid=99999999d"]), "ten years");
    // One that is made of a proxy, and one of a proxy that allows none.
    run(&mut init(&["--path-length=0"]));
    let below = [
        "proxy",
        "init",
        "--cert=own.proxy",
        "--key=own.proxy",
        "--file=below.proxy",
    ];
    refused(&mut xdfs(&grid, &below), "doesn't allow others");
    run(&mut init(&[]));
    run(&mut xdfs(&grid, &below));
    run(grid.copy("below", &["-dcpriv"]).args([&url, &back]));
    // Only the owner reads it, a link is replaced and not followed, and nothing else is removed.
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |name: &str| fs::metadata(grid.path(name)).unwrap().permissions().mode();
    assert_eq!(mode("own.proxy") & 0o777, 0o600);
    fs::write(grid.path("victim"), "x").unwrap();
    fs::remove_file(grid.path("own.proxy")).unwrap();
    std::os::unix::fs::symlink(grid.path("victim"), grid.path("own.proxy")).unwrap();
    run(&mut init(&[]));
    assert_eq!(fs::read(grid.path("victim")).unwrap(), b"x");
    let pem = ["alice.pem", "alice.key"].map(|name| fs::read(grid.path(name)).unwrap());
    write_proxy(&grid, "user", &pem.concat());
    refused(
        &mut xdfs(&grid, &["proxy", "destroy", "--file=user.proxy"]),
        "no proxy",
    );
    run(&mut xdfs(&grid, &["proxy", "destroy", "--file=own.proxy"]));
    assert!(!grid.path("own.proxy").exists() && grid.path("user.proxy").exists());
    // An encrypted key needs a password, which isn't there without a terminal.
    run(grid
        .openssl("pkey -in alice.key -aes256 -out hidden.key")
        .args(["-passout", "pass:x"]));
    let hidden = [
        "proxy",
        "init",
        "--cert=alice.pem",
        "--key=hidden.key",
        "--file=no.proxy",
    ];
    refused(&mut xdfs(&grid, &hidden), "password");
    assert!(!grid.path("no.proxy").exists());
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let place = xdfs_testkit::tree::TempTree::new(87).unwrap();
    let check = |config: &str| {
        fs::write(place.join("xdfs.toml"), config).unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_xdfs"));
        serve
            .env("XDFS_CONFIG_DIR", place.join("keys"))
            .args(["serve", "--check-config", "--config"])
            .arg(place.join("xdfs.toml"));
        outcome(&mut serve)
    };
    let gsi = "[gridftp.gsi]\ncertificate = \"a\"\nkey = \"b\"\nauthorities = \"c\"\n";
    for (more, why) in [
        ("", "one grid map"),
        ("grid_map = \"d\"\n", "read the certificate"),
        ("grid_map = \"d\"\nlimited_proxies = \"maybe\"\n", "maybe"),
        ("grid_map = \"d\"\nother = 1\n", "other"),
    ] {
        let (succeeded, text) = check(&format!("{gsi}{more}"));
        assert!(!succeeded && text.contains(why), "{more}: {text}");
    }
    let (succeeded, text) = check(&format!("insecure = true\n{gsi}grid_map = \"d\"\n"));
    assert!(!succeeded && text.contains("[gridftp.gsi]"), "{text}");
}
