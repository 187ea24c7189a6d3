//! Files with holes, both ways: copies take no more storage than what they were made from.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use xdfs::{SyncOptions, TreeOptions};

use crate::scene::{down, replacing, up};
use crate::support::{Folders, Serving, client};
use crate::sync::{Stage, WAYS, write};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Whether files in a directory can have holes. Says so if not.
fn knows_holes(dir: &Path) -> bool {
    let file = tempfile::tempfile_in(dir).unwrap();
    file.set_len(MIB).unwrap();
    let can = file.metadata().unwrap().blocks() == 0;
    if !can {
        xdfs_testkit::skip::part("this file system knows no holes");
    }
    can
}

/// Stretches of data: where they begin, and how many bytes they have.
type Data = &'static [(u64, u64)];

/// A file of `length` bytes with stretches of data.
fn make(path: &Path, length: u64, data: Data) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = File::create(path).unwrap();
    file.set_len(length).unwrap();
    for (at, count) in data {
        let bytes = (0..*count).map(|n| (n % 251) as u8 + 1);
        file.write_all_at(&bytes.collect::<Vec<u8>>(), *at).unwrap();
    }
    // So that it is known what it takes.
    file.sync_all().unwrap();
}

/// Files of packs and such that travel alone, whose holes are larger and smaller than blocks.
const FILES: [(&str, u64, Data); 12] = [
    ("small/nothing", 100_000, &[]),
    ("small/byte", 1, &[]),
    ("small/begin", 100_000, &[(0, 10)]),
    ("small/middle", 100_000, &[(50_000, 10_000)]),
    ("small/end", 100_000, &[(99_000, 1000)]),
    (
        "small/largest",
        512 * KIB,
        &[(4 * KIB, 4 * KIB), (300_000, 1)],
    ),
    ("small/full", 100_000, &[(0, 100_000)]),
    ("large/nothing", 5 * MIB + 7, &[]),
    (
        "large/within",
        3 * MIB,
        &[(0, 64 * KIB), (MIB, 64 * KIB), (2 * MIB + 5000, 9)],
    ),
    ("large/end", 3 * MIB + 1, &[(3 * MIB, 1)]),
    (
        "large/direct",
        70 * MIB,
        &[(100 * KIB, 64 * KIB), (33 * MIB, 3 * MIB), (69 * MIB, 9)],
    ),
    ("large/full", MIB, &[(0, MIB)]),
];

fn make_all(tree: &Path) {
    for (name, length, data) in FILES {
        make(&tree.join(name), length, data);
    }
}

fn takes(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks() * 512
}

/// Asserts that the files of two trees are the same, and that those of the second take no more.
#[track_caller]
fn assert_as_hollow(from: &Path, to: &Path) {
    let can = knows_holes(to);
    for (name, ..) in FILES {
        let (from, to) = (from.join(name), to.join(name));
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap(), "{name}");
        if can {
            let (here, there) = (takes(&from), takes(&to));
            // ext4 notes more than four stretches in a block of their own, which counts; how many
            // stretches it makes of a large file depends on what else it is writing.
            let notes = if here > MIB { 4 * KIB } else { 0 };
            assert!(there <= here + notes, "{name}: {there} bytes, not {here}");
        }
    }
}

#[test]
fn holes_are_kept() {
    let folders = Folders::new(31);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    make_all(&source);
    let options = TreeOptions::default();
    let (result, failed) = up(&client, &source, "/there", &options).unwrap();
    assert_eq!((result.files, failed), (12, vec![]));
    let there = folders.root().join("there");
    assert_as_hollow(&source, &there);
    let back = folders.here("back");
    let (result, failed) = down(&client, "/there", &back, &options).unwrap();
    assert_eq!((result.files, failed), (12, vec![]));
    assert_as_hollow(&source, &back);
    // Over files without holes: a tree goes into a directory that is there.
    let fill = |tree: &Path| {
        for (name, length, _) in FILES {
            write(tree.join(name), vec![9; length as usize]);
        }
    };
    fill(&back.join("there"));
    down(&client, "/there", &back, &replacing()).unwrap();
    assert_as_hollow(&source, &back.join("there"));
    fill(&there.join("tree"));
    up(&client, &source, "/there", &replacing()).unwrap();
    assert_as_hollow(&source, &there.join("tree"));
}

#[test]
fn holes_are_kept_when_trees_are_made_equal() {
    for way in WAYS {
        for delta in [false, true] {
            let stage = Stage::new(way);
            make_all(&stage.source());
            for (name, length, data) in FILES {
                // An old version without holes, in which a byte is another.
                let old = stage.target().join(name);
                make(&old, length, data);
                let mut bytes = fs::read(&old).unwrap();
                bytes[0] ^= 1;
                bytes.push(1);
                write(old, bytes);
            }
            let options = SyncOptions {
                delta,
                ..SyncOptions::default()
            };
            let result = stage.make_equal(&options);
            assert_eq!(result.tree.files, 12);
            assert!(!delta || result.tree.matched_bytes > MIB, "{result:?}");
            assert_as_hollow(&stage.source(), &stage.target());
        }
    }
}
