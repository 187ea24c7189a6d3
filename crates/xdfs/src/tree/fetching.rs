//! Packs from a remote source, requested by the names in its listings; and what comes from a source
//! without packs, where each file is a transfer of its own.

use std::sync::Arc;

use xdfs_engine::DownloadSpec;
use xdfs_engine::command::TransferKind;
use xdfs_proto::pack::{Content, Entry, Metadata, PACK_REQUEST_BYTES_MAX, PackReader, PackRequest};
use xdfs_proto::{Code, DigestKind, Fault, Limits};
use xdfs_store::tree_journal::Mark;
use xdfs_store::{LocalStore, Store};

use super::inspector::{PackInspector, PackTarget, Received};
use super::item::{Item, Kind, OwnedXattr, owned_xattrs};
use super::moving::{MovingPack, PackTransfer};
use super::namespace::{FoundName, odd_answer};
use super::options::{Durability, SET_ID, SMALL_BYTES_MAX};
use super::run::{Moving, TreeRun};
use super::tracker::OWNER_ALL;
use super::version::mark_of;
use crate::paths::{Answer, Attributes, Call, FileKind};

/// Approximate size of a pack entry without its path and content, in bytes.
const ENTRY_BYTES: u64 = 32;

impl Moving<'_, '_> {
    /// Processes a listed entry: requests it, or keeps a further hard link for the end.
    pub(super) fn sort(&mut self, found: FoundName) -> Result<(), Fault> {
        let Some(attributes) = self.run.source.attributes(&found) else {
            return Ok(());
        };
        let is_file = attributes.kind == FileKind::File;
        let size = if is_file { attributes.size } else { 0 };
        if self.run.options.parameters.dry_run {
            if !found.path.is_empty() {
                let kind = Kind::of(attributes.kind);
                let storage = self.run.storage(&attributes);
                self.report
                    .would_copy(&Item::new(found.path, kind, size), storage);
            }
            return Ok(());
        }
        let (has_links, link) = self.run.first_name(&found);
        let tracker = &mut self.report.tracker;
        if has_links {
            tracker.keep_open(&found.path);
        }
        if let Some(link) = link {
            self.links.push(link);
            return Ok(());
        }
        if found.is_directory {
            tracker.found(&found.path, (&attributes).into());
            if found.path.is_empty() {
                self.run.target.make_root()?;
                let mut root = Item::new(Vec::new(), Kind::Directory, 0);
                let owner = (attributes.uid, attributes.gid);
                root.owner = (self.run.options.owner && !self.run.keeps_root).then_some(owner);
                if self.run.options.xattrs {
                    root.late_xattrs = self.run.root_xattrs()?;
                }
                self.report.moved(&root);
                return Ok(());
            }
        } else if attributes.mode & SET_ID != 0 && !self.run.options.owner {
            self.report.result.unkept += 1;
        }
        let mark = mark_of(&attributes).filter(|_| is_file);
        match self.run.has_packs || is_file {
            true => self.request(found.path, mark),
            false => self.make_other(found.path, &attributes),
        }
    }

    /// Moves an entry without a pack. It may have become another one since it was found.
    fn request_alone(&mut self, path: Vec<u8>, file: Option<Mark>) -> Result<(), Fault> {
        if let Some(file) = file.filter(|file| file.kind == 0) {
            let item = Item::large(path, file.size, Some(file.mtime_ns));
            return self.start_large(item, None);
        }
        let gone = || Fault::new(Code::SourceChanged, "copy", "it is gone");
        match self.run.source.start_look(&path).found() {
            Ok(Some(found)) if found.kind == FileKind::File => {
                self.start_large(Item::large(path, found.size, Some(found.mtime_ns)), None)
            }
            Ok(Some(found)) => self.make_other(path, &found),
            Ok(None) => {
                let source = self.run.source;
                let fault = source.fault(gone().path(source.path(&path)));
                self.report.fail_permanently(&path, &fault);
                Ok(())
            }
            Err(fault) if fault.ends_session => Err(fault),
            Err(fault) => {
                self.report.record_failure(&path, false, None, fault);
                Ok(())
            }
        }
    }

    /// Makes what isn't a file at the target.
    fn make_other(&mut self, path: Vec<u8>, found: &Attributes) -> Result<(), Fault> {
        let link;
        let (mut mode, content) = match found.kind {
            FileKind::Directory => (found.mode | OWNER_ALL, Content::Directory),
            FileKind::Fifo => (found.mode, Content::Fifo),
            FileKind::Symlink => {
                let at = self.run.source.path(&path);
                match self.run.source.start(Call::ReadLink { path: at }).wait() {
                    Ok(Answer::Target(target)) => link = target,
                    Ok(_) => return Err(odd_answer()),
                    Err(fault) if fault.ends_session => return Err(fault),
                    Err(fault) => {
                        self.report.record_failure(&path, false, None, fault);
                        return Ok(());
                    }
                }
                (found.mode, Content::Symlink(&link))
            }
            _ => {
                let cause = "it is neither a file, a directory, a link nor a named pipe";
                let source = self.run.source;
                let fault = Fault::new(Code::Unsupported, "copy", cause).path(source.path(&path));
                self.report.fail_permanently(&path, &source.fault(fault));
                return Ok(());
            }
        };
        mode &= !SET_ID;
        let entry = Entry {
            path: &path,
            metadata: Metadata {
                mode: u16::try_from(mode).ok(),
                mtime_ns: found.mtime(),
                ..Metadata::default()
            },
            content,
        };
        let item = Item::of(&entry);
        let mut pack = self.run.begin_pack();
        // A path is shorter than any pack.
        let _ = pack.entry(&entry);
        let pack = self
            .run
            .start_pack(pack.finish(), vec![item], self.overwrite)?;
        self.push(pack)
    }

    /// Fetches an entry: a large file by its own transfer, others in the next pack.
    pub(super) fn request(&mut self, path: Vec<u8>, file: Option<Mark>) -> Result<(), Fault> {
        if !self.run.has_packs {
            return self.request_alone(path, file);
        }
        let mut size = file.map_or(0, |file| file.size);
        if size > u64::from(SMALL_BYTES_MAX) {
            // A listing lacks some of the metadata to preserve; the answer to a request has it.
            if !self.run.options.keeps_more() {
                let item = Item::large(path, size, file.map(|file| file.mtime_ns));
                return self.start_large(item, None);
            }
            size = 0;
        }
        let bytes = ENTRY_BYTES + path.len() as u64 + size;
        self.add_request(path, bytes)
    }

    /// Adds an entry of about `bytes` to the next request.
    pub(super) fn add_request(&mut self, path: Vec<u8>, bytes: u64) -> Result<(), Fault> {
        let name_bytes = PackRequest::name_bytes(&path);
        let pack_bytes = self.run.pack_bytes() as u64;
        let request = &self.request;
        if !request.names.is_empty()
            && (request.bytes + bytes > pack_bytes
                || request.name_bytes + name_bytes > PACK_REQUEST_BYTES_MAX)
        {
            self.send_request()?;
        }
        let request = &mut self.request;
        request.bytes += bytes;
        request.name_bytes += name_bytes;
        request.names.push(path);
        Ok(())
    }

    /// Sends the pending request.
    pub(super) fn send_request(&mut self) -> Result<(), Fault> {
        if self.request.names.is_empty() {
            return Ok(());
        }
        let names = std::mem::take(&mut self.request).names;
        self.run.pack_sizes.begin();
        let relaxed = self.run.options.durability == Durability::None;
        let target = match self.run.target.is_remote() {
            true => PackTarget::Kept(self.run.spares.clone()),
            false => {
                let store = self.run.receiving(LocalStore::unrooted());
                PackTarget::Store { store, relaxed }
            }
        };
        let inspector = PackInspector::new(names, self.run.options.keep(), target)
            .with_digests(self.run.options.file_digests.unwrap_or(DigestKind::None));
        let pack = self
            .run
            .start_request(Arc::new(inspector), self.overwrite)?;
        self.push(pack)
    }

    /// Sends a pack that came from another server to the target, and takes what is in it from the
    /// `received` entries. It takes the place of its request among the packs in flight.
    pub(super) fn pass_on(
        &mut self,
        pack: (Vec<u8>, usize),
        received: &mut Vec<Received>,
    ) -> Result<(), Fault> {
        let mut items = Vec::with_capacity(received.len());
        for entry in std::mem::take(received) {
            match entry {
                Received::Moved(item) => items.push(item),
                other => received.push(other),
            }
        }
        if items.is_empty() {
            self.run.spares.give(pack.0);
            return Ok(());
        }
        let pack = self.run.start_pack(pack, items, self.overwrite)?;
        match pack.transfer.has_ended() {
            true => self.end_pack(pack),
            false => {
                self.packs.push_back(pack);
                Ok(())
            }
        }
    }

    /// Processes the entries of a requested pack whose session broke.
    pub(super) fn end_interrupted_request(
        &mut self,
        inspector: &PackInspector,
        fault: &Fault,
    ) -> Result<(), Fault> {
        let received = inspector.take();
        let count = received.len();
        let mut arrived = Vec::new();
        for received in received {
            match received {
                Received::Moved(item) => arrived.push(item),
                Received::Large(item, _) => self.report.interrupt(item.path, item.mark, fault),
                Received::Failed(path, fault) => {
                    let fault = self.run.source.apart(fault);
                    self.report.record_failure(&path, false, None, fault);
                }
            }
        }
        for path in inspector.names.get(count..).unwrap_or_default() {
            self.report.interrupt(path.clone(), None, fault);
        }
        self.run.find_interrupted(arrived, fault, self.report)
    }
}

impl<'a> TreeRun<'a> {
    fn start_request(
        &self,
        inspector: Arc<PackInspector>,
        overwrite: bool,
    ) -> Result<MovingPack<'a>, Fault> {
        let from = (self.source.root(), self.source.follows());
        self.start_request_in(from, inspector, overwrite)
    }

    /// Likewise in any directory; with the flag, links are followed.
    fn start_request_in(
        &self,
        (directory, follow): (&[u8], bool),
        inspector: Arc<PackInspector>,
        overwrite: bool,
    ) -> Result<MovingPack<'a>, Fault> {
        let job = DownloadSpec {
            source: directory.to_vec(),
            store: Arc::clone(&inspector) as Arc<dyn Store>,
            target: self.target.root().to_vec(),
            name: Vec::new(),
            pack_request: Some(PackRequest {
                keep: self.options.keep(),
                follow,
                file_bytes_max: SMALL_BYTES_MAX,
                names: inspector.names.clone(),
            }),
        };
        let options = self.pack_options(overwrite);
        let session = self.source.session().unwrap_or(self.session);
        Ok(MovingPack {
            transfer: PackTransfer::start(session, &options, TransferKind::Download(job))?,
            items: Vec::new(),
            inspector: Some(inspector),
        })
    }

    /// The extended attributes of the root of the source.
    ///
    /// A server is asked for those of an entry of the directory above, since a request names
    /// entries beneath a directory. Where there is none above, as at the root of an export, they
    /// aren't known.
    ///
    /// # Errors
    /// No session is there any more, or a local root can't be read.
    pub(super) fn root_xattrs(&self) -> Result<Vec<OwnedXattr>, Fault> {
        let kept = if self.source.is_remote() {
            let root = self.source.root();
            let end = root.iter().rposition(|byte| *byte != b'/');
            let root = &root[..end.map_or(0, |end| end + 1)];
            let at = root.iter().rposition(|byte| *byte == b'/');
            let (above, name) = root.split_at(at.map_or(0, |at| at + 1));
            if matches!(name, b"" | b"." | b"..") {
                return Ok(Vec::new());
            }
            let inspector = Arc::new(PackInspector::for_metadata(name, self.options.keep()));
            let pack = self.start_request_in((above, true), Arc::clone(&inspector), false)?;
            match self.finish_pack(pack.transfer, false)?.1 {
                Err(fault) if fault.ends_session => return Err(fault),
                _ => match inspector.take().pop() {
                    Some(Received::Large(_, Some(kept))) => kept,
                    _ => return Ok(Vec::new()),
                },
            }
        } else {
            self.pack_metadata(b"")?
        };
        match PackReader::new(&kept, &Limits::default()).next() {
            Some(Ok(entry)) => Ok(owned_xattrs(&entry.metadata, |_| true)),
            _ => Ok(Vec::new()),
        }
    }

    /// Fetches a pack that sets the metadata of a large file on the server.
    pub(super) fn fetch_metadata(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        let fetched = loop {
            let inspector = Arc::new(PackInspector::for_metadata(path, self.options.keep()));
            let pack = self.start_request(Arc::clone(&inspector), false);
            let done = pack.and_then(|pack| self.finish_pack(pack.transfer, false));
            match done.map_err(|fault| self.source.apart(fault))?.1 {
                Ok(_) => break inspector,
                // There is another session.
                Err(fault) if fault.ends_session => {}
                Err(fault) => return Err(self.source.apart(fault)),
            }
        };
        match fetched.take().pop() {
            Some(Received::Large(item, Some(kept))) if item.kind == Kind::File => Ok(kept),
            Some(Received::Failed(_, fault)) => Err(self.source.apart(fault)),
            _ => {
                let cause = "it is not a large file any more";
                let fault = Fault::new(Code::SourceChanged, "copy", cause);
                Err(self.source.fault(fault.path(self.source.path(path))))
            }
        }
    }
}
