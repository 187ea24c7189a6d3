//! What a store does, guarded: a panic of it becomes a fault of what was asked, and takes neither
//! the thread with it, nor others that wait for that thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use xdfs_proto::{Code, Fault};

/// Does `work`, which is a store's.
///
/// What a panic leaves behind is the store's to cope with: a sink or a source that panicked is not
/// used again, and stores hold what they share behind locks that they take over when poisoned.
///
/// # Errors
/// [`Code::Internal`] if it panics. The panic itself is told where the process tells panics.
pub(crate) fn guarded<T>(operation: &str, work: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        let cause = "internal error, please report it";
        Fault::new(Code::Internal, operation, cause)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_fault_and_nothing_else_is() {
        assert_eq!(guarded("work", || 5).unwrap(), 5);
        let fault = guarded("work", || panic!("on purpose")).unwrap_err();
        let expected = (Code::Internal, "work");
        assert_eq!((fault.code, &*fault.operation), expected);
    }
}
