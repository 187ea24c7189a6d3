//! An open file. `xdfs.RemoteFile` makes it one of Python's raw files.
//!
//! Bytes are copied once from the blocks of the library into the buffers of Python, under its lock:
//! without that other threads of Python may use the same memory, and writing there is not safe.

use std::io::{Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use xdfs::{Code, Fault, FileBytes, RemoteFile};

use crate::fault::{Owner, raised};
use crate::values;
use crate::waiting::{give, locked, run};

/// Most bytes that are read or written at a time.
const CHUNK_BYTES: usize = 4 << 20;

/// An open file.
#[pyclass(frozen, module = "xdfs._xdfs")]
#[derive(Debug)]
pub(crate) struct OpenFile {
    owner: Owner,
    /// `None` once it was closed.
    file: Mutex<Option<Arc<RemoteFile>>>,
}

/// An error of the standard library's traits is a fault, or says that there is no position.
fn fault(error: std::io::Error) -> Fault {
    let cause = error.to_string();
    let inner = error.into_inner().and_then(|inner| inner.downcast().ok());
    let unsuited = || Fault::new(Code::InvalidArgument, "seek in the file", cause);
    inner.map_or_else(unsuited, |fault: Box<Fault>| *fault)
}

impl OpenFile {
    pub(crate) fn new(file: RemoteFile) -> Self {
        Self {
            owner: Owner::here(),
            file: Mutex::new(Some(Arc::new(file))),
        }
    }

    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&RemoteFile) -> Result<T, Fault> + Send + 'static,
    ) -> PyResult<T> {
        self.owner.check()?;
        let file = locked(&self.file).clone();
        let file = file.ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))?;
        run(py, move || work(&file))?.map_err(|fault| raised(py, &fault))
    }

    /// Reads into a buffer, from the position or from an offset.
    fn fill(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        mut offset: Option<u64>,
    ) -> PyResult<usize> {
        let buffer = PyBuffer::<u8>::get(buffer)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "it can't be written to in one piece",
            ));
        }
        let mut filled = 0;
        let size = buffer.len_bytes();
        while filled < size {
            let wanted = (size - filled).min(CHUNK_BYTES);
            let read = self.with(py, move |file| read(file, offset, wanted))?;
            let target = buffer.as_mut_slice(py).and_then(|all| all.get(filled..));
            // Another size would be another buffer.
            let mut target = target.unwrap_or_default();
            let mut count = 0;
            for block in &read {
                let (now, later) = target.split_at(block.len().min(target.len()));
                for (to, from) in now.iter().zip(&**block) {
                    to.set(*from);
                }
                count += now.len();
                target = later;
            }
            filled += count;
            offset = offset.map(|offset| offset.saturating_add(count as u64));
            if count < wanted {
                break;
            }
        }
        Ok(filled)
    }
}

/// Reads as much as wanted, or up to the end; of a pipe, what there is.
fn read(file: &RemoteFile, offset: Option<u64>, wanted: usize) -> Result<Vec<FileBytes>, Fault> {
    if let Some(offset) = offset {
        let mut bytes = vec![0; wanted];
        let filled = file.read_at(offset, &mut bytes)?;
        bytes.truncate(filled);
        return Ok(vec![bytes.into()]);
    }
    let mut blocks = Vec::new();
    let mut filled = 0;
    while filled < wanted {
        let block = file.read_shared(wanted - filled)?;
        if block.is_empty() {
            break;
        }
        filled += block.len();
        blocks.push(block);
        if file.is_pipe() {
            break;
        }
    }
    Ok(blocks)
}

/// The bytes of an object.
pub(crate) fn bytes_of(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match data.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => PyBuffer::<u8>::get(data)?.to_vec(py),
    }
}

/// The bytes of an object for another thread, without a copy if they can't change.
fn shared_bytes_of(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
) -> PyResult<Box<dyn AsRef<[u8]> + Send>> {
    match data.cast::<PyBytes>() {
        Ok(bytes) => Ok(Box::new(PyBackedBytes::from(bytes.clone()))),
        Err(_) => Ok(Box::new(bytes_of(py, data)?)),
    }
}

#[pymethods]
impl OpenFile {
    #[getter]
    fn is_pipe(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |file| Ok(file.is_pipe()))
    }

    #[getter]
    fn is_closed(&self) -> bool {
        locked(&self.file).is_none()
    }

    fn read_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.fill(py, buffer, None)
    }

    fn read_into_at(
        &self,
        py: Python<'_>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        self.fill(py, buffer, Some(offset))
    }

    /// Writes or buffers all bytes, and returns their number.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let bytes = shared_bytes_of(py, data)?;
        self.with(py, move |mut file| {
            let bytes = (*bytes).as_ref();
            let mut rest = bytes;
            while !rest.is_empty() {
                let count = file.write(rest).map_err(fault)?;
                rest = rest.get(count..).unwrap_or_default();
            }
            Ok(bytes.len())
        })
    }

    fn write_at(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let bytes = shared_bytes_of(py, data)?;
        self.with(py, move |file| {
            let bytes = (*bytes).as_ref();
            file.write_at(offset, bytes)?;
            Ok(bytes.len())
        })
    }

    /// Sets the position, and returns it; `whence` is that of `os.SEEK_SET` and its like.
    fn seek(&self, py: Python<'_>, offset: i64, whence: u8) -> PyResult<u64> {
        let to = match (whence, u64::try_from(offset)) {
            (0, Ok(start)) => SeekFrom::Start(start),
            (0, Err(_)) => return Err(PyValueError::new_err("negative seek position")),
            (1, _) => SeekFrom::Current(offset),
            (2, _) => SeekFrom::End(offset),
            _ => return Err(PyValueError::new_err("whence: it is none of 0, 1 and 2")),
        };
        self.with(py, move |mut file| file.seek(to).map_err(fault))
    }

    /// Waits until all writes have been done.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |mut file| file.flush().map_err(fault))
    }

    /// Makes all writes durable.
    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        self.with(py, move |file| match data_only {
            true => file.sync_data(),
            false => file.sync(),
        })
    }

    fn set_len(&self, py: Python<'_>, length: u64) -> PyResult<()> {
        self.with(py, move |file| file.set_len(length))
    }

    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = self.with(py, RemoteFile::metadata)?;
        values::attributes(py, b"", &found)
    }

    /// Closes the file without waiting: another thread does that.
    fn abandon(&self) -> PyResult<()> {
        if !self.owner.is_here() {
            return Ok(());
        }
        let file = locked(&self.file).take();
        file.map_or(Ok(()), |file| give(Box::new(move || drop(file))))
    }

    /// Closes the file after all writes have been done.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.owner.is_here() {
            return Ok(());
        }
        let Some(file) = locked(&self.file).take() else {
            return Ok(());
        };
        let closed = run(py, move || match Arc::try_unwrap(file) {
            Ok(file) => file.close(),
            // Another thread uses it, and closes it with its last reference.
            Err(file) => (&*file).flush().map_err(fault),
        })?;
        closed.map_err(|fault| raised(py, &fault))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let file = self.file.get_mut();
        let file = file.unwrap_or_else(std::sync::PoisonError::into_inner);
        self.owner.drop(file.take());
    }
}
