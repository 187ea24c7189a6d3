//! Files accessed in place: [`File`] and the request to open one.
//!
//! Unlike with a sink, others see what is written at once. All methods take `&self` and may be
//! called by several threads at the same time.

use std::fmt;

use xdfs_proto::Fault;
use xdfs_proto::file::{FileFlags, FileIdentity};
use xdfs_proto::path::Attributes;

/// A request to open a file.
#[derive(Clone, Debug)]
pub struct FileRequest {
    /// The path, as bytes. Links are followed.
    pub path: Vec<u8>,
    /// The access mode, and whether to create the file.
    pub flags: FileFlags,
    /// Permission bits of a created file; `None` for the store's default.
    pub mode: Option<u32>,
    /// The required identity, if any.
    pub identity: Option<FileIdentity>,
}

/// The result of opening a file.
#[derive(Debug)]
pub struct OpenedFile {
    /// The file.
    pub file: Box<dyn File>,
    /// Its identity.
    pub identity: FileIdentity,
    /// Its attributes.
    pub attributes: Attributes,
    /// It was created by this call.
    pub created: bool,
}

/// An open file: a regular one or a pipe.
///
/// Faults name the path, and may leave the operation empty.
pub trait File: Send + Sync + fmt::Debug {
    /// Whether it is a pipe, which supports only [`Self::read_pipe`], [`Self::write_pipe`] and
    /// [`Self::attributes`].
    fn is_pipe(&self) -> bool;

    /// Its present attributes.
    ///
    /// # Errors
    /// A fault that names the path.
    fn attributes(&self) -> Result<Attributes, Fault>;

    /// Reads at `offset` until `buf` is full or the file ends.
    ///
    /// # Errors
    /// A fault that names the path.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault>;

    /// Writes all bytes at `offset`. After a fault some of them may have been written.
    ///
    /// # Errors
    /// A fault that names the path.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Atomically appends all bytes, and returns their offset. The file must be open for appending.
    ///
    /// # Errors
    /// A fault that names the path, also if only some of the bytes could be written.
    fn append(&self, bytes: &[u8]) -> Result<u64, Fault>;

    /// Makes earlier writes durable, and the name of a created file.
    ///
    /// # Errors
    /// A fault that names the path.
    fn sync(&self, data_only: bool) -> Result<(), Fault>;

    /// Sets the length in bytes.
    ///
    /// # Errors
    /// A fault that names the path.
    fn set_length(&self, length: u64) -> Result<(), Fault>;

    /// Reads what is available in a pipe: `Some(0)` after the last writer has closed it, `None` if
    /// nothing is available now.
    ///
    /// # Errors
    /// A fault that names the path.
    fn read_pipe(&self, buf: &mut [u8]) -> Result<Option<usize>, Fault>;

    /// Writes what fits into a pipe now; `None` if it is full.
    ///
    /// # Errors
    /// A fault that names the path, also when there is no reader left.
    fn write_pipe(&self, bytes: &[u8]) -> Result<Option<usize>, Fault>;
}
