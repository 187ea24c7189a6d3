//! `gsiftp://` places of the client: at the server of Globus and at our own, and where somebody
//! isn't who they have to be.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use xdfs_testkit::skip;

use crate::fake::Fake;
use crate::grid::{Grid, SIGNS, has_tools};
use crate::gsi::{globus_server, globus_server_with};
use crate::places::{There, trees_work, works, xdfs};
use crate::stage::{Stage, outcome, run};

const LISTED: &str = " MLST Type*;Size*;Modify*;\r\n";

/// The levels of protection, and the commands that each takes.
pub(crate) const LEVELS: [(&str, [&str; 2]); 4] = [
    ("--protect=private", ["PROT P", "DCAU A"]),
    ("--protect=safe", ["PROT S", "DCAU A"]),
    ("--protect=clear", ["PROT C", "DCAU A"]),
    ("--protect=unauthenticated", ["PROT C", "DCAU N"]),
];

/// Both are served as alice, at each level.
#[test]
fn everything_works_at_both_servers() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(140, "protect = \"clear\"", "");
    let (_server, address) = globus_server(&grid);
    let root = stage.here("served");
    let there = format!("gsiftp://{address}/{}", root.display());
    for (url, root) in [
        (stage.gsi_url("/alice"), stage.root("alice")),
        (there, root),
    ] {
        for (level, commands) in LEVELS {
            let flags = &[level];
            for folder in [stage.here(""), root.clone()] {
                let _ = fs::remove_dir_all(&folder);
                fs::create_dir_all(&folder).unwrap();
            }
            let there = There {
                url: &url,
                root: &root,
                flags,
            };
            works(&stage, there);
            trees_work(&stage, there);
            let (succeeded, said) = outcome(&mut cp(&stage, &[level, "-vv"], &url, "file"));
            assert!(succeeded, "{said}");
            let told = |command: &&str| said.contains(&format!("the server takes {command}"));
            assert_eq!(all_commands().filter(told).collect::<Vec<_>>(), commands);
            // Where somebody on the way can change data, nobody forges what it is compared by.
            let is_exposed = commands[0] == "PROT C";
            let has = |kind: &&str| said.contains(&format!("{kind} is the same at the server"));
            let is_unforged = ["BLAKE3", "SHA256"].iter().any(has);
            let is_other = ["CRC64NVME", "SHA1"].iter().any(has);
            assert_eq!((is_unforged, is_other), (is_exposed, !is_exposed), "{said}");
        }
    }
}

fn all_commands() -> impl Iterator<Item = &'static str> {
    ["PROT P", "PROT S", "PROT C", "DCAU A", "DCAU N"].into_iter()
}

/// Copies a file of a server.
fn cp(stage: &Stage, flags: &[&str], url: &str, name: &str) -> Command {
    let (from, to) = (format!("{url}/{name}"), stage.here("copied"));
    let _ = fs::remove_file(&to);
    let words = [&["cp"], flags, &[&from, to.to_str().unwrap()]].concat();
    xdfs(stage, &words)
}

/// What a server refuses is an error at each level, and nothing is moved at another one.
#[test]
fn no_level_is_given_up() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(145, "", "");
    let root = stage.here("served");
    let there = |address: &str| format!("gsiftp://{address}/{}", root.display());
    for folder in [stage.root("alice"), root.clone()] {
        Stage::make(&folder.join("file"), 100_000);
    }
    let ours = stage.gsi_url("/alice");
    let (_encrypting, encrypting) = globus_server_with(&grid, &["-encrypt-data"]);
    let (_without, without_prot) = globus_server_with(&grid, &["-disable-command-list", "PROT"]);
    let (_without, without_dcau) = globus_server_with(&grid, &["-disable-command-list", "DCAU"]);
    let (encrypting, without_prot, without_dcau) = (
        there(&encrypting),
        there(&without_prot),
        there(&without_dcau),
    );
    for (url, level, why) in [
        (&ours, "clear", "refuses PROT C: 534"),
        (&ours, "unauthenticated", "refuses PROT C: 534"),
        (&encrypting, "clear", "Encryption is required"),
        (&encrypting, "safe", "Encryption is required"),
        (&encrypting, "unauthenticated", "Encryption is required"),
        (&without_prot, "private", "refuses PROT P"),
        (&without_prot, "safe", "refuses PROT S"),
        (&without_dcau, "private", "refuses DCAU A"),
        (&without_dcau, "safe", "refuses DCAU A"),
        (&without_dcau, "clear", "refuses DCAU A"),
        // Its connections would still want the proof, as they do by default.
        (&without_dcau, "unauthenticated", "refuses DCAU N"),
    ] {
        let protect = format!("--protect={level}");
        refused(&mut cp(&stage, &[&protect], url, "file"), why);
        assert!(!stage.here("copied").exists(), "{url} {level}");
        let from = stage.here("up");
        Stage::make(&from, 100_000);
        let target = format!("{url}/up");
        let words = ["cp", &protect, from.to_str().unwrap(), &target];
        refused(&mut xdfs(&stage, &words), why);
        for folder in [stage.root("alice"), root.clone()] {
            assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "{url} {level}");
        }
    }
    for (url, level) in [
        (&ours, "private"),
        (&ours, "safe"),
        (&encrypting, "private"),
    ] {
        let protect = format!("--protect={level}");
        run(&mut cp(&stage, &[&protect], url, "file"));
    }
}

/// The host and port in a URL.
fn url_machine(url: &str) -> &str {
    let rest = url.split_once("://").unwrap().1;
    rest.split_once('/').unwrap().0
}

/// The code, the side and the machine, as JSON, of the error that a command prints with `--json`.
#[track_caller]
fn json_error(command: &mut Command) -> [String; 3] {
    let (succeeded, text) = outcome(command);
    assert!(!succeeded, "{text}");
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let mut errors = lines.filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        (line["type"] == "error").then_some(line)
    });
    let error = errors.next_back().unwrap_or_else(|| panic!("{text}"));
    let text = |name: &str| match &error[name] {
        serde_json::Value::String(text) if name != "machine" => text.clone(),
        other => other.to_string(),
    };
    ["code", "side", "machine"].map(text)
}

#[track_caller]
fn refused(command: &mut Command, why: &str) {
    let (succeeded, text) = outcome(command);
    assert!(!succeeded && text.contains(why), "{command:?}: {text}");
}

#[test]
fn both_sides_are_who_they_have_to_be() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(141, "", "");
    fs::write(stage.root("alice/f"), "hello").unwrap();
    let url = stage.gsi_url("/alice/f");
    let cat = |more: &[&str]| xdfs(&stage, &[&["cat"], more, &[&url]].concat());
    let ls = |more: &[&str]| xdfs(&stage, &[&["ls", "--json"], more, &[&url]].concat());
    assert_eq!(run(&mut cat(&[])), "hello");
    // By a certificate instead of a proxy, and as another user of the map.
    let (certificate, key) = (grid.path("alice.pem"), grid.path("alice.key"));
    let own = [
        "--cert",
        certificate.to_str().unwrap(),
        "--cert-key",
        key.to_str().unwrap(),
    ];
    assert_eq!(run(&mut cat(&own)), "hello");
    refused(
        &mut xdfs(&stage, &["cat", &url.replace("//", "//second@")]),
        "550",
    );
    refused(
        &mut xdfs(&stage, &["cat", &url.replace("//", "//bob@")]),
        "log in as bob",
    );
    refused(
        cat(&[]).env("X509_USER_PROXY", grid.path("bob.proxy")),
        "550",
    );
    // Nothing is sent without a proxy, by a proxy that others can read, or to a server of others.
    refused(
        cat(&[]).env("X509_USER_PROXY", grid.path("none")),
        "make a proxy",
    );
    let empty = grid.path("empty");
    fs::create_dir(&empty).unwrap();
    refused(
        cat(&[]).env("X509_CERT_DIR", &empty),
        "verify the server localhost",
    );
    let found = json_error(ls(&[]).env("X509_CERT_DIR", &empty));
    assert_eq!(found, ["server-untrusted", "local", "null"]);
    // The server's refusals are of the server, which is named.
    let server = format!("\"{}\"", url_machine(&url));
    let bob = url.replace("//", "//bob@");
    let found = json_error(&mut xdfs(&stage, &["ls", "--json", &bob]));
    assert_eq!(found[1..], ["remote", &server]);
    grid.certify(
        "evil-user",
        "/O=Grid/OU=Test/CN=Alice User",
        "evil",
        &[SIGNS],
    );
    let (certificate, key) = (grid.path("evil-user.pem"), grid.path("evil-user.key"));
    let evil = [
        "--cert",
        certificate.to_str().unwrap(),
        "--cert-key",
        key.to_str().unwrap(),
    ];
    refused(&mut cat(&evil), "security context");
    let found = json_error(&mut ls(&evil));
    assert_eq!(found, ["authentication-failed", "remote", &server]);
    for (flags, why) in [
        (&["--insecure"][..], "leave out --insecure"),
        (
            &["--pin", &format!("SHA256:{}", "A".repeat(43))],
            "leave out --ca and --pin",
        ),
    ] {
        refused(&mut cat(flags), why);
    }
    // Data in clear is the server's choice too.
    refused(&mut cat(&["--protect=clear"]), "PROT");
}

/// A server whose certificate is for another host.
#[test]
fn another_host_is_no_server() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(142, "", "");
    let other = "subjectAltName=DNS:other.example";
    let name = "/O=Grid/OU=Test/CN=other.example";
    grid.certify("host", name, "ca", &[SIGNS, other]);
    let words = ["cat", &stage.gsi_url("/alice/f")];
    refused(&mut xdfs(&stage, &words), "'localhost' was expected");
    let words = ["ls", "--json", &stage.gsi_url("/alice/f")];
    let found = json_error(&mut xdfs(&stage, &words));
    assert_eq!(found, ["server-untrusted", "local", "null"]);
}

#[test]
fn a_server_without_gsi_gets_nothing() {
    let stage = Stage::open(143, &[]);
    Grid::make(stage.beside("").as_path());
    for refusal in ["504 no", "500 what", "234 TLS then"] {
        let fake = Fake::start(LISTED, move |verb, _, talk| {
            verb == "AUTH" && talk.say(&format!("{refusal}\r\n"))
        });
        let url = fake.url("/f").replace("ftp://", "gsiftp://");
        refused(&mut xdfs(&stage, &["cat", &url]), "refuses AUTH GSSAPI");
        let found = json_error(&mut xdfs(&stage, &["ls", "--json", &url]));
        assert_eq!(found[1..], ["remote", &format!("\"{}\"", fake.address)]);
        let commands = fake.commands();
        assert!(
            commands.iter().all(|line| line == "AUTH GSSAPI"),
            "{commands:?}"
        );
    }
    // A confirmation before anything is proved.
    let fake = Fake::start(LISTED, |verb, _, talk| match verb {
        "AUTH" => talk.say("334 go on\r\n"),
        "ADAT" => talk.say("235 believe me\r\n"),
        _ => false,
    });
    let url = fake.url("/f").replace("ftp://", "gsiftp://");
    refused(&mut xdfs(&stage, &["cat", &url]), "answers 235");
    let found = json_error(&mut xdfs(&stage, &["ls", "--json", &url]));
    let server = format!("\"{}\"", fake.address);
    assert_eq!(found, ["protocol-violation", "remote", &server]);
    let commands = fake.commands();
    let is_proof = |line: &String| line == "AUTH GSSAPI" || line.starts_with("ADAT ");
    assert!(commands.iter().all(is_proof), "{commands:?}");
}

/// Passes on what goes between clients and a server, and puts `more` behind the reply that ends the
/// handshake: at once, or a little later. Counts the `tokens` of clients.
fn between(
    server: &str,
    more: &'static [u8],
    is_later: bool,
    tokens: &Arc<AtomicUsize>,
) -> SocketAddr {
    let tokens = Arc::clone(tokens);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, server) = (listener.local_addr().unwrap(), server.to_owned());
    // It ends with the process of the test.
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(&server).unwrap();
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let tokens = Arc::clone(&tokens);
            thread::spawn(move || {
                pass_on(from, to, |bytes, _| {
                    // Each waits for the reply to the one before.
                    let is_token = bytes.starts_with(b"ADAT ");
                    tokens.fetch_add(is_token.into(), Ordering::Relaxed);
                });
            });
            thread::spawn(move || {
                pass_on(server, client, |bytes, client| {
                    if bytes.starts_with(b"235 ") && is_later {
                        client.write_all(bytes).unwrap();
                        thread::sleep(Duration::from_millis(100));
                        bytes.clear();
                    }
                    if bytes.starts_with(b"235 ") || bytes.is_empty() {
                        bytes.extend_from_slice(more);
                    }
                });
            });
        }
    });
    own
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut Vec<u8>, &mut TcpStream)) {
    let mut buffer = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut bytes = buffer[..count].to_vec();
        change(&mut bytes, &mut to);
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// A proxy costs one token, and a server that has no use for it gets none.
#[test]
fn nothing_is_delegated_where_nothing_is_proved() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, _grid) = Stage::with_gsi(147, "protect = \"clear\"", "");
    fs::write(stage.root("alice/f"), "hello").unwrap();
    let tokens_at = |level: &str| {
        let tokens = Arc::default();
        let address = between(&stage.address, b"", false, &tokens);
        let url = format!("gsiftp://localhost:{}/alice/f", address.port());
        assert_eq!(run(&mut xdfs(&stage, &["cat", level, &url])), "hello");
        tokens.load(Ordering::Relaxed)
    };
    let [private, safe, clear, unauthenticated] = LEVELS.map(|(level, _)| tokens_at(level));
    assert_eq!([safe, clear, unauthenticated + 1], [private; 3]);
}

#[test]
fn no_reply_in_clear_is_taken_for_one_of_the_server() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, _grid) = Stage::with_gsi(144, "", "");
    fs::write(stage.root("alice/f"), "hello").unwrap();
    let shown = |more, is_later| {
        let address = between(&stage.address, more, is_later, &Arc::default());
        let url = format!("gsiftp://localhost:{}/alice/f", address.port());
        outcome(&mut xdfs(&stage, &["cat", &url]))
    };
    assert_eq!(shown(b"", false), (true, "hello".to_owned()));
    for (is_later, why) in [(false, "in clear behind"), (true, "isn't protected")] {
        let (succeeded, text) = shown(b"230 welcome\r\n", is_later);
        assert!(!succeeded && text.contains(why), "{text}");
    }
}
