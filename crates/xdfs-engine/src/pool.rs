//! A session's pool of buffers of one size: allocated on first use, up to a bound and as far as the
//! server has memory, and freed when they are no longer needed.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_sys::memory::{HUGE_PAGE_BYTES, prefer_huge_pages};

use crate::memory::{Account, Reserved};

/// Alignment of buffers in bytes: a page, as direct I/O requires.
const ALIGNMENT: usize = 4096;

/// A buffer for payload, aligned so that a sink may write it past the page cache.
pub(crate) struct Buffer {
    /// Never grows, so that the address stays.
    memory: Memory,
    start: usize,
    len: usize,
}

/// Memory, and what it takes of the budget.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) reserved: Reserved,
}

/// Memory of a block that is read in a thread of its own. A stream may hold it even after the
/// block is sent.
#[derive(Debug)]
pub(crate) struct BlockMemory {
    bytes: Arc<Vec<u8>>,
    /// Where the block begins, at a page: at a huge one, if it fills one. A device fills it with
    /// few requests then.
    start: usize,
    len: usize,
    _reserved: Reserved,
}

impl BlockMemory {
    /// Memory that gets its bytes when it is [filled](Self::fill).
    pub(crate) fn new(reserved: Reserved) -> Self {
        Self {
            bytes: Arc::default(),
            start: 0,
            len: 0,
            _reserved: reserved,
        }
    }

    /// Bytes that memory for `len` bytes takes.
    pub(crate) fn cost(len: usize) -> usize {
        len + alignment(len)
    }

    /// Has `read` fill the first `len` bytes, as many of them as it returns.
    pub(crate) fn fill(
        &mut self,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Fault>,
    ) -> Result<(), Fault> {
        if !self.can_hold(len) {
            // Zeroed memory comes from the system untouched.
            let mut bytes = vec![0; Self::cost(len)];
            self.start = distance_to_page(&bytes, alignment(len));
            bytes.truncate(self.start + len);
            prefer_huge_pages(&mut bytes[self.start..]);
            self.bytes = Arc::new(bytes);
        }
        let start = self.start;
        let bytes = Arc::get_mut(&mut self.bytes);
        let room = bytes.and_then(|bytes| bytes.get_mut(start..start + len));
        self.len = read(room.unwrap_or_default())?.min(len);
        Ok(())
    }

    /// What it was filled with.
    pub(crate) fn filled(&self) -> &[u8] {
        let end = self.start + self.len;
        self.bytes.get(self.start..end).unwrap_or_default()
    }

    /// Its memory, and where what it was filled with begins.
    pub(crate) fn shared(&self) -> (&Arc<Vec<u8>>, usize) {
        (&self.bytes, self.start)
    }

    /// Whether so many bytes can be filled without other memory.
    pub(crate) fn can_hold(&self, len: usize) -> bool {
        Arc::strong_count(&self.bytes) == 1 && self.bytes.len() >= self.start + len
    }
}

impl Buffer {
    fn new(len: usize, reserved: Reserved) -> Self {
        // Zeroed memory comes from the system untouched: pages cost only when they are used.
        let bytes = vec![0; len + ALIGNMENT];
        let start = distance_to_page(&bytes, ALIGNMENT);
        Self {
            memory: Memory { bytes, reserved },
            start,
            len,
        }
    }

    /// A buffer outside of any pool and of any alignment: the first `len` bytes of `memory`, which
    /// must have so many.
    pub(crate) fn of(memory: Memory, len: usize) -> Self {
        Self {
            memory,
            start: 0,
            len,
        }
    }

    /// The memory of the buffer.
    pub(crate) fn into_memory(self) -> Memory {
        self.memory
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes[self.start..self.start + self.len]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// The alignment of a block: that of huge pages, if it fills one.
fn alignment(len: usize) -> usize {
    match len < HUGE_PAGE_BYTES {
        true => ALIGNMENT,
        false => HUGE_PAGE_BYTES,
    }
}

/// The distance to the first page of so many bytes that begins in memory.
fn distance_to_page(bytes: &[u8], page: usize) -> usize {
    let address = bytes.as_ptr().addr();
    address.next_multiple_of(page) - address
}

#[derive(Debug)]
pub(crate) struct BufferPool {
    /// The most recently used one is the last.
    free: Vec<Buffer>,
    size: usize,
    made: usize,
    max: usize,
    account: Account,
    /// Bytes that count for a buffer.
    cost: usize,
    /// Number of buffers that it may have whatever others hold.
    least: usize,
    /// Smallest number of free buffers since the last [`Self::trim`].
    unneeded: usize,
}

impl BufferPool {
    /// A pool of at most `max` buffers of `size` bytes. It may have `least` of them in any case,
    /// and others as far as there is memory for them and for the `more` bytes that the use of each
    /// takes elsewhere.
    pub(crate) fn new(
        size: usize,
        more: usize,
        max: usize,
        least: usize,
        account: Account,
    ) -> Self {
        Self {
            free: Vec::new(),
            size,
            made: 0,
            max,
            account,
            cost: size + ALIGNMENT + more,
            least,
            unneeded: 0,
        }
    }

    /// The most recently used free buffer, whose memory is likeliest to be cached.
    pub(crate) fn take(&mut self) -> Option<Buffer> {
        let buffer = self.free.pop();
        self.unneeded = self.unneeded.min(self.free.len());
        buffer
    }

    /// A new buffer, if there is memory for it. The pool must [have room](Self::has_room).
    pub(crate) fn make(&mut self) -> Option<Buffer> {
        debug_assert!(self.has_room(), "more than the bound");
        let reserved = self.account.take(self.cost, self.least * self.cost)?;
        self.made += 1;
        Some(Buffer::new(self.size, reserved))
    }

    /// Whether it has less buffers than it may ever have.
    pub(crate) fn has_room(&self) -> bool {
        self.made < self.max
    }

    /// Returns a buffer.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        debug_assert_eq!(buffer.len(), self.size, "a buffer of another pool");
        self.free.push(buffer);
    }

    /// Frees the buffers that were not needed since the last call.
    pub(crate) fn trim(&mut self) {
        self.made -= self.free.drain(..self.unneeded).len();
        self.unneeded = self.free.len();
    }

    /// Number of buffers that can be taken.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Number of buffers that can be taken or made, as far as there is memory.
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
    use crate::memory::MemoryBudget;

    #[test]
    fn never_more_than_the_bound() {
        let mut pool = BufferPool::new(8, 0, 2, 0, Account::unbounded());
        assert!(pool.take().is_none());
        let a = pool.make().unwrap();
        let b = pool.make().unwrap();
        assert!(pool.take().is_none() && !pool.has_room());
        assert_eq!((pool.in_use(), pool.available()), (2, 0));
        assert!(a.as_ptr().addr().is_multiple_of(ALIGNMENT));
        pool.give(a);
        pool.give(b);
        assert_eq!((pool.in_use(), pool.free()), (0, 2));
        assert_eq!(pool.take().unwrap().len(), 8);
    }

    #[test]
    fn memory_of_blocks_is_used_again_unless_somebody_holds_it() {
        let budget = MemoryBudget::new(100);
        let reserved = Account::new(&budget).take_at_once(8);
        let mut memory = BlockMemory::new(reserved);
        assert!(!memory.can_hold(1));
        let fill = |byte, count| {
            move |room: &mut [u8]| {
                room[..count].fill(byte);
                Ok(count)
            }
        };
        memory.fill(8, fill(1, 8)).unwrap();
        let address = memory.filled().as_ptr();
        assert!(address.addr().is_multiple_of(ALIGNMENT));
        memory.fill(6, fill(2, 5)).unwrap();
        assert_eq!(memory.filled(), [2; 5], "fewer at the end of a source");
        assert_eq!(memory.filled().as_ptr(), address);
        assert!(memory.can_hold(8) && !memory.can_hold(9));
        let (held, start) = memory.shared();
        let held = Arc::clone(held);
        assert!(!memory.can_hold(1));
        memory.fill(8, fill(3, 8)).unwrap();
        assert_eq!(
            (memory.filled(), &held[start..start + 5]),
            (&[3; 8][..], &[2; 5][..])
        );
    }

    #[test]
    fn memory_that_is_not_needed_goes_to_others() {
        let budget = MemoryBudget::new(4 * (16 + ALIGNMENT));
        let mut pool = BufferPool::new(8, 8, 9, 1, Account::new(&budget));
        let mut other = BufferPool::new(8, 8, 9, 1, Account::new(&budget));
        let (a, b) = (pool.make().unwrap(), pool.make().unwrap());
        assert!(pool.make().is_none() && pool.has_room());
        pool.give(a);
        pool.give(b);
        // Both were needed.
        pool.trim();
        assert_eq!(pool.free(), 2);
        let a = pool.take().unwrap();
        pool.give(a);
        let _only = other.make().unwrap();
        assert!(other.make().is_none());
        // Only one of them was.
        pool.trim();
        assert_eq!((pool.free(), pool.in_use()), (1, 0));
        assert!(other.make().is_some());
        pool.trim();
        assert_eq!((pool.free(), pool.in_use()), (0, 0));
    }
}
