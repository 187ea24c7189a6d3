//! The users as they are in their file now, without reading it for each login.
//!
//! A file is another one when its device, inode, length, mode, or the time of its last change or
//! modification is. A clock of a file system stands still for some milliseconds, in which a file
//! can change twice: what was changed just before it was read is read again.

use std::fs::{self, Metadata};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use xdfs_proto::fault::Fault;

use super::file::UsersFile;
use super::users::Users;
use crate::key::file::bytes_of;

/// Age from which a time of change tells versions apart: more than any clock of a file system.
const SETTLED: Duration = Duration::from_secs(3);

/// A [`UsersFile`] and what it held when it was last read.
#[derive(Debug)]
pub struct CachedUsers {
    file: UsersFile,
    last: Mutex<Option<(Stamp, Arc<Users>)>>,
}

impl CachedUsers {
    /// Reads nothing yet.
    #[must_use]
    pub fn new(file: UsersFile) -> Self {
        Self {
            file,
            last: Mutex::default(),
        }
    }

    /// The users at the time `now`.
    ///
    /// # Errors
    /// Those of [`UsersFile::load`]. Nobody gets in by an earlier version of a file that is damaged
    /// or gone, or that others may read.
    pub fn current(&self, now: SystemTime) -> Result<Arc<Users>, Fault> {
        let path = self.file.path();
        // Before the content: what is written in between is seen as a change by the next look.
        let stamp = fs::metadata(path)
            .map(|meta| Stamp::of(&meta))
            .map_err(|e| Fault::from_io("load the users", bytes_of(path), &e))?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, users)) = &*last
            && *known == stamp
        {
            return Ok(Arc::clone(users));
        }
        *last = None;
        let users = Arc::new(self.file.load()?);
        if stamp.is_settled(now) {
            *last = Some((stamp, Arc::clone(&users)));
        }
        Ok(users)
    }
}

/// What differs between two versions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    /// Device, inode, mode, and the time of the last change of any of it.
    #[cfg(unix)]
    node: (u64, u64, u32, i64, i64),
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            bytes: meta.len(),
            modified: meta.modified().ok(),
            #[cfg(unix)]
            node: {
                use std::os::unix::fs::MetadataExt;
                let changed = (meta.ctime(), meta.ctime_nsec());
                (meta.dev(), meta.ino(), meta.mode(), changed.0, changed.1)
            },
        }
    }

    /// Whether a later change will have another time. Not if this one lies in the future.
    fn is_settled(&self, now: SystemTime) -> bool {
        #[cfg(unix)]
        let changed = u64::try_from(self.node.3)
            .ok()
            .and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        #[cfg(not(unix))]
        let changed = self.modified;
        changed
            .and_then(|changed| now.duration_since(changed).ok())
            .is_some_and(|age| age >= SETTLED)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::super::Parameters;
    use super::*;

    fn names(users: &Users) -> Vec<String> {
        users.names().map(str::to_owned).collect()
    }

    #[test]
    fn a_file_is_read_again_when_it_changed_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let cheap = Parameters::new(7 * 1024, 1, 1).unwrap();
        let file = UsersFile::new(&path).with_parameters(cheap);
        file.add("alice", "x").unwrap();
        let cached = CachedUsers::new(file.clone());
        let (now, later) = (SystemTime::now(), SystemTime::now() + 2 * SETTLED);
        // What is young may change without a sign.
        let young = cached.current(now).unwrap();
        assert!(!Arc::ptr_eq(&young, &cached.current(now).unwrap()));
        let first = cached.current(later).unwrap();
        assert!(Arc::ptr_eq(&first, &cached.current(later).unwrap()));
        file.add("bob", "x").unwrap();
        let second = cached.current(later).unwrap();
        assert_eq!(names(&second), ["alice", "bob"]);
        assert!(Arc::ptr_eq(&second, &cached.current(later).unwrap()));
        // A file that others may read admits nobody, whatever was known before.
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        cached.current(later).unwrap_err();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        cached.current(later).unwrap();
        fs::remove_file(&path).unwrap();
        cached.current(later).unwrap_err();
    }
}
