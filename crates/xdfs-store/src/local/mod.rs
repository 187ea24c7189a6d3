//! Files of this machine.
//!
//! A [`LocalStore`] is either rooted, as a server's: paths come from peers and are resolved
//! beneath one directory by the kernel; or unrooted, as a client's: paths are the user's own and
//! follow the ordinary rules. Everything after the resolution is the same for both.
//!
//! A target is written to a hidden partial file beside it and gets its name when it is complete,
//! verified and durable; what is durable before that is kept in a [`journal`].

mod calls;
pub mod journal;
mod journal_file;
mod partial;
mod path;
mod sink;
mod source;
mod target;

use std::path::Path;
use std::sync::Arc;

use xdfs_proto::path::{Answer, Attributes, Call};
use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{self, Dir};

use crate::{FileRequest, OpenedFile, OpenedSink, SinkRequest, Source, Store};

/// A store of local files.
#[derive(Clone, Debug)]
pub struct LocalStore {
    /// The directory that no path leaves; `None` for the ordinary rules.
    root: Option<Arc<Dir>>,
    read_only: bool,
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
            root: Some(Arc::new(root)),
            read_only,
        })
    }

    /// A store whose paths are those of this process.
    #[must_use]
    pub fn unrooted() -> Self {
        Self {
            root: None,
            read_only: false,
        }
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

    /// Removes a directory with everything in it, as [`Call::RemoveTree`] does, and tells of each
    /// name that was removed: its path, which begins with `path`, and what it was. Returns the
    /// number of names.
    ///
    /// # Errors
    /// A fault that names the path; some of the tree may be removed then.
    pub fn remove_tree(
        &self,
        path: &[u8],
        removed: &mut dyn FnMut(&[u8], &Attributes),
    ) -> Result<u64, Fault> {
        calls::remove_tree(self, path, removed)
    }

    fn open_local(&self, path: &[u8]) -> Result<source::LocalSource, Fault> {
        let file = match &self.root {
            Some(root) => path::open_source_beneath(root, path)?,
            None => {
                let ordinary = path::ordinary(path::OPEN_SOURCE, path)?;
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
