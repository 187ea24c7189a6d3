//! Files that are believed, and that other users could have written: none of them is used.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Stdio;

use xdfs_testkit::{nobody, skip};

use crate::support::{Place, Run, Running, Server, program, run_with_input, xdfs};

const OTHERS: &str = "belongs to another user";
const OPEN: &str = "others than its owner may write";

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn give_away(path: impl AsRef<Path>) {
    chown(path, Some(nobody::ID), None).unwrap();
}

/// A client with a folder of its own.
struct Client {
    place: Place,
    server: Server,
}

impl Client {
    fn new() -> Self {
        let place = Place::new();
        let server = Server::start(&place.root());
        fs::write(place.remote("f"), "x").unwrap();
        let client = Self { place, server };
        // The key that the server takes.
        xdfs(["ls", &client.server.url("/")]).ok();
        let own = program();
        let own = own.get_envs().find(|(name, _)| *name == "XDFS_CONFIG_DIR");
        let own = Path::new(own.unwrap().1.unwrap()).join("id_ed25519");
        fs::create_dir(client.config("")).unwrap();
        fs::copy(own, client.config("id_ed25519")).unwrap();
        // The server is known.
        client.run(&["ls", &client.server.url("/")]).ok();
        client
    }

    fn config(&self, name: &str) -> String {
        self.place.here(&format!("config/{name}"))
    }

    fn run(&self, args: &[&str]) -> Run {
        let mut command = program();
        command.env("XDFS_CONFIG_DIR", self.config(""));
        Running::start(command.args(args).stdin(Stdio::null())).wait()
    }
}

#[test]
fn a_client_believes_no_file_of_another_user() {
    if !nobody::is_root() {
        return skip::test("only root can give files away");
    }
    let client = Client::new();
    let url = client.server.url("/");
    let mark = client.place.here("mark");
    let evil = client
        .place
        .make_here("evil.sh", format!("#!/bin/sh\ntouch {mark}\n").as_bytes());
    set_mode(&evil, 0o755);
    let text = format!("[remote.xx]\nurl = \"ssh://h.invalid/\"\nssh = \"{evil}\"\n");
    fs::write(client.config("config.toml"), text).unwrap();
    give_away(client.config("config.toml"));
    for word in ["xx:/", &url] {
        client.run(&["ls", word]).fails(5, &["config.toml", OTHERS]);
    }
    assert!(!Path::new(&mark).exists());
    fs::remove_file(client.config("config.toml")).unwrap();
    for name in ["known_hosts", "id_ed25519"] {
        give_away(client.config(name));
        let run = client.run(&["ls", &url]);
        assert_ne!(run.code, Some(0), "{name}");
        assert!(run.stderr.contains(OTHERS), "{name}: {}", run.stderr);
        chown(client.config(name), Some(0), None).unwrap();
        client.run(&["ls", &url]).ok();
    }
    for flag in ["--password-file", "--token-file", "--ticket-file"] {
        let secret = client.place.make_here("secret", b"word\n");
        give_away(&secret);
        client.run(&["ls", flag, &secret, &url]).fails(5, &[OTHERS]);
        fs::remove_file(secret).unwrap();
    }
    // The folder itself.
    give_away(client.config(""));
    client.run(&["ls", &url]).fails(5, &[OTHERS]);
}

#[test]
fn a_client_believes_no_file_that_others_may_write() {
    let client = Client::new();
    let url = client.server.url("/");
    fs::write(client.config("config.toml"), "").unwrap();
    for name in ["config.toml", "known_hosts"] {
        for mode in [0o602, 0o620] {
            set_mode(client.config(name), mode);
            client
                .run(&["ls", &url])
                .fails(5, &[name, OPEN, "chmod go-w"]);
            set_mode(client.config(name), 0o644);
        }
    }
    let secret = client.place.make_here("secret", b"word\n");
    set_mode(&secret, 0o622);
    client
        .run(&["ls", "--password-file", &secret, &url])
        .fails(5, &[OPEN]);
    client.run(&["ls", "--ca", &secret, &url]).fails(5, &[OPEN]);
    set_mode(client.config(""), 0o777);
    client.run(&["ls", &url]).fails(5, &[OPEN]);
    set_mode(client.config(""), 0o700);
    client.run(&["ls", &url]).ok();
}

/// Neither a command nor a server waits for a pipe in the place of settings, or reads without end.
#[test]
fn settings_are_regular_files_of_bounded_size() {
    let client = Client::new();
    let url = client.server.url("/");
    let config = client.config("config.toml");
    let refused = |words: &str| {
        let run = client.run(&["ls", &url]);
        assert_ne!(run.code, Some(0));
        assert!(run.stderr.contains(words), "{}", run.stderr);
        assert!(run.stderr.contains("config.toml"), "{}", run.stderr);
        fs::remove_file(&config).unwrap();
    };
    xdfs_testkit::tree::make_pipe(&config).unwrap();
    refused("it isn't a regular file");
    std::os::unix::fs::symlink("/dev/zero", &config).unwrap();
    refused("it isn't a regular file");
    fs::write(&config, "# long\n".repeat(300_000)).unwrap();
    refused("the file has more than 1048576 bytes");
    let run = check("/dev/zero");
    assert!(
        run.stderr.contains("more than 1048576 bytes"),
        "{}",
        run.stderr
    );
    let run = client.run(&["ls", "--password-file", "/dev/zero", &url]);
    assert!(
        run.stderr.contains("more than 65536 bytes"),
        "{}",
        run.stderr
    );
}

const SETTINGS: &str = "listen = [\"127.0.0.1:0\"]\nfolder = \"server\"\nowner = \"owner\"\n\
     [[export]]\nname = \"data\"\npath = \"../root\"\n\
     [[export.grant]]\nuser = \"*\"\nrights = [\"read\", \"list\"]\n";

fn check(config: &str) -> Run {
    xdfs(["serve", "--check-config", "--config", config])
}

fn add_alice(config: &str) {
    let mut add = program();
    add.args(["user", "--config", config, "add", "alice"]);
    run_with_input(&mut add, b"correct horse\n").ok();
}

#[test]
fn a_server_believes_no_file_that_others_may_write() {
    let place = Place::new();
    let config = place.make_here("xdfs.toml", SETTINGS.as_bytes());
    add_alice(&config);
    let key = xdfs(["keygen", "--file", &place.here("key")]).ok().text();
    fs::create_dir(place.here("server/keys")).unwrap();
    fs::write(place.here("server/keys/bob"), &key).unwrap();
    let start = || xdfs(["serve", "--config", &config]);
    check(&config).ok();
    set_mode(&config, 0o646);
    check(&config).fails(2, &[OPEN, "chmod go-w"]);
    start().fails(5, &[OPEN]);
    set_mode(&config, 0o644);
    for mode in [0o777, 0o1777, 0o720] {
        set_mode(place.here("server"), mode);
        check(&config).fails(2, &["here/server", OPEN]);
        start().fails(5, &["here/server", OPEN]);
    }
    set_mode(place.here("server"), 0o700);
    let server = Server::start_with(&place.root(), &["--config", &config]);
    let password = place.make_here("password", b"correct horse\n");
    let alice = server.url("/data").replace("xdfs://", "xdfs://alice@");
    let bob = server.url("/data").replace("xdfs://", "xdfs://bob@");
    let by_password = || xdfs(["ls", "--password-file", &password, &alice]);
    let by_key = || xdfs(["ls", "--key", &place.here("key"), &bob]);
    by_password().ok();
    by_key().ok();
    // While it runs, each login looks again.
    set_mode(place.here("server"), 0o777);
    assert_ne!(by_password().code, Some(0));
    assert_ne!(by_key().code, Some(0));
    set_mode(place.here("server"), 0o700);
    set_mode(place.here("server/keys"), 0o777);
    by_key().fails(16, &[]);
    set_mode(place.here("server/keys"), 0o755);
    by_key().ok();
    by_password().ok();
    set_mode(&config, 0o666);
    server.running.signal("HUP");
    server
        .running
        .wait_for_message("the old ones stay in effect");
}

#[test]
fn a_server_believes_no_file_of_another_user() {
    if !nobody::is_root() {
        return skip::test("only root can give files away");
    }
    let place = Place::new();
    let config = place.make_here("xdfs.toml", SETTINGS.as_bytes());
    add_alice(&config);
    drop(Server::start_with(&place.root(), &["--config", &config]));
    let key = xdfs(["keygen", "--file", &place.here("key")]).ok().text();
    fs::create_dir(place.here("server/keys")).unwrap();
    fs::write(place.here("server/keys/bob"), &key).unwrap();
    fs::write(place.here("server/authorized_keys"), &key).unwrap();
    check(&config).ok();
    for name in [
        "xdfs.toml",
        "server",
        "server/users",
        "server/keys",
        "server/keys/bob",
        "server/authorized_keys",
        "server/server.key",
        "server/server.crt",
    ] {
        give_away(place.here(name));
        check(&config).fails(2, &[OTHERS]);
        chown(place.here(name), Some(0), None).unwrap();
        check(&config).ok();
    }
    // Another list in the place of the server's, while it runs.
    let server = Server::start_with(&place.root(), &["--config", &config]);
    let password = place.make_here("password", b"correct horse\n");
    let alice = server.url("/data").replace("xdfs://", "xdfs://alice@");
    let login = || xdfs(["ls", "--password-file", &password, &alice]);
    login().ok();
    give_away(place.here("server/users"));
    assert_ne!(login().code, Some(0));
    chown(place.here("server/users"), Some(0), None).unwrap();
    login().ok();
}
