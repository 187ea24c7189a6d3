//! Hints about directories that a target on a server needs and that aren't there.

use xdfs::operations::path::parent;
use xdfs::{Code, Fault, RemotePlace, Side, quoted};

use crate::place::word_of;

/// The hint of a server, which doesn't know how its client makes directories.
const OF_SERVER: &str = "make the directory first";

/// Whether a fault says that something is missing, and nothing better about it than
/// [`OF_SERVER`].
pub(crate) fn lacks_hint(fault: &Fault) -> bool {
    fault.code == Code::NotFound && (fault.hint.is_empty() || fault.hint == OF_SERVER)
}

/// Adds to a fault how to make the directory that the path `target` on a server needs, if the fault
/// says that it is missing. The target is what is to be made, or with a slash at the end the
/// directory in which something is to be made.
pub(crate) fn hinted(fault: Fault, server: &RemotePlace, target: &[u8]) -> Fault {
    let is_missing = lacks_hint(&fault)
        && fault.side == Side::Remote
        && fault.machine == Some(server.address.machine())
        && is_about(&fault.path, target);
    match is_missing {
        true => fault.hint(hint(server, target)),
        false => fault,
    }
}

/// How to make the directory that the path `target` on a server needs.
pub(crate) fn hint(server: &RemotePlace, target: &[u8]) -> String {
    let directory = match target.strip_suffix(b"/") {
        Some(directory) => directory,
        None => parent(target),
    };
    let place = RemotePlace {
        path: directory.to_vec(),
        ..server.clone()
    };
    match word_of(&place) {
        Some(word) => format!(
            "make it with xdfs mkdir -p {}",
            typed(&word.to_string_lossy())
        ),
        None => "make its directory first".to_owned(),
    }
}

/// Whether a path is that of a target, or leads to it or from it.
fn is_about(path: &[u8], target: &[u8]) -> bool {
    let parts = |path: &[u8]| {
        let parts = path.split(|&byte| byte == b'/');
        let parts = parts.filter(|part| !part.is_empty() && *part != b"." && *part != b"~");
        parts.map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let (path, target) = (parts(path), parts(target));
    path.starts_with(&target) || target.starts_with(&path)
}

/// A word as it can be typed in a shell.
fn typed(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/:@._-+,=%~[]".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => quoted(word.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use xdfs::Machine;

    use super::*;

    #[test]
    fn the_directory_of_a_target_is_named() {
        for (url, wanted) in [
            ("xdfs://lab/no/", "xdfs://lab:2799/no"),
            ("xdfs://lab:2800/no/deep/x", "xdfs://lab:2800/no/deep"),
            ("xdfs://lab:2800/a%20b/x", "xdfs://lab:2800/a%20b"),
            ("ftp://lab:2121/no/x", "ftp://lab:2121/no"),
        ] {
            let target: RemotePlace = url.parse().unwrap();
            assert_eq!(
                hint(&target, &target.path),
                format!("make it with xdfs mkdir -p {wanted}")
            );
        }
        let named = RemotePlace {
            profile: Some("lab".into()),
            ..RemotePlace::from_str("xdfs://h/a b/x").unwrap()
        };
        assert_eq!(
            hint(&named, &named.path),
            "make it with xdfs mkdir -p 'lab:/a b'"
        );
    }

    #[test]
    fn only_a_missing_target_has_the_hint() {
        let target: RemotePlace = "xdfs://lab/no/x".parse().unwrap();
        let missing = |path: &str| {
            let fault = Fault::new(Code::NotFound, "open the target", "no such directory");
            fault.path(path).remote().at(&Machine::server("lab"))
        };
        for path in ["/no/x", "/no", "no/x", "/no/x/deep"] {
            assert!(
                !hinted(missing(path), &target, &target.path).hint.is_empty(),
                "{path}"
            );
        }
        let other = missing("/no/x").local();
        for fault in [
            missing("/yes"),
            Fault {
                machine: None,
                ..other
            },
        ] {
            assert_eq!(hinted(fault.clone(), &target, &target.path), fault);
        }
    }
}
