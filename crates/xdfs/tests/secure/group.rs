//! Who gets the list of a group.

use std::fs;
use std::sync::Arc;

use xdfs::security::{
    Credential, ExportConfig, ExportsConfig, GrantConfig, GroupConfig, MemberConfig, Rights,
    StorageConfig,
};
use xdfs::{Answer, Call, Code, Fault};
use xdfs_proto::group::Group;
use xdfs_proto::third_party::{CopyId, Delegation, ThirdPartyCall, TreeDelegation};
use xdfs_security::identity::{Fingerprint, ServerIdentity};

use crate::world::{Visit, World};

/// A member of a group, which serves `data` to alice.
fn world() -> World {
    world_of(Rights::READ | Rights::LIST, None)
}

/// A world with other rights, and a largest file.
pub(crate) fn world_of(rights: Rights, largest_file: Option<u64>) -> World {
    World::with(|security, folder| {
        let own = ServerIdentity::load_or_make(&security.folder, &security.names).unwrap();
        let member = |key: Fingerprint, address: &str| MemberConfig {
            address: address.into(),
            key: key.to_string(),
        };
        security.group = Some(GroupConfig {
            storage: Some(StorageConfig::Shared),
            member: vec![
                member(Fingerprint([7; 32]), "one.example:2799"),
                member(own.fingerprint(), "two.example:2799"),
            ],
        });
        let grant = GrantConfig {
            user: Some("alice".into()),
            group: None,
            rights,
        };
        security.exports = Some(ExportsConfig {
            export: vec![ExportConfig {
                name: "data".into(),
                path: folder.join("root").to_str().unwrap().into(),
                grant: vec![grant],
                largest_file,
                ..ExportConfig::default()
            }],
            ..ExportsConfig::default()
        });
    })
}

fn ask(visit: &Visit, path: &str) -> Result<Group, Fault> {
    match visit.connect()?.call(Call::Group { path: path.into() })? {
        Answer::Group(group) => Ok(group),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(visit: &Visit, path: &str, code: Code) {
    assert_eq!(ask(visit, path).unwrap_err().code, code, "{path}");
}

#[test]
fn the_list_is_for_users_who_may_look_at_the_file() {
    let world = world();
    fs::write(world.path("root/file"), b"content").unwrap();
    let alice = world.visit("alice", vec![world.user_key("alice")]);
    let group = ask(&alice, "/data/file").unwrap();
    let addresses: Vec<_> = group.members.iter().map(|own| &*own.address).collect();
    assert_eq!(addresses, ["one.example:2799", "two.example:2799"]);
    assert_eq!(group.members[1].key, world.fingerprint.0);
    refused(&alice, "/data/none", Code::NotFound);
    refused(&alice, "/none/file", Code::NotFound);
    let bob = world.visit("bob", vec![world.user_key("bob")]);
    assert!(ask(&bob, "/data/file").is_err());
}

#[test]
fn a_capability_is_not_for_the_list() {
    let world = world();
    fs::create_dir(world.path("root/tree")).unwrap();
    fs::write(world.path("root/tree/file"), b"content").unwrap();
    let alice = world.visit("alice", vec![world.user_key("alice")]);
    let holder = Arc::new(ServerIdentity::temporary(&[]).unwrap());
    let copy = CopyId([7; 16]);
    let of_file = Delegation {
        copy,
        writes: false,
        holder: holder.fingerprint().0,
        bytes_max: 100,
        life_s: 60,
        path: b"/data/tree/file".to_vec(),
    };
    let of_tree = TreeDelegation {
        copy,
        writes: false,
        holder: holder.fingerprint().0,
        life_s: 60,
        path: b"/data/tree".to_vec(),
    };
    for call in [
        ThirdPartyCall::Delegate(Box::new(of_file)),
        ThirdPartyCall::DelegateTree(Box::new(of_tree)),
    ] {
        let answer = alice.connect().unwrap().call(Call::ThirdParty(call));
        let Ok(Answer::Capability(text)) = answer else {
            panic!("{answer:?}")
        };
        let holder = Arc::clone(&holder);
        let capability = Credential::Capability { text, holder };
        let visit = world.visit("", vec![capability]);
        refused(&visit, "/data/tree/file", Code::PermissionDenied);
    }
}

#[test]
fn a_server_of_no_group_says_so() {
    let world = World::new();
    fs::write(world.path("root/file"), b"content").unwrap();
    let owner = world.visit("owner", vec![world.owner_key()]);
    refused(&owner, "/file", Code::Unsupported);
}
