//! Open files on the server, accessed in place like local files.

mod open_file;
mod ranges;
mod read_ahead;
mod write_behind;

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xdfs_proto::file::{FileFlags, FileOwner};
pub use xdfs_proto::file::{FileIdentity, HeldLock, LockRange};
use xdfs_proto::path::Attributes;
use xdfs_proto::{Code, Fault};

pub use self::ranges::{FileRange, FileRanges, PendingRanges};
use crate::reconnecting_session::ReconnectingSession;
use open_file::OpenFile;

/// Default for [`OpenOptions::reconnect`].
const RECONNECT: Duration = Duration::from_secs(30);
/// Default for [`OpenOptions::patience`].
const PATIENCE: Duration = Duration::from_secs(30);

/// How to open a file.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Open for appending: each write of up to 61,440 bytes is appended atomically, even beside
    /// other writers. Implies `write`.
    pub append: bool,
    /// Create the file if it is missing.
    pub create: bool,
    /// Create the file, and fail with [`Code::AlreadyExists`] if the name exists. Implies `create`.
    pub create_new: bool,
    /// Truncate the file.
    pub truncate: bool,
    /// Permission bits of a created file; `None` for the server's default.
    pub mode: Option<u32>,
    /// How long opening a named pipe for writing waits for a reader.
    pub patience: Duration,
    /// How long to try to open another session after a broken one; zero to fail at once.
    pub reconnect: Duration,
}

impl Default for OpenOptions {
    /// Neither reading nor writing; set at least one.
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

    /// For writing: creates or truncates the file.
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

/// Bytes of a file, shared with what was read ahead.
#[derive(Clone, Debug, Default)]
pub struct FileBytes {
    block: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl FileBytes {
    /// Up to `most` bytes of a block, from `start` on.
    fn of(block: &Arc<Vec<u8>>, start: usize, most: usize) -> Self {
        let end = start.saturating_add(most).min(block.len());
        Self {
            block: Arc::clone(block),
            range: start.min(end)..end,
        }
    }
}

impl From<Vec<u8>> for FileBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        let block = Arc::new(bytes);
        Self { block, range }
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block.get(self.range.clone()).unwrap_or_default()
    }
}

/// An open file on a server, from [`Client::open_file`](crate::Client::open_file).
///
/// Sequential reads are read ahead, and writes are buffered without waiting for the server. A read
/// sees every earlier write of this value. An error of a buffered write is returned by the next
/// call, at the latest by [`flush`](Write::flush), [`Self::sync`] or [`Self::close`]; dropping the
/// value also waits, and logs the error. Nothing is durable before `sync` returns.
///
/// After a broken session, the file is reopened in a new one if it is still the same file,
/// otherwise calls fail with [`Code::Stale`]. Reads and writes at an offset then continue.
/// Operations that can't be repeated, which are appends and everything on pipes, fail with a hint
/// that they may have been done.
///
/// Concurrent changes by others are visible when the data is read again: always by
/// [`Self::read_at`], and after [`Self::lock`]. Several threads may share one value; it serves them
/// one at a time.
///
/// A named pipe supports only sequential reads and writes, [`Self::metadata`] and closing. A read
/// waits for a writer, and reaches the end when no writer is left.
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
            Fault::new(Code::Internal, "get a random number", error.to_string())
        })?;
        let open = OpenFile::open(Arc::clone(session), path, options, FileOwner(owner))?;
        Ok(Self {
            open: Mutex::new(open),
        })
    }

    fn open(&self) -> MutexGuard<'_, OpenFile> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the file is a named pipe.
    #[must_use]
    pub fn is_pipe(&self) -> bool {
        self.open().is_pipe()
    }

    /// Identifies the file on the server.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.open().identity()
    }

    /// Reads current data at `offset` until `buf` is full or the file ends, and returns the number
    /// of bytes.
    ///
    /// # Errors
    /// The fault of the server or of the session, or of an earlier write.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        self.open().read_at(offset, buf)
    }

    /// Reads on from the position, as [`Read::read`] does, without copying: up to `most` bytes, and
    /// none at the end of the file.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_shared(&self, most: usize) -> Result<FileBytes, Fault> {
        self.open().read_shared(most)
    }

    /// Reads some bytes at `offset`, and ahead of them if they follow those of the last time.
    pub(crate) fn read_forward(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let mut open = self.open();
        open.position = offset;
        open.read_on(buf)
    }

    /// Reads several extents, given by offset and length, in one call: up to 256 of them with up to
    /// 61,440 bytes in total, none empty. A result is short only at the end of the file.
    ///
    /// # Errors
    /// As [`Self::read_at`]; [`Code::InvalidArgument`] or [`Code::NameTooLong`] above the limits.
    pub fn read_vectored_at(&self, pieces: &[(u64, u32)]) -> Result<Vec<Vec<u8>>, Fault> {
        self.open().read_pieces(pieces)
    }

    /// Writes or buffers all of `bytes`, at `offset`.
    ///
    /// # Errors
    /// The fault of an earlier write, or of the session.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.open().write_behind(offset, bytes)
    }

    /// Writes several extents in order in one call: up to 256 of them with up to 61,440 bytes in
    /// total. Locked and unlocked parts go into separate calls. The writes have been done when this
    /// returns.
    ///
    /// # Errors
    /// The fault of the server or of the session.
    pub fn write_vectored_at(&self, pieces: &[(u64, &[u8])]) -> Result<(), Fault> {
        self.open().write_pieces(pieces)
    }

    /// Appends all of `bytes` atomically, and returns their offset. At most 61,440 bytes; the file
    /// has to be open for appending.
    ///
    /// # Errors
    /// The fault of the server. After a broken session the hint says that the append may have been
    /// done.
    pub fn append(&self, bytes: &[u8]) -> Result<u64, Fault> {
        let most = read_ahead::BLOCK_BYTES;
        if bytes.len() > most {
            let cause = format!("at most {most} bytes can be appended in one call");
            return Err(Fault::new(Code::InvalidArgument, "append to", cause));
        }
        Ok(self.open().append(bytes)?.0)
    }

    /// Makes all writes and the metadata of the file durable.
    ///
    /// # Errors
    /// The fault of the server, or of a write; then nothing is known to be durable.
    pub fn sync(&self) -> Result<(), Fault> {
        self.open().sync(false)
    }

    /// Makes all writes durable, with the metadata needed to read them.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn sync_data(&self) -> Result<(), Fault> {
        self.open().sync(true)
    }

    /// Sets the length of the file in bytes.
    ///
    /// # Errors
    /// The fault of the server, or of an earlier write.
    pub fn set_len(&self, length: u64) -> Result<(), Fault> {
        self.open().set_length(length)
    }

    /// The current attributes of the file.
    ///
    /// # Errors
    /// The fault of the server, or of an earlier write.
    pub fn metadata(&self) -> Result<Attributes, Fault> {
        self.open().attributes()
    }

    /// Locks a range of bytes against other [`RemoteFile`]s, of any client: exclusively, or shared
    /// if not `exclusive`. The lock doesn't affect programs that don't use xdfs. Waits up to `wait`
    /// for conflicting locks, and returns whether the range is locked.
    ///
    /// All locks of this value last for `lease` (1 second to 1 hour, in whole seconds) after its
    /// latest use, even without a session; [`Self::renew`] counts as a use. Reads and writes
    /// entirely within locked ranges happen under the lock, or fail with [`Code::LockLost`], whose
    /// hint names the bytes that may not have been written. Writes elsewhere are done regardless.
    ///
    /// # Errors
    /// The fault of the server; [`Code::LockLost`] if an earlier lock has been lost, in which case
    /// none is held.
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

    /// Unlocks a range of bytes, after all writes have been done.
    ///
    /// # Errors
    /// The fault of the server, or of an earlier write.
    pub fn unlock(&self, range: LockRange) -> Result<(), Fault> {
        self.open().unlock(range)
    }

    /// A lock that conflicts with locking a range, if there is one now.
    ///
    /// # Errors
    /// The fault of the server.
    pub fn test_lock(&self, range: LockRange, exclusive: bool) -> Result<Option<HeldLock>, Fault> {
        self.open().test_lock(range, exclusive)
    }

    /// Renews the lease of all locks.
    ///
    /// # Errors
    /// [`Code::LockLost`] if they aren't held any more.
    pub fn renew(&self) -> Result<(), Fault> {
        self.open().renew()
    }

    /// Closes the file after all writes have been done, and releases its locks.
    ///
    /// # Errors
    /// The fault of a write that no call has returned yet.
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

/// A fault as an error of the standard library.
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
            tracing::error!(%path, %fault, "a file could not be closed, and writes may be lost");
        }
    }
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteFile").finish_non_exhaustive()
    }
}
