//! The sender of a transfer in MODE E: which block goes on which connection, and how it ends.
//!
//! Every connection gets one EOD, also one without data. Connections to one receiver are a group;
//! the first one of it that ends has the EOF with their number in the same header.

use xdfs_proto::{ByteRange, RangeSet};

use crate::block::Header;
use crate::stripe::{Portion, Stripe};

/// What a connection sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Send {
    /// This header, and the payload of this range.
    Block(Header, ByteRange),
    /// This header, and nothing after it.
    End(Header),
    /// Nothing: it has ended.
    Nothing,
    /// The end of what is [written](Sender::written) isn't known yet.
    NotYet,
}

/// Deals out the ranges of a file, or what a writer makes, to connections.
#[derive(Debug)]
pub struct Sender {
    left: Portion,
    eofs: Eofs,
    /// Where the next written bytes belong; `None` once there are no more.
    writes_at: Option<u64>,
    block_bytes: u64,
    connections: Vec<Connection>,
}

/// What the EOF to a receiver says. With several senders to one receiver, one of them sends it for
/// all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eofs {
    /// The number of the connections of this sender.
    Own,
    /// Another sender sends it.
    Other,
    /// This number, for all senders.
    Total(u64),
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    group: usize,
    has_ended: bool,
}

impl Sender {
    /// A sender of the bytes `left` of a file, in blocks of at most `block_bytes` (at least 1),
    /// over connections with these groups.
    #[must_use]
    pub fn of_ranges(left: RangeSet, block_bytes: u64, groups: &[usize]) -> Self {
        let whole = Portion::new(left, Stripe::WHOLE);
        Self::of_portion(whole, Eofs::Own, block_bytes, groups)
    }

    /// The same of one stripe of a file.
    #[must_use]
    pub fn of_portion(left: Portion, eofs: Eofs, block_bytes: u64, groups: &[usize]) -> Self {
        let connections = groups.iter().map(|group| Connection {
            group: *group,
            has_ended: false,
        });
        Self {
            left,
            eofs,
            writes_at: None,
            block_bytes,
            connections: connections.collect(),
        }
    }

    /// A sender of bytes that are made one after the other: see [`Self::written`].
    #[must_use]
    pub fn of_writes(groups: &[usize]) -> Self {
        Self {
            writes_at: Some(0),
            ..Self::of_ranges(RangeSet::new(), 1, groups)
        }
    }

    /// The same, behind as many bytes, which the receiver has.
    #[must_use]
    pub fn behind(self, bytes: u64) -> Self {
        Self {
            writes_at: self.writes_at.map(|at| at.saturating_add(bytes)),
            ..self
        }
    }

    /// The header for the next `bytes` that were made; 0 of them are the end.
    pub fn written(&mut self, bytes: u64) -> Option<Header> {
        let offset = self.writes_at?;
        if bytes == 0 {
            self.writes_at = None;
            return None;
        }
        self.writes_at = Some(offset.saturating_add(bytes));
        Some(Header::Data {
            offset,
            count: bytes,
            eod: false,
        })
    }

    /// What the connection with this number sends next.
    #[must_use]
    pub fn next_for(&mut self, connection: usize) -> Send {
        let group = match self.connections.get(connection) {
            Some(own) if !own.has_ended => own.group,
            _ => return Send::Nothing,
        };
        if let Some(range) = self.left.next_range(self.block_bytes) {
            let header = Header::Data {
                offset: range.start,
                count: range.len(),
                eod: false,
            };
            return Send::Block(header, range);
        }
        if self.writes_at.is_some() {
            return Send::NotYet;
        }
        let of_group = self.connections.iter().filter(|other| other.group == group);
        let (count, is_first) = of_group.fold((0, true), |(count, is_first), other| {
            (count + 1, is_first && !other.has_ended)
        });
        self.connections[connection].has_ended = true;
        let eods = match self.eofs {
            Eofs::Own => is_first.then_some(count),
            Eofs::Other => None,
            Eofs::Total(total) => is_first.then_some(total),
        };
        Send::End(Header::End { eods, eod: true })
    }

    /// Whether all data has been dealt out.
    #[must_use]
    pub fn has_no_more_data(&self) -> bool {
        self.left.is_empty() && self.writes_at.is_none()
    }

    /// Whether every connection has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.connections.iter().all(|own| own.has_ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::Receiver;

    #[test]
    fn what_is_dealt_out_is_complete_to_a_receiver() {
        for connections in 1..5 {
            let mut left = RangeSet::new();
            for (start, end) in [(3, 20), (30, 31)] {
                left.insert(ByteRange { start, end });
            }
            let mut sender = Sender::of_ranges(left.clone(), 8, &vec![0; connections]);
            let mut receiver = Receiver::default();
            for turn in 0.. {
                match sender.next_for(turn % connections) {
                    Send::Block(header, range) => {
                        receiver.header(&header).unwrap();
                        receiver.stored(range).unwrap();
                    }
                    Send::End(header) => receiver.header(&header).unwrap(),
                    _ => {}
                }
                if sender.has_ended() {
                    break;
                }
                assert!(!receiver.has_all_eods());
            }
            assert!(receiver.has_all_eods());
            assert_eq!(receiver.ranges(), &left);
            assert_eq!(sender.next_for(0), Send::Nothing);
        }
    }

    #[test]
    fn an_empty_file_is_an_eof_and_eods() {
        let mut sender = Sender::of_ranges(RangeSet::new(), 8, &[0, 0]);
        let end = |eods| Send::End(Header::End { eods, eod: true });
        assert_eq!(sender.next_for(1), end(Some(2)));
        assert_eq!(sender.next_for(0), end(None));
    }

    #[test]
    fn each_receiver_gets_its_own_eof() {
        let mut sender = Sender::of_ranges(RangeSet::new(), 8, &[0, 1, 0]);
        let end = |eods| Send::End(Header::End { eods, eod: true });
        assert_eq!(sender.next_for(2), end(Some(2)));
        assert_eq!(sender.next_for(1), end(Some(1)));
        assert_eq!(sender.next_for(0), end(None));
    }

    #[test]
    fn senders_of_stripes_have_one_eof_together() {
        let mut whole = RangeSet::new();
        whole.insert(ByteRange { start: 0, end: 100 });
        let mut receiver = Receiver::default();
        for (index, eofs) in [(0, Eofs::Total(5)), (1, Eofs::Other)] {
            let stripe = Stripe {
                index,
                count: 2,
                block_bytes: 7,
            };
            let connections = [0; 3];
            let own = &connections[..3 - index as usize];
            let portion = Portion::new(whole.clone(), stripe);
            let mut sender = Sender::of_portion(portion, eofs, 5, own);
            for turn in 0.. {
                assert!(!receiver.has_all_eods());
                match sender.next_for(turn % own.len()) {
                    Send::Block(header, range) => {
                        receiver.header(&header).unwrap();
                        receiver.stored(range).unwrap();
                    }
                    Send::End(header) => receiver.header(&header).unwrap(),
                    _ => {}
                }
                if sender.has_ended() {
                    break;
                }
            }
        }
        assert!(receiver.has_all_eods());
        assert_eq!(receiver.ranges(), &whole);
    }

    #[test]
    fn written_bytes_follow_each_other() {
        let mut sender = Sender::of_writes(&[0]);
        assert_eq!(sender.next_for(0), Send::NotYet);
        let offset = |header| match header {
            Some(Header::Data { offset, .. }) => offset,
            _ => panic!("no data"),
        };
        assert_eq!(offset(sender.written(5)), 0);
        assert_eq!(offset(sender.written(2)), 5);
        assert_eq!(sender.written(0), None);
        assert!(matches!(sender.next_for(0), Send::End(_)));
        assert!(sender.has_ended());
        let mut sender = Sender::of_writes(&[0]).behind(9);
        assert_eq!(offset(sender.written(5)), 9);
    }
}
