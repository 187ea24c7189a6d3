//! Ways to store a file: with a checksum that is announced, and under a new name.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use xdfs_testkit::wait;

use crate::client::{Client, EOD, EOF, block, data};
use crate::stage::{PATIENCE, Stage, assert_bytes, names};

/// The checksum of a file, as the server computes it.
fn sum(client: &mut Client, kind: &str, name: &str) -> String {
    let said = client.ask(&format!("CKSM {kind} 0 -1 {name}"), 213);
    said.split_at(4).1.to_owned()
}

/// Stores a file, and returns the last reply.
fn store(client: &mut Client, command: &str, content: &[u8]) -> (u16, String) {
    let mut stream = data(client.passive());
    client.ask(command, 150);
    stream.write_all(content).unwrap();
    drop(stream);
    client.reply().unwrap()
}

#[test]
fn a_file_that_differs_from_its_announced_checksum_is_not_published() {
    let stage = Stage::open(90, &[]);
    let content = Stage::make(&stage.root("model"), 9_000_000);
    let mut client = Client::log_in(&stage);
    for kind in [
        "MD5",
        "ADLER32",
        "CRC32",
        "CRC64NVME",
        "SHA1",
        "SHA256",
        "SHA512",
        "BLAKE3",
    ] {
        let digits = sum(&mut client, kind, "model");
        client.ask(&format!("SCKS {kind} {}", digits.to_uppercase()), 200);
        // It is for the next file, and listings don't matter.
        client.ask("MLST model", 250);
        assert_eq!(store(&mut client, "STOR new", &content).0, 226, "{kind}");
        assert_bytes(&stage.root("new"), &content);
        // The same with one bit less, and without the end.
        for changed in [
            &[&[content[0] ^ 1], &content[1..]].concat()[..],
            &content[1..],
            b"",
        ] {
            client.ask(&format!("SCKS {kind} {digits}"), 200);
            let (code, text) = store(&mut client, "STOR new", changed);
            assert!(code == 550 && text.contains("SCKS"), "{kind}: {text}");
            assert_bytes(&stage.root("new"), &content);
        }
        // It has been used up.
        assert_eq!(store(&mut client, "STOR new", b"other").0, 226);
    }
    assert_eq!(names(&stage), ["model", "new"]);
    for (line, code) in [
        ("SCKS MD5", 501),
        ("SCKS MD5 00", 501),
        ("SCKS ADLER32 0000000g", 501),
        ("SCKS ROT13 00000000", 504),
        ("SCKS ADLER32 00000001", 200),
        // It can't be kept for what is changed in place.
        ("APPE new", 504),
        ("SCKS ADLER32 00000001", 200),
        ("ESTO A 0 new", 504),
    ] {
        client.ask(line, code);
    }
    assert_eq!(store(&mut client, "APPE new", b"!").0, 226);
    assert_bytes(&stage.root("new"), b"other!");
}

#[test]
fn checksums_are_compared_in_any_order_of_blocks() {
    let stage = Stage::open(91, &[]);
    let content = Stage::make(&stage.root("model"), 1_000_000);
    let mut client = Client::log_in(&stage);
    let digits = sum(&mut client, "MD5", "model");
    client.ask("MODE E", 200);
    let mut put = |flipped: u8| {
        client.ask(&format!("SCKS MD5 {digits}"), 200);
        let mut stream = data(client.passive());
        client.ask("STOR new", 150);
        for (number, piece) in content.chunks(70_000).enumerate().rev() {
            let mut piece = piece.to_vec();
            piece[7] ^= flipped;
            let bytes = block(0, piece.len() as u64, number as u64 * 70_000, &piece);
            stream.write_all(&bytes).unwrap();
        }
        stream.write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
        let mut replies = std::iter::from_fn(|| client.reply());
        replies.find(|(code, _)| *code > 200).unwrap().0
    };
    assert_eq!(put(1), 550);
    assert_eq!(names(&stage), ["model"]);
    assert_eq!(put(0), 226);
    assert_bytes(&stage.root("new"), &content);
}

#[test]
fn a_unique_name_is_told_and_is_new() {
    let stage = Stage::open(92, &[]);
    let mut client = Client::log_in(&stage);
    client.ask("MKD d", 257);
    client.ask("CWD d", 250);
    let mut told = Vec::new();
    for command in ["STOU", "STOU", "STOU log", "STOU /top"] {
        let mut stream = data(client.passive());
        let said = client.ask(command, 150);
        let path = said.strip_prefix("150 FILE: /").unwrap().to_owned();
        stream.write_all(path.as_bytes()).unwrap();
        drop(stream);
        client.expect(226);
        assert_bytes(&stage.root(&path), path.as_bytes());
        told.push(path);
    }
    assert!(
        told[0].starts_with("d/stou.") && told[1].starts_with("d/stou."),
        "{told:?}"
    );
    assert!(
        told[2].starts_with("d/log.") && told[3].starts_with("top."),
        "{told:?}"
    );
    assert_ne!(told[0], told[1]);
    // Its checksum counts too, and so does its end.
    client.ask("SCKS ADLER32 00000001", 200);
    assert_eq!(store(&mut client, "STOU", b"something").0, 550);
    let stream = data(client.passive());
    client.ask("STOU", 150);
    client.send(b"ABOR\r\n");
    client.expect(426);
    client.expect(226);
    drop(stream);
    assert_eq!(fs::read_dir(stage.root("d")).unwrap().count(), 3);
    client.ask("SBUF 100000", 200);
    client.ask("ABUF", 200);
}

#[test]
fn status_is_told_during_a_transfer() {
    let stage = Stage::open(93, &[]);
    let content = Stage::make(&stage.root("big"), 30_000_000);
    let mut client = Client::log_in(&stage);
    client.ask("STAT", 211);
    let mut stream = data(client.passive());
    client.ask("STOR new", 150);
    stream.write_all(b"12345").unwrap();
    // From some time on it has come. The interrupt is that of RFC 959.
    assert!(wait::until(PATIENCE, || {
        client.send(b"\xff\xf4\xff\xf2STAT\r\n");
        client.expect(211).contains(" 5 bytes")
    }));
    // Nothing overtakes a command that waits.
    client.send(b"NOOP\r\nSTAT\r\n");
    drop(stream);
    client.expect(226);
    client.expect(200);
    assert!(client.expect(211).contains("no transfer"));
    // A client that reads nothing for a while, and asks.
    let mut stream: TcpStream = data(client.passive());
    client.ask("RETR big", 150);
    client.ask("STAT", 211);
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen).unwrap();
    client.expect(226);
    assert!(seen == content);
}
