//! A peer that has proved who it is, and what the proof rests on.

use std::ops::Deref;
use std::sync::Arc;

use xdfs_security::Principal;
use xdfs_security::export::Exports;
use xdfs_security::grid::distinguished_name;
use xdfs_security::key::PublicKey;
use xdfs_security::ticket::Capability;
use xdfs_security::token::Verifier;
use xdfs_sys::ids::Ids;

/// An authenticated peer: a [`Principal`] with what proved it.
#[derive(Clone, Debug)]
pub struct Login {
    pub(crate) principal: Principal,
    pub(crate) basis: Basis,
}

/// What has to be valid for a login to be accepted again.
#[derive(Clone, Debug)]
pub(crate) enum Basis {
    /// A certificate chain in DER.
    Certificate(Vec<Vec<u8>>),
    /// A key of OpenSSH.
    Key(PublicKey),
    /// The settings of issuers.
    Token(Arc<Verifier>),
    /// A capability, which its issuer's session has narrowed to one file or tree.
    Capability(Capability),
    /// The user's name alone.
    User,
}

impl Login {
    /// The fingerprint of the key; empty if it was not by a key.
    pub(crate) fn fingerprint(&self) -> String {
        match &self.basis {
            Basis::Key(key) => key.fingerprint(),
            Basis::Capability(capability) => capability.holder.to_string(),
            _ => String::new(),
        }
    }

    /// The subject of the certificate; empty if it was not by one.
    pub(crate) fn subject(&self) -> String {
        let Basis::Certificate(chain) = &self.basis else {
            return String::new();
        };
        let own = chain.first().map(|der| distinguished_name(der));
        own.and_then(Result::ok).unwrap_or_default()
    }
}

impl Deref for Login {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.principal
    }
}

/// What a session was admitted with, to be compared with later settings by
/// [`Access::still_admits`](crate::Access::still_admits).
#[derive(Debug)]
pub struct Standing {
    pub(crate) login: Login,
    pub(crate) exports: Exports,
    pub(crate) ids: Option<Ids>,
}

impl Standing {
    /// The user of the session.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.login.principal.user
    }
}
