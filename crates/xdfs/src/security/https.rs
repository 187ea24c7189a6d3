//! TLS of a door that speaks HTTP.

use std::sync::Arc;

use rustls::ServerConfig;
use xdfs_security::identity::Reloading;

/// The protocol that browsers and programs agree on.
const ALPN: &[u8] = b"http/1.1";

/// The TLS of a door that speaks HTTP, with the certificate of a server.
#[derive(Debug)]
pub struct HttpsTls(pub(super) Reloading);

impl HttpsTls {
    /// The configuration for the next connection: TLS 1.3, HTTP/1.1 or no name of a protocol. A
    /// certificate that was renewed is loaded.
    ///
    /// There are no tickets: a session that is resumed shows no certificates, and a ticket would
    /// outlive those of its client.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.0.current());
        config.alpn_protocols = vec![ALPN.to_vec()];
        (config.send_tls13_tickets, config.max_tls13_tickets) = (0, 0);
        config.enable_secret_extraction = false;
        Arc::new(config)
    }
}
