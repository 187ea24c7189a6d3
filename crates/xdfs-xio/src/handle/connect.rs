//! From a contact string to a handle.

use std::future::Future;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex};

use xdfs_sys::poll::{Poller, Token};

use super::operation::{Operation, Step, block_on};
use super::reactor::{Source, Watched};
use super::readiness::Interest;
use super::{Cancelled, Handle, Passive, Wait};
use crate::contact::{self, Contact};
use crate::endpoint::{Endpoint, Location, Resource};
use crate::stack::Stack;

impl Stack {
    /// Opens the stack to `contact`, and waits until it is open. All addresses of a host are
    /// tried, in the order in which the system returns them.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a contact that isn't one for this stack
    /// ([`ContactError`](crate::ContactError)), an unknown host, or the reason why the last address
    /// failed.
    pub fn connect(&self, contact: &str) -> io::Result<Handle> {
        self.connect_with(contact, &Wait::forever())
    }

    /// [`Stack::connect`] that ends early as `wait` says. The handle itself waits forever.
    ///
    /// # Errors
    /// Those of [`Stack::connect`], [`io::ErrorKind::TimedOut`] and [`Cancelled`].
    pub fn connect_with(&self, contact: &str, wait: &Wait) -> io::Result<Handle> {
        let (found, resource) = self.contact(contact)?;
        let endpoints = match found {
            Contact::Endpoint(endpoint) => vec![endpoint],
            Contact::Host(host, port) => block_on(self.resolve(host, port, wait)?)?,
        };
        let mut tries = Tries::new(contact, endpoints.len());
        for endpoint in endpoints {
            let endpoint = endpoint.with_resource(resource.clone());
            // Blocking, and not by the future, to wait on the descriptor.
            match self.open(&endpoint).map(Handle::from) {
                Ok(handle) => match handle.with(wait.clone()).open() {
                    Ok(()) => return Ok(handle),
                    Err(e) => tries.failed(e)?,
                },
                Err(e) => tries.failed(e)?,
            }
        }
        Err(tries.error())
    }

    /// [`Stack::connect_with`] as a future.
    pub fn connect_async(
        &self,
        contact: &str,
        wait: &Wait,
    ) -> impl Future<Output = io::Result<Handle>> + Send + use<> {
        let (stack, contact, wait) = (self.clone(), contact.to_owned(), wait.clone());
        async move {
            let (found, resource) = stack.contact(&contact)?;
            let endpoints = match found {
                Contact::Endpoint(endpoint) => vec![endpoint],
                Contact::Host(host, port) => stack.resolve(host, port, &wait)?.await?,
            };
            let mut tries = Tries::new(&contact, endpoints.len());
            for endpoint in endpoints {
                let endpoint = endpoint.with_resource(resource.clone());
                match stack.open(&endpoint).map(Handle::from) {
                    Ok(handle) => match handle.with(wait.clone()).open_async().await {
                        Ok(()) => return Ok(handle),
                        Err(e) => tries.failed(e)?,
                    },
                    Err(e) => tries.failed(e)?,
                }
            }
            Err(tries.error())
        }
    }

    /// Listens at `contact`: the passive open. Port 0 requests a free port. Of a host with several
    /// addresses, the first that can be listened at is used.
    ///
    /// # Errors
    /// Those of [`Stack::listen`], [`io::ErrorKind::InvalidInput`] for a contact that isn't one for
    /// this stack, or an unknown host.
    pub fn listen_at(&self, contact: &str) -> io::Result<Passive> {
        let (found, resource) = self.contact(contact)?;
        if resource.is_some() {
            let why = format!("a stack can't listen at the URL {contact}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let endpoints = match found {
            Contact::Endpoint(endpoint) => vec![endpoint],
            Contact::Host(host, port) => block_on(self.resolve(host, port, &Wait::forever())?)?,
        };
        let mut tries = Tries::new(contact, endpoints.len());
        for endpoint in endpoints {
            match self.listen(&endpoint) {
                Ok(listener) => return Ok(listener.into()),
                Err(e) => tries.failed(e)?,
            }
        }
        Err(tries.error())
    }

    fn contact(&self, contact: &str) -> io::Result<(Contact, Option<Resource>)> {
        let invalid = |e| io::Error::new(io::ErrorKind::InvalidInput, e);
        if let Some((found, resource)) =
            contact::parse_url(contact, self.spec()).map_err(invalid)?
        {
            return Ok((found, Some(resource)));
        }
        let transport = (self.spec().transport().name(), self.form());
        let found = contact::parse(contact, transport, self.spec()).map_err(invalid)?;
        Ok((found, None))
    }

    /// Asks the system for the addresses of a host. It may take long to answer, and can't be
    /// interrupted, so a thread asks; a wait that ends early leaves it to end by itself.
    fn resolve(
        &self,
        host: String,
        port: u16,
        wait: &Wait,
    ) -> io::Result<impl Future<Output = io::Result<Vec<Endpoint>>> + Send + use<>> {
        let question = Arc::new(Question {
            answer: Mutex::new(None),
            source: Source::notified(),
        });
        let transport = self.spec().transport().name().to_owned();
        let asked = Arc::clone(&question);
        std::thread::Builder::new()
            .name("xdfs-resolve".to_owned())
            .spawn(move || {
                let answer = addresses(&host, port, &transport);
                *asked.answer.lock().unwrap_or_else(|e| e.into_inner()) = Some(answer);
                asked.source.readiness.notify(true, true);
            })?;
        let attempt = {
            let question = Arc::clone(&question);
            move || match question.take() {
                Some(answer) => Step::Done(answer),
                None => Step::Blocked(Interest::ANY),
            }
        };
        Ok(Operation::new(question, wait.clone(), attempt))
    }
}

fn addresses(host: &str, port: u16, transport: &str) -> io::Result<Vec<Endpoint>> {
    let failed = |e: io::Error| {
        let text = format!("failed to find the address of the host '{host}': {e}");
        io::Error::new(e.kind(), text)
    };
    let found = (host, port).to_socket_addrs().map_err(failed)?;
    let endpoint = |a| Endpoint::new(transport.to_owned(), Location::Socket(a));
    Ok(found.map(endpoint).collect())
}

/// A question for the addresses of a host.
struct Question {
    answer: Mutex<Option<io::Result<Vec<Endpoint>>>>,
    source: Source,
}

impl Question {
    fn take(&self) -> Option<io::Result<Vec<Endpoint>>> {
        self.answer.lock().unwrap_or_else(|e| e.into_inner()).take()
    }
}

impl Watched for Question {
    fn source(&self) -> &Source {
        &self.source
    }

    fn register(&self, _: &mut Poller, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn deregister(&self, _: &mut Poller) {}
}

/// The addresses tried so far.
struct Tries<'a> {
    contact: &'a str,
    count: usize,
    last: Option<io::Error>,
}

impl<'a> Tries<'a> {
    fn new(contact: &'a str, count: usize) -> Self {
        Self {
            contact,
            count,
            last: None,
        }
    }

    /// Keeps the error of one address; returns it if no other may be tried.
    fn failed(&mut self, error: io::Error) -> io::Result<()> {
        let is_over = Cancelled::caused(&error) || error.kind() == io::ErrorKind::InvalidInput;
        if is_over {
            return Err(error);
        }
        self.last = Some(error);
        Ok(())
    }

    fn error(self) -> io::Error {
        let contact = self.contact;
        match self.last {
            Some(last) if self.count == 1 => last,
            Some(last) => {
                let text = format!("none of {} addresses of {contact}: {last}", self.count);
                io::Error::new(last.kind(), text)
            }
            None => {
                let text = format!("no address was found for {contact}");
                io::Error::new(io::ErrorKind::NotFound, text)
            }
        }
    }
}
