//! What users may do who are known.

use std::fs;
use std::ops::ControlFlow;

use xdfs::security::{Credential, ExportConfig, ExportsConfig, GrantConfig, Rights};
use xdfs::{Code, LocalPlace, SyncOptions, TreeEvent};

use crate::world::{Visit, World, assert_same, finish};

/// A world with one export: a directory for each user.
fn homes(change: impl FnOnce(&mut ExportConfig)) -> World {
    World::with(|security, folder| {
        let mut export = ExportConfig {
            name: "home".into(),
            path: folder.join("root/{user}").to_str().unwrap().into(),
            make: true,
            grant: vec![GrantConfig {
                user: Some("*".into()),
                rights: Rights::ALL,
                ..GrantConfig::default()
            }],
            ..ExportConfig::default()
        };
        change(&mut export);
        security.exports = Some(ExportsConfig {
            export: vec![export],
            ..ExportsConfig::default()
        });
    })
}

#[test]
fn users_have_folders_of_their_own() {
    let world = homes(|_| {});
    let alice = world.visit("alice", vec![world.user_key("alice")]);
    let bob = world.visit("bob", vec![world.user_key("bob")]).channels(4);
    let source = world.source(3_000_000);
    alice.upload(&source, "/home/secret").unwrap();
    bob.upload(&source, "/home/own").unwrap();
    assert_same(&source, &world.path("root/alice/secret"));
    assert_same(&source, &world.path("root/bob/own"));

    let target = world.path("client/got");
    let of_alice = format!("{}/alice/secret", "root");
    for name in [
        "/home/secret",
        "/home/../alice/secret",
        "/alice/secret",
        "/home/alice/secret",
        &format!("/home/../../{of_alice}"),
        &format!("/../{of_alice}"),
    ] {
        let fault = bob.download(name, &target).unwrap_err();
        let is_refused = matches!(
            fault.code,
            Code::NotFound | Code::PathEscape | Code::PermissionDenied | Code::InvalidArgument
        );
        assert!(is_refused, "{name}: {fault:?}");
        assert!(!target.exists());
    }
    // Nor by a link that leads there.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../alice", world.path("root/bob/link")).unwrap();
        let fault = bob.download("/home/link/secret", &target).unwrap_err();
        assert_eq!(fault.code, Code::PathEscape, "{fault}");
    }
    let fault = bob.upload(&source, "/home/../alice/new").unwrap_err();
    assert!(!world.path("root/alice/new").exists(), "{fault}");
    alice.download("/home/secret", &target).unwrap();
    assert_same(&source, &target);
}

#[test]
fn a_quota_that_is_too_small_for_a_file() {
    let world = homes(|export| export.quota_bytes = Some(4 << 20));
    let key = world.user_key("alice");
    let visit = world.visit("alice", vec![key]).channels(4);
    let source = world.source(3 << 20);
    visit.upload(&source, "/home/one").unwrap();
    let fault = visit.upload(&source, "/home/two").unwrap_err();
    assert_eq!(fault.code, Code::QuotaExceeded, "{fault}");
    assert!(!world.path("root/alice/two").exists());
    assert_same(&source, &world.path("root/alice/one"));
    // Others have their own.
    let bob = world.visit("bob", vec![world.user_key("bob")]);
    bob.upload(&source, "/home/two").unwrap();
}

/// The length isn't known before, so that the quota is met on the way.
#[test]
fn a_quota_that_is_reached_in_the_middle() {
    let world = homes(|export| export.quota_bytes = Some(8 << 20));
    let visit = world.visit("alice", vec![world.user_key("alice")]);
    let client = visit.channels(2).connect().unwrap();
    let options = xdfs::TransferOptions::default();
    let endless = client
        .upload(&LocalPlace::Memory, b"/home/endless", &options)
        .unwrap();
    let fault = finish(endless).unwrap_err();
    assert_eq!(fault.code, Code::QuotaExceeded, "{fault}");
    assert!(!world.path("root/alice/endless").exists());
    let used: u64 = fs::read_dir(world.path("root/alice"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(used <= (8 << 20) + (64 << 10), "{used} bytes lie there");
}

#[test]
fn a_server_that_is_read_only_takes_nothing() {
    let world = World::build(|builder, folder| {
        builder.read_only = true;
        fs::write(folder.join("root/file"), b"to be read").unwrap();
    });
    let visit = world.visit("", vec![world.owner_key()]);
    let source = world.source(100_000);
    for name in ["/new", "/file"] {
        let fault = visit.upload(&source, name).unwrap_err();
        assert!(
            matches!(fault.code, Code::ReadOnly | Code::PermissionDenied),
            "{fault:?}"
        );
    }
    assert!(!world.path("root/new").exists());
    assert_eq!(fs::read(world.path("root/file")).unwrap(), b"to be read");
    let target = world.path("client/got");
    visit.download("/file", &target).unwrap();
    assert_eq!(fs::read(target).unwrap(), b"to be read");
}

/// A synchronisation ends with what makes all of it durable, for which somebody who may only read
/// has no right, and no need.
#[test]
fn who_may_only_read_synchronises_what_is_equal() {
    let world = homes(|export| export.grant[0].rights = Rights::READ | Rights::LIST);
    let tree = world.path("root/alice/tree");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("file"), "to be read").unwrap();
    let visit = world.visit("alice", vec![world.user_key("alice")]);
    let client = visit.connect().unwrap();
    let here = world.path("client/tree");
    let options = SyncOptions::default();
    let mut watch = |_: TreeEvent<'_>| ControlFlow::Continue(());
    let fetched = client.sync_from(b"/home/tree", &here, &options, &mut watch);
    assert_eq!(fetched.unwrap().tree.files, 1);
    let sent = client.sync_to(&here, b"/home/tree", &options, &mut watch);
    let sent = sent.unwrap().tree;
    assert_eq!((sent.files, sent.failed), (0, 0));
}

#[test]
fn a_grant_limits_what_its_user_may_do() {
    let world = World::with(|security, folder| {
        fs::write(folder.join("root/file"), b"to be read").unwrap();
        let grant = |user: &str, rights| GrantConfig {
            user: Some(user.into()),
            rights,
            ..GrantConfig::default()
        };
        security.exports = Some(ExportsConfig {
            export: vec![ExportConfig {
                name: "data".into(),
                path: folder.join("root").to_str().unwrap().into(),
                grant: vec![
                    grant("reader", Rights::READ),
                    grant("maker", Rights::CREATE),
                ],
                ..ExportConfig::default()
            }],
            ..ExportsConfig::default()
        });
    });
    let source = world.source(100_000);
    let target = world.path("client/got");
    let come = |user: &str, key: Credential| world.visit(user, vec![key]);
    let reader = come("reader", world.user_key("reader"));
    let maker = come("maker", world.user_key("maker"));
    let nobody = come("nobody", world.user_key("nobody"));
    reader.download("/data/file", &target).unwrap();
    maker.upload(&source, "/data/new").unwrap();
    assert_same(&source, &world.path("root/new"));
    let denied = |fault: xdfs::Fault, code| assert_eq!(fault.code, code, "{fault}");
    denied(
        reader.upload(&source, "/data/other").unwrap_err(),
        Code::PermissionDenied,
    );
    denied(
        maker.upload(&source, "/data/file").unwrap_err(),
        Code::PermissionDenied,
    );
    denied(
        maker.download("/data/file", &target).unwrap_err(),
        Code::PermissionDenied,
    );
    denied(
        nobody.download("/data/file", &target).unwrap_err(),
        Code::NotFound,
    );
    assert_eq!(fs::read(world.path("root/file")).unwrap(), b"to be read");
}

/// The comparison with a target that exists is by the user's own rights: who may not read learns
/// nothing of it.
#[test]
fn a_target_that_exists_is_recognised_by_those_who_may_read_it() {
    let world = World::with(|security, folder| {
        let grant = |user: &str, rights| GrantConfig {
            user: Some(user.into()),
            rights,
            ..GrantConfig::default()
        };
        let (make, read, list) = (Rights::CREATE, Rights::READ, Rights::LIST);
        security.exports = Some(ExportsConfig {
            export: vec![ExportConfig {
                name: "data".into(),
                path: folder.join("root").to_str().unwrap().into(),
                grant: vec![
                    grant("writer", make | Rights::WRITE | list),
                    grant("maker", make | read),
                    grant("reader", read | list),
                ],
                ..ExportConfig::default()
            }],
            ..ExportsConfig::default()
        });
    });
    let source = world.source(300_000);
    let visit = |user: &str| world.visit(user, vec![world.user_key(user)]);
    let (writer, maker, reader) = (visit("writer"), visit("maker"), visit("reader"));
    let again = |visit: &Visit, force: bool| {
        let client = visit.connect()?;
        let options = xdfs::TransferOptions {
            parameters: xdfs::TransferParameters {
                overwrite: force,
                ..xdfs::TransferParameters::default()
            },
            ..xdfs::TransferOptions::default()
        };
        let source = LocalPlace::Path(source.clone());
        finish(client.upload(&source, b"/data/file", &options)?)
    };
    again(&writer, false).unwrap();
    for (visit, code) in [
        (&writer, Code::AlreadyExists),
        (&reader, Code::PermissionDenied),
    ] {
        let fault = again(visit, false).unwrap_err();
        assert_eq!(fault.code, code, "{}: {fault}", visit.user);
    }
    // Who may not replace it may say so without effect.
    for force in [false, true] {
        assert_eq!(again(&maker, force).unwrap().resumed_bytes, 300_000);
    }
    let content = fs::read(&source).unwrap();
    fs::write(world.path("root/file"), vec![0; content.len()]).unwrap();
    for force in [false, true] {
        let fault = again(&maker, force).unwrap_err();
        assert_eq!(fault.code, Code::PermissionDenied, "{fault}");
        assert!(fault.cause.contains("may not replace"), "{fault}");
    }
    assert_eq!(fs::read(world.path("root/file")).unwrap(), vec![0; 300_000]);
}

/// Directories get their modes and times when everything is in them, which is a change. It isn't
/// made, with one warning.
#[test]
fn who_may_only_add_adds_whole_trees() {
    let world =
        homes(|export| export.grant[0].rights = Rights::READ | Rights::LIST | Rights::CREATE);
    let client = world
        .visit("alice", vec![world.user_key("alice")])
        .connect()
        .unwrap();
    let tree = world.path("client/tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/f"), "1").unwrap();
    let mut number = 0;
    let mut warned = |copy: &dyn Fn(&mut dyn xdfs::Observer) -> u64| {
        number += 1;
        fs::write(tree.join(format!("a/{number}")), "new").unwrap();
        let mut warnings = Vec::new();
        let mut observer = |event: TreeEvent<'_>| {
            if let TreeEvent::Warning(fault) = event {
                warnings.push(fault.cause.clone());
            }
            ControlFlow::Continue(())
        };
        assert_eq!(copy(&mut observer), 0);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("may not change"), "{warnings:?}");
    };
    let options = xdfs::TreeOptions::default();
    for _ in 0..2 {
        warned(&|observer| {
            let copied = client.upload_tree(&tree.join(""), b"/home/copy", &options, observer);
            copied.unwrap().failed
        });
    }
    let options = SyncOptions::default();
    for _ in 0..2 {
        warned(&|observer| {
            let same = client.sync_to(&tree, b"/home/same", &options, observer);
            same.unwrap().tree.failed
        });
    }
    for name in ["copy", "same"] {
        let there = world.path(&format!("root/alice/{name}/a"));
        assert_eq!(fs::read(there.join("b/f")).unwrap(), b"1");
        assert_eq!(fs::read(there.join("1")).unwrap(), b"new");
    }
}
