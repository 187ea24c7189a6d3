//! The spool of a relay, and what this process does with its parcels.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use xdfs_access::CurrentAccess;
use xdfs_proto::relay::{ParcelState, ParcelStatus};
use xdfs_proto::third_party::CopyId;
use xdfs_proto::{Code, Fault, Side};
use xdfs_spool::{Parcel, Spool, SpoolLimits};

use super::attempt::{Attempt, Tried, lock};
use super::schedule::Schedule;

/// Settings of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelaySettings {
    /// The directory of the spool; made if it isn't there.
    pub spool: PathBuf,
    /// Most bytes of parcels that aren't delivered; `None` for what the disk has.
    pub bytes_max: Option<u64>,
    /// Most bytes of those of one user; `None` for all of them.
    pub bytes_per_user_max: Option<u64>,
}

/// The present time in seconds since 1970.
pub(super) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// A relay.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(super) spool: Spool,
    pub(super) current: Arc<dyn CurrentAccess>,
    pub(super) schedule: Mutex<Schedule>,
    pub(super) running: Mutex<HashMap<u64, Arc<Attempt>>>,
    pub(super) tried: Mutex<HashMap<u64, Tried>>,
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
        Ok(Self {
            spool: Spool::open(&settings.spool, limits)?,
            current,
            schedule: Mutex::default(),
            running: Mutex::default(),
            tried: Mutex::default(),
        })
    }

    /// The state of a user's parcel.
    ///
    /// # Errors
    /// [`Code::NotFound`]: the user has none with this identifier.
    pub(super) fn status(&self, user: &str, id: CopyId) -> Result<ParcelStatus, Fault> {
        let parcel = self.spool.find(user, id)?;
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
        Ok(ParcelStatus {
            state: match (parcel.state, &attempt) {
                (ParcelState::Held, Some(_)) => ParcelState::Delivering,
                (state, _) => state,
            },
            bytes,
            arrived: self.spool.arrived(&parcel)?,
            delivered: delivered.min(bytes),
            attempts: tried.attempts.max(parcel.attempts),
            age_s: now_s().saturating_sub(parcel.opened_s),
            next_ms: next.map(|at| {
                let left = at.saturating_duration_since(Instant::now());
                u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
            }),
            digest: parcel.digest,
            is_fault_there: fault.as_ref().is_some_and(|own| own.side == Side::Remote),
            fault,
            target: parcel.order.target,
        })
    }

    /// Ends a user's parcel, unless it was delivered.
    ///
    /// # Errors
    /// [`Code::NotFound`], or the spool can't be written.
    pub(super) fn cancel(&self, user: &str, id: CopyId) -> Result<(), Fault> {
        let parcel = self.spool.find(user, id)?;
        let altered = self.spool.alter(parcel.number, now_s(), |parcel| {
            match parcel.state {
                // An attempt may be giving the file its name: the next one, or that, decides.
                ParcelState::Held => parcel.cancel_wanted = true,
                ParcelState::Dead if parcel.placed.is_some() => {
                    parcel.state = ParcelState::Held;
                    parcel.cancel_wanted = true;
                }
                ParcelState::Arriving | ParcelState::Dead => {
                    parcel.state = ParcelState::Cancelled;
                    parcel.fault = None;
                }
                _ => {}
            }
            Ok(())
        })?;
        if altered.cancel_wanted {
            if let Some(attempt) = lock(&self.running).get(&altered.number) {
                attempt.cancel();
            }
            self.spool.notify(altered.number);
        }
        Ok(())
    }

    /// Enters that a parcel was cancelled.
    pub(super) fn cancelled(&self, number: u64) -> Result<(), Fault> {
        let cancelled = self.spool.alter(number, now_s(), |parcel| {
            if !matches!(
                parcel.state,
                ParcelState::Delivered | ParcelState::Cancelled
            ) {
                parcel.state = ParcelState::Cancelled;
                parcel.fault = None;
            }
            Ok(())
        });
        cancelled.map(drop)
    }

    /// Has a user's parcel tried at once: one that waits, or that was given up.
    ///
    /// # Errors
    /// [`Code::NotFound`]; [`Code::InvalidArgument`]: it is in another state.
    pub(super) fn retry(&self, user: &str, id: CopyId) -> Result<(), Fault> {
        let parcel = self.spool.find(user, id)?;
        let opened_s = now_s();
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
                ParcelState::Held => {}
                ParcelState::Dead => {
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
        let dead = self.spool.alter(parcel.number, now_s(), move |parcel| {
            if matches!(parcel.state, ParcelState::Held | ParcelState::Arriving) {
                // Only a file that has arrived can be put back.
                parcel.state = match parcel.state {
                    ParcelState::Arriving => ParcelState::Cancelled,
                    _ => ParcelState::Dead,
                };
                parcel.attempts = parcel.attempts.max(attempts);
                parcel.fault = Some(fault);
            }
            Ok(())
        });
        dead.map(drop)
    }
}
