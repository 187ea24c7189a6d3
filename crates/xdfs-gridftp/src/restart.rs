//! Points of restart: the argument of REST, and ranges in markers.

use std::fmt::Write as _;

use xdfs_proto::{ByteRange, RangeSet};

use crate::receiver::RANGES_MAX;

/// The line of FEAT by which a server promises that STOR behind REST is refused as long as another
/// session can write into the unfinished file. So what is compared, and gets its name, can't be
/// changed by bytes that an earlier attempt has sent and that arrive late.
pub const EXCLUSIVE: &str = "REST-EXCLUSIVE";

/// Where the next transfer goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restart {
    /// At this byte (RFC 3659, section 5), in stream mode.
    At(u64),
    /// Without these ranges, which have come already (GFD.20, section 4.1), in MODE E.
    Without(RangeSet),
}

/// Reads `90` or `0-20,50-60`; ranges don't include their end.
#[must_use]
pub fn parse_restart(text: &[u8]) -> Option<Restart> {
    let text = std::str::from_utf8(text).ok()?.trim_matches(' ');
    if !text.contains('-') {
        return offset(text).map(Restart::At);
    }
    let mut ranges = RangeSet::new();
    for (count, part) in text.split(',').enumerate() {
        let (start, end) = part.split_once('-')?;
        let (start, end) = (offset(start)?, offset(end)?);
        if end < start || count >= RANGES_MAX {
            return None;
        }
        ranges.insert(ByteRange { start, end });
    }
    Some(Restart::Without(ranges))
}

/// A place in the largest possible file.
pub(crate) fn offset(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse::<u64>().ok()).flatten()?;
    i64::try_from(number).is_ok().then_some(number)
}

/// Writes ranges as `0-2,10-13`.
#[must_use]
pub fn format_ranges(ranges: &[ByteRange]) -> String {
    let mut text = String::new();
    for ByteRange { start, end } in ranges {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{start}-{end}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        assert_eq!(parse_restart(b"90"), Some(Restart::At(90)));
        let Some(Restart::Without(ranges)) = parse_restart(b"50-60,0-20,20-21") else {
            panic!("ranges");
        };
        assert_eq!(format_ranges(ranges.as_slice()), "0-21,50-60");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "x",
            "-1",
            "1-",
            "5-3",
            "1-2,",
            "1-2;3-4",
            "+1",
            "18446744073709551615",
            "0-9223372036854775808",
            "1 2",
            "0-1,x",
        ] {
            assert_eq!(parse_restart(text.as_bytes()), None, "{text}");
        }
    }
}
