//! Temporary names of large files that replace entries other than files.

use std::collections::HashSet;

use crate::paths::{Entry, FileKind, join};
use crate::tree::tracker::split;

/// Temporary names tried per file.
pub(super) const NAMES: u32 = 8;
const PREFIX: &str = ".xdfs-swap-";

/// A temporary path in the directory of a file.
pub(super) fn beside(path: &[u8], number: u32) -> Vec<u8> {
    let hash = blake3::hash(path).to_hex();
    let name = format!("{PREFIX}{}-{number}", &hash[..16]);
    join(split(path).0, name.as_bytes())
}

/// Takes the temporary files of interrupted swaps from the listing of a target directory: files
/// with the temporary name of an entry in the directory. Other names of that form may belong to
/// anybody.
pub(super) fn take_left_over(
    directory: &[u8],
    source: &[Entry],
    target: &mut Vec<Entry>,
) -> Vec<(Vec<u8>, Entry)> {
    let is_of_form = |entry: &Entry| {
        entry.attributes.kind == FileKind::File && entry.name.starts_with(PREFIX.as_bytes())
    };
    if !target.iter().any(is_of_form) {
        return Vec::new();
    }
    let paths = source.iter().chain(&*target);
    let paths = paths.map(|entry| join(directory, &entry.name));
    let ours: HashSet<_> = paths
        .flat_map(|path| (0..NAMES).map(move |number| beside(&path, number)))
        .collect();
    let left = target.extract_if(.., |entry| {
        is_of_form(entry)
            && ours.contains(&join(directory, &entry.name))
            && !source.iter().any(|other| other.name == entry.name)
    });
    left.map(|entry| (join(directory, &entry.name), entry))
        .collect()
}
