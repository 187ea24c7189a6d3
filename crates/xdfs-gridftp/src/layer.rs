//! What is between a connection and its content in GSI, at either side. Nothing here waits.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};

use base64ct::{Base64, Encoding as _};
use mio::net::TcpStream;
use xdfs_gsi::{DataContext, Established};
use xdfs_proto::{Code, Fault};

use crate::line::{Line, LineReader};

/// Bytes of the longest protected command in base64: the longest command, and what its protection
/// adds.
const COMMAND_BYTES_MAX: usize = 16 << 10;
/// The same of a reply, all lines of which may be in one token.
const REPLY_BYTES_MAX: usize = 8 << 20;
/// Bytes that are read at once.
const READ_BYTES: usize = 32 << 10;
/// Reads in a row that bring nothing of the content.
const EMPTY_READS_MAX: usize = 1024;

/// The side of a control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It sends commands.
    Client,
    /// It sends replies.
    Server,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) enum Layer {
    Control(Box<Control>),
    Data(Box<DataContext>),
}

/// Commands and replies in tokens (RFC 2228, section 3).
#[derive(Debug)]
pub(crate) struct Control {
    side: Side,
    context: Box<Established>,
    lines: LineReader,
    /// Lines that came.
    plain: VecDeque<u8>,
    /// Lines on their way.
    outgoing: Vec<u8>,
}

impl Layer {
    /// The layer of a control connection whose context is established.
    pub(crate) fn control(context: Box<Established>, side: Side) -> Self {
        let (mut lines, bytes_max) = match side {
            Side::Client => (LineReader::of_replies(), REPLY_BYTES_MAX),
            Side::Server => (LineReader::new(), COMMAND_BYTES_MAX),
        };
        lines.set_line_bytes_max(bytes_max);
        Self::Control(Box::new(Control {
            side,
            context,
            lines,
            plain: VecDeque::new(),
            outgoing: Vec::new(),
        }))
    }

    /// Whether a handshake is not yet through.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self, Self::Data(context) if !context.is_open())
    }

    /// Whether content is protected, and its end was not told: somebody may have cut it off.
    pub(crate) fn lacks_end(&self) -> bool {
        matches!(self, Self::Data(context) if !context.is_passed() && !context.has_ended())
    }

    /// Reads content once; 0 at the end.
    ///
    /// # Errors
    /// Those of the connection, and of its protection; `WouldBlock` if nothing is there.
    pub(crate) fn read(&mut self, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
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
    pub(crate) fn write(&mut self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
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
    pub(crate) fn flush(&mut self, stream: &mut TcpStream) -> io::Result<()> {
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
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Control(control) => control.outgoing.is_empty(),
            Self::Data(context) => context.is_flushed(),
        }
    }

    /// Tells the peer that nothing more comes, and leaves the rest to the connection.
    ///
    /// # Errors
    /// As for [`flush`](Self::flush).
    pub(crate) fn end(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        self.finish_handshake(stream)?;
        if let Self::Data(context) = self {
            context.close();
        }
        self.flush(stream)
    }

    /// Whether the peer has told that nothing more comes, in a way that nobody else can.
    pub(crate) fn has_told_end(&self) -> bool {
        match self {
            Self::Control(_) => false,
            Self::Data(context) => context.has_ended(),
        }
    }

    pub(crate) fn finish_handshake(&mut self, stream: &mut TcpStream) -> io::Result<()> {
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
        let read = match self {
            Self::Control(control) => control.receive(stream).map(Ok),
            Self::Data(context) => context.receive(stream),
        };
        let read = match read {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
            Ok(Ok(read)) => read,
            Ok(Err(fault)) => {
                // The alert tells the peer why, if the connection takes it.
                let _ = self.flush(stream);
                return Err(violated(fault));
            }
        };
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
    fn receive(&mut self, from: &mut impl io::Read) -> io::Result<usize> {
        let mut bytes = [0; READ_BYTES];
        let read = from.read(&mut bytes)?;
        self.lines.push(&bytes[..read]);
        Ok(read)
    }

    /// Takes bytes of lines; `None` if none are there.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.plain.is_empty() {
            match self.lines.next_line() {
                None => return Ok(None),
                Some(Line::Text(line)) => {
                    let command = self.open(&line).map_err(violated)?;
                    self.plain.extend(command);
                }
                Some(Line::TooLong(_)) => {
                    let cause = "a protected line is too long";
                    return Err(violated(Fault::new(Code::ProtocolViolation, "", cause)));
                }
            }
        }
        self.plain.read(buffer).map(Some)
    }

    /// The command or the reply in a line.
    fn open(&mut self, line: &[u8]) -> Result<Vec<u8>, Fault> {
        let refused = |cause| Fault::new(Code::ProtocolViolation, "read a protected line", cause);
        let text = std::str::from_utf8(line).unwrap_or("");
        let end = match self.side {
            Side::Client => text.find([' ', '-']),
            Side::Server => text.find(' '),
        };
        let (verb, token) = text.split_at(end.unwrap_or(text.len()));
        // A TLS record has both integrity and confidentiality, whatever was asked for.
        let known = match self.side {
            Side::Client => ["631", "632", "633"],
            Side::Server => ["ENC", "MIC", "CONF"],
        };
        if !known.iter().any(|known| known.eq_ignore_ascii_case(verb)) {
            return Err(refused(
                "it isn't protected, as everything after ADAT has to be",
            ));
        }
        let token = Base64::decode_vec(token.get(1..).unwrap_or_default());
        let token = token.map_err(|_| refused("the token isn't base64"))?;
        let mut plain = self.context.unwrap(&token)?;
        if !plain.ends_with(b"\r\n") {
            plain.extend_from_slice(b"\r\n");
        }
        Ok(plain)
    }

    /// Protects commands or replies, line by line.
    fn put(&mut self, lines: &[u8]) -> io::Result<usize> {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let token = self.context.wrap(line).map_err(violated)?;
            // Lines in between have no number: see Reply.
            let is_last = matches!(line, [b'0'..=b'9', _, _, b' ', ..]);
            let begin = match self.side {
                Side::Client => "ENC ",
                Side::Server if is_last => "632 ",
                Side::Server => "632-",
            };
            let text = format!("{begin}{}\r\n", Base64::encode_string(&token));
            self.outgoing.extend_from_slice(text.as_bytes());
        }
        Ok(lines.len())
    }
}

fn violated(fault: Fault) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, fault)
}

fn too_many() -> io::Error {
    let cause = "the peer sends tokens without content";
    io::Error::new(ErrorKind::InvalidData, cause)
}

fn cut_off() -> io::Error {
    let cause = "the connection was cut off: there was no end of TLS";
    io::Error::new(ErrorKind::UnexpectedEof, cause)
}
