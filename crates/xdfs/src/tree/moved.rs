//! Sums over the entries that were moved, or would be: their owners and the storage they need.

use std::collections::HashMap;

use super::item::Item;

/// Most different owners of a tree that are counted one by one.
const OWNERS_MAX: usize = 4096;

/// Entries that were moved, counted by owner and group at the source.
#[derive(Debug, Default)]
pub(super) struct MovedOwners {
    pub(super) counts: HashMap<(u32, u32), Count>,
    /// The entries of further owners.
    pub(super) rest: Count,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) entries: u64,
    /// The files among them with set-user-id or set-group-id.
    pub(super) set_id: u64,
}

impl MovedOwners {
    /// Counts an entry whose owner is to be kept.
    pub(super) fn add(&mut self, item: &Item) {
        let Some(owner) = item.owner else { return };
        let has_room = self.counts.len() < OWNERS_MAX;
        let count = match self.counts.get_mut(&owner) {
            Some(count) => count,
            None if has_room => self.counts.entry(owner).or_default(),
            None => &mut self.rest,
        };
        count.entries += 1;
        count.set_id += u64::from(item.has_set_id);
    }
}

/// The storage that files need at the target, in bytes.
#[derive(Debug, Default)]
pub(super) struct NeededSpace {
    /// All of them, without what they replace.
    total: u64,
    /// The bytes that they replace.
    replaced: u64,
    /// The largest of them: it is complete before it replaces anything.
    largest: u64,
}

impl NeededSpace {
    /// Adds a file.
    pub(super) fn add(&mut self, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        self.largest = self.largest.max(bytes);
    }

    /// Adds bytes that a file replaces.
    pub(super) fn replace(&mut self, bytes: u64) {
        self.replaced = self.replaced.saturating_add(bytes);
    }

    /// The most that is needed at a time. How much will be replaced of what is
    /// `unseen` at the target is unknown.
    pub(super) fn most(&self, unseen: bool) -> u64 {
        match unseen {
            true => self.largest,
            false => self.largest.max(self.total.saturating_sub(self.replaced)),
        }
    }
}
