//! Outgoing blocks: any channel that can take one gets the next.

use xdfs_proto::digest::BlockHasher;
use xdfs_proto::frame::{BlockHeader, Frame, Hole};
use xdfs_proto::sender::Extent;
use xdfs_proto::{ByteRange, Code, Fault, FileId};

use super::Pipeline;
use super::buffers::PIECE_BYTES;
use super::buffers::SEND_POOL_BYTES;
use super::source::{Reader, Verification};
use crate::channel::{Payload, Written};
use crate::feeder::{Feeder, FeederPoll};
use crate::kernel::Kernel;
use crate::reader::ReaderEvent;

/// How far ahead of its use data is announced to the store, in bytes.
const READ_AHEAD_BYTES: u64 = 16 << 20;
/// How much is announced at once, in bytes.
const READ_AHEAD_STEP: u64 = 4 << 20;
/// Blocks that a channel may send before the others get their turn.
const TURN_BLOCKS: usize = 4;

/// The result of sending an extent.
enum SendOutcome {
    /// A block or a hole was sent.
    Block,
    /// The source has no data yet; another file may proceed.
    Later,
    /// Nothing was sent.
    Nothing,
}

/// The result of reading an extent for sending.
enum ExtentRead {
    /// A block to send.
    Block {
        extent: Extent,
        check: u32,
        payload: Payload,
    },
    /// A hole to send.
    Hole(Extent),
    /// The source has no data yet; another file may proceed.
    Later,
    /// The source has ended.
    Nothing,
    /// No buffer is free.
    Starved,
}

impl<K: Kernel> Pipeline<K> {
    /// Writes pending bytes, then gives blocks to the channels that can take them.
    pub(super) fn send_all(&mut self) {
        if !self.slow_sources.is_empty() {
            self.process_reads();
        }
        for _ in 0..self.channels.writing_count() {
            let Some((slot, channel)) = self.channels.next_writing() else {
                break;
            };
            if matches!(channel.phase, crate::channel::Phase::Connecting(_)) {
                self.continue_opening(slot);
                continue;
            }
            self.flush(slot);
        }
        self.send_turn_used_up = false;
        if !self.is_started || self.ending.has_ended() {
            return;
        }
        let mut turns = self.channels.idle_count().max(1) * TURN_BLOCKS;
        // Channels that get no block keep their places in the queue.
        let mut passed = Vec::new();
        while turns > 0 && !self.sender.is_idle() && self.is_rate_open() {
            turns -= 1;
            let Some(slot) = self.next_idle() else { break };
            if !self.send_block(slot) {
                passed.push(slot);
                // Only bytes ahead of ACCEPT are bound to a channel, so another one may get a
                // block.
                if !self.sender.is_ahead() {
                    break;
                }
            }
        }
        self.send_turn_used_up = turns == 0;
        for slot in passed.into_iter().rev() {
            self.channels.put_back_idle(slot);
        }
    }

    /// The channel that has waited longest for a block, without those that are leaving.
    fn next_idle(&mut self) -> Option<usize> {
        while let Some((slot, index)) = self.channels.next_idle() {
            if !self.channel_set.is_leaving(index) {
                return Some(slot);
            }
        }
        None
    }

    /// Sends the next block on a channel. `false` if there is none.
    fn send_block(&mut self, slot: usize) -> bool {
        let Some(channel) = self.channels.get(slot) else {
            return false;
        };
        let index = channel.index;
        if let Some((extent, bytes)) = self.next_read() {
            return self.send_read(slot, extent, bytes);
        }
        while let Some(extent) = self.sender.next_extent(index) {
            match self.send_extent(slot, extent) {
                SendOutcome::Block => return true,
                SendOutcome::Nothing => return false,
                SendOutcome::Later => {}
            }
        }
        let Some(offer) = self.sender.next_pack(index) else {
            return false;
        };
        if let Frame::Offer(offer) = &offer {
            self.network_path.offered(offer.file, self.now);
        }
        if let Some(channel) = self.channels.get_mut(slot) {
            channel.push(&offer);
        }
        let extent = self.sender.next_extent(index);
        let sent = extent.map(|extent| self.send_extent(slot, extent));
        if !matches!(sent, Some(SendOutcome::Block)) {
            self.flush(slot);
        }
        true
    }

    /// Reads an extent and sends it on a channel.
    fn send_extent(&mut self, slot: usize, extent: Extent) -> SendOutcome {
        let Some(channel) = self.channels.get(slot) else {
            self.sender.put_back(extent);
            return SendOutcome::Nothing;
        };
        let clear = channel.is_clear(self.sender.may_be_clear(extent));
        let (index, check) = (channel.index, channel.checks(clear));
        let read = match self.read_extent(extent, check) {
            Ok(read) => read,
            Err(fault) => {
                self.transfers.close_source(extent.file);
                self.sender.fail(extent.file, fault);
                return SendOutcome::Nothing;
            }
        };
        match read {
            ExtentRead::Later => return SendOutcome::Later,
            ExtentRead::Nothing => return SendOutcome::Nothing,
            ExtentRead::Starved => {
                self.sender.put_back(extent);
                return SendOutcome::Nothing;
            }
            ExtentRead::Hole(extent) => {
                self.sender.assign(index, extent, self.now);
                if let Some(channel) = self.channels.get_mut(slot) {
                    channel.push(&Frame::Hole(Hole {
                        file: extent.file,
                        range: extent.range,
                    }));
                }
            }
            ExtentRead::Block {
                extent,
                check,
                payload,
            } => self.put_block(slot, extent, clear, check, payload),
        }
        self.flush(slot);
        SendOutcome::Block
    }

    /// Sends a block on a channel that a worker has read from a slow source.
    fn send_read(&mut self, slot: usize, mut extent: Extent, bytes: Vec<u8>) -> bool {
        let file = extent.file;
        let Some(channel) = self.channels.get(slot) else {
            return false;
        };
        let clear = channel.is_clear(self.sender.may_be_clear(extent));
        let check = channel.checks(clear);
        let Some(kind) = self.transfers.source_mut(file).map(|open| open.digest) else {
            return false;
        };
        let (_, length) = self.sender.shape(file).unwrap_or((1, None));
        let (wanted, came) = (extent.range.len(), bytes.len() as u64);
        extent.range.end = extent.range.start + came;
        if came < wanted && length.is_some() {
            self.transfers.close_source(file);
            self.sender.fail(file, became_shorter());
            return false;
        }
        if came > 0 {
            let mut hasher = BlockHasher::new(kind, check, extent.range.start);
            hasher.update(&bytes);
            let (value, fragment) = hasher.finish(file);
            if !extent.is_resend {
                self.sender.extent_read(file, fragment);
            }
            self.put_block(slot, extent, clear, value, Payload::Owned(bytes));
        }
        if came < wanted {
            self.sender.source_ended(file, extent.range.end);
        }
        self.flush(slot);
        came > 0
    }

    /// Gives a block to a channel that is not sending one.
    fn put_block(
        &mut self,
        slot: usize,
        extent: Extent,
        clear: bool,
        check: u32,
        payload: Payload,
    ) {
        let len = extent.range.len();
        let header = BlockHeader {
            file: extent.file,
            check,
            clear,
            offset: extent.range.start,
            // A block is never longer than the session's block size, a `u32`.
            length: u32::try_from(len).unwrap_or(u32::MAX),
        };
        if let Some(channel) = self.channels.get_mut(slot) {
            self.sender.assign(channel.index, extent, self.now);
            self.bounds.take(len, self.now);
            channel.send(&header, payload);
        }
    }

    /// Handles the results of slow sources, and resumes files whose sources have data again.
    fn process_reads(&mut self) {
        let is_full = !self.has_room_for_reads();
        for file in self.slow_sources.take() {
            let Some(open) = self.transfers.source_mut(file) else {
                continue;
            };
            let reader = match &mut open.reader {
                Reader::Random(_) | Reader::Stream(_, None) => continue,
                Reader::Stream(_, Some(feeder)) => {
                    match feeder.is_ready() {
                        true => self.sender.pause(file, false),
                        false => self.slow_sources.wait_for(file),
                    }
                    continue;
                }
                Reader::Slow(reader) => reader,
            };
            let (mut failure, mut unchanged) = (None, None);
            while let Some(answer) = reader.poll() {
                match answer {
                    Ok(ReaderEvent::Read(store_wait)) => open.store_wait += store_wait,
                    Ok(ReaderEvent::Unchanged) => unchanged = Some(()),
                    Err(fault) => failure = Some(fault),
                }
            }
            self.sender.pause(file, is_full || !reader.has_room());
            let asked = matches!(open.verification, Verification::Asked(_));
            if failure.is_none() && (is_full || asked || !reader.is_idle()) {
                self.slow_sources.wait_for(file);
            }
            let frame = unchanged.and_then(|()| {
                let unchanged = Verification::Unchanged;
                match std::mem::replace(&mut open.verification, unchanged) {
                    Verification::Asked(frame) => Some(frame),
                    _ => None,
                }
            });
            if let Some(fault) = failure {
                if asked {
                    // The machine may repeat EOFR until the receiver knows of the failure.
                    open.verification = Verification::Failed(fault.clone());
                } else {
                    self.transfers.close_source(file);
                }
                self.sender.fail(file, fault);
            } else if let Some(frame) = frame {
                self.transmit_end(frame);
            }
        }
    }

    /// Whether workers may read one more block. Their memory is bounded for all files of the
    /// session together, as that of the session thread is.
    fn has_room_for_reads(&mut self) -> bool {
        let mut held = 0;
        for file in self.slow_sources.iter() {
            if let Some(open) = self.transfers.source_mut(file)
                && let Reader::Slow(reader) = &open.reader
            {
                held += reader.held_bytes();
            }
        }
        held == 0 || held + u64::from(self.parameters.block_size()) <= SEND_POOL_BYTES as u64
    }

    /// A block read from a slow source, of the file with the lowest number.
    fn next_read(&mut self) -> Option<(Extent, Vec<u8>)> {
        for file in self.slow_sources.iter() {
            if let Some(open) = self.transfers.source_mut(file)
                && let Reader::Slow(reader) = &mut open.reader
                && let Some(read) = reader.next()
            {
                self.sender.pause(file, !reader.has_room());
                return Some(read);
            }
        }
        None
    }

    /// Writes the pending bytes of a channel, as far as it takes them.
    pub(super) fn flush(&mut self, slot: usize) {
        loop {
            let Some(channel) = self.channels.get_mut(slot) else {
                return;
            };
            self.timers.sent(self.now);
            match channel.write() {
                Ok(Written::All(payload)) => {
                    if let Some(payload) = payload {
                        self.take_back(payload);
                    }
                    break;
                }
                Ok(Written::Block(payload)) => {
                    if let Some(payload) = payload {
                        self.take_back(payload);
                    }
                }
                Ok(Written::Blocked) => {
                    channel.writable = false;
                    return;
                }
                Err(error) => {
                    let fault = Fault::from_io("write to a channel", "", &error);
                    self.channel_gone(slot, Some(&fault));
                    return;
                }
            }
        }
        self.channels.queue(slot);
    }

    /// Takes back the buffer of a written block.
    pub(super) fn take_back(&mut self, payload: Payload) {
        if let Payload::Pooled(buffer) = payload {
            // A channel opened before the block size was agreed on sends no blocks.
            self.buffers.give_sent(buffer);
        }
    }

    /// Reads an extent for sending, with its check value and digest state. The data comes from a
    /// stream, a worker, the source's own memory, a shared uniform block, or a read into a pooled
    /// buffer.
    fn read_extent(&mut self, mut extent: Extent, check: bool) -> Result<ExtentRead, Fault> {
        let file = extent.file;
        let has_room = self.slow_sources.is_empty() || self.has_room_for_reads();
        let Some(open) = self.transfers.source_mut(file) else {
            return Err(Fault::new(Code::Internal, "read the source", "not open"));
        };
        let source = match &mut open.reader {
            Reader::Stream(..) => return self.read_streamed_extent(extent, check),
            Reader::Slow(_) if !has_room => {
                self.sender.put_back(extent);
                self.sender.pause(file, true);
                self.slow_sources.wait_for(file);
                return Ok(ExtentRead::Later);
            }
            Reader::Slow(reader) => {
                reader.read(extent, open.offset + extent.range.start);
                self.sender.pause(file, !reader.has_room());
                self.slow_sources.wait_for(file);
                return Ok(ExtentRead::Later);
            }
            Reader::Random(source) => source,
        };
        let len = extent.range.len() as usize;
        let (grid, length) = self.sender.shape(file).unwrap_or((1, None));
        if source.is_uniform() {
            let kind = open.digest;
            let (check, fragment, bytes) = self.uniform.get(kind, check, file, extent.range);
            if !extent.is_resend {
                self.sender.extent_read(file, fragment);
            }
            let payload = Payload::Shared(bytes);
            return Ok(ExtentRead::Block {
                extent,
                check,
                payload,
            });
        }
        if let Some(memory) = source.memory() {
            let start = usize::try_from(open.offset + extent.range.start).unwrap_or(usize::MAX);
            let bytes = memory
                .get(start..start.saturating_add(len))
                .unwrap_or_default();
            let mut hasher = BlockHasher::new(open.digest, check, extent.range.start);
            hasher.update(bytes);
            let (check, fragment) = hasher.finish(file);
            if !extent.is_resend {
                self.sender.extent_read(file, fragment);
            }
            let payload = Payload::Source(memory, start);
            return Ok(ExtentRead::Block {
                extent,
                check,
                payload,
            });
        }
        let base = open.offset;
        let end = length.unwrap_or(u64::MAX);
        if !extent.is_resend && extent.range.end > open.data_until && length.is_some() {
            let from = base + extent.range.start;
            let data = source.next_data(from, base + end)?;
            let (start, until) =
                data.map_or((end, end), |d| (d.start.saturating_sub(base), d.end - base));
            let aligned = if start >= end {
                end
            } else {
                start - start % grid
            };
            if aligned >= extent.range.end {
                extent.range = self.sender.widen_hole(extent, aligned);
                // The rest is searched again: a hole may be longer than one frame allows.
                open.data_until = extent.range.end;
                self.sender.hole_read(file, extent.range);
                return Ok(ExtentRead::Hole(extent));
            }
            open.data_until = if start >= end { end } else { until };
        }
        let Some(mut buffer) = self.buffers.take_to_send() else {
            return Ok(ExtentRead::Starved);
        };
        if extent.range.end + READ_AHEAD_BYTES > open.announced && length.is_some() {
            let from = open.announced.max(extent.range.end);
            let to = (from + READ_AHEAD_STEP).min(end);
            if from < to && from < extent.range.end + READ_AHEAD_BYTES {
                source.will_read(ByteRange {
                    start: base + from,
                    end: base + to,
                });
                open.announced = to;
            }
        }
        let mut hasher = BlockHasher::new(open.digest, check, extent.range.start);
        let (mut n, mut failed) = (0, None);
        // In pieces, so that data is hashed while it is in the cache.
        for piece in buffer[..len].chunks_mut(PIECE_BYTES) {
            let start = self.environment.now();
            let read = source.read_at(base + extent.range.start + n as u64, piece);
            open.store_wait += self.environment.now() - start;
            match read {
                Ok(read) => {
                    hasher.update(&piece[..read]);
                    n += read;
                    if read < piece.len() {
                        break;
                    }
                }
                Err(fault) => {
                    failed = Some(fault);
                    break;
                }
            }
        }
        if let Some(fault) = failed {
            self.buffers.give_sent(buffer);
            return Err(fault);
        }
        if n < len {
            if length.is_some() {
                self.buffers.give_sent(buffer);
                return Err(became_shorter());
            }
            if n == 0 {
                self.buffers.give_sent(buffer);
                self.sender.source_ended(file, extent.range.start);
                return Ok(ExtentRead::Nothing);
            }
            extent.range.end = extent.range.start + n as u64;
        }
        let (value, fragment) = hasher.finish(file);
        if !extent.is_resend {
            self.sender.extent_read(file, fragment);
        }
        if n < len {
            self.sender.source_ended(file, extent.range.end);
        }
        Ok(ExtentRead::Block {
            extent,
            check: value,
            payload: Payload::Pooled(buffer),
        })
    }

    /// [`Self::read_extent`] for a source that can only be read in order.
    fn read_streamed_extent(
        &mut self,
        mut extent: Extent,
        check: bool,
    ) -> Result<ExtentRead, Fault> {
        let file = extent.file;
        if extent.is_resend {
            return Err(Fault::new(
                Code::ConnectionLost,
                "send the stream again",
                "a block was lost, and the source can be read only once",
            ));
        }
        let (notifier, ids) = (self.kernel.notifier(), self.ids.clone());
        let environment = &*self.environment;
        let grid = self
            .sender
            .shape(file)
            .map_or_else(|| self.parameters.block_size().into(), |(grid, _)| grid);
        let Some(open) = self.transfers.source_mut(file) else {
            return Ok(ExtentRead::Nothing);
        };
        let Reader::Stream(source, feeder) = &mut open.reader else {
            return Ok(ExtentRead::Nothing);
        };
        if let Some(source) = source.take() {
            *feeder = Some(Feeder::start(
                environment,
                source,
                grid as usize,
                notifier,
                ids,
            )?);
        }
        let fed = feeder.as_mut().map_or(Ok(FeederPoll::Wait), Feeder::next)?;
        match fed {
            FeederPoll::Wait => {
                self.sender.put_back(extent);
                self.sender.pause(file, true);
                self.slow_sources.wait_for(file);
                Ok(ExtentRead::Later)
            }
            FeederPoll::End => {
                self.sender.source_ended(file, extent.range.start);
                Ok(ExtentRead::Nothing)
            }
            FeederPoll::Block(block) => {
                extent.range.end = extent.range.start + block.len() as u64;
                let mut hasher = BlockHasher::new(open.digest, check, extent.range.start);
                hasher.update(&block);
                let (value, fragment) = hasher.finish(file);
                self.sender.extent_read(file, fragment);
                if block.len() < grid as usize {
                    self.sender.source_ended(file, extent.range.end);
                }
                Ok(ExtentRead::Block {
                    extent,
                    check: value,
                    payload: Payload::Owned(block),
                })
            }
        }
    }

    /// Verifies that the source is still what was offered, before `end`, the EOFR of a file, is
    /// sent. `false` if a worker verifies it: the frame is sent when the worker has finished.
    pub(super) fn verify_source(&mut self, file: FileId, end: &Frame) -> Result<bool, Fault> {
        let Some(open) = self.transfers.source_mut(file) else {
            return Ok(true);
        };
        // EOFR is repeated after the loss of a channel, when the receiver may already have
        // published the file.
        match (&mut open.reader, &open.verification) {
            (Reader::Stream(..), _) | (_, Verification::Unchanged) => return Ok(true),
            (_, Verification::Asked(_)) => return Ok(false),
            (_, Verification::Failed(fault)) => return Err(fault.clone()),
            (Reader::Random(source), Verification::NotAsked) => {
                if let Err(fault) = source.verify_unchanged() {
                    // This is final, even if the source looks unchanged later.
                    open.verification = Verification::Failed(fault.clone());
                    return Err(fault);
                }
                open.verification = Verification::Unchanged;
                return Ok(true);
            }
            (Reader::Slow(reader), Verification::NotAsked) => {
                reader.verify();
                open.verification = Verification::Asked(end.clone());
            }
        }
        self.slow_sources.wait_for(file);
        Ok(false)
    }
}

fn became_shorter() -> Fault {
    let cause = "it became shorter while it was read";
    Fault::new(Code::SourceChanged, "read the source", cause)
}
