//! Files of the server that are worked on in place, as with a local file.

mod open_file;
mod read_ahead;
mod reconnecting_session;
mod write_behind;

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xdfs_proto::file::{FileFlags, FileOwner};
pub use xdfs_proto::file::{FileIdentity, HeldLock, LockRange};
use xdfs_proto::path::Attributes;
use xdfs_proto::{Code, Fault};

use open_file::OpenFile;
pub(crate) use reconnecting_session::ReconnectingSession;

/// How long a file goes on without its server unless told otherwise.
const RECONNECT: Duration = Duration::from_secs(30);
/// How long opening a pipe waits for its other end unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a file is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// For writing at the end alone: each write of up to 61,440 bytes goes there as a whole, also
    /// beside those of others. Implies `write`.
    pub append: bool,
    /// Make the file if it isn't there.
    pub create: bool,
    /// Make the file, and fail with [`Code::AlreadyExists`] if anything has the name. Implies
    /// `create`.
    pub create_new: bool,
    /// Remove the content.
    pub truncate: bool,
    /// Permission bits of a file that is made; `None` for the default of the server.
    pub mode: Option<u32>,
    /// How long to wait until somebody reads the named pipe that is opened for writing.
    pub patience: Duration,
    /// How long to try to open another session when this one breaks; zero for not at all.
    pub reconnect: Duration,
}

impl Default for OpenOptions {
    /// For nothing yet.
    fn default() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            create: false,
            create_new: false,
            truncate: false,
            mode: None,
            patience: PATIENCE,
            reconnect: RECONNECT,
        }
    }
}

impl OpenOptions {
    /// For reading.
    #[must_use]
    pub fn reading() -> Self {
        Self {
            read: true,
            ..Self::default()
        }
    }

    /// For writing: makes the file, or removes what it has.
    #[must_use]
    pub fn writing() -> Self {
        Self {
            write: true,
            create: true,
            truncate: true,
            ..Self::default()
        }
    }

    fn flags(&self) -> FileFlags {
        FileFlags {
            read: self.read,
            write: self.write || self.append,
            append: self.append,
            create: self.create || self.create_new,
            exclusive: self.create_new,
            truncate: self.truncate,
        }
    }
}

/// An open file on a server: made by [`Client::open_file`](crate::Client::open_file).
///
/// It reads ahead where it is read from front to back, and takes writes without waiting for the
/// server. A read sees every write of this value before it. An error of a write that was taken is
/// told by the next call, and at the latest by [`flush`](Write::flush), [`Self::sync`] and
/// [`Self::close`]; dropping the value waits as well, and puts the error into the log. Nothing is
/// durable before `sync` returns.
///
/// When the session breaks, another one is opened, and the file again in it, if it is still the
/// same: else there is [`Code::Stale`]. Reads and writes at given places go on then. What can't be
/// done twice, appending and everything about pipes, fails with a hint that it may have been done.
///
/// Others who change the file at the same time are seen when it is read anew: by
/// [`Self::read_at`] always, and after [`Self::lock`]. One value works for several threads, one
/// after the other.
///
/// Of a named pipe only reading on, writing on, [`Self::metadata`] and closing have a meaning.
/// Reading waits until somebody writes, and ends when nobody does any more.
pub struct RemoteFile {
    open: Mutex<OpenFile>,
}

impl RemoteFile {
    /// Opens a file in a session.
    pub(crate) fn open_in(
        session: &Arc<ReconnectingSession>,
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<Self, Fault> {
        let mut owner = [0; 16];
        getrandom::fill(&mut owner).map_err(|error| {
            Fault::new(Code::Internal, "draw a random number", error.to_string())
        })?;
        let open = OpenFile::open(Arc::clone(session), path, options, FileOwner(owner))?;
        Ok(Self {
            open: Mutex::new(open),
        })
    }

    fn open(&self) -> MutexGuard<'_, OpenFile> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is a named pipe.
    #[must_use]
    pub fn is_pipe(&self) -> bool {
        self.open().is_pipe()
    }

    /// Which file it is on the server.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.open().identity()
    }

    /// Fills `buf` from `offset` on as far as the file goes, by what it has now.
    ///
    /// # Errors
    /// What the server says, or why there is no session; what an earlier write failed by.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        self.open().read_at(offset, buf)
    }

    /// Reads several pieces, given by offset and number of bytes, by one call: up to 256, and up to
    /// 61,440 bytes together, none of them empty. Each is shorter only at the end of the file.
    ///
    /// # Errors
    /// As [`Self::read_at`]; [`Code::InvalidArgument`] or [`Code::NameTooLong`] for too much.
    pub fn read_vectored_at(&self, pieces: &[(u64, u32)]) -> Result<Vec<Vec<u8>>, Fault> {
        self.open().read_pieces(pieces)
    }

    /// Writes all of `bytes` at `offset`, or takes them to be written.
    ///
    /// # Errors
    /// What an earlier write failed by, or why there is no session.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.open().write_behind(offset, bytes)
    }

    /// Writes several pieces, one after the other, by one call: up to 256, and up to 61,440 bytes
    /// together. What lies under a lock and what doesn't are calls of their own. It has been done
    /// when this returns.
    ///
    /// # Errors
    /// What the server says, or why there is no session.
    pub fn write_vectored_at(&self, pieces: &[(u64, &[u8])]) -> Result<(), Fault> {
        self.open().write_pieces(pieces)
    }

    /// Appends all of `bytes` as one step, and returns where they went. At most 61,440 bytes; the
    /// file has to be open for appending.
    ///
    /// # Errors
    /// What the server says. If the session broke the hint says that it may have been done.
    pub fn append(&self, bytes: &[u8]) -> Result<u64, Fault> {
        let most = read_ahead::BLOCK_BYTES;
        if bytes.len() > most {
            let cause = format!("at most {most} bytes are appended in one step");
            return Err(Fault::new(Code::InvalidArgument, "append to a file", cause));
        }
        Ok(self.open().append(bytes)?.0)
    }

    /// Makes durable what was written, and what is known of the file.
    ///
    /// # Errors
    /// What the server says, or what a write failed by: then nothing is known to be durable.
    pub fn sync(&self) -> Result<(), Fault> {
        self.open().sync(false)
    }

    /// Makes durable what was written, and what is needed to read it.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn sync_data(&self) -> Result<(), Fault> {
        self.open().sync(true)
    }

    /// Sets the length in bytes.
    ///
    /// # Errors
    /// What the server says, or what an earlier write failed by.
    pub fn set_len(&self, length: u64) -> Result<(), Fault> {
        self.open().set_length(length)
    }

    /// What is known of the file now.
    ///
    /// # Errors
    /// What the server says, or what an earlier write failed by.
    pub fn metadata(&self) -> Result<Attributes, Fault> {
        self.open().attributes()
    }

    /// Locks bytes against other values of this kind, wherever they are: as the only one if
    /// `exclusive`, else against those that want to be the only one. Programs that don't use xdfs
    /// aren't kept out. Waits for others as long as `wait` says, and returns whether it is locked.
    ///
    /// The locks of a value on its file last for `lease` (1 second to 1 hour, in seconds) after the
    /// latest use of it, also without a session; [`Self::renew`] is a use. Reads and writes of
    /// bytes that are all locked happen under the lock, or fail with [`Code::LockLost`], whose hint
    /// names the bytes that may not have been written. Writes elsewhere are done all the same.
    ///
    /// # Errors
    /// What the server says; [`Code::LockLost`] if a lock of before isn't held any more: then none
    /// is.
    pub fn lock(
        &self,
        range: LockRange,
        exclusive: bool,
        lease: Duration,
        wait: Duration,
    ) -> Result<bool, Fault> {
        let lease_s = u32::try_from(lease.as_secs()).unwrap_or(u32::MAX);
        self.open().lock(range, exclusive, lease_s, wait)
    }

    /// Gives up the locks on some bytes, when all writes have been done.
    ///
    /// # Errors
    /// What the server says, or what an earlier write failed by.
    pub fn unlock(&self, range: LockRange) -> Result<(), Fault> {
        self.open().unlock(range)
    }

    /// What keeps some bytes from being locked, if anything does now.
    ///
    /// # Errors
    /// What the server says.
    pub fn test_lock(&self, range: LockRange, exclusive: bool) -> Result<Option<HeldLock>, Fault> {
        self.open().test_lock(range, exclusive)
    }

    /// Renews the lease of the locks.
    ///
    /// # Errors
    /// [`Code::LockLost`] if they aren't held any more.
    pub fn renew(&self) -> Result<(), Fault> {
        self.open().renew()
    }

    /// Closes the file when all writes have been done, and gives up its locks.
    ///
    /// # Errors
    /// What a write failed by that nobody was told of yet.
    pub fn close(self) -> Result<(), Fault> {
        self.open().close(true)
    }

    fn seek_to(&self, to: SeekFrom) -> io::Result<u64> {
        let mut open = self.open();
        if open.is_pipe() {
            return Err(io::ErrorKind::NotSeekable.into());
        }
        let (base, by) = match to {
            SeekFrom::Start(position) => (position, 0),
            SeekFrom::Current(by) => (open.position, by),
            SeekFrom::End(by) => (open.attributes().map_err(error)?.size, by),
        };
        let position = base
            .checked_add_signed(by)
            .ok_or(io::ErrorKind::InvalidInput)?;
        open.position = position;
        Ok(position)
    }

    fn write_on(&self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut open = self.open();
        if open.appends() {
            let (offset, written) = open.append(bytes)?;
            open.position = offset + written as u64;
            return Ok(written);
        }
        let position = open.position;
        open.write_behind(position, bytes)?;
        open.position = position + bytes.len() as u64;
        Ok(bytes.len())
    }
}

/// A fault as the standard library has it.
fn error(fault: Fault) -> io::Error {
    use io::ErrorKind as K;
    let kind = match fault.code {
        Code::NotFound => K::NotFound,
        Code::PermissionDenied | Code::PathEscape => K::PermissionDenied,
        Code::ReadOnly => K::ReadOnlyFilesystem,
        Code::AlreadyExists => K::AlreadyExists,
        Code::InvalidArgument => K::InvalidInput,
        Code::NoSpace => K::StorageFull,
        Code::QuotaExceeded => K::QuotaExceeded,
        Code::Stale => K::StaleNetworkFileHandle,
        Code::Unsupported => K::Unsupported,
        Code::ConnectionLost => K::ConnectionAborted,
        Code::DeadlineExceeded => K::TimedOut,
        _ => K::Other,
    };
    io::Error::new(kind, fault)
}

impl Read for &RemoteFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.open().read_on(buf).map_err(error)
    }
}

impl Write for &RemoteFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_on(buf).map_err(error)
    }

    /// Waits until all writes have been done. They aren't durable yet.
    fn flush(&mut self) -> io::Result<()> {
        self.open().drain().map_err(error)
    }
}

impl Seek for &RemoteFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.seek_to(to)
    }
}

impl Read for RemoteFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for RemoteFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Seek for RemoteFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.seek_to(to)
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        let open = self.open.get_mut();
        let open = open.unwrap_or_else(PoisonError::into_inner);
        if let Err(fault) = open.close(false) {
            let path = open.path().escape_ascii();
            tracing::error!(%path, %fault, "a file was not closed, and what was written is lost");
        }
    }
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteFile").finish_non_exhaustive()
    }
}
