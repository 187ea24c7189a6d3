//! The current users of the users file, without rereading it for each login.
//!
//! A file has changed when its device, inode, length, mode, or time of change or modification has.
//! Since file system clocks have a resolution of some milliseconds, in which a file can change
//! twice, a file modified just before it was read is read again.

use std::fs::Metadata;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use xdfs_proto::fault::Fault;

use super::file::UsersFile;
use super::users::Users;
use crate::key::file::bytes_of;
use crate::trusted::{self, Secrecy};

const LOAD: &str = "load the users";

/// Age at which a change time distinguishes versions: more than the resolution of any file system's
/// clock.
const SETTLED: Duration = Duration::from_secs(3);

/// A [`UsersFile`] and its content when it was last read.
#[derive(Debug)]
pub struct CachedUsers {
    file: UsersFile,
    last: Mutex<Option<(FileVersion, Arc<Users>)>>,
}

impl CachedUsers {
    /// Doesn't read the file yet.
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
    /// Those of [`UsersFile::load`]. If the file is malformed, missing, or not to be believed any
    /// more, an earlier version doesn't let anyone in.
    pub fn current(&self, now: SystemTime) -> Result<Arc<Users>, Fault> {
        let path = self.file.path();
        // Before the content, so that a change in between is detected by the next check.
        let stamp = trusted::open(LOAD, path, Secrecy::Secret)?
            .metadata()
            .map(|meta| FileVersion::of(&meta))
            .map_err(|e| Fault::from_io(LOAD, bytes_of(path), &e))?;
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

/// The attributes that distinguish versions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    bytes: u64,
    modified: Option<SystemTime>,
    /// Device, inode, mode, and change time.
    #[cfg(unix)]
    node: (u64, u64, u32, i64, i64),
}

impl FileVersion {
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

    /// Whether a later change will have another time. False if this one lies in the future.
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
    use std::fs;

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
        // A recently modified file may change unnoticed.
        let young = cached.current(now).unwrap();
        assert!(!Arc::ptr_eq(&young, &cached.current(now).unwrap()));
        let first = cached.current(later).unwrap();
        assert!(Arc::ptr_eq(&first, &cached.current(later).unwrap()));
        file.add("bob", "x").unwrap();
        let second = cached.current(later).unwrap();
        assert_eq!(names(&second), ["alice", "bob"]);
        assert!(Arc::ptr_eq(&second, &cached.current(later).unwrap()));
        // A file readable by others admits nobody, whatever was known before.
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        cached.current(later).unwrap_err();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        cached.current(later).unwrap();
        fs::remove_file(&path).unwrap();
        cached.current(later).unwrap_err();
    }
}
