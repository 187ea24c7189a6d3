//! The machine that sends files: an upload client or a download server.
//!
//! It decides which bytes go next and on which channel they are outstanding, resends the extents of
//! a broken channel, and knows when a file is complete. It never sees payload: the caller reads an
//! [`Extent`], passes its digest state to [`Sender::extent_read`], and moves the bytes.
//!
//! ```text
//!   offer()       Accept           all read          Published
//! ----------> Offered -----> Sending -------> Ended -----------> (gone)
//!  a pack:       ^              ^               |  |                ^
//!  Waiting ------+              +--- Repeat, ---+  | fail()         | Published, Cancel, Exception
//!  next_pack()                       lost channel  +---> Cancelling-+
//! ```
//!
//! From Waiting, Offered, Sending and Ended a Cancel or an Exception of the receiver ends the file;
//! so does `fail()` until its end was sent. A file that fails here after that may already be
//! published: it stays, *cancelling*, until the receiver has reported the outcome.
//!
//! A pack waits for a channel that can take its bytes, and not for Accept: its bytes and its end
//! follow the offer on the same channel ([`Sender::next_pack`]). If that channel is lost before
//! Accept arrives, the pack is offered again and waits.
//!
//! Drain order: after every call that changes the machine, call [`Sender::poll_output`] until it
//! returns `None`, then [`Sender::next_extent`] for channels that can take a block, and
//! [`Sender::next_pack`] where there is none.

mod ending;
mod file;
mod late;
mod stalls;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::digest::{DigestValue, Fragment, FragmentMap};
use crate::fault::{Code, Fault, Side};
use crate::frame::{Accept, Ack, Cancel, Frame, Offer, Published, Repeat, Resume, TimeAccount};
use crate::id::{ChannelIndex, FileId, SourceTag};
use crate::ledger::{FileNumbers, cancelled_by_peer};
use crate::limits::{BLOCK_SIZE_MIN, CLEAR_OFFSET_MIN, HOLE_BYTES_MAX, Limits};
use crate::pack::Failures;
use crate::range::{ByteRange, RangeSet};
use late::Rate;

/// Bytes of a file to be sent on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The file.
    pub file: FileId,
    /// The bytes, counted from the start of the transferred range.
    pub range: ByteRange,
    /// They were read before, so the source must be able to read them twice.
    pub is_resend: bool,
}

/// An action for the caller, in the order in which they come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SenderOutput {
    /// Close this channel: it stalled while others made progress.
    CloseChannel(ChannelIndex),
    /// The receiver accepted the offer; blocks may follow.
    Accepted {
        /// The file.
        file: FileId,
        /// Its target, as reported by the receiver.
        path: Vec<u8>,
        /// Bytes that are already durable there.
        resumed_bytes: u64,
    },
    /// The file ended in a failure. It is gone from the machine.
    Failed {
        /// The file.
        file: FileId,
        /// The reason.
        fault: Fault,
    },
    /// The file is complete at the receiver. It is gone from the machine.
    Finished {
        /// The file.
        file: FileId,
        /// Its length in bytes.
        length: u64,
        /// The digest, equal on both sides.
        digest: DigestValue,
        /// Bytes that were sent more than once.
        retransmitted_bytes: u64,
        /// How the receiver spent its time.
        time: TimeAccount,
        /// For a pack: the entries that failed.
        failures: Failures,
    },
    /// Send this frame on any open channel. The machine has no clock, so the caller sets
    /// [`time`](crate::frame::Eofr::time) of an EOFR, to the same value whenever the frame is
    /// repeated.
    Transmit(Frame),
    /// Send this frame on this channel, after the frames sent there before. For EOFR as above.
    TransmitOn(ChannelIndex, Frame),
}

/// The state of a file at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// A pack that no channel has taken yet.
    Waiting,
    /// The receiver hasn't answered the offer.
    Offered,
    /// Its blocks are being sent.
    Sending,
    /// Every byte was assigned to a channel, and its end was sent.
    Ended,
    /// It failed here after its end was sent: the receiver's answer decides the outcome.
    Cancelling,
}

#[derive(Clone, Debug)]
struct File {
    id: FileId,
    state: FileState,
    /// The frame that is repeated while its answer is outstanding.
    offer: Frame,
    length: Option<u64>,
    dry_run: bool,
    pack: bool,
    block_size: u64,
    /// Bytes not yet read (for a known length).
    unsent: RangeSet,
    /// Bytes that were read and have to be sent again.
    to_resend: RangeSet,
    /// The next offset of a source of unknown length.
    cursor: u64,
    digest: FragmentMap,
    /// The channel that carries the offer of a pack, and its bytes ahead of ACCEPT.
    ahead: Option<ChannelIndex>,
    /// EOFR was sent ahead of ACCEPT: the receiver may have published already.
    has_ended: bool,
    /// ACCEPT has come.
    accepted: bool,
    /// The local fault, in the state Cancelling.
    failing: Option<Fault>,
    /// The offer allows the receiver to resume from a journal.
    may_resume: bool,
    /// Durable ranges of an earlier attempt; never sent.
    resumed: RangeSet,
    acknowledged: u64,
    /// Blocks that a slow channel carries, and that were sent on another one too.
    sent_again: RangeSet,
    /// Bytes named in REPEAT, or sent again: they are acknowledged twice.
    repeated: u64,
    retransmitted: u64,
    /// Its source has no data at present.
    is_paused: bool,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    unacknowledged: VecDeque<Extent>,
    /// When each of these was assigned.
    assigned: VecDeque<Duration>,
    sent_frames: u64,
    acknowledged_frames: u64,
    last_progress: Duration,
    /// Bytes acknowledged on the session when this channel last made progress.
    acknowledged_before: u64,
    rate: Rate,
}

/// The sending machine of one session. See the module documentation.
#[derive(Clone, Debug)]
pub struct Sender {
    limits: Limits,
    in_flight: u64,
    in_flight_max: u64,
    /// Bytes acknowledged in all, on all channels.
    acknowledged_bytes: u64,
    /// The shortest time from assigning to acknowledging a data frame, since it was taken last.
    acknowledgement_time: Option<Duration>,
    files: BTreeMap<FileId, File>,
    channels: BTreeMap<ChannelIndex, Channel>,
    outputs: VecDeque<SenderOutput>,
    last_progress: Duration,
    /// The final answers for files that failed here, to be repeated after the loss of a channel.
    failure_frames: VecDeque<(FileId, Frame)>,
    numbers: FileNumbers,
    block_size_max: u32,
}

impl Sender {
    /// A machine without files and channels. At most `in_flight_max` bytes are outstanding.
    #[must_use]
    pub fn new(limits: Limits, in_flight_max: u64) -> Self {
        Self {
            block_size_max: limits.block_bytes_max,
            numbers: FileNumbers::new(limits.file_numbers_kept),
            limits,
            in_flight: 0,
            in_flight_max,
            acknowledged_bytes: 0,
            acknowledgement_time: None,
            files: BTreeMap::new(),
            channels: BTreeMap::new(),
            outputs: VecDeque::new(),
            last_progress: Duration::ZERO,
            failure_frames: VecDeque::new(),
        }
    }

    /// Sets the block size of the session, in bytes: an ACCEPT that names a larger one is a
    /// violation. Until then it is [`Limits::block_bytes_max`].
    pub fn set_block_size_max(&mut self, bytes: u32) {
        self.block_size_max = bytes;
    }

    /// Sets the bound of outstanding bytes, once the path is measured.
    pub fn set_in_flight_max(&mut self, bytes: u64) {
        self.in_flight_max = bytes;
    }

    /// Adds a channel for blocks.
    pub fn channel_up(&mut self, channel: ChannelIndex, now: Duration) {
        self.channel_down(channel);
        self.channels.insert(
            channel,
            Channel {
                last_progress: now,
                ..Channel::default()
            },
        );
    }

    /// Handles the loss of a channel. Its unacknowledged extents go to other channels, and
    /// unanswered control frames are resent, since they may have been lost with it.
    pub fn channel_down(&mut self, channel: ChannelIndex) {
        let Some(lost) = self.channels.remove(&channel) else {
            return;
        };
        for extent in lost.unacknowledged {
            self.in_flight -= extent.range.len();
            if let Some(file) = self.files.get_mut(&extent.file) {
                file.to_resend.insert(extent.range);
            }
        }
        for file in self.files.values_mut() {
            if file.ahead == Some(channel) {
                file.reoffer();
            }
        }
        self.resend_unanswered();
        let words = self.failure_frames.iter().map(|(_, f)| f.clone());
        self.outputs.extend(words.map(SenderOutput::Transmit));
    }

    /// Resends unanswered control frames: they or their answers may be lost. To be called after a
    /// stall timeout without an answer; the loss of a channel has the same effect.
    pub fn resend_unanswered(&mut self) {
        let frames = self
            .files
            .values()
            .flat_map(|file| match file.state {
                FileState::Offered => [Some(file.offer.clone()), None],
                // A pack that is ahead of ACCEPT uses one channel, which has not been lost.
                FileState::Ended if file.ahead.is_none() => [file.end_frame(), None],
                FileState::Cancelling => [Some(file.unanswered_frame()), file.cancel_frame()],
                FileState::Ended | FileState::Sending | FileState::Waiting => [None, None],
            })
            .flatten();
        self.outputs.extend(frames.map(SenderOutput::Transmit));
    }

    /// Offers a file: in an upload as XFTSMU, in answer to a request as OFFER.
    pub fn offer(&mut self, offer: Offer, upload: bool) {
        self.numbers.insert(offer.file);
        let file = File {
            id: offer.file,
            state: match offer.pack {
                true => FileState::Waiting,
                false => FileState::Offered,
            },
            length: offer.length,
            dry_run: offer.dry_run,
            pack: offer.pack,
            block_size: 0,
            unsent: RangeSet::new(),
            to_resend: RangeSet::new(),
            sent_again: RangeSet::new(),
            cursor: 0,
            ahead: None,
            has_ended: false,
            accepted: false,
            failing: None,
            digest: FragmentMap::new(offer.digest),
            // In a download the receiver decides it.
            may_resume: (!upload || offer.resume != Resume::Never)
                && offer.tag != SourceTag::default(),
            resumed: RangeSet::new(),
            acknowledged: 0,
            repeated: 0,
            retransmitted: 0,
            is_paused: false,
            offer: if upload {
                Frame::Xftsmu(offer.clone())
            } else {
                Frame::Offer(offer.clone())
            },
        };
        if file.state == FileState::Offered {
            self.outputs
                .push_back(SenderOutput::Transmit(file.offer.clone()));
        }
        self.files.insert(offer.file, file);
    }

    /// The offer of the next pack, to be sent on this channel at once: the blocks of the pack, of
    /// the block size of the session, follow there ([`Sender::next_extent`]), and its end. `None`
    /// while no pack waits or the bound of outstanding bytes is reached.
    #[must_use]
    pub fn next_pack(&mut self, channel: ChannelIndex) -> Option<Frame> {
        if self.in_flight >= self.in_flight_max || !self.channels.contains_key(&channel) {
            return None;
        }
        let waits = |f: &&mut File| f.state == FileState::Waiting;
        let file = self.files.values_mut().find(waits)?;
        file.block_size = self.block_size_max.into();
        // A pack has a length: its offer can't be read without.
        let end = file.length.unwrap_or(0);
        file.unsent.insert(ByteRange { start: 0, end });
        file.ahead = Some(channel);
        file.state = FileState::Sending;
        Some(file.offer.clone())
    }

    /// The channel that EOFR of a pack has to follow its bytes on, ahead of ACCEPT; `None` if it
    /// may travel on any.
    #[must_use]
    pub fn end_channel(&self, file: FileId) -> Option<ChannelIndex> {
        self.files.get(&file)?.ahead
    }

    /// Whether EOFR is due: every byte was read, and none has to be sent again for a new offer.
    #[must_use]
    pub fn is_end_due(&self, file: FileId) -> bool {
        let state = self.files.get(&file).map(|file| file.state);
        matches!(state, Some(FileState::Ended | FileState::Cancelling))
    }

    /// Whether a pack has bytes that must go ahead of ACCEPT on the channel of its offer.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        let waits = |f: &File| f.unsent.total() + f.to_resend.total() > 0;
        self.files.values().any(|f| f.ahead.is_some() && waits(f))
    }

    /// Handles a frame of the receiver. Other frames are a violation.
    ///
    /// # Errors
    /// A fault that ends the session.
    pub fn handle_frame(
        &mut self,
        channel: ChannelIndex,
        frame: Frame,
        now: Duration,
    ) -> Result<(), Fault> {
        match frame {
            Frame::Accept(accept) => self.handle_accept(accept),
            Frame::Ack(Ack { data_frames }) => self.handle_ack(channel, data_frames, now),
            Frame::Repeat(Repeat { file, range }) => self.handle_repeat(file, range),
            // For information only: nothing depends on it, and ACK counts progress.
            Frame::Durable(_) => Ok(()),
            Frame::Cancel(Cancel { file }) => {
                self.fail(file, cancelled_by_peer("send the file"));
                Ok(())
            }
            Frame::Published(Published {
                file,
                length,
                digest,
                time,
                failures,
            }) => self.handle_published(file, length, digest, time, failures),
            other => Err(violation(format!("{} is not for a sender", other.name()))),
        }
    }

    fn handle_accept(&mut self, accept: Accept) -> Result<(), Fault> {
        let Some(file) = self.files.get_mut(&accept.file) else {
            // The offer arrived after the final answer for the file, or that answer was lost.
            if let Some((_, frame)) = self
                .failure_frames
                .iter()
                .find(|(id, _)| *id == accept.file)
            {
                self.outputs
                    .push_back(SenderOutput::Transmit(frame.clone()));
            }
            return Ok(());
        };
        if let Some(frame) = file.cancel_frame() {
            // The offer of a pack may have overtaken CANCEL.
            file.accepted = true;
            self.outputs.push_back(SenderOutput::Transmit(frame));
            return Ok(());
        }
        if file.state != FileState::Offered && file.ahead.is_none() {
            // The answer to an offer that was sent again.
            return Ok(());
        }
        let whole = ByteRange {
            start: 0,
            end: file.length.unwrap_or(u64::MAX),
        };
        let sizes = BLOCK_SIZE_MIN..=self.block_size_max;
        if !accept.block_size.is_power_of_two() || !sizes.contains(&accept.block_size) {
            return Err(violation(format!(
                "ACCEPT names a block size of {} bytes",
                accept.block_size
            )));
        }
        if file.pack && accept.block_size != self.block_size_max {
            return Err(violation(format!(
                "ACCEPT names a block size of {} bytes for a pack, and the session's is {}",
                accept.block_size, self.block_size_max
            )));
        }
        if !accept.durable.is_empty() && !file.may_resume {
            return Err(violation(
                "ACCEPT lists durable ranges of a file that can't be resumed".into(),
            ));
        }
        let grid = u64::from(accept.block_size);
        for fragment in &accept.durable {
            let range = fragment.range;
            let on_grid = range.start.is_multiple_of(grid)
                && (range.end.is_multiple_of(grid) || Some(range.end) == file.length);
            if !on_grid || !whole.contains(&range) || !file.digest.insert(*fragment) {
                return Err(violation(
                    "ACCEPT lists ranges that overlap, lie outside, or aren't on its grid".into(),
                ));
            }
            file.resumed.insert(range);
        }
        let (resumed_bytes, dry_run) = (file.resumed.total(), file.dry_run);
        if file.ahead.take().is_none() {
            file.acknowledged += resumed_bytes;
            file.block_size = u64::from(accept.block_size);
            if file.length.is_some() {
                file.unsent = file.digest.ranges().gaps(whole);
            }
            file.state = FileState::Sending;
        }
        file.accepted = true;
        self.outputs.push_back(SenderOutput::Accepted {
            file: accept.file,
            path: accept.path,
            resumed_bytes,
        });
        if dry_run {
            self.files.remove(&accept.file);
            self.outputs.push_back(SenderOutput::Finished {
                file: accept.file,
                length: 0,
                digest: DigestValue::None,
                retransmitted_bytes: 0,
                time: TimeAccount::default(),
                failures: Failures::default(),
            });
        } else {
            self.end_if_complete(accept.file);
        }
        Ok(())
    }

    fn handle_ack(
        &mut self,
        channel: ChannelIndex,
        data_frames: u64,
        now: Duration,
    ) -> Result<(), Fault> {
        let Some(state) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        if data_frames > state.sent_frames || data_frames < state.acknowledged_frames {
            return Err(violation(format!(
                "ACK counts {data_frames} data frames where {} to {} are possible",
                state.acknowledged_frames, state.sent_frames
            )));
        }
        self.last_progress = now;
        let mut delivered = 0;
        while state.acknowledged_frames < data_frames {
            state.acknowledged_frames += 1;
            let Some(extent) = state.unacknowledged.pop_front() else {
                break;
            };
            if let Some(at) = state.assigned.pop_front() {
                let time = now.saturating_sub(at);
                let shortest = self.acknowledgement_time.get_or_insert(time);
                *shortest = (*shortest).min(time);
            }
            delivered += extent.range.len();
            self.in_flight -= extent.range.len();
            self.acknowledged_bytes += extent.range.len();
            if let Some(file) = self.files.get_mut(&extent.file) {
                file.acknowledged += extent.range.len();
            }
        }
        state.rate.delivered(delivered, now);
        state.last_progress = now;
        state.acknowledged_before = self.acknowledged_bytes;
        Ok(())
    }

    fn handle_repeat(&mut self, id: FileId, range: ByteRange) -> Result<(), Fault> {
        let Some(file) = self.files.get_mut(&id) else {
            return Ok(());
        };
        let sent = file.digest.ranges().contains(range) && !file.resumed.overlaps(range);
        if range.is_empty() || !sent {
            return Err(violation(format!(
                "REPEAT asks for {range}, which was not sent"
            )));
        }
        let grid = file.block_size;
        // The last block may be short, even of a source that doesn't know yet that it has ended.
        let read_end = file.digest.ranges().as_slice().last().map(|r| r.end);
        let ends = range.end.is_multiple_of(grid) || Some(range.end) == read_end;
        if !range.start.is_multiple_of(grid) || !ends {
            return Err(violation(format!(
                "REPEAT asks for {range}, which is not on the grid of {grid} bytes"
            )));
        }
        // Bytes already waiting to be resent are not counted twice.
        let before = file.to_resend.total();
        file.to_resend.insert(range);
        file.repeated += file.to_resend.total() - before;
        Ok(())
    }

    fn handle_published(
        &mut self,
        id: FileId,
        length: u64,
        digest: DigestValue,
        time: TimeAccount,
        failures: Failures,
    ) -> Result<(), Fault> {
        let Some(file) = self.files.get(&id) else {
            return Ok(());
        };
        if !failures.is_empty() && !file.pack {
            return Err(violation(
                "PUBLISHED lists failures of a file that is not a pack".into(),
            ));
        }
        if file.state != FileState::Ended && !file.has_ended {
            return Err(violation(
                "PUBLISHED came before the end of the file".into(),
            ));
        }
        let retransmitted_bytes = file.retransmitted;
        let expected = file.length.and_then(|n| file.digest.digest(n));
        if file.length != Some(length) || expected != Some(digest) {
            let fault = Fault::new(
                Code::IntegrityMismatch,
                "verify the file",
                "the receiver published another length or digest than was sent",
            );
            self.files.remove(&id);
            self.refuse(id, &fault);
            self.outputs
                .push_back(SenderOutput::Failed { file: id, fault });
            return Ok(());
        }
        self.files.remove(&id);
        self.outputs.push_back(SenderOutput::Finished {
            file: id,
            length,
            digest,
            retransmitted_bytes,
            time,
            failures,
        });
        Ok(())
    }

    /// The next bytes that this channel may take. They count as outstanding only once they were
    /// assigned to it by [`Sender::assign`] (or given back by [`Sender::put_back`]). `None` while
    /// there is nothing to send, a waiting pack comes first ([`Sender::next_pack`]), or the bound
    /// of outstanding bytes is reached.
    ///
    /// Files are served in the order of their numbers, so that the first is finished first.
    #[must_use]
    pub fn next_extent(&mut self, channel: ChannelIndex) -> Option<Extent> {
        if self.in_flight >= self.in_flight_max {
            return None;
        }
        for (&id, file) in &mut self.files {
            if file.state == FileState::Waiting {
                return None;
            }
            let is_open = !matches!(file.state, FileState::Offered | FileState::Cancelling);
            if !is_open || file.is_paused || file.ahead.is_some_and(|c| c != channel) {
                continue;
            }
            let size = file.block_size;
            if let Some(range) = file.to_resend.take_front(size, size, 0) {
                return Some(Extent {
                    file: id,
                    range,
                    is_resend: true,
                });
            }
            if file.state != FileState::Sending {
                continue;
            }
            if file.length.is_some() {
                if let Some(range) = file.unsent.take_front(size, size, 0) {
                    return Some(Extent {
                        file: id,
                        range,
                        is_resend: false,
                    });
                }
            } else if let Some(range) = file.at_cursor() {
                file.cursor = range.end;
                return Some(Extent {
                    file: id,
                    range,
                    is_resend: false,
                });
            }
        }
        None
    }

    /// Whether bytes of a file have to be sent again, which come before all others.
    #[must_use]
    pub fn is_resending(&self, file: FileId) -> bool {
        let file = self.files.get(&file);
        file.is_some_and(|file| !file.to_resend.as_slice().is_empty())
    }

    /// Gives back an extent that could not be read or sent now. For a source of unknown length it
    /// must be the one taken last.
    pub fn put_back(&mut self, extent: Extent) {
        let Some(file) = self.files.get_mut(&extent.file) else {
            return;
        };
        if extent.is_resend {
            file.to_resend.insert(extent.range);
        } else if file.length.is_some() {
            file.unsent.insert(extent.range);
        } else {
            file.cursor = extent.range.start;
        }
    }

    /// Extends an extent within a hole over the unsent bytes up to `end`. Returns the range that
    /// one HOLE frame covers.
    #[must_use]
    pub fn widen_hole(&mut self, extent: Extent, end: u64) -> ByteRange {
        let Some(file) = self.files.get_mut(&extent.file) else {
            return extent.range;
        };
        let end = end.min(extent.range.start.saturating_add(HOLE_BYTES_MAX));
        // The rest must start on the grid.
        let end = match file.length {
            Some(length) if end >= length => length,
            _ => end - end % file.block_size.max(1),
        };
        let wide = ByteRange {
            start: extent.range.start,
            end: end.max(extent.range.end),
        };
        if extent.is_resend || wide == extent.range {
            return extent.range;
        }
        let rest = ByteRange {
            start: extent.range.end,
            end: wide.end,
        };
        if !file.unsent.contains(rest) {
            return extent.range;
        }
        file.unsent.remove(rest);
        wide
    }

    /// Takes the digest state of an extent read for the first time. If the length is unknown the
    /// fragment may be shorter than the extent: then the source has ended.
    pub fn extent_read(&mut self, file: FileId, fragment: Fragment) {
        if let Some(file) = self.files.get_mut(&file) {
            let _ = file.digest.insert(fragment);
            let end = fragment.range.end;
            if file.length.is_none() && !end.is_multiple_of(file.block_size.max(1)) {
                file.cursor = end;
            }
        }
    }

    /// Records that a region of zeros is sent as a hole.
    pub fn hole_read(&mut self, file: FileId, range: ByteRange) {
        if let Some(file) = self.files.get_mut(&file) {
            let block_size = file.block_size;
            let _ = file.digest.insert_zeros(range, block_size);
        }
    }

    /// The source of unknown length ended at `length`. Does nothing where the length is known.
    pub fn source_ended(&mut self, id: FileId, length: u64) {
        if let Some(file) = self.files.get_mut(&id)
            && file.length.is_none()
        {
            // Not before the end of the bytes read. Extents taken and not read are still to be
            // sent.
            let read = file.digest.ranges();
            let length = length.max(read.as_slice().last().map_or(0, |r| r.end));
            file.unsent = read.gaps(ByteRange {
                start: 0,
                end: length,
            });
            file.length = Some(length);
            self.end_if_complete(id);
        }
    }

    /// Records that an extent was handed to a channel as one data frame. To be called after
    /// `extent_read`. If the channel is gone, the extent is sent on another.
    pub fn assign(&mut self, channel: ChannelIndex, extent: Extent, now: Duration) {
        let len = extent.range.len();
        let file = self.files.get_mut(&extent.file);
        let Some(state) = self.channels.get_mut(&channel) else {
            if let Some(file) = file {
                file.to_resend.insert(extent.range);
            }
            self.end_if_complete(extent.file);
            return;
        };
        if let Some(file) = file.filter(|_| extent.is_resend) {
            file.retransmitted += len;
        }
        if state.unacknowledged.is_empty() {
            state.rate.begin(now);
            state.last_progress = now;
            state.acknowledged_before = self.acknowledged_bytes;
        }
        state.unacknowledged.push_back(extent);
        state.assigned.push_back(now);
        state.sent_frames += 1;
        self.in_flight += len;
        self.end_if_complete(extent.file);
    }

    fn end_if_complete(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        if file.state != FileState::Sending {
            return;
        }
        if let Some(frame) = file.end_frame() {
            file.state = FileState::Ended;
            file.has_ended |= file.ahead.is_some();
            self.outputs.push_back(match file.ahead {
                Some(channel) => SenderOutput::TransmitOn(channel, frame),
                None => SenderOutput::Transmit(frame),
            });
        }
    }

    /// Ends a file because this side failed, or (with a remote fault) because the receiver did. A
    /// local fault is sent to the receiver. If it may have published the file by then, its answer
    /// decides the outcome.
    pub fn fail(&mut self, id: FileId, fault: Fault) {
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        if fault.side == Side::Local {
            if file.failing.is_some() {
                return;
            }
            if file.state == FileState::Ended || file.has_ended {
                file.state = FileState::Cancelling;
                file.ahead = None;
                file.has_ended = true;
                file.failing = Some(fault);
                let frame = file.cancel_frame();
                self.outputs.extend(frame.map(SenderOutput::Transmit));
                return;
            }
        }
        // Its extents stay on the lists of their channels, since ACK counts all data frames.
        let first = self.files.remove(&id).and_then(|file| file.failing);
        if first.is_none() && fault.side == Side::Local {
            self.refuse(id, &fault);
        }
        // CANCEL only answers this side's fault; an exception is a fault of the receiver.
        let follows = fault.code == Code::Cancelled;
        let fault = first.filter(|_| follows).unwrap_or(fault);
        self.outputs
            .push_back(SenderOutput::Failed { file: id, fault });
    }

    /// The grid of the file's blocks in bytes, and its length if known. `None` before ACCEPT.
    #[must_use]
    pub fn shape(&self, id: FileId) -> Option<(u64, Option<u64>)> {
        let is_open = |f: &&File| !matches!(f.state, FileState::Waiting | FileState::Offered);
        let file = self.files.get(&id).filter(is_open)?;
        Some((file.block_size, file.length))
    }

    /// Whether an extent may be sent in the clear if the channel allows it. Packs and the
    /// beginnings of files may not.
    #[must_use]
    pub fn may_be_clear(&self, extent: Extent) -> bool {
        let file = self.files.get(&extent.file);
        extent.range.start >= CLEAR_OFFSET_MIN && file.is_some_and(|file| !file.pack)
    }

    /// For a file of unknown length: the end of the extents taken so far.
    #[must_use]
    pub fn cursor(&self, id: FileId) -> u64 {
        self.files.get(&id).map_or(0, |f| f.cursor)
    }

    /// The state of a file; `None` if it isn't open.
    #[must_use]
    pub fn state(&self, id: FileId) -> Option<FileState> {
        self.files.get(&id).map(|file| file.state)
    }

    /// Whether the machine knows the file.
    #[must_use]
    pub fn has_file(&self, id: FileId) -> bool {
        self.files.contains_key(&id)
    }

    /// Whether the file is or was offered or refused here, so that a request for it is a repeated
    /// one. The number 0 names no file and counts as used.
    #[must_use]
    pub fn was_offered(&self, id: FileId) -> bool {
        id.0 == 0 || self.numbers.contains(id)
    }

    /// Whether no file is left.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.files.is_empty()
    }

    /// Bytes of a file that the receiver has read (or had already).
    #[must_use]
    pub fn progress(&self, id: FileId) -> u64 {
        self.files
            .get(&id)
            .map_or(0, |f| f.acknowledged.saturating_sub(f.repeated))
    }

    /// Bytes handed to channels and not acknowledged.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes acknowledged in all, including those sent again.
    #[must_use]
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_bytes
    }

    /// The shortest time from [`Self::assign`] to the acknowledgement of a data frame, of those
    /// acknowledged since the last call.
    #[must_use]
    pub fn take_acknowledgement_time(&mut self) -> Option<Duration> {
        self.acknowledgement_time.take()
    }

    /// Number of data frames outstanding on a channel.
    #[must_use]
    pub fn outstanding(&self, channel: ChannelIndex) -> usize {
        self.channels
            .get(&channel)
            .map_or(0, |c| c.unacknowledged.len())
    }

    /// The next action.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<SenderOutput> {
        self.outputs.pop_front()
    }
}

fn violation(cause: String) -> Fault {
    Fault::new(Code::ProtocolViolation, "continue the transfer", cause)
}
