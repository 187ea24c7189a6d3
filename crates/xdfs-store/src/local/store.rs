//! The store of local files and its restrictions.

use std::path::Path;
use std::sync::Arc;

use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{self, Dir, FileKind};

use super::path::{self, OPEN_TARGET};
use super::root::Root;
use super::source::{self, LocalSource};
use crate::SinkRequest;

/// A store of local files.
#[derive(Clone, Debug)]
pub struct LocalStore {
    /// The directory that confines paths; `None` for the usual rules.
    pub(super) root: Option<Arc<Root>>,
    pub(super) read_only: bool,
    /// Symbolic links are neither renamed nor hard-linked.
    keeps_links: bool,
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
            keeps_links: false,
        })
    }

    /// The same store restricted to these scopes of the root: a path resolves beneath the deepest
    /// scope that covers it, whatever links exist there, and symbolic links are fixed as with
    /// [`keeping_links`](Self::keeping_links). Has no effect without a root.
    #[must_use]
    pub fn within(self, scopes: &[Vec<u8>]) -> Self {
        let root = self.root.map(|root| Arc::new(root.within(scopes)));
        Self {
            root,
            keeps_links: true,
            ..self
        }
    }

    /// The same store without renaming and linking of symbolic links: the meaning of a link depends
    /// on its place.
    #[must_use]
    pub fn keeping_links(self) -> Self {
        Self {
            keeps_links: true,
            ..self
        }
    }

    /// A store whose paths are those of the process.
    #[must_use]
    pub fn unrooted() -> Self {
        Self {
            root: None,
            read_only: false,
            keeps_links: false,
        }
    }

    /// Refuses to give a symbolic link another name, if this store keeps links. The fault has no
    /// path.
    pub(super) fn check_kept(&self, kind: FileKind) -> Result<(), Fault> {
        if self.keeps_links && kind == FileKind::Symlink {
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
