//! The driver `udp`.

use std::io;
use std::net::SocketAddr;

use super::listener::UdpListener;
use super::options::{ATTRIBUTES, UdpOptions};
use super::stream::UdpStream;
use crate::driver::Driver;
use crate::endpoint::{Endpoint, Form};
use crate::layer::Transport;
use crate::stream::{Listener, Stream};

/// The driver `udp`.
#[must_use]
pub fn driver() -> Driver {
    Driver::transport("udp", Form::Socket, ATTRIBUTES, Udp)
}

#[derive(Debug)]
struct Udp(UdpOptions);

fn address(endpoint: &Endpoint) -> io::Result<SocketAddr> {
    endpoint
        .socket()
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

impl Transport for Udp {
    fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(UdpStream::open(address(endpoint)?, self.0)?))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(UdpListener::listen(address(endpoint)?, self.0)?))
    }
}
