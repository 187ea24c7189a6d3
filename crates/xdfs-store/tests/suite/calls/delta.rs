//! Calls about versions of a file: sums of blocks, and transfers that begin with an old file.

use xdfs_proto::SourceTag;
use xdfs_proto::delta::{Seed, SeedPiece, Signatures, strong, weak};
use xdfs_proto::digest::{BlockHasher, DigestKind, FragmentState};
use xdfs_proto::frame::Resume;
use xdfs_proto::{ByteRange, FileId};

use super::*;

const TAG: SourceTag = SourceTag([9; 16]);

fn signatures(path: &str, digest: DigestKind, first: u64, count: u32) -> Call {
    Call::Signatures {
        path: bytes(path),
        digest,
        block_bytes: 1024,
        first,
        count,
    }
}

fn state(content: &[u8], at: usize, digest: DigestKind) -> FragmentState {
    let mut hasher = BlockHasher::new(digest, false, at as u64);
    hasher.update(&content[at..content.len().min(at + 1024)]);
    hasher.finish(FileId(0)).1.state
}

fn content(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * n / 7 % 251) as u8).collect()
}

/// A seed of the file "d/new" by blocks of `new` that stand elsewhere in "d/old".
fn seed(new: &[u8], blocks: &[(usize, u64)]) -> Seed {
    let digest = DigestKind::Blake3;
    let piece = |(at, from): &(usize, u64)| SeedPiece {
        offset: *at as u64,
        from_offset: *from,
        length: u32::try_from((new.len() - at).min(1024)).unwrap(),
        state: state(new, *at, digest),
    };
    Seed {
        from: bytes("d/old"),
        to: bytes("d/new"),
        overwrite: false,
        sparse: false,
        tag: TAG,
        length: new.len() as u64,
        digest,
        block_bytes: 1024,
        pieces: blocks.iter().map(piece).collect(),
    }
}

impl Scene {
    fn signatures(&self, call: &Call) -> Signatures {
        match self.call(call).unwrap() {
            Answer::Signatures(signatures) => signatures,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn seeded(&self, seed: Seed) -> u64 {
        match self.call(&Call::Seed(Box::new(seed))).unwrap() {
            Answer::Copied { bytes } => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// What a transfer to "d/new" finds to be there, and what it holds.
    fn begun(&self, seed: &Seed) -> (Vec<ByteRange>, Vec<u8>) {
        let request = xdfs_store::SinkRequest {
            length: Some(seed.length),
            tag: seed.tag,
            digest: seed.digest,
            block_size: 1024,
            resume: Resume::Trust,
            overwrite: seed.overwrite,
            ..request("d/new")
        };
        let opened = self.store.open_sink(&request).unwrap();
        let ranges = opened.durable.iter().map(|f| f.range).collect();
        let partial = self.root().join("d/.new.xdfs-part");
        (ranges, std::fs::read(partial).unwrap())
    }
}

#[test]
fn sums_are_those_of_the_blocks() {
    let scene = Scene::new();
    let old = content(3 * 1024 + 5);
    std::fs::write(scene.root().join("d/old"), &old).unwrap();
    let tag = scene.store.open_source(b"d/old").unwrap().info().tag;
    for digest in [DigestKind::None, DigestKind::Crc64Nvme, DigestKind::Blake3] {
        let all = scene.signatures(&signatures("d/old", digest, 0, 100));
        assert_eq!((all.tag, all.length, all.first), (tag, old.len() as u64, 0));
        assert_eq!((all.digest, all.blocks.len()), (digest, 4));
        for (n, block) in old.chunks(1024).enumerate() {
            let found = &all.blocks[n];
            assert_eq!(found.weak, weak(block));
            assert_eq!(found.strong, strong(block));
            assert_eq!(found.state, state(&old, n * 1024, digest));
        }
        let some = scene.signatures(&signatures("d/old", digest, 1, 2));
        assert_eq!((some.first, &some.blocks[..]), (1, &all.blocks[1..3]));
        for first in [4, 5, (1 << 54) - 1] {
            let none = scene.signatures(&signatures("d/old", digest, first, 1));
            assert_eq!(none.blocks, []);
        }
    }
    let none = DigestKind::None;
    scene.refused(&signatures("d", none, 0, 1), Code::IsDirectory, "d");
    scene.refused(&signatures("no", none, 0, 1), Code::NotFound, "no");
    let hidden = "d/.x.xdfs-part";
    scene.refused(
        &signatures(hidden, none, 0, 1),
        Code::PermissionDenied,
        hidden,
    );
    let out = "../secret";
    scene.refused(&signatures(out, none, 0, 1), Code::PathEscape, out);
}

#[test]
fn a_transfer_goes_on_from_what_was_seeded() {
    let scene = Scene::new();
    let new = content(4 * 1024 + 9);
    // The second block and the end of the new file, at other places.
    let old = [b"xyz", &new[1024..2048], &new[4096..]].concat();
    std::fs::write(scene.root().join("d/old"), &old).unwrap();
    let seed = seed(&new, &[(1024, 3), (4096, 3 + 1024)]);
    assert_eq!(scene.seeded(seed.clone()), 1024 + 9);
    assert_eq!(names(&scene.root().join("d")).len(), 4);
    let (ranges, partial) = scene.begun(&seed);
    let range = |start, end| ByteRange { start, end };
    assert_eq!(ranges, [range(1024, 2048), range(4096, 4105)]);
    assert_eq!(partial[1024..2048], new[1024..2048]);
    assert_eq!(partial[4096..], new[4096..]);
    // What is there is not copied again, and what is missing is added.
    assert_eq!(scene.seeded(seed.clone()), 0);
    std::fs::write(scene.root().join("d/old"), &new).unwrap();
    let more = Seed {
        pieces: self::seed(&new, &[(0, 0), (1024, 1024), (2048, 2048)]).pieces,
        ..seed.clone()
    };
    assert_eq!(scene.seeded(more), 2048);
    let (ranges, partial) = scene.begun(&seed);
    assert_eq!(ranges.iter().map(ByteRange::len).sum::<u64>(), 3 * 1024 + 9);
    assert_eq!(partial[..3072], new[..3072]);
    // Another version starts over.
    let other = Seed {
        tag: SourceTag([8; 16]),
        ..self::seed(&new, &[(0, 0)])
    };
    assert_eq!(scene.seeded(other.clone()), 1024);
    assert_eq!(scene.begun(&other).0, [range(0, 1024)]);
}

#[test]
fn pieces_that_are_not_as_said_are_left_out() {
    let scene = Scene::new();
    let new = content(3 * 1024);
    let mut old = new.clone();
    old[1500] ^= 1;
    old.truncate(2 * 1024 + 1000);
    std::fs::write(scene.root().join("d/old"), &old).unwrap();
    // The second has another byte, and the third isn't there as a whole.
    let seed = seed(&new, &[(0, 0), (1024, 1024), (2048, 2048)]);
    assert_eq!(scene.seeded(seed.clone()), 1024);
    let (ranges, partial) = scene.begun(&seed);
    assert_eq!(
        ranges,
        [ByteRange {
            start: 0,
            end: 1024
        }]
    );
    assert!(
        partial
            .get(1024..)
            .unwrap_or_default()
            .iter()
            .all(|b| *b == 0)
    );
    std::fs::remove_file(scene.root().join("d/.new.xdfs-part")).unwrap();
    std::fs::remove_file(scene.root().join("d/.new.xdfs-journal")).unwrap();
    // With nothing of use nothing is left.
    let useless = Seed {
        pieces: vec![seed.pieces[1]],
        ..seed
    };
    assert_eq!(scene.seeded(useless), 0);
    assert_eq!(names(&scene.root().join("d")), ["file", "old"]);
    assert_eq!(std::fs::read(scene.root().join("d/old")).unwrap(), old);
}

/// Of a source with holes, zeros that the old file has take no storage, nor is any reserved.
#[test]
fn zeros_of_a_sparse_file_are_left_out() {
    const BLOCK: usize = 1024;
    let scene = Scene::new();
    let can = knows_holes(&scene.root());
    let mut old = vec![0; 2 << 20];
    old[..4096].copy_from_slice(&content(4096));
    std::fs::write(scene.root().join("d/old"), &old).unwrap();
    let blocks: Vec<_> = (0..500).map(|n| (n * BLOCK, (n * BLOCK) as u64)).collect();
    for sparse in [true, false] {
        let seed = Seed {
            sparse,
            ..seed(&old, &blocks)
        };
        assert_eq!(scene.seeded(seed.clone()), (500 * BLOCK) as u64);
        let partial = scene.root().join("d/.new.xdfs-part");
        let meta = std::fs::metadata(&partial).unwrap();
        assert_eq!(meta.len(), (500 * BLOCK) as u64);
        let takes = std::os::unix::fs::MetadataExt::blocks(&meta) * 512;
        if can {
            assert_eq!(takes <= 8192, sparse, "{takes} bytes");
        }
        // A part of the file that goes on is there, whoever asks for it.
        let (ranges, found) = scene.begun(&seed);
        assert_eq!(ranges.iter().map(ByteRange::len).sum::<u64>(), 512_000);
        assert!(found == old[..512_000]);
        std::fs::remove_file(partial).unwrap();
    }
}

#[test]
fn what_can_t_be_begun_is_refused() {
    let scene = Scene::new();
    let new = content(2048);
    std::fs::write(scene.root().join("d/old"), &new).unwrap();
    let good = seed(&new, &[(0, 0)]);
    let with = |from: &str, to: &str| {
        Call::Seed(Box::new(Seed {
            from: bytes(from),
            to: bytes(to),
            ..good.clone()
        }))
    };
    scene.refused(&with("d/no", "d/new"), Code::NotFound, "d/no");
    scene.refused(&with("d", "d/new"), Code::IsDirectory, "d");
    scene.refused(&with("../secret", "d/new"), Code::PathEscape, "../secret");
    scene.refused(&with("d/old", "../new"), Code::PathEscape, "../new");
    scene.refused(&with("d/old", "d"), Code::IsDirectory, "d");
    scene.refused(&with("d/old", "no/new"), Code::NotFound, "no/new");
    // It exists, and may not be replaced.
    scene.refused(&with("d/old", "d/old"), Code::AlreadyExists, "d/old");
    let hidden = "d/.x.xdfs-journal";
    scene.refused(&with("d/old", hidden), Code::PermissionDenied, hidden);
    scene.refused(&with(hidden, "d/new"), Code::PermissionDenied, hidden);
    let request = xdfs_store::SinkRequest {
        length: Some(2048),
        ..request("d/new")
    };
    let _busy = scene.store.open_sink(&request).unwrap();
    scene.refused(&with("d/old", "d/new"), Code::Busy, "d/new");
    let read_only = LocalStore::rooted(&scene.root(), true).unwrap();
    let refused = ask(&read_only, &with("d/old", "d/other"));
    assert_fault(refused, Code::ReadOnly, "d/old");
    scene.assert_outside_is_whole();
}
