//! The choice of blocks that are worth compressing.

/// Content that is stored without a trial: it can't shrink enough to matter.
const TRIAL_BYTES_MIN: usize = 128;
/// Longest block of a trial after one that failed.
const TRIAL_BYTES_MAX: usize = 64 << 10;
/// Longest run of stored content between two trials, in lengths of the trial: at most 16 MiB.
const RUN_MAX: usize = 256;

/// Compresses until a block doesn't shrink, then stores runs of growing length and tries again
/// after each.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// Bytes still to be stored without a trial.
    left: usize,
    /// Length of the last run, in lengths of its trial; zero while blocks shrink.
    run: usize,
}

impl Choice {
    /// Whether `len` bytes are to be stored without a trial.
    pub(super) fn stores(&self, len: usize) -> bool {
        self.left > 0 || len < TRIAL_BYTES_MIN
    }

    /// Longest block to compress next.
    pub(super) fn len_max(&self) -> usize {
        if self.is_trial() {
            TRIAL_BYTES_MAX
        } else {
            super::CONTENT_BYTES_MAX
        }
    }

    /// Whether the next block is a trial.
    pub(super) fn is_trial(&self) -> bool {
        self.run > 0
    }

    /// Whether a block of `len` bytes that would take `encoded` has shrunk by at least a
    /// sixteenth. Anything less isn't worth the work of the reader.
    pub(super) fn accepts(&mut self, len: usize, encoded: Option<usize>) -> bool {
        let shrank = encoded.is_some_and(|encoded| encoded <= len - len / 16 - 4);
        self.run = match (shrank, self.run) {
            (true, _) => 0,
            (false, 0) => 1,
            (false, run) => RUN_MAX.min(run * 2),
        };
        self.left = len * self.run;
        shrank
    }

    /// Counts content that was stored without a trial.
    pub(super) fn stored(&mut self, len: usize) {
        self.left = self.left.saturating_sub(len);
    }
}
