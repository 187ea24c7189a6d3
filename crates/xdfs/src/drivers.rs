//! Drivers of a program's own in the channels of its sessions.
//!
//! A [`Driver`] is a [`Transform`], which turns bytes into bytes. It has a name and attributes, and
//! a [`Registry`] makes it from its text. Both ends of a session need the same ones.

pub use xdfs_xio::{
    Attribute, AttributeHelp, Driver, DriverSpec, End, Output, Registry, Room, SpecError, Transform,
};

/// The drivers that there are, and those of them that channels have.
#[derive(Clone, Debug)]
pub struct Drivers {
    /// All that can be named: the built-in ones, unless others are added.
    pub registry: Registry,
    /// Transforms that are pushed on the transport, in this order, beneath TLS: of a protected
    /// session they see nothing but protected bytes. None by default.
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
