//! Replies of the control channel: written, and read from any pieces.

use std::fmt;

use xdfs_proto::{Code, Fault, Retry};

use crate::line::{Line, LineReader};

/// Most lines of a reply that is read.
pub const REPLY_LINES_MAX: usize = 64 << 10;
/// Bytes of a line that are shown at most.
const SHOWN_BYTES_MAX: usize = 100;

/// A reply: a number of three digits and one or more lines of text (RFC 959, section 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number: 100 to 699.
    pub code: u16,
    /// The lines, without the number and without ends.
    pub lines: Vec<Vec<u8>>,
}

impl Reply {
    /// A reply of one line.
    #[must_use]
    pub fn new(code: u16, text: impl AsRef<[u8]>) -> Self {
        let lines = vec![text.as_ref().to_vec()];
        Self { code, lines }
    }

    /// A reply of a first line, lines between, which get a space in front, and a last line.
    #[must_use]
    pub fn of_lines(
        code: u16,
        first: &str,
        between: impl IntoIterator<Item = Vec<u8>>,
        last: &str,
    ) -> Self {
        let mut lines = vec![first.as_bytes().to_vec()];
        lines.extend(between);
        lines.push(last.as_bytes().to_vec());
        Self { code, lines }
    }

    /// The reply about a fault.
    #[must_use]
    pub fn of_fault(fault: &Fault) -> Self {
        let mut text = match fault.operation.as_str() {
            "" => Vec::new(),
            operation => format!("cannot {operation}").into_bytes(),
        };
        if !fault.path.is_empty() {
            text.extend_from_slice(b" '");
            text.extend_from_slice(&fault.path);
            text.push(b'\'');
        }
        if !text.is_empty() {
            text.extend_from_slice(b": ");
        }
        match fault.code {
            // Clients look for these words.
            Code::NotFound => text.extend_from_slice(b"No such file or directory"),
            _ => text.extend_from_slice(fault.cause.as_bytes()),
        }
        // The time follows.
        if !fault.hint.is_empty() && !fault.hint.starts_with("try again in ") {
            text.extend_from_slice(format!(" ({})", fault.hint).as_bytes());
        }
        if let Retry::AfterMs(ms) = fault.retry {
            let seconds = ms.div_ceil(1000);
            text.extend_from_slice(format!(" (try again in {seconds} s)").as_bytes());
        }
        Self::new(code_of(fault), text)
    }

    /// Appends the bytes of the reply. Control characters within a line become `?`, so that no text
    /// can end a line.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let last = self.lines.len().saturating_sub(1);
        for (number, line) in self.lines.iter().enumerate() {
            match number {
                _ if number == last => out.extend_from_slice(format!("{} ", self.code).as_bytes()),
                0 => out.extend_from_slice(format!("{}-", self.code).as_bytes()),
                _ => out.push(b' '),
            }
            let clean = |byte: &u8| if byte.is_ascii_control() { b'?' } else { *byte };
            out.extend(line.iter().map(clean));
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// The number for a fault: what the client did, a lack of room, or a failure that may pass.
fn code_of(fault: &Fault) -> u16 {
    match fault.code {
        Code::ConnectionLost | Code::DeadlineExceeded | Code::Cancelled => 426,
        Code::ConnectionRefused => 425,
        Code::Busy | Code::LimitExceeded => 450,
        Code::Io | Code::Internal | Code::SourceChanged => 451,
        Code::NoSpace | Code::QuotaExceeded => 552,
        Code::AlreadyExists | Code::NameTooLong => 553,
        // Clients such as lftp and curl begin anew after it.
        Code::OffsetPastEnd => 554,
        Code::ProtocolViolation => 500,
        Code::ShuttingDown => 421,
        _ => 550,
    }
}

/// What is wrong with the bytes of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// The reply doesn't begin with a number and a space or a hyphen, but with this, fit for a
    /// message.
    NoCode(String),
    /// A line or the reply is too long.
    TooLong,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCode(line) => write!(f, "a reply doesn't begin with its number: '{line}'"),
            Self::TooLong => f.write_str("a reply is too long"),
        }
    }
}

impl std::error::Error for ReplyError {}

/// Reads replies from a stream of bytes.
#[derive(Debug)]
pub struct ReplyReader {
    lines: LineReader,
    partial: Option<Reply>,
    /// Bytes of the lines of it.
    partial_bytes: usize,
}

impl Default for ReplyReader {
    fn default() -> Self {
        Self::new()
    }
}

impl ReplyReader {
    /// A reader without bytes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            lines: LineReader::of_replies(),
            partial: None,
            partial_bytes: 0,
        }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// Sets the bytes of the longest line.
    pub fn set_line_bytes_max(&mut self, bytes: usize) {
        self.lines.set_line_bytes_max(bytes);
    }

    /// Whether bytes have come behind the last reply.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.lines.held() > 0 || self.partial.is_some()
    }

    /// Bytes that are held of what is no whole reply yet.
    #[must_use]
    pub fn held(&self) -> usize {
        self.lines.held() + self.partial_bytes
    }

    /// Whether the rest of a marker that was too long is still to come, and to be dropped.
    #[must_use]
    pub fn skips(&self) -> bool {
        self.lines.skips()
    }

    /// The next reply; `None` if more bytes are needed. A marker of progress (111, 112) with a line
    /// that is too long has no text: the ranges of a file on several data nodes don't join, and it
    /// is of use only.
    ///
    /// # Errors
    /// What came is no reply; nothing after it can be understood.
    pub fn next_reply(&mut self) -> Result<Option<Reply>, ReplyError> {
        while let Some(line) = self.lines.next_line() {
            let line = match line {
                Line::Text(line) => line,
                Line::TooLong(start) if self.partial.is_none() => match &start {
                    b"111 " => return Ok(Some(Reply::new(111, ""))),
                    b"112 " => return Ok(Some(Reply::new(112, ""))),
                    _ => return Err(ReplyError::TooLong),
                },
                Line::TooLong(_) => return Err(ReplyError::TooLong),
            };
            // Some servers write empty lines between replies.
            if line.is_empty() && self.partial.is_none() {
                continue;
            }
            if let Some(reply) = self.line(line)? {
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    fn line(&mut self, line: Vec<u8>) -> Result<Option<Reply>, ReplyError> {
        let start = start_of(&line);
        let bytes = std::mem::take(&mut self.partial_bytes) + line.len();
        let Some(mut reply) = self.partial.take() else {
            let (code, is_last) = start.ok_or_else(|| no_code(&line))?;
            let reply = Reply::new(code, line.get(4..).unwrap_or_default());
            if is_last {
                return Ok(Some(reply));
            }
            self.partial = Some(reply);
            self.partial_bytes = bytes;
            return Ok(None);
        };
        let is_last = start == Some((reply.code, true));
        let text = match (start, line.as_slice()) {
            (Some((code, _)), _) if code == reply.code => line.get(4..).unwrap_or_default(),
            (_, [b' ', rest @ ..]) => rest,
            (_, text) => text,
        };
        reply.lines.push(text.to_vec());
        if is_last {
            return Ok(Some(reply));
        }
        if reply.lines.len() >= REPLY_LINES_MAX {
            return Err(ReplyError::TooLong);
        }
        self.partial = Some(reply);
        self.partial_bytes = bytes;
        Ok(None)
    }
}

/// The beginning of a line that is no reply's.
fn no_code(line: &[u8]) -> ReplyError {
    let shown = line.get(..SHOWN_BYTES_MAX).unwrap_or(line);
    ReplyError::NoCode(shown.escape_ascii().to_string())
}

/// The number at the start of a line, and whether it is the last one of its reply: a space follows,
/// or nothing.
fn start_of(line: &[u8]) -> Option<(u16, bool)> {
    let (digits, rest) = line.split_at_checked(3)?;
    let is_last = match rest.first() {
        Some(b' ') | None => true,
        Some(b'-') => false,
        Some(_) => return None,
    };
    let text = std::str::from_utf8(digits).ok()?;
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let code = is_number.then(|| text.parse().ok()).flatten()?;
    (100..700).contains(&code).then_some((code, is_last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(reply: &Reply) -> Vec<u8> {
        let mut out = Vec::new();
        reply.encode(&mut out);
        out
    }

    #[test]
    fn replies_read_back_in_any_pieces() {
        let features = [b"MLST Type*;".to_vec(), b"211 SIZE".to_vec()];
        let replies = [
            Reply::new(220, "ready"),
            Reply::of_lines(211, "Extensions", features, "End."),
            Reply::new(226, ""),
        ];
        let all: Vec<u8> = replies.iter().flat_map(bytes).collect();
        let text =
            "220 ready\r\n211-Extensions\r\n MLST Type*;\r\n 211 SIZE\r\n211 End.\r\n226 \r\n";
        assert_eq!(String::from_utf8_lossy(&all), text);
        for piece in 1..all.len() {
            let mut reader = ReplyReader::new();
            let mut seen = Vec::new();
            for part in all.chunks(piece) {
                reader.push(part);
                while let Some(reply) = reader.next_reply().unwrap() {
                    seen.push(reply);
                }
            }
            assert_eq!(seen, replies);
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for text in [
            "22\r\n",
            "hello\r\n",
            "22x ready\r\n",
            "099 x\r\n",
            "2200\r\n",
        ] {
            let mut reader = ReplyReader::new();
            reader.push(text.as_bytes());
            let shown = text.trim_end().to_owned();
            assert_eq!(reader.next_reply(), Err(ReplyError::NoCode(shown)));
        }
        let mut reader = ReplyReader::new();
        reader.push(&[&b"\x1b]0;"[..], &[b'x'; 1000], b"\r\n"].concat());
        let shown = format!("\\x1b]0;{}", "x".repeat(SHOWN_BYTES_MAX - 4));
        assert_eq!(reader.next_reply(), Err(ReplyError::NoCode(shown)));
    }

    #[test]
    fn replies_of_careless_servers_are_read() {
        let mut reader = ReplyReader::new();
        reader.push(b"220 ready\n\n\r\n226\r\n211-a\n MLST\n211-\n211\n200 b\r\n");
        for wanted in [
            Reply::new(220, "ready"),
            Reply::new(226, ""),
            Reply::of_lines(211, "a", [b"MLST".to_vec(), Vec::new()], ""),
            Reply::new(200, "b"),
        ] {
            assert_eq!(reader.next_reply(), Ok(Some(wanted)));
        }
        assert_eq!(reader.next_reply(), Ok(None));
        assert!(!reader.has_more());
    }

    #[test]
    fn no_text_ends_a_line() {
        let fault = Fault::new(Code::NotFound, "open", "").path(b"a\r\n226 ok\r\n\0b");
        let text = bytes(&Reply::of_fault(&fault));
        let shown = "550 cannot open 'a??226 ok???b': No such file or directory\r\n";
        assert_eq!(String::from_utf8_lossy(&text), shown);
    }
}
