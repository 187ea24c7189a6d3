//! The state that the thread of a set shares with the readers of its file: their wishes, and the
//! verified bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use xdfs_proto::digest::FragmentState;
use xdfs_proto::{ByteRange, Code, Fault, RangeSet};

use super::join::BROKEN;

#[derive(Debug)]
pub(super) struct Shared {
    /// Length of the file in bytes.
    length: u64,
    state: Mutex<State>,
    changed: Condvar,
    thread: OnceLock<Thread>,
}

#[derive(Debug, Default)]
struct State {
    wanted: Wanted,
    /// Verified ranges by their first bytes.
    ranges: BTreeMap<u64, Arc<Vec<u8>>>,
    /// The digest of the block that is wanted.
    agreed: Option<(u64, FragmentState)>,
    fault: Option<Fault>,
    is_closed: bool,
}

/// The wishes of the readers.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// The reader's position, once it reads.
    pub(super) position: Option<u64>,
    /// The block of which a digest is wanted.
    pub(super) block: Option<u64>,
    /// Ranges that are at the target already, or not a part of the copy.
    pub(super) held: Arc<RangeSet>,
}

impl Shared {
    pub(super) fn new(length: u64) -> Self {
        Self {
            length,
            state: Mutex::default(),
            changed: Condvar::new(),
            thread: OnceLock::new(),
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Names the thread.
    pub(super) fn served_by(&self, thread: Thread) {
        // There is one.
        let _ = self.thread.set(thread);
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Leaves ranges out, before anything is read.
    pub(super) fn hold(&self, ranges: impl IntoIterator<Item = ByteRange>) {
        let mut state = self.lock();
        let held = Arc::make_mut(&mut state.wanted.held);
        ranges.into_iter().for_each(|range| held.insert(range));
    }

    /// Copies bytes at `offset` to `buf`, and returns their number: 0 if that is empty.
    ///
    /// # Errors
    /// No source is left, or the file was closed.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let mut state = self.lock();
        state.wanted.position = Some(offset);
        self.wake();
        loop {
            let found = state.ranges.range(..=offset).next_back();
            let found = found.and_then(|(start, bytes)| {
                let at = usize::try_from(offset - start).ok()?;
                bytes.get(at..).filter(|rest| !rest.is_empty())
            });
            if let Some(rest) = found {
                let count = rest.len().min(buf.len());
                buf[..count].copy_from_slice(&rest[..count]);
                return Ok(count);
            }
            state = self.wait(open(state)?);
        }
    }

    /// The digest of a block on which the sources agree.
    ///
    /// # Errors
    /// No source is left, or the file was closed.
    pub(super) fn agreed(&self, block: u64) -> Result<FragmentState, Fault> {
        let mut state = self.lock();
        state.wanted.block = Some(block);
        self.wake();
        loop {
            if let Some((of, agreed)) = state.agreed
                && of == block
            {
                state.wanted.block = None;
                return Ok(agreed);
            }
            state = self.wait(open(state)?);
        }
    }

    /// Ends the thread, and everything that waits for it.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
        self.wake();
    }

    /// The wishes; `None` once it is closed.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        let state = self.lock();
        (!state.is_closed).then(|| state.wanted.clone())
    }

    /// Passes on a verified range.
    pub(super) fn pass(&self, start: u64, bytes: Arc<Vec<u8>>) {
        self.lock().ranges.insert(start, bytes);
        self.changed.notify_all();
    }

    /// Forgets the ranges that begin before this offset.
    pub(super) fn forget_before(&self, start: u64) {
        let mut state = self.lock();
        state.ranges = state.ranges.split_off(&start);
    }

    /// Passes on the digest of a block.
    pub(super) fn agree(&self, block: u64, digest: FragmentState) {
        self.lock().agreed = Some((block, digest));
        self.changed.notify_all();
    }

    /// A value for the thread: if a panic ends it, so does it end all reads.
    pub(super) fn guard(self: &Arc<Self>) -> Guard {
        Guard(Arc::clone(self))
    }

    /// Ends all reads with a fault.
    pub(super) fn fail(&self, fault: Fault) {
        self.lock().fault = Some(fault);
        self.changed.notify_all();
    }
}

/// The state, if something may still come.
fn open(state: MutexGuard<'_, State>) -> Result<MutexGuard<'_, State>, Fault> {
    if let Some(fault) = &state.fault {
        return Err(fault.clone());
    }
    if state.is_closed {
        let cause = "the copy was ended";
        return Err(Fault::new(Code::Cancelled, "read the sources", cause));
    }
    Ok(state)
}

/// Fails what waits for the thread, once the thread panics.
#[derive(Debug)]
pub(super) struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(Fault::new(Code::Internal, "copy", BROKEN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_thread_ends_all_reads() {
        let shared = Arc::new(Shared::new(1));
        let guard = shared.guard();
        let thread = std::thread::spawn(move || {
            let _guard = guard;
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        let fault = shared.read(0, &mut [0]).unwrap_err();
        assert_eq!((fault.code, &*fault.cause), (Code::Internal, BROKEN));
        assert_eq!(shared.agreed(0).unwrap_err().code, Code::Internal);
        // The end of the thread alone is no fault.
        let shared = Arc::new(Shared::new(1));
        drop(shared.guard());
        shared.pass(0, Arc::new(vec![7]));
        assert_eq!(shared.read(0, &mut [0]).unwrap(), 1);
    }
}
