//! Relative paths in a shell.

use xdfs::{Code, Fault, RemotePlace};

/// Where paths of a server begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// At `/`.
    One,
    /// At `/`, the directory of the login, or at `//`, the root: with ftp:// and ftps://.
    Two,
}

impl Roots {
    /// Those of the server of a place.
    pub(crate) fn of(place: &RemotePlace) -> Self {
        match place.address.begins_at_login() {
            true => Self::Two,
            false => Self::One,
        }
    }
}

/// An absolute path on the server. `.` and `..` are resolved lexically. A path written as a
/// directory ends in a slash.
///
/// # Errors
/// It is empty.
pub(crate) fn absolute(directory: &[u8], path: &[u8], roots: Roots) -> Result<Vec<u8>, Fault> {
    if path.is_empty() {
        let cause = "it is empty";
        return Err(Fault::new(Code::InvalidArgument, "read the path", cause));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    let above = if path.starts_with(b"/") {
        &[][..]
    } else {
        directory
    };
    let begin = if above.is_empty() { path } else { above };
    let mut is_directory = false;
    for part in above
        .split(|&b| b == b'/')
        .chain(path.split(|&b| b == b'/'))
    {
        is_directory = matches!(part, b"" | b"." | b"..");
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut out = Vec::with_capacity(directory.len() + path.len() + 3);
    if roots == Roots::Two && begin.starts_with(b"//") {
        out.push(b'/');
    }
    for part in &parts {
        out.push(b'/');
        out.extend_from_slice(part);
    }
    if is_directory || parts.is_empty() {
        out.push(b'/');
    }
    Ok(out)
}

/// An absolute path without trailing slashes, except for those of the root.
pub(crate) fn trimmed(mut path: Vec<u8>) -> Vec<u8> {
    let least = if path.starts_with(b"//") { 2 } else { 1 };
    while path.len() > least && path.ends_with(b"/") {
        path.pop();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_start_from_the_directory() {
        for (directory, path, expected) in [
            ("/", "a", "/a"),
            ("/", ".", "/"),
            ("/", "..", "/"),
            ("/a", "b", "/a/b"),
            ("/a", "b/", "/a/b/"),
            ("/a", ".", "/a/"),
            ("/a/b", "..", "/a/"),
            ("/a/b", "../c", "/a/c"),
            ("/a/b", "../../../c", "/c"),
            ("/a", "/c//d/./e", "/c/d/e"),
            ("/a", "/", "/"),
            ("/a", "./", "/a/"),
            ("/a", "...", "/a/..."),
        ] {
            for roots in [Roots::One, Roots::Two] {
                let found = absolute(directory.as_bytes(), path.as_bytes(), roots).unwrap();
                assert_eq!(String::from_utf8(found).unwrap(), expected, "{path}");
            }
        }
        let empty = absolute(b"/", b"", Roots::One);
        assert_eq!(empty.unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn servers_of_ftp_have_a_root_beside_the_login() {
        for (directory, path, expected) in [
            ("/", "//", "//"),
            ("/", "//srv/a", "//srv/a"),
            ("//srv", "a", "//srv/a"),
            ("//srv", "a/", "//srv/a/"),
            ("//srv", "..", "//"),
            ("//srv", "../..", "//"),
            ("//", ".", "//"),
            ("//", "a", "//a"),
            ("//srv", "/a", "/a"),
            ("//srv", "/", "/"),
        ] {
            let found = absolute(directory.as_bytes(), path.as_bytes(), Roots::Two).unwrap();
            assert_eq!(
                String::from_utf8(found).unwrap(),
                expected,
                "{directory} {path}"
            );
        }
        let found = absolute(b"/", b"//srv", Roots::One).unwrap();
        assert_eq!(found, b"/srv");
        for (path, expected) in [("//", "//"), ("//a//", "//a"), ("/", "/"), ("/a/", "/a")] {
            assert_eq!(trimmed(path.into()), expected.as_bytes());
        }
    }
}
