//! Both ends of the opening of a channel, plain and protected, from any bytes in any pieces: no
//! panic, a bounded answer, no byte used that isn't there, the same end and the same answer
//! whichever pieces the bytes came in, and no session before the proof that it needs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::frame::{
    AuthOk, AuthRequest, Challenge, Frame, JoinRequest, Proof, SessionRequest, Start,
};
use xdfs_proto::handshake::{
    Acceptor, AcceptorStep, Initiator, InitiatorStep, Purpose, take_frame,
};
use xdfs_proto::opening::{Answer, Feature, Hello, Welcome};
use xdfs_proto::{ChannelIndex, Limits, SessionId, SessionSecret};

/// Steps of a proof that an end takes before it gives up, as a server does.
const STEPS_MAX: usize = 8;
/// Most that an end may answer: an answer of the opening, the steps of a proof and one control
/// frame.
const ANSWER_MAX: usize = 16 << 10;
/// The feature that names the methods of proof.
const AUTHENTICATION: u16 = 1;
const METHODS: [u8; 3] = [2, 3, 5];

/// What an end makes of the bytes that came so far.
enum Step {
    Wait,
    /// There is something to go on with at once.
    Go,
    Done(String),
}

/// The end, how many bytes it used, and what it answered.
type Outcome = (String, usize, Vec<u8>);

fn run(
    bytes: &[u8],
    piece: usize,
    mut out: Vec<u8>,
    mut receive: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(Step, usize), String>,
) -> Outcome {
    let (mut unused, mut used_in_all) = (Vec::new(), 0);
    for part in bytes.chunks(piece) {
        unused.extend_from_slice(part);
        loop {
            // How much is there may show in the fault, but not whether there is one.
            let Ok((step, used)) = receive(&unused, &mut out) else {
                return ("fault".to_owned(), 0, Vec::new());
            };
            assert!(used <= unused.len());
            unused.drain(..used);
            used_in_all += used;
            assert!(out.len() <= ANSWER_MAX);
            match step {
                Step::Done(end) => return (end, used_in_all, out),
                // What was used may have been all that kept the next frame from being looked at.
                Step::Wait if used == 0 => break,
                Step::Wait | Step::Go => {}
            }
        }
    }
    ("Wait".to_owned(), used_in_all, out)
}

/// The acceptor's end. `script` has a bit for each step of a proof: whether it is accepted.
fn accept(bytes: &[u8], piece: usize, is_protected: bool, script: u8) -> Outcome {
    let limits = Limits::default();
    let mut acceptor = match is_protected {
        true => Acceptor::protected(&METHODS, true),
        false => Acceptor::new(),
    };
    acceptor = acceptor.with_tunnels();
    let (mut is_proved, mut steps) = (!is_protected, 0);
    run(bytes, piece, Vec::new(), |bytes, out| {
        let (step, used) = acceptor
            .receive(bytes, &limits, out)
            .map_err(|fault| fault.to_string())?;
        let step = match step {
            AcceptorStep::Wait => Step::Wait,
            AcceptorStep::Session(request) => {
                assert!(is_proved, "a session without a proof");
                Step::Done(format!("{request:?}"))
            }
            AcceptorStep::Join(request) => Step::Done(format!("{request:?}")),
            AcceptorStep::Tunnel(request) => {
                assert!(is_proved, "a tunnel without a proof");
                Step::Done(format!("{request:?}"))
            }
            AcceptorStep::Auth(_) | AcceptorStep::Proof(_) => {
                assert!(!is_proved, "a proof that nobody asked for");
                steps += 1;
                if steps > STEPS_MAX {
                    return Err("too many steps".to_owned());
                }
                if script >> (steps - 1) & 1 != 0 {
                    is_proved = true;
                    acceptor.proved("jane".to_owned(), out);
                } else {
                    acceptor.challenge(vec![steps as u8; 60], out);
                }
                Step::Go
            }
        };
        Ok((step, used))
    })
}

/// The initiator's end. The first bit of `script`: the method has one step; the last: the proof
/// goes ahead.
fn initiate(bytes: &[u8], piece: usize, is_protected: bool, joins: bool, script: u8) -> Outcome {
    let limits = Limits::default();
    let purpose = if joins {
        Purpose::Join(JoinRequest {
            id: SessionId([1; 16]),
            secret: SessionSecret([2; 16]),
            channel: ChannelIndex(1),
        })
    } else {
        Purpose::Session(SessionRequest {
            id: SessionId([1; 16]),
            channels: 4,
            block_size: 0,
            window: 0,
            start: Start::Elastic,
            user: String::new(),
        })
    };
    let mut out = Vec::new();
    let mut initiator = match is_protected {
        true => Initiator::protected(purpose, false, &mut out),
        false => Initiator::new(purpose, false, &mut out),
    };
    let request = || AuthRequest {
        method: METHODS[0],
        user: "jane".to_owned(),
        body: vec![3; 40],
    };
    let goes_ahead = is_protected && !joins && script & 0x81 == 0x81;
    if goes_ahead {
        initiator.prove_ahead(request(), &mut out);
    }
    let (mut was_asked, mut steps) = (goes_ahead, 0);
    let outcome = run(bytes, piece, out, |bytes, out| {
        let (step, used) = initiator
            .receive(bytes, &limits, out)
            .map_err(|fault| fault.to_string())?;
        let step = match step {
            InitiatorStep::Wait => Step::Wait,
            InitiatorStep::Open(accepted) => {
                assert!(
                    was_asked || joins || !is_protected,
                    "opened without a proof"
                );
                assert_eq!(accepted.is_none(), joins);
                Step::Done(format!("{accepted:?}"))
            }
            InitiatorStep::Tunnel(accepted) => panic!("a tunnel for a session: {accepted:?}"),
            InitiatorStep::Prove(_) => {
                assert!(is_protected && !joins && !was_asked);
                was_asked = true;
                initiator.prove(request(), script & 1 != 0, out);
                Step::Go
            }
            InitiatorStep::Mistaken => {
                assert!(goes_ahead);
                Step::Done("mistaken".to_owned())
            }
            InitiatorStep::Challenge(body) => {
                assert!(was_asked && script & 1 == 0);
                steps += 1;
                if steps > STEPS_MAX {
                    return Err("too many steps".to_owned());
                }
                initiator.answer(body.into_iter().take(32).collect(), out);
                Step::Go
            }
        };
        Ok((step, used))
    });
    if is_protected && !joins && outcome.0 != "fault" {
        check_order(&outcome.2, &limits);
    }
    outcome
}

/// An initiator that has to prove who it is asks for its session once at most, and after AUTH.
fn check_order(sent: &[u8], limits: &Limits) {
    let Ok(Some((_, mut at))) = Hello::decode(sent) else {
        panic!("an initiator begins with HELLO");
    };
    let (mut proofs, mut sessions) = (0, 0);
    while let Some((frame, used)) = take_frame(&sent[at..], limits).expect("own frame") {
        at += used;
        match frame {
            Frame::Auth(_) => {
                assert_eq!((proofs, sessions), (0, 0));
                proofs += 1;
            }
            Frame::Proof(_) => assert_eq!((proofs, sessions), (1, 0)),
            Frame::Session(_) => {
                assert_eq!((proofs, sessions), (1, 0));
                sessions += 1;
            }
            other => panic!("an initiator sent {}", other.name()),
        }
    }
    assert_eq!(at, sent.len());
}

fuzz_target!(|data: &[u8]| {
    let Some((&[how, piece, script], rest)) = data.split_first_chunk::<3>() else {
        return;
    };
    let (is_protected, joins) = (how & 32 != 0, how & 64 != 0);
    // Mutations seldom hit the magic.
    let features = match how & 4 {
        0 => Vec::new(),
        _ => vec![Feature {
            id: AUTHENTICATION,
            name: "authentication".to_owned(),
            value: METHODS.to_vec(),
        }],
    };
    let mut bytes = Vec::new();
    match how % 4 {
        0 => {}
        1 => Hello {
            features,
            ..Hello::default()
        }
        .encode(&mut bytes),
        _ => Answer::Welcome(Welcome {
            version: 1,
            features,
        })
        .encode(&mut bytes),
    }
    // Nor a whole frame of a proof.
    if how & 8 != 0 {
        let frame = match how % 4 {
            1 => Frame::Auth(AuthRequest {
                method: METHODS[1],
                user: "jane".to_owned(),
                body: vec![4; 32],
            }),
            _ if script & 2 != 0 => Frame::AuthOk(AuthOk {
                user: "jane".to_owned(),
            }),
            _ => Frame::Challenge(Challenge(vec![5; 60])),
        };
        frame.encode(&mut bytes);
    }
    if how & 16 != 0 && how % 4 == 1 {
        Frame::Proof(Proof(vec![6; 32])).encode(&mut bytes);
    }
    bytes.extend_from_slice(rest);
    let piece = usize::from(piece).max(1);
    let whole = bytes.len().max(1);
    assert_eq!(
        accept(&bytes, piece, is_protected, script),
        accept(&bytes, whole, is_protected, script)
    );
    assert_eq!(
        initiate(&bytes, piece, is_protected, joins, script),
        initiate(&bytes, whole, is_protected, joins, script)
    );
});
