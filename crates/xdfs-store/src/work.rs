//! Cancelling and accounting for long calls.
//!
//! Calls that read or copy whole files check after each piece whether they are cancelled, and count
//! its bytes. This is state of the calling thread, since the stores that a call passes through need
//! not know of it: [`watched`] sets it up around a call. Without it nothing is counted, and every
//! call runs to its end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use xdfs_proto::Fault;

/// Returns a fault to cancel the call.
type CancelCheck = dyn Fn() -> Result<(), Fault>;

thread_local! {
    static CANCEL_CHECK: RefCell<Option<Rc<CancelCheck>>> = const { RefCell::new(None) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Restores the previous state, even after a panic.
struct PreviousState {
    check: Option<Rc<CancelCheck>>,
    bytes: u64,
}

impl Drop for PreviousState {
    fn drop(&mut self) {
        CANCEL_CHECK.replace(self.check.take());
        BYTES.set(self.bytes);
    }
}

/// Runs `act` in this thread. A call in it that reads or copies files calls `check` after each
/// piece of at most some MiB, and ends with the fault that `check` returns. Returns the result and
/// the number of bytes read, including those then written, also for a failed call.
pub fn watched<T>(
    check: impl Fn() -> Result<(), Fault> + 'static,
    act: impl FnOnce() -> T,
) -> (T, u64) {
    let outer = PreviousState {
        check: CANCEL_CHECK.replace(Some(Rc::new(check))),
        bytes: BYTES.replace(0),
    };
    let result = act();
    let bytes = BYTES.get();
    drop(outer);
    (result, bytes)
}

/// Counts bytes that were read, and possibly written.
///
/// # Errors
/// The call is cancelled.
pub(crate) fn passed(bytes: u64) -> Result<(), Fault> {
    BYTES.set(BYTES.get().saturating_add(bytes));
    // Not borrowed during the call, which may itself run a watched call.
    let check = CANCEL_CHECK.with_borrow(Clone::clone);
    check.map_or(Ok(()), |check| check())
}

/// Whether the call of this thread is still wanted, for stores that wait instead of reading files.
///
/// # Errors
/// The call is cancelled.
pub fn check_cancelled() -> Result<(), Fault> {
    passed(0)
}

#[cfg(test)]
mod tests {
    use xdfs_proto::Code;

    use super::*;

    #[test]
    fn who_watches_is_asked_and_told_and_others_are_not() {
        assert!(passed(5).is_ok());
        let ended = || Err(Fault::new(Code::Cancelled, "", ""));
        let (inner, outer) = watched(
            || Ok(()),
            || {
                assert!(passed(7).is_ok());
                let inner = watched(ended, || passed(1).map_err(|fault| fault.code));
                assert!(passed(3).is_ok());
                inner
            },
        );
        assert_eq!((inner, outer), ((Err(Code::Cancelled), 1), 10));
        assert!(passed(5).is_ok());
    }

    #[test]
    fn a_panic_leaves_nothing_behind() {
        let ended = || Err(Fault::new(Code::Cancelled, "", ""));
        let broken = std::panic::catch_unwind(|| watched(ended, || panic!("on purpose")));
        assert!(broken.is_err());
        assert!(passed(1).is_ok());
    }
}
