//! The vectors in `vectors/ptcp.json` and this crate agree, in both directions.
//!
//! After a deliberate change run the test with `XDFS_VECTORS=write` to write the file anew, and
//! review the difference as a change of the protocol.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use serde_json::{Value, json};
use xdfs_xio::ptcp::wire::{
    ANSWER_BYTES, Answer, FRAME_BYTES, Frame, HELLO_BYTES, Hello, Join, Secret, Side, Verdict,
    proof,
};

const ABOUT: &str = "Openings and frames of parallel streams as one; see docs/ptcp.md. Byte \
                     strings are hex.";

fn counting<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|i| first.wrapping_add(i as u8))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex<const N: usize>(text: &Value) -> [u8; N] {
    let text = text.as_str().unwrap();
    assert_eq!(text.len(), 2 * N);
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

fn secret() -> Secret {
    Secret(counting(0x40))
}

fn join(binding: &[u8; 32]) -> Join {
    let mut join = Join {
        index: 2,
        serial: 7,
        id: counting(0x10),
        proof: [0; 32],
    };
    join.proof = proof(&secret(), Side::Opener, &join, binding);
    join
}

fn hellos() -> Vec<(&'static str, Hello)> {
    let create = Hello::Create {
        streams: 8,
        id: counting(0x10),
        window: 12 << 20,
        secret: secret(),
    };
    vec![
        ("hello-create", create),
        ("hello-join", Hello::Join(join(&[0; 32]))),
        ("hello-join-over-tls", Hello::Join(join(&counting(0x80)))),
    ]
}

fn answers() -> Vec<(&'static str, Answer)> {
    let (plain, bound) = ([0; 32], counting(0x80));
    let first = Join {
        index: 0,
        serial: 0,
        ..join(&plain)
    };
    let accepted = |join: &Join, binding, streams, window| Answer {
        verdict: Verdict::Accepted,
        streams,
        window,
        proof: proof(&secret(), Side::Acceptor, join, binding),
    };
    vec![
        ("answer-create", accepted(&first, &plain, 4, 8 << 20)),
        ("answer-join", accepted(&join(&plain), &plain, 1, 1)),
        (
            "answer-join-over-tls",
            accepted(&join(&bound), &bound, 1, 1),
        ),
        ("answer-version", Answer::refusal(Verdict::Version)),
        ("answer-refused", Answer::refusal(Verdict::Refused)),
    ]
}

fn frames() -> Vec<(&'static str, Frame)> {
    let ack = Frame::Ack {
        received: 0x0102_0304_0506,
        limit: 0x0102_0344_0506,
        held: 0x0001_0000,
    };
    let data = Frame::Data {
        offset: 0x1122_3344_5566,
        length: 0x0004_0000,
    };
    vec![
        ("ack", ack),
        ("data", data),
        ("end", Frame::End { offset: 99 }),
        ("gone", Frame::Gone),
    ]
}

/// Bytes that must be refused: the kind of message, a name, and what is changed in which vector.
fn wrong() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let [create, join] = [0, 1].map(|i| hellos()[i].1.encode());
    let changed = |bytes: &[u8], at: usize, to: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = to;
        bytes
    };
    let frame = |i: usize| frames()[i].1.encode();
    let answer = answers()[0].1.encode();
    vec![
        ("hello", "wrong-magic", changed(&create, 0, 0x58)),
        ("hello", "unknown-kind", changed(&create, 5, 0x03)),
        ("hello", "create-with-index", changed(&create, 7, 0x01)),
        ("hello", "create-without-streams", changed(&create, 9, 0x00)),
        ("hello", "create-reserved", changed(&create, 11, 0x01)),
        ("hello", "create-with-serial", changed(&create, 15, 0x01)),
        ("hello", "join-with-streams", changed(&join, 9, 0x01)),
        ("hello", "join-without-serial", changed(&join, 15, 0x00)),
        ("hello", "join-with-window", changed(&join, 39, 0x01)),
        ("answer", "wrong-magic", changed(&answer, 3, 0x00)),
        ("answer", "unknown-verdict", changed(&answer, 5, 0x03)),
        ("answer", "refused-with-streams", changed(&answer, 5, 0x02)),
        ("frame", "unknown-kind", changed(&frame(3), 0, 0x14)),
        ("frame", "reserved", changed(&frame(0), 3, 0x01)),
        ("frame", "empty-piece", changed(&frame(1), 5, 0x00)),
        ("frame", "piece-too-long", changed(&frame(1), 7, 0x01)),
        ("frame", "offset-too-great", changed(&frame(1), 8, 0x41)),
        ("frame", "end-with-length", changed(&frame(2), 7, 0x01)),
        ("frame", "gone-with-offset", changed(&frame(3), 15, 0x01)),
    ]
}

#[test]
fn the_bytes_are_those_of_the_vectors() {
    let hellos = hellos();
    let hellos = hellos.iter().map(|(name, hello)| {
        let [id, secret] = [hex(&counting::<16>(0x10)), hex(&secret().0)];
        json!({ "message": "hello", "name": name, "hex": hex(&hello.encode()),
            "id": id, "secret": secret })
    });
    let answers = answers();
    let answers = answers.iter().map(
        |(name, answer)| json!({ "message": "answer", "name": name, "hex": hex(&answer.encode()) }),
    );
    let frames = frames();
    let frames = frames.iter().map(
        |(name, frame)| json!({ "message": "frame", "name": name, "hex": hex(&frame.encode()) }),
    );
    let vectors: Vec<Value> = hellos.chain(answers).chain(frames).collect();
    let wrong: Vec<Value> = wrong()
        .iter()
        .map(|(kind, name, bytes)| json!({ "message": kind, "name": name, "hex": hex(bytes) }))
        .collect();
    let made = json!({ "group": "ptcp", "about": ABOUT, "vectors": vectors, "negative": wrong });
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/ptcp.json");
    if std::env::var("XDFS_VECTORS").is_ok_and(|v| v == "write") {
        let text = serde_json::to_string_pretty(&made).unwrap() + "\n";
        std::fs::write(path, text).unwrap();
    }
    let stored: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(made, stored);

    let text = |list: &str, index: usize| stored[list][index]["hex"].clone();
    for (index, (name, hello)) in self::hellos().into_iter().enumerate() {
        let bytes = unhex::<HELLO_BYTES>(&text("vectors", index));
        assert_eq!(Hello::decode(&bytes), Ok(Some(hello)), "{name}");
    }
    for (index, (name, answer)) in self::answers().into_iter().enumerate() {
        let bytes = unhex::<ANSWER_BYTES>(&text("vectors", 3 + index));
        assert_eq!(Answer::decode(&bytes), Ok(answer), "{name}");
    }
    for (index, (name, frame)) in self::frames().into_iter().enumerate() {
        let bytes = unhex::<FRAME_BYTES>(&text("vectors", 8 + index));
        assert_eq!(Frame::decode(&bytes), Ok(frame), "{name}");
    }
    for (index, (kind, name, _)) in self::wrong().into_iter().enumerate() {
        let hex = &text("negative", index);
        let is_refused = match kind {
            "hello" => Hello::decode(&unhex(hex)).is_err(),
            "answer" => Answer::decode(&unhex(hex)).is_err(),
            _ => Frame::decode(&unhex(hex)).is_err(),
        };
        assert!(is_refused, "{kind} {name}");
    }
}
