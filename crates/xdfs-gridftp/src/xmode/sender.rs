//! The sender of a transaction: which block goes on which connection, and again on another one if
//! that breaks.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use xdfs_proto::{ByteRange, RangeSet};

use super::line::{Breach, Lines, Side};
use super::message::{Message, Sum};
use super::{BLOCK_BYTES_MAX, WINDOW_BYTES};

/// Time after which a connection is given up, if everything waits for a block on it.
pub const STUCK: Duration = Duration::from_secs(15);

/// See the [module](super).
#[derive(Debug)]
pub struct Sender {
    lines: Lines,
    /// What has never been sent.
    left: RangeSet,
    /// Blocks to be sent again.
    again: VecDeque<ByteRange>,
    /// Blocks on their way, by connection, in the order in which they were sent.
    under_way: BTreeMap<u64, VecDeque<ByteRange>>,
    block_bytes: u64,
    /// Nothing is added any more.
    is_whole: bool,
    /// Connections on which the end is told.
    ended: Vec<u64>,
    /// Bytes of all blocks, and where the last one ends.
    bytes: u64,
    end: u64,
    acknowledged: u64,
    is_done: bool,
    /// The block that everything waits for, with its connection, and since when.
    awaited: Option<(u64, ByteRange, Instant)>,
}

impl Sender {
    /// A sender of `left` in blocks of at most `block_bytes`; what is added by [`Self::append`]
    /// follows, up to [`Self::finish`].
    #[must_use]
    pub fn new(transaction: u64, sum: Sum, left: RangeSet, block_bytes: u64) -> Self {
        Self {
            lines: Lines::new(transaction, sum),
            again: VecDeque::new(),
            under_way: BTreeMap::new(),
            block_bytes: block_bytes.clamp(1, BLOCK_BYTES_MAX),
            is_whole: false,
            ended: Vec::new(),
            bytes: left.total(),
            end: left.as_slice().last().map_or(0, |range| range.end),
            left,
            acknowledged: 0,
            is_done: false,
            awaited: None,
        }
    }

    /// So many bytes follow those before.
    pub fn append(&mut self, bytes: u64) {
        let end = self.end.saturating_add(bytes);
        self.left.insert(ByteRange {
            start: self.end,
            end,
        });
        self.bytes += end - self.end;
        self.end = end;
    }

    /// Nothing follows.
    pub fn finish(&mut self) {
        self.is_whole = true;
    }

    /// A message has come. Returns the block that has arrived with it.
    ///
    /// # Errors
    /// The receiver breaks the rules, which makes the connection useless.
    pub fn take(
        &mut self,
        line: u64,
        message: Message,
        out: &mut Vec<u8>,
    ) -> Result<Option<ByteRange>, Breach> {
        if !self.lines.is_up(line) {
            self.lines.take(line, message, out)?;
            return Ok(None);
        }
        match message {
            Message::Acknowledge(range) => {
                let blocks = self.under_way.entry(line).or_default();
                // A connection keeps the order.
                match blocks.pop_front() {
                    Some(first) if first == range => {}
                    Some(first) => {
                        blocks.push_front(first);
                        return Err(Breach::Misplaced(message));
                    }
                    None => return Err(Breach::Misplaced(message)),
                }
                self.acknowledged += range.len();
                self.lines.advanced();
                Ok(Some(range))
            }
            Message::Bye if self.ended.contains(&line) => {
                self.is_done = true;
                Ok(None)
            }
            _ => Err(Breach::Misplaced(message)),
        }
    }

    /// The block that goes on this connection next; `None` if none can be sent on it now.
    #[must_use]
    pub fn next_block(&mut self, line: u64) -> Option<ByteRange> {
        if !self.lines.is_up(line) {
            return None;
        }
        if self.lines.is_broken() && self.under_way.get(&line).is_some_and(|own| !own.is_empty()) {
            return None;
        }
        let base = self.unacknowledged_from()?;
        let limit = base.saturating_add(WINDOW_BYTES);
        let block = match self.again.pop_front() {
            Some(block) => block,
            None => {
                let first = self.left.as_slice().first()?;
                if first.start.saturating_add(self.block_bytes) > limit {
                    return None;
                }
                self.left
                    .take_front(self.block_bytes, self.block_bytes, 0)?
            }
        };
        self.under_way.entry(line).or_default().push_back(block);
        Some(block)
    }

    /// Whether there is a block that may be sent.
    fn can_go_on(&self) -> bool {
        if self.lines.is_broken() {
            return false;
        }
        let (Some(base), first) = (self.unacknowledged_from(), self.left.as_slice().first()) else {
            return false;
        };
        let limit = base.saturating_add(WINDOW_BYTES);
        let has_room = |first: &ByteRange| first.start.saturating_add(self.block_bytes) <= limit;
        !self.again.is_empty() || first.is_some_and(has_room)
    }

    /// The connection to be closed, since for [`STUCK`] everything has waited for a block on it.
    #[must_use]
    pub fn stuck(&mut self, now: Instant) -> Option<u64> {
        let blocks = self.under_way.iter();
        let oldest = blocks.filter_map(|(line, blocks)| Some((*line, *blocks.front()?)));
        let oldest = oldest.min_by_key(|(_, block)| block.start);
        let Some((line, block)) = oldest.filter(|_| !self.can_go_on()) else {
            self.awaited = None;
            return None;
        };
        match self.awaited {
            Some((at, same, since)) if (at, same) == (line, block) => {
                (now >= since + STUCK).then_some(line)
            }
            _ => {
                self.awaited = Some((line, block, now));
                None
            }
        }
    }

    /// When [`Self::stuck`] may have something to say.
    #[must_use]
    pub fn next_time(&self) -> Option<Instant> {
        self.awaited.map(|(.., since)| since + STUCK)
    }

    /// The first byte that isn't acknowledged; `None` if there is none.
    #[must_use]
    pub fn unacknowledged_from(&self) -> Option<u64> {
        let starts = self.under_way.values().flatten().chain(&self.again);
        let left = self.left.as_slice().first();
        starts.chain(left).map(|range| range.start).min()
    }

    /// Queues the end on this connection, if it is due. Returns whether that is so.
    pub fn end(&mut self, line: u64, out: &mut Vec<u8>) -> bool {
        let is_due = self.is_whole && self.has_arrived() && self.lines.is_up(line);
        if !is_due || self.ended.contains(&line) {
            return false;
        }
        self.ended.push(line);
        let (bytes, end) = (self.bytes, self.end);
        self.lines.say(Message::End { bytes, end }, out);
        true
    }

    /// Whether all that there is so far is acknowledged.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        self.acknowledged == self.bytes
    }

    /// Bytes that have never been sent.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.left.total()
    }

    /// Whether the receiver has confirmed the end.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_done
    }
}

impl Side for Sender {
    fn has(&self, line: u64) -> bool {
        self.lines.has(line)
    }

    fn join(&mut self, line: u64, is_own: bool, now: Instant, out: &mut Vec<u8>) {
        self.lines.join(line, is_own, now, out);
    }

    fn leave(&mut self, line: u64) -> Result<(), Breach> {
        let lost = self.under_way.remove(&line).unwrap_or_default();
        // They are the same blocks then, so that none has come in part.
        self.again.extend(lost);
        self.ended.retain(|ended| *ended != line);
        self.lines.leave(line)
    }

    fn surplus(&self, now: Instant) -> Option<u64> {
        self.lines.surplus(now)
    }

    fn silent_until(&self) -> Option<Instant> {
        self.lines.silent_until()
    }
}
