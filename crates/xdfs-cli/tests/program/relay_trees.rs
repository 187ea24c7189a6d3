//! Trees that go by relays.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use xdfs_testkit::tree::Random;
use xdfs_testkit::wait::until;

use crate::relay::{PATIENCE, id_of};
use crate::relay_hops::{Hop, status, wait_for};
use crate::support::{Place, Run, content, names, xdfs};
use crate::third_party::CONNECTS;

/// Two relays and a target.
struct Line {
    place: Place,
    first: Hop,
    second: Hop,
    target: Hop,
}

impl Line {
    fn new() -> Self {
        let place = Place::new();
        Self {
            first: Hop::relay(&place, "first", &CONNECTS),
            second: Hop::relay(&place, "second", &CONNECTS),
            target: Hop::target(&place, "target"),
            place,
        }
    }

    fn cp(&self, flags: &[&str], source: &str, to: &str) -> Run {
        let via = format!("{},{}", self.first.address, self.second.address);
        let to = self.target.url(to);
        let words = ["cp", "--json", "--via", &via, source, &to];
        xdfs([&words[..], flags].concat())
    }

    fn remote(&self, name: &str) -> PathBuf {
        PathBuf::from(self.place.here("target")).join(name)
    }
}

fn hashed(bytes: &[u8]) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(bytes, &mut hasher);
    format!("{} {:x}", bytes.len(), std::hash::Hasher::finish(&hasher))
}

/// Kind, permissions, time, links, size and content of each entry.
fn listed(root: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let mut entries: Vec<_> = fs::read_dir(&directory).unwrap().collect();
        entries.push(Err(std::io::Error::other("the directory itself")));
        for entry in entries {
            let path = entry.map_or_else(|_| directory.clone(), |entry| entry.path());
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = match meta.file_type() {
                kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
                kind if kind.is_dir() => {
                    if path != directory {
                        directories.push(path);
                        continue;
                    }
                    String::new()
                }
                _ => hashed(&fs::read(&path).unwrap()),
            };
            let time = (meta.mtime(), meta.mtime_nsec());
            let links = if meta.is_dir() { 0 } else { meta.nlink() };
            let what = format!("{:o} {time:?} {links} {content}", meta.mode());
            all.push((path.strip_prefix(root).unwrap().to_owned(), what));
        }
    }
    all.sort();
    all
}

/// Files of all sizes, links, and what has odd permissions.
fn make(root: &Path, seed: u64) {
    let mut random = Random::new(seed);
    for directory in ["", "a", "a/b", "a/b/c", "empty", "read-only"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for at in 0..200 {
        let directory = ["", "a", "a/b", "read-only"][random.below(4) as usize];
        let length = random.below(20_000) as usize * usize::from(at % 7 != 0);
        let path = root.join(directory).join(format!("f{at}"));
        fs::write(&path, content(seed + at, length)).unwrap();
        let mode = [0o644, 0o600, 0o755, 0o400][random.below(4) as usize];
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(root.join("a/large"), content(seed, 3_000_001)).unwrap();
    fs::hard_link(root.join("a/large"), root.join("a/b/other name")).unwrap();
    symlink("../large", root.join("a/b/link")).unwrap();
    symlink("/nowhere at all", root.join("dangling")).unwrap();
    let read_only = fs::Permissions::from_mode(0o555);
    fs::set_permissions(root.join("read-only"), read_only).unwrap();
    let touched = Command::new("touch")
        .args([
            "-d",
            "2001-02-03 04:05:06.789",
            "a/b",
            "empty",
            "a/large",
            ".",
        ])
        .current_dir(root)
        .status();
    assert!(touched.unwrap().success());
}

#[test]
fn a_tree_goes_by_two_relays_as_a_copy_of_it_would() {
    let line = Line::new();
    let root = PathBuf::from(line.place.here("tree"));
    make(&root, 5);
    let source = root.to_str().unwrap();
    // To a name that isn't taken, and into a directory.
    line.cp(&["-a", "--wait"], source, "/copy").ok();
    assert_eq!(listed(&line.remote("copy")), listed(&root));
    fs::create_dir(line.remote("dir")).unwrap();
    let id = id_of(&line.cp(&["-r", "--wait"], source, "/dir").ok());
    let xdfs_copy = line.target.url("/direct");
    xdfs(["cp", "-r", source, &xdfs_copy]).ok();
    assert_eq!(
        listed(&line.remote("dir/tree")),
        listed(&line.remote("direct"))
    );
    assert_eq!(names(line.remote("dir")), ["tree"]);
    assert_eq!(status(&line.first, &id).unwrap()["state"], "delivered");
    // Filters leave out the rest.
    let only = ["-r", "--wait", "--exclude", "f*", "--exclude", "read-only"];
    line.cp(&only, source, "/some").ok();
    assert_eq!(names(line.remote("some")), ["a", "dangling", "empty"]);
    // It replaces nothing.
    let run = line.cp(&["-r", "--wait"], source, "/dir");
    let id = id_of(&run.fails(6, &["the name is taken"]));
    fs::remove_dir_all(line.remote("dir/tree")).unwrap();
    xdfs(["retry", &id, &line.first.url("")]).ok();
    xdfs(["wait", &id, &line.first.url("")]).ok();
    assert_eq!(
        listed(&line.remote("dir/tree")),
        listed(&line.remote("direct"))
    );
    assert_eq!(names(line.remote("dir")), ["tree"]);
    line.cp(&["-r", "--force"], source, "/dir")
        .fails(2, &["replaces nothing"]);
    line.cp(&[], source, "/x").fails(2, &["--recursive"]);
    fs::write(root.join("a/secret"), b"x").unwrap();
    let empty = line.place.here("nothing");
    fs::create_dir(&empty).unwrap();
    line.cp(&["-r", "--wait"], &empty, "/nothing").ok();
    assert_eq!(names(line.remote("nothing")), Vec::<String>::new());
}

/// The tree has its name only once all of it is there, whatever is killed before.
#[test]
fn a_tree_comes_once_and_whole_whatever_is_killed() {
    let rounds = std::env::var("XDFS_TEST_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    let seed = std::process::id().into();
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    let mut line = Line::new();
    let root = PathBuf::from(line.place.here("tree"));
    make(&root, 6);
    for at in 0..6 {
        fs::write(root.join(format!("big{at}")), content(at, 4_000_000)).unwrap();
    }
    let expected = listed(&root);
    fs::create_dir(line.remote("in")).unwrap();
    let id = id_of(
        &line
            .cp(&["-a", "--retries=100"], root.to_str().unwrap(), "/in/")
            .ok(),
    );
    let mut came = 0;
    let mut take = |line: &Line| {
        let path = line.remote("in/tree");
        if path.exists() {
            assert_eq!(listed(&path), expected);
            fs::remove_dir_all(path).unwrap();
            came += 1;
        }
    };
    for _ in 0..rounds {
        thread::sleep(Duration::from_millis(random.below(300)));
        take(&line);
        match random.below(3) {
            0 => line.first.restart(),
            1 => line.second.restart(),
            _ => line.target.restart(),
        }
        take(&line);
    }
    wait_for(&line.first, &id, |status| {
        take(&line);
        status["state"] == "delivered"
    });
    take(&line);
    line.first.restart();
    line.second.restart();
    let last = line.place.make_here("last", b"last");
    line.cp(&["--wait"], &last, "/in/").ok();
    take(&line);
    assert_eq!(came, 1);
    assert_eq!(names(line.remote("in")), ["last"]);
    let is_free = || {
        let segments = fs::read_dir(line.place.here("second") + "/segments").unwrap();
        let sizes = segments.map(|entry| entry.unwrap().metadata().map_or(0, |meta| meta.len()));
        sizes.sum::<u64>() < 1_000_000
    };
    assert!(until(PATIENCE, is_free));
}
