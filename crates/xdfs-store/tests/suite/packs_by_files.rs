//! Packs of stores that have nothing faster than one entry after the other.

use xdfs_proto::pack::{Content, Entry, Metadata, PackReader, PackRequest, PackWriter, Preserve};
use xdfs_proto::{Code, Limits};
use xdfs_store::{LocalStore, MemStore, PackOptions, read_pack, write_pack};

use crate::common::{pattern, rooted};

const TIME_NS: i64 = 1_700_000_000_000_000_000;

fn packed(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut pack = PackWriter::new(Vec::new(), 1 << 20);
    for entry in entries {
        assert!(pack.entry(entry));
    }
    let (mut bytes, length) = pack.finish();
    bytes.truncate(length);
    bytes
}

fn entry<'a>(path: &'a str, mode: u16, content: Content<'a>) -> Entry<'a> {
    Entry {
        path: path.as_bytes(),
        metadata: Metadata {
            mode: Some(mode),
            mtime_ns: Some(TIME_NS),
            ..Metadata::default()
        },
        content,
    }
}

fn request(names: &[&str]) -> PackRequest {
    PackRequest {
        keep: Preserve::default(),
        follow: false,
        file_bytes_max: 100,
        names: names.iter().map(|name| name.as_bytes().to_vec()).collect(),
    }
}

#[test]
fn entries_are_written_and_read_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let store: LocalStore = rooted(dir.path());
    let large = pattern(101);
    let entries = [
        entry("d", 0o755, Content::Directory),
        entry("d/a", 0o640, Content::File(b"content")),
        // Directories above it are made.
        entry("e/f/b", 0o600, Content::File(&large)),
        entry("d", 0o700, Content::Attributes),
    ];
    let written = write_pack(&store, b"/", PackOptions::default(), &packed(&entries));
    assert!(written.unwrap().is_empty());
    let mut pack = PackWriter::new(Vec::new(), 1 << 20);
    let names = ["d", "d/a", "e/f/b", "missing"];
    read_pack(&store, b"/", &request(&names), &mut pack).unwrap();
    let (bytes, length) = pack.finish();
    let limits = Limits::default();
    let found: Vec<_> = PackReader::new(&bytes[..length], &limits)
        .map(|entry| entry.unwrap())
        .collect();
    let mode = |at: usize| found[at].metadata.mode;
    assert_eq!(found[0].content, Content::Directory);
    assert_eq!((mode(0), mode(1)), (Some(0o700), Some(0o640)));
    assert_eq!(found[1].content, Content::File(b"content"));
    assert_eq!(found[1].metadata.mtime_ns, Some(TIME_NS));
    assert_eq!(found[2].content, Content::Large(101));
    let Content::Failed(fault) = &found[3].content else {
        panic!("{:?}", found[3]);
    };
    assert_eq!(
        (fault.code, &fault.path[..]),
        (Code::NotFound, &b"/missing"[..])
    );
}

#[cfg(unix)]
#[test]
fn metadata_is_kept_or_refused() {
    use std::os::unix::fs::MetadataExt as _;

    let dir = tempfile::tempdir().unwrap();
    let store = rooted(dir.path());
    let mut read = entry("read", 0o4755, Content::File(b"new"));
    read.metadata.atime_ns = Some(TIME_NS / 2);
    let mut named = entry("named", 0o644, Content::File(b"new"));
    named.metadata.xattrs = vec![(b"user.a", b"1")];
    // Closed to others from its beginning.
    let closed = entry("closed", 0o500, Content::Directory);
    let failures = write_pack(
        &store,
        b"/",
        PackOptions::default(),
        &packed(&[read, named, closed]),
    );
    let found = |name| std::fs::metadata(dir.path().join(name)).unwrap();
    assert_eq!(found("read").mode() & 0o7777, 0o755);
    assert_eq!(
        (found("read").atime(), found("read").mtime()),
        (850_000_000, 1_700_000_000)
    );
    assert_eq!(found("closed").mode() & 0o7777, 0o700);
    let failures = failures.unwrap();
    assert_eq!(failures.of(1).unwrap().code, Code::Unsupported);
    assert!(!dir.path().join("named").exists());
    assert!(failures.of(0).is_none() && failures.of(2).is_none());
}

#[test]
fn an_entry_that_fails_is_a_failure_beside_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = rooted(dir.path());
    let pack = packed(&[
        entry("a", 0o644, Content::File(b"new")),
        entry("b", 0o644, Content::File(b"new")),
    ]);
    std::fs::write(dir.path().join("a"), "old").unwrap();
    let failures = write_pack(&store, b"/", PackOptions::default(), &pack).unwrap();
    assert_eq!(failures.of(0).unwrap().code, Code::AlreadyExists);
    assert!(failures.of(1).is_none());
    let overwrite = PackOptions {
        overwrite: true,
        ..PackOptions::default()
    };
    assert!(
        write_pack(&store, b"/", overwrite, &pack)
            .unwrap()
            .is_empty()
    );
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"new");
    // A store without names says so for each.
    let failures = write_pack(
        &MemStore::new(),
        b"x",
        overwrite,
        &packed(&[entry("d", 0o755, Content::Directory)]),
    );
    assert_eq!(failures.unwrap().of(0).unwrap().code, Code::Unsupported);
}
