//! Rules of schedules: the times at which a job is submitted. No clock, and no input or output.
//!
//! A rule is an interval, or the five fields of cron and perhaps a time zone. A time of the day
//! that a zone leaves out, since its clocks are put forward, comes as much later as they are put;
//! one that a zone has twice comes once, the first time. With `*` as the hour, a rule is one of
//! every hour that passes.

use std::time::Duration;

use cronexpr::{Crontab, MakeTimestamp, parse_crontab};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use xdfs::{Code, Fault};

use crate::time::{Time, parse_duration};

/// Shortest interval: that of cron.
const INTERVAL_MIN: Duration = Duration::from_secs(60);
/// Most characters of a rule.
const CHARS_MAX: usize = 200;
/// No zone puts its clocks forward or back by more.
const SHIFT_MAX: SignedDuration = SignedDuration::from_hours(3);
/// A set-back of the clock that repeats no time of cron.
const SET_BACK_MAX: Duration = Duration::from_secs(3 * 60 * 60);

/// The times of a schedule.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// Every so often.
    Every(Duration),
    /// At times of cron.
    Cron(Box<Cron>),
}

#[derive(Clone, Debug)]
pub(crate) struct Cron {
    zone: TimeZone,
    /// The fields, for times of the zone.
    zoned: Crontab,
    /// The fields, for dates and times as if they were of UTC.
    civil: Crontab,
    is_of_every_hour: bool,
}

impl Cron {
    fn parse(fields: &[&str], zone: Option<&str>) -> Option<Self> {
        let zone = match zone {
            Some(name) => TimeZone::get(name).ok()?,
            None => TimeZone::system(),
        };
        // A system may have a zone without a name; hours that pass are the same in all of them.
        let name = zone.iana_name().unwrap_or("UTC");
        let text = fields.join(" ");
        Some(Self {
            zoned: parse_crontab(&format!("{text} {name}")).ok()?,
            civil: parse_crontab(&format!("{text} UTC")).ok()?,
            is_of_every_hour: fields.get(1) == Some(&"*") && zone.iana_name().is_some(),
            zone,
        })
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        if self.is_of_every_hour {
            let next = self.zoned.find_next(MakeTimestamp(after)).ok()?;
            return Some(next.timestamp());
        }
        let local = after.to_zoned(self.zone.clone()).datetime();
        let local = local.to_zoned(TimeZone::UTC).ok()?.timestamp();
        // What was left out before may come after.
        let mut from = local.checked_sub(SHIFT_MAX).ok()?;
        // Each time is a later minute of the few hours that may be repeated.
        loop {
            let found = self.civil.find_next(MakeTimestamp(from)).ok()?;
            let time = found.datetime().to_zoned(self.zone.clone()).ok()?;
            if time.timestamp() > after {
                return Some(time.timestamp());
            }
            from = found.timestamp();
        }
    }
}

fn refused(cause: &str) -> Fault {
    Fault::new(Code::InvalidArgument, "accept the field", cause)
        .path("every")
        .hint("write an interval such as 6h, or fields of cron: '30 2 * * 1-5 Europe/Berlin'")
}

impl Rule {
    /// Reads a rule: an interval of a minute or more, or minute, hour, day of the month, month and
    /// day of the week, and perhaps the name of a time zone; without one they are times of this
    /// machine.
    ///
    /// # Errors
    /// It is no rule, or one of times that never come.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        if text.len() > CHARS_MAX {
            return Err(refused("it is too long"));
        }
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if let Ok(interval) = parse_duration(text) {
            return match interval >= INTERVAL_MIN {
                true => Ok(Self::Every(interval)),
                false => Err(refused("the interval is shorter than a minute")),
            };
        }
        let cron = match words.as_slice() {
            fields @ [_, _, _, _, _] => Cron::parse(fields, None),
            [fields @ .., zone] if fields.len() == 5 => Cron::parse(fields, Some(zone)),
            _ => None,
        };
        let cron = cron.ok_or_else(|| refused("it is neither an interval nor of cron"))?;
        Ok(Self::Cron(Box::new(cron)))
    }

    /// The first time of the rule, if it begins at this one; `None` if there is none.
    pub(crate) fn first(&self, from: Time) -> Option<Time> {
        match self {
            Self::Every(_) => Some(from),
            // A time of cron has no seconds.
            Self::Cron(_) => self.after(Time::from_microseconds(from.microseconds() - 1)),
        }
    }

    fn after(&self, time: Time) -> Option<Time> {
        match self {
            Self::Every(interval) => Some(time.after(*interval)),
            Self::Cron(cron) => {
                let time = Timestamp::from_microsecond(time.microseconds()).ok()?;
                let next = cron.next(time)?;
                Some(Time::from_microseconds(next.as_microsecond()))
            }
        }
    }

    /// The next time in the future, after `last`, which is past: those that were missed
    /// meanwhile are left out.
    pub(crate) fn next(&self, last: Time, now: Time) -> Option<Time> {
        match self {
            Self::Every(interval) => {
                let interval = i64::try_from(interval.as_micros()).ok()?;
                let passed = now.microseconds().checked_sub(last.microseconds())?.max(0);
                let count = passed.checked_div(interval)?.checked_add(1)?;
                let next = last
                    .microseconds()
                    .checked_add(count.checked_mul(interval)?)?;
                Some(Time::from_microseconds(next))
            }
            Self::Cron(_) => self.after(now.max(last)),
        }
    }

    /// The next time, instead of `next`, after the clock was set back: to `now`, from `then` or
    /// later. An interval begins again; times of cron within three hours aren't repeated.
    pub(crate) fn set_back(&self, next: Time, then: Time, now: Time) -> Option<Time> {
        match self {
            Self::Every(interval) => Some(next.min(now.after(*interval))),
            Self::Cron(_) if then <= now.after(SET_BACK_MAX) => Some(next),
            Self::Cron(_) => self.after(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        let time: Timestamp = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        Time::from_microseconds(time.as_microsecond())
    }

    fn rule(text: &str) -> Rule {
        Rule::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"))
    }

    /// The times of a rule from one on.
    fn times(text: &str, from: &str, count: usize) -> Vec<String> {
        let (rule, mut at) = (rule(text), time(from));
        let next = |_| {
            at = rule.next(at, at).unwrap_or_else(|| panic!("{text} ends"));
            at.to_string()
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn a_time_of_the_day_that_is_left_out_comes_later_and_one_that_is_repeated_comes_once() {
        let daily = "30 2 * * * Europe/Berlin";
        assert_eq!(
            times(daily, "2026-03-27T12:00:00Z", 3),
            [
                "2026-03-28T01:30:00Z",
                // 03:30, as there is no 02:30.
                "2026-03-29T01:30:00Z",
                "2026-03-30T00:30:00Z",
            ]
        );
        assert_eq!(
            times(daily, "2026-10-23T12:00:00Z", 3),
            [
                "2026-10-24T00:30:00Z",
                "2026-10-25T00:30:00Z",
                "2026-10-26T01:30:00Z"
            ]
        );
        // Of two times that become one, one is left.
        assert_eq!(
            times("30 2,3 * * * Europe/Berlin", "2026-03-28T12:00:00Z", 3),
            [
                "2026-03-29T01:30:00Z",
                "2026-03-30T00:30:00Z",
                "2026-03-30T01:30:00Z"
            ]
        );
        // A clock that is put by half an hour, and a day that is left out.
        assert_eq!(
            times("15 2 * * * Australia/Lord_Howe", "2026-10-02T20:00:00Z", 2),
            ["2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"]
        );
        assert_eq!(
            times("0 8 * * * Pacific/Apia", "2011-12-29T20:00:00Z", 2),
            ["2011-12-30T18:00:00Z", "2011-12-31T18:00:00Z"]
        );
        // Hours pass in the same way on all days.
        assert_eq!(
            times("0 * * * * Europe/Berlin", "2026-10-24T23:10:00Z", 3),
            [
                "2026-10-25T00:00:00Z",
                "2026-10-25T01:00:00Z",
                "2026-10-25T02:00:00Z"
            ]
        );
        assert_eq!(
            times("0 * * * * Europe/Berlin", "2026-03-29T00:10:00Z", 2),
            ["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"]
        );
    }

    #[test]
    fn rules_of_cron() {
        let from = "2026-02-27T10:05:30Z";
        for (text, expected) in [
            ("* * * * * UTC", "2026-02-27T10:06:00Z"),
            ("*/15 9-17 * * 1-5 UTC", "2026-02-27T10:15:00Z"),
            ("0 0 1 * * UTC", "2026-03-01T00:00:00Z"),
            ("0 12 29 FEB * UTC", "2028-02-29T12:00:00Z"),
            ("  5 4\t* * SUN   UTC ", "2026-03-01T04:05:00Z"),
        ] {
            assert_eq!(times(text, from, 1), [expected], "{text}");
        }
        // Without a zone it is that of the machine.
        assert!(rule("30 2 * * *").first(time(from)).is_some());
        let at = time("2026-02-27T10:05:00Z");
        assert_eq!(rule("5 10 * * * UTC").first(at), Some(at));
        for text in [
            "",
            "30s",
            "0h",
            "-6h",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * * * * Moon/Crater",
            "* * * * * UTC more",
            "@daily",
            "'; DROP TABLE jobs; --",
            "* * * * * ../../etc/passwd",
            &"* ".repeat(200),
        ] {
            let refused = Rule::parse(text).map_err(|fault| fault.path);
            assert_eq!(refused.err().as_deref(), Some(&b"every"[..]), "{text}");
        }
        assert_eq!(rule("0 0 30 2 * UTC").first(at), None);
    }

    #[test]
    fn missed_times_are_left_out_and_an_interval_keeps_its_phase() {
        let (last, now) = (time("2026-02-27T10:00:00Z"), time("2026-02-28T11:30:00Z"));
        for (text, expected) in [
            ("6h", "2026-02-28T16:00:00Z"),
            ("1d", "2026-03-01T10:00:00Z"),
            ("0 */6 * * * UTC", "2026-02-28T12:00:00Z"),
        ] {
            let next = rule(text).next(last, now).map(|next| next.to_string());
            assert_eq!(next.as_deref(), Some(expected), "{text}");
        }
        // At its very time, the one after.
        assert_eq!(
            times("6h", "2026-02-27T10:00:00Z", 1),
            ["2026-02-27T16:00:00Z"]
        );
    }

    #[test]
    fn a_clock_that_is_set_back_neither_stops_a_schedule_nor_repeats_it() {
        let (then, next) = (time("2026-02-27T02:30:00Z"), time("2026-02-28T02:30:00Z"));
        let set_back = |text, now| {
            let next = rule(text).set_back(next, then, time(now));
            next.map(|next| next.to_string()).unwrap_or_default()
        };
        let cron = "30 2 * * * UTC";
        assert_eq!(
            set_back(cron, "2026-02-27T02:29:50Z"),
            "2026-02-28T02:30:00Z"
        );
        assert_eq!(
            set_back(cron, "2020-05-01T12:00:00Z"),
            "2020-05-02T02:30:00Z"
        );
        assert_eq!(
            set_back("1d", "2026-02-27T02:29:50Z"),
            "2026-02-28T02:29:50Z"
        );
        assert_eq!(
            set_back("1d", "2020-05-01T12:00:00Z"),
            "2020-05-02T12:00:00Z"
        );
    }
}
