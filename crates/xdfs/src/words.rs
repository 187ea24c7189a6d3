//! Splits a line into words, with the quoting of a POSIX shell and `$'...'`.
//!
//! Other syntax of a shell (variables, substitutions, pipelines, redirections) is refused rather
//! than taken literally, since the user means something else. Only lines typed in another shell
//! ([`split_foreign`]) may have it.

use xdfs_proto::{Code, Fault};

/// Characters with a meaning in patterns.
const PATTERN: &[u8] = b"*?[]\\!^-";
/// Unquoted characters with an unsupported meaning in a shell.
const REFUSED: &[u8] = b"|&;<>()`$";

/// A word of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Its text, without quotes.
    pub bytes: Vec<u8>,
    /// The word as a pattern, with quoted characters escaped; `None` without unquoted pattern
    /// characters.
    pub pattern: Option<Vec<u8>>,
    /// Its offset in the line.
    pub start: usize,
}

impl Word {
    /// A word without quotes or patterns.
    #[must_use]
    pub fn plain(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            bytes: bytes.into(),
            pattern: None,
            start: 0,
        }
    }
}

/// The words of a line.
///
/// # Errors
/// A quote isn't closed, or a refused character isn't quoted.
pub fn split(line: &[u8]) -> Result<Vec<Word>, Fault> {
    let mut splitter = Splitter::new(line);
    splitter.run().map_err(|cause| {
        Fault::new(Code::InvalidArgument, "read the line", cause)
            .hint("quote it: 'like this', or with a backslash before it")
    })?;
    match splitter.open {
        None => Ok(splitter.words),
        Some(open) => {
            let cause = format!("{} is not closed", open.text());
            Err(Fault::new(Code::InvalidArgument, "read the line", cause))
        }
    }
}

/// Splits typed text into lines at unquoted newlines. A backslash before a newline continues the
/// line.
#[must_use]
pub fn lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut start = 0;
    // The open quote, and whether a backslash escapes within it.
    let mut open: Option<(u8, bool)> = None;
    let (mut in_word, mut in_comment, mut is_dollar) = (false, false, false);
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        if in_comment && byte != b'\n' {
            continue;
        }
        let follows_dollar = std::mem::replace(&mut is_dollar, open.is_none() && byte == b'$');
        match (open, byte) {
            (None | Some((_, true)), b'\\') => {
                in_word |= bytes.get(at) != Some(&b'\n');
                at += 1;
            }
            (Some((quote, _)), byte) if byte == quote => open = None,
            (Some(_), _) => {}
            (None, b'\n') => {
                lines.push(&text[start..at - 1]);
                start = at;
                (in_word, in_comment) = (false, false);
            }
            (None, b' ' | b'\t' | b'\r') => in_word = false,
            (None, b'#') if !in_word => in_comment = true,
            (None, byte) => {
                in_word = true;
                open = match byte {
                    b'"' => Some((byte, true)),
                    b'\'' => Some((byte, follows_dollar)),
                    _ => None,
                };
            }
        }
    }
    lines.push(&text[start..]);
    lines
}

/// The words of an unfinished line. The last one is to be completed; after a blank it is empty.
/// `None` if nothing can be completed.
#[must_use]
pub fn split_unfinished(line: &[u8]) -> Option<Vec<Word>> {
    unfinished(Splitter::new(line))
}

/// Like [`split_unfinished`], for a line typed in a shell of the system. What that shell expands is
/// taken literally.
#[must_use]
pub fn split_foreign(line: &[u8]) -> Option<Vec<Word>> {
    unfinished(Splitter {
        is_foreign: true,
        ..Splitter::new(line)
    })
}

fn unfinished(mut splitter: Splitter<'_>) -> Option<Vec<Word>> {
    splitter.run().ok()?;
    if splitter.in_comment || splitter.open == Some(Open::Escape) {
        return None;
    }
    if !splitter.in_word {
        splitter.words.push(Word {
            start: splitter.length,
            ..Word::default()
        });
    }
    Some(splitter.words)
}

/// A name escaped so that [`split`] reads it as one word. No quote stays open, so the user can
/// continue typing.
#[must_use]
pub fn escaped(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for (at, c) in chunk.valid().char_indices() {
            let first = out.is_empty() && at == 0;
            if c.is_control() || is_turning(c) {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    out.push_str(&format!("$'\\{byte:03o}'"));
                }
                continue;
            }
            let odd = c == ' ' || "'\"*?[\\".contains(c);
            let refused = u8::try_from(c).is_ok_and(|byte| REFUSED.contains(&byte));
            if odd || refused || (first && c == '#') || c.is_whitespace() {
                out.push('\\');
            }
            out.push(c);
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("$'\\{byte:03o}'"));
        }
    }
    out
}

/// Whether the character changes the direction or lines of text.
fn is_turning(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// An unclosed construct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Double,
    Escape,
    Ansi,
    Single,
}

impl Open {
    fn text(self) -> &'static str {
        match self {
            Self::Double => "a double quote",
            Self::Escape => "an escape",
            Self::Ansi => "a quote $'",
            Self::Single => "a single quote",
        }
    }
}

struct Splitter<'a> {
    rest: &'a [u8],
    length: usize,
    words: Vec<Word>,
    /// The current word, also as a pattern.
    word: Word,
    pattern: Vec<u8>,
    is_pattern: bool,
    in_word: bool,
    in_comment: bool,
    open: Option<Open>,
    /// Whether unsupported characters are literal.
    is_foreign: bool,
}

impl<'a> Splitter<'a> {
    fn new(line: &'a [u8]) -> Self {
        Self {
            rest: line,
            length: line.len(),
            words: Vec::new(),
            word: Word::default(),
            pattern: Vec::new(),
            is_pattern: false,
            in_word: false,
            in_comment: false,
            open: None,
            is_foreign: false,
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn quoted(&mut self, byte: u8) -> Result<(), String> {
        if byte == 0 {
            return Err("it contains a NUL byte".into());
        }
        self.word.bytes.push(byte);
        if PATTERN.contains(&byte) {
            self.pattern.push(b'\\');
        }
        self.pattern.push(byte);
        Ok(())
    }

    fn end_word(&mut self) {
        if std::mem::take(&mut self.in_word) {
            let mut word = std::mem::take(&mut self.word);
            let pattern = std::mem::take(&mut self.pattern);
            word.pattern = std::mem::take(&mut self.is_pattern).then_some(pattern);
            self.words.push(word);
        }
    }

    /// Reads to the end of the line, and leaves an unclosed construct in `open`.
    fn run(&mut self) -> Result<(), String> {
        while let Some(byte) = self.next() {
            if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                self.end_word();
                continue;
            }
            if byte == b'#' && !self.in_word {
                self.in_comment = true;
                return Ok(());
            }
            if byte == b'\\' && self.rest.first() == Some(&b'\n') {
                self.rest = &self.rest[1..];
                continue;
            }
            if !self.in_word {
                self.in_word = true;
                self.word.start = self.length - self.rest.len() - 1;
            }
            match byte {
                b'\'' => self.single()?,
                b'"' => self.double()?,
                b'\\' => match self.next() {
                    Some(byte) => self.quoted(byte)?,
                    None => self.open = Some(Open::Escape),
                },
                b'$' if self.rest.first() == Some(&b'\'') => {
                    self.rest = &self.rest[1..];
                    self.ansi()?;
                }
                0 => return Err("it contains a NUL byte".into()),
                byte if REFUSED.contains(&byte) && !self.is_foreign => {
                    return Err(format!("'{}' has no meaning here", char::from(byte)));
                }
                byte => {
                    self.is_pattern |= matches!(byte, b'*' | b'?' | b'[');
                    self.word.bytes.push(byte);
                    self.pattern.push(byte);
                }
            }
        }
        self.end_last();
        Ok(())
    }

    /// Ends the last word, which only the end of the line ends.
    fn end_last(&mut self) {
        let in_word = self.in_word;
        self.end_word();
        self.in_word = in_word;
    }

    fn single(&mut self) -> Result<(), String> {
        loop {
            match self.next() {
                Some(b'\'') => return Ok(()),
                Some(byte) => self.quoted(byte)?,
                None => {
                    self.open = Some(Open::Single);
                    return Ok(());
                }
            }
        }
    }

    fn double(&mut self) -> Result<(), String> {
        loop {
            match self.next() {
                Some(b'"') => return Ok(()),
                Some(b'\\') => match self.next() {
                    Some(byte @ (b'"' | b'\\' | b'$' | b'`')) => self.quoted(byte)?,
                    Some(b'\n') => {}
                    Some(byte) => {
                        self.quoted(b'\\')?;
                        self.quoted(byte)?;
                    }
                    None => {
                        self.open = Some(Open::Escape);
                        return Ok(());
                    }
                },
                Some(byte @ (b'$' | b'`')) if !self.is_foreign => {
                    return Err(format!("'{}' has no meaning here", char::from(byte)));
                }
                Some(byte) => self.quoted(byte)?,
                None => {
                    self.open = Some(Open::Double);
                    return Ok(());
                }
            }
        }
    }

    /// Reads text after `$'`, with escapes as in C.
    fn ansi(&mut self) -> Result<(), String> {
        loop {
            let byte = match self.next() {
                Some(b'\'') => return Ok(()),
                Some(b'\\') => match self.next() {
                    Some(byte) => byte,
                    None => {
                        self.open = Some(Open::Ansi);
                        return Ok(());
                    }
                },
                Some(byte) => {
                    self.quoted(byte)?;
                    continue;
                }
                None => {
                    self.open = Some(Open::Ansi);
                    return Ok(());
                }
            };
            match byte {
                b'n' => self.quoted(b'\n')?,
                b'r' => self.quoted(b'\r')?,
                b't' => self.quoted(b'\t')?,
                b'a' => self.quoted(7)?,
                b'b' => self.quoted(8)?,
                b'v' => self.quoted(11)?,
                b'f' => self.quoted(12)?,
                b'e' => self.quoted(27)?,
                b'\\' | b'\'' | b'"' | b'?' => self.quoted(byte)?,
                b'0'..=b'7' => {
                    let value = self.digits(u32::from(byte - b'0'), 8, 2);
                    let byte = u8::try_from(value);
                    self.quoted(byte.map_err(|_| "an octal number is not a byte".to_owned())?)?;
                }
                b'x' => {
                    let value = self.digits(0, 16, 2);
                    // Two digits fit a byte. Without digits the value is zero, which is refused.
                    self.quoted(u8::try_from(value).unwrap_or(0))?;
                }
                b'u' | b'U' => {
                    let value = self.digits(0, 16, if byte == b'u' { 4 } else { 8 });
                    let c = char::from_u32(value).ok_or("no such character")?;
                    for &byte in c.encode_utf8(&mut [0; 4]).as_bytes() {
                        self.quoted(byte)?;
                    }
                }
                _ => return Err(format!("\\{} has no meaning in $''", byte.escape_ascii())),
            }
        }
    }

    /// Reads up to `most` digits, which continue the value `begin`.
    fn digits(&mut self, begin: u32, radix: u32, most: usize) -> u32 {
        let mut value = begin;
        for _ in 0..most {
            let digit = self
                .rest
                .first()
                .and_then(|&b| char::from(b).to_digit(radix));
            let Some(digit) = digit else { break };
            value = value.wrapping_mul(radix).wrapping_add(digit);
            self.rest = &self.rest[1..];
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let words = split(line.as_bytes()).unwrap();
        let text = words.into_iter().map(|word| String::from_utf8(word.bytes));
        text.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn lines_are_taken_apart_as_in_a_shell() {
        for (line, expected) in [
            ("", &[][..]),
            ("  \t ", &[]),
            ("# ls", &[]),
            ("ls # all", &["ls"]),
            ("ls a#b", &["ls", "a#b"]),
            (" ls  -l\ta ", &["ls", "-l", "a"]),
            ("a\\ b 'c d' \"e f\"", &["a b", "c d", "e f"]),
            ("'it'\\''s' \"it's\"", &["it's", "it's"]),
            ("'' \"\"", &["", ""]),
            ("a''b", &["ab"]),
            ("\"a\\\"b\\\\c\\$d\\e\"", &["a\"b\\c$d\\e"]),
            ("$'a\\tb\\x41\\101\\u00fc'x", &["a\tbAA\u{fc}x"]),
            ("'a$b|c;d'", &["a$b|c;d"]),
            ("gr\u{fc}n", &["gr\u{fc}n"]),
        ] {
            assert_eq!(words(line), expected, "{line}");
        }
        assert_eq!(split(b"$'\\377' \xfe").unwrap()[0].bytes, b"\xff");
        assert_eq!(split(b"$'\\377' \xfe").unwrap()[1].bytes, b"\xfe");
    }

    #[test]
    fn newlines_end_lines_unless_they_are_quoted() {
        for (text, expected) in [
            ("", &[""][..]),
            ("a", &["a"]),
            ("rm old\nget new", &["rm old", "get new"]),
            ("a\n", &["a", ""]),
            ("a 'b\nc'\nd", &["a 'b\nc'", "d"]),
            ("a \"b\\\"\nc\"\nd", &["a \"b\\\"\nc\"", "d"]),
            ("a 'b\\'\nc", &["a 'b\\'", "c"]),
            ("a $'b\\'\nc'\nd", &["a $'b\\'\nc'", "d"]),
            ("a \\$'b\\'\nc", &["a \\$'b\\'", "c"]),
            ("# it's\na", &["# it's", "a"]),
            ("a#'b\nc'\nd", &["a#'b\nc'", "d"]),
            ("a \\\n b\nc", &["a \\\n b", "c"]),
            ("a \\\n# b's\nc", &["a \\\n# b's", "c"]),
            ("a $x \"b\nc\"\nd", &["a $x \"b\nc\"", "d"]),
            ("a\\", &["a\\"]),
            ("\u{fc}\n\u{fc}", &["\u{fc}", "\u{fc}"]),
            ("\\\u{fc}\n\u{fc}", &["\\\u{fc}", "\u{fc}"]),
        ] {
            assert_eq!(lines(text), expected, "{text}");
        }
        assert_eq!(words("a \\\n b\\\nc \"d\\\ne\""), ["a", "bc", "de"]);
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        for line in [
            "ls > x",
            "a | b",
            "a; b",
            "a &",
            "$HOME",
            "\"$HOME\"",
            "`x`",
            "(a)",
            "'a",
            "\"a",
            "a\\",
            "$'a",
            "$'\\",
            "$'\\0'",
            "$'\\x'",
            "$'\\777'",
            "$'\\ud800'",
            "$'\\q'",
            "a\0b",
            "'\0'",
        ] {
            let fault = split(line.as_bytes()).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument, "{line}");
        }
    }

    #[test]
    fn patterns_are_what_is_not_quoted() {
        let pattern = |line: &str| split(line.as_bytes()).unwrap()[0].pattern.clone();
        assert_eq!(pattern("a.x"), None);
        assert_eq!(pattern("'*'"), None);
        assert_eq!(pattern("\\*"), None);
        assert_eq!(pattern("*.x").unwrap(), b"*.x");
        assert_eq!(pattern("'[a]'*").unwrap(), b"\\[a\\]*");
        assert_eq!(pattern("[a-b]'-'").unwrap(), b"[a-b]\\-");
    }

    #[test]
    fn any_name_survives_a_round_trip() {
        for name in [
            &b"a"[..],
            b"a b",
            b"#a",
            b"a#",
            b"it's",
            b"*?[",
            b"\xff\xfe",
            b"a\nb",
            b"-x",
            b"$x",
            b"\\",
            "\u{202e}\u{e9}".as_bytes(),
            b"a&b;c",
            b"\"",
            "\u{a0}".as_bytes(),
        ] {
            let line = escaped(name);
            assert!(!line.contains(char::is_control), "{line}");
            let words = split(line.as_bytes()).unwrap();
            assert_eq!(words.len(), 1, "{line}");
            assert_eq!(words[0].bytes, name, "{line}");
            assert_eq!(words[0].pattern, None, "{line}");
        }
    }

    #[test]
    fn an_unfinished_line_has_a_word_to_complete() {
        let last = |line: &str| {
            let word = split_unfinished(line.as_bytes())?.pop()?;
            Some((word.start, String::from_utf8(word.bytes).unwrap()))
        };
        for (line, start, text) in [
            ("", 0, ""),
            ("ls", 0, "ls"),
            ("ls ", 3, ""),
            ("ls a", 3, "a"),
            ("ls 'a b", 3, "a b"),
            ("ls \"a b", 3, "a b"),
            ("ls a\\ b", 3, "a b"),
            ("ls x 'a'", 5, "a"),
        ] {
            assert_eq!(last(line), Some((start, text.into())), "{line}");
        }
        for line in ["ls # a", "ls \\", "ls | a"] {
            assert_eq!(last(line), None, "{line}");
        }
    }

    #[test]
    fn a_line_of_another_shell_may_have_what_has_no_meaning_here() {
        let texts = |line: &str| -> Option<Vec<String>> {
            let words = split_foreign(line.as_bytes())?;
            let text = words.into_iter().map(|word| String::from_utf8(word.bytes));
            Some(text.collect::<Result<_, _>>().unwrap())
        };
        for (line, expected) in [
            ("cp $a \"$b c\" x", &["cp", "$a", "$b c", "x"][..]),
            ("cp `a` $'b\\tc' x", &["cp", "`a`", "b\tc", "x"]),
            ("cp <(a) x;y|z", &["cp", "<(a)", "x;y|z"]),
            ("cp 'a b", &["cp", "a b"]),
            ("cp \"$a b", &["cp", "$a b"]),
        ] {
            assert_eq!(texts(line).unwrap(), expected, "{line}");
        }
        for line in ["cp # a", "cp a\\", "cp $'\\777' a", "cp a\0"] {
            assert_eq!(texts(line), None, "{line}");
        }
    }
}
