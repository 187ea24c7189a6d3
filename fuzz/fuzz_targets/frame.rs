//! Frames other than BLOCK: what decodes has exactly one encoding, which is the one that came.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::frame::{AnswerPart, Exception, FRAME_HEADER_BYTES, FrameHeader};
use xdfs_proto::{Code, Frame, Limits};

fuzz_target!(|data: &[u8]| {
    let limits = Limits::default();
    let Some((header, body)) = data.split_first_chunk::<FRAME_HEADER_BYTES>() else {
        return;
    };
    // The mutations seldom hit the right length, so it is set here.
    let mut header = *header;
    header[4..].copy_from_slice(&(body.len() as u32).to_be_bytes());
    let Ok(decoded) = FrameHeader::decode(header, &limits) else {
        return;
    };
    let Ok(frame) = Frame::decode(decoded, body, &limits) else {
        return;
    };
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    // Codes that aren't known read as "internal", whose number is another one.
    let fault = match &frame {
        Frame::Exception(Exception { fault, .. }) => Some(fault),
        Frame::Answer(AnswerPart { answer, .. }) => answer.as_ref().err(),
        _ => None,
    };
    if fault.is_none_or(|fault| fault.code != Code::Internal) {
        assert_eq!(bytes[..FRAME_HEADER_BYTES], header);
        assert_eq!(&bytes[FRAME_HEADER_BYTES..], body);
    }
    let again = Frame::decode(decoded, &bytes[FRAME_HEADER_BYTES..], &limits);
    assert_eq!(again.as_ref(), Ok(&frame));
    assert!(!frame.name().is_empty());
});
