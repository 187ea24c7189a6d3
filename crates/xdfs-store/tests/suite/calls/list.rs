//! Listing.

use std::collections::BTreeSet;
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use xdfs_proto::path::FileKind;

use super::*;

#[test]
fn every_kind_is_listed_as_what_it_is() {
    let scene = Scene::new();
    let root = scene.root();
    let _socket = UnixListener::bind(root.join("socket")).unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    scene.done(&symlink("nowhere", "link"));
    std::fs::write(root.join("file"), "x").unwrap();
    let mut expected = vec![
        ("d", FileKind::Directory),
        ("fifo", FileKind::Fifo),
        ("file", FileKind::File),
        ("link", FileKind::Symlink),
        ("socket", FileKind::Socket),
    ];
    // Only root can make devices.
    let made = mknodat(
        CWD,
        root.join("null"),
        FileType::CharacterDevice,
        Mode::RUSR,
        makedev(1, 3),
    );
    if made.is_ok() {
        expected.push(("null", FileKind::CharacterDevice));
        let block = makedev(7, 255);
        mknodat(
            CWD,
            root.join("zloop"),
            FileType::BlockDevice,
            Mode::RUSR,
            block,
        )
        .unwrap();
        expected.push(("zloop", FileKind::BlockDevice));
    }
    expected.sort();
    let (entries, _) = list_all(&scene.store, b"", 100);
    let mut found: Vec<_> = entries
        .iter()
        .map(|e| (str::from_utf8(&e.name).unwrap(), e.attributes.kind))
        .collect();
    found.sort();
    assert_eq!(found, expected);
    for entry in &entries {
        assert_eq!(scene.stat(&entry.name, false).unwrap(), entry.attributes);
    }
    scene.refused(&truncate("fifo", 0), Code::NotRegularFile, "fifo");
    scene.refused(&truncate("socket", 0), Code::NotRegularFile, "socket");
    scene.refused(&copy("fifo", "new", false), Code::NotRegularFile, "fifo");
    scene.refused(&copy("d/file", "fifo", true), Code::NotRegularFile, "fifo");
}

#[test]
fn what_is_no_directory_is_not_listed() {
    let scene = Scene::new();
    scene.refused(&list("d/file"), Code::NotDirectory, "d/file");
    scene.refused(&list("no"), Code::NotFound, "no");
    let none = Call::List {
        path: bytes("d"),
        cursor: Vec::new(),
        entries_max: 0,
    };
    scene.refused(&none, Code::InvalidArgument, "d");
    scene.done(&symlink("d", "link"));
    assert_eq!(list_all(&scene.store, b"link", 5).0.len(), 1);
    scene.done(&make("empty", false));
    assert_eq!(
        list_some(&scene.store, b"empty", Vec::new(), 5),
        (vec![], 1, None)
    );
}

#[test]
fn a_cursor_is_good_for_its_directory_only() {
    let scene = Scene::new();
    for name in ["a/1", "a/2", "b/1", "b/2"] {
        scene.done(&make(name, true));
    }
    let (_, _, cursor) = list_some(&scene.store, b"a", Vec::new(), 1);
    let cursor = cursor.unwrap();
    let with = |path: &str, cursor: &[u8]| Call::List {
        path: bytes(path),
        cursor: cursor.to_vec(),
        entries_max: 9,
    };
    assert_eq!(list_some(&scene.store, b"a", cursor.clone(), 9).0.len(), 1);
    scene.refused(&with("b", &cursor), Code::InvalidArgument, "b");
    for bad in [&cursor[1..], &cursor[..5], b"x", &[0xff; 300], &[cursor[0]]] {
        scene.refused(&with("a", bad), Code::InvalidArgument, "a");
    }
    // A position that nobody gave does no harm.
    let mut wild = cursor.clone();
    let end = wild.len();
    for fill in [0xff, 0x7f, 0x80] {
        wild[end.saturating_sub(8).max(17)..].fill(fill);
        let _ = scene.store.call(&with("a", &wild), &mut |_| Ok(()));
    }
    std::fs::rename(scene.root().join("a"), scene.root().join("old")).unwrap();
    scene.done(&make("a", false));
    scene.refused(&with("a", &cursor), Code::InvalidArgument, "a");
    assert_eq!(list_some(&scene.store, b"old", cursor, 9).0.len(), 1);
}

#[test]
fn who_wants_no_more_gets_no_more() {
    let scene = Scene::new();
    for i in 0..2000 {
        std::fs::write(scene.root().join(format!("d/{i}")), "").unwrap();
    }
    let mut parts = 0;
    let stop = Fault::new(Code::Cancelled, "wait", "nobody listens");
    let result = scene.store.call(&list("d"), &mut |_| {
        parts += 1;
        Err(stop.clone())
    });
    assert_eq!(result.unwrap_err(), stop);
    assert_eq!(parts, 1);
}

/// A directory that is large, listed in many calls, while names come and go.
fn many(dir: &Path, count: usize) {
    let store = rooted(dir);
    for i in 0..count {
        std::fs::File::create(dir.join(format!("stays-{i}"))).unwrap();
    }
    let (entries, parts) = list_all(&store, b"", u32::MAX);
    assert_eq!(entries.len(), count);
    assert!(parts > count / 400, "{parts} parts");
    let unique: BTreeSet<_> = entries.iter().map(|entry| &entry.name).collect();
    assert_eq!(unique.len(), count);
    let (mut seen, mut cursor, mut round) = (BTreeSet::new(), Vec::new(), 0);
    for i in 0..100 {
        std::fs::write(dir.join(format!("goes-{i}")), "").unwrap();
    }
    loop {
        let (entries, _, next) = list_some(&store, b"", cursor, (count / 40) as u32);
        for entry in entries {
            assert!(seen.insert(entry.name.clone()), "{:?} twice", entry.name);
        }
        for i in 0..50 {
            std::fs::write(dir.join(format!("comes-{round}-{i}")), "").unwrap();
        }
        if round < 100 {
            std::fs::remove_file(dir.join(format!("goes-{round}"))).unwrap();
        }
        round += 1;
        match next {
            Some(next) => cursor = next,
            None => break,
        }
        assert!(round < 1000, "the listing doesn't end");
    }
    let stayed = seen.iter().filter(|name| name.starts_with(b"stays-"));
    assert_eq!(stayed.count(), count);
}

#[test]
fn a_large_directory_is_listed_in_parts_while_it_changes() {
    let temp = tempfile::tempdir().unwrap();
    many(temp.path(), 100_000);
}

#[test]
fn so_is_one_in_memory() {
    // Where there is such a file system.
    let Ok(temp) = tempfile::tempdir_in("/dev/shm") else {
        return xdfs_testkit::skip::test("there is no file system in memory");
    };
    many(temp.path(), 20_000);
}

#[test]
fn names_that_vanish_and_change_kind_do_no_harm() {
    let scene = Scene::new();
    let dir = scene.root().join("d");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::sync::atomic::Ordering;
            let path = dir.join("x");
            while !stop.load(Ordering::Relaxed) {
                std::fs::write(&path, "").unwrap();
                std::fs::remove_file(&path).unwrap();
                std::fs::create_dir(&path).unwrap();
                std::fs::remove_dir(&path).unwrap();
            }
        });
        let (mut with, mut without) = (0, 0);
        for _ in 0..1_000_000 {
            match list_all(&scene.store, b"d", 10).0.len() {
                1 => without += 1,
                2 => with += 1,
                other => panic!("{other} entries"),
            }
            if with > 100 && without > 100 {
                break;
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(with > 0 && without > 0);
    });
}
