//! Servers with which bytes could be lost: damaged, mixed, half stored, taken for missing.

use std::fs;
use std::io::Read as _;

use crate::fake::{Fake, SIZE, content};
use crate::places::xdfs;
use crate::stage::{Stage, outcome};

const MLST: &str = " MLST Type*;Size*;Modify*;\r\n";
const CKSM: &str = " MLST Type*;Size*;Modify*;\r\n CKSM MD5:10;\r\n";

#[test]
fn damaged_bytes_are_never_published() {
    let stage = Stage::open(100, &[]);
    // MD5 of something else.
    let fake = Fake::start(CKSM, |verb, _, talk| {
        if verb == "CKSM" {
            talk.say("213 00000000000000000000000000000000\r\n");
        }
        verb == "CKSM"
    });
    let (url, target) = (fake.url("/f"), stage.here("file"));
    let path = target.display().to_string();
    for retries in ["--retries=1", "--retries=0"] {
        let words = ["cp", retries, "--insecure", &url, &path];
        let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
        assert!(!succeeded && text.contains("MD5 is 0000"), "{text}");
        assert!(!target.exists());
    }
    let commands = fake.commands();
    let reads = commands.iter().filter(|line| line.starts_with("RETR"));
    assert_eq!(reads.count(), 3, "{commands:?}");
}

/// A server that keeps half of what is stored, and computes no checksum although it says so.
fn halving() -> Fake {
    Fake::start(CKSM, |verb, argument, talk| {
        match verb {
            "STOR" => {
                talk.say("150 now\r\n");
                let mut all = Vec::new();
                talk.data().read_to_end(&mut all).unwrap();
                talk.say("226 done\r\n");
            }
            "MLST" if argument.ends_with("ftp-part") => {
                let facts = format!("Type=file;Size={};", SIZE / 2);
                talk.say(&format!("250-it\r\n {facts} {argument}\r\n250 End\r\n"));
            }
            "MLST" if argument != "/d" => {
                talk.say("550 No such file\r\n");
            }
            "CKSM" => {
                talk.say("504 no\r\n");
            }
            "MKD" | "RNTO" | "DELE" => {
                talk.say("250 fine\r\n");
            }
            _ => return false,
        }
        true
    })
}

#[test]
fn half_a_file_is_not_published() {
    let stage = Stage::open(101, &[]);
    fs::create_dir(stage.here("tree")).unwrap();
    for number in 0..3 {
        fs::write(stage.here("tree").join(format!("f{number}")), content()).unwrap();
    }
    for (from, to) in [("tree/f0", "/f"), ("tree", "/d/t")] {
        let fake = halving();
        let (from, to) = (stage.here(from).display().to_string(), fake.url(to));
        let words = ["cp", "-r", "--retries=0", "--insecure", &from, &to];
        let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
        assert!(!succeeded && text.contains("bytes are stored"), "{text}");
        let commands = fake.commands();
        let count = |verb: &str| commands.iter().filter(|c| c.starts_with(verb)).count();
        assert_eq!(count("RNTO"), 0, "{commands:?}");
        // What is no file of anyone goes away.
        assert!(count("STOR") > 0, "{commands:?}");
        assert_eq!(count("DELE"), count("STOR"), "{commands:?}");
        let mut hidden: Vec<_> = commands.iter().filter(|c| c.starts_with("STOR")).collect();
        hidden.dedup();
        assert_eq!(hidden.len(), count("STOR"), "{commands:?}");
    }
}
