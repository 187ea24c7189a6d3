//! Crash images: whatever a crash leaves of a journal, it never claims more than was recorded.

use proptest::prelude::*;
use xdfs_proto::digest::{DigestKind, Fragment, FragmentMap};
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, RangeSet};
use xdfs_store::{OpenedSink, Store};

use crate::common::*;

const FILE: &str = "file";

fn open_again(dir: &tempfile::TempDir) -> OpenedSink {
    rooted(dir.path()).open_sink(&request(FILE)).unwrap()
}

fn claimed(opened: &OpenedSink) -> RangeSet {
    let mut set = RangeSet::new();
    opened.durable.iter().for_each(|f| set.insert(f.range));
    set
}

/// A partial file with three recorded ranges that don't touch.
fn image() -> (tempfile::TempDir, Vec<u8>, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open_again(&dir);
    for i in 0..3 {
        save(&mut opened, i * 8192, &[i as u8 + 1; 4096]);
    }
    drop(opened);
    let journal = std::fs::read(dir.path().join(".file.xdfs-journal")).unwrap();
    let partial = std::fs::read(dir.path().join(".file.xdfs-part")).unwrap();
    (dir, journal, partial)
}

/// Puts an image in place, opens it, and says which bytes it claims.
fn load(dir: &tempfile::TempDir, journal: &[u8], partial: &[u8]) -> RangeSet {
    std::fs::write(dir.path().join(".file.xdfs-journal"), journal).unwrap();
    std::fs::write(dir.path().join(".file.xdfs-part"), partial).unwrap();
    let opened = open_again(dir);
    let claimed = claimed(&opened);
    for fragment in &opened.durable {
        let bytes = &partial[fragment.range.start as usize..fragment.range.end as usize];
        assert_eq!(
            *fragment,
            super::common::fragment(DigestKind::Crc64Nvme, fragment.range.start, bytes)
        );
    }
    claimed
}

#[test]
fn a_journal_cut_at_any_byte_claims_its_whole_records() {
    let (dir, journal, partial) = image();
    let record = (journal.len() - 76) / 3;
    for cut in 0..=journal.len() {
        let whole = cut.saturating_sub(76) / record;
        let claimed = load(&dir, &journal[..cut], &partial);
        assert_eq!(claimed.total(), whole as u64 * 4096, "cut at {cut}");
    }
}

#[test]
fn a_journal_with_any_byte_changed_claims_only_what_stands_before() {
    let (dir, journal, partial) = image();
    let record = (journal.len() - 76) / 3;
    for at in 0..journal.len() {
        for flip in [1, 0x80] {
            let mut changed = journal.clone();
            changed[at] ^= flip;
            let whole = at.saturating_sub(76) / record;
            let claimed = load(&dir, &changed, &partial);
            assert_eq!(
                claimed.total(),
                whole as u64 * 4096,
                "byte {at} changed by {flip}"
            );
        }
    }
}

#[test]
fn records_in_another_place_are_not_taken() {
    let (dir, journal, partial) = image();
    let record = (journal.len() - 76) / 3;
    let at = |i: usize| 76 + i * record..76 + (i + 1) * record;
    let swapped = [
        &journal[..76],
        &journal[at(1)],
        &journal[at(0)],
        &journal[at(2)],
    ]
    .concat();
    assert_eq!(load(&dir, &swapped, &partial).total(), 0);
    // A record of an older journal of the same transfer, after the end of the new one.
    let (_other_dir, other, _) = image();
    assert_ne!(other[..76], journal[..76]);
    let mixed = [&journal[..at(1).end], &other[at(2)]].concat();
    assert_eq!(load(&dir, &mixed, &partial).total(), 2 * 4096);
}

#[test]
fn a_torn_tail_is_overwritten_by_what_comes_next() {
    let (dir, journal, partial) = image();
    load(&dir, &journal[..journal.len() - 3], &partial);
    let mut opened = open_again(&dir);
    assert_eq!(claimed(&opened).total(), 2 * 4096);
    save(&mut opened, 4 * 8192, &[9; 4096]);
    drop(opened);
    assert_eq!(claimed(&open_again(&dir)).total(), 3 * 4096);
}

#[test]
fn a_journal_that_repeats_itself_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open_again(&dir);
    let bytes = pattern(2_500);
    let mut longest = 0;
    opened
        .sink
        .write_at(0, &[std::io::IoSlice::new(&bytes)])
        .unwrap();
    opened.sink.sync().unwrap();
    for at in 0..bytes.len() {
        let one = fragment(DigestKind::Crc64Nvme, at as u64, &bytes[at..=at]);
        opened.sink.record(&[one]).unwrap();
        let length = std::fs::metadata(dir.path().join(".file.xdfs-journal"))
            .unwrap()
            .len();
        longest = longest.max(length);
    }
    assert!(longest > 64 << 10 && longest < 80 << 10, "{longest}");
    drop(opened);
    let opened = open_again(&dir);
    assert_eq!(opened.durable, [fragment(DigestKind::Crc64Nvme, 0, &bytes)]);
    assert_eq!(names(dir.path()), [".file.xdfs-journal", ".file.xdfs-part"]);
}

#[test]
fn every_digest_survives_the_journal() {
    for kind in [DigestKind::None, DigestKind::Crc64Nvme, DigestKind::Blake3] {
        let dir = tempfile::tempdir().unwrap();
        let store = rooted(dir.path());
        let mut wanted = request(FILE);
        wanted.digest = kind;
        let bytes = pattern(6 * 4096 + 100);
        let mut whole = FragmentMap::new(kind);
        let mut opened = store.open_sink(&wanted).unwrap();
        write(&mut opened, 0, &bytes);
        opened.sink.sync().unwrap();
        for (i, block) in bytes.chunks(4096).enumerate() {
            let fragment = fragment(kind, i as u64 * 4096, block);
            whole.insert(fragment);
            opened.sink.record(&[fragment]).unwrap();
        }
        drop(opened);
        let opened = store.open_sink(&wanted).unwrap();
        let mut loaded = FragmentMap::new(kind);
        opened
            .durable
            .iter()
            .for_each(|f| assert!(loaded.insert(*f)));
        assert_eq!(
            loaded.digest(bytes.len() as u64),
            whole.digest(bytes.len() as u64)
        );
        assert!(loaded.digest(bytes.len() as u64).is_some(), "{kind:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any sequence of records in any number of attempts, then a tear at any byte: what is loaded
    /// is part of what was recorded, and digests are those of the bytes.
    #[test]
    fn loaded_is_part_of_recorded(
        blocks in proptest::collection::vec((0_u64..32, any::<bool>()), 1..24),
        tear in any::<proptest::sample::Index>(),
        garbage in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let whole = pattern(32 * 512);
        let mut recorded = RangeSet::new();
        let mut opened = open_again(&dir);
        for (block, is_last_of_attempt) in blocks {
            let at = block as usize * 512;
            if !recorded.contains(range(at as u64, at as u64 + 512)) {
                save(&mut opened, at as u64, &whole[at..at + 512]);
                recorded.insert(range(at as u64, at as u64 + 512));
            }
            if is_last_of_attempt {
                drop(opened);
                opened = open_again(&dir);
                prop_assert_eq!(claimed(&opened), recorded.clone());
            }
        }
        drop(opened);
        let path = dir.path().join(".file.xdfs-journal");
        let mut journal = std::fs::read(&path).unwrap();
        journal.truncate(tear.index(journal.len() + 1));
        journal.extend_from_slice(&garbage);
        std::fs::write(&path, &journal).unwrap();
        let opened = open_again(&dir);
        for fragment in &opened.durable {
            prop_assert!(recorded.contains(fragment.range));
            let bytes = &whole[fragment.range.start as usize..fragment.range.end as usize];
            let expected: Fragment =
                super::common::fragment(DigestKind::Crc64Nvme, fragment.range.start, bytes);
            prop_assert_eq!(*fragment, expected);
        }
    }
}

/// A run of the machine that isn't this one.
fn of_another_run(journal: &[u8]) -> Vec<u8> {
    let mut parsed = xdfs_store::local::journal::parse(journal).unwrap();
    parsed.header.boot[3] ^= 1;
    let mut bytes = parsed.header.encode().to_vec();
    xdfs_store::local::journal::encode_records(
        &parsed.header,
        0,
        parsed.fragments.iter(),
        &mut bytes,
    );
    bytes
}

fn verified(opened: &mut OpenedSink) -> RangeSet {
    assert!(opened.unverified);
    let mut set = RangeSet::new();
    loop {
        if let Some(durable) = opened.sink.verify().unwrap() {
            durable.iter().for_each(|f| set.insert(f.range));
            return set;
        }
    }
}

/// What is asked for, or follows from another run of the machine, for every digest.
#[test]
fn what_is_read_again_is_compared() {
    for kind in [DigestKind::Crc64Nvme, DigestKind::Blake3] {
        for asked in [false, true] {
            for damaged in [None, Some(0), Some(2), Some(3)] {
                let dir = tempfile::tempdir().unwrap();
                let store = rooted(dir.path());
                let mut wanted = request(FILE);
                wanted.digest = kind;
                let bytes = pattern(4 * 4096);
                let mut opened = store.open_sink(&wanted).unwrap();
                write(&mut opened, 0, &bytes);
                opened.sink.sync().unwrap();
                for i in [0, 2, 3] {
                    let block = &bytes[i * 4096..(i + 1) * 4096];
                    let one = fragment(kind, i as u64 * 4096, block);
                    opened.sink.record(&[one]).unwrap();
                }
                drop(opened);
                let path = dir.path().join(".file.xdfs-journal");
                if !asked {
                    let journal = std::fs::read(&path).unwrap();
                    std::fs::write(&path, of_another_run(&journal)).unwrap();
                }
                let partial = dir.path().join(".file.xdfs-part");
                let mut there = std::fs::read(&partial).unwrap();
                if let Some(block) = damaged {
                    there[block * 4096 + 5] ^= 1;
                    std::fs::write(&partial, &there).unwrap();
                }
                wanted.resume = if asked { Resume::Verify } else { Resume::Trust };
                let mut opened = store.open_sink(&wanted).unwrap();
                // Nothing is claimed or published before.
                assert_fault(opened.sink.record(&[]), Code::Internal, FILE);
                assert_fault(opened.sink.publish(4, &[]), Code::Internal, FILE);
                let mut expected = RangeSet::new();
                for block in [0, 2, 3].into_iter().filter(|b| Some(*b) != damaged) {
                    expected.insert(range(block as u64 * 4096, (block as u64 + 1) * 4096));
                }
                assert_eq!(
                    verified(&mut opened),
                    expected,
                    "{kind:?} {asked} {damaged:?}"
                );
                drop(opened);
                // What isn't as it was is out of the journal for good.
                wanted.resume = Resume::Trust;
                let again = store.open_sink(&wanted).unwrap();
                assert_eq!(claimed(&again), expected);
            }
        }
    }
}

#[test]
fn what_has_no_states_is_not_resumed_where_it_had_to_be_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = rooted(dir.path());
    let mut wanted = request(FILE);
    wanted.digest = DigestKind::None;
    let mut opened = store.open_sink(&wanted).unwrap();
    write(&mut opened, 0, &[1; 4096]);
    opened.sink.sync().unwrap();
    let one = fragment(DigestKind::None, 0, &[1; 4096]);
    opened.sink.record(&[one]).unwrap();
    drop(opened);
    assert_eq!(claimed(&store.open_sink(&wanted).unwrap()).total(), 4096);
    wanted.resume = Resume::Verify;
    let opened = store.open_sink(&wanted).unwrap();
    assert_eq!((claimed(&opened).total(), opened.unverified), (0, false));
}

/// The first record after that makes it a journal of this run.
#[test]
fn a_journal_that_was_read_again_is_of_this_run() {
    let (dir, journal, _) = image();
    let path = dir.path().join(".file.xdfs-journal");
    std::fs::write(&path, of_another_run(&journal)).unwrap();
    let mut opened = open_again(&dir);
    assert_eq!(verified(&mut opened).total(), 3 * 4096);
    drop(opened);
    // Nothing was recorded: it is still that of another run.
    let mut opened = open_again(&dir);
    assert_eq!(verified(&mut opened).total(), 3 * 4096);
    save(&mut opened, 5 * 8192, &[9; 4096]);
    drop(opened);
    let opened = open_again(&dir);
    assert_eq!(
        (claimed(&opened).total(), opened.unverified),
        (4 * 4096, false)
    );
}

/// Two parts of one source, by a sender whose tags don't tell them apart.
#[test]
fn a_journal_of_another_part_is_not_used() {
    let (dir, ..) = image();
    let mut other = request(FILE);
    other.offset = 1 << 20;
    let opened = rooted(dir.path()).open_sink(&other).unwrap();
    assert_eq!(claimed(&opened).total(), 0);
}
