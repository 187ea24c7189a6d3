//! HELLO and its answer, from any bytes, whole and growing byte by byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::opening::{Answer, Hello, OPENING_HEADER_BYTES};
use xdfs_proto::{Code, Fault};

/// Bytes with the magic and the length that a message has to start with, which mutations seldom
/// hit; every fourth input stays as it is.
fn repaired(data: &[u8]) -> Vec<u8> {
    let Some((&how, rest)) = data.split_first() else {
        return Vec::new();
    };
    let mut bytes = rest.to_vec();
    if how % 4 != 0 {
        let magic = [0xf8, b'x', b'D', b'F', b'S', b'\r', b'\n', how % 2];
        bytes.splice(..0, magic);
        if let Some(body) = bytes.len().checked_sub(OPENING_HEADER_BYTES) {
            let length = (body as u32).saturating_sub(u32::from(how / 64));
            bytes[12..16].copy_from_slice(&length.to_be_bytes());
        }
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    let data = &repaired(data)[..];
    if let Ok(Some((hello, taken))) = Hello::decode(data) {
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        assert_eq!(bytes, &data[..taken]);
        for len in 0..taken {
            assert_eq!(Hello::decode(&data[..len]), Ok(None));
        }
        let answer = hello.answer(&hello.features[..hello.features.len() / 2]);
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        let (decoded, taken) = Answer::decode(&bytes).expect("own answer").expect("whole");
        assert_eq!(taken, bytes.len());
        match (answer, decoded) {
            (Answer::Welcome(ours), Answer::Welcome(theirs)) => {
                assert_eq!(ours, theirs);
                assert_eq!(hello.check(&theirs), Ok(()));
            }
            (Answer::Refused(ours), Answer::Refused(theirs)) => {
                assert_eq!(ours.remote(), theirs);
            }
            (ours, theirs) => panic!("{ours:?} was read as {theirs:?}"),
        }
    }
    if let Ok(Some((answer, taken))) = Answer::decode(data) {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        // Codes that aren't known read as "internal", whose number is another one.
        if !matches!(
            &answer,
            Answer::Refused(Fault {
                code: Code::Internal,
                ..
            })
        ) {
            assert_eq!(bytes, &data[..taken]);
        }
        assert_eq!(Answer::decode(&bytes), Ok(Some((answer, bytes.len()))));
    }
});
