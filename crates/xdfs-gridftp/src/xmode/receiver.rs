//! The receiver of a transaction.

use std::time::Instant;

use xdfs_proto::{ByteRange, RangeSet};

use super::line::{Breach, Lines, Side};
use super::message::{Message, Sum};

/// What a message has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A block that hasn't come before. Once it is stored, [`Receiver::acknowledge`] follows.
    Block(ByteRange),
    /// Everything has come.
    Complete,
    /// Nothing new.
    Nothing,
}

/// See the [module](super).
#[derive(Debug)]
pub struct Receiver {
    lines: Lines,
    /// Bytes of blocks that were acknowledged.
    bytes: u64,
    is_complete: bool,
}

impl Receiver {
    /// A receiver of this transaction.
    #[must_use]
    pub fn new(transaction: u64, sum: Sum) -> Self {
        Self {
            lines: Lines::new(transaction, sum),
            bytes: 0,
            is_complete: false,
        }
    }

    /// A message has come; `stored` is what the receiver has of the file.
    ///
    /// # Errors
    /// The sender breaks the rules.
    pub fn take(
        &mut self,
        line: u64,
        message: Message,
        stored: &RangeSet,
        out: &mut Vec<u8>,
    ) -> Result<Taken, Breach> {
        if !self.lines.is_up(line) {
            self.lines.take(line, message, out)?;
            return Ok(Taken::Nothing);
        }
        match message {
            Message::Data(range) if stored.contains(range) => {
                // Its acknowledgement was lost.
                self.lines.say(Message::Acknowledge(range), out);
                Ok(Taken::Nothing)
            }
            Message::Data(range) if stored.overlaps(range) => Err(Breach::Overlapping(range)),
            Message::Data(_) if self.is_complete => Err(Breach::WrongEnd),
            Message::Data(range) => Ok(Taken::Block(range)),
            Message::End { bytes, end } => {
                let last = stored.as_slice().last().map_or(0, |range| range.end);
                if bytes != self.bytes || end > last {
                    return Err(Breach::WrongEnd);
                }
                self.is_complete = true;
                self.lines.say(Message::Bye, out);
                Ok(Taken::Complete)
            }
            _ => Err(Breach::Misplaced(message)),
        }
    }

    /// A new block is stored.
    pub fn acknowledge(&mut self, range: ByteRange, out: &mut Vec<u8>) {
        self.bytes += range.len();
        self.lines.advanced();
        self.lines.say(Message::Acknowledge(range), out);
    }

    /// Whether everything has come.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

impl Side for Receiver {
    fn has(&self, line: u64) -> bool {
        self.lines.has(line)
    }

    fn join(&mut self, line: u64, is_own: bool, now: Instant, out: &mut Vec<u8>) {
        self.lines.join(line, is_own, now, out);
    }

    fn leave(&mut self, line: u64) -> Result<(), Breach> {
        self.lines.leave(line)
    }

    fn surplus(&self, now: Instant) -> Option<u64> {
        self.lines.surplus(now)
    }

    fn silent_until(&self) -> Option<Instant> {
        self.lines.silent_until()
    }
}
