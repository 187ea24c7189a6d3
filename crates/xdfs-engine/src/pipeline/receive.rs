//! Incoming frames and payload.

use std::io::ErrorKind;
use std::time::Duration;

use xdfs_proto::digest::{BlockHasher, Fragment};
use xdfs_proto::frame::{BLOCK_HEADER_BYTES, BlockHeader, FRAME_HEADER_BYTES, FrameHeader, kind};
use xdfs_proto::receiver::Disposition;
use xdfs_proto::{ChannelIndex, Code, DigestKind, Fault, FileId, Retry, handshake};

use super::Pipeline;
use super::buffers::{Buffers, Purpose};
use crate::channel::IncomingBlock;
use crate::kernel::Kernel;
use crate::storage::SinkJob;

/// Bytes a channel may read before the others get their turn.
const TURN_BYTES: usize = 1 << 20;
/// The cost of a frame without payload, in bytes of a turn.
const FRAME_TURN_BYTES: usize = 16 << 10;

/// How long the block of a pack without memory may hold up its channel. Then it is dropped, and
/// requested again once there is memory: what completes other packs, whose memory it waits for, may
/// come behind it.
const PACK_PATIENCE: Duration = Duration::from_millis(50);

/// Channels that a session may lose to damaged headers before it ends.
const DAMAGED_CHANNELS_MAX: u32 = 8;

/// The result of one read.
enum ReadOutcome {
    /// Progress, at this cost; read on.
    Again(usize),
    /// The channel has no data.
    Blocked,
    /// No buffer is free.
    Starved,
    /// There is no memory for a pack.
    WithoutPack,
    /// The rate limit is reached.
    Throttled,
    /// The peer closed the channel in an orderly way.
    End,
}

/// A failed read, by what it ends.
enum ReadFailure {
    Channel(Fault),
    Session(Fault),
    /// A header was damaged in transit: nothing after it on the channel can be parsed.
    Damaged,
}

impl<K: Kernel> Pipeline<K> {
    /// Serves every readable channel, each for at most one turn.
    pub(super) fn receive_all(&mut self) {
        self.wake_waiting();
        for _ in 0..self.channels.readable_count() {
            let Some((slot, channel)) = self.channels.next_readable() else {
                break;
            };
            if channel.is_open() {
                self.receive_turn(slot);
            } else {
                self.continue_opening(slot);
            }
            if self.ending.has_ended() {
                return;
            }
        }
        if self
            .timers
            .take_acks_due(self.receiver.has_acks(), self.now)
        {
            self.receiver.flush_acks();
        }
    }

    /// Resumes channels for which a buffer is free, or which the rate limit no longer delays.
    fn wake_waiting(&mut self) {
        let buffers = self.buffers.left_to_receive(self.now);
        self.channels.feed_starved(buffers);
        if self.channels.lack_packs() && !self.buffers.is_too_early(Purpose::ArrivingPack, self.now)
        {
            self.channels.feed_packs();
        }
        if self.channels.are_throttled() && self.is_rate_open() {
            self.channels.unthrottle();
        }
    }

    /// Whether the rate limits allow payload now.
    pub(super) fn is_rate_open(&mut self) -> bool {
        self.bounds.are_open(self.now)
    }

    /// Marks whether the channel holds an incomplete frame, which is not parsed again before more
    /// bytes arrive.
    fn set_awaits_rest(&mut self, slot: usize, awaits_rest: bool) {
        if let Some(channel) = self.channels.get_mut(slot) {
            channel.awaits_rest = awaits_rest;
        }
    }

    fn receive_turn(&mut self, slot: usize) {
        self.set_awaits_rest(slot, false);
        let mut turn = 0;
        while turn < TURN_BYTES {
            match self.receive_step(slot) {
                Ok(ReadOutcome::Again(bytes)) => {
                    turn += bytes;
                    if bytes > 0 {
                        self.timers.heard(self.now);
                    }
                }
                Ok(ReadOutcome::Blocked) => {
                    self.set_awaits_rest(slot, true);
                    break;
                }
                Ok(ReadOutcome::Starved) => {
                    self.channels.starve(slot);
                    return;
                }
                Ok(ReadOutcome::WithoutPack) => {
                    self.channels.wait_for_pack(slot);
                    return;
                }
                Ok(ReadOutcome::Throttled) => {
                    self.channels.throttle(slot);
                    return;
                }
                Ok(ReadOutcome::End) => {
                    self.channel_gone(slot, None);
                    return;
                }
                Err(ReadFailure::Channel(fault)) => {
                    self.channel_gone(slot, Some(&fault));
                    return;
                }
                Err(ReadFailure::Session(fault)) => {
                    self.end(Err(fault));
                    return;
                }
                Err(ReadFailure::Damaged) => {
                    self.channel_damaged(slot);
                    return;
                }
            }
            if self.ending.has_ended() {
                break;
            }
            // Acknowledgements and answers must not wait for the end of a long turn.
            self.pump_machines();
        }
        if turn > 0
            && let Some(channel) = self.channels.get_mut(slot)
        {
            channel.heard_at = self.now;
        }
        self.channels.queue(slot);
    }

    fn receive_step(&mut self, slot: usize) -> Result<ReadOutcome, ReadFailure> {
        let Some(channel) = self.channels.get_mut(slot) else {
            return Ok(ReadOutcome::Blocked);
        };
        if channel.incoming.is_some() {
            return self.receive_payload(slot);
        }
        if let Some(cost) = self.parse(slot)? {
            return Ok(ReadOutcome::Again(cost));
        }
        let Some(channel) = self.channels.get_mut(slot) else {
            return Ok(ReadOutcome::Blocked);
        };
        if !channel.readable {
            return Ok(ReadOutcome::Blocked);
        }
        let need = channel
            .input
            .first_chunk::<FRAME_HEADER_BYTES>()
            .and_then(|h| FrameHeader::decode(*h, &self.limits).ok())
            .filter(|h| !h.is_block())
            .map_or(0, |h| FRAME_HEADER_BYTES + h.length as usize);
        match channel.read_input(need) {
            Ok(0) if channel.input.is_empty() => Ok(ReadOutcome::End),
            Ok(0) => Err(ReadFailure::Channel(lost(
                "the peer closed it within a frame",
            ))),
            Ok(n) => {
                channel.frame_since.get_or_insert(self.now);
                Ok(ReadOutcome::Again(n))
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                channel.readable = false;
                Ok(ReadOutcome::Blocked)
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(ReadOutcome::Again(0)),
            Err(e) => Err(ReadFailure::Channel(Fault::from_io(
                "read from a channel",
                "",
                &e,
            ))),
        }
    }

    /// Parses one frame, or the header of a block, and returns its cost. `None` if it is
    /// incomplete.
    fn parse(&mut self, slot: usize) -> Result<Option<usize>, ReadFailure> {
        let Some(channel) = self.channels.get_mut(slot) else {
            return Ok(None);
        };
        let index = channel.index;
        let Some(head) = channel.input.first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        if head[0] == kind::BLOCK {
            match channel.input.first_chunk() {
                Some(header) if BlockHeader::is_sound(header) => {}
                Some(_) => return Err(ReadFailure::Damaged),
                None => return Ok(None),
            }
        } else if head[2..4] != [0, 0] && !channel.guards_headers() {
            // No sender produces this: it is a BLOCK whose kind was damaged in transit.
            return Err(ReadFailure::Damaged);
        }
        let head = FrameHeader::decode(*head, &self.limits)
            .map_err(|e| ReadFailure::Session(e.fault()))?;
        if !head.is_block() {
            let taken = handshake::take_frame(&channel.input, &self.limits);
            let Some((frame, used)) = taken.map_err(ReadFailure::Session)? else {
                return Ok(None);
            };
            channel.consume(used);
            channel.frame_since = (!channel.input.is_empty()).then_some(self.now);
            return self
                .handle_frame(slot, index, frame)
                .map(|()| Some(FRAME_TURN_BYTES))
                .map_err(ReadFailure::Session);
        }
        let Some(bytes) = channel.input.get(FRAME_HEADER_BYTES..BLOCK_HEADER_BYTES) else {
            return Ok(None);
        };
        let mut rest = [0; BLOCK_HEADER_BYTES - FRAME_HEADER_BYTES];
        rest.copy_from_slice(bytes);
        let header =
            BlockHeader::decode(head, rest).map_err(|e| ReadFailure::Session(e.fault()))?;
        if header.length > self.parameters.block_size() {
            return Err(ReadFailure::Session(Fault::new(
                Code::FrameTooLarge,
                "receive a block",
                format!(
                    "a block of {} bytes is over the session's {}",
                    header.length,
                    self.parameters.block_size()
                ),
            )));
        }
        if header.clear {
            self.check_clear(slot).map_err(ReadFailure::Session)?;
        }
        let disposition = self
            .receiver
            .begin_block(index, &header)
            .map_err(ReadFailure::Session)?;
        let Some(channel) = self.channels.get_mut(slot) else {
            return Ok(None);
        };
        channel.consume(BLOCK_HEADER_BYTES);
        channel.frame_since = Some(self.now);
        let kind = match disposition {
            Disposition::Discard => None,
            Disposition::Take(kind) => Some(kind),
        };
        channel.incoming = Some(IncomingBlock {
            hasher: kind.map(|k: DigestKind| {
                BlockHasher::new(k, channel.is_checked(&header), header.offset)
            }),
            remaining: header.length as usize,
            header,
            whole: self.transfers.is_ordered(header.file),
            done: 0,
            lent: false,
            piece: None,
        });
        Ok(Some(0))
    }

    /// Closes a channel with a damaged header. Its unacknowledged blocks go to other channels.
    fn channel_damaged(&mut self, slot: usize) {
        let fault = Fault::new(
            Code::IntegrityMismatch,
            "receive a frame",
            "its header was changed on the way",
        )
        .hint("check the memory and the network cards on the way, then run it again")
        .retry(Retry::Now);
        if self.channels.count_damaged() > DAMAGED_CHANNELS_MAX {
            self.end(Err(fault));
            return;
        }
        if let Some(channel) = self.channels.get_mut(slot) {
            channel.take_leave(&fault);
        }
        self.channel_gone(slot, Some(&fault));
    }

    /// Reads payload of the block that is arriving.
    fn receive_payload(&mut self, slot: usize) -> Result<ReadOutcome, ReadFailure> {
        let Some(channel) = self.channels.get_mut(slot) else {
            return Ok(ReadOutcome::Blocked);
        };
        let Some(incoming) = &mut channel.incoming else {
            return Ok(ReadOutcome::Again(0));
        };
        if !self.bounds.are_open(self.now) {
            return Ok(ReadOutcome::Throttled);
        }
        let allowance = self.bounds.allowance();
        if incoming.piece.is_none() && incoming.done == 0 && incoming.hasher.is_some() {
            let (header, length) = (incoming.header, incoming.remaining);
            if self.transfers.lacks_memory(header.file) {
                let purpose = Purpose::ArrivingPack;
                let is_too_early = self.buffers.is_too_early(purpose, self.now);
                let get = |_: &mut Buffers| self.transfers.get_memory(header.file);
                if self.buffers.ask(purpose, self.now, get).is_none() {
                    let since = channel.frame_since.unwrap_or(self.now);
                    if is_too_early || self.now < since + PACK_PATIENCE {
                        return Ok(ReadOutcome::WithoutPack);
                    }
                    incoming.hasher = None;
                    self.receiver.drop_block(&header);
                    self.store_jobs.wait_for_memory(header.file);
                }
            }
            if let Some(memory) = self.transfers.lend(header.file, header.offset, length) {
                incoming.lent = true;
                incoming.piece = Some((memory, 0));
            }
        }
        if incoming.piece.is_none() {
            match self.buffers.take_to_receive(self.now) {
                Some(buffer) => incoming.piece = Some((buffer, 0)),
                None => {
                    if !self.buffers.are_at_storage() {
                        self.release_pieces();
                    }
                    return Ok(ReadOutcome::Starved);
                }
            }
        }
        // Payload that was read together with earlier frames.
        if !channel.input.is_empty() {
            let Some(incoming) = &mut channel.incoming else {
                return Ok(ReadOutcome::Again(0));
            };
            if let Some((buffer, filled)) = &mut incoming.piece {
                let n = channel
                    .input
                    .len()
                    .min(incoming.remaining)
                    .min(buffer.len() - *filled);
                buffer[*filled..*filled + n].copy_from_slice(&channel.input[..n]);
                *filled += n;
                incoming.remaining -= n;
                channel.consume(n);
                self.bounds.take(n as u64, self.now);
                self.moved.received_bytes += n as u64;
            }
            return self.finish_piece(slot, true, 0);
        }
        if !channel.readable {
            return Ok(ReadOutcome::Blocked);
        }
        match channel.read_payload(allowance) {
            Ok(None) => Ok(ReadOutcome::Again(0)),
            Ok(Some((n, complete))) => {
                self.bounds.take(n as u64, self.now);
                self.moved.received_bytes += n as u64;
                self.finish_piece(slot, complete, n)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                channel.readable = false;
                // A channel without data gives its empty buffer to the others.
                if let Some(buffer) = channel.take_empty_piece() {
                    self.buffers.give_received(buffer);
                }
                Ok(ReadOutcome::Blocked)
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(ReadOutcome::Again(0)),
            Err(e) => Err(ReadFailure::Channel(Fault::from_io(
                "read from a channel",
                "",
                &e,
            ))),
        }
    }

    /// Passes a piece on if it is full, ends its block, or occupies a buffer that others need.
    fn finish_piece(
        &mut self,
        slot: usize,
        complete: bool,
        n: usize,
    ) -> Result<ReadOutcome, ReadFailure> {
        let Some(channel) = self.channels.get_mut(slot) else {
            return Ok(ReadOutcome::Blocked);
        };
        let Some(incoming) = &channel.incoming else {
            return Ok(ReadOutcome::Again(n));
        };
        let full = incoming
            .piece
            .as_ref()
            .is_some_and(|(b, filled)| *filled == b.len());
        if incoming.remaining == 0
            || full
            || (!complete && !incoming.whole && !incoming.lent && self.buffers.are_scarce(self.now))
        {
            self.pass_on(slot);
        }
        Ok(ReadOutcome::Again(n))
    }

    /// Hashes the current piece and gives it to the storage thread; ends the block if it is the
    /// last. The last piece of a damaged block is not written; what is written of the others is
    /// replaced when the block comes again.
    fn pass_on(&mut self, slot: usize) {
        let Some(channel) = self.channels.get_mut(slot) else {
            return;
        };
        let Some(incoming) = &channel.incoming else {
            return;
        };
        let header = incoming.header;
        let (index, check) = (channel.index, channel.is_checked(&header));
        let Some(incoming) = &mut channel.incoming else {
            return;
        };
        let Some((buffer, len)) = incoming.piece.take() else {
            return;
        };
        let offset = header.offset + incoming.done as u64;
        incoming.done += len;
        let lent = std::mem::take(&mut incoming.lent);
        let wanted = incoming.hasher.is_some();
        if let Some(hasher) = &mut incoming.hasher {
            hasher.update(&buffer[..len]);
        }
        let ends = incoming.remaining == 0;
        let hasher = if ends { incoming.hasher.take() } else { None };
        if ends {
            channel.incoming = None;
            channel.frame_since = None;
        }
        let (fragment, wrong) = hasher.map_or((None, false), |hasher| {
            let (value, fragment) = hasher.finish(header.file);
            let wrong = check && value != header.check;
            ((!wrong).then_some(fragment), wrong)
        });
        let taken = wanted && len > 0 && !wrong && self.receiver.has_file(header.file);
        if lent {
            self.transfers.take_back(header.file, buffer, !wrong);
        } else if taken
            && self
                .transfers
                .write_pack(header.file, offset, &buffer[..len])
        {
            self.buffers.give_received(buffer);
        } else if taken {
            let file = header.file;
            self.buffers.lend_to_storage();
            self.storage.submit(
                file,
                SinkJob::Write {
                    file,
                    offset,
                    buffer,
                    len,
                },
            );
        } else {
            self.buffers.give_received(buffer);
        }
        if ends {
            self.end_block(index, &header, fragment, wrong);
        }
        self.process_completions();
    }

    fn end_block(
        &mut self,
        index: ChannelIndex,
        header: &BlockHeader,
        fragment: Option<Fragment>,
        wrong: bool,
    ) {
        let file = header.file;
        if wrong {
            tracing::warn!(channel = %index, %file, offset = header.offset,
                "the check value of a block is wrong; it is requested again");
        } else if fragment.is_none() {
            self.count_again(file, header.length.into());
        }
        let new = self.receiver.end_block(index, header, fragment, wrong);
        if let (true, Some(fragment)) = (new, fragment) {
            let held = SinkJob::Held {
                file,
                fragment,
                late: header.clear || self.receiver.is_open_end(file, fragment.range.end),
            };
            self.storage.submit(file, held);
        }
    }

    /// Counts bytes of a download that are received more than once.
    pub(super) fn count_again(&mut self, file: FileId, bytes: u64) {
        if let Some(tally) = &self.moved.tally {
            tally.repeated(bytes);
        }
        if let Some(transfer) = self.transfers.started_mut(file) {
            transfer.count_again(bytes);
        }
    }

    /// Passes on the partly filled pieces of slow channels, so that their buffers become free.
    fn release_pieces(&mut self) {
        for slot in 0..self.channels.slots_end() {
            let holds = self.channels.get(slot).is_some_and(|c| {
                c.incoming.as_ref().is_some_and(|i| {
                    !i.whole && !i.lent && i.piece.as_ref().is_some_and(|(_, n)| *n > 0)
                })
            });
            if holds {
                self.pass_on(slot);
            }
        }
    }
}

fn lost(cause: &str) -> Fault {
    Fault::new(Code::ConnectionLost, "read from a channel", cause)
}
