//! Files of an export opened for access in place: rights and quotas.
//!
//! | opened | rights |
//! |---|---|
//! | for reading | `read` |
//! | for writing, existing | `write` |
//! | for writing, created | `create` |
//!
//! A user with `create` and without `write` can write only to files created by the same open, not
//! reopen them.

use std::sync::{Arc, Mutex, PoisonError};

use xdfs_proto::file::FileFlags;
use xdfs_proto::path::Attributes;
use xdfs_proto::{Code, Fault};
use xdfs_store::{File, FileRequest, OpenedFile};

use super::Rights;
use super::builtin::BuiltIn;
use super::file::Terms;
use super::folder::{Counted, Folder};
use super::store::{ExportStore, Located, denial, gone};

const OPEN: &str = "open";

impl ExportStore {
    pub(super) fn open_in_place(&self, request: &FileRequest) -> Result<OpenedFile, Fault> {
        let asked = &*request.path;
        if BuiltIn::of(asked).is_some() {
            return Err(Fault::new(Code::Unsupported, OPEN, "it is built in").path(asked));
        }
        let located = self.locate_file(request)?;
        let may_replace = located.rights.contains(Rights::WRITE);
        let may_make = located.rights.contains(Rights::CREATE);
        let flags = &request.flags;
        let cause = denial(Rights::CREATE, located.rights);
        let denied = || Fault::new(Code::PermissionDenied, OPEN, cause);
        if flags.exclusive && !may_make {
            return Err(denied().path(asked));
        }
        let folder = self
            .folder(&located, true)?
            .ok_or_else(|| gone(OPEN).path(asked))?;
        let terms = Terms {
            prefix: located.prefix.clone(),
            largest_file: self.shared.exports[located.index].largest_file,
            new_only: flags.write && !may_replace && !flags.exclusive,
        };
        let inner = FileRequest {
            path: located.inner,
            flags: FileFlags {
                create: flags.create && may_make,
                exclusive: flags.exclusive || flags.write && !may_replace,
                // Done when it is open and counted.
                truncate: false,
                ..flags.clone()
            },
            ..request.clone()
        };
        let opened = open_counted(&folder, &inner).map_err(|fault| {
            if fault.code == Code::NotFound && flags.create && !may_make {
                return denied().path(asked);
            }
            terms.fault(fault)
        })?;
        let file = ExportFile {
            inner: opened.file,
            terms,
            path: inner.path,
            number: opened.identity.inode,
            folder,
            unlinked: Mutex::new(0),
        };
        let mut attributes = opened.attributes;
        if flags.truncate && !opened.created && !file.is_pipe() {
            file.set_length(0)?;
            attributes = file.attributes()?;
        }
        Ok(OpenedFile {
            file: Box::new(file),
            attributes,
            ..opened
        })
    }

    /// Locates a file and checks that the principal may open it.
    fn locate_file(&self, request: &FileRequest) -> Result<Located, Fault> {
        let flags = &request.flags;
        let locate = |need| self.locate(OPEN, &request.path, b"", need);
        if !flags.write {
            return locate(Rights::READ);
        }
        if flags.read {
            locate(Rights::READ)?;
        }
        match locate(Rights::WRITE) {
            Err(fault) if flags.create && fault.code == Code::PermissionDenied => {
                locate(Rights::CREATE)
            }
            found => found,
        }
    }
}

/// Opens a file, and counts it if it is created.
fn open_counted(folder: &Folder, request: &FileRequest) -> Result<OpenedFile, Fault> {
    let Some(counted) = folder.counted.as_ref().filter(|_| request.flags.create) else {
        return folder.files.open_file(request);
    };
    if !request.flags.exclusive {
        let existing = FileRequest {
            flags: FileFlags {
                create: false,
                ..request.flags.clone()
            },
            mode: None,
            ..request.clone()
        };
        match folder.files.open_file(&existing) {
            Err(fault) if fault.code == Code::NotFound => {}
            result => return result,
        }
    }
    counted
        .take(0, 1)
        .map_err(|fault| fault.path(&request.path))?;
    let opened = folder.files.open_file(request);
    if !opened.as_ref().is_ok_and(|opened| opened.created) {
        counted.ledger.give(0, 1);
    }
    opened
}

impl Counted {
    fn take(&self, bytes: u64, files: u64) -> Result<(), Fault> {
        self.ledger.take(&self.root, self.quota, bytes, files)
    }
}

/// An open file of an export.
#[derive(Debug)]
struct ExportFile {
    inner: Box<dyn File>,
    terms: Terms,
    /// The path in the export.
    path: Vec<u8>,
    /// The number of the file, for its turns.
    number: u64,
    folder: Arc<Folder>,
    /// Bytes counted since the file lost its last name, which only this handle can release.
    unlinked: Mutex<u64>,
}

impl ExportFile {
    fn seen<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|fault| self.terms.fault(fault))
    }

    /// Performs an operation that may change the length of the file. `wanted` computes the maximum
    /// resulting length from the present one. Each hard link of the file is counted.
    fn resize<T>(
        &self,
        counted: &Counted,
        wanted: impl FnOnce(u64) -> u64,
        act: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let _turn = counted.ledger.turns.length(self.number);
        let before = self.inner.attributes()?;
        let wanted = wanted(before.size);
        self.check_length(wanted)?;
        let names = before.links.max(1);
        let more = wanted.saturating_sub(before.size).saturating_mul(names);
        let taken = counted.take(more, 0);
        taken.map_err(|fault| fault.path(&self.path))?;
        let result = act();
        let after = match (&result, self.inner.attributes()) {
            (_, Ok(after)) => after.size,
            (Ok(_), Err(_)) => wanted,
            (Err(_), Err(_)) => before.size,
        };
        let mut unlinked = self.unlinked.lock().unwrap_or_else(PoisonError::into_inner);
        let grown = after.saturating_sub(before.size).saturating_mul(names);
        let mut back = more.saturating_sub(grown);
        let shrunk = before.size.saturating_sub(after).saturating_mul(names);
        if before.links == 0 {
            *unlinked += grown.min(more);
            let own = shrunk.min(*unlinked);
            *unlinked -= own;
            back += own;
        } else {
            back += shrunk;
        }
        counted.ledger.give(back, 0);
        result
    }

    fn check_length(&self, length: u64) -> Result<(), Fault> {
        let checked = self.terms.check_length(length);
        checked.map_err(|fault| fault.path(&self.path))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let end = offset.saturating_add(bytes.len() as u64);
        self.check_length(end)?;
        let act = || self.inner.write_at(offset, bytes);
        let Some(counted) = &self.folder.counted else {
            return act();
        };
        {
            let _turn = counted.ledger.turns.content(self.number);
            if end <= self.inner.attributes()?.size {
                return act();
            }
        }
        self.resize(counted, |size| size.max(end), act)
    }

    fn put_at_end(&self, bytes: &[u8]) -> Result<u64, Fault> {
        let act = || self.inner.append(bytes);
        let end = |size: u64| size.saturating_add(bytes.len() as u64);
        match &self.folder.counted {
            Some(counted) => self.resize(counted, end, act),
            None => {
                if self.terms.largest_file.is_some() {
                    self.check_length(end(self.inner.attributes()?.size))?;
                }
                act()
            }
        }
    }

    fn change_length(&self, length: u64) -> Result<(), Fault> {
        let act = || self.inner.set_length(length);
        match &self.folder.counted {
            Some(counted) => self.resize(counted, |_| length, act),
            None => {
                self.check_length(length)?;
                act()
            }
        }
    }
}

impl File for ExportFile {
    fn is_pipe(&self) -> bool {
        self.inner.is_pipe()
    }

    fn attributes(&self) -> Result<Attributes, Fault> {
        self.seen(self.inner.attributes())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        self.seen(self.inner.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.seen(self.write(offset, bytes))
    }

    fn append(&self, bytes: &[u8]) -> Result<u64, Fault> {
        self.seen(self.put_at_end(bytes))
    }

    fn sync(&self, data_only: bool) -> Result<(), Fault> {
        self.seen(self.inner.sync(data_only))
    }

    fn set_length(&self, length: u64) -> Result<(), Fault> {
        self.seen(self.change_length(length))
    }

    fn read_pipe(&self, buf: &mut [u8]) -> Result<Option<usize>, Fault> {
        self.seen(self.inner.read_pipe(buf))
    }

    fn write_pipe(&self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        self.seen(self.inner.write_pipe(bytes))
    }
}

impl Drop for ExportFile {
    fn drop(&mut self) {
        let unlinked = *self.unlinked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counted) = self.folder.counted.as_ref().filter(|_| unlinked > 0) {
            counted.ledger.give(unlinked, 0);
        }
    }
}
