//! The compiled part of the Python package `xdfs`, over the library of that name.
//!
//! ```text
//!   xdfs.Client, xdfs.AsyncClient, xdfs.fsspec      Python: names, types, exceptions
//!        |             |
//!   Session --------- Operation --------- OpenFile  this crate
//!        |             |                     |
//!   xdfs::Client      futures of it       xdfs::RemoteFile
//! ```
//!
//! - Everything that the library does not finish at once is an `Operation`, which Python steps
//!   through: by waiting, or by callbacks of an event loop.
//! - Python's lock is released around every wait, and a wait ends early for a signal.
//! - Paths are bytes and options are JSON: names and types of Python are the package's concern.
//! - Objects belong to the process that made them. In a child that was forked they raise, and are
//!   never dropped, since their threads are not there.

#![forbid(unsafe_code)]

mod ending;
mod fault;
mod file;
mod gate;
mod operation;
mod server;
mod session;
mod settings;
mod tune;
mod values;
mod waiting;

use pyo3::prelude::*;

#[pymodule]
mod _xdfs {
    #[pymodule_export]
    use crate::file::OpenFile;
    #[pymodule_export]
    use crate::operation::Operation;
    #[pymodule_export]
    use crate::server::RunningServer;
    #[pymodule_export]
    use crate::session::{Session, TransferQueue};
    #[pymodule_export]
    use crate::tune::Tuning;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::waiting::end_with_interpreter(module)
    }
}
