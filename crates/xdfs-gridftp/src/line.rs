//! Lines of the control channel, split off a stream of bytes.
//!
//! A line ends with CRLF (RFC 959, section 3.1.1). In a command, a bare CR or LF belongs to the
//! line, and the [command parser](crate::command) refuses it there: a name that somebody else chose
//! must not end a command. Replies of some servers end with LF alone, which ends their lines too.
//! Interrupts of Telnet at the start of a line, which clients send before ABOR, are dropped.

/// Bytes of the longest line, without its end: a path of the longest kind and a long command.
pub const LINE_BYTES_MAX: usize = 8 << 10;

/// Telnet's "interpret as command", "data mark" and "interrupt process" (RFC 854).
const IAC: u8 = 255;
const DATA_MARK: u8 = 242;
const INTERRUPT: u8 = 244;

/// Splits bytes into lines, and holds at most the bytes that it was given room for.
#[derive(Debug)]
pub struct LineReader {
    bytes: Vec<u8>,
    /// Bytes of the longest line, without its end.
    line_bytes_max: usize,
    /// Bytes at the start that are known to hold no end of a line.
    searched: usize,
    /// The rest of a line that was too long is being dropped.
    skips: bool,
    end: LineEnd,
}

/// The end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    /// CRLF.
    CrLf,
    /// LF, with or without a CR before it.
    Lf,
}

impl LineEnd {
    /// Where the first end of a line at or behind `from` begins, and where it ends.
    fn find(self, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        match self {
            Self::CrLf => {
                let mut pairs = bytes[from..].windows(2);
                let at = from + pairs.position(|two| two == b"\r\n")?;
                Some((at, at + 2))
            }
            Self::Lf => {
                let at = from + bytes[from..].iter().position(|byte| *byte == b'\n')?;
                let is_after_cr = bytes[..at].ends_with(b"\r");
                Some((at - usize::from(is_after_cr), at + 1))
            }
        }
    }
}

/// A line, or what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its end.
    Text(Vec<u8>),
    /// A line was longer than it may be, and is dropped, but for these first bytes of it.
    TooLong([u8; 4]),
}

impl LineReader {
    /// A reader of commands without bytes, of lines with at most [`LINE_BYTES_MAX`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_end(LineEnd::CrLf)
    }

    /// The same for replies.
    #[must_use]
    pub fn of_replies() -> Self {
        Self::with_end(LineEnd::Lf)
    }

    fn with_end(end: LineEnd) -> Self {
        Self {
            bytes: Vec::new(),
            line_bytes_max: LINE_BYTES_MAX,
            searched: 0,
            skips: false,
            end,
        }
    }

    /// Bytes of the longest line.
    #[must_use]
    pub fn line_bytes_max(&self) -> usize {
        self.line_bytes_max
    }

    /// From now on lines have at most so many bytes.
    pub fn set_line_bytes_max(&mut self, bytes: usize) {
        self.line_bytes_max = bytes;
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the rest of a line that was too long is still to come, and to be dropped.
    #[must_use]
    pub fn skips(&self) -> bool {
        self.skips
    }

    /// The next line; `None` if more bytes are needed.
    pub fn next_line(&mut self) -> Option<Line> {
        loop {
            let from = self.searched.saturating_sub(1);
            let Some((end, next)) = self.end.find(&self.bytes, from) else {
                self.searched = self.bytes.len();
                return self.without_end();
            };
            let line: Vec<u8> = self.bytes.drain(..next).take(end).collect();
            self.searched = 0;
            if std::mem::take(&mut self.skips) {
                continue;
            }
            if line.len() > self.line_bytes_max {
                return Some(Line::TooLong(start_of(&line)));
            }
            return Some(Line::Text(without_interrupts(line)));
        }
    }

    /// Drops what is too long already.
    fn without_end(&mut self) -> Option<Line> {
        if self.bytes.len() <= self.line_bytes_max {
            return None;
        }
        let start = start_of(&self.bytes);
        // The last byte may be the CR of the end.
        self.bytes.drain(..self.bytes.len() - 1);
        self.searched = 0;
        let is_new = !std::mem::replace(&mut self.skips, true);
        is_new.then_some(Line::TooLong(start))
    }

    /// Drops the next line if it is this command without an argument, in either case. Returns
    /// whether it was.
    pub fn take_command(&mut self, verb: &[u8]) -> bool {
        let end = self.end.find(&self.bytes, 0);
        let Some((end, next)) = end.filter(|_| !self.skips) else {
            return false;
        };
        let is_it = interrupts_cut(&self.bytes[..end]).eq_ignore_ascii_case(verb);
        if is_it {
            self.bytes.drain(..next);
            self.searched = 0;
        }
        is_it
    }

    /// Whether a whole line with this command, in either case, is held.
    #[must_use]
    pub fn holds_command(&self, verb: &[u8]) -> bool {
        let lines = self.bytes.split_inclusive(|byte| *byte == b'\n');
        let whole = lines.filter_map(|line| line.strip_suffix(b"\r\n"));
        let starts = |line: &[u8]| {
            let (head, rest) = line.split_at(verb.len().min(line.len()));
            head.eq_ignore_ascii_case(verb) && rest.first().is_none_or(|byte| *byte == b' ')
        };
        whole.into_iter().any(|line| starts(interrupts_cut(line)))
    }
}

impl Default for LineReader {
    fn default() -> Self {
        Self::new()
    }
}

/// The first bytes of a line that has more.
fn start_of(line: &[u8]) -> [u8; 4] {
    line.first_chunk().copied().unwrap_or_default()
}

fn interrupts_cut(mut line: &[u8]) -> &[u8] {
    loop {
        line = match line {
            [IAC, INTERRUPT | DATA_MARK, rest @ ..] | [DATA_MARK, rest @ ..] => rest,
            _ => return line,
        };
    }
}

fn without_interrupts(line: Vec<u8>) -> Vec<u8> {
    match interrupts_cut(&line) {
        rest if rest.len() == line.len() => line,
        rest => rest.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(reader: &mut LineReader) -> Vec<Line> {
        std::iter::from_fn(|| reader.next_line()).collect()
    }

    fn text(bytes: &[u8]) -> Line {
        Line::Text(bytes.to_vec())
    }

    #[test]
    fn pieces_do_not_matter() {
        let input = b"USER a\r\nbare\nfeed\r\rx\r\n\r\nrest\r";
        let wanted = [text(b"USER a"), text(b"bare\nfeed\r\rx"), text(b"")];
        for piece in 1..input.len() {
            let mut reader = LineReader::new();
            let mut seen = Vec::new();
            for part in input.chunks(piece) {
                reader.push(part);
                seen.extend(lines(&mut reader));
            }
            assert_eq!(seen, wanted, "in pieces of {piece}");
            assert_eq!(reader.held(), 5);
        }
    }

    #[test]
    fn replies_may_end_with_lf_alone() {
        let input = b"220 a\n\n221 b\r\n\r222 \rc\r\r\nrest\r";
        let wanted = [&b"220 a"[..], b"", b"221 b", b"\r222 \rc\r"].map(text);
        for piece in 1..input.len() {
            let mut reader = LineReader::of_replies();
            let mut seen = Vec::new();
            for part in input.chunks(piece) {
                reader.push(part);
                seen.extend(lines(&mut reader));
            }
            assert_eq!(seen, wanted, "in pieces of {piece}");
            assert_eq!(reader.held(), 5);
        }
        let mut reader = LineReader::of_replies();
        reader.push(&[b'x'; LINE_BYTES_MAX + 1]);
        assert_eq!(lines(&mut reader), [Line::TooLong(*b"xxxx")]);
        reader.push(b"\n220 a\n");
        assert_eq!(lines(&mut reader), [text(b"220 a")]);
    }

    #[test]
    fn a_line_without_end_takes_bounded_memory_and_is_told_once() {
        let mut reader = LineReader::new();
        let mut seen = Vec::new();
        for _ in 0..100 {
            reader.push(&[b'x'; 1000]);
            seen.extend(lines(&mut reader));
            assert!(reader.held() <= LINE_BYTES_MAX + 1000);
        }
        reader.push(b"\r\nNOOP\r\n");
        seen.extend(lines(&mut reader));
        assert_eq!(seen, [Line::TooLong(*b"xxxx"), text(b"NOOP")]);
    }

    #[test]
    fn interrupts_before_a_command_are_dropped() {
        let mut reader = LineReader::new();
        reader.push(b"\xff\xf4\xff\xf2ABOR\r\n\xf2abor\r\nNOOP \xff\xf4\r\n");
        assert!(reader.holds_command(b"ABOR"));
        assert!(!reader.holds_command(b"NOO"));
        let wanted = [text(b"ABOR"), text(b"abor"), text(b"NOOP \xff\xf4")];
        assert_eq!(lines(&mut reader), wanted);
        assert!(!reader.holds_command(b"ABOR"));
    }

    #[test]
    fn only_the_next_line_is_taken() {
        let mut reader = LineReader::new();
        reader.push(b"\xff\xf4\xff\xf2stat\r\nSTAT a\r\nSTAT\r\n");
        assert!(reader.take_command(b"STAT"));
        assert!(!reader.take_command(b"STAT"));
        assert_eq!(lines(&mut reader), [text(b"STAT a"), text(b"STAT")]);
        // The end of a line that is too long is none of its own.
        reader.push(&[b'x'; LINE_BYTES_MAX + 1]);
        assert_eq!(lines(&mut reader), [Line::TooLong(*b"xxxx")]);
        reader.bytes.clear();
        reader.push(b"STAT\r\n");
        assert!(!reader.take_command(b"STAT"));
    }
}
