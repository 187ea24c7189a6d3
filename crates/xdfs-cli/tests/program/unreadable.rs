//! Directories and files that may not be read. Root may read everything, so that as root the
//! program runs as nobody here.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use xdfs_testkit::nobody::{self, is_root};

use crate::support::{Place, Run, Running, Server, names, program, xdfs};

const SETTINGS: &str = "XDFS_CONFIG_DIR";

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Copies a folder for nobody. Programs of other tests work in it meanwhile, so that a file may be
/// gone again, as one under a temporary name is.
fn give_copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    chown(to, Some(nobody::ID), Some(nobody::ID)).unwrap();
    set_mode(to, 0o700);
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            give_copy(&from, &to);
        } else {
            match fs::copy(&from, &to) {
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                copied => copied.unwrap(),
            };
            chown(&to, Some(nobody::ID), Some(nobody::ID)).unwrap();
        }
    }
}

/// Runs the program as somebody who isn't root.
fn run_unprivileged(place: &Place, args: &[&str]) -> Run {
    let mut command = program();
    if is_root() {
        // Nobody may come by where the program was built. Not copied by this process: what other
        // tests start meanwhile would inherit the file open for writing, and keep it from running.
        let own = place.path().join("program");
        let mut install = Command::new("install");
        install.args(["-m", "755"]).arg(command.get_program());
        assert!(install.arg(&own).status().unwrap().success());
        set_mode(place.path(), 0o755);
        // With the keys that the server knows.
        let known = command.get_envs().find(|(name, _)| *name == SETTINGS);
        let known = known.and_then(|(_, value)| value).unwrap();
        let settings = place.path().join("settings");
        give_copy(Path::new(known), &settings);
        let mut other = Command::new(own);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => other.env(name, value),
                None => other.env_remove(name),
            };
        }
        other.env(SETTINGS, settings);
        other
            .current_dir(place.path())
            .uid(nobody::ID)
            .gid(nobody::ID);
        command = other;
    }
    Running::start(command.args(args).stdin(Stdio::null())).wait()
}

/// A tree with something in it that may not be read.
fn make_tree(tree: &Path) {
    for name in ["closed", "open"] {
        fs::create_dir_all(tree.join(name)).unwrap();
        fs::write(tree.join(name).join("file"), name).unwrap();
    }
    fs::write(tree.join("private"), "private").unwrap();
    set_mode(&tree.join("private"), 0o000);
    set_mode(&tree.join("closed"), 0o000);
}

#[test]
fn what_may_not_be_read_is_told_and_the_rest_goes() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let tree = place.here("tree");
    make_tree(Path::new(&tree));
    // Makes the keys, if no other test has.
    xdfs(["ls", &server.url("/")]).ok();
    let args = ["cp", "-r", "--json", &tree, &server.url("/")];
    let run = run_unprivileged(&place, &args);
    set_mode(&Path::new(&tree).join("closed"), 0o755);
    let run = run.fails(5, &["closed", "private"]);
    assert_eq!(run.result()["failed"], 2);
    let faults: Vec<_> = run.json();
    let denied = |v: &&serde_json::Value| v.to_string().contains("\"permission-denied\"");
    assert!(faults.iter().filter(denied).count() >= 2, "{faults:?}");
    let there = place.remote("tree");
    assert_eq!(fs::read(there.join("open/file")).unwrap(), b"open");
    assert!(!there.join("closed/file").exists());
    assert!(!there.join("private").exists());
}

#[test]
fn a_single_one_that_may_not_be_read_is_refused_by_its_name() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let tree = place.here("tree");
    make_tree(Path::new(&tree));
    for name in ["private", "closed/file"] {
        let path = format!("{tree}/{name}");
        let run = run_unprivileged(&place, &["cp", &path, &server.url("/")]);
        run.fails(5, &[name]);
    }
    set_mode(&Path::new(&tree).join("closed"), 0o755);
    assert!(names(place.root()).is_empty());
}

#[test]
fn what_cannot_be_listed_is_not_said_to_be_missing() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for root in [place.root(), place.here("").into()] {
        fs::create_dir_all(root.join("tree/closed/deep")).unwrap();
        fs::write(root.join("tree/closed/deep/file"), "1").unwrap();
        fs::write(root.join("tree/open"), "1").unwrap();
    }
    fs::write(place.remote("tree/closed-too"), "1").unwrap();
    let (here, url) = (place.here("tree"), server.url("/tree"));
    xdfs(["ls", &url]).ok();
    set_mode(&Path::new(&here).join("closed"), 0);
    // Both ways round.
    for (words, line) in [([&here, &url], "extra"), ([&url, &here], "missing")] {
        let run = run_unprivileged(&place, &["check", words[0], words[1]]);
        let run = run.fails(5, &["error: cannot ", "closed"]);
        assert_eq!(run.text(), format!("{line} closed-too\n"), "{}", run.stderr);
        assert!(run.stderr.contains("2 equal (1 B)"), "{}", run.stderr);
    }
    set_mode(&Path::new(&here).join("closed"), 0o755);
}
