//! Local sources that aren't regular files, or change while they are read.

#![cfg(unix)]

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xdfs_proto::Code;
use xdfs_store::{LocalStore, Source, Store};

use crate::common::*;

fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf, Box<dyn Source>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    let source = open(&path);
    (dir, path, source)
}

fn open(path: &Path) -> Box<dyn Source> {
    LocalStore::unrooted()
        .open_source(path_bytes(path))
        .unwrap()
}

#[test]
fn only_regular_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path, code| {
        let path = path_bytes(path);
        assert_fault(LocalStore::unrooted().open_source(path), code, path);
        let name = &path[path_bytes(dir.path()).len().min(path.len())..];
        if path.starts_with(path_bytes(dir.path())) {
            assert_fault(rooted(dir.path()).open_source(name), code, name);
        }
    };
    let fifo = dir.path().join("fifo");
    xdfs_testkit::tree::make_pipe(&fifo).unwrap();
    // Nobody writes to it: a wait for a writer would never end.
    refused(&fifo, Code::NotRegularFile);
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    refused(&socket, Code::NotRegularFile);
    refused(Path::new("/dev/null"), Code::NotRegularFile);
    refused(Path::new("/dev/zero"), Code::NotRegularFile);
    refused(dir.path(), Code::IsDirectory);
    refused(&dir.path().join("missing"), Code::NotFound);
    // The same as targets, with force.
    for path in ["fifo", "socket"] {
        let mut force = request(path);
        force.overwrite = true;
        assert_fault(
            rooted(dir.path()).open_sink(&force),
            Code::NotRegularFile,
            path,
        );
    }
    assert_eq!(names(dir.path()), ["fifo", "socket"]);
}

#[cfg(target_os = "linux")]
#[test]
fn who_waits_to_write_into_a_pipe_hears_nothing_of_a_refusal() {
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    xdfs_testkit::tree::make_pipe(&fifo).unwrap();
    let is_open = AtomicBool::new(false);
    let store = rooted(dir.path());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _writer = OpenOptions::new().write(true).open(&fifo).unwrap();
            is_open.store(true, Ordering::SeqCst);
        });
        for _ in 0..2_000 {
            assert!(store.open_source(b"fifo").is_err());
            let path = path_bytes(&fifo);
            assert!(LocalStore::unrooted().open_source(path).is_err());
        }
        let was_open = is_open.load(Ordering::SeqCst);
        // Now somebody reads.
        let mut reader = OpenOptions::new();
        let reader = reader
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
        let _reader = reader.open(&fifo).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !is_open.load(Ordering::SeqCst) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(is_open.load(Ordering::SeqCst));
        assert!(!was_open);
    });
}

#[test]
fn what_is_known_of_a_file_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, path, _) = file(b"abc");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_890_123_456_789);
    File::open(&path).unwrap().set_modified(time).unwrap();
    let info = open(&path).info().clone();
    assert_eq!(info.mode, Some(0o640));
    assert_eq!(info.mtime_ns, Some(1_234_567_890_123_456_789));
}

/// Tools that write in place and set the time of modification back exist; the bytes of two versions
/// must not mix in one resumed transfer all the same.
#[cfg(unix)]
#[test]
fn a_tag_changes_with_the_content_even_if_the_time_is_set_back() {
    let (dir, path, source) = file(b"abc");
    let tag = source.info().tag;
    assert_eq!(open(&path).info().tag, tag);
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();
    // The clock of the file system may stand still for some milliseconds.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        std::fs::write(&path, b"xyz").unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
        if open(&path).info().tag != tag {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the tag stays");
    }
    assert_eq!(open(&path).info().mtime_ns, source.info().mtime_ns);
    // The same bytes in another file are another version.
    let tag = open(&path).info().tag;
    let copy = dir.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    assert_ne!(open(&copy).info().tag, tag);
}

#[test]
fn a_truncated_source_is_found_out_by_the_read_and_by_the_check() {
    let (_dir, path, mut source) = file(&[1; 10_000]);
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(5000)
        .unwrap();
    let mut buf = [0; 4096];
    assert_eq!(source.read_at(0, &mut buf).unwrap(), 4096);
    let truncated = source.read_at(4096, &mut buf);
    assert!(
        truncated
            .as_ref()
            .is_err_and(|f| f.cause.contains("truncated while it was read"))
    );
    assert_fault(truncated, Code::SourceChanged, path_bytes(&path));
    assert_fault(
        source.verify_unchanged(),
        Code::SourceChanged,
        path_bytes(&path),
    );
}

#[test]
fn a_grown_source_is_found_out_and_never_read_past_its_length() {
    let (_dir, path, mut source) = file(&[1; 1000]);
    OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(&[2; 1000])
        .unwrap();
    let mut buf = [0; 4096];
    assert_eq!(source.read_at(0, &mut buf).unwrap(), 1000);
    assert_eq!(source.next_data(0, u64::MAX).unwrap(), Some(range(0, 1000)));
    assert_fault(
        source.verify_unchanged(),
        Code::SourceChanged,
        path_bytes(&path),
    );
}

#[test]
fn a_source_written_to_is_found_out() {
    let (_dir, path, mut source) = file(&[1; 1000]);
    source.verify_unchanged().unwrap();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all_at(&[9], 500).unwrap();
    // The clock of the file system may be coarse: be sure that it moves.
    writer.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_fault(
        source.verify_unchanged(),
        Code::SourceChanged,
        path_bytes(&path),
    );
}

/// As some tools do: in place, and the time of modification as it was. However soon after the last
/// change the file is opened.
#[test]
fn a_source_written_to_is_found_out_though_its_time_is_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    for i in 0..100 {
        std::fs::write(&path, [1; 1000]).unwrap();
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        let mut source = open(&path);
        source.verify_unchanged().unwrap();
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all_at(&[9], 500).unwrap();
        writer.set_modified(time).unwrap();
        let changed = source.verify_unchanged();
        assert!(changed.is_err(), "attempt {i}");
        assert_fault(changed, Code::SourceChanged, path_bytes(&path));
    }
}

#[test]
fn a_source_that_is_replaced_or_vanishes_is_read_in_one_version() {
    let (dir, path, mut source) = file(b"first version");
    let other = dir.path().join("other");
    std::fs::write(&other, "second").unwrap();
    std::fs::rename(&other, &path).unwrap();
    assert_eq!(read_all(&mut *source), b"first version");
    source.verify_unchanged().unwrap();
    let mut second = open(&path);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read_all(&mut *second), b"second");
    second.verify_unchanged().unwrap();
}

#[test]
fn holes_of_a_large_sparse_file_are_found() {
    const GIB: u64 = 1 << 30;
    let (_dir, path, _) = file(b"");
    let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
    for at in [0, 3 * GIB, 5 * GIB] {
        writer.seek(SeekFrom::Start(at)).unwrap();
        writer.write_all(&[5; 4096]).unwrap();
    }
    writer.set_len(6 * GIB).unwrap();
    let mut source = open(&path);
    assert_eq!(source.info().length, Some(6 * GIB));
    let mut data = Vec::new();
    let mut at = 0;
    while let Some(found) = source.next_data(at, 6 * GIB).unwrap() {
        assert!(found.start >= at && !found.is_empty());
        data.push(found);
        at = found.end;
    }
    // All data is told, and no byte of data is called a hole.
    for start in [0, 3 * GIB, 5 * GIB] {
        assert!(
            data.iter().any(|r| r.contains(&range(start, start + 4096))),
            "{data:?}"
        );
    }
    let told: u64 = data.iter().map(xdfs_proto::ByteRange::len).sum();
    if told == 6 * GIB {
        return xdfs_testkit::skip::test("this file system knows no holes");
    }
    assert!(told < 16 << 20, "{data:?}");
    // Questions within a stretch, and with an end before the data.
    assert_eq!(
        source.next_data(3 * GIB + 1, 3 * GIB + 3).unwrap(),
        Some(range(3 * GIB + 1, 3 * GIB + 3))
    );
    assert_eq!(source.next_data(GIB, 2 * GIB).unwrap(), None);
    assert_eq!(
        source.next_data(5 * GIB + (8 << 20), 6 * GIB).unwrap(),
        None
    );
    let mut buf = [1; 8];
    assert_eq!(source.read_at(GIB, &mut buf).unwrap(), 8);
    assert_eq!(buf, [0; 8]);
    source.verify_unchanged().unwrap();
}
