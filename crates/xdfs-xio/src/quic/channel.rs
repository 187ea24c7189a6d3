//! What joins the thread of an endpoint and the user of one stream: two bounded queues.
//!
//! How lost wake-ups are prevented: each side changes the state under one lock. The user sets its
//! waiting flag under the lock under which it found nothing to read or no room, and the thread
//! checks the flag when it changes that. The user requests the thread's attention by an event, once
//! until the thread has looked. Events are sent after the lock is released.
//!
//! A pace bounds the queue of outgoing bytes too: what waits there can't be overtaken.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::ConnectionStats;
use xdfs_sys::poll::{Event, Notifier, Token};

use super::options::Congestion;
use super::round_trip::RoundTrip;
use crate::stream::{PathSample, Protection};

/// Maximum bytes queued in each direction.
const CAPACITY: usize = 1 << 20;
/// The same for outgoing bytes at a pace: those of this time, but no less than this many.
const PACED_TIME: Duration = Duration::from_millis(250);
const PACED_CAPACITY_MIN: usize = 64 << 10;
/// Bytes that a queued buffer counts beside its content, so that tiny ones are bounded too.
const OVERHEAD: usize = 64;
/// Largest buffer of outgoing bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// A stream as the thread and its user see it.
#[derive(Debug)]
pub(super) struct Channel {
    /// Its token at the thread's poller.
    key: Token,
    thread: Notifier,
    state: Mutex<State>,
}

/// What is known of an open stream and its connection.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The binding of this stream.
    pub(super) binding: [u8; 32],
    /// The certificates of the peer.
    pub(super) peer_certificates: Arc<Vec<Vec<u8>>>,
    /// Both ends are on one machine.
    pub(super) local: bool,
    /// The counters of the connection.
    pub(super) counters: Arc<Counters>,
}

/// The counters of a connection, as of its last activity.
#[derive(Debug)]
pub(super) struct Counters {
    /// The congestion control.
    pub(super) congestion: Congestion,
    figures: Mutex<Figures>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    stats: ConnectionStats,
    round_trip: RoundTrip,
    /// Bytes that the connection took from all its streams.
    taken_bytes: u64,
}

/// The end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// In order.
    Orderly,
    /// The peer gave it up.
    Reset,
}

/// Why a stream failed, for each call that asks.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// The kind of the error.
    pub(super) kind: io::ErrorKind,
    /// Its cause.
    pub(super) cause: String,
    /// The error of TLS that is its cause, for those who explain it.
    pub(super) tls: Option<rustls::Error>,
}

#[derive(Debug, Default)]
struct State {
    facts: Option<Facts>,
    failure: Option<Failure>,

    incoming: VecDeque<Bytes>,
    incoming_cost: usize,
    /// The thread left bytes with the connection for want of room.
    more: bool,
    end: Option<End>,

    outgoing: VecDeque<Vec<u8>>,
    /// Bytes in `outgoing`, and those with the thread that the connection hasn't taken.
    outgoing_bytes: usize,
    /// Bytes that the connection has taken.
    taken_bytes: u64,
    /// Bytes per second that the connection takes at most.
    pace: Option<u64>,
    /// The peer reads no more.
    stopped: bool,
    /// The peer left without reading all bytes.
    left_unread: bool,

    /// The user wrote its last byte.
    closing: bool,
    /// The user breaks off.
    aborts: bool,
    /// The user has accepted the peer.
    is_admitted: bool,
    dropped: Option<Dropped>,

    registered: Option<(Notifier, Token)>,
    reader_waits: bool,
    writer_waits: bool,
    /// The thread has an event that it hasn't looked at.
    requested: bool,
}

/// A stream that its user dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropped {
    /// Received bytes were not read.
    pub(super) unread: bool,
    /// What was written needs not arrive.
    pub(super) aborts: bool,
}

/// What a reader found.
#[derive(Debug)]
pub(super) enum Found {
    /// Buffers.
    Some,
    /// Nothing yet; an event will come.
    Nothing,
    /// The orderly end.
    End,
}

type Wake = Option<(Notifier, Event)>;

fn send(wake: Wake) {
    if let Some((notifier, event)) = wake {
        notifier.notify(event);
    }
}

impl Failure {
    pub(super) fn new(kind: io::ErrorKind, cause: impl Into<String>) -> Self {
        Self {
            kind,
            cause: cause.into(),
            tls: None,
        }
    }

    pub(super) fn error(&self) -> io::Error {
        match &self.tls {
            Some(error) => io::Error::new(self.kind, error.clone()),
            None => io::Error::new(self.kind, self.cause.clone()),
        }
    }
}

impl Counters {
    pub(super) fn new(congestion: Congestion) -> Self {
        Self {
            congestion,
            figures: Mutex::default(),
        }
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn set(&self, stats: ConnectionStats) {
        self.figures().stats = stats;
    }

    /// Notes the smoothed round-trip time after a datagram.
    pub(super) fn note_round_trip(&self, smoothed: Duration, now: Instant) {
        self.figures().round_trip.note(smoothed, now);
    }

    /// The connection goes on over another path, of which `smoothed` tells nothing yet.
    pub(super) fn begin_path(&self, smoothed: Duration) {
        self.figures().round_trip = RoundTrip::of_new_path(smoothed);
    }

    pub(super) fn stats(&self) -> ConnectionStats {
        self.figures().stats
    }

    /// The measurements of a stream from which `taken_bytes` bytes were taken: its own bytes, and
    /// its share of those that the connection lost, so that sums over streams have a meaning.
    fn sample(&self, taken_bytes: u64) -> PathSample {
        let Figures {
            stats: ConnectionStats { path, .. },
            round_trip,
            taken_bytes: all_bytes,
        } = *self.figures();
        let share = taken_bytes as f64 / all_bytes.max(1) as f64;
        let resent_bytes = (path.lost_bytes as f64 * share) as u64;
        PathSample {
            round_trip: path.rtt,
            round_trip_deviation: round_trip.deviation,
            round_trip_min: round_trip.min(),
            sent_bytes: taken_bytes + resent_bytes,
            resent_bytes,
            congestion: self.congestion.as_str().to_owned(),
            path_mtu: u32::from(path.current_mtu),
            ..PathSample::default()
        }
    }
}

impl State {
    fn readable(&self) -> bool {
        !self.incoming.is_empty() || self.end.is_some() || self.failure.is_some()
    }

    fn writable(&self) -> bool {
        // Half of it, so that both sides work in large steps.
        let has_room = self.facts.is_some() && self.outgoing_bytes <= self.capacity() / 2;
        has_room || self.stopped || self.failure.is_some()
    }

    /// Maximum bytes of `outgoing_bytes`.
    fn capacity(&self) -> usize {
        let Some(pace) = self.pace else {
            return CAPACITY;
        };
        let bytes = pace as f64 * PACED_TIME.as_secs_f64();
        // Saturates.
        (bytes as usize).clamp(PACED_CAPACITY_MIN, CAPACITY)
    }

    /// The event for a user that waits and needn't any longer.
    fn wake(&mut self) -> Wake {
        let readable = self.reader_waits && self.readable();
        let writable = self.writer_waits && self.writable();
        self.event(readable, writable)
    }

    fn event(&mut self, readable: bool, writable: bool) -> Wake {
        if !readable && !writable {
            return None;
        }
        self.reader_waits &= !readable;
        self.writer_waits &= !writable;
        let (notifier, token) = self.registered.as_ref()?;
        let event = Event {
            token: *token,
            readable,
            writable,
        };
        Some((notifier.clone(), event))
    }
}

impl Channel {
    pub(super) fn new(key: usize, thread: Notifier) -> Self {
        let state = Mutex::default();
        let key = Token(key);
        Self { key, thread, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics in the middle of a change, so the state is consistent.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Its key among those of the thread.
    pub(super) fn key(&self) -> usize {
        self.key.0
    }
}

/// The user's side.
impl Channel {
    /// Whether it is open.
    pub(super) fn finish_open(&self) -> io::Result<bool> {
        let mut state = self.state();
        match (&state.facts, &state.failure) {
            (Some(_), _) => Ok(true),
            (None, Some(failure)) => Err(failure.error()),
            (None, None) => {
                state.writer_waits = true;
                Ok(false)
            }
        }
    }

    /// Swaps received buffers into `buffers`, which is empty.
    pub(super) fn take_incoming(&self, buffers: &mut VecDeque<Bytes>) -> io::Result<Found> {
        let mut state = self.state();
        if !state.incoming.is_empty() {
            std::mem::swap(&mut state.incoming, buffers);
            state.incoming_cost = 0;
            if std::mem::take(&mut state.more) {
                self.request(state);
            }
            return Ok(Found::Some);
        }
        match (state.end, &state.failure) {
            (Some(End::Orderly), _) if !state.left_unread => Ok(Found::End),
            (Some(_), _) => Err(io::ErrorKind::ConnectionReset.into()),
            (None, Some(failure)) => Err(failure.error()),
            (None, None) => {
                state.reader_waits = true;
                Ok(Found::Nothing)
            }
        }
    }

    /// Queues as much of `bufs` as fits.
    pub(super) fn write(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let room = {
            let mut state = self.state();
            if state.closing || state.stopped {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.error());
            }
            let room = match state.facts {
                Some(_) => state.capacity().saturating_sub(state.outgoing_bytes),
                None => 0,
            };
            if room == 0 && wanted > 0 {
                state.writer_waits = true;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            room
        };
        // Copied without the lock: nobody else takes the room.
        let total = wanted.min(room);
        let mut filled = copied(bufs, total);
        let mut state = self.state();
        state.outgoing_bytes += total;
        match state.outgoing.back_mut() {
            Some(last) if last.len() + total <= BUFFER_BYTES => {
                filled.iter().for_each(|buffer| last.extend(buffer));
            }
            _ => state.outgoing.append(&mut filled),
        }
        // As with sockets, a short write means that the writer may wait for an event.
        state.writer_waits |= total < wanted || total == room;
        self.request(state);
        Ok(total)
    }

    /// Ends the outgoing direction.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closing = true;
        self.request(state);
    }

    /// Bounds the bytes per second that the connection takes.
    pub(super) fn set_pace(&self, bytes_per_s: Option<u64>) {
        let mut state = self.state();
        if std::mem::replace(&mut state.pace, bytes_per_s) == bytes_per_s {
            return;
        }
        let wake = state.wake();
        self.request(state);
        send(wake);
    }

    /// Notes that the user has accepted the peer.
    pub(super) fn admit(&self) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.is_admitted, true) {
            self.request(state);
        }
    }

    /// Has the drop reset the outgoing direction.
    pub(super) fn abort(&self) {
        self.state().aborts = true;
    }

    /// Drops the user's side; `unread` if it holds bytes that it didn't read.
    pub(super) fn abandon(&self, unread: bool) {
        let mut state = self.state();
        state.registered = None;
        state.closing = true;
        // Its stack may not live for long.
        state.pace = None;
        let unread = unread || !state.incoming.is_empty();
        let aborts = state.aborts;
        state.dropped = Some(Dropped { unread, aborts });
        let freed = std::mem::take(&mut state.incoming);
        self.request(state);
        drop(freed);
    }

    /// Registers the user, with an event at once for what it needn't wait for; `holds` if it holds
    /// bytes to read.
    pub(super) fn register(&self, notifier: Notifier, token: Token, holds: bool) {
        let mut state = self.state();
        state.registered = Some((notifier, token));
        let readable = holds || state.readable();
        let writable = state.writable();
        state.reader_waits = true;
        state.writer_waits = true;
        let wake = state.event(readable, writable);
        drop(state);
        send(wake);
    }

    pub(super) fn deregister(&self) {
        self.state().registered = None;
    }

    pub(super) fn facts(&self) -> Option<Facts> {
        self.state().facts.clone()
    }

    /// The measurements of the path, once it is open.
    pub(super) fn sample(&self) -> Option<PathSample> {
        let state = self.state();
        let counters = Arc::clone(&state.facts.as_ref()?.counters);
        let taken_bytes = state.taken_bytes;
        drop(state);
        Some(counters.sample(taken_bytes))
    }

    /// Makes the thread look at the channel, and releases the lock.
    fn request(&self, mut state: MutexGuard<'_, State>) {
        if std::mem::replace(&mut state.requested, true) {
            return;
        }
        drop(state);
        self.thread.notify(Event {
            token: self.key,
            readable: true,
            writable: true,
        });
    }
}

impl Facts {
    pub(super) fn protection(&self) -> Protection {
        Protection {
            binding: self.binding,
            peer_certificates: self.peer_certificates.to_vec(),
        }
    }
}

/// The first `total` bytes of `bufs`, in buffers of limited size.
fn copied(bufs: &[IoSlice<'_>], total: usize) -> VecDeque<Vec<u8>> {
    let mut out = VecDeque::new();
    let mut left = total;
    let mut buffer = Vec::with_capacity(left.min(BUFFER_BYTES));
    for buf in bufs {
        let mut bytes = &buf[..buf.len().min(left)];
        left -= bytes.len();
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(BUFFER_BYTES - buffer.len()));
            buffer.extend_from_slice(now);
            bytes = rest;
            if buffer.len() == BUFFER_BYTES {
                let next = Vec::with_capacity((left + bytes.len()).min(BUFFER_BYTES));
                out.push_back(std::mem::replace(&mut buffer, next));
            }
        }
    }
    if !buffer.is_empty() {
        out.push_back(buffer);
    }
    out
}

/// The thread's side.
impl Channel {
    /// The stream is open.
    pub(super) fn open(&self, facts: Facts) {
        let mut state = self.state();
        state.facts = Some(facts);
        let wake = state.wake();
        drop(state);
        send(wake);
    }

    /// Notes that the thread has looked, and returns whether the user is gone.
    pub(super) fn attend(&self) -> Option<Dropped> {
        let mut state = self.state();
        state.requested = false;
        state.dropped
    }

    /// Whether the user has accepted the peer.
    pub(super) fn is_admitted(&self) -> bool {
        self.state().is_admitted
    }

    /// Bytes that may be delivered, each buffer with [`Channel::cost`].
    pub(super) fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.state().incoming_cost)
    }

    /// The share of a buffer in the capacity.
    pub(super) fn cost(bytes: usize) -> usize {
        bytes + OVERHEAD
    }

    /// Delivers buffers, and the end after them. With `more`, the thread is asked again once they
    /// were taken.
    pub(super) fn deliver(&self, buffers: Vec<Bytes>, more: bool, end: Option<End>) {
        let mut state = self.state();
        if state.dropped.is_some() {
            return;
        }
        let costs = buffers.iter().map(|buffer| Self::cost(buffer.len()));
        state.incoming_cost += costs.sum::<usize>();
        state.incoming.extend(buffers);
        // The user took all buffers meanwhile, and nobody would ask again.
        let is_taken = more && state.incoming.is_empty();
        state.more = more && !is_taken;
        state.end = state.end.or(end);
        let wake = state.wake();
        if is_taken {
            self.request(state);
        } else {
            drop(state);
        }
        send(wake);
    }

    /// The thread itself sends `bytes` bytes, which count as those of the user.
    pub(super) fn reserve(&self, bytes: usize) {
        self.state().outgoing_bytes += bytes;
    }

    /// Takes the buffers to be sent. They count until [`Channel::sent`].
    pub(super) fn take_outgoing(&self) -> VecDeque<Bytes> {
        let taken = std::mem::take(&mut self.state().outgoing);
        taken.into_iter().map(Bytes::from).collect()
    }

    /// Whether the user has written its last byte, and all were taken. Not between a drop and the
    /// look at it: how the incoming direction ends is to go out before the end of the outgoing one.
    pub(super) fn is_closing(&self) -> bool {
        let state = self.state();
        let is_noticed = state.dropped.is_none() || !state.requested;
        state.closing && state.outgoing.is_empty() && is_noticed
    }

    /// Bytes per second that the connection may take; `None` for no limit.
    pub(super) fn pace(&self) -> Option<u64> {
        self.state().pace
    }

    /// The connection took `bytes` bytes.
    pub(super) fn sent(&self, bytes: usize) {
        let mut state = self.state();
        state.taken_bytes += bytes as u64;
        if let Some(facts) = &state.facts {
            facts.counters.figures().taken_bytes += bytes as u64;
        }
        state.outgoing_bytes = state.outgoing_bytes.saturating_sub(bytes);
        let wake = state.wake();
        drop(state);
        send(wake);
    }

    /// The peer reads no more; `left_unread` if it left without reading all.
    pub(super) fn stop(&self, left_unread: bool) {
        let mut state = self.state();
        state.stopped = true;
        state.left_unread |= left_unread;
        state.outgoing.clear();
        let wake = state.wake();
        drop(state);
        send(wake);
    }

    /// The stream failed. What was received before can still be read.
    pub(super) fn fail(&self, failure: Failure) {
        let mut state = self.state();
        if state.failure.is_some() {
            return;
        }
        state.failure = Some(failure);
        state.outgoing.clear();
        let wake = state.wake();
        drop(state);
        send(wake);
    }
}
