//! A sender and a receiver over simulated channels and stores, driven by random schedules.
//!
//! Every step is one event that the real world could bring next; which one, the seed decides. The
//! invariants are asserted where they could break, and at the end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use xdfs_proto::digest::{DigestKind, DigestValue};
use xdfs_proto::frame::{BlockHeader, Exception, Hole, Offer, Request, Resume, Scope, TimeAccount};
use xdfs_proto::pack::{PackRequest, Preserve};
use xdfs_proto::receiver::{Disposition, Receiver, ReceiverOutput};
use xdfs_proto::sender::{Extent, Sender, SenderOutput};
use xdfs_proto::{ByteRange, Code, Fault, FileId, Frame, Limits, RangeSet, SourceTag, handshake};

use crate::link::{Arriving, Link, Packet};
use crate::rng::Rng;
use crate::store::{Sink, Source, hash};

/// Steps after which a run counts as going round in circles.
const STEPS_MAX: usize = 40_000;
/// Packets that a channel takes before it is full.
const QUEUE_MAX: usize = 3;

/// What disturbs a run, and how often at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mishaps {
    pub(crate) breaks: usize,
    pub(crate) crashes: usize,
    pub(crate) corrupt_blocks: usize,
    pub(crate) silent_corruptions: usize,
    pub(crate) damaged_headers: usize,
    pub(crate) duplicates: usize,
    pub(crate) failures: usize,
    pub(crate) stalls: usize,
}

/// A file of the run and what became of it on both sides.
#[derive(Debug)]
struct Plan {
    source: Source,
    dry_run: bool,
    pack: bool,
    at_sender: Option<Result<(), Fault>>,
    at_receiver: Option<Result<(), Fault>>,
    /// Whether something was done to it for which it may fail.
    may_fail: bool,
}

impl Plan {
    fn is_over(&self) -> bool {
        self.at_sender.is_some() && self.at_receiver.is_some()
    }
}

/// What a run did, so that the tests can tell that it did anything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) published: usize,
    pub(crate) failed: usize,
    pub(crate) sessions: usize,
    pub(crate) breaks: usize,
    pub(crate) repeats: usize,
    pub(crate) resumed: u64,
    pub(crate) holes: usize,
    pub(crate) discarded: usize,
    pub(crate) ahead: usize,
    /// Blocks sent again on another channel, since theirs was slow.
    pub(crate) late: usize,
    pub(crate) forgotten: usize,
    pub(crate) asked: usize,
    pub(crate) damaged: usize,
    pub(crate) steps: usize,
}

#[derive(Debug)]
struct Session {
    sender: Sender,
    receiver: Receiver,
    links: Vec<Link>,
    sender_homeless: VecDeque<Frame>,
    receiver_homeless: VecDeque<Frame>,
    plans: BTreeMap<FileId, usize>,
    next_file: u32,
    opening: Vec<Offer>,
    publishing: Vec<(FileId, u64)>,
    closing: Vec<FileId>,
    told: BTreeMap<FileId, RangeSet>,
    taken: BTreeMap<FileId, RangeSet>,
    mismatches: BTreeMap<FileId, u32>,
    largest: u64,
    block_size: u32,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    ToReceiver(usize),
    EndBlock(usize),
    ToSender(usize),
    SenderNotices(usize),
    ReceiverNotices(usize),
    Send(usize),
    Acknowledge,
    Open(usize),
    Publish(usize),
    Close(usize),
    Start,
    Join,
}

#[derive(Debug)]
pub(crate) struct World {
    rng: Rng,
    now: Duration,
    kind: DigestKind,
    limits: Limits,
    in_flight_max: u64,
    download: bool,
    channels: usize,
    joins: usize,
    ahead: usize,
    plans: Vec<Plan>,
    sinks: Vec<Sink>,
    mishaps: Mishaps,
    session: Session,
    tally: Tally,
    verbose: bool,
}

impl World {
    pub(crate) fn random(seed: u64, verbose: bool) -> Self {
        let mut rng = Rng::new(seed);
        let kind = *rng.pick(&[DigestKind::Crc64Nvme, DigestKind::Blake3]);
        let block_size = 1024 << rng.below(2);
        let mut limits = Limits::default();
        if rng.chance(300) {
            limits.resume_ranges_max = 1 + rng.below(3);
        }
        if rng.chance(300) {
            // Little is kept of files that are over.
            limits.ended_files_kept = 1 + rng.below(2);
            limits.file_numbers_kept = 4 + rng.below(4) as u32;
        }
        let download = rng.chance(500);
        let plans: Vec<Plan> = (0..1 + rng.below(5))
            .map(|_| {
                let block = 1024 << rng.below(2);
                let source = Source::random(&mut rng, block);
                let dry_run = !download && rng.chance(60);
                let fits = source.known_length && source.reads_twice && source.length() > 0;
                Plan {
                    pack: fits && !dry_run && rng.chance(400),
                    source,
                    dry_run,
                    at_sender: None,
                    at_receiver: None,
                    may_fail: false,
                }
            })
            .collect();
        let mut mishaps = Mishaps::default();
        if !rng.chance(150) {
            mishaps = Mishaps {
                breaks: rng.below(7),
                crashes: rng.below(3),
                corrupt_blocks: *rng.pick(&[0, 1, 3, 30]),
                silent_corruptions: usize::from(rng.chance(80)),
                damaged_headers: *rng.pick(&[0, 0, 1, 2]),
                duplicates: rng.below(6),
                failures: usize::from(rng.chance(200)),
                stalls: rng.below(3),
            };
        }
        if mishaps.silent_corruptions > 0 {
            // Damage that the check value misses is found by the digest of the session that sent
            // the block. A later session takes the journal's word for it.
            mishaps.crashes = 0;
            mishaps.stalls = 0;
            mishaps.breaks = mishaps.breaks.min(4);
        }
        let session = Session::new(&limits, u64::MAX, block_size);
        let mut world = Self {
            now: Duration::ZERO,
            kind,
            in_flight_max: *rng.pick(&[1, 2048, 5000, 1 << 20]),
            download,
            channels: 1 + rng.below(4),
            joins: 0,
            ahead: 1 + rng.below(4),
            sinks: plans.iter().map(|_| Sink::new(kind)).collect(),
            plans,
            mishaps,
            session,
            limits,
            tally: Tally::default(),
            verbose,
            rng,
        };
        world.new_session();
        world
    }

    fn new_session(&mut self) {
        let block_size = 1024 << self.rng.below(3);
        self.session = Session::new(&self.limits, self.in_flight_max, block_size);
        self.joins = 6;
        self.tally.sessions += 1;
        for index in 0..self.channels as u32 {
            self.session.join(index, self.now);
        }
    }

    /// Runs to the end and checks it.
    pub(crate) fn run(mut self) -> Tally {
        loop {
            self.tally.steps += 1;
            assert!(self.tally.steps < STEPS_MAX, "no end: {}", self.state());
            self.now += Duration::from_millis(1);
            self.disturb();
            let steps = self.enabled();
            if steps.is_empty() {
                if self.settle_unheard() || self.ask_again() {
                    continue;
                }
                break;
            }
            let step = *self.rng.pick(&steps);
            if self.verbose {
                println!("{:6} {step:?}", self.tally.steps);
            }
            self.perform(step);
            self.check_bounds();
        }
        self.check_end();
        self.tally
    }

    /// A file that ended at one side before the other ever heard of it. Whether there was one.
    fn settle_unheard(&mut self) -> bool {
        let mut any = false;
        for (&file, &i) in &self.session.plans {
            let plan = &mut self.plans[i];
            if plan.at_receiver.is_none() && !self.session.receiver.has_file(file) {
                plan.at_receiver.clone_from(&plan.at_sender);
                any |= plan.at_sender.is_some();
            } else if plan.at_sender.is_none() && !self.session.sender.has_file(file) {
                plan.at_sender.clone_from(&plan.at_receiver);
                any |= plan.at_receiver.is_some();
            }
        }
        any
    }

    /// Time passes, and what has no answer is said again. Whether there was anything.
    fn ask_again(&mut self) -> bool {
        let up = |side: fn(&Link) -> bool| self.session.links.iter().any(side);
        if !up(|l| l.sender_up) || !up(|l| l.receiver_up) {
            return false;
        }
        self.session.sender.resend_unanswered();
        self.session.receiver.resend_unanswered();
        self.drive();
        self.tally.asked += 1;
        !self.enabled().is_empty()
    }

    fn unstarted(&self) -> Option<usize> {
        let started: Vec<usize> = self.session.plans.values().copied().collect();
        (0..self.plans.len()).find(|i| !self.plans[*i].is_over() && !started.contains(i))
    }

    fn enabled(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let indices: Vec<_> = self.session.links.iter().map(|l| l.index).collect();
        let takes = |index| {
            let mut asked = self.session.sender.clone();
            asked.next_extent(index).is_some()
                || asked.next_pack(index).is_some()
                || self.late_extent(&mut asked, index).is_some()
        };
        let takes: Vec<bool> = indices.into_iter().map(takes).collect();
        for (i, link) in self.session.links.iter().enumerate() {
            if link.receiver_up && link.arriving.is_some() {
                // A cut may come within the payload.
                if !link.cut || !link.to_receiver.is_empty() || i % 2 == 0 {
                    steps.push(Step::EndBlock(i));
                }
            } else if link.receiver_up && !link.to_receiver.is_empty() {
                steps.push(Step::ToReceiver(i));
            }
            if link.sender_up && !link.to_sender.is_empty() {
                steps.push(Step::ToSender(i));
            }
            if link.cut && link.sender_up {
                steps.push(Step::SenderNotices(i));
            }
            if link.cut && link.receiver_up {
                steps.push(Step::ReceiverNotices(i));
            }
            if link.sender_up && link.to_receiver.len() < QUEUE_MAX && takes[i] {
                steps.push(Step::Send(i));
            }
        }
        if self.session.receiver.has_acks() {
            steps.push(Step::Acknowledge);
        }
        steps.extend((0..self.session.opening.len()).map(Step::Open));
        steps.extend((0..self.session.publishing.len()).map(Step::Publish));
        steps.extend((0..self.session.closing.len()).map(Step::Close));
        let open = self.session.plans.values();
        let open = open.filter(|i| !self.plans[**i].is_over()).count();
        if open < self.ahead && self.unstarted().is_some() {
            steps.push(Step::Start);
        }
        let alive = self.session.links.iter().filter(|l| l.sender_up).count();
        if alive < self.channels && self.joins > 0 {
            steps.push(Step::Join);
        }
        steps
    }

    /// What nobody asked for.
    fn disturb(&mut self) {
        if self.mishaps.breaks > 0 && self.rng.chance(60) {
            let i = self.rng.below(self.session.links.len());
            if !self.session.links[i].cut {
                self.mishaps.breaks -= 1;
                self.tally.breaks += 1;
                let how = self.rng.below(4);
                if self.verbose {
                    println!("       channel {i} breaks ({how})");
                }
                let link = &mut self.session.links[i];
                link.cut = true;
                // What is on its way is lost, or still arrives where the other side gave up.
                if how != 1 {
                    link.to_receiver.clear();
                }
                if how != 2 {
                    link.to_sender.clear();
                }
            }
        }
        if self.mishaps.crashes > 0 && self.rng.chance(10) {
            self.mishaps.crashes -= 1;
            let of_receiver = self.rng.chance(500);
            self.end_session(of_receiver);
        }
        if self.mishaps.duplicates > 0 && self.rng.chance(10) {
            self.mishaps.duplicates -= 1;
            self.ask_again();
        }
        if self.rng.chance(20) {
            self.checkpoint();
        }
        if self.mishaps.failures > 0 && self.rng.chance(15) {
            self.inject_failure();
        }
        if self.mishaps.stalls > 0 && self.rng.chance(10) {
            self.mishaps.stalls -= 1;
            if let Some(at) = self.session.sender.poll_timeout() {
                self.now = self.now.max(at);
                self.session.sender.handle_timeout(self.now);
                self.drive();
            }
        }
    }

    fn checkpoint(&mut self) {
        let numbers: Vec<FileId> = self.session.taken.keys().copied().collect();
        if let Some(&file) = numbers.get(self.rng.below(numbers.len().max(1)))
            && self.session.receiver.has_file(file)
        {
            let bytes = self.sinks[self.session.plans[&file]].checkpoint();
            self.session.receiver.recorded(file, bytes);
            self.drive();
        }
    }

    fn inject_failure(&mut self) {
        let numbers: Vec<FileId> = self.session.plans.keys().copied().collect();
        let Some(&file) = numbers.get(self.rng.below(numbers.len().max(1))) else {
            return;
        };
        if self.plans[self.session.plans[&file]].is_over() {
            return;
        }
        let at_sender = self.rng.chance(500);
        let code = match (self.rng.chance(400), at_sender) {
            (true, _) => Code::Cancelled,
            (false, true) => Code::SourceChanged,
            (false, false) => Code::NoSpace,
        };
        let fault = Fault::new(code, "move the file", "the test wants it");
        let session = &mut self.session;
        if at_sender && session.sender.has_file(file) {
            session.sender.fail(file, fault);
        } else if !at_sender && session.receiver.has_file(file) {
            match code {
                Code::Cancelled => session.receiver.cancel(file, fault),
                _ => session.receiver.fail(file, fault),
            }
        } else {
            return;
        }
        if self.verbose {
            println!("       file {file} fails, at the sender: {at_sender}, {code}");
        }
        self.plans[session.plans[&file]].may_fail = true;
        self.mishaps.failures -= 1;
        self.drive();
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Start => self.start(),
            Step::Join => {
                self.joins -= 1;
                let index = self.session.links.len() as u32;
                self.session.join(index, self.now);
                let frames = std::mem::take(&mut self.session.sender_homeless);
                frames.into_iter().for_each(|f| self.transmit_down(f));
                let frames = std::mem::take(&mut self.session.receiver_homeless);
                frames.into_iter().for_each(|f| self.transmit_up(f));
            }
            Step::Send(i) => self.send(i),
            Step::Acknowledge => self.session.receiver.flush_acks(),
            Step::Open(i) => self.open(i),
            Step::Close(i) => {
                let file = self.session.closing.remove(i);
                self.session.receiver.closed(file);
            }
            Step::Publish(i) => {
                let (file, length) = self.session.publishing.remove(i);
                if self.session.receiver.has_file(file) {
                    let plan = self.session.plans[&file];
                    self.sinks[plan].publish(length);
                    let source = &self.plans[plan].source;
                    assert_eq!(self.sinks[plan].published.as_ref(), Some(&source.bytes));
                    self.session.receiver.published(
                        file,
                        TimeAccount::of_store(7),
                        xdfs_proto::pack::Failures::default(),
                    );
                }
            }
            Step::ToReceiver(i) => self.deliver(i),
            Step::EndBlock(i) => self.end_block(i),
            Step::ToSender(i) => {
                let link = &mut self.session.links[i];
                let index = link.index;
                if let Some(frame) = link.to_sender.pop_front() {
                    self.answer(index, frame);
                }
            }
            Step::SenderNotices(i) => {
                self.session.links[i].sender_up = false;
                let index = self.session.links[i].index;
                self.session.sender.channel_down(index);
            }
            Step::ReceiverNotices(i) => self.receiver_loses(i),
        }
        self.drive();
        let links = &self.session.links;
        let lost = !links.iter().any(|l| l.sender_up) || !links.iter().any(|l| l.receiver_up);
        if lost && self.plans.iter().any(|p| !p.is_over()) && self.joins == 0 {
            self.end_session(false);
        }
    }

    fn receiver_loses(&mut self, i: usize) {
        let link = &mut self.session.links[i];
        link.receiver_up = false;
        link.arriving = None;
        link.to_receiver.clear();
        self.session.receiver.channel_down(link.index);
    }

    /// The session is gone: the receiver keeps what is durable, or all of it if it lives on.
    fn end_session(&mut self, receiver_crashes: bool) {
        if self.verbose {
            println!("       the session ends, the receiver crashes: {receiver_crashes}");
        }
        for (&file, &i) in &self.session.plans {
            let plan = &mut self.plans[i];
            match (&plan.at_sender, &plan.at_receiver) {
                // Whoever doesn't know it yet learns it from the name, or from the next attempt.
                (None, Some(over)) => plan.at_sender = Some(over.clone()),
                (Some(over), None) => plan.at_receiver = Some(over.clone()),
                _ => {}
            }
            if !self.session.receiver.has_file(file) || plan.is_over() {
                continue;
            }
            if receiver_crashes {
                self.sinks[i].crash();
            } else {
                self.sinks[i].checkpoint();
            }
        }
        self.new_session();
    }

    fn start(&mut self) {
        let Some(i) = self.unstarted() else { return };
        let file = FileId(self.session.next_file);
        // Numbers go up, but need not be consecutive.
        self.session.next_file += 1 + self.rng.below(3) as u32;
        self.session.plans.insert(file, i);
        if self.download {
            self.session.receiver.request(Request {
                file,
                path: b"source".to_vec(),
                offset: 0,
                length: None,
                digest: self.kind,
                pack: self.plans[i].pack.then(pack_request),
            });
        } else {
            let offer = self.offer(file);
            self.session.sender.offer(offer, true);
        }
    }

    fn offer(&self, file: FileId) -> Offer {
        let plan = &self.plans[self.session.plans[&file]];
        let can_resume = plan.source.reads_twice && !plan.pack;
        Offer {
            file,
            path: if self.download {
                Vec::new()
            } else {
                b"target".to_vec()
            },
            name: Vec::new(),
            length: plan.source.known_length.then(|| plan.source.length()),
            tag: SourceTag([u8::from(can_resume); 16]),
            mode: None,
            mtime_ns: None,
            digest: self.kind,
            overwrite: false,
            resume: if plan.pack {
                Resume::Never
            } else {
                Resume::Trust
            },
            dry_run: plan.dry_run,
            pack: plan.pack,
            sparse: false,
            relaxed: false,
            last: None,
        }
    }

    fn open(&mut self, i: usize) {
        let offer = self.session.opening.remove(i);
        if !self.session.receiver.has_file(offer.file) {
            return;
        }
        let plan = self.session.plans[&offer.file];
        let sink = &mut self.sinks[plan];
        if offer.tag == SourceTag::default() {
            sink.discard();
        }
        let durable: Vec<_> = sink.journal.fragments().copied().collect();
        let session = &mut self.session;
        if durable.is_empty() || sink.block_size > session.block_size {
            if !durable.is_empty() {
                // As if the user asked for it: the grid may only become finer.
                sink.discard();
            }
            sink.block_size = session.block_size;
        } else {
            sink.block_size = 1024
                << self
                    .rng
                    .below((sink.block_size / 1024).ilog2() as usize + 1);
        }
        let durable: Vec<_> = sink.journal.fragments().copied().collect();
        self.tally.resumed += sink.journal.ranges().total();
        session
            .taken
            .insert(offer.file, sink.journal.ranges().clone());
        if offer.dry_run {
            self.plans[plan].at_receiver = Some(Ok(()));
        }
        session
            .receiver
            .opened(offer.file, b"target".to_vec(), sink.block_size, durable)
            .expect("the journal is sound");
    }

    /// A block that another channel would deliver late.
    fn late_extent(&self, sender: &mut Sender, index: xdfs_proto::ChannelIndex) -> Option<Extent> {
        let plan = |file| &self.plans[self.session.plans[&file]];
        let can_be_read_again = |file| plan(file).source.reads_twice;
        sender.next_late_extent(index, self.now, Duration::ZERO, can_be_read_again)
    }

    fn send(&mut self, i: usize) {
        let index = self.session.links[i].index;
        let mut extent = self.session.sender.next_extent(index);
        if extent.is_none()
            && let Some(offer) = self.session.sender.next_pack(index)
        {
            self.put(i, Packet::Frame(over_the_wire(&offer)));
            self.tally.ahead += 1;
            extent = self.session.sender.next_extent(index);
        }
        if extent.is_none() {
            let mut sender = self.session.sender.clone();
            extent = self.late_extent(&mut sender, index);
            self.session.sender = sender;
            self.tally.late += usize::from(extent.is_some());
        }
        let Some(mut extent) = extent else {
            return;
        };
        let file = extent.file;
        let plan = self.session.plans[&file];
        let source = &self.plans[plan].source;
        if let Some(told) = self.session.told.get(&file) {
            assert!(
                !told.overlaps(extent.range),
                "durable, but sent: {extent:?}"
            );
        }
        if extent.is_resend && !source.reads_twice {
            let fault = Fault::new(Code::ConnectionLost, "send the stream again", "read once");
            self.plans[plan].may_fail = true;
            self.session.sender.fail(file, fault);
            return;
        }
        let length = source.length();
        let hole = source
            .holes
            .as_slice()
            .iter()
            .find(|h| h.contains(&extent.range));
        if let Some(hole) = hole.filter(|_| !extent.is_resend) {
            let range = self.session.sender.widen_hole(extent, hole.end);
            extent.range = range;
            self.session.sender.hole_read(file, range);
            self.session.largest = self.session.largest.max(range.len());
            self.session.sender.assign(index, extent, self.now);
            self.tally.holes += 1;
            let frame = Frame::Hole(Hole { file, range });
            self.put(i, Packet::Frame(frame));
            return;
        }
        if !source.known_length && extent.range.end > length {
            if extent.range.start >= length {
                let end = extent.range.start;
                assert_eq!(end, length);
                self.session.sender.source_ended(file, end);
                return;
            }
            extent.range.end = length;
        }
        let ByteRange { start, end } = extent.range;
        let payload = source.bytes[start as usize..end as usize].to_vec();
        self.send_block(i, extent, payload);
        if !self.plans[plan].source.known_length && end == length && self.rng.chance(500) {
            // Some sources know at once that they ended, others only when asked for more.
            self.session.sender.source_ended(file, end);
        }
    }

    fn send_block(&mut self, i: usize, extent: Extent, mut payload: Vec<u8>) {
        let index = self.session.links[i].index;
        let file = extent.file;
        let start = extent.range.start;
        let (mut check, fragment) = hash(self.kind, start, &payload);
        if !extent.is_resend {
            self.session.sender.extent_read(file, fragment);
        }
        self.session.largest = self.session.largest.max(extent.range.len());
        self.session.sender.assign(index, extent, self.now);
        let at = self.rng.below(payload.len());
        if self.mishaps.corrupt_blocks > 0 && self.rng.chance(200) {
            self.mishaps.corrupt_blocks -= 1;
            payload[at] ^= 0x10;
        } else if self.mishaps.silent_corruptions > 0 && self.rng.chance(200) {
            self.mishaps.silent_corruptions -= 1;
            payload[at] ^= 0x10;
            check = hash(self.kind, start, &payload).0;
            self.plans[self.session.plans[&file]].may_fail = true;
        }
        let header = BlockHeader {
            file,
            check,
            clear: false,
            offset: start,
            length: payload.len() as u32,
        };
        if self.mishaps.damaged_headers > 0 && self.rng.chance(200) {
            self.mishaps.damaged_headers -= 1;
            let mut bytes = header.encode();
            for _ in 0..1 + self.rng.below(2) {
                let bit = self.rng.below(8 * bytes.len());
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            if bytes != header.encode() {
                self.put(i, Packet::Damaged(bytes));
                return;
            }
        }
        self.put(i, Packet::Block(header, payload));
    }

    fn put(&mut self, i: usize, packet: Packet) {
        if self.verbose {
            println!("       on {i} to the receiver: {}", packet.name());
        }
        let link = &mut self.session.links[i];
        if !link.cut {
            link.to_receiver.push_back(packet);
        }
    }

    fn deliver(&mut self, i: usize) {
        let link = &mut self.session.links[i];
        let index = link.index;
        let session = &mut self.session;
        match session.links[i].to_receiver.pop_front() {
            Some(Packet::Block(header, payload)) => {
                let disposition = session.receiver.begin_block(index, &header);
                let disposition = disposition.unwrap_or_else(|f| panic!("a sound block: {f}"));
                let taken = disposition == Disposition::Take(self.kind);
                if taken {
                    // Payload is written as it comes, before its check value is known.
                    let sink = &mut self.sinks[session.plans[&header.file]];
                    sink.write(header.offset, &payload[..payload.len() / 2]);
                } else {
                    self.tally.discarded += 1;
                }
                session.links[i].arriving = Some(Arriving {
                    header,
                    payload,
                    taken,
                });
            }
            Some(Packet::Damaged(bytes)) => {
                assert!(!BlockHeader::is_sound(&bytes), "{bytes:?} is believed");
                self.tally.damaged += 1;
                session.links[i].cut = true;
                self.receiver_loses(i);
            }
            Some(Packet::Frame(Frame::Exception(Exception {
                scope: Scope::File(file),
                fault,
            }))) => session.receiver.withdraw(file, fault),
            Some(Packet::Frame(frame)) => session
                .receiver
                .handle_frame(index, frame)
                .unwrap_or_else(|f| panic!("a sound frame: {f}")),
            None => {}
        }
    }

    fn end_block(&mut self, i: usize) {
        let session = &mut self.session;
        let Some(block) = session.links[i].arriving.take() else {
            return;
        };
        let index = session.links[i].index;
        let (header, file) = (block.header, block.header.file);
        let mut fragment = None;
        let mut wrong = false;
        if block.taken {
            if session.receiver.has_file(file) {
                let sink = &mut self.sinks[session.plans[&file]];
                let half = block.payload.len() / 2;
                sink.write(header.offset + half as u64, &block.payload[half..]);
            }
            let (check, of_payload) = hash(self.kind, header.offset, &block.payload);
            wrong = check != header.check;
            if wrong {
                let wrongs = session.mismatches.entry(file).or_default();
                *wrongs += 1;
                if *wrongs > 8 {
                    self.plans[session.plans[&file]].may_fail = true;
                }
            } else {
                fragment = Some(of_payload);
            }
        }
        let new = session.receiver.end_block(index, &header, fragment, wrong);
        if let (true, Some(fragment)) = (new, fragment) {
            session.take(file, fragment.range);
            self.sinks[session.plans[&file]].held(fragment);
        }
    }

    fn answer(&mut self, index: xdfs_proto::ChannelIndex, frame: Frame) {
        let session = &mut self.session;
        match frame {
            Frame::Exception(Exception {
                scope: Scope::File(file),
                fault,
            }) => session.sender.fail(file, fault),
            Frame::Xftsm(request) => {
                if session.sender.was_offered(request.file) {
                    session.sender.handle_repeated_request(request.file);
                    return;
                }
                if self.mishaps.failures > 0 && self.rng.chance(100) {
                    self.mishaps.failures -= 1;
                    let plan = &mut self.plans[session.plans[&request.file]];
                    plan.may_fail = true;
                    let fault = Fault::new(Code::NotFound, "open the source", "it isn't there");
                    plan.at_sender = Some(Err(fault.clone()));
                    session.sender.refuse(request.file, &fault);
                    return;
                }
                let offer = self.offer(request.file);
                self.session.sender.offer(offer, false);
            }
            frame => {
                if let Frame::Accept(accept) = &frame {
                    let mut told = RangeSet::new();
                    accept.durable.iter().for_each(|f| told.insert(f.range));
                    session.told.insert(accept.file, told);
                }
                if matches!(frame, Frame::Repeat(_)) {
                    self.tally.repeats += 1;
                }
                session
                    .sender
                    .handle_frame(index, frame, self.now)
                    .unwrap_or_else(|f| panic!("a sound answer: {f}"));
            }
        }
    }

    /// Does what the machines want.
    fn drive(&mut self) {
        while let Some(output) = self.session.sender.poll_output() {
            match output {
                SenderOutput::CloseChannel(index) => {
                    let link = &mut self.session.links[index.0 as usize];
                    link.cut = true;
                    link.to_sender.clear();
                    link.sender_up = false;
                    self.session.sender.channel_down(index);
                }
                SenderOutput::Transmit(frame) => self.transmit_down(frame),
                SenderOutput::TransmitOn(index, frame) => {
                    let frame = over_the_wire(&frame);
                    self.put(index.0 as usize, Packet::Frame(frame));
                }
                SenderOutput::Failed { file, fault } => self.sender_is_over(file, Err(fault)),
                SenderOutput::Finished {
                    file,
                    length,
                    digest,
                    ..
                } => {
                    self.check_finished(file, length, digest);
                    self.sender_is_over(file, Ok(()));
                }
                _ => {}
            }
        }
        while let Some(output) = self.session.receiver.poll_output() {
            match output {
                ReceiverOutput::Transmit(frame) => self.transmit_up(frame),
                ReceiverOutput::TransmitOn(index, frame) => {
                    let link = &mut self.session.links[index.0 as usize];
                    if self.verbose {
                        println!("       on {index} to the sender: {frame:?}");
                    }
                    if link.receiver_up && !link.cut {
                        link.to_sender.push_back(over_the_wire(&frame));
                    }
                }
                ReceiverOutput::Open(offer) => {
                    let pack = offer.pack;
                    self.session.opening.push(offer);
                    if pack {
                        // There is nothing to wait for: it is held in memory.
                        self.open(self.session.opening.len() - 1);
                    }
                }
                ReceiverOutput::Publish { file, length } => {
                    assert_eq!(self.session.taken[&file].total(), length);
                    self.session.publishing.push((file, length));
                }
                ReceiverOutput::Hole {
                    file,
                    range,
                    fragments,
                } => {
                    self.session.take(file, range);
                    let sink = &mut self.sinks[self.session.plans[&file]];
                    sink.hole(range, &fragments);
                }
                ReceiverOutput::Discard { file } => {
                    self.sinks[self.session.plans[&file]].discard();
                }
                ReceiverOutput::Failed { file, fault } => {
                    let plan = self.session.plans[&file];
                    self.sinks[plan].checkpoint();
                    self.session.closing.push(file);
                    self.receiver_is_over(file, Err(fault));
                }
                ReceiverOutput::Finished {
                    file,
                    length,
                    digest,
                    ..
                } => {
                    self.check_finished(file, length, digest);
                    self.receiver_is_over(file, Ok(()));
                }
                _ => {}
            }
        }
    }

    fn transmit_down(&mut self, frame: Frame) {
        let frame = over_the_wire(&frame);
        let up: Vec<usize> = (0..self.session.links.len())
            .filter(|i| self.session.links[*i].sender_up)
            .collect();
        let Some(&i) = up.get(self.rng.below(up.len().max(1))) else {
            self.session.sender_homeless.push_back(frame);
            return;
        };
        if self.mishaps.duplicates > 0 && self.rng.chance(150) {
            self.mishaps.duplicates -= 1;
            let other = *self.rng.pick(&up);
            self.put(other, Packet::Frame(frame.clone()));
        }
        self.put(i, Packet::Frame(frame));
    }

    fn transmit_up(&mut self, frame: Frame) {
        let frame = over_the_wire(&frame);
        let up: Vec<usize> = (0..self.session.links.len())
            .filter(|i| self.session.links[*i].receiver_up)
            .collect();
        if up.is_empty() {
            self.session.receiver_homeless.push_back(frame);
            return;
        }
        let mut copies = 1;
        if self.mishaps.duplicates > 0 && self.rng.chance(150) {
            self.mishaps.duplicates -= 1;
            copies = 2;
        }
        for _ in 0..copies {
            let i = *self.rng.pick(&up);
            if self.verbose {
                println!("       on {i} to the sender: {frame:?}");
            }
            let link = &mut self.session.links[i];
            if !link.cut {
                link.to_sender.push_back(frame.clone());
            }
        }
    }

    fn sender_is_over(&mut self, file: FileId, result: Result<(), Fault>) {
        let plan = &mut self.plans[self.session.plans[&file]];
        assert!(plan.at_sender.is_none(), "over twice: {file}");
        plan.check_result(&result);
        plan.at_sender = Some(result);
    }

    fn receiver_is_over(&mut self, file: FileId, result: Result<(), Fault>) {
        let plan = &mut self.plans[self.session.plans[&file]];
        assert!(plan.at_receiver.is_none(), "over twice: {file}");
        plan.check_result(&result);
        plan.at_receiver = Some(result);
    }

    fn check_finished(&self, file: FileId, length: u64, digest: DigestValue) {
        let i = self.session.plans[&file];
        let plan = &self.plans[i];
        if !plan.dry_run {
            assert_eq!(length, plan.source.length());
            assert_eq!(digest, plan.source.digest(self.kind));
            assert!(self.sinks[i].published.is_some(), "told, but not published");
        }
    }

    fn check_bounds(&self) {
        let session = &self.session;
        let bound = self.in_flight_max.saturating_add(session.largest);
        assert!(session.sender.in_flight() <= bound, "too much in flight");
        for (&file, &i) in &session.plans {
            let length = self.plans[i].source.length();
            assert!(session.sender.progress(file) <= length, "{file} progress");
            assert!(session.receiver.progress(file).0 <= length);
        }
    }

    fn state(&self) -> String {
        let session = &self.session;
        format!("{:?}\n{:?}", session.sender, session.receiver)
    }

    fn check_end(&mut self) {
        for i in 0..self.plans.len() {
            let plan = &self.plans[i];
            assert!(plan.is_over(), "deadlock at file {i}: {}", self.state());
            let published = self.sinks[i].published.as_ref();
            // Neither side reports a failure of what stands under its name, nor the other way:
            // unless the sender was told that nothing is known of it any more.
            let unknown = matches!(&plan.at_sender, Some(Err(fault)) if is_forgotten(fault));
            self.tally.forgotten += usize::from(unknown);
            let agree = plan.at_sender.as_ref().map(Result::is_ok)
                == plan.at_receiver.as_ref().map(Result::is_ok);
            assert!(
                agree || unknown || plan.dry_run,
                "file {i}: {:?}, {:?}",
                plan.at_sender,
                plan.at_receiver
            );
            match &plan.at_receiver {
                Some(Ok(())) if !plan.dry_run => {
                    assert_eq!(published, Some(&plan.source.bytes));
                    self.tally.published += 1;
                }
                Some(Ok(())) => assert_eq!(published, None),
                _ => {
                    assert_eq!(published, None, "failed, but published");
                    self.tally.failed += 1;
                }
            }
        }
        let session = &self.session;
        assert!(session.links.iter().all(|l| l.is_quiet() || l.cut));
        assert!(
            session.sender.is_idle() && session.receiver.is_idle(),
            "a file is left: {}",
            self.state()
        );
        assert_eq!(session.sender.in_flight(), 0);
    }
}

impl Plan {
    fn check_result(&self, result: &Result<(), Fault>) {
        if let Err(fault) = result {
            let may_fail = self.may_fail || is_forgotten(fault);
            assert!(may_fail, "failed without a reason: {fault}");
        }
    }
}

impl Session {
    fn new(limits: &Limits, in_flight_max: u64, block_size: u32) -> Self {
        let mut sender = Sender::new(limits.clone(), in_flight_max);
        sender.set_block_size_max(block_size);
        Self {
            sender,
            receiver: Receiver::new(limits.clone()),
            links: Vec::new(),
            sender_homeless: VecDeque::new(),
            receiver_homeless: VecDeque::new(),
            plans: BTreeMap::new(),
            next_file: 1,
            opening: Vec::new(),
            publishing: Vec::new(),
            closing: Vec::new(),
            told: BTreeMap::new(),
            taken: BTreeMap::new(),
            mismatches: BTreeMap::new(),
            largest: 0,
            block_size,
        }
    }

    fn join(&mut self, index: u32, now: Duration) {
        self.links.push(Link::new(index));
        let index = self.links[index as usize].index;
        self.sender.channel_up(index, now);
        self.receiver.channel_up(index);
    }

    /// Notes that bytes are held: once, and not if they were durable before.
    fn take(&mut self, file: FileId, range: ByteRange) {
        let taken = self.taken.get_mut(&file).expect("an open file");
        assert!(
            !taken.overlaps(range),
            "{range} of file {file} is held twice"
        );
        taken.insert(range);
    }
}

/// The other side keeps nothing of the file any more.
fn is_forgotten(fault: &Fault) -> bool {
    fault.code == Code::LimitExceeded && fault.cause.contains("no longer known")
}

/// What a request for a pack names doesn't matter here.
fn pack_request() -> PackRequest {
    PackRequest {
        keep: Preserve::default(),
        follow: false,
        file_bytes_max: 1,
        names: vec![b"a".to_vec()],
    }
}

/// The frame as the other side reads it.
fn over_the_wire(frame: &Frame) -> Frame {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    let (read, used) = handshake::take_frame(&bytes, &Limits::default())
        .expect("a frame that can be read")
        .expect("a whole frame");
    assert_eq!(used, bytes.len());
    read
}
