//! Tunnels: channels that become byte streams to a target beyond the acceptor, instead of joining a
//! session.
//!
//! ```text
//! program == local port -- TunnelDial ==channel== Acceptor -- Tunnels == target
//! ```
//!
//! - [`TunnelDial`]: the initiator's side. It opens channels that are tunnels, as streams.
//! - `service`: the acceptor's side. One thread serves all tunnels of a server; `resolver` has the
//!   threads that look names up.
//! - `work`: that thread; `link`: what it has once a target is connected.
//! - `passive`: what the service listens for, for its peers.
//! - `bundle`: connections over several channels, by `ptcp`.
//! - [`Relays`]: moves bytes between pairs of streams, on both sides.
//!
//! The acceptor decides nothing: [`TunnelRights`] come with the grant of a peer.

mod bundle;
mod dial;
mod link;
mod passive;
mod relay;
mod resolver;
mod service;
mod work;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use xdfs_proto::tunnel::{Action, Target};
use xdfs_proto::{Code, Fault};

pub use bundle::{CHANNELS_MAX, open_bundle};
pub use dial::{TunnelDial, TunnelStream, fault_of};
pub use relay::{RelayEnd, Relays};
pub(crate) use service::{HandedOver, Tunnels};

use crate::security::PeerGuard;

/// What a peer may do with tunnels, by the settings as they are at each question.
pub trait TunnelRights: Send + Sync + fmt::Debug {
    /// Whether `target` is allowed by its name, or may turn out to be when that is looked up.
    fn may_allow(&self, action: Action, target: &Target) -> bool;

    /// Whether `target` may be reached at `address`.
    fn allows(&self, action: Action, target: &Target, address: IpAddr) -> bool;

    /// Takes a place for one more connection. The guard is held as long as the connection.
    ///
    /// # Errors
    /// The peer has too many.
    fn connection(&self) -> Result<PeerGuard, Fault>;

    /// Records what became of a request.
    fn record(&self, event: &TunnelEvent<'_>);
}

/// What became of a request for a tunnel, for the audit log.
#[derive(Clone, Copy, Debug)]
pub struct TunnelEvent<'a> {
    /// What was wanted.
    pub action: Action,
    /// The target as the peer named it.
    pub target: &'a str,
    /// What happened.
    pub outcome: TunnelOutcome,
}

/// An event in the life of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelOutcome {
    /// It was connected, or listens.
    Opened,
    /// It wasn't.
    Refused(Code),
    /// It has ended.
    Closed {
        /// Bytes from the target to the peer.
        to_peer: u64,
        /// Bytes from the peer to the target.
        from_peer: u64,
        /// How long it was open.
        elapsed: Duration,
        /// Why it ended early; `None` if both sides had ended their streams.
        result: Option<Code>,
    },
}

/// The settings of an acceptor that has tunnels.
#[derive(Clone, Copy, Debug)]
pub struct TunnelLimits {
    /// Maximum number of tunnels at once, over all peers.
    pub connections_max: usize,
    /// Maximum time in which a tunnel moves no byte in either direction.
    pub idle_timeout: Duration,
}

impl Default for TunnelLimits {
    /// 4096 tunnels, and two hours: the time after which systems first ask whether an idle TCP
    /// connection has still two ends (RFC 1122, section 4.2.3.6).
    fn default() -> Self {
        Self {
            connections_max: 4096,
            idle_timeout: Duration::from_secs(2 * 3600),
        }
    }
}

/// The operation named in faults of tunnels.
const OPEN_TUNNEL: &str = "open the tunnel";

/// The answer to every request that the rules don't allow, whatever the reason.
fn forbidden(action: Action, target: &str) -> Fault {
    let (what, by) = match action {
        Action::Connect => ("target", "targets by [[tunnel.connect]]"),
        Action::Listen => ("port", "ports by [[tunnel.listen]]"),
    };
    let cause = format!("the server doesn't allow this user that {what}");
    Fault::new(Code::PermissionDenied, OPEN_TUNNEL, cause)
        .path(target)
        .hint(format!(
            "its administrator allows {by} in its configuration"
        ))
}
