//! Peers that attack TLS and the logins. Nobody gets in, nothing is published that isn't whole, and
//! the server goes on.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::process::{Command, Stdio};
use std::sync::Arc;

use xdfs_testkit::tree::TempTree;
use xdfs_testkit::{skip, wait};

use crate::client::{Client, EOD, EOF, block, blocks, data, secured, trusting};
use crate::stage::{PASSWORD, PATIENCE, Stage, assert_bytes, has, outcome};

/// Names in a directory, hidden ones too.
fn names(stage: &Stage, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(stage.root(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn commands_behind_auth_are_not_taken() {
    let stage = Stage::with_users(70, "");
    for behind in ["USER anonymous\r\n", "x", "\r\n", "NOOP\r\nQUIT\r\n"] {
        let mut client = Client::connect(&stage);
        client.send(format!("AUTH TLS\r\n{behind}").as_bytes());
        client.expect(421);
        assert!(client.reply().is_none());
    }
    // Nor what comes in clear when TLS has begun: it is no handshake.
    for clear in [
        &b"USER anonymous\r\nPASS x\r\nPWD\r\n"[..],
        &[0; 5000],
        b"\x16\x03\x01\xff\xff",
    ] {
        let mut client = Client::connect(&stage);
        client.ask("AUTH TLS", 234);
        client.send_clear(clear);
        client.close_input();
        let mut rest = Vec::new();
        // The server may close with bytes unread, which resets the connection.
        let _ = client.writer().read_to_end(&mut rest);
        let text = String::from_utf8_lossy(&rest);
        assert!(!text.contains("331") && !text.contains("257"), "{text}");
    }
    // And nothing in clear is taken between records.
    let mut client = Client::secure_log_in(&stage, &trusting(&stage), "alice");
    client.send_clear(b"MKD alice/injected\r\n");
    client.close_input();
    while client.try_reply().is_some() {}
    assert!(!stage.root("alice/injected").exists());
    Client::secure_log_in(&stage, &trusting(&stage), "alice").ask("PWD", 257);
}

#[test]
fn commands_of_protection_come_in_their_order() {
    let stage = Stage::with_users(71, "");
    let mut client = Client::connect(&stage);
    for (line, code) in [
        ("AUTH SSL", 504),
        ("AUTH GSSAPI", 504),
        ("AUTH", 504),
        ("PBSZ 0", 503),
        ("PROT P", 503),
        ("CCC", 534),
        // Whether there is GSI or not.
        ("ADAT AAAA", 503),
    ] {
        client.ask(line, code);
    }
    let features = client.ask("FEAT", 211);
    for feature in ["AUTH TLS", "PBSZ", "PROT"] {
        assert!(features.contains(&format!("\n {feature}\n")), "{features}");
    }
    let mut client = Client::secure(&stage, &trusting(&stage));
    for (line, code) in [
        ("AUTH TLS", 503),
        ("PROT P", 503),
        // What holds anyway needs no buffer.
        ("PROT C", 200),
        ("PBSZ x", 501),
        ("PBSZ 0", 200),
        ("PROT S", 536),
        ("PROT E", 536),
        ("PROT X", 504),
        ("PROT C", 200),
        ("CCC", 534),
        ("USER alice", 331),
        ("PROT C", 534),
        (&format!("PASS {PASSWORD}"), 230),
        ("AUTH TLS", 503),
    ] {
        client.ask(line, code);
    }
    // Data in clear was wished for before there was a user.
    client.passive();
    client.ask("MLSD alice", 521);
    client.ask("STOR alice/new", 521);
    assert!(names(&stage, "alice").is_empty());
    // A login in clear isn't undone by TLS.
    let stage = Stage::with_users(
        72,
        "[[export]]\nname = \"open\"\npath = \"ROOT\"\npublic = true",
    );
    let mut client = Client::connect(&stage);
    client.ask("USER anonymous", 331);
    client.ask("PASS x", 230);
    client.ask("AUTH TLS", 503);
    // A server without users has no certificate.
    let stage = Stage::open(73, &[]);
    let mut client = Client::connect(&stage);
    client.ask("AUTH TLS", 502);
    client.ask("USER alice", 530);
    assert!(!client.ask("FEAT", 211).contains("AUTH"));
}

#[test]
fn names_need_tls_and_a_session_has_one_user() {
    let stage = Stage::with_users(74, "");
    let mut client = Client::connect(&stage);
    client.ask("USER alice", 530);
    client.ask(&format!("PASS {PASSWORD}"), 503);
    // A name told before TLS doesn't count after it.
    client.ask("USER anonymous", 331);
    let mut client = Client::secure(&stage, &trusting(&stage));
    client.ask(&format!("PASS {PASSWORD}"), 503);
    for name in [
        "alice\r",
        "alice\0",
        "a\nUSER bob",
        &"a".repeat(256),
        "\u{fffd}\u{0}",
    ] {
        client.send(format!("USER {name}\r\n").as_bytes());
        client.expect(501);
        client.ask("PASS x", 503);
    }
    client.send(b"USER \xff\xfe\r\n");
    client.expect(501);
    // Whether there is such a user isn't told.
    for name in ["nobody", "bob"] {
        let asked = client.ask(&format!("USER {name}"), 331);
        assert_eq!(asked, format!("331 Password required for {name}."));
    }
    // The last name counts.
    client.ask("USER alice", 331);
    let said = client.ask(&format!("PASS {PASSWORD}"), 230);
    assert_eq!(said, "230 User alice logged in.");
    client.ask("USER bob", 503);
    client.ask(&format!("PASS {PASSWORD}"), 230);
    let rows = client.ask("MLSC /", 250);
    assert!(rows.contains("alice") && !rows.contains("bob"), "{rows}");
}

#[test]
fn where_tls_is_required_nobody_comes_in_without() {
    let public = "[gridftp]\ntls = \"required\"\n[[export]]\nname = \"open\"\npath = \"ROOT\"\n\
                  public = true";
    let stage = Stage::with_users(75, public);
    let mut client = Client::connect(&stage);
    client.ask("USER anonymous", 530);
    client.ask("PASS x", 503);
    client.ask("USER alice", 530);
    client.ask("PWD", 530);
    let mut client = Client::secure(&stage, &trusting(&stage));
    client.ask("USER anonymous", 331);
    client.ask("PASS x", 230);
    // What is public may be read in clear.
    let mut stream = data(client.passive());
    client.ask("NLST /", 150);
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    client.expect(226);
    assert_eq!(text, "open\r\n");
}

#[test]
fn tls_is_not_required_where_there_is_no_certificate() {
    let place = TempTree::new(81).unwrap();
    for setting in ["tls", "tls_resumption"] {
        let config = format!("[gridftp]\nlisten = \"127.0.0.1:0\"\n{setting} = \"required\"\n");
        fs::write(place.join("xdfs.toml"), config).unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_xdfs"));
        serve
            .env("XDFS_CONFIG_DIR", place.join("keys"))
            .args(["serve", "--insecure", "--listen=127.0.0.1:0", "--config"])
            .arg(place.join("xdfs.toml"))
            .arg(format!("--root={}", place.join("root").display()));
        fs::create_dir_all(place.join("root")).unwrap();
        let (succeeded, text) = outcome(&mut serve);
        assert!(!succeeded && text.contains("no certificate"), "{text}");
    }
}

#[test]
fn wrong_passwords_make_their_user_wait_at_every_door() {
    let stage = Stage::with_users(76, "");
    let config = trusting(&stage);
    let guess = |user: &str, password: &str| {
        let mut client = Client::secure(&stage, &config);
        client.ask(&format!("USER {user}"), 331);
        client.send(format!("PASS {password}\r\n").as_bytes());
        client.reply().unwrap()
    };
    assert_eq!(guess("alice", PASSWORD).0, 230);
    for _ in 0..3 {
        let (code, text) = guess("bob", "wrong horse");
        assert_eq!(code, 530, "{text}");
    }
    // Nor does the right one help now, nor another connection, nor another door. On a slow machine
    // the first waits may have passed meanwhile; each failure makes the next one longer.
    let stays_out = |attempt: &dyn Fn() -> bool| {
        wait::until(PATIENCE, || {
            guess("bob", "wrong horse");
            attempt()
        })
    };
    assert!(stays_out(&|| guess("bob", PASSWORD)
        .1
        .contains("try again in")));
    // Others of the same address come in.
    assert_eq!(guess("alice", PASSWORD).0, 230);
    let lines = stage.server.output();
    let address = lines
        .iter()
        .find_map(|line| line.strip_prefix("listening on "));
    let whoami = || {
        let mut whoami = Command::new(env!("CARGO_BIN_EXE_xdfs"));
        whoami
            .env("XDFS_CONFIG_DIR", stage.beside("client"))
            .args(["whoami", "--password-file"])
            .arg(stage.beside("password"))
            .arg(format!("xdfs://bob@{}/", address.unwrap()));
        let (succeeded, text) = outcome(&mut whoami);
        !succeeded && text.contains("try again in")
    };
    assert!(stays_out(&whoami));
    // Many on one connection change nothing.
    let mut client = Client::secure(&stage, &config);
    for _ in 0..50 {
        client.ask("USER bob", 331);
        client.ask("PASS wrong horse", 530);
    }
    let audit = fs::read_to_string(stage.beside("audit.jsonl")).unwrap();
    let is_refusal = |line: &str| {
        ["\"gridftp\"", "\"bob\"", "authentication-failed"]
            .iter()
            .all(|word| line.contains(word))
    };
    assert!(audit.lines().any(is_refusal), "{audit}");
}

#[test]
fn a_data_connection_that_is_cut_off_publishes_nothing() {
    let stage = Stage::with_users(77, "");
    let config = trusting(&stage);
    let mut client = Client::secure_log_in(&stage, &config, "alice");
    fs::write(stage.root("alice/old"), "before").unwrap();
    for content in [&b""[..], &[7; 100_000]] {
        let stream = data(client.passive());
        client.ask("STOR alice/old", 150);
        let mut stream = secured(stream, &config);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        stream.write_all(content).unwrap();
        stream.flush().unwrap();
        // The end of TCP alone says nothing.
        stream.sock.shutdown(Shutdown::Write).unwrap();
        client.expect(426);
        assert_bytes(&stage.root("alice/old"), b"before");
    }
    // Nor is there one without a handshake, or with something else.
    for garbage in [
        &b""[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5],
    ] {
        let mut stream = data(client.passive());
        client.ask("STOR alice/old", 150);
        stream.write_all(garbage).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        client.expect(426);
        let mut stream = data(client.passive());
        client.ask("RETR alice/old", 150);
        stream.write_all(garbage).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        client.expect(426);
        let mut seen = Vec::new();
        let _ = stream.read_to_end(&mut seen);
        assert!(!String::from_utf8_lossy(&seen).contains("before"));
    }
    assert_eq!(names(&stage, "alice"), ["old"]);
    // The same with its end.
    let stream = data(client.passive());
    client.ask("STOR alice/old", 150);
    let mut stream = secured(stream, &config);
    stream.write_all(b"after").unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    client.expect(226);
    assert_bytes(&stage.root("alice/old"), b"after");
    // The server has told its end too, as some clients want it, and nothing else: a client that
    // closes the connection with anything unread would have it reset, and lose what it has sent.
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
    assert_eq!(stream.conn.tls13_tickets_received(), 0);
    // The server tells the end too, so that its clients know a whole file.
    let stream = data(client.passive());
    client.ask("RETR alice/old", 150);
    let mut seen = Vec::new();
    secured(stream, &config).read_to_end(&mut seen).unwrap();
    client.expect(226);
    assert_eq!(seen, b"after");
}

#[test]
fn blocks_move_over_protected_connections_both_ways() {
    let stage = Stage::with_users(78, "");
    let config = trusting(&stage);
    let mut client = Client::secure_log_in(&stage, &config, "alice");
    client.ask("MODE E", 200);
    let wanted = Stage::make(&stage.here("file"), 1_000_000);
    let address = client.passive();
    let streams = [data(address), data(address), data(address)];
    client.ask("STOR alice/new", 150);
    let mut streams = streams.map(|stream| secured(stream, &config));
    for (number, piece) in wanted.chunks(100_000).enumerate().rev() {
        let offset = number as u64 * 100_000;
        let bytes = block(0, piece.len() as u64, offset, piece);
        streams[number % 3].write_all(&bytes).unwrap();
    }
    streams[0].write_all(&block(EOF | EOD, 0, 3, b"")).unwrap();
    streams[1].write_all(&block(EOD, 0, 0, b"")).unwrap();
    streams[2].write_all(&block(EOD, 0, 0, b"")).unwrap();
    while client.reply().unwrap().0 != 226 {}
    assert_bytes(&stage.root("alice/new"), &wanted);
    // They stay for the next file.
    client.ask("STOR alice/next", 125);
    streams[0].write_all(&block(0, 5, 0, b"other")).unwrap();
    streams[0].write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
    while client.reply().unwrap().0 != 226 {}
    assert_bytes(&stage.root("alice/next"), b"other");
    // But not without their protection.
    client.ask("OPTS RETR Parallelism=2,2,2;", 200);
    let listener = client.active();
    client.ask("RETR alice/new", 150);
    let mut streams = [listener.accept().unwrap().0, listener.accept().unwrap().0]
        .map(|stream| secured(stream, &config));
    let mut found = vec![0; wanted.len()];
    std::thread::scope(|scope| {
        let reading = streams
            .each_mut()
            .map(|stream| scope.spawn(|| blocks(stream)));
        for reader in reading {
            for (_, offset, payload) in reader.join().unwrap() {
                if !payload.is_empty() {
                    let at = usize::try_from(offset).unwrap();
                    found[at..at + payload.len()].copy_from_slice(&payload);
                }
            }
        }
    });
    client.expect(226);
    assert!(found == wanted);
    // One that is cut off leaves a gap, and no file.
    let stream = data(client.passive());
    client.ask("STOR alice/cut", 150);
    let mut stream = secured(stream, &config);
    stream.write_all(&block(0, 100, 0, &[1; 50])).unwrap();
    stream.sock.shutdown(Shutdown::Both).unwrap();
    while client.reply().unwrap().0 != 426 {}
    assert!(!stage.root("alice/cut").exists());
}

#[test]
fn data_connections_of_others_get_nothing() {
    let more = "[gridftp]\nthird_party = true\ntls_resumption = \"required\"";
    let stage = Stage::with_users(79, more);
    let config = trusting(&stage);
    let mut client = Client::secure_log_in(&stage, &config, "alice");
    fs::write(stage.root("alice/secret"), "the secret").unwrap();
    // Somebody at the same address, whom TLS alone doesn't tell apart.
    let stream = data(client.passive());
    client.ask("RETR alice/secret", 150);
    let mut seen = Vec::new();
    let stranger = trusting(&stage);
    let _ = secured(stream, &stranger).read_to_end(&mut seen);
    assert!(client.expect(426).contains("resume"));
    assert!(seen.is_empty());
    // Another session of the same client isn't this one either.
    let other = trusting(&stage);
    let _second = Client::secure_log_in(&stage, &other, "alice");
    let stream = data(client.passive());
    client.ask("RETR alice/secret", 150);
    let _ = secured(stream, &other).read_to_end(&mut seen);
    client.expect(426);
    assert!(seen.is_empty());
    let stream = data(client.passive());
    client.ask("RETR alice/secret", 150);
    secured(stream, &config).read_to_end(&mut seen).unwrap();
    client.expect(226);
    assert_eq!(seen, b"the secret");
    // Other hosts aren't connected to, although the settings allow that in clear.
    client.ask("PORT 127,0,0,2,200,200", 200);
    client.ask("RETR alice/secret", 425);
    if !has("python3") {
        return skip::part("python3 is not installed");
    }
    let address = client.passive();
    client.ask("RETR alice/secret", 150);
    let connect = "import socket, sys; s = socket.create_connection((sys.argv[1], \
                   int(sys.argv[2])), 60, ('127.0.0.2', 0)); s.settimeout(60); print(s.recv(1))";
    let out = Command::new("python3")
        .args(["-c", connect, "127.0.0.1", &address.port().to_string()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    // It is closed at once, and the transfer waits for the client's own.
    assert_eq!(String::from_utf8_lossy(&out.stdout), "b''\n");
    seen.clear();
    secured(data(address), &config)
        .read_to_end(&mut seen)
        .unwrap();
    client.expect(226);
    assert_eq!(seen, b"the secret");
}

#[test]
fn the_end_of_tls_is_the_end_of_the_session() {
    let stage = Stage::with_users(80, "");
    let config = trusting(&stage);
    let mut client = Client::secure_log_in(&stage, &config, "alice");
    client.close_tls();
    assert!(client.reply().is_none());
    // Whoever offers older versions only isn't served.
    if !has("openssl") {
        return skip::part("openssl is not installed");
    }
    let out = Command::new("openssl")
        .args([
            "s_client",
            "-starttls",
            "ftp",
            "-tls1_2",
            "-connect",
            &stage.address,
        ])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("Cipher is (NONE)"), "{text}");
    Client::secure_log_in(&stage, &Arc::clone(&config), "bob").ask("QUIT", 221);
}
