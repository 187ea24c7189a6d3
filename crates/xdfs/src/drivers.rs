//! Custom drivers in the channels of a session.
//!
//! A [`Driver`] builds a [`Transform`], which turns bytes into bytes. It has a name and attributes,
//! and a [`Registry`] builds it from its text form. Both ends of a session need the same drivers.

pub use xdfs_xio::{
    Attribute, AttributeHelp, Driver, DriverSpec, End, Output, Registry, Room, SpecError, Transform,
};

/// The available drivers, and those that channels use.
#[derive(Clone, Debug)]
pub struct Drivers {
    /// The available drivers: the built-in ones, unless others are added.
    pub registry: Registry,
    /// Transforms pushed onto the transport in this order, beneath TLS: in a protected session they
    /// see only protected bytes. None by default.
    pub transforms: Vec<DriverSpec>,
}

impl Default for Drivers {
    fn default() -> Self {
        Self {
            registry: Registry::standard(),
            transforms: Vec::new(),
        }
    }
}
