//! Transforms: bytes to bytes, without I/O.
//!
//! A [`Transform`] encodes what is written and decodes what is read. It has no descriptor, so it
//! works the same over any transport, in a simulator, and alone in a test. [`Transformed`] is a
//! stream with a transform on it, and the only code that moves its bytes.
//!
//! This adds no copies: a transform encodes from the caller's slices into a pooled buffer that is
//! written as it is, and decodes from a pooled buffer into the caller's slices.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
#[cfg(unix)]
use std::os::fd::BorrowedFd;

use xdfs_sys::poll::{Poller, Token};

use crate::control::Control;
use crate::stream::{Capabilities, PathSample, Protection, Stream};

/// Size of a pooled buffer, hence the most encoded bytes of a stream that wait to be written: a
/// batch of 32 TLS records, after the possible rest of another one.
pub const ENCODED_BYTES_MAX: usize = 33 * ((16 << 10) + 256);
/// Buffers that a thread keeps for reuse.
const SPARE_MAX: usize = 4;

thread_local! {
    /// Buffers for encoded bytes. A stream has one only while it contains bytes, so that idle
    /// channels hold none.
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// The ends of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The one that opens it.
    Initiator,
    /// The one that accepts it.
    Acceptor,
}

/// One end of a transform on one channel.
pub trait Transform: Send + fmt::Debug {
    /// Whether content can pass, after the opening exchange if there is one.
    fn is_open(&self) -> bool {
        true
    }

    /// Encodes content from the front of `content` into `out`, and returns the number of bytes
    /// used. `out` is empty; what isn't used is offered again. Before [`Transform::is_open`],
    /// `content` is empty and `out` gets this end's messages of the opening exchange.
    ///
    /// # Errors
    /// The channel has failed.
    fn encode(&mut self, content: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize>;

    /// Decodes from the front of `encoded` into `content` as far as there is room, and returns the
    /// number of bytes of `encoded` used. The rest is offered again, with more after it. Responses
    /// to the peer go to `out`, even with an error.
    ///
    /// # Errors
    /// The peer has sent invalid bytes.
    fn decode(
        &mut self,
        encoded: &[u8],
        content: &mut Room<'_, '_>,
        out: &mut Output,
    ) -> io::Result<usize>;

    /// The number of bytes to read from below when `held` was not sufficient and the reader has
    /// room for `room`. One read is limited by the size of a buffer, more than half a MiB.
    fn wants(&self, held: &[u8], room: usize) -> usize {
        let _ = held;
        room.max(4 << 10)
    }

    /// Whether the encoded bytes contained the peer's end of content.
    fn is_ended(&self) -> bool {
        false
    }

    /// The stream below has ended, with `held` unused. `Ok` if that is an orderly end.
    ///
    /// # Errors
    /// The end is premature.
    fn end(&mut self, held: &[u8]) -> io::Result<()> {
        if held.is_empty() {
            Ok(())
        } else {
            Err(ErrorKind::UnexpectedEof.into())
        }
    }

    /// Sends the end of content to the peer. `out` is empty.
    fn close(&mut self, out: &mut Output) {
        let _ = out;
    }

    /// Memory occupied by received bytes.
    fn held_bytes(&self) -> usize {
        0
    }

    /// The properties of a stack with this transform on one with the properties `below`.
    fn capabilities(&self, below: Capabilities) -> Capabilities {
        below
    }

    /// Appends the controls of this transform.
    fn controls(&self, out: &mut Vec<Control>) {
        let _ = out;
    }

    /// The channel's protection, if this transform provides it and is open.
    fn protection(&self) -> Option<Protection> {
        None
    }
}

/// Encoded output.
#[derive(Default)]
pub struct Output {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Output {
    /// Whether no output is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The pending output.
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The room after the pending output, to be filled from its front and then
    /// [`Output::advance`]d. It is more than half a MiB if nothing is pending, and may be empty
    /// otherwise.
    pub fn room(&mut self) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = pooled();
        }
        &mut self.bytes[self.end..]
    }

    /// Counts bytes of [`Output::room`] as filled.
    pub fn advance(&mut self, bytes: usize) {
        self.end = self.bytes.len().min(self.end + bytes);
    }

    /// Appends a copy of a few bytes, without allocating a whole buffer.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.bytes.len() - self.end < bytes.len() {
            let all = [self.waiting(), bytes].concat();
            self.drop_buffer();
            self.end = all.len();
            self.bytes = all.into();
            return;
        }
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Removes written bytes from the front, and releases the buffer with the last of them.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.release();
    }

    /// Releases the buffer if it is empty.
    fn release(&mut self) {
        if self.is_empty() {
            self.drop_buffer();
        }
    }

    fn drop_buffer(&mut self) {
        (self.start, self.end) = (0, 0);
        give_back(std::mem::take(&mut self.bytes));
    }

    /// Writes all pending output. `WouldBlock` if the stream doesn't accept all.
    pub(crate) fn write(&mut self, to: &mut dyn Stream) -> io::Result<()> {
        while !self.is_empty() {
            let n = write_once(to, &[IoSlice::new(self.waiting())])?;
            self.consume(n);
        }
        self.release();
        Ok(())
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Payload isn't printed.
        write!(f, "Output({} bytes)", self.end - self.start)
    }
}

/// The unfilled part of the caller's buffers.
#[derive(Debug)]
pub struct Room<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    index: usize,
    offset: usize,
    filled: usize,
}

impl<'a, 'b> Room<'a, 'b> {
    /// All of `bufs`.
    #[must_use]
    pub fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Self {
        Self {
            bufs,
            index: 0,
            offset: 0,
            filled: 0,
        }
    }

    /// Number of bytes that fit.
    #[must_use]
    pub fn left(&self) -> usize {
        let all: usize = self.bufs[self.index..].iter().map(|b| b.len()).sum();
        all - self.offset
    }

    /// Number of bytes filled.
    #[must_use]
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// The unfilled part of the current buffer; empty if all are full.
    pub fn slice(&mut self) -> &mut [u8] {
        while let Some(buf) = self.bufs.get(self.index)
            && self.offset == buf.len()
        {
            self.index += 1;
            self.offset = 0;
        }
        match self.bufs.get_mut(self.index) {
            Some(buf) => &mut buf[self.offset..],
            None => &mut [],
        }
    }

    /// Counts bytes at the front of [`Room::slice`] as filled.
    pub fn advance(&mut self, bytes: usize) {
        let bytes = bytes.min(self.slice().len());
        self.offset += bytes;
        self.filled += bytes;
    }

    /// Copies as much of `bytes` as fits, and returns the number of bytes.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let slice = self.slice();
            let n = slice.len().min(bytes.len() - taken);
            if n == 0 {
                break;
            }
            slice[..n].copy_from_slice(&bytes[taken..taken + n]);
            self.advance(n);
            taken += n;
        }
        taken
    }
}

/// A stream with a transform on it.
///
/// The opening exchange takes place in [`Stream::finish_open`], and at the acceptor also in reads
/// and writes, so that a peer that never completes it costs no more than a silent one.
pub struct Transformed<T> {
    pub(crate) below: Box<dyn Stream>,
    pub(crate) transform: T,
    /// Bytes read from below and not used by the transform yet.
    pub(crate) held: Vec<u8>,
    pub(crate) out: Output,
    /// The stream below is connected.
    connected: bool,
    /// This end was closed.
    closed: bool,
    /// The stream below has ended.
    ended: bool,
}

impl<T: Transform> Transformed<T> {
    /// Puts `end` of a transform above the stream `below`.
    #[must_use]
    pub fn new(below: Box<dyn Stream>, end: End, transform: T) -> Self {
        Self {
            below,
            transform,
            held: Vec::new(),
            out: Output::default(),
            connected: end == End::Acceptor,
            closed: false,
            ended: false,
        }
    }

    /// Whether this end was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Continues the opening exchange. `WouldBlock` until it is complete.
    pub(crate) fn shake_hands(&mut self) -> io::Result<()> {
        while !self.transform.is_open() {
            // A transform requires empty output, and the peer answers what has left all drivers
            // below.
            self.flush()?;
            self.transform.encode(&[], &mut self.out)?;
            self.flush()?;
            if self.transform.is_open() {
                break;
            }
            self.read_in(&mut Room::new(&mut []))?;
            if self.ended && !self.transform.is_open() {
                self.transform.end(&self.held)?;
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        self.respond()
    }

    /// Checks that this end isn't closed and the channel is open.
    pub(crate) fn begin_write(&mut self) -> io::Result<()> {
        if self.closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if !self.transform.is_open() {
            self.shake_hands()?;
        }
        self.out.write(&mut *self.below)
    }

    /// Writes pending output, as far as the stream below accepts it.
    fn write_on(&mut self) -> io::Result<()> {
        match self.out.write(&mut *self.below) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            done => done,
        }
    }

    /// Sends what the peer may wait for, as far as the stream below accepts it.
    fn respond(&mut self) -> io::Result<()> {
        match self.flush() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            done => done,
        }
    }

    /// Decodes held bytes and, if there was no content, reads once and decodes that.
    fn read_in(&mut self, room: &mut Room<'_, '_>) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        let was_open = self.transform.is_open();
        let used = match self.decode(&held, room) {
            Ok(used) => used,
            Err(e) => {
                self.held = held;
                return Err(e);
            }
        };
        let is_over = room.filled() > 0 || self.transform.is_ended();
        // During the opening, a message that was held may have to be answered before another comes.
        let is_answer_due = !was_open && used > 0;
        if is_over || is_answer_due || self.ended || was_open != self.transform.is_open() {
            self.held = if used == 0 {
                held
            } else {
                held[used..].to_vec()
            };
            return Ok(());
        }
        let mut input = pooled();
        let result = self.read_below(&held[used..], &mut input, room);
        give_back(input);
        result
    }

    /// Reads once into `input` after `held`, and decodes both.
    fn read_below(
        &mut self,
        held: &[u8],
        input: &mut [u8],
        room: &mut Room<'_, '_>,
    ) -> io::Result<()> {
        let before = held.len();
        let end = input
            .len()
            .min(before + self.transform.wants(held, room.left()).max(1));
        if before >= end {
            // A further read fails likewise, instead of starting in the middle of a unit.
            self.held = held.to_vec();
            let why = "a unit of a transform is longer than the buffer it has to fit in";
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        input[..before].copy_from_slice(held);
        match read_once(
            &mut *self.below,
            &mut [IoSliceMut::new(&mut input[before..end])],
        ) {
            Ok(n) => {
                self.ended = n == 0;
                let result = self.decode(&input[..before + n], room);
                let used = *result.as_ref().unwrap_or(&0);
                self.held = input[used..before + n].to_vec();
                result.map(|_| ())
            }
            Err(e) => {
                self.held = input[..before].to_vec();
                Err(e)
            }
        }
    }

    /// Decodes, and writes responses as far as the stream below accepts them.
    fn decode(&mut self, encoded: &[u8], room: &mut Room<'_, '_>) -> io::Result<usize> {
        let before = self.out.waiting().len();
        let result = self.transform.decode(encoded, room, &mut self.out);
        // Earlier pending output is left to the next write.
        let written = if self.out.waiting().len() > before {
            self.respond()
        } else {
            self.out.release();
            Ok(())
        };
        // An error in the bytes is more informative than a failure to send the response.
        let used = result?.min(encoded.len());
        written.map(|()| used)
    }
}

impl<T: fmt::Debug> fmt::Debug for Transformed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transformed")
            .field("below", &self.below)
            .field("transform", &self.transform)
            .finish_non_exhaustive()
    }
}

impl<T: Transform> Stream for Transformed<T> {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if !self.transform.is_open() {
            self.shake_hands()?;
        }
        let mut room = Room::new(bufs);
        if room.left() == 0 {
            return Ok(0);
        }
        loop {
            self.read_in(&mut room)?;
            if room.filled() > 0 || self.transform.is_ended() {
                return Ok(room.filled());
            }
            if self.ended {
                return self.transform.end(&self.held).map(|()| 0);
            }
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.begin_write()?;
        let taken = self.transform.encode(bufs, &mut self.out);
        let written = self.write_on();
        let taken = taken?;
        written.map(|()| taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write(&mut *self.below)?;
        self.below.flush()
    }

    fn has_unflushed(&self) -> bool {
        self.connected && (!self.out.is_empty() || self.below.has_unflushed())
    }

    fn held_bytes(&self) -> usize {
        self.held.capacity() + self.transform.held_bytes() + self.below.held_bytes()
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        if !self.below.finish_open()? {
            return Ok(false);
        }
        self.connected = true;
        match self.shake_hands() {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if !self.closed {
            self.out.write(&mut *self.below)?;
            self.transform.close(&mut self.out);
            self.closed = true;
        }
        self.out.write(&mut *self.below)?;
        self.below.finish()
    }

    fn close(&mut self) -> io::Result<()> {
        // Without the end of content, the peer sees a truncated stream, if the transform can tell.
        let _ = self.finish();
        self.closed = true;
        self.below.close()
    }

    fn abort(&mut self) {
        self.closed = true;
        self.below.abort();
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.below.register(poller, token)
    }

    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()> {
        self.below.deregister(poller)
    }

    /// Not during the opening, when a read may wait to write.
    #[cfg(unix)]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let is_open = self.connected && self.transform.is_open();
        self.below.descriptor().filter(|_| is_open)
    }

    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        self.below.set_window(bytes)
    }

    fn measure(&self) -> Option<PathSample> {
        self.below.measure()
    }

    fn suit_long_path(&mut self) -> io::Result<()> {
        self.below.suit_long_path()
    }

    fn set_pace(&mut self, bytes_per_s: Option<u64>) -> io::Result<()> {
        self.below.set_pace(bytes_per_s)
    }

    fn admit(&mut self) {
        self.below.admit();
    }

    fn capabilities(&self) -> Capabilities {
        self.transform.capabilities(self.below.capabilities())
    }

    fn protection(&self) -> Option<Protection> {
        self.transform
            .protection()
            .or_else(|| self.below.protection())
    }

    fn peer(&self) -> String {
        self.below.peer()
    }

    fn controls(&self, out: &mut Vec<Control>) {
        self.transform.controls(out);
        self.below.controls(out);
    }
}

/// A buffer of [`ENCODED_BYTES_MAX`] with arbitrary content.
pub(crate) fn pooled() -> Box<[u8]> {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| vec![0; ENCODED_BYTES_MAX].into())
}

/// Frees the buffers for encoded bytes that this thread keeps for reuse, about 2 MiB at most.
pub fn free_spares() {
    SPARE.with_borrow_mut(Vec::clear);
}

/// Keeps a pooled buffer for reuse.
pub(crate) fn give_back(buffer: Box<[u8]>) {
    if buffer.len() == ENCODED_BYTES_MAX {
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_MAX {
                spare.push(buffer);
            }
        });
    }
}

/// Writes what the stream accepts at once. Interruptions are retried: encoded bytes can't be taken
/// back, so the caller would write the content twice. Accepting nothing means the end of the
/// stream.
pub(crate) fn write_once(to: &mut dyn Stream, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match to.write_vectored(bufs) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Reads available bytes, retrying after interruptions.
pub(crate) fn read_once(from: &mut dyn Stream, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    loop {
        match from.read_vectored(bufs) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
