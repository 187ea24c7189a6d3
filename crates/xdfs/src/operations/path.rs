//! Paths as bytes, as calls take them: with slashes between their parts, on any system.

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
    fn the_root_is_recognized_however_it_is_written() {
        for root in ["", "/", "//", "/.", "/./", "/a/..", "/../", "/a/../b/.."] {
            assert!(is_root(root.as_bytes()), "{root}");
        }
        for other in ["/a", "/a/.", "/...", "/ ", "/a/../b"] {
            assert!(!is_root(other.as_bytes()), "{other}");
        }
    }
}
