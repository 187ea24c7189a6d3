//! Calls that somebody watches: what they read is counted, and they end when nobody wants them.

use std::cell::Cell;
use std::rc::Rc;

use xdfs_proto::delta::{Seed, SeedPiece};
use xdfs_proto::digest::{BlockHasher, ChecksumKind, DigestKind};
use xdfs_proto::{FileId, Retry, SourceTag};
use xdfs_store::watched;

use super::*;

const MIB: usize = 1 << 20;

fn sum() -> Call {
    Call::Checksum {
        path: bytes("d/file"),
        offset: 0,
        length: None,
        kind: ChecksumKind::Blake3,
    }
}

fn copy() -> Call {
    Call::Copy {
        from: bytes("d/file"),
        to: bytes("d/copy"),
        overwrite: false,
    }
}

fn signatures() -> Call {
    Call::Signatures {
        path: bytes("d/file"),
        digest: DigestKind::None,
        block_bytes: 1 << 18,
        first: 0,
        count: 12,
    }
}

fn seed(content: &[u8]) -> Call {
    let piece = |offset: usize| {
        let mut hasher = BlockHasher::new(DigestKind::Crc64Nvme, false, offset as u64);
        hasher.update(&content[offset..offset + MIB]);
        SeedPiece {
            offset: offset as u64,
            from_offset: offset as u64,
            length: MIB as u32,
            state: hasher.finish(FileId(0)).1.state,
        }
    };
    Call::Seed(Box::new(Seed {
        from: bytes("d/file"),
        to: bytes("d/new"),
        overwrite: false,
        sparse: false,
        tag: SourceTag([3; 16]),
        length: content.len() as u64,
        digest: DigestKind::Crc64Nvme,
        block_bytes: 1024,
        pieces: vec![piece(0), piece(MIB), piece(2 * MIB)],
    }))
}

fn scene() -> (Scene, Vec<u8>) {
    let scene = Scene::new();
    let content: Vec<u8> = (0..3 * MIB).map(|n| (n * n / 11 % 253) as u8).collect();
    std::fs::write(scene.root().join("d/file"), &content).unwrap();
    (scene, content)
}

fn calls(content: &[u8]) -> [Call; 4] {
    [sum(), copy(), signatures(), seed(content)]
}

#[test]
fn what_is_read_is_counted() {
    let (scene, content) = scene();
    for call in calls(&content) {
        let (answer, passed) = watched(|| Ok(()), || scene.call(&call));
        assert!(answer.is_ok(), "{call:?}: {answer:?}");
        assert_eq!(passed, content.len() as u64, "{call:?}");
    }
    // What is there already isn't read again.
    let (answer, passed) = watched(|| Ok(()), || scene.call(&seed(&content)));
    assert_eq!((answer, passed), (Ok(Answer::Copied { bytes: 0 }), 0));
    // What is refused costs nothing.
    let (answer, passed) = watched(|| Ok(()), || scene.call(&copy()));
    assert_eq!((answer.unwrap_err().code, passed), (Code::AlreadyExists, 0));
}

#[test]
fn what_nobody_wants_ends_and_leaves_nothing_half_done() {
    let (scene, content) = scene();
    for call in calls(&content) {
        let asked = Rc::new(Cell::new(0));
        let count = Rc::clone(&asked);
        let look = move || {
            count.set(count.get() + 1);
            Err(Fault::new(Code::ShuttingDown, "", "enough").retry(Retry::Never))
        };
        let (answer, passed) = watched(look, || scene.call(&call));
        assert_eq!(answer.unwrap_err().code, Code::ShuttingDown, "{call:?}");
        assert_eq!(asked.get(), 1, "{call:?}");
        assert!(
            passed > 0 && passed <= content.len() as u64,
            "{call:?}: {passed}"
        );
    }
    assert!(!scene.root().join("d/copy").exists());
    // Nothing is claimed of the seed, and all of it can be had again.
    let seeded = scene.call(&seed(&content)).unwrap();
    let bytes = content.len() as u64;
    assert_eq!(seeded, Answer::Copied { bytes });
}

#[test]
fn what_was_read_of_a_file_that_changed_is_counted() {
    let (scene, _) = scene();
    let path = scene.root().join("d/file");
    let cut = move || {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(1000).unwrap();
        Ok(())
    };
    let (answer, passed) = watched(cut, || scene.call(&sum()));
    assert_eq!(answer.unwrap_err().code, Code::SourceChanged);
    assert!((1..=MIB as u64).contains(&passed), "{passed}");
}
