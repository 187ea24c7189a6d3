//! Files of the local machine.
//!
//! A [`LocalStore`] is either rooted, as a server's: paths come from peers and the kernel resolves
//! them beneath one directory; or unrooted, as a client's: paths are the user's own and follow the
//! usual rules. After the resolution both work alike.
//!
//! A target is written to a hidden partial file in the same directory and gets its name once it is
//! complete, verified and durable; ranges that are durable before that are recorded in a
//! [`journal`].

mod calls;
mod direct;
mod file_systems;
pub mod journal;
mod journal_file;
mod owners;
mod pack;
mod partial;
mod path;
mod published;
mod reread;
mod root;
mod sink;
mod source;
mod store;
mod target;
mod zeros;

pub use calls::RemovedName;
pub use file_systems::SyncGroup;
pub use owners::SettableOwners;
pub use pack::{Added, PackBuilder, PackChange, PackOptions, PackRules};
pub use store::LocalStore;

use std::ops::ControlFlow;
use std::path::Path;

use xdfs_proto::Fault;
use xdfs_proto::pack::{Failures, PackRequest, PackWriter, Preserve};
use xdfs_proto::path::{Answer, Attributes, Call, PartialFile};
use xdfs_sys::fs::{Dir, SyncKind};

use crate::{
    File, FileRequest, OpenedFile, OpenedSink, Place, SharedStore, SinkRequest, Source, Store,
};

/// Attributes of a path of the local user, by one system call; with `follow`, of a symbolic link's
/// target. `None` if there is no such entry or it can't be read.
#[must_use]
pub fn look(path: &Path, follow: bool) -> Option<Attributes> {
    let meta = xdfs_sys::fs::meta_at(path, follow);
    meta.ok().as_ref().map(calls::attributes)
}

/// An open directory whose entries are looked up by their names, which takes less time than by
/// whole paths.
#[derive(Debug)]
pub struct Directory(Dir);

impl Directory {
    /// Opens a directory; `None` if that fails.
    #[must_use]
    pub fn open(path: &Path) -> Option<Self> {
        Dir::open(path).ok().map(Self)
    }

    /// Attributes of an entry, without following a symbolic link; `None` if it can't be looked up.
    #[must_use]
    pub fn look(&self, name: &[u8]) -> Option<Attributes> {
        let meta = self.0.meta_of(name).ok().flatten();
        meta.as_ref().map(calls::attributes)
    }
}

impl LocalStore {
    /// Removes a directory with its content, as [`Call::RemoveTree`] does. `removed` is called with
    /// `None` before each removal, and afterwards with the entry's path, which begins with `path`,
    /// and its attributes; a second `None` in a row means that the previous entry wasn't removed.
    /// Returns the number of entries removed.
    ///
    /// # Errors
    /// A fault that names the path; some of the tree may have been removed.
    pub fn remove_tree(
        &self,
        path: &[u8],
        removed: &mut dyn FnMut(RemovedName<'_>),
    ) -> Result<u64, Fault> {
        calls::remove_tree(self, path, removed)
    }

    /// Passes the path of the target and the state of each unfinished transfer in a rooted store to
    /// `take`, which may end the walk. Links aren't followed. Returns how many directories could
    /// not be read.
    pub fn each_partial(
        &self,
        take: &mut dyn FnMut(&[u8], &PartialFile) -> ControlFlow<()>,
    ) -> u64 {
        calls::each_partial(self, take)
    }

    /// Writes the entries of a pack as [`Store::write_pack`] does, restricted by `rules`, and
    /// returns the changes made.
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

    /// A builder of packs from the content of the directory `root`.
    ///
    /// # Errors
    /// A fault that names `root`.
    pub fn pack_builder(
        &self,
        root: &[u8],
        keep: Preserve,
        file_bytes_max: u32,
    ) -> Result<PackBuilder, Fault> {
        PackBuilder::open(self, root, keep, file_bytes_max)
    }

    /// Copies a file, as [`Call::Copy`] does. Calls `ready` with the length in bytes once
    /// everything is durable, before the copy gets its name; the length is also returned.
    ///
    /// # Errors
    /// A fault that names one of the paths, or the fault of `ready`, in which case there is no
    /// copy.
    pub fn copy(
        &self,
        from: &[u8],
        to: &[u8],
        overwrite: bool,
        ready: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<u64, Fault> {
        calls::copy(self, from, to, overwrite, ready)
    }
}

impl Store for LocalStore {
    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(self.open_local(path)?))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.refuse_read_only(request)?;
        let target = target::Target::resolve(self.root.as_deref(), request)?;
        let request = SinkRequest {
            mode: request.mode.map(|mode| self.granted(mode)),
            ..request.clone()
        };
        sink::open(target, &request)
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        self.refuse_read_only(request)?;
        let target = target::Target::resolve(self.root.as_deref(), request)?;
        sink::check(&target, request)?;
        Ok(target.path)
    }

    fn read_pack(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        self.pack_builder(root, request.keep, request.file_bytes_max)?
            .following(request.follow)
            .grant(&request.names, pack);
        Ok(())
    }

    fn write_pack(
        &self,
        root: &[u8],
        mut options: PackOptions,
        pack: &[u8],
    ) -> Result<Failures, Fault> {
        let (failures, _) = pack::write(self, root, pack, &mut options)?;
        Ok(failures)
    }

    fn packs_wait(&self, root: &[u8]) -> bool {
        let paths = calls::Paths { store: self };
        let dir = paths.enter(root).or_else(|_| {
            // It would be created in its parent, if that exists.
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

    crate::defaults!(Store: is_slow);
}

/// This machine itself as a place, without a connection.
impl Place for LocalStore {}

impl SharedStore for LocalStore {
    fn open_partial(&self, path: &[u8], number: u64) -> Result<Box<dyn File>, Fault> {
        let request = SinkRequest::of_partial(path);
        self.refuse_read_only(&request)?;
        let target = target::Target::resolve(self.root.as_deref(), &request)?;
        let file = partial::open_numbered(&target, number)?;
        calls::opened_file(file, path)
    }
}
