//! The machine of a bundle: one ordered stream each way over several streams that may break.
//!
//! It does no input or output and has no clock: callers pass functions that read from and write to
//! one stream, and the time. A stream has a place (its index) and, for each connection that takes
//! the place, a life. [`super::core`] drives it over real streams; the tests and the model checker
//! over simulated ones.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::time::Duration;

use super::merger::{Merger, Place};
use super::splitter::{Life, Piece, Splitter};
use super::wire::{FRAME_BYTES, Frame, PIECE_BYTES_MAX, STREAMS_MAX, Violation};
use crate::transform::Room;

/// Buffers kept for reuse.
const SPARE_MAX: usize = 32;

/// Bytes that are skipped in one read.
const SKIP_BYTES: usize = 64 << 10;

/// Reads from one stream.
pub type Read<'a> = &'a mut dyn FnMut(&mut [IoSliceMut<'_>]) -> io::Result<usize>;

/// Writes to one stream.
pub type Write<'a> = &'a mut dyn FnMut(&[IoSlice<'_>]) -> io::Result<usize>;

/// What a call on one stream led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something was moved: call again.
    Moved,
    /// There is nothing to send at present, or nothing that this reader wants.
    Idle,
    /// The stream would block.
    Blocked,
    /// The stream has ended or failed; the caller removes it.
    Lost,
}

/// The sizes of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The number of streams, 1 to [`STREAMS_MAX`].
    pub streams: usize,
    /// The most payload of a piece that is sent, 1 to [`PIECE_BYTES_MAX`].
    pub piece: usize,
    /// The window of this side, at least 1.
    pub window: u64,
    /// The window of the peer.
    pub peer_window: u64,
}

/// One side of a bundle.
#[derive(Clone)]
pub struct Bundle {
    piece: usize,
    merger: Merger,
    splitter: Splitter,
    lanes: Vec<Option<Lane>>,
    lives: Life,
    /// The lane that gets the next piece or acknowledgement.
    turn: usize,
    /// The number of reads that brought something.
    heard: u64,
    spare: Vec<Vec<u8>>,
    skip: Vec<u8>,
    /// This side reads no more, and says so on every lane.
    leaves: bool,
    /// The peer reads no more.
    is_alone: bool,
    ack: Ack,
}

/// Whether an acknowledgement has to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ack {
    #[default]
    WhenDue,
    /// Nothing more arrives at present.
    Idle,
}

#[derive(Clone)]
struct Lane {
    life: Life,
    incoming: Incoming,
    outgoing: Outgoing,
    /// Since when its writes have blocked.
    blocked: Option<Duration>,
    /// The number of the last read that brought something.
    heard: u64,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("life", &self.life)
            .field("incoming", &self.incoming)
            .field("outgoing", &self.outgoing)
            .field("blocked", &self.blocked)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default)]
struct Incoming {
    header: [u8; FRAME_BYTES],
    filled: usize,
    piece: Option<PieceIn>,
}

/// A piece that is on its way in.
#[derive(Clone, Debug)]
struct PieceIn {
    /// The offset of its next byte.
    at: u64,
    end: u64,
    /// The memory for its bytes from `at` on, and how many are there.
    buffer: Option<(u64, Vec<u8>)>,
}

#[derive(Clone, Debug, Default)]
struct Outgoing {
    /// Frames and the header of the piece, and how many of these bytes are written.
    frames: Vec<u8>,
    frames_at: usize,
    piece: Option<(Piece, usize)>,
    /// The peer was told on this lane that this side reads no more.
    told_gone: bool,
}

impl Bundle {
    /// A bundle without streams yet.
    #[must_use]
    pub fn new(sizes: Sizes) -> Self {
        let streams = sizes.streams.clamp(1, STREAMS_MAX);
        // A piece that is no small part of the peer's window would wait for all of it.
        let piece_max = usize::try_from(sizes.peer_window / 4).unwrap_or(PIECE_BYTES_MAX);
        Self {
            piece: sizes.piece.min(piece_max).clamp(1, PIECE_BYTES_MAX),
            merger: Merger::new(sizes.window),
            splitter: Splitter::new(sizes.window, sizes.peer_window),
            lanes: (0..streams).map(|_| None).collect(),
            lives: 0,
            turn: 0,
            heard: 0,
            spare: Vec::new(),
            skip: Vec::new(),
            leaves: false,
            is_alone: false,
            ack: Ack::WhenDue,
        }
    }

    /// A stream takes the place `index`; one that was there before is lost. Places beyond the
    /// number of streams are ignored.
    pub fn attach(&mut self, index: usize) {
        self.detach(index);
        if let Some(place) = self.lanes.get_mut(index) {
            self.lives += 1;
            *place = Some(Lane {
                life: self.lives,
                incoming: Incoming::default(),
                outgoing: Outgoing::default(),
                blocked: None,
                heard: 0,
            });
        }
    }

    /// The stream at `index` is lost: what it carried is sent again on others.
    pub fn detach(&mut self, index: usize) {
        if let Some(lane) = self.lanes.get_mut(index).and_then(Option::take) {
            self.splitter.lose(lane.life);
            // An acknowledgement may have been on it.
            self.merger.repeat();
        }
    }

    /// Whether there is a stream at `index`.
    #[must_use]
    pub fn has(&self, index: usize) -> bool {
        self.lanes.get(index).is_some_and(Option::is_some)
    }

    /// The number of streams.
    #[must_use]
    pub fn live(&self) -> usize {
        self.lanes.iter().flatten().count()
    }

    /// The number of places.
    #[must_use]
    pub fn places(&self) -> usize {
        self.lanes.len()
    }

    /// Reads once from the stream at `index`, what is next in order into `room` if there is one.
    ///
    /// # Errors
    /// The peer broke the protocol.
    pub fn receive(
        &mut self,
        index: usize,
        room: Option<&mut Room<'_, '_>>,
        now: Duration,
        read: Read<'_>,
    ) -> Result<Step, Violation> {
        let Some(lane) = self.lanes.get_mut(index).and_then(Option::as_mut) else {
            return Ok(Step::Idle);
        };
        let Incoming {
            header,
            filled,
            piece,
        } = &mut lane.incoming;
        let header = &mut header[*filled..];
        let Some(piece) = piece else {
            return match read(&mut [IoSliceMut::new(header)]) {
                Ok(0) => Ok(Step::Lost),
                Ok(n) => {
                    self.count_header(index, n, now)?;
                    Ok(Step::Moved)
                }
                Err(e) => Ok(blocked(&e)),
            };
        };
        let rest = piece.end - piece.at;
        let place = match piece.buffer {
            Some(_) => Place::Ahead,
            None => self.merger.place(piece.at, piece.end),
        };
        let room = room.filter(|_| place == Place::Next);
        // The rest of a piece is at most `PIECE_BYTES_MAX`.
        let result = match (place, room) {
            (Place::Skip(most), _) => {
                self.skip.resize(SKIP_BYTES, 0);
                let most = (most as usize).min(SKIP_BYTES);
                let with_header = most as u64 == rest;
                read_into(&mut self.skip[..most], with_header, header, read)
            }
            (_, Some(room)) => {
                let slice = room.slice();
                if slice.is_empty() {
                    return Ok(Step::Idle);
                }
                let most = slice.len().min(rest as usize);
                let with_header = most as u64 == rest;
                let result = read_into(&mut slice[..most], with_header, header, read);
                if let Ok(n) = &result {
                    let n = (*n).min(most);
                    room.advance(n);
                    self.merger.delivered(n as u64);
                }
                result
            }
            (_, None) => {
                let (start, data) = piece.buffer.get_or_insert_with(|| {
                    let mut data = match rest as usize {
                        large if large >= PIECE_BYTES_MAX / 2 => self.spare.pop(),
                        _ => None,
                    }
                    .unwrap_or_default();
                    data.clear();
                    data.resize(rest as usize, 0);
                    (piece.at, data)
                });
                let from = (piece.at - *start) as usize;
                read_into(&mut data[from..], true, header, read)
            }
        };
        let n = match result {
            Ok(0) => return Ok(Step::Lost),
            Ok(n) => n as u64,
            Err(e) => return Ok(blocked(&e)),
        };
        let of_piece = n.min(rest);
        piece.at += of_piece;
        if piece.at == piece.end {
            let buffer = piece.buffer.take();
            lane.incoming.piece = None;
            if let Some((start, data)) = buffer {
                let unused = self.merger.hold(start, data)?;
                unused
                    .into_iter()
                    .for_each(|data| keep(&mut self.spare, data));
            }
        }
        self.count_header(index, (n - of_piece) as usize, now)?;
        Ok(Step::Moved)
    }

    /// Counts bytes of a frame's header, and takes the frame once it is complete.
    fn count_header(&mut self, index: usize, n: usize, now: Duration) -> Result<(), Violation> {
        let Some(lane) = self.lanes.get_mut(index).and_then(Option::as_mut) else {
            return Ok(());
        };
        self.heard += 1;
        lane.heard = self.heard;
        lane.incoming.filled += n;
        if lane.incoming.filled < FRAME_BYTES {
            return Ok(());
        }
        lane.incoming.filled = 0;
        match Frame::decode(&lane.incoming.header)? {
            Frame::Ack {
                received,
                limit,
                held,
            } => {
                let spare = &mut self.spare;
                self.splitter
                    .acknowledge(received, limit, held, now, |data| keep(spare, data))?;
            }
            Frame::Data { offset, length } => {
                self.merger.begin(offset, length)?;
                lane.incoming.piece = Some(PieceIn {
                    at: offset,
                    end: offset + u64::from(length),
                    buffer: None,
                });
            }
            Frame::End { offset } => self.merger.finish(offset)?,
            Frame::Gone => {
                self.is_alone = true;
                self.splitter.refuse();
            }
        }
        Ok(())
    }

    /// Copies what has arrived and is next in order.
    pub fn deliver(&mut self, room: &mut Room<'_, '_>) {
        let spare = &mut self.spare;
        self.merger.deliver(room, |data| keep(spare, data));
    }

    /// The stream whose piece is next in order, if its beginning has arrived.
    #[must_use]
    pub fn next_index(&self) -> Option<usize> {
        let next = self.merger.next();
        self.lanes.iter().position(|lane| {
            let piece = lane.as_ref().and_then(|lane| lane.incoming.piece.as_ref());
            piece.is_some_and(|piece| piece.buffer.is_none() && piece.at == next)
        })
    }

    /// Whether the stream at `index` has a piece that isn't next in order, none of which was read:
    /// it may stay where it is as long as others bring what is next.
    #[must_use]
    pub fn is_parked(&self, index: usize) -> bool {
        let lane = self.lanes.get(index).and_then(Option::as_ref);
        let piece = lane.and_then(|lane| lane.incoming.piece.as_ref());
        let is_ahead = |p: &PieceIn| self.merger.place(p.at, p.end) == Place::Ahead;
        piece.is_some_and(|piece| piece.buffer.is_none() && is_ahead(piece))
    }

    /// The number of bytes that the reader got.
    #[must_use]
    pub fn delivered_bytes(&self) -> u64 {
        self.merger.next()
    }

    /// Writes once to the stream at `index`: acknowledgements, pieces to be sent again, new pieces,
    /// the end.
    pub fn send(&mut self, index: usize, now: Duration, write: Write<'_>) -> Step {
        let turn = self.turn();
        let is_turn = turn == index;
        // A stream that works is best for an acknowledgement; if the peer seems to miss one, each
        // in turn.
        let tells = match self.merger.repeats() {
            true => turn,
            false => self.best().unwrap_or(turn),
        };
        let Some(lane) = self.lanes.get_mut(index).and_then(Option::as_mut) else {
            return Step::Idle;
        };
        let out = &mut lane.outgoing;
        let is_between = out.frames_at == out.frames.len() && out.piece.is_none();
        let (mut acknowledges, mut ends, mut is_told) = (false, false, false);
        if is_between {
            out.frames.clear();
            out.frames_at = 0;
            if tells == index && self.merger.due(self.ack == Ack::Idle) {
                out.frames.extend(self.merger.acknowledge().encode());
                acknowledges = true;
            }
            if let Some(piece) = self.splitter.next(lane.life, now) {
                let frame = Frame::Data {
                    offset: piece.offset,
                    // A piece is at most `PIECE_BYTES_MAX`.
                    length: piece.data.len() as u32,
                };
                out.frames.extend(frame.encode());
                out.piece = Some((piece, 0));
            } else if let Some(offset) = self.splitter.next_end(lane.life, now) {
                out.frames.extend(Frame::End { offset }.encode());
                ends = true;
            }
            let is_last = out.piece.is_none() && !self.splitter.is_waiting();
            if self.leaves && !out.told_gone && is_last {
                (out.told_gone, is_told) = (true, true);
                out.frames.extend(Frame::Gone.encode());
            }
            if out.frames.is_empty() {
                return Step::Idle;
            }
        }
        let frames = &out.frames[out.frames_at..];
        let data = match &out.piece {
            Some((piece, at)) => &piece.data[*at..],
            None => &[],
        };
        match write(&[IoSlice::new(frames), IoSlice::new(data)]) {
            Ok(0) => Step::Lost,
            Ok(n) => {
                lane.blocked = None;
                if acknowledges {
                    self.ack = Ack::WhenDue;
                }
                let of_frames = n.min(frames.len());
                out.frames_at += of_frames;
                let is_complete = match &mut out.piece {
                    Some((piece, at)) => {
                        *at += n - of_frames;
                        *at == piece.data.len()
                    }
                    None => out.frames_at == out.frames.len(),
                };
                if is_complete {
                    out.piece = None;
                    self.turn = (index + 1) % self.lanes.len();
                }
                Step::Moved
            }
            Err(e) => {
                let step = blocked(&e);
                if is_between {
                    // Nothing was begun, so another lane may do all of it.
                    out.frames.clear();
                    if let Some((piece, _)) = out.piece.take() {
                        self.splitter.put_back(lane.life, &piece);
                    }
                    if ends {
                        self.splitter.put_back_end();
                    }
                    if acknowledges {
                        self.merger.repeat();
                    }
                    out.told_gone &= !is_told;
                }
                if step == Step::Blocked {
                    lane.blocked.get_or_insert(now);
                    // Another lane takes the acknowledgement that is due next.
                    if is_turn {
                        self.turn = (index + 1) % self.lanes.len();
                    }
                }
                step
            }
        }
    }

    /// The stream that was heard last of those that take what is written.
    fn best(&self) -> Option<usize> {
        let heard = |index: &usize| {
            let lane = self.lanes[*index]
                .as_ref()
                .filter(|lane| lane.blocked.is_none());
            lane.map(|lane| lane.heard)
        };
        let lanes = (0..self.lanes.len()).filter(|index| heard(index).is_some());
        lanes.max_by_key(heard)
    }

    /// Where to begin with [`Bundle::send`], so that streams share the pieces: a place that has a
    /// stream, if there is one.
    #[must_use]
    pub fn turn(&self) -> usize {
        let mut places = (self.turn..self.lanes.len()).chain(0..self.turn);
        places.find(|place| self.has(*place)).unwrap_or(self.turn)
    }

    /// Takes bytes from the writer for one piece; `skip` of them are taken already.
    pub fn take(&mut self, bufs: &[IoSlice<'_>], skip: usize) -> usize {
        let all: usize = bufs.iter().map(|buf| buf.len()).sum();
        let data = match all.saturating_sub(skip).min(self.piece) {
            large if large >= PIECE_BYTES_MAX / 2 => self.spare.pop(),
            _ => None,
        };
        let data = data.unwrap_or_default();
        self.splitter.take(bufs, skip, self.piece, data)
    }

    /// Nothing arrives at present: what has arrived is to be acknowledged.
    pub fn settle(&mut self) {
        if self.merger.due(true) {
            self.ack = Ack::Idle;
        }
    }

    /// The writer has written everything.
    pub fn finish(&mut self) {
        self.splitter.finish();
    }

    /// The user has left: nothing more is read, and the rest is sent with the end.
    pub fn leave(&mut self) {
        self.leaves = true;
        self.splitter.finish();
        self.merger.discard();
    }

    /// The user breaks off: nothing more is read or sent, and the peer's reader fails.
    pub fn abort(&mut self) {
        self.leaves = true;
        self.splitter.refuse();
        self.merger.discard();
    }

    /// Looks for stalls; whether there is something to send again.
    pub fn check_stalls(&mut self, now: Duration) -> bool {
        self.live() > 1 && self.splitter.check_stalls(now)
    }

    /// A stream that has taken no byte in the middle of a frame for longer than `patience`.
    #[must_use]
    pub fn stuck(&self, now: Duration, patience: Duration) -> Option<usize> {
        let is_stuck = |lane: &Lane| {
            let blocked = lane
                .blocked
                .is_some_and(|at| now.saturating_sub(at) > patience);
            blocked && (lane.outgoing.piece.is_some() || lane.outgoing.frames_at > 0)
        };
        self.lanes
            .iter()
            .position(|lane| lane.as_ref().is_some_and(is_stuck))
    }

    /// Whether a read would return something.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.merger.is_readable()
    }

    /// Whether the reader has got everything up to the end.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.merger.is_ended()
    }

    /// Whether the writer may add bytes and they would begin to be sent next.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.splitter.is_refused() || self.splitter.room() > 0 && !self.splitter.has_unsent()
    }

    /// Whether the peer reads no more.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Whether this direction is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.splitter.is_closed()
    }

    /// Whether bytes taken have not been handed to any stream in full. The rest of a piece that has
    /// arrived by another stream doesn't count.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        let writes = |lane: &Lane| {
            let piece = lane.outgoing.piece.as_ref();
            piece.is_some_and(|(piece, _)| self.splitter.is_missing(piece))
        };
        self.splitter.has_unsent() || self.lanes.iter().flatten().any(writes)
    }

    /// Whether a stream has something to write at present.
    #[must_use]
    pub fn has_output(&self) -> bool {
        let writes = |lane: &Lane| lane.outgoing.frames_at < lane.outgoing.frames.len();
        self.has_unsent()
            || self.splitter.is_waiting()
            || self.merger.due(self.ack == Ack::Idle)
            || self.lanes.iter().flatten().any(writes)
    }

    /// Whether everything with the end has arrived, or nobody waits for it.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.splitter.is_done()
    }

    /// After [`Bundle::leave`]: whether nothing is left to do. Every stream was told.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let told = |lane: &Lane| {
            let out = &lane.outgoing;
            out.told_gone && out.frames_at == out.frames.len()
        };
        self.is_alone || self.is_done() && self.lanes.iter().flatten().all(told)
    }

    /// Whether time has to pass for something: an acknowledgement is awaited or due, or a piece
    /// waits in its stream for others.
    #[must_use]
    pub fn needs_time(&self) -> bool {
        let is_parked = (0..self.lanes.len()).any(|index| self.is_parked(index));
        self.splitter.is_expecting() || self.merger.due(true) || is_parked
    }

    /// Bytes sent again.
    #[must_use]
    pub fn resent_bytes(&self) -> u64 {
        self.splitter.resent_bytes()
    }

    /// Bytes that have arrived and wait for the reader or for others before them.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let buffers = self.lanes.iter().flatten().filter_map(|lane| {
            let piece = lane.incoming.piece.as_ref()?;
            piece.buffer.as_ref().map(|(_, data)| data.len())
        });
        self.merger.held_bytes() + buffers.sum::<usize>()
    }

    /// Bytes sent or to be sent that aren't acknowledged.
    #[must_use]
    pub fn unacknowledged_bytes(&self) -> u64 {
        self.splitter.unacknowledged()
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle")
            .field("merger", &self.merger)
            .field("splitter", &self.splitter)
            .field("lanes", &self.lanes)
            .field("turn", &self.turn)
            .field("best", &self.best())
            .field("leaves", &self.leaves)
            .field("is_alone", &self.is_alone)
            .field("ack", &self.ack)
            .finish_non_exhaustive()
    }
}

/// Reads into `data`, and behind it into the header of the frame that follows.
fn read_into(
    data: &mut [u8],
    with_header: bool,
    header: &mut [u8],
    read: Read<'_>,
) -> io::Result<usize> {
    if with_header {
        read(&mut [IoSliceMut::new(data), IoSliceMut::new(header)])
    } else {
        read(&mut [IoSliceMut::new(data)])
    }
}

fn blocked(e: &io::Error) -> Step {
    if e.kind() == ErrorKind::WouldBlock {
        Step::Blocked
    } else {
        Step::Lost
    }
}

fn keep(spare: &mut Vec<Vec<u8>>, data: Vec<u8>) {
    if spare.len() < SPARE_MAX && data.capacity() >= PIECE_BYTES_MAX / 2 {
        spare.push(data);
    }
}
