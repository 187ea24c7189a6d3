//! Locks, and the writes dropped when a lock is lost.

use std::time::{Duration, Instant};

use xdfs_proto::file::{Extent, FileAnswer, FileCall, LockRange, LockSet};
use xdfs_proto::path::Answer;
use xdfs_proto::range::RangeSet;
use xdfs_proto::{ByteRange, Code, Fault};

use super::{OpenFile, asks_for_retry, unexpected};

/// Ranges listed in an error.
const RANGES_SHOWN: usize = 8;

impl OpenFile {
    /// Locks a range; `false` if a conflicting lock is still held after `wait`.
    pub(in crate::files) fn lock(
        &mut self,
        range: LockRange,
        exclusive: bool,
        lease_s: u32,
        wait: Duration,
    ) -> Result<bool, Fault> {
        self.drain()?;
        // Reads under the lock must be fresh.
        self.ahead.forget();
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
            let answer = self.call(&|own| FileCall::Lock {
                handle: own.handle,
                range,
                exclusive,
                lease_s,
                wait_ms: left.min(xdfs_proto::file::WAIT_MS_MAX),
            });
            match answer {
                Err(fault) if asks_for_retry(&fault) => {
                    if Instant::now() >= deadline {
                        return Ok(false);
                    }
                }
                Ok(Answer::File(FileAnswer::Held { holding })) => {
                    let had = !self.locks.is_empty();
                    let before = std::mem::replace(&mut self.holding, holding);
                    if had && before != holding {
                        // The earlier locks are lost. Release all rather than keep some.
                        self.lose_locks();
                        self.call(&|own| FileCall::Unlock {
                            handle: own.handle,
                            range: LockRange::ALL,
                        })?;
                        let cause = "earlier locks have been lost";
                        let fault = Fault::new(Code::LockLost, "lock", cause);
                        return Err(fault.path(&self.path));
                    }
                    self.locks.put(&range, exclusive);
                    return Ok(true);
                }
                Ok(_) => return Err(unexpected("lock")),
                Err(fault) => return Err(fault),
            }
        }
    }

    pub(in crate::files) fn unlock(&mut self, range: LockRange) -> Result<(), Fault> {
        self.drain()?;
        self.call(&|own| FileCall::Unlock {
            handle: own.handle,
            range,
        })?;
        self.locks.cut(&range);
        Ok(())
    }

    pub(in crate::files) fn test_lock(
        &mut self,
        range: LockRange,
        exclusive: bool,
    ) -> Result<Option<xdfs_proto::file::HeldLock>, Fault> {
        self.check()?;
        let answer = self.call(&|own| FileCall::TestLock {
            handle: own.handle,
            range,
            exclusive,
        })?;
        match answer {
            Answer::File(FileAnswer::InTheWay(held)) => Ok(held),
            _ => Err(unexpected("test a lock")),
        }
    }

    pub(in crate::files) fn renew(&mut self) -> Result<(), Fault> {
        self.check()?;
        self.call(&|own| FileCall::Renew {
            handle: own.handle,
            holding: own.holding,
        })?;
        // Recovery may have revealed a lost lock.
        self.check()
    }

    /// Whether an operation on this range is done under the held locks.
    pub(super) fn is_locked(&self, offset: u64, length: Option<u64>, exclusive: bool) -> bool {
        let range = LockRange { offset, length };
        self.locks.covers(&range, exclusive)
    }

    /// Handles a lost lock in an answer that is returned directly.
    pub(super) fn note_lock_loss(
        &mut self,
        result: Result<Answer, Fault>,
    ) -> Result<Answer, Fault> {
        result.map_err(|fault| {
            if fault.code != Code::LockLost {
                return fault;
            }
            self.lose_locks();
            self.with_unwritten(fault)
        })
    }

    /// Adds a hint about ranges not written because of a lost lock.
    pub(super) fn with_unwritten(&mut self, fault: Fault) -> Fault {
        match unwritten_hint(&std::mem::take(&mut self.unwritten)) {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }

    /// Drops all locks. Buffered writes under them must not be sent without them.
    pub(super) fn lose_locks(&mut self) {
        if let Some(extent) = self.behind.take_gathered_locked() {
            self.note_unwritten(&[extent]);
        }
        self.locks = LockSet::default();
    }

    /// Records extents not written because of a lost lock.
    pub(super) fn note_unwritten(&mut self, extents: &[Extent]) {
        let range = |e: &Extent| ByteRange::at(e.offset, u64::from(e.length));
        for range in extents.iter().filter_map(range) {
            self.unwritten.insert(range);
        }
    }
}

/// The hint about unwritten bytes; `None` if there are none.
fn unwritten_hint(unwritten: &RangeSet) -> Option<String> {
    let ranges = unwritten.as_slice();
    let some = ranges.iter().take(RANGES_SHOWN);
    let some: Vec<String> = some
        .map(|r| format!("{} to {}", r.start, r.end - 1))
        .collect();
    let more = ranges.len().saturating_sub(some.len());
    let more = match more {
        0 => String::new(),
        _ => format!(" and {more} more ranges"),
    };
    let list = some.join(", ");
    (!ranges.is_empty())
        .then(|| format!("writes to bytes {list}{more} under the lock may be missing: lock again"))
}
