//! The driver `unix`. It has no attributes.

use std::io;

#[cfg(unix)]
use super::{listener::UnixListener, stream::UnixStream};
use crate::driver::Driver;
#[cfg(unix)]
use crate::endpoint::{Endpoint, Form};
use crate::layer::{ListeningSocket, Property, Transport, another_transport};
use crate::stream::{Listener, Stream};

/// The driver `unix`.
#[must_use]
pub fn driver() -> Driver {
    Driver::transport("unix", Form::Path, &[], |()| Unix).gives(&[Property::Order])
}

#[derive(Debug)]
struct Unix;

#[cfg(unix)]
impl Transport for Unix {
    fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(UnixStream::open(path(endpoint)?)?))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(UnixListener::listen(path(endpoint)?)?))
    }

    fn adopt(&self, socket: ListeningSocket) -> io::Result<Box<dyn Listener>> {
        match socket {
            ListeningSocket::Unix(socket) => Ok(Box::new(UnixListener::adopt(socket)?)),
            other => Err(another_transport(&other)),
        }
    }
}

#[cfg(unix)]
fn path(endpoint: &Endpoint) -> io::Result<&std::path::Path> {
    endpoint
        .path()
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(not(unix))]
impl Transport for Unix {
    fn open(&self, _: &Endpoint) -> io::Result<Box<dyn Stream>> {
        Err(unsupported())
    }

    fn listen(&self, _: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Err(unsupported())
    }
}

/// The error on systems without Unix sockets.
#[cfg(not(unix))]
fn unsupported() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "this system has no Unix sockets",
    )
}
