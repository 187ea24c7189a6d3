//! A control connection with its data connections: sockets, and waiting with bounds.
//!
//! One thread uses it at a time. In MODE E the data connections stay open for the next transfer in
//! the same direction. Active connections are accepted from the server's own address only, and
//! passive ones lead to it only, except for the data nodes that the user has named (`striping`).

#[cfg(feature = "gsi")]
mod negotiation;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::Interest;
use mio::net::{TcpListener, TcpStream};
use xdfs_proto::{Code, Fault};
use xdfs_store::check_cancelled;
use xdfs_sys::poll::{Event as Ready, Poller, Token};

use super::Settings;
use super::carrier::{Carried, Ends, explained};
use super::channel::{Channel, Direction, Mode};
use super::dialogue::{Dialogue, Event, check_path};
use super::fault::{
    ended, lacks_password, lost, node_lost, of_opening, refused, stalled, unprotected, violation,
};
use super::features::Features;
use super::protection::{Established, Protection};
use super::slots::Slot;
use super::striping::{Striping, connect_to};
use super::tls::{SessionTls, Tls};
use super::told::quoted;
use super::tree::Home;
use crate::receiver::CONNECTIONS_MAX;
use crate::reply::Reply;
use crate::wire::Wire;

/// Data connections for a large file, unless the user says otherwise.
pub(super) const CHANNELS: u32 = 4;
/// Time for a connection to be opened.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest time in which nothing happens.
pub(super) const STALL: Duration = Duration::from_secs(60);
/// Time for a server to end a transfer and remove its file.
const ABANDON: Duration = Duration::from_secs(3);
/// Hidden files that are removed in one round trip.
const DELETED_AT_ONCE: usize = 64;
/// Interval of looks at whether a call is still wanted.
const TICK: Duration = Duration::from_millis(200);
/// Bytes of replies that are read at once.
const REPLY_BYTES: usize = 16 << 10;
/// A directory that isn't there. A server that drops its bytes finds the current one.
const PROBE: &str = "./\u{e4}\u{df}\u{f1}\u{153}\u{142}\u{17e}";
/// The password of anonymous users, by custom something like an address of mail.
const ANONYMOUS_PASSWORD: &str = "xdfs@";

const CONTROL: Token = Token(0);
const LISTENER: Token = Token(1);
const FIRST: usize = 2;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Link {
    poller: Poller,
    ready: Vec<Ready>,
    control: Wire,
    can_read: bool,
    has_ended: bool,
    dialogue: Dialogue,
    /// The server's address.
    pub(super) peer: IpAddr,
    local: IpAddr,
    listeners: Vec<TcpListener>,
    pub(super) channels: Vec<Channel>,
    next_token: usize,
    pub(super) mode: Mode,
    /// Where the server listens in MODE X.
    pub(super) passive_at: Option<SocketAddr>,
    /// Of the open channels, with the number that the server was asked for.
    prepared: Option<(Direction, u32)>,
    told_parallelism: Option<u32>,
    pub(super) features: Features,
    /// The server drops bytes of names that are not ASCII, as the Globus server does.
    drops_bytes: bool,
    /// Where paths begin.
    pub(super) home: Home,
    /// Time from a command to its reply.
    pub(super) round_trip: Duration,
    /// Nobody wants anything any more.
    is_closed: Arc<AtomicBool>,
    /// What is left behind is removed, which is done to its end.
    is_ending: bool,
    protection: Established,
    /// If files are striped.
    pub(super) striping: Option<Striping>,
    /// Ends after the connection.
    carried: Option<Carried>,
    /// Free after both.
    slot: Slot,
}

impl Link {
    /// Connects and logs in.
    ///
    /// # Errors
    /// The server can't be reached, or refuses the user.
    pub(super) fn connect(
        settings: &Settings,
        is_closed: &Arc<AtomicBool>,
        slot: Slot,
    ) -> Result<Self, Fault> {
        if let Some(carrier) = &settings.carrier {
            let (stream, ends) = carrier.open(is_closed)?;
            let opened = Self::log_in(stream, ends, settings, Arc::clone(is_closed), slot);
            return opened.map_err(|fault| carrier.hinted(fault));
        }
        let operation = format!("connect to {}:{}", settings.host, settings.port);
        let addresses = (settings.host.as_str(), settings.port).to_socket_addrs();
        let addresses = addresses.map_err(|error| {
            Fault::new(Code::ConnectionRefused, &operation, error.to_string())
                .hint("check the name of the host")
        })?;
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for address in addresses {
            match std::net::TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => {
                    let ends = Ends::of(&stream)?;
                    return Self::log_in(stream, ends, settings, Arc::clone(is_closed), slot);
                }
                Err(error) => last = error,
            }
        }
        Err(lost(&operation, &last).hint("is an FTP server running there?"))
    }

    fn log_in(
        stream: std::net::TcpStream,
        ends: Ends,
        settings: &Settings,
        is_closed: Arc<AtomicBool>,
        slot: Slot,
    ) -> Result<Self, Fault> {
        let failed = |error: io::Error| lost("open the control connection", &error);
        stream.set_nonblocking(true).map_err(failed)?;
        // A hint.
        let _ = stream.set_nodelay(true);
        let mut control = TcpStream::from_std(stream);
        let poller = Poller::new().map_err(failed)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = poller
            .registry()
            .register(&mut control, mio::Token(CONTROL.0), interest);
        registered.map_err(failed)?;
        let mut link = Self {
            poller,
            ready: Vec::new(),
            control: Wire::new(control),
            can_read: true,
            has_ended: false,
            dialogue: Dialogue::new(),
            peer: ends.peer,
            local: ends.local,
            listeners: Vec::new(),
            channels: Vec::new(),
            next_token: FIRST,
            mode: Mode::Stream,
            passive_at: None,
            prepared: None,
            told_parallelism: None,
            features: Features::default(),
            drops_bytes: false,
            home: Home {
                directory: b"/".to_vec(),
                origin: settings.paths,
            },
            round_trip: Duration::ZERO,
            is_closed,
            is_ending: false,
            protection: Established::None,
            striping: settings.stripes.clone().map(|wanted| {
                Striping::new(wanted, format!("{}:{}", settings.host, settings.port))
            }),
            carried: ends.carried,
            slot,
        };
        // Servers that ssh starts get none.
        if let (Some(password), None) = (&settings.password, &settings.carrier) {
            link.dialogue.hide(password.as_bytes());
        }
        link.dialogue.input(&ends.greeting);
        link.greeted().map_err(of_opening)?;
        let nobody = match &settings.protection {
            Protection::None => "anonymous",
            Protection::Tls(tls) => {
                let channels = settings.channels.unwrap_or(CHANNELS);
                link.protect(tls, channels).map_err(of_opening)?;
                "anonymous"
            }
            #[cfg(feature = "gsi")]
            Protection::Gsi(gsi) => {
                link.negotiate(gsi, &settings.host)?;
                // Whom the server's map names.
                ":globus-mapping:"
            }
        };
        let user = settings.user.as_deref().unwrap_or(nobody);
        link.introduce(settings, user).map_err(of_opening)?;
        link.dialogue.hide(b"");
        Ok(link)
    }

    fn greeted(&mut self) -> Result<(), Fault> {
        let greeting = self.reply("connect")?;
        match greeting.code {
            220 => Ok(()),
            _ => Err(refused("connect", b"", &greeting)),
        }
    }

    /// Logs in, and asks what the server can do.
    fn introduce(&mut self, settings: &Settings, user: &str) -> Result<(), Fault> {
        let link = self;
        let began = Instant::now();
        let mut reply = link.exchange("USER", user.as_bytes())?;
        link.round_trip = began.elapsed();
        if reply.code == 331 {
            let password = settings.password.as_deref();
            let password = match (password, &settings.user) {
                (Some(password), _) => password,
                (None, Some(name)) if !is_anonymous(name) => match link.protection {
                    Established::None => "",
                    Established::Tls(_) => return Err(lacks_password(name)),
                    // Who the user is, is proved.
                    #[cfg(feature = "gsi")]
                    Established::Gsi { .. } => ANONYMOUS_PASSWORD,
                },
                _ => ANONYMOUS_PASSWORD,
            };
            reply = link.exchange("PASS", password.as_bytes())?;
        }
        if !matches!(reply.code, 200..300) {
            let fault = refused(&format!("log in as {user}"), b"", &reply);
            let hint = match link.carried {
                None => link.protection.login_hint(),
                Some(_) => "see whether what ssh starts there takes this user",
            };
            return Err(match reply.code {
                500.. => Fault {
                    code: Code::AuthenticationFailed,
                    ..fault.hint(hint)
                },
                _ => fault,
            });
        }
        // In one round trip.
        let questions = [
            ("FEAT", &b""[..]),
            ("TYPE", b"I"),
            ("PWD", b""),
            ("CWD", PROBE.as_bytes()),
        ];
        let wanted = link.protection.commands();
        for (verb, argument) in wanted.iter().chain(&questions) {
            link.command(verb, argument)?;
        }
        for (verb, argument) in wanted {
            let reply = link.reply("protect data connections")?;
            link.protection.check((verb, argument), &reply)?;
            tracing::debug!("the server takes {verb} {}", argument.escape_ascii());
        }
        link.features = Features::parse(&link.reply("ask for features")?);
        if link.striping.is_some() {
            Striping::limit(&mut link.features);
        }
        if let Some(option) = link.features.facts_option.clone() {
            // A refusal leaves it as it is.
            link.command("OPTS", option.as_bytes())?;
        }
        link.features.is_uncompared = settings.is_uncompared;
        link.features.is_exposed = link.carried.is_some() || link.protection.exposes_data();
        let typed = link.reply("choose the type I")?;
        if !matches!(typed.code, 200..300) {
            return Err(refused("choose the type I", b"", &typed));
        }
        let home = link.reply("ask for the directory")?;
        if let Some(path) = quoted(&home) {
            link.home.directory = path;
        }
        let entered = link.reply("try a name")?;
        link.drops_bytes = matches!(entered.code, 200..300);
        if link.features.facts_option.is_some() {
            link.reply("choose the facts of listings")?;
        }
        Ok(())
    }

    /// Refuses replies that nobody has asked for, where protection is about to begin.
    fn check_no_input(&self, operation: &str, behind: &str) -> Result<(), Fault> {
        if !self.dialogue.has_input() {
            return Ok(());
        }
        let cause = format!(
            "there are bytes in clear behind {behind}: somebody on the way may have put them there"
        );
        Err(violation(operation, cause))
    }

    /// Protects the connection before anything but AUTH is sent (RFC 4217).
    ///
    /// # Errors
    /// The server refuses, or isn't the one that is trusted. Nothing goes on in clear then.
    fn protect(&mut self, tls: &Tls, channels: u32) -> Result<(), Fault> {
        let operation = "protect the control connection";
        self.check_no_input(operation, "the greeting")?;
        let reply = self.exchange("AUTH", b"TLS")?;
        if reply.code != 234 {
            return Err(unprotected(operation, "AUTH TLS", &reply));
        }
        self.check_no_input(operation, "the reply to AUTH")?;
        let mut own = SessionTls::new(tls, channels);
        let failed = |error: io::Error| lost(operation, &error);
        own.protect_control(&mut self.control).map_err(failed)?;
        let deadline = Instant::now() + STALL;
        loop {
            match self.control.handshake() {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.turn(operation, deadline)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        own.established(&self.control);
        self.can_read = true;
        self.protection = Established::Tls(own);
        Ok(())
    }

    /// Queues a command.
    ///
    /// # Errors
    /// The argument can't be sent.
    pub(super) fn command(&mut self, verb: &'static str, argument: &[u8]) -> Result<(), Fault> {
        self.check_bytes(argument)?;
        self.dialogue.command(verb, argument)
    }

    /// Fails unless every command about a path can be sent, and means this path.
    ///
    /// # Errors
    /// The path can't be sent, or the server takes it for another one.
    pub(super) fn check_path(&self, path: &[u8]) -> Result<(), Fault> {
        self.check_bytes(path).and_then(|()| check_path(path))
    }

    fn check_bytes(&self, argument: &[u8]) -> Result<(), Fault> {
        if !self.drops_bytes || argument.is_ascii() {
            return Ok(());
        }
        let cause = "the server drops the bytes of names that are not ASCII, and would take \
            another file for this one";
        Err(Fault::new(Code::InvalidArgument, "use the name", cause)
            .path(argument)
            .hint("give it a name of ASCII characters"))
    }

    /// Sends a command and waits for its final reply, which may be a refusal.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn exchange(&mut self, verb: &'static str, argument: &[u8]) -> Result<Reply, Fault> {
        self.command(verb, argument)?;
        self.reply(&format!("send {verb}"))
    }

    /// Sends a command, and fails unless it succeeds.
    ///
    /// # Errors
    /// It is refused, or the connection is broken.
    pub(super) fn must(
        &mut self,
        operation: &str,
        verb: &'static str,
        argument: &[u8],
    ) -> Result<Reply, Fault> {
        let reply = self.exchange(verb, argument)?;
        match reply.code {
            200..400 => Ok(reply),
            _ => Err(refused(operation, argument, &reply)),
        }
    }

    /// The final reply to the oldest command.
    ///
    /// # Errors
    /// The connection is broken, or the server says nothing for too long.
    pub(super) fn reply(&mut self, operation: &str) -> Result<Reply, Fault> {
        self.reply_within(operation, STALL)
    }

    /// The same with another bound.
    pub(super) fn reply_within(&mut self, operation: &str, time: Duration) -> Result<Reply, Fault> {
        let deadline = Instant::now() + time;
        loop {
            if let Some(Event::Final(reply)) = self.event()? {
                return Ok(reply);
            }
            self.turn(operation, deadline)?;
        }
    }

    /// Number of commands without a final reply.
    pub(super) fn pending(&self) -> usize {
        self.dialogue.pending()
    }

    /// Removes files, as far as the server does.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn delete_all(&mut self, paths: &[Vec<u8>]) -> Result<(), Fault> {
        for window in paths.chunks(DELETED_AT_ONCE) {
            for path in window {
                self.command("DELE", path)?;
            }
            for _ in window {
                let reply = self.reply("remove a hidden file")?;
                tracing::debug!(?reply, "a hidden file is removed");
            }
        }
        Ok(())
    }

    /// Ends a transfer, and removes what has come of it, even if nobody waits any more. Returns
    /// whether the server has answered; otherwise the connection is of no use.
    pub(super) fn abandon(&mut self, path: &[u8]) -> bool {
        self.end_by(&[("DELE", path)])
    }

    /// Ends a transfer with another server, and removes what has come of it, if that has a path.
    /// Returns the same as [`Self::abandon`].
    pub(super) fn abort(&mut self, path: Option<&[u8]>) -> bool {
        let aborts = (self.pending() > 0).then_some(("ABOR", &b""[..]));
        let commands: Vec<_> = aborts
            .into_iter()
            .chain(path.map(|path| ("DELE", path)))
            .collect();
        self.end_by(&commands)
    }

    fn end_by(&mut self, commands: &[(&'static str, &[u8])]) -> bool {
        self.close_channels();
        self.is_ending = true;
        let mut end = || {
            for (verb, argument) in commands {
                self.command(verb, argument)?;
            }
            while self.pending() > 0 {
                self.reply_within("end a transfer", ABANDON)?;
            }
            Ok::<(), Fault>(())
        };
        let ended = end();
        self.is_ending = false;
        if let Err(fault) = &ended {
            tracing::debug!(%fault, "a transfer is not ended");
        }
        ended.is_ok()
    }

    /// The next reply that has come.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn event(&mut self) -> Result<Option<Event>, Fault> {
        loop {
            if let Some(event) = self.dialogue.next_event()? {
                if let Event::Final(reply) = &event
                    && let Some(fault) = node_lost(reply, self.striping.is_some())
                {
                    // Nothing more comes of this session.
                    self.has_ended = true;
                    return Err(fault);
                }
                return Ok(Some(event));
            }
            if self.has_ended {
                let cause = "the server has closed the control connection";
                let fault = ended("wait for a reply", cause);
                return Err(explained(self.carried.as_mut(), fault));
            }
            if !self.can_read {
                return Ok(None);
            }
            let mut buffer = [0; REPLY_BYTES];
            match self.control.read(&mut buffer) {
                Ok(0) => self.has_ended = true,
                Ok(count) => self.dialogue.input(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.can_read = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost("read a reply", &error)),
            }
        }
    }

    /// The next reply that has come, on a connection on which nobody has waited for it.
    ///
    /// # Errors
    /// As [`Self::event`].
    pub(super) fn event_now(&mut self) -> Result<Option<Event>, Fault> {
        self.can_read = true;
        self.event()
    }

    /// Whether the server has neither closed the connection nor said anything unasked.
    pub(super) fn is_usable(&mut self) -> bool {
        // The event of an idle connection may not have been asked for.
        self.can_read = true;
        self.dialogue.pending() == 0 && matches!(self.event(), Ok(None))
    }

    /// Whether no data connection can prove any more that it belongs to this one.
    pub(super) fn is_used_up(&self) -> bool {
        self.protection.is_used_up()
    }

    /// Waits for so long.
    ///
    /// # Errors
    /// The call is no longer wanted.
    pub(super) fn rest(&self, time: Duration) -> Result<(), Fault> {
        let end = Instant::now() + time;
        loop {
            self.check_wanted("wait")?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(TICK));
        }
    }

    fn check_wanted(&self, operation: &str) -> Result<(), Fault> {
        if self.is_ending {
            return Ok(());
        }
        check_cancelled()?;
        if self.is_closed.load(Ordering::Relaxed) {
            let cause = "the session has ended";
            return Err(Fault::new(Code::Cancelled, operation, cause));
        }
        Ok(())
    }

    /// Sends what is queued, and waits until something is ready.
    ///
    /// # Errors
    /// The deadline has passed, the connection is broken, or the call is no longer wanted.
    pub(super) fn turn(&mut self, operation: &str, deadline: Instant) -> Result<(), Fault> {
        self.turn_within(operation, deadline, TICK)
    }

    /// The same, for so long at most.
    pub(super) fn turn_within(
        &mut self,
        operation: &str,
        deadline: Instant,
        most: Duration,
    ) -> Result<(), Fault> {
        self.check_wanted(operation)?;
        self.slot.touch();
        self.flush()?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(stalled(operation, STALL.as_secs()));
        }
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let waited = self.poller.wait(&mut ready, Some(left.min(most)));
        waited.map_err(|error| lost("wait", &error))?;
        for event in &ready {
            if event.token == CONTROL {
                // TLS may have had to write to go on reading.
                self.can_read |= event.readable || self.control.is_protected();
            } else if event.token == LISTENER {
                self.accept()?;
            } else if let Some(channel) = self.channels.iter_mut().find(|c| c.token == event.token)
            {
                match channel.note(event) {
                    Err(fault) if self.mode == Mode::Exchange => channel.broken = Some(fault),
                    noted => noted.map_err(|fault| channel.named(fault))?,
                }
            }
        }
        self.ready = ready;
        Ok(())
    }

    /// Sends what is queued, as far as it can be sent now.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        let out = self.dialogue.output();
        while !out.is_empty() {
            match self.control.write(out) {
                Ok(count) => drop(out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost("send a command", &error)),
            }
        }
        match self.control.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                Err(lost("send a command", &error))
            }
            _ => Ok(()),
        }
    }

    fn accept(&mut self) -> Result<(), Fault> {
        for stripe in 0..self.listeners.len() {
            self.accept_at(stripe)?;
        }
        Ok(())
    }

    fn accept_at(&mut self, stripe: usize) -> Result<(), Fault> {
        while let Some(listener) = self.listeners.get(stripe) {
            match listener.accept() {
                Ok((stream, from)) => {
                    if !self.takes(from.ip()) {
                        self.note_stranger(stripe, from.ip());
                        tracing::warn!(%from, "a data connection of another host is refused");
                    } else if self.channels.len() as u64 >= CONNECTIONS_MAX {
                        return Err(violation(
                            "accept a data connection",
                            format!("the server opens more than {CONNECTIONS_MAX}"),
                        ));
                    } else {
                        self.add(stream, true)?;
                        if let Some(channel) = self.channels.last_mut() {
                            channel.stripe = stripe;
                            channel.node = self.striping.is_some().then_some(from);
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(lost("accept a data connection", &error)),
            }
        }
        Ok(())
    }

    /// # Errors
    /// The system can't watch it, or nothing is left to prove to whom it belongs.
    pub(super) fn add(&mut self, mut stream: TcpStream, is_open: bool) -> Result<(), Fault> {
        let token = Token(self.next_token);
        self.next_token += 1;
        // A hint.
        let _ = stream.set_nodelay(true);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poller.registry();
        let watched = registry.register(&mut stream, mio::Token(token.0), interest);
        watched.map_err(|error| lost("watch a data connection", &error))?;
        let mut wire = Wire::new(stream);
        self.protection.protect_data(&mut wire, is_open)?;
        self.channels.push(Channel::new(wire, token, is_open));
        Ok(())
    }

    /// Closes all data connections.
    pub(super) fn close_channels(&mut self) {
        if self.channels.iter().any(Channel::has_resumed) {
            self.protection.note_resumed();
        }
        self.listeners.clear();
        self.channels.clear();
        self.prepared = None;
    }

    /// Whether the connections of such a transfer are there from the last one.
    pub(super) fn has_channels(&self, direction: Direction, parallelism: u32) -> bool {
        let wanted = Some((self.striped_direction(direction), parallelism));
        self.mode == Mode::Extended && self.prepared == wanted
    }

    /// The mode of the transfers that follow.
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Makes data connections ready for transfers in a direction.
    ///
    /// # Errors
    /// There is no way to open any.
    pub(super) fn prepare(
        &mut self,
        direction: Direction,
        mode: Mode,
        parallelism: u32,
    ) -> Result<(), Fault> {
        if mode == Mode::Exchange {
            return self.prepare_exchange(parallelism);
        }
        let direction = self.striped_direction(direction);
        if self.mode != mode {
            self.close_channels();
            let is_alone = direction == Direction::Send || mode == Mode::Stream;
            if is_alone || self.striping.is_some() {
                let chosen = self.all(vec![Self::mode_command(&self.features, mode)], mode);
                chosen.map_err(|fault| self.lacking_stripes(fault))?;
            }
        }
        if self.has_channels(direction, parallelism) {
            let count = self.channels.len();
            self.restart_channels();
            // The server may have closed them; a stripe without any would be none.
            let left = self.channels.len();
            if left > 0 && (left == count || self.striping.is_none()) {
                return Ok(());
            }
        }
        self.close_channels();
        match (direction, mode) {
            (Direction::List | Direction::Receive, Mode::Extended) => {
                let stripes = self.receiving_stripes(direction)?;
                let mut commands = Vec::new();
                if self.mode != mode {
                    commands.push(Self::mode_command(&self.features, mode));
                }
                if self.told_parallelism != Some(parallelism) {
                    commands.push(("OPTS", self.send_options(parallelism)));
                }
                commands.push(self.listen(stripes)?);
                // Until all of it is told.
                self.told_parallelism = None;
                match (self.all(commands, mode), stripes) {
                    (Err(fault), 2..) => return Err(self.lacking_stripes(fault)),
                    (told, _) => told?,
                }
                self.told_parallelism = Some(parallelism);
            }
            (Direction::Send, Mode::Extended) => {
                let addresses = self.passive_addresses()?;
                self.connect_each(&addresses, parallelism)?;
            }
            _ => {
                let address = self.passive()?;
                self.connect_each(&[address], 1)?;
            }
        }
        self.prepared = Some((direction, parallelism));
        Ok(())
    }

    /// Gets the open channels ready for the next transfer; those that the server has closed go.
    pub(super) fn restart_channels(&mut self) {
        self.channels.retain_mut(Channel::restart);
    }

    fn mode_command(features: &Features, mode: Mode) -> (&'static str, String) {
        let name = match mode {
            // The same, with segments.
            Mode::Extended if !features.segments.is_empty() => "T",
            Mode::Extended => "E",
            Mode::Stream | Mode::Exchange => "S",
        };
        ("MODE", name.to_owned())
    }

    /// Sends commands in one round trip, all of which have to succeed, and takes note of the mode
    /// if that does.
    fn all(&mut self, commands: Vec<(&'static str, String)>, mode: Mode) -> Result<(), Fault> {
        for (verb, argument) in &commands {
            self.command(verb, argument.as_bytes())?;
        }
        let mut all = Ok(());
        for (verb, argument) in commands {
            let operation = "prepare data connections";
            let reply = self.reply(operation)?;
            match reply.code {
                ..400 if verb == "MODE" => self.mode = mode,
                ..400 => {}
                _ if all.is_ok() => all = Err(refused(operation, argument.as_bytes(), &reply)),
                _ => {}
            }
        }
        all
    }

    /// Listens for active connections at one address for each stripe. Returns the command that
    /// tells the server where.
    fn listen(&mut self, stripes: usize) -> Result<(&'static str, String), Fault> {
        let operation = "listen for data connections";
        let failed = |error: io::Error| Fault::from_io(operation, "", &error);
        let mut addresses = Vec::with_capacity(stripes);
        for _ in 0..stripes {
            let listener = TcpListener::bind(SocketAddr::new(self.local, 0));
            let mut listener = listener.map_err(failed)?;
            let registry = self.poller.registry();
            let token = mio::Token(LISTENER.0);
            let watched = registry.register(&mut listener, token, Interest::READABLE);
            watched.map_err(failed)?;
            addresses.push(listener.local_addr().map_err(failed)?);
            self.listeners.push(listener);
        }
        self.forget_strangers();
        Ok(connect_to(&addresses))
    }

    /// The addresses of this machine at which the server's connections arrive.
    pub(super) fn arrivals(&self) -> usize {
        self.listeners.len()
    }
}

impl Drop for Link {
    /// Tells the server that TLS ends, so that it doesn't look like an attack.
    fn drop(&mut self) {
        if self.control.is_protected() {
            let _ = self.control.end();
        }
    }
}

/// Whether a name is one of those of the user who has no password.
fn is_anonymous(name: &str) -> bool {
    matches!(name, "anonymous" | "ftp")
}
