//! Channels that would be late: near the end of the files, a slow channel takes no block that
//! another one would have delivered before, so that no transfer waits for its slowest channel.

use std::time::Duration;

use super::{Channel, FileState, Sender};
use crate::id::ChannelIndex;

/// Time over which the rate of a channel is measured.
const RATE_INTERVAL: Duration = Duration::from_millis(500);
/// How many times as soon another channel has to deliver a block for it to be left to that.
const SOONER: f64 = 2.0;
/// A channel that has made no progress for so long is not relied on.
const RELIABLE: Duration = Duration::from_secs(1);

/// The rate at which a channel delivers blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Rate {
    since: Duration,
    bytes: u64,
    bytes_per_s: Option<f64>,
}

impl Rate {
    /// The channel gets a block, and had none.
    pub(super) fn begin(&mut self, now: Duration) {
        self.since = now;
        self.bytes = 0;
    }

    /// Blocks of the channel are acknowledged.
    pub(super) fn delivered(&mut self, bytes: u64, now: Duration) {
        self.bytes += bytes;
        let time = now.saturating_sub(self.since);
        if time >= RATE_INTERVAL {
            let new = self.bytes as f64 / time.as_secs_f64();
            let before = self.bytes_per_s.unwrap_or(new);
            self.bytes_per_s = Some(f64::midpoint(before, new));
            self.begin(now);
        }
    }
}

impl Channel {
    /// In how many seconds it would have delivered `bytes` more; `None` if its rate isn't known.
    fn delivers_in(&self, bytes: u64) -> Option<f64> {
        let outstanding: u64 = self.unacknowledged.iter().map(|e| e.range.len()).sum();
        let rate = self.rate.bytes_per_s.filter(|rate| *rate > 0.0)?;
        Some((outstanding + bytes) as f64 / rate)
    }

    fn is_reliable(&self, now: Duration) -> bool {
        self.unacknowledged.is_empty() || self.last_progress + RELIABLE > now
    }
}

impl Sender {
    /// Whether the next block is better left to another channel: this one would deliver it when all
    /// others have long finished what is left.
    #[must_use]
    pub fn would_be_late(&self, index: ChannelIndex, now: Duration) -> bool {
        let block = self.files.values().map(|file| file.block_size).max();
        let block = block.unwrap_or_default();
        let channel = self.channels.get(&index);
        let Some(own) = channel.and_then(|channel| channel.delivers_in(block)) else {
            return false;
        };
        let rates = self.channels.values().map(|c| c.rate.bytes_per_s);
        let (Some(total), Some(left)) = (rates.sum::<Option<f64>>(), self.bytes_left()) else {
            return false;
        };
        let all = (left + self.in_flight) as f64 / total;
        let is_sooner = |other: &Channel| {
            let time = other.delivers_in(block);
            time.is_some_and(|time| time * SOONER < own) && other.is_reliable(now)
        };
        own > all && self.channels.values().any(is_sooner)
    }

    /// Bytes that wait to be sent; `None` if that of a file isn't known.
    fn bytes_left(&self) -> Option<u64> {
        let open = self.files.values();
        open.map(|file| match file.state {
            // A pack may follow.
            FileState::Waiting | FileState::Offered => None,
            FileState::Sending if file.length.is_none() => None,
            _ => Some(file.unsent.total() + file.to_resend.total()),
        })
        .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Accept, Ack, Frame, Offer, Resume};
    use crate::limits::Limits;
    use crate::{DigestKind, FileId, SourceTag};

    const BLOCK: u64 = 1024;
    /// Blocks of the file.
    const BLOCKS: u64 = 200;
    const FAST: ChannelIndex = ChannelIndex(0);
    const SLOW: ChannelIndex = ChannelIndex(1);

    /// Sends a file on two channels that deliver a block in so many steps of 10 ms, with two blocks
    /// outstanding on each. Returns after how many steps all is acknowledged.
    fn steps(delivery: [u64; 2], obeys: bool) -> u64 {
        let mut sender = Sender::new(Limits::default(), u64::MAX);
        let file = FileId(1);
        let offer = Offer {
            file,
            path: Vec::new(),
            name: Vec::new(),
            length: Some(BLOCKS * BLOCK),
            tag: SourceTag::default(),
            mode: None,
            mtime_ns: None,
            digest: DigestKind::None,
            overwrite: false,
            resume: Resume::Never,
            dry_run: false,
            pack: false,
            sparse: false,
            relaxed: false,
            last: None,
        };
        let accept = Frame::Accept(Accept {
            file,
            path: Vec::new(),
            block_size: BLOCK as u32,
            durable: Vec::new(),
        });
        for index in [FAST, SLOW] {
            sender.channel_up(index, Duration::ZERO);
        }
        sender.offer(offer, true);
        sender.handle_frame(FAST, accept, Duration::ZERO).unwrap();
        let mut acknowledged = [0, 0];
        // When the block that is under way on each channel is delivered.
        let mut due = delivery;
        for step in 0..100_000 {
            let now = Duration::from_millis(10 * step);
            for (n, index) in [FAST, SLOW].into_iter().enumerate() {
                if due[n] <= step && sender.outstanding(index) > 0 {
                    acknowledged[n] += 1;
                    due[n] = step + delivery[n];
                    let data_frames = acknowledged[n];
                    let ack = Frame::Ack(Ack { data_frames });
                    sender.handle_frame(index, ack, now).unwrap();
                }
                while sender.outstanding(index) < 2
                    && !(obeys && sender.would_be_late(index, now))
                    && let Some(extent) = sender.next_extent(index)
                {
                    if sender.outstanding(index) == 0 {
                        due[n] = step + delivery[n];
                    }
                    sender.assign(index, extent, now);
                }
            }
            if acknowledged.iter().sum::<u64>() == BLOCKS {
                return step;
            }
        }
        panic!("only {acknowledged:?} came");
    }

    #[test]
    fn the_last_blocks_are_left_to_the_faster_channel() {
        // A block takes 20 ms on one channel, and two seconds on the other.
        let (with, without) = (steps([2, 200], true), steps([2, 200], false));
        // 200 blocks in 400 steps, if the slow channel does its share and no more.
        assert!(with < 440, "{with}");
        assert!(without > 500, "{without}");
    }

    #[test]
    fn channels_of_one_rate_all_go_on() {
        for delivery in [[5, 5], [5, 6]] {
            assert_eq!(steps(delivery, true), steps(delivery, false));
        }
    }

    #[test]
    fn one_channel_alone_is_never_late() {
        let mut sender = Sender::new(Limits::default(), u64::MAX);
        sender.channel_up(FAST, Duration::ZERO);
        assert!(!sender.would_be_late(FAST, Duration::ZERO));
        assert!(!sender.would_be_late(SLOW, Duration::ZERO));
    }
}
