//! Groups of servers that move the large files of a tree, each by all of their members.
//!
//! Everything else of the tree goes through its own session, with the member that is named. A file
//! that fails may have failed by any member, so its fault never ends that session; it is tried
//! again once the named member answers.

use std::sync::Arc;

use xdfs_proto::Fault;

use crate::between::ServerFile;
use crate::client::Client;
use crate::remote::RemotePlace;
use crate::replicas::STRIPED_BYTES_MIN;

/// The groups that have the source and the target of a tree: the sessions with their
/// [places](crate::Replicas::group).
#[derive(Clone, Debug, Default)]
pub struct TreeStripes {
    /// The group of the source, if that is on a server.
    pub source: Option<Arc<Client>>,
    /// The group of the target, if that is on a server.
    pub target: Option<Arc<Client>>,
}

impl TreeStripes {
    /// Whether there are any.
    pub(super) fn are_any(&self) -> bool {
        self.source.is_some() || self.target.is_some()
    }

    /// Whether a file of so many bytes is moved by them.
    pub(super) fn take(&self, bytes: u64) -> bool {
        self.are_any() && bytes >= STRIPED_BYTES_MIN
    }

    /// The file of another server as one of all members.
    pub(super) fn source_file(&self, file: ServerFile) -> ServerFile {
        let Some(client) = self.source.clone() else {
            return file;
        };
        let place = RemotePlace {
            path: file.place().path.clone(),
            ..client.place().clone()
        };
        ServerFile::new(place, move |_| Ok(Arc::clone(&client))).by(file.way())
    }
}

/// A fault of a file that is moved by groups if `is_striped`, which doesn't end the session of the
/// tree.
pub(super) fn fault_of(is_striped: bool, fault: Fault) -> Fault {
    Fault {
        ends_session: fault.ends_session && !is_striped,
        ..fault
    }
}
