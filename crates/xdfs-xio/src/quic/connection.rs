//! A connection and its streams, as the thread of an endpoint keeps them.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{
    ConnectionError, Dir, FinishError, ReadError, SendStream, Side, StreamId, TransportErrorCode,
    VarInt, WriteError,
};
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError, OtherError};

use super::channel::{Channel, Counters, Dropped, End, Facts, Failure};
use super::options::QuicOptions;
use super::pace::Pace;
use super::undelivered::{Beginning, Undelivered};
use super::{HEADER, code};

/// Label of the exporter for the binding of a stream; its context is the number of the stream.
const BINDING_LABEL: &[u8] = b"EXPORTER-xdfs-channel";
/// Received buffers below this size are copied, as each keeps a whole datagram in memory.
const COPIED_BYTES: usize = 1 << 10;
/// Streams of a connection whose header hasn't come. Further ones stay with the protocol, where
/// they take less.
const HEADERLESS_MAX: usize = 256;
/// Time between two moves of a peer to addresses other than the one that it had for as long.
const MOVE_INTERVAL: Duration = Duration::from_secs(1);
/// Time that a peer whose host says that nobody listens there any more has to acknowledge
/// something, beside some round-trip times.
const DOUBT_TIME: Duration = Duration::from_secs(3);
const DOUBT_ROUND_TRIPS: u32 = 8;
/// Bytes that may wait for their acknowledgement before the path has been measured.
const SEND_WINDOW_MIN: u64 = 1 << 20;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) proto: quinn_proto::Connection,
    options: Arc<QuicOptions>,
    /// The address of the peer, which may change.
    pub(super) peer: SocketAddr,
    /// The last address that the peer had for [`MOVE_INTERVAL`].
    home: SocketAddr,
    moved_at: Option<Instant>,
    counters: Arc<Counters>,
    peer_certificates: Option<Arc<Vec<Vec<u8>>>>,
    is_connected: bool,
    /// It counts among the handshakes of the endpoint.
    pub(super) is_counted: bool,
    /// It was accepted, and its peer isn't admitted yet.
    pub(super) is_guest: bool,
    deadline: Instant,
    /// The last datagram before it was open.
    last_sent: Beginning,
    streams: HashMap<StreamId, Entry>,
    /// The streams by their keys.
    ids: HashMap<usize, StreamId>,
    /// Streams that the user wants, until the peer allows them.
    wanted: VecDeque<Wanted>,
    /// The peer may have opened further streams.
    pub(super) may_accept: bool,
    /// Keys of streams that are gone, for the thread to forget.
    pub(super) forgotten: Vec<usize>,
    /// Keys of streams that wait for attention.
    pub(super) due: Vec<usize>,
    /// It is in the queue of the thread.
    pub(super) is_queued: bool,
    /// Streams with bytes that wait for their pace, and until when.
    paced: HashMap<StreamId, Instant>,
    /// Its entry among the timers of the thread.
    pub(super) timer: Option<Instant>,
    /// The next look at what has no event.
    tick: Instant,
    /// The last stream ended, or bytes were sent since.
    resting_since: Option<Instant>,
    stream_frames: u64,
    send_window: u64,
    doubt: Option<Doubt>,
}

/// A report says that the peer is gone. As anybody can make one, the peer is asked.
#[derive(Debug)]
struct Doubt {
    /// The end of the time to answer.
    deadline: Instant,
    /// Acknowledgements until the question.
    acknowledgements: u64,
}

/// A stream that is to be opened.
#[derive(Debug)]
struct Wanted {
    channel: Arc<Channel>,
    deadline: Instant,
}

/// An open stream.
#[derive(Debug)]
struct Entry {
    channel: Arc<Channel>,
    /// The opener's header hasn't come.
    awaits_header: bool,
    /// Nothing more will be received.
    is_received: bool,
    /// Bytes taken from the channel.
    sending: VecDeque<Bytes>,
    pace: Option<Pace>,
    /// Nothing more will be sent.
    is_sent: bool,
    dropped: Option<Dropped>,
    /// The last time at which the peer took bytes, after it was dropped; at first the time of its
    /// opening.
    progress: Instant,
}

/// A stream of the peer whose header has come.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) id: StreamId,
    pub(super) channel: Arc<Channel>,
}

impl Connection {
    pub(super) fn new(
        proto: quinn_proto::Connection,
        options: &Arc<QuicOptions>,
        now: Instant,
    ) -> Self {
        Self {
            peer: proto.remote_address(),
            home: proto.remote_address(),
            moved_at: None,
            proto,
            options: Arc::clone(options),
            counters: Arc::new(Counters::new(options.congestion)),
            peer_certificates: None,
            is_connected: false,
            is_counted: false,
            is_guest: false,
            deadline: now + options.connect,
            last_sent: Beginning::default(),
            streams: HashMap::new(),
            ids: HashMap::new(),
            wanted: VecDeque::new(),
            may_accept: false,
            forgotten: Vec::new(),
            due: Vec::new(),
            is_queued: false,
            paced: HashMap::new(),
            timer: None,
            tick: now + tick_time(options),
            resting_since: None,
            stream_frames: 0,
            send_window: 0,
            doubt: None,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    pub(super) fn is_client(&self) -> bool {
        self.proto.side() == Side::Client
    }

    /// Notes what is about to be sent.
    pub(super) fn note_sent(&mut self, datagrams: &[u8]) {
        if !self.is_connected {
            self.last_sent = Beginning::of(datagrams);
        }
    }

    /// Whether it is being opened, and the report is about its own datagrams.
    pub(super) fn is_refused(&self, report: &Undelivered) -> bool {
        !self.is_connected
            && self.is_client()
            && self.has_peer(report.destination)
            && report.is_about(&self.last_sent)
    }

    /// Whether it is open, to the address of a report. If so, the peer has to acknowledge something
    /// soon: a connection whose peer was killed would otherwise be kept until it has been idle for
    /// long, and with it the files that it writes.
    pub(super) fn is_doubted(&mut self, report: &Undelivered, now: Instant) -> bool {
        let is_open = self.is_connected && !self.proto.is_closed();
        if !is_open || self.doubt.is_some() || !self.has_peer(report.destination) {
            return false;
        }
        self.proto.ping();
        self.doubt = Some(Doubt {
            deadline: now + DOUBT_TIME + DOUBT_ROUND_TRIPS * self.proto.rtt(),
            acknowledgements: self.proto.stats().frame_rx.acks,
        });
        true
    }

    fn has_peer(&self, address: SocketAddr) -> bool {
        self.peer.ip().to_canonical() == address.ip().to_canonical()
            && self.peer.port() == address.port()
    }

    /// The time of its next work without an event.
    pub(super) fn next_time(&mut self) -> Instant {
        let mut next = self.tick;
        if let Some(timeout) = self.proto.poll_timeout() {
            next = next.min(timeout);
        }
        if let Some(wanted) = self.wanted.front() {
            next = next.min(wanted.deadline);
        }
        if !self.is_connected && !self.proto.is_closed() {
            next = next.min(self.deadline);
        }
        if let Some(&due) = self.paced.values().min() {
            next = next.min(due);
        }
        if let Some(doubt) = &self.doubt {
            next = next.min(doubt.deadline);
        }
        next
    }

    /// The handshake is complete.
    pub(super) fn connected(&mut self, now: Instant) {
        self.is_connected = true;
        let identity = self.proto.crypto_session().peer_identity();
        let certificates = identity.and_then(|any| any.downcast::<Vec<CertificateDer<'_>>>().ok());
        let certificates = certificates.unwrap_or_default();
        let certificates = certificates.iter().map(|c| c.to_vec()).collect();
        self.peer_certificates = Some(Arc::new(certificates));
        self.count();
        self.open_wanted(now);
    }

    /// Opens a stream for `channel` as soon as the peer allows it.
    pub(super) fn want(&mut self, channel: Arc<Channel>, now: Instant) {
        let deadline = now + self.options.connect;
        self.wanted.push_back(Wanted { channel, deadline });
        self.open_wanted(now);
    }

    /// Opens the streams that the peer allows.
    pub(super) fn open_wanted(&mut self, now: Instant) {
        if !self.is_connected {
            return;
        }
        while let Some(wanted) = self.wanted.pop_front() {
            if wanted.channel.attend().is_some() {
                continue;
            }
            let Some(id) = self.proto.streams().open(Dir::Bi) else {
                self.wanted.push_front(wanted);
                break;
            };
            let Some(facts) = self.facts(id) else {
                wanted.channel.fail(no_binding());
                continue;
            };
            // The stream's window holds more than one byte.
            let header = self.proto.send_stream(id).write(&[HEADER]);
            let mut entry = Entry::new(Arc::clone(&wanted.channel), now);
            if header.is_err() {
                // The windows of the connection are full: the header waits as other bytes do.
                entry.sending.push_back(Bytes::from_static(&[HEADER]));
                entry.channel.reserve(1);
            }
            self.ids.insert(wanted.channel.key(), id);
            self.streams.insert(id, entry);
            wanted.channel.open(facts);
        }
    }

    /// Accepts the peer's streams, under keys from `next_key`, and returns those that can be handed
    /// to the user at once.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        mut next: impl FnMut() -> Option<Arc<Channel>>,
        opened: &mut Vec<Opened>,
    ) {
        self.may_accept = true;
        let mut headerless = self.streams.values().filter(|e| e.awaits_header).count();
        while headerless < HEADERLESS_MAX && !self.proto.is_closed() {
            let Some(id) = self.proto.streams().accept(Dir::Bi) else {
                self.may_accept = false;
                return;
            };
            let channel = next();
            let facts = self.facts(id);
            let (Some(channel), Some(facts)) = (&channel, facts) else {
                self.forgotten.extend(channel.map(|channel| channel.key()));
                // Errors mean that the stream has ended already.
                let _ = self.proto.recv_stream(id).stop(code::REFUSED);
                let _ = self.proto.send_stream(id).reset(code::REFUSED);
                continue;
            };
            channel.open(facts);
            let mut entry = Entry::new(Arc::clone(channel), now);
            entry.awaits_header = true;
            self.ids.insert(channel.key(), id);
            self.streams.insert(id, entry);
            self.receive(id, now, opened);
            let entry = self.streams.get(&id);
            headerless += usize::from(entry.is_some_and(|entry| entry.awaits_header));
        }
    }

    /// Grants all that is configured to a peer that had less until now.
    pub(super) fn admit(&mut self) {
        self.is_guest = false;
        let streams = VarInt::from_u32(self.options.streams);
        self.proto.set_max_concurrent_streams(Dir::Bi, streams);
        let window = VarInt::from_u64(self.options.connection_window());
        let window = window.unwrap_or(VarInt::MAX);
        self.proto.set_receive_window(window);
    }

    /// Whether the user of the stream under `key` has admitted the peer.
    pub(super) fn has_admitted(&self, key: usize) -> bool {
        let entry = self.ids.get(&key).and_then(|id| self.streams.get(id));
        entry.is_some_and(|entry| entry.channel.is_admitted())
    }

    /// Whether a user holds one of its streams, or waits for one.
    pub(super) fn has_user(&self) -> bool {
        let mut channels = self.streams.values().filter(|e| !e.awaits_header);
        channels.any(|entry| entry.channel.attend().is_none())
            || self.wanted.iter().any(|w| w.channel.attend().is_none())
    }

    fn facts(&self, id: StreamId) -> Option<Facts> {
        let mut binding = [0; 32];
        let context = u64::from(id).to_be_bytes();
        let session = self.proto.crypto_session();
        session
            .export_keying_material(&mut binding, BINDING_LABEL, &context)
            .ok()?;
        Some(Facts {
            binding,
            peer_certificates: Arc::clone(self.peer_certificates.as_ref()?),
            local: is_local(self.peer.ip(), self.proto.local_ip()),
            counters: Arc::clone(&self.counters),
        })
    }

    /// Moves what was received on a stream to its user.
    pub(super) fn receive(&mut self, id: StreamId, now: Instant, opened: &mut Vec<Opened>) {
        let Some(entry) = self.streams.get_mut(&id) else {
            return;
        };
        if entry.is_received {
            return;
        }
        let room = if self.proto.is_closed() {
            // The rest of a lost connection is in memory already.
            usize::MAX
        } else {
            entry.channel.room()
        };
        let received = match read(&mut self.proto, id, room, &mut entry.awaits_header) {
            Ok(received) => received,
            Err(Malformed) => {
                self.close(now, code::MALFORMED, b"a stream without header");
                return;
            }
        };
        entry.is_received = received.end.is_some();
        if received.began {
            opened.push(Opened {
                id,
                channel: Arc::clone(&entry.channel),
            });
        }
        if entry.awaits_header && entry.is_received {
            // It ended before it began, and nobody knows of it.
            let _ = self.proto.send_stream(id).reset(code::REFUSED);
            self.forget(id);
            return;
        }
        let Received {
            buffers, more, end, ..
        } = received;
        entry.channel.deliver(buffers, more, end);
    }

    /// Moves what the user of a stream wrote to the connection.
    pub(super) fn send(&mut self, id: StreamId, now: Instant) {
        self.paced.remove(&id);
        let Some(entry) = self.streams.get_mut(&id) else {
            return;
        };
        entry.follow_pace(now);
        while !entry.is_sent {
            if entry.sending.is_empty() {
                entry.sending = entry.channel.take_outgoing();
            }
            let mut stream = self.proto.send_stream(id);
            if entry.sending.is_empty() {
                if entry.channel.is_closing() {
                    entry.is_sent = true;
                    if let Err(FinishError::Stopped(reason)) = stream.finish() {
                        entry.stop(stream, reason);
                    }
                }
                break;
            }
            let count = match &mut entry.pace {
                None => entry.sending.len(),
                Some(pace) => match pace.allowance(now) {
                    Ok(bytes) => whole_buffers(&mut entry.sending, bytes),
                    Err(due) => {
                        self.paced.insert(id, due);
                        break;
                    }
                },
            };
            match stream.write_chunks(&mut entry.sending.make_contiguous()[..count]) {
                Ok(written) => {
                    entry.sending.drain(..written.chunks);
                    entry.progress = now;
                    if let Some(pace) = &mut entry.pace {
                        pace.spend(written.bytes);
                    }
                    entry.channel.sent(written.bytes);
                }
                Err(WriteError::Blocked) => break,
                Err(WriteError::Stopped(reason)) => entry.stop(stream, reason),
                Err(WriteError::ClosedStream) => entry.stop(stream, code::DONE),
            }
        }
    }

    /// Goes on with the streams whose pace allows it.
    pub(super) fn send_paced(&mut self, now: Instant) {
        let due = self.paced.iter().filter(|(_, due)| **due <= now);
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.send(id, now);
            self.forget_ended(id);
        }
    }

    /// Whether it takes datagrams from an address now. Whoever saw a packet can send it again from
    /// an address that isn't its own, and each move costs a few packets to an address that may not
    /// want them. So a peer moves seldom, but for the way back.
    pub(super) fn may_come_from(&mut self, address: SocketAddr, now: Instant) -> bool {
        let has_rested = self.moved_at.is_none_or(|at| now >= at + MOVE_INTERVAL);
        if address == self.peer {
            if has_rested {
                self.home = address;
            }
            return true;
        }
        has_rested || address == self.home
    }

    /// Looks at what a datagram has changed.
    pub(super) fn received(&mut self, now: Instant) {
        let (before, peer) = (self.peer, self.proto.remote_address());
        self.peer = peer;
        if peer != before && peer != self.home {
            self.moved_at = Some(now);
        }
        // With the same IPv4 address, quinn-proto takes the path for the same.
        let is_same_path = peer.ip() == before.ip() && (peer.is_ipv4() || peer == before);
        if !is_same_path {
            self.counters.begin_path(self.proto.rtt());
        }
        if self.is_connected {
            self.counters.note_round_trip(self.proto.rtt(), now);
        }
    }

    /// The peer reads no more of a stream.
    pub(super) fn stopped(&mut self, id: StreamId, reason: VarInt) {
        if let Some(entry) = self.streams.get_mut(&id) {
            entry.stop(self.proto.send_stream(id), reason);
        }
    }

    /// Looks at a stream whose user did something.
    pub(super) fn attend(&mut self, key: usize, now: Instant, opened: &mut Vec<Opened>) {
        let Some(&id) = self.ids.get(&key) else {
            self.wanted
                .retain(|wanted| wanted.channel.key() != key || wanted.channel.attend().is_none());
            return;
        };
        let Some(entry) = self.streams.get_mut(&id) else {
            return;
        };
        let dropped = entry.channel.attend();
        if let Some(Dropped { unread, aborts }) = dropped
            && entry.dropped.is_none()
        {
            entry.dropped = dropped;
            entry.progress = now;
            if aborts && !entry.is_sent {
                entry.is_sent = true;
                entry.sending.clear();
                // An error means that the peer has stopped it.
                let _ = self.proto.send_stream(id).reset(code::ABANDONED);
            }
            if !entry.is_received {
                entry.is_received = true;
                let rest = read(&mut self.proto, id, 1, &mut entry.awaits_header);
                let has_rest = rest.is_ok_and(|rest| !rest.buffers.is_empty());
                let reason = if unread || has_rest {
                    code::UNREAD
                } else {
                    code::DONE
                };
                // An error means that its end was received.
                let _ = self.proto.recv_stream(id).stop(reason);
            }
        }
        self.receive(id, now, opened);
        self.send(id, now);
        self.forget_ended(id);
    }

    /// Forgets a stream that its user dropped, once all its bytes are with the connection.
    pub(super) fn forget_ended(&mut self, id: StreamId) {
        if let Some(entry) = self.streams.get(&id)
            && entry.dropped.is_some()
            && entry.is_sent
        {
            self.forget(id);
        }
    }

    /// Ends a stream that the user never got.
    pub(super) fn refuse(&mut self, id: StreamId) {
        let _ = self.proto.recv_stream(id).stop(code::REFUSED);
        let _ = self.proto.send_stream(id).reset(code::REFUSED);
        self.forget(id);
    }

    fn forget(&mut self, id: StreamId) {
        self.paced.remove(&id);
        if let Some(entry) = self.streams.remove(&id) {
            self.ids.remove(&entry.channel.key());
            self.forgotten.push(entry.channel.key());
        }
    }

    /// The keys of its streams, for the thread to forget.
    pub(super) fn has_key(&self, key: usize) -> bool {
        self.ids.contains_key(&key) || self.wanted.iter().any(|w| w.channel.key() == key)
    }

    /// Makes the counters current, and lets twice the congestion window wait for acknowledgement:
    /// more would only take memory, and time from bytes that become urgent.
    pub(super) fn count(&mut self) {
        let stats = self.proto.stats();
        let wanted = (2 * stats.path.cwnd).max(SEND_WINDOW_MIN);
        let wanted = wanted.min(self.options.connection_window());
        if wanted > self.send_window || wanted < self.send_window / 2 {
            self.send_window = wanted;
            self.proto.set_send_window(wanted);
        }
        self.counters.set(stats);
    }

    /// Work that comes with time: deadlines, signs of life, the end of a connection without
    /// streams. With `is_ending`, it isn't kept for further streams.
    pub(super) fn tick(&mut self, now: Instant, is_ending: bool) -> Option<Failure> {
        while let Some(wanted) = self.wanted.front()
            && wanted.deadline <= now
            && self.is_connected
        {
            wanted.channel.fail(no_credit(self.peer));
            self.wanted.pop_front();
        }
        if !self.is_connected && !self.proto.is_closed() && now >= self.deadline {
            return Some(no_answer(self.peer, self.options.connect));
        }
        if let Some(doubt) = self.doubt.take_if(|doubt| now >= doubt.deadline)
            && self.proto.stats().frame_rx.acks == doubt.acknowledgements
            && !self.proto.is_closed()
        {
            return Some(gone(self.peer));
        }
        if now >= self.tick {
            self.tick = now + tick_time(&self.options);
            if !self.streams.is_empty() {
                // For address translators on the path, too.
                self.proto.ping();
            }
            self.give_up_stuck(now);
            let late = |e: &Entry| e.awaits_header && now >= e.progress + self.options.connect;
            if self.streams.values().any(late) {
                self.close(now, code::MALFORMED, b"a stream without header");
            }
        }
        self.rest(now, is_ending);
        None
    }

    /// Resets dropped streams of which the peer takes nothing.
    fn give_up_stuck(&mut self, now: Instant) {
        let idle = self.options.idle;
        let is_stuck = |entry: &Entry| entry.dropped.is_some() && now >= entry.progress + idle;
        let stuck = self.streams.iter().filter(|(_, entry)| is_stuck(entry));
        for id in stuck.map(|(id, _)| *id).collect::<Vec<_>>() {
            let _ = self.proto.send_stream(id).reset(code::ABANDONED);
            self.forget(id);
        }
    }

    /// Closes a connection without streams: when all is acknowledged and it isn't kept any longer,
    /// or the peer acknowledges nothing.
    fn rest(&mut self, now: Instant, is_ending: bool) {
        let is_accepting = !self.is_client() && !self.is_connected;
        if self.proto.is_closed() || is_accepting {
            return;
        }
        if !self.streams.is_empty() || !self.wanted.is_empty() {
            self.resting_since = None;
            return;
        }
        let is_settled = self.proto.streams().send_streams() == 0;
        let frames = self.counters.stats().frame_tx.stream;
        if !is_settled && frames != self.stream_frames {
            self.stream_frames = frames;
            self.resting_since = Some(now);
        }
        let rested = now - *self.resting_since.get_or_insert(now);
        let is_kept = !is_ending && rested < self.options.idle / 2;
        if (is_settled && !is_kept) || rested >= self.options.idle {
            self.close(now, code::DONE, b"");
        }
    }

    /// Closes the connection.
    pub(super) fn close(&mut self, now: Instant, reason: VarInt, text: &'static [u8]) {
        self.proto.close(now, reason, Bytes::from_static(text));
        self.fail(
            now,
            &Failure::new(ErrorKind::ConnectionReset, "the connection was closed"),
        );
    }

    /// Fails all streams; what was received can still be read.
    pub(super) fn fail(&mut self, now: Instant, failure: &Failure) {
        let begun = self.streams.iter().filter(|(_, e)| !e.awaits_header);
        for id in begun.map(|(id, _)| *id).collect::<Vec<_>>() {
            // Nobody gets a stream of a lost connection.
            self.receive(id, now, &mut Vec::new());
        }
        for (_, entry) in self.streams.drain() {
            entry.channel.fail(failure.clone());
            self.forgotten.push(entry.channel.key());
        }
        for wanted in self.wanted.drain(..) {
            wanted.channel.fail(failure.clone());
            self.forgotten.push(wanted.channel.key());
        }
        self.ids.clear();
        self.paced.clear();
    }

    /// The failure of its streams if it is lost for `reason`.
    pub(super) fn failure(&self, reason: &ConnectionError) -> Failure {
        if let Some(error) = tls_error(reason) {
            return Failure {
                tls: Some(error),
                ..Failure::new(ErrorKind::InvalidData, "")
            };
        }
        let kind = match reason {
            ConnectionError::TimedOut => ErrorKind::TimedOut,
            ConnectionError::ConnectionClosed(close)
                if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
            {
                ErrorKind::ConnectionRefused
            }
            // Its application has ended it before it was open (RFC 9000, section 10.2.3).
            ConnectionError::ConnectionClosed(close)
                if close.error_code == TransportErrorCode::APPLICATION_ERROR
                    && !self.is_connected =>
            {
                ErrorKind::ConnectionRefused
            }
            // Of the handshake: certificates, names, protocols.
            _ if !self.is_connected => ErrorKind::InvalidData,
            _ => ErrorKind::ConnectionReset,
        };
        if kind == ErrorKind::TimedOut && !self.is_connected {
            return no_answer(self.peer, self.options.connect);
        }
        Failure::new(kind, format!("the QUIC connection was lost: {reason}"))
    }
}

/// The error of TLS, if that is why a connection was lost. quinn-proto passes on the alert (RFC
/// 9001, section 4.8) and a text.
fn tls_error(reason: &ConnectionError) -> Option<rustls::Error> {
    let alert = |code: TransportErrorCode| {
        let code = u64::from(code).checked_sub(0x100)?;
        Some(AlertDescription::from(u8::try_from(code).ok()?))
    };
    match reason {
        ConnectionError::ConnectionClosed(close) => {
            Some(rustls::Error::AlertReceived(alert(close.error_code)?))
        }
        ConnectionError::TransportError(error) => {
            use AlertDescription as A;
            let text = error.reason.clone();
            Some(match alert(error.code)? {
                A::AccessDenied
                | A::BadCertificate
                | A::CertificateExpired
                | A::CertificateRevoked
                | A::CertificateUnknown
                | A::DecryptError
                | A::UnknownCA
                | A::UnsupportedCertificate => rustls::Error::InvalidCertificate(
                    CertificateError::Other(OtherError(Arc::new(io::Error::other(text)))),
                ),
                A::NoApplicationProtocol => rustls::Error::NoApplicationProtocol,
                _ => rustls::Error::General(text),
            })
        }
        _ => None,
    }
}

impl Entry {
    fn new(channel: Arc<Channel>, now: Instant) -> Self {
        Self {
            channel,
            awaits_header: false,
            is_received: false,
            sending: VecDeque::new(),
            pace: None,
            is_sent: false,
            dropped: None,
            progress: now,
        }
    }

    /// Takes over the pace that the user wants.
    fn follow_pace(&mut self, now: Instant) {
        self.pace = match (self.channel.pace(), self.pace.take()) {
            (None, _) => None,
            (Some(rate), None) => Some(Pace::new(rate, now)),
            (Some(rate), Some(mut pace)) => {
                pace.change(rate);
                Some(pace)
            }
        };
    }

    /// The peer reads no more.
    fn stop(&mut self, mut stream: SendStream<'_>, reason: VarInt) {
        self.is_sent = true;
        // The answer that RFC 9000 demands (section 3.5), unless all was sent and acknowledged.
        let _ = stream.reset(reason);
        self.sending.clear();
        self.channel.stop(reason == code::UNREAD);
    }
}

/// The number of buffers at the front with so many bytes together, if need be after one was split.
/// `bytes` isn't zero.
fn whole_buffers(buffers: &mut VecDeque<Bytes>, bytes: usize) -> usize {
    let mut left = bytes;
    for (index, buffer) in buffers.iter_mut().enumerate() {
        if buffer.len() > left {
            if left == 0 {
                return index;
            }
            let rest = buffer.split_off(left);
            buffers.insert(index + 1, rest);
            return index + 1;
        }
        left -= buffer.len();
    }
    buffers.len()
}

/// What was read from a stream.
#[derive(Debug, Default)]
struct Received {
    buffers: Vec<Bytes>,
    /// Bytes are left for want of room.
    more: bool,
    end: Option<End>,
    /// The header was among the bytes.
    began: bool,
}

/// A stream began with another byte than the header.
#[derive(Debug)]
struct Malformed;

fn read(
    proto: &mut quinn_proto::Connection,
    id: StreamId,
    room: usize,
    awaits_header: &mut bool,
) -> Result<Received, Malformed> {
    let mut received = Received::default();
    let mut stream = proto.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else {
        // The user has its end already.
        return Ok(received);
    };
    let mut left = room;
    loop {
        if left == 0 {
            received.more = true;
            break;
        }
        let bytes_max = if *awaits_header { 1 } else { left };
        match chunks.next(bytes_max) {
            Ok(Some(chunk)) if *awaits_header => {
                if chunk.bytes[..] != [HEADER] {
                    return Err(Malformed);
                }
                *awaits_header = false;
                received.began = true;
            }
            Ok(Some(chunk)) => {
                left = left.saturating_sub(Channel::cost(chunk.bytes.len()));
                received.buffers.push(if chunk.bytes.len() < COPIED_BYTES {
                    Bytes::copy_from_slice(&chunk.bytes)
                } else {
                    chunk.bytes
                });
            }
            Ok(None) => {
                received.end = Some(End::Orderly);
                break;
            }
            Err(ReadError::Blocked) => break,
            Err(ReadError::Reset(_)) => {
                received.end = Some(End::Reset);
                break;
            }
        }
    }
    // What has to be sent is sent at the end of the turn.
    let _ = chunks.finalize();
    Ok(received)
}

/// Time between two looks at what has no event.
fn tick_time(options: &QuicOptions) -> Duration {
    (options.idle / 4).min(options.connect)
}

fn is_local(peer: IpAddr, own: Option<IpAddr>) -> bool {
    let peer = peer.to_canonical();
    peer.is_loopback() || own.is_some_and(|own| own.to_canonical() == peer)
}

fn no_binding() -> Failure {
    Failure::new(ErrorKind::Other, "the TLS session gives no keying material")
}

fn gone(peer: SocketAddr) -> Failure {
    let cause = format!("{peer} doesn't answer, and its host reports that nobody listens there");
    Failure::new(ErrorKind::ConnectionReset, cause)
}

fn no_credit(peer: SocketAddr) -> Failure {
    let cause = format!("{peer} takes no more streams on this connection");
    Failure::new(ErrorKind::ResourceBusy, cause)
}

fn no_answer(peer: SocketAddr, patience: Duration) -> Failure {
    let seconds = patience.as_secs();
    let cause =
        format!("no answer from {peer} over UDP within {seconds} s; a firewall may block the port");
    Failure::new(ErrorKind::TimedOut, cause)
}
