//! Users of tunnels, and what the audit log says of them.

use std::time::Duration;

use xdfs_proto::Code;
use xdfs_proto::tunnel::Action;
use xdfs_security::Principal;
use xdfs_security::audit::{Event, Kind};

use crate::audited::Actor;

/// An admitted user who may ask for tunnels.
#[derive(Clone, Debug)]
pub struct TunnelUser {
    pub(crate) principal: Principal,
    actor: Actor,
    /// Sessions of the user run with the ids of a local account.
    pub(crate) has_account: bool,
}

impl TunnelUser {
    pub(crate) fn new(principal: Principal, actor: Actor, has_account: bool) -> Self {
        Self {
            principal,
            actor,
            has_account,
        }
    }

    /// The transport's name of the peer.
    pub(crate) fn peer(&self) -> &str {
        &self.actor.from
    }

    /// Records that a tunnel was opened, or why it was refused.
    pub fn asked(&self, action: Action, target: &str, result: Option<Code>) {
        let kind = match result {
            None => Kind::Tunnel,
            Some(_) => Kind::Refuse,
        };
        self.actor.audit.record(&Event {
            operation: word(action),
            path: target.as_bytes(),
            result,
            ..self.actor.event(kind)
        });
    }

    /// Records the end of a tunnel, with the bytes that were sent to the user and to the target.
    pub fn ended(
        &self,
        action: Action,
        target: &str,
        [to_user, to_target]: [u64; 2],
        elapsed: Duration,
        result: Option<Code>,
    ) {
        self.actor.audit.record(&Event {
            operation: word(action),
            path: target.as_bytes(),
            bytes: Some(to_user),
            written: Some(to_target),
            elapsed: Some(elapsed),
            result,
            ..self.actor.event(Kind::TunnelEnd)
        });
    }
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Connect => "connect",
        Action::Listen => "listen",
    }
}
