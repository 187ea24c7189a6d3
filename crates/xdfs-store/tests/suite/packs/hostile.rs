//! Packs that try to get out, and disks that end.

use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;

#[test]
fn nothing_is_written_through_a_link_of_the_tree() {
    let outside = tempfile::tempdir().unwrap();
    let scene = Scene::new();
    let target = path_bytes(outside.path());
    fs::create_dir(scene.path("real")).unwrap();
    let failures = scene.replace(&[
        entry("d", Content::Symlink(target)),
        file("d/x", "x"),
        file("d/e/x", "x"),
        entry("d", Content::Directory),
        entry("d/y", Content::Directory),
        entry("d/z", Content::Fifo),
        file("d/w", "x"),
        // Also one that would stay inside.
        entry("in", Content::Symlink(b"real")),
        file("in/x", "x"),
        entry("out", Content::Symlink(b"../../../../../../etc")),
        entry("stolen", Content::HardLink(b"out/passwd")),
        file("after", "x"),
    ]);
    for number in [1, 2, 4, 5, 6, 8, 10] {
        let fault = failures.of(number).unwrap();
        assert_eq!(fault.code, Code::PathEscape, "{number}: {fault}");
    }
    assert_eq!(failures.of(3).unwrap().code, Code::NotDirectory);
    for number in [0, 7, 9, 11] {
        assert_eq!(failures.of(number), None, "{number}");
    }
    assert!(names(outside.path()).is_empty());
    assert!(names(&scene.path("real")).is_empty());
    assert_eq!(
        names(scene.temp.path()),
        ["after", "d", "in", "out", "real"]
    );
}

/// A link stands where the directory was, between two packs and before one.
#[test]
fn a_directory_that_is_swapped_leads_nowhere_else() {
    let outside = tempfile::tempdir().unwrap();
    let scene = Scene::new();
    assert_done(&scene.write(&[file("d/a", "x")]));
    fs::rename(scene.path("d"), scene.path("moved")).unwrap();
    symlink(outside.path(), scene.path("d")).unwrap();
    for entries in [
        &[file("d/b", "x")][..],
        &[file("d/e/f/b", "x")],
        &[with(entry("d/b", Content::Attributes), mode(0o777))],
        &[entry("x", Content::HardLink(b"d/a"))],
    ] {
        let failures = scene.replace(entries);
        assert_eq!(failures.of(0).unwrap().code, Code::PathEscape);
    }
    // The link itself has attributes, and what it leads to keeps its own.
    let before = fs::metadata(outside.path()).unwrap();
    let times = Metadata {
        mode: Some(0o777),
        mtime_ns: Some(1),
        ..Metadata::default()
    };
    assert_done(&scene.replace(&[with(entry("d", Content::Attributes), times)]));
    let after = fs::metadata(outside.path()).unwrap();
    assert_eq!(before.permissions().mode(), after.permissions().mode());
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    assert!(names(outside.path()).is_empty());
}

#[test]
fn unfinished_transfers_are_out_of_reach() {
    let scene = Scene::new();
    fs::write(scene.path(".f.xdfs-part"), "secret").unwrap();
    let failures = scene.replace(&[
        file(".f.xdfs-part", "x"),
        file(".d.xdfs-journal/f", "x"),
        entry("s", Content::Symlink(b"a/.f.xdfs-part")),
        entry("h", Content::HardLink(b".f.xdfs-part")),
        entry(".e.xdfs-part", Content::Directory),
        with(entry(".f.xdfs-part", Content::Attributes), mode(0o777)),
    ]);
    for number in 0..6 {
        let fault = failures.of(number).unwrap();
        assert_eq!(fault.code, Code::PermissionDenied, "{fault}");
    }
    assert_eq!(names(scene.temp.path()), [".f.xdfs-part"]);
    let limits = Limits::default();
    let answer = scene.read(&[".f.xdfs-part"], Preserve::default());
    let Content::Failed(fault) = &entries(&answer, &limits)[0].content else {
        panic!("it was read");
    };
    assert_eq!(fault.code, Code::PermissionDenied);
}

/// So many entries aren't kept until the end; which of them failed is told all the same.
#[test]
fn thousands_of_entries_that_fail_are_told_by_their_numbers() {
    const MISSING: u32 = 10_000;
    let scene = Scene::new();
    let dir = scene.path("dir");
    fs::create_dir(&dir).unwrap();
    let paths: Vec<_> = (0..MISSING).map(|number| format!("no{number}")).collect();
    let mut entries = vec![file("a", "1")];
    entries.extend(paths.iter().map(|path| entry(path, Content::Attributes)));
    entries.push(file("b", "2"));
    // These fail at once, while the file waits.
    entries.extend(paths.iter().map(|_| file("b/x", "3")));
    entries.push(file("c", "4"));
    let failures = unrooted_pack(&dir, &entries).unwrap();
    let runs = failures.runs().iter();
    let runs: Vec<_> = runs.map(|r| (r.first, r.count, r.fault.code)).collect();
    let wanted = [
        (1, MISSING, Code::NotFound),
        (MISSING + 2, MISSING, Code::NotDirectory),
    ];
    assert_eq!(runs, wanted);
    assert_eq!(names(&dir), ["a", "b", "c"]);
}

/// Only who may mount can see this.
#[test]
fn a_full_disk_ends_the_pack() {
    let scene = Scene::new();
    let dir = scene.path("small");
    fs::create_dir(&dir).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "none"])
        .arg(&dir)
        .output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        return xdfs_testkit::skip::test("this user can't mount");
    }
    let big = "x".repeat(30_000);
    let bytes = pack(&[
        file("a", &big),
        file("b", &big),
        file("c", &big),
        file("d", "x"),
        entry("e", Content::Directory),
    ]);
    let result = LocalStore::unrooted().write_pack(path_bytes(&dir), REPLACE, &bytes);
    let left = names(&dir);
    let unmounted = Command::new("umount").arg(&dir).status().unwrap();
    assert!(unmounted.success());
    let failures = result.unwrap();
    let runs = failures.runs();
    assert_eq!((runs[0].first, runs[0].count, runs.len()), (2, 3, 1));
    assert_eq!(runs[0].fault.code, Code::NoSpace);
    assert_eq!(left, ["a", "b"]);
}
