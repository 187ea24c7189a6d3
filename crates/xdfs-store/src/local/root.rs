//! The directory that confines the paths of peers, and the scopes within it.
//!
//! Without scopes a path is resolved beneath the directory, and links are followed as long as they
//! stay there. With scopes it is resolved beneath the deepest scope that covers it, and links are
//! followed as long as they stay beneath that one: no link leads to anything that the user couldn't
//! name. The path to a scope, and the scope itself, are opened without following any link, so that
//! nobody can redirect it.

use std::borrow::Cow;
use std::fs::File;
use std::sync::Arc;

use xdfs_sys::fs::{Dir, FileKind, Handle, ResolveError};

use super::path;

const OUTSIDE: ResolveError = ResolveError::Escapes("it is outside the user's scopes");
const LINK: ResolveError = ResolveError::Escapes("a symbolic link has the name of a scope");

/// A directory, and the scopes in it.
#[derive(Debug)]
pub(super) struct Root {
    dir: Arc<Dir>,
    /// Normalised; `None` without scopes.
    scopes: Option<Vec<Vec<u8>>>,
}

/// Where a path is resolved.
enum Resolution<'p> {
    /// Beneath this directory, or the root if there is none.
    Beneath(Option<Dir>, Cow<'p, [u8]>),
    /// The path of a scope.
    Scope(Vec<u8>),
    /// A parent of a scope.
    Above(Vec<u8>),
}

impl Root {
    pub(super) fn new(dir: Dir) -> Self {
        Self {
            dir: Arc::new(dir),
            scopes: None,
        }
    }

    /// The same directory, restricted to these scopes.
    pub(super) fn within(&self, scopes: &[Vec<u8>]) -> Self {
        Self {
            dir: Arc::clone(&self.dir),
            // An invalid scope covers nothing.
            scopes: Some(scopes.iter().filter_map(|scope| clean(scope)).collect()),
        }
    }

    /// Opens a directory for lookups.
    pub(super) fn enter(&self, requested: &[u8]) -> Result<Dir, ResolveError> {
        match self.way(requested)? {
            Resolution::Beneath(dir, rest) => self.base(dir.as_ref()).enter_beneath(&rest),
            Resolution::Scope(path) | Resolution::Above(path) => {
                self.dir.enter_without_links(&path)
            }
        }
    }

    /// Opens a directory that can be listed and synchronised.
    pub(super) fn open(&self, requested: &[u8]) -> Result<Dir, ResolveError> {
        match self.way(requested)? {
            Resolution::Beneath(dir, rest) => self.base(dir.as_ref()).open_dir_beneath(&rest),
            Resolution::Scope(path) | Resolution::Above(path) => {
                let dir = self.dir.enter_without_links(&path)?;
                dir.open_dir_beneath(b"")
            }
        }
    }

    /// Resolves a path, following links.
    pub(super) fn find(&self, requested: &[u8]) -> Result<Handle, ResolveError> {
        match self.way(requested)? {
            Resolution::Beneath(dir, rest) => self.base(dir.as_ref()).find_beneath(&rest),
            Resolution::Scope(path) if is_directory(requested, &path) => {
                self.dir.enter_without_links(&path)?.find_beneath(b"")
            }
            Resolution::Scope(path) => {
                let (dir, name) = self.parent(&path)?;
                let found = dir.find_name(name)?;
                match found.meta()?.kind {
                    FileKind::Symlink => Err(LINK),
                    _ => Ok(found),
                }
            }
            Resolution::Above(_) => Err(OUTSIDE),
        }
    }

    /// Opens a file for reading.
    pub(super) fn open_for_reading(&self, requested: &[u8]) -> Result<File, ResolveError> {
        match self.way(requested)? {
            Resolution::Beneath(dir, rest) => {
                self.base(dir.as_ref()).open_for_reading_beneath(&rest)
            }
            Resolution::Scope(path) if is_directory(requested, &path) => {
                let dir = self.dir.enter_without_links(&path)?;
                dir.open_for_reading_beneath(b".")
            }
            Resolution::Scope(path) => {
                let (dir, name) = self.parent(&path)?;
                let there = dir.meta_of(name)?;
                if there.is_some_and(|meta| meta.kind == FileKind::Symlink) {
                    return Err(LINK);
                }
                Ok(dir.open_name(name)?)
            }
            Resolution::Above(_) => Err(OUTSIDE),
        }
    }

    fn base<'d>(&'d self, dir: Option<&'d Dir>) -> &'d Dir {
        dir.unwrap_or(&self.dir)
    }

    /// The parent directory of a normalised path that isn't empty, and its last name.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(Dir, &'p [u8]), ResolveError> {
        let cut = path.iter().rposition(|&b| b == b'/');
        let (parent, name) = cut.map_or((&b""[..], path), |cut| (&path[..cut], &path[cut + 1..]));
        Ok((self.dir.enter_without_links(parent)?, name))
    }

    fn way<'p>(&self, requested: &'p [u8]) -> Result<Resolution<'p>, ResolveError> {
        let Some(scopes) = &self.scopes else {
            return Ok(Resolution::Beneath(None, path::beneath(requested).into()));
        };
        let mut path = clean(requested).ok_or(OUTSIDE)?;
        let covering = scopes.iter().filter(|scope| covers(scope, &path));
        let Some(scope) = covering.max_by_key(|scope| scope.len()) else {
            let is_above = scopes.iter().any(|scope| covers(&path, scope));
            return if is_above {
                Ok(Resolution::Above(path))
            } else {
                Err(OUTSIDE)
            };
        };
        if *scope == path {
            return Ok(Resolution::Scope(path));
        }
        let dir = self.dir.enter_without_links(scope)?;
        let separator = usize::from(!scope.is_empty());
        path.drain(..scope.len() + separator);
        if is_directory(requested, &path) {
            path.push(b'/');
        }
        Ok(Resolution::Beneath(Some(dir), path.into()))
    }
}

/// Normalises a path: its components with one '/' between them; `None` if it contains '..'.
fn clean(path: &[u8]) -> Option<Vec<u8>> {
    let mut clean = Vec::with_capacity(path.len());
    for component in path.split(path::is_separator) {
        match component {
            b"" | b"." => {}
            b".." => return None,
            name => {
                if !clean.is_empty() {
                    clean.push(b'/');
                }
                clean.extend(name);
            }
        }
    }
    Some(clean)
}

/// Whether a normalised path is this scope or lies beneath it.
fn covers(scope: &[u8], path: &[u8]) -> bool {
    let rest = path.strip_prefix(scope);
    rest.is_some_and(|rest| scope.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
}

/// Whether the original of a normalised path can only name a directory.
fn is_directory(requested: &[u8], clean: &[u8]) -> bool {
    clean.is_empty() || path::split(requested).1.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_cover_whole_components() {
        for (scope, path, covered) in [
            ("", "a", true),
            ("a", "a", true),
            ("a", "a/b", true),
            ("a", "ab", false),
            ("a/b", "a", false),
        ] {
            assert_eq!(
                covers(scope.as_bytes(), path.as_bytes()),
                covered,
                "{scope} {path}"
            );
        }
        assert_eq!(clean(b"//a/./b/").as_deref(), Some(&b"a/b"[..]));
        assert_eq!(clean(b"a/../b"), None);
    }
}
