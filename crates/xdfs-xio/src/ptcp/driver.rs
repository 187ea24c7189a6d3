//! The driver `ptcp`.

use std::io;
use std::sync::Arc;

use super::core::{Core, First, Shared};
use super::dial::Dial;
use super::listener::BundleListener;
use super::options::{ATTRIBUTES, Options};
use super::service;
use super::stream::BundleStream;
use super::wire::Secret;
use crate::driver::Driver;
use crate::endpoint::Endpoint;
use crate::layer::{ListeningSocket, Property, Transport};
use crate::stack::Stack;
use crate::stream::{Listener, Stream};

/// The driver `ptcp`; at the bottom of a stack it is over `tcp`.
#[must_use]
pub fn driver() -> Driver {
    Driver::bundle("ptcp", "tcp", ATTRIBUTES, |options, stack| Ptcp {
        options,
        stack,
    })
    .gives(&[Property::Order])
    .needs(&[Property::Order])
}

#[derive(Debug)]
struct Ptcp {
    options: Options,
    stack: Stack,
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let failed = |_| io::Error::other("the system gives no random bytes");
    aws_lc_rs::rand::fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

impl Transport for Ptcp {
    fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let (id, secret) = (random()?, Secret(random()?));
        let stream = self.stack.open(endpoint)?;
        let first = First::of(&*stream);
        let dial = Dial::new(self.stack.clone(), endpoint.clone(), id, secret);
        let core = Core::new(first, Some(dial), self.options.patience);
        let shared = Arc::new(Shared::new(core));
        service::open(&shared, stream, &self.options)?;
        Ok(Box::new(BundleStream::new(shared)))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let raw = self.stack.listen(endpoint)?;
        Ok(Box::new(BundleListener::new(raw, &self.options)?))
    }

    fn adopt(&self, socket: ListeningSocket) -> io::Result<Box<dyn Listener>> {
        let raw = self.stack.adopt(socket)?;
        Ok(Box::new(BundleListener::new(raw, &self.options)?))
    }
}
