//! One direction of a channel in memory: a bounded queue of bytes with a reader and a writer.
//!
//! How lost wake-ups are prevented: a side sets its waiting flag under the lock under which it
//! found the queue empty (or full), and the other side checks it under that lock when it changes
//! the queue. A newly registered side gets an event at once if it need not wait. Events are sent
//! after the lock is released, so that a woken thread does not contend for it.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::sync::{Mutex, MutexGuard};

use xdfs_sys::poll::{Event, Notifier, Token};

/// Maximum bytes queued in one direction.
pub(super) const CAPACITY: usize = 1 << 20;

/// Room at which a waiting writer is woken: not for each byte, so that both sides work in large
/// steps. A reader that drains the queue always reaches it.
const ROOM: usize = CAPACITY / 2;

#[derive(Debug, Default)]
pub(super) struct Pipe(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    data: VecDeque<u8>,
    /// No more bytes will arrive.
    end: Option<End>,
    /// The reader is gone; writing fails.
    reader_gone: bool,
    reader: Side,
    writer: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Orderly,
    /// The peer left without reading all of this end's bytes.
    Reset,
}

#[derive(Debug, Default)]
struct Side {
    registered: Option<(Notifier, Token)>,
    /// It found the queue empty (reader) or full (writer) and has had no event since.
    waits: bool,
}

/// An event to be sent after the lock is released.
#[derive(Debug)]
#[must_use]
pub(super) struct Wake(Option<(Notifier, Event)>);

impl Wake {
    pub(super) const NONE: Self = Self(None);

    pub(super) fn send(self) {
        if let Some((notifier, event)) = self.0 {
            notifier.notify(event);
        }
    }

    /// Combines the events of both directions of a stream into one.
    pub(super) fn merge(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some((notifier, a)), Some((_, b))) => {
                let readable = a.readable || b.readable;
                let writable = a.writable || b.writable;
                Self(Some((
                    notifier,
                    Event {
                        token: a.token,
                        readable,
                        writable,
                    },
                )))
            }
            (one, other) => Self(one.or(other)),
        }
    }
}

impl Side {
    fn wake(&mut self, readable: bool, writable: bool) -> Wake {
        self.waits = false;
        Wake(self.registered.as_ref().map(|(notifier, token)| {
            (
                notifier.clone(),
                Event {
                    token: *token,
                    readable,
                    writable,
                },
            )
        }))
    }
}

impl State {
    fn readable(&self) -> bool {
        !self.data.is_empty() || self.end.is_some()
    }

    fn writable(&self) -> bool {
        CAPACITY - self.data.len() >= ROOM || self.reader_gone
    }
}

impl Pipe {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics in the middle of a change, so the state is consistent.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Reads available bytes into `bufs`.
    pub(super) fn read(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut state = self.state();
        if state.data.is_empty() {
            return match state.end {
                Some(End::Orderly) => Ok(0),
                Some(End::Reset) => Err(io::ErrorKind::ConnectionReset.into()),
                None => {
                    state.reader.waits = true;
                    Err(io::ErrorKind::WouldBlock.into())
                }
            };
        }
        let mut total = 0;
        for buf in bufs.iter_mut() {
            // The queue consists of two slices when it wraps, and one read takes only from the
            // first.
            let mut at = 0;
            while at < buf.len() && !state.data.is_empty() {
                at += state.data.read(&mut buf[at..])?;
            }
            total += at;
        }
        // As with sockets, a short read means that the reader may wait for an event.
        state.reader.waits = state.data.is_empty();
        let wake = if state.writer.waits && state.writable() {
            state.writer.wake(false, true)
        } else {
            Wake::NONE
        };
        drop(state);
        wake.send();
        Ok(total)
    }

    /// Writes as much of `bufs` as fits.
    pub(super) fn write(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.state();
        if state.reader_gone || state.end.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut total = 0;
        for buf in bufs {
            let room = CAPACITY - state.data.len();
            let part = &buf[..buf.len().min(room)];
            state.data.write_all(part)?;
            total += part.len();
        }
        if state.data.len() == CAPACITY {
            state.writer.waits = true;
            if total == 0 && bufs.iter().any(|b| !b.is_empty()) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        let wake = if state.reader.waits && state.readable() {
            state.reader.wake(true, false)
        } else {
            Wake::NONE
        };
        drop(state);
        wake.send();
        Ok(total)
    }

    /// Ends the direction; bytes already written still arrive.
    pub(super) fn close(&self) -> Wake {
        self.end(End::Orderly)
    }

    /// Ends the direction because the writer left without reading the other one.
    pub(super) fn reset(&self) -> Wake {
        self.end(End::Reset)
    }

    fn end(&self, end: End) -> Wake {
        let mut state = self.state();
        // A reset after an orderly close still informs the reader that its own bytes were lost.
        if state.end.is_some() && end == End::Orderly {
            return Wake::NONE;
        }
        state.end = Some(end);
        state.reader.wake(true, end == End::Reset)
    }

    /// Drops the reader's end. Also returns whether bytes were left unread.
    pub(super) fn abandon(&self) -> (Wake, bool) {
        let mut state = self.state();
        state.reader_gone = true;
        let unread = !state.data.is_empty();
        state.data = VecDeque::new();
        (state.writer.wake(false, true), unread)
    }

    /// Registers the reader, with an event at once if there is something to read.
    pub(super) fn register_reader(&self, notifier: Notifier, token: Token) -> Wake {
        let mut state = self.state();
        state.reader.registered = Some((notifier, token));
        if state.readable() {
            return state.reader.wake(true, false);
        }
        state.reader.waits = true;
        Wake::NONE
    }

    /// Registers the writer, with an event at once if there is room.
    pub(super) fn register_writer(&self, notifier: Notifier, token: Token) -> Wake {
        let mut state = self.state();
        state.writer.registered = Some((notifier, token));
        if state.writable() {
            return state.writer.wake(false, true);
        }
        state.writer.waits = true;
        Wake::NONE
    }

    pub(super) fn deregister_reader(&self) {
        self.state().reader.registered = None;
    }

    pub(super) fn deregister_writer(&self) {
        self.state().writer.registered = None;
    }
}
