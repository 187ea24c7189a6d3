//! What packs make.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};

use xdfs_proto::pack::{Owner, Xattr};
use xdfs_proto::path::{Answer, Call};

use super::*;

#[test]
fn every_kind_is_made() {
    let scene = Scene::new();
    let times = Metadata {
        mode: Some(0o640),
        mtime_ns: Some(1_500_000_000_123_456_789),
        atime_ns: Some(-1_000_000_000),
        ..Metadata::default()
    };
    assert_done(&scene.write(&[
        entry("d", Content::Directory),
        with(file("d/file", "content"), times.clone()),
        file("empty", ""),
        file("new/dirs/file", "deep"),
        with(entry("link", Content::Symlink(b"d/file")), times.clone()),
        entry("d/hard", Content::HardLink(b"d/file")),
        with(entry("pipe", Content::Fifo), times.clone()),
        with(entry("", Content::Directory), mode(0o700)),
        with(entry("d", Content::Attributes), times.clone()),
        with(entry("link", Content::Attributes), mode(0o600)),
    ]));
    assert_eq!(scene.text("d/file"), "content");
    assert_eq!(scene.text("empty"), "");
    assert_eq!(scene.text("new/dirs/file"), "deep");
    let meta = fs::metadata(scene.path("d/file")).unwrap();
    assert_eq!((meta.nlink(), scene.mode_of("d/file")), (2, 0o640));
    for name in ["d/file", "d", "link", "pipe"] {
        let meta = fs::symlink_metadata(scene.path(name)).unwrap();
        let time = (meta.mtime(), meta.mtime_nsec());
        assert_eq!(time, (1_500_000_000, 123_456_789), "{name}");
    }
    assert_eq!(scene.mode_of("d"), 0o640);
    assert_eq!(scene.mode_of("pipe"), 0o640);
    let link = fs::read_link(scene.path("link")).unwrap();
    assert_eq!(link.as_os_str(), "d/file");
    let pipe = fs::symlink_metadata(scene.path("pipe")).unwrap();
    assert!(pipe.file_type().is_fifo());
    scene.assert_clean();
}

#[test]
fn modes_are_exact_and_those_of_programs_are_dropped_with_a_root() {
    let scene = Scene::new();
    let entries = [
        with(file("all", "x"), mode(0o777)),
        with(file("none", "x"), mode(0)),
        with(file("program", "x"), mode(0o6755)),
        with(entry("open", Content::Directory), mode(0o1777)),
        with(entry("shut", Content::Directory), mode(0o500)),
        file("shut/file", "x"),
        with(entry("program", Content::Attributes), mode(0o6711)),
    ];
    assert_done(&scene.write(&entries));
    for (name, expected) in [
        ("all", 0o777),
        ("none", 0),
        ("program", 0o711),
        ("open", 0o1777),
    ] {
        assert_eq!(scene.mode_of(name), expected, "{name}");
    }
    // It stays open until its attributes come.
    assert_eq!(scene.mode_of("shut") & 0o700, 0o700);
    assert_done(&scene.write(&[with(entry("shut", Content::Attributes), mode(0o500))]));
    assert_eq!(scene.mode_of("shut"), 0o500);
    fs::set_permissions(scene.path("shut"), fs::Permissions::from_mode(0o700)).unwrap();
    // A user's own paths get them with an owner alone.
    let own = tempfile::tempdir().unwrap();
    let meta = fs::metadata(own.path()).unwrap();
    let owner = Owner {
        uid: meta.uid(),
        gid: meta.gid(),
        names: None,
    };
    for (owner, expected) in [(None, 0o755), (Some(owner), 0o6755)] {
        let root = own.path().join("a/b");
        let mut entry = entries[2].clone();
        entry.metadata.owner = owner;
        assert_done(&unrooted_pack(&root, &[entry]).unwrap());
        let meta = fs::metadata(root.join("program")).unwrap();
        assert_eq!(meta.permissions().mode() & 0o7777, expected);
        fs::remove_dir_all(&root).unwrap();
    }
}

/// With a root the bits come with the owner, and only where the process is root's; what doesn't
/// get them says so.
#[test]
fn what_runs_as_its_owner_is_given_with_the_owner_or_reported() {
    let scene = Scene::new();
    let meta = fs::metadata(scene.path("")).unwrap();
    let owned = |name: &'static str, content: Content<'static>| {
        let mut entry = with(entry(name, content), mode(0o4755));
        entry.metadata.owner = Some(Owner {
            uid: meta.uid(),
            gid: meta.gid(),
            names: None,
        });
        entry
    };
    let entries = [
        owned("program", Content::File(b"x")),
        owned("pipe", Content::Fifo),
        owned("program", Content::Attributes),
    ];
    let failures = scene.write(&entries);
    let is_root = xdfs_sys::ids::effective_user() == Some(0);
    for number in 0..3 {
        let code = failures.of(number).map(|fault| fault.code);
        assert_eq!(code, (!is_root).then_some(Code::PermissionDenied));
    }
    let expected = if is_root { 0o4755 } else { 0o755 };
    assert_eq!(scene.mode_of("program"), expected);
    assert_eq!(scene.mode_of("pipe"), expected);
    // Without an owner they are taken away again.
    assert_done(&scene.write(&[with(entry("program", Content::Attributes), mode(0o4755))]));
    assert_eq!(scene.mode_of("program"), 0o755);
}

/// Directories get the bits with the owner too, in whatever order their own entries, others and
/// the last one come; without an owner they keep what they have.
#[test]
fn special_directories_are_given_with_the_owner() {
    let scene = Scene::new();
    let meta = fs::metadata(scene.path("")).unwrap();
    let owner = Some(Owner {
        uid: meta.uid(),
        gid: meta.gid(),
        names: None,
    });
    let directory = |name: &'static str, bits, owner: &Option<Owner<'static>>| {
        let mut entry = with(entry(name, Content::Directory), mode(bits));
        entry.metadata.owner = *owner;
        entry
    };
    for (bits, name) in [(0o6775, "special"), (0o2555, "shut")] {
        let all = u32::from(bits);
        let end = with(entry(name, Content::Attributes), mode(bits));
        assert_done(&scene.write(&[directory(name, bits, &None), end.clone()]));
        assert_eq!(scene.mode_of(name), all & 0o777);
        // It is there already.
        assert_done(&scene.write(&[directory(name, bits, &owner)]));
        assert_eq!(scene.mode_of(name), all | 0o700);
        assert_done(&scene.write(&[end]));
        assert_eq!(scene.mode_of(name), all);
        let plain = with(entry(name, Content::Attributes), mode(0o755));
        assert_done(&scene.write(&[plain]));
        assert_eq!(scene.mode_of(name), all & 0o6000 | 0o755);
        assert_done(&scene.write(&[directory(name, 0o755, &owner)]));
        assert_eq!(scene.mode_of(name), 0o755);
    }
}

#[test]
fn modes_that_are_wishes_are_cut_by_the_umask() {
    let scene = Scene::new();
    let store = scene.store.clone().masking_modes();
    fs::create_dir(scene.path("own")).unwrap();
    fs::set_permissions(scene.path("own"), fs::Permissions::from_mode(0o3700)).unwrap();
    let kinds = [
        ("file", Content::File(b"x")),
        ("directory", Content::Directory),
        ("pipe", Content::Fifo),
    ];
    for (name, content) in kinds {
        for wished in [0o7777, 0o4755, 0o666, 0o700] {
            let made = with(entry(name, content.clone()), mode(wished));
            let end = with(entry(name, Content::Attributes), mode(wished));
            let written = store.write_pack(b"", KEEP, &pack(&[made, end]));
            assert_done(&written.unwrap());
            let expected = xdfs_sys::fs::masked(u32::from(wished) & 0o777);
            assert_eq!(scene.mode_of(name), expected, "{name} {wished:o}");
            match name {
                "directory" => fs::remove_dir(scene.path(name)).unwrap(),
                _ => fs::remove_file(scene.path(name)).unwrap(),
            }
        }
    }
    // The special bits of what is there are the user's own.
    let end = with(entry("own", Content::Attributes), mode(0o4777));
    let written = store.write_pack(b"", KEEP, &pack(&[end]));
    assert_done(&written.unwrap());
    assert_eq!(scene.mode_of("own"), 0o3000 | xdfs_sys::fs::masked(0o777));
}

#[test]
fn what_is_there_is_replaced_only_if_asked() {
    let scene = Scene::new();
    let old = [
        file("file", "old"),
        entry("link", Content::Symlink(b"old")),
        entry("pipe", Content::Fifo),
        file("hard", "old"),
        with(entry("d", Content::Directory), mode(0o711)),
        entry("was-link", Content::Symlink(b"file")),
    ];
    assert_done(&scene.write(&old));
    let new = [
        file("file", "new and longer"),
        entry("link", Content::Symlink(b"new")),
        entry("pipe", Content::Fifo),
        entry("hard", Content::HardLink(b"file")),
        with(entry("d", Content::Directory), mode(0o755)),
        file("was-link", "new"),
    ];
    let failures = scene.write(&new);
    for number in [0, 1, 2, 3, 5] {
        assert_eq!(failures.of(number).unwrap().code, Code::AlreadyExists);
    }
    assert_eq!(failures.of(4), None);
    assert_eq!(scene.text("file"), "old");
    assert_eq!(scene.mode_of("d"), 0o711);
    scene.assert_clean();
    // A second time two names of one file are renamed to each other.
    for _ in 0..2 {
        assert_done(&scene.replace(&new));
        assert_eq!(scene.text("file"), "new and longer");
        assert_eq!(scene.text("hard"), "new and longer");
        assert_eq!(scene.text("was-link"), "new");
        assert_eq!(
            fs::read_link(scene.path("link")).unwrap().as_os_str(),
            "new"
        );
        assert_eq!(scene.mode_of("d"), 0o755);
        assert!(
            !fs::symlink_metadata(scene.path("was-link"))
                .unwrap()
                .is_symlink()
        );
        scene.assert_clean();
    }
}

#[test]
fn directories_and_files_do_not_take_each_others_place() {
    let scene = Scene::new();
    assert_done(&scene.write(&[file("d/inner", "x"), file("file", "x")]));
    for overwrite in [false, true] {
        let write = |entries: &[Entry<'_>]| {
            scene
                .store
                .write_pack(b"", if overwrite { REPLACE } else { KEEP }, &pack(entries))
                .unwrap()
        };
        for content in [
            Content::File(b"y"),
            Content::Symlink(b"y"),
            Content::Fifo,
            Content::HardLink(b"file"),
        ] {
            let failures = write(&[entry("d", content), file("goes-on", "x")][..1]);
            assert_one(&failures, 0, Code::IsDirectory, "d");
        }
        let failures = write(&[entry("file", Content::Directory)]);
        assert_one(&failures, 0, Code::NotDirectory, "file");
        let failures = write(&[file("file/below", "x")]);
        assert_one(&failures, 0, Code::NotDirectory, "file/below");
        let failures = write(&[entry("x", Content::HardLink(b"d"))]);
        assert_one(&failures, 0, Code::IsDirectory, "x");
        let failures = write(&[entry("x", Content::HardLink(b"not-there"))]);
        assert_one(&failures, 0, Code::NotFound, "x");
        let failures = write(&[with(entry("gone", Content::Attributes), mode(0o700))]);
        assert_one(&failures, 0, Code::NotFound, "gone");
    }
    assert_eq!(scene.text("d/inner"), "x");
    assert_eq!(names(scene.temp.path()), ["d", "file"]);
}

#[test]
fn one_that_fails_stops_no_other() {
    let scene = Scene::new();
    let failures = scene.write(&[
        file("a", "a"),
        entry("b", Content::Large(5)),
        entry("c", Content::Failed(Fault::new(Code::Io, "x", "y"))),
        file("d", "d"),
        entry("a", Content::Directory),
        file("e", "e"),
    ]);
    let runs: Vec<_> = failures.runs().iter().map(|r| (r.first, r.count)).collect();
    assert_eq!(runs, [(1, 2), (4, 1)]);
    assert_eq!(names(scene.temp.path()), ["a", "d", "e"]);
}

#[test]
fn a_pack_that_is_damaged_makes_nothing() {
    let scene = Scene::new();
    let mut bytes = pack(&[file("a", "a")]);
    bytes.push(0);
    let fault = scene
        .store
        .write_pack(b"new/root", KEEP, &bytes)
        .unwrap_err();
    assert_eq!(fault.code, Code::MalformedFrame);
    assert_eq!(fault.path, b"new/root");
    assert!(names(scene.temp.path()).is_empty());
}

#[test]
fn a_store_that_takes_no_writes_takes_no_packs() {
    let scene = Scene::new();
    let store = LocalStore::rooted(scene.temp.path(), true).unwrap();
    let fault = store
        .write_pack(b"d", REPLACE, &pack(&[file("a", "a")]))
        .unwrap_err();
    assert_eq!((fault.code, &*fault.path), (Code::ReadOnly, &b"d"[..]));
    assert!(names(scene.temp.path()).is_empty());
    // Making durable what is there changes nothing.
    let call = Call::Sync { path: b"/".into() };
    assert_eq!(store.call(&call, &mut |_| Ok(())), Ok(Answer::Done));
}

#[test]
fn odd_names_are_names() {
    let scene = Scene::new();
    let long = [b'x'; 255];
    let too_long = [b'x'; 256];
    let odd: [&[u8]; 4] = [b"new\nline", b"\xff\xfe", b"-rf *\\", &long];
    let made: Vec<Entry<'_>> = odd.iter().map(|name| file(name, "x")).collect();
    assert_done(&scene.write(&made));
    assert_done(&scene.replace(&made));
    for name in odd {
        let path = scene.temp.path().join(std::ffi::OsStr::from_bytes(name));
        assert_eq!(fs::read(path).unwrap(), b"x");
    }
    for content in [
        Content::File(b""),
        Content::Directory,
        Content::Symlink(b"x"),
        Content::Fifo,
    ] {
        let failures = scene.write(&[entry(&too_long, content)]);
        let shown = String::from_utf8(too_long.to_vec()).unwrap();
        assert_one(&failures, 0, Code::NameTooLong, &shown);
    }
    let deep = [&b"d/".repeat(2047)[..], b"x"].concat();
    let deeper = [&b"d/".repeat(2047)[..], b"xy"].concat();
    let failures = scene.write(&[file(&deep, "x"), file(&deeper, "x"), file("after", "x")]);
    assert_done(&failures);
    assert_eq!(scene.text("after"), "x");
    let too_deep = pack(&[file(&b"x/".repeat(3000)[..5999], "x")]);
    let fault = scene.store.write_pack(b"", REPLACE, &too_deep).unwrap_err();
    assert_eq!(fault.code, Code::MalformedFrame);
    let call = Call::RemoveTree { path: b"d".into() };
    scene.store.call(&call, &mut |_| Ok(())).unwrap();
    scene.assert_clean();
}

#[test]
fn the_directory_of_the_transfer_is_made() {
    let scene = Scene::new();
    let bytes = pack(&[file("f", "x")]);
    for root in ["", "/", "a/b/c", "/a/d/"] {
        assert_done(
            &scene
                .store
                .write_pack(root.as_bytes(), REPLACE, &bytes)
                .unwrap(),
        );
    }
    assert_eq!(scene.text("a/b/c/f"), "x");
    assert_eq!(scene.text("a/d/f"), "x");
    for (root, code) in [
        ("f", Code::NotDirectory),
        ("../x", Code::PathEscape),
        (".x.xdfs-part", Code::PermissionDenied),
    ] {
        let fault = scene
            .store
            .write_pack(root.as_bytes(), REPLACE, &bytes)
            .unwrap_err();
        assert_eq!(fault.code, code, "{fault}");
        assert_eq!(fault.path, root.as_bytes());
    }
    // The user's own path to it may have links.
    symlink(scene.path("a"), scene.path("way")).unwrap();
    assert_done(&unrooted_pack(&scene.path("way/e"), &[file("f", "x")]).unwrap());
    assert_eq!(scene.text("a/e/f"), "x");
}

#[test]
fn attributes_are_set_and_others_than_users_refused() {
    let scene = Scene::new();
    let xattrs: Vec<Xattr<'_>> = vec![(b"user.a", b"1"), (b"user.b", b"")];
    let metadata = Metadata {
        xattrs: xattrs.clone(),
        ..Metadata::default()
    };
    let failures = scene.write(&[with(file("f", "x"), metadata.clone())]);
    assert_eq!(scene.text("f"), "x");
    if let Some(fault) = failures.of(0) {
        // This file system has none, and says so.
        assert!(fault.cause.contains("it exists"), "{fault}");
        return xdfs_testkit::skip::part("this file system has no attributes");
    }
    let limits = Limits::default();
    let keep = Preserve {
        xattrs: true,
        ..Preserve::default()
    };
    let answer = scene.read(&["f"], keep);
    let mut found = entries(&answer, &limits)[0].metadata.xattrs.clone();
    found.sort_unstable();
    assert_eq!(found, xattrs);
    for name in [
        &b"security.capability"[..],
        b"trusted.x",
        b"system.nfs4_acl",
    ] {
        let metadata = Metadata {
            xattrs: vec![(name, b"x"), (b"user.c", b"2")],
            ..Metadata::default()
        };
        let failures = scene.replace(&[with(file("g", "x"), metadata)]);
        let fault = assert_one(&failures, 0, Code::PermissionDenied, "g");
        assert!(fault.cause.contains("it exists"), "{fault}");
        assert_eq!(scene.text("g"), "x");
    }
}

#[test]
fn owners_are_known_by_name_first() {
    let scene = Scene::new();
    let owner = |uid, gid, names| Metadata {
        mode: Some(0o644),
        owner: Some(Owner { uid, gid, names }),
        ..Metadata::default()
    };
    let own = fs::metadata(scene.temp.path()).unwrap();
    assert_done(&scene.write(&[with(file("own", "x"), owner(own.uid(), own.gid(), None))]));
    let failures = scene.write(&[
        with(file("number", "x"), owner(4242, 4243, None)),
        with(
            file("unknown", "x"),
            owner(4242, 4243, Some((b"no such user", b""))),
        ),
        with(
            entry("link", Content::Symlink(b"/")),
            owner(4242, 4243, None),
        ),
    ]);
    if !xdfs_testkit::nobody::is_root() {
        let fault = failures.of(0).unwrap();
        assert_eq!(fault.code, Code::PermissionDenied);
        assert!(fault.cause.contains("it exists"), "{fault}");
        assert_eq!(scene.text("number"), "x");
        return xdfs_testkit::skip::part("only root gives files away");
    }
    assert_done(&failures);
    for name in ["number", "unknown", "link"] {
        let meta = fs::symlink_metadata(scene.path(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (4242, 4243), "{name}");
    }
    // Numbers of another machine, and the names of this one.
    let named = owner(4242, 4242, Some((b"root", b"root")));
    assert_done(&scene.write(&[with(file("named", "x"), named)]));
    let meta = fs::metadata(scene.path("named")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (0, 0));
}

#[test]
fn changes_can_be_made_durable() {
    let scene = Scene::new();
    assert_done(&scene.write(&[file("d/f", "x"), entry("p", Content::Fifo)]));
    let sync = |path: &str| {
        let call = Call::Sync { path: path.into() };
        scene.store.call(&call, &mut |_| Ok(()))
    };
    for path in ["", "d", "d/f"] {
        assert_eq!(sync(path), Ok(Answer::Done));
    }
    assert_eq!(sync("p").unwrap_err().code, Code::NotRegularFile);
    assert_eq!(sync("gone").unwrap_err().code, Code::NotFound);
    assert_eq!(sync("../x").unwrap_err().code, Code::PathEscape);
}

/// Files wait for their names until they are durable. What comes after them in the pack means what
/// it would mean if they had theirs.
#[test]
fn entries_mean_what_those_before_them_made_of_the_place() {
    let scene = Scene::new();
    let failures = scene.replace(&[
        file("a", "first"),
        entry("b", Content::HardLink(b"a")),
        file("a", "second"),
        entry("c", Content::HardLink(b"a")),
        file("e", "x"),
        entry("s", Content::Symlink(b".")),
        file("s/inside", "not through a link"),
        file("f", "a file"),
        file("f/g", "in no directory"),
        entry("f", Content::Directory),
        file("h/i", "x"),
        with(entry("h", Content::Attributes), mode(0o700)),
        with(entry("h/i", Content::Attributes), mode(0o600)),
    ]);
    let failed: Vec<_> = (0..13).filter(|n| failures.of(*n).is_some()).collect();
    assert_eq!(failed, [6, 8, 9], "{failures:?}");
    let texts = ["a", "b", "c", "f"].map(|name| scene.text(name));
    assert_eq!(texts, ["second", "first", "second", "a file"]);
    assert_eq!(fs::read_link(scene.path("s")).unwrap().as_os_str(), ".");
    assert_eq!((scene.mode_of("h"), scene.mode_of("h/i")), (0o700, 0o600));
    scene.assert_clean();
}

/// More files than wait for one synchronisation, and one that fails among them.
#[test]
fn files_are_named_by_many_at_once() {
    const COUNT: u32 = 2500;
    let scene = Scene::new();
    fs::create_dir(scene.path("500")).unwrap();
    let paths: Vec<_> = (0..COUNT).map(|n| n.to_string()).collect();
    let entries: Vec<_> = paths.iter().map(|path| file(path, path)).collect();
    let failures = scene.replace(&entries);
    let failed: Vec<_> = (0..COUNT).filter(|n| failures.of(*n).is_some()).collect();
    assert_eq!(failed, [500]);
    for path in paths.iter().filter(|path| *path != "500") {
        assert_eq!(scene.text(path), *path);
    }
    scene.assert_clean();
}

/// A symbolic link is never seen with another time than its own, and where the name is taken
/// nothing is left.
#[test]
fn a_link_gets_its_name_with_its_time() {
    let scene = Scene::new();
    let time = Metadata {
        mtime_ns: Some(1_500_000_000_000_000_000),
        ..Metadata::default()
    };
    let link = with(entry("link", Content::Symlink(b"x")), time.clone());
    assert_done(&scene.write(std::slice::from_ref(&link)));
    let meta = fs::symlink_metadata(scene.path("link")).unwrap();
    assert_eq!(meta.mtime(), 1_500_000_000);
    let failures = scene.write(&[link, with(entry("link", Content::Fifo), time)]);
    for number in [0, 1] {
        assert_eq!(failures.of(number).unwrap().code, Code::AlreadyExists);
    }
    scene.assert_clean();
}
