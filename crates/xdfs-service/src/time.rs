//! Times in UTC: microseconds inside and in the database, RFC 3339 in JSON. And moments: times, or
//! durations until then, as people name them.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, Timestamp};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xdfs::{Code, Fault};

/// Longest duration that is read.
const DURATION_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// A time in UTC, to the microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String, format = DateTime)]
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
    pub const fn from_microseconds(microseconds: i64) -> Self {
        Self(microseconds)
    }

    /// Microseconds since the beginning of 1970.
    #[must_use]
    pub fn microseconds(self) -> i64 {
        self.0
    }

    /// This time and so much more.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let duration = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(duration))
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
        match Timestamp::from_microsecond(self.0) {
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
        let time: Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Self(time.as_microsecond()))
    }
}

/// A duration as people write it, of a second or more: `90s`, `15m`, `6h`, `2d`, `1w`, `1d 6h`. A
/// day has 24 hours.
///
/// # Errors
/// It is no duration, or one of less than a second or more than a century.
pub fn parse_duration(text: &str) -> Result<Duration, Fault> {
    let read = || {
        let span: Span = text.parse().ok()?;
        let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
        let duration = Duration::from_secs(Duration::try_from(duration).ok()?.as_secs());
        (Duration::from_secs(1)..=DURATION_MAX)
            .contains(&duration)
            .then_some(duration)
    };
    read().ok_or_else(|| {
        let cause = "it is no duration from a second to a century";
        Fault::new(Code::InvalidArgument, "understand", cause)
            .path(text)
            .hint("write one such as 90s, 15m, 6h, 2d or '1d 6h'")
    })
}

/// A duration as [`parse_duration`] reads it.
pub(crate) struct Written(pub(crate) Duration);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let parts = [
            (seconds / 86_400, "d"),
            (seconds / 3600 % 24, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = parts
            .map(|(count, unit)| format!("{count}{unit}"))
            .collect();
        f.write_str(&parts.join(" "))
    }
}

/// A time, or the duration until then from when it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// This time.
    At(Time),
    /// So much later.
    After(Duration),
}

impl Moment {
    /// The time, as seen from this one.
    #[must_use]
    pub fn from(self, now: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::After(duration) => now.after(duration),
        }
    }

    /// Reads a moment as people on this machine write it: also a local date and time, such as
    /// `2026-05-01 03:00`, or a date, which is its midnight.
    ///
    /// # Errors
    /// It is no moment.
    pub fn parse_local(text: &str) -> Result<Self, Fault> {
        text.parse().or_else(|fault| {
            let local: Result<DateTime, _> = text.parse();
            let zoned = local.and_then(|local| local.to_zoned(TimeZone::system()));
            let zoned = zoned.map_err(|_| fault)?;
            Ok(Self::At(Time(zoned.timestamp().as_microsecond())))
        })
    }
}

impl FromStr for Moment {
    type Err = Fault;

    /// Reads a time of RFC 3339, or a duration ([`parse_duration`]).
    fn from_str(text: &str) -> Result<Self, Fault> {
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(Self::At(Time(time.as_microsecond())));
        }
        let after = parse_duration(text).map(Self::After);
        after.map_err(|_| {
            let cause = "it is neither a time nor a duration";
            Fault::new(Code::InvalidArgument, "understand", cause)
                .path(text)
                .hint("write one such as 2026-05-01T03:00:00Z, 90s, 15m, 6h or 2d")
        })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(time) => time.fmt(f),
            Self::After(duration) => Written(*duration).fmt(f),
        }
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_times_and_durations() {
        let hour = Duration::from_secs(3600);
        for (text, expected) in [
            ("90s", Some(hour / 40)),
            ("15m", Some(hour / 4)),
            ("6h", Some(hour * 6)),
            ("2d", Some(hour * 48)),
            ("1w", Some(hour * 168)),
            ("1d 6h", Some(hour * 30)),
            ("", None),
            ("0s", None),
            ("1ms", None),
            ("-6h", None),
            ("6", None),
            ("1y", None),
            ("40000d", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(parse_duration(text).ok(), expected, "{text}");
            if let Some(duration) = expected {
                let written = Moment::After(duration).to_string();
                assert_eq!(written.parse(), Ok(Moment::After(duration)));
            }
        }
        let now = Time::from_microseconds(1_700_000_000_000_000);
        let later: Moment = "6h".parse().unwrap_or(Moment::At(now));
        assert_eq!(later.from(now).to_string(), "2023-11-15T04:13:20Z");
        let at: Moment = "2023-11-14T22:13:20Z".parse().unwrap_or(later);
        assert_eq!(at.from(later.from(now)), now);
        assert_eq!(at.to_string().parse(), Ok(at));
        // Only where it is clear whose time it is.
        assert!("2023-11-14 22:13".parse::<Moment>().is_err());
        assert!(matches!(
            Moment::parse_local("2023-11-14 22:13"),
            Ok(Moment::At(_))
        ));
        assert!(matches!(
            Moment::parse_local("2023-11-14"),
            Ok(Moment::At(_))
        ));
        assert!(Moment::parse_local("tomorrow").is_err());
    }

    #[test]
    fn a_time_is_written_and_read() {
        let time = Time::from_microseconds(1_700_000_000_123_456);
        let text = serde_json::to_string(&time).unwrap_or_default();
        assert_eq!(text, r#""2023-11-14T22:13:20.123456Z""#);
        assert_eq!(serde_json::from_str::<Time>(&text).ok(), Some(time));
    }
}
