//! An unauthenticated peer at a door, and its evidence.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use xdfs_security::guard::Network;
use xdfs_security::{Binding, Method};

/// An unauthenticated peer at a door.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) door: &'static str,
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

impl Peer {
    /// A peer at the front door `door`, which is named in the audit log; empty for the door of the
    /// server's own protocol, which isn't. `name` is the transport's name of the peer:
    /// `address:port`, or anything else for a peer without an address, on this machine.
    pub fn new(door: &'static str, name: impl Into<String>) -> Self {
        let name = name.into();
        let address = name
            .parse::<SocketAddr>()
            .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| {
                address.ip().to_canonical()
            });
        Self {
            door,
            name,
            address,
        }
    }

    pub(crate) fn network(&self) -> Network {
        Network::of_peer(&self.name)
    }
}

/// Evidence that proves an identity in one step. A door passes on what its protocol provides;
/// password challenges use [`Access::challenge`](crate::Access::challenge).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Evidence<'a> {
    /// No evidence.
    Anonymous,
    /// The peer's certificate chain from TLS in DER, its own certificate first. The handshake has
    /// proved that the peer has the key, and that an authority vouches for it.
    Certificate(&'a [Vec<u8>]),
    /// A signature by an OpenSSH key.
    Key {
        /// The body made by [`xdfs_security::key::prove`].
        proof: &'a [u8],
        /// The binding of its channel.
        binding: &'a Binding,
    },
    /// A plaintext password: for protocols without challenges, on protected channels.
    Password(&'a str),
    /// A ticket.
    Ticket {
        /// The body made by [`xdfs_security::ticket::prove`].
        proof: &'a [u8],
        /// The binding of its channel.
        binding: &'a Binding,
    },
    /// A bearer token.
    Token(&'a [u8]),
}

impl Evidence<'_> {
    /// The corresponding method.
    #[must_use]
    pub fn method(&self) -> Method {
        match self {
            Self::Anonymous => Method::Anonymous,
            Self::Certificate(_) => Method::Certificate,
            Self::Key { .. } => Method::Key,
            Self::Password(_) => Method::Password,
            Self::Ticket { .. } => Method::Ticket,
            Self::Token(_) => Method::Token,
        }
    }
}

impl fmt::Debug for Evidence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets are not logged.
        f.write_str(self.method().as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_counts_by_its_address() {
        let machine = "127.0.0.1";
        for (name, address) in [
            ("192.0.2.1:40000", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:40000", "192.0.2.1"),
            ("[2001:db8::1]:40000", "2001:db8::1"),
            ("/run/xdfs.sock#3", machine),
            ("192.0.2.1", machine),
            ("", machine),
        ] {
            let peer = Peer::new("door", name);
            assert_eq!(peer.address, address.parse::<IpAddr>().unwrap(), "{name}");
            assert_eq!(peer.name, name);
        }
    }

    #[test]
    fn evidence_keeps_its_secret() {
        let binding = [0; 32];
        let proof: &[u8] = b"secret";
        for (evidence, shown) in [
            (Evidence::Password("secret"), "password"),
            (Evidence::Token(proof), "token"),
            (
                Evidence::Ticket {
                    proof,
                    binding: &binding,
                },
                "ticket",
            ),
        ] {
            assert_eq!(format!("{evidence:?}"), shown);
        }
    }
}
