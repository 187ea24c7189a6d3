//! The shares of the time of a transfer in records.

use serde::{Serialize, Serializer};

use crate::events::TimeShares;

/// A map from the name of each cause to its share.
#[derive(Debug)]
pub(super) struct Shares(TimeShares);

impl From<TimeShares> for Shares {
    fn from(shares: TimeShares) -> Self {
        Self(shares)
    }
}

impl Serialize for Shares {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Further digits would suggest a precision that isn't there.
        let rounded = |share: f64| (share * 1e4).round() / 1e4;
        to.collect_map(
            self.0
                .iter()
                .map(|(by, share)| (by.as_str(), rounded(share))),
        )
    }
}

/// The stable name of the bottleneck.
pub(super) fn limited_by(shares: &TimeShares) -> &'static str {
    shares.limited_by().as_str()
}
