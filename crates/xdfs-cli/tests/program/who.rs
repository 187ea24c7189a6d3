//! Keys, users, tickets and servers that are known: `keygen`, `whoami`, `trust`, `user`.

use crate::support::{Place, Server, assert_content, program, xdfs, xdfs_with_input};

#[test]
fn the_same_user_needs_no_set_up() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let said = xdfs(["whoami", &server.url("")]).ok().text();
    let mut lines = said.lines();
    assert!(lines.next().is_some_and(|user| !user.is_empty()), "{said}");
    let shown = lines.next().unwrap().strip_prefix("server ").unwrap();
    assert!(shown.starts_with("SHA256:"), "{said}");
}

#[test]
fn a_key_of_ones_own_is_made_once() {
    let place = Place::new();
    let file = place.here("key");
    let line = xdfs(["keygen", "--file", &file]).ok().text();
    assert!(line.starts_with("ssh-ed25519 "), "{line}");
    let beside = std::fs::read_to_string(format!("{file}.pub")).unwrap();
    let key = |text: &str| text.split(' ').nth(1).map(str::to_owned);
    assert_eq!(key(&beside), key(&line));
    xdfs(["keygen", "--file", &file]).fails(6, &["key"]);
    // Nobody let it in.
    let server = Server::start(&place.root());
    xdfs(["whoami", "--key", &file, &server.url("")]).fails(16, &["error: remote"]);
}

#[test]
fn a_password_is_given_by_a_file_and_never_shown() {
    let place = Place::new();
    let folder = place.here("config");
    let alone = |args: &[&str], input: &[u8]| {
        let mut command = program();
        command.env("XDFS_CONFIG_DIR", &folder).args(args);
        crate::support::run_with_input(&mut command, input)
    };
    alone(&["user", "add", "alice"], b"correct horse\n").ok();
    assert_eq!(alone(&["user", "list"], b"").ok().text(), "alice\n");
    alone(&["user", "add", "alice"], b"x\n").fails(6, &["alice"]);
    let users = std::path::Path::new(&folder).join("server/users");
    assert!(!std::fs::read_to_string(users).unwrap().contains("horse"));
    let config = place.make_here(
        "xdfs.toml",
        format!("listen = [\"127.0.0.1:0\"]\nfolder = \"{folder}/server\"\n").as_bytes(),
    );
    let server = Server::start_with(&place.root(), &["--config", &config]);
    let url = server.url("").replace("xdfs://", "xdfs://alice@");
    let right = place.make_here("right", b"correct horse\n");
    let wrong = place.make_here("wrong", b"battery staple\n");
    // Another server key than that of the other tests.
    let ask = |file: &str| alone(&["whoami", "--password-file", file, &url], b"");
    assert!(ask(&right).ok().text().starts_with("alice\n"));
    let run = ask(&wrong).fails(16, &["error: remote"]);
    assert!(!run.stderr.contains("battery"), "{}", run.stderr);
    alone(&["user", "remove", "alice"], b"").ok();
    ask(&right).fails(16, &["error: remote"]);
}

#[test]
fn a_ticket_lets_in_once_who_has_nothing_else() {
    let place = Place::new();
    let server = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "--ticket"]);
    let line = server.line_with("xdfs cp FILE ");
    let url = line.split('\'').nth(1).unwrap().to_owned();
    let source = place.make_here("gift", b"for you");
    let stranger = |args: &[&str]| {
        let mut command = program();
        command
            .env("XDFS_CONFIG_DIR", place.here("stranger"))
            .args(args);
        crate::support::run_with_input(&mut command, b"")
    };
    stranger(&["whoami", &server.url("")]).fails(16, &["error: remote"]);
    stranger(&["cp", &source, &url]).ok();
    assert_content(place.remote("gift"), b"for you");
    let run = stranger(&["cp", "-f", &source, &url]).fails(16, &["ticket"]);
    let secret = url
        .split("ticket=")
        .nth(1)
        .unwrap()
        .split('&')
        .next()
        .unwrap();
    assert!(!run.stderr.contains(secret), "{}", run.stderr);
}

#[test]
fn a_server_with_another_key_is_refused_until_it_is_forgotten() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let host = server.addresses[0].clone();
    let shown = xdfs(["whoami", &server.url("")]).ok().text();
    let shown = shown.lines().nth(1).unwrap().replace("server ", "");
    let wrong = format!("SHA256:{}", "A".repeat(43));
    let stranger = |args: &[&str]| {
        let mut command = program();
        command
            .env("XDFS_CONFIG_DIR", place.here("stranger"))
            .args(args);
        crate::support::run_with_input(&mut command, b"")
    };
    stranger(&["trust", "add", &host, &wrong]).ok();
    let known = stranger(&["trust", "list"]).ok().text();
    assert_eq!(known, format!("{host} {wrong}\n"));
    stranger(&["whoami", &server.url("")]).fails(17, &[&wrong, &shown, "xdfs trust remove"]);
    stranger(&["trust", "remove", &host]).ok();
    stranger(&["trust", "remove", &host]).fails(4, &[&host]);
    stranger(&["whoami", "--known-only", &server.url("")]).fails(17, &["xdfs trust add"]);
    stranger(&["whoami", "--pin", &wrong, &server.url("")]).fails(17, &[&shown]);
    // The server is believed now, and the key still isn't one it knows.
    stranger(&["whoami", "--pin", &shown, &server.url("")]).fails(16, &["error: remote"]);
    xdfs_with_input(["user", "add", "no/name"], b"x\n").fails(2, &["name"]);
}
