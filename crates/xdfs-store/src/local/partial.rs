//! The partial file: created or opened, checked for ownership, and locked.
//!
//! The lock belongs to the open file (`flock`), so it ends with the process in any case. It
//! excludes all processes that transfer to the same name, and nobody else.

use std::fs::{File, TryLockError};
use std::io;

use xdfs_proto::{Code, Fault, Retry};
use xdfs_sys::fs::{self, FileKind};

use super::path::{HiddenNames, OPEN_TARGET};
use super::target::Target;
use crate::BUSY_RETRY;

/// Attempts while the partial file vanishes or turns out not to be ours.
const ATTEMPTS: u32 = 16;
/// Mode of a partial file: unpublished data is private.
const PRIVATE: u32 = 0o600;

/// A partial file that only this sink may write.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) file: File,
    /// It was created by this attempt, and is empty.
    pub(super) is_new: bool,
}

impl Partial {
    /// Opens or creates the partial file of `target`, and locks it.
    pub(super) fn open(target: &Target, names: &HiddenNames) -> Result<Self, Fault> {
        let io_fault = |error: &io::Error| Fault::from_io(OPEN_TARGET, &target.path, error);
        for _ in 0..ATTEMPTS {
            let (file, is_new) = match target.dir.create_new(&names.partial) {
                Ok(file) => (file, true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    match open_existing(target, names)? {
                        Some(file) => (file, false),
                        None => continue,
                    }
                }
                Err(error) => return Err(io_fault(&error)),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(busy(target)),
                Err(TryLockError::Error(error)) => {
                    let cause = format!("the file system can't lock a file: {error}");
                    let fault = Fault::new(Code::Unsupported, OPEN_TARGET, cause);
                    return Err(fault.path(&target.path));
                }
            }
            // The previous holder of the lock may have published or removed this file.
            if !is_named(target, names, &file).map_err(|error| io_fault(&error))? {
                continue;
            }
            let meta = fs::meta(&file).map_err(|error| io_fault(&error))?;
            // A second name might be a published file's, and another owner could modify it after
            // verification.
            if !is_new && (meta.links != 1 || !fs::is_ours(&meta)) {
                remove(target, names)?;
                continue;
            }
            if !is_new {
                fs::set_mode(&file, PRIVATE).map_err(|error| io_fault(&error))?;
            }
            return Ok(Self { file, is_new });
        }
        Err(busy(target))
    }
}

/// Opens the partial file of `target` that has this number, and that another process has locked.
pub(super) fn open_numbered(target: &Target, number: u64) -> Result<File, Fault> {
    const OPERATION: &str = "open the unfinished file";
    const HINT: &str = "all machines have to see the same file system there";
    let names = HiddenNames::of(&target.name);
    let Some(file) = open_existing_regular(target, &names)? else {
        let cause = "it isn't there";
        let fault = Fault::new(Code::NotFound, OPERATION, cause).path(&target.path);
        return Err(fault.hint(HINT));
    };
    let meta = fs::meta(&file);
    let meta = meta.map_err(|error| Fault::from_io(OPERATION, &target.path, &error))?;
    let is_it = meta.identity.is_some_and(|(_, own)| own == number) && meta.links == 1;
    if !is_it {
        let cause = "it is another one than the server has told";
        let fault = Fault::new(Code::Stale, OPERATION, cause).path(&target.path);
        return Err(fault.hint(HINT));
    }
    Ok(file)
}

/// The partial file if it is a regular file; nothing is removed.
fn open_existing_regular(target: &Target, names: &HiddenNames) -> Result<Option<File>, Fault> {
    let fault = |error: io::Error| Fault::from_io(OPEN_TARGET, &target.path, &error);
    match target.dir.meta_of(&names.partial).map_err(fault)? {
        Some(meta) if meta.kind == FileKind::Regular => {}
        _ => return Ok(None),
    }
    let file = target.dir.open_existing(&names.partial).map_err(fault)?;
    let kind = fs::meta(&file).map_err(fault)?.kind;
    Ok((kind == FileKind::Regular).then_some(file))
}

/// Opens an existing partial file; `None` to try again, since it vanished or was removed.
fn open_existing(target: &Target, names: &HiddenNames) -> Result<Option<File>, Fault> {
    let opened = target.dir.open_existing(&names.partial);
    let kind = match &opened {
        Ok(file) => fs::meta(file).map(|meta| Some(meta.kind)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) => target
            .dir
            .meta_of(&names.partial)
            .map(|meta| meta.map(|m| m.kind)),
    };
    let kind = kind.map_err(|error| Fault::from_io(OPEN_TARGET, &target.path, &error))?;
    match (kind, opened) {
        (None, _) => Ok(None),
        (Some(FileKind::Regular), Ok(file)) => Ok(Some(file)),
        (Some(FileKind::Regular), Err(error)) => {
            let name = names.partial.escape_ascii();
            Err(
                Fault::from_io(OPEN_TARGET, &target.path, &error).hint(format!(
                    "the unfinished transfer '{name}' is another user's; remove it"
                )),
            )
        }
        // Not created by a transfer.
        (Some(_), _) => remove(target, names).map(|()| None),
    }
}

fn remove(target: &Target, names: &HiddenNames) -> Result<(), Fault> {
    match target.dir.remove(&names.partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let name = names.partial.escape_ascii();
            Err(Fault::from_io(OPEN_TARGET, &target.path, &error)
                .hint(format!("'{name}' is in the way; remove it")))
        }
        _ => Ok(()),
    }
}

/// Whether the open file still has the name of the partial file.
pub(super) fn is_named(target: &Target, names: &HiddenNames, file: &File) -> io::Result<bool> {
    let named = target.dir.meta_of(&names.partial)?;
    let ours = fs::meta(file)?;
    Ok(named.is_some_and(|named| named.identity == ours.identity))
}

/// Checks that no other transfer writes the target, without creating anything.
pub(super) fn check_free(target: &Target, names: &HiddenNames) -> Result<(), Fault> {
    let Ok(file) = target.dir.open_existing(&names.partial) else {
        return Ok(());
    };
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(busy(target));
    }
    unlock(&file);
    Ok(())
}

/// Releases the lock. Closing the file isn't enough: a process being started by another thread
/// holds a copy of the descriptor, and with it the lock, until it executes.
pub(super) fn unlock(file: &File) {
    // After a failure the lock ends with the last copy of the descriptor.
    let _ = file.unlock();
}

pub(super) fn busy(target: &Target) -> Fault {
    let wait = u32::try_from(BUSY_RETRY.as_millis()).unwrap_or(u32::MAX);
    Fault::new(
        Code::Busy,
        OPEN_TARGET,
        "another transfer is writing to this target",
    )
    .path(&target.path)
    .hint("wait for it to end, or choose another target")
    .retry(Retry::AfterMs(wait))
}
