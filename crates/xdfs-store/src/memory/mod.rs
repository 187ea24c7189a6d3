//! Objects in memory: for tests, and for programs that keep the data they move.
//!
//! Names are flat: '/' has no meaning, except that a path that ends in it takes the name of the
//! request. Nothing is durable, so nothing is resumed; publishing is atomic.

mod sink;
mod source;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use xdfs_proto::{Code, Fault};

use crate::{OpenedSink, SinkRequest, Source, Store};

/// Default maximum size of an object; see [`MemStore::with_limit`].
const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// A store of named objects in memory. Clones share the objects.
#[derive(Clone, Debug)]
pub struct MemStore {
    shared: Arc<Mutex<Shared>>,
    object_bytes_max: u64,
}

#[derive(Debug, Default)]
struct Shared {
    objects: BTreeMap<Vec<u8>, Object>,
    /// Number of publications, which identifies versions.
    versions: u64,
}

/// A published object. Its bytes never change; a new version is a new object.
#[derive(Clone, Debug)]
struct Object {
    bytes: Arc<Vec<u8>>,
    mode: Option<u32>,
    mtime_ns: Option<i64>,
    version: u64,
}

impl MemStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(OBJECT_BYTES_MAX)
    }

    /// An empty store for objects of up to `object_bytes_max` bytes.
    #[must_use]
    pub fn with_limit(object_bytes_max: u64) -> Self {
        Self {
            shared: Arc::default(),
            object_bytes_max,
        }
    }

    /// Stores an object, replacing any of the same name.
    pub fn insert(&self, name: impl AsRef<[u8]>, bytes: Vec<u8>) {
        self.lock().put(name.as_ref(), bytes, None, None);
    }

    /// The bytes of an object.
    #[must_use]
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<Arc<Vec<u8>>> {
        self.lock()
            .objects
            .get(name.as_ref())
            .map(|object| Arc::clone(&object.bytes))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Each change leaves the map consistent.
        self.shared
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn name_of(request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        let path = &request.path;
        if !path.is_empty() && !path.ends_with(b"/") {
            return Ok(path.clone());
        }
        if request.name.is_empty() {
            let fault = Fault::new(Code::IsDirectory, "open the target", "it names no object");
            return Err(fault.path(path));
        }
        Ok([path.as_slice(), &request.name].concat())
    }
}

impl Default for MemStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    fn put(&mut self, name: &[u8], bytes: Vec<u8>, mode: Option<u32>, mtime_ns: Option<i64>) {
        self.versions += 1;
        let version = self.versions;
        self.objects.insert(
            name.to_vec(),
            Object {
                bytes: Arc::new(bytes),
                mode,
                mtime_ns,
                version,
            },
        );
    }
}

/// The fault of an existing target.
fn exists(operation: &str, name: &[u8]) -> Fault {
    Fault::new(Code::AlreadyExists, operation, "the target exists")
        .path(name)
        .hint("use --force to overwrite")
}

impl Store for MemStore {
    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        let object = self.lock().objects.get(path).cloned().ok_or_else(|| {
            Fault::new(Code::NotFound, "open the source", "no such object").path(path)
        })?;
        Ok(Box::new(source::MemSource::new(object)))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        let name = self.check_sink(request)?;
        let limit = self.object_bytes_max;
        if request.length.is_some_and(|length| length > limit) {
            let cause = format!("an object in memory may have {limit} bytes");
            return Err(Fault::new(Code::NoSpace, "open the target", cause).path(&name));
        }
        Ok(OpenedSink {
            path: name.clone(),
            sink: Box::new(sink::MemSink::new(self.clone(), name, request)),
            durable: Vec::new(),
            unverified: false,
            block_size: request.block_size,
        })
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        let name = Self::name_of(request)?;
        if !request.overwrite && self.lock().objects.contains_key(&name) {
            return Err(exists("open the target", &name));
        }
        Ok(name)
    }

    crate::defaults!(Store: is_slow, read_pack, write_pack, packs_wait, call, open_file);
}
