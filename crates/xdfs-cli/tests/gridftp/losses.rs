//! Servers with which bytes could be lost: damaged, mixed, half stored, taken for missing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Mutex;

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

#[test]
fn what_a_refusal_leaves_open_is_neither_missing_nor_removed() {
    let stage = Stage::open(102, &[]);
    fs::create_dir(stage.here("tree")).unwrap();
    fs::write(stage.here("tree/f"), content()).unwrap();
    for refusal in ["550 Failed.", "450 later", "501 what", "553 not that"] {
        let fake = Fake::start(MLST, move |verb, argument, talk| {
            match verb {
                "MLST" | "DELE" if argument.ends_with("/f") => {
                    talk.say(&format!("{refusal}\r\n"));
                }
                "CWD" => {
                    talk.say("250 fine\r\n");
                }
                "MLSD" => talk.send(b"Type=file;Size=3; f\r\n"),
                _ => return false,
            }
            true
        });
        let from = stage.here("tree").display().to_string();
        let file = stage.here("tree/f").display().to_string();
        for words in [
            ["cp", "-r", &from, &fake.url("/d")],
            ["cp", "-v", &file, &fake.url("/d/f")],
            ["rm", "-f", "--json", &fake.url("/d/f")],
        ] {
            let more = match words[0] {
                "cp" => "--retries=0",
                _ => "-v",
            };
            let words: Vec<_> = [&words[..], &["--insecure", more]].concat();
            let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
            assert!(!succeeded && text.contains(refusal), "{words:?}: {text}");
        }
        let commands = fake.commands();
        assert!(
            !commands.iter().any(|line| line.starts_with("RNTO")),
            "{commands:?}"
        );
    }
    // Another one lists that nothing is there.
    let fake = Fake::start(MLST, |verb, _, talk| {
        match verb {
            "DELE" => {
                talk.say("550 Failed.\r\n");
            }
            "CWD" => {
                talk.say("250 fine\r\n");
            }
            "MLSD" => talk.send(b"Type=file;Size=3; g\r\n"),
            _ => return false,
        }
        true
    });
    let words = ["rm", "-f", "--insecure", &fake.url("/d/f")];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(succeeded, "{text}");
}

#[test]
fn no_password_of_a_url_is_shown() {
    let stage = Stage::open(103, &[]);
    let fake = Fake::start(MLST, |_, _, _| false);
    let url = format!("ftp://me:S3CRET@{}/f", fake.address);
    let target = stage.here("file").display().to_string();
    for words in [
        &["cp", "-f", "-v", &url, &target][..],
        &["cp", "-f", "--json", &url, &target],
        &["ls", "--json", &url],
        &["stat", "--json", &url],
        &["sum", "--json", &url],
        &["find", "--json", &url],
        &["rm", "--json", &url],
        &["mkdir", "--json", &url],
        &["sync", "--json", &url, &target],
        &["cat", &url.replace("ftp:", "gsiftp:")],
        &["cat", &url.replace("ftp:", "FTP:")],
        &["cat", &url.replace("ftp:/", "ftp:")],
        &["cat", &url.replace("S3CRET", "S3CRET/3")],
        &["cat", &url.replace("S3CRET", "S3CRET%zz")],
    ] {
        let words = [words, &["--insecure"]].concat();
        let (_, text) = outcome(&mut xdfs(&stage, &words));
        assert!(!text.contains("S3CRET"), "{words:?}: {text}");
    }
}

#[test]
fn a_listing_is_read_once() {
    const NAMES: usize = 5000;
    let stage = Stage::open(104, &[]);
    let rows: String = (0..NAMES)
        .map(|number| format!("Type=file;Size=1; name-{number:05}\r\n"))
        .collect();
    let fake = Fake::start(MLST, move |verb, _, talk| {
        if verb == "MLSD" {
            talk.send(rows.as_bytes());
        }
        verb == "MLSD"
    });
    let (_, text) = outcome(&mut xdfs(&stage, &["ls", "--insecure", &fake.url("/d")]));
    assert_eq!(text.lines().count(), NAMES);
    let commands = fake.commands();
    let count = |verb: &str| commands.iter().filter(|c| c.starts_with(verb)).count();
    assert_eq!(count("MLSD"), 1, "{commands:?}");
    assert!(count("USER") <= 2, "{commands:?}");
}

#[test]
fn a_refused_file_fails_by_itself() {
    let stage = Stage::open(105, &[]);
    fs::create_dir(stage.here("tree")).unwrap();
    for name in ["a", "b", "bad", "c", "d", "e\nf"] {
        fs::write(stage.here("tree").join(name), content()).unwrap();
    }
    for features in [MLST, " MLST Type*;Size*;Modify*;\r\n PARALLEL\r\n"] {
        // In MODE E the connection is that of the file before.
        let kept = Mutex::new(None);
        let fake = Fake::start(features, move |verb, argument, talk| {
            match verb {
                "STOR" => {
                    talk.say("150 now\r\n");
                    let mut kept = kept.lock().unwrap();
                    let before = kept.take().filter(|_| talk.is_extended);
                    let mut data: TcpStream = before.unwrap_or_else(|| talk.data());
                    let mut all = vec![0; SIZE + if talk.is_extended { 34 } else { 0 }];
                    data.read_exact(&mut all).unwrap();
                    *kept = Some(data);
                    let is_bad = argument.contains("/.bad.");
                    talk.say(match is_bad {
                        true => "553 not this one\r\n",
                        false => "226 done\r\n",
                    });
                }
                // Of a hidden file, its size.
                "MLST" if argument.ends_with("ftp-part") => return false,
                "MLST" if argument != "/d" => {
                    talk.say("550 No such file\r\n");
                }
                "MKD" | "RNTO" | "DELE" => {
                    talk.say("250 fine\r\n");
                }
                "RNFR" => {
                    talk.say("350 to\r\n");
                }
                _ => return false,
            }
            true
        });
        let (from, to) = (stage.here("tree").display().to_string(), fake.url("/d/t"));
        let words = ["cp", "-r", "--retries=0", "--insecure", &from, &to];
        let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
        assert!(!succeeded && text.contains("not this one"), "{text}");
        assert!(text.contains("end of a line"), "{text}");
        let commands = fake.commands();
        for name in ["a", "b", "c", "d"] {
            let wanted = format!("RNTO /d/t/{name}");
            assert!(commands.contains(&wanted), "{name}: {commands:?}");
        }
        assert!(!commands.iter().any(|line| line == "RNTO /d/t/bad"));
        let is_removed = |line: &&String| line.starts_with("DELE /d/t/.bad.");
        assert_eq!(commands.iter().filter(is_removed).count(), 1);
    }
}

#[test]
fn a_server_that_drops_bytes_gets_no_name_with_them() {
    let stage = Stage::open(106, &[]);
    let fake = Fake::start(MLST, |verb, argument, talk| {
        let drops = verb == "CWD" && argument.starts_with("./");
        if drops {
            talk.say("250 fine\r\n");
        }
        drops
    });
    let words = ["rm", "--insecure", &fake.url("/d/%C3%B6b")];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && text.contains("not ASCII"), "{text}");
    let commands = fake.commands();
    assert!(
        !commands.iter().any(|line| line.starts_with("DELE")),
        "{commands:?}"
    );
}

#[test]
fn the_beginning_of_a_listing_is_not_the_whole() {
    let stage = Stage::open(110, &[]);
    let local = stage.here("local");
    fs::create_dir(&local).unwrap();
    for name in ["shown", "not-shown"] {
        fs::write(local.join(name), content()).unwrap();
    }
    // As pure-ftpd does beyond the number of names that it is set to.
    let fake = Fake::start(MLST, |verb, _, talk| {
        if verb == "MLSD" {
            talk.say("150 now\r\n");
            let row = format!("Type=file;Size={SIZE};Modify=20260102030405; shown\r\n");
            talk.data().write_all(row.as_bytes()).unwrap();
            talk.say("226-Options: -a -l\r\n226 Output truncated to 1 matches\r\n");
        }
        verb == "MLSD"
    });
    let (url, local) = (fake.url("/d"), local.display().to_string());
    for words in [
        &["ls", "--insecure", &url][..],
        &["cp", "-r", "--retries=0", "--insecure", &url, &local],
        &["sync", "--delete", "-f", "--insecure", &url, &local],
    ] {
        let (succeeded, text) = outcome(&mut xdfs(&stage, words));
        assert!(
            !succeeded && text.contains("truncated"),
            "{words:?}: {text}"
        );
    }
    assert!(stage.here("local/not-shown").exists());
}

#[test]
fn small_files_are_looked_at_again() {
    let stage = Stage::open(111, &[]);
    for features in [MLST, CKSM] {
        let looks = Mutex::new(0);
        let fake = Fake::start(features, move |verb, argument, talk| {
            match verb {
                "MLSD" => talk.send(b"Type=file;Size=1000; f\r\n"),
                "MLST" if argument.ends_with("/f") => {
                    let mut looks = looks.lock().unwrap();
                    *looks += 1;
                    let facts = format!("Type=file;Size={SIZE};Modify=2026010203{looks:04};");
                    talk.say(&format!("250-it\r\n {facts} {argument}\r\n250 End\r\n"));
                }
                "CKSM" => {
                    talk.say("504 no\r\n");
                }
                _ => return false,
            }
            true
        });
        let (url, target) = (fake.url("/d"), stage.here("copy"));
        let to = target.display().to_string();
        let words = ["cp", "-r", "--retries=0", "--insecure", &url, &to];
        let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
        assert!(!succeeded && text.contains("changed meanwhile"), "{text}");
        assert!(!target.join("f").exists() && !target.join("d/f").exists());
    }
}

/// The time of this machine in seconds, as FTP writes it.
fn now() -> String {
    let date = Command::new("date").args(["-u", "+%Y%m%d%H%M%S"]).output();
    String::from_utf8(date.unwrap().stdout)
        .unwrap()
        .trim()
        .to_owned()
}

/// Within the second of its time nothing shows that a file is written again.
#[test]
fn a_file_is_read_once_its_time_is_past() {
    let stage = Stage::open(112, &[]);
    for is_written_on in [false, true] {
        let first = now();
        let fake = Fake::start(MLST, move |verb, argument, talk| {
            let time = match is_written_on {
                true => now(),
                false => first.clone(),
            };
            match verb {
                "MLSD" => talk.send(b"Type=file;Size=1000; f\r\n"),
                "MLST" if argument.ends_with("/f") => {
                    let facts = format!("Type=file;Size={SIZE};Modify={time};");
                    talk.say(&format!("250-it\r\n {facts} {argument}\r\n250 End\r\n"));
                }
                _ => return false,
            }
            true
        });
        for (from, to) in [("/f", "one"), ("/d", "tree")] {
            let (url, target) = (fake.url(from), stage.here(to));
            let to = target.display().to_string();
            let words = ["cp", "-r", "-f", "--retries=0", "--insecure", &url, &to];
            let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
            assert_eq!(succeeded, !is_written_on, "{text}");
            assert_eq!(text.contains("is being written"), is_written_on, "{text}");
        }
    }
}
