//! Drivers by name, and the way from the text of a stack to one that opens and listens.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::driver::{Driver, Made, Role};
use crate::spec::{SpecError, StackSpec};
use crate::stack::Stack;
use crate::{memory, tcp, tls, unix};

/// Drivers by name.
#[derive(Clone, Debug)]
pub struct Registry {
    drivers: BTreeMap<&'static str, Arc<Driver>>,
}

impl Registry {
    /// The drivers of this crate. `tls` has no configuration; one that has is registered in its
    /// place ([`tls::driver`]).
    #[must_use]
    pub fn standard() -> Self {
        let drivers = BTreeMap::new();
        Self { drivers }
            .with(memory::driver())
            .with(tcp::driver())
            .with(unix::driver())
            .with(tls::driver(tls::Configs::default()))
    }

    /// The same registry with one more driver. It takes the place of one with the same name.
    #[must_use]
    pub fn with(mut self, driver: Driver) -> Self {
        self.drivers.insert(driver.name(), Arc::new(driver));
        self
    }

    /// The drivers, in the order of their names.
    pub fn drivers(&self) -> impl Iterator<Item = &Driver> {
        self.drivers.values().map(|driver| &**driver)
    }

    /// The driver called `name`.
    ///
    /// # Errors
    /// [`SpecError::UnknownDriver`], with the names that there are.
    pub fn driver(&self, name: &str) -> Result<&Driver, SpecError> {
        let unknown = || SpecError::UnknownDriver {
            name: name.to_owned(),
            known: self.drivers.keys().copied().collect(),
        };
        let driver = self.drivers.get(name);
        driver.map(|driver| &**driver).ok_or_else(unknown)
    }

    /// Checks a stack and makes it.
    ///
    /// # Errors
    /// A driver or attribute isn't known, a value is wrong, the stack has its transport elsewhere
    /// than at its bottom, or a driver needs what nothing below it gives.
    pub fn build(&self, spec: &StackSpec) -> Result<Stack, SpecError> {
        let bottom = self.driver(spec.transport().name())?;
        let Made::Transport(transport, form) = bottom.make(spec.transport())? else {
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
            let Made::Transform(layer) = driver.make(driver_spec)? else {
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
