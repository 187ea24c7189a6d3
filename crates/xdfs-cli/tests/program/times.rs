//! Times that can't be carried: one warning says how many files lost theirs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use xdfs_testkit::skip;

use crate::support::{Place, Server, xdfs};

/// Makes three files, two of them of a time that is too far away. `None` where there are none.
fn make(root: &Path) -> Option<()> {
    fs::create_dir(root).unwrap();
    for (name, time) in [
        ("a", "2300-01-01"),
        ("b", "2400-01-01"),
        ("c", "2000-01-01"),
    ] {
        let path = root.join(name);
        fs::write(&path, name).unwrap();
        let mut command = Command::new("touch");
        command.args(["-d", time]).arg(&path);
        let is_set = command.status().is_ok_and(|status| status.success());
        if !is_set || (name != "c" && fs::metadata(&path).unwrap().mtime() < 10_000_000_000) {
            skip::test("the file system has no such times");
            return None;
        }
    }
    Some(())
}

#[test]
fn times_beyond_the_range_are_counted() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let here = place.here("tree");
    let trees = [Path::new(&here), &place.remote("tree")];
    if trees.map(make).contains(&None) {
        return;
    }
    let ways = [
        [here.clone(), server.url("/copy")],
        [server.url("/tree"), place.here("copy")],
    ];
    let two = "the time of 2 files was not kept";
    for [source, target] in ways {
        let file = |name: &str| format!("{source}/{name}");
        for (command, target) in [
            (&["cp", "-r"][..], &target),
            (&["sync"], &format!("{target}2")),
        ] {
            let words = [command, &[&source, target]].concat();
            let run = xdfs(&words).ok();
            assert_eq!(run.stderr.matches(two).count(), 1, "{}", run.stderr);
            let run = xdfs([&["sync"], &words[command.len()..]].concat()).ok();
            assert!(!run.stderr.contains("warning"), "{}", run.stderr);
        }
        let alone = format!("{target}-alone");
        let run = xdfs(["cp", &file("a"), &alone]).ok();
        assert!(
            run.stderr.contains("the time of 1 file was not kept"),
            "{}",
            run.stderr
        );
        let run = xdfs(["cp", &file("c"), &format!("{alone}-c")]).ok();
        assert!(!run.stderr.contains("warning"), "{}", run.stderr);
    }
}
