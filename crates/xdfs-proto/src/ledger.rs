//! Tracks the file numbers used by a session, in bounded memory.
//!
//! Control frames of different channels overtake each other: the offer of file 8 may arrive before
//! that of file 7, and a repeated frame may arrive long after its file has ended. So a machine must
//! distinguish new numbers from used ones. It records the used numbers within a window below the
//! highest. Lower numbers count as used; a peer that still waits for such a file is told that its
//! outcome is no longer known (rules M-7 to M-9).

use std::collections::BTreeSet;

use crate::fault::{Code, Fault, Retry};
use crate::frame::{Cancel, Exception, Frame, Scope};
use crate::id::FileId;

/// The used file numbers.
#[derive(Clone, Debug)]
pub(crate) struct FileNumbers {
    /// Maximum distance of a new number below the highest.
    window: u32,
    highest: u32,
    /// The used numbers within the window.
    used: BTreeSet<u32>,
}

impl FileNumbers {
    pub(crate) fn new(window: u32) -> Self {
        Self {
            window,
            highest: 0,
            used: BTreeSet::new(),
        }
    }

    /// Records a number as used.
    pub(crate) fn insert(&mut self, id: FileId) {
        self.highest = self.highest.max(id.0);
        self.used.insert(id.0);
        let oldest = self.highest.saturating_sub(self.window);
        while self.used.first().is_some_and(|n| *n <= oldest) {
            self.used.pop_first();
        }
    }

    /// Whether a number was used, or is too far below the highest to be new.
    pub(crate) fn contains(&self, id: FileId) -> bool {
        id.0 <= self.highest.saturating_sub(self.window) && id.0 > 0 || self.used.contains(&id.0)
    }
}

/// What the machine of one direction knows of a number that the peer uses for a file of the other.
/// Both directions of a session share their numbers: CANCEL and exceptions name nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberUse {
    /// It is new.
    New,
    /// It is that of a file which is open, or whose final answer is kept.
    Known,
    /// It counts as used, and nothing more is known of it.
    Forgotten,
}

impl NumberUse {
    /// The answer to the peer's first frame of the file; `None` where the number is new.
    ///
    /// # Errors
    /// A violation that ends the session.
    pub fn answer(self, file: FileId) -> Result<Option<Frame>, Fault> {
        match self {
            Self::New => Ok(None),
            Self::Known => Err(Fault::new(
                Code::ProtocolViolation,
                "begin a file",
                format!("file number {file} was used before, in the other direction"),
            )),
            Self::Forgotten => Ok(Some(forgotten(file))),
        }
    }
}

/// The answer to a peer that waits for a file whose outcome is no longer known here.
pub(crate) fn forgotten(file: FileId) -> Frame {
    let fault = Fault::new(
        Code::LimitExceeded,
        "resume the file",
        "it has ended, and its outcome is no longer known",
    )
    .hint("run the same command again: complete files are recognised")
    .retry(Retry::Now);
    Frame::Exception(Exception {
        scope: Scope::File(file),
        fault,
    })
}

/// The final answer for a file that failed here: CANCEL or an exception.
pub(crate) fn failure_frame(file: FileId, fault: &Fault) -> Frame {
    if fault.code == Code::Cancelled {
        Frame::Cancel(Cancel { file })
    } else {
        Frame::Exception(Exception {
            scope: Scope::File(file),
            fault: fault.clone(),
        })
    }
}

/// The fault of a file that the peer cancelled.
pub(crate) fn cancelled_by_peer(operation: &str) -> Fault {
    Fault::new(Code::Cancelled, operation, "the peer cancelled").remote()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 1024;

    #[test]
    fn numbers_may_come_in_any_order_within_the_window() {
        let mut numbers = FileNumbers::new(WINDOW);
        assert!(!numbers.contains(FileId(0)) && !numbers.contains(FileId(1)));
        numbers.insert(FileId(3));
        assert!(numbers.contains(FileId(3)) && !numbers.contains(FileId(2)));
        numbers.insert(FileId(2));
        assert!(numbers.contains(FileId(2)) && !numbers.contains(FileId(1)));
    }

    #[test]
    fn memory_is_bounded_by_the_window() {
        let mut numbers = FileNumbers::new(WINDOW);
        for n in (2..100_000).step_by(2) {
            numbers.insert(FileId(n));
        }
        assert!(numbers.used.len() <= WINDOW as usize / 2);
        assert!(numbers.contains(FileId(1)) && !numbers.contains(FileId(99_997)));
        numbers.insert(FileId(u32::MAX));
        assert_eq!(numbers.used.len(), 1);
        assert!(numbers.contains(FileId(u32::MAX - WINDOW)));
        assert!(!numbers.contains(FileId(u32::MAX - WINDOW + 1)));
    }
}
