//! The channels of a session, in slots, with queues of those that are ready to read, write or send
//! blocks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use xdfs_proto::ChannelIndex;
use xdfs_proto::frame::Frame;

use crate::channel::{Channel, Phase};

/// Bytes of frames that are sent behind the opening exchange without an answer to it. An acceptor
/// that refuses the session has read about as many, so that its reason isn't lost with the
/// connection.
const AHEAD_BYTES_MAX: usize = 2 << 10;

/// Channels of which each has its turn within one machine, too.
const FEW_CHANNELS: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Channels {
    slots: Vec<Option<Channel>>,
    free: Vec<usize>,
    by_index: BTreeMap<ChannelIndex, usize>,
    used: BTreeSet<ChannelIndex>,
    readable: VecDeque<usize>,
    /// Channels with pending output.
    writing: VecDeque<usize>,
    /// Channels that can take a block.
    idle: VecDeque<usize>,
    /// All lead within this machine.
    is_local: bool,
    /// Channels that wait for a buffer, longest waiting first.
    starved: VecDeque<usize>,
    /// Channels that wait for the memory of a pack.
    without_pack: Vec<usize>,
    /// Channels delayed by the rate limit.
    throttled: Vec<usize>,
    /// Frames for the next channel that opens.
    unrouted_frames: VecDeque<Frame>,
    /// Number of these, from the first, that went ahead on a channel that is being opened.
    ahead: usize,
    /// Number of channels closed because of a damaged header.
    damaged: u32,
}

impl Channels {
    pub(super) fn get(&self, slot: usize) -> Option<&Channel> {
        self.slots.get(slot)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Channel> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// All channels with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Channel)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, channel)| Some((slot, channel.as_ref()?)))
    }

    /// The open channels with their slots.
    pub(super) fn open(&self) -> impl Iterator<Item = (usize, &Channel)> {
        self.iter().filter(|(_, channel)| channel.is_open())
    }

    /// One past the last slot.
    pub(super) fn slots_end(&self) -> usize {
        self.slots.len()
    }

    /// The slot of the next channel.
    pub(super) fn vacant(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    /// Inserts a channel at the [vacant](Self::vacant) slot.
    pub(super) fn insert(&mut self, channel: Channel) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(channel);
        self.queue(slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<Channel> {
        let channel = self.slots.get_mut(slot).and_then(Option::take)?;
        self.by_index.remove(&channel.index);
        self.free.push(slot);
        Some(channel)
    }

    /// Registers the index of a channel that is open. Indices are never reused.
    pub(super) fn opened(&mut self, index: ChannelIndex, slot: usize) {
        self.used.insert(index);
        self.by_index.insert(index, slot);
    }

    /// Whether a channel with this index has ever been open.
    pub(super) fn was_used(&self, index: ChannelIndex) -> bool {
        self.used.contains(&index)
    }

    /// Counts a channel closed because of a damaged header, and returns the count.
    pub(super) fn count_damaged(&mut self) -> u32 {
        self.damaged += 1;
        self.damaged
    }

    /// The slot of an open channel.
    pub(super) fn slot_of(&self, index: ChannelIndex) -> Option<usize> {
        self.by_index.get(&index).copied()
    }

    /// Queues a channel according to its state, after a change.
    pub(super) fn queue(&mut self, slot: usize) {
        let Some(Some(channel)) = self.slots.get_mut(slot) else {
            return;
        };
        let has_input = !channel.input.is_empty() && !channel.awaits_rest;
        let wants_read = channel.readable || (channel.is_open() && has_input);
        if wants_read && !channel.read_queued && !channel.starved && !channel.throttled {
            channel.read_queued = true;
            self.readable.push_back(slot);
        }
        if !channel.writable {
            return;
        }
        let connecting = matches!(channel.phase, Phase::Connecting);
        if connecting || channel.has_pending() {
            if !channel.write_queued {
                channel.write_queued = true;
                self.writing.push_back(slot);
            }
        } else if channel.is_open() && !channel.idle_queued {
            channel.idle_queued = true;
            match self.is_local && self.by_index.len() > FEW_CHANNELS {
                true => self.idle.push_front(slot),
                false => self.idle.push_back(slot),
            }
        }
    }

    /// Within one machine channels don't differ, and one that was just used has its state in the
    /// processor's cache: of a thousand, few are used as long as they take what is there.
    pub(super) fn set_local(&mut self, is_local: bool) {
        self.is_local = is_local;
    }

    /// Whether any channel is ready to be read or written.
    pub(super) fn are_busy(&self) -> bool {
        !self.readable.is_empty() || !self.writing.is_empty()
    }

    /// Length of the queue of readable channels, including stale entries.
    pub(super) fn readable_count(&self) -> usize {
        self.readable.len()
    }

    /// The next readable channel.
    pub(super) fn next_readable(&mut self) -> Option<(usize, &mut Channel)> {
        while let Some(slot) = self.readable.pop_front() {
            if let Some(Some(channel)) = self.slots.get_mut(slot) {
                channel.read_queued = false;
                return self.get_mut(slot).map(|channel| (slot, channel));
            }
        }
        None
    }

    /// Length of the queue of channels with pending output, including stale entries.
    pub(super) fn writing_count(&self) -> usize {
        self.writing.len()
    }

    /// The next channel with pending output.
    pub(super) fn next_writing(&mut self) -> Option<(usize, &mut Channel)> {
        while let Some(slot) = self.writing.pop_front() {
            if let Some(Some(channel)) = self.slots.get_mut(slot) {
                channel.write_queued = false;
                return self.get_mut(slot).map(|channel| (slot, channel));
            }
        }
        None
    }

    /// Whether any channel can take a block.
    pub(super) fn are_any_idle(&self) -> bool {
        let open = |slot: &usize| self.get(*slot);
        self.idle.iter().filter_map(open).any(Channel::takes_block)
    }

    /// Length of the queue of idle channels, including stale entries.
    pub(super) fn idle_count(&self) -> usize {
        self.idle.len()
    }

    /// The channel that gets the next block: the one that has waited longest, but among many
    /// within one machine.
    pub(super) fn next_idle(&mut self) -> Option<(usize, ChannelIndex)> {
        while let Some(slot) = self.idle.pop_front() {
            let Some(Some(channel)) = self.slots.get_mut(slot) else {
                continue;
            };
            channel.idle_queued = false;
            if channel.takes_block() {
                return Some((slot, channel.index));
            }
        }
        None
    }

    /// Returns a channel to the front of the queue: there was no block for it.
    pub(super) fn put_back_idle(&mut self, slot: usize) {
        if let Some(Some(channel)) = self.slots.get_mut(slot)
            && !channel.idle_queued
        {
            channel.idle_queued = true;
            self.idle.push_front(slot);
        }
    }

    /// Marks a channel as waiting for a buffer.
    pub(super) fn starve(&mut self, slot: usize) {
        if let Some(Some(channel)) = self.slots.get_mut(slot) {
            channel.starved = true;
            self.starved.push_back(slot);
        }
    }

    /// Whether any channel waits for a buffer.
    pub(super) fn are_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Marks a channel as waiting for the memory of a pack.
    pub(super) fn wait_for_pack(&mut self, slot: usize) {
        if let Some(Some(channel)) = self.slots.get_mut(slot) {
            channel.starved = true;
            self.without_pack.push(slot);
        }
    }

    /// Whether any channel waits for the memory of a pack.
    pub(super) fn lack_packs(&self) -> bool {
        !self.without_pack.is_empty()
    }

    /// Wakes the channels that wait for the memory of a pack.
    pub(super) fn feed_packs(&mut self) {
        for slot in std::mem::take(&mut self.without_pack) {
            if let Some(channel) = self.get_mut(slot) {
                channel.starved = false;
                self.queue(slot);
            }
        }
    }

    /// Wakes up to `buffers` of the channels that wait for a buffer.
    pub(super) fn feed_starved(&mut self, buffers: usize) {
        for _ in 0..buffers {
            let Some(slot) = self.starved.pop_front() else {
                return;
            };
            if let Some(channel) = self.get_mut(slot) {
                channel.starved = false;
                self.queue(slot);
            }
        }
    }

    /// Marks a channel as delayed by the rate limit.
    pub(super) fn throttle(&mut self, slot: usize) {
        if let Some(Some(channel)) = self.slots.get_mut(slot) {
            channel.throttled = true;
            self.throttled.push(slot);
        }
    }

    /// Whether any channel is delayed by the rate limit.
    pub(super) fn are_throttled(&self) -> bool {
        !self.throttled.is_empty()
    }

    /// Wakes the channels delayed by the rate limit.
    pub(super) fn unthrottle(&mut self) {
        for slot in std::mem::take(&mut self.throttled) {
            if let Some(channel) = self.get_mut(slot) {
                channel.throttled = false;
                self.queue(slot);
            }
        }
    }

    /// Keeps a frame until a channel opens.
    pub(super) fn keep_frame(&mut self, frame: Frame) {
        self.unrouted_frames.push_back(frame);
    }

    /// Takes the next frame kept for a channel.
    pub(super) fn take_frame(&mut self) -> Option<Frame> {
        self.unrouted_frames.pop_front()
    }

    /// Whether another frame may be sent on a channel whose opening isn't answered yet.
    pub(super) fn may_send_ahead(&self, slot: usize) -> bool {
        self.get(slot)
            .is_some_and(|channel| channel.sent_ahead() < AHEAD_BYTES_MAX)
    }

    /// Sends kept frames on a channel whose opening isn't answered yet, as far as they are few.
    pub(super) fn send_ahead(&mut self, slot: usize) {
        while self.may_send_ahead(slot)
            && let Some(frame) = self.unrouted_frames.get(self.ahead)
            && let Some(Some(channel)) = self.slots.get_mut(slot)
        {
            channel.push_ahead(frame);
            self.ahead += 1;
        }
    }

    /// Whether frames went ahead on a channel that is being opened.
    pub(super) fn are_ahead(&self) -> bool {
        self.ahead > 0
    }

    /// Forgets the frames that went ahead: the channel is open.
    pub(super) fn forget_ahead(&mut self) {
        self.unrouted_frames
            .drain(..std::mem::take(&mut self.ahead));
    }

    /// Keeps the frames that went ahead for another channel: the acceptor didn't take them.
    pub(super) fn keep_ahead(&mut self) {
        self.ahead = 0;
    }
}
