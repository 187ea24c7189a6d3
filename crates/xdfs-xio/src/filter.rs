//! Filters: transforms that handle the calls of a stream on their way to the stream below.
//!
//! Where a [`Transform`](crate::Transform) turns bytes into bytes, a filter sees calls: it may
//! delay, count, split or gather them, and pass on the caller's own buffers without a copy. Each
//! of its methods passes its call on unless the filter says otherwise. [`Filtered`] is a stream
//! with a filter on it.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};

use xdfs_sys::poll::{Poller, Token};

use crate::control::Control;
use crate::layer::Layer;
use crate::stream::{Capabilities, PathSample, Protection, Stream};
use crate::transform::End;

/// One end of a filter on one channel. The methods are those of [`Stream`], with the stream below.
pub(crate) trait Filter: Send + fmt::Debug {
    fn read(
        &mut self,
        below: &mut Box<dyn Stream>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        below.read_vectored(bufs)
    }

    fn write(&mut self, below: &mut Box<dyn Stream>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        below.write_vectored(bufs)
    }

    fn flush(&mut self, below: &mut Box<dyn Stream>) -> io::Result<()> {
        below.flush()
    }

    /// Sends all that was written, and what ends it.
    fn finish(&mut self, below: &mut Box<dyn Stream>) -> io::Result<()> {
        self.flush(below)?;
        below.finish()
    }

    /// Whether the filter itself has something to flush.
    fn has_unflushed(&self) -> bool {
        false
    }

    /// The memory of the filter occupied by received bytes.
    fn held_bytes(&self) -> usize {
        0
    }

    fn finish_open(&mut self, below: &mut Box<dyn Stream>) -> io::Result<bool> {
        below.finish_open()
    }

    fn close(&mut self, below: &mut Box<dyn Stream>) -> io::Result<()> {
        below.close()
    }

    /// Whether the filter waits for anything but the stream below, such as a time.
    fn waits(&self) -> bool {
        false
    }

    /// The stream below was registered.
    fn registered(&mut self, poller: &Poller, token: Token) {
        let _ = (poller, token);
    }

    /// The registration was withdrawn.
    fn deregistered(&mut self) {}

    /// Appends the controls of this filter.
    fn controls(&self, out: &mut Vec<Control>) {
        let _ = out;
    }
}

/// A stream with a filter on it. It has no [`crate::Extension`]: calls of the extension below would
/// pass the filter by.
#[derive(Debug)]
pub(crate) struct Filtered<F> {
    // Dropped first, while the stream below is still open.
    filter: F,
    below: Box<dyn Stream>,
}

impl<F: Filter> Filtered<F> {
    pub(crate) fn new(below: Box<dyn Stream>, filter: F) -> Self {
        Self { filter, below }
    }
}

impl<F: Filter> Stream for Filtered<F> {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.filter.read(&mut self.below, bufs)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.filter.write(&mut self.below, bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.filter.flush(&mut self.below)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.filter.finish(&mut self.below)
    }

    fn has_unflushed(&self) -> bool {
        self.filter.has_unflushed() || self.below.has_unflushed()
    }

    fn held_bytes(&self) -> usize {
        self.filter.held_bytes() + self.below.held_bytes()
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        self.filter.finish_open(&mut self.below)
    }

    fn close(&mut self) -> io::Result<()> {
        self.filter.close(&mut self.below)
    }

    fn abort(&mut self) {
        self.below.abort();
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.below.register(poller, token)?;
        self.filter.registered(poller, token);
        Ok(())
    }

    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()> {
        self.filter.deregistered();
        self.below.deregister(poller)
    }

    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        self.below.set_window(bytes)
    }

    fn measure(&self) -> Option<PathSample> {
        self.below.measure()
    }

    #[cfg(unix)]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.below.descriptor().filter(|_| !self.filter.waits())
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
        self.below.capabilities()
    }

    fn protection(&self) -> Option<Protection> {
        self.below.protection()
    }

    fn peer(&self) -> String {
        self.below.peer()
    }

    fn controls(&self, out: &mut Vec<Control>) {
        self.filter.controls(out);
        self.below.controls(out);
    }
}

/// A driver that puts the filter of its constructor on each stream.
pub(crate) struct Filtering<M>(pub(crate) M);

impl<M, F> Layer for Filtering<M>
where
    M: Fn(End) -> io::Result<F> + Send + Sync,
    F: Filter + 'static,
{
    fn push(&self, below: Box<dyn Stream>, end: End) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(Filtered::new(below, (self.0)(end)?)))
    }
}

impl<M> fmt::Debug for Filtering<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filtering").finish_non_exhaustive()
    }
}

/// The first `len` bytes of `bufs`.
pub(crate) fn first<'a>(bufs: &'a [IoSlice<'_>], len: usize) -> Vec<IoSlice<'a>> {
    let mut left = len;
    let part = |buf: &'a IoSlice<'_>| {
        let n = buf.len().min(left);
        left -= n;
        IoSlice::new(&buf[..n])
    };
    bufs.iter().map(part).collect()
}

/// The room for the first `len` bytes in `bufs`.
pub(crate) fn first_mut<'a>(bufs: &'a mut [IoSliceMut<'_>], len: usize) -> Vec<IoSliceMut<'a>> {
    let mut left = len;
    let part = |buf: &'a mut IoSliceMut<'_>| {
        let n = buf.len().min(left);
        left -= n;
        IoSliceMut::new(&mut buf[..n])
    };
    bufs.iter_mut().map(part).collect()
}
