//! The free space of the target, which a dry run compares with what the files need.

use xdfs_proto::{Code, Fault};

use super::moving::Report;
use super::run::TreeRun;
use super::tracker::split;
use crate::paths::{Answer, Attributes, Call, FileKind};

impl TreeRun<'_> {
    /// The storage that the content of an entry needs: not more than it takes at the source.
    pub(super) fn storage(&self, found: &Attributes) -> u64 {
        match found.kind {
            FileKind::File if !self.source.traits().storage => found.size,
            FileKind::File => found.size.min(found.allocated),
            _ => 0,
        }
    }

    /// Whether the target has the space that a dry run has found to be needed, by what its file
    /// system and the user's quota leave. What can't be asked is no obstacle. `unseen` says that
    /// files are replaced that weren't looked at.
    ///
    /// # Errors
    /// [`Code::NoSpace`].
    pub(super) fn check_space(&self, unseen: bool, report: &Report<'_>) -> Result<(), Fault> {
        let needed = report.needed.most(unseen);
        let Some(left) = self.space_left().filter(|left| *left < needed) else {
            return Ok(());
        };
        let cause = format!("{needed} bytes are needed and {left} are left");
        let fault = Fault::new(Code::NoSpace, "reserve space for", cause);
        let fault = fault.path(self.target.root()).hint("free some space there");
        Err(match self.target.is_remote() {
            true => fault.remote(),
            false => fault,
        })
    }

    /// The bytes left for this user at the target, or at the directory in which it will be made;
    /// `None` if there is no limit or it isn't known.
    fn space_left(&self) -> Option<u64> {
        let root = self.target.root();
        let mut path = match root {
            b"" => &b"."[..],
            root => root,
        };
        loop {
            let call = Call::Space {
                path: path.to_vec(),
            };
            match self.target.start(call).wait() {
                // A file system without a size has no limit.
                Ok(Answer::Space {
                    total, available, ..
                }) => return (total > 0).then_some(available),
                Err(fault) if fault.code == Code::NotFound => {}
                _ => return None,
            }
            path = above(path)?;
        }
    }
}

/// The path of the directory above a path; `None` if that isn't known.
pub(super) fn above(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    match split(&path[..end]).0 {
        _ if matches!(path, b"/" | b".") => None,
        b"" if path.starts_with(b"/") => Some(b"/"),
        b"" => Some(b"."),
        above => Some(above),
    }
}
