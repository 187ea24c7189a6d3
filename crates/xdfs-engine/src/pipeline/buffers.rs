//! A session's payload buffers and their bounds.

use crate::pool::{Buffer, BufferPool};

/// Default payload of a block in bytes. Each block ends in a partly filled segment, and loopback
/// carries blocks of this size half again as fast as blocks of 256 KiB.
pub(crate) const BLOCK_BYTES: u32 = 2 << 20;
/// Size in bytes of a receive buffer, and of a piece that is read and hashed at once: with its copy
/// it fits into the second-level cache.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// Maximum bytes of send buffers per session.
pub(super) const SEND_POOL_BYTES: usize = 32 << 20;
/// Maximum bytes of receive buffers per session.
const RECEIVE_POOL_BYTES: usize = 16 << 20;
/// Number of buffers that channels may keep in the middle of a block; beyond it they pass on
/// partial pieces.
const PIECES_HELD_MAX: usize = 32;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Buffers {
    send: BufferPool,
    receive: BufferPool,
    /// Receive buffers owned by the storage thread.
    at_storage: usize,
}

impl Buffers {
    /// Receive buffers only: send buffers need the agreed block size.
    pub(super) fn new() -> Self {
        Self {
            send: BufferPool::new(0, 0),
            receive: BufferPool::new(PIECE_BYTES, RECEIVE_POOL_BYTES / PIECE_BYTES),
            at_storage: 0,
        }
    }

    /// Sets the block size. Must precede the first block sent.
    pub(super) fn set_block_size(&mut self, block_size: u32) {
        let size = block_size as usize;
        self.send = BufferPool::new(size, (SEND_POOL_BYTES / size).max(2));
    }

    /// A send buffer of the block size; `None` if all are in use.
    pub(super) fn take_to_send(&mut self) -> Option<Buffer> {
        self.send.take()
    }

    /// Returns a send buffer.
    pub(super) fn give_sent(&mut self, buffer: Buffer) {
        self.send.give(buffer);
    }

    /// A receive buffer of the piece size; `None` if all are in use.
    pub(super) fn take_to_receive(&mut self) -> Option<Buffer> {
        self.receive.take()
    }

    /// Returns a receive buffer.
    pub(super) fn give_received(&mut self, buffer: Buffer) {
        self.receive.give(buffer);
    }

    /// Number of receive buffers that can be taken.
    pub(super) fn left_to_receive(&self) -> usize {
        self.receive.available()
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
    pub(super) fn are_scarce(&self) -> bool {
        self.receive.in_use() - self.at_storage > PIECES_HELD_MAX
    }
}
