//! Tunnels: channels that become byte streams to a target beyond the acceptor, instead of joining a
//! session.
//!
//! ```text
//! program == local port -- TunnelDial ==channel== Acceptor -- Tunnels == target
//! ```
//!
//! - [`TunnelDial`]: the initiator's side. It opens channels that are tunnels, as streams.
//! - `service`: the acceptor's side, and `work`: the one thread that serves all tunnels of a
//!   server. A `request` is an `opening` until its target is connected, and one of the `links`
//!   then, or one of the `listeners`; the `table` knows what each rests on. `resolver` looks names
//!   up.
//! - `bundle`: connections over several channels, by `ptcp`.
//! - [`Relays`]: moves bytes between pairs of streams, on both sides.
//!
//! The acceptor decides nothing: [`TunnelRights`] come with the grant of a peer.

mod bundle;
mod dial;
mod links;
mod listeners;
mod opening;
mod relay;
mod request;
mod resolver;
mod service;
mod table;
mod work;

use std::time::Duration;

pub use bundle::{CHANNELS_MAX, open_bundle};
pub use dial::{TunnelDial, TunnelStream, fault_of};
pub use relay::{RelayEnd, Relays};
pub(crate) use request::HandedOver;
pub(crate) use service::Tunnels;

pub use crate::security::{TunnelEvent, TunnelOutcome, TunnelRights};

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
