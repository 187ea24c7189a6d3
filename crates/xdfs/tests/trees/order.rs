//! The order of the system calls that move a tree with full durability, as `strace` sees it: what
//! counts as moved has names that a power cut leaves.
//!
//! A directory is set once all that is in it counts as moved. So what makes their names durable
//! has to be seen in between. A test runs itself once more under `strace`, in the part of
//! `act_alone`, and reads what that wrote.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use xdfs::{Client, Durability, SyncOptions, TreeEvent, TreeOptions};

use crate::scene::{down, up};
use crate::support::{Folders, Serving, client};

/// Which way the process under `strace` moves the tree, and the directory that it works in.
const PART: &str = "XDFS_TEST_PART";
const DIR: &str = "XDFS_TEST_DIR";

const FILES: usize = 3;

/// What of a system call matters here. Calls of other threads may come between begin and end.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A file or a directory has its name.
    Named,
    /// A thread makes the file system durable, with all that was there when it began.
    SyncBegins(String),
    SyncEnds(String),
    /// A directory gets its times.
    DirectorySet,
}

/// Moves a tree. Only run by [`steps_of`].
#[test]
#[ignore = "a part of the other tests"]
fn act_alone() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    let server = Serving::start(&dir.join("root"), |_| {});
    let client = client(server.addr, |_| {});
    let options = TreeOptions {
        durability: Durability::Full,
        ..TreeOptions::default()
    };
    let here = dir.join("here/tree");
    let part = std::env::var(PART).unwrap();
    if let Some(part) = part.strip_prefix("sync-") {
        return sync_twice(&client, part, &here);
    }
    let moved = match part.as_str() {
        "up" => up(&client, &here, "/tree", &options),
        "down" => down(&client, "/tree", &here, &options),
        part => panic!("{part}"),
    };
    let (result, failed) = moved.unwrap();
    assert_eq!((result.files, failed), (FILES as u64, vec![]));
}

/// Synchronises a tree without making it durable, and again.
fn sync_twice(client: &Client, part: &str, here: &Path) {
    for durability in [Durability::None, Durability::Batch] {
        let options = SyncOptions {
            tree: TreeOptions {
                durability,
                ..TreeOptions::default()
            },
            ..SyncOptions::default()
        };
        let mut watch = |_: TreeEvent<'_>| ControlFlow::Continue(());
        let result = match part {
            "up" => client.sync_to(here, b"/tree", &options, &mut watch),
            "down" => client.sync_from(b"/tree", here, &options, &mut watch),
            part => panic!("{part}"),
        };
        let tree = result.unwrap().tree;
        let is_first = durability == Durability::None;
        let files = if is_first { FILES as u64 } else { 0 };
        assert_eq!((tree.files, tree.failed), (files, 0));
    }
}

/// Has a tree moved in `dir`, and returns the steps. `None` if there is no `strace` here.
fn steps_of(part: &str, dir: &Path) -> Option<Vec<Step>> {
    let log = dir.join("strace");
    let status = Command::new("strace")
        .args(["-f", "-s", "64", "-o"])
        .arg(&log)
        .args(["-e", "signal=none", "-e"])
        .arg("trace=linkat,mkdir,mkdirat,rename,renameat,renameat2,syncfs,utimensat")
        .arg(std::env::current_exe().expect("a program that runs"))
        .args(["--exact", "order::act_alone", "--ignored", "--nocapture"])
        .env(PART, part)
        .env(DIR, dir)
        .output();
    let Ok(output) = status else {
        xdfs_testkit::skip::test("there is no strace here");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("Operation not permitted") && !log.exists() {
        xdfs_testkit::skip::test("strace may not trace here");
        return None;
    }
    assert!(output.status.success(), "{text}");
    let log = std::fs::read_to_string(&log).expect("strace wrote it");
    Some(log.lines().flat_map(steps).collect())
}

/// Reads a line as `123 syncfs(5) = 0`, or its beginning or its end, where those of another thread
/// came between.
fn steps(line: &str) -> Vec<Step> {
    let Some((thread, line)) = line.split_once(' ') else {
        return Vec::new();
    };
    let line = line.trim_start();
    let (call, begins) = match line.strip_prefix("<... ") {
        Some(rest) => (rest.split(' ').next(), false),
        None => (line.split('(').next(), true),
    };
    let ends = !line.ends_with("<unfinished ...>");
    let is_done = ends && !line.contains(") = -1 ");
    let thread = || thread.to_owned();
    match call {
        Some("syncfs") => {
            let begun = begins.then(|| Step::SyncBegins(thread()));
            let ended = is_done.then(|| Step::SyncEnds(thread()));
            begun.into_iter().chain(ended).collect()
        }
        // A file that has no name yet is set by its descriptor.
        Some("utimensat") => {
            let is_directory = begins && line.contains("\"/proc/self/fd/");
            Vec::from_iter(is_directory.then_some(Step::DirectorySet))
        }
        Some("linkat" | "mkdir" | "mkdirat" | "rename" | "renameat" | "renameat2") => {
            Vec::from_iter(is_done.then_some(Step::Named))
        }
        // A thread has ended.
        _ => Vec::new(),
    }
}

/// The folder of a tree that is to be moved there.
fn place(folders: &Folders, source: &str) -> PathBuf {
    let root = folders.root();
    let dir = root.parent().expect("the folder of both");
    std::fs::create_dir_all(dir.join(source)).unwrap();
    for n in 0..FILES {
        std::fs::write(dir.join(source).join(format!("f{n}")), [n as u8; 100]).unwrap();
    }
    dir.to_owned()
}

/// Nothing is left to do for the second synchronisation, and the first made nothing durable, as one
/// that was killed before its end.
#[test]
fn what_is_there_already_is_durable_at_the_end() {
    for (part, source) in [("sync-up", "here/tree/d"), ("sync-down", "root/tree/d")] {
        let folders = Folders::new(32);
        let dir = place(&folders, source);
        let Some(steps) = steps_of(part, &dir) else {
            return;
        };
        let count = |wanted: fn(&Step) -> bool| steps.iter().filter(|s| wanted(s)).count();
        assert!(
            count(|step| *step == Step::Named) >= FILES,
            "{part}: {steps:#?}"
        );
        let synced = count(|step| matches!(step, Step::SyncEnds(_)));
        assert_eq!(synced, 1, "{part}: {steps:#?}");
    }
}

#[test]
fn what_counts_as_moved_has_names_that_are_durable() {
    for (part, source) in [("up", "here/tree/d"), ("down", "root/tree/d")] {
        let folders = Folders::new(31);
        let dir = &place(&folders, source);
        let Some(steps) = steps_of(part, dir) else {
            return;
        };
        let (mut named, mut durable, mut set) = (0, 0, 0);
        let mut begun = BTreeMap::new();
        for step in &steps {
            match step {
                Step::Named => named += 1,
                Step::SyncBegins(thread) => {
                    begun.insert(thread, named);
                }
                Step::SyncEnds(thread) => durable = durable.max(begun[thread]),
                Step::DirectorySet => {
                    assert_eq!(durable, named, "{part}: set too soon: {steps:#?}");
                    set += 1;
                }
            }
        }
        // It saw what it had to see: the files, and the two directories.
        assert!(named >= FILES + 2 && set >= 2, "{part}: {steps:#?}");
    }
}
