//! Digests combined from blocks in any order equal those computed in one pass.

use proptest::prelude::*;
use xdfs_proto::ByteRange;
use xdfs_proto::FileId;
use xdfs_proto::digest::{
    BlockHasher, DigestKind, DigestValue, Fragment, FragmentMap, FragmentState,
};

const BLOCK: u64 = 4096;
const KINDS: [DigestKind; 3] = [DigestKind::None, DigestKind::Crc64Nvme, DigestKind::Blake3];

/// Bytes that don't repeat with any block size.
fn content(len: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

fn expected(kind: DigestKind, bytes: &[u8]) -> DigestValue {
    match kind {
        DigestKind::Crc64Nvme => DigestValue::Crc64Nvme(crc_fast::crc64_nvme(bytes)),
        DigestKind::Blake3 => DigestValue::Blake3(blake3::hash(bytes).into()),
        _ => DigestValue::None,
    }
}

fn fragment(kind: DigestKind, bytes: &[u8], range: ByteRange) -> Fragment {
    let payload = &bytes[range.start as usize..range.end as usize];
    let mut hasher = BlockHasher::new(kind, true, range.start);
    for piece in payload.chunks(1000) {
        hasher.update(piece);
    }
    let (check, fragment) = hasher.finish(FileId(9));
    let place = [&9u32.to_be_bytes()[..], &range.start.to_be_bytes()].concat();
    assert_eq!(check, crc_fast::crc32_iscsi(&[payload, &place].concat()));
    assert_eq!(fragment.range, range);
    fragment
}

fn blocks(len: u64, block: u64) -> Vec<ByteRange> {
    (0..len)
        .step_by(block as usize)
        .map(|start| ByteRange {
            start,
            end: (start + block).min(len),
        })
        .collect()
}

fn lengths() -> Vec<u64> {
    let mut lengths = vec![1, 1023, 1024, 1025];
    for k in [1, 2, 3, 4, 5, 7, 8, 13, 16] {
        lengths.extend([k * BLOCK - 1, k * BLOCK, k * BLOCK + 1, k * BLOCK + 1024]);
    }
    lengths
}

#[test]
fn every_length_agrees_forwards_and_backwards() {
    for len in lengths() {
        let bytes = content(len);
        for kind in KINDS {
            let mut forwards = FragmentMap::new(kind);
            let mut backwards = FragmentMap::new(kind);
            let blocks = blocks(len, BLOCK);
            for (i, range) in blocks.iter().enumerate() {
                assert!(i == 0 || forwards.digest(len).is_none());
                assert!(forwards.insert(fragment(kind, &bytes, *range)));
            }
            for range in blocks.iter().rev() {
                assert!(backwards.insert(fragment(kind, &bytes, *range)));
            }
            assert_eq!(
                forwards.digest(len),
                Some(expected(kind, &bytes)),
                "{kind:?} {len}"
            );
            assert_eq!(
                backwards.digest(len),
                forwards.digest(len),
                "{kind:?} {len}"
            );
            assert_eq!(forwards.digest(len + 1), None);
            assert_eq!(forwards.digest(len - 1), None);
        }
    }
}

#[test]
fn nothing_has_the_digest_of_nothing() {
    for kind in KINDS {
        assert_eq!(FragmentMap::new(kind).digest(0), Some(expected(kind, &[])));
    }
}

#[test]
fn the_published_check_values_come_out() {
    let mut hasher = BlockHasher::new(DigestKind::Crc64Nvme, true, 0);
    hasher.update(b"123456789");
    let (check, fragment) = hasher.finish(FileId(9));
    let covered = [b"123456789".as_slice(), &[0, 0, 0, 9], &[0; 8]].concat();
    assert_eq!(crc_fast::crc32_iscsi(b"123456789"), 0xe306_9283);
    assert_eq!(check, crc_fast::crc32_iscsi(&covered));
    assert_eq!(
        fragment.state,
        FragmentState::Crc64Nvme(0xae8b_1486_0a79_9888)
    );
}

#[test]
fn without_a_check_the_value_is_zero() {
    let mut hasher = BlockHasher::new(DigestKind::Crc64Nvme, false, 7);
    hasher.update(b"abc");
    let (check, fragment) = hasher.finish(FileId(9));
    assert_eq!(check, 0);
    assert_eq!(fragment.range, ByteRange { start: 7, end: 10 });
}

#[test]
fn in_order_blocks_merge_as_they_come() {
    let bytes = content(64 * BLOCK);
    for (kind, most) in [
        (DigestKind::Crc64Nvme, 1),
        (DigestKind::Blake3, 6),
        (DigestKind::None, 1),
    ] {
        let mut map = FragmentMap::new(kind);
        for range in blocks(64 * BLOCK, BLOCK) {
            map.insert(fragment(kind, &bytes, range));
            assert!(map.fragments().count() <= most);
        }
        assert_eq!(map.fragments().count(), 1);
    }
}

#[test]
fn an_overlap_changes_nothing() {
    let bytes = content(8 * BLOCK);
    let at = |start: u64, end: u64| ByteRange {
        start: start * BLOCK,
        end: end * BLOCK,
    };
    for kind in KINDS {
        let mut map = FragmentMap::new(kind);
        assert!(map.insert(fragment(kind, &bytes, at(2, 4))));
        let before: Vec<Fragment> = map.fragments().copied().collect();
        for overlap in [at(2, 4), at(2, 3), at(3, 4), at(0, 8)] {
            assert!(
                !map.insert(fragment(kind, &bytes, overlap)),
                "{kind:?} {overlap}"
            );
            assert!(!map.insert_zeros(overlap, BLOCK));
        }
        let empty = ByteRange { start: 0, end: 0 };
        assert!(!map.insert_zeros(empty, BLOCK));
        assert_eq!(map.fragments().copied().collect::<Vec<_>>(), before);
        assert_eq!(map.ranges().as_slice(), &[at(2, 4)]);
        assert!(map.insert(fragment(kind, &bytes, at(0, 2))));
        assert!(map.insert(fragment(kind, &bytes, at(4, 8))));
        assert_eq!(map.digest(8 * BLOCK), Some(expected(kind, &bytes)));
    }
}

#[test]
fn a_fragment_of_another_kind_is_refused() {
    let bytes = content(BLOCK);
    let range = ByteRange {
        start: 0,
        end: BLOCK,
    };
    let mut map = FragmentMap::new(DigestKind::Blake3);
    assert!(!map.insert(fragment(DigestKind::Crc64Nvme, &bytes, range)));
    assert!(!map.insert(fragment(DigestKind::None, &bytes, range)));
    assert!(map.ranges().as_slice().is_empty());
}

#[test]
fn a_block_that_is_no_subtree_is_refused_and_never_panics() {
    let bytes = content(16 * BLOCK);
    let mut map = FragmentMap::new(DigestKind::Blake3);
    for (start, end) in [
        (1, 1000),
        (1024, 4096),
        (BLOCK, 4 * BLOCK),
        (3 * BLOCK, 5 * BLOCK),
    ] {
        let range = ByteRange { start, end };
        assert!(
            !map.insert(fragment(DigestKind::Blake3, &bytes, range)),
            "{range}"
        );
    }
    let node = [1; 32];
    let state = FragmentState::Blake3 { node, root: node };
    for (start, end) in [(1, 2), (1024, 4096), (u64::MAX - 1023, u64::MAX)] {
        let result = map.insert(Fragment {
            range: ByteRange { start, end },
            state,
        });
        assert_eq!(result, start == u64::MAX - 1023, "{start}..{end}");
    }
}

#[test]
fn a_short_block_in_the_middle_leaves_the_hash_unknown() {
    let bytes = content(4 * BLOCK);
    let mut map = FragmentMap::new(DigestKind::Blake3);
    for (start, end) in [(0, 3000), (4096, 8192), (8192, 4 * BLOCK)] {
        assert!(map.insert(fragment(
            DigestKind::Blake3,
            &bytes,
            ByteRange { start, end }
        )));
    }
    assert!(!map.insert(fragment(
        DigestKind::Blake3,
        &bytes,
        ByteRange {
            start: 3000,
            end: 4096
        }
    )));
    assert_eq!(map.digest(4 * BLOCK), None);

    let mut map = FragmentMap::new(DigestKind::Blake3);
    for (start, end) in [(0, 3072), (3072, 4096)] {
        assert!(map.insert(fragment(
            DigestKind::Blake3,
            &bytes,
            ByteRange { start, end }
        )));
    }
    assert_eq!(map.digest(4096), None);
}

#[test]
fn zeros_count_like_bytes() {
    for len in [10 * BLOCK, 10 * BLOCK + 77] {
        let mut bytes = content(len);
        bytes[(2 * BLOCK) as usize..(7 * BLOCK) as usize].fill(0);
        bytes[(8 * BLOCK) as usize..].fill(0);
        for kind in KINDS {
            let mut map = FragmentMap::new(kind);
            let hole = |start, end| ByteRange { start, end };
            assert!(map.insert_zeros(hole(2 * BLOCK, 7 * BLOCK), BLOCK));
            assert!(map.insert(fragment(kind, &bytes, hole(7 * BLOCK, 8 * BLOCK))));
            assert!(map.insert_zeros(hole(8 * BLOCK, len), BLOCK));
            assert!(map.insert(fragment(kind, &bytes, hole(0, BLOCK))));
            assert!(map.insert(fragment(kind, &bytes, hole(BLOCK, 2 * BLOCK))));
            assert_eq!(
                map.digest(len),
                Some(expected(kind, &bytes)),
                "{kind:?} {len}"
            );
        }
    }
}

#[test]
fn a_vast_hole_costs_nothing() {
    let len = u64::MAX - 1;
    let mut map = FragmentMap::new(DigestKind::Crc64Nvme);
    assert!(map.insert_zeros(
        ByteRange {
            start: 0,
            end: len / 2
        },
        BLOCK
    ));
    assert!(map.insert_zeros(
        ByteRange {
            start: len / 2,
            end: len
        },
        BLOCK
    ));
    let mut whole = FragmentMap::new(DigestKind::Crc64Nvme);
    assert!(whole.insert_zeros(ByteRange { start: 0, end: len }, BLOCK));
    assert_eq!(map.digest(len), whole.digest(len));
    assert!(map.digest(len).is_some());
}

#[test]
fn a_hasher_can_go_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<BlockHasher>();
    is_send::<FragmentMap>();
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 96,
        ..ProptestConfig::default()
    })]

    /// Any block size, any order, resumed in the middle through the fragments of one side.
    #[test]
    fn any_order_of_blocks_agrees(
        (len, log, order) in (1u64..100_000, 10u32..15).prop_flat_map(|(len, log)| {
            let blocks = blocks(len, 1 << log);
            (Just(len), Just(log), Just(blocks).prop_shuffle())
        }),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = content(len);
        for kind in KINDS {
            let cut = cut.index(order.len() + 1);
            let mut receiver = FragmentMap::new(kind);
            for range in &order[..cut] {
                prop_assert!(receiver.insert(fragment(kind, &bytes, *range)));
            }
            let mut sender = FragmentMap::new(kind);
            for durable in receiver.fragments() {
                prop_assert!(sender.insert(*durable));
            }
            prop_assert_eq!(sender.ranges(), receiver.ranges());
            // What is left goes on a finer grid.
            for range in &order[cut..] {
                let finer = ByteRange { start: range.start, end: range.end };
                for piece in blocks(finer.len(), 1024) {
                    let range = ByteRange {
                        start: finer.start + piece.start,
                        end: finer.start + piece.end,
                    };
                    prop_assert!(sender.insert(fragment(kind, &bytes, range)));
                }
                prop_assert!(receiver.insert(fragment(kind, &bytes, *range)));
            }
            prop_assert_eq!(receiver.digest(len), Some(expected(kind, &bytes)), "log {}", log);
            prop_assert_eq!(sender.digest(len), receiver.digest(len));
        }
    }

    /// The CRC has no grid: any cuts, any order.
    #[test]
    fn a_crc_combines_over_any_cuts(
        (len, cuts) in (1u64..50_000).prop_flat_map(|len| {
            (Just(len), prop::collection::btree_set(1..=len, 0..30))
        }),
        seed: u64,
    ) {
        let bytes = content(len);
        let mut ranges = Vec::new();
        let mut start = 0;
        for end in cuts.into_iter().chain([len]) {
            if end > start {
                ranges.push(ByteRange { start, end });
                start = end;
            }
        }
        ranges.sort_by_key(|r| (r.start ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut map = FragmentMap::new(DigestKind::Crc64Nvme);
        for range in ranges {
            prop_assert!(map.insert(fragment(DigestKind::Crc64Nvme, &bytes, range)));
        }
        prop_assert_eq!(map.digest(len), Some(expected(DigestKind::Crc64Nvme, &bytes)));
        prop_assert_eq!(map.fragments().count(), 1);
    }
}
