//! Values of the library as values of Python: tuples, dictionaries and bytes.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use xdfs::{
    Answer, Attributes, ChecksumKind, DigestValue, FileRanges, JobEvent, JobResult, Progress,
    SmallFile, SyncResult, TransferResult, TreeResult,
};

use crate::fault::exception;

type Value<'py> = PyResult<Bound<'py, PyAny>>;

/// The fields of `xdfs.FileInfo`, in their order.
pub(crate) fn attributes<'py>(py: Python<'py>, name: &[u8], found: &Attributes) -> Value<'py> {
    let fields = (
        PyBytes::new(py, name),
        found.kind.as_str(),
        found.size,
        found.mode,
        found.uid,
        found.gid,
        found.links,
        found.inode,
        found.atime_ns,
        found.mtime(),
        found.ctime_ns,
    );
    Ok(fields.into_pyobject(py)?.into_any())
}

/// The value of an answer; `None` of one that says only that something was done.
pub(crate) fn answer(py: Python<'_>, answer: Answer) -> Value<'_> {
    match answer {
        Answer::Attributes(found) => attributes(py, b"", &found),
        Answer::Entries { entries, .. } => {
            let entries = entries.iter();
            let entries: PyResult<Vec<_>> = entries
                .map(|entry| attributes(py, &entry.name, &entry.attributes))
                .collect();
            Ok(PyList::new(py, entries?)?.into_any())
        }
        Answer::Target(target) => Ok(PyBytes::new(py, &target).into_any()),
        Answer::Space {
            total,
            free,
            available,
            files,
            files_free,
        } => {
            let fields = (total, free, available, files, files_free);
            Ok(fields.into_pyobject(py)?.into_any())
        }
        Answer::Digest { value, length } => {
            let fields = (value.kind().as_str(), value.hex(), length);
            Ok(fields.into_pyobject(py)?.into_any())
        }
        Answer::Removed { entries } => Ok(entries.into_pyobject(py)?.into_any()),
        Answer::Copied { bytes } => Ok(bytes.into_pyobject(py)?.into_any()),
        _ => Ok(py.None().into_bound(py)),
    }
}

pub(crate) fn ranges(py: Python<'_>, read: FileRanges) -> Value<'_> {
    let ranges = read.ranges.into_iter();
    let ranges = ranges.map(|bytes| PyBytes::new(py, &bytes));
    let ranges: Vec<_> = ranges.collect();
    let info = attributes(py, b"", &read.attributes)?;
    Ok((PyList::new(py, ranges)?, info)
        .into_pyobject(py)?
        .into_any())
}

/// The bytes of each file, or its size; `None` of one that was not moved.
pub(crate) fn small_files(
    py: Python<'_>,
    moved: Vec<Option<SmallFile>>,
    is_read: bool,
) -> Value<'_> {
    let files = PyList::empty(py);
    for file in moved {
        match file {
            Some(file) if is_read => files.append(PyBytes::new(py, &file.content))?,
            Some(file) => files.append(file.bytes)?,
            None => files.append(py.None())?,
        }
    }
    Ok(files.into_any())
}

fn digest(value: &DigestValue) -> Option<String> {
    let checksum = value.checksum()?;
    Some(format!("{}:{}", checksum.kind().as_str(), checksum.hex()))
}

/// The kind of a checksum by its name.
pub(crate) fn checksum_kind(name: &str) -> Option<ChecksumKind> {
    let kinds = [
        ChecksumKind::Crc64Nvme,
        ChecksumKind::Blake3,
        ChecksumKind::Sha256,
        ChecksumKind::Md5,
    ];
    kinds.into_iter().find(|kind| kind.as_str() == name)
}

/// The fields of `xdfs.TransferResult`.
pub(crate) fn transfer<'py>(py: Python<'py>, result: &TransferResult) -> Value<'py> {
    let fields = PyDict::new(py);
    fields.set_item("bytes", result.bytes)?;
    fields.set_item("seconds", result.seconds)?;
    fields.set_item("bytes_per_second", result.bytes_per_second())?;
    fields.set_item("channels", result.channels)?;
    fields.set_item("resumed_bytes", result.resumed_bytes)?;
    fields.set_item("retransmitted_bytes", result.retransmitted_bytes)?;
    fields.set_item("digest", digest(&result.digest))?;
    fields.set_item("target", PyBytes::new(py, &result.target))?;
    fields.set_item("is_skipped", result.is_skipped)?;
    Ok(fields.into_any())
}

fn tree_fields<'py>(py: Python<'py>, result: &TreeResult) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("files", result.files)?;
    fields.set_item("directories", result.directories)?;
    fields.set_item("others", result.others)?;
    fields.set_item("bytes", result.bytes)?;
    fields.set_item("matched_bytes", result.matched_bytes)?;
    fields.set_item("failed", result.failed)?;
    fields.set_item("resumed_files", result.resumed.files)?;
    fields.set_item("seconds", result.elapsed.as_secs_f64())?;
    fields.set_item("target", PyBytes::new(py, &result.target))?;
    fields.set_item("reconnects", result.reconnects)?;
    Ok(fields)
}

fn sync_fields<'py>(py: Python<'py>, result: &SyncResult) -> PyResult<Bound<'py, PyDict>> {
    let fields = tree_fields(py, &result.tree)?;
    fields.set_item("replaced", result.replaced)?;
    fields.set_item("set", result.set)?;
    fields.set_item("renamed", result.renamed)?;
    fields.set_item("deleted", result.deleted)?;
    fields.set_item("kept", result.kept)?;
    Ok(fields)
}

pub(crate) fn job<'py>(py: Python<'py>, result: &JobResult) -> Value<'py> {
    match result {
        JobResult::File(result) => transfer(py, result),
        JobResult::Tree(result) => Ok(tree_fields(py, result)?.into_any()),
        JobResult::Sync(result) => Ok(sync_fields(py, result)?.into_any()),
        _ => Ok(py.None().into_bound(py)),
    }
}

/// The fields of `xdfs.Progress`.
pub(crate) fn progress<'py>(py: Python<'py>, now: &Progress) -> Value<'py> {
    let fields = (
        "progress",
        now.bytes,
        now.bytes_total,
        now.resumed_bytes,
        now.channels,
    );
    Ok(fields.into_pyobject(py)?.into_any())
}

/// A tuple that begins with the kind of the event; `None` of an event that has no form.
pub(crate) fn event<'py>(py: Python<'py>, event: &JobEvent) -> Value<'py> {
    let bytes = |path: &[u8]| PyBytes::new(py, path);
    let fields = match event {
        JobEvent::Progress(now) => return progress(py, now),
        JobEvent::TreeProgress(now) => {
            let arrived = now.bytes + now.activity.in_flight_bytes;
            let counted = now.activity.counted;
            let is_counted = now.activity.is_counted;
            let total = is_counted.then_some(counted.bytes);
            let files_total = is_counted.then_some(counted.files);
            ("tree", arrived, total, now.files, files_total, now.failed).into_pyobject(py)?
        }
        JobEvent::Failed { path, fault } => {
            ("failed", bytes(path), exception(py, fault)?).into_pyobject(py)?
        }
        JobEvent::File {
            path,
            bytes: size,
            digest: value,
            ..
        } => ("file", bytes(path), *size, digest(value)).into_pyobject(py)?,
        JobEvent::Step { step, path, from } => {
            let from = from.as_deref().map(bytes);
            ("step", bytes(path), step.as_str(), from).into_pyobject(py)?
        }
        JobEvent::Warning(fault) => {
            ("warning", bytes(&fault.path), exception(py, fault)?).into_pyobject(py)?
        }
        JobEvent::Retry {
            fault,
            retry,
            pause,
        } => {
            let pause = pause.as_secs_f64();
            ("retry", exception(py, fault)?, *retry, pause).into_pyobject(py)?
        }
        JobEvent::Target(path) => ("target", bytes(path)).into_pyobject(py)?,
        _ => PyTuple::empty(py),
    };
    Ok(fields.into_any())
}
