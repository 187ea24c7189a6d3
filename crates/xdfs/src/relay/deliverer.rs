//! The threads of a relay that deliver parcels.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xdfs_proto::relay::ParcelState;
use xdfs_proto::{Code, Fault};
use xdfs_spool::Parcel;

use super::attempt::{Attempt, Failed, lock};
use super::delivery::{deliver, withdraw};
use super::parcels::{Relay, now_s};
use super::schedule::{Next, RUNNING_MAX};
use super::tally::Tally;
use super::target;

/// Parcels that are delivered at the same time; half of them to one target at most.
const THREADS: usize = 2 * RUNNING_MAX;
/// Longest sleep of a thread that has nothing to do.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Interval of looks for parcels whose life is over, and for ends that are to be forgotten.
const SWEEP: Duration = Duration::from_secs(60);
/// Interval of looks for new parcels, while it ends or not.
const TICK: Duration = Duration::from_millis(500);

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
    turn: Mutex<()>,
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
        let mut schedule = lock(&relay.schedule);
        relay.spool.each(|parcel| {
            if parcel.state == ParcelState::Held {
                schedule.add(parcel.number, &server_of(&parcel), now);
            }
        })?;
        drop(schedule);
        let mut deliverer = Self {
            shared: Arc::new(Shared {
                relay,
                is_over: AtomicBool::new(false),
                turn: Mutex::default(),
                woken: Condvar::new(),
            }),
            threads: Vec::new(),
        };
        let shared = Arc::clone(&deliverer.shared);
        deliverer.spawn(move || shared.watch(&arrived))?;
        for _ in 0..THREADS {
            let shared = Arc::clone(&deliverer.shared);
            deliverer.spawn(move || shared.work())?;
        }
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
    }
}

/// The server of a parcel's target; one that can't be read fails at the first attempt.
fn server_of(parcel: &Parcel) -> String {
    let place = target::parse(&parcel.order.target);
    place.map_or_else(|_| String::new(), |place| target::server_of(&place))
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        // A thread that is about to sleep has the turn.
        drop(lock(&self.turn));
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
            let server = server_of(&parcel);
            let now = Instant::now();
            let mut schedule = lock(&self.relay.schedule);
            if !lock(&self.relay.running).contains_key(&number) {
                schedule.add(number, &server, now);
            }
            schedule.hasten(&server, now);
            drop(schedule);
            self.wake();
        }
    }

    fn sweep(&self) {
        let now_s = now_s();
        let mut over = Vec::new();
        let swept = self.relay.spool.each(|parcel| {
            let is_open = matches!(parcel.state, ParcelState::Held | ParcelState::Arriving);
            if is_open && parcel.expires_s() <= now_s {
                over.push(parcel);
            }
        });
        let swept = swept.and_then(|()| self.relay.spool.forget(now_s));
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
    }

    /// Delivers what is due.
    fn work(&self) {
        while !self.is_over() {
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let mut schedule = lock(&self.relay.schedule);
            let next = schedule.next(now);
            let sleep = match next {
                Next::Parcel(number) => {
                    // It is seen running before anybody else can add it to the schedule.
                    let attempt = Arc::new(Attempt::default());
                    lock(&self.relay.running).insert(number, Arc::clone(&attempt));
                    drop((schedule, turn));
                    self.attempt(number, &attempt);
                    continue;
                }
                Next::At(at) => (at - now).min(SLEEP_MAX),
                Next::Nothing => SLEEP_MAX,
            };
            drop(schedule);
            if self.is_over() {
                return;
            }
            // Woken by another thread, or by nothing, it looks again.
            drop(self.woken.wait_timeout(turn, sleep));
        }
    }

    /// Tries to deliver a parcel.
    fn attempt(&self, number: u64, attempt: &Attempt) {
        let relay = &self.relay;
        if self.is_over() {
            attempt.stop();
        }
        let parcel = relay.spool.parcel(number);
        let result = match &parcel {
            Ok(parcel) if parcel.state == ParcelState::Held && parcel.cancel_wanted => {
                attempt.cancel();
                withdraw(relay, parcel, attempt);
                Err(Failed::Ended)
            }
            Ok(parcel) if parcel.state == ParcelState::Held => {
                if parcel.expires_s() <= now_s() {
                    self.expire(parcel);
                    Err(Failed::Ended)
                } else {
                    lock(&relay.tried).entry(number).or_default().attempts += 1;
                    Tally::count(&relay.tally.attempts);
                    deliver(relay, parcel, attempt)
                }
            }
            Ok(_) => Err(Failed::Ended),
            Err(fault) => Err(Failed::Later(fault.clone())),
        };
        if let (Ok(parcel), Err(failed)) = (&parcel, &result) {
            self.note(parcel, failed);
        }
        let was_cancelled = attempt.is_cancelled() && result.is_err();
        if was_cancelled && let Err(fault) = relay.cancelled(number) {
            tracing::error!(number, %fault, "the spool can't be written");
        }
        let now = Instant::now();
        let mut schedule = lock(&relay.schedule);
        lock(&relay.running).remove(&number);
        let is_done = match result {
            Ok(()) => {
                schedule.done(number, Some(true), now);
                true
            }
            Err(Failed::Later(_)) if !was_cancelled => {
                schedule.later(number, now);
                false
            }
            Err(Failed::Unreached(_)) if !was_cancelled => {
                schedule.unreached(number, now);
                false
            }
            Err(_) => {
                schedule.done(number, None, now);
                true
            }
        };
        drop(schedule);
        if is_done {
            lock(&relay.tried).remove(&number);
            self.look_again(number);
        }
        self.wake();
    }

    /// Takes a parcel that was put back before its last attempt was over.
    fn look_again(&self, number: u64) {
        let parcel = self.relay.spool.parcel(number);
        if let Ok(parcel) = parcel
            && parcel.state == ParcelState::Held
            && !self.is_over()
        {
            let server = server_of(&parcel);
            lock(&self.relay.schedule).add(number, &server, Instant::now());
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
            Failed::Never(fault) => return self.give_up(parcel, fault.clone()),
            Failed::Unreached(fault) | Failed::Later(fault) => fault,
        };
        tracing::info!(%id, target = parcel.order.target, %fault, "a parcel has to wait");
        let mut tried = lock(&self.relay.tried);
        tried.entry(parcel.number).or_default().fault = Some(fault.clone());
    }
}
