//! A file that is sent to a server, from its first byte to its last.

use std::time::{Duration, Instant};

use xdfs_proto::{Code, Fault};

use super::channel::{Channel, Mode};
use super::dialogue::Event;
use super::exchange::ExchangeOut;
use super::fault::{broken, refused, violation};
use super::link::{Link, STALL};
use super::markers::Markers;
use crate::block::Header;
use crate::reply::Reply;
use crate::sender::{Send, Sender};

/// Bytes of payload in a block of MODE E, and that a connection holds in stream mode.
const BLOCK_BYTES: usize = 256 << 10;
/// Time for the first connection to come about in MODE X.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest time in which a server says that it goes on, and not that more has come.
const STANDSTILL: Duration = Duration::from_secs(600);
/// Time for a server to close a protected connection after it has confirmed the file.
const CLOSING: Duration = Duration::from_secs(2);

/// A transfer whose command is the oldest without a final reply.
#[derive(Debug)]
pub(super) struct Outgoing {
    operation: &'static str,
    path: Vec<u8>,
    mode: Mode,
    sender: Sender,
    /// The offset of the next byte.
    at: u64,
    /// In MODE X.
    exchange: Option<Box<ExchangeOut>>,
    /// Bytes were sent, or the server has told of more than before.
    moved: Instant,
    /// The server has said anything.
    heard: Instant,
    last: Option<Reply>,
    /// The reply that refuses the file.
    refusal: Option<Reply>,
    /// What the server has said about its progress.
    markers: Markers,
}

impl Outgoing {
    /// Waits until the server takes the file at `path`, for which STOR is already sent, since what
    /// comes earlier could be taken for another one.
    ///
    /// # Errors
    /// The server refuses, which leaves the connection usable, or the connection is broken.
    pub(super) fn begin(
        operation: &'static str,
        path: &[u8],
        link: &mut Link,
    ) -> Result<Self, Fault> {
        let deadline = Instant::now() + STALL;
        let mut exchange = None;
        loop {
            match link.event()? {
                Some(Event::Preliminary(reply)) if matches!(reply.code, 125 | 150) => {
                    if link.mode() == Mode::Exchange {
                        exchange = Some(Box::new(ExchangeOut::new(link, &reply)?));
                    }
                    break;
                }
                Some(Event::Preliminary(_)) => {}
                Some(Event::Final(reply)) if reply.code < 300 => {
                    let cause = format!("it confirms with {} what it hasn't got", reply.code);
                    return Err(violation(operation, cause));
                }
                Some(Event::Final(reply)) => return Err(refused(operation, path, &reply)),
                None => link.turn(operation, deadline)?,
            }
        }
        Ok(Self {
            operation,
            path: path.to_vec(),
            mode: link.mode(),
            sender: Sender::of_writes(&link.groups()),
            at: 0,
            exchange,
            moved: Instant::now(),
            heard: Instant::now(),
            last: None,
            refusal: None,
            markers: Markers::default(),
        })
    }

    /// The same, behind as many bytes, which the server has.
    pub(super) fn behind(self, bytes: u64) -> Self {
        Self {
            sender: self.sender.behind(bytes),
            at: bytes,
            ..self
        }
    }

    /// The end of what the server has stored from `start` on, as far as it has said so.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn stored(&mut self, link: &mut Link, start: u64) -> Result<Option<u64>, Fault> {
        self.events(link, false)?;
        let mut stored = self.markers.stored().iter();
        let found = stored.find(|range| range.start <= start && start < range.end);
        Ok(found.map(|range| range.end))
    }

    /// Sends the bytes that follow.
    ///
    /// # Errors
    /// The server refuses them, or the connection is broken. It is of no use then.
    pub(super) fn write(&mut self, link: &mut Link, bytes: &[u8]) -> Result<(), Fault> {
        if self.exchange.is_some() {
            return self.write_exchange(link, bytes);
        }
        let stripes = link.stripes();
        let mut left = bytes;
        while !left.is_empty() {
            // Each block of a stripe begins a block here.
            let most = stripes.left(self.at).min(BLOCK_BYTES as u64);
            let most = usize::try_from(most).unwrap_or(BLOCK_BYTES);
            let (block, rest) = left.split_at(left.len().min(most));
            left = rest;
            let header = self.sender.written(block.len() as u64);
            let turn = stripes.at(self.at);
            self.at += block.len() as u64;
            let free = self.wait(link, |link| {
                let free = |wanted: Option<usize>| {
                    let mut all = link.channels.iter();
                    all.position(|channel| {
                        let is_it = wanted.is_none_or(|stripe| stripe == channel.stripe);
                        is_it && channel.is_open() && channel.is_free()
                    })
                };
                // A node that is slower than the others gets less.
                free(Some(turn)).or_else(|| free(None))
            })?;
            let header = header.filter(|_| self.mode == Mode::Extended);
            let header = header.as_ref().map(Header::encode);
            let header = header.as_ref().map_or(&[][..], |bytes| &bytes[..]);
            let channel = &mut link.channels[free];
            match channel.put(header, block) {
                Ok(true) => self.moved = Instant::now(),
                Ok(false) => {}
                Err(fault) => {
                    let fault = channel.named(fault);
                    return Err(self.said(link).unwrap_or(fault));
                }
            }
            self.send(link)?;
        }
        Ok(())
    }

    /// Sends the end of the file.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn end(&mut self, link: &mut Link) -> Result<(), Fault> {
        if let Some(exchange) = &mut self.exchange {
            exchange.finish();
            return self.pump_until(link, ExchangeOut::has_told_end);
        }
        self.sender.written(0);
        let all_sent = |link: &Link| {
            let mut all = link.channels.iter();
            all.all(|channel| channel.is_open() && channel.is_free())
                .then_some(())
        };
        self.wait(link, all_sent)?;
        for (number, channel) in link.channels.iter_mut().enumerate() {
            match (self.mode, self.sender.next_for(number)) {
                (Mode::Stream, _) => channel.end(),
                (Mode::Extended, Send::End(header)) => {
                    channel.out.extend_from_slice(&header.encode());
                }
                _ => {}
            }
        }
        self.send(link)?;
        self.wait(link, all_sent)
    }

    /// Waits until the server confirms all of the file.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn confirm(mut self, link: &mut Link) -> Result<(), Fault> {
        self.await_end(link)
    }

    /// Waits until the server confirms a segment. Returns the rows of its reply if it tells that a
    /// part of it isn't stored.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn confirm_or_rows(
        mut self,
        link: &mut Link,
    ) -> Result<Option<Vec<Vec<u8>>>, Fault> {
        match (self.await_end(link), self.refusal) {
            (Ok(()), _) => Ok(None),
            (Err(_), Some(reply)) if reply.code == 550 && reply.lines.len() > 2 => {
                Ok(Some(reply.lines))
            }
            (Err(fault), _) => Err(fault),
        }
    }

    /// Sends bytes that follow in MODE X, in which some of them wait to be acknowledged.
    fn write_exchange(&mut self, link: &mut Link, bytes: &[u8]) -> Result<(), Fault> {
        for block in bytes.chunks(BLOCK_BYTES) {
            self.pump_until(link, ExchangeOut::has_room)?;
            if let Some(exchange) = &mut self.exchange {
                exchange.append(block);
            }
        }
        self.pump(link)?;
        Ok(())
    }

    fn pump_until(
        &mut self,
        link: &mut Link,
        is_so: fn(&ExchangeOut) -> bool,
    ) -> Result<(), Fault> {
        let begun = Instant::now();
        while !self
            .exchange
            .as_ref()
            .is_none_or(|exchange| is_so(exchange))
        {
            if self.pump(link)? {
                continue;
            }
            self.events(link, false)?;
            let was_up = self
                .exchange
                .as_ref()
                .is_none_or(|exchange| exchange.was_up());
            if !was_up && begun.elapsed() > CONNECT {
                let cause = "no data connection to the server comes about";
                return Err(Fault::new(Code::ConnectionRefused, self.operation, cause));
            }
            link.turn(self.operation, self.deadline())?;
        }
        Ok(())
    }

    /// Moves what can be moved in MODE X. Returns whether anything was.
    fn pump(&mut self, link: &mut Link) -> Result<bool, Fault> {
        let Some(exchange) = &mut self.exchange else {
            return Ok(false);
        };
        match exchange.pump(link) {
            Ok(has_moved) => {
                if has_moved {
                    self.moved = Instant::now();
                }
                Ok(has_moved)
            }
            // What the server says about it is of more use.
            Err(fault) => Err(self.said(link).unwrap_or(fault)),
        }
    }

    fn await_end(&mut self, link: &mut Link) -> Result<(), Fault> {
        while self.last.is_none() {
            self.events(link, true)?;
            if self.last.is_none() && self.pump(link)? {
                continue;
            }
            if self.last.is_none() {
                link.turn(self.operation, self.deadline())?;
            }
        }
        if self.mode == Mode::Stream {
            let deadline = Instant::now() + CLOSING;
            let awaits = |link: &mut Link| link.channels.iter_mut().any(Channel::awaits_end);
            // What fails here, the next command meets.
            while awaits(link) && link.turn(self.operation, deadline).is_ok() {}
        }
        if self.mode != Mode::Extended {
            link.close_channels();
        }
        Ok(())
    }

    fn send(&mut self, link: &mut Link) -> Result<(), Fault> {
        for channel in &mut link.channels {
            match channel.send() {
                Ok(true) => self.moved = Instant::now(),
                Ok(false) => {}
                // What the server says about it is of more use.
                Err(fault) => {
                    let fault = channel.named(fault);
                    return Err(self.said(link).unwrap_or(fault));
                }
            }
        }
        Ok(())
    }

    /// What a reply says that ends the transfer.
    fn refused(&self, reply: &Reply) -> Fault {
        let fault = refused(self.operation, &self.path, reply);
        let has_come_about = self.exchange.as_ref().is_some_and(|own| own.was_up());
        match has_come_about {
            true => broken(fault),
            false => fault,
        }
    }

    /// The refusal that explains a broken connection, if it comes soon.
    fn said(&self, link: &mut Link) -> Option<Fault> {
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            match link.event() {
                Ok(Some(Event::Final(reply))) if reply.code >= 400 => {
                    return Some(self.refused(&reply));
                }
                Ok(Some(Event::Preliminary(_))) => {}
                Ok(None) => link.turn(self.operation, deadline).ok()?,
                Ok(Some(Event::Final(_))) | Err(_) => return None,
            }
        }
    }

    /// Sends until `found` has something.
    fn wait<T>(&mut self, link: &mut Link, found: impl Fn(&Link) -> Option<T>) -> Result<T, Fault> {
        loop {
            if let Some(found) = found(link) {
                return Ok(found);
            }
            self.events(link, false)?;
            link.turn(self.operation, self.deadline())?;
            self.send(link)?;
        }
    }

    /// When it has waited long enough.
    fn deadline(&self) -> Instant {
        deadline(self.moved, self.heard)
    }

    /// Takes note of replies.
    fn events(&mut self, link: &mut Link, may_end: bool) -> Result<(), Fault> {
        while self.last.is_none() {
            // As long as connections take bytes, nobody waits for replies.
            match link.event_now()? {
                None => break,
                Some(Event::Preliminary(reply)) => {
                    self.heard = Instant::now();
                    if self.markers.take(&reply, u64::MAX) {
                        self.moved = self.heard;
                    }
                }
                Some(Event::Final(reply)) if reply.code >= 300 => {
                    let fault = self.refused(&reply);
                    self.refusal = Some(reply);
                    return Err(fault);
                }
                Some(Event::Final(reply)) if may_end => self.last = Some(reply),
                Some(Event::Final(_)) => {
                    let cause = "the server confirms the file before it has all of it";
                    return Err(violation(self.operation, cause));
                }
            }
        }
        Ok(())
    }
}

/// The end of the wait for a server that takes what is sent or says what it has. Markers come from
/// one that writes to its disk as well as from one that has lost a part of what was sent.
fn deadline(moved: Instant, heard: Instant) -> Instant {
    (moved + STALL).max((heard + STALL).min(moved + STANDSTILL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_that_say_nothing_new_are_not_waited_for_without_end() {
        let moved = Instant::now();
        let minutes = |count: u64| Duration::from_secs(60 * count);
        for (heard, by) in [(0, 1), (1, 2), (8, 9), (9, 10), (10, 10), (100, 10)] {
            let found = deadline(moved, moved + minutes(heard));
            assert_eq!(found, moved + minutes(by), "{heard}");
        }
    }
}
