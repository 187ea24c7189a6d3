//! The thread of a session: carries out the actions of its machine.

mod striped;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, UNIX_EPOCH};

use mio::Interest;
use socket2::SockRef;
use xdfs_access::{Access, Admit, Evidence, Login, Peer, Permit};
use xdfs_proto::path::Call;
use xdfs_proto::{Code, Fault};
use xdfs_security::Method;
use xdfs_store::Store;
use xdfs_store::rate::Share;
use xdfs_store::tally::{Failing, Gauge, One, Tally};
use xdfs_sys::poll::{Event, Poller};

use super::calls::Calls;
use super::catalogue::{Catalogue, Opened};
use super::channels::{CONTROL, Channels};
use super::checksum::ChecksumJob;
use super::download::Download;
use super::exchange::Transaction;
#[cfg(feature = "gsi")]
use super::gsi::{Negotiation, told};
use super::job::Job;
use super::link::{Link, Step};
use super::rows::{Rows, stat, target_of};
use super::segment::{Arriving, Segment, SegmentMemory};
use super::tls::{Direction, SessionTls};
use super::upload::Upload;
use super::{Client, Context, DRAINED, Role, Shared, locked};
use crate::command::{Form, Mode, Password};
use crate::getput::Route;
use crate::segment::TransactionId;
use crate::session::{Action, Config, Listing, Outcome, Place, Session, Transfer, What};
use crate::wire::Wire;

/// Bytes of payload that are read at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Time after a transfer for which a session keeps its memory for the next one.
const KEPT: Duration = Duration::from_secs(1);
/// Bytes of commands that are read at once.
const COMMAND_BYTES: usize = 16 << 10;
/// Time to send the last replies to a client that doesn't read.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A logged-in user.
struct User {
    /// Whose transactions they are; empty if there are no users.
    name: String,
    store: Arc<dyn Store>,
    /// To data nodes; `None` for an anonymous user.
    known_as: Option<String>,
    share: Option<Share>,
    /// Of the limits of the user.
    _permit: Option<Permit>,
}

/// The readiness of the control connection.
#[derive(Debug)]
struct Ready {
    read: bool,
    write: bool,
}

/// A session and all that it uses.
struct Server {
    context: Arc<Context>,
    shared: Arc<Shared>,
    poller: Poller,
    control: Wire,
    /// The protection of the control connection begins once the output is sent.
    starts_tls: bool,
    #[cfg(feature = "gsi")]
    gsi: Negotiation,
    ready: Ready,
    /// The client has sent its last command.
    has_ended: bool,
    /// The control connection is broken.
    is_broken: bool,
    machine: Session,
    output: Vec<u8>,
    peer: Peer,
    /// Nothing was received from the client since it connected, or since TLS began.
    is_unheard: bool,
    user: Option<User>,
    channels: Channels,
    calls: Calls,
    job: Option<Job>,
    /// The running transfer, in the figures of the server.
    running: Option<One<Tally>>,
    buffer: Vec<u8>,
    /// For the next segment.
    memory: SegmentMemory,
    started: Instant,
    /// The last command began or ended.
    active_at: Instant,
    /// Payload of the running job moved.
    moved_at: Instant,
    /// The running job waits for the rate limit.
    paused_until: Option<Instant>,
    /// Since then the client takes no replies.
    unread_since: Option<Instant>,
    closes_by: Option<Instant>,
}

/// Serves a client until its session ends.
pub(super) fn run(
    context: Arc<Context>,
    shared: Arc<Shared>,
    poller: Poller,
    client: Client,
    config: Config,
) {
    let address = config.peer;
    let served = Server::new(context, shared, poller, client, config).and_then(|mut server| {
        let served = server.serve();
        if server.job.is_some() {
            let cause = "the session ends in a failure";
            server.fail(Fault::new(Code::Internal, "transfer a file", cause));
        }
        served
    });
    match served {
        Ok(()) => tracing::debug!(peer = %address, "a GridFTP session ends"),
        Err(error) => tracing::warn!(peer = %address, %error, "a GridFTP session ends"),
    }
}

impl Server {
    fn new(
        context: Arc<Context>,
        shared: Arc<Shared>,
        poller: Poller,
        client: Client,
        config: Config,
    ) -> io::Result<Self> {
        let Client {
            mut control,
            local,
            peer,
        } = client;
        // Hints: a system may refuse them.
        let _ = control.set_nodelay(true);
        // ABOR comes with an urgent byte from some clients.
        let _ = SockRef::from(&control).set_out_of_band_inline(true);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = poller.registry();
        registry.register(&mut control, mio::Token(CONTROL.0), interest)?;
        let now = context.clock.instant();
        Ok(Self {
            channels: Channels::new(Arc::clone(&context), local, config.peer),
            context,
            shared,
            poller,
            control: Wire::new(control),
            starts_tls: false,
            #[cfg(feature = "gsi")]
            gsi: Negotiation::default(),
            ready: Ready {
                read: true,
                write: true,
            },
            has_ended: false,
            is_broken: false,
            machine: Session::new(config),
            output: Vec::new(),
            peer,
            is_unheard: true,
            user: None,
            calls: Calls::default(),
            job: None,
            running: None,
            buffer: Vec::new(),
            memory: SegmentMemory::default(),
            started: now,
            active_at: now,
            moved_at: now,
            paused_until: None,
            unread_since: None,
            closes_by: None,
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::new();
        loop {
            self.read_commands();
            let is_closing = self.act();
            let goes_on = self.work() | self.write_replies() | self.begin_tls()?;
            let now = self.context.clock.instant();
            let is_closing = is_closing || self.machine.is_closing();
            if is_closing && self.job.is_none() {
                let by = *self.closes_by.get_or_insert(now + LAST_WORDS);
                let gives_way = self.shared.gives_way.load(Ordering::Relaxed);
                if self.is_broken || now >= by || gives_way || self.is_silent() {
                    // Without room for it, the client has gone.
                    let _ = self.control.end();
                    return Ok(());
                }
            }
            // A client that reads nothing must not keep a session.
            let stall_timeout = self.context.options.stall_timeout;
            if self
                .unread_since
                .is_some_and(|since| now >= since + stall_timeout)
            {
                return Ok(());
            }
            self.watch_time(now);
            let timeout = match goes_on || self.has_more() {
                true => Duration::ZERO,
                false => self.timeout(now),
            };
            events.clear();
            self.poller.wait(&mut events, Some(timeout))?;
            for event in &events {
                self.event(event);
            }
        }
    }

    fn is_silent(&self) -> bool {
        self.output.is_empty() && !self.machine.has_output() && self.control.is_flushed()
    }

    /// Whether something can be done without another event.
    fn has_more(&self) -> bool {
        (self.ready.read && !self.has_ended && !self.starts_tls && self.machine.room() > 0)
            || (self.ready.write && !self.is_broken && self.machine.has_output())
    }

    fn event(&mut self, event: &Event) {
        if event.token == CONTROL {
            let is_either = self.control.is_protected();
            self.ready.read |= event.readable || is_either;
            self.ready.write |= event.writable || is_either;
        } else if let Err(fault) = self.channels.event(event) {
            self.fail(fault);
        }
    }

    fn read_commands(&mut self) {
        let mut bytes = [0; COMMAND_BYTES];
        while self.ready.read && !self.has_ended && !self.starts_tls {
            let room = self.machine.room().min(COMMAND_BYTES);
            if room == 0 {
                return;
            }
            match self.control.read(&mut bytes[..room]) {
                Ok(0) => self.has_ended = true,
                Ok(read) => {
                    if std::mem::take(&mut self.is_unheard) {
                        locked(&self.context.crowd).speaks(self.shared.id);
                    }
                    self.machine.receive(&bytes[..read]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.ready.read = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => (self.has_ended, self.is_broken) = (true, true),
            }
        }
    }

    /// Sends replies. Returns whether any were sent, so that there is room for others.
    fn write_replies(&mut self) -> bool {
        let mut has_sent = false;
        while self.ready.write && !self.is_broken {
            if self.output.is_empty() {
                self.output = self.machine.take_output();
            }
            let is_empty = self.output.is_empty();
            if is_empty && self.control.is_flushed() {
                break;
            }
            let sent = match is_empty {
                true => self.control.flush().map(|()| 0),
                false => self.control.write(&self.output),
            };
            match sent {
                Ok(sent) => {
                    self.output.drain(..sent);
                    self.unread_since = None;
                    has_sent = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.ready.write = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => (self.has_ended, self.is_broken) = (true, true),
            }
        }
        if !self.is_silent() && self.unread_since.is_none() {
            self.unread_since = Some(self.context.clock.instant());
        }
        has_sent
    }

    /// Begins with protection once everything in clear is sent. Returns whether it has begun.
    fn begin_tls(&mut self) -> io::Result<bool> {
        if !self.starts_tls || !self.is_silent() {
            return Ok(false);
        }
        self.is_unheard = true;
        let now = self.context.clock.instant();
        locked(&self.context.crowd).falls_silent(self.shared.id, now);
        #[cfg(feature = "gsi")]
        if let Some(layer) = self.gsi.take_layer() {
            self.control.protect_by(layer);
            self.starts_tls = false;
            return Ok(true);
        }
        let Some(current) = self.context.role.current() else {
            return Ok(false);
        };
        let tls = SessionTls::new(&current.tls(), self.context.options.requires_resumption)?;
        tls.protect_control(&mut self.control)?;
        self.channels.protect_by(tls);
        self.starts_tls = false;
        Ok(true)
    }

    /// Carries out what the machine wants. Returns whether the session is to be closed.
    fn act(&mut self) -> bool {
        if self.has_ended && self.job.is_some() {
            let cause = "the client has closed the control connection";
            self.fail(Fault::new(Code::ConnectionLost, "transfer a file", cause));
        }
        // A bounded number: replies wait for a client that reads.
        while self.output.is_empty() {
            let polled = self.machine.poll();
            if polled.is_some() || self.machine.has_output() {
                self.active_at = self.context.clock.instant();
            }
            match polled {
                None => return self.has_ended,
                Some(Action::Close) => return true,
                Some(Action::Cancel) => {
                    let cause = "it was cancelled by ABOR";
                    self.fail(Fault::new(Code::Cancelled, "transfer a file", cause));
                }
                Some(_) if self.has_expired() => {
                    let why = "The credential of this session has expired: log in with another.";
                    self.machine.abandon(why);
                }
                Some(action) => {
                    let is_transfer = matches!(action, Action::Transfer(_));
                    let result = self.begin(action);
                    match result {
                        Ok(Some(outcome)) => self.machine.complete(Ok(outcome)),
                        // It goes on as a job.
                        Ok(None) => break,
                        Err(fault) if is_transfer => self.fail_as(Failing::Transfer, fault),
                        Err(fault) => self.fail(fault),
                    }
                }
            }
        }
        self.is_broken
    }

    /// Begins with an action; `None` if it becomes a job.
    fn begin(&mut self, action: Action) -> Result<Option<Outcome>, Fault> {
        Ok(Some(match action {
            Action::Authenticate(token) => self.take_token(&token)?,
            Action::LogInMapped { user } => {
                let name = self.log_in(|server, access| {
                    server.authenticate_mapped(access, user.as_deref().unwrap_or_default())
                })?;
                Outcome::User(name)
            }
            Action::LogIn { user, password } => {
                self.log_in(|server, access| {
                    server.authenticate(access, user.as_deref(), &password)
                })?;
                Outcome::Done
            }
            Action::Call(call) => self.call(&call)?,
            Action::Facts(path) => {
                let store = self.store()?;
                let link = target_of(&*store, &path);
                Outcome::Facts(stat(&*store, &path, true)?, link)
            }
            Action::Checksum {
                kind,
                offset,
                length,
                path,
            } => {
                let job = ChecksumJob::open(&*self.store()?, kind, offset, length, path)?;
                self.job = Some(Job::Checksum(Box::new(job)));
                return Ok(None);
            }
            Action::Connect(targets) => {
                self.channels.connect_later(targets);
                Outcome::Done
            }
            Action::DelayPassive => {
                self.channels.listen_later();
                Outcome::Done
            }
            Action::Listen => Outcome::Listening(self.channels.listen(&self.poller)?),
            Action::ListenStriped => self.listen_striped()?,
            Action::ListHere(listing) => {
                let listed = self.rows(&listing)?.all()?;
                Outcome::Rows(listed.rows, listed.left_out)
            }
            Action::StartTls => {
                self.starts_tls = true;
                Outcome::Done
            }
            Action::Transfer(transfer) => {
                self.transfer(transfer)?;
                return Ok(None);
            }
            Action::Cancel | Action::Close => return Ok(None),
        }))
    }

    /// The thread is this client's. Passwords are checked one at a time, as it takes memory.
    /// Returns the user's name.
    fn log_in(
        &mut self,
        authenticate: impl FnOnce(&Self, &Access) -> Result<Login, Fault>,
    ) -> Result<String, Fault> {
        let user = match &self.context.role {
            Role::Server(Admit::Open(store)) => {
                self.context.log_in(&self.shared)?;
                User {
                    name: String::new(),
                    store: Arc::clone(store),
                    known_as: None,
                    share: None,
                    _permit: None,
                }
            }
            Role::Node(_) => {
                let cause = "a data node has no users";
                return Err(Fault::new(Code::PermissionDenied, "authenticate", cause));
            }
            Role::Server(Admit::Guarded(current)) => {
                let access = current.access();
                let login = authenticate(self, &access)?;
                let admission = access.admit(&self.peer, &login)?;
                self.context.log_in(&self.shared)?;
                if let Some(ids) = &admission.ids {
                    let fault =
                        |error| Fault::from_io("take on the ids of the account", "", &error);
                    ids.take_on().map_err(fault)?;
                }
                let name = admission.user.clone();
                let peer = self.peer.clone();
                self.channels
                    .count_for(Arc::clone(&access), peer, admission.user);
                *locked(&self.shared.standing) = Some((admission.standing, access));
                let started = self.started;
                User {
                    known_as: (login.method != Method::Anonymous).then(|| name.clone()),
                    name,
                    store: admission.store,
                    share: admission.rate.map(|rate| Share::new(rate, started)),
                    _permit: Some(admission.permit),
                }
            }
        };
        let name = user.name.clone();
        self.user = Some(user);
        Ok(name)
    }

    /// Whether the credential by which the client has proved who it is isn't valid any more.
    fn has_expired(&self) -> bool {
        #[cfg(feature = "gsi")]
        {
            let now = self.context.clock.time().duration_since(UNIX_EPOCH);
            let now_s = i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
            let peer = self.gsi.peer.as_ref();
            peer.is_some_and(|peer| now_s >= peer.ends_s)
        }
        #[cfg(not(feature = "gsi"))]
        false
    }

    /// Takes a token of a security context. What fails counts for the client's address.
    #[cfg(feature = "gsi")]
    fn take_token(&mut self, token: &[u8]) -> Result<Outcome, Fault> {
        let (Some(host), Some(current)) = (&self.context.gsi, self.context.role.current()) else {
            return Err(no_gsi());
        };
        let stepped = self.gsi.step(host, token).map_err(told);
        let (outcome, security) =
            stepped.map_err(|fault| current.access().refuse(&self.peer, "", fault))?;
        if let Some(security) = security {
            self.channels.secure_by(security);
            self.starts_tls = true;
        }
        Ok(outcome)
    }

    #[cfg(not(feature = "gsi"))]
    fn take_token(&self, _token: &[u8]) -> Result<Outcome, Fault> {
        Err(no_gsi())
    }

    /// `user` is one of those that the certificate stands for, or empty.
    #[cfg(feature = "gsi")]
    fn authenticate_mapped(&self, access: &Access, user: &str) -> Result<Login, Fault> {
        let peer = self.gsi.peer.as_ref().ok_or_else(no_gsi)?;
        let chain = [peer.certificate.clone()];
        access.authenticate(&self.peer, user, Evidence::Certificate(&chain))
    }

    #[cfg(not(feature = "gsi"))]
    fn authenticate_mapped(&self, _access: &Access, _user: &str) -> Result<Login, Fault> {
        Err(no_gsi())
    }

    fn authenticate(
        &self,
        access: &Access,
        name: Option<&str>,
        password: &Password,
    ) -> Result<Login, Fault> {
        let Some(name) = name else {
            return access.authenticate(&self.peer, "", Evidence::Anonymous);
        };
        let Some(text) = password.text() else {
            let cause = "the password isn't UTF-8";
            let fault = Fault::new(Code::AuthenticationFailed, "authenticate", cause);
            return Err(access.refuse(&self.peer, name, fault));
        };
        access.authenticate(&self.peer, name, Evidence::Password(text))
    }

    fn store(&self) -> Result<Arc<dyn Store>, Fault> {
        let user = self.user.as_ref().ok_or_else(|| {
            let cause = "nobody is logged in";
            Fault::new(Code::PermissionDenied, "reach the store", cause)
        })?;
        Ok(Arc::clone(&user.store))
    }

    fn call(&mut self, call: &Call) -> Result<Outcome, Fault> {
        let store = self.store()?;
        let answer = self.calls.answer(&*store, call)?;
        Ok(Outcome::Answer(answer))
    }

    fn rows(&self, listing: &Listing) -> Result<Rows, Fault> {
        let now = self.context.clock.time().duration_since(UNIX_EPOCH);
        let now_ns = now.map_or(0, |now| now.as_nanos());
        Rows::new(
            self.store()?,
            listing,
            i64::try_from(now_ns).unwrap_or(i64::MAX),
        )
    }

    /// Opens what is to be moved, then the connections.
    fn transfer(&mut self, transfer: Transfer) -> Result<(), Fault> {
        let Transfer {
            mode,
            parallelism: wanted,
            layout,
            socket_buffer,
            protection,
            route,
            what,
        } = transfer;
        let store = self.store()?;
        let transaction = match mode {
            Mode::Exchange(sum) => Some(Transaction::new(sum)?),
            _ => None,
        };
        let mut unique = None;
        let (direction, parallelism, mut job) = match what {
            What::List(listing) if listing.form == Form::Catalogue => {
                let opened = self.open_catalogue(listing.path)?;
                let job = Download::opened(mode, opened);
                (Direction::Send, 1, Job::Download(Box::new(job)))
            }
            What::SendSegment { request, path } => {
                let catalogue = self.catalogue(&path, request.transaction)?;
                let memory = std::mem::take(&mut self.memory);
                let segment = Segment::new(store, path, catalogue, &request, memory)?;
                let job = Download::segment(mode, segment);
                (Direction::Send, wanted, Job::Download(Box::new(job)))
            }
            What::StoreSegment {
                compression,
                overwrites,
                path,
                announced,
            } => {
                let root = path.clone();
                let memory = std::mem::take(&mut self.memory);
                let segment =
                    Arriving::new(store, root, compression, overwrites, announced, memory);
                let job = Upload::segment(mode, path, segment);
                (Direction::Receive, 1, Job::Upload(Box::new(job)))
            }
            What::List(listing) => {
                let job = Download::rows(mode, self.rows(&listing)?);
                (Direction::Send, 1, Job::Download(Box::new(job)))
            }
            What::Send {
                path,
                part,
                restart,
            } => {
                let job = Download::file(&*store, mode, path, part, restart)?;
                (Direction::Send, wanted, Job::Download(Box::new(job)))
            }
            What::Store {
                path,
                announced,
                place,
                restart,
            } => {
                let path = match place {
                    Place::Unique => {
                        let path = self.unique(path);
                        unique = Some(path.clone());
                        path
                    }
                    _ => path,
                };
                let job = Upload::open(&*store, mode, path, place, restart, announced)?;
                (Direction::Receive, 1, Job::Upload(Box::new(job)))
            }
        };
        // In MODE X either side may open connections, whichever sends.
        let parallelism = transaction.map_or(parallelism, |_| wanted);
        self.channels.set_buffers(socket_buffer);
        match route {
            Route::Connect(target) => self.channels.connect_later(vec![target]),
            Route::Passive => self.channels.listen_later(),
            Route::Told => {}
        }
        let prepared = match self.prepare_striped(&mut job, wanted, layout, &protection) {
            Ok(None) => {
                self.channels
                    .prepare(&self.poller, direction, mode, parallelism, protection)
            }
            Ok(Some(prepared)) => Ok(prepared),
            Err(fault) => {
                self.drop_failed(&mut job, &fault);
                return Err(fault);
            }
        };
        let prepared = prepared.inspect_err(|_| {
            job.discard();
            if route != Route::Told {
                self.channels.clear();
            }
        })?;
        if let Some(address) = prepared.delayed {
            self.machine.delayed(address);
        }
        if let Some(transaction) = transaction {
            job.exchange(transaction, parallelism);
        }
        let transaction = transaction.map(|own| own.id);
        self.machine
            .begun(prepared.reuses, unique.as_deref(), transaction);
        let of: fn(&Tally) -> &Gauge = match job {
            Job::Upload(_) => |tally| &tally.receiving,
            _ => |tally| &tally.sending,
        };
        self.running = Some(Gauge::one(&self.context.tally, of));
        self.job = Some(job);
        self.moved_at = self.context.clock.instant();
        Ok(())
    }

    /// Begins a transaction about a tree.
    fn open_catalogue(&self, path: Vec<u8>) -> Result<Opened, Fault> {
        let listing = Listing {
            form: Form::Catalogue,
            path,
            prefix: Vec::new(),
        };
        let user = self.user.as_ref().map_or("", |user| user.name.as_str());
        // Where nobody has a name, each address is somebody else.
        let held = match user.is_empty() {
            true => self
                .context
                .listings
                .begin(&self.shared.network.to_string()),
            false => self.context.listings.begin(user),
        };
        let opened = Opened::new(&listing.path, self.rows(&listing)?, held)?;
        let mut kept = locked(&self.context.catalogues);
        kept.keep(user, &listing.path, &opened.catalogue);
        Ok(opened)
    }

    /// The transaction with this id, if the tree hasn't changed since.
    fn catalogue(&self, path: &[u8], id: TransactionId) -> Result<Arc<Catalogue>, Fault> {
        let user = self.user.as_ref().map_or("", |user| user.name.as_str());
        if let Some(kept) = locked(&self.context.catalogues).get(user, path, id) {
            return Ok(kept);
        }
        let now = self.open_catalogue(path.to_vec())?.catalogue;
        if now.id == id {
            return Ok(now);
        }
        let cause = "the tree has changed since this transaction began";
        let fault = Fault::new(Code::Stale, "send", cause).path(path);
        Err(fault.hint("begin another one with MLSR"))
    }

    /// A path that no file has, as far as the clock tells; if one has it all the same, the transfer
    /// is refused.
    fn unique(&self, base: Vec<u8>) -> Vec<u8> {
        let now = self.context.clock.time().duration_since(UNIX_EPOCH);
        let suffix = format!(".{:x}", now.map_or(0, |now| now.as_nanos()));
        [base, suffix.into_bytes()].concat()
    }

    /// Goes on with the job. Returns whether it can go on at once.
    fn work(&mut self) -> bool {
        self.paused_until = None;
        let Some(mut job) = self.job.take() else {
            return false;
        };
        if job.uses_buffer() {
            self.buffer.resize(BUFFER_BYTES, 0);
        }
        let user = self.user.as_mut();
        let mut link = Link {
            buffer: &mut self.buffer,
            channels: &mut self.channels,
            control: self.control.stream(),
            machine: &mut self.machine,
            poller: &self.poller,
            clock: &*self.context.clock,
            share: user.and_then(|user| user.share.as_mut()),
            started: self.started,
            has_moved: false,
            moved_bytes: 0,
            paused_until: None,
        };
        let result = job.step(&mut link);
        let moved_bytes = link.moved_bytes;
        if link.has_moved {
            self.moved_at = self.context.clock.instant();
        }
        let tally = &self.context.tally;
        match &job {
            Job::Checksum(_) => {}
            Job::Download(_) => tally.sent_bytes.add(moved_bytes),
            Job::Upload(_) => tally.received_bytes.add(moved_bytes),
        }
        match result {
            Ok(Step::Done(outcome)) => {
                if let Some(mode) = job.mode() {
                    self.channels.settle(mode);
                }
                self.running = None;
                match &job {
                    Job::Checksum(_) => {}
                    Job::Download(_) => tally.sent.add(1),
                    Job::Upload(_) => tally.received.add(1),
                }
                self.machine.complete(Ok(outcome));
                self.active_at = self.context.clock.instant();
                if let Some(memory) = job.take_memory() {
                    self.memory = memory;
                }
                // The next command may have come already.
                true
            }
            Ok(step) => {
                self.job = Some(job);
                if let Step::Paused(until) = step {
                    self.paused_until = Some(until);
                }
                matches!(step, Step::Again)
            }
            Err(fault) => {
                self.job = Some(job);
                self.fail(fault);
                true
            }
        }
    }

    /// The running action has failed.
    fn fail(&mut self, fault: Fault) {
        let what = match (&self.running, self.machine.is_logged_in()) {
            (Some(_), _) => Failing::Transfer,
            (None, true) => Failing::Call,
            (None, false) => Failing::Login,
        };
        self.fail_as(what, fault);
    }

    fn fail_as(&mut self, what: Failing, fault: Fault) {
        tracing::debug!(%fault, "a GridFTP command fails");
        self.running = None;
        self.context.tally.failures.count(what, fault.code);
        if let Some(mut job) = self.job.take() {
            self.drop_failed(&mut job, &fault);
        }
        self.machine.complete(Err(fault));
        self.active_at = self.context.clock.instant();
    }

    /// When the wait for anything has to end, and why.
    fn deadline(&self) -> (Instant, &'static str) {
        let options = &self.context.options;
        match (&self.job, self.machine.is_logged_in()) {
            (Some(_), _) => (self.moved_at + options.stall_timeout, ""),
            (None, true) => (
                self.active_at + options.idle_timeout,
                "Idle timeout: closing the control connection.",
            ),
            (None, false) => (
                self.started + options.login_timeout,
                "Login timeout: closing the control connection.",
            ),
        }
    }

    fn watch_time(&mut self, now: Instant) {
        let (deadline, why) = self.deadline();
        if now >= deadline {
            match self.job.is_some() {
                true => {
                    let cause = "nothing moved on the data connections for too long";
                    self.fail(Fault::new(Code::DeadlineExceeded, "transfer a file", cause));
                }
                false => self.machine.end(why),
            }
        }
        if self.job.is_none() && now >= self.active_at + KEPT {
            (self.buffer, self.memory) = (Vec::new(), SegmentMemory::default());
        }
        let ends_at = *locked(&self.shared.ends_at);
        let drained = *locked(&self.context.ends_at);
        if let Some((ends_at, why)) = ends_at.or_else(|| drained.map(|at| (at, DRAINED))) {
            if now >= ends_at && self.job.is_some() {
                let cause = "the server ends the session";
                self.fail(Fault::new(Code::ShuttingDown, "transfer a file", cause));
            }
            if self.job.is_none() {
                self.machine.end(why);
            }
        }
    }

    /// Time until something has to be done without an event.
    fn timeout(&self, now: Instant) -> Duration {
        if self.closes_by.is_some() || (self.job.is_none() && self.machine.has_output()) {
            return Duration::from_millis(100);
        }
        let (mut next, _) = self.deadline();
        if self.job.is_none() && (!self.buffer.is_empty() || !self.memory.is_empty()) {
            next = next.min(self.active_at + KEPT);
        }
        if let Some(since) = self.unread_since {
            next = next.min(since + self.context.options.stall_timeout);
        }
        if let Some(at) = self.job.as_ref().and_then(Job::next_time) {
            next = next.min(at);
        }
        if let Some((at, _)) = *locked(&self.shared.ends_at) {
            next = next.min(at);
        }
        if let Some(at) = self.channels.gives_up_at()
            && self.job.is_some()
        {
            next = next.min(at);
        }
        if let Some(at) = self.paused_until {
            next = next.min(at);
        }
        // Rounded up, so that it isn't woken before the time.
        next.saturating_duration_since(now) + Duration::from_millis(1)
    }
}

/// The machine offers GSI only where there is some.
fn no_gsi() -> Fault {
    let cause = "there is no security context";
    Fault::new(Code::Internal, "authenticate", cause)
}
