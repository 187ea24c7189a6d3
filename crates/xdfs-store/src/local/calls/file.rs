//! Files opened for access in place.
//!
//! A path is first resolved without opening the file, which is opened once it is known to be a
//! regular file or a pipe: opening a device can have side effects. The opened file is the resolved
//! one, even if the name changes meanwhile.

use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use xdfs_proto::file::{FileFlags, FileIdentity};
use xdfs_proto::path::Attributes;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_sys::fs::{Dir, FileKind, Handle, Meta, OpenMode};

use super::super::path;
use super::super::store::LocalStore;
use super::{Paths, attributes, io_fault, not_found};
use crate::file::{File, FileRequest, OpenedFile};

/// Attempts to open or create a file that others create and remove at the same time.
const ATTEMPTS: u32 = 16;
/// The largest offset in a file.
const OFFSET_MAX: u64 = i64::MAX.unsigned_abs();
/// Pause before retrying to open a pipe without a peer.
const PIPE_RETRY_MS: u32 = 20;

/// Opens a file.
pub(in crate::local) fn open(
    store: &LocalStore,
    request: &FileRequest,
) -> Result<OpenedFile, Fault> {
    if store.read_only && request.flags.write {
        let fault = Fault::new(Code::ReadOnly, "", "this server takes no writes");
        return Err(fault.path(&request.path));
    }
    let paths = Paths { store };
    let requested = &*request.path;
    for _ in 0..ATTEMPTS {
        if !request.flags.exclusive {
            match paths.find(requested) {
                Ok(found) => return open_found(&found, request),
                Err(fault) if request.flags.create && fault.code == Code::NotFound => {}
                Err(fault) if request.identity.is_some() && fault.code == Code::NotFound => {
                    let cause = "nothing has its name any more";
                    return Err(Fault::new(Code::Stale, "", cause).path(requested));
                }
                Err(fault) => return Err(fault),
            }
        }
        if !request.flags.create {
            break;
        }
        if let Some(opened) = create(&paths, request)? {
            return Ok(opened);
        }
    }
    // A dangling symbolic link has the name.
    Err(not_found(requested))
}

/// A regular file that is open already.
pub(in crate::local) fn opened(file: fs::File, path: &[u8]) -> Result<Box<dyn File>, Fault> {
    Ok(LocalFile::wrap(file, path, false, None, false)?.file)
}

fn open_mode(flags: &FileFlags) -> OpenMode {
    OpenMode {
        read: flags.read,
        write: flags.write,
        append: flags.append,
    }
}

fn open_found(found: &Handle, request: &FileRequest) -> Result<OpenedFile, Fault> {
    let requested = &*request.path;
    let fault = |error: io::Error| io_fault(requested, &error);
    let flags = &request.flags;
    let is_pipe = match found.meta().map_err(fault)?.kind {
        FileKind::Regular => false,
        FileKind::Fifo if flags.read && flags.write => {
            let cause = "a pipe is opened for reading or for writing, not for both";
            return Err(Fault::new(Code::InvalidArgument, "", cause).path(requested));
        }
        FileKind::Fifo => true,
        FileKind::Directory => {
            return Err(Fault::new(Code::IsDirectory, "", "is a directory").path(requested));
        }
        kind => {
            let cause = format!("it is {kind}, neither a regular file nor a pipe");
            return Err(Fault::new(Code::NotRegularFile, "", cause).path(requested));
        }
    };
    if path::split(requested).1.is_empty() {
        let cause = "it isn't a directory";
        return Err(Fault::new(Code::NotDirectory, "", cause).path(requested));
    }
    let file = found.open(open_mode(flags)).map_err(|error| {
        if is_pipe && xdfs_sys::fs::is_without_reader(&error) {
            let cause = "the pipe has no reader";
            let fault = Fault::new(Code::Busy, "", cause).path(requested);
            return fault.retry(Retry::AfterMs(PIPE_RETRY_MS));
        }
        fault(error)
    })?;
    let opened = LocalFile::wrap(file, requested, is_pipe, None, false)?;
    if request.identity.is_some_and(|was| was != opened.identity) {
        let cause = "another file has its name now";
        return Err(Fault::new(Code::Stale, "", cause).path(requested));
    }
    if flags.truncate && !is_pipe {
        opened.file.set_length(0)?;
    }
    Ok(opened)
}

/// Creates the file; `None` if the name is taken.
fn create(paths: &Paths<'_>, request: &FileRequest) -> Result<Option<OpenedFile>, Fault> {
    let requested = &*request.path;
    if let Some(mode) = request.mode {
        attributes::check_file_mode(paths, requested, mode)?;
    }
    let name = paths.name(requested)?;
    if name.is_directory {
        return Err(Fault::new(Code::IsDirectory, "", "the path is a directory's").path(requested));
    }
    let file = match name
        .dir
        .create(name.name, open_mode(&request.flags), request.mode)
    {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if request.flags.exclusive {
                return Err(name.fault(&error));
            }
            return Ok(None);
        }
        Err(error) => return Err(name.fault(&error)),
    };
    // The directory handle of the lookup can't be synchronised. This one is compared with it before
    // use.
    let (parent, _) = path::split(requested);
    let parent = paths.open(parent).ok();
    LocalFile::wrap(file, requested, false, parent, true).map(Some)
}

#[derive(Debug)]
struct LocalFile {
    file: fs::File,
    /// The path as requested.
    path: Vec<u8>,
    is_pipe: bool,
    /// The directory of a created file, until its name is durable.
    parent: Mutex<Option<Dir>>,
    /// Held during an append, so that its offset can be determined.
    appending: Mutex<()>,
    /// Something has been read from the pipe.
    heard: AtomicBool,
}

impl LocalFile {
    fn wrap(
        file: fs::File,
        path: &[u8],
        is_pipe: bool,
        parent: Option<Dir>,
        created: bool,
    ) -> Result<OpenedFile, Fault> {
        let meta = xdfs_sys::fs::meta(&file).map_err(|error| io_fault(path, &error))?;
        let identity = identity(&file, &meta, path);
        Ok(OpenedFile {
            identity,
            attributes: attributes(&meta),
            created,
            file: Box::new(Self {
                file,
                path: path.to_vec(),
                is_pipe,
                parent: Mutex::new(parent),
                appending: Mutex::default(),
                heard: AtomicBool::new(false),
            }),
        })
    }

    fn fault(&self, error: &io::Error) -> Fault {
        match error.kind() {
            // Must not look like a broken channel.
            io::ErrorKind::BrokenPipe => {
                let cause = "the pipe has no reader any more";
                Fault::new(Code::Io, "", cause).path(&self.path)
            }
            io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge => {
                let cause = "the file system takes no file that long";
                Fault::new(Code::NoSpace, "", cause).path(&self.path)
            }
            _ => io_fault(&self.path, error),
        }
    }
}

/// The identity of a file. The path substitutes for file numbers on systems without them.
fn identity(file: &fs::File, meta: &Meta, path: &[u8]) -> FileIdentity {
    let born = file.metadata().and_then(|meta| meta.created()).ok();
    let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born_ns = born.and_then(|born| i64::try_from(born.as_nanos()).ok());
    let (device, inode) = meta.identity.unwrap_or_else(|| {
        let hash = blake3::hash(path);
        let number = hash.as_bytes().first_chunk().copied().unwrap_or_default();
        (0, u64::from_be_bytes(number))
    });
    FileIdentity {
        device,
        inode,
        born_ns: born_ns.unwrap_or(0),
    }
}

impl File for LocalFile {
    fn is_pipe(&self) -> bool {
        self.is_pipe
    }

    fn attributes(&self) -> Result<Attributes, Fault> {
        let meta = xdfs_sys::fs::meta(&self.file).map_err(|error| self.fault(&error))?;
        Ok(attributes(&meta))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let mut filled = 0;
        while filled < buf.len() {
            let at = offset.saturating_add(filled as u64);
            // Systems support no larger offset, and refuse reads beyond it; there is no data there.
            let room = OFFSET_MAX.saturating_sub(at);
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let end = filled.saturating_add(room).min(buf.len());
            if end == filled {
                break;
            }
            match xdfs_sys::fs::read_at(&self.file, &mut buf[filled..end], at) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) => return Err(self.fault(&error)),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let bufs = [io::IoSlice::new(bytes)];
        let written = xdfs_sys::fs::write_all_at(&self.file, &bufs, offset);
        written.map_err(|error| self.fault(&error))
    }

    fn append(&self, bytes: &[u8]) -> Result<u64, Fault> {
        let _appending = self
            .appending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut file = &self.file;
        let written = loop {
            match file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fault(&error)),
                Ok(written) => break written,
            }
        };
        if written < bytes.len() {
            // The rest might be separated by an append of another writer.
            let cause = format!("only {written} of {} bytes found room", bytes.len());
            return Err(Fault::new(Code::NoSpace, "", cause).path(&self.path));
        }
        let end = file.stream_position().map_err(|error| self.fault(&error))?;
        Ok(end.saturating_sub(written as u64))
    }

    fn sync(&self, data_only: bool) -> Result<(), Fault> {
        let synced = if data_only {
            self.file.sync_data()
        } else {
            self.file.sync_all()
        };
        synced.map_err(|error| self.fault(&error))?;
        let mut parent = self.parent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dir) = &*parent {
            dir.sync().map_err(|error| self.fault(&error))?;
            *parent = None;
        }
        Ok(())
    }

    fn set_length(&self, length: u64) -> Result<(), Fault> {
        self.file
            .set_len(length)
            .map_err(|error| self.fault(&error))
    }

    fn read_pipe(&self, buf: &mut [u8]) -> Result<Option<usize>, Fault> {
        let mut file = &self.file;
        loop {
            match file.read(buf) {
                Ok(0) => {
                    // There is no writer: either not yet, or no longer.
                    let heard = self.heard.load(Ordering::Relaxed);
                    let over = heard || xdfs_sys::fs::has_hung_up(&self.file);
                    return Ok(over.then_some(0));
                }
                Ok(read) => {
                    self.heard.store(true, Ordering::Relaxed);
                    return Ok(Some(read));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(self.fault(&error)),
            }
        }
    }

    fn write_pipe(&self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let mut file = &self.file;
        loop {
            match file.write(bytes) {
                Ok(written) => return Ok(Some(written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(self.fault(&error)),
            }
        }
    }
}
