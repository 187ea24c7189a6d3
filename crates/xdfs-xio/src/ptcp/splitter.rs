//! The sending half of a bundle: pieces, the streams that carry them, and those to be sent again.
//!
//! A piece keeps its bounds for ever. It is kept until it is acknowledged, and one stream carries
//! it once, unless it stalls again and again. Invariants: unacknowledged bytes are at most the
//! window; nothing is sent beyond the peer's limit.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use super::merger::PIECES_MAX;
use super::wire::Violation;

/// Bounds of the time after which a piece counts as stalled.
const STALL_MIN: Duration = Duration::from_millis(200);
const STALL_MAX: Duration = Duration::from_secs(3);

/// One life of a stream: a stream that replaces a broken one has another.
pub(super) type Life = u64;

/// A piece of the outgoing stream.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) data: Arc<Vec<u8>>,
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.offset, self.data.len())
    }
}

#[derive(Clone, Debug)]
struct Entry {
    piece: Piece,
    /// The streams that carry it, and since when.
    carriers: Vec<(Life, Duration)>,
    /// How often it was sent because of a stall.
    stalls: u32,
    /// It was given out more than once.
    is_resent: bool,
}

impl Entry {
    fn end(&self) -> u64 {
        self.piece.offset + self.piece.data.len() as u64
    }

    fn sent(&self) -> Option<Duration> {
        self.carriers.iter().map(|(_, at)| *at).max()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Splitter {
    window: u64,
    /// The peer's limit.
    limit: u64,
    /// Bytes taken from the writer.
    taken: u64,
    /// Bytes handed to streams at least once.
    sent: u64,
    acknowledged: u64,
    entries: VecDeque<Entry>,
    /// Offsets of the pieces to be sent again.
    again: BTreeSet<u64>,
    end: End,
    /// The end was given to a stream, which may have broken since.
    has_told_end: bool,
    /// Smoothed time from sending a piece to its acknowledgement.
    round_trip: Option<Duration>,
    /// Bytes that the peer holds behind a gap, and when it said so.
    held: (u32, Duration),
    resent_bytes: u64,
    /// The peer reads no more.
    refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// To be sent behind the last piece.
    Due,
    Carried(Life, Duration),
    Acknowledged,
}

impl Splitter {
    pub(super) fn new(window: u64, limit: u64) -> Self {
        Self {
            window,
            limit,
            taken: 0,
            sent: 0,
            acknowledged: 0,
            entries: VecDeque::new(),
            again: BTreeSet::new(),
            end: End::Open,
            has_told_end: false,
            round_trip: None,
            held: (0, Duration::ZERO),
            resent_bytes: 0,
            refused: false,
        }
    }

    /// Bytes that the writer may add.
    pub(super) fn room(&self) -> u64 {
        if self.entries.len() >= PIECES_MAX || self.is_closed() {
            return 0;
        }
        self.window - (self.taken - self.acknowledged).min(self.window)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.end != End::Open
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Takes up to `most` bytes from `bufs`, of which `skip` are taken already, as one piece.
    pub(super) fn take(
        &mut self,
        bufs: &[IoSlice<'_>],
        mut skip: usize,
        most: usize,
        mut data: Vec<u8>,
    ) -> usize {
        let most = most.min(usize::try_from(self.room()).unwrap_or(usize::MAX));
        data.clear();
        for buf in bufs {
            let from = skip.min(buf.len());
            skip -= from;
            let rest = &buf[from..];
            data.extend_from_slice(&rest[..rest.len().min(most - data.len())]);
        }
        let n = data.len();
        if n > 0 {
            let piece = Piece {
                offset: self.taken,
                data: Arc::new(data),
            };
            self.taken += n as u64;
            self.entries.push_back(Entry {
                piece,
                carriers: Vec::new(),
                stalls: 0,
                is_resent: false,
            });
        }
        n
    }

    /// Whether a piece waits that no stream has begun to send, and that may be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.taken
    }

    /// Whether a stream could begin something.
    pub(super) fn is_waiting(&self) -> bool {
        !self.again.is_empty() || self.has_unsent() || self.end == End::Due
    }

    fn index(&self, offset: u64) -> Option<usize> {
        let at = self.entries.partition_point(|e| e.piece.offset < offset);
        let entry = self.entries.get(at)?;
        (entry.piece.offset == offset).then_some(at)
    }

    /// The next piece for the stream `life`.
    pub(super) fn next(&mut self, life: Life, now: Duration) -> Option<Piece> {
        // After several stalls any stream will do, so that at least the receipt is repeated.
        let carries = |entry: &Entry| {
            entry.stalls < 2 && entry.carriers.iter().any(|(other, _)| *other == life)
        };
        let again = self.again.iter().copied().find(|offset| {
            let index = self.index(*offset);
            index.is_some_and(|index| !carries(&self.entries[index]))
        });
        let offset = match again {
            Some(offset) => {
                self.again.remove(&offset);
                offset
            }
            None if self.has_unsent() => self.sent,
            None => return None,
        };
        let index = self.index(offset)?;
        let entry = &mut self.entries[index];
        let end = entry.end();
        if end > self.limit {
            return None;
        }
        entry.carriers.retain(|(other, _)| *other != life);
        entry.carriers.push((life, now));
        entry.is_resent = offset < self.sent;
        if entry.is_resent {
            self.resent_bytes += entry.piece.data.len() as u64;
        }
        let piece = entry.piece.clone();
        self.sent = self.sent.max(end);
        Some(piece)
    }

    /// The stream `life` didn't begin with what [`Splitter::next`] gave it just now.
    pub(super) fn put_back(&mut self, life: Life, piece: &Piece) {
        let Some(index) = self.index(piece.offset) else {
            return;
        };
        let entry = &mut self.entries[index];
        entry.carriers.retain(|(other, _)| *other != life);
        if entry.carriers.is_empty() && entry.end() == self.sent && !entry.is_resent {
            self.sent = piece.offset;
        } else {
            self.resent_bytes -= entry.piece.data.len() as u64;
            self.again.insert(piece.offset);
        }
    }

    /// Likewise for [`Splitter::next_end`].
    pub(super) fn put_back_end(&mut self) {
        if matches!(self.end, End::Carried(..)) {
            self.end = End::Due;
        }
    }

    /// The end, if it is due on the stream `life`.
    pub(super) fn next_end(&mut self, life: Life, now: Duration) -> Option<u64> {
        if self.end != End::Due || self.has_unsent() || self.taken > self.limit {
            return None;
        }
        self.end = End::Carried(life, now);
        self.has_told_end = true;
        Some(self.taken)
    }

    /// No more bytes follow.
    pub(super) fn finish(&mut self) {
        if self.end == End::Open {
            self.end = End::Due;
        }
    }

    /// The peer reads no more: nothing needs to arrive.
    pub(super) fn refuse(&mut self) {
        self.refused = true;
        self.entries.clear();
        self.again.clear();
        (self.sent, self.acknowledged) = (self.taken, self.taken);
        self.end = End::Acknowledged;
    }

    /// Whether everything, with the end, has arrived.
    pub(super) fn is_done(&self) -> bool {
        self.end == End::Acknowledged
    }

    /// Whether a piece isn't acknowledged.
    pub(super) fn is_missing(&self, piece: &Piece) -> bool {
        piece.offset + piece.data.len() as u64 > self.acknowledged
    }

    pub(super) fn unacknowledged(&self) -> u64 {
        self.taken - self.acknowledged
    }

    /// Whether something is sent and not acknowledged.
    pub(super) fn is_expecting(&self) -> bool {
        self.unacknowledged() > 0 || matches!(self.end, End::Due | End::Carried(..))
    }

    pub(super) fn resent_bytes(&self) -> u64 {
        self.resent_bytes
    }

    /// The peer acknowledges. Buffers that are free again go to `spare`.
    pub(super) fn acknowledge(
        &mut self,
        received: u64,
        limit: u64,
        held: u32,
        now: Duration,
        mut spare: impl FnMut(Vec<u8>),
    ) -> Result<(), Violation> {
        if self.refused {
            return Ok(());
        }
        let is_end = received == self.taken + 1 && self.has_told_end;
        if received > self.sent && !is_end {
            return Err(Violation("more is acknowledged than was sent"));
        }
        self.limit = self.limit.max(limit);
        if received >= self.acknowledged {
            self.held = (held, now);
        }
        if is_end {
            self.end = End::Acknowledged;
        }
        self.acknowledged = self.acknowledged.max(received.min(self.taken));
        while let Some(entry) = self.entries.front()
            && entry.end() <= self.acknowledged
        {
            if let [(_, at)] = entry.carriers[..] {
                let sample = now.saturating_sub(at);
                let old = self.round_trip.unwrap_or(sample);
                self.round_trip = Some((old * 7 + sample) / 8);
            }
            self.again.remove(&entry.piece.offset);
            // It is there, as `front` has shown.
            if let Some(entry) = self.entries.pop_front()
                && let Ok(data) = Arc::try_unwrap(entry.piece.data)
            {
                spare(data);
            }
        }
        Ok(())
    }

    /// The stream `life` is lost with all that it carried.
    pub(super) fn lose(&mut self, life: Life) {
        for entry in &mut self.entries {
            let before = entry.carriers.len();
            entry.carriers.retain(|(other, _)| *other != life);
            if before > 0 && entry.carriers.is_empty() {
                self.again.insert(entry.piece.offset);
            }
        }
        if matches!(self.end, End::Carried(other, _) if other == life) {
            self.end = End::Due;
        }
    }

    /// The time without an acknowledgement after which a piece counts as stalled.
    pub(super) fn patience(&self) -> Duration {
        let trip = self.round_trip.unwrap_or(Duration::from_millis(250));
        (trip * 4).clamp(STALL_MIN, STALL_MAX)
    }

    /// Marks pieces that wait too long for their acknowledgement, to be sent again on other
    /// streams. Whether there are any.
    ///
    /// If the peer holds bytes behind the gap, only the streams of the missing pieces can be slow.
    /// Otherwise its reader may be, or an acknowledgement may be stuck; so the wait is longer, and
    /// only the first piece is sent again, whose receipt will be repeated.
    pub(super) fn check_stalls(&mut self, now: Duration) -> bool {
        let patience = self.patience();
        let (held, at) = self.held;
        let is_gap = held > 0 && now.saturating_sub(at) <= patience * 2;
        let Some(first) = self.entries.front() else {
            if let End::Carried(_, at) = self.end
                && now.saturating_sub(at) > patience * 2
            {
                self.end = End::Due;
                return true;
            }
            return false;
        };
        let Some(sent) = first.sent() else {
            return false;
        };
        let wait = if is_gap { patience } else { patience * 2 };
        let wait = wait * (1 << first.stalls.min(5));
        if now.saturating_sub(sent) <= wait {
            return false;
        }
        let slow: Vec<Life> = first.carriers.iter().map(|(life, _)| *life).collect();
        for entry in &mut self.entries {
            let is_slow = |(life, _): &(Life, Duration)| slow.contains(life);
            if !entry.carriers.is_empty() && entry.carriers.iter().all(is_slow) {
                entry.stalls += 1;
                self.again.insert(entry.piece.offset);
            }
            if !is_gap {
                break;
            }
        }
        true
    }
}
