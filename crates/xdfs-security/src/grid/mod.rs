//! Method 6: the certificate of the client's end of TLS, and a grid-map file that says who it is.
//!
//! TLS has done the proof when this is asked: the certificates were verified against the
//! authorities of the settings, with their time, and the client has signed with its key. Here the
//! subject of the first certificate becomes a text, and the text a user.
//!
//! Proxy certificates (RFC 3820) aren't accepted. rustls refuses their critical extension, and a
//! client certificate as an issuer; [`authenticate`] refuses the extension once more, in clear
//! words. A client that has a proxy uses the certificate it was made from, or a token.

mod map;
mod name;
#[cfg(test)]
mod tests;

use rustls::pki_types::CertificateDer;
use xdfs_proto::{Code, Fault};

use crate::{Method, Principal};
pub use map::{GridMap, GridMapFile, MAX_GRID_MAP_BYTES};
pub use name::distinguished_name;

/// Who a client with the certificates `chain`, its own first, is. TLS must have verified them.
///
/// A certificate may stand for several users: `wanted_user` chooses among them, and without it the
/// first counts.
///
/// # Errors
/// [`Code::AuthenticationFailed`] without a certificate, with one that can't be used, and for a
/// subject that isn't mapped, or not to the wanted user.
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
        // The subject is what the client itself has shown.
        let whom = if wanted_user.is_some() {
            "the user that was asked for"
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

/// A refusal in words that may go to the peer.
fn refused(cause: impl Into<String>) -> Fault {
    Fault::new(Code::AuthenticationFailed, "read the certificate", cause)
}
