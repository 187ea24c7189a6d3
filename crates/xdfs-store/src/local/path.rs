//! Paths and names as bytes: splitting, and reserved names.
//!
//! Nothing here decides whether a path stays beneath a root: the kernel does. Paths are only split
//! at separators.

use std::io;
use std::path::PathBuf;

use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{self, ResolveError};

pub(super) const OPEN_TARGET: &str = "open the target";

/// Suffix of a partial file.
pub(super) const PARTIAL_SUFFIX: &str = ".xdfs-part";
/// Suffix of a journal.
pub(super) const JOURNAL_SUFFIX: &str = ".xdfs-journal";
/// Suffix of a journal during compaction.
pub(super) const NEW_JOURNAL_SUFFIX: &str = ".xdfs-journal-new";
/// Longest name on common file systems, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Longest name of a target that fits into a hidden name.
const WHOLE_BYTES_MAX: usize = NAME_BYTES_MAX - NEW_JOURNAL_SUFFIX.len() - 1;
/// Hexadecimal digits of the hash that replaces the rest of a longer name.
const HASH_DIGITS: usize = 32;

/// The hidden files beside a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HiddenNames {
    pub(super) partial: Vec<u8>,
    pub(super) journal: Vec<u8>,
    pub(super) new_journal: Vec<u8>,
}

impl HiddenNames {
    pub(super) fn of(name: &[u8]) -> Self {
        let stem = stem(name);
        let with = |suffix: &str| [b".", &*stem, suffix.as_bytes()].concat();
        Self {
            partial: with(PARTIAL_SUFFIX),
            journal: with(JOURNAL_SUFFIX),
            new_journal: with(NEW_JOURNAL_SUFFIX),
        }
    }
}

/// The name or, if it is too long, as much of its beginning as fits and a hash of the whole.
fn stem(name: &[u8]) -> Vec<u8> {
    if name.len() <= WHOLE_BYTES_MAX {
        return name.to_vec();
    }
    let mut cut = WHOLE_BYTES_MAX - HASH_DIGITS - 1;
    // Not within a character, for file systems that require UTF-8.
    while cut > 0 && name[cut] & 0xC0 == 0x80 {
        cut -= 1;
    }
    let hash = blake3::hash(name).to_hex();
    [&name[..cut], b"~", &hash.as_bytes()[..HASH_DIGITS]].concat()
}

/// Whether a name is that of a partial file or a journal, also on file systems that ignore case or
/// drop trailing dots and blanks.
pub(super) fn is_hidden_name(name: &[u8]) -> bool {
    has_ending(name, &[PARTIAL_SUFFIX, JOURNAL_SUFFIX, NEW_JOURNAL_SUFFIX])
}

/// The part of a hidden name that all hidden files of a target have in common: the target's name,
/// or as much of it as [`HiddenNames`] takes.
pub(super) fn stem_of_hidden(name: &[u8]) -> Option<&[u8]> {
    let name = name.strip_prefix(b".")?;
    let suffixes = [PARTIAL_SUFFIX, JOURNAL_SUFFIX, NEW_JOURNAL_SUFFIX];
    let mut stems = suffixes
        .iter()
        .filter_map(|suffix| name.strip_suffix(suffix.as_bytes()));
    stems.next().filter(|stem| {
        // Longer ones, and those of other names, were not made by a transfer.
        stem.len() <= WHOLE_BYTES_MAX && !matches!(*stem, b"" | b"." | b"..")
    })
}

/// Whether a name is that of a journal, under the same rules.
pub(super) fn is_journal_name(name: &[u8]) -> bool {
    has_ending(name, &[JOURNAL_SUFFIX, NEW_JOURNAL_SUFFIX])
}

/// Names of the journals that may belong to a partial file.
pub(super) fn journals_of_partial(name: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let stem = name.strip_suffix(PARTIAL_SUFFIX.as_bytes());
    let stem = stem.unwrap_or(name).to_vec();
    let suffixes = [JOURNAL_SUFFIX, NEW_JOURNAL_SUFFIX].into_iter();
    suffixes.map(move |suffix| [&*stem, suffix.as_bytes()].concat())
}

fn has_ending(name: &[u8], suffixes: &[&str]) -> bool {
    if !name.starts_with(b".") {
        return false;
    }
    let end = name
        .iter()
        .rposition(|b| !matches!(b, b'.' | b' '))
        .map_or(0, |i| i + 1);
    let name = name[..end].to_ascii_lowercase();
    suffixes
        .iter()
        .any(|suffix| name.ends_with(suffix.as_bytes()))
}

/// The fault of a reserved name.
pub(super) fn hidden_fault(operation: &str, path: &[u8]) -> Fault {
    let cause = "names of this form belong to unfinished transfers";
    Fault::new(Code::PermissionDenied, operation, cause)
        .path(path)
        .hint("use another name")
}

/// Refuses bytes that are invalid in paths.
pub(super) fn check_bytes(operation: &str, path: &[u8]) -> Result<(), Fault> {
    if path.contains(&0) {
        let cause = "the path has a zero byte";
        return Err(Fault::new(Code::InvalidArgument, operation, cause).path(path));
    }
    Ok(())
}

/// A path under the usual rules of the process.
pub(super) fn ordinary(operation: &str, path: &[u8]) -> Result<PathBuf, Fault> {
    if path.is_empty() {
        return Err(Fault::new(
            Code::InvalidArgument,
            operation,
            "the path is empty",
        ));
    }
    fs::path_from_bytes(path).map_err(|error| bad_path(operation, path, &error))
}

fn bad_path(operation: &str, path: &[u8], error: &io::Error) -> Fault {
    Fault::new(Code::InvalidArgument, operation, error.to_string()).path(path)
}

/// A peer's path without the leading '/', which means the root.
pub(super) fn beneath(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|&b| b != b'/').unwrap_or(path.len());
    &path[start..]
}

/// The parent and the last component. The last component is empty if the path can only name a
/// directory: it is empty, or ends in '/', '.' or '..'.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let cut = path.iter().rposition(is_separator).map_or(0, |i| i + 1);
    let (parent, last) = path.split_at(cut);
    if last.is_empty() || last == b"." || last == b".." {
        (path, b"")
    } else {
        (parent, last)
    }
}

pub(super) fn is_separator(byte: &u8) -> bool {
    *byte == b'/' || (cfg!(windows) && *byte == b'\\')
}

/// The fault of a path that can't be resolved.
pub(super) fn resolve_fault(operation: &str, path: &[u8], error: &ResolveError) -> Fault {
    match error {
        ResolveError::Io(error) if error.kind() == io::ErrorKind::InvalidInput => {
            bad_path(operation, path, error)
        }
        ResolveError::Io(error) => Fault::from_io(operation, path, error),
        error => Fault::new(Code::PathEscape, operation, error.to_string())
            .path(path)
            .hint("name a file within the directory that the server offers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_fit_and_differ() {
        for length in [1, 100, WHOLE_BYTES_MAX, WHOLE_BYTES_MAX + 1, 254, 255, 4000] {
            let names = HiddenNames::of("é".repeat(length).as_bytes());
            for name in [&names.partial, &names.journal, &names.new_journal] {
                assert!(name.len() <= NAME_BYTES_MAX, "{length}: {}", name.len());
                assert!(is_hidden_name(name));
                let stem = stem_of_hidden(name).unwrap();
                assert_eq!(HiddenNames::of(stem), names);
                assert!(str::from_utf8(name).is_ok());
            }
        }
        let long = |last: char| HiddenNames::of(format!("{}{last}", "x".repeat(254)).as_bytes());
        assert_ne!(long('a'), long('b'));
        // Continuation bytes only.
        assert!(HiddenNames::of(&[0x80; 255]).partial.len() <= NAME_BYTES_MAX);
    }

    #[test]
    fn our_names_are_known_in_every_dress() {
        for name in [
            ".a.xdfs-part",
            ".A.XDFS-Part",
            ".a.xdfs-journal",
            ".a.xdfs-part. .",
        ] {
            assert!(is_hidden_name(name.as_bytes()), "{name}");
        }
        for name in ["a.xdfs-part", ".xdfs", ".a.xdfs-partial", "", "."] {
            assert!(!is_hidden_name(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn paths_are_cut_at_the_last_component() {
        let cut = |p: &str| {
            let (parent, last) = split(p.as_bytes());
            (
                String::from_utf8_lossy(parent).into_owned(),
                String::from_utf8_lossy(last).into_owned(),
            )
        };
        assert_eq!(cut("a/b"), ("a/".into(), "b".into()));
        assert_eq!(cut("b"), (String::new(), "b".into()));
        assert_eq!(cut("/b"), ("/".into(), "b".into()));
        for dir in ["", "/", "a/", "a/.", "..", "a/..", "."] {
            assert_eq!(cut(dir), (dir.to_owned(), String::new()), "{dir}");
        }
    }
}
