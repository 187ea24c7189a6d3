//! Write-behind: buffered and unanswered writes.

use std::collections::VecDeque;
use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_proto::file::{DATA_BYTES_MAX, Extent};

use crate::paths::PendingCall;

/// Most unanswered bytes.
const BYTES_MAX: usize = 2 << 20;
/// Most unanswered writes.
const WRITES_MAX: usize = 64;

/// A sent write.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) extents: Vec<Extent>,
    pub(super) bytes: Arc<Vec<u8>>,
    /// It must be done under a lock.
    pub(super) locked: bool,
    pub(super) call: Result<PendingCall, Fault>,
}

/// Buffered and unanswered writes.
#[derive(Debug, Default)]
pub(super) struct WriteBehind {
    sent: VecDeque<Sent>,
    bytes: usize,
    /// Contiguous small writes that aren't sent yet, and their offset.
    gathered: Vec<u8>,
    at: u64,
    /// All of them must be done under a lock.
    locked: bool,
}

fn meet(extent: &Extent, offset: u64, length: u64) -> bool {
    let end = extent.offset.saturating_add(u64::from(extent.length));
    extent.offset < offset.saturating_add(length) && offset < end
}

impl WriteBehind {
    /// Buffers a write with those before it, if it continues them, fits, and needs a lock exactly
    /// if they do. Buffers all of `bytes` or nothing.
    pub(super) fn gather(&mut self, offset: u64, bytes: &[u8], locked: bool) -> bool {
        let end = self.at.saturating_add(self.gathered.len() as u64);
        let follows = end == offset && self.locked == locked;
        let fits = self.gathered.len() + bytes.len() <= DATA_BYTES_MAX;
        if self.gathered.is_empty() {
            self.at = offset;
            self.locked = locked;
        } else if !follows {
            return false;
        }
        if fits {
            self.gathered.extend_from_slice(bytes);
        }
        fits
    }

    /// Takes the buffered bytes to send them, and whether they need a lock.
    pub(super) fn take_gathered(&mut self) -> Option<(Extent, Vec<u8>, bool)> {
        let extent = self.gathered()?;
        let bytes = std::mem::take(&mut self.gathered);
        Some((extent, bytes, self.locked))
    }

    /// Discards buffered bytes that need a lock, and returns their extent.
    pub(super) fn take_gathered_locked(&mut self) -> Option<Extent> {
        let extent = self.gathered().filter(|_| self.locked)?;
        self.gathered.clear();
        Some(extent)
    }

    /// Whether the buffered bytes fill a block, and should be sent.
    pub(super) fn is_block_full(&self) -> bool {
        self.gathered.len() >= DATA_BYTES_MAX
    }

    pub(super) fn push(&mut self, sent: Sent) {
        self.bytes += sent.bytes.len();
        self.sent.push_back(sent);
    }

    /// Takes the oldest write, to wait for it.
    pub(super) fn pop(&mut self) -> Option<Sent> {
        let sent = self.sent.pop_front()?;
        self.bytes -= sent.bytes.len();
        Some(sent)
    }

    /// Puts back the oldest write, which wasn't answered.
    pub(super) fn push_front(&mut self, sent: Sent) {
        self.bytes += sent.bytes.len();
        self.sent.push_front(sent);
    }

    /// The extent of the buffered bytes, if there are any.
    fn gathered(&self) -> Option<Extent> {
        (!self.gathered.is_empty()).then_some(Extent {
            offset: self.at,
            length: u32::try_from(self.gathered.len()).unwrap_or(u32::MAX),
        })
    }

    /// Takes the sent writes that need a lock.
    pub(super) fn take_locked(&mut self) -> Vec<Sent> {
        let sent = std::mem::take(&mut self.sent);
        let (locked, others): (Vec<_>, Vec<_>) = sent.into_iter().partition(|sent| sent.locked);
        self.sent = others.into();
        self.bytes -= locked.iter().map(|sent| sent.bytes.len()).sum::<usize>();
        locked
    }

    pub(super) fn sent_mut(&mut self) -> impl Iterator<Item = &mut Sent> {
        self.sent.iter_mut()
    }

    /// Whether further writes have to wait.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX || self.sent.len() >= WRITES_MAX
    }

    /// Whether a buffered or unanswered write overlaps this range.
    pub(super) fn overlaps(&self, offset: u64, length: u64) -> bool {
        let extents = self.sent.iter().flat_map(|sent| &sent.extents);
        extents.into_iter().any(|e| meet(e, offset, length)) || self.gathers(offset, length)
    }

    /// Whether the buffered bytes overlap this range.
    pub(super) fn gathers(&self, offset: u64, length: u64) -> bool {
        self.gathered()
            .is_some_and(|gathered| meet(&gathered, offset, length))
    }

    /// Whether nothing is buffered or unanswered.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.gathered.is_empty()
    }

    /// Discards all writes, and returns their number of bytes.
    pub(super) fn give_up(&mut self) -> usize {
        let lost = self.bytes + self.gathered.len();
        *self = Self::default();
        lost
    }
}
