//! Where file systems are mounted: [`is_point`], [`point_above`] and [`device`].
//!
//! All of them follow links, and wait for a file system that doesn't answer.

use std::io;
use std::path::{Path, PathBuf};

/// The device that holds a path.
///
/// # Errors
/// The path isn't there or can't be looked at; [`io::ErrorKind::Unsupported`] on systems that don't
/// tell.
#[cfg(unix)]
pub fn device(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).map(|meta| meta.dev())
}

/// The device that holds a path.
///
/// # Errors
/// Always: this system doesn't tell.
#[cfg(not(unix))]
pub fn device(_path: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether something is mounted at a path. The root is always such a point.
///
/// # Errors
/// As for [`device`].
pub fn is_point(path: &Path) -> io::Result<bool> {
    if path.parent().is_none() && path.has_root() {
        return Ok(true);
    }
    match by_attribute(path)? {
        Some(is_point) => Ok(is_point),
        // Without mounts of a directory elsewhere on its own file system.
        None => Ok(device(path)? != device(&path.join(".."))?),
    }
}

/// The deepest point at or above a path at which something is mounted, without links.
///
/// # Errors
/// As for [`device`].
pub fn point_above(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    for step in path.ancestors() {
        if is_point(step)? {
            return Ok(step.to_owned());
        }
    }
    Ok(path)
}

/// The answer of the kernel; `None` from kernels that have none.
#[cfg(target_os = "linux")]
fn by_attribute(path: &Path) -> io::Result<Option<bool>> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    use rustix::io::Errno;
    match statx(CWD, path, AtFlags::empty(), StatxFlags::empty()) {
        Ok(found) => {
            let point = StatxAttributes::MOUNT_ROOT;
            let is_known = found.stx_attributes_mask.contains(point);
            Ok(is_known.then(|| found.stx_attributes.contains(point)))
        }
        // The second is what some sandboxes answer.
        Err(Errno::NOSYS | Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn by_attribute(_path: &Path) -> io::Result<Option<bool>> {
    Ok(None)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found() {
        assert!(is_point(Path::new("/")).unwrap());
        assert!(is_point(Path::new("/proc")).unwrap());
        assert!(!is_point(Path::new("/proc/self")).unwrap());
        let above = point_above(Path::new("/proc/self/fd")).unwrap();
        assert_eq!(above, Path::new("/proc"));
        let missing = is_point(Path::new("/proc/none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_ne!(
            device(Path::new("/proc")).unwrap(),
            device(Path::new("/")).unwrap()
        );
    }
}
