//! What went over the TCP connections of a program, as `strace` saw it: which version of TLS the
//! control connection has, whether data connections have it, and whether content is readable there.
//! Neither client nor server has to be believed.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Bytes that are noted of each call.
const NOTED: &str = "1400";
/// Bytes that are kept of each direction of a connection: a handshake is at its beginning.
const KEPT: usize = 16 << 10;
/// Bytes at the beginning of each call in which content is looked for.
const LOOKED_AT: usize = 256;
/// Bytes of content that are recognised.
const WORD: usize = 8;
/// The calls that move bytes. What the kernel moves by itself is in clear.
const CALLS: &str = "trace=read,write,readv,writev,recvfrom,sendto,recvmsg,sendmsg,splice,sendfile";

/// A version of TLS.
pub(super) type Version = &'static str;

/// What becomes of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// It goes in clear over connections that prove nothing.
    Bare,
    /// It goes in clear after a handshake.
    Proved,
    /// It is encrypted.
    Sealed,
}

/// The same program beneath strace, which writes to files that begin with `trace`.
pub(super) fn watched(command: &Command, trace: &Path) -> Command {
    let mut strace = Command::new("strace");
    // A file for each thread, so that no call is told in two parts; times put them in order.
    strace.args(["-ff", "-ttt", "-qqq", "-yy", "-xx"]);
    strace.args(["-s", NOTED, "-e", CALLS]);
    strace.args(["-e", "signal=none", "-o"]).arg(trace);
    strace.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        strace.current_dir(folder);
    }
    strace
}

/// One TCP connection.
#[derive(Debug, Default)]
struct Connection {
    /// Of both ends.
    ports: [u16; 2],
    /// How each direction begins.
    beginnings: [Vec<u8>; 2],
    is_readable: bool,
}

/// The connections of a program.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<String, Connection>);

/// Reads what was written to files that begin with `trace`. `content` is that of the file that was
/// moved.
///
/// # Errors
/// They can't be read.
pub(super) fn seen(trace: &Path, content: &[u8]) -> Result<Seen, String> {
    let words: HashSet<&[u8]> = content.chunks_exact(WORD).collect();
    let failed = |error: std::io::Error| format!("read what strace has seen: {error}");
    let own = trace.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{own}.");
    let mut texts = Vec::new();
    for entry in fs::read_dir(trace.parent().unwrap_or(trace)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let text = fs::read(entry.path()).map_err(failed)?;
            texts.push(String::from_utf8_lossy(&text).into_owned());
        }
    }
    let mut seen = Seen::default();
    for line in in_order(&texts) {
        seen.note(line, &words);
    }
    Ok(seen)
}

/// The calls of all threads, in the order in which they began: several threads may read from one
/// connection in turn.
fn in_order(texts: &[String]) -> Vec<&str> {
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut timed: Vec<_> = lines.filter_map(|line| line.split_once(' ')).collect();
    // Seconds and microseconds, with the same number of digits everywhere. A thread's own calls
    // stay in order.
    timed.sort_by_key(|(time, _)| *time);
    timed.into_iter().map(|(_, call)| call).collect()
}

impl Seen {
    /// Takes note of a call.
    fn note(&mut self, line: &str, words: &HashSet<&[u8]>) {
        let Some((call, rest)) = line.split_once('(') else {
            return;
        };
        let moved = rest.rsplit_once(" = ").map_or("", |(_, result)| result);
        let has_moved = moved.starts_with(|c: char| c.is_ascii_digit() && c != '0');
        let named = rest
            .split_once("<TCP")
            .and_then(|(_, at)| at.split_once('>'));
        // The arrow between both addresses has the same sign as the end.
        let ends = named.and_then(|(local, rest)| Some((local, rest.split_once('>')?.0)));
        let (Some((local, peer)), true) = (ends, has_moved) else {
            return;
        };
        let ports = [local.trim_end_matches('-'), peer].map(|end| {
            let port = end.trim_end_matches(']').rsplit(':').next();
            port.and_then(|port| port.parse().ok()).unwrap_or(0)
        });
        let connection = self.0.entry(format!("{local}>{peer}")).or_default();
        connection.ports = ports;
        let direction = match call {
            "splice" | "sendfile" => {
                connection.is_readable = true;
                return;
            }
            "read" | "readv" | "recvfrom" | "recvmsg" => 0,
            _ => 1,
        };
        for piece in pieces(rest) {
            let begin = &piece[..piece.len().min(LOOKED_AT)];
            connection.is_readable |= begin.windows(WORD).any(|word| words.contains(word));
            let kept = &mut connection.beginnings[direction];
            let room = KEPT.saturating_sub(kept.len());
            kept.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    }

    /// Fails unless the control connections, which have one of these ports, have this version of
    /// TLS, and data connections have what is said, with the same version.
    ///
    /// # Errors
    /// What is otherwise.
    pub(super) fn check(&self, ports: &[u16], version: Version, data: Data) -> Result<(), String> {
        let is_control = |seen: &Connection| seen.ports.iter().any(|port| ports.contains(port));
        let (control, other): (Vec<_>, Vec<_>) = self.0.values().partition(|seen| is_control(seen));
        if control.is_empty() || other.is_empty() {
            return Err("strace has not seen its connections".into());
        }
        let found = |seen: &Connection| match seen.version() {
            Some(found) => format!("TLS {found}"),
            None => "no TLS".to_owned(),
        };
        if let Some(seen) = control.iter().find(|seen| seen.version() != Some(version)) {
            return Err(format!("the control connection has {}", found(seen)));
        }
        let wanted = (data != Data::Bare).then_some(version);
        if let Some(seen) = other.iter().find(|seen| seen.version() != wanted) {
            return Err(format!("a data connection has {}", found(seen)));
        }
        match (other.iter().any(|seen| seen.is_readable), data) {
            (true, Data::Sealed) => Err("content can be read on the way".into()),
            (false, Data::Bare | Data::Proved) => Err("content can't be read on the way".into()),
            _ => Ok(()),
        }
    }

    /// The version of TLS of the control connection.
    pub(super) fn control(&self, port: u16) -> Option<Version> {
        let mut all = self.0.values();
        all.find(|seen| seen.ports.contains(&port))?.version()
    }
}

impl Connection {
    /// The version that its server has chosen; `None` if there is no handshake.
    fn version(&self) -> Option<Version> {
        let mut all = self.beginnings.iter();
        all.find_map(|bytes| chosen(behind_lines(bytes)).or_else(|| chosen(&token(bytes)?)))
    }
}

/// The bytes that a line of strace shows, one piece for each buffer.
fn pieces(line: &str) -> Vec<Vec<u8>> {
    // Every other part is within quotation marks, which are escaped like all other bytes there.
    let quoted = line.split('"').skip(1).step_by(2);
    let decode = |text: &str| {
        let digits = text.split("\\x").skip(1);
        digits
            .filter_map(|digits| u8::from_str_radix(digits, 16).ok())
            .collect()
    };
    quoted.map(decode).collect()
}

/// What follows the lines in clear at the beginning of a control connection.
fn behind_lines(mut bytes: &[u8]) -> &[u8] {
    while bytes.first().is_some_and(|first| *first != HANDSHAKE) {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        bytes = end.map_or(&[], |end| &bytes[end + 1..]);
    }
    bytes
}

/// The first token of the server in GSI (RFC 2228).
fn token(bytes: &[u8]) -> Option<Vec<u8>> {
    const REPLY: &[u8] = b"335 ADAT=";
    let at = bytes.windows(REPLY.len()).position(|part| part == REPLY)?;
    let digits = bytes[at + REPLY.len()..].iter().map_while(|byte| {
        Some(match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        })
    });
    let digits: Vec<u32> = digits.map(u32::from).collect();
    let whole = digits.chunks_exact(4);
    let bytes = whole.flat_map(|four| {
        let number = four.iter().fold(0, |number, digit| number << 6 | digit);
        let [_, all @ ..] = number.to_be_bytes();
        all
    });
    Some(bytes.collect())
}

/// The type of a record of a handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// The version that a ServerHello tells at the beginning of `bytes` (RFC 8446, section 4.1.3).
fn chosen(bytes: &[u8]) -> Option<Version> {
    const SERVER_HELLO: u8 = 2;
    const SUPPORTED_VERSIONS: [u8; 2] = [0, 43];
    if *bytes.first()? != HANDSHAKE || *bytes.get(5)? != SERVER_HELLO {
        return None;
    }
    let body = bytes.get(9..)?;
    let older = body.get(..2)?;
    let session = usize::from(*body.get(34)?);
    // Behind a cipher suite and the compression; extensions may be left out.
    let extensions = body.get(35 + session + 3..).unwrap_or_default();
    let mut rest = match extensions {
        [high, low, all @ ..] => all.get(..usize::from(u16::from_be_bytes([*high, *low])))?,
        _ => &[],
    };
    while let [a, b, high, low, behind @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let value = behind.get(..length)?;
        if [*a, *b] == SUPPORTED_VERSIONS {
            return (value == [3, 4]).then_some("1.3");
        }
        rest = &behind[length..];
    }
    (older == [3, 3]).then_some("1.2")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
    }

    fn line(call: &str, peer: u16, bytes: &[u8]) -> String {
        format!(
            "{call}(5<TCP:[127.0.0.1:40000->127.0.0.1:{peer}]>, \"{}\", 9, 0, NULL, NULL) = 7",
            hex(bytes)
        )
    }

    /// A ServerHello of 1.2, or of 1.3.
    fn hello(is_new: bool) -> Vec<u8> {
        let mut body = [&[3, 3][..], &[7; 32], &[1, 9], &[0x13, 1, 0]].concat();
        let extensions: &[u8] = match is_new {
            true => &[0, 51, 0, 1, 5, 0, 43, 0, 2, 3, 4],
            false => &[0, 23, 0, 0],
        };
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let length = body.len() as u8;
        [&[22, 3, 3, 0, length + 4, 2, 0, 0, length], &body[..]].concat()
    }

    /// Two threads read a control connection in turn.
    #[test]
    fn calls_of_threads_are_put_in_order() {
        let [greeting, rest] = [b"220 a\r\n".to_vec(), hello(true)].map(|b| line("read", 21, &b));
        let first = format!("1795000000.000100 {greeting}\n1795000000.000300 close(5) = 0\n");
        let second = format!("1795000000.000200 {rest}\n");
        for texts in [[first.clone(), second.clone()], [second, first]] {
            let mut seen = Seen::default();
            for call in in_order(&texts) {
                seen.note(call, &HashSet::new());
            }
            assert_eq!(seen.control(21), Some("1.3"));
        }
    }

    #[test]
    fn what_is_on_the_wire_is_told_apart() {
        let content: Vec<u8> = (0..80).collect();
        let words = content.chunks_exact(WORD).collect();
        let part = &content[16..50];
        for (is_new, version) in [(true, "1.3"), (false, "1.2")] {
            let handshake = hello(is_new);
            let control = [b"220 a\r\n234 b\r\n", &handshake[..]].concat();
            for (data, clear, wanted) in [
                (&handshake[..], &[][..], Data::Sealed),
                (&handshake, part, Data::Proved),
                (&[], part, Data::Bare),
            ] {
                let mut seen = Seen::default();
                // A record may be read in parts.
                for piece in control.chunks(14) {
                    seen.note(&line("recvfrom", 21, piece), &words);
                }
                let failed = line("sendto", 5000, part).replace("= 7", "= -1 EAGAIN (no)");
                seen.note(&failed, &words);
                seen.note(&line("write", 5000, b"x"), &words);
                seen.note(&line("readv", 5000, data), &words);
                seen.note(&line("read", 5000, clear), &words);
                for (other, of) in [("1.2", Data::Sealed), ("1.3", Data::Sealed)]
                    .into_iter()
                    .chain([(version, Data::Proved), (version, Data::Bare)])
                {
                    let is_so = other == version && of == wanted;
                    let checked = seen.check(&[21], other, of);
                    assert_eq!(checked.is_ok(), is_so, "{wanted:?} {other} {of:?}");
                }
                assert!(seen.check(&[22], version, wanted).is_err());
            }
        }
        let token = "335 ADAT=FgMDADMCAAAvAwMHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwEJ\
                     EwEAAAYAKwACAwQU\r\n";
        let mut seen = Seen::default();
        seen.note(&line("read", 21, token.as_bytes()), &words);
        assert_eq!(seen.control(21), Some("1.3"));
    }
}
