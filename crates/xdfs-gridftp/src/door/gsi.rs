//! GSI at the door: security contexts of sessions, and the layers of their connections.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::PathBuf;

use base64ct::{Base64, Encoding as _};
use mio::net::TcpStream;
use xdfs_gsi::{
    Acceptor, Credential, DataContext, Delegated, Established, Peer, Role, Step, Trust,
};
use xdfs_proto::{Code, Fault};

use crate::line::{Line, LineReader};
use crate::session::Outcome;

/// Bytes of the longest protected command in base64: the longest command, and what its protection
/// adds.
const TOKEN_LINE_BYTES_MAX: usize = 16 << 10;
/// Bytes that are read at once.
const READ_BYTES: usize = 32 << 10;
/// Reads in a row that bring nothing of the content.
const EMPTY_READS_MAX: usize = 1024;

/// Files of the server. They are read for each session, so that they can be replaced; lists of
/// revoked certificates when they have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GsiHost {
    /// The certificate, and those between it and its authority (PEM).
    pub certificate: PathBuf,
    /// Its key (PEM), which only its owner may read.
    pub key: PathBuf,
    /// The directory of authorities.
    pub authorities: PathBuf,
    /// Limited proxies are taken, as Globus takes them for moving files.
    pub takes_limited: bool,
}

impl GsiHost {
    /// Reads the files.
    ///
    /// # Errors
    /// One can't be used.
    pub fn load(&self) -> Result<(Credential, Trust), Fault> {
        let credential = Credential::open(&self.certificate, &self.key)?;
        Ok((credential, Trust::open(&self.authorities)?))
    }
}

/// The files, and what all sessions share of them.
#[derive(Debug)]
pub(super) struct Host {
    files: GsiHost,
    trust: Trust,
}

impl Host {
    /// What a door needs.
    ///
    /// # Errors
    /// A file can't be used.
    pub(super) fn open(files: GsiHost) -> Result<Self, Fault> {
        let (_, trust) = files.load()?;
        Ok(Self { files, trust })
    }
}

/// The security of one session, as far as it is.
#[derive(Debug, Default)]
pub(super) struct Negotiation {
    acceptor: Option<Acceptor>,
    /// For the control connection, once its last output in clear is sent.
    established: Option<Box<Established>>,
    /// Who the peer is.
    pub(super) peer: Option<Peer>,
}

/// What data connections need.
#[derive(Clone, Debug)]
pub(super) struct DataSecurity {
    delegated: Option<Delegated>,
    trust: Trust,
    /// The user's own subject.
    name: String,
}

impl Negotiation {
    /// Takes a token of the client.
    ///
    /// # Errors
    /// The client isn't verified, or breaks the rules; or the server's own files can't be used.
    pub(super) fn step(
        &mut self,
        host: &Host,
        token: &[u8],
    ) -> Result<(Outcome, Option<DataSecurity>), Fault> {
        let mut acceptor = match self.acceptor.take() {
            Some(begun) => begun,
            None => {
                let (credential, _) = host.files.load().map_err(|fault| {
                    let cause = "the server's own certificate can't be used";
                    hidden(&fault, cause)
                })?;
                Acceptor::new(&credential, &host.trust)?
            }
        };
        let token = match acceptor.step(token)? {
            Step::Next(token) => {
                self.acceptor = Some(acceptor);
                return Ok((Outcome::Token(token), None));
            }
            Step::Done(token) => token,
        };
        let established = acceptor.established().ok_or_else(|| {
            let cause = "the context isn't established";
            Fault::new(Code::Internal, "begin a security context", cause)
        })?;
        let peer = established.peer().clone();
        if peer.is_limited && !host.files.takes_limited {
            let cause = "limited proxies aren't taken here";
            let fault = Fault::new(Code::AuthenticationFailed, "verify the peer", cause);
            return Err(fault.hint("make a proxy that isn't limited"));
        }
        let security = DataSecurity {
            delegated: established.delegated().cloned(),
            trust: host.trust.clone(),
            name: peer.name.clone(),
        };
        self.peer = Some(peer);
        self.established = Some(Box::new(established));
        Ok((Outcome::Secured(token), Some(security)))
    }

    /// The layer of the control connection, once.
    pub(super) fn take_layer(&mut self) -> Option<Layer> {
        let context = self.established.take()?;
        let mut lines = LineReader::new();
        lines.set_line_bytes_max(TOKEN_LINE_BYTES_MAX);
        Some(Layer::Control(Box::new(Control {
            context,
            lines,
            plain: VecDeque::new(),
            outgoing: Vec::new(),
        })))
    }
}

impl DataSecurity {
    /// The layer of a data connection to `subject`, or to the user.
    ///
    /// # Errors
    /// The client has delegated nothing.
    pub(super) fn layer(
        &self,
        role: Role,
        subject: Option<&str>,
        seals: bool,
    ) -> Result<Layer, Fault> {
        let delegated = self.delegated.as_ref().ok_or_else(|| {
            let cause = "the client has delegated no credential, with which the server could prove \
                         that it acts for its user";
            let fault = Fault::new(Code::PermissionDenied, "protect a data connection", cause);
            fault.hint("delegate one, or use DCAU N")
        })?;
        let subject = subject.unwrap_or(&self.name);
        let credential = delegated.credential();
        let context = DataContext::new(role, credential, &self.trust, subject, seals)?;
        Ok(Layer::Data(Box::new(context)))
    }
}

/// What is between a connection and its content. Nothing here waits.
#[derive(Debug)]
pub(super) enum Layer {
    Control(Box<Control>),
    Data(Box<DataContext>),
}

/// Commands and replies in tokens (RFC 2228, section 3).
#[derive(Debug)]
pub(super) struct Control {
    context: Box<Established>,
    lines: LineReader,
    /// Commands that came.
    plain: VecDeque<u8>,
    /// Replies on their way.
    outgoing: Vec<u8>,
}

impl Layer {
    /// Reads content once; 0 at the end.
    ///
    /// # Errors
    /// Those of the connection, and of its protection; `WouldBlock` if nothing is there.
    pub(super) fn read(&mut self, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        for _ in 0..EMPTY_READS_MAX {
            match self {
                Self::Control(control) => {
                    if let Some(read) = control.take(buffer)? {
                        return Ok(read);
                    }
                }
                Self::Data(context) => {
                    if context.is_passed() {
                        return stream.read(buffer);
                    }
                    if let Some(read) = context.read(buffer).map_err(violated)? {
                        return Ok(read);
                    }
                }
            }
            if !self.advance(stream)? {
                return match self {
                    // The tools of Globus don't tell the end of TLS: see Session::is_unproved.
                    Self::Data(context) if !context.is_between_records() => Err(cut_off()),
                    _ => Ok(0),
                };
            }
        }
        Err(too_many())
    }

    /// Writes what can be written.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub(super) fn write(&mut self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.finish_handshake(stream)?;
        self.flush(stream)?;
        let taken = match self {
            Self::Control(control) => control.put(bytes)?,
            Self::Data(context) if context.is_passed() => return stream.write(bytes),
            Self::Data(context) => context.write(bytes).map_err(violated)?,
        };
        match self.flush(stream) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn outgoing(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Control(control) => &mut control.outgoing,
            Self::Data(context) => context.outgoing(),
        }
    }

    /// Sends what is held.
    ///
    /// # Errors
    /// Those of the connection; `WouldBlock` if something is left.
    pub(super) fn flush(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        let outgoing = self.outgoing();
        while !outgoing.is_empty() {
            match stream.write(outgoing) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => drop(outgoing.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether nothing is held.
    pub(super) fn is_flushed(&self) -> bool {
        match self {
            Self::Control(control) => control.outgoing.is_empty(),
            Self::Data(context) => context.is_flushed(),
        }
    }

    /// Goes on until the other end has proved who it is.
    ///
    /// # Errors
    /// Those of the connection, `WouldBlock` if more has to come; the other end is somebody else.
    pub(super) fn prove(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        self.finish_handshake(stream)
    }

    /// Tells the peer that nothing more comes, and leaves the rest to the connection.
    ///
    /// # Errors
    /// As for [`flush`](Self::flush).
    pub(super) fn end(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        self.finish_handshake(stream)?;
        if let Self::Data(context) = self {
            context.close();
        }
        self.flush(stream)
    }

    /// Whether the peer has told that nothing more comes, in a way that nobody else can.
    pub(super) fn has_told_end(&self) -> bool {
        match self {
            Self::Control(_) => false,
            Self::Data(context) => context.has_ended(),
        }
    }

    fn finish_handshake(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        for _ in 0..EMPTY_READS_MAX {
            match self {
                Self::Data(context) if !context.is_open() => {}
                _ => return Ok(()),
            }
            if !self.advance(stream)? {
                return Err(cut_off());
            }
        }
        Err(too_many())
    }

    /// Takes what the connection has. Returns whether it goes on.
    fn advance(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        self.flush_some(stream)?;
        let mut bytes = [0; READ_BYTES];
        let room = match self {
            Self::Control(_) => bytes.len(),
            Self::Data(context) => context.room().min(bytes.len()),
        };
        let read = match stream.read(&mut bytes[..room]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            read => read?,
        };
        match self {
            Self::Control(control) => control.lines.push(&bytes[..read]),
            Self::Data(context) => {
                if let Err(fault) = context.receive(&bytes[..read]) {
                    // The alert tells the peer why, if the connection takes it.
                    let _ = self.flush(stream);
                    return Err(violated(fault));
                }
            }
        }
        self.flush_some(stream)?;
        Ok(read > 0)
    }

    fn flush_some(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        match self.flush(stream) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

impl Control {
    /// Takes bytes of commands; `None` if none are there.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.plain.is_empty() {
            match self.lines.next_line() {
                None => return Ok(None),
                Some(Line::Text(line)) => {
                    let command = self.open(&line).map_err(violated)?;
                    self.plain.extend(command);
                }
                Some(Line::TooLong) => {
                    let cause = "a protected command is too long";
                    return Err(violated(Fault::new(Code::ProtocolViolation, "", cause)));
                }
            }
        }
        self.plain.read(buffer).map(Some)
    }

    /// The command in a line.
    fn open(&mut self, line: &[u8]) -> Result<Vec<u8>, Fault> {
        let refused = |cause| Fault::new(Code::ProtocolViolation, "read a command", cause);
        let text = std::str::from_utf8(line).unwrap_or("");
        let (verb, token) = text.split_once(' ').unwrap_or((text, ""));
        // A TLS record has both integrity and confidentiality, whatever was asked for.
        let verbs = ["ENC", "MIC", "CONF"];
        if !verbs.iter().any(|known| known.eq_ignore_ascii_case(verb)) {
            return Err(refused(
                "it isn't protected, as everything after ADAT has to be",
            ));
        }
        let token = Base64::decode_vec(token).map_err(|_| refused("the token isn't base64"))?;
        let mut command = self.context.unwrap(&token)?;
        if !command.ends_with(b"\r\n") {
            command.extend_from_slice(b"\r\n");
        }
        Ok(command)
    }

    /// Protects replies, line by line.
    fn put(&mut self, replies: &[u8]) -> io::Result<usize> {
        for line in replies.split_inclusive(|byte| *byte == b'\n') {
            let token = self.context.wrap(line).map_err(violated)?;
            // Lines in between have no number: see Reply.
            let is_last = matches!(line, [b'0'..=b'9', _, _, b' ', ..]);
            let separator = if is_last { ' ' } else { '-' };
            let text = format!("632{separator}{}\r\n", Base64::encode_string(&token));
            self.outgoing.extend_from_slice(text.as_bytes());
        }
        Ok(replies.len())
    }
}

fn violated(fault: Fault) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, told(fault))
}

/// What the client is told of a fault. What is wrong with the server's own files is for the log,
/// and isn't the client's failure.
pub(super) fn told(fault: Fault) -> Fault {
    match fault.path.is_empty() {
        true => fault,
        false => hidden(
            &fault,
            "what the server has of the certificate's authority can't be used, such as a list of \
             revoked certificates that has expired",
        ),
    }
}

fn hidden(fault: &Fault, cause: &str) -> Fault {
    tracing::error!(%fault, "GSI can't be used");
    let fault = Fault::new(Code::Internal, "verify the peer", cause);
    fault.hint("ask the administrator, whose log says more")
}

fn too_many() -> io::Error {
    let cause = "the client sends tokens without content";
    io::Error::new(ErrorKind::InvalidData, cause)
}

fn cut_off() -> io::Error {
    let cause = "the connection was cut off: there was no end of TLS";
    io::Error::new(ErrorKind::UnexpectedEof, cause)
}
