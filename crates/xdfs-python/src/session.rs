//! A session with a server: what it starts, and what it opens.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use serde_json::from_str;
use xdfs::store::MemStore;
use xdfs::{
    Call, Client, Code, Fault, FileCopy, FileRange, Job, JobPlace, LocalPlace, OpenOptions, Queue,
    QueueOptions, RemotePlace, Silent, SmallSource, SyncJob, Transfer, TransferOptions,
    TransferRoute, TreeJob, Way,
};

use crate::fault::{Owner, raised};
use crate::file::{OpenFile, bytes_of};
use crate::gate::Gate;
use crate::operation::{Operation, Waiting, Work};
use crate::settings::{self, Connector};
use crate::values::checksum_kind;
use crate::waiting::{drop_aside, locked, run};

/// Transfers at a time: a session has 16 files open for them, of which packs of small files take 4,
/// and some are about to be closed.
const TRANSFERS_MAX: usize = 10;
/// Files at a time of which ranges are read: a session has as many slots for calls.
const FILES_MAX: usize = 128;

/// A client, which may be the last reference to its session. The end of a session waits for its
/// transfers and calls, so it comes in another thread: objects of Python are dropped anywhere.
#[derive(Clone, Debug)]
struct Held {
    owner: Owner,
    /// `None` once it was taken.
    client: Option<Arc<Client>>,
}

impl Held {
    fn new(client: Arc<Client>) -> Self {
        Self {
            owner: Owner::here(),
            client: Some(client),
        }
    }

    fn get(&self) -> Result<&Arc<Client>, Fault> {
        let client = self.client.as_ref();
        client.ok_or_else(|| Fault::new(Code::Internal, "use the session", "it was closed"))
    }

    /// The client, whose drop waits.
    fn take(mut self) -> Option<Arc<Client>> {
        self.client.take()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(last) = self.client.take().and_then(Arc::into_inner) {
            drop_aside(self.owner, last);
        }
    }
}

/// An open session.
#[pyclass(frozen, module = "xdfs._xdfs")]
#[derive(Debug)]
pub(crate) struct Session {
    owner: Owner,
    place: RemotePlace,
    connector: Connector,
    /// Turns of transfers, of files of which ranges are read, and of operations on small files.
    gates: [Gate; 3],
    /// `None` once it was closed.
    client: Mutex<Option<Held>>,
}

/// Options that Python has written as JSON.
fn options<T: serde::de::DeserializeOwned>(text: &str) -> PyResult<T> {
    from_str(text).map_err(|error| PyValueError::new_err(format!("options: {error}")))
}

/// A path of this machine, which the text form of a place can hold whatever its bytes are.
fn local(path: &[u8]) -> PyResult<PathBuf> {
    let host = if path.starts_with(b"/") { "//" } else { "" };
    let text = format!("file:{host}{}", RemotePlace::percent_encoded(path));
    match text.parse::<JobPlace>() {
        Ok(JobPlace::Local(path)) => Ok(path),
        Ok(_) => Err(PyValueError::new_err("it is no path of this machine")),
        Err(fault) => Err(PyValueError::new_err(fault.to_string())),
    }
}

impl Session {
    fn client(&self) -> PyResult<Held> {
        self.owner.check()?;
        let client = locked(&self.client).clone();
        client.ok_or_else(|| PyRuntimeError::new_err("the client was closed"))
    }

    /// Does something with the client that is done at once.
    fn ask<T>(&self, py: Python<'_>, ask: impl FnOnce(&Client) -> T) -> PyResult<T> {
        let client = self.client()?;
        let asked = client.get().map(|client| ask(client));
        asked.map_err(|fault| raised(py, &fault))
    }

    fn start(
        &self,
        py: Python<'_>,
        start: impl FnOnce(&Client) -> Result<Work, Fault> + Send,
    ) -> PyResult<Operation> {
        let client = self.client()?;
        py.detach(|| start(client.get()?))
            .map(Operation::from)
            .map_err(|fault| raised(py, &fault))
    }

    fn call(&self, py: Python<'_>, call: Call) -> PyResult<Operation> {
        self.start(py, |client| client.start_call(call).map(Work::Call))
    }

    /// Work that is started when it is its turn.
    fn in_turn(
        &self,
        gate: &Gate,
        start: impl FnOnce(&Client) -> Result<Work, Fault> + Send + 'static,
    ) -> PyResult<Operation> {
        let client = self.client()?;
        Ok(Operation::from(Work::Waiting(Waiting {
            turn: gate.ask(),
            start: Box::new(move || start(client.get()?)),
            is_cancelled: false,
        })))
    }

    fn transfer(
        &self,
        start: impl FnOnce(&Client) -> Result<Transfer, Fault> + Send + 'static,
    ) -> PyResult<Operation> {
        self.in_turn(&self.gates[0], move |client| {
            start(client).map(|started| Work::Transfer(Box::new(started)))
        })
    }

    /// A tree, in a session of its own: it takes all the turns that one has. A ticket opens only
    /// one session.
    fn job(&self, py: Python<'_>, job: Job) -> PyResult<Operation> {
        let own = Arc::clone(self.client()?.get().map_err(|fault| raised(py, &fault))?);
        let connector = self.connector.clone();
        let opened = Mutex::new(None::<Arc<Client>>);
        let connect = move |place: &RemotePlace| {
            if place.invitation.ticket.is_some() {
                return Ok(Arc::clone(&own));
            }
            let mut opened = locked(&opened);
            if let Some(client) = opened.as_ref().filter(|client| client.ended().is_none()) {
                return Ok(Arc::clone(client));
            }
            let client = connector.connect(place)?;
            *opened = Some(Arc::clone(&client));
            Ok(client)
        };
        let started = py.detach(|| job.start(connect));
        let started = started.map_err(|fault| raised(py, &fault))?;
        Ok(Operation::from(Work::Job(started)))
    }

    fn send_all_small(&self, files: Vec<(SmallSource, Vec<u8>)>) -> PyResult<Operation> {
        self.in_turn(&self.gates[2], move |client| {
            let started = client.send_small_files(files)?;
            Ok(Work::Small(started, false))
        })
    }

    /// The places of a job: a path here and one there, or the other way round.
    fn ends(&self, here: &[u8], there: &[u8], is_upload: bool) -> PyResult<[JobPlace; 2]> {
        let here = JobPlace::Local(local(here)?);
        let there = JobPlace::Server(RemotePlace {
            path: there.to_vec(),
            ..self.place.clone()
        });
        Ok(match is_upload {
            true => [here, there],
            false => [there, here],
        })
    }
}

#[pymethods]
impl Session {
    #[new]
    fn new(py: Python<'_>, url: &str, settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let connector = Connector::new(settings)?;
        let (url, with) = (url.to_owned(), connector.clone());
        // It may start a server by ssh, which takes time.
        let opened = run(py, move || {
            let place = settings::place(&url)?;
            let client = with.connect(&place)?;
            Ok((place, client))
        })?;
        let (place, client) = opened.map_err(|fault: Fault| raised(py, &fault))?;
        Ok(Self {
            owner: Owner::here(),
            place,
            connector,
            gates: [TRANSFERS_MAX, FILES_MAX, 1].map(Gate::new),
            client: Mutex::new(Some(Held::new(client))),
        })
    }

    /// The URL without secrets.
    #[getter]
    fn url(&self) -> String {
        self.place.to_string()
    }

    /// The path of the URL.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.place.path)
    }

    #[getter]
    fn user(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.ask(py, Client::user)
    }

    #[getter]
    fn server_fingerprint(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let fingerprint = self.ask(py, Client::server_fingerprint)?;
        Ok(fingerprint.map(|fingerprint| fingerprint.to_string()))
    }

    #[getter]
    fn is_closed(&self) -> bool {
        !self.owner.is_here() || locked(&self.client).is_none()
    }

    /// Raises the reason of the session's end, if it has ended.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        match self.ask(py, Client::ended)? {
            Some(fault) => Err(raised(py, &fault)),
            None => Ok(()),
        }
    }

    /// Ends the session: once its transfers and calls have ended, or at once.
    fn close(&self, py: Python<'_>, at_once: bool) -> PyResult<()> {
        if !self.owner.is_here() {
            return Ok(());
        }
        let client = locked(&self.client).take().and_then(Held::take);
        let Some(client) = client else {
            return Ok(());
        };
        run(py, move || {
            if at_once {
                client.stop();
            }
            drop(client);
        })
    }

    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Operation> {
        let path = path.to_vec();
        self.call(py, Call::Stat { path, follow })
    }

    fn list(&self, py: Python<'_>, path: &[u8]) -> PyResult<Operation> {
        let list = Call::List {
            path: path.to_vec(),
            cursor: Vec::new(),
            entries_max: u32::MAX,
        };
        self.call(py, list)
    }

    fn mkdir(
        &self,
        py: Python<'_>,
        path: &[u8],
        mode: Option<u32>,
        parents: bool,
    ) -> PyResult<Operation> {
        let path = path.to_vec();
        let call = Call::MakeDirectory {
            path,
            mode,
            parents,
        };
        self.call(py, call)
    }

    fn remove(&self, py: Python<'_>, path: &[u8], kind: &str) -> PyResult<Operation> {
        let path = path.to_vec();
        let call = match kind {
            "file" => Call::RemoveFile { path },
            "directory" => Call::RemoveDirectory { path },
            "tree" => Call::RemoveTree { path },
            _ => return Err(PyValueError::new_err("kind: file, directory or tree")),
        };
        self.call(py, call)
    }

    fn rename(
        &self,
        py: Python<'_>,
        from: &[u8],
        to: &[u8],
        overwrite: bool,
    ) -> PyResult<Operation> {
        let (from, to) = (from.to_vec(), to.to_vec());
        let call = Call::Rename {
            from,
            to,
            overwrite,
        };
        self.call(py, call)
    }

    fn copy(&self, py: Python<'_>, from: &[u8], to: &[u8], overwrite: bool) -> PyResult<Operation> {
        let (from, to) = (from.to_vec(), to.to_vec());
        let call = Call::Copy {
            from,
            to,
            overwrite,
        };
        self.call(py, call)
    }

    fn link(&self, py: Python<'_>, existing: &[u8], path: &[u8]) -> PyResult<Operation> {
        let (existing, path) = (existing.to_vec(), path.to_vec());
        self.call(py, Call::Link { existing, path })
    }

    fn symlink(&self, py: Python<'_>, target: &[u8], path: &[u8]) -> PyResult<Operation> {
        let (target, path) = (target.to_vec(), path.to_vec());
        self.call(py, Call::Symlink { target, path })
    }

    fn read_link(&self, py: Python<'_>, path: &[u8]) -> PyResult<Operation> {
        let path = path.to_vec();
        self.call(py, Call::ReadLink { path })
    }

    fn set_mode(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<Operation> {
        let path = path.to_vec();
        self.call(py, Call::SetMode { path, mode })
    }

    fn set_times(
        &self,
        py: Python<'_>,
        path: &[u8],
        atime_ns: Option<i64>,
        mtime_ns: Option<i64>,
        follow: bool,
    ) -> PyResult<Operation> {
        let call = Call::SetTimes {
            path: path.to_vec(),
            atime_ns,
            mtime_ns,
            follow,
        };
        self.call(py, call)
    }

    fn truncate(&self, py: Python<'_>, path: &[u8], length: u64) -> PyResult<Operation> {
        let path = path.to_vec();
        self.call(py, Call::Truncate { path, length })
    }

    fn space(&self, py: Python<'_>, path: &[u8]) -> PyResult<Operation> {
        let path = path.to_vec();
        self.call(py, Call::Space { path })
    }

    fn checksum(
        &self,
        py: Python<'_>,
        path: &[u8],
        kind: &str,
        offset: u64,
        length: Option<u64>,
    ) -> PyResult<Operation> {
        let kind = checksum_kind(kind).ok_or_else(|| {
            PyValueError::new_err("kind: it is none of crc64nvme, blake3, sha256 and md5")
        })?;
        let call = Call::Checksum {
            path: path.to_vec(),
            offset,
            length,
            kind,
        };
        self.call(py, call)
    }

    /// Reads ranges, each with its first byte and the byte after its last one.
    fn read_ranges(&self, path: &[u8], ranges: Vec<(i64, Option<i64>)>) -> PyResult<Operation> {
        let ranges = ranges.into_iter();
        let ranges: Vec<_> = ranges
            .map(|(start, end)| FileRange { start, end })
            .collect();
        let path = path.to_vec();
        self.in_turn(&self.gates[1], move |client| {
            client.read_ranges(&path, &ranges).map(Work::Ranges)
        })
    }

    fn upload(&self, source: &[u8], target: &[u8], options_json: &str) -> PyResult<Operation> {
        let options: TransferOptions = options(options_json)?;
        let (source, target) = (LocalPlace::Path(local(source)?), target.to_vec());
        self.transfer(move |client| client.upload(&source, &target, &options))
    }

    /// Sends bytes, which are copied once.
    fn upload_bytes(
        &self,
        py: Python<'_>,
        bytes: &Bound<'_, PyAny>,
        target: &[u8],
        options_json: &str,
    ) -> PyResult<Operation> {
        // A name that ends in a slash keeps a file out of a directory.
        const NAME: &[u8] = b"bytes/";
        let options: TransferOptions = options(options_json)?;
        let bytes = bytes_of(py, bytes)?;
        let target = target.to_vec();
        self.transfer(move |client| {
            let store = MemStore::new();
            store.insert(NAME, bytes);
            client.upload_from(&store, NAME, &target, &options)
        })
    }

    fn download(&self, source: &[u8], target: &[u8], options_json: &str) -> PyResult<Operation> {
        let options: TransferOptions = options(options_json)?;
        let (source, target) = (source.to_vec(), LocalPlace::Path(local(target)?));
        self.transfer(move |client| client.download(&source, &target, &options))
    }

    /// Reads small files into memory. Others are left out.
    fn read_small(&self, paths: Vec<PyBackedBytes>) -> PyResult<Operation> {
        let paths = paths.iter().map(|path| path.to_vec()).collect();
        self.in_turn(&self.gates[2], move |client| {
            let started = client.read_small_files(paths)?;
            Ok(Work::Small(started, true))
        })
    }

    /// Fetches small files, each with its path there and its path here. Others are left out.
    fn fetch_small(&self, files: Vec<(PyBackedBytes, PyBackedBytes)>) -> PyResult<Operation> {
        let files = files.iter();
        let files: PyResult<_> = files
            .map(|(there, here)| Ok((there.to_vec(), local(here)?)))
            .collect();
        let files = files?;
        self.in_turn(&self.gates[2], move |client| {
            let started = client.fetch_small_files(files)?;
            Ok(Work::Small(started, false))
        })
    }

    /// Sends small files, each with its path here and its path there. Others are left out.
    fn send_small(&self, files: Vec<(PyBackedBytes, PyBackedBytes)>) -> PyResult<Operation> {
        let files = files.iter();
        let files: PyResult<_> = files
            .map(|(here, there)| Ok((SmallSource::Path(local(here)?), there.to_vec())))
            .collect();
        self.send_all_small(files?)
    }

    /// Sends bytes to small files. Others are left out.
    fn write_small(
        &self,
        py: Python<'_>,
        files: Vec<(Bound<'_, PyAny>, PyBackedBytes)>,
    ) -> PyResult<Operation> {
        let files = files.iter();
        let files: PyResult<_> = files
            .map(|(bytes, there)| Ok((SmallSource::Bytes(bytes_of(py, bytes)?), there.to_vec())))
            .collect();
        self.send_all_small(files?)
    }

    /// Copies a tree: from `here` to `there`, or the other way round.
    fn tree(
        &self,
        py: Python<'_>,
        here: &[u8],
        there: &[u8],
        is_upload: bool,
        options_json: &str,
    ) -> PyResult<Operation> {
        let [source, target] = self.ends(here, there, is_upload)?;
        let job = TreeJob {
            source,
            target,
            way: Way::default(),
            options: options(options_json)?,
        };
        self.job(py, Job::Tree(job))
    }

    /// Makes a directory equal to another one.
    fn sync(
        &self,
        py: Python<'_>,
        here: &[u8],
        there: &[u8],
        is_upload: bool,
        options_json: &str,
    ) -> PyResult<Operation> {
        let [source, target] = self.ends(here, there, is_upload)?;
        let job = SyncJob {
            source,
            target,
            way: Way::default(),
            options: options(options_json)?,
        };
        self.job(py, Job::Sync(job))
    }

    /// Opens a file; `flags` are letters: r, w, a, c (create), x (create new) and t (truncate).
    fn open(
        &self,
        py: Python<'_>,
        path: &[u8],
        flags: &str,
        mode: Option<u32>,
    ) -> PyResult<OpenFile> {
        let has = |letter: char| flags.contains(letter);
        let options = OpenOptions {
            read: has('r'),
            write: has('w'),
            append: has('a'),
            create: has('c'),
            create_new: has('x'),
            truncate: has('t'),
            mode,
            ..OpenOptions::default()
        };
        let (client, path) = (self.client()?, path.to_vec());
        let opened = run(py, move || client.get()?.open_file(&path, &options))?;
        let file = opened.map_err(|fault| raised(py, &fault))?;
        Ok(OpenFile::new(file))
    }

    /// A queue of files, with sessions of its own.
    fn queue(&self, py: Python<'_>, running_max: usize) -> PyResult<TransferQueue> {
        self.owner.check()?;
        if running_max == 0 {
            return Err(PyValueError::new_err("running_max: it is 0"));
        }
        let options = QueueOptions {
            running_max,
            retry: self.connector.retry(),
        };
        let connector = self.connector.clone();
        let connect = move |place: &RemotePlace| connector.connect(place);
        let queue = Queue::new(options, connect, Silent);
        Ok(TransferQueue {
            owner: Owner::here(),
            place: self.place.clone(),
            queue: Mutex::new(Some(queue.map_err(|fault| raised(py, &fault))?)),
        })
    }
}

/// A queue of files of one server.
#[pyclass(frozen, module = "xdfs._xdfs")]
#[derive(Debug)]
pub(crate) struct TransferQueue {
    owner: Owner,
    place: RemotePlace,
    queue: Mutex<Option<Queue>>,
}

#[pymethods]
impl TransferQueue {
    /// Adds a file, and returns its transfer.
    fn add(
        &self,
        here: &[u8],
        there: &[u8],
        is_upload: bool,
        options_json: &str,
    ) -> PyResult<Operation> {
        self.owner.check()?;
        let options = options(options_json)?;
        let (here, there) = (LocalPlace::Path(local(here)?), there.to_vec());
        let copy = FileCopy {
            server: self.place.clone(),
            route: match is_upload {
                true => TransferRoute::Upload {
                    from: here,
                    to: there,
                },
                false => TransferRoute::Download {
                    from: there,
                    to: here,
                },
            },
            options,
        };
        let queue = locked(&self.queue);
        let added = queue.as_ref().and_then(|queue| queue.add([copy]).pop());
        match added {
            Some(transfer) => Ok(Operation::from(Work::Transfer(Box::new(transfer)))),
            None => Err(PyRuntimeError::new_err("the queue was closed")),
        }
    }

    /// Waits until every file has ended; those that have not are cancelled if that is wanted.
    fn close(&self, py: Python<'_>, cancels: bool) -> PyResult<()> {
        if !self.owner.is_here() {
            return Ok(());
        }
        let Some(queue) = locked(&self.queue).take() else {
            return Ok(());
        };
        if cancels {
            queue.stop();
        }
        run(py, move || drop(queue))
    }
}

impl Drop for TransferQueue {
    fn drop(&mut self) {
        let queue = self.queue.get_mut();
        let queue = queue.unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(queue) = queue.as_ref().filter(|_| self.owner.is_here()) {
            queue.stop();
        }
        self.owner.drop(queue.take());
    }
}
