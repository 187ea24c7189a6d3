//! Lists of sources and targets, one pair a line, as `globus-url-copy -f` has them.
//!
//! A list is read ahead by a thread, a bounded number of lines, so that it may have any length and
//! may be written while it is read.

use std::io::{BufRead, Read as _};
use std::sync::mpsc::{Receiver, sync_channel};

use xdfs_proto::{Code, Fault};

use crate::operations::path;

const OPERATION: &str = "read the list of copies";
/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Lines read ahead.
const LINES_AHEAD: usize = 256;

/// A line of a list that isn't blank and no comment, which begins with `#`.
#[derive(Debug, PartialEq, Eq)]
pub struct PairLine {
    /// The number of the line, counted from 1.
    pub number: u64,
    /// Source and target as places are written; a `file:` URL (RFC 8089) has become a path. A line
    /// that isn't understood isn't in its fault: it may have a password.
    pub pair: Result<[Vec<u8>; 2], Fault>,
}

/// Reads the lines of a list in a thread, which ends with the list, after a failed read, or with
/// the receiver. Faults name the list by `list_name`.
///
/// # Errors
/// The thread can't be started.
pub fn read_pairs(
    mut list: impl BufRead + Send + 'static,
    list_name: &[u8],
) -> Result<Receiver<PairLine>, Fault> {
    let name = list_name.to_vec();
    let (sender, lines) = sync_channel(LINES_AHEAD);
    let read = move || {
        let bad = |cause: String| Fault::new(Code::InvalidArgument, OPERATION, cause);
        for number in 1.. {
            let mut is_broken = false;
            let pair = match next_line(&mut list) {
                Ok(Some(Some(line))) => {
                    if matches!(line.trim_ascii_start().first(), None | Some(b'#')) {
                        continue;
                    }
                    pair_of(&line).map_err(|cause| {
                        bad(format!("line {number} {cause}"))
                            .hint("write: SOURCE TARGET, in double quotes if they have spaces")
                    })
                }
                Ok(Some(None)) => {
                    let cause = format!("line {number} has more than {LINE_BYTES_MAX} bytes");
                    Err(bad(cause).path(&name))
                }
                Ok(None) => return,
                Err(error) => {
                    is_broken = true;
                    Err(Fault::from_io(OPERATION, &name, &error))
                }
            };
            if sender.send(PairLine { number, pair }).is_err() || is_broken {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("list".into())
        .spawn(read)
        .map_err(|error| Fault::from_io("start a thread", "", &error))?;
    Ok(lines)
}

/// The next line without its end; `None` at the end, and `Some(None)` for one that is too long.
fn next_line(reader: &mut dyn BufRead) -> std::io::Result<Option<Option<Vec<u8>>>> {
    let mut line = Vec::new();
    let read = reader
        .take(LINE_BYTES_MAX + 1)
        .read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.len() as u64 > LINE_BYTES_MAX {
        while line.last() != Some(&b'\n') {
            line.clear();
            if reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                break;
            }
        }
        return Ok(Some(None));
    }
    while line
        .last()
        .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
    {
        line.pop();
    }
    Ok(Some(Some(line)))
}

/// The two places of a line, as `globus-url-copy` writes them: separated by spaces, those with
/// spaces in double quotes.
fn pair_of(line: &[u8]) -> Result<[Vec<u8>; 2], &'static str> {
    let mut rest = line.trim_ascii();
    let mut words = Vec::new();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                let end = quoted.iter().position(|&b| b == b'"');
                let end = end.ok_or("has a quote that doesn't end")?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => {
                let end = rest.iter().position(u8::is_ascii_whitespace);
                rest.split_at(end.unwrap_or(rest.len()))
            }
        };
        if !after.is_empty() && !after[0].is_ascii_whitespace() {
            return Err("has something right after a quote");
        }
        words.push(word);
        rest = after.trim_ascii_start();
    }
    match words.as_slice() {
        [source, target] => Ok([place(source)?, place(target)?]),
        [_, _, _] => Err("has a third word; parts of files can't be chosen by line"),
        _ => Err("doesn't have a source and a target"),
    }
}

/// A place, which for files of this machine may be a `file:` URL.
fn place(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    let Some(path) = path::of_file_url(bytes) else {
        return Ok(bytes.to_vec());
    };
    path.map_err(|_| {
        "has a file: URL with the name of another machine, without a path, or with a % that two \
         hexadecimal digits don't follow"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_two_places() {
        for (line, wanted) in [
            ("a xdfs://h/b", ["a", "xdfs://h/b"]),
            ("  \"a b\"\t\"xdfs://h/c d\" ", ["a b", "xdfs://h/c d"]),
            ("file:///a%20b ftp://h/c", ["/a b", "ftp://h/c"]),
            ("ftp://h/c file://localhost/x", ["ftp://h/c", "/x"]),
            ("a#b \"#c\"", ["a#b", "#c"]),
        ] {
            let wanted = wanted.map(|word| word.as_bytes().to_vec());
            assert_eq!(pair_of(line.as_bytes()), Ok(wanted), "{line}");
        }
        for (line, cause) in [
            ("a", "doesn't have a source and a target"),
            ("a b c d", "doesn't have a source and a target"),
            ("ftp://h/a b 0,-1", "third word"),
            ("\"a b", "doesn't end"),
            ("\"a\"b c", "right after"),
            ("file:///%4 c", "%"),
            ("file://host/a c", "another machine"),
        ] {
            let found = pair_of(line.as_bytes()).unwrap_err();
            assert!(found.contains(cause), "{line}: {found}");
        }
    }

    #[test]
    fn long_lines_are_passed_over() {
        let limit = usize::try_from(LINE_BYTES_MAX).unwrap();
        let mut list = vec![b'x'; 3 * limit];
        list.extend_from_slice(b"\nnext\r\n\nlast");
        let mut reader = &list[..];
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut reader).unwrap() {
            lines.push(line.map(|line| String::from_utf8(line).unwrap()));
        }
        let wanted = [None, Some("next"), Some(""), Some("last")];
        assert_eq!(lines, wanted.map(|line| line.map(str::to_owned)));
    }

    #[test]
    fn blank_lines_and_comments_are_passed_over_and_the_others_numbered() {
        let list: &'static [u8] = b"# all\n\na b\nonly\n  c  d\n";
        let lines: Vec<PairLine> = read_pairs(list, b"list").unwrap().into_iter().collect();
        let numbers: Vec<u64> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [3, 4, 5]);
        assert_eq!(lines[0].pair, Ok([b"a".to_vec(), b"b".to_vec()]));
        let fault = lines[1].pair.as_ref().unwrap_err();
        assert!(fault.cause.starts_with("line 4 "), "{fault}");
        assert!(!fault.to_string().contains("only"), "{fault}");
        assert_eq!(lines[2].pair, Ok([b"c".to_vec(), b"d".to_vec()]));
    }
}
