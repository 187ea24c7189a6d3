//! A tree from the server to here.

mod end;
mod seen;
mod waiting;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::DownloadJob;
use xdfs_engine::command::JobKind;
use xdfs_proto::pack::{WISH_BYTES_MAX, Wish};
use xdfs_proto::{Code, Fault};
use xdfs_store::tree_journal::{Root, Totals};
use xdfs_store::{LocalStore, Store};

use self::seen::{Came, Seen};
use super::alike::{Listed, Waiting};
use super::journal::{
    self, Ends, Finished, Keeper, MakeDurable, Skip, local_mark, local_mtime, mark_of, totals_of,
};
use super::links::{FirstNames, Link};
use super::moving::{
    Item, Kept, Kind, LargeFiles, MovingPack, Packs, Polled, Report, ends_session, transfer_options,
};
use super::tracker::{Known, split};
use super::{
    Cut, Durability, Observer, SET_ID, SMALL_BYTES_MAX, TreeOptions, TreeResult, WHOLE_AT_ONCE,
    is_directory, join, last_name, not_a_directory,
};
use crate::client::{Client, path_bytes};
use crate::paths::{Answer, Attributes, Call, FileKind};
use crate::transfer::TransferOptions;

/// Directories that are listed at once, on short paths and on long ones.
const LISTINGS_SHORT: usize = 4;
const LISTINGS_LONG: usize = 16;
/// Entries that the listings found and nobody took yet.
const FOUND_WAITING: usize = 64;
/// Bytes of an entry of a pack beside its path and content, about.
const ENTRY_BYTES: u64 = 32;
/// How often is looked at what has ended while other things go on.
const TICK: Duration = Duration::from_millis(100);

pub(super) fn run(
    client: &Client,
    source: &[u8],
    target: &Path,
    options: &TreeOptions,
    observer: &mut Observer<'_>,
) -> Result<TreeResult, Fault> {
    let (there, round_trip) = client.look(source)?;
    let Some(attributes) = there else {
        let cause = "there is no such directory on the server";
        return Err(Fault::new(Code::NotFound, "copy a tree", cause).path(source));
    };
    if !is_directory(Some(&attributes)) {
        return Err(not_a_directory(source).remote());
    }
    let target_bytes = path_bytes(target);
    let mut relay = |event: super::TreeEvent<'_>| -> ControlFlow<()> { observer(event) };
    let mut report = Report::new(&mut relay);
    let ends = Ends::Down(source, target);
    let mut keeper = journal::open(client, &ends, options, &mut report)?;
    let source_inode = attributes.inode;
    let earlier = match &mut keeper {
        Some(keeper) => keeper.earlier_root(source_inode, &mut report, local_attributes)?,
        None => None,
    };
    let root = match (earlier, std::fs::metadata(target)) {
        (Some((root, _)), _) => root.path,
        (None, Ok(meta)) if meta.is_dir() => join(&target_bytes, last_name(source)),
        (None, Ok(_)) => return Err(not_a_directory(&target_bytes)),
        (None, Err(_)) => target_bytes,
    };
    report.result.target.clone_from(&root);
    let cut = Cut::new(client, round_trip);
    let mut download = Download::new(client, source, root, options, cut, Some(attributes));
    if let Some(keeper) = &mut keeper {
        let root = Root {
            path: download.root.clone(),
            inode: 0,
            source_inode,
            was_there: false,
        };
        keeper.begin(root, &mut report);
        download.skip = Some(keeper.skip());
    }
    if !options.dry_run {
        let has_run = keeper.as_ref().is_some_and(Keeper::has_run);
        let claims = keeper.as_ref().is_some_and(Keeper::is_usable);
        report.track(claims, has_run);
    }
    *download
        .keeper
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = keeper;
    download.run(None, &mut report)?;
    report.finish()
}

/// What stands under a path here, if anything.
fn local_attributes(path: &[u8]) -> Result<Option<Attributes>, Fault> {
    let call = Call::Stat {
        path: path.to_vec(),
        follow: true,
    };
    match LocalStore::unrooted().call(&call, &mut |_| Ok(())) {
        Ok(Answer::Attributes(attributes)) => Ok(Some(attributes)),
        Ok(_) => Ok(None),
        Err(fault) if fault.code == Code::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Where entries come from if not from the listings.
pub(super) type Provider<'p> = dyn Fn(&Download<'_>, &mpsc::SyncSender<Found>) + Sync + 'p;

pub(super) struct Download<'a> {
    client: &'a Client,
    source: &'a [u8],
    /// The path of the tree here.
    root: Vec<u8>,
    options: &'a TreeOptions,
    cut: Cut,
    store: LocalStore,
    /// What is beneath the root and nothing else, whatever links lead there.
    beneath: OnceLock<Arc<LocalStore>>,
    pub(super) stop: AtomicBool,
    directories: Directories,
    /// What an earlier run finished.
    skip: Option<Skip>,
    /// The first name of each file that has several.
    names: FirstNames,
    /// The journal, until the tree is begun.
    keeper: Mutex<Option<Keeper>>,
}

/// What the listings tell.
pub(super) enum Found {
    Entries(Vec<(Vec<u8>, Attributes)>),
    /// Names that wait, since others may be taken for them.
    Alike(Vec<(Vec<u8>, Attributes)>),
    /// All entries of a directory were told: so many are fetched, others were fetched earlier.
    Listed {
        directory: Vec<u8>,
        entries: u64,
        taken: Totals,
        is_well: bool,
    },
    Failed(Vec<u8>, Fault),
}

/// Directories that wait to be listed.
struct Directories {
    state: Mutex<Unlisted>,
    changed: Condvar,
}

struct Unlisted {
    paths: VecDeque<Vec<u8>>,
    /// Listings that run, and may find further directories.
    running: usize,
    root: Option<Attributes>,
}

impl Directories {
    fn new(root: Option<Attributes>) -> Self {
        Self {
            state: Mutex::new(Unlisted {
                paths: VecDeque::from([Vec::new()]),
                running: 0,
                root,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Unlisted> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next one to list; `None` when all are listed.
    fn take(&self, stop: &AtomicBool) -> Option<Vec<u8>> {
        let mut waiting = self.lock();
        loop {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(path) = waiting.paths.pop_back() {
                waiting.running += 1;
                return Some(path);
            }
            if waiting.running == 0 {
                return None;
            }
            waiting = self
                .changed
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn found(&self, paths: impl Iterator<Item = Vec<u8>>) {
        self.lock().paths.extend(paths);
        self.changed.notify_all();
    }

    fn listed(&self) {
        self.lock().running -= 1;
        self.changed.notify_all();
    }
}

impl<'a> Download<'a> {
    /// With what is known of the root, if it is to be made and set too.
    pub(super) fn new(
        client: &'a Client,
        source: &'a [u8],
        root: Vec<u8>,
        options: &'a TreeOptions,
        cut: Cut,
        attributes: Option<Attributes>,
    ) -> Self {
        Self {
            client,
            source,
            root,
            options,
            cut,
            store: LocalStore::unrooted(),
            beneath: OnceLock::new(),
            stop: AtomicBool::new(false),
            directories: Directories::new(attributes),
            skip: None,
            names: FirstNames::default(),
            keeper: Mutex::default(),
        }
    }

    /// The same, which knows first names that others found.
    pub(super) fn sharing(self, names: &FirstNames) -> Self {
        let names = names.clone();
        Self { names, ..self }
    }

    /// Fetches what the provider names, or else everything.
    pub(super) fn run(
        &self,
        provider: Option<&Provider<'_>>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let result = self.drive(provider, report);
        self.stop.store(true, Ordering::Relaxed);
        result
    }

    /// Fetches what the provider names, or else what is in the directories that wait to be listed.
    fn pass(
        &self,
        provider: Option<&Provider<'_>>,
        state: &mut Fetching,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let (found, entries) = mpsc::sync_channel(FOUND_WAITING);
        let listings = if self.cut.is_long {
            LISTINGS_LONG
        } else {
            LISTINGS_SHORT
        };
        thread::scope(|scope| {
            if let Some(provide) = provider {
                let found = found.clone();
                scope.spawn(move || provide(self, &found));
            } else {
                for _ in 0..listings {
                    let found = found.clone();
                    scope.spawn(move || self.list(&found));
                }
            }
            drop(found);
            let result = self.take_found(&entries, state, report);
            if result.is_err() || report.is_stopped() {
                self.stop.store(true, Ordering::Relaxed);
                self.directories.changed.notify_all();
            }
            drop(entries);
            result
        })
    }

    /// Lists one directory after another.
    fn list(&self, found: &mpsc::SyncSender<Found>) {
        while let Some(directory) = self.directories.take(&self.stop) {
            let finished = self.skip.as_ref().and_then(|skip| skip.of(&directory));
            let mut listing = Listing::default();
            listing.finished = finished.map(|f| self.look_at(f, &mut listing.names));
            let mut is_well = true;
            for entry in self.client.list(&join(self.source, &directory)) {
                if self.stop.load(Ordering::Relaxed) {
                    is_well = false;
                    break;
                }
                match entry {
                    Ok(entry) => {
                        let path = join(&directory, &entry.name);
                        listing.batch.push((path, entry.attributes));
                    }
                    Err(fault) => {
                        is_well = false;
                        let _ = found.send(Found::Failed(directory.clone(), fault));
                    }
                }
                if listing.batch.len() >= 256 {
                    self.pass_on(&mut listing, found);
                }
            }
            self.pass_on(&mut listing, found);
            let _ = found.send(Found::Listed {
                directory,
                entries: listing.given,
                taken: listing.taken,
                is_well,
            });
            self.directories.listed();
        }
    }

    /// Which of the finished entries of a directory still stand here: `names` is told them.
    fn look_at(&self, mut finished: Finished, names: &mut Listed) -> Finished {
        if let Some(skip) = &self.skip {
            let path = xdfs_sys::fs::path_from_bytes(&join(&self.root, finished.path()));
            let entries = path.and_then(std::fs::read_dir).into_iter().flatten();
            for entry in entries.flatten() {
                let name = path_bytes(Path::new(&entry.file_name()));
                let is_moved = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    skip.see_directory(&mut finished, &name, || local_mtime(&entry.path()))
                } else {
                    local_mark(&entry.path())
                        .is_some_and(|mark| skip.see(&mut finished, &name, mark))
                };
                if is_moved {
                    names.moved(&name);
                }
            }
            skip.seen_all(&mut finished);
        }
        finished
    }

    fn pass_on(&self, listing: &mut Listing, found: &mpsc::SyncSender<Found>) {
        let is_directory = |a: &Attributes| a.kind == FileKind::Directory;
        let mut batch = std::mem::take(&mut listing.batch);
        let filter = &self.options.filter;
        let mut alike = Vec::new();
        batch.retain(|(path, a)| {
            if filter.leaves_out(path, is_directory(a)) {
                return false;
            }
            let waits = listing.names.add(split(path).1) && !self.options.dry_run;
            let totals = self.finished(listing.finished.as_ref(), path, a);
            if let Some(totals) = &totals {
                listing.taken.add(totals);
            } else if waits {
                alike.push((path.clone(), a.clone()));
            }
            totals.is_none() && !waits
        });
        listing.given += (batch.len() + alike.len()) as u64;
        if !alike.is_empty() {
            let _ = found.send(Found::Alike(alike));
        }
        let below = batch.iter().filter(|(_, a)| is_directory(a));
        self.directories.found(below.map(|(path, _)| path.clone()));
        if !batch.is_empty() {
            let _ = found.send(Found::Entries(batch));
        }
    }

    /// What an entry has that an earlier run finished.
    fn finished(
        &self,
        finished: Option<&Finished>,
        path: &[u8],
        attributes: &Attributes,
    ) -> Option<Totals> {
        let (skip, finished) = (self.skip.as_ref()?, finished?);
        if attributes.kind == FileKind::Directory {
            return finished.directory(path);
        }
        let mark = mark_of(attributes)?;
        if !skip.entry(finished, path, mark) {
            return None;
        }
        // Further names of it are links to this one. If it is one itself, the first may be fetched
        // anew, and is another file then.
        if self.is_further(path, attributes) {
            return None;
        }
        Some(totals_of(mark))
    }

    /// Whether a file has several names that are to stay, and for a further one the one that was
    /// first.
    fn first_name(&self, path: &[u8], attributes: &Attributes) -> (bool, Option<Vec<u8>>) {
        let is_several = attributes.links > 1 && attributes.kind != FileKind::Directory;
        if !self.options.hard_links || !is_several {
            return (false, None);
        }
        let file = (attributes.device, attributes.inode);
        (true, self.names.before(file, path))
    }

    /// The name that came before, to which this one is to be a link.
    pub(super) fn first_of(&self, path: &[u8], attributes: &Attributes) -> Option<Vec<u8>> {
        self.first_name(path, attributes).1
    }

    /// Whether a name is to be a link to another one that came before.
    pub(super) fn is_further(&self, path: &[u8], attributes: &Attributes) -> bool {
        self.first_of(path, attributes).is_some()
    }

    fn drive(&self, provider: Option<&Provider<'_>>, report: &mut Report<'_>) -> Result<(), Fault> {
        let keeper = self
            .keeper
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut state = Fetching::new(keeper, self.options.overwrite);
        if self.options.hard_links {
            report.keep_lost();
        }
        let root = self.directories.lock().root.take();
        if let Some(root) = root {
            self.found_directory(&[], &root, &mut state, report);
            if !self.options.dry_run {
                self.make_root(report)?;
            }
        }
        self.pass(provider, &mut state, report)?;
        self.drain(&mut state, report)?;
        if self.options.dry_run || report.is_stopped() && state.keeper.is_none() {
            return Ok(());
        }
        self.try_again(&mut state, report)?;
        self.fetch_waiting(&mut state, report)?;
        if !report.is_stopped() {
            // What was fetched has its first names by now.
            self.link(&mut state, report)?;
        }
        self.close_all(&mut state, report)?;
        // A synchronisation does that when all of it is done.
        let is_durable = self.options.durability != Durability::None && provider.is_none();
        if report.has_moved() && is_durable {
            journal::sync_local(self.root.clone())?;
        }
        let Some(mut keeper) = state.keeper else {
            return Ok(());
        };
        let is_whole = !report.is_stopped() && report.result.failed == 0;
        self.learn_root(&mut keeper)?;
        let claims = report.tracker.as_mut().map(|tracker| tracker.take_claims());
        keeper.finish(is_whole, claims.unwrap_or_default(), report)
    }

    /// Takes what the listings find.
    fn take_found(
        &self,
        found: &mpsc::Receiver<Found>,
        state: &mut Fetching,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        loop {
            match report.poll(found) {
                Polled::Given(Found::Entries(entries)) => {
                    for (path, attributes) in entries {
                        self.sort(path, attributes, state, report)?;
                    }
                }
                Polled::Given(Found::Alike(entries)) => {
                    entries.into_iter().for_each(|e| state.waiting.add(e));
                }
                Polled::Given(Found::Listed {
                    directory,
                    entries,
                    taken,
                    is_well,
                }) => {
                    report.resumed(&taken);
                    if let Some(tracker) = &mut report.tracker {
                        tracker.listed(&directory, entries, &taken, is_well);
                    }
                }
                Polled::Given(Found::Failed(_, fault)) if ends_session(&fault) => {
                    return Err(fault);
                }
                Polled::Given(Found::Failed(path, fault)) => report.failed(&path, &fault),
                Polled::Quiet => {}
                Polled::Ended => return Ok(()),
            }
            self.keep_up(state, report)?;
        }
    }

    /// Waits for everything that is under way.
    fn drain(&self, state: &mut Fetching, report: &mut Report<'_>) -> Result<(), Fault> {
        self.send_wish(state, report)?;
        loop {
            while !state.packs.is_empty() {
                self.wait_for_packs(state, report)?;
            }
            // What had no room in its pack, or was too large for it after all.
            self.send_wish(state, report)?;
            match state.packs.take() {
                Some(pack) if !report.is_stopped() => self.wait(pack, state, report)?,
                _ => break,
            }
        }
        while !state.large.is_empty() {
            state.large.wait(report)?;
            self.claim(state, report)?;
        }
        self.dress(state, report)
    }

    /// Waits a while for the pack that was begun first.
    fn wait_for_packs(&self, state: &mut Fetching, report: &mut Report<'_>) -> Result<(), Fault> {
        // They may wait behind those.
        state.large.stop_if_unwanted(report);
        if let Some(pack) = state.packs.take_soon(|(pack, _)| &mut pack.transfer) {
            return self.wait(pack, state, report);
        }
        report.progress();
        self.claim(state, report)
    }

    /// What is done from time to time while the tree is moved: takes what has ended, sets what is
    /// known of whole directories, and has claims made.
    fn keep_up(&self, state: &mut Fetching, report: &mut Report<'_>) -> Result<(), Fault> {
        let Some(tracker) = &mut report.tracker else {
            return Ok(());
        };
        let whole = tracker.take_whole(WHOLE_AT_ONCE);
        if whole.is_empty() && state.ticked.elapsed() < TICK {
            return Ok(());
        }
        self.close(whole, report)?;
        state.ticked = Instant::now();
        while let Some(pack) = state.packs.take_ended(|(pack, _)| &mut pack.transfer) {
            self.wait(pack, state, report)?;
        }
        state.large.poll(report)?;
        self.claim(state, report)
    }

    /// Has claims made if it is time.
    fn claim(&self, state: &mut Fetching, report: &mut Report<'_>) -> Result<(), Fault> {
        let Some(keeper) = &mut state.keeper else {
            return Ok(());
        };
        let is_usable = keeper.poll(report)?;
        let Some(tracker) = &mut report.tracker else {
            return Ok(());
        };
        if !is_usable {
            tracker.forgo_claims();
        } else if keeper.is_due(tracker.fresh()) {
            let whole = tracker.take_whole(1);
            self.close(whole, report)?;
            self.learn_root(keeper)?;
            let claims = report.tracker.as_mut().map(|tracker| tracker.take_claims());
            let sync = match self.options.durability {
                Durability::None => MakeDurable::Nothing,
                _ => MakeDurable::Local(self.root.clone()),
            };
            keeper.order(sync, claims.unwrap_or_default());
        }
        Ok(())
    }

    /// The number of the target.
    fn learn_root(&self, keeper: &mut Keeper) -> Result<(), Fault> {
        if let Some(path) = keeper.unknown_root()
            && let Some(found) = local_attributes(path)?
        {
            keeper.learn_root(found.inode);
        }
        Ok(())
    }

    /// A directory is going to be made.
    fn found_directory(
        &self,
        path: &[u8],
        attributes: &Attributes,
        state: &mut Fetching,
        report: &mut Report<'_>,
    ) {
        let known = Known {
            mode: attributes.mode,
            mtime_ns: attributes.mtime_ns,
            owner: (path.is_empty() && self.options.owner)
                .then_some((attributes.uid, attributes.gid)),
        };
        match &mut report.tracker {
            Some(tracker) => tracker.found(path, known),
            None => state.directories.push((path.to_vec(), known)),
        }
    }

    fn make_root(&self, report: &mut Report<'_>) -> Result<(), Fault> {
        let call = Call::MakeDirectory {
            path: self.root.clone(),
            mode: None,
            parents: true,
        };
        self.store.call(&call, &mut |_| Ok(()))?;
        report.moved(&Item {
            path: Vec::new(),
            kind: Kind::Directory,
            bytes: 0,
            mark: None,
        });
        Ok(())
    }

    /// Where an entry goes: into a pack, or by itself.
    fn sort(
        &self,
        path: Vec<u8>,
        attributes: Attributes,
        state: &mut Fetching,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let is_file = attributes.kind == FileKind::File;
        if self.options.dry_run {
            let (kind, bytes) = match attributes.kind {
                FileKind::File => (Kind::File, attributes.size),
                FileKind::Directory => (Kind::Directory, 0),
                _ => (Kind::Other, 0),
            };
            report.moved(&Item {
                path,
                kind,
                bytes,
                mark: None,
            });
            return Ok(());
        }
        let (is_several, first) = self.first_name(&path, &attributes);
        if let Some(tracker) = report.tracker.as_mut().filter(|_| is_several) {
            tracker.keep_open(&path);
        }
        if let Some(first) = first {
            let mark = mark_of(&attributes);
            state.links.push(Link { path, first, mark });
            return Ok(());
        }
        let is_special = attributes.kind != FileKind::Directory && attributes.mode & SET_ID != 0;
        report.result.unkept += u64::from(is_special && !self.options.owner);
        let is_large = is_file && attributes.size > u64::from(SMALL_BYTES_MAX);
        // A listing doesn't say all that may be kept of a file: an answer to a wish does.
        if is_large && !self.options.keeps_more() {
            let mtime_ns = Some(attributes.mtime_ns);
            let size = attributes.size;
            return self.start_large(path, size, mtime_ns, None, state, report);
        }
        if attributes.kind == FileKind::Directory {
            self.found_directory(&path, &attributes, state, report);
        }
        let bytes = if is_file && !is_large {
            attributes.size
        } else {
            0
        };
        self.wish_for(path, bytes, state, report)
    }

    /// Adds a name to the next pack.
    fn wish_for(
        &self,
        path: Vec<u8>,
        bytes: u64,
        state: &mut Fetching,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let bytes = ENTRY_BYTES + path.len() as u64 + bytes;
        let name_bytes = Wish::name_bytes(&path);
        let pack_bytes = self.cut.pack_bytes(state.begun) as u64;
        if !state.names.is_empty()
            && (state.bytes + bytes > pack_bytes || state.name_bytes + name_bytes > WISH_BYTES_MAX)
        {
            self.send_wish(state, report)?;
        }
        state.bytes += bytes;
        state.name_bytes += name_bytes;
        state.names.push(path);
        Ok(())
    }

    /// Asks for the names that were gathered.
    fn send_wish(&self, state: &mut Fetching, report: &mut Report<'_>) -> Result<(), Fault> {
        if state.names.is_empty() {
            return Ok(());
        }
        let names = std::mem::take(&mut state.names);
        (state.bytes, state.name_bytes) = (0, 0);
        state.begun += 1;
        let begun = self.start_wish(names, state.overwrite)?;
        state.packs.push(begun);
        while state.packs.is_full() {
            self.wait_for_packs(state, report)?;
        }
        Ok(())
    }

    /// Waits for a pack, and looks at what was in it.
    fn wait(
        &self,
        (pack, seen): (MovingPack, Arc<Seen>),
        state: &mut Fetching,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let failures = match pack.transfer.wait_for_pack() {
            Ok(failures) => failures,
            Err(fault) if ends_session(&fault) => return Err(fault),
            Err(fault) => {
                for path in &seen.names {
                    report.missed(path, false, None, fault.clone());
                }
                return Ok(());
            }
        };
        if self.options.durability == Durability::Full {
            journal::sync_local(self.root.clone())?;
        }
        let items = std::mem::take(&mut *seen.lock());
        let came = items.len();
        for (number, item) in (0..).zip(items) {
            match item {
                Came::Moved(item) => match failures.of(number) {
                    Some(fault) => report.missed_item(&item, fault.clone().path(&item.path)),
                    None => report.moved(&item),
                },
                Came::Large(path, size, mtime_ns, kept) => {
                    self.start_large(path, size, mtime_ns, kept, state, report)?;
                }
                Came::Failed(path, fault) => report.missed(&path, false, None, fault),
            }
        }
        // It had no room for these.
        for path in seen.names.iter().skip(came) {
            state.name_bytes += Wish::name_bytes(path);
            if state.name_bytes > WISH_BYTES_MAX {
                self.send_wish(state, report)?;
                state.name_bytes = Wish::name_bytes(path);
            }
            state.names.push(path.clone());
        }
        report.progress();
        Ok(())
    }

    /// Where large files go: nothing that the server sent leads out of it.
    fn beneath(&self) -> Result<Arc<LocalStore>, Fault> {
        if let Some(store) = self.beneath.get() {
            return Ok(Arc::clone(store));
        }
        let root = xdfs_sys::fs::path_from_bytes(&self.root);
        let root = root.map_err(|e| Fault::from_io("open the target", &self.root, &e))?;
        let store = Arc::new(LocalStore::rooted(&root, false)?);
        Ok(Arc::clone(self.beneath.get_or_init(|| store)))
    }

    fn start_large(
        &self,
        path: Vec<u8>,
        size: u64,
        mtime_ns: Option<i64>,
        kept: Kept,
        state: &mut Fetching,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        // The pack that makes the directory may be on its way.
        let above = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let call = Call::MakeDirectory {
            path: path[..above].to_vec(),
            mode: None,
            parents: true,
        };
        let started = self.beneath().and_then(|store| {
            if above > 0 {
                store.call(&call, &mut |_| Ok(()))?;
            }
            let job = DownloadJob {
                source: join(self.source, &path),
                store,
                target: path.clone(),
                name: Vec::new(),
                wish: None,
            };
            let options = TransferOptions {
                overwrite: state.overwrite,
                ..transfer_options(self.options)
            };
            self.client.start(&options, JobKind::Download(job))
        });
        let item = Item::large(path, size, mtime_ns);
        match started {
            Ok(transfer) => {
                state.large.push(item, transfer, kept);
                while state.large.is_full() {
                    state.large.wait(report)?;
                    self.claim(state, report)?;
                }
                self.dress(state, report)
            }
            Err(fault) if ends_session(&fault) => Err(fault),
            Err(fault) => {
                report.missed_item(&item, fault);
                Ok(())
            }
        }
    }
}

/// A directory that is listed.
#[derive(Default)]
struct Listing {
    batch: Vec<(Vec<u8>, Attributes)>,
    given: u64,
    taken: Totals,
    finished: Option<Finished>,
    names: Listed,
}

/// What is under way.
struct Fetching {
    packs: Packs<(MovingPack, Arc<Seen>)>,
    large: LargeFiles,
    /// Directories that are set at the end, if they aren't followed.
    directories: Vec<(Vec<u8>, Known)>,
    /// Further names of files.
    links: Vec<Link>,
    /// Names for the next pack, and about what it will have.
    names: Vec<Vec<u8>>,
    name_bytes: usize,
    bytes: u64,
    begun: usize,
    /// Whether what is fetched now replaces what is there.
    overwrite: bool,
    keeper: Option<Keeper>,
    ticked: Instant,
    /// Names that others may be taken for.
    waiting: Waiting<(Vec<u8>, Attributes)>,
}

impl Fetching {
    fn new(keeper: Option<Keeper>, overwrite: bool) -> Self {
        Self {
            packs: Packs::new(),
            large: LargeFiles::default(),
            directories: Vec::new(),
            links: Vec::new(),
            names: Vec::new(),
            name_bytes: 0,
            bytes: 0,
            begun: 0,
            overwrite,
            keeper,
            ticked: Instant::now(),
            waiting: Waiting::default(),
        }
    }
}
