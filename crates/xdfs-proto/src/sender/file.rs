//! The sender's state of one file: the next block, and the frames about the file.

use super::{File, FileState, Sender};
use crate::frame::{Eofr, Frame, TimeAccount};
use crate::id::FileId;
use crate::ledger::failure_frame;
use crate::range::ByteRange;

impl Sender {
    /// Makes [`Sender::next_extent`] skip a file whose source has no data now, or resumes the file.
    pub fn pause(&mut self, id: FileId, is_paused: bool) {
        if let Some(file) = self.files.get_mut(&id) {
            file.is_paused = is_paused;
        }
    }
}

impl File {
    /// The next block of a source of unknown length, after the durable ranges of an earlier
    /// attempt.
    pub(super) fn at_cursor(&self) -> Option<ByteRange> {
        let held = self.resumed.as_slice();
        let start = held
            .iter()
            .find(|r| r.start <= self.cursor && self.cursor < r.end)
            .map_or(self.cursor, |r| r.end);
        ByteRange::at(start, self.block_size)
    }

    /// Handles the loss of the channel on which it was sent ahead of ACCEPT: it is offered again,
    /// and all bytes read so far may have to be sent again.
    pub(super) fn reoffer(&mut self) {
        self.ahead = None;
        self.state = FileState::Offered;
        self.to_resend = self.digest.ranges().clone();
        self.repeated = self.acknowledged;
    }

    /// The frame to repeat until the receiver answers: EOFR, or the offer of a pack that may not
    /// have arrived.
    pub(super) fn unanswered_frame(&self) -> Frame {
        let end = self.end_frame().filter(|_| self.accepted);
        end.unwrap_or_else(|| self.offer.clone())
    }

    /// CANCEL or the exception for a file that is being cancelled.
    pub(super) fn cancel_frame(&self) -> Option<Frame> {
        self.failing
            .as_ref()
            .map(|fault| failure_frame(self.id, fault))
    }

    /// EOFR, if every byte was read at least once.
    pub(super) fn end_frame(&self) -> Option<Frame> {
        let length = self.length?;
        Some(Frame::Eofr(Eofr {
            file: self.id,
            length,
            digest: self.digest.digest(length)?,
            // Set by the machine's owner.
            time: TimeAccount::default(),
        }))
    }
}
