//! Security contexts of control connections: the side that accepts (RFC 2228, `ADAT`).
//!
//! ```text
//!  handshake --> TLS 1.3: sends 0x00 --> takes the flag: '0' --> established
//!                                                        'D' --> requests and takes a proxy
//! ```

use std::fmt;

use openssl::pkey::{PKey, Private};
use openssl::x509::X509;
use xdfs_proto::Fault;

use crate::chain::{Peer, verify};
use crate::channel::Channel;
use crate::records::{Found, Side};
use crate::{Credential, Trust, issue, refused};

/// Bytes of the longest content of a token: a certificate, or a command.
pub(crate) const CONTENT_BYTES_MAX: usize = 64 << 10;
/// Most tokens of a context that isn't established.
const TOKENS_MAX: usize = 32;
/// The flag of an initiator that delegates nothing.
pub(crate) const NO_DELEGATION: u8 = b'0';
/// The flag of an initiator that delegates.
pub(crate) const DELEGATION: u8 = b'D';

/// What becomes of a token.
#[derive(Debug)]
pub enum Step {
    /// The context is established; the peer gets this token if it isn't empty.
    Done(Vec<u8>),
    /// The peer gets this token, and answers.
    Next(Vec<u8>),
}

/// A credential that the peer has delegated. It is in memory only.
#[derive(Clone, Debug)]
pub struct Delegated(pub(crate) Credential);

impl Delegated {
    /// The credential.
    #[must_use]
    pub fn credential(&self) -> &Credential {
        &self.0
    }
}

/// What comes next.
enum State {
    Handshake,
    Flag,
    Proxy(PKey<Private>),
    Done,
    Failed,
}

/// The side of a context that accepts it.
pub struct Acceptor {
    channel: Channel,
    trust: Trust,
    state: State,
    tokens: usize,
    delegated: Option<Delegated>,
}

impl Acceptor {
    /// A context that a host accepts with its credential.
    ///
    /// # Errors
    /// The credential can't be used.
    pub fn new(host: &Credential, trust: &Trust) -> Result<Self, Fault> {
        Ok(Self {
            channel: Channel::new(Side::Acceptor, host, trust, None, false)?,
            trust: trust.clone(),
            state: State::Handshake,
            tokens: 0,
            delegated: None,
        })
    }

    /// Takes a token of the peer.
    ///
    /// # Errors
    /// The peer isn't verified, or breaks the rules. The context is of no use then.
    pub fn step(&mut self, token: &[u8]) -> Result<Step, Fault> {
        self.tokens += 1;
        let state = std::mem::replace(&mut self.state, State::Failed);
        if token.len() > self.channel.room() || self.tokens > TOKENS_MAX {
            return Err(refused("the tokens of the peer are too long, or too many"));
        }
        self.channel.put(token);
        match state {
            State::Handshake => self.shake(),
            State::Flag => self.take_flag(),
            State::Proxy(key) => self.take_proxy(key),
            State::Done => Err(refused("the context is established already")),
            State::Failed => Err(refused("the context has failed")),
        }
    }

    fn shake(&mut self) -> Result<Step, Fault> {
        let is_done = self.channel.advance()?.is_some();
        if is_done && self.channel.is_tls13() {
            // Else the initiator would have nothing to wait for.
            self.channel.write(&[0])?;
        }
        let token = std::mem::take(self.channel.outgoing());
        if is_done && self.channel.has_rest() {
            // The flag came along with the end of the handshake.
            let Step::Next(more) = self.take_flag()? else {
                return Ok(Step::Done(token));
            };
            return Ok(Step::Next([token, more].concat()));
        }
        self.state = match is_done {
            true => State::Flag,
            false if token.is_empty() => {
                return Err(refused("a token of the handshake is cut off"));
            }
            false => State::Handshake,
        };
        Ok(Step::Next(token))
    }

    fn take_flag(&mut self) -> Result<Step, Fault> {
        match content(&mut self.channel)?.as_slice() {
            [NO_DELEGATION] => {
                self.state = State::Done;
                Ok(Step::Done(Vec::new()))
            }
            [DELEGATION] => {
                let (key, request) = issue::request()?;
                self.channel.write(&request)?;
                self.state = State::Proxy(key);
                Ok(Step::Next(std::mem::take(self.channel.outgoing())))
            }
            _ => Err(refused("the flag of delegation is neither '0' nor 'D'")),
        }
    }

    fn take_proxy(&mut self, key: PKey<Private>) -> Result<Step, Fault> {
        let der = content(&mut self.channel)?;
        let malformed = |_| refused("the delegated proxy is malformed");
        let certificate = X509::from_der(&der).map_err(malformed)?;
        if certificate.to_der().map_err(malformed)? != der {
            return Err(refused("something follows the delegated proxy"));
        }
        if !certificate
            .public_key()
            .is_ok_and(|own| own.public_eq(&key))
        {
            return Err(refused("the delegated proxy isn't for the requested key"));
        }
        let mut chain = vec![certificate];
        chain.extend(self.channel.chain.iter().cloned());
        let delegated = verify(&chain, &self.trust)?;
        let own = self.channel.peer().map(|peer| (&peer.name, peer.proxies));
        let above = delegated.proxies.checked_sub(1);
        if above.is_none() || own != above.map(|above| (&delegated.name, above)) {
            return Err(refused("the delegated proxy isn't one of the peer"));
        }
        let certificate = chain.remove(0);
        self.delegated = Some(Delegated(Credential {
            certificate,
            key,
            chain,
        }));
        self.state = State::Done;
        Ok(Step::Done(Vec::new()))
    }

    /// The context, once it is established; `None` before.
    #[must_use]
    pub fn established(self) -> Option<Established> {
        let peer = self.channel.peer()?.clone();
        matches!(self.state, State::Done).then_some(Established {
            channel: self.channel,
            peer,
            delegated: self.delegated,
        })
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").finish_non_exhaustive()
    }
}

/// The content of a token that has been put in.
pub(crate) fn content(channel: &mut Channel) -> Result<Vec<u8>, Fault> {
    let mut content = vec![0; CONTENT_BYTES_MAX + 1];
    let mut length = 0;
    while length < content.len() {
        match channel.read(&mut content[length..])? {
            Found::Bytes(read) => length += read,
            Found::End => return Err(refused("the peer has ended the context")),
            Found::Nothing if !channel.is_between_records() => {
                return Err(refused("a token has an incomplete record"));
            }
            Found::Nothing => {
                content.truncate(length);
                return match length {
                    0 => Err(refused("a token has no content")),
                    _ => Ok(content),
                };
            }
        }
    }
    Err(refused("a token is too long"))
}

/// An established context of a control connection.
#[derive(Debug)]
pub struct Established {
    pub(crate) channel: Channel,
    pub(crate) peer: Peer,
    pub(crate) delegated: Option<Delegated>,
}

impl Established {
    /// The peer.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// What the peer has delegated, if anything.
    #[must_use]
    pub fn delegated(&self) -> Option<&Delegated> {
        self.delegated.as_ref()
    }

    /// Protects a message: a token with its integrity and confidentiality. Tokens have to be sent
    /// in the order in which they are made.
    ///
    /// # Errors
    /// OpenSSL fails.
    pub fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, Fault> {
        self.channel.write(message)?;
        Ok(std::mem::take(self.channel.outgoing()))
    }

    /// The message in a token, which isn't empty.
    ///
    /// # Errors
    /// [`AuthenticationFailed`](xdfs_proto::Code::AuthenticationFailed): the token isn't
    /// the next one of the peer, is cut off, is empty, or holds more than 64 KiB.
    pub fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, Fault> {
        if token.len() > self.channel.room() {
            return Err(refused("a token is too long"));
        }
        self.channel.put(token);
        content(&mut self.channel)
    }
}
