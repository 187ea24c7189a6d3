//! Several files in one session: journals that aren't empty, holes, lengths that nobody knows, and
//! everything that may go wrong with them.
//!
//! The two machines move the files of an instance, up or down. Channels break, leave nothing behind
//! and are replaced; payload and headers of blocks are damaged; either side cancels a file in
//! whatever state it is; and deadlines pass when nothing forces them to: one side says again what
//! has no answer, a channel stalls, the session is given up as idle. Little is kept of files that
//! are over where the instance says so. Blocks arrive whole here; [`crate::transfer`] has their
//! halves.
//!
//! What it shows for the instances: no byte is held twice and nothing that was durable is sent; a
//! file is published once, after all of it is held; neither side reports a failure of a file that
//! is published, unless the sender was told that nothing is known of it any more; no machine
//! finds a violation; and from every state the session can come to an end with nothing left open.
//!
//! Larger instances are behind `--ignored`:
//! `cargo test -p xdfs-proto --release --test model files -- --ignored`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use xdfs_proto::digest::{BlockHasher, DigestKind, Fragment};
use xdfs_proto::frame::{BlockHeader, Exception, Hole, Offer, Request, Resume, Scope, TimeAccount};
use xdfs_proto::pack::Failures;
use xdfs_proto::receiver::{Disposition, Receiver, ReceiverOutput};
use xdfs_proto::sender::{Sender, SenderOutput};
use xdfs_proto::{ChannelIndex, Code, Fault, FileId, Frame, Limits, SourceTag};

use crate::{BLOCK, CHANNELS, NOW};

/// A source, by its blocks: as many, and bits for those that are holes, and those that are durable
/// at the receiver from an earlier attempt.
#[derive(Clone, Copy, Debug)]
struct Source {
    blocks: u64,
    knows_length: bool,
    holes: u8,
    durable: u8,
}

const PLAIN: Source = Source {
    blocks: 1,
    knows_length: true,
    holes: 0,
    durable: 0,
};

/// The bounds of an instance.
#[derive(Clone, Copy)]
struct Bounds {
    download: bool,
    files: [Source; 2],
    count: usize,
    /// Files that are over of which the final answer is kept, and numbers that are told apart.
    kept: usize,
    numbers: u32,
    breaks: u8,
    joins: u8,
    /// Blocks whose payload is damaged, and whose header is.
    payloads: u8,
    headers: u8,
    cancels: u8,
    stalls: u8,
    /// Whether the session may be given up as idle.
    idles: bool,
    /// Whether control frames take the last open channel instead of the first, by side.
    last: [bool; 2],
}

/// Only what changes, as it tells states apart.
impl std::fmt::Debug for Bounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        [
            self.breaks,
            self.joins,
            self.payloads,
            self.headers,
            self.cancels,
            self.stalls,
        ]
        .fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    None,
    Payload,
    Header,
}

#[derive(Clone, Debug)]
enum Packet {
    Frame(Frame),
    Block(FileId, u64, Damage),
}

impl Packet {
    fn name(&self) -> String {
        match self {
            Self::Frame(frame) => frame.name().into(),
            Self::Block(_, _, Damage::None) => "BLOCK".into(),
            Self::Block(_, _, Damage::Payload) => "BLOCK (wrong check value)".into(),
            Self::Block(_, _, Damage::Header) => "BLOCK (damaged header)".into(),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Link {
    to_receiver: VecDeque<Packet>,
    to_sender: VecDeque<Frame>,
    cut: bool,
    sender_gone: bool,
    receiver_gone: bool,
}

/// How a file ended on a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    Failed,
    /// It failed because the other side knows nothing of it any more.
    Unknown,
}

#[derive(Clone, Debug, Default)]
struct File {
    started: bool,
    opening: bool,
    publishing: bool,
    closing: bool,
    published: bool,
    cancelled: bool,
    held: BTreeSet<u64>,
    at_sender: Option<Fate>,
    at_receiver: Option<Fate>,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    bounds: Bounds,
    sender: Sender,
    receiver: Receiver,
    links: Vec<Link>,
    files: BTreeMap<FileId, File>,
    /// The session was given up.
    idle: bool,
    now: Duration,
    said: Said,
}

/// Names of the frames that sender and receiver have sent in the last step. They tell no states
/// apart.
#[derive(Clone, Default)]
pub(crate) struct Said(pub(crate) [Vec<String>; 2]);

impl std::fmt::Debug for Said {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Start(FileId),
    Send(usize, Damage),
    ToReceiver(usize),
    ToSender(usize),
    Acknowledge,
    Open(FileId),
    Publish(FileId),
    Close(FileId),
    SenderCancels(FileId),
    ReceiverCancels(FileId),
    Break { on: usize, keeps: u8 },
    SenderNotices(usize),
    ReceiverNotices(usize),
    Join,
    Ask,
    Stall,
    Idle,
}

impl World {
    fn new(bounds: Bounds) -> Self {
        let limits = Limits {
            ended_files_kept: bounds.kept,
            file_numbers_kept: bounds.numbers,
            ..Limits::default()
        };
        let numbers = (1..=bounds.count as u32).map(FileId);
        let mut world = Self {
            sender: Sender::new(limits.clone(), u64::MAX),
            receiver: Receiver::new(limits),
            links: Vec::new(),
            files: numbers.map(|id| (id, File::default())).collect(),
            idle: false,
            now: NOW,
            said: Said::default(),
            bounds,
        };
        world.sender.set_block_size_max(BLOCK as u32);
        for _ in 0..CHANNELS {
            world.join();
        }
        world
    }

    fn source(&self, id: FileId) -> Source {
        self.bounds.files[id.0 as usize - 1]
    }

    fn join(&mut self) {
        let index = ChannelIndex(self.links.len() as u32);
        self.links.push(Link::default());
        self.sender.channel_up(index, self.now);
        self.receiver.channel_up(index);
    }

    fn offer(&self, id: FileId) -> Offer {
        let source = self.source(id);
        Offer {
            file: id,
            path: Vec::new(),
            name: Vec::new(),
            length: source.knows_length.then_some(source.blocks * BLOCK),
            tag: SourceTag([1; 16]),
            mode: None,
            mtime_ns: None,
            digest: DigestKind::Crc64Nvme,
            overwrite: false,
            resume: Resume::Trust,
            dry_run: false,
            pack: false,
            sparse: false,
            relaxed: false,
            last: None,
        }
    }

    fn start(&mut self, id: FileId) {
        self.file(id).started = true;
        if self.bounds.download {
            self.receiver.request(Request {
                file: id,
                path: Vec::new(),
                offset: 0,
                length: None,
                digest: DigestKind::Crc64Nvme,
                pack: None,
            });
        } else {
            self.sender.offer(self.offer(id), true);
        }
    }

    fn file(&mut self, id: FileId) -> &mut File {
        self.files.get_mut(&id).expect("a file of the instance")
    }

    /// Sends what a channel may carry next.
    fn send(&mut self, on: usize, damage: Damage) {
        let index = ChannelIndex(on as u32);
        let mut extent = self.sender.next_extent(index).expect("it was asked");
        let (id, start) = (extent.file, extent.range.start);
        let (source, block) = (self.source(id), start / BLOCK);
        if block >= source.blocks {
            self.sender.source_ended(id, start);
            return;
        }
        assert!(source.durable >> block & 1 == 0, "durable, and sent");
        let is_hole = |block: u64| block < source.blocks && source.holes >> block & 1 == 1;
        if is_hole(block) && !extent.is_resend {
            let end = (block..).find(|b| !is_hole(*b)).expect("an end");
            extent.range = self.sender.widen_hole(extent, end * BLOCK);
            self.sender.hole_read(id, extent.range);
            self.sender.assign(index, extent, self.now);
            let range = extent.range;
            return self.put(on, Packet::Frame(Frame::Hole(Hole { file: id, range })));
        }
        if !extent.is_resend {
            self.sender.extent_read(id, fragment(start));
        }
        self.sender.assign(index, extent, self.now);
        self.bounds.payloads -= u8::from(damage == Damage::Payload);
        self.bounds.headers -= u8::from(damage == Damage::Header);
        self.put(on, Packet::Block(id, start, damage));
    }

    fn put(&mut self, on: usize, packet: Packet) {
        self.said.0[0].push(packet.name());
        let link = &mut self.links[on];
        if !link.cut && !link.receiver_gone {
            link.to_receiver.push_back(packet);
        }
    }

    fn receive(&mut self, on: usize) {
        let index = ChannelIndex(on as u32);
        match self.links[on].to_receiver.pop_front() {
            // Its header shows it, so that nothing of it is believed.
            Some(Packet::Block(_, _, Damage::Header)) => {
                self.links[on].cut = true;
                self.receiver_loses(on);
            }
            Some(Packet::Block(id, offset, damage)) => {
                let header = BlockHeader {
                    file: id,
                    check: 0,
                    clear: false,
                    offset,
                    length: BLOCK as u32,
                };
                let taken = self.receiver.begin_block(index, &header);
                let taken = taken.expect("no violation") != Disposition::Discard;
                let wrong = taken && damage == Damage::Payload;
                let fragment = (taken && !wrong).then(|| fragment(offset));
                if self.receiver.end_block(index, &header, fragment, wrong) {
                    self.hold(id, offset / BLOCK);
                }
            }
            Some(Packet::Frame(Frame::Exception(Exception {
                scope: Scope::File(id),
                fault,
            }))) => self.receiver.withdraw(id, fault.remote()),
            Some(Packet::Frame(frame)) => {
                let taken = self.receiver.handle_frame(index, frame);
                taken.expect("no violation");
            }
            None => {}
        }
    }

    fn hold(&mut self, id: FileId, block: u64) {
        let held = &mut self.file(id).held;
        assert!(held.insert(block), "block {block} of {id} is held twice");
    }

    fn answer(&mut self, on: usize) {
        match self.links[on].to_sender.pop_front() {
            Some(Frame::Exception(Exception {
                scope: Scope::File(id),
                fault,
            })) => self.sender.fail(id, fault.remote()),
            Some(Frame::Xftsm(request)) => {
                if self.sender.was_offered(request.file) {
                    self.sender.handle_repeated_request(request.file);
                } else {
                    self.sender.offer(self.offer(request.file), false);
                }
            }
            Some(frame) => {
                let index = ChannelIndex(on as u32);
                let taken = self.sender.handle_frame(index, frame, self.now);
                taken.expect("no violation");
            }
            None => {}
        }
    }

    fn open(&mut self, id: FileId) {
        let source = self.source(id);
        let durable = (0..source.blocks).filter(|b| source.durable >> b & 1 == 1);
        let durable: Vec<u64> = durable.collect();
        let file = self.file(id);
        file.opening = false;
        file.held.extend(&durable);
        let fragments = durable.iter().map(|b| fragment(b * BLOCK)).collect();
        self.receiver
            .opened(id, Vec::new(), BLOCK as u32, fragments)
            .expect("a sound journal");
    }

    fn publish(&mut self, id: FileId) {
        let blocks = self.source(id).blocks;
        let file = self.file(id);
        file.publishing = false;
        assert!(!file.published, "{id} is published twice");
        assert_eq!(file.held.len() as u64, blocks, "not all of {id} is held");
        file.published = true;
        self.receiver
            .published(id, TimeAccount::default(), Failures::default());
    }

    fn sender_loses(&mut self, on: usize) {
        self.links[on].sender_gone = true;
        self.links[on].to_sender.clear();
        self.sender.channel_down(ChannelIndex(on as u32));
    }

    fn receiver_loses(&mut self, on: usize) {
        self.links[on].receiver_gone = true;
        self.links[on].to_receiver.clear();
        self.receiver.channel_down(ChannelIndex(on as u32));
    }

    fn pick(&self, last: bool, up: impl Fn(&Link) -> bool) -> Option<usize> {
        let mut open = (0..self.links.len()).filter(|i| up(&self.links[*i]));
        if last { open.next_back() } else { open.next() }
    }

    fn answer_on(&mut self, on: usize, frame: Frame) {
        self.said.0[1].push(frame.name().into());
        let link = &mut self.links[on];
        if !link.cut && !link.receiver_gone && !link.sender_gone {
            link.to_sender.push_back(frame);
        }
    }

    fn drive(&mut self) {
        while let Some(output) = self.sender.poll_output() {
            match output {
                SenderOutput::Transmit(frame) => {
                    if let Some(on) = self.pick(self.bounds.last[0], |l| !l.sender_gone) {
                        self.put(on, Packet::Frame(frame));
                    }
                }
                SenderOutput::TransmitOn(index, frame) => {
                    self.put(index.0 as usize, Packet::Frame(frame));
                }
                SenderOutput::CloseChannel(index) => {
                    self.links[index.0 as usize].cut = true;
                    self.sender_loses(index.0 as usize);
                }
                SenderOutput::Finished { file, .. } => {
                    assert!(self.file(file).published, "{file} isn't published");
                    self.ends_at_sender(file, Fate::Done);
                }
                SenderOutput::Failed { file, fault } => {
                    self.ends_at_sender(file, fate(&fault));
                }
                SenderOutput::Accepted { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        while let Some(output) = self.receiver.poll_output() {
            match output {
                ReceiverOutput::Transmit(frame) => {
                    if let Some(on) = self.pick(self.bounds.last[1], |l| !l.receiver_gone) {
                        self.answer_on(on, frame);
                    }
                }
                ReceiverOutput::TransmitOn(index, frame) => {
                    self.answer_on(index.0 as usize, frame);
                }
                ReceiverOutput::Open(offer) => self.file(offer.file).opening = true,
                ReceiverOutput::Publish { file, .. } => self.file(file).publishing = true,
                ReceiverOutput::Hole { file, range, .. } => {
                    for start in (range.start..range.end).step_by(BLOCK as usize) {
                        self.hold(file, start / BLOCK);
                    }
                }
                ReceiverOutput::Finished { file, .. } => {
                    assert!(self.file(file).published, "{file} isn't published");
                    self.ends_at_receiver(file, Fate::Done);
                }
                ReceiverOutput::Failed { file, fault } => {
                    let is_closing = self.receiver.state(file).is_some();
                    self.file(file).closing = is_closing;
                    self.ends_at_receiver(file, fate(&fault));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn ends_at_sender(&mut self, id: FileId, fate: Fate) {
        let file = self.file(id);
        assert_eq!(file.at_sender.replace(fate), None, "{id} ends twice");
        let reason = fate != Fate::Failed || file.cancelled;
        assert!(reason, "{id} fails without a reason");
    }

    fn ends_at_receiver(&mut self, id: FileId, fate: Fate) {
        let file = self.file(id);
        file.opening = false;
        assert_eq!(file.at_receiver.replace(fate), None, "{id} ends twice");
        assert!(fate == Fate::Done || !file.published, "{id} is published");
        let reason = fate != Fate::Failed || file.cancelled;
        assert!(reason, "{id} fails without a reason");
    }

    /// Nothing is on its way, and nobody works.
    fn is_quiet(&self) -> bool {
        let is_empty = |l: &Link| l.to_receiver.is_empty() && l.to_sender.is_empty();
        let idles = |f: &File| !f.opening && !f.publishing && !f.closing;
        self.links.iter().all(is_empty)
            && self.files.values().all(idles)
            && !self.receiver.has_acks()
    }

    fn is_done(&self) -> bool {
        let all = self.files.values().all(|f| f.started);
        all && self.is_quiet() && self.sender.is_idle() && self.receiver.is_idle()
    }

    /// Where the first file stands at the sender and at the receiver, and what they have just sent.
    pub(crate) fn stands(&self) -> ([String; 2], &Said) {
        let id = FileId(1);
        let file = &self.files[&id];
        let named = |fate: Option<Fate>, state: Option<String>| match (fate, state) {
            (Some(Fate::Done), _) => "Done".into(),
            (_, Some(state)) => state,
            (Some(_), None) => "Failed".into(),
            (None, None) => "[*]".into(),
        };
        let sender = self.sender.state(id).map(|s| format!("{s:?}"));
        let receiver = self.receiver.state(id).map(|s| format!("{s:?}"));
        let states = [
            named(file.at_sender, sender),
            named(file.at_receiver, receiver),
        ];
        (states, &self.said)
    }

    /// What an event is to the sender, and to the receiver; `None` if it is nothing.
    pub(crate) fn input(&self, event: Event) -> [Option<String>; 2] {
        let own = |text: &str| Some(text.to_owned());
        let starts = |side: bool| (side == self.bounds.download).then(|| "start".to_owned());
        match event {
            Event::Start(_) => [starts(false), starts(true)],
            Event::Send(..) => [own("block"), None],
            Event::ToReceiver(on) => {
                let name = self.links[on].to_receiver.front().map(Packet::name);
                [None, name.map(|name| format!("?{name}"))]
            }
            Event::ToSender(on) => {
                let name = self.links[on].to_sender.front().map(Frame::name);
                [name.map(|name| format!("?{name}")), None]
            }
            Event::Open(_) => [None, own("opened")],
            Event::Publish(_) => [None, own("named")],
            Event::Close(_) => [None, own("closed")],
            Event::SenderCancels(_) => [own("cancel"), None],
            Event::ReceiverCancels(_) => [None, own("cancel")],
            Event::SenderNotices(_) => [own("channel lost"), None],
            Event::ReceiverNotices(_) => [None, own("channel lost")],
            Event::Ask => [own("no answer"), own("no answer")],
            Event::Stall => [own("stall"), None],
            Event::Acknowledge | Event::Break { .. } | Event::Join | Event::Idle => [None, None],
        }
    }

    fn is_lost(&self) -> bool {
        self.idle
            || self.links.iter().all(|l| l.sender_gone)
            || self.links.iter().all(|l| l.receiver_gone)
    }
}

impl crate::World for World {
    type Event = Event;

    fn is_over(&self) -> bool {
        let over = self.is_done() || self.is_lost();
        for (id, file) in self.files.iter().filter(|_| over) {
            let failed = file.at_sender == Some(Fate::Failed);
            assert!(!(failed && file.published), "{id} is published and failed");
        }
        over
    }

    fn is_finished(&self) -> bool {
        self.is_done()
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (on, link) in self.links.iter().enumerate() {
            if !link.to_receiver.is_empty() && !link.receiver_gone {
                events.push(Event::ToReceiver(on));
            }
            if !link.to_sender.is_empty() && !link.sender_gone {
                events.push(Event::ToSender(on));
            }
            // Asking takes the extent, so it is asked of a copy.
            let index = ChannelIndex(on as u32);
            if !link.sender_gone && self.sender.clone().next_extent(index).is_some() {
                events.push(Event::Send(on, Damage::None));
                if self.bounds.payloads > 0 && !link.cut {
                    events.push(Event::Send(on, Damage::Payload));
                }
                if self.bounds.headers > 0 && !link.cut {
                    events.push(Event::Send(on, Damage::Header));
                }
            }
            if self.bounds.breaks > 0 && !link.cut {
                events.extend((0..3).map(|keeps| Event::Break { on, keeps }));
            }
            if link.cut && !link.sender_gone {
                events.push(Event::SenderNotices(on));
            }
            if link.cut && !link.receiver_gone {
                events.push(Event::ReceiverNotices(on));
            }
        }
        if self.receiver.has_acks() {
            events.push(Event::Acknowledge);
        }
        let next = self.files.iter().find(|(_, f)| !f.started);
        events.extend(next.map(|(id, _)| Event::Start(*id)));
        for (&id, file) in &self.files {
            if file.opening {
                events.push(Event::Open(id));
            }
            if file.publishing {
                events.push(Event::Publish(id));
            }
            if file.closing {
                events.push(Event::Close(id));
            }
            if self.bounds.cancels > 0 && self.sender.has_file(id) {
                events.push(Event::SenderCancels(id));
            }
            if self.bounds.cancels > 0 && self.receiver.has_file(id) {
                events.push(Event::ReceiverCancels(id));
            }
        }
        let misses = self.links.iter().any(|l| l.sender_gone);
        if self.bounds.joins > 0 && misses {
            events.push(Event::Join);
        }
        if self.is_quiet() {
            events.push(Event::Ask);
        }
        if self.bounds.stalls > 0 && self.sender.poll_timeout().is_some() {
            events.push(Event::Stall);
        }
        if self.bounds.idles && self.is_quiet() {
            events.push(Event::Idle);
        }
        events
    }

    fn perform(&mut self, event: Event) {
        self.said = Said::default();
        match event {
            Event::Start(id) => self.start(id),
            Event::Send(on, damage) => self.send(on, damage),
            Event::ToReceiver(on) => self.receive(on),
            Event::ToSender(on) => self.answer(on),
            Event::Acknowledge => self.receiver.flush_acks(),
            Event::Open(id) => self.open(id),
            Event::Publish(id) => self.publish(id),
            Event::Close(id) => {
                self.file(id).closing = false;
                self.receiver.closed(id);
            }
            Event::SenderCancels(id) => {
                self.bounds.cancels -= 1;
                self.file(id).cancelled = true;
                self.sender.fail(id, cancelled());
            }
            Event::ReceiverCancels(id) => {
                self.bounds.cancels -= 1;
                self.file(id).cancelled = true;
                self.receiver.cancel(id, cancelled());
            }
            Event::Break { on, keeps } => {
                self.bounds.breaks -= 1;
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
            Event::SenderNotices(on) => self.sender_loses(on),
            Event::ReceiverNotices(on) => self.receiver_loses(on),
            Event::Join => {
                self.bounds.joins -= 1;
                self.join();
            }
            Event::Ask => {
                self.sender.resend_unanswered();
                self.receiver.resend_unanswered();
            }
            Event::Stall => {
                self.bounds.stalls -= 1;
                self.now = self.sender.poll_timeout().expect("it was asked");
                self.sender.handle_timeout(self.now);
            }
            Event::Idle => self.idle = true,
        }
        self.drive();
    }
}

fn cancelled() -> Fault {
    Fault::new(Code::Cancelled, "move the file", "stopped by the user")
}

fn fate(fault: &Fault) -> Fate {
    match fault.code {
        Code::LimitExceeded => Fate::Unknown,
        _ => Fate::Failed,
    }
}

/// The digest state of a block of zeros.
fn fragment(offset: u64) -> Fragment {
    let mut hasher = BlockHasher::new(DigestKind::Crc64Nvme, false, offset);
    hasher.update(&[0; BLOCK as usize]);
    hasher.finish(FileId(1)).1
}

/// The instances that the drawings are made from.
pub(crate) fn drawn(download: bool) -> Vec<World> {
    let one = Bounds {
        download,
        idles: false,
        ..one(PLAIN)
    };
    let instances = [
        Bounds { cancels: 2, ..one },
        Bounds {
            cancels: 1,
            breaks: 1,
            ..one
        },
        Bounds {
            payloads: 1,
            headers: 1,
            joins: 1,
            ..one
        },
    ];
    instances.into_iter().map(World::new).collect()
}

fn one(source: Source) -> Bounds {
    Bounds {
        download: false,
        files: [source, PLAIN],
        count: 1,
        kept: 64,
        numbers: 1024,
        breaks: 0,
        joins: 0,
        payloads: 0,
        headers: 0,
        cancels: 0,
        stalls: 0,
        idles: true,
        last: [false, true],
    }
}

fn two() -> Bounds {
    Bounds {
        count: 2,
        ..one(PLAIN)
    }
}

fn explore(bounds: Bounds) {
    for download in [false, true] {
        let bounds = Bounds { download, ..bounds };
        let sources = &bounds.files[..bounds.count];
        let about = format!("down: {download}, {sources:?}, {bounds:?}");
        let (states, finished) = crate::explore(World::new(bounds));
        assert!(finished > 0);
        println!("{about}: {states} states");
    }
}

/// Two blocks, of which the second is durable, and three with a hole in the middle.
const RESUMED: Source = Source {
    blocks: 2,
    durable: 0b10,
    ..PLAIN
};
const HOLED: Source = Source {
    blocks: 2,
    holes: 0b10,
    ..PLAIN
};
const ENDLESS: Source = Source {
    blocks: 1,
    knows_length: false,
    ..PLAIN
};

#[test]
fn two_files() {
    explore(two());
}

#[test]
fn a_file_that_is_cancelled_and_a_break() {
    explore(Bounds {
        cancels: 1,
        breaks: 1,
        ..one(PLAIN)
    });
}

#[test]
fn a_file_that_both_sides_cancel() {
    explore(Bounds {
        cancels: 2,
        ..one(PLAIN)
    });
}

#[test]
fn a_resumed_file_and_a_break() {
    explore(Bounds {
        breaks: 1,
        ..one(RESUMED)
    });
}

#[test]
fn a_file_with_a_hole_and_a_break() {
    explore(Bounds {
        breaks: 1,
        ..one(HOLED)
    });
}

#[test]
fn a_file_with_a_hole_and_damage() {
    explore(Bounds {
        payloads: 1,
        headers: 1,
        ..one(HOLED)
    });
}

#[test]
fn a_file_of_unknown_length_and_a_break() {
    explore(Bounds {
        breaks: 1,
        ..one(ENDLESS)
    });
}

#[test]
fn a_damaged_header_and_a_new_channel() {
    explore(Bounds {
        headers: 2,
        joins: 1,
        ..one(PLAIN)
    });
}

#[test]
fn a_stall_and_a_new_channel() {
    explore(Bounds {
        stalls: 2,
        joins: 1,
        ..one(Source { blocks: 2, ..PLAIN })
    });
}

/// Of a file that is over nothing is kept when the next one is, and its number is too far behind.
#[test]
fn two_files_of_which_little_is_kept() {
    explore(Bounds {
        kept: 1,
        numbers: 1,
        ..two()
    });
}

#[test]
#[ignore = "takes minutes"]
fn two_files_of_which_little_is_kept_and_a_break() {
    explore(Bounds {
        kept: 1,
        numbers: 1,
        breaks: 1,
        ..two()
    });
}

#[test]
#[ignore = "takes minutes"]
fn two_files_and_a_cancel() {
    explore(Bounds {
        cancels: 1,
        ..two()
    });
}

#[test]
#[ignore = "takes minutes"]
fn two_different_files_and_a_break() {
    for second in [RESUMED, HOLED, ENDLESS] {
        let mut bounds = Bounds { breaks: 1, ..two() };
        bounds.files[1] = second;
        explore(bounds);
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_cancel_two_breaks_and_a_new_channel() {
    explore(Bounds {
        cancels: 1,
        breaks: 2,
        joins: 1,
        ..one(PLAIN)
    });
}

#[test]
#[ignore = "takes many minutes"]
fn a_resumed_file_with_everything_once() {
    explore(Bounds {
        cancels: 1,
        breaks: 1,
        payloads: 1,
        headers: 1,
        stalls: 1,
        joins: 1,
        ..one(RESUMED)
    });
}
