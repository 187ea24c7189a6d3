//! Tests of a local sink with failing or interrupted calls.

use xdfs_proto::digest::{DigestKind, FragmentState};

use super::super::root::Root;
use super::*;

fn request() -> SinkRequest {
    SinkRequest {
        path: b"file".to_vec(),
        name: Vec::new(),
        offset: 0,
        length: None,
        tag: SourceTag([1; 16]),
        mode: None,
        mtime_ns: None,
        digest: DigestKind::None,
        block_size: 4096,
        overwrite: false,
        resume: Resume::Trust,
        sparse: false,
    }
}

fn sink(dir: &std::path::Path, request: &SinkRequest) -> LocalSink {
    let root = Root::new(fs::Dir::open(dir).unwrap());
    let target = Target::resolve(Some(&root), request).unwrap();
    let names = HiddenNames::of(&target.name);
    let Partial { file, .. } = Partial::open(&target, &names).unwrap();
    LocalSink {
        journal: JournalFile::new(request),
        durable: FragmentMap::new(request.digest),
        reread: None,
        size: 0,
        storage: Storage::Other,
        request: request.clone(),
        preallocated: 0,
        direct: None,
        holes: RangeSet::new(),
        uncleared: RangeSet::new(),
        unsynced: RangeSet::new(),
        lost: RangeSet::new(),
        is_closed: false,
        target,
        names,
        file,
    }
}

fn fragment(start: u64, end: u64) -> Fragment {
    Fragment {
        range: ByteRange { start, end },
        state: FragmentState::None,
    }
}

/// After a failure the system forgets which pages it could not write: a second call would succeed
/// without effect.
#[test]
fn a_failed_sync_is_final_until_the_bytes_are_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut sink = sink(dir.path(), &request());
    let bytes = [1; 8192];
    sink.write_at(0, &[IoSlice::new(&bytes[..4096])]).unwrap();
    sink.sync().unwrap();
    sink.write_at(4096, &[IoSlice::new(&bytes)]).unwrap();
    sink.sync_by(|_| Err(io::Error::other("the disk is gone")))
        .unwrap_err();
    // Earlier durable data still is.
    sink.record(&[fragment(0, 4096)]).unwrap();
    let fault = sink.sync().unwrap_err();
    assert!(fault.cause.contains("8192 bytes were lost"), "{fault}");
    assert_eq!(
        sink.record(&[fragment(4096, 8192)]).unwrap_err().code,
        Code::Internal
    );
    // Writing a part isn't enough.
    sink.write_at(4096, &[IoSlice::new(&bytes[..4096])])
        .unwrap();
    sink.sync().unwrap_err();
    sink.publish(12288, &[]).unwrap_err();
    assert!(!dir.path().join("file").exists());
    sink.write_at(8192, &[IoSlice::new(&bytes[..4096])])
        .unwrap();
    sink.sync().unwrap();
    sink.record(&[fragment(4096, 12288)]).unwrap();
    sink.publish(12288, &[]).unwrap();
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), [1; 12288]);
}

/// Omitted zeros may be bytes that the system couldn't write.
#[test]
fn zeros_are_written_where_bytes_were_lost() {
    let dir = tempfile::tempdir().unwrap();
    let request = SinkRequest {
        sparse: true,
        ..request()
    };
    let mut sink = sink(dir.path(), &request);
    let all = ByteRange {
        start: 0,
        end: 8192,
    };
    sink.write_at(0, &[IoSlice::new(&[0; 8192])]).unwrap();
    assert_eq!((sink.size, sink.is_empty(all)), (0, true));
    sink.sync_by(|_| Err(io::Error::other("the disk is gone")))
        .unwrap_err();
    assert!(!sink.is_empty(all));
    sink.write_at(0, &[IoSlice::new(&[0; 8192])]).unwrap();
    assert_eq!(sink.size, 8192);
    sink.sync().unwrap();
    sink.record(&[fragment(0, 8192)]).unwrap();
    sink.publish(8192, &[]).unwrap();
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), [0; 8192]);
}

/// The journal's own file may fail too; then it is rewritten before it grows.
#[cfg(target_os = "linux")]
#[test]
fn a_journal_that_failed_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut sink = sink(dir.path(), &request());
    sink.write_at(0, &[IoSlice::new(&[1; 8192])]).unwrap();
    sink.sync().unwrap();
    sink.record(&[fragment(0, 4096)]).unwrap();
    // A directory at the new journal's path makes the rewrite fail.
    let obstacle = dir.path().join(".file.xdfs-journal-new");
    std::fs::create_dir(&obstacle).unwrap();
    sink.journal.fill_the_disk_for_test();
    let full = sink.record(&[fragment(4096, 8192)]).unwrap_err();
    assert_eq!(full.code, Code::NoSpace, "{full}");
    // No more appends to the file, whether the disk has room again or not.
    let obstructed = sink.record(&[fragment(4096, 8192)]).unwrap_err();
    assert_ne!(obstructed.code, Code::NoSpace, "{obstructed}");
    std::fs::remove_dir(&obstacle).unwrap();
    // Nothing new, but the failed write is repeated.
    sink.record(&[fragment(4096, 8192)]).unwrap();
    drop(sink);
    assert_eq!(reopened(dir.path()).durable, [fragment(0, 8192)]);
}

/// Neither a failure nor a kill leaves a replacement journal behind.
#[test]
fn a_new_journal_that_gets_no_name_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join(".file.xdfs-journal-new");
    let mut first = sink(dir.path(), &request());
    first.write_at(0, &[IoSlice::new(&[1; 8192])]).unwrap();
    first.sync().unwrap();
    // A directory at the journal's path makes the rename fail.
    std::fs::create_dir(dir.path().join(".file.xdfs-journal")).unwrap();
    first.record(&[fragment(0, 4096)]).unwrap_err();
    assert!(!new.exists());
    std::fs::remove_dir(dir.path().join(".file.xdfs-journal")).unwrap();
    first.record(&[fragment(0, 4096)]).unwrap();
    // As if killed during the rewrite.
    std::fs::write(&new, b"half").unwrap();
    drop(first);
    let mut second = reopened(dir.path()).sink;
    second.write_at(4096, &[IoSlice::new(&[1; 4096])]).unwrap();
    second.publish(8192, &[]).unwrap();
    drop(second);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

fn reopened(dir: &std::path::Path) -> OpenedSink {
    let root = Root::new(fs::Dir::open(dir).unwrap());
    let target = Target::resolve(Some(&root), &request()).unwrap();
    open(target, &request()).unwrap()
}

/// Stops wherever a process may be killed, and retries: nothing of the target is lost, and a
/// published file is recognised.
#[test]
fn a_publication_may_be_broken_off_anywhere() {
    const LENGTH: u64 = 12288;
    let names = |dir: &std::path::Path| {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for steps in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = sink(dir.path(), &request());
        sink.write_at(0, &[IoSlice::new(&[1; 8192])]).unwrap();
        sink.sync().unwrap();
        sink.record(&[fragment(0, 8192)]).unwrap();
        sink.write_at(8192, &[IoSlice::new(&[1; 4096])]).unwrap();
        let fresh = [fragment(8192, LENGTH)];
        sink.finish_file(LENGTH).unwrap();
        sink.sync_by(std::fs::File::sync_all).unwrap();
        if steps > 0 {
            sink.announce(LENGTH, &fresh).unwrap();
        }
        if steps > 1 {
            sink.rename().unwrap();
        }
        if steps > 2 {
            sink.target.dir.sync().unwrap();
        }
        if steps > 3 {
            JournalFile::remove(&sink.target.dir, &sink.names).unwrap();
        }
        drop(sink);
        let target = dir.path().join("file");
        assert_eq!(target.exists(), steps > 1);
        if steps > 3 {
            // Without the answer in flight, this would be unknown.
            let root = Root::new(fs::Dir::open(dir.path()).unwrap());
            let resolved = Target::resolve(Some(&root), &request()).unwrap();
            let fault = open(resolved, &request()).unwrap_err();
            assert_eq!(fault.code, Code::AlreadyExists);
        } else {
            let mut again = reopened(dir.path());
            let held: u64 = again.durable.iter().map(|f| f.range.len()).sum();
            assert_eq!(held, if steps > 0 { LENGTH } else { 8192 }, "step {steps}");
            if steps == 0 {
                let rest = [IoSlice::new(&[1; 4096])];
                again.sink.write_at(8192, &rest).unwrap();
            }
            again.sink.publish(LENGTH, &[]).unwrap();
        }
        assert_eq!(std::fs::read(&target).unwrap(), [1; LENGTH as usize]);
        assert_eq!(names(dir.path()), ["file"], "step {steps}");
    }
}

/// The target must be the published file itself, unchanged.
#[test]
fn another_target_is_not_taken_for_what_was_published() {
    type Change = fn(&std::path::Path);
    let changes: [(&str, Change); 3] = [
        ("another file", |path| {
            let copy = path.with_file_name("copy");
            std::fs::copy(path, &copy).unwrap();
            std::fs::rename(copy, path).unwrap();
        }),
        ("longer", |path| {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_len(5000).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(1))
                .unwrap();
        }),
        ("written to", |path| {
            std::fs::write(path, [2; 4096]).unwrap();
        }),
    ];
    let mut wanted = request();
    wanted.mtime_ns = Some(1_000_000_000);
    for (what, change) in changes {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = sink(dir.path(), &wanted);
        sink.write_at(0, &[IoSlice::new(&[1; 4096])]).unwrap();
        sink.finish_file(4096).unwrap();
        sink.sync_by(std::fs::File::sync_all).unwrap();
        sink.announce(4096, &[fragment(0, 4096)]).unwrap();
        sink.rename().unwrap();
        drop(sink);
        change(&dir.path().join("file"));
        let root = Root::new(fs::Dir::open(dir.path()).unwrap());
        let target = Target::resolve(Some(&root), &wanted).unwrap();
        let fault = open(target, &wanted).unwrap_err();
        assert_eq!(fault.code, Code::AlreadyExists, "{what}");
        // With overwrite it is replaced like any other.
        let forced = SinkRequest {
            overwrite: true,
            ..wanted.clone()
        };
        let target = Target::resolve(Some(&root), &forced).unwrap();
        assert_eq!(open(target, &forced).unwrap().durable, [], "{what}");
    }
}

/// Another process, which sees the same file system, writes into the unfinished file.
#[test]
fn others_write_into_the_file_that_is_published_and_into_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = crate::LocalStore::rooted(dir.path(), false).unwrap();
    let elsewhere = crate::LocalStore::rooted(dir.path(), false).unwrap();
    use crate::{SharedStore as _, Store as _};
    let asked = SinkRequest {
        resume: Resume::Never,
        ..request()
    };
    let open_it = |number| elsewhere.open_partial(b"file", number);
    assert_eq!(open_it(1).unwrap_err().code, Code::NotFound);
    let mut sink = store.open_sink(&asked).unwrap().sink;
    let number = sink.shared().unwrap().number().unwrap();
    assert_eq!(open_it(number + 1).unwrap_err().code, Code::Stale);
    let stale = open_it(number).unwrap();
    stale.write_at(0, b"abc").unwrap();
    // More than is there isn't believed.
    let range = |start, end| ByteRange { start, end };
    assert_eq!(
        sink.shared()
            .unwrap()
            .written_elsewhere(range(0, 4))
            .unwrap_err()
            .code,
        Code::Io
    );
    sink.shared()
        .unwrap()
        .written_elsewhere(range(0, 3))
        .unwrap();
    sink.record(&[fragment(0, 3)]).unwrap();
    drop(sink);
    // The next attempt begins anew, with a file into which nobody else writes.
    let mut sink = store.open_sink(&asked).unwrap().sink;
    let next = sink.shared().unwrap().number().unwrap();
    stale.write_at(0, b"xxxxxx").unwrap();
    assert_eq!(open_it(next).unwrap().attributes().unwrap().size, 0);
    open_it(next).unwrap().write_at(0, b"defg").unwrap();
    sink.shared()
        .unwrap()
        .written_elsewhere(range(0, 4))
        .unwrap();
    sink.publish(4, &[]).unwrap();
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"defg");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
