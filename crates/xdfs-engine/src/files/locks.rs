//! Locks of byte ranges, held by owners for as long as their lease goes on.
//!
//! Locks are kept by the identity of the file and not by any handle or session, so that they
//! outlast a session that breaks. All locks of an owner on a file have one lease, which every use
//! of the file by the owner renews. They are gone together when it runs out, except while a call is
//! carried out under them. Nothing here waits: who has to wait asks again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xdfs_proto::file::{FileIdentity, FileOwner, HeldLock, LockRange, LockSet};

use crate::environment::Environment;

/// Ranges that an owner may have locked of one file.
const RANGES_MAX: usize = 1024;
/// Ranges that may be locked in all.
const TOTAL_MAX: usize = 1 << 16;
/// Of a table that is half full, what one user may have of it.
const SHARE_MAX: usize = TOTAL_MAX / 16;

/// Who holds locks: an owner, as a user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) user: Arc<str>,
    pub(crate) owner: FileOwner,
}

/// Why a lock isn't given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Somebody else has this one.
    Held(HeldLock),
    /// There are too many.
    TooMany,
}

/// The locks of a server.
#[derive(Debug)]
pub(super) struct Locks {
    environment: Arc<dyn Environment>,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    files: HashMap<FileIdentity, Vec<Holder>>,
    /// Ranges in all.
    total: usize,
    holding: u64,
}

#[derive(Debug)]
struct Holder {
    key: Key,
    /// No other holder of this server has or had it.
    holding: u64,
    lease: Duration,
    until: Instant,
    /// Calls that are being carried out under its locks.
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
    /// The holders of a file, without those whose lease ran out.
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

    fn holder(&mut self, file: &FileIdentity, key: &Key, now: Instant) -> Option<&mut Holder> {
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

    /// Whether there is room for another range of this user.
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
    key: &Key,
    range: &LockRange,
    exclusive: bool,
) -> Option<HeldLock> {
    let mut others = holders.iter().filter(|holder| holder.key != *key);
    others.find_map(|holder| holder.ranges.in_the_way(range, exclusive))
}

impl Locks {
    /// No locks. Holders are numbered from `first` on, which should be drawn at random, so that one
    /// of an earlier run of the server isn't taken for one of this.
    pub(super) fn new(first: u64, environment: Arc<dyn Environment>) -> Self {
        Self {
            environment,
            table: Mutex::new(Table {
                files: HashMap::new(),
                total: 0,
                holding: first,
            }),
        }
    }

    fn lock_table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks bytes, and returns the number of the holder.
    pub(super) fn lock(
        &self,
        file: &FileIdentity,
        key: &Key,
        range: &LockRange,
        exclusive: bool,
        lease: Duration,
        now: Instant,
    ) -> Result<u64, Refusal> {
        let mut table = self.lock_table();
        if !table.has_room(&key.user, now) {
            return Err(Refusal::TooMany);
        }
        let new_number = table.holding;
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
            table.holding = table.holding.wrapping_add(1);
        }
        Ok(holding)
    }

    /// Gives up the locks of an owner on some bytes.
    pub(super) fn unlock(&self, file: &FileIdentity, key: &Key, range: &LockRange, now: Instant) {
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

    /// Gives up all locks of an owner on a file.
    pub(super) fn release(&self, file: &FileIdentity, key: &Key, now: Instant) {
        self.unlock(file, key, &LockRange::ALL, now);
    }

    /// What keeps a lock from being given.
    pub(super) fn in_the_way(
        &self,
        file: &FileIdentity,
        key: &Key,
        range: &LockRange,
        exclusive: bool,
        now: Instant,
    ) -> Option<HeldLock> {
        let mut table = self.lock_table();
        let found = in_the_way(table.holders(file, now), key, range, exclusive);
        table.forget_empty(file);
        found
    }

    /// Renews the lease, if the owner has one; returns the number of the holder.
    pub(super) fn renew(&self, file: &FileIdentity, key: &Key, now: Instant) -> Option<u64> {
        let mut table = self.lock_table();
        let holder = table.holder(file, key, now)?;
        holder.renew(now);
        Some(holder.holding)
    }

    /// Something is done under locks of the owner that cover all of `ranges`, which last until what
    /// is returned is dropped; `None` if it has no such locks.
    pub(super) fn begin(
        &self,
        file: &FileIdentity,
        key: &Key,
        ranges: &[LockRange],
        exclusive: bool,
        now: Instant,
    ) -> Option<Under<'_>> {
        let mut table = self.lock_table();
        let holder = table.holder(file, key, now)?;
        let covers = |range| holder.ranges.covers(range, exclusive);
        if !ranges.iter().all(covers) {
            return None;
        }
        holder.uses += 1;
        holder.renew(now);
        Some(Under {
            locks: self,
            file: *file,
            holding: holder.holding,
        })
    }
}

/// Locks under which something is done.
#[derive(Debug)]
pub(super) struct Under<'a> {
    locks: &'a Locks,
    file: FileIdentity,
    holding: u64,
}

impl Drop for Under<'_> {
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
