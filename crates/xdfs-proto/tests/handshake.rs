//! The opening of a channel at both ends: what is refused, how, and that it doesn't matter in which
//! pieces bytes arrive. The numbers are those of the specification.

use xdfs_proto::digest::DigestKind;
use xdfs_proto::frame::{
    BlockHeader, Exception, JoinRequest, Request, Scope, SessionAccept, SessionRequest, Start,
};
use xdfs_proto::handshake::{Acceptor, AcceptorStep, Initiator, InitiatorStep, Purpose};
use xdfs_proto::opening::{Answer, Feature, Hello, Welcome};
use xdfs_proto::{
    ChannelIndex, Code, Fault, FileId, Frame, Limits, SessionId, SessionSecret, Side,
};

fn session() -> SessionRequest {
    SessionRequest {
        id: SessionId([7; 16]),
        channels: 4,
        block_size: 1 << 20,
        window: 0,
        start: Start::Elastic,
        user: String::new(),
    }
}

fn session_ok(channels: u32, block_size: u32) -> Frame {
    Frame::SessionOk(SessionAccept {
        secret: SessionSecret([9; 16]),
        channels,
        block_size,
        window: 0,
    })
}

fn join() -> JoinRequest {
    JoinRequest {
        id: SessionId([7; 16]),
        secret: SessionSecret([9; 16]),
        channel: ChannelIndex(1),
    }
}

fn bytes(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

fn follow_links() -> Feature {
    Feature {
        id: 3,
        name: "follow-links".into(),
        value: Vec::new(),
    }
}

fn last_pack() -> Feature {
    Feature {
        id: 7,
        name: "last-pack".into(),
        value: Vec::new(),
    }
}

fn time_account() -> Feature {
    Feature {
        id: 4,
        name: "time-account".into(),
        value: Vec::new(),
    }
}

fn greeting() -> Hello {
    Hello {
        features: vec![follow_links(), time_account(), last_pack()],
        ..Hello::default()
    }
}

fn welcome() -> Vec<u8> {
    let mut out = Vec::new();
    let known = [follow_links(), time_account(), last_pack()];
    greeting().answer(&known).encode(&mut out);
    out
}

fn hello() -> Vec<u8> {
    let mut out = Vec::new();
    greeting().encode(&mut out);
    out
}

/// [K-24]
#[test]
fn k24_an_acceptor_that_does_not_follow_links_does_not_say_so() {
    let older = Hello::default().answer(&[]);
    for (answer, follows) in [(greeting().answer(&[follow_links()]), true), (older, false)] {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        let mut initiator = Initiator::new(Purpose::Join(join()), false, &mut Vec::new());
        assert!(!initiator.follows_links());
        let step = initiator.receive(&bytes, &Limits::default(), &mut Vec::new());
        assert!(matches!(step, Ok((InitiatorStep::Wait, _))));
        assert_eq!(initiator.follows_links(), follows);
    }
}

/// [K-26]
#[test]
fn k26_only_an_acceptor_that_knows_last_packs_says_so() {
    let older = greeting().answer(&[follow_links()]);
    for (answer, knows) in [(greeting().answer(&[last_pack()]), true), (older, false)] {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        let mut initiator = Initiator::new(Purpose::Join(join()), false, &mut Vec::new());
        assert!(!initiator.takes_last_packs());
        let step = initiator.receive(&bytes, &Limits::default(), &mut Vec::new());
        assert!(matches!(step, Ok((InitiatorStep::Wait, _))));
        assert_eq!(initiator.takes_last_packs(), knows);
    }
}

/// An acceptor that knows the feature `yield` learns the wish, and any other goes on without it.
#[test]
fn the_wish_to_yield_is_in_hello() {
    let mut bytes = Vec::new();
    for yields in [true, false] {
        bytes.clear();
        let _ = Initiator::new(Purpose::Join(join()), yields, &mut bytes);
        let mut acceptor = Acceptor::new();
        let step = acceptor.receive(&bytes, &Limits::default(), &mut Vec::new());
        assert!(matches!(step, Ok((AcceptorStep::Join(_), _))));
        assert_eq!(acceptor.yields(), yields);
    }
    let _ = Initiator::new(Purpose::Join(join()), true, &mut bytes);
    let (hello, _) = Hello::decode(&bytes).unwrap().unwrap();
    assert!(matches!(
        hello.answer(&[follow_links()]),
        Answer::Welcome(_)
    ));
}

/// [F-27]
#[test]
fn f27_an_account_needs_both_sides() {
    let (newer, older) = (greeting(), Hello::default());
    for (hello, known, agreed) in [
        (&newer, vec![time_account()], true),
        (&newer, vec![follow_links()], false),
        (&older, vec![time_account()], false),
    ] {
        let mut answer = Vec::new();
        hello.answer(&known).encode(&mut answer);
        let mut initiator = Initiator::new(Purpose::Join(join()), false, &mut Vec::new());
        assert!(!initiator.reports_time());
        let step = initiator.receive(&answer, &Limits::default(), &mut Vec::new());
        assert!(matches!(step, Ok((InitiatorStep::Wait, _))));
        assert_eq!(initiator.reports_time(), agreed);
    }
    for (hello, agreed) in [(newer, true), (older, false)] {
        let (mut acceptor, mut bytes) = (Acceptor::new(), Vec::new());
        hello.encode(&mut bytes);
        assert!(!acceptor.reports_time());
        let step = acceptor.receive(&bytes, &Limits::default(), &mut Vec::new());
        assert!(matches!(step, Ok((AcceptorStep::Wait, _))));
        assert_eq!(acceptor.reports_time(), agreed);
    }
}

/// Feeds an acceptor in pieces of `piece` bytes; returns what it answered too.
fn accept(input: &[u8], piece: usize) -> (Result<AcceptorStep, Fault>, Vec<u8>) {
    let (mut acceptor, limits) = (Acceptor::new(), Limits::default());
    let (mut unused, mut out) = (Vec::new(), Vec::new());
    for part in input.chunks(piece) {
        unused.extend_from_slice(part);
        match acceptor.receive(&unused, &limits, &mut out) {
            Ok((AcceptorStep::Wait, used)) => drop(unused.drain(..used)),
            Ok((step, used)) => {
                assert!(used <= unused.len());
                return (Ok(step), out);
            }
            Err(fault) => return (Err(fault), out),
        }
    }
    (Ok(AcceptorStep::Wait), out)
}

/// Feeds an initiator likewise.
fn initiate(
    purpose: Purpose,
    input: &[u8],
    piece: usize,
) -> (Result<InitiatorStep, Fault>, Vec<u8>) {
    let limits = Limits::default();
    let (mut unused, mut out) = (Vec::new(), Vec::new());
    let mut initiator = Initiator::new(purpose, false, &mut out);
    for part in input.chunks(piece) {
        unused.extend_from_slice(part);
        match initiator.receive(&unused, &limits, &mut out) {
            Ok((InitiatorStep::Wait, used)) => drop(unused.drain(..used)),
            Ok((step, used)) => {
                assert!(used <= unused.len());
                return (Ok(step), out);
            }
            Err(fault) => return (Err(fault), out),
        }
    }
    (Ok(InitiatorStep::Wait), out)
}

#[track_caller]
fn refused<T>(result: Result<T, Fault>, code: Code) -> Fault {
    let Err(fault) = result else {
        panic!("it was taken");
    };
    assert_eq!(fault.code, code, "{fault}");
    fault
}

/// The fault that an initiator would read from what an acceptor answered.
fn answer(out: &[u8]) -> Fault {
    match Answer::decode(out).expect("an answer").expect("whole") {
        (Answer::Refused(fault), _) => fault,
        (other, _) => panic!("{other:?}"),
    }
}

#[test]
fn both_ends_open_a_session_in_any_pieces() {
    let hello_and_session = [hello(), bytes(&Frame::Session(session()))].concat();
    let welcome_and_ok = [welcome(), bytes(&session_ok(2, 4096))].concat();
    for piece in [1, 2, 3, 7, 16, 1000] {
        let (step, out) = accept(&hello_and_session, piece);
        assert!(matches!(step, Ok(AcceptorStep::Session(r)) if r == session()));
        assert_eq!(out, welcome());
        let purpose = Purpose::Session(session());
        let (step, out) = initiate(purpose, &welcome_and_ok, piece);
        assert!(matches!(step, Ok(InitiatorStep::Open(Some(a))) if a.channels == 2));
        assert_eq!(out, hello_and_session);
    }
}

/// [O-14]
#[test]
fn both_ends_join_in_any_pieces() {
    let hello_and_join = [hello(), bytes(&Frame::Join(join()))].concat();
    let welcome_and_ok = [welcome(), bytes(&Frame::JoinOk)].concat();
    for piece in [1, 2, 3, 7, 16, 1000] {
        let (step, out) = accept(&hello_and_join, piece);
        assert!(matches!(step, Ok(AcceptorStep::Join(r)) if r == join()));
        assert_eq!(out, welcome());
        let (step, out) = initiate(Purpose::Join(join()), &welcome_and_ok, piece);
        assert!(matches!(step, Ok(InitiatorStep::Open(None))));
        assert_eq!(out, hello_and_join);
    }
}

#[test]
fn what_is_cut_anywhere_is_waited_for() {
    let input = [hello(), bytes(&Frame::Session(session()))].concat();
    for end in 0..input.len() {
        for piece in [1, 1000] {
            let (step, _) = accept(&input[..end], piece);
            assert!(matches!(step, Ok(AcceptorStep::Wait)), "{end}");
        }
    }
    let input = [welcome(), bytes(&session_ok(4, 1 << 20))].concat();
    for end in 0..input.len() {
        let (step, _) = initiate(Purpose::Session(session()), &input[..end], 1);
        assert!(matches!(step, Ok(InitiatorStep::Wait)), "{end}");
    }
}

/// [O-1], [O-2]
#[test]
fn o1_a_wrong_magic_is_refused_at_its_first_byte() {
    for at in 0..8 {
        let mut input = hello();
        input[at] ^= 0x20;
        let (step, out) = accept(&input[..=at], 1);
        refused(step, Code::BadMagic);
        assert_eq!(answer(&out).code, Code::BadMagic);
        let mut input = welcome();
        input[at] ^= 0x20;
        let (step, _) = initiate(Purpose::Join(join()), &input[..=at], 1);
        refused(step, Code::BadMagic);
    }
    // An echo isn't an answer.
    let (step, _) = initiate(Purpose::Join(join()), &hello(), 1000);
    refused(step, Code::BadMagic);
}

/// [O-7], [O-8], [O-9]
#[test]
fn o9_what_the_acceptor_does_not_know_is_refused_by_name() {
    let mandatory = Feature {
        id: 0x8001,
        name: "sealed-frames".into(),
        value: Vec::new(),
    };
    let cases = [
        (
            Hello {
                version_min: 2,
                version_max: 9,
                ..Hello::default()
            },
            Code::VersionUnsupported,
            "2 to 9",
        ),
        (
            Hello {
                features: vec![mandatory],
                ..Hello::default()
            },
            Code::FeatureUnsupported,
            "sealed-frames",
        ),
        (
            Hello {
                service: 1,
                ..Hello::default()
            },
            Code::FeatureUnsupported,
            "remote processes",
        ),
    ];
    for (hello, code, name) in cases {
        let mut input = Vec::new();
        hello.encode(&mut input);
        Frame::Join(join()).encode(&mut input);
        let (step, out) = accept(&input, 1000);
        let fault = refused(step, code);
        assert!(fault.cause.contains(name), "{fault}");
        assert_eq!(answer(&out).code, code);
        // And the initiator reports it as the acceptor's.
        let (step, _) = initiate(Purpose::Join(join()), &out, 1);
        assert_eq!(refused(step, code).side, Side::Remote);
    }
}

/// [O-7]
#[test]
fn o7_an_optional_feature_is_ignored() {
    let hello = Hello {
        features: vec![Feature {
            id: 1,
            name: "nicety".into(),
            value: vec![1],
        }],
        ..Hello::default()
    };
    let mut input = Vec::new();
    hello.encode(&mut input);
    let (step, out) = accept(&input, 1000);
    assert!(matches!(step, Ok(AcceptorStep::Wait)));
    let mut bare = Vec::new();
    hello.answer(&[]).encode(&mut bare);
    assert_eq!(out, bare);
}

/// [O-13]
#[test]
fn o13_a_welcome_keeps_to_the_hello() {
    let feature = Feature {
        id: 1,
        name: "unasked".into(),
        value: Vec::new(),
    };
    for (version, features) in [(2, Vec::new()), (1, vec![feature])] {
        let mut input = Vec::new();
        Answer::Welcome(Welcome { version, features }).encode(&mut input);
        let (step, _) = initiate(Purpose::Join(join()), &input, 1000);
        refused(step, Code::ProtocolViolation);
    }
}

/// [S-1]
#[test]
fn s1_the_first_frame_is_session_or_join() {
    let block = BlockHeader {
        file: FileId(1),
        check: 0,
        clear: false,
        offset: 0,
        length: 5,
    };
    let request = Frame::Xftsm(Request {
        file: FileId(1),
        path: b"source".to_vec(),
        offset: 0,
        length: None,
        digest: DigestKind::None,
        pack: None,
    });
    let frames = [
        block.encode().to_vec(),
        bytes(&request),
        bytes(&Frame::JoinOk),
        bytes(&Frame::Eoft),
        bytes(&Frame::Noop),
    ];
    for frame in frames {
        for piece in [1, 1000] {
            let (step, out) = accept(&[hello(), frame.clone()].concat(), piece);
            refused(step, Code::ProtocolViolation);
            // The welcome had gone out; the reason follows it.
            let (step, _) = initiate(Purpose::Join(join()), &out, 1);
            let fault = refused(step, Code::ProtocolViolation);
            assert_eq!(fault.side, Side::Remote);
        }
    }
}

/// [F-3], [O-16]
#[test]
fn f3_a_frame_over_the_limit_is_refused_by_its_header() {
    let header = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    let (step, _) = accept(&[&hello()[..], &header].concat(), 1);
    refused(step, Code::FrameTooLarge);
}

/// [S-4]
#[test]
fn s4_session_ok_raises_nothing() {
    for (channels, block_size) in [(5, 4096), (u32::MAX, 4096), (4, 2 << 20)] {
        let input = [welcome(), bytes(&session_ok(channels, block_size))].concat();
        let (step, _) = initiate(Purpose::Session(session()), &input, 1);
        refused(step, Code::ProtocolViolation);
    }
    let free = SessionRequest {
        block_size: 0,
        ..session()
    };
    let input = [welcome(), bytes(&session_ok(4, 16 << 20))].concat();
    let (step, _) = initiate(Purpose::Session(free), &input, 1);
    assert!(matches!(step, Ok(InitiatorStep::Open(Some(_)))));
}

/// [S-10]
#[test]
fn s10_an_answer_is_of_the_kind_that_was_asked_for() {
    let cases = [
        (Purpose::Join(join()), session_ok(4, 4096)),
        (Purpose::Session(session()), Frame::JoinOk),
        (Purpose::Session(session()), Frame::Session(session())),
        (Purpose::Join(join()), Frame::Eoft),
    ];
    for (purpose, frame) in cases {
        let (step, _) = initiate(purpose, &[welcome(), bytes(&frame)].concat(), 1);
        refused(step, Code::ProtocolViolation);
    }
    let exception = Frame::Exception(Exception {
        scope: Scope::Channel,
        fault: Fault::new(Code::TooManyChannels, "join", "there are enough"),
    });
    let input = [welcome(), bytes(&exception)].concat();
    let (step, _) = initiate(Purpose::Join(join()), &input, 1);
    assert_eq!(refused(step, Code::TooManyChannels).side, Side::Remote);
}

/// [S-14]
#[test]
fn s14_noop_may_come_before_the_answer() {
    let input = [
        welcome(),
        bytes(&Frame::Noop),
        bytes(&Frame::Conm),
        bytes(&Frame::JoinOk),
    ]
    .concat();
    for piece in [1, 1000] {
        let (step, _) = initiate(Purpose::Join(join()), &input, piece);
        assert!(matches!(step, Ok(InitiatorStep::Open(None))));
    }
}

/// Bytes behind the answer belong to whoever reads the channel next.
#[test]
fn what_follows_the_opening_is_left_alone() {
    let limits = Limits::default();
    let mut input = [hello(), bytes(&Frame::Join(join()))].concat();
    let whole = input.len();
    Frame::Noop.encode(&mut input);
    let mut out = Vec::new();
    let (_, used) = Acceptor::new()
        .receive(&input, &limits, &mut out)
        .expect("a join");
    assert_eq!(used, whole);
    let mut input = [welcome(), bytes(&Frame::JoinOk)].concat();
    let whole = input.len();
    Frame::Noop.encode(&mut input);
    let (_, used) = Initiator::new(Purpose::Join(join()), false, &mut Vec::new())
        .receive(&input, &limits, &mut out)
        .expect("an answer");
    assert_eq!(used, whole);
}
