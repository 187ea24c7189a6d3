//! Byte-range locks, held by owners under leases.
//!
//! Locks belong to a file's identity, not to a handle or session, so they survive a broken session.
//! All locks of an owner on a file share one lease, which each use of the file by the owner renews.
//! They expire together with it, though never during a call that relies on them. Nothing here
//! blocks: a caller retries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xdfs_proto::file::{FileIdentity, FileOwner, HeldLock, LockRange, LockSet};

use crate::environment::Environment;

/// Maximum number of locked ranges per owner and file.
const RANGES_MAX: usize = 1024;
/// Maximum number of locked ranges in total.
const TOTAL_MAX: usize = 1 << 16;
/// Maximum number of ranges per user once the table is half full.
const SHARE_MAX: usize = TOTAL_MAX / 16;

/// A holder of locks: an owner of a user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnerKey {
    pub(crate) user: Arc<str>,
    pub(crate) owner: FileOwner,
}

/// Why a lock is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another owner holds this conflicting lock.
    Held(HeldLock),
    /// A limit on the number of locks is reached.
    TooMany,
}

/// All locks of a server.
#[derive(Debug)]
pub(super) struct Locks {
    environment: Arc<dyn Environment>,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    files: HashMap<FileIdentity, Vec<Holder>>,
    /// Total number of locked ranges.
    total: usize,
    next_holding: u64,
}

#[derive(Debug)]
struct Holder {
    key: OwnerKey,
    /// Number of the holder, unique on this server.
    holding: u64,
    lease: Duration,
    until: Instant,
    /// Running calls that rely on the locks.
    uses: u32,
    ranges: LockSet,
}

impl Holder {
    fn is_alive(&self, now: Instant) -> bool {
        self.uses > 0 || now < self.until
    }

    fn renew(&mut self, now: Instant) {
        self.until = self.until.max(now + self.lease);
    }
}

impl Table {
    /// The holders of a file whose leases have not expired.
    fn holders(&mut self, file: &FileIdentity, now: Instant) -> &mut Vec<Holder> {
        let holders = self.files.entry(*file).or_default();
        let total = &mut self.total;
        holders.retain(|holder| {
            let is_alive = holder.is_alive(now);
            if !is_alive {
                *total -= holder.ranges.len();
            }
            is_alive
        });
        holders
    }

    fn holder(&mut self, file: &FileIdentity, key: &OwnerKey, now: Instant) -> Option<&mut Holder> {
        if !self.files.contains_key(file) {
            return None;
        }
        let holders = self.holders(file, now);
        holders.iter_mut().find(|holder| holder.key == *key)
    }

    fn forget_empty(&mut self, file: &FileIdentity) {
        if self.files.get(file).is_some_and(Vec::is_empty) {
            self.files.remove(file);
        }
    }

    /// Whether this user may lock another range.
    fn has_room(&mut self, user: &Arc<str>, now: Instant) -> bool {
        if self.total < TOTAL_MAX / 2 {
            return true;
        }
        let files: Vec<FileIdentity> = self.files.keys().copied().collect();
        for file in files {
            self.holders(&file, now);
            self.forget_empty(&file);
        }
        let all = self.files.values().flatten();
        let of_user = all.filter(|holder| holder.key.user == *user);
        let share: usize = of_user.map(|holder| holder.ranges.len()).sum();
        self.total < TOTAL_MAX / 2 || self.total < TOTAL_MAX && share < SHARE_MAX
    }
}

fn in_the_way(
    holders: &[Holder],
    key: &OwnerKey,
    range: &LockRange,
    exclusive: bool,
) -> Option<HeldLock> {
    let mut others = holders.iter().filter(|holder| holder.key != *key);
    others.find_map(|holder| holder.ranges.in_the_way(range, exclusive))
}

impl Locks {
    /// An empty table. Holders are numbered from `first` on, which should be random so that the
    /// numbers differ from those of earlier runs of the server.
    pub(super) fn new(first: u64, environment: Arc<dyn Environment>) -> Self {
        Self {
            environment,
            table: Mutex::new(Table {
                files: HashMap::new(),
                total: 0,
                next_holding: first,
            }),
        }
    }

    fn lock_table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks a range, and returns the number of the holder.
    pub(super) fn lock(
        &self,
        file: &FileIdentity,
        key: &OwnerKey,
        range: &LockRange,
        exclusive: bool,
        lease: Duration,
        now: Instant,
    ) -> Result<u64, Refusal> {
        let mut table = self.lock_table();
        if !table.has_room(&key.user, now) {
            return Err(Refusal::TooMany);
        }
        let new_number = table.next_holding;
        let holders = table.holders(file, now);
        if let Some(held) = in_the_way(holders, key, range, exclusive) {
            return Err(Refusal::Held(held));
        }
        let found = holders.iter().position(|holder| holder.key == *key);
        let at = found.unwrap_or_else(|| {
            holders.push(Holder {
                key: key.clone(),
                holding: new_number,
                lease,
                until: now,
                uses: 0,
                ranges: LockSet::default(),
            });
            holders.len() - 1
        });
        let holder = &mut holders[at];
        let before = holder.ranges.len();
        if before >= RANGES_MAX {
            return Err(Refusal::TooMany);
        }
        holder.ranges.put(range, exclusive);
        holder.lease = lease;
        holder.until = now + lease;
        let (holding, after) = (holder.holding, holder.ranges.len());
        table.total = table.total + after - before;
        if found.is_none() {
            table.next_holding = table.next_holding.wrapping_add(1);
        }
        Ok(holding)
    }

    /// Releases an owner's locks on a range.
    pub(super) fn unlock(
        &self,
        file: &FileIdentity,
        key: &OwnerKey,
        range: &LockRange,
        now: Instant,
    ) {
        let mut table = self.lock_table();
        let Some(holder) = table.holder(file, key, now) else {
            return;
        };
        let before = holder.ranges.len();
        holder.ranges.cut(range);
        holder.renew(now);
        let after = holder.ranges.len();
        table.total = table.total + after - before;
        let holders = table.holders(file, now);
        holders.retain(|holder| !holder.ranges.is_empty() || holder.uses > 0);
        table.forget_empty(file);
    }

    /// Releases all locks of an owner on a file.
    pub(super) fn release(&self, file: &FileIdentity, key: &OwnerKey, now: Instant) {
        self.unlock(file, key, &LockRange::ALL, now);
    }

    /// Another owner's lock that conflicts with the requested one.
    pub(super) fn in_the_way(
        &self,
        file: &FileIdentity,
        key: &OwnerKey,
        range: &LockRange,
        exclusive: bool,
        now: Instant,
    ) -> Option<HeldLock> {
        let mut table = self.lock_table();
        let found = in_the_way(table.holders(file, now), key, range, exclusive);
        table.forget_empty(file);
        found
    }

    /// Renews the owner's lease, if there is one, and returns the number of the holder.
    pub(super) fn renew(&self, file: &FileIdentity, key: &OwnerKey, now: Instant) -> Option<u64> {
        let mut table = self.lock_table();
        let holder = table.holder(file, key, now)?;
        holder.renew(now);
        Some(holder.holding)
    }

    /// Begins a call that relies on the owner's locks on all of `ranges`. The locks do not expire
    /// until the returned guard is dropped. `None` if the owner does not hold them.
    pub(super) fn begin(
        &self,
        file: &FileIdentity,
        key: &OwnerKey,
        ranges: &[LockRange],
        exclusive: bool,
        now: Instant,
    ) -> Option<LocksInUse<'_>> {
        let mut table = self.lock_table();
        let holder = table.holder(file, key, now)?;
        let covers = |range| holder.ranges.covers(range, exclusive);
        if !ranges.iter().all(covers) {
            return None;
        }
        holder.uses += 1;
        holder.renew(now);
        Some(LocksInUse {
            locks: self,
            file: *file,
            holding: holder.holding,
        })
    }
}

/// Guard of a call that relies on locks.
#[derive(Debug)]
pub(super) struct LocksInUse<'a> {
    locks: &'a Locks,
    file: FileIdentity,
    holding: u64,
}

impl Drop for LocksInUse<'_> {
    fn drop(&mut self) {
        let now = self.locks.environment.now();
        let mut table = self.locks.lock_table();
        let holders = table.files.get_mut(&self.file);
        let mut holders = holders.into_iter().flatten();
        if let Some(holder) = holders.find(|holder| holder.holding == self.holding) {
            holder.uses = holder.uses.saturating_sub(1);
            holder.renew(now);
        }
    }
}

#[cfg(test)]
mod tests;
