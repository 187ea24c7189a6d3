//! The receiving machine under any calls and any frames of a sender, hostile ones included: it
//! never panics, takes no byte twice nor on two channels at once, publishes only what it holds from
//! end to end, and says a bounded amount.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::digest::{BlockHasher, DigestKind, DigestValue, Fragment};
use xdfs_proto::frame::{BlockHeader, Cancel, Eofr, Hole, Offer, Request, Resume, TimeAccount};
use xdfs_proto::receiver::{Disposition, Receiver, ReceiverOutput};
use xdfs_proto::{
    ByteRange, ChannelIndex, Code, Fault, FileId, Frame, Limits, RangeSet, SourceTag,
};

const CHANNELS: usize = 4;
/// Payload is zeros, of at most so many bytes.
const PAYLOAD: usize = 8 << 10;

/// Numbers from the input; zeros once it is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Small numbers of the grid mostly, and any number at times.
    fn offset(&mut self) -> u64 {
        let (how, value) = (self.u8(), u64::from(self.u8()));
        match how % 8 {
            0 => value,
            1 => (value << 56) | u64::from(self.u8()) << 48 | u64::from(self.u8()),
            2 => u64::MAX - value,
            _ => (value % 32) << 10,
        }
    }

    fn range(&mut self) -> ByteRange {
        let (a, b) = (self.offset(), self.offset());
        ByteRange {
            start: a.min(b),
            end: a.max(b),
        }
    }

    fn file(&mut self) -> FileId {
        FileId(u32::from(self.u8() % 6))
    }

    fn channel(&mut self) -> ChannelIndex {
        ChannelIndex(u32::from(self.u8()) % CHANNELS as u32)
    }
}

fn zeros(kind: DigestKind, range: ByteRange) -> Fragment {
    let mut hasher = BlockHasher::new(kind, false, range.start);
    hasher.update(&[0; PAYLOAD][..range.len() as usize]);
    hasher.finish(FileId(1)).1
}

/// The digest of zeros, which an honest sender would name.
fn digest(kind: DigestKind, length: u64) -> DigestValue {
    let mut map = xdfs_proto::digest::FragmentMap::new(kind);
    if length > 0 && length <= 64 << 10 {
        let whole = ByteRange {
            start: 0,
            end: length,
        };
        map.insert_zeros(whole, 1024);
    }
    map.digest(length).unwrap_or(DigestValue::None)
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let kind =
        [DigestKind::None, DigestKind::Crc64Nvme, DigestKind::Blake3][usize::from(input.u8() % 3)];
    let limits = Limits {
        open_files_max: 4,
        resume_ranges_max: 2,
        fragments_max: 64,
        ..Limits::default()
    };
    let mut receiver = Receiver::new(limits);
    let mut arriving: [Option<(BlockHeader, bool)>; CHANNELS] = [None; CHANNELS];
    let mut held: Vec<RangeSet> = vec![RangeSet::new(); 6];
    let mut operations = 0;
    while !input.0.is_empty() {
        operations += 1;
        let what = input.u8() % 14;
        let channel = input.channel();
        let slot = &mut arriving[channel.0 as usize];
        if slot.is_some() && matches!(what, 0..=6) {
            // Payload follows its header at once, whatever the peer wants.
            continue;
        }
        let result = match what {
            0 => {
                let flags = input.u8();
                let offer = Offer {
                    file: input.file(),
                    path: vec![flags & 1; 1],
                    name: Vec::new(),
                    length: (flags & 2 == 0).then(|| input.offset()),
                    tag: SourceTag([1; 16]),
                    mode: None,
                    mtime_ns: None,
                    digest: kind,
                    overwrite: false,
                    resume: Resume::Trust,
                    dry_run: flags & 0x1c == 0x1c,
                    pack: false,
                    sparse: false,
                    relaxed: false,
                    last: None,
                };
                let frame = if flags & 32 == 0 {
                    Frame::Xftsmu(offer)
                } else {
                    Frame::Offer(offer)
                };
                receiver.handle_frame(channel, frame)
            }
            1..=3 => {
                let header = BlockHeader {
                    file: input.file(),
                    check: 0,
                    clear: false,
                    offset: input.offset(),
                    length: match input.u8() {
                        n @ 0..128 => 1024 << (n % 4),
                        n => u32::from(n) * 3,
                    },
                };
                receiver.begin_block(channel, &header).map(|disposition| {
                    let taken = disposition == Disposition::Take(kind);
                    let overlaps = |other: &BlockHeader| {
                        let (a, b) = (other.range(), header.range());
                        other.file == header.file && a.start < b.end && b.start < a.end
                    };
                    if taken {
                        assert!(!held[header.file.0 as usize].overlaps(header.range()));
                        let others = arriving.iter().flatten();
                        assert!(!others.into_iter().any(|(h, taken)| *taken && overlaps(h)));
                    }
                    arriving[channel.0 as usize] = Some((header, taken));
                })
            }
            4 => {
                let mut range = input.range();
                if kind == DigestKind::Blake3 {
                    // It has to hash them, which would take the fuzzer's time.
                    range.end = range.end.min(range.start.saturating_add(64 << 10));
                }
                let file = input.file();
                receiver.handle_frame(channel, Frame::Hole(Hole { file, range }))
            }
            5 => {
                let length = input.offset();
                let frame = Frame::Eofr(Eofr {
                    file: input.file(),
                    length,
                    digest: digest(kind, length),
                    time: TimeAccount::default(),
                });
                receiver.handle_frame(channel, frame)
            }
            6 => {
                let file = input.file();
                receiver.handle_frame(channel, Frame::Cancel(Cancel { file }))
            }
            7 | 8 => {
                if let Some((header, taken)) = slot.take() {
                    let wrong = taken && input.u8() % 8 == 0;
                    let fragment = (taken && !wrong).then(|| zeros(kind, header.range()));
                    if receiver.end_block(channel, &header, fragment, wrong) {
                        let held = &mut held[header.file.0 as usize];
                        assert!(!held.overlaps(header.range()));
                        held.insert(header.range());
                    }
                }
                Ok(())
            }
            9 => {
                let file = input.file();
                let block_size = 1024 << (input.u8() % 3);
                let ranges: Vec<ByteRange> = (0..input.u8() % 5)
                    .map(|_| {
                        let start = u64::from(input.u8() % 32) << 10;
                        let end = start + (1 + u64::from(input.u8() % 4) << 10);
                        ByteRange { start, end }
                    })
                    .collect();
                let journal = ranges.iter().map(|r| zeros(kind, *r)).collect();
                let before = receiver.progress(file).0;
                match receiver.opened(file, Vec::new(), block_size, journal) {
                    Ok(()) if receiver.progress(file).0 > before => {
                        ranges.iter().for_each(|r| held[file.0 as usize].insert(*r));
                    }
                    Ok(()) => {}
                    Err(fault) => receiver.fail(file, fault),
                }
                Ok(())
            }
            10 => {
                receiver.published(
                    input.file(),
                    TimeAccount::default(),
                    xdfs_proto::pack::Failures::default(),
                );
                receiver.recorded(input.file(), input.offset());
                Ok(())
            }
            11 => {
                let fault = Fault::new(Code::NoSpace, "write", "it is full");
                let file = input.file();
                if input.u8() % 2 == 0 {
                    receiver.fail(file, fault);
                } else {
                    receiver.fail(file, fault.remote());
                }
                Ok(())
            }
            12 => {
                if input.u8() % 2 == 0 {
                    receiver.channel_down(channel);
                    *slot = None;
                }
                receiver.channel_up(channel);
                Ok(())
            }
            _ => {
                let file = input.file();
                if !receiver.was_offered(file) && input.u8() % 4 == 0 && file.0 > 0 {
                    receiver.request(Request {
                        file,
                        path: Vec::new(),
                        offset: 0,
                        length: None,
                        digest: kind,
                        pack: None,
                    });
                }
                receiver.flush_acks();
                Ok(())
            }
        };
        if result.is_err() {
            // The session ends with it.
            return;
        }
        let mut said = 0;
        let mut closing = Vec::new();
        while let Some(output) = receiver.poll_output() {
            said += 1;
            match output {
                ReceiverOutput::Hole { file, range, .. } => {
                    let held = &mut held[file.0 as usize];
                    assert!(!held.overlaps(range));
                    held.insert(range);
                }
                ReceiverOutput::Publish { file, length } => {
                    let whole = ByteRange {
                        start: 0,
                        end: length,
                    };
                    assert!(held[file.0 as usize].contains(whole));
                    assert_eq!(held[file.0 as usize].total(), length);
                }
                ReceiverOutput::Failed { file, .. } => {
                    assert!(!receiver.has_file(file));
                    closing.push(file);
                }
                ReceiverOutput::Finished { file, .. } => {
                    assert!(!receiver.has_file(file));
                }
                _ => {}
            }
        }
        closing.into_iter().for_each(|file| receiver.closed(file));
        // A lost channel repeats what is outstanding, of which each operation made a bounded part.
        assert!(said <= 64 + 16 + 4 * operations);
    }
});
