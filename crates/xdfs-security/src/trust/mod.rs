//! A client's trust in servers.
//!
//! The first of these that applies decides: keys pinned by the user; keys in the [known
//! hosts](KnownHosts) file; certificates of an authority; the first use of a host, which is
//! accepted and remembered or refused according to the [policy](TrustPolicy). With authorities
//! given by the user, first use isn't reached.
//!
//! Invariants: a server always proves that it has the key of its certificate, however that is
//! trusted. TLS 1.3 only, and 1.2 for servers of FTP. A key of a first use is recorded only after
//! that proof, and all channels of one configuration must present the same one. Nothing here opens
//! a connection.

mod fault;
mod host;
mod known_hosts;
mod mutual;
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
pub use mutual::{mutual_client, mutual_server};
pub use outcome::{TrustOutcome, TrustReason};
pub use policy::{ClientCertificate, TrustPolicy};
pub use verifier::NewHosts;
