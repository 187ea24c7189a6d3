//! Calls about paths on local files, as a server has them.

mod change;
mod delta;
mod list;
mod look;
mod random;
mod tree;
mod watched;

use std::path::Path;

use xdfs_proto::path::{Answer, Attributes, Call, Entry};
use xdfs_proto::{Code, Fault};
use xdfs_store::{LocalStore, Store};

use crate::common::*;

/// A root with a secret beside it.
struct Scene {
    temp: tempfile::TempDir,
    store: LocalStore,
}

impl Scene {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("root/d")).unwrap();
        std::fs::write(temp.path().join("secret"), "secret").unwrap();
        std::fs::write(temp.path().join("root/d/file"), "public").unwrap();
        let store = rooted(&temp.path().join("root"));
        Self { temp, store }
    }

    fn root(&self) -> std::path::PathBuf {
        self.temp.path().join("root")
    }

    fn call(&self, call: &Call) -> Result<Answer, Fault> {
        ask(&self.store, call)
    }

    #[track_caller]
    fn done(&self, call: &Call) {
        assert_eq!(self.call(call).unwrap(), Answer::Done, "{call:?}");
    }

    #[track_caller]
    fn refused(&self, call: &Call, code: Code, path: impl AsRef<[u8]>) {
        let result = self.call(call);
        let fault = result.as_ref().map(|_| ()).unwrap_err();
        assert_eq!(fault.operation, call.operation());
        assert_fault(result, code, path);
    }

    fn stat(&self, path: impl AsRef<[u8]>, follow: bool) -> Result<Attributes, Fault> {
        let call = stat(path, follow);
        self.call(&call).map(|answer| match answer {
            Answer::Attributes(attributes) => attributes,
            other => panic!("{other:?}"),
        })
    }

    /// Nothing beside the root was made, changed or removed.
    fn assert_outside_is_whole(&self) {
        assert_eq!(names(self.temp.path()), ["root", "secret"]);
        let secret = std::fs::read(self.temp.path().join("secret")).unwrap();
        assert_eq!(secret, b"secret");
    }
}

/// The answer of a call that has no parts before it.
fn ask(store: &dyn Store, call: &Call) -> Result<Answer, Fault> {
    store.call(call, &mut |part| panic!("{part:?}"))
}

fn bytes(text: impl AsRef<[u8]>) -> Vec<u8> {
    text.as_ref().to_vec()
}

fn stat(path: impl AsRef<[u8]>, follow: bool) -> Call {
    Call::Stat {
        path: bytes(path),
        follow,
    }
}

fn list(path: impl AsRef<[u8]>) -> Call {
    Call::List {
        path: bytes(path),
        cursor: Vec::new(),
        entries_max: u32::MAX,
    }
}

fn make(path: impl AsRef<[u8]>, parents: bool) -> Call {
    Call::MakeDirectory {
        path: bytes(path),
        mode: None,
        parents,
    }
}

fn remove_file(path: impl AsRef<[u8]>) -> Call {
    Call::RemoveFile { path: bytes(path) }
}

fn remove_directory(path: impl AsRef<[u8]>) -> Call {
    Call::RemoveDirectory { path: bytes(path) }
}

fn remove_tree(path: impl AsRef<[u8]>) -> Call {
    Call::RemoveTree { path: bytes(path) }
}

fn rename(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>, overwrite: bool) -> Call {
    Call::Rename {
        from: bytes(from),
        to: bytes(to),
        overwrite,
    }
}

fn copy(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>, overwrite: bool) -> Call {
    Call::Copy {
        from: bytes(from),
        to: bytes(to),
        overwrite,
    }
}

fn link(existing: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Call {
    Call::Link {
        existing: bytes(existing),
        path: bytes(path),
    }
}

fn symlink(target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Call {
    Call::Symlink {
        target: bytes(target),
        path: bytes(path),
    }
}

fn read_link(path: impl AsRef<[u8]>) -> Call {
    Call::ReadLink { path: bytes(path) }
}

fn set_mode(path: impl AsRef<[u8]>, mode: u32) -> Call {
    Call::SetMode {
        path: bytes(path),
        mode,
    }
}

fn set_times(path: impl AsRef<[u8]>, times: [Option<i64>; 2], follow: bool) -> Call {
    Call::SetTimes {
        path: bytes(path),
        atime_ns: times[0],
        mtime_ns: times[1],
        follow,
    }
}

fn set_owner(path: impl AsRef<[u8]>, owner: [Option<u32>; 2], follow: bool) -> Call {
    Call::SetOwner {
        path: bytes(path),
        uid: owner[0],
        gid: owner[1],
        follow,
    }
}

fn truncate(path: impl AsRef<[u8]>, length: u64) -> Call {
    Call::Truncate {
        path: bytes(path),
        length,
    }
}

fn space(path: impl AsRef<[u8]>) -> Call {
    Call::Space { path: bytes(path) }
}

/// Every call, about one path; where there are two, as each of them.
fn every(path: &[u8]) -> Vec<Call> {
    vec![
        stat(path, true),
        stat(path, false),
        list(path),
        make(path, false),
        make(path, true),
        remove_file(path),
        remove_directory(path),
        remove_tree(path),
        rename(path, "new", false),
        rename("d/file", path, true),
        copy(path, "new", false),
        copy("d/file", path, true),
        link(path, "new"),
        link("d/file", path),
        symlink("x", path),
        read_link(path),
        set_mode(path, 0o600),
        set_times(path, [Some(1), Some(2)], true),
        set_times(path, [Some(1), Some(2)], false),
        set_owner(path, [None, None], true),
        set_owner(path, [None, None], false),
        truncate(path, 0),
        space(path),
        look::checksum(path, 0, None),
    ]
}

/// All entries of a directory, by as many calls as it takes, and the number of parts.
fn list_all(store: &dyn Store, path: &[u8], entries_max: u32) -> (Vec<Entry>, usize) {
    let (mut all, mut count, mut cursor) = (Vec::new(), 0, Vec::new());
    loop {
        let (entries, parts, next) = list_some(store, path, cursor, entries_max);
        all.extend(entries);
        count += parts;
        match next {
            Some(next) => cursor = next,
            None => return (all, count),
        }
    }
}

/// What one call lists, in how many parts, and the cursor at its end.
fn list_some(
    store: &dyn Store,
    path: &[u8],
    cursor: Vec<u8>,
    entries_max: u32,
) -> (Vec<Entry>, usize, Option<Vec<u8>>) {
    let call = Call::List {
        path: path.to_vec(),
        cursor,
        entries_max,
    };
    let mut parts = Vec::new();
    let end = store.call(&call, &mut |part| {
        parts.push(part);
        Ok(())
    });
    parts.push(end.unwrap());
    let count = parts.len();
    let (mut all, mut last) = (Vec::new(), None);
    for part in parts {
        let Answer::Entries { entries, cursor } = part else {
            panic!("{part:?}")
        };
        let size: usize = entries.iter().map(|entry| entry.name.len() + 96).sum();
        assert!(size <= (32 << 10) + 512, "a part of {size} bytes");
        all.extend(entries);
        last = cursor;
    }
    assert!(all.len() <= entries_max as usize);
    (all, count, last)
}

fn entry_names(entries: &[Entry]) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    names.sort();
    names
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
