//! The header of a BLOCK: bounded, never past the end of numbers, one encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::Limits;
use xdfs_proto::frame::{BLOCK_HEADER_BYTES, BlockHeader, FRAME_HEADER_BYTES, FrameHeader};

fuzz_target!(|data: [u8; BLOCK_HEADER_BYTES]| {
    let limits = Limits::default();
    let (Some(header), Some(rest)) = (data.first_chunk::<FRAME_HEADER_BYTES>(), data.last_chunk())
    else {
        return;
    };
    let Ok(header) = FrameHeader::decode(*header, &limits) else {
        return;
    };
    if !header.is_block() {
        return;
    }
    assert!((17..=16 + limits.block_bytes_max).contains(&header.length));
    if let Ok(block) = BlockHeader::decode(header, *rest) {
        assert!((1..=limits.block_bytes_max).contains(&block.length));
        assert_eq!(block.range().len(), u64::from(block.length));
        assert_eq!(block.encode(), data);
    }
});
