//! The unacknowledged data frames of each channel, regardless of their files.

use std::collections::BTreeMap;

use crate::id::ChannelIndex;

/// Payload bytes after which acknowledgements are sent immediately.
const ACK_BYTES: u64 = 1 << 20;
/// Data frames after which they are sent immediately.
const ACK_FRAMES: u32 = 64;

#[derive(Clone, Debug, Default)]
struct Channel {
    data_frames: u64,
    acknowledged: u64,
}

/// The count of all channels.
#[derive(Clone, Debug, Default)]
pub(super) struct Acks {
    channels: BTreeMap<ChannelIndex, Channel>,
    /// Channels with unacknowledged data frames, and the bytes and number of those frames.
    owing: Vec<ChannelIndex>,
    bytes: u64,
    frames: u32,
}

impl Acks {
    pub(super) fn channel_up(&mut self, channel: ChannelIndex) {
        self.channels.insert(channel, Channel::default());
    }

    /// Drops the count of a lost channel.
    pub(super) fn channel_down(&mut self, channel: ChannelIndex) {
        self.channels.remove(&channel);
        self.owing.retain(|c| *c != channel);
    }

    /// Counts a data frame. Returns whether acknowledgements are due.
    pub(super) fn count(&mut self, channel: ChannelIndex, bytes: u64) -> bool {
        let Some(state) = self.channels.get_mut(&channel) else {
            return false;
        };
        if state.data_frames == state.acknowledged {
            self.owing.push(channel);
        }
        state.data_frames += 1;
        self.bytes += bytes;
        self.frames += 1;
        self.bytes >= ACK_BYTES || self.frames >= ACK_FRAMES
    }

    /// Whether all data frames are acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.owing.is_empty()
    }

    /// Whether this channel has unacknowledged data frames.
    pub(super) fn owes(&self, channel: ChannelIndex) -> bool {
        self.owing.contains(&channel)
    }

    /// Calls `each` with every channel that has unacknowledged data frames and its count of data
    /// frames since it opened, and marks them as acknowledged.
    pub(super) fn drain(&mut self, mut each: impl FnMut(ChannelIndex, u64)) {
        self.bytes = 0;
        self.frames = 0;
        for channel in self.owing.drain(..) {
            if let Some(state) = self.channels.get_mut(&channel) {
                state.acknowledged = state.data_frames;
                each(channel, state.data_frames);
            }
        }
    }
}
