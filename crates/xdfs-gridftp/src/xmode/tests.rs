//! Both machines over a network that cuts connections and damages bytes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use xdfs_proto::{ByteRange, RangeSet};

use super::message::{Damage, HEADER_BYTES};
use super::*;

const TRANSACTION: u64 = 0x0123_4567_89ab_cdef;

/// Numbers that follow from a seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}

/// One connection: bytes on their way, and what reads them.
struct Line {
    to_receiver: VecDeque<u8>,
    to_sender: VecDeque<u8>,
    at_receiver: MessageReader,
    at_sender: MessageReader,
}

struct Network {
    sum: Sum,
    content: Vec<u8>,
    sender: Sender,
    receiver: Receiver,
    stored: RangeSet,
    found: Vec<u8>,
    lines: BTreeMap<u64, Line>,
    next: u64,
    opens_at_sender: bool,
}

impl Network {
    fn new(numbers: &mut Numbers, sum: Sum, bytes: usize) -> Self {
        let content: Vec<u8> = (0..bytes).map(|_| numbers.below(256) as u8).collect();
        let mut left = RangeSet::new();
        left.insert(ByteRange {
            start: 0,
            end: bytes as u64,
        });
        // What has come before is neither sent nor lost.
        let held = ByteRange {
            start: 0,
            end: numbers.below(bytes as u64 + 1) / 2,
        };
        let (mut stored, mut found) = (RangeSet::new(), vec![0; bytes]);
        if !held.is_empty() {
            left.remove(held);
            stored.insert(held);
            let end = held.end as usize;
            found[..end].copy_from_slice(&content[..end]);
        }
        let mut sender = Sender::new(TRANSACTION, sum, left, 1 + numbers.below(200));
        sender.finish();
        Self {
            sum,
            content,
            sender,
            receiver: Receiver::new(TRANSACTION, sum),
            stored,
            found,
            lines: BTreeMap::new(),
            next: 0,
            opens_at_sender: numbers.below(2) == 0,
        }
    }

    fn open(&mut self) {
        let mut line = Line {
            to_receiver: VecDeque::new(),
            to_sender: VecDeque::new(),
            at_receiver: MessageReader::new(TRANSACTION, self.sum),
            at_sender: MessageReader::new(TRANSACTION, self.sum),
        };
        let (mut down, mut up) = (Vec::new(), Vec::new());
        self.sender
            .join(self.next, self.opens_at_sender, Instant::now(), &mut down);
        self.receiver
            .join(self.next, !self.opens_at_sender, Instant::now(), &mut up);
        line.to_receiver.extend(down);
        line.to_sender.extend(up);
        self.lines.insert(self.next, line);
        self.next += 1;
    }

    fn cut(&mut self, number: u64) -> Result<(), Breach> {
        self.lines.remove(&number);
        self.sender.leave(number)?;
        self.receiver.leave(number)
    }

    /// Something happens on a connection. Returns whether it is as before.
    fn step(&mut self, number: u64, numbers: &mut Numbers, breaks: bool) -> Result<bool, Breach> {
        let line = self.lines.get_mut(&number).unwrap();
        match numbers.below(if breaks { 60 } else { 57 }) {
            0..20 => {
                let mut out = Vec::new();
                if let Some(block) = self.sender.next_block(number) {
                    let from = &self.content[block.start as usize..block.end as usize];
                    let fill = |out: &mut Vec<u8>| {
                        out.extend_from_slice(from);
                        Ok::<(), Breach>(())
                    };
                    Message::encode_block(block, TRANSACTION, self.sum, &mut out, fill).unwrap();
                }
                self.sender.end(number, &mut out);
                line.to_receiver.extend(out);
            }
            20..40 => {
                for _ in 0..numbers.below(400) {
                    let Some(byte) = line.to_receiver.pop_front() else {
                        break;
                    };
                    line.at_receiver.room()[0] = byte;
                    let Ok(message) = line.at_receiver.filled(1) else {
                        return Ok(false);
                    };
                    let Some(message) = message else { continue };
                    let mut out = Vec::new();
                    let taken = self.receiver.take(number, message, &self.stored, &mut out);
                    if let Ok(Taken::Block(block)) = taken {
                        assert!(!self.stored.overlaps(block), "{block} came twice");
                        let place = block.start as usize..block.end as usize;
                        self.found[place].copy_from_slice(line.at_receiver.payload());
                        self.stored.insert(block);
                        self.receiver.acknowledge(block, &mut out);
                    }
                    line.to_sender.extend(out);
                    match taken {
                        Err(breach) if breach.is_of_connection() => return Ok(false),
                        taken => drop(taken?),
                    }
                }
            }
            40..57 => {
                for _ in 0..numbers.below(100) {
                    let Some(byte) = line.to_sender.pop_front() else {
                        break;
                    };
                    line.at_sender.room()[0] = byte;
                    let Ok(message) = line.at_sender.filled(1) else {
                        return Ok(false);
                    };
                    let Some(message) = message else { continue };
                    let mut out = Vec::new();
                    let taken = self.sender.take(number, message, &mut out);
                    line.to_receiver.extend(out);
                    if taken.is_err() {
                        return Ok(false);
                    }
                }
            }
            57 => return Ok(false),
            kind => {
                let bytes = match kind {
                    58 => &mut line.to_receiver,
                    _ => &mut line.to_sender,
                };
                if !bytes.is_empty() {
                    let at = numbers.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << numbers.below(8);
                }
            }
        }
        Ok(true)
    }
}

#[test]
fn everything_arrives_once_whatever_breaks() {
    for seed in 0..400 {
        let mut numbers = Numbers(seed);
        let sum = Sum::ALL[(seed % 4) as usize].0;
        let bytes = numbers.below(20_000) as usize;
        let mut network = Network::new(&mut numbers, sum, bytes);
        let most = 1 + numbers.below(5);
        let mut breaks = 0;
        for turn in 0..u64::MAX {
            assert!(turn < 2_000_000, "seed {seed}: it doesn't end");
            if (network.lines.len() as u64) < most {
                network.open();
            }
            let numbered: Vec<_> = network.lines.keys().copied().collect();
            let number = numbered[numbers.below(numbered.len() as u64) as usize];
            // A network that does nothing else lets nothing through.
            let may_break = breaks < 200 && numbers.below(20) == 0;
            let stays = network.step(number, &mut numbers, may_break);
            let stays = stays.unwrap_or_else(|breach| panic!("seed {seed}: {breach}"));
            if !stays {
                breaks += 1;
                if let Err(breach) = network.cut(number) {
                    assert_eq!(breach, Breach::TooManyBreaks, "seed {seed}");
                    break;
                }
            }
            if network.sender.is_done() {
                assert!(network.receiver.is_complete());
                assert_eq!(network.found, network.content, "seed {seed}");
                assert_eq!(network.stored.total(), bytes as u64);
                break;
            }
        }
    }
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

/// What a reader says to a message.
fn read(bytes: &[u8], transaction: u64, sum: Sum) -> Result<Option<Message>, Damage> {
    let (mut reader, mut last, mut at) = (MessageReader::new(transaction, sum), None, 0);
    while at < bytes.len() {
        let room = reader.room();
        let count = room.len().min(bytes.len() - at);
        room[..count].copy_from_slice(&bytes[at..at + count]);
        at += count;
        last = reader.filled(count)?;
    }
    Ok(last)
}

#[test]
fn messages_have_the_bytes_of_the_specification() {
    let mut out = Vec::new();
    let block = range(0x1_0000, 0x1_0003);
    let fill = |out: &mut Vec<u8>| {
        out.extend_from_slice(b"abc");
        Ok::<(), ()>(())
    };
    Message::encode_block(block, TRANSACTION, Sum::Crc32c, &mut out, fill).unwrap();
    let wanted = [
        &[0_u8][..],
        &[0, 0, 0, 0, 0, 0, 0, 3],
        &[0, 0, 0, 0, 0, 1, 0, 0],
        &[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef],
        b"abc",
    ]
    .concat();
    assert_eq!(out[..wanted.len()], wanted);
    assert_eq!(out.len(), wanted.len() + 4);
    assert_eq!(
        read(&out, TRANSACTION, Sum::Crc32c),
        Ok(Some(Message::Data(block)))
    );
    for (sum, _) in Sum::ALL {
        for message in [
            Message::Open,
            Message::Ready,
            Message::Bye,
            Message::Acknowledge(range(5, 6)),
            Message::End { bytes: 3, end: 7 },
        ] {
            let mut out = Vec::new();
            message.encode(TRANSACTION, sum, &mut out);
            assert_eq!(out.len(), HEADER_BYTES + sum.bytes());
            assert_eq!(read(&out, TRANSACTION, sum), Ok(Some(message)));
            assert_eq!(read(&out, 1, sum), Err(Damage::Transaction));
            for at in 0..out.len() {
                let mut damaged = out.clone();
                damaged[at] ^= 1;
                let said = read(&damaged, TRANSACTION, sum);
                // A longer block than there are bytes waits for more.
                assert!(
                    matches!(said, Err(_) | Ok(None)),
                    "{message:?} {at}: {said:?}"
                );
            }
        }
    }
}

#[test]
fn numbers_without_sense_are_refused() {
    let raw = |kind: u8, count: u64, offset: u64| {
        let mut bytes = vec![kind];
        for number in [count, offset, TRANSACTION] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        read(&bytes, TRANSACTION, Sum::Crc32)
    };
    for (kind, count, offset) in [
        (0, 0, 0),
        (0, BLOCK_BYTES_MAX + 1, 0),
        (0, u64::MAX, 0),
        (0, 1, u64::MAX),
        (0, 1, i64::MAX as u64),
        (3, 0, 7),
        (1, 1, 0),
        (2, 0, 1),
        (8, 1, 1),
        (0x40, 8, 7),
    ] {
        assert_eq!(
            raw(kind, count, offset),
            Err(Damage::Numbers),
            "{kind} {count} {offset}"
        );
    }
    assert_eq!(raw(0x10, 0, 0), Err(Damage::Unknown(0x10)));
}

/// A receiver with one connection that is up.
fn receiver() -> Receiver {
    let (mut receiver, mut out) = (Receiver::new(TRANSACTION, Sum::Crc32c), Vec::new());
    receiver.join(0, false, Instant::now(), &mut out);
    let none = RangeSet::new();
    receiver.take(0, Message::Open, &none, &mut out).unwrap();
    assert_eq!(
        read(&out, TRANSACTION, Sum::Crc32c),
        Ok(Some(Message::Ready))
    );
    receiver
}

#[test]
fn a_receiver_takes_nothing_that_has_no_place() {
    let mut out = Vec::new();
    let mut stored = RangeSet::new();
    let mut silent = Receiver::new(TRANSACTION, Sum::Crc32c);
    silent.join(0, false, Instant::now(), &mut out);
    for message in [Message::Data(range(0, 1)), Message::Ready, Message::Bye] {
        let said = silent.take(0, message, &stored, &mut out);
        assert_eq!(said, Err(Breach::Misplaced(message)));
    }
    let mut receiver = receiver();
    for message in [
        Message::Open,
        Message::Acknowledge(range(0, 1)),
        Message::Bye,
    ] {
        let said = receiver.take(0, message, &stored, &mut out);
        assert_eq!(said, Err(Breach::Misplaced(message)));
    }
    // An end before everything is here, and one past it.
    stored.insert(range(0, 10));
    receiver.acknowledge(range(0, 10), &mut out);
    for (bytes, end) in [(0, 0), (9, 10), (11, 11), (10, 11)] {
        let said = receiver.take(0, Message::End { bytes, end }, &stored, &mut out);
        assert_eq!(said, Err(Breach::WrongEnd), "{bytes} {end}");
    }
    let said = receiver.take(0, Message::Data(range(5, 15)), &stored, &mut out);
    assert_eq!(said, Err(Breach::Overlapping(range(5, 15))));
    let end = Message::End { bytes: 10, end: 10 };
    assert_eq!(
        receiver.take(0, end, &stored, &mut out),
        Ok(Taken::Complete)
    );
    let more = Message::Data(range(10, 11));
    assert_eq!(
        receiver.take(0, more, &stored, &mut out),
        Err(Breach::WrongEnd)
    );
}

#[test]
fn a_sender_believes_only_what_it_has_sent() {
    let mut left = RangeSet::new();
    left.insert(range(0, 100));
    let (mut sender, mut out) = (Sender::new(TRANSACTION, Sum::Crc32c, left, 60), Vec::new());
    sender.join(0, true, Instant::now(), &mut out);
    assert_eq!(sender.next_block(0), None);
    sender.take(0, Message::Ready, &mut out).unwrap();
    assert_eq!(sender.next_block(0), Some(range(0, 60)));
    for message in [
        Message::Acknowledge(range(60, 100)),
        Message::Acknowledge(range(0, 50)),
        Message::Bye,
        Message::Ready,
        Message::Data(range(0, 60)),
    ] {
        assert!(sender.take(0, message, &mut out).is_err(), "{message:?}");
    }
    sender
        .take(0, Message::Acknowledge(range(0, 60)), &mut out)
        .unwrap();
    assert!(
        sender
            .take(0, Message::Acknowledge(range(0, 60)), &mut out)
            .is_err()
    );
    assert_eq!(sender.next_block(0), Some(range(60, 100)));
    // No end before everything has arrived.
    sender.finish();
    assert!(!sender.end(0, &mut out));
    sender.leave(0).unwrap();
    sender.join(1, false, Instant::now(), &mut out);
    sender.take(1, Message::Open, &mut out).unwrap();
    assert_eq!(sender.next_block(1), Some(range(60, 100)));
    sender
        .take(1, Message::Acknowledge(range(60, 100)), &mut out)
        .unwrap();
    assert!(sender.take(1, Message::Bye, &mut out).is_err());
    assert!(sender.end(1, &mut out) && !sender.end(1, &mut out));
    sender.take(1, Message::Bye, &mut out).unwrap();
    assert!(sender.is_done());
}

#[test]
fn what_is_sent_stays_within_the_window() {
    let mut left = RangeSet::new();
    left.insert(range(0, 4 * WINDOW_BYTES));
    let mut sender = Sender::new(TRANSACTION, Sum::Crc32c, left, BLOCK_BYTES_MAX);
    let mut out = Vec::new();
    for line in 0..2 {
        sender.join(line, true, Instant::now(), &mut out);
        sender.take(line, Message::Ready, &mut out).unwrap();
    }
    let first = sender.next_block(0).unwrap();
    let blocks: Vec<_> = std::iter::from_fn(|| sender.next_block(1)).collect();
    assert_eq!(blocks.last().unwrap().end, WINDOW_BYTES);
    // Those after the first byte that is missing don't open it.
    for block in &blocks {
        sender
            .take(1, Message::Acknowledge(*block), &mut out)
            .unwrap();
    }
    assert_eq!(sender.next_block(1), None);
    sender.leave(0).unwrap();
    assert_eq!(sender.next_block(1), Some(first));
    sender
        .take(1, Message::Acknowledge(first), &mut out)
        .unwrap();
    assert!(sender.next_block(1).is_some());
}

#[test]
fn a_connection_for_which_all_others_wait_is_given_up() {
    let mut left = RangeSet::new();
    left.insert(range(0, 3 * BLOCK_BYTES_MAX));
    let mut sender = Sender::new(TRANSACTION, Sum::Crc32c, left, BLOCK_BYTES_MAX);
    let (mut out, begun) = (Vec::new(), Instant::now());
    for line in 0..2 {
        sender.join(line, true, Instant::now(), &mut out);
        sender.take(line, Message::Ready, &mut out).unwrap();
    }
    let first = sender.next_block(0).unwrap();
    let second = sender.next_block(1).unwrap();
    // There is more to send, so nobody waits.
    assert_eq!(sender.stuck(begun), None);
    assert_eq!(sender.stuck(begun + 2 * STUCK), None);
    let third = sender.next_block(1).unwrap();
    let begun = begun + 3 * STUCK;
    assert_eq!(sender.stuck(begun), None);
    assert_eq!(sender.next_time(), Some(begun + STUCK));
    for block in [second, third] {
        sender
            .take(1, Message::Acknowledge(block), &mut out)
            .unwrap();
    }
    assert_eq!(sender.stuck(begun + STUCK / 2), None);
    assert_eq!(sender.stuck(begun + STUCK), Some(0));
    sender.leave(0).unwrap();
    assert_eq!(sender.next_block(1), Some(first));
    assert_eq!(sender.stuck(begun + STUCK), None);
    sender
        .take(1, Message::Acknowledge(first), &mut out)
        .unwrap();
    assert_eq!(sender.stuck(begun + 9 * STUCK), None);
}

/// Another connection that is up.
fn open(receiver: &mut Receiver, line: u64) {
    let mut out = Vec::new();
    receiver.join(line, false, Instant::now(), &mut out);
    let said = receiver.take(line, Message::Open, &RangeSet::new(), &mut out);
    said.unwrap();
}

#[test]
fn connections_that_only_break_end_the_transfer() {
    let mut receiver = receiver();
    receiver.leave(0).unwrap();
    let broken = (1..).find(|line| {
        open(&mut receiver, *line);
        receiver.leave(*line).is_err()
    });
    assert_eq!(broken, Some(u64::from(BREAKS_MAX) - 1));
    // What an own one comes to counts as long as none was ever up.
    let (mut sender, mut out) = (
        Sender::new(TRANSACTION, Sum::Crc32c, RangeSet::new(), 1),
        Vec::new(),
    );
    let mut refused = (0..).map(|line| {
        sender.join(line, true, Instant::now(), &mut out);
        sender.leave(line)
    });
    assert_eq!(
        refused.position(|left| left.is_err()),
        Some(BREAKS_MAX as usize - 1)
    );
    let mut sender = Sender::new(TRANSACTION, Sum::Crc32c, RangeSet::new(), 1);
    sender.join(0, true, Instant::now(), &mut out);
    sender.take(0, Message::Ready, &mut out).unwrap();
    for line in 1..1000 {
        sender.join(line, true, Instant::now(), &mut out);
        sender.leave(line).unwrap();
    }
}

#[test]
fn what_breaks_all_connections_at_once_counts_once() {
    let mut receiver = receiver();
    let mut line = 0;
    for event in 1..=BREAKS_MAX {
        let first = line + 1;
        for _ in 0..CONNECTIONS_MAX {
            line += 1;
            open(&mut receiver, line);
        }
        for broken in first..=line {
            let left = receiver.leave(broken);
            assert_eq!(left.is_err(), event == BREAKS_MAX, "{event} {broken}");
        }
    }
}

#[test]
fn strangers_who_say_nothing_keep_nobody_out() {
    let (mut receiver, mut out, begun) = (receiver(), Vec::new(), Instant::now());
    let most = CONNECTIONS_MAX as u64;
    assert_eq!(receiver.silent_until(), None);
    for line in 1..most {
        receiver.join(line, false, begun, &mut out);
        assert_eq!(receiver.surplus(begun), None, "{line}");
    }
    // They may be slow only.
    assert_eq!(receiver.silent_until(), Some(begun + SILENCE));
    assert_eq!(receiver.surplus(begun + SILENCE / 2), None);
    assert_eq!(receiver.surplus(begun + SILENCE), Some(1));
    for line in most..1000 {
        receiver.join(line, false, begun, &mut out);
        let surplus = receiver.surplus(begun).unwrap();
        assert_eq!(surplus, line - most + 1);
        receiver.leave(surplus).unwrap();
        assert_eq!(receiver.surplus(begun), None);
    }
    assert!(receiver.has(0));
}
