//! Which parcel is to be tried next. No threads and no clock: times are arguments.
//!
//! Parcels wait by target. Of a target that can't be reached one parcel at a time is tried, so that
//! many of them don't mean many connections.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Parcels that are tried at one target at the same time: a slow one leaves room for others.
pub(super) const RUNNING_MAX: usize = 4;
/// Shortest pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause: a fault that has lasted for a day seldom ends within a minute.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// The pause grows with the time for which something fails already: this part of it. So a parcel
/// waits at most that much longer than it had to.
const PAUSE_PART: u32 = 60;

/// The pause after a failure of what fails for so long already.
fn pause(failing: Duration) -> Duration {
    (failing / PAUSE_PART).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// A row of failures.
#[derive(Clone, Copy, Debug)]
struct Failing {
    since: Instant,
    next: Instant,
}

impl Failing {
    /// The same row, with a failure now.
    fn again(earlier: Option<Self>, now: Instant) -> Self {
        let since = earlier.map_or(now, |earlier| earlier.since);
        Self {
            since,
            next: now + pause(now - since),
        }
    }
}

#[derive(Debug, Default)]
struct Target {
    waiting: BTreeSet<(Instant, u64)>,
    running: usize,
    outage: Option<Failing>,
}

impl Target {
    /// When its next parcel may be tried; `None` if none waits, or one is tried in an outage.
    fn ready(&self) -> Option<Instant> {
        let (due, _) = self.waiting.first()?;
        match self.outage {
            Some(_) if self.running > 0 => None,
            _ if self.running >= RUNNING_MAX => None,
            Some(outage) => Some((*due).max(outage.next)),
            None => Some(*due),
        }
    }
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
    targets: HashMap<String, Target>,
    /// The targets of all parcels here, and the failures of single ones.
    parcels: HashMap<u64, (String, Option<Failing>)>,
}

impl Schedule {
    /// Adds a parcel that is due at once, or makes one due at once that waits.
    pub(super) fn add(&mut self, number: u64, target: &str, now: Instant) {
        self.take_out(number);
        let own = self.targets.entry(target.to_owned()).or_default();
        own.waiting.insert((now, number));
        self.parcels.insert(number, (target.to_owned(), None));
    }

    /// Has a target tried at once, although it could not be reached.
    pub(super) fn hasten(&mut self, target: &str, now: Instant) {
        if let Some(outage) = self
            .targets
            .get_mut(target)
            .and_then(|own| own.outage.as_mut())
        {
            outage.next = now;
        }
    }

    fn take_out(&mut self, number: u64) {
        if let Some((target, _)) = self.parcels.get(&number)
            && let Some(own) = self.targets.get_mut(target)
        {
            own.waiting.retain(|(_, other)| *other != number);
        }
    }

    /// Takes the parcel that is due, if there is one: [`Self::done`], [`Self::later`] or
    /// [`Self::unreached`] follows.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let ready = self
            .targets
            .iter_mut()
            .filter_map(|(_, own)| Some((own.ready()?, own)));
        match ready.min_by_key(|(at, own)| (*at, own.waiting.first().copied())) {
            None => Next::Nothing,
            Some((at, _)) if at > now => Next::At(at),
            Some((_, own)) => match own.waiting.pop_first() {
                Some((_, number)) => {
                    own.running += 1;
                    Next::Parcel(number)
                }
                None => Next::Nothing,
            },
        }
    }

    /// When a parcel that waits is tried next; `None` if it doesn't wait.
    pub(super) fn next_of(&self, number: u64) -> Option<Instant> {
        let (target, _) = self.parcels.get(&number)?;
        let own = self.targets.get(target)?;
        let (due, _) = own.waiting.iter().find(|(_, other)| *other == number)?;
        Some(own.outage.map_or(*due, |outage| outage.next.max(*due)))
    }

    /// Ends an attempt at a target that was reached, or not (`None` if that is unknown).
    fn ended(&mut self, number: u64, was_reached: Option<bool>, now: Instant) {
        let Some((target, _)) = self.parcels.get(&number) else {
            return;
        };
        let Some(own) = self.targets.get_mut(target) else {
            return;
        };
        own.running = own.running.saturating_sub(1);
        match was_reached {
            Some(true) => own.outage = None,
            Some(false) => own.outage = Some(Failing::again(own.outage, now)),
            None => {}
        }
        if own.running == 0 && own.waiting.is_empty() && own.outage.is_none() {
            let target = target.clone();
            self.targets.remove(&target);
        }
    }

    /// The attempt has ended, and there will be no other one.
    pub(super) fn done(&mut self, number: u64, was_reached: Option<bool>, now: Instant) {
        self.ended(number, was_reached, now);
        self.parcels.remove(&number);
    }

    /// The parcel is to be tried again; its target was reached.
    pub(super) fn later(&mut self, number: u64, now: Instant) {
        self.ended(number, Some(true), now);
        if let Some((target, failing)) = self.parcels.get_mut(&number) {
            let again = Failing::again(*failing, now);
            *failing = Some(again);
            let own = self.targets.entry(target.clone()).or_default();
            own.waiting.insert((again.next, number));
        }
    }

    /// The parcel is to be tried again when its target can be reached.
    pub(super) fn unreached(&mut self, number: u64, now: Instant) {
        self.ended(number, Some(false), now);
        if let Some((target, _)) = self.parcels.get(&number) {
            let own = self.targets.entry(target.clone()).or_default();
            own.waiting.insert((now, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(schedule: &mut Schedule, now: Instant) -> Option<u64> {
        match schedule.next(now) {
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
        assert!(schedule.targets.is_empty() && schedule.parcels.is_empty());
        assert_eq!(schedule.next(now), Next::Nothing);
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
        assert_eq!(schedule.next(now), Next::At(now + PAUSE_MIN));
        assert_eq!(schedule.next_of(50), Some(now + PAUSE_MIN));
        let then = now + PAUSE_MIN;
        let probe = taken(&mut schedule, then).unwrap();
        assert_eq!(schedule.next(then), Next::Nothing, "one at a time");
        schedule.unreached(probe, then + Duration::from_secs(600));
        let next = now + Duration::from_secs(601) + Duration::from_millis(10_016);
        match schedule.next(then + Duration::from_secs(600)) {
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
        assert_eq!(schedule.next(now), Next::At(now + PAUSE_MIN));
        schedule.add(1, "a", now);
        assert_eq!(taken(&mut schedule, now), Some(1));
        schedule.unreached(1, now);
        schedule.hasten("a", now);
        assert_eq!(taken(&mut schedule, now), Some(1));
    }
}
