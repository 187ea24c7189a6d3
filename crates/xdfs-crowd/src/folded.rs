//! Warnings that strangers can cause, at most one a minute.

use std::time::{Duration, Instant};

/// The interval between two warnings.
const INTERVAL: Duration = Duration::from_secs(60);

/// The events of one kind since the last warning about them.
#[derive(Debug, Default)]
pub struct Folded {
    events: u64,
    told_at: Option<Instant>,
}

impl Folded {
    /// Counts an event. If a warning is due, returns the number of events that it stands for.
    pub fn count(&mut self, now: Instant) -> Option<u64> {
        self.events += 1;
        let is_due = |at: Instant| now.saturating_duration_since(at) >= INTERVAL;
        self.told_at.is_none_or(is_due).then(|| {
            self.told_at = Some(now);
            std::mem::take(&mut self.events)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_one_warning() {
        let (mut folded, start) = (Folded::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let told = [0, 1, 2, 59, 60, 61].map(|seconds| folded.count(at(seconds)));
        assert_eq!(told, [Some(1), None, None, None, Some(4), None]);
    }
}
