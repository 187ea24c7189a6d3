//! `xdfs sync` from servers with MODE T: one listing, and segments of what differs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};

use crate::places::xdfs;
use crate::relay::Relay;
use crate::stage::{Stage, assert_bytes, assert_same_tree, outcome, run};

/// Files of a tree that segments take.
const SMALL: usize = 300;

/// A server behind a relay, with a tree and a directory that follows it.
struct Scene {
    stage: Stage,
    relay: Relay,
    tree: PathBuf,
    target: PathBuf,
}

/// Commands, as far as they ask for listings and files.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    /// MLSR.
    trees: usize,
    /// MLSD.
    directories: usize,
    /// Entries that segments were to have.
    members: usize,
    /// RETR, or parts of files in MODE X.
    files: usize,
}

/// Gives a file another time, whatever is in it.
fn age(path: &Path, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// How many numbers are in `0-3,7`.
fn count(numbers: &str) -> usize {
    let ranges = numbers.split(',').map(|range| match range.split_once('-') {
        Some((first, last)) => last.parse::<usize>().unwrap() + 1 - first.parse::<usize>().unwrap(),
        None => 1,
    });
    ranges.sum()
}

impl Scene {
    fn open(seed: u64) -> Self {
        let stage = Stage::open(seed, &[]);
        let tree = stage.root("tree");
        for number in 0..SMALL {
            let path = tree.join(format!("d{}/e{}/f {number}", number % 7, number % 3));
            Stage::make(&path, 1 + number * 7919 % 90_000);
            age(&path, 100_000);
        }
        Self {
            relay: Relay::to(&stage.address),
            target: stage.here("target"),
            tree,
            stage,
        }
    }

    fn words(&self, flags: &[&str]) -> Vec<String> {
        let (url, target) = (self.relay.url("/tree"), self.target.display().to_string());
        let all = ["sync", "--insecure"].iter().chain(flags);
        let all = all.map(|word| (*word).to_owned());
        all.chain([url, target]).collect()
    }

    /// Synchronises. Returns what the program printed, and what it asked for.
    #[track_caller]
    fn sync(&self, flags: &[&str]) -> (String, Asked) {
        let words = self.words(flags);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let said = run(&mut xdfs(&self.stage, &words));
        (said, self.asked())
    }

    /// The same, which fails.
    #[track_caller]
    fn fails(&self, flags: &[&str]) -> (String, Asked) {
        let words = self.words(flags);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let (succeeded, said) = outcome(&mut xdfs(&self.stage, &words));
        assert!(!succeeded, "{said}");
        (said, self.asked())
    }

    fn asked(&self) -> Asked {
        let mut asked = Asked::default();
        for line in self.relay.take_commands("") {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["MLSR", ..] => asked.trees += 1,
                ["MLSD", ..] => asked.directories += 1,
                ["ERET", "T", _, _, numbers, ..] => asked.members += count(numbers),
                ["RETR" | "ERET", ..] => asked.files += 1,
                _ => {}
            }
        }
        asked
    }

    fn in_tree(&self, name: &str) -> PathBuf {
        self.tree.join(name)
    }

    fn in_target(&self, name: &str) -> PathBuf {
        self.target.join(name)
    }
}

/// What is asked for where nothing but this many small files differs.
fn members(members: usize) -> Asked {
    Asked {
        trees: 1,
        members,
        ..Asked::default()
    }
}

#[test]
fn what_differs_comes_in_segments() {
    let scene = Scene::open(440);
    Stage::make(&scene.in_tree("large"), 3_000_000);
    fs::create_dir(scene.in_tree("empty")).unwrap();
    symlink("large", scene.in_tree("link")).unwrap();
    symlink("d1", scene.in_tree("to a directory")).unwrap();
    // Nothing is asked for but the tree.
    let (said, asked) = scene.sync(&["--dry-run"]);
    assert!(said.contains("copy d1/e1/f 1"), "{said}");
    assert_eq!(asked, members(0));
    assert!(!scene.target.exists());
    let (_, asked) = scene.sync(&[]);
    assert_same_tree(&scene.tree, &scene.target);
    for link in ["link", "to a directory"] {
        let [a, b] = [scene.in_tree(link), scene.in_target(link)].map(fs::read_link);
        assert_eq!(a.unwrap(), b.unwrap());
    }
    // What is too large for a segment comes by itself.
    assert_eq!((asked.trees, asked.directories), (1, 0));
    assert_eq!((asked.members, asked.files), (SMALL, 1));
    let (said, asked) = scene.sync(&[]);
    assert!(said.contains("0 files"), "{said}");
    assert_eq!(asked, members(0));
    // Another size, another time, a missing file, and a new one.
    fs::write(scene.in_tree("d0/e0/f 0"), "another size").unwrap();
    let same_size = fs::metadata(scene.in_tree("d1/e1/f 1")).unwrap().len();
    let other = vec![b'x'; usize::try_from(same_size).unwrap()];
    fs::write(scene.in_tree("d1/e1/f 1"), other).unwrap();
    fs::remove_file(scene.in_target("d2/e2/f 2")).unwrap();
    Stage::make(&scene.in_tree("d3/new"), 777);
    let (said, asked) = scene.sync(&["--dry-run"]);
    assert!(said.contains("replace d1/e1/f 1"), "{said}");
    assert_eq!(asked, members(0));
    assert!(!scene.in_target("d3/new").exists());
    let (said, asked) = scene.sync(&[]);
    assert!(said.contains("4 files"), "{said}");
    assert_eq!(asked, members(4));
    assert_same_tree(&scene.tree, &scene.target);
}

#[test]
fn contents_that_differ_come_in_segments() {
    let scene = Scene::open(441);
    scene.sync(&[]);
    let path = scene.in_target("d4/e1/f 4");
    let before = fs::metadata(&path).unwrap();
    let other = vec![b'x'; usize::try_from(before.len()).unwrap()];
    fs::write(&path, other).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    let (_, asked) = scene.sync(&[]);
    assert_eq!(asked, members(0));
    let (_, asked) = scene.sync(&["--compare=digest"]);
    assert_eq!(asked, members(1));
    assert_same_tree(&scene.tree, &scene.target);
}

#[test]
fn names_that_the_tree_lacks_are_deleted() {
    let scene = Scene::open(442);
    scene.sync(&[]);
    for name in ["d1/e1/f 1", "d2/e2/f 2"] {
        fs::remove_file(scene.in_tree(name)).unwrap();
    }
    fs::remove_dir_all(scene.in_tree("d5")).unwrap();
    Stage::make(&scene.in_target("mine/a"), 10);
    let (_, asked) = scene.sync(&[]);
    assert!(scene.in_target("d5").exists() && scene.in_target("mine/a").exists());
    assert_eq!(asked, members(0));
    let (said, _) = scene.sync(&["--delete", "--dry-run"]);
    assert!(said.contains("delete mine/a"), "{said}");
    assert!(scene.in_target("mine/a").exists());
    let (_, asked) = scene.sync(&["--delete", "--max-delete=300"]);
    assert_same_tree(&scene.tree, &scene.target);
    assert_eq!((asked.trees, asked.members, asked.files), (1, 0, 0));
}

#[test]
fn files_that_change_meanwhile_come_as_they_are() {
    let scene = Scene::open(443);
    let path = |name: &str| scene.in_tree(name);
    let (resized, rewritten) = (path("d1/e1/f 1"), path("d2/e2/f 2"));
    let (a, b, late) = (resized.clone(), rewritten.clone(), path("d6/late"));
    scene.relay.before("ERET", move || {
        fs::write(&a, "another size").unwrap();
        let bytes = fs::metadata(&b).unwrap().len();
        fs::write(&b, vec![b'x'; usize::try_from(bytes).unwrap()]).unwrap();
        fs::write(&late, "late").unwrap();
    });
    let (_, asked) = scene.sync(&[]);
    assert!(scene.relay.has_acted());
    // Those two were left out of the segments.
    assert_eq!((asked.members, asked.files), (SMALL, 2));
    assert_bytes(&scene.in_target("d1/e1/f 1"), b"another size");
    for (here, there) in [("d1/e1/f 1", &resized), ("d2/e2/f 2", &rewritten)] {
        assert_bytes(&scene.in_target(here), &fs::read(there).unwrap());
    }
    // The tree had no such file.
    assert!(!scene.in_target("d6/late").exists());
    let (said, asked) = scene.sync(&[]);
    assert!(said.contains("1 file,"), "{said}");
    assert_eq!(asked, members(1));
    assert_same_tree(&scene.tree, &scene.target);
}

#[test]
fn nothing_is_deleted_for_what_changes_meanwhile() {
    let scene = Scene::open(444);
    scene.sync(&[]);
    Stage::make(&scene.in_tree("d0/new"), 500);
    Stage::make(&scene.in_tree("gone"), 500);
    Stage::make(&scene.in_target("extra"), 10);
    // What was to come is gone, which is a failure.
    let gone = scene.in_tree("gone");
    scene
        .relay
        .before("ERET", move || fs::remove_file(gone).unwrap());
    let (said, _) = scene.fails(&["--delete"]);
    assert!(scene.relay.has_acted() && said.contains("gone"), "{said}");
    assert!(scene.in_target("extra").exists() && scene.in_target("d0/new").exists());
    // What was extraneous has appeared in the tree.
    Stage::make(&scene.in_target("d3/e0/extra"), 10);
    Stage::make(&scene.in_tree("d0/newer"), 500);
    let appears = scene.in_tree("d3/e0/extra");
    scene.relay.before("ERET", move || {
        Stage::make(&appears, 20);
    });
    let (said, _) = scene.fails(&["--delete"]);
    assert!(said.contains("it appeared in the source"), "{said}");
    assert!(scene.in_target("d3/e0/extra").exists() && !scene.in_target("extra").exists());
    let (_, asked) = scene.sync(&["--delete"]);
    assert_eq!((asked.trees, asked.members, asked.files), (1, 1, 0));
    assert_same_tree(&scene.tree, &scene.target);
}

/// Makes directories in each other, of which the last one has a path that is short enough for a
/// pack, and in a directory with a short name too long for the system.
fn make_deep(root: &Path) {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = rustix::fs::open(root, flags, Mode::empty()).unwrap();
    for level in 0..17 {
        let name = "l".repeat(if level == 0 { 238 } else { 240 });
        rustix::fs::mkdirat(&directory, &name, Mode::RWXU).unwrap();
        directory = rustix::fs::openat(&directory, &name, flags, Mode::empty()).unwrap();
    }
}

#[test]
fn a_directory_that_cant_be_listed_keeps_what_is_there() {
    let scene = Scene::open(445);
    make_deep(&scene.tree);
    Stage::make(&scene.in_target("extra"), 10);
    let (said, asked) = scene.fails(&["--delete", "--force"]);
    // The server tells no tree without it.
    assert!(asked.trees == 1 && asked.members == 0, "{asked:?}: {said}");
    assert!(
        asked.directories > 7 && asked.files == SMALL,
        "{asked:?} {said}"
    );
    assert!(scene.in_target("extra").exists(), "{said}");
    assert_bytes(
        &scene.in_target("d1/e1/f 1"),
        &fs::read(scene.in_tree("d1/e1/f 1")).unwrap(),
    );
}
