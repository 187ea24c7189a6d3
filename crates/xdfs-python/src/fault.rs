//! Faults as exceptions of Python.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use xdfs::{Fault, Retry};

use crate::ending::calling;

/// The exception for a fault, made by the package: its class depends on the code.
pub(crate) fn exception<'py>(py: Python<'py>, fault: &Fault) -> PyResult<Bound<'py, PyAny>> {
    let retry_after = match fault.retry {
        Retry::Never => None,
        Retry::Now => Some(0.0),
        Retry::AfterMs(ms) => Some(f64::from(ms) / 1000.0),
    };
    let machine = fault.machine.as_ref().filter(|machine| !machine.is_here());
    let fields = (
        fault.code.as_str(),
        fault.to_string(),
        fault.side.to_string(),
        machine.map(xdfs::Machine::name),
        fault.operation.as_str(),
        PyBytes::new(py, &fault.path),
        fault.cause.as_str(),
        fault.hint.as_str(),
        retry_after,
        fault.ends_session,
    );
    let made = calling(py, || {
        py.import("xdfs._errors")?.call_method1("of_fault", fields)
    });
    made.unwrap_or_else(|| {
        let text = format!("the interpreter ends: {fault}");
        Err(PyRuntimeError::new_err(text))
    })
}

/// The exception for a fault, to be raised.
pub(crate) fn raised(py: Python<'_>, fault: &Fault) -> PyErr {
    match exception(py, fault) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The process that made an object. Threads of the library don't survive a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    pub(crate) fn is_here(self) -> bool {
        self == Self::here()
    }

    /// # Errors
    /// This is another process.
    pub(crate) fn check(self) -> PyResult<()> {
        match self.is_here() {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err(
                "this object was made before a fork, and the threads that it needs are in the \
                 parent: make another one in this process",
            )),
        }
    }

    /// Drops a value without Python's lock, or leaks it in another process.
    pub(crate) fn drop<T: Send>(self, value: T) {
        if !self.is_here() {
            std::mem::forget(value);
            return;
        }
        let mut value = Some(value);
        // At the exit of the interpreter there is no lock to release.
        Python::try_attach(|py| {
            let value = value.take();
            py.detach(|| drop(value));
        });
        drop(value);
    }
}
