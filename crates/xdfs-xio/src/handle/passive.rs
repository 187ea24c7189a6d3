//! A passive open, for programs.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

use xdfs_sys::poll::{Poller, Token};

use super::Handle;
use super::operation::{Operation, Step, block};
use super::reactor::{Source, Watched};
use super::readiness::Interest;
use super::wait::{Cancelled, Wait};
use crate::endpoint::Endpoint;
use crate::stream::Listener;

/// A stack that listens, for programs. Clones are the same listener; it ends with the last.
#[derive(Clone, Debug)]
pub struct Passive {
    shared: Arc<Listening>,
    wait: Wait,
}

#[derive(Debug)]
struct Listening {
    source: Source,
    listener: Mutex<Box<dyn Listener>>,
    endpoint: Endpoint,
}

impl Passive {
    /// The same listener, which waits as `wait` says.
    #[must_use]
    pub fn with(&self, wait: Wait) -> Self {
        let shared = Arc::clone(&self.shared);
        Self { shared, wait }
    }

    /// Waits for the next channel. Opening exchanges of transforms take place in the first
    /// operation of the handle, so that a slow peer delays nobody else.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] at the deadline, [`Cancelled`], or any error of the stack, after
    /// which accepting may go on.
    pub fn accept(&self) -> io::Result<Handle> {
        let accepted = block(&self.shared, &self.wait, None, || self.shared.attempt());
        accepted.map_err(|e| self.shared.told(e))
    }

    /// [`Passive::accept`] as a future. Dropped early, it has accepted nothing.
    pub fn accept_async(&self) -> impl Future<Output = io::Result<Handle>> + Send + use<> {
        let (shared, wait) = (Arc::clone(&self.shared), self.wait.clone());
        async move {
            let attempt = {
                let shared = Arc::clone(&shared);
                move || shared.attempt()
            };
            let accepted = Operation::new(Arc::clone(&shared), wait, attempt).await;
            accepted.map_err(|e| shared.told(e))
        }
    }

    /// The listening address, with the actual port.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// The contact string of this listener, for [`crate::Stack::connect`].
    #[must_use]
    pub fn contact(&self) -> String {
        self.shared.endpoint.to_string()
    }
}

impl Listening {
    fn attempt(&self) -> Step<Handle> {
        let mut listener = self.listener.lock().unwrap_or_else(|e| e.into_inner());
        match listener.accept() {
            Ok(mut stream) => {
                // Whom to serve is the program's business from here on.
                stream.admit();
                Step::Done(Ok(stream.into()))
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Step::Blocked(Interest::ANY),
            Err(e) => Step::Done(Err(e)),
        }
    }

    fn told(&self, error: io::Error) -> io::Error {
        if Cancelled::caused(&error) {
            return error;
        }
        let text = format!("failed to accept at {}: {error}", self.endpoint);
        io::Error::new(error.kind(), text)
    }
}

impl Watched for Listening {
    fn source(&self) -> &Source {
        &self.source
    }

    fn register(&self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let mut listener = self.listener.lock().unwrap_or_else(|e| e.into_inner());
        listener.register(poller, token)
    }

    /// Never needed: a listener is dropped where it was watched.
    fn deregister(&self, _: &mut Poller) {}
}

/// The engine's view as a user's: a listener that is not registered.
impl From<Box<dyn Listener>> for Passive {
    fn from(listener: Box<dyn Listener>) -> Self {
        let shared = Arc::new(Listening {
            source: Source::default(),
            endpoint: listener.local_endpoint(),
            listener: Mutex::new(listener),
        });
        let wait = Wait::forever();
        Self { shared, wait }
    }
}
