//! A configured stack of drivers, which opens and listens.

use std::io;
use std::sync::Arc;

use xdfs_sys::poll::{Poller, Token};

use crate::endpoint::{Endpoint, Form};
use crate::guard::{Guarded, GuardedListener, guarded};
use crate::layer::{Layer, ListeningSocket, Property, Transport};
use crate::spec::{DriverSpec, StackSpec};
use crate::stream::{Listener, Stream};
use crate::transform::End;

/// A stack of drivers, built by a [`Registry`](crate::Registry). Clones are cheap and equivalent.
///
/// A panic in a driver is an error of its stream.
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
        given: Vec<Property>,
    ) -> Self {
        Self {
            spec,
            transport,
            form,
            layers: Vec::new(),
            given,
        }
    }

    /// Puts a transform on it.
    pub(crate) fn layered(mut self, layer: Arc<dyn Layer>) -> Self {
        self.layers.push(layer);
        self
    }

    /// Makes it the stack below a bundle, whose transport is then the bottom.
    pub(crate) fn bundled(self, over: impl FnOnce(Self) -> Arc<dyn Transport>) -> Self {
        let (spec, form, given) = (self.spec.clone(), self.form, self.given.clone());
        Self::new(spec, over(self), form, given)
    }

    /// Adds the specification of the topmost driver, and the properties that it gives.
    pub(crate) fn with(mut self, driver: DriverSpec, given: &[Property]) -> Self {
        self.spec = self.spec.with(driver);
        self.given.extend(given);
        self
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
        let opened = guarded(|| {
            let mut layers = self.layers.iter();
            let bottom = self.transport.open(endpoint)?;
            layers.try_fold(bottom, |below, layer| layer.push_to(below, endpoint))
        });
        Guarded::before(opened?)
    }

    /// Listens. Port 0 requests a free port; [`Listener::local_endpoint`] returns it.
    ///
    /// # Errors
    /// Those of [`Transport::listen`]; [`io::ErrorKind::InvalidInput`] if the endpoint belongs to
    /// another transport.
    pub fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        self.check(endpoint)?;
        self.listening(guarded(|| self.transport.listen(endpoint))?)
    }

    /// Listens on a socket that another program has opened; see [`Transport::adopt`].
    ///
    /// # Errors
    /// Those of [`Transport::adopt`].
    pub fn adopt(&self, socket: ListeningSocket) -> io::Result<Box<dyn Listener>> {
        self.listening(guarded(|| self.transport.adopt(socket))?)
    }

    fn listening(&self, below: Box<dyn Listener>) -> io::Result<Box<dyn Listener>> {
        let below = GuardedListener::before(below)?;
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

/// A listener of the transport that puts the transforms and a guard on accepted streams. A
/// transform that panics there costs the channel, and not the listener.
#[derive(Debug)]
struct LayeredListener {
    below: Box<dyn Listener>,
    layers: Vec<Arc<dyn Layer>>,
}

impl Listener for LayeredListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        let bottom = self.below.accept()?;
        let mut layers = self.layers.iter();
        let pushed =
            guarded(|| layers.try_fold(bottom, |below, layer| layer.push(below, End::Acceptor)));
        Guarded::before(pushed?)
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.below.register(poller, token)
    }

    fn local_endpoint(&self) -> Endpoint {
        self.below.local_endpoint()
    }
}
