//! Paths of commands.

/// The absolute path that `argument` means in `directory`, without `.`, `..` and doubled or
/// trailing slashes. `..` of the root is the root. Whether links lead out is the store's concern.
#[must_use]
pub fn resolve(directory: &[u8], argument: &[u8]) -> Vec<u8> {
    let base = if argument.starts_with(b"/") {
        &b""[..]
    } else {
        directory
    };
    let is_slash = |byte: &u8| *byte == b'/';
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in base.split(is_slash).chain(argument.split(is_slash)) {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut path = Vec::new();
    for part in parts {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_above_the_root() {
        for (directory, argument, path) in [
            ("/", "", "/"),
            ("/a/b", "", "/a/b"),
            ("/a/b", "c/", "/a/b/c"),
            ("/a/b", "../c//./d", "/a/c/d"),
            ("/a", "../../..", "/"),
            ("/a", "/../../etc/passwd", "/etc/passwd"),
            ("/a", "/x/../..", "/"),
            ("/", "...", "/..."),
        ] {
            let found = resolve(directory.as_bytes(), argument.as_bytes());
            assert_eq!(
                String::from_utf8_lossy(&found),
                path,
                "{directory} {argument}"
            );
        }
    }
}
