//! Many small files in one operation.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use xdfs::{Client, Code, SmallFile, SmallSource};
use xdfs_testkit::wait;

use crate::awaited::block_on;
use crate::support::{Folders, Serving, client};

/// More than one pack has.
const FILES: usize = 700;
const PATIENCE: Duration = Duration::from_secs(60);

fn content(number: usize) -> Vec<u8> {
    let size = number * 37 % 9000;
    (0..size).map(|at| (at * 7 + number) as u8).collect()
}

fn name(number: usize) -> String {
    format!("folder{}/sub/file{number}", number % 7)
}

fn fill(root: &Path) {
    for number in 0..FILES {
        let path = root.join(name(number));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content(number)).unwrap();
    }
}

fn absolute(name: &str) -> Vec<u8> {
    [b"/", name.as_bytes()].concat()
}

fn read(client: &Client, paths: Vec<Vec<u8>>) -> Vec<Option<SmallFile>> {
    block_on(client.read_small_files(paths).unwrap()).unwrap()
}

#[test]
fn small_files_are_read_and_others_are_left() {
    let folders = Folders::new(950);
    let root = folders.root();
    fill(&root);
    fs::write(root.join("large"), vec![1; 600 << 10]).unwrap();
    fs::write(root.join("limit"), vec![2; 512 << 10]).unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    symlink("folder1/sub", root.join("link")).unwrap();
    symlink("link/file1", root.join("chain")).unwrap();
    symlink("/etc/passwd", root.join("out")).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(root.join("pipe"))
            .status()
            .unwrap()
            .success()
    );
    let server = Serving::start(&root, |_| {});
    let client = client(server.addr, |_| {});
    let mut paths: Vec<_> = (0..FILES).map(|number| absolute(&name(number))).collect();
    // In no order, and some twice.
    paths.reverse();
    paths.push(absolute(&name(5)));
    let others = [
        ("large", None),
        ("limit", Some(vec![2; 512 << 10])),
        ("empty", Some(Vec::new())),
        ("link/file8", Some(content(8))),
        ("chain", Some(content(1))),
        ("none", None),
        ("folder1", None),
        ("pipe", None),
        ("out", None),
        ("folder1/../empty", None),
    ];
    paths.extend(others.iter().map(|(name, _)| absolute(name)));
    paths.push(b"empty".to_vec());
    let found = read(&client, paths);
    let expected = (0..FILES)
        .rev()
        .chain([5])
        .map(|number| Some(content(number)));
    let expected = expected.chain(others.into_iter().map(|(_, content)| content));
    let expected: Vec<_> = expected.chain([None]).collect();
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.into_iter().zip(expected).enumerate() {
        assert_eq!(
            found.as_ref().map(|file| file.bytes),
            expected.as_ref().map(|content| content.len() as u64),
            "{at}"
        );
        assert!(found.map(|file| file.content) == expected, "{at}");
    }
    assert_eq!(read(&client, Vec::new()), []);
    assert_eq!(read(&client, vec![b"/no/such".to_vec()]), [None]);
}

#[test]
fn names_of_any_bytes_are_read() {
    let folders = Folders::new(951);
    let names: [&[u8]; 4] = [b"\xff\xfe", b"a b", b"new\nline", "\u{e4}".as_bytes()];
    for name in names {
        let path = folders.root().join(std::ffi::OsStr::from_bytes(name));
        fs::write(path, name).unwrap();
    }
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let paths = names.map(|name| [b"/", name].concat());
    for (file, name) in read(&client, paths.to_vec()).into_iter().zip(names) {
        assert_eq!(file.unwrap().content, name);
    }
}

#[test]
fn small_files_are_fetched_to_their_places() {
    let folders = Folders::new(952);
    let root = folders.root();
    fill(&root);
    fs::set_permissions(root.join(name(3)), PermissionsExt::from_mode(0o6750)).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    let server = Serving::start(&root, |_| {});
    let client = client(server.addr, |_| {});
    // Each gets another name, in another folder.
    let place = |number: usize| folders.here(&format!("in{}/of{number}", number % 5));
    for number in 0..5 {
        fs::create_dir(folders.here(&format!("in{number}"))).unwrap();
    }
    fs::write(place(4), "it is replaced").unwrap();
    symlink("in1", folders.here("behind")).unwrap();
    let mut files: Vec<_> = (0..FILES)
        .map(|number| (absolute(&name(number)), place(number)))
        .collect();
    for (from, to) in [
        ("folder2", "in0/made"),
        ("dangling", "in0/dangling"),
        ("none", "in0/none"),
        ("folder1/sub/file1", "behind/file"),
        ("folder1/sub/file1", "missing/file"),
    ] {
        files.push((absolute(from), folders.here(to)));
    }
    files.push((absolute(&name(1)), PathBuf::from("relative")));
    let moved = block_on(client.fetch_small_files(files).unwrap()).unwrap();
    for (number, file) in moved[..FILES].iter().enumerate() {
        assert_eq!(fs::read(place(number)).unwrap(), content(number));
        let there = fs::metadata(root.join(name(number))).unwrap();
        let here = fs::metadata(place(number)).unwrap();
        assert_eq!(here.modified().unwrap(), there.modified().unwrap());
        assert_eq!(file.as_ref().unwrap().bytes, there.len());
    }
    let mode = fs::metadata(place(3)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o750, "nothing is set-user-id");
    let rest: Vec<_> = moved[FILES..].iter().map(Option::is_some).collect();
    assert_eq!(rest[..4], [true, false, false, false]);
    assert!(!rest[5], "a relative path");
    assert!(folders.here("in0/made").is_dir());
    assert!(
        !folders.here("in1/file").exists(),
        "no local link was followed"
    );
    let made = fs::read_dir(folders.here("in0")).unwrap().count();
    assert_eq!(made, FILES / 5 + 1, "nothing else is left");
}

#[test]
fn small_files_are_sent_from_memory_and_from_files() {
    let folders = Folders::new(953);
    let root = folders.root();
    fs::create_dir_all(root.join("in/folder0")).unwrap();
    fs::create_dir_all(root.join("in/folder1/taken")).unwrap();
    fs::create_dir(root.join("elsewhere")).unwrap();
    fs::write(root.join("in/folder0/2"), "it is replaced").unwrap();
    symlink("../elsewhere", root.join("in/link")).unwrap();
    let server = Serving::start(&root, |_| {});
    let client = client(server.addr, |_| {});
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5000);
    let mut files = Vec::new();
    for number in 0..FILES {
        let target = absolute(&format!("in/folder{}/{number}", number % 4));
        let source = if number % 2 == 0 {
            SmallSource::Bytes(content(number))
        } else {
            let path = folders.here(&format!("source{number}"));
            fs::write(&path, content(number)).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
            let opened = fs::File::options().write(true).open(&path).unwrap();
            opened.set_modified(time).unwrap();
            SmallSource::Path(path)
        };
        files.push((source, target));
    }
    let left = [
        (SmallSource::Bytes(vec![0; (512 << 10) + 1]), "in/large"),
        (SmallSource::Path(folders.here("none")), "in/none"),
        (SmallSource::Path(folders.here("")), "in/directory"),
        (SmallSource::Bytes(b"x".to_vec()), "in/folder1/taken"),
        (SmallSource::Bytes(b"x".to_vec()), "in/link/x"),
        (SmallSource::Bytes(b"x".to_vec()), "in/folder0/../x"),
    ];
    files.extend(
        left.into_iter()
            .map(|(source, name)| (source, absolute(name))),
    );
    let moved = block_on(client.send_small_files(files).unwrap()).unwrap();
    for (number, file) in moved[..FILES].iter().enumerate() {
        let there = root.join(format!("in/folder{}/{number}", number % 4));
        assert_eq!(fs::read(&there).unwrap(), content(number), "{number}");
        assert_eq!(file.as_ref().unwrap().bytes, content(number).len() as u64);
        if number % 2 == 1 {
            let found = fs::metadata(&there).unwrap();
            assert_eq!(found.modified().unwrap(), time);
            assert_eq!(found.permissions().mode() & 0o7777, 0o640);
        }
    }
    assert_eq!(moved[FILES..], [const { None }; 6]);
    assert_eq!(fs::read_dir(root.join("elsewhere")).unwrap().count(), 0);
    assert_eq!(
        fs::read_dir(root.join("in/folder1/taken")).unwrap().count(),
        0
    );
}

#[test]
fn a_server_that_may_not_be_written_leaves_all() {
    let folders = Folders::new(954);
    let server = Serving::start(&folders.root(), |builder| builder.read_only = true);
    let client = client(server.addr, |_| {});
    let file = |name: &str| (SmallSource::Bytes(b"x".to_vec()), absolute(name));
    let sent = client.send_small_files(vec![file("a"), file("b")]).unwrap();
    assert_eq!(block_on(sent).unwrap(), [None, None]);
    assert_eq!(fs::read_dir(folders.root()).unwrap().count(), 0);
}

#[test]
fn the_end_of_the_session_is_a_fault_and_drops_end_operations() {
    let folders = Folders::new(955);
    fill(&folders.root());
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let paths: Vec<_> = (0..FILES).map(|number| absolute(&name(number))).collect();
    // The session has room for its transfers however many of them are given up.
    for _ in 0..20 {
        drop(client.read_small_files(paths.clone()).unwrap());
    }
    // Operations that were given up may still end.
    let is_read = wait::until(PATIENCE, || {
        let found = read(&client, paths.clone());
        found.iter().all(Option::is_some)
    });
    assert!(is_read);
    let mut late = client.read_small_files(paths.clone()).unwrap();
    client.stop();
    // It may have been quick enough.
    let _ = block_on(&mut late);
    let again = block_on(&mut late).unwrap_err();
    assert_eq!(again.code, Code::Internal);
    let fault = client.read_small_files(paths).map(block_on);
    assert!(fault.unwrap().unwrap_err().ends_session);
}
