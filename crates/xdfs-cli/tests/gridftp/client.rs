//! A client that sends exactly what a test says.

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::stage::{PASSWORD, PATIENCE, Stage};

/// Bits of a block in MODE E: the number of connections follows; no more on this one.
pub(crate) const EOF: u8 = 0x40;
pub(crate) const EOD: u8 = 0x08;

/// A connection with TLS.
pub(crate) type Secure = StreamOwned<ClientConnection, TcpStream>;

/// A control connection.
pub(crate) struct Client {
    stream: TcpStream,
    tls: Option<ClientConnection>,
    read: Vec<u8>,
}

impl Client {
    /// Connects and reads the greeting.
    #[track_caller]
    pub(crate) fn connect(stage: &Stage) -> Self {
        let mut client = Self::raw(stage);
        client.expect(220);
        client
    }

    /// Connects and reads nothing.
    #[track_caller]
    pub(crate) fn raw(stage: &Stage) -> Self {
        let stream = TcpStream::connect(&stage.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (tls, read) = (None, Vec::new());
        Self { stream, tls, read }
    }

    /// Connects and logs in.
    #[track_caller]
    pub(crate) fn log_in(stage: &Stage) -> Self {
        let mut client = Self::connect(stage);
        client.ask("USER anonymous", 331);
        client.ask("PASS x", 230);
        client
    }

    /// Connects and begins with TLS.
    #[track_caller]
    pub(crate) fn secure(stage: &Stage, config: &Arc<ClientConfig>) -> Self {
        let mut client = Self::connect(stage);
        client.ask("AUTH TLS", 234);
        let mut tls = connection(config);
        tls.complete_io(&mut client.stream).unwrap();
        client.tls = Some(tls);
        client
    }

    /// The same, and logs in `user`, with protected data connections.
    #[track_caller]
    pub(crate) fn secure_log_in(stage: &Stage, config: &Arc<ClientConfig>, user: &str) -> Self {
        let mut client = Self::secure(stage, config);
        client.ask(&format!("USER {user}"), 331);
        client.ask(&format!("PASS {PASSWORD}"), 230);
        client.ask("PBSZ 0", 200);
        client.ask("PROT P", 200);
        client
    }

    /// Tells the end of what TLS protects, and leaves the connection open.
    pub(crate) fn close_tls(&mut self) {
        let tls = self.tls.as_mut().unwrap();
        tls.send_close_notify();
        while tls.wants_write() {
            tls.write_tls(&mut self.stream).unwrap();
        }
    }

    /// Sends bytes past TLS.
    pub(crate) fn send_clear(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            None => self.stream.write_all(bytes).unwrap(),
            Some(tls) => {
                let mut stream = rustls::Stream::new(tls, &mut self.stream);
                stream.write_all(bytes).unwrap();
            }
        }
    }

    /// Sends for another thread.
    pub(crate) fn writer(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// From now on nothing waits until it can be sent.
    pub(crate) fn stop_waiting(&self) {
        self.stream.set_nonblocking(true).unwrap();
    }

    /// Sends everything now. Returns whether it could be sent.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends a command, and fails unless the reply has this number. Returns its text.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str, code: u16) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        self.expect(code)
    }

    /// Reads a reply, and fails unless it has this number.
    #[track_caller]
    pub(crate) fn expect(&mut self, code: u16) -> String {
        let (found, text) = self.reply().expect("the connection was closed");
        assert_eq!(found, code, "{text}");
        text
    }

    /// Reads a reply; `None` at the end.
    #[track_caller]
    pub(crate) fn reply(&mut self) -> Option<(u16, String)> {
        let mut text = String::new();
        loop {
            let line = self.line()?;
            let is_last = line.len() >= 4
                && line.as_bytes()[..3].iter().all(u8::is_ascii_digit)
                && line.as_bytes()[3] == b' ';
            text.push_str(&line);
            if is_last {
                return Some((line[..3].parse().unwrap(), text));
            }
            text.push('\n');
        }
    }

    /// Reads a reply; `None` at the end, or where there is none.
    pub(crate) fn try_reply(&mut self) -> Option<u16> {
        let mut bytes = [0; 4096];
        let read = match &mut self.tls {
            None => self.stream.read(&mut bytes),
            Some(tls) => rustls::Stream::new(tls, &mut self.stream).read(&mut bytes),
        };
        let code = String::from_utf8_lossy(bytes.get(..3)?).parse().ok();
        read.ok().filter(|read| *read > 0).and(code)
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.read.drain(..end + 2).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let mut bytes = [0; 4096];
            let read = match &mut self.tls {
                None => self.stream.read(&mut bytes),
                Some(tls) => rustls::Stream::new(tls, &mut self.stream).read(&mut bytes),
            };
            match read {
                Ok(0) => return None,
                Ok(read) => self.read.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// Asks for a transfer by GET or PUT, and returns the address of reply 127.
    #[track_caller]
    pub(crate) fn told_port(&mut self, line: &str) -> SocketAddr {
        let text = self.ask(line, 127);
        address(&text)
    }

    /// Asks the server to listen, and returns the address.
    #[track_caller]
    pub(crate) fn passive(&mut self) -> SocketAddr {
        let text = self.ask("PASV", 227);
        address(&text)
    }

    /// Listens, and tells the server the address.
    #[track_caller]
    pub(crate) fn active(&mut self) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let [high, low] = listener.local_addr().unwrap().port().to_be_bytes();
        self.ask(&format!("PORT 127,0,0,1,{high},{low}"), 200);
        listener
    }

    /// Ends the sending half of the connection.
    pub(crate) fn close_input(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

/// The address in a reply of a server on this machine.
fn address(text: &str) -> SocketAddr {
    let numbers = text.split(['(', ')']).nth(1).unwrap();
    let numbers: Vec<u16> = numbers.split(',').map(|n| n.parse().unwrap()).collect();
    SocketAddr::from(([127, 0, 0, 1], numbers[4] * 256 + numbers[5]))
}

/// TLS that trusts the server's certificate, and remembers sessions.
pub(crate) fn trusting(stage: &Stage) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(stage.certificate()).unwrap();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

fn connection(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(Arc::clone(config), "localhost".try_into().unwrap()).unwrap()
}

/// Begins with TLS on a data connection.
pub(crate) fn secured(stream: TcpStream, config: &Arc<ClientConfig>) -> Secure {
    StreamOwned::new(connection(config), stream)
}

/// Connects for data.
#[track_caller]
pub(crate) fn data(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A block of MODE E.
pub(crate) fn block(bits: u8, count: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![bits];
    bytes.extend_from_slice(&count.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// All blocks of a connection up to its EOD: descriptor, offset, payload.
#[track_caller]
pub(crate) fn blocks(stream: &mut impl Read) -> Vec<(u8, u64, Vec<u8>)> {
    let mut blocks = Vec::new();
    loop {
        let mut header = [0; 17];
        stream.read_exact(&mut header).unwrap();
        let number = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().unwrap());
        let mut payload = vec![0; usize::try_from(number(1)).unwrap()];
        stream.read_exact(&mut payload).unwrap();
        blocks.push((header[0], number(9), payload));
        if header[0] & 8 != 0 {
            return blocks;
        }
    }
}
