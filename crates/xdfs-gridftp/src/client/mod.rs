//! A client of FTP and GridFTP servers: their files as a [`Store`](xdfs_store::Store).
//!
//! ```text
//!  FtpStore --- pool of Links --- FtpSource, FtpSink, packs, calls
//!                  |                  |
//!               dialogue          incoming, outgoing --- receiver, sender, block
//!                  |                  |
//!             wire, tls            channel --- wire, tls
//!                  |
//!               carrier
//! ```
//!
//! Between two servers a file can go straight from one to the other (`third_party`). With data
//! nodes a server has several addresses for a file (`striping`).
//!
//! The machines without I/O are [`dialogue`], [`features`] and [`listing`] beside those of the
//! crate; the rest touches sockets. Whoever uses the store, such as the engine, brings verified and
//! resumable publishing, retries and reports. `docs/gridftp/README.md` says what is supported.

mod begun;
mod call;
mod carrier;
mod channel;
pub mod dialogue;
mod directory;
mod early;
mod exchange;
mod fault;
pub mod features;
mod fresh;
mod incoming;
mod journal;
mod link;
pub mod listed;
pub mod listing;
mod listings;
pub mod long_row;
pub mod markers;
mod missing;
mod outgoing;
mod pack;
mod parked;
mod passive;
mod place;
mod plain;
mod pool;
mod protection;
mod resumed;
mod runs;
mod segment;
mod sink;
mod slots;
mod source;
mod store;
mod striping;
mod third_party;
mod tls;
mod told;
mod told_rows;
mod tree;
mod window;

use std::path::PathBuf;

pub use carrier::Carrier;
pub use place::TRAITS;
pub use pool::FtpStore;
#[cfg(feature = "gsi")]
pub use protection::Gsi;
pub use protection::Protection;
pub use striping::{NodeAddresses, Stripes, striped_addresses};
pub use tls::Tls;
pub use told::{extended_port, passive_address};

/// The port of FTP servers.
pub const FTP_PORT: u16 = 21;
/// The port of GridFTP servers (registered by IANA).
pub const GSIFTP_PORT: u16 = 2811;

/// Where paths with one slash begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathOrigin {
    /// In the directory of the login, and those with two slashes at the root of the server
    /// (RFC 1738, section 3.2.2).
    Login,
    /// At the root of the server, and those after `/~` in the directory of the login: as the tools
    /// of Globus have it.
    Root,
}

/// A server, and how to talk to it.
#[derive(Clone)]
pub struct Settings {
    /// Name or address of the host.
    pub host: String,
    /// Port of the control connection.
    pub port: u16,
    /// The user; `None` for `anonymous`.
    pub user: Option<String>,
    /// The user's password, which is sent unencrypted unless there is TLS.
    pub password: Option<String>,
    /// What protects all connections.
    pub protection: Protection,
    /// What carries control connections, and with them the proof of who is at their ends; data
    /// connections are without protection then. `None` for a connection to the port.
    pub carrier: Option<Carrier>,
    /// Where paths begin.
    pub paths: PathOrigin,
    /// Files aren't compared by checksums; their size and time are.
    pub is_uncompared: bool,
    /// Data connections for a large file in MODE E, 1 to 64; `None` for 4.
    pub channels: Option<u32>,
    /// Directory for the journals of large uploads, created if missing; `None` for no journals, so
    /// that interrupted uploads begin anew.
    pub uploads: Option<PathBuf>,
    /// Files go to all data nodes of the server at once, and come from them; `None` to go to the
    /// server itself, and come from it.
    pub stripes: Option<Stripes>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "..."))
            .field("protection", &self.protection)
            .field("carrier", &self.carrier)
            .field("paths", &self.paths)
            .field("is_uncompared", &self.is_uncompared)
            .field("channels", &self.channels)
            .field("uploads", &self.uploads)
            .field("stripes", &self.stripes)
            .finish()
    }
}
