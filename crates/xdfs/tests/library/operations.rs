//! Operations of the library on both sides: a tree of this machine, and the same one on a server.

use std::path::Path;
use std::sync::Arc;

use xdfs::operations::{
    Check, CheckOptions, CheckStep, Find, FindOptions, FindStep, FindTests, Matched, PathSide,
    Removal, RemovalEvent, SidePath, SumCheck, SumStep, SumTree, WalkOptions, WalkStep,
    matching_paths, pattern_of_url,
};
use xdfs::record::CheckCounts;
use xdfs::{ChecksumKind, Code, Fault, FileKind, Filter, FilterRule, NamePattern, Side};

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

/// The differences of two trees, and the numbers of entries.
fn differences(roots: [&SidePath; 2], options: &CheckOptions) -> (Vec<String>, CheckCounts) {
    let attributes = roots.map(|root| root.stat(true).unwrap());
    let mut check = Check::new(roots, attributes, options).unwrap();
    let mut differences = Vec::new();
    for step in &mut check {
        match step {
            CheckStep::Equal => {}
            CheckStep::Different(entry) => {
                let is_in = [&entry.source, &entry.target].map(Option::is_some);
                differences.push(format!("{} {is_in:?}", text(&entry.path)));
            }
            CheckStep::Failed(end, fault) => panic!("{end:?} {fault}"),
        }
    }
    (differences, check.counts())
}

#[test]
fn trees_are_compared_across_sides() {
    let folders = Folders::new(3603);
    make_trees(&folders);
    let server = Serving::start(&folders.root(), |_| {});
    let [here, there] = both_sides(&folders, &server);
    let options = CheckOptions::default();
    let (different, counts) = differences([&here, &there], &options);
    assert!(different.is_empty(), "{different:?}");
    assert_eq!((counts.equal, counts.equal_bytes), (7, 6));
    assert!(!counts.is_different());

    // Of one size, and another content.
    std::fs::write(folders.there("tree/one.dat"), "9").unwrap();
    std::fs::write(folders.there("tree/new.dat"), "").unwrap();
    std::fs::remove_file(folders.there("tree/two.txt")).unwrap();
    let (different, counts) = differences([&here, &there], &options);
    let wanted = [
        "new.dat [false, true]",
        "one.dat [true, true]",
        "two.txt [true, false]",
    ];
    assert_eq!(different, wanted);
    assert_eq!((counts.differs, counts.missing, counts.extra), (1, 1, 1));

    let options = CheckOptions {
        filter: Filter::new(&[FilterRule::Exclude("*.dat".into())]).unwrap(),
        ..options
    };
    let (different, _) = differences([&here, &there], &options);
    assert_eq!(different, ["two.txt [true, false]"]);

    // A file is no tree.
    let file = SidePath::new(here.side.clone(), &[&here.path[..], b"/one.dat"].concat());
    let attributes = [&file, &there].map(|root| root.stat(true).unwrap());
    let fault = Check::new([&file, &there], attributes, &options).unwrap_err();
    assert_eq!(
        (fault.code, &*fault.path),
        (Code::NotDirectory, &*file.path)
    );
}

#[test]
fn digests_are_computed_and_checked_on_both_sides() {
    let folders = Folders::new(3604);
    make_trees(&folders);
    let server = Serving::start(&folders.root(), |_| {});
    let mut lists = Vec::new();
    for root in both_sides(&folders, &server) {
        let steps = SumTree::new(&root, root.stat(true).unwrap(), ChecksumKind::Sha256);
        let mut list = Vec::new();
        for step in steps {
            let sum = match step {
                SumStep::Sum(sum) => sum,
                SumStep::Failed(fault) => panic!("{fault}"),
            };
            let (value, _) = sum.digest.unwrap();
            let name = root.relative(&sum.path);
            list.extend_from_slice(&[value.hex().as_bytes(), b"  ", name, b"\n"].concat());
        }
        lists.push(text(&list));
    }
    // printf 1 | sha256sum
    let one = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b  one.dat\n";
    assert!(lists[0].contains(one), "{}", lists[0]);
    assert_eq!(lists[0], lists[1]);

    std::fs::write(folders.there("tree/one.dat"), "9").unwrap();
    std::fs::remove_file(folders.there("tree/two.txt")).unwrap();
    let [_, there] = both_sides(&folders, &server);
    let mut check = SumCheck::new(&there, lists[0].as_bytes(), b"list", ChecksumKind::Sha256);
    let found: Vec<(String, Option<bool>)> = (&mut check)
        .map(|sum| {
            let sum = sum.unwrap();
            (text(&sum.name), sum.matches())
        })
        .collect();
    let wanted = [
        ("a/deep/four.dat", Some(true)),
        ("a/three.dat", Some(true)),
        ("one.dat", Some(false)),
        ("two.txt", None),
    ];
    assert_eq!(found, wanted.map(|(name, is_it)| (name.to_owned(), is_it)));
    assert_eq!(check.lines_read(), 4);

    // A list of another kind ends at once, and so does one without lines.
    for list in [lists[0].as_str(), ""] {
        let mut check = SumCheck::new(&there, list.as_bytes(), b"list", ChecksumKind::Md5);
        let fault = check.next().unwrap().unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{fault}");
        assert!(check.next().is_none());
    }
}

#[test]
fn sources_are_removed_where_the_target_has_the_same() {
    let folders = Folders::new(3605);
    make_trees(&folders);
    let server = Serving::start(&folders.root(), |_| {});
    std::fs::write(folders.there("tree/one.dat"), "9").unwrap();
    let [source, target] = both_sides(&folders, &server);
    let removal = Removal { source, target };
    let filter = Filter::new(&[FilterRule::Exclude("two.*".into())]).unwrap();
    let events = |is_cancelled: bool| {
        let mut events = Vec::new();
        removal.run(&filter, &|| is_cancelled, &mut |event| {
            events.push(match event {
                RemovalEvent::Removed { name } => format!("removed {}", text(name)),
                RemovalEvent::Stays { name, fault } => {
                    format!("{} stays: {}", text(name), fault.code)
                }
                other => panic!("{other:?}"),
            });
        });
        events.sort();
        events
    };
    assert!(events(true).is_empty());
    let wanted = [
        "one.dat stays: integrity-mismatch",
        "removed a/deep/four.dat",
        "removed a/three.dat",
    ];
    assert_eq!(events(false), wanted);
    assert!(folders.here("tree/one.dat").exists() && folders.here("tree/two.txt").exists());
    assert!(folders.here("tree/a/deep").is_dir() && !folders.here("tree/a/three.dat").exists());

    // A source that is its own target stays.
    let only = Removal {
        source: removal.target.clone(),
        target: removal.target.clone(),
    };
    only.run(&Filter::default(), &|| false, &mut |event| match event {
        RemovalEvent::Stays { fault, .. } => assert!(fault.cause.contains("one file"), "{fault}"),
        other => panic!("{other:?}"),
    });
    assert_eq!(std::fs::read(folders.there("tree/one.dat")).unwrap(), b"9");
}

#[test]
fn patterns_stand_for_the_paths_of_a_server() {
    let folders = Folders::new(3606);
    make_trees(&folders);
    std::fs::write(folders.there("tree/[x].dat"), "").unwrap();
    let server = Serving::start(&folders.root(), |_| {});
    let client = support::client(server.addr, |_| {});
    let matching = |url: &str| {
        let pattern = pattern_of_url(url).unwrap();
        let path = url.strip_prefix("xdfs://h").unwrap();
        let unlisted = &mut |fault: &Fault| panic!("{fault}");
        matching_paths(
            &client,
            path.as_bytes(),
            &pattern,
            Matched::Entries,
            unlisted,
        )
    };
    let found = |url: &str| {
        let paths = matching(url).unwrap().unwrap();
        paths.iter().map(|path| text(path)).collect::<Vec<_>>()
    };
    let dat = ["/tree/[x].dat", "/tree/one.dat"];
    assert_eq!(found("xdfs://h/tree/*.dat"), dat);
    assert_eq!(found("xdfs://h/*/a/*.dat"), ["/tree/a/three.dat"]);
    assert_eq!(found("xdfs://h/tree/%5Bx%5D*"), ["/tree/[x].dat"]);
    // A name that is there as it is written is no pattern.
    assert_eq!(matching("xdfs://h/tree/[x].dat").unwrap(), None);
    let fault = matching("xdfs://h/tree/*.none").unwrap_err();
    assert_eq!((fault.code, fault.side), (Code::NotFound, Side::Remote));
}
