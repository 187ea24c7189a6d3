//! When a session looks at what depends on time alone, and since when its peer is silent.

use std::time::Duration;

/// How long acknowledgements may wait for company.
const ACK_DELAY: Duration = Duration::from_millis(1);

/// All times are those since the session began.
#[derive(Debug)]
pub(super) struct Timers {
    last_heard: Duration,
    last_said: Duration,
    /// Since when there are acknowledgements that weren't sent.
    acks_since: Option<Duration>,
    next_tick: Duration,
    /// When what has no answer is said again.
    next_ask: Duration,
}

impl Timers {
    pub(super) fn new(next_tick: Duration, next_ask: Duration) -> Self {
        Self {
            last_heard: Duration::ZERO,
            last_said: Duration::ZERO,
            acks_since: None,
            next_tick,
            next_ask,
        }
    }

    /// The time until the earliest of them has to be looked at.
    pub(super) fn left(&self, now: Duration) -> Duration {
        let left = self.next_tick.saturating_sub(now);
        let acks = self.acks_since.map(|since| since + ACK_DELAY);
        acks.map_or(left, |due| left.min(due.saturating_sub(now)))
    }

    /// Something came from the peer, or it couldn't be heard.
    pub(super) fn heard(&mut self, now: Duration) {
        self.last_heard = now;
    }

    pub(super) fn last_heard(&self) -> Duration {
        self.last_heard
    }

    /// Whether nothing came for so long.
    pub(super) fn is_silent(&self, limit: Duration, now: Duration) -> bool {
        self.last_heard + limit <= now
    }

    pub(super) fn said(&mut self, now: Duration) {
        self.last_said = now;
    }

    /// Whether it is time to say something again, which the caller then does.
    pub(super) fn say(&mut self, interval: Duration, now: Duration) -> bool {
        let is_due = self.last_said + interval <= now;
        if is_due {
            self.last_said = now;
        }
        is_due
    }

    /// Whether it is time to send acknowledgements, if there are any, which the caller then does.
    pub(super) fn acknowledge(&mut self, any: bool, now: Duration) -> bool {
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

    /// Whether it is time to say again what has no answer, which the caller then does.
    pub(super) fn ask(&mut self, interval: Duration, now: Duration) -> bool {
        let is_due = self.next_ask <= now;
        if is_due {
            self.next_ask = now + interval;
        }
        is_due
    }
}
