//! Messages of MODE X on several connections, hostile ones included, at a receiver and at a sender:
//! no panic, nothing is taken twice, and complete is only what the end says.
#![no_main]

use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use xdfs_gridftp::xmode::{
    BLOCK_BYTES_MAX, Breach, Message, MessageReader, Receiver, Sender, Side, Sum, Taken,
};
use xdfs_proto::{ByteRange, RangeSet};

const TRANSACTION: u64 = 7;
const LINES: u64 = 3;
/// Bytes of the file that the sender has.
const BYTES: u64 = 200;

/// Messages: sensible ones mostly, which mutations seldom hit.
fn bytes(part: &[u8], sum: Sum) -> Vec<u8> {
    let &[kind, count, offset, fill] = part else {
        return part.to_vec();
    };
    let (count, offset) = (u64::from(count % 40) + 1, u64::from(offset));
    let range = ByteRange::at(offset, count).expect("it is near");
    let mut out = Vec::new();
    let message = match kind % 8 {
        0 => Message::Open,
        1 => Message::Ready,
        2 => Message::Bye,
        3 => Message::Acknowledge(range),
        4 => Message::End {
            bytes: count,
            end: count + offset,
        },
        5 | 6 => {
            let put = |out: &mut Vec<u8>| {
                out.resize(out.len() + count as usize, fill);
                Ok::<(), ()>(())
            };
            let _ = Message::encode_block(range, TRANSACTION, sum, &mut out, put);
            return out;
        }
        _ => return part.to_vec(),
    };
    message.encode(TRANSACTION, sum, &mut out);
    out
}

/// A reader, given the bytes of some messages in pieces. Returns those that are whole; `None` if
/// one isn't.
fn read(
    reader: &mut MessageReader,
    mut bytes: &[u8],
    mut take: impl FnMut(&MessageReader, Message) -> Result<(), Breach>,
) -> Result<bool, Breach> {
    while !bytes.is_empty() {
        let room = reader.room();
        assert!(!room.is_empty() && room.len() as u64 <= BLOCK_BYTES_MAX + 16);
        let count = room.len().min(bytes.len()).min(11);
        room[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        match reader.filled(count) {
            Err(_) => return Ok(false),
            Ok(None) => {}
            Ok(Some(message)) => take(reader, message)?,
        }
    }
    Ok(true)
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let sum = Sum::ALL[usize::from(first) % 4].0;
    let (mut receiver, mut stored) = (Receiver::new(TRANSACTION, sum), RangeSet::new());
    let mut left = RangeSet::new();
    left.insert(ByteRange {
        start: 0,
        end: BYTES,
    });
    let mut sender = Sender::new(TRANSACTION, sum, left, 64);
    sender.finish();
    let mut under_way = Vec::new();
    let (mut new, mut arrived) = (0, 0);
    let mut readers = Vec::new();
    let (mut out, now) = (Vec::new(), Instant::now());
    for line in 0..LINES {
        receiver.join(line, line % 2 == 0, now, &mut out);
        sender.join(line, line % 2 == 1, now, &mut out);
        readers.push([(); 2].map(|()| MessageReader::new(TRANSACTION, sum)));
    }
    let mut ends = false;
    for (turn, part) in data.chunks(4).enumerate() {
        let line = turn as u64 % LINES;
        let sent = bytes(part, sum);
        let [at_receiver, at_sender] = &mut readers[line as usize];
        let taken = read(at_receiver, &sent, |reader, message| {
            out.clear();
            match receiver.take(line, message, &stored, &mut out)? {
                Taken::Block(range) => {
                    assert!(!stored.overlaps(range) && !ends);
                    assert_eq!(reader.payload().len() as u64, range.len());
                    stored.insert(range);
                    new += range.len();
                    receiver.acknowledge(range, &mut out);
                }
                Taken::Complete => {
                    let Message::End { bytes, .. } = message else {
                        panic!("only an end completes");
                    };
                    assert_eq!(bytes, new);
                    ends = true;
                }
                Taken::Nothing => {}
            }
            Ok(())
        });
        assert_eq!(receiver.is_complete(), ends);
        let is_lost = match taken {
            Ok(is_whole) => !is_whole,
            Err(breach) if breach.is_of_connection() => true,
            Err(_) => return,
        };
        if is_lost {
            if receiver.leave(line).is_err() {
                return;
            }
            receiver.join(line, line % 2 == 0, now, &mut out);
            *at_receiver = MessageReader::new(TRANSACTION, sum);
        }
        let taken = read(at_sender, &sent, |_, message| {
            out.clear();
            if let Some(range) = sender.take(line, message, &mut out)? {
                let place = under_way.iter().position(|own| *own == (line, range));
                under_way.remove(place.expect("it was sent on this connection"));
                arrived += range.len();
            }
            Ok(())
        });
        assert_eq!(sender.has_arrived(), arrived == BYTES);
        assert!(!sender.is_done() || arrived == BYTES);
        if !matches!(taken, Ok(true)) {
            under_way.retain(|(own, _)| *own != line);
            if sender.leave(line).is_err() {
                return;
            }
            sender.join(line, line % 2 == 1, now, &mut out);
            *at_sender = MessageReader::new(TRANSACTION, sum);
        }
        if let Some(range) = sender.next_block(line) {
            assert!(range.end <= BYTES);
            under_way.push((line, range));
        }
        sender.end(line, &mut out);
    }
});
