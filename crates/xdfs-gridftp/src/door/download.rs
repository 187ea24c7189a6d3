//! Transfers to the peer: files, parts of them, and listings.

mod striped;

use std::time::{Duration, Instant};

use xdfs_proto::{ByteRange, Code, Fault, RangeSet};
use xdfs_store::{Source, Store};

use super::catalogue::Opened;
use super::channels::{Channels, Connection};
use super::exchange::{Exchange, Transaction};
use super::link::{Link, Step};
use super::rows::Rows;
use super::segment::{Segment, SegmentMemory};
use crate::block::{HEADER_BYTES, Header};
use crate::command::Mode;
use crate::restart::Restart;
use crate::sender::{Eofs, Send, Sender};
use crate::session::Outcome;
use crate::stripe::Portion;
use crate::xmode;

const OPERATION: &str = "send";
/// Bytes of payload in a block.
const BLOCK_BYTES: u64 = 256 << 10;
/// Fewest bytes of payload in a block, and how many those of all connections have together: each
/// holds one until it is sent.
const BLOCK_BYTES_MIN: u64 = 16 << 10;
const BLOCKS_BYTES_MAX: u64 = 4 << 20;
/// Bytes sent between looks at the control connection.
const TURN_BYTES: u64 = 8 << 20;

/// Where the bytes come from.
#[derive(Debug)]
enum Feed {
    /// A file, from an offset on.
    File {
        source: Box<dyn Source>,
        path: Vec<u8>,
        offset: u64,
        is_verified: bool,
    },
    Opened(Opened),
    Rows(Rows),
    Segment(Box<Segment>),
}

/// A transfer in progress.
#[derive(Debug)]
pub(super) struct Download {
    feed: Feed,
    mode: Mode,
    /// What is sent of the file.
    ranges: RangeSet,
    /// In place of them at a data node: one stripe, and what it says at the end.
    portion: Option<(Portion, Eofs)>,
    /// Data nodes send, and this follows them.
    follows: bool,
    /// When it looks at them without an event.
    looks_at: Option<Instant>,
    sender: Option<Sender>,
    /// In MODE X.
    exchange: Option<Box<Exchange<xmode::Sender>>>,
    /// Bytes of payload dealt out to connections.
    payload: u64,
    /// The next rows of a listing are still being looked for.
    is_searching: bool,
}

impl Download {
    /// Opens a file, or a part of it, without what `restart` says the peer has.
    ///
    /// # Errors
    /// It can't be read, or there is no such part.
    pub(super) fn file(
        store: &dyn Store,
        mode: Mode,
        path: Vec<u8>,
        part: Option<(u64, u64)>,
        restart: Option<Restart>,
    ) -> Result<Self, Fault> {
        let source = store.open_source(&path)?;
        let info = source.info();
        let Some(size) = info.length.filter(|_| info.random_reads) else {
            let cause = "it has no length";
            return Err(Fault::new(Code::NotRegularFile, OPERATION, cause).path(path));
        };
        let (offset, end) = match part {
            None => (0, size),
            // As far as the file goes: clients ask for more than there is.
            Some((offset, length)) => (offset, offset.saturating_add(length).min(size)),
        };
        let past_end = |at: u64| {
            let cause = format!("byte {at} lies past the end of the file, which has {size} bytes");
            Fault::new(Code::OffsetPastEnd, OPERATION, cause).path(&path)
        };
        if offset > size {
            return Err(past_end(offset));
        }
        let mut ranges = RangeSet::new();
        ranges.insert(ByteRange {
            start: 0,
            end: end - offset,
        });
        match restart {
            None => {}
            Some(Restart::At(at)) if at > end - offset => return Err(past_end(at)),
            Some(Restart::At(at)) => ranges.remove(ByteRange { start: 0, end: at }),
            Some(Restart::Without(_)) if mode == Mode::Stream => {
                let cause = "REST with ranges needs MODE E";
                return Err(Fault::new(Code::InvalidArgument, OPERATION, cause).path(path));
            }
            Some(Restart::Without(held)) => {
                held.as_slice()
                    .iter()
                    .for_each(|range| ranges.remove(*range));
            }
        }
        let feed = Feed::File {
            source,
            path,
            offset,
            is_verified: false,
        };
        Ok(Self {
            ranges,
            ..Self::of(mode, feed)
        })
    }

    /// A listing.
    pub(super) fn rows(mode: Mode, rows: Rows) -> Self {
        Self::of(mode, Feed::Rows(rows))
    }

    /// The rows of a transaction.
    pub(super) fn opened(mode: Mode, opened: Opened) -> Self {
        Self::of(mode, Feed::Opened(opened))
    }

    /// A segment of a tree.
    pub(super) fn segment(mode: Mode, segment: Segment) -> Self {
        Self::of(mode, Feed::Segment(Box::new(segment)))
    }

    fn of(mode: Mode, feed: Feed) -> Self {
        Self {
            feed,
            mode,
            ranges: RangeSet::new(),
            portion: None,
            follows: false,
            looks_at: None,
            sender: None,
            exchange: None,
            payload: 0,
            is_searching: false,
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Goes on in MODE X, over so many connections.
    pub(super) fn exchange(&mut self, transaction: Transaction, connections: u32) {
        let ranges = std::mem::take(&mut self.ranges);
        let block = block_bytes(u64::from(connections));
        let machine = xmode::Sender::new(transaction.id, transaction.sum, ranges, block);
        self.exchange = Some(Box::new(Exchange::sender(transaction, machine)));
    }

    /// The memory of a segment that is sent.
    pub(super) fn take_memory(&mut self) -> Option<SegmentMemory> {
        match &mut self.feed {
            Feed::Segment(segment) => Some(segment.take_memory()),
            _ => None,
        }
    }

    /// When it has something to do without an event.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let exchange = self.exchange.as_ref().and_then(|own| own.next_time());
        exchange.or(self.looks_at)
    }

    /// Appends a part of the file.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn read(&mut self, range: ByteRange, block: &mut Vec<u8>) -> Result<(), Fault> {
        self.feed.read(range, block)
    }

    /// Checks that all that was sent is of one version, before the end is sent.
    ///
    /// # Errors
    /// It isn't.
    pub(super) fn verify(&mut self) -> Result<(), Fault> {
        self.feed.verify()
    }

    /// Sends what can be sent.
    ///
    /// # Errors
    /// The file can't be read or has changed, or a connection is broken.
    pub(super) fn step(&mut self, link: &mut Link<'_>) -> Result<Step, Fault> {
        if let Some(mut exchange) = self.exchange.take() {
            let again = exchange.step(self, link)?;
            if exchange.is_done() {
                return Ok(Step::Done(Outcome::Done));
            }
            self.exchange = Some(exchange);
            return Ok(if again { Step::Again } else { Step::Wait });
        }
        if self.follows {
            return self.take_reports(link);
        }
        link.channels.accept(link.poller, 1)?;
        if link.channels.connections.is_empty() {
            return Ok(Step::Wait);
        }
        let mut sender = self.take_sender(link.channels);
        let mut moved = 0;
        let mut is_stuck = false;
        while !is_stuck && moved < TURN_BYTES {
            is_stuck = true;
            for number in 0..link.channels.connections.len() {
                let connection = &mut link.channels.connections[number];
                if !connection.can_write() {
                    continue;
                }
                if connection.is_free() && !self.next_block(&mut sender, number, connection)? {
                    continue;
                }
                let sent = connection.send()? as u64;
                is_stuck &= sent == 0;
                moved += sent;
                if sent > 0 {
                    link.moved(sent);
                }
                if link.is_paused() {
                    is_stuck = true;
                    break;
                }
            }
        }
        if sender.has_ended() && self.has_sent_all(&mut link.channels.connections)? {
            return Ok(Step::Done(match &self.feed {
                Feed::File { .. } => Outcome::Done,
                Feed::Rows(rows) => Outcome::Listed(rows.left_out()),
                Feed::Opened(opened) => Outcome::Receipt(opened.receipt()),
                Feed::Segment(segment) => Outcome::Receipt(segment.receipt()),
            }));
        }
        self.sender = Some(sender);
        if std::mem::take(&mut self.is_searching) {
            // That isn't idle.
            link.moved(0);
            return Ok(Step::Again);
        }
        Ok(if is_stuck { Step::Wait } else { Step::Again })
    }

    /// Whether everything is on its way, in stream mode the end too.
    fn has_sent_all(&self, connections: &mut [Connection]) -> Result<bool, Fault> {
        for connection in connections {
            let is_sent = connection.is_free()
                && match self.mode {
                    Mode::Stream => connection.end()?,
                    Mode::Exchange(_) | Mode::Extended => connection.flush()?,
                };
            if !is_sent {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The sender, made once the connections are known.
    fn take_sender(&mut self, channels: &Channels) -> Sender {
        self.sender.take().unwrap_or_else(|| {
            let groups: Vec<_> = channels.connections.iter().map(|own| own.group).collect();
            match self.feed {
                Feed::File { .. } => {
                    let block = block_bytes(groups.len() as u64);
                    match self.portion.take() {
                        Some((own, eofs)) => Sender::of_portion(own, eofs, block, &groups),
                        None => Sender::of_ranges(std::mem::take(&mut self.ranges), block, &groups),
                    }
                }
                Feed::Opened(_) | Feed::Rows(_) | Feed::Segment(_) => Sender::of_writes(&groups),
            }
        })
    }

    /// Puts the next block of a connection together. Returns whether there is one.
    fn next_block(
        &mut self,
        sender: &mut Sender,
        number: usize,
        connection: &mut Connection,
    ) -> Result<bool, Fault> {
        connection.begin_block();
        if sender.has_no_more_data() {
            self.feed.verify()?;
        }
        let block = &mut connection.block;
        let header = match sender.next_for(number) {
            Send::Nothing => return Ok(false),
            Send::Block(header, range) => {
                begin(block, self.mode, header);
                self.feed.read(range, block)?;
                self.payload += range.len();
                return Ok(true);
            }
            Send::NotYet => {
                if let Feed::Segment(segment) = &mut self.feed {
                    let header_bytes = match self.mode {
                        Mode::Extended => HEADER_BYTES,
                        Mode::Exchange(_) | Mode::Stream => 0,
                    };
                    // The header is known once the payload is.
                    block.resize(header_bytes, 0);
                    segment.fill(block)?;
                    let length = block.len() - header_bytes;
                    if let Some(header) = sender.written(length as u64) {
                        block[..header_bytes].copy_from_slice(&header.encode()[..header_bytes]);
                        return Ok(true);
                    }
                    block.clear();
                }
                let mut made = Vec::new();
                match &mut self.feed {
                    Feed::File { .. } => return Ok(false),
                    Feed::Opened(opened) => opened.fill(&mut made),
                    Feed::Rows(rows) => {
                        rows.fill(&mut made)?;
                        self.is_searching = made.is_empty() && !rows.is_at_end();
                        if self.is_searching {
                            return Ok(false);
                        }
                    }
                    Feed::Segment(_) => {}
                }
                if let Some(header) = sender.written(made.len() as u64) {
                    begin(block, self.mode, header);
                    block.append(&mut made);
                    return Ok(true);
                }
                match sender.next_for(number) {
                    Send::End(header) => header,
                    _ => return Ok(false),
                }
            }
            Send::End(header) => header,
        };
        begin(block, self.mode, header);
        Ok(!block.is_empty())
    }
}

/// Bytes of payload in the blocks of so many connections.
fn block_bytes(connections: u64) -> u64 {
    let each = BLOCKS_BYTES_MAX / connections.max(1);
    each.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES)
}

/// Appends a header, if the mode has any.
fn begin(block: &mut Vec<u8>, mode: Mode, header: Header) {
    if mode == Mode::Extended {
        block.extend_from_slice(&header.encode());
    }
}

impl Feed {
    fn read(&mut self, range: ByteRange, block: &mut Vec<u8>) -> Result<(), Fault> {
        let Self::File {
            source,
            path,
            offset,
            ..
        } = self
        else {
            return Ok(());
        };
        let (start, length) = (
            block.len(),
            usize::try_from(range.len()).unwrap_or(usize::MAX),
        );
        block.resize(start + length, 0);
        let read = source.read_at(*offset + range.start, &mut block[start..])?;
        if read == length {
            return Ok(());
        }
        let cause = "the file became shorter while it was sent";
        Err(Fault::new(Code::SourceChanged, OPERATION, cause).path(path))
    }

    /// Checks that all that was sent is of one version, before the end is sent.
    fn verify(&mut self) -> Result<(), Fault> {
        match self {
            Self::File {
                source,
                is_verified,
                ..
            } if !*is_verified => {
                *is_verified = true;
                source.verify_unchanged()
            }
            _ => Ok(()),
        }
    }
}
