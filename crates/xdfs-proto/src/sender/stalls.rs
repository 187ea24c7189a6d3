//! The sender's channels that stall: those that owe acknowledgements while others make progress.

use std::time::Duration;

use super::{Sender, SenderOutput};

impl Sender {
    /// When to call [`Sender::handle_timeout`], if at all.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.channels
            .values()
            .filter(|c| !c.unacknowledged.is_empty())
            .map(|c| c.last_progress + self.limits.stall_timeout)
            .min()
    }

    /// Closes channels that owe blocks and made no progress for the stall timeout, if another
    /// channel did in the meantime (else it is the receiver that is slow, not a channel).
    pub fn handle_timeout(&mut self, now: Duration) {
        let timeout = self.limits.stall_timeout;
        for (&index, channel) in &mut self.channels {
            if channel.unacknowledged.is_empty() || channel.last_progress + timeout > now {
                continue;
            }
            // While all outstanding bytes were acknowledged twice over, a working channel would
            // have made progress, however slow the receiver is.
            let others = self.acknowledged_bytes - channel.acknowledged_before;
            let own: u64 = channel.unacknowledged.iter().map(|e| e.range.len()).sum();
            // Or the others have finished, and nothing was heard since.
            let alone = own == self.in_flight && self.last_progress + timeout <= now;
            if others > 2 * self.in_flight || (others > 0 && alone) {
                self.outputs.push_back(SenderOutput::CloseChannel(index));
                channel.acknowledged_before = self.acknowledged_bytes;
            }
            // Checked again after another timeout.
            channel.last_progress = now;
        }
    }
}
