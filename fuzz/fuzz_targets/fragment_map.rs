//! A map of fragments under any operations: it never panics, never overlaps, keeps its ranges and
//! its fragments equal, and once everything is there has the digest that one pass gives.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::FileId;
use xdfs_proto::digest::{
    BlockHasher, DigestKind, DigestValue, Fragment, FragmentMap, FragmentState,
};
use xdfs_proto::{ByteRange, RangeSet};

/// Bytes of the file; the length is odd so that its last block is ragged.
const LENGTH: u64 = 16 * 1024 + 321;

fn content() -> Vec<u8> {
    (0..LENGTH).map(|i| (i * i / 7) as u8).collect()
}

fn fragment(kind: DigestKind, bytes: &[u8], range: ByteRange) -> Fragment {
    let mut hasher = BlockHasher::new(kind, true, range.start);
    hasher.update(&bytes[range.start as usize..range.end as usize]);
    hasher.finish(FileId(1)).1
}

fn check(map: &FragmentMap) {
    let mut ranges = RangeSet::new();
    let mut end = 0;
    for f in map.fragments() {
        assert!(f.range.start >= end && f.range.end > f.range.start);
        end = f.range.end;
        ranges.insert(f.range);
    }
    assert_eq!(&ranges, map.ranges());
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, mut operations)) = data.split_first() else {
        return;
    };
    let kind = [DigestKind::None, DigestKind::Crc64Nvme, DigestKind::Blake3][usize::from(kind % 3)];
    let mut bytes = content();
    let mut map = FragmentMap::new(kind);
    // Fragments as a peer may claim them: nothing is known of their digest then.
    let mut foreign = false;
    while let Some((operation, rest)) = operations.split_first_chunk::<6>() {
        operations = rest;
        let [what, a, b, c, d, e] = *operation;
        match what % 4 {
            // A block of the grid of 1 KiB, 2 KiB, ...
            0 => {
                let size = 1024u64 << (a % 4);
                let start = u64::from(b) % LENGTH.div_ceil(size) * size;
                let range = ByteRange {
                    start,
                    end: (start + size).min(LENGTH),
                };
                map.insert(fragment(kind, &bytes, range));
            }
            // Any range of the file.
            1 => {
                let start = u64::from(u16::from_be_bytes([a, b])) % LENGTH;
                let len = 1 + u64::from(u16::from_be_bytes([c, d])) % (LENGTH - start);
                map.insert(fragment(
                    kind,
                    &bytes,
                    ByteRange {
                        start,
                        end: start + len,
                    },
                ));
            }
            // A hole on the grid of 1 KiB.
            2 => {
                let start = u64::from(a) % 17 * 1024;
                let range = ByteRange {
                    start,
                    end: (start + u64::from(b) * 1024).min(LENGTH),
                };
                if map.insert_zeros(range, 1024 << (c % 4)) {
                    bytes[range.start as usize..range.end as usize].fill(0);
                }
            }
            // What a peer says is durable.
            _ => {
                let start = u64::from_be_bytes([a, b, c, d, e, 0, 0, 0]) >> (a % 64);
                let len = u64::from(u16::from_be_bytes([d, e])) << (b % 48);
                let state = match c % 3 {
                    0 => FragmentState::None,
                    1 => FragmentState::Crc64Nvme(u64::from(e)),
                    _ => FragmentState::Blake3 {
                        node: [d; 32],
                        root: [e; 32],
                    },
                };
                let range = ByteRange {
                    start,
                    end: start.saturating_add(len),
                };
                foreign |= map.insert(Fragment { range, state });
            }
        }
        check(&map);
    }
    let _ = map.digest(u64::MAX);
    if foreign {
        let _ = map.digest(LENGTH);
        return;
    }
    // What is missing comes block by block, on the finest grid, as far as it can be cut there.
    let gaps = map.ranges().gaps(ByteRange {
        start: 0,
        end: LENGTH,
    });
    let mut whole = true;
    for gap in gaps.as_slice() {
        let mut start = gap.start;
        while start < gap.end {
            let end = gap.end.min((start / 1024 + 1) * 1024);
            whole &= map.insert(fragment(kind, &bytes, ByteRange { start, end }));
            start = end;
        }
    }
    check(&map);
    let expected = match kind {
        DigestKind::Crc64Nvme => match fragment(
            kind,
            &bytes,
            ByteRange {
                start: 0,
                end: LENGTH,
            },
        )
        .state
        {
            FragmentState::Crc64Nvme(crc) => DigestValue::Crc64Nvme(crc),
            other => panic!("{other:?}"),
        },
        DigestKind::Blake3 => match fragment(
            kind,
            &bytes,
            ByteRange {
                start: 0,
                end: LENGTH,
            },
        )
        .state
        {
            FragmentState::Blake3 { root, .. } => DigestValue::Blake3(root),
            other => panic!("{other:?}"),
        },
        _ => DigestValue::None,
    };
    match map.digest(LENGTH) {
        Some(digest) => assert_eq!(digest, expected),
        // Only ranges that no tree has can leave the hash unknown.
        None => assert!(kind == DigestKind::Blake3 || !whole),
    }
});
