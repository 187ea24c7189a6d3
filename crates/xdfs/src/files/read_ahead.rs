//! Read-ahead: blocks requested before they are needed.

use std::collections::VecDeque;
use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_proto::file::DATA_BYTES_MAX;

use super::FileBytes;
use crate::paths::PendingCall;

/// Bytes per request.
pub(super) const BLOCK_BYTES: usize = DATA_BYTES_MAX;
/// Blocks requested ahead: initially, and at most.
const WINDOW_MIN: usize = 2;
const WINDOW_MAX: usize = 32;

/// A requested block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) offset: u64,
    pub(super) call: Result<PendingCall, Fault>,
}

/// Blocks received and requested ahead of the position.
#[derive(Debug)]
pub(super) struct ReadAhead {
    /// Requested blocks, contiguous and in order.
    blocks: VecDeque<Block>,
    /// The received block before them, with its offset.
    received: Option<(u64, Arc<Vec<u8>>)>,
    /// The offset of the next sequential read.
    expected: u64,
    window: usize,
}

impl ReadAhead {
    pub(super) fn new() -> Self {
        Self {
            blocks: VecDeque::new(),
            received: None,
            expected: 0,
            window: WINDOW_MIN,
        }
    }

    /// Discards all blocks.
    pub(super) fn forget(&mut self) {
        self.blocks.clear();
        self.received = None;
        self.window = WINDOW_MIN;
    }

    /// Discards blocks that a write to this range may have changed. A write also moves the end of
    /// the file, which any requested block that starts before the end of the range may have seen.
    pub(super) fn forget_range(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let meets = |(at, bytes): &(u64, Arc<Vec<u8>>)| {
            *at < end && offset < at.saturating_add(bytes.len() as u64)
        };
        let is_before_end = |block: &Block| block.offset < end;
        if self.received.as_ref().is_some_and(meets) || self.blocks.iter().any(is_before_end) {
            self.forget();
        }
    }

    /// Received bytes at `position`, at most so many; none if there are none.
    pub(super) fn share(&mut self, position: u64, most: usize) -> FileBytes {
        let Some((at, bytes)) = &self.received else {
            return FileBytes::default();
        };
        let from = position.checked_sub(*at).map(usize::try_from);
        let Some(Ok(from)) = from else {
            return FileBytes::default();
        };
        let shared = FileBytes::of(bytes, from, most);
        if !shared.is_empty() {
            self.expected = position + shared.len() as u64;
        }
        shared
    }

    /// Copies received bytes at `position`, and returns their number; 0 if there are none.
    pub(super) fn copy(&mut self, position: u64, buf: &mut [u8]) -> usize {
        let shared = self.share(position, buf.len());
        buf[..shared.len()].copy_from_slice(&shared);
        shared.len()
    }

    /// Whether a read at `position` is sequential.
    pub(super) fn is_sequential(&self, position: u64) -> bool {
        position == self.expected
    }

    /// Records a read elsewhere, up to `position`.
    pub(super) fn jumped(&mut self, position: u64) {
        self.forget();
        self.expected = position;
    }

    /// Discards the requested blocks unless they start at `position`.
    pub(super) fn align(&mut self, position: u64) {
        if self.blocks.front().is_some_and(|b| b.offset != position) {
            self.forget();
        }
    }

    /// The offset of the next block to request, if there is room in the window.
    pub(super) fn wanted(&self, position: u64) -> Option<u64> {
        if self.blocks.len() >= self.window {
            return None;
        }
        match self.blocks.back() {
            None => Some(position),
            Some(last) => last.offset.checked_add(BLOCK_BYTES as u64),
        }
    }

    pub(super) fn push(&mut self, block: Block) {
        self.blocks.push_back(block);
    }

    pub(super) fn pop(&mut self) -> Option<Block> {
        self.blocks.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds a received block.
    pub(super) fn add_received(&mut self, offset: u64, bytes: Arc<Vec<u8>>) {
        if bytes.len() < BLOCK_BYTES {
            // The end of the file. Later blocks were requested before the file may grow.
            self.forget();
        } else {
            self.window = (self.window * 2).min(WINDOW_MAX);
        }
        self.received = Some((offset, bytes));
    }
}
