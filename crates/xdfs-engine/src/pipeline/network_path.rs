//! The path to the peer: its round-trip time, and the number of channels chosen for it.

use std::time::Duration;

use xdfs_proto::FileId;

/// Round-trip time below which a path is short: its bandwidth-delay product is small.
const SHORT: Duration = Duration::from_millis(2);
/// File size up to which one channel suffices, since opening more takes longer.
const ONE_CHANNEL_BYTES: u64 = 16 << 20;
/// Channels for a large file on a short path, and the maximum on a long one.
const CHANNELS_SHORT: u32 = 4;
const CHANNELS_LONG: u32 = 16;
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
    /// Both ends are on the same machine.
    is_local: bool,
    /// `None` until it is measured.
    round_trip: Option<Duration>,
    /// The offer whose answer measures the round trip, and when it was sent.
    offered_at: Option<(FileId, Duration)>,
    /// Workloads that started before the path was measured.
    unpicked: Vec<Workload>,
}

impl NetworkPath {
    /// Records whether a channel leads to this machine.
    pub(super) fn see_channel(&mut self, is_local: bool) {
        self.is_local |= is_local;
    }

    pub(super) fn set_round_trip(&mut self, round_trip: Option<Duration>) {
        self.round_trip = round_trip;
    }

    pub(super) fn is_measured(&self) -> bool {
        self.round_trip.is_some()
    }

    /// Whether few bytes in flight suffice. On one machine they always do: a long round trip there
    /// only means that a process waited to be scheduled.
    pub(super) fn is_short(&self) -> bool {
        self.is_local || self.round_trip.is_some_and(|time| time < SHORT)
    }

    /// Records an offer, to measure the round trip by its answer unless another one is pending.
    pub(super) fn offered(&mut self, file: FileId, now: Duration) {
        self.offered_at.get_or_insert((file, now));
    }

    /// Records the answer to an offer. Returns the round-trip time if this is the first
    /// measurement.
    pub(super) fn answered(&mut self, file: FileId, now: Duration) -> Option<Duration> {
        let (_, at) = self.offered_at.take_if(|(offered, _)| *offered == file)?;
        (!self.is_measured()).then(|| now.saturating_sub(at))
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
                by_length.unwrap_or(u32::MAX).clamp(1, CHANNELS_LONG)
            }
        })
    }

    /// Takes the workloads that started before the path was measured.
    pub(super) fn take_unpicked(&mut self) -> Vec<Workload> {
        std::mem::take(&mut self.unpicked)
    }
}
