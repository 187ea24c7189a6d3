//! The driver `quic`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use super::configs::Configs;
use super::endpoint::{self, Remote};
use super::listener::QuicListener;
use super::options::ATTRIBUTES;
use crate::driver::Driver;
use crate::endpoint::{Endpoint, Form};
use crate::layer::{Property, Transport};
use crate::stream::{Listener, Stream};
use crate::tls;

/// The driver `quic` with these configurations of TLS, which must allow version 1.3. Without one,
/// an end can't be opened ([`io::ErrorKind::Unsupported`]).
#[must_use]
pub fn driver(configs: tls::Configs) -> Driver {
    Driver::transport("quic", Form::Socket, ATTRIBUTES, move |options| Quic {
        configs: Arc::new(Configs::new(options, configs.clone())),
        clients: Mutex::default(),
    })
    .gives(&[Property::Order, Property::Integrity, Property::Protection])
}

#[derive(Debug)]
struct Quic {
    configs: Arc<Configs>,
    clients: Mutex<Clients>,
}

/// The endpoints for streams that are opened, by the version of IP.
#[derive(Debug, Default)]
struct Clients {
    v4: Option<Remote>,
    v6: Option<Remote>,
}

fn address(endpoint: &Endpoint) -> io::Result<SocketAddr> {
    endpoint
        .socket()
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

impl Transport for Quic {
    fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let peer = address(endpoint)?;
        let (config, name) = self.configs.client()?;
        let mut clients = self.clients.lock().unwrap_or_else(|e| e.into_inner());
        let (client, local) = match peer {
            SocketAddr::V4(_) => (&mut clients.v4, (Ipv4Addr::UNSPECIFIED, 0).into()),
            SocketAddr::V6(_) => (&mut clients.v6, (Ipv6Addr::UNSPECIFIED, 0).into()),
        };
        let remote = match client {
            Some(remote) if remote.failure().is_none() => remote,
            _ => {
                let (_, remote) = endpoint::start(local, Arc::clone(&self.configs), None)?;
                client.insert(remote)
            }
        };
        Ok(Box::new(remote.open(peer, config, name)))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let listener = QuicListener::listen(address(endpoint)?, &self.configs)?;
        Ok(Box::new(listener))
    }
}
