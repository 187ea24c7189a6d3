//! Torn ends, damage, other processes and full disks.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use redb::ReadableTable as _;
use xdfs_proto::relay::ParcelState;
use xdfs_proto::{Code, Retry};
use xdfs_spool::{Spool, SpoolLimits};
use xdfs_testkit::skip;

use crate::scene::{
    LIMITS, NOW, assert_held, begin, content, finish, id, open, put, save, segments,
};

#[test]
fn a_torn_end_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    put(&spool, 1, 40_000).unwrap();
    let bytes = content(2, 50_000);
    let mut opened = begin(&spool, 2, 50_000).unwrap();
    save(&mut opened, 0, &bytes[..20_000]).unwrap();
    drop((opened, spool));
    let [segment] = &segments(dir.path())[..] else {
        panic!("{:?}", segments(dir.path()));
    };
    let length = fs::metadata(segment).unwrap().len();
    let mut file = OpenOptions::new().append(true).open(segment).unwrap();
    file.write_all(&[0x55; 7777]).unwrap();
    // A segment of which nothing came into the index.
    fs::write(dir.path().join("segments/00000077.seg"), b"torn").unwrap();
    let spool = open(dir.path());
    assert_eq!(fs::metadata(segment).unwrap().len(), length);
    assert_eq!(segments(dir.path()).len(), 1);
    assert_held(&spool, 1, 40_000);
    let mut opened = begin(&spool, 2, 50_000).unwrap();
    assert_eq!(opened.durable[0].range.len(), 20_000);
    finish(&mut opened, 20_000, &bytes).unwrap();
    drop(opened);
    assert_held(&spool, 2, 50_000);
    // What comes next is in a segment of its own.
    assert_eq!(fs::metadata(segment).unwrap().len(), length);
}

#[test]
fn damage_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    put(&spool, 1, 40_000).unwrap();
    let segment = &segments(dir.path())[0];
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(segment)
        .unwrap();
    // In the header, in the payload, and in its last byte.
    for at in [9, 20_000, 40_027] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        let parcel = spool.find("alice", id(1)).unwrap();
        let fault = spool.open_source(parcel.clone()).read_at(0, &mut [0; 9]);
        assert!(spool.is_damaged(&parcel));
        let fault = fault.unwrap_err();
        assert_eq!(fault.code, Code::Io, "{at}");
        assert!(fault.cause.contains("damaged"), "{fault}");
        file.write_all_at(&byte, at).unwrap();
        assert_held(&spool, 1, 40_000);
        assert!(!spool.is_damaged(&parcel));
    }
    drop(spool);
    fs::remove_file(segment).unwrap();
    let fault = Spool::open(dir.path(), LIMITS).unwrap_err();
    assert!(fault.cause.contains("missing"), "{fault}");
    fs::write(dir.path().join("index.redb"), [1; 9000]).unwrap();
    Spool::open(dir.path(), LIMITS).unwrap_err();
}

/// A spool of another version stays as it is.
#[test]
fn a_spool_of_another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    put(&spool, 1, 40_000).unwrap();
    drop(spool);
    let set = |version: Option<u64>| {
        let database = redb::Database::create(dir.path().join("index.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        let meta = redb::TableDefinition::<&str, u64>::new("meta");
        let mut meta = transaction.open_table(meta).unwrap();
        let old = meta.get("version").unwrap().unwrap().value();
        meta.insert("version", version.unwrap_or(old + 1)).unwrap();
        drop(meta);
        transaction.commit().unwrap();
        old
    };
    let own = set(None);
    for _ in 0..2 {
        let fault = Spool::open(dir.path(), LIMITS).unwrap_err();
        assert_eq!(fault.code, Code::Unsupported, "{fault}");
    }
    set(Some(own));
    assert_held(&open(dir.path()), 1, 40_000);
}

#[test]
fn one_process_at_a_time_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    put(&spool, 1, 10).unwrap();
    let fault = Spool::open(dir.path(), LIMITS).unwrap_err();
    assert_eq!(fault.code, Code::Busy, "{fault}");
    assert_held(&spool, 1, 10);
    drop(spool);
    open(dir.path());
}

/// A small file system of memory; unmounted when dropped.
struct Tiny(PathBuf);

impl Tiny {
    fn mount(at: &Path) -> Option<Self> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=8m", "xdfs-test"]);
        match command.arg(at).output() {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            other => {
                skip::test(format_args!("no file system can be mounted: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        // Lazily, in case that a failed test still holds a file there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_loses_nothing_and_has_room_after_a_delivery() {
    // Where the reserve keeps it from being full, and where the index meets the end of it.
    for reserve_bytes in [3 << 20, 0] {
        let dir = tempfile::tempdir().unwrap();
        let Some(_tiny) = Tiny::mount(dir.path()) else {
            return;
        };
        let limits = SpoolLimits {
            reserve_bytes,
            ..LIMITS
        };
        let spool = Spool::open(dir.path(), limits).unwrap();
        let mut held = 0;
        let fault = loop {
            match put(&spool, held, 200_000) {
                Ok(()) => held += 1,
                Err(fault) => break fault,
            }
            assert!(held < 100);
        };
        assert_eq!(fault.code, Code::NoSpace, "{fault}");
        assert!(matches!(fault.retry, Retry::AfterMs(_)));
        assert!(held > 3, "{held}");
        for seed in 0..held {
            assert_held(&spool, seed, 200_000);
        }
        drop(spool);
        // Somebody makes room for the index, if there is none for its start.
        let opened = Spool::open(dir.path(), limits);
        if reserve_bytes == 0 && opened.is_err() {
            continue;
        }
        let spool = opened.unwrap();
        let mut ended = 0;
        for seed in 0..held - 1 {
            let number = spool.find("alice", id(seed)).unwrap().number;
            let end = spool.alter(number, NOW, |parcel| {
                parcel.state = ParcelState::Delivered;
                Ok(())
            });
            ended += u64::from(end.is_ok());
        }
        assert_held(&spool, held - 1, 200_000);
        if reserve_bytes > 0 {
            assert_eq!(ended, held - 1);
            put(&spool, 1000, 200_000).unwrap();
            assert_held(&spool, 1000, 200_000);
        }
    }
}
