//! The receiving half of a bundle: the order of pieces that arrive on several streams.
//!
//! Invariants: `next <= received`; bytes below `received` have arrived; no piece ends beyond the
//! limit that was told to the peer; and what is held is at most the window and one piece a stream.

use std::collections::BTreeMap;

use super::wire::{Frame, PIECE_BYTES_MAX, STREAMS_MAX, Violation};
use crate::transform::Room;

/// The most pieces that a sender has unacknowledged, and a receiver holds.
pub(super) const PIECES_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub(super) struct Merger {
    window: u64,
    /// The offset of the reader.
    next: u64,
    /// The number of bytes that have arrived without a gap.
    received: u64,
    /// The greatest offset of any piece.
    highest: u64,
    end: Option<u64>,
    /// Pieces that have arrived, by offset. They may overlap where one was sent twice.
    held: BTreeMap<u64, Vec<u8>>,
    held_bytes: usize,
    /// `received`, held bytes and limit as told to the peer.
    told: (u64, usize, u64),
    /// Something came twice, so the peer doesn't know what has arrived.
    repeats: bool,
    /// The reader is gone: everything is taken and dropped.
    discards: bool,
}

/// Where the next bytes of a piece belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// They have arrived already, or nobody reads them; so many.
    Skip(u64),
    /// To the reader.
    Next,
    /// Into memory.
    Ahead,
}

impl Merger {
    pub(super) fn new(window: u64) -> Self {
        Self {
            window,
            next: 0,
            received: 0,
            highest: 0,
            end: None,
            held: BTreeMap::new(),
            held_bytes: 0,
            told: (0, 0, window),
            repeats: false,
            discards: false,
        }
    }

    /// A piece begins.
    pub(super) fn begin(&mut self, offset: u64, length: u32) -> Result<(), Violation> {
        let end = offset + u64::from(length);
        if end > self.told.2 {
            return Err(Violation("a piece lies beyond the window"));
        }
        if self.end.is_some_and(|last| end > last) {
            return Err(Violation("a piece lies behind the end"));
        }
        self.highest = self.highest.max(end);
        self.repeats |= end <= self.received;
        Ok(())
    }

    /// Where bytes from `at` on belong, of a piece that ends at `end`.
    pub(super) fn place(&self, at: u64, end: u64) -> Place {
        if self.discards {
            Place::Skip(end - at)
        } else if at < self.next {
            Place::Skip(end.min(self.next) - at)
        } else if at == self.next {
            Place::Next
        } else if end <= self.received {
            Place::Skip(end - at)
        } else {
            Place::Ahead
        }
    }

    /// The reader got the next `bytes`.
    pub(super) fn delivered(&mut self, bytes: u64) {
        self.next += bytes;
        self.received = self.received.max(self.next);
        self.join_held();
    }

    /// Bytes of a piece from `start` on are complete. Returns the buffer if they aren't needed.
    pub(super) fn hold(&mut self, start: u64, data: Vec<u8>) -> Result<Option<Vec<u8>>, Violation> {
        let end = start + data.len() as u64;
        if end <= self.received || self.discards {
            self.repeats = true;
            return Ok(Some(data));
        }
        if self
            .held
            .get(&start)
            .is_some_and(|old| old.len() >= data.len())
        {
            self.repeats = true;
            return Ok(Some(data));
        }
        let most = usize::try_from(self.window).unwrap_or(usize::MAX);
        let most = most.saturating_add(STREAMS_MAX * PIECE_BYTES_MAX);
        if self.held.len() >= PIECES_MAX + STREAMS_MAX || self.held_bytes + data.len() > most {
            return Err(Violation("more pieces are sent than may be held"));
        }
        self.held_bytes += data.len();
        let shorter = self.held.insert(start, data);
        self.held_bytes -= shorter.as_ref().map_or(0, Vec::len);
        self.join_held();
        Ok(shorter)
    }

    /// Counts held pieces that follow what has arrived.
    fn join_held(&mut self) {
        let at = self.received;
        // Those that begin before it may still end behind it.
        let first = self
            .held
            .range(..=at)
            .next_back()
            .map_or(at, |(start, _)| *start);
        for (start, data) in self.held.range(first..) {
            if *start > self.received {
                break;
            }
            self.received = self.received.max(start + data.len() as u64);
        }
    }

    /// Copies what is next in order into `room`, and gives buffers that are used up to `spare`.
    pub(super) fn deliver(&mut self, room: &mut Room<'_, '_>, mut spare: impl FnMut(Vec<u8>)) {
        while let Some(entry) = self.held.first_entry() {
            let (start, len) = (*entry.key(), entry.get().len() as u64);
            if start > self.next {
                break;
            }
            if start + len > self.next {
                // Within the piece, so it fits.
                let from = (self.next - start) as usize;
                let n = room.put(&entry.get()[from..]) as u64;
                self.next += n;
                if start + len > self.next {
                    break;
                }
            }
            let data = entry.remove();
            self.held_bytes -= data.len();
            spare(data);
        }
        self.received = self.received.max(self.next);
    }

    /// The peer's direction ends at `offset`.
    pub(super) fn finish(&mut self, offset: u64) -> Result<(), Violation> {
        if offset < self.highest || self.end.is_some_and(|end| end != offset) {
            return Err(Violation("the end isn't behind the last byte"));
        }
        if offset > self.told.2 {
            return Err(Violation("the end lies beyond the window"));
        }
        self.repeats |= self.end.is_some();
        self.end = Some(offset);
        Ok(())
    }

    /// Whether the peer doesn't seem to know what has arrived.
    pub(super) fn repeats(&self) -> bool {
        self.repeats
    }

    /// Tells the peer once more what has arrived.
    pub(super) fn repeat(&mut self) {
        self.repeats = true;
    }

    /// The reader is gone.
    pub(super) fn discard(&mut self) {
        self.discards = true;
        self.held.clear();
        self.held_bytes = 0;
    }

    /// Whether a read would return something, be it the end.
    pub(super) fn is_readable(&self) -> bool {
        self.is_ended() || self.received > self.next
    }

    /// Whether the reader has got everything.
    pub(super) fn is_ended(&self) -> bool {
        self.end == Some(self.next)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    fn number(&self) -> u64 {
        self.received + u64::from(self.end == Some(self.received))
    }

    /// The acknowledgement that is due: `idle` if nothing more arrives at present.
    pub(super) fn due(&self, idle: bool) -> bool {
        let (number, held, limit) = self.told;
        let step = (self.window / 8).clamp(1, 512 << 10);
        let ahead = self.held_bytes.saturating_sub(held) as u64;
        self.repeats
            || self.number() >= number + step
            || self.next + self.window >= limit + self.window / 4
            || ahead >= step
            || self.end.is_some() && self.number() > number
            || idle && (self.number() > number || ahead > 0 || self.next + self.window > limit)
    }

    /// The acknowledgement, which counts as told.
    pub(super) fn acknowledge(&mut self) -> Frame {
        let limit = self.told.2.max(self.next + self.window);
        self.told = (self.number(), self.held_bytes, limit);
        self.repeats = false;
        Frame::Ack {
            received: self.told.0,
            limit,
            held: u32::try_from(self.held_bytes).unwrap_or(u32::MAX),
        }
    }
}
