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
    connect: Vec<Rule>,
    listen: Vec<Rule>,
}

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
        self.connect.is_empty() && self.listen.is_empty()
    }

    /// Whether `target` is allowed by its name, or may turn out to be when its name is looked up;
    /// `None` is a peer without authentication. Of a target with an address, this is the whole
    /// question.
    #[must_use]
    pub fn may_allow(&self, who: Option<&Principal>, action: Action, target: &Target) -> bool {
        let Target::Host { host, port } = target else {
            return self.rules(who, action, target).next().is_some();
        };
        match host {
            Host::Address(address) => self.allows(who, action, target, *address),
            Host::Name(name) => self.rules(who, action, target).any(|rule| {
                rule.ports.contain(*port)
                    && (rule.host.has_name(name) || rule.host.is_of_addresses())
            }),
        }
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
        let address = address.to_canonical();
        let name = match target {
            Target::Host {
                host: Host::Name(name),
                ..
            } => Some(name.as_str()),
            _ => None,
        };
        self.rules(who, action, target)
            .any(|rule| rule.host.allows(name, address))
    }

    /// The rules for this peer and this port, or this Unix socket.
    fn rules(
        &self,
        who: Option<&Principal>,
        action: Action,
        target: &Target,
    ) -> impl Iterator<Item = &Rule> {
        let rules = match action {
            Action::Connect => &self.connect,
            Action::Listen => &self.listen,
        };
        let fits = move |rule: &&Rule| match target {
            Target::Host { port, .. } => rule.ports.contain(*port),
            Target::Unix(path) => rule.host.is_socket(path),
        };
        let known = who.filter(|who| who.method != Method::Anonymous);
        let is_scoped = who.is_some_and(|who| !who.scopes.is_empty());
        let user = known.map(|who| who.user.clone());
        let concerns = move |rule: &&Rule| match (&rule.who, &user) {
            _ if is_scoped => false,
            (Who::Public, _) | (Who::Known, Some(_)) => true,
            (Who::Users(users), Some(user)) => users.contains(user),
            (_, None) => false,
        };
        let fits: Vec<&Rule> = rules.iter().filter(fits).filter(concerns).collect();
        fits.into_iter()
    }
}
