//! Servers that a server may connect to for its users, to move files from and to them.
//!
//! Without any rule a server connects nowhere. Every address that is connected to was checked
//! itself, after its name was looked up; an address that isn't public is reached only by a rule
//! that names it or its network. A proof with scopes gives no right.

use std::collections::BTreeMap;
use std::net::IpAddr;

use xdfs_proto::Fault;
use xdfs_proto::tunnel::{Host, Target};

use crate::Principal;
use crate::tunnel::{HostRules, TunnelsConfig, is_public};

/// The rules of a server, from the settings of tunnels.
#[derive(Clone, Debug, Default)]
pub struct ThirdPartyRules {
    fetch_from: HostRules,
    send_to: HostRules,
}

impl TunnelsConfig {
    /// Checks the rules about other servers. `groups` are those of the exports.
    ///
    /// # Errors
    /// [`InvalidArgument`](xdfs_proto::Code::InvalidArgument) with the number of the wrong rule.
    pub fn check_third_party(
        &self,
        groups: &BTreeMap<String, Vec<String>>,
    ) -> Result<ThirdPartyRules, Fault> {
        let operation = "read the rules about other servers";
        let rules = |rules, setting| HostRules::check(rules, groups, (operation, setting));
        Ok(ThirdPartyRules {
            fetch_from: rules(&self.fetch_from, "tunnel.fetch_from")?,
            send_to: rules(&self.send_to, "tunnel.send_to")?,
        })
    }
}

impl ThirdPartyRules {
    /// Whether there is any rule for `who`.
    #[must_use]
    pub fn may_allow(&self, who: &Principal, sends: bool) -> bool {
        let rules = if sends {
            &self.send_to
        } else {
            &self.fetch_from
        };
        rules.concern(who)
    }

    /// Whether the server may connect for `who` to `host`, or may turn out to when that is looked
    /// up.
    #[must_use]
    pub fn may_allow_host(&self, who: &Principal, sends: bool, (host, port): (&Host, u16)) -> bool {
        if let Host::Address(address) = host {
            return self.allows(who, sends, (host, port), *address);
        }
        let rules = if sends {
            &self.send_to
        } else {
            &self.fetch_from
        };
        let target = Target::Host {
            host: host.clone(),
            port,
        };
        rules.may_allow(Some(who), &target)
    }

    /// Whether the server may connect for `who` to `host` at this address, to send a file there or
    /// to fetch one.
    #[must_use]
    pub fn allows(
        &self,
        who: &Principal,
        sends: bool,
        (host, port): (&Host, u16),
        address: IpAddr,
    ) -> bool {
        let rules = if sends {
            &self.send_to
        } else {
            &self.fetch_from
        };
        let target = Target::Host {
            host: host.clone(),
            port,
        };
        match is_public(address) {
            true => rules.allows(Some(who), &target, address),
            false => rules.lists(Some(who), &target, address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Rights;
    use crate::tunnel::RuleConfig;
    use crate::{Method, Scope};

    fn rule(host: &str) -> RuleConfig {
        RuleConfig {
            user: Some("ada".into()),
            host: host.into(),
            ports: Some("2799".into()),
            ..RuleConfig::default()
        }
    }

    fn ada(scopes: Vec<Scope>) -> Principal {
        Principal {
            user: "ada".into(),
            method: Method::Key,
            scopes,
        }
    }

    #[test]
    fn only_listed_servers_are_reached() {
        let config = TunnelsConfig {
            fetch_from: vec![rule("*.example.org"), rule("10.1.0.0/16")],
            send_to: vec![rule("*")],
            ..TunnelsConfig::default()
        };
        let rules = config.check_third_party(&BTreeMap::new()).unwrap();
        let allows = |who: &Principal, sends, name: &str, port, address: &str| {
            let host = Host::parse(name).unwrap();
            rules.allows(who, sends, (&host, port), address.parse().unwrap())
        };
        let user = ada(Vec::new());
        assert!(allows(&user, false, "a.example.org", 2799, "192.0.9.1"));
        assert!(!allows(&user, false, "a.example.org", 22, "192.0.9.1"));
        assert!(!allows(&user, false, "example.com", 2799, "192.0.9.1"));
        // A name leads neither inwards nor to the server itself.
        for inward in ["10.2.0.1", "127.0.0.1", "169.254.169.254", "::1", "fd00::1"] {
            assert!(
                !allows(&user, false, "a.example.org", 2799, inward),
                "{inward}"
            );
            assert!(
                !allows(&user, true, "a.example.org", 2799, inward),
                "{inward}"
            );
        }
        assert!(allows(&user, false, "a.example.org", 2799, "10.1.2.3"));
        assert!(allows(&user, false, "10.1.2.3", 2799, "10.1.2.3"));
        assert!(allows(&user, false, "10.1.2.3", 2799, "::ffff:10.1.2.3"));
        let scope = Scope::new(b"x".to_vec(), Rights::ALL);
        assert!(!allows(
            &ada(vec![scope]),
            true,
            "a.example.org",
            2799,
            "192.0.9.1"
        ));
        let other = Principal {
            user: "bob".into(),
            ..user
        };
        assert!(!allows(&other, true, "a.example.org", 2799, "192.0.9.1"));
    }
}
