//! Applies the metadata of an entry.
//!
//! The order matters: changing the owner clears set-user-id and set-group-id, changing the mode
//! changes an access control list, and every change updates times.

use std::fs::File;
use std::io;

use xdfs_proto::Code;
use xdfs_proto::pack::{Metadata, Owner};
use xdfs_sys::fs::{self, Handle};

use super::super::owners::{OwnerNumbers, SettableOwners};
use super::super::store::SPECIAL;
use super::Problem;

/// Set-user-id and set-group-id.
pub(super) const SET_ID: u32 = 0o6000;

/// The access control list inherited by new entries of a directory.
pub(super) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Whether packs carry this extended attribute.
pub(super) fn is_carried(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == b"system.posix_acl_access" || name == DEFAULT_ACL
}

/// An open entry that accepts metadata.
pub(super) trait MetadataTarget {
    fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()>;
    fn set_mode(&self, mode: u32) -> io::Result<()>;
    fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()>;
    fn set_times(&self, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> io::Result<()>;
}

impl MetadataTarget for File {
    fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        fs::set_owner(self, uid, gid)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::set_mode(self, mode)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        fs::set_xattr(self, name, value)
    }

    fn set_times(&self, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> io::Result<()> {
        fs::set_times(self, atime_ns, mtime_ns)
    }
}

impl MetadataTarget for Handle {
    fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        self.set_owner(uid, gid)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.set_mode(mode)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        self.set_xattr(name, value)
    }

    fn set_times(&self, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> io::Result<()> {
        self.set_times(atime_ns, mtime_ns)
    }
}

/// The first problem; later steps are performed nevertheless.
#[derive(Debug, Default)]
pub(super) struct FirstProblem(Option<(&'static str, Problem)>);

impl FirstProblem {
    pub(super) fn record(&mut self, what: &'static str, result: Result<(), Problem>) -> bool {
        match result {
            Ok(()) => true,
            Err(problem) => {
                self.0.get_or_insert((what, problem));
                false
            }
        }
    }

    /// The problem of an entry that exists.
    pub(super) fn into_result(self) -> Result<(), Problem> {
        let Some((what, mut problem)) = self.0 else {
            return Ok(());
        };
        let cause = &problem.fault.cause;
        problem.fault.cause = format!("it exists, but its {what} could not be set: {cause}");
        Err(problem)
    }
}

/// Applies the metadata of an entry. `current_mode` is `None` if unknown. `mode` includes the bits
/// of [`SPECIAL`] that may be set together with the owner; it is a problem if the metadata requires
/// others, unless this user can't give files to others anyway.
pub(super) fn set_metadata(
    target: &dyn MetadataTarget,
    metadata: &Metadata<'_>,
    mut mode: Option<u32>,
    current_mode: Option<u32>,
    owners: &mut OwnerNumbers,
    first_problem: &mut FirstProblem,
) {
    let io = |result: io::Result<()>| result.map_err(|error| Problem::io(&error));
    let mut is_as_made = true;
    if let Some(owner) = &metadata.owner {
        let set = set_owner(owner, owners, |uid, gid| target.set_owner(uid, gid));
        let is_set = matches!(set, Ok(OwnerOutcome::Set));
        if let Err(problem) = set {
            first_problem.record("owner", Err(problem));
        }
        if !is_set {
            // Without the intended owner, set-id bits would grant another user's rights.
            mode = mode.map(|mode| mode & !SET_ID);
        }
        is_as_made = false;
        let lost = metadata.mode.map_or(0, u32::from) & SPECIAL & !mode.unwrap_or(0);
        if is_set && lost != 0 && matches!(owners.settable(), Ok(SettableOwners::Any)) {
            let (what, cause) = match lost & SET_ID {
                0 => ("sticky bit", "the sticky bit may not be set here"),
                _ => (
                    "set-user-id or set-group-id",
                    "set-user-id and set-group-id may not be set here",
                ),
            };
            let denied = Problem::new(Code::PermissionDenied, cause);
            first_problem.record(what, Err(denied));
        }
    }
    if let Some(mode) = mode
        && (current_mode != Some(mode) || (!is_as_made && mode & SET_ID != 0))
    {
        first_problem.record("mode", io(target.set_mode(mode)));
    }
    for (name, value) in &metadata.xattrs {
        let result = if is_carried(name) {
            target
                .set_xattr(name, value)
                .map_err(|error| match error.kind() {
                    // Some file systems have little room for attributes, and it says nothing about
                    // the room for files.
                    io::ErrorKind::StorageFull => {
                        let cause = "the file system has no room for so many or such long ones";
                        Problem::new(Code::LimitExceeded, cause)
                    }
                    _ => Problem::io(&error),
                })
        } else {
            let name = name.escape_ascii();
            let cause = format!("'{name}' is neither a user's attribute nor a list of access");
            Err(Problem::new(Code::PermissionDenied, cause))
        };
        first_problem.record("extended attributes", result);
    }
    if metadata.mtime_ns.is_some() || metadata.atime_ns.is_some() {
        let result = io(target.set_times(metadata.atime_ns, metadata.mtime_ns));
        first_problem.record("times", result);
    }
}

/// The outcome for the owner of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerOutcome {
    /// Owner and group are those of the source.
    Set,
    /// This user can't give files to others: at most the group was set.
    LeftOut,
}

/// Resolves an owner to numbers and sets it, or what of it this user may set.
pub(super) fn set_owner(
    owner: &Owner<'_>,
    owners: &mut OwnerNumbers,
    set: impl Fn(Option<u32>, Option<u32>) -> io::Result<()>,
) -> Result<OwnerOutcome, Problem> {
    let (uid, gid) = owners.of(owner)?;
    let io = |error: io::Error| Problem::io(&error);
    match set(Some(uid), Some(gid)) {
        Ok(()) => return Ok(OwnerOutcome::Set),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            if *owners.settable().map_err(io)? == SettableOwners::Any {
                return Err(io(error));
            }
        }
        Err(error) => return Err(io(error)),
    }
    match set(None, Some(gid)) {
        // The user isn't a member of the group, or doesn't own the entry.
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(io(error)),
        _ => Ok(OwnerOutcome::LeftOut),
    }
}
