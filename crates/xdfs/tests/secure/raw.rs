//! A protected channel by hand, for what no client of the library does.

use std::io::{ErrorKind, Read, Write};
#[cfg(target_os = "linux")]
use std::net::IpAddr;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use rustls::{ClientConnection, StreamOwned};
use xdfs::security::TrustPolicy;
use xdfs::{Code, Fault, Limits};
use xdfs_proto::frame::{AuthRequest, Exception, SessionAccept, SessionRequest, Start};
use xdfs_proto::handshake::{Initiator, InitiatorStep, Purpose, take_frame};
use xdfs_proto::{Frame, SessionId, SessionSecret};
use xdfs_security::Method;
use xdfs_security::key::{self, SigningKey};
use xdfs_security::trust::server_name;

use crate::world::PATIENCE;

/// A channel over TLS 1.3 whose handshake is done.
pub(crate) struct Raw {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// The exporter of RFC 8446, section 7.5, under the protocol's label.
    pub(crate) binding: [u8; 32],
    input: Vec<u8>,
}

impl Raw {
    pub(crate) fn open(addr: SocketAddr, trust: &TrustPolicy) -> Self {
        Self::over(TcpStream::connect(addr).unwrap(), addr, trust)
    }

    /// Like [`Raw::open`], from this address of the machine.
    #[cfg(target_os = "linux")]
    pub(crate) fn open_from(source: IpAddr, addr: SocketAddr, trust: &TrustPolicy) -> Self {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::new(source, 0)).unwrap();
        connect(&socket, &addr).unwrap();
        Self::over(TcpStream::from(socket), addr, trust)
    }

    fn over(mut socket: TcpStream, addr: SocketAddr, trust: &TrustPolicy) -> Self {
        let host = addr.ip().to_string();
        let (config, verdict) = trust.client_config(&host, addr.port(), None).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut connection = ClientConnection::new(config, server_name(&host).unwrap()).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).unwrap();
        }
        verdict.commit().unwrap();
        let binding = connection
            .export_keying_material([0; 32], b"EXPORTER-xdfs-channel", None)
            .unwrap();
        Self {
            stream: StreamOwned::new(connection, socket),
            binding,
            input: Vec::new(),
        }
    }

    /// Sends `out`, and takes what comes until the machine has a step for its user.
    pub(crate) fn exchange(
        &mut self,
        machine: &mut Initiator,
        out: &mut Vec<u8>,
    ) -> Result<InitiatorStep, Fault> {
        loop {
            self.stream.write_all(out).unwrap();
            self.stream.flush().unwrap();
            out.clear();
            let (step, used) = machine.receive(&self.input, &Limits::default(), out)?;
            self.input.drain(..used);
            match step {
                InitiatorStep::Wait if used > 0 || !out.is_empty() => {}
                InitiatorStep::Wait => self.fill()?,
                step => return Ok(step),
            }
        }
    }

    /// Sends frames, or what looks like them.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    /// The exception that the peer sends next, whatever comes before it.
    pub(crate) fn exception(&mut self) -> Fault {
        loop {
            match take_frame(&self.input, &Limits::default()).unwrap() {
                Some((Frame::Exception(Exception { fault, .. }), _)) => return fault,
                Some((_, used)) => drop(self.input.drain(..used)),
                None => self.fill().unwrap(),
            }
        }
    }

    fn fill(&mut self) -> Result<(), Fault> {
        let mut chunk = [0; 4096];
        let n = loop {
            match self.stream.read(&mut chunk) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Fault::from_io("read", "", &e)),
                Ok(n) => break n,
            }
        };
        if n == 0 {
            return Err(Fault::new(Code::ConnectionLost, "read", "it ended"));
        }
        self.input.extend_from_slice(&chunk[..n]);
        Ok(())
    }
}

pub(crate) fn session_request(id: [u8; 16]) -> SessionRequest {
    SessionRequest {
        id: SessionId(id),
        channels: 8,
        block_size: 0,
        window: 0,
        start: Start::Elastic,
        user: String::new(),
    }
}

/// Says who it is by a method, and gives the answer, which must be a refusal.
#[track_caller]
pub(crate) fn refused_auth(raw: &mut Raw, method: u8, user: &str, body: &[u8]) -> Fault {
    let mut out = Vec::new();
    let purpose = Purpose::Session(session_request([1; 16]));
    let mut machine = Initiator::protected(purpose, false, &mut out);
    let step = raw.exchange(&mut machine, &mut out).unwrap();
    assert!(matches!(step, InitiatorStep::Prove(_)), "{step:?}");
    let request = AuthRequest {
        method,
        user: user.into(),
        body: body.to_vec(),
    };
    machine.prove(request, true, &mut out);
    raw.exchange(&mut machine, &mut out).unwrap_err()
}

/// Registers a session with a key of the owner.
pub(crate) fn register(
    addr: SocketAddr,
    trust: &TrustPolicy,
    key: &Path,
) -> (Raw, SessionId, SessionSecret) {
    let mut raw = Raw::open(addr, trust);
    let request = session_request([7; 16]);
    let id = request.id;
    let mut out = Vec::new();
    let mut machine = Initiator::protected(Purpose::Session(request), false, &mut out);
    let step = raw.exchange(&mut machine, &mut out).unwrap();
    assert!(matches!(step, InitiatorStep::Prove(_)), "{step:?}");
    let mut signer = SigningKey::load(key, || None).unwrap();
    let request = AuthRequest {
        method: Method::Key.number(),
        user: String::new(),
        body: key::prove(&mut signer, "", &raw.binding).unwrap(),
    };
    machine.prove(request, true, &mut out);
    match raw.exchange(&mut machine, &mut out).unwrap() {
        InitiatorStep::Open(Some(SessionAccept { secret, .. })) => (raw, id, secret),
        other => panic!("{other:?}"),
    }
}
