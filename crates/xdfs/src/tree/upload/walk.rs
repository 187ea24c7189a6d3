//! The walker, which finds the names of a tree, and the packers, which read small files.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError, mpsc};

use xdfs_proto::Fault;
use xdfs_store::local::Added;
use xdfs_store::tree_journal::Totals;

use super::known::several_names;
use super::{BATCH_NAMES, Found, Made, Upload};
use crate::client::path_bytes;
use crate::tree::alike::Listed;
use crate::tree::journal::{Finished, local_mark, mark_of, totals_of};
use crate::tree::links::Link;
use crate::tree::moving::ends_session;
use crate::tree::{is_directory, join};

impl Upload<'_> {
    /// The walker: names in batches, directories before what is in them.
    pub(super) fn walk(
        &self,
        roots: Vec<Found>,
        found: &mpsc::SyncSender<Vec<Found>>,
        made: &mpsc::SyncSender<Made>,
    ) {
        let directories = roots.iter().rev().filter(|root| root.is_directory);
        let mut directories: Vec<_> = directories.map(|root| root.path.clone()).collect();
        let mut batch = roots;
        while let Some(directory) = directories.pop() {
            if self.is_stopped() {
                return;
            }
            let mut listed = Listed::default();
            let finished = self.finished_in(&directory, &mut listed);
            let (mut given, mut taken) = (0, Totals::default());
            let mut is_well = true;
            let mut failed = |error: &std::io::Error| {
                let fault = Fault::from_io("list a directory", &directory, error);
                let _ = made.send(Made::Failed(directory.clone(), fault));
                is_well = false;
            };
            let entries = match std::fs::read_dir(self.local(&directory)) {
                Ok(entries) => Some(entries),
                Err(error) => {
                    failed(&error);
                    None
                }
            };
            for entry in entries.into_iter().flatten() {
                let entry = entry.and_then(|e| Ok((e.file_type()?.is_dir(), e)));
                let (is_directory, entry) = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        failed(&error);
                        break;
                    }
                };
                let name = path_bytes(Path::new(&entry.file_name()));
                let path = join(&directory, &name);
                if self.options.filter.leaves_out(&path, is_directory) {
                    continue;
                }
                let waits = listed.add(&name) && !self.options.dry_run;
                if let Some(totals) = self.is_finished(finished.as_ref(), &path, is_directory) {
                    taken.add(&totals);
                    continue;
                }
                given += 1;
                if waits {
                    let alike = Made::Alike(Found { path, is_directory });
                    if made.send(alike).is_err() {
                        return;
                    }
                    continue;
                }
                if is_directory {
                    directories.push(path.clone());
                }
                batch.push(Found { path, is_directory });
                if batch.len() >= BATCH_NAMES && found.send(std::mem::take(&mut batch)).is_err() {
                    return;
                }
            }
            let all = Made::Listed {
                directory,
                entries: given,
                taken,
                is_well,
            };
            if made.send(all).is_err() {
                return;
            }
        }
        let _ = found.send(batch);
    }

    /// What of a directory is finished and still stands at the target: `listed` is told its names.
    fn finished_in(&self, directory: &[u8], listed: &mut Listed) -> Option<Finished> {
        let skip = self.skip.as_ref()?;
        let mut finished = skip.of(directory)?;
        for entry in self.client.list(&join(&self.root, directory)) {
            match entry {
                Ok(entry) if is_directory(Some(&entry.attributes)) => {
                    let mtime_ns = || Some(entry.attributes.mtime_ns);
                    if skip.see_directory(&mut finished, &entry.name, mtime_ns) {
                        listed.moved(&entry.name);
                    }
                }
                Ok(entry) => {
                    if let Some(mark) = mark_of(&entry.attributes)
                        && skip.see(&mut finished, &entry.name, mark)
                    {
                        listed.moved(&entry.name);
                    }
                }
                // The journal is as true as before.
                Err(fault) if ends_session(&fault) => return None,
                Err(_) => break,
            }
            if self.is_stopped() {
                return None;
            }
        }
        skip.seen_all(&mut finished);
        Some(finished)
    }

    /// What an entry has that an earlier run finished.
    fn is_finished(
        &self,
        finished: Option<&Finished>,
        path: &[u8],
        is_directory: bool,
    ) -> Option<Totals> {
        let (skip, finished) = (self.skip.as_ref()?, finished?);
        if is_directory {
            return finished.directory(path);
        }
        if !finished.has_entries() {
            return None;
        }
        let mark = local_mark(&self.local(path))?;
        if !skip.entry(finished, path, mark) {
            return None;
        }
        // Further names of it are links to this one. If it is one itself, the first may be sent
        // anew, and is another file then.
        if self.is_further(path) {
            return None;
        }
        Some(totals_of(mark))
    }

    /// A packer: reads what was found into packs.
    pub(super) fn gather(
        &self,
        queue: &Mutex<mpsc::Receiver<Vec<Found>>>,
        made: &mpsc::SyncSender<Made>,
    ) -> Result<(), Fault> {
        let mut gather = self.pack_source()?;
        let mut pack = self.begin_pack();
        loop {
            let batch = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = batch else { break };
            let mut directories = Vec::new();
            for found in batch {
                // Who finds the names is not to wait for a place for them.
                if self.is_stopped() {
                    break;
                }
                if self.options.hard_links && !found.is_directory {
                    let (is_several, first) = self.first_name(&found.path);
                    if is_several {
                        let _ = made.send(Made::Several(found.path.clone()));
                    }
                    if let Some(first) = first {
                        let path = found.path;
                        let mark = local_mark(&self.local(&path));
                        let _ = made.send(Made::Link(Link { path, first, mark }));
                        continue;
                    }
                }
                let mut added = gather.add(&found.path, &mut pack);
                if matches!(added, Added::Full) {
                    self.send(&mut pack, made);
                    added = gather.add(&found.path, &mut pack);
                }
                if found.is_directory {
                    directories.push(found.path.clone());
                }
                match added {
                    Added::Done => {
                        let begun = self.packs.load(Ordering::Relaxed);
                        if pack.len() >= self.cut.pack_bytes(begun) {
                            self.send(&mut pack, made);
                        }
                    }
                    // A pack of its own had no room either.
                    Added::Full | Added::Large(_) => {
                        let _ = made.send(Made::Large(found.path));
                    }
                    Added::Failed(fault) => {
                        let _ = made.send(Made::Missed {
                            path: found.path,
                            is_directory: found.is_directory,
                            fault,
                        });
                    }
                }
            }
            if !directories.is_empty() {
                let _ = made.send(Made::Directories(directories));
            }
        }
        self.send(&mut pack, made);
        self.unkept.fetch_add(gather.unkept(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether a file has several names, and for a further one the one that was first.
    fn first_name(&self, path: &[u8]) -> (bool, Option<Vec<u8>>) {
        match several_names(&self.local(path)) {
            Some(file) => (true, self.names.before(file, path)),
            None => (false, None),
        }
    }

    /// The name that came before, to which this one is to be a link.
    pub(in crate::tree) fn first_of(&self, path: &[u8]) -> Option<Vec<u8>> {
        let keeps = self.options.hard_links;
        keeps.then(|| self.first_name(path).1).flatten()
    }

    /// Whether a name is to be a link to another one that came before.
    pub(in crate::tree) fn is_further(&self, path: &[u8]) -> bool {
        self.first_of(path).is_some()
    }
}
