//! Places in memory: `mem://NAME/path`. All sessions of this process with one name have the same
//! files, and with the process they are gone.
//!
//! A program registers [`SCHEME`] once, by `xdfs::register_scheme(xdfs_place_mem::SCHEME)`. From
//! then on `mem://` URLs are places like any other: to be copied, synchronised, compared, listed.
//!
//! - `tree` has the names, and answers calls about them.
//! - `content` has the sources and sinks.
//! - this file makes a store of both, and a kind of place of the store.

#![forbid(unsafe_code)]

mod content;
mod tree;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs::security::Level;
use xdfs::store::{
    Failures, OpenedSink, PackOptions, PackRequest, PackWriter, Place, SinkRequest, Source, Store,
    Traits, checksum, defaults, read_pack, write_pack,
};
use xdfs::{Answer, Call, Code, Fault, LoginBy, OpenPlace, Opening, Paths, PlaceRequest, Scheme};

use content::{MemSink, MemSource};
use tree::Tree;

/// The scheme of `mem://` URLs.
pub const SCHEME: &dyn Scheme = &MemScheme;

/// The places of this process by their names.
static PLACES: Mutex<BTreeMap<String, MemPlace>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct MemScheme;

impl Scheme for MemScheme {
    fn name(&self) -> &'static str {
        "mem"
    }

    fn traits(&self) -> Traits {
        Traits {
            identities: true,
            storage: true,
            copies: true,
            // Nothing is durable, and there are no links, no stripes, and no connections to lose.
            ..Traits::NONE
        }
    }

    fn port(&self) -> Option<u16> {
        None
    }

    fn paths(&self) -> Paths {
        Paths::Root
    }

    fn login(&self) -> LoginBy {
        LoginBy::Nothing
    }

    fn check_level(&self, _: Level, _: &str) -> Result<(), Fault> {
        // No byte leaves the process.
        Ok(())
    }

    fn opening(&self) -> Opening<'_> {
        Opening::Place(self)
    }
}

impl OpenPlace for MemScheme {
    fn open(&self, request: &PlaceRequest<'_>) -> Result<Arc<dyn Place>, Fault> {
        Ok(Arc::new(MemPlace::named(request.host)))
    }
}

/// The files of one name. Clones share them.
#[derive(Clone, Debug)]
pub struct MemPlace {
    tree: Arc<Mutex<Tree>>,
}

impl MemPlace {
    /// The place `mem://NAME`, which is made if there is none yet.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let number = places.len() as u64;
        let place = places.entry(name.to_owned()).or_insert_with(|| Self {
            tree: Arc::new(Mutex::new(Tree::new(number))),
        });
        place.clone()
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        // Each change leaves it consistent.
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place for MemPlace {}

impl Store for MemPlace {
    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        let file = self.tree().file(path);
        let file = file.map_err(|why| why.fault("open the source", path))?;
        Ok(Box::new(MemSource::new(file)))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        let path = self.check_sink(request)?;
        Ok(OpenedSink {
            sink: Box::new(MemSink::new(Arc::clone(&self.tree), path.clone(), request)),
            path,
            durable: Vec::new(),
            unverified: false,
            block_size: request.block_size,
        })
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        let (path, checked) = self.tree().target(request);
        checked.map_err(|why| why.fault("open the target", &path))?;
        Ok(path)
    }

    fn read_pack(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        read_pack(self, root, request, pack)
    }

    fn write_pack(
        &self,
        root: &[u8],
        options: PackOptions,
        pack: &[u8],
    ) -> Result<Failures, Fault> {
        write_pack(self, root, options, pack)
    }

    fn call(
        &self,
        call: &Call,
        _: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        if let Call::Checksum {
            path,
            offset,
            length,
            kind,
        } = call
        {
            return checksum(
                &mut *self.open_source(path)?,
                path,
                (*offset, *length),
                *kind,
            );
        }
        let answered = self.tree().call(call);
        answered.map_err(|why| why.fault(call.operation(), call.path()))
    }

    defaults!(Store: is_slow, packs_wait, open_file);
}

/// Why something can't be done.
#[derive(Clone, Copy, Debug)]
struct Why(Code, &'static str);

impl Why {
    fn fault(self, operation: &str, path: &[u8]) -> Fault {
        let Self(code, cause) = self;
        let fault = Fault::new(code, operation, cause).path(path);
        match code {
            Code::AlreadyExists => fault.hint("use --force to overwrite"),
            _ => fault,
        }
    }
}
