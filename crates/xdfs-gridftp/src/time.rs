//! Times as `YYYYMMDDhhmmss` in UTC (RFC 3659, section 2.3), and as `ls` prints them.

const NS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
/// Half a year in seconds: `ls` prints the year of times further away.
const HALF_YEAR: i64 = 182 * DAY;

struct Civil {
    year: i64,
    month: i64,
    day: i64,
    second: i64,
}

/// The date in the Gregorian calendar. Years are counted from March, so that the leap day is last.
fn civil(unix_s: i64) -> Civil {
    let (days, second) = (unix_s.div_euclid(DAY), unix_s.rem_euclid(DAY));
    // Days since 0000-03-01.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    Civil {
        year: year + era * 400 + i64::from(month <= 2),
        month,
        day: of_year - (153 * from_march + 2) / 5 + 1,
        second,
    }
}

fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Writes a time in nanoseconds since 1970, without fractions.
#[must_use]
pub fn format_time(time_ns: i64) -> String {
    let Civil {
        year,
        month,
        day,
        second,
    } = civil(time_ns.div_euclid(NS));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

/// Reads a time; a fraction after a dot is dropped.
#[must_use]
pub fn parse_time(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if whole.len() != 14 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let part = |range: std::ops::Range<usize>| whole[range].parse::<i64>().ok();
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(8..10)?, part(10..12)?, part(12..14)?);
    let days = days_of(year, month, day);
    let unix_s = days * DAY + hour * 3600 + minute * 60 + second;
    // A leap second is the next minute; other dates that don't exist are refused.
    let is_date = (1..=12).contains(&month)
        && (civil(days * DAY).month, civil(days * DAY).day) == (month, day)
        && hour < 24
        && minute < 60
        && second <= 60;
    is_date.then(|| unix_s.checked_mul(NS)).flatten()
}

/// Writes a time as `ls -l` does, in UTC.
#[must_use]
pub fn format_list_time(time_ns: i64, now_ns: i64) -> String {
    let Civil {
        year,
        month,
        day,
        second,
    } = civil(time_ns.div_euclid(NS));
    let name = usize::try_from(month - 1)
        .ok()
        .and_then(|at| MONTHS.get(at));
    let name = name.copied().unwrap_or("Jan");
    let age = now_ns.div_euclid(NS) - time_ns.div_euclid(NS);
    match (-3600..HALF_YEAR).contains(&age) {
        true => format!(
            "{name} {day:2} {:02}:{:02}",
            second / 3600,
            second / 60 % 60
        ),
        false => format!("{name} {day:2} {year:5}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back() {
        for (text, unix_s) in [
            ("19700101000000", 0),
            ("20000229235959", 951_868_799),
            ("20261121192331", 1_795_289_011),
            ("19691231235959", -1),
        ] {
            assert_eq!(parse_time(text.as_bytes()), Some(unix_s * NS), "{text}");
            assert_eq!(format_time(unix_s * NS + 5), text);
        }
        for day in -200_000..200_000 {
            let date = civil(day * DAY);
            assert_eq!(days_of(date.year, date.month, date.day), day);
        }
        assert_eq!(parse_time(b"19700101000001.25"), Some(NS));
    }

    #[test]
    fn dates_that_do_not_exist_are_refused() {
        for text in [
            "",
            "2026112119233",
            "20261321192331",
            "20260230000000",
            "20260001000000",
            "20260101240000",
            "2026010100000x",
            "20260101000000.",
            "20260101000000.x",
            "-0260101000000",
            "99991231235959",
        ] {
            assert_eq!(parse_time(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn listed_times_have_the_year_when_it_matters() {
        let then = parse_time(b"20261121192331").unwrap();
        assert_eq!(format_list_time(then, then + NS), "Nov 21 19:23");
        assert_eq!(
            format_list_time(then, then + HALF_YEAR * NS),
            "Nov 21  2026"
        );
        assert_eq!(format_list_time(then, then - 2 * 3600 * NS), "Nov 21  2026");
    }
}
