//! Markers of a receiver's progress (GFD.20, sections 4.1 and 4.2), without I/O: 112 says how much
//! has come, and 111 which ranges are stored.

use std::collections::BTreeMap;

use xdfs_proto::{ByteRange, RangeSet};

use crate::line::LINE_BYTES_MAX;
use crate::receiver::RANGES_MAX;
use crate::reply::Reply;
use crate::restart::{Restart, format_ranges, parse_restart};

/// Most stripes of a server that are told apart.
const STRIPES_MAX: usize = 256;
/// Bytes of a command beside the ranges: `REST `.
const RESTART_ROOM: usize = 5;

/// What the markers of a transfer have said so far.
#[derive(Clone, Debug, Default)]
pub struct Markers {
    /// Bytes by stripe, in this attempt.
    stripes: BTreeMap<u64, u64>,
    /// Bytes that were stored before this attempt.
    before: u64,
    stored: RangeSet,
}

impl Markers {
    /// Takes note of a preliminary reply about a file of `length` bytes. What is no marker, or
    /// can't be true, says nothing. Returns whether more has come than was known.
    pub fn take(&mut self, reply: &Reply, length: u64) -> bool {
        let before = self.bytes();
        match reply.code {
            111 => self.ranges(reply, length),
            112 => self.performance(reply, length),
            _ => {}
        }
        self.bytes() > before
    }

    fn ranges(&mut self, reply: &Reply, length: u64) {
        let text = reply.lines.first().map(|line| line.trim_ascii());
        let text = text.and_then(|line| line.strip_prefix(b"Range Marker"));
        let Some(Restart::Without(told)) = text.and_then(parse_restart) else {
            return;
        };
        let all = told.as_slice();
        let has_room = self.stored.as_slice().len() + all.len() <= RANGES_MAX;
        if has_room && all.last().is_none_or(|last| last.end <= length) {
            // In order each of them is cheap to insert, and stripes have very many.
            let mut both = [self.stored.as_slice(), all].concat();
            both.sort_unstable_by_key(|range| range.start);
            self.stored = RangeSet::new();
            both.into_iter().for_each(|range| self.stored.insert(range));
        }
    }

    fn performance(&mut self, reply: &Reply, length: u64) {
        let number = |name: &str| {
            let mut lines = reply.lines.iter();
            lines.find_map(|line| {
                let (key, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
                let is_it = key.trim().eq_ignore_ascii_case(name);
                is_it.then(|| value.trim().parse::<u64>().ok()).flatten()
            })
        };
        let stripe = number("Stripe Index").unwrap_or(0);
        let Some(bytes) = number("Stripe Bytes Transferred") else {
            return;
        };
        let is_known = self.stripes.contains_key(&stripe);
        if bytes <= length && (is_known || self.stripes.len() < STRIPES_MAX) {
            let most = self.stripes.entry(stripe).or_default();
            *most = bytes.max(*most);
        }
    }

    /// Bytes that have come.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let mut stripes = self.stripes.values();
        let now = stripes.try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes));
        let now = now.unwrap_or(u64::MAX).saturating_add(self.before);
        now.max(self.stored.total())
    }

    /// Ranges that the receiver has stored.
    #[must_use]
    pub fn stored(&self) -> &[ByteRange] {
        self.stored.as_slice()
    }

    /// Another attempt begins, which sends all but the stored ranges: as many of the first ones as
    /// fit into a command.
    pub fn restart(&mut self) {
        self.stripes.clear();
        let (mut kept, mut bytes) = (RangeSet::new(), RESTART_ROOM);
        for range in self.stored.as_slice() {
            bytes += format_ranges(&[*range]).len() + 1;
            if bytes > LINE_BYTES_MAX {
                break;
            }
            kept.insert(*range);
        }
        self.stored = kept;
        self.before = self.stored.total();
    }

    /// Nothing of it is there any more.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn performance(stripe: &str, bytes: &str) -> Reply {
        let lines = [
            "Perf Marker".to_owned(),
            " Timestamp:  1795290194.7".to_owned(),
            format!(" Stripe Index: {stripe}"),
            format!(" Stripe Bytes Transferred: {bytes}"),
            " Total Stripe Count: 2".to_owned(),
            "End.".to_owned(),
        ];
        Reply {
            code: 112,
            lines: lines.into_iter().map(String::into_bytes).collect(),
        }
    }

    fn ranges(text: &str) -> Reply {
        Reply::new(111, format!("Range Marker {text}"))
    }

    #[test]
    fn stripes_are_summed_up_and_ranges_joined() {
        let mut markers = Markers::default();
        assert!(!markers.take(&performance("0", "0"), 100));
        assert!(markers.take(&performance("0", "10"), 100));
        assert!(markers.take(&performance("1", "5"), 100));
        assert!(!markers.take(&performance("0", "3"), 100));
        assert_eq!(markers.bytes(), 15);
        assert!(markers.take(&ranges("0-10,20-30"), 100));
        assert!(markers.take(&ranges("10-20"), 100));
        assert_eq!(markers.stored(), [ByteRange { start: 0, end: 30 }]);
        markers.restart();
        assert_eq!(markers.bytes(), 30);
        assert!(markers.take(&performance("0", "7"), 100));
        assert_eq!(markers.bytes(), 37);
    }

    #[test]
    fn ranges_that_fit_no_command_are_sent_again() {
        let mut markers = Markers::default();
        let range = |n: u64| format!("{}-{}", n << 21, (n << 21) + (1 << 20));
        let all: Vec<_> = (0..10_000).map(range).collect();
        assert!(markers.take(&ranges(&all.join(",")), u64::MAX));
        assert_eq!(markers.bytes(), 10_000 << 20);
        markers.restart();
        let rest = format!("REST {}", format_ranges(markers.stored()));
        assert!(rest.len() <= LINE_BYTES_MAX && rest.len() > LINE_BYTES_MAX - 100);
        assert_eq!(markers.bytes(), (markers.stored().len() as u64) << 20);
        // What they are kept in is the same in any order.
        let mut other = Markers::default();
        assert!(other.take(&ranges("8-9,2-4,0-3"), 100));
        assert!(other.take(&ranges("5-8,1-2"), 100));
        assert_eq!(format_ranges(other.stored()), "0-4,5-9");
    }

    #[test]
    fn what_cannot_be_true_says_nothing() {
        let mut markers = Markers::default();
        for reply in [
            ranges("0-101"),
            ranges("5-4"),
            ranges("0-18446744073709551615"),
            ranges("90"),
            ranges(""),
            performance("0", "101"),
            performance("0", "-1"),
            performance("0", "99999999999999999999"),
            Reply::new(150, "Range Marker 0-9"),
            Reply::new(112, "Perf Marker"),
        ] {
            assert!(!markers.take(&reply, 100), "{reply:?}");
        }
        assert!(markers.stored().is_empty());
        // Stripes without end take no memory.
        for stripe in 0..10_000 {
            markers.take(&performance(&stripe.to_string(), "1"), 100);
        }
        assert_eq!(markers.bytes(), STRIPES_MAX as u64);
    }
}
