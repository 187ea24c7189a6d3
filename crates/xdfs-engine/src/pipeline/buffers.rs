//! The buffers of a session for payload, and their bounds.

use crate::pool::{Buffer, BufferPool};

/// Payload of a block in bytes, unless said otherwise. Each block ends in a segment that isn't
/// full, and loopback carries blocks of this size half again as fast as those of 256 KiB.
pub(crate) const BLOCK_BYTES: u32 = 2 << 20;
/// Size of a buffer that receives payload in bytes, and of what is read and hashed at once: with
/// its copy it fits the second level cache.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// Bytes of buffers for payload that a session may use to send.
pub(super) const SEND_POOL_BYTES: usize = 32 << 20;
/// The same to receive.
const RECEIVE_POOL_BYTES: usize = 16 << 20;
/// Buffers that channels may keep in the middle of a block; beyond it they pass on what they have.
const PIECES_HELD_MAX: usize = 32;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Buffers {
    send: BufferPool,
    receive: BufferPool,
    /// Buffers of `receive` that the storage side has.
    at_storage: usize,
}

impl Buffers {
    /// Those to receive alone: what is sent needs the size of a block.
    pub(super) fn new() -> Self {
        Self {
            send: BufferPool::new(0, 0),
            receive: BufferPool::new(PIECE_BYTES, RECEIVE_POOL_BYTES / PIECE_BYTES),
            at_storage: 0,
        }
    }

    /// Sets the size of a block, before the first one is sent.
    pub(super) fn set_block_size(&mut self, block_size: u32) {
        let size = block_size as usize;
        self.send = BufferPool::new(size, (SEND_POOL_BYTES / size).max(2));
    }

    /// A buffer of the size of a block; `None` if all are in use.
    pub(super) fn take_to_send(&mut self) -> Option<Buffer> {
        self.send.take()
    }

    /// Takes it back.
    pub(super) fn give_sent(&mut self, buffer: Buffer) {
        self.send.give(buffer);
    }

    /// A buffer of the size of a piece; `None` if all are in use.
    pub(super) fn take_to_receive(&mut self) -> Option<Buffer> {
        self.receive.take()
    }

    /// Takes it back.
    pub(super) fn give_received(&mut self, buffer: Buffer) {
        self.receive.give(buffer);
    }

    /// How many there are yet to receive.
    pub(super) fn left_to_receive(&self) -> usize {
        self.receive.available()
    }

    /// A buffer to receive goes to the storage side.
    pub(super) fn lend_to_storage(&mut self) {
        self.at_storage += 1;
    }

    /// The storage side is done with one.
    pub(super) fn give_stored(&mut self, buffer: Buffer) {
        self.at_storage = self.at_storage.saturating_sub(1);
        self.receive.give(buffer);
    }

    /// Whether the storage side will give one back.
    pub(super) fn are_at_storage(&self) -> bool {
        self.at_storage > 0
    }

    /// Whether none is out but those of the storage side.
    pub(super) fn are_back(&self) -> bool {
        self.send.in_use() == 0 && self.receive.in_use() == self.at_storage
    }

    /// Whether channels keep so many that they have to pass on what they hold.
    pub(super) fn are_scarce(&self) -> bool {
        self.receive.in_use() - self.at_storage > PIECES_HELD_MAX
    }
}
