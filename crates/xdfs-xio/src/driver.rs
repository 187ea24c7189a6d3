//! Drivers as seen by the builder of stacks: name, attributes, properties given and needed, and
//! constructor.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::attribute::{self, Attribute, AttributeHelp};
use crate::endpoint::Form;
use crate::layer::{Layer, Property, Transport};
use crate::spec::{DriverSpec, SpecError};
use crate::stack::Stack;
use crate::stream::Stream;
use crate::transform::{End, Transform, Transformed};

/// The place of a driver in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// At the bottom: moves bytes.
    Transport,
    /// Above a transport: transforms bytes.
    Transform,
    /// Anywhere: makes one stream of several of the stack below it, and so a transport for the
    /// drivers above.
    Bundle,
}

/// A driver in a [`Registry`](crate::Registry).
pub struct Driver {
    name: &'static str,
    attributes: Vec<AttributeHelp>,
    listens: bool,
    gives: Cow<'static, [Property]>,
    needs: Cow<'static, [Property]>,
    make: Make,
    file: Option<PathBuf>,
}

/// Parses attributes and configures the driver.
enum Make {
    Transport(Form, Box<Maker<Arc<dyn Transport>>>),
    Transform(Box<Maker<Arc<dyn Layer>>>),
    /// With the transport that is below it where it stands at the bottom.
    Bundle(&'static str, Box<Maker<Over>>),
}

/// Makes the transport of a bundle over a stack.
type Over = Box<dyn FnOnce(Stack) -> Arc<dyn Transport>>;

type Maker<T> = dyn Fn(&DriverSpec) -> Result<T, SpecError> + Send + Sync;

/// A configured driver.
pub(crate) enum ConfiguredDriver {
    Transport(Arc<dyn Transport>, Form),
    Transform(Arc<dyn Layer>),
    Bundle(Over),
}

impl Driver {
    /// A transport whose locations have the given form.
    pub fn transport<T, D>(
        name: &'static str,
        form: Form,
        attributes: &'static [Attribute<T>],
        make: impl Fn(T) -> D + Send + Sync + 'static,
    ) -> Self
    where
        T: Default,
        D: Transport + 'static,
    {
        let make = move |spec: &DriverSpec| {
            Ok(Arc::new(make(options(attributes, spec)?)) as Arc<dyn Transport>)
        };
        Self::new(name, attributes, Make::Transport(form, Box::new(make)))
    }

    /// A transform without I/O: `make` turns options into a constructor of its ends.
    pub fn transform<T, F, D>(
        name: &'static str,
        attributes: &'static [Attribute<T>],
        make: impl Fn(T) -> F + Send + Sync + 'static,
    ) -> Self
    where
        T: Default,
        F: Fn(End) -> io::Result<D> + Send + Sync + 'static,
        D: Transform + 'static,
    {
        Self::layer(name, attributes, move |options| Pure(make(options)))
    }

    /// A transform with its own stream type, which offers more than bytes
    /// ([`Extension`](crate::Extension)).
    pub fn layer<T, D>(
        name: &'static str,
        attributes: &'static [Attribute<T>],
        make: impl Fn(T) -> D + Send + Sync + 'static,
    ) -> Self
    where
        T: Default,
        D: Layer + 'static,
    {
        let make = move |spec: &DriverSpec| {
            Ok(Arc::new(make(options(attributes, spec)?)) as Arc<dyn Layer>)
        };
        Self::new(name, attributes, Make::Transform(Box::new(make)))
    }

    /// A bundle: `make` turns options and the stack below into a transport. At the bottom of a
    /// stack it runs over the transport called `below`.
    pub fn bundle<T, D>(
        name: &'static str,
        below: &'static str,
        attributes: &'static [Attribute<T>],
        make: impl Fn(T, Stack) -> D + Send + Sync + 'static,
    ) -> Self
    where
        T: Default + 'static,
        D: Transport + 'static,
    {
        let make = Arc::new(make);
        let make = move |spec: &DriverSpec| {
            let (make, options) = (Arc::clone(&make), options(attributes, spec)?);
            let over = move |stack| Arc::new(make(options, stack)) as Arc<dyn Transport>;
            Ok(Box::new(over) as Over)
        };
        Self::new(name, attributes, Make::Bundle(below, Box::new(make)))
    }

    fn new<T>(name: &'static str, attributes: &[Attribute<T>], make: Make) -> Self {
        Self {
            name,
            attributes: attributes.iter().map(Attribute::help).collect(),
            listens: true,
            gives: Cow::default(),
            needs: Cow::default(),
            make,
            file: None,
        }
    }

    /// A transform in the library `file`.
    pub(crate) fn foreign<D>(
        name: &'static str,
        attributes: Vec<AttributeHelp>,
        properties: [Vec<Property>; 2],
        file: PathBuf,
        make: impl Fn(&DriverSpec) -> Result<D, SpecError> + Send + Sync + 'static,
    ) -> Self
    where
        D: Layer + 'static,
    {
        let make = move |spec: &DriverSpec| Ok(Arc::new(make(spec)?) as Arc<dyn Layer>);
        let [gives, needs] = properties.map(Cow::Owned);
        Self {
            name,
            attributes,
            gives,
            needs,
            make: Make::Transform(Box::new(make)),
            listens: true,
            file: Some(file),
        }
    }

    /// Declares the properties that it gives. All but transports also pass on those from below.
    #[must_use]
    pub fn gives(mut self, properties: &'static [Property]) -> Self {
        self.gives = properties.into();
        self
    }

    /// Declares the properties that it needs from below.
    #[must_use]
    pub fn needs(mut self, properties: &'static [Property]) -> Self {
        self.needs = properties.into();
        self
    }

    /// Declares that the driver only opens: [`Transport::listen`] or the acceptor's end always
    /// fails.
    #[must_use]
    pub fn active_only(mut self) -> Self {
        self.listens = false;
        self
    }

    /// Its name in the text of a stack.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it can listen.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.listens
    }

    /// Its place in a stack.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.make {
            Make::Transport(..) => Role::Transport,
            Make::Transform(_) => Role::Transform,
            Make::Bundle(..) => Role::Bundle,
        }
    }

    /// The transport below a bundle at the bottom of a stack; `None` for other drivers.
    #[must_use]
    pub fn below(&self) -> Option<&'static str> {
        match self.make {
            Make::Bundle(below, _) => Some(below),
            _ => None,
        }
    }

    /// The form of a transport's locations; `None` for other drivers.
    #[must_use]
    pub fn form(&self) -> Option<Form> {
        match self.make {
            Make::Transport(form, _) => Some(form),
            _ => None,
        }
    }

    /// Its attributes.
    #[must_use]
    pub fn attributes(&self) -> &[AttributeHelp] {
        &self.attributes
    }

    /// The properties that it gives to drivers above it.
    #[must_use]
    pub fn given(&self) -> &[Property] {
        &self.gives
    }

    /// The properties that it needs from below.
    #[must_use]
    pub fn needed(&self) -> &[Property] {
        &self.needs
    }

    /// The library that it was loaded from ([`Registry::load`](crate::Registry::load)).
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Configures the driver.
    pub(crate) fn make(&self, spec: &DriverSpec) -> Result<ConfiguredDriver, SpecError> {
        Ok(match &self.make {
            Make::Transport(form, make) => ConfiguredDriver::Transport(make(spec)?, *form),
            Make::Transform(make) => ConfiguredDriver::Transform(make(spec)?),
            Make::Bundle(_, make) => ConfiguredDriver::Bundle(make(spec)?),
        })
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("name", &self.name)
            .field("role", &self.role())
            .field("attributes", &self.attributes)
            .finish_non_exhaustive()
    }
}

/// Parses the options of a driver.
fn options<T: Default>(table: &[Attribute<T>], spec: &DriverSpec) -> Result<T, SpecError> {
    attribute::parse(table, spec.attributes()).map_err(|(index, help)| {
        let (attribute, value) = spec.attributes()[index].clone();
        let driver = spec.name().to_owned();
        match help {
            Some(help) => SpecError::WrongValue {
                driver,
                help,
                value,
            },
            None => SpecError::UnknownAttribute {
                driver,
                attribute,
                known: table.iter().map(Attribute::help).collect(),
            },
        }
    })
}

/// A transform that uses the generic [`Transformed`] stream.
struct Pure<F>(F);

impl<F, D> Layer for Pure<F>
where
    F: Fn(End) -> io::Result<D> + Send + Sync,
    D: Transform + 'static,
{
    fn push(&self, below: Box<dyn Stream>, end: End) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(Transformed::new(below, end, (self.0)(end)?)))
    }
}

impl<F> fmt::Debug for Pure<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pure").finish_non_exhaustive()
    }
}
