//! Reading ahead: blocks that were asked for before they are needed.

use std::collections::VecDeque;
use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_proto::file::DATA_BYTES_MAX;

use crate::paths::PendingCall;

/// Bytes that are asked for at once.
pub(super) const BLOCK_BYTES: usize = DATA_BYTES_MAX;
/// Blocks that are asked for ahead: at first, and at most.
const WINDOW_MIN: usize = 2;
const WINDOW_MAX: usize = 32;

/// A block that was asked for.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) offset: u64,
    pub(super) call: Result<PendingCall, Fault>,
}

/// What was read and asked for ahead of the position.
#[derive(Debug)]
pub(super) struct ReadAhead {
    /// In order, without gaps.
    blocks: VecDeque<Block>,
    /// What came of the block before them: where its first byte belongs.
    here: Option<(u64, Arc<Vec<u8>>)>,
    /// Where reading went on if it were to go on without a jump.
    expected: u64,
    window: usize,
}

impl ReadAhead {
    pub(super) fn new() -> Self {
        Self {
            blocks: VecDeque::new(),
            here: None,
            expected: 0,
            window: WINDOW_MIN,
        }
    }

    /// Forgets what was read and asked for.
    pub(super) fn forget(&mut self) {
        self.blocks.clear();
        self.here = None;
        self.window = WINDOW_MIN;
    }

    /// Forgets what a write of these bytes changes: also where the file ends, which blocks that
    /// begin before the end of the write may have found.
    pub(super) fn forget_range(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let meets = |(at, bytes): &(u64, Arc<Vec<u8>>)| {
            *at < end && offset < at.saturating_add(bytes.len() as u64)
        };
        let is_before_end = |block: &Block| block.offset < end;
        if self.here.as_ref().is_some_and(meets) || self.blocks.iter().any(is_before_end) {
            self.forget();
        }
    }

    /// Copies what is here from `position` on; 0 if that isn't here.
    pub(super) fn copy(&mut self, position: u64, buf: &mut [u8]) -> usize {
        let Some((at, bytes)) = &self.here else {
            return 0;
        };
        let from = position.checked_sub(*at).map(usize::try_from);
        let Some(Ok(from)) = from else { return 0 };
        let rest = bytes.get(from..).unwrap_or(&[]);
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        if count > 0 {
            self.expected = position + count as u64;
        }
        count
    }

    /// Whether reading at `position` goes on without a jump.
    pub(super) fn is_sequential(&self, position: u64) -> bool {
        position == self.expected
    }

    /// Something was read elsewhere, up to `position`.
    pub(super) fn jumped(&mut self, position: u64) {
        self.forget();
        self.expected = position;
    }

    /// Forgets blocks that aren't those from `position` on.
    pub(super) fn align(&mut self, position: u64) {
        if self.blocks.front().is_some_and(|b| b.offset != position) {
            self.forget();
        }
    }

    /// Where the next block begins that is to be asked for, if one is.
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

    /// A block came.
    pub(super) fn came(&mut self, offset: u64, bytes: Arc<Vec<u8>>) {
        if bytes.len() < BLOCK_BYTES {
            // The end. What grows there later isn't known by what was asked for before.
            self.forget();
        } else {
            self.window = (self.window * 2).min(WINDOW_MAX);
        }
        self.here = Some((offset, bytes));
    }
}
