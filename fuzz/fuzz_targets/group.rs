//! The list of a group, and the path of a part, from any text: no panic, and what is accepted has a
//! meaning: members that differ in their keys and addresses, addresses that are read as they are
//! written, and a place that has this path.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use xdfs_proto::Code;
use xdfs_proto::group::{MEMBERS_MAX, MEMBERS_MIN};
use xdfs_proto::stripes::{part_of, part_path};
use xdfs_security::group::{GroupConfig, MemberConfig};
use xdfs_security::identity::Fingerprint;

fuzz_target!(|text: &str| {
    if let Some(place) = part_of(text.as_bytes()) {
        let path = text.strip_prefix('/').unwrap_or(text);
        assert_eq!(part_path(&place), path.as_bytes());
    }
    let Ok(config) = toml::from_str::<GroupConfig>(text) else {
        return;
    };
    let group = match config.check(None) {
        Ok(group) => group,
        Err(fault) => {
            assert_eq!(fault.code, Code::InvalidArgument);
            return;
        }
    };
    let members = &group.members;
    assert!((MEMBERS_MIN..=MEMBERS_MAX).contains(&members.len()));
    let keys: BTreeSet<_> = members.iter().map(|member| member.key).collect();
    let addresses: BTreeSet<_> = members.iter().map(|member| &member.address).collect();
    assert_eq!(
        (keys.len(), addresses.len()),
        (members.len(), members.len())
    );
    // The one form of a list reads back as itself, for each of its members.
    let again = GroupConfig {
        member: members
            .iter()
            .map(|member| MemberConfig {
                address: member.address.clone(),
                key: Fingerprint(member.key).to_string(),
            })
            .collect(),
        ..config
    };
    for member in members {
        let own = Some(Fingerprint(member.key));
        assert_eq!(again.check(own).as_ref(), Ok(&group));
    }
});
