//! The journal of a partial file: any bytes are read without harm, and a journal that was damaged
//! claims a beginning of what was recorded in it, never anything else.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::digest::{DigestKind, Fragment, FragmentState};
use xdfs_proto::{ByteRange, SourceTag};
use xdfs_store::local::journal::{Header, Publication, encode_publication, encode_records, parse};

/// What is read must be written the same.
fn read_any(bytes: &[u8]) {
    let Some(parsed) = parse(bytes) else { return };
    let mut again = parsed.header.encode().to_vec();
    encode_records(&parsed.header, 0, parsed.fragments.iter(), &mut again);
    assert_eq!(again, bytes[..parsed.valid_bytes]);
}

/// Makes a journal of the input, damages it at one place, and reads it.
fn read_damaged(input: &[u8]) {
    let Some((&[kind, at_high, at_low, flip], records)) = input.split_first_chunk::<4>() else {
        return;
    };
    let header = Header {
        tag: SourceTag([kind; 16]),
        offset: u64::from(kind & 8),
        length: (kind & 4 != 0).then_some(u64::from(u32::MAX)),
        digest: [DigestKind::None, DigestKind::Crc64Nvme, DigestKind::Blake3]
            [usize::from(kind % 3)],
        block_size: 4096,
        boot: [kind; 16],
        nonce: u64::from(kind),
    };
    let recorded: Vec<Fragment> = records
        .chunks_exact(5)
        .map(|r| {
            let start = u64::from(u16::from_be_bytes([r[0], r[1]])) << 10;
            let end = start + 1 + u64::from(u16::from_be_bytes([r[2], r[3]]));
            let state = match header.digest {
                DigestKind::Crc64Nvme => FragmentState::Crc64Nvme(u64::from(r[4])),
                DigestKind::Blake3 => FragmentState::Blake3 {
                    node: [r[4]; 32],
                    root: [r[0]; 32],
                },
                _ => FragmentState::None,
            };
            Fragment {
                range: ByteRange { start, end },
                state,
            }
        })
        .collect();
    let mut bytes = header.encode().to_vec();
    let count = encode_records(&header, 0, recorded.iter(), &mut bytes);
    let publication = (kind & 16 != 0).then_some(Publication {
        length: u64::from(kind),
        identity: (u64::from(at_high), u64::from(at_low)),
        mtime_ns: i64::from(flip),
    });
    if let Some(publication) = &publication {
        encode_publication(&header, count, publication, &mut bytes);
    }
    let whole = parse(&bytes).expect("an undamaged journal is read");
    assert_eq!((whole.header, &whole.fragments), (header, &recorded));
    assert_eq!(whole.publication, publication);
    let at = usize::from(u16::from_be_bytes([at_high, at_low])) % bytes.len();
    if flip == 0 {
        bytes.truncate(at);
    } else {
        bytes[at] ^= flip;
    }
    let Some(damaged) = parse(&bytes) else { return };
    assert_eq!(damaged.header, header);
    assert!(recorded.starts_with(&damaged.fragments));
    if damaged.publication.is_some() {
        assert_eq!(damaged.fragments, recorded);
        assert_eq!(damaged.publication, publication);
    }
    assert!(
        damaged.valid_bytes <= at,
        "a record is believed in which byte {at} is damaged"
    );
}

fuzz_target!(|data: &[u8]| {
    read_any(data);
    read_damaged(data);
});
