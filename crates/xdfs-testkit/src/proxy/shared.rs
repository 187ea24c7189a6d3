//! What the threads of a proxy share.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use super::connection::Connection;
use super::plan::Plan;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<ProxyState>,
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
    /// Flights of clients so far, and whether the last bytes were theirs.
    pub(super) flights: Mutex<(u64, bool)>,
    pub(super) stopped: AtomicBool,
}

#[derive(Debug)]
pub(super) struct ProxyState {
    pub(super) target: SocketAddr,
    pub(super) plan: Plan,
    /// Plans of the next connections; each is used once, and before `plan`.
    pub(super) next: VecDeque<Plan>,
    pub(super) blocked: bool,
    pub(super) accepted: u64,
    pub(super) live: BTreeMap<u64, Arc<Connection>>,
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl Shared {
    /// Bytes of a client (`up`) or a server arrived. Those of a client begin a flight if a server's
    /// came before.
    pub(super) fn note_flight(&self, up: bool) {
        let mut flights = self.flights.lock().unwrap_or_else(|e| e.into_inner());
        let begins = up && !flights.1;
        *flights = (flights.0 + u64::from(begins), up);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}
