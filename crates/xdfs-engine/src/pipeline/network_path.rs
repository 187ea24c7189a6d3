//! The path to the peer: its round-trip time, and what is chosen for it: the congestion control,
//! the size of blocks, and the number of channels that a transfer begins with (`channel_count`
//! finds a better one).

use std::io;
use std::time::Duration;

use xdfs_proto::FileId;
use xdfs_xio::{PathSample, Stream};

use super::channel_count::{ChannelCount, Traffic};
use crate::path_decision::{ChannelsReason, PathClass, PathDecision, PathDecisions};

/// Round-trip time below which a path is short: its bandwidth-delay product is small.
const SHORT: Duration = Duration::from_millis(2);
/// Round-trip time from which a path is long: there losses cost more than paced sending does.
const LONG: Duration = Duration::from_millis(10);
/// Round-trip time from which a path is very long.
const FAR: Duration = Duration::from_millis(150);
/// Answers from an address of this machine that all take as long as those over a long path, for it
/// to be a forwarder's.
const FORWARDED_ANSWERS: u32 = 5;
/// Interval of the measurements of channels.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// Packets wait in a queue from this factor between the present round-trip time and the shortest
/// one, and this difference, on: late acknowledgements make up to 10 ms.
const QUEUED: (f64, Duration) = (1.5, Duration::from_millis(15));
/// Largest block on a long path. Many channels are in the middle of a block there, each with a
/// buffer, and what a slow channel still has to send at the end is a block.
const BLOCK_BYTES_LONG: u32 = 256 << 10;
/// File size up to which one channel suffices, since opening more takes longer.
pub(super) const ONE_CHANNEL_BYTES: u64 = 16 << 20;
/// Channels for a large file on a short path, and at the beginning on a long one.
const CHANNELS_SHORT: u32 = 4;
const CHANNELS_LONG: u32 = 8;
/// The same on a very long path, where the largest socket buffer of a channel holds less than a
/// round trip of data, and on a long one where the congestion control halves the rate at each loss.
const CHANNELS_FAR: u32 = 32;
/// Channels for packs on a long path. More would overrun the path's queue when all leave slow start
/// together.
const CHANNELS_PACKS: u32 = 4;

/// The workload for which channels are chosen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Workload {
    /// A file of this length in bytes.
    File(u64),
    /// Packs of many small files.
    Packs,
}

impl Workload {
    /// A file of unknown length counts as long.
    pub(super) fn file(length: Option<u64>) -> Self {
        Self::File(length.unwrap_or(u64::MAX))
    }
}

/// What is known about the path.
#[derive(Debug, Default)]
pub(super) struct NetworkPath {
    /// The address of the other end is of the same machine. A forwarder may have it.
    is_local: bool,
    /// The shortest time in which the peer has answered anything, and the number of answers.
    answers: (Option<Duration>, u32),
    /// From the first exchange of frames; `None` until it is measured.
    round_trip: Option<Duration>,
    /// The shortest one that the system has measured on any channel.
    sampled: Option<Duration>,
    /// The shortest one now, as the last measurement of all channels has it; what is sent later
    /// than before makes it longer.
    present: Option<Duration>,
    /// When the channels are measured next.
    next_sample: Duration,
    /// Packets of most channels waited in a queue of the path when they were measured last.
    is_queued: bool,
    /// The options for long paths could not be set on a channel.
    is_refused: bool,
    /// What was told about the path and its congestion control.
    told: (Option<PathClass>, Option<String>),
    decisions: PathDecisions,
    /// The search for the number of channels.
    channel_count: Option<ChannelCount>,
    /// The offer or request whose answer is measured, and when it was sent.
    offered_at: Option<(FileId, Duration)>,
    /// Workloads that started before the path was measured.
    unpicked: Vec<Workload>,
}

impl NetworkPath {
    /// Records whether a channel leads to this machine.
    pub(super) fn see_channel(&mut self, is_local: bool) {
        self.is_local |= is_local;
        self.tell_class();
    }

    /// Tells a decision that was made elsewhere.
    pub(super) fn tell(&self, decision: PathDecision) {
        self.decisions.tell(decision);
    }

    /// Has the decisions told there.
    pub(super) fn tell_to(&mut self, decisions: PathDecisions) {
        self.decisions = decisions;
    }

    pub(super) fn set_round_trip(&mut self, round_trip: Option<Duration>) {
        self.round_trip = round_trip;
        self.tell_class();
    }

    pub(super) fn is_measured(&self) -> bool {
        self.round_trip.is_some() || self.sampled.is_some()
    }

    /// The round-trip time: the system's where it measures one, since a peer that is slow to answer
    /// makes the first exchange longer. Behind a forwarder, to which alone the system measures,
    /// that of the quickest answer.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        match self.is_forwarded() {
            true => self.answers.0,
            false => self.sampled.or(self.round_trip),
        }
    }

    /// Records the time in which the peer has answered something, at least. Returns whether it is
    /// known since now whether a forwarder stands before the peer.
    pub(super) fn see_answer(&mut self, time: Duration) -> bool {
        let before = self.is_forwarded();
        let (shortest, count) = &mut self.answers;
        *shortest = Some(shortest.map_or(time, |shortest| shortest.min(time)));
        *count = count.saturating_add(1);
        self.tell_class();
        before != self.is_forwarded()
    }

    /// Whether the address is of this machine, and no answer came as quickly as from there.
    fn is_forwarded(&self) -> bool {
        self.is_local && self.answers.1 >= FORWARDED_ANSWERS && self.is_slow_to_answer()
    }

    fn is_slow_to_answer(&self) -> bool {
        self.answers.0.is_some_and(|shortest| shortest >= LONG)
    }

    /// The time that a round trip takes at present, with what waits in queues.
    pub(super) fn present_round_trip(&self) -> Duration {
        let least = self.round_trip().unwrap_or_default();
        self.present.map_or(least, |present| present.max(least))
    }

    /// What the path is, as far as it is known.
    fn class(&self) -> Option<PathClass> {
        if self.is_local() {
            return Some(PathClass::Local);
        }
        Some(match self.round_trip()? {
            time if time < SHORT => PathClass::Short,
            time if time < LONG => PathClass::Medium,
            time if time < FAR => PathClass::Long,
            _ => PathClass::VeryLong,
        })
    }

    /// Tells what the path is, unless that was told.
    fn tell_class(&mut self) {
        let now = self.class();
        if let Some(class) = now.filter(|_| now != self.told.0) {
            self.told.0 = now;
            let round_trip = self.round_trip().filter(|_| !self.is_local());
            self.decisions
                .tell(PathDecision::Class { class, round_trip });
        }
    }

    /// Tells that there is to be another number of channels.
    pub(super) fn tell_channels(&self, before: u32, wanted: u32, reason: ChannelsReason) {
        if before != wanted {
            self.decisions.tell(PathDecision::Channels {
                before,
                wanted,
                reason,
            });
        }
    }

    /// Whether the other end has an address of this machine, be it that of a forwarder.
    pub(super) fn has_local_address(&self) -> bool {
        self.is_local
    }

    /// Whether both ends are on the same machine. One long round trip there only means that a
    /// process waited to be scheduled.
    pub(super) fn is_local(&self) -> bool {
        self.is_local && !self.is_forwarded()
    }

    /// Whether few channels suffice.
    fn is_short(&self) -> bool {
        matches!(self.class(), Some(PathClass::Local | PathClass::Short))
    }

    /// Whether the options for long paths apply.
    pub(super) fn is_long(&self) -> bool {
        matches!(self.class(), Some(PathClass::Long | PathClass::VeryLong))
    }

    /// Whether the channels are to be measured again, which the caller then does: four times a
    /// second, and never within one machine.
    pub(super) fn take_sample_due(&mut self, now: Duration) -> bool {
        let is_due = !self.is_local && self.next_sample <= now;
        if is_due {
            self.next_sample = now + SAMPLE_INTERVAL;
        }
        is_due
    }

    /// Measures the path of a channel, and if it is long, sets the channel's options for that.
    /// `true` once the options are set, or can't be.
    pub(super) fn suit_channel(&mut self, stream: &mut dyn Stream) -> bool {
        if self.is_local {
            return false;
        }
        if let Some(sample) = stream.measure() {
            self.see_sample(&sample);
        }
        if !self.is_long() {
            return false;
        }
        let result = stream.suit_long_path();
        self.see_congestion(result, stream.measure());
        true
    }

    /// Records the measurements of all open channels, taken at the same time.
    pub(super) fn see_channels(&mut self, samples: impl Iterator<Item = PathSample>) {
        let mut times = Vec::new();
        for sample in samples {
            self.see_sample(&sample);
            times.push(sample.round_trip);
        }
        times.sort_unstable();
        self.present = times.iter().copied().find(|time| !time.is_zero());
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let (factor, difference) = QUEUED;
        let queued = self
            .sampled
            .map(|shortest| shortest.mul_f64(factor).max(shortest + difference));
        self.is_queued = queued.is_some_and(|queued| median >= queued);
    }

    /// Whether packets wait in a queue of the path, which then is full.
    pub(super) fn is_queued(&self) -> bool {
        self.is_queued
    }

    fn see_sample(&mut self, sample: &PathSample) {
        let time = sample.round_trip_min;
        if time > Duration::ZERO {
            self.sampled = Some(self.sampled.map_or(time, |sampled| sampled.min(time)));
            self.tell_class();
        }
    }

    /// Tells the congestion control, or why the system refuses another one, the first time only.
    fn see_congestion(&mut self, result: io::Result<()>, sample: Option<PathSample>) {
        let used = sample.map_or_else(String::new, |sample| sample.congestion);
        let refused = result.err().map(|error| error.to_string());
        let is_new = self.told.1.as_ref() != Some(&used) || (refused.is_some() && !self.is_refused);
        self.is_refused |= refused.is_some();
        if is_new {
            self.told.1 = Some(used.clone());
            self.decisions
                .tell(PathDecision::Congestion { used, refused });
        } else if refused.is_none() {
            PathDecision::Congestion { used, refused }.log();
        }
    }

    /// The size of blocks on this path, if the session allows `agreed` bytes.
    pub(super) fn block_size(&self, agreed: u32) -> u32 {
        // Within one machine the size is chosen when little is known yet.
        let is_long = self.is_long() || self.is_local && self.is_slow_to_answer();
        match is_long {
            true => agreed.min(BLOCK_BYTES_LONG),
            false => agreed,
        }
    }

    /// Continues the search for the number of channels on a long path. Returns another number if
    /// there should be one.
    pub(super) fn tune_channels(&mut self, traffic: Traffic, max: u32) -> Option<u32> {
        let search = self
            .channel_count
            .get_or_insert_with(|| ChannelCount::new(traffic));
        let (before, wanted) = (traffic.channels, search.step(traffic, max)?);
        let reason = match wanted > before {
            true => ChannelsReason::Trial,
            false => ChannelsReason::NoGain,
        };
        self.tell_channels(before, wanted, reason);
        Some(wanted)
    }

    /// Ends the search: nothing is moved that further channels could help.
    pub(super) fn stop_tuning(&mut self) {
        self.channel_count = None;
    }

    /// Records an offer or a request, to measure the time of its answer unless another one is
    /// pending.
    pub(super) fn offered(&mut self, file: FileId, now: Duration) {
        self.offered_at.get_or_insert((file, now));
    }

    /// Takes the answer to an offer. Returns how long it took, if that was measured.
    pub(super) fn answered(&mut self, file: FileId, now: Duration) -> Option<Duration> {
        let (_, at) = self.offered_at.take_if(|(offered, _)| *offered == file)?;
        Some(now.saturating_sub(at))
    }

    /// Drops the pending measurement if it is of this file.
    pub(super) fn ended(&mut self, file: FileId) {
        self.offered_at.take_if(|(offered, _)| *offered == file);
    }

    /// The number of channels for a workload. `None` if the path is not measured yet; the workload
    /// is then recorded for later.
    pub(super) fn pick_channels(&mut self, workload: Workload) -> Option<u32> {
        if !self.is_local && !self.is_measured() {
            self.unpicked.push(workload);
            return None;
        }
        let is_short = self.is_short();
        Some(match workload {
            // On one machine further channels gain nothing.
            Workload::Packs if is_short => 1,
            Workload::Packs => CHANNELS_PACKS,
            Workload::File(length) if length <= ONE_CHANNEL_BYTES => 1,
            Workload::File(_) if is_short => CHANNELS_SHORT,
            Workload::File(length) => {
                let by_length = u32::try_from(length / (ONE_CHANNEL_BYTES / 4));
                let is_far = self.class() == Some(PathClass::VeryLong);
                let most = match is_far || self.is_refused {
                    true => CHANNELS_FAR,
                    false => CHANNELS_LONG,
                };
                by_length.unwrap_or(u32::MAX).clamp(1, most)
            }
        })
    }

    /// Takes the workloads that started before the path was measured.
    pub(super) fn take_unpicked(&mut self) -> Vec<Workload> {
        std::mem::take(&mut self.unpicked)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};

    use xdfs_sys::poll::{Poller, Token};
    use xdfs_xio::Capabilities;

    use super::*;

    /// A channel whose path the system has measured, and which takes options or refuses them.
    #[derive(Debug)]
    struct Measured {
        round_trip_ms: u64,
        refuses: bool,
        is_suited: bool,
    }

    impl Measured {
        fn new(round_trip_ms: u64) -> Self {
            Self {
                round_trip_ms,
                refuses: false,
                is_suited: false,
            }
        }
    }

    impl Stream for Measured {
        fn read_vectored(&mut self, _: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn write_vectored(&mut self, _: &[IoSlice<'_>]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn finish_open(&mut self) -> io::Result<bool> {
            Ok(true)
        }

        fn close(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn register(&mut self, _: &mut Poller, _: Token) -> io::Result<()> {
            Ok(())
        }

        fn deregister(&mut self, _: &mut Poller) -> io::Result<()> {
            Ok(())
        }

        fn measure(&self) -> Option<PathSample> {
            Some(PathSample {
                round_trip: Duration::from_millis(2 * self.round_trip_ms),
                round_trip_min: Duration::from_millis(self.round_trip_ms),
                ..PathSample::default()
            })
        }

        fn suit_long_path(&mut self) -> io::Result<()> {
            self.is_suited = true;
            match self.refuses {
                true => Err(io::ErrorKind::PermissionDenied.into()),
                false => Ok(()),
            }
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities {
                integrity: false,
                local: false,
            }
        }

        fn peer(&self) -> String {
            String::new()
        }
    }

    /// Answers in so many milliseconds, at an address of this machine.
    fn answered_in(times: &[u64]) -> (NetworkPath, bool) {
        let mut path = NetworkPath::default();
        path.see_channel(true);
        let times = times.iter().copied().map(Duration::from_millis);
        let changed = times
            .map(|time| path.see_answer(time))
            .fold(false, |a, b| a ^ b);
        (path, changed)
    }

    #[test]
    fn a_forwarder_is_told_by_the_time_of_answers() {
        let (mut path, changed) = answered_in(&[45, 40, 60, 90, 50]);
        assert!(changed && !path.is_local() && path.is_long());
        assert_eq!(path.round_trip(), Some(Duration::from_millis(40)));
        assert_eq!(path.present_round_trip(), Duration::from_millis(40));
        assert_eq!(path.pick_channels(LARGE), Some(CHANNELS_LONG));
        assert_eq!(path.block_size(2 << 20), BLOCK_BYTES_LONG);
        // The system's figures about the connection are of its way to the forwarder.
        assert!(!path.take_sample_due(Duration::from_secs(9)));
        assert!(!path.suit_channel(&mut Measured::new(50)));
        // One quick answer shows that the peer is near.
        assert!(path.see_answer(Duration::from_millis(1)) && path.is_local());
    }

    /// Where the peer waits for the processor or a disk now and then.
    #[test]
    fn a_few_slow_answers_make_no_forwarder() {
        for times in [
            &[45, 40, 60, 60][..],
            &[1, 45, 40, 60, 60],
            &[45, 40, 60, 60, 60, 1],
        ] {
            let (mut path, changed) = answered_in(times);
            assert!(!changed && path.is_local() && !path.is_long());
            assert_eq!(path.pick_channels(LARGE), Some(CHANNELS_SHORT));
        }
        // Only blocks are smaller meanwhile.
        assert_eq!(answered_in(&[45]).0.block_size(2 << 20), BLOCK_BYTES_LONG);
        assert_eq!(answered_in(&[45, 1]).0.block_size(2 << 20), 2 << 20);
        // The answers of other machines are no measure.
        let mut path = NetworkPath::default();
        path.suit_channel(&mut Measured::new(1));
        for _ in 0..9 {
            assert!(!path.see_answer(Duration::from_millis(50)));
        }
        assert!(!path.is_long());
    }

    const LARGE: Workload = Workload::File(1 << 30);

    #[test]
    fn channels_are_measured_now_and_then_and_never_within_one_machine() {
        let mut path = NetworkPath::default();
        let due = |path: &mut NetworkPath, ms| path.take_sample_due(Duration::from_millis(ms));
        assert!(due(&mut path, 0) && !due(&mut path, 249) && due(&mut path, 250));
        path.see_channel(true);
        assert!(!due(&mut path, 9000));
    }

    #[test]
    fn a_long_path_has_its_options_blocks_and_channels() {
        let mut path = NetworkPath::default();
        let mut channel = Measured::new(50);
        assert!(path.suit_channel(&mut channel) && channel.is_suited);
        assert_eq!(path.round_trip(), Some(Duration::from_millis(50)));
        assert_eq!(path.block_size(2 << 20), BLOCK_BYTES_LONG);
        assert_eq!(path.block_size(64 << 10), 64 << 10);
        assert_eq!(path.pick_channels(LARGE), Some(CHANNELS_LONG));
        assert_eq!(path.pick_channels(Workload::File(17 << 20)), Some(4));
    }

    #[test]
    fn a_short_or_local_path_keeps_the_systems_options() {
        let mut path = NetworkPath::default();
        let mut channel = Measured::new(1);
        assert!(!path.suit_channel(&mut channel) && !channel.is_suited);
        assert_eq!(path.block_size(2 << 20), 2 << 20);
        assert_eq!(path.pick_channels(LARGE), Some(CHANNELS_SHORT));

        let mut path = NetworkPath::default();
        path.see_channel(true);
        let mut channel = Measured::new(50);
        assert!(!path.suit_channel(&mut channel) && !channel.is_suited);
        assert_eq!(path.block_size(2 << 20), 2 << 20);
    }

    #[test]
    fn a_path_is_long_as_soon_as_that_is_known() {
        let mut path = NetworkPath::default();
        let mut unmeasured = Measured::new(0);
        assert!(!path.suit_channel(&mut unmeasured));
        assert_eq!(path.pick_channels(LARGE), None);
        path.set_round_trip(Some(Duration::from_millis(80)));
        assert!(path.suit_channel(&mut unmeasured) && unmeasured.is_suited);
    }

    #[test]
    fn packets_wait_where_most_channels_are_slower_than_the_path() {
        let samples = |ms: [u64; 3]| {
            ms.map(|ms| PathSample {
                round_trip: Duration::from_millis(ms),
                round_trip_min: Duration::from_millis(50),
                ..PathSample::default()
            })
        };
        let mut path = NetworkPath::default();
        assert!(!path.is_queued());
        for (ms, is_queued) in [
            ([50, 51, 52], false),
            ([50, 80, 90], true),
            ([60, 62, 90], false),
        ] {
            path.see_channels(samples(ms).into_iter());
            assert_eq!(path.is_queued(), is_queued, "{ms:?}");
        }
        path.see_channels(std::iter::empty());
        assert!(!path.is_queued());
    }

    #[test]
    fn a_peer_that_is_slow_to_answer_makes_no_long_path() {
        let mut path = NetworkPath::default();
        path.set_round_trip(Some(Duration::from_secs(3)));
        assert!(!path.suit_channel(&mut Measured::new(1)));
    }

    #[test]
    fn a_path_that_became_longer_takes_its_present_time() {
        let mut path = NetworkPath::default();
        path.suit_channel(&mut Measured::new(50));
        assert_eq!(path.present_round_trip(), Duration::from_millis(50));
        let channels = [300, 200].map(Measured::new);
        path.see_channels(channels.iter().filter_map(Stream::measure));
        assert_eq!(path.present_round_trip(), Duration::from_millis(400));
        // The class is that of the shortest one.
        assert_eq!(path.round_trip(), Some(Duration::from_millis(50)));
    }

    #[test]
    fn decisions_are_told_once() {
        let (mut path, decisions) = (NetworkPath::default(), PathDecisions::default());
        path.tell_to(decisions.clone());
        path.set_round_trip(Some(Duration::from_secs(3)));
        for round_trip_ms in [90, 80, 5] {
            path.suit_channel(&mut Measured::new(round_trip_ms));
        }
        path.tell_channels(8, 8, ChannelsReason::Workload);
        let told = decisions.take();
        let classes = told.iter().filter_map(|decision| match decision {
            PathDecision::Class { class, .. } => Some(*class),
            _ => None,
        });
        let expected = [PathClass::VeryLong, PathClass::Long, PathClass::Medium];
        assert_eq!(classes.collect::<Vec<_>>(), expected);
        // And the congestion control of the first long channel.
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(decisions.take(), []);
    }

    #[test]
    fn where_the_system_refuses_there_are_more_channels() {
        let mut path = NetworkPath::default();
        let mut channel = Measured::new(50);
        channel.refuses = true;
        assert!(path.suit_channel(&mut channel), "it isn't tried again");
        assert_eq!(path.pick_channels(LARGE), Some(CHANNELS_FAR));
        let mut far = NetworkPath::default();
        far.suit_channel(&mut Measured::new(200));
        assert_eq!(far.pick_channels(LARGE), Some(CHANNELS_FAR));
    }
}
