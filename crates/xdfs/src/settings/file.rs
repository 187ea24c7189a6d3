//! The text of a configuration file, and the faults of its settings with their lines.
//!
//! One for the settings of a client, and one for those of a server.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use xdfs_proto::{Code, Fault};
use xdfs_security::trusted::{self, Secrecy};

/// The operation of faults.
const READ: &str = "read the configuration";
/// Most bytes of a file.
const BYTES_MAX: u64 = 1 << 20;

/// The text of a configuration file.
#[derive(Debug)]
pub struct ConfigText {
    name: Vec<u8>,
    text: String,
    /// The hint of faults: where its settings are listed.
    hint: &'static str,
}

impl ConfigText {
    /// Reads the regular file at `path`; `hint` says where its settings are listed.
    ///
    /// # Errors
    /// It can't be read, is no regular file, is too long, isn't UTF-8, or other users could have
    /// written it.
    pub fn read(path: &Path, hint: &'static str) -> Result<Self, Fault> {
        let bytes = trusted::read(READ, path, BYTES_MAX, Secrecy::Public)?;
        Self::decode(path, &bytes, hint)
    }

    /// Reads the file at `path`, which may be a pipe as well, and waits for its other end.
    ///
    /// # Errors
    /// Like [`read`](Self::read), but for the fault of a file that is not a regular one.
    pub fn read_any(path: &Path, hint: &'static str) -> Result<Self, Fault> {
        let bytes = trusted::read_any(READ, path, BYTES_MAX)?;
        Self::decode(path, &bytes, hint)
    }

    fn decode(path: &Path, bytes: &[u8], hint: &'static str) -> Result<Self, Fault> {
        let name = path.as_os_str().as_encoded_bytes();
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let valid = &bytes[..error.valid_up_to()];
            let line = valid.iter().filter(|&&b| b == b'\n').count() + 1;
            let cause = format!("line {line}: it isn't UTF-8");
            Fault::new(Code::InvalidArgument, READ, cause)
                .path(name)
                .hint(hint)
        })?;
        Ok(Self::new(name, text.to_owned(), hint))
    }

    /// The text of the file `name`.
    #[must_use]
    pub fn new(name: &[u8], text: String, hint: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            text,
            hint,
        }
    }

    /// The settings.
    ///
    /// # Errors
    /// All mistakes, at least one: the first of each top-level setting and of each table in a list.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Vec<Fault>> {
        let first = match toml::from_str(&self.text) {
            Ok(config) => return Ok(config),
            Err(error) => error,
        };
        let (table, mut errors) = DeTable::parse_recoverable(&self.text);
        if errors.is_empty() {
            errors = entries(table.into_inner())
                .filter_map(|entry| {
                    let entry = toml::Deserializer::from(Spanned::new(0..0, entry));
                    T::deserialize(entry).err()
                })
                .collect();
        }
        if errors.is_empty() {
            errors.push(first);
        }
        Err(errors.iter().map(|error| self.fault(error)).collect())
    }

    fn fault(&self, error: &toml::de::Error) -> Fault {
        let line = self.line_at(error.span().map_or(0, |span| span.start));
        let message = in_plain_words(&error.message().replace('\n', " "));
        let cause = format!("line {line}: {message}");
        Fault::new(Code::InvalidArgument, READ, cause)
            .path(&*self.name)
            .hint(self.hint)
    }

    fn line_at(&self, offset: usize) -> usize {
        let before = self.text.bytes().take(offset);
        before.filter(|&byte| byte == b'\n').count() + 1
    }

    /// The line of a setting, or of its part with this number if it is a list. A setting of a table
    /// is `TABLE.SETTING`; one that isn't written there is on the line of its table.
    #[must_use]
    pub fn line_of(&self, setting: &str, number: usize) -> Option<usize> {
        let table = DeTable::parse(&self.text).ok()?.into_inner();
        let mut names = setting.split('.');
        let (mut key, mut value) = table.get_key_value(names.next()?)?;
        for name in names {
            let table = value.get_ref().as_table();
            match table.and_then(|table| table.get_key_value(name)) {
                Some(inner) => (key, value) = inner,
                None => break,
            }
        }
        let part = value.get_ref().as_array().and_then(|list| list.get(number));
        let span = part.map_or_else(|| key.span(), Spanned::span);
        Some(self.line_at(span.start))
    }

    /// Whether the text is valid and has no setting at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        DeTable::parse(&self.text).is_ok_and(|table| table.get_ref().is_empty())
    }

    /// The name of the file, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

/// A message of the parser in the words of a settings file instead of those of the program.
fn in_plain_words(message: &str) -> String {
    if let Some((name, known)) = unknown(message, "unknown field ") {
        return match known.as_str() {
            "" => format!("unknown setting {name}; there are none here"),
            known => format!("unknown setting {name}; known here: {known}"),
        };
    }
    if let Some((value, known)) = unknown(message, "unknown variant ") {
        return format!("{value} is none of {known}");
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("the setting {name} is missing");
    }
    for theirs in ["duplicate field", "duplicate key"] {
        if let Some(name) = message.strip_prefix(theirs) {
            return format!("the setting{name} is there twice");
        }
    }
    // Text of the file may have any words: the parser's expectation comes last.
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let Some(found) = found_value(found) else {
        return message.to_owned();
    };
    format!("{} is needed, not {found}", expected_value(expected))
}

/// The quoted name in a message that begins with these words, and the names that are known.
fn unknown(message: &str, words: &str) -> Option<(String, String)> {
    let rest = message.strip_prefix(words)?;
    let (name, known) = match rest.rsplit_once(", expected ") {
        Some((name, known)) => (name, known.strip_prefix("one of ").unwrap_or(known)),
        None => (
            rest.strip_suffix(", there are no fields").unwrap_or(rest),
            "",
        ),
    };
    Some((name.to_owned(), known.replace("` or `", "`, `")))
}

/// The value in the file, for the parser's name of it.
fn found_value(theirs: &str) -> Option<String> {
    if let Some(length) = theirs.strip_prefix("invalid length ") {
        return Some(format!("one of the length {length}"));
    }
    let value = theirs
        .strip_prefix("invalid type: ")
        .or_else(|| theirs.strip_prefix("invalid value: "))?;
    let bare = |text: &str| text.trim_matches('`').to_owned();
    Some(match value.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer", number)) => format!("the number {}", bare(number)),
        Some(("floating", point)) => {
            format!("the number {}", bare(point.trim_start_matches("point ")))
        }
        Some(("boolean", value)) => bare(value),
        _ => match value {
            "map" => "a table".to_owned(),
            "sequence" => "a list".to_owned(),
            other => other.to_owned(),
        },
    })
}

/// The kind of value that a setting needs, for the parser's name of it.
fn expected_value(theirs: &str) -> &str {
    match theirs {
        "u8" | "u32" | "u64" | "usize" => "a whole number",
        "u16" => "a whole number up to 65535",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => "a whole number of at least 1",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "a borrowed string" | "a character" => "text in quotes",
        "path string" => "a path in quotes",
        "a sequence" => "a list in brackets",
        "a map" => "a table",
        // Types of the program.
        _ if theirs.starts_with("struct ") => "a table",
        _ if theirs.starts_with("enum ") || theirs.starts_with("variant ") => "text in quotes",
        // Ours, for settings of several kinds.
        _ => theirs.strip_prefix("expected ").unwrap_or(theirs),
    }
}

/// Tables with one setting each. A list of tables becomes several tables.
fn entries(table: DeTable<'_>) -> impl Iterator<Item = DeTable<'_>> {
    table.into_iter().flat_map(|(key, value)| {
        let (span, value) = (value.span(), value.into_inner());
        let values = match value {
            DeValue::Array(list) if list.iter().all(|part| part.get_ref().is_table()) => list
                .into_iter()
                .map(|part| {
                    let span = part.span();
                    Spanned::new(span, DeValue::Array([part].into_iter().collect()))
                })
                .collect(),
            value => vec![Spanned::new(span, value)],
        };
        values.into_iter().map(move |value| {
            let mut table = DeTable::new();
            table.insert(key.clone(), value);
            table
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_on_the_lines_of_their_tables() {
        let text = "a = 1\n[t]\nb = [\n1,\n2]\n[t.u]\nc = 1\n[[t.v]]\nd = 1\n[[t.v]]\n";
        let text = ConfigText::new(b"x.toml", text.to_owned(), "");
        for (setting, number, line) in [
            ("a", 0, Some(1)),
            ("t", 0, Some(2)),
            ("t.b", 1, Some(5)),
            ("t.u.c", 0, Some(7)),
            ("t.v", 0, Some(8)),
            ("t.v", 1, Some(10)),
            ("t.none", 0, Some(2)),
            ("t.u.none.c", 0, Some(6)),
            ("a.none", 0, Some(1)),
            ("none.a", 0, None),
        ] {
            assert_eq!(text.line_of(setting, number), line, "{setting} {number}");
        }
    }

    #[test]
    fn messages_of_the_parser_are_in_words_of_a_settings_file() {
        for (theirs, ours) in [
            (
                "invalid type: string \"many\", expected u32",
                "a whole number is needed, not the text \"many\"",
            ),
            (
                "invalid type: string \"a, expected u8\", expected a sequence",
                "a list in brackets is needed, not the text \"a, expected u8\"",
            ),
            (
                "invalid value: integer `70000`, expected u16",
                "a whole number up to 65535 is needed, not the number 70000",
            ),
            (
                "invalid type: floating point `1.5`, expected a nonzero usize",
                "a whole number of at least 1 is needed, not the number 1.5",
            ),
            (
                "invalid type: boolean `true`, expected path string",
                "a path in quotes is needed, not true",
            ),
            (
                "invalid type: sequence, expected struct LimitsConfig",
                "a table is needed, not a list",
            ),
            (
                "invalid type: map, expected a string",
                "text in quotes is needed, not a table",
            ),
            (
                "unknown field `kye`, expected one of `url`, `key`",
                "unknown setting `kye`; known here: `url`, `key`",
            ),
            (
                "unknown field `x`, expected `address` or `key`",
                "unknown setting `x`; known here: `address`, `key`",
            ),
            (
                "unknown field `x`, there are no fields",
                "unknown setting `x`; there are none here",
            ),
            (
                "unknown variant `maybe`, expected `optional` or `required`",
                "`maybe` is none of `optional`, `required`",
            ),
            ("missing field `url`", "the setting `url` is missing"),
            ("duplicate field `a`", "the setting `a` is there twice"),
            ("duplicate key", "the setting is there twice"),
            (
                "key with no value, expected `=`",
                "key with no value, expected `=`",
            ),
            ("a rate of 0 would never end", "a rate of 0 would never end"),
        ] {
            assert_eq!(in_plain_words(theirs), ours);
        }
    }
}
