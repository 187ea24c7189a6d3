//! The connections of a transaction: their handshakes, and how often they break.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use xdfs_proto::ByteRange;

use super::CONNECTIONS_MAX;
use super::message::{Message, Sum};

/// How often in a row connections may break without anything new having arrived. What one event
/// breaks counts once, whatever number of connections that is: those count that were opened since
/// the last break.
pub const BREAKS_MAX: u32 = 16;

/// Time in which something has to be said on a connection that the peer has opened.
pub const SILENCE: Duration = Duration::from_secs(10);

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
    /// Connections broke [`BREAKS_MAX`] times, and nothing new arrived: the transfer fails.
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
                "data connections broke, or brought damaged bytes, {BREAKS_MAX} times in a row"
            ),
        }
    }
}

impl std::error::Error for Breach {}

/// What both machines do with connections.
pub trait Side {
    /// Whether the connection belongs to it.
    fn has(&self, line: u64) -> bool;

    /// A connection is there, which this side has opened if `is_own`. Later ones have higher
    /// numbers. Queues what is to be sent.
    fn join(&mut self, line: u64, is_own: bool, now: Instant, out: &mut Vec<u8>);

    /// A connection is broken, or is closed after a [`Breach`] or damage.
    ///
    /// # Errors
    /// That happens too often.
    fn leave(&mut self, line: u64) -> Result<(), Breach>;

    /// A connection to be closed, since nothing was said on it for [`SILENCE`], or since there are
    /// more than [`CONNECTIONS_MAX`], and others wait.
    fn surplus(&self, now: Instant) -> Option<u64>;

    /// When [`Self::surplus`] may have something to say; `None` if no connection is silent.
    fn silent_until(&self) -> Option<Instant>;
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The peer has opened it then, and has to say OPEN.
    Accepted(Instant),
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
    /// Any connection was ever up.
    was_up: bool,
    breaks: u32,
    /// Connections with lower numbers were there when one broke that has been counted.
    counted_before: u64,
    /// The number after the last one.
    next: u64,
}

impl Lines {
    pub(super) fn new(transaction: u64, sum: Sum) -> Self {
        Self {
            transaction,
            sum,
            phases: BTreeMap::new(),
            was_up: false,
            breaks: 0,
            counted_before: 0,
            next: 0,
        }
    }

    pub(super) fn has(&self, line: u64) -> bool {
        self.phases.contains_key(&line)
    }

    pub(super) fn is_up(&self, line: u64) -> bool {
        self.phases.get(&line) == Some(&Phase::Up)
    }

    pub(super) fn join(&mut self, line: u64, is_own: bool, now: Instant, out: &mut Vec<u8>) {
        let phase = match is_own {
            true => Phase::Opened,
            false => Phase::Accepted(now),
        };
        self.next = self.next.max(line.saturating_add(1));
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
            (Some(phase @ Phase::Accepted(_)), Message::Open) => {
                *phase = Phase::Up;
                self.was_up = true;
                self.say(Message::Ready, out);
                Ok(())
            }
            (Some(phase @ Phase::Opened), Message::Ready) => {
                *phase = Phase::Up;
                self.was_up = true;
                Ok(())
            }
            _ => Err(Breach::Misplaced(message)),
        }
    }

    /// Whether nothing new has arrived since a connection broke. Then each one carries one block at
    /// a time: one that breaks soon brings some nevertheless.
    pub(super) fn is_broken(&self) -> bool {
        self.breaks > 0
    }

    /// Something new has arrived.
    pub(super) fn advanced(&mut self) {
        self.breaks = 0;
    }

    pub(super) fn leave(&mut self, line: u64) -> Result<(), Breach> {
        let counts = match self.phases.remove(&line) {
            // Anybody may have opened one that has said nothing.
            None | Some(Phase::Accepted(_)) => false,
            // The peer may have enough of them. The driver bounds the time without progress.
            Some(Phase::Opened) => !self.was_up,
            Some(Phase::Up) => true,
        };
        if counts && line >= self.counted_before {
            self.breaks += 1;
            self.counted_before = self.next;
        }
        match self.breaks >= BREAKS_MAX {
            true => Err(Breach::TooManyBreaks),
            false => Ok(()),
        }
    }

    /// The oldest of those that the peer has opened and on which it hasn't said anything, and since
    /// when it is there.
    fn silent(&self) -> Option<(u64, Instant)> {
        let mut phases = self.phases.iter();
        phases.find_map(|(line, phase)| match phase {
            Phase::Accepted(since) => Some((*line, *since)),
            Phase::Opened | Phase::Up => None,
        })
    }

    pub(super) fn surplus(&self, now: Instant) -> Option<u64> {
        let (line, since) = self.silent()?;
        let is_surplus = self.phases.len() > CONNECTIONS_MAX || now >= since + SILENCE;
        is_surplus.then_some(line)
    }

    pub(super) fn silent_until(&self) -> Option<Instant> {
        self.silent().map(|(_, since)| since + SILENCE)
    }
}
