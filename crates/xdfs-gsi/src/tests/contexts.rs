//! Contexts of two sides that talk to each other in memory, and with sides that break the rules.

use openssl::ssl::{ErrorCode, Ssl, SslContext, SslMethod, SslVersion};
use openssl::x509::{X509, X509Req};

use super::grid::{Grid, Wanted, dns_names};
use crate::channel::Channel;
use crate::context::{Established, content};
use crate::issue::{ProxyOptions, make_proxy, sign_request};
use crate::records::Side;
use crate::{Acceptor, Credential, DataContext, Expected, Initiator, Role, Step, Trust};

pub(super) struct Sides {
    grid: Grid,
    pub(super) trust: Trust,
    host: Credential,
    pub(super) proxy: Credential,
}

impl Sides {
    pub(super) fn new() -> Self {
        let grid = Grid::new();
        let host = Wanted::new("/O=Grid/CN=host").with(dns_names(&["data.example.org"]));
        let host = host.signed(Some(&grid.authority));
        let proxy = make_proxy(&grid.user("Alice User"), &ProxyOptions::default()).unwrap();
        Self {
            trust: grid.trust(),
            host,
            proxy,
            grid,
        }
    }

    fn initiator(&self, host: &str, delegates: bool) -> Initiator {
        let expected = Expected::Host(host.to_owned());
        Initiator::new(&self.proxy, &self.trust, expected, delegates).unwrap()
    }
}

/// Carries tokens until both sides are done.
fn establish(mut initiator: Initiator, mut acceptor: Acceptor) -> (Established, Established) {
    let mut token = Vec::new();
    let mut is_done = false;
    for _ in 0..10 {
        if !is_done {
            match initiator.step(&token).unwrap() {
                Step::Next(next) => token = next,
                Step::Done(next) => (token, is_done) = (next, true),
            }
        }
        match acceptor.step(&token).unwrap() {
            Step::Next(next) => token = next,
            Step::Done(next) => {
                assert!(next.is_empty() && is_done);
                return (
                    initiator.established().unwrap(),
                    acceptor.established().unwrap(),
                );
            }
        }
    }
    panic!("the context isn't established");
}

#[test]
fn messages_are_protected_and_proxies_delegated() {
    let sides = Sides::new();
    for delegates in [true, false] {
        let acceptor = Acceptor::new(&sides.host, &sides.trust).unwrap();
        let (mut client, mut server) =
            establish(sides.initiator("data.example.org", delegates), acceptor);
        assert_eq!(server.peer().name, "/O=Grid/CN=Alice User");
        assert_eq!(client.peer().name, "/O=Grid/CN=host");
        for length in [1, 100, 16_384, 16_385, 60_000] {
            let message: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let token = client.wrap(&message).unwrap();
            assert_eq!(server.unwrap(&token).unwrap(), message);
            let token = server.wrap(&message).unwrap();
            assert_eq!(client.unwrap(&token).unwrap(), message);
        }
        let Some(delegated) = server.delegated() else {
            assert!(!delegates);
            continue;
        };
        let credential = delegated.credential();
        let mut chain = vec![credential.certificate.clone()];
        chain.extend(credential.chain.iter().cloned());
        let peer = crate::chain::verify(&chain, &sides.trust).unwrap();
        assert_eq!((peer.proxies, peer.is_limited), (2, true));
        assert!(!format!("{server:?}").contains("PRIVATE"));
    }
}

#[test]
fn only_proxies_are_delegated() {
    let grid = Grid::new();
    let trust = grid.trust();
    let host = grid.user("host");
    // Without a proxy of her own, so that another certificate of hers would have as many.
    let alice = grid.user("Alice User");
    for is_proxy in [true, false] {
        let mut acceptor = Acceptor::new(&host, &trust).unwrap();
        let mut channel = Channel::new(Side::Initiator, &alice, &trust, None, false).unwrap();
        while channel.advance().unwrap().is_none() {
            let token = std::mem::take(channel.outgoing());
            let Step::Next(answer) = acceptor.step(&token).unwrap() else {
                panic!("it is done too early");
            };
            channel.put(&answer);
        }
        let mut say = |channel: &mut Channel, content: &[u8]| {
            channel.write(content).unwrap();
            acceptor.step(&std::mem::take(channel.outgoing()))
        };
        if !channel.outgoing().is_empty() {
            // The end of the handshake of TLS 1.3, and the byte that follows it.
            let Ok(Step::Next(answer)) = say(&mut channel, b"") else {
                panic!("it is done too early");
            };
            channel.put(&answer);
            assert_eq!(content(&mut channel).unwrap(), [0]);
        }
        let Ok(Step::Next(answer)) = say(&mut channel, b"D") else {
            panic!("nothing is requested");
        };
        channel.put(&answer);
        let request = content(&mut channel).unwrap();
        let options = ProxyOptions::default();
        let der = match is_proxy {
            true => sign_request(&alice, &request, &options).unwrap(),
            false => {
                let request = X509Req::from_der(&request).unwrap();
                let mut twin = X509::builder().unwrap();
                let own = &alice.certificate;
                twin.set_version(2).unwrap();
                twin.set_serial_number(own.serial_number()).unwrap();
                twin.set_issuer_name(own.issuer_name()).unwrap();
                twin.set_subject_name(own.subject_name()).unwrap();
                twin.set_not_before(own.not_before()).unwrap();
                twin.set_not_after(own.not_after()).unwrap();
                twin.set_pubkey(&request.public_key().unwrap()).unwrap();
                let sha256 = openssl::hash::MessageDigest::sha256();
                twin.sign(&grid.authority.key, sha256).unwrap();
                twin.build().to_der().unwrap()
            }
        };
        let done = say(&mut channel, &der);
        assert_eq!(done.is_ok(), is_proxy, "{:?}", done.err());
    }
}

#[test]
fn tokens_that_are_replayed_changed_or_cut_off_are_refused() {
    let sides = Sides::new();
    let pair = || {
        let acceptor = Acceptor::new(&sides.host, &sides.trust).unwrap();
        establish(sides.initiator("data.example.org", false), acceptor)
    };
    let (mut client, mut server) = pair();
    let token = client.wrap(b"one").unwrap();
    assert_eq!(server.unwrap(&token).unwrap(), b"one");
    assert!(server.unwrap(&token).is_err());
    let (mut client, mut server) = pair();
    let first = client.wrap(b"one").unwrap();
    let second = client.wrap(b"two").unwrap();
    assert!(server.unwrap(&second).is_err());
    assert!(server.unwrap(&first).is_err());
    for at in [0, 3, 5, 20] {
        let (mut client, mut server) = pair();
        let mut token = client.wrap(b"message").unwrap();
        token[at] ^= 1;
        assert!(server.unwrap(&token).is_err(), "{at}");
        let (mut client, mut server) = pair();
        let token = client.wrap(b"message").unwrap();
        assert!(server.unwrap(&token[..at]).is_err(), "{at}");
    }
    let (_, mut server) = pair();
    assert!(server.unwrap(b"USER alice\r\n").is_err());
    let (_, mut server) = pair();
    assert!(server.unwrap(&vec![23; 300_000]).is_err());
}

#[test]
fn other_hosts_are_refused_before_anything_is_sent() {
    let sides = Sides::new();
    let host = |subject: &str, names: &[&str]| {
        let mut wanted = Wanted::new(subject);
        if !names.is_empty() {
            wanted = wanted.with(dns_names(names));
        }
        wanted.signed(Some(&sides.grid.authority))
    };
    let talk = |host: &Credential, expected: Expected| {
        let mut client = Initiator::new(&sides.proxy, &sides.trust, expected, true).unwrap();
        let mut server = Acceptor::new(host, &sides.trust).unwrap();
        let Step::Next(hello) = client.step(&[]).unwrap() else {
            panic!("there is no hello");
        };
        let Step::Next(flight) = server.step(&hello).unwrap() else {
            panic!("there is no flight");
        };
        let result = client.step(&flight).map(|_| ());
        if result.is_err() {
            assert!(client.step(&flight).is_err() && client.established().is_none());
        }
        result
    };
    let named = |name: &str| Expected::Host(name.to_owned());
    let plain = host("/O=Grid/CN=data.example.org", &[]);
    assert!(talk(&plain, named("data.example.org")).is_ok());
    assert!(talk(&plain, named("DATA.example.org")).is_ok());
    assert!(talk(&plain, named("other.example.org")).is_err());
    let wild = host(
        "/O=Grid/CN=data.example.org",
        &["*.example.org", "192.0.2.1"],
    );
    assert!(talk(&wild, named("any.example.org")).is_ok());
    assert!(talk(&wild, named("192.0.2.1")).is_ok());
    for other in [
        "example.org",
        "a.b.example.org",
        "192.0.2.2",
        "any.example.com",
    ] {
        assert!(talk(&wild, named(other)).is_err(), "{other}");
    }
    // With alternative names the common name doesn't count.
    let moved = host("/O=Grid/CN=data.example.org", &["other.example.org"]);
    assert!(talk(&moved, named("data.example.org")).is_err());
    let subject = |name: &str| Expected::Subject(name.to_owned());
    assert!(talk(&moved, subject("/O=Grid/CN=data.example.org")).is_ok());
    assert!(talk(&moved, subject("/O=Grid/CN=data.example.or")).is_err());
    // Another authority.
    let fake = Wanted::new("/O=Grid/CN=data.example.org").signed(Some(&Grid::new().authority));
    assert!(talk(&fake, named("data.example.org")).is_err());
}

#[test]
fn garbage_of_any_length_is_refused() {
    let sides = Sides::new();
    let acceptor = || Acceptor::new(&sides.host, &sides.trust).unwrap();
    for length in [0, 1, 4, 5, 6, 100, 16_500, 300_000] {
        for byte in [0, 22, 0x80, 0xff] {
            let mut acceptor = acceptor();
            assert!(
                acceptor.step(&vec![byte; length]).is_err(),
                "{length} of {byte}"
            );
            assert!(acceptor.step(&[]).is_err());
            assert!(acceptor.established().is_none());
        }
    }
    // A hello in pieces, and one with something behind it.
    let Step::Next(hello) = sides.initiator("x", true).step(&[]).unwrap() else {
        panic!("there is no hello");
    };
    for end in 0..hello.len() {
        assert!(acceptor().step(&hello[..end]).is_err(), "{end}");
    }
    let mut initiator = sides.initiator("x", true);
    initiator.step(&[]).unwrap();
    assert!(initiator.step(b"\x16\x03\x03\x00\x05garbage").is_err());
}

#[test]
fn peers_without_a_certificate_or_with_tls_1_1_are_refused() {
    let sides = Sides::new();
    for version in [SslVersion::TLS1_1, SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let mut builder = SslContext::builder(SslMethod::tls_client()).unwrap();
        builder.set_security_level(0);
        builder.set_min_proto_version(Some(version)).unwrap();
        builder.set_max_proto_version(Some(version)).unwrap();
        let ssl = Ssl::new(&builder.build()).unwrap();
        let mut client = openssl::ssl::SslStream::new(ssl, Pipe::default()).unwrap();
        let mut acceptor = Acceptor::new(&sides.host, &sides.trust).unwrap();
        let mut refused = false;
        for _ in 0..5 {
            let shaken = client.connect();
            if let Err(error) = &shaken
                && error.code() != ErrorCode::WANT_READ
            {
                break;
            }
            let sent = std::mem::take(&mut client.get_mut().outgoing);
            match acceptor.step(&sent) {
                Ok(Step::Next(token) | Step::Done(token)) => {
                    client.get_mut().incoming.extend(token);
                }
                Err(_) => {
                    refused = true;
                    break;
                }
            }
        }
        assert!(refused, "{version:?}");
        assert!(acceptor.established().is_none());
    }
}

/// A stranger can't have the acceptor compute in a group of 8192 bits: a tenth of a second.
#[test]
fn large_groups_are_refused() {
    let sides = Sides::new();
    for (group, is_taken) in [("ffdhe8192", false), ("ffdhe2048", false), ("P-384", true)] {
        let mut builder = SslContext::builder(SslMethod::tls_client()).unwrap();
        builder.set_groups_list(group).unwrap();
        let ssl = Ssl::new(&builder.build()).unwrap();
        let mut client = openssl::ssl::SslStream::new(ssl, Pipe::default()).unwrap();
        let error = client.connect().unwrap_err();
        assert_eq!(error.code(), ErrorCode::WANT_READ, "{error}");
        let hello = std::mem::take(&mut client.get_mut().outgoing);
        let mut acceptor = Acceptor::new(&sides.host, &sides.trust).unwrap();
        assert_eq!(acceptor.step(&hello).is_ok(), is_taken, "{group}");
    }
}

#[derive(Debug, Default)]
pub(super) struct Pipe {
    pub(super) incoming: std::collections::VecDeque<u8>,
    pub(super) outgoing: Vec<u8>,
}

impl std::io::Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.incoming.read(buffer) {
            Ok(0) => Err(std::io::ErrorKind::WouldBlock.into()),
            read => read,
        }
    }
}

impl std::io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.outgoing.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Carries bytes in pieces until nothing is left. Returns what the acceptor got.
fn carry(
    opened: &mut DataContext,
    accepted: &mut DataContext,
    message: &[u8],
    piece: usize,
) -> Vec<u8> {
    let (mut sent, mut got) = (0, Vec::new());
    let mut buffer = [0; 1000];
    for _ in 0..1_000_000 {
        sent += opened.write(&message[sent..]).unwrap();
        let mut has_moved = false;
        let (there, back) = (opened.outgoing(), accepted.outgoing());
        let there: Vec<u8> = there.drain(..there.len().min(piece)).collect();
        let back: Vec<u8> = back.drain(..back.len().min(piece)).collect();
        has_moved |= !there.is_empty() || !back.is_empty();
        let (mut there, mut back) = (&there[..], &back[..]);
        while !there.is_empty() || !back.is_empty() {
            accepted.receive(&mut there).unwrap().unwrap();
            opened.receive(&mut back).unwrap().unwrap();
            while let Some(read @ 1..) = accepted.read(&mut buffer).unwrap() {
                got.extend_from_slice(&buffer[..read]);
            }
        }
        if sent == message.len() && !has_moved {
            return got;
        }
    }
    panic!("it doesn't end");
}

#[test]
fn data_moves_in_pieces_of_any_size() {
    let sides = Sides::new();
    let message: Vec<u8> = (0..20_000u32).map(|n| (n % 253) as u8).collect();
    for seals in [true, false] {
        for piece in [1, 2, 7, 1000, 1 << 20] {
            let context = |role| {
                let alice = "/O=Grid/CN=Alice User";
                DataContext::new(role, &sides.proxy, &sides.trust, alice, seals).unwrap()
            };
            let mut opened = context(Role::Opened);
            let mut accepted = context(Role::Accepted);
            let got = carry(&mut opened, &mut accepted, &message, piece);
            assert_eq!(got, message, "{seals} {piece}");
            // The other way.
            let got = carry(&mut accepted, &mut opened, &message, piece);
            assert_eq!(got, message, "{seals} {piece}");
            assert_eq!(opened.is_passed(), !seals);
            opened.close();
            let end = std::mem::take(opened.outgoing());
            accepted.receive(&mut &end[..]).unwrap().unwrap();
            let read = accepted.read(&mut [0; 10]).unwrap();
            assert_eq!(read, seals.then_some(0));
        }
    }
}

#[test]
fn data_that_is_cut_off_within_a_record_is_noticed() {
    let sides = Sides::new();
    let context = |role| {
        let alice = "/O=Grid/CN=Alice User";
        DataContext::new(role, &sides.proxy, &sides.trust, alice, true).unwrap()
    };
    let (mut opened, mut accepted) = (context(Role::Opened), context(Role::Accepted));
    assert!(!accepted.is_between_records());
    carry(&mut opened, &mut accepted, b"message", 1 << 20);
    assert!(accepted.is_between_records());
    opened.write(&[7; 40_000]).unwrap();
    let mut whole = 0;
    for byte in std::mem::take(opened.outgoing()) {
        accepted.receive(&mut &[byte][..]).unwrap().unwrap();
        while let Some(1..) = accepted.read(&mut [0; 20_000]).unwrap() {}
        whole += usize::from(accepted.is_between_records());
    }
    // Records of at most 16 KiB.
    assert_eq!(whole, 3);
    assert!(accepted.is_between_records());
}

#[test]
fn data_of_somebody_else_is_refused() {
    let sides = Sides::new();
    let alice = "/O=Grid/CN=Alice User";
    let bob = make_proxy(&sides.grid.user("Bob"), &ProxyOptions::default()).unwrap();
    for (who, subject) in [
        (&bob, alice),
        (&sides.host, alice),
        (&sides.proxy, "/O=Grid/CN=Bob"),
    ] {
        for (role, other) in [
            (Role::Opened, Role::Accepted),
            (Role::Accepted, Role::Opened),
        ] {
            let new = |role, who, subject| DataContext::new(role, who, &sides.trust, subject, true);
            let mut strange = new(role, who, alice).unwrap();
            let mut own = new(other, &sides.proxy, subject).unwrap();
            let refused = (0..10).any(|_| {
                let there = std::mem::take(strange.outgoing());
                let is_refused = own.receive(&mut &there[..]).unwrap().is_err();
                let back = std::mem::take(own.outgoing());
                let _ = strange.receive(&mut &back[..]);
                is_refused
            });
            assert!(refused && !own.is_open());
            assert_eq!(own.write(b"secret").unwrap(), 0);
        }
    }
}

#[test]
fn what_is_no_tls_is_called_so() {
    let sides = Sides::new();
    for seals in [true, false] {
        let alice = "/O=Grid/CN=Alice User";
        let new = DataContext::new(Role::Accepted, &sides.proxy, &sides.trust, alice, seals);
        let mut own = new.unwrap();
        let said = own.receive(&mut &b"GET / HTTP/1.1\r\n\r\n"[..]).unwrap();
        let fault = said.unwrap_err();
        assert!(fault.cause.ends_with("the peer has sent no TLS"), "{fault}");
    }
}
