//! The control link of data nodes: lines in any pieces, what is read is written and read the same,
//! and no report makes a server believe in more bytes than were ordered.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_gridftp::node::{LINE_BYTES_MAX, Lines, Report, Request, Watch};

/// The lines, and whether one that is too long ended them.
fn lines(data: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let mut reader = Lines::default();
    let mut lines = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(piece.min(reader.room()).min(rest.len()));
        rest = after;
        reader.push(part);
        loop {
            match reader.next_line() {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => break,
                Err(_) => return (lines, true),
            }
        }
    }
    (lines, false)
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, data)) = data.split_first() else {
        return;
    };
    let whole = lines(data, LINE_BYTES_MAX);
    assert_eq!(whole, lines(data, usize::from(piece) + 1));
    let mut watch = Watch::default();
    let mut ordered = None;
    for line in whole.0 {
        if let Ok(request) = Request::decode(&line) {
            let encoded = request.encode();
            let again = encoded.strip_suffix(b"\n").expect("a line has an end");
            assert!(!again.contains(&b'\n') && again.len() <= LINE_BYTES_MAX);
            assert_eq!(Request::decode(again), Ok(request.clone()));
            if !watch.is_busy() {
                watch.requested(&request);
                ordered = match &request {
                    Request::Send(order) => Some(order.ranges.total()),
                    _ => None,
                };
            }
        }
        if let Ok(report) = Report::decode(&line) {
            let encoded = report.encode();
            let again = encoded.strip_suffix(b"\n").expect("a line has an end");
            assert!(!again.contains(&b'\n') && again.len() <= LINE_BYTES_MAX);
            assert_eq!(Report::decode(again), Ok(report.clone()));
            let before = watch.bytes();
            match watch.reported(&report) {
                Ok(fresh) => assert_eq!(watch.bytes(), before + fresh),
                Err(_) => return,
            }
            assert!(ordered.is_none_or(|most| watch.bytes() <= most));
        }
    }
});
