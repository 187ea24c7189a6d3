//! Times in the format of RFC 3339, section 5.6, in UTC with milliseconds.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::{Date, date};
use jiff::tz::TimeZone;

/// The first day representable in RFC 3339.
const FIRST: Date = date(0, 1, 1);

/// Formats a time. Times before the year 0 or after 9999, which RFC 3339 can't represent, become
/// approximately the nearest that it can.
pub(super) fn rfc3339(time: SystemTime) -> String {
    let is_late = time > SystemTime::UNIX_EPOCH;
    let limit = if is_late {
        Timestamp::MAX
    } else {
        Timestamp::MIN
    };
    let time = Timestamp::try_from(time).unwrap_or(limit);
    let first = FIRST
        .to_zoned(TimeZone::UTC)
        .map_or(time, |first| first.timestamp());
    format!("{:.3}", time.max(first))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn text(seconds: i64, nanoseconds: u32) -> String {
        let distance = Duration::from_secs(seconds.unsigned_abs());
        let time = if seconds < 0 {
            UNIX_EPOCH - distance
        } else {
            UNIX_EPOCH + distance
        };
        rfc3339(time + Duration::from_nanos(nanoseconds.into()))
    }

    #[test]
    fn known_times() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_000_000_000, "2001-09-09T01:46:40.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (253_402_207_200, "9999-12-30T22:00:00.000Z"),
            (253_402_300_800, "9999-12-30T22:00:00.999Z"),
            (-62_167_219_201, "0000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(text(seconds, 0), expected);
        }
        assert_eq!(text(0, 1_999_999), "1970-01-01T00:00:00.001Z");
        assert_eq!(text(-1, 999_500_000), "1969-12-31T23:59:59.999Z");
    }
}
