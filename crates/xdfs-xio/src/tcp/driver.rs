//! The driver `tcp`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::listener::TcpListener;
use super::options::{ATTRIBUTES, TcpOptions};
use super::stream::TcpStream;
use crate::driver::Driver;
use crate::endpoint::{Endpoint, Form};
#[cfg(unix)]
use crate::layer::{ListeningSocket, Property, Transport, another_transport};
use crate::stream::{Listener, Stream};

/// The driver `tcp`.
#[must_use]
pub fn driver() -> Driver {
    Driver::transport("tcp", Form::Socket, ATTRIBUTES, |options| {
        Tcp(Arc::new(options))
    })
    .gives(&[Property::Order])
}

#[derive(Debug)]
struct Tcp(Arc<TcpOptions>);

fn address(endpoint: &Endpoint) -> io::Result<SocketAddr> {
    endpoint
        .socket()
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

impl Transport for Tcp {
    fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(TcpStream::open(address(endpoint)?, &self.0)?))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(TcpListener::listen(address(endpoint)?, &self.0)?))
    }

    fn adopt(&self, socket: ListeningSocket) -> io::Result<Box<dyn Listener>> {
        match socket {
            ListeningSocket::Tcp(socket) => Ok(Box::new(TcpListener::adopt(socket, &self.0)?)),
            #[cfg(unix)]
            other => Err(another_transport(&other)),
        }
    }
}
