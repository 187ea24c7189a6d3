//! The driver `tls`. It has no attributes: its configuration can't be expressed as text.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use zeroize::Zeroizing;

use super::stream::TlsStream;
use crate::driver::Driver;
use crate::layer::{Layer, Property};
use crate::stream::Stream;
use crate::transform::End;

/// Provides the configuration for the next channel: certificates may be replaced while it listens.
pub type ServerConfigs = Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// A program's TLS configurations. They contain the trust decisions, and must allow the extraction
/// of secrets.
#[derive(Clone, Default)]
pub struct Configs {
    /// For opened channels, with the name that the acceptor must prove.
    pub client: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// For accepted channels.
    pub server: Option<ServerConfigs>,
    /// For what outlives a program that accepts; without it, nothing does. `quic` derives the key
    /// of its stateless resets from it.
    pub secret: Option<StableSecret>,
}

/// A secret of 32 bytes that is the same whenever a program starts again with the same identity,
/// and known to nobody else. It isn't printed.
#[derive(Clone)]
pub struct StableSecret(Arc<Zeroizing<[u8; 32]>>);

impl StableSecret {
    /// The secret with these bytes, which must be as good as random ones.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Arc::new(Zeroizing::new(bytes)))
    }

    /// Its bytes, from which to derive keys, each for one purpose.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for StableSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StableSecret")
    }
}

/// The driver `tls` with these configurations. Without one, an end can't be opened
/// ([`io::ErrorKind::Unsupported`]).
#[must_use]
pub fn driver(configs: Configs) -> Driver {
    Driver::layer("tls", &[], move |()| Tls(configs.clone()))
        .needs(&[Property::Order])
        .gives(&[Property::Integrity, Property::Protection])
}

#[derive(Debug)]
struct Tls(Configs);

impl Layer for Tls {
    fn push(&self, below: Box<dyn Stream>, end: End) -> io::Result<Box<dyn Stream>> {
        let Configs { client, server, .. } = &self.0;
        let missing = |end| {
            let why = format!("the driver 'tls' has no configuration for the {end} end");
            io::Error::new(io::ErrorKind::Unsupported, why)
        };
        let stream = match end {
            End::Initiator => {
                let (config, name) = client.clone().ok_or_else(|| missing("client"))?;
                TlsStream::open(below, config, name)?
            }
            End::Acceptor => {
                let configs = server.as_ref().ok_or_else(|| missing("server"))?;
                TlsStream::accept(below, configs())?
            }
        };
        Ok(Box::new(stream))
    }
}

impl fmt::Debug for Configs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configs")
            .field("client", &self.client.as_ref().map(|(_, name)| name))
            .field("server", &self.server.is_some())
            .finish()
    }
}
