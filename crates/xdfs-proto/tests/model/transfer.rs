//! One upload of a few blocks: its two machines alone, down to the halves of a block's arrival.
//!
//! The instance has two channels, and a bounded number of broken channels, damaged blocks and new
//! channels. A state is both machines, what is queued on every channel in both directions, and what
//! each side has noticed. From every state every event that is possible is tried: a delivery on
//! each channel, the two halves of a block's arrival, each assignment of the next block,
//! acknowledgements, opening, publication, a break of each channel with the loss of what is on it
//! in either or both directions, and each side's noticing of it, which may come any time later.
//!
//! What it shows for the instance: the file can always be finished on both sides unless the session
//! is over, no byte is held twice, nothing is published before all is held, publication comes at
//! most once, and neither machine finds a violation. When the last channel of a side is gone the
//! session is over, which is an end too.
//!
//! What it doesn't: a control frame may travel on any channel; here it takes the first or the last
//! one that its side believes open. Larger instances are behind `--ignored`: they have all four
//! combinations of that and take minutes; the others have two and take seconds.

use std::collections::{BTreeSet, VecDeque};

use xdfs_proto::digest::DigestKind;
use xdfs_proto::frame::{Offer, Resume, TimeAccount};
use xdfs_proto::receiver::{Disposition, Receiver, ReceiverOutput};
use xdfs_proto::sender::{Extent, Sender, SenderOutput};
use xdfs_proto::{ChannelIndex, Frame, Limits, SourceTag};

use crate::{BLOCK, CHANNELS, FILE, NOW, fragment, header};

/// The bounds of an instance.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    blocks: u64,
    /// It is a pack, which doesn't wait for ACCEPT.
    pack: bool,
    breaks: u8,
    joins: u8,
    damages: u8,
    /// Whether control frames take the last open channel instead of the first, by side.
    sender_last: bool,
    receiver_last: bool,
}

#[derive(Clone, Debug)]
enum Packet {
    Frame(Frame),
    Block { offset: u64, damaged: bool },
}

#[derive(Clone, Debug, Default)]
struct Link {
    to_receiver: VecDeque<Packet>,
    to_sender: VecDeque<Frame>,
    /// Offset of the block of which the header was read, whether it is taken, and damaged.
    arriving: Option<(u64, bool, bool)>,
    cut: bool,
    sender_gone: bool,
    receiver_gone: bool,
}

#[derive(Clone, Debug)]
struct World {
    bounds: Bounds,
    sender: Sender,
    receiver: Receiver,
    links: Vec<Link>,
    breaks: u8,
    joins: u8,
    damages: u8,
    opening: bool,
    publishing: bool,
    held: BTreeSet<u64>,
    published: bool,
    sender_done: bool,
    receiver_done: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    ToReceiver(usize),
    EndBlock(usize),
    ToSender(usize),
    Send { on: usize, damaged: bool },
    Acknowledge,
    Open,
    Publish,
    Break { on: usize, keeps: u8 },
    SenderNotices(usize),
    ReceiverNotices(usize),
    Join,
}

impl World {
    fn new(bounds: Bounds) -> Self {
        let mut world = Self {
            bounds,
            sender: Sender::new(Limits::default(), u64::MAX),
            receiver: Receiver::new(Limits::default()),
            links: Vec::new(),
            breaks: bounds.breaks,
            joins: bounds.joins,
            damages: bounds.damages,
            opening: false,
            publishing: false,
            held: BTreeSet::new(),
            published: false,
            sender_done: false,
            receiver_done: false,
        };
        for _ in 0..CHANNELS {
            world.join();
        }
        let offer = Offer {
            file: FILE,
            path: Vec::new(),
            name: Vec::new(),
            length: Some(bounds.blocks * BLOCK),
            tag: SourceTag([u8::from(!bounds.pack); 16]),
            mode: None,
            mtime_ns: None,
            digest: DigestKind::Crc64Nvme,
            overwrite: false,
            resume: Resume::Never,
            dry_run: false,
            pack: bounds.pack,
            sparse: false,
            relaxed: false,
            last: None,
        };
        world.sender.set_block_size_max(BLOCK as u32);
        world.sender.offer(offer, true);
        world.drive();
        world
    }

    fn join(&mut self) {
        let index = ChannelIndex(self.links.len() as u32);
        self.links.push(Link::default());
        self.sender.channel_up(index, NOW);
        self.receiver.channel_up(index);
    }

    /// The channel that a control frame takes; `None` if there is none (then the session is over).
    fn pick(&self, last: bool, up: impl Fn(&Link) -> bool) -> Option<usize> {
        let mut open = (0..self.links.len()).filter(|i| up(&self.links[*i]));
        if last { open.next_back() } else { open.next() }
    }

    fn open(&mut self) {
        self.receiver
            .opened(FILE, Vec::new(), BLOCK as u32, Vec::new())
            .expect("an empty journal");
    }

    fn drive(&mut self) {
        while let Some(output) = self.sender.poll_output() {
            match output {
                SenderOutput::Transmit(frame) => {
                    if let Some(on) = self.pick(self.bounds.sender_last, |l| !l.sender_gone) {
                        self.links[on].put(frame);
                    }
                }
                SenderOutput::TransmitOn(index, frame) => self.links[index.0 as usize].put(frame),
                SenderOutput::Finished { .. } => {
                    assert!(self.published && !self.sender_done);
                    self.sender_done = true;
                }
                SenderOutput::Accepted { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        while let Some(output) = self.receiver.poll_output() {
            match output {
                ReceiverOutput::Transmit(frame) => {
                    let on = self.pick(self.bounds.receiver_last, |l| !l.receiver_gone);
                    let link = on.map(|on| &mut self.links[on]);
                    if let Some(link) = link.filter(|l| !l.cut) {
                        link.to_sender.push_back(frame);
                    }
                }
                ReceiverOutput::TransmitOn(index, frame) => {
                    let link = &mut self.links[index.0 as usize];
                    if !link.receiver_gone && !link.cut {
                        link.to_sender.push_back(frame);
                    }
                }
                ReceiverOutput::Open(_) if self.bounds.pack => self.open(),
                ReceiverOutput::Open(_) => self.opening = true,
                ReceiverOutput::Publish { .. } => {
                    assert_eq!(
                        self.held.len() as u64,
                        self.bounds.blocks,
                        "not all is held"
                    );
                    self.publishing = true;
                }
                ReceiverOutput::Finished { .. } => {
                    assert!(self.published && !self.receiver_done);
                    self.receiver_done = true;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

impl crate::World for World {
    type Event = Event;

    /// The session is over for a side that has no channel, and with that for both.
    fn is_over(&self) -> bool {
        let done = self.sender_done && self.receiver_done;
        done || self.links.iter().all(|l| l.sender_gone)
            || self.links.iter().all(|l| l.receiver_gone)
    }

    fn is_finished(&self) -> bool {
        self.sender_done && self.receiver_done
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (i, link) in self.links.iter().enumerate() {
            // Asking takes the extent, so it is asked of a copy.
            let index = ChannelIndex(i as u32);
            let has_extent = take(&mut self.sender.clone(), index).is_some();
            if link.arriving.is_some() && !link.receiver_gone {
                events.push(Event::EndBlock(i));
            } else if !link.to_receiver.is_empty() && !link.receiver_gone {
                events.push(Event::ToReceiver(i));
            }
            if !link.to_sender.is_empty() && !link.sender_gone {
                events.push(Event::ToSender(i));
            }
            if has_extent && !link.sender_gone {
                events.push(Event::Send {
                    on: i,
                    damaged: false,
                });
                if self.damages > 0 && !link.cut {
                    events.push(Event::Send {
                        on: i,
                        damaged: true,
                    });
                }
            }
            if self.breaks > 0 && !link.cut {
                events.extend((0..3).map(|keeps| Event::Break { on: i, keeps }));
            }
            if link.cut && !link.sender_gone {
                events.push(Event::SenderNotices(i));
            }
            if link.cut && !link.receiver_gone {
                events.push(Event::ReceiverNotices(i));
            }
        }
        if self.receiver.has_acks() {
            events.push(Event::Acknowledge);
        }
        if self.opening {
            events.push(Event::Open);
        }
        if self.publishing {
            events.push(Event::Publish);
        }
        if self.joins > 0 && self.links.iter().any(|l| l.sender_gone) {
            events.push(Event::Join);
        }
        events
    }

    fn perform(&mut self, event: Event) {
        match event {
            Event::ToReceiver(i) => {
                let index = ChannelIndex(i as u32);
                match self.links[i].to_receiver.pop_front() {
                    Some(Packet::Frame(frame)) => self
                        .receiver
                        .handle_frame(index, frame)
                        .expect("no violation"),
                    Some(Packet::Block { offset, damaged }) => {
                        let taken = self
                            .receiver
                            .begin_block(index, &header(offset))
                            .expect("no violation");
                        let taken = taken != Disposition::Discard;
                        self.links[i].arriving = Some((offset, taken, damaged));
                    }
                    None => {}
                }
            }
            Event::EndBlock(i) => {
                let Some((offset, taken, damaged)) = self.links[i].arriving.take() else {
                    return;
                };
                let fragment = (taken && !damaged).then(|| fragment(offset));
                let index = ChannelIndex(i as u32);
                let wrong = taken && damaged;
                if self
                    .receiver
                    .end_block(index, &header(offset), fragment, wrong)
                {
                    assert!(self.held.insert(offset), "{offset} is held twice");
                }
            }
            Event::ToSender(i) => {
                if let Some(frame) = self.links[i].to_sender.pop_front() {
                    self.sender
                        .handle_frame(ChannelIndex(i as u32), frame, NOW)
                        .expect("no violation");
                }
            }
            Event::Send { on, damaged } => {
                let index = ChannelIndex(on as u32);
                let (offer, extent) = take(&mut self.sender, index).expect("it was asked");
                if let Some(offer) = offer {
                    self.links[on].put(offer);
                }
                let offset = extent.range.start;
                if !extent.is_resend {
                    self.sender.extent_read(FILE, fragment(offset));
                }
                self.sender.assign(index, extent, NOW);
                self.damages -= u8::from(damaged);
                if !self.links[on].cut {
                    self.links[on]
                        .to_receiver
                        .push_back(Packet::Block { offset, damaged });
                }
            }
            Event::Acknowledge => self.receiver.flush_acks(),
            Event::Open => {
                self.opening = false;
                self.open();
            }
            Event::Publish => {
                self.publishing = false;
                assert!(!self.published, "published twice");
                assert_eq!(self.held.len() as u64, self.bounds.blocks);
                self.published = true;
                self.receiver.published(
                    FILE,
                    TimeAccount::default(),
                    xdfs_proto::pack::Failures::default(),
                );
            }
            Event::Break { on, keeps } => {
                self.breaks -= 1;
                let link = &mut self.links[on];
                link.cut = true;
                // A side that gave up may have sent what still arrives.
                if keeps != 1 {
                    link.to_receiver.clear();
                }
                if keeps != 2 {
                    link.to_sender.clear();
                }
            }
            Event::SenderNotices(i) => {
                self.links[i].sender_gone = true;
                self.links[i].to_sender.clear();
                self.sender.channel_down(ChannelIndex(i as u32));
            }
            Event::ReceiverNotices(i) => {
                self.links[i].receiver_gone = true;
                self.links[i].to_receiver.clear();
                self.links[i].arriving = None;
                self.receiver.channel_down(ChannelIndex(i as u32));
            }
            Event::Join => {
                self.joins -= 1;
                self.join();
            }
        }
        self.drive();
    }
}

/// The next extent for a channel, after the offer of its pack where there is one.
pub(crate) fn take(sender: &mut Sender, index: ChannelIndex) -> Option<(Option<Frame>, Extent)> {
    if let Some(extent) = sender.next_extent(index) {
        return Some((None, extent));
    }
    let offer = sender.next_pack(index)?;
    let extent = sender.next_extent(index).expect("a pack has bytes");
    Some((Some(offer), extent))
}

impl Link {
    /// What is sent on a channel that is cut is lost.
    fn put(&mut self, frame: Frame) {
        if !self.cut {
            self.to_receiver.push_back(Packet::Frame(frame));
        }
    }
}

fn explore_with(policies: &[(bool, bool)], blocks: u64, breaks: u8, joins: u8, damages: u8) {
    explore_kind(false, policies, blocks, breaks, joins, damages);
}

fn explore_pack(policies: &[(bool, bool)], blocks: u64, breaks: u8, joins: u8, damages: u8) {
    explore_kind(true, policies, blocks, breaks, joins, damages);
}

fn explore_kind(
    pack: bool,
    policies: &[(bool, bool)],
    blocks: u64,
    breaks: u8,
    joins: u8,
    damages: u8,
) {
    let mut states = 0;
    for &(sender_last, receiver_last) in policies {
        let (seen, finished) = crate::explore(World::new(Bounds {
            blocks,
            pack,
            breaks,
            joins,
            damages,
            sender_last,
            receiver_last,
        }));
        assert!(finished > 0);
        states += seen;
    }
    let what = if pack { "a pack of " } else { "" };
    println!(
        "{what}{blocks} blocks, {breaks} breaks, {joins} joins, {damages} damages: {states} states"
    );
}

/// Control frames of both sides on one channel, or on two.
const TWO: &[(bool, bool)] = &[(false, false), (false, true)];
const FOUR: &[(bool, bool)] = &[(false, false), (true, false), (false, true), (true, true)];

#[test]
fn three_blocks_and_no_break() {
    explore_with(FOUR, 3, 0, 0, 0);
}

#[test]
fn three_blocks_and_one_break() {
    explore_with(&TWO[1..], 3, 1, 0, 0);
}

#[test]
fn two_blocks_and_one_damaged_block() {
    explore_with(FOUR, 2, 0, 0, 1);
}

#[test]
fn one_block_two_breaks_and_one_join() {
    explore_with(&TWO[1..], 1, 2, 1, 0);
}

#[test]
fn one_block_one_break_and_one_damaged_block() {
    explore_with(TWO, 1, 1, 0, 1);
}

#[test]
fn a_pack_of_two_blocks_and_no_break() {
    explore_pack(FOUR, 2, 0, 0, 0);
}

#[test]
fn a_pack_of_two_blocks_and_one_break() {
    explore_pack(FOUR, 2, 1, 0, 0);
}

#[test]
fn a_pack_of_one_block_two_breaks_and_one_join() {
    explore_pack(&TWO[1..], 1, 2, 1, 0);
}

#[test]
fn a_pack_of_one_block_one_break_and_one_damaged_block() {
    explore_pack(FOUR, 1, 1, 0, 1);
}

#[test]
#[ignore = "takes minutes"]
fn a_pack_two_breaks_and_one_join() {
    explore_pack(FOUR, 1, 2, 1, 0);
    explore_pack(FOUR, 2, 2, 1, 0);
}

#[test]
#[ignore = "takes minutes"]
fn a_pack_of_two_blocks_one_break_and_one_damaged_block() {
    explore_pack(FOUR, 2, 1, 0, 1);
}

#[test]
#[ignore = "takes minutes"]
fn three_blocks_and_two_breaks() {
    explore_with(FOUR, 3, 2, 0, 0);
}

#[test]
#[ignore = "takes minutes"]
fn two_blocks_two_breaks_and_one_join() {
    explore_with(TWO, 2, 2, 1, 0);
}

#[test]
#[ignore = "takes minutes"]
fn two_blocks_one_break_and_one_damaged_block() {
    explore_with(FOUR, 2, 1, 0, 1);
}
