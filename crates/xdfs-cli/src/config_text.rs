//! The text of a configuration file, and the faults of its settings with their lines.
//!
//! Used for the file of `xdfs serve --config` and for the client's.

use std::io::Read as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use xdfs::security::trusted;
use xdfs::{Code, Fault};

use crate::console::printable;

/// The operation of faults.
const READ: &str = "read the configuration";

/// The text of a configuration file.
#[derive(Debug)]
pub(crate) struct ConfigText {
    name: Vec<u8>,
    text: String,
    /// The hint of faults: where its settings are listed.
    hint: &'static str,
}

impl ConfigText {
    /// Reads the file at `path`; `hint` says where its settings are listed.
    ///
    /// # Errors
    /// It can't be read, isn't UTF-8, or other users could have written it.
    pub(crate) fn read(path: &Path, hint: &'static str) -> Result<Self, Fault> {
        let name = path.as_os_str().as_encoded_bytes();
        let mut bytes = Vec::new();
        trusted::open_any(READ, path)?
            .read_to_end(&mut bytes)
            .map_err(|e| Fault::from_io(READ, name, &e))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.iter().filter(|&&b| b == b'\n').count() + 1;
            let cause = format!("line {line}: it isn't UTF-8");
            Fault::new(Code::InvalidArgument, READ, cause)
                .path(name)
                .hint(hint)
        })?;
        Ok(Self::new(name, text, hint))
    }

    /// The text of the file `name`.
    pub(crate) fn new(name: &[u8], text: String, hint: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            text,
            hint,
        }
    }

    /// The settings, or all errors: the first of each top-level setting and of each table in a
    /// list. There is at least one.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Vec<Fault>> {
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

    /// The line of a setting, or of its part with this number if it is a list.
    pub(crate) fn line_of(&self, setting: &str, number: usize) -> Option<usize> {
        let table = DeTable::parse(&self.text).ok()?.into_inner();
        let (key, value) = table.get_key_value(setting)?;
        let part = value.get_ref().as_array().and_then(|list| list.get(number));
        let span = part.map_or_else(|| key.span(), Spanned::span);
        Some(self.line_at(span.start))
    }

    /// The name of the file, for messages.
    pub(crate) fn name(&self) -> String {
        printable(&String::from_utf8_lossy(&self.name))
    }
}

/// A message of the parser in the words of a settings file instead of those of the program.
fn in_plain_words(message: &str) -> String {
    const WORDS: [(&str, &str); 13] = [
        ("invalid type: ", "it is "),
        ("invalid value: ", "it is "),
        ("invalid length ", "it has the length "),
        ("a nonzero usize", "a whole number of at least 1"),
        ("a nonzero u64", "a whole number of at least 1"),
        ("usize", "a whole number"),
        ("u64", "a whole number"),
        ("u32", "a whole number"),
        ("u16", "a whole number up to 65535"),
        ("a sequence", "a list in brackets"),
        ("a map", "a table"),
        ("a boolean", "true or false"),
        ("path string", "a path in quotes"),
    ];
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let (mut found, mut expected) = (found.to_owned(), expected.to_owned());
    // Text of the file follows in quotes: only the beginning is the parser's.
    for (theirs, ours) in WORDS {
        if let Some(rest) = found.strip_prefix(theirs) {
            found = format!("{ours}{rest}");
        }
        if expected == theirs {
            ours.clone_into(&mut expected);
        }
    }
    if expected.starts_with("struct ") {
        "a table".clone_into(&mut expected);
    }
    format!("{found}, expected {expected}")
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
