//! Writing behind: writes that were taken and aren't answered yet.

use std::collections::VecDeque;
use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_proto::file::{DATA_BYTES_MAX, Extent};

use crate::paths::PendingCall;

/// Bytes that may be unanswered.
const BYTES_MAX: usize = 2 << 20;
/// Writes that may be unanswered.
const WRITES_MAX: usize = 64;

/// A write that was sent.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) extents: Vec<Extent>,
    pub(super) bytes: Arc<Vec<u8>>,
    /// It has to be done under a lock.
    pub(super) locked: bool,
    pub(super) call: Result<PendingCall, Fault>,
}

/// What was taken and not answered.
#[derive(Debug, Default)]
pub(super) struct WriteBehind {
    sent: VecDeque<Sent>,
    bytes: usize,
    /// Small writes one after the other that aren't sent yet, and where the first belongs.
    gathered: Vec<u8>,
    at: u64,
    /// They have to be written under a lock, all of them.
    locked: bool,
}

fn meet(extent: &Extent, offset: u64, length: u64) -> bool {
    let end = extent.offset.saturating_add(u64::from(extent.length));
    extent.offset < offset.saturating_add(length) && offset < end
}

impl WriteBehind {
    /// Takes a write together with those before it, if it follows them, there is room, and either
    /// all have to be done under a lock or none. All of `bytes` or nothing.
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

    /// What was gathered and is to be sent now, and whether under a lock.
    pub(super) fn take_gathered(&mut self) -> Option<(Extent, Vec<u8>, bool)> {
        let extent = self.gathered()?;
        let bytes = std::mem::take(&mut self.gathered);
        Some((extent, bytes, self.locked))
    }

    /// Takes out what was gathered to be written under a lock, and tells where it belongs.
    pub(super) fn take_gathered_locked(&mut self) -> Option<Extent> {
        let extent = self.gathered().filter(|_| self.locked)?;
        self.gathered.clear();
        Some(extent)
    }

    /// Whether something was gathered that is to be sent without waiting for more.
    pub(super) fn is_block_full(&self) -> bool {
        self.gathered.len() >= DATA_BYTES_MAX
    }

    pub(super) fn push(&mut self, sent: Sent) {
        self.bytes += sent.bytes.len();
        self.sent.push_back(sent);
    }

    /// The oldest, to wait for it. It belongs to who took it.
    pub(super) fn pop(&mut self) -> Option<Sent> {
        let sent = self.sent.pop_front()?;
        self.bytes -= sent.bytes.len();
        Some(sent)
    }

    /// The oldest comes back: it was not answered.
    pub(super) fn push_front(&mut self, sent: Sent) {
        self.bytes += sent.bytes.len();
        self.sent.push_front(sent);
    }

    /// Where the bytes belong that were gathered, if there are some.
    fn gathered(&self) -> Option<Extent> {
        (!self.gathered.is_empty()).then_some(Extent {
            offset: self.at,
            length: u32::try_from(self.gathered.len()).unwrap_or(u32::MAX),
        })
    }

    /// Takes out the writes that have to be done under a lock.
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

    /// Whether there is no room for another one.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX || self.sent.len() >= WRITES_MAX
    }

    /// Whether a write of these bytes is unanswered.
    pub(super) fn overlaps(&self, offset: u64, length: u64) -> bool {
        let extents = self.sent.iter().flat_map(|sent| &sent.extents);
        extents.into_iter().any(|e| meet(e, offset, length)) || self.gathers(offset, length)
    }

    /// Whether bytes of these are gathered.
    pub(super) fn gathers(&self, offset: u64, length: u64) -> bool {
        self.gathered()
            .is_some_and(|gathered| meet(&gathered, offset, length))
    }

    /// Whether everything is answered.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.gathered.is_empty()
    }

    /// Forgets what isn't answered, and returns how many bytes that were.
    pub(super) fn give_up(&mut self) -> usize {
        let lost = self.bytes + self.gathered.len();
        *self = Self::default();
        lost
    }
}
