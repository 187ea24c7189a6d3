//! The directory that no path of a peer leaves, and the parts of it that a peer is held to.
//!
//! Without scopes a path is resolved beneath the directory, and links are followed as long as they
//! stay there. With scopes it is resolved beneath the deepest scope that covers it, and links are
//! followed as long as they stay beneath that one: wherever a link has come to stand, it leads to
//! nothing that its user couldn't have named. The way to a scope, and its own name, are opened
//! without following any link at all, so that nobody can give it another place.

use std::borrow::Cow;
use std::fs::File;
use std::sync::Arc;

use xdfs_sys::fs::{Dir, FileKind, Handle, ResolveError};

use super::path;

const OUTSIDE: ResolveError =
    ResolveError::Escapes("it is outside of what its user has a scope for");
const LINK: ResolveError = ResolveError::Escapes("a symbolic link has the name of a scope");

/// A directory, and the scopes in it.
#[derive(Debug)]
pub(super) struct Root {
    dir: Arc<Dir>,
    /// In their clean form; `None` if paths are held to none.
    scopes: Option<Vec<Vec<u8>>>,
}

/// Where a path is resolved.
enum Resolution<'p> {
    /// Beneath this directory, or the root if there is none.
    Beneath(Option<Dir>, Cow<'p, [u8]>),
    /// It is the own path of a scope.
    Scope(Vec<u8>),
    /// It leads to a scope.
    Above(Vec<u8>),
}

impl Root {
    pub(super) fn new(dir: Dir) -> Self {
        Self {
            dir: Arc::new(dir),
            scopes: None,
        }
    }

    /// The same directory, for paths in these parts of it.
    pub(super) fn within(&self, scopes: &[Vec<u8>]) -> Self {
        Self {
            dir: Arc::clone(&self.dir),
            // One that can't be understood covers nothing.
            scopes: Some(scopes.iter().filter_map(|scope| clean(scope)).collect()),
        }
    }

    /// Opens a directory to look names up in it.
    pub(super) fn enter(&self, asked: &[u8]) -> Result<Dir, ResolveError> {
        match self.way(asked)? {
            Resolution::Beneath(dir, rest) => self.base(dir.as_ref()).enter_beneath(&rest),
            Resolution::Scope(path) | Resolution::Above(path) => {
                self.dir.enter_without_links(&path)
            }
        }
    }

    /// Opens a directory that can be listed and made durable.
    pub(super) fn open(&self, asked: &[u8]) -> Result<Dir, ResolveError> {
        match self.way(asked)? {
            Resolution::Beneath(dir, rest) => self.base(dir.as_ref()).open_dir_beneath(&rest),
            Resolution::Scope(path) | Resolution::Above(path) => {
                let dir = self.dir.enter_without_links(&path)?;
                dir.open_dir_beneath(b"")
            }
        }
    }

    /// Finds what a path leads to, links followed.
    pub(super) fn find(&self, asked: &[u8]) -> Result<Handle, ResolveError> {
        match self.way(asked)? {
            Resolution::Beneath(dir, rest) => self.base(dir.as_ref()).find_beneath(&rest),
            Resolution::Scope(path) if is_directory(asked, &path) => {
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
    pub(super) fn open_for_reading(&self, asked: &[u8]) -> Result<File, ResolveError> {
        match self.way(asked)? {
            Resolution::Beneath(dir, rest) => {
                self.base(dir.as_ref()).open_for_reading_beneath(&rest)
            }
            Resolution::Scope(path) if is_directory(asked, &path) => {
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

    /// The directory that a clean path which isn't empty stands in, and its last name.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(Dir, &'p [u8]), ResolveError> {
        let cut = path.iter().rposition(|&b| b == b'/');
        let (parent, name) = cut.map_or((&b""[..], path), |cut| (&path[..cut], &path[cut + 1..]));
        Ok((self.dir.enter_without_links(parent)?, name))
    }

    fn way<'p>(&self, asked: &'p [u8]) -> Result<Resolution<'p>, ResolveError> {
        let Some(scopes) = &self.scopes else {
            return Ok(Resolution::Beneath(None, path::beneath(asked).into()));
        };
        let mut path = clean(asked).ok_or(OUTSIDE)?;
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
        if is_directory(asked, &path) {
            path.push(b'/');
        }
        Ok(Resolution::Beneath(Some(dir), path.into()))
    }
}

/// A path as its components with one '/' between each two; `None` if it goes up.
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

/// Whether a clean path is this scope's own or beneath it.
fn covers(scope: &[u8], path: &[u8]) -> bool {
    let rest = path.strip_prefix(scope);
    rest.is_some_and(|rest| scope.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
}

/// Whether nothing but a directory is meant by what became a clean path.
fn is_directory(asked: &[u8], clean: &[u8]) -> bool {
    clean.is_empty() || path::split(asked).1.is_empty()
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
