//! Channels that do not belong to a session yet, and what each network has of their places.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use xdfs_proto::frame::{Exception, Frame, Scope};
use xdfs_proto::{Fault, handshake};
use xdfs_xio::Stream;

use crate::security::{PeerGuard, Proof, SessionGrant, host_of};

/// The interval between two messages that all places are taken.
const TELL_INTERVAL: Duration = Duration::from_secs(60);

/// A channel that does not belong to a session yet.
pub(super) struct PendingChannel {
    pub(super) stream: Box<dyn Stream>,
    pub(super) machine: handshake::Acceptor,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) since: Instant,
    pub(super) answered: Option<Instant>,
    /// Bytes counted against [`HELD_MAX`].
    pub(super) held: usize,
    /// Of its peer: [`network_of`].
    pub(super) network: String,
    /// Permit for a connection that is being opened.
    pub(super) _guard: Option<PeerGuard>,
    pub(super) proof: Option<Box<dyn Proof>>,
    pub(super) grant: Option<SessionGrant>,
}

impl PendingChannel {
    /// Sends pending output, as far as the stream accepts it.
    pub(super) fn flush(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write_vectored(&[IoSlice::new(&self.output)]) {
                Ok(n) => {
                    self.output.drain(..n);
                }
                // The rest is sent with later output; a closed connection shows up on reading.
                Err(_) => return,
            }
        }
        // A driver may hold what was written, and a failure shows up on reading.
        let _ = self.stream.flush();
    }

    pub(super) fn refuse(&mut self, fault: Fault) {
        Frame::Exception(Exception {
            scope: Scope::Channel,
            fault,
        })
        .encode(&mut self.output);
    }

    pub(super) fn answer_refusal(&mut self, fault: Fault) {
        xdfs_proto::opening::Answer::Refused(fault).encode(&mut self.output);
    }

    pub(super) fn close(mut self) {
        self.flush();
        // Pending output, with the reason, is sent by the socket before the end of the stream.
        let _ = self.stream.close();
    }
}

/// The pending channels of each network.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    by_network: HashMap<String, usize>,
    /// Refusals since the last message.
    refusals: u64,
    told_at: Option<Instant>,
}

impl Crowd {
    pub(super) fn add(&mut self, network: &str) {
        *self.by_network.entry(network.to_owned()).or_default() += 1;
    }

    pub(super) fn remove(&mut self, network: &str) {
        if let Some(count) = self.by_network.get_mut(network) {
            *count -= 1;
            if *count == 0 {
                self.by_network.remove(network);
            }
        }
    }

    /// No channel is left.
    pub(super) fn clear(&mut self) {
        self.by_network.clear();
    }

    /// The network that has to give way to another channel of `network`, when all places are taken:
    /// the one with most channels, if it has more than `network` will have.
    pub(super) fn to_give_way(&self, network: &str) -> Option<String> {
        let own = self.by_network.get(network).copied().unwrap_or_default();
        let (largest, count) = self.by_network.iter().max_by_key(|(_, count)| **count)?;
        (*count > own + 1).then(|| largest.clone())
    }

    /// Counts a channel of `network` that was refused, and says so in the log, at most once a
    /// minute.
    pub(super) fn tell_refusal(&mut self, network: &str, now: Instant) {
        self.refusals += 1;
        let is_due = |at: Instant| now.saturating_duration_since(at) >= TELL_INTERVAL;
        if self.told_at.is_none_or(is_due) {
            self.told_at = Some(now);
            let refusals = std::mem::take(&mut self.refusals);
            tracing::warn!(
                network,
                refusals,
                "too many channels are being opened at once, so those of whoever opens most are \
                 refused"
            );
        }
    }
}

/// What one peer can have addresses of: an IPv4 address, or the upper 64 bits of an IPv6 address;
/// for other transports the peer without what differs between its channels.
pub(super) fn network_of(peer: &str) -> String {
    let Ok(address) = peer.parse::<SocketAddr>() else {
        return host_of(peer);
    };
    match address.ip().to_canonical() {
        std::net::IpAddr::V4(address) => address.to_string(),
        std::net::IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_peer_are_one_network() {
        for (peer, network) in [
            ("192.0.2.7:4000", "192.0.2.7"),
            ("[::ffff:192.0.2.7]:4000", "192.0.2.7"),
            ("[2001:db8:0:1:2::3]:9", "2001:db8:0:1::/64"),
            ("[2001:db8:0:1:ff::]:10", "2001:db8:0:1::/64"),
            ("memory#12", "memory"),
        ] {
            assert_eq!(network_of(peer), network);
        }
    }

    #[test]
    fn whoever_has_most_gives_way() {
        let mut crowd = Crowd::default();
        for (network, count) in [("a", 5), ("b", 3), ("c", 1)] {
            (0..count).for_each(|_| crowd.add(network));
        }
        assert_eq!(crowd.to_give_way("new").as_deref(), Some("a"));
        assert_eq!(crowd.to_give_way("b").as_deref(), Some("a"));
        assert_eq!(crowd.to_give_way("a"), None);
        (0..2).for_each(|_| crowd.remove("a"));
        // It would only take turns with the other.
        assert_eq!(crowd.to_give_way("b"), None);
        assert!(crowd.to_give_way("c").is_some());
    }
}
