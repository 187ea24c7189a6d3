//! Method 6: a TLS client certificate, and a grid-map file for its user.
//!
//! TLS has completed the proof before: the certificates were verified against the configured
//! authorities, including their validity, and the client has signed with its key. Here the subject
//! of the first certificate becomes a text, and the text a user.
//!
//! Proxy certificates (RFC 3820) aren't accepted. rustls refuses their critical extension, and
//! client certificates as issuers; [`authenticate`] refuses the extension again, with a clear
//! message. A client with a proxy certificate uses the certificate from which it was derived, or a
//! token.

mod map;
mod name;
#[cfg(test)]
mod tests;

use rustls::pki_types::CertificateDer;
use xdfs_proto::{Code, Fault};

use crate::{Method, Principal};
pub use map::{GridMap, GridMapFile, MAX_GRID_MAP_BYTES};
pub use name::distinguished_name;

/// The principal of a client with the certificates `chain`, its own first. TLS must have verified
/// them.
///
/// A certificate may map to several users: `wanted_user` selects among them, and the default is the
/// first.
///
/// # Errors
/// [`Code::AuthenticationFailed`] without a certificate, with an unusable one, and for a subject
/// without a mapping, or without one to the wanted user.
pub fn authenticate(
    chain: &[CertificateDer<'_>],
    map: &GridMap,
    wanted_user: Option<&str>,
) -> Result<Principal, Fault> {
    let first = chain.first().ok_or_else(|| {
        refused("the client has shown no certificate")
            .hint("set the certificate and key of the client")
    })?;
    let subject = name::subject(first, name::Proxies::Refused)?;
    let Some(user) = map.user_for(&subject, wanted_user) else {
        // The subject comes from the client itself.
        let whom = if wanted_user.is_some() {
            "the requested user"
        } else {
            "a user"
        };
        return Err(refused(format!("'{subject}' isn't mapped to {whom}"))
            .hint("ask the administrator for a line in the grid map"));
    };
    Ok(Principal {
        user: user.to_owned(),
        method: Method::Certificate,
        scopes: Vec::new(),
    })
}

/// A refusal that may be shown to the peer.
fn refused(cause: impl Into<String>) -> Fault {
    Fault::new(Code::AuthenticationFailed, "read the certificate", cause)
}
