//! A session's pool of buffers of one size: allocated on first use, up to a bound.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Alignment of buffers in bytes: a page, as direct I/O requires.
const ALIGNMENT: usize = 4096;

/// A buffer for payload, aligned so that a sink may write it past the page cache.
pub(crate) struct Buffer {
    /// Never grows, so that the address stays.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Self {
        // Zeroed memory comes from the system untouched: pages cost only when they are used.
        let bytes = vec![0; len + ALIGNMENT];
        let start = bytes.as_ptr().addr().next_multiple_of(ALIGNMENT) - bytes.as_ptr().addr();
        Self { bytes, start, len }
    }
}

impl Buffer {
    /// A buffer outside of any pool and of any alignment: the first `len` bytes of `bytes`.
    pub(crate) fn of(mut bytes: Vec<u8>, len: usize) -> Self {
        if bytes.len() < len {
            bytes = vec![0; len];
        }
        Self {
            bytes,
            start: 0,
            len,
        }
    }

    /// The memory of the buffer.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct BufferPool {
    free: Vec<Buffer>,
    size: usize,
    made: usize,
    max: usize,
}

impl BufferPool {
    /// A pool of at most `max` buffers of `size` bytes.
    pub(crate) fn new(size: usize, max: usize) -> Self {
        Self {
            free: Vec::new(),
            size,
            made: 0,
            max,
        }
    }

    /// The most recently used free buffer, whose memory is likeliest to be cached; `None` at the
    /// bound.
    pub(crate) fn take(&mut self) -> Option<Buffer> {
        self.free.pop().or_else(|| {
            (self.made < self.max).then(|| {
                self.made += 1;
                Buffer::new(self.size)
            })
        })
    }

    /// Returns a buffer.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        debug_assert_eq!(buffer.len(), self.size, "a buffer of another pool");
        self.free.push(buffer);
    }

    /// Number of buffers that can be taken.
    pub(crate) fn available(&self) -> usize {
        self.max - self.in_use()
    }

    /// Number of buffers taken and not returned.
    pub(crate) fn in_use(&self) -> usize {
        self.made - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_the_bound() {
        let mut pool = BufferPool::new(8, 2);
        let a = pool.take().unwrap();
        let b = pool.take().unwrap();
        assert!(pool.take().is_none());
        assert_eq!(pool.in_use(), 2);
        assert!(a.as_ptr().addr().is_multiple_of(ALIGNMENT));
        pool.give(a);
        pool.give(b);
        assert_eq!(pool.in_use(), 0);
        assert_eq!(pool.take().unwrap().len(), 8);
    }
}
