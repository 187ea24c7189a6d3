//! TLS of data connections that breaks: with an alert, or as the server has forgotten the session.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::version::{TLS12, TLS13};

use crate::fake::{Fake, Socket, content};
use crate::ftps::{authority, speaking};
use crate::places::xdfs;
use crate::stage::{Stage, assert_bytes, outcome, run};

const MLST: &str = " MLST Type*;Size*;Modify*;\r\n";

#[test]
fn a_download_ends_with_an_alert_in_place_of_a_handshake() {
    let stage = Stage::with_users(156, "");
    let tls = Some(speaking(&stage, &[&TLS13]));
    let fake = Fake::start_with(tls, MLST, |verb, _, talk| {
        if verb == "RETR" {
            talk.say("150 now\r\n");
            // Fatal: internal error.
            talk.data()
                .write_all(b"\x15\x03\x03\0\x02\x02\x50")
                .unwrap();
        }
        verb == "RETR"
    });
    let (url, target) = (fake.secure_url("/f"), stage.here("file"));
    let (authority, path) = (authority(&stage), target.display().to_string());
    for words in [
        &["cp", "--retries=0", "--ca", &authority, &url, &path][..],
        &["cat", "--ca", &authority, &url],
    ] {
        let (succeeded, text) = outcome(&mut xdfs(&stage, words));
        assert!(!succeeded && text.contains("alert"), "{text}");
        assert!(!target.exists());
    }
}

#[test]
fn a_forgotten_session_is_proved_anew() {
    for (seed, version) in [(157, &TLS12), (158, &TLS13)] {
        let stage = Stage::with_users(seed, "");
        let (tls, other) = (speaking(&stage, &[version]), speaking(&stage, &[version]));
        let files = AtomicUsize::new(0);
        let fake = Fake::start_with(Some(tls), MLST, move |verb, _, talk| {
            match verb {
                "MLSD" => {
                    let rows = ["a", "b", "c"].map(|name| {
                        format!("Type=file;Size=1000;Modify=20260102030405; {name}\r\n")
                    });
                    talk.send(rows.concat().as_bytes());
                }
                "RETR" if files.fetch_add(1, Ordering::Relaxed) == 1 => {
                    talk.say("150 now\r\n");
                    let mut data = Socket::secured(talk.data(), &other);
                    // The client refuses it.
                    let _ = data.write_all(&content());
                    data.end();
                    talk.say("226 done\r\n");
                }
                _ => return false,
            }
            true
        });
        let (url, target) = (fake.secure_url("/d"), stage.here("d"));
        let (authority, path) = (authority(&stage), target.display().to_string());
        run(&mut xdfs(
            &stage,
            &["cp", "-r", "--retries=2", "--ca", &authority, &url, &path],
        ));
        for name in ["a", "b", "c"] {
            assert_bytes(&target.join(name), &content());
        }
    }
}
