//! The store of local files and its restrictions.

use std::path::Path;
use std::sync::Arc;

use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{self, Dir, FileKind};

use super::path::{self, OPEN_TARGET};
use super::root::Root;
use super::source::{self, LocalSource};
use crate::SinkRequest;

/// Set-user-id, set-group-id and the sticky bit.
pub(super) const SPECIAL: u32 = 0o7000;

/// A store of local files.
#[derive(Clone, Debug)]
pub struct LocalStore {
    /// The directory that confines paths; `None` for the usual rules.
    pub(super) root: Option<Arc<Root>>,
    pub(super) read_only: bool,
    /// The users are anonymous or confined to parts of the root: symbolic links are neither renamed
    /// nor hard-linked, and nothing gets a bit of [`SPECIAL`].
    is_confined: bool,
    /// The umask decides on the modes of transfers.
    masks_modes: bool,
}

impl LocalStore {
    /// A store whose paths are resolved beneath `dir`. A leading '/' of a path means `dir`.
    ///
    /// # Errors
    /// The fault of opening `dir`.
    pub fn rooted(dir: &Path, read_only: bool) -> Result<Self, Fault> {
        let root = Dir::open(dir).map_err(|error| {
            Fault::from_io("open the root", dir.as_os_str().as_encoded_bytes(), &error)
        })?;
        Ok(Self {
            root: Some(Arc::new(Root::new(root))),
            read_only,
            is_confined: false,
            masks_modes: false,
        })
    }

    /// The same store restricted to these scopes of the root: a path resolves beneath the deepest
    /// scope that covers it, whatever links exist there, and the rules of
    /// [`confined`](Self::confined) apply. Has no effect without a root.
    #[must_use]
    pub fn within(self, scopes: &[Vec<u8>]) -> Self {
        let root = self.root.map(|root| Arc::new(root.within(scopes)));
        Self {
            root,
            is_confined: true,
            ..self
        }
    }

    /// The same store without renaming and linking of symbolic links, whose meaning depends on
    /// their place, and without giving set-user-id, set-group-id and the sticky bit to anything.
    #[must_use]
    pub fn confined(self) -> Self {
        Self {
            is_confined: true,
            ..self
        }
    }

    /// The same store for transfers whose modes another machine wishes: files and directories get
    /// what the umask of the process leaves of the permission bits, and neither set-user-id and
    /// set-group-id nor the sticky bit. Calls set modes exactly all the same.
    #[must_use]
    pub fn masking_modes(self) -> Self {
        Self {
            masks_modes: true,
            ..self
        }
    }

    /// The mode that a transfer gives for this one.
    pub(super) fn granted(&self, mode: u32) -> u32 {
        match self.masks_modes {
            true => fs::masked(mode & !SPECIAL),
            false => mode,
        }
    }

    /// The bits of [`SPECIAL`] that a transfer gives to nothing.
    pub(super) fn denied(&self) -> u32 {
        match self.masks_modes {
            true => SPECIAL,
            false => self.denied_by_calls(),
        }
    }

    /// The bits of [`SPECIAL`] that a call gives to nothing.
    pub(super) fn denied_by_calls(&self) -> u32 {
        match self.is_confined {
            true => SPECIAL,
            false => 0,
        }
    }

    /// A store whose paths are those of the process.
    #[must_use]
    pub fn unrooted() -> Self {
        Self {
            root: None,
            read_only: false,
            is_confined: false,
            masks_modes: false,
        }
    }

    /// Refuses to give a symbolic link another name, if this store keeps links. The fault has no
    /// path.
    pub(super) fn check_kept(&self, kind: FileKind) -> Result<(), Fault> {
        if self.is_confined && kind == FileKind::Symlink {
            let cause = "symbolic links are renamed and linked by those who may make them";
            return Err(Fault::new(Code::PermissionDenied, "", cause));
        }
        Ok(())
    }

    pub(super) fn refuse_read_only(&self, request: &SinkRequest) -> Result<(), Fault> {
        if self.read_only {
            return Err(
                Fault::new(Code::ReadOnly, OPEN_TARGET, "this server takes no writes")
                    .path(&request.path),
            );
        }
        Ok(())
    }

    pub(super) fn open_local(&self, path: &[u8]) -> Result<LocalSource, Fault> {
        let file = match &self.root {
            Some(root) => source::open_beneath(root, path)?,
            None => {
                let ordinary = path::ordinary(source::OPEN_SOURCE, path)?;
                source::look_first(fs::Handle::find(&ordinary).ok(), path)?;
                fs::open_for_reading(&ordinary).map_err(|error| source::open_fault(path, &error))?
            }
        };
        LocalSource::new(file, path)
    }
}
