//! The acceptor's side: one thread connects and serves all tunnels of a server.
//!
//! It starts with the first tunnel. A request comes with its channel from the acceptor, which has
//! authenticated the peer. Here its target is looked up, each address is checked by itself, and the
//! first that answers is paired with the channel. A request to listen keeps its channel for
//! announcements; the peer takes each announced connection by a channel of its own, in time.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use xdfs_proto::frame::{TunnelPurpose, TunnelRequest};
use xdfs_proto::tunnel::{Action, Target};
use xdfs_proto::{Code, Fault, Retry};
use xdfs_sys::poll::Notifier;
use xdfs_xio::Stream;

use super::dial::TunnelStream;
use super::opening::{Opening, Stage};
use super::request::{HandedOver, accept, refuse};
use super::table::{Place, Table};
use super::work::{Job, Loop};
use super::{OPEN_TUNNEL, TunnelLimits};
use crate::environment::{self, Environment};

/// All tunnels of an acceptor. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Tunnels(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    environment: Arc<dyn Environment>,
    idle_timeout: Duration,
    table: Arc<Table>,
    service: Mutex<Option<Service>>,
}

/// The running thread.
#[derive(Debug)]
struct Service {
    jobs: mpsc::Sender<Job>,
    notifier: Notifier,
}

impl Shared {
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
            idle_timeout: limits.idle_timeout,
            table: Table::new(limits.connections_max),
            service: Mutex::default(),
        }))
    }

    /// Whether there are no tunnels.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of tunnels.
    pub(crate) fn len(&self) -> usize {
        self.0.table.len()
    }

    /// Takes a channel over, or refuses it. The answer to the peer is sent in any case.
    pub(crate) fn take(&self, channel: HandedOver) {
        let opening = match self.admit(&channel) {
            Ok(None) => return channel.affirm(),
            Ok(Some((target, place))) => Opening {
                channel,
                target,
                place,
                since: self.0.environment.now(),
                stage: Stage::Resolving,
            },
            Err(fault) => return channel.refuse(fault),
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
        let Some(arrivals) = self.0.table.bundle(request) else {
            let fault = Fault::new(Code::NotFound, OPEN_TUNNEL, "there is no such bundle");
            return refuse(stream, output, fault);
        };
        accept(&mut output, String::new());
        if !arrivals.push(TunnelStream::accepted(stream, input, output)) {
            tracing::debug!("a bundle has too many channels that wait");
        }
    }

    /// The target and the place of a tunnel; `None` if it was only asked for.
    fn admit(&self, channel: &HandedOver) -> Result<Option<(Target, Place)>, Fault> {
        let request = &channel.request;
        let target: Target = request.target.parse()?;
        let action = channel.action();
        if matches!(&target, Target::Host { port: 0, .. }) && action == Action::Connect {
            let cause = "nothing listens on port 0";
            return Err(Fault::new(Code::InvalidArgument, OPEN_TUNNEL, cause).path(&request.target));
        }
        if !channel.rights.may_allow(action, &target) {
            return Err(channel.forbidden());
        }
        if request.purpose == TunnelPurpose::Check {
            return Ok(None);
        }
        let place = self.0.table.add(channel, &target)?;
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
        let work = Loop::new(environment, queue, shared.idle_timeout)?;
        let notifier = work.notifier();
        environment.start("xdfs-tunnels", Box::new(move || Box::new(work)))?;
        *service = Some(Service { jobs, notifier });
        Ok(())
    }

    /// Ends the tunnels that the settings don't allow any more, and returns their number.
    pub(crate) fn review(&self) -> usize {
        let ended = self.0.table.forbidden();
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
