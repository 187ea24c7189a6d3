//! Security contexts of control connections: the side that begins.

use std::fmt;
use std::net::IpAddr;

use openssl::nid::Nid;
use openssl::x509::X509;
use xdfs_proto::Fault;

use crate::channel::Channel;
use crate::context::{DELEGATION, Established, NO_DELEGATION, Step, content};
use crate::issue::{ProxyOptions, sign_request};
use crate::records::Side;
use crate::{Credential, Trust, refused};

/// Most tokens of a context that isn't established.
const TOKENS_MAX: usize = 32;

/// Whom a client expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A host with this name or address. Names are in the certificate's subject alternative names,
    /// where it has some with names of hosts or addresses, and else in its common name: `HOST`,
    /// `host/HOST` or `ftp/HOST`.
    Host(String),
    /// Who has this subject, as [`distinguished_name`](xdfs_security::grid::distinguished_name)
    /// writes it.
    Subject(String),
}

impl Expected {
    /// Whether a certificate is that of whom is expected.
    pub(crate) fn check(&self, name: &str, certificate: &X509) -> Result<(), Fault> {
        let (is_it, wanted) = match self {
            Self::Subject(wanted) => (wanted == name, wanted),
            Self::Host(host) => (is_host(host, certificate), host),
        };
        if is_it {
            return Ok(());
        }
        let cause = format!("the server is '{name}', and '{wanted}' was expected");
        Err(refused(cause).hint("check the name of the host in the URL"))
    }
}

fn is_host(host: &str, certificate: &X509) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    let names = certificate.subject_alt_names();
    let names = names.iter().flatten();
    let mut has_names = false;
    for name in names {
        if let Some(bytes) = name.ipaddress() {
            has_names = true;
            let is_it = match address {
                Some(IpAddr::V4(ip)) => bytes == ip.octets(),
                Some(IpAddr::V6(ip)) => bytes == ip.octets(),
                None => false,
            };
            if is_it {
                return true;
            }
        }
        if let Some(name) = name.dnsname() {
            has_names = true;
            if address.is_none() && matches_host(name, host) {
                return true;
            }
        }
    }
    if has_names {
        return false;
    }
    let mut common = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
    let last = common.by_ref().last();
    let text = last.map(|entry| entry.data().as_slice().to_vec());
    let Some(text) = text.and_then(|bytes| String::from_utf8(bytes).ok()) else {
        return false;
    };
    let bare = text
        .strip_prefix("host/")
        .or_else(|| text.strip_prefix("ftp/"));
    bare.unwrap_or(&text).eq_ignore_ascii_case(host)
}

/// A name that may begin with `*.`, for one label (RFC 6125, section 6.4.3).
fn matches_host(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(domain) => host.split_once('.').is_some_and(|(label, rest)| {
            !label.is_empty() && domain.contains('.') && rest.eq_ignore_ascii_case(domain)
        }),
        None => pattern.eq_ignore_ascii_case(host),
    }
}

enum State {
    Handshake,
    /// TLS 1.3: 0x00 has to come.
    Greeting,
    Request,
    Done,
    Failed,
}

/// The side of a context that begins it.
pub struct Initiator {
    channel: Channel,
    credential: Credential,
    expected: Expected,
    delegates: bool,
    state: State,
    tokens: usize,
}

impl Initiator {
    /// A context of a user with this credential. If it `delegates`, the server gets a limited
    /// proxy, with which it acts for the user on data connections.
    ///
    /// # Errors
    /// The credential can't be used.
    pub fn new(
        credential: &Credential,
        trust: &Trust,
        expected: Expected,
        delegates: bool,
    ) -> Result<Self, Fault> {
        let name = match &expected {
            Expected::Host(host) if host.parse::<IpAddr>().is_err() => Some(host.as_str()),
            _ => None,
        };
        Ok(Self {
            channel: Channel::new(Side::Initiator, credential, trust, name, false)?,
            credential: credential.clone(),
            expected,
            delegates,
            state: State::Handshake,
            tokens: 0,
        })
    }

    /// Takes a token of the peer, which is empty at the start. With [`Step::Done`] and a token, the
    /// context is established once the peer confirms it.
    ///
    /// # Errors
    /// The peer isn't verified, isn't the expected one, or breaks the rules. The context is of no
    /// use then, and nothing may be sent any more.
    pub fn step(&mut self, token: &[u8]) -> Result<Step, Fault> {
        self.tokens += 1;
        let state = std::mem::replace(&mut self.state, State::Failed);
        if token.len() > self.channel.room() || self.tokens > TOKENS_MAX {
            return Err(refused(
                "the tokens of the server are too long, or too many",
            ));
        }
        self.channel.put(token);
        match state {
            State::Handshake => self.shake(),
            State::Greeting => match content(&mut self.channel)?.as_slice() {
                [0] => self.send_flag(),
                _ => Err(refused("the server's greeting isn't one zero byte")),
            },
            State::Request => {
                let request = content(&mut self.channel)?;
                let options = ProxyOptions {
                    is_limited: true,
                    ..ProxyOptions::default()
                };
                let proxy = sign_request(&self.credential, &request, &options)?;
                self.channel.write(&proxy)?;
                self.state = State::Done;
                Ok(Step::Done(std::mem::take(self.channel.outgoing())))
            }
            State::Done => Err(refused("the context is established already")),
            State::Failed => Err(refused("the context has failed")),
        }
    }

    fn shake(&mut self) -> Result<Step, Fault> {
        let name = self.channel.advance()?.map(|peer| peer.name.clone());
        let Some(name) = name else {
            self.state = State::Handshake;
            let token = std::mem::take(self.channel.outgoing());
            return match token.is_empty() {
                true => Err(refused("a token of the handshake is cut off")),
                false => Ok(Step::Next(token)),
            };
        };
        let expected = self
            .host()
            .and_then(|host| self.expected.check(&name, &host));
        expected.inspect_err(|_| self.channel.outgoing().clear())?;
        if self.channel.is_tls13() {
            self.state = State::Greeting;
            return Ok(Step::Next(std::mem::take(self.channel.outgoing())));
        }
        self.send_flag()
    }

    /// The server's own certificate, below which there may be proxies.
    fn host(&self) -> Result<X509, Fault> {
        let peer = self.channel.peer();
        let der = peer.map(|peer| peer.certificate.as_slice());
        let found = der.and_then(|der| X509::from_der(der).ok());
        found.ok_or_else(|| refused("the server has no certificate"))
    }

    fn send_flag(&mut self) -> Result<Step, Fault> {
        let flag = if self.delegates {
            DELEGATION
        } else {
            NO_DELEGATION
        };
        self.channel.write(&[flag])?;
        let token = std::mem::take(self.channel.outgoing());
        if self.delegates {
            self.state = State::Request;
            return Ok(Step::Next(token));
        }
        self.state = State::Done;
        Ok(Step::Done(token))
    }

    /// The context, once it is established; `None` before.
    #[must_use]
    pub fn established(self) -> Option<Established> {
        let peer = self.channel.peer()?.clone();
        matches!(self.state, State::Done).then_some(Established {
            channel: self.channel,
            peer,
            delegated: None,
        })
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator").finish_non_exhaustive()
    }
}
