//! What a server sends: a file, or a listing.
//!
//! Bytes are handed out in order. In MODE E they arrive in any order on several connections; those
//! that are early wait in memory, and beyond a bound in the network. No byte of a transfer is read
//! before the server has announced it, so that with commands sent ahead nothing is taken for a file
//! that was refused.

use std::time::{Duration, Instant};

use xdfs_proto::{ByteRange, Code, Fault, RangeSet, Retry};

use super::channel::Mode;
use super::dialogue::Event;
use super::early::Early;
use super::exchange::{Exchange, Polled};
use super::fault::{broken, ended, refused, violation};
use super::link::{Link, STALL};
use crate::block::{HEADER_BYTES, Header, HeaderError, Piece};
use crate::receiver::{Ends, Receiver};
use crate::reply::Reply;
use crate::xmode;

/// Most bytes that wait in memory for earlier ones.
const EARLY_BYTES_MAX: usize = 32 << 20;
/// Bytes that are read at once ahead of their turn.
const EARLY_BYTES: usize = 256 << 10;
/// Most bytes in MODE X that wait so, with what each block takes: a window full of small ones.
const EXCHANGE_BYTES_MAX: usize = 64 << 20;
/// Headers in a row that are read of a connection at once.
const HEADERS_AT_ONCE: u32 = 64;
/// Time for the server to open the first connection in MODE E.
const CONNECT: Duration = Duration::from_secs(10);
/// Time for the server to say why a data connection was closed.
const EXPLAIN: Duration = Duration::from_secs(3);
/// Time for data after a server has confirmed a transfer that it never announced.
const UNANNOUNCED: Duration = Duration::from_secs(3);

/// A transfer whose command is the oldest without a final reply, or will be.
#[derive(Debug)]
pub(super) struct Incoming {
    operation: &'static str,
    path: Vec<u8>,
    mode: Mode,
    receiver: Receiver,
    /// Of the connections to the addresses of this machine behind the first one.
    ends: Vec<Ends>,
    next: u64,
    /// The size of the file, if it is known.
    end: Option<u64>,
    early: Early,
    /// Where bytes are read to whose turn it isn't.
    scratch: Vec<u8>,
    /// In MODE X, once the server has announced the transfer.
    exchange: Option<Box<Exchange<xmode::Receiver>>>,
    /// When its turn came: others may have been before it.
    begun: Option<Instant>,
    moved: Instant,
    has_started: bool,
    /// When the server confirmed a transfer that it had not announced, of which no byte arrived.
    confirmed_at_once: Option<Instant>,
    has_stream_ended: bool,
    last: Option<Reply>,
    is_complete: bool,
}

impl Incoming {
    /// A transfer that begins at byte `from` of what has `end` bytes.
    pub(super) fn new(
        operation: &'static str,
        path: &[u8],
        mode: Mode,
        from: u64,
        end: Option<u64>,
    ) -> Self {
        let mut held = RangeSet::new();
        if from > 0 {
            held.insert(ByteRange {
                start: 0,
                end: from,
            });
        }
        Self {
            operation,
            path: path.to_vec(),
            mode,
            receiver: Receiver::new(held),
            ends: Vec::new(),
            next: from,
            end,
            early: Early::default(),
            scratch: Vec::new(),
            exchange: None,
            begun: None,
            moved: Instant::now(),
            has_started: false,
            confirmed_at_once: None,
            has_stream_ended: false,
            last: None,
            is_complete: false,
        }
    }

    /// The number of the byte that is read next.
    pub(super) fn position(&self) -> u64 {
        self.next
    }

    /// Whether the server has announced the transfer.
    pub(super) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Whether any byte has come.
    pub(super) fn has_moved(&self) -> bool {
        self.receiver.bytes() > 0
    }

    /// Whether the server has sent everything and confirmed it.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The reason that the server has for a fault of the data connection, if it gives one soon; the
    /// fault itself otherwise. The data connections are closed.
    pub(super) fn explained(&mut self, link: &mut Link, fault: Fault) -> Fault {
        let is_broken = matches!(fault.code, Code::ConnectionLost | Code::ProtocolViolation);
        if self.last.is_some() || !self.has_started || !is_broken {
            return fault;
        }
        link.close_channels();
        let Ok(reply) = link.reply_within(self.operation, EXPLAIN) else {
            return fault;
        };
        let said = refused(self.operation, &self.path, &reply);
        let is_refusal = reply.code >= 300;
        self.last = Some(reply);
        match is_refusal {
            true => said,
            false => fault,
        }
    }

    /// Whether the server has said that it ended, in whatever way.
    pub(super) fn has_ended(&self) -> bool {
        self.last.is_some()
    }

    /// What the server has said at the end.
    pub(super) fn confirmation(&self) -> Option<&Reply> {
        self.last.as_ref()
    }

    /// Reads until `buffer` is full or the transfer is complete and confirmed.
    ///
    /// # Errors
    /// The server refuses, breaks the protocol, ends early or does nothing for too long. Unless
    /// [`Self::has_started`] is false, the connection is of no use then.
    pub(super) fn read(&mut self, link: &mut Link, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mut filled = 0;
        while filled < buffer.len() && !self.is_complete {
            let step = self.step(link, &mut buffer[filled..]);
            filled += step.map_err(|fault| self.named(fault))?;
            if self.end == Some(self.next) && filled > 0 && !self.is_complete {
                // The rest of the protocol, which has no payload.
                self.finish(link)?;
            }
        }
        Ok(filled)
    }

    /// Waits for the end, after the last byte.
    ///
    /// # Errors
    /// As [`Self::read`], and if there is more than the size says.
    pub(super) fn finish(&mut self, link: &mut Link) -> Result<(), Fault> {
        while !self.is_complete {
            let mut byte = [0];
            let step = self.step(link, &mut byte);
            if step.map_err(|fault| self.named(fault))? > 0 {
                return Err(self.named(grown()));
            }
        }
        Ok(())
    }

    fn named(&self, fault: Fault) -> Fault {
        let has_come_about = self.exchange.as_ref().is_some_and(|own| own.was_up());
        let fault = match has_come_about {
            true => broken(fault),
            false => fault,
        };
        let fault = fault.preventing(&self.path);
        match fault.operation.is_empty() {
            true => Fault {
                operation: self.operation.to_owned(),
                ..fault
            },
            false => fault,
        }
    }

    fn step(&mut self, link: &mut Link, buffer: &mut [u8]) -> Result<usize, Fault> {
        let begun = match self.begun {
            Some(begun) => begun,
            None => {
                self.moved = Instant::now();
                let more = link.arrivals().saturating_sub(1);
                self.ends.resize_with(more, Ends::default);
                *self.begun.insert(self.moved)
            }
        };
        let taken = self.early.take(self.next, buffer);
        self.next += taken as u64;
        if taken > 0 {
            return Ok(taken);
        }
        let mut may_wait = true;
        if self.has_started {
            let (filled, has_moved) = match self.mode {
                Mode::Stream => self.receive_stream(link, buffer)?,
                Mode::Exchange => {
                    let (is_new, has_moved) = self.receive_exchange(link)?;
                    may_wait = !has_moved;
                    (0, is_new)
                }
                Mode::Extended => {
                    let (filled, is_news, has_moved) = self.receive_blocks(link, buffer)?;
                    may_wait = !has_moved;
                    (filled, is_news)
                }
            };
            if has_moved {
                self.moved = Instant::now();
            }
            // In MODE X a server could go on for ever with what isn't new.
            let is_looked_at = self.mode != Mode::Exchange || self.early.has(self.next);
            if has_moved {
                self.confirmed_at_once = None;
            }
            if filled > 0 || has_moved && is_looked_at {
                return Ok(filled);
            }
        }
        if self.last.is_none() {
            match link.event()? {
                Some(Event::Preliminary(reply)) => {
                    if self.mode == Mode::Exchange && self.exchange.is_none() {
                        self.exchange = Some(Box::new(Exchange::receiver(link, &reply)?));
                    }
                    self.has_started = true;
                    return Ok(0);
                }
                Some(Event::Final(reply)) if reply.code < 300 => {
                    if !std::mem::replace(&mut self.has_started, true) {
                        self.confirmed_at_once = Some(Instant::now());
                    }
                    self.last = Some(reply);
                    return Ok(0);
                }
                Some(Event::Final(reply)) => {
                    let fault = refused(self.operation, &self.path, &reply);
                    self.last = Some(reply);
                    return Err(fault);
                }
                None => {}
            }
        }
        if self.last.is_some() && self.has_all() {
            return self.complete(link);
        }
        if let Some(confirmed) = self.confirmed_at_once
            && self.mode != Mode::Exchange
            && confirmed.elapsed() >= UNANNOUNCED
        {
            // So some servers tell that a directory is empty, and close no data connection, since
            // they have opened none.
            link.close_channels();
            return self.complete(link);
        }
        let mut deadline = self.moved + STALL;
        let lacks_connection = match &self.exchange {
            Some(exchange) => !exchange.was_up(),
            None => self.mode == Mode::Extended && link.channels.is_empty(),
        };
        if lacks_connection && self.last.is_none() {
            deadline = deadline.min(begun + CONNECT);
            if deadline <= Instant::now() {
                let cause = match self.mode {
                    Mode::Exchange => "no data connection to the server comes about",
                    _ => "the server has opened no data connection to this machine",
                };
                return Err(Fault::new(Code::ConnectionRefused, self.operation, cause));
            }
        }
        match may_wait {
            true => link.turn(self.operation, deadline)?,
            false => link.glance(self.operation, deadline)?,
        }
        Ok(0)
    }

    /// Whether everything has come that the protocol promises.
    fn has_all(&self) -> bool {
        match self.mode {
            Mode::Stream => self.has_stream_ended,
            Mode::Exchange => self.exchange.as_ref().is_some_and(|own| own.is_complete()),
            Mode::Extended => self.has_all_eods(),
        }
    }

    fn has_all_eods(&self) -> bool {
        self.receiver.has_all_eods() && self.ends.iter().all(Ends::are_all)
    }

    fn complete(&mut self, link: &mut Link) -> Result<usize, Fault> {
        let missing = self.end.is_some_and(|end| self.next < end) || !self.early.is_empty();
        if missing {
            let cause = format!("it ended at byte {}, before its size", self.next);
            let fault = Fault::new(Code::SourceChanged, self.operation, cause);
            return Err(fault.retry(Retry::Now));
        }
        match self.mode {
            Mode::Exchange | Mode::Stream => link.close_channels(),
            Mode::Extended => link.restart_channels(),
        }
        self.is_complete = true;
        Ok(0)
    }

    fn receive_stream(
        &mut self,
        link: &mut Link,
        buffer: &mut [u8],
    ) -> Result<(usize, bool), Fault> {
        let Some(channel) = link.channels.first_mut().filter(|_| !self.has_stream_ended) else {
            return Ok((0, false));
        };
        match channel.receive(buffer)? {
            None => Ok((0, false)),
            // With a size it is compared.
            Some(0) if self.end.is_none() && channel.lacks_end() => {
                let cause = "the connection was cut off: there was no end of TLS";
                Err(ended("receive", cause))
            }
            Some(0) => {
                self.has_stream_ended = true;
                Ok((0, true))
            }
            Some(count) => {
                self.next += count as u64;
                if self.end.is_some_and(|end| self.next > end) {
                    return Err(grown());
                }
                Ok((count, true))
            }
        }
    }

    /// Takes blocks in MODE X. They wait in memory until it is their turn. Returns whether a new
    /// one has come, and whether there may be more.
    fn receive_exchange(&mut self, link: &mut Link) -> Result<(bool, bool), Fault> {
        let Some(mut exchange) = self.exchange.take() else {
            return Ok((false, false));
        };
        let received = self.receive_from(&mut exchange, link);
        self.exchange = Some(exchange);
        received
    }

    fn receive_from(
        &mut self,
        exchange: &mut Exchange<xmode::Receiver>,
        link: &mut Link,
    ) -> Result<(bool, bool), Fault> {
        let mut is_new = false;
        // What is next is taken before more is read.
        while !self.early.has(self.next) {
            match exchange.poll(link, self.receiver.ranges(), &mut self.early)? {
                Polled::Nothing => return Ok((is_new, false)),
                Polled::Moved => break,
                Polled::Block(range, payload) => {
                    if self.end.is_some_and(|end| range.end > end) {
                        return Err(grown());
                    }
                    self.early.insert(range.start, payload);
                    if self.early.held() > EXCHANGE_BYTES_MAX {
                        let cause = "the server sends more ahead than it may";
                        return Err(violation("receive in MODE X", cause));
                    }
                    let counted = self.receiver.stored(range);
                    counted.map_err(|error| violation("receive in MODE X", error.to_string()))?;
                    exchange.stored(link, range);
                    is_new = true;
                }
            }
        }
        Ok((is_new, true))
    }

    /// Reads from all connections; stops when the buffer is full. Returns the number of bytes in
    /// it, whether anything has come that brings the transfer nearer to its end, and whether
    /// anything has come at all: headers of empty blocks could come for ever.
    fn receive_blocks(
        &mut self,
        link: &mut Link,
        buffer: &mut [u8],
    ) -> Result<(usize, bool, bool), Fault> {
        let (mut filled, mut is_news, mut has_moved) = (0, false, false);
        let breaks = |cause: String| violation("receive in MODE E", cause);
        for channel in &mut link.channels {
            let mut headers = 0;
            loop {
                let Some((offset, left)) = channel.blocks.payload() else {
                    // Nothing of the next transfer is taken.
                    let wants = channel.blocks.wants(HEADER_BYTES);
                    if wants == 0 || headers == HEADERS_AT_ONCE {
                        break;
                    }
                    let mut header = [0; HEADER_BYTES];
                    let received = channel.receive(&mut header[..wants]);
                    let count = match received.map_err(|fault| channel.named(fault))? {
                        None => break,
                        // Connections may end that are not needed.
                        Some(0) if self.has_all_eods() => break,
                        Some(0) => {
                            let cause = "a data connection was closed before its end of data";
                            return Err(channel.named(ended("receive in MODE E", cause)));
                        }
                        Some(count) => count,
                    };
                    has_moved = true;
                    let taken = channel.blocks.take(&header[..count]);
                    let (_, piece) = taken.map_err(|error| match error {
                        HeaderError::Suspect => Fault {
                            code: Code::Io,
                            ..breaks(error.to_string())
                        },
                        _ => breaks(error.to_string()),
                    })?;
                    if let Some(Piece::Header(header)) = piece {
                        headers += 1;
                        let (Header::Data { eod, .. } | Header::End { eod, .. }) = header;
                        is_news |= eod;
                        let behind = channel.stripe.checked_sub(1);
                        let counted = match behind.and_then(|at| self.ends.get_mut(at)) {
                            Some(ends) => ends.header(&header),
                            None => self.receiver.header(&header),
                        };
                        counted.map_err(|error| breaks(error.to_string()))?;
                    }
                    continue;
                };
                if self.end.is_some_and(|end| offset + left > end) {
                    return Err(grown());
                }
                let is_next = offset == self.next;
                if is_next && filled == buffer.len()
                    || !is_next && self.early.held() >= EARLY_BYTES_MAX
                {
                    break;
                }
                let left = usize::try_from(left).unwrap_or(usize::MAX);
                let room = match is_next {
                    true => &mut buffer[filled..],
                    false => {
                        self.scratch.resize(EARLY_BYTES, 0);
                        &mut self.scratch[..]
                    }
                };
                let most = left.min(room.len());
                let received = channel.receive(&mut room[..most]);
                let count = match received.map_err(|fault| channel.named(fault))? {
                    None => break,
                    Some(0) => {
                        let cause = "a data connection was closed in the middle of a block";
                        return Err(channel.named(ended("receive in MODE E", cause)));
                    }
                    Some(count) => count,
                };
                (is_news, has_moved, headers) = (true, true, 0);
                let taken = channel.blocks.take(&room[..count]);
                taken.map_err(|error| breaks(error.to_string()))?;
                let range = ByteRange {
                    start: offset,
                    end: offset + count as u64,
                };
                if self.receiver.ranges().overlaps(range) {
                    return Err(breaks(format!("the bytes {range} came twice")));
                }
                let stored = self.receiver.stored(range);
                stored.map_err(|error| breaks(error.to_string()))?;
                if is_next {
                    self.next = range.end;
                    filled += count;
                } else {
                    let bytes = &self.scratch[..count];
                    self.early.append(offset, bytes, left.min(EARLY_BYTES));
                }
            }
        }
        Ok((filled, is_news, has_moved))
    }
}

/// The fault of more data than the size says.
fn grown() -> Fault {
    let cause = "there is more of it than its size says";
    Fault::new(Code::SourceChanged, "receive", cause).retry(Retry::Now)
}
