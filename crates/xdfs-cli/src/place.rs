//! The source or target of a copy on the command line: a local path, a standard stream, or a path
//! on a server.
//!
//! Parsing only; the place need not exist.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use xdfs::operations::path::{local_name, of_file_url};
use xdfs::settings::ClientConfig;
use xdfs::{Code, Fault, RemotePlace, ReplicaSet};

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A local path.
    Local(PathBuf),
    /// `-`: standard input or standard output.
    Standard,
    /// A URL, or a server's name in the configuration with a path.
    Remote(RemotePlace),
}

impl Place {
    /// Parses a word of the command line; `config` has the names of servers.
    ///
    /// # Errors
    /// It is empty, a malformed URL, or the URL of another protocol.
    pub(crate) fn parse(config: &ClientConfig, word: &OsStr) -> Result<Self, Fault> {
        if word == "-" {
            return Ok(Self::Standard);
        }
        let bad =
            |cause: &str| Fault::new(Code::InvalidArgument, "understand", cause).path(shown(word));
        if word.is_empty() {
            let fault = Fault::new(Code::InvalidArgument, "use '' as a place", "it is empty");
            return Err(fault.hint("name a path, '-' or xdfs://HOST/PATH"));
        }
        let text = word.to_string_lossy();
        if RemotePlace::is_remote(&text) {
            let text = word.to_str().ok_or_else(|| {
                bad("the URL is not UTF-8").hint("write other bytes as %XX, such as %FF")
            })?;
            return Ok(Self::Remote(text.parse()?));
        }
        if let Some(place) = config.place(word) {
            return Ok(Self::Remote(place));
        }
        if let Some(path) = of_file_url(word.as_encoded_bytes()) {
            let path = path.and_then(|path| local_name(&path).ok_or("the path can't be one here"));
            let hint = "write file:///PATH, with other bytes as %XX";
            return path.map(Self::Local).map_err(|cause| bad(cause).hint(hint));
        }
        if let Some(scheme) = scheme(&text) {
            let hint = match scheme {
                "sftp" | "scp" | "rsync" => {
                    "write ssh://HOST/PATH, for which xdfs has to be installed there too, or ./ \
                     before a local path"
                }
                _ => {
                    "write xdfs://HOST/PATH, ssh://HOST/PATH, ftps://HOST/PATH or \
                     ftp://HOST/PATH, or ./ before a local path"
                }
            };
            return Err(bad(&format!("'{scheme}' is not a supported protocol")).hint(hint));
        }
        let text = shown(word);
        if let Some((host, path)) = text.split_once(":/")
            // Neither the drive of another system nor a directory.
            && host.len() > 1
            && !host.contains('/')
            && !Path::new(&format!("{host}:")).exists()
        {
            let path = path.trim_start_matches('/');
            let hint = match RemotePlace::is_remote(&format!("{host}://")) {
                // A URL without one of its slashes.
                true => format!("did you mean {host}://{path}?"),
                false => {
                    format!("did you mean xdfs://{host}/{path}, ssh://{host}/{path}, or ./{text}?")
                }
            };
            let fault = bad("it is neither a URL nor a local path").hint(hint);
            return Err(config.hinted(fault, [word]));
        }
        Ok(Self::Local(word.into()))
    }
}

/// Refuses words that are local paths and look like those of scp (`HOST:PATH`), unless they exist:
/// a copy within this machine is hardly meant by them.
///
/// # Errors
/// One looks like that.
pub(crate) fn check_meant_here<'w>(
    config: &ClientConfig,
    operation: &str,
    words: impl IntoIterator<Item = &'w OsStr>,
) -> Result<(), Fault> {
    let is_in_directory = |word: &OsStr| {
        let above = Path::new(word).parent();
        above.is_some_and(|above| !above.as_os_str().is_empty() && above.exists())
    };
    let words = words.into_iter().filter(|word| !is_in_directory(word));
    let cause = "both sides are on this machine";
    let fault = config.hinted(Fault::new(Code::InvalidArgument, operation, cause), words);
    match fault.hint.is_empty() {
        true => Ok(()),
        false => {
            let hint = format!("{}; write ./ before a local path", fault.hint);
            Err(fault.hint(hint))
        }
    }
}

/// A word of the command line as it is shown: a URL, or each of several, without its password.
pub(crate) fn shown(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let parts = ReplicaSet::parts(&text);
    let shown = parts.unwrap_or_else(|| vec![&text]);
    let shown = shown.into_iter().map(RemotePlace::without_password);
    shown.collect::<Vec<_>>().join(",")
}

/// The scheme if `text` looks like a URL.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(valid))
        .then_some(scheme)
}

/// The word that names `place` on a command line: the name of its settings with the path, or its
/// URL without ticket and pin; `None` if the system can't hold it.
pub(crate) fn word_of(place: &RemotePlace) -> Option<OsString> {
    let Some(name) = &place.profile else {
        return Some(place.to_string().into());
    };
    let path = place.url_path();
    let path: &[u8] = if path.is_empty() { b"/" } else { &path };
    local_name(&[name.as_bytes(), b":", path].concat()).map(PathBuf::into_os_string)
}

/// Whether a place is in a directory, or the directory itself, as far as the URLs show it.
pub(crate) fn lies_in(place: &RemotePlace, directory: &RemotePlace) -> bool {
    let parts = |place: &RemotePlace| {
        let parts = place.path.split(|&byte| byte == b'/');
        let parts = parts.filter(|part| !part.is_empty() && *part != b".");
        parts.map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    directory.shares_session(place) && parts(place).starts_with(&parts(directory))
}

#[cfg(test)]
mod tests {
    use xdfs::settings::ConfigText;

    use super::*;

    fn parse(word: &str) -> Result<Place, Fault> {
        Place::parse(&ClientConfig::default(), OsStr::new(word))
    }

    #[test]
    fn words() {
        assert_eq!(parse("-").unwrap(), Place::Standard);
        for local in [
            "a",
            "./-",
            "/x/y",
            "xdfs",
            "a:b",
            "./http://x",
            "1://x",
            "://",
            "mem:zero",
        ] {
            assert_eq!(parse(local).unwrap(), Place::Local(local.into()), "{local}");
        }
        for (url, path) in [
            ("file:///a%20b", "/a b"),
            ("file://localhost/a", "/a"),
            ("FILE:///a/", "/a/"),
        ] {
            assert_eq!(parse(url).unwrap(), Place::Local(path.into()), "{url}");
        }
        assert!(matches!(parse("xdfs://h/x").unwrap(), Place::Remote(_)));
        assert!(matches!(
            parse("xdfs+unix://%2Fs/x").unwrap(),
            Place::Remote(_)
        ));
        for bad in [
            "file://host/a",
            "file:///%4",
            "file://",
            "",
            "xdfs://",
            "xdfs:///x",
            "http://h/x",
            "sftp://h/x",
            "xdfs://h/%",
        ] {
            assert_eq!(parse(bad).unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        for (word, text) in [
            ("ftp://u:p@h/f", "ftp://u@h/f"),
            ("ftp://u:p@h/f,ftp://v:q,r@i/f", "ftp://u@h/f,ftp://v@i/f"),
            ("a,b", "a,b"),
        ] {
            assert_eq!(shown(OsStr::new(word)), text);
        }
    }

    #[test]
    fn hints_name_what_was_meant() {
        for (word, meant) in [
            ("xdfs:/localhost/", "did you mean xdfs://localhost/?"),
            ("ftps:/host/d/f", "did you mean ftps://host/d/f?"),
            ("host:/d", "xdfs://host/d, ssh://host/d"),
            ("sftp://h/x", "write ssh://HOST/PATH"),
            ("s3://bucket/x", "ssh://HOST/PATH"),
        ] {
            let hint = parse(word).unwrap_err().hint;
            assert!(hint.contains(meant), "{word}: {hint}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn local_paths_may_hold_any_bytes() {
        use std::os::unix::ffi::OsStrExt as _;
        let word = OsStr::from_bytes(b"\xff\xfe");
        let parse = |word: &OsStr| Place::parse(&ClientConfig::default(), word);
        assert_eq!(parse(word).unwrap(), Place::Local(word.into()));
        let word = OsStr::from_bytes(b"xdfs://h/\xff");
        assert!(parse(word).unwrap_err().hint.contains("%FF"));
    }

    #[test]
    fn words_name_their_places() {
        let config = ConfigText::new(b"", "[remote.lab]\nurl = \"ssh://h/d\"".into(), "");
        let config: ClientConfig = config.parse().unwrap();
        for word in ["lab:/x y", "lab:/~/x", "lab:/", "lab:/%41?pin=x"] {
            let place = config.place(OsStr::new(word)).unwrap();
            assert_eq!(word_of(&place), Some(word.into()));
        }
    }
}
