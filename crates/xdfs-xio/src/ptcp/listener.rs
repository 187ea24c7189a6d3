//! A passive open of bundles.

use std::io;
use std::sync::Arc;

use xdfs_sys::poll::{Poller, Token};

use super::door::Door;
use super::options::Options;
use super::service;
use super::stream::BundleStream;
use crate::endpoint::Endpoint;
use crate::stream::{Listener, Stream};

/// Listens for bundles. Streams that join one are accepted as long as it stands.
#[derive(Debug)]
pub(super) struct BundleListener(Arc<Door>);

impl BundleListener {
    pub(super) fn new(raw: Box<dyn Listener>, options: &Options) -> io::Result<Self> {
        let door = Arc::new(Door::new(raw, options));
        service::listen(&door)?;
        Ok(Self(door))
    }
}

impl Listener for BundleListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        match self.0.ready.pop() {
            Some(bundle) => Ok(Box::new(BundleStream::new(bundle?))),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.0.ready.register(poller.notifier(), token);
        Ok(())
    }

    fn local_endpoint(&self) -> Endpoint {
        self.0.local.clone()
    }
}

impl Drop for BundleListener {
    fn drop(&mut self) {
        // As if their user had left.
        for bundle in self.0.close() {
            drop(BundleStream::new(bundle));
        }
    }
}
