//! `xdfs sum`: digests of files on either side, and lists of them checked.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal as _, Read as _};
use std::path::Path;

use xdfs::operations::path::join;
use xdfs::operations::{PathSide, SideCall, WalkOptions, WalkStep, unexpected_answer};
use xdfs::record::Record;
use xdfs::{Answer, Call, ChecksumKind, ChecksumValue, Code, Fault, FileKind, Quoting};

use super::command::PathCommand;
use super::operand::text_of;
use super::side::SideOperand;
use crate::context::Context;
use crate::flags::SumFlags;

/// Files whose digests are computed at once.
const FILES_AHEAD: usize = 16;
/// Longest line of a list of digests: more than a digest and any path.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Starts to compute the digest of a whole file.
pub(super) fn ask_digest(operand: &SideOperand, path: Vec<u8>, kind: ChecksumKind) -> SideCall {
    operand.side.start_call(Call::Checksum {
        path,
        offset: 0,
        length: None,
        kind,
    })
}

/// The digest in an answer, and the bytes that it covers.
///
/// # Errors
/// The call failed.
fn digest_of(asked: SideCall, path: &[u8]) -> Result<(ChecksumValue, u64), Fault> {
    match asked.wait()? {
        Answer::Digest { value, length } => Ok((value, length)),
        _ => Err(unexpected_answer("compute the digest of", path)),
    }
}

/// Runs the command and returns the exit code.
pub(crate) fn sum(context: &Context, flags: &SumFlags) -> u8 {
    let mut command = PathCommand::new(context, "sum", &flags.common).with_own_sessions();
    if let Some(list) = &flags.check {
        command.one(&text_of(list.as_os_str()), |command| {
            check(command, flags, list)
        });
        return command.finish();
    }
    if flags.recursive {
        command.one(&joined(&flags.places), |command| {
            let root = command.word_of(single(&flags.places)?)?;
            let root = SideOperand::open(command, &root)?;
            sum_tree(command, flags, &root)
        });
        return command.finish();
    }
    for word in &command.expanded(&flags.places) {
        if command.is_over() {
            break;
        }
        command.one(&text_of(word), |command| {
            let operand = SideOperand::open(command, word)?;
            let mut sums = Sums::new(&operand);
            let path = operand.path.clone();
            sums.push(command, path.clone(), path, flags.digest.into(), None);
            sums.finish(command);
            Ok(())
        });
    }
    command.finish()
}

fn joined(words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|word| text_of(word)).collect();
    words.join(" ")
}

/// The only operand.
fn single(words: &[OsString]) -> Result<&OsStr, Fault> {
    match words {
        [only] => Ok(only),
        _ => {
            let cause = "several directories, while the paths are relative to one";
            Err(Fault::new(Code::InvalidArgument, "compute digests", cause)
                .hint("run the command for one after the other"))
        }
    }
}

fn sum_tree(command: &mut PathCommand, flags: &SumFlags, root: &SideOperand) -> Result<(), Fault> {
    let attributes = root.stat(true)?;
    let mut sums = Sums::new(root);
    if attributes.kind != FileKind::Directory {
        let name = root.name_of(b"");
        sums.push(command, root.path.clone(), name, flags.digest.into(), None);
        sums.finish(command);
        return Ok(());
    }
    let sorted = WalkOptions {
        sorted: true,
        ..WalkOptions::default()
    };
    for step in root.walk(attributes, sorted) {
        match step {
            WalkStep::Entry(found) if found.attributes.kind == FileKind::File => {
                let name = root.name_of(root.relative(&found.path));
                sums.push(command, found.path, name, flags.digest.into(), None);
            }
            WalkStep::Entry(_) | WalkStep::Left(_) => {}
            WalkStep::Failed(fault) => command.fault(Some(&root.text), &fault),
        }
        if command.is_over() {
            break;
        }
    }
    sums.finish(command);
    Ok(())
}

/// A digest that is being computed.
struct Sum {
    path: Vec<u8>,
    /// The path as it is printed.
    name: Vec<u8>,
    asked: SideCall,
    /// The expected value in lower-case hex.
    expected: Option<String>,
}

/// Digests that are being computed, reported in order.
struct Sums<'a> {
    root: &'a SideOperand,
    quoting: Option<Quoting>,
    waiting: VecDeque<Sum>,
    different: u64,
}

/// The reasons for which a path in a list may not be found.
fn missing_hint(side: &PathSide, name: &[u8]) -> &'static str {
    match (side, name.first()) {
        (PathSide::Local, Some(b'/')) => {
            "the path of a file on a server needs the server: xdfs sum -c FILE xdfs://HOST/"
        }
        _ => "relative paths begin in PLACE, or without it in the current directory",
    }
}

impl<'a> Sums<'a> {
    fn new(root: &'a SideOperand) -> Self {
        Self {
            root,
            quoting: std::io::stdout().is_terminal().then_some(Quoting::Shell),
            waiting: VecDeque::new(),
            different: 0,
        }
    }

    fn push(
        &mut self,
        command: &mut PathCommand,
        path: Vec<u8>,
        name: Vec<u8>,
        kind: ChecksumKind,
        expected: Option<String>,
    ) {
        let asked = ask_digest(self.root, path.clone(), kind);
        self.waiting.push_back(Sum {
            path,
            name,
            asked,
            expected,
        });
        if self.waiting.len() >= FILES_AHEAD {
            self.report(command);
        }
    }

    /// Waits for all digests.
    fn finish(&mut self, command: &mut PathCommand) {
        while !self.waiting.is_empty() && !command.is_over() {
            self.report(command);
        }
    }

    /// Waits for the earliest digest, and prints it.
    fn report(&mut self, command: &mut PathCommand) {
        let Some(sum) = self.waiting.pop_front() else {
            return;
        };
        let (value, bytes) = match digest_of(sum.asked, &sum.path) {
            Ok(found) => found,
            Err(fault) => {
                let fault = match fault.code {
                    Code::IsDirectory => fault.hint("use --recursive for all files in it"),
                    Code::NotFound if sum.expected.is_some() => {
                        fault.hint(missing_hint(&self.root.side, &sum.name))
                    }
                    _ => fault,
                };
                return command.fault(Some(&self.root.text), &fault);
            }
        };
        let digits = value.hex();
        let matches = sum.expected.map(|expected| expected == digits);
        self.different += u64::from(matches == Some(false));
        if command.is_json() {
            let operand = &self.root.text;
            command.write_record(&Record::sum(operand, &sum.name, bytes, &value, matches));
            return;
        }
        let (mark, name) = match self.quoting {
            Some(quoting) => (&b""[..], quoting.write(&sum.name)),
            None => escaped(&sum.name),
        };
        let line = match matches {
            None => [mark, digits.as_bytes(), b"  ", &name, b"\n"].concat(),
            Some(true) => [mark, &name, b": OK\n"].concat(),
            Some(false) => [mark, &name, b": FAILED\n"].concat(),
        };
        command.print(&line);
        // A digest may take minutes.
        command.flush();
    }
}

/// A name as sha256sum(1) writes it, and the mark before its line.
fn escaped(name: &[u8]) -> (&'static [u8], Vec<u8>) {
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

/// Checks the digests of a list.
fn check(command: &mut PathCommand, flags: &SumFlags, list: &Path) -> Result<(), Fault> {
    let here = OsString::from(".");
    let root = match flags.places.as_slice() {
        [] => here.as_os_str(),
        places => single(places)?,
    };
    let root = command.word_of(root)?;
    let root = SideOperand::open(command, &root)?;
    let list_name = list.as_os_str().as_encoded_bytes();
    let failed = |error: &std::io::Error| Fault::from_io("read the digests", list_name, error);
    let mut lines: Box<dyn BufRead> = match list_name {
        b"-" => Box::new(BufReader::new(std::io::stdin())),
        _ => Box::new(BufReader::new(File::open(list).map_err(|e| failed(&e))?)),
    };
    let kind = ChecksumKind::from(flags.digest);
    let mut sums = Sums::new(&root);
    let mut number = 0_u64;
    loop {
        let mut line = Vec::new();
        let read = lines
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line);
        if read.map_err(|error| failed(&error))? == 0 || command.is_over() {
            break;
        }
        number += 1;
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let Some((digits, name)) = parse_line(line.strip_suffix(b"\r").unwrap_or(line)) else {
            let cause = format!("line {number} is not a digest, two spaces and a path");
            return Err(
                Fault::new(Code::InvalidArgument, "read the digests", cause).path(list_name)
            );
        };
        if digits.len() != digits_of(kind) {
            let cause = format!("line {number} has a digest of another kind");
            return Err(Fault::new(Code::InvalidArgument, "read the digests", cause)
                .path(list_name)
                .hint("name the kind with --digest"));
        }
        let path = match name.first() {
            Some(b'/') => name.clone(),
            _ => join_to(&root.path, &name),
        };
        sums.push(command, path, name, kind, Some(digits));
    }
    if number == 0 && !command.is_over() {
        let fault = Fault::new(Code::InvalidArgument, "read the digests", "there are none");
        return Err(fault.path(list_name));
    }
    sums.finish(command);
    if sums.different > 0 {
        let hint = match kind {
            ChecksumKind::Blake3 => "; those of sha256sum need --digest sha256",
            _ => "",
        };
        command.compared(
            true,
            &format!("{} of {number} digests differ{hint}", sums.different),
        );
    }
    Ok(())
}

/// A path from a directory; `.` stands for none.
fn join_to(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"." => name.to_vec(),
        directory => join(directory, name),
    }
}

/// Number of hex digits of a kind.
fn digits_of(kind: ChecksumKind) -> usize {
    match kind {
        ChecksumKind::Crc64Nvme => 16,
        ChecksumKind::Md5 => 32,
        _ => 64,
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
            let (mark, text) = escaped(name);
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
