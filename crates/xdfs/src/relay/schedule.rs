//! Which parcel is to be tried next. No threads and no clock: times are arguments.
//!
//! Parcels wait in lanes, one for each server to which they go. In one whose server can't be
//! reached one parcel at a time is tried, so that many of them don't mean many connections. A lane
//! that is slow holds no other one up.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Parcels of one lane that are tried at the same time: a slow one leaves room for others.
pub(super) const RUNNING_MAX: usize = 4;
/// Shortest pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Shortest pause between two looks at a parcel of another relay: a small one is soon delivered.
const LOOK_MIN: Duration = Duration::from_millis(20);
/// The longest pause: a fault that has lasted for a day seldom ends within a minute.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// The pause grows with the time for which something fails already: this part of it. So a parcel
/// waits at most that much longer than it had to.
const PAUSE_PART: u32 = 60;

/// The pause after a failure of what fails for so long already.
fn pause(failing: Duration) -> Duration {
    (failing / PAUSE_PART).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// The pause before another look at a parcel that another relay has for so long.
fn look_pause(held: Duration) -> Duration {
    held.clamp(LOOK_MIN, PAUSE_MAX)
}

/// A row of failures, or of looks.
#[derive(Clone, Copy, Debug)]
struct Row {
    since: Instant,
    next: Instant,
}

impl Row {
    /// The row with another failure, or look, now.
    fn again(earlier: Option<Self>, now: Instant, pause: fn(Duration) -> Duration) -> Self {
        let since = earlier.map_or(now, |earlier| earlier.since);
        Self {
            since,
            next: now + pause(now - since),
        }
    }
}

#[derive(Debug, Default)]
struct Lane {
    waiting: BTreeSet<(Instant, u64)>,
    running: usize,
    outage: Option<Row>,
}

impl Lane {
    /// When its next parcel may be tried; `None` if none waits, or as many are tried as may be.
    fn ready(&self, most: usize) -> Option<Instant> {
        let (due, _) = self.waiting.first()?;
        match self.outage {
            Some(_) if self.running > 0 => None,
            _ if self.running >= most => None,
            Some(outage) => Some((*due).max(outage.next)),
            None => Some(*due),
        }
    }
}

/// A parcel that waits, or is tried.
#[derive(Clone, Debug)]
struct Entry {
    lane: Arc<str>,
    /// Since when it waits, or until when; `None` while it is tried.
    due: Option<Instant>,
    row: Option<Row>,
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This parcel.
    Parcel(u64),
    /// Nothing before this time.
    At(Instant),
    /// Nothing, until something is added.
    Nothing,
}

/// The parcels that wait, and those that are tried.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    lanes: HashMap<Arc<str>, Lane>,
    parcels: HashMap<u64, Entry>,
}

impl Schedule {
    fn lane(&mut self, name: &str) -> (Arc<str>, &mut Lane) {
        let name = match self.lanes.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(name),
        };
        let lane = self.lanes.entry(Arc::clone(&name)).or_default();
        (name, lane)
    }

    /// Adds a parcel that is due at once, or makes one due at once that waits.
    pub(super) fn add(&mut self, number: u64, lane: &str, now: Instant) {
        self.put(number, lane, now, None);
    }

    fn put(&mut self, number: u64, lane: &str, due: Instant, row: Option<Row>) {
        if let Some(Entry {
            lane,
            due: Some(due),
            ..
        }) = self.parcels.get(&number)
            && let Some(own) = self.lanes.get_mut(lane)
        {
            own.waiting.remove(&(*due, number));
        }
        let (lane, own) = self.lane(lane);
        own.waiting.insert((due, number));
        let due = Some(due);
        self.parcels.insert(number, Entry { lane, due, row });
    }

    /// Has a lane tried at once, although its server could not be reached.
    pub(super) fn hasten(&mut self, lane: &str, now: Instant) {
        let lane = self.lanes.get_mut(lane);
        if let Some(outage) = lane.and_then(|own| own.outage.as_mut()) {
            outage.next = now;
        }
    }

    /// Takes the parcel that is due, if there is one in a lane of which fewer than `most` are
    /// tried: [`Self::done`], [`Self::later`], [`Self::look_later`] or [`Self::unreached`] follows.
    pub(super) fn next(&mut self, now: Instant, most: usize) -> Next {
        let ready = self
            .lanes
            .values_mut()
            .filter_map(|own| Some((own.ready(most)?, own)));
        match ready.min_by_key(|(at, own)| (*at, own.waiting.first().copied())) {
            None => Next::Nothing,
            Some((at, _)) if at > now => Next::At(at),
            Some((_, own)) => match own.waiting.pop_first() {
                Some((_, number)) => {
                    own.running += 1;
                    if let Some(entry) = self.parcels.get_mut(&number) {
                        entry.due = None;
                    }
                    Next::Parcel(number)
                }
                None => Next::Nothing,
            },
        }
    }

    /// When a parcel that waits is tried next; `None` if it doesn't wait.
    pub(super) fn next_of(&self, number: u64) -> Option<Instant> {
        let entry = self.parcels.get(&number)?;
        let (due, own) = (entry.due?, self.lanes.get(&entry.lane)?);
        Some(own.outage.map_or(due, |outage| outage.next.max(due)))
    }

    /// Ends an attempt at a server that was reached, or not (`None` if that is unknown).
    fn ended(&mut self, number: u64, was_reached: Option<bool>, now: Instant) {
        let Some(Entry { lane, .. }) = self.parcels.get(&number) else {
            return;
        };
        let Some(own) = self.lanes.get_mut(lane) else {
            return;
        };
        own.running = own.running.saturating_sub(1);
        match was_reached {
            Some(true) => own.outage = None,
            Some(false) => own.outage = Some(Row::again(own.outage, now, pause)),
            None => {}
        }
        if own.running == 0 && own.waiting.is_empty() && own.outage.is_none() {
            let lane = Arc::clone(lane);
            self.lanes.remove(&lane);
        }
    }

    /// The attempt has ended, and there will be no other one.
    pub(super) fn done(&mut self, number: u64, was_reached: Option<bool>, now: Instant) {
        self.ended(number, was_reached, now);
        self.parcels.remove(&number);
    }

    /// The parcel is to be tried again; its server was reached.
    pub(super) fn later(&mut self, number: u64, now: Instant) {
        self.again(number, None, now, pause);
    }

    /// Another relay has the parcel, and is to be asked about it again in this lane.
    pub(super) fn look_later(&mut self, number: u64, lane: &str, now: Instant) {
        self.again(number, Some(lane), now, look_pause);
    }

    fn again(
        &mut self,
        number: u64,
        lane: Option<&str>,
        now: Instant,
        pause: fn(Duration) -> Duration,
    ) {
        let Some(entry) = self.parcels.get(&number).cloned() else {
            return;
        };
        self.ended(number, Some(true), now);
        // Another lane is the beginning of another row.
        let is_same = lane.is_none_or(|lane| *lane == *entry.lane);
        let row = Row::again(entry.row.filter(|_| is_same), now, pause);
        self.put(number, lane.unwrap_or(&entry.lane), row.next, Some(row));
    }

    /// The parcel is to be tried again when its server can be reached.
    pub(super) fn unreached(&mut self, number: u64, now: Instant) {
        self.ended(number, Some(false), now);
        if let Some(Entry { lane, row, .. }) = self.parcels.get(&number).cloned() {
            self.put(number, &lane, now, row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(schedule: &mut Schedule, now: Instant) -> Option<u64> {
        match schedule.next(now, RUNNING_MAX) {
            Next::Parcel(number) => Some(number),
            _ => None,
        }
    }

    #[test]
    fn the_pause_grows_with_the_outage() {
        let seconds = Duration::from_secs;
        for (failing, expected) in [(0, 1), (59, 1), (120, 2), (3600, 60), (86400, 600)] {
            assert_eq!(pause(seconds(failing)), seconds(expected), "{failing}");
        }
    }

    #[test]
    fn parcels_go_in_the_order_in_which_they_came() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for number in [3, 1, 2] {
            schedule.add(number, "a", now);
        }
        let order: Vec<_> = (0..4).map(|_| taken(&mut schedule, now)).collect();
        assert_eq!(order, [Some(1), Some(2), Some(3), None]);
        for number in 1..=3 {
            schedule.done(number, Some(true), now);
        }
        assert!(schedule.lanes.is_empty() && schedule.parcels.is_empty());
        assert_eq!(schedule.next(now, RUNNING_MAX), Next::Nothing);
    }

    #[test]
    fn a_target_that_is_down_is_tried_once_at_a_time_and_delays_no_other() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for number in 0..100 {
            schedule.add(number, "down", now);
        }
        schedule.add(100, "up", now);
        assert_eq!(taken(&mut schedule, now), Some(0));
        schedule.unreached(0, now);
        assert_eq!(taken(&mut schedule, now), Some(100));
        assert_eq!(schedule.next(now, RUNNING_MAX), Next::At(now + PAUSE_MIN));
        assert_eq!(schedule.next_of(50), Some(now + PAUSE_MIN));
        let then = now + PAUSE_MIN;
        let probe = taken(&mut schedule, then).unwrap();
        assert_eq!(
            schedule.next(then, RUNNING_MAX),
            Next::Nothing,
            "one at a time"
        );
        schedule.unreached(probe, then + Duration::from_secs(600));
        let next = now + Duration::from_secs(601) + Duration::from_millis(10_016);
        match schedule.next(then + Duration::from_secs(600), RUNNING_MAX) {
            Next::At(at) => assert!(at > next && at < next + Duration::from_millis(2)),
            other => panic!("{other:?}"),
        }
        // Once it is up, all go, some at a time.
        let then = now + Duration::from_secs(1000);
        let probe = taken(&mut schedule, then).unwrap();
        schedule.done(probe, Some(true), then);
        let mut rest = 0;
        loop {
            let some: Vec<_> = (0..200).map_while(|_| taken(&mut schedule, then)).collect();
            if some.is_empty() {
                break;
            }
            assert!(some.len() <= RUNNING_MAX, "{some:?}");
            rest += some.len();
            some.into_iter()
                .for_each(|number| schedule.done(number, Some(true), then));
        }
        assert_eq!(rest, 99);
    }

    #[test]
    fn one_that_fails_delays_no_other_and_is_hastened_when_it_is_put_back() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add(1, "a", now);
        schedule.add(2, "a", now);
        assert_eq!(taken(&mut schedule, now), Some(1));
        schedule.later(1, now);
        assert_eq!(taken(&mut schedule, now), Some(2));
        schedule.done(2, Some(true), now);
        assert_eq!(schedule.next_of(1), Some(now + PAUSE_MIN));
        assert_eq!(schedule.next(now, RUNNING_MAX), Next::At(now + PAUSE_MIN));
        schedule.add(1, "a", now);
        assert_eq!(taken(&mut schedule, now), Some(1));
        schedule.unreached(1, now);
        schedule.hasten("a", now);
        assert_eq!(taken(&mut schedule, now), Some(1));
    }

    #[test]
    fn a_parcel_elsewhere_is_looked_at_ever_more_seldom_until_somebody_asks() {
        let mut now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add(1, "a", now);
        let mut pauses = Vec::new();
        for _ in 0..19 {
            assert_eq!(taken(&mut schedule, now), Some(1));
            schedule.look_later(1, "looks at a", now);
            let next = schedule.next_of(1).unwrap();
            pauses.push((next - now).as_millis());
            now = next;
        }
        assert_eq!(
            pauses,
            [
                20, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10_240, 20_480, 40_960, 81_920,
                163_840, 327_680, 600_000, 600_000, 600_000
            ]
        );
        now -= Duration::from_secs(300);
        assert_eq!(taken(&mut schedule, now), None);
        schedule.add(1, "looks at a", now);
        assert_eq!(taken(&mut schedule, now), Some(1));
        schedule.done(1, Some(true), now);
        assert!(schedule.lanes.is_empty() && schedule.parcels.is_empty());
    }

    #[test]
    fn many_parcels_are_added_and_taken_at_once() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for number in 0..100_000 {
            schedule.add(number, "a", now);
            schedule.add(number, "a", now);
        }
        for number in 0..100_000 {
            assert!(schedule.next_of(number).is_some());
            assert_eq!(taken(&mut schedule, now), Some(number));
            schedule.done(number, Some(true), now);
        }
    }

    #[test]
    fn where_places_are_scarce_each_lane_has_one() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for number in 0..10 {
            schedule.add(number, if number % 2 == 0 { "a" } else { "b" }, now);
        }
        let first = [schedule.next(now, 1), schedule.next(now, 1)];
        assert_eq!(first, [Next::Parcel(0), Next::Parcel(1)]);
        assert_eq!(schedule.next(now, 1), Next::Nothing);
        assert_eq!(schedule.next(now, RUNNING_MAX), Next::Parcel(2));
    }
}
