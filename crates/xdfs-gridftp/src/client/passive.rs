//! Where a server listens for data connections.

use std::net::SocketAddr;

use xdfs_proto::Fault;

use super::fault::violation;
use super::link::Link;
use super::told::{extended_port, passive_address};

impl Link {
    /// Asks the server to listen. Returns its address, which is that of the control connection.
    ///
    /// # Errors
    /// It doesn't listen, or names another address.
    pub(super) fn passive(&mut self) -> Result<SocketAddr, Fault> {
        let operation = "open a passive data connection";
        // A data node may listen, at an address of its own.
        if self.striping.is_none() {
            let reply = self.exchange("EPSV", b"")?;
            if reply.code == 229
                && let Some(port) = extended_port(&reply)
            {
                return Ok(SocketAddr::new(self.peer, port));
            }
        }
        let reply = self.must(operation, "PASV", b"")?;
        let address = passive_address(&reply)
            .ok_or_else(|| violation(operation, "the reply to PASV has no address"))?;
        if address.ip().is_unspecified() && self.striping.is_none() {
            // It doesn't know its own address, which is that of this connection.
            return Ok(SocketAddr::new(self.peer, address.port()));
        }
        if !self.takes(address.ip()) {
            let cause = format!(
                "the server names {} for its data, and is itself at {}",
                address.ip(),
                self.peer
            );
            return Err(violation(operation, cause)
                .hint("the server has to offer EPSV, or tell its own address"));
        }
        Ok(address)
    }
}
