//! Packs of what a source on the server has: asked for by their names, which listings told.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use xdfs_engine::DownloadJob;
use xdfs_engine::command::JobKind;
use xdfs_proto::pack::{PACK_REQUEST_BYTES_MAX, PackRequest};
use xdfs_proto::{Code, Fault};
use xdfs_store::Store;
use xdfs_store::tree_journal::Mark;

use super::inspector::{PackInspector, Received};
use super::item::{Item, Kind};
use super::moving::{MovingPack, PackTransfer};
use super::namespace::FoundName;
use super::options::{Durability, SET_ID, SMALL_BYTES_MAX};
use super::run::{Moving, TreeRun};
use crate::paths::FileKind;

/// Bytes of an entry of a pack beside its path and content, about.
const ENTRY_BYTES: u64 = 32;

impl TreeRun<'_> {
    /// Where an entry goes: into a pack, or by itself.
    pub(super) fn sort(&self, found: FoundName, moving: &mut Moving<'_, '_>) -> Result<(), Fault> {
        let Some(attributes) = self.source.attributes(&found) else {
            return Ok(());
        };
        let is_file = attributes.kind == FileKind::File;
        let size = if is_file { attributes.size } else { 0 };
        if self.options.dry_run {
            if !found.path.is_empty() {
                let kind = Kind::of(attributes.kind);
                moving.report.count(&Item::new(found.path, kind, size));
            }
            return Ok(());
        }
        let (is_several, link) = self.first_name(&found);
        let tracker = &mut moving.report.tracker;
        if is_several {
            tracker.keep_open(&found.path);
        }
        if let Some(link) = link {
            moving.links.push(link);
            return Ok(());
        }
        if found.is_directory {
            tracker.found(&found.path, (&attributes).into());
            if found.path.is_empty() {
                self.target.make_root()?;
                let root = Item::new(Vec::new(), Kind::Directory, 0);
                moving.report.moved(&root);
                return Ok(());
            }
        } else if attributes.mode & SET_ID != 0 && !self.options.owner {
            moving.report.result.unkept += 1;
        }
        let mark = is_file.then_some(Mark {
            kind: 0,
            size,
            mtime_ns: attributes.mtime_ns,
        });
        self.request(found.path, mark, moving)
    }

    /// Fetches an entry: a file that is known to be large by itself, others by the next pack.
    pub(super) fn request(
        &self,
        path: Vec<u8>,
        file: Option<Mark>,
        moving: &mut Moving<'_, '_>,
    ) -> Result<(), Fault> {
        let mut size = file.map_or(0, |file| file.size);
        if size > u64::from(SMALL_BYTES_MAX) {
            // A listing doesn't say all that may be kept of a file: an answer to a request does.
            if !self.options.keeps_more() {
                let item = Item::large(path, size, file.map(|file| file.mtime_ns));
                return self.start_large(item, None, moving);
            }
            size = 0;
        }
        let bytes = ENTRY_BYTES + path.len() as u64 + size;
        self.add_request(path, bytes, moving)
    }

    /// Adds an entry of about so many bytes to those that are asked for next.
    pub(super) fn add_request(
        &self,
        path: Vec<u8>,
        bytes: u64,
        moving: &mut Moving<'_, '_>,
    ) -> Result<(), Fault> {
        let name_bytes = PackRequest::name_bytes(&path);
        let begun = self.begun.load(Ordering::Relaxed);
        let pack_bytes = self.cut.pack_bytes(begun) as u64;
        let request = &moving.request;
        if !request.is_empty()
            && (request.bytes + bytes > pack_bytes
                || request.name_bytes + name_bytes > PACK_REQUEST_BYTES_MAX)
        {
            self.send_request(moving)?;
        }
        let request = &mut moving.request;
        request.bytes += bytes;
        request.name_bytes += name_bytes;
        request.names.push(path);
        Ok(())
    }

    /// Asks for the names that were gathered.
    pub(super) fn send_request(&self, moving: &mut Moving<'_, '_>) -> Result<(), Fault> {
        if moving.request.is_empty() {
            return Ok(());
        }
        let names = std::mem::take(&mut moving.request).names;
        self.begun.fetch_add(1, Ordering::Relaxed);
        let relaxed = self.options.durability == Durability::None;
        let inspector = PackInspector::new(names, self.options.keeps_more(), relaxed);
        let pack = self.start_request(Arc::new(inspector), moving.overwrite)?;
        self.push(pack, moving)
    }

    fn start_request(
        &self,
        inspector: Arc<PackInspector>,
        overwrite: bool,
    ) -> Result<MovingPack, Fault> {
        let job = DownloadJob {
            source: self.source.root().to_vec(),
            store: Arc::clone(&inspector) as Arc<dyn Store>,
            target: self.target.root().to_vec(),
            name: Vec::new(),
            wish: Some(PackRequest {
                keep: self.options.keep(),
                file_bytes_max: SMALL_BYTES_MAX,
                names: inspector.names.clone(),
            }),
        };
        let options = self.pack_options(overwrite);
        let transfer = self.client.start(&options, JobKind::Download(job))?;
        Ok(MovingPack {
            transfer: PackTransfer::Moving(Box::new(transfer)),
            items: Vec::new(),
            inspector: Some(inspector),
        })
    }

    /// A pack that sets what is kept of a large file on the server.
    pub(super) fn fetch_metadata(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        let inspector = Arc::new(PackInspector::looking(path));
        let pack = self.start_request(Arc::clone(&inspector), false)?;
        pack.transfer.wait()?;
        match inspector.lock().pop() {
            Some(Received::Large(.., Some(kept))) => Ok(kept),
            Some(Received::Failed(_, fault)) => Err(fault),
            _ => {
                let cause = "it is not a large file any more";
                let fault = Fault::new(Code::SourceChanged, "copy a large file", cause);
                Err(fault.remote().path(self.source.path(path)))
            }
        }
    }
}
