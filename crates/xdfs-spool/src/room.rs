//! The room in a spool, and who has taken how much of it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_proto::{Code, Fault};

use crate::segment::full;

/// Limits of a spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolLimits {
    /// Most bytes of all parcels that are not delivered yet.
    pub bytes_max: u64,
    /// Most bytes of those of one user.
    pub bytes_per_user_max: u64,
    /// Bytes that count for each parcel beside its file, ended ones included: what the index takes.
    pub parcel_bytes: u64,
    /// Most parcels of one user that are known, ended ones included.
    pub parcels_per_user_max: u64,
    /// Size at which the next segment is begun.
    pub segment_bytes: u64,
    /// Bytes of the disk that are left free, for the index and for others.
    pub reserve_bytes: u64,
}

impl Default for SpoolLimits {
    fn default() -> Self {
        Self {
            bytes_max: u64::MAX,
            bytes_per_user_max: u64::MAX,
            // 2,920 small files have 3.8 MB of index; names and URLs may be longer than theirs.
            parcel_bytes: 4096,
            parcels_per_user_max: 1_000_000,
            segment_bytes: 256 << 20,
            reserve_bytes: 64 << 20,
        }
    }
}

/// Room that the parcels of a user take.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    bytes: u64,
    parcels: u64,
}

/// The room in a spool.
#[derive(Debug)]
pub(crate) struct Room {
    limits: SpoolLimits,
    taken: Mutex<HashMap<String, Taken>>,
}

impl Room {
    pub(crate) fn new(limits: SpoolLimits) -> Self {
        Self {
            limits,
            taken: Mutex::default(),
        }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<String, Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what a user has taken before.
    pub(crate) fn add(&self, user: &str, bytes: u64, parcels: u64) {
        let mut taken = self.taken();
        let own = taken.entry(user.to_owned()).or_default();
        own.bytes = own.bytes.saturating_add(bytes);
        own.parcels += parcels;
    }

    /// Reserves room for so many bytes and parcels more.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`]: the user has too many parcels. [`Code::QuotaExceeded`] and
    /// [`Code::NoSpace`] with a time to wait: there is no room.
    pub(crate) fn take(&self, user: &str, bytes: u64, parcels: u64) -> Result<(), Fault> {
        const OPERATION: &str = "open the parcel";
        let mut taken = self.taken();
        let whole = |own: &Taken| {
            let index = own.parcels.saturating_mul(self.limits.parcel_bytes);
            own.bytes.saturating_add(index)
        };
        let all = taken.values().map(whole).fold(0, u64::saturating_add);
        let own = taken.entry(user.to_owned()).or_default();
        let index = parcels.saturating_mul(self.limits.parcel_bytes);
        let more = bytes.saturating_add(index);
        let is_above = |bytes: u64, most: u64| bytes.saturating_add(more) > most;
        if own.parcels.saturating_add(parcels) > self.limits.parcels_per_user_max {
            let cause = format!("the user has {} parcels", own.parcels);
            let fault = Fault::new(Code::LimitExceeded, OPERATION, cause);
            return Err(fault.hint("ended ones count for a week"));
        }
        if is_above(whole(own), self.limits.bytes_per_user_max) {
            let most = self.limits.bytes_per_user_max;
            let cause = format!("parcels of the user may take {most} bytes");
            return Err(full(Fault::new(Code::QuotaExceeded, OPERATION, cause)));
        }
        if is_above(all, self.limits.bytes_max) {
            let cause = format!("parcels may take {} bytes", self.limits.bytes_max);
            return Err(full(Fault::new(Code::NoSpace, OPERATION, cause)));
        }
        own.bytes = own.bytes.saturating_add(bytes);
        own.parcels += parcels;
        Ok(())
    }

    /// Gives back what was reserved.
    pub(crate) fn give_back(&self, user: &str, bytes: u64, parcels: u64) {
        let mut taken = self.taken();
        if let Some(own) = taken.get_mut(user) {
            own.bytes = own.bytes.saturating_sub(bytes);
            own.parcels = own.parcels.saturating_sub(parcels);
        }
    }
}
