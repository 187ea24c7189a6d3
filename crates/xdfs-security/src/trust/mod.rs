//! Which servers a client believes.
//!
//! In this order, and the first that applies decides: keys that the user pinned; keys in the file
//! of [known hosts](KnownHosts); certificates of an authority; the first use of a host, which is
//! accepted and remembered or refused, as the [policy](TrustPolicy) says. When the user gave
//! authorities of their own, first use isn't reached.
//!
//! Invariants: a server always proves that it has the key of its certificate, however that came to
//! be trusted. TLS 1.3 alone. A key of a first use is recorded only after that proof, and all
//! channels of one configuration have to show the same one. Nothing here opens a connection.

mod fault;
mod host;
mod known_hosts;
mod outcome;
mod policy;
mod verifier;

#[cfg(test)]
mod known_hosts_tests;
#[cfg(test)]
mod tests;

pub use fault::{client_fault, server_fault};
pub use host::{host_port, server_name};
pub use known_hosts::{KnownHost, KnownHosts};
pub use outcome::{TrustOutcome, TrustReason};
pub use policy::{ClientCertificate, TrustPolicy};
pub use verifier::NewHosts;
