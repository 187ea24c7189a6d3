//! A file that is reloaded after changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use xdfs_proto::Fault;

use crate::trusted::{self, Secrecy};

/// The content of a file, as of its last valid version.
///
/// An unreadable or malformed version is logged, and the previous one stays in effect: a file that
/// is just being written must not lock everybody out. Files by which users are taken out need
/// other rules: see [`later`](Self::later).
pub(crate) struct Watched<T> {
    path: PathBuf,
    max_bytes: u64,
    operation: &'static str,
    parse: fn(&[u8]) -> Result<T, Fault>,
    /// In place of a version that can't be used; `None` for the previous one.
    lost: Option<fn() -> T>,
    state: Mutex<LastRead<T>>,
}

struct LastRead<T> {
    /// Time of the last check, in seconds; `None` before the first.
    looked_unix: Option<i64>,
    /// The version at the last attempt to load it; `None` if there was no file.
    stamp: Option<FileVersion>,
    value: Arc<T>,
}

impl<T> Watched<T> {
    /// Loads the file at `path`, of at most `max_bytes`. `operation` is for faults.
    pub(crate) fn open(
        path: PathBuf,
        max_bytes: u64,
        operation: &'static str,
        parse: fn(&[u8]) -> Result<T, Fault>,
    ) -> Result<Self, Fault> {
        // Before the content, so that a change in between is detected.
        let stamp = FileVersion::of(&path, operation)?;
        let bytes = trusted::read(operation, &path, max_bytes, Secrecy::Public)?;
        let value = parse(&bytes).map_err(|f| f.path(name(&path)))?;
        let state = LastRead {
            looked_unix: None,
            stamp: Some(stamp),
            value: Arc::new(value),
        };
        Ok(Self {
            path,
            max_bytes,
            operation,
            parse,
            lost: None,
            state: Mutex::new(state),
        })
    }

    /// The same, where later versions are read by `parse`, and one that can't be used counts as
    /// `lost`.
    pub(crate) fn later(self, parse: fn(&[u8]) -> Result<T, Fault>, lost: fn() -> T) -> Self {
        Self {
            parse,
            lost: Some(lost),
            ..self
        }
    }

    /// The present content. Checks the file when `now_unix`, in seconds, isn't the time of the last
    /// check.
    pub(crate) fn current(&self, now_unix: i64) -> Arc<T> {
        // No code panics in the middle of a change, so the state is consistent.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked_unix == Some(now_unix) {
            return Arc::clone(&state.value);
        }
        state.looked_unix = Some(now_unix);
        let (stamp, missing) = match FileVersion::of(&self.path, self.operation) {
            Ok(stamp) => (Some(stamp), None),
            Err(fault) => (None, Some(fault)),
        };
        if stamp == state.stamp {
            return Arc::clone(&state.value);
        }
        state.stamp = stamp;
        let loaded = match missing {
            Some(fault) => Err(fault),
            None => trusted::read(self.operation, &self.path, self.max_bytes, Secrecy::Public)
                .and_then(|bytes| (self.parse)(&bytes).map_err(|f| f.path(name(&self.path)))),
        };
        match loaded {
            Ok(value) => state.value = Arc::new(value),
            Err(fault) => match self.lost {
                None => tracing::warn!(%fault, "keeping the version of before"),
                Some(lost) => {
                    tracing::error!(%fault, "nobody is in it until it can be read");
                    state.value = Arc::new(lost());
                }
            },
        }
        Arc::clone(&state.value)
    }
}

/// The attributes that distinguish versions of a file.
#[derive(PartialEq, Eq)]
struct FileVersion {
    bytes: u64,
    modified: Option<SystemTime>,
    /// Detects a file renamed to this name, and a modification time that was set back.
    #[cfg(unix)]
    inode: (u64, i64, i64),
}

impl FileVersion {
    fn of(path: &Path, operation: &'static str) -> Result<Self, Fault> {
        let opened = trusted::open(operation, path, Secrecy::Public)?;
        let meta = opened.metadata();
        let meta = meta.map_err(|e| Fault::from_io(operation, name(path), &e))?;
        Ok(Self {
            bytes: meta.len(),
            modified: meta.modified().ok(),
            #[cfg(unix)]
            inode: {
                use std::os::unix::fs::MetadataExt;
                (meta.ino(), meta.ctime(), meta.ctime_nsec())
            },
        })
    }
}

fn name(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use xdfs_proto::Code;

    use super::*;

    fn number(bytes: &[u8]) -> Result<u32, Fault> {
        std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| Fault::new(Code::InvalidArgument, "read the number", "it is none"))
    }

    #[test]
    fn follows_the_file_and_survives_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        fs::write(&path, "7").unwrap();
        let file = Watched::open(path.clone(), 4, "read", number).unwrap();
        assert_eq!(*file.current(100), 7);

        fs::write(&path, "42").unwrap();
        assert_eq!(*file.current(100), 7, "not twice a second");
        assert_eq!(*file.current(101), 42);
        // Setting the clock back also causes a check.
        fs::write(&path, "555").unwrap();
        assert_eq!(*file.current(99), 555);

        fs::write(&path, "x").unwrap();
        assert_eq!(*file.current(102), 555, "damaged");
        fs::write(&path, "12345").unwrap();
        assert_eq!(*file.current(103), 555, "too long");
        fs::remove_file(&path).unwrap();
        assert_eq!(*file.current(104), 555);
        fs::write(&path, "8").unwrap();
        assert_eq!(*file.current(105), 8);
    }

    #[cfg(unix)]
    #[test]
    fn sees_a_file_that_was_renamed_to_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        let other = folder.path().join("other");
        fs::write(&path, "1").unwrap();
        fs::write(&other, "2").unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let handle = File::options().write(true).open(&other).unwrap();
        handle.set_modified(modified).unwrap();
        let file = Watched::open(path.clone(), 4, "read", number).unwrap();
        assert_eq!(*file.current(1), 1);
        fs::rename(&other, &path).unwrap();
        assert_eq!(*file.current(2), 2);
    }

    #[test]
    fn refuses_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        let code = |path: &Path| {
            let opened = Watched::open(path.to_owned(), 4, "read", number);
            opened.err().map(|f| (f.code, f.path == name(path)))
        };
        assert_eq!(code(&path), Some((Code::NotFound, true)));
        assert_eq!(code(folder.path()), Some((Code::NotRegularFile, true)));
        fs::write(&path, "x").unwrap();
        assert_eq!(code(&path), Some((Code::InvalidArgument, true)));
        fs::write(&path, "12345").unwrap();
        assert_eq!(code(&path), Some((Code::LimitExceeded, true)));
    }
}
