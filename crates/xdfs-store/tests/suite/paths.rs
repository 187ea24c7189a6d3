//! Hostile and odd paths on a rooted store, as a server has it.

use xdfs_proto::Code;
use xdfs_store::{LocalStore, Store};

use crate::common::*;

#[test]
fn a_read_only_store_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::rooted(dir.path(), true).unwrap();
    assert_fault(store.open_sink(&request("new")), Code::ReadOnly, "new");
    assert_fault(store.check_sink(&request("new")), Code::ReadOnly, "new");
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_root_that_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    assert_fault(
        LocalStore::rooted(&missing, false),
        Code::NotFound,
        path_bytes(&missing),
    );
}

#[test]
fn a_path_that_names_the_root_is_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let store = rooted(dir.path());
    for path in ["", "/", "//", ".", "/."] {
        assert_fault(store.open_source(path.as_bytes()), Code::IsDirectory, path);
        assert_fault(store.open_sink(&request(path)), Code::IsDirectory, path);
    }
}

#[test]
fn zero_bytes_are_no_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = "a\0b";
    for store in [rooted(dir.path()), LocalStore::unrooted()] {
        assert_fault(
            store.open_source(path.as_bytes()),
            Code::InvalidArgument,
            path,
        );
        assert_fault(store.open_sink(&request(path)), Code::InvalidArgument, path);
        let mut named = request([path_bytes(dir.path()), b"/"].concat());
        if store
            .check_sink(&request("/"))
            .is_err_and(|f| f.code == Code::IsDirectory)
        {
            named.path = b"/".to_vec();
        }
        named.name = path.as_bytes().to_vec();
        assert_fault(store.open_sink(&named), Code::InvalidArgument, &named.path);
    }
}

#[test]
fn a_name_is_one_component() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    let store = rooted(dir.path());
    for name in [".", "..", "a/b", "../x", "/x"] {
        let mut wanted = request("d");
        wanted.name = name.as_bytes().to_vec();
        assert_fault(store.open_sink(&wanted), Code::InvalidArgument, "d");
    }
    let mut wanted = request("d");
    assert_fault(store.open_sink(&wanted), Code::IsDirectory, "d");
    wanted.name = b"inside".to_vec();
    assert_eq!(store.check_sink(&wanted).unwrap(), b"d/inside");
    std::fs::create_dir(dir.path().join("d/inside")).unwrap();
    wanted.overwrite = true;
    assert_fault(store.open_sink(&wanted), Code::IsDirectory, "d/inside");
}

#[test]
fn missing_directories_are_not_made() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let store = rooted(dir.path());
    for path in ["no/", "no/file", "no/deep/file"] {
        assert_fault(store.open_sink(&request(path)), Code::NotFound, path);
    }
    let fault = store.open_sink(&request("no/")).unwrap_err();
    assert_eq!(fault.cause, "no such directory");
    for path in ["file/", "file/x"] {
        assert_fault(store.open_sink(&request(path)), Code::NotDirectory, path);
    }
    assert_fault(store.open_source(b"file/x"), Code::NotDirectory, "file/x");
}

#[test]
fn names_of_unfinished_transfers_are_ours() {
    let dir = tempfile::tempdir().unwrap();
    let store = rooted(dir.path());
    let mut transfer = store.open_sink(&request("secret")).unwrap();
    save(&mut transfer, 0, &[1; 4096]);
    let hidden = names(dir.path());
    assert_eq!(hidden, [".secret.xdfs-journal", ".secret.xdfs-part"]);
    for name in hidden
        .iter()
        .map(String::as_str)
        .chain([".x.xdfs-journal-new", ".X.Xdfs-Part"])
    {
        assert_fault(
            store.open_source(name.as_bytes()),
            Code::PermissionDenied,
            name,
        );
        assert_fault(
            store.open_sink(&request(name)),
            Code::PermissionDenied,
            name,
        );
        let mut inside = request("/");
        inside.name = name.as_bytes().to_vec();
        assert_fault(
            store.open_sink(&inside),
            Code::PermissionDenied,
            format!("/{name}"),
        );
    }
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use xdfs_testkit::skip;

    use super::*;

    /// A root with a secret beside it.
    fn root() -> (tempfile::TempDir, LocalStore) {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("root/d")).unwrap();
        std::fs::write(temp.path().join("secret"), "secret").unwrap();
        std::fs::write(temp.path().join("root/d/file"), "public").unwrap();
        let store = rooted(&temp.path().join("root"));
        (temp, store)
    }

    #[test]
    fn dots_never_leave_the_root() {
        let (temp, store) = root();
        let out_and_in_again = format!("d/../../{}/d/file", "root");
        for path in [
            "..",
            "../secret",
            "/../secret",
            "d/../../secret",
            &out_and_in_again,
        ] {
            let expected = Code::PathEscape;
            assert_fault(store.open_source(path.as_bytes()), expected, path);
            let mut force = request(path);
            force.overwrite = true;
            assert_fault(store.open_sink(&force), expected, path);
            assert_fault(store.check_sink(&force), expected, path);
        }
        assert_eq!(
            std::fs::read(temp.path().join("secret")).unwrap(),
            b"secret"
        );
        assert_eq!(names(temp.path()), ["root", "secret"]);
    }

    #[test]
    fn links_out_of_the_root_are_not_followed() {
        let (temp, store) = root();
        let root = temp.path().join("root");
        symlink(temp.path().join("secret"), root.join("absolute")).unwrap();
        symlink("../secret", root.join("relative")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink(temp.path(), root.join("top")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for path in [
            "absolute",
            "relative",
            "up/secret",
            "top/secret",
            "loop",
            "loop/file",
        ] {
            assert_fault(store.open_source(path.as_bytes()), Code::PathEscape, path);
            let mut force = request(path);
            force.overwrite = true;
            assert_fault(store.open_sink(&force), Code::PathEscape, path);
        }
        let mut into = request("up");
        into.name = b"planted".to_vec();
        assert_fault(store.open_sink(&into), Code::PathEscape, "up");
        assert_eq!(
            std::fs::read(temp.path().join("secret")).unwrap(),
            b"secret"
        );
        assert_eq!(names(temp.path()), ["root", "secret"]);
    }

    #[test]
    fn links_within_the_root_are_followed() {
        if !cfg!(target_os = "linux") {
            return skip::test("links are refused altogether on this system");
        }
        let (temp, store) = root();
        let root = temp.path().join("root");
        symlink("d/file", root.join("link")).unwrap();
        symlink("../d", root.join("d/around")).unwrap();
        for path in ["link", "d/around/file", "d/../d/file"] {
            assert_eq!(
                read_all(&mut *store.open_source(path.as_bytes()).unwrap()),
                b"public"
            );
        }
        // A link to a directory is that directory.
        let mut into = request("d/around");
        into.name = b"new".to_vec();
        put(&store, &into, b"new").unwrap();
        assert_eq!(std::fs::read(root.join("d/new")).unwrap(), b"new");
        // A link to a file is a target that exists; the link is replaced, not the file.
        assert_fault(
            store.open_sink(&request("link")),
            Code::AlreadyExists,
            "link",
        );
        let mut force = request("link");
        force.overwrite = true;
        put(&store, &force, b"replaced").unwrap();
        assert_eq!(std::fs::read(root.join("d/file")).unwrap(), b"public");
        assert!(root.join("link").symlink_metadata().unwrap().is_file());
    }

    #[test]
    fn links_of_proc_are_not_followed() {
        let store = rooted("/proc".as_ref());
        let Err(fault) = store.open_source(b"self/exe") else {
            panic!("a link of /proc was followed");
        };
        if cfg!(target_os = "linux") {
            assert_eq!(fault.code, Code::PathEscape, "{fault}");
        }
    }

    /// Somebody swaps a directory and a link that leads out, while a source and a sink are opened
    /// through it again and again.
    #[test]
    fn a_link_swapped_during_the_open_wins_nothing() {
        let (temp, store) = root();
        let root = temp.path().join("root");
        let outside = temp.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("file"), "secret").unwrap();
        symlink(&outside, root.join("evil")).unwrap();
        let stop = AtomicBool::new(false);
        let (mut opened, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use rustix::fs::{CWD, RenameFlags, renameat_with};
                let (name, evil) = (root.join("d"), root.join("evil"));
                while !stop.load(Ordering::Relaxed) {
                    renameat_with(CWD, &name, CWD, &evil, RenameFlags::EXCHANGE).unwrap();
                }
            });
            // Until both were seen, however the threads are scheduled.
            for round in 0..1_000_000 {
                if round >= 3000 && opened > 0 && refused > 0 {
                    break;
                }
                match store.open_source(b"d/file") {
                    Ok(mut source) => {
                        assert_eq!(read_all(&mut *source), b"public");
                        opened += 1;
                    }
                    Err(fault) => {
                        assert_eq!(fault.code, Code::PathEscape, "{fault}");
                        refused += 1;
                    }
                }
                if round % 10 == 0 && round < 3000 {
                    let _ = put(&store, &request(format!("d/new-{round}")), b"x");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(
            opened > 0 && refused > 0,
            "no race: {opened} opened, {refused} refused"
        );
        assert_eq!(names(&outside), ["file"]);
    }

    #[test]
    fn names_are_bytes() {
        if cfg!(target_os = "macos") {
            return skip::test("names are text on this system");
        }
        let (_temp, store) = root();
        for name in [
            &b"\xff\xfe"[..],
            b"new\nline",
            b" ",
            b"-",
            b"\x1b[31m",
            b"\\",
            b"%00",
        ] {
            put(&store, &request(name), b"odd").unwrap();
            assert_eq!(read_all(&mut *store.open_source(name).unwrap()), b"odd");
        }
        // A fault shows such a name without sending it to the terminal.
        let shown = store.open_source(b"\xff\x1b").unwrap_err().to_string();
        assert!(
            shown.contains("\\377\\033") && !shown.contains('\x1b'),
            "{shown}"
        );
    }

    #[test]
    fn the_longest_names_work_and_longer_ones_are_refused() {
        let (temp, store) = root();
        for length in [200, 236, 237, 238, 250, 255] {
            let name = "n".repeat(length);
            let mut opened = store.open_sink(&request(&name)).unwrap();
            save(&mut opened, 0, &[1; 4096]);
            drop(opened);
            let mut opened = store.open_sink(&request(&name)).unwrap();
            assert_eq!(opened.durable.len(), 1, "{length}");
            opened.sink.publish(4096, &[]).unwrap();
            assert_eq!(
                store.open_source(name.as_bytes()).unwrap().info().length,
                Some(4096)
            );
        }
        assert_eq!(names(&temp.path().join("root")).len(), 7);
        let long = "n".repeat(256);
        assert_fault(store.open_source(long.as_bytes()), Code::NameTooLong, &long);
        assert_fault(store.open_sink(&request(&long)), Code::NameTooLong, &long);
        let deep = "d/".repeat(3000) + "file";
        assert_fault(store.open_source(deep.as_bytes()), Code::NameTooLong, &deep);
        assert_fault(store.open_sink(&request(&deep)), Code::NameTooLong, &deep);
        let mut long_name = request("d");
        long_name.name = long.clone().into_bytes();
        assert_fault(
            store.open_sink(&long_name),
            Code::NameTooLong,
            format!("d/{long}"),
        );
    }

    #[test]
    fn permissions_are_respected() {
        let (temp, store) = root();
        let file = temp.path().join("root/d/file");
        let dir = temp.path().join("root/d");
        let mode = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&file, 0);
        mode(&dir, 0o555);
        // The user of a thread is its own on Linux; no other thread is changed.
        let asked = std::thread::scope(|scope| {
            let ask = || {
                #[cfg(target_os = "linux")]
                xdfs_testkit::nobody::become_nobody();
                (
                    store.open_source(b"d/file").map(|_| ()),
                    store.open_sink(&request("d/new")).map(|_| ()),
                    store.check_sink(&request("d/new")).map(|_| ()),
                )
            };
            scope.spawn(ask).join().unwrap()
        });
        assert_fault(asked.0, Code::PermissionDenied, "d/file");
        assert_fault(asked.1, Code::PermissionDenied, "d/new");
        assert_fault(asked.2, Code::PermissionDenied, "d/new");
        mode(&dir, 0o700);
    }
}
