//! The end of a tree in one flight: while the last packs of files are still on their way, a last
//! pack follows them that sets the metadata of all directories and makes everything durable.
//!
//! It is carried out only if everything before it has arrived whole. Otherwise the end of a tree
//! takes its usual course: what failed is moved again first.

use std::collections::HashMap;

use xdfs_engine::command::TransferKind;
use xdfs_engine::{PackSource, UploadSpec};
use xdfs_proto::pack::{Content, Entry};
use xdfs_proto::{Code, Fault, FileId};

use super::item::OwnedXattr;
use super::moving::{PackTransfer, may_pass};
use super::options::Durability;
use super::run::{Moving, TreeRun};

/// A last pack: its memory and length, and the numbers of its entries by directory.
struct LastPack {
    memory: Vec<u8>,
    length: usize,
    directories: HashMap<Vec<u8>, u32>,
}

impl Moving<'_, '_> {
    /// Ends an upload with a last pack, if nothing but packs is in flight and nothing has failed so
    /// far. Returns whether everything has arrived and is durable, so that nothing is left to do.
    ///
    /// # Errors
    /// The target could not be synchronised, or no session is there any more.
    pub(super) fn end_in_one_flight(&mut self) -> Result<bool, Fault> {
        if !self.may_end_in_one_flight() {
            return Ok(false);
        }
        let Some(pack) = self.last_pack() else {
            return Ok(false);
        };
        let generation = self.report.unsynced_generation;
        if self.run.session.generation() != generation {
            return Ok(false);
        }
        let Some(awaited) = self.numbers_in_flight() else {
            return Ok(false);
        };
        let transfer = self
            .run
            .start_last_pack(pack.memory, pack.length, awaited)?;
        self.drain()?;
        if !self.report.is_clean() {
            // It isn't carried out, and would wait for ever for a pack that was never offered.
            return Ok(false);
        }
        // It exists by now.
        let writer = self.journal.as_ref();
        let root = writer.and_then(|writer| writer.ask_for_root(self.run.target));
        let failures = match self.run.finish_pack(transfer, false)?.1 {
            Ok(failures) => failures,
            Err(fault) if is_taken_otherwise(&fault) => return Ok(false),
            // A second synchronisation that succeeds says nothing about what the first one lost.
            Err(fault) => return Err(fault),
        };
        self.end_finalizing()?;
        self.completed.extend(self.report.tracker.take_completed());
        for mut completed in std::mem::take(&mut self.completed) {
            let number = pack.directories.get(&completed.path);
            if number.is_some_and(|number| failures.of(*number).is_none()) {
                let directory = &mut completed.directory;
                directory.known = directory
                    .known
                    .or_else(|| self.run.known_here(&completed.path));
                self.report.tracker.closed(completed, true);
            } else {
                self.completed.push_back(completed);
            }
        }
        let is_all = self.completed.is_empty()
            && self.report.is_clean()
            && self.report.tracker.is_empty()
            && self.run.session.generation() == generation;
        if is_all {
            self.report.unsynced.clear();
            if let Some(writer) = &mut self.journal {
                writer.learn_root(root)?;
            }
        }
        Ok(is_all)
    }

    fn may_end_in_one_flight(&self) -> bool {
        let options = self.run.options;
        self.run.target.is_remote()
            && options.durability == Durability::Batch
            && !options.parameters.dry_run
            && !self.report.is_stopped()
            && self.report.is_clean()
            && self.large.is_empty()
            && self.awaiting_metadata.is_empty()
            && self.request.names.is_empty()
            && self.packs.iter().all(|pack| pack.inspector.is_none())
            && self.deferred.is_empty()
            && self.links.is_empty()
    }

    /// The numbers of the packs whose outcome isn't recorded yet.
    fn numbers_in_flight(&self) -> Option<Vec<FileId>> {
        let packs = self.packs.iter().map(|pack| &pack.transfer);
        let finalizing = self.finalizing.as_ref().map(|(transfer, _)| transfer);
        packs.chain(finalizing).map(PackTransfer::number).collect()
    }

    /// `None` if a directory isn't known to become complete, or if there are too many for a pack.
    fn last_pack(&self) -> Option<LastPack> {
        let mut pack = self.run.begin_pack();
        let mut directories = HashMap::new();
        // Of directories whose own entries are still in flight.
        let in_flight = self.packs.iter().flat_map(|pack| &pack.items);
        let xattrs: HashMap<&[u8], &[OwnedXattr]> = in_flight
            .filter(|item| !item.late_xattrs.is_empty())
            .map(|item| (&item.path[..], &item.late_xattrs[..]))
            .collect();
        let completed = self.completed.iter().map(|c| (&c.path[..], &c.directory));
        for (path, directory) in completed.chain(self.report.tracker.foreseen()?) {
            let known = directory.known.or_else(|| self.run.known_here(path))?;
            let xattrs = xattrs.get(path).copied().unwrap_or(&directory.xattrs);
            let entry = Entry {
                path,
                metadata: self.run.directory_metadata(path, directory, known, xattrs),
                content: Content::Attributes,
            };
            if !pack.entry(&entry) {
                return None;
            }
            directories.insert(path.to_vec(), u32::try_from(directories.len()).ok()?);
        }
        let (memory, length) = pack.finish();
        (!directories.is_empty()).then_some(LastPack {
            memory,
            length,
            directories,
        })
    }
}

/// Whether the usual end of a tree can follow: nothing was synchronised.
fn is_taken_otherwise(fault: &Fault) -> bool {
    fault.ends_session || fault.code == Code::FeatureUnsupported || may_pass(fault)
}

impl<'a> TreeRun<'a> {
    fn start_last_pack(
        &self,
        memory: Vec<u8>,
        length: usize,
        awaited: Vec<FileId>,
    ) -> Result<PackTransfer<'a>, Fault> {
        let job = UploadSpec {
            source: Box::new(PackSource::new(memory, length, self.spares.clone())),
            source_path: self.source.root().to_vec(),
            target: self.target.root().to_vec(),
            name: Vec::new(),
            pack: true,
            relaxed: false,
            last: Some(awaited),
        };
        let options = self.pack_options(true);
        PackTransfer::start(self.session, &options, TransferKind::Upload(job))
    }
}
