//! Opening what was found, to work on it in place, by the standard library alone.

use std::fs::{File, OpenOptions};
use std::io;

use super::{Dir, Handle, OpenMode};

fn options(how: OpenMode) -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(how.read)
        .write(how.write && !how.append)
        .append(how.append);
    options
}

impl Handle {
    /// Opens it. To be asked of a regular file only: opening something else can have consequences.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(&self, how: OpenMode) -> io::Result<File> {
        options(how).open(&self.0)
    }
}

impl Dir {
    /// Makes a file and opens it; permission bits have no meaning here.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the name, else what the system says.
    pub fn create(&self, name: &[u8], how: OpenMode, mode: Option<u32>) -> io::Result<File> {
        let _ = mode;
        options(how).create_new(true).open(self.name(name)?)
    }
}

/// Whether an error says that nobody reads a pipe; there are none here.
#[must_use]
pub fn is_without_reader(error: &io::Error) -> bool {
    let _ = error;
    false
}

/// Whether nobody writes to a pipe any more; there are none here.
#[must_use]
pub fn has_hung_up(pipe: &File) -> bool {
    let _ = pipe;
    false
}
