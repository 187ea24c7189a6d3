//! What a driver is to those that put stacks together: a name, attributes, what it gives and needs,
//! and how it is made.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::attribute::{self, Attribute, AttributeHelp};
use crate::endpoint::{Endpoint, Form};
use crate::spec::{DriverSpec, SpecError};
use crate::stream::{Listener, Stream};
use crate::transform::{End, Transform, Transformed};

/// A transport with its attributes set: the bottom of a stack.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Begins an active open and returns at once. The stream is connected when
    /// [`Stream::finish_open`] says so; ask it once after [`Stream::register`], and then at each
    /// readiness.
    ///
    /// # Errors
    /// What is known at once: no such listener, no descriptors left, a full queue of the listener
    /// ([`io::ErrorKind::ResourceBusy`]), a location in another form than the driver takes
    /// ([`io::ErrorKind::InvalidInput`]), a transport that this system lacks
    /// ([`io::ErrorKind::Unsupported`]).
    fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>>;

    /// Listens. Port 0 asks the system for a free port; [`Listener::local_endpoint`] names it.
    ///
    /// # Errors
    /// The address is taken or not ours, no descriptors are left, or what [`Transport::open`] may
    /// say at once.
    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>>;
}

/// A transform with its attributes set: it makes one of its ends above each stream.
pub trait Layer: Send + Sync + fmt::Debug {
    /// Puts `end` above the stream `below`.
    ///
    /// # Errors
    /// What the transform needs beside its attributes isn't there.
    fn push(&self, below: Box<dyn Stream>, end: End) -> io::Result<Box<dyn Stream>>;
}

/// Where in a stack a driver stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// At the bottom: it moves bytes.
    Transport,
    /// Above a transport: it turns bytes into other bytes.
    Transform,
}

/// Something that a driver gives to what stands above it, and that a driver may need from below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Property {
    /// All bytes arrive, once, in their order.
    Order,
    /// No byte is changed on the way unnoticed: [`Capabilities::integrity`](crate::Capabilities).
    Integrity,
    /// Nobody else reads the bytes, and proofs of identity can be bound to the channel:
    /// [`Stream::protection`].
    Protection,
}

/// A driver, as a [`Registry`](crate::Registry) knows it.
pub struct Driver {
    name: &'static str,
    attributes: Vec<AttributeHelp>,
    gives: &'static [Property],
    needs: &'static [Property],
    make: Make,
}

/// Parses attributes and makes what they describe.
enum Make {
    Transport(Form, Box<Maker<Arc<dyn Transport>>>),
    Transform(Box<Maker<Arc<dyn Layer>>>),
}

type Maker<T> = dyn Fn(&DriverSpec) -> Result<T, SpecError> + Send + Sync;

/// A driver with its attributes set.
#[derive(Clone, Debug)]
pub(crate) enum Made {
    Transport(Arc<dyn Transport>, Form),
    Transform(Arc<dyn Layer>),
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

    /// A transform that does no input or output: `make` gives, for a set of attributes, what makes
    /// one end of it.
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

    /// A transform with streams of its own: it offers more than bytes
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

    fn new<T>(name: &'static str, attributes: &[Attribute<T>], make: Make) -> Self {
        Self {
            name,
            attributes: attributes.iter().map(Attribute::help).collect(),
            gives: &[],
            needs: &[],
            make,
        }
    }

    /// The same driver, with what it gives. A transform also passes on what is below it.
    #[must_use]
    pub fn gives(mut self, properties: &'static [Property]) -> Self {
        self.gives = properties;
        self
    }

    /// The same driver, with what it needs from below.
    #[must_use]
    pub fn needs(mut self, properties: &'static [Property]) -> Self {
        self.needs = properties;
        self
    }

    /// Its name in the text of a stack.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Where in a stack it stands.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.make {
            Make::Transport(..) => Role::Transport,
            Make::Transform(_) => Role::Transform,
        }
    }

    /// The form of a transport's locations; `None` for a transform.
    #[must_use]
    pub fn form(&self) -> Option<Form> {
        match self.make {
            Make::Transport(form, _) => Some(form),
            Make::Transform(_) => None,
        }
    }

    /// Its attributes.
    #[must_use]
    pub fn attributes(&self) -> &[AttributeHelp] {
        &self.attributes
    }

    /// What it gives to those above it.
    #[must_use]
    pub fn given(&self) -> &'static [Property] {
        self.gives
    }

    /// What it needs from below.
    #[must_use]
    pub fn needed(&self) -> &'static [Property] {
        self.needs
    }

    /// Sets the attributes.
    pub(crate) fn make(&self, spec: &DriverSpec) -> Result<Made, SpecError> {
        Ok(match &self.make {
            Make::Transport(form, make) => Made::Transport(make(spec)?, *form),
            Make::Transform(make) => Made::Transform(make(spec)?),
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

impl Property {
    /// Its name, for messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Integrity => "integrity",
            Self::Protection => "protection",
        }
    }
}

/// The options of a driver, by the attributes that are set.
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

/// A transform that bytes alone go through.
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
