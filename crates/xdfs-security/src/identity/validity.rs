//! The time in which certificates are valid, as their owner should know it.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

const DAY_S: i64 = 24 * 3600;
/// How long before their end certificates are said to end soon: a quarter of their time, within
/// these bounds. Those of ACME services are renewed when a third is left.
const SOON_S: (i64, i64) = (DAY_S, 14 * DAY_S);

/// The time in which all certificates of a chain are valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    not_before: i64,
    not_after: i64,
}

/// The state of a [`Validity`] at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Timeliness {
    /// Nothing: it is valid.
    Valid,
    /// It ends soon; in words, such as `its certificate ends on 2026-01-02 03:04 UTC`.
    EndsSoon(String),
    /// It has ended or hasn't begun, likewise.
    Invalid(String),
}

impl Validity {
    /// The validity of a chain; `None` if it is empty or damaged.
    #[must_use]
    pub fn of(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let mut all = None;
        for certificate in chain {
            let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
            let time = parsed.validity();
            let (begin, end) = (time.not_before.timestamp(), time.not_after.timestamp());
            let so_far = all.unwrap_or(Self {
                not_before: begin,
                not_after: end,
            });
            all = Some(Self {
                not_before: so_far.not_before.max(begin),
                not_after: so_far.not_after.min(end),
            });
        }
        all
    }

    /// The first second after it, in seconds since 1970.
    #[must_use]
    pub fn not_after(&self) -> i64 {
        self.not_after
    }

    /// Whether it holds at the time `now_unix`, in seconds since 1970.
    #[must_use]
    pub fn holds_at(&self, now_unix: i64) -> bool {
        (self.not_before..=self.not_after).contains(&now_unix)
    }

    /// Its state at the time `now_unix`, in seconds since 1970.
    #[must_use]
    pub fn at(&self, now_unix: i64) -> Timeliness {
        let Self {
            not_before,
            not_after,
        } = *self;
        let quarter = not_after.saturating_sub(not_before) / 4;
        let soon = quarter.clamp(SOON_S.0, SOON_S.1);
        if now_unix > not_after {
            Timeliness::Invalid(format!("the certificate ended on {}", minute(not_after)))
        } else if now_unix < not_before {
            let begin = minute(not_before);
            Timeliness::Invalid(format!("the certificate isn't valid before {begin}"))
        } else if not_after.saturating_sub(now_unix) < soon {
            Timeliness::EndsSoon(format!("the certificate ends on {}", minute(not_after)))
        } else {
            Timeliness::Valid
        }
    }
}

/// A time for people, such as `2026-01-02 03:04 UTC`.
#[must_use]
pub fn minute(unix_s: i64) -> String {
    match Timestamp::from_second(unix_s) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => format!("{unix_s} s after 1970"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_soon_depends_on_the_time_it_has() {
        let at = |days: i64, now: i64| {
            let time = Validity {
                not_before: 0,
                not_after: days * DAY_S,
            };
            time.at(now)
        };
        let is_soon =
            |days, left_s| matches!(at(days, days * DAY_S - left_s), Timeliness::EndsSoon(_));
        assert!(is_soon(365, 14 * DAY_S - 1) && !is_soon(365, 14 * DAY_S));
        assert!(is_soon(8, 2 * DAY_S - 1) && !is_soon(8, 2 * DAY_S));
        assert!(is_soon(1, DAY_S - 1));
        assert_eq!(at(90, 45 * DAY_S), Timeliness::Valid);
        let words = "the certificate ended on 1970-04-01 00:00 UTC";
        assert_eq!(at(90, 90 * DAY_S + 1), Timeliness::Invalid(words.into()));
        let words = "the certificate isn't valid before 1970-01-01 00:00 UTC";
        assert_eq!(at(90, -1), Timeliness::Invalid(words.into()));
    }
}
