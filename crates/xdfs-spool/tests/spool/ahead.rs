//! Parcels that are read while they arrive, and those whose digest comes later.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use xdfs_proto::digest::{DigestKind, DigestValue};
use xdfs_proto::frame::Resume;
use xdfs_proto::relay::ParcelState;
use xdfs_proto::{Code, Fault, SourceTag};
use xdfs_spool::{Ahead, NewParcel, Parcel, Spool};
use xdfs_store::{SinkRequest, Source};
use xdfs_testkit::stores::fragment;

use crate::scene::{
    NOW, assert_held, begin, content, finish, id, open, order, put, save, sink_request,
};

const LENGTH: usize = 200_000;
/// Looks of a reader, ten in a second.
const CHECKS_MAX: u32 = 200;

/// A reader of what arrives.
#[derive(Debug, Default)]
struct Reader {
    is_unwanted: AtomicBool,
    may_end: AtomicBool,
    has_asked: AtomicBool,
    checks: AtomicU32,
}

impl Ahead for Reader {
    fn check(&self) -> Result<(), Fault> {
        // A test that has failed doesn't hang.
        let is_late = self.checks.fetch_add(1, Ordering::Relaxed) > CHECKS_MAX;
        match self.is_unwanted.load(Ordering::Relaxed) || is_late {
            true => Err(Fault::new(Code::Cancelled, "read", "unwanted")),
            false => Ok(()),
        }
    }

    fn may_end(&self, timeout: Duration) -> bool {
        self.has_asked.store(true, Ordering::Relaxed);
        thread::park_timeout(timeout);
        self.may_end.load(Ordering::Relaxed)
    }
}

fn source(spool: &Spool, seed: u64) -> (Box<dyn Source>, Arc<Reader>) {
    let reader = Arc::<Reader>::default();
    let parcel = spool.find("alice", id(seed)).unwrap();
    let ahead = Arc::clone(&reader) as Arc<dyn Ahead>;
    let (source, kind) = spool.open_source_ahead(parcel, ahead).unwrap();
    assert_eq!(kind, DigestKind::Crc64Nvme);
    (source, reader)
}

fn read(source: &mut dyn Source, from: usize, to: usize) -> Result<Vec<u8>, Fault> {
    let mut bytes = vec![0; to - from];
    let count = source.read_at(from as u64, &mut bytes)?;
    assert_eq!(count, to - from);
    Ok(bytes)
}

#[test]
fn what_is_durable_is_read_and_the_rest_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let bytes = content(1, LENGTH);
    let mut opened = begin(&spool, 1, LENGTH as u64).unwrap();
    let parcel = spool.find("alice", id(1)).unwrap();
    let nothing = spool.open_source_ahead(parcel, Arc::<Reader>::default());
    assert_eq!(nothing.unwrap_err().code, Code::NotFound);
    let (listener, announced) = mpsc::channel();
    spool.listen(listener);
    save(&mut opened, 0, &bytes[..50_000]).unwrap();
    save(&mut opened, 50_000, &bytes[50_000..60_000]).unwrap();
    assert_eq!(announced.try_iter().collect::<Vec<_>>(), [0], "once");
    let (mut source, reader) = source(&spool, 1);
    assert!(source.is_slow());
    assert_eq!(source.info().mtime_ns, Some(77));
    assert!(read(&mut *source, 10_000, 60_000).unwrap() == bytes[10_000..60_000]);
    let (read_to, all) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(read(&mut *source, 60_000, LENGTH).unwrap() == bytes[60_000..]);
            read_to.send(LENGTH).unwrap();
            source.verify_unchanged().unwrap();
            read_to.send(LENGTH + 1).unwrap();
        });
        // Written, but not durable.
        let rest = &bytes[60_000..];
        opened
            .sink
            .write_at(60_000, &[std::io::IoSlice::new(rest)])
            .unwrap();
        opened.sink.sync().unwrap();
        let pause = Duration::from_millis(300);
        assert!(all.recv_timeout(pause).is_err(), "it waits");
        let end = fragment(DigestKind::Crc64Nvme, 60_000, rest);
        opened.sink.record(&[end]).unwrap();
        assert_eq!(all.recv().unwrap(), LENGTH);
        assert!(
            all.recv_timeout(pause).is_err(),
            "it waits until it is taken"
        );
        assert!(!reader.has_asked.load(Ordering::Relaxed));
        finish(&mut opened, LENGTH as u64, &bytes).unwrap();
        assert!(
            all.recv_timeout(pause).is_err(),
            "it waits for the other side"
        );
        assert!(reader.has_asked.load(Ordering::Relaxed));
        reader.may_end.store(true, Ordering::Relaxed);
        assert_eq!(all.recv().unwrap(), LENGTH + 1);
    });
    let parcel = assert_held(&spool, 1, LENGTH);
    // It resumes as the same version.
    assert_eq!(source.info().tag, spool.open_source(parcel).info().tag);
}

#[test]
fn a_reader_ends_with_the_sender_or_when_it_is_unwanted() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let bytes = content(1, LENGTH);
    let mut opened = begin(&spool, 1, LENGTH as u64).unwrap();
    save(&mut opened, 0, &bytes[..50_000]).unwrap();
    let (mut own, reader) = source(&spool, 1);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| read(&mut *own, 50_000, LENGTH).unwrap_err());
        reader.is_unwanted.store(true, Ordering::Relaxed);
        assert_eq!(waiting.join().unwrap().code, Code::Cancelled);
        reader.is_unwanted.store(false, Ordering::Relaxed);
    });
    thread::scope(|scope| {
        let waiting = scope.spawn(|| read(&mut *own, 50_000, LENGTH).unwrap_err());
        drop(opened);
        let fault = waiting.join().unwrap();
        assert_eq!(fault.code, Code::ConnectionLost, "{fault}");
    });
    assert_eq!(
        own.verify_unchanged().unwrap_err().code,
        Code::ConnectionLost
    );
    // The one who resumes goes on, for the same reader too.
    let parcel = spool.find("alice", id(1)).unwrap();
    let mut opened = spool
        .open_sink(&parcel, &sink_request(LENGTH as u64))
        .unwrap();
    save(&mut opened, 50_000, &bytes[50_000..]).unwrap();
    assert!(read(&mut *own, 50_000, LENGTH).unwrap() == bytes[50_000..]);
    // Cancelled, it takes nothing more.
    let wanted = |parcel: &mut Parcel| {
        parcel.cancel_wanted = true;
        Ok(())
    };
    let parcel = spool.alter(parcel.number, NOW, wanted).unwrap();
    assert!(parcel.is_due() && !parcel.may_go_ahead());
    let fault = finish(&mut opened, LENGTH as u64, &bytes).unwrap_err();
    assert_eq!(fault.code, Code::Cancelled);
    drop(opened);
    let fault = spool.open_sink(&parcel, &sink_request(LENGTH as u64));
    assert_eq!(fault.unwrap_err().code, Code::Cancelled);
}

/// An arrival that begins again is another version, whatever its source says, so that nothing of
/// both is mixed elsewhere.
#[test]
fn an_arrival_that_begins_again_is_another_version() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let bytes = content(1, LENGTH);
    let mut opened = begin(&spool, 1, LENGTH as u64).unwrap();
    save(&mut opened, 0, &bytes[..50_000]).unwrap();
    let (mut own, _) = source(&spool, 1);
    let tag = own.info().tag;
    drop(opened);
    let parcel = spool.find("alice", id(1)).unwrap();
    let request = sink_request(LENGTH as u64);
    let changed = SinkRequest {
        tag: SourceTag([9; 16]),
        ..request.clone()
    };
    let unresumed = SinkRequest {
        resume: Resume::Never,
        ..request.clone()
    };
    for request in [&changed, &unresumed] {
        let mut opened = spool.open_sink(&parcel, request).unwrap();
        assert!(opened.durable.is_empty());
        save(&mut opened, 0, &bytes[..50_000]).unwrap();
        let fault = own.verify_unchanged().unwrap_err();
        assert_eq!(fault.code, Code::SourceChanged, "{fault}");
        let (again, _) = source(&spool, 1);
        assert_ne!(again.info().tag, tag);
        own = again;
    }
    // And a resumed one is the same, also after a start.
    let tag = own.info().tag;
    drop((own, spool));
    let spool = open(dir.path());
    let opened = spool.open_sink(&parcel, &request).unwrap();
    assert_eq!(opened.durable.len(), 1);
    assert_eq!(source(&spool, 1).0.info().tag, tag);
}

#[test]
fn a_parcel_that_came_ahead_is_taken_with_its_digest() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let bytes = content(1, LENGTH);
    let ahead = NewParcel {
        ahead: true,
        ..order(1, LENGTH as u64)
    };
    let parcel = spool.submit(ahead.clone(), NOW).unwrap();
    let mut opened = spool
        .open_sink(&parcel, &sink_request(LENGTH as u64))
        .unwrap();
    let fault = finish(&mut opened, 0, &bytes).unwrap_err();
    assert_eq!(fault.code, Code::Busy, "{fault}");
    let state = |spool: &Spool| spool.find("alice", id(1)).unwrap().state;
    assert_eq!(state(&spool), ParcelState::Arriving);
    // The digest is that of another parcel's file, and then its own.
    put(&spool, 2, LENGTH).unwrap();
    let other = assert_held(&spool, 2, LENGTH).digest;
    assert_eq!(spool.submit(ahead.clone(), NOW).unwrap(), parcel, "again");
    let complete = |digest: DigestValue| {
        let order = NewParcel {
            ahead: false,
            digest,
            ..ahead.clone()
        };
        spool.submit(order, NOW)
    };
    let longer = NewParcel {
        ahead: false,
        bytes: 1,
        ..ahead.clone()
    };
    assert_eq!(
        spool.submit(longer, NOW).unwrap_err().code,
        Code::AlreadyExists
    );
    assert_eq!(complete(other).unwrap().order.digest, other);
    assert_eq!(complete(other).unwrap().order.digest, other, "again");
    let another = complete(DigestValue::Crc64Nvme(1)).unwrap_err();
    assert_eq!(another.code, Code::AlreadyExists, "it stays");
    let fault = finish(&mut opened, 0, &bytes).unwrap_err();
    assert_eq!(fault.code, Code::IntegrityMismatch, "{fault}");
    assert_eq!(state(&spool), ParcelState::Arriving);
}
