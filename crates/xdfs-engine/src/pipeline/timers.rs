//! Times of a session's periodic checks, and of the last traffic in each direction.

use std::time::Duration;

/// How long acknowledgements may be delayed, to be sent together.
const ACK_DELAY: Duration = Duration::from_millis(1);

/// All times are since the session began.
#[derive(Debug)]
pub(super) struct Timers {
    last_heard: Duration,
    last_sent: Duration,
    /// Since when acknowledgements have been pending.
    acks_since: Option<Duration>,
    next_tick: Duration,
    /// When unanswered frames are sent again.
    next_resend: Duration,
}

impl Timers {
    pub(super) fn new(next_tick: Duration, next_resend: Duration) -> Self {
        Self {
            last_heard: Duration::ZERO,
            last_sent: Duration::ZERO,
            acks_since: None,
            next_tick,
            next_resend,
        }
    }

    /// The time until the earliest of them is due.
    pub(super) fn left(&self, now: Duration) -> Duration {
        let left = self.next_tick.saturating_sub(now);
        let acks = self.acks_since.map(|since| since + ACK_DELAY);
        acks.map_or(left, |due| left.min(due.saturating_sub(now)))
    }

    /// Records traffic from the peer, or a time in which this side did not read.
    pub(super) fn heard(&mut self, now: Duration) {
        self.last_heard = now;
    }

    pub(super) fn last_heard(&self) -> Duration {
        self.last_heard
    }

    /// Whether nothing has arrived for `limit`.
    pub(super) fn is_silent(&self, limit: Duration, now: Duration) -> bool {
        self.last_heard + limit <= now
    }

    pub(super) fn sent(&mut self, now: Duration) {
        self.last_sent = now;
    }

    /// Whether it is time for a keepalive, which the caller then sends.
    pub(super) fn take_keepalive_due(&mut self, interval: Duration, now: Duration) -> bool {
        let is_due = self.last_sent + interval <= now;
        if is_due {
            self.last_sent = now;
        }
        is_due
    }

    /// Whether it is time to send the acknowledgements, if there are `any`, which the caller then
    /// does.
    pub(super) fn take_acks_due(&mut self, any: bool, now: Duration) -> bool {
        if !any {
            self.acks_since = None;
            return false;
        }
        let since = *self.acks_since.get_or_insert(now);
        let is_due = since + ACK_DELAY <= now;
        if is_due {
            self.acks_since = None;
        }
        is_due
    }

    pub(super) fn is_tick_due(&self, now: Duration) -> bool {
        now >= self.next_tick
    }

    pub(super) fn set_tick(&mut self, at: Duration) {
        self.next_tick = at;
    }

    /// Whether it is time to resend unanswered frames, which the caller then does.
    pub(super) fn take_resend_due(&mut self, interval: Duration, now: Duration) -> bool {
        let is_due = self.next_resend <= now;
        if is_due {
            self.next_resend = now + interval;
        }
        is_due
    }
}
