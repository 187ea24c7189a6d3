//! Somebody at a door, and what they bring to prove who they are.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use xdfs_security::{Binding, Method};

/// Somebody at a door who isn't known yet.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) door: &'static str,
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

impl Peer {
    /// A peer at the front door `door`, whose name is written in the audit log; empty for the door
    /// of the server's own protocol, which isn't named there. `name` is what the transport calls
    /// the peer: `address:port`, or for one without an address, which is on this machine, anything
    /// else.
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
}

/// What proves in one step who somebody is. A door brings what its protocol has; challenges for
/// passwords take [`Access::challenge`](crate::Access::challenge).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Evidence<'a> {
    /// Nothing.
    Anonymous,
    /// The certificate chain of the peer's end of TLS as DER, its own certificate first. The
    /// handshake has shown that the peer has the key, and that an authority vouches for it.
    Certificate(&'a [Vec<u8>]),
    /// A signature by a key of OpenSSH.
    Key {
        /// The body of [`xdfs_security::key::prove`].
        proof: &'a [u8],
        /// The channel that it came on.
        binding: &'a Binding,
    },
    /// A password as such: for protocols that know no better, on protected channels.
    Password(&'a str),
    /// A ticket.
    Ticket {
        /// The body of [`xdfs_security::ticket::prove`].
        proof: &'a [u8],
        /// The channel that it came on.
        binding: &'a Binding,
    },
    /// A bearer token.
    Token(&'a [u8]),
}

impl Evidence<'_> {
    /// The method that it belongs to.
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
        // Secrets stay out of logs.
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
