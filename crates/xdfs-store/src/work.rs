//! What a long call has done so far, and whether anybody still wants it.
//!
//! Calls that read or copy whole files look here after each piece. Both are matters of the thread
//! that carries a call out, and not of the stores that it passes through: so this is state of the
//! thread, which who calls a store sets up around the call. Without that nothing is counted, and
//! every call goes on to its end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use xdfs_proto::Fault;

/// Says by a fault that nobody wants a call any more.
type Look = dyn Fn() -> Result<(), Fault>;

thread_local! {
    static LOOK: RefCell<Option<Rc<Look>>> = const { RefCell::new(None) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Puts back what was set up around this, also after a panic.
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

/// Runs `act` in this thread; a call in it that reads or copies files asks `look` after each piece,
/// of some MiB at most, and ends with the fault that this returns. Returns what came of it, and the
/// bytes that passed: each that was read counts, also if it was written somewhere then, and also if
/// the call failed.
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

/// Bytes were read, and perhaps written.
///
/// # Errors
/// Nobody wants the rest.
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
