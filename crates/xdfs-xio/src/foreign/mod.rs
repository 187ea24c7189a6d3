//! Drivers in shared libraries, written in C or in any language that can offer its interface:
//! `include/xdfs_xio_driver.h`.
//!
//! Guarantees: a library is loaded only if nobody but its owner and root can change it; a table
//! that can't be right is refused; a driver that lies about lengths, makes no progress or fails has
//! an error in its stream. Limits: transforms only; the code of a library has all rights of the
//! process, and what it does with memory can't be checked.
//!
//! `file.rs` checks files, and `transform.rs` makes a [`Transform`](crate::Transform) of a channel;
//! the calls are in [`xdfs_sys::driver`].

mod file;
mod transform;

use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use xdfs_sys::driver::{SharedDriver, property};

use crate::attribute::AttributeHelp;
use crate::driver::Driver;
use crate::layer::{Layer, Property};
use crate::spec::{DriverSpec, SpecError};
use crate::stream::Stream;
use crate::transform::{End, Transformed};
pub(crate) use file::libraries;
use transform::ForeignTransform;

/// Why a driver can't be loaded from a library.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct LoadError {
    path: PathBuf,
    kind: ErrorKind,
    cause: String,
    hint: String,
}

impl LoadError {
    fn new(
        path: &Path,
        kind: ErrorKind,
        cause: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            kind,
            cause: cause.into(),
            hint: hint.into(),
        }
    }

    fn io(path: &Path, error: &io::Error, hint: &'static str) -> Self {
        Self::new(path, error.kind(), error.to_string(), hint)
    }

    pub(crate) fn taken(path: &Path, known: &Driver) -> Self {
        let of = match known.file() {
            Some(file) => format!("the driver in {}", file.display()),
            None => "another driver".to_owned(),
        };
        let cause = format!("its name '{}' is taken by {of}", known.name());
        Self::new(path, ErrorKind::AlreadyExists, cause, "")
    }

    /// The library, or the directory of libraries.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kind of failure: [`ErrorKind::NotFound`], [`ErrorKind::PermissionDenied`] if others may
    /// change the file, [`ErrorKind::AlreadyExists`] if the name is taken,
    /// [`ErrorKind::InvalidData`] if it is no such library, or another one of the system.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the user can do; may be empty.
    #[must_use]
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

/// The driver of the library at `path`.
pub(crate) fn driver(path: &Path) -> Result<Driver, LoadError> {
    let file = file::checked(path)?;
    let hint = "a driver is a shared library built for the interface in xdfs_xio_driver.h";
    let shared = SharedDriver::load(&file).map_err(|e| LoadError::io(path, &e, hint))?;
    let attributes = shared.attributes().iter().map(|attribute| AttributeHelp {
        name: &attribute.name,
        takes: &attribute.takes,
    });
    let gives = properties(shared.gives());
    Ok(Driver::foreign(
        shared.name(),
        attributes.collect(),
        [gives, properties(shared.needs())],
        file,
        |spec| Foreign::new(shared, spec),
    ))
}

fn properties(bits: u32) -> Vec<Property> {
    let all = [
        (property::ORDER, Property::Order),
        (property::INTEGRITY, Property::Integrity),
        (property::PROTECTION, Property::Protection),
    ];
    let set = all.into_iter().filter(|(bit, _)| bits & bit != 0);
    set.map(|(_, property)| property).collect()
}

/// A configured driver of a library.
#[derive(Debug)]
struct Foreign {
    driver: &'static SharedDriver,
    settings: Vec<(CString, CString)>,
}

impl Foreign {
    fn new(driver: &'static SharedDriver, spec: &DriverSpec) -> Result<Self, SpecError> {
        let help = |attribute: &'static xdfs_sys::driver::SharedAttribute| AttributeHelp {
            name: &attribute.name,
            takes: &attribute.takes,
        };
        let mut settings = Vec::new();
        for (name, value) in spec.attributes() {
            let attribute = driver.attributes().iter().find(|known| known.name == *name);
            let Some(attribute) = attribute else {
                return Err(SpecError::UnknownAttribute {
                    driver: driver.name().to_owned(),
                    attribute: name.clone(),
                    known: driver.attributes().iter().map(help).collect(),
                });
            };
            // A text of C can't hold a NUL.
            let setting = CString::new(name.as_str()).and_then(|name| {
                let value = CString::new(value.as_str())?;
                Ok((name, value))
            });
            let setting = setting
                .ok()
                .filter(|(name, value)| driver.accepts(name, value));
            settings.push(setting.ok_or_else(|| SpecError::WrongValue {
                driver: driver.name().to_owned(),
                help: help(attribute),
                value: value.clone(),
            })?);
        }
        Ok(Self { driver, settings })
    }
}

impl Layer for Foreign {
    fn push(&self, below: Box<dyn Stream>, end: End) -> io::Result<Box<dyn Stream>> {
        let channel = self.driver.open(&self.settings, end == End::Acceptor)?;
        let transform = ForeignTransform::new(channel);
        Ok(Box::new(Transformed::new(below, end, transform)))
    }
}
