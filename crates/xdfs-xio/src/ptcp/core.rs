//! A bundle over real streams: the machine, the streams, and the user's poller.
//!
//! Every call of the user moves whatever can be moved, in both directions, because an
//! acknowledgement comes behind data that the user doesn't read yet. How lost wake-ups are
//! prevented: the streams are registered under the user's token as merged sources, so news of any
//! stream makes the user try both directions; a call returns less than was asked for only after
//! each stream has said that it would block; and whoever moves data outside of a call for which
//! the user waits injects an event.
//!
//! The mutex is held by the user's calls, and rarely by the service thread.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use xdfs_sys::poll::{Event, Notifier, Poller, Token};

use super::bundle::{Bundle, Step};
use super::dial::Dial;
use super::wire::Violation;
use crate::stream::{Capabilities, Protection, Stream};
use crate::transform::Room;

/// Steps of one call, so that a peer that repeats itself can't hold the caller.
const STEPS_MAX: usize = 4096;

/// Time for a peer that was left to close its streams.
const CLOSING: Duration = Duration::from_secs(5);

/// Time in which what a left bundle has not delivered yet may still arrive.
const LINGER: Duration = Duration::from_secs(120);

static NEXT_KEY: AtomicUsize = AtomicUsize::new(1);

/// A key for a bundle, a listener or a stream.
pub(super) fn new_key() -> usize {
    NEXT_KEY.fetch_add(1, Ordering::Relaxed)
}

/// A bundle, shared by its user and the service thread.
#[derive(Debug)]
pub(super) struct Shared {
    /// Identifies it to the service thread.
    pub(super) key: usize,
    core: Mutex<Core>,
}

impl Shared {
    pub(super) fn new(core: Core) -> Self {
        Self {
            key: new_key(),
            core: Mutex::new(core),
        }
    }

    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The core, unless its user is in a call.
    pub(super) fn try_core(&self) -> Option<MutexGuard<'_, Core>> {
        self.core.try_lock().ok()
    }
}

/// What a bundle knows of its peer from the first stream.
#[derive(Debug)]
pub(super) struct First {
    pub(super) peer: String,
    pub(super) capabilities: Capabilities,
    pub(super) protection: Option<Protection>,
}

impl First {
    pub(super) fn of(stream: &dyn Stream) -> Self {
        Self {
            peer: stream.peer(),
            capabilities: stream.capabilities(),
            protection: stream.protection(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Core {
    /// None until the first stream is open.
    bundle: Option<Bundle>,
    streams: Vec<Option<Box<dyn Stream>>>,
    pub(super) first: First,
    /// How streams are opened; None at the acceptor.
    pub(super) dial: Option<Dial>,
    /// The greatest serial number of a join at each place; at the acceptor.
    serials: Vec<u32>,
    home: Option<Home>,
    failure: Option<(ErrorKind, String)>,
    /// The user got less than asked for and has had no event since.
    read_waits: bool,
    write_waits: bool,
    began: Instant,
    patience: Duration,
    /// Since when no stream is left.
    dead: Option<Duration>,
    /// The user has written its last byte.
    is_closed: bool,
    /// The user breaks it off instead of ending it.
    aborts: bool,
    /// When the user left.
    left: Option<Duration>,
    /// When nothing was left to send after that.
    closing: Option<Duration>,
    /// The service thread looks after it.
    pub(super) is_watched: bool,
    window: Option<u32>,
    is_long_path: bool,
    broken: u64,
    joined: u64,
    /// Bytes that the reader had got at the last tick.
    delivered: u64,
}

/// Where the streams are registered.
#[derive(Debug)]
struct Home {
    poller: Poller,
    notifier: Notifier,
    token: Token,
}

impl Core {
    pub(super) fn new(first: First, dial: Option<Dial>, patience: Duration) -> Self {
        Self {
            bundle: None,
            streams: Vec::new(),
            first,
            dial,
            serials: Vec::new(),
            home: None,
            failure: None,
            read_waits: true,
            write_waits: true,
            began: Instant::now(),
            patience,
            dead: None,
            is_closed: false,
            aborts: false,
            left: None,
            closing: None,
            is_watched: false,
            window: None,
            is_long_path: false,
            broken: 0,
            joined: 0,
            delivered: 0,
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The first stream is open.
    pub(super) fn begin(&mut self, bundle: Bundle, stream: Box<dyn Stream>) {
        self.first = First::of(&*stream);
        self.streams = (0..bundle.places()).map(|_| None).collect();
        self.serials = vec![0; bundle.places()];
        self.bundle = Some(bundle);
        self.attach(0, stream);
        self.joined = 0;
        if self.left.is_some() {
            self.end_bundle();
        }
    }

    /// Whether streams may still join.
    pub(super) fn takes_streams(&self) -> bool {
        self.failure.is_none() && self.closing.is_none()
    }

    /// Whether a join with this serial number may take the place, which it then does.
    pub(super) fn admit(&mut self, index: usize, serial: u32) -> bool {
        let takes = self.takes_streams();
        match self.serials.get_mut(index) {
            Some(last) if *last < serial && takes => {
                *last = serial;
                true
            }
            _ => false,
        }
    }

    /// A stream takes the place `index`.
    pub(super) fn attach(&mut self, index: usize, mut stream: Box<dyn Stream>) {
        if !self.takes_streams() {
            return;
        }
        if self.streams.get(index).is_some_and(Option::is_some) {
            self.lose(index);
        }
        let Some(bundle) = &mut self.bundle else {
            return;
        };
        if let Some(bytes) = self.window {
            // A stream with other buffers works as well.
            let _ = stream.set_window(bytes);
        }
        if self.is_long_path {
            // Without the options it is only slower.
            let _ = stream.suit_long_path();
        }
        if let Some(home) = &mut self.home
            && stream
                .register(&mut home.poller, home.token.merged())
                .is_err()
        {
            return;
        }
        let Some(place) = self.streams.get_mut(index) else {
            return;
        };
        *place = Some(stream);
        bundle.attach(index);
        self.joined += 1;
        self.dead = None;
        if let Some(dial) = &mut self.dial {
            dial.joined(index);
        }
        // It may have bytes that it read already, of which no event tells.
        self.notify(true, true);
    }

    /// The stream at `index` is lost.
    fn lose(&mut self, index: usize) {
        let now = self.now();
        let Some(bundle) = &mut self.bundle else {
            return;
        };
        let Some(mut stream) = self.streams.get_mut(index).and_then(Option::take) else {
            return;
        };
        // A stream that takes nothing any more may still have what the peer sent before: that it
        // has left, above all, without which others would be waited for.
        let mut violation = None;
        for _ in 0..STEPS_MAX {
            match bundle.receive(index, None, now, &mut |bufs| stream.read_vectored(bufs)) {
                Ok(Step::Moved) => {}
                Ok(_) => break,
                Err(found) => {
                    violation = Some(found);
                    break;
                }
            }
        }
        if let Some(home) = &mut self.home {
            // It is closed next, which withdraws the registration too.
            let _ = stream.deregister(&mut home.poller);
        }
        drop(stream);
        bundle.detach(index);
        if let Some(violation) = violation {
            return self.violated(violation);
        }
        if bundle.is_alone() || self.closing.is_some() {
            // The reader may wait for bytes that don't come any more.
            self.notify(true, true);
            return;
        }
        self.broken += 1;
        if bundle.live() == 0 {
            self.dead = Some(now);
        }
        if let Some(dial) = &mut self.dial {
            dial.lost(index, now);
        }
    }

    /// The bundle has failed: the user is told, and nothing more is moved.
    pub(super) fn fail(&mut self, kind: ErrorKind, why: impl Into<String>) {
        if self.failure.is_none() {
            self.failure = Some((kind, why.into()));
        }
        self.streams.iter_mut().for_each(|stream| *stream = None);
        self.notify(true, true);
    }

    fn error(&self) -> Option<io::Error> {
        let (kind, why) = self.failure.as_ref()?;
        Some(io::Error::new(*kind, why.clone()))
    }

    fn notify(&mut self, readable: bool, writable: bool) {
        self.read_waits &= !readable;
        self.write_waits &= !writable;
        if let Some(home) = &self.home {
            home.notifier.notify(Event {
                token: home.token,
                readable,
                writable,
            });
        }
    }

    /// Tells the user of what it waits for.
    fn wake(&mut self) {
        let Some(bundle) = &self.bundle else {
            return;
        };
        let readable = self.read_waits && bundle.is_readable();
        let writable = self.write_waits && bundle.is_writable();
        if readable || writable {
            self.notify(readable, writable);
        }
    }

    /// Writes whatever the streams take.
    fn pump_out(&mut self) {
        let now = self.now();
        let mut blocked = 0_u64;
        loop {
            let Some(bundle) = &mut self.bundle else {
                return;
            };
            let (places, start) = (bundle.places(), bundle.turn());
            let mut moved = false;
            let mut lost = None;
            for index in (start..places).chain(0..start) {
                let Some(stream) = self.streams.get_mut(index).and_then(Option::as_mut) else {
                    continue;
                };
                if blocked & (1 << index) != 0 {
                    continue;
                }
                match bundle.send(index, now, &mut |bufs| stream.write_vectored(bufs)) {
                    Step::Moved => {
                        moved = true;
                        break;
                    }
                    Step::Idle => {}
                    Step::Blocked => blocked |= 1 << index,
                    Step::Lost => {
                        lost = Some(index);
                        break;
                    }
                }
            }
            match lost {
                Some(index) => self.lose(index),
                None if !moved => break,
                None => {}
            }
        }
        for index in 0..self.streams.len() {
            if let Some(stream) = &mut self.streams[index]
                && stream.has_unflushed()
                && let Err(e) = stream.flush()
                && e.kind() != ErrorKind::WouldBlock
            {
                self.lose(index);
            }
        }
    }

    /// Reads what the streams have: with `room` what is next in order, and else everything.
    ///
    /// A reader leaves a piece that isn't next in its stream, so that it need not be copied. If
    /// what is next doesn't come within a tick, the service thread reads everything.
    fn pump_in(&mut self, mut room: Option<&mut Room<'_, '_>>) {
        let now = self.now();
        let mut blocked = 0_u64;
        let mut turn = 0;
        for _ in 0..STEPS_MAX {
            let Some(bundle) = &mut self.bundle else {
                return;
            };
            if let Some(room) = &mut room {
                bundle.deliver(room);
                if room.left() == 0 {
                    return;
                }
            }
            let places = bundle.places();
            let is_open = |index: &usize| {
                let stream = self.streams.get(*index);
                stream.is_some_and(Option::is_some) && blocked & (1 << *index) == 0
            };
            let mut others = (turn..places).chain(0..turn);
            let next = match (bundle.next_index(), &room) {
                (Some(next), Some(_)) => Some(next).filter(is_open),
                // What is next comes first in one of the others, unless it is sent again; the
                // service thread looks after that.
                (None, Some(_)) => {
                    let is_live = |index: &usize| bundle.has(*index);
                    let is_parked = |index: &usize| bundle.is_parked(*index);
                    if (0..places).filter(is_live).all(|index| is_parked(&index)) {
                        others.find(is_open)
                    } else {
                        others.find(|index| is_open(index) && !is_parked(index))
                    }
                }
                (_, None) => others.find(is_open),
            };
            let Some(index) = next else {
                return;
            };
            turn = index;
            let Some(stream) = &mut self.streams[index] else {
                return;
            };
            let room = room.as_deref_mut();
            let step = bundle.receive(index, room, now, &mut |bufs| stream.read_vectored(bufs));
            match step {
                Ok(Step::Moved) => {}
                Ok(Step::Idle | Step::Blocked) => blocked |= 1 << index,
                Ok(Step::Lost) => self.lose(index),
                Err(violation) => self.violated(violation),
            }
        }
        // More steps than expected: the rest is for a later call.
        self.notify(true, true);
    }

    fn violated(&mut self, violation: Violation) {
        self.fail(ErrorKind::InvalidData, violation.to_string());
    }

    /// After a call: whether the service thread has to look after it from now on.
    pub(super) fn begins_service(&mut self) -> bool {
        let begins = !self.is_watched && self.needs_service();
        self.is_watched |= begins;
        begins
    }

    /// Whether time has to pass for something.
    pub(super) fn needs_service(&self) -> bool {
        let Some(bundle) = &self.bundle else {
            return false;
        };
        let dials = self.dial.as_ref().is_some_and(Dial::is_incomplete) && !bundle.is_alone();
        self.failure.is_none() && (bundle.needs_time() || self.dead.is_some() || dials)
    }

    pub(super) fn read(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut room = Room::new(bufs);
        let wanted = room.left();
        if wanted == 0 {
            return Ok(0);
        }
        if let Some(bundle) = &mut self.bundle {
            if self.failure.is_some() {
                bundle.deliver(&mut room);
            } else {
                self.pump_in(Some(&mut room));
            }
        }
        let n = room.filled();
        let failure = self.error();
        if let Some(bundle) = &mut self.bundle {
            if n == 0 {
                bundle.settle();
            }
            if bundle.has_output() && failure.is_none() {
                self.pump_out();
            }
        }
        self.read_waits = n < wanted;
        self.wake();
        if n > 0 {
            return Ok(n);
        }
        let is_cut =
            |bundle: &Bundle| bundle.is_alone() && bundle.live() == 0 && !bundle.is_ended();
        if self.bundle.as_ref().is_some_and(is_cut) {
            self.fail(ErrorKind::ConnectionReset, "the peer has left");
        }
        match self.error() {
            _ if self.bundle.as_ref().is_some_and(Bundle::is_ended) => Ok(0),
            Some(e) => Err(e),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn write(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut taken = 0;
        let mut has_read = false;
        while taken < wanted && self.failure.is_none() {
            self.pump_out();
            let Some(bundle) = &mut self.bundle else {
                break;
            };
            if bundle.is_closed() || bundle.is_alone() {
                if taken > 0 {
                    break;
                }
                return Err(ErrorKind::BrokenPipe.into());
            }
            let n = match bundle.is_writable() {
                true => bundle.take(bufs, taken),
                false => 0,
            };
            taken += n;
            if n > 0 {
                continue;
            }
            if has_read {
                break;
            }
            has_read = true;
            self.pump_in(None);
            if let Some(bundle) = &mut self.bundle {
                bundle.settle();
            }
        }
        if self.failure.is_none() {
            self.pump_out();
        }
        self.write_waits = taken < wanted;
        self.wake();
        match self.error() {
            _ if taken > 0 => Ok(taken),
            Some(e) => Err(e),
            None if wanted == 0 => Ok(0),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(e) = self.error() {
            return Err(e);
        }
        self.pump_out();
        if self.has_unflushed() {
            self.pump_in(None);
            if let Some(bundle) = &mut self.bundle {
                bundle.settle();
            }
            self.pump_out();
        }
        let is_flushed = !self.has_unflushed();
        self.write_waits |= !is_flushed;
        self.wake();
        match is_flushed {
            true => Ok(()),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Whether bytes are with no stream yet or, once the user has written the last one, not
    /// acknowledged.
    pub(super) fn has_unflushed(&self) -> bool {
        let streams = self.streams.iter().flatten();
        let below = streams.map(|stream| stream.has_unflushed());
        let awaits = |bundle: &Bundle| bundle.has_unsent() || self.is_closed && !bundle.is_done();
        self.failure.is_none()
            && (self.bundle.as_ref().is_some_and(awaits) || below.into_iter().any(|b| b))
    }

    pub(super) fn finish_open(&self) -> io::Result<bool> {
        match self.error() {
            Some(e) => Err(e),
            None => Ok(self.bundle.is_some()),
        }
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
        if let Some(bundle) = &mut self.bundle {
            bundle.finish();
            self.pump_out();
        }
    }

    /// What was written needs not arrive any more, and the peer learns that there is no end.
    pub(super) fn abort(&mut self) {
        self.aborts = true;
    }

    pub(super) fn register(&mut self, poller: &Poller, token: Token) -> io::Result<()> {
        let mut handle = poller.handle();
        for stream in self.streams.iter_mut().flatten() {
            stream.register(&mut handle, token.merged())?;
        }
        self.home = Some(Home {
            notifier: handle.notifier(),
            poller: handle,
            token,
        });
        if self.bundle.is_some() || self.failure.is_some() {
            self.notify(true, true);
        }
        Ok(())
    }

    pub(super) fn deregister(&mut self) -> io::Result<()> {
        let Some(mut home) = self.home.take() else {
            return Ok(());
        };
        let mut streams = self.streams.iter_mut().flatten();
        streams.try_for_each(|stream| stream.deregister(&mut home.poller))
    }

    pub(super) fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        self.window = Some(bytes);
        let mut streams = self.streams.iter_mut().flatten();
        streams.try_for_each(|stream| stream.set_window(bytes))
    }

    pub(super) fn suit_long_path(&mut self) -> io::Result<()> {
        self.is_long_path = true;
        let mut streams = self.streams.iter_mut().flatten();
        streams.try_for_each(|stream| stream.suit_long_path())
    }

    /// Each stream gets an equal share; one that joins later gets its own with the next pace.
    pub(super) fn set_pace(&mut self, bytes_per_s: Option<u64>) -> io::Result<()> {
        let count = self.streams().count().max(1) as u64;
        let mut streams = self.streams.iter_mut().flatten();
        streams.try_for_each(|stream| stream.set_pace(bytes_per_s.map(|bytes| bytes / count)))
    }

    /// The streams below.
    pub(super) fn streams(&self) -> impl Iterator<Item = &dyn Stream> {
        self.streams.iter().flatten().map(|stream| &**stream)
    }

    /// Bytes sent again, streams broken and joined, bytes held.
    pub(super) fn counts(&self) -> [u64; 4] {
        let (resent, held) = match &self.bundle {
            Some(bundle) => (bundle.resent_bytes(), bundle.held_bytes() as u64),
            None => (0, 0),
        };
        [resent, self.broken, self.joined, held]
    }

    /// The user leaves. Whether something is left to do, for the service thread.
    pub(super) fn leave(&mut self) -> bool {
        // The streams are closed, or registered elsewhere, in any case.
        let _ = self.deregister();
        self.left = Some(self.now());
        if self.failure.is_some() {
            return false;
        }
        self.is_watched = true;
        if self.bundle.is_none() {
            // The peer may have it already, and waits for this side then.
            return self.dial.is_some();
        }
        self.end_bundle();
        !self.advance_leaving()
    }

    /// Has the peer learn that the user has left.
    fn end_bundle(&mut self) {
        if let Some(bundle) = &mut self.bundle {
            match self.aborts {
                true => bundle.abort(),
                false => bundle.leave(),
            }
        }
        self.pump_out();
        self.pump_in(None);
    }

    /// Continues after the user has left. Whether nothing is left to do.
    fn advance_leaving(&mut self) -> bool {
        let now = self.now();
        let Some(bundle) = &self.bundle else {
            return true;
        };
        if self.failure.is_some() || bundle.is_alone() {
            self.closing = Some(now);
            self.streams.clear();
            return true;
        }
        let linger = if self.aborts { CLOSING } else { LINGER };
        let is_late = self.left.is_some_and(|left| now > left + linger);
        if self.closing.is_none() && (bundle.is_over() || is_late) {
            self.closing = Some(now);
            for stream in self.streams.iter_mut().flatten() {
                // A broken stream has nothing left to end.
                let _ = stream.close();
            }
            // What the peer has closed already is lost now.
            self.pump_in(None);
        }
        let is_late = self.closing.is_some_and(|at| now > at + CLOSING);
        let is_over = self.closing.is_some() && self.streams().next().is_none();
        if is_over || is_late {
            self.streams.clear();
        }
        is_over || is_late
    }

    /// Registers the streams of a bundle that was left with the service thread.
    pub(super) fn linger(&mut self, poller: &Poller, token: Token) {
        if self.register(poller, token).is_err() {
            self.fail(ErrorKind::Other, "it can't be registered");
        }
    }

    /// What time brings. Returns whether there is nothing more to look after.
    pub(super) fn tick(&mut self) -> bool {
        let now = self.now();
        if self.failure.is_some() {
            return true;
        }
        let Some(bundle) = &mut self.bundle else {
            return self.left.is_none_or(|left| now > left + CLOSING);
        };
        let delivered = bundle.delivered_bytes();
        let moves = std::mem::replace(&mut self.delivered, delivered) != delivered;
        // A reader that gets on needs no help, and would pay for it with copies.
        if self.left.is_some() || !moves && bundle.needs_time() {
            self.pump_in(None);
        }
        if let Some(bundle) = &mut self.bundle {
            bundle.settle();
            bundle.check_stalls(now);
        }
        self.pump_out();
        let stuck = self.bundle.as_ref();
        if let Some(index) = stuck.and_then(|bundle| bundle.stuck(now, self.patience))
            && self.streams().count() > 1
        {
            self.lose(index);
            self.pump_out();
        }
        if self.dead.is_some_and(|at| now > at + self.patience) {
            let why = "every stream of the bundle broke, and none came back in time";
            self.fail(ErrorKind::TimedOut, why);
        }
        self.wake();
        match self.left {
            Some(_) => self.advance_leaving(),
            None => !self.needs_service(),
        }
    }

    /// The places to be dialled now.
    pub(super) fn dials(&mut self) -> Vec<(usize, u32)> {
        let now = self.now();
        // A user who has left has all of its bytes with the streams that there are.
        let is_used = self.left.is_none() || self.dead.is_some();
        let is_needed = is_used
            && self.takes_streams()
            && self
                .bundle
                .as_ref()
                .is_some_and(|bundle| !bundle.is_alone());
        match &mut self.dial {
            Some(dial) if is_needed => dial.due(now),
            _ => Vec::new(),
        }
    }

    /// A stream for the place `index` could not be opened; `refused` by the peer for good.
    pub(super) fn dial_failed(&mut self, index: usize, refused: bool) {
        let now = self.now();
        if let Some(dial) = &mut self.dial {
            dial.failed(index, now, refused);
            if dial.is_hopeless() && self.dead.is_some() {
                let why = "every stream of the bundle broke, and the peer takes no new one";
                self.fail(ErrorKind::ConnectionReset, why);
            }
        }
    }
}
