//! A passive open whose channels run TLS.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use xdfs_sys::poll::{Poller, Token};

use super::TlsStream;
use crate::{Endpoint, Listener, Stream};

/// Gives the configuration for the next channel: certificates may be replaced while it listens.
pub type Configs = Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// Listens by another driver and runs TLS on what it accepts.
pub struct TlsListener {
    inner: Box<dyn Listener>,
    configs: Configs,
}

impl TlsListener {
    /// Listens above `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Listener>, configs: Configs) -> Self {
        Self { inner, configs }
    }
}

impl Listener for TlsListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        let stream = TlsStream::accept(self.inner.accept()?, (self.configs)())?;
        Ok(Box::new(stream))
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.inner.register(poller, token)
    }

    fn local_endpoint(&self) -> Endpoint {
        self.inner.local_endpoint()
    }
}

impl fmt::Debug for TlsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsListener")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
