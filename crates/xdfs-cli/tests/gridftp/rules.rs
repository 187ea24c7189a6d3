//! Users, rights, quotas, limits, the audit log, reloading and the end: those of the server.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use xdfs_testkit::process::umask;

use crate::client::{Client, blocks, data};
use crate::places::xdfs;
use crate::stage::{PATIENCE, Stage, assert_bytes, run};

const PUBLIC: &str = r#"folder = "server"
audit = "audit.jsonl"
[[export]]
name = "open"
path = "ROOT/open"
public = true
[[export.grant]]
user = "alice"
rights = ["read", "list", "write"]
[[export]]
name = "drop"
path = "ROOT/drop"
public = true
anonymous = ["read", "list", "create", "write", "delete"]
quota_bytes = 10000
[[export]]
name = "own"
path = "ROOT/own"
[[export.grant]]
user = "alice"
rights = ["read", "list", "write"]
"#;

const PRIVATE: &str = r#"folder = "server"
[[export]]
name = "own"
path = "ROOT/own"
[[export.grant]]
user = "alice"
rights = ["read", "list", "write"]
"#;

/// A server with these settings, whose directories have a file each.
fn stage(seed: u64, config: &str) -> Stage {
    // The directories have to be there before the server starts, which makes the root itself.
    Stage::prepared(seed, config, |root| {
        for name in ["open", "drop", "own"] {
            Stage::make(&root.join(name).join("file"), 100);
        }
    })
}

/// What the settings say to all takes away what exports give.
#[test]
fn a_server_that_is_read_only_takes_nothing_in_exports_either() {
    let stage = stage(29, &format!("read_only = true\n{PUBLIC}"));
    let mut client = Client::log_in(&stage);
    client.ask("SIZE /drop/file", 213);
    client.passive();
    for line in [
        "DELE drop/file",
        "MKD drop/new",
        "STOR drop/other",
        "APPE drop/file",
    ] {
        client.ask(line, 550);
    }
    assert!(stage.root("drop/file").exists() && !stage.root("drop/other").exists());
}

#[test]
fn anonymous_users_have_the_rights_of_public_exports() {
    let stage = stage(30, PUBLIC);
    let mut client = Client::connect(&stage);
    client.ask("USER alice", 530);
    client.ask("PASS secret", 503);
    client.ask("USER anonymous", 331);
    client.ask("PASS x", 230);
    let rows = client.ask("MLSC /", 250);
    assert!(
        rows.contains("open") && rows.contains("drop") && !rows.contains("own"),
        "{rows}"
    );
    let mut stream = data(client.passive());
    client.ask("RETR open/file", 150);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    client.expect(226);
    assert_eq!(bytes, fs::read(stage.root("open/file")).unwrap());
    client.passive();
    for line in [
        "RETR own/file",
        "STOR open/new",
        "APPE open/file",
        "ESTO A 0 open/file",
        "DELE open/file",
        "MKD open/d",
        "SITE CHMOD 777 open/file",
        "MFMT 20200101000000 open/file",
        "RMD open",
        "RNFR own/file",
        "CKSM MD5 0 -1 own/file",
        "MLST own",
        "SIZE own/file",
        "CWD own",
    ] {
        client.ask(line, 550);
    }
    client.ask("RNFR open/file", 350);
    client.ask("RNTO drop/file2", 550);
    assert_eq!(fs::read_dir(stage.root("open")).unwrap().count(), 1);
    let audit = fs::read_to_string(stage.beside("audit.jsonl")).unwrap();
    let has = |words: &[&str]| {
        audit
            .lines()
            .any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(
        has(&["\"gridftp\"", "download", "open/file", "\"anonymous\""]),
        "{audit}"
    );
    assert!(has(&["\"gridftp\"", "refuse"]), "{audit}");
    assert!(has(&["\"gridftp\"", "change", "open/d"]), "{audit}");
}

/// Neither users without a name nor servers decide on set-user-id, set-group-id and sticky.
#[test]
fn special_bits_are_no_strangers() {
    let stage = stage(45, PUBLIC);
    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    let mut client = Client::connect(&stage);
    client.ask("USER anonymous", 331);
    client.ask("PASS x", 230);
    client.ask("MKD drop/d", 257);
    for bits in ["6777", "4755", "2755", "1777"] {
        client.ask(&format!("SITE CHMOD {bits} drop/d"), 550);
        client.ask(&format!("SITE CHMOD {bits} drop/file"), 550);
    }
    client.ask("SITE CHMOD 711 drop/d", 250);
    assert_eq!(mode(&stage.root("drop/d")), 0o711);
    // In MODE T what can't be had is left out.
    let tree = stage.here("tree");
    for name in ["d", "sticky"] {
        Stage::make(&tree.join(name).join("tool"), 100);
        set(&tree.join(name).join("tool"), 0o6755);
    }
    set(&tree.join("d"), 0o6775);
    set(&tree.join("sticky"), 0o1777);
    let act = |words: &[&str]| run(&mut xdfs(&stage, words));
    let is_same = |from: &str, to: &str| {
        let said = act(&["sync", "--dry-run", "--insecure", from, to]);
        assert!(said.contains(": up to date ("), "{said}");
    };
    let (from, to) = (tree.display().to_string(), stage.url("/drop/sent"));
    act(&["cp", "-r", "--insecure", &from, &to]);
    let members = [("d", 0o775), ("d/tool", 0o755), ("sticky", 0o777)];
    for (name, wanted) in members {
        assert_eq!(mode(&stage.root("drop/sent").join(name)), wanted, "{name}");
    }
    is_same(&from, &to);
    // The client gives none either, whatever the server wishes.
    for (name, bits) in [("d", 0o6777), ("d/tool", 0o4777), ("sticky", 0o1777)] {
        set(&stage.root("drop/sent").join(name), bits);
    }
    let left = 0o777 & !umask().unwrap();
    for command in [&["cp", "-r"][..], &["sync"]] {
        let target = stage.here(command[0]);
        let target = target.display().to_string();
        act(&[command, &["--insecure", &to, &target]].concat());
        for name in ["d", "d/tool", "sticky"] {
            let found = mode(&Path::new(&target).join(name));
            assert_eq!(found, left, "{name}");
        }
        is_same(&to, &target);
        let single = format!("{target}-tool");
        act(&["cp", "--insecure", &format!("{to}/d/tool"), &single]);
        assert_eq!(mode(Path::new(&single)), left);
    }
}

#[test]
fn quotas_hold_for_every_way_to_write() {
    let stage = stage(31, PUBLIC);
    let mut client = Client::log_in(&stage);
    let mut put = |command: &str, bytes: usize| {
        let mut stream = data(client.passive());
        client.send(format!("{command}\r\n").as_bytes());
        let (code, text) = client.reply().unwrap();
        if code >= 200 {
            return (code, text);
        }
        let _ = stream.write_all(&vec![7; bytes]);
        drop(stream);
        client.reply().unwrap()
    };
    assert_eq!(put("STOR drop/a", 5000).0, 226);
    for command in ["STOR drop/b", "APPE drop/a", "ESTO A 5000 drop/a"] {
        let (code, text) = put(command, 20_000);
        assert_eq!(code, 552, "{command}: {text}");
        assert_eq!(fs::metadata(stage.root("drop/file")).unwrap().len(), 100);
    }
    assert!(!stage.root("drop/b").exists());
    assert_eq!(put("STOR drop/c", 100).0, 226);
    assert_bytes(&stage.root("drop/c"), &[7; 100]);
}

#[test]
fn without_public_exports_nobody_comes_in() {
    let stage = stage(32, PRIVATE);
    let mut client = Client::connect(&stage);
    client.ask("USER anonymous", 331);
    client.ask("PASS x", 530);
    client.ask("MLSC /", 530);
}

#[test]
fn a_user_has_as_many_sessions_as_the_settings_say() {
    let config = format!("{PUBLIC}[limits]\nsessions_per_user_max = 2\n");
    let stage = stage(33, &config);
    let first = Client::log_in(&stage);
    let _second = Client::log_in(&stage);
    let mut third = Client::connect(&stage);
    third.ask("USER anonymous", 331);
    third.ask("PASS x", 530);
    drop(first);
    let again = || {
        third.ask("USER anonymous", 331);
        third.send(b"PASS x\r\n");
        third.reply().unwrap().0 == 230
    };
    assert!(xdfs_testkit::wait::until(PATIENCE, again));
    // All sessions of all users count together too.
    let stage = Stage::open(34, &["--sessions-max", "1"]);
    let _only = Client::log_in(&stage);
    let mut refused = Client::connect(&stage);
    refused.ask("USER anonymous", 331);
    refused.ask("PASS x", 421);
    assert!(refused.reply().is_none());
}

#[test]
fn data_connections_count_against_the_limit_of_the_user() {
    // One for each session, and two more.
    let config = format!("{PUBLIC}[limits]\nchannels_per_user_max = 3\n");
    let stage = stage(38, &config);
    let mut client = Client::log_in(&stage);
    client.ask("MODE E", 200);
    client.ask("OPTS RETR Parallelism=3,3,3;", 200);
    let _listener = client.active();
    client.ask("RETR open/file", 450);
    client.ask("OPTS RETR Parallelism=2,2,2;", 200);
    let listener = client.active();
    client.ask("RETR open/file", 150);
    let mut streams = [listener.accept().unwrap().0, listener.accept().unwrap().0];
    streams.iter_mut().for_each(|stream| drop(blocks(stream)));
    client.expect(226);
    let mut third = Client::connect(&stage);
    third.ask("USER anonymous", 331);
    third.ask("PASS x", 530);
}

#[test]
fn sessions_run_with_the_ids_of_accounts() {
    if !rustix::process::geteuid().is_root() {
        return xdfs_testkit::skip::test("only root can change ids");
    }
    let config = format!("{PUBLIC}[accounts]\nanonymous = \"nobody\"\n");
    let stage = stage(39, &config);
    let open = |path: std::path::PathBuf, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for path in [stage.beside(""), stage.root("")] {
        open(path, 0o755);
    }
    open(stage.root("drop"), 0o777);
    open(stage.root("open/file"), 0o600);
    let mut client = Client::log_in(&stage);
    let mut stream = data(client.passive());
    client.ask("STOR drop/new", 150);
    stream.write_all(b"new").unwrap();
    drop(stream);
    client.expect(226);
    let owner = fs::metadata(stage.root("drop/new")).unwrap().uid();
    assert_ne!(owner, 0);
    client.passive();
    client.ask("RETR open/file", 550);
    client.ask("CKSM MD5 0 -1 open/file", 550);
}

#[test]
fn a_reload_ends_sessions_that_are_not_admitted_any_more() {
    let stage = stage(35, PUBLIC);
    let mut client = Client::log_in(&stage);
    client.ask("MLSC /open", 250);
    let text = fs::read_to_string(stage.beside("xdfs.toml")).unwrap();
    let text = text.replacen("public = true\n", "", 1);
    fs::write(stage.beside("xdfs.toml"), text).unwrap();
    let id = stage.server.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-HUP", &id])
            .status()
            .unwrap()
            .success()
    );
    client.expect(421);
    assert!(client.reply().is_none());
    let mut client = Client::log_in(&stage);
    client.ask("MLSC /open", 550);
    client.ask("MLSC /drop", 250);
}

#[test]
fn the_end_of_the_server_waits_for_transfers() {
    let mut stage = Stage::open(36, &["--grace", "60"]);
    let mut idle = Client::log_in(&stage);
    let mut client = Client::log_in(&stage);
    let mut stream = data(client.passive());
    client.ask("STOR new", 150);
    stream.write_all(b"first ").unwrap();
    stage.server.terminate().unwrap();
    idle.expect(421);
    assert!(idle.reply().is_none());
    stream.write_all(b"second").unwrap();
    drop(stream);
    client.expect(226);
    client.expect(421);
    let status = stage.server.wait(PATIENCE).unwrap().unwrap();
    assert!(status.success(), "{status}");
    assert_bytes(&stage.root("new"), b"first second");
}

#[test]
fn passive_ports_and_the_address_are_those_of_the_settings() {
    // Two ports that were free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = port.local_addr().unwrap().port().min(65_000);
    let last = port + 100;
    let config = format!(
        "root = \"ROOT\"\ninsecure = true\n[gridftp]\nports = \"{port}-{last}\"\n\
         address = \"192.0.2.7\"\n"
    );
    let stage = Stage::configured(37, &config);
    let mut client = Client::log_in(&stage);
    let text = client.ask("PASV", 227);
    assert!(text.contains("(192,0,2,7,"), "{text}");
    let told = client.passive().port();
    assert!((port..=last).contains(&told), "{told}");
}
