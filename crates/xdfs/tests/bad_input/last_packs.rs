//! The last pack of a tree, which waits for others, from an initiator that lies about them or sends
//! them in the worst order.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use xdfs::{Code, DigestKind, DigestValue, ServerBuilder};
use xdfs_proto::FileId;
use xdfs_proto::digest::BlockHasher;
use xdfs_proto::frame::{BlockHeader, Eofr, Frame, Offer, Published, Resume, Scope, TimeAccount};
use xdfs_proto::pack::{Content, Entry, Metadata, PACK_BYTES_MAX, PackWriter};

use crate::peer::{Peer, offer};
use crate::stage::Stage;

const THEN: i64 = 1_000_000_000_000_000_000;

fn pack(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
    for entry in entries {
        assert!(pack.entry(entry));
    }
    let (mut bytes, length) = pack.finish();
    bytes.truncate(length);
    bytes
}

/// A file, in a directory that is made for it.
fn file(path: &str) -> Vec<u8> {
    pack(&[Entry {
        path: path.as_bytes(),
        metadata: Metadata::default(),
        content: Content::File(b"content"),
    }])
}

/// The mode and time of that directory.
fn metadata(path: &str) -> Vec<u8> {
    pack(&[Entry {
        path: path.as_bytes(),
        metadata: Metadata {
            mode: Some(0o510),
            mtime_ns: Some(THEN),
            ..Metadata::default()
        },
        content: Content::Attributes,
    }])
}

fn offered(number: u32, bytes: &[u8], last: Option<&[u32]>) -> Offer {
    Offer {
        file: FileId(number),
        tag: xdfs_proto::SourceTag::default(),
        digest: DigestKind::None,
        resume: Resume::Never,
        overwrite: true,
        pack: true,
        last: last.map(|files| files.iter().copied().map(FileId).collect()),
        ..offer("/tree", Some(bytes.len() as u64))
    }
}

/// Sends a pack as a whole, without waiting for anything.
fn send(peer: &mut Peer, number: u32, bytes: &[u8], last: Option<&[u32]>) {
    peer.send(&Frame::Xftsmu(offered(number, bytes, last)));
    let file = FileId(number);
    let mut hasher = BlockHasher::new(DigestKind::None, true, 0);
    hasher.update(bytes);
    let header = BlockHeader {
        file,
        check: hasher.finish(file).0,
        clear: false,
        offset: 0,
        length: u32::try_from(bytes.len()).unwrap(),
    };
    peer.raw(&header.encode());
    peer.raw(bytes);
    peer.send(&Frame::Eofr(Eofr {
        file,
        length: bytes.len() as u64,
        digest: DigestValue::None,
        time: TimeAccount::default(),
    }));
}

/// What ends next: the number of a pack, and the fault of one that failed as a whole.
#[track_caller]
fn ended(peer: &mut Peer) -> (u32, Result<Published, xdfs::Fault>) {
    loop {
        match peer.frame() {
            Frame::Accept(_) => {}
            Frame::Published(done) => return (done.file.0, Ok(done)),
            Frame::Exception(exception) => match exception.scope {
                Scope::File(file) => return (file.0, Err(exception.fault)),
                scope => panic!("{scope:?}: {}", exception.fault),
            },
            other => panic!("{other:?}"),
        }
    }
}

/// Fails if the last pack has ended: a later one is answered first.
#[track_caller]
fn still_waits(peer: &mut Peer, number: u32) {
    send(peer, number, &file("d/other"), None);
    let (ended, done) = ended(peer);
    assert_eq!(ended, number);
    assert!(done.unwrap().failures.is_empty());
}

/// [K-25]
#[test]
fn k25_a_last_pack_waits_for_packs_that_come_later() {
    let stage = Stage::new(610);
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    send(&mut peer, 9, &metadata("d"), Some(&[1, 2]));
    still_waits(&mut peer, 3);
    send(&mut peer, 1, &file("d/1"), None);
    assert_eq!(ended(&mut peer).0, 1);
    still_waits(&mut peer, 4);
    send(&mut peer, 2, &file("d/2"), None);
    assert_eq!(ended(&mut peer).0, 2);
    let (number, done) = ended(&mut peer);
    assert_eq!(number, 9);
    assert!(done.unwrap().failures.is_empty());
    let found = fs::metadata(stage.folders.there("tree/d")).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o510);
    assert_eq!(found.mtime(), THEN / 1_000_000_000);
    stage.still_serves();
}

/// [K-25]: the metadata of a directory must not reach a file that stands in its place.
#[test]
fn k25_a_last_pack_fails_with_a_pack_of_which_something_failed() {
    let stage = Stage::new(611);
    fs::create_dir(stage.folders.there("tree")).unwrap();
    let key = stage.folders.there("tree/d");
    fs::write(&key, "key").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let before = fs::metadata(&key).unwrap();
    for is_first in [true, false] {
        let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
        if is_first {
            send(&mut peer, 2, &metadata("d"), Some(&[1]));
        }
        send(&mut peer, 1, &file("d/1"), None);
        let (number, done) = ended(&mut peer);
        assert_eq!((number, done.unwrap().failures.is_empty()), (1, false));
        if !is_first {
            send(&mut peer, 2, &metadata("d"), Some(&[1]));
        }
        let (number, done) = ended(&mut peer);
        assert_eq!((number, done.unwrap_err().code), (2, Code::Stale));
        let after = fs::metadata(&key).unwrap();
        assert_eq!(after.mode(), before.mode());
        assert_eq!(after.modified().unwrap(), before.modified().unwrap());
    }
    stage.still_serves();
}

/// Packs that are refused as a whole count as failed, and a last pack may wait for another one.
#[test]
fn last_packs_wait_for_each_other() {
    let stage = Stage::new(612);
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    send(&mut peer, 3, &metadata("d"), Some(&[2, 1]));
    send(&mut peer, 2, &metadata("d"), Some(&[1]));
    send(&mut peer, 1, &file("d/1"), None);
    for number in [1, 2, 3] {
        let (ended, done) = ended(&mut peer);
        assert_eq!(ended, number);
        assert!(done.unwrap().failures.is_empty());
    }
    send(&mut peer, 6, &metadata("d"), Some(&[5]));
    // No pack at all.
    send(&mut peer, 5, b"\xff", None);
    let (number, done) = ended(&mut peer);
    assert_eq!(number, 5);
    done.unwrap_err();
    let (number, done) = ended(&mut peer);
    assert_eq!((number, done.unwrap_err().code), (6, Code::Stale));
    stage.still_serves();
}

/// Packs that wait for what never comes, and for themselves, are as many as a session may have in
/// flight; others are refused, and the end of the session ends them all.
#[test]
fn what_a_last_pack_waits_for_may_never_come() {
    let few = |server: &mut ServerBuilder| server.limits.open_files_max = 4;
    let stage = Stage::with(613, few);
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    for number in 1..=4 {
        send(&mut peer, number, &metadata("d"), Some(&[number, 77]));
    }
    send(&mut peer, 5, &metadata("d"), Some(&[77]));
    let (number, done) = ended(&mut peer);
    assert_eq!((number, done.unwrap_err().code), (5, Code::LimitExceeded));
    drop(peer);
    stage.still_serves();
    assert!(!stage.folders.there("tree").exists());
}

/// The list has a bound, and its end is that of the frame.
#[test]
fn a_list_that_does_not_fit_is_malformed() {
    let stage = Stage::new(614);
    let whole = {
        let mut bytes = Vec::new();
        Frame::Xftsmu(offered(1, &metadata("d"), Some(&[7, 8]))).encode(&mut bytes);
        bytes
    };
    // The count is before two numbers.
    let count = whole.len() - 10;
    for (told, length) in [(257_u16, whole.len()), (3, whole.len()), (1, whole.len())] {
        let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
        let mut bytes = whole.clone();
        bytes[count..count + 2].copy_from_slice(&told.to_be_bytes());
        peer.raw(&bytes[..length]);
        assert_eq!(peer.session_exception().code, Code::MalformedFrame);
    }
    stage.still_serves();
}
