//! Locks, and what is given up with one that is lost.

use std::time::{Duration, Instant};

use xdfs_proto::file::{Extent, FileAnswer, FileCall, LockRange, LockSet};
use xdfs_proto::path::Answer;
use xdfs_proto::range::RangeSet;
use xdfs_proto::{ByteRange, Code, Fault};

use super::{OpenFile, is_to_be_asked_again, unexpected};

/// Places of writes that an error names.
const RANGES_TOLD: usize = 8;

impl OpenFile {
    /// Locks bytes; `false` if somebody else has them for longer than `wait`.
    pub(in crate::files) fn lock(
        &mut self,
        range: LockRange,
        exclusive: bool,
        lease_s: u32,
        wait: Duration,
    ) -> Result<bool, Fault> {
        self.drain()?;
        // What is read under the lock is read anew.
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
                Err(fault) if is_to_be_asked_again(&fault) => {
                    if Instant::now() >= deadline {
                        return Ok(false);
                    }
                }
                Ok(Answer::File(FileAnswer::Held { holding })) => {
                    let had = !self.locks.is_empty();
                    let before = std::mem::replace(&mut self.holding, holding);
                    if had && before != holding {
                        // Those of before are gone. Nobody is to believe in half of them.
                        self.lose_locks();
                        self.call(&|own| FileCall::Unlock {
                            handle: own.handle,
                            range: LockRange::ALL,
                        })?;
                        let cause = "locks that were held before are held no more";
                        let fault = Fault::new(Code::LockLost, "lock a file", cause);
                        return Err(fault.path(&self.path));
                    }
                    self.locks.put(&range, exclusive);
                    return Ok(true);
                }
                Ok(_) => return Err(unexpected("lock a file")),
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
            _ => Err(unexpected("look for locks")),
        }
    }

    pub(in crate::files) fn renew(&mut self) -> Result<(), Fault> {
        self.check()?;
        self.call(&|own| FileCall::Renew {
            handle: own.handle,
            holding: own.holding,
        })?;
        // A lock that was lost with a session shows there.
        self.check()
    }

    /// Whether something is to be done under the locks that are held.
    pub(super) fn is_locked(&self, offset: u64, length: Option<u64>, exclusive: bool) -> bool {
        let range = LockRange { offset, length };
        self.locks.covers(&range, exclusive)
    }

    /// Notes what an answer says of the locks that is told at once.
    pub(super) fn heard(&mut self, result: Result<Answer, Fault>) -> Result<Answer, Fault> {
        result.map_err(|fault| {
            if fault.code != Code::LockLost {
                return fault;
            }
            self.lose_locks();
            self.with_unwritten(fault)
        })
    }

    /// Tells of what isn't written because of a lock that was lost.
    pub(super) fn with_unwritten(&mut self, fault: Fault) -> Fault {
        match told(&std::mem::take(&mut self.unwritten)) {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }

    /// The locks aren't held any more. What was gathered to be written under them must not be sent
    /// without them.
    pub(super) fn lose_locks(&mut self) {
        if let Some(extent) = self.behind.take_gathered_locked() {
            self.miss(&[extent]);
        }
        self.locks = LockSet::default();
    }

    /// Notes what isn't written because of a lock that was lost.
    pub(super) fn miss(&mut self, extents: &[Extent]) {
        let range = |e: &Extent| ByteRange::at(e.offset, u64::from(e.length));
        for range in extents.iter().filter_map(range) {
            self.unwritten.insert(range);
        }
    }
}

/// What the user is told of bytes that weren't written; `None` if there are none.
fn told(unwritten: &RangeSet) -> Option<String> {
    let ranges = unwritten.as_slice();
    let some = ranges.iter().take(RANGES_TOLD);
    let some: Vec<String> = some
        .map(|r| format!("{} to {}", r.start, r.end - 1))
        .collect();
    let more = ranges.len().saturating_sub(some.len());
    let more = match more {
        0 => String::new(),
        _ => format!(" and {more} more places"),
    };
    let list = some.join(", ");
    (!ranges.is_empty()).then(|| {
        format!("what was written to bytes {list}{more} under the lock may be missing: lock again")
    })
}
