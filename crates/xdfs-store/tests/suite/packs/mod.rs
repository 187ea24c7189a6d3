//! Packs: trees made and read by them, and what a hostile one tries.

mod durable;
mod holes;
mod hostile;
mod read;
mod write;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use xdfs_proto::pack::{
    Content, Entry, Failures, Metadata, PackReader, PackRequest, PackWriter, Preserve,
};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_store::{LocalStore, PackOptions, Store};

use super::common::{names, path_bytes, rooted};

const KEEP: PackOptions = PackOptions {
    overwrite: false,
    relaxed: false,
};
const REPLACE: PackOptions = PackOptions {
    overwrite: true,
    relaxed: false,
};

fn entry<'a>(path: &'a (impl AsRef<[u8]> + ?Sized), content: Content<'a>) -> Entry<'a> {
    Entry {
        path: path.as_ref(),
        metadata: Metadata::default(),
        content,
    }
}

fn file<'a>(path: &'a (impl AsRef<[u8]> + ?Sized), data: &'a str) -> Entry<'a> {
    entry(path, Content::File(data.as_bytes()))
}

fn with<'a>(entry: Entry<'a>, metadata: Metadata<'a>) -> Entry<'a> {
    Entry { metadata, ..entry }
}

fn mode(mode: u16) -> Metadata<'static> {
    Metadata {
        mode: Some(mode),
        ..Metadata::default()
    }
}

fn pack(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut writer = PackWriter::new(Vec::new(), 1 << 20);
    for entry in entries {
        assert!(writer.entry(entry));
    }
    let (buffer, len) = writer.finish();
    buffer[..len].to_vec()
}

/// A directory with a store of it.
struct Scene {
    temp: tempfile::TempDir,
    store: LocalStore,
}

impl Scene {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let store = rooted(temp.path());
        Self { temp, store }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.temp.path().join(name)
    }

    fn write(&self, entries: &[Entry<'_>]) -> Failures {
        self.store.write_pack(b"", KEEP, &pack(entries)).unwrap()
    }

    fn replace(&self, entries: &[Entry<'_>]) -> Failures {
        self.store.write_pack(b"", REPLACE, &pack(entries)).unwrap()
    }

    fn read(&self, names: &[&str], keep: Preserve) -> Vec<u8> {
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        read(&self.store, &names, keep, 1 << 16)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn mode_of(&self, name: &str) -> u32 {
        let meta = fs::symlink_metadata(self.path(name)).unwrap();
        meta.permissions().mode() & 0o7777
    }

    /// Nothing is left that is hidden.
    fn assert_clean(&self) {
        assert_no_hidden(self.temp.path());
    }
}

fn assert_no_hidden(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        assert!(!name.to_string_lossy().contains("xdfs"), "{name:?}");
        if entry.file_type().unwrap().is_dir() {
            assert_no_hidden(&entry.path());
        }
    }
}

fn read(store: &LocalStore, names: &[&[u8]], keep: Preserve, file_bytes_max: u32) -> Vec<u8> {
    let request = PackRequest {
        keep,
        follow: false,
        file_bytes_max,
        names: names.iter().map(|name| name.to_vec()).collect(),
    };
    let mut writer = PackWriter::new(Vec::new(), 1 << 20);
    store.read_pack(b"", &request, &mut writer).unwrap();
    let (buffer, len) = writer.finish();
    buffer[..len].to_vec()
}

fn entries<'a>(pack: &'a [u8], limits: &'a Limits) -> Vec<Entry<'a>> {
    PackReader::new(pack, limits).map(Result::unwrap).collect()
}

#[track_caller]
fn assert_done(failures: &Failures) {
    assert!(failures.is_empty(), "{:?}", failures.runs());
}

/// Asserts that the entry of this number failed, and no other.
#[track_caller]
fn assert_one<'a>(failures: &'a Failures, number: u32, code: Code, path: &str) -> &'a Fault {
    let runs = failures.runs();
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_eq!((runs[0].first, runs[0].count), (number, 1), "{runs:?}");
    let fault = &runs[0].fault;
    assert_eq!(fault.code, code, "{fault}");
    assert_eq!(fault.path.escape_ascii().to_string(), path, "{fault}");
    assert!(!fault.cause.is_empty() && !fault.operation.is_empty());
    fault
}

fn unrooted_pack(root: &Path, entries: &[Entry<'_>]) -> Result<Failures, Fault> {
    LocalStore::unrooted().write_pack(path_bytes(root), KEEP, &pack(entries))
}
