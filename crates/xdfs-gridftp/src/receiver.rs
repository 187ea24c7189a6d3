//! The receiver of a transfer in MODE E: what has arrived on any of its connections, and whether
//! that is all.
//!
//! A transfer is complete when as many EODs have come as the EOF says, and they may come in any
//! order: the EOF often comes before other connections are open.

use std::fmt;

use xdfs_proto::{ByteRange, RangeSet};

use crate::block::Header;

/// Largest number of connections of a transfer.
pub const CONNECTIONS_MAX: u64 = 256;
/// Largest number of separate ranges that a transfer may leave open at once.
pub const RANGES_MAX: usize = 64 << 10;

/// What a sender did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveError {
    /// A connection was closed before its EOD.
    ClosedEarly,
    /// Two EOFs disagree.
    Disagreeing,
    /// An EOF with a number of EODs that is 0 or above [`CONNECTIONS_MAX`].
    BadCount(u64),
    /// More EODs than the EOF has said.
    TooManyEods,
    /// The blocks leave more gaps than [`RANGES_MAX`].
    TooManyRanges,
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClosedEarly => f.write_str("a data connection was closed before its EOD"),
            Self::Disagreeing => f.write_str("two EOFs have different numbers of EODs"),
            Self::BadCount(count) => write!(f, "an EOF announces {count} EODs"),
            Self::TooManyEods => f.write_str("there were more EODs than announced"),
            Self::TooManyRanges => f.write_str("the blocks leave too many gaps"),
        }
    }
}

impl std::error::Error for ReceiveError {}

/// Counts the ends of the connections to one address.
#[derive(Debug, Default)]
pub struct Ends {
    eods: u64,
    expected: Option<u64>,
}

impl Ends {
    /// A header has come on any of them.
    ///
    /// # Errors
    /// The sender violates the protocol.
    pub fn header(&mut self, header: &Header) -> Result<(), ReceiveError> {
        let (eods, eod) = match *header {
            Header::Data { eod, .. } => (None, eod),
            Header::End { eods, eod } => (eods, eod),
        };
        if let Some(count) = eods {
            if count == 0 || count > CONNECTIONS_MAX {
                return Err(ReceiveError::BadCount(count));
            }
            if self.expected.is_some_and(|expected| expected != count) {
                return Err(ReceiveError::Disagreeing);
            }
            self.expected = Some(count);
        }
        self.eods += u64::from(eod);
        let most = self.expected.unwrap_or(CONNECTIONS_MAX);
        match self.eods > most {
            true => Err(ReceiveError::TooManyEods),
            false => Ok(()),
        }
    }

    /// Whether all of them have ended.
    #[must_use]
    pub fn are_all(&self) -> bool {
        self.expected == Some(self.eods)
    }
}

/// Counts what arrives.
#[derive(Debug, Default)]
pub struct Receiver {
    stored: RangeSet,
    /// Stored since [`Self::take_fresh`].
    fresh: RangeSet,
    bytes: u64,
    ends: Ends,
}

impl Receiver {
    /// A receiver to which `held` has come in an earlier attempt.
    #[must_use]
    pub fn new(held: RangeSet) -> Self {
        Self {
            stored: held,
            ..Self::default()
        }
    }

    /// A header has come on any connection.
    ///
    /// # Errors
    /// The sender violates the protocol.
    pub fn header(&mut self, header: &Header) -> Result<(), ReceiveError> {
        self.ends.header(header)
    }

    /// Payload was stored.
    ///
    /// # Errors
    /// There are too many gaps.
    pub fn stored(&mut self, range: ByteRange) -> Result<(), ReceiveError> {
        self.stored.insert(range);
        self.fresh.insert(range);
        self.bytes = self.bytes.saturating_add(range.len());
        match self
            .stored
            .as_slice()
            .len()
            .max(self.fresh.as_slice().len())
            > RANGES_MAX
        {
            true => Err(ReceiveError::TooManyRanges),
            false => Ok(()),
        }
    }

    /// Whether everything has come, once the payload of the last blocks is stored.
    #[must_use]
    pub fn has_all_eods(&self) -> bool {
        self.ends.are_all()
    }

    /// Bytes of payload so far, also those that came twice.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All that is stored.
    #[must_use]
    pub fn ranges(&self) -> &RangeSet {
        &self.stored
    }

    /// What was stored since the last call.
    #[must_use]
    pub fn take_fresh(&mut self) -> RangeSet {
        std::mem::take(&mut self.fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(eods: Option<u64>, eod: bool) -> Header {
        Header::End { eods, eod }
    }

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn the_eof_may_come_first_and_is_no_eod_itself() {
        let mut receiver = Receiver::default();
        receiver.header(&end(Some(2), false)).unwrap();
        assert!(!receiver.has_all_eods());
        receiver.header(&end(None, true)).unwrap();
        assert!(!receiver.has_all_eods());
        let last = Header::Data {
            offset: 0,
            count: 1,
            eod: true,
        };
        receiver.header(&last).unwrap();
        assert!(receiver.has_all_eods());
        // The same one again was seen to be tolerated.
        receiver.header(&end(Some(2), false)).unwrap();
        assert!(receiver.has_all_eods());
    }

    #[test]
    fn lies_about_counts_are_found() {
        for count in [0, CONNECTIONS_MAX + 1, u64::MAX] {
            let said = Receiver::default().header(&end(Some(count), true));
            assert_eq!(said, Err(ReceiveError::BadCount(count)));
        }
        let mut receiver = Receiver::default();
        receiver.header(&end(Some(2), true)).unwrap();
        let said = receiver.header(&end(Some(3), false));
        assert_eq!(said, Err(ReceiveError::Disagreeing));
        receiver.header(&end(None, true)).unwrap();
        let said = receiver.header(&end(None, true));
        assert_eq!(said, Err(ReceiveError::TooManyEods));
        let mut receiver = Receiver::default();
        let said = (0..=CONNECTIONS_MAX).try_for_each(|_| receiver.header(&end(None, true)));
        assert_eq!(said, Err(ReceiveError::TooManyEods));
    }

    #[test]
    fn ranges_merge_and_gaps_are_bounded() {
        let mut receiver = Receiver::default();
        for (start, end) in [(10, 13), (0, 2), (2, 5), (11, 12)] {
            receiver.stored(range(start, end)).unwrap();
        }
        assert_eq!(
            receiver.take_fresh().as_slice(),
            [range(0, 5), range(10, 13)]
        );
        receiver.stored(range(5, 6)).unwrap();
        assert_eq!(receiver.take_fresh().as_slice(), [range(5, 6)]);
        assert_eq!(receiver.ranges().as_slice(), [range(0, 6), range(10, 13)]);
        let mut receiver = Receiver::default();
        let said =
            (0..=RANGES_MAX as u64).try_for_each(|n| receiver.stored(range(2 * n, 2 * n + 1)));
        assert_eq!(said, Err(ReceiveError::TooManyRanges));
    }
}
