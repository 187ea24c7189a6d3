//! Patterns of names, expanded to the paths that match.
//!
//! A path that exists as it is written stays, so that a name with `*` needs no quoting as long as
//! it is there. Otherwise `%2A` in a URL, or `[*]`, stands for the character itself.

use xdfs_proto::{Code, Fault, Side};
use xdfs_store::NamePattern;

use super::calls::stat;
use super::path::{last_part, parent};
use super::unfinished::UnfinishedListing;
use crate::client::Client;
use crate::paths::FileKind;

/// Most matches of a pattern.
const NAMES_MAX: usize = 100_000;

/// Directory lookups on one side. Paths are as written.
pub trait Names {
    /// The names in a directory.
    ///
    /// # Errors
    /// It can't be listed.
    fn names(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, Fault>;

    /// Looks for the path.
    ///
    /// # Errors
    /// It isn't there, or can't be looked for.
    fn look(&mut self, path: &[u8]) -> Result<(), Fault>;

    /// Whether the path is a directory, or a link to one.
    fn is_directory(&mut self, path: &[u8]) -> bool;
}

/// Expands a pattern to at least one path, in sorted order. Names that start with a dot match only
/// patterns that do so too. A backslash makes the character after it literal.
///
/// # Errors
/// There is no match, or too many, or a named directory can't be listed.
pub fn expand(text: &[u8], side: &mut impl Names) -> Result<Vec<Vec<u8>>, Fault> {
    let fault = |code, cause: &str| Fault::new(code, "find", cause).path(text);
    let mut found: Vec<Vec<u8>> = vec![Vec::new()];
    let mut matched = false;
    for (at, part) in text.split(|&b| b == b'/').enumerate() {
        if at > 0 {
            found.iter_mut().for_each(|path| path.push(b'/'));
        }
        if !NamePattern::is_wildcard(part) {
            let part = unescaped(part);
            found.iter_mut().for_each(|path| path.extend(&part));
            if matched {
                found.retain(|path| match part.is_empty() {
                    true => side.is_directory(path),
                    false => side.look(path).is_ok(),
                });
            }
            continue;
        }
        let pattern = NamePattern::new(part);
        let mut longer = Vec::new();
        for path in found {
            let directory = if path.is_empty() { b"." } else { &path[..] };
            let names = match side.names(directory) {
                Ok(names) => names,
                // An earlier match may be anything.
                Err(_) if matched => continue,
                Err(fault) => return Err(fault),
            };
            for name in names {
                if pattern.stands_for(&name) {
                    longer.push([path.as_slice(), &name].concat());
                }
            }
            if longer.len() > NAMES_MAX {
                return Err(fault(Code::InvalidArgument, "too many names match"));
            }
        }
        longer.sort();
        found = longer;
        matched = true;
    }
    if found.is_empty() {
        return Err(
            fault(Code::NotFound, "no name matches").hint("quote it if it is a literal name")
        );
    }
    Ok(found)
}

fn unescaped(part: &[u8]) -> Vec<u8> {
    let mut bytes = part.iter();
    let mut out = Vec::with_capacity(part.len());
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'\\' => bytes.next().copied().unwrap_or(byte),
            byte => byte,
        });
    }
    out
}

/// A URL without its ticket or pin, and these.
#[must_use]
pub fn split_invitation(url: &str) -> (&str, &str) {
    match url.rfind("?ticket=").or_else(|| url.rfind("?pin=")) {
        Some(at) => url.split_at(at),
        None => (url, ""),
    }
}

/// The pattern in the path of a URL, in which percent-encoded characters are literal; `None` if
/// there is none.
#[must_use]
pub fn pattern_of_url(url: &str) -> Option<Vec<u8>> {
    let (url, _) = split_invitation(url);
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

/// The pattern in a path in which nothing is encoded; `None` if there is none.
#[must_use]
pub fn pattern_of_path(path: &[u8]) -> Option<Vec<u8>> {
    let mut pattern = Vec::with_capacity(path.len());
    for &byte in path {
        if byte == b'\\' {
            pattern.push(byte);
        }
        pattern.push(byte);
    }
    NamePattern::is_wildcard(&pattern).then_some(pattern)
}

/// The names that a pattern is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matched {
    /// Those of entries.
    Entries,
    /// Those of directories, and of the targets of unfinished transfers.
    Unfinished,
}

/// The paths on a server that match a pattern, sorted; `None` if `path`, which is the pattern as it
/// is written, exists. Calls `unlisted` for names that a listing lacks, as [`listed_names`] does.
///
/// # Errors
/// Nothing matches, or too much, or the server can't be asked.
pub fn matching_paths(
    client: &Client,
    path: &[u8],
    pattern: &[u8],
    matched: Matched,
    unlisted: &mut dyn FnMut(&Fault),
) -> Result<Option<Vec<Vec<u8>>>, Fault> {
    let mut names = ServerNames {
        client,
        matched,
        unlisted,
    };
    match names.look(path) {
        Ok(()) => Ok(None),
        Err(fault) if matches!(fault.code, Code::NotFound | Code::NotDirectory) => {
            let hint = "'xdfs ls' and 'xdfs find' show the names that there are";
            let found = expand(pattern, &mut names);
            found.map(Some).map_err(|fault| match fault.side {
                Side::Local if fault.code == Code::NotFound => {
                    client.fault_there(fault.path(path).hint(hint))
                }
                Side::Local => client.fault_there(fault),
                Side::Remote => fault,
            })
        }
        Err(fault) => Err(fault),
    }
}

/// The names in a directory on a server. If the protocol can't carry some of them, as FTP can't
/// carry names with an end of a line, `unlisted` is called, and the others are found. Calls `go_on`
/// before each.
///
/// # Errors
/// It can't be listed, or the fault of `go_on`.
pub fn listed_names(
    client: &Client,
    directory: &[u8],
    go_on: &mut dyn FnMut() -> Result<(), Fault>,
    unlisted: &mut dyn FnMut(&Fault),
) -> Result<Vec<Vec<u8>>, Fault> {
    let mut names = Vec::new();
    for entry in client.list(directory) {
        go_on()?;
        match entry {
            Ok(entry) => names.push(entry.name),
            Err(fault) if fault.code == Code::Unsupported && !names.is_empty() => {
                unlisted(&client.fault_there(fault));
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(names)
}

/// The names of the targets of unfinished transfers into a directory.
fn targets(client: &Client, directory: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
    let files = UnfinishedListing::begin(client, directory).finish(client)?;
    Ok(files.into_iter().map(|file| file.name).collect())
}

/// Names on a server.
struct ServerNames<'a> {
    client: &'a Client,
    matched: Matched,
    unlisted: &'a mut dyn FnMut(&Fault),
}

impl Names for ServerNames<'_> {
    fn names(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        if self.matched == Matched::Entries {
            return listed_names(self.client, directory, &mut || Ok(()), self.unlisted);
        }
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
    use std::collections::BTreeMap;

    use super::*;

    struct Tree(BTreeMap<&'static str, Vec<&'static str>>);

    impl Names for Tree {
        fn names(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
            let directory = std::str::from_utf8(directory).unwrap();
            let names = self.0.get(directory.trim_end_matches('/'));
            let names = names.ok_or_else(|| Fault::new(Code::NotDirectory, "list", "none"))?;
            Ok(names.iter().map(|name| name.as_bytes().to_vec()).collect())
        }

        fn look(&mut self, path: &[u8]) -> Result<(), Fault> {
            let is_there = path == b"d/y";
            is_there
                .then_some(())
                .ok_or_else(|| Fault::new(Code::NotFound, "find", "none"))
        }

        fn is_directory(&mut self, path: &[u8]) -> bool {
            self.names(path).is_ok()
        }
    }

    #[test]
    fn patterns_stand_for_names() {
        let mut tree = Tree(BTreeMap::from([
            (".", vec!["b.x", "a.x", ".h.x", "d", "e", "*"]),
            ("d", vec!["y", "z"]),
            ("e", vec!["z"]),
            ("", vec!["r"]),
        ]));
        let mut all = |pattern: &str| {
            let found = expand(pattern.as_bytes(), &mut tree)?;
            let found = found
                .into_iter()
                .map(|path| String::from_utf8(path).unwrap());
            Ok::<_, Fault>(found.collect::<Vec<_>>())
        };
        assert_eq!(all("*.x").unwrap(), ["a.x", "b.x"]);
        assert_eq!(all(".*").unwrap(), [".h.x"]);
        assert_eq!(all("\\*").unwrap(), ["*"]);
        assert_eq!(all("[ab].?").unwrap(), ["a.x", "b.x"]);
        assert_eq!(all("*/z").unwrap_err().code, Code::NotFound);
        assert_eq!(all("*/y").unwrap(), ["d/y"]);
        assert_eq!(all("*/*").unwrap(), ["d/y", "d/z", "e/z"]);
        assert_eq!(all("*/").unwrap(), ["d/", "e/"]);
        assert_eq!(all("d/*").unwrap(), ["d/y", "d/z"]);
        assert_eq!(all("/*").unwrap(), ["/r"]);
        assert_eq!(all("?.y").unwrap_err().code, Code::NotFound);
        assert_eq!(all("gone/*").unwrap_err().code, Code::NotDirectory);
    }

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
            assert_eq!(pattern_of_url(url), pattern, "{url}");
        }
    }
}
