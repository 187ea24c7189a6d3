//! xSec: who is who, how it is proved, and what they may do.
//!
//! - [`identity`]: the server's key and certificate.
//! - [`trust`]: which servers a client believes.
//! - [`key`], [`password`], [`ticket`], [`token`], [`grid`]: how a client proves who it is, a
//!   folder
//!   for each method, both ends in it.
//! - [`export`]: what a user may see and change. [`account`]: whose files these are then.
//! - [`guard`]: what a peer that isn't known yet may cost. [`audit`]: what happened.
//!
//! Nothing here opens a connection. Proofs cover the [`Binding`] of the channel that carries them,
//! so that they are worth nothing elsewhere. Time comes in as an argument.

#![forbid(unsafe_code)]

pub mod account;
pub mod audit;
pub mod export;
pub mod grid;
pub mod guard;
pub mod identity;
pub mod key;
pub mod password;
pub mod ticket;
pub mod token;
pub mod trust;

/// Bytes that both ends of a channel have and nobody else, and that no other channel has: the TLS
/// exporter (RFC 8446, section 7.5).
pub type Binding = [u8; 32];

/// How a client proves who it is, as a number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Method {
    /// Not at all.
    Anonymous = 1,
    /// A signature by an OpenSSH key.
    Key = 2,
    /// A password, by a challenge.
    Password = 3,
    /// A secret that is good once.
    Ticket = 4,
    /// A bearer token.
    Token = 5,
    /// The certificate of the client's end of TLS.
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

    /// The method of a number on the wire.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.number() == number)
    }

    /// The word in settings, logs and messages.
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

/// Who a client is, once that is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name of the user here; `anonymous` for one who proved nothing.
    pub user: String,
    /// How it was proved.
    pub method: Method,
    /// What the proof itself is limited to; empty for no limit beyond the user's rights.
    pub scopes: Vec<Scope>,
}

/// A limit that comes with a token or a ticket: some rights beneath one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The path, from the root of what is served, without a leading slash; empty for all.
    pub path: Vec<u8>,
    /// The rights there.
    pub rights: export::Rights,
}
