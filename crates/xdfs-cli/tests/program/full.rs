//! Targets that are full, and dry runs that say so before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xdfs_testkit::skip;

use crate::support::{Place, Server, xdfs};

/// Bytes of the small file system.
const SIZE: u64 = 2 << 20;

/// A small file system of memory; unmounted when dropped.
pub(crate) struct Tiny(PathBuf);

impl Tiny {
    /// `None`, with the reason printed, where it can't be mounted.
    pub(crate) fn mount(at: &Path) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={SIZE}"), "xdfs-test"]);
        match command.arg(at).output() {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            other => {
                skip::test(format_args!("no file system can be mounted: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        // Lazily, in case that a failed test still holds a file there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A server with a small disk at `tiny`, and one at this side.
fn scene() -> Option<(Place, Server, [Tiny; 2])> {
    let place = Place::new();
    let disks = [place.remote("tiny"), place.here("tiny").into()];
    let [there, here] = disks.map(|at| Tiny::mount(&at));
    let disks = [there?, here?];
    let server = Server::start(&place.root());
    Some((place, server, disks))
}

/// Makes 1,000 files of 4 KiB, on both sides.
fn make_tree(place: &Place) -> [PathBuf; 2] {
    let trees = [PathBuf::from(place.here("tree")), place.remote("tree")];
    for tree in &trees {
        for directory in 0..10 {
            let directory = tree.join(format!("d{directory}"));
            fs::create_dir_all(&directory).unwrap();
            for file in 0..100 {
                fs::write(directory.join(format!("f{file}")), vec![1; 4096]).unwrap();
            }
        }
    }
    trees
}

#[test]
fn a_full_target_ends_a_tree_with_one_error() {
    let Some((place, server, disks)) = scene() else {
        return;
    };
    make_tree(&place);
    let here = place.here("tree");
    let ways = [
        (here, server.url("/tiny/copy")),
        (server.url("/tree"), place.here("tiny/copy")),
    ];
    for ((source, target), disk) in ways.iter().zip(&disks) {
        for command in [["cp", "-r"], ["sync", "--durability=batch"]] {
            let run = xdfs([&command[..], &[source, target]].concat());
            let run = run.fails(7, &["no space left", "free some space"]);
            assert!(run.stderr.lines().count() <= 5, "{}", run.stderr);
            assert_eq!(run.stderr.matches("error: ").count(), 1, "{}", run.stderr);
        }
        // With room the same command completes it.
        let mut command = Command::new("mount");
        let grown = command
            .args(["-o", "remount,size=64M"])
            .arg(&disk.0)
            .status();
        assert!(grown.unwrap().success());
        xdfs(["sync", source, target]).ok();
        let files = fs::read_dir(disk.0.join("copy/d9")).unwrap().count();
        assert_eq!(files, 100);
    }
}

#[test]
fn a_dry_run_looks_at_the_free_space() {
    let Some((place, server, disks)) = scene() else {
        return;
    };
    let [_, there] = make_tree(&place);
    let big = place.make_here("big", &vec![1; SIZE as usize + 1]);
    fs::copy(&big, place.remote("big")).unwrap();
    let here = place.here("tree");
    let (tree, file) = (server.url("/tree"), server.url("/big"));
    let (up, down) = (server.url("/tiny"), place.here("tiny"));
    let words = ["bytes are needed and", "are left"];
    for [tree, file, target] in [[&*here, &*big, &*up], [&tree, &file, &down]] {
        let inside = &format!("{target}/new/copy");
        xdfs(["cp", "--dry-run", file, &format!("{target}/")]).fails(7, &words);
        xdfs(["cp", "-r", "--dry-run", tree, &format!("{target}/copy")]).fails(7, &words);
        xdfs(["sync", "--dry-run", tree, inside]).fails(7, &words);
    }
    for disk in &disks {
        let at = &disk.0;
        let mut command = Command::new("mount");
        let grown = command.args(["-o", "remount,size=64M"]).arg(at).status();
        assert!(grown.unwrap().success());
        assert_eq!(fs::read_dir(at).unwrap().count(), 0, "nothing was made");
    }
    for [tree, file, target] in [[&*here, &*big, &*up], [&tree, &file, &down]] {
        xdfs(["cp", "--dry-run", file, &format!("{target}/")]).ok();
        xdfs(["sync", "--dry-run", tree, &format!("{target}/copy")]).ok();
        xdfs(["sync", tree, &format!("{target}/copy")]).ok();
    }
    // A file that is replaced makes room: the disks hold one copy, and not two.
    for disk in &disks {
        let mut command = Command::new("mount");
        let shrunk = command
            .args(["-o", "remount,size=5M"])
            .arg(&disk.0)
            .status();
        assert!(shrunk.unwrap().success());
    }
    for root in [Path::new(&here), &there] {
        for directory in 0..10 {
            for file in 0..100 {
                let path = root.join(format!("d{directory}/f{file}"));
                fs::write(path, vec![2; 4096]).unwrap();
            }
        }
    }
    for (tree, target) in [(&here, &up), (&tree, &down)] {
        xdfs([
            "sync",
            "--compare",
            "digest",
            "--dry-run",
            tree,
            &format!("{target}/copy"),
        ])
        .ok();
    }
}
