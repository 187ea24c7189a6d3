//! The directory of an export: located for a user, and opened.

use std::fs::DirBuilder;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use xdfs_proto::path::{Answer, Call, FileKind};
use xdfs_proto::{Code, Fault};
use xdfs_store::{LocalStore, Store};
use xdfs_sys::ids::Ids;

use super::base::{AnyStore, Base};
use super::mounts::{self, Mounts, OPEN};
use super::quota::{Ledger, Quota};

/// Placeholder for the user's name in a path.
pub(super) const USER: &str = "{user}";
/// Longest name on common file systems, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The place of an export.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A directory of this machine.
    Directory(ExportLocation),
    /// Any store, whose paths are those of the export.
    Store(Arc<dyn Store>),
}

impl Place {
    /// The directory, if it is one.
    pub(super) fn directory(&self) -> Option<&ExportLocation> {
        match self {
            Self::Directory(location) => Some(location),
            Self::Store(_) => None,
        }
    }

    /// Whether opening a file takes long there.
    pub(super) fn is_slow(&self) -> bool {
        match self {
            Self::Directory(_) => false,
            Self::Store(store) => store.is_slow(),
        }
    }

    /// Whether both are the same place.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Directory(here), Self::Directory(there)) => here.path == there.path,
            (Self::Store(here), Self::Store(there)) => Arc::ptr_eq(here, there),
            _ => false,
        }
    }
}

/// The location of an export's directory.
#[derive(Clone, Debug)]
pub(super) struct ExportLocation {
    path: PathBuf,
    /// The path contains the user's name.
    is_template: bool,
    make: bool,
    /// The directory, or that above those of users, has to be a mount point.
    mount: bool,
}

/// The result of locating a directory.
#[derive(Debug)]
pub(super) enum LocatedDirectory {
    Here(PathBuf),
    /// It doesn't exist, but may be created.
    ToMake,
}

impl ExportLocation {
    pub(super) fn fixed(path: PathBuf, make: bool, mount: bool) -> Self {
        Self {
            path,
            is_template: false,
            make,
            mount,
        }
    }

    pub(super) fn template(path: PathBuf, make: bool, mount: bool) -> Self {
        Self {
            path,
            is_template: true,
            make,
            mount,
        }
    }

    /// The directory has to be a mount point.
    pub(super) fn demands_mount(&self) -> bool {
        self.mount
    }

    /// Checks that its file system is mounted. Returns the device, where the system tells it.
    ///
    /// # Errors
    /// It isn't mounted.
    pub(super) fn check_mount(&self, mounts: &Mounts) -> Result<Option<u64>, Fault> {
        mounts.check(&self.shared_part(), self.mount)
    }

    /// The directory that all users share: the export itself, or the one above those of users.
    pub(super) fn shared_part(&self) -> PathBuf {
        let is_shared = |name: &Component<'_>| {
            !(self.is_template && name.as_os_str().to_string_lossy().contains(USER))
        };
        self.path.components().take_while(is_shared).collect()
    }

    /// The directory that has to exist before anybody comes: the export itself, or the one in which
    /// the first missing directory is created or looked for.
    pub(super) fn needed(&self) -> PathBuf {
        if self.is_template {
            return self.shared_part();
        }
        match (self.make && !self.path.is_dir(), self.path.parent()) {
            (true, Some(parent)) => parent.to_owned(),
            _ => self.path.clone(),
        }
    }

    /// Checks that [`needed`](Self::needed) is a directory, and a mount point if it has to be.
    pub(super) fn check(&self) -> io::Result<()> {
        if !std::fs::metadata(self.needed())?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        match self.mount && !mounts::is_point(&self.shared_part()) {
            true => Err(io::Error::other(
                "nothing is mounted there, and `mount = true` demands it",
            )),
            false => Ok(()),
        }
    }

    /// The directory above those with the name of a user, and the form of their names; `None` if
    /// all users have the same directory.
    pub(super) fn users(&self) -> Option<(PathBuf, String)> {
        if !self.is_template {
            return None;
        }
        let mut above = PathBuf::new();
        for component in self.path.components() {
            // Templates come from text.
            let name = component.as_os_str().to_string_lossy();
            if name.contains(USER) {
                return Some((above, name.into_owned()));
            }
            above.push(component);
        }
        None
    }

    /// Locates the directory for a user, and creates it if configured and `may_make`. Faults
    /// contain no path: clients must not learn the server's paths.
    pub(super) fn find(&self, user: &str, may_make: bool) -> Result<LocatedDirectory, Fault> {
        if !self.is_template {
            if !self.make || self.path.is_dir() {
                return Ok(LocatedDirectory::Here(self.path.clone()));
            }
            if !may_make {
                return Ok(LocatedDirectory::ToMake);
            }
            make(&self.path)?;
            return Ok(LocatedDirectory::Here(self.path.clone()));
        }
        if !is_component(user) {
            let cause = "the name of this user can't be that of a directory";
            return Err(Fault::new(Code::PermissionDenied, OPEN, cause));
        }
        let mut path = PathBuf::new();
        let mut is_users = false;
        for component in self.path.components() {
            let Component::Normal(name) = component else {
                path.push(component);
                continue;
            };
            // Templates come from text.
            let name = name.to_string_lossy();
            is_users |= name.contains(USER);
            path.push(name.replace(USER, user));
            if is_users && !self.enter(&path, may_make)? {
                return Ok(LocatedDirectory::ToMake);
            }
        }
        Ok(LocatedDirectory::Here(path))
    }

    /// Creates the first directory with the user's name in its path for an account, if only root
    /// can do so. If others may write to its parent, one of them could place something else there
    /// at this moment; in that case the session creates it, with the ids of the account.
    pub(super) fn make_for(&self, user: &str, ids: &Ids) {
        if !(self.is_template && self.make && is_component(user)) {
            return;
        }
        let mut path = PathBuf::new();
        for component in self.path.components() {
            let name = component.as_os_str().to_string_lossy();
            if name.contains(USER) {
                let parent = path.clone();
                path.push(name.replace(USER, user));
                if let Err(error) = make_owned(&parent, &path, ids) {
                    not_opened(&path, &error);
                }
                return;
            }
            path.push(component);
        }
    }

    /// Checks that a directory possibly under a user's control is a directory, and not a link
    /// placed by the user. A user who exchanges it at this very moment has an account on this
    /// machine, and then should not control the directory: see the manual's advice on templates.
    fn enter(&self, path: &Path, may_make: bool) -> Result<bool, Fault> {
        for _ in 0..2 {
            match std::fs::symlink_metadata(path) {
                Ok(meta) if meta.is_dir() => return Ok(true),
                Ok(_) => {
                    let error = io::ErrorKind::NotADirectory.into();
                    return Err(not_opened(path, &error));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.make => {
                    if !may_make {
                        return Ok(false);
                    }
                    make(path)?;
                }
                Err(error) => return Err(not_opened(path, &error)),
            }
        }
        Err(not_opened(path, &io::ErrorKind::NotFound.into()))
    }
}

/// Creates one directory, accessible only to its owner.
fn make(path: &Path) -> Result<(), Fault> {
    #[cfg(unix)]
    let made = {
        use std::os::unix::fs::DirBuilderExt;
        DirBuilder::new().mode(0o700).create(path)
    };
    #[cfg(not(unix))]
    let made = DirBuilder::new().create(path);
    match made {
        // Created concurrently by another session.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(not_opened(path, &error)),
        _ => Ok(()),
    }
}

/// Creates a directory for an account in a parent that only root may write to.
#[cfg(unix)]
fn make_owned(parent: &Path, path: &Path, ids: &Ids) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, lchown};
    const OTHERS_MAY_WRITE: u32 = 0o022;
    let meta = std::fs::metadata(parent)?;
    if meta.uid() != 0 || meta.mode() & OTHERS_MAY_WRITE != 0 {
        return Ok(());
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => lchown(path, Some(ids.uid()), Some(ids.gid())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(not(unix))]
fn make_owned(_: &Path, _: &Path, _: &Ids) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The fault shown to the client. The log has the details.
fn not_opened(path: &Path, error: &io::Error) -> Fault {
    let path = path.as_os_str().as_encoded_bytes().escape_ascii();
    tracing::warn!(%path, %error, "an export can't be opened");
    Fault::from_io(OPEN, "", error).hint("tell the server's administrator: its log has the details")
}

/// Whether a user's name is one harmless path component.
fn is_component(user: &str) -> bool {
    let is_bad = |c: char| c.is_control() || matches!(c, '/' | '\\') || (cfg!(windows) && c == ':');
    let bad_end = cfg!(windows) && user.ends_with(['.', ' ']);
    (1..=NAME_BYTES_MAX).contains(&user.len())
        && !(user.starts_with('.') || bad_end || user.contains(is_bad))
}

/// The open directory of an export.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) files: Arc<dyn Base>,
    /// `None` without a quota.
    pub(super) counted: Option<Counted>,
}

/// A directory with a quota.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) root: PathBuf,
    pub(super) ledger: Arc<Ledger>,
    pub(super) quota: Quota,
    files: Arc<dyn Base>,
}

/// How a principal is confined in the directory of an export.
#[derive(Debug)]
pub(super) enum Confinement {
    /// Only by the directory.
    Nowhere,
    /// Symbolic links can't be renamed or hard-linked, and no set-user-id, set-group-id or sticky
    /// bit can be set.
    Here,
    /// The same, and paths outside of these scopes can't be reached.
    Within(Vec<Vec<u8>>),
}

impl Folder {
    /// Opens a directory; `ledger` counts its content if the quota has a limit.
    pub(super) fn open(
        root: PathBuf,
        read_only: bool,
        held: &Confinement,
        quota: Quota,
        ledger: impl FnOnce(&Path) -> Arc<Ledger>,
    ) -> Result<Self, Fault> {
        let files = LocalStore::rooted(&root, read_only).map_err(|fault| {
            tracing::warn!(%fault, "an export can't be opened");
            let shown = Fault::new(fault.code, OPEN, fault.cause);
            shown.hint("tell the server's administrator: its log has the details")
        })?;
        let files = match held {
            Confinement::Nowhere => files,
            Confinement::Here => files.confined(),
            Confinement::Within(scopes) => files.within(scopes),
        };
        let files: Arc<dyn Base> = Arc::new(files);
        if quota == Quota::default() {
            return Ok(Self {
                files,
                counted: None,
            });
        }
        let counted = Some(Counted {
            ledger: ledger(&root),
            root,
            quota,
            files: Arc::clone(&files),
        });
        Ok(Self { files, counted })
    }

    /// A store in place of a directory.
    pub(super) fn over(store: Arc<dyn Store>, read_only: bool) -> Self {
        Self {
            files: Arc::new(AnyStore::new(store, read_only)),
            counted: None,
        }
    }
}

impl Counted {
    /// The space of the file system as the quota limits it: the size and what is free of it are
    /// those of the quota, and no more is available than the file system has.
    pub(super) fn space(&self, space: Answer) -> Result<Answer, Fault> {
        let Answer::Space {
            mut total,
            mut free,
            mut available,
            mut files,
            mut files_free,
        } = space
        else {
            return Ok(space);
        };
        let (bytes_used, files_used) = self.ledger.usage(&self.root)?;
        if let Some(most) = self.quota.bytes {
            total = most;
            free = most.saturating_sub(bytes_used);
            available = available.min(free);
        }
        if let Some(most) = self.quota.files {
            let left = most.saturating_sub(files_used);
            files_free = if files == 0 {
                left
            } else {
                left.min(files_free)
            };
            files = most;
        }
        Ok(Answer::Space {
            total,
            free,
            available,
            files,
            files_free,
        })
    }

    /// The length of the file that a publication at `path` would replace; `None` if there is none
    /// or it isn't accessible. Links aren't followed.
    pub(super) fn replaced(&self, path: &[u8]) -> Option<u64> {
        let call = Call::Stat {
            path: path.to_vec(),
            follow: false,
        };
        match self.files.call(&call, &mut |_| Ok(())) {
            Ok(Answer::Attributes(found)) if found.kind == FileKind::File => Some(found.size),
            Ok(_) => Some(0),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_are_harmless_components() {
        for user in [
            "alice",
            "alice@example.org",
            "a.b",
            "é",
            "-",
            &"x".repeat(255),
        ] {
            assert!(is_component(user), "{user}");
        }
        for user in [
            "",
            ".",
            "..",
            ".ssh",
            "a/b",
            "/",
            "../b",
            "a\0",
            "a\n",
            "a\\b",
            &"x".repeat(256),
        ] {
            assert!(!is_component(user), "{user}");
        }
    }
}
