//! Reads of many ranges in one flight.

use xdfs::{Code, FileRange};

use crate::awaited::block_on;
use crate::support::{Folders, Serving, client};

fn range(start: i64, end: impl Into<Option<i64>>) -> FileRange {
    let end = end.into();
    FileRange { start, end }
}

fn bytes() -> Vec<u8> {
    (0..10_000_000_u32)
        .map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8)
        .collect()
}

#[test]
fn ranges_are_those_of_the_file() {
    let folders = Folders::new(940);
    let bytes = bytes();
    std::fs::write(folders.root().join("file"), &bytes).unwrap();
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let size = bytes.len() as i64;
    let mut wanted = vec![
        range(0, None),
        range(-10, None),
        range(5, 5),
        range(9, 3),
        range(size - 1, size + 100),
        range(i64::MIN, i64::MAX),
        range(i64::MAX, None),
        range(-20, -10),
        range(61_439, 61_441),
    ];
    // More small ones than fit into one call.
    wanted.extend((0..1000).map(|at| range(at * 7, at * 7 + 3)));
    let read = block_on(client.read_ranges(b"/file", &wanted).unwrap()).unwrap();
    assert_eq!(read.attributes.size, bytes.len() as u64);
    assert_eq!(read.ranges.len(), wanted.len());
    let clipped = |at: i64| if at < 0 { at.saturating_add(size) } else { at };
    for (range, read) in wanted.iter().zip(&read.ranges) {
        let start = clipped(range.start).clamp(0, size) as usize;
        let end = range.end.map_or(size, clipped).clamp(0, size) as usize;
        let expected = bytes.get(start..end).unwrap_or_default();
        assert!(read == expected, "{range:?}: {} bytes", read.len());
    }
    let none = block_on(client.read_ranges(b"/file", &[]).unwrap()).unwrap();
    assert!(none.ranges.is_empty());
}

#[test]
fn ranges_of_no_file_are_refused_and_files_are_closed() {
    let folders = Folders::new(941);
    std::fs::create_dir(folders.root().join("folder")).unwrap();
    let bytes = bytes();
    std::fs::write(folders.root().join("file"), &bytes).unwrap();
    let mut server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let read = |path: &[u8]| client.read_ranges(path, &[range(0, None)]).unwrap();
    assert_eq!(
        block_on(read(b"/missing")).unwrap_err().code,
        Code::NotFound
    );
    let fault = block_on(read(b"/folder")).unwrap_err();
    assert!(matches!(
        fault.code,
        Code::IsDirectory | Code::NotRegularFile
    ));
    assert_eq!(fault.path, b"/folder");
    // More than a session may have open: each has to be closed, read to its end or not.
    for _ in 0..1100 {
        drop(read(b"/file"));
        let first = client.read_ranges(b"/file", &[range(0, 1)]).unwrap();
        assert_eq!(block_on(first).unwrap().ranges, [bytes[..1].to_vec()]);
    }
    let pending = read(b"/file");
    server.stop();
    let fault = block_on(pending).unwrap_err();
    assert!(fault.ends_session, "{fault:?}");
    let late = client.read_ranges(b"/file", &[]);
    assert!(late.and_then(block_on).is_err());
}
