//! Bytes that every implementation has to refuse, made by damaging good ones, with the error of
//! this one and the code that is told to the peer.

use serde_json::{Value, json};
use xdfs_proto::Limits;
use xdfs_proto::frame::{BlockHeader, FRAME_HEADER_BYTES, Frame, FrameHeader, block_header_check};
use xdfs_proto::opening::{Answer, Hello};
use xdfs_proto::wire::DecodeError;

use crate::{hex, samples};

pub(crate) fn entry(name: &str, bytes: &[u8], error: &DecodeError) -> Value {
    json!({
        "name": name,
        "hex": hex(bytes),
        "error": error.to_string(),
        "code": error.fault().code.as_str(),
    })
}

/// The bytes of a good message with some of them replaced from `at` on.
pub(crate) fn damaged(good: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes
}

pub(crate) fn opening() -> Vec<Value> {
    let hello = |i: usize| {
        let mut bytes = Vec::new();
        samples::hellos()[i].1.encode(&mut bytes);
        bytes
    };
    let mut welcome = Vec::new();
    samples::answers()[0].1.encode(&mut welcome);
    let plain = hello(0);
    let featured = hello(1);
    let mut text_mode = plain.clone();
    text_mode.remove(5);
    let hellos = [
        ("hello-of-http", b"GET / HTTP/1.1\r\n".to_vec()),
        ("hello-first-byte-wrong", b"x".to_vec()),
        ("hello-without-carriage-return", text_mode),
        ("hello-that-is-an-answer", welcome.clone()),
        ("hello-version-zero", damaged(&plain, 9, &[0])),
        ("hello-versions-reversed", damaged(&plain, 9, &[2, 1])),
        ("hello-reserved-set", damaged(&plain, 11, &[1])),
        (
            "hello-features-too-long",
            damaged(&plain, 12, &4097u32.to_be_bytes()),
        ),
        (
            "hello-feature-cut",
            damaged(&featured, 12, &14u32.to_be_bytes()),
        ),
        (
            "hello-feature-number-twice",
            damaged(&featured, 31, &[0, 2]),
        ),
        ("hello-feature-name-empty", damaged(&featured, 18, &[0, 0])),
        (
            "hello-feature-name-not-printable",
            damaged(&featured, 20, b" "),
        ),
    ];
    let answers = [
        ("answer-that-is-an-echo", plain),
        ("answer-status-unknown", damaged(&welcome, 8, &[2])),
        ("answer-version-zero", damaged(&welcome, 9, &[0])),
        ("answer-refused-with-version", damaged(&welcome, 8, &[1])),
        ("answer-reserved-set", damaged(&welcome, 10, &[0, 1])),
        ("answer-too-long", damaged(&welcome, 12, &[0xff; 4])),
    ];
    let hellos = hellos.into_iter().map(|(name, bytes)| {
        let error = Hello::decode(&bytes).expect_err(name);
        entry(name, &bytes, &error)
    });
    let answers = answers.into_iter().map(|(name, bytes)| {
        let error = Answer::decode(&bytes).expect_err(name);
        entry(name, &bytes, &error)
    });
    hellos.chain(answers).collect()
}

pub(crate) fn sample(name: &str) -> Vec<u8> {
    let (_, frame) = samples::frames()
        .into_iter()
        .find(|(n, _)| *n == name)
        .expect(name);
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

/// The frame with a body that is `by` bytes longer or shorter.
pub(crate) fn resized(name: &str, by: isize) -> Vec<u8> {
    let mut bytes = sample(name);
    bytes.resize(bytes.len().checked_add_signed(by).expect("a length"), 0);
    let body = (bytes.len() - FRAME_HEADER_BYTES) as u32;
    damaged(&bytes, 4, &body.to_be_bytes())
}

fn refuse(bytes: &[u8]) -> Option<DecodeError> {
    let (header, body) = bytes
        .split_first_chunk::<FRAME_HEADER_BYTES>()
        .expect("a header");
    let limits = Limits::default();
    match FrameHeader::decode(*header, &limits) {
        Ok(header) if header.is_block() => {
            BlockHeader::decode(header, *body.first_chunk().expect("a block header")).err()
        }
        Ok(header) => Frame::decode(header, body, &limits).err(),
        Err(error) => Some(error),
    }
}

fn list(frames: &[(&str, Vec<u8>)]) -> Vec<Value> {
    frames
        .iter()
        .map(|(name, bytes)| {
            entry(
                name,
                bytes,
                &refuse(bytes).unwrap_or_else(|| panic!("{name}")),
            )
        })
        .collect()
}

pub(crate) fn frames() -> Vec<Value> {
    let body = FRAME_HEADER_BYTES;
    let crc = sample("accept-resumed-crc64");
    let first = crc.len() - 48;
    let mut frames = vec![
        ("kind-unknown", damaged(&sample("noop"), 0, &[0x60])),
        ("kind-zero", damaged(&sample("noop"), 0, &[0])),
        ("flag-undefined", damaged(&sample("noop"), 1, &[1])),
        // Of a channel that is protected or not open yet: on others it is a damaged BLOCK (F-21).
        ("reserved-set", damaged(&sample("noop"), 2, &[0, 1])),
        (
            "longer-than-the-limit",
            damaged(&sample("noop"), 4, &[0, 1, 0, 1]),
        ),
        ("noop-with-a-body", resized("noop", 1)),
        ("ack-cut", resized("ack", -1)),
        ("ack-with-more", resized("ack", 1)),
        (
            "session-without-channels",
            damaged(&sample("session-elastic"), body + 16, &[0; 4]),
        ),
        (
            "session-user-not-utf8",
            damaged(&sample("session-strict-with-user"), body + 33, &[0xff]),
        ),
        (
            "session-user-control-character",
            damaged(&sample("session-strict-with-user"), body + 30, &[0x1b]),
        ),
        (
            "session-block-size-small",
            damaged(
                &sample("session-elastic"),
                body + 20,
                &1023_u32.to_be_bytes(),
            ),
        ),
        (
            "session-ok-block-size-odd",
            damaged(&sample("session-ok"), body + 20, &262_145_u32.to_be_bytes()),
        ),
        (
            "session-ok-block-size-zero",
            damaged(&sample("session-ok"), body + 20, &[0; 4]),
        ),
        ("auth-empty", resized("auth-anonymous", -5)),
        ("auth-cut", resized("auth-password", -1)),
        ("auth-with-more", resized("auth-password", 1)),
        (
            "auth-user-not-utf8",
            damaged(&sample("auth-password"), body + 6, &[0xff]),
        ),
        (
            "auth-user-control-character",
            damaged(&sample("auth-password"), body + 3, &[0x1b]),
        ),
        (
            "auth-user-over-the-limit",
            damaged(&sample("auth-password"), body + 1, &[0x01, 0x00]),
        ),
        (
            "auth-proof-over-the-limit",
            damaged(&sample("auth-anonymous"), body + 3, &[0x40, 0x01]),
        ),
        (
            "auth-flag-undefined",
            damaged(&sample("auth-password"), 1, &[1]),
        ),
        (
            "challenge-over-the-limit",
            damaged(&sample("challenge"), body, &[0x40, 0x01]),
        ),
        ("challenge-cut", resized("challenge", -1)),
        ("challenge-with-more", resized("challenge", 1)),
        (
            "proof-over-the-limit",
            damaged(&sample("proof"), body, &[0x40, 0x01]),
        ),
        ("proof-cut", resized("proof", -1)),
        ("auth-ok-cut", resized("auth-ok", -1)),
        ("auth-ok-with-more", resized("auth-ok", 1)),
        (
            "auth-ok-user-control-character",
            damaged(&sample("auth-ok"), body + 2, &[0x0a]),
        ),
        (
            "auth-ok-user-over-the-limit",
            damaged(&sample("auth-ok"), body, &[0x01, 0x00]),
        ),
        (
            "xftsm-zero-in-path",
            damaged(&sample("xftsm"), body + 23, &[0]),
        ),
        (
            "xftsm-path-longer-than-body",
            damaged(&sample("xftsm"), body + 21, &[0x0f, 0xff]),
        ),
        (
            "xftsm-path-over-the-limit",
            damaged(&sample("xftsm"), body + 21, &[0x10, 0x01]),
        ),
        (
            "xftsm-length-absent-but-set",
            damaged(&sample("xftsm"), body + 19, &[1]),
        ),
        (
            "xftsm-digest-unknown",
            damaged(&sample("xftsm"), body + 20, &[3]),
        ),
        (
            "offer-mode-absent-but-set",
            damaged(&sample("xftsmu"), 1, &[0x29]),
        ),
        (
            "offer-flag-undefined",
            damaged(&sample("xftsmu"), 1, &[0x3b]),
        ),
        (
            "offer-resume-unknown",
            damaged(&sample("xftsmu"), body + 41, &[3]),
        ),
        (
            "accept-block-size-odd",
            damaged(&sample("accept-fresh"), body + 7, &[1]),
        ),
        (
            "accept-block-size-small",
            damaged(&sample("accept-fresh"), body + 4, &[0, 0, 2, 0]),
        ),
        (
            "accept-block-size-large",
            damaged(&sample("accept-fresh"), body + 4, &[2, 0, 0, 0]),
        ),
        (
            "accept-ranges-overlap",
            damaged(&crc, first + 8 + 5, &[0x20, 0, 1]),
        ),
        ("accept-range-empty", damaged(&crc, first + 8, &[0; 8])),
        (
            "accept-count-over-the-limit",
            damaged(&crc, first - 4, &[0xff; 4]),
        ),
        (
            "accept-count-more-than-there",
            damaged(&crc, first - 1, &[3]),
        ),
        (
            "accept-digest-without-ranges",
            damaged(
                &sample("accept-fresh"),
                sample("accept-fresh").len() - 5,
                &[1],
            ),
        ),
        (
            "hole-empty",
            damaged(&sample("hole"), body + 4, &sample("hole")[body + 12..]),
        ),
        (
            "repeat-reversed",
            damaged(&sample("repeat"), body + 4, &[0xff; 8]),
        ),
        (
            "eofr-share-over-one",
            damaged(&sample("eofr-crc64"), body + 12, &[0x03, 0xe9]),
        ),
        (
            "eofr-digest-unknown",
            damaged(&sample("eofr-crc64"), body + 14, &[9]),
        ),
        ("eofr-account-cut", resized("eofr-account", -1)),
        ("eofr-account-longer", resized("eofr-account", 1)),
        (
            "eofr-account-without-its-flag",
            damaged(&sample("eofr-account"), 1, &[0]),
        ),
        (
            "published-account-missing",
            damaged(&sample("published"), 1, &[2]),
        ),
        (
            "exception-scope-unknown",
            damaged(&sample("exception-session"), body, &[3]),
        ),
        (
            "exception-file-without-scope",
            damaged(&sample("exception-session"), body + 4, &[1]),
        ),
        (
            "exception-retry-unknown",
            damaged(&sample("exception-session"), body + 7, &[3]),
        ),
        (
            "protect-level-unknown",
            damaged(&sample("protect-clear"), body, &[2]),
        ),
        ("protect-empty", resized("protect-clear", -1)),
        (
            "exception-control-character",
            damaged(&sample("exception-session"), body + 14, &[7]),
        ),
    ];
    frames.extend(crate::calls::negative());
    frames.extend(crate::files::negative());
    frames.extend(crate::third_party::negative());
    frames.extend(crate::relay::negative());
    frames.extend(crate::stripes::negative());
    list(&frames)
}

pub(crate) fn blocks() -> Vec<Value> {
    let (_, file, offset, _, payload) = samples::blocks().remove(0);
    let header = BlockHeader {
        file,
        check: 0,
        clear: false,
        offset,
        length: payload.len() as u32,
    };
    let good = [header.encode().as_slice(), &payload].concat();
    // As a sender writes it that means it: with the check of its header.
    let wrong = |at, bytes: &[u8]| {
        let mut wrong = damaged(&good, at, bytes);
        let header = wrong.first_chunk().expect("a header");
        let check = block_header_check(header).to_be_bytes();
        wrong[2..4].copy_from_slice(&check);
        wrong
    };
    list(&[
        ("block-flag-unknown", wrong(1, &[2])),
        ("block-empty", wrong(4, &16u32.to_be_bytes())),
        (
            "block-shorter-than-its-header",
            wrong(4, &15u32.to_be_bytes()),
        ),
        (
            "block-over-the-limit",
            wrong(4, &((16u32 << 20) + 17).to_be_bytes()),
        ),
        ("block-past-the-largest-offset", wrong(16, &[0xff; 8])),
        ("block-flag-undefined", wrong(1, &[0x80])),
        ("block-header-damaged", damaged(&good, 17, &[1])),
    ])
}
