//! All tunnels of an acceptor, what each rests on, and the bundles that channels can join.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs_proto::frame::TunnelRequest;
use xdfs_proto::tunnel::{Action, Target};
use xdfs_proto::{Code, Fault, Retry};
use xdfs_xio::Listener;

use super::OPEN_TUNNEL;
use super::bundle::Arrivals;
use super::request::HandedOver;
use crate::security::{PeerGuard, Standing, TunnelRights};

/// Bundles at once: each may hold two windows of 8 MiB.
const BUNDLES_MAX: usize = 256;

/// All tunnels.
#[derive(Debug)]
pub(super) struct Table {
    tunnels_max: usize,
    live: Mutex<HashMap<u64, Live>>,
    /// Where channels join bundles, by the numbers of these, with their targets.
    bundles: Mutex<HashMap<u64, (Arrivals, String)>>,
    next_key: AtomicU64,
}

/// What a tunnel rests on, to be asked again after a change of the settings.
#[derive(Clone, Debug)]
struct Live {
    rights: Arc<dyn TunnelRights>,
    standing: Option<Arc<dyn Standing>>,
    action: Action,
    target: Target,
    /// Where it leads, once it does.
    address: Option<IpAddr>,
}

impl Live {
    fn is_allowed(&self) -> bool {
        let standing = self.standing.as_ref();
        standing.is_none_or(|standing| standing.is_valid())
            && match self.address {
                Some(address) => self.rights.allows(self.action, &self.target, address),
                None => self.rights.may_allow(self.action, &self.target),
            }
    }
}

impl Table {
    /// Of at most so many.
    pub(super) fn new(tunnels_max: usize) -> Arc<Self> {
        Arc::new(Self {
            tunnels_max,
            live: Mutex::default(),
            bundles: Mutex::default(),
            next_key: AtomicU64::new(0),
        })
    }

    fn lock_live(&self) -> MutexGuard<'_, HashMap<u64, Live>> {
        // A panic elsewhere leaves the table consistent: each change is one insert or remove.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_bundles(&self) -> MutexGuard<'_, HashMap<u64, (Arrivals, String)>> {
        // As above.
        self.bundles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.lock_live().len()
    }

    /// Gives a tunnel to `target` its place.
    ///
    /// # Errors
    /// The peer, or all of them, have too many.
    pub(super) fn add(
        self: &Arc<Self>,
        channel: &HandedOver,
        target: &Target,
    ) -> Result<Place, Fault> {
        let guard = channel.rights.connection()?;
        let mut live = self.lock_live();
        let count = live.len();
        if count >= self.tunnels_max {
            let cause = format!("the server has {count} tunnels already");
            let fault = Fault::new(Code::LimitExceeded, OPEN_TUNNEL, cause);
            return Err(fault.retry(Retry::AfterMs(1000)));
        }
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let tunnel = Live {
            rights: Arc::clone(&channel.rights),
            standing: channel.standing.clone(),
            action: channel.action(),
            target: target.clone(),
            address: None,
        };
        live.insert(key, tunnel);
        Ok(Place {
            table: Arc::clone(self),
            key,
            _guard: guard,
        })
    }

    /// The keys of tunnels that the settings don't allow any more.
    pub(super) fn forbidden(&self) -> Vec<u64> {
        // Without the lock, as the questions may read files.
        let live: Vec<(u64, Live)> = {
            let table = self.lock_live();
            table
                .iter()
                .map(|(key, live)| (*key, live.clone()))
                .collect()
        };
        let forbidden = live.into_iter().filter(|(_, live)| !live.is_allowed());
        forbidden.map(|(key, _)| key).collect()
    }

    /// Where the channel of this request joins its bundle.
    pub(super) fn bundle(&self, request: &TunnelRequest) -> Option<Arrivals> {
        let bundles = self.lock_bundles();
        let (arrivals, target) = bundles.get(&request.bundle)?;
        (*target == request.target).then(|| arrivals.clone())
    }
}

/// The place of a tunnel among all of them, given back when this is dropped.
pub(super) struct Place {
    table: Arc<Table>,
    key: u64,
    _guard: PeerGuard,
}

impl Place {
    /// Identifies the tunnel.
    pub(super) fn key(&self) -> u64 {
        self.key
    }

    /// The tunnel leads to this address, or listens there. Whether the settings, which may have
    /// changed since they were asked, still allow it.
    pub(super) fn lead_to(&self, address: Option<IpAddr>) -> bool {
        let live = self.table.lock_live().get_mut(&self.key).map(|live| {
            live.address = address;
            live.clone()
        });
        live.is_some_and(|live| live.is_allowed())
    }

    /// Has channels join the bundle of `request`.
    ///
    /// # Errors
    /// There are too many, or one of this number.
    pub(super) fn begin_bundle(&self, request: &TunnelRequest) -> Result<Begun, Fault> {
        let (number, target) = (request.bundle, &request.target);
        let arrivals = Arrivals::default();
        let listener = arrivals.listen();
        let listener = listener.map_err(|e| Fault::from_io(OPEN_TUNNEL, target, &e))?;
        let mut bundles = self.table.lock_bundles();
        let count = bundles.len();
        if count >= BUNDLES_MAX {
            let cause = format!("the server has {count} tunnels of several channels already");
            let fault = Fault::new(Code::LimitExceeded, OPEN_TUNNEL, cause).path(target);
            return Err(fault.retry(Retry::AfterMs(1000)));
        }
        if bundles.contains_key(&number) {
            let cause = "another bundle has this number";
            return Err(Fault::new(Code::InvalidArgument, OPEN_TUNNEL, cause));
        }
        bundles.insert(number, (arrivals.clone(), target.clone()));
        drop(bundles);
        let table = Arc::clone(&self.table);
        Ok(Begun {
            arrivals,
            listener,
            name: BundleName { table, number },
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock_live().remove(&self.key);
    }
}

/// A bundle that channels can join.
pub(super) struct Begun {
    pub(super) arrivals: Arrivals,
    /// Its first stream is the bundle.
    pub(super) listener: Box<dyn Listener>,
    pub(super) name: BundleName,
}

/// The name of a bundle, which channels can join while this lives.
pub(super) struct BundleName {
    table: Arc<Table>,
    number: u64,
}

impl Drop for BundleName {
    fn drop(&mut self) {
        self.table.lock_bundles().remove(&self.number);
    }
}
