//! Transfers between two reads of a file: each keeps a session that others may need more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::incoming::Incoming;
use super::link::Link;

/// Time after which a transfer that is not read on has to leave its session to others.
const RESTED: Duration = Duration::from_secs(2);

/// A transfer that waits to be read on.
#[derive(Debug)]
struct Resting {
    since: Instant,
    link: Link,
    incoming: Incoming,
}

/// The place of a transfer between two reads; empty while it is read, without one, and once others
/// have taken its session.
#[derive(Clone, Debug, Default)]
pub(super) struct Parking(Arc<Mutex<Option<Resting>>>);

impl Parking {
    fn slot(&self) -> MutexGuard<'_, Option<Resting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a transfer here until it is read on.
    pub(super) fn leave(&self, link: Link, incoming: Incoming) {
        *self.slot() = Some(Resting {
            since: Instant::now(),
            link,
            incoming,
        });
    }

    /// Takes it back, if it is still there.
    pub(super) fn take(&self) -> Option<(Link, Incoming)> {
        let resting = self.slot().take()?;
        Some((resting.link, resting.incoming))
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// All transfers of a store that wait to be read on.
#[derive(Debug, Default)]
pub(super) struct Parkings(Mutex<Vec<Parking>>);

impl Parkings {
    fn all(&self) -> MutexGuard<'_, Vec<Parking>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Knows of a transfer that is left.
    pub(super) fn add(&self, parking: &Parking) {
        self.all().push(parking.clone());
    }

    /// Forgets one that is taken back.
    pub(super) fn remove(&self, parking: &Parking) {
        self.all().retain(|other| !other.is(parking));
    }

    /// Takes the session of a transfer that wasn't read on for long, which starts over then.
    pub(super) fn steal(&self) -> Option<Link> {
        let mut all = self.all();
        let has_rested = |resting: &mut Resting| resting.since.elapsed() >= RESTED;
        let found = all.iter().enumerate().find_map(|(at, parking)| {
            let resting = parking.slot().take_if(has_rested)?;
            Some((at, resting))
        });
        let (at, resting) = found?;
        all.remove(at);
        Some(resting.link)
    }

    /// Ends all of them.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.all());
        for parking in all {
            drop(parking.take());
        }
    }
}
