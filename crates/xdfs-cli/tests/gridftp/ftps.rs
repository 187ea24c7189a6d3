//! `ftps://` places of the client: at vsftpd and at our own server, and at servers in whose place
//! somebody else answers, or that give up protection.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{ALL_VERSIONS, ServerConfig, SupportedProtocolVersion};
use xdfs_testkit::process::Guard;
use xdfs_testkit::wait;

use crate::fake::{Fake, SIZE, Socket, Talk, block, content, header};
use crate::places::{There, small_files_go_up, trees_work, vsftpd, works, xdfs};
use crate::stage::{PATIENCE, Stage, assert_bytes, outcome, run};

const MLST: &str = " MLST Type*;Size*;Modify*;\r\n";
const EXTENDED: &str = " MLST Type*;Size*;Modify*;\r\n PARALLEL\r\n";
const LARGE: usize = 36_000_003;

/// The certificate of the stage's server, as clients are told to trust it.
pub(crate) fn authority(stage: &Stage) -> String {
    stage.certificate().display().to_string()
}

pub(crate) fn password(stage: &Stage) -> String {
    stage.beside("password").display().to_string()
}

pub(crate) fn url(stage: &Stage, path: &str) -> String {
    format!("ftps://alice@{}/alice/{path}", stage.named_address())
}

/// The same server in the certificate of a stage.
fn certified(stage: &Stage) -> Arc<ServerConfig> {
    speaking(stage, ALL_VERSIONS)
}

/// The same with these versions of TLS.
pub(crate) fn speaking(
    stage: &Stage,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(stage.certificate()).unwrap();
    let key = PrivateKeyDer::from_pem_file(stage.beside("server/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_protocol_versions(versions).unwrap();
    let config = config.with_no_client_auth();
    Arc::new(config.with_single_cert(vec![certificate], key).unwrap())
}

#[test]
fn everything_works_at_our_own_server() {
    for (seed, more) in [
        (120, "[gridftp]\ntls = \"required\""),
        (
            121,
            "[gridftp]\ntls = \"required\"\ntls_resumption = \"required\"",
        ),
    ] {
        let stage = Stage::with_users(seed, more);
        let (authority, password) = (authority(&stage), password(&stage));
        let (place, root) = (url(&stage, ""), stage.root("alice"));
        let flags = ["--ca", authority.as_str(), "--password-file", &password];
        let there = There {
            url: place.trim_end_matches('/'),
            root: &root,
            flags: &flags,
        };
        works(&stage, there);
        trees_work(&stage, there);
        // More data connections than the server gives tickets unasked.
        let wanted = Stage::make(&stage.root("alice/many"), LARGE);
        let (from, to) = (url(&stage, "many"), stage.here("many"));
        let to = to.display().to_string();
        let words = [&["cp", "-n", "16"], there.flags, &[&from, &to]].concat();
        run(&mut xdfs(&stage, &words));
        assert_bytes(&stage.here("many"), &wanted);
        let log = stage.server.output().join("\n");
        assert!(!log.contains("cut off"), "{log}");
    }
}

#[test]
fn everything_works_at_vsftpd() {
    let stage = Stage::with_users(122, "");
    let server = stage.beside("server").display().to_string();
    for reuse in ["YES", "NO"] {
        let more = format!(
            "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_data_ssl=YES\n\
             force_anon_logins_ssl=YES\nrequire_ssl_reuse={reuse}\nssl_ciphers=HIGH\n\
             rsa_cert_file={server}/server.crt\nrsa_private_key_file={server}/server.key\n"
        );
        let _ = fs::remove_dir_all(stage.beside("anonymous"));
        let _ = fs::remove_dir_all(stage.here(""));
        fs::create_dir(stage.here("")).unwrap();
        let Some((_server, address)) = vsftpd(&stage, &more) else {
            return;
        };
        let (authority, root) = (authority(&stage), stage.beside("anonymous/pub"));
        let place = format!("ftps://localhost:{}/pub", address.port());
        let flags = ["--ca", authority.as_str()];
        let there = There {
            url: &place,
            root: &root,
            flags: &flags,
        };
        works(&stage, there);
        small_files_go_up(&stage, there);
        // It takes nobody without TLS.
        let clear = format!("ftp://{address}/pub/file");
        let (succeeded, text) = outcome(&mut xdfs(&stage, &["cat", "--insecure", &clear]));
        assert!(!succeeded, "{text}");
    }
}

/// A reply that comes with the greeting answers no command.
#[test]
fn a_reply_before_its_command_is_none() {
    let stage = Stage::with_users(152, "");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 hi\r\n234 go\r\n").unwrap();
        let mut said = Vec::new();
        // The client may reset the connection.
        let _ = stream.read_to_end(&mut said);
        said
    });
    let url = format!("ftps://localhost:{port}/f");
    let words = ["cat", "--ca", &authority(&stage), &url];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && text.contains("behind the greeting"), "{text}");
    assert!(server.join().unwrap().is_empty());
}

/// The password in a file isn't told to a second server.
#[test]
fn a_password_is_for_one_server() {
    let stage = Stage::with_users(151, "");
    fs::write(stage.root("alice/f"), "hello").unwrap();
    let fake = Fake::start_with(Some(certified(&stage)), MLST, |_, _, _| false);
    let (authority, password) = (authority(&stage), password(&stage));
    let words = ["cp", "--ca", &authority, "--password-file", &password];
    let to = fake.secure_url("/g").replace("ftps://", "ftps://mallory@");
    let from = url(&stage, "f");
    let words = [&words[..], &[&from, &to]].concat();
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(
        !succeeded && text.contains("one password would be told"),
        "{text}"
    );
    assert!(!fake.commands().iter().any(|line| line.starts_with("PASS")));
}

/// Between two servers with TLS nothing goes straight, as it would be in clear.
#[test]
fn files_between_servers_with_tls_come_through_here() {
    let stage = Stage::with_users(140, "[gridftp]\ntls = \"required\"\nthird_party = true");
    let content = Stage::make(&stage.root("alice/from"), LARGE);
    let (authority, password) = (authority(&stage), password(&stage));
    let copy = |way: &str| {
        let words = [
            "cp",
            "--json",
            "--ca",
            &authority,
            "--password-file",
            &password,
        ];
        let way = format!("--between={way}");
        let (from, to) = (url(&stage, "from"), url(&stage, "to"));
        let words = [&words[..], &[&way, &from, &to]].concat();
        outcome(&mut xdfs(&stage, &words))
    };
    let (succeeded, text) = copy("direct");
    assert!(!succeeded && text.contains("would be in clear"), "{text}");
    assert!(!stage.root("alice/to").exists());
    let (succeeded, text) = copy("any");
    assert!(succeeded && !text.contains("\"direct\":true"), "{text}");
    assert_bytes(&stage.root("alice/to"), &content);
}

#[test]
fn a_server_is_trusted_for_a_reason() {
    let stage = Stage::with_users(123, "");
    fs::write(stage.root("alice/f"), "hello").unwrap();
    let (password, url) = (password(&stage), url(&stage, "f"));
    let ask = |more: &[&str]| {
        let words = [&["cat", "--password-file", &password], more, &[&url]].concat();
        outcome(&mut xdfs(&stage, &words))
    };
    let refused = |more: &[&str], cause: &str| {
        let (succeeded, text) = ask(more);
        assert!(!succeeded && text.contains(cause), "{more:?}: {text}");
        text
    };
    // There is no first use: the password would go to whoever answers.
    let text = refused(&[], "no authority vouches for it");
    let key = text
        .split_whitespace()
        .find(|word| word.starts_with("SHA256:"));
    let key = key.unwrap().to_owned();
    let wrong = format!("SHA256:{}", "A".repeat(43));
    refused(&["--pin", &wrong], "isn't pinned");
    let other = Stage::with_users(124, "");
    refused(&["--ca", &authority(&other)], "don't vouch for it");
    assert_eq!(ask(&["--pin", &key]), (true, "hello".to_owned()));
    let host = stage.named_address();
    run(&mut xdfs(&stage, &["trust", "add", &host, &key]));
    assert_eq!(ask(&[]), (true, "hello".to_owned()));
    // Nothing is given up by a flag, and no password is told to others.
    let words = ["cat", "--insecure", &url];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(
        !succeeded && text.contains("leave out --insecure"),
        "{text}"
    );
    for (words, cause) in [
        (
            &["cat", "--protect=clear", "--password-file", &password, &url][..],
            "leave out --protect",
        ),
        (&["cat", "--protect=safe", &url], "PROT P, which protects"),
        (&["cat", "--protect=unauthenticated", &url], "in clear"),
        (&["cat", &url], "asks for a password"),
        (
            &["cat", &url.replace("alice@", "alice:S3CRET@")],
            "--password-file",
        ),
        (
            &[
                "cat",
                "--password-file",
                &password,
                &url.replace("alice@", ""),
            ],
            "no user",
        ),
    ] {
        let (succeeded, text) = outcome(&mut xdfs(&stage, words));
        assert!(!succeeded && text.contains(cause), "{text}");
        assert!(!text.contains("S3CRET"), "{text}");
    }
    fs::write(stage.beside("wrong"), "not it\n").unwrap();
    let wrong = stage.beside("wrong").display().to_string();
    let (succeeded, text) = outcome(&mut xdfs(&stage, &["cat", "--password-file", &wrong, &url]));
    assert!(!succeeded && text.contains("log in as alice"), "{text}");
    assert!(!text.contains("not it"), "{text}");
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let stage = Stage::with_users(125, "");
    let fake = Fake::start_with(Some(certified(&stage)), MLST, |_, _, _| false);
    // The certificate has a name, and no address.
    let url = fake.secure_url("/f").replace("localhost", "127.0.0.1");
    let words = ["cat", "--ca", &authority(&stage), &url];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && text.contains("not valid for name"), "{text}");
    let commands = fake.commands();
    assert!(
        commands.iter().all(|line| line == "AUTH TLS"),
        "{commands:?}"
    );
}

/// Copies a file from a server with TLS whose answer to a command is `act`. Returns what the
/// program printed, and the server.
#[track_caller]
fn fetched(
    stage: &Stage,
    features: &str,
    wanted: &'static str,
    act: impl Fn(&mut Talk) + Send + Sync + 'static,
) -> (String, Fake) {
    let tls = Some(certified(stage));
    let fake = Fake::start_with(tls, features, move |verb, _, talk| {
        let is_wanted = verb == wanted;
        if is_wanted {
            act(talk);
        }
        is_wanted
    });
    let target = stage.here("file");
    let (url, path) = (fake.secure_url("/f"), target.display().to_string());
    let words = ["cp", "--retries=0", "--ca", &authority(stage), &url, &path];
    let (succeeded, text) = outcome(&mut xdfs(stage, &words));
    assert_eq!(succeeded, target.exists(), "{text}");
    if succeeded {
        assert_bytes(&target, &content());
        fs::remove_file(&target).unwrap();
    }
    let left = fs::read_dir(stage.here("")).unwrap().count();
    assert_eq!(left, 0, "{text}");
    (format!("{succeeded}: {text}"), fake)
}

/// Fails unless nothing was told to the server but these commands.
#[track_caller]
fn was_told(fake: &Fake, wanted: &[&str]) {
    assert_eq!(fake.commands(), wanted);
}

#[test]
fn nothing_goes_on_in_clear() {
    let stage = Stage::with_users(126, "");
    let (text, _) = fetched(&stage, MLST, "nothing", |_: &mut Talk| {});
    assert!(text.starts_with("true"), "{text}");
    for refusal in [
        "500 what",
        "504 no",
        "534 no",
        "431 later",
        "200 fine",
        "334 x",
    ] {
        let (text, fake) = fetched(&stage, MLST, "AUTH", move |talk| {
            talk.say(&format!("{refusal}\r\n"));
        });
        assert!(
            text.contains("refuses AUTH TLS") && text.contains("ftp://"),
            "{text}"
        );
        was_told(&fake, &["AUTH TLS"]);
    }
    for (command, refusal) in [
        ("PROT", "504 no"),
        ("PROT", "536 no"),
        ("PROT", "534 no"),
        ("PBSZ", "503 no"),
    ] {
        let (text, fake) = fetched(&stage, MLST, command, move |talk| {
            talk.say(&format!("{refusal}\r\n"));
        });
        assert!(text.contains(&format!("refuses {command}")), "{text}");
        let commands = fake.commands();
        let is_data = |line: &String| line.starts_with("EPSV") || line.starts_with("RETR");
        assert!(!commands.iter().any(is_data), "{commands:?}");
    }
    // What somebody has put behind the reply to AUTH is no reply of the server.
    let (text, fake) = fetched(&stage, MLST, "AUTH", |talk| {
        talk.say("234 go on\r\n230 welcome\r\n");
        talk.secure();
    });
    assert!(text.contains("behind the reply to AUTH"), "{text}");
    was_told(&fake, &["AUTH TLS"]);
    // Nor is it if it comes a little later.
    let (text, fake) = fetched(&stage, MLST, "AUTH", |talk| {
        talk.say("234 go on\r\n");
        std::thread::sleep(std::time::Duration::from_millis(50));
        talk.say("230 welcome\r\n");
        talk.secure();
    });
    assert!(text.starts_with("false"), "{text}");
    was_told(&fake, &["AUTH TLS"]);
}

#[test]
fn data_comes_from_the_server_itself() {
    let stage = Stage::with_users(127, "");
    let (text, _) = fetched(&stage, MLST, "RETR", |talk| {
        talk.say("150 now\r\n");
        talk.data().write_all(&content()).unwrap();
        talk.say("226 done\r\n");
    });
    assert!(text.starts_with("false"), "{text}");
    let (another, resumed) = ("another certificate", "doesn't resume the TLS session");
    // The client trusts both, and the control connection is that of the first. With the same
    // certificate it is that of another user's session.
    let other = Stage::with_users(128, "");
    let both = [&stage, &other].map(|one| fs::read(one.certificate()).unwrap());
    fs::write(stage.beside("both.crt"), both.concat()).unwrap();
    for (version, features, tickets, is_same, cause) in [
        (&TLS13, MLST, 0, false, another),
        (&TLS13, EXTENDED, 0, false, another),
        (&TLS13, MLST, 2, false, resumed),
        (&TLS13, MLST, 2, true, resumed),
        (&TLS13, EXTENDED, 2, true, resumed),
        (&TLS12, MLST, 0, false, another),
        (&TLS12, MLST, 2, false, resumed),
        (&TLS12, EXTENDED, 2, true, resumed),
    ] {
        let tls = speaking(if is_same { &stage } else { &other }, &[version]);
        let mut control = ServerConfig::clone(&speaking(&stage, &[version]));
        control.send_tls13_tickets = tickets;
        control.max_tls13_tickets = tickets;
        if tickets == 0 {
            control.session_storage = Arc::new(NoServerSessionStorage {});
        }
        let control = Some(Arc::new(control));
        let fake = Fake::start_with(control, features, move |verb, _, talk| {
            if verb == "RETR" {
                talk.say("150 now\r\n");
                let mut data = Socket::secured(talk.data(), &tls);
                // The client may refuse it.
                let bytes = match talk.is_extended {
                    true => [block(0, 0, &content()), header(0x48, 0, 1)].concat(),
                    false => content(),
                };
                let _ = data.write_all(&bytes);
                data.end();
                talk.say("226 done\r\n");
            }
            verb == "RETR"
        });
        let (target, authorities) = (stage.here("file"), stage.beside("both.crt"));
        let words = [
            "cp",
            "--retries=0",
            "--ca",
            &authorities.display().to_string(),
            &fake.secure_url("/f"),
            &target.display().to_string(),
        ];
        let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
        assert!(!succeeded && text.contains(cause), "{text}");
        assert!(!target.exists());
    }
}

#[test]
fn an_end_that_nobody_has_told_is_none() {
    let stage = Stage::with_users(129, "");
    for (bytes, tells, whole) in [
        (SIZE, true, true),
        (SIZE, false, false),
        (SIZE / 2, true, false),
    ] {
        let (text, _) = fetched(&stage, MLST, "RETR", move |talk| {
            talk.say("150 now\r\n");
            let mut data = talk.secure_data();
            data.write_all(&content()[..bytes]).unwrap();
            data.flush().unwrap();
            if tells {
                data.end();
            }
            drop(data);
            talk.say("226 done\r\n");
        });
        assert_eq!(text.starts_with("true"), whole, "{text}");
        let cause = if tells { "before its size" } else { "cut off" };
        assert!(whole || text.contains(cause), "{text}");
    }
    // In MODE E the blocks tell it.
    for (bytes, is_whole) in [(SIZE, true), (SIZE / 2, false)] {
        let (text, _) = fetched(&stage, EXTENDED, "RETR", move |talk| {
            talk.say("150 now\r\n");
            let mut data = talk.secure_data();
            data.write_all(&block(0, 0, &content()[..bytes])).unwrap();
            if is_whole {
                data.write_all(&header(0x48, 0, 1)).unwrap();
            }
            data.flush().unwrap();
            drop(data);
            talk.say("226 done\r\n");
        });
        assert_eq!(text.starts_with("true"), is_whole, "{text}");
        assert!(is_whole || text.contains("cut off"), "{text}");
    }
    // A listing that was cut off hides names.
    let fake = Fake::start_with(Some(certified(&stage)), MLST, |verb, _, talk| {
        if verb == "MLSD" {
            talk.say("150 now\r\n");
            let mut data = talk.secure_data();
            data.write_all(b"Type=file;Size=3; a\r\n").unwrap();
            data.flush().unwrap();
            drop(data);
            talk.say("226 done\r\n");
        }
        verb == "MLSD"
    });
    let words = ["ls", "--ca", &authority(&stage), &fake.secure_url("/d")];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && text.contains("cut off"), "{text}");
}

#[test]
fn an_upload_has_an_end() {
    let stage = Stage::with_users(130, "");
    fs::write(stage.here("file"), content()).unwrap();
    let fake = Fake::start_with(Some(certified(&stage)), MLST, |verb, argument, talk| {
        match verb {
            "STOR" => {
                talk.say("150 now\r\n");
                let mut all = Vec::new();
                // Without the end of TLS this fails.
                let read = talk.secure_data().read_to_end(&mut all);
                let is_whole = read.is_ok() && all == content();
                talk.say(if is_whole {
                    "226 done\r\n"
                } else {
                    "426 what\r\n"
                });
            }
            "MLST" if !argument.ends_with("ftp-part") => {
                talk.say("550 No such file\r\n");
            }
            "RNFR" => {
                talk.say("350 more\r\n");
            }
            "RNTO" => {
                talk.say("250 fine\r\n");
            }
            _ => return false,
        }
        true
    });
    let from = stage.here("file").display().to_string();
    let words = [
        "cp",
        "--retries=0",
        "--ca",
        &authority(&stage),
        &from,
        &fake.secure_url("/f"),
    ];
    run(&mut xdfs(&stage, &words));
}

/// Has a server killed while a file is on its way, and nobody in its place.
#[track_caller]
fn killed(stage: &mut Stage, from: &str, to: &str, has_begun: impl Fn(&Stage) -> bool) -> String {
    let (authority, password) = (authority(stage), password(stage));
    let words = [
        "cp",
        "--retries=0",
        "--limit-rate=8M",
        "--ca",
        &authority,
        "--password-file",
        &password,
        from,
        to,
    ];
    let mut client = Guard::spawn(&mut xdfs(stage, &words)).unwrap();
    let begun = wait::until(PATIENCE, || has_begun(stage));
    assert!(begun, "{:?}", client.output());
    stage.server.kill().unwrap();
    let status = client.wait(PATIENCE).unwrap();
    let text = client.output().join("\n");
    assert!(status.is_some_and(|status| !status.success()), "{text}");
    assert!(text.contains("error"), "{text}");
    text
}

fn has_bytes(folder: &std::path::Path) -> bool {
    let mut entries = fs::read_dir(folder).unwrap();
    entries.any(|entry| entry.unwrap().metadata().is_ok_and(|found| found.len() > 0))
}

#[test]
fn a_killed_server_leaves_no_wrong_file() {
    let mut stage = Stage::with_users(131, "");
    Stage::make(&stage.root("alice/file"), LARGE);
    let (from, target) = (url(&stage, "file"), stage.here("file"));
    let to = target.display().to_string();
    killed(&mut stage, &from, &to, |stage| has_bytes(&stage.here("")));
    assert!(!target.exists());
    let mut stage = Stage::with_users(132, "");
    Stage::make(&stage.here("file"), LARGE);
    let (from, to) = (stage.here("file"), url(&stage, "stored"));
    let from = from.display().to_string();
    killed(&mut stage, &from, &to, |stage| {
        has_bytes(&stage.root("alice"))
    });
    assert!(!stage.root("alice/stored").exists());
}

#[test]
fn other_tools_do_not_miss_anything() {
    // What xdfs stores with TLS, curl gets, and the other way round: the tests of tools compare
    // curl with the server alone.
    if !crate::stage::has("curl") {
        return xdfs_testkit::skip::test("curl is not installed");
    }
    let stage = Stage::with_users(133, "");
    let content = Stage::make(&stage.here("file"), 300_001);
    let (authority, password) = (authority(&stage), password(&stage));
    let from = stage.here("file").display().to_string();
    let words = [
        "cp",
        "--ca",
        &authority,
        "--password-file",
        &password,
        &from,
        &url(&stage, "stored"),
    ];
    run(&mut xdfs(&stage, &words));
    let mut get = Command::new("curl");
    get.args([
        "--silent",
        "--show-error",
        "--ssl-reqd",
        "--cacert",
        &authority,
    ])
    .args(["-u", &format!("alice:{}", crate::stage::PASSWORD)])
    .arg(format!("ftp://{}/alice/stored", stage.named_address()))
    .arg("-o")
    .arg(stage.here("back"));
    run(&mut get);
    assert_bytes(&stage.here("back"), &content);
}
