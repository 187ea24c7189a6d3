//! Bandwidth and latency of driver stacks, and of raw sockets beside them, as XIOPerf measures
//! them in the paper on Globus XIO.
//!
//! One end [listens](PerfListener), the other [measures](PerfStack::measure). Each measurement has
//! a connection of its own, which begins with a request: the pattern, and the size of messages.

use std::error::Error as _;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::Identity as _;
use xdfs_proto::{Code, Fault};
use xdfs_security::identity::{ClientCertificates, Fingerprint, ServerIdentity};
use xdfs_xio::tls::Configs;
use xdfs_xio::{Form, Handle, Passive, Property, Stack, StackSpec, Wait};

use crate::drivers::Registry;
use crate::remote::Address;
use crate::security::{ClientSecurity, Level, NewHosts, SecureIdentity, TrustPolicy};
use crate::stack::with_configs;

/// Largest size of a message in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Connections served at once.
const SERVED_MAX: usize = 64;
/// The longest wait for the other end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Round trips whose times are kept for the quantiles; of further ones, only the number counts.
const TIMES_MAX: usize = 1 << 20;
/// The first bytes of a request. The pattern and the size of messages follow: 1 and 4 bytes.
const MAGIC: &[u8; 8] = b"xioperf1";
const REQUEST_BYTES: usize = 13;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfPattern {
    /// Messages to the other end, which reads them, and tells how many bytes came.
    OneWay,
    /// Messages that the other end sends back, one after the other.
    PingPong,
}

impl PerfPattern {
    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OneWay => "one-way",
            Self::PingPong => "ping-pong",
        }
    }
}

/// A measurement to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfCase {
    /// The pattern.
    pub pattern: PerfPattern,
    /// Size of a message in bytes: 1 to [`MESSAGE_BYTES_MAX`].
    pub message_bytes: usize,
    /// For how long messages are sent; at least one is.
    pub duration: Duration,
}

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct PerfSample {
    /// Messages sent.
    pub messages: u64,
    /// Time from the first message to the answer to the last byte.
    pub elapsed: Duration,
    /// Median and 99th percentile of the round trips; `None` for [`PerfPattern::OneWay`].
    pub round_trip: Option<(Duration, Duration)>,
}

impl PerfSample {
    /// Bytes of payload per second, in one direction.
    #[must_use]
    pub fn bytes_per_second(&self, case: &PerfCase) -> f64 {
        let bytes = self.messages as f64 * case.message_bytes as f64;
        bytes / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// A way to connect two ends.
#[derive(Clone, Debug)]
pub enum PerfStack {
    /// Blocking TCP sockets of the standard library, without any driver.
    RawTcp,
    /// A stack of drivers that keeps the order of bytes.
    Drivers(Stack, Arc<PerfIdentity>),
}

impl PerfStack {
    /// A stack of drivers. If it has drivers that need certificates, `identity` has them.
    ///
    /// # Errors
    /// The stack can't be built, or doesn't keep the order of bytes.
    pub fn new(
        spec: &StackSpec,
        registry: &Registry,
        identity: &PerfIdentity,
    ) -> Result<Self, Fault> {
        let invalid = |cause: String| Fault::new(Code::InvalidArgument, "build a stack", cause);
        let registry = with_configs(registry, &identity.configs);
        let stack = registry
            .build(spec)
            .map_err(|error| invalid(error.to_string()))?;
        if !stack.gives(Property::Order) {
            return Err(invalid(format!("{spec} doesn't keep the order of bytes")));
        }
        Ok(Self::Drivers(stack, Arc::new(identity.clone())))
    }

    /// A contact string at which it can listen within this machine.
    #[must_use]
    pub fn own_contact(&self) -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("xioperf-{}-{number}", std::process::id());
        match self {
            Self::Drivers(stack, _) if stack.form() == Form::Path => {
                format!("unix:{}", std::env::temp_dir().join(name).display())
            }
            Self::Drivers(stack, _) if stack.form() == Form::Name => format!("memory:{name}"),
            _ => "127.0.0.1:0".to_owned(),
        }
    }

    /// Listens at a contact string.
    ///
    /// # Errors
    /// It isn't one of the stack, or is in use.
    pub fn listen(&self, contact: &str) -> Result<PerfListener, Fault> {
        let result = match self {
            Self::RawTcp => TcpListener::bind(contact).map(Listening::Raw),
            Self::Drivers(stack, _) => stack.listen_at(contact).map(Listening::Drivers),
        };
        let listening =
            result.map_err(|e| Fault::from_io(format!("listen on {contact}"), "", &e))?;
        Ok(PerfListener(listening))
    }

    /// Makes a measurement with the other end that listens at `contact`.
    ///
    /// # Errors
    /// The other end can't be reached, breaks off, or says that other bytes came than were sent.
    pub fn measure(&self, contact: &str, case: &PerfCase) -> Result<PerfSample, Fault> {
        if !(1..=MESSAGE_BYTES_MAX).contains(&case.message_bytes) {
            let cause = format!("a message has 1 to {MESSAGE_BYTES_MAX} bytes");
            return Err(Fault::new(Code::InvalidArgument, "measure a stack", cause));
        }
        let result = self.connect(contact).and_then(|end| end.measure(case));
        result.map_err(|error| {
            let explained = match self {
                Self::Drivers(_, identity) => identity.own.as_ref().and_then(|own| {
                    let cause = error.source().and_then(|cause| cause.downcast_ref());
                    own.explain(cause.unwrap_or(&error))
                }),
                Self::RawTcp => None,
            };
            explained.unwrap_or_else(|| {
                Fault::from_io(format!("measure a stack to {contact}"), "", &error)
            })
        })
    }

    fn connect(&self, contact: &str) -> io::Result<End> {
        Ok(match self {
            Self::RawTcp => {
                let stream = TcpStream::connect(contact)?;
                stream.set_nodelay(true)?;
                End::Raw(stream)
            }
            Self::Drivers(stack, _) => {
                End::Drivers(stack.connect_with(contact, &Wait::within(PATIENCE))?)
            }
        })
    }
}

/// A key of this process for the drivers that need one, and the trust in it.
#[derive(Clone, Debug)]
pub struct PerfIdentity {
    configs: Configs,
    /// What is trusted by the end that measures.
    own: Option<Arc<SecureIdentity>>,
}

impl PerfIdentity {
    /// For the end that listens, and for one in the same process that measures. The fingerprint is
    /// for others.
    ///
    /// # Errors
    /// No key can be made.
    pub fn temporary() -> Result<(Self, Fingerprint), Fault> {
        let identity = ServerIdentity::temporary(&["localhost".to_owned()])?;
        let fingerprint = identity.fingerprint();
        let config = identity.config(ClientCertificates::None)?;
        let mut identity = Self::trusting(fingerprint)?;
        identity.configs.server = Some(Arc::new(move || Arc::clone(&config)));
        Ok((identity, fingerprint))
    }

    /// For an end that measures with another one of this fingerprint.
    ///
    /// # Errors
    /// TLS can't be set up.
    pub fn trusting(fingerprint: Fingerprint) -> Result<Self, Fault> {
        let security = ClientSecurity {
            trust: TrustPolicy {
                known_hosts: std::path::PathBuf::new(),
                pins: vec![fingerprint],
                roots: Vec::new(),
                system_roots: false,
                new_hosts: NewHosts::Refuse,
            },
            credentials: Vec::new(),
            level: Level::Private,
        };
        let address = Address::Memory("localhost".to_owned());
        let own = SecureIdentity::new(security, &address.known_host(), None)?;
        Ok(Self {
            configs: own.tls(),
            own: Some(Arc::new(own)),
        })
    }

    /// For stacks without such drivers.
    #[must_use]
    pub fn none() -> Self {
        Self {
            configs: Configs::default(),
            own: None,
        }
    }
}

/// An end that listens, and answers the measurements of others.
#[derive(Debug)]
pub struct PerfListener(Listening);

#[derive(Debug)]
enum Listening {
    Raw(TcpListener),
    Drivers(Passive),
}

impl PerfListener {
    /// The contact string with the actual port.
    ///
    /// # Errors
    /// The system doesn't tell.
    pub fn contact(&self) -> Result<String, Fault> {
        match &self.0 {
            Listening::Raw(listener) => listener
                .local_addr()
                .map(|address| address.to_string())
                .map_err(|e| Fault::from_io("listen", "", &e)),
            Listening::Drivers(passive) => Ok(passive.contact()),
        }
    }

    /// Answers each connection in a thread of its own, 64 at once; further ones are closed. Ends
    /// when accepting fails.
    ///
    /// # Errors
    /// The reason.
    pub fn serve(&self) -> Result<(), Fault> {
        let served = Arc::new(AtomicUsize::new(0));
        loop {
            let end = self.accept();
            let end = end.map_err(|e| Fault::from_io("accept a connection", "", &e))?;
            let slot = Served::new(&served);
            if served.load(Ordering::Relaxed) > SERVED_MAX {
                continue;
            }
            let answering = move || {
                let _slot = slot;
                if let Err(error) = end.answer() {
                    tracing::debug!(%error, "a measurement broke off");
                }
            };
            // Without a thread the connection is closed.
            let _ = thread::Builder::new()
                .name("xioperf".into())
                .spawn(answering);
        }
    }

    /// Answers one connection.
    ///
    /// # Errors
    /// It broke off, or its request isn't one.
    pub fn serve_one(&self) -> Result<(), Fault> {
        let answered = self.accept().and_then(End::answer);
        answered.map_err(|e| Fault::from_io("answer a measurement", "", &e))
    }

    fn accept(&self) -> io::Result<End> {
        Ok(match &self.0 {
            Listening::Raw(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                End::Raw(stream)
            }
            Listening::Drivers(passive) => End::Drivers(passive.accept()?),
        })
    }
}

/// Counts a connection for as long as it lives.
struct Served(Arc<AtomicUsize>);

impl Served {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One end of a connection.
enum End {
    Raw(TcpStream),
    Drivers(Handle),
}

impl End {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Raw(stream) => stream.write_all(bytes),
            Self::Drivers(handle) => handle.write_all(bytes),
        }
    }

    /// Reads what is there, up to `buf`; 0 at the end.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Raw(stream) => stream.read(buf),
            Self::Drivers(handle) => Ok(handle.read(buf)?.unwrap_or(0)),
        }
    }

    /// Fills `buf`; `false` at an end before the first byte.
    fn read_full(&mut self, buf: &mut [u8]) -> io::Result<bool> {
        let mut got = 0;
        while got < buf.len() {
            match self.read(&mut buf[got..])? {
                0 if got == 0 => return Ok(false),
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => got += n,
            }
        }
        Ok(true)
    }

    /// Ends the writing direction.
    fn end(&mut self) -> io::Result<()> {
        match self {
            Self::Raw(stream) => stream.shutdown(Shutdown::Write),
            Self::Drivers(handle) => handle.end(),
        }
    }

    fn measure(mut self, case: &PerfCase) -> io::Result<PerfSample> {
        let mut message = vec![0x5a_u8; case.message_bytes];
        let mut request = Vec::with_capacity(REQUEST_BYTES);
        request.extend_from_slice(MAGIC);
        request.push(u8::from(case.pattern == PerfPattern::PingPong));
        // At most MESSAGE_BYTES_MAX.
        request.extend_from_slice(&(case.message_bytes as u32).to_be_bytes());
        self.write_all(&request)?;
        // What follows is measured, not the opening exchanges: the other end has read the request.
        let mut ready = [0];
        if !self.read_full(&mut ready)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let (mut messages, mut times) = (0_u64, Vec::new());
        let start = Instant::now();
        let mut now = start;
        while messages == 0 || now - start < case.duration {
            self.write_all(&message)?;
            if case.pattern == PerfPattern::PingPong && !self.read_full(&mut message)? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            messages += 1;
            let then = std::mem::replace(&mut now, Instant::now());
            if case.pattern == PerfPattern::PingPong && times.len() < TIMES_MAX {
                times.push(now - then);
            }
        }
        if case.pattern == PerfPattern::PingPong {
            let elapsed = now - start;
            times.sort_unstable();
            let at = |part: usize| times.get(times.len() * part / 100).copied();
            let round_trip = at(50).zip(at(99));
            self.end()?;
            return Ok(PerfSample {
                messages,
                elapsed,
                round_trip,
            });
        }
        self.end()?;
        let mut count = [0; 8];
        if !self.read_full(&mut count)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let elapsed = start.elapsed();
        let (came, sent) = (u64::from_be_bytes(count), messages * message.len() as u64);
        if came != sent {
            let cause = format!("{came} bytes came of {sent}");
            return Err(io::Error::new(ErrorKind::InvalidData, cause));
        }
        Ok(PerfSample {
            messages,
            elapsed,
            round_trip: None,
        })
    }

    fn answer(mut self) -> io::Result<()> {
        let mut request = [0; REQUEST_BYTES];
        if !self.read_full(&mut request)? {
            return Ok(());
        }
        let invalid = || io::Error::new(ErrorKind::InvalidData, "it isn't a request of xioperf");
        let size: [u8; 4] = request[9..].try_into().map_err(|_| invalid())?;
        let size = usize::try_from(u32::from_be_bytes(size)).map_err(|_| invalid())?;
        if &request[..8] != MAGIC || request[8] > 1 || !(1..=MESSAGE_BYTES_MAX).contains(&size) {
            return Err(invalid());
        }
        self.write_all(&[1])?;
        if let Self::Drivers(handle) = &self {
            handle.flush()?;
        }
        let mut message = vec![0; size];
        if request[8] == 1 {
            while self.read_full(&mut message)? {
                self.write_all(&message)?;
            }
        } else {
            let mut came = 0_u64;
            loop {
                match self.read(&mut message)? {
                    0 => break,
                    n => came += n as u64,
                }
            }
            self.write_all(&came.to_be_bytes())?;
        }
        self.end()?;
        // The peer closes first, or the last bytes might be lost with the connection.
        while self.read(&mut message)? > 0 {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(stack: &PerfStack, case: &PerfCase) -> PerfSample {
        let listener = stack.listen(&stack.own_contact()).unwrap();
        let contact = listener.contact().unwrap();
        let answering = thread::spawn(move || listener.serve_one());
        let sample = stack.measure(&contact, case).unwrap();
        answering.join().unwrap().unwrap();
        sample
    }

    #[test]
    fn stacks_are_measured_both_ways() {
        let (identity, _) = PerfIdentity::temporary().unwrap();
        let driven = |text: &str| {
            let spec = text.parse().unwrap();
            PerfStack::new(&spec, &Registry::standard(), &identity).unwrap()
        };
        for (name, stack) in [
            ("raw", PerfStack::RawTcp),
            ("memory", driven("memory")),
            ("tcp", driven("tcp")),
            ("tcp,tls", driven("tcp,tls")),
        ] {
            for (pattern, size) in [
                (PerfPattern::OneWay, 1),
                (PerfPattern::OneWay, 3 << 20),
                (PerfPattern::PingPong, 1),
                (PerfPattern::PingPong, 100_000),
            ] {
                let case = PerfCase {
                    pattern,
                    message_bytes: size,
                    duration: Duration::from_millis(20),
                };
                let sample = sample(&stack, &case);
                assert!(sample.messages > 0, "{name} {case:?}");
                assert_eq!(
                    sample.round_trip.is_some(),
                    pattern == PerfPattern::PingPong
                );
                assert!(sample.bytes_per_second(&case) > 0.0);
            }
        }
    }

    #[test]
    fn foreign_bytes_end_a_connection_only() {
        let listener = PerfStack::RawTcp.listen("127.0.0.1:0").unwrap();
        let contact = listener.contact().unwrap();
        thread::spawn(move || listener.serve());
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"xioperf1\x02\0\0\0\x01",
            b"xioperf1\0\xff\0\0\0",
        ] {
            let mut stream = TcpStream::connect(&contact).unwrap();
            stream.write_all(bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            // The end, or a reset where bytes were left unread.
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.is_empty());
        }
        let case = PerfCase {
            pattern: PerfPattern::PingPong,
            message_bytes: 1,
            duration: Duration::ZERO,
        };
        assert_eq!(
            PerfStack::RawTcp.measure(&contact, &case).unwrap().messages,
            1
        );
        let large = PerfCase {
            message_bytes: MESSAGE_BYTES_MAX + 1,
            ..case
        };
        assert!(PerfStack::RawTcp.measure(&contact, &large).is_err());
    }
}
