//! Refusals that repeat: the first is written at once, those like it for a while are counted.
//!
//! Refusals are alike when they came from the same network, by the same door and method, for the
//! same reason. The table is bounded: when it is full, all that fit into no run share one.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use xdfs_proto::Code;

use super::{Event, Kind};
use crate::Method;
use crate::guard::Network;

/// How long refusals like one that was written are counted.
const INTERVAL: Duration = Duration::from_secs(60);
/// Most runs at once.
const RUNS_MAX: usize = 4096;
/// Longest name and address that are kept, in bytes: more than a line shows.
const TEXT_BYTES_MAX: usize = 256;

/// What refusals have in common that are counted together; `None` for those that share a run since
/// there are too many.
type Likeness = Option<(Network, &'static str, Kind, Option<Method>, Option<Code>)>;

/// Refusals that were counted and not written.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) count: u64,
    /// When the last of them came.
    pub(super) last: SystemTime,
    pub(super) kind: Kind,
    pub(super) door: &'static str,
    pub(super) method: Option<Method>,
    pub(super) result: Option<Code>,
    /// Where they came from and whom they were for; empty if that differs.
    pub(super) from: String,
    pub(super) user: String,
    begun: SystemTime,
}

#[derive(Debug, Default)]
pub(super) struct Repeats {
    runs: HashMap<Likeness, Run>,
    /// The same by their beginning.
    order: VecDeque<Likeness>,
}

impl Repeats {
    /// Notes a refusal from `network`; whether it is to be written.
    pub(super) fn note(&mut self, event: &Event<'_>, network: Network) -> bool {
        let likeness = Some((network, event.door, event.kind, event.method, event.result));
        let is_new = !self.runs.contains_key(&likeness);
        // One place is for those that find none.
        let likeness = if is_new && self.runs.len() + 1 >= RUNS_MAX {
            None
        } else {
            likeness
        };
        let Some(run) = self.runs.get_mut(&likeness) else {
            let run = Run {
                count: 0,
                last: event.time,
                kind: event.kind,
                door: event.door,
                method: event.method,
                result: event.result,
                from: shortened(event.from),
                user: shortened(event.user),
                begun: event.time,
            };
            self.runs.insert(likeness, run);
            self.order.push_back(likeness);
            return true;
        };
        run.count += 1;
        run.last = event.time;
        for (kept, came) in [(&mut run.user, event.user), (&mut run.from, event.from)] {
            // The port differs from one connection to the next.
            let came = shortened(came);
            if host(kept) != host(&came) {
                kept.clear();
            }
        }
        if likeness.is_none() {
            if run.door != event.door {
                run.door = "";
            }
            (run.method, run.result) = (None, run.result.filter(|_| event.result == run.result));
        }
        false
    }

    /// Takes the runs out whose time is over at `now`, those with something to tell; all of them
    /// without a time.
    pub(super) fn take(&mut self, now: Option<SystemTime>) -> Vec<Run> {
        let mut taken = Vec::new();
        while let Some(likeness) = self.order.front() {
            let is_running = |run: &Run| {
                // A clock that was set back ends a run.
                let since = now.map(|now| now.duration_since(run.begun));
                since.is_some_and(|since| since.is_ok_and(|since| since < INTERVAL))
            };
            if self.runs.get(likeness).is_some_and(is_running) {
                break;
            }
            let likeness = self.order.pop_front().flatten();
            taken.extend(self.runs.remove(&likeness).filter(|run| run.count > 0));
        }
        taken
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.runs.len(), self.order.len());
        self.runs.len()
    }
}

impl Run {
    /// The line that says how many there were.
    pub(super) fn event(&self) -> Event<'_> {
        Event {
            door: self.door,
            user: &self.user,
            method: self.method,
            from: &self.from,
            result: self.result,
            repeats: Some(self.count),
            ..Event::new(self.last, self.kind)
        }
    }
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

/// What stands before the port of an address, or the whole name of a user.
fn host(text: &str) -> &str {
    text.rsplit_once(':').map_or(text, |(host, _)| host)
}
