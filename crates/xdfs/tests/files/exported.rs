//! Directories that are made equal to an export: what its rights and limits do to that.

use std::fs::{self, File, FileTimes, Permissions};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use xdfs::security::Rights;
use xdfs::{Client, Code, SyncOptions, SyncResult, TreeEvent};

use crate::pattern;
use crate::rights::Scene;
use crate::support::hidden_names;

const MIB: usize = 1 << 20;

/// Syncs "tree" to the export itself; returns the codes of what failed as well.
fn sync(scene: &Scene, client: &Client, delta: bool) -> (SyncResult, Vec<Code>) {
    let mut failed = Vec::new();
    let options = SyncOptions {
        delta,
        ..SyncOptions::default()
    };
    let tree = scene.folders.here("tree");
    let result = client.sync_to(&tree, b"e", &options, &mut |event: TreeEvent<'_>| {
        if let TreeEvent::Failed { fault, .. } = event {
            failed.push(fault.code);
        }
        ControlFlow::Continue(())
    });
    (result.unwrap(), failed)
}

/// A file here, and an older version of it there.
fn place(scene: &Scene, old: &[u8], new: &[u8]) {
    fs::create_dir_all(scene.folders.here("tree")).unwrap();
    fs::write(scene.folders.here("tree").join("file"), new).unwrap();
    fs::write(scene.there("file"), old).unwrap();
    let file = File::options()
        .write(true)
        .open(scene.there("file"))
        .unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

#[test]
fn whoever_may_not_read_sends_all() {
    let blind = Rights::LIST | Rights::CREATE | Rights::WRITE;
    let users = [("blind", blind), ("whole", blind | Rights::READ)];
    let scene = Scene::new(61, &users, |_| {});
    let old = pattern(1, 2 * MIB);
    let mut new = old.clone();
    new[MIB] ^= 1;
    for user in ["blind", "whole"] {
        let client = scene.client(user);
        place(&scene, &old, &new);
        let (result, failed) = sync(&scene, &client, true);
        assert_eq!((result.tree.files, failed), (1, vec![]));
        assert_eq!(fs::read(scene.there("file")).unwrap(), new);
        assert_eq!(result.tree.matched_bytes > 0, user == "whole", "{user}");
        assert_eq!(hidden_names(&scene.folders.root()), [""; 0]);
    }
}

#[test]
fn a_quota_holds_and_the_old_file_stays() {
    let scene = Scene::new(62, &[("u", Rights::ALL)], |export| {
        export.quota_bytes = Some(3 * MIB as u64);
    });
    let client = scene.client("u");
    let old = pattern(1, 2 * MIB);
    let new = [&old[..], &pattern(2, 2 * MIB)].concat();
    place(&scene, &old, &new);
    let (_, failed) = sync(&scene, &client, true);
    assert_eq!(failed, [Code::QuotaExceeded]);
    assert_eq!(fs::read(scene.there("file")).unwrap(), old);
    assert_eq!(hidden_names(&scene.folders.root()), [""; 0]);
    let new = [&old[..], &pattern(2, MIB / 2)].concat();
    place(&scene, &old, &new);
    let (result, failed) = sync(&scene, &client, true);
    assert_eq!((result.tree.files, failed), (1, vec![]));
    assert!(result.tree.matched_bytes > MIB as u64, "{result:?}");
    assert_eq!(fs::read(scene.there("file")).unwrap(), new);
}

#[test]
fn the_directory_of_an_export_keeps_its_mode() {
    let scene = Scene::new(63, &[("u", Rights::ALL)], |_| {});
    let client = scene.client("u");
    place(&scene, b"old", b"newer");
    let mode = |mode| Permissions::from_mode(mode);
    fs::set_permissions(scene.folders.here("tree"), mode(0o711)).unwrap();
    fs::set_permissions(scene.folders.root(), mode(0o755)).unwrap();
    let (result, failed) = sync(&scene, &client, false);
    assert_eq!((result.tree.files, failed), (1, vec![]));
    let meta = fs::metadata(scene.folders.root()).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o755);
    let (result, failed) = sync(&scene, &client, false);
    assert_eq!((result.tree.files, result.set, failed), (0, 0, vec![]));
}
