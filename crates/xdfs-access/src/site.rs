//! The settings of a server that its doors depend on.

use std::net::IpAddr;

/// Settings of a server that concern its doors.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Users prove who they are, and the server has a certificate.
    pub has_users: bool,
    /// Other machines are served even if there are no users.
    pub is_insecure: bool,
    /// Sessions act as the local accounts of their users.
    pub has_accounts: bool,
    /// Client certificates are verified by the server itself, with a grid map of its own.
    pub has_client_certificates: bool,
    /// The largest number of sessions at once, at each door.
    pub sessions_max: usize,
}

impl Site {
    /// Whether a door may listen at this address: only at loopback ones if peers could do
    /// everything there without a proof, unless that is accepted.
    #[must_use]
    pub fn may_listen_at(&self, address: IpAddr) -> bool {
        self.has_users || self.is_insecure || address.is_loopback()
    }
}
