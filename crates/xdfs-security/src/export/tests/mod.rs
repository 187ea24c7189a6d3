//! All kinds of exports, and what all kinds of peers may do there.

mod access;
mod calls;
mod config;
mod delta;
mod over_store;
mod packs;
mod quota;
#[cfg(unix)]
mod scopes;

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use xdfs_proto::SourceTag;
use xdfs_proto::digest::{BlockHasher, ChecksumKind, DigestKind};
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, Fault, FileId};
use xdfs_store::{OpenedSink, PackOptions, SinkRequest, Store};

use super::*;
use crate::Scope;

fn user(name: &str) -> Principal {
    Principal {
        user: name.into(),
        method: Method::Key,
        scopes: Vec::new(),
    }
}

fn anonymous() -> Principal {
    Principal {
        method: Method::Anonymous,
        ..user("anonymous")
    }
}

fn scoped(name: &str, scopes: &[(&str, Rights)]) -> Principal {
    let scopes = scopes
        .iter()
        .map(|(path, rights)| Scope::new(path.as_bytes().to_vec(), *rights));
    Principal {
        method: Method::Token,
        scopes: scopes.collect(),
        ..user(name)
    }
}

/// Parses settings in which ROOT stands for a directory.
fn parse(root: &Path, text: &str) -> Result<Exports, Fault> {
    let text = text.replace("ROOT", root.to_str().unwrap());
    Exports::new(toml::from_str(&text).unwrap())
}

fn store(exports: &Exports, principal: &Principal) -> Arc<dyn Store> {
    exports.store_for(principal).unwrap()
}

fn request(path: &str) -> SinkRequest {
    SinkRequest {
        path: path.as_bytes().to_vec(),
        name: Vec::new(),
        offset: 0,
        length: None,
        tag: SourceTag([7; 16]),
        mode: None,
        mtime_ns: None,
        digest: DigestKind::Crc64Nvme,
        block_size: 4096,
        overwrite: false,
        resume: Resume::Trust,
        sparse: false,
    }
}

fn forced(path: &str) -> SinkRequest {
    SinkRequest {
        overwrite: true,
        ..request(path)
    }
}

fn of_length(path: &str, length: u64) -> SinkRequest {
    SinkRequest {
        length: Some(length),
        ..forced(path)
    }
}

fn write(opened: &mut OpenedSink, offset: u64, count: usize) -> Result<(), Fault> {
    opened
        .sink
        .write_at(offset, &[IoSlice::new(&vec![1; count])])
}

/// Writes bytes, makes them durable, and records them, so that the file can be resumed.
fn save(opened: &mut OpenedSink, offset: u64, count: usize) {
    write(opened, offset, count).unwrap();
    opened.sink.sync().unwrap();
    let mut hasher = BlockHasher::new(DigestKind::Crc64Nvme, false, offset);
    hasher.update(&vec![1; count]);
    let fragment = hasher.finish(FileId(1)).1;
    opened.sink.record(&[fragment]).unwrap();
}

fn put(store: &dyn Store, request: &SinkRequest, count: usize) -> Result<Vec<u8>, Fault> {
    let mut opened = store.open_sink(request)?;
    write(&mut opened, 0, count)?;
    opened.sink.publish(count as u64, &[])?;
    Ok(opened.path)
}

fn read(store: &dyn Store, path: &str) -> Result<Vec<u8>, Fault> {
    let mut source = store.open_source(path.as_bytes())?;
    let mut bytes = vec![0; 1000];
    let count = source.read_at(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

#[track_caller]
fn assert_fault<T>(result: Result<T, Fault>, code: Code, path: &str) -> Fault {
    let fault = result.map(|_| ()).unwrap_err();
    assert_eq!(fault.code, code, "{fault}");
    assert_eq!(fault.path.escape_ascii().to_string(), path, "{fault}");
    assert!(!fault.cause.is_empty());
    fault
}

/// The names in a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
