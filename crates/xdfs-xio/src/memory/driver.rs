//! The driver `memory`. It has no attributes.

use std::io;

use super::listener::{MemoryListener, connect};
use crate::driver::Driver;
use crate::endpoint::{Endpoint, Form};
use crate::layer::{Property, Transport};
use crate::stream::{Listener, Stream};

/// The driver `memory`.
#[must_use]
pub fn driver() -> Driver {
    Driver::transport("memory", Form::Name, &[], |()| Memory)
        .gives(&[Property::Order, Property::Integrity])
}

#[derive(Debug)]
struct Memory;

fn name(endpoint: &Endpoint) -> io::Result<&str> {
    endpoint
        .name()
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

impl Transport for Memory {
    fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(connect(name(endpoint)?)?))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(MemoryListener::listen(name(endpoint)?)?))
    }
}
