//! Calls that change names, attributes and content.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink as link_to};

use xdfs_proto::path::FileKind;

use super::*;

fn with_mode(path: &str, mode: u32, parents: bool) -> Call {
    Call::MakeDirectory {
        path: bytes(path),
        mode: Some(mode),
        parents,
    }
}

#[test]
fn directories_are_made_with_the_mode_that_was_asked_for() {
    let scene = Scene::new();
    for (name, mode) in [
        ("a", 0o700),
        ("b", 0o777),
        ("c", 0o1777),
        ("e", 0o311),
        ("f", 0),
    ] {
        scene.done(&with_mode(name, mode, false));
        assert_eq!(scene.stat(name, false).unwrap().mode, mode, "{name}");
    }
    scene.done(&with_mode("x/y/z/", 0o750, true));
    assert_eq!(scene.stat("x/y/z", false).unwrap().mode, 0o750);
    let default = scene.stat("x/y", false).unwrap().mode;
    scene.done(&make("plain", false));
    assert_eq!(scene.stat("plain", false).unwrap().mode, default);
    scene.refused(&with_mode("g", 0o10000, false), Code::InvalidArgument, "g");
    // The group of the directory goes on.
    scene.done(&set_mode("d", 0o2755));
    scene.done(&with_mode("d/inside", 0o750, false));
    assert_eq!(scene.stat("d/inside", false).unwrap().mode, 0o2750);
}

#[test]
fn a_directory_that_is_there_is_fine_only_with_parents() {
    let scene = Scene::new();
    for path in ["d", "d/", "/d//"] {
        scene.refused(&make(path, false), Code::AlreadyExists, path);
        scene.done(&make(path, true));
    }
    for path in ["d/file", "d/file/"] {
        scene.refused(&make(path, false), Code::AlreadyExists, path);
        scene.refused(&make(path, true), Code::AlreadyExists, path);
    }
    scene.refused(&make("no/new", false), Code::NotFound, "no/new");
    for parents in [false, true] {
        scene.refused(&make("d/file/x", parents), Code::NotDirectory, "d/file/x");
        scene.refused(
            &make("d/file/x/y", parents),
            Code::NotDirectory,
            "d/file/x/y",
        );
    }
    scene.done(&make("p/./q//r/.", true));
    assert_eq!(
        scene.stat("p/q/r", false).unwrap().kind,
        FileKind::Directory
    );
    // Links to directories are passed; one that leads nowhere is in the way.
    link_to("d", scene.root().join("link")).unwrap();
    link_to("nowhere", scene.root().join("broken")).unwrap();
    scene.done(&make("link/new/er", true));
    assert!(scene.root().join("d/new/er").is_dir());
    for path in ["broken", "broken/x"] {
        assert!(scene.call(&make(path, true)).is_err());
    }
    scene.refused(&make("broken", false), Code::AlreadyExists, "broken");
    assert!(!exists(&scene.root().join("nowhere")));
}

#[test]
fn files_and_directories_are_removed_by_calls_of_their_own() {
    let scene = Scene::new();
    link_to("d", scene.root().join("link")).unwrap();
    scene.refused(&remove_file("d"), Code::IsDirectory, "d");
    scene.refused(&remove_file("d/"), Code::IsDirectory, "d/");
    scene.refused(&remove_file("d/file/"), Code::NotDirectory, "d/file/");
    scene.refused(&remove_directory("d/file"), Code::NotDirectory, "d/file");
    scene.refused(&remove_directory("link"), Code::NotDirectory, "link");
    scene.refused(&remove_directory("link/"), Code::NotDirectory, "link/");
    scene.refused(&remove_directory("d"), Code::NotEmpty, "d");
    for path in ["no", "no/no", "d/no"] {
        scene.refused(&remove_file(path), Code::NotFound, path);
        scene.refused(&remove_directory(path), Code::NotFound, path);
    }
    scene.done(&remove_file("d/file"));
    scene.done(&remove_file("link"));
    scene.done(&remove_directory("/d/"));
    assert_eq!(names(&scene.root()), [""; 0]);
}

/// Who is killed right after a file got its name leaves the journal. Nobody sees it.
#[test]
fn a_directory_with_nothing_but_journals_is_removed() {
    let scene = Scene::new();
    let journals = ["d/.file.xdfs-journal", "d/.file.xdfs-journal-new"];
    let put_back = || {
        for journal in journals {
            std::fs::write(scene.root().join(journal), b"left").unwrap();
        }
    };
    put_back();
    scene.refused(&remove_directory("d"), Code::NotEmpty, "d");
    scene.done(&remove_file("d/file"));
    // What an unfinished transfer has stays.
    let partial = scene.root().join("d/.file.xdfs-part");
    std::fs::write(&partial, b"left").unwrap();
    scene.refused(&remove_directory("d"), Code::NotEmpty, "d");
    assert_eq!(names(&scene.root().join("d")).len(), 3);
    std::fs::remove_file(&partial).unwrap();
    put_back();
    scene.done(&remove_directory("d"));
    assert_eq!(names(&scene.root()), [""; 0]);
}

/// Who is killed while a pack is written leaves what has no name yet. It is of no use to anybody.
#[test]
fn a_directory_with_nothing_but_what_packs_left_is_removed() {
    let scene = Scene::new();
    let at = |name: &str| scene.root().join("d").join(name);
    scene.done(&remove_file("d/file"));
    let part = at(".0123456789abcdef-1.xdfs-part");
    let journal = at(".0123456789abcdef-1.xdfs-journal");
    std::fs::write(&part, b"left").unwrap();
    std::fs::set_permissions(&part, PermissionsExt::from_mode(0o400)).unwrap();
    link_to("file", at(".0123456789abcdef-2.xdfs-part")).unwrap();
    std::fs::write(at(".other.xdfs-journal"), b"left").unwrap();
    // One that is written.
    let writer = std::fs::File::open(&part).unwrap();
    writer.try_lock().unwrap();
    scene.refused(&remove_directory("d"), Code::NotEmpty, "d");
    writer.unlock().unwrap();
    // That of a transfer of a large file.
    std::fs::write(&journal, b"left").unwrap();
    scene.refused(&remove_directory("d"), Code::NotEmpty, "d");
    assert_eq!(names(&at("")).len(), 4);
    std::fs::remove_file(&journal).unwrap();
    scene.done(&remove_directory("d"));
    assert_eq!(names(&scene.root()), [""; 0]);
}

#[test]
fn renaming_keeps_or_replaces_what_is_there() {
    let scene = Scene::new();
    scene.done(&make("e/full", true));
    scene.done(&make("empty", false));
    std::fs::write(scene.root().join("other"), "other").unwrap();
    for to in ["other", "e", "d/file"] {
        scene.refused(&rename("d/file", to, false), Code::AlreadyExists, to);
    }
    scene.refused(&rename("d/file", "e", true), Code::IsDirectory, "e");
    scene.refused(&rename("e", "other", true), Code::NotDirectory, "other");
    scene.refused(&rename("d", "e", true), Code::NotEmpty, "e");
    scene.refused(&rename("no", "x", true), Code::NotFound, "no");
    scene.refused(&rename("d/file", "no/x", true), Code::NotFound, "no/x");
    scene.refused(&rename("d/file", "x/", false), Code::NotDirectory, "d/file");
    for overwrite in [true, false] {
        let into = rename("e", "e/full/x", overwrite);
        scene.refused(&into, Code::InvalidArgument, "e/full/x");
    }
    scene.done(&rename("d/file", "other", true));
    assert_eq!(
        std::fs::read(scene.root().join("other")).unwrap(),
        b"public"
    );
    scene.done(&rename("other", "/e/full/moved", false));
    scene.done(&rename("e", "empty/", true));
    assert!(exists(&scene.root().join("empty/full/moved")));
    assert_eq!(names(&scene.root()), ["d", "empty"]);
}

#[test]
fn a_copy_appears_whole_and_with_its_mode() {
    let scene = Scene::new();
    let content = pattern(3_000_000);
    let file = scene.root().join("big");
    std::fs::write(&file, &content).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o4751)).unwrap();
    let bytes = content.len() as u64;
    assert_eq!(
        scene.call(&copy("big", "d/new", false)).unwrap(),
        Answer::Copied { bytes }
    );
    assert_eq!(std::fs::read(scene.root().join("d/new")).unwrap(), content);
    assert_eq!(scene.stat("d/new", false).unwrap().mode, 0o751);
    assert_eq!(names(&scene.root().join("d")), ["file", "new"]);
    scene.refused(&copy("big", "d/file", false), Code::AlreadyExists, "d/file");
    scene.refused(&copy("big", "d", true), Code::IsDirectory, "d");
    scene.refused(&copy("d", "x", true), Code::IsDirectory, "d");
    scene.refused(&copy("no", "x", true), Code::NotFound, "no");
    scene.refused(&copy("big", "no/x", true), Code::NotFound, "no/x");
    scene.call(&copy("d/file", "d/new", true)).unwrap();
    assert_eq!(
        std::fs::read(scene.root().join("d/new")).unwrap(),
        b"public"
    );
    // Onto itself.
    scene.call(&copy("big", "big", true)).unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), content);
    // Two at once don't mix.
    let mut transfer = scene.store.open_sink(&request("busy")).unwrap();
    save(&mut transfer, 0, &[1; 4096]);
    scene.refused(&copy("big", "busy", false), Code::Busy, "busy");
}

#[test]
fn holes_stay_holes_in_a_copy() {
    let scene = Scene::new();
    let sparse = std::fs::File::create(scene.root().join("sparse")).unwrap();
    sparse.set_len(100 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 50 << 20).unwrap();
    let copied = scene.call(&copy("sparse", "copy", false)).unwrap();
    assert_eq!(copied, Answer::Copied { bytes: 100 << 20 });
    let found = scene.stat("copy", false).unwrap();
    assert_eq!(found.size, 100 << 20);
    assert!(found.allocated < 10 << 20, "{} bytes", found.allocated);
    let digest = |path| scene.call(&look::checksum(path, 0, None)).unwrap();
    assert_eq!(digest("sparse"), digest("copy"));
}

#[test]
fn files_have_further_names_and_directories_have_none() {
    let scene = Scene::new();
    scene.done(&link("d/file", "again"));
    let (one, other) = (scene.stat("again", false), scene.stat("d/file", false));
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(scene.stat("again", false).unwrap().links, 2);
    scene.refused(&link("d", "e"), Code::IsDirectory, "d");
    scene.refused(&link("no", "e"), Code::NotFound, "no");
    scene.refused(&link("d/file", "again"), Code::AlreadyExists, "again");
    scene.refused(&link("d/file", "no/x"), Code::NotFound, "no/x");
    scene.refused(&link("d/file", "x/"), Code::NotDirectory, "x/");
    scene.done(&symlink("d/file", "link"));
    scene.done(&link("link", "link-too"));
    assert_eq!(
        scene.stat("link-too", false).unwrap().kind,
        FileKind::Symlink
    );
    scene.refused(&symlink("x", "again"), Code::AlreadyExists, "again");
    scene.refused(&symlink("", "x"), Code::InvalidArgument, "x");
    scene.refused(&symlink("a\0b", "x"), Code::InvalidArgument, "x");
    scene.refused(&symlink("t", "x/"), Code::NotDirectory, "x/");
    scene.refused(&symlink("t".repeat(5000), "x"), Code::NameTooLong, "x");
}

#[test]
fn attributes_are_set() {
    let scene = Scene::new();
    scene.done(&symlink("d/file", "link"));
    scene.done(&set_mode("link", 0o604));
    assert_eq!(scene.stat("d/file", false).unwrap().mode, 0o604);
    scene.done(&set_mode("d", 0o1700));
    assert_eq!(scene.stat("d", false).unwrap().mode, 0o1700);
    for mode in [0o4755, 0o2755, 0o6000] {
        scene.refused(&set_mode("d/file", mode), Code::PermissionDenied, "d/file");
    }
    scene.refused(&set_mode("d", 0o10000), Code::InvalidArgument, "d");
    scene.refused(&set_mode("no", 0o600), Code::NotFound, "no");

    for time in [0, 1, -1, -1_500_000_000, 1_700_000_000_123_456_789] {
        scene.done(&set_times("link", [Some(time), None], true));
        scene.done(&set_times("link", [None, Some(time)], true));
        scene.done(&set_times("link", [Some(7), Some(8)], false));
        let found = scene.stat("d/file", false).unwrap();
        assert_eq!((found.atime_ns, found.mtime_ns), (time, time));
        assert_eq!(scene.stat("link", false).unwrap().mtime_ns, 8);
    }
    scene.done(&set_times("d/", [Some(1), Some(2)], false));
    assert_eq!(scene.stat("d", false).unwrap().mtime_ns, 2);
    scene.refused(&set_times("no", [None, None], true), Code::NotFound, "no");

    let gid = std::fs::metadata(scene.root()).unwrap().gid();
    scene.done(&set_owner("link", [None, Some(gid)], true));
    scene.refused(
        &set_owner("link", [Some(u32::MAX), None], true),
        Code::InvalidArgument,
        "link",
    );
    if xdfs_testkit::nobody::is_root() {
        scene.done(&set_owner("link", [Some(12345), Some(54321)], false));
        let found = scene.stat("link", false).unwrap();
        assert_eq!((found.uid, found.gid), (12345, 54321));
        assert_eq!(scene.stat("d/file", false).unwrap().uid, 0);
        scene.done(&set_owner("link", [Some(12345), None], true));
        let found = scene.stat("d/file", false).unwrap();
        assert_eq!((found.uid, found.gid), (12345, gid));
    } else {
        xdfs_testkit::skip::part("only root gives files away");
    }
}

#[test]
fn lengths_are_set_of_regular_files_only() {
    let scene = Scene::new();
    let file = scene.root().join("d/file");
    scene.done(&truncate("d/file", 3));
    assert_eq!(std::fs::read(&file).unwrap(), b"pub");
    scene.done(&truncate("d/file", 5));
    assert_eq!(std::fs::read(&file).unwrap(), b"pub\0\0");
    scene.refused(&truncate("d", 0), Code::IsDirectory, "d");
    scene.refused(&truncate("no", 0), Code::NotFound, "no");
    assert!(scene.call(&truncate("d/file", u64::MAX)).is_err());
    assert_eq!(scene.stat("d/file", false).unwrap().size, 5);
}

/// Somebody swaps a directory and a link that leads out while calls go through it.
#[test]
fn a_link_swapped_during_a_call_wins_nothing() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let scene = Scene::new();
    let outside = scene.temp.path().join("outside");
    std::fs::create_dir_all(outside.join("sub/sub")).unwrap();
    std::fs::write(outside.join("file"), "secret").unwrap();
    link_to(&outside, scene.root().join("evil")).unwrap();
    std::fs::create_dir(scene.root().join("pile")).unwrap();
    let stop = AtomicBool::new(false);
    let (mut done, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            let (name, evil) = (scene.root().join("d"), scene.root().join("evil"));
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &name, CWD, &evil, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for round in 0..300_000 {
            if round >= 2000 && done > 100 && refused > 100 {
                break;
            }
            for call in [
                make(format!("d/new-{round}"), false),
                make("d/sub/deep", true),
                set_mode("d/file", 0o640),
                truncate("d/file", 6),
                set_times("d/file", [None, Some(1)], false),
                rename("d/file", "d/file-2", true),
                rename("d/file-2", "d/file", true),
                remove_tree("d/sub"),
                remove_directory(format!("d/new-{round}")),
            ] {
                match scene.call(&call) {
                    Ok(_) => done += 1,
                    Err(_) => refused += 1,
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(
        done > 0 && refused > 0,
        "no race: {done} done, {refused} refused"
    );
    assert_eq!(names(&outside), ["file", "sub"]);
    assert_eq!(names(&outside.join("sub")), ["sub"]);
    let meta = std::fs::metadata(outside.join("file")).unwrap();
    assert_eq!(meta.len(), 6);
    assert_ne!(meta.mtime(), 0);
}
