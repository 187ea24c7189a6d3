//! Relative paths in a shell.

use xdfs::{Code, Fault};

/// An absolute path on the server. `.` and `..` are resolved lexically. A path written as a
/// directory ends in a slash.
///
/// # Errors
/// It is empty.
pub(crate) fn absolute(directory: &[u8], path: &[u8]) -> Result<Vec<u8>, Fault> {
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
    let mut out = Vec::with_capacity(directory.len() + path.len() + 2);
    for part in &parts {
        out.push(b'/');
        out.extend_from_slice(part);
    }
    if is_directory || parts.is_empty() {
        out.push(b'/');
    }
    Ok(out)
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
            let found = absolute(directory.as_bytes(), path.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(found).unwrap(), expected, "{path}");
        }
        assert_eq!(absolute(b"/", b"").unwrap_err().code, Code::InvalidArgument);
    }
}
