//! Command lines from any bytes: pieces don't matter, memory is bounded, and no argument holds a
//! control character that could end a line elsewhere.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_gridftp::command::parse;
use xdfs_gridftp::line::{LINE_BYTES_MAX, Line, LineReader};
use xdfs_gridftp::session::resolve;

fn lines(data: &[u8], piece: usize) -> Vec<Line> {
    let mut reader = LineReader::new();
    let mut lines = Vec::new();
    for part in data.chunks(piece) {
        reader.push(part);
        lines.extend(std::iter::from_fn(|| reader.next_line()));
        assert!(reader.held() <= LINE_BYTES_MAX + piece);
    }
    lines
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, data)) = data.split_first() else {
        return;
    };
    let whole = lines(data, data.len().max(1));
    assert_eq!(whole, lines(data, usize::from(piece) + 1));
    for line in whole {
        let Line::Text(line) = line else { continue };
        assert!(line.len() <= LINE_BYTES_MAX);
        if parse(&line).is_ok() {
            assert!(!line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        }
        let path = resolve(b"/some/directory", &line);
        assert!(path.starts_with(b"/"));
        let mut parts = path[1..].split(|byte| *byte == b'/');
        assert!(path == b"/" || parts.all(|part| !matches!(part, b"" | b"." | b"..")));
    }
});
