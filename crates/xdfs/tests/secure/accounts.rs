//! Sessions that run with the ids of local accounts. Only root can give them; the accounts are
//! those that a Debian system has.

use std::fs::{self, Metadata, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::thread;

use xdfs::security::{ExportConfig, ExportsConfig, GrantConfig, Rights, ServerSecurity};
use xdfs::{Code, Fault, LocalPlace, ServerBuilder, Side, Transfer};
use xdfs_sys::ids::{Ids, check_may_change};
use xdfs_testkit::nobody::become_nobody;

use crate::world::{PATIENCE, World, assert_same, finish};

/// User and group of an account.
fn owner(account: &str) -> (u32, u32) {
    let ids = Ids::of_account(account).unwrap().unwrap();
    (ids.uid(), ids.gid())
}

fn owner_of(meta: &Metadata) -> (u32, u32) {
    (meta.uid(), meta.gid())
}

/// Whether ids can be changed here; says so if not.
fn may_change_ids() -> bool {
    match check_may_change() {
        Ok(()) => true,
        Err(error) => {
            xdfs_testkit::skip::test(format_args!("ids can't be changed: {error}"));
            false
        }
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// The folders are root's; others may come by, and write where files are served.
fn open_up(security: &mut ServerSecurity, folder: &Path, accounts: &[(&str, &str)]) {
    mode(folder, 0o755);
    mode(&folder.join("root"), 0o777);
    mode(&folder.join("server"), 0o700);
    mode(&folder.join("client"), 0o700);
    let lines = accounts.iter();
    let table = lines.map(|(u, a)| ((*u).into(), (*a).into())).collect();
    security.accounts = Some(table);
}

/// A world whose users have accounts, where that can be.
fn world(accounts: &[(&str, &str)]) -> Option<World> {
    may_change_ids().then(|| World::with(|security, folder| open_up(security, folder, accounts)))
}

const BOTH: [(&str, &str); 2] = [("alice", "daemon"), ("bob", "games")];

#[track_caller]
fn assert_denied(result: Result<impl std::fmt::Debug, Fault>) -> Fault {
    let fault = result.unwrap_err();
    assert_eq!(fault.code, Code::PermissionDenied, "{fault}");
    assert_eq!(fault.side, Side::Remote, "{fault}");
    fault
}

#[test]
fn what_is_published_belongs_to_the_account() {
    let Some(world) = world(&BOTH) else { return };
    let alice = world.visit("alice", vec![world.user_key("alice")]);
    let bob = world.visit("bob", vec![world.user_key("bob")]);
    // The second is large enough to be written past the page cache.
    for (bytes, name) in [(3_000, "small"), (70 << 20, "large")] {
        let source = world.source(bytes);
        for (visit, account) in [(&alice, "daemon"), (&bob, "games")] {
            let target = format!("{name}-of-{account}");
            visit.clone().channels(4).upload(&source, &target).unwrap();
            let path = world.path("root").join(&target);
            assert_same(&source, &path);
            assert_eq!(owner_of(&fs::metadata(&path).unwrap()), owner(account));
        }
    }
    // What is the account's can be read and replaced by it, and the server's own files stay root's.
    let got = world.path("client/got");
    alice.download("large-of-daemon", &got).unwrap();
    assert_same(&got, &world.path("root/large-of-daemon"));
    alice.upload(&world.source(5), "small-of-daemon").unwrap();
    let key = fs::metadata(world.path("server/server.key")).unwrap();
    assert_eq!(owner_of(&key), (0, 0));
}

/// Two sessions run with other ids at one time, in all that they leave on the way.
#[test]
fn unfinished_files_and_journals_belong_to_the_account() {
    let Some(world) = world(&BOTH) else { return };
    let source = LocalPlace::Path(world.source(64 << 20));
    let mut running = Vec::new();
    for user in ["alice", "bob"] {
        let key = world.user_key(user);
        let visit = world.visit(user, vec![key]).channels(2).rate(2_000_000);
        let client = visit.connect().unwrap();
        let target = format!("of-{user}");
        let transfer = client.upload(&source, target.as_bytes(), &visit.transfer());
        running.push((client, transfer.unwrap()));
    }
    let owners = |user: &str| -> Vec<(u32, u32)> {
        let entries = fs::read_dir(world.path("root")).unwrap();
        let of_user = entries.map(Result::unwrap).filter(|entry| {
            let name = entry.file_name();
            name.to_str().unwrap().contains(&format!("of-{user}"))
        });
        // A file may be renamed between the look at its name and that at its owner.
        let metas = of_user.filter_map(|entry| entry.metadata().ok());
        metas.map(|meta| owner_of(&meta)).collect()
    };
    let both = |(_, transfer): &(_, Transfer)| transfer.is_finished();
    let seen = xdfs_testkit::wait::until(PATIENCE, || {
        assert!(!running.iter().any(both), "a transfer ended too early");
        // A partial file and its journal.
        ["alice", "bob"].iter().all(|user| owners(user).len() >= 2)
    });
    assert!(
        seen,
        "{:?}",
        fs::read_dir(world.path("root")).unwrap().count()
    );
    for (user, account) in BOTH {
        let owners = owners(user);
        assert!(owners.iter().all(|o| *o == owner(account)), "{owners:?}");
    }
    for (_, transfer) in &running {
        transfer.cancel();
    }
    for (_, transfer) in running {
        finish(transfer).unwrap_err();
    }
}

#[test]
fn the_kernel_judges() {
    let Some(world) = world(&BOTH) else { return };
    let (uid, gid) = owner("games");
    let secret = world.path("root/secret");
    fs::write(&secret, b"of games alone").unwrap();
    mode(&secret, 0o600);
    std::os::unix::fs::chown(&secret, Some(uid), Some(gid)).unwrap();
    // By its group alone, which the account of alice isn't in.
    let shared = world.path("root/shared");
    fs::write(&shared, b"of the group").unwrap();
    mode(&shared, 0o640);
    std::os::unix::fs::chown(&shared, Some(0), Some(gid)).unwrap();
    fs::create_dir(world.path("root/closed")).unwrap();

    let alice = world.visit("alice", vec![world.user_key("alice")]);
    let bob = world.visit("bob", vec![world.user_key("bob")]);
    let (source, got) = (world.source(1000), world.path("client/got"));
    for name in ["secret", "shared"] {
        assert_denied(alice.download(name, &got));
        assert!(!got.exists());
        bob.download(name, &got).unwrap();
        assert_same(&got, &world.path("root").join(name));
        fs::remove_file(&got).unwrap();
    }
    for visit in [&alice, &bob] {
        assert_denied(visit.upload(&source, "closed/new"));
    }
    assert_eq!(fs::read_dir(world.path("root/closed")).unwrap().count(), 0);
    // The thread that lets peers in is root's still, and reads what only root can.
    let carol = world.visit("carol", vec![world.user_key("carol")]);
    assert_denied(carol.upload(&source, "x"));
    alice.upload(&source, "x").unwrap();
}

#[test]
fn who_has_no_account_is_refused() {
    let Some(world) = world(&BOTH) else { return };
    let source = world.source(1000);
    let carol = world.visit("carol", vec![world.user_key("carol")]);
    let fault = assert_denied(carol.upload(&source, "x"));
    assert!(fault.cause.contains("no account"), "{fault}");
    // Nor has whoever runs the server one by that alone.
    let owner = world.visit("", vec![world.owner_key()]);
    assert_denied(owner.upload(&source, "x"));
    world.nothing_published();
}

#[test]
fn a_name_alone_makes_nobody_root() {
    let Some(world) = world(&[("*", "{user}"), ("admin", "root")]) else {
        return;
    };
    let source = world.source(1000);
    let as_user = |user: &str, target: &str| {
        let visit = world.visit(user, vec![world.user_key(user)]);
        visit.upload(&source, target)
    };
    let fault = assert_denied(as_user("root", "x"));
    assert!(fault.cause.contains("root"), "{fault}");
    assert_denied(as_user("no-such-account", "x"));
    world.nothing_published();
    for (user, account) in [
        ("nobody", "nobody"),
        ("daemon", "daemon"),
        ("admin", "root"),
    ] {
        as_user(user, user).unwrap();
        let meta = fs::metadata(world.path("root").join(user)).unwrap();
        assert_eq!(owner_of(&meta), owner(account), "{user}");
    }
}

/// Directories with the name of the user, where only root may make them and where everybody may.
#[test]
fn folders_of_users_belong_to_their_accounts() {
    if !may_change_ids() {
        return;
    }
    let world = World::with(|security, folder| {
        open_up(security, folder, &BOTH);
        for (name, bits) in [("homes", 0o755), ("anyone", 0o1777)] {
            let path = folder.join("root").join(name);
            fs::create_dir(&path).unwrap();
            mode(&path, bits);
        }
        let own = |name: &str| folder.join("root").join(name).join("{user}").join("in");
        let export = ["homes", "anyone"].map(|name| ExportConfig {
            name: name.into(),
            path: own(name).to_str().unwrap().into(),
            make: true,
            grant: vec![GrantConfig {
                user: Some("*".into()),
                rights: Rights::ALL,
                ..GrantConfig::default()
            }],
            ..ExportConfig::default()
        });
        security.exports = Some(ExportsConfig {
            export: export.into(),
            ..ExportsConfig::default()
        });
    });
    let source = world.source(1000);
    for (user, account) in BOTH {
        let visit = world.visit(user, vec![world.user_key(user)]);
        for name in ["homes", "anyone"] {
            visit.upload(&source, &format!("{name}/file")).unwrap();
            let own = world.path("root").join(name).join(user);
            for path in [own.clone(), own.join("in"), own.join("in/file")] {
                let meta = fs::metadata(&path).unwrap();
                assert_eq!(owner_of(&meta), owner(account), "{}", path.display());
            }
            assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        }
    }
}

/// Whoever can't give ids doesn't start to serve without.
#[test]
fn a_server_that_is_not_root_refuses_to_start() {
    let folder = tempfile::tempdir().unwrap();
    mode(folder.path(), 0o777);
    let own = folder.path().join("server");
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let bound = thread::spawn(move || {
        become_nobody();
        let mut security = ServerSecurity::new(own, "owner".into());
        security.accounts = Some([("alice".into(), "daemon".into())].into());
        let builder = ServerBuilder {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            root,
            security: Some(security),
            ..ServerBuilder::default()
        };
        builder.bind().map(drop)
    });
    let fault = bound.join().unwrap().unwrap_err();
    assert_eq!(fault.code, Code::PermissionDenied, "{fault}");
    assert!(fault.cause.contains("root"), "{fault}");
    // Nothing was made for it.
    assert!(!folder.path().join("server").exists());
}

/// A session that can't have the ids of its account ends before it has touched a file.
#[test]
fn a_session_never_goes_on_with_other_ids() {
    if !may_change_ids() {
        return;
    }
    let world = World::build_then(
        |builder, folder| open_up(builder.security.as_mut().unwrap(), folder, &BOTH),
        || {
            // What is read at each proof has to stay readable, and ids can't be changed any more.
            let sets = rustix::thread::capabilities(None).unwrap();
            let gone = rustix::thread::CapabilitySet::SETUID;
            let sets = rustix::thread::CapabilitySets {
                effective: sets.effective - gone,
                permitted: sets.permitted - gone,
                inheritable: sets.inheritable - gone,
            };
            rustix::thread::set_capabilities(None, sets).unwrap();
        },
    );
    let alice = world.visit("alice", vec![world.user_key("alice")]);
    let fault = assert_denied(alice.upload(&world.source(1000), "x"));
    assert!(fault.operation.contains("ids"), "{fault}");
    world.nothing_published();
}

/// What the account may not read isn't compared by the server's own rights.
#[test]
fn a_target_that_the_account_may_not_read_is_not_recognised() {
    let Some(world) = world(&BOTH) else { return };
    let source = world.source(100_000);
    let alice = world.visit("alice", vec![world.user_key("alice")]);
    let target = world.path("root/file");
    let again = || {
        let source = LocalPlace::Path(source.clone());
        let options = xdfs::TransferOptions::default();
        finish(alice.connect()?.upload(&source, b"/file", &options)?)
    };
    again().unwrap();
    assert_eq!(again().unwrap().resumed_bytes, 100_000);
    // Of the same permissions, and another's.
    mode(&source, 0o600);
    mode(&target, 0o600);
    std::os::unix::fs::chown(&target, Some(0), Some(0)).unwrap();
    let fault = again().unwrap_err();
    assert_eq!(fault.code, Code::AlreadyExists, "{fault}");
    assert_same(&source, &target);
}
