//! This machine as a place: its own files behind a session, as those of other protocols are.
//!
//! So a copy within the machine is one from a server, with its journal, retries and reports. No URL
//! names it: `file:` URLs and plain paths are local ones, and only [`RemotePlace::here`] makes such
//! a place, where both ends are on this machine.
//!
//! [`RemotePlace::here`]: crate::RemotePlace::here

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_store::{LocalStore, Place, Store, Traits};

use crate::address::Address;
use crate::local_path::path_bytes;
use crate::scheme::{LoginBy, OpenPlace, Opening, Paths, PlaceRequest, RegisteredScheme, Scheme};
use crate::security::Level;

/// The scheme, which isn't registered.
pub(crate) static HERE: ThisMachine = ThisMachine;

#[derive(Debug)]
pub(crate) struct ThisMachine;

impl Scheme for ThisMachine {
    fn name(&self) -> &'static str {
        "file"
    }

    fn traits(&self) -> Traits {
        Traits::FULL
    }

    fn port(&self) -> Option<u16> {
        None
    }

    fn paths(&self) -> Paths {
        Paths::Root
    }

    fn login(&self) -> LoginBy {
        LoginBy::Nothing
    }

    fn check_level(&self, _: Level, _: &str) -> Result<(), Fault> {
        // No byte leaves the process.
        Ok(())
    }

    fn is_here(&self) -> bool {
        true
    }

    fn opening(&self) -> Opening<'_> {
        Opening::Place(self)
    }
}

impl OpenPlace for ThisMachine {
    fn open(&self, request: &PlaceRequest<'_>) -> Result<Arc<dyn Place>, Fault> {
        match request.settings.get::<StoreOfUser>() {
            Some(store) => Ok(Arc::new(store.clone())),
            None => Ok(Arc::new(LocalStore::unrooted())),
        }
    }
}

/// The store of a user of a server, instead of the files of this machine: a setting of sessions in
/// which the server acts for that user.
#[derive(Clone, Debug)]
pub(crate) struct StoreOfUser {
    pub(crate) inner: Arc<dyn Store>,
    /// Held as long as a session may still use the store.
    pub(crate) _use: Arc<()>,
}

impl Store for StoreOfUser {
    xdfs_store::forward!(Store to inner: is_slow, open_source, open_sink, check_sink, read_pack,
        write_pack, packs_wait, call, open_file);
}

impl Place for StoreOfUser {}

/// The address of this machine.
pub(crate) fn address() -> Address {
    Address::Place {
        scheme: RegisteredScheme::new(&HERE),
        host: String::new(),
        port: None,
    }
}

/// The absolute path, with its last name and slash. `..` in it is resolved by the system, since
/// what it leads to depends on links; a path that ends in it means the contents of the directory.
///
/// # Errors
/// The working directory is unknown.
pub(crate) fn absolute(path: &Path) -> Result<Vec<u8>, Fault> {
    let parts: Vec<_> = path.components().collect();
    let last = parts.iter().rposition(|part| *part == Component::ParentDir);
    let (above, rest) = parts.split_at(last.map_or(0, |last| last + 1));
    let above: PathBuf = above.iter().collect();
    let resolved = match above.as_os_str().is_empty() {
        true => std::env::current_dir(),
        // A path that leads nowhere is missed by the copy itself.
        false => above
            .canonicalize()
            .or_else(|_| std::path::absolute(&above)),
    };
    let resolved = resolved.map_err(|error| Fault::from_io("find", path_bytes(path), &error))?;
    let rest = rest.iter().filter(|part| **part != Component::CurDir);
    let rest: PathBuf = rest.collect();
    let mut whole = path_bytes(&resolved.join(rest));
    let given = path_bytes(path);
    let is_inside = given == b"."
        || [&b"/"[..], b"/."].iter().any(|end| given.ends_with(end))
        || parts.last() == Some(&Component::ParentDir);
    if is_inside && !whole.ends_with(b"/") {
        whole.push(b'/');
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn paths_become_absolute_and_keep_their_last_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink("a/b", root.join("link")).unwrap();
        let at = |path: &str| String::from_utf8(absolute(&root.join(path)).unwrap()).unwrap();
        let wanted = |path: &str| format!("{}{path}", root.display());
        for (path, whole) in [
            ("a", "/a"),
            ("a/", "/a/"),
            ("a/.", "/a/"),
            ("a/b/..", "/a/"),
            ("link", "/link"),
            // The system follows the link first.
            ("link/../b", "/a/b"),
            ("none/../b", "/none/../b"),
            ("..a", "/..a"),
            ("a..", "/a.."),
        ] {
            assert_eq!(at(path), wanted(whole), "{path}");
        }
        let working = path_bytes(&std::env::current_dir().unwrap());
        for (path, end) in [("x y", "/x y"), ("./x/", "/x/"), (".", "/")] {
            let whole = absolute(Path::new(path)).unwrap();
            assert_eq!(whole, [&working, end.as_bytes()].concat(), "{path}");
        }
        assert_eq!(absolute(Path::new("/")).unwrap(), b"/");
    }
}
