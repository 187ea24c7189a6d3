//! What packs take.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use xdfs_store::Added;

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
    let keep = Keep {
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
    // Without a wish for them these aren't there.
    let answer = scene.read(&["f"], Keep::default());
    let metadata = &entries(&answer, &limits)[0].metadata;
    assert_eq!((metadata.atime_ns, &metadata.owner), (None, &None));
}

#[test]
fn a_tree_that_is_taken_and_made_is_the_same() {
    let (scene, copy) = (Scene::new(), Scene::new());
    tree(&scene);
    let answer = scene.read(&["f", "d", "d/e", "d/e/g", "link", "pipe"], Keep::default());
    assert_done(&copy.store.write_pack(b"", KEEP, &answer).unwrap());
    let again = copy.read(&["f", "d/e/g", "link", "pipe"], Keep::default());
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
        .pack_source(b"", Keep::default(), 1 << 16)
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
    let wish = Wish {
        keep: Keep::default(),
        file_bytes_max: 1 << 16,
        names: vec![b"b".to_vec(), b"a".to_vec()],
    };
    let mut pack = PackWriter::new(Vec::new(), 1000);
    scene.store.read_pack(b"", &wish, &mut pack).unwrap();
    assert_eq!(pack.entries(), 1);
    // It fits into no pack of this size, and is named.
    let mut pack = PackWriter::new(Vec::new(), 300);
    scene.store.read_pack(b"", &wish, &mut pack).unwrap();
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
        let fault = scene.store.read_pack(root, &wish, &mut pack).unwrap_err();
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
        for _ in 0..2000 {
            let answer = scene.read(&["f"], Keep::default());
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
    let answer = read(&proc, &[b"status"], Keep::default(), 1 << 16);
    let Content::Failed(fault) = &entries(&answer, &limits)[0].content else {
        panic!("it was taken");
    };
    assert_eq!(fault.code, Code::SourceChanged);
}
