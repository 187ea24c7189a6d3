//! Directories of a tree, with a cache of the most recently used ones.

use std::io;
use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_sys::fs::{Dir, ResolveError};

use super::{Problem, check_name, split};

/// Maximum number of directories held open beside that of the transfer.
const HELD_MAX: usize = 8;

/// Directories beneath a base, by path.
#[derive(Debug)]
pub(super) struct Dirs {
    base: Arc<Dir>,
    /// Most recently used first.
    held: Vec<(Vec<u8>, Arc<Dir>)>,
}

impl Dirs {
    pub(super) fn new(base: Dir) -> Self {
        Self {
            base: Arc::new(base),
            held: Vec::with_capacity(HELD_MAX),
        }
    }

    /// The directory of the transfer.
    pub(super) fn base(&self) -> &Arc<Dir> {
        &self.base
    }

    fn held(&mut self, path: &[u8]) -> Option<Arc<Dir>> {
        if path.is_empty() {
            return Some(Arc::clone(&self.base));
        }
        let at = self.held.iter().position(|(held, _)| held == path)?;
        if at > 0 {
            self.held[..=at].rotate_right(1);
        }
        self.held.first().map(|(_, dir)| Arc::clone(dir))
    }

    fn hold(&mut self, path: &[u8], dir: Arc<Dir>) -> Arc<Dir> {
        self.held.truncate(HELD_MAX - 1);
        self.held.insert(0, (path.to_vec(), Arc::clone(&dir)));
        dir
    }

    /// Opens a directory.
    pub(super) fn find(&mut self, path: &[u8]) -> Result<Arc<Dir>, Problem> {
        self.open(path)?.map_err(|error| Problem::resolve(&error))
    }

    /// Opens a directory, with errors of the system kept apart from paths that are refused
    /// beforehand.
    fn open(&mut self, path: &[u8]) -> Result<Result<Arc<Dir>, ResolveError>, Problem> {
        if let Some(dir) = self.held(path) {
            return Ok(Ok(dir));
        }
        path.split(|&b| b == b'/').try_for_each(check_name)?;
        let opened = self.base.enter_without_links(path);
        Ok(opened.map(|dir| self.hold(path, Arc::new(dir))))
    }

    /// Opens a directory, creating it and its missing parents. `allow` is called before each, and
    /// `made` counts them.
    pub(super) fn make(
        &mut self,
        path: &[u8],
        allow: &mut dyn FnMut() -> Result<(), Fault>,
        made: &mut u64,
    ) -> Result<Arc<Dir>, Problem> {
        match self.open(path)? {
            Ok(dir) => return Ok(dir),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(Problem::resolve(&error)),
        }
        // Usually only the last is missing.
        let (parent, last) = split(path);
        let (mut dir, rest) = match self.open(parent)? {
            Ok(dir) => (dir, last),
            Err(error) if is_missing(&error) => (Arc::clone(&self.base), path),
            Err(error) => return Err(Problem::resolve(&error)),
        };
        // Step by step, so that the cost grows only linearly with the length of the path.
        for name in rest.split(|&b| b == b'/') {
            let next = match dir.enter_without_links(name) {
                Err(error) if is_missing(&error) => {
                    allow()?;
                    match dir.make_dir(name, None) {
                        Ok(()) => *made += 1,
                        // Created concurrently.
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        Err(error) => return Err(Problem::io(&error)),
                    }
                    dir.enter_without_links(name)
                }
                next => next,
            };
            dir = Arc::new(next.map_err(|error| Problem::resolve(&error))?);
        }
        Ok(self.hold(path, dir))
    }
}

fn is_missing(error: &ResolveError) -> bool {
    matches!(error, ResolveError::Io(error) if error.kind() == io::ErrorKind::NotFound)
}
