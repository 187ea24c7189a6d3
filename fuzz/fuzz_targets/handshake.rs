//! Both ends of the opening of a channel, from any bytes in any pieces: no panic, a bounded answer,
//! no byte used that isn't there, and the same end whichever pieces the bytes came in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::frame::{JoinRequest, SessionRequest, Start};
use xdfs_proto::handshake::{Acceptor, AcceptorStep, Initiator, InitiatorStep, Purpose};
use xdfs_proto::opening::{Answer, Hello, Welcome};
use xdfs_proto::{ChannelIndex, Limits, SessionId, SessionSecret};

/// Most that an end may answer: an answer of the opening and one control frame.
const ANSWER_MAX: usize = 16 << 10;

fn run(
    bytes: &[u8],
    piece: usize,
    mut receive: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(String, usize), String>,
) -> (String, usize) {
    let (mut unused, mut used_in_all, mut out) = (Vec::new(), 0, Vec::new());
    let mut last = "Wait".to_owned();
    for part in bytes.chunks(piece) {
        unused.extend_from_slice(part);
        match receive(&unused, &mut out) {
            Ok((step, used)) => {
                assert!(used <= unused.len());
                unused.drain(..used);
                used_in_all += used;
                last = step;
            }
            // How much is there may show in the fault, but not whether there is one.
            Err(_) => return ("fault".to_owned(), 0),
        }
        assert!(out.len() <= ANSWER_MAX);
        if last != "Wait" {
            break;
        }
    }
    (last, used_in_all)
}

fuzz_target!(|data: &[u8]| {
    let Some((&[how, piece], rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let limits = Limits::default();
    let mut bytes = Vec::new();
    // Mutations seldom hit the magic.
    match how % 4 {
        0 => {}
        1 => Hello::default().encode(&mut bytes),
        _ => Answer::Welcome(Welcome {
            version: 1,
            features: Vec::new(),
        })
        .encode(&mut bytes),
    }
    bytes.extend_from_slice(rest);
    let acceptor = |piece: usize| {
        let mut acceptor = Acceptor::new();
        run(&bytes, piece, |bytes, out| {
            match acceptor.receive(bytes, &[], &limits, out) {
                Ok((AcceptorStep::Wait, used)) => Ok(("Wait".to_owned(), used)),
                Ok((step, used)) => Ok((format!("{step:?}"), used)),
                Err(fault) => Err(fault.to_string()),
            }
        })
    };
    let initiator = |piece: usize| {
        let purpose = if how & 64 == 0 {
            Purpose::Session(SessionRequest {
                id: SessionId([1; 16]),
                channels: 4,
                block_size: 0,
                window: 0,
                start: Start::Elastic,
                user: String::new(),
            })
        } else {
            Purpose::Join(JoinRequest {
                id: SessionId([1; 16]),
                secret: SessionSecret([2; 16]),
                channel: ChannelIndex(1),
            })
        };
        let mut initiator = Initiator::new(purpose, &mut Vec::new());
        run(&bytes, piece, |bytes, out| {
            match initiator.receive(bytes, &limits, out) {
                Ok((InitiatorStep::Wait, used)) => Ok(("Wait".to_owned(), used)),
                Ok((step, used)) => Ok((format!("{step:?}"), used)),
                Err(fault) => Err(fault.to_string()),
            }
        })
    };
    let piece = usize::from(piece).max(1);
    let whole = bytes.len().max(1);
    assert_eq!(acceptor(piece), acceptor(whole));
    assert_eq!(initiator(piece), initiator(whole));
});
