//! A session's payload buffers and their bounds: its own, and the memory that it shares with the
//! other sessions of its server.

use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use xdfs_sys::processor::second_level_cache_bytes;
use xdfs_xio::ENCODED_BYTES_MAX;

use crate::memory::{Account, MemoryBudget};
use crate::pool::{BlockMemory, Buffer, BufferPool};

/// Default payload of a block in bytes. Each block ends in a partly filled segment, and loopback
/// carries blocks of this size half again as fast as blocks of 256 KiB.
pub(crate) const BLOCK_BYTES: u32 = 2 << 20;
/// Sizes in bytes between which a piece has one, and that of a piece where the cache is unknown.
const PIECE_BYTES: RangeInclusive<usize> = 128 << 10..=512 << 10;
const PIECE_BYTES_USUAL: usize = 256 << 10;
/// Maximum bytes of send buffers per session.
pub(super) const SEND_POOL_BYTES: usize = 32 << 20;
/// Maximum bytes of receive buffers per session.
const RECEIVE_POOL_BYTES: usize = 16 << 20;
/// Size in bytes of a receive buffer, and of a piece that is read and hashed at once, a power of
/// two: with its copy it fits into the second-level cache of the processor.
pub(super) fn piece_bytes() -> usize {
    static BYTES: LazyLock<usize> = LazyLock::new(|| piece_bytes_of(second_level_cache_bytes()));
    *BYTES
}

fn piece_bytes_of(cache: Option<usize>) -> usize {
    let half = cache.map(|cache| cache / 2).filter(|half| *half > 0);
    let bytes = half.map_or(PIECE_BYTES_USUAL, |half| 1 << half.ilog2());
    bytes.clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end())
}

/// Number of buffers that channels may keep in the middle of a block; beyond it they pass on
/// partial pieces.
const PIECES_HELD_MAX: usize = 32;
/// Blocks of workers whose memory is kept for the next ones: fresh memory costs more than filling
/// it.
const USED_TO_READ_MAX: usize = 8;
/// Number of send buffers that a session may have in any case: one channel that stalls doesn't keep
/// the others from sending.
const SEND_LEAST: usize = 2;
/// The same of receive buffers: one is filled while the other is written.
const RECEIVE_LEAST: usize = 2;
/// Time after which memory is asked for again.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Time for which memory may be unused before it goes back.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// What memory is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// A block to send.
    Send,
    /// A piece to receive.
    Receive,
    /// A block that a worker reads.
    Read,
    /// A block that a feeder reads.
    Feed,
    /// A pack that is read.
    PackToRead,
    /// A pack that arrives.
    ArrivingPack,
    /// A pack that has arrived in vain, and is requested again.
    DroppedPack,
}

impl Purpose {
    const COUNT: usize = Self::DroppedPack as usize + 1;
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Buffers {
    budget: Arc<MemoryBudget>,
    send: BufferPool,
    receive: BufferPool,
    /// Blocks that workers read.
    read: Account,
    /// Their memory, once they are sent.
    used_to_read: Vec<BlockMemory>,
    /// Receive buffers owned by the storage thread.
    at_storage: usize,
    /// For each purpose, when memory is asked for again that wasn't there.
    retry_at: [Duration; Purpose::COUNT],
    /// Some was lacking since it was last told.
    is_shortage_new: bool,
    /// When unused memory goes back.
    trim_at: Duration,
}

impl Buffers {
    /// Receive buffers only: send buffers need the agreed block size.
    pub(super) fn new(budget: Arc<MemoryBudget>) -> Self {
        let account = || Account::new(&budget);
        let receive_max = RECEIVE_POOL_BYTES / piece_bytes();
        Self {
            send: BufferPool::new(0, 0, 0, 0, account()),
            receive: BufferPool::new(piece_bytes(), 0, receive_max, RECEIVE_LEAST, account()),
            read: account(),
            used_to_read: Vec::new(),
            budget,
            at_storage: 0,
            retry_at: [Duration::ZERO; Purpose::COUNT],
            is_shortage_new: false,
            trim_at: TRIM_INTERVAL,
        }
    }

    /// Sets the block size. Must precede the first block sent.
    pub(super) fn set_block_size(&mut self, block_size: u32) {
        let size = block_size as usize;
        let max = (SEND_POOL_BYTES / size).max(SEND_LEAST);
        let account = Account::new(&self.budget);
        self.send = BufferPool::new(size, encoded_bytes(size), max, SEND_LEAST, account);
    }

    /// Asks for memory, if it isn't too early for that; `None` if there is none.
    pub(super) fn ask<T>(
        &mut self,
        purpose: Purpose,
        now: Duration,
        take: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        if self.is_too_early(purpose, now) {
            return None;
        }
        let taken = take(self);
        if taken.is_none() {
            self.retry_at[purpose as usize] = now + RETRY_INTERVAL;
            self.is_shortage_new = true;
        }
        taken
    }

    /// Whether memory was asked for in vain just before. Nobody is told when there is some, so it
    /// is asked for again after a while.
    pub(super) fn is_too_early(&self, purpose: Purpose, now: Duration) -> bool {
        now < self.retry_at[purpose as usize]
    }

    /// Time until memory is asked for again; zero if none is lacking.
    pub(super) fn retry_delay(&self, now: Duration) -> Duration {
        let delays = self.retry_at.iter().map(|at| at.saturating_sub(now));
        let delays = delays.filter(|delay| !delay.is_zero());
        delays.min().unwrap_or_default()
    }

    /// Says in the log that memory is lacking, if it is.
    pub(super) fn tell_shortage(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_shortage_new) {
            self.budget.tell_shortage(now);
        }
    }

    /// Whether it is time to give unused memory back. That of the buffers has gone back then.
    pub(super) fn trim(&mut self, now: Duration) -> bool {
        let is_due = self.trim_at <= now;
        if is_due {
            self.trim_at = now + TRIM_INTERVAL;
            self.send.trim();
            self.receive.trim();
            self.used_to_read.clear();
        }
        is_due
    }

    /// Memory for a block of so many bytes that a worker reads; `None` if there is none.
    pub(super) fn take_to_read(&mut self, bytes: usize, now: Duration) -> Option<BlockMemory> {
        let used = &mut self.used_to_read;
        if let Some(at) = used.iter().rposition(|memory| memory.can_hold(bytes)) {
            return Some(used.swap_remove(at));
        }
        let all = BlockMemory::cost(bytes) + encoded_bytes(bytes);
        let reserved = self.ask(Purpose::Read, now, |own| {
            own.read.take(all, all).or_else(|| {
                own.used_to_read.clear();
                own.read.take(all, all)
            })
        });
        reserved.map(BlockMemory::new)
    }

    /// Returns memory of a block that a worker has read.
    pub(super) fn give_read(&mut self, memory: BlockMemory) {
        if self.used_to_read.len() < USED_TO_READ_MAX {
            self.used_to_read.push(memory);
        }
    }

    /// A further account of the session.
    pub(super) fn account(&self) -> Account {
        Account::new(&self.budget)
    }

    /// A send buffer of the block size; `None` if all are in use.
    pub(super) fn take_to_send(&mut self, now: Duration) -> Option<Buffer> {
        if let Some(buffer) = self.send.take() {
            return Some(buffer);
        }
        let has_room = self.send.has_room();
        has_room.then(|| self.ask(Purpose::Send, now, |own| own.send.make()))?
    }

    /// Returns a send buffer.
    pub(super) fn give_sent(&mut self, buffer: Buffer) {
        self.send.give(buffer);
    }

    /// A receive buffer of the piece size; `None` if all are in use.
    pub(super) fn take_to_receive(&mut self, now: Duration) -> Option<Buffer> {
        if let Some(buffer) = self.receive.take() {
            return Some(buffer);
        }
        let has_room = self.receive.has_room();
        has_room.then(|| self.ask(Purpose::Receive, now, |own| own.receive.make()))?
    }

    /// Returns a receive buffer.
    pub(super) fn give_received(&mut self, buffer: Buffer) {
        self.receive.give(buffer);
    }

    /// Number of receive buffers that can be taken.
    pub(super) fn left_to_receive(&self, now: Duration) -> usize {
        match self.is_too_early(Purpose::Receive, now) {
            true => self.receive.free(),
            false => self.receive.available(),
        }
    }

    /// Number of receive buffers that are free.
    pub(super) fn free_to_receive(&self) -> usize {
        self.receive.free()
    }

    /// Counts a receive buffer as passed to the storage thread.
    pub(super) fn lend_to_storage(&mut self) {
        self.at_storage += 1;
    }

    /// Returns a receive buffer from the storage thread.
    pub(super) fn give_stored(&mut self, buffer: Buffer) {
        self.at_storage = self.at_storage.saturating_sub(1);
        self.receive.give(buffer);
    }

    /// Whether the storage thread owns any buffers.
    pub(super) fn are_at_storage(&self) -> bool {
        self.at_storage > 0
    }

    /// Whether no buffers are in use except those of the storage thread.
    pub(super) fn are_back(&self) -> bool {
        self.send.in_use() == 0 && self.receive.in_use() == self.at_storage
    }

    /// Whether channels hold so many buffers that they must pass on partial pieces.
    pub(super) fn are_scarce(&self, now: Duration) -> bool {
        let held = self.receive.in_use() - self.at_storage;
        held > PIECES_HELD_MAX || self.is_too_early(Purpose::Receive, now)
    }
}

/// Bytes of a block that wait encrypted for its channel, at most, while its buffer is in use.
fn encoded_bytes(block_bytes: usize) -> usize {
    block_bytes.min(ENCODED_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fit_into_the_cache_with_their_copies() {
        for (cache_kib, piece_kib) in [(512, 256), (1024, 512), (1280, 512), (2048, 512), (64, 128)]
        {
            assert_eq!(piece_bytes_of(Some(cache_kib << 10)), piece_kib << 10);
        }
        for unknown in [None, Some(0)] {
            assert_eq!(piece_bytes_of(unknown), PIECE_BYTES_USUAL);
        }
    }
}
