//! Lists of digests, as sha256sum(1) and b3sum(1) write them, and the files in them checked.

use std::io::{BufRead, Read as _};

use xdfs_proto::{ChecksumKind, Code, Fault};

use super::path::join;
use super::side::SidePath;
use super::sum::{Sum, Sums};

const OPERATION: &str = "read the digests";
/// Longest line of a list of digests: more than a digest and any path.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A name as sha256sum(1) writes it, and the mark before its line: a backslash if a character of
/// the name is escaped, and otherwise nothing.
#[must_use]
pub fn escaped_name(name: &[u8]) -> (&'static [u8], Vec<u8>) {
    let mut out = Vec::with_capacity(name.len());
    let mut mark: &[u8] = b"";
    for &byte in name {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            byte => {
                out.push(byte);
                continue;
            }
        }
        mark = b"\\";
    }
    (mark, out)
}

/// Parses a line of a list: a digest in hex and a name.
fn parse_line(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let (is_escaped, line) = match line.strip_prefix(b"\\") {
        Some(line) => (true, line),
        None => (false, line),
    };
    let end = line.iter().position(|&b| b == b' ')?;
    let (digits, rest) = line.split_at(end);
    // The second character tells text from binary files where these differ.
    let name = rest
        .strip_prefix(b"  ")
        .or_else(|| rest.strip_prefix(b" *"))?;
    let digits = std::str::from_utf8(digits).ok()?.to_ascii_lowercase();
    let is_digest = [16, 32, 64].contains(&digits.len());
    if !is_digest || !digits.bytes().all(|b| b.is_ascii_hexdigit()) || name.is_empty() {
        return None;
    }
    if !is_escaped {
        return Some((digits, name.to_vec()));
    }
    let mut bytes = name.iter();
    let mut out = Vec::with_capacity(name.len());
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            byte => byte,
        });
    }
    Some((digits, out))
}

/// Number of hex digits of a kind.
fn digits_of(kind: ChecksumKind) -> usize {
    match kind {
        ChecksumKind::Crc64Nvme => 16,
        ChecksumKind::Md5 => 32,
        _ => 64,
    }
}

/// A check of the files in a list of digests, which is an iterator over the digests that they have,
/// in the order of the list. A fault of the list itself ends it.
#[derive(Debug)]
pub struct SumCheck<'a, R> {
    root: &'a SidePath,
    /// `None` at the end of the list.
    lines: Option<R>,
    /// The name of the list in faults.
    list_name: &'a [u8],
    kind: ChecksumKind,
    /// Lines read.
    number: u64,
    sums: Sums<'a>,
}

impl<'a, R: BufRead> SumCheck<'a, R> {
    /// Starts to check the files in a list, whose relative paths begin at `root`. Digests of
    /// another kind are refused; faults name the list by `list_name`.
    #[must_use]
    pub fn new(root: &'a SidePath, lines: R, list_name: &'a [u8], kind: ChecksumKind) -> Self {
        Self {
            root,
            lines: Some(lines),
            list_name,
            kind,
            number: 0,
            sums: Sums::new(&root.side, kind),
        }
    }

    /// Lines read up to now.
    #[must_use]
    pub fn lines_read(&self) -> u64 {
        self.number
    }

    fn bad(&self, cause: impl Into<String>) -> Fault {
        Fault::new(Code::InvalidArgument, OPERATION, cause).path(self.list_name)
    }

    /// The next digits and name of the list; `None` at its end.
    fn next_line(&mut self) -> Result<Option<(String, Vec<u8>)>, Fault> {
        let Some(lines) = &mut self.lines else {
            return Ok(None);
        };
        let mut line = Vec::new();
        let read = lines.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.map_err(|error| Fault::from_io(OPERATION, self.list_name, &error))? == 0 {
            return match self.number {
                0 => Err(self.bad("there are none")),
                _ => Ok(None),
            };
        }
        self.number += 1;
        let number = self.number;
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let Some((digits, name)) = parse_line(line.strip_suffix(b"\r").unwrap_or(line)) else {
            let cause = format!("line {number} is not a digest, two spaces and a path");
            return Err(self.bad(cause));
        };
        if digits.len() != digits_of(self.kind) {
            let fault = self.bad(format!("line {number} has a digest of another kind"));
            return Err(fault.hint("name the kind with --digest"));
        }
        Ok(Some((digits, name)))
    }
}

impl<R: BufRead> Iterator for SumCheck<'_, R> {
    type Item = Result<Sum, Fault>;

    fn next(&mut self) -> Option<Result<Sum, Fault>> {
        while self.lines.is_some() {
            let (digits, name) = match self.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => {
                    self.lines = None;
                    break;
                }
                Err(fault) => {
                    self.lines = None;
                    // Without the digests of the lines before.
                    self.sums = Sums::new(&self.root.side, self.kind);
                    return Some(Err(fault));
                }
            };
            let path = match name.first() {
                Some(b'/') => name.clone(),
                _ => join_to(&self.root.path, &name),
            };
            if let Some(sum) = self.sums.push(path, name, Some(digits)) {
                return Some(Ok(sum));
            }
        }
        self.sums.pop().map(Ok)
    }
}

/// A path from a directory; `.` stands for none.
fn join_to(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"." => name.to_vec(),
        directory => join(directory, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_lists() {
        let digits = "0123456789abcdef";
        for (name, line) in [
            (&b"a"[..], format!("{digits}  a")),
            (b"a  b", format!("{digits}  a  b")),
            (b"a\nb\\", format!("\\{digits}  a\\nb\\\\")),
            (b"c\r", format!("\\{digits}  c\\r")),
        ] {
            let (mark, text) = escaped_name(name);
            let written = [mark, digits.as_bytes(), b"  ", &text].concat();
            assert_eq!(written, line.as_bytes());
            assert_eq!(parse_line(&written), Some((digits.into(), name.to_vec())));
        }
        let binary = parse_line(b"0123456789ABCDEF *a").unwrap();
        assert_eq!(binary, (digits.into(), b"a".to_vec()));
        for bad in [
            "",
            "x",
            "0123456789abcdef",
            "0123456789abcdef a",
            "0123456789abcdef  ",
            "0123456789abcdeg  a",
            "012345  a",
            "\\0123456789abcdef  a\\t",
            "\\0123456789abcdef  a\\",
            "SHA256 (a) = 00",
        ] {
            assert_eq!(parse_line(bad.as_bytes()), None, "{bad}");
        }
    }
}
