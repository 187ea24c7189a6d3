//! Repeated refusals: the first is written at once, similar ones are counted for a while.
//!
//! Refusals are similar if they have the same network, door, method and reason. The table is
//! bounded: when it is full, all further ones share one run.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use xdfs_crowd::Network;
use xdfs_proto::Code;

use super::{Event, Kind};
use crate::Method;

/// For how long similar refusals are counted.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of concurrent runs.
const RUNS_MAX: usize = 4096;
/// Maximum length of names and addresses kept, in bytes: more than a line shows.
const TEXT_BYTES_MAX: usize = 256;

/// The common properties of a run; `None` for the run shared when there are too many.
type Similarity = Option<(Network, &'static str, Kind, Option<Method>, Option<Code>)>;

/// Refusals counted and not written.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) count: u64,
    /// Time of the last of them.
    pub(super) last: SystemTime,
    pub(super) kind: Kind,
    pub(super) door: &'static str,
    pub(super) method: Option<Method>,
    pub(super) result: Option<Code>,
    /// Common address and user; empty if they differ.
    pub(super) from: String,
    pub(super) user: String,
    /// Common key; empty if they differ.
    pub(super) key: String,
    begun: SystemTime,
}

#[derive(Debug, Default)]
pub(super) struct Repeats {
    runs: HashMap<Similarity, Run>,
    /// The same, by start time.
    order: VecDeque<Similarity>,
}

impl Repeats {
    /// Counts a refusal from `network`; returns whether it must be written.
    pub(super) fn note(&mut self, event: &Event<'_>, network: Network) -> bool {
        let likeness = Some((network, event.door, event.kind, event.method, event.result));
        let is_new = !self.runs.contains_key(&likeness);
        // The last slot is for the shared run.
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
                key: shortened(event.key),
                begun: event.time,
            };
            self.runs.insert(likeness, run);
            self.order.push_back(likeness);
            return true;
        };
        run.count += 1;
        run.last = event.time;
        for (kept, came) in [(&mut run.user, event.user), (&mut run.from, event.from)] {
            // The port differs between connections.
            let came = shortened(came);
            if host(kept) != host(&came) {
                kept.clear();
            }
        }
        if run.key != event.key {
            run.key.clear();
        }
        if likeness.is_none() {
            if run.door != event.door {
                run.door = "";
            }
            (run.method, run.result) = (None, run.result.filter(|_| event.result == run.result));
        }
        false
    }

    /// Removes the runs whose time is over at `now`, or all if it is `None`, and returns those with
    /// a count.
    pub(super) fn take(&mut self, now: Option<SystemTime>) -> Vec<Run> {
        let mut taken = Vec::new();
        while let Some(likeness) = self.order.front() {
            let is_running = |run: &Run| {
                // Setting the clock back ends a run.
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
    /// The event with the count.
    pub(super) fn event(&self) -> Event<'_> {
        Event {
            door: self.door,
            user: &self.user,
            key: &self.key,
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

/// An address without its port, or a whole user name.
fn host(text: &str) -> &str {
    text.rsplit_once(':').map_or(text, |(host, _)| host)
}
