//! Parcels whose files come without a length: there is none before it is whole.

use std::fs;
use std::io::IoSlice;
use std::path::Path;

use xdfs_proto::digest::{DigestKind, DigestValue, FragmentMap};
use xdfs_proto::relay::ParcelState;
use xdfs_proto::{ByteRange, Code, Fault, Retry};
use xdfs_spool::{Spool, SpoolLimits};
use xdfs_store::{OpenedSink, SinkRequest};
use xdfs_testkit::stores::{fragment, read_all, request};

use crate::scene::{LIMITS, NOW, assert_held, content, id, open, order, segments};

fn incoming(spool: &Spool, seed: u64, length: Option<u64>) -> Result<OpenedSink, Fault> {
    let request = SinkRequest {
        length,
        mode: Some(0o640),
        mtime_ns: Some(77),
        ..request("in/file")
    };
    spool.open_incoming(order(seed, length.unwrap_or(0)), &request, NOW)
}

fn write(opened: &mut OpenedSink, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
    opened.sink.write_at(offset, &[IoSlice::new(bytes)])
}

/// Has a parcel come in pieces of this size, and publishes it.
pub(crate) fn put_incoming(
    spool: &Spool,
    seed: u64,
    length: usize,
    piece: usize,
) -> Result<(), Fault> {
    let mut opened = incoming(spool, seed, None)?;
    let bytes = content(seed, length);
    for (at, piece) in (0..).step_by(piece).zip(bytes.chunks(piece)) {
        write(&mut opened, at, piece)?;
    }
    opened.sink.publish(length as u64, &[])
}

fn digest_of(bytes: &[u8]) -> DigestValue {
    let mut map = FragmentMap::new(DigestKind::Crc64Nvme);
    if !bytes.is_empty() {
        map.insert(fragment(DigestKind::Crc64Nvme, 0, bytes));
    }
    map.digest(bytes.len() as u64).unwrap()
}

/// Bytes in the segments.
fn stored(dir: &Path) -> u64 {
    let sizes = segments(dir).into_iter();
    sizes.map(|path| fs::metadata(path).unwrap().len()).sum()
}

#[test]
fn a_file_of_any_length_is_there_once_it_is_published() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let cases = [
        (0, 1000),
        (1, 1),
        (4096, 16_384),
        (2_500_001, 16_384),
        (3_000_000, 1 << 20),
        (5_000_000, 3_000_000),
    ];
    for (seed, (length, piece)) in (1..).zip(cases) {
        put_incoming(&spool, seed, length, piece).unwrap();
        let parcel = assert_held(&spool, seed, length);
        assert_eq!(parcel.digest, digest_of(&content(seed, length)), "{length}");
        assert_eq!((parcel.mode, parcel.mtime_ns), (Some(0o640), Some(77)));
        assert_eq!((parcel.opened_s, parcel.taken), (NOW, seed));
        assert_eq!(parcel.order.bytes, length as u64);
    }
    drop(spool);
    let spool = open(dir.path());
    for (seed, (length, _)) in (1..).zip(cases) {
        assert_held(&spool, seed, length);
    }
    // TLS brings 16 KiB at a time, and a record costs an entry of the index.
    drop(spool);
    let spool = open(dir.path());
    let before = stored(dir.path());
    put_incoming(&spool, 20, 1 << 20, 16_384).unwrap();
    assert_eq!(stored(dir.path()) - before, (1 << 20) + 28);
}

#[test]
fn pieces_come_in_any_order_and_with_holes() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let mut bytes = content(5, 2_000_000);
    bytes[700_000..1_300_000].fill(0);
    let mut opened = incoming(&spool, 5, None).unwrap();
    for at in [1_600_000, 0, 1_300_000, 300_000] {
        let end = match at {
            1_600_000 => 2_000_000,
            300_000 => 700_000,
            at => at + 300_000,
        };
        write(&mut opened, at as u64, &bytes[at..end]).unwrap();
    }
    opened.sink.hole(ByteRange {
        start: 700_000,
        end: 1_300_000,
    });
    opened.sink.publish(2_000_000, &[]).unwrap();
    let parcel = spool.find("alice", id(5)).unwrap();
    assert_eq!(parcel.digest, digest_of(&bytes));
    assert!(read_all(&mut *spool.open_source(parcel)) == bytes);
    // Bytes that come twice count as they came last, and no digest is known then.
    let mut opened = incoming(&spool, 6, None).unwrap();
    write(&mut opened, 0, &[1; 1000]).unwrap();
    opened.sink.sync().unwrap();
    write(&mut opened, 500, &[2; 1000]).unwrap();
    opened.sink.publish(1500, &[]).unwrap();
    let parcel = spool.find("alice", id(6)).unwrap();
    assert_eq!(parcel.digest, DigestValue::None);
    let read = read_all(&mut *spool.open_source(parcel));
    assert_eq!(read, [[1; 500], [2; 500], [2; 500]].concat());
}

#[test]
fn nothing_stays_of_a_file_that_is_not_whole() {
    let dir = tempfile::tempdir().unwrap();
    let limits = SpoolLimits {
        bytes_max: 40_000_000,
        bytes_per_user_max: 40_000_000,
        ..LIMITS
    };
    let spool = Spool::open(dir.path(), limits).unwrap();
    put_incoming(&spool, 1, 1000, 1000).unwrap();
    let others = stored(dir.path());
    let bytes = content(2, 30_000_000);
    for round in 0..3 {
        let mut opened = incoming(&spool, 2, None).unwrap();
        write(&mut opened, 0, &bytes).unwrap();
        opened.sink.sync().unwrap();
        assert!(stored(dir.path()) > 30_000_000);
        match round {
            0 => {}
            1 => opened.sink.discard().unwrap(),
            // A part is missing: at its end, in the middle, or all of it.
            _ => {
                write(&mut opened, 30_000_100, b"more").unwrap();
                opened.sink.publish(30_000_104, &[]).unwrap_err();
                opened.sink.publish(30_000_104, &[]).unwrap_err();
            }
        }
        drop(opened);
        assert_eq!(spool.find("alice", id(2)).unwrap_err().code, Code::NotFound);
        assert!(stored(dir.path()) <= others, "{round}");
        assert_held(&spool, 1, 1000);
    }
    // The room of all of them is there again, up to the last byte.
    put_incoming(&spool, 3, 39_999_000, 1 << 20).unwrap();
    let fault = put_incoming(&spool, 4, 1, 1).unwrap_err();
    assert_eq!(fault.code, Code::QuotaExceeded);
    assert!(matches!(fault.retry, Retry::AfterMs(_)), "{fault}");
    // One that says its length is refused before it comes.
    let fault = incoming(&spool, 5, Some(1)).unwrap_err();
    assert_eq!(fault.code, Code::QuotaExceeded);
    let number = assert_held(&spool, 3, 39_999_000).number;
    let end = |parcel: &mut xdfs_spool::Parcel| {
        parcel.state = ParcelState::Delivered;
        Ok(())
    };
    spool.alter(number, NOW, end).unwrap();
    put_incoming(&spool, 6, 39_999_000, 1 << 20).unwrap();
    assert_held(&spool, 6, 39_999_000);
}

#[test]
fn an_identifier_is_that_of_one_parcel() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    put_incoming(&spool, 1, 1000, 100).unwrap();
    let fault = put_incoming(&spool, 1, 1000, 100).unwrap_err();
    assert_eq!(fault.code, Code::AlreadyExists);
    assert_held(&spool, 1, 1000);
    // A number that was given to a file that never came is given to no other.
    drop(incoming(&spool, 2, None).unwrap());
    put_incoming(&spool, 3, 1000, 100).unwrap();
    assert_held(&spool, 1, 1000);
    assert_held(&spool, 3, 1000);
}
