//! The door of a server: accepts control connections, and serves each in a thread of its own.
//!
//! Users, rights, quotas, limits and the audit log are those of [`Access`]; files are reached by
//! the store of an admission and by nothing else. A thread drives the control connection, the data
//! connections and one open file of its session by readiness, one piece after the other, so that
//! its memory doesn't depend on what a peer sends.

mod calls;
mod catalogue;
mod channels;
mod checksum;
mod download;
mod exchange;
#[cfg(feature = "gsi")]
mod gsi;
mod held;
mod job;
mod link;
mod node;
mod passive;
mod rows;
mod segment;
mod serve;
mod settings;
mod stripes;
mod tls;
mod upload;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_access::{Access, Admit, Clock, CurrentAccess, Peer, Standing};
use xdfs_crowd::{Crowd, Folded, Network};
use xdfs_proto::{Code, Fault};
use xdfs_store::tally::Tally;
use xdfs_sys::poll::{Event, Notifier, Poller, Token};

use self::catalogue::Catalogues;
use self::held::Listings;
use crate::session::{Config as SessionConfig, Session, Tls};

#[cfg(feature = "gsi")]
pub use gsi::GsiHost;
pub use node::NodeRules;
#[cfg(unix)]
pub use settings::GridftpOverSsh;
pub use settings::{
    GRIDFTP_PORT, GridftpNode, GridftpSettings, GsiFiles, node_address, server_address,
};
pub use stripes::NodePeer;

/// The name of this door in the audit log.
const DOOR: &str = "gridftp";
/// Wakes a thread.
const WAKE: Token = Token(usize::MAX - 1);
/// Connections that are accepted in a row, before anything else is looked at.
const ACCEPTS: usize = 64;
/// Interval of attempts to accept after a failure, and of looks at the time while draining.
const TICK: Duration = Duration::from_millis(100);
/// Interval of looks at the grid map.
#[cfg(feature = "gsi")]
const MAP_INTERVAL: Duration = Duration::from_secs(1);
/// Places for connections that aren't logged in. Each has a thread and a few descriptors.
const STRANGERS_MAX: usize = 256;
/// Threads of connections that had to give way and haven't ended yet: beyond those, no connection
/// is accepted. One may wait for its turn to have a password checked.
const LEAVING_MAX: usize = STRANGERS_MAX;
/// Interval of looks at silent strangers while places are scarce.
const HURRY_INTERVAL: Duration = Duration::from_millis(500);
/// Why sessions end.
const CROWDED: &str = "Too many connections are being opened: try again.";
const SILENT: &str = "Nothing came in time while many connections are being opened: try again.";
const DRAINED: &str = "The server ends the session.";
const NOT_ADMITTED: &str = "The server's settings don't admit this user with the same rights now.";
#[cfg(feature = "gsi")]
const NOT_MAPPED: &str = "The grid map doesn't have this certificate for the user any more.";

/// The role of a door: it is that of a server, or of a data node.
#[derive(Clone, Debug)]
pub enum Role {
    /// Clients come in.
    Server(Admit),
    /// Servers whose data node this is come in, and no clients.
    Node(Arc<dyn NodeRules>),
}

impl Role {
    /// The rules and the certificate, where users prove who they are.
    fn current(&self) -> Option<&dyn CurrentAccess> {
        match self {
            Self::Server(Admit::Guarded(current)) => Some(&**current),
            Self::Server(Admit::Open(_)) | Self::Node(_) => None,
        }
    }
}

/// Settings of data connections and times.
#[derive(Clone, Debug)]
pub struct Options {
    /// Ports of passive data connections; `None` for any free one.
    pub ports: Option<RangeInclusive<u16>>,
    /// The address that clients are told for passive data connections, if it isn't the one at which
    /// they reached the server.
    pub address: Option<Ipv4Addr>,
    /// Data connections may go to, and come from, other hosts than the client's.
    pub third_party: bool,
    /// All control connections have to be protected by TLS before anybody logs in.
    pub requires_tls: bool,
    /// Protected data connections have to resume the TLS session of their control connection.
    pub requires_resumption: bool,
    /// Time until a client has to be logged in.
    pub login_timeout: Duration,
    /// Time after which a session without commands ends.
    pub idle_timeout: Duration,
    /// Time after which a transfer without progress fails.
    pub stall_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ports: None,
            address: None,
            third_party: false,
            requires_tls: false,
            requires_resumption: false,
            login_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(600),
            stall_timeout: Duration::from_secs(120),
        }
    }
}

/// The parts of a [`Sessions`].
#[derive(Debug)]
pub struct SessionsConfig {
    /// Where control connections come from.
    pub listeners: Vec<TcpListener>,
    /// Who comes in.
    pub role: Role,
    /// Largest number of sessions at once. Connections that aren't logged in have other places.
    pub sessions_max: usize,
    /// Settings.
    pub options: Options,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The server's files for GSI; `None` for no GSI.
    #[cfg(feature = "gsi")]
    pub gsi: Option<GsiHost>,
    /// The data nodes, at most [`NODES_MAX`](crate::node::NODES_MAX).
    pub nodes: Vec<NodePeer>,
}

/// What all sessions share.
#[derive(Debug)]
struct Context {
    role: Role,
    options: Options,
    clock: Arc<dyn Clock>,
    #[cfg(feature = "gsi")]
    gsi: Option<gsi::Host>,
    nodes: stripes::Nodes,
    sessions_max: usize,
    /// All control connections.
    sessions: Mutex<HashMap<u64, Arc<Shared>>>,
    /// Of these, the sessions that aren't logged in.
    crowd: Mutex<Crowd<u64>>,
    /// Logins that were refused since there are as many sessions as may be.
    logins_refused: Mutex<Folded<usize>>,
    /// Set once no session may begin: when running ones end.
    ends_at: Mutex<Option<Instant>>,
    /// Transactions that are kept.
    catalogues: Mutex<Catalogues>,
    /// Trees whose rows are made or sent.
    listings: Listings,
    /// Where to look for the next passive port.
    next_port: AtomicU16,
    next_session: AtomicU64,
    tally: Arc<Tally>,
    /// Of the listening thread.
    notifier: Notifier,
}

/// What other threads see of a session.
#[derive(Debug)]
struct Shared {
    id: u64,
    notifier: Notifier,
    network: Network,
    /// Somebody is logged in.
    is_known: AtomicBool,
    /// The session has to end at once, whether or not the client takes the reply.
    gives_way: AtomicBool,
    standing: Mutex<Option<(Standing, Arc<Access>)>>,
    /// The session has to end at this time, or before if it is idle, and why.
    ends_at: Mutex<Option<(Instant, &'static str)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one assignment, so a panic elsewhere leaves it consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(notifier: &Notifier) {
    notifier.notify(Event {
        token: WAKE,
        readable: true,
        writable: false,
    });
}

/// The listeners of a door, and the sessions of their control connections.
pub struct Sessions {
    context: Arc<Context>,
    poller: Poller,
    /// With their names in the log.
    listeners: Vec<(String, mio::net::TcpListener)>,
}

/// Ends sessions from other threads.
#[derive(Clone, Debug)]
pub struct SessionsControl {
    /// Owned by the sessions alone, so that the audit log is complete when they end.
    context: Weak<Context>,
}

impl Sessions {
    /// No sessions yet, with these listeners.
    ///
    /// # Errors
    /// They can't be watched, or a file of GSI can't be used.
    pub fn new(config: SessionsConfig) -> Result<(Self, SessionsControl), Fault> {
        let fault = |error: io::Error| Fault::from_io("watch the listeners of GridFTP", "", &error);
        let poller = Poller::new().map_err(fault)?;
        let what = match config.role {
            Role::Node(_) => "data node",
            Role::Server(_) => DOOR,
        };
        let mut listeners = Vec::new();
        for (number, listener) in config.listeners.into_iter().enumerate() {
            listener.set_nonblocking(true).map_err(fault)?;
            let name = format!("{what} at {}", listener.local_addr().map_err(fault)?);
            let mut listener = mio::net::TcpListener::from_std(listener);
            let (registry, token) = (poller.registry(), mio::Token(number));
            let watched = registry.register(&mut listener, token, mio::Interest::READABLE);
            watched.map_err(fault)?;
            listeners.push((name, listener));
        }
        let context = Arc::new(Context {
            role: config.role,
            options: config.options,
            clock: config.clock,
            #[cfg(feature = "gsi")]
            gsi: config.gsi.map(gsi::Host::open).transpose()?,
            nodes: stripes::Nodes::new(config.nodes),
            sessions_max: config.sessions_max,
            sessions: Mutex::default(),
            crowd: Mutex::new(Crowd::new(STRANGERS_MAX)),
            logins_refused: Mutex::new(Folded::new(|refused, sessions| {
                tracing::warn!(
                    sessions,
                    refused,
                    "sessions of GridFTP are refused: as many as may be are there"
                );
            })),
            ends_at: Mutex::default(),
            catalogues: Mutex::default(),
            listings: Listings::default(),
            next_port: AtomicU16::new(0),
            next_session: AtomicU64::new(0),
            tally: Arc::default(),
            notifier: poller.notifier(),
        });
        let sessions = Self {
            context: Arc::clone(&context),
            poller,
            listeners,
        };
        let context = Arc::downgrade(&context);
        Ok((sessions, SessionsControl { context }))
    }

    /// Serves until it is drained and the last session has ended, or the grace period is over.
    ///
    /// # Errors
    /// Waiting for connections failed.
    pub fn run(mut self) -> Result<(), Fault> {
        let mut events = Vec::new();
        loop {
            let ends_at = *locked(&self.context.ends_at);
            let (now, is_idle) = (self.context.clock.instant(), self.is_idle());
            if ends_at.is_some_and(|at| is_idle || at + TICK < now) {
                return Ok(());
            }
            let times = match ends_at {
                Some(_) => [Some(TICK), None, None, None],
                None => [
                    self.accept(),
                    self.review_map(),
                    self.hurry(),
                    self.warn(now),
                ],
            };
            let timeout = times.into_iter().flatten().min();
            events.clear();
            let waited = self.poller.wait(&mut events, timeout);
            waited.map_err(|error| Fault::from_io("wait for connections", "", &error))?;
        }
    }

    /// Serves one client whose user is admitted already, in this thread, until the session ends:
    /// one that came through ssh, whose `control` connection may be any stream socket. Data
    /// connections come from `peer`, and to `local`; `home` is the first current directory.
    ///
    /// # Errors
    /// The connection can't be watched, or is lost.
    pub fn serve_one(
        self,
        control: TcpStream,
        local: IpAddr,
        peer: IpAddr,
        home: Vec<u8>,
    ) -> Result<(), Fault> {
        let fault = |error: io::Error| Fault::from_io("serve a client", "", &error);
        control.set_nonblocking(true).map_err(fault)?;
        let config = SessionConfig {
            is_admitted: true,
            home,
            ..self.session(peer)
        };
        let (shared, poller, _registration) = self.register(config.peer).map_err(fault)?;
        let client = Client {
            control: mio::net::TcpStream::from_std(control),
            local,
            peer: Peer::new(DOOR, peer.to_string()),
        };
        serve::run(Arc::clone(&self.context), shared, poller, client, config);
        Ok(())
    }

    /// Ends the sessions whose certificates the grid map doesn't have any more. It is this thread
    /// that looks: those of sessions may have the ids of accounts, which can't read it. Returns
    /// when to look again.
    #[cfg(feature = "gsi")]
    fn review_map(&self) -> Option<Duration> {
        let current = self.context.role.current()?;
        if self.context.gsi.is_none() || self.is_idle() {
            return None;
        }
        let access = current.access();
        let is_out = |standing: &Standing, _: &Arc<Access>| !access.still_maps(standing);
        self.context.end_those(is_out, NOT_MAPPED);
        Some(MAP_INTERVAL)
    }

    /// Nobody logs in with a certificate.
    #[cfg(not(feature = "gsi"))]
    fn review_map(&self) -> Option<Duration> {
        None
    }

    /// While places are scarce, ends the connections that say nothing. Returns when to look again.
    fn hurry(&self) -> Option<Duration> {
        let now = self.context.clock.instant();
        let crowd = locked(&self.context.crowd);
        if !crowd.is_crowded() {
            return None;
        }
        let late = crowd.late(now, self.context.options.login_timeout);
        drop(crowd);
        let sessions = locked(&self.context.sessions);
        let late = late.iter().filter_map(|(id, _)| sessions.get(id));
        late.for_each(|session| session.give_way(now, SILENT));
        Some(HURRY_INTERVAL)
    }

    /// Warns of what was refused. Returns when to look again.
    fn warn(&self, now: Instant) -> Option<Duration> {
        let mut crowd = locked(&self.context.crowd);
        crowd.tick(now);
        let next = crowd.wakes_at();
        drop(crowd);
        let mut refused = locked(&self.context.logins_refused);
        refused.tick(now);
        let next = next.into_iter().chain(refused.wakes_at()).min();
        next.map(|at| at.saturating_duration_since(now).max(TICK))
    }

    fn is_idle(&self) -> bool {
        locked(&self.context.sessions).is_empty()
    }

    /// Accepts connections. Returns when to do so again without news of others.
    fn accept(&self) -> Option<Duration> {
        let mut again = None;
        let all = self.context.sessions_max + STRANGERS_MAX + LEAVING_MAX;
        for (name, listener) in &self.listeners {
            for left in (0..ACCEPTS).rev() {
                if left == 0 {
                    again = Some(Duration::ZERO);
                }
                if locked(&self.context.sessions).len() >= all {
                    // The end of one wakes this thread.
                    return again;
                }
                match listener.accept() {
                    Ok((stream, peer)) => self.begin(stream, peer, name),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        tracing::warn!(%error, "a control connection could not be accepted");
                        again = again.or(Some(TICK));
                        break;
                    }
                }
            }
        }
        again
    }

    /// Starts the thread of a session, or refuses it.
    fn begin(&self, stream: mio::net::TcpStream, address: SocketAddr, listener: &str) {
        let peer = Peer::new(DOOR, address.to_string());
        let config = self.session(address.ip());
        let begun = self.start(&stream, peer, config.clone(), listener);
        if let Err(fault) = begun {
            tracing::debug!(peer = %address, %fault, "a control connection is refused");
            if !matches!(self.context.role, Role::Node(_)) {
                let output = Session::refused(config, &fault).take_output();
                // There is room in the buffer of a new socket.
                let _ = (&stream).write(&output);
            }
        }
    }

    /// What a session with this client may do.
    fn session(&self, peer: IpAddr) -> SessionConfig {
        let current = self.context.role.current();
        SessionConfig {
            peer: peer.to_canonical(),
            third_party: self.context.options.third_party,
            is_striped: !self.context.nodes.is_empty(),
            tls: match (current, self.context.options.requires_tls) {
                (None, _) => Tls::None,
                (Some(_), false) => Tls::Offered,
                (Some(_), true) => Tls::Required,
            },
            takes_clear: current.is_none_or(CurrentAccess::takes_clear),
            #[cfg(feature = "gsi")]
            gsi: self.context.gsi.is_some() && current.is_some(),
            #[cfg(not(feature = "gsi"))]
            gsi: false,
            is_admitted: false,
            home: b"/".to_vec(),
        }
    }

    fn start(
        &self,
        stream: &mio::net::TcpStream,
        peer: Peer,
        config: SessionConfig,
        listener: &str,
    ) -> Result<(), Fault> {
        let fault = |error: io::Error| Fault::from_io("begin a session", "", &error);
        let control = duplicate(stream).map_err(fault)?;
        let local = control.local_addr().map_err(fault)?.ip();
        let (shared, poller, registration) = self.register(config.peer).map_err(fault)?;
        self.context.take_in(&shared, listener);
        let context = Arc::clone(&self.context);
        let client = Client {
            control,
            local,
            peer,
        };
        let work = move || {
            // Dropped last, also in a panic.
            let _registration = registration;
            match &context.role {
                Role::Node(rules) => {
                    let rules = Arc::clone(rules);
                    node::run(context, &shared, poller, client, &*rules);
                }
                Role::Server(_) => serve::run(context, shared, poller, client, config),
            }
        };
        // A fresh thread for each session: it may assume other ids.
        let thread = thread::Builder::new().name("xdfs-gridftp".into());
        thread.spawn(work).map(drop).map_err(fault)
    }

    /// Puts a session into the table.
    fn register(&self, peer: IpAddr) -> io::Result<(Arc<Shared>, Poller, Registration)> {
        let poller = Poller::new()?;
        let id = self.context.next_session.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(Shared {
            id,
            notifier: poller.notifier(),
            network: Network::of(peer),
            is_known: AtomicBool::new(false),
            gives_way: AtomicBool::new(false),
            standing: Mutex::default(),
            ends_at: Mutex::default(),
        });
        locked(&self.context.sessions).insert(id, Arc::clone(&shared));
        let context = Arc::clone(&self.context);
        Ok((shared, poller, Registration { context, id }))
    }
}

/// The client of a session.
struct Client {
    control: mio::net::TcpStream,
    /// Where passive data connections come to.
    local: IpAddr,
    peer: Peer,
}

/// The same socket, for a registration with another poller.
fn duplicate(stream: &mio::net::TcpStream) -> io::Result<mio::net::TcpStream> {
    let copy: TcpStream = socket2::SockRef::from(stream).try_clone()?.into();
    copy.set_nonblocking(true)?;
    Ok(mio::net::TcpStream::from_std(copy))
}

/// Removes a session from the table when its thread ends.
struct Registration {
    context: Arc<Context>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        locked(&self.context.crowd).leave(self.id);
        locked(&self.context.sessions).remove(&self.id);
        wake(&self.context.notifier);
    }
}

impl SessionsControl {
    /// Accepts no more sessions. Idle ones end at once, others when they are done, and at the
    /// latest after `grace`.
    pub fn drain(&self, grace: Duration) {
        let Some(context) = self.context.upgrade() else {
            return;
        };
        let at = context.clock.instant() + grace;
        *locked(&context.ends_at) = Some(at);
        wake(&context.notifier);
        for session in locked(&context.sessions).values() {
            session.end(at, DRAINED);
        }
    }

    /// The figures of the sessions; `None` once the door has closed.
    #[must_use]
    pub fn tally(&self) -> Option<Arc<Tally>> {
        let context = self.context.upgrade()?;
        let sessions = locked(&context.sessions);
        let is_known = |session: &&Arc<Shared>| session.is_known.load(Ordering::Relaxed);
        let known = sessions.values().filter(is_known).count();
        drop(sessions);
        let tally = Arc::clone(&context.tally);
        tally.sessions.set(known as u64);
        tally.strangers.set(locked(&context.crowd).len() as u64);
        Some(tally)
    }

    /// Ends the sessions whose users the present rules don't admit any more, with no less than they
    /// have. Returns their number.
    pub fn review(&self) -> usize {
        let Some(context) = self.context.upgrade() else {
            return 0;
        };
        let Some(current) = context.role.current() else {
            return 0;
        };
        let access = current.access();
        let is_out = |standing: &Standing, admitted_by: &Arc<Access>| {
            !Arc::ptr_eq(&access, admitted_by) && !access.still_admits(standing)
        };
        context.end_those(is_out, NOT_ADMITTED)
    }
}

impl Context {
    /// Takes in a stranger. Another one may have to give way to it.
    fn take_in(&self, stranger: &Shared, listener: &str) {
        let (id, network, now) = (stranger.id, stranger.network, self.clock.instant());
        let displaced = locked(&self.crowd).enter(id, network, &listener, now);
        if let Some(id) = displaced
            && let Some(session) = locked(&self.sessions).get(&id)
        {
            session.give_way(now, CROWDED);
        }
    }

    /// A stranger has proved who it is, and takes the place of a session.
    ///
    /// # Errors
    /// [`Code::Busy`]: there are as many sessions as may be.
    fn log_in(&self, session: &Shared) -> Result<(), Fault> {
        // Locked until it is one of them.
        let sessions = locked(&self.sessions);
        let is_known = |session: &&Arc<Shared>| session.is_known.load(Ordering::Relaxed);
        if sessions.values().filter(is_known).count() >= self.sessions_max {
            let now = self.clock.instant();
            locked(&self.logins_refused).count(self.sessions_max, now);
            let cause = "the server has as many sessions as it takes";
            return Err(Fault::new(Code::Busy, "begin a session", cause));
        }
        session.is_known.store(true, Ordering::Relaxed);
        locked(&self.crowd).leave(session.id);
        self.tally.sessions_begun.add(1);
        Ok(())
    }

    /// Ends the sessions of users with such a standing. Returns their number.
    fn end_those(
        &self,
        is_out: impl Fn(&Standing, &Arc<Access>) -> bool,
        why: &'static str,
    ) -> usize {
        let sessions: Vec<_> = locked(&self.sessions).values().cloned().collect();
        let is_out = |session: &&Arc<Shared>| {
            let standing = locked(&session.standing);
            standing
                .as_ref()
                .is_some_and(|(standing, admitted_by)| is_out(standing, admitted_by))
        };
        let out: Vec<_> = sessions.iter().filter(is_out).collect();
        let now = self.clock.instant();
        for session in &out {
            let standing = locked(&session.standing);
            let user = standing.as_ref().map(|(own, _)| own.user().to_owned());
            drop(standing);
            tracing::info!(user, why, "a session is ended");
            session.end(now, why);
        }
        out.len()
    }
}

impl Shared {
    /// Has the session end at once.
    fn give_way(&self, now: Instant, why: &'static str) {
        self.gives_way.store(true, Ordering::Relaxed);
        self.end(now, why);
    }

    fn end(&self, at: Instant, why: &'static str) {
        *locked(&self.ends_at) = Some((at, why));
        wake(&self.notifier);
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}
