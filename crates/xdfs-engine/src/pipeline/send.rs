//! Outgoing blocks: any channel that can take one gets the next.

use xdfs_proto::digest::BlockHasher;
use xdfs_proto::frame::{BlockHeader, Frame, Hole};
use xdfs_proto::sender::Extent;
use xdfs_proto::{ChannelIndex, Fault};

use super::Pipeline;
use super::read::{ExtentRead, became_shorter};
use crate::channel::{Payload, Written};
use crate::kernel::Kernel;
use crate::reader::ReadBlock;

/// Blocks that a channel may send before the others get their turn.
const TURN_BLOCKS: usize = 4;

/// The result of sending an extent.
enum SendOutcome {
    /// A block or a hole was sent.
    Block,
    /// The source has no data yet, has ended, or failed; another file may proceed.
    Later,
    /// Nothing was sent.
    Nothing,
}

impl<K: Kernel> Pipeline<K> {
    /// Writes pending bytes, then gives blocks to the channels that can take them.
    pub(super) fn send_all(&mut self) {
        self.sends_more = false;
        if !self.slow_sources.is_empty() {
            self.process_reads();
        }
        for _ in 0..self.channels.writing_count() {
            let Some((slot, channel)) = self.channels.next_writing() else {
                break;
            };
            if matches!(channel.phase, crate::channel::Phase::Connecting) {
                self.continue_opening(slot);
                continue;
            }
            self.flush(slot);
        }
        if !self.is_started || self.ending.has_ended() {
            return;
        }
        let mut turns = self.channels.idle_count().max(1) * TURN_BLOCKS;
        // Channels that get no block keep their places in the queue.
        let mut passed = Vec::new();
        let mut is_any_late = false;
        while turns > 0 && !self.sender.is_idle() && self.is_rate_open() {
            turns -= 1;
            let Some(slot) = self.next_idle() else { break };
            if self.would_be_late(slot) {
                is_any_late = true;
                passed.push(slot);
            } else if self.send_block(slot) {
                // The other channel has more to do now.
                self.sends_more |= is_any_late;
            } else {
                passed.push(slot);
                // Only bytes ahead of ACCEPT are bound to a channel, so another one may get a
                // block.
                if !self.sender.is_ahead() {
                    break;
                }
            }
        }
        self.sends_more |= turns == 0;
        for slot in passed.into_iter().rev() {
            self.channels.put_back_idle(slot);
        }
    }

    /// The channel that gets the next block, without those that are leaving.
    fn next_idle(&mut self) -> Option<usize> {
        while let Some((slot, index)) = self.channels.next_idle() {
            if !self.channel_set.is_leaving(index) {
                return Some(slot);
            }
        }
        None
    }

    /// Whether the next block on a channel is better left to others. Within one machine and on
    /// short paths channels don't differ for long.
    fn would_be_late(&self, slot: usize) -> bool {
        let index = self.channels.get(slot).map(|channel| channel.index);
        self.network_path.is_long()
            && index.is_some_and(|index| self.sender.would_be_late(index, self.now))
    }

    /// Sends the next block on a channel. `false` if there is none.
    fn send_block(&mut self, slot: usize) -> bool {
        let Some(channel) = self.channels.get(slot) else {
            return false;
        };
        let index = channel.index;
        if let Some(block) = self.next_read()
            && self.send_read(slot, block)
        {
            return true;
        }
        while let Some(extent) = self.sender.next_extent(index) {
            match self.send_extent(slot, extent) {
                SendOutcome::Block => return true,
                SendOutcome::Nothing => return false,
                SendOutcome::Later => {}
            }
        }
        // The end of the pack before goes first: the peer may have memory for only one of them.
        self.pump_machines();
        let Some(offer) = self.sender.next_pack(index) else {
            return self.send_late_block(slot, index);
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

    /// Sends a block again that a slow channel would deliver much later. `false` if there is none.
    fn send_late_block(&mut self, slot: usize, index: ChannelIndex) -> bool {
        if !self.network_path.is_long() {
            return false;
        }
        let round_trip = self.network_path.present_round_trip();
        let can_be_read_again = |file| self.transfers.can_be_read_again(file);
        let sender = &mut self.sender;
        let late = sender.next_late_extent(index, self.now, round_trip, can_be_read_again);
        late.is_some_and(|extent| matches!(self.send_extent(slot, extent), SendOutcome::Block))
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
                self.sender.fail(extent.file, fault.local());
                return SendOutcome::Later;
            }
        };
        match read {
            ExtentRead::Later | ExtentRead::Nothing => return SendOutcome::Later,
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

    /// Sends a block on a channel that a worker has read.
    fn send_read(&mut self, slot: usize, block: ReadBlock) -> bool {
        let ReadBlock {
            mut extent,
            memory,
            mut value,
            mut fragment,
            check: is_checked,
            ..
        } = block;
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
        let (wanted, came) = (extent.range.len(), memory.filled().len() as u64);
        extent.range.end = extent.range.start + came;
        if came < wanted && length.is_some() {
            self.transfers.close_source(file);
            self.sender.fail(file, became_shorter());
            return false;
        }
        if came > 0 {
            // It was read for another channel.
            if check != is_checked {
                let mut hasher = BlockHasher::new(kind, check, extent.range.start);
                hasher.update(memory.filled());
                (value, fragment) = hasher.finish(file);
            }
            if !extent.is_resend {
                self.sender.extent_read(file, fragment);
            }
            self.put_block(slot, extent, clear, value, Payload::Read(memory));
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
            self.moved.sent_bytes += len;
            channel.begin_block(&header, payload);
        }
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

    /// Takes back the memory of a written block.
    pub(super) fn take_back(&mut self, payload: Payload) {
        match payload {
            // A channel opened before the block size was agreed on sends no blocks.
            Payload::Pooled(buffer) => self.buffers.give_sent(buffer),
            Payload::Read(memory) => self.buffers.give_read(memory),
            Payload::Owned(_) | Payload::Shared(_) | Payload::Source(..) => {}
        }
    }
}
