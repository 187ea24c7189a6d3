//! What the sender knows of one file: what goes next, and what it says of the file.

use super::{File, State};
use crate::fault::{Code, Fault};
use crate::frame::{Frame, Scope};
use crate::id::FileId;
use crate::range::ByteRange;

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
        self.state = State::Offered;
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
        Some(Frame::Eofr {
            file: self.id,
            length,
            digest: self.digest.digest(length)?,
            store_wait_permille: self.store_wait_permille,
        })
    }
}

/// The frame that tells the peer that a file ended here.
pub(crate) fn farewell(file: FileId, fault: &Fault) -> Frame {
    if fault.code == Code::Cancelled {
        Frame::Cancel { file }
    } else {
        Frame::Exception {
            scope: Scope::File(file),
            fault: fault.clone(),
        }
    }
}

/// The fault of a file that the peer cancelled.
pub(crate) fn cancelled_by_peer(operation: &str) -> Fault {
    Fault::new(Code::Cancelled, operation, "the peer cancelled").remote()
}
