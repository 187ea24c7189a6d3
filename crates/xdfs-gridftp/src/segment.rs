//! What commands and replies of MODE T say: transactions, and the entries of a segment.

use std::fmt;

use xdfs_proto::pack::Failures;
use xdfs_proto::{Code, Fault};

use crate::archive::{Compression, MEMBERS_MAX};

/// Most entries of a transaction.
pub const ENTRIES_MAX: usize = 100_000;
/// Most bytes of the rows of a transaction.
pub const CATALOGUE_BYTES_MAX: usize = 64 << 20;
/// Most ranges of numbers in a command.
pub const RANGES_MAX: usize = 500;

/// A version of a tree: a digest of the path, kind, size and time of all its entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TransactionId(pub [u8; 16]);

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransactionId({self})")
    }
}

impl TransactionId {
    /// Reads 32 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != 32 || !text.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        u128::from_str_radix(text, 16)
            .ok()
            .map(|number| Self(number.to_be_bytes()))
    }
}

/// Numbers of entries, in the order of the rows of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(Vec<(u32, u32)>);

impl Numbers {
    /// Of ascending numbers; `None` if they are none or don't ascend, or take too many ranges.
    #[must_use]
    pub fn of(numbers: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, last)) if number <= *last => return None,
                Some((_, last)) if number == *last + 1 => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        (1..=RANGES_MAX)
            .contains(&ranges.len())
            .then_some(Self(ranges))
    }

    /// Reads `0-17,20`: ascending numbers, and ranges with their first and last.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_number.then(|| text.parse::<u32>().ok()).flatten()?;
            ((number as usize) < ENTRIES_MAX).then_some(number)
        };
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            let ascends = ranges.last().is_none_or(|(_, before)| first > *before);
            if !ascends || last < first || ranges.len() >= RANGES_MAX {
                return None;
            }
            ranges.push((first, last));
        }
        let count: usize = ranges
            .iter()
            .map(|(first, last)| (last - first) as usize + 1)
            .sum();
        (count <= MEMBERS_MAX).then_some(Self(ranges))
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// A segment that is asked for (ERET T).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRequest {
    /// The version of the tree.
    pub transaction: TransactionId,
    /// How the segment shall be compressed.
    pub compression: Compression,
    /// The entries that it shall have.
    pub numbers: Numbers,
}

impl fmt::Display for SegmentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            transaction,
            compression,
            numbers,
        } = self;
        write!(f, "{transaction} {} {numbers}", compression.name())
    }
}

/// What the confirmation of the rows of a transaction says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The version of the tree.
    pub transaction: TransactionId,
    /// Number of rows.
    pub entries: u64,
    /// Number of names in the tree that can't stand in a row.
    pub left_out: u64,
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Transaction={};Entries={};",
            self.transaction, self.entries
        )?;
        match self.left_out {
            0 => Ok(()),
            names => write!(f, "LeftOut={names};"),
        }
    }
}

impl Opening {
    /// Reads it.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        Some(Self {
            transaction: TransactionId::parse(field(text, "Transaction")?)?,
            entries: number(field(text, "Entries")?)?,
            left_out: match field(text, "LeftOut") {
                Some(digits) => number(digits)?,
                None => 0,
            },
        })
    }
}

/// What the confirmation of a segment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    /// CRC-64/NVME of the segment as it was sent, in hexadecimal digits.
    pub digits: String,
    /// Number of members.
    pub members: u64,
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CRC64NVME={};Entries={};", self.digits, self.members)
    }
}

impl Closing {
    /// Reads it.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digits = std::str::from_utf8(field(text, "CRC64NVME")?).ok()?;
        Some(Self {
            digits: digits.to_ascii_lowercase(),
            members: number(field(text, "Entries")?)?,
        })
    }
}

/// The rows of a reply about members that could not be stored.
#[must_use]
pub fn failure_rows(failures: &Failures) -> Vec<Vec<u8>> {
    let runs = failures.runs().iter();
    runs.map(|run| {
        let fault = &run.fault;
        let (code, cause) = (fault.code.number(), &fault.cause);
        format!(
            "Failed={};Count={};Code={code}; {cause}",
            run.first, run.count
        )
        .into_bytes()
    })
    .collect()
}

/// Reads the rows of such a reply; `None` if it is another one.
#[must_use]
pub fn parse_failures(rows: &[Vec<u8>], members: u32) -> Option<Failures> {
    let mut failures = Failures::default();
    let mut next = 0;
    for row in rows
        .iter()
        .filter(|row| row.trim_ascii_start().starts_with(b"Failed="))
    {
        let row = row.trim_ascii_start();
        let value = |name| u32::try_from(number(field(row, name)?)?).ok();
        let (first, count) = (value("Failed")?, value("Count")?);
        let end = first.checked_add(count)?;
        if first < next || count == 0 || end > members {
            return None;
        }
        next = end;
        let space = row
            .iter()
            .position(|byte| *byte == b' ')
            .unwrap_or(row.len());
        let cause = String::from_utf8_lossy(row[space..].trim_ascii());
        let code = Code::from_number(u16::try_from(value("Code")?).ok()?);
        for member in first..end {
            failures.push(member, Fault::new(code, "store", cause.clone()));
        }
    }
    (next > 0).then_some(failures)
}

/// The value in `Name=value;`.
fn field<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let facts = text.split(|byte| *byte == b' ').next()?;
    let mut fields = facts.split(|byte| *byte == b';');
    fields.find_map(|field| field.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

fn number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number
        .then(|| std::str::from_utf8(text).ok()?.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        let numbers = Numbers::of([0, 1, 2, 7, 9, 10]).unwrap();
        assert_eq!(numbers.to_string(), "0-2,7,9-10");
        assert_eq!(Numbers::parse(b"0-2,7,9-10").unwrap(), numbers);
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [0, 1, 2, 7, 9, 10]);
        for text in [
            "", "-", "1-", "-1", "2-1", "1,1", "2,1", "1-3,2", "+1", "1 ", "100000", "0-8192", "x",
            "1,,2",
        ] {
            assert_eq!(Numbers::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Numbers::of([]), None);
        assert_eq!(Numbers::of([1, 1]), None);
        assert_eq!(Numbers::of((0..1001).step_by(2)), None, "too many ranges");
    }

    #[test]
    fn confirmations_are_written_as_they_are_read() {
        let transaction = TransactionId(*b"0123456789abcdef");
        for left_out in [0, 3] {
            let opening = Opening {
                transaction,
                entries: 7,
                left_out,
            };
            assert_eq!(
                Opening::parse(opening.to_string().as_bytes()),
                Some(opening)
            );
        }
        assert_eq!(Opening::parse(b"Transfer complete."), None);
        let digits = "0123456789abcdef".to_owned();
        let closing = Closing { digits, members: 3 };
        assert_eq!(
            Closing::parse(closing.to_string().as_bytes()),
            Some(closing)
        );
        assert_eq!(Closing::parse(b"Entries=3;"), None);
        let mut failures = Failures::default();
        failures.push(3, Fault::new(Code::AlreadyExists, "store", "it is there"));
        failures.push(4, Fault::new(Code::AlreadyExists, "store", "it is there"));
        let rows = failure_rows(&failures);
        assert_eq!(parse_failures(&rows, 5), Some(failures));
        assert_eq!(
            parse_failures(&rows, 4),
            None,
            "there are no so many members"
        );
        assert_eq!(parse_failures(&[b"Some text.".to_vec()], 4), None);
    }
}
