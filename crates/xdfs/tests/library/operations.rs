//! Operations of the library on both sides: a tree of this machine, and the same one on a server.

use std::path::Path;
use std::sync::Arc;

use xdfs::operations::{
    Find, FindOptions, FindStep, FindTests, PathSide, SidePath, WalkOptions, WalkStep,
};
use xdfs::{Code, FileKind, NamePattern};

use crate::support::{self, Folders, Serving};

/// Makes the same small tree on both sides.
fn make_trees(folders: &Folders) {
    for root in [folders.here("tree"), folders.there("tree")] {
        make_tree(&root);
    }
}

fn make_tree(root: &Path) {
    std::fs::create_dir_all(root.join("a/deep")).unwrap();
    std::fs::create_dir(root.join("empty")).unwrap();
    for (name, content) in [
        ("one.dat", "1"),
        ("two.txt", "22"),
        ("a/three.dat", "333"),
        ("a/deep/four.dat", ""),
    ] {
        std::fs::write(root.join(name), content).unwrap();
    }
}

/// The tree here, and the one at the server.
fn both_sides(folders: &Folders, server: &Serving) -> [SidePath; 2] {
    let here = folders.here("tree");
    let client = Arc::new(support::client(server.addr, |_| {}));
    [
        SidePath::new(PathSide::Local, here.as_os_str().as_encoded_bytes()),
        SidePath::new(PathSide::Remote(client), b"/tree/"),
    ]
}

fn text(path: &[u8]) -> String {
    String::from_utf8(path.to_vec()).unwrap()
}

/// The paths that a search finds, relative to its start.
fn found(root: &SidePath, tests: FindTests) -> Vec<String> {
    let options = FindOptions {
        tests,
        ..FindOptions::default()
    };
    let steps = Find::new(root, &options).unwrap();
    let mut paths: Vec<String> = steps
        .filter_map(|step| match step {
            FindStep::Found(entry) => Some(text(root.relative(&entry.path))),
            FindStep::Other => None,
            other => panic!("{other:?}"),
        })
        .collect();
    paths.sort();
    paths
}

#[test]
fn trees_are_walked_alike_on_both_sides() {
    let folders = Folders::new(3601);
    make_trees(&folders);
    let server = Serving::start(&folders.root(), |_| {});
    for root in both_sides(&folders, &server) {
        let options = WalkOptions {
            sorted: true,
            ..WalkOptions::default()
        };
        let walk = root.walk(root.stat(true).unwrap(), options);
        let steps: Vec<String> = walk
            .map(|step| match step {
                WalkStep::Entry(entry) => text(root.relative(&entry.path)),
                WalkStep::Left(entry) => format!("left {}", text(root.relative(&entry.path))),
                WalkStep::Failed(fault) => panic!("{fault}"),
            })
            .collect();
        let wanted = [
            "",
            "a",
            "a/deep",
            "a/deep/four.dat",
            "left a/deep",
            "a/three.dat",
            "left a",
            "empty",
            "left empty",
            "one.dat",
            "two.txt",
            "left ",
        ];
        assert_eq!(steps, wanted, "{:?}", root.side);
    }
}

#[test]
fn entries_are_found_by_tests_and_removed() {
    let folders = Folders::new(3602);
    make_trees(&folders);
    let server = Serving::start(&folders.root(), |_| {});
    for root in both_sides(&folders, &server) {
        let of_name = FindTests {
            name: Some(NamePattern::new(b"*.dat")),
            ..FindTests::default()
        };
        let dat = ["a/deep/four.dat", "a/three.dat", "one.dat"];
        assert_eq!(found(&root, of_name.clone()), dat);
        let large = FindTests {
            kind: Some(FileKind::File),
            size: Some("+1c".parse().unwrap()),
            ..FindTests::default()
        };
        assert_eq!(found(&root, large), ["a/three.dat", "two.txt"]);

        let delete = FindOptions {
            tests: of_name.clone(),
            delete: true,
            ..FindOptions::default()
        };
        // A search that is stopped removes nothing.
        let mut stopped = Find::new(&root, &delete).unwrap();
        stopped.stop();
        assert!(stopped.next().is_none());
        assert_eq!(found(&root, of_name.clone()), dat);

        let removed = Find::new(&root, &delete).unwrap();
        let removed: Vec<String> = removed
            .filter_map(|step| match step {
                FindStep::Removed(path) => Some(text(root.relative(&path))),
                FindStep::Other => None,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(removed.len(), 3, "{removed:?}");
        assert!(found(&root, of_name).is_empty());

        // Directories go after their contents, and one that keeps something stays.
        let directories = FindOptions {
            tests: FindTests {
                kind: Some(FileKind::Directory),
                ..FindTests::default()
            },
            delete: true,
            ..FindOptions::default()
        };
        let (mut removed, mut failed) = (Vec::new(), Vec::new());
        for step in Find::new(&root, &directories).unwrap() {
            match step {
                FindStep::Removed(path) => removed.push(text(root.relative(&path))),
                FindStep::Failed(fault) => failed.push(fault.code),
                FindStep::Other => {}
                FindStep::Found(entry) => panic!("{entry:?}"),
            }
        }
        removed.sort();
        assert_eq!(removed, ["a", "a/deep", "empty"]);
        assert_eq!(failed, [Code::NotEmpty]);
        assert_eq!(found(&root, FindTests::default()), ["", "two.txt"]);
    }
}
