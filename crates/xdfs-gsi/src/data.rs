//! Security of data connections (DCAU): both sides prove that they act for the same user.
//!
//! Whoever has opened the connection begins the handshake of TLS. Then
//!
//! - with PROT S and P, everything is content of TLS;
//! - with PROT C the initiator sends `0` as content, in TLS 1.3 after the acceptor has sent a zero
//!   byte, and everything that follows is in clear.

use std::collections::VecDeque;
use std::io::{self, Read};

use xdfs_proto::{Code, Fault};

use crate::channel::Channel;
use crate::context::NO_DELEGATION;
use crate::records::{Found, Side};
use crate::{Credential, Trust, refused};

/// Bytes of content that are protected before they are to be sent.
const SEND_BYTES_MAX: usize = 64 << 10;
/// Bytes in clear that are read at once, as long as the driver doesn't do so by itself.
const READ_BYTES: usize = 4 << 10;

/// Who has opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The peer.
    Accepted,
    /// This side.
    Opened,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshake,
    /// PROT C: the zero byte of the acceptor has to come.
    Greeting,
    /// PROT C: the flag of the initiator has to come.
    Flag,
    Sealed,
    Clear,
}

/// The security of one data connection. The driver has it [`receive`](Self::receive) what comes,
/// calls [`read`](Self::read) and [`write`](Self::write), and sends [`outgoing`](Self::outgoing).
#[derive(Debug)]
pub struct DataContext {
    channel: Channel,
    role: Role,
    subject: String,
    seals: bool,
    state: State,
    /// What came in clear.
    clear: VecDeque<u8>,
    /// The peer has told that no more content comes.
    has_ended: bool,
}

impl DataContext {
    /// A context with a credential that the user has delegated, or with the user's own. The peer
    /// has to be `subject`, as [`Peer::name`](crate::Peer::name). If it `seals`, content is
    /// protected.
    ///
    /// # Errors
    /// The credential can't be used.
    pub fn new(
        role: Role,
        credential: &Credential,
        trust: &Trust,
        subject: &str,
        seals: bool,
    ) -> Result<Self, Fault> {
        let side = match role {
            Role::Accepted => Side::Acceptor,
            Role::Opened => Side::Initiator,
        };
        let mut context = Self {
            channel: Channel::new(side, credential, trust, None, seals)?,
            role,
            subject: subject.to_owned(),
            seals,
            state: State::Handshake,
            clear: VecDeque::new(),
            has_ended: false,
        };
        if role == Role::Opened {
            context.advance()?;
        }
        Ok(context)
    }

    /// Whether content can be read and written.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Sealed | State::Clear)
    }

    /// Reads once from what the peer sends. Returns the number of bytes, and 0 at its end or
    /// without room.
    ///
    /// # Errors
    /// Those of the reader. Within the value: the handshake fails, or the peer isn't the expected
    /// one.
    pub fn receive(&mut self, from: &mut impl Read) -> io::Result<Result<usize, Fault>> {
        let read = match self.state {
            State::Clear => {
                let room = SEND_BYTES_MAX.saturating_sub(self.clear.len());
                let mut bytes = [0; READ_BYTES];
                let room = room.min(bytes.len());
                let read = from.read(&mut bytes[..room])?;
                self.clear.extend(&bytes[..read]);
                read
            }
            _ => self.channel.fill_from(from)?,
        };
        Ok(self.advance().map(|()| read))
    }

    /// What is to be sent; the driver removes what it has sent.
    pub fn outgoing(&mut self) -> &mut Vec<u8> {
        self.channel.outgoing()
    }

    /// Content that came: its length, 0 at the end that the peer has told; `None` if there is none
    /// yet. In clear an end isn't told.
    ///
    /// # Errors
    /// The peer's records are broken.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Fault> {
        match self.state {
            State::Sealed => Ok(match self.channel.read(buffer)? {
                Found::Bytes(read) => Some(read),
                Found::End => {
                    self.has_ended = true;
                    Some(0)
                }
                Found::Nothing => None,
            }),
            // A deque of bytes can't fail.
            State::Clear if !self.clear.is_empty() => Ok(self.clear.read(buffer).ok()),
            _ => Ok(None),
        }
    }

    /// Whether nothing is left to be sent.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.channel.is_flushed()
    }

    /// Whether everything is in clear, and nothing is left to be taken or sent, so that the driver
    /// can read and write by itself.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.state == State::Clear && self.clear.is_empty() && self.is_flushed()
    }

    /// Whether the peer has told that no more content comes. Else anybody in between may have ended
    /// the connection.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether nothing came that is incomplete.
    #[must_use]
    pub fn is_between_records(&self) -> bool {
        match self.state {
            State::Sealed => self.channel.is_between_records(),
            State::Clear => true,
            State::Handshake | State::Greeting | State::Flag => false,
        }
    }

    /// Puts content into what is to be sent, as far as there is room. Returns the number of bytes;
    /// 0 if there is none before more is sent, or before the context [is open](Self::is_open).
    ///
    /// # Errors
    /// OpenSSL fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let room = SEND_BYTES_MAX.saturating_sub(self.channel.outgoing().len());
        let taken = &bytes[..bytes.len().min(room)];
        match self.state {
            State::Sealed => self.channel.write(taken)?,
            State::Clear => self.channel.outgoing().extend_from_slice(taken),
            _ => return Ok(0),
        }
        Ok(taken.len())
    }

    /// Tells the peer that no more content comes.
    pub fn close(&mut self) {
        if self.state == State::Sealed {
            self.channel.close();
        }
    }

    fn advance(&mut self) -> Result<(), Fault> {
        if self.state == State::Handshake {
            let Some(peer) = self.channel.advance()? else {
                return Ok(());
            };
            if peer.name != self.subject {
                let cause = format!(
                    "the peer of the data connection is '{}', and '{}' was expected",
                    peer.name, self.subject
                );
                self.channel.outgoing().clear();
                return Err(Fault::new(
                    Code::AuthenticationFailed,
                    "verify the peer",
                    cause,
                ));
            }
            self.state = match (self.seals, self.role, self.channel.is_tls13()) {
                (true, _, _) => State::Sealed,
                (false, Role::Accepted, true) => {
                    self.channel.write(&[0])?;
                    State::Flag
                }
                (false, Role::Accepted, false) => State::Flag,
                (false, Role::Opened, true) => State::Greeting,
                (false, Role::Opened, false) => {
                    self.channel.write(&[NO_DELEGATION])?;
                    State::Clear
                }
            };
        }
        let wanted = match self.state {
            State::Greeting => 0,
            State::Flag => NO_DELEGATION,
            State::Handshake | State::Sealed => return Ok(()),
            State::Clear => return self.pass(),
        };
        // One byte of one record: what follows the record isn't TLS.
        let mut flag = [0; 2];
        match self.channel.read(&mut flag)? {
            Found::Nothing => return Ok(()),
            Found::Bytes(1) if flag[0] == wanted => {}
            _ => {
                return Err(refused(
                    "the flag of the data connection isn't the one of PROT C",
                ));
            }
        }
        if self.state == State::Greeting {
            self.channel.write(&[NO_DELEGATION])?;
        }
        self.state = State::Clear;
        self.pass()
    }

    /// Nothing more is taken as records.
    fn pass(&mut self) -> Result<(), Fault> {
        if self.channel.has_rest() {
            self.clear.extend(self.channel.take_rest());
        }
        Ok(())
    }
}
