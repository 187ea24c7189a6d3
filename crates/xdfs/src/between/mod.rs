//! Copies from one server to another.
//!
//! A file of another server is a source like a local one: its server is a [`Store`], which the
//! session with the target reads. So the bytes pass through this process, in bounded memory, and
//! everything else is as in any upload. A server copies its own files without that, and two servers
//! may move them straight from one to the other ([`Way`]).

mod order;
mod origin;
mod third_party;
mod transfer;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xdfs_proto::Fault;
use xdfs_proto::third_party::CopyId;
#[cfg(doc)]
use xdfs_store::Store;

use crate::client::Client;
use crate::remote::RemotePlace;

pub(crate) use self::order::{Failed, LIFE, LOOK_MAX, LOOK_MIN, addresses, impossible, random};
pub(crate) use self::origin::Origin;

/// How a file gets from one server to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Way {
    /// Within one server, or straight between two servers, where that is possible; otherwise
    /// through this process.
    #[default]
    Any,
    /// Without this process or not at all: a copy for which that is impossible fails with
    /// [`Code::Unsupported`](crate::Code::Unsupported).
    Direct,
    /// Through this process.
    #[serde(alias = "relayed")]
    Client,
}

/// A copy that servers make by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetachedCopy {
    /// Its identifier, for [`Client::copy_status`] and [`Client::cancel_copy`].
    pub id: CopyId,
    /// The server of the source has it; otherwise that of the target.
    pub is_at_source: bool,
}

/// Opens the session with a server.
type Connect = dyn Fn(&RemotePlace) -> Result<Arc<Client>, Fault> + Send + Sync;

/// A file of another server, as the source of an upload
/// ([`LocalPlace::OtherServer`](crate::LocalPlace::OtherServer)). Two are equal if they name the
/// same file, and want it to be copied in the same way.
#[derive(Clone)]
pub struct ServerFile {
    place: Box<RemotePlace>,
    way: Way,
    connect: Arc<Connect>,
}

impl ServerFile {
    /// The file at `place`. Whenever its server is needed, `connect` is called for the session with
    /// it, in whichever thread; it should return an open one again.
    #[must_use]
    pub fn new(
        place: RemotePlace,
        connect: impl Fn(&RemotePlace) -> Result<Arc<Client>, Fault> + Send + Sync + 'static,
    ) -> Self {
        Self {
            place: Box::new(place),
            way: Way::default(),
            connect: Arc::new(connect),
        }
    }

    /// The same file, to be copied in this way.
    #[must_use]
    pub fn by(self, way: Way) -> Self {
        Self { way, ..self }
    }

    /// Another file on the same server.
    #[must_use]
    pub fn at(&self, path: Vec<u8>) -> Self {
        let mut file = self.clone();
        file.place.path = path;
        file
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> &RemotePlace {
        &self.place
    }

    /// How it is copied.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way
    }

    pub(crate) fn client(&self) -> Result<Arc<Client>, Fault> {
        (self.connect)(&self.place).map_err(|fault| self.named(fault))
    }

    /// Says at which server a fault has happened. The session that it may have ended is not that
    /// with the target.
    pub(crate) fn named(&self, fault: Fault) -> Fault {
        let fault = fault.at(&self.place.address.machine());
        let server = self.place.address.to_string();
        let is_said = fault.machine.is_some() || fault.operation.contains(&server);
        Fault {
            operation: match is_said {
                true => fault.operation,
                false => format!("{} (server {server})", fault.operation),
            },
            ends_session: false,
            ..fault
        }
    }
}

impl fmt::Debug for ServerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerFile")
            .field("place", &self.place)
            .field("way", &self.way)
            .finish_non_exhaustive()
    }
}

impl PartialEq for ServerFile {
    fn eq(&self, other: &Self) -> bool {
        (&self.place, self.way) == (&other.place, other.way)
    }
}

impl Eq for ServerFile {}
