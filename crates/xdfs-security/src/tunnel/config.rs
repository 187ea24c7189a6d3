//! The settings of tunnels, and their parsing.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use serde::Deserialize;
use xdfs_proto::{Code, Fault};

use super::pattern::{HostPattern, Ports};
use super::{HostRules, Rule, TunnelRules, Who};

/// The settings of a server about tunnels: the table `[tunnel]` of `xdfs.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TunnelsConfig {
    /// Targets that users may have connections to.
    pub connect: Vec<RuleConfig>,
    /// Addresses at which the server listens for users.
    pub listen: Vec<RuleConfig>,
    /// Servers from which users may have files fetched.
    pub fetch_from: Vec<RuleConfig>,
    /// Servers to which users may have files sent.
    pub send_to: Vec<RuleConfig>,
    /// Seconds in which a tunnel moves no byte in either direction before it is ended; `None` for
    /// two hours.
    pub idle_seconds: Option<NonZeroU32>,
}

/// Targets for a user, a group, or everybody. Rules add up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// The name of a user; `*` for all authenticated users.
    #[serde(default)]
    pub user: Option<String>,
    /// The name of a group, instead of a user.
    #[serde(default)]
    pub group: Option<String>,
    /// For everybody, instead of a user: anonymous users too, and all peers of a server without
    /// authentication.
    #[serde(default)]
    pub public: bool,
    /// A name, `*.NAME` for those beneath it, an address, a network such as `10.0.0.0/8`, `*` for
    /// every host, or `unix:PATH`.
    pub host: String,
    /// A port, a range such as `8000-8100`, several with commas, or `*`. Not for Unix sockets.
    #[serde(default)]
    pub ports: Option<String>,
}

impl TunnelsConfig {
    /// Checks the rules. `groups` are those of the exports.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] with the number of the wrong rule.
    pub fn check(&self, groups: &BTreeMap<String, Vec<String>>) -> Result<TunnelRules, Fault> {
        let operation = "read the rules of tunnels";
        let rules = |rules, setting| HostRules::check(rules, groups, (operation, setting));
        Ok(TunnelRules {
            connect: rules(&self.connect, "tunnel.connect")?,
            listen: rules(&self.listen, "tunnel.listen")?,
        })
    }
}

impl HostRules {
    /// Checks the rules of a setting. `groups` are those of the exports.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] with the number of the wrong rule.
    pub(crate) fn check(
        rules: &[RuleConfig],
        groups: &BTreeMap<String, Vec<String>>,
        (operation, setting): (&'static str, &str),
    ) -> Result<Self, Fault> {
        let checked = rules.iter().enumerate().map(|(number, rule)| {
            rule.check(groups).map_err(|cause| {
                let cause = format!("rule {} of {setting}: {cause}", number + 1);
                Fault::new(Code::InvalidArgument, operation, cause)
            })
        });
        Ok(Self(checked.collect::<Result<Vec<Rule>, Fault>>()?))
    }
}

impl RuleConfig {
    fn check(&self, groups: &BTreeMap<String, Vec<String>>) -> Result<Rule, String> {
        let who = match (self.user.as_deref(), self.group.as_deref(), self.public) {
            (Some(""), None, false) => return Err("its user has no name".into()),
            (Some("*"), None, false) => Who::Known,
            (Some(user), None, false) => Who::Users(BTreeSet::from([user.to_owned()])),
            (None, Some(group), false) => match groups.get(group) {
                Some(users) => Who::Users(users.iter().cloned().collect()),
                None => return Err(format!("there is no group '{}'", group.escape_default())),
            },
            (None, None, true) => Who::Public,
            _ => return Err("it is for either a user, a group, or public".into()),
        };
        let host = HostPattern::parse(&self.host)
            .map_err(|cause| format!("host '{}': {cause}", self.host.escape_default()))?;
        let is_socket = matches!(host, HostPattern::Socket(_));
        let ports = match (&self.ports, is_socket) {
            (Some(_), true) => return Err("a Unix socket has no ports".into()),
            (None, false) => return Err("it has no ports".into()),
            (Some(ports), false) => ports,
            (None, true) => "*",
        };
        let ports = Ports::parse(ports)
            .map_err(|cause| format!("ports '{}': {cause}", ports.escape_default()))?;
        Ok(Rule { who, host, ports })
    }
}
