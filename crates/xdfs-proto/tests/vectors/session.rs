//! One whole session: every byte of both directions, on the channel that carries it.

use serde_json::{Value, json};
use xdfs_proto::digest::{BlockHasher, DigestKind, DigestValue, Fragment, FragmentMap};
use xdfs_proto::frame::{
    Accept, Ack, AnswerPart, BLOCK_HEADER_BYTES, BlockHeader, CallRequest, Eofr,
    FRAME_HEADER_BYTES, Frame, FrameHeader, JoinRequest, Offer, Published, Repeat, Request,
    SessionAccept, SessionRequest, Start, Taken, TimeAccount,
};
use xdfs_proto::opening::{Answer as Reply, Hello, Welcome};
use xdfs_proto::pack::Failures;
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{
    ByteRange, CallId, ChannelIndex, FileId, Limits, SessionId, SessionSecret, SourceTag,
};

use crate::{describe, hex, samples, unhex};

pub(crate) const ABOUT: &str = "\
    One session without protection, in an order in which its bytes may have travelled; see \
    docs/protocol/session.md. Two channels; an upload during which one is lost; a download \
    that goes on from a journal, with a damaged block; two calls; an upload of unknown length that \
    goes on; the end. A step with `hex` \
    is one message of one side on one channel, all of its bytes; other steps are events. \
    Byte i of either file is (i * 7 + i / 251) modulo 256. `damaged` marks a block whose \
    check value doesn't fit.";

const BLOCK: u64 = 1024;
const LENGTH: u64 = 2500;

/// Steps in the making.
#[derive(Default)]
struct Script(Vec<Value>);

impl Script {
    fn message(&mut self, from: &str, channel: u32, note: &str, bytes: &[u8], fields: Value) {
        let mut step = json!({ "from": from, "channel": channel, "hex": hex(bytes) });
        step["fields"] = fields;
        if !note.is_empty() {
            step["note"] = json!(note);
        }
        self.0.push(step);
    }

    fn event(&mut self, note: &str) {
        self.0.push(json!({ "event": note }));
    }

    fn frame(&mut self, from: &str, channel: u32, note: &str, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.message(from, channel, note, &bytes, describe::frame(frame));
    }

    fn ask(&mut self, channel: u32, note: &str, frame: &Frame) {
        self.frame("initiator", channel, note, frame);
    }

    fn tell(&mut self, channel: u32, note: &str, frame: &Frame) {
        self.frame("acceptor", channel, note, frame);
    }

    /// HELLO, a frame behind it, and the answers to both.
    fn open(&mut self, channel: u32, note: &str, ask: &Frame, answer: &Frame) {
        let mut bytes = Vec::new();
        let hello = Hello::default();
        hello.encode(&mut bytes);
        self.message("initiator", channel, note, &bytes, describe::hello(&hello));
        self.ask(channel, "may be sent directly after HELLO [O-14]", ask);
        let welcome = Reply::Welcome(Welcome {
            version: 1,
            features: vec![],
        });
        bytes.clear();
        welcome.encode(&mut bytes);
        self.message("acceptor", channel, "", &bytes, describe::answer(&welcome));
        self.tell(channel, "", answer);
    }

    fn block(&mut self, from: &str, channel: u32, note: &str, file: u32, at: u64, damaged: bool) {
        let payload = content(at);
        let (check, _) = state(DigestKind::None, file, at);
        let header = BlockHeader {
            file: FileId(file),
            check: if damaged { check ^ 1 } else { check },
            clear: false,
            offset: at,
            length: payload.len() as u32,
        };
        let bytes = [header.encode().as_slice(), &payload].concat();
        let fields = describe::block(&header, &payload);
        self.message(from, channel, note, &bytes, fields);
        if damaged && let Some(step) = self.0.last_mut() {
            step["damaged"] = json!(true);
        }
    }
}

/// The bytes of the block at an offset.
fn content(at: u64) -> Vec<u8> {
    (at..(at + BLOCK).min(LENGTH))
        .map(|i| (i * 7 + i / 251) as u8)
        .collect()
}

/// Check value and digest state of the block at an offset.
fn state(kind: DigestKind, file: u32, at: u64) -> (u32, Fragment) {
    let mut hasher = BlockHasher::new(kind, true, at);
    hasher.update(&content(at));
    hasher.finish(FileId(file))
}

/// The digest of the whole.
fn digest(kind: DigestKind) -> DigestValue {
    let mut map = FragmentMap::new(kind);
    for at in [0, BLOCK, 2 * BLOCK] {
        assert!(map.insert(state(kind, 1, at).1));
    }
    map.digest(LENGTH).expect("all blocks are there")
}

fn sample_offer(name: &str) -> Offer {
    let found = samples::frames().into_iter().find(|(n, _)| *n == name);
    match found.expect("a sample").1 {
        Frame::Xftsmu(offer) | Frame::Offer(offer) => offer,
        other => panic!("{other:?} is no offer"),
    }
}

fn ack(data_frames: u64) -> Frame {
    Frame::Ack(Ack { data_frames })
}

fn eofr(file: u32, kind: DigestKind) -> Frame {
    Frame::Eofr(Eofr {
        file: FileId(file),
        length: LENGTH,
        digest: digest(kind),
        time: TimeAccount::of_store(250),
    })
}

fn published(file: u32, kind: DigestKind) -> Frame {
    Frame::Published(Published {
        file: FileId(file),
        length: LENGTH,
        digest: digest(kind),
        time: TimeAccount::default(),
        failures: Failures::default(),
    })
}

fn register(script: &mut Script) {
    let id = SessionId(std::array::from_fn(|i| i as u8 + 1));
    let secret = SessionSecret(std::array::from_fn(|i| i as u8 + 0x30));
    let session = Frame::Session(SessionRequest {
        id,
        channels: 2,
        block_size: BLOCK as u32,
        window: 0,
        start: Start::Elastic,
        user: String::new(),
    });
    let accepted = Frame::SessionOk(SessionAccept {
        secret,
        channels: 2,
        block_size: BLOCK as u32,
        window: 0,
    });
    let join = |channel| {
        Frame::Join(JoinRequest {
            id,
            secret,
            channel: ChannelIndex(channel),
        })
    };
    script.event("the first connection is made: channel 0");
    script.open(0, "", &session, &accepted);
    script.event("a second connection: channel 1");
    script.open(1, "", &join(1), &Frame::JoinOk);
    upload(script, &join(2));
}

fn upload(script: &mut Script, join: &Frame) {
    let kind = DigestKind::Crc64Nvme;
    let offer = Offer {
        file: FileId(1),
        path: b"in/data.bin".to_vec(),
        length: Some(LENGTH),
        digest: kind,
        ..sample_offer("xftsmu")
    };
    script.ask(0, "an upload", &Frame::Xftsmu(offer));
    let accept = Frame::Accept(Accept {
        file: FileId(1),
        path: b"/srv/in/data.bin".to_vec(),
        block_size: BLOCK as u32,
        durable: vec![],
    });
    script.tell(1, "on any channel; nothing is held yet", &accept);
    let ours = "initiator";
    script.block(ours, 0, "", 1, 0, false);
    script.block(ours, 1, "", 1, BLOCK, false);
    script.block(ours, 0, "the last block is short", 1, 2 * BLOCK, false);
    script.ask(1, "every byte is in a block", &eofr(1, kind));
    script.tell(0, "two data frames were read on this channel", &ack(2));
    script.event("channel 1 breaks: the acceptor has read nothing of its block and EOFR");
    let again = "not acknowledged on the channel that broke [S-17]";
    script.block(ours, 0, again, 1, BLOCK, false);
    script.ask(0, "EOFR without PUBLISHED [S-18]", &eofr(1, kind));
    script.event("a connection in its place; index 1 was used [S-7]: channel 2");
    script.open(2, "", join, &Frame::JoinOk);
    script.tell(0, "", &ack(3));
    let note = "all is held, durable, under its name, and the name is durable [X-28]";
    script.tell(2, note, &published(1, kind));
}

fn download(script: &mut Script) {
    let kind = DigestKind::Blake3;
    let request = Frame::Xftsm(Request {
        file: FileId(2),
        path: b"in/data.bin".to_vec(),
        offset: 0,
        length: None,
        digest: kind,
        pack: None,
    });
    script.ask(0, "a download", &request);
    let offer = Offer {
        file: FileId(2),
        path: vec![],
        name: b"data.bin".to_vec(),
        length: Some(LENGTH),
        tag: SourceTag([0x5a; 16]),
        digest: kind,
        ..sample_offer("offer-empty-file")
    };
    script.tell(0, "", &Frame::Offer(offer));
    let accept = Frame::Accept(Accept {
        file: FileId(2),
        path: vec![],
        block_size: BLOCK as u32,
        durable: vec![state(kind, 2, 0).1],
    });
    let note = "the first block is durable from an earlier session: state and root hash [X-32]";
    script.ask(2, note, &accept);
    let theirs = "acceptor";
    script.block(theirs, 0, "", 2, BLOCK, false);
    script.block(theirs, 2, "its check value is wrong", 2, 2 * BLOCK, true);
    script.tell(0, "", &eofr(2, kind));
    script.ask(0, "", &ack(1));
    script.ask(2, "damaged, and read all the same [X-16]", &ack(1));
    let repeat = Frame::Repeat(Repeat {
        file: FileId(2),
        range: ByteRange {
            start: 2 * BLOCK,
            end: LENGTH,
        },
    });
    script.ask(2, "[X-19]", &repeat);
    script.block(theirs, 0, "", 2, 2 * BLOCK, false);
    script.ask(0, "", &ack(2));
    script.ask(0, "", &published(2, kind));
}

fn unknown_length(script: &mut Script) {
    let kind = DigestKind::Crc64Nvme;
    let offer = Offer {
        file: FileId(3),
        path: b"in/stream".to_vec(),
        length: None,
        tag: SourceTag([0x6b; 16]),
        digest: kind,
        ..sample_offer("xftsmu")
    };
    script.event("of an earlier upload of a source whose length isn't known all blocks had come");
    script.ask(
        0,
        "the same upload, unknown as before [X-59]",
        &Frame::Xftsmu(offer),
    );
    let mut held = FragmentMap::new(kind);
    assert!(held.insert(state(kind, 3, 0).1) && held.insert(state(kind, 3, BLOCK).1));
    let accept = Frame::Accept(Accept {
        file: FileId(3),
        path: b"/srv/in/stream".to_vec(),
        block_size: BLOCK as u32,
        durable: held.fragments().copied().collect(),
    });
    script.tell(
        2,
        "without the short block, which ended off the grid [X-59]",
        &accept,
    );
    script.block("initiator", 0, "it comes again", 3, 2 * BLOCK, false);
    script.ask(0, "which tells the length [X-14]", &eofr(3, kind));
    script.tell(0, "", &ack(4));
    script.tell(2, "", &published(3, kind));
}

fn calls(script: &mut Script) {
    let id = |slot, sequence| CallId { slot, sequence };
    let call = |id, call| Frame::Xpathm(CallRequest { id, call: Ok(call) });
    let path = b"in".to_vec();
    let make = Call::MakeDirectory {
        path: b"out".to_vec(),
        parents: false,
        mode: None,
    };
    script.ask(0, "", &call(id(0, 1), make));
    let list = Call::List {
        path,
        entries_max: 100,
        cursor: vec![],
    };
    script.ask(2, "both are under way at once", &call(id(1, 1), list));
    let answer = |id, answer| {
        Frame::Answer(AnswerPart {
            id,
            part: 0,
            last: true,
            answer: Ok(answer),
        })
    };
    script.tell(0, "", &answer(id(0, 1), Answer::Done));
    let found = samples::frames()
        .into_iter()
        .find(|(n, _)| *n == "answer-entries-last-part");
    let Some((
        _,
        Frame::Answer(AnswerPart {
            answer: Ok(entries),
            ..
        }),
    )) = found
    else {
        panic!("no sample of a list");
    };
    script.tell(2, "", &answer(id(1, 1), entries));
    let taken = Frame::Taken(Taken {
        id: id(1, 1),
        parts: 1,
        stop: false,
    });
    script.ask(2, "of a list [P-8]", &taken);
}

pub(crate) fn vectors() -> Vec<Value> {
    let mut script = Script::default();
    register(&mut script);
    download(&mut script);
    calls(&mut script);
    unknown_length(&mut script);
    script.ask(0, "nothing is open any more [S-24]", &Frame::Eoft);
    script.tell(2, "on any channel [S-25]", &Frame::Eoft);
    script.event("both sides close all channels");
    vec![json!({ "name": "session", "steps": script.0 })]
}

/// Every stored message is decoded and encoded again to the same bytes.
pub(crate) fn check_stored(document: &Value) {
    let limits = Limits::default();
    let steps = document["vectors"][0]["steps"].as_array().expect("steps");
    for step in steps.iter().filter(|step| step["hex"].is_string()) {
        let bytes = unhex(step["hex"].as_str().expect("hex"));
        let mut again = Vec::new();
        if let Ok(Some((hello, _))) = Hello::decode(&bytes) {
            hello.encode(&mut again);
        } else if let Ok(Some((answer, _))) = Reply::decode(&bytes) {
            answer.encode(&mut again);
        } else if let Some(header) = bytes
            .first_chunk::<BLOCK_HEADER_BYTES>()
            .filter(|_| step["fields"]["frame"] == "BLOCK")
        {
            let start = header.first_chunk().expect("8 bytes");
            let frame = FrameHeader::decode(*start, &limits).expect("a valid header");
            let block = BlockHeader::decode(frame, *header.last_chunk().expect("16 bytes"));
            again.extend(block.expect("a valid block").encode());
            again.extend(&bytes[BLOCK_HEADER_BYTES..]);
        } else {
            let (header, body) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>().expect("8");
            let header = FrameHeader::decode(*header, &limits).expect("a valid header");
            let frame = Frame::decode(header, body, &limits).expect("a valid frame");
            frame.encode(&mut again);
        }
        assert_eq!(again, bytes, "{step}");
    }
}
