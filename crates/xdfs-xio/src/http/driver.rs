//! The driver `http`.

use std::io::{self, ErrorKind};

use super::options::{ATTRIBUTES, HttpOptions};
use super::transform::Http;
use crate::driver::Driver;
use crate::endpoint::{Endpoint, Resource};
use crate::layer::{Layer, Property};
use crate::stream::Stream;
use crate::transform::{End, Transformed};

/// The driver `http`.
#[must_use]
pub fn driver() -> Driver {
    Driver::layer("http", ATTRIBUTES, HttpLayer)
        .needs(&[Property::Order])
        .active_only()
}

#[derive(Debug)]
struct HttpLayer(HttpOptions);

impl Layer for HttpLayer {
    fn push(&self, _: Box<dyn Stream>, _: End) -> io::Result<Box<dyn Stream>> {
        let why = "the driver 'http' only opens, to a contact such as http://example.org/path";
        Err(io::Error::new(ErrorKind::Unsupported, why))
    }

    fn push_to(&self, below: Box<dyn Stream>, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let Some(resource) = endpoint.resource() else {
            return self.push(below, End::Initiator);
        };
        let http = Http::new(self.0.clone(), Resource::clone(resource));
        Ok(Box::new(Transformed::new(below, End::Initiator, http)))
    }
}
