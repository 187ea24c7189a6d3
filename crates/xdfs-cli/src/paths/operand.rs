//! Paths on servers as operands of the command line.

use std::ffi::{OsStr, OsString};

use xdfs::{Code, Fault, RemotePlace};

use crate::place::Place;

/// A path on a server, and the word that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    /// The word, for messages.
    pub(crate) text: String,
    /// The server, and the path as written.
    pub(crate) place: RemotePlace,
    /// The path, without trailing slashes; `/` if the URL names only the server.
    pub(crate) path: Vec<u8>,
}

/// The text of an operand in messages.
pub(crate) fn text_of(word: &OsStr) -> String {
    word.to_string_lossy().into_owned()
}

impl Operand {
    /// Parses a word of the command line.
    ///
    /// # Errors
    /// It isn't the URL of a path on a server.
    pub(crate) fn parse(word: &OsString) -> Result<Self, Fault> {
        let Place::Remote(place) = Place::parse(word)? else {
            let cause = "not a path on a server";
            return Err(Fault::new(Code::InvalidArgument, "read the URL", cause)
                .path(word.as_encoded_bytes())
                .hint("write xdfs://HOST/PATH"));
        };
        let path = trimmed(&place.path).to_vec();
        let path = if path.is_empty() { b"/".to_vec() } else { path };
        Ok(Self {
            text: text_of(word),
            place,
            path,
        })
    }

    /// Whether the path is written as a directory.
    pub(crate) fn is_written_as_directory(&self) -> bool {
        self.place.path.is_empty() || self.place.path.ends_with(b"/")
    }

    /// Whether one session serves both operands.
    pub(crate) fn shares_session(&self, other: &Self) -> bool {
        same_session(&self.place, &other.place)
    }
}

/// Whether one session serves both places.
pub(crate) fn same_session(a: &RemotePlace, b: &RemotePlace) -> bool {
    a.address == b.address && a.user == b.user && a.invitation == b.invitation
}

/// A path without trailing slashes.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

/// The path of a name in a directory.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = trimmed(directory).to_vec();
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// The last part of a path; empty for the root.
pub(crate) fn last_part(path: &[u8]) -> &[u8] {
    let path = trimmed(path);
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// The directory of a path.
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    let path = trimmed(path);
    match path.iter().rposition(|&b| b == b'/') {
        None | Some(0) => b"/",
        Some(cut) => &path[..cut],
    }
}

/// Whether the path is the root of the server, in any spelling.
pub(crate) fn is_root(path: &[u8]) -> bool {
    let mut depth = 0_usize;
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    depth == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_urls() {
        for (word, path, directory) in [
            ("xdfs://h", "/", true),
            ("xdfs://h/", "/", true),
            ("xdfs://h/a/b", "/a/b", false),
            ("xdfs://h/a//", "/a", true),
            ("xdfs://h/-a%0A", "/-a\n", false),
        ] {
            let operand = Operand::parse(&word.into()).unwrap();
            assert_eq!(operand.path, path.as_bytes(), "{word}");
            assert_eq!(operand.is_written_as_directory(), directory, "{word}");
        }
        for word in ["", "-", "a", "./xdfs://h/a", "http://h/a", "xdfs://"] {
            let fault = Operand::parse(&word.into()).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument, "{word}");
        }
        let one = Operand::parse(&"xdfs://h/a".into()).unwrap();
        assert!(one.shares_session(&Operand::parse(&"xdfs://h/b".into()).unwrap()));
        assert!(!one.shares_session(&Operand::parse(&"xdfs://u@h/b".into()).unwrap()));
    }

    #[test]
    fn parts_of_paths() {
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a/", b"b"), b"/a/b");
        assert_eq!(last_part(b"/a/b/"), b"b");
        assert_eq!(last_part(b"/"), b"");
        assert_eq!(parent(b"/a/b/"), b"/a");
        assert_eq!((parent(b"/a"), parent(b"/")), (&b"/"[..], &b"/"[..]));
    }

    #[test]
    fn the_root_is_recognized_however_it_is_written() {
        for root in ["", "/", "//", "/.", "/./", "/a/..", "/../", "/a/../b/.."] {
            assert!(is_root(root.as_bytes()), "{root}");
        }
        for other in ["/a", "/a/.", "/...", "/ ", "/a/../b"] {
            assert!(!is_root(other.as_bytes()), "{other}");
        }
    }
}
