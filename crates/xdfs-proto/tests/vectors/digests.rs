//! Digests of a fixed content, of its blocks, and of what is left after combining some of them.

use serde_json::{Value, json};
use xdfs_proto::ByteRange;
use xdfs_proto::FileId;
use xdfs_proto::digest::{BlockHasher, DigestKind, DigestValue, Fragment, FragmentMap};

use crate::{describe, hex};

pub(crate) const ABOUT: &str = "Digests; see docs/protocol/xftsm.md. Byte i of the content is \
    (i * 7 + i / 251) modulo 256, and 0 within `zeros`. `blocks` are the states of the blocks of \
    `block_size`, `crc32c` their check values as blocks of file 1; `combined` is what all but \
    every fourth block leave when they are combined, before the fourth ones \
    come; `digest` is that of the whole.";

fn vector(name: &str, length: u64, block_size: u64, kind: DigestKind, zeros: ByteRange) -> Value {
    let byte = |i: u64| {
        if zeros.start <= i && i < zeros.end {
            0
        } else {
            (i * 7 + i / 251) as u8
        }
    };
    let content: Vec<u8> = (0..length).map(byte).collect();
    let fragment = |start: u64| {
        let end = (start + block_size).min(length);
        let mut hasher = BlockHasher::new(kind, true, start);
        hasher.update(&content[start as usize..end as usize]);
        hasher.finish(FileId(1))
    };
    let blocks: Vec<(u32, Fragment)> = (0..length)
        .step_by(block_size as usize)
        .map(fragment)
        .collect();
    let mut map = FragmentMap::new(kind);
    for (i, (_, fragment)) in blocks.iter().enumerate() {
        assert!(i % 4 == 3 || map.insert(*fragment));
    }
    let combined: Value = map.fragments().map(describe::fragment).collect();
    for (_, fragment) in blocks.iter().skip(3).step_by(4) {
        assert!(map.insert(*fragment));
    }
    // One pass over the whole is the judge.
    let expected = match kind {
        DigestKind::Crc64Nvme => DigestValue::Crc64Nvme(crc_fast::crc64_nvme(&content)),
        DigestKind::Blake3 => DigestValue::Blake3(blake3::hash(&content).into()),
        _ => DigestValue::None,
    };
    assert_eq!(map.digest(length), Some(expected), "{name}");
    let blocks: Value = blocks
        .iter()
        .map(|(check, fragment)| {
            let mut value = describe::fragment(fragment);
            value["crc32c"] = json!(hex(&check.to_be_bytes()));
            value
        })
        .collect();
    json!({
        "name": name,
        "fields": {
            "length": length.to_string(),
            "block_size": block_size,
            "zeros": { "start": zeros.start.to_string(), "end": zeros.end.to_string() },
            "kind": describe::kind(kind),
            "blocks": blocks,
            "combined": combined,
            "digest": describe::digest(&expected),
        }
    })
}

pub(crate) fn vectors() -> Vec<Value> {
    let none = ByteRange { start: 0, end: 0 };
    let hole = ByteRange {
        start: 1024,
        end: 3072,
    };
    let mut vectors = Vec::new();
    for kind in [DigestKind::Crc64Nvme, DigestKind::Blake3] {
        for (what, length, block_size, zeros) in [
            ("empty", 0, 1024, none),
            ("one-byte", 1, 1024, none),
            ("one-block", 1024, 1024, none),
            ("one-block-and-a-byte", 1025, 1024, none),
            ("two-blocks", 2048, 1024, none),
            ("seven-blocks-and-a-part", 7 * 1024 + 321, 1024, none),
            ("eight-blocks", 8 * 1024, 1024, none),
            ("larger-blocks", 5 * 2048 + 1500, 2048, none),
            ("with-a-hole", 5 * 1024, 1024, hole),
        ] {
            let name = format!("{}-{what}", describe::kind(kind));
            vectors.push(vector(&name, length, block_size, kind, zeros));
        }
    }
    vectors
}
