//! The Grid Security Infrastructure (GSI) as a library: who a peer with a certificate or a proxy
//! is, and a security context with it, without sockets.
//!
//! ```text
//!  files --> Credential, Trust
//!  tokens <-> Acceptor, Initiator --> Established, Delegated --> DataContext <-> bytes
//!                       |
//!                    verify: proxies, then Trust: authorities, signing policies, CRLs
//! ```
//!
//! - [`Credential`]: a certificate, its key and its chain; from files, or made by [`issue`], which
//!   makes and signs proxies (RFC 3820, and the older form of Globus).
//! - [`Trust`]: a directory of authorities in the form of Globus and IGTF: `HASH.0`,
//!   `HASH.signing_policy` and `HASH.r0`. It is read anew for each chain, but for lists of revoked
//!   certificates, which are read when they change.
//! - [`verify`](chain::verify): the rules for chains with proxies. OpenSSL verifies the part of RFC
//!   5280, from the user's certificate to the authority; what is below it, it would take with
//!   rules of TLS clients and servers that don't fit, and so that part is here.
//! - [`Acceptor`] and [`Initiator`]: the tokens of `ADAT` (RFC 2228), TLS 1.2 and 1.3, with
//!   delegation.
//! - [`DataContext`]: what a data connection sends and receives (DCAU).
//!
//! OpenSSL does the TLS: Globus sends names in SNI that aren't host names, which rustls refuses.
//! Delegated keys stay in memory, and are wiped when they are dropped.

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod authority_file;
pub mod chain;
mod channel;
mod context;
mod credential;
mod data;
mod initiator;
pub mod issue;
mod policy;
pub mod proxy;
mod records;
mod revocation;
mod signature;
#[cfg(test)]
mod tests;
mod trust;

use openssl::error::ErrorStack;
use xdfs_proto::{Code, Fault};

pub use chain::Peer;
pub use context::{Acceptor, Delegated, Established, Step};
pub use credential::{Credential, Description, remove_proxy};
pub use data::{DataContext, Role};
pub use initiator::{Expected, Initiator};
pub use trust::Trust;

/// A refusal of what the peer has shown.
fn refused(cause: impl Into<String>) -> Fault {
    Fault::new(Code::AuthenticationFailed, "verify the peer", cause)
}

/// A failure of OpenSSL that the peer isn't to blame for.
fn failure(operation: &'static str) -> impl Fn(ErrorStack) -> Fault {
    move |error| Fault::new(Code::Internal, operation, text_of(&error))
}

/// The reasons, without places in the sources of OpenSSL.
fn text_of(error: &ErrorStack) -> String {
    let reasons = error.errors().iter().filter_map(|error| error.reason());
    let reasons: Vec<_> = reasons.collect();
    match reasons.is_empty() {
        true => "OpenSSL tells no reason".to_owned(),
        false => reasons.join(": "),
    }
}
