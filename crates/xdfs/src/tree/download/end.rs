//! What comes when parts of a tree are here: directories that are whole are set, and what failed is
//! tried again.

use std::collections::HashSet;
use std::sync::Arc;

use xdfs_engine::DownloadJob;
use xdfs_engine::command::JobKind;
use xdfs_proto::pack::{Content, Entry, Metadata, Owner, PACK_BYTES_MAX, PackWriter, Wish};
use xdfs_proto::{Code, DigestKind, Fault};
use xdfs_store::{PackHow, Store};

use super::seen::{Came, Seen};
use super::{Download, Fetching, local_attributes};
use crate::transfer::TransferOptions;
use crate::tree::journal::local_mark;
use crate::tree::links::{Link, sound};
use crate::tree::moving::{Again, Item, Kind, MovingPack, Report, opening, transfer_options};
use crate::tree::tracker::{Known, Whole};
use crate::tree::{Durability, SMALL_BYTES_MAX, join};

/// How attributes are set of what was moved here.
const REPLACE: PackHow = PackHow {
    overwrite: true,
    relaxed: false,
};

impl Download<'_> {
    /// Sets what is known of directories in which nothing more is made.
    pub(super) fn close(&self, whole: Vec<Whole>, report: &mut Report<'_>) -> Result<(), Fault> {
        let known = whole.iter().filter(|whole| !whole.is_absent);
        let known = known.filter_map(|whole| {
            let known = whole.known?;
            let mode = whole.mode(known.mode);
            Some((&whole.path[..], Known { mode, ..known }))
        });
        let failed = self.finish_directories(known, report)?;
        for whole in whole {
            let is_well = !whole.is_absent && !failed.contains(&whole.path);
            if let Some(tracker) = &mut report.tracker {
                tracker.closed(whole, is_well);
            }
        }
        Ok(())
    }

    /// Likewise of all that aren't set yet. When the tree is stopped those that aren't whole are
    /// left as they are.
    pub(super) fn close_all(
        &self,
        state: &mut Fetching,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let is_stopped = report.is_stopped();
        let Some(tracker) = &mut report.tracker else {
            let directories = std::mem::take(&mut state.directories);
            // Those below first.
            let known = directories
                .iter()
                .rev()
                .map(|(path, known)| (&path[..], *known));
            return self.finish_directories(known, report).map(|_| ());
        };
        let mut whole = tracker.take_whole(1);
        if !is_stopped {
            whole.extend(tracker.take_rest());
        }
        self.close(whole, report)
    }

    /// Gives the owner of directories here what is needed to go on in them. They get their modes
    /// when they are whole.
    pub(super) fn open_up(&self, levels: Vec<Vec<Vec<u8>>>) {
        for level in levels {
            let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
            for path in &level {
                // What can't be seen or set is told by what is made in it.
                let Ok(Some(found)) = local_attributes(&join(&self.root, path)) else {
                    continue;
                };
                let Some(entry) = opening(path, &found) else {
                    continue;
                };
                if !pack.entry(&entry) {
                    let empty = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
                    self.set_now(std::mem::replace(&mut pack, empty));
                    // A path is shorter than any pack.
                    let _ = pack.entry(&entry);
                }
            }
            self.set_now(pack);
        }
    }

    fn set_now(&self, pack: PackWriter) {
        if !pack.is_empty() {
            let (memory, length) = pack.finish();
            // What it could not set is told by what can't be made there.
            let _ = self
                .store
                .write_pack(&self.root, REPLACE, &memory[..length]);
        }
    }

    /// Tries entries again.
    pub(super) fn fetch_again(
        &self,
        again: Vec<Again>,
        overwrite: bool,
        state: &mut Fetching,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        state.overwrite = overwrite;
        for Again { path, mark, .. } in again {
            let size = mark.map_or(0, |mark| mark.size);
            if size > u64::from(SMALL_BYTES_MAX) && !self.options.keeps_more() {
                let mtime_ns = mark.map(|m| m.mtime_ns);
                self.start_large(path, size, mtime_ns, None, state, report)?;
            } else {
                self.wish_for(path, size, state, report)?;
            }
        }
        self.drain(state, report)?;
        state.overwrite = self.options.overwrite;
        Ok(())
    }

    /// Asks for these names.
    pub(super) fn start_wish(
        &self,
        names: Vec<Vec<u8>>,
        overwrite: bool,
    ) -> Result<(MovingPack, Arc<Seen>), Fault> {
        let relaxed = self.options.durability == Durability::None;
        let seen = Seen::new(names, self.options.keeps_more(), relaxed);
        let seen = Arc::new(seen);
        Ok((self.start_pack(&seen, overwrite)?, seen))
    }

    fn start_pack(&self, seen: &Arc<Seen>, overwrite: bool) -> Result<MovingPack, Fault> {
        let wish = Wish {
            keep: self.options.keep(),
            file_bytes_max: SMALL_BYTES_MAX,
            names: seen.names.clone(),
        };
        let options = TransferOptions {
            digest: Some(DigestKind::None),
            resume: false,
            overwrite,
            ..transfer_options(self.options)
        };
        let job = DownloadJob {
            source: self.source.to_vec(),
            store: Arc::clone(seen) as Arc<dyn Store>,
            target: self.root.clone(),
            name: Vec::new(),
            wish: Some(wish),
        };
        let transfer = self.client.start(&options, JobKind::Download(job))?;
        let items = Vec::new();
        Ok(MovingPack { transfer, items })
    }

    /// A pack that sets what is kept of a large file, if more is than its transfer keeps.
    pub(in crate::tree) fn kept_of(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        let seen = Arc::new(Seen::looking(path));
        self.start_pack(&seen, false)?.transfer.wait_for_pack()?;
        match seen.lock().pop() {
            Some(Came::Large(.., Some(kept))) => Ok(kept),
            Some(Came::Failed(_, fault)) => Err(fault),
            _ => {
                let cause = "it is no large file any more";
                let fault = Fault::new(Code::SourceChanged, "copy a large file", cause);
                Err(fault.remote().path(join(self.source, path)))
            }
        }
    }

    /// Gives large files that are here what else is kept of them. They are moved then.
    pub(super) fn dress(&self, state: &mut Fetching, report: &mut Report<'_>) -> Result<(), Fault> {
        for (item, kept) in state.large.take_bare() {
            let failures = self.store.write_pack(&self.root, REPLACE, &kept)?;
            match failures.of(0) {
                Some(fault) => report.failed(&item.path, &fault.clone().path(&item.path)),
                None => report.moved(&item),
            }
        }
        Ok(())
    }

    /// Gives files these further names.
    pub(in crate::tree) fn make_links(
        &self,
        links: Vec<Link>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let links = sound(self, links, report)?;
        let overwrite = self.options.overwrite;
        if self.skip.is_none() {
            return self.try_links(&links, overwrite, report);
        }
        // An earlier run may have given these names to files that were fetched again since.
        report.keep_again();
        self.try_links(&links, overwrite, report)?;
        let (again, ours) = report.take_again(true);
        let ours = self.find_ours(ours, report);
        for (entries, overwrite) in [(again, overwrite), (ours, true)] {
            let paths: HashSet<_> = entries.into_iter().map(|again| again.path).collect();
            let links = links.iter().filter(|link| paths.contains(&link.path));
            let links: Vec<_> = links.cloned().collect();
            self.try_links(&links, overwrite, report)?;
        }
        Ok(())
    }

    fn try_links(
        &self,
        links: &[Link],
        overwrite: bool,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let mut links = links;
        while !links.is_empty() {
            let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
            let fits = links.iter().take_while(|link| {
                pack.entry(&Entry {
                    path: &link.path,
                    metadata: Metadata::default(),
                    content: Content::HardLink(&link.first),
                })
            });
            // Two paths are shorter than any pack.
            let count = fits.count().max(1);
            let (memory, length) = pack.finish();
            let how = PackHow {
                overwrite,
                ..PackHow::default()
            };
            let failures = self.store.write_pack(&self.root, how, &memory[..length])?;
            let (done, rest) = links.split_at(count);
            for (number, Link { path, mark, .. }) in (0..).zip(done) {
                match failures.of(number) {
                    Some(fault) => {
                        report.missed(path, false, *mark, fault.clone().path(path));
                    }
                    None => report.moved(&Item {
                        path: path.clone(),
                        kind: Kind::Link,
                        bytes: 0,
                        mark: None,
                    }),
                }
            }
            links = rest;
        }
        Ok(())
    }

    /// Of entries that stand here, those that an earlier run fetched without claiming them, by
    /// their size and time. The others are failures.
    pub(super) fn find_ours(&self, found: Vec<Again>, report: &mut Report<'_>) -> Vec<Again> {
        let (ours, others) = found.into_iter().partition(|again| {
            let path = xdfs_sys::fs::path_from_bytes(&join(&self.root, &again.path));
            let there = path.ok().and_then(|path| local_mark(&path));
            let skip = self.skip.as_ref();
            skip.zip(there)
                .zip(again.mark)
                .is_some_and(|((skip, there), wanted)| skip.is_ours(&again.path, there, wanted))
        });
        let others: Vec<Again> = others;
        for again in others {
            report.lost(&again.path, &again.fault);
        }
        ours
    }

    /// Sets what the directories have there, now that nothing more is made in them: those below
    /// first, since one above may take away the right to get there. Returns those that failed.
    pub(super) fn finish_directories<'d>(
        &self,
        directories: impl Iterator<Item = (&'d [u8], Known)>,
        report: &mut Report<'_>,
    ) -> Result<HashSet<Vec<u8>>, Fault> {
        let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
        let (mut paths, mut failed) = (Vec::new(), HashSet::new());
        for (path, known) in directories {
            let entry = Entry {
                path,
                metadata: Metadata {
                    mode: u16::try_from(known.mode).ok(),
                    mtime_ns: Some(known.mtime_ns),
                    owner: known.owner.map(|(uid, gid)| Owner {
                        uid,
                        gid,
                        names: None,
                    }),
                    ..Metadata::default()
                },
                content: Content::Attributes,
            };
            if !pack.entry(&entry) {
                let full =
                    std::mem::replace(&mut pack, PackWriter::new(Vec::new(), PACK_BYTES_MAX));
                self.write(full, &std::mem::take(&mut paths), &mut failed, report)?;
                // A path is shorter than any pack.
                let _ = pack.entry(&entry);
            }
            paths.push(path);
        }
        if !paths.is_empty() {
            self.write(pack, &paths, &mut failed, report)?;
        }
        Ok(failed)
    }

    pub(super) fn write(
        &self,
        pack: PackWriter,
        paths: &[&[u8]],
        failed: &mut HashSet<Vec<u8>>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let (memory, length) = pack.finish();
        let failures = self
            .store
            .write_pack(&self.root, REPLACE, &memory[..length])?;
        for (number, path) in (0..).zip(paths) {
            if let Some(fault) = failures.of(number) {
                report.unset(path, &fault.clone().path(path));
                failed.insert(path.to_vec());
            }
        }
        Ok(())
    }
}
