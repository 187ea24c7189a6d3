//! Packs on the local machine: many small entries of a tree, written or read with as few system
//! calls as possible.
//!
//! The directory of the transfer is resolved once, like any other path. All names are resolved
//! beneath it, and symbolic links on the way are refused even if they stay inside: a tree can't
//! write through a link that it created earlier, nor through one that somebody exchanges for a
//! directory.
//!
//! - A file is written without a name and gets one when it is complete. Where the system does not
//!   support that, or the name is taken, it gets a hidden name first and is renamed. Leftovers of a
//!   crash are hidden like unfinished transfers.
//! - It is durable before it gets its name, so that a system crash never leaves an incomplete file
//!   under it: the files of a pack are written, and one synchronisation of the file system covers
//!   them and other packs that wait at the same time. This is omitted in memory and for relaxed
//!   packs. Names, directories, links and attributes become durable by
//!   [`Call::Sync`](xdfs_proto::path::Call::Sync).
//! - Extended attributes are those of users (`user.`) and access control lists. Others have a
//!   meaning to the system, and would reveal what permission bits hide.

mod dirs;
mod metadata;
mod place;
mod read;
mod stage;
mod write;

pub use read::{Added, PackBuilder};

use std::io;

use xdfs_proto::pack::Entry;
use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::ResolveError;

pub(super) use place::is_hidden_by_pack;
pub(super) use write::write;

use super::path;

/// Decides which entries of a pack may be written. The default methods allow everything.
pub trait PackRules {
    /// Called before an entry is written. Returns whether it may replace an existing one.
    ///
    /// # Errors
    /// The reason for which the entry is refused. Other entries are written.
    fn entry(&mut self, entry: &Entry<'_>) -> Result<bool, Fault>;

    /// Called before a directory is created that no entry names.
    ///
    /// # Errors
    /// The reason for which the entry that needs it is refused.
    fn directory(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether files get their names before they are durable.
    fn is_relaxed(&self) -> bool {
        false
    }

    /// Whether files may get set-user-id and set-group-id together with their owners. A store with
    /// a root sets them only in a process of the user root.
    fn may_set_id(&self) -> bool {
        true
    }

    /// Whether to count [`PackChange::replaced_bytes`], which takes more system calls.
    fn counts(&self) -> bool {
        false
    }
}

/// The changes that a pack has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackChange {
    /// New names, directories that no entry names included.
    pub names: u64,
    /// Of these, directories that no entry names.
    pub directories: u64,
    /// Bytes of the files and hard links created.
    pub bytes: u64,
    /// Bytes of the files that were replaced, if [`PackRules::counts`].
    pub replaced_bytes: u64,
}

/// Options for writing the entries of a pack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackOptions {
    /// Files, links and pipes replace existing entries.
    pub overwrite: bool,
    /// Files get their names before they are durable: a crash of the system may leave them
    /// incomplete.
    pub relaxed: bool,
}

impl PackRules for PackOptions {
    fn entry(&mut self, _: &Entry<'_>) -> Result<bool, Fault> {
        Ok(self.overwrite)
    }

    fn is_relaxed(&self) -> bool {
        self.relaxed
    }
}

/// The reason for which an entry is not written.
#[derive(Clone, Debug)]
struct Problem {
    /// Boxed, since results with it are returned for each entry.
    fault: Box<Fault>,
    /// It applies to all following entries.
    is_final: bool,
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self {
            fault: Box::new(fault),
            is_final: false,
        }
    }
}

impl Problem {
    /// A failed system call. Operation and path are added later.
    fn io(error: &io::Error) -> Self {
        use io::ErrorKind as K;
        let kind = error.kind();
        let fault = match kind {
            K::AlreadyExists => Fault::new(Code::AlreadyExists, "", "the name is taken")
                .hint("use --force to overwrite"),
            K::InvalidInput => Fault::new(
                Code::InvalidArgument,
                "",
                "the file system doesn't take this",
            ),
            _ => Fault::from_io("", b"", error),
        };
        Self {
            fault: Box::new(fault),
            is_final: matches!(
                kind,
                K::StorageFull | K::QuotaExceeded | K::ReadOnlyFilesystem
            ),
        }
    }

    fn resolve(error: &ResolveError) -> Self {
        match error {
            ResolveError::Io(error) => Self::io(error),
            error => Fault::new(Code::PathEscape, "", error.to_string()).into(),
        }
    }

    fn new(code: Code, cause: impl Into<String>) -> Self {
        Fault::new(code, "", cause).into()
    }
}

/// The parent directory and last component of a path of a pack.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        None => (b"", path),
    }
}

/// Refuses reserved names, and names that are invalid on this system.
fn check_name(name: &[u8]) -> Result<(), Problem> {
    if path::is_hidden_name(name) {
        return Err(path::hidden_fault("", b"").into());
    }
    if cfg!(windows) && name.iter().any(|b| matches!(b, b'\\' | b':')) {
        let cause = "no name has a backslash or a colon on this system";
        return Err(Problem::new(Code::InvalidArgument, cause));
    }
    Ok(())
}

/// A path of a pack, relative to the root of the store.
fn shown(root: &[u8], path: &[u8]) -> Vec<u8> {
    let needs_separator = !(root.is_empty() || path.is_empty() || root.ends_with(b"/"));
    let separator: &[u8] = if needs_separator { b"/" } else { b"" };
    [root, separator, path].concat()
}
