//! What the system here says of entries of the source.

use std::path::Path;

use xdfs_proto::pack::{Metadata, Owner};

/// What names a file that has several names.
#[cfg(unix)]
pub(super) fn several_names(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = std::fs::symlink_metadata(path).ok()?;
    (meta.nlink() > 1 && !meta.is_dir()).then(|| (meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
pub(super) fn several_names(_: &Path) -> Option<(u64, u64)> {
    None
}

/// What names a file in its file system.
#[cfg(unix)]
pub(super) fn identity_of(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = std::fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
pub(super) fn identity_of(_: &Path) -> Option<(u64, u64)> {
    None
}

/// The number of a directory in its file system; 0 if it has none.
#[cfg(unix)]
pub(super) fn inode(meta: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(meta)
}

#[cfg(not(unix))]
pub(super) fn inode(_: &std::fs::Metadata) -> u64 {
    0
}

#[cfg(unix)]
pub(super) fn metadata_of(meta: &std::fs::Metadata) -> Metadata<'static> {
    use std::os::unix::fs::MetadataExt as _;
    let seconds = meta.mtime().checked_mul(1_000_000_000);
    Metadata {
        mode: u16::try_from(meta.mode() & 0o7777).ok(),
        mtime_ns: seconds.and_then(|s| s.checked_add(meta.mtime_nsec())),
        ..Metadata::default()
    }
}

/// The numbers of owner and group.
#[cfg(unix)]
pub(super) fn owner_of(meta: &std::fs::Metadata) -> Option<Owner<'static>> {
    use std::os::unix::fs::MetadataExt as _;
    Some(Owner {
        uid: meta.uid(),
        gid: meta.gid(),
        names: None,
    })
}

#[cfg(not(unix))]
pub(super) fn owner_of(_: &std::fs::Metadata) -> Option<Owner<'static>> {
    None
}

#[cfg(not(unix))]
pub(super) fn metadata_of(_: &std::fs::Metadata) -> Metadata<'static> {
    Metadata::default()
}
