//! xSec: identity, authentication and rights.
//!
//! - [`identity`]: the server's key and certificate.
//! - [`trust`]: a client's trust in servers.
//! - [`key`], [`password`], [`ticket`], [`token`], [`grid`]: authentication methods, with both ends
//!   of a method in one folder.
//! - [`export`]: the rights of users to files. [`tunnel`]: those to tunnels. [`account`]: the local
//!   accounts of sessions.
//! - [`group`]: the list of a group of servers.
//! - [`trusted`]: the check of files that are believed. [`guard`]: limits on unauthenticated peers.
//!   [`audit`]: the audit log.
//!
//! Nothing here opens a connection. Proofs cover the [`Binding`] of the channel that carries them,
//! so they are useless elsewhere. Time is an argument.

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod account;
pub mod audit;
pub mod export;
pub mod grid;
pub mod group;
pub mod guard;
pub mod identity;
pub mod key;
pub mod password;
pub mod third_party;
pub mod ticket;
pub mod token;
pub mod trust;
pub mod trusted;
pub mod tunnel;

/// Bytes known only to both ends of a channel, and different for each channel: the TLS exporter
/// (RFC 8446, section 7.5).
pub type Binding = [u8; 32];

/// The cause of a refusal that says nothing about its reason, so that guesses learn nothing.
pub const NOT_ACCEPTED: &str = "the proof isn't accepted";

/// The operation of faults that put a login off: whoever failed too often has to wait, whatever it
/// presents.
pub const AUTHENTICATE: &str = "authenticate";

/// How content is protected on its way. Commands and replies always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Nobody on the way reads or changes it.
    #[default]
    Private,
    /// Nobody on the way changes it: PROT S of GridFTP servers, and of no others. Since GSI is TLS,
    /// nobody reads it either, and it takes the same time as [`Self::Private`].
    Safe,
    /// It is unencrypted: whoever is on the way reads it, and changes it together with check values
    /// beside it.
    Clear,
    /// As [`Self::Clear`], over data connections that don't prove whose they are: DCAU N of GridFTP
    /// servers. Whoever gets to such a connection first can also take it over.
    Unauthenticated,
}

impl Level {
    /// Whether content is encrypted.
    #[must_use]
    pub fn encrypts(self) -> bool {
        matches!(self, Self::Private | Self::Safe)
    }
}

/// An authentication method, as a number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Method {
    /// No authentication.
    Anonymous = 1,
    /// A signature by an OpenSSH key.
    Key = 2,
    /// A password, by challenge and response.
    Password = 3,
    /// A secret that can be used once.
    Ticket = 4,
    /// A bearer token.
    Token = 5,
    /// A TLS client certificate.
    Certificate = 6,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 6] = [
        Self::Anonymous,
        Self::Key,
        Self::Password,
        Self::Ticket,
        Self::Token,
        Self::Certificate,
    ];

    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The method with this number on the wire.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.number() == number)
    }

    /// The name used in settings, logs and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Key => "key",
            Self::Password => "password",
            Self::Ticket => "ticket",
            Self::Token => "token",
            Self::Certificate => "certificate",
        }
    }
}

/// An authenticated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The user's name on this server; `anonymous` without authentication.
    pub user: String,
    /// The authentication method.
    pub method: Method,
    /// Limits of the proof itself; empty for no limit beyond the user's rights.
    pub scopes: Vec<Scope>,
}

/// A limit that comes with a token or ticket: some rights beneath one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The path, from the root of the exports, without a leading slash; empty for everything.
    pub path: Vec<u8>,
    /// The rights beneath it.
    pub rights: export::Rights,
    /// Symbolic links may be made beneath it: another server does it for a user who may.
    pub makes_links: bool,
}

impl Scope {
    /// These rights beneath `path`.
    #[must_use]
    pub fn new(path: Vec<u8>, rights: export::Rights) -> Self {
        Self {
            path,
            rights,
            makes_links: false,
        }
    }
}
