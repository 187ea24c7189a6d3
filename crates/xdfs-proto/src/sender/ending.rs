//! The final answers of a sender for files that failed on its side, and what it knows of numbers.

use super::{Sender, SenderOutput};
use crate::fault::Fault;
use crate::id::FileId;
use crate::ledger::{NumberUse, failure_frame, forgotten};

impl Sender {
    /// Handles a request that was received before. If its file has ended, the final answer is sent
    /// again.
    pub fn handle_repeated_request(&mut self, id: FileId) {
        if self.files.contains_key(&id) || id.0 == 0 {
            // The offer is repeated on its own.
            return;
        }
        let kept = self.failure_frames.iter().find(|(file, _)| *file == id);
        let frame = kept.map_or_else(|| forgotten(id), |(_, frame)| frame.clone());
        self.outputs.push_back(SenderOutput::Transmit(frame));
    }

    /// Refuses a request that can't be served. The refusal is repeated when a channel is lost.
    pub fn refuse(&mut self, id: FileId, fault: &Fault) {
        self.numbers.insert(id);
        let frame = failure_frame(id, fault);
        self.failure_frames.push_back((id, frame.clone()));
        if self.failure_frames.len() > self.limits.ended_files_kept {
            self.failure_frames.pop_front();
        }
        self.outputs.push_back(SenderOutput::Transmit(frame));
    }

    /// What is known here of a number that the peer uses for a file of the other direction.
    #[must_use]
    pub fn number_use(&self, id: FileId) -> NumberUse {
        let is_kept = || self.failure_frames.iter().any(|(file, _)| *file == id);
        match self.numbers.contains(id) {
            false => NumberUse::New,
            true if self.has_file(id) || is_kept() => NumberUse::Known,
            true => NumberUse::Forgotten,
        }
    }
}
