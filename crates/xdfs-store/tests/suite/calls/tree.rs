//! Removing trees.

use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink as link_to;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use xdfs_testkit::{nobody, skip};

use super::*;

fn removed(scene: &Scene, path: impl AsRef<[u8]>) -> u64 {
    match scene.call(&remove_tree(path)).unwrap() {
        Answer::Removed { entries } => entries,
        other => panic!("{other:?}"),
    }
}

#[test]
fn everything_in_a_tree_goes_and_nothing_else() {
    let scene = Scene::new();
    let root = scene.root();
    for i in 0..3000 {
        std::fs::write(root.join(format!("d/{i}")), "x").unwrap();
    }
    for i in 0..50 {
        std::fs::create_dir_all(root.join(format!("d/sub-{i}/a/b"))).unwrap();
        std::fs::write(root.join(format!("d/sub-{i}/a/b/file")), "x").unwrap();
    }
    link_to(scene.temp.path(), root.join("d/out")).unwrap();
    link_to("..", root.join("d/up")).unwrap();
    std::fs::write(root.join("stays"), "").unwrap();
    assert_eq!(removed(&scene, "d/"), 1 + 1 + 3000 + 50 * 4 + 2);
    assert_eq!(names(&root), ["stays"]);
    scene.assert_outside_is_whole();
}

#[test]
fn what_is_no_directory_is_no_tree() {
    let scene = Scene::new();
    link_to("d", scene.root().join("link")).unwrap();
    for path in ["d/file", "link", "link/"] {
        scene.refused(&remove_tree(path), Code::NotDirectory, path);
    }
    scene.refused(&remove_tree("no"), Code::NotFound, "no");
    assert_eq!(names(&scene.root().join("d")), ["file"]);
}

#[test]
fn a_tree_deeper_than_any_path_goes() {
    const DEPTH: u64 = 3000;
    let scene = Scene::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = openat(CWD, scene.root().join("d"), flags, Mode::empty()).unwrap();
    for i in 0..DEPTH {
        mkdirat(&at, "down", Mode::RWXU).unwrap();
        if i % 100 == 0 {
            mkdirat(&at, "beside", Mode::RWXU).unwrap();
            rustix::fs::symlinkat("/", &at, "link").unwrap();
        }
        at = openat(&at, "down", flags, Mode::empty()).unwrap();
    }
    drop(at);
    // The path to it can't be said in one.
    let deep = format!("d{}", "/down".repeat(DEPTH as usize));
    scene.refused(&list(&deep), Code::NameTooLong, &deep);
    assert_eq!(removed(&scene, "d"), 1 + 1 + DEPTH + 2 * DEPTH / 100);
    assert_eq!(names(&scene.root()), [""; 0]);
}

#[test]
fn each_name_that_goes_is_told() {
    let scene = Scene::new();
    scene.done(&make("d/sub", false));
    scene.done(&symlink("file", "d/sub/link"));
    let (mut told, mut is_begun) = (Vec::new(), false);
    let count = scene.store.remove_tree(b"/d/", &mut |removed| {
        if let Some((path, attributes)) = removed {
            assert!(is_begun);
            told.push((String::from_utf8(path.to_vec()).unwrap(), attributes.size));
        }
        is_begun = removed.is_none();
    });
    assert_eq!(count.unwrap(), 4);
    let last = told.pop().unwrap();
    assert_eq!(last.0, "/d");
    told.retain(|(path, _)| path != "/d/sub");
    told.sort();
    assert_eq!(told, [("/d/file".into(), 6), ("/d/sub/link".into(), 4)]);
}

#[test]
fn a_copy_that_is_stopped_at_its_end_is_none() {
    let scene = Scene::new();
    let stop = Fault::new(Code::QuotaExceeded, "copy", "too much");
    let result = scene
        .store
        .copy(b"d/file", b"copied", false, &mut |length| {
            assert_eq!((length, exists(&scene.root().join("copied"))), (6, false));
            Err(stop.clone())
        });
    assert_eq!(result.unwrap_err().code, Code::QuotaExceeded);
    assert_eq!(names(&scene.root()), ["d"]);
    let result = scene
        .store
        .copy(b"d/file", b"copied", false, &mut |_| Ok(()));
    assert_eq!(result.unwrap(), 6);
    assert_eq!(names(&scene.root()), ["copied", "d"]);
}

#[test]
fn what_an_unfinished_transfer_left_goes_with_the_tree() {
    let scene = Scene::new();
    let mut transfer = scene.store.open_sink(&request("d/new")).unwrap();
    save(&mut transfer, 0, &[1; 4096]);
    scene.done(&remove_file("d/file"));
    scene.refused(&remove_directory("d"), Code::NotEmpty, "d");
    drop(transfer);
    assert_eq!(removed(&scene, "d"), 3);
}

#[test]
fn a_tree_that_others_fill_and_empty_goes_or_is_said_to_change() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let scene = Scene::new();
    let dir = scene.root().join("d");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                i += 1;
                let _ = std::fs::create_dir_all(dir.join(format!("{}/x", i % 7)));
                let _ = std::fs::write(dir.join(format!("{}/y", i % 5)), "");
                let _ = std::fs::rename(dir.join("1/x"), dir.join("2/z"));
                let _ = std::fs::remove_dir_all(dir.join(format!("{}", i % 3)));
            }
        });
        let mut gone = 0;
        for _ in 0..500 {
            match scene.call(&remove_tree("d")) {
                Ok(_) => gone += 1,
                Err(fault) => assert!(
                    matches!(fault.code, Code::NotEmpty | Code::Busy | Code::NotFound),
                    "{fault}"
                ),
            }
            if gone > 20 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    scene.assert_outside_is_whole();
}

#[test]
fn a_tree_with_a_part_that_may_not_be_changed_stays_in_part() {
    if !nobody::is_root() {
        return skip::test("only root can become somebody else");
    }
    let scene = Scene::new();
    let open = |path: &Path| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, mode).unwrap();
    };
    open(scene.temp.path());
    open(&scene.root());
    open(&scene.root().join("d"));
    std::fs::create_dir(scene.root().join("d/locked")).unwrap();
    std::fs::write(scene.root().join("d/locked/file"), "").unwrap();
    let result = nobody::act(|| scene.call(&remove_tree("d")));
    assert_fault(result, Code::PermissionDenied, "d/locked/file");
}
