//! Blocks of MODE E on several connections, hostile ones included: no panic, bounded ranges, and
//! what is stored and complete is what a model says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_gridftp::block::{BlockReader, HEADER_BYTES, Header, Piece};
use xdfs_gridftp::receiver::{CONNECTIONS_MAX, RANGES_MAX, Receiver};
use xdfs_proto::{ByteRange, RangeSet};

const CONNECTIONS: usize = 3;

/// Bytes of blocks: sensible ones mostly, which mutations seldom hit.
fn bytes(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in data.chunks(4) {
        let &[kind, count, offset, fill] = part else {
            bytes.extend_from_slice(part);
            continue;
        };
        let (count, offset) = (u64::from(count % 40), u64::from(offset));
        let header = match kind % 8 {
            0..4 => Header::Data {
                offset,
                count,
                eod: kind >= 192,
            },
            4 => Header::End {
                eods: None,
                eod: true,
            },
            5 => Header::End {
                eods: Some(u64::from(fill % 5)),
                eod: kind >= 128,
            },
            _ => {
                bytes.extend_from_slice(part);
                continue;
            }
        };
        bytes.extend_from_slice(&header.encode());
        if let Header::Data { count, .. } = header {
            bytes.resize(bytes.len() + count as usize, fill);
        }
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    let mut decoded = [0; HEADER_BYTES];
    if data.len() >= HEADER_BYTES {
        decoded.copy_from_slice(&data[..HEADER_BYTES]);
        if let Ok(header) = Header::decode(&decoded) {
            assert_eq!(Header::decode(&header.encode()).is_ok(), true);
        }
    }
    let mut readers: [BlockReader; CONNECTIONS] = Default::default();
    let mut receiver = Receiver::default();
    let (mut stored, mut eods, mut told) = (RangeSet::new(), 0, None);
    let mut told_fresh = RangeSet::new();
    let all = bytes(data);
    for (turn, mut read) in all.chunks(23).enumerate() {
        let reader = &mut readers[turn % CONNECTIONS];
        while !read.is_empty() && !reader.has_ended() {
            let wants = reader.wants(read.len());
            assert!(wants > 0 && wants <= read.len());
            let Ok((taken, piece)) = reader.take(&read[..wants]) else {
                return;
            };
            assert!(taken <= wants);
            match piece {
                Some(Piece::Header(header)) => {
                    let (count, eod) = match header {
                        Header::Data { eod, .. } => (None, eod),
                        Header::End { eods, eod } => (eods, eod),
                    };
                    if receiver.header(&header).is_err() {
                        return;
                    }
                    eods += u64::from(eod);
                    told = count.or(told);
                    assert!(told.is_none_or(|count| (1..=CONNECTIONS_MAX).contains(&count)));
                    assert!(told.is_none_or(|count| eods <= count));
                    assert_eq!(receiver.has_all_eods(), told == Some(eods));
                }
                Some(Piece::Payload { offset, length }) => {
                    let range = ByteRange::at(offset, length as u64).expect("it is checked");
                    stored.insert(range);
                    if receiver.stored(range).is_err() {
                        return;
                    }
                    if turn % 7 == 0 {
                        let fresh = receiver.take_fresh();
                        fresh
                            .as_slice()
                            .iter()
                            .for_each(|range| told_fresh.insert(*range));
                    }
                }
                None if taken == 0 => break,
                None => {}
            }
            read = &read[taken..];
        }
    }
    assert_eq!(receiver.ranges(), &stored);
    let fresh = receiver.take_fresh();
    fresh
        .as_slice()
        .iter()
        .for_each(|range| told_fresh.insert(*range));
    assert_eq!(told_fresh, stored);
    assert!(stored.as_slice().len() <= RANGES_MAX);
});
