//! The target of a transfer: its parent directory, held open, and its name.

use std::io;

use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{Dir, FileKind, ResolveError};

use super::path::{self, OPEN_TARGET};
use super::root::Root;
use crate::SinkRequest;

/// A resolved target. From here on the path is no longer used.
#[derive(Debug)]
pub(super) struct Target {
    /// The parent directory of the target.
    pub(super) dir: Dir,
    /// Its name in it: one component.
    pub(super) name: Vec<u8>,
    /// The path in the form used by the requester.
    pub(super) path: Vec<u8>,
}

impl Target {
    /// Resolves the parent directory and name of a request, beneath `root` if there is one.
    pub(super) fn resolve(root: Option<&Root>, request: &SinkRequest) -> Result<Self, Fault> {
        let requested = &request.path;
        path::check_bytes(OPEN_TARGET, requested)?;
        if root.is_none() && requested.is_empty() {
            return Err(Fault::new(
                Code::InvalidArgument,
                OPEN_TARGET,
                "the path is empty",
            ));
        }
        let (parent, last) = path::split(requested);
        if last.is_empty() {
            let dir = open_dir(root, parent).map_err(|error| match &error {
                ResolveError::Io(e) if e.kind() == io::ErrorKind::NotFound => {
                    no_directory(requested)
                }
                _ => path::resolve_fault(OPEN_TARGET, requested, &error),
            })?;
            return Self::inside(dir, request);
        }
        let dir = open_dir(root, parent).map_err(|error| match &error {
            ResolveError::Io(e) if e.kind() == io::ErrorKind::NotFound => {
                no_directory(requested).hint("make the directory first")
            }
            _ => path::resolve_fault(OPEN_TARGET, requested, &error),
        })?;
        let meta = dir.meta_of(last).map_err(|error| {
            path::resolve_fault(OPEN_TARGET, requested, &ResolveError::Io(error))
        })?;
        // A link may lead to a directory. It is resolved from the root, so that it may lead
        // anywhere beneath.
        if meta.is_some_and(|m| matches!(m.kind, FileKind::Directory | FileKind::Symlink)) {
            match open_dir(root, requested) {
                Ok(inner) => return Self::inside(inner, request),
                Err(ResolveError::Io(error))
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) => {}
                Err(error) => return Err(path::resolve_fault(OPEN_TARGET, requested, &error)),
            }
        }
        Self::named(dir, last, requested.clone())
    }

    /// The target inside a directory that the path names.
    fn inside(dir: Dir, request: &SinkRequest) -> Result<Self, Fault> {
        let (requested, name) = (&request.path, &request.name);
        if name.is_empty() {
            return Err(Fault::new(Code::IsDirectory, OPEN_TARGET, "is a directory")
                .path(requested)
                .hint("name a file in it"));
        }
        let is_component = name != b"." && name != b".." && !name.iter().any(is_never_in_a_name);
        if !is_component {
            let cause = format!("'{}' can't be the name of a file", name.escape_ascii());
            return Err(Fault::new(Code::InvalidArgument, OPEN_TARGET, cause).path(requested));
        }
        let separator: &[u8] = if requested.is_empty() || requested.ends_with(b"/") {
            b""
        } else {
            b"/"
        };
        Self::named(dir, name, [requested, separator, name].concat())
    }

    fn named(dir: Dir, name: &[u8], path: Vec<u8>) -> Result<Self, Fault> {
        if path::is_hidden_name(name) {
            return Err(path::hidden_fault(OPEN_TARGET, &path));
        }
        Ok(Self {
            dir,
            name: name.to_vec(),
            path,
        })
    }

    /// Checks the existing entry, if there is one. A symbolic link counts as a file: with
    /// `overwrite` the link itself is replaced, and its target stays unchanged.
    pub(super) fn check(&self, operation: &str, overwrite: bool) -> Result<(), Fault> {
        let meta = self.dir.meta_of(&self.name).map_err(|error| {
            path::resolve_fault(operation, &self.path, &ResolveError::Io(error))
        })?;
        let Some(meta) = meta else { return Ok(()) };
        match meta.kind {
            FileKind::Directory => {
                Err(Fault::new(Code::IsDirectory, operation, "is a directory").path(&self.path))
            }
            FileKind::Regular | FileKind::Symlink if overwrite => Ok(()),
            FileKind::Regular | FileKind::Symlink => Err(self.exists(operation)),
            kind => {
                let cause = format!("{kind} can't be replaced by a file");
                Err(Fault::new(Code::NotRegularFile, operation, cause).path(&self.path))
            }
        }
    }

    /// The fault of an existing target.
    pub(super) fn exists(&self, operation: &str) -> Fault {
        Fault::new(Code::AlreadyExists, operation, "the target exists")
            .path(&self.path)
            .hint("use --force to overwrite")
    }
}

fn open_dir(root: Option<&Root>, path: &[u8]) -> Result<Dir, ResolveError> {
    match root {
        Some(root) => root.open(path),
        None => Ok(Dir::open(&xdfs_sys::fs::path_from_bytes(path)?)?),
    }
}

fn is_never_in_a_name(byte: &u8) -> bool {
    matches!(byte, b'/' | 0) || (cfg!(windows) && matches!(byte, b'\\' | b':'))
}

fn no_directory(path: &[u8]) -> Fault {
    Fault::new(Code::NotFound, OPEN_TARGET, "no such directory").path(path)
}
