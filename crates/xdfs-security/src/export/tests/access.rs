//! Tests of `access.rs`.

use super::*;

/// Two named exports, one of them public, and a folder per user.
const SETTINGS: &str = r#"
    [[export]]
    name = "data"
    path = "ROOT/data"
    grant = [
        { user = "alice", rights = "all" },
        { user = "reader", rights = ["read", "list"] },
        { user = "dropper", rights = ["create"] },
        { user = "writer", rights = ["write", "delete"] },
    ]
    [[export]]
    name = "open"
    path = "ROOT/open"
    public = true
    grant = [{ user = "alice", rights = "all" }]
    [[export]]
    name = "home"
    path = "ROOT/home/{user}"
    make = true
    grant = [{ group = "people", rights = "all" }]
    [groups]
    people = ["alice", "bob", "..", "a/b", ".hidden", "/etc", ""]
"#;

struct Scene {
    temp: tempfile::TempDir,
    exports: Exports,
}

impl Scene {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        for dir in ["data/run", "open", "home"] {
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        for file in [
            "secret",
            "data/file",
            "data/run/7",
            "data/runner",
            "open/file",
        ] {
            std::fs::write(root.join(file), file).unwrap();
        }
        let exports = parse(root, SETTINGS).unwrap();
        Self { temp, exports }
    }

    fn root(&self) -> &Path {
        self.temp.path()
    }

    fn store(&self, name: &str) -> Arc<dyn Store> {
        store(&self.exports, &user(name))
    }
}

#[test]
fn the_first_component_names_the_export() {
    let scene = Scene::new();
    let alice = scene.store("alice");
    for path in ["data/file", "/data/file", "//data//./file", "./data/file"] {
        assert_eq!(read(&*alice, path).unwrap(), b"data/file");
    }
    assert_eq!(
        put(&*alice, &request("/data/run/8"), 3).unwrap(),
        b"/data/run/8"
    );
    let mut named = request("data/run/");
    named.name = b"9".to_vec();
    assert_eq!(alice.check_sink(&named).unwrap(), b"data/run/9");
    assert_eq!(put(&*alice, &named, 3).unwrap(), b"data/run/9");
    named.path = b"data".to_vec();
    assert_eq!(put(&*alice, &named, 3).unwrap(), b"data/9");
    assert_eq!(names(&scene.root().join("data/run")), ["7", "8", "9"]);
}

#[test]
fn faults_name_the_path_of_the_client() {
    let scene = Scene::new();
    let alice = scene.store("alice");
    assert_fault(read(&*alice, "/data/none"), Code::NotFound, "/data/none");
    assert_fault(read(&*alice, "data"), Code::IsDirectory, "data");
    assert_fault(read(&*alice, "data/run/"), Code::IsDirectory, "data/run/");
    assert_fault(
        put(&*alice, &request("data/file"), 1),
        Code::AlreadyExists,
        "data/file",
    );
    let mut opened = alice.open_sink(&request("data/new")).unwrap();
    std::fs::write(scene.root().join("data/new"), "").unwrap();
    assert_fault(opened.sink.publish(0, &[]), Code::AlreadyExists, "data/new");
    let mut source = alice.open_source(b"data/file").unwrap();
    std::fs::write(scene.root().join("data/file"), "").unwrap();
    assert_fault(
        source.read_at(0, &mut [0; 9]),
        Code::SourceChanged,
        "data/file",
    );
    assert_fault(source.verify_unchanged(), Code::SourceChanged, "data/file");
}

#[test]
fn the_place_of_all_exports_tells_nothing() {
    let scene = Scene::new();
    for store in [scene.store("alice"), scene.store("nobody")] {
        for path in ["", "/", ".", "//"] {
            assert_fault(store.open_source(path.as_bytes()), Code::IsDirectory, path);
            let mut into = request(path);
            into.name = b"x".to_vec();
            assert_fault(store.open_sink(&into), Code::IsDirectory, path);
            assert_fault(store.check_sink(&into), Code::IsDirectory, path);
        }
    }
}

/// A user without rights in an export doesn't learn that it exists.
#[test]
fn a_forbidden_export_is_like_none() {
    let scene = Scene::new();
    for store in [scene.store("nobody"), store(&scene.exports, &anonymous())] {
        for rest in ["", "/file", "/none", "/run/7"] {
            let answers = ["data", "none"].map(|export| {
                let path = format!("{export}{rest}");
                let mut faults = [
                    assert_fault(store.open_source(path.as_bytes()), Code::NotFound, &path),
                    assert_fault(store.open_sink(&forced(&path)), Code::NotFound, &path),
                    assert_fault(store.check_sink(&forced(&path)), Code::NotFound, &path),
                ];
                faults.iter_mut().for_each(|fault| fault.path.clear());
                faults
            });
            assert_eq!(answers[0], answers[1]);
        }
    }
    assert_eq!(text(&scene.root().join("data/file")), "data/file");
}

#[test]
fn each_right_is_needed() {
    let scene = Scene::new();
    let denied = Code::PermissionDenied;
    let reader = scene.store("reader");
    assert_eq!(read(&*reader, "data/file").unwrap(), b"data/file");
    for request in [request("data/new"), forced("data/file")] {
        let path = String::from_utf8(request.path.clone()).unwrap();
        assert_fault(reader.open_sink(&request), denied, &path);
        assert_fault(reader.check_sink(&request), denied, &path);
    }
    // Without the right to create files, that to change them is useless.
    let writer = scene.store("writer");
    for path in ["data/file", "data/new"] {
        assert_fault(read(&*writer, path), denied, path);
        assert_fault(writer.open_sink(&forced(path)), denied, path);
    }
    let dropper = scene.store("dropper");
    assert_fault(read(&*dropper, "data/file"), denied, "data/file");
    for request in [request("data/file"), forced("data/file")] {
        assert_fault(dropper.open_sink(&request), denied, "data/file");
        assert_fault(dropper.check_sink(&request), denied, "data/file");
    }
    put(&*dropper, &forced("data/new"), 5).unwrap();
    assert_fault(put(&*dropper, &forced("data/new"), 5), denied, "data/new");
    assert_eq!(text(&scene.root().join("data/file")), "data/file");
    assert_eq!(
        names(&scene.root().join("data")),
        ["file", "new", "run", "runner"]
    );
}

/// The target appears during the upload: the store refuses, not only the initial check.
#[test]
fn who_may_not_replace_does_not_at_the_end_either() {
    let scene = Scene::new();
    let dropper = scene.store("dropper");
    let mut opened = dropper.open_sink(&forced("data/late")).unwrap();
    write(&mut opened, 0, 10).unwrap();
    std::fs::write(scene.root().join("data/late"), "first").unwrap();
    assert_fault(
        opened.sink.publish(10, &[]),
        Code::PermissionDenied,
        "data/late",
    );
    drop(opened);
    assert_eq!(text(&scene.root().join("data/late")), "first");
}

#[test]
fn anonymous_has_what_is_public_and_no_more() {
    let scene = Scene::new();
    let store = store(&scene.exports, &anonymous());
    assert_eq!(read(&*store, "open/file").unwrap(), b"open/file");
    assert_fault(
        store.open_sink(&request("open/x")),
        Code::PermissionDenied,
        "open/x",
    );
    for path in ["data/file", "home/x", "home"] {
        assert_fault(store.open_source(path.as_bytes()), Code::NotFound, path);
    }
    // So may authenticated users.
    assert_eq!(
        read(&*scene.store("nobody"), "open/file").unwrap(),
        b"open/file"
    );
    let closed = Exports::single(scene.root().join("data"), Rights::ALL);
    let fault = closed.store_for(&anonymous()).unwrap_err();
    assert_eq!(fault.code, Code::PermissionDenied);
    assert_eq!(names(&scene.root().join("home")), [""; 0]);
}

#[test]
fn a_single_root_is_every_users() {
    let scene = Scene::new();
    let exports = Exports::single(scene.root().join("data"), Rights::READ | Rights::CREATE);
    let store = store(&exports, &user("anybody"));
    assert_eq!(read(&*store, "/run/7").unwrap(), b"data/run/7");
    assert_eq!(put(&*store, &request("new"), 1).unwrap(), b"new");
    assert_fault(
        put(&*store, &forced("file"), 1),
        Code::PermissionDenied,
        "file",
    );
    for path in ["../secret", "/../secret", "run/../../secret", ".."] {
        assert_fault(read(&*store, path), Code::PathEscape, path);
        assert_fault(put(&*store, &forced(path), 1), Code::PathEscape, path);
    }
    assert_fault(read(&*store, ""), Code::IsDirectory, "");
    let gone = Exports::single(scene.root().join("gone"), Rights::ALL);
    let fault = read(&*self::store(&gone, &user("x")), "f").unwrap_err();
    assert_eq!(fault.code, Code::NotFound);
    // The server's path must not be disclosed.
    assert!(!format!("{fault:?}").contains(scene.root().to_str().unwrap()));
}

#[test]
fn no_path_leaves_its_export() {
    let scene = Scene::new();
    let alice = scene.store("alice");
    for path in [
        "data/../secret",
        "data/../../secret",
        "data/..",
        "../secret",
        "open/../data/file",
        "data/run/../file",
        "/data/../../../../../../etc/passwd",
    ] {
        assert_fault(read(&*alice, path), Code::PathEscape, path);
        assert_fault(put(&*alice, &forced(path), 1), Code::PathEscape, path);
        assert_fault(alice.check_sink(&forced(path)), Code::PathEscape, path);
    }
    let absolute = scene.root().join("secret");
    let absolute = absolute.to_str().unwrap();
    assert_fault(read(&*alice, absolute), Code::NotFound, absolute);
    let inside = format!("data/{absolute}");
    assert_eq!(read(&*alice, &inside).unwrap_err().code, Code::NotFound);
    assert_fault(
        read(&*alice, "data/a\0b"),
        Code::InvalidArgument,
        "data/a\\x00b",
    );
    for name in ["..", ".", "../x", "a/b"] {
        let mut named = forced("data/");
        named.name = name.into();
        assert_fault(alice.open_sink(&named), Code::InvalidArgument, "data/");
        named.path = b"data".to_vec();
        assert_eq!(
            alice.open_sink(&named).unwrap_err().code,
            Code::InvalidArgument
        );
    }
    assert_eq!(text(&scene.root().join("secret")), "secret");
    assert_eq!(names(scene.root()), ["data", "home", "open", "secret"]);
}

#[cfg(unix)]
#[test]
fn links_out_of_an_export_are_not_followed() {
    use std::os::unix::fs::symlink;
    let scene = Scene::new();
    let alice = scene.store("alice");
    put(&*scene.store("bob"), &request("home/mine"), 4).unwrap();
    put(&*alice, &request("home/mine"), 3).unwrap();
    let home = scene.root().join("home/alice");
    symlink("../bob", home.join("bob")).unwrap();
    symlink("../bob/mine", home.join("file")).unwrap();
    symlink(scene.root(), home.join("top")).unwrap();
    symlink("../../secret", scene.root().join("data/up")).unwrap();
    for path in ["home/bob/mine", "home/file", "home/top/secret", "data/up"] {
        assert_fault(read(&*alice, path), Code::PathEscape, path);
        assert_fault(put(&*alice, &forced(path), 1), Code::PathEscape, path);
    }
    let mut into = request("home/bob");
    into.name = b"planted".to_vec();
    assert_fault(alice.open_sink(&into), Code::PathEscape, "home/bob");
    assert_eq!(names(&scene.root().join("home/bob")), ["mine"]);
    assert_eq!(text(&scene.root().join("secret")), "secret");
}

/// A folder that its user has replaced by a link to another user's.
#[cfg(unix)]
#[test]
fn a_folder_that_is_a_link_is_not_opened() {
    let scene = Scene::new();
    put(&*scene.store("bob"), &request("home/mine"), 4).unwrap();
    std::os::unix::fs::symlink("bob", scene.root().join("home/alice")).unwrap();
    assert_fault(
        read(&*scene.store("alice"), "home/mine"),
        Code::NotDirectory,
        "home",
    );
}

#[test]
fn every_user_has_a_folder() {
    let scene = Scene::new();
    let (alice, bob) = (scene.store("alice"), scene.store("bob"));
    // A dry run creates nothing, and predicts the path.
    assert_eq!(
        alice.check_sink(&request("home/mine")).unwrap(),
        b"home/mine"
    );
    let mut named = request("/home/");
    named.name = b"mine".to_vec();
    assert_eq!(alice.check_sink(&named).unwrap(), b"/home/mine");
    assert_fault(
        alice.check_sink(&request("home/")),
        Code::IsDirectory,
        "home",
    );
    assert_fault(
        alice.check_sink(&request("home/no/x")),
        Code::NotFound,
        "home/no/x",
    );
    assert_eq!(names(&scene.root().join("home")), [""; 0]);
    put(&*alice, &request("home/mine"), 3).unwrap();
    assert_eq!(read(&*alice, "home/mine").unwrap().len(), 3);
    assert_fault(read(&*bob, "home/mine"), Code::NotFound, "home/mine");
    for path in [
        "home/../alice/mine",
        "home/alice/mine",
        "home/../../home/alice/mine",
    ] {
        read(&*bob, path).unwrap_err();
        put(&*bob, &forced(path), 1).unwrap_err();
    }
    assert_eq!(names(&scene.root().join("home")), ["alice", "bob"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let meta = std::fs::metadata(scene.root().join("home/alice")).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn a_name_that_is_no_folder_has_none() {
    let scene = Scene::new();
    for name in ["..", "a/b", ".hidden", "/etc", ""] {
        let store = scene.store(name);
        assert_fault(read(&*store, "home/x"), Code::PermissionDenied, "home");
        assert_fault(
            put(&*store, &request("home/x"), 1),
            Code::PermissionDenied,
            "home",
        );
        assert_fault(
            store.check_sink(&request("home/x")),
            Code::PermissionDenied,
            "home",
        );
        // Exports not named after users are still accessible.
        assert_eq!(read(&*store, "open/file").unwrap(), b"open/file");
    }
    assert_eq!(names(&scene.root().join("home")), [""; 0]);
}

#[test]
fn a_folder_in_a_folder_is_made_too() {
    let dir = tempfile::tempdir().unwrap();
    let settings = |make| {
        format!(
            "[[export]]\nname = ''\npath = 'ROOT/u-{{user}}/files'\nmake = {make}
             grant = [{{ user = '*', rights = 'all' }}]"
        )
    };
    let exports = parse(dir.path(), &settings(false)).unwrap();
    assert_fault(
        put(&*store(&exports, &user("a")), &request("x"), 1),
        Code::NotFound,
        "",
    );
    assert_eq!(names(dir.path()), [""; 0]);
    let exports = parse(dir.path(), &settings(true)).unwrap();
    put(&*store(&exports, &user("a")), &request("x"), 1).unwrap();
    assert_eq!(names(&dir.path().join("u-a/files")), ["x"]);
    // A directory without a user in its path is created too, but without its parents.
    let exports = parse(
        dir.path(),
        "[[export]]\nname = 'e'\npath = 'ROOT/e'\nmake = true
         grant = [{ user = '*', rights = 'all' }]
         [[export]]\nname = 'f'\npath = 'ROOT/no/f'\nmake = true
         grant = [{ user = '*', rights = 'all' }]",
    );
    let store = store(&exports.unwrap(), &user("a"));
    assert_eq!(store.check_sink(&request("e/x")).unwrap(), b"e/x");
    put(&*store, &request("e/x"), 1).unwrap();
    assert_fault(put(&*store, &request("f/x"), 1), Code::NotFound, "f");
    assert_eq!(names(dir.path()), ["e", "u-a"]);
}

#[test]
fn scopes_limit_what_a_user_may() {
    let scene = Scene::new();
    let denied = Code::PermissionDenied;
    let scopes = [("data/run", Rights::READ), ("/open/", Rights::CREATE)];
    let store = store(&scene.exports, &scoped("alice", &scopes));
    assert_eq!(read(&*store, "data/run/7").unwrap(), b"data/run/7");
    assert_eq!(read(&*store, "/data//./run/7").unwrap(), b"data/run/7");
    for path in [
        "data/runner",
        "data/file",
        "open/file",
        "data",
        "none/x",
        "home/x",
    ] {
        assert_fault(store.open_source(path.as_bytes()), denied, path);
    }
    for path in [
        "data/run/../file",
        "data/run/../../open/file",
        "data/run/..",
    ] {
        assert_fault(store.open_source(path.as_bytes()), Code::PathEscape, path);
    }
    for path in ["data/run/8", "data/x", "none/x", ""] {
        assert_fault(store.open_sink(&forced(path)), denied, path);
        assert_fault(store.check_sink(&forced(path)), denied, path);
    }
    put(&*store, &forced("open/new"), 1).unwrap();
    // The user may replace files, but this token may not.
    assert_fault(put(&*store, &forced("open/new"), 1), denied, "open/new");
    // Not a right that the user doesn't have.
    let store = self::store(&scene.exports, &scoped("reader", &[("", Rights::ALL)]));
    assert_fault(store.open_sink(&forced("data/x")), denied, "data/x");
    assert_eq!(read(&*store, "data/file").unwrap(), b"data/file");
}

#[test]
fn a_scope_of_one_file_is_one_file() {
    let scene = Scene::new();
    let scopes = [("data/run/new", Rights::CREATE)];
    let store = store(&scene.exports, &scoped("alice", &scopes));
    let mut named = request("data/run/");
    named.name = b"newer".to_vec();
    assert_fault(store.open_sink(&named), Code::PermissionDenied, "data/run/");
    for name in ["../run/new", "new/../7", "..", "new/x"] {
        named.name = name.into();
        assert_fault(store.open_sink(&named), Code::InvalidArgument, "data/run/");
    }
    // A path that may turn out to be a directory must be covered itself.
    named.name = b"new".to_vec();
    named.path = b"data/run".to_vec();
    assert_fault(store.open_sink(&named), Code::PermissionDenied, "data/run");
    named.path = b"data/run/".to_vec();
    assert_eq!(put(&*store, &named, 1).unwrap(), b"data/run/new");
    assert_eq!(names(&scene.root().join("data/run")), ["7", "new"]);
}

#[test]
fn what_is_built_in_is_for_users() {
    let scene = Scene::new();
    // The same for users without any export.
    let exports = Exports::new(ExportsConfig::default()).unwrap();
    let users = store(&exports, &user("nobody"));
    for path in ["mem:zero", "/mem:zero"] {
        assert!(users.open_source(path.as_bytes()).unwrap().is_uniform());
        assert_fault(
            users.open_sink(&request(path)),
            Code::Unsupported,
            "mem:zero",
        );
    }
    assert_eq!(
        put(&*users, &request("mem:null"), 100).unwrap(),
        b"mem:null"
    );
    assert_eq!(
        users.check_sink(&request("/mem:null")).unwrap(),
        b"mem:null"
    );
    assert_fault(
        users.open_source(b"mem:null"),
        Code::Unsupported,
        "mem:null",
    );
    let denied = Code::PermissionDenied;
    let scopes = [("data", Rights::ALL)];
    for other in [
        store(&scene.exports, &anonymous()),
        store(&scene.exports, &scoped("alice", &scopes)),
    ] {
        assert_fault(other.open_source(b"mem:zero"), denied, "mem:zero");
        assert_fault(other.open_sink(&request("mem:null")), denied, "mem:null");
        assert_fault(other.check_sink(&request("mem:null")), denied, "mem:null");
    }
    // A file with such a name.
    let root = store(
        &Exports::single(scene.root().join("data"), Rights::ALL),
        &user("x"),
    );
    put(&*root, &request("./mem:null"), 2).unwrap();
    assert_eq!(read(&*root, "./mem:null").unwrap().len(), 2);
}
