//! Calls that look at one thing, and paths that no call takes.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink as link_to};
use std::os::unix::net::UnixListener;

use xdfs_proto::digest::{ChecksumKind, ChecksumValue};
use xdfs_proto::path::{Account, FileKind};

use super::*;

pub(super) fn checksum(path: impl AsRef<[u8]>, offset: u64, length: Option<u64>) -> Call {
    Call::Checksum {
        path: bytes(path),
        offset,
        length,
        kind: ChecksumKind::Blake3,
    }
}

#[test]
fn what_stands_under_a_path_is_told() {
    let scene = Scene::new();
    let file = scene.root().join("d/file");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    link_to("d/file", scene.root().join("link")).unwrap();
    let meta = std::fs::metadata(&file).unwrap();
    for (path, follow) in [("d/file", false), ("/d//./file", true), ("link", true)] {
        let found = scene.stat(path, follow).unwrap();
        assert_eq!(found.kind, FileKind::File);
        assert_eq!((found.size, found.mode, found.links), (6, 0o640, 1));
        assert_eq!((found.uid, found.gid), (meta.uid(), meta.gid()));
        assert_eq!((found.device, found.inode), (meta.dev(), meta.ino()));
        assert_eq!(found.allocated, meta.blocks() * 512);
        let ns = |seconds: i64, ns: i64| seconds * 1_000_000_000 + ns;
        assert_eq!(found.mtime_ns, ns(meta.mtime(), meta.mtime_nsec()));
        assert_eq!(found.ctime_ns, ns(meta.ctime(), meta.ctime_nsec()));
        assert_eq!(found.atime_ns, ns(meta.atime(), meta.atime_nsec()));
    }
    let found = scene.stat("link", false).unwrap();
    assert_eq!((found.kind, found.size), (FileKind::Symlink, 6));
    for path in ["", "/", ".", "d", "d/", "d/..", "d/."] {
        for follow in [true, false] {
            let kind = scene.stat(path, follow).unwrap().kind;
            assert_eq!(kind, FileKind::Directory, "{path}");
        }
    }
    for follow in [true, false] {
        for path in ["no", "no/no", "d/no"] {
            scene.refused(&stat(path, follow), Code::NotFound, path);
        }
        for path in ["d/file/", "d/file/x"] {
            scene.refused(&stat(path, follow), Code::NotDirectory, path);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn accounts_are_those_of_this_system() {
    let scene = Scene::new();
    let look_up = |path: &str, accounts: &[Account]| Call::LookUp {
        path: bytes(path),
        accounts: accounts.to_vec(),
    };
    let named = |name: &str| Account::UserNamed(name.into());
    let asked = [
        Account::User(0),
        Account::Group(0xdead_beef),
        named("root"),
        named("no such user"),
        named("0"),
        Account::GroupNamed("root".into()),
        Account::User(u32::MAX),
        Account::User(0),
    ];
    let found = [
        Some(named("root")),
        None,
        Some(Account::User(0)),
        None,
        None,
        Some(Account::Group(0)),
        None,
        Some(named("root")),
    ];
    for path in ["", "/", "d", "none"] {
        let answer = scene.call(&look_up(path, &asked)).unwrap();
        assert_eq!(answer, Answer::Accounts(found.to_vec()), "{path}");
    }
    let hidden = ".f.xdfs-part";
    scene.refused(&look_up(hidden, &asked), Code::PermissionDenied, hidden);
}

#[test]
fn paths_that_lead_out_are_refused_by_every_call() {
    let scene = Scene::new();
    let root = scene.root();
    link_to(scene.temp.path(), root.join("top")).unwrap();
    link_to("..", root.join("up")).unwrap();
    link_to("loop", root.join("loop")).unwrap();
    link_to("circle-b", root.join("circle-a")).unwrap();
    link_to("circle-a", root.join("circle-b")).unwrap();
    for path in [
        "..",
        "../secret",
        "/../secret",
        "d/../../secret",
        concat!("d/../../", "root", "/d/file"),
        "top/secret",
        "top/new",
        "up/secret",
        "loop/x",
        "circle-a/x",
        "up/.",
    ] {
        for call in every(path.as_bytes()) {
            let fault = scene.call(&call).unwrap_err();
            assert_eq!(fault.code, Code::PathEscape, "{call:?}: {fault}");
            assert_eq!(fault.path, path.as_bytes(), "{call:?}");
        }
    }
    // With a '/' at its end a link is what it leads to, except for what changes the link itself.
    for call in [
        stat("top/", false),
        list("top/"),
        make("top/", true),
        set_mode("top/", 0),
    ] {
        scene.refused(&call, Code::PathEscape, "top/");
    }
    assert_eq!(names(&root).len(), 6);
    scene.assert_outside_is_whole();
}

#[test]
fn a_link_that_leads_out_can_be_looked_at_and_removed_but_not_followed() {
    let scene = Scene::new();
    let secret = scene.temp.path().join("secret");
    let before = std::fs::metadata(&secret).unwrap();
    for (i, target) in [path_bytes(&secret), b"../secret", b"loop"]
        .iter()
        .enumerate()
    {
        let path = if i == 2 {
            "loop".into()
        } else {
            format!("link-{i}")
        };
        scene.done(&symlink(target, &path));
        assert_eq!(scene.stat(&path, false).unwrap().kind, FileKind::Symlink);
        assert_eq!(
            scene.call(&read_link(&path)).unwrap(),
            Answer::Target(target.to_vec())
        );
        scene.done(&set_times(&path, [Some(5), Some(6)], false));
        assert_eq!(scene.stat(&path, false).unwrap().mtime_ns, 6);
        scene.done(&set_owner(&path, [None, None], false));
        for call in [
            stat(&path, true),
            set_mode(&path, 0o777),
            set_times(&path, [None, Some(1)], true),
            set_owner(&path, [Some(1), Some(1)], true),
            truncate(&path, 0),
            space(&path),
            checksum(&path, 0, None),
            copy(&path, "copied", false),
        ] {
            scene.refused(&call, Code::PathEscape, &path);
        }
        scene.done(&rename(&path, "moved", false));
        scene.done(&remove_file("moved"));
    }
    let after = std::fs::metadata(&secret).unwrap();
    assert_eq!(after.ctime_nsec(), before.ctime_nsec());
    scene.assert_outside_is_whole();
}

#[test]
fn bytes_that_no_path_has_and_names_too_long_are_refused() {
    let scene = Scene::new();
    for call in every(b"a\0b") {
        let fault = scene.call(&call).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{call:?}");
    }
    let long = "n".repeat(256);
    let deep = "d/".repeat(3000) + "file";
    for path in [long, deep] {
        for call in every(path.as_bytes()) {
            let fault = scene.call(&call).unwrap_err();
            assert_eq!(fault.code, Code::NameTooLong, "{call:?}: {fault}");
        }
    }
    let unrooted = LocalStore::unrooted();
    let mut calls = every(b"");
    // The file of the scene stands elsewhere here.
    calls.retain(|call| call.path().is_empty() && !matches!(call, Call::Link { .. }));
    calls.push(link(path_bytes(&scene.root().join("d/file")), ""));
    for call in &calls {
        let fault = ask(&unrooted, call).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{call:?}");
    }
    assert_eq!(names(&scene.root()), ["d"]);
}

#[test]
fn calls_that_need_a_name_refuse_the_root_and_dots() {
    let scene = Scene::new();
    for path in ["", "/", "//", ".", "d/.", "d/..", "d/./"] {
        for call in [
            remove_file(path),
            remove_directory(path),
            remove_tree(path),
            rename(path, "new", false),
            rename("d", path, true),
            link("d/file", path),
            symlink("x", path),
            read_link(path),
        ] {
            scene.refused(&call, Code::InvalidArgument, path);
        }
        scene.refused(&make(path, false), Code::AlreadyExists, path);
        scene.done(&make(path, true));
    }
    assert_eq!(names(&scene.root()), ["d"]);
    assert_eq!(names(&scene.root().join("d")), ["file"]);
}

#[test]
fn names_are_any_bytes() {
    let scene = Scene::new();
    let long = [0xff; 255];
    for name in [
        &b"\xff\xfe"[..],
        b"new\nline",
        b" ",
        b"-",
        b"\x1b[31m",
        b"\\",
        b"*",
        &long,
    ] {
        let inside = [name, b"/", name].concat();
        scene.done(&make(name, false));
        scene.done(&symlink(name, &inside));
        let (entries, _) = list_all(&scene.store, name, 10);
        assert_eq!(entry_names(&entries), [name]);
        assert_eq!(
            scene.call(&read_link(&inside)).unwrap(),
            Answer::Target(name.to_vec())
        );
        scene.done(&rename(&inside, "moved", false));
        scene.done(&copy("d/file", &inside, false).clone().into_done(&scene));
        scene.done(&remove_file(&inside));
        scene.done(&remove_file("moved"));
        scene.done(&remove_directory(name));
    }
}

/// A copy as a call without an answer worth looking at.
trait IntoDone {
    fn into_done(self, scene: &Scene) -> Call;
}

impl IntoDone for Call {
    fn into_done(self, scene: &Scene) -> Call {
        assert_eq!(scene.call(&self).unwrap(), Answer::Copied { bytes: 6 });
        make("d", true)
    }
}

#[test]
fn unfinished_transfers_are_neither_seen_nor_touched() {
    let scene = Scene::new();
    let mut transfer = scene.store.open_sink(&request("d/new")).unwrap();
    save(&mut transfer, 0, &[1; 4096]);
    let hidden = [".new.xdfs-journal", ".new.xdfs-part"];
    assert_eq!(names(&scene.root().join("d")).len(), 3);
    let (entries, _) = list_all(&scene.store, b"d", 10);
    assert_eq!(entry_names(&entries), [b"file"]);
    for name in hidden
        .into_iter()
        .chain([".x.Xdfs-Part", ".x.xdfs-journal-new"])
    {
        let path = format!("d/{name}");
        for path in [path.clone(), format!("{path}/x"), format!("{path}/")] {
            for call in every(path.as_bytes()) {
                scene.refused(&call, Code::PermissionDenied, &path);
            }
        }
        // A link to it would be as good.
        scene.refused(&symlink(name, "d/link"), Code::PermissionDenied, "d/link");
    }
    scene.refused(&remove_tree("d"), Code::Busy, "d");
    write(&mut transfer, 4096, &[2; 10]);
    transfer.sink.publish(4106, &[]).unwrap();
    assert_eq!(scene.stat("d/new", false).unwrap().size, 4106);
}

#[test]
fn a_read_only_store_changes_nothing() {
    let scene = Scene::new();
    let store = LocalStore::rooted(&scene.root(), true).unwrap();
    for call in every(b"d/file") {
        let result = ask(&store, &call);
        if call.is_read_only() {
            assert!(
                result.is_ok_and(|_| true)
                    || matches!(call, Call::List { .. } | Call::ReadLink { .. })
            );
        } else {
            assert_fault(result, Code::ReadOnly, call.path());
        }
    }
    assert_eq!(scene.stat("d/file", false).unwrap().size, 6);
}

#[test]
fn digests_cover_what_was_asked_for() {
    let scene = Scene::new();
    let content = pattern(1_000_000);
    std::fs::write(scene.root().join("big"), &content).unwrap();
    for (offset, length) in [
        (0, None),
        (0, Some(0)),
        (1_000_000, None),
        (1_000_000, Some(0)),
        (17, Some(999_983)),
        (262_143, Some(262_146)),
    ] {
        let end = length.map_or(1_000_000, |length| offset + length);
        let part = &content[offset as usize..end as usize];
        let expected = Answer::Digest {
            value: ChecksumValue::Blake3(blake3::hash(part).into()),
            length: part.len() as u64,
        };
        assert_eq!(
            scene.call(&checksum("big", offset, length)).unwrap(),
            expected
        );
        let crc = Call::Checksum {
            path: bytes("big"),
            offset,
            length,
            kind: ChecksumKind::Crc64Nvme,
        };
        let value = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, part);
        let expected = Answer::Digest {
            value: ChecksumValue::Crc64Nvme(value),
            length: part.len() as u64,
        };
        assert_eq!(scene.call(&crc).unwrap(), expected);
    }
    for (offset, length) in [
        (0, Some(1_000_001)),
        (1_000_000, Some(1)),
        (1_000_001, None),
        (u64::MAX, Some(u64::MAX)),
        (1, Some(u64::MAX)),
    ] {
        scene.refused(&checksum("big", offset, length), Code::OffsetPastEnd, "big");
    }
    scene.refused(&checksum("d", 0, None), Code::IsDirectory, "d");
    let _socket = UnixListener::bind(scene.root().join("socket")).unwrap();
    scene.refused(&checksum("socket", 0, None), Code::NotRegularFile, "socket");
}

#[test]
fn the_space_of_the_file_system_is_told() {
    let scene = Scene::new();
    for path in ["", "d", "d/file"] {
        let Answer::Space {
            total,
            free,
            available,
            ..
        } = scene.call(&space(path)).unwrap()
        else {
            panic!()
        };
        assert!(available <= free && free <= total && total > 0);
    }
    scene.refused(&space("no"), Code::NotFound, "no");
}

#[test]
fn what_a_link_says_is_only_told_of_links() {
    let scene = Scene::new();
    scene.refused(&read_link("d/file"), Code::InvalidArgument, "d/file");
    scene.refused(&read_link("no"), Code::NotFound, "no");
    let long = "x/".repeat(2000);
    scene.done(&symlink(&long, "link"));
    assert_eq!(
        scene.call(&read_link("link")).unwrap(),
        Answer::Target(long.into_bytes())
    );
    scene.refused(&read_link("link/"), Code::NotDirectory, "link/");
}

#[test]
fn directories_that_may_only_be_passed_through_are_passed_through() {
    let scene = Scene::new();
    let dir = scene.root().join("d");
    let mode = |mode| std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).unwrap();
    std::fs::set_permissions(scene.temp.path(), PermissionsExt::from_mode(0o755)).unwrap();
    mode(0o111);
    // The user of a thread is its own on Linux; no other thread is changed.
    let (found, listed, removed) = std::thread::scope(|scope| {
        let ask = || {
            xdfs_testkit::nobody::become_nobody();
            (
                scene.stat("d/file", false),
                scene.call(&list("d")),
                scene.call(&remove_file("d/file")),
            )
        };
        scope.spawn(ask).join().unwrap()
    });
    mode(0o700);
    assert_eq!(found.unwrap().size, 6);
    assert_fault(listed, Code::PermissionDenied, "d");
    assert_fault(removed, Code::PermissionDenied, "d/file");
}
