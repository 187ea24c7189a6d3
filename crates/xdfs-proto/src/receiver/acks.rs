//! What is owed in acknowledgements: the data frames that came on each channel, whatever became of
//! their files.

use std::collections::BTreeMap;

use crate::id::ChannelIndex;

/// Payload bytes after which the channels' acknowledgements are due at once.
const ACK_BYTES: u64 = 1 << 20;
/// Data frames after which they are.
const ACK_FRAMES: u32 = 64;

#[derive(Clone, Debug, Default)]
struct Channel {
    data_frames: u64,
    told: u64,
}

/// The count of all channels.
#[derive(Clone, Debug, Default)]
pub(super) struct Acks {
    channels: BTreeMap<ChannelIndex, Channel>,
    /// Channels with data frames that weren't acknowledged, and the bytes and number of those.
    owing: Vec<ChannelIndex>,
    bytes: u64,
    frames: u32,
}

impl Acks {
    pub(super) fn channel_up(&mut self, channel: ChannelIndex) {
        self.channels.insert(channel, Channel::default());
    }

    /// Nothing is owed on a channel that is gone.
    pub(super) fn channel_down(&mut self, channel: ChannelIndex) {
        self.channels.remove(&channel);
        self.owing.retain(|c| *c != channel);
    }

    /// Counts a data frame with so many bytes of payload; whether it is time to tell.
    pub(super) fn count(&mut self, channel: ChannelIndex, bytes: u64) -> bool {
        let Some(state) = self.channels.get_mut(&channel) else {
            return false;
        };
        if state.data_frames == state.told {
            self.owing.push(channel);
        }
        state.data_frames += 1;
        self.bytes += bytes;
        self.frames += 1;
        self.bytes >= ACK_BYTES || self.frames >= ACK_FRAMES
    }

    /// Whether nothing is owed.
    pub(super) fn are_told(&self) -> bool {
        self.owing.is_empty()
    }

    /// Whether something is owed on this channel.
    pub(super) fn owes(&self, channel: ChannelIndex) -> bool {
        self.owing.contains(&channel)
    }

    /// Tells of each channel that is owed something how many data frames came on it since it was
    /// opened. Nothing is owed then.
    pub(super) fn tell(&mut self, mut each: impl FnMut(ChannelIndex, u64)) {
        self.bytes = 0;
        self.frames = 0;
        for channel in self.owing.drain(..) {
            if let Some(state) = self.channels.get_mut(&channel) {
                state.told = state.data_frames;
                each(channel, state.data_frames);
            }
        }
    }
}
