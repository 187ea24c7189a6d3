//! Blocks that were read and dropped, and are requested again: as the same bytes were arriving on
//! another channel, or as there was no memory for them.

use super::{Receiver, ReceiverOutput};
use crate::frame::{BlockHeader, Frame, Repeat};
use crate::id::FileId;
use crate::range::ByteRange;

impl Receiver {
    /// Drops a block that was to be taken: its payload is read all the same, up to
    /// [`Self::end_block`]. It is not requested again before [`Self::request_dropped`].
    pub fn drop_block(&mut self, header: &BlockHeader) {
        if let Some(file) = self.files.get_mut(&header.file)
            && let Some((end, _)) = file.arriving.remove(&header.offset)
        {
            let start = header.offset;
            file.dropped.insert(ByteRange { start, end });
        }
    }

    /// Requests the dropped blocks of a file, except those that are held or arriving.
    pub fn request_dropped(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        for range in file.take_owed() {
            let repeat = Frame::Repeat(Repeat { file: id, range });
            self.outputs.push_back(ReceiverOutput::Transmit(repeat));
        }
    }
}
