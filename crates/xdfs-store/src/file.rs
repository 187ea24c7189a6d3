//! Files that are worked on in place: [`File`], and how one is opened.
//!
//! Unlike a sink, what is written to such a file is seen by others at once. All methods take
//! `&self` and may be called by several threads at the same time.

use std::fmt;

use xdfs_proto::file::{FileFlags, FileIdentity};
use xdfs_proto::path::Attributes;
use xdfs_proto::{Code, Fault};

/// How a file is opened.
#[derive(Clone, Debug)]
pub struct FileRequest {
    /// The path, as bytes. Links are followed.
    pub path: Vec<u8>,
    /// What for, and what to do if it isn't there.
    pub flags: FileFlags,
    /// Permission bits of a file that is made; `None` for the store's default.
    pub mode: Option<u32>,
    /// Which file it has to be.
    pub identity: Option<FileIdentity>,
}

/// A file that was opened.
#[derive(Debug)]
pub struct OpenedFile {
    /// The file.
    pub file: Box<dyn File>,
    /// Which one it is.
    pub identity: FileIdentity,
    /// What is known of it.
    pub attributes: Attributes,
    /// It was made just now.
    pub created: bool,
}

/// An open file: a regular one or a pipe.
///
/// Faults name the path, and may leave the operation empty.
pub trait File: Send + Sync + fmt::Debug {
    /// Whether it is a pipe: then only [`Self::read_pipe`], [`Self::write_pipe`] and
    /// [`Self::attributes`] have a meaning.
    fn is_pipe(&self) -> bool;

    /// What is known of it now.
    ///
    /// # Errors
    /// A fault that names the path.
    fn attributes(&self) -> Result<Attributes, Fault>;

    /// Fills `buf` from `offset` on as far as the file goes.
    ///
    /// # Errors
    /// A fault that names the path.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault>;

    /// Writes all bytes at `offset`; part of them may be written when it fails.
    ///
    /// # Errors
    /// A fault that names the path.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Writes all bytes at the end, in one step with finding it; returns where they went. To be
    /// asked of a file that was opened so.
    ///
    /// # Errors
    /// A fault that names the path, also if only part of them could be written.
    fn append(&self, bytes: &[u8]) -> Result<u64, Fault>;

    /// Makes durable what was written before, and the name of a file that was made.
    ///
    /// # Errors
    /// A fault that names the path.
    fn sync(&self, data_only: bool) -> Result<(), Fault>;

    /// Sets the length in bytes.
    ///
    /// # Errors
    /// A fault that names the path.
    fn set_length(&self, length: u64) -> Result<(), Fault>;

    /// Reads what there is in a pipe: `Some(0)` when nobody will write any more, and `None` when
    /// there is nothing now.
    ///
    /// # Errors
    /// A fault that names the path.
    fn read_pipe(&self, buf: &mut [u8]) -> Result<Option<usize>, Fault>;

    /// Writes as much as there is room for in a pipe; `None` when there is none now.
    ///
    /// # Errors
    /// A fault that names the path, also when nobody reads any more.
    fn write_pipe(&self, bytes: &[u8]) -> Result<Option<usize>, Fault>;
}

/// The fault of a store whose content isn't worked on in place.
pub(crate) fn unsupported(path: &[u8]) -> Fault {
    let cause = "files aren't worked on in place here";
    Fault::new(Code::Unsupported, "open a file", cause).path(path)
}
