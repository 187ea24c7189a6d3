//! Files of a tree are read as they were listed, and proved by what the server says afterwards.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fake::{Fake, SIZE, content};
use crate::places::xdfs;
use crate::stage::{Stage, assert_bytes, outcome, run};

const EXTENDED: &str = " MLST Type*;Size*;Modify*;\r\n PARALLEL\r\n";
const SUMS: &str = " MLST Type*;Size*;Modify*;\r\n PARALLEL\r\n CKSM MD5:10;\r\n";
/// The time that the server tells of every file.
const TIME: &str = "20260102030405";

/// A server with one file in `/d`, of a size that it lists, and with wrong checksums. From the
/// look number `changed` on it tells a later time of the file each time.
fn server(features: &str, listed: usize, changed: usize) -> Fake {
    let looks = AtomicUsize::new(0);
    Fake::start(features, move |verb, argument, talk| match verb {
        "MLSD" => {
            let row = format!("Type=file;Size={listed};Modify={TIME}; f\r\n");
            talk.send(row.as_bytes());
            true
        }
        "MLST" if argument.ends_with("/f") => {
            let looks = looks.fetch_add(1, Ordering::Relaxed);
            let later = (looks + 1).saturating_sub(changed);
            let time = TIME.parse::<usize>().unwrap() + later;
            let facts = format!("Type=file;Size={SIZE};Modify={time};");
            talk.say(&format!("250-it\r\n {facts} {argument}\r\n250 End\r\n"))
        }
        "CKSM" => talk.say("213 00000000000000000000000000000000\r\n"),
        _ => false,
    })
}

fn count(fake: &Fake, command: &str) -> usize {
    let commands = fake.commands();
    commands.iter().filter(|line| *line == command).count()
}

#[test]
fn a_listed_file_is_looked_at_once_and_after_it_has_come() {
    let stage = Stage::open(96, &[]);
    let fake = server(EXTENDED, SIZE, usize::MAX);
    let (url, path) = (fake.url("/d"), stage.here("d").display().to_string());
    let words = ["cp", "-r", "--retries=0", "--insecure", &url, &path];
    run(&mut xdfs(&stage, &words));
    assert_bytes(&stage.here("d/f"), &content());
    let commands = fake.commands();
    let at = |wanted: &str| commands.iter().position(|line| line == wanted);
    assert_eq!(count(&fake, "MLST /d/f"), 1, "{commands:?}");
    assert!(at("RETR /d/f") < at("MLST /d/f"), "{commands:?}");
}

#[test]
fn a_file_that_has_grown_since_it_was_listed_comes_whole() {
    let stage = Stage::open(96, &[]);
    let fake = server(EXTENDED, SIZE / 2, usize::MAX);
    let (url, path) = (fake.url("/d"), stage.here("d").display().to_string());
    let words = ["cp", "-r", "--retries=2", "--insecure", &url, &path];
    run(&mut xdfs(&stage, &words));
    assert_bytes(&stage.here("d/f"), &content());
}

#[test]
fn a_file_that_changes_while_it_is_read_is_not_taken() {
    let stage = Stage::open(96, &[]);
    let fake = server(EXTENDED, SIZE, 0);
    let (url, path) = (fake.url("/d"), stage.here("d").display().to_string());
    let words = ["cp", "-r", "--retries=0", "--insecure", &url, &path];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(
        !succeeded && text.contains("its size or its time has changed"),
        "{text}"
    );
    assert!(!stage.here("d/f").exists());
}

#[test]
fn no_checksum_is_asked_for_with_digest_none() {
    let stage = Stage::open(96, &[]);
    for (number, what) in ["/d", "/f"].into_iter().enumerate() {
        let fake = server(SUMS, SIZE, usize::MAX);
        let target = stage.here(&format!("{number}"));
        let (url, path) = (fake.url(what), target.display().to_string());
        let words = ["cp", "-r", "--retries=0", "--insecure", &url, &path];
        let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
        assert!(!succeeded && text.contains("MD5"), "{what}: {text}");
        let words = [&words[..], &["--digest=none"]].concat();
        let before = fake.commands().len();
        run(&mut xdfs(&stage, &words));
        let found = if what == "/d" {
            target.join("f")
        } else {
            target
        };
        assert_bytes(&found, &content());
        let commands = &fake.commands()[before..];
        let asks = commands.iter().any(|line| line.starts_with("CKSM"));
        assert!(!asks, "{what}: {commands:?}");
    }
    // Then size and time have to stay the same.
    let fake = server(SUMS, SIZE, 1);
    let (url, path) = (fake.url("/f"), stage.here("changed").display().to_string());
    let words = [
        "cp",
        "--retries=0",
        "--insecure",
        "--digest=none",
        &url,
        &path,
    ];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(
        !succeeded && text.contains("its size or its time has changed"),
        "{text}"
    );
}
