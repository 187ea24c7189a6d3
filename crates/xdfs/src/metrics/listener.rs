//! The listener for readers of metrics: one thread, which answers one request on each connection.
//!
//! Readers don't log in, so all are strangers to the end: their places are those of a [`Crowd`],
//! and each has a bounded time and a bounded head.

use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xdfs_access::HostPort;
use xdfs_crowd::{Crowd, Network};
use xdfs_proto::{Code, Fault};
use xdfs_sys::poll::{Event, Notifier, Poller, Token};
use xdfs_xio::{Endpoint, Listener, Stream};

use super::http::{HEAD_BYTES_MAX, answer};
use crate::drivers::Drivers;
use crate::remote::{Address, Listen};
use crate::stack::{address_of, endpoint, listening_stack, resolve};

/// The usual port of the metrics of a server.
pub const METRICS_PORT: u16 = 2798;

/// Places for readers. A monitoring system has one or two connections.
const PLACES: usize = 64;
/// Time in which a reader has to ask and to take its answer.
const TIME: Duration = Duration::from_secs(10);
/// Connections that are accepted in a row.
const ACCEPTS: usize = 16;
/// Interval of looks at late readers, and of attempts to accept after a failure.
const TICK: Duration = Duration::from_millis(200);
const WAKE: Token = Token(usize::MAX - 1);

/// Where a server listens for readers of its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// A host and a port.
    pub listen: Address,
    /// Anybody who reaches the address may read, on other machines too.
    pub open: bool,
}

impl Default for MetricsSettings {
    /// 127.0.0.1, [`METRICS_PORT`].
    fn default() -> Self {
        let (host, port) = ("127.0.0.1".into(), METRICS_PORT);
        Self {
            listen: Address::Host { host, port },
            open: false,
        }
    }
}

impl MetricsSettings {
    /// Reads `HOST`, `HOST:PORT`, `IPV6` or `[IPV6]:PORT`.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is none.
    pub fn address(text: &str) -> Result<Address, Fault> {
        let HostPort { host, port } = HostPort::read(text, "metrics", METRICS_PORT)?;
        Ok(Address::Host { host, port })
    }

    /// The addresses to listen on.
    ///
    /// # Errors
    /// The host isn't known, or it isn't this machine only although the settings don't say that
    /// anybody may read.
    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>, Fault> {
        let locations = resolve(&self.listen)?;
        let endpoint = |location| Endpoint::new("tcp".to_owned(), location);
        let endpoints: Vec<_> = locations.into_iter().map(endpoint).collect();
        let mut sockets = endpoints.iter().filter_map(Endpoint::socket);
        match sockets.find(|socket| !self.open && !socket.ip().is_loopback()) {
            None => Ok(endpoints),
            Some(socket) => {
                let cause = "it is not a loopback address, and metrics need no login";
                let operation = format!("listen for readers of metrics on {socket}");
                let fault = Fault::new(Code::InvalidArgument, operation, cause);
                Err(fault.hint("name an address of this machine only, or say --metrics-open"))
            }
        }
    }
}

/// The listeners, before they serve.
#[derive(Debug)]
pub(crate) struct MetricsListener {
    listeners: Vec<Box<dyn Listener>>,
    pub(crate) addresses: Vec<Address>,
}

impl MetricsListener {
    /// Listens.
    ///
    /// # Errors
    /// An address can't be used.
    pub(crate) fn bind(settings: &MetricsSettings) -> Result<Self, Fault> {
        let mut bound = Self {
            listeners: Vec::new(),
            addresses: Vec::new(),
        };
        let listen = Listen {
            stack: None,
            address: settings.listen.clone(),
        };
        let stack = listening_stack(&listen, &Drivers::default(), None)?;
        for own in settings.endpoints()? {
            let own = endpoint(&stack, own.location());
            let listener = stack.listen(&own).map_err(|error| {
                let operation = format!("listen for readers of metrics on {own}");
                let fault = Fault::from_io(operation, "", &error);
                match error.kind() {
                    ErrorKind::AddrInUse => fault.hint("is another server running there?"),
                    _ => fault,
                }
            })?;
            bound.addresses.push(address_of(&listener.local_endpoint()));
            bound.listeners.push(listener);
        }
        Ok(bound)
    }

    /// Answers readers with what `text` makes, in a thread, until the result is dropped.
    ///
    /// # Errors
    /// The listeners can't be watched, or the thread can't be started.
    pub(crate) fn start(
        self,
        text: impl Fn() -> String + Send + 'static,
    ) -> Result<RunningListener, Fault> {
        let fault = |error: io::Error| Fault::from_io("serve readers of metrics", "", &error);
        let mut poller = Poller::new().map_err(fault)?;
        let mut listeners = self.listeners;
        for (number, listener) in listeners.iter_mut().enumerate() {
            let watched = listener.register(&mut poller, Token(number));
            watched.map_err(fault)?;
        }
        let notifier = poller.notifier();
        let ends = Arc::new(AtomicBool::new(false));
        let readers = Readers {
            listeners,
            poller,
            ends: Arc::clone(&ends),
            readers: HashMap::new(),
            crowd: Crowd::new(PLACES),
            next: 0,
            accepts_again: true,
            text: Box::new(text),
        };
        let thread = thread::Builder::new().name("xdfs-metrics".into());
        let thread = thread.spawn(|| readers.run()).map_err(fault)?;
        Ok(RunningListener {
            ends,
            notifier,
            thread: Some(thread),
        })
    }
}

/// Listeners that serve.
#[derive(Debug)]
pub(crate) struct RunningListener {
    ends: Arc<AtomicBool>,
    notifier: Notifier,
    thread: Option<JoinHandle<()>>,
}

impl Drop for RunningListener {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.notifier.notify(Event {
            token: WAKE,
            readable: true,
            writable: false,
        });
        if let Some(thread) = self.thread.take() {
            // It has reported its panic itself.
            let _ = thread.join();
        }
    }
}

/// A connection.
struct Reader {
    stream: Box<dyn Stream>,
    input: Vec<u8>,
    /// The answer, and how much of it is sent.
    answer: Option<(Vec<u8>, usize)>,
}

/// The thread.
struct Readers {
    listeners: Vec<Box<dyn Listener>>,
    poller: Poller,
    ends: Arc<AtomicBool>,
    /// By their tokens, less the number of listeners.
    readers: HashMap<usize, Reader>,
    crowd: Crowd<usize>,
    next: usize,
    accepts_again: bool,
    text: Box<dyn Fn() -> String + Send>,
}

impl Readers {
    fn run(mut self) {
        let mut events = Vec::new();
        while !self.ends.load(Ordering::Relaxed) {
            if std::mem::take(&mut self.accepts_again) {
                (0..self.listeners.len()).for_each(|number| self.accept(number));
            }
            let now = Instant::now();
            self.crowd.tick(now);
            for (key, _) in self.crowd.late(now, TIME) {
                self.drop_reader(key);
            }
            let is_idle = self.readers.is_empty() && !self.accepts_again;
            let warning = self.crowd.wakes_at();
            let timeout = match is_idle {
                true => warning.map(|at| at.saturating_duration_since(now).max(TICK)),
                false => Some(TICK),
            };
            events.clear();
            if let Err(error) = self.poller.wait(&mut events, timeout) {
                tracing::error!(%error, "readers of metrics are no longer served");
                return;
            }
            for event in &events {
                let first = self.listeners.len();
                match event.token.0 {
                    _ if event.token == WAKE => {}
                    number if number < first => self.accept(number),
                    token => self.serve(token - first),
                }
            }
        }
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            match self.listeners[listener].accept() {
                Ok(stream) => self.begin(stream, listener),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    // No descriptors are left, for instance.
                    tracing::debug!(%error, "a reader of metrics could not be accepted");
                    break;
                }
            }
        }
        self.accepts_again = true;
    }

    fn begin(&mut self, mut stream: Box<dyn Stream>, listener: usize) {
        let key = self.next;
        // Never that of another: tokens of connections stay below those with a meaning.
        self.next = (self.next + 1) % (usize::MAX / 4);
        let token = Token(self.listeners.len() + key);
        if let Err(error) = stream.register(&mut self.poller, token) {
            tracing::debug!(%error, "a reader of metrics could not be watched");
            return;
        }
        let network = Network::of_peer(&stream.peer());
        let at = format!("metrics at {}", self.listeners[listener].local_endpoint());
        let displaced = self.crowd.enter(key, network, &at, Instant::now());
        if let Some(displaced) = displaced {
            self.drop_reader(displaced);
        }
        let reader = Reader {
            stream,
            input: Vec::new(),
            answer: None,
        };
        self.readers.insert(key, reader);
        self.serve(key);
    }

    fn drop_reader(&mut self, key: usize) {
        self.crowd.leave(key);
        if let Some(mut reader) = self.readers.remove(&key) {
            // It is dropped next in any case.
            let _ = reader.stream.deregister(&mut self.poller);
        }
    }

    /// Does what can be done for a reader now.
    fn serve(&mut self, key: usize) {
        let Some(reader) = self.readers.get_mut(&key) else {
            return;
        };
        let before = reader.input.len();
        let step = reader.step(&*self.text);
        if reader.input.len() > before {
            self.crowd.speaks(key);
        }
        match step {
            Ok(()) => self.drop_reader(key),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.drop_reader(key),
        }
    }
}

impl Reader {
    /// Reads the request, and sends the answer.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection is broken.
    fn step(&mut self, text: &dyn Fn() -> String) -> io::Result<()> {
        while self.answer.is_none() {
            let mut chunk = [0; 1024];
            let read = self
                .stream
                .read_vectored(&mut [IoSliceMut::new(&mut chunk)]);
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    let room = HEAD_BYTES_MAX - self.input.len();
                    self.input.extend_from_slice(&chunk[..read.min(room)]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            self.answer = answer(&self.input, text).map(|answer| (answer, 0));
        }
        while let Some((answer, sent)) = &mut self.answer
            && *sent < answer.len()
        {
            match self
                .stream
                .write_vectored(&[IoSlice::new(&answer[*sent..])])
            {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => *sent += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.stream.flush()?;
        self.stream.close()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    fn listening() -> (RunningListener, String) {
        let settings = MetricsSettings {
            listen: MetricsSettings::address("127.0.0.1:0").unwrap(),
            open: false,
        };
        let bound = MetricsListener::bind(&settings).unwrap();
        let address = bound.addresses[0].to_string();
        let text = || "a 1\n".repeat(1000);
        (bound.start(text).unwrap(), address)
    }

    fn get(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn has_ended(stream: &mut TcpStream) -> bool {
        !matches!(stream.read(&mut [0; 16]), Ok(1..))
    }

    #[test]
    fn each_connection_has_one_answer() {
        let (_running, address) = listening();
        let mut silent = TcpStream::connect(&address).unwrap();
        for _ in 0..3 {
            let answer = get(&mut TcpStream::connect(&address).unwrap());
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            assert!(answer.ends_with("\na 1\n"), "{answer}");
        }
        // Asked in two parts, and answered all the same.
        silent.write_all(b"GET /metr").unwrap();
        let mut rest = silent.try_clone().unwrap();
        rest.write_all(b"ics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        silent.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    #[test]
    fn readers_without_end_keep_none_out() {
        let (_running, address) = listening();
        let mut silent: Vec<_> = (0..PLACES + 8)
            .map(|_| TcpStream::connect(&address).unwrap())
            .collect();
        assert!(get(&mut TcpStream::connect(&address).unwrap()).starts_with("HTTP/1.1 200 "));
        // The oldest have given way.
        assert!(has_ended(&mut silent[0]));
        // Those that say nothing are ended long before their time, as places are scarce.
        let last = silent.last_mut().unwrap();
        assert!(has_ended(last));
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let (_running, address) = listening();
        let mut stream = TcpStream::connect(&address).unwrap();
        let head = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        stream
            .write_all(&head.as_bytes()[..HEAD_BYTES_MAX])
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[test]
    fn other_machines_have_to_be_allowed() {
        let mut settings = MetricsSettings {
            listen: MetricsSettings::address("0.0.0.0:0").unwrap(),
            open: false,
        };
        let fault = MetricsListener::bind(&settings).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument);
        assert!(fault.to_string().contains("need no login"), "{fault}");
        settings.open = true;
        MetricsListener::bind(&settings).unwrap();
    }

    #[test]
    fn addresses_are_read() {
        let read = |text| MetricsSettings::address(text).map(|address| address.to_string());
        assert_eq!(read("localhost").unwrap(), "localhost:2798");
        assert_eq!(read("[::1]:7").unwrap(), "[::1]:7");
        for bad in ["", ":7", "host:x", "http://host/", "unix:/a"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
