//! Spools for tests, and parcels with a content that follows from their number.

use std::fs;
use std::path::{Path, PathBuf};

use xdfs_proto::Fault;
use xdfs_proto::digest::{DigestKind, DigestValue};
use xdfs_proto::relay::ParcelState;
use xdfs_proto::third_party::CopyId;
use xdfs_spool::{NewParcel, Parcel, Spool, SpoolLimits};
use xdfs_store::{OpenedSink, SinkRequest};
use xdfs_testkit::stores::{fragment, read_all, request};

/// Segments that several parcels fill.
pub(crate) const LIMITS: SpoolLimits = SpoolLimits {
    bytes_max: u64::MAX,
    bytes_per_user_max: u64::MAX,
    parcel_bytes: 0,
    parcels_per_user_max: 1_000_000,
    segment_bytes: 300_000,
    reserve_bytes: 1 << 20,
};

pub(crate) const NOW: u64 = 1_000_000;

pub(crate) fn open(dir: &Path) -> Spool {
    Spool::open(dir, LIMITS).unwrap()
}

pub(crate) fn id(seed: u64) -> CopyId {
    CopyId(u128::from(seed).to_be_bytes())
}

/// The content of a parcel.
pub(crate) fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) fn order(seed: u64, bytes: u64) -> NewParcel {
    NewParcel {
        user: "alice".into(),
        id: id(seed),
        target: format!("xdfs://host/{seed}"),
        name: b"file".to_vec(),
        overwrite: false,
        tree: false,
        bytes,
        life_s: 1000,
        digest: DigestValue::None,
        next: Vec::new(),
        passed: Vec::new(),
        of: None,
        in_order: None,
        ahead: false,
    }
}

pub(crate) fn sink_request(bytes: u64) -> SinkRequest {
    SinkRequest {
        length: Some(bytes),
        mtime_ns: Some(77),
        ..request(".xdfs-parcel/x")
    }
}

/// Submits a parcel, and opens its sink.
pub(crate) fn begin(spool: &Spool, seed: u64, bytes: u64) -> Result<OpenedSink, Fault> {
    let parcel = spool.submit(order(seed, bytes), NOW)?;
    spool.open_sink(&parcel, &sink_request(bytes))
}

/// Writes a part, makes it durable and records it.
pub(crate) fn save(opened: &mut OpenedSink, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
    let bufs = [std::io::IoSlice::new(bytes)];
    opened.sink.write_at(offset, &bufs)?;
    opened.sink.sync()?;
    let fragment = fragment(DigestKind::Crc64Nvme, offset, bytes);
    opened.sink.record(&[fragment])
}

/// Writes what is left, and publishes the parcel.
pub(crate) fn finish(opened: &mut OpenedSink, from: u64, content: &[u8]) -> Result<(), Fault> {
    let rest = &content[from as usize..];
    let bufs = [std::io::IoSlice::new(rest)];
    opened.sink.write_at(from, &bufs)?;
    let fresh: Vec<_> = match rest.is_empty() {
        true => Vec::new(),
        false => vec![fragment(DigestKind::Crc64Nvme, from, rest)],
    };
    opened.sink.publish(content.len() as u64, &fresh)
}

/// Submits a parcel and publishes it.
pub(crate) fn put(spool: &Spool, seed: u64, length: usize) -> Result<(), Fault> {
    let mut opened = begin(spool, seed, length as u64)?;
    finish(&mut opened, 0, &content(seed, length))
}

/// Asserts that a parcel is there as a whole.
#[track_caller]
pub(crate) fn assert_held(spool: &Spool, seed: u64, length: usize) -> Parcel {
    let parcel = spool.find("alice", id(seed)).unwrap();
    assert_eq!(parcel.state, ParcelState::Held, "{seed}");
    let mut source = spool.open_source(parcel.clone());
    let read = read_all(&mut *source);
    assert!(read == content(seed, length), "parcel {seed} of {length}");
    parcel
}

pub(crate) fn segments(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir.join("segments")).unwrap();
    let mut all: Vec<_> = names.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}
