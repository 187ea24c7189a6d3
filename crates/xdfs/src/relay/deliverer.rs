//! The threads of a relay that deliver parcels.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xdfs_proto::relay::ParcelState;
use xdfs_proto::{Code, Fault};
use xdfs_spool::Parcel;

use super::attempt::{Attempt, Failed, Went, lock};
use super::delivery::{deliver, withdraw};
use super::onward::{follow, hand_on, recall};
use super::parcels::Relay;
use super::schedule::{Next, RUNNING_MAX, Schedule};
use super::steps::{self, Step};
use super::tally::Tally;
use super::target;

/// Parcels that are tried at the same time, each by a thread.
const WORKERS_MAX: usize = 1024;
/// From this number of threads on, each lane may have one alone: what is slow may take up many
/// lanes, and still holds no other up.
const WORKERS_SCARCE: usize = 128;
/// Longest sleep of the thread that waits for something to do.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Interval of looks for parcels whose life is over, and for ends that are to be forgotten.
const SWEEP: Duration = Duration::from_secs(60);
/// Interval of looks for new parcels, while it ends or not.
const TICK: Duration = Duration::from_millis(500);
/// How long a parcel that another relay has is asked about beyond its life: it may be delivered in
/// the last moment.
const GRACE_S: u64 = 24 * 3600;

/// Delivers the parcels of a relay until it is dropped.
#[derive(Debug)]
pub(crate) struct Deliverer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    relay: Arc<Relay>,
    is_over: AtomicBool,
    /// The number of threads that try parcels.
    workers: Mutex<usize>,
    woken: Condvar,
}

impl Deliverer {
    /// Starts the threads. All parcels that were held before are due at once.
    ///
    /// # Errors
    /// The spool can't be read, or a thread can't be started.
    pub(crate) fn start(relay: Arc<Relay>) -> Result<Self, Fault> {
        let (listener, arrived) = mpsc::channel();
        relay.spool.listen(listener);
        let now = Instant::now();
        let mut doubtful = Vec::new();
        let mut schedule = lock(&relay.schedule);
        let mut ordered = Vec::new();
        relay.spool.each(|parcel| {
            let is_offered = parcel.offered && parcel.handed_to.is_none();
            if parcel.state == ParcelState::Held && is_offered && relay.clock.is_odd() {
                doubtful.push(parcel);
            } else if parcel.state == ParcelState::Held && waits_for_turn(&parcel) {
                ordered.push(parcel);
            } else if parcel.is_due() {
                schedule.add(parcel.number, &lane_of(&parcel), now);
            }
        })?;
        ordered.sort_by_key(|parcel| parcel.taken);
        let mut orders = lock(&relay.orders);
        for parcel in ordered {
            if orders.add(&parcel) {
                schedule.add(parcel.number, &lane_of(&parcel), now);
            }
        }
        drop((schedule, orders));
        for parcel in doubtful {
            let cause = "the next relay may have delivered it, and have forgotten it since";
            let fault = Fault::new(Code::DeadlineExceeded, "send the parcel on", cause);
            relay.give_up(&parcel, fault)?;
        }
        let mut deliverer = Self {
            shared: Arc::new(Shared {
                relay,
                is_over: AtomicBool::new(false),
                workers: Mutex::default(),
                woken: Condvar::new(),
            }),
            threads: Vec::new(),
        };
        let shared = Arc::clone(&deliverer.shared);
        deliverer.spawn(move || shared.watch(&arrived))?;
        let shared = Arc::clone(&deliverer.shared);
        deliverer.spawn(move || shared.dispatch())?;
        Ok(deliverer)
    }

    fn spawn(&mut self, run: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
        let thread = thread::Builder::new().name("xdfs-relay".into());
        let fault = |error| Fault::from_io("start a thread of the relay", "", &error);
        self.threads.push(thread.spawn(run).map_err(fault)?);
        Ok(())
    }
}

impl Drop for Deliverer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let running = lock(&self.shared.relay.running);
        running.values().for_each(|attempt| attempt.stop());
        drop(running);
        self.shared.wake();
        for thread in self.threads.drain(..) {
            // A panic there was reported by it.
            let _ = thread.join();
        }
        let mut workers = self.shared.workers();
        while *workers > 0 {
            let waited = self.shared.woken.wait(workers);
            workers = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(workers);
        self.shared.relay.links.clear();
    }
}

/// The lane of a parcel: the server to which it goes, or which is asked about it. One that can't be
/// read fails at the first attempt.
fn lane_of(parcel: &Parcel) -> String {
    let place = match parcel.order.next.first() {
        Some(relay) => target::parse_relay(relay),
        None => target::parse(&parcel.order.target),
    };
    let server = place.map_or_else(|_| String::new(), |place| target::server_of(&place));
    match is_beyond(parcel) {
        // Questions don't wait for files.
        true => format!("about {server}"),
        // A sender that is slow or stops holds up none that is whole.
        false if parcel.state == ParcelState::Arriving => format!("ahead to {server}"),
        false => server,
    }
}

/// Whether a parcel waits for its turn: one that the next relay has, or that is to be cancelled,
/// doesn't wait.
fn waits_for_turn(parcel: &Parcel) -> bool {
    parcel.order.in_order.is_some() && !parcel.cancel_wanted && parcel.handed_to.is_none()
}

/// Whether the next relay has a parcel, or may have it and is to end it.
fn is_beyond(parcel: &Parcel) -> bool {
    parcel.handed_to.is_some() || (parcel.offered && parcel.cancel_wanted)
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn workers(&self) -> MutexGuard<'_, usize> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // A thread that is about to sleep has the number.
        drop(self.workers());
        self.woken.notify_all();
    }

    /// Takes parcels that have arrived or were put back, and gives up those whose life is over.
    fn watch(&self, arrived: &Receiver<u64>) {
        let mut swept: Option<Instant> = None;
        while !self.is_over() {
            if swept.is_none_or(|at| at.elapsed() >= SWEEP) {
                self.sweep();
                swept = Some(Instant::now());
            }
            self.relay.links.end_idle();
            let Ok(number) = arrived.recv_timeout(TICK) else {
                continue;
            };
            let parcel = match self.relay.spool.parcel(number) {
                Ok(parcel) => parcel,
                Err(fault) => {
                    tracing::error!(number, %fault, "a parcel that has arrived can't be read");
                    continue;
                }
            };
            if !parcel.is_due() && !parcel.may_go_ahead() {
                continue;
            }
            let lane = lane_of(&parcel);
            let now = Instant::now();
            let mut schedule = lock(&self.relay.schedule);
            let is_its_turn = !waits_for_turn(&parcel) || lock(&self.relay.orders).add(&parcel);
            if is_its_turn && !lock(&self.relay.running).contains_key(&number) {
                schedule.add(number, &lane, now);
            }
            schedule.hasten(&lane, now);
            drop(schedule);
            self.wake();
        }
    }

    fn sweep(&self) {
        let now_s = self.relay.now_s();
        let mut over = Vec::new();
        let swept = self.relay.spool.each(|parcel| {
            let is_open = matches!(parcel.state, ParcelState::Held | ParcelState::Arriving);
            let grace_s = if is_beyond(&parcel) { GRACE_S } else { 0 };
            if is_open && parcel.expires_s() + grace_s <= now_s {
                over.push(parcel);
            }
        });
        let swept = swept.and_then(|()| self.relay.spool.forget(now_s));
        let swept = swept.and_then(|_| self.relay.spool.set_clock(now_s));
        if let Err(fault) = swept {
            tracing::error!(%fault, "the spool can't be looked through");
        }
        for parcel in over {
            if lock(&self.relay.running).contains_key(&parcel.number) {
                continue;
            }
            self.expire(&parcel);
        }
    }

    fn expire(&self, parcel: &Parcel) {
        let life_s = parcel.order.life_s;
        let cause = format!("it was not delivered within {life_s} s");
        self.give_up(parcel, Fault::new(Code::DeadlineExceeded, "deliver", cause));
    }

    fn give_up(&self, parcel: &Parcel, fault: Fault) {
        let (id, user) = (parcel.order.id, &parcel.order.user);
        tracing::error!(%id, user, target = parcel.order.target, %fault, "a parcel was given up");
        if let Err(fault) = self.relay.give_up(parcel, fault) {
            tracing::error!(%id, %fault, "the spool can't be written");
        }
        self.end_turn(parcel.number);
    }

    /// A parcel is over here: the next one of its order has its turn.
    fn end_turn(&self, number: u64) {
        let Some(next) = lock(&self.relay.orders).remove(number) else {
            return;
        };
        match self.relay.spool.parcel(next) {
            Ok(parcel) if parcel.state == ParcelState::Held => {
                let lane = lane_of(&parcel);
                let mut schedule = lock(&self.relay.schedule);
                // One that was put back may have had its turn before.
                if !lock(&self.relay.running).contains_key(&next) {
                    schedule.add(next, &lane, Instant::now());
                }
                drop(schedule);
                self.wake();
            }
            // It has ended while it waited.
            Ok(_) => self.end_turn(next),
            Err(fault) => {
                tracing::error!(number = next, %fault, "a parcel that has its turn can't be read");
                self.end_turn(next);
            }
        }
    }

    /// Starts a thread for each parcel that is due.
    fn dispatch(self: &Arc<Self>) {
        let mut workers = self.workers();
        while !self.is_over() {
            let sleep = match self.take(*workers) {
                Next::Parcel(number) => {
                    *workers += 1;
                    drop(workers);
                    self.start(number);
                    workers = self.workers();
                    continue;
                }
                Next::At(at) => at.saturating_duration_since(Instant::now()).min(SLEEP_MAX),
                Next::Nothing => SLEEP_MAX,
            };
            // Woken by another thread, or by nothing, it looks again.
            let waited = self.woken.wait_timeout(workers, sleep);
            (workers, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes a parcel that is due, while there are so many threads that try one.
    fn take(&self, workers: usize) -> Next {
        let most = match workers {
            WORKERS_MAX.. => return Next::Nothing,
            WORKERS_SCARCE.. => 1,
            _ => RUNNING_MAX,
        };
        let mut schedule = lock(&self.relay.schedule);
        let next = schedule.next(Instant::now(), most);
        if let Next::Parcel(number) = next {
            // It is seen running before anybody else can add it to the schedule.
            lock(&self.relay.running).insert(number, Arc::default());
        }
        next
    }

    fn start(self: &Arc<Self>, number: u64) {
        let own = Arc::clone(self);
        let thread = thread::Builder::new().name("xdfs-relay".into());
        let started = thread.spawn(move || {
            // One that panics is none any more.
            let _worker = Worker(&own);
            let mut next = Next::Parcel(number);
            while let Next::Parcel(number) = next {
                own.attempt(number);
                // Without itself.
                let workers = own.workers().saturating_sub(1);
                next = match own.is_over() {
                    true => Next::Nothing,
                    false => own.take(workers),
                };
            }
        });
        if let Err(error) = started {
            tracing::error!(number, %error, "a thread of the relay can't be started");
            drop(Worker(self));
            let mut schedule = lock(&self.relay.schedule);
            lock(&self.relay.running).remove(&number);
            schedule.later(number, Instant::now());
        }
    }

    /// Tries a parcel.
    fn attempt(&self, number: u64) {
        let relay = &self.relay;
        let attempt = lock(&relay.running).get(&number).map(Arc::clone);
        let attempt = attempt.unwrap_or_default();
        if self.is_over() {
            attempt.stop();
        }
        let parcel = relay.spool.parcel(number);
        let was_ahead = parcel.as_ref().is_ok_and(Parcel::may_go_ahead);
        let result = match &parcel {
            Ok(parcel) => self.attempt_with(parcel, &attempt),
            Err(fault) => Err(Failed::Later(fault.clone())),
        };
        if let (Ok(parcel), Err(failed)) = (&parcel, &result) {
            self.note(parcel, failed);
        }
        let was_cancelled = attempt.is_cancelled() && result.is_err();
        if was_cancelled && let Err(fault) = self.cancelled(number, attempt.is_withdrawn()) {
            tracing::error!(number, %fault, "the spool can't be written");
        }
        let now = Instant::now();
        let mut schedule = lock(&relay.schedule);
        lock(&relay.running).remove(&number);
        // Changes before this are seen, and those that come later see that it isn't running.
        let after = relay.spool.parcel(number);
        let is_done = match (result, &after) {
            (Err(failed), Ok(after)) if was_ahead && !was_cancelled => {
                self.went_ahead(&mut schedule, after, &failed);
                false
            }
            (Ok(Went::Over), _) => {
                schedule.done(number, Some(true), now);
                true
            }
            (Ok(Went::On), Ok(after)) => {
                let was_wanted = |wants: fn(&Parcel) -> bool| parcel.as_ref().is_ok_and(wants);
                let has_news = after.retry_wanted
                    || after.cancel_wanted && !was_wanted(|parcel| parcel.cancel_wanted);
                schedule.look_later(number, &lane_of(after), now);
                if has_news {
                    schedule.add(number, &lane_of(after), now);
                }
                lock(&relay.tried).remove(&number);
                false
            }
            (Err(Failed::Unreached(_)), _) if !was_cancelled => {
                schedule.unreached(number, now);
                false
            }
            (Err(Failed::Later(_)) | Ok(Went::On), _) if !was_cancelled => {
                schedule.later(number, now);
                false
            }
            _ => {
                schedule.done(number, None, now);
                true
            }
        };
        drop(schedule);
        let is_handed = after.is_ok_and(|after| after.handed_to.is_some());
        if is_done || is_handed {
            self.end_turn(number);
        }
        if is_done {
            relay.is_over(number);
            self.look_again(number);
        }
        self.wake();
    }

    /// Decides about a parcel that could not be sent while it arrives, which is never its end.
    fn went_ahead(&self, schedule: &mut Schedule, after: &Parcel, failed: &Failed) {
        let (number, now) = (after.number, Instant::now());
        let is_being_sent = after.may_go_ahead() && self.relay.spool.is_being_sent(after);
        match failed {
            Failed::Unreached(_) if is_being_sent => return schedule.unreached(number, now),
            Failed::Later(_) if is_being_sent => return schedule.later(number, now),
            Failed::Later(_) => schedule.done(number, Some(true), now),
            _ => schedule.done(number, None, now),
        }
        // It was taken meanwhile, or is to be withdrawn; otherwise its sender begins it again.
        if after.is_due() {
            schedule.add(number, &lane_of(after), now);
        }
    }

    /// Enters that a parcel was cancelled, unless something is elsewhere that is withdrawn first.
    fn cancelled(&self, number: u64, is_withdrawn: bool) -> Result<(), Fault> {
        let parcel = self.relay.spool.parcel(number)?;
        match steps::ends_with_attempt(&parcel, is_withdrawn) {
            true => self.relay.cancelled(number),
            false => Ok(()),
        }
    }

    fn attempt_with(&self, parcel: &Parcel, attempt: &Arc<Attempt>) -> Result<Went, Failed> {
        let relay = &self.relay;
        let is_being_sent = relay.spool.is_being_sent(parcel);
        let step = steps::next(parcel, is_being_sent, relay.now_s());
        match step {
            Step::Nothing => return Err(Failed::Ended),
            Step::Recall => return recall(relay, parcel, attempt),
            Step::Follow => return follow(relay, parcel, attempt),
            Step::Withdraw => {
                if withdraw(relay, parcel, attempt)? {
                    return Ok(Went::Over);
                }
                attempt.end_withdrawn();
                return Err(Failed::Ended);
            }
            Step::Expire => {
                self.expire(parcel);
                return Err(Failed::Ended);
            }
            Step::HandOn | Step::Deliver => {}
        }
        if !parcel.is_due() {
            attempt.begin_ahead();
        }
        lock(&relay.tried)
            .entry(parcel.number)
            .or_default()
            .attempts += 1;
        Tally::count(&relay.tally.attempts);
        match step {
            Step::HandOn => hand_on(relay, parcel, attempt),
            _ => deliver(relay, parcel, attempt).map(|()| Went::Over),
        }
    }

    /// Takes a parcel that was put back before its last attempt was over.
    fn look_again(&self, number: u64) {
        let parcel = self.relay.spool.parcel(number);
        if let Ok(parcel) = parcel
            && parcel.is_due()
            && !self.is_over()
        {
            let lane = lane_of(&parcel);
            let mut schedule = lock(&self.relay.schedule);
            if !waits_for_turn(&parcel) || lock(&self.relay.orders).add(&parcel) {
                schedule.add(number, &lane, Instant::now());
            }
        }
    }

    /// Keeps and logs why an attempt failed.
    fn note(&self, parcel: &Parcel, failed: &Failed) {
        let id = parcel.order.id;
        if !matches!(failed, Failed::Ended) {
            Tally::count(&self.relay.tally.failed);
        }
        let fault = match failed {
            Failed::Ended => return,
            Failed::Never(fault) if parcel.may_go_ahead() => fault,
            Failed::Never(fault) => return self.give_up(parcel, fault.clone()),
            Failed::Unreached(fault) | Failed::Later(fault) => fault,
        };
        tracing::info!(%id, target = parcel.order.target, %fault, "a parcel has to wait");
        let mut tried = lock(&self.relay.tried);
        tried.entry(parcel.number).or_default().fault = Some(fault.clone());
        drop(tried);
        if parcel.handed_to.is_some() {
            self.relay.looked(parcel.number, None);
        }
    }
}

/// A thread that tries parcels, as it is counted.
struct Worker<'a>(&'a Shared);

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        let mut workers = self.0.workers();
        *workers = workers.saturating_sub(1);
        drop(workers);
        self.0.woken.notify_all();
    }
}
