//! The drivers in the channels of a session.
//!
//! A [`Driver`] moves bytes, or turns them into others ([`Transform`]). It has a name and
//! attributes, and a [`Registry`] builds it from its text form. Both ends of a session need the
//! same drivers. A panic in a driver ends its channel only.
//!
//! Drivers in shared libraries, for the interface in `include/xdfs_xio_driver.h`, are loaded by
//! [`Drivers::load`].

use std::io::{Error, ErrorKind};
use std::path::Path;

use xdfs_proto::{Code, Fault};
use xdfs_xio::LoadError;

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

impl Drivers {
    /// Adds the driver of the shared library at `path`; see [`Registry::load`].
    ///
    /// # Errors
    /// Those of [`Registry::load`].
    pub fn load(&mut self, path: &Path) -> Result<(), Fault> {
        let loaded = self.registry.clone().load(path);
        self.registry = loaded.map_err(|error| not_loaded(&error))?;
        Ok(())
    }

    /// Adds the drivers of all shared libraries in `folder`; see [`Registry::load_all`].
    ///
    /// # Errors
    /// Those of [`Registry::load_all`].
    pub fn load_all(&mut self, folder: &Path) -> Result<(), Fault> {
        let loaded = self.registry.clone().load_all(folder);
        self.registry = loaded.map_err(|error| not_loaded(&error))?;
        Ok(())
    }

    /// The libraries of drivers that were loaded.
    pub(crate) fn files(&self) -> Vec<&Path> {
        self.registry.drivers().filter_map(Driver::file).collect()
    }
}

fn not_loaded(error: &LoadError) -> Fault {
    const LOAD: &str = "load a driver";
    let path = error.path().as_os_str().as_encoded_bytes();
    let fault = match error.kind() {
        ErrorKind::AlreadyExists | ErrorKind::InvalidData | ErrorKind::InvalidInput => {
            Fault::new(Code::InvalidArgument, LOAD, error.to_string()).path(path)
        }
        kind => Fault::from_io(LOAD, path, &Error::new(kind, error.to_string())),
    };
    match error.hint() {
        "" => fault,
        hint => fault.hint(hint),
    }
}

impl Default for Drivers {
    fn default() -> Self {
        Self {
            registry: Registry::standard(),
            stacks: Vec::new(),
        }
    }
}
