//! The drivers in the channels of a session.
//!
//! A [`Driver`] moves bytes, or turns them into others ([`Transform`]). It has a name and
//! attributes, and a [`Registry`] builds it from its text form. Both ends of a session need the
//! same drivers.

pub use xdfs_xio::{
    Attribute, AttributeHelp, Driver, DriverSpec, End, Output, Property, Registry, Room, SpecError,
    StackSpec, Transform,
};

/// The available drivers, and those that channels use.
#[derive(Clone, Debug)]
pub struct Drivers {
    /// The available drivers: the built-in ones, unless others are added.
    pub registry: Registry,
    /// The stacks of channels, such as `tcp,tls,zstd`. A client tries them in this order until the
    /// server answers; a server listens with the first one, unless the address names another. If
    /// there is none, the transport of the address is used alone.
    ///
    /// In a protected session, TLS is added above a stack that doesn't name it and isn't protected
    /// by itself: then its other drivers see only protected bytes.
    pub stacks: Vec<StackSpec>,
}

impl Default for Drivers {
    fn default() -> Self {
        Self {
            registry: Registry::standard(),
            stacks: Vec::new(),
        }
    }
}
