//! One copy with another server, and the thread that makes it.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_access::{Access, ThirdPartyUser};
use xdfs_engine::command::TransferKind;
use xdfs_engine::{DownloadSpec, Outcome, TransferParameters, UploadSpec};
use xdfs_proto::third_party::{CopyOrder, CopyState, CopyStatus};
use xdfs_proto::tunnel::Host;
use xdfs_proto::{Code, DigestValue, Fault, Side};
use xdfs_security::identity::{Fingerprint, ServerIdentity};
use xdfs_security::trust::{NewHosts, TrustPolicy};
use xdfs_store::Store;
use xdfs_store::rate::SharedRate;

use crate::address::Address;
use crate::client::{Client, ClientOptions};
use crate::remote::{Invitation, RemotePlace};
use crate::security::{ClientSecurity, Credential, Level};
use crate::transfer::TransferOptions;

/// Interval of looks at whether the copy is still wanted.
const TICK: Duration = Duration::from_millis(100);
const CONNECT: &str = "connect to the other server";

/// The state of a copy.
#[derive(Debug)]
pub(super) struct Copy {
    began: Instant,
    is_cancelled: AtomicBool,
    state: Mutex<(CopyStatus, Option<Instant>)>,
}

/// The work of the thread.
pub(super) struct Run {
    pub(super) copy: Arc<Copy>,
    pub(super) order: CopyOrder,
    pub(super) store: Arc<dyn Store>,
    pub(super) user: ThirdPartyUser,
    pub(super) access: Arc<Access>,
    pub(super) identity: Arc<ServerIdentity>,
    pub(super) rate: Option<Arc<SharedRate>>,
}

impl Copy {
    pub(super) fn new(began: Instant) -> Self {
        let status = CopyStatus {
            state: CopyState::Connecting,
            bytes: 0,
            bytes_total: None,
            resumed_bytes: 0,
            channels: 0,
            elapsed_ms: 0,
            mtime_ns: None,
            digest: DigestValue::None,
            target: Vec::new(),
            fault: None,
            is_fault_there: false,
        };
        Self {
            began,
            is_cancelled: AtomicBool::new(false),
            state: Mutex::new((status, None)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (CopyStatus, Option<Instant>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it end soon.
    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), Fault> {
        match self.is_cancelled.load(Ordering::Relaxed) {
            true => Err(Fault::new(Code::Cancelled, "copy", "it was cancelled")),
            false => Ok(()),
        }
    }

    pub(super) fn status(&self) -> CopyStatus {
        let (mut status, ended) = self.lock().clone();
        let elapsed = ended.unwrap_or_else(Instant::now) - self.began;
        status.elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        status
    }

    /// The time since its end; `None` while it runs.
    pub(super) fn ended_for(&self) -> Option<Duration> {
        self.lock().1.map(|ended| ended.elapsed())
    }

    fn moving(&self, change: impl FnOnce(&mut CopyStatus)) {
        let mut state = self.lock();
        state.0.state = CopyState::Moving;
        change(&mut state.0);
    }

    fn done(&self, outcome: Outcome) {
        let mut state = self.lock();
        let status = &mut state.0;
        status.state = CopyState::Done;
        status.bytes = outcome.bytes;
        status.bytes_total = Some(outcome.bytes);
        status.resumed_bytes = outcome.resumed_bytes;
        status.channels = u16::try_from(outcome.channels).unwrap_or(u16::MAX);
        status.mtime_ns = outcome.mtime_ns;
        status.digest = outcome.digest;
        status.target = outcome.target;
        state.1 = Some(Instant::now());
    }

    pub(super) fn fail(&self, fault: Fault) {
        let mut state = self.lock();
        state.0.state = match state.0.state {
            // No other way is to be tried for what isn't wanted.
            CopyState::Connecting if fault.code != Code::Cancelled => CopyState::Unreachable,
            _ => CopyState::Failed,
        };
        state.0.is_fault_there = fault.side == Side::Remote;
        state.0.fault = Some(fault);
        state.1 = Some(Instant::now());
    }
}

impl Run {
    /// Starts the thread.
    pub(super) fn spawn(self) -> Result<(), Fault> {
        let thread = thread::Builder::new().name("xdfs-copy".into());
        let started = thread.spawn(move || match self.run() {
            Ok(outcome) => self.copy.done(outcome),
            Err(fault) => self.copy.fail(fault),
        });
        started
            .map(drop)
            .map_err(|error| Fault::from_io("start the thread of a copy", "", &error))
    }

    fn run(&self) -> Result<Outcome, Fault> {
        let mut last = None;
        for address in self.addresses()? {
            self.copy.check()?;
            let fault = match self.by(address) {
                Ok(outcome) => return Ok(outcome),
                Err(fault) => fault,
            };
            if self.copy.status().state != CopyState::Connecting {
                return Err(fault);
            }
            last = Some(fault);
        }
        Err(last.unwrap_or_else(|| {
            let cause = "the order has no address";
            Fault::new(Code::ConnectionRefused, CONNECT, cause)
        }))
    }

    /// The addresses of the other server that may be connected to.
    fn addresses(&self) -> Result<Vec<SocketAddr>, Fault> {
        let mut found: Vec<SocketAddr> = Vec::new();
        let mut refused = None;
        for text in &self.order.addresses {
            self.copy.check()?;
            let Ok(Address::Host { host, port }) = text.parse::<Address>() else {
                continue;
            };
            // Whatever the system would take for an address is one, in this form alone.
            let Some(named) = Host::parse(&host) else {
                continue;
            };
            let resolved: Vec<IpAddr> = match &named {
                Host::Address(address) => vec![*address],
                Host::Name(name) => match (name.as_str(), port).to_socket_addrs() {
                    Ok(addresses) => addresses.map(|address| address.ip()).collect(),
                    Err(error) => {
                        let cause = format!("the name {host} isn't known here: {error}");
                        refused = Some(Fault::new(Code::ConnectionRefused, CONNECT, cause));
                        continue;
                    }
                },
            };
            for address in resolved {
                let (user, sends) = (&self.user, self.order.sends);
                let socket = SocketAddr::new(address, port);
                if !self.access.may_copy(user, sends, (&named, port), address) {
                    let cause = format!("its settings don't allow connections to {socket}");
                    refused = Some(
                        Fault::new(Code::PermissionDenied, CONNECT, cause)
                            .hint("its administrator allows them with --connect-to"),
                    );
                } else if !found.contains(&socket) {
                    found.push(socket);
                }
            }
        }
        match (found.is_empty(), refused) {
            (true, Some(fault)) => Err(fault),
            _ => Ok(found),
        }
    }

    fn by(&self, address: SocketAddr) -> Result<Outcome, Fault> {
        let order = &self.order;
        let place = RemotePlace {
            user: None,
            address: Address::Host {
                host: address.ip().to_string(),
                port: address.port(),
            },
            stack: None,
            path: Vec::new(),
            invitation: Invitation::default(),
            profile: None,
        };
        let options = ClientOptions {
            channels: (order.channels > 0).then(|| order.channels.into()),
            security: Some(ClientSecurity {
                trust: TrustPolicy {
                    known_hosts: PathBuf::new(),
                    pins: vec![Fingerprint(order.key)],
                    roots: Vec::new(),
                    system_roots: false,
                    new_hosts: NewHosts::Refuse,
                },
                credentials: vec![Credential::Capability {
                    text: order.capability.clone(),
                    holder: Arc::clone(&self.identity),
                }],
                level: Level::Private,
            }),
            rate: self.rate.clone(),
            ..ClientOptions::default()
        };
        let client = Client::connect(&place, options)?;
        let rate = order.rate_bytes_per_s_max;
        let options = TransferOptions {
            parameters: TransferParameters {
                digest: Some(order.digest),
                overwrite: order.overwrite,
                resume: order.resume,
                rate_bytes_per_s_max: (rate > 0).then_some(rate),
                dry_run: false,
            },
            ..TransferOptions::default()
        };
        let kind = match order.sends {
            true => TransferKind::Upload(UploadSpec {
                source: self.store.open_source(&order.here)?,
                source_path: order.here.clone(),
                target: order.there.clone(),
                name: order.name.clone(),
                pack: false,
                relaxed: false,
                last: None,
            }),
            false => TransferKind::Download(DownloadSpec {
                source: order.there.clone(),
                store: Arc::clone(&self.store),
                target: order.here.clone(),
                name: order.name.clone(),
                pack_request: None,
            }),
        };
        let mut transfer = client.start(&options, kind)?;
        while !transfer.is_finished() {
            if self.copy.check().is_err() {
                transfer.cancel();
            }
            let progress = transfer.progress(TICK);
            if client.user().is_some() {
                self.copy.moving(|status| {
                    if let Some(progress) = progress {
                        status.bytes = progress.bytes;
                        status.bytes_total = progress.bytes_total;
                        status.resumed_bytes = progress.resumed_bytes;
                        status.channels = u16::try_from(progress.channels).unwrap_or(u16::MAX);
                    }
                });
            }
        }
        if client.user().is_some() {
            self.copy.moving(|_| {});
        }
        transfer.outcome()
    }
}
