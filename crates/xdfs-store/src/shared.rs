//! Files that several machines with the same file system read or write together: one of them opens
//! the file as usual, and the others move parts of it.

use xdfs_proto::{ByteRange, Code, Fault};

use crate::{File, Store};

/// A store that opens the unfinished files of other processes.
pub trait SharedStore: Store {
    /// Opens the unfinished file of the target `path` for writing. The sink is another process's,
    /// on this machine or on another one with the same file system, which publishes the file and
    /// has sent its [number](SharedPartial::number).
    ///
    /// # Errors
    /// A fault that names the path. [`Code::NotFound`] if there is no such file here,
    /// [`Code::Stale`] if it is another one: then this isn't the same file system.
    fn open_partial(&self, path: &[u8], number: u64) -> Result<Box<dyn File>, Fault>;
}

/// A source that other processes can read in place of this one.
pub trait SharedSource {
    /// Counts so many bytes that another process has read of the same file.
    fn read_elsewhere(&mut self, bytes: u64);
}

/// The unfinished file of a sink, into which other processes can write.
pub trait SharedPartial {
    /// The number of the file in its file system, by which the others find it
    /// ([`SharedStore::open_partial`]).
    ///
    /// # Errors
    /// A fault that names the path; [`Code::Unsupported`] in a file system without such numbers.
    fn number(&mut self) -> Result<u64, Fault>;

    /// Another process has written `range` and made it durable, so that it may be
    /// [recorded](crate::Sink::record).
    ///
    /// # Errors
    /// A fault that names the path, if the file is shorter than that.
    fn written_elsewhere(&mut self, range: ByteRange) -> Result<(), Fault>;
}

/// The fault of a sink that can't be [shared](crate::Sink::shared).
#[must_use]
pub fn unshared(path: &[u8]) -> Fault {
    let cause = "only this process can write to it";
    Fault::new(Code::Unsupported, "share the target", cause).path(path)
}
