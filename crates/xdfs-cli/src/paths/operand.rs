//! Paths on servers as operands of the command line.

use std::ffi::OsStr;

use xdfs::operations::path::trimmed;
use xdfs::settings::ClientConfig;
use xdfs::{Code, Fault, RemotePlace};

use crate::place::{Place, shown};

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
    shown(word)
}

impl Operand {
    /// Parses a word of the command line; `config` has the names of servers.
    ///
    /// # Errors
    /// It doesn't name a path on a server.
    pub(crate) fn parse(config: &ClientConfig, word: &OsStr) -> Result<Self, Fault> {
        let Place::Remote(place) = Place::parse(config, word)? else {
            let cause = "not a path on a server";
            let fault = Fault::new(Code::InvalidArgument, "read the URL", cause)
                .path(shown(word))
                .hint("write xdfs://HOST/PATH");
            return Err(config.hinted(fault, [word]));
        };
        Ok(Self::new(word, place))
    }

    /// The operand that `word` stands for.
    pub(crate) fn new(word: &OsStr, place: RemotePlace) -> Self {
        let path = match trimmed(&place.path) {
            // The root of an FTP server, and not the directory of the login.
            b"/" if place.address.begins_at_login() => b"//",
            b"" | b"/" => &b"/"[..],
            path => path,
        };
        let path = path.to_vec();
        Self {
            text: text_of(word),
            place,
            path,
        }
    }

    /// A fault about this path that was found on this side: it names the server.
    pub(crate) fn fault(&self, fault: Fault) -> Fault {
        fault
            .path(&self.path)
            .remote()
            .at(&self.place.address.machine())
    }

    /// Whether the path is written as a directory.
    pub(crate) fn is_written_as_directory(&self) -> bool {
        self.place.path.is_empty() || self.place.path.ends_with(b"/")
    }

    /// Whether one session serves both operands.
    pub(crate) fn shares_session(&self, other: &Self) -> bool {
        self.place.shares_session(&other.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(word: &str) -> Result<Operand, Fault> {
        Operand::parse(&ClientConfig::default(), OsStr::new(word))
    }

    #[test]
    fn operands_are_urls() {
        for (word, path, directory) in [
            ("xdfs://h", "/", true),
            ("xdfs://h/", "/", true),
            ("xdfs://h/a/b", "/a/b", false),
            ("xdfs://h/a//", "/a", true),
            ("xdfs://h/-a%0A", "/-a\n", false),
            ("xdfs://h//", "/", true),
            ("ftp://h", "/", true),
            ("ftp://h/", "/", true),
            ("ftp://h//", "//", true),
            ("ftp://h//a/", "//a", true),
        ] {
            let operand = parse(word).unwrap();
            assert_eq!(operand.path, path.as_bytes(), "{word}");
            assert_eq!(operand.is_written_as_directory(), directory, "{word}");
        }
        for word in ["", "-", "a", "./xdfs://h/a", "http://h/a", "xdfs://"] {
            let fault = parse(word).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument, "{word}");
        }
        let one = parse("xdfs://h/a").unwrap();
        assert!(one.shares_session(&parse("xdfs://h/b").unwrap()));
        assert!(!one.shares_session(&parse("xdfs://u@h/b").unwrap()));
    }
}
