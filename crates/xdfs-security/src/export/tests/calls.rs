//! Calls about paths in exports: what each right allows, and what counts.

use xdfs_proto::path::{Account, Answer, Call, FileKind};

use super::*;

fn ask(store: &dyn Store, call: &Call) -> Result<Answer, Fault> {
    store.call(call, &mut |part| panic!("{part:?}"))
}

fn stat(path: &str) -> Call {
    Call::Stat {
        path: path.into(),
        follow: false,
    }
}

fn look_up(path: &str) -> Call {
    Call::LookUp {
        path: path.into(),
        accounts: vec![Account::User(0), Account::GroupNamed("root".into())],
    }
}

fn list(path: &str) -> Call {
    Call::List {
        path: path.into(),
        cursor: Vec::new(),
        entries_max: 100,
    }
}

fn make(path: &str, parents: bool) -> Call {
    Call::MakeDirectory {
        path: path.into(),
        mode: None,
        parents,
    }
}

fn remove(path: &str) -> Call {
    Call::RemoveFile { path: path.into() }
}

fn remove_tree(path: &str) -> Call {
    Call::RemoveTree { path: path.into() }
}

fn rename(from: &str, to: &str, overwrite: bool) -> Call {
    Call::Rename {
        from: from.into(),
        to: to.into(),
        overwrite,
    }
}

fn copy(from: &str, to: &str, overwrite: bool) -> Call {
    Call::Copy {
        from: from.into(),
        to: to.into(),
        overwrite,
    }
}

fn link(existing: &str, path: &str) -> Call {
    Call::Link {
        existing: existing.into(),
        path: path.into(),
    }
}

fn symlink(target: &str, path: &str) -> Call {
    Call::Symlink {
        target: target.into(),
        path: path.into(),
    }
}

fn truncate(path: &str, length: u64) -> Call {
    Call::Truncate {
        path: path.into(),
        length,
    }
}

fn set_mode(path: &str, mode: u32) -> Call {
    Call::SetMode {
        path: path.into(),
        mode,
    }
}

fn checksum(path: &str) -> Call {
    Call::Checksum {
        path: path.into(),
        offset: 0,
        length: None,
        kind: ChecksumKind::Blake3,
    }
}

fn read_link(path: &str) -> Call {
    Call::ReadLink { path: path.into() }
}

fn space(path: &str) -> Call {
    Call::Space { path: path.into() }
}

fn listed(store: &dyn Store, path: &str) -> Vec<String> {
    let Answer::Entries { entries, cursor } = ask(store, &list(path)).unwrap() else {
        panic!()
    };
    assert_eq!(cursor, None);
    let names = entries
        .into_iter()
        .map(|e| String::from_utf8(e.name).unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn fill(root: &Path) {
    std::fs::create_dir_all(root.join("d")).unwrap();
    std::fs::write(root.join("d/file"), "content").unwrap();
    std::fs::write(root.join("other"), "other").unwrap();
}

#[test]
fn each_right_allows_its_calls_and_no_others() {
    let temp = tempfile::tempdir().unwrap();
    let cases: [(&str, &str, Call); 20] = [
        ("list", "read", stat("e/d/file")),
        ("list", "", stat("e/d")),
        ("list", "", list("e/d")),
        ("list", "", look_up("e/none")),
        ("read", "", checksum("e/d/file")),
        ("read", "", read_link("e/link")),
        ("create", "", make("e/new", false)),
        ("create", "", make("e/n/e/w", true)),
        ("create", "", symlink("x", "e/new-link")),
        ("write", "", truncate("e/d/file", 3)),
        ("write", "", set_mode("e/d/file", 0o600)),
        ("delete", "", remove("e/d/file")),
        ("delete", "", remove_tree("e/d")),
        (
            "delete",
            "",
            Call::RemoveDirectory {
                path: b"e/empty".to_vec(),
            },
        ),
        ("create+delete", "", rename("e/d/file", "e/moved", false)),
        (
            "create+delete+write",
            "",
            rename("e/d/file", "e/other", true),
        ),
        ("create+read", "", copy("e/d/file", "e/copied", false)),
        ("create+read+write", "", copy("e/d/file", "e/other", true)),
        ("create+read", "", link("e/d/file", "e/linked")),
        ("read", "list", space("e")),
    ];
    for bits in 1..=31_u8 {
        let rights = Rights::from_bits(bits).unwrap();
        let words: Vec<String> = rights
            .to_string()
            .split(", ")
            .map(|w| format!("'{w}'"))
            .collect();
        for (i, (needs, or, call)) in cases.iter().enumerate() {
            let root = temp.path().join(format!("{bits}-{i}"));
            fill(&root);
            std::fs::create_dir(root.join("empty")).unwrap();
            #[cfg(unix)]
            std::os::unix::fs::symlink("other", root.join("link")).unwrap();
            let settings = format!(
                "[[export]]\nname = 'e'\npath = 'ROOT'\n
                 grant = [{{ user = 'alice', rights = [{}] }}]",
                words.join(", ")
            );
            let exports = parse(&root, &settings).unwrap();
            let store = store(&exports, &user("alice"));
            let has = |words: &str| {
                !words.is_empty()
                    && words
                        .split('+')
                        .all(|w| rights.contains(Rights::from_word(w).unwrap()))
            };
            let allowed = has(needs) || has(or) || matches!(call, Call::Space { .. });
            let result = ask(&*store, call);
            match &result {
                Ok(_) => assert!(allowed, "{rights}: {call:?}"),
                Err(fault) => {
                    assert!(!allowed, "{rights}: {call:?}: {fault}");
                    assert_eq!(fault.code, Code::PermissionDenied, "{fault}");
                    assert_eq!(fault.operation, call.operation());
                }
            }
            // A refused call changes nothing.
            if !allowed {
                assert_eq!(names(&root), ["d", "empty", "link", "other"]);
                assert_eq!(text(&root.join("d/file")), "content");
                assert_eq!(text(&root.join("other")), "other");
            }
        }
    }
}

fn two(root: &Path) -> Exports {
    for name in ["a", "b", "home/alice", "home/bob"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
        fill(&root.join(name));
    }
    let settings = "
        [[export]]
        name = 'a'
        path = 'ROOT/a'
        grant = [{ user = 'alice', rights = 'all' }]
        [[export]]
        name = 'b'
        path = 'ROOT/b'
        public = true
        grant = [{ user = 'alice', rights = 'all' }]
        [[export]]
        name = 'home'
        path = 'ROOT/home/{user}'
        grant = [{ user = '*', rights = 'all' }]
    ";
    parse(root, settings).unwrap()
}

#[test]
fn the_place_of_all_exports_shows_those_that_a_user_may_see() {
    let temp = tempfile::tempdir().unwrap();
    let exports = two(temp.path());
    let shown = |principal: &Principal| listed(&*store(&exports, principal), "/");
    assert_eq!(shown(&user("alice")), ["a", "b", "home"]);
    assert_eq!(shown(&user("bob")), ["b", "home"]);
    assert_eq!(shown(&anonymous()), ["b"]);
    let scopes = [("a/d", Rights::READ)];
    assert_eq!(shown(&scoped("alice", &scopes)), ["a"]);
    let store = store(&exports, &user("alice"));
    let Answer::Attributes(found) = ask(&*store, &stat("")).unwrap() else {
        panic!()
    };
    assert_eq!(found.kind, FileKind::Directory);
    let mut cursor = Vec::new();
    for expected in ["a", "b", "home"] {
        let call = Call::List {
            path: b"/".to_vec(),
            cursor,
            entries_max: 1,
        };
        let Answer::Entries {
            entries,
            cursor: next,
        } = ask(&*store, &call).unwrap()
        else {
            panic!()
        };
        assert_eq!(entries[0].name, expected.as_bytes());
        assert_eq!(next.is_none(), expected == "home");
        cursor = next.unwrap_or_default();
    }
    for call in [make("/", true), remove_tree("/"), set_mode("", 0o777)] {
        assert_fault(
            ask(&*store, &call),
            Code::PermissionDenied,
            str::from_utf8(call.path()).unwrap(),
        );
    }
    assert_fault(ask(&*store, &checksum("/")), Code::IsDirectory, "/");
}

#[test]
fn accounts_are_looked_up_for_those_who_may_list_something() {
    let temp = tempfile::tempdir().unwrap();
    let exports = two(temp.path());
    let found = |principal: &Principal, path: &str| {
        let answer = ask(&*store(&exports, principal), &look_up(path))?;
        assert!(look_up(path).is_answered_by(&answer), "{answer:?}");
        Ok::<_, Fault>(answer)
    };
    let everything = found(&user("alice"), "a/d").unwrap();
    #[cfg(target_os = "linux")]
    assert_eq!(
        everything,
        Answer::Accounts(vec![
            Some(Account::UserNamed("root".into())),
            Some(Account::Group(0)),
        ])
    );
    for (name, paths) in [
        ("alice", &["", "/", "b", "mem:zero"][..]),
        ("bob", &["/", "home"]),
    ] {
        for path in paths {
            assert_eq!(
                found(&user(name), path).unwrap(),
                everything,
                "{name}: {path}"
            );
        }
    }
    // Strangers may list here, and learn no names.
    for path in ["/", "b/d"] {
        let nothing = Answer::Accounts(vec![None; 2]);
        assert_eq!(found(&anonymous(), path).unwrap(), nothing, "{path}");
    }
    assert_fault(found(&user("bob"), "a"), Code::NotFound, "a");
    assert_fault(found(&anonymous(), "home"), Code::NotFound, "home");
    assert_fault(found(&user("bob"), "../a"), Code::PathEscape, "../a");
    let reader = scoped("alice", &[("", Rights::READ)]);
    let part = scoped("alice", &[("a/d", Rights::LIST)]);
    assert_eq!(found(&part, "a/d/x").unwrap(), everything);
    for (principal, path) in [(&reader, "/"), (&reader, "a"), (&part, "/"), (&part, "a")] {
        let fault = assert_fault(found(principal, path), Code::PermissionDenied, path);
        assert_eq!(fault.operation, "look up users and groups for");
    }
}

#[test]
fn one_user_does_not_reach_the_tree_of_another() {
    let temp = tempfile::tempdir().unwrap();
    let exports = two(temp.path());
    let bob = store(&exports, &user("bob"));
    assert_eq!(listed(&*bob, "home"), ["d", "other"]);
    for path in [
        "home/../alice/other",
        "home/d/../../alice/other",
        "../a/other",
    ] {
        for call in [
            stat(path),
            remove(path),
            truncate(path, 0),
            rename("home/other", path, true),
        ] {
            assert_fault(ask(&*bob, &call), Code::PathEscape, path);
        }
    }
    for call in [
        stat("a/other"),
        remove("a/other"),
        list("a"),
        make("a/x", true),
        space("a"),
    ] {
        let path = str::from_utf8(call.path()).unwrap();
        assert_fault(ask(&*bob, &call), Code::NotFound, path);
    }
    #[cfg(unix)]
    {
        ask(&*bob, &symlink("../alice/other", "home/l")).unwrap();
        assert_fault(ask(&*bob, &checksum("home/l")), Code::PathEscape, "home/l");
        assert_fault(
            ask(&*bob, &set_mode("home/l", 0)),
            Code::PathEscape,
            "home/l",
        );
    }
    // Public access is read-only.
    let nobody = store(&exports, &anonymous());
    assert_eq!(listed(&*nobody, "b/d"), ["file"]);
    for call in [
        remove("b/other"),
        make("b/x", false),
        set_mode("b/other", 0),
        symlink("x", "b/l"),
    ] {
        let path = str::from_utf8(call.path()).unwrap();
        assert_fault(ask(&*nobody, &call), Code::PermissionDenied, path);
    }
    assert_eq!(text(&temp.path().join("home/alice/other")), "other");
}

#[test]
fn nothing_goes_from_one_export_to_another() {
    let temp = tempfile::tempdir().unwrap();
    let exports = two(temp.path());
    let store = store(&exports, &user("alice"));
    for call in [
        rename("a/other", "b/new", false),
        copy("a/other", "b/new", false),
        link("a/other", "b/new"),
    ] {
        assert_fault(ask(&*store, &call), Code::CrossDevice, "b/new");
    }
    for call in [set_mode("a", 0), set_mode("/b/", 0)] {
        let path = str::from_utf8(call.path()).unwrap();
        assert_fault(ask(&*store, &call), Code::PermissionDenied, path);
    }
    assert!(ask(&*store, &remove_tree("a")).is_err());
    assert_eq!(names(&temp.path().join("a")), ["d", "other"]);
    assert_fault(
        ask(&*store, &rename("/a/none", "a/x", true)),
        Code::NotFound,
        "/a/none",
    );
    assert_fault(
        ask(&*store, &rename("/a/d", "a/other", true)),
        Code::NotDirectory,
        "a/other",
    );
    let Answer::Attributes(zero) = ask(&*store, &stat("mem:zero")).unwrap() else {
        panic!()
    };
    assert_eq!(zero.kind, FileKind::CharacterDevice);
    assert_fault(
        ask(&*store, &remove("mem:zero")),
        Code::Unsupported,
        "mem:zero",
    );
    assert_fault(
        ask(&*store, &rename("a/other", "mem:null", true)),
        Code::Unsupported,
        "mem:null",
    );
}

#[test]
fn a_scope_is_not_widened_by_links_and_moves() {
    let temp = tempfile::tempdir().unwrap();
    let exports = two(temp.path());
    std::fs::create_dir(temp.path().join("a/mine")).unwrap();
    let scopes = [
        ("a/mine", Rights::ALL),
        ("a/d", Rights::DELETE | Rights::READ),
    ];
    let store = store(&exports, &scoped("alice", &scopes));
    let denied = |call: Call, path: &str| {
        assert_fault(ask(&*store, &call), Code::PermissionDenied, path);
    };
    denied(symlink("../other", "a/mine/l"), "a/mine/l");
    denied(rename("a/d/file", "a/mine/x", false), "a/mine/x");
    denied(link("a/d/file", "a/mine/x"), "a/mine/x");
    denied(copy("a/other", "a/mine/x", false), "a/other");
    denied(list("a"), "a");
    denied(stat("a/other"), "a/other");
    ask(&*store, &copy("a/d/file", "a/mine/x", false)).unwrap();
    ask(&*store, &rename("a/mine/x", "a/mine/y", false)).unwrap();
    assert_eq!(listed(&*store, "a/mine"), ["y"]);
}

/// The count during calls equals the count after a restart.
#[test]
fn calls_take_from_the_quota_and_give_back() {
    let temp = tempfile::tempdir().unwrap();
    let settings = "[[export]]\nname = 'q'\npath = 'ROOT'\nquota_bytes = 20000\nquota_files = 9
        largest_file = 15000\ngrant = [{ user = '*', rights = 'all' }]";
    let exports = parse(temp.path(), settings).unwrap();
    let alice = store(&exports, &user("alice"));
    let used = |exports: &Exports| exports.shared.ledger(temp.path()).used();
    let check = |expected: (u64, u64)| {
        assert_eq!(used(&exports), expected);
        let anew = parse(temp.path(), settings).unwrap();
        let again = store(&anew, &user("alice"));
        ask(&*again, &make("q/d", true)).unwrap();
        assert_eq!(used(&anew), expected);
    };
    let exceeded = |call: Call, path: &str| {
        assert_fault(ask(&*alice, &call), Code::QuotaExceeded, path);
    };
    let done = |call: Call| ask(&*alice, &call).unwrap();
    done(make("q/d/e", true));
    check((0, 2));
    put(&*alice, &request("q/d/file"), 6000).unwrap();
    done(copy("q/d/file", "q/copy", false));
    check((12_000, 4));
    done(link("q/copy", "q/linked"));
    check((18_000, 5));
    exceeded(copy("q/copy", "q/more", false), "q/more");
    exceeded(link("q/copy", "q/more"), "q/more");
    exceeded(truncate("q/d/file", 8001), "q/d/file");
    exceeded(truncate("q/d/file", 15_001), "q/d/file");
    done(truncate("q/d/file", 8000));
    check((20_000, 5));
    done(copy("q/copy", "q/d/file", true));
    check((18_000, 5));
    done(rename("q/copy", "q/linked", true));
    check((18_000, 5));
    done(rename("q/d/file", "q/linked", true));
    check((12_000, 4));
    done(make("q/x/y/z", true));
    check((12_000, 7));
    exceeded(make("q/1/2/3", true), "q/1/2/3");
    done(make("q/1", false));
    done(make("q/2/", false));
    exceeded(make("q/3", false), "q/3");
    exceeded(symlink("x", "q/3"), "q/3");
    assert!(ask(&*alice, &make("q/1", false)).is_err());
    check((12_000, 9));
    done(remove_tree("q/x"));
    done(remove("q/linked"));
    done(Call::RemoveDirectory {
        path: b"q/1/".to_vec(),
    });
    check((6000, 4));
    // An unfinished file in a removed tree, and in a renamed one.
    for (call, rest) in [
        (rename("q/2", "q/moved", false), (14_000, 5)),
        (remove_tree("q/moved"), (6000, 3)),
    ] {
        if let Call::Rename { .. } = &call {
            let mut opened = alice.open_sink(&of_length("q/2/part", 8000)).unwrap();
            save(&mut opened, 0, 4096);
            drop(opened);
        }
        done(call);
        assert_eq!(used(&exports), rest);
    }
    check((6000, 3));
}

/// Otherwise an empty file with many hard links would release more than it took.
#[test]
fn a_file_with_many_names_counts_by_each_of_them() {
    let temp = tempfile::tempdir().unwrap();
    let settings = "[[export]]\nname = 'q'\npath = 'ROOT'\nquota_bytes = 10000
        grant = [{ user = '*', rights = 'all' }]";
    let exports = parse(temp.path(), settings).unwrap();
    let alice = store(&exports, &user("alice"));
    let assert_used = |expected| {
        let used = exports.shared.ledger(temp.path()).used();
        assert_eq!(used, expected);
    };
    let done = |call: Call| ask(&*alice, &call).unwrap();
    put(&*alice, &request("q/other"), 1000).unwrap();
    put(&*alice, &request("q/0"), 0).unwrap();
    for name in ["q/1", "q/2"] {
        done(link("q/0", name));
    }
    let longer = ask(&*alice, &truncate("q/0", 3001));
    assert_fault(longer, Code::QuotaExceeded, "q/0");
    assert_used((1000, 4));
    done(truncate("q/0", 3000));
    assert_used((10_000, 4));
    done(remove("q/1"));
    assert_used((7000, 3));
    done(truncate("q/2", 1000));
    assert_used((3000, 3));
    done(remove("q/0"));
    done(remove("q/2"));
    assert_used((1000, 1));
}

/// Each change is released once, however calls and transfers interleave.
#[test]
fn calls_at_once_leave_the_count_in_order() {
    let temp = tempfile::tempdir().unwrap();
    let settings = "[[export]]\nname = 'q'\npath = 'ROOT'\nquota_bytes = 1000000
        grant = [{ user = '*', rights = 'all' }]";
    let exports = parse(temp.path(), settings).unwrap();
    let used = |exports: &Exports| exports.shared.ledger(temp.path()).used();
    let calls = [
        truncate("q/d/a", 5000),
        truncate("q/d/a", 10),
        remove("q/d/a"),
        copy("q/d/b", "q/d/a", true),
        link("q/d/a", "q/d/c"),
        rename("q/d/b", "q/d/a", true),
        make("q/d/e/f", true),
        remove_tree("q/d"),
    ];
    let begin = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let store = store(&exports, &user("alice"));
            let (calls, begin) = (&calls, &begin);
            scope.spawn(move || {
                let call = |call: &Call| ask(&*store, call);
                for round in 0..4 * calls.len() * (calls.len() + 1) {
                    begin.wait();
                    if thread == 0 {
                        // It may already exist.
                        let _ = call(&make("q/d", false));
                        for name in ["q/d/a", "q/d/b"] {
                            put(&*store, &forced(name), 1000).unwrap();
                        }
                    }
                    begin.wait();
                    // Each with each other, and with a transfer. Late ones fail.
                    let which = [round % calls.len(), round / calls.len() % (calls.len() + 1)];
                    let _ = match calls.get(which[thread]) {
                        Some(one) => call(one).map(|_| ()),
                        None => put(&*store, &forced("q/d/a"), 2000).map(|_| ()),
                    };
                }
            });
        }
    });
    let anew = parse(temp.path(), settings).unwrap();
    let again = store(&anew, &user("alice"));
    for store in [store(&exports, &user("alice")), again] {
        ask(&*store, &make("q/end", true)).unwrap();
    }
    assert_eq!(used(&exports), used(&anew));
}
