//! Moves bytes between pairs of open streams, both ways, in one thread for any number of pairs.
//!
//! A direction holds bytes only while the stream that they go to takes no more, at most
//! [`BUFFER_BYTES`]; it reads nothing then, so a slow reader slows its peer down as it would
//! without a tunnel. The end of a stream is passed on behind its bytes, while the other direction
//! goes on. If a stream breaks, so does the other one: a TCP peer gets a reset, never an end that
//! looks orderly.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use xdfs_store::rate::{Share, SharedRate};
use xdfs_sys::poll::{Event, Poller, Token};
use xdfs_xio::Stream;

/// Bytes read at once, and the most that a direction holds.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes that a direction moves before it is the turn of other pairs.
const TURN_BYTES: usize = 1 << 20;
/// Interval between looks for idle pairs.
const IDLE_CHECK: Duration = Duration::from_secs(1);

/// How a pair ended.
#[derive(Debug)]
pub struct RelayEnd {
    /// Bytes moved from the first stream to the second.
    pub forth: u64,
    /// Bytes moved from the second stream to the first.
    pub back: u64,
    /// Why it ended before both streams did.
    pub result: io::Result<()>,
}

/// Called once at the end of a pair.
type OnEnd = Box<dyn FnOnce(RelayEnd) + Send>;

/// Pairs of streams. Their tokens are multiples of 4, and those plus 1.
pub struct Relays {
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
    ready: VecDeque<usize>,
    /// Pairs that wait for their rate limit.
    paused: BTreeMap<(Instant, usize), ()>,
    idle_timeout: Duration,
    idle_checked_at: Instant,
    scratch: Box<[u8]>,
}

struct Pair {
    ends: [End; 2],
    /// From the first to the second stream, and back.
    flows: [Flow; 2],
    key: u64,
    share: Option<(Share, Instant)>,
    moved_at: Instant,
    is_queued: bool,
    on_end: Option<OnEnd>,
}

struct End {
    stream: Box<dyn Stream>,
    readable: bool,
    writable: bool,
}

/// One direction.
#[derive(Default)]
struct Flow {
    held: Vec<u8>,
    /// Bytes of `held` that were written.
    written: usize,
    has_ended: bool,
    is_closed: bool,
    bytes: u64,
}

/// What a direction did in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// It waits for a stream.
    Waits,
    /// It has more to do.
    More,
}

impl Relays {
    /// No pairs yet. A pair that moves nothing for `idle_timeout` ends.
    #[must_use]
    pub fn new(idle_timeout: Duration, now: Instant) -> Self {
        Self {
            pairs: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            paused: BTreeMap::new(),
            idle_timeout,
            idle_checked_at: now,
            scratch: vec![0; BUFFER_BYTES].into_boxed_slice(),
        }
    }

    /// Number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len() - self.free.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a pair of streams that are open and not registered. `ahead` are bytes already read from
    /// each one. `on_end` is called at its end. `key` is for [`Self::end_where`].
    ///
    /// # Errors
    /// A stream can't be registered; both are closed then.
    pub fn add(
        &mut self,
        poller: &mut Poller,
        streams: [Box<dyn Stream>; 2],
        ahead: [Vec<u8>; 2],
        rate: Option<&Arc<SharedRate>>,
        (key, now): (u64, Instant),
        on_end: impl FnOnce(RelayEnd) + Send + 'static,
    ) -> io::Result<()> {
        let number = self.free.pop().unwrap_or(self.pairs.len());
        if number == self.pairs.len() {
            self.pairs.push(None);
        }
        // Edge-triggered: what came before the registration is not reported.
        let mut ends = streams.map(|stream| End {
            stream,
            readable: true,
            writable: true,
        });
        for (side, end) in ends.iter_mut().enumerate() {
            if let Err(error) = end.stream.register(poller, Token(number * 4 + side)) {
                self.free.push(number);
                return Err(error);
            }
        }
        self.pairs[number] = Some(Pair {
            ends,
            flows: ahead.map(|held| Flow {
                bytes: held.len() as u64,
                held,
                ..Flow::default()
            }),
            key,
            share: rate.map(|rate| (Share::new(Arc::clone(rate), now), now)),
            moved_at: now,
            is_queued: false,
            on_end: Some(Box::new(on_end)),
        });
        self.queue(number);
        Ok(())
    }

    /// Takes an event of a token of these pairs.
    pub fn event(&mut self, event: &Event) {
        let number = event.token.0 / 4;
        if let Some(Some(pair)) = self.pairs.get_mut(number) {
            let end = &mut pair.ends[event.token.0 & 1];
            end.readable |= event.readable;
            end.writable |= event.writable;
            self.queue(number);
        }
    }

    /// Ends the pairs with such keys at once, as if they were broken by an error of this kind.
    pub fn end_where(
        &mut self,
        poller: &mut Poller,
        kind: io::ErrorKind,
        is_ended: impl Fn(u64) -> bool,
    ) {
        for number in 0..self.pairs.len() {
            if self.pairs[number]
                .as_ref()
                .is_some_and(|pair| is_ended(pair.key))
            {
                self.remove(poller, number, Err(kind.into()));
            }
        }
    }

    /// Moves what can be moved, for a bounded time. Returns how long to wait for events: no time if
    /// there is more to do.
    pub fn turn(&mut self, poller: &mut Poller, now: Instant) -> Option<Duration> {
        while let Some((&(at, number), ())) = self.paused.first_key_value()
            && at <= now
        {
            self.paused.pop_first();
            self.queue(number);
        }
        for _ in 0..self.ready.len() {
            let Some(number) = self.ready.pop_front() else {
                break;
            };
            let Some(Some(pair)) = self.pairs.get_mut(number) else {
                continue;
            };
            pair.is_queued = false;
            match pair.turn(&mut self.scratch, now) {
                Ok(_) if pair.is_over() => self.remove(poller, number, Ok(())),
                Ok(Moved::More) => match pair.pause(now) {
                    Some(pause) => {
                        self.paused.insert((now + pause, number), ());
                    }
                    None => self.queue(number),
                },
                Ok(Moved::Waits) => {}
                Err(error) => self.remove(poller, number, Err(error)),
            }
        }
        self.end_idle(poller, now);
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let pause = self.paused.keys().next().map(|(at, _)| *at - now);
        let idle = (!self.is_empty()).then_some(IDLE_CHECK.max(self.idle_timeout / 16));
        pause.into_iter().chain(idle).min()
    }

    fn end_idle(&mut self, poller: &mut Poller, now: Instant) {
        if now - self.idle_checked_at < IDLE_CHECK {
            return;
        }
        self.idle_checked_at = now;
        for number in 0..self.pairs.len() {
            let pair = self.pairs[number].as_ref();
            if pair.is_some_and(|pair| now - pair.moved_at >= self.idle_timeout) {
                self.remove(poller, number, Err(io::ErrorKind::TimedOut.into()));
            }
        }
    }

    fn queue(&mut self, number: usize) {
        if let Some(Some(pair)) = self.pairs.get_mut(number)
            && !std::mem::replace(&mut pair.is_queued, true)
        {
            self.ready.push_back(number);
        }
    }

    fn remove(&mut self, poller: &mut Poller, number: usize, result: io::Result<()>) {
        let Some(mut pair) = self.pairs.get_mut(number).and_then(Option::take) else {
            return;
        };
        self.free.push(number);
        for end in &mut pair.ends {
            // It is dropped next.
            let _ = end.stream.deregister(poller);
            if result.is_err() {
                end.stream.abort();
            }
        }
        let [forth, back] = &pair.flows;
        let end = RelayEnd {
            forth: forth.bytes,
            back: back.bytes,
            result,
        };
        if let Some(on_end) = pair.on_end.take() {
            on_end(end);
        }
    }
}

impl Pair {
    fn turn(&mut self, scratch: &mut [u8], now: Instant) -> io::Result<Moved> {
        let [first, second] = &mut self.ends;
        let [forth, back] = &mut self.flows;
        let before = forth.bytes + back.bytes;
        let room = match &self.share {
            Some((share, since)) if !share.is_open(now - *since) => return Ok(Moved::More),
            Some((share, _)) => usize::try_from(share.quantum()).unwrap_or(TURN_BYTES),
            None => TURN_BYTES,
        };
        let room = room.min(TURN_BYTES);
        let moved = [
            forth.advance(first, second, scratch, room)?,
            back.advance(second, first, scratch, room)?,
        ];
        let bytes = forth.bytes + back.bytes - before;
        if bytes > 0 {
            self.moved_at = now;
            if let Some((share, since)) = &mut self.share {
                share.take(bytes, now - *since);
            }
        }
        Ok(match moved.contains(&Moved::More) {
            true => Moved::More,
            false => Moved::Waits,
        })
    }

    /// Whether both directions have ended, and the ends were passed on.
    fn is_over(&self) -> bool {
        let is_flushed = |end: &End| !end.stream.has_unflushed();
        self.flows.iter().all(|flow| flow.is_closed) && self.ends.iter().all(is_flushed)
    }

    /// Time until the rate limit lets bytes pass.
    fn pause(&self, now: Instant) -> Option<Duration> {
        let (share, since) = self.share.as_ref()?;
        Some(share.delay(now - *since)).filter(|pause| !pause.is_zero())
    }
}

impl Flow {
    /// Moves about `room` bytes from one stream to another.
    fn advance(
        &mut self,
        from: &mut End,
        to: &mut End,
        scratch: &mut [u8],
        room: usize,
    ) -> io::Result<Moved> {
        let mut moved = 0;
        loop {
            if to.writable && to.stream.has_unflushed() {
                would_block(to.stream.flush(), &mut to.writable)?;
            }
            if self.written < self.held.len() {
                if !to.writable {
                    return Ok(Moved::Waits);
                }
                let rest = [IoSlice::new(&self.held[self.written..])];
                let written = would_block(to.stream.write_vectored(&rest), &mut to.writable)?;
                self.written += written.unwrap_or(0);
                if self.written < self.held.len() {
                    continue;
                }
                // An idle direction holds no memory.
                (self.held, self.written) = (Vec::new(), 0);
                continue;
            }
            if self.has_ended {
                if !self.is_closed && to.writable && !to.stream.has_unflushed() {
                    to.stream.close()?;
                    self.is_closed = true;
                    // Once more, as a transform may hold its own end.
                    continue;
                }
                return Ok(Moved::Waits);
            }
            if !to.writable || !from.readable {
                return Ok(Moved::Waits);
            }
            if moved >= room {
                return Ok(Moved::More);
            }
            let most = scratch.len().min(room - moved);
            let mut bufs = [IoSliceMut::new(&mut scratch[..most])];
            let read = would_block(from.stream.read_vectored(&mut bufs), &mut from.readable)?;
            let Some(read) = read else {
                return Ok(Moved::Waits);
            };
            if read == 0 {
                self.has_ended = true;
                continue;
            }
            moved += read;
            self.bytes += read as u64;
            let bytes = &scratch[..read];
            let written = to.stream.write_vectored(&[IoSlice::new(bytes)]);
            let written = would_block(written, &mut to.writable)?.unwrap_or(0);
            if written < read {
                self.held = bytes[written..].to_vec();
            }
        }
    }
}

/// The result of a call, `None` if it would block: `ready` is cleared then.
fn would_block<T>(result: io::Result<T>, ready: &mut bool) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            *ready = false;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl fmt::Debug for Relays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.len();
        f.debug_struct("Relays")
            .field("pairs", &pairs)
            .finish_non_exhaustive()
    }
}
