//! Calls that make, remove and change names.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;

use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{Dir, FileKind};

use super::super::pack::is_hidden_by_pack;
use super::super::path;
use super::attributes::check_mode;
use super::{Name, Paths, io_fault, not_found, resolve_fault};

/// Journals and files of packs that are removed with a directory.
const LEFTOVERS_MAX: usize = 1024;

pub(super) fn make_directory(
    paths: &Paths<'_>,
    asked: &[u8],
    mode: Option<u32>,
    parents: bool,
) -> Result<(), Fault> {
    paths.check(asked)?;
    mode.map_or(Ok(()), |mode| check_mode(asked, mode))?;
    if parents {
        return make_all(paths, asked, mode, &mut || Ok(()), &mut 0);
    }
    let name = match paths.name(asked) {
        // The root, or '.': it is there.
        Err(fault) if fault.code == Code::InvalidArgument && paths.enter(asked).is_ok() => {
            return Err(io_fault(asked, &io::ErrorKind::AlreadyExists.into()));
        }
        Err(fault) if fault.code == Code::NotDirectory && is_taken(paths, asked) => {
            return Err(io_fault(asked, &io::ErrorKind::AlreadyExists.into()));
        }
        name => name?,
    };
    let made = name.dir.make_dir(name.name, mode);
    made.map_err(|error| name.fault(&error))
}

/// Whether something that is no directory has the name that a directory should get.
fn is_taken(paths: &Paths<'_>, asked: &[u8]) -> bool {
    let end = asked.iter().rposition(|b| !path::is_separator(b));
    let name = paths.name(&asked[..end.map_or(0, |end| end + 1)]);
    name.is_ok_and(|name| matches!(name.meta(), Ok(Some(_))))
}

/// Makes a directory and those above it that are missing. `allow` is asked before each, and `made`
/// counts them.
pub(in super::super) fn make_directories(
    paths: &Paths<'_>,
    asked: &[u8],
    allow: &mut dyn FnMut() -> Result<(), Fault>,
    made: &mut u64,
) -> Result<(), Fault> {
    make_all(paths, asked, None, allow, made)
}

fn make_all(
    paths: &Paths<'_>,
    asked: &[u8],
    mode: Option<u32>,
    allow: &mut dyn FnMut() -> Result<(), Fault>,
    made: &mut u64,
) -> Result<(), Fault> {
    // From behind, since most of the directories are mostly there.
    let mut missing = Vec::new();
    let mut rest = asked;
    loop {
        match paths.enter(rest) {
            Ok(_) => break,
            Err(xdfs_sys::fs::ResolveError::Io(error))
                if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let fault = resolve_fault(asked, &error);
                let is_last = missing.is_empty();
                if fault.code == Code::NotDirectory && is_last && is_taken(paths, asked) {
                    return Err(io_fault(asked, &io::ErrorKind::AlreadyExists.into()));
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
            // '.' or '..' in a directory that is there by now.
            continue;
        }
        let name = paths.name(next).map_err(|fault| fault.path(asked))?;
        let mode = if missing.is_empty() { mode } else { None };
        allow()?;
        match name.dir.make_dir(name.name, mode) {
            Ok(()) => *made += 1,
            // Somebody else made it at this moment, or it is a link that leads nowhere.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                paths.enter(next).map_err(|_| io_fault(asked, &error))?;
            }
            Err(error) => return Err(io_fault(asked, &error)),
        }
    }
    let there = paths.enter(asked).map(|_| ());
    there.map_err(|error| resolve_fault(asked, &error))
}

pub(super) fn remove_file(paths: &Paths<'_>, asked: &[u8]) -> Result<(), Fault> {
    let name = paths.name(asked)?;
    // Systems differ in what they say of a directory, and some would even remove it.
    if name.is_directory || name.existing()?.kind == FileKind::Directory {
        name.existing()?;
        return Err(Fault::new(Code::IsDirectory, "", "is a directory")
            .path(asked)
            .hint("remove it as a directory"));
    }
    let removed = name.dir.remove(name.name);
    removed.map_err(|error| name.fault(&error))
}

pub(super) fn remove_directory(paths: &Paths<'_>, asked: &[u8]) -> Result<(), Fault> {
    let name = paths.name(asked)?;
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

/// Removes journals, and what packs left, from a directory that has nothing else; `false` if it
/// has. Who was killed right before or after a file got its name left them, and nobody would see
/// what keeps the directory.
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
        // A transfer whose target is called like that goes on with it.
        if path::journals_of_partial(part).any(|journal| journals.contains(&journal)) {
            return false;
        }
        match lock_of_part(&dir, part) {
            Ok(lock) => locks.push(lock),
            Err(_) => return false,
        }
    }
    // While a transfer runs its partial file is there too, or the file under its name.
    parts
        .iter()
        .chain(&journals)
        .all(|name| dir.remove(name).is_ok())
}

/// Takes the lock of a file that a pack left, which nobody must be writing. What is no file gets
/// its name right after it is made: nobody waits with it.
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
        // It vanished meanwhile, and the directories are held.
        io::ErrorKind::NotFound => not_found(from),
        _ => new.fault(&error),
    })?;
    sync(&new)?;
    sync(&old)
}

/// Makes the names in a directory durable. One that may not be read can't be.
fn sync(name: &Name<'_>) -> Result<(), Fault> {
    let Ok(dir) = name.dir.open_dir_beneath(b"") else {
        return Ok(());
    };
    dir.sync().map_err(|error| name.fault(&error))
}

pub(super) fn link(paths: &Paths<'_>, existing: &[u8], asked: &[u8]) -> Result<(), Fault> {
    let old = paths.name(existing)?;
    let new = paths.name(asked)?;
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

pub(super) fn symlink(paths: &Paths<'_>, target: &[u8], asked: &[u8]) -> Result<(), Fault> {
    let name = paths.name(asked)?;
    if target.is_empty() || target.contains(&0) {
        let cause = "a symbolic link can't say this";
        return Err(Fault::new(Code::InvalidArgument, "", cause).path(asked));
    }
    // What the link says isn't resolved. But an unfinished transfer isn't to be reached by it.
    if target.split(path::is_separator).any(path::is_hidden_name) {
        return Err(path::hidden_fault("", asked));
    }
    if name.is_directory {
        return Err(name.not_directory());
    }
    let made = name.dir.symlink(target, name.name);
    made.map_err(|error| name.fault(&error))
}
