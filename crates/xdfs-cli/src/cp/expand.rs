//! Patterns of names on servers as sources of `xdfs cp`.

use xdfs::{Call, Client, Code, Fault, RemotePlace};

use crate::client::SharedClient;
use crate::console::Console;
use crate::flags::CpFlags;
use crate::paths::expand::{Names, expand, is_pattern};
use crate::place::{Place, word_of};
use crate::session::Connector;

/// Replaces each source on a server that is a pattern by the paths that match, sorted. A path that
/// exists as it is written stays.
///
/// # Errors
/// Nothing matches, or too much, or the server can't be asked.
pub(super) fn expand_sources(connector: &Connector, flags: &mut CpFlags) -> Result<(), Fault> {
    let config = connector.context.config()?;
    let mut open: Option<(RemotePlace, SharedClient)> = None;
    let mut sources = Vec::with_capacity(flags.places.sources.len());
    for word in flags.places.sources.clone() {
        let place = match Place::parse(config, &word)? {
            Place::Remote(place) => place,
            Place::Local(_) | Place::Standard => {
                sources.push(word);
                continue;
            }
        };
        // A URL is text.
        let url = word.to_string_lossy();
        let pattern = match place.profile {
            Some(_) => pattern_of_name(&place.path),
            None => pattern_of(&url),
        };
        let Some(pattern) = pattern else {
            sources.push(word);
            continue;
        };
        let client = match &open {
            Some((server, client)) if server.shares_session(&place) => client.clone(),
            _ => {
                let client = connector.connect(&place)?;
                if let Some((server, client)) = open.replace((place.clone(), client.clone())) {
                    connector.leave(&server, client);
                }
                client
            }
        };
        let outcome = matches(&client, &place.path, &pattern);
        if let Some(server) = client.first_use() {
            Console::new(flags.output).first_use(&server, !flags.output.json);
        }
        match outcome? {
            None => sources.push(word),
            Some(paths) => {
                let query = match place.profile {
                    Some(_) => "",
                    None => split_query(&url).1,
                };
                for path in paths {
                    let found = RemotePlace {
                        path,
                        ..place.clone()
                    };
                    let mut word = word_of(&found).ok_or_else(|| {
                        let cause = "names with these bytes are not possible on this system";
                        Fault::new(Code::InvalidArgument, "find", cause).path(found.path)
                    })?;
                    word.push(query);
                    sources.push(word);
                }
            }
        }
    }
    if let Some((server, client)) = open {
        connector.leave(&server, client);
    }
    flags.places.sources = sources;
    Ok(())
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
        if byte != b'%' {
            pattern.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
        pattern.push(b'\\');
        pattern.push(u8::try_from(high * 16 + low).ok()?);
    }
    is_pattern(&pattern).then_some(pattern)
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
    is_pattern(&pattern).then_some(pattern)
}

/// The paths that match; `None` if the path exists as it is written.
fn matches(client: &Client, path: &[u8], pattern: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Fault> {
    let mut names = ServerNames(client);
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

/// Names on a server.
struct ServerNames<'a>(&'a Client);

impl ServerNames<'_> {
    fn look(&self, path: &[u8]) -> Result<(), Fault> {
        let call = Call::Stat {
            path: path.to_vec(),
            follow: false,
        };
        self.0.call(call).map(|_| ())
    }
}

impl Names for ServerNames<'_> {
    fn names(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        let entries = self.0.list(directory);
        entries.map(|entry| entry.map(|entry| entry.name)).collect()
    }

    fn exists(&mut self, path: &[u8]) -> bool {
        self.look(path).is_ok()
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
        ] {
            let pattern = pattern.map(|pattern| pattern.as_bytes().to_vec());
            assert_eq!(pattern_of(url), pattern, "{url}");
        }
    }
}
