//! Wildcards in paths on servers, as operands of any command.
//!
//! A path that exists as it is written stays, so that a name with `*` needs no quoting as long as
//! it is there. Otherwise `%2A` in a URL, or `[*]`, stands for the character itself.

use std::ffi::{OsStr, OsString};

use xdfs::operations::path::{last_part, parent};
use xdfs::operations::stat;
use xdfs::{Client, Code, Fault, FileKind, NamePattern, RemotePlace};

use super::expand::{Names, expand};
use super::unfinished::targets;
use crate::client::SharedClient;
use crate::console::warn;
use crate::context::Context;
use crate::place::{Place, shown, word_of};

/// What the names are that match wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matched {
    /// Those of entries.
    Entries,
    /// Those of directories, and of the targets of unfinished transfers.
    Unfinished,
}

/// The words that a word stands for: one for each path that matches, sorted, if it has wildcards on
/// a server, and otherwise the word itself. `connect` opens a session with the server of a place.
///
/// # Errors
/// Nothing matches, or too much, or the server can't be asked.
pub(crate) fn words_of(
    context: &Context,
    word: &OsStr,
    matched: Matched,
    connect: impl FnOnce(&RemotePlace) -> Result<SharedClient, Fault>,
) -> Result<Vec<OsString>, Fault> {
    let itself = || Ok(vec![word.to_owned()]);
    // Other places, and what is wrong with them, are the command's.
    let Ok(Place::Remote(place)) = Place::parse(context.config()?, word) else {
        return itself();
    };
    // A URL is text.
    let url = word.to_string_lossy();
    let (pattern, query) = match place.profile {
        Some(_) if context.has_expanded(&place) => return itself(),
        Some(_) => (pattern_of_name(&place.path), ""),
        None => (pattern_of(&url), split_query(&url).1),
    };
    let Some(pattern) = pattern else {
        return itself();
    };
    let client = connect(&place)?;
    let names = ServerNames {
        client: &client,
        matched,
    };
    let Some(paths) = matches(names, &place.path, &pattern)? else {
        return itself();
    };
    let words = paths.into_iter().map(|path| {
        let found = RemotePlace {
            path,
            ..place.clone()
        };
        let mut word = word_of(&found).ok_or_else(|| {
            let cause = "names with these bytes are not possible on this system";
            Fault::new(Code::InvalidArgument, "find", cause).path(found.path)
        })?;
        word.push(query);
        Ok(word)
    });
    words.collect()
}

/// The only one of the words that a word stands for.
///
/// # Errors
/// There is more than one.
pub(crate) fn only(word: &OsStr, mut words: Vec<OsString>) -> Result<OsString, Fault> {
    let count = words.len();
    match words.pop() {
        Some(only) if count == 1 => Ok(only),
        _ => {
            let cause = format!("{count} names match, and one is needed");
            Err(Fault::new(Code::InvalidArgument, "find", cause).path(shown(word)))
        }
    }
}

/// The URL without its ticket or pin, and these.
fn split_query(url: &str) -> (&str, &str) {
    match url.rfind("?ticket=").or_else(|| url.rfind("?pin=")) {
        Some(at) => url.split_at(at),
        None => (url, ""),
    }
}

/// The pattern in the path of a URL, in which percent-encoded characters are literal; `None` if
/// there is none.
fn pattern_of(url: &str) -> Option<Vec<u8>> {
    let (url, _) = split_query(url);
    let (_, rest) = url.split_once("://")?;
    let path = rest.get(rest.find('/')?..)?;
    let mut pattern = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'\\' {
            pattern.push(byte);
        }
        if byte != b'%' {
            pattern.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
        pattern.push(b'\\');
        pattern.push(u8::try_from(high * 16 + low).ok()?);
    }
    NamePattern::is_wildcard(&pattern).then_some(pattern)
}

/// The pattern in the path of `NAME:PATH`, in which nothing is encoded; `None` if there is none.
fn pattern_of_name(path: &[u8]) -> Option<Vec<u8>> {
    let mut pattern = Vec::with_capacity(path.len());
    for &byte in path {
        if byte == b'\\' {
            pattern.push(byte);
        }
        pattern.push(byte);
    }
    NamePattern::is_wildcard(&pattern).then_some(pattern)
}

/// The paths that match; `None` if the path exists as it is written.
fn matches(
    mut names: ServerNames<'_>,
    path: &[u8],
    pattern: &[u8],
) -> Result<Option<Vec<Vec<u8>>>, Fault> {
    let client = names.client;
    match names.look(path) {
        Ok(()) => Ok(None),
        Err(fault) if matches!(fault.code, Code::NotFound | Code::NotDirectory) => {
            let hint = "'xdfs ls' and 'xdfs find' show the names that there are";
            let found = expand(pattern, &mut names);
            found.map(Some).map_err(|fault| match fault.side {
                xdfs::Side::Local if fault.code == Code::NotFound => {
                    client.fault_there(fault.path(path).hint(hint))
                }
                xdfs::Side::Local => client.fault_there(fault),
                xdfs::Side::Remote => fault,
            })
        }
        Err(fault) => Err(fault),
    }
}

/// The names in a directory on a server. If the protocol can't carry some of them, as FTP can't
/// carry names with an end of a line, there is a warning, and the others are found. Calls `go_on`
/// before each.
///
/// # Errors
/// It can't be listed, or the fault of `go_on`.
pub(crate) fn listed_names(
    client: &Client,
    directory: &[u8],
    mut go_on: impl FnMut() -> Result<(), Fault>,
) -> Result<Vec<Vec<u8>>, Fault> {
    let mut names = Vec::new();
    for entry in client.list(directory) {
        go_on()?;
        match entry {
            Ok(entry) => names.push(entry.name),
            Err(fault) if fault.code == Code::Unsupported && !names.is_empty() => {
                warn(&client.fault_there(fault));
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(names)
}

/// Names on a server.
struct ServerNames<'a> {
    client: &'a Client,
    matched: Matched,
}

impl Names for ServerNames<'_> {
    fn names(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        match self.matched {
            Matched::Entries => listed_names(self.client, directory, || Ok(())),
            Matched::Unfinished => {
                let mut names = targets(self.client, directory)?;
                for entry in self.client.list(directory) {
                    let entry = entry?;
                    if entry.attributes.kind == FileKind::Directory {
                        names.push(entry.name);
                    }
                }
                names.sort();
                names.dedup();
                Ok(names)
            }
        }
    }

    fn look(&mut self, path: &[u8]) -> Result<(), Fault> {
        let found = stat(self.client, path, false).map(drop);
        match (self.matched, found) {
            (Matched::Unfinished, Err(fault)) if fault.code == Code::NotFound => {
                let targets = targets(self.client, parent(path));
                let is_target = |names: Vec<Vec<u8>>| names.iter().any(|n| n == last_part(path));
                targets.is_ok_and(is_target).then_some(()).ok_or(fault)
            }
            (_, found) => found,
        }
    }

    fn is_directory(&mut self, path: &[u8]) -> bool {
        let found = stat(self.client, path, true);
        found.is_ok_and(|found| found.kind == FileKind::Directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_in_urls() {
        for (url, pattern) in [
            ("xdfs://h/a/*.dat", Some("/a/*.dat")),
            ("xdfs://u@[::1]:7/a?", Some("/a?")),
            ("xdfs://h/%2A*", Some("/\\**")),
            ("xdfs://h/[ab]?ticket=x*y", Some("/[ab]")),
            ("xdfs+unix://%2Fs/x*", Some("/x*")),
            ("xdfs://[::1]/a", None),
            ("xdfs://h/a%2A", None),
            ("xdfs://h/a?pin=SHA256:*", None),
            ("xdfs://h", None),
            ("xdfs://h/*%", None),
            ("xdfs://h/a\\*", Some("/a\\\\*")),
        ] {
            let pattern = pattern.map(|pattern| pattern.as_bytes().to_vec());
            assert_eq!(pattern_of(url), pattern, "{url}");
        }
    }
}
