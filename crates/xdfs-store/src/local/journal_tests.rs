//! Tests of the journal's format: records are read back, and damage is never trusted.

use proptest::prelude::*;

use super::*;

fn header(digest: DigestKind) -> Header {
    Header {
        tag: SourceTag([3; 16]),
        offset: 0x0A0B,
        length: Some(1 << 40),
        digest,
        block_size: 1 << 20,
        boot: [4; 16],
        nonce: 0x0123_4567_89AB_CDEF,
    }
}

fn journal(header: &Header, fragments: &[Fragment]) -> Vec<u8> {
    let mut bytes = header.encode().to_vec();
    encode_records(header, 0, fragments.iter(), &mut bytes);
    bytes
}

/// A digest state of a kind.
fn state(kind: DigestKind) -> FragmentState {
    match kind {
        DigestKind::Crc64Nvme => FragmentState::Crc64Nvme(3),
        DigestKind::Blake3 => FragmentState::Blake3 {
            node: [5; 32],
            root: [6; 32],
        },
        _ => FragmentState::None,
    }
}

/// The stored form must not change, since journals exist.
#[test]
fn the_layout_is_the_documented_one() {
    let header = header(DigestKind::Crc64Nvme);
    let range = ByteRange { start: 1, end: 2 };
    let bytes = journal(
        &header,
        &[Fragment {
            range,
            state: FragmentState::Crc64Nvme(3),
        }],
    );
    assert_eq!(bytes.len(), 76 + 28);
    assert_eq!(&bytes[..8], b"XDFSJRNL");
    assert_eq!(bytes[8..16], [0, 2, 1, 1, 0, 0x10, 0, 0]);
    assert_eq!(bytes[16..24], (1_u64 << 40).to_be_bytes());
    assert_eq!(bytes[24..32], 0x0A0B_u64.to_be_bytes());
    assert_eq!(bytes[32..48], [3; 16]);
    assert_eq!(bytes[48..64], [4; 16]);
    assert_eq!(bytes[64..72], 0x0123_4567_89AB_CDEF_u64.to_be_bytes());
    assert_eq!(bytes[72..76], crc32c(&bytes[..72]).to_be_bytes());
    assert_eq!(bytes[76..84], 1_u64.to_be_bytes());
    assert_eq!(bytes[84..92], 2_u64.to_be_bytes());
    assert_eq!(bytes[92..100], 3_u64.to_be_bytes());
    let covered = [&bytes[72..76], &[0; 8], &bytes[76..100]].concat();
    assert_eq!(bytes[100..104], crc32c(&covered).to_be_bytes());
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
}

/// Another version, unknown digests and flags, with correct check values.
#[test]
fn headers_of_the_future_are_not_read() {
    let good = header(DigestKind::None).encode();
    assert!(parse(&good).is_some());
    for (at, value) in [(9, 1), (9, 3), (8, 1), (10, 3), (11, 2), (11, 0), (0, b'Y')] {
        let mut other = good;
        other[at] = value;
        let check = crc32c(&other[..HEADER_CHECK]);
        other[HEADER_CHECK..].copy_from_slice(&check.to_be_bytes());
        assert_eq!(parse(&other), None, "byte {at}");
    }
}

/// Records with impossible ranges are not trusted even if their check values are correct.
#[test]
fn impossible_ranges_end_the_journal() {
    let header = header(DigestKind::None);
    for (start, end) in [(5, 5), (6, 5), (0, (1 << 40) + 1), (u64::MAX, 0)] {
        let fragment = Fragment {
            range: ByteRange { start, end },
            state: FragmentState::None,
        };
        let parsed = parse(&journal(&header, &[fragment])).unwrap();
        assert_eq!(
            (parsed.fragments.len(), parsed.valid_bytes),
            (0, HEADER_BYTES)
        );
    }
}

/// A damaged record claims nothing, even if its content is plausible, nor do later ones.
#[test]
fn a_damaged_record_ends_the_journal() {
    for kind in [DigestKind::None, DigestKind::Crc64Nvme, DigestKind::Blake3] {
        let header = header(kind);
        let ranges = [0, 1 << 20].map(|start| ByteRange {
            start,
            end: start + 4096,
        });
        let fragments = ranges.map(|range| Fragment {
            range,
            state: state(kind),
        });
        let whole = journal(&header, &fragments);
        assert_eq!(parse(&whole).unwrap().fragments, fragments);
        for at in HEADER_BYTES..whole.len() {
            let before = (at - HEADER_BYTES) / record_bytes(kind);
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            for journal in [&damaged[..], &whole[..at]] {
                let parsed = parse(journal).unwrap();
                assert_eq!(parsed.fragments, fragments[..before], "{kind:?}, byte {at}");
            }
        }
    }
}

/// It is valid only at its position: after the same number of records of the same journal.
#[test]
fn a_publication_is_read_back() {
    let publication = Publication {
        length: 9,
        identity: (1, u64::MAX),
        mtime_ns: -7,
    };
    for kind in [DigestKind::None, DigestKind::Crc64Nvme, DigestKind::Blake3] {
        let header = header(kind);
        let range = ByteRange { start: 0, end: 9 };
        let state = state(kind);
        let records = journal(&header, &[Fragment { range, state }]);
        let mut bytes = records.clone();
        encode_publication(&header, 1, &publication, &mut bytes);
        assert_eq!(bytes.len(), records.len() + PUBLICATION_BYTES);
        let parsed = parse(&bytes).unwrap();
        assert_eq!(parsed.publication, Some(publication));
        assert_eq!(parsed.valid_bytes, records.len());
        for at in records.len()..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(parse(&damaged).unwrap().publication, None, "byte {at}");
            assert_eq!(
                parse(&bytes[..at]).unwrap().publication,
                None,
                "cut at {at}"
            );
        }
        let mut elsewhere = records.clone();
        encode_publication(&header, 0, &publication, &mut elsewhere);
        assert_eq!(parse(&elsewhere).unwrap().publication, None);
    }
}

fn fragments(kind: DigestKind) -> impl Strategy<Value = Vec<Fragment>> {
    let one = (
        0_u64..1 << 39,
        1_u64..1 << 39,
        any::<[u8; 32]>(),
        any::<[u8; 32]>(),
    );
    let one = one.prop_map(move |(start, length, node, root)| Fragment {
        range: ByteRange {
            start,
            end: start + length,
        },
        state: match kind {
            DigestKind::Crc64Nvme => FragmentState::Crc64Nvme(start ^ length),
            DigestKind::Blake3 => FragmentState::Blake3 { node, root },
            _ => FragmentState::None,
        },
    });
    proptest::collection::vec(one, 0..20)
}

fn kinds() -> impl Strategy<Value = DigestKind> {
    prop_oneof![
        Just(DigestKind::None),
        Just(DigestKind::Crc64Nvme),
        Just(DigestKind::Blake3)
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        (kind, fragments) in kinds().prop_flat_map(|kind| (Just(kind), fragments(kind))),
    ) {
        let header = header(kind);
        let bytes = journal(&header, &fragments);
        let valid_bytes = bytes.len();
        let parsed = Parsed { header, fragments, publication: None, valid_bytes };
        prop_assert_eq!(parse(&bytes), Some(parsed));
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(parse(&bytes), None);
        let mut after_a_header = header(DigestKind::Crc64Nvme).encode().to_vec();
        after_a_header.extend_from_slice(&bytes);
        let parsed = parse(&after_a_header).unwrap();
        prop_assert_eq!(parsed.fragments, []);
    }
}
