//! Large files of a tree: each has its own transfer, with a few in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use xdfs_engine::command::TransferKind;
use xdfs_engine::{DownloadSpec, UploadSpec};
use xdfs_proto::{Code, Fault};
use xdfs_store::{LocalStore, Store as _};

use super::item::{DeferredMetadata, Item};
use super::moving::{MovingFile, PROGRESS_INTERVAL, StartedFile, is_away};
use super::options::{ALONE_MAX, IN_FLIGHT_MAX, LARGE_LEAST, LARGE_MAX, STRIPED_MAX};
use super::run::{Moving, TreeRun};
use super::stripes;
use super::tracker::split;
use crate::events::FilePace;
use crate::paths::{Call, FileKind};

impl Moving<'_, '_> {
    /// Starts to move a large file. `kept` is the pack that sets its further metadata, if it is
    /// known already.
    pub(super) fn start_large(
        &mut self,
        mut item: Item,
        kept: DeferredMetadata,
    ) -> Result<(), Fault> {
        let before = self.run.session.generation();
        let parents = self.ensure_parents(&item.path).map_err(without_place);
        let started = parents.and_then(|()| {
            // Before it is read, which changes its access time.
            let kept = match kept {
                None if self.run.options.keeps_more() => Some(self.run.metadata_of(&item.path)?),
                kept => kept,
            };
            let target = self.run.target.at(&item.path);
            let started = self.run.start_file(&mut item, target, self.overwrite)?;
            Ok((started, kept))
        });
        match started {
            Ok((started, kept)) => {
                self.large.push_back(MovingFile {
                    transfer: started.transfer,
                    generation: started.generation,
                    is_striped: started.is_striped,
                    item,
                    kept,
                    bytes: 0,
                    began: Instant::now(),
                });
                while !self.has_room_for_large() {
                    self.wait_for_large()?;
                }
                self.apply_metadata()
            }
            Err(fault) if fault.ends_session => {
                self.run.session.recover(before, &fault)?;
                self.report.interrupt(item.path, item.mark, &fault);
                Ok(())
            }
            Err(fault) => {
                self.report.record_item_failure(&item, fault);
                Ok(())
            }
        }
    }

    /// Whether another large file may be started.
    fn has_room_for_large(&self) -> bool {
        let (large, packs) = (self.large.len(), self.packs.len());
        let striped = self.large.iter().filter(|file| file.is_striped);
        if striped.count() >= STRIPED_MAX {
            return false;
        }
        match self.run.has_packs {
            true => large < LARGE_LEAST || large < LARGE_MAX && large + packs < IN_FLIGHT_MAX,
            false => large < ALONE_MAX,
        }
    }

    /// Waits briefly for the oldest large file, and processes those that have ended. Cancels all of
    /// them if the observer has stopped the run.
    pub(super) fn wait_for_large(&mut self) -> Result<(), Fault> {
        self.cancel_unwanted();
        if let Some(file) = self.large.front_mut() {
            // One that takes longer than sessions last makes progress all the same.
            if file.is_over(PROGRESS_INTERVAL).1 {
                self.run.session.note_progress();
            }
        }
        self.report.progress();
        self.poll_large()?;
        self.poll_background()
    }

    /// Cancels all large files if the observer has stopped the run.
    pub(super) fn cancel_unwanted(&self) {
        if self.report.is_stopped() {
            for file in &self.large {
                file.transfer.cancel();
            }
        }
    }

    /// Processes a large file whose session broke: it may have arrived nevertheless. Otherwise it
    /// is moved again, and resumes.
    fn end_interrupted_file(
        &mut self,
        item: Item,
        kept: DeferredMetadata,
        fault: &Fault,
    ) -> Result<(), Fault> {
        let mut found = self.run.target.look_up(std::iter::once(&item.path[..]));
        let found = match found.pop() {
            Some(Err(fault)) if fault.ends_session => return Err(fault),
            found => found.and_then(Result::ok).flatten(),
        };
        match kept {
            _ if !found.is_some_and(|found| self.report.has_arrived(&item, &found)) => {
                self.report.interrupt(item.path, item.mark, fault);
            }
            None => self.report.moved(&item),
            Some(kept) => self.awaiting_metadata.push((item, kept)),
        }
        Ok(())
    }

    /// Processes large files that have ended.
    pub(super) fn poll_large(&mut self) -> Result<(), Fault> {
        let mut at = 0;
        while let Some(file) = self.large.get_mut(at) {
            if !file.is_over(Duration::ZERO).0 {
                at += 1;
            } else if let Some(file) = self.large.remove(at) {
                self.end_large(file)?;
            }
        }
        Ok(())
    }

    fn end_large(&mut self, file: MovingFile) -> Result<(), Fault> {
        let MovingFile {
            transfer,
            generation,
            is_striped,
            mut item,
            kept,
            began,
            ..
        } = file;
        let moved = transfer.wait();
        match moved.map_err(|fault| stripes::fault_of(is_striped, fault)) {
            Ok(result) => {
                self.run.session.note_progress();
                self.report.result.matched_bytes += result.resumed_bytes;
                item.bytes = result.bytes;
                item.digest = result.digest;
                item.pace = Some(FilePace::over(&result, began.elapsed()));
                let time = Duration::from_secs_f64(result.seconds);
                self.run.add_time((result.time_shares, time));
                if let Err(fault) = self.run.learn_server_run(&item.path, self.report) {
                    return self.end_interrupted_file(item, kept, &fault);
                }
                match kept {
                    None => self.report.moved(&item),
                    Some(kept) => self.awaiting_metadata.push((item, kept)),
                }
            }
            Err(fault) if fault.ends_session => {
                self.run.session.recover(generation, &fault)?;
                return self.end_interrupted_file(item, kept, &fault);
            }
            // Cancelled because the observer stopped the run: a later run resumes it.
            Err(fault) if fault.code == Code::Cancelled && self.report.is_stopped() => {}
            Err(fault) => {
                if is_striped && is_away(&fault) {
                    self.run.session.await_answer()?;
                }
                self.report.record_item_failure(&item, fault);
            }
        }
        Ok(())
    }

    /// Sets the further metadata of large files that have arrived. That completes them.
    pub(super) fn apply_metadata(&mut self) -> Result<(), Fault> {
        for (item, kept) in std::mem::take(&mut self.awaiting_metadata) {
            let (item, length) = (item.owned_as(&kept), kept.len());
            let pack = self
                .run
                .start_metadata_pack((kept, length), vec![item], true)?;
            self.push(pack)?;
        }
        Ok(())
    }

    /// Creates the directory of a large file, since the pack that creates it may still be in
    /// flight. On the server this fails if a directory of the path within the tree is a symbolic
    /// link, as it does in packs: the result must not depend on the size of a file.
    fn ensure_parents(&mut self, path: &[u8]) -> Result<(), Fault> {
        let above = split(path).0;
        let known = self.made_directory.as_deref();
        if known == Some(above) || above.is_empty() && !self.run.target.is_remote() {
            return Ok(());
        }
        if self.run.target.is_remote() {
            self.run.refuse_links(above, known)?;
        }
        let call = Call::MakeDirectory {
            path: self.run.target.at(above),
            mode: None,
            parents: true,
        };
        self.run.target.start_beneath(call).wait()?;
        self.made_directory = Some(above.to_vec());
        Ok(())
    }
}

/// The fault of a file whose directory can't be there, which is that of a file in a pack. The
/// directory has failed by itself.
fn without_place(fault: Fault) -> Fault {
    match fault.code {
        Code::AlreadyExists | Code::NotDirectory => Fault {
            code: Code::NotDirectory,
            operation: "write".into(),
            cause: "not a directory".into(),
            path: Vec::new(),
            ..fault
        }
        .hint(""),
        _ => fault,
    }
}

impl TreeRun<'_> {
    /// Starts to move a file to a path from [`Namespace::at`]. `item` is updated with the size and
    /// time of an opened local source.
    pub(super) fn start_file(
        &self,
        item: &mut Item,
        target: Vec<u8>,
        overwrite: bool,
    ) -> Result<StartedFile, Fault> {
        let groups = &self.options.stripes;
        let generation = self.session.generation();
        let source_path = self.source.path(&item.path);
        // Without a name, a directory at the target is a failure.
        let name = Vec::new();
        if let Some(file) = self.source.server_file(&item.path) {
            let options = self.transfer_options(overwrite);
            let is_striped = groups.take(item.bytes);
            let (client, file) = match is_striped {
                true => (groups.target.as_deref(), groups.source_file(file)),
                false => (None, file),
            };
            let client = client.unwrap_or(self.session.client);
            let started = client.start_between(&file, &target, name, &options);
            return Ok(StartedFile {
                transfer: started.map_err(|fault| stripes::fault_of(is_striped, fault))?,
                generation,
                is_striped,
            });
        }
        let kind = if self.source.is_remote() {
            TransferKind::Download(DownloadSpec {
                source: source_path,
                store: Arc::new(self.receiving(LocalStore::clone(&*self.target.beneath()?))),
                target,
                name,
                pack_request: None,
            })
        } else {
            let source = LocalStore::unrooted().open_source(&source_path)?;
            let info = source.info();
            let size = info.length.unwrap_or(0);
            *item = Item::large(std::mem::take(&mut item.path), size, info.mtime_ns);
            TransferKind::Upload(UploadSpec {
                source,
                source_path,
                target,
                name,
                pack: false,
                relaxed: false,
                last: None,
            })
        };
        let options = self.transfer_options(overwrite);
        let group = groups.source.as_ref().or(groups.target.as_ref());
        if let Some(group) = group.filter(|_| groups.take(item.bytes)) {
            let started = group.start(&options, kind);
            return Ok(StartedFile {
                transfer: started.map_err(|fault| stripes::fault_of(true, fault))?,
                generation,
                is_striped: true,
            });
        }
        let (generation, transfer) = self.session.start(&options, kind);
        Ok(StartedFile {
            transfer: transfer?,
            generation,
            is_striped: false,
        })
    }

    /// A pack that sets the metadata of a large file of the source.
    pub(super) fn metadata_of(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        match self.source.is_remote() {
            true => self.fetch_metadata(path),
            false => self.pack_metadata(path),
        }
    }

    /// Fails if one of the directories down to `above` is a link. Those shared with `known` aren't
    /// checked again. Lookup failures are ignored.
    fn refuse_links(&self, above: &[u8], known: Option<&[u8]>) -> Result<(), Fault> {
        let is_known = |prefix: &[u8]| {
            let rest = known.and_then(|known| known.strip_prefix(prefix));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let ends = (1..=above.len()).filter(|end| matches!(above.get(*end), None | Some(b'/')));
        let unknown = ends
            .map(|end| &above[..end])
            .filter(|prefix| !is_known(prefix));
        for found in self.target.look_up(unknown) {
            if let Ok(Some(found)) = found
                && found.kind == FileKind::Symlink
            {
                let cause = "the path contains a symbolic link";
                return Err(Fault::new(Code::PathEscape, "open the target", cause));
            }
        }
        Ok(())
    }
}
