//! The end of a file at its receiver: its final answer, when it is sent, and how long it is kept.

use super::{EndedFile, File, FileState, Receiver, ReceiverOutput};
use crate::fault::{Fault, Side};
use crate::frame::{Cancel, Frame, Offer};
use crate::id::FileId;
use crate::ledger::{NumberUse, failure_frame};

impl Receiver {
    /// Records that the sink of a file that failed is closed, or that there was none: its target is
    /// free, and the sender gets the final answer.
    pub fn closed(&mut self, id: FileId) {
        if let Some(ended) = self.closing.remove(&id) {
            self.finish(id, ended.offer, ended.answer);
        }
    }

    /// Has the final answer for a file that failed wait for [`Self::closed`]. One that was only
    /// requested has no sink.
    fn close(&mut self, id: FileId, file: File, answer: Option<Frame>, fault: Fault) {
        let (state, file, offer) = (file.state, id, file.offer);
        match state {
            FileState::Requested => self.finish(id, offer, answer),
            _ => {
                let ended = EndedFile {
                    file,
                    offer,
                    answer,
                };
                self.closing.insert(id, ended);
            }
        }
        self.outputs
            .push_back(ReceiverOutput::Failed { file, fault });
    }

    /// Sends the final answer for a file, and keeps it for repeated frames of the sender.
    pub(super) fn finish(&mut self, file: FileId, offer: Option<Offer>, answer: Option<Frame>) {
        self.outputs
            .extend(answer.iter().cloned().map(ReceiverOutput::Transmit));
        self.keep(file, offer, answer);
    }

    pub(super) fn keep(&mut self, file: FileId, offer: Option<Offer>, answer: Option<Frame>) {
        self.ended_files.push_back(EndedFile {
            file,
            offer,
            answer,
        });
        if self.ended_files.len() > self.limits.ended_files_kept {
            self.ended_files.pop_front();
        }
    }

    /// Ends a file because the user of this side cancels it. A file that is being published goes
    /// on, since it may already have its name.
    pub fn cancel(&mut self, id: FileId, fault: Fault) {
        if !self.is_publishing(id) {
            self.fail(id, fault);
        }
    }

    /// Ends a file because the sender did, by CANCEL or an exception. A file that is being
    /// published is completed. The sender is answered, since it may wait for the outcome.
    pub fn withdraw(&mut self, id: FileId, fault: Fault) {
        if self.is_publishing(id) {
            return;
        }
        if let Some(file) = self.files.remove(&id) {
            let asked = file.state == FileState::Requested;
            let answer = (!asked).then_some(Frame::Cancel(Cancel { file: id }));
            self.close(id, file, answer, fault);
        }
    }

    fn is_publishing(&self, id: FileId) -> bool {
        let file = self.files.get(&id);
        file.is_some_and(|f| f.state == FileState::Publishing)
    }

    /// Ends a file in any state, because of a fault of this side or (a remote fault) of the sender.
    /// A local fault is sent to the sender.
    pub fn fail(&mut self, id: FileId, fault: Fault) {
        if let Some(file) = self.files.remove(&id) {
            let local = fault.side == Side::Local;
            let answer = local.then(|| failure_frame(id, &fault));
            self.close(id, file, answer, fault);
        }
    }

    /// What is known here of a number that the peer uses for a file of the other direction.
    #[must_use]
    pub fn number_use(&self, id: FileId) -> NumberUse {
        let is_kept = || self.ended_files.iter().any(|ended| ended.file == id);
        match self.numbers.contains(id) {
            false => NumberUse::New,
            true if self.state(id).is_some() || is_kept() => NumberUse::Known,
            true => NumberUse::Forgotten,
        }
    }

    /// Whether a file that was offered here was published whole, a pack without failures; `None`
    /// as long as it may still come. Of a file that ended too long ago it is no longer known.
    #[must_use]
    pub fn arrived(&self, id: FileId) -> Option<bool> {
        if !self.was_offered(id) || self.has_file(id) {
            return None;
        }
        let mut ended = self.ended_files.iter();
        let answer = ended.find(|e| e.file == id).and_then(|e| e.answer.as_ref());
        Some(matches!(answer, Some(Frame::Published(done)) if done.failures.is_empty()))
    }
}
