//! The acceptor's side: one thread connects and serves all tunnels of a server.
//!
//! It starts with the first tunnel. A request comes with its channel from the acceptor, which has
//! authenticated the peer. Here its target is looked up, each address is checked by itself, and the
//! first that answers is paired with the channel. A request to listen keeps its channel for
//! announcements; the peer takes each announced connection by a channel of its own, in time.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use xdfs_proto::frame::{Exception, Frame, Scope, TunnelAccept, TunnelPurpose, TunnelRequest};
use xdfs_proto::tunnel::{Action, Target};
use xdfs_proto::{Code, Fault, Retry};
use xdfs_store::rate::SharedRate;
use xdfs_sys::poll::{Notifier, Token};
use xdfs_xio::Stream;

use super::bundle::Arrivals;
use super::dial::TunnelStream;
use super::work::{Loop, Stage};
use super::{OPEN_TUNNEL, TunnelEvent, TunnelLimits, TunnelOutcome, TunnelRights, forbidden};
use crate::environment::{self, Environment};
use crate::security::{PeerGuard, Standing};

/// A channel whose peer asks for a tunnel.
pub(crate) struct HandedOver {
    pub(crate) stream: Box<dyn Stream>,
    /// Bytes read behind TUNNEL.
    pub(crate) input: Vec<u8>,
    /// Bytes of the opening exchange that aren't sent yet.
    pub(crate) output: Vec<u8>,
    pub(crate) rights: Arc<dyn TunnelRights>,
    pub(crate) standing: Option<Arc<dyn Standing>>,
    pub(crate) rate: Option<Arc<SharedRate>>,
    pub(crate) request: TunnelRequest,
}

impl HandedOver {
    /// Sends the reason to the peer and closes the channel.
    pub(super) fn refuse(self, fault: Fault) {
        refuse(self.stream, self.output, fault);
    }

    fn close(self) {
        close(self.stream, self.output);
    }

    pub(super) fn forbidden(&self) -> Fault {
        forbidden(action_of(self.request.purpose), &self.request.target)
    }

    /// Whether the settings, which may have changed since they were asked, still allow it.
    pub(super) fn is_allowed(
        &self,
        action: Action,
        target: &Target,
        address: Option<IpAddr>,
    ) -> bool {
        let standing = self.standing.as_ref();
        standing.is_none_or(|standing| standing.is_valid())
            && match address {
                Some(address) => self.rights.allows(action, target, address),
                None => self.rights.may_allow(action, target),
            }
    }

    pub(super) fn record(&self, outcome: TunnelOutcome) {
        self.rights.record(&TunnelEvent {
            action: action_of(self.request.purpose),
            target: &self.request.target,
            outcome,
        });
    }
}

/// All tunnels of an acceptor. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Tunnels(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    environment: Arc<dyn Environment>,
    limits: TunnelLimits,
    service: Mutex<Option<Service>>,
    live: Mutex<HashMap<u64, Live>>,
    /// Where channels join bundles, by the numbers of these, with their targets.
    bundles: Mutex<HashMap<u64, (Arrivals, String)>>,
    next_key: AtomicU64,
}

/// The running thread.
#[derive(Debug)]
struct Service {
    jobs: mpsc::Sender<Job>,
    notifier: Notifier,
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
        let is_valid = self
            .standing
            .as_ref()
            .is_none_or(|standing| standing.is_valid());
        is_valid
            && match self.address {
                Some(address) => self.rights.allows(self.action, &self.target, address),
                None => self.rights.may_allow(self.action, &self.target),
            }
    }
}

/// The place of a tunnel among all of them, given back when this is dropped.
pub(super) struct Place {
    pub(super) shared: Arc<Shared>,
    pub(super) key: u64,
    _guard: PeerGuard,
}

impl Place {
    /// The tunnel leads to this address, or listens there.
    pub(super) fn lead_to(&self, address: Option<IpAddr>) {
        if let Some(live) = self.shared.lock_live().get_mut(&self.key) {
            live.address = address;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.lock_live().remove(&self.key);
    }
}

pub(super) enum Job {
    Open(Box<Opening>),
    End(Vec<u64>),
    Drain(Duration),
}

/// A tunnel that isn't connected yet.
pub(super) struct Opening {
    pub(super) channel: HandedOver,
    pub(super) target: Target,
    pub(super) place: Place,
    pub(super) since: Instant,
    pub(super) stage: Stage,
}

impl Shared {
    fn lock_live(&self) -> MutexGuard<'_, HashMap<u64, Live>> {
        // A panic elsewhere leaves the table consistent: each change is one insert or remove.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock_bundles(&self) -> MutexGuard<'_, HashMap<u64, (Arrivals, String)>> {
        // As above.
        self.bundles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next tunnel start another thread: this one has ended.
    fn forget_service(&self) {
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        *service = None;
    }

    fn send(&self, job: Job) -> Result<(), Job> {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(service) = &*service else {
            return Err(job);
        };
        service.jobs.send(job).map_err(|mpsc::SendError(job)| job)?;
        environment::wake(&service.notifier);
        Ok(())
    }
}

impl Tunnels {
    /// None yet.
    pub(crate) fn new(environment: Arc<dyn Environment>, limits: TunnelLimits) -> Self {
        Self(Arc::new(Shared {
            environment,
            limits,
            service: Mutex::default(),
            live: Mutex::default(),
            bundles: Mutex::default(),
            next_key: AtomicU64::new(0),
        }))
    }

    /// Whether there are no tunnels.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock_live().is_empty()
    }

    /// Takes a channel over, or refuses it. The answer to the peer is sent in any case.
    pub(crate) fn take(&self, mut channel: HandedOver) {
        let opening = match self.admit(&channel) {
            Ok(None) => {
                accept(&mut channel.output, String::new());
                return channel.close();
            }
            Ok(Some((target, place))) => Opening {
                channel,
                target,
                place,
                since: self.0.environment.now(),
                stage: Stage::Resolving,
            },
            Err(fault) => {
                channel.record(TunnelOutcome::Refused(fault.code));
                return channel.refuse(fault);
            }
        };
        let started = self.start();
        let job = Job::Open(Box::new(opening));
        let sent = match started {
            Ok(()) => self.0.send(job),
            Err(_) => Err(job),
        };
        if let Err(Job::Open(opening)) = sent {
            self.0.forget_service();
            let cause = "the server can't serve tunnels at this moment";
            let fault = Fault::new(Code::LimitExceeded, OPEN_TUNNEL, cause);
            opening.refuse(fault.retry(Retry::AfterMs(1000)));
        }
    }

    /// Adds a channel to the bundle that it names, or refuses it. Its proof is that it knows the
    /// secret of the bundle, which `ptcp` asks for.
    pub(crate) fn join(
        &self,
        stream: Box<dyn Stream>,
        input: Vec<u8>,
        mut output: Vec<u8>,
        request: &TunnelRequest,
    ) {
        let found = self.0.lock_bundles().get(&request.bundle).cloned();
        let arrivals = found.filter(|(_, target)| *target == request.target);
        let fault = match arrivals {
            Some((arrivals, _)) => {
                accept(&mut output, String::new());
                let channel = TunnelStream::accepted(stream, input, output);
                if !arrivals.push(channel) {
                    tracing::debug!("a bundle has too many channels that wait");
                }
                return;
            }
            None => Fault::new(Code::NotFound, OPEN_TUNNEL, "there is no such bundle"),
        };
        refuse(stream, output, fault);
    }

    /// The target and the place of a tunnel; `None` if it was only asked for.
    fn admit(&self, channel: &HandedOver) -> Result<Option<(Target, Place)>, Fault> {
        let HandedOver {
            request, rights, ..
        } = channel;
        let target: Target = request.target.parse()?;
        let action = action_of(request.purpose);
        if matches!(&target, Target::Host { port: 0, .. }) && action == Action::Connect {
            let cause = "nothing listens on port 0";
            return Err(Fault::new(Code::InvalidArgument, OPEN_TUNNEL, cause).path(&request.target));
        }
        if !rights.may_allow(action, &target) {
            return Err(channel.forbidden());
        }
        if request.purpose == TunnelPurpose::Check {
            return Ok(None);
        }
        let guard = rights.connection()?;
        let live = Live {
            rights: Arc::clone(rights),
            standing: channel.standing.clone(),
            action,
            target: target.clone(),
            address: None,
        };
        let key = self.0.next_key.fetch_add(1, Ordering::Relaxed);
        let mut table = self.0.lock_live();
        let count = table.len();
        if count >= self.0.limits.connections_max {
            let cause = format!("the server has {count} tunnels already");
            let fault = Fault::new(Code::LimitExceeded, OPEN_TUNNEL, cause);
            return Err(fault.retry(Retry::AfterMs(1000)));
        }
        table.insert(key, live);
        drop(table);
        let place = Place {
            shared: Arc::clone(&self.0),
            key,
            _guard: guard,
        };
        Ok(Some((target, place)))
    }

    /// Starts the thread unless it runs.
    fn start(&self) -> io::Result<()> {
        let shared = &self.0;
        let mut service = shared
            .service
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if service.is_some() {
            return Ok(());
        }
        let (jobs, queue) = mpsc::channel();
        let environment = &shared.environment;
        let work = Loop::new(environment, queue, shared.limits.idle_timeout)?;
        let notifier = work.poller.notifier();
        environment.start("xdfs-tunnels", Box::new(move || Box::new(work)))?;
        *service = Some(Service { jobs, notifier });
        Ok(())
    }

    /// Ends the tunnels that the settings don't allow any more, and returns their number.
    pub(crate) fn review(&self) -> usize {
        // Without the lock, as the questions may read files.
        let live: Vec<(u64, Live)> = {
            let table = self.0.lock_live();
            table
                .iter()
                .map(|(key, live)| (*key, live.clone()))
                .collect()
        };
        let ended = live.into_iter().filter(|(_, live)| !live.is_allowed());
        let ended: Vec<u64> = ended.map(|(key, _)| key).collect();
        let count = ended.len();
        if count > 0 {
            // Without the thread there are none.
            let _ = self.0.send(Job::End(ended));
        }
        count
    }

    /// Ends all tunnels after `grace`, and takes no more.
    pub(crate) fn drain(&self, grace: Duration) {
        // Without the thread there are none.
        let _ = self.0.send(Job::Drain(grace));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The thread ends when nobody can send it jobs.
        let service = self
            .service
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(Service { jobs, notifier }) = service.take() {
            drop(jobs);
            environment::wake(&notifier);
        }
    }
}

impl Opening {
    pub(super) fn refuse(self, fault: Fault) {
        self.channel.record(TunnelOutcome::Refused(fault.code));
        // The place is free before the peer can know.
        drop(self.place);
        self.channel.refuse(fault);
    }
}

pub(super) fn action_of(purpose: TunnelPurpose) -> Action {
    match purpose {
        TunnelPurpose::Check | TunnelPurpose::Connect | TunnelPurpose::Join => Action::Connect,
        TunnelPurpose::Listen | TunnelPurpose::Take => Action::Listen,
    }
}

pub(super) fn accept(output: &mut Vec<u8>, address: String) {
    Frame::TunnelOk(TunnelAccept { address }).encode(output);
}

/// Sends the reason to the peer and closes the channel.
fn refuse(stream: Box<dyn Stream>, mut output: Vec<u8>, fault: Fault) {
    tracing::debug!(peer = %stream.peer(), %fault, "a tunnel is refused");
    Frame::Exception(Exception {
        scope: Scope::Channel,
        fault,
    })
    .encode(&mut output);
    close(stream, output);
}

fn close(mut stream: Box<dyn Stream>, mut output: Vec<u8>) {
    // A fresh connection takes these few bytes at once; otherwise the peer sees its end only.
    let _ = write(&mut *stream, &mut output);
    let _ = stream.close();
}

/// The token of a stream or listener of the tunnel `key`.
pub(super) fn token(key: u64, kind: usize) -> Token {
    Token(usize::try_from(key).unwrap_or(usize::MAX / 8) * 4 + kind)
}

/// The code of an error that ended a tunnel.
pub(super) fn code_of(error: &io::Error) -> Code {
    Fault::from_io(OPEN_TUNNEL, "", error).code
}

/// Writes as much as the stream takes.
pub(super) fn write(stream: &mut dyn Stream, output: &mut Vec<u8>) -> io::Result<()> {
    while !output.is_empty() {
        let n = stream.write_vectored(&[IoSlice::new(output)])?;
        output.drain(..n);
    }
    stream.flush()
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
