//! Times in UTC: microseconds inside and in the database, RFC 3339 in JSON.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time in UTC, to the microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(i64);

impl Time {
    /// The time of the system's clock.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default().as_micros();
        Self(i64::try_from(since).unwrap_or(i64::MAX))
    }

    /// The time so many microseconds after the beginning of 1970.
    #[must_use]
    pub fn from_microseconds(microseconds: i64) -> Self {
        Self(microseconds)
    }

    /// Microseconds since the beginning of 1970.
    #[must_use]
    pub fn microseconds(self) -> i64 {
        self.0
    }

    /// Seconds from `earlier` to this time.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e6
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => time.fmt(f),
            // Beyond the year 9999.
            Err(_) => write!(f, "{} us", self.0),
        }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let time: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Self(time.as_microsecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_and_read() {
        let time = Time::from_microseconds(1_700_000_000_123_456);
        let text = serde_json::to_string(&time).unwrap_or_default();
        assert_eq!(text, r#""2023-11-14T22:13:20.123456Z""#);
        assert_eq!(serde_json::from_str::<Time>(&text).ok(), Some(time));
    }
}
