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
type Look = dyn Fn() -> Result<(), Fault>;

thread_local! {
    static LOOK: RefCell<Option<Rc<Look>>> = const { RefCell::new(None) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Restores the previous state, even after a panic.
struct Outer {
    look: Option<Rc<Look>>,
    bytes: u64,
}

impl Drop for Outer {
    fn drop(&mut self) {
        LOOK.replace(self.look.take());
        BYTES.set(self.bytes);
    }
}

/// Runs `act` in this thread. A call in it that reads or copies files calls `look` after each piece
/// of at most some MiB, and ends with the fault that `look` returns. Returns the result, and the
/// number of bytes read, also those that were then written, and those of a failed call.
pub fn watched<T>(
    look: impl Fn() -> Result<(), Fault> + 'static,
    act: impl FnOnce() -> T,
) -> (T, u64) {
    let outer = Outer {
        look: LOOK.replace(Some(Rc::new(look))),
        bytes: BYTES.replace(0),
    };
    let result = act();
    let bytes = BYTES.get();
    drop(outer);
    (result, bytes)
}

/// Counts bytes that were read, and perhaps written.
///
/// # Errors
/// The call is cancelled.
pub(crate) fn passed(bytes: u64) -> Result<(), Fault> {
    BYTES.set(BYTES.get().saturating_add(bytes));
    // Not borrowed while it is asked, which may run a call of its own.
    let look = LOOK.with_borrow(Clone::clone);
    look.map_or(Ok(()), |look| look())
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
