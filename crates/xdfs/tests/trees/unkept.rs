//! Journals that can't be written, or not be opened, and trees for which there is no room.

use std::fs::{self, File};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use xdfs::{Code, Fault, Resume, SyncOptions, TransferParameters, TreeEvent, TreeOptions};
use xdfs_store::tree_journal::{Record, Root, TreeJournal};
use xdfs_testkit::skip;

use crate::journal::{FILES, Scene, tree_of};
use crate::picture::assert_same;
use crate::scene::ALL_WAYS;
use crate::support::{Folders, Serving, client};

const PAGE: u64 = 4096;

/// A small file system for the folder of state; unmounted when dropped.
struct Small(PathBuf);

impl Small {
    /// `None`, with the reason printed, where it can't be mounted.
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "--make-private", "-o", "size=512k,mode=700"])
            .arg("xdfs-test")
            .arg(at)
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            output => {
                skip::test(format_args!("no file system can be mounted: {output:?}"));
                None
            }
        }
    }

    fn remount(&self, how: &str) {
        let remount = format!("remount,{how}");
        let mut command = Command::new("mount");
        let status = command.args(["-o", &remount]).arg(&self.0).status();
        assert!(status.unwrap().success());
    }

    /// Fills it, but for so many pages.
    fn fill(&self, left: u64) {
        let mut file = File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[1; PAGE as usize]).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length - left * PAGE).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn slow(scene: &Scene) -> TreeOptions {
    TreeOptions {
        parameters: TransferParameters {
            rate_bytes_per_s_max: Some(24_000_000),
            ..scene.options().parameters
        },
        ..scene.options()
    }
}

#[test]
fn a_journal_that_has_no_room_still_says_where_the_tree_goes() {
    for way in ALL_WAYS {
        let scene = Scene::new(81, way);
        let Some(small) = Small::mount(&scene.folders.here("state")) else {
            return;
        };
        // Many entries of one directory, each of which is claimed.
        fs::create_dir(scene.source()).unwrap();
        for n in 0..FILES {
            fs::write(scene.source().join(format!("f{n}")), vec![7; 12_000]).unwrap();
        }
        fs::create_dir(scene.journals()).unwrap();
        small.fill(1);
        let run = scene.run(&slow(&scene), FILES / 2);
        assert_eq!(run.result.unwrap_err().code, Code::Cancelled);
        let [warning] = &run.warnings[..] else {
            panic!("{:?}", run.warnings);
        };
        assert_eq!(warning.code, Code::NoSpace, "{warning}");
        assert_eq!(scene.found().len(), 1);
        let run = scene.run(&scene.options(), u64::MAX);
        assert_eq!(run.failed, []);
        assert_eq!(run.result.unwrap().failed, 0);
        assert_same(&scene.source(), &scene.target());
        // On a busy machine it may take until claims are due, for which there is no room either:
        // that is told. With room the same command leaves nothing behind in any case.
        assert!(scene.found().is_empty() || !run.warnings.is_empty());
        small.remount("size=4m");
        let run = scene.run(&scene.options(), u64::MAX);
        assert_eq!(run.failed, []);
        assert_eq!(run.result.unwrap().failed, 0);
        assert_same(&scene.source(), &scene.target());
        assert!(scene.found().is_empty());
    }
}

#[test]
fn a_journal_that_can_not_be_written_keeps_a_second_run_from_what_the_first_made() {
    for way in ALL_WAYS {
        let scene = Scene::new(82, way);
        let Some(small) = Small::mount(&scene.folders.here("state")) else {
            return;
        };
        tree_of(&scene.source(), 12 << 10);
        scene.part(FILES / 3);
        small.remount("ro");
        let before = fs::read_dir(scene.target()).unwrap().count();
        let anew = TreeOptions {
            parameters: TransferParameters {
                resume: Resume::Never,
                ..scene.options().parameters
            },
            ..scene.options()
        };
        for (options, hint) in [(scene.options(), "--no-resume"), (anew, "remove it")] {
            let run = scene.run(&options, u64::MAX);
            let fault = run.result.unwrap_err();
            assert_eq!(fault.code, Code::ReadOnly, "{fault}");
            assert!(fault.cause.contains("earlier run"), "{fault}");
            assert!(fault.hint.contains(hint), "{fault:?}");
            assert_eq!(fault.path, scene.found()[0].as_os_str().as_encoded_bytes());
        }
        assert!(!scene.target().join("tree").exists());
        assert_eq!(fs::read_dir(scene.target()).unwrap().count(), before);
        small.remount("rw");
        assert!(scene.rest().resumed.files > 0);
        assert_same(&scene.source(), &scene.target());
    }
}

#[test]
fn a_journal_without_room_for_a_run_keeps_what_it_says() {
    let folders = Folders::new(83);
    let Some(small) = Small::mount(&folders.here("state")) else {
        return;
    };
    let path = small.0.join("journal");
    let open = || TreeJournal::open(&path, [7; 32], [1; 16], false).unwrap();
    let (mut journal, _) = open();
    // A record that ends where a page does.
    let others = 8 + 1 + 2 * 8 + 1;
    let length = usize::try_from(PAGE - journal.bytes()).unwrap() - others;
    let root = Root {
        path: vec![b'x'; length],
        inode: 1,
        source_inode: 2,
        was_there: false,
    };
    journal.append(&[Record::Root(root.clone())], true).unwrap();
    assert_eq!(journal.bytes(), PAGE);
    drop(journal);
    small.fill(0);
    let (mut journal, _) = open();
    assert_eq!(journal.begin_run().unwrap_err().code, Code::NoSpace);
    assert!(journal.append(&[Record::Run(true)], false).is_err());
    drop(journal);
    let (_, earlier) = open();
    assert_eq!(earlier.root, Some(root));
    assert!(!earlier.has_run);
}

#[test]
fn a_first_run_without_room_for_a_journal_warns_and_leaves_none() {
    for way in ALL_WAYS {
        let scene = Scene::new(84, way);
        let Some(small) = Small::mount(&scene.folders.here("state")) else {
            return;
        };
        fs::create_dir_all(scene.source()).unwrap();
        fs::write(scene.source().join("file"), "content").unwrap();
        fs::create_dir(scene.journals()).unwrap();
        for how in ["full", "read-only"] {
            match how {
                "full" => small.fill(0),
                _ => small.remount("ro"),
            }
            let run = scene.run(&scene.options(), u64::MAX);
            assert_eq!((run.failed, run.result.unwrap().failed), (vec![], 0));
            let [warning] = &run.warnings[..] else {
                panic!("{:?}", run.warnings);
            };
            assert!(warning.hint.contains("can't resume it"), "{warning:?}");
            assert!(scene.found().is_empty());
            assert_same(&scene.source(), &scene.target());
            fs::remove_dir_all(scene.target()).unwrap();
        }
    }
}

/// What isn't there because the disk is full has no attributes, but that is not the reason.
#[test]
fn a_full_disk_is_told_alone() {
    let folders = Folders::new(63);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.root().join("tree");
    for number in 0..8 {
        let within = source.join(format!("{number}/in"));
        fs::create_dir_all(&within).unwrap();
        fs::write(within.join("file"), "content").unwrap();
    }
    let here = folders.here("back");
    let Some(small) = Small::mount(&here) else {
        return;
    };
    let there = Small::mount(&folders.root().join("there")).unwrap();
    let mut failed: Vec<Fault> = Vec::new();
    let mut observer = |event: TreeEvent<'_>| {
        if let TreeEvent::Failed { fault, .. } = event {
            failed.push(fault.clone());
        }
        ControlFlow::Continue(())
    };
    let options = SyncOptions::default();
    for small in [&small, &there] {
        small.remount("nr_inodes=8");
    }
    let up = client.sync_to(&source, b"/there", &options, &mut observer);
    let down = client.sync_from(b"/tree", &here, &options, &mut observer);
    // The first fault ends the run.
    let codes = [up, down].map(|ended| ended.unwrap_err().code);
    assert_eq!(codes, [Code::NoSpace; 2]);
    let others: Vec<_> = (failed.iter())
        .filter(|fault| fault.code != Code::NoSpace)
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn a_target_that_is_no_directory_is_said_to_be_there() {
    let folders = Folders::new(64);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    fs::write(folders.root().join("file"), "").unwrap();
    fs::create_dir_all(folders.here("tree")).unwrap();
    let mut quiet = |_: TreeEvent<'_>| ControlFlow::Continue(());
    let (tree, sync) = (TreeOptions::default(), SyncOptions::default());
    let (here, there) = (&folders.here("tree"), b"/file");
    for fault in [
        client
            .upload_tree(here, there, &tree, &mut quiet)
            .unwrap_err(),
        client
            .download_tree(there, here, &tree, &mut quiet)
            .unwrap_err(),
        client.sync_to(here, there, &sync, &mut quiet).unwrap_err(),
        client
            .sync_from(there, here, &sync, &mut quiet)
            .unwrap_err(),
    ] {
        let machine = fault.machine.clone().expect("a fault of the server");
        assert_eq!(
            fault.to_string(),
            format!("{machine}: cannot copy '/file': not a directory")
        );
    }
}
