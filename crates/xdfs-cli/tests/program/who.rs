//! Keys, users, tickets and servers that are known: `keygen`, `whoami`, `trust`, `user`.

use std::time::Duration;

use xdfs_testkit::terminal::Terminal;

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
    let objects = xdfs(["whoami", "--json", &server.url("")]).ok().json();
    assert_eq!(objects.len(), 1);
    let identity = &objects[0];
    assert_eq!(
        (&identity["type"], &identity["schema"]),
        (&"identity".into(), &1.into())
    );
    assert_eq!(identity["server"], server.url(""));
    let fields = ["user", "fingerprint"].map(|field| identity[field].as_str().unwrap());
    assert_eq!(format!("{}\nserver {}\n", fields[0], fields[1]), said);
    let pin = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let run = xdfs(["whoami", "--json", "--pin", pin, &server.url("")]).fails(17, &["error: "]);
    assert_eq!(run.json()[0]["type"], "error");
    assert_eq!(run.json()[0]["code"], "server-untrusted");
    let open = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "--insecure"]);
    let objects = xdfs(["whoami", "--json", "--insecure", &open.url("")])
        .ok()
        .json();
    assert!(objects[0]["user"].is_null() && objects[0]["fingerprint"].is_null());
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
    // The user's own key may have been made by a connection: it is printed then.
    let own = || {
        let mut command = program();
        command
            .env("XDFS_CONFIG_DIR", place.here("config"))
            .arg("keygen");
        crate::support::run_with_input(&mut command, b"").ok()
    };
    let (first, second) = (own(), own());
    assert!(first.text().starts_with("ssh-ed25519 "), "{first:?}");
    assert_eq!(first.text(), second.text());
    assert!(second.stderr.contains("exists"), "{second:?}");
    // Nobody let it in.
    let server = Server::start(&place.root());
    xdfs(["whoami", "--key", &file, &server.url("")]).fails(16, &["error: server "]);
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
    alone(&["user", "add", "bob"], b"short\n").fails(2, &["less than 8"]);
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
    let run = ask(&wrong).fails(16, &["error: server "]);
    assert!(!run.stderr.contains("battery"), "{}", run.stderr);
    alone(&["user", "remove", "alice"], b"").ok();
    ask(&right).fails(16, &["error: server "]);
}

#[test]
fn a_password_is_asked_for_once_and_nothing_is_drawn_meanwhile() {
    let place = Place::new();
    let folder = place.here("config");
    let mut add = program();
    add.env("XDFS_CONFIG_DIR", &folder)
        .args(["user", "add", "alice"]);
    crate::support::run_with_input(&mut add, b"correct horse\n").ok();
    let config = place.make_here(
        "xdfs.toml",
        format!("listen = [\"127.0.0.1:0\"]\nfolder = \"{folder}/server\"\n").as_bytes(),
    );
    let server = Server::start_with(&place.root(), &["--config", &config]);
    let url = server.url("/").replace("xdfs://", "xdfs://alice@");
    let files = ["one", "two", "three"].map(|name| place.make_here(name, b"content"));
    let mut command = program();
    command
        .env("XDFS_CONFIG_DIR", &folder)
        .env("TERM", "xterm")
        .args(["cp", "--password-file", "-"])
        .args(&files)
        .arg(&url);
    let patience = Duration::from_secs(60);
    let mut terminal = Terminal::start(&command).unwrap();
    let Some(at) = terminal.wait_for("Password: ", 0, patience) else {
        panic!("{:?}", terminal.text());
    };
    // Progress would clear the line ten times a second.
    let drawn = terminal.wait_for("\x1b[", at, Duration::from_millis(500));
    assert_eq!(drawn, None, "{:?}", terminal.text());
    terminal.send(b"correct horse\r").unwrap();
    let status = terminal.wait(patience);
    let text = terminal.text();
    assert_eq!(status.and_then(|s| s.code()), Some(0), "{text}");
    assert_eq!(text.matches("Password: ").count(), 1, "{text}");
    assert!(place.remote("three").exists());
}

/// Whoever gives up at the prompt has a terminal afterwards that shows what is typed.
#[test]
#[cfg(unix)]
fn the_terminal_is_as_before_when_a_prompt_is_left() {
    const ROUNDS: usize = 8;
    let place = Place::new();
    let server = Server::start(&place.root());
    let url = server.url("/").replace("xdfs://", "xdfs://alice@");
    let file = place.make_here("one", b"content");
    let xdfs = program();
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        "trap : INT; n=0; while [ $n -lt \"$1\" ]; do n=$((n+1)); \
        \"$2\" cp --password-file - \"$3\" \"$4\"; echo \"code $?\"; stty -a; echo \"end $n\"; \
        done",
        "sh",
    ]);
    command.arg(ROUNDS.to_string()).arg(xdfs.get_program());
    command.args([&file, &url]).env("TERM", "xterm");
    for (name, value) in xdfs.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let patience = Duration::from_secs(60);
    let mut terminal = Terminal::start(&command).unwrap();
    let mut at = 0;
    for round in 1..=ROUNDS {
        at = terminal.wait_for("Password: ", at, patience).unwrap();
        terminal.send(b"half\x03").unwrap();
        let end = terminal.wait_for(&format!("end {round}"), at, patience);
        let end = end.unwrap_or_else(|| panic!("{:?}", terminal.text()));
        let text = terminal.text()[at..end].to_owned();
        at = end;
        assert!(text.contains("code 130"), "{text}");
        assert!(
            text.contains(" echo ") && text.contains(" icanon "),
            "{text}"
        );
    }
}

#[test]
fn a_ticket_lets_in_once_who_has_nothing_else() {
    let place = Place::new();
    let server = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "--ticket"]);
    let url = server.url(&format!("/?{}", server.line_with("ticket=").trim()));
    let source = place.make_here("gift", b"for you");
    let stranger = |args: &[&str]| {
        let mut command = program();
        command
            .env("XDFS_CONFIG_DIR", place.here("stranger"))
            .args(args);
        crate::support::run_with_input(&mut command, b"")
    };
    stranger(&["whoami", &server.url("")]).fails(16, &["error: server "]);
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
    stranger(&["whoami", "--pin", &shown, &server.url("")]).fails(16, &["error: server "]);
    xdfs_with_input(["user", "add", "no/name"], b"long enough\n").fails(2, &["name"]);
}

/// A server with a folder of its own, and a user with a key whom it lets in and who has seen no
/// server yet.
fn stranger_with_key(place: &Place) -> (Server, impl Fn(&[&str]) -> crate::support::Run) {
    let config = place.here("stranger");
    let run = move |args: &[&str]| {
        let mut command = program();
        command.env("XDFS_CONFIG_DIR", &config).args(args);
        crate::support::run_with_input(&mut command, b"")
    };
    let key = run(&["keygen"]).ok().text();
    let folder = place.here("keys");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(format!("{folder}/authorized_keys"), key).unwrap();
    let settings = format!("listen = [\"127.0.0.1:0\"]\nfolder = \"{folder}\"\n");
    let file = place.make_here("server.toml", settings.as_bytes());
    (Server::start_with(&place.root(), &["--config", &file]), run)
}

#[test]
fn a_server_that_is_new_is_told_once() {
    let place = Place::new();
    let (server, run) = stranger_with_key(&place);
    let host = server.addresses[0].clone();
    let fingerprint = server.line_with("fingerprint ").replace("fingerprint ", "");
    let (one, two) = (place.make_here("one", b"1"), place.make_here("two", b"2"));
    let told = |stderr: &str| stderr.matches("is trusted from now on").count();
    let forget = || drop(run(&["trust", "remove", &host]).ok());

    let first = run(&["cp", &one, &two, &server.url("")]).ok();
    assert_eq!(told(&first.stderr), 1, "{}", first.stderr);
    for word in [host.as_str(), fingerprint.trim(), "known_hosts"] {
        assert!(first.stderr.contains(word), "{word}: {}", first.stderr);
    }
    let again = run(&["cp", "-f", &one, &two, &server.url("")]).ok();
    assert_eq!(told(&again.stderr), 0, "{}", again.stderr);

    forget();
    let quiet = run(&["cp", "-q", "-f", &one, &server.url("")]).ok();
    assert_eq!(quiet.stderr, "");
    forget();
    let json = run(&["cp", "--json", "-f", &one, &server.url("")]).ok();
    assert_eq!(told(&json.stderr), 0, "{}", json.stderr);
    assert_eq!(json.result()["type"], "result");
    forget();
    let perf = run(&["perf", "--bytes", "1M", &server.url("")]).ok();
    assert_eq!(told(&perf.stderr), 1, "{}", perf.stderr);
    forget();
    let who = run(&["whoami", &server.url("")]).ok();
    assert_eq!(told(&who.stderr), 1, "{}", who.stderr);
    assert_eq!(who.text().lines().count(), 2);
    forget();
    // The pin vouches for it, so that nothing has to be believed.
    let pinned = run(&["whoami", "--pin", fingerprint.trim(), &server.url("")]).ok();
    assert_eq!(told(&pinned.stderr), 0, "{}", pinned.stderr);
    // Trusted also by who isn't let in.
    std::fs::remove_file(place.here("keys/authorized_keys")).unwrap();
    let refused = run(&["cp", "-f", &one, &server.url("")]).fails(16, &["error: server "]);
    assert_eq!(told(&refused.stderr), 1, "{}", refused.stderr);
}

#[cfg(unix)]
#[test]
fn a_server_that_is_busy_is_tried_again() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let proxy = xdfs_testkit::proxy::FaultProxy::new(server.addresses[0].parse().unwrap()).unwrap();
    let url = format!("xdfs://{}/", proxy.addr());
    let file = place.make_here("file", b"content");
    proxy.block_new(true);
    let mut patient = crate::support::Running::start(program().args(["cp", "-v", &file, &url]));
    patient.wait_for_message("retry 2 of 5");
    proxy.block_new(false);
    let run = patient.wait().ok();
    assert!(
        run.stderr.contains("before the TLS handshake"),
        "{}",
        run.stderr
    );
    assert_content(place.remote("file"), b"content");
    // One who doesn't come in after all is told why that may be.
    proxy.block_new(true);
    xdfs(["whoami", &url]).fails(3, &["TLS handshake", "busy", "try again"]);
    // A server with another stack looks the same. It isn't waited for as one that went away.
    let hint = "hint: --stack names the drivers";
    let copy = xdfs(["cp", "-v", &file, &url]).fails(3, &[hint]);
    assert!(copy.stderr.contains("retry 5 of 5"), "{}", copy.stderr);
    let most = xdfs(["cp", "-v", "--retries", "1", &file, &url]).fails(3, &["retry 1 of 1"]);
    assert!(!most.stderr.contains("retry 2"), "{}", most.stderr);
    for words in [
        &["ls", &url][..],
        &["sync", &place.here("."), &url],
        &["shell", &url],
    ] {
        xdfs(words).fails(3, &[hint]);
    }
}

/// A ticket comes in by a file, by standard input and by the environment, so that it needn't stand
/// in a command line.
#[test]
fn a_ticket_needs_no_command_line() {
    let place = Place::new();
    let source = place.make_here("gift", b"for you");
    for way in ["file", "input", "environment", "alone"] {
        let server = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "--ticket"]);
        let ticket = server.line_with("ticket=").trim().to_owned();
        let told = server.line_with("to use it once");
        assert!(told.contains("--ticket-file - "), "{told}");
        assert!(!told.contains(ticket.as_str()), "{told}");
        let mut command = program();
        command.env("XDFS_CONFIG_DIR", place.here(way)).arg("cp");
        let mut input = Vec::new();
        match way {
            "file" => {
                let file = place.make_here("ticket", format!("{ticket}\n").as_bytes());
                command.args(["--ticket-file", &file]);
            }
            "input" => {
                command.args(["--ticket-file", "-"]);
                input = format!("{ticket}\n").into_bytes();
            }
            "environment" => {
                command.env("XDFS_TICKET", &ticket);
            }
            // Of a server that is new, which the user named it for.
            _ => {
                let secret = ticket.split(['=', '&']).nth(1).unwrap();
                let file = place.make_here("secret", secret.as_bytes());
                command.args(["--ticket-file", &file]);
            }
        }
        command.args([&source, &server.url(&format!("/{way}"))]);
        crate::support::run_with_input(&mut command, &input).ok();
        assert_content(place.remote(way), b"for you");
    }
    let no_ticket = place.make_here("nothing", b"pin=x");
    xdfs(["whoami", "--ticket-file", &no_ticket, "xdfs://h"]).fails(2, &["ticket"]);
}

/// What lies in the environment isn't shown to a server that nobody vouches for, however little is
/// said, and that server isn't known from then on.
#[test]
fn secrets_of_the_environment_are_for_known_servers() {
    let place = Place::new();
    let (server, _) = stranger_with_key(&place);
    let fingerprint = server.line_with("fingerprint ").replace("fingerprint ", "");
    let fingerprint = fingerprint.trim();
    let file = place.make_here("token", b"abc.def.ghi");
    let url = server.url("");
    for (name, value) in [
        ("BEARER_TOKEN", "abc.def.ghi"),
        ("BEARER_TOKEN_FILE", &file),
        ("XDFS_TICKET", "c2VjcmV0"),
    ] {
        let ask = |args: &[&str]| {
            let mut command = program();
            command
                .env("XDFS_CONFIG_DIR", place.here("stranger"))
                .env(name, value)
                .args(args);
            crate::support::run_with_input(&mut command, b"")
        };
        let words = ["xdfs trust add", "--pin", "--token-file", "environment"];
        for _ in 0..2 {
            ask(&["whoami", &url]).fails(17, &words);
            ask(&["cp", "-q", &file, &url]).fails(17, &words);
            let run = ask(&["ls", "--json", &url]);
            assert_eq!(run.code, Some(17), "{}", run.stderr);
            assert!(run.text().contains("server-untrusted"), "{}", run.text());
        }
        assert_eq!(ask(&["trust", "list"]).ok().text(), "");
        // A pin vouches for it, and so does the user who names what to show.
        let pinned = ask(&["whoami", "--pin", fingerprint, &url]);
        assert_ne!(pinned.code, Some(17), "{}", pinned.stderr);
        let named = ask(&["whoami", "--anonymous", &url]);
        assert_eq!(named.code, Some(16), "{}", named.stderr);
        ask(&["trust", "remove", &server.addresses[0]]).ok();
    }
}

/// A token or a password that goes to a server which is new is told of, however little is said.
#[test]
fn a_secret_for_a_new_server_is_never_silent() {
    let place = Place::new();
    let (server, run) = stranger_with_key(&place);
    let url = server.url("").replace("xdfs://", "xdfs://alice@");
    let password = place.make_here("password", b"secret word");
    for flag in ["-q", "--json"] {
        let said = run(&["cp", flag, "--password-file", &password, &password, &url]);
        assert_eq!(said.code, Some(16), "{}", said.stderr);
        let told = "is trusted from now on";
        assert_eq!(said.stderr.matches(told).count(), 1, "{}", said.stderr);
        assert!(said.stderr.contains("shown a secret"), "{}", said.stderr);
        run(&["trust", "remove", &server.addresses[0]]).ok();
    }
}

#[test]
fn what_is_public_is_for_everybody() {
    let place = Place::new();
    let folder = place.here("server");
    let root = place.root();
    let settings = format!(
        "listen = [\"127.0.0.1:0\"]\nfolder = '{folder}'\n[[export]]\nname = \"public\"\n\
         path = '{}'\npublic = true\n",
        root.display()
    );
    let file = place.make_here("server.toml", settings.as_bytes());
    std::fs::write(root.join("open"), b"to all").unwrap();
    let server = Server::start_with(&root, &["--config", &file]);
    let stranger = |args: &[&str]| {
        let mut command = program();
        command
            .env("XDFS_CONFIG_DIR", place.here("stranger"))
            .env("BEARER_TOKEN", "abc.def.ghi")
            .args(args);
        crate::support::run_with_input(&mut command, b"")
    };
    let named = server
        .url("/public")
        .replace("xdfs://", "xdfs://anonymous@");
    assert_eq!(stranger(&["ls", &named]).ok().text(), "open\n");
    let url = server.url("/public/open");
    assert_eq!(
        stranger(&["cat", "--anonymous", &url]).ok().stdout,
        b"to all"
    );
    // Who comes with what isn't taken is told what would be.
    let key = place.here("key");
    stranger(&["keygen", "--file", &key]).ok();
    stranger(&["cat", "--key", &key, &url]).fails(16, &["xdfs://anonymous@"]);
    let source = place.make_here("mine", b"x");
    stranger(&["cp", &source, &format!("{named}/")]).fails(5, &[]);
}

/// A configuration may name another folder than the usual one, also relative to itself.
#[test]
fn users_are_added_where_the_configuration_says() {
    let place = Place::new();
    let config = place.make_here(
        "xdfs.toml",
        b"listen = [\"127.0.0.1:0\"]\nfolder = \"mine\"\n",
    );
    xdfs_with_input(
        ["user", "add", "alice", "--config", &config],
        b"correct horse\n",
    )
    .ok();
    assert!(std::path::Path::new(&place.here("mine/users")).exists());
    let server = Server::start_with(&place.root(), &["--config", &config]);
    let password = place.make_here("password", b"correct horse\n");
    let url = server.url("").replace("xdfs://", "xdfs://alice@");
    let mut whoami = program();
    // Another server may have had the port, with another key.
    whoami.env("XDFS_CONFIG_DIR", place.here("client"));
    whoami.args(["whoami", "--password-file", &password, &url]);
    let run = crate::support::Running::start(whoami.stdin(std::process::Stdio::null())).wait();
    let said = run.ok().text();
    assert!(said.starts_with("alice\n"), "{said}");
}
