//! Paths as bytes, as calls take them: with slashes between their parts, on any system.

use std::path::{Path, PathBuf};

use crate::remote::percent_decode;

/// The path in a URL of a file of this machine (RFC 8089): `file:///PATH`, or with the host
/// `localhost`. `None` if it is no such URL.
///
/// # Errors
/// It names another machine, or is malformed.
pub fn of_file_url(url: &[u8]) -> Option<Result<Vec<u8>, &'static str>> {
    let (scheme, rest) = url.split_at_checked(b"file://".len())?;
    if !scheme.eq_ignore_ascii_case(b"file://") {
        return None;
    }
    let start = rest.iter().position(|&byte| byte == b'/');
    let (host, path) = rest.split_at(start.unwrap_or(rest.len()));
    if !host.is_empty() && !host.eq_ignore_ascii_case(b"localhost") {
        return Some(Err("it names a file of another machine"));
    }
    if path.is_empty() {
        return Some(Err("it has no path"));
    }
    Some(percent_decode(path).ok_or("a percent sign is misused"))
}

/// A path without trailing slashes; of several, of which it consists, one is left.
#[must_use]
pub fn trimmed(path: &[u8]) -> &[u8] {
    let end = match path.iter().rposition(|&b| b != b'/') {
        Some(at) => at + 1,
        None => path.len().saturating_sub(1).min(1),
    };
    &path[..end]
}

/// The path of a name in a directory.
#[must_use]
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = trimmed(directory).to_vec();
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// The last part of a path; empty for the root.
#[must_use]
pub fn last_part(path: &[u8]) -> &[u8] {
    let path = trimmed(path);
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// The directory of a path.
#[must_use]
pub fn parent(path: &[u8]) -> &[u8] {
    let path = trimmed(path);
    match path.iter().rposition(|&b| b == b'/') {
        None | Some(0) => b"/",
        Some(1) if path.starts_with(b"//") => b"//",
        Some(cut) => &path[..cut],
    }
}

/// The last part of a path on a server, as the name of a file here; `None` if it can't be one.
#[must_use]
pub fn file_name(path: &[u8]) -> Option<&[u8]> {
    let name = last_part(path);
    // A separator of another kind or a drive would lead out of the directory on some systems.
    let bad = |b: &u8| *b == 0 || (cfg!(windows) && matches!(b, b'\\' | b':'));
    (!matches!(name, b"" | b"." | b"..") && !name.iter().any(bad)).then_some(name)
}

/// The bytes of a name from a server as a local name; `None` if the system can't hold them.
#[must_use]
pub fn local_name(name: &[u8]) -> Option<PathBuf> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
    }
    #[cfg(not(unix))]
    {
        std::str::from_utf8(name).ok().map(PathBuf::from)
    }
}

/// Whether a local path ends in a separator, which marks it as a directory.
#[must_use]
pub fn ends_with_separator(path: &Path) -> bool {
    path.as_os_str()
        .as_encoded_bytes()
        .last()
        .is_some_and(|&b| std::path::is_separator(char::from(b)))
}

/// Whether an absolute path is the root, in any spelling.
#[must_use]
pub fn is_root(path: &[u8]) -> bool {
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
    fn parts_of_paths() {
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a/", b"b"), b"/a/b");
        assert_eq!(
            (join(b"//", b"a"), join(b"//a", b"b")),
            (b"//a".to_vec(), b"//a/b".to_vec())
        );
        assert_eq!(
            (parent(b"//a"), parent(b"//a/b")),
            (&b"//"[..], &b"//a"[..])
        );
        assert_eq!(last_part(b"//"), b"");
        assert_eq!(last_part(b"/a/b/"), b"b");
        assert_eq!(last_part(b"/"), b"");
        assert_eq!(parent(b"/a/b/"), b"/a");
        assert_eq!((parent(b"/a"), parent(b"/")), (&b"/"[..], &b"/"[..]));
    }

    #[test]
    fn names_of_files() {
        assert_eq!(file_name(b"/a/b"), Some(&b"b"[..]));
        assert_eq!(file_name(b"/a/b//"), Some(&b"b"[..]));
        assert_eq!(
            file_name(b"mem:zero"),
            (!cfg!(windows)).then_some(&b"mem:zero"[..])
        );
        for bad in [&b""[..], b"/", b"/..", b"/a/.", b"/a\0"] {
            assert_eq!(file_name(bad), None);
        }
        assert!(ends_with_separator(Path::new("a/")) && !ends_with_separator(Path::new("a")));
        assert_eq!(local_name(b"x").unwrap(), PathBuf::from("x"));
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
