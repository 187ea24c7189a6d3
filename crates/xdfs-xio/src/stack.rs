//! A configured stack of drivers, which opens and listens.

use std::io;
use std::sync::Arc;

use xdfs_sys::poll::{Poller, Token};

use crate::driver::{Layer, ListeningSocket, Property, Transport};
use crate::endpoint::{Endpoint, Form};
use crate::spec::StackSpec;
use crate::stream::{Listener, Stream};
use crate::transform::End;

/// A stack of drivers, built by a [`Registry`](crate::Registry). Clones are cheap and equivalent.
///
/// Without transforms, it returns the transport's own streams.
#[derive(Clone, Debug)]
pub struct Stack {
    spec: StackSpec,
    transport: Arc<dyn Transport>,
    form: Form,
    layers: Vec<Arc<dyn Layer>>,
    given: Vec<Property>,
}

impl Stack {
    pub(crate) fn new(
        spec: StackSpec,
        transport: Arc<dyn Transport>,
        form: Form,
        layers: Vec<Arc<dyn Layer>>,
        given: Vec<Property>,
    ) -> Self {
        Self {
            spec,
            transport,
            form,
            layers,
            given,
        }
    }

    /// Its specification.
    #[must_use]
    pub fn spec(&self) -> &StackSpec {
        &self.spec
    }

    /// The form of the locations that its transport takes.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Whether one of its drivers declares `property`.
    #[must_use]
    pub fn gives(&self, property: Property) -> bool {
        self.given.contains(&property)
    }

    /// Starts an active open and returns at once; see [`Transport::open`].
    ///
    /// # Errors
    /// Those of [`Transport::open`] and [`Layer::push`]; [`io::ErrorKind::InvalidInput`] if the
    /// endpoint belongs to another transport.
    pub fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        self.check(endpoint)?;
        let mut layers = self.layers.iter();
        let bottom = self.transport.open(endpoint)?;
        layers.try_fold(bottom, |below, layer| layer.push_to(below, endpoint))
    }

    /// Listens. Port 0 requests a free port; [`Listener::local_endpoint`] returns it.
    ///
    /// # Errors
    /// Those of [`Transport::listen`]; [`io::ErrorKind::InvalidInput`] if the endpoint belongs to
    /// another transport.
    pub fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        self.check(endpoint)?;
        self.layered(self.transport.listen(endpoint)?)
    }

    /// Listens on a socket that another program has opened; see [`Transport::adopt`].
    ///
    /// # Errors
    /// Those of [`Transport::adopt`].
    pub fn adopt(&self, socket: ListeningSocket) -> io::Result<Box<dyn Listener>> {
        self.layered(self.transport.adopt(socket)?)
    }

    fn layered(&self, below: Box<dyn Listener>) -> io::Result<Box<dyn Listener>> {
        if self.layers.is_empty() {
            return Ok(below);
        }
        let layers = self.layers.clone();
        Ok(Box::new(LayeredListener { below, layers }))
    }

    fn check(&self, endpoint: &Endpoint) -> io::Result<()> {
        let form = endpoint.location().form();
        let why = if self.spec.transport().name() != endpoint.transport() {
            format!("the stack {} can't reach {endpoint}", self.spec)
        } else if form != self.form {
            format!("the stack {} takes {}, not {form}", self.spec, self.form)
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

/// A listener of the transport that puts the transforms on accepted streams.
#[derive(Debug)]
struct LayeredListener {
    below: Box<dyn Listener>,
    layers: Vec<Arc<dyn Layer>>,
}

impl Listener for LayeredListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        let mut layers = self.layers.iter();
        let bottom = self.below.accept()?;
        layers.try_fold(bottom, |below, layer| layer.push(below, End::Acceptor))
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.below.register(poller, token)
    }

    fn local_endpoint(&self) -> Endpoint {
        self.below.local_endpoint()
    }
}
