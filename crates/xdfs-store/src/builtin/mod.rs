//! `mem:zero` and `mem:null`: an endless source of zeros, and a sink that discards everything. They
//! measure a path between two programs without involving a disk.
//!
//! A server offers both beside its files: see [`ServerStore`].

mod sink;
mod source;

pub use sink::NullSink;
pub use source::ZeroSource;

use std::sync::Arc;

use xdfs_proto::pack::{Failures, PackRequest, PackWriter};
use xdfs_proto::path::{Answer, Attributes, Call, FileKind};
use xdfs_proto::{Code, Fault};

use crate::{FileRequest, OpenedFile, OpenedSink, PackOptions, SinkRequest, Source, Store};

/// The path of the endless source of zeros.
pub const ZERO: &[u8] = b"mem:zero";
/// The path of the sink that discards everything.
pub const NULL: &[u8] = b"mem:null";
const PREFIX: &[u8] = b"mem:";

/// The store of a server: its files and the built-in paths. A leading '/' of a built-in name is
/// ignored. A file whose name begins like a built-in one is reached through `./`.
#[derive(Clone, Debug)]
pub struct ServerStore {
    files: Arc<dyn Store>,
}

impl ServerStore {
    /// Adds the built-in paths to a store of files.
    #[must_use]
    pub fn new(files: impl Store + 'static) -> Self {
        let files: Arc<dyn Store> = Arc::new(files);
        files.into()
    }
}

impl From<Arc<dyn Store>> for ServerStore {
    /// Adds the built-in paths to a store that others have too.
    fn from(files: Arc<dyn Store>) -> Self {
        Self { files }
    }
}

/// The built-in name of a path, if it is one.
fn built_in(path: &[u8]) -> Option<&[u8]> {
    let name = path.strip_prefix(b"/").unwrap_or(path);
    name.starts_with(PREFIX).then_some(name)
}

fn refuse(operation: &str, name: &[u8], other_way: &[u8], verb: &str) -> Fault {
    if name == other_way {
        return Fault::new(
            Code::Unsupported,
            operation,
            format!("it can only be {verb}"),
        )
        .path(name);
    }
    Fault::new(
        Code::NotFound,
        operation,
        "nothing with this name is built in",
    )
    .path(name)
    .hint("there are mem:zero to read and mem:null to write")
}

/// Attributes of all built-in paths: those of a device.
#[must_use]
pub fn attributes() -> Attributes {
    Attributes {
        kind: FileKind::CharacterDevice,
        size: 0,
        allocated: 0,
        mode: 0o666,
        uid: 0,
        gid: 0,
        links: 1,
        device: 0,
        inode: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
    }
}

fn no_directory(operation: &str, name: &[u8]) -> Fault {
    Fault::new(Code::NotDirectory, operation, "it is built in").path(name)
}

/// The paths of a call: one or two.
fn paths(call: &Call) -> [&[u8]; 2] {
    match call {
        Call::Rename { from, to, .. } | Call::Copy { from, to, .. } => [from, to],
        Call::Link { existing, path } => [existing, path],
        Call::Seed(seed) => [&seed.from, &seed.to],
        call => [call.path(); 2],
    }
}

impl Store for ServerStore {
    crate::forward!(Store to files: is_slow);

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        match built_in(path) {
            None => self.files.open_source(path),
            Some(ZERO) => Ok(Box::new(ZeroSource::new(None))),
            Some(name) => Err(refuse("open the source", name, NULL, "written")),
        }
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        if built_in(&request.path).is_none() {
            return self.files.open_sink(request);
        }
        Ok(OpenedSink {
            path: self.check_sink(request)?,
            sink: Box::new(NullSink::new()),
            durable: Vec::new(),
            unverified: false,
            block_size: request.block_size,
        })
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        match built_in(&request.path) {
            None => self.files.check_sink(request),
            Some(NULL) => Ok(NULL.to_vec()),
            Some(name) => Err(refuse("open the target", name, ZERO, "read")),
        }
    }

    fn read_pack(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        match built_in(root) {
            None => self.files.read_pack(root, request, pack),
            Some(name) => Err(no_directory("read", name)),
        }
    }

    fn write_pack(
        &self,
        root: &[u8],
        options: PackOptions,
        pack: &[u8],
    ) -> Result<Failures, Fault> {
        match built_in(root) {
            None => self.files.write_pack(root, options, pack),
            Some(name) => Err(no_directory("write", name)),
        }
    }

    fn packs_wait(&self, root: &[u8]) -> bool {
        built_in(root).is_none() && self.files.packs_wait(root)
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        let Some(name) = paths(call).into_iter().find_map(built_in) else {
            return self.files.call(call, part);
        };
        match (call, name) {
            (Call::Stat { .. }, ZERO | NULL) => Ok(Answer::Attributes(attributes())),
            (Call::LookUp { .. }, _) => self.files.call(call, part),
            (_, ZERO | NULL) => {
                let fault = Fault::new(Code::Unsupported, call.operation(), "it is built in");
                Err(fault.path(name))
            }
            _ => Err(refuse(call.operation(), name, b"", "")),
        }
    }

    fn open_file(&self, request: &FileRequest) -> Result<OpenedFile, Fault> {
        match built_in(&request.path) {
            None => self.files.open_file(request),
            Some(name) => Err(crate::layer::no_files(name)),
        }
    }
}
