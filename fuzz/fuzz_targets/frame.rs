//! Frames other than BLOCK: what decodes has exactly one encoding, which is the one that came.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::frame::{AnswerPart, Exception, FRAME_HEADER_BYTES, FrameHeader, Published};
use xdfs_proto::path::Answer;
use xdfs_proto::relay::ParcelStatus;
use xdfs_proto::{Code, Frame, Limits};

fn is_unknown(status: &ParcelStatus) -> bool {
    let fault = status.fault.as_ref();
    fault.is_some_and(|fault| fault.code == Code::Internal)
}

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
    let is_internal = match &frame {
        Frame::Exception(Exception { fault, .. }) => fault.code == Code::Internal,
        Frame::Answer(AnswerPart { answer, .. }) => match answer {
            Err(fault) => fault.code == Code::Internal,
            Ok(Answer::ParcelStatus(status)) => is_unknown(status),
            Ok(Answer::Parcels(list)) => list.parcels.iter().any(|own| is_unknown(&own.status)),
            Ok(_) => false,
        },
        Frame::Published(Published { failures, .. }) => {
            let mut runs = failures.runs().iter();
            runs.any(|run| run.fault.code == Code::Internal)
        }
        _ => false,
    };
    if !is_internal {
        assert_eq!(bytes[..FRAME_HEADER_BYTES], header);
        assert_eq!(&bytes[FRAME_HEADER_BYTES..], body);
    }
    let again = Frame::decode(decoded, &bytes[FRAME_HEADER_BYTES..], &limits);
    assert_eq!(again.as_ref(), Ok(&frame));
    assert!(!frame.name().is_empty());
});
