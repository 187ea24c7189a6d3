//! Opening resolved entries for access in place, with the standard library only.

use std::fs::{File, OpenOptions};
use std::io;

use super::{Dir, Handle, OpenMode};

fn options(open_mode: OpenMode) -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(open_mode.read)
        .write(open_mode.write && !open_mode.append)
        .append(open_mode.append);
    options
}

impl Handle {
    /// Opens it. To be used for regular files only: opening other kinds can have side effects.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn open(&self, open_mode: OpenMode) -> io::Result<File> {
        options(open_mode).open(&self.0)
    }
}

impl Dir {
    /// Creates and opens a file. Permission bits have no meaning on this system.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, or any other error of the system call.
    pub fn create(&self, name: &[u8], open_mode: OpenMode, mode: Option<u32>) -> io::Result<File> {
        let _ = mode;
        options(open_mode).create_new(true).open(self.name(name)?)
    }
}

/// Whether an error means that a pipe has no reader; there are no pipes here.
#[must_use]
pub fn is_without_reader(error: &io::Error) -> bool {
    let _ = error;
    false
}

/// Whether a pipe has lost its last writer; there are no pipes here.
#[must_use]
pub fn has_hung_up(pipe: &File) -> bool {
    let _ = pipe;
    false
}
