//! Packs in exports: rights and scopes of each entry, and quotas.

use xdfs_proto::Limits;
use xdfs_proto::pack::{
    Content, Entry, Failures, Metadata, Owner, PackReader, PackRequest, PackWriter, Preserve,
};
use xdfs_proto::path::Call;

use super::*;

fn entry<'a>(path: &'a str, content: Content<'a>) -> Entry<'a> {
    Entry {
        path: path.as_bytes(),
        metadata: Metadata::default(),
        content,
    }
}

fn file<'a>(path: &'a str, data: &'a str) -> Entry<'a> {
    entry(path, Content::File(data.as_bytes()))
}

fn pack(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut writer = PackWriter::new(Vec::new(), 1 << 20);
    for entry in entries {
        assert!(writer.entry(entry));
    }
    let (buffer, len) = writer.finish();
    buffer[..len].to_vec()
}

fn send(store: &dyn Store, root: &str, entries: &[Entry<'_>]) -> Result<Failures, Fault> {
    let how = PackOptions {
        overwrite: true,
        ..PackOptions::default()
    };
    store.write_pack(root.as_bytes(), how, &pack(entries))
}

/// The answer for each name: its content, or the code of the fault and its path.
fn take(store: &dyn Store, root: &str, names: &[&str]) -> Result<Vec<String>, Fault> {
    let request = PackRequest {
        keep: Preserve::default(),
        follow: false,
        file_bytes_max: 1 << 16,
        names: names.iter().map(|name| name.as_bytes().to_vec()).collect(),
    };
    let mut writer = PackWriter::new(Vec::new(), 1 << 20);
    store.read_pack(root.as_bytes(), &request, &mut writer)?;
    let (buffer, len) = writer.finish();
    let limits = Limits::default();
    let entries = PackReader::new(&buffer[..len], &limits).map(Result::unwrap);
    Ok(entries
        .map(|entry| match entry.content {
            Content::File(data) => String::from_utf8_lossy(data).into_owned(),
            Content::Failed(fault) => {
                format!("{} {}", fault.code, fault.path.escape_ascii())
            }
            other => format!("{other:?}"),
        })
        .collect())
}

#[track_caller]
fn assert_codes(failures: &Failures, expected: &[Option<Code>]) {
    for (number, code) in (0..).zip(expected) {
        let found = failures.of(number).map(|fault| fault.code);
        assert_eq!(found, *code, "{number}: {:?}", failures.of(number));
    }
}

const DATA: &str = r#"
    [[export]]
    name = "data"
    path = "ROOT"
    grant = [
        { user = "alice", rights = "all" },
        { user = "reader", rights = ["read", "list"] },
        { user = "blind", rights = ["read"] },
        { user = "dropper", rights = ["create"] },
    ]
"#;

struct Scene {
    temp: tempfile::TempDir,
    exports: Exports,
}

impl Scene {
    fn new(settings: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let exports = parse(temp.path(), settings).unwrap();
        Self { temp, exports }
    }

    fn with_limits(limits: &str) -> Self {
        Self::new(&format!(
            "[[export]]\nname = 'q'\npath = 'ROOT'\n{limits}\n
             grant = [{{ user = 'alice', rights = 'all' }}]"
        ))
    }

    fn of(&self, principal: &Principal) -> Arc<dyn Store> {
        store(&self.exports, principal)
    }

    fn text(&self, name: &str) -> String {
        text(&self.temp.path().join(name))
    }

    #[track_caller]
    fn assert_used(&self, bytes: u64, files: u64) {
        let ledger = self.exports.shared.ledger(self.temp.path());
        assert_eq!(ledger.used(), (bytes, files));
    }
}

/// Two exports, and what a user may do in each.
fn two_exports() -> Scene {
    let export = |name: &str, rights: &str| {
        format!(
            "[[export]]\nname = '{name}'\npath = 'ROOT/{name}'\n
             grant = [{{ user = 'alice', rights = {rights} }}]\n"
        )
    };
    let temp = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        std::fs::create_dir(temp.path().join(name)).unwrap();
        std::fs::write(temp.path().join(name).join("old"), name).unwrap();
    }
    let other = export("c", "'all'").replace("alice", "bob");
    let text = export("a", "'all'") + &export("b", "['read', 'list']") + &other;
    let exports = parse(temp.path(), &text).unwrap();
    Scene { temp, exports }
}

#[test]
fn packs_above_the_exports_are_divided_among_them() {
    let scene = two_exports();
    let alice = scene.of(&user("alice"));
    for root in ["/", "", "."] {
        let names = ["a/old", "b/old", "b/none", "c/old", "none/x", "a", "a/old"];
        let taken = take(&*alice, root, &names).unwrap();
        assert_eq!(
            (&*taken[0], &*taken[1], &*taken[6]),
            ("a", "b", "a"),
            "{root}"
        );
        for (at, path) in [(2, "b/none"), (3, "c"), (4, "none")] {
            assert!(taken[at].starts_with("not-found "), "{taken:?}");
            assert!(taken[at].contains(path), "{taken:?}");
        }
        assert_eq!(taken[5], "Directory");
        let hard = entry("a/new/link", Content::HardLink(b"a/new/f"));
        let across = entry("a/across", Content::HardLink(b"b/old"));
        let failures = send(
            &*alice,
            root,
            &[
                entry("", Content::Directory),
                entry("a", Content::Directory),
                file("a/new/f", "new"),
                file("b/f", "denied"),
                hard,
                across,
                file("none/f", "nowhere"),
                file("top", "nowhere"),
                file("a", "a directory"),
                file("a/last", "last"),
                entry("a", Content::Attributes),
                entry("", Content::Attributes),
            ],
        );
        use Code::{CrossDevice, IsDirectory, NotFound, PermissionDenied};
        let denied = Some(PermissionDenied);
        let (gone, across) = (Some(NotFound), Some(CrossDevice));
        assert_codes(
            &failures.unwrap(),
            &[
                None,
                None,
                None,
                denied,
                None,
                across,
                gone,
                gone,
                Some(IsDirectory),
                None,
                None,
                None,
            ],
        );
        for (name, content) in [
            ("a/new/f", "new"),
            ("a/new/link", "new"),
            ("a/last", "last"),
        ] {
            assert_eq!(scene.text(name), content);
        }
        std::fs::remove_dir_all(scene.temp.path().join("a/new")).unwrap();
        let sync = Call::Sync {
            path: root.as_bytes().to_vec(),
        };
        alice.call(&sync, &mut |_| Ok(())).unwrap();
    }
    // A damaged pack changes nothing.
    let mut damaged = pack(&[file("a/fresh", "x")]);
    damaged.push(0xee);
    let fault = alice
        .write_pack(b"/", PackOptions::default(), &damaged)
        .unwrap_err();
    assert_eq!(fault.code, Code::MalformedFrame);
    assert!(!scene.temp.path().join("a/fresh").exists());
    // Attributes of what isn't the user's to set.
    let mut owned = entry("", Content::Attributes);
    owned.metadata.owner = Some(Owner {
        uid: 1,
        gid: 1,
        names: None,
    });
    let failures = send(&*alice, "/", &[owned]).unwrap();
    assert_codes(&failures, &[Some(Code::PermissionDenied)]);
}

#[test]
fn scopes_hold_above_the_exports_too() {
    let scene = two_exports();
    std::fs::create_dir(scene.temp.path().join("a/in")).unwrap();
    let scoped = scene.of(&scoped("alice", &[("a/in", Rights::ALL)]));
    let failures = send(&*scoped, "/", &[file("a/in/f", "1"), file("a/out", "2")]).unwrap();
    assert_codes(&failures, &[None, Some(Code::PermissionDenied)]);
    let taken = take(&*scoped, "/", &["a/in/f", "a/old", "b/old"]).unwrap();
    assert_eq!(taken[0], "1");
    assert!(taken[1].starts_with("permission-denied"), "{taken:?}");
    assert!(taken[2].starts_with("permission-denied"), "{taken:?}");
    let sync = Call::Sync {
        path: b"/".to_vec(),
    };
    scoped.call(&sync, &mut |_| Ok(())).unwrap();
}

#[test]
fn each_right_allows_what_it_says() {
    let scene = Scene::new(DATA);
    let alice = scene.of(&user("alice"));
    let entries = [
        file("d/f", "old"),
        entry("d/link", Content::Symlink(b"f")),
        entry("d/hard", Content::HardLink(b"d/f")),
    ];
    assert!(send(&*alice, "/data", &entries).unwrap().is_empty());
    let names = ["d/f", "d", "gone"];
    let root = take(&*scene.of(&user("reader")), "data", &names).unwrap();
    assert_eq!(root, ["old", "Directory", "not-found data/gone"]);
    let blind = take(&*scene.of(&user("blind")), "/data", &names).unwrap();
    assert_eq!(
        blind,
        ["old", "permission-denied /data/d", "not-found /data/gone"]
    );
    let dropper = scene.of(&user("dropper"));
    assert_fault(
        take(&*dropper, "data/d", &["f"]),
        Code::PermissionDenied,
        "data/d",
    );
    let reader = scene.of(&user("reader"));
    let sent = send(&*reader, "data/d", &[file("x", "x")]);
    assert_fault(sent, Code::PermissionDenied, "data/d");
    let owned = Metadata {
        owner: Some(Owner {
            uid: 0,
            gid: 0,
            names: None,
        }),
        ..Metadata::default()
    };
    let failures = send(
        &*dropper,
        "data/d",
        &[
            file("new", "new"),
            file("f", "replaced"),
            entry("f", Content::Attributes),
            entry("stolen", Content::HardLink(b"f")),
            Entry {
                metadata: owned,
                ..file("owned", "x")
            },
        ],
    )
    .unwrap();
    let denied = Some(Code::PermissionDenied);
    assert_codes(&failures, &[None, denied, denied, denied, denied]);
    let paths: Vec<_> = failures.runs().iter().map(|run| &*run.fault.path).collect();
    assert_eq!(paths[0], b"data/d/f");
    assert_eq!(scene.text("d/f"), "old");
    assert_eq!(names_of(&scene, "d"), ["f", "hard", "link", "new"]);
}

fn names_of(scene: &Scene, dir: &str) -> Vec<String> {
    names(&scene.temp.path().join(dir))
}

#[test]
fn no_entry_leaves_its_scope() {
    let scene = Scene::new(DATA);
    let all = scene.of(&user("alice"));
    send(
        &*all,
        "data",
        &[file("a/f", "a"), file("b/f", "b"), file("ab/f", "ab")],
    )
    .unwrap();
    let some = scoped(
        "alice",
        &[
            ("data/a", Rights::READ | Rights::CREATE),
            ("data/a/w", Rights::ALL),
        ],
    );
    let store = scene.of(&some);
    let failures = send(
        &*store,
        "data",
        &[
            file("a/new", "x"),
            file("b/new", "x"),
            file("ab/new", "x"),
            file("a/f", "replaced"),
            file("a/w/f", "x"),
            file("a/w/f", "replaced"),
            file("new", "x"),
            entry("a/w/link", Content::Symlink(b"../../b")),
            entry("a/w/hard", Content::HardLink(b"a/f")),
            entry("a/hard", Content::HardLink(b"b/f")),
            entry("a/same", Content::HardLink(b"a/f")),
            entry("b", Content::Attributes),
        ],
    )
    .unwrap();
    let denied = Some(Code::PermissionDenied);
    assert_codes(
        &failures,
        &[
            None,
            denied,
            denied,
            Some(Code::AlreadyExists),
            None,
            None,
            denied,
            denied,
            denied,
            denied,
            None,
            denied,
        ],
    );
    assert_eq!(scene.text("a/f"), "a");
    assert_eq!(scene.text("a/w/f"), "replaced");
    assert_eq!(names_of(&scene, "b"), ["f"]);
    let read = take(&*store, "data", &["a/f", "b/f", "ab/f", "b"]).unwrap();
    let expected = [
        "a",
        "permission-denied data/b/f",
        "permission-denied data/ab/f",
        "permission-denied data/b",
    ];
    assert_eq!(read, expected);
    // Also with a root outside of the scope, and one that doesn't exist for this user.
    let outside = send(&*store, "data/b", &[file("new", "x")]);
    assert_fault(outside, Code::PermissionDenied, "data/b");
    for root in ["other", "/other/x"] {
        assert_fault(send(&*store, root, &[file("f", "x")]), Code::NotFound, root);
        assert_fault(take(&*store, root, &["f"]), Code::NotFound, root);
    }
    let above = send(&*store, "", &[file("data/f", "x")]);
    assert_codes(&above.unwrap(), &[Some(Code::PermissionDenied)]);
    let up = send(&*store, "data/a/../b", &[file("f", "x")]);
    assert_fault(up, Code::PathEscape, "data/a/../b");
    assert_fault(send(&*all, "mem:null", &[]), Code::NotDirectory, "mem:null");
}

#[test]
fn the_export_itself_keeps_its_mode() {
    let scene = Scene::new(DATA);
    let store = scene.of(&user("alice"));
    let with = |metadata| Entry {
        metadata,
        ..entry("", Content::Attributes)
    };
    let mode = Metadata {
        mode: Some(0o777),
        ..Metadata::default()
    };
    let times = Metadata {
        mtime_ns: Some(1),
        ..Metadata::default()
    };
    let failures = send(&*store, "data", &[with(mode.clone()), with(times)]).unwrap();
    assert_codes(&failures, &[Some(Code::PermissionDenied), None]);
    assert!(send(&*store, "data/d", &[with(mode)]).unwrap().is_empty());
}

#[test]
fn each_user_has_a_directory() {
    let scene = Scene::new(
        "[[export]]\nname = 'home'\npath = 'ROOT/{user}'\nmake = true\n
         grant = [{ user = '*', rights = 'all' }]",
    );
    for name in ["alice", "bob"] {
        let store = scene.of(&user(name));
        assert!(
            send(&*store, "home/d", &[file("f", name)])
                .unwrap()
                .is_empty()
        );
        assert_eq!(take(&*store, "home", &["d/f"]).unwrap(), [name]);
        assert_eq!(scene.text(&format!("{name}/d/f")), name);
    }
}

#[test]
fn what_is_made_is_counted_and_what_fails_is_not() {
    let scene = Scene::with_limits("quota_bytes = 1000\nquota_files = 100");
    let store = scene.of(&user("alice"));
    let failures = send(
        &*store,
        "q/new/root",
        &[
            file("a", "12345"),
            file("x/y/b", "12345"),
            entry("x", Content::Directory),
            entry("x/y/c", Content::HardLink(b"a")),
            entry("s", Content::Symlink(b"a")),
            entry("p", Content::Fifo),
            entry("a", Content::Directory),
            file("x", "123"),
            entry("a", Content::Attributes),
        ],
    )
    .unwrap();
    let expected = [
        None,
        None,
        None,
        None,
        None,
        None,
        Some(Code::NotDirectory),
        Some(Code::IsDirectory),
        None,
    ];
    assert_codes(&failures, &expected);
    // new, root, x, y; a, b, c, s, p.
    scene.assert_used(15, 9);
    let failures = send(
        &*store,
        "q/new/root",
        &[file("a", "1"), file("x/y/b", "123456")],
    );
    assert!(failures.unwrap().is_empty());
    scene.assert_used(12, 9);
    // The count equals that of a new scan.
    let call = Call::RemoveTree {
        path: b"q/new".into(),
    };
    store.call(&call, &mut |_| Ok(())).unwrap();
    scene.assert_used(0, 0);
}

#[test]
fn a_quota_that_ends_within_a_pack() {
    let scene = Scene::with_limits("quota_bytes = 10\nquota_files = 5");
    let store = scene.of(&user("alice"));
    let failures = send(
        &*store,
        "q",
        &[
            file("a", "1234"),
            file("b", "12345678"),
            file("c", "123456"),
            file("a", "12"),
            file("d", "12"),
            file("e", "1"),
        ],
    )
    .unwrap();
    let full = Some(Code::QuotaExceeded);
    // Replaced bytes are released at the end of the pack.
    assert_codes(&failures, &[None, full, None, None, full, full]);
    let fault = failures.of(1).unwrap();
    assert_eq!(fault.path, b"q/b");
    scene.assert_used(8, 2);
    assert!(send(&*store, "q", &[file("d", "12")]).unwrap().is_empty());
    scene.assert_used(10, 3);
    // One of the same length needs nothing.
    assert!(send(&*store, "q", &[file("a", "21")]).unwrap().is_empty());
    let failures = send(&*store, "q", &[entry("h", Content::HardLink(b"a"))]).unwrap();
    assert_codes(&failures, &[full]);
    // Parent directories count too, however deep.
    let failures = send(&*store, "q", &[file("x/y/z/f", ""), file("e", "")]).unwrap();
    assert_codes(&failures, &[full, None]);
    assert_eq!(names_of(&scene, ""), ["a", "c", "d", "e"]);
    scene.assert_used(10, 4);
    let failures = send(&*store, "q/u/v", &[]);
    assert_fault(failures, Code::QuotaExceeded, "q/u/v");
    scene.assert_used(10, 5);
}

#[test]
fn no_file_is_too_large() {
    let scene = Scene::with_limits("largest_file = 5");
    let store = scene.of(&user("alice"));
    let failures = send(&*store, "q", &[file("a", "123456"), file("b", "12345")]).unwrap();
    assert_codes(&failures, &[Some(Code::QuotaExceeded), None]);
    assert_eq!(names_of(&scene, ""), ["b"]);
}

/// Set-user-id is set, with an owner, by users who may change the whole export, and if the server
/// is root's; otherwise the entry reports what was not kept.
#[cfg(unix)]
#[test]
fn who_is_held_to_a_part_makes_nothing_that_runs_as_somebody_else() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let scene = Scene::new(DATA);
    let meta = std::fs::metadata(scene.temp.path()).unwrap();
    let program = |owned: bool| Entry {
        metadata: Metadata {
            mode: Some(0o4755),
            owner: owned.then_some(Owner {
                uid: meta.uid(),
                gid: meta.gid(),
                names: None,
            }),
            ..Metadata::default()
        },
        ..file("program", "x")
    };
    let mode = |name: &str| {
        let meta = std::fs::metadata(scene.temp.path().join(name)).unwrap();
        meta.permissions().mode() & 0o7777
    };
    let is_root = xdfs_sys::ids::effective_user() == Some(0);
    let token = scoped("alice", &[("data/d", Rights::ALL)]);
    for (who, is_kept) in [(user("alice"), is_root), (token, false)] {
        let store = scene.of(&who);
        let failures = send(&*store, "data/d", &[program(true)]).unwrap();
        let code = failures.of(0).map(|fault| fault.code);
        assert_eq!(code, (!is_kept).then_some(Code::PermissionDenied));
        assert_eq!(mode("d/program"), if is_kept { 0o4755 } else { 0o755 });
        assert!(
            send(&*store, "data/d", &[program(false)])
                .unwrap()
                .is_empty()
        );
        assert_eq!(mode("d/program"), 0o755);
    }
}

/// Set-user-id, set-group-id and sticky are set by no stranger, whatever the way; and only with
/// their owner from a pack.
#[cfg(unix)]
#[test]
fn strangers_set_no_special_bits() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let scene = Scene::new(
        "[[export]]\nname = 'data'\npath = 'ROOT'\npublic = true\nanonymous = 'all'
        grant = [{ user = 'alice', rights = 'all' }]",
    );
    let path = |name: &str| scene.temp.path().join(name);
    let mode = |name: &str| std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o7777;
    let set = |name: &str, mode: u32| {
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let call = |store: &dyn Store, call: Call| {
        let answer = store.call(&call, &mut |part| panic!("{part:?}"));
        answer.map(drop).map_err(|fault| fault.code)
    };
    let meta = std::fs::metadata(scene.temp.path()).unwrap();
    let owner = Owner {
        uid: meta.uid(),
        gid: meta.gid(),
        names: None,
    };
    let is_root = xdfs_sys::ids::effective_user() == Some(0);
    let token = scoped("alice", &[("data/d", Rights::ALL)]);
    for (who, is_stranger) in [(anonymous(), true), (token, true), (user("alice"), false)] {
        let store = scene.of(&who);
        for (number, bits) in (0..).zip([0o4000, 0o2000, 0o1000, 0o7000]) {
            let outcome = match is_stranger {
                true => Err(Code::PermissionDenied),
                false => Ok(()),
            };
            let wished = u16::try_from(bits | 0o755).unwrap();
            std::fs::create_dir_all(path("d/there")).unwrap();
            std::fs::write(path("d/file"), "x").unwrap();
            let set_mode = |name: &str| Call::SetMode {
                path: format!("data/d/{name}").into(),
                mode: bits | 0o755,
            };
            assert_eq!(call(&*store, set_mode("there")), outcome, "{bits:o}");
            let of_file = match bits {
                0o1000 => outcome,
                _ => Err(Code::PermissionDenied),
            };
            assert_eq!(call(&*store, set_mode("file")), of_file, "{bits:o}");
            let make = Call::MakeDirectory {
                path: format!("data/d/made{number}").into(),
                mode: Some(bits | 0o755),
                parents: true,
            };
            assert_eq!(call(&*store, make), outcome, "{bits:o}");
            // A pack says what its sender wishes: what can't be had is left out.
            let wishes = |content| Entry {
                metadata: Metadata {
                    mode: Some(wished),
                    ..Metadata::default()
                },
                ..entry("new", content)
            };
            let given = 0o755 | if is_stranger { 0 } else { bits & 0o1000 };
            for content in [Content::Directory, Content::Attributes] {
                assert!(
                    send(&*store, "data/d", &[wishes(content)])
                        .unwrap()
                        .is_empty()
                );
                assert_eq!(mode("d/new"), given, "{bits:o}");
            }
            // With an owner it is asked for, and so reported by a server that is root's.
            let mut asked = wishes(Content::Directory);
            asked.metadata.owner = Some(owner);
            let failures = send(&*store, "data/d", &[asked]).unwrap();
            let code = failures.of(0).map(|fault| fault.code);
            let is_reported = is_stranger && is_root;
            assert_eq!(code, is_reported.then_some(Code::PermissionDenied));
            let given = 0o755 | if is_stranger { 0 } else { bits };
            assert_eq!(mode("d/new"), given, "{bits:o}");
            std::fs::remove_dir(path("d/new")).unwrap();
            // What has the bits may keep them.
            set("d/there", bits | 0o700);
            assert_eq!(call(&*store, set_mode("there")), Ok(()), "{bits:o}");
            assert_eq!(mode("d/there"), bits | 0o755);
            std::fs::remove_dir_all(path("d")).unwrap();
            std::fs::create_dir(path("d")).unwrap();
        }
    }
}
