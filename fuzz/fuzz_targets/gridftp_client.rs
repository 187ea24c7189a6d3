//! What a server sends to the client, from any bytes: no panic, bounded memory, pieces don't
//! matter, and no name of a listing leads out of its directory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_gridftp::client::dialogue::{Dialogue, Event};
use xdfs_gridftp::client::features::Features;
use xdfs_gridftp::client::listed::{Listed, RowError};
use xdfs_gridftp::client::listing::{Rows, parse_facts};
use xdfs_gridftp::client::markers::Markers;
use xdfs_gridftp::client::{extended_port, passive_address, striped_addresses};
use xdfs_gridftp::reply::Reply;

/// The replies, and whether a fault ended them.
fn replies(data: &[u8], piece: usize) -> (Vec<Reply>, bool) {
    let mut dialogue = Dialogue::new();
    for verb in ["USER", "FEAT", "PASV", "EPSV", "MLST", "RETR", "NOOP"] {
        assert!(dialogue.command(verb, b"x").is_ok());
    }
    let mut replies = Vec::new();
    for part in data.chunks(piece) {
        dialogue.input(part);
        loop {
            let before = dialogue.pending();
            match dialogue.next_event() {
                Ok(Some(Event::Preliminary(reply))) => {
                    assert!(reply.code < 200 && dialogue.pending() == before);
                    replies.push(reply);
                }
                Ok(Some(Event::Final(reply))) => {
                    assert!(reply.code >= 200 && dialogue.pending() == before - 1);
                    replies.push(reply);
                }
                Ok(None) => break,
                Err(_) => return (replies, true),
            }
        }
    }
    (replies, false)
}

fn rows(mut rows: Rows, data: &[u8], piece: usize) -> (Vec<Listed>, Option<RowError>) {
    let mut listed = Vec::new();
    for part in data.chunks(piece) {
        rows.push(part);
        loop {
            match rows.next_row(false) {
                Ok(Some(row)) => listed.push(row),
                Ok(None) => break,
                Err(error) => return (listed, Some(error)),
            }
        }
    }
    match rows.next_row(true) {
        Ok(row) => listed.extend(row),
        Err(error) => return (listed, Some(error)),
    }
    (listed, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, data)) = data.split_first() else {
        return;
    };
    let piece = usize::from(piece) + 1;
    let whole = replies(data, data.len().max(1));
    assert_eq!(whole, replies(data, piece));
    let mut markers = Markers::default();
    for reply in whole.0 {
        let _ = Features::parse(&reply).checksum();
        assert_ne!(extended_port(&reply), Some(0));
        let more = markers.take(&reply, 1000);
        assert!(!more || markers.bytes() > 0);
        assert!(markers.stored().iter().all(|range| range.end <= 1000));
        assert!(passive_address(&reply).is_none_or(|address| address.port() > 0));
        let stripes = striped_addresses(&reply).unwrap_or_default();
        assert!(stripes.len() <= 64 && stripes.iter().all(|address| address.port() > 0));
        for line in &reply.lines {
            let _ = parse_facts(line);
        }
    }
    for make in [Rows::default, Rows::long] {
        let whole = rows(make(), data, data.len().max(1));
        assert_eq!(whole, rows(make(), data, piece));
        for row in whole.0 {
            let name = &row.name;
            assert!(i64::try_from(row.attributes.size).is_ok());
            let leads_out = matches!(name.as_slice(), b"" | b"." | b"..") || name.contains(&b'/');
            assert!(row.is_own || !leads_out && !name.contains(&0) && !name.contains(&b'\n'));
        }
    }
});
