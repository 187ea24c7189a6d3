//! Who may open what, what that costs, and what the audit log tells of it.

use std::fs;
use std::path::PathBuf;

use xdfs::security::{
    ClientSecurity, Credential, ExportConfig, ExportsConfig, GrantConfig, Level, NewHosts, Rights,
    ServerSecurity, TrustPolicy, make_key,
};
use xdfs::{
    Address, Call, Client, ClientOptions, Code, Fault, Invitation, LockRange, OpenOptions,
    RemotePlace,
};
use xdfs_proto::file::{Extent, FileCall, FileFlags, FileOwner};

use crate::support::{Folders, Serving};
use crate::{both, open};

/// A server with one export "e" and users who have rights there.
pub(crate) struct Scene {
    pub(crate) folders: Folders,
    serving: Serving,
}

impl Scene {
    pub(crate) fn new(
        seed: u64,
        users: &[(&str, Rights)],
        change: impl FnOnce(&mut ExportConfig),
    ) -> Self {
        let folders = Folders::new(seed);
        let state = folders.here("server");
        fs::create_dir_all(state.join("keys")).unwrap();
        let mut export = ExportConfig {
            name: "e".into(),
            path: folders.root().to_str().unwrap().into(),
            ..ExportConfig::default()
        };
        for (user, rights) in users {
            let key = folders.here(user);
            let line = make_key(&key, user).unwrap().to_line(user) + "\n";
            fs::write(state.join("keys").join(user), line).unwrap();
            export.grant.push(GrantConfig {
                user: Some((*user).into()),
                rights: *rights,
                ..GrantConfig::default()
            });
        }
        change(&mut export);
        let mut security = ServerSecurity::new(state, "owner".into());
        security.audit = Some(folders.here("audit"));
        security.exports = Some(ExportsConfig {
            export: vec![export],
            ..ExportsConfig::default()
        });
        let serving = Serving::start(&folders.root(), |b| b.security = Some(security));
        Self { folders, serving }
    }

    pub(crate) fn client(&self, user: &str) -> Client {
        let place = RemotePlace {
            user: Some(user.into()),
            address: Address::Host {
                host: self.serving.addr.ip().to_string(),
                port: self.serving.addr.port(),
            },
            path: Vec::new(),
            invitation: Invitation::default(),
            profile: None,
            stack: None,
        };
        let trust = TrustPolicy {
            known_hosts: self.folders.here("known_hosts"),
            pins: Vec::new(),
            roots: Vec::new(),
            system_roots: false,
            new_hosts: NewHosts::Accept,
        };
        let options = ClientOptions {
            security: Some(ClientSecurity {
                trust,
                credentials: vec![Credential::Key(self.folders.here(user))],
                level: Level::Private,
            }),
            ..ClientOptions::default()
        };
        Client::connect(&place, options).unwrap()
    }

    pub(crate) fn there(&self, name: &str) -> PathBuf {
        self.folders.there(name)
    }
}

fn writing(create: bool) -> OpenOptions {
    OpenOptions {
        write: true,
        create,
        ..OpenOptions::default()
    }
}

#[test]
fn rights_decide_what_is_opened() {
    let users = [
        ("reader", Rights::READ),
        ("maker", Rights::CREATE),
        ("writer", Rights::WRITE),
    ];
    let scene = Scene::new(1, &users, |_| {});
    fs::write(scene.there("f"), b"content").unwrap();
    let fails = |client: &Client, path: &str, options: &OpenOptions| {
        let fault = client.open_file(path.as_bytes(), options).unwrap_err();
        assert_eq!(fault.path, path.as_bytes(), "{fault}");
        fault.code
    };
    let denied = Code::PermissionDenied;
    let reading = OpenOptions::reading();

    let reader = scene.client("reader");
    assert_eq!(open(&reader, "e/f", &reading).metadata().unwrap().size, 7);
    for options in [writing(false), writing(true), both()] {
        assert_eq!(fails(&reader, "e/f", &options), denied);
        assert_eq!(fails(&reader, "e/new", &options), denied);
    }
    assert_eq!(fails(&reader, "e/none", &reading), Code::NotFound);
    assert_eq!(fails(&reader, "x/f", &reading), Code::NotFound);
    assert_eq!(fails(&reader, "e/../f", &reading), Code::PathEscape);

    let maker = scene.client("maker");
    assert_eq!(fails(&maker, "e/f", &reading), denied);
    assert_eq!(fails(&maker, "e/f", &writing(true)), denied);
    assert_eq!(fails(&maker, "e/f", &OpenOptions::writing()), denied);
    let file = open(&maker, "e/made", &writing(true));
    file.write_at(0, b"x").unwrap();
    file.close().unwrap();
    assert_eq!(fails(&maker, "e/made", &writing(true)), denied);
    assert_eq!(fails(&maker, "e/other", &both()), denied);

    let writer = scene.client("writer");
    assert_eq!(fails(&writer, "e/new", &writing(true)), denied);
    assert_eq!(fails(&writer, "e/new", &writing(false)), Code::NotFound);
    let new = OpenOptions {
        create_new: true,
        ..writing(true)
    };
    assert_eq!(fails(&writer, "e/new", &new), denied);
    open(&writer, "e/f", &OpenOptions::writing())
        .close()
        .unwrap();
    assert_eq!(fs::read(scene.there("f")).unwrap(), b"");
    assert_eq!(fs::read(scene.there("made")).unwrap(), b"x");
    assert!(!scene.there("new").exists());
}

#[test]
fn what_another_user_holds_is_worth_nothing() {
    let users = [
        ("alice", Rights::ALL),
        ("bob", Rights::LIST),
        ("carol", Rights::ALL),
    ];
    let scene = Scene::new(2, &users, |_| {});
    let alice = scene.client("alice");
    let (bob, carol) = (scene.client("bob"), scene.client("carol"));
    let owner = FileOwner([7; 16]);
    let opening = |identity| {
        Call::File(FileCall::Open {
            path: b"e/f".to_vec(),
            flags: FileFlags {
                read: true,
                write: true,
                ..FileFlags::default()
            },
            mode: None,
            owner,
            identity,
        })
    };
    fs::write(scene.there("f"), b"content").unwrap();
    let handle = |answer| match answer {
        xdfs::Answer::File(xdfs_proto::file::FileAnswer::Opened {
            handle, identity, ..
        }) => (handle, identity),
        other => panic!("{other:?}"),
    };
    let (mine, identity) = handle(alice.call(opening(None)).unwrap());
    let read = |client: &Client, handle| -> Result<(), Fault> {
        let extents = vec![Extent {
            offset: 0,
            length: 7,
        }];
        let call = FileCall::Read {
            handle,
            locked: false,
            extents,
        };
        client.call(Call::File(call)).map(|_| ())
    };
    read(&alice, mine).unwrap();
    // The handle is of her session, and everything that it stands for of her.
    assert_eq!(read(&bob, mine).unwrap_err().code, Code::Stale);
    let fault = bob.call(opening(Some(identity))).unwrap_err();
    assert_eq!(fault.code, Code::PermissionDenied);
    let (theirs, same) = handle(carol.call(opening(Some(identity))).unwrap());
    assert_eq!(same, identity);
    let lock = |handle| {
        Call::File(FileCall::Lock {
            handle,
            range: LockRange::ALL,
            exclusive: true,
            lease_s: 60,
            wait_ms: 0,
        })
    };
    // One owner, and two users: they keep each other out, and don't close each other's file.
    alice.call(lock(mine)).unwrap();
    assert_eq!(carol.call(lock(theirs)).unwrap_err().code, Code::Busy);
    read(&alice, mine).unwrap();
    // The same user in another session: what was open before isn't any more.
    let again = scene.client("alice");
    let (next, _) = handle(again.call(opening(Some(identity))).unwrap());
    assert_eq!(read(&alice, mine).unwrap_err().code, Code::Stale);
    read(&again, next).unwrap();
    again.call(lock(next)).unwrap();
    let wrong = xdfs::FileIdentity {
        born_ns: identity.born_ns + 1,
        ..identity
    };
    let fault = again.call(opening(Some(wrong))).unwrap_err();
    assert_eq!(fault.code, Code::Stale);
}

#[test]
fn quotas_hold_in_the_middle_of_a_file() {
    let scene = Scene::new(3, &[("u", Rights::ALL)], |export| {
        export.quota_bytes = Some(100_000);
        export.quota_files = Some(2);
        export.largest_file = Some(80_000);
    });
    let client = scene.client("u");
    let file = open(&client, "e/a", &both());
    file.write_at(0, &[1; 70_000]).unwrap();
    file.sync().unwrap();
    // Over the longest file, and over the quota with another one.
    file.write_at(70_000, &[2; 10_001]).unwrap();
    let fault = file.sync().unwrap_err();
    assert_eq!(
        (fault.code, &*fault.path),
        (Code::QuotaExceeded, &b"e/a"[..])
    );
    assert_eq!(file.set_len(80_001).unwrap_err().code, Code::QuotaExceeded);
    let other = open(&client, "e/b", &both());
    other.write_at(29_999, b"x").unwrap();
    other.sync().unwrap();
    other.write_at(30_000, b"x").unwrap();
    assert_eq!(other.sync().unwrap_err().code, Code::QuotaExceeded);
    // What is there can be written again, and made shorter.
    other.write_at(0, &[3; 30_000]).unwrap();
    other.sync().unwrap();
    file.set_len(60_000).unwrap();
    other.write_at(30_000, &[4; 10_000]).unwrap();
    other.sync().unwrap();
    assert_eq!(fs::metadata(scene.there("b")).unwrap().len(), 40_000);
    let fault = client.open_file(b"e/c", &both()).unwrap_err();
    assert_eq!(fault.code, Code::QuotaExceeded);
    assert!(!scene.there("c").exists());
    // What was removed while it was open is given back in the end.
    let remove = Call::RemoveFile {
        path: b"e/b".to_vec(),
    };
    client.call(remove).unwrap();
    other.write_at(40_000, b"unseen").unwrap();
    other.close().unwrap();
    let append = OpenOptions {
        append: true,
        create: true,
        ..OpenOptions::default()
    };
    let log = open(&client, "e/c", &append);
    assert_eq!(log.append(&[5; 40_000]).unwrap(), 0);
    assert_eq!(log.append(b"x").unwrap_err().code, Code::QuotaExceeded);
    log.close().unwrap();
    // A file that has its name may be opened with a full quota, and emptied.
    let file = open(&client, "e/a", &OpenOptions::writing());
    file.write_at(0, &[6; 60_000]).unwrap();
    file.close().unwrap();
}

#[test]
fn the_log_tells_what_was_opened_and_how_much_was_done() {
    let scene = Scene::new(4, &[("u", Rights::READ | Rights::CREATE)], |_| {});
    let client = scene.client("u");
    let file = open(&client, "e/a", &both());
    file.write_at(0, &[1; 1000]).unwrap();
    file.read_at(0, &mut [0; 10]).unwrap();
    file.close().unwrap();
    client.open_file(b"e/a", &both()).unwrap_err();
    drop(client);
    let text = fs::read_to_string(scene.folders.here("audit")).unwrap();
    let line = |kind: &str| {
        let mut lines = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line
        });
        let found = lines.find(|line| line["event"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} in {text}"))
    };
    let opened = line("open");
    assert_eq!(
        (&opened["path"], &opened["user"]),
        (&"e/a".into(), &"u".into())
    );
    assert_eq!(opened["operation"], "make a file");
    let closed = line("close");
    assert_eq!(
        (&closed["bytes"], &closed["written"]),
        (&10.into(), &1000.into())
    );
    assert_eq!(
        (&closed["path"], &closed["result"]),
        (&"e/a".into(), &"ok".into())
    );
    assert_eq!(line("refuse")["result"], "permission-denied");
}
