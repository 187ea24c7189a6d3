//! The user's view of a stack: [`Handle`] for an open stream, [`Passive`] for a passive open.
//!
//! Every operation exists in two forms: one that blocks its thread, and one, with the suffix
//! `_async`, that returns a future for any executor. Both end early at the deadline or the
//! cancellation that a [`Wait`] sets. Under both is the engine's view, [`Stream`], whose calls are
//! attempted until one of them doesn't have to wait.
//!
//! A thread waits on the stream's descriptor, where there is one; everything else is watched by one
//! thread for the process, started when first needed.

mod connect;
mod operation;
mod passive;
mod reactor;
mod readiness;
mod shared;
mod wait;

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

use operation::{Operation, Step, block};
use readiness::Interest;
use shared::{Direction, Shared, closed};

use crate::control::{Control, ControlValue};
use crate::stream::Stream;

pub use passive::Passive;
pub use wait::{Cancelled, Canceller, Wait};

/// An open stack, for programs.
///
/// Clones share the stream: one thread may read while another writes. Each call is atomic for
/// itself, so what two threads write in several calls may be mixed.
///
/// Dropping the last clone closes the stream at once, without [`Handle::close`]'s guarantees.
///
/// ```
/// use xdfs_xio::Stack;
///
/// let stack = Stack::parse("tcp")?;
/// let passive = stack.listen_at("127.0.0.1:0")?;
/// let client = stack.connect(&passive.contact())?;
/// let server = passive.accept()?;
/// client.write_all(b"hello")?;
/// client.close()?;
/// let mut text = [0; 16];
/// assert_eq!(server.read_at_least(&mut text, 16)?, Some(5));
/// assert_eq!(server.read(&mut text)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    wait: Wait,
}

impl Handle {
    /// The same stream, whose operations wait as `wait` says.
    #[must_use]
    pub fn with(&self, wait: Wait) -> Self {
        let shared = Arc::clone(&self.shared);
        Self { shared, wait }
    }

    /// Waits until the stream is open: connected, and with the opening exchanges of its transforms
    /// complete. Any other operation does so first.
    ///
    /// # Errors
    /// The reason why the opening failed, and the causes of [`Handle::read`].
    pub fn open(&self) -> io::Result<()> {
        self.run("open", Direction::Writing, |_, _| Ok(()))
    }

    /// [`Handle::open`] as a future.
    pub fn open_async(&self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.task("open", Direction::Writing, |_, _| Ok(()))
    }

    /// Reads what is there, after waiting for at least one byte. `None` is the end of the peer's
    /// stream; a read into no room returns `Some(0)`.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] at the deadline, [`Cancelled`], [`ErrorKind::NotConnected`] after
    /// [`Handle::close`], or any error of the stack.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        self.read_vectored(&mut [IoSliceMut::new(buf)])
    }

    /// [`Handle::read`] into several buffers, in their order.
    ///
    /// # Errors
    /// Those of [`Handle::read`].
    pub fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(Some(0));
        }
        self.run_read(|stream, deferred| read_once(stream, deferred, bufs))
    }

    /// [`Handle::read`] as a future. Dropped early, it has read nothing.
    pub fn read_async<'a>(
        &self,
        buf: &'a mut [u8],
    ) -> impl Future<Output = io::Result<Option<usize>>> + Send + use<'a> {
        self.task("read from", Direction::Reading, |stream, deferred| {
            if buf.is_empty() {
                return Ok(Some(0));
            }
            read_once(stream, deferred, &mut [IoSliceMut::new(buf)])
        })
    }

    /// [`Handle::read_vectored`] as a future. Dropped early, it has read nothing.
    pub fn read_vectored_async<'a, 'b>(
        &self,
        bufs: &'a mut [IoSliceMut<'b>],
    ) -> impl Future<Output = io::Result<Option<usize>>> + Send + use<'a, 'b> {
        self.task("read from", Direction::Reading, |stream, deferred| {
            if bufs.iter().all(|buf| buf.is_empty()) {
                return Ok(Some(0));
            }
            read_once(stream, deferred, bufs)
        })
    }

    /// Reads at least `least` bytes, or as many as fit into `buf` if that is less, and perhaps more
    /// that are there. With `least` 0 it doesn't wait. It returns fewer if the end of the stream,
    /// an error, the deadline or a cancellation comes first; the next read reports which.
    ///
    /// # Errors
    /// Those of [`Handle::read`], if no byte was read.
    pub fn read_at_least(&self, buf: &mut [u8], least: usize) -> io::Result<Option<usize>> {
        if buf.is_empty() {
            return Ok(Some(0));
        }
        let mut got = 0;
        let read = |stream: &mut dyn Stream, deferred: &mut Option<io::Error>| {
            read_least(stream, deferred, buf, least, &mut got)
        };
        let result = match least {
            0 => self.run("read from", Direction::Reading, read),
            _ => self.run_read(read),
        };
        part_of(result, got)
    }

    /// [`Handle::read_at_least`] as a future. Dropped early, it has read a part, which is lost.
    pub fn read_at_least_async<'a>(
        &self,
        buf: &'a mut [u8],
        least: usize,
    ) -> impl Future<Output = io::Result<Option<usize>>> + Send + use<'a> {
        let handle = self.clone();
        async move {
            if buf.is_empty() {
                return Ok(Some(0));
            }
            let mut got = 0;
            let read = |stream: &mut dyn Stream, deferred: &mut Option<io::Error>| {
                read_least(stream, deferred, buf, least, &mut got)
            };
            let result = handle.task("read from", Direction::Reading, read).await;
            part_of(result, got)
        }
    }

    /// Writes from the front of `bytes`, after waiting until at least one is accepted, and returns
    /// their number. Bytes are on their way then, or held by a transform until the next
    /// [`Handle::flush`], [`Handle::close`], or read that waits.
    ///
    /// # Errors
    /// Those of [`Handle::read`]; [`ErrorKind::BrokenPipe`] if the peer or [`Handle::end`] has
    /// ended this direction.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// [`Handle::write`] from several buffers, in their order.
    ///
    /// # Errors
    /// Those of [`Handle::write`].
    pub fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let is_empty = bufs.iter().all(|buf| buf.is_empty());
        self.run("write to", Direction::Writing, |stream, _| {
            if is_empty {
                return Ok(0);
            }
            accepted(stream.write_vectored(bufs))
        })
    }

    /// [`Handle::write`] as a future. Dropped early, it has written nothing.
    pub fn write_async<'a>(
        &self,
        bytes: &'a [u8],
    ) -> impl Future<Output = io::Result<usize>> + Send + use<'a> {
        self.task("write to", Direction::Writing, |stream, _| {
            if bytes.is_empty() {
                return Ok(0);
            }
            accepted(stream.write_vectored(&[IoSlice::new(bytes)]))
        })
    }

    /// [`Handle::write_vectored`] as a future. Dropped early, it has written nothing.
    pub fn write_vectored_async<'a, 'b>(
        &self,
        bufs: &'a [IoSlice<'b>],
    ) -> impl Future<Output = io::Result<usize>> + Send + use<'a, 'b> {
        self.task("write to", Direction::Writing, |stream, _| {
            if bufs.iter().all(|buf| buf.is_empty()) {
                return Ok(0);
            }
            accepted(stream.write_vectored(bufs))
        })
    }

    /// Writes all of `bytes`. After an error, it is unknown how many were.
    ///
    /// # Errors
    /// Those of [`Handle::write`].
    pub fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = self.write(rest)?;
            rest = &rest[n..];
        }
        Ok(())
    }

    /// [`Handle::write_all`] as a future. Dropped early, it has written a part.
    pub fn write_all_async<'a>(
        &self,
        bytes: &'a [u8],
    ) -> impl Future<Output = io::Result<()>> + Send + use<'a> {
        let handle = self.clone();
        async move {
            let mut rest = bytes;
            while !rest.is_empty() {
                let n = handle.write_async(rest).await?;
                rest = &rest[n..];
            }
            Ok(())
        }
    }

    /// Writes what transforms hold. A transport has nothing to flush.
    ///
    /// # Errors
    /// Those of [`Handle::write`].
    pub fn flush(&self) -> io::Result<()> {
        self.run("write to", Direction::Writing, |stream, _| stream.flush())
    }

    /// [`Handle::flush`] as a future.
    pub fn flush_async(&self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.task("write to", Direction::Writing, |stream, _| stream.flush())
    }

    /// Flushes, and then ends the writing direction in an orderly way: the peer reads everything
    /// written and then the end. Reading goes on.
    ///
    /// # Errors
    /// Those of [`Handle::flush`].
    pub fn end(&self) -> io::Result<()> {
        self.run("end writing to", Direction::Writing, end_once)
    }

    /// [`Handle::end`] as a future.
    pub fn end_async(&self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.task("end writing to", Direction::Writing, end_once)
    }

    /// Closes the stream: waits for the writes that aren't over, ends the writing direction as
    /// [`Handle::end`] does, waits for the reads that aren't over, and releases the stream.
    /// Operations that begin after it fail. What the peer has sent and nobody has read is
    /// discarded; if it sends more, its connection is reset, so the ends have to agree on who
    /// closes last.
    ///
    /// A read that waits for a silent peer is ended by its own deadline or canceller, not by this.
    ///
    /// # Errors
    /// Those of [`Handle::flush`]; then the stream is released all the same. At the deadline or a
    /// cancellation it stays, and closing may be tried again.
    pub fn close(&self) -> io::Result<()> {
        operation::block_on(self.close_async())
    }

    /// [`Handle::close`] as a future. Dropped early, the handle stays usable, perhaps without its
    /// writing direction.
    pub fn close_async(&self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let handle = self.clone();
        async move {
            if !handle.shared.begin_close() {
                return Err(closed());
            }
            let undo = Undo(&handle.shared);
            handle.rest(Direction::Writing).await?;
            let (shared, wait) = (Arc::clone(&handle.shared), handle.wait.clone());
            let ending = Operation::new(Arc::clone(&shared), wait, move || {
                shared.attempt(Direction::Writing, &mut end_once)
            });
            let ended = ending.await;
            if let Err(e) = &ended
                && (Cancelled::caused(e) || e.kind() == ErrorKind::TimedOut)
            {
                return ended.map_err(|e| handle.told("close", e));
            }
            handle.rest(Direction::Reading).await?;
            std::mem::forget(undo);
            if let Some(mut stream) = handle.shared.take() {
                discard_received(&mut *stream);
            }
            ended.map_err(|e| handle.told("close", e))
        }
    }

    /// Waits until no operation of `direction` is left.
    fn rest(&self, direction: Direction) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        Operation::new(Arc::clone(&shared.over), self.wait.clone(), move || {
            if shared.is_idle(direction) {
                Step::Done(Ok(()))
            } else {
                Step::Blocked(Interest::ANY)
            }
        })
    }

    /// The value of the control called `name`, as in `tcp.rtt`; `None` if no driver of the stack
    /// has it, or after [`Handle::close`].
    #[must_use]
    pub fn control(&self, name: &str) -> Option<ControlValue> {
        self.shared.state().stream.as_ref()?.control(name)
    }

    /// All controls of its drivers, the topmost first.
    #[must_use]
    pub fn controls(&self) -> Vec<Control> {
        let mut all = Vec::new();
        if let Some(stream) = &self.shared.state().stream {
            stream.controls(&mut all);
        }
        all
    }

    /// The peer's address, for messages.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.shared.peer
    }

    /// The engine's view, for programs with a poller of their own.
    ///
    /// # Errors
    /// The handle, if it has clones or operations that aren't over, or is closed.
    pub fn into_stream(self) -> Result<Box<dyn Stream>, Self> {
        if Arc::strong_count(&self.shared) > 1 {
            return Err(self);
        }
        self.shared.take().ok_or(self)
    }

    /// Runs an operation on the calling thread.
    fn run<T>(
        &self,
        name: &'static str,
        direction: Direction,
        mut operation: impl FnMut(&mut dyn Stream, &mut Option<io::Error>) -> io::Result<T>,
    ) -> io::Result<T> {
        let active = self.shared.begin(direction)?;
        let result = block(&self.shared, &self.wait, None, || {
            self.shared.attempt(direction, &mut operation)
        });
        drop(active);
        result.map_err(|e| self.told(name, e))
    }

    /// Runs a read that needs at least one byte on the calling thread.
    fn run_read<T>(
        &self,
        mut operation: impl FnMut(&mut dyn Stream, &mut Option<io::Error>) -> io::Result<T>,
    ) -> io::Result<T> {
        let active = self.shared.begin(Direction::Reading)?;
        // At a deadline in the past, there has to be an attempt nevertheless.
        let waits = self.wait.deadline().is_none() && self.shared.is_likely_to_wait();
        let first = waits.then_some(Interest {
            readable: true,
            writable: false,
        });
        let result = block(&self.shared, &self.wait, first, || {
            self.shared.attempt(Direction::Reading, &mut operation)
        });
        drop(active);
        result.map_err(|e| self.told("read from", e))
    }

    /// Makes a future of an operation.
    fn task<T, O>(
        &self,
        name: &'static str,
        direction: Direction,
        mut operation: O,
    ) -> impl Future<Output = io::Result<T>> + Send + use<T, O>
    where
        O: FnMut(&mut dyn Stream, &mut Option<io::Error>) -> io::Result<T> + Send + Unpin,
    {
        let handle = self.clone();
        async move {
            let active = handle.shared.begin(direction)?;
            let shared = Arc::clone(&handle.shared);
            let attempt = move || shared.attempt(direction, &mut operation);
            let watched = Arc::clone(&handle.shared);
            let result = Operation::new(watched, handle.wait.clone(), attempt).await;
            drop(active);
            result.map_err(|e| handle.told(name, e))
        }
    }

    /// Adds the operation and the peer to an error.
    fn told(&self, operation: &str, error: io::Error) -> io::Error {
        if Cancelled::caused(&error) {
            return error;
        }
        let kind = error.kind();
        let failed = Failed {
            what: format!("{operation} {}", self.peer()),
            source: error,
        };
        io::Error::new(kind, failed)
    }
}

/// An error with what failed; its source is the cause.
#[derive(Debug, thiserror::Error)]
#[error("failed to {what}: {source}")]
struct Failed {
    what: String,
    source: io::Error,
}

/// Allows operations again unless it is forgotten.
struct Undo<'a>(&'a Shared);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.0.end_close();
    }
}

fn read_once(
    stream: &mut dyn Stream,
    deferred: &mut Option<io::Error>,
    bufs: &mut [IoSliceMut<'_>],
) -> io::Result<Option<usize>> {
    if let Some(error) = deferred.take() {
        return Err(error);
    }
    match stream.read_vectored(bufs)? {
        0 => Ok(None),
        n => Ok(Some(n)),
    }
}

/// Continues a read of at least `least` bytes, of which `got` are in `buf`; with 0 it reads what is
/// there. An error after some bytes is left to the next read.
fn read_least(
    stream: &mut dyn Stream,
    deferred: &mut Option<io::Error>,
    buf: &mut [u8],
    least: usize,
    got: &mut usize,
) -> io::Result<Option<usize>> {
    if least == 0 {
        return match read_once(stream, deferred, &mut [IoSliceMut::new(buf)]) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(Some(0)),
            done => done,
        };
    }
    while *got < least.min(buf.len()) {
        match read_once(stream, deferred, &mut [IoSliceMut::new(&mut buf[*got..])]) {
            Ok(Some(n)) => *got += n,
            Ok(None) if *got == 0 => return Ok(None),
            Ok(None) => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if *got == 0 || e.kind() == ErrorKind::WouldBlock => return Err(e),
            Err(e) => {
                *deferred = Some(e);
                break;
            }
        }
    }
    Ok(Some(*got))
}

/// The result of a read of which `got` bytes have come: the deadline or the cancellation stays for
/// the next one.
fn part_of(result: io::Result<Option<usize>>, got: usize) -> io::Result<Option<usize>> {
    match result {
        Err(_) if got > 0 => Ok(Some(got)),
        done => done,
    }
}

fn accepted(written: io::Result<usize>) -> io::Result<usize> {
    match written? {
        0 => Err(ErrorKind::WriteZero.into()),
        n => Ok(n),
    }
}

fn end_once(stream: &mut dyn Stream, _: &mut Option<io::Error>) -> io::Result<()> {
    stream.flush()?;
    match stream.finish() {
        Err(e) if e.kind() == ErrorKind::WouldBlock => Err(e),
        // All content was accepted, and a peer that is gone needs no end.
        _ => stream.close(),
    }
}

/// Reads and forgets what has arrived, such as the tickets of a TLS server: a socket closed with
/// bytes that nobody has read resets the connection, and the peer may lose the end of what was
/// written. Bounded, as the peer decides how much it sends. What isn't a socket, such as standard
/// input, keeps what wasn't read.
fn discard_received(stream: &mut dyn Stream) {
    #[cfg(unix)]
    if stream.descriptor().is_none() {
        return;
    }
    let mut room = [0; 16 << 10];
    for _ in 0..64 {
        if !matches!(
            stream.read_vectored(&mut [IoSliceMut::new(&mut room)]),
            Ok(1..)
        ) {
            break;
        }
    }
}

/// The engine's view as a handle: a stream that was opened or accepted, and is not registered.
impl From<Box<dyn Stream>> for Handle {
    fn from(stream: Box<dyn Stream>) -> Self {
        Self {
            shared: Arc::new(Shared::new(stream)),
            wait: Wait::forever(),
        }
    }
}

/// For code on the standard library's traits; the end is `Ok(0)`.
impl Read for &Handle {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(Handle::read(self, buf)?.unwrap_or(0))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(Handle::read_vectored(self, bufs)?.unwrap_or(0))
    }
}

/// For code on the standard library's traits.
impl Write for &Handle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Handle::write(self, bytes)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        Handle::write_vectored(self, bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Handle::flush(self)
    }
}
