//! Carrying out what a comparison found: the only part of a synchronisation that changes things.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use xdfs_engine::command::JobKind;
use xdfs_engine::{DownloadJob, UploadJob};
use xdfs_proto::pack::{Content, Entry, Metadata, Owner, PACK_BYTES_MAX, PackReader, PackWriter};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_store::{LocalStore, PackHow, Store as _};

use super::alike::Waits;
use super::delta::{self, Candidate, Preparation};
use super::plan::{Action, Give, Late, Renaming};
use super::swap;
use crate::client::{Client, path_bytes};
use crate::paths::{Attributes, Call, PendingCall};
use crate::transfer::{Transfer, TransferOptions};
use crate::tree::download::{self, Download};
use crate::tree::journal::mark_of;
use crate::tree::links::{FirstNames, Link};
use crate::tree::moving::{
    Item, Report, attributes_of, ends_session, transfer_options, wait_for_pack,
};
use crate::tree::upload::{self, Upload};
use crate::tree::{Cut, SET_ID, SyncStep, TreeOptions, join};

/// Entries that are given to a mover at once.
const BATCH_ENTRIES: usize = 128;
/// Calls that are under way.
pub(super) const CALLS_MAX: usize = 64;
/// How often it is looked whether a file that takes a place is to be broken off.
const SWAP_INTERVAL: Duration = Duration::from_millis(100);
/// How attributes are set here.
const SET: PackHow = PackHow {
    overwrite: true,
    relaxed: false,
};

/// Which way it goes, and the source.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route<'a> {
    Up(&'a Path),
    Down(&'a [u8]),
}

/// Gives actions, until the flag is set.
pub(super) type Actions<'a> = dyn Fn(&AtomicBool, &mut Give<'_>) + Sync + 'a;

/// What changes the target.
pub(super) struct Carrier<'a> {
    client: &'a Client,
    route: Route<'a>,
    root: &'a [u8],
    options: &'a TreeOptions,
    /// Old files are looked at for what they have of new ones.
    delta: bool,
    /// Why the server doesn't do that, once it has said so.
    refusal: OnceLock<Fault>,
    /// The observer has heard it.
    is_refusal_told: AtomicBool,
    /// The root of the target stays whose it is: it may be that of an export.
    keeps_root: bool,
    cut: Cut,
    /// What comes in a later pass may be a further name of what came before.
    names: FirstNames,
    store: LocalStore,
    beneath: OnceLock<LocalStore>,
}

/// Is told what came of a change.
pub(super) type Ended<'e, T> = dyn FnMut(T, Result<(), Fault>, &mut Report<'_>) + 'e;

/// A change that was begun.
enum Begun {
    Here(Result<(), Fault>),
    There(PendingCall),
}

impl<'a> Carrier<'a> {
    pub(super) fn new(
        client: &'a Client,
        route: Route<'a>,
        root: &'a [u8],
        options: &'a TreeOptions,
        (delta, keeps_root): (bool, bool),
        cut: Cut,
    ) -> Self {
        Self {
            client,
            route,
            root,
            options,
            delta,
            refusal: OnceLock::new(),
            is_refusal_told: AtomicBool::new(false),
            keeps_root,
            cut,
            names: FirstNames::default(),
            store: LocalStore::unrooted(),
            beneath: OnceLock::new(),
        }
    }

    fn upload(&self, source: &'a Path) -> Upload<'a> {
        let root = self.root.to_vec();
        Upload::new(self.client, source, root, self.options, self.cut).sharing(&self.names)
    }

    fn download(&self, source: &'a [u8]) -> Download<'a> {
        let (root, options) = (self.root.to_vec(), self.options);
        Download::new(self.client, source, root, options, self.cut, None).sharing(&self.names)
    }

    /// Moves what the actions name, while they are given.
    pub(super) fn carry(
        &self,
        actions: &Actions<'_>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let moved = match self.route {
            Route::Up(source) => {
                let provide: &upload::Provider<'_> =
                    &|upload, found, made| self.give_up(actions, upload, found, made);
                self.upload(source).run(Some(provide), report)
            }
            Route::Down(source) => {
                let provide: &download::Provider<'_> =
                    &|download, found| self.give_down(actions, download, found);
                self.download(source).run(Some(provide), report)
            }
        };
        if let Some(fault) = self.refusal.get()
            && !self.is_refusal_told.swap(true, Ordering::Relaxed)
        {
            let fault = fault.clone();
            report.warn(&fault.hint("large files that changed were sent whole"));
        }
        moved
    }

    fn give_up(
        &self,
        actions: &Actions<'_>,
        upload: &Upload<'_>,
        found: &SyncSender<Vec<upload::Found>>,
        made: &SyncSender<upload::Made>,
    ) {
        let prepare = |candidate: Candidate| {
            let path = candidate.path;
            if let Route::Up(source) = self.route
                && !upload.stop.load(Ordering::Relaxed)
                && !upload.is_further(&path)
            {
                let source = join(&path_bytes(source), &path);
                let target = join(self.root, &path);
                let preparation = self.preparation(&upload.stop);
                preparation.upload(&source, &target, candidate.old);
            }
            let is_directory = false;
            let _ = found.send(vec![upload::Found { path, is_directory }]);
        };
        delta::beside(self.delta, &prepare, |candidates| {
            self.feed_up(actions, upload, (found, made), candidates);
        });
    }

    fn feed_up(
        &self,
        actions: &Actions<'_>,
        upload: &Upload<'_>,
        (found, made): (&SyncSender<Vec<upload::Found>>, &SyncSender<upload::Made>),
        candidates: &SyncSender<Candidate>,
    ) {
        let mut batch = Vec::new();
        let mut sets = upload.begin_pack();
        actions(&upload.stop, &mut |action| match action {
            Action::Copy {
                path,
                attributes,
                old: Some(old),
                ..
            } if self.may_pay(&attributes, old) => {
                let candidate = Candidate {
                    path,
                    attributes,
                    old,
                };
                candidates.send(candidate).is_ok()
            }
            Action::Copy {
                path, attributes, ..
            } => {
                let is_directory = attributes.kind == crate::FileKind::Directory;
                batch.push(upload::Found { path, is_directory });
                batch.len() < BATCH_ENTRIES || found.send(std::mem::take(&mut batch)).is_ok()
            }
            Action::Set { path, attributes } => {
                let entry = self.attributes_entry(&path, &attributes);
                if !sets.entry(&entry) {
                    upload.send(&mut sets, made);
                    // A path is shorter than any pack.
                    let _ = sets.entry(&entry);
                }
                true
            }
            Action::Failed { path, fault } => made.send(upload::Made::Failed(path, fault)).is_ok(),
        });
        upload.send(&mut sets, made);
        let _ = found.send(batch);
    }

    fn give_down(
        &self,
        actions: &Actions<'_>,
        download: &Download<'_>,
        found: &SyncSender<download::Found>,
    ) {
        let prepare = |candidate: Candidate| {
            let Candidate {
                path, attributes, ..
            } = candidate;
            if let Route::Down(source) = self.route
                && let Ok(store) = self.beneath()
                && !download.stop.load(Ordering::Relaxed)
                && !download.is_further(&path, &attributes)
            {
                let source = join(source, &path);
                let preparation = self.preparation(&download.stop);
                preparation.download(&source, &attributes, store, &path);
            }
            let _ = found.send(download::Found::Entries(vec![(path, attributes)]));
        };
        delta::beside(self.delta, &prepare, |candidates| {
            self.feed_down(actions, download, found, candidates);
        });
    }

    fn feed_down(
        &self,
        actions: &Actions<'_>,
        download: &Download<'_>,
        found: &SyncSender<download::Found>,
        candidates: &SyncSender<Candidate>,
    ) {
        let mut batch: Vec<Late> = Vec::new();
        let mut sets = Sets::new();
        let tell = |failures: Vec<(Vec<u8>, Fault)>| {
            for (path, fault) in failures {
                let _ = found.send(download::Found::Failed(path, fault));
            }
        };
        actions(&download.stop, &mut |action| match action {
            Action::Copy {
                path,
                attributes,
                old: Some(old),
                ..
            } if self.may_pay(&attributes, old) => {
                let candidate = Candidate {
                    path,
                    attributes,
                    old,
                };
                candidates.send(candidate).is_ok()
            }
            Action::Copy {
                path, attributes, ..
            } => {
                batch.push((path, attributes));
                if batch.len() < BATCH_ENTRIES {
                    return true;
                }
                let entries = std::mem::take(&mut batch);
                found.send(download::Found::Entries(entries)).is_ok()
            }
            Action::Set { path, attributes } => {
                let entry = self.attributes_entry(&path, &attributes);
                if !sets.add(&entry) {
                    tell(self.write(std::mem::replace(&mut sets, Sets::new())));
                    sets.add(&entry);
                }
                true
            }
            Action::Failed { path, fault } => {
                found.send(download::Found::Failed(path, fault)).is_ok()
            }
        });
        tell(self.write(sets));
        let _ = found.send(download::Found::Entries(batch));
    }

    fn may_pay(&self, attributes: &Attributes, old: u64) -> bool {
        self.delta && delta::may_pay(attributes.size, old)
    }

    fn preparation<'p>(&'p self, stop: &'p AtomicBool) -> Preparation<'p> {
        Preparation {
            client: self.client,
            digest: self.client.digest(self.options.digest),
            stop,
            refusal: &self.refusal,
        }
    }

    fn attributes_entry<'e>(&self, path: &'e [u8], attributes: &Attributes) -> Entry<'e> {
        let is_kept = path.is_empty() && self.keeps_root;
        let owner = Owner {
            uid: attributes.uid,
            gid: attributes.gid,
            names: None,
        };
        Entry {
            path,
            metadata: Metadata {
                mode: u16::try_from(attributes.mode).ok().filter(|_| !is_kept),
                mtime_ns: Some(attributes.mtime_ns),
                owner: (self.options.owner && !is_kept).then_some(owner),
                ..Metadata::default()
            },
            content: Content::Attributes,
        }
    }

    /// Writes attributes here; returns what failed.
    fn write(&self, sets: Sets) -> Vec<(Vec<u8>, Fault)> {
        if sets.paths.is_empty() {
            return Vec::new();
        }
        let (memory, length) = sets.pack.finish();
        let written = self.store.write_pack(self.root, SET, &memory[..length]);
        let fault_of = |number| match &written {
            Ok(failures) => failures.of(number).cloned(),
            Err(fault) => Some(fault.clone()),
        };
        (0..)
            .zip(sets.paths)
            .filter_map(|(number, path)| {
                let fault = fault_of(number)?.path(&path);
                Some((path, fault))
            })
            .collect()
    }

    /// Sets what is known of entries, in this order.
    pub(super) fn set<'e>(
        &self,
        entries: impl Iterator<Item = (&'e Vec<u8>, &'e Attributes)>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let mut sets = Sets::new();
        for (path, attributes) in entries {
            let entry = self.attributes_entry(path, attributes);
            if !sets.add(&entry) {
                self.set_pack(std::mem::replace(&mut sets, Sets::new()), report)?;
                sets.add(&entry);
            }
        }
        self.set_pack(sets, report)
    }

    fn set_pack(&self, sets: Sets, report: &mut Report<'_>) -> Result<(), Fault> {
        if sets.paths.is_empty() {
            return Ok(());
        }
        match self.route {
            Route::Up(source) => {
                wait_for_pack(self.upload(source).start_writer(sets.pack)?, report)
            }
            Route::Down(_) => {
                for (path, fault) in self.write(sets) {
                    report.unset(&path, &fault);
                }
                Ok(())
            }
        }
    }

    pub(super) fn make_root(&self) -> Result<(), Fault> {
        let call = Call::MakeDirectory {
            path: self.root.to_vec(),
            mode: None,
            parents: true,
        };
        match self.route {
            Route::Up(_) => self.client.call(call).map(|_| ()),
            Route::Down(_) => self.store.call(&call, &mut |_| Ok(())).map(|_| ()),
        }
    }

    /// The path of an entry of the target, as [`Self::begin`] takes it.
    pub(super) fn at(&self, path: &[u8]) -> Vec<u8> {
        match self.route {
            Route::Up(_) => join(self.root, path),
            Route::Down(_) => path.to_vec(),
        }
    }

    /// The target on this machine: no link leads out of it.
    fn beneath(&self) -> Result<&LocalStore, Fault> {
        if let Some(store) = self.beneath.get() {
            return Ok(store);
        }
        let root = xdfs_sys::fs::path_from_bytes(self.root);
        let root = root.map_err(|e| Fault::from_io("open the target", self.root, &e))?;
        let store = LocalStore::rooted(&root, false)?;
        Ok(self.beneath.get_or_init(|| store))
    }

    pub(super) fn make_durable(&self) -> Result<(), Fault> {
        let path = match self.route {
            Route::Up(_) => self.root.to_vec(),
            Route::Down(_) => b"/".to_vec(),
        };
        self.finish(self.begin(Call::Sync { path })?)
    }

    /// Makes a call about the target.
    fn begin(&self, call: Call) -> Result<Begun, Fault> {
        match self.route {
            Route::Up(_) => self.client.start_call(call).map(Begun::There),
            Route::Down(_) => {
                let done = self.beneath()?.call(&call, &mut |_| Ok(()));
                Ok(Begun::Here(done.map(|_| ())))
            }
        }
    }

    fn finish(&self, begun: Begun) -> Result<(), Fault> {
        match begun {
            Begun::Here(result) => result,
            Begun::There(call) => call.wait().map(|_| ()),
        }
    }

    /// Makes calls, several at once and in any order, until the observer wants no more. `ended` is
    /// told what came of each.
    pub(super) fn call_all<T>(
        &self,
        calls: impl Iterator<Item = (T, Call)>,
        report: &mut Report<'_>,
        ended: &mut Ended<'_, T>,
    ) -> Result<(), Fault> {
        let mut under_way = VecDeque::new();
        let mut finish = |(what, begun): (T, Begun), report: &mut Report<'_>| {
            match self.finish(begun) {
                Err(fault) if ends_session(&fault) => return Err(fault),
                result => ended(what, result, report),
            }
            report.progress();
            Ok(())
        };
        for (what, call) in calls {
            if report.is_stopped() {
                break;
            }
            under_way.push_back((what, self.begin(call)?));
            if under_way.len() >= CALLS_MAX
                && let Some(first) = under_way.pop_front()
            {
                finish(first, report)?;
            }
        }
        under_way
            .into_iter()
            .try_for_each(|begun| finish(begun, report))
    }

    /// Gives files their new names; what can't be renamed is added to `late`. Returns how many
    /// were.
    pub(super) fn rename(
        &self,
        renamings: Vec<Renaming>,
        late: &mut Vec<Late>,
        report: &mut Report<'_>,
    ) -> Result<u64, Fault> {
        let mut renamed = Vec::new();
        let calls = renamings.into_iter().map(|renaming| {
            let call = Call::Rename {
                from: self.at(&renaming.from),
                to: self.at(&renaming.to),
                overwrite: false,
            };
            (renaming, call)
        });
        self.call_all(calls, report, &mut |renaming, result, report| {
            let Renaming {
                from,
                to,
                attributes,
            } = renaming;
            match result {
                Ok(()) => {
                    report.step(SyncStep::Rename, &to, Some(&from));
                    renamed.push((to, attributes));
                }
                Err(_) => late.push((to, attributes)),
            }
        })?;
        self.set(renamed.iter().map(|(path, a)| (path, a)), report)?;
        Ok(renamed.len() as u64)
    }

    /// Of entries that waited those under whose names nothing stands. The others failed.
    pub(super) fn keep_missing(
        &self,
        waited: Vec<Waits>,
        report: &mut Report<'_>,
    ) -> Result<Vec<Waits>, Fault> {
        let mut missing = Vec::new();
        let calls = waited.into_iter().map(|waits| {
            let path = self.at(&waits.path);
            let follow = false;
            (waits, Call::Stat { path, follow })
        });
        self.call_all(calls, report, &mut |waits, result, report| match result {
            Ok(()) => report.failed(&waits.path, &waits.fault()),
            Err(fault) if fault.code == Code::NotFound => missing.push(waits),
            Err(fault) => report.failed(&waits.path, &fault),
        })?;
        Ok(missing)
    }

    /// Puts large files where something stands that is no file and no directory: each comes whole
    /// under a name of its own beside it, and takes the place in one step. Further names of files
    /// are made when these are there.
    pub(super) fn swap(&self, swaps: Vec<Late>, report: &mut Report<'_>) -> Result<(), Fault> {
        let mut links = Vec::new();
        for (path, attributes) in swaps {
            if report.is_stopped() {
                return Ok(());
            }
            if let Some(first) = self.first_of(&path, &attributes) {
                let mark = mark_of(&attributes);
                links.push(Link { path, first, mark });
                continue;
            }
            match self.swap_one(&path, &attributes, report) {
                Ok(bytes) => {
                    let is_special = attributes.mode & SET_ID != 0;
                    report.result.unkept += u64::from(is_special && !self.options.owner);
                    report.moved(&Item::large(path, bytes, None));
                }
                Err(fault) if ends_session(&fault) => return Err(fault),
                Err(fault) => report.lost(&path, &fault),
            }
        }
        match self.route {
            _ if links.is_empty() || report.is_stopped() => Ok(()),
            Route::Up(source) => self.upload(source).send_links(links, report),
            Route::Down(source) => self.download(source).make_links(links, report),
        }
    }

    /// The name that came before, to which this one is to be a link.
    fn first_of(&self, path: &[u8], attributes: &Attributes) -> Option<Vec<u8>> {
        match self.route {
            Route::Up(source) => self.upload(source).first_of(path),
            Route::Down(source) => self.download(source).first_of(path, attributes),
        }
    }

    fn swap_one(
        &self,
        path: &[u8],
        attributes: &Attributes,
        report: &mut Report<'_>,
    ) -> Result<u64, Fault> {
        // Before it is read, which changes the time of the last read.
        let kept = self.kept_of(path, attributes)?;
        // The same ones each time, so that a transfer that was broken off goes on. What somebody
        // else has under such a name stays.
        let mut moved = Err(Fault::new(Code::AlreadyExists, "", ""));
        for number in 0..swap::NAMES {
            moved = self.move_beside(path, number, report);
            if !matches!(&moved, Err(fault) if fault.code == Code::AlreadyExists) {
                break;
            }
        }
        let (beside, bytes) = moved?;
        let lacks = match self.dress(&beside, &kept) {
            // Nothing of it may have been set, and who compares later would see nothing missing:
            // what stands there stays until the next run.
            Err(fault) if !ends_session(&fault) => {
                self.remove(&beside)?;
                return Err(fault.path(path));
            }
            dressed => dressed?,
        };
        let renamed = self.finish(self.begin(Call::Rename {
            from: self.at(&beside),
            to: self.at(path),
            overwrite: true,
        })?);
        if renamed.is_err() {
            self.remove(&beside)?;
        }
        renamed?;
        lacks.map_or(Ok(bytes), |fault| Err(fault.path(path)))
    }

    /// Removes a file of which is told why it has to go.
    fn remove(&self, path: &[u8]) -> Result<(), Fault> {
        let path = self.at(path);
        let _ = self.finish(self.begin(Call::RemoveFile { path })?);
        Ok(())
    }

    /// A pack that sets all that is kept of a large file.
    fn kept_of(&self, path: &[u8], attributes: &Attributes) -> Result<Vec<u8>, Fault> {
        if !self.options.keeps_more() {
            return Ok(attributes_of(&self.attributes_entry(path, attributes)));
        }
        match self.route {
            Route::Up(source) => self.upload(source).kept_of(path),
            Route::Down(source) => self.download(source).kept_of(path),
        }
    }

    /// Sets what a pack has for a file before that has its name: who breaks it off then leaves
    /// nothing that looks as if it were finished. Returns what of it could not be set.
    fn dress(&self, beside: &[u8], kept: &[u8]) -> Result<Option<Fault>, Fault> {
        let limits = Limits::default();
        let Some(Ok(entry)) = PackReader::new(kept, &limits).next() else {
            return Ok(None);
        };
        let pack = attributes_of(&Entry {
            path: beside,
            ..entry
        });
        let failures = match self.route {
            Route::Up(source) => self.upload(source).set_attributes(pack)?,
            Route::Down(_) => self.store.write_pack(self.root, SET, &pack)?,
        };
        Ok(failures.of(0).cloned())
    }

    /// Moves a large file to a name beside its own.
    fn move_beside(
        &self,
        path: &[u8],
        number: u32,
        report: &mut Report<'_>,
    ) -> Result<(Vec<u8>, u64), Fault> {
        let beside = swap::beside(path, number);
        let mut transfer = self.start_file(path, &beside)?;
        while !transfer.is_finished() {
            if report.is_stopped() {
                transfer.cancel();
            }
            transfer.progress(SWAP_INTERVAL);
            report.progress();
        }
        Ok((beside, transfer.wait()?.bytes))
    }

    /// Begins to move a large file of the source to a path of the target that nothing has.
    fn start_file(&self, path: &[u8], target: &[u8]) -> Result<Transfer, Fault> {
        let kind = match self.route {
            Route::Up(source) => {
                let source_path = join(&path_bytes(source), path);
                JobKind::Upload(UploadJob {
                    source: self.store.open_source(&source_path)?,
                    source_path,
                    target: join(self.root, target),
                    name: Vec::new(),
                    pack: false,
                    relaxed: false,
                })
            }
            Route::Down(source) => JobKind::Download(DownloadJob {
                source: join(source, path),
                store: Arc::new(self.beneath()?.clone()),
                target: target.to_vec(),
                name: Vec::new(),
                wish: None,
            }),
        };
        let options = TransferOptions {
            overwrite: false,
            ..transfer_options(self.options)
        };
        self.client.start(&options, kind)
    }
}

/// Attributes that are to be set together.
struct Sets {
    pack: PackWriter,
    paths: Vec<Vec<u8>>,
}

impl Sets {
    fn new() -> Self {
        Self {
            pack: PackWriter::new(Vec::new(), PACK_BYTES_MAX),
            paths: Vec::new(),
        }
    }

    /// `false` if there is no room.
    fn add(&mut self, entry: &Entry<'_>) -> bool {
        let added = self.pack.entry(entry);
        if added {
            self.paths.push(entry.path.to_vec());
        }
        added
    }
}
