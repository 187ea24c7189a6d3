//! Files whose content is believed: settings, keys, lists of users, drivers.
//!
//! Such a file is believed only if nobody but root and the user of this thread could have written
//! it. The measure is that of OpenSSH's StrictModes: the file and every directory on the way to it,
//! those of symbolic links included, belong to one of the two, and nobody else may write to them.
//! Unlike there, a directory above it may let everybody create files if only owners may replace
//! them (the sticky bit, as `/tmp` has it). Write access by access control lists counts, since it
//! shows in the mode.
//!
//! On systems without owners and modes nothing is checked.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

#[cfg(not(unix))]
#[path = "trusted/portable.rs"]
mod imp;
#[cfg(unix)]
#[path = "trusted/unix.rs"]
mod imp;
#[cfg(test)]
#[cfg(unix)]
#[path = "trusted/tests.rs"]
mod tests;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// Anybody.
    Public,
    /// Its owner alone.
    Secret,
}

/// Why a file isn't believed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Distrust {
    /// The system refused to open it, or to look at it or a directory above it.
    Io(io::Error),
    /// It is no regular file.
    NotRegular,
    /// The file, or a directory or link on the way to it, belongs to this user.
    Owner(PathBuf, u32),
    /// Others than its owner may write to the file or the directory.
    Writable(PathBuf),
    /// Others than its owner may read the file, which is a secret.
    Readable(PathBuf),
}

impl Distrust {
    /// The kind of failure, for callers with errors of the system.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Io(error) => error.kind(),
            Self::NotRegular => io::ErrorKind::InvalidInput,
            Self::Owner(..) | Self::Writable(_) | Self::Readable(_) => {
                io::ErrorKind::PermissionDenied
            }
        }
    }

    /// A remedy for the user; may be empty.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Io(_) | Self::NotRegular => String::new(),
            Self::Owner(place, _) => format!(
                "use a file of your own or of root's, in directories of yours or root's, or run \
                 `chown` on {}",
                place.display()
            ),
            Self::Writable(place) => format!("run `chmod go-w {}`", place.display()),
            Self::Readable(place) => format!("run `chmod 600 {}`", place.display()),
        }
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotRegular => f.write_str("it isn't a regular file"),
            Self::Owner(place, user) => {
                write!(f, "{} belongs to another user ({user})", place.display())
            }
            Self::Writable(place) => {
                let place = place.display();
                write!(f, "others than its owner may write to {place}")
            }
            Self::Readable(place) => {
                let place = place.display();
                write!(f, "others than its owner may read or write to {place}")
            }
        }
    }
}

impl std::error::Error for Distrust {}

impl From<io::Error> for Distrust {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Opens a regular file that is believed, for reading. Never waits for the other end of a pipe.
///
/// # Errors
/// It can't be opened, or isn't to be believed.
pub fn open(path: &Path, secrecy: Secrecy) -> Result<File, Distrust> {
    let file = imp::open(path).map_err(|error| match std::fs::metadata(path) {
        // Sockets can't even be opened.
        Ok(found) if !found.is_file() => Distrust::NotRegular,
        _ => Distrust::Io(error),
    })?;
    if !file.metadata()?.is_file() {
        return Err(Distrust::NotRegular);
    }
    imp::check(&file, path, secrecy)?;
    Ok(file)
}

/// Checks an open file by its descriptor, and the directories of `path`, by which it was opened.
/// It may be a pipe or a terminal as well. Descriptors of this process (`/dev/fd/3`) are believed,
/// since the program that started it opened them.
///
/// # Errors
/// It isn't to be believed.
pub fn check(file: &File, path: &Path) -> Result<(), Distrust> {
    imp::check(file, path, Secrecy::Public)
}

/// Checks a directory in which every file is believed, and those above it. The sticky bit doesn't
/// help it: others could add files.
///
/// # Errors
/// It isn't to be believed, or isn't there.
pub fn check_folder(path: &Path) -> Result<(), Distrust> {
    imp::check_folder(path)
}
