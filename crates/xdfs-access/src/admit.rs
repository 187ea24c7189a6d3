//! Who comes in by the doors of a server, and what they reach.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use xdfs_proto::Fault;
use xdfs_security::identity::ServerIdentity;
use xdfs_store::Store;

use crate::access::Access;

/// Who comes in by the doors of a server, and what they reach: the same at all doors.
#[derive(Clone, Debug)]
pub enum Admit {
    /// Every peer reaches this store, without a login. There is no TLS.
    Open(Arc<dyn Store>),
    /// These rules admit users and choose their stores.
    Guarded(Arc<dyn CurrentAccess>),
}

/// The rules and the certificate of a server as they are now: a reload replaces them. A session
/// keeps the [`Access`] that has admitted it.
pub trait CurrentAccess: Send + Sync + fmt::Debug {
    /// The rules for a new session.
    fn access(&self) -> Arc<Access>;

    /// Whether users with names may move payload unencrypted.
    fn takes_clear(&self) -> bool;

    /// TLS with the server's certificate, for a new connection.
    fn tls(&self) -> Arc<ServerConfig>;

    /// The key and the certificate of new connections, which needs no right to read their files.
    fn signer(&self) -> Arc<ServerIdentity>;

    /// The key and the certificate, read again: for connections of the server's own, and for
    /// secrets that stay the same as long as the key.
    ///
    /// # Errors
    /// A file can't be read.
    fn identity(&self) -> Result<ServerIdentity, Fault>;
}
