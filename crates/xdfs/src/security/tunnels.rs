//! The rights to tunnels of the peers of a server: by its rules, or those of a personal server.

use std::net::IpAddr;
use std::sync::Arc;

use xdfs_access::{CurrentAccess, TunnelUser};
use xdfs_engine::PeerGuard;
use xdfs_engine::tunnel::{TunnelEvent, TunnelOutcome, TunnelRights};
use xdfs_proto::Fault;
use xdfs_proto::tunnel::{Action, Target};
use xdfs_security::guard::{Guard, Network};
use xdfs_security::tunnel::TunnelRules;

/// The rights of a user who has logged in.
#[derive(Debug)]
pub(super) struct TunnelsByRules {
    user: TunnelUser,
    current: Arc<dyn CurrentAccess>,
}

impl TunnelsByRules {
    pub(super) fn new(user: TunnelUser, current: Arc<dyn CurrentAccess>) -> Self {
        Self { user, current }
    }
}

impl TunnelRights for TunnelsByRules {
    fn may_allow(&self, action: Action, target: &Target) -> bool {
        let access = self.current.access();
        access.may_tunnel(&self.user, action, target, None)
    }

    fn allows(&self, action: Action, target: &Target, address: IpAddr) -> bool {
        let access = self.current.access();
        access.may_tunnel(&self.user, action, target, Some(address))
    }

    fn connection(&self) -> Result<PeerGuard, Fault> {
        let permit = self.current.access().connection(&self.user)?;
        Ok(PeerGuard(Box::new(permit)))
    }

    fn record(&self, event: &TunnelEvent<'_>) {
        let TunnelEvent { action, target, .. } = *event;
        match event.outcome {
            TunnelOutcome::Opened => self.user.asked(action, target, None),
            TunnelOutcome::Refused(code) => self.user.asked(action, target, Some(code)),
            TunnelOutcome::Closed {
                to_peer,
                from_peer,
                elapsed,
                result,
            } => {
                let bytes = [to_peer, from_peer];
                self.user.ended(action, target, bytes, elapsed, result);
            }
        }
    }
}

/// The rights of all peers of a server without users.
#[derive(Debug)]
pub(crate) struct TunnelsWithoutUsers {
    /// `None` allows everything.
    rules: Option<TunnelRules>,
    /// Counts connections.
    guard: Guard,
    user: String,
}

impl TunnelsWithoutUsers {
    /// What the `rules` allow everybody.
    pub(crate) fn public(rules: TunnelRules, guard: Guard) -> Self {
        Self {
            rules: Some(rules),
            guard,
            user: String::new(),
        }
    }

    /// Everything, for the user of a personal server.
    pub(super) fn personal(user: String, guard: Guard) -> Self {
        Self {
            rules: None,
            guard,
            user,
        }
    }
}

impl TunnelRights for TunnelsWithoutUsers {
    fn may_allow(&self, action: Action, target: &Target) -> bool {
        let rules = self.rules.as_ref();
        rules.is_none_or(|rules| rules.may_allow(None, action, target))
    }

    fn allows(&self, action: Action, target: &Target, address: IpAddr) -> bool {
        let rules = self.rules.as_ref();
        rules.is_none_or(|rules| rules.allows(None, action, target, address))
    }

    fn connection(&self) -> Result<PeerGuard, Fault> {
        let slot = self.guard.connection(&self.user, Network::Here)?;
        Ok(PeerGuard(Box::new(slot)))
    }

    /// There is no audit log without users: it is in the log of the program.
    fn record(&self, event: &TunnelEvent<'_>) {
        let TunnelEvent {
            target, outcome, ..
        } = event;
        tracing::debug!(target, ?outcome, "tunnel");
    }
}
