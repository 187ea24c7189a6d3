//! `xdfs xioperf`: both ends in one process, and in two.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use crate::support::{program, xdfs};

const QUICK: [&str; 6] = ["--time", "0.02", "--repeats", "2", "--sizes", "1,100K"];

/// The other end, which is ended when dropped.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn stacks_are_measured_beside_plain_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("stacks.svg");
    let stacks = [
        "--raw",
        "--stack",
        "tcp",
        "--stack",
        "tcp,tls",
        "--stack",
        "unix,zstd",
    ];
    let plot = ["--plot", picture.to_str().unwrap()];
    let run = xdfs([&["xioperf", "--json"], &stacks[..], &QUICK, &plot].concat()).ok();
    let lines = run.json();
    // Four stacks, two patterns, two sizes.
    assert_eq!(lines.len(), 16);
    for line in &lines {
        assert_eq!(
            (&line["schema"], &line["type"]),
            (&1.into(), &"stack".into()),
            "{line}"
        );
        let is_one_way = line["pattern"] == "one-way";
        assert_eq!(line["bytes_per_second"].is_object(), is_one_way, "{line}");
        assert_eq!(
            line["round_trip_seconds"].is_object(),
            !is_one_way,
            "{line}"
        );
        assert!(line["messages"].as_u64().unwrap() >= 2, "{line}");
        assert_eq!(line["ratio"].is_null(), line["stack"] == "raw", "{line}");
    }
    let drawn = std::fs::read_to_string(&picture).unwrap();
    assert!(
        drawn.starts_with("<svg") && drawn.contains("unix,zstd"),
        "{drawn}"
    );
    let table = xdfs([&["xioperf", "--raw", "--stack", "memory"], &QUICK[..]].concat()).ok();
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.contains("of raw") && table.contains("one way"),
        "{table}"
    );
}

#[test]
fn the_other_end_may_be_another_process() {
    let mut other = Other(
        program()
            .args(["xioperf", "--listen", "127.0.0.1:0", "--stack", "tcp,tls"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(other.0.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let contact = first
        .strip_prefix("listening on ")
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let second = lines.next().unwrap().unwrap();
    let pin = second.strip_prefix("fingerprint ").unwrap();
    let words = ["xioperf", "--stack", "tcp,tls", "--pin", pin, contact];
    let run = xdfs([&words[..], &QUICK].concat()).ok();
    assert!(String::from_utf8(run.stdout).unwrap().contains("tcp,tls"));
    // Another key isn't trusted, and none at all neither.
    let wrong = format!("SHA256:{}", "A".repeat(43));
    xdfs(["xioperf", "--stack", "tcp,tls", "--pin", &wrong, contact]).fails(17, &["isn't pinned"]);
    let none = xdfs(["xioperf", "--stack", "tcp,tls", contact]);
    assert_ne!(none.code, Some(0));
}

#[test]
fn what_cannot_be_measured_is_told() {
    for (words, told) in [
        (["--stack", "udp"], "order"),
        (["--stack", "nonsense"], "unknown driver 'nonsense'"),
        (["--sizes", "1G"], "64M"),
    ] {
        let run = xdfs([&["xioperf"], &words[..]].concat());
        assert_ne!(run.code, Some(0), "{words:?}");
        assert!(run.stderr.contains(told), "{words:?}: {}", run.stderr);
    }
}
