//! The records of TLS 1.3 behind a handshake of OpenSSL, from and into the buffers of the caller:
//! OpenSSL copies each byte once more on either way, and its ciphers don't use what newer
//! processors have.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use openssl::ssl::SslContextBuilder;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_tls::record::{
    ALERT, APPLICATION_DATA, BODY_BYTES, CONTENT_BYTES, Direction, HANDSHAKE, HEADER_BYTES,
    OVERHEAD_BYTES, TAG_BYTES,
};
use xdfs_tls::secret::{Suite, TrafficSecret};
use zeroize::Zeroizing;

/// Records in a row that bring no content.
const EMPTY_RECORDS_MAX: u32 = 32;
/// The alert that ends a direction in an orderly way (RFC 8446, section 6.1).
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
/// The alerts for a record that was changed, is too long, or has what may not come now.
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;
const UNEXPECTED_MESSAGE: u8 = 10;
/// An alert of this level ends the connection.
const FATAL: u8 = 2;
/// The message with a ticket for a later connection (RFC 8446, section 4.6.1).
const NEW_SESSION_TICKET: u8 = 4;
/// The message with which a side changes its key, and may ask the other side to do so (RFC 8446,
/// section 4.6.3).
const KEY_UPDATE: u8 = 24;
/// The same without asking.
const OWN_KEY_UPDATE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];
/// Bytes of messages that aren't whole: tickets have the certificates of the client.
const MESSAGES_BYTES_MAX: usize = 128 << 10;

/// The side of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It answers.
    Acceptor,
    /// It begins.
    Initiator,
}

/// What reading finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// So many bytes.
    Bytes(usize),
    /// The peer has told that nothing more comes.
    End,
    /// More has to come first.
    Nothing,
}

/// The traffic secrets that OpenSSL tells while it does a handshake.
#[derive(Default)]
pub(crate) struct Told([Option<Zeroizing<Vec<u8>>>; 2]);

impl Told {
    /// Has OpenSSL tell the secrets of a context's only connection.
    pub(crate) fn by(builder: &mut SslContextBuilder) -> Arc<Mutex<Self>> {
        let told = Arc::new(Mutex::new(Self::default()));
        let own = Arc::clone(&told);
        builder.set_keylog_callback(move |_, line| {
            own.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(line);
        });
        told
    }

    /// Takes a line of a key log: a label, what the client has chosen, and the secret.
    fn take(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        let slot = match words.next() {
            Some("CLIENT_TRAFFIC_SECRET_0") => 0,
            Some("SERVER_TRAFFIC_SECRET_0") => 1,
            _ => return,
        };
        let digits = words.nth(1).unwrap_or_default().as_bytes();
        let digit = |byte: u8| {
            char::from(byte)
                .to_digit(16)
                .and_then(|d| u8::try_from(d).ok())
        };
        let bytes = digits.chunks_exact(2);
        let bytes: Option<Vec<u8>> = bytes
            .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
            .collect();
        self.0[slot] = bytes.map(Zeroizing::new);
    }
}

/// Why records are refused, and the alert that tells it to the peer.
struct Refusal {
    /// Boxed, since each record may end in one.
    fault: Box<Fault>,
    alert: Option<u8>,
}

impl Refusal {
    fn telling(alert: u8, fault: Fault) -> Self {
        Self {
            fault: Box::new(fault),
            alert: Some(alert),
        }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self {
            fault: Box::new(fault),
            alert: None,
        }
    }
}

/// A direction, and the secret that its key comes from.
struct Way {
    secret: TrafficSecret,
    direction: Direction,
}

impl Way {
    fn new(secret: TrafficSecret) -> io::Result<Self> {
        let direction = Direction::of(&secret)?;
        Ok(Self { secret, direction })
    }

    fn next(&self) -> io::Result<Self> {
        Self::new(self.secret.next()?)
    }
}

/// Both directions of a connection after its handshake. Contains payload and secrets, so it can't
/// be printed.
pub(crate) struct Records {
    side: Side,
    outgoing: Way,
    incoming: Way,
    /// Content of a record that didn't fit into a caller's buffer, and how much of it was taken.
    content: Vec<u8>,
    taken: usize,
    has_ended: bool,
    is_broken: bool,
    empty_records: u32,
    /// The beginning of a message of the handshake protocol.
    message: Vec<u8>,
    /// The peer wants the key of this side to be changed.
    owes_key: bool,
}

impl Records {
    /// Takes over from OpenSSL, which must have taken nothing behind the handshake; `None` with
    /// suites that there are none of here.
    ///
    /// # Errors
    /// OpenSSL has told no secrets, or the library fails.
    pub(crate) fn new(side: Side, suite: &str, told: &Mutex<Told>) -> Result<Option<Self>, Fault> {
        let Some(suite) = Suite::named(suite) else {
            return Ok(None);
        };
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        let [client, server] = std::mem::take(&mut told.0).map(|bytes| {
            let secret = bytes.and_then(|bytes| TrafficSecret::new(suite, bytes));
            let way = secret.map(|secret| Way::new(secret).map_err(|error| failed(&error)));
            way.unwrap_or_else(|| {
                let cause = "OpenSSL hasn't told the secrets of the connection";
                Err(Fault::new(Code::Internal, PROTECT, cause))
            })
        });
        let (outgoing, mut incoming) = match side {
            Side::Initiator => (client?, server?),
            Side::Acceptor => (server?, client?),
        };
        incoming.direction.lift_limit();
        Ok(Some(Self {
            side,
            outgoing,
            incoming,
            content: Vec::new(),
            taken: 0,
            has_ended: false,
            is_broken: false,
            empty_records: 0,
            message: Vec::new(),
            owes_key: false,
        }))
    }

    /// Puts bytes into records at the end of `out`.
    ///
    /// # Errors
    /// The library fails.
    pub(crate) fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        for content in bytes.chunks(CONTENT_BYTES) {
            // One answer is enough for all that the peer has asked before (RFC 8446, section
            // 4.6.3).
            if std::mem::take(&mut self.owes_key) || self.outgoing.direction.is_worn() {
                self.change_key(out)?;
            }
            self.seal(APPLICATION_DATA, content, out)?;
        }
        Ok(())
    }

    fn seal(&mut self, kind: u8, content: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let start = out.len();
        out.resize(start + content.len() + OVERHEAD_BYTES, 0);
        let sealed = self
            .outgoing
            .direction
            .seal(kind, content, &mut out[start..]);
        sealed.map(drop).map_err(|error| failed(&error))
    }

    /// Lowers the limit of the key that this side sends with, for tests.
    #[cfg(test)]
    pub(crate) fn wear(&mut self, records_max: u64) {
        self.outgoing.direction.wear(records_max);
    }

    /// Puts a record of any type into `out`, for tests.
    #[cfg(test)]
    pub(crate) fn put(&mut self, kind: u8, content: &[u8], out: &mut Vec<u8>) {
        self.seal(kind, content, out).unwrap();
    }

    /// Sends with the next key, for tests.
    #[cfg(test)]
    pub(crate) fn change(&mut self) {
        self.outgoing = self.outgoing.next().unwrap();
    }

    /// Changes the key that this side sends with.
    fn change_key(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.seal(HANDSHAKE, &OWN_KEY_UPDATE, out)?;
        self.outgoing = self.outgoing.next().map_err(|error| failed(&error))?;
        Ok(())
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn close(&mut self, out: &mut Vec<u8>) {
        // If it can't be sent, the peer sees the end of the connection.
        let _ = self.seal(ALERT, &CLOSE_NOTIFY, out);
    }

    /// Takes content of the records at the front of `encoded`, as much as fits into `buffer`.
    /// Returns it with the number of bytes that are used up. What has to be answered, also the
    /// alert that tells why records are refused, is put at the end of `out`.
    ///
    /// # Errors
    /// A record is none of this connection.
    pub(crate) fn read(
        &mut self,
        encoded: &[u8],
        buffer: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Result<(Found, usize), Fault> {
        if self.is_broken {
            return Err(damaged("it was before"));
        }
        self.open(encoded, buffer).map_err(|refusal| {
            self.is_broken = true;
            if let Some(alert) = refusal.alert {
                // If it can't be sent, the peer sees the end of the connection.
                let _ = self.seal(ALERT, &[FATAL, alert], out);
            }
            *refusal.fault
        })
    }

    fn open(&mut self, encoded: &[u8], buffer: &mut [u8]) -> Result<(Found, usize), Refusal> {
        let (mut used, mut filled) = (0, self.take_content(buffer));
        while !self.has_ended && filled < buffer.len() && self.content.is_empty() {
            let rest = &encoded[used..];
            let Some(&header) = rest.first_chunk::<HEADER_BYTES>() else {
                break;
            };
            let [kind, _, _, high, low] = header;
            if kind != APPLICATION_DATA {
                return Err(Refusal::telling(
                    UNEXPECTED_MESSAGE,
                    damaged("a record has no protection"),
                ));
            }
            let length = usize::from(u16::from_be_bytes([high, low]));
            if length > BODY_BYTES {
                return Err(Refusal::telling(
                    RECORD_OVERFLOW,
                    damaged("a record is too long"),
                ));
            }
            let Some(body) = rest.get(HEADER_BYTES..HEADER_BYTES + length) else {
                break;
            };
            used += HEADER_BYTES + length;
            let room = &mut buffer[filled..];
            let inner = length.saturating_sub(TAG_BYTES);
            let is_direct = room.len() >= inner;
            let mut whole = Vec::new();
            let target = match is_direct {
                true => room,
                false => {
                    whole.resize(inner, 0);
                    &mut whole
                }
            };
            let opened = self.incoming.direction.open(header, body, target);
            let (kind, length) = opened
                .map_err(|error| Refusal::telling(BAD_RECORD_MAC, damaged(&error.to_string())))?;
            // Nothing may come between the parts of a message (RFC 8446, section 5.1).
            if kind != HANDSHAKE && !self.message.is_empty() {
                return Err(unexpected("something else comes within a message"));
            }
            if kind != APPLICATION_DATA {
                let message = target[..length].to_vec();
                self.take_message(kind, &message)?;
            } else if is_direct {
                self.count_content(length)?;
                filled += length;
            } else {
                self.count_content(length)?;
                whole.truncate(length);
                self.content = whole;
                filled += self.take_content(&mut buffer[filled..]);
            }
        }
        let found = match filled {
            0 if self.has_ended => Found::End,
            0 => Found::Nothing,
            filled => Found::Bytes(filled),
        };
        Ok((found, used))
    }

    /// Moves what is left of a record to the front of `buffer`.
    fn take_content(&mut self, buffer: &mut [u8]) -> usize {
        let left = &self.content[self.taken..];
        let moved = left.len().min(buffer.len());
        buffer[..moved].copy_from_slice(&left[..moved]);
        self.taken += moved;
        if self.taken == self.content.len() {
            (self.content, self.taken) = (Vec::new(), 0);
        }
        moved
    }

    /// Takes what isn't content.
    fn take_message(&mut self, kind: u8, message: &[u8]) -> Result<(), Refusal> {
        match (kind, message) {
            (ALERT, [_, 0]) => {
                self.has_ended = true;
                return Ok(());
            }
            (ALERT, &[_, number]) => {
                let alert = xdfs_tls::alert(number);
                let reason = format!("the peer ended TLS with the alert {alert}");
                return Err(violated(&reason).into());
            }
            (HANDSHAKE, [_, ..]) => self.take_handshake(message)?,
            _ => return Err(unexpected("a record has an unknown type")),
        }
        self.count_content(0)
    }

    /// Takes messages of the handshake protocol, of which a record may have several, or a part.
    fn take_handshake(&mut self, more: &[u8]) -> Result<(), Refusal> {
        self.message.extend_from_slice(more);
        if self.message.len() > MESSAGES_BYTES_MAX {
            return Err(unexpected("a message is too long"));
        }
        while let [kind, a, b, c, rest @ ..] = &self.message[..] {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let Some(body) = rest.get(..length) else {
                break;
            };
            match (kind, body) {
                // Only a server has them.
                (&NEW_SESSION_TICKET, _) if self.side == Side::Initiator => {}
                // Nothing that has the old key may follow.
                (&KEY_UPDATE, [asks @ (0 | 1)]) if rest.len() == length => {
                    self.owes_key |= *asks == 1;
                    self.incoming = self.incoming.next().map_err(|error| failed(&error))?;
                    self.incoming.direction.lift_limit();
                }
                _ => return Err(unexpected("a message has an unknown type")),
            }
            self.message.drain(..4 + length);
        }
        Ok(())
    }

    /// Bounds the number of consecutive empty records.
    fn count_content(&mut self, length: usize) -> Result<(), Refusal> {
        self.empty_records = match length {
            0 => self.empty_records + 1,
            _ => 0,
        };
        match self.empty_records > EMPTY_RECORDS_MAX {
            true => Err(unexpected("too many records without content")),
            false => Ok(()),
        }
    }
}

const PROTECT: &str = "protect bytes";

fn failed(error: &io::Error) -> Fault {
    Fault::new(Code::Internal, PROTECT, error.to_string())
}

/// The fault of records that were changed on the way, or by chance. The next time they may come
/// through.
fn damaged(reason: &str) -> Fault {
    violated(reason).retry(Retry::Now)
}

fn unexpected(reason: &str) -> Refusal {
    Refusal::telling(UNEXPECTED_MESSAGE, violated(reason))
}

/// The fault of a peer whose records are not what they have to be.
pub(crate) fn violated(reason: &str) -> Fault {
    let cause = format!("the protection of the connection is violated: {reason}");
    Fault::new(Code::AuthenticationFailed, "unprotect bytes", cause)
}
