//! `ftp://` places of the client, at the real servers: commands, files and trees both ways, and
//! what happens when either side is killed.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use xdfs_testkit::process::Guard;
use xdfs_testkit::{skip, wait};

use crate::stage::{PATIENCE, Stage, assert_bytes, assert_same_tree, has, outcome, run};
use crate::tools::Globus;

/// Bytes that need several data connections.
const LARGE: usize = 12_000_001;

/// The program with its arguments.
pub(crate) fn xdfs(stage: &Stage, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    command
        .env("XDFS_CONFIG_DIR", stage.beside("client"))
        // Of the tests of GSI.
        .env("X509_CERT_DIR", stage.beside("grid/certificates"))
        .env("X509_USER_PROXY", stage.beside("grid/alice.proxy"))
        .env_remove("HOME")
        .args(words);
    command
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The seconds of a file's modification time.
fn seconds(path: &Path) -> i64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).unwrap().mtime()
}

/// A directory of a server, and how to reach it.
#[derive(Clone, Copy)]
pub(crate) struct There<'a> {
    pub(crate) url: &'a str,
    pub(crate) root: &'a Path,
    /// What says whom to trust.
    pub(crate) flags: &'a [&'a str],
}

/// How to reach servers without TLS.
const CLEAR: &[&str] = &["--insecure"];

/// Moves files both ways and changes names.
#[track_caller]
pub(crate) fn works(stage: &Stage, there: There<'_>) {
    let There { url, root, flags } = there;
    let act = |words: &[&str]| {
        let words = [&words[..1], flags, &words[1..]].concat();
        run(&mut xdfs(stage, &words))
    };
    for (number, bytes) in [0, 5, LARGE].into_iter().enumerate() {
        let served = root.join("file");
        let content = Stage::make(&served, bytes);
        let target = stage.here(&format!("down{number}"));
        let from = format!("{url}/file");
        act(&["cp", "-n", "3", &from, &text(&target)]);
        assert_bytes(&target, &content);
        assert_eq!(seconds(&target), seconds(&served));
        // The second time nothing is left to do.
        act(&["cp", &from, &text(&target)]);
        let shown = act(&["sum", &from]);
        let own = run(&mut xdfs(stage, &["sum", &text(&target)]));
        assert_eq!(shown.split(' ').next(), own.split(' ').next());
        let stored = root.join("stored");
        act(&["cp", "-f", &text(&target), &format!("{url}/stored")]);
        assert_bytes(&stored, &content);
        assert!(seconds(&stored).abs_diff(seconds(&target)) <= 1);
    }
    fs::write(root.join("small"), "hello\n").unwrap();
    assert_eq!(act(&["cat", &format!("{url}/small")]), "hello");
    let shown = act(&["stat", &format!("{url}/small")]);
    assert!(shown.contains("Size: 6"), "{shown}");
    act(&["mkdir", "-p", &format!("{url}/a/b c")]);
    act(&["mkdir", "-p", &format!("{url}/a/b c")]);
    act(&["mv", &format!("{url}/small"), &format!("{url}/a/b c/d")]);
    assert_bytes(&root.join("a/b c/d"), b"hello\n");
    act(&["rm", &format!("{url}/a/b c/d")]);
    assert!(root.join("a/b c").exists() && !root.join("a/b c/d").exists());
    let missing = format!("{url}/missing");
    let words = [&["cat"], flags, &[&missing]].concat();
    let (succeeded, said) = outcome(&mut xdfs(stage, &words));
    assert!(!succeeded && said.contains("missing"), "{said}");
    let left: Vec<_> = fs::read_dir(root).unwrap().collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

/// Copies a tree both ways, lists it, and removes it.
#[track_caller]
pub(crate) fn trees_work(stage: &Stage, there: There<'_>) {
    let There { url, root, flags } = there;
    let act = |words: &[&str]| {
        let words = [&words[..1], flags, &words[1..]].concat();
        run(&mut xdfs(stage, &words))
    };
    let tree = stage.here("tree");
    for number in 0..150 {
        Stage::make(
            &tree.join(format!("d{}/f {number}", number % 7)),
            number * 37,
        );
    }
    Stage::make(&tree.join("deep/er/large"), LARGE);
    fs::create_dir(tree.join("empty")).unwrap();
    let (up, down) = (format!("{url}/up"), stage.here("down"));
    act(&["cp", "-r", &text(&tree), &up]);
    assert_same_tree(&tree, &root.join("up"));
    let file = "d1/f 8";
    assert!(seconds(&root.join("up").join(file)).abs_diff(seconds(&tree.join(file))) <= 1);
    act(&["cp", "-r", &up, &text(&down)]);
    assert_same_tree(&tree, &down);
    assert_eq!(
        seconds(&down.join(file)),
        seconds(&root.join("up").join(file))
    );
    let listed = act(&["ls", &up]);
    let names: Vec<_> = listed.lines().collect();
    let wanted = ["d0", "d1", "d2", "d3", "d4", "d5", "d6", "deep", "empty"];
    assert_eq!(names, wanted);
    act(&["rm", "-r", &up]);
    assert!(!root.join("up").exists());
}

#[test]
fn everything_works_at_our_own_server() {
    let stage = Stage::open(80, &[]);
    let (url, root) = (stage.url(""), stage.root(""));
    let there = There {
        url: &url,
        root: &root,
        flags: CLEAR,
    };
    works(&stage, there);
    trees_work(&stage, there);
}

#[test]
fn everything_works_at_the_globus_server() {
    let Some(globus) = Globus::start() else {
        return;
    };
    let stage = Stage::open(81, &[]);
    // The path is no path of the login's directory, hence the second slash.
    let url = format!("ftp://{}/{}", globus.address, text(&stage.root("")));
    let root = stage.root("");
    let there = There {
        url: url.trim_end_matches('/'),
        root: &root,
        flags: CLEAR,
    };
    works(&stage, there);
    trees_work(&stage, there);
}

/// vsftpd for one directory, in which everybody may write, also for transfers between servers, with
/// more settings. Returns its address too.
pub(crate) fn vsftpd(stage: &Stage, more: &str) -> Option<(Guard, SocketAddr)> {
    vsftpd_told(stage, more, |_| {})
}

/// The same, by a command that `tell` has changed.
pub(crate) fn vsftpd_told(
    stage: &Stage,
    more: &str,
    tell: impl Fn(&mut Command),
) -> Option<(Guard, SocketAddr)> {
    if !has("vsftpd") {
        skip::test("vsftpd is not installed");
        return None;
    }
    let root = stage.beside("anonymous");
    fs::create_dir_all(root.join("pub")).unwrap();
    // It takes no port of the kernel's choice: another process may get it first, then once more.
    for _ in 0..10 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        drop(port);
        let config = stage.beside("vsftpd.conf");
        let lines = format!(
            "listen=YES\nlisten_address=127.0.0.1\nlisten_port={}\nbackground=NO\n\
             anonymous_enable=YES\nanon_root={}\nwrite_enable=YES\nanon_upload_enable=YES\n\
             anon_mkdir_write_enable=YES\nanon_other_write_enable=YES\nanon_umask=022\n\
             anon_world_readable_only=NO\nrun_as_launching_user=YES\nseccomp_sandbox=NO\n\
             port_promiscuous=YES\npasv_promiscuous=YES\n{more}\n",
            address.port(),
            root.display(),
        );
        fs::write(&config, lines).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("vsftpd");
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        tell(&mut command);
        let mut server = Guard::spawn(command.arg(&config)).unwrap();
        // One whose port another process got ends.
        let reached = wait::until(PATIENCE, || {
            server.wait(Duration::ZERO).unwrap().is_some()
                || std::net::TcpStream::connect(address).is_ok()
        });
        if reached && server.wait(Duration::ZERO).unwrap().is_none() {
            return Some((server, address));
        }
    }
    panic!("vsftpd did not start");
}

/// Stores a tree by several connections at once, of which the first makes its directory: what the
/// others find meanwhile is no failure.
#[track_caller]
pub(crate) fn small_files_go_up(stage: &Stage, there: There<'_>) {
    let tree = stage.here("small-tree");
    for number in 0..61 {
        Stage::make(&tree.join(format!("f {number}")), number * 37);
    }
    for turn in 0..8 {
        let (from, to) = (text(&tree), format!("{}/small{turn}", there.url));
        let words = [&["cp", "-r"], there.flags, &[&from, &to]].concat();
        run(&mut xdfs(stage, &words));
        assert_same_tree(&tree, &there.root.join(format!("small{turn}")));
    }
}

#[test]
fn files_go_both_ways_at_vsftpd() {
    let stage = Stage::open(82, &[]);
    let Some((_server, address)) = vsftpd(&stage, "") else {
        return;
    };
    let url = format!("ftp://{address}/pub");
    let root = stage.beside("anonymous/pub");
    let there = There {
        url: &url,
        root: &root,
        flags: CLEAR,
    };
    works(&stage, there);
    small_files_go_up(&stage, there);
}

#[test]
fn without_consent_nothing_is_sent() {
    let stage = Stage::open(83, &[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("ftp://me:secret@{}/x", listener.local_addr().unwrap());
    let (succeeded, said) = outcome(&mut xdfs(&stage, &["cat", &url]));
    let wanted = "FTP sends passwords, names and data unencrypted";
    assert!(!succeeded && said.contains(wanted), "{said}");
    assert!(
        said.contains("--insecure") && !said.contains("secret@"),
        "{said}"
    );
    assert!(listener.accept().is_err());
}

#[cfg(not(feature = "gsi"))]
#[test]
fn a_program_without_gsi_says_how_to_get_it() {
    let stage = Stage::open(86, &[]);
    let url = stage.url("/f").replace("ftp://", "gsiftp://");
    let (succeeded, said) = outcome(&mut xdfs(&stage, &["cat", &url]));
    assert!(!succeeded && said.contains("--features gsi"), "{said}");
}

#[test]
fn a_killed_server_is_waited_for() {
    let mut stage = Stage::open(85, &[]);
    let content = Stage::make(&stage.root("file"), 3 * LARGE);
    let target = stage.here("file");
    let (url, path) = (stage.url("/file"), text(&target));
    let words = ["cp", "-v", "--insecure", "--limit-rate=8M", &url, &path];
    let mut client = Guard::spawn(&mut xdfs(&stage, &words)).unwrap();
    let has_part = || {
        let mut entries = fs::read_dir(stage.here("")).unwrap();
        entries.any(|entry| entry.unwrap().metadata().is_ok_and(|found| found.len() > 0))
    };
    assert!(wait::until(PATIENCE, has_part), "{:?}", client.output());
    stage.kill_and_restart();
    let status = client.wait(PATIENCE).unwrap();
    assert!(
        status.is_some_and(|status| status.success()),
        "{:?}",
        client.output()
    );
    assert_bytes(&target, &content);
    // That it was away doesn't say that it can't connect.
    let said = client.output().join("\n");
    assert!(!said.contains("can't connect to this machine"), "{said}");
}
