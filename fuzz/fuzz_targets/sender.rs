//! The sending machine under any calls and any frames of a receiver, hostile ones included: it
//! never panics, keeps the bound of what is outstanding, sends nothing that the receiver said is
//! durable, and says a bounded amount.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use xdfs_proto::digest::{DigestKind, DigestValue, Fragment, FragmentState};
use xdfs_proto::frame::{Accept, Ack, Cancel, Offer, Published, Repeat, Resume, TimeAccount};
use xdfs_proto::sender::{Sender, SenderOutput};
use xdfs_proto::{
    ByteRange, ChannelIndex, Code, Fault, FileId, Frame, Limits, RangeSet, SourceTag,
};

const IN_FLIGHT: u64 = 1 << 20;
const BLOCK_SIZE_MAX: u32 = 1 << 16;

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
        ChannelIndex(u32::from(self.u8() % 4))
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let kind = [DigestKind::None, DigestKind::Crc64Nvme][usize::from(input.u8() % 2)];
    let state = |n: u8| match kind {
        DigestKind::None => FragmentState::None,
        _ => FragmentState::Crc64Nvme(u64::from(n)),
    };
    let mut sender = Sender::new(Limits::default(), IN_FLIGHT);
    sender.set_block_size_max(BLOCK_SIZE_MAX);
    let mut now = Duration::ZERO;
    let mut largest = 0;
    let mut durable: Vec<(FileId, RangeSet)> = Vec::new();
    let mut packs = Vec::new();
    let mut offered = 0;
    while !input.0.is_empty() {
        let result = match input.u8() % 14 {
            0 => {
                let file = input.file();
                let flags = input.u8();
                if sender.was_offered(file) {
                    continue;
                }
                offered += 1;
                // As an offer that can be read: it has a length, and isn't resumed.
                let pack = flags & 0x81 == 0x80 && flags & 0x38 != 0x38;
                if pack {
                    packs.push(file);
                }
                let offer = Offer {
                    file,
                    path: Vec::new(),
                    name: Vec::new(),
                    length: (flags & 1 == 0).then(|| input.offset().max(u64::from(pack))),
                    tag: SourceTag([flags & 2; 16]),
                    mode: None,
                    mtime_ns: None,
                    digest: kind,
                    overwrite: false,
                    resume: if flags & 4 == 0 && !pack {
                        Resume::Trust
                    } else {
                        Resume::Never
                    },
                    dry_run: flags & 0x38 == 0x38,
                    pack,
                    sparse: false,
                    relaxed: false,
                    last: None,
                };
                sender.offer(offer, flags & 64 == 0);
                Ok(())
            }
            1 => {
                let file = input.file();
                let block_size = match input.u8() {
                    n @ 0..200 => 1024 << (n % 5),
                    n => u32::from(n) * 77,
                };
                let ranges: Vec<ByteRange> = (0..input.u8() % 4).map(|_| input.range()).collect();
                let accept = Accept {
                    file,
                    path: Vec::new(),
                    block_size,
                    durable: ranges
                        .iter()
                        .map(|&range| Fragment {
                            range,
                            state: state(block_size as u8),
                        })
                        .collect(),
                };
                let waits = sender.has_file(file) && sender.shape(file).is_none();
                let result = sender.handle_frame(input.channel(), Frame::Accept(accept), now);
                if waits && !packs.contains(&file) && result.is_ok() {
                    let mut set = RangeSet::new();
                    ranges.iter().for_each(|r| set.insert(*r));
                    durable.push((file, set));
                }
                result
            }
            2 => {
                let data_frames = u64::from(input.u8() % 16);
                sender.handle_frame(input.channel(), Frame::Ack(Ack { data_frames }), now)
            }
            3 => {
                let (file, range) = (input.file(), input.range());
                sender.handle_frame(input.channel(), Frame::Repeat(Repeat { file, range }), now)
            }
            4 => {
                let frame = Frame::Published(Published {
                    file: input.file(),
                    length: input.offset(),
                    digest: DigestValue::None,
                    time: TimeAccount::default(),
                    failures: xdfs_proto::pack::Failures::default(),
                });
                sender.handle_frame(input.channel(), frame, now)
            }
            5 => {
                let file = input.file();
                sender.handle_frame(input.channel(), Frame::Cancel(Cancel { file }), now)
            }
            6 => {
                let fault = Fault::new(Code::Io, "read", "it failed");
                let file = input.file();
                match input.u8() % 3 {
                    0 => sender.fail(file, fault),
                    1 => sender.fail(file, fault.remote()),
                    _ if !sender.was_offered(file) => sender.refuse(file, &fault),
                    _ => {}
                }
                Ok(())
            }
            7 | 8 => {
                let channel = input.channel();
                let mut next = sender.next_extent(channel);
                if next.is_none() && sender.next_pack(channel).is_some() {
                    next = sender.next_extent(channel);
                    assert!(next.is_some(), "a pack has bytes: {sender:?}");
                }
                if let Some(mut extent) = next {
                    let (file, how) = (extent.file, input.u8());
                    let (grid, length) = sender.shape(file).expect("it was accepted");
                    assert!(!extent.range.is_empty() && extent.range.len() <= grid);
                    assert!(
                        length.is_none_or(|n| extent.range.end <= n),
                        "{extent:?} of {length:?}: {sender:?}"
                    );
                    for (of, ranges) in &durable {
                        assert!(*of != file || !ranges.overlaps(extent.range));
                    }
                    match how % 8 {
                        0 => sender.put_back(extent),
                        1 if length.is_none() && !extent.is_resend => {
                            sender.source_ended(file, extent.range.start);
                        }
                        2 if !extent.is_resend && length.is_some() => {
                            extent.range = sender.widen_hole(extent, input.offset());
                            sender.hole_read(file, extent.range);
                            largest = extent.range.len().max(largest);
                            sender.assign(channel, extent, now);
                        }
                        _ => {
                            if how % 8 == 3 && length.is_none() && !extent.is_resend {
                                extent.range.end -= extent.range.len() / 2;
                            }
                            let fragment = Fragment {
                                range: extent.range,
                                state: state(how),
                            };
                            if !extent.is_resend {
                                sender.extent_read(file, fragment);
                            }
                            largest = extent.range.len().max(largest);
                            sender.assign(channel, extent, now);
                            if how % 8 == 3 && length.is_none() && !extent.is_resend {
                                sender.source_ended(file, extent.range.end);
                            }
                        }
                    }
                }
                Ok(())
            }
            9 => {
                let file = input.file();
                sender.source_ended(file, sender.cursor(file));
                Ok(())
            }
            10 | 11 => {
                sender.channel_up(input.channel(), now);
                Ok(())
            }
            12 => {
                sender.channel_down(input.channel());
                Ok(())
            }
            _ => {
                now += Duration::from_secs(u64::from(input.u8() % 16));
                if sender.poll_timeout().is_some_and(|at| at <= now) {
                    sender.handle_timeout(now);
                }
                Ok(())
            }
        };
        if result.is_err() {
            // The session ends with it.
            return;
        }
        assert!(sender.in_flight() <= IN_FLIGHT + largest);
        let mut said = 0;
        while let Some(output) = sender.poll_output() {
            said += 1;
            if let SenderOutput::Finished { file, .. } | SenderOutput::Failed { file, .. } = output
            {
                assert!(!sender.has_file(file));
            }
        }
        // A lost channel repeats a frame of each open file and the farewells.
        assert!(said <= offered + 64 + 4);
    }
});
