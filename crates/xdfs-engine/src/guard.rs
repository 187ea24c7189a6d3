//! Isolates panics of a store: a panic becomes a fault of the operation, and ends neither the
//! thread nor those that wait for it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use xdfs_proto::{Code, Fault};

/// Calls `work`, code of a store.
///
/// The store copes with the state after a panic: a sink or source that panicked is not used again,
/// and stores keep shared state behind locks that recover from poisoning.
///
/// # Errors
/// [`Code::Internal`] if `work` panics. The process's panic hook reports the panic itself.
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
