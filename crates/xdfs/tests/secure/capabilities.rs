//! Capabilities: one file, one direction, for the server with one key, once.

use std::fs;
use std::sync::Arc;

use xdfs::security::Credential;
use xdfs::{Answer, Call, Code, Fault, LocalPlace, TransferOptions};
use xdfs_proto::third_party::{CopyId, CopyOrder, Delegation, ThirdPartyCall};
use xdfs_security::identity::ServerIdentity;

use crate::world::{Visit, World, assert_same, finish};

const SIZE: usize = 300_000;

fn holder() -> Arc<ServerIdentity> {
    Arc::new(ServerIdentity::temporary(&[]).unwrap())
}

fn delegation(holder: &ServerIdentity, path: &str, writes: bool) -> Delegation {
    Delegation {
        copy: CopyId([7; 16]),
        writes,
        holder: holder.fingerprint().0,
        bytes_max: SIZE as u64,
        life_s: 60,
        path: path.into(),
    }
}

/// Has the server issue a capability in a session of `visit`.
fn issue(visit: &Visit, delegation: Delegation) -> Result<String, Fault> {
    let call = Call::ThirdParty(ThirdPartyCall::Delegate(Box::new(delegation)));
    match visit.connect()?.call(call)? {
        Answer::Capability(text) => Ok(text),
        other => panic!("{other:?}"),
    }
}

/// A visit by a capability.
fn by(world: &World, text: &str, holder: &Arc<ServerIdentity>) -> Visit {
    let credential = Credential::Capability {
        text: text.to_owned(),
        holder: Arc::clone(holder),
    };
    world.visit("", vec![credential])
}

/// Uploads so many zeros, without a name for a directory.
fn zeros(visit: &Visit, target: &str, bytes: usize) -> Result<(), Fault> {
    let options = TransferOptions {
        length: Some(bytes as u64),
        ..visit.transfer()
    };
    let client = visit.connect()?;
    finish(client.upload(&LocalPlace::Memory, target.as_bytes(), &options)?).map(drop)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Fault>, code: Code) {
    assert_eq!(result.unwrap_err().code, code);
}

#[test]
fn a_capability_reads_its_file_for_its_holder_once() {
    let world = World::new();
    let owner = world.visit("owner", vec![world.owner_key()]);
    let source = world.source(SIZE);
    owner.upload(&source, "/file").unwrap();
    let (holder, thief) = (holder(), holder());
    let text = issue(&owner, delegation(&holder, "/file", false)).unwrap();
    let got = world.path("client/got");
    for wrong in [
        by(&world, &text, &thief),
        world.visit("", vec![Credential::Ticket(text.clone())]),
    ] {
        refused(wrong.download("/file", &got), Code::AuthenticationFailed);
    }
    by(&world, &text, &holder).download("/file", &got).unwrap();
    assert_same(&source, &got);
    let again = by(&world, &text, &holder).download("/file", &got);
    refused(again, Code::AuthenticationFailed);
}

#[test]
fn a_capability_opens_nothing_else() {
    let world = World::new();
    let owner = world.visit("owner", vec![world.owner_key()]);
    let source = world.source(SIZE);
    for name in ["/file", "/file2"] {
        owner.upload(&source, name).unwrap();
    }
    fs::write(world.path("root/large"), vec![1; SIZE + 1]).unwrap();
    let holder = holder();
    let visit = |path: &str, writes| {
        let text = issue(&owner, delegation(&holder, path, writes)).unwrap();
        by(&world, &text, &holder)
    };
    let got = world.path("client/got");
    let denied = Code::PermissionDenied;
    refused(visit("/file", false).download("/file2", &got), denied);
    refused(zeros(&visit("/file", false), "/file", SIZE), denied);
    refused(visit("/large", false).download("/large", &got), denied);
    refused(zeros(&visit("/new", true), "/newer", SIZE), denied);
    refused(zeros(&visit("/new", true), "/new", SIZE + 1), denied);
    refused(visit("/file", true).download("/file", &got), denied);
    // In a directory it would be another file.
    fs::create_dir(world.path("root/dir")).unwrap();
    refused(visit("/dir", true).upload(&source, "/dir"), denied);
    assert!(!world.path("root/new").exists() && !world.path("root/newer").exists());
    // A capability is no more than the user has: neither calls nor further capabilities.
    let client = visit("/file", false).connect().unwrap();
    let order = CopyOrder {
        copy: CopyId([8; 16]),
        sends: true,
        detached: true,
        overwrite: true,
        resume: xdfs::Resume::Never,
        digest: xdfs::DigestKind::None,
        channels: 0,
        rate_bytes_per_s_max: 0,
        key: [0; 32],
        capability: "x".into(),
        addresses: vec!["192.0.2.1:2799".into()],
        here: b"/file".to_vec(),
        there: b"/file".to_vec(),
        name: Vec::new(),
    };
    for call in [
        Call::Stat {
            path: b"/file".to_vec(),
            follow: true,
        },
        Call::RemoveFile {
            path: b"/file".to_vec(),
        },
        Call::ThirdParty(ThirdPartyCall::Delegate(Box::new(delegation(
            &holder, "/file", false,
        )))),
        Call::ThirdParty(ThirdPartyCall::Start(Box::new(order))),
    ] {
        refused(client.call(call), denied);
    }
    zeros(&visit("/new", true), "/new", SIZE).unwrap();
    assert_eq!(fs::read(world.path("root/new")).unwrap(), vec![0; SIZE]);
    assert_same(&source, &world.path("root/file"));
}

#[test]
fn a_capability_has_an_end() {
    let world = World::new();
    let owner = world.visit("owner", vec![world.owner_key()]);
    owner.upload(&world.source(SIZE), "/file").unwrap();
    let holder = holder();
    let mut short = delegation(&holder, "/file", false);
    short.life_s = 1;
    let text = issue(&owner, short).unwrap();
    let got = world.path("client/got");
    let began = std::time::Instant::now();
    let is_over = || began.elapsed() > std::time::Duration::from_millis(2100);
    assert!(xdfs_testkit::wait::until(crate::world::PATIENCE, is_over));
    let late = by(&world, &text, &holder).download("/file", &got);
    refused(late, Code::AuthenticationFailed);
    // Nor is there one for a life that no copy has.
    for life_s in [0, 24 * 3600 + 1] {
        let mut wrong = delegation(&holder, "/file", false);
        wrong.life_s = life_s;
        assert!(issue(&owner, wrong).is_err());
    }
}
