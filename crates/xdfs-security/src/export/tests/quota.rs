//! Tests of `quota.rs`.

use xdfs_proto::file::FileFlags;
use xdfs_proto::path::Call;
use xdfs_store::FileRequest;

use super::*;

struct Scene {
    temp: tempfile::TempDir,
    exports: Exports,
}

impl Scene {
    /// One export, "q", with these limits.
    fn new(limits: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let exports = Self::exports(temp.path(), limits);
        Self { temp, exports }
    }

    fn exports(root: &Path, limits: &str) -> Exports {
        let settings = format!(
            "[[export]]\nname = 'q'\npath = 'ROOT'\n{limits}
             grant = [{{ user = '*', rights = 'all' }}]"
        );
        parse(root, &settings).unwrap()
    }

    /// Restarts the server.
    fn restart(&mut self, limits: &str) {
        self.exports = Self::exports(self.temp.path(), limits);
    }

    fn store(&self) -> Arc<dyn Store> {
        store(&self.exports, &user("alice"))
    }

    fn names(&self) -> Vec<String> {
        names(self.temp.path())
    }

    /// The counted bytes and files.
    #[track_caller]
    fn assert_used(&self, bytes: u64, files: u64) {
        let ledger = self.exports.shared.ledger(self.temp.path());
        assert_eq!(ledger.used(), (bytes, files));
    }
}

#[track_caller]
fn assert_exceeded<T>(result: Result<T, Fault>, path: &str) -> Fault {
    assert_fault(result, Code::QuotaExceeded, path)
}

#[test]
fn what_is_announced_is_refused_at_the_open() {
    let scene = Scene::new("quota_bytes = 100");
    let store = scene.store();
    put(&*store, &of_length("q/a", 60), 60).unwrap();
    let fault = assert_exceeded(store.open_sink(&of_length("q/b", 41)), "q/b");
    for number in ["100", "60", "41"] {
        assert!(fault.cause.contains(number), "{fault}");
    }
    assert_exceeded(store.check_sink(&of_length("q/b", 41)), "q/b");
    assert_eq!(scene.names(), ["a"]);
    assert_eq!(store.check_sink(&of_length("q/b", 40)).unwrap(), b"q/b");
    put(&*store, &of_length("q/b", 40), 40).unwrap();
    assert_exceeded(store.open_sink(&of_length("q/c", 1)), "q/c");
    put(&*store, &of_length("q/c", 0), 0).unwrap();
    scene.assert_used(100, 3);
}

#[test]
fn what_was_not_announced_is_refused_when_it_comes() {
    let scene = Scene::new("quota_bytes = 100");
    let store = scene.store();
    let mut opened = store.open_sink(&request("q/a")).unwrap();
    write(&mut opened, 0, 60).unwrap();
    write(&mut opened, 60, 40).unwrap();
    assert_exceeded(write(&mut opened, 100, 1), "q/a");
    // From here on everything is refused, even what would fit.
    assert_exceeded(write(&mut opened, 0, 1), "q/a");
    assert_exceeded(opened.sink.publish(10, &[]), "q/a");
    drop(opened);
    assert_eq!(scene.names(), [""; 0]);
    scene.assert_used(0, 0);
    // Nor by a hole, or an invalid offset.
    let mut opened = store.open_sink(&request("q/a")).unwrap();
    assert_exceeded(opened.sink.publish(101, &[]), "q/a");
    let mut opened = store.open_sink(&request("q/b")).unwrap();
    assert_exceeded(write(&mut opened, u64::MAX, 2), "q/b");
    drop(opened);
    // More than announced.
    let mut opened = store.open_sink(&of_length("q/c", 10)).unwrap();
    write(&mut opened, 0, 100).unwrap();
    assert_exceeded(write(&mut opened, 100, 1), "q/c");
}

/// Recorded data stays for a later attempt, under its hidden name, and is counted.
#[test]
fn an_unfinished_file_counts_and_can_be_gone_on_with() {
    let mut scene = Scene::new("quota_bytes = 10000\nquota_files = 3");
    let store = scene.store();
    // It counts as a file.
    std::fs::create_dir(scene.temp.path().join("d")).unwrap();
    let target = of_length("q/d/a", 8192);
    let mut opened = store.open_sink(&target).unwrap();
    save(&mut opened, 0, 4096);
    drop(opened);
    let inside = names(&scene.temp.path().join("d"));
    assert_eq!(inside, [".a.xdfs-journal", ".a.xdfs-part"]);
    scene.assert_used(8192, 2);
    assert_exceeded(store.open_sink(&of_length("q/b", 2000)), "q/b");
    // Resuming costs nothing more, and a refusal in between changes nothing.
    for _ in 0..3 {
        let mut more = target.clone();
        more.length = Some(20_000);
        assert_exceeded(store.open_sink(&more), "q/d/a");
        scene.assert_used(8192, 2);
        let opened = store.open_sink(&target).unwrap();
        assert_eq!(opened.durable.len(), 1);
        scene.assert_used(8192, 2);
        assert_fault(store.open_sink(&target), Code::Busy, "q/d/a");
        drop(opened);
        scene.assert_used(8192, 2);
    }
    // Also after a restart of the server, from the content of the disk.
    scene.restart("quota_bytes = 10000");
    let store = scene.store();
    put(&*store, &of_length("q/b", 1000), 1000).unwrap();
    let mut opened = store.open_sink(&target).unwrap();
    write(&mut opened, 4096, 4096).unwrap();
    opened.sink.publish(8192, &[]).unwrap();
    scene.assert_used(9192, 3);
}

#[test]
fn who_breaks_off_again_and_again_fills_his_quota() {
    let scene = Scene::new("quota_bytes = 20000\nquota_files = 3");
    let store = scene.store();
    for (path, length) in [("q/a", Some(8192)), ("q/b", None), ("q/c", Some(4096))] {
        let mut target = request(path);
        target.length = length;
        save(&mut store.open_sink(&target).unwrap(), 0, 4096);
    }
    // With unknown length, the bytes written count.
    scene.assert_used(8192 + 4096 + 4096, 3);
    let fault = assert_exceeded(store.open_sink(&request("q/d")), "q/d");
    assert!(fault.cause.contains("3 files"), "{fault}");
    // Without a quota for files the bytes would be the limit; a discarded one costs nothing.
    let mut opened = store.open_sink(&of_length("q/a", 8192)).unwrap();
    opened.sink.discard().unwrap();
    drop(opened);
    scene.assert_used(8192, 2);
    put(&*store, &of_length("q/d", 1), 1).unwrap();
    scene.assert_used(8193, 3);
}

/// Otherwise one user could use up the shared quota.
#[test]
fn what_was_refused_is_not_counted() {
    let scene = Scene::new("quota_bytes = 10000");
    let store = scene.store();
    for offset in [20_000, u64::MAX] {
        let mut opened = store.open_sink(&request("q/a")).unwrap();
        save(&mut opened, 0, 4096);
        assert_exceeded(write(&mut opened, offset, 1), "q/a");
        drop(opened);
        scene.assert_used(4096, 1);
    }
}

#[test]
fn two_at_once_share_the_quota() {
    let scene = Scene::new("quota_bytes = 100\nquota_files = 2");
    let (one, other) = (scene.store(), store(&scene.exports, &user("bob")));
    let mut first = one.open_sink(&of_length("q/a", 60)).unwrap();
    assert_exceeded(other.open_sink(&of_length("q/b", 41)), "q/b");
    let mut second = other.open_sink(&of_length("q/b", 40)).unwrap();
    assert_exceeded(other.open_sink(&of_length("q/c", 0)), "q/c");
    assert_exceeded(write(&mut first, 60, 1), "q/a");
    drop(first);
    let mut third = one.open_sink(&of_length("q/c", 60)).unwrap();
    for (opened, length) in [(&mut second, 40), (&mut third, 60)] {
        write(opened, 0, length).unwrap();
        opened.sink.publish(length as u64, &[]).unwrap();
    }
    scene.assert_used(100, 2);
    assert_eq!(scene.names(), ["b", "c"]);
}

#[test]
fn many_threads_never_pass_the_quota() {
    let scene = Scene::new("quota_bytes = 1000\nquota_files = 50");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = scene.store();
            scope.spawn(move || {
                for round in 0..40 {
                    let mut target = forced(&format!("q/{thread}-{}", round % 20));
                    target.length = (round % 3 == 0).then_some(30);
                    let _ = put(&*store, &target, 30);
                }
            });
        }
    });
    let names = scene.names();
    let bytes = names.iter().map(|name| {
        let meta = std::fs::metadata(scene.temp.path().join(name)).unwrap();
        meta.len()
    });
    let bytes: u64 = bytes.sum();
    assert!(bytes <= 1000 && names.len() <= 50 && bytes > 500, "{bytes}");
    scene.assert_used(bytes, names.len() as u64);
}

#[test]
fn replacing_a_file_costs_the_difference() {
    let scene = Scene::new("quota_bytes = 100\nquota_files = 1");
    let store = scene.store();
    put(&*store, &of_length("q/a", 90), 90).unwrap();
    assert_exceeded(store.open_sink(&of_length("q/a", 101)), "q/a");
    put(&*store, &of_length("q/a", 100), 100).unwrap();
    scene.assert_used(100, 1);
    // With unknown length too.
    put(&*store, &forced("q/a"), 80).unwrap();
    let mut opened = store.open_sink(&forced("q/a")).unwrap();
    write(&mut opened, 0, 100).unwrap();
    assert_exceeded(write(&mut opened, 100, 1), "q/a");
    drop(opened);
    scene.assert_used(80, 1);
    put(&*store, &of_length("q/a", 10), 10).unwrap();
    scene.assert_used(10, 1);
    assert_eq!(text(&scene.temp.path().join("a")), "\u{1}".repeat(10));
}

/// An interrupted replacement exists beside the file that it was to replace.
#[test]
fn an_unfinished_replacement_counts_whole() {
    let scene = Scene::new("quota_bytes = 10000");
    let store = scene.store();
    put(&*store, &of_length("q/a", 9000), 9000).unwrap();
    save(
        &mut store.open_sink(&of_length("q/a", 9500)).unwrap(),
        0,
        4096,
    );
    scene.assert_used(18_500, 2);
    assert_exceeded(store.open_sink(&of_length("q/b", 1)), "q/b");
    let mut opened = store.open_sink(&of_length("q/a", 9500)).unwrap();
    assert_eq!(opened.durable.len(), 1);
    write(&mut opened, 4096, 9500 - 4096).unwrap();
    opened.sink.publish(9500, &[]).unwrap();
    scene.assert_used(9500, 1);
}

#[test]
fn too_much_already_can_only_get_less() {
    let scene = Scene::new("quota_bytes = 100\nquota_files = 1");
    std::fs::write(scene.temp.path().join("a"), [0; 300]).unwrap();
    std::fs::write(scene.temp.path().join("b"), [0; 300]).unwrap();
    let store = scene.store();
    assert_exceeded(store.open_sink(&of_length("q/a", 301)), "q/a");
    assert_exceeded(store.open_sink(&of_length("q/c", 0)), "q/c");
    put(&*store, &of_length("q/a", 200), 200).unwrap();
    scene.assert_used(500, 2);
}

#[cfg(unix)]
#[test]
fn a_link_that_is_replaced_gives_nothing_back() {
    let scene = Scene::new("quota_bytes = 100");
    std::fs::write(scene.temp.path().join("big"), [0; 90]).unwrap();
    std::os::unix::fs::symlink("big", scene.temp.path().join("link")).unwrap();
    std::os::unix::fs::symlink("..", scene.temp.path().join("up")).unwrap();
    let store = scene.store();
    assert_exceeded(store.open_sink(&of_length("q/link", 11)), "q/link");
    put(&*store, &of_length("q/link", 10), 10).unwrap();
    scene.assert_used(100, 3);
}

#[test]
fn what_lies_there_already_counts() {
    let scene = Scene::new("quota_bytes = 100\nquota_files = 6");
    std::fs::create_dir_all(scene.temp.path().join("d/e")).unwrap();
    for file in ["a", "d/a", "d/e/a"] {
        std::fs::write(scene.temp.path().join(file), [0; 30]).unwrap();
    }
    let store = scene.store();
    assert_exceeded(store.open_sink(&of_length("q/d/b", 11)), "q/d/b");
    put(&*store, &of_length("q/d/b", 10), 10).unwrap();
    // Four files and two directories.
    scene.assert_used(100, 6);
    assert_exceeded(store.open_sink(&of_length("q/c", 0)), "q/c");
    // Missing rights are reported before the quota.
    assert_fault(
        store.open_sink(&request("q/d/e/a")),
        Code::AlreadyExists,
        "q/d/e/a",
    );
}

#[test]
fn no_file_is_larger_than_the_largest() {
    let scene = Scene::new("largest_file = '1K'");
    let store = scene.store();
    let fault = assert_exceeded(store.open_sink(&of_length("q/a", 1025)), "q/a");
    assert!(fault.cause.contains("1024") && fault.cause.contains("1025"));
    assert_exceeded(store.check_sink(&of_length("q/a", 1025)), "q/a");
    let mut opened = store.open_sink(&request("q/a")).unwrap();
    write(&mut opened, 0, 1024).unwrap();
    assert_exceeded(write(&mut opened, 1024, 1), "q/a");
    assert_exceeded(opened.sink.publish(1024, &[]), "q/a");
    drop(opened);
    let mut opened = store.open_sink(&request("q/a")).unwrap();
    assert_exceeded(opened.sink.publish(1025, &[]), "q/a");
    drop(opened);
    assert_eq!(scene.names(), [""; 0]);
    put(&*store, &of_length("q/a", 1024), 1024).unwrap();
    put(&*store, &request("q/b"), 1024).unwrap();
}

#[test]
fn every_user_has_a_quota_where_every_user_has_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    let exports = parse(
        dir.path(),
        "[[export]]\nname = 'h'\npath = 'ROOT/{user}'\nmake = true\nquota_bytes = 100
         grant = [{ user = '*', rights = 'all' }]",
    );
    let exports = exports.unwrap();
    for name in ["alice", "bob"] {
        let store = store(&exports, &user(name));
        put(&*store, &of_length("h/a", 90), 90).unwrap();
        // In another session of the same user too.
        let again = self::store(&exports, &user(name));
        assert_exceeded(again.open_sink(&of_length("h/b", 11)), "h/b");
    }
}

/// A dry run reserves nothing.
#[test]
fn a_check_holds_nothing() {
    let scene = Scene::new("quota_bytes = 100");
    let store = scene.store();
    for _ in 0..3 {
        store.check_sink(&of_length("q/a", 100)).unwrap();
    }
    scene.assert_used(0, 0);
    assert_eq!(scene.names(), [""; 0]);
}

/// The file may have its name although publishing failed at the end: it counts.
#[cfg(unix)]
#[test]
fn a_failure_to_publish_is_counted_until_it_is_cleared_up() {
    let scene = Scene::new("quota_bytes = 100");
    let store = scene.store();
    let mut opened = store.open_sink(&of_length("q/a", 60)).unwrap();
    write(&mut opened, 0, 60).unwrap();
    std::fs::create_dir(scene.temp.path().join("a")).unwrap();
    assert_fault(opened.sink.publish(60, &[]), Code::IsDirectory, "q/a");
    drop(opened);
    scene.assert_used(60, 1);
    std::fs::remove_dir(scene.temp.path().join("a")).unwrap();
    put(&*store, &of_length("q/a", 100), 100).unwrap();
    scene.assert_used(100, 1);
}

/// Opens "q/f" for writing, creating it if necessary.
fn in_place() -> FileRequest {
    FileRequest {
        path: b"q/f".to_vec(),
        flags: FileFlags {
            read: false,
            write: true,
            append: false,
            create: true,
            exclusive: false,
            truncate: false,
        },
        mode: None,
        identity: None,
    }
}

/// Changes of a file by name and through an open handle check its length and update the count one
/// at a time.
#[test]
fn one_file_by_name_and_open_at_once_is_counted_once() {
    let scene = Scene::new("quota_bytes = 1000000");
    let store = scene.store();
    let opened = store.open_file(&in_place()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2000_u64 {
                opened.file.set_length(round % 7 * 100).unwrap();
                opened.file.write_at(round % 5 * 100, b"x").unwrap();
            }
        });
        for round in 0..2000_u64 {
            let truncate = Call::Truncate {
                path: b"q/f".to_vec(),
                length: round % 3 * 150,
            };
            store.call(&truncate, &mut |_| Ok(())).unwrap();
        }
    });
    let there = std::fs::metadata(scene.temp.path().join("f")).unwrap();
    scene.assert_used(there.len(), 1);
}

/// A file open in place counts once per hard link, even as links are added and removed.
#[test]
fn a_file_with_many_names_counts_by_each_of_them_when_it_is_open() {
    let scene = Scene::new("quota_bytes = 1000");
    let store = scene.store();
    let ask = |call: &Call| drop(store.call(call, &mut |_| Ok(())).unwrap());
    let file = store.open_file(&in_place()).unwrap().file;
    ask(&Call::Link {
        existing: b"q/f".to_vec(),
        path: b"q/g".to_vec(),
    });
    file.write_at(0, &[7; 400]).unwrap();
    scene.assert_used(800, 2);
    assert_exceeded(file.write_at(0, &[7; 501]), "q/f");
    assert_exceeded(file.set_length(501), "q/f");
    scene.assert_used(800, 2);
    file.write_at(400, &[7; 100]).unwrap();
    scene.assert_used(1000, 2);
    file.set_length(300).unwrap();
    scene.assert_used(600, 2);
    ask(&Call::RemoveFile {
        path: b"q/f".to_vec(),
    });
    scene.assert_used(300, 1);
    file.write_at(300, &[7; 100]).unwrap();
    scene.assert_used(400, 1);
    ask(&Call::RemoveFile {
        path: b"q/g".to_vec(),
    });
    scene.assert_used(0, 0);
    // Without any name it counts as long as it is open.
    file.write_at(400, &[7; 50]).unwrap();
    scene.assert_used(50, 0);
    drop(file);
    scene.assert_used(0, 0);
}
