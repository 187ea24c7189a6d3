//! Channels that would be late: near the end of the files, a slow channel takes no block that
//! another one would have delivered before; and once nothing else is left, idle channels send again
//! what a slow one still carries. So no transfer waits for its slowest channel.

use std::time::Duration;

use super::{Channel, Extent, FileState, Sender};
use crate::id::{ChannelIndex, FileId};

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

    /// A block that another channel carries and would deliver much later than this one, to be sent
    /// here too: of those the one that would come last, and of channels that make no progress the
    /// oldest. `None` while anything else is left to be sent. `can_be_read_again` tells the files
    /// whose bytes can be read twice.
    ///
    /// The first block of a channel stays with it: it is probably arriving, and the receiver takes
    /// no second copy meanwhile.
    pub fn next_late_extent(
        &mut self,
        index: ChannelIndex,
        now: Duration,
        round_trip: Duration,
        can_be_read_again: impl Fn(FileId) -> bool,
    ) -> Option<Extent> {
        if self.in_flight >= self.in_flight_max || self.bytes_left() != Some(0) {
            return None;
        }
        let block = self.files.values().map(|file| file.block_size).max()?;
        let own = self.channels.get(&index)?.delivers_in(block)? + round_trip.as_secs_f64();
        let mut latest: Option<(f64, Extent)> = None;
        for (_, channel) in self.channels.iter().filter(|(other, _)| **other != index) {
            let rate = channel.rate.bytes_per_s;
            let rate = rate.filter(|rate| *rate > 0.0 && channel.is_reliable(now));
            let mut ahead = 0;
            for (place, extent) in channel.unacknowledged.iter().enumerate() {
                ahead += extent.range.len();
                let time = rate.map_or(f64::INFINITY, |rate| ahead as f64 / rate);
                if place > 0
                    && time > own * SOONER
                    && latest.is_none_or(|(before, _)| time > before)
                    && self.may_be_sent_again(extent)
                    && can_be_read_again(extent.file)
                {
                    latest = Some((time, *extent));
                }
            }
        }
        let (_, extent) = latest?;
        let file = self.files.get_mut(&extent.file)?;
        file.sent_again.insert(extent.range);
        file.repeated += extent.range.len();
        Some(Extent {
            is_resend: true,
            ..extent
        })
    }

    /// Whether its file waits for a block that is outstanding, and it was not sent again yet.
    fn may_be_sent_again(&self, extent: &Extent) -> bool {
        self.files.get(&extent.file).is_some_and(|file| {
            file.state == FileState::Ended
                && file.ahead.is_none()
                && extent.range.len() <= file.block_size
                && !file.sent_again.overlaps(extent.range)
        })
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
    use std::collections::{BTreeSet, VecDeque};

    use super::*;
    use crate::digest::{Fragment, FragmentState};
    use crate::frame::{Accept, Ack, Frame, Offer, Resume};
    use crate::limits::Limits;
    use crate::{DigestKind, FileId, SourceTag};

    const BLOCK: u64 = 1024;
    /// Blocks of the file.
    const BLOCKS: u64 = 200;
    const FAST: ChannelIndex = ChannelIndex(0);
    const SLOW: ChannelIndex = ChannelIndex(1);

    /// A file sent on two channels.
    #[derive(Clone, Copy)]
    struct Scene {
        /// A channel delivers a block in so many steps of 10 ms.
        delivery: [u64; 2],
        /// From this step on the slow channel needs 1000 steps for a block.
        fades_at: u64,
        /// So many blocks are outstanding on each.
        outstanding: usize,
        leaves_late_blocks: bool,
        sends_late_blocks_again: bool,
    }

    const SCENE: Scene = Scene {
        delivery: [2, 200],
        fades_at: u64::MAX,
        outstanding: 2,
        leaves_late_blocks: false,
        sends_late_blocks_again: false,
    };

    /// After how many steps every block has been acknowledged, and how many came twice.
    fn steps(scene: Scene) -> (u64, u64) {
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
        let mut due = scene.delivery;
        let mut carried: [VecDeque<u64>; 2] = Default::default();
        let mut came = BTreeSet::new();
        for step in 0..100_000 {
            let now = Duration::from_millis(10 * step);
            for (n, index) in [FAST, SLOW].into_iter().enumerate() {
                let is_faded = index == SLOW && step >= scene.fades_at;
                let delivery = if is_faded { 1000 } else { scene.delivery[n] };
                if due[n] <= step
                    && let Some(start) = carried[n].pop_front()
                {
                    came.insert(start);
                    acknowledged[n] += 1;
                    due[n] = step + delivery;
                    let data_frames = acknowledged[n];
                    let ack = Frame::Ack(Ack { data_frames });
                    sender.handle_frame(index, ack, now).unwrap();
                }
                while sender.outstanding(index) < scene.outstanding
                    && !(scene.leaves_late_blocks && sender.would_be_late(index, now))
                {
                    let mut extent = sender.next_extent(index);
                    if scene.sends_late_blocks_again && extent.is_none() {
                        let round_trip = Duration::from_millis(20);
                        extent = sender.next_late_extent(index, now, round_trip, |_| true);
                    }
                    let Some(extent) = extent else { break };
                    if sender.outstanding(index) == 0 {
                        due[n] = step + delivery;
                    }
                    let state = FragmentState::None;
                    let fragment = Fragment {
                        range: extent.range,
                        state,
                    };
                    if !extent.is_resend {
                        sender.extent_read(file, fragment);
                    }
                    sender.assign(index, extent, now);
                    carried[n].push_back(extent.range.start);
                }
            }
            if came.len() as u64 == BLOCKS {
                return (step, acknowledged.iter().sum::<u64>() - BLOCKS);
            }
        }
        panic!("only {} came", came.len());
    }

    #[test]
    fn the_last_blocks_are_left_to_the_faster_channel() {
        // A block takes 20 ms on one channel, and two seconds on the other.
        let obeys = Scene {
            leaves_late_blocks: true,
            ..SCENE
        };
        let ((with, _), (without, _)) = (steps(obeys), steps(SCENE));
        // 200 blocks in 400 steps, if the slow channel does its share and no more.
        assert!(with < 440, "{with}");
        assert!(without > 500, "{without}");
    }

    #[test]
    fn channels_of_one_rate_all_go_on() {
        for delivery in [[5, 5], [5, 6]] {
            let plain = Scene { delivery, ..SCENE };
            let obeys = Scene {
                leaves_late_blocks: true,
                sends_late_blocks_again: true,
                ..plain
            };
            assert_eq!(steps(obeys), steps(plain));
            assert_eq!(steps(obeys).1, 0);
        }
    }

    #[test]
    fn what_a_channel_that_fades_carries_is_sent_again_on_another() {
        let plain = Scene {
            delivery: [2, 2],
            fades_at: 150,
            outstanding: 4,
            leaves_late_blocks: true,
            ..SCENE
        };
        let again = Scene {
            sends_late_blocks_again: true,
            ..plain
        };
        // Four blocks of ten seconds, of which the first stays where it is.
        let (without, _) = steps(plain);
        assert!(without > 3000, "{without}");
        let (with, twice) = steps(again);
        assert!(with < 1300, "{with}");
        assert!(twice <= 3, "{twice}");
    }

    #[test]
    fn nothing_is_sent_again_while_anything_else_is_left() {
        let mut sender = Sender::new(Limits::default(), u64::MAX);
        sender.channel_up(FAST, Duration::ZERO);
        sender.channel_up(SLOW, Duration::ZERO);
        let later = Duration::from_secs(100);
        let again = sender.next_late_extent(FAST, later, Duration::ZERO, |_| true);
        assert_eq!(again, None);
    }

    #[test]
    fn one_channel_alone_is_never_late() {
        let mut sender = Sender::new(Limits::default(), u64::MAX);
        sender.channel_up(FAST, Duration::ZERO);
        assert!(!sender.would_be_late(FAST, Duration::ZERO));
        assert!(!sender.would_be_late(SLOW, Duration::ZERO));
    }
}
