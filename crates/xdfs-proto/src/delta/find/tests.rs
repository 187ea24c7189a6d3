//! Found blocks, forged signatures, and the cutting of stretches.

use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;
use crate::delta::weak;
use crate::digest::BlockHasher;
use crate::id::FileId;

const BLOCK: u32 = 1024;

fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn sums(bytes: &[u8]) -> Vec<Signature> {
    let blocks = bytes.chunks(BLOCK as usize);
    let sums = blocks.map(|block| Signature {
        weak: weak(block),
        strong: strong(block),
        state: FragmentState::None,
    });
    sums.collect()
}

fn index(bytes: &[u8]) -> Index {
    Index::new(BLOCK, bytes.len() as u64, sums(bytes))
}

fn whole(bytes: &[u8]) -> ByteRange {
    ByteRange {
        start: 0,
        end: bytes.len() as u64,
    }
}

/// The blocks found, and the number of bytes read.
fn found(index: &Index, bytes: &[u8]) -> Vec<FoundBlock> {
    let mut all = Vec::new();
    let mut read = |at: u64, buf: &mut [u8]| {
        let from = &bytes[at as usize..];
        let count = buf.len().min(from.len());
        buf[..count].copy_from_slice(&from[..count]);
        Ok(count)
    };
    let stop = AtomicBool::new(false);
    index
        .scan(whole(bytes), &mut read, &stop, &mut |f| all.push(f))
        .unwrap();
    all
}

#[track_caller]
fn assert_true(found: &[FoundBlock], theirs: &[u8], mine: &[u8]) {
    let mut end = 0;
    for f in found {
        assert!(f.at >= end, "they don't overlap");
        end = f.at + u64::from(f.length);
        let at = f.block as usize * BLOCK as usize;
        let block = &theirs[at..at + f.length as usize];
        assert_eq!(&mine[f.at as usize..end as usize], block);
    }
}

#[test]
fn everything_is_found_in_itself_and_when_it_moves() {
    let theirs = noise(1, 100 * 1024 + 77);
    let all = found(&index(&theirs), &theirs);
    assert_eq!(all.len(), 101);
    assert_true(&all, &theirs, &theirs);
    let mine = [b"abc".to_vec(), theirs.clone()].concat();
    let all = found(&index(&theirs), &mine);
    assert_eq!(all.len(), 101);
    assert_true(&all, &theirs, &mine);
    assert_eq!(found(&index(&theirs), &noise(2, 50_000)), []);
    // A file shorter than a block, and an empty one.
    for count in [0, 1, 1023] {
        let all = found(&index(&theirs[..count]), &theirs[..count]);
        assert_eq!(all.len(), usize::from(count > 0));
        assert_eq!(found(&index(&theirs), &theirs[1..1 + count]), []);
    }
}

#[test]
fn more_than_is_read_at_once() {
    let theirs = noise(1, 3 * STEP_BYTES + 500);
    let mut mine = theirs.clone();
    mine.splice(STEP_BYTES - 100..STEP_BYTES - 100, noise(3, 333));
    let all = found(&index(&theirs), &mine);
    assert_true(&all, &theirs, &mine);
    assert!(all.len() >= 3 * 1024 - 1, "{}", all.len());
}

#[test]
fn a_weak_sum_alone_finds_nothing() {
    let theirs = noise(1, 64 * 1024);
    let mine = noise(2, 64 * 1024);
    // Each block has the weak sum of a present one, and another strong sum.
    let mut lies = sums(&mine);
    for (lie, block) in lies.iter_mut().zip(theirs.chunks(1024)) {
        lie.strong = strong(block);
    }
    let index = Index::new(BLOCK, 64 * 1024, lies);
    assert_eq!(found(&index, &mine), []);
}

#[test]
fn sums_that_are_made_to_meet_cost_a_bounded_time() {
    // All blocks have the weak sum of zeros, and none the strong sum.
    let lie = |n: u32| Signature {
        weak: 0,
        strong: strong(&n.to_be_bytes()),
        state: FragmentState::None,
    };
    let count = 50_000;
    let lies = (0..count).map(lie).collect();
    let index = Index::new(BLOCK, u64::from(count) * 1024, lies);
    let zeros = vec![0; 1 << 20];
    assert_eq!(found(&index, &zeros), []);
    let chain = std::iter::successors(Some(index.heads[0]), |at| {
        index.next.get(*at as usize).copied()
    });
    assert!(chain.take_while(|at| *at != NONE).count() <= CHAIN_MAX);
}

#[test]
fn blocks_with_the_same_content_know_each_other() {
    let theirs = [vec![0; 3 * 1024], noise(1, 1024), vec![0; 2 * 1024 + 5]].concat();
    let index = index(&theirs);
    let all = found(&index, &[0; 1024]);
    let first = all[0].block;
    let mut group: Vec<u32> = std::iter::once(first).chain(index.twins(first)).collect();
    group.sort_unstable();
    assert_eq!(group, [0, 1, 2, 4, 5]);
}

/// Whichever version is indexed: stretches are identical in both, and in the order of the new one.
#[test]
fn stretches_are_what_both_have() {
    let old = [
        noise(1, 9 * 1024),
        vec![0; 5 * 1024],
        noise(2, 3 * 1024 + 9),
    ]
    .concat();
    let new = [
        b"abc".to_vec(),
        old.clone(),
        vec![0; 2 * 1024],
        noise(2, 1024),
    ]
    .concat();
    for (old, new) in [(&old, &new), (&new, &old), (&old, &old)] {
        let stop = AtomicBool::new(false);
        let read = |from: &[u8], at: u64, buf: &mut [u8]| {
            buf.copy_from_slice(&from[at as usize..at as usize + buf.len()]);
            Ok(buf.len())
        };
        let mut in_new = Vec::new();
        let mut read_new = |at, buf: &mut [u8]| read(new, at, buf);
        let sums = index(old);
        sums.find_in_new(whole(new), &mut read_new, &stop, &mut in_new)
            .unwrap();
        let mut read_old = |at, buf: &mut [u8]| read(old, at, buf);
        let sums = index(new);
        let in_old = sums.find_in_old(old.len() as u64, &mut read_old, &stop);
        for stretches in [in_new, in_old.unwrap()] {
            let (mut end, mut length) = (0, 0);
            for stretch in stretches {
                assert!(stretch.new >= end, "they don't overlap");
                end = stretch.new + stretch.length;
                length += stretch.length;
                let of = |bytes: &[u8], at: u64| {
                    bytes[at as usize..][..stretch.length as usize].to_vec()
                };
                assert_eq!(of(new, stretch.new), of(old, stretch.old));
            }
            assert!(
                length + 3 * 1024 > old.len().min(new.len()) as u64,
                "{length}"
            );
        }
    }
}

#[test]
fn blocks_are_few_whatever_the_length() {
    assert_eq!(block_bytes(1 << 20), Some(8 << 10));
    assert_eq!(block_bytes(1 << 30), Some(32 << 10));
    assert_eq!(block_bytes((1 << 30) + 1), Some(32 << 10));
    assert_eq!(block_bytes(1 << 40), Some(4 << 20));
    assert_eq!(block_bytes(1 << 42), Some(16 << 20));
    assert_eq!(block_bytes((1 << 42) + 1), None);
    assert_eq!(block_bytes(u64::MAX), None);
    for bits in 20..=42 {
        let block = u64::from(block_bytes(1 << bits).unwrap());
        assert!((1u64 << bits).div_ceil(block) <= BLOCKS_MAX);
    }
}

#[test]
fn a_file_that_becomes_shorter_is_told() {
    let theirs = noise(1, 8 * 1024);
    let stop = AtomicBool::new(false);
    let range = whole(&theirs);
    let mut read = |_, buf: &mut [u8]| Ok(buf.len() / 2);
    let scanned = index(&theirs).scan(range, &mut read, &stop, &mut |_| {});
    assert_eq!(scanned.unwrap_err().code, Code::SourceChanged);
}

fn pieces(runs: &[Stretch], new: &[u8], kind: DigestKind) -> Vec<SeedPiece> {
    let mut pieces = Vec::new();
    let shape = (BLOCK, new.len() as u64, kind);
    let mut state_of = |range: ByteRange| {
        let mut hasher = BlockHasher::new(kind, false, range.start);
        hasher.update(&new[range.start as usize..range.end as usize]);
        Ok(Some(hasher.finish(FileId(0)).1.state))
    };
    cut(runs, shape, &mut state_of, &mut |piece| {
        pieces.push(piece);
        Ok(true)
    })
    .unwrap();
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Pieces satisfy the rules of a call, and match the new file.
    #[test]
    fn stretches_are_cut_into_pieces_that_calls_may_have(
        length in 1usize..200_000,
        cuts in proptest::collection::vec((0usize..60_000, 0usize..60_000, 0u64..9000), 1..8),
        is_blake3 in any::<bool>(),
    ) {
        use crate::delta::Seed;
        use crate::id::SourceTag;
        use crate::limits::Limits;
        use crate::path::Call;

        let new = noise(5, length);
        let kind = if is_blake3 { DigestKind::Blake3 } else { DigestKind::Crc64Nvme };
        let (mut runs, mut at) = (Vec::new(), 0);
        for (gap, count, old) in cuts {
            let start = (at + gap).min(length);
            let end = (start + count).min(length);
            if start < end {
                runs.push(Stretch { new: start as u64, old, length: (end - start) as u64 });
            }
            at = end;
        }
        let pieces = pieces(&runs, &new, kind);
        let block = u64::from(BLOCK);
        let mut covered = 0;
        for piece in &pieces {
            covered += u64::from(piece.length);
            let of = runs.iter().find(|r| r.new <= piece.offset && piece.offset < r.new + r.length);
            let run = of.unwrap();
            prop_assert!(piece.offset + u64::from(piece.length) <= run.new + run.length);
            prop_assert_eq!(piece.from_offset + run.new, piece.offset + run.old);
        }
        let whole_blocks = |run: &Stretch| {
            let (start, end) = (run.new.next_multiple_of(block), run.new + run.length);
            let end = if end == length as u64 { end } else { end / block * block };
            end.saturating_sub(start)
        };
        prop_assert_eq!(covered, runs.iter().map(whole_blocks).sum::<u64>());
        for some in pieces.chunks(512) {
            let call = Call::Seed(Box::new(Seed {
                from: b"f".to_vec(),
                to: b"f".to_vec(),
                overwrite: true,
                sparse: false,
                tag: SourceTag([1; 16]),
                length: length as u64,
                digest: kind,
                block_bytes: BLOCK,
                pieces: some.to_vec(),
            }));
            prop_assert_eq!(call.check(&Limits::default()), Ok(()));
        }
    }
}
