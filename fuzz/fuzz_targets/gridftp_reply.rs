//! Replies from any bytes: pieces don't matter, and what is read is written and read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_gridftp::reply::{Reply, ReplyReader};

/// The replies, and whether something that is no reply ended them.
fn replies(data: &[u8], piece: usize) -> (Vec<Reply>, bool) {
    let mut reader = ReplyReader::new();
    let mut replies = Vec::new();
    for part in data.chunks(piece) {
        reader.push(part);
        loop {
            match reader.next_reply() {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(_) => return (replies, true),
            }
        }
    }
    (replies, false)
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, data)) = data.split_first() else {
        return;
    };
    let whole = replies(data, data.len().max(1));
    assert_eq!(whole, replies(data, usize::from(piece) + 1));
    for reply in whole.0 {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        let (again, is_broken) = replies(&bytes, bytes.len());
        assert!(!is_broken);
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].code, reply.code);
        assert_eq!(again[0].lines.len(), reply.lines.len());
        let mut twice = Vec::new();
        again[0].encode(&mut twice);
        assert_eq!(bytes, twice);
    }
});
