//! Parcels from their submission to their end.

use std::sync::mpsc;
use std::thread;

use xdfs_proto::digest::DigestValue;
use xdfs_proto::relay::ParcelState;
use xdfs_proto::{Code, Retry};
use xdfs_spool::{KEPT_S, Placed, Spool, SpoolLimits};

use crate::scene::{
    LIMITS, NOW, assert_held, begin, content, finish, id, open, order, put, save, segments,
    sink_request,
};

#[test]
fn what_was_published_is_there_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = [0, 1, 4096, 250_000, 700_001, 3_000_000];
    let spool = open(dir.path());
    let (arrived, numbers) = mpsc::channel();
    spool.listen(arrived);
    for (seed, size) in (1..).zip(sizes) {
        put(&spool, seed, size).unwrap();
    }
    assert_eq!(numbers.try_iter().count(), sizes.len());
    drop(spool);
    let spool = open(dir.path());
    for (seed, size) in (1..).zip(sizes) {
        let parcel = assert_held(&spool, seed, size);
        assert_eq!((parcel.number, parcel.mtime_ns), (seed - 1, Some(77)));
        let crc = xdfs_proto::digest::FragmentMap::new(parcel.digest.kind());
        match size {
            0 => assert_eq!(Some(parcel.digest), crc.digest(0)),
            _ => assert_ne!(parcel.digest, DigestValue::None),
        }
    }
}

#[test]
fn a_parcel_that_arrives_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(3, 900_000);
    let spool = open(dir.path());
    let mut opened = begin(&spool, 3, 900_000).unwrap();
    save(&mut opened, 0, &bytes[..200_000]).unwrap();
    save(&mut opened, 500_000, &bytes[500_000..600_000]).unwrap();
    // Neither synchronised nor recorded: it doesn't count.
    let bufs = [std::io::IoSlice::new(&bytes[200_000..300_000])];
    opened.sink.write_at(200_000, &bufs).unwrap();
    assert_eq!(begin(&spool, 3, 900_000).unwrap_err().code, Code::Busy);
    drop((opened, spool));
    let spool = open(dir.path());
    let parcel = spool.find("alice", id(3)).unwrap();
    assert_eq!(parcel.state, ParcelState::Arriving);
    assert_eq!(spool.arrived(&parcel).unwrap(), 300_000);
    let mut opened = begin(&spool, 3, 900_000).unwrap();
    let ranges: Vec<_> = opened.durable.iter().map(|own| own.range).collect();
    let ends: Vec<_> = ranges
        .iter()
        .map(|range| (range.start, range.end))
        .collect();
    assert_eq!(ends, [(0, 200_000), (500_000, 600_000)]);
    save(&mut opened, 200_000, &bytes[200_000..500_000]).unwrap();
    finish(&mut opened, 600_000, &bytes).unwrap();
    drop(opened);
    assert_held(&spool, 3, 900_000);
    // Another version of the source begins at its start.
    let parcel = spool.submit(order(4, 10), NOW).unwrap();
    let mut opened = spool.open_sink(&parcel, &sink_request(10)).unwrap();
    save(&mut opened, 0, b"abc").unwrap();
    drop(opened);
    let mut other = sink_request(10);
    other.tag.0[0] ^= 1;
    let mut opened = spool.open_sink(&parcel, &other).unwrap();
    assert_eq!(opened.durable, []);
    finish(&mut opened, 0, &content(4, 10)).unwrap();
    drop(opened);
    assert_held(&spool, 4, 10);
}

#[test]
fn what_is_written_again_in_other_pieces_counts() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let bytes = content(9, 100_000);
    let wrong = vec![0xee; 100_000];
    let mut opened = begin(&spool, 9, 100_000).unwrap();
    for (start, end) in [(0, 30_000), (30_000, 60_000), (60_000, 90_000)] {
        save(&mut opened, start as u64, &wrong[start..end]).unwrap();
    }
    // Within one, over a border, over a whole one, and what was never there.
    for (start, end) in [(10_000, 20_000), (25_000, 61_000), (85_000, 100_000)] {
        let bufs = [std::io::IoSlice::new(&bytes[start..end])];
        opened.sink.write_at(start as u64, &bufs).unwrap();
    }
    opened.sink.publish(100_000, &[]).unwrap();
    drop(opened);
    let parcel = spool.find("alice", id(9)).unwrap();
    let read = xdfs_testkit::stores::read_all(&mut *spool.open_source(parcel));
    for (range, is_right) in [
        (0..10_000, false),
        (10_000..20_000, true),
        (20_000..25_000, false),
        (25_000..61_000, true),
        (61_000..85_000, false),
        (85_000..100_000, true),
    ] {
        let expected = if is_right { &bytes } else { &wrong };
        assert!(read[range.clone()] == expected[range.clone()], "{range:?}");
    }
}

#[test]
fn holes_are_zeros_and_what_is_missing_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let mut opened = begin(&spool, 1, 3_000_000).unwrap();
    let bufs = [std::io::IoSlice::new(b"begin")];
    opened.sink.write_at(0, &bufs).unwrap();
    opened.sink.hole(xdfs_testkit::stores::range(5, 3_000_000));
    opened.sink.publish(3_000_000, &[]).unwrap();
    drop(opened);
    let parcel = spool.find("alice", id(1)).unwrap();
    let read = xdfs_testkit::stores::read_all(&mut *spool.open_source(parcel));
    assert_eq!(read.len(), 3_000_000);
    assert!(read.starts_with(b"begin") && read[5..].iter().all(|byte| *byte == 0));
    let mut opened = begin(&spool, 2, 10).unwrap();
    opened.sink.publish(10, &[]).unwrap();
    drop(opened);
    let parcel = spool.find("alice", id(2)).unwrap();
    let read = spool.open_source(parcel).read_at(0, &mut [0; 10]);
    assert!(read.unwrap_err().cause.contains("missing"));
}

#[test]
fn the_same_is_said_again_without_harm() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    put(&spool, 1, 5000).unwrap();
    let again = spool.submit(order(1, 5000), NOW + 9).unwrap();
    assert_eq!((again.number, again.opened_s), (0, NOW));
    let other = spool.submit(order(1, 5001), NOW).unwrap_err();
    assert_eq!(other.code, Code::AlreadyExists);
    // A client that didn't hear of the end sends it again: nothing has to be sent.
    let mut opened = spool.open_sink(&again, &sink_request(5000)).unwrap();
    assert_eq!(opened.durable[0].range.len(), 5000);
    opened.sink.publish(5000, &[]).unwrap();
    opened.sink.discard().unwrap();
    drop(opened);
    assert_held(&spool, 1, 5000);
    let mut other = sink_request(5000);
    other.tag.0[0] ^= 1;
    let refused = spool.open_sink(&again, &other).unwrap_err();
    assert_eq!(refused.code, Code::AlreadyExists);
    // Of another user it is another parcel.
    let mut mallory = order(1, 7);
    mallory.user = "mallory".into();
    assert_eq!(spool.submit(mallory, NOW).unwrap().number, 1);
    assert_held(&spool, 1, 5000);
}

#[test]
fn the_end_of_a_parcel_frees_its_segments_and_is_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    for seed in 1..=6 {
        put(&spool, seed, 250_000).unwrap();
    }
    assert!(segments(dir.path()).len() >= 5);
    let placed = Placed {
        hidden: b"/.x".to_vec(),
        target: b"/x".to_vec(),
        directory: None,
    };
    for number in 0..5 {
        let placed = placed.clone();
        let changed = spool.alter(number, NOW + 5, move |parcel| {
            parcel.placed = Some(placed);
            parcel.state = ParcelState::Delivered;
            Ok(())
        });
        assert_eq!(changed.unwrap().ended_s, NOW + 5);
    }
    let left = segments(dir.path());
    assert!(left.len() <= 2, "{left:?}");
    assert_held(&spool, 6, 250_000);
    drop(spool);
    let spool = open(dir.path());
    let delivered = spool.find("alice", id(2)).unwrap();
    assert_eq!(delivered.state, ParcelState::Delivered);
    assert_eq!(delivered.placed, Some(placed));
    assert_eq!(spool.submit(order(2, 250_000), NOW).unwrap(), delivered);
    let refused = spool.open_sink(&delivered, &sink_request(250_000));
    assert_eq!(refused.unwrap_err().code, Code::AlreadyExists);
    let wrong = spool.alter(1, NOW, |parcel| {
        parcel.state = ParcelState::Held;
        Ok(())
    });
    assert_eq!(wrong.unwrap_err().code, Code::InvalidArgument);
    assert_eq!(spool.forget(NOW + 5 + KEPT_S).unwrap(), 0);
    assert_eq!(spool.forget(NOW + 6 + KEPT_S).unwrap(), 5);
    assert_eq!(spool.find("alice", id(2)).unwrap_err().code, Code::NotFound);
    assert_held(&spool, 6, 250_000);
}

#[test]
fn one_that_was_given_up_is_put_back_with_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    put(&spool, 1, 100_000).unwrap();
    let become_ = |spool: &Spool, state| {
        spool.alter(0, NOW, move |parcel| {
            parcel.state = state;
            Ok(())
        })
    };
    become_(&spool, ParcelState::Dead).unwrap();
    drop(spool);
    let spool = open(dir.path());
    become_(&spool, ParcelState::Held).unwrap();
    assert_held(&spool, 1, 100_000);
    become_(&spool, ParcelState::Cancelled).unwrap();
    let parcel = spool.find("alice", id(1)).unwrap();
    let read = spool.open_source(parcel).read_at(0, &mut [0; 10]);
    assert!(read.is_err());
}

#[test]
fn a_quota_holds_back_and_lets_on_after_a_delivery() {
    let dir = tempfile::tempdir().unwrap();
    let limits = SpoolLimits {
        bytes_max: 25_000,
        bytes_per_user_max: 10_000,
        parcels_per_user_max: 4,
        ..LIMITS
    };
    let spool = Spool::open(dir.path(), limits).unwrap();
    put(&spool, 1, 6000).unwrap();
    let fault = spool.submit(order(2, 4001), NOW).unwrap_err();
    assert_eq!(fault.code, Code::QuotaExceeded);
    assert!(matches!(fault.retry, Retry::AfterMs(_)));
    let of = |user: &str, seed, bytes| {
        let mut order = order(seed, bytes);
        order.user = user.into();
        order
    };
    spool.submit(of("bob", 1, 10_000), NOW).unwrap();
    let fault = spool.submit(of("carol", 1, 9001), NOW).unwrap_err();
    assert_eq!(fault.code, Code::NoSpace);
    drop(spool);
    let spool = Spool::open(dir.path(), limits).unwrap();
    let fault = spool.submit(order(2, 4001), NOW).unwrap_err();
    assert_eq!(fault.code, Code::QuotaExceeded, "also after a start");
    let end = |parcel: &mut xdfs_spool::Parcel| {
        parcel.state = ParcelState::Delivered;
        Ok(())
    };
    spool.alter(0, NOW, end).unwrap();
    put(&spool, 2, 10_000).unwrap();
    spool.submit(order(3, 0), NOW).unwrap();
    spool.submit(order(4, 0), NOW).unwrap();
    let fault = spool.submit(order(5, 0), NOW).unwrap_err();
    assert_eq!(fault.code, Code::LimitExceeded);
}

#[test]
fn many_threads_publish_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let spool = spool.clone();
            scope.spawn(move || {
                for at in 0..20 {
                    put(&spool, thread * 100 + at, 3000 + at as usize).unwrap();
                }
            });
        }
    });
    let check = |spool: &Spool| {
        for thread in 0..8_u64 {
            for at in 0..20 {
                assert_held(spool, thread * 100 + at, 3000 + at as usize);
            }
        }
    };
    check(&spool);
    drop(spool);
    check(&open(dir.path()));
}

#[test]
fn what_is_sent_of_a_parcel_has_a_mark_that_no_other_has() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (mut marks, mut tags) = (Vec::new(), Vec::new());
    for dir in &dirs {
        let spool = open(dir.path());
        for seed in 0..3 {
            put(&spool, seed, 10).unwrap();
            let parcel = spool.find("alice", id(seed)).unwrap();
            let source = spool.open_source(parcel.clone());
            tags.push(source.info().tag.0);
            marks.push(spool.mark(&parcel));
        }
    }
    let again = open(dirs[0].path());
    let first = again.find("alice", id(0)).unwrap();
    assert_eq!(again.mark(&first), marks[0]);
    assert_eq!(again.open_source(first).info().tag.0, tags[0]);
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 6);
    marks.sort_unstable();
    marks.dedup();
    assert_eq!(marks.len(), 6);
}

/// A parcel with the file of another one.
fn sharing(seed: u64, of: u64, bytes: u64) -> xdfs_spool::NewParcel {
    xdfs_spool::NewParcel {
        of: Some(id(of)),
        ..order(seed, bytes)
    }
}

#[test]
fn several_parcels_share_a_file_until_the_last_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let limits = SpoolLimits {
        bytes_max: 500_000,
        ..LIMITS
    };
    let spool = Spool::open(dir.path(), limits).unwrap();
    let bytes = content(1, 400_000);
    let mut opened = begin(&spool, 1, 400_000).unwrap();
    save(&mut opened, 0, &bytes[..100_000]).unwrap();
    // One comes while the file arrives, and one later. They take no room.
    let second = spool.submit(sharing(2, 1, 400_000), NOW).unwrap();
    assert_eq!(second.state, ParcelState::Arriving);
    let (arrived, numbers) = mpsc::channel();
    spool.listen(arrived);
    finish(&mut opened, 100_000, &bytes).unwrap();
    drop(opened);
    assert_eq!(numbers.try_iter().collect::<Vec<_>>(), [0, 1]);
    let third = spool.submit(sharing(3, 2, 400_000), NOW).unwrap();
    assert_eq!(third.state, ParcelState::Held);
    assert_eq!(numbers.try_iter().collect::<Vec<_>>(), [2]);
    let read = |seed: u64| {
        let parcel = spool.find("alice", id(seed)).unwrap();
        let mut source = spool.open_source(parcel.clone());
        assert!(
            xdfs_testkit::stores::read_all(&mut *source) == bytes,
            "{seed}"
        );
        parcel
    };
    for seed in 1..=3 {
        let parcel = read(seed);
        assert_eq!(
            (parcel.state, parcel.mtime_ns),
            (ParcelState::Held, Some(77))
        );
        assert_eq!(parcel.digest, third.digest);
        assert_eq!((parcel.number, parcel.taken), (seed - 1, seed));
    }
    // A file of another length, or of another user, is none of it.
    let mut other = sharing(4, 1, 400_001);
    assert_eq!(
        spool.submit(other.clone(), NOW).unwrap_err().code,
        Code::NotFound
    );
    other.bytes = 400_000;
    other.user = "bob".into();
    assert_eq!(spool.submit(other, NOW).unwrap_err().code, Code::NotFound);
    let end = |number, state| {
        spool.alter(number, NOW, move |parcel| {
            parcel.state = state;
            Ok(())
        })
    };
    end(0, ParcelState::Delivered).unwrap();
    end(1, ParcelState::Cancelled).unwrap();
    read(3);
    let full = spool.submit(order(5, 200_000), NOW).unwrap_err();
    assert_eq!(
        full.code,
        Code::NoSpace,
        "it counts as long as one needs it"
    );
    end(2, ParcelState::Delivered).unwrap();
    assert_eq!(segments(dir.path()), Vec::<std::path::PathBuf>::new());
    assert_eq!(
        spool.submit(sharing(6, 1, 400_000), NOW).unwrap_err().code,
        Code::NotFound
    );
    spool.submit(order(5, 500_000), NOW).unwrap();
    // A start changes nothing.
    drop(spool);
    let spool = Spool::open(dir.path(), limits).unwrap();
    let full = spool.submit(order(7, 1), NOW).unwrap_err();
    assert_eq!(full.code, Code::NoSpace);
    assert_eq!(
        spool.submit(sharing(3, 2, 400_000), NOW).unwrap().state,
        ParcelState::Delivered
    );
}

#[test]
fn a_shared_file_counts_once_after_a_start_and_what_arrives_again_is_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let limits = SpoolLimits {
        bytes_max: 150_000,
        ..LIMITS
    };
    let spool = Spool::open(dir.path(), limits).unwrap();
    let bytes = content(1, 100_000);
    let mut opened = begin(&spool, 1, 100_000).unwrap();
    spool.submit(sharing(2, 1, 100_000), NOW).unwrap();
    save(&mut opened, 0, &bytes[..60_000]).unwrap();
    drop((opened, spool));
    let spool = Spool::open(dir.path(), limits).unwrap();
    let second = spool.find("alice", id(2)).unwrap();
    assert_eq!(spool.arrived(&second).unwrap(), 60_000);
    // The first is cancelled; the file comes with the second, from where it was.
    spool
        .alter(0, NOW, |parcel| {
            parcel.state = ParcelState::Cancelled;
            Ok(())
        })
        .unwrap();
    let mut opened = spool.open_sink(&second, &sink_request(100_000)).unwrap();
    assert_eq!(opened.durable[0].range.len(), 60_000);
    finish(&mut opened, 60_000, &bytes).unwrap();
    drop(opened);
    let second = spool.find("alice", id(2)).unwrap();
    assert_eq!(second.state, ParcelState::Held);
    let mut source = spool.open_source(second);
    assert!(xdfs_testkit::stores::read_all(&mut *source) == bytes);
    // There is room for another one, and not for two.
    spool.submit(order(3, 50_000), NOW).unwrap();
    assert_eq!(
        spool.submit(order(4, 1), NOW).unwrap_err().code,
        Code::NoSpace
    );
    assert_eq!(spool.clock().unwrap(), 0);
    spool.set_clock(NOW).unwrap();
    drop((source, spool));
    assert_eq!(
        Spool::open(dir.path(), limits).unwrap().clock().unwrap(),
        NOW
    );
}

#[test]
fn a_file_with_another_digest_than_its_source_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    put(&spool, 1, 50_000).unwrap();
    let digest = spool.find("alice", id(1)).unwrap().digest;
    let wanted = |seed| xdfs_spool::NewParcel {
        digest,
        ..order(seed, 50_000)
    };
    for (seed, taken) in [(2, false), (3, true)] {
        let parcel = spool.submit(wanted(seed), NOW).unwrap();
        let mut opened = spool.open_sink(&parcel, &sink_request(50_000)).unwrap();
        let bytes = content(if taken { 1 } else { 2 }, 50_000);
        let finished = finish(&mut opened, 0, &bytes);
        assert_eq!(finished.is_ok(), taken, "{finished:?}");
        let parcel = spool.find("alice", id(seed)).unwrap();
        match taken {
            true => assert_eq!(parcel.state, ParcelState::Held),
            false => {
                assert_eq!(finished.unwrap_err().code, Code::IntegrityMismatch);
                assert_eq!(parcel.state, ParcelState::Arriving);
                assert_eq!(spool.arrived(&parcel).unwrap(), 0);
            }
        }
    }
}

#[test]
fn the_index_of_many_small_files_counts_too() {
    let dir = tempfile::tempdir().unwrap();
    let limits = SpoolLimits {
        bytes_max: 12_000_000,
        parcel_bytes: SpoolLimits::default().parcel_bytes,
        ..LIMITS
    };
    let spool = Spool::open(dir.path(), limits).unwrap();
    let mut count = 0;
    // Some in each transaction, as in a relay.
    let full = loop {
        let part = thread::scope(|scope| {
            let put = |seed| {
                let spool = &spool;
                scope.spawn(move || put(spool, seed, 10))
            };
            let running: Vec<_> = (count + 1..=count + 8).map(put).collect();
            running
                .into_iter()
                .map(|own| own.join().unwrap())
                .collect::<Result<Vec<_>, _>>()
        });
        match part {
            Ok(_) => count += 8,
            Err(fault) => break fault,
        }
        assert!(count < 12_000_000 / 4096, "{count}");
    };
    assert_eq!(full.code, Code::NoSpace);
    assert!(count > 2_800, "{count}");
    let index = std::fs::metadata(dir.path().join("index.redb"))
        .unwrap()
        .len();
    eprintln!("{count} parcels, {index} bytes of index");
    assert!(index < limits.bytes_max, "{index} of {count} parcels");
}
