//! Directories in which their owner may make nothing, as somebody who isn't root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use xdfs_testkit::nobody;
use xdfs_testkit::tree::random_bytes;

use crate::journal::{FILES, Scene, tree_of};
use crate::picture::assert_same;
use crate::scene::{ALL_WAYS, Way};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Directories, one in the other, that are closed; those below come first.
const CLOSED: [&str; 4] = ["closed/below/deep", "closed/below", "closed", "0"];

fn close(root: &Path) {
    for name in CLOSED {
        mode(&root.join(name), 0o500);
    }
    mode(root, 0o500);
}

fn open(root: &Path) {
    mode(root, 0o700);
    CLOSED
        .iter()
        .rev()
        .for_each(|name| mode(&root.join(name), 0o700));
}

fn make_tree(root: &Path) {
    tree_of(root, 12 << 10);
    fs::create_dir_all(root.join(CLOSED[0])).unwrap();
    for name in CLOSED {
        fs::write(root.join(name).join("file"), name).unwrap();
        fs::write(root.join(name).join("large"), random_bytes(7, 600 << 10)).unwrap();
    }
}

/// The journal of a run that was killed when it had set all modes and had not removed the journal
/// yet: one from before is put in its place, or what it says before anything is claimed.
fn kill_in_the_last_synchronisation(scene: &Scene, claims: bool) {
    scene.part(FILES / 4);
    let journal = scene.found()[0].clone();
    let mut bytes = fs::read(&journal).unwrap();
    if !claims {
        // After the header come two records, with their lengths at their beginnings.
        let mut end = 64;
        for _ in 0..2 {
            let length = bytes[end..].first_chunk().unwrap();
            end += 8 + u32::from_be_bytes(*length) as usize;
        }
        bytes.truncate(end);
    }
    scene.rest();
    assert_same(&scene.source(), &scene.target());
    fs::write(journal, bytes).unwrap();
}

fn goes_on_in_closed_directories(way: Way, claims: bool, changes: bool) {
    nobody::act(|| {
        let scene = Scene::new(71, way);
        make_tree(&scene.source());
        close(&scene.source());
        kill_in_the_last_synchronisation(&scene, claims);
        if changes {
            open(&scene.source());
            for name in CLOSED {
                let at: PathBuf = scene.source().join(name);
                fs::write(at.join("new"), name).unwrap();
                fs::create_dir_all(at.join("made/inner")).unwrap();
                fs::write(at.join("made/inner/file"), name).unwrap();
            }
            close(&scene.source());
        }
        let result = scene.rest();
        assert!(result.files > 0);
        assert_same(&scene.source(), &scene.target());
        // Or they could not be removed.
        open(&scene.source());
        open(&scene.target());
    });
}

#[test]
fn an_upload_goes_on_in_directories_that_are_closed_already() {
    goes_on_in_closed_directories(Way::Up, true, false);
    goes_on_in_closed_directories(Way::Up, false, false);
    goes_on_in_closed_directories(Way::Up, false, true);
}

#[test]
fn a_download_goes_on_in_directories_that_are_closed_already() {
    goes_on_in_closed_directories(Way::Down, true, false);
    goes_on_in_closed_directories(Way::Down, false, false);
    goes_on_in_closed_directories(Way::Down, false, true);
}

#[test]
fn a_copy_between_servers_goes_on_in_directories_that_are_closed_already() {
    goes_on_in_closed_directories(Way::Between, true, false);
    goes_on_in_closed_directories(Way::Between, false, true);
}

#[test]
fn a_first_run_leaves_closed_directories_of_others_closed() {
    for way in ALL_WAYS {
        nobody::act(|| {
            let scene = Scene::new(72, way);
            fs::create_dir_all(scene.source().join("closed")).unwrap();
            fs::write(scene.source().join("closed/file"), "new").unwrap();
            let there = scene.target().join("tree/closed");
            fs::create_dir_all(&there).unwrap();
            mode(&there, 0o500);
            let run = scene.run(&scene.options(), u64::MAX);
            assert_eq!(run.result.unwrap().failed, 1);
            assert_eq!(run.failed[0].1, xdfs::Code::PermissionDenied);
            assert!(!there.join("file").exists());
            mode(&there, 0o700);
        });
    }
}
