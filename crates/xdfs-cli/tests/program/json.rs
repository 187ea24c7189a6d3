//! The JSON lines of a real copy, against docs/json.md.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use xdfs_testkit::nobody::is_root;
use xdfs_testkit::skip;
use xdfs_testkit::wait::until;

use crate::support::{Place, Run, Running, Server, content, program, time_shares, xdfs};

#[track_caller]
fn has(object: &Value, fields: &[&str]) {
    for field in fields {
        assert!(
            object.get(field).is_some(),
            "{field} is missing in {object}"
        );
    }
}

#[test]
fn a_copy_tells_progress_a_file_and_one_result() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("file", &content(1, 20 << 20));
    let url = server.url("/file");
    let run = xdfs([
        "cp",
        "--json",
        "-n",
        "2",
        "--limit-rate",
        "10M",
        &source,
        &url,
    ])
    .ok();
    let objects = run.json();
    assert!(objects.iter().all(|object| object["schema"] == 1));
    let of = |kind: &str| {
        objects
            .iter()
            .filter(|o| o["type"] == kind)
            .collect::<Vec<_>>()
    };
    let (progress, files, results) = (of("progress"), of("file"), of("result"));
    assert!(!progress.is_empty());
    assert_eq!((files.len(), results.len(), of("error").len()), (1, 1, 0));
    let places = [
        "source",
        "target",
        "bytes",
        "seconds",
        "bytes_per_second",
        "channels",
    ];
    for object in progress {
        has(object, &places);
        has(object, &["bytes_total", "resumed_bytes"]);
        assert_eq!(object["bytes_total"], 20 << 20);
    }
    for object in [files[0], results[0]] {
        has(object, &places);
        has(
            object,
            &[
                "resumed_bytes",
                "retransmitted_bytes",
                "digest",
                "limited_by",
                "time_shares",
                "dry_run",
            ],
        );
        assert_eq!(object["bytes"], 20 << 20);
        assert!(time_shares(object)["rate-limit"] > 0.0, "{object}");
        assert!(object["seconds"].as_f64().unwrap() > 0.0);
    }
    has(results[0], &["files", "failed", "exit_code"]);
}

#[test]
fn a_tree_tells_how_many_files_go_without_special_bits() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = PathBuf::from(place.here("tree"));
    fs::create_dir(&source).unwrap();
    for (name, mode) in [("plain", 0o755), ("user", 0o4755), ("group", 0o2755)] {
        let path = source.join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let url = server.url("/tree");
    let source = source.to_str().unwrap();
    for (options, without) in [(&[][..], 2), (&["--owner"], 0)] {
        if without == 0 && !is_root() {
            skip::part("only a server of root gives the bits");
            continue;
        }
        let command = [&["cp", "-r", "--force", "--json"], options, &[source, &url]].concat();
        let objects = xdfs(command).ok().json();
        let tree = objects.iter().find(|o| o["type"] == "tree").unwrap();
        assert_eq!(tree["without_special_bits"], without, "{tree}");
    }
}

#[test]
fn an_error_of_the_server_has_all_its_fields() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let url = server.url("/none");
    let run = xdfs(["cp", "--json", &url, &place.here("x")]).fails(4, &["error: "]);
    let objects = run.json();
    let error = objects.iter().find(|o| o["type"] == "error").unwrap();
    assert_eq!(error["code"], "not-found");
    assert_eq!(error["side"], "remote");
    assert_eq!(
        error["machine"],
        server
            .url("")
            .trim_start_matches("xdfs://")
            .trim_end_matches('/')
    );
    assert_eq!(error["path"], "/none");
    assert_eq!(error["exit_code"], 4);
    assert_eq!(error["source"], url.as_str());
    has(
        error,
        &[
            "operation",
            "cause",
            "hint",
            "retry",
            "retry_after_ms",
            "target",
        ],
    );
    let result = run.result();
    assert_eq!(
        (&result["failed"], &result["files"]),
        (&1.into(), &0.into())
    );
}

#[test]
fn each_file_of_a_tree_is_named_with_its_digest() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir_all(place.here("tree/sub")).unwrap();
    let contents = [
        ("a", content(1, 300)),
        ("empty", Vec::new()),
        ("sub/large one", content(2, 3 << 20)),
    ];
    for (name, bytes) in &contents {
        fs::write(format!("{}/{name}", place.here("tree")), bytes).unwrap();
    }
    let url = server.url("/up");
    let log = place.here("log");
    let tree = place.here("tree");
    let up = xdfs(["cp", "-r", "--json", "--transfer-log", &log, &tree, &url]).ok();
    // A synchronisation names only what it moves.
    fs::remove_file(place.remote("up/a")).unwrap();
    let synced = xdfs(["sync", "--json", "--transfer-log", &log, &tree, &url]).ok();
    let down = place.here("down");
    let back = xdfs(["cp", "-r", "--json", "--transfer-log", &log, &url, &down]).ok();
    let files = |run: &Run| {
        let mut files = run.json();
        files.retain(|object| object["type"] == "file");
        files.sort_by_key(|file| file["source"].to_string());
        files
    };
    let digest = |name: &str| {
        let url = server.url(&format!("/up/{name}"));
        let text = xdfs(["sum", "--digest", "crc64nvme", &url]).ok().text();
        text.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let lines = fs::read_to_string(&log).unwrap();
    assert_eq!(lines.lines().count(), 7, "{lines}");
    for run in [&up, &back] {
        let files = files(run);
        assert_eq!(files.len(), 3);
        for (file, (name, bytes)) in files.iter().zip(&contents) {
            assert!(file["source"].as_str().unwrap().ends_with(name), "{file}");
            assert!(file["target"].as_str().unwrap().ends_with(name), "{file}");
            assert_eq!(file["bytes"], bytes.len());
            let digest = digest(&name.replace(' ', "%20"));
            assert_eq!(file["digest"]["value"], digest.as_str(), "{name}");
            let line = format!("Z {} crc64nvme:{digest} ", bytes.len());
            assert!(lines.matches(&line).count() >= 2, "{line}: {lines}");
        }
    }
    let synced = files(&synced);
    assert_eq!(synced.len(), 1);
    assert!(synced[0]["source"].as_str().unwrap().ends_with("/a"));
    // For people, if they want details.
    for (flag, is_named) in [("-v", true), ("--no-resume", false)] {
        let run = xdfs(["cp", "-rf", flag, &tree, &server.url(&format!("/{flag}"))]).ok();
        let found = run.stderr.contains("sub/large one: 3.15 MB");
        assert_eq!(found, is_named, "{}", run.stderr);
    }
    let missing = place.here("no/log");
    let run = xdfs(["cp", "--transfer-log", &missing, &tree, &url]);
    run.fails(4, &["open the transfer log"]);
    let directory = place.here("");
    let run = xdfs(["cp", "--transfer-log", &directory, &tree, &url]);
    let run = run.fails(6, &["open the transfer log", "hint: name a file\n"]);
    assert!(!run.stderr.contains("target"), "{}", run.stderr);
}

/// In a directory that exists a tree keeps its name, and so do its files in every record.
#[test]
fn files_of_a_tree_are_named_where_they_are() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for tree in [place.here("src/d"), format!("{}/d", place.root().display())] {
        fs::create_dir_all(format!("{tree}/sub")).unwrap();
        fs::write(format!("{tree}/sub/small"), "small").unwrap();
        fs::write(format!("{tree}/big"), content(5, 3 << 20)).unwrap();
    }
    for directory in ["in", "beside"] {
        fs::create_dir(place.remote(directory)).unwrap();
    }
    fs::create_dir(place.here("down")).unwrap();
    let (here, there, log) = (place.here("src/d"), server.url("/d"), place.here("log"));
    for (source, target, landed) in [
        (&here, server.url("/in"), server.url("/in/d")),
        (&here, server.url("/in/"), server.url("/in/d")),
        (&here, server.url("/new"), server.url("/new")),
        (&there, place.here("down"), place.here("down/d")),
        (&there, server.url("/beside"), server.url("/beside/d")),
    ] {
        let _ = fs::remove_file(&log);
        let _ = fs::remove_dir_all(place.remote("in/d"));
        let words = ["cp", "-rf", "--no-resume", "--json", "--transfer-log", &log];
        let run = xdfs(words.iter().copied().chain([source.as_str(), &target])).ok();
        let mut found: Vec<_> = run.json();
        found.retain(|record| record["type"] == "file");
        let mut found: Vec<_> = found
            .iter()
            .map(|file| file["target"].to_string())
            .collect();
        found.sort();
        let wanted = ["big", "sub/small"].map(|name| format!("\"{landed}/{name}\""));
        assert_eq!(found, wanted);
        let lines = fs::read_to_string(&log).unwrap();
        for name in ["big", "sub/small"] {
            let end = format!(" {landed}/{name}");
            assert!(
                lines.lines().any(|line| line.ends_with(&end)),
                "{end}: {lines}"
            );
        }
    }
    // What fails too.
    let run = xdfs([
        "cp",
        "-r",
        "--no-resume",
        "--json",
        &here,
        &server.url("/beside"),
    ]);
    let run = run.fails(6, &[]);
    let mut records = run.json();
    records.retain(|record| record["type"] == "error");
    let target = |name| server.url(&format!("/beside/d/{name}"));
    for name in ["big", "sub/small"] {
        assert!(
            records.iter().any(|error| error["target"] == target(name)),
            "{records:?}"
        );
    }
}

/// A log that can't be written is a failure in all records, and not after them.
#[cfg(target_os = "linux")]
#[test]
fn a_log_that_is_full_is_in_the_result() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir(place.here("tree")).unwrap();
    for name in ["a", "b"] {
        fs::write(format!("{}/{name}", place.here("tree")), name).unwrap();
    }
    let (tree, one) = (place.here("tree"), place.here("tree/a"));
    let commands = [&["cp", &one][..], &["cp", "-r", &tree], &["sync", &tree]];
    for (number, words) in commands.into_iter().enumerate() {
        let url = server.url(&format!("/{number}"));
        let flags = ["--json", "--transfer-log", "/dev/full"];
        let run = xdfs([words, &[&url], &flags].concat());
        let run = run.fails(7, &["cannot write the transfer log '/dev/full'"]);
        assert_eq!(run.stderr.matches("error: ").count(), 1, "{}", run.stderr);
        assert_eq!(run.result()["exit_code"], 7);
        let errors = run
            .json()
            .into_iter()
            .filter(|record| record["type"] == "error");
        assert_eq!(errors.count(), 1);
    }
}

#[test]
fn what_was_transferred_is_logged_at_once() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let small = place.make_here("small", b"small");
    let large = place.make_here("large", &content(88, 60_000_000));
    let log = place.here("log");
    let mut command = program();
    // The second file takes a minute.
    command.args(["cp", "--limit-rate", "1M", "--transfer-log", &log]);
    command.args([&small, &large, &server.url("/")]);
    let mut copy = Running::start(command.stdin(Stdio::null()));
    let logged = || fs::read_to_string(&log).unwrap_or_default();
    let has_come = || logged().ends_with("/small\n");
    assert!(until(Duration::from_secs(60), has_come), "{}", logged());
    assert!(!copy.has_ended());
    copy.kill();
    assert_eq!(logged().lines().count(), 1);
}
