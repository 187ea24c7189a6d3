//! What only sinks of local files can get wrong.

#![cfg(unix)]

use std::io::IoSlice;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use xdfs_proto::digest::DigestKind;
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, Retry, SourceTag};
use xdfs_store::{LocalStore, SinkRequest, Store};
use xdfs_testkit::skip;

use crate::common::*;

fn temp() -> (tempfile::TempDir, LocalStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = rooted(dir.path());
    (dir, store)
}

#[test]
fn metadata_is_given_without_dangerous_bits() {
    let (dir, store) = temp();
    let mut wanted = request("file");
    wanted.mode = Some(0o7751);
    wanted.mtime_ns = Some(1_000_000_000_000_000_123);
    let mut opened = store.open_sink(&wanted).unwrap();
    write(&mut opened, 0, b"abc");
    let partial = std::fs::metadata(dir.path().join(".file.xdfs-part")).unwrap();
    assert_eq!(partial.permissions().mode() & 0o777, 0o600);
    opened.sink.publish(3, &[]).unwrap();
    let meta = std::fs::metadata(dir.path().join("file")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o751);
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000_000, 123));
    // Before 1970.
    wanted.mtime_ns = Some(-1_500_000_000);
    wanted.overwrite = true;
    put(&store, &wanted, b"abc").unwrap();
    let meta = std::fs::metadata(dir.path().join("file")).unwrap();
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (-2, 500_000_000));
}

#[test]
fn a_default_mode_is_what_any_program_would_give() {
    let (dir, store) = temp();
    put(&store, &request("ours"), b"").unwrap();
    std::fs::write(dir.path().join("theirs"), "").unwrap();
    let mode = |name| {
        std::fs::metadata(dir.path().join(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(mode("ours"), mode("theirs"));
}

#[test]
fn only_one_transfer_writes_a_target() {
    let (dir, store) = temp();
    let mut first = store.open_sink(&request("file")).unwrap();
    write(&mut first, 0, b"first");
    let second = store.open_sink(&request("file"));
    assert_eq!(second.as_ref().unwrap_err().retry, Retry::AfterMs(200));
    assert_fault(second, Code::Busy, "file");
    assert_fault(store.check_sink(&request("file")), Code::Busy, "file");
    // Another name in the same directory is free.
    drop(store.open_sink(&request("other")).unwrap());
    first.sink.publish(5, &[]).unwrap();
    drop(first);
    let mut force = request("file");
    force.overwrite = true;
    put(&store, &force, b"second").unwrap();
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"second");
    assert_eq!(names(dir.path()), ["file"]);
}

/// A process that another thread starts has copies of all descriptors for a moment.
#[test]
fn a_lock_does_not_outlive_its_sink_in_a_new_process() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (_dir, store) = temp();
    // So that the same partial file is opened each time.
    save(
        &mut store.open_sink(&request("file")).unwrap(),
        0,
        &[1; 4096],
    );
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let starter = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::process::Command::new("true").status().unwrap();
            }
        });
        let opened = (0..3000).try_for_each(|_| store.open_sink(&request("file")).map(drop));
        stop.store(true, Ordering::Relaxed);
        starter.join().unwrap();
        opened.unwrap();
    });
}

#[test]
fn many_threads_on_one_target_publish_once() {
    let (dir, store) = temp();
    let published: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8_u8)
            .map(|i| {
                let store = &store;
                scope.spawn(move || {
                    (0..50)
                        .filter(|_| match put(store, &request("file"), &[i; 1000]) {
                            Ok(()) => true,
                            Err(f) => {
                                assert!(matches!(f.code, Code::Busy | Code::AlreadyExists), "{f}");
                                false
                            }
                        })
                        .count()
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert_eq!(published, 1);
    let content = std::fs::read(dir.path().join("file")).unwrap();
    assert!(content.len() == 1000 && content.iter().all(|b| *b == content[0]));
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
fn an_attempt_with_nothing_durable_leaves_nothing() {
    let (dir, store) = temp();
    let mut opened = store.open_sink(&request("file")).unwrap();
    write(&mut opened, 0, b"not recorded");
    drop(opened);
    assert_eq!(names(dir.path()), [""; 0]);
    // A source that can't be recognised again leaves nothing either.
    let mut unknown = request("file");
    unknown.tag = SourceTag::default();
    let mut opened = store.open_sink(&unknown).unwrap();
    save(&mut opened, 0, &[1; 4096]);
    drop(opened);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_discarded_attempt_leaves_nothing_and_the_old_target() {
    let (dir, store) = temp();
    std::fs::write(dir.path().join("file"), "old").unwrap();
    let mut force = request("file");
    force.overwrite = true;
    let mut opened = store.open_sink(&force).unwrap();
    save(&mut opened, 0, &[1; 4096]);
    assert_eq!(names(dir.path()).len(), 3);
    opened.sink.discard().unwrap();
    drop(opened);
    assert_eq!(names(dir.path()), ["file"]);
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"old");
}

#[test]
fn a_small_file_needs_no_journal() {
    let (dir, store) = temp();
    let mut opened = store.open_sink(&request("file")).unwrap();
    write(&mut opened, 0, b"ab");
    opened.sink.sync().unwrap();
    assert_eq!(names(dir.path()), [".file.xdfs-part"]);
    opened.sink.publish(2, &[]).unwrap();
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
fn what_differs_starts_over() {
    let other_tag = |r: &mut SinkRequest| r.tag = SourceTag([8; 16]);
    type Change<'a> = &'a dyn Fn(&mut SinkRequest);
    let changes: [(&str, Change<'_>); 5] = [
        ("tag", &other_tag),
        ("length", &|r| r.length = Some(9000)),
        ("digest", &|r| r.digest = DigestKind::Blake3),
        ("no resume", &|r| r.resume = Resume::Never),
        ("no tag", &|r| r.tag = SourceTag::default()),
    ];
    for (what, change) in changes {
        let (dir, store) = temp();
        let mut opened = store.open_sink(&request("file")).unwrap();
        save(&mut opened, 0, &[1; 8192]);
        drop(opened);
        let mut changed = request("file");
        change(&mut changed);
        let mut opened = store.open_sink(&changed).unwrap();
        assert_eq!(opened.durable, [], "{what}");
        // Nothing of the earlier version can show through.
        assert_eq!(
            std::fs::metadata(dir.path().join(".file.xdfs-part"))
                .unwrap()
                .len(),
            0
        );
        assert!(!dir.path().join(".file.xdfs-journal").exists(), "{what}");
        opened.sink.publish(9000, &[]).unwrap();
        assert_eq!(
            std::fs::read(dir.path().join("file")).unwrap(),
            [0; 9000],
            "{what}"
        );
    }
}

#[test]
fn a_partial_file_that_lost_its_tail_starts_over() {
    let (dir, store) = temp();
    let mut opened = store.open_sink(&request("file")).unwrap();
    save(&mut opened, 0, &[1; 8192]);
    drop(opened);
    let partial = dir.path().join(".file.xdfs-part");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&partial)
        .unwrap()
        .set_len(8191)
        .unwrap();
    assert_eq!(store.open_sink(&request("file")).unwrap().durable, []);
    // And one that is gone leaves a journal that means nothing.
    let mut opened = store.open_sink(&request("file")).unwrap();
    save(&mut opened, 0, &[1; 8192]);
    drop(opened);
    std::fs::remove_file(&partial).unwrap();
    assert_eq!(store.open_sink(&request("file")).unwrap().durable, []);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_hole_at_the_end_may_be_recorded() {
    let (_dir, store) = temp();
    let mut wanted = request("file");
    wanted.length = Some(12288);
    let mut opened = store.open_sink(&wanted).unwrap();
    save(&mut opened, 0, &[1; 4096]);
    let hole = fragment(DigestKind::Crc64Nvme, 4096, &[0; 8192]);
    opened.sink.record(&[hole]).unwrap();
    drop(opened);
    let opened = store.open_sink(&wanted).unwrap();
    assert_eq!(
        opened.durable.iter().map(|f| f.range).collect::<Vec<_>>(),
        [range(0, 12288)]
    );
}

#[test]
fn a_smaller_grid_wins_and_stays() {
    let (_dir, store) = temp();
    let mut large = request("file");
    large.block_size = 8192;
    let mut opened = store.open_sink(&large).unwrap();
    save(&mut opened, 0, &[1; 8192]);
    drop(opened);
    let mut opened = store.open_sink(&request("file")).unwrap();
    assert_eq!(opened.block_size, BLOCK);
    save(&mut opened, 8192, &[1; 4096]);
    drop(opened);
    let opened = store.open_sink(&large).unwrap();
    assert_eq!(opened.block_size, BLOCK);
    assert_eq!(
        opened.durable.iter().map(|f| f.range).collect::<Vec<_>>(),
        [range(0, 12288)]
    );
}

#[test]
fn a_range_that_is_not_durable_yet_is_not_recorded() {
    let (_dir, store) = temp();
    let mut opened = store.open_sink(&request("file")).unwrap();
    write(&mut opened, 0, &[1; 4096]);
    let early = fragment(DigestKind::Crc64Nvme, 0, &[1; 4096]);
    assert_fault(opened.sink.record(&[early]), Code::Internal, "file");
    opened.sink.sync().unwrap();
    opened.sink.record(&[early]).unwrap();
}

#[test]
fn things_in_the_way_of_the_partial_file_are_not_followed() {
    let (dir, store) = temp();
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    let partial = dir.path().join(".file.xdfs-part");
    let journal = dir.path().join(".file.xdfs-journal");
    type Plant<'a> = &'a dyn Fn(&Path);
    let plant: [(&str, Plant<'_>); 3] = [
        ("link", &|at| symlink("precious", at).unwrap()),
        ("second name", &|at| {
            std::fs::hard_link(&precious, at).unwrap()
        }),
        ("socket", &|at| {
            drop(std::os::unix::net::UnixListener::bind(at).unwrap())
        }),
    ];
    let mut force = request("file");
    force.overwrite = true;
    for (what, plant) in plant {
        plant(&partial);
        plant(&journal);
        let mut opened = store.open_sink(&force).unwrap();
        assert_eq!(opened.durable, [], "{what}");
        save(&mut opened, 0, &[1; 4096]);
        opened.sink.publish(4096, &[]).unwrap();
        drop(opened);
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious", "{what}");
        assert_eq!(names(dir.path()), ["file", "precious"], "{what}");
    }
    std::fs::create_dir(&partial).unwrap();
    let blocked = store.open_sink(&force).unwrap_err();
    assert!(blocked.hint.contains(".file.xdfs-part"), "{blocked:?}");
}

#[test]
fn a_partial_file_that_was_exchanged_is_not_published() {
    let (dir, store) = temp();
    let mut opened = store.open_sink(&request("file")).unwrap();
    write(&mut opened, 0, b"ours");
    std::fs::remove_file(dir.path().join(".file.xdfs-part")).unwrap();
    std::fs::write(dir.path().join(".file.xdfs-part"), "theirs").unwrap();
    assert_fault(opened.sink.publish(4, &[]), Code::Io, "file");
    drop(opened);
    assert!(!dir.path().join("file").exists());
}

#[test]
fn a_directory_that_appears_meanwhile_is_not_replaced() {
    let (dir, store) = temp();
    let mut force = request("file");
    force.overwrite = true;
    let mut opened = store.open_sink(&force).unwrap();
    std::fs::create_dir(dir.path().join("file")).unwrap();
    assert_fault(opened.sink.publish(0, &[]), Code::IsDirectory, "file");
}

#[test]
fn space_is_reserved_for_a_length_that_is_known() {
    let (dir, store) = temp();
    let mut wanted = request("file");
    wanted.length = Some(8 << 20);
    let mut opened = store.open_sink(&wanted).unwrap();
    write(&mut opened, 0, b"x");
    // Whatever was reserved, the file ends where it is published to end.
    opened.sink.publish(1, &[]).unwrap();
    let meta = std::fs::metadata(dir.path().join("file")).unwrap();
    assert_eq!(meta.len(), 1);
    assert!(meta.blocks() * 512 < 1 << 20, "{}", meta.blocks());
}

#[test]
fn a_length_that_can_not_fit_is_refused_at_once() {
    let (dir, store) = temp();
    let mut wanted = request("file");
    wanted.length = Some(i64::MAX as u64);
    match store.open_sink(&wanted) {
        // A file system of which the free space isn't known.
        Ok(_) => skip::test("this file system reserves nothing"),
        // It is more than is left, or more than a file may have there.
        Err(fault) => {
            let codes = [Code::NoSpace, Code::LimitExceeded];
            assert!(codes.contains(&fault.code), "{fault}");
        }
    }
    assert_eq!(names(dir.path()), [""; 0]);
}

/// A file system that is full very soon; `None` where this user can't mount.
struct Tiny(tempfile::TempDir);

impl Tiny {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let output = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "xdfs-test"])
            .arg(dir.path())
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Self(dir)),
            _ => None,
        }
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status();
    }
}

#[test]
fn a_full_disk_is_named_and_the_old_target_stays() {
    let Some(tiny) = Tiny::mount() else {
        return skip::test("this user can't mount");
    };
    let store = rooted(tiny.0.path());
    put(&store, &request("file"), &pattern(1000)).unwrap();
    let mut force = request("file");
    force.overwrite = true;
    // Of known length: refused before anything is sent.
    force.length = Some(2 << 20);
    assert_fault(store.open_sink(&force), Code::NoSpace, "file");
    // Of unknown length: found out while it is written; what is durable stays for a resume.
    force.length = None;
    let mut opened = store.open_sink(&force).unwrap();
    save(&mut opened, 0, &[1; 65536]);
    let full = opened
        .sink
        .write_at(65536, &[IoSlice::new(&vec![1; 2 << 20])]);
    assert_fault(full, Code::NoSpace, "file");
    drop(opened);
    let mut opened = store.open_sink(&force).unwrap();
    assert_eq!(opened.durable.len(), 1);
    opened.sink.discard().unwrap();
    drop(opened);
    assert_eq!(names(tiny.0.path()), ["file"]);
    assert_eq!(
        std::fs::read(tiny.0.path().join("file")).unwrap(),
        pattern(1000)
    );
}
