//! Large files of a tree: each moves by a transfer of its own, a few of them at once.

use std::time::Duration;

use xdfs_engine::command::TransferKind;
use xdfs_engine::{DownloadSpec, UploadSpec};
use xdfs_proto::{Code, Fault};
use xdfs_store::{LocalStore, Store as _};

use super::item::{DeferredMetadata, Item};
use super::moving::{MovingFile, PROGRESS_INTERVAL, is_over};
use super::options::LARGE_MAX;
use super::run::{Moving, TreeRun};
use super::tracker::split;
use crate::paths::{Call, FileKind};
use crate::transfer::Transfer;

impl Moving<'_, '_> {
    /// Begins to move a large file. `kept` is a pack that sets what else is kept of it, if that is
    /// known.
    pub(super) fn start_large(
        &mut self,
        mut item: Item,
        kept: DeferredMetadata,
    ) -> Result<(), Fault> {
        let started = self.ensure_parents(&item.path).and_then(|()| {
            // Before it is read, which changes the time of the last read.
            let kept = match kept {
                None if self.run.options.keeps_more() => Some(self.run.metadata_of(&item.path)?),
                kept => kept,
            };
            let target = self.run.target.at(&item.path);
            let transfer = self.run.start_file(&mut item, target, self.overwrite)?;
            Ok((transfer, kept))
        });
        match started {
            Ok((transfer, kept)) => {
                self.large.push_back(MovingFile {
                    transfer,
                    item,
                    kept,
                });
                while self.large.len() >= LARGE_MAX {
                    self.wait_for_large()?;
                }
                self.apply_metadata()
            }
            Err(fault) if fault.ends_session => Err(fault),
            Err(fault) => {
                self.report.record_item_failure(&item, fault);
                Ok(())
            }
        }
    }

    /// Waits a while for the one that was begun first, and takes what has ended. If the observer
    /// wants no more all of them are ended.
    pub(super) fn wait_for_large(&mut self) -> Result<(), Fault> {
        self.cancel_unwanted();
        if let Some(file) = self.large.front_mut() {
            file.transfer.progress(PROGRESS_INTERVAL);
        }
        self.report.progress();
        self.poll_large()?;
        self.poll_background()
    }

    /// Ends all of them if the observer wants no more.
    pub(super) fn cancel_unwanted(&self) {
        if self.report.is_stopped() {
            for file in &self.large {
                file.transfer.cancel();
            }
        }
    }

    /// Takes what has ended.
    pub(super) fn poll_large(&mut self) -> Result<(), Fault> {
        let mut at = 0;
        while let Some(file) = self.large.get_mut(at) {
            if !is_over(&mut file.transfer, Duration::ZERO) {
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
            mut item,
            kept,
        } = file;
        match transfer.wait() {
            Ok(result) => {
                self.report.result.matched_bytes += result.resumed_bytes;
                item.bytes = result.bytes;
                match kept {
                    None => self.report.moved(&item),
                    Some(kept) => self.bare.push((item, kept)),
                }
            }
            Err(fault) if fault.ends_session => return Err(fault),
            // Broken off because the observer wants no more: the tree goes on with it later.
            Err(fault) if fault.code == Code::Cancelled && self.report.is_stopped() => {}
            Err(fault) => self.report.record_item_failure(&item, fault),
        }
        Ok(())
    }

    /// Gives large files that are there what else is kept of them. They are moved then.
    pub(super) fn apply_metadata(&mut self) -> Result<(), Fault> {
        for (item, kept) in std::mem::take(&mut self.bare) {
            let length = kept.len();
            let pack = self.run.start_pack((kept, length), vec![item], true)?;
            self.push(pack)?;
        }
        Ok(())
    }

    /// Has the directory of a large file made: the pack that makes it may be on its way. On the
    /// server not if a symbolic link stands on the way to it in the tree: what packs refuse isn't
    /// to depend on the size of a file.
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

impl TreeRun<'_> {
    /// Begins to move a file to a path that [`Namespace::at`] gave. `item` gets what is known of it
    /// when it is opened.
    pub(super) fn start_file(
        &self,
        item: &mut Item,
        target: Vec<u8>,
        overwrite: bool,
    ) -> Result<Transfer, Fault> {
        let source_path = self.source.path(&item.path);
        // A directory that stands there is no place for it.
        let name = Vec::new();
        let kind = if self.source.is_remote() {
            TransferKind::Download(DownloadSpec {
                source: source_path,
                store: self.target.beneath()?,
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
            })
        };
        let options = self.transfer_options(overwrite);
        self.client.start(&options, kind)
    }

    /// A pack that sets what is kept of a large file of the source.
    pub(super) fn metadata_of(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        match self.source.is_remote() {
            true => self.fetch_metadata(path),
            false => self.pack_metadata(path),
        }
    }

    /// Fails if one of the directories down to `above` is a link. Those that it shares with `known`
    /// aren't looked at again. What can't be looked at isn't known to be one.
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
                let cause = "a symbolic link stands on the way";
                return Err(Fault::new(Code::PathEscape, "open the target", cause));
            }
        }
        Ok(())
    }
}
