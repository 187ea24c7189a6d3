//! The keys of a user: a list in the format of `authorized_keys`.
//!
//! Lines are `[options] type base64 [comment]`. The only supported option is
//! `expiry-time="YYYYMMDD[HHMM[SS]][Z]"`, always in UTC. Lines with other options are skipped,
//! since their restrictions aren't enforced here.

use std::path::Path;

use tracing::warn;
use xdfs_proto::fault::Fault;

use super::public::PublicKey;
use crate::trusted::{self, Secrecy};

/// Maximum size of a list.
const LIST_BYTES_MAX: u64 = 1024 * 1024;

/// The keys of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizedKeys {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    key: PublicKey,
    /// Expiry of the key in seconds since 1970; it isn't valid from this second on.
    expires_unix: Option<u64>,
}

impl AuthorizedKeys {
    /// Loads a list of at most 1 MiB. Unsupported lines are skipped, with a warning in the log.
    ///
    /// # Errors
    /// Those of [`trusted::read`].
    pub fn load(path: &Path) -> Result<Self, Fault> {
        let operation = "load the list of keys";
        let bytes = trusted::read(operation, path, LIST_BYTES_MAX, Secrecy::Public)?;
        // Comments may have any encoding; keys and options are ASCII.
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// Parses a list. Unsupported lines are skipped, with a warning in the log.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut entries = Vec::new();
        for (index, line) in text.lines().enumerate() {
            match parse_line(line.trim_matches([' ', '\t', '\r'])) {
                Ok(entry) => entries.extend(entry),
                Err(reason) => warn!(
                    line = index + 1,
                    reason, "a line of a list of keys is ignored"
                ),
            }
        }
        Self { entries }
    }

    /// Whether `key` is in the list and valid at the time `now_unix`, in seconds since 1970.
    #[must_use]
    pub fn contains(&self, key: &PublicKey, now_unix: u64) -> bool {
        self.entries
            .iter()
            .any(|e| e.key == *key && e.expires_unix.is_none_or(|end| now_unix < end))
    }

    /// Number of keys, including expired ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Parses a line: its key, `None` for an empty line or a comment, or the reason for skipping it.
fn parse_line(line: &str) -> Result<Option<Entry>, &'static str> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (first, rest) = split_unquoted(line, |c| c == ' ' || c == '\t').ok_or("a quote is open")?;
    let (expires_unix, text) = if is_key_type(first) {
        (None, line)
    } else {
        (parse_options(first)?, rest)
    };
    let key =
        PublicKey::parse_line(text).ok_or("not a key of a type and size that is supported")?;
    Ok(Some(Entry { key, expires_unix }))
}

/// Whether a word is the name of a key type, supported or not. No option begins like that.
fn is_key_type(word: &str) -> bool {
    ["ssh-", "ecdsa-", "sk-"]
        .iter()
        .any(|prefix| word.starts_with(prefix))
}

fn parse_options(mut rest: &str) -> Result<Option<u64>, &'static str> {
    let mut earliest = None;
    loop {
        let comma = rest.len();
        let (option, more) = split_unquoted(rest, |c| c == ',').ok_or("a quote is open")?;
        let value = option.split_once('=');
        let (_, value) = value
            .filter(|(name, _)| name.eq_ignore_ascii_case("expiry-time"))
            .ok_or("it has an option that isn't supported")?;
        let end = value
            .strip_prefix('"')
            .and_then(|v| v.strip_suffix('"'))
            .and_then(parse_time)
            .ok_or("its expiry time can't be read")?;
        earliest = Some(earliest.map_or(end, |e: u64| e.min(end)));
        if option.len() == comma {
            return Ok(earliest);
        }
        rest = more;
    }
}

/// Splits at the first character outside of quotes that satisfies `is_cut`, which is dropped.
/// Without one, everything is before the cut. `None` if a quote isn't closed.
fn split_unquoted(text: &str, is_cut: impl Fn(char) -> bool) -> Option<(&str, &str)> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !is_escaped => is_quoted = !is_quoted,
            // All separators are one byte long.
            c if !is_quoted && is_cut(c) => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    (!is_quoted).then_some((text, ""))
}

/// Parses `YYYYMMDD[HHMM[SS]][Z]` in UTC into seconds since 1970.
fn parse_time(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('Z').unwrap_or(text);
    if !matches!(digits.len(), 8 | 12 | 14) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| digits.get(from..to).map_or(Some(0), |d| d.parse().ok());
    let (year, month, day): (u64, u64, u64) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second): (u64, u64, u64) =
        (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    let is_leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month.checked_sub(1)?).ok()?;
    let is_date = year >= 1970 && (1..=*months.get(before)?).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Years have four digits: at most some 8000 iterations.
    let years: u64 = (1970..year).map(|y| 365 + u64::from(is_leap(y))).sum();
    let days = years + months[..before].iter().sum::<u64>() + day - 1;
    Some(days * 86400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(parse_time("19700101"), Some(0));
        assert_eq!(parse_time("20000229"), Some(951_782_400));
        assert_eq!(parse_time("20240301Z"), Some(1_709_251_200));
        assert_eq!(parse_time("202607301215"), Some(1_785_413_700));
        assert_eq!(parse_time("20260730121559Z"), Some(1_785_413_759));
        assert_eq!(parse_time("99991231235959"), Some(253_402_300_799));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "Z",
            "2026073",
            "20260732",
            "20260229",
            "21000229",
            "20261301",
            "20260001",
            "20260100",
            "19691231",
            "202607302400",
            "202607301260",
            "20260730121560",
            "2026073012",
            "2026-07-30",
            "+2026073",
            "20260730ZZ",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn cuts_are_outside_of_quotes() {
        let cut = |t| split_unquoted(t, |c| c == ',');
        assert_eq!(cut("a,b"), Some(("a", "b")));
        assert_eq!(cut("\"a,b\",c"), Some(("\"a,b\"", "c")));
        assert_eq!(cut("\"a\\\",b\",c"), Some(("\"a\\\",b\"", "c")));
        assert_eq!(cut("a"), Some(("a", "")));
        assert_eq!(cut("\"a,b"), None);
    }
}
