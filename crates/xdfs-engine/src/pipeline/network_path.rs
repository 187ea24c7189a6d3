//! The path to the peer: how long a round trip takes, and how many channels are worth their while.

use std::time::Duration;

use xdfs_proto::FileId;

/// Round-trip time under which a path is short: its bandwidth-delay product is small.
const SHORT: Duration = Duration::from_millis(2);
/// Bytes of a file for which one channel is enough, since opening more takes longer.
const ONE_CHANNEL_BYTES: u64 = 16 << 20;
/// Channels picked for a large file on a short path, and the most on a long one.
const CHANNELS_SHORT: u32 = 4;
const CHANNELS_LONG: u32 = 16;
/// Channels picked for packs on a long path. Many that begin at once with little each would
/// overrun the queue of the path when all of them have doubled what they send often enough.
const CHANNELS_PACKS: u32 = 4;

/// What channels are picked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Workload {
    /// A file of this length in bytes.
    File(u64),
    /// Packs of many small files.
    Packs,
}

impl Workload {
    /// One whose length nobody knows may be of any.
    pub(super) fn file(length: Option<u64>) -> Self {
        Self::File(length.unwrap_or(u64::MAX))
    }
}

/// What is known of the path.
#[derive(Debug, Default)]
pub(super) struct NetworkPath {
    /// Both ends are on one machine.
    is_local: bool,
    /// Once it is measured.
    round_trip: Option<Duration>,
    /// The file whose answer measures it, and when it was offered.
    offered_at: Option<(FileId, Duration)>,
    /// What was started before the path was known.
    unpicked: Vec<Workload>,
}

impl NetworkPath {
    /// A channel leads to this machine, or to another.
    pub(super) fn see_channel(&mut self, is_local: bool) {
        self.is_local |= is_local;
    }

    pub(super) fn set_round_trip(&mut self, round_trip: Option<Duration>) {
        self.round_trip = round_trip;
    }

    pub(super) fn is_measured(&self) -> bool {
        self.round_trip.is_some()
    }

    /// Whether little in flight is enough. Within one machine it always is: a round trip that took
    /// long there was measured while a process waited for its turn.
    pub(super) fn is_short(&self) -> bool {
        self.is_local || self.round_trip.is_some_and(|time| time < SHORT)
    }

    /// A file is offered: its answer measures the path, unless that of another one does.
    pub(super) fn offered(&mut self, file: FileId, now: Duration) {
        self.offered_at.get_or_insert((file, now));
    }

    /// An offer was answered. Returns the round-trip time if this is what first measures it.
    pub(super) fn answered(&mut self, file: FileId, now: Duration) -> Option<Duration> {
        let (_, at) = self.offered_at.take_if(|(offered, _)| *offered == file)?;
        (!self.is_measured()).then(|| now.saturating_sub(at))
    }

    /// A file has ended: its answer measures nothing any more.
    pub(super) fn ended(&mut self, file: FileId) {
        self.offered_at.take_if(|(offered, _)| *offered == file);
    }

    /// The number of channels for what is moved; `None` before the path is known, which is when it
    /// is among what is picked late.
    pub(super) fn pick_channels(&mut self, what: Workload) -> Option<u32> {
        if !self.is_local && !self.is_measured() {
            self.unpicked.push(what);
            return None;
        }
        let is_short = self.is_short();
        Some(match what {
            // Within one machine further channels are no faster.
            Workload::Packs if is_short => 1,
            Workload::Packs => CHANNELS_PACKS,
            Workload::File(length) if length <= ONE_CHANNEL_BYTES => 1,
            Workload::File(_) if is_short => CHANNELS_SHORT,
            Workload::File(length) => {
                let by_length = u32::try_from(length / (ONE_CHANNEL_BYTES / 4));
                by_length.unwrap_or(u32::MAX).clamp(1, CHANNELS_LONG)
            }
        })
    }

    /// What was started before the path was known.
    pub(super) fn take_unpicked(&mut self) -> Vec<Workload> {
        std::mem::take(&mut self.unpicked)
    }
}
