//! Holes of files that sinks write: what is zero takes no storage where the source is sparse, and
//! reads as zeros whatever was there before.

#![cfg(unix)]

use std::io::IoSlice;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use xdfs_proto::Code;
use xdfs_proto::digest::DigestKind;
use xdfs_store::{LocalStore, SinkRequest, Store};

use crate::common::*;

const MIB: usize = 1 << 20;

fn sparse(length: usize) -> SinkRequest {
    SinkRequest {
        length: Some(length as u64),
        sparse: true,
        ..request("file")
    }
}

fn bytes_of(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

fn temp() -> (tempfile::TempDir, LocalStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = rooted(dir.path());
    (dir, store)
}

/// Data in the first, the third and the fifth part of eight.
fn striped(part: usize) -> Vec<u8> {
    let mut bytes = vec![0; 8 * part];
    for number in [0, 2, 4] {
        bytes[number * part..][..part].copy_from_slice(&vec![number as u8 + 1; part]);
    }
    bytes
}

#[test]
fn zeros_take_no_storage() {
    let (dir, store) = temp();
    let can = knows_holes(dir.path());
    // Not reserved, reserved otherwise, and written past the page cache otherwise.
    for part in [4096, 64 << 10, 9 * MIB] {
        for is_marked in [true, false] {
            let bytes = striped(part);
            let wanted = SinkRequest {
                sparse: is_marked,
                overwrite: true,
                ..sparse(bytes.len())
            };
            let mut opened = store.open_sink(&wanted).unwrap();
            // The last first, in pieces of two buffers.
            let piece = (bytes.len() / 4).min(MIB);
            for (n, bytes) in bytes.chunks(piece).enumerate().rev() {
                let (one, two) = bytes.split_at(piece / 2 - 100);
                let bufs = [IoSlice::new(one), IoSlice::new(two)];
                opened.sink.write_at((n * piece) as u64, &bufs).unwrap();
            }
            opened.sink.publish(bytes.len() as u64, &[]).unwrap();
            let path = dir.path().join("file");
            assert!(std::fs::read(&path).unwrap() == bytes);
            if can {
                let found = bytes_of(&path);
                let most = if is_marked { 3 * part } else { bytes.len() } as u64;
                assert!(found <= most + 8192, "{found} of {most} bytes");
                // Nobody looks for zeros in what isn't marked.
                assert!(is_marked || found >= most);
            }
        }
    }
}

#[test]
fn a_file_of_zeros_alone_takes_nothing() {
    let (dir, store) = temp();
    for length in [1, 5000, 2 * MIB] {
        let wanted = SinkRequest {
            overwrite: true,
            ..sparse(length)
        };
        put(&store, &wanted, &vec![0; length]).unwrap();
        let path = dir.path().join("file");
        assert_eq!(std::fs::read(&path).unwrap(), vec![0; length]);
        if knows_holes(dir.path()) {
            assert_eq!(bytes_of(&path), 0);
        }
    }
}

/// A damaged block may have been written before the good one comes.
#[test]
fn zeros_replace_what_came_before() {
    for is_hole in [true, false] {
        let (dir, store) = temp();
        let mut opened = store.open_sink(&sparse(4 * MIB)).unwrap();
        write(&mut opened, MIB as u64, &vec![9; MIB]);
        if is_hole {
            let damaged = range(MIB as u64, 2 * MIB as u64);
            opened.sink.hole(damaged);
            opened.sink.hole(range(2 * MIB as u64, 4 * MIB as u64));
        } else {
            write(&mut opened, MIB as u64, &vec![0; MIB]);
            write(&mut opened, 2 * MIB as u64, &vec![0; 2 * MIB]);
        }
        write(&mut opened, 0, &vec![0; MIB]);
        opened.sink.publish(4 * MIB as u64, &[]).unwrap();
        let found = std::fs::read(dir.path().join("file")).unwrap();
        assert!(found == vec![0; 4 * MIB], "{is_hole}");
    }
}

/// What isn't in the journal may hold anything: it was on its way when the attempt before ended.
#[test]
fn zeros_replace_what_an_earlier_attempt_has_left() {
    let (dir, store) = temp();
    let length = 4 * MIB;
    let mut opened = store.open_sink(&sparse(length)).unwrap();
    save(&mut opened, 0, &[1; 4096]);
    // Zeros are as durable as other bytes, also at the end of what is there.
    save(&mut opened, 8192, &[0; 8192]);
    write(&mut opened, 1 << 20, &[7; 4096]);
    write(&mut opened, 3 << 20, &[7; 4096]);
    drop(opened);
    let mut opened = store.open_sink(&sparse(length)).unwrap();
    let durable: Vec<_> = opened.durable.iter().map(|f| f.range).collect();
    assert_eq!(durable, [range(0, 4096), range(8192, 16384)]);
    write(&mut opened, 4096, &[0; 4096]);
    write(&mut opened, 16384, &vec![0; length - 16384]);
    opened.sink.publish(length as u64, &[]).unwrap();
    let mut expected = vec![0; length];
    expected[..4096].fill(1);
    assert!(std::fs::read(dir.path().join("file")).unwrap() == expected);
}

/// An attempt that was broken off early may have reserved storage and written nothing.
#[test]
#[cfg(target_os = "linux")]
fn what_an_earlier_attempt_has_reserved_is_given_back() {
    let (dir, store) = temp();
    let partial = std::fs::File::create(dir.path().join(".file.xdfs-part")).unwrap();
    xdfs_sys::fs::preallocate(&partial, 4 << 20).unwrap();
    drop(partial);
    put(&store, &sparse(4096), &[1; 4096]).unwrap();
    let path = dir.path().join("file");
    assert_eq!(std::fs::read(&path).unwrap(), [1; 4096]);
    if knows_holes(dir.path()) {
        assert!(bytes_of(&path) <= 8192);
    }
}

/// A block that comes again, as the check of the first one failed.
#[test]
fn data_replaces_zeros_that_were_left_out() {
    let (dir, store) = temp();
    let mut opened = store.open_sink(&sparse(2 * MIB)).unwrap();
    write(&mut opened, 0, &vec![0; 2 * MIB]);
    write(&mut opened, 4096, &pattern(4096));
    opened.sink.publish(2 * MIB as u64, &[]).unwrap();
    let mut expected = vec![0; 2 * MIB];
    expected[4096..8192].copy_from_slice(&pattern(4096));
    assert!(std::fs::read(dir.path().join("file")).unwrap() == expected);
}

/// A block whose check failed may have been written where the source has a hole. The hole reaches
/// further than that block did.
#[test]
fn damaged_bytes_do_not_show_in_a_hole() {
    for records in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = rooted(dir.path());
        let mut wanted = request("file");
        wanted.length = Some(16384);
        let mut opened = store.open_sink(&wanted).unwrap();
        write(&mut opened, 0, &[9; 8192]);
        opened.sink.hole(range(4096, 16384));
        if records {
            // Claimed now, and published by another attempt, which knows of no hole.
            opened.sink.sync().unwrap();
            let data = fragment(DigestKind::Crc64Nvme, 0, &[9; 4096]);
            let hole = fragment(DigestKind::Crc64Nvme, 4096, &[0; 12288]);
            opened.sink.record(&[data, hole]).unwrap();
            drop(opened);
            opened = store.open_sink(&wanted).unwrap();
            let held: u64 = opened.durable.iter().map(|f| f.range.len()).sum();
            assert_eq!(held, 16384);
        }
        opened.sink.publish(16384, &[]).unwrap();
        let content = std::fs::read(dir.path().join("file")).unwrap();
        assert_eq!(content[..4096], [9; 4096]);
        assert!(content[4096..] == [0; 12288], "records: {records}");
    }
}

/// It isn't claimed before it reads as zeros.
#[test]
fn a_hole_is_not_recorded_before_it_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = rooted(dir.path()).open_sink(&request("file")).unwrap();
    write(&mut opened, 0, &[9; 4096]);
    opened.sink.sync().unwrap();
    opened.sink.hole(range(0, 4096));
    let hole = fragment(DigestKind::Crc64Nvme, 0, &[0; 4096]);
    assert_fault(opened.sink.record(&[hole]), Code::Internal, "file");
    opened.sink.sync().unwrap();
    opened.sink.record(&[hole]).unwrap();
}
