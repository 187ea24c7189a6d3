//! Files of this machine.
//!
//! A [`LocalStore`] is either rooted, as a server's: paths come from peers and are resolved
//! beneath one directory by the kernel; or unrooted, as a client's: paths are the user's own and
//! follow the ordinary rules. Everything after the resolution is the same for both.
//!
//! A target is written to a hidden partial file beside it and gets its name when it is complete,
//! verified and durable; what is durable before that is kept in a [`journal`].

mod calls;
mod file_systems;
pub mod journal;
mod journal_file;
mod pack;
mod partial;
mod path;
mod published;
mod reread;
mod root;
mod sink;
mod source;
mod target;
mod zeros;

pub use file_systems::Party;
pub use pack::{Added, PackChange, PackHow, PackRules, PackSource};

use std::path::Path;
use std::sync::Arc;

use xdfs_proto::pack::{Entry, Failures, Keep, PackWriter, Wish};
use xdfs_proto::path::{Answer, Attributes, Call};
use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{self, Dir, FileKind, SyncKind};

use self::root::Root;
use crate::{FileRequest, OpenedFile, OpenedSink, SinkRequest, Source, Store};

/// A store of local files.
#[derive(Clone, Debug)]
pub struct LocalStore {
    /// The directory that no path leaves; `None` for the ordinary rules.
    root: Option<Arc<Root>>,
    read_only: bool,
    /// Symbolic links keep their names, and get no others.
    keeps_links: bool,
}

/// What [`LocalStore::remove_tree`] tells: a path that was removed, and what it was.
pub type RemovedName<'a> = Option<(&'a [u8], &'a Attributes)>;

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

    /// The same for paths in these parts of the root: what a path leads to lies beneath the deepest
    /// of them that covers it, whatever links stand there, and links keep their names as with
    /// [`keeping_links`](Self::keeping_links). Without a root there are no parts.
    #[must_use]
    pub fn within(self, scopes: &[Vec<u8>]) -> Self {
        let root = self.root.map(|root| Arc::new(root.within(scopes)));
        Self {
            root,
            keeps_links: true,
            ..self
        }
    }

    /// The same without renaming and linking of symbolic links: what a link means depends on where
    /// it stands.
    #[must_use]
    pub fn keeping_links(self) -> Self {
        Self {
            keeps_links: true,
            ..self
        }
    }

    /// A store whose paths are those of this process.
    #[must_use]
    pub fn unrooted() -> Self {
        Self {
            root: None,
            read_only: false,
            keeps_links: false,
        }
    }

    /// Refuses what would give a symbolic link another name, where that isn't done. The fault has
    /// no path.
    fn check_kept(&self, kind: FileKind) -> Result<(), Fault> {
        if self.keeps_links && kind == FileKind::Symlink {
            let cause = "symbolic links are renamed and linked by those who may make them";
            return Err(Fault::new(Code::PermissionDenied, "", cause));
        }
        Ok(())
    }

    fn refuse_read_only(&self, request: &SinkRequest) -> Result<(), Fault> {
        if self.read_only {
            return Err(Fault::new(
                Code::ReadOnly,
                path::OPEN_TARGET,
                "this server takes no writes",
            )
            .path(&request.path));
        }
        Ok(())
    }

    /// Removes a directory with everything in it, as [`Call::RemoveTree`] does. `removed` is called
    /// with `None` before a name is looked at and removed, and then with its path, which begins
    /// with `path`, and what it was; a second `None` in a row says that the name before wasn't
    /// removed. Returns the number of names.
    ///
    /// # Errors
    /// A fault that names the path; some of the tree may be removed then.
    pub fn remove_tree(
        &self,
        path: &[u8],
        removed: &mut dyn FnMut(RemovedName<'_>),
    ) -> Result<u64, Fault> {
        calls::remove_tree(self, path, removed)
    }

    /// Carries out the entries of a pack as [`Store::write_pack`] does, by `rules`, and tells what
    /// that has changed.
    ///
    /// # Errors
    /// Those of [`Store::write_pack`].
    pub fn write_pack_by(
        &self,
        root: &[u8],
        pack: &[u8],
        rules: &mut dyn PackRules,
    ) -> Result<(Failures, PackChange), Fault> {
        pack::write(self, root, pack, rules)
    }

    /// A source of packs of what stands beneath the directory `root`.
    ///
    /// # Errors
    /// A fault that names `root`.
    pub fn pack_source(
        &self,
        root: &[u8],
        keep: Keep,
        file_bytes_max: u32,
    ) -> Result<PackSource, Fault> {
        PackSource::open(self, root, keep, file_bytes_max)
    }

    /// Copies a file, as [`Call::Copy`] does, and calls `ready` with its length in bytes, which is
    /// returned too, when everything is durable and the copy is about to get its name.
    ///
    /// # Errors
    /// A fault that names one of the paths, or what `ready` says: then there is no copy.
    pub fn copy(
        &self,
        from: &[u8],
        to: &[u8],
        overwrite: bool,
        ready: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<u64, Fault> {
        calls::copy(self, from, to, overwrite, ready)
    }

    fn open_local(&self, path: &[u8]) -> Result<source::LocalSource, Fault> {
        let file = match &self.root {
            Some(root) => path::open_source_beneath(root, path)?,
            None => {
                let ordinary = path::ordinary(path::OPEN_SOURCE, path)?;
                source::look_first(fs::Handle::find(&ordinary).ok(), path)?;
                fs::open_for_reading(&ordinary)
                    .map_err(|error| path::open_source_fault(path, &error))?
            }
        };
        source::LocalSource::new(file, path)
    }
}

impl Store for LocalStore {
    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(self.open_local(path)?))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.refuse_read_only(request)?;
        let target = target::Target::resolve(self.root.as_deref(), request)?;
        sink::open(target, request)
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        self.refuse_read_only(request)?;
        let target = target::Target::resolve(self.root.as_deref(), request)?;
        sink::check(&target, request)?;
        Ok(target.path)
    }

    fn read_pack(&self, root: &[u8], wish: &Wish, pack: &mut PackWriter) -> Result<(), Fault> {
        self.pack_source(root, wish.keep, wish.file_bytes_max)?
            .grant(&wish.names, pack);
        Ok(())
    }

    fn write_pack(&self, root: &[u8], how: PackHow, pack: &[u8]) -> Result<Failures, Fault> {
        struct All(PackHow);
        impl PackRules for All {
            fn entry(&mut self, _: &Entry<'_>) -> Result<bool, Fault> {
                Ok(self.0.overwrite)
            }

            fn is_relaxed(&self) -> bool {
                self.0.relaxed
            }
        }
        let (failures, _) = pack::write(self, root, pack, &mut All(how))?;
        Ok(failures)
    }

    fn packs_wait(&self, root: &[u8]) -> bool {
        let paths = calls::Paths { store: self };
        let dir = paths.enter(root).or_else(|_| {
            // It is made in the one above it, if that is there.
            let (above, _) = path::split(root.strip_suffix(b"/").unwrap_or(root));
            let above: &[u8] = match (above.is_empty(), self.root.is_some()) {
                (true, false) => b".",
                _ => above,
            };
            paths.enter(above)
        });
        dir.is_ok_and(|dir| dir.sync_kind() != SyncKind::Needless)
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        calls::answer(self, call, part)
    }

    fn open_file(&self, request: &FileRequest) -> Result<OpenedFile, Fault> {
        calls::open_file(self, request)
    }
}
