//! Trees that two servers copy and synchronise between themselves.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::full::Tiny;
use crate::support::{Run, Running, content, program, xdfs};
use crate::third_party::{CONNECTS, Scene};

const PATIENCE: Duration = Duration::from_secs(60);
/// Small files of a tree: more than a few packs hold.
const FILES: usize = 2000;

/// The entries of a tree: kinds, modes, times, contents and targets.
fn entries(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let look = fs::symlink_metadata(&path).unwrap();
        let kind = look.file_type();
        let content = if kind.is_dir() {
            let inside = fs::read_dir(&path).unwrap();
            left.extend(inside.map(|entry| entry.unwrap().path()));
            String::new()
        } else if kind.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            let mut hasher = DefaultHasher::new();
            fs::read(&path).unwrap().hash(&mut hasher);
            hasher.finish().to_string()
        };
        let path = path.strip_prefix(root).unwrap().to_owned();
        let (mode, time) = (look.mode(), (look.mtime(), look.mtime_nsec()));
        found.insert(path, format!("{mode:o} {time:?} {content}"));
    }
    found
}

#[track_caller]
fn assert_equal(scene: &Scene, source: &str, target: &str) {
    let source = entries(&PathBuf::from(scene.place.here("source")).join(source));
    let target = entries(&scene.copied(target));
    for (path, entry) in &source {
        assert_eq!(target.get(path), Some(entry), "{}", path.display());
    }
    assert_eq!(source.len(), target.len(), "further entries at the target");
}

/// Makes a tree with everything in it.
fn make_tree(scene: &Scene, files: usize) -> PathBuf {
    let tree = PathBuf::from(scene.place.here("source/tree"));
    for number in 0..files {
        let folder = tree.join(format!("d{}", number % 7)).join("e");
        if number < 7 {
            fs::create_dir_all(&folder).unwrap();
        }
        fs::write(
            folder.join(number.to_string()),
            content(number as u64, number % 900),
        )
        .unwrap();
    }
    fs::write(tree.join("large"), content(3, 5_000_000)).unwrap();
    symlink("d0/e/0", tree.join("link")).unwrap();
    symlink("/nowhere/else", tree.join("outside")).unwrap();
    fs::hard_link(tree.join("d1/e/1"), tree.join("d1/e/same")).unwrap();
    fs::set_permissions(tree.join("d2"), Permissions::from_mode(0o710)).unwrap();
    fs::set_permissions(tree.join("large"), Permissions::from_mode(0o604)).unwrap();
    tree
}

fn between(scene: &Scene, words: &[&str], from: &str, to: &str) -> Run {
    let places = [scene.source.url(from), scene.target.url(to)];
    xdfs(
        words
            .iter()
            .copied()
            .chain(places.iter().map(String::as_str)),
    )
}

/// The record of the tree.
#[track_caller]
fn tree(run: &Run) -> Value {
    let is_whole = |record: &Value| record["type"] == "tree" || record["type"] == "sync";
    let mut records = run.json().into_iter().filter(is_whole);
    records.next().expect("a record of the tree")
}

/// Asserts that no content went through the client: its sessions, which log in by keys, have moved
/// none at the server that doesn't act.
#[track_caller]
fn assert_straight(scene: &Scene, issues: &str) -> usize {
    let events = scene.audit(issues);
    let moves = |event: &&Value| {
        let kinds = ["download", "upload", "open", "close"];
        kinds.contains(&event["event"].as_str().unwrap())
    };
    let moved: Vec<_> = events.iter().filter(moves).collect();
    assert!(!moved.is_empty());
    for event in &moved {
        assert_eq!(event["method"], "ticket", "{event}");
    }
    moved.len()
}

#[test]
fn a_tree_goes_straight_in_packs() {
    for (flags, issues) in [
        ([&[][..], &CONNECTS], "source"),
        ([&CONNECTS[..], &[]], "target"),
    ] {
        let scene = Scene::new(flags);
        let made = make_tree(&scene, FILES);
        let words = ["cp", "-r", "--json", "--hard-links", "--between", "direct"];
        let run = between(&scene, &words, "/tree", "/copy").ok();
        assert_equal(&scene, "tree", "copy");
        let record = tree(&run);
        assert_eq!(record["way"], "direct", "{record}");
        assert_eq!(record["files"], FILES + 1);
        assert_eq!(record["failed"], 0);
        let files = run
            .json()
            .into_iter()
            .filter(|record| record["type"] == "file");
        assert_eq!(files.count(), FILES + 1);
        // A transfer for each file would be thousands of them.
        let moved = assert_straight(&scene, issues);
        assert!(moved < 60, "{moved} transfers");
        let same = fs::metadata(scene.copied("copy/d1/e/same")).unwrap();
        assert_eq!(same.nlink(), 2);
        // In a directory it keeps its name, and what is there is skipped.
        fs::create_dir(scene.copied("dir")).unwrap();
        between(&scene, &words, "/tree", "/dir").ok();
        assert_equal(&scene, "tree", "dir/tree");
        fs::write(made.join("d3/e/new"), b"new").unwrap();
        fs::remove_file(scene.copied("dir/tree/d4/e/4")).unwrap();
        let words = ["cp", "-r", "--json", "--between", "direct"];
        let record = tree(&between(&scene, &words, "/tree", "/dir").ok());
        assert_eq!(
            (&record["files"], &record["failed"]),
            (&2.into(), &0.into())
        );
        assert!(scene.copied("dir/tree/d4/e/4").exists());
    }
}

#[test]
fn what_fails_in_a_tree_is_reported_with_its_server() {
    for flags in [[&[][..], &CONNECTS], [&CONNECTS[..], &[]]] {
        let scene = Scene::new(flags);
        make_tree(&scene, 20);
        // A directory is where a file should go.
        fs::create_dir_all(scene.copied("copy/d5/e/5")).unwrap();
        let words = ["cp", "-r", "--json"];
        let run = between(&scene, &words, "/tree/", "/copy");
        let run = run.fails(6, &["d5/e/5", &scene.target.addresses[0]]);
        let record = tree(&run);
        assert_eq!(
            (&record["way"], &record["failed"]),
            (&"direct".into(), &1.into())
        );
        assert!(scene.copied("copy/d6/e/6").exists());
        between(&scene, &words, "/none", "/x").fails(4, &[&scene.source.addresses[0]]);
    }
}

#[test]
fn a_full_target_ends_a_tree_with_an_error_that_names_its_server() {
    for flags in [[&[][..], &CONNECTS], [&CONNECTS[..], &[]]] {
        let scene = Scene::new(flags);
        let Some(_full) = Tiny::mount(&scene.copied("full")) else {
            return;
        };
        make_tree(&scene, 20);
        for command in [&["cp", "-r"][..], &["sync"]] {
            let words = [command, &["--between", "direct"]].concat();
            let run = between(&scene, &words, "/tree/", "/full/copy");
            let target = format!("server {}: cannot", scene.target.addresses[0]);
            run.fails(7, &[&target, "free some space there"]);
        }
    }
}

#[test]
fn servers_that_may_not_connect_leave_a_tree_to_the_client() {
    let scene = Scene::new([&[], &[]]);
    make_tree(&scene, 50);
    let record = tree(&between(&scene, &["cp", "-r", "--json"], "/tree", "/copy").ok());
    assert_equal(&scene, "tree", "copy");
    assert_eq!(record["way"], "client");
    // The root is behind a link, which a capability for a tree doesn't follow.
    let scene = Scene::new([&[], &CONNECTS]);
    let made = make_tree(&scene, 50);
    symlink(&made, scene.place.here("source/linked")).unwrap();
    fs::create_dir(scene.place.here("source/x")).unwrap();
    symlink("../tree", scene.place.here("source/x/way")).unwrap();
    let record = tree(&between(&scene, &["cp", "-r", "--json"], "/x/way/d0", "/copy").ok());
    assert_equal(&scene, "tree/d0", "copy");
    assert_eq!(record["way"], "client");
    // So are links that are to be followed.
    let words = ["cp", "-r", "--json", "--copy-links", "--exclude", "outside"];
    let record = tree(&between(&scene, &words, "/tree", "/followed").ok());
    assert_eq!(record["way"], "client");
}

#[test]
fn a_synchronisation_goes_straight_with_filters_and_deletions() {
    for (flags, issues) in [
        ([&[][..], &CONNECTS], "source"),
        ([&CONNECTS[..], &[]], "target"),
    ] {
        let scene = Scene::new(flags);
        let made = make_tree(&scene, 300);
        let words = ["sync", "--json", "--between", "direct", "--exclude", "*9"];
        let record = tree(&between(&scene, &words, "/tree", "/copy").ok());
        assert_eq!(
            (&record["way"], &record["failed"]),
            (&"direct".into(), &0.into())
        );
        assert!(!scene.copied("copy/d2/e/9").exists());
        assert!(scene.copied("copy/d1/e/8").exists());
        fs::write(made.join("d0/e/0"), b"changed").unwrap();
        fs::remove_file(made.join("d1/e/1")).unwrap();
        fs::write(scene.copied("copy/d3/extra"), b"extra").unwrap();
        let words = [
            "sync",
            "--json",
            "--between",
            "direct",
            "--delete",
            "--max-delete",
            "9",
        ];
        let run = between(&scene, &words, "/tree", "/copy").ok();
        assert_equal(&scene, "tree", "copy");
        let record = tree(&run);
        assert_eq!(
            (&record["deleted"], &record["kept"]),
            (&2.into(), &0.into())
        );
        assert_eq!(record["replaced"], 1);
        let records = run.json();
        let steps = records.iter().filter(|record| record["type"] == "step");
        assert_eq!(steps.count(), 2);
        assert!(records.iter().any(|record| record["type"] == "deletion"));
        assert_straight(&scene, issues);
    }
}

#[test]
fn a_removal_that_needs_consent_is_asked_for_at_the_client() {
    let scene = Scene::new([&[], &CONNECTS]);
    make_tree(&scene, 30);
    between(&scene, &["sync"], "/tree", "/copy").ok();
    fs::create_dir(scene.copied("copy/more")).unwrap();
    for number in 0..150 {
        fs::write(scene.copied(&format!("copy/more/{number}")), b"x").unwrap();
    }
    let words = ["sync", "--json", "--delete"];
    let run = between(&scene, &words, "/tree", "/copy").fails(6, &["more than a tenth"]);
    assert_eq!(
        (&tree(&run)["kept"], &tree(&run)["way"]),
        (&151.into(), &"direct".into())
    );
    assert!(scene.copied("copy/more/0").exists());
    let run = between(
        &scene,
        &["sync", "--json", "--delete", "--force"],
        "/tree",
        "/copy",
    )
    .ok();
    assert_eq!(tree(&run)["deleted"], 151);
    assert_equal(&scene, "tree", "copy");
}

#[test]
fn each_of_the_three_may_die_and_the_same_command_ends_with_equal_trees() {
    for command in [&["cp", "-r"][..], &["sync", "--delete"]] {
        for victim in ["source", "target", "client"] {
            let mut scene = Scene::new([&[], &CONNECTS]);
            let made = make_tree(&scene, FILES);
            fs::write(made.join("huge"), content(5, 24_000_000)).unwrap();
            let places = [scene.source.url("/tree"), scene.target.url("/copy")];
            let mut first = program();
            first
                .args(command)
                .args(["--json", "--retries=0", "--between=direct"]);
            first.args(["--limit-rate", "8M"]).args(&places);
            let mut running = Running::start(&mut first);
            let has_begun = || {
                let there = scene.copied("copy");
                let found = fs::read_dir(there.join("d0/e")).map_or(0, Iterator::count);
                let partial = fs::read_dir(&there).into_iter().flatten().flatten();
                let mut sizes = partial.filter_map(|entry| entry.metadata().ok());
                found > 5 && sizes.any(|found| found.is_file() && found.len() > 1_000_000)
            };
            assert!(xdfs_testkit::wait::until(PATIENCE, has_begun), "{victim}");
            match victim {
                "client" => running.kill(),
                name => {
                    let server = match name {
                        "source" => &mut scene.source,
                        _ => &mut scene.target,
                    };
                    server.running.kill();
                    let address = server.addresses[0].clone();
                    let run = running.wait();
                    assert_ne!(run.code, Some(0), "{run:?}");
                    let flags: &[&str] = if name == "target" { &CONNECTS } else { &[] };
                    let again = Scene::serve(&scene.place, name, &address, flags);
                    match name {
                        "source" => scene.source = again,
                        _ => scene.target = again,
                    }
                }
            }
            // The tree of a client that has died ends with its session, which takes a moment.
            let words = [command, &["--json", "--between=direct"]].concat();
            let run = between(&scene, &words, "/tree", "/copy").ok();
            let record = tree(&run);
            assert_eq!(
                (&record["way"], &record["failed"]),
                (&"direct".into(), &0.into())
            );
            if command[0] == "cp" {
                let resumed = record["resumed_files"].as_u64().unwrap();
                assert!(resumed > 0, "after {victim}: {record}");
            }
            eprintln!("after {victim}: {record}");
            assert_equal(&scene, "tree", "copy");
        }
    }
}

#[test]
fn a_tree_of_a_running_command_survives_a_restart_of_each_server() {
    for victim in ["source", "target"] {
        let mut scene = Scene::new([&[], &CONNECTS]);
        let made = make_tree(&scene, 500);
        fs::write(made.join("huge"), content(5, 16_000_000)).unwrap();
        let places = [scene.source.url("/tree"), scene.target.url("/copy")];
        let mut command = program();
        command.args([
            "cp",
            "-r",
            "--json",
            "--between=direct",
            "--limit-rate",
            "6M",
        ]);
        let mut running = Running::start(command.args(&places));
        let has_begun = || scene.copied("copy/d0/e/0").exists();
        assert!(xdfs_testkit::wait::until(PATIENCE, has_begun), "{victim}");
        let (server, flags): (_, &[&str]) = match victim {
            "source" => (&mut scene.source, &[]),
            _ => (&mut scene.target, &CONNECTS),
        };
        server.running.kill();
        let address = server.addresses[0].clone();
        let again = Scene::serve(&scene.place, victim, &address, flags);
        match victim {
            "source" => scene.source = again,
            _ => scene.target = again,
        }
        let run = running.wait().ok();
        assert_eq!(tree(&run)["way"], "direct");
        assert!(tree(&run)["reconnects"].as_u64().unwrap() > 0);
        assert_equal(&scene, "tree", "copy");
    }
}

#[test]
fn an_interrupted_tree_ends_at_the_servers_too() {
    let scene = Scene::new([&[], &CONNECTS]);
    let made = make_tree(&scene, 100);
    fs::write(made.join("huge"), content(5, 24_000_000)).unwrap();
    let places = [scene.source.url("/tree"), scene.target.url("/copy")];
    let mut command = program();
    command.args([
        "cp",
        "-r",
        "--json",
        "--between=direct",
        "--limit-rate",
        "4M",
    ]);
    let mut running = Running::start(command.args(&places));
    let has_begun = || scene.copied("copy/d0/e/0").exists();
    assert!(xdfs_testkit::wait::until(PATIENCE, has_begun));
    running.signal("INT");
    running.wait().fails(130, &["stopped"]);
    assert!(!scene.copied("copy/huge").exists());
    let words = ["cp", "-r", "--json", "--between=direct"];
    between(&scene, &words, "/tree", "/copy").ok();
    assert_equal(&scene, "tree", "copy");
}

#[test]
fn files_that_a_power_cut_may_have_damaged_are_not_skipped_by_servers() {
    let scene = Scene::new([&[], &CONNECTS]);
    let made = make_tree(&scene, 100);
    fs::write(made.join("huge"), content(5, 24_000_000)).unwrap();
    let places = [scene.source.url("/tree"), scene.target.url("/copy")];
    let words = ["cp", "-r", "--json", "--durability=none"];
    let mut command = program();
    command.args(words).args(["--limit-rate", "4M"]);
    let mut running = Running::start(command.args(&places));
    let damaged = scene.copied("copy/d1/e/8");
    assert!(xdfs_testkit::wait::until(PATIENCE, || damaged.exists()));
    running.signal("INT");
    running.wait().fails(130, &["stopped"]);
    // Its size and time are right.
    let time = fs::metadata(&damaged).unwrap().modified().unwrap();
    fs::write(&damaged, [0; 8]).unwrap();
    let file = fs::File::options().write(true).open(&damaged).unwrap();
    file.set_modified(time).unwrap();
    let record = tree(&between(&scene, &words, "/tree", "/copy").ok());
    assert_eq!(record["way"], "client", "{record}");
    assert_equal(&scene, "tree", "copy");
}
