//! MODE X at the server: messages from connections to the machines, and what those want to send.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use xdfs_proto::{ByteRange, Code, Fault};

use super::channels::{Connection, lost};
use super::download::Download;
use super::link::Link;
use super::upload::Upload;
use crate::xmode::{
    BLOCK_BYTES_MAX, Breach, CONNECTIONS_MAX, Damage, Message, MessageReader, Receiver, Sender,
    Side, Sum, Taken,
};

/// Connections that may be there beside those of a transfer, if some of those are silent: anybody
/// may have opened them.
const SILENT_MAX: usize = 8;
/// Bytes of messages that wait for a peer that doesn't read, until nothing more is read from it.
const QUEUED_MAX: usize = 64 << 10;
/// Time between two attempts to open another connection.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of payload moved between looks at the control connection.
const TURN_BYTES: u64 = 8 << 20;
/// Turns of each connection between them.
const TURNS_MAX: usize = 64;
/// Reads from a connection in one turn.
const READS_MAX: usize = 64;

/// A transaction that is about to begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transaction {
    pub(super) id: u64,
    pub(super) sum: Sum,
}

impl Transaction {
    /// A new one, whose number nobody can guess.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn new(sum: Sum) -> Result<Self, Fault> {
        let id = getrandom::u64().map_err(|error| {
            Fault::new(Code::Internal, "begin a transaction", error.to_string())
        })?;
        Ok(Self { id, sum })
    }
}

/// Why a connection, or all of them, are of no use.
pub(super) enum Trouble {
    Connection(Fault),
    Transfer(Fault),
}

impl From<Breach> for Trouble {
    fn from(breach: Breach) -> Self {
        match breach.is_of_connection() {
            true => Self::Connection(violation(&breach)),
            false => Self::Transfer(violation(&breach)),
        }
    }
}

/// The peer's messages make no sense, or came damaged.
fn violation(error: &dyn std::error::Error) -> Fault {
    Fault {
        code: Code::ProtocolViolation,
        ..lost("transfer data", &std::io::Error::other(error.to_string()))
    }
}

/// What a turn has brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turned {
    /// Bytes of payload that moved and count as progress.
    bytes: u64,
    /// There may be more to do at once.
    again: bool,
}

/// What a transfer does with one connection.
pub(super) trait Turn: Side {
    /// The file, or where it goes.
    type Job;

    /// Does what can be done in bounded time.
    fn turn(
        &mut self,
        job: &mut Self::Job,
        transaction: Transaction,
        reader: &mut MessageReader,
        connection: &mut Connection,
    ) -> Result<Turned, Trouble>;

    fn is_done(&self) -> bool;

    /// A connection to be closed, since everything waits for it, and when to ask again.
    fn stuck(&mut self, now: Instant) -> (Option<u64>, Option<Instant>);
}

/// A machine with its connections.
#[derive(Debug)]
pub(super) struct Exchange<M> {
    machine: M,
    transaction: Transaction,
    readers: HashMap<u64, MessageReader>,
    /// Connections that this side opens, once it is known.
    wanted: Option<usize>,
    opens_at: Option<Instant>,
    /// When a connection may be found to be stuck or silent.
    idle_at: Option<Instant>,
}

impl Exchange<Sender> {
    pub(super) fn sender(transaction: Transaction, machine: Sender) -> Self {
        Self::new(transaction, machine)
    }
}

impl Exchange<Receiver> {
    pub(super) fn receiver(transaction: Transaction) -> Self {
        let machine = Receiver::new(transaction.id, transaction.sum);
        Self::new(transaction, machine)
    }
}

impl<M: Turn> Exchange<M> {
    fn new(transaction: Transaction, machine: M) -> Self {
        Self {
            machine,
            transaction,
            readers: HashMap::new(),
            wanted: None,
            opens_at: None,
            idle_at: None,
        }
    }

    /// Whether both sides have confirmed the end.
    pub(super) fn is_done(&self) -> bool {
        self.machine.is_done()
    }

    /// When it has something to do without an event.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.opens_at.into_iter().chain(self.idle_at).min()
    }

    /// Moves what can be moved. Returns whether there is more to do at once.
    ///
    /// # Errors
    /// The file can't be read or stored, the peer breaks the rules, or too many connections do.
    pub(super) fn step(&mut self, job: &mut M::Job, link: &mut Link<'_>) -> Result<bool, Fault> {
        self.tend(link)?;
        let (mut moved, mut turns) = (0, 0);
        let mut is_stuck = false;
        while !is_stuck && moved < TURN_BYTES && turns < TURNS_MAX && !self.is_done() {
            is_stuck = true;
            turns += 1;
            let mut number = 0;
            while number < link.channels.connections.len() {
                let connection = &mut link.channels.connections[number];
                let Some(reader) = self.readers.get_mut(&connection.id()) else {
                    number += 1;
                    continue;
                };
                match self.machine.turn(job, self.transaction, reader, connection) {
                    Ok(Turned { bytes, again }) => {
                        is_stuck &= !again;
                        moved += bytes;
                        if bytes > 0 {
                            link.moved(bytes);
                        }
                        number += 1;
                    }
                    Err(Trouble::Connection(fault)) => self.lose(link, number, fault)?,
                    Err(Trouble::Transfer(fault)) => return Err(fault),
                }
                if self.is_done() || link.is_paused() {
                    is_stuck = true;
                    break;
                }
            }
        }
        Ok(!is_stuck)
    }

    /// Has connections come and go.
    fn tend(&mut self, link: &mut Link<'_>) -> Result<(), Fault> {
        let wanted = *self.wanted.get_or_insert(link.channels.connections.len());
        let now = link.clock.instant();
        let most = match self.machine.silent_until() {
            Some(_) => CONNECTIONS_MAX + SILENT_MAX,
            None => CONNECTIONS_MAX,
        };
        link.channels.accept(link.poller, most)?;
        let mut number = 0;
        while number < link.channels.connections.len() {
            let connection = &mut link.channels.connections[number];
            let id = connection.id();
            if !self.machine.has(id) {
                let Transaction { id: own, sum } = self.transaction;
                self.machine
                    .join(id, connection.is_own, now, &mut connection.block);
                self.readers.insert(id, MessageReader::new(own, sum));
            }
            if let Some(fault) = connection.broken.take() {
                self.lose(link, number, fault)?;
                continue;
            }
            number += 1;
        }
        while let Some(id) = self.machine.surplus(now) {
            self.give_up(link, id)?;
        }
        let (stuck, stuck_at) = self.machine.stuck(now);
        let silent_until = self.machine.silent_until();
        self.idle_at = stuck_at.into_iter().chain(silent_until).min();
        if let Some(id) = stuck {
            self.give_up(link, id)?;
        }
        if !link.channels.connects() || link.channels.connections.len() >= wanted {
            self.opens_at = None;
            return Ok(());
        }
        match self.opens_at {
            Some(at) if now < at => {}
            Some(_) => {
                self.opens_at = Some(now + PAUSE);
                link.channels.connect_another(link.poller)?;
            }
            None => self.opens_at = Some(now + PAUSE),
        }
        Ok(())
    }

    /// Closes a connection on which nothing happens.
    fn give_up(&mut self, link: &mut Link<'_>, id: u64) -> Result<(), Fault> {
        let mut connections = link.channels.connections.iter();
        let fault = lost("transfer data", &std::io::ErrorKind::TimedOut.into());
        match connections.position(|connection| connection.id() == id) {
            Some(number) => self.lose(link, number, fault),
            None => self.leave(id, &fault),
        }
    }

    /// Closes a connection; what is under way on it goes over others.
    fn lose(&mut self, link: &mut Link<'_>, number: usize, fault: Fault) -> Result<(), Fault> {
        let connection = link.channels.connections.remove(number);
        tracing::debug!(%fault, "a data connection is lost, others go on");
        self.leave(connection.id(), &fault)
    }

    fn leave(&mut self, id: u64, fault: &Fault) -> Result<(), Fault> {
        self.readers.remove(&id);
        self.machine.leave(id).map_err(|breach| {
            let cause = format!("{breach}; the last one: {}", fault.cause);
            let code = match fault.code {
                Code::ConnectionRefused => Code::ConnectionRefused,
                _ => Code::ConnectionLost,
            };
            Fault::new(code, "transfer data", cause)
        })
    }
}

/// Reads once. Returns the message that is whole then.
fn read(
    reader: &mut MessageReader,
    connection: &mut Connection,
) -> Result<Option<Option<Message>>, Trouble> {
    if !connection.can_read() {
        return Ok(None);
    }
    let received = connection.receive(reader.room());
    let Some(count) = received.map_err(Trouble::Connection)? else {
        return Ok(None);
    };
    if count == 0 {
        let end = std::io::ErrorKind::UnexpectedEof.into();
        return Err(Trouble::Connection(lost("transfer data", &end)));
    }
    let filled = reader.filled(count);
    let filled = filled.map_err(|damage: Damage| Trouble::Connection(violation(&damage)))?;
    Ok(Some(filled))
}

/// Sends what is queued. Returns the number of bytes.
fn send(connection: &mut Connection) -> Result<u64, Trouble> {
    let mut sent = 0;
    while connection.can_write() && !connection.is_free() {
        sent += connection.send().map_err(Trouble::Connection)? as u64;
    }
    if connection.is_free() {
        if !connection.block.is_empty() {
            connection.begin_block();
        }
        if connection.can_write() {
            connection.flush().map_err(Trouble::Connection)?;
        }
    }
    Ok(sent)
}

/// Takes what the receiver has said, also while a block is on its way: what it has acknowledged
/// isn't sent again. Returns whether anything came.
fn hear(
    sender: &mut Sender,
    reader: &mut MessageReader,
    connection: &mut Connection,
) -> Result<bool, Trouble> {
    let mut has_come = false;
    // It can't say more than there is under way.
    while let Some(message) = read(reader, connection)? {
        has_come = true;
        if let Some(message) = message {
            sender.take(connection.id(), message, &mut connection.block)?;
        }
    }
    Ok(has_come)
}

impl Turn for Sender {
    type Job = Download;

    fn turn(
        &mut self,
        job: &mut Download,
        transaction: Transaction,
        reader: &mut MessageReader,
        connection: &mut Connection,
    ) -> Result<Turned, Trouble> {
        let line = connection.id();
        let has_come = hear(self, reader, connection)?;
        if self.has_arrived() {
            // Nothing is confirmed that isn't of one version.
            job.verify().map_err(Trouble::Transfer)?;
            self.finish();
        }
        if connection.is_free() {
            match self.next_block(line) {
                Some(range) => {
                    let Transaction { id, sum } = transaction;
                    let out = &mut connection.block;
                    Message::encode_block(range, id, sum, out, |out| job.read(range, out))
                        .map_err(Trouble::Transfer)?;
                }
                None => {
                    self.end(line, &mut connection.block);
                }
            }
        }
        match send(connection) {
            Ok(bytes) => Ok(Turned {
                bytes,
                again: has_come || bytes > 0,
            }),
            Err(trouble) => {
                // What it said before it broke still counts.
                let _ = hear(self, reader, connection);
                Err(trouble)
            }
        }
    }

    fn is_done(&self) -> bool {
        self.is_done()
    }

    fn stuck(&mut self, now: Instant) -> (Option<u64>, Option<Instant>) {
        (self.stuck(now), self.next_time())
    }
}

impl Turn for Receiver {
    type Job = Upload;

    fn turn(
        &mut self,
        job: &mut Upload,
        _: Transaction,
        reader: &mut MessageReader,
        connection: &mut Connection,
    ) -> Result<Turned, Trouble> {
        let line = connection.id();
        let (mut moved, mut reads) = (0, 0);
        while moved < BLOCK_BYTES_MAX && reads < READS_MAX && !self.is_complete() {
            if connection.block.len() > QUEUED_MAX {
                break;
            }
            let Some(message) = read(reader, connection)? else {
                break;
            };
            reads += 1;
            let Some(message) = message else { continue };
            let out = &mut connection.block;
            if let Taken::Block(range) = self.take(line, message, job.stored(), out)? {
                let stored = job.store(range.start, reader.payload());
                stored.map_err(Trouble::Transfer)?;
                self.acknowledge(range, out);
                moved += ByteRange::len(&range);
            }
        }
        send(connection)?;
        Ok(Turned {
            bytes: moved,
            again: moved > 0 || reads == READS_MAX,
        })
    }

    fn is_done(&self) -> bool {
        self.is_complete()
    }

    fn stuck(&mut self, _: Instant) -> (Option<u64>, Option<Instant>) {
        (None, None)
    }
}
