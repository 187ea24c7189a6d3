//! Formats times as in ls(1) and stat(1), and parses those of the command line, in the time zone of
//! this machine (`TZ`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use xdfs::known_time;

/// Half a mean year: older and future times are shown with the year instead of the hour.
const RECENT_NS: i64 = 31_556_952 / 2 * 1_000_000_000;

/// The current time, in nanoseconds since 1970-01-01 UTC.
pub(crate) fn now() -> i64 {
    nanoseconds_of(SystemTime::now())
}

/// A system time, in nanoseconds since 1970-01-01 UTC.
pub(crate) fn nanoseconds_of(time: SystemTime) -> i64 {
    let whole = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => whole(after),
        Err(before) => -whole(before.duration()),
    }
}

fn local(time_ns: i64, zone: &TimeZone) -> Option<Zoned> {
    let time = Timestamp::from_nanosecond(known_time(time_ns)?.into()).ok()?;
    Some(time.to_zoned(zone.clone()))
}

/// A time in a long listing: `Jan 31 12:00`, or `Jan 31  2025` if it isn't recent.
pub(crate) fn short(time_ns: i64, now_ns: i64, zone: &TimeZone) -> String {
    let recent = time_ns <= now_ns && now_ns.saturating_sub(time_ns) < RECENT_NS;
    let form = if recent { "%b %e %H:%M" } else { "%b %e  %Y" };
    local(time_ns, zone).map_or_else(|| "?".into(), |time| time.strftime(form).to_string())
}

/// A time to the nanosecond: `2026-01-31 12:00:00.000000000 +0100`.
pub(crate) fn full(time_ns: i64, zone: &TimeZone) -> String {
    let form = "%Y-%m-%d %H:%M:%S.%9f %z";
    local(time_ns, zone).map_or_else(|| "?".into(), |time| time.strftime(form).to_string())
}

/// Parses a time: `now`, `@SECONDS`, or a date, optionally with a time and a zone.
///
/// # Errors
/// A message for the user.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    parse_in(text.trim(), &TimeZone::system())
}

fn parse_in(text: &str, zone: &TimeZone) -> Result<i64, String> {
    if text == "now" {
        return Ok(now());
    }
    if let Some(seconds) = text.strip_prefix('@') {
        let seconds = seconds.parse::<i64>().ok();
        let time = seconds.and_then(|seconds| seconds.checked_mul(1_000_000_000));
        return time.ok_or_else(|| "after '@' stand whole seconds since 1970".into());
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return nanoseconds(time);
    }
    let civil = text.parse::<DateTime>().or_else(|_| {
        text.parse::<Date>()
            .map(|date| date.to_datetime(Time::midnight()))
    });
    match civil {
        Ok(civil) => at(civil, zone),
        Err(_) => {
            let like = "'2026-01-31 12:00', 2026-01-31, 2026-01-31T12:00:00Z, @SECONDS or now";
            Err(format!("a time is written like {like}"))
        }
    }
}

/// Parses an age: a whole number and its unit.
///
/// # Errors
/// A message for the user.
pub(crate) fn parse_age(text: &str) -> Result<Duration, String> {
    let bad = || "an age is a whole number and s, m, h, d or w, such as 12h".to_owned();
    let (at, unit) = text.char_indices().next_back().ok_or_else(bad)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return Err(bad()),
    };
    let number = &text[..at];
    let is_whole = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let number = is_whole.then(|| number.parse::<u64>().ok()).flatten();
    let seconds = number.and_then(|number| number.checked_mul(seconds));
    seconds.map(Duration::from_secs).ok_or_else(bad)
}

/// Parses a time in the format of touch(1): `[[CC]YY]MMDDhhmm[.ss]`.
///
/// # Errors
/// A message for the user.
pub(crate) fn parse_stamp(text: &str) -> Result<i64, String> {
    stamp_in(text, &TimeZone::system())
}

fn stamp_in(text: &str, zone: &TimeZone) -> Result<i64, String> {
    let bad = || "a time in digits is written [[CC]YY]MMDDhhmm[.ss]".to_owned();
    let (digits, seconds) = text.split_once('.').unwrap_or((text, "00"));
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(digits) || !all_digits(seconds) || seconds.len() != 2 {
        return Err(bad());
    }
    let number = |at: std::ops::Range<usize>| digits.get(at).and_then(|part| part.parse().ok());
    let (year, start) = match digits.len() {
        8 => (Timestamp::now().to_zoned(zone.clone()).year(), 0),
        // By POSIX, 69 to 99 are in the last century.
        10 => match number(0..2).ok_or_else(bad)? {
            year @ 69.. => (1900 + year, 2),
            year => (2000 + year, 2),
        },
        12 => (number(0..4).ok_or_else(bad)?, 4),
        _ => return Err(bad()),
    };
    let field = |index: usize| {
        let at = start + 2 * index;
        digits
            .get(at..at + 2)
            .and_then(|part| part.parse::<i8>().ok())
            .ok_or_else(bad)
    };
    let seconds = seconds.parse::<i8>().map_err(|_| bad())?;
    let civil = DateTime::new(year, field(0)?, field(1)?, field(2)?, field(3)?, seconds, 0);
    at(civil.map_err(|_| bad())?, zone)
}

fn at(civil: DateTime, zone: &TimeZone) -> Result<i64, String> {
    let time = civil.to_zoned(zone.clone()).map_err(|e| e.to_string())?;
    nanoseconds(time.timestamp())
}

fn nanoseconds(time: Timestamp) -> Result<i64, String> {
    i64::try_from(time.as_nanosecond()).map_err(|_| "the time is too far away".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn times_of_listings() {
        let zone = TimeZone::UTC;
        let now = parse_in("2026-07-01 00:00", &zone).unwrap();
        for (time, text) in [
            ("2026-06-03 04:05:59", "Jun  3 04:05"),
            ("2026-01-31 12:00", "Jan 31 12:00"),
            ("2025-12-01 12:00", "Dec  1  2025"),
            ("2026-07-01 00:01", "Jul  1  2026"),
            ("1970-01-01", "Jan  1  1970"),
        ] {
            assert_eq!(short(parse_in(time, &zone).unwrap(), now, &zone), text);
        }
        assert_eq!(full(1, &zone), "1970-01-01 00:00:00.000000001 +0000");
        assert_eq!(full(-1, &zone), "1969-12-31 23:59:59.999999999 +0000");
        let east = TimeZone::posix("CET-1").unwrap();
        assert_eq!(full(0, &east), "1970-01-01 01:00:00.000000000 +0100");
        // Any time from a server can be formatted.
        for extreme in [i64::MIN, i64::MAX] {
            assert!(!short(extreme, now, &zone).is_empty());
        }
    }

    #[test]
    fn times_of_the_command_line() {
        let zone = TimeZone::posix("CET-1").unwrap();
        for (text, seconds) in [
            ("@5", 5),
            ("@-5", -5),
            ("1970-01-01T00:00:07Z", 7),
            ("1970-01-01 01:00", 0),
            ("1970-01-01 01:00:03", 3),
            ("1970-01-02", 23 * 3600),
        ] {
            assert_eq!(parse_in(text, &zone), Ok(seconds * SECOND), "{text}");
        }
        for bad in [
            "",
            "yesterday",
            "@",
            "@1.5",
            "@99999999999999",
            "2026-13-01",
            "12:00",
        ] {
            assert!(parse_in(bad, &zone).is_err(), "{bad}");
        }
    }

    #[test]
    fn ages() {
        for (text, seconds) in [("0s", 0), ("90m", 5400), ("12h", 43_200), ("7d", 604_800)] {
            assert_eq!(parse_age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_age("2w"), parse_age("14d"));
        for bad in [
            "",
            "d",
            "7",
            "1.5d",
            "-1d",
            "+1d",
            "7 d",
            "7\u{e9}",
            "99999999999999999w",
        ] {
            assert!(parse_age(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_in_digits() {
        let zone = TimeZone::UTC;
        assert_eq!(stamp_in("197001010000.05", &zone), Ok(5 * SECOND));
        assert_eq!(stamp_in("7001010001", &zone), Ok(60 * SECOND));
        assert_eq!(
            stamp_in("2601311200", &zone),
            parse_in("2026-01-31 12:00", &zone)
        );
        assert!(stamp_in("01311200", &zone).is_ok());
        for bad in [
            "",
            "1",
            "13011200",
            "197001010000.5",
            "19700101000a",
            "1970010100000",
        ] {
            assert!(stamp_in(bad, &zone).is_err(), "{bad}");
        }
    }
}
