//! The machine that receives files: a download client or an upload server.
//!
//! It accepts or refuses every block by its header, tracks which ranges are held and durable,
//! requests damaged blocks again, and publishes only complete and verified files. It never sees
//! payload: the caller reads it, computes the check value and the [`Fragment`], and writes it.
//!
//! ```text
//!  request()           Offer         opened()            complete, digests equal
//! ----------> Requested ---> Opening --------> Receiving ------------------------> Publishing
//!  Xftsmu                      ^                  |                                |        |
//! -----------------------------+           Cancel |                         fail() |        |
//!                                                 +-------------> (gone) <---------+--------+
//! ```
//!
//! A file that fails is gone at once, but its target isn't free before its sink is closed: the
//! sender gets the final answer then, by `closed()`, so that it may offer the target anew.
//!
//! The edge on the right is `published()`. While a file is being published only the store can make
//! it fail. A side that cancels then is told the outcome.
//!
//! Drain order: after every call that changes the machine, call [`Receiver::poll_output`] until it
//! returns `None`.

mod acks;
mod dropped;
mod ending;
mod file;

use std::collections::{BTreeMap, VecDeque};

use acks::Acks;

use crate::digest::{DigestKind, DigestValue, Fragment, FragmentMap};
use crate::fault::{Code, Fault, Retry};
use crate::frame::{
    Accept, Ack, BlockHeader, Cancel, Durable, Eofr, Frame, Hole, Offer, Published, Repeat,
    Request, Resume, TimeAccount,
};
use crate::id::{ChannelIndex, FileId};
use crate::ledger::{FileNumbers, cancelled_by_peer, failure_frame, forgotten};
use crate::limits::{CLEAR_OFFSET_MIN, HOLE_BYTES_MAX, Limits};
use crate::pack::Failures;
use crate::range::{ByteRange, RangeSet};

/// Blocks of one file whose check may fail before the file does.
const MISMATCHES_MAX: u32 = 8;

/// What to do with the payload of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Discard it: the bytes are held, or arriving on another channel, or the file has ended.
    Discard,
    /// Hash it with the digest of the file, and write it.
    Take(DigestKind),
}

/// An action for the caller, in the order in which they come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiverOutput {
    /// Close the sink of the file and delete its content, which is unusable.
    Discard {
        /// The file.
        file: FileId,
    },
    /// The file ended in a failure; durable ranges are kept. It is gone from the machine. Close its
    /// sink, if there is one, and call [`Receiver::closed`].
    Failed {
        /// The file.
        file: FileId,
        /// The reason.
        fault: Fault,
    },
    /// The file is published. The answer to the sender is another output.
    Finished {
        /// The file.
        file: FileId,
        /// Its length in bytes.
        length: u64,
        /// The verified digest.
        digest: DigestValue,
        /// How the sender spent its time.
        time: TimeAccount,
        /// For a pack: the entries that failed.
        failures: Failures,
    },
    /// A region of zeros without payload. The file must read as zeros there, even if a damaged or
    /// lost block, or an earlier attempt, has left other bytes.
    Hole {
        /// The file.
        file: FileId,
        /// The region.
        range: ByteRange,
        /// Its digest states: the caller records them as written.
        fragments: Vec<Fragment>,
    },
    /// Open a sink for the file and call [`Receiver::opened`] or [`Receiver::fail`].
    Open(Offer),
    /// Everything is present and verified: publish it and call [`Receiver::published`].
    Publish {
        /// The file.
        file: FileId,
        /// Its final length in bytes.
        length: u64,
    },
    /// Send this frame on any channel that is alive.
    Transmit(Frame),
    /// Send this frame on this channel.
    TransmitOn(ChannelIndex, Frame),
}

/// The state of a file at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// Requested, and not offered by the sender yet.
    Requested,
    /// The store is opening its sink.
    Opening,
    /// Its blocks are arriving.
    Receiving,
    /// All bytes are held and verified; the store is publishing it.
    Publishing,
    /// It failed, and the store is closing its sink.
    Closing,
}

#[derive(Clone, Debug)]
struct File {
    state: FileState,
    request: Option<Request>,
    offer: Option<Offer>,
    accept: Option<Accept>,
    length: Option<u64>,
    held: FragmentMap,
    /// Blocks whose payload is being read, by their start: end and channel. No two overlap, since
    /// payload is written before its check value is known.
    arriving: BTreeMap<u64, (u64, ChannelIndex)>,
    /// Ranges of blocks that were dropped because they overlap one in `arriving`.
    dropped: RangeSet,
    /// A data frame or EOFR has shown that the sender has ACCEPT.
    accept_confirmed: bool,
    /// The end of a file of unknown length, as shown by a block that ends off the grid.
    tail: Option<u64>,
    block_size: u64,
    resumed: u64,
    repeats: RangeSet,
    repeated: u64,
    mismatches: u32,
    eofr: Option<(u64, DigestValue, TimeAccount)>,
}

/// A file that ended here.
#[derive(Clone, Debug)]
struct EndedFile {
    file: FileId,
    /// Its offer, to distinguish a repeated offer from another one.
    offer: Option<Offer>,
    /// The final answer; `None` if the sender gave it.
    answer: Option<Frame>,
}

/// The receiving machine of one session. See the module documentation.
#[derive(Clone, Debug)]
pub struct Receiver {
    limits: Limits,
    files: BTreeMap<FileId, File>,
    ended_files: VecDeque<EndedFile>,
    /// Files that failed and whose sinks aren't closed yet: their final answers wait for that.
    closing: BTreeMap<FileId, EndedFile>,
    /// All numbers offered or requested.
    numbers: FileNumbers,
    acks: Acks,
    outputs: VecDeque<ReceiverOutput>,
}

impl Receiver {
    /// A machine without files and channels.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            numbers: FileNumbers::new(limits.file_numbers_kept),
            limits,
            files: BTreeMap::new(),
            ended_files: VecDeque::new(),
            closing: BTreeMap::new(),
            acks: Acks::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Adds a channel for blocks.
    pub fn channel_up(&mut self, channel: ChannelIndex) {
        self.acks.channel_up(channel);
    }

    /// Handles the loss of a channel. Unanswered control frames and the final answers for ended
    /// files are resent, since they may have been lost with it.
    pub fn channel_down(&mut self, channel: ChannelIndex) {
        self.acks.channel_down(channel);
        for (&id, file) in &mut self.files {
            file.arriving.retain(|_, (_, on)| *on != channel);
            file.take_owed();
            match (file.state, &file.request, &file.accept) {
                (FileState::Requested, Some(request), _) => self
                    .outputs
                    .push_back(ReceiverOutput::Transmit(Frame::Xftsm(request.clone()))),
                (FileState::Receiving, _, Some(accept)) if !file.has_confirmed_accept() => self
                    .outputs
                    .push_back(ReceiverOutput::Transmit(Frame::Accept(accept.clone()))),
                _ => {}
            }
            for &range in file.repeats.as_slice() {
                self.outputs
                    .push_back(ReceiverOutput::Transmit(Frame::Repeat(Repeat {
                        file: id,
                        range,
                    })));
            }
        }
        let words = self.ended_files.iter().filter_map(|e| e.answer.clone());
        self.outputs.extend(words.map(ReceiverOutput::Transmit));
    }

    /// Resends unanswered requests: they or their answers may be lost. To be called after a stall
    /// timeout without an answer; the loss of a channel has the same effect.
    pub fn resend_unanswered(&mut self) {
        let asked = |file: &&File| file.state == FileState::Requested;
        let requests = self.files.values().filter(asked);
        let requests = requests.filter_map(|file| file.request.clone());
        let frames = requests.map(|request| ReceiverOutput::Transmit(Frame::Xftsm(request)));
        self.outputs.extend(frames);
    }

    /// Requests a file (download).
    pub fn request(&mut self, request: Request) {
        let id = request.file;
        self.numbers.insert(id);
        self.outputs
            .push_back(ReceiverOutput::Transmit(Frame::Xftsm(request.clone())));
        self.files.insert(
            id,
            File::new(FileState::Requested, request.digest, Some(request)),
        );
    }

    /// Handles a frame of the sender. Other frames are a violation.
    ///
    /// # Errors
    /// A fault that ends the session.
    pub fn handle_frame(&mut self, channel: ChannelIndex, frame: Frame) -> Result<(), Fault> {
        match frame {
            Frame::Xftsmu(offer) => self.handle_xftsmu(offer),
            Frame::Offer(offer) => self.handle_offer(offer),
            Frame::Hole(Hole { file, range }) => self.handle_hole(channel, file, range),
            Frame::Eofr(Eofr {
                file,
                length,
                digest,
                time,
            }) => self.handle_eofr(file, length, digest, time),
            Frame::Cancel(Cancel { file }) => {
                self.withdraw(file, cancelled_by_peer("receive the file"));
                Ok(())
            }
            other => Err(violation(format!("{} is not for a receiver", other.name()))),
        }
    }

    /// Refuses an offer for a reason outside of this machine. Its blocks are discarded, and a
    /// repeated offer gets the same answer.
    pub fn refuse(&mut self, offer: Offer, fault: &Fault) {
        self.numbers.insert(offer.file);
        let answer = failure_frame(offer.file, fault);
        self.finish(offer.file, Some(offer), Some(answer));
    }

    fn handle_xftsmu(&mut self, offer: Offer) -> Result<(), Fault> {
        if let Some(file) = self.files.get(&offer.file) {
            // Repeated after the loss of a channel; its answer may be lost too.
            if file.offer.as_ref() != Some(&offer) {
                return Err(violation(format!("file {} was offered twice", offer.file)));
            }
            if let Some(accept) = &file.accept {
                self.outputs
                    .push_back(ReceiverOutput::Transmit(Frame::Accept(accept.clone())));
            }
            return Ok(());
        }
        if offer.file.0 == 0 {
            return Err(violation("file number 0 was offered".into()));
        }
        if self.numbers.contains(offer.file) {
            return self.handle_repeated_offer(&offer);
        }
        if self.files.len() + self.closing.len() >= self.limits.open_files_max {
            let fault = Fault::new(
                Code::LimitExceeded,
                "offer the file",
                format!(
                    "more than {} files are open in the session",
                    self.limits.open_files_max
                ),
            )
            .path(&offer.path)
            .retry(Retry::AfterMs(100));
            self.refuse(offer, &fault);
            return Ok(());
        }
        self.numbers.insert(offer.file);
        let mut file = File::new(FileState::Opening, offer.digest, None);
        file.length = offer.length;
        file.offer = Some(offer.clone());
        self.files.insert(offer.file, file);
        self.outputs.push_back(ReceiverOutput::Open(offer));
        Ok(())
    }

    /// An offer of a file that has ended here: repeated after the loss of a channel, or overtaken.
    fn handle_repeated_offer(&mut self, offer: &Offer) -> Result<(), Fault> {
        let closing = self.closing.get(&offer.file);
        let mut ended = self.ended_files.iter();
        let Some(ended) = closing.or_else(|| ended.find(|e| e.file == offer.file)) else {
            self.outputs
                .push_back(ReceiverOutput::Transmit(forgotten(offer.file)));
            return Ok(());
        };
        if ended.offer.as_ref().is_some_and(|o| o != offer) {
            return Err(violation(format!(
                "file number {} was used before",
                offer.file
            )));
        }
        if closing.is_some() {
            return Ok(());
        }
        // PUBLISHED answers EOFR: a sender that still waits for ACCEPT wouldn't understand it. For
        // a pack EOFR may have been sent ahead of ACCEPT.
        match &ended.answer {
            None => {}
            Some(Frame::Published(_)) if !offer.pack => {}
            Some(frame) => self
                .outputs
                .push_back(ReceiverOutput::Transmit(frame.clone())),
        }
        Ok(())
    }

    fn handle_offer(&mut self, offer: Offer) -> Result<(), Fault> {
        // In a download the user of this side decides about the target, so the sender's options for
        // it are ignored.
        let offer = Offer {
            overwrite: false,
            resume: Resume::Never,
            dry_run: false,
            ..offer
        };
        let Some(file) = self.files.get_mut(&offer.file) else {
            // Cancelled here in the meantime.
            return if self.numbers.contains(offer.file) {
                self.handle_repeated_offer(&offer)
            } else {
                Err(violation(format!("file {} was not requested", offer.file)))
            };
        };
        if file.state != FileState::Requested {
            if file.offer.as_ref() != Some(&offer) {
                return Err(violation(format!("file {} was offered twice", offer.file)));
            }
            if let Some(accept) = &file.accept {
                self.outputs
                    .push_back(ReceiverOutput::Transmit(Frame::Accept(accept.clone())));
            }
            return Ok(());
        }
        let differs = |r: &Request| r.digest != offer.digest || r.pack.is_some() != offer.pack;
        if file.request.as_ref().is_some_and(differs) {
            let cause = "OFFER names another digest or kind than requested";
            return Err(violation(cause.into()));
        }
        file.state = FileState::Opening;
        file.length = offer.length;
        file.offer = Some(offer.clone());
        self.outputs.push_back(ReceiverOutput::Open(offer));
        Ok(())
    }

    /// Records that the sink is open, so that blocks may come. `durable` is the content of its
    /// journal.
    ///
    /// # Errors
    /// The journal's ranges overlap, exceed the file, or aren't on the grid.
    pub fn opened(
        &mut self,
        id: FileId,
        path: Vec<u8>,
        block_size: u32,
        mut durable: Vec<Fragment>,
    ) -> Result<(), Fault> {
        let Some(file) = self.files.get_mut(&id) else {
            return Ok(());
        };
        if file.state != FileState::Opening {
            return Ok(());
        }
        let whole = ByteRange {
            start: 0,
            end: file.length.unwrap_or(u64::MAX),
        };
        let grid = u64::from(block_size);
        for fragment in &durable {
            let range = fragment.range;
            let is_ragged = !range.end.is_multiple_of(grid);
            // Where the length isn't known, a ragged end tells it.
            if file.length.is_none() && is_ragged && file.tail.is_none() {
                file.tail = Some(range.end);
            }
            let end = file.length.or(file.tail);
            let on_grid =
                range.start.is_multiple_of(grid) && (!is_ragged || Some(range.end) == end);
            let is_within = whole.contains(&range) && end.is_none_or(|end| range.end <= end);
            if !on_grid || !is_within || !file.held.insert(*fragment) {
                return Err(misplaced());
            }
        }
        let end = file.held.ranges().as_slice().last().map_or(0, |r| r.end);
        if file.tail.is_some_and(|tail| end > tail) {
            return Err(misplaced());
        }
        file.state = FileState::Receiving;
        file.resumed = file.held.ranges().total();
        file.block_size = u64::from(block_size);
        // The sender doesn't know that the file ends there, and sends those bytes again.
        durable.retain(|f| file.length.is_some() || f.range.end.is_multiple_of(grid));
        // A journal may have more ranges than a frame can list: the others are sent again and
        // discarded.
        let told_max = Accept::durable_max(file.held.kind(), &self.limits);
        if durable.len() > told_max {
            let mut held = FragmentMap::new(file.held.kind());
            durable.retain(|fragment| held.insert(*fragment));
            durable = held.fragments().copied().collect();
            durable.sort_by_key(|f| std::cmp::Reverse(f.range.len()));
            durable.truncate(told_max);
            durable.sort_by_key(|f| f.range.start);
        }
        let accept = Accept {
            file: id,
            path,
            block_size,
            durable,
        };
        file.accept = Some(accept.clone());
        self.outputs
            .push_back(ReceiverOutput::Transmit(Frame::Accept(accept.clone())));
        if file.offer.as_ref().is_some_and(|o| o.dry_run) {
            let offer = self.files.remove(&id).and_then(|f| f.offer);
            self.keep(id, offer, Some(Frame::Accept(accept)));
        }
        Ok(())
    }

    /// Checks the header of a block whose payload comes next on a channel.
    ///
    /// # Errors
    /// A violation that ends the session: an unknown file, a range past the end or off the grid, a
    /// partial overlap with held bytes, unprotected payload that must be protected, or a limit.
    pub fn begin_block(
        &mut self,
        channel: ChannelIndex,
        header: &BlockHeader,
    ) -> Result<Disposition, Fault> {
        let Some(range) = ByteRange::at(header.offset, u64::from(header.length)) else {
            return Err(violation("a block ends past the largest offset".into()));
        };
        let is_pack = |file: &File| file.offer.as_ref().is_some_and(|offer| offer.pack);
        if header.clear
            && (header.offset < CLEAR_OFFSET_MIN
                || self.files.get(&header.file).is_some_and(is_pack))
        {
            let cause = "a block of a pack, or of the beginning of a file, came in the clear";
            return Err(Fault::new(
                Code::ProtectionRefused,
                "receive a block",
                cause,
            ));
        }
        let disposition = self.check_range(header.file, range, DataFrameKind::Block)?;
        if let (Disposition::Take(_), Some(file)) = (disposition, self.files.get_mut(&header.file))
        {
            file.arriving.insert(range.start, (range.end, channel));
        }
        Ok(disposition)
    }

    fn check_range(
        &mut self,
        id: FileId,
        range: ByteRange,
        data: DataFrameKind,
    ) -> Result<Disposition, Fault> {
        let Some(file) = self.files.get_mut(&id) else {
            return if self.numbers.contains(id) {
                Ok(Disposition::Discard)
            } else {
                Err(violation(format!(
                    "a block came for file {id}, which was not accepted"
                )))
            };
        };
        if file.accept.is_none() {
            return Err(violation(format!(
                "a block came for file {id} before it was accepted"
            )));
        }
        file.accept_confirmed = true;
        file.check_shape(range, data)?;
        let held = file.held.ranges();
        if held.contains(range) {
            return Ok(Disposition::Discard);
        }
        // Parts of a hole may be held: they may have been repeated as blocks on another channel.
        if held.overlaps(range) && data == DataFrameKind::Block {
            return Err(violation(format!(
                "a block at {range} overlaps bytes that are held"
            )));
        }
        if file.is_arriving(range) {
            // The same bytes are arriving on another channel. If they are damaged, or that channel
            // breaks, they are requested again.
            file.dropped.insert(range);
            return Ok(Disposition::Discard);
        }
        if held.as_slice().len() >= self.limits.fragments_max {
            return Err(Fault::new(
                Code::LimitExceeded,
                "receive a block",
                format!(
                    "more than {} separate ranges are held",
                    self.limits.fragments_max
                ),
            ));
        }
        if file.state != FileState::Receiving {
            return Ok(Disposition::Discard);
        }
        Ok(Disposition::Take(file.held.kind()))
    }

    /// The payload of a block was read to its end. `fragment` is its digest state; it is `None` if
    /// the block was discarded or, with `wrong`, damaged. Returns whether the fragment is new, so
    /// that the caller records it as written.
    pub fn end_block(
        &mut self,
        channel: ChannelIndex,
        header: &BlockHeader,
        fragment: Option<Fragment>,
        wrong: bool,
    ) -> bool {
        self.count(channel, u64::from(header.length));
        let Some(range) = ByteRange::at(header.offset, u64::from(header.length)) else {
            return false;
        };
        let id = header.file;
        let Some(file) = self.files.get_mut(&id) else {
            return false;
        };
        if file.arriving.get(&range.start) != Some(&(range.end, channel)) {
            // It was discarded.
            return false;
        }
        file.arriving.remove(&range.start);
        if wrong {
            file.mismatches += 1;
            if file.length.is_none() && file.tail == Some(range.end) {
                // A damaged block proves nothing about the length.
                file.tail = None;
            }
            if file.mismatches > MISMATCHES_MAX {
                let fault = Fault::new(
                    Code::IntegrityMismatch,
                    "receive the file",
                    format!("the check values of {} blocks were wrong", file.mismatches),
                )
                .hint("check the memory and the network cards on the way, then run it again")
                .retry(Retry::Now);
                self.fail(id, fault);
                return false;
            }
            file.repeats.insert(range);
            file.repeated += range.len();
            file.dropped.remove(range);
            self.outputs.push_back(ReceiverOutput::TransmitOn(
                channel,
                Frame::Repeat(Repeat { file: id, range }),
            ));
        }
        let new = match fragment {
            Some(fragment) if !wrong && file.state == FileState::Receiving => {
                file.held.insert(fragment)
            }
            _ => false,
        };
        if new {
            file.repeats.remove(range);
        }
        self.request_dropped(id);
        if new {
            self.verify_if_complete(id);
        }
        new
    }

    fn handle_hole(
        &mut self,
        channel: ChannelIndex,
        id: FileId,
        range: ByteRange,
    ) -> Result<(), Fault> {
        if range.is_empty() {
            return Err(violation("HOLE names an empty region".into()));
        }
        if range.len() > HOLE_BYTES_MAX {
            return Err(violation(format!(
                "HOLE of {} bytes is too long",
                range.len()
            )));
        }
        let disposition = self.check_range(id, range, DataFrameKind::Hole)?;
        self.count(channel, 0);
        if disposition == Disposition::Discard {
            return Ok(());
        }
        if let Some(file) = self.files.get_mut(&id) {
            let (kind, block_size) = (file.held.kind(), file.block_size);
            let mut gaps = RangeSet::new();
            if file.held.ranges().overlaps(range) {
                gaps = file.held.ranges().gaps(range);
            } else {
                gaps.insert(range);
            }
            for &gap in gaps.as_slice() {
                let mut zeros = FragmentMap::new(kind);
                let _ = zeros.insert_zeros(gap, block_size);
                let fragments: Vec<Fragment> = zeros.fragments().copied().collect();
                for fragment in &fragments {
                    let _ = file.held.insert(*fragment);
                }
                self.outputs.push_back(ReceiverOutput::Hole {
                    file: id,
                    range: gap,
                    fragments,
                });
            }
            file.repeats.remove(range);
            self.verify_if_complete(id);
        }
        Ok(())
    }

    fn count(&mut self, channel: ChannelIndex, bytes: u64) {
        if self.acks.count(channel, bytes) {
            self.flush_acks();
        }
    }

    /// Whether data frames are unacknowledged, so that the caller should call
    /// [`Receiver::flush_acks`] soon.
    #[must_use]
    pub fn has_acks(&self) -> bool {
        !self.acks.is_empty()
    }

    /// Whether data frames of this channel are unacknowledged.
    #[must_use]
    pub fn owes_ack(&self, channel: ChannelIndex) -> bool {
        self.acks.owes(channel)
    }

    /// Emits the pending acknowledgements.
    pub fn flush_acks(&mut self) {
        let outputs = &mut self.outputs;
        self.acks.drain(|channel, data_frames| {
            let frame = Frame::Ack(Ack { data_frames });
            outputs.push_back(ReceiverOutput::TransmitOn(channel, frame));
        });
    }

    fn handle_eofr(
        &mut self,
        id: FileId,
        length: u64,
        digest: DigestValue,
        time: TimeAccount,
    ) -> Result<(), Fault> {
        let Some(file) = self.files.get_mut(&id) else {
            if !self.numbers.contains(id) {
                return Err(violation(format!(
                    "EOFR came for file {id}, which is unknown"
                )));
            }
            if self.closing.contains_key(&id) {
                return Ok(());
            }
            let answer = match self.ended_files.iter().find(|e| e.file == id) {
                Some(ended) => ended.answer.clone(),
                None => Some(forgotten(id)),
            };
            self.outputs.extend(answer.map(ReceiverOutput::Transmit));
            return Ok(());
        };
        if file.accept.is_none() {
            return Err(violation(format!(
                "EOFR came for file {id} before it was accepted"
            )));
        }
        let end = (length, digest, time);
        let contradicts = file.eofr.is_some_and(|e| e.0 != length || e.1 != digest);
        let known = file.length.or(file.tail);
        let contradicts = contradicts || digest.kind() != file.held.kind();
        if contradicts || known.is_some_and(|n| n != length) || file.seen_end() > length {
            return Err(violation(
                "EOFR contradicts the length or digest of the file".into(),
            ));
        }
        file.accept_confirmed = true;
        file.length = Some(length);
        file.eofr = Some(end);
        self.verify_if_complete(id);
        Ok(())
    }

    fn verify_if_complete(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        let (FileState::Receiving, Some((length, digest, _))) = (file.state, file.eofr) else {
            return;
        };
        let own = file.held.digest(length);
        let missing = file.held.ranges().as_slice()
            != [ByteRange {
                start: 0,
                end: length,
            }];
        if own.is_none() && missing {
            return;
        }
        if own == Some(digest) {
            file.state = FileState::Publishing;
            self.outputs
                .push_back(ReceiverOutput::Publish { file: id, length });
            return;
        }
        let fault = Fault::new(
            Code::IntegrityMismatch,
            "verify the file",
            "the digest of what arrived is not the digest of what was sent",
        )
        .hint("nothing was published; the next attempt starts over");
        self.outputs.push_back(ReceiverOutput::Discard { file: id });
        self.fail(id, fault);
    }

    /// Records that the file has its name, or that the pack is written except for `failures`.
    pub fn published(&mut self, id: FileId, time: TimeAccount, failures: Failures) {
        let publishing = |f: &File| f.state == FileState::Publishing;
        let Some((length, digest, sender_time)) = self
            .files
            .get(&id)
            .filter(|f| publishing(f))
            .and_then(|f| f.eofr)
        else {
            return;
        };
        let offer = self.files.remove(&id).and_then(|f| f.offer);
        let answer = Frame::Published(Published {
            file: id,
            length,
            digest,
            time,
            failures: failures.clone(),
        });
        self.finish(id, offer, Some(answer));
        self.outputs.push_back(ReceiverOutput::Finished {
            file: id,
            length,
            digest,
            time: sender_time,
            failures,
        });
    }

    /// Reports to the sender how much is durable.
    pub fn recorded(&mut self, id: FileId, bytes: u64) {
        if self.files.contains_key(&id) {
            self.outputs
                .push_back(ReceiverOutput::Transmit(Frame::Durable(Durable {
                    file: id,
                    bytes,
                })));
        }
    }

    /// The state of a file; `None` if it isn't open.
    #[must_use]
    pub fn state(&self, id: FileId) -> Option<FileState> {
        match self.files.get(&id) {
            Some(file) => Some(file.state),
            None => self.closing.get(&id).map(|_| FileState::Closing),
        }
    }

    /// Whether the machine knows the file.
    #[must_use]
    pub fn has_file(&self, id: FileId) -> bool {
        self.files.contains_key(&id)
    }

    /// Whether the file is or was offered or requested here.
    #[must_use]
    pub fn was_offered(&self, id: FileId) -> bool {
        self.numbers.contains(id)
    }

    /// Whether a block that ends here is a ragged end of a file whose length the offer didn't say.
    /// Its state looks like that of the file's end: a journal has no use for it before the
    /// file is published.
    #[must_use]
    pub fn is_open_end(&self, id: FileId, end: u64) -> bool {
        self.files.get(&id).is_some_and(|file| {
            let is_unknown = file.offer.as_ref().is_some_and(|o| o.length.is_none());
            is_unknown && !end.is_multiple_of(file.block_size)
        })
    }

    /// Whether no file is left, and no sink to be closed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.files.is_empty() && self.closing.is_empty()
    }

    /// Whether payload of any file has begun to come, and not all of it is held.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        let receives = |f: &File| f.accept_confirmed && f.state == FileState::Receiving;
        self.files.values().any(receives)
    }

    /// The bytes of a file that are held, its length if known, and the bytes of an earlier attempt.
    #[must_use]
    pub fn progress(&self, id: FileId) -> (u64, Option<u64>, u64) {
        self.files.get(&id).map_or((0, None, 0), |f| {
            (f.held.ranges().total(), f.length, f.resumed)
        })
    }

    /// The bytes of a file that were requested again.
    #[must_use]
    pub fn repeated_bytes(&self, id: FileId) -> u64 {
        self.files.get(&id).map_or(0, |f| f.repeated)
    }

    /// The next action.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<ReceiverOutput> {
        self.outputs.pop_front()
    }
}

/// The kind of a data frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataFrameKind {
    Block,
    Hole,
}

fn misplaced() -> Fault {
    Fault::new(
        Code::Internal,
        "resume the transfer",
        "the journal's ranges overlap, lie past the end, or aren't on the grid",
    )
}

fn violation(cause: String) -> Fault {
    Fault::new(Code::ProtocolViolation, "continue the transfer", cause)
}
