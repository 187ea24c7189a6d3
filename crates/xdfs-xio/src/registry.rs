//! Drivers by name, and the construction of stacks from specifications.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::driver::{ConfiguredDriver, Driver, Role};
use crate::spec::{SpecError, StackSpec};
use crate::stack::Stack;
use crate::{file, http, memory, process, stdio, tcp, tls, udp, unix};

/// Drivers by name.
#[derive(Clone, Debug)]
pub struct Registry {
    drivers: BTreeMap<&'static str, Arc<Driver>>,
}

impl Registry {
    /// The drivers of this crate. `tls` has no configuration; a configured one is registered in its
    /// place ([`tls::driver`]).
    #[must_use]
    pub fn standard() -> Self {
        let drivers = BTreeMap::new();
        Self { drivers }
            .with(file::driver())
            .with(http::driver())
            .with(memory::driver())
            .with(process::driver())
            .with(stdio::driver())
            .with(tcp::driver())
            .with(udp::driver())
            .with(unix::driver())
            .with(tls::driver(tls::Configs::default()))
    }

    /// Adds a driver, replacing any of the same name.
    #[must_use]
    pub fn with(mut self, driver: Driver) -> Self {
        self.drivers.insert(driver.name(), Arc::new(driver));
        self
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
        let ConfiguredDriver::Transport(transport, form) = bottom.make(spec.transport())? else {
            let transports = self.drivers().filter(|d| d.role() == Role::Transport);
            return Err(SpecError::NoTransport {
                name: bottom.name().to_owned(),
                transports: transports.map(Driver::name).collect(),
            });
        };
        let mut given = bottom.given().to_vec();
        let mut layers = Vec::new();
        for driver_spec in spec.transforms() {
            let driver = self.driver(driver_spec.name())?;
            let name = driver.name().to_owned();
            let ConfiguredDriver::Transform(layer) = driver.make(driver_spec)? else {
                return Err(SpecError::TransportAbove { name });
            };
            if let Some(unmet) = driver.needed().iter().find(|p| !given.contains(p)) {
                let needs = unmet.as_str();
                return Err(SpecError::Unmet { name, needs });
            }
            given.extend(driver.given());
            layers.push(layer);
        }
        Ok(Stack::new(spec.clone(), transport, form, layers, given))
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
