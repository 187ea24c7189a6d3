//! The memory for payload that all sessions of a server share, so that it does not grow with their
//! number.
//!
//! Whoever allocates a buffer takes its bytes from the budget, and they return to it with the
//! buffer. A buffer that is used again costs nothing. A session has an [`Account`] for each purpose
//! of its buffers. Some bytes an account may hold in any case, so that its session goes on; more
//! only as long as it holds no more than is left for all others. So no account gets more than half
//! of the budget, many get equal shares of it, and slow peers do not keep it from the others.
//!
//! Nobody is woken when bytes return: sessions that wait ask again after a few milliseconds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A block of a new session takes at most this part of what is left.
const BLOCKS: usize = 64;
/// The smallest bound on blocks, in bytes: smaller ones than a piece save nothing.
const BLOCK_BYTES_LEAST: usize = 256 << 10;
/// The interval between two messages that the budget is used up.
const TELL_INTERVAL: Duration = Duration::from_secs(60);

/// The payload buffers of all sessions of a server.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes_max: usize,
    used: AtomicUsize,
    /// When it was last told that the budget is used up.
    told_at: Mutex<Option<Instant>>,
}

impl MemoryBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            used: AtomicUsize::new(0),
            told_at: Mutex::default(),
        })
    }

    /// The most bytes that sessions may hold beside the few of each.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// A budget that is never used up.
    pub(crate) fn unbounded() -> Arc<Self> {
        Self::new(usize::MAX)
    }

    /// Largest size of the blocks of a new session, in bytes: it may hold a few of them in any
    /// case.
    pub(crate) fn block_bytes_max(&self) -> u32 {
        let left = self.bytes_max.saturating_sub(self.used());
        let most = (left / BLOCKS).max(BLOCK_BYTES_LEAST);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Says in the log that transfers wait, if that was not said in the last minute.
    pub(crate) fn tell_shortage(&self, now: Instant) {
        let mut told_at = self.told_at.lock().unwrap_or_else(PoisonError::into_inner);
        if told_at.is_none_or(|at| now.saturating_duration_since(at) >= TELL_INTERVAL) {
            *told_at = Some(now);
            tracing::warn!(
                bytes = self.bytes_max,
                "the memory for transfers is used up, so they wait for each other; memory_max \
                 raises it"
            );
        }
    }

    /// Bytes that are held at present.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct AccountState {
    budget: Arc<MemoryBudget>,
    held: AtomicUsize,
}

impl AccountState {
    /// Takes bytes in any case; returns what the account holds then, and what was left before.
    fn add(&self, bytes: usize) -> (usize, usize) {
        let used = self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (held, self.budget.bytes_max.saturating_sub(used))
    }

    fn remove(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What a session holds for one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Account(Arc<AccountState>);

impl Account {
    /// An account without bytes.
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> Self {
        let (budget, held) = (Arc::clone(budget), AtomicUsize::new(0));
        Self(Arc::new(AccountState { budget, held }))
    }

    /// An account of a budget that is never used up.
    pub(crate) fn unbounded() -> Self {
        Self::new(&MemoryBudget::unbounded())
    }

    /// Takes bytes; `None` if the account would hold more than `least`, and more than is left.
    pub(crate) fn take(&self, bytes: usize, least: usize) -> Option<Reserved> {
        // Taken before the check, so that no two accounts take the same bytes.
        let (held, left) = self.0.add(bytes);
        let account = Arc::clone(&self.0);
        let reserved = Reserved { account, bytes };
        (held <= least.max(left)).then_some(reserved)
    }

    /// Takes bytes that can't wait.
    pub(crate) fn take_at_once(&self, bytes: usize) -> Reserved {
        self.0.add(bytes);
        let account = Arc::clone(&self.0);
        Reserved { account, bytes }
    }

    /// Whether so many bytes could be taken.
    pub(crate) fn has_room(&self, bytes: usize, least: usize) -> bool {
        let AccountState { budget, held } = &*self.0;
        let left = budget.bytes_max.saturating_sub(budget.used());
        held.load(Ordering::Relaxed) + bytes <= least.max(left)
    }
}

/// Bytes taken from a budget, which return to it when this is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    account: Arc<AccountState>,
    bytes: usize,
}

impl Reserved {
    /// Takes more bytes, which can't wait, so that there are so many.
    pub(crate) fn grow_to(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.bytes);
        self.account.add(more);
        self.bytes += more;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.account.remove(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(account: &Account) -> Vec<Reserved> {
        std::iter::from_fn(|| account.take(1, 0)).collect()
    }

    #[test]
    fn an_account_leaves_as_much_as_it_holds() {
        let budget = MemoryBudget::new(100);
        let (one, other) = (Account::new(&budget), Account::new(&budget));
        let first = fill(&one);
        assert_eq!(first.len(), 50);
        let second = fill(&other);
        assert_eq!(second.len(), 25);
        assert!(one.take(1, 50).is_none());
        assert_eq!(budget.used(), 75);
        drop((first, second));
        assert_eq!(fill(&other).len(), 50);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_least_is_there_in_any_case() {
        let budget = MemoryBudget::new(0);
        let account = Account::new(&budget);
        let first = account.take(8, 16).unwrap();
        let second = account.take(8, 16).unwrap();
        assert!(account.take(1, 16).is_none());
        let mut more = account.take_at_once(1);
        more.grow_to(3);
        more.grow_to(2);
        assert_eq!(budget.used(), 19);
        drop((first, second));
        assert!(!account.has_room(16, 16) && account.has_room(13, 16));
        assert!(account.take(16, 16).is_none());
        drop(more);
        assert!(account.take(16, 16).is_some());
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn blocks_are_smaller_the_less_is_left() {
        let of = |bytes| MemoryBudget::new(bytes).block_bytes_max();
        assert_eq!((of(usize::MAX), of(256 << 20)), (u32::MAX, 4 << 20));
        assert_eq!((of(8 << 20), of(0)), (256 << 10, 256 << 10));
    }
}
