//! The data connections of a session: listened for or opened, and kept for the next transfer in
//! MODE E.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::Interest;
use mio::net::{TcpListener, TcpStream};
use socket2::SockRef;
use xdfs_access::{Access, Peer, Permit};
use xdfs_proto::{Code, Fault};
use xdfs_store::tally::{Gauge, One, Tally};
use xdfs_sys::poll::{Event, Poller, Token};

use super::stripes::Stripes;
use super::tls::{Direction, SessionTls};
use super::{Context, passive};
use crate::block::BlockReader;
use crate::command::Mode;
use crate::receiver::CONNECTIONS_MAX;
use crate::session::Protection;
use crate::wire::Wire;

/// The token of the control connection.
pub(super) const CONTROL: Token = Token(0);
const LISTENER: Token = Token(1);
const FIRST: usize = 2;
/// Connections of strangers to a passive port that a transfer puts up with.
const STRANGERS_MAX: usize = 16;
/// Time in which another one has to come after a stranger's, if there is none.
const PATIENCE: Duration = Duration::from_secs(30);

/// A data connection.
#[derive(Debug)]
pub(super) struct Connection {
    wire: Wire,
    token: Token,
    /// The receiver to which it leads.
    pub(super) group: usize,
    /// This side has opened it.
    pub(super) is_own: bool,
    /// In MODE X, why it is of no use.
    pub(super) broken: Option<Fault>,
    is_open: bool,
    is_readable: bool,
    is_writable: bool,
    /// What arrives on it.
    pub(super) blocks: BlockReader,
    /// A header and payload on their way, and how much of them is sent.
    pub(super) block: Vec<u8>,
    sent: usize,
    /// Of the limits of the user.
    _permit: Option<Permit>,
    /// In the figures of the server.
    _one: One<Tally>,
}

/// All of a session. See the module documentation.
#[derive(Debug)]
pub(super) struct Channels {
    context: Arc<Context>,
    local: IpAddr,
    peer: IpAddr,
    listener: Option<TcpListener>,
    may_accept: bool,
    /// Connections of any host are taken.
    takes_others: bool,
    delays: bool,
    targets: Vec<SocketAddr>,
    /// Those of data nodes.
    pub(super) stripes: Stripes,
    /// Of the open connections.
    direction: Option<Direction>,
    /// Others go on if one of the connections breaks (MODE X).
    outlives: bool,
    next_token: usize,
    buffer_bytes: Option<usize>,
    /// Of the control connection.
    tls: Option<SessionTls>,
    #[cfg(feature = "gsi")]
    gsi: Option<super::gsi::DataSecurity>,
    /// Of the present connections and later ones.
    protection: Protection,
    /// Whose connections they are.
    user: Option<(Arc<Access>, Peer, String)>,
    pub(super) connections: Vec<Connection>,
    /// Accepted ones whose other end has to prove who it is: anybody may have opened them.
    unproved: Vec<Connection>,
    /// Those of the transfer that were dropped, when the last one was, and why.
    strangers: usize,
    last_stranger: Option<(Instant, Fault)>,
}

/// How the connections of a transfer come about.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// Those of the last transfer are used.
    pub(super) reuses: bool,
    /// The address of a listener that was delayed.
    pub(super) delayed: Option<SocketAddr>,
}

/// The most connections that each of so many receivers can have: none is left without.
pub(super) fn connections_each(receivers: usize) -> u32 {
    let each = CONNECTIONS_MAX / (receivers as u64).max(1);
    u32::try_from(each).unwrap_or(u32::MAX).max(1)
}

fn refused(cause: &str) -> Fault {
    Fault::new(Code::ConnectionRefused, "open data connections", cause)
}

impl Channels {
    pub(super) fn new(context: Arc<Context>, local: IpAddr, peer: IpAddr) -> Self {
        Self {
            takes_others: context.options.third_party,
            context,
            local: local.to_canonical(),
            peer: peer.to_canonical(),
            listener: None,
            may_accept: false,
            delays: false,
            targets: Vec::new(),
            stripes: Stripes::default(),
            direction: None,
            outlives: false,
            next_token: FIRST,
            buffer_bytes: None,
            tls: None,
            #[cfg(feature = "gsi")]
            gsi: None,
            protection: Protection::Clear,
            user: None,
            connections: Vec::new(),
            unproved: Vec::new(),
            strangers: 0,
            last_stranger: None,
        }
    }

    /// From now on connections count against the limits of this user.
    pub(super) fn count_for(&mut self, access: Arc<Access>, peer: Peer, user: String) {
        self.user = Some((access, peer, user));
    }

    /// From now on connections can be protected.
    pub(super) fn protect_by(&mut self, tls: SessionTls) {
        self.tls = Some(tls);
    }

    /// From now on connections can have security contexts.
    #[cfg(feature = "gsi")]
    pub(super) fn secure_by(&mut self, security: super::gsi::DataSecurity) {
        self.gsi = Some(security);
    }

    /// Closes everything.
    pub(super) fn clear(&mut self) {
        self.stripes.clear();
        self.listener = None;
        self.delays = false;
        self.targets.clear();
        self.direction = None;
        self.connections.clear();
        self.unproved.clear();
    }

    /// Closes everything, and connects to these addresses at the next transfer.
    pub(super) fn connect_later(&mut self, targets: Vec<SocketAddr>) {
        self.clear();
        self.targets = targets;
    }

    /// Closes everything, and listens at the next transfer.
    pub(super) fn listen_later(&mut self) {
        self.clear();
        self.delays = true;
    }

    /// From now on connections of this host are taken, and of no other; of any for `None`.
    pub(super) fn take_from(&mut self, host: Option<IpAddr>) {
        self.takes_others = host.is_none();
        self.peer = host.map_or(self.peer, |host| host.to_canonical());
    }

    /// Closes everything, and listens. Returns the address to tell.
    ///
    /// # Errors
    /// No port is free.
    pub(super) fn listen(&mut self, poller: &Poller) -> Result<SocketAddr, Fault> {
        self.clear();
        let options = &self.context.options;
        let fault = |error: io::Error| {
            let fault = Fault::from_io("listen for data connections", "", &error);
            fault.hint("the server's administrator can allow more ports")
        };
        let listener = passive::listen(self.local, options.ports.as_ref(), &self.context.next_port);
        let mut listener = listener.map_err(fault)?;
        let (registry, token) = (poller.registry(), mio::Token(LISTENER.0));
        let watched = registry.register(&mut listener, token, Interest::READABLE);
        watched.map_err(fault)?;
        let own = listener.local_addr().map_err(fault)?;
        self.listener = Some(listener);
        self.may_accept = true;
        let told = options.address.map_or_else(|| own.ip(), IpAddr::V4);
        Ok(SocketAddr::new(told, own.port()))
    }

    /// Makes connections ready for a transfer, or begins to open them.
    ///
    /// # Errors
    /// There is no way to open any, or those of the last transfer are closed; or they are to be
    /// protected and would lead to another host.
    pub(super) fn prepare(
        &mut self,
        poller: &Poller,
        direction: Direction,
        mode: Mode,
        parallelism: u32,
        protection: Protection,
    ) -> Result<Prepared, Fault> {
        (self.strangers, self.last_stranger) = (0, None);
        // The peer counts the connections of all.
        self.stripes.clear();
        let is_same = protection == self.protection;
        self.protection = protection;
        self.outlives = matches!(mode, Mode::Exchange(_));
        if self.direction.is_some() {
            if mode == Mode::Extended && self.direction == Some(direction) && is_same {
                return self.reuse();
            }
            self.connections.clear();
            self.unproved.clear();
            self.direction = None;
        }
        let is_foreign = |to: &SocketAddr| to.ip().to_canonical() != self.peer;
        if self.protection == Protection::Tls && self.targets.iter().any(is_foreign) {
            let cause = "protected data connections go to the client's own address only";
            return Err(refused(cause).hint("use PROT C"));
        }
        if mode == Mode::Extended {
            let is_passive = self.listener.is_some() || self.delays;
            match direction {
                Direction::Send if is_passive => {
                    return Err(refused("in MODE E the sender connects: use PORT first"));
                }
                Direction::Receive if !self.targets.is_empty() => {
                    return Err(refused("in MODE E the sender connects: use PASV first"));
                }
                _ => {}
            }
        }
        if self.outlives && self.targets.len() > 1 {
            return Err(refused("MODE X has one address: use PORT"));
        }
        let mut prepared = Prepared::default();
        let is_possible = self.delays || !self.targets.is_empty() || self.listener.is_some();
        if !is_possible {
            return Err(refused("use PASV or PORT first"));
        }
        if self.delays {
            prepared.delayed = Some(self.listen(poller)?);
        }
        self.direction = Some(direction);
        if !self.targets.is_empty() {
            self.open(
                poller,
                match mode {
                    Mode::Stream => 1,
                    Mode::Exchange(_) | Mode::Extended => parallelism,
                },
            )?;
        }
        if let Some(listener) = self.listener.as_ref().filter(|_| mode != Mode::Stream) {
            passive::expect_many(listener);
        }
        Ok(prepared)
    }

    /// Whether the connections of the next transfer would be new ones, to these addresses.
    pub(super) fn fresh_targets(&self) -> Option<&[SocketAddr]> {
        let is_fresh = self.direction.is_none() && !self.targets.is_empty();
        is_fresh.then_some(&*self.targets)
    }

    /// The client's address; `None` if connections of other hosts are taken too.
    pub(super) fn only_peer(&self) -> Option<IpAddr> {
        (!self.takes_others).then_some(self.peer)
    }

    /// Of the client.
    pub(super) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// What has been asked for by [`Self::set_buffers`].
    pub(super) fn buffers(&self) -> Option<usize> {
        self.buffer_bytes
    }

    /// The sizes of the socket buffers of connections from now on.
    pub(super) fn set_buffers(&mut self, bytes: Option<usize>) {
        self.buffer_bytes = bytes;
    }

    fn reuse(&mut self) -> Result<Prepared, Fault> {
        for connection in &mut self.connections {
            let mut byte = [std::mem::MaybeUninit::uninit()];
            let peeked = SockRef::from(connection.wire.stream()).peek(&mut byte);
            let is_open = match peeked {
                Ok(bytes) => bytes > 0,
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            };
            if !is_open {
                let cause = "the data connections of the last transfer are closed";
                return Err(refused(cause).hint("use PASV or PORT again"));
            }
            connection.blocks.restart();
            connection.is_readable = true;
        }
        // All may be gone, if the listener is there for others.
        Ok(Prepared {
            reuses: !self.connections.is_empty(),
            delayed: None,
        })
    }

    /// Begins to open connections to every target.
    fn open(&mut self, poller: &Poller, parallelism: u32) -> Result<(), Fault> {
        let parallelism = parallelism.min(connections_each(self.targets.len()));
        for (group, target) in self.targets.clone().into_iter().enumerate() {
            for _ in 0..parallelism {
                let stream = TcpStream::connect(target);
                let stream = stream.map_err(|error| connect_fault(target, &error))?;
                self.add(poller, stream, group, false)?;
            }
        }
        Ok(())
    }

    /// Whether it is this side that opens connections.
    pub(super) fn connects(&self) -> bool {
        !self.targets.is_empty()
    }

    /// Begins to open one more connection.
    ///
    /// # Errors
    /// The user has too many. If it can't be opened, that isn't one.
    pub(super) fn connect_another(&mut self, poller: &Poller) -> Result<(), Fault> {
        let Some(target) = self.targets.first() else {
            return Ok(());
        };
        match TcpStream::connect(*target) {
            Ok(stream) => self.add(poller, stream, 0, false),
            Err(error) => {
                let fault = connect_fault(*target, &error);
                tracing::debug!(%fault, "a data connection isn't opened again");
                Ok(())
            }
        }
    }

    fn add(
        &mut self,
        poller: &Poller,
        stream: TcpStream,
        group: usize,
        is_open: bool,
    ) -> Result<(), Fault> {
        let user = self.user.as_ref();
        let permit = user.map(|(access, peer, user)| access.join(peer, user));
        let permit = permit.transpose()?;
        let token = Token(self.next_token);
        self.next_token += 1;
        // Hints: a system may refuse them.
        let _ = stream.set_nodelay(true);
        if let Some(bytes) = self.buffer_bytes {
            let socket = SockRef::from(&stream);
            let _ = socket.set_send_buffer_size(bytes);
            let _ = socket.set_recv_buffer_size(bytes);
        }
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = poller.registry();
        let mut wire = Wire::new(stream);
        if is_open {
            wire.suit_path();
        }
        let watched = registry.register(wire.stream_mut(), mio::Token(token.0), interest);
        watched.map_err(|error| Fault::from_io("watch a data connection", "", &error))?;
        self.protect(&mut wire, is_open)?;
        let connection = Connection {
            wire,
            token,
            group,
            is_own: !is_open,
            broken: None,
            is_open,
            is_readable: is_open,
            is_writable: is_open,
            blocks: BlockReader::new(),
            block: Vec::new(),
            sent: 0,
            _permit: permit,
            _one: Gauge::one(&self.context.tally, |tally| &tally.channels),
        };
        self.context.tally.channels_opened.add(1);
        match (is_open, &self.protection) {
            (true, Protection::Context { .. }) => self.unproved.push(connection),
            _ => self.connections.push(connection),
        }
        Ok(())
    }

    /// Begins with the protection of a connection, which the peer has opened if it `is_open`.
    fn protect(&self, wire: &mut Wire, is_open: bool) -> Result<(), Fault> {
        // The machine takes them on control connections that have the same only.
        let missing = || {
            let cause = "the control connection hasn't the same protection";
            Fault::new(Code::Internal, "protect a data connection", cause)
        };
        match &self.protection {
            Protection::Clear => Ok(()),
            Protection::Tls => {
                let tls = self.tls.as_ref().ok_or_else(missing)?;
                let direction = self.direction.ok_or_else(missing)?;
                let started = tls.protect_data(wire, direction);
                started.map_err(|error| Fault::from_io("protect a data connection", "", &error))
            }
            #[cfg(feature = "gsi")]
            Protection::Context { subject, seals } => {
                let role = match is_open {
                    true => xdfs_gsi::Role::Accepted,
                    false => xdfs_gsi::Role::Opened,
                };
                let security = self.gsi.as_ref().ok_or_else(missing)?;
                wire.protect_by(security.layer(role, subject.as_deref(), *seals)?);
                Ok(())
            }
            #[cfg(not(feature = "gsi"))]
            Protection::Context { .. } => {
                let _ = is_open;
                Err(missing())
            }
        }
    }

    /// Accepts connections as long as there are less than `most`. Those from other hosts are
    /// closed, as are some whose other end doesn't prove who it is.
    ///
    /// # Errors
    /// The listener failed, or the user has too many connections; too many strangers have come, or
    /// nobody else after one of them.
    pub(super) fn accept(&mut self, poller: &Poller, most: usize) -> Result<(), Fault> {
        self.accept_any(poller, most)?;
        let mut number = 0;
        while number < self.unproved.len() && self.connections.len() < most {
            match self.unproved[number].prove() {
                Ok(true) => {
                    let proved = self.unproved.remove(number);
                    self.connections.push(proved);
                }
                Ok(false) => number += 1,
                Err(fault) => self.drop_unproved(number, fault)?,
            }
        }
        let is_late = |at| self.context.clock.instant() >= at;
        match &self.last_stranger {
            Some((_, fault)) if self.gives_up_at().is_some_and(is_late) => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    /// When a transfer without connections ends because of a stranger's.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        let (at, _) = self.last_stranger.as_ref()?;
        self.connections.is_empty().then_some(*at + PATIENCE)
    }

    fn drop_unproved(&mut self, number: usize, fault: Fault) -> Result<(), Fault> {
        drop(self.unproved.remove(number));
        tracing::warn!(peer = %self.peer, %fault, "a data connection of somebody else is closed");
        self.strangers += 1;
        if self.strangers > STRANGERS_MAX {
            return Err(fault);
        }
        self.last_stranger = Some((self.context.clock.instant(), fault));
        Ok(())
    }

    fn accept_any(&mut self, poller: &Poller, most: usize) -> Result<(), Fault> {
        while self.may_accept && self.connections.len() < most {
            let Some(listener) = &self.listener else {
                return Ok(());
            };
            match listener.accept() {
                Ok((stream, from)) => {
                    let from = from.ip().to_canonical();
                    // TLS tells the client who this is, and not the other way round.
                    let takes_others = self.takes_others && self.protection != Protection::Tls;
                    if from != self.peer && !takes_others {
                        tracing::warn!(%from, peer = %self.peer, "a data connection of another \
                            host is refused");
                        continue;
                    }
                    // Silent ones must not keep others out.
                    if self.unproved.len() >= most.saturating_add(STRANGERS_MAX) {
                        let cause = "its other end proves nothing";
                        self.drop_unproved(0, refused(cause))?;
                    }
                    self.add(poller, stream, 0, true)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.may_accept = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    return Err(Fault::from_io("accept a data connection", "", &error));
                }
            }
        }
        Ok(())
    }

    /// Takes note of what the poller reports.
    ///
    /// # Errors
    /// A connection could not be opened.
    pub(super) fn event(&mut self, event: &Event) -> Result<(), Fault> {
        if event.token == LISTENER {
            self.may_accept = true;
            return Ok(());
        }
        let mut connections = self.connections.iter_mut().chain(&mut self.unproved);
        let Some(connection) = connections.find(|own| own.token == event.token) else {
            return Ok(());
        };
        let is_either = connection.wire.is_protected();
        connection.is_readable |= event.readable || is_either;
        connection.is_writable |= event.writable || is_either;
        if !connection.is_open
            && let Err(error) = connection.finish_opening()
        {
            let fault = Fault {
                code: Code::ConnectionRefused,
                ..Fault::from_io("open a data connection", "", &error)
            };
            match self.outlives {
                true => connection.broken = Some(fault),
                false => return Err(fault),
            }
        }
        Ok(())
    }

    /// A transfer has ended well: what is left is for the next one.
    pub(super) fn settle(&mut self, mode: Mode) {
        match mode {
            Mode::Exchange(_) | Mode::Stream => self.clear(),
            Mode::Extended => self.connections.iter_mut().for_each(Connection::settle),
        }
    }
}

fn connect_fault(target: SocketAddr, error: &io::Error) -> Fault {
    let fault = Fault::from_io(format!("connect to {target}"), "", error);
    Fault {
        code: Code::ConnectionRefused,
        ..fault
    }
}

impl Connection {
    fn finish_opening(&mut self) -> io::Result<()> {
        if let Some(error) = self.wire.stream().take_error()? {
            return Err(error);
        }
        match self.wire.stream().peer_addr() {
            Ok(_) => {
                self.is_open = true;
                self.wire.suit_path();
            }
            // Not yet.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => self.is_writable = false,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether the other end has proved who it is.
    ///
    /// # Errors
    /// It is somebody else, or the connection is broken.
    fn prove(&mut self) -> Result<bool, Fault> {
        match self.wire.prove() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(lost("open a data connection", &error)),
        }
    }

    /// Gives back memory that an idle connection doesn't need.
    fn settle(&mut self) {
        self.block = Vec::new();
        self.sent = 0;
    }

    /// Its number, which no other of the session has.
    pub(super) fn id(&self) -> u64 {
        self.token.0 as u64
    }

    pub(super) fn can_read(&self) -> bool {
        self.is_open && self.is_readable
    }

    pub(super) fn can_write(&self) -> bool {
        self.is_open && self.is_writable
    }

    /// Whether everything of the block is sent.
    pub(super) fn is_free(&self) -> bool {
        self.sent == self.block.len()
    }

    /// Begins with another block, which the caller appends to [`Self::block`].
    pub(super) fn begin_block(&mut self) {
        self.block.clear();
        self.sent = 0;
    }

    /// Sends what can be sent. Returns the number of bytes.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn send(&mut self) -> Result<usize, Fault> {
        match uninterrupted(|| self.wire.write(&self.block[self.sent..])) {
            Ok(bytes) => {
                self.sent += bytes;
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_writable = false;
                Ok(0)
            }
            Err(error) => {
                // What came before may still be there.
                self.is_readable = true;
                Err(lost("send", &error))
            }
        }
    }

    /// Reads once; `None` if there is nothing now, and 0 at the end.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Fault> {
        match uninterrupted(|| self.wire.read(buffer)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_readable = false;
                Ok(None)
            }
            Err(error) => Err(lost("receive", &error)),
        }
    }

    /// Whether the peer has told the end within a security context.
    pub(super) fn has_told_end(&self) -> bool {
        self.wire.has_told_end()
    }

    /// Sends what TLS holds. Returns whether nothing is left.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn flush(&mut self) -> Result<bool, Fault> {
        let flushed = self.wire.flush();
        self.is_done(flushed)
    }

    /// Ends a file in stream mode. Returns whether that is on its way.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn end(&mut self) -> Result<bool, Fault> {
        let ended = self.wire.end();
        self.is_done(ended)
    }

    fn is_done(&mut self, result: io::Result<()>) -> Result<bool, Fault> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_writable = false;
                Ok(false)
            }
            Err(error) => Err(lost("send", &error)),
        }
    }
}

/// Calls until no signal interrupts: a transfer waits for an event after a call that brings
/// nothing, and none would come.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The fault of a broken data connection.
pub(super) fn lost(operation: &str, error: &io::Error) -> Fault {
    #[cfg(feature = "gsi")]
    if let Some(fault) = error.get_ref().and_then(|cause| cause.downcast_ref()) {
        let fault: &Fault = fault;
        let error = io::Error::new(error.kind(), super::gsi::told(fault.clone()));
        return Fault {
            code: Code::ConnectionLost,
            hint: String::new(),
            ..Fault::from_io(operation, "", &error)
        };
    }
    let fault = Fault::from_io(operation, "", error);
    Fault {
        code: Code::ConnectionLost,
        hint: String::new(),
        ..fault
    }
}
