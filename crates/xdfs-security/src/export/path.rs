//! Client paths including the export, and the coverage of scopes.

use xdfs_proto::{Code, Fault};

use super::Rights;
use crate::Scope;

/// A normalised client path: components with one '/' between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clean {
    /// Without '/' at either end; empty for the root.
    pub(super) path: Vec<u8>,
    /// It began with '/'.
    pub(super) is_absolute: bool,
    /// It can only name a directory.
    pub(super) is_directory: bool,
}

impl Clean {
    /// Normalises a path. Empty components and '.' are dropped. '..' is refused: its meaning
    /// depends on links, which only the kernel can follow, and that would be after the check of
    /// rights.
    pub(super) fn of(operation: &str, path: &[u8]) -> Result<Self, Fault> {
        if path.contains(&0) {
            let cause = "the path has a zero byte";
            return Err(Fault::new(Code::InvalidArgument, operation, cause).path(path));
        }
        if cfg!(windows) && path.contains(&b'\\') {
            let cause = "components are separated by '/', not by a backslash";
            return Err(Fault::new(Code::InvalidArgument, operation, cause).path(path));
        }
        let mut clean = Self {
            path: Vec::with_capacity(path.len()),
            is_absolute: path.starts_with(b"/"),
            is_directory: true,
        };
        for component in path.split(|&b| b == b'/') {
            clean.is_directory = matches!(component, b"" | b".");
            if component == b".." {
                return Err(Fault::new(Code::PathEscape, operation, "the path has '..'")
                    .path(path)
                    .hint("name the directories on the way down only"));
            }
            if !clean.is_directory {
                if !clean.path.is_empty() {
                    clean.path.push(b'/');
                }
                clean.path.extend(component);
            }
        }
        Ok(clean)
    }

    /// The first component, and the rest.
    pub(super) fn split_first(&self) -> (&[u8], &[u8]) {
        match self.path.iter().position(|&b| b == b'/') {
            Some(cut) => (&self.path[..cut], &self.path[cut + 1..]),
            None => (&self.path, b""),
        }
    }
}

/// The rights that scopes grant at a normalised path: those of all covering scopes; all rights if
/// there are no scopes.
pub(super) fn rights_by_scopes(scopes: &[Scope], path: &[u8]) -> Rights {
    if scopes.is_empty() {
        return Rights::ALL;
    }
    scopes
        .iter()
        .filter(|scope| covers(&scope.path, path))
        .fold(Rights::NONE, |rights, scope| rights | scope.rights)
}

/// Whether a scope can lie beneath a normalised path.
pub(super) fn leads_to_scope(scopes: &[Scope], path: &[u8]) -> bool {
    let leads = |scope: &Scope| {
        let clean = Clean::of("", &scope.path);
        covers(&scope.path, path) || clean.is_ok_and(|clean| covers(path, &clean.path))
    };
    scopes.is_empty() || scopes.iter().any(leads)
}

/// Whether a normalised path is the scope's or beneath it. An invalid scope covers nothing.
fn covers(scope: &[u8], path: &[u8]) -> bool {
    let Ok(scope) = Clean::of("", scope) else {
        return false;
    };
    if scope.path.is_empty() {
        return true;
    }
    path.strip_prefix(&*scope.path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(path: &str) -> (String, bool) {
        let clean = Clean::of("", path.as_bytes()).unwrap();
        (String::from_utf8(clean.path).unwrap(), clean.is_directory)
    }

    #[test]
    fn paths_have_one_form() {
        for (path, expected, is_directory) in [
            ("", "", true),
            ("/", "", true),
            (".", "", true),
            ("a", "a", false),
            ("//a", "a", false),
            ("/a//./b", "a/b", false),
            ("a/b/", "a/b", true),
            ("a/b/.", "a/b", true),
            ("./mem:zero", "mem:zero", false),
            ("a/...", "a/...", false),
            ("a/..b", "a/..b", false),
        ] {
            assert_eq!(clean(path), (expected.to_owned(), is_directory), "{path}");
        }
        for path in ["..", "a/..", "../a", "a/../b", "/..", "a/b/../.."] {
            let fault = Clean::of("open", path.as_bytes()).unwrap_err();
            assert_eq!(
                (fault.code, &*fault.path),
                (Code::PathEscape, path.as_bytes())
            );
        }
        let fault = Clean::of("open", b"a\0b").unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument);
    }

    #[test]
    fn a_scope_covers_whole_components() {
        for (scope, path) in [
            ("", ""),
            ("", "foo"),
            ("/", "foo"),
            ("foo", "foo"),
            ("foo", "foo/bar"),
            ("/foo/", "foo/bar"),
            ("foo/bar", "foo/bar/x"),
        ] {
            assert!(covers(scope.as_bytes(), path.as_bytes()), "{scope} {path}");
        }
        for (scope, path) in [
            ("foo", "foobar"),
            ("foo", "foobar/x"),
            ("foo", "fo"),
            ("foo", ""),
            ("foo/bar", "foo"),
            ("foo/bar", "foo/ba"),
            ("foo", "FOO"),
            ("foo/..", "bar"),
            ("..", "foo"),
            ("\0", "foo"),
        ] {
            assert!(!covers(scope.as_bytes(), path.as_bytes()), "{scope} {path}");
        }
    }

    #[test]
    fn rights_of_scopes_add_up_where_they_cover() {
        let scope = |path: &str, rights| Scope::new(path.into(), rights);
        let scopes = [
            scope("a", Rights::READ),
            scope("a/b", Rights::CREATE),
            scope("c", Rights::ALL),
        ];
        let rights = |path: &str| rights_by_scopes(&scopes, path.as_bytes());
        assert_eq!(rights("a/x"), Rights::READ);
        assert_eq!(rights("a/b/x"), Rights::READ | Rights::CREATE);
        assert_eq!(rights("b"), Rights::NONE);
        assert_eq!(rights_by_scopes(&[], b"x"), Rights::ALL);
    }
}
