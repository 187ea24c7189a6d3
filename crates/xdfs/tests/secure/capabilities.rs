//! Capabilities: one file or tree, one direction, for the server with one key, once.

use std::fs;
use std::sync::Arc;

use xdfs::security::{Credential, RuleConfig};
use xdfs::{
    Answer, Call, Code, Fault, LocalPlace, OpenOptions, Silent, TransferOptions, TreeOptions,
};
use xdfs_proto::third_party::{
    CopyId, CopyOrder, Delegation, ThirdPartyCall, TreeDelegation, TreeOrder, TreeQuery,
};
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

/// A visit by a capability for a tree.
fn tree(world: &World, owner: &Visit, path: &str, writes: bool) -> Visit {
    let holder = holder();
    let own = TreeDelegation {
        copy: CopyId([7; 16]),
        writes,
        holder: holder.fingerprint().0,
        life_s: 60,
        path: path.into(),
    };
    let call = Call::ThirdParty(ThirdPartyCall::DelegateTree(Box::new(own)));
    match owner.connect().unwrap().call(call).unwrap() {
        Answer::Capability(text) => by(world, &text, &holder),
        other => panic!("{other:?}"),
    }
}

/// An order to fetch a tree from where no server is.
fn tree_order() -> TreeOrder {
    TreeOrder {
        copy: CopyId([9; 16]),
        synchronises: true,
        sends: false,
        detached: true,
        keeps_root: false,
        again: false,
        channels: 0,
        key: [0; 32],
        capability: "x".into(),
        addresses: vec!["127.0.0.1:1".into()],
        here: b"/tree".to_vec(),
        there: b"/tree".to_vec(),
        options: "{}".into(),
    }
}

fn stat(path: &str) -> Call {
    Call::Stat {
        path: path.into(),
        follow: true,
    }
}

/// A refusal of any kind: by the rights, or by the way that a path takes.
#[track_caller]
fn shut<T: std::fmt::Debug>(result: Result<T, Fault>) {
    let code = result.unwrap_err().code;
    assert!(
        matches!(
            code,
            Code::PermissionDenied | Code::PathEscape | Code::NotFound
        ),
        "{code}"
    );
}

fn world_with_trees() -> World {
    let world = World::new();
    for (name, content) in [
        ("tree/d/f", "inside"),
        ("other/f", "outside"),
        ("tree2", "beside"),
    ] {
        let path = world.path("root").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    std::os::unix::fs::symlink("../other", world.path("root/tree/out")).unwrap();
    std::os::unix::fs::symlink("d", world.path("root/tree/in")).unwrap();
    world
}

#[test]
fn a_capability_reads_its_tree_and_nothing_else() {
    let world = world_with_trees();
    let owner = world.visit("owner", vec![world.owner_key()]);
    let visit = || tree(&world, &owner, "/tree", false);
    let got = world.path("client/got");
    let client = visit().connect().unwrap();
    let options = TreeOptions::default();
    client
        .download_tree(b"/tree", &got, &options, &mut Silent)
        .unwrap();
    assert_eq!(fs::read(got.join("d/f")).unwrap(), b"inside");
    assert_eq!(
        fs::read_link(got.join("out")).unwrap().to_str(),
        Some("../other")
    );
    client.call(stat("/tree/in/f")).unwrap();
    for path in [
        "/",
        "/other",
        "/other/f",
        "/tree2",
        "/tree/../other/f",
        "/tree/out/f",
        "/tree/out",
    ] {
        shut(client.call(stat(path)));
        shut(
            client
                .open_file(path.as_bytes(), &OpenOptions::reading())
                .map(drop),
        );
        let list = Call::List {
            path: path.into(),
            cursor: Vec::new(),
            entries_max: 9,
        };
        shut(client.call(list));
    }
    for path in ["/other/f", "/tree/out/f", "/tree/../tree2", "/tree2"] {
        shut(visit().download(path, &got.join("x")));
    }
    for root in ["/other", "/tree/out/", "/tree/../other"] {
        let client = visit().connect().unwrap();
        let result = client.download_tree(root.as_bytes(), &got.join("y"), &options, &mut Silent);
        assert!(result.is_err(), "{root}");
    }
    assert!(!got.join("y").exists());
    // It changes nothing, and opens neither files for writing nor anything beyond the store.
    shut(
        client
            .open_file(b"/tree/d/f", &OpenOptions::writing())
            .map(drop),
    );
    shut(zeros(&visit(), "/tree/new", 10));
    shut(zeros(&visit(), "/tree/d/f", 10));
    let more = TreeDelegation {
        copy: CopyId([9; 16]),
        writes: true,
        holder: [1; 32],
        life_s: 60,
        path: b"/tree".to_vec(),
    };
    let order = tree_order();
    let path = || b"/tree/d/f".to_vec();
    for call in [
        Call::RemoveFile { path: path() },
        Call::RemoveTree {
            path: b"/tree/d".to_vec(),
        },
        Call::MakeDirectory {
            path: b"/tree/made".to_vec(),
            mode: None,
            parents: false,
        },
        Call::Rename {
            from: path(),
            to: b"/tree/g".to_vec(),
            overwrite: false,
        },
        Call::SetMode {
            path: path(),
            mode: 0o777,
        },
        Call::Symlink {
            target: b"x".to_vec(),
            path: b"/tree/made".to_vec(),
        },
        Call::Truncate {
            path: path(),
            length: 0,
        },
        Call::ThirdParty(ThirdPartyCall::DelegateTree(Box::new(more))),
        Call::ThirdParty(ThirdPartyCall::StartTree(Box::new(order))),
    ] {
        refused(client.call(call), Code::PermissionDenied);
    }
    let source = world.path("client/send");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("x"), b"x").unwrap();
    let client = visit().connect().unwrap();
    let sent = client.upload_tree(&source, b"/tree/d/", &options, &mut Silent);
    assert!(sent.is_err() || sent.unwrap().failed > 0);
    assert!(!world.path("root/tree/d/send").exists());
    assert_eq!(fs::read(world.path("root/tree/d/f")).unwrap(), b"inside");
    // One for a file opens no tree.
    let holder = holder();
    let text = issue(&owner, delegation(&holder, "/tree", false)).unwrap();
    let client = by(&world, &text, &holder).connect().unwrap();
    let result = client.download_tree(b"/tree", &got.join("z"), &options, &mut Silent);
    refused(result.map(drop), Code::PermissionDenied);
}

#[test]
fn a_capability_changes_its_tree_and_nothing_else() {
    let world = world_with_trees();
    let owner = world.visit("owner", vec![world.owner_key()]);
    let visit = || tree(&world, &owner, "/tree", true);
    let source = world.path("client/send");
    fs::create_dir_all(source.join("d")).unwrap();
    fs::write(source.join("d/g"), b"sent").unwrap();
    std::os::unix::fs::symlink("/anywhere", source.join("link")).unwrap();
    let options = TreeOptions::default();
    let client = visit().connect().unwrap();
    let slash = std::path::PathBuf::from(format!("{}/", source.display()));
    let sent = client
        .upload_tree(&slash, b"/tree", &options, &mut Silent)
        .unwrap();
    assert_eq!((sent.files, sent.others, sent.failed), (1, 1, 0));
    assert_eq!(fs::read(world.path("root/tree/d/g")).unwrap(), b"sent");
    // A link leads outside, also one that came with the tree.
    for root in ["/other", "/tree/out/", "/tree/../other", "/new", "/"] {
        let client = visit().connect().unwrap();
        let sent = client.upload_tree(&slash, root.as_bytes(), &options, &mut Silent);
        assert!(sent.is_err() || sent.unwrap().failed > 0, "{root}");
    }
    assert!(!world.path("root/other/d").exists() && !world.path("root/new").exists());
    assert!(!world.path("root/d").exists());
    shut(zeros(&visit(), "/tree/out/f", 10));
    shut(zeros(&visit(), "/tree2", 10));
    for path in ["/other/f", "/tree/out/f", "/tree/../other/f", "/tree2"] {
        shut(client.call(Call::RemoveFile { path: path.into() }));
        let moved = Call::Rename {
            from: b"/tree/d/g".to_vec(),
            to: path.into(),
            overwrite: true,
        };
        shut(client.call(moved));
        let linked = Call::Link {
            existing: path.into(),
            path: b"/tree/linked".to_vec(),
        };
        shut(client.call(linked));
        let copied = Call::Copy {
            from: path.into(),
            to: b"/tree/copied".to_vec(),
            overwrite: true,
        };
        shut(client.call(copied));
    }
    assert_eq!(fs::read(world.path("root/other/f")).unwrap(), b"outside");
    assert_eq!(fs::read(world.path("root/tree2")).unwrap(), b"beside");
    // The content of the tree isn't shown to a server that sends, nor digests of a few bytes.
    let digest = |offset, length| Call::Checksum {
        path: b"/tree/d/f".to_vec(),
        offset,
        length,
        kind: xdfs::ChecksumKind::Blake3,
    };
    client.call(digest(0, None)).unwrap();
    let blocks = Call::Signatures {
        path: b"/tree/d/f".to_vec(),
        digest: xdfs::DigestKind::None,
        block_bytes: 1024,
        first: 0,
        count: 1,
    };
    for call in [
        digest(0, Some(1)),
        digest(1, None),
        digest(2, Some(1)),
        blocks,
    ] {
        refused(client.call(call.clone()), Code::PermissionDenied);
        let reading = tree(&world, &owner, "/tree", false).connect().unwrap();
        reading.call(call).unwrap();
    }
    let got = world.path("client/got");
    shut(visit().download("/tree/d/f", &got));
    shut(
        client
            .open_file(b"/tree/d/f", &OpenOptions::reading())
            .map(drop),
    );
    let result = client.download_tree(b"/tree", &got, &options, &mut Silent);
    assert!(result.is_err() || result.unwrap().failed > 0);
    assert!(!got.join("d/f").exists());
    client.call(stat("/tree/d/g")).unwrap();
    client
        .call(Call::RemoveTree {
            path: b"/tree/d".to_vec(),
        })
        .unwrap();
    assert!(!world.path("root/tree/d").exists());
}

#[test]
fn a_capability_shows_and_ends_no_copy_of_its_user() {
    let world = World::build(|builder, _| {
        builder.tunnels.fetch_from = vec![RuleConfig {
            user: Some("*".into()),
            host: "127.0.0.0/8".into(),
            ports: Some("*".into()),
            ..RuleConfig::default()
        }];
    });
    fs::create_dir(world.path("root/tree")).unwrap();
    let owner = world.visit("owner", vec![world.owner_key()]);
    let own = owner.connect().unwrap();
    let order = tree_order();
    let copy = order.copy;
    let start = Call::ThirdParty(ThirdPartyCall::StartTree(Box::new(order)));
    own.call(start).unwrap();
    let holder = holder();
    let text = issue(&owner, delegation(&holder, "/tree", false)).unwrap();
    let consents = TreeQuery {
        copy,
        from: 0,
        consent: Some(true),
    };
    let calls = [
        ThirdPartyCall::Status(copy),
        ThirdPartyCall::TreeStatus(consents),
        ThirdPartyCall::Cancel(copy),
    ]
    .map(Call::ThirdParty);
    for visit in [
        tree(&world, &owner, "/tree", false),
        tree(&world, &owner, "/tree", true),
        by(&world, &text, &holder),
    ] {
        let client = visit.connect().unwrap();
        for call in &calls {
            refused(client.call(call.clone()), Code::PermissionDenied);
        }
    }
    for call in calls {
        own.call(call).unwrap();
    }
}
