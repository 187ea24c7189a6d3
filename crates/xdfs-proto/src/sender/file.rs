//! What the sender knows of one file: what goes next, and what it says of the file.

use super::{File, FileState, Sender};
use crate::frame::{Eofr, Frame};
use crate::id::FileId;
use crate::ledger::farewell;
use crate::range::ByteRange;

impl Sender {
    /// Has [`Sender::next_extent`] pass over a file whose source has nothing now, or go on with it.
    pub fn pause(&mut self, id: FileId, is_paused: bool) {
        if let Some(file) = self.files.get_mut(&id) {
            file.is_paused = is_paused;
        }
    }
}

impl File {
    /// The next block of a source of unknown length, past what the receiver has already.
    pub(super) fn at_cursor(&self) -> Option<ByteRange> {
        let held = self.resumed.as_slice();
        let start = held
            .iter()
            .find(|r| r.start <= self.cursor && self.cursor < r.end)
            .map_or(self.cursor, |r| r.end);
        ByteRange::at(start, self.block_size)
    }

    /// The channel on which it went ahead of ACCEPT is gone: it is offered again, and all that was
    /// read of it may have to go again.
    pub(super) fn fall_back(&mut self) {
        self.ahead = None;
        self.state = FileState::Offered;
        self.again = self.digest.ranges().clone();
        self.repeated = self.acknowledged;
    }

    /// The frame to which the receiver owes an answer: EOFR, or the offer of a pack that it may not
    /// have seen.
    pub(super) fn asking(&self) -> Frame {
        let end = self.end_frame().filter(|_| self.accepted);
        end.unwrap_or_else(|| self.offer.clone())
    }

    /// What the receiver is told of a file that is being cancelled.
    pub(super) fn withdrawal(&self) -> Option<Frame> {
        self.failing.as_ref().map(|fault| farewell(self.id, fault))
    }

    /// EOFR, if every byte was read at least once.
    pub(super) fn end_frame(&self) -> Option<Frame> {
        let length = self.length?;
        Some(Frame::Eofr(Eofr {
            file: self.id,
            length,
            digest: self.digest.digest(length)?,
            store_wait_permille: self.store_wait_permille,
        }))
    }
}
