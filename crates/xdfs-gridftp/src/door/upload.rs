//! Transfers from the peer.
//!
//! A file that is stored whole is written under a hidden name and published once everything has
//! come, as xDFS does it. In MODE E its journal keeps what markers have told the peer to be
//! durable, so that REST can go on with it, and with nothing else. What the protocol defines as a
//! change of an existing file (APPE, ESTO) is written in place.

mod striped;

use std::io::IoSlice;
use std::time::{Duration, Instant, UNIX_EPOCH};

use xdfs_proto::digest::{DigestKind, Fragment, FragmentState};
use xdfs_proto::file::FileFlags;
use xdfs_proto::frame::Resume;
use xdfs_proto::path::FileKind;
use xdfs_proto::{ByteRange, Code, Fault, RangeSet, SourceTag};
use xdfs_store::{File, FileRequest, Sink, SinkRequest, Store};

use super::channels::{Connection, lost};
use super::exchange::{Exchange, Transaction};
use super::link::{Link, Step};
use super::rows::stat;
use super::segment::{Arriving, SegmentMemory};
use crate::block::{HeaderError, Piece};
use crate::checksum::{Algorithm, Hasher};
use crate::command::Mode;
use crate::receiver::{CONNECTIONS_MAX, ReceiveError, Receiver};
use crate::restart::Restart;
use crate::session::{Outcome, Place};
use crate::xmode;

const OPERATION: &str = "store";
/// Bytes received between looks at the control connection.
const TURN_BYTES: u64 = 8 << 20;
/// Interval of markers.
const MARKER_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes after which the system is told to write back, so that later synchronising is short.
const WRITE_BACK_BYTES: u64 = 8 << 20;
/// The version of all sources: the protocol has none, and a client that sends REST vouches for it.
const TAG: SourceTag = SourceTag(*b"gridftp upload 1");
/// Grid of blocks in journals, which have none in this protocol.
const BLOCK_SIZE: u32 = 1 << 20;

/// Where the bytes go.
#[derive(Debug)]
enum Target {
    /// To a file of its own, which replaces the target.
    Sink(Box<dyn Sink>),
    /// To an existing or new file, from an offset on.
    InPlace(Box<dyn File>, u64),
    /// Into memory, until it is unpacked.
    Segment(Arriving),
}

/// The checksum that the client has announced, and that of what has been read back.
#[derive(Debug)]
struct Check {
    hasher: Hasher,
    digits: String,
    at: u64,
}

/// A transfer in progress.
#[derive(Debug)]
pub(super) struct Upload {
    target: Target,
    check: Option<Check>,
    mode: Mode,
    path: Vec<u8>,
    receiver: Receiver,
    /// Where the next byte goes in stream mode.
    at: u64,
    has_ended: bool,
    /// In stream mode, when a file of which everything has come is published.
    publishes_at: Option<Instant>,
    marker_at: Option<Instant>,
    /// In MODE X.
    exchange: Option<Box<Exchange<xmode::Receiver>>>,
    /// The journal has ranges that the peer knows of.
    is_kept: bool,
    /// Data nodes write, and this follows them.
    told: Option<striped::Told>,
    /// This is such a node's, and writes nothing once its server has closed the link.
    obeys: bool,
    /// Bytes since the system was told to write back, and where they began.
    written_back: u64,
}

impl Upload {
    /// Opens the target.
    ///
    /// # Errors
    /// It can't be written, or doesn't have what `restart` says it has.
    pub(super) fn open(
        store: &dyn Store,
        mode: Mode,
        path: Vec<u8>,
        place: Place,
        restart: Option<Restart>,
        announced: Option<(Algorithm, String)>,
    ) -> Result<Self, Fault> {
        let held = held(mode, restart, &path)?;
        let end = held.as_slice().last().map_or(0, |range| range.end);
        let mut is_kept = false;
        let (target, at) = match place {
            Place::Unique => (open_sink(store, mode, &path, false)?, 0),
            Place::Whole if end == 0 => (open_sink(store, mode, &path, true)?, 0),
            Place::Whole => {
                is_kept = true;
                (Target::Sink(resume(store, mode, &path, &held)?), 0)
            }
            Place::At(offset) => {
                if end > 0 {
                    check_size(store, &path, offset.saturating_add(end))?;
                }
                let file = open_file(store, &path, true)?;
                (Target::InPlace(file, offset), end)
            }
            Place::End => {
                let file = open_file(store, &path, true)?;
                let size = file.attributes()?.size;
                (Target::InPlace(file, size), 0)
            }
        };
        let check = announced.map(|(kind, digits)| Check {
            hasher: Hasher::new(kind),
            digits,
            at: 0,
        });
        Ok(Self {
            check,
            receiver: Receiver::new(held),
            at,
            is_kept,
            ..Self::new(target, mode, path)
        })
    }

    /// A segment of a tree, which is unpacked once it has come.
    pub(super) fn segment(mode: Mode, path: Vec<u8>, segment: Arriving) -> Self {
        Self::new(Target::Segment(segment), mode, path)
    }

    fn new(target: Target, mode: Mode, path: Vec<u8>) -> Self {
        Self {
            target,
            check: None,
            mode,
            path,
            receiver: Receiver::default(),
            at: 0,
            has_ended: false,
            publishes_at: None,
            marker_at: None,
            exchange: None,
            is_kept: false,
            told: None,
            obeys: false,
            written_back: 0,
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// When it has something to do without an event.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let opens_at = self.exchange.as_ref().and_then(|own| own.next_time());
        let next = self.publishes_at.or(self.marker_at);
        next.into_iter().chain(opens_at).min()
    }

    /// Goes on in MODE X.
    pub(super) fn exchange(&mut self, transaction: Transaction) {
        self.exchange = Some(Box::new(Exchange::receiver(transaction)));
    }

    /// All that is stored.
    pub(super) fn stored(&self) -> &RangeSet {
        self.receiver.ranges()
    }

    /// Takes what has come.
    ///
    /// # Errors
    /// The peer violates the protocol, a connection is broken, or the target can't be written.
    pub(super) fn step(&mut self, link: &mut Link<'_>) -> Result<Step, Fault> {
        if self.told.is_none() {
            self.mark(link)?;
        } else if !self.has_ended {
            self.has_ended = self.take_reports(link)?;
        }
        let is_stuck = match self.exchange.take() {
            _ if self.told.is_some() => true,
            Some(mut exchange) => {
                let again = exchange.step(self, link)?;
                self.has_ended = exchange.is_done();
                self.exchange = Some(exchange);
                !again
            }
            None => self.receive_all(link)?,
        };
        match (self.has_ended, is_stuck) {
            (true, _) if self.is_unproved(link) => {
                let cause = "the data connection ended without an end of TLS, and not with the \
                             bytes that ALLO has told: it may have been cut off";
                let fault = Fault::new(Code::ConnectionLost, OPERATION, cause).path(&self.path);
                Err(fault.hint("use MODE E (globus-url-copy -fast), or tell the size with ALLO"))
            }
            (true, _) if self.awaits_check(link)? => Ok(Step::Again),
            (true, _) if self.awaits_client(link)? => Ok(Step::Wait),
            (true, _) => Ok(Step::Done(self.finish(link)?)),
            (false, true) => Ok(Step::Wait),
            (false, false) => Ok(Step::Again),
        }
    }

    /// Takes what has come in other modes than MODE X. Returns whether nothing is left of it.
    fn receive_all(&mut self, link: &mut Link<'_>) -> Result<bool, Fault> {
        let most = match self.mode {
            Mode::Stream => 1,
            _ => usize::try_from(CONNECTIONS_MAX).unwrap_or(usize::MAX),
        };
        link.channels.accept(link.poller, most)?;
        let mut moved = 0;
        let mut is_stuck = false;
        while !is_stuck && moved < TURN_BYTES && !self.has_ended {
            is_stuck = true;
            for number in 0..link.channels.connections.len() {
                if let Some(bytes) = self.receive(link, number)? {
                    is_stuck = false;
                    moved += bytes;
                    link.moved(bytes);
                }
                if self.has_ended || link.is_paused() {
                    is_stuck = true;
                    break;
                }
            }
        }
        Ok(is_stuck)
    }

    /// Whether somebody in between may have ended what should be protected.
    fn is_unproved(&self, link: &Link<'_>) -> bool {
        let mut connections = link.channels.connections.iter();
        let is_told = connections.any(Connection::has_told_end);
        self.mode == Mode::Stream && link.machine.is_unproved(is_told)
    }

    /// Reads once from a connection. `None` if nothing can be read.
    fn receive(&mut self, link: &mut Link<'_>, number: usize) -> Result<Option<u64>, Fault> {
        let connection = &mut link.channels.connections[number];
        if !connection.can_read() {
            return Ok(None);
        }
        let wants = match self.mode {
            Mode::Stream => link.buffer.len(),
            _ => connection.blocks.wants(link.buffer.len()),
        };
        if wants == 0 {
            return Ok(None);
        }
        let Some(read) = connection.receive(&mut link.buffer[..wants])? else {
            return Ok(None);
        };
        if self.obeys && link.is_client_gone() {
            let cause = "the server has closed the link";
            return Err(Fault::new(Code::ConnectionLost, OPERATION, cause).path(&self.path));
        }
        let connection = &mut link.channels.connections[number];
        if self.mode == Mode::Stream {
            let bytes = &link.buffer[..read];
            self.has_ended = read == 0;
            if self.has_ended {
                // Clients with TLS wait for the answer. What has come is whole without it.
                let _ = connection.end();
            }
            self.store(self.at, bytes)?;
            self.at += read as u64;
            return Ok(Some(read as u64));
        }
        if read == 0 {
            return Err(Fault {
                code: Code::ConnectionLost,
                ..violation(&ReceiveError::ClosedEarly)
            });
        }
        let mut bytes = &link.buffer[..read];
        while !bytes.is_empty() {
            let taken = connection.blocks.take(bytes);
            let (taken, piece) = taken.map_err(|error| match error {
                // No mistake of the client: its data can't be read well.
                HeaderError::Suspect => Fault {
                    code: Code::Io,
                    ..violation(&error)
                },
                _ => violation(&error),
            })?;
            match piece {
                Some(Piece::Header(header)) => {
                    self.receiver.header(&header).map_err(|e| violation(&e))?;
                }
                Some(Piece::Payload { offset, length }) => self.store(offset, &bytes[..length])?,
                None => {}
            }
            bytes = &bytes[taken..];
        }
        // The payload of a block with EOD comes after the header that counts it.
        if self.receiver.has_all_eods() {
            let connections = &link.channels.connections;
            let is_between = |own: &Connection| !own.blocks.is_within_payload();
            self.has_ended = connections.iter().all(is_between);
        }
        Ok(Some(read as u64))
    }

    /// Puts bytes where they belong.
    ///
    /// # Errors
    /// They can't be written, or leave too many gaps.
    pub(super) fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let range = ByteRange::at(offset, bytes.len() as u64);
        let range = range.filter(|range| i64::try_from(range.end).is_ok());
        let Some(range) = range.filter(|range| !range.is_empty()) else {
            return Ok(());
        };
        match &mut self.target {
            Target::Sink(sink) => {
                sink.write_at(offset, &[IoSlice::new(bytes)])?;
                self.written_back += range.len();
                if self.written_back >= WRITE_BACK_BYTES {
                    let start = range.end.saturating_sub(self.written_back);
                    let end = range.end;
                    sink.begin_write_back(ByteRange { start, end });
                    self.written_back = 0;
                }
            }
            Target::InPlace(file, base) => {
                let at = base.checked_add(offset);
                let at = at.ok_or_else(|| violation(&HeaderError::TooFar))?;
                let written = file.write_at(at, bytes);
                written.map_err(|fault| fault.preventing(&self.path))?;
            }
            Target::Segment(segment) => segment.put(offset, bytes)?,
        }
        self.receiver.stored(range).map_err(|e| violation(&e))
    }

    /// Tells how far it is, when that is due.
    fn mark(&mut self, link: &mut Link<'_>) -> Result<(), Fault> {
        if self.mode == Mode::Stream {
            return Ok(());
        }
        let now = link.clock.instant();
        let is_first = self.marker_at.is_none();
        if self.marker_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        self.marker_at = Some(now + MARKER_INTERVAL);
        if link.machine.is_full() {
            // The client doesn't read. The next one tells these ranges too.
            return Ok(());
        }
        let durable = match is_first {
            true => RangeSet::new(),
            false => self.make_durable()?,
        };
        self.tell(link, &durable);
        Ok(())
    }

    fn tell(&self, link: &mut Link<'_>, durable: &RangeSet) {
        self.tell_of(link, (0, 1), self.receiver.bytes(), durable);
    }

    /// Tells how far a stripe is: its number, and how many there are.
    fn tell_of(&self, link: &mut Link<'_>, stripe: (usize, usize), bytes: u64, durable: &RangeSet) {
        let time = link.clock.time().duration_since(UNIX_EPOCH);
        let tenths = time.map_or(0, |time| time.as_millis() / 100);
        let tenths = u64::try_from(tenths).unwrap_or(u64::MAX);
        link.machine.progress(stripe, tenths, bytes, durable);
        link.has_moved |= !durable.as_slice().is_empty();
    }

    /// Makes what is new durable, and returns it.
    fn make_durable(&mut self) -> Result<RangeSet, Fault> {
        if matches!(self.target, Target::Segment(_)) {
            return Ok(RangeSet::new());
        }
        let fresh = self.receiver.take_fresh();
        if fresh.as_slice().is_empty() {
            return Ok(fresh);
        }
        match &mut self.target {
            Target::Sink(sink) => {
                sink.sync()?;
                let fragments = fresh.as_slice().iter().map(|range| Fragment {
                    range: *range,
                    state: FragmentState::None,
                });
                sink.record(&fragments.collect::<Vec<_>>())?;
                self.is_kept = true;
            }
            Target::InPlace(file, _) => {
                let synced = file.sync(true);
                synced.map_err(|fault| fault.preventing(&self.path))?;
            }
            Target::Segment(_) => {}
        }
        Ok(fresh)
    }

    /// Whether not all of the file is compared with the checksum that was announced. It is read
    /// back, since in MODE E its bytes come in any order.
    ///
    /// # Errors
    /// It differs, or can't be read.
    fn awaits_check(&mut self, link: &mut Link<'_>) -> Result<bool, Fault> {
        let (Some(mut check), Target::Sink(sink)) = (self.check.take(), &mut self.target) else {
            return Ok(false);
        };
        let length = length(&self.path, self.receiver.ranges())?;
        let stop = length.min(check.at.saturating_add(TURN_BYTES));
        while check.at < stop {
            let room = link.buffer.len() as u64;
            let wanted = usize::try_from(room.min(stop - check.at)).unwrap_or(usize::MAX);
            let read = sink.read_back(check.at, &mut link.buffer[..wanted])?;
            if read == 0 {
                let cause = "what was written can't be read back";
                return Err(Fault::new(Code::Io, OPERATION, cause).path(&self.path));
            }
            check.hasher.update(&link.buffer[..read]);
            check.at += read as u64;
        }
        link.has_moved = true;
        if check.at < length {
            self.check = Some(check);
            return Ok(true);
        }
        let found = check.hasher.finish();
        if found == check.digits {
            return Ok(false);
        }
        self.keep_nothing();
        let cause = format!(
            "its checksum is {found}, and SCKS has told {}",
            check.digits
        );
        Err(Fault::new(Code::IntegrityMismatch, OPERATION, cause).path(&self.path))
    }

    /// Whether a file that came in stream mode isn't published yet. A client that was killed ends
    /// both connections without having sent everything, and the end of the control connection
    /// may come a little later.
    ///
    /// # Errors
    /// The client is gone, or the file can't be made durable.
    fn awaits_client(&mut self, link: &Link<'_>) -> Result<bool, Fault> {
        let Target::Sink(sink) = &mut self.target else {
            return Ok(false);
        };
        if self.mode != Mode::Stream {
            return Ok(false);
        }
        let until = match self.publishes_at {
            Some(until) => until,
            None => {
                let until = link.clock.instant() + link.later_end();
                self.publishes_at = Some(until);
                sink.sync()?;
                until
            }
        };
        if link.is_client_gone() {
            return Err(gone(&self.path));
        }
        Ok(link.clock.instant() < until)
    }

    /// Publishes what has come, and tells the last ranges.
    fn finish(&mut self, link: &mut Link<'_>) -> Result<Outcome, Fault> {
        let mut outcome = Outcome::Done;
        match &mut self.target {
            Target::Sink(sink) => {
                let length = length(&self.path, self.receiver.ranges())?;
                sink.publish(length, &[])?;
            }
            Target::InPlace(file, _) => {
                let synced = file.sync(false);
                synced.map_err(|fault| fault.preventing(&self.path))?;
            }
            Target::Segment(segment) => {
                length(&self.path, self.receiver.ranges())?;
                let failures = segment.finish()?;
                if !failures.is_empty() {
                    outcome = Outcome::Partly(failures);
                }
            }
        }
        if self.mode != Mode::Stream && self.told.is_none() {
            let fresh = match self.target {
                // Its bytes are none of a file.
                Target::Segment(_) => RangeSet::new(),
                _ => self.receiver.take_fresh(),
            };
            self.tell(link, &fresh);
        }
        Ok(outcome)
    }

    /// The memory of a segment that is stored.
    pub(super) fn take_memory(&mut self) -> Option<SegmentMemory> {
        match &mut self.target {
            Target::Segment(segment) => Some(segment.take_memory()),
            _ => None,
        }
    }

    /// Nothing goes on with what has come.
    pub(super) fn keep_nothing(&mut self) {
        self.is_kept = false;
    }

    /// It has failed: what can't be gone on with is removed.
    pub(super) fn discard(&mut self) {
        let Target::Sink(sink) = &mut self.target else {
            return;
        };
        if !self.is_kept {
            let discarded = sink.discard();
            if let Err(fault) = discarded {
                tracing::warn!(%fault, "an unfinished file could not be removed");
            }
        }
    }
}

/// What a point of restart says has come already.
fn held(mode: Mode, restart: Option<Restart>, path: &[u8]) -> Result<RangeSet, Fault> {
    match (mode, restart) {
        (_, None) => Ok(RangeSet::new()),
        (_, Some(Restart::At(end))) => {
            let mut held = RangeSet::new();
            held.insert(ByteRange { start: 0, end });
            Ok(held)
        }
        (Mode::Exchange(_) | Mode::Extended, Some(Restart::Without(held))) => Ok(held),
        (Mode::Stream, Some(Restart::Without(_))) => {
            let cause = "REST with ranges needs MODE E";
            Err(Fault::new(Code::InvalidArgument, OPERATION, cause).path(path))
        }
    }
}

/// The length of a file of which these ranges have come.
///
/// # Errors
/// Something before its end is missing.
fn length(path: &[u8], ranges: &RangeSet) -> Result<u64, Fault> {
    match ranges.as_slice() {
        [] => Ok(0),
        [whole] if whole.start == 0 => Ok(whole.end),
        ranges => Err(gaps(path, ranges)),
    }
}

fn request(mode: Mode, path: &[u8], resume: Resume) -> SinkRequest {
    SinkRequest {
        path: path.to_vec(),
        name: Vec::new(),
        // What ALLO says is a hint, which must not make anything fail.
        length: None,
        offset: 0,
        tag: match mode {
            Mode::Stream => SourceTag::default(),
            Mode::Exchange(_) | Mode::Extended => TAG,
        },
        mode: None,
        mtime_ns: None,
        digest: DigestKind::None,
        block_size: BLOCK_SIZE,
        overwrite: true,
        resume,
        sparse: false,
    }
}

fn open_sink(store: &dyn Store, mode: Mode, path: &[u8], overwrite: bool) -> Result<Target, Fault> {
    let opened = store.open_sink(&SinkRequest {
        overwrite,
        ..request(mode, path, Resume::Never)
    })?;
    Ok(Target::Sink(opened.sink))
}

/// The unfinished file of an earlier attempt, which has to have all that is `held`.
///
/// # Errors
/// It hasn't, or another transfer writes it. The file that has the name now is another version,
/// whose bytes must not be mixed with those that come.
fn resume(
    store: &dyn Store,
    mode: Mode,
    path: &[u8],
    held: &RangeSet,
) -> Result<Box<dyn Sink>, Fault> {
    let missing = |cause: &str| {
        let fault = Fault::new(Code::OffsetPastEnd, OPERATION, cause).path(path);
        fault.hint("begin without REST; ESTO A and APPE change a file in place")
    };
    if mode == Mode::Stream {
        return Err(missing("a transfer in stream mode can't be gone on with"));
    }
    let opened = store.open_sink(&request(mode, path, Resume::Trust))?;
    let (mut sink, mut fragments) = (opened.sink, opened.durable);
    if opened.unverified {
        fragments = loop {
            if let Some(verified) = sink.verify()? {
                break verified;
            }
        };
    }
    let mut durable = RangeSet::new();
    fragments
        .iter()
        .for_each(|fragment| durable.insert(fragment.range));
    if held.as_slice().iter().all(|range| durable.contains(*range)) {
        return Ok(sink);
    }
    if fragments.is_empty() {
        sink.discard()?;
    }
    Err(missing(
        "these ranges of an unfinished transfer aren't here",
    ))
}

/// Checks that a file has the bytes that a point of restart relies on.
fn check_size(store: &dyn Store, path: &[u8], end: u64) -> Result<(), Fault> {
    let attributes = stat(store, path, true)?;
    if attributes.kind == FileKind::File && attributes.size >= end {
        return Ok(());
    }
    let cause = format!(
        "the bytes up to {end} aren't here: the file has {} bytes",
        attributes.size
    );
    let fault = Fault::new(Code::OffsetPastEnd, OPERATION, cause).path(path);
    Err(fault.hint("begin without REST"))
}

fn open_file(store: &dyn Store, path: &[u8], create: bool) -> Result<Box<dyn File>, Fault> {
    let opened = store.open_file(&FileRequest {
        path: path.to_vec(),
        flags: FileFlags {
            write: true,
            create,
            ..FileFlags::default()
        },
        mode: None,
        identity: None,
    })?;
    if opened.file.is_pipe() {
        let cause = "it is a pipe";
        return Err(Fault::new(Code::NotRegularFile, OPERATION, cause).path(path));
    }
    Ok(opened.file)
}

fn gaps(path: &[u8], ranges: &[ByteRange]) -> Fault {
    let missing = match ranges {
        [first, ..] if first.start > 0 => 0,
        [first, ..] => first.end,
        [] => 0,
    };
    let cause = format!("not everything has come: bytes from {missing} on are missing");
    Fault::new(Code::OffsetPastEnd, OPERATION, cause).path(path)
}

fn gone(path: &[u8]) -> Fault {
    let cause = "the client went away before its transfer was confirmed";
    Fault::new(Code::ConnectionLost, OPERATION, cause).path(path)
}

/// The peer's data make no sense.
fn violation(error: &dyn std::error::Error) -> Fault {
    Fault {
        code: Code::ProtocolViolation,
        ..lost("receive", &std::io::Error::other(error.to_string()))
    }
}
