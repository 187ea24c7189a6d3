//! The vectors in `vectors/` and this crate agree, in both directions.
//!
//! The samples stand here as values and there as bytes and fields, so that a change of either side
//! is found. After a deliberate change run the test with `XDFS_VECTORS=write` to write the files
//! anew, and review the difference as a change of the protocol.

mod calls;
mod describe;
mod digests;
mod files;
mod joins;
mod negative;
mod packs;
mod relay;
mod samples;
mod session;
mod stripes;
mod third_party;

use std::path::PathBuf;

use serde_json::{Value, json};
use xdfs_proto::Limits;
use xdfs_proto::digest::{BlockHasher, DigestKind};
use xdfs_proto::frame::{
    BLOCK_HEADER_BYTES, BlockHeader, FRAME_HEADER_BYTES, Frame, FrameHeader, Level,
};
use xdfs_proto::opening::{Answer, Hello};

fn file(group: &str) -> PathBuf {
    [
        env!("CARGO_MANIFEST_DIR"),
        "..",
        "..",
        "vectors",
        &format!("{group}.json"),
    ]
    .iter()
    .collect()
}

/// Compares what the crate makes of the samples with the file.
fn compare(group: &str, about: &str, made: &[Value], negative: &[Value]) {
    let mut document = json!({ "group": group, "about": about, "vectors": made });
    if !negative.is_empty() {
        document["negative"] = json!(negative);
    }
    let path = file(group);
    if std::env::var("XDFS_VECTORS").is_ok_and(|v| v == "write") {
        let text = serde_json::to_string_pretty(&document).expect("JSON") + "\n";
        std::fs::write(&path, text).expect("the file of the vectors can be written");
    }
    let stored = self::document(group);
    for list in ["vectors", "negative"] {
        let items = |d: &Value| d[list].as_array().cloned().unwrap_or_default();
        let (made, stored) = (items(&document), items(&stored));
        assert_eq!(
            made.len(),
            stored.len(),
            "{group}: as many {list} as samples"
        );
        for (made, stored) in made.iter().zip(&stored) {
            assert_eq!(made, stored, "{group}: {}", stored["name"]);
        }
    }
}

/// A file of vectors as it stands.
fn document(group: &str) -> Value {
    let text = std::fs::read_to_string(file(group)).expect("the file of the vectors");
    serde_json::from_str(&text).expect("JSON")
}

/// The bytes of every vector of a stored group, with the name.
fn stored(group: &str) -> Vec<(String, Vec<u8>)> {
    let document = document(group);
    let items = document["vectors"].as_array().expect("a list").clone();
    items
        .iter()
        .map(|v| {
            let name = v["name"].as_str().expect("a name").to_owned();
            (name, unhex(v["hex"].as_str().expect("hex")))
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    assert_eq!(text.len() % 2, 0, "an even number of digits");
    let digit = |i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn vector(name: &str, bytes: &[u8], fields: Value) -> Value {
    json!({ "name": name, "hex": hex(bytes), "fields": fields })
}

#[test]
fn opening() {
    let mut made = Vec::new();
    for (name, hello) in samples::hellos() {
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        made.push(vector(name, &bytes, describe::hello(&hello)));
        assert_eq!(
            Hello::decode(&bytes),
            Ok(Some((hello, bytes.len()))),
            "{name}"
        );
    }
    for (name, answer) in samples::answers() {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        made.push(vector(name, &bytes, describe::answer(&answer)));
        assert_eq!(
            Answer::decode(&bytes),
            Ok(Some((answer, bytes.len()))),
            "{name}"
        );
    }
    let about = "HELLO and its answer; see docs/protocol/opening.md. Numbers of 64 bits are \
                 decimal strings, byte strings are hex.";
    compare("opening", about, &made, &negative::opening());
    for (name, bytes) in stored("opening") {
        let mut again = Vec::new();
        match Hello::decode(&bytes) {
            Ok(Some((hello, _))) => hello.encode(&mut again),
            _ => match Answer::decode(&bytes) {
                Ok(Some((answer, _))) => answer.encode(&mut again),
                other => panic!("{name}: {other:?}"),
            },
        }
        assert_eq!(again, bytes, "{name}");
    }
}

fn decode(bytes: &[u8]) -> Frame {
    let (header, body) = bytes
        .split_first_chunk::<FRAME_HEADER_BYTES>()
        .expect("a header");
    let header = FrameHeader::decode(*header, &Limits::default()).expect("a valid header");
    assert_eq!(header.length as usize, body.len());
    Frame::decode(header, body, &Limits::default()).expect("a valid frame")
}

#[test]
fn frames() {
    let mut made = Vec::new();
    for (name, frame) in samples::frames() {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        made.push(vector(name, &bytes, describe::frame(&frame)));
        assert_eq!(decode(&bytes), frame, "{name}");
    }
    let about = "Frames other than BLOCK; see docs/protocol/frames.md. Numbers of 64 bits are \
                 decimal strings, byte strings and states of digests are hex. The blocks of \
                 `answer-signatures` are 1024 zeros and the digits 1 to 9, those of \
                 `answer-signatures-longer-blocks` 8192 bytes and 100 of the content in \
                 digests.json.";
    compare("frames", about, &made, &negative::frames());
    for (name, bytes) in stored("frames") {
        let mut again = Vec::new();
        decode(&bytes).encode(&mut again);
        assert_eq!(again, bytes, "{name}");
    }
}

#[test]
fn every_kind_of_frame_has_a_vector() {
    let kinds: std::collections::BTreeSet<u8> =
        stored("frames").iter().map(|(_, bytes)| bytes[0]).collect();
    let expected: std::collections::BTreeSet<u8> = (0x01..=0x0d)
        .chain(0x10..=0x1f)
        .chain([0x21, 0x30, 0x31, 0x7f])
        .collect();
    assert_eq!(kinds, expected);
}

#[test]
fn blocks() {
    let mut made = Vec::new();
    for (name, file, offset, level, payload) in samples::blocks() {
        let check = level.is_some();
        let mut hasher = BlockHasher::new(DigestKind::None, check, offset);
        hasher.update(&payload);
        let length = payload.len() as u32;
        let header = BlockHeader {
            file,
            check: hasher.finish(file).0,
            clear: level == Some(Level::Clear),
            offset,
            length,
        };
        let bytes = [header.encode().as_slice(), &payload].concat();
        made.push(vector(name, &bytes, describe::block(&header, &payload)));
    }
    let about = "Whole BLOCK frames with their payload; see docs/protocol/frames.md. The check is \
                 the CRC-32C of payload, file number and offset, or 0 where there is none.";
    compare("blocks", about, &made, &negative::blocks());
    for (name, bytes) in stored("blocks") {
        let header: [u8; BLOCK_HEADER_BYTES] = *bytes.first_chunk().expect("a header");
        let frame = FrameHeader::decode(*header.first_chunk().expect("8"), &Limits::default())
            .expect("a valid header");
        let block =
            BlockHeader::decode(frame, *header.last_chunk().expect("16")).expect("a valid block");
        assert_eq!(block.encode(), header, "{name}");
        let payload = &bytes[BLOCK_HEADER_BYTES..];
        assert_eq!(payload.len(), block.length as usize, "{name}");
        let place = [&block.file.0.to_be_bytes()[..], &block.offset.to_be_bytes()].concat();
        let covered = [payload, &place].concat();
        assert!(
            block.check == 0 || block.check == crc_fast::crc32_iscsi(&covered),
            "{name}"
        );
    }
}

#[test]
fn session() {
    compare("session", session::ABOUT, &session::vectors(), &[]);
    session::check_stored(&document("session"));
}

#[test]
fn joins() {
    compare("join", joins::ABOUT, &joins::vectors(), &[]);
}

#[test]
fn digests() {
    compare("digests", digests::ABOUT, &digests::vectors(), &[]);
}

#[test]
fn packs() {
    compare("packs", packs::ABOUT, &packs::vectors(), &packs::negative());
    let stored = document("packs");
    packs::check_stored(&stored);
    packs::check_complete(&stored);
}
