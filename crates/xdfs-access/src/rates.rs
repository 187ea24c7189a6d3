//! Rate limits of users.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use xdfs_store::rate::SharedRate;

/// A rate limit per user with present or recent sessions. Accessed once per session.
#[derive(Debug)]
pub(crate) struct UserRates {
    bytes_per_s: NonZeroU64,
    by_user: Mutex<HashMap<String, Arc<SharedRate>>>,
}

impl UserRates {
    pub(crate) fn new(bytes_per_s: NonZeroU64) -> Self {
        Self {
            bytes_per_s,
            by_user: Mutex::default(),
        }
    }

    /// The bytes per second of each user.
    pub(crate) fn bytes_per_s(&self) -> NonZeroU64 {
        self.bytes_per_s
    }

    /// The rate limit shared by all sessions of a user.
    pub(crate) fn of(&self, user: &str, now: Instant) -> Arc<SharedRate> {
        let mut rates = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        // Kept until it is settled, so that reconnecting doesn't evade the limit.
        rates.retain(|_, rate| Arc::strong_count(rate) > 1 || !rate.is_settled(now));
        let new = || Arc::new(SharedRate::new(self.bytes_per_s.get(), now));
        Arc::clone(rates.entry(user.to_owned()).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_one_user_have_one_bound() {
        let rates = UserRates::new(NonZeroU64::new(5).unwrap());
        let now = Instant::now();
        let (first, second) = (rates.of("alice", now), rates.of("alice", now));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &rates.of("bob", now)));
        drop((first, second));
        rates.of("carol", now);
        // Users without sessions are forgotten.
        assert_eq!(rates.by_user.lock().unwrap().len(), 1);
    }
}
