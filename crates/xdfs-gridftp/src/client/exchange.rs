//! MODE X at the client: large files over connections that it opens, and opens again when they
//! break.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use xdfs_proto::{ByteRange, Code, Fault, RangeSet, Retry};

use super::channel::{Channel, Mode};
use super::early::Early;
use super::fault::{ended, lost, violation};
use super::link::Link;
use crate::reply::Reply;
use crate::xmode::{
    BLOCK_BYTES_MAX, Breach, Message, MessageReader, Receiver, Sender, Side, Sum, Taken, VERSION,
    WINDOW_BYTES,
};

const OPERATION: &str = "transfer data";
/// Bytes of messages that wait for a server that doesn't read, until nothing more is read from it.
const QUEUED_MAX: usize = 64 << 10;
/// Bytes of a file that wait to be sent for the first time.
const UNSENT_MAX: u64 = 1 << 20;
/// Reads between looks at the control connection.
const READS_MAX: usize = 256;
/// Time between two attempts to open another connection.
const PAUSE: Duration = Duration::from_millis(200);

impl Link {
    /// Begins to open connections of a transfer in MODE X.
    ///
    /// # Errors
    /// The server takes none.
    pub(super) fn prepare_exchange(&mut self, parallelism: u32) -> Result<(), Fault> {
        let operation = "prepare data connections";
        self.close_channels();
        if self.mode != Mode::Exchange {
            let sum = self.features.exchange.map_or("", Sum::name);
            let argument = format!("X {VERSION} {sum}");
            self.must(operation, "MODE", argument.as_bytes())?;
            self.mode = Mode::Exchange;
        }
        self.passive_at = Some(self.passive()?);
        (0..parallelism).try_for_each(|_| self.open_another())
    }

    /// As [`Self::turn`], and doesn't wait.
    ///
    /// # Errors
    /// Those of [`Self::turn`].
    pub(super) fn glance(&mut self, operation: &str, deadline: Instant) -> Result<(), Fault> {
        self.turn_within(operation, deadline, Duration::ZERO)
    }

    /// Begins to open a connection to where the server listens.
    fn open_another(&mut self) -> Result<(), Fault> {
        let Some(address) = self.passive_at else {
            return Ok(());
        };
        let stream = TcpStream::connect(address);
        let stream = stream.map_err(|error| lost("open a data connection", &error))?;
        self.add(stream, false)
    }
}

/// A machine with its connections.
#[derive(Debug)]
pub(super) struct Exchange<M> {
    machine: M,
    transaction: u64,
    sum: Sum,
    readers: HashMap<u64, MessageReader>,
    wanted: usize,
    opens_at: Option<Instant>,
    /// Anything ever came on a connection.
    was_up: bool,
    /// The connection that is read next.
    next: usize,
}

/// The transaction that the server has announced.
fn transaction(reply: &Reply) -> Result<u64, Fault> {
    let line = reply.lines.first().map(|line| line.trim_ascii());
    let digits = line.and_then(|line| line.strip_prefix(b"TRANSACTION: "));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    let is_hex = |text: &&str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let id = digits
        .filter(is_hex)
        .and_then(|text| u64::from_str_radix(text, 16).ok());
    id.ok_or_else(|| violation(OPERATION, "the server announces no transaction"))
}

/// Why a connection, or all of them, are of no use.
enum Trouble {
    Connection(Fault),
    Transfer(Fault),
}

impl From<Breach> for Trouble {
    fn from(breach: Breach) -> Self {
        let fault = violation(OPERATION, breach.to_string());
        match breach.is_of_connection() {
            true => Self::Connection(fault),
            false => Self::Transfer(fault),
        }
    }
}

/// What has come in MODE X.
#[derive(Debug)]
pub(super) enum Polled {
    /// A new block. [`Exchange::stored`] follows.
    Block(ByteRange, Vec<u8>),
    /// Something else.
    Moved,
    /// Nothing now.
    Nothing,
}

impl<M: Side> Exchange<M> {
    fn new(link: &Link, transaction: u64, machine: M) -> Self {
        Self {
            machine,
            transaction,
            sum: sum(link),
            readers: HashMap::new(),
            wanted: link.channels.len(),
            opens_at: None,
            was_up: false,
            next: 0,
        }
    }

    /// Whether anything ever came on a connection, so that this machine can connect.
    pub(super) fn was_up(&self) -> bool {
        self.was_up
    }

    /// Has connections come and go.
    fn tend(&mut self, link: &mut Link) -> Result<(), Fault> {
        let mut number = 0;
        while number < link.channels.len() {
            let channel = &mut link.channels[number];
            let id = channel.token.0 as u64;
            if !self.machine.has(id) {
                self.machine
                    .join(id, true, Instant::now(), &mut channel.out);
                let reader = MessageReader::new(self.transaction, self.sum);
                self.readers.insert(id, reader);
            }
            if let Some(fault) = channel.broken.take() {
                self.lose(link, number, &fault)?;
                continue;
            }
            number += 1;
        }
        if link.channels.len() >= self.wanted {
            self.opens_at = None;
            return Ok(());
        }
        let now = Instant::now();
        if *self.opens_at.get_or_insert(now + PAUSE) <= now {
            self.opens_at = Some(now + PAUSE);
            if let Err(fault) = link.open_another() {
                tracing::debug!(%fault, "a data connection isn't opened again");
            }
        }
        Ok(())
    }

    /// Closes a connection; what is under way on it goes over others.
    fn lose(&mut self, link: &mut Link, number: usize, fault: &Fault) -> Result<(), Fault> {
        let channel = link.channels.remove(number);
        tracing::debug!(%fault, "a data connection is lost, others go on");
        let id = channel.token.0 as u64;
        self.readers.remove(&id);
        self.machine.leave(id).map_err(|breach| {
            let code = match self.was_up {
                true => Code::ConnectionLost,
                false => Code::ConnectionRefused,
            };
            let cause = format!("{breach}; the last one: {}", fault.cause);
            Fault::new(code, OPERATION, cause).retry(Retry::Now)
        })
    }

    /// Reads once. Returns whether anything has come, and the message that is whole then.
    fn read(&mut self, channel: &mut Channel) -> Result<Option<Option<Message>>, Fault> {
        let id = channel.token.0 as u64;
        let Some(reader) = self.readers.get_mut(&id) else {
            return Ok(None);
        };
        match channel.receive(reader.room())? {
            None => Ok(None),
            Some(0) => Err(ended(OPERATION, "the server has closed the connection")),
            Some(count) => {
                self.was_up = true;
                let filled = reader.filled(count);
                filled
                    .map(Some)
                    .map_err(|damage| violation(OPERATION, damage.to_string()))
            }
        }
    }
}

impl Exchange<Receiver> {
    /// Takes the transfer that a preliminary reply has announced.
    ///
    /// # Errors
    /// It announces none.
    pub(super) fn receiver(link: &Link, reply: &Reply) -> Result<Self, Fault> {
        let transaction = transaction(reply)?;
        let machine = Receiver::new(transaction, sum(link));
        Ok(Self::new(link, transaction, machine))
    }

    /// Whether everything has come.
    pub(super) fn is_complete(&self) -> bool {
        self.machine.is_complete()
    }

    /// Reads what has come, in bounded time, up to the first block that isn't `stored`. It is in
    /// memory of `early`.
    ///
    /// # Errors
    /// The server breaks the rules, or too many connections do.
    pub(super) fn poll(
        &mut self,
        link: &mut Link,
        stored: &RangeSet,
        early: &mut Early,
    ) -> Result<Polled, Fault> {
        self.tend(link)?;
        let mut polled = Polled::Nothing;
        let (mut visited, mut reads) = (0, 0);
        while visited < link.channels.len() {
            if reads == READS_MAX {
                // One that says nothing new doesn't keep others waiting.
                self.next += 1;
                break;
            }
            reads += 1;
            let number = self.next % link.channels.len();
            let channel = &mut link.channels[number];
            match self.turn(channel, stored, early) {
                Ok(Polled::Block(range, payload)) => return Ok(Polled::Block(range, payload)),
                Ok(Polled::Moved) => polled = Polled::Moved,
                Ok(Polled::Nothing) => {
                    self.next += 1;
                    visited += 1;
                }
                Err(Trouble::Connection(fault)) => {
                    polled = Polled::Moved;
                    self.lose(link, number, &fault)?;
                }
                Err(Trouble::Transfer(fault)) => return Err(fault),
            }
        }
        Ok(polled)
    }

    fn turn(
        &mut self,
        channel: &mut Channel,
        stored: &RangeSet,
        early: &mut Early,
    ) -> Result<Polled, Trouble> {
        channel.send().map_err(Trouble::Connection)?;
        if channel.out.len() > QUEUED_MAX {
            return Ok(Polled::Nothing);
        }
        let Some(message) = self.read(channel).map_err(Trouble::Connection)? else {
            return Ok(Polled::Nothing);
        };
        let Some(message) = message else {
            return Ok(Polled::Moved);
        };
        let line = channel.token.0 as u64;
        let taken = self.machine.take(line, message, stored, &mut channel.out)?;
        let Taken::Block(range) = taken else {
            channel.send().map_err(Trouble::Connection)?;
            return Ok(Polled::Moved);
        };
        let reader = self.readers.get_mut(&line);
        let payload = reader.map(|reader| reader.take_payload(early.memory()));
        let payload = payload.unwrap_or_default();
        Ok(Polled::Block(range, payload))
    }

    /// The block of the last [`Self::poll`] is stored.
    pub(super) fn stored(&mut self, link: &mut Link, range: ByteRange) {
        let number = self.next % link.channels.len().max(1);
        if let Some(channel) = link.channels.get_mut(number) {
            self.machine.acknowledge(range, &mut channel.out);
            if let Err(fault) = channel.send() {
                channel.broken = Some(fault);
            }
        }
    }
}

/// A file on its way to the server, of which is held what isn't acknowledged.
#[derive(Debug)]
pub(super) struct ExchangeOut {
    exchange: Exchange<Sender>,
    /// The bytes from `base` on.
    held: VecDeque<u8>,
    base: u64,
    has_told_end: bool,
}

impl ExchangeOut {
    /// As [`Exchange::receiver`], for what is sent.
    ///
    /// # Errors
    /// The reply announces no transaction.
    pub(super) fn new(link: &Link, reply: &Reply) -> Result<Self, Fault> {
        let transaction = transaction(reply)?;
        let machine = Sender::new(transaction, sum(link), RangeSet::new(), BLOCK_BYTES_MAX);
        Ok(Self {
            exchange: Exchange::new(link, transaction, machine),
            held: VecDeque::new(),
            base: 0,
            has_told_end: false,
        })
    }

    /// Whether there is room for a block more. What isn't sent soon would only fill memory.
    pub(super) fn has_room(&self) -> bool {
        let held = self.held.len() as u64;
        self.exchange.machine.unsent() < UNSENT_MAX && held + BLOCK_BYTES_MAX <= WINDOW_BYTES
    }

    /// Whether any connection could ever be used.
    pub(super) fn was_up(&self) -> bool {
        self.exchange.was_up()
    }

    /// Adds bytes that follow those before.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.held.extend(bytes);
        self.exchange.machine.append(bytes.len() as u64);
    }

    /// Nothing follows.
    pub(super) fn finish(&mut self) {
        self.exchange.machine.finish();
    }

    /// Whether the end is told, and so everything has arrived.
    pub(super) fn has_told_end(&self) -> bool {
        self.has_told_end
    }

    /// Sends and reads what can be sent and read. Returns whether anything was.
    ///
    /// # Errors
    /// Too many connections break.
    pub(super) fn pump(&mut self, link: &mut Link) -> Result<bool, Fault> {
        self.exchange.tend(link)?;
        if let Some(id) = self.exchange.machine.stuck(Instant::now()) {
            let mut channels = link.channels.iter();
            if let Some(number) = channels.position(|channel| channel.token.0 as u64 == id) {
                let fault = ended(OPERATION, "everything waits for this connection");
                self.exchange.lose(link, number, &fault)?;
            }
        }
        let mut has_moved = false;
        while self.round(link)? {
            has_moved = true;
        }
        // What has arrived isn't needed any more.
        let end = self.base + self.held.len() as u64;
        let base = self.exchange.machine.unacknowledged_from().unwrap_or(end);
        let arrived = usize::try_from(base - self.base).unwrap_or(usize::MAX);
        self.held.drain(..arrived);
        self.base = base;
        Ok(has_moved)
    }

    /// Has each connection take a block, so that all carry some. Returns whether anything moved.
    fn round(&mut self, link: &mut Link) -> Result<bool, Fault> {
        let (mut has_moved, mut number) = (false, 0);
        while number < link.channels.len() {
            match self.turn(&mut link.channels[number]) {
                Ok(moved) => {
                    has_moved |= moved;
                    number += 1;
                }
                Err(Trouble::Connection(fault)) => self.exchange.lose(link, number, &fault)?,
                Err(Trouble::Transfer(fault)) => return Err(fault),
            }
        }
        Ok(has_moved)
    }

    /// Takes what the server has said, also while a block is on its way: what it has acknowledged
    /// isn't sent again. Returns whether anything came.
    fn hear(&mut self, channel: &mut Channel) -> Result<bool, Trouble> {
        let line = channel.token.0 as u64;
        let mut has_come = false;
        // It can't say more than there is under way.
        while let Some(message) = self.exchange.read(channel).map_err(Trouble::Connection)? {
            has_come = true;
            if let Some(message) = message {
                let out = &mut channel.out;
                self.exchange.machine.take(line, message, out)?;
            }
        }
        Ok(has_come)
    }

    fn turn(&mut self, channel: &mut Channel) -> Result<bool, Trouble> {
        let line = channel.token.0 as u64;
        let has_come = self.hear(channel)?;
        if channel.is_open() && channel.is_free() {
            let out = &mut channel.out;
            match self.exchange.machine.next_block(line) {
                Some(range) => self.encode(range, out),
                None => self.has_told_end |= self.exchange.machine.end(line, out),
            }
        }
        match channel.send() {
            Ok(has_sent) => Ok(has_come || has_sent),
            Err(fault) => {
                // What it said before it broke still counts.
                let _ = self.hear(channel);
                Err(Trouble::Connection(fault))
            }
        }
    }

    fn encode(&self, range: ByteRange, out: &mut Vec<u8>) {
        let place = |at: u64| usize::try_from(at - self.base).unwrap_or(usize::MAX);
        let (transaction, sum) = (self.exchange.transaction, self.exchange.sum);
        let fill = |out: &mut Vec<u8>| {
            let (first, second) = self.held.as_slices();
            let (start, end) = (place(range.start), place(range.end));
            let split = first.len();
            out.extend_from_slice(&first[start.min(split)..end.min(split)]);
            out.extend_from_slice(&second[start.max(split) - split..end.max(split) - split]);
            Ok::<(), std::convert::Infallible>(())
        };
        let encoded = Message::encode_block(range, transaction, sum, out, fill);
        match encoded {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }
}

/// The checksum that the server was told.
fn sum(link: &Link) -> Sum {
    link.features.exchange.unwrap_or(Sum::Crc32c)
}
