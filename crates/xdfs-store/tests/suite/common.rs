//! Helpers of the cases.

use std::path::Path;

use xdfs_store::LocalStore;
pub(crate) use xdfs_testkit::stores::{
    BLOCK, TAG, assert_fault, fragment, pattern, put, range, read_all, request, save, write,
};

pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

pub(crate) fn rooted(dir: &Path) -> LocalStore {
    LocalStore::rooted(dir, false).unwrap()
}

/// The names in a directory, in order.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Whether files in a directory can have holes. Says so if not.
#[cfg(unix)]
pub(crate) fn knows_holes(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let file = tempfile::tempfile_in(dir).unwrap();
    file.set_len(1 << 20).unwrap();
    let can = file.metadata().unwrap().blocks() == 0;
    if !can {
        xdfs_testkit::skip::part("this file system knows no holes");
    }
    can
}
