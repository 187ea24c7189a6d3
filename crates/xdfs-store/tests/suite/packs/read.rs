//! What packs take.

use std::os::unix::fs::{FileExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use xdfs_store::Added;
use xdfs_testkit::powercut::confined;

use super::*;

fn tree(scene: &Scene) {
    assert_done(&scene.write(&[
        with(file("f", "content"), mode(0o640)),
        file("d/e/g", "deep"),
        entry("link", Content::Symlink(b"not/there")),
        entry("pipe", Content::Fifo),
        file("large", &"x".repeat(70_000)),
        file("empty", ""),
    ]));
}

#[test]
fn every_kind_is_taken() {
    let scene = Scene::new();
    tree(&scene);
    let _socket = UnixListener::bind(scene.path("socket")).unwrap();
    symlink("d", scene.path("way")).unwrap();
    let asked = [
        "f", "d", "d/e/g", "link", "pipe", "large", "empty", "gone", "socket", "f/x", "way/e/g",
        "gone/x",
    ];
    let keep = Preserve {
        owner: true,
        xattrs: true,
        read_times: true,
    };
    let answer = scene.read(&asked, keep);
    let limits = Limits::default();
    let found = entries(&answer, &limits);
    let paths: Vec<&[u8]> = found.iter().map(|entry| entry.path).collect();
    let expected: Vec<&[u8]> = asked.iter().map(|name| name.as_bytes()).collect();
    assert_eq!(paths, expected);
    let contents: Vec<_> = found.iter().map(|entry| entry.content.clone()).collect();
    assert_eq!(
        contents[..7],
        [
            Content::File(b"content"),
            Content::Directory,
            Content::File(b"deep"),
            Content::Symlink(b"not/there"),
            Content::Fifo,
            Content::Large(70_000),
            Content::File(b""),
        ]
    );
    let codes = [
        Code::NotFound,
        Code::Unsupported,
        Code::NotDirectory,
        Code::PathEscape,
        Code::NotFound,
    ];
    for (index, code) in (7..).zip(codes) {
        let Content::Failed(fault) = &contents[index] else {
            panic!("{:?}", contents[index]);
        };
        assert_eq!(fault.code, code, "{fault}");
        assert_eq!(fault.path, asked[index].as_bytes());
    }
    for entry in &found[..7] {
        let name = str::from_utf8(entry.path).unwrap();
        let meta = fs::symlink_metadata(scene.path(name)).unwrap();
        let ns = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        assert_eq!(entry.metadata.mtime_ns, Some(ns), "{name}");
        assert_eq!(
            entry.metadata.mode.map(u32::from),
            Some(meta.mode() & 0o7777)
        );
        assert!(entry.metadata.atime_ns.is_some());
        let owner = entry.metadata.owner.unwrap();
        assert_eq!((owner.uid, owner.gid), (meta.uid(), meta.gid()));
        assert!(owner.names.is_some());
    }
    // Without a request for them these aren't there.
    let answer = scene.read(&["f"], Preserve::default());
    let metadata = &entries(&answer, &limits)[0].metadata;
    assert_eq!((metadata.atime_ns, &metadata.owner), (None, &None));
}

#[test]
fn a_tree_that_is_taken_and_made_is_the_same() {
    let (scene, copy) = (Scene::new(), Scene::new());
    tree(&scene);
    let answer = scene.read(
        &["f", "d", "d/e", "d/e/g", "link", "pipe"],
        Preserve::default(),
    );
    assert_done(&copy.store.write_pack(b"", KEEP, &answer).unwrap());
    let again = copy.read(&["f", "d/e/g", "link", "pipe"], Preserve::default());
    let limits = Limits::default();
    let files: Vec<Entry<'_>> = entries(&answer, &limits)
        .into_iter()
        .filter(|entry| entry.content != Content::Directory)
        .collect();
    assert_eq!(entries(&again, &limits), files);
}

#[test]
fn what_has_no_room_is_left_for_the_next() {
    let scene = Scene::new();
    assert_done(&scene.write(&[file("a", &"a".repeat(600)), file("b", &"b".repeat(600))]));
    let mut source = scene
        .store
        .pack_builder(b"", Preserve::default(), 1 << 16)
        .unwrap();
    let mut small = PackWriter::new(Vec::new(), 1000);
    assert_eq!(source.add(b"a", &mut small), Added::Done);
    assert_eq!(source.add(b"b", &mut small), Added::Full);
    assert_eq!(small.entries(), 1);
    let mut tiny = PackWriter::new(Vec::new(), 300);
    let Added::Large(attributes) = source.add(b"b", &mut tiny) else {
        panic!("it has room");
    };
    assert_eq!(attributes.size, 600);
    assert_eq!(source.add(b"", &mut tiny), Added::Done);
    for path in [&b".."[..], b"/a", b"a/../a", b"a\0"] {
        let Added::Failed(fault) = source.add(path, &mut tiny) else {
            panic!("it is no path");
        };
        assert_eq!(fault.code, Code::InvalidArgument);
    }
    let request = PackRequest {
        keep: Preserve::default(),
        follow: false,
        file_bytes_max: 1 << 16,
        names: vec![b"b".to_vec(), b"a".to_vec()],
    };
    let mut pack = PackWriter::new(Vec::new(), 1000);
    scene.store.read_pack(b"", &request, &mut pack).unwrap();
    assert_eq!(pack.entries(), 1);
    // It fits into no pack of this size, and is named.
    let mut pack = PackWriter::new(Vec::new(), 300);
    scene.store.read_pack(b"", &request, &mut pack).unwrap();
    let (buffer, len) = pack.finish();
    let limits = Limits::default();
    let found = entries(&buffer[..len], &limits);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].content, Content::Large(600));
    let mut pack = PackWriter::new(Vec::new(), 300);
    for (root, code) in [
        (&b"a"[..], Code::NotDirectory),
        (b"gone", Code::NotFound),
        (b"..", Code::PathEscape),
    ] {
        let fault = scene
            .store
            .read_pack(root, &request, &mut pack)
            .unwrap_err();
        assert_eq!((fault.code, &*fault.path), (code, root), "{fault}");
    }
}

/// Whatever another thread does to the file, what is taken is one of its versions or a failure.
#[test]
fn a_file_that_grows_is_whole_or_refused() {
    let scene = Scene::new();
    fs::write(scene.path("f"), "").unwrap();
    let done = AtomicBool::new(false);
    let limits = Limits::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::OpenOptions::new()
                .append(true)
                .open(scene.path("f"))
                .unwrap();
            while !done.load(Ordering::Relaxed) {
                std::io::Write::write_all(&mut file, b"0123456789").unwrap();
                if file.metadata().unwrap().len() > 50_000 {
                    file.set_len(0).unwrap();
                }
            }
        });
        for _ in 0..200 {
            let answer = scene.read(&["f"], Preserve::default());
            match &entries(&answer, &limits)[0].content {
                Content::File(data) => assert!(data.len() <= 50_020),
                Content::Failed(fault) => assert_eq!(fault.code, Code::SourceChanged),
                other => panic!("{other:?}"),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    // A file that says that it is empty, and isn't.
    let proc = LocalStore::rooted(Path::new("/proc/self"), true).unwrap();
    let answer = read(&proc, &[b"status"], Preserve::default(), 1 << 16);
    let Content::Failed(fault) = &entries(&answer, &limits)[0].content else {
        panic!("it was taken");
    };
    assert_eq!(fault.code, Code::SourceChanged);
}

/// The longest tick of a clock that stamps files, but for those of whole seconds.
const TICK: Duration = Duration::from_millis(10);
/// The directory that [`act_alone`] works in.
const DIR: &str = "XDFS_TEST_DIR";

/// How long ago anything of a file was changed.
fn age(path: &Path) -> Duration {
    let meta = fs::metadata(path).unwrap();
    let seconds = Duration::from_secs(meta.ctime() as u64);
    let changed = UNIX_EPOCH + seconds + Duration::from_nanos(meta.ctime_nsec() as u64);
    SystemTime::now()
        .duration_since(changed)
        .unwrap_or_default()
}

/// In the tick of its last change a file could be changed once more, and look the same.
#[test]
fn what_was_written_just_now_is_waited_for_once_a_pack() {
    let mut was_left = false;
    for _ in 0..100 {
        let scene = Scene::new();
        for name in ["a", "b", "c"] {
            fs::write(scene.path(name), name).unwrap();
        }
        let opened = scene.store.pack_builder(b"", Preserve::default(), 1 << 16);
        let mut source = opened.unwrap();
        let mut first = PackWriter::new(Vec::new(), 1 << 20);
        for name in ["a", "b"] {
            assert_eq!(source.add(name.as_bytes(), &mut first), Added::Done);
            assert!(age(&scene.path(name)) >= TICK, "{name}");
        }
        fs::write(scene.path("c"), "again").unwrap();
        match source.add(b"c", &mut first) {
            Added::Failed(fault) => assert_eq!(fault.code, Code::SourceChanged),
            // This machine took its time.
            added => {
                assert_eq!(added, Added::Done);
                assert!(age(&scene.path("c")) >= TICK);
                continue;
            }
        }
        was_left = true;
        let mut second = PackWriter::new(Vec::new(), 1 << 20);
        assert_eq!(source.add(b"c", &mut second), Added::Done);
        assert!(age(&scene.path("c")) >= TICK);
        break;
    }
    assert!(was_left);
}

/// A file is written in place all the time, its first byte and then its last, and gets its old time
/// back; what is taken of it is one version. (One write alone has its time before its bytes, so
/// that nobody could tell.)
fn assert_never_mixed(dir: &Path) {
    const LENGTH: usize = 60_000;
    let store = rooted(dir);
    let path = dir.join("f");
    fs::write(&path, [0; LENGTH]).unwrap();
    let done = AtomicBool::new(false);
    let limits = Limits::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            let mut version = 0_u8;
            while !done.load(Ordering::Relaxed) {
                version = version.wrapping_add(1);
                for at in [0, LENGTH - 1] {
                    file.write_all_at(&[version], at as u64).unwrap();
                }
                file.set_modified(UNIX_EPOCH).unwrap();
            }
        });
        let is_mixed = |answer: Vec<u8>| match &entries(&answer, &limits)[0].content {
            Content::File(data) => data[0].wrapping_sub(data[LENGTH - 1]) > 1,
            Content::Failed(fault) => fault.code != Code::SourceChanged,
            _ => true,
        };
        // Without a wait that are thousands of attempts.
        let (begun, mut mixed) = (Instant::now(), false);
        while !mixed && begun.elapsed() < Duration::from_secs(1) {
            mixed = is_mixed(read(&store, &[b"f"], Preserve::default(), 1 << 16));
        }
        done.store(true, Ordering::Relaxed);
        assert!(!mixed);
    });
    let answer = read(&store, &[b"f"], Preserve::default(), 1 << 16);
    let Content::File(data) = &entries(&answer, &limits)[0].content else {
        panic!("nothing writes to it");
    };
    assert_eq!(data.len(), LENGTH);
}

/// Only run by the next one, where what it mounts ends with it.
#[test]
#[ignore = "a part of another test"]
fn act_alone() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    let mounted = Command::new("mount")
        .args(["-t", "ramfs", "none"])
        .arg(&dir)
        .status();
    assert!(mounted.unwrap().success());
    assert_never_mixed(&dir);
}

#[test]
fn a_file_that_is_written_and_gets_its_time_back_is_taken_in_one_version() {
    let dir = tempfile::tempdir().unwrap();
    assert_never_mixed(dir.path());
    // Many file systems give a file a time of its own once somebody has looked at it. This doesn't.
    if !rustix::process::geteuid().is_root() {
        return xdfs_testkit::skip::part("only root can mount");
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", "packs::read::act_alone", "--ignored"]);
    alone.env(DIR, dir.path());
    let output = confined(alone).unwrap().output();
    let Ok(output) = output else {
        return xdfs_testkit::skip::part("there is no `unshare` here");
    };
    let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    if text.contains("unshare failed") {
        return xdfs_testkit::skip::part("no mounts of its own here");
    }
    assert!(output.status.success(), "{text}");
}

#[test]
fn links_are_followed_on_request_as_far_as_the_root() {
    let scene = Scene::new();
    tree(&scene);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    for (to, name) in [
        ("d", "way"),
        ("way/e", "further"),
        ("f", "to_file"),
        ("to_file", "to_link"),
        ("large", "to_large"),
        ("pipe", "to_pipe"),
        ("itself", "itself"),
        ("..", "above"),
    ] {
        symlink(to, scene.path(name)).unwrap();
    }
    symlink(outside.path().join("secret"), scene.path("secret")).unwrap();
    symlink(outside.path(), scene.path("outside")).unwrap();
    let _socket = UnixListener::bind(scene.path("socket")).unwrap();
    symlink("socket", scene.path("to_socket")).unwrap();
    let asked = [
        "f",
        "d",
        "way",
        "way/e/g",
        "further/g",
        "to_file",
        "to_link",
        "to_large",
        "to_pipe",
        "link",
        "itself",
        "above",
        "secret",
        "outside/secret",
        "to_socket",
        "to_file/x",
    ];
    let request = PackRequest {
        keep: Preserve::default(),
        follow: true,
        file_bytes_max: 1 << 16,
        names: asked.iter().map(|name| name.as_bytes().to_vec()).collect(),
    };
    let mut writer = PackWriter::new(Vec::new(), 1 << 20);
    scene.store.read_pack(b"", &request, &mut writer).unwrap();
    let (buffer, len) = writer.finish();
    let limits = Limits::default();
    let found = entries(&buffer[..len], &limits);
    let paths: Vec<_> = found.iter().map(|entry| entry.path).collect();
    assert_eq!(paths, request.names);
    let contents: Vec<_> = found.iter().map(|entry| entry.content.clone()).collect();
    assert_eq!(
        contents[..9],
        [
            Content::File(b"content"),
            Content::Directory,
            Content::Directory,
            Content::File(b"deep"),
            Content::File(b"deep"),
            Content::File(b"content"),
            Content::File(b"content"),
            Content::Large(70_000),
            Content::Fifo,
        ]
    );
    assert_eq!(found[6].metadata.mode, Some(0o640));
    let codes: Vec<_> = contents[9..]
        .iter()
        .map(|content| match content {
            Content::Failed(fault) => fault.code,
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        Code::NotFound,
        Code::PathEscape,
        Code::PathEscape,
        Code::PathEscape,
        Code::PathEscape,
        Code::Unsupported,
        Code::NotDirectory,
    ];
    assert_eq!(codes, expected);
    // Without it, none is.
    let answer = scene.read(&["way", "way/e/g", "secret"], Preserve::default());
    let found = entries(&answer, &limits);
    assert_eq!(found[0].content, Content::Symlink(b"d"));
    assert!(matches!(&found[1].content, Content::Failed(fault) if fault.code == Code::PathEscape));
    assert!(matches!(found[2].content, Content::Symlink(_)));
}
