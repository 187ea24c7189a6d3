//! The driver `stdio`. It has no attributes.

use std::io;

use crate::driver::Driver;
use crate::endpoint::{Endpoint, Form};
use crate::layer::{Property, Transport, never_listens};
use crate::stream::{Listener, Stream};

/// The driver `stdio`.
#[must_use]
pub fn driver() -> Driver {
    Driver::transport("stdio", Form::Nothing, &[], |()| Stdio)
        .gives(&[Property::Order])
        .active_only()
}

#[derive(Debug)]
struct Stdio;

impl Transport for Stdio {
    #[cfg(unix)]
    fn open(&self, _: &Endpoint) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(super::stream::StdioStream::of_process()?))
    }

    #[cfg(not(unix))]
    fn open(&self, _: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let why = "the transport stdio exists only on Unix";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    fn listen(&self, _: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Err(never_listens("stdio"))
    }
}
