//! Files that are opened to be worked on in place.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use xdfs_proto::file::{FileFlags, FileIdentity};
use xdfs_proto::{Code, Fault};
use xdfs_store::{FileRequest, LocalStore, MemStore, OpenedFile, Store};

use crate::common::*;

/// A root with a file of six bytes, and a secret beside it.
struct Scene {
    temp: tempfile::TempDir,
    store: LocalStore,
}

impl Scene {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("root/d")).unwrap();
        fs::write(temp.path().join("secret"), "secret").unwrap();
        fs::write(temp.path().join("root/d/file"), "public").unwrap();
        let store = rooted(&temp.path().join("root"));
        Self { temp, store }
    }

    fn there(&self, name: &str) -> PathBuf {
        self.temp.path().join("root").join(name)
    }

    fn open(&self, path: impl AsRef<[u8]>, flags: FileFlags) -> Result<OpenedFile, Fault> {
        self.store.open_file(&request(path, flags))
    }

    #[track_caller]
    fn refused(&self, path: &str, flags: FileFlags, code: Code) {
        assert_fault(self.open(path, flags), code, path);
    }

    #[track_caller]
    fn assert_content(&self, name: &str, content: &str) {
        assert_eq!(fs::read_to_string(self.there(name)).unwrap(), content);
    }
}

fn request(path: impl AsRef<[u8]>, flags: FileFlags) -> FileRequest {
    FileRequest {
        path: path.as_ref().to_vec(),
        flags,
        mode: None,
        identity: None,
    }
}

fn reading() -> FileFlags {
    FileFlags {
        read: true,
        ..FileFlags::default()
    }
}

fn writing() -> FileFlags {
    FileFlags {
        read: true,
        write: true,
        ..FileFlags::default()
    }
}

fn creating() -> FileFlags {
    FileFlags {
        create: true,
        ..writing()
    }
}

fn exclusive() -> FileFlags {
    FileFlags {
        exclusive: true,
        ..creating()
    }
}

fn content(opened: &OpenedFile) -> String {
    let mut buf = [0; 100];
    let count = opened.file.read_at(0, &mut buf).unwrap();
    String::from_utf8(buf[..count].to_vec()).unwrap()
}

#[test]
fn a_file_is_read_and_written_where_it_is() {
    let scene = Scene::new();
    let opened = scene.open("d/file", writing()).unwrap();
    assert!(!opened.created && !opened.file.is_pipe());
    assert_eq!(opened.attributes.size, 6);
    let inode = fs::metadata(scene.there("d/file")).unwrap().ino();
    assert_eq!(opened.identity.inode, inode);
    assert_eq!(content(&opened), "public");
    let mut two = [0; 2];
    assert_eq!(opened.file.read_at(3, &mut two).unwrap(), 2);
    assert_eq!(&two, b"li");
    for past in [
        6,
        7,
        i64::MAX as u64 - 1,
        i64::MAX as u64,
        u64::MAX - 1,
        u64::MAX,
    ] {
        assert_eq!(opened.file.read_at(past, &mut two).unwrap(), 0, "{past}");
    }
    opened.file.write_at(1, b"XY").unwrap();
    opened.file.write_at(8, b"z").unwrap();
    opened.file.sync(true).unwrap();
    opened.file.sync(false).unwrap();
    scene.assert_content("d/file", "pXYlic\0\0z");
    opened.file.set_length(3).unwrap();
    assert_eq!(opened.file.attributes().unwrap().size, 3);
    opened.file.set_length(4).unwrap();
    scene.assert_content("d/file", "pXY\0");
    for offset in [i64::MAX as u64, u64::MAX] {
        let result = opened.file.write_at(offset, b"x");
        assert_fault(result, Code::NoSpace, "d/file");
    }
    scene.assert_content("d/file", "pXY\0");
}

#[test]
fn what_it_is_open_for_is_all_that_it_does() {
    let scene = Scene::new();
    let opened = scene.open("d/file", reading()).unwrap();
    assert!(opened.file.write_at(0, b"x").is_err());
    assert!(opened.file.set_length(0).is_err());
    let flags = FileFlags {
        write: true,
        ..FileFlags::default()
    };
    let opened = scene.open("d/file", flags).unwrap();
    assert!(opened.file.read_at(0, &mut [0]).is_err());
    scene.assert_content("d/file", "public");
}

#[test]
fn a_file_is_made_once() {
    let scene = Scene::new();
    scene.refused("new", writing(), Code::NotFound);
    scene.refused("no/new", creating(), Code::NotFound);
    let wish = FileRequest {
        mode: Some(0o640),
        ..request("new", exclusive())
    };
    let opened = scene.store.open_file(&wish).unwrap();
    assert!(opened.created);
    opened.file.write_at(0, b"made").unwrap();
    opened.file.sync(false).unwrap();
    let mode = fs::metadata(scene.there("new")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o640);
    scene.refused("new", exclusive(), Code::AlreadyExists);
    let again = scene.open("new", creating()).unwrap();
    assert!(!again.created);
    assert_eq!(again.identity, opened.identity);
    assert_eq!(content(&again), "made");
    let flags = FileFlags {
        truncate: true,
        ..writing()
    };
    scene.open("new", flags).unwrap();
    scene.assert_content("new", "");
    scene.refused("new/", creating(), Code::NotDirectory);
    scene.refused("other/", creating(), Code::IsDirectory);
}

#[test]
fn of_many_who_make_a_file_one_has_made_it() {
    let scene = Scene::new();
    for round in 0..50 {
        let path = format!("f{round}");
        let made = std::thread::scope(|scope| {
            let tries = [(); 4].map(|()| scope.spawn(|| scene.open(&path, exclusive())));
            let made = tries.map(|one| one.join().unwrap().is_ok());
            made.into_iter().filter(|made| *made).count()
        });
        assert_eq!(made, 1);
    }
}

#[test]
fn appending_finds_the_end() {
    let scene = Scene::new();
    let flags = FileFlags {
        append: true,
        ..writing()
    };
    let opened = scene.open("d/file", flags.clone()).unwrap();
    let other = scene.open("d/file", flags).unwrap();
    assert_eq!(opened.file.append(b"12").unwrap(), 6);
    assert_eq!(other.file.append(b"345").unwrap(), 8);
    assert_eq!(opened.file.append(b"6").unwrap(), 11);
    scene.assert_content("d/file", "public123456");
}

#[test]
fn another_file_under_the_name_is_told() {
    let scene = Scene::new();
    let was = scene.open("d/file", reading()).unwrap().identity;
    let again = |identity| {
        let wish = FileRequest {
            identity: Some(identity),
            ..request("d/file", writing())
        };
        scene.store.open_file(&wish)
    };
    assert_eq!(content(&again(was).unwrap()), "public");
    let other = FileIdentity {
        inode: was.inode.wrapping_add(1),
        ..was
    };
    assert_fault(again(other), Code::Stale, "d/file");
    fs::rename(scene.there("d/file"), scene.there("moved")).unwrap();
    assert_fault(again(was), Code::Stale, "d/file");
    fs::write(scene.there("d/file"), "other").unwrap();
    assert_fault(again(was), Code::Stale, "d/file");
    scene.assert_content("d/file", "other");
}

#[test]
fn what_is_no_file_is_not_opened() {
    let scene = Scene::new();
    scene.refused("d", reading(), Code::IsDirectory);
    scene.refused("d/", creating(), Code::IsDirectory);
    scene.refused("d/file/", reading(), Code::NotDirectory);
    scene.refused("d/file/x", creating(), Code::NotDirectory);
    let _socket = UnixListener::bind(scene.there("socket")).unwrap();
    scene.refused("socket", reading(), Code::NotRegularFile);
    scene.refused("d/.file.xdfs-part", creating(), Code::PermissionDenied);
    for empty in ["", "/", "."] {
        assert!(scene.open(empty, creating()).is_err(), "{empty:?}");
    }
    assert_eq!(names(&scene.there("d")), ["file"]);
}

#[test]
fn links_are_followed_within_the_root_alone() {
    let scene = Scene::new();
    symlink("d/file", scene.there("in")).unwrap();
    symlink("../secret", scene.there("out")).unwrap();
    symlink(scene.temp.path().join("secret"), scene.there("absolute")).unwrap();
    symlink("..", scene.there("up")).unwrap();
    symlink("nothing", scene.there("dangling")).unwrap();
    symlink("../made", scene.there("dangling-out")).unwrap();
    assert_eq!(content(&scene.open("in", reading()).unwrap()), "public");
    for path in [
        "out",
        "absolute",
        "up/secret",
        "../secret",
        "d/../../secret",
    ] {
        for flags in [reading(), writing(), creating(), exclusive()] {
            let result = scene.open(path, flags.clone());
            assert!(result.is_err(), "{path} {flags:?}");
        }
    }
    for path in ["dangling", "dangling-out"] {
        assert!(scene.open(path, creating()).is_err(), "{path}");
        scene.refused(path, exclusive(), Code::AlreadyExists);
    }
    let beside = names(scene.temp.path());
    assert_eq!(beside, ["root", "secret"]);
    let secret = fs::read(scene.temp.path().join("secret")).unwrap();
    assert_eq!(secret, b"secret");
}

#[test]
fn a_store_that_takes_no_writes_opens_for_reading() {
    let scene = Scene::new();
    let store = LocalStore::rooted(&scene.there(""), true).unwrap();
    let open = |flags| store.open_file(&request("d/file", flags));
    assert_eq!(content(&open(reading()).unwrap()), "public");
    for flags in [writing(), creating(), exclusive()] {
        assert_fault(open(flags), Code::ReadOnly, "d/file");
    }
    scene.assert_content("d/file", "public");
}

#[test]
fn a_pipe_has_two_ends() {
    let scene = Scene::new();
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, scene.there("pipe"), FileType::Fifo, mode, 0).unwrap();
    let flags = FileFlags {
        write: true,
        ..FileFlags::default()
    };
    // Nobody reads yet; that is to be tried again.
    let fault = scene.open("pipe", flags.clone()).unwrap_err();
    assert_eq!(fault.code, Code::Busy);
    scene.refused("pipe", writing(), Code::InvalidArgument);
    let reader = scene.open("pipe", reading()).unwrap();
    assert!(reader.file.is_pipe());
    let mut buf = [0; 10];
    assert_eq!(reader.file.read_pipe(&mut buf).unwrap(), None);
    let writer = scene.open("pipe", flags).unwrap();
    assert_eq!(writer.file.write_pipe(b"abc").unwrap(), Some(3));
    assert_eq!(reader.file.read_pipe(&mut buf).unwrap(), Some(3));
    assert_eq!(reader.file.read_pipe(&mut buf).unwrap(), None);
    drop(writer);
    assert_eq!(reader.file.read_pipe(&mut buf).unwrap(), Some(0));
    // A full one takes nothing, and one without a reader is an error.
    let writer = scene.open(
        "pipe",
        FileFlags {
            write: true,
            ..FileFlags::default()
        },
    );
    let writer = writer.unwrap();
    let piece = [0; 4096];
    let mut written = 0;
    while let Some(count) = writer.file.write_pipe(&piece).unwrap() {
        written += count;
        assert!(written < 64 << 20, "it is never full");
    }
    drop(reader);
    assert_fault(writer.file.write_pipe(b"x"), Code::Io, "pipe");
}

#[test]
fn other_stores_say_that_they_cannot() {
    let store = MemStore::default();
    let result = store.open_file(&request("f", creating()));
    assert_fault(result, Code::Unsupported, "f");
}

#[test]
fn an_open_file_outlives_its_name() {
    let scene = Scene::new();
    let opened = scene.open("d/file", writing()).unwrap();
    fs::remove_file(scene.there("d/file")).unwrap();
    opened.file.write_at(0, b"P").unwrap();
    assert_eq!(content(&opened), "Public");
    assert_eq!(opened.file.attributes().unwrap().links, 0);
    assert!(!scene.there("d/file").exists());
}
