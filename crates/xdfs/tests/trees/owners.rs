//! Owners, groups, and the bits by which a program runs as them: kept together, or not at all.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

use xdfs::{SyncOptions, TreeEvent, TreeOptions};
use xdfs_testkit::skip;

use crate::scene::{down, up};
use crate::support::{Folders, Serving, client};

const CONTINUE: std::ops::ControlFlow<()> = std::ops::ControlFlow::Continue(());
const LARGE: usize = 700_000;
/// What a file has: its name, its length, its owner and group, its mode.
const FILES: [(&str, usize, u32, u32, u32); 8] = [
    ("plain", 10, 65534, 65534, 0o644),
    ("user", 10, 65534, 65534, 0o4755),
    ("group", 10, 12, 34, 0o2755),
    ("both", 10, 12, 34, 0o6755),
    ("large-user", LARGE, 65534, 65534, 0o4755),
    ("in/user", 10, 1, 1, 0o4711),
    ("in/large-both", LARGE, 12, 34, 0o6711),
    ("root", 10, 0, 0, 0o4755),
];

/// Whether this can be tested here; tells why not.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip::test("only root has strangers' files");
    }
    is_root
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("in/deep")).unwrap();
    for (name, length, uid, gid, mode) in FILES {
        let path = root.join(name);
        fs::write(&path, vec![7; length]).unwrap();
        chown(&path, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    symlink("plain", root.join("link")).unwrap();
    std::os::unix::fs::lchown(root.join("link"), Some(5), Some(6)).unwrap();
    fs::hard_link(root.join("user"), root.join("in/further")).unwrap();
    for (name, uid, gid, mode) in [
        ("in/deep", 12, 34, 0o1777),
        ("in", 65534, 65534, 0o2775),
        ("", 3, 4, 0o750),
    ] {
        let path = root.join(name);
        chown(&path, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn assert_no_bits(root: &Path) {
    for (name, _, _, _, wanted) in FILES {
        let found = fs::metadata(root.join(name)).unwrap();
        assert_eq!(found.mode() & 0o7777, wanted & 0o777, "{name}");
        assert_eq!(found.uid(), 0, "{name}");
    }
}

#[test]
fn nothing_runs_as_root_that_was_a_strangers() {
    if !is_root() {
        return;
    }
    let folders = Folders::new(41);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    make_tree(&source);
    let options = TreeOptions::default();
    let special = FILES.iter().filter(|file| file.4 & 0o6000 != 0).count() as u64;
    // And the further name of one, which is a file of its own here.
    let special = special + 1;
    let mut warned = 0;
    let mut watch = |event: TreeEvent<'_>| {
        warned += u32::from(matches!(event, TreeEvent::Warning(_)));
        CONTINUE
    };
    let result = client
        .upload_tree(&source, b"/there", &options, &mut watch)
        .unwrap();
    assert_eq!((result.failed, result.unkept), (0, special), "{result:?}");
    assert_no_bits(&folders.root().join("there"));
    make_tree(&folders.root().join("strange"));
    let back = folders.here("back");
    let result = client
        .download_tree(b"/strange", &back, &options, &mut watch)
        .unwrap();
    assert_eq!((result.failed, result.unkept), (0, special), "{result:?}");
    assert_no_bits(&back);
    assert_eq!(warned, 2);

    let sync = SyncOptions::default();
    let mut quiet = |_: TreeEvent<'_>| CONTINUE;
    let made = client
        .sync_to(&source, b"/made", &sync, &mut quiet)
        .unwrap();
    assert_eq!(made.tree.failed, 0);
    assert_no_bits(&folders.root().join("made"));
    let fetched = folders.here("fetched");
    client
        .sync_from(b"/strange", &fetched, &sync, &mut quiet)
        .unwrap();
    assert_no_bits(&fetched);
    // Nothing is left to do, and what changes meanwhile brings no bits either.
    let again = client
        .sync_from(b"/strange", &fetched, &sync, &mut quiet)
        .unwrap();
    assert_eq!(
        (again.set, again.replaced, again.tree.files),
        (0, 0, 0),
        "{again:?}"
    );
    let user = folders.root().join("strange/user");
    fs::set_permissions(&user, fs::Permissions::from_mode(0o4700)).unwrap();
    client
        .sync_from(b"/strange", &fetched, &sync, &mut quiet)
        .unwrap();
    assert_eq!(mode(&fetched.join("user")), 0o700);
}

#[test]
fn owners_and_bits_are_kept_together() {
    if !is_root() {
        return;
    }
    let folders = Folders::new(42);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    make_tree(&source);
    let options = TreeOptions {
        owner: true,
        xattrs: true,
        hard_links: true,
        ..TreeOptions::default()
    };
    let there = folders.root().join("there");
    let (result, failed) = up(&client, &source, "/there", &options).unwrap();
    assert_eq!((failed, result.unkept), (vec![], 0));
    let back = folders.here("back");
    let (result, failed) = down(&client, "/there", &back, &options).unwrap();
    assert_eq!((failed, result.unkept), (vec![], 0));
    for target in [&there, &back] {
        for (name, _, uid, gid, wanted) in FILES {
            let found = fs::metadata(target.join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (uid, gid), "{name}");
            assert_eq!(found.mode() & 0o7777, wanted, "{name}");
        }
        for (name, uid, gid, wanted) in [
            ("in/deep", 12, 34, 0o1777),
            ("in", 65534, 65534, 0o2775),
            ("", 3, 4, 0o750),
        ] {
            let found = fs::metadata(target.join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (uid, gid), "{name}");
            assert_eq!(found.mode() & 0o7777, wanted, "{name}");
        }
        assert_rsync_agrees(&source, target);
    }
    // A synchronisation sees what else differs, and sets it.
    let sync = SyncOptions {
        tree: options,
        ..SyncOptions::default()
    };
    let user = there.join("in/user");
    chown(&user, Some(0), Some(0)).unwrap();
    let mut quiet = |_: TreeEvent<'_>| CONTINUE;
    let result = client
        .sync_to(&source, b"/there", &sync, &mut quiet)
        .unwrap();
    assert_eq!((result.set, result.tree.failed), (1, 0), "{result:?}");
    assert_eq!(
        (fs::metadata(&user).unwrap().uid(), mode(&user)),
        (1, 0o4711)
    );
}

#[test]
fn owners_of_links_and_of_what_takes_their_place_are_synchronised() {
    if !is_root() {
        return;
    }
    let folders = Folders::new(43);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    make_tree(&source);
    let sync = SyncOptions {
        tree: TreeOptions {
            owner: true,
            xattrs: true,
            hard_links: true,
            ..TreeOptions::default()
        },
        ..SyncOptions::default()
    };
    let there = folders.root().join("there");
    let back = folders.here("back");
    let mut quiet = |_: TreeEvent<'_>| CONTINUE;
    for is_new in [true, false] {
        for target in [&there, &back].into_iter().filter(|_| !is_new) {
            std::os::unix::fs::lchown(target.join("link"), Some(7), Some(8)).unwrap();
            for large in ["large-user", "in/large-both"] {
                fs::remove_file(target.join(large)).unwrap();
                symlink("nowhere", target.join(large)).unwrap();
            }
        }
        let up = client
            .sync_to(&source, b"/there", &sync, &mut quiet)
            .unwrap();
        let down = client
            .sync_from(b"/there", &back, &sync, &mut quiet)
            .unwrap();
        assert_eq!((up.tree.failed, down.tree.failed), (0, 0));
        for target in [&there, &back] {
            let link = fs::symlink_metadata(target.join("link")).unwrap();
            assert_eq!((link.uid(), link.gid()), (5, 6));
            for (name, _, uid, gid, wanted) in FILES {
                let found = fs::symlink_metadata(target.join(name)).unwrap();
                assert_eq!((found.uid(), found.gid()), (uid, gid), "{name}");
                assert_eq!(found.mode() & 0o7777, wanted, "{name}");
            }
        }
    }
}

/// rsync, which knows what a copy is, finds nothing to do.
fn assert_rsync_agrees(source: &Path, target: &Path) {
    let output = Command::new("rsync")
        .args(["-aHAX", "--delete", "--dry-run", "--itemize-changes"])
        .arg(source.join(""))
        .arg(target.join(""))
        .output();
    match output {
        Ok(output) => {
            let found = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && found.is_empty(), "{output:?}");
        }
        Err(error) => skip::part(format_args!("rsync can't be asked: {error}")),
    }
}
