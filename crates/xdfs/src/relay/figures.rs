//! The metrics of a relay.

use std::sync::atomic::{AtomicU64, Ordering};

use xdfs_proto::relay::ParcelState;

use super::attempt::lock;
use super::parcels::Relay;
use crate::metrics::Family;

impl Relay {
    /// The metrics of the relay, as they are now.
    pub(crate) fn families(&self) -> Vec<Family> {
        let mut by_state = [0_u64; ParcelState::ALL.len()];
        let (mut bytes, mut oldest) = (0_u64, u64::MAX);
        self.spool.counted(|parcel| {
            by_state[usize::from(parcel.state.number())] += 1;
            bytes = bytes.saturating_add(parcel.bytes);
            if parcel.state == ParcelState::Held {
                oldest = oldest.min(parcel.opened_s);
            }
        });
        let running = lock(&self.running);
        let running = running.values().filter(|attempt| !attempt.is_ahead());
        let running = running.count() as u64;
        let [arriving, held, delivering, _, dead, _] = &mut by_state;
        // The spool doesn't know of attempts.
        *delivering = running.min(*held);
        *held -= *delivering;
        let age_s = match oldest {
            u64::MAX => 0,
            oldest => self.now_s().saturating_sub(oldest),
        };
        let states = [
            (ParcelState::Arriving, *arriving),
            (ParcelState::Held, *held),
            (ParcelState::Delivering, *delivering),
            (ParcelState::Dead, *dead),
        ];
        let own = &self.tally;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ends = [
            ("delivered", read(&own.delivered)),
            ("dead", read(&own.dead)),
            ("expired", read(&own.expired)),
            ("cancelled", read(&own.cancelled)),
        ];
        let parcels = Family::gauge("xdfs_relay_parcels", "Parcels that are not at their end");
        let ended = Family::counter("xdfs_relay_parcels_ended", "Parcels by their ends");
        vec![
            states.iter().fold(parcels, |family, (state, count)| {
                family.with(&[("state", state.as_str())], *count)
            }),
            Family::gauge(
                "xdfs_relay_reserved_bytes",
                "Lengths of the files of these parcels",
            )
            .with(&[], bytes),
            Family::gauge(
                "xdfs_relay_spool_bytes",
                "What the files of parcels take in the spool",
            )
            .with(&[], self.spool.stored_bytes()),
            Family::gauge(
                "xdfs_relay_oldest_seconds",
                "Age of the oldest parcel that waits for its delivery, or 0",
            )
            .with(&[], age_s),
            ends.iter().fold(ended, |family, (result, count)| {
                family.with(&[("result", result)], *count)
            }),
            Family::counter(
                "xdfs_relay_delivered_bytes",
                "Lengths of the files that were delivered",
            )
            .with(&[], read(&own.delivered_bytes)),
            Family::counter("xdfs_relay_attempts", "Attempts to deliver a parcel")
                .with(&[], read(&own.attempts)),
            Family::counter("xdfs_relay_attempts_failed", "Attempts that failed")
                .with(&[], read(&own.failed)),
        ]
    }
}
