//! The client: one session with a server.

use xdfs_proto::{Fault, Limits};

use crate::remote::RemotePlace;
use crate::transfer::{LocalPlace, Transfer, TransferOptions};

/// How a client opens its session.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// Number of channels; `None` picks it from the size of the file and the path.
    pub channels: Option<u32>,
    /// Size of a block in bytes, a power of two; `None` for the default.
    pub block_size: Option<u32>,
    /// Socket buffer of a channel in bytes; `None` leaves it to the system.
    pub window: Option<u32>,
    /// Start only when all channels have joined.
    pub strict: bool,
    /// What the peer may cost.
    pub limits: Limits,
}

/// A session with a server. Several transfers may run in it one after another, back to back on
/// the same channels.
#[derive(Debug)]
pub struct Client {}

impl Client {
    /// Connects and opens a session. The path of `place` is not used.
    ///
    /// # Errors
    /// The server can't be reached, or refuses.
    pub fn connect(place: &RemotePlace, options: ClientOptions) -> Result<Self, Fault> {
        let _ = (place, options);
        todo!()
    }

    /// Starts to send `source` to `target`, a path on the server. If `target` is a directory the
    /// file keeps its name in it.
    ///
    /// # Errors
    /// The source can't be opened, or the session has ended. What fails later comes from
    /// [`Transfer::wait`].
    pub fn upload(
        &self,
        source: &LocalPlace,
        target: &[u8],
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        let _ = (source, target, options);
        todo!()
    }

    /// Starts to fetch `source`, a path on the server, to `target`.
    ///
    /// # Errors
    /// The session has ended. What fails later comes from [`Transfer::wait`].
    pub fn download(
        &self,
        source: &[u8],
        target: &LocalPlace,
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        let _ = (source, target, options);
        todo!()
    }

    /// Breaks one of the channels, as a failing network would. For demonstrations and tests.
    pub fn break_channel(&self) {
        todo!()
    }

    /// Ends the session in an orderly way. Dropping the client does the same.
    pub fn close(self) {}
}
