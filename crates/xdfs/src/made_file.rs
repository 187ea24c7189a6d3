//! Files that are made while they are read, as sources of uploads.

use std::fmt;
use std::sync::Arc;

use xdfs_proto::SourceTag;
use xdfs_store::Source;

/// A maker of a file.
pub(crate) trait MakeFile: Send + Sync + fmt::Debug {
    /// The local path that messages name.
    fn path(&self) -> &[u8];

    /// Its length.
    fn bytes(&self) -> u64;

    /// The version by which an interrupted upload resumes.
    fn tag(&self) -> SourceTag;

    fn open(&self) -> Box<dyn Source>;
}

/// A file that is made while it is read. Cheap to clone. Two are equal if they have the same path
/// and version.
#[derive(Clone, Debug)]
pub struct MadeFile(Arc<dyn MakeFile>);

impl MadeFile {
    pub(crate) fn new(file: Arc<dyn MakeFile>) -> Self {
        Self(file)
    }

    /// The local path that messages name.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.0.path()
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    pub(crate) fn open(&self) -> Box<dyn Source> {
        self.0.open()
    }
}

impl PartialEq for MadeFile {
    fn eq(&self, other: &Self) -> bool {
        (self.0.path(), self.0.tag()) == (other.0.path(), other.0.tag())
    }
}

impl Eq for MadeFile {}
