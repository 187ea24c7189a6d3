//! Groups of servers that serve the same files, so that clients move one file by several of them.
//!
//! All members have the same list, in which each finds itself by its own key. They don't connect to
//! each other: a member gives the list to its users, who log in at the others as they did there.

use std::collections::BTreeSet;

use serde::Deserialize;
use xdfs_proto::group::{Group, MEMBERS_MAX, MEMBERS_MIN, Member, Storage};
use xdfs_proto::tunnel::Host;
use xdfs_proto::{Code, Fault};

use crate::identity::Fingerprint;

/// The list of a group, as a file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupConfig {
    /// Where the files are, which has to be named.
    pub storage: Option<StorageConfig>,
    /// The members in the order of preference, the server itself among them.
    pub member: Vec<MemberConfig>,
}

/// Where the files of a group are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StorageConfig {
    /// On one file system, which all members reach.
    Shared,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberConfig {
    /// Its address for clients: `HOST:PORT` or `[IPV6]:PORT`.
    pub address: String,
    /// The fingerprint of its key.
    pub key: String,
}

impl GroupConfig {
    /// Checks the list, in which the server with the key `own` has to be; `None` if it has no key
    /// yet.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] with what is wrong.
    pub fn check(&self, own: Option<Fingerprint>) -> Result<Group, Fault> {
        let storage = match self.storage {
            Some(StorageConfig::Shared) => Storage::Shared,
            None => {
                let fault = invalid("it doesn't name the storage");
                return Err(fault.hint("write storage = \"shared\""));
            }
        };
        let count = self.member.len();
        if !(MEMBERS_MIN..=MEMBERS_MAX).contains(&count) {
            let cause =
                format!("it has {count} members: from {MEMBERS_MIN} to {MEMBERS_MAX} are possible");
            return Err(invalid(cause));
        }
        let mut keys = BTreeSet::new();
        let mut addresses = BTreeSet::new();
        let mut members = Vec::with_capacity(count);
        for (number, member) in (1..).zip(&self.member) {
            let wrong = |cause: &str| invalid(format!("member {number}: {cause}"));
            let key: Fingerprint = member.key.parse().map_err(|fault: Fault| {
                let hint = fault.hint;
                wrong(&format!("'{}' is no fingerprint", member.key)).hint(hint)
            })?;
            let address = address(&member.address).ok_or_else(|| {
                let cause = format!("'{}' is no address", member.address);
                wrong(&cause).hint("write HOST:PORT or [IPV6]:PORT, as clients reach it")
            })?;
            if !keys.insert(key) {
                return Err(wrong(&format!("another one has the key {key} too")));
            }
            if !addresses.insert(address.clone()) {
                return Err(wrong(&format!("another one has the address {address} too")));
            }
            members.push(Member {
                key: key.0,
                address,
            });
        }
        if let Some(own) = own.filter(|own| !keys.contains(own)) {
            let cause = format!("it has no member with the key of this server, {own}");
            return Err(invalid(cause).hint("all members have the same list"));
        }
        Ok(Group { storage, members })
    }
}

/// The one form of an address; `None` if it isn't one.
fn address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = port.parse().ok().filter(|port| *port > 0 && is_number)?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|host| host.contains(':'))?,
        None if host.contains(':') => return None,
        None => host,
    };
    Some(format!("{}:{port}", Host::parse(host)?))
}

fn invalid(cause: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, "read the list of the group", cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u8, address: &str) -> MemberConfig {
        MemberConfig {
            address: address.into(),
            key: Fingerprint([number; 32]).to_string(),
        }
    }

    fn list(member: Vec<MemberConfig>) -> GroupConfig {
        let storage = Some(StorageConfig::Shared);
        GroupConfig { storage, member }
    }

    #[test]
    fn a_member_finds_itself_in_the_list() {
        let config = list(vec![member(1, "A.example:2799"), member(2, "[::1]:5")]);
        for own in [None, Some(Fingerprint([1; 32])), Some(Fingerprint([2; 32]))] {
            let group = config.check(own).unwrap();
            let addresses = group.members.iter().map(|own| &*own.address);
            assert_eq!(addresses.collect::<Vec<_>>(), ["a.example:2799", "[::1]:5"]);
            assert_eq!(group.members[1].key, [2; 32]);
        }
        let fault = config.check(Some(Fingerprint([3; 32]))).unwrap_err();
        assert!(fault.cause.contains("no member with the key"), "{fault}");
    }

    #[test]
    fn lists_with_mistakes_are_refused() {
        let fault = GroupConfig::default().check(None).unwrap_err();
        assert!(fault.cause.contains("name the storage"), "{fault}");
        let good = || member(1, "a:1");
        let many = (0..=64).map(|number| member(number, &format!("a:{}", 1 + u16::from(number))));
        let unreadable = MemberConfig {
            key: "SHA256:x".into(),
            ..member(2, "b:1")
        };
        for (members, words) in [
            (vec![], "it has 0 members"),
            (vec![good()], "it has 1 members"),
            (many.collect(), "it has 65 members"),
            (
                vec![good(), member(1, "b:1")],
                "member 2: another one has the key",
            ),
            (
                vec![good(), member(2, "A:1")],
                "member 2: another one has the address",
            ),
            (
                vec![good(), unreadable],
                "member 2: 'SHA256:x' is no fingerprint",
            ),
        ] {
            let fault = list(members).check(None).unwrap_err();
            assert!(fault.cause.contains(words), "{words}: {fault}");
        }
        for bad in [
            "",
            "a",
            "a:",
            ":1",
            "a:0",
            "a:65536",
            "a:+1",
            "::1:5",
            "[a]:1",
            "[::1:5",
            "a b:1",
            "unix:/run/x",
            "a:1/x",
            "u@a:1",
        ] {
            let fault = list(vec![good(), member(2, bad)]).check(None).unwrap_err();
            assert!(fault.cause.contains("is no address"), "{bad}: {fault}");
        }
    }
}
