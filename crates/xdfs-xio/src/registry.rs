//! Drivers by name, and the construction of stacks from specifications.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::driver::{ConfiguredDriver, Driver, Role};
use crate::foreign::{self, LoadError};
use crate::spec::{DriverSpec, SpecError, StackSpec};
use crate::stack::Stack;
use crate::{
    buffer, digest, file, http, lz4, memory, process, ptcp, quic, stdio, tcp, throttle, tls, trace,
    udp, unix, zstd,
};

/// Drivers by name.
#[derive(Clone, Debug)]
pub struct Registry {
    drivers: BTreeMap<&'static str, Arc<Driver>>,
}

impl Registry {
    /// The drivers of this crate. `tls` and `quic` have no configuration; configured ones are
    /// registered in their place ([`tls::driver`], [`quic::driver`]).
    #[must_use]
    pub fn standard() -> Self {
        let drivers = BTreeMap::new();
        Self { drivers }
            .with(buffer::driver())
            .with(digest::driver())
            .with(file::driver())
            .with(http::driver())
            .with(lz4::driver())
            .with(memory::driver())
            .with(process::driver())
            .with(stdio::driver())
            .with(ptcp::driver())
            .with(quic::driver(tls::Configs::default()))
            .with(tcp::driver())
            .with(throttle::driver())
            .with(tls::driver(tls::Configs::default()))
            .with(trace::driver())
            .with(udp::driver())
            .with(unix::driver())
            .with(zstd::driver())
    }

    /// Adds a driver, replacing any of the same name.
    #[must_use]
    pub fn with(mut self, driver: Driver) -> Self {
        self.drivers.insert(driver.name(), Arc::new(driver));
        self
    }

    /// Adds the driver of the shared library at `path`, which becomes a part of the process and
    /// stays in it. One that was added from the same file before stays as it is.
    ///
    /// # Errors
    /// Others may change the file, it is no library with a driver of this interface's version, or
    /// its name is taken.
    pub fn load(self, path: &Path) -> Result<Self, LoadError> {
        let driver = foreign::driver(path)?;
        match self.drivers.get(driver.name()) {
            Some(known) if known.file() == driver.file() => Ok(self),
            Some(known) => Err(LoadError::taken(path, known)),
            None => Ok(self.with(driver)),
        }
    }

    /// Adds the drivers of all shared libraries in `folder`, those with the system's usual ending
    /// (`.so`).
    ///
    /// # Errors
    /// The directory can't be read, or any error of [`Registry::load`].
    pub fn load_all(self, folder: &Path) -> Result<Self, LoadError> {
        let mut files = foreign::libraries(folder)?.into_iter();
        files.try_fold(self, |registry, file| registry.load(&file))
    }

    /// The drivers, in order of name.
    pub fn drivers(&self) -> impl Iterator<Item = &Driver> {
        self.drivers.values().map(|driver| &**driver)
    }

    /// The driver called `name`.
    ///
    /// # Errors
    /// [`SpecError::UnknownDriver`], with the registered names.
    pub fn driver(&self, name: &str) -> Result<&Driver, SpecError> {
        let unknown = || SpecError::UnknownDriver {
            name: name.to_owned(),
            known: self.drivers.keys().copied().collect(),
        };
        let driver = self.drivers.get(name);
        driver.map(|driver| &**driver).ok_or_else(unknown)
    }

    /// Validates a specification and builds its stack.
    ///
    /// # Errors
    /// An unknown driver or attribute, an invalid value, a transport anywhere but at the bottom, or
    /// a driver whose needs nothing below it meets.
    pub fn build(&self, spec: &StackSpec) -> Result<Stack, SpecError> {
        let bottom = self.driver(spec.transport().name())?;
        if let Some(below) = bottom.below() {
            let whole = StackSpec::new(DriverSpec::new(below)?).with(spec.transport().clone());
            let whole = spec
                .transforms()
                .iter()
                .cloned()
                .fold(whole, StackSpec::with);
            return self.build(&whole);
        }
        let ConfiguredDriver::Transport(transport, form) = bottom.make(spec.transport())? else {
            let transports = self.drivers().filter(|d| d.role() == Role::Transport);
            return Err(SpecError::NoTransport {
                name: bottom.name().to_owned(),
                transports: transports.map(Driver::name).collect(),
            });
        };
        let given = bottom.given().to_vec();
        let spec_of_bottom = StackSpec::new(spec.transport().clone());
        let mut stack = Stack::new(spec_of_bottom, transport, form, given);
        for driver_spec in spec.transforms() {
            let driver = self.driver(driver_spec.name())?;
            let name = driver.name().to_owned();
            let made = driver.make(driver_spec)?;
            if let Some(unmet) = driver.needed().iter().find(|p| !stack.gives(**p)) {
                let needs = unmet.as_str();
                return Err(SpecError::Unmet { name, needs });
            }
            stack = match made {
                ConfiguredDriver::Transport(..) => {
                    return Err(SpecError::TransportAbove { name });
                }
                ConfiguredDriver::Transform(layer) => stack.layered(layer),
                ConfiguredDriver::Bundle(over) => stack.bundled(over),
            }
            .with(driver_spec.clone(), driver.given());
        }
        Ok(stack)
    }
}

impl Stack {
    /// A stack of this crate's drivers ([`Registry::standard`]), from its text:
    /// `tcp:nodelay=false`. Drivers that need a configuration, such as `tls`, come from a
    /// [`Registry`].
    ///
    /// # Errors
    /// The text is not that of a stack, or those of [`Registry::build`].
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        Registry::standard().build(&text.parse()?)
    }
}
