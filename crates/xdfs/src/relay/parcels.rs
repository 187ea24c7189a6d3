//! The spool of a relay, and what this process does with its parcels.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use xdfs_access::CurrentAccess;
use xdfs_proto::relay::{
    LISTED_BYTES_MAX, ListedParcel, ParcelList, ParcelQuery, ParcelState, ParcelStatus,
};
use xdfs_proto::third_party::CopyId;
use xdfs_proto::{Code, Fault, Side};
use xdfs_spool::{Parcel, Spool, SpoolLimits};

use super::attempt::{Attempt, Tried, lock};
use super::clock::Clock;
use super::links::Links;
use super::order::Orders;
use super::route::RelayRoute;
use super::schedule::Schedule;
use super::steps;
use super::tally::Tally;

/// Settings of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelaySettings {
    /// The directory of the spool; made if it isn't there.
    pub spool: PathBuf,
    /// Most bytes of parcels that aren't delivered; `None` for what the disk has.
    pub bytes_max: Option<u64>,
    /// Most bytes of those of one user; `None` for all of them.
    pub bytes_per_user_max: Option<u64>,
    /// Directories for programs that know nothing of relays.
    pub routes: Vec<RelayRoute>,
}

impl RelaySettings {
    /// Checks the routes beside exports with these names.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: one of them can't be used, or has a name that is taken.
    pub fn check<'a>(&self, exports: impl Iterator<Item = &'a str>) -> Result<(), Fault> {
        let mut names: BTreeSet<&str> = exports.map(|name| name.trim_matches('/')).collect();
        for route in &self.routes {
            route.check()?;
            if !names.insert(&route.name) {
                let cause = "another route or export has the name";
                let fault = Fault::new(Code::InvalidArgument, "read the routes", cause);
                return Err(fault.path(&route.name));
            }
        }
        Ok(())
    }
}

/// Parcels that are looked at for one part of a list: some ten milliseconds.
const LOOKED_MAX: usize = 10_000;
/// Most parcels in one part of a list.
const LISTED_MAX: usize = 256;
/// How long the answer about a parcel that another relay has waits for that one.
const LOOK: Duration = Duration::from_secs(2);

/// The last answer of another relay about a parcel.
#[derive(Debug)]
struct Look {
    /// `None` before the first one.
    at: Option<Instant>,
    status: Option<Box<ParcelStatus>>,
}

/// A relay.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(super) spool: Spool,
    pub(super) current: Arc<dyn CurrentAccess>,
    pub(super) schedule: Mutex<Schedule>,
    pub(super) orders: Mutex<Orders>,
    pub(super) running: Mutex<HashMap<u64, Arc<Attempt>>>,
    pub(super) tried: Mutex<HashMap<u64, Tried>>,
    pub(super) links: Links,
    pub(super) clock: Clock,
    /// The last looks at parcels that other relays have.
    looks: Mutex<HashMap<u64, Look>>,
    has_looked: Condvar,
    pub(crate) tally: Tally,
}

impl Relay {
    /// Opens the spool.
    ///
    /// # Errors
    /// Another process has it, or it is damaged.
    pub(crate) fn open(
        settings: &RelaySettings,
        current: Arc<dyn CurrentAccess>,
    ) -> Result<Self, Fault> {
        let limits = SpoolLimits {
            bytes_max: settings.bytes_max.unwrap_or(u64::MAX),
            bytes_per_user_max: settings.bytes_per_user_max.unwrap_or(u64::MAX),
            ..SpoolLimits::default()
        };
        let spool = Spool::open(&settings.spool, limits)?;
        let clock = Clock::start(spool.clock()?);
        if clock.is_odd() {
            let now_s = clock.now_s();
            tracing::warn!(
                now_s,
                "the clock of the machine is off by days: it isn't believed"
            );
        }
        Ok(Self {
            spool,
            clock,
            current,
            schedule: Mutex::default(),
            orders: Mutex::default(),
            running: Mutex::default(),
            tried: Mutex::default(),
            links: Links::default(),
            looks: Mutex::default(),
            has_looked: Condvar::new(),
            tally: Tally::default(),
        })
    }

    /// The present time in seconds since 1970.
    pub(super) fn now_s(&self) -> u64 {
        self.clock.now_s()
    }

    /// The state of a user's parcel.
    ///
    /// # Errors
    /// [`Code::NotFound`]: the user has none with this identifier.
    pub(super) fn status(&self, user: &str, id: CopyId) -> Result<ParcelStatus, Fault> {
        let mut parcel = self.spool.find(user, id)?;
        if parcel.state == ParcelState::Held && parcel.handed_to.is_some() {
            self.look(parcel.number);
            // It may be over by that look.
            parcel = self.spool.find(user, id)?;
            if parcel.state != ParcelState::Held {
                lock(&self.looks).remove(&parcel.number);
            }
        }
        self.status_of(parcel)
    }

    /// A part of the list of parcels: those of one user, or all.
    ///
    /// # Errors
    /// The spool can't be read.
    pub(super) fn list(&self, user: Option<&str>, query: ParcelQuery) -> Result<ParcelList, Fault> {
        let (found, mut next) = look(&self.spool, user, query, (LOOKED_MAX, LISTED_MAX))?;
        let (mut parcels, mut bytes) = (Vec::new(), 0);
        for parcel in found {
            let (number, order) = (parcel.number, &parcel.order);
            let (id, user) = (order.id, order.user.clone());
            let status = self.status_of(parcel)?;
            if query.states & ParcelQuery::bit(status.state) == 0 {
                continue;
            }
            let listed = ListedParcel { id, user, status };
            bytes += listed.bytes();
            if bytes > LISTED_BYTES_MAX {
                next = Some(number);
                break;
            }
            parcels.push(listed);
        }
        Ok(ParcelList { next, parcels })
    }

    fn status_of(&self, parcel: Parcel) -> Result<ParcelStatus, Fault> {
        let there = lock(&self.looks)
            .get(&parcel.number)
            .filter(|_| parcel.state == ParcelState::Held)
            .and_then(|look| Some((look.at?.elapsed(), look.status.clone()?)));
        let attempt = lock(&self.running).get(&parcel.number).map(Arc::clone);
        let tried = lock(&self.tried).get(&parcel.number).cloned();
        let tried = tried.unwrap_or_default();
        let next = lock(&self.schedule).next_of(parcel.number);
        let next = next.filter(|_| parcel.state == ParcelState::Held);
        let fault = match parcel.state {
            ParcelState::Held => tried.fault,
            _ => parcel.fault.clone(),
        };
        let bytes = parcel.order.bytes;
        let delivered = match (parcel.state, &attempt) {
            (ParcelState::Delivered, _) => bytes,
            (_, Some(attempt)) => attempt.delivered.load(std::sync::atomic::Ordering::Relaxed),
            (_, None) => 0,
        };
        let own = ParcelStatus {
            state: match (parcel.state, &attempt) {
                (ParcelState::Held, Some(_)) if parcel.handed_to.is_none() => {
                    ParcelState::Delivering
                }
                (state, _) => state,
            },
            bytes,
            arrived: self.spool.arrived(&parcel)?,
            delivered: delivered.min(bytes),
            attempts: tried.attempts.max(parcel.attempts),
            age_s: self.now_s().saturating_sub(parcel.opened_s),
            next_ms: next.map(|at| {
                let left = at.saturating_duration_since(Instant::now());
                u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
            }),
            digest: parcel.digest,
            is_fault_there: fault.as_ref().is_some_and(|own| own.side == Side::Remote),
            fault,
            target: parcel.order.target,
            holder: parcel.handed_to,
        };
        Ok(match there {
            Some((since, there)) => beyond(own, since, *there),
            None => own,
        })
    }

    /// Asks the relay that has a parcel, and waits for its answer for a while.
    fn look(&self, number: u64) {
        let asked = Instant::now();
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.entry(number).or_insert(Look {
            at: None,
            status: None,
        });
        self.spool.notify(number);
        let is_older = |looks: &mut HashMap<u64, Look>| {
            // Without an entry it is over.
            let own = looks.get(&number);
            own.is_some_and(|own| own.at.is_none_or(|at| at < asked))
        };
        drop(self.has_looked.wait_timeout_while(looks, LOOK, is_older));
    }

    /// Keeps what another relay has said of a parcel, or that it could not be asked, if somebody
    /// wants to know that.
    pub(super) fn looked(&self, number: u64, status: Option<ParcelStatus>) {
        if let Some(look) = lock(&self.looks).get_mut(&number) {
            look.at = Some(Instant::now());
            look.status = status.map(Box::new).or_else(|| look.status.take());
        }
        self.has_looked.notify_all();
    }

    /// Forgets what was known of the attempts of a parcel that is over.
    pub(super) fn is_over(&self, number: u64) {
        lock(&self.tried).remove(&number);
        lock(&self.looks).remove(&number);
        self.has_looked.notify_all();
    }

    /// Ends a user's parcel, unless it was delivered.
    ///
    /// # Errors
    /// [`Code::NotFound`], or the spool can't be written.
    pub(super) fn cancel(&self, user: &str, id: CopyId) -> Result<(), Fault> {
        let parcel = self.spool.find(user, id)?;
        let old = parcel.state;
        let altered = self.spool.alter(parcel.number, self.now_s(), |parcel| {
            steps::cancel(parcel);
            Ok(())
        })?;
        if altered.cancel_wanted {
            if let Some(attempt) = lock(&self.running).get(&altered.number) {
                attempt.cancel();
            }
            self.spool.notify(altered.number);
        }
        if altered.state == ParcelState::Cancelled && old != ParcelState::Cancelled {
            Tally::count(&self.tally.cancelled);
        }
        Ok(())
    }

    /// Enters that a parcel was cancelled.
    pub(super) fn cancelled(&self, number: u64) -> Result<(), Fault> {
        let cancelled = self.spool.alter(number, self.now_s(), |parcel| {
            steps::cancelled(parcel);
            Ok(())
        })?;
        if cancelled.state == ParcelState::Cancelled {
            Tally::count(&self.tally.cancelled);
        }
        Ok(())
    }

    /// Has a user's parcel tried at once: one that waits, or that was given up.
    ///
    /// # Errors
    /// [`Code::NotFound`]; [`Code::InvalidArgument`]: it is in another state.
    pub(super) fn retry(&self, user: &str, id: CopyId) -> Result<(), Fault> {
        let parcel = self.spool.find(user, id)?;
        let opened_s = self.now_s();
        let held = self.spool.alter(parcel.number, opened_s, move |parcel| {
            match parcel.state {
                ParcelState::Held if parcel.cancel_wanted => {
                    let cause = "it is being cancelled";
                    return Err(Fault::new(
                        Code::InvalidArgument,
                        "put back the parcel",
                        cause,
                    ));
                }
                ParcelState::Held => parcel.retry_wanted = parcel.handed_to.is_some(),
                ParcelState::Dead => {
                    parcel.retry_wanted = parcel.handed_to.is_some();
                    // Its life begins again.
                    parcel.opened_s = opened_s;
                    parcel.state = ParcelState::Held;
                    parcel.fault = None;
                }
                state => {
                    let cause = format!("it is {}", state.as_str());
                    let fault = Fault::new(Code::InvalidArgument, "put back the parcel", cause);
                    return Err(fault);
                }
            }
            Ok(())
        })?;
        self.spool.notify(held.number);
        Ok(())
    }

    /// Gives a parcel up.
    pub(super) fn give_up(&self, parcel: &Parcel, fault: Fault) -> Result<(), Fault> {
        let attempts = lock(&self.tried)
            .get(&parcel.number)
            .map_or(0, |tried| tried.attempts);
        let is_late = fault.code == Code::DeadlineExceeded;
        let dead = self
            .spool
            .alter(parcel.number, self.now_s(), move |parcel| {
                steps::give_up(parcel, attempts, fault);
                Ok(())
            })?;
        if dead.cancel_wanted && dead.state == ParcelState::Arriving {
            self.spool.notify(dead.number);
        }
        match dead.state {
            ParcelState::Dead | ParcelState::Cancelled | ParcelState::Arriving if is_late => {
                Tally::count(&self.tally.expired)
            }
            ParcelState::Dead => Tally::count(&self.tally.dead),
            _ => {}
        }
        Ok(())
    }
}

/// The status of a parcel of which another relay has said something so long ago.
fn beyond(own: ParcelStatus, since: Duration, there: ParcelStatus) -> ParcelStatus {
    let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    // A failure to ask is newer.
    let (fault, is_fault_there) = match own.fault {
        Some(fault) => (Some(fault), own.is_fault_there),
        None => (there.fault, there.is_fault_there),
    };
    ParcelStatus {
        state: match there.state {
            state if state.is_end() => own.state,
            state => state,
        },
        delivered: there.delivered.min(own.bytes),
        attempts: there.attempts,
        next_ms: there.next_ms.map(|next| next.saturating_sub(since_ms)),
        holder: there.holder.or(own.holder),
        fault,
        is_fault_there,
        ..own
    }
}

/// The parcels of a query, of which at most so many are looked at and at most so many found, and
/// the number at which the next look begins.
fn look(
    spool: &Spool,
    user: Option<&str>,
    query: ParcelQuery,
    (looked_max, found_max): (usize, usize),
) -> Result<(Vec<Parcel>, Option<u64>), Fault> {
    let (mut found, mut looked, mut next) = (Vec::new(), 0, None);
    spool.each_from(query.from, |parcel| {
        if looked == looked_max || found.len() == found_max {
            next = Some(parcel.number);
            return ControlFlow::Break(());
        }
        looked += 1;
        let is_own = user.is_none_or(|user| user == parcel.order.user);
        // The spool doesn't know of attempts.
        let states = match parcel.state {
            ParcelState::Held => {
                ParcelQuery::bit(ParcelState::Held) | ParcelQuery::bit(ParcelState::Delivering)
            }
            state => ParcelQuery::bit(state),
        };
        if is_own && query.states & states != 0 {
            found.push(parcel);
        }
        ControlFlow::Continue(())
    })?;
    Ok((found, next))
}

#[cfg(test)]
mod tests {
    use xdfs_proto::digest::DigestValue;
    use xdfs_spool::NewParcel;

    use super::*;

    #[test]
    fn a_list_comes_in_parts_that_have_each_parcel_once() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path(), SpoolLimits::default()).unwrap();
        for number in 0..40_u8 {
            let order = NewParcel {
                user: if number % 4 == 0 { "bob" } else { "alice" }.into(),
                id: CopyId([number; 16]),
                target: "xdfs://host/x".into(),
                name: b"x".to_vec(),
                overwrite: false,
                tree: false,
                bytes: 1,
                life_s: 60,
                digest: DigestValue::None,
                next: Vec::new(),
                passed: Vec::new(),
                of: None,
                in_order: None,
                ahead: false,
            };
            let parcel = spool.submit(order, 0).unwrap();
            if number < 10 {
                let end = |parcel: &mut Parcel| {
                    parcel.state = ParcelState::Cancelled;
                    Ok(())
                };
                spool.alter(parcel.number, 0, end).unwrap();
            }
        }
        let all = |user: Option<&str>, states: u8, bounds: (usize, usize)| {
            let (mut numbers, mut from, mut parts) = (Vec::new(), 0, 0);
            loop {
                let query = ParcelQuery {
                    all_users: false,
                    states,
                    from,
                };
                let (found, next) = look(&spool, user, query, bounds).unwrap();
                assert!(found.len() <= bounds.1);
                numbers.extend(found.iter().map(|parcel| parcel.order.id.0[0]));
                parts += 1;
                match next {
                    Some(next) => from = next,
                    None => return (numbers, parts),
                }
            }
        };
        let states = ParcelQuery::ALL_STATES;
        let every: Vec<u8> = (0..40).collect();
        assert_eq!(all(None, states, (100, 100)), (every.clone(), 1));
        assert_eq!(all(None, states, (100, 7)), (every.clone(), 6));
        assert_eq!(all(None, states, (7, 100)), (every.clone(), 6));
        let of_bob: Vec<u8> = (0..40).step_by(4).collect();
        assert_eq!(all(Some("bob"), states, (3, 1)).0, of_bob);
        let arriving = ParcelQuery::bit(ParcelState::Arriving);
        assert_eq!(all(None, arriving, (9, 9)).0, every[10..]);
        assert!(all(Some("eve"), states, (9, 9)).0.is_empty());
        // Equal counts, from memory.
        let mut counted = 0;
        spool.counted(|_| counted += 1);
        assert_eq!(counted, 30);
    }
}
