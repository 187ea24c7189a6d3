//! Tunnels: which targets users may have connections to, and where the server listens for them.
//!
//! The settings are [rules](RuleConfig) of two kinds, and without any of them nothing is allowed.
//! From these come the [`TunnelRules`] of a server.
//!
//! Invariants:
//! - Every address that is connected to was checked itself, after its name was looked up: whoever
//!   controls a name can't lead the server elsewhere (DNS rebinding).
//! - The server itself, link-local and other special addresses are reached by rules only that name
//!   the address, or `localhost`; neither by `*` nor by a name that happens to lead there.
//! - A proof with scopes gives no right to tunnels: its scopes are about paths.

mod config;
mod network;
mod pattern;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;

pub use xdfs_proto::tunnel::Action;
use xdfs_proto::tunnel::{Host, Target};

pub use config::{RuleConfig, TunnelsConfig};
pub use network::{Network, is_public, is_special};
use pattern::{HostPattern, Ports};

use crate::{Method, Principal};

/// The rules of a server about tunnels.
#[derive(Clone, Debug, Default)]
pub struct TunnelRules {
    connect: HostRules,
    listen: HostRules,
}

/// Rules about hosts and ports. They add up, and without any of them nothing is allowed.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostRules(Vec<Rule>);

/// A checked rule.
#[derive(Clone, Debug)]
struct Rule {
    who: Who,
    host: HostPattern,
    ports: Ports,
}

/// Whom a rule is about.
#[derive(Clone, Debug)]
enum Who {
    /// Everybody, without authentication too.
    Public,
    /// All authenticated users.
    Known,
    /// These authenticated users.
    Users(BTreeSet<String>),
}

impl TunnelRules {
    /// Whether there are no rules, and so no tunnels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connect.0.is_empty() && self.listen.0.is_empty()
    }

    /// Whether `target` is allowed by its name, or may turn out to be when its name is looked up;
    /// `None` is a peer without authentication. Of a target with an address, this is the whole
    /// question.
    #[must_use]
    pub fn may_allow(&self, who: Option<&Principal>, action: Action, target: &Target) -> bool {
        self.of(action).may_allow(who, target)
    }

    /// Whether `target` may be reached at `address`, which its name stands for.
    #[must_use]
    pub fn allows(
        &self,
        who: Option<&Principal>,
        action: Action,
        target: &Target,
        address: IpAddr,
    ) -> bool {
        self.of(action).allows(who, target, address)
    }

    fn of(&self, action: Action) -> &HostRules {
        match action {
            Action::Connect => &self.connect,
            Action::Listen => &self.listen,
        }
    }
}

impl HostRules {
    pub(crate) fn may_allow(&self, who: Option<&Principal>, target: &Target) -> bool {
        let Target::Host { host, port } = target else {
            return self.rules(who, target).next().is_some();
        };
        match host {
            Host::Address(address) => self.allows(who, target, *address),
            Host::Name(name) => self.rules(who, target).any(|rule| {
                rule.ports.contain(*port)
                    && (rule.host.has_name(name) || rule.host.is_of_addresses())
            }),
        }
    }

    pub(crate) fn allows(&self, who: Option<&Principal>, target: &Target, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let name = match target {
            Target::Host {
                host: Host::Name(name),
                ..
            } => Some(name.as_str()),
            _ => None,
        };
        self.rules(who, target)
            .any(|rule| rule.host.allows(name, address))
    }

    /// Whether a rule names `address` itself, or its network.
    pub(crate) fn lists(&self, who: Option<&Principal>, target: &Target, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.rules(who, target)
            .any(|rule| rule.host.is_of_addresses() && rule.host.allows(None, address))
    }

    /// The rules for this peer and this port, or this Unix socket.
    fn rules(&self, who: Option<&Principal>, target: &Target) -> impl Iterator<Item = &Rule> {
        let fits = move |rule: &&Rule| match target {
            Target::Host { port, .. } => rule.ports.contain(*port),
            Target::Unix(path) => rule.host.is_socket(path),
        };
        let concerns = move |rule: &&Rule| rule.concerns(who);
        let fits: Vec<&Rule> = self.0.iter().filter(fits).filter(concerns).collect();
        fits.into_iter()
    }

    /// Whether any rule is about this peer.
    pub(crate) fn concern(&self, who: &Principal) -> bool {
        self.0.iter().any(|rule| rule.concerns(Some(who)))
    }
}

impl Rule {
    /// Whether it is about this peer.
    fn concerns(&self, who: Option<&Principal>) -> bool {
        let known = who.filter(|who| who.method != Method::Anonymous);
        let is_scoped = who.is_some_and(|who| !who.scopes.is_empty());
        match (&self.who, known) {
            _ if is_scoped => false,
            (Who::Public, _) | (Who::Known, Some(_)) => true,
            (Who::Users(users), Some(who)) => users.contains(&who.user),
            (_, None) => false,
        }
    }
}
