//! The driver `file`.

use std::io;

use super::options::{ATTRIBUTES, FileOptions};
use super::stream::FileStream;
use crate::driver::Driver;
use crate::endpoint::{Endpoint, Form};
use crate::layer::{Property, Transport, never_listens};
use crate::stream::{Listener, Stream};

/// The driver `file`.
#[must_use]
pub fn driver() -> Driver {
    Driver::transport("file", Form::Path, ATTRIBUTES, Files)
        .gives(&[Property::Order])
        .active_only()
}

#[derive(Debug)]
struct Files(FileOptions);

impl Transport for Files {
    fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let path = endpoint.path().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Box::new(FileStream::open(path, &self.0)?))
    }

    fn listen(&self, _: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Err(never_listens("file"))
    }
}
