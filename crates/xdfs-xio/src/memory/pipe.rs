//! One direction of a channel in memory: a bounded queue of bytes with a reader and a writer. What
//! the writer lends is read where it is.
//!
//! How lost wake-ups are prevented: a side sets its waiting flag under the lock under which it
//! found the queue empty (or full), and the other side checks it under that lock when it changes
//! the queue. A newly registered side gets an event at once if it need not wait. Events are sent
//! after the lock is released, so that a woken thread does not contend for it.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use xdfs_sys::poll::{Event, Notifier, Token};

/// Maximum bytes queued in one direction, and at most once exceeded by what is lent.
pub(super) const CAPACITY: usize = 1 << 20;

/// Room at which a waiting writer is woken: not for each byte, so that both sides work in large
/// steps. A reader that drains the queue always reaches it.
const ROOM: usize = CAPACITY / 2;

#[derive(Debug, Default)]
pub(super) struct Pipe(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    data: Data,
    /// No more bytes will arrive.
    end: Option<End>,
    /// The reader is gone; writing fails.
    reader_gone: bool,
    reader: Side,
    writer: Side,
}

/// Bytes on their way.
#[derive(Debug, Default)]
struct Data {
    pieces: VecDeque<Piece>,
    len: usize,
    /// Memory for the next copies.
    spare: VecDeque<u8>,
}

#[derive(Debug)]
enum Piece {
    Copied(VecDeque<u8>),
    Lent(Arc<Vec<u8>>, Range<usize>),
}

impl Data {
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.len)
    }

    /// Copies as much of `bytes` as fits; returns how much that is.
    fn copy(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(self.room())];
        if part.is_empty() {
            return Ok(0);
        }
        if !matches!(self.pieces.back(), Some(Piece::Copied(_))) {
            let memory = std::mem::take(&mut self.spare);
            self.pieces.push_back(Piece::Copied(memory));
        }
        if let Some(Piece::Copied(bytes)) = self.pieces.back_mut() {
            Write::write_all(bytes, part)?;
            self.len += part.len();
        }
        Ok(part.len())
    }

    fn lend(&mut self, memory: &Arc<Vec<u8>>, range: Range<usize>) {
        self.len += range.len();
        self.pieces
            .push_back(Piece::Lent(Arc::clone(memory), range));
    }

    /// Moves bytes of the first piece to `buffer`, which has room; returns their number.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (count, is_used_up) = match self.pieces.front_mut() {
            None => return Ok(0),
            // The queue consists of two slices when it wraps, and one read takes only from the
            // first.
            Some(Piece::Copied(bytes)) => (Read::read(bytes, buffer)?, bytes.is_empty()),
            Some(Piece::Lent(memory, range)) => {
                let left = memory.get(range.clone()).unwrap_or_default();
                let count = left.len().min(buffer.len());
                buffer[..count].copy_from_slice(&left[..count]);
                range.start += count;
                (count, range.start == range.end)
            }
        };
        self.len -= count;
        if is_used_up && let Some(Piece::Copied(memory)) = self.pieces.pop_front() {
            self.spare = memory;
        }
        Ok(count)
    }
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
        self.data.room() >= ROOM || self.reader_gone
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
            let mut at = 0;
            while at < buf.len() && !state.data.is_empty() {
                at += state.data.take(&mut buf[at..])?;
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
        let is_wanted = bufs.iter().any(|b| !b.is_empty());
        self.put(is_wanted, |data| {
            let mut total = 0;
            for buf in bufs {
                total += data.copy(buf)?;
            }
            Ok(total)
        })
    }

    /// Writes `first`, and then has the reader read a range of `memory`: all of it, if anything
    /// fits.
    pub(super) fn lend(
        &self,
        first: &[IoSlice<'_>],
        memory: &Arc<Vec<u8>>,
        range: Range<usize>,
    ) -> io::Result<usize> {
        if memory.get(range.clone()).is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.put(true, |data| {
            let mut total = 0;
            for buf in first {
                total += data.copy(buf)?;
            }
            if data.room() > 0 && !range.is_empty() {
                total += range.len();
                data.lend(memory, range);
            }
            Ok(total)
        })
    }

    /// Puts bytes into the queue. If some are wanted and none fit, the writer waits.
    fn put(
        &self,
        is_wanted: bool,
        put: impl FnOnce(&mut Data) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut state = self.state();
        if state.reader_gone || state.end.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let total = put(&mut state.data)?;
        if state.data.room() == 0 {
            state.writer.waits = true;
            if total == 0 && is_wanted {
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
        state.data = Data::default();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(pipe: &Pipe) -> Vec<u8> {
        let (mut all, mut piece) = (Vec::new(), [0; 1000]);
        while let Ok(count) = pipe.read(&mut [IoSliceMut::new(&mut piece)]) {
            if count == 0 {
                break;
            }
            all.extend_from_slice(&piece[..count]);
        }
        all
    }

    #[test]
    fn what_is_lent_arrives_in_order_between_copies() {
        let pipe = Pipe::default();
        let memory: Arc<Vec<u8>> = Arc::new((0..=255).cycle().take(CAPACITY + 7).collect());
        let (start, end) = (3, memory.len() - 1);
        assert_eq!(pipe.write(&[IoSlice::new(b"ab")]).unwrap(), 2);
        let lent = pipe.lend(&[IoSlice::new(b"c")], &memory, start..end);
        // Beyond the capacity, since it is in the writer's memory.
        assert_eq!(lent.unwrap(), 1 + end - start);
        assert_eq!(Arc::strong_count(&memory), 2);
        let full = [
            pipe.write(&[IoSlice::new(b"d")]),
            pipe.lend(&[], &memory, 0..1),
            pipe.lend(&[IoSlice::new(b"d")], &memory, 0..1),
        ];
        for refused in full {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        let read = read_all(&pipe);
        assert_eq!(read, [b"abc", &memory[start..end]].concat());
        assert_eq!(Arc::strong_count(&memory), 1, "the writer has it again");
        // Only what is accepted in front may have been cut off.
        let first = vec![1; CAPACITY + 1];
        let lent = pipe.lend(&[IoSlice::new(&first)], &memory, 0..1);
        assert_eq!((lent.unwrap(), Arc::strong_count(&memory)), (CAPACITY, 1));
        assert_eq!(read_all(&pipe).len(), CAPACITY);
        // The memory of copies is used again.
        assert_eq!(pipe.write(&[IoSlice::new(b"e")]).unwrap(), 1);
        assert!(
            pipe.lend(&[], &memory, end..end + 2).is_err(),
            "no such range"
        );
        assert!(pipe.lend(&[], &memory, 1..2).is_ok());
        pipe.close().send();
        assert_eq!(read_all(&pipe), [b'e', memory[1]]);
    }

    #[test]
    fn an_abandoned_pipe_gives_back_what_was_lent() {
        let pipe = Pipe::default();
        let memory = Arc::new(vec![1, 2, 3]);
        pipe.lend(&[], &memory, 0..3).unwrap();
        let (wake, unread) = pipe.abandon();
        wake.send();
        assert_eq!((unread, Arc::strong_count(&memory)), (true, 1));
        let refused = pipe.lend(&[], &memory, 0..3).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    }
}
