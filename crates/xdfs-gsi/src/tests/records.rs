//! Records that are made without OpenSSL, with peers that use OpenSSL, and with some that break the
//! rules.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use openssl::ssl::{ErrorCode, Ssl, SslContext, SslMethod, SslStream, SslVerifyMode};
use xdfs_proto::{Fault, Retry};

use super::contexts::{Pipe, Sides};
use crate::channel::Channel;
use crate::records::{Found, Side};
use crate::{DataContext, Role};

const HANDSHAKE: u8 = 22;
const CONTENT: u8 = 23;
const ALICE: &str = "/O=Grid/CN=Alice User";

/// A side that OpenSSL speaks for.
struct Peer(SslStream<Pipe>);

impl Peer {
    fn new(sides: &Sides, side: Side, suite: &str) -> Self {
        let mut builder = SslContext::builder(SslMethod::tls()).unwrap();
        builder.set_ciphersuites(suite).unwrap();
        builder.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
        builder.set_certificate(&sides.proxy.certificate).unwrap();
        builder.set_private_key(&sides.proxy.key).unwrap();
        for certificate in &sides.proxy.chain {
            builder.add_extra_chain_cert(certificate.clone()).unwrap();
        }
        let mut ssl = Ssl::new(&builder.build()).unwrap();
        match side {
            Side::Acceptor => ssl.set_accept_state(),
            Side::Initiator => ssl.set_connect_state(),
        }
        Self(SslStream::new(ssl, Pipe::default()).unwrap())
    }

    /// Reads what there is.
    fn content(&mut self) -> Vec<u8> {
        let (mut content, mut buffer) = (Vec::new(), [0; 5000]);
        loop {
            match self.0.ssl_read(&mut buffer) {
                Ok(read) => content.extend_from_slice(&buffer[..read]),
                Err(error) if error.code() == ErrorCode::ZERO_RETURN => return content,
                Err(error) => {
                    assert_eq!(error.code(), ErrorCode::WANT_READ, "{error}");
                    return content;
                }
            }
        }
    }
}

/// Connects one of ours with one of OpenSSL's.
fn connected(sides: &Sides, side: Side, suite: &str) -> (Channel, Peer) {
    let mut own = Channel::new(side, &sides.proxy, &sides.trust, None, true).unwrap();
    let other = match side {
        Side::Acceptor => Side::Initiator,
        Side::Initiator => Side::Acceptor,
    };
    let mut peer = Peer::new(sides, other, suite);
    for _ in 0..5 {
        own.advance().unwrap();
        carry(&mut own, &mut peer);
        let _ = peer.0.do_handshake();
        carry(&mut own, &mut peer);
    }
    assert!(own.advance().unwrap().is_some() && own.records().is_some());
    (own, peer)
}

fn carry(own: &mut Channel, peer: &mut Peer) {
    let pipe = peer.0.get_mut();
    pipe.incoming.extend(own.outgoing().drain(..));
    own.put(&std::mem::take(&mut pipe.outgoing));
}

/// Reads what there is, in pieces of so many bytes.
fn content(own: &mut Channel, piece: usize) -> Vec<u8> {
    let (mut content, mut buffer) = (Vec::new(), vec![0; piece]);
    while let Found::Bytes(read) = own.read(&mut buffer).unwrap() {
        content.extend_from_slice(&buffer[..read]);
    }
    content
}

fn message(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 249) as u8).collect()
}

/// Both sides are ours.
fn pair(sides: &Sides) -> (Channel, Channel) {
    let new = |side| Channel::new(side, &sides.proxy, &sides.trust, None, true).unwrap();
    let (mut opened, mut accepted) = (new(Side::Initiator), new(Side::Acceptor));
    for _ in 0..3 {
        opened.advance().unwrap();
        accepted.put(&std::mem::take(opened.outgoing()));
        accepted.advance().unwrap();
        opened.put(&std::mem::take(accepted.outgoing()));
    }
    (opened, accepted)
}

#[test]
fn openssl_reads_and_writes_the_same_records_with_each_suite() {
    let sides = Sides::new();
    for suite in [
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    ] {
        for side in [Side::Acceptor, Side::Initiator] {
            let (mut own, mut peer) = connected(&sides, side, suite);
            for (length, piece) in [(0, 1), (1, 1), (300, 7), (16_385, 16_384), (60_000, 40_000)] {
                let message = message(length);
                own.write(&message).unwrap();
                carry(&mut own, &mut peer);
                assert_eq!(peer.content(), message, "{suite} {length}");
                peer.0.write_all(&message).unwrap();
                carry(&mut own, &mut peer);
                assert_eq!(content(&mut own, piece), message, "{suite} {length}");
            }
            peer.0.shutdown().unwrap();
            carry(&mut own, &mut peer);
            assert_eq!(own.read(&mut [0]).unwrap(), Found::End);
            own.close();
            carry(&mut own, &mut peer);
            let end = peer.0.ssl_read(&mut [0]).unwrap_err();
            assert_eq!(end.code(), ErrorCode::ZERO_RETURN);
        }
    }
}

/// Both OpenSSL and this side follow a sender whose key is used up.
#[test]
fn keys_are_changed_before_they_are_used_up() {
    let sides = Sides::new();
    let message = message(100_000);
    let (mut own, mut peer) = connected(&sides, Side::Initiator, "TLS_AES_256_GCM_SHA384");
    let (mut opened, mut accepted) = pair(&sides);
    let mut changes = 0;
    for _ in 0..20 {
        for channel in [&mut own, &mut opened] {
            channel.records().unwrap().0.wear(8);
            channel.write(&message).unwrap();
        }
        // 7 records of content, each with 22 bytes more, and what changes a key.
        let more = opened.outgoing().len() - message.len();
        changes += more / 22 - 7;
        carry(&mut own, &mut peer);
        assert_eq!(peer.content(), message);
        accepted.put(&std::mem::take(opened.outgoing()));
        assert_eq!(content(&mut accepted, 70_000), message);
    }
    assert!(changes >= 20, "{changes}");
}

/// A client of OpenSSL that changes its keys, and has this side change its own.
#[test]
fn a_peer_may_change_its_keys() {
    let sides = Sides::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("proxy");
    fs::write(&file, sides.proxy.to_pem().unwrap()).unwrap();
    let chain = folder.path().join("chain");
    fs::write(&chain, sides.proxy.chain[0].to_pem().unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-cert"])
        .arg(&file)
        .arg("-key")
        .arg(&file)
        .arg("-cert_chain")
        .arg(&chain)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut connection, _) = listener.accept().unwrap();
    let patience = Some(Duration::from_secs(20));
    connection.set_read_timeout(patience).unwrap();
    let new = DataContext::new(Role::Accepted, &sides.proxy, &sides.trust, ALICE, true);
    let mut own = new.unwrap();
    let mut typed = client.stdin.take().unwrap();
    let mut turn = |own: &mut DataContext, typed: &mut ChildStdin, line: &str| {
        typed.write_all(line.as_bytes()).unwrap();
        typed.flush().unwrap();
        assert!(own.receive(&mut connection).unwrap().unwrap() > 0);
        let mut buffer = [0; 100];
        let read = own.read(&mut buffer).unwrap().unwrap_or(0);
        let answer = std::mem::take(own.outgoing());
        connection.write_all(&answer).unwrap();
        (buffer[..read].to_vec(), answer.len())
    };
    while !own.is_open() {
        turn(&mut own, &mut typed, "");
    }
    assert_eq!(turn(&mut own, &mut typed, "one\n").0, b"one\n");
    for _ in 0..3 {
        // Its own key alone, and both.
        assert_eq!(turn(&mut own, &mut typed, "k\n"), (Vec::new(), 0));
        assert_eq!(turn(&mut own, &mut typed, "two\n").0, b"two\n");
        // It is answered with what is sent next, once.
        for _ in 0..2 {
            assert_eq!(turn(&mut own, &mut typed, "K\n"), (Vec::new(), 0));
        }
        own.write(b"answer\n").unwrap();
        let sent = turn(&mut own, &mut typed, "three\n");
        assert_eq!(sent, (b"three\n".to_vec(), 5 + 22 + 7 + 22));
    }
    own.write(b"the last\n").unwrap();
    own.close();
    let last = std::mem::take(own.outgoing());
    connection.write_all(&last).unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let answers = lines.by_ref().map_while(Result::ok);
    let answers: Vec<String> = answers
        .filter(|line| line.contains("answer") || line.contains("last"))
        .collect();
    assert_eq!(answers.len(), 4, "{answers:?}");
    drop(typed);
    client.wait().unwrap();
}

/// What becomes of the receiver: it has taken nothing of what follows, either.
fn refused(receiver: &mut Channel, bytes: &[u8]) -> Fault {
    receiver.put(bytes);
    let mut buffer = [0; 40_000];
    let mut read = receiver.read(&mut buffer);
    while let Ok(Found::Bytes(_)) = read {
        read = receiver.read(&mut buffer);
    }
    let fault = read.unwrap_err();
    receiver.read(&mut buffer).unwrap_err();
    fault
}

#[test]
fn records_that_were_changed_are_refused() {
    let sides = Sides::new();
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 7] = [
        ("changed on the way", |bytes| bytes[10] ^= 1),
        ("changed on the way", |bytes| {
            *bytes.last_mut().unwrap() ^= 128
        }),
        ("shorter than its tag", |bytes| {
            bytes.truncate(5 + 15);
            bytes[3..5].copy_from_slice(&[0, 15]);
        }),
        ("changed on the way", |bytes| bytes[1] = 4),
        ("no protection", |bytes| bytes[0] = 22),
        ("too long", |bytes| bytes[3] = 0xff),
        ("changed on the way", |bytes| {
            // The second one before the first.
            bytes.rotate_left(5 + 100 + 17);
        }),
    ];
    for (reason, change) in changes {
        let (mut opened, mut accepted) = pair(&sides);
        for _ in 0..2 {
            opened.write(&[7; 100]).unwrap();
        }
        let mut bytes = std::mem::take(opened.outgoing());
        change(&mut bytes);
        let fault = refused(&mut accepted, &bytes);
        assert!(fault.cause.contains(reason), "{fault}");
        assert_eq!(fault.retry, Retry::Now, "{fault}");
        assert_eq!(accepted.outgoing().len(), 2 + 22, "one alert");
    }
}

#[test]
fn messages_that_make_no_sense_are_refused() {
    let sides = Sides::new();
    for (kind, content, reason) in [
        (20, &[1][..], "unknown type"),
        (HANDSHAKE, &[24, 0, 0, 1, 2], "unknown type"),
        (HANDSHAKE, &[24, 0, 0, 1, 0, 4], "unknown type"),
        (HANDSHAKE, &[24, 0, 0, 2, 0, 0], "unknown type"),
        (HANDSHAKE, &[1, 0, 0, 0], "unknown type"),
        (HANDSHAKE, &[], "unknown type"),
        (21, &[2, 48], "the alert UnknownCA"),
        (21, &[2], "unknown type"),
        (0, &[0, 0, 0], "no type"),
    ] {
        let (mut opened, mut accepted) = pair(&sides);
        let (records, out) = opened.records().unwrap();
        records.put(kind, content, out);
        let bytes = std::mem::take(opened.outgoing());
        let fault = refused(&mut accepted, &bytes);
        assert!(fault.cause.contains(reason), "{kind} {content:?}: {fault}");
        if kind == 21 && content.len() == 2 {
            assert!(accepted.outgoing().is_empty());
        } else if kind != 0 {
            opened.put(&std::mem::take(accepted.outgoing()));
            let fault = opened.read(&mut [0; 9]).unwrap_err();
            assert!(fault.cause.contains("alert UnexpectedMessage"), "{fault}");
        }
    }
    let (mut accepted, mut opened) = pair(&sides);
    for _ in 0..9 {
        let (records, out) = opened.records().unwrap();
        // A ticket that is never whole.
        records.put(
            HANDSHAKE,
            &[&[4, 0xff, 0, 0][..], &[4; 16_000]].concat(),
            out,
        );
    }
    let bytes = std::mem::take(opened.outgoing());
    let fault = refused(&mut accepted, &bytes);
    assert!(fault.cause.contains("too long"), "{fault}");
    // A flood of what brings no content: empty records, tickets, and changes of keys.
    for (kind, content) in [
        (CONTENT, &[][..]),
        (HANDSHAKE, &[4, 0, 0, 0]),
        (HANDSHAKE, &[24, 0, 0, 1, 1]),
    ] {
        let (mut accepted, mut opened) = pair(&sides);
        for number in 0..33 {
            let (records, out) = opened.records().unwrap();
            records.put(kind, content, out);
            if content.first() == Some(&24) {
                records.change();
            }
            let bytes = std::mem::take(opened.outgoing());
            match number {
                32 => {
                    let fault = refused(&mut accepted, &bytes);
                    assert!(fault.cause.contains("without content"), "{fault}");
                }
                _ => {
                    accepted.put(&bytes);
                    assert_eq!(accepted.read(&mut [0; 9]).unwrap(), Found::Nothing);
                }
            }
        }
    }
}

/// RFC 8446, sections 4.6.1 and 5.1: only a server has tickets, and nothing comes between the parts
/// of a message.
#[test]
fn messages_that_may_not_come_now_are_refused() {
    let sides = Sides::new();
    let ticket = &[4, 0, 0, 2, 7, 7][..];
    let part = &ticket[..5];
    type Records<'a> = &'a [(u8, &'a [u8])];
    let cases: [(bool, Records<'_>, &str); 4] = [
        (true, &[(HANDSHAKE, ticket)], "unknown type"),
        (
            false,
            &[(HANDSHAKE, part), (CONTENT, b"x")],
            "within a message",
        ),
        (
            false,
            &[(HANDSHAKE, part), (CONTENT, b"")],
            "within a message",
        ),
        (
            false,
            &[(HANDSHAKE, part), (21, &[1, 0])],
            "within a message",
        ),
    ];
    for (is_acceptor, sent, reason) in cases {
        let (opened, accepted) = pair(&sides);
        let (mut receiver, mut sender) = match is_acceptor {
            true => (accepted, opened),
            false => (opened, accepted),
        };
        for &(kind, content) in sent {
            let (records, out) = sender.records().unwrap();
            records.put(kind, content, out);
        }
        let bytes = std::mem::take(sender.outgoing());
        let fault = refused(&mut receiver, &bytes);
        assert!(fault.cause.contains(reason), "{sent:?}: {fault}");
        sender.put(&std::mem::take(receiver.outgoing()));
        let fault = sender.read(&mut [0; 9]).unwrap_err();
        assert!(fault.cause.contains("alert UnexpectedMessage"), "{fault}");
    }
}

/// A record may have several messages of the handshake protocol, or a part of one.
#[test]
fn messages_are_taken_in_pieces() {
    let sides = Sides::new();
    let (mut accepted, mut opened) = pair(&sides);
    let ticket = [&[4, 0, 0x9c, 0x40][..], &[7; 40_000]].concat();
    let update = [24, 0, 0, 1, 1];
    let whole = [&ticket[..], &ticket, &update].concat();
    for piece in whole.chunks(16_000) {
        let (records, out) = opened.records().unwrap();
        records.put(HANDSHAKE, piece, out);
    }
    opened.records().unwrap().0.change();
    opened.write(b"content").unwrap();
    accepted.put(&std::mem::take(opened.outgoing()));
    assert_eq!(content(&mut accepted, 100), b"content");
    // The peer has asked for another key.
    accepted.write(b"answer").unwrap();
    assert_eq!(accepted.outgoing().len(), 5 + 22 + 6 + 22);
    opened.put(&std::mem::take(accepted.outgoing()));
    assert_eq!(content(&mut opened, 100), b"answer");
}

/// What follows the end that the peer has told is no content.
#[test]
fn nothing_counts_behind_the_end() {
    let sides = Sides::new();
    let (mut opened, mut accepted) = pair(&sides);
    opened.write(b"content").unwrap();
    opened.close();
    opened.write(b"more").unwrap();
    accepted.put(&std::mem::take(opened.outgoing()));
    assert_eq!(content(&mut accepted, 100), b"content");
    for _ in 0..3 {
        assert_eq!(accepted.read(&mut [0; 9]).unwrap(), Found::End);
    }
}
