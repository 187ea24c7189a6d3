//! The thread of a control link at a data node: does what one session of a server asks for, until
//! the link is closed.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::Interest;
use rustls::{ServerConfig, ServerConnection};
use xdfs_proto::{Code, Fault, RangeSet};
use xdfs_store::SharedStore;
use xdfs_sys::poll::{Event, Poller};

use super::channels::{CONTROL, Channels};
use super::download::Download;
use super::job::Job;
use super::link::{Link, Step, Told};
use super::stripes::keep_alive;
use super::tls::Direction;
use super::upload::Upload;
use super::{Client, Context, Shared, locked};
use crate::command::Mode;
use crate::node::{ALPN, Lines, RANGES_MAX, Report, Request};
use crate::session::Protection;
use crate::wire::{Demand, Wire};

/// Bytes of payload that are read at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes of requests that are read at once.
const READ_BYTES: usize = 16 << 10;
/// Time to prove who it is.
const PROOF: Duration = Duration::from_secs(10);
/// Interval of reports while a file moves.
const INTERVAL: Duration = Duration::from_secs(1);
/// Reports that wait to be sent, beyond which no markers are made.
const REPORTS_MAX: usize = 64;

/// Whom a data node obeys, and what it has for them.
pub trait NodeRules: Send + Sync + fmt::Debug {
    /// TLS that takes only the keys of those servers.
    fn tls(&self) -> Arc<ServerConfig>;

    /// The store of a user; `None` for an anonymous one.
    ///
    /// # Errors
    /// There is nothing for this user here.
    fn store(&self, user: Option<&str>) -> Result<Arc<dyn SharedStore>, Fault>;
}

/// What is to be reported.
#[derive(Debug, Default)]
struct Reports(Vec<Report>);

impl Told for Reports {
    fn moved(&mut self, _bytes: u64) {}

    fn is_full(&self) -> bool {
        self.0.len() >= REPORTS_MAX
    }

    fn progress(&mut self, _: (usize, usize), _: u64, bytes: u64, durable: &RangeSet) {
        for some in durable.as_slice().chunks(RANGES_MAX) {
            let mut durable = RangeSet::new();
            some.iter().for_each(|range| durable.insert(*range));
            self.0.push(Report::Moved { bytes, durable });
        }
    }

    fn expected(&self) -> Option<u64> {
        None
    }

    fn is_unproved(&self, _is_told: bool) -> bool {
        false
    }
}

/// A link and all that it uses. They are dropped in this order: the link is closed after the file
/// of the job, since its end tells the server that nothing goes on.
struct Node<'a> {
    job: Option<Job>,
    channels: Channels,
    context: Arc<Context>,
    shared: &'a Shared,
    rules: &'a dyn NodeRules,
    poller: Poller,
    link: Wire,
    local: IpAddr,
    peer: IpAddr,
    lines: Lines,
    reports: Reports,
    output: Vec<u8>,
    buffer: Vec<u8>,
    started: Instant,
    moved_at: Instant,
    reports_at: Instant,
}

/// Serves a server until it closes the link.
pub(super) fn run(
    context: Arc<Context>,
    shared: &Shared,
    poller: Poller,
    client: Client,
    rules: &dyn NodeRules,
) {
    let peer = client.control.peer_addr();
    let peer = peer.map_or(client.local, |peer| peer.ip().to_canonical());
    let served =
        Node::new(context, shared, poller, client, peer, rules).and_then(|mut node| node.serve());
    match served {
        Ok(()) => tracing::debug!(%peer, "a server's link ends"),
        Err(error) => tracing::warn!(%peer, %error, "a server's link ends"),
    }
}

impl<'a> Node<'a> {
    fn new(
        context: Arc<Context>,
        shared: &'a Shared,
        poller: Poller,
        client: Client,
        peer: IpAddr,
        rules: &'a dyn NodeRules,
    ) -> io::Result<Self> {
        let Client {
            mut control, local, ..
        } = client;
        keep_alive(&control);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = poller.registry();
        registry.register(&mut control, mio::Token(CONTROL.0), interest)?;
        let mut link = Wire::new(control);
        let tls = ServerConnection::new(rules.tls()).map_err(io::Error::other)?;
        link.protect(tls, Demand::None);
        let now = context.clock.instant();
        Ok(Self {
            channels: Channels::new(Arc::clone(&context), local, peer),
            context,
            shared,
            rules,
            poller,
            link,
            local,
            peer,
            lines: Lines::default(),
            reports: Reports::default(),
            output: Vec::new(),
            job: None,
            buffer: Vec::new(),
            started: now,
            moved_at: now,
            reports_at: now,
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::new();
        loop {
            if self.read_requests()? {
                return Ok(());
            }
            // To make a file durable can take longer than the server waits for an answer.
            self.write_reports()?;
            let goes_on = self.work();
            self.write_reports()?;
            let now = self.context.clock.instant();
            if self.has_to_end(now)? {
                return Ok(());
            }
            let timeout = match goes_on {
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

    fn event(&mut self, event: &Event) {
        // Those of the link are looked at in any case.
        if event.token != CONTROL
            && let Err(fault) = self.channels.event(event)
        {
            self.fail(&fault);
        }
    }

    /// Takes requests. Returns whether the server has closed the link.
    fn read_requests(&mut self) -> io::Result<bool> {
        let mut bytes = [0; READ_BYTES];
        loop {
            while let Some(line) = self.lines.next_line().map_err(malformed)? {
                let is_idle = self.job.is_none() && self.reports.0.is_empty();
                if !is_idle || !self.output.is_empty() {
                    return Err(malformed("a request comes before another one is answered"));
                }
                let request = Request::decode(&line).map_err(malformed)?;
                if let Err(fault) = self.begin(request) {
                    self.fail(&fault);
                }
            }
            let room = self.lines.room().min(READ_BYTES);
            let read = self.link.read(&mut bytes[..room]);
            if !self.link.is_handshaking() && !self.shared.is_known.load(Ordering::Relaxed) {
                if self.link.alpn() != Some(ALPN) {
                    return Err(malformed("the other end doesn't speak this protocol"));
                }
                let place = self.context.log_in(self.shared);
                place.map_err(|fault| malformed(fault.cause))?;
                self.reports.0.push(Report::Hello);
            }
            match read {
                Ok(0) => return Ok(true),
                Ok(read) => self.lines.push(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The server was killed, or its session ended in a failure.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    fn begin(&mut self, request: Request) -> Result<(), Fault> {
        let line = request.encode();
        tracing::debug!(request = %line.trim_ascii().escape_ascii(), "a server's request");
        let direction = match request {
            Request::Listen { from } => {
                self.channels = Channels::new(Arc::clone(&self.context), self.local, self.peer);
                self.channels.take_from(from);
                let address = self.channels.listen(&self.poller)?;
                self.reports.0.push(Report::Listening(address));
                return Ok(());
            }
            Request::Send(order) => {
                let store = self.rules.store(order.user.as_deref())?;
                let job = Download::of_order(&*store, &order)?;
                self.job = Some(Job::Download(Box::new(job)));
                self.channels.set_buffers(order.socket_buffer);
                if !order.to.is_empty() {
                    self.channels.connect_later(order.to);
                }
                (Direction::Send, order.parallelism)
            }
            Request::Store(order) => {
                let store = self.rules.store(order.user.as_deref())?;
                let job = Upload::of_order(&*store, &order)?;
                self.job = Some(Job::Upload(Box::new(job)));
                (Direction::Receive, 1)
            }
        };
        let (direction, parallelism) = direction;
        let (mode, clear) = (Mode::Extended, Protection::Clear);
        self.channels
            .prepare(&self.poller, direction, mode, parallelism, clear)?;
        self.buffer.resize(BUFFER_BYTES, 0);
        self.moved_at = self.context.clock.instant();
        self.reports_at = self.moved_at + INTERVAL;
        self.reports.0.push(Report::Ready);
        Ok(())
    }

    /// Goes on with the job. Returns whether it can go on at once.
    fn work(&mut self) -> bool {
        let Some(mut job) = self.job.take() else {
            return false;
        };
        let mut link = Link {
            buffer: &mut self.buffer,
            channels: &mut self.channels,
            control: self.link.stream(),
            machine: &mut self.reports,
            poller: &self.poller,
            clock: &*self.context.clock,
            share: None,
            started: self.started,
            has_moved: false,
            moved_bytes: 0,
            paused_until: None,
        };
        let result = job.step(&mut link);
        let has_moved = link.has_moved;
        let now = self.context.clock.instant();
        if has_moved {
            self.moved_at = now;
        }
        let bytes = job.payload();
        let durable = RangeSet::new();
        match result {
            Ok(Step::Done(_)) => {
                self.channels.settle(Mode::Extended);
                self.reports.0.push(Report::Done { bytes, durable });
                self.buffer = Vec::new();
                false
            }
            Ok(step) => {
                if now >= self.moved_at + self.context.options.stall_timeout {
                    let cause = "nothing moved on the data connections for too long";
                    self.fail(&Fault::new(
                        Code::DeadlineExceeded,
                        "transfer a file",
                        cause,
                    ));
                    return false;
                }
                if now >= self.reports_at && !self.reports.is_full() {
                    self.reports_at = now + INTERVAL;
                    self.reports.0.push(Report::Moved { bytes, durable });
                }
                self.job = Some(job);
                matches!(step, Step::Again)
            }
            Err(fault) => {
                self.fail(&fault);
                false
            }
        }
    }

    /// The request has failed: nothing of it goes on.
    fn fail(&mut self, fault: &Fault) {
        tracing::debug!(%fault, "a server's request fails");
        self.job = None;
        self.channels.clear();
        self.buffer = Vec::new();
        self.reports.0.push(Report::of_fault(fault));
    }

    fn write_reports(&mut self) -> io::Result<()> {
        for report in self.reports.0.drain(..) {
            self.output.extend(report.encode());
        }
        while !self.output.is_empty() {
            match self.link.write(&self.output) {
                Ok(sent) => {
                    self.output.drain(..sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match self.link.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the time of this link is over.
    ///
    /// # Errors
    /// The other end doesn't prove who it is, or takes no reports.
    fn has_to_end(&self, now: Instant) -> io::Result<bool> {
        let is_known = self.shared.is_known.load(Ordering::Relaxed);
        if !is_known && now >= self.started + PROOF {
            return Err(malformed("the other end doesn't prove in time who it is"));
        }
        if self.output.len() > crate::node::LINE_BYTES_MAX * 8 {
            return Err(malformed("the server takes no reports"));
        }
        let ends_at = locked(&self.shared.ends_at).map(|(at, _)| at);
        let ends_at = ends_at.or_else(|| *locked(&self.context.ends_at));
        Ok(ends_at.is_some_and(|at| now >= at || self.job.is_none()))
    }

    fn timeout(&self, now: Instant) -> Duration {
        let is_known = self.shared.is_known.load(Ordering::Relaxed);
        let is_ending = locked(&self.shared.ends_at).is_some();
        let next = match &self.job {
            Some(job) => {
                let own = job.next_time().unwrap_or(self.reports_at);
                own.min(self.reports_at)
            }
            None if !is_known || is_ending => now + INTERVAL,
            None => now + Duration::from_secs(3600),
        };
        // Rounded up, so that it isn't woken before the time.
        next.saturating_duration_since(now) + Duration::from_millis(1)
    }
}

fn malformed(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
