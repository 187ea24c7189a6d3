//! A server in this process, for tests and notebooks.

use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::{self, JoinHandle};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use xdfs::{Fault, Listen, ServerBuilder, ServerHandle};

use crate::fault::{Owner, raised};
use crate::waiting::{locked, run};

/// A server that runs in a thread.
#[pyclass(frozen, module = "xdfs._xdfs")]
#[derive(Debug)]
pub(crate) struct RunningServer {
    owner: Owner,
    handle: ServerHandle,
    addresses: Vec<String>,
    /// `None` once it was closed.
    thread: Mutex<Option<JoinHandle<Result<(), Fault>>>>,
}

#[pymethods]
impl RunningServer {
    #[new]
    fn new(py: Python<'_>, root: PathBuf, listen: &str, read_only: bool) -> PyResult<Self> {
        let listen: Listen = match listen.parse() {
            Ok(listen) => listen,
            Err(fault) => return Err(raised(py, &fault)),
        };
        let builder = ServerBuilder {
            listen: vec![listen],
            root,
            read_only,
            ..ServerBuilder::default()
        };
        let started = py.detach(|| {
            let server = builder.bind()?;
            let handle = server.handle();
            let addresses = server.addresses();
            let thread = thread::Builder::new().name("xdfs-server".into());
            let thread = thread
                .spawn(move || server.run())
                .map_err(|error| Fault::from_io("start the thread of a server", "", &error))?;
            Ok((handle, addresses, thread))
        });
        let (handle, addresses, thread) = started.map_err(|fault: Fault| raised(py, &fault))?;
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        if addresses.is_empty() {
            return Err(PyValueError::new_err("the server listens nowhere"));
        }
        Ok(Self {
            owner: Owner::here(),
            handle,
            addresses,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The addresses on which it listens.
    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    #[getter]
    fn is_closed(&self) -> bool {
        !self.owner.is_here() || locked(&self.thread).is_none()
    }

    /// Ends it: sessions have ten seconds to end by themselves, or none.
    fn close(&self, py: Python<'_>, at_once: bool) -> PyResult<()> {
        if !self.owner.is_here() {
            return Ok(());
        }
        let Some(thread) = locked(&self.thread).take() else {
            return Ok(());
        };
        self.handle.shutdown();
        if at_once {
            self.handle.shutdown();
        }
        match run(py, move || thread.join())? {
            Ok(ended) => ended.map_err(|fault| raised(py, &fault)),
            Err(_) => Err(PyValueError::new_err("the server has panicked")),
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if self.owner.is_here() {
            self.handle.shutdown();
            self.handle.shutdown();
        }
    }
}
