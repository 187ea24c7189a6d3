//! A tunnel that isn't connected yet.

use std::fmt;
use std::net::IpAddr;
use std::time::Instant;

use xdfs_proto::Fault;
use xdfs_proto::tunnel::Target;
use xdfs_xio::Stream;

use super::request::HandedOver;
use super::table::Place;

/// A tunnel that isn't connected yet.
pub(super) struct Opening {
    pub(super) channel: HandedOver,
    pub(super) target: Target,
    pub(super) place: Place,
    pub(super) since: Instant,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    /// Its name is looked up.
    Resolving,
    /// The first of the addresses is tried.
    Connecting {
        stream: Box<dyn Stream>,
        address: Option<IpAddr>,
        since: Instant,
        others: Vec<IpAddr>,
    },
}

impl Opening {
    pub(super) fn refuse(self, fault: Fault) {
        // The place is free before the peer can know.
        drop(self.place);
        self.channel.refuse(fault);
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
