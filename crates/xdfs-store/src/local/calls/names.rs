//! Calls that create, remove and rename entries.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;

use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{Dir, FileKind};

use super::super::pack::is_hidden_by_pack;
use super::super::path;
use super::attributes::check_directory_mode;
use super::{Name, Paths, io_fault, not_found, resolve_fault};

/// Maximum number of leftover journals and pack files removed with a directory.
const LEFTOVERS_MAX: usize = 1024;

pub(super) fn make_directory(
    paths: &Paths<'_>,
    requested: &[u8],
    mode: Option<u32>,
    parents: bool,
) -> Result<(), Fault> {
    paths.check(requested)?;
    mode.map_or(Ok(()), |mode| check_directory_mode(paths, requested, mode))?;
    if parents {
        return make_all(paths, requested, mode, &mut || Ok(()), &mut 0);
    }
    let name = match paths.name(requested) {
        // The root, or '.', which exist.
        Err(fault) if fault.code == Code::InvalidArgument && paths.enter(requested).is_ok() => {
            return Err(io_fault(requested, &io::ErrorKind::AlreadyExists.into()));
        }
        Err(fault) if fault.code == Code::NotDirectory && is_taken(paths, requested) => {
            return Err(io_fault(requested, &io::ErrorKind::AlreadyExists.into()));
        }
        name => name?,
    };
    let made = name.dir.make_dir(name.name, mode);
    made.map_err(|error| name.fault(&error))
}

/// Whether a requested directory's name is taken by another kind of entry.
fn is_taken(paths: &Paths<'_>, requested: &[u8]) -> bool {
    let end = requested.iter().rposition(|b| !path::is_separator(b));
    let name = paths.name(&requested[..end.map_or(0, |end| end + 1)]);
    name.is_ok_and(|name| matches!(name.meta(), Ok(Some(_))))
}

/// Creates a directory and its missing parents. `allow` is called before each, and `made` counts
/// them.
pub(in super::super) fn make_directories(
    paths: &Paths<'_>,
    requested: &[u8],
    allow: &mut dyn FnMut() -> Result<(), Fault>,
    made: &mut u64,
) -> Result<(), Fault> {
    make_all(paths, requested, None, allow, made)
}

fn make_all(
    paths: &Paths<'_>,
    requested: &[u8],
    mode: Option<u32>,
    allow: &mut dyn FnMut() -> Result<(), Fault>,
    made: &mut u64,
) -> Result<(), Fault> {
    // Starts from the end, since most parents usually exist.
    let mut missing = Vec::new();
    let mut rest = requested;
    loop {
        match paths.enter(rest) {
            Ok(_) => break,
            Err(xdfs_sys::fs::ResolveError::Io(error))
                if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let fault = resolve_fault(requested, &error);
                let is_last = missing.is_empty();
                if fault.code == Code::NotDirectory && is_last && is_taken(paths, requested) {
                    return Err(io_fault(requested, &io::ErrorKind::AlreadyExists.into()));
                }
                return Err(fault);
            }
        }
        let end = rest.iter().rposition(|b| !path::is_separator(b));
        let Some(end) = end else { break };
        missing.push(&rest[..=end]);
        let cut = rest[..end].iter().rposition(path::is_separator);
        rest = &rest[..cut.map_or(0, |cut| cut + 1)];
        if rest.is_empty() {
            break;
        }
    }
    while let Some(next) = missing.pop() {
        let (_, last) = path::split(next);
        if last.is_empty() {
            // '.' or '..' in a directory that exists by now.
            continue;
        }
        let name = paths.name(next).map_err(|fault| fault.path(requested))?;
        let mode = if missing.is_empty() { mode } else { None };
        allow()?;
        match name.dir.make_dir(name.name, mode) {
            Ok(()) => *made += 1,
            // Created concurrently, or a dangling symbolic link.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                paths.enter(next).map_err(|_| io_fault(requested, &error))?;
            }
            Err(error) => return Err(io_fault(requested, &error)),
        }
    }
    let there = paths.enter(requested).map(|_| ());
    there.map_err(|error| resolve_fault(requested, &error))
}

pub(super) fn remove_file(paths: &Paths<'_>, requested: &[u8]) -> Result<(), Fault> {
    let name = paths.name(requested)?;
    // Systems report different errors for a directory, and some would even remove it.
    if name.is_directory || name.existing()?.kind == FileKind::Directory {
        name.existing()?;
        return Err(Fault::new(Code::IsDirectory, "", "is a directory")
            .path(requested)
            .hint("remove it as a directory"));
    }
    let removed = name.dir.remove(name.name);
    removed.map_err(|error| name.fault(&error))
}

pub(super) fn remove_directory(paths: &Paths<'_>, requested: &[u8]) -> Result<(), Fault> {
    let name = paths.name(requested)?;
    let removed = match name.dir.remove_dir(name.name) {
        Err(error)
            if error.kind() == io::ErrorKind::DirectoryNotEmpty && removes_leftovers(&name) =>
        {
            name.dir.remove_dir(name.name)
        }
        result => result,
    };
    removed.map_err(|error| {
        let mut fault = name.fault(&error);
        if fault.code == Code::NotEmpty {
            fault.cause = "it isn't empty, or unfinished transfers are in it".into();
        }
        fault
    })
}

/// Removes leftover journals and pack files from a directory that contains nothing else; `false` if
/// it does. A process killed just before or after a file got its name leaves them, and hidden files
/// must not keep a directory from being removed.
fn removes_leftovers(name: &Name<'_>) -> bool {
    let Ok(dir) = name.dir.child(name.name) else {
        return false;
    };
    let (mut journals, mut parts) = (HashSet::new(), Vec::new());
    let read = dir.each_name(None, &mut |name, _, _| {
        let is_room = journals.len() + parts.len() < LEFTOVERS_MAX;
        if is_room && path::is_journal_name(name) {
            journals.insert(name.to_vec());
        } else if is_room && is_hidden_by_pack(name) {
            parts.push(name.to_vec());
        } else {
            journals.clear();
            parts.clear();
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    if read.is_err() || journals.len() + parts.len() == 0 {
        return false;
    }
    let mut locks = Vec::new();
    for part in &parts {
        // A transfer to that target would resume with it.
        if path::journals_of_partial(part).any(|journal| journals.contains(&journal)) {
            return false;
        }
        match lock_of_part(&dir, part) {
            Ok(lock) => locks.push(lock),
            Err(_) => return false,
        }
    }
    // A running transfer also has its partial file there, or the published file.
    parts
        .iter()
        .chain(&journals)
        .all(|name| dir.remove(name).is_ok())
}

/// Locks a leftover pack file, which no process may be writing. Other kinds of entries get their
/// final names right after creation, so no lock is needed.
fn lock_of_part(dir: &Dir, name: &[u8]) -> io::Result<Option<File>> {
    match dir.meta_of(name)? {
        Some(meta) if meta.kind == FileKind::Regular => {
            let file = dir.open_name(name)?;
            file.try_lock().map_err(io::Error::from)?;
            Ok(Some(file))
        }
        Some(meta) if meta.kind == FileKind::Directory => Err(io::ErrorKind::IsADirectory.into()),
        _ => Ok(None),
    }
}

pub(super) fn rename(
    paths: &Paths<'_>,
    from: &[u8],
    to: &[u8],
    overwrite: bool,
) -> Result<(), Fault> {
    let old = paths.name(from)?;
    let new = paths.name(to)?;
    let meta = old.existing()?;
    let kept = paths.store.check_kept(meta.kind);
    kept.map_err(|fault| fault.path(from))?;
    let is_directory = meta.kind == FileKind::Directory;
    if new.is_directory && !is_directory {
        return Err(old.not_directory());
    }
    let renamed = old.dir.rename_to(old.name, &new.dir, new.name, overwrite);
    renamed.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput if is_directory => {
            let cause = "a directory can't be moved into itself";
            Fault::new(Code::InvalidArgument, "", cause).path(to)
        }
        // It vanished meanwhile; the directories are held open.
        io::ErrorKind::NotFound => not_found(from),
        _ => new.fault(&error),
    })?;
    sync(&new)?;
    sync(&old)
}

/// Makes the names in a directory durable. This is impossible if the directory can't be read.
fn sync(name: &Name<'_>) -> Result<(), Fault> {
    let Ok(dir) = name.dir.open_dir_beneath(b"") else {
        return Ok(());
    };
    dir.sync().map_err(|error| name.fault(&error))
}

pub(super) fn link(paths: &Paths<'_>, existing: &[u8], requested: &[u8]) -> Result<(), Fault> {
    let old = paths.name(existing)?;
    let new = paths.name(requested)?;
    let kind = old.existing()?.kind;
    let kept = paths.store.check_kept(kind);
    kept.map_err(|fault| fault.path(existing))?;
    if kind == FileKind::Directory {
        let cause = "a directory can't have two names";
        return Err(Fault::new(Code::IsDirectory, "", cause).path(existing));
    }
    if new.is_directory {
        return Err(new.not_directory());
    }
    let linked = old.dir.link_to(old.name, &new.dir, new.name);
    linked.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => not_found(existing),
        io::ErrorKind::TooManyLinks | io::ErrorKind::PermissionDenied => old.fault(&error),
        _ => new.fault(&error),
    })
}

pub(super) fn symlink(paths: &Paths<'_>, target: &[u8], requested: &[u8]) -> Result<(), Fault> {
    let name = paths.name(requested)?;
    if target.is_empty() || target.contains(&0) {
        let cause = "a symbolic link can't say this";
        return Err(Fault::new(Code::InvalidArgument, "", cause).path(requested));
    }
    // The target of the link isn't resolved, but must not lead to an unfinished transfer.
    if target.split(path::is_separator).any(path::is_hidden_name) {
        return Err(path::hidden_fault("", requested));
    }
    if name.is_directory {
        return Err(name.not_directory());
    }
    let made = name.dir.symlink(target, name.name);
    made.map_err(|error| name.fault(&error))
}
