//! The server's view of a node: whether what it reports can be true.

use std::fmt;

use xdfs_proto::RangeSet;

use super::message::{Report, Request};
use crate::stripe::Portion;

/// A report that can't be true.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lie {
    /// Fewer bytes than before.
    Backwards,
    /// More bytes are told to be durable than have moved, or of a file that is only read.
    Durable,
    /// All is told to be done, and none of the bytes that have moved to be durable.
    Lost,
    /// Other bytes than were ordered.
    Other {
        /// Bytes of the order.
        ordered: u64,
        /// What is told.
        told: u64,
    },
    /// Nothing of that kind was asked for.
    Unasked,
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backwards => f.write_str("it reports fewer bytes than before"),
            Self::Durable => f.write_str("it reports bytes as durable that can't have come"),
            Self::Lost => f.write_str("it reports an end, and nothing of what has come as durable"),
            Self::Other { ordered, told } => {
                write!(f, "it reports {told} bytes of {ordered} that were ordered")
            }
            Self::Unasked => f.write_str("it reports what wasn't asked for"),
        }
    }
}

impl std::error::Error for Lie {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    Hello,
    Nothing,
    Listening,
    /// The beginning of an order, and then its end; with the bytes to be sent.
    Ready(Option<u64>),
    Done(Option<u64>),
}

/// Follows one node.
#[derive(Debug)]
pub struct Watch {
    awaits: Awaits,
    bytes: u64,
    durable: u64,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            awaits: Awaits::Hello,
            bytes: 0,
            durable: 0,
        }
    }
}

impl Watch {
    /// A request was sent.
    pub fn requested(&mut self, request: &Request) {
        (self.bytes, self.durable) = (0, 0);
        self.awaits = match request {
            Request::Listen { .. } => Awaits::Listening,
            Request::Send(order) => {
                let portion = Portion::new(order.ranges.clone(), order.stripe);
                Awaits::Ready(Some(portion.bytes()))
            }
            Request::Store(_) => Awaits::Ready(None),
        };
    }

    /// Whether an order is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.awaits, Awaits::Ready(_) | Awaits::Done(_))
    }

    /// Bytes of payload that the order has moved.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A report has come. Returns the bytes that have moved since the last one.
    ///
    /// # Errors
    /// It can't be true.
    pub fn reported(&mut self, report: &Report) -> Result<u64, Lie> {
        match (report, self.awaits) {
            (Report::Hello, Awaits::Hello) | (Report::Listening(_), Awaits::Listening) => {
                self.awaits = Awaits::Nothing;
            }
            (Report::Ready, Awaits::Ready(ordered)) => self.awaits = Awaits::Done(ordered),
            (Report::Failed { .. }, Awaits::Listening | Awaits::Ready(_) | Awaits::Done(_)) => {
                self.awaits = Awaits::Nothing;
            }
            (Report::Moved { bytes, durable }, Awaits::Done(ordered)) => {
                return self.moved(*bytes, durable, ordered);
            }
            (Report::Done { bytes, durable }, Awaits::Done(ordered)) => {
                let fresh = self.moved(*bytes, durable, ordered)?;
                if let Some(ordered) = ordered.filter(|ordered| ordered != bytes) {
                    let told = *bytes;
                    return Err(Lie::Other { ordered, told });
                }
                // Clients may send bytes twice, so it can't be known how many there should be.
                if ordered.is_none() && *bytes > 0 && self.durable == 0 {
                    return Err(Lie::Lost);
                }
                self.awaits = Awaits::Nothing;
                return Ok(fresh);
            }
            _ => return Err(Lie::Unasked),
        }
        Ok(0)
    }

    fn moved(&mut self, bytes: u64, durable: &RangeSet, ordered: Option<u64>) -> Result<u64, Lie> {
        let fresh = bytes.checked_sub(self.bytes).ok_or(Lie::Backwards)?;
        if let Some(ordered) = ordered.filter(|ordered| bytes > *ordered) {
            let told = bytes;
            return Err(Lie::Other { ordered, told });
        }
        self.bytes = bytes;
        self.durable = self.durable.saturating_add(durable.total());
        let durable_max = if ordered.is_some() { 0 } else { bytes };
        match self.durable > durable_max {
            true => Err(Lie::Durable),
            false => Ok(fresh),
        }
    }
}

#[cfg(test)]
mod tests {
    use xdfs_proto::{ByteRange, Code};

    use super::super::message::{SendOrder, StoreOrder};
    use super::*;
    use crate::stripe::Stripe;

    fn ranges(start: u64, end: u64) -> RangeSet {
        let mut set = RangeSet::new();
        set.insert(ByteRange { start, end });
        set
    }

    fn moved(bytes: u64, durable: RangeSet) -> Report {
        Report::Moved { bytes, durable }
    }

    fn done(bytes: u64) -> Report {
        let durable = RangeSet::new();
        Report::Done { bytes, durable }
    }

    fn sending() -> Watch {
        let mut watch = Watch::default();
        watch.requested(&Request::Send(SendOrder {
            to: Vec::new(),
            parallelism: 1,
            socket_buffer: None,
            user: None,
            path: b"/x".to_vec(),
            size: 100,
            mtime_ns: None,
            offset: 0,
            ranges: ranges(0, 100),
            stripe: Stripe {
                index: 1,
                count: 2,
                block_bytes: 30,
            },
            eods: None,
        }));
        watch
    }

    fn storing() -> Watch {
        let mut watch = Watch::default();
        watch.requested(&Request::Store(StoreOrder {
            user: None,
            path: b"/x".to_vec(),
            partial: 1,
        }));
        watch.reported(&Report::Ready).unwrap();
        watch
    }

    #[test]
    fn a_node_that_does_what_it_should_is_believed() {
        let mut watch = sending();
        assert!(watch.is_busy());
        watch.reported(&Report::Ready).unwrap();
        assert_eq!(watch.reported(&moved(30, RangeSet::new())), Ok(30));
        assert_eq!(watch.reported(&done(40)), Ok(10));
        assert!(!watch.is_busy());
        let mut watch = storing();
        assert_eq!(watch.reported(&moved(50, ranges(10, 60))), Ok(50));
        assert_eq!(watch.reported(&done(50)), Ok(0));
    }

    #[test]
    fn lies_are_found() {
        let ready = || {
            let mut watch = sending();
            watch.reported(&Report::Ready).unwrap();
            watch
        };
        let other = |told| Err(Lie::Other { ordered: 40, told });
        assert_eq!(ready().reported(&done(39)), other(39));
        assert_eq!(ready().reported(&done(100)), other(100));
        assert_eq!(ready().reported(&moved(41, RangeSet::new())), other(41));
        assert_eq!(ready().reported(&moved(4, ranges(0, 1))), Err(Lie::Durable));
        assert_eq!(ready().reported(&Report::Ready), Err(Lie::Unasked));
        assert_eq!(sending().reported(&done(40)), Err(Lie::Unasked));
        let mut watch = storing();
        watch.reported(&moved(50, RangeSet::new())).unwrap();
        assert_eq!(
            watch.reported(&moved(49, RangeSet::new())),
            Err(Lie::Backwards)
        );
        let mut watch = storing();
        watch.reported(&moved(50, ranges(0, 40))).unwrap();
        assert_eq!(watch.reported(&moved(50, ranges(0, 40))), Err(Lie::Durable));
        let mut watch = storing();
        assert_eq!(watch.reported(&done(50)), Err(Lie::Lost));
        assert!(watch.is_busy());
        assert_eq!(storing().reported(&done(0)), Ok(0));
        let mut idle = Watch::default();
        assert_eq!(idle.reported(&Report::Ready), Err(Lie::Unasked));
        assert_eq!(idle.reported(&Report::Hello), Ok(0));
        assert_eq!(idle.reported(&Report::Hello), Err(Lie::Unasked));
        let failed = Report::Failed {
            code: Code::Io,
            cause: String::new(),
        };
        assert_eq!(idle.reported(&failed), Err(Lie::Unasked));
        let address = "127.0.0.1:5".parse().unwrap();
        assert_eq!(
            idle.reported(&Report::Listening(address)),
            Err(Lie::Unasked)
        );
    }
}
