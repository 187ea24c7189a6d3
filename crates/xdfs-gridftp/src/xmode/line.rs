//! The connections of a transaction: their handshakes, and how often they break.

use std::collections::BTreeMap;
use std::fmt;

use xdfs_proto::ByteRange;

use super::message::{Message, Sum};

/// Connections that may break in a row without anything new having arrived.
pub const BREAKS_MAX: u32 = 16;

/// What the peer did against the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Breach {
    /// A message came that has no place there: its connection is of no use.
    Misplaced(Message),
    /// A part of a block has come before, and another part hasn't: the transfer fails.
    Overlapping(ByteRange),
    /// An end that isn't that of what has come: the transfer fails.
    WrongEnd,
    /// [`BREAKS_MAX`] connections broke, and nothing new arrived: the transfer fails.
    TooManyBreaks,
}

impl Breach {
    /// Whether only the connection is lost.
    #[must_use]
    pub fn is_of_connection(self) -> bool {
        matches!(self, Self::Misplaced(_))
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misplaced(message) => write!(f, "a message has no place there: {message:?}"),
            Self::Overlapping(range) => write!(f, "a part of the block {range} came before"),
            Self::WrongEnd => f.write_str("the end isn't that of the blocks that have come"),
            Self::TooManyBreaks => write!(
                f,
                "{BREAKS_MAX} data connections in a row broke, or brought damaged bytes"
            ),
        }
    }
}

impl std::error::Error for Breach {}

/// What both machines do with connections.
pub trait Side {
    /// Whether the connection belongs to it.
    fn has(&self, line: u64) -> bool;

    /// A connection is there, which this side has opened if `is_own`. Queues what is to be sent.
    fn join(&mut self, line: u64, is_own: bool, out: &mut Vec<u8>);

    /// A connection is broken, or is closed after a [`Breach`] or damage.
    ///
    /// # Errors
    /// That happens too often.
    fn leave(&mut self, line: u64) -> Result<(), Breach>;

    /// A connection to be closed, since more than `most` others like it say nothing.
    fn surplus(&self, most: usize) -> Option<u64>;
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The peer has opened it, and has to say OPEN.
    Accepted,
    /// This side has said OPEN.
    Opened,
    /// Both sides agree.
    Up,
}

/// The connections by the numbers that the driver gives them.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) transaction: u64,
    pub(super) sum: Sum,
    phases: BTreeMap<u64, Phase>,
    breaks: u32,
}

impl Lines {
    pub(super) fn new(transaction: u64, sum: Sum) -> Self {
        Self {
            transaction,
            sum,
            phases: BTreeMap::new(),
            breaks: 0,
        }
    }

    pub(super) fn has(&self, line: u64) -> bool {
        self.phases.contains_key(&line)
    }

    pub(super) fn is_up(&self, line: u64) -> bool {
        self.phases.get(&line) == Some(&Phase::Up)
    }

    pub(super) fn join(&mut self, line: u64, is_own: bool, out: &mut Vec<u8>) {
        let phase = match is_own {
            true => Phase::Opened,
            false => Phase::Accepted,
        };
        if is_own {
            self.say(Message::Open, out);
        }
        self.phases.insert(line, phase);
    }

    pub(super) fn say(&self, message: Message, out: &mut Vec<u8>) {
        message.encode(self.transaction, self.sum, out);
    }

    /// Takes a message of the handshake.
    pub(super) fn take(
        &mut self,
        line: u64,
        message: Message,
        out: &mut Vec<u8>,
    ) -> Result<(), Breach> {
        match (self.phases.get_mut(&line), message) {
            (Some(phase @ Phase::Accepted), Message::Open) => {
                *phase = Phase::Up;
                self.say(Message::Ready, out);
                Ok(())
            }
            (Some(phase @ Phase::Opened), Message::Ready) => {
                *phase = Phase::Up;
                Ok(())
            }
            _ => Err(Breach::Misplaced(message)),
        }
    }

    /// Something new has arrived.
    pub(super) fn advanced(&mut self) {
        self.breaks = 0;
    }

    pub(super) fn leave(&mut self, line: u64) -> Result<(), Breach> {
        let phase = self.phases.remove(&line);
        // Anybody may have opened one that has said nothing.
        self.breaks += u32::from(phase.is_some_and(|phase| phase != Phase::Accepted));
        match self.breaks >= BREAKS_MAX {
            true => Err(Breach::TooManyBreaks),
            false => Ok(()),
        }
    }

    /// The oldest of those that the peer has opened and on which it hasn't said anything, if there
    /// are more than `most`.
    pub(super) fn surplus(&self, most: usize) -> Option<u64> {
        let silent = |(_, phase): &(&u64, &Phase)| **phase == Phase::Accepted;
        let count = self.phases.iter().filter(silent).count();
        let oldest = self.phases.iter().find(silent);
        oldest.filter(|_| count > most).map(|(line, _)| *line)
    }
}
