//! Targets and sources that stand where a file can't be, or may not be touched.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use xdfs::{Code, LocalPlace, Side, TransferOptions, TransferParameters};
use xdfs_testkit::nobody;

use crate::stage::{OLD, Stage, assert_fault, assert_old, make_old};
use crate::support::{
    PATIENCE, Serving, assert_equal, client, download, finish, hidden_names, upload,
};

fn force() -> TransferOptions {
    TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    }
}

/// The bytes of a local path, as a fault names it.
fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

#[test]
fn the_target_exists() {
    let stage = Stage::new(500);
    let source = stage.folders.make_here("source", 100_000);
    stage.folders.make_there("there", 100_000);
    let options = TransferOptions::default();
    make_old(&stage.folders.there("file"));
    make_old(&stage.folders.here("file"));
    let client = stage.client();
    let fault = upload(&client, &source, "/file", &options).unwrap_err();
    assert_fault(&fault, Code::AlreadyExists, Side::Remote, "/file");
    assert!(fault.hint.contains("--force"), "{fault:?}");
    assert_old(&stage.folders.there("file"));
    let here = stage.folders.here("file");
    let fault = download(&client, "/there", &here, &options).unwrap_err();
    assert_fault(&fault, Code::AlreadyExists, Side::Local, bytes(&here));
    assert_old(&here);
    upload(&client, &source, "/file", &force()).unwrap();
    assert_equal(&source, &stage.folders.there("file"));
    download(&client, "/there", &here, &force()).unwrap();
    assert_equal(&stage.folders.there("there"), &here);
    stage.still_serves();
}

/// A target that comes into being while the transfer goes on is not replaced either.
#[test]
fn the_target_appears_meanwhile() {
    let stage = Stage::new(508);
    stage.folders.make_here("file", 4 << 20);
    stage.folders.make_there("file", 4 << 20);
    let options = TransferOptions {
        parameters: TransferParameters {
            rate_bytes_per_s_max: Some(4 << 20),
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    let client = stage.client();
    let (here, there) = (stage.folders.here("new"), stage.folders.there("new"));
    let source = LocalPlace::Path(stage.folders.here("file"));
    let up = client.upload(&source, b"/new", &options).unwrap();
    let down = client
        .download(b"/file", &LocalPlace::Path(here.clone()), &options)
        .unwrap();
    // Both have been accepted when both hidden files are there.
    assert!(xdfs_testkit::wait::until(PATIENCE, || {
        [&here, &there]
            .iter()
            .all(|path| !hidden_names(path.parent().unwrap()).is_empty())
    }));
    make_old(&here);
    make_old(&there);
    let fault = finish(up).unwrap_err();
    assert_fault(&fault, Code::AlreadyExists, Side::Remote, "/new");
    let fault = finish(down).unwrap_err();
    assert_fault(&fault, Code::AlreadyExists, Side::Local, bytes(&here));
    for path in [&here, &there] {
        assert_eq!(std::fs::read(path).unwrap(), OLD);
    }
    stage.still_serves();
}

#[test]
fn the_target_is_a_directory() {
    let stage = Stage::new(501);
    let source = stage.folders.make_here("source", 1000);
    std::fs::create_dir_all(stage.folders.there("dir/source")).unwrap();
    std::fs::create_dir(stage.folders.there("other")).unwrap();
    let client = stage.client();
    // It keeps its name in a directory...
    for path in ["/other", "/other/"] {
        let result = upload(&client, &source, path, &force()).unwrap();
        assert_eq!(result.target, b"/other/source");
        assert_equal(&source, &stage.folders.there("other/source"));
    }
    // ...unless a directory has that name.
    let fault = upload(&client, &source, "/dir", &force()).unwrap_err();
    assert_fault(&fault, Code::IsDirectory, Side::Remote, "/dir/source");
    assert!(stage.folders.there("dir/source").is_dir());
    // A directory is no source either.
    let here = stage.folders.here("got");
    let fault = download(&client, "/dir", &here, &force()).unwrap_err();
    assert_fault(&fault, Code::IsDirectory, Side::Remote, "/dir");
    let fault = upload(&client, &stage.folders.here(""), "/x", &force()).unwrap_err();
    assert_eq!((fault.code, fault.side), (Code::IsDirectory, Side::Local));
    stage.still_serves();
}

#[test]
fn the_parent_is_missing_or_a_file() {
    let stage = Stage::new(502);
    let source = stage.folders.make_here("source", 1000);
    stage.folders.make_there("plain", 5);
    let client = stage.client();
    let fault = upload(&client, &source, "/no/such/file", &force()).unwrap_err();
    assert_fault(&fault, Code::NotFound, Side::Remote, "/no/such/file");
    assert!(fault.hint.contains("directory"), "{fault:?}");
    let fault = upload(&client, &source, "/plain/file", &force()).unwrap_err();
    assert_fault(&fault, Code::NotDirectory, Side::Remote, "/plain/file");
    let here = stage.folders.here("no/such");
    let fault = download(&client, "/plain", &here, &force()).unwrap_err();
    assert_fault(&fault, Code::NotFound, Side::Local, bytes(&here));
    let here = stage.folders.here("x");
    let fault = download(&client, "/nothing", &here, &force()).unwrap_err();
    assert_fault(&fault, Code::NotFound, Side::Remote, "/nothing");
    let absent = stage.folders.here("absent");
    let fault = upload(&client, &absent, "/x", &force()).unwrap_err();
    assert_fault(&fault, Code::NotFound, Side::Local, bytes(&absent));
    stage.still_serves();
}

#[test]
fn a_read_only_server() {
    let stage = Stage::with(503, |server| server.read_only = true);
    let source = stage.folders.make_here("source", 1000);
    let there = stage.folders.make_there("there", 1000);
    make_old(&stage.folders.there("file"));
    let client = stage.client();
    for path in ["/new", "/file"] {
        let fault = upload(&client, &source, path, &force()).unwrap_err();
        assert_fault(&fault, Code::ReadOnly, Side::Remote, path);
    }
    assert_old(&stage.folders.there("file"));
    let here = stage.folders.here("got");
    download(&client, "/there", &here, &force()).unwrap();
    assert_equal(&there, &here);
}

#[test]
fn what_is_no_regular_file() {
    let stage = Stage::new(504);
    let source = stage.folders.make_here("source", 1000);
    let there = stage.folders.make_there("there", 1000);
    let client = stage.client();
    for dir in [stage.folders.root(), stage.folders.here("")] {
        xdfs_testkit::tree::make_pipe(dir.join("fifo")).unwrap();
    }
    let _socket = std::os::unix::net::UnixListener::bind(stage.folders.there("socket")).unwrap();
    for path in ["/fifo", "/socket"] {
        let fault = upload(&client, &source, path, &force()).unwrap_err();
        assert_fault(&fault, Code::NotRegularFile, Side::Remote, path);
        let here = stage.folders.here("got");
        let fault = download(&client, path, &here, &force()).unwrap_err();
        assert_fault(&fault, Code::NotRegularFile, Side::Remote, path);
    }
    for local in [
        stage.folders.here("fifo"),
        "/dev/null".into(),
        "/dev/zero".into(),
    ] {
        let fault = upload(&client, &local, "/x", &force()).unwrap_err();
        assert_fault(&fault, Code::NotRegularFile, Side::Local, bytes(&local));
    }
    let local = stage.folders.here("fifo");
    let fault = download(&client, "/there", &local, &force()).unwrap_err();
    assert_fault(&fault, Code::NotRegularFile, Side::Local, bytes(&local));
    assert!(there.exists());
    stage.still_serves();
}

#[test]
fn links_out_of_the_root() {
    let stage = Stage::new(505);
    let source = stage.folders.make_here("source", 1000);
    let secret = stage.folders.here("secret");
    make_old(&secret);
    std::fs::create_dir(stage.folders.here("outside")).unwrap();
    symlink(&secret, stage.folders.there("absolute")).unwrap();
    symlink("../here/secret", stage.folders.there("relative")).unwrap();
    symlink(stage.folders.here("outside"), stage.folders.there("dir")).unwrap();
    symlink("loop", stage.folders.there("loop")).unwrap();
    let client = stage.client();
    let here = stage.folders.here("got");
    for path in ["/absolute", "/relative", "/dir/file", "/loop"] {
        let fault = download(&client, path, &here, &force()).unwrap_err();
        assert_fault(&fault, Code::PathEscape, Side::Remote, path);
    }
    for path in ["/dir", "/dir/file", "/dir/"] {
        let fault = upload(&client, &source, path, &force()).unwrap_err();
        assert_fault(&fault, Code::PathEscape, Side::Remote, path);
    }
    // A link to a file as the target is refused or replaced, and never followed.
    for path in ["/absolute", "/relative"] {
        if let Err(fault) = upload(&client, &source, path, &force()) {
            assert_fault(&fault, Code::PathEscape, Side::Remote, path);
        }
    }
    assert_eq!(std::fs::read(&secret).unwrap(), OLD);
    let outside: Vec<_> = std::fs::read_dir(stage.folders.here("outside"))
        .unwrap()
        .collect();
    assert!(outside.is_empty(), "{outside:?}");
    assert!(!here.exists());
    stage.still_serves();
}

/// A directory that is swapped with a link out of the root all the time: nothing outside is ever
/// read or written.
#[test]
fn a_link_that_is_swapped_during_the_open() {
    let stage = Stage::new(506);
    let source = stage.folders.make_here("source", 100);
    let outside = stage.folders.here("outside");
    std::fs::create_dir(&outside).unwrap();
    make_old(&outside.join("secret"));
    let inside = stage.folders.there("dir");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("secret"), b"inside").unwrap();
    symlink(&outside, stage.folders.there("link")).unwrap();
    let done = AtomicBool::new(false);
    let (mut refused, mut went) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let spare = stage.folders.there("spare");
            let link = stage.folders.there("link");
            while !done.load(Ordering::Relaxed) {
                std::fs::rename(&inside, &spare).unwrap();
                std::fs::rename(&link, &inside).unwrap();
                std::fs::rename(&inside, &link).unwrap();
                std::fs::rename(&spare, &inside).unwrap();
            }
        });
        let client = stage.client();
        let here = stage.folders.here("got");
        for _ in 0..150 {
            for result in [
                upload(&client, &source, "/dir/new", &force()),
                download(&client, "/dir/secret", &here, &force()),
            ] {
                match result {
                    Ok(_) => went += 1,
                    Err(fault) => {
                        assert!(
                            matches!(
                                fault.code,
                                Code::PathEscape | Code::NotFound | Code::IsDirectory | Code::Io
                            ),
                            "{fault}"
                        );
                        refused += 1;
                    }
                }
            }
            if here.exists() {
                assert_eq!(std::fs::read(&here).unwrap(), b"inside");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(went + refused == 300);
    let names: Vec<_> = std::fs::read_dir(&outside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["secret"]);
    assert_old(&outside.join("secret"));
    stage.still_serves();
}

/// Root may do everything, so that the server of this test runs as somebody else.
#[cfg(target_os = "linux")]
#[test]
fn permission_denied() {
    let stage = Stage::new(507);
    let source = stage.folders.make_here("source", 1000);
    if let Err(reason) = nobody::let_in(&stage.folders.root()) {
        return xdfs_testkit::skip::test(reason);
    }
    stage.folders.make_there("private", 1000);
    std::fs::create_dir(stage.folders.there("closed")).unwrap();
    make_old(&stage.folders.there("closed/file"));
    let mode = |name: &str, mode| {
        let path = stage.folders.there(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("private", 0o000);
    mode("closed", 0o555);
    let root = stage.folders.root();
    // Credentials belong to a thread, and threads take them from the one that starts them.
    let server = nobody::act(|| Serving::start(&root, |_| {}));
    let client = client(server.addr, |_| {});
    let here = stage.folders.here("got");
    let fault = download(&client, "/private", &here, &force()).unwrap_err();
    assert_fault(&fault, Code::PermissionDenied, Side::Remote, "/private");
    for path in ["/closed/new", "/closed/file"] {
        let fault = upload(&client, &source, path, &force()).unwrap_err();
        assert_fault(&fault, Code::PermissionDenied, Side::Remote, path);
    }
    assert!(!here.exists());
    mode("closed", 0o755);
    assert_old(&stage.folders.there("closed/file"));
    stage.still_serves();
}
