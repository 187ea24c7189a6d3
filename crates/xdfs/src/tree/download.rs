//! A tree from the server to here.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;

use xdfs_engine::DownloadJob;
use xdfs_engine::command::JobKind;
use xdfs_proto::pack::{
    Content, Entry, Failures, Metadata, PACK_BYTES_MAX, PackReader, PackWriter, WISH_BYTES_MAX,
    Wish,
};
use xdfs_proto::{Code, DigestKind, Fault, Limits};
use xdfs_store::{LocalStore, OpenedSink, SinkRequest, Source, Store};

use super::moving::{
    Item, Kind, LargeFiles, MovingPack, Packs, Report, ends_session, transfer_options,
};
use super::{
    Cut, Durability, Observer, SMALL_BYTES_MAX, TreeOptions, TreeResult, is_directory, join,
    last_name, not_a_directory,
};
use crate::client::{Client, path_bytes};
use crate::paths::{Attributes, Call, FileKind};
use crate::transfer::TransferOptions;

/// Directories that are listed at once, on short paths and on long ones.
const LISTINGS_SHORT: usize = 4;
const LISTINGS_LONG: usize = 16;
/// Entries that the listings found and nobody took yet.
const FOUND_WAITING: usize = 64;
/// Bytes of an entry of a pack beside its path and content, about.
const ENTRY_BYTES: u64 = 32;

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
        return Err(not_a_directory(source));
    }
    let target_bytes = path_bytes(target);
    let root = match std::fs::metadata(target) {
        Ok(meta) if meta.is_dir() => join(&target_bytes, last_name(source)),
        Ok(_) => return Err(not_a_directory(&target_bytes)),
        Err(_) => target_bytes,
    };
    let mut relay = |event: super::TreeEvent<'_>| -> ControlFlow<()> { observer(event) };
    let mut report = Report::new(&mut relay);
    report.result.target.clone_from(&root);
    let cut = Cut::new(client, round_trip);
    let download = Download::new(client, source, root, options, cut, Some(attributes));
    download.run(None, &mut report)?;
    report.finish()
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
}

/// What the listings tell.
pub(super) enum Found {
    Entries(Vec<(Vec<u8>, Attributes)>),
    Failed(Vec<u8>, Fault),
}

/// Directories that wait to be listed.
struct Directories {
    state: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    paths: VecDeque<Vec<u8>>,
    /// Listings that run, and may find further directories.
    running: usize,
    root: Option<Attributes>,
}

impl Directories {
    fn new(root: Option<Attributes>) -> Self {
        Self {
            state: Mutex::new(Waiting {
                paths: VecDeque::from([Vec::new()]),
                running: 0,
                root,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
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
        }
    }

    /// Fetches what the provider names, or else everything.
    pub(super) fn run(
        &self,
        provider: Option<&Provider<'_>>,
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
            let result = self.drive(&entries, report);
            self.stop.store(true, Ordering::Relaxed);
            self.directories.changed.notify_all();
            drop(entries);
            result
        })
    }

    /// Lists one directory after another.
    fn list(&self, found: &mpsc::SyncSender<Found>) {
        while let Some(directory) = self.directories.take(&self.stop) {
            let mut batch = Vec::new();
            for entry in self.client.list(&join(self.source, &directory)) {
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                match entry {
                    Ok(entry) => batch.push((join(&directory, &entry.name), entry.attributes)),
                    Err(fault) => {
                        let _ = found.send(Found::Failed(directory.clone(), fault));
                    }
                }
                if batch.len() >= 256 {
                    self.pass_on(std::mem::take(&mut batch), found);
                }
            }
            self.pass_on(batch, found);
            self.directories.listed();
        }
    }

    fn pass_on(&self, mut batch: Vec<(Vec<u8>, Attributes)>, found: &mpsc::SyncSender<Found>) {
        let is_directory = |a: &Attributes| a.kind == FileKind::Directory;
        let filter = &self.options.filter;
        batch.retain(|(path, a)| !filter.leaves_out(path, is_directory(a)));
        let below = batch.iter().filter(|(_, a)| is_directory(a));
        self.directories.found(below.map(|(path, _)| path.clone()));
        if !batch.is_empty() {
            let _ = found.send(Found::Entries(batch));
        }
    }

    /// Fetches what the listings find.
    fn drive(&self, found: &mpsc::Receiver<Found>, report: &mut Report<'_>) -> Result<(), Fault> {
        let mut state = Fetching::default();
        if let Some(root) = self.directories.lock().root.take() {
            state.directories.push((Vec::new(), root));
            if !self.options.dry_run {
                self.make_root(report)?;
            }
        }
        while let Some(found) = report.next(found) {
            match found {
                Found::Entries(entries) => {
                    for (path, attributes) in entries {
                        self.sort(path, attributes, &mut state, report)?;
                    }
                }
                Found::Failed(_, fault) if ends_session(&fault) => return Err(fault),
                Found::Failed(path, fault) => report.failed(&path, &fault),
            }
        }
        self.send_wish(&mut state, report)?;
        loop {
            while let Some(pack) = state.packs.take() {
                self.wait(pack, &mut state, report)?;
            }
            // What had no room in its pack, or was too large for it after all.
            self.send_wish(&mut state, report)?;
            match state.packs.take() {
                Some(pack) if !report.is_stopped() => self.wait(pack, &mut state, report)?,
                _ => break,
            }
        }
        std::mem::take(&mut state.large).finish(report)?;
        if report.is_stopped() || self.options.dry_run {
            return Ok(());
        }
        self.finish_directories(&state.directories, report)?;
        if report.has_moved() && self.options.durability == Durability::Batch {
            let path = self.root.clone();
            self.store.call(&Call::Sync { path }, &mut |_| Ok(()))?;
        }
        Ok(())
    }

    fn make_root(&self, report: &mut Report<'_>) -> Result<(), Fault> {
        let call = Call::MakeDirectory {
            path: self.root.clone(),
            mode: None,
            parents: true,
        };
        self.store.call(&call, &mut |_| Ok(()))?;
        report.result.directories += 1;
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
            report.moved(&Item { path, kind, bytes });
            return Ok(());
        }
        if is_file && attributes.size > u64::from(SMALL_BYTES_MAX) {
            return self.start_large(path, state, report);
        }
        let bytes = ENTRY_BYTES + path.len() as u64 + if is_file { attributes.size } else { 0 };
        let name_bytes = Wish::name_bytes(&path);
        let pack_bytes = self.cut.pack_bytes(state.begun) as u64;
        if !state.names.is_empty()
            && (state.bytes + bytes > pack_bytes || state.name_bytes + name_bytes > WISH_BYTES_MAX)
        {
            self.send_wish(state, report)?;
        }
        if attributes.kind == FileKind::Directory {
            state.directories.push((path.clone(), attributes));
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
        let seen = Arc::new(Seen::new(names.clone()));
        let wish = Wish {
            keep: self.options.keep(),
            file_bytes_max: SMALL_BYTES_MAX,
            names,
        };
        let options = TransferOptions {
            digest: DigestKind::None,
            resume: false,
            ..transfer_options(self.options)
        };
        let job = DownloadJob {
            source: self.source.to_vec(),
            store: Arc::clone(&seen) as Arc<dyn Store>,
            target: self.root.clone(),
            name: Vec::new(),
            wish: Some(wish),
        };
        let transfer = self.client.start(&options, JobKind::Download(job))?;
        let items = Vec::new();
        state.packs.push((MovingPack { transfer, items }, seen));
        if let Some(pack) = state.packs.take_if_full() {
            self.wait(pack, state, report)?;
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
                    report.failed(path, &fault);
                }
                return Ok(());
            }
        };
        let items = std::mem::take(&mut *seen.lock());
        let came = items.len();
        for (number, item) in (0..).zip(items) {
            match item {
                Came::Moved(item) => match failures.of(number) {
                    Some(fault) => {
                        let fault = fault.clone().path(&item.path);
                        report.failed(&item.path, &fault);
                    }
                    None => report.moved(&item),
                },
                Came::Large(path) => self.start_large(path, state, report)?,
                Came::Failed(path, fault) => report.failed(&path, &fault),
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
            let options = transfer_options(self.options);
            self.client.start(&options, JobKind::Download(job))
        });
        match started {
            Ok(transfer) => state.large.push(path, transfer, report),
            Err(fault) if ends_session(&fault) => Err(fault),
            Err(fault) => {
                report.failed(&path, &fault);
                Ok(())
            }
        }
    }

    /// Sets what the directories have there, now that nothing more is made in them: those below
    /// first, since one above may take away the right to get there.
    fn finish_directories(
        &self,
        directories: &[(Vec<u8>, Attributes)],
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
        let mut paths = Vec::new();
        for (path, attributes) in directories.iter().rev() {
            let entry = Entry {
                path,
                metadata: Metadata {
                    mode: u16::try_from(attributes.mode).ok(),
                    mtime_ns: Some(attributes.mtime_ns),
                    ..Metadata::default()
                },
                content: Content::Attributes,
            };
            if !pack.entry(&entry) {
                let full =
                    std::mem::replace(&mut pack, PackWriter::new(Vec::new(), PACK_BYTES_MAX));
                self.write(full, &std::mem::take(&mut paths), report)?;
                // A path is shorter than any pack.
                let _ = pack.entry(&entry);
            }
            paths.push(path);
        }
        self.write(pack, &paths, report)
    }

    fn write(
        &self,
        pack: PackWriter,
        paths: &[&Vec<u8>],
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let (memory, length) = pack.finish();
        let failures = self.store.write_pack(&self.root, true, &memory[..length])?;
        for (number, path) in (0..).zip(paths) {
            if let Some(fault) = failures.of(number) {
                report.failed(path, &fault.clone().path(path));
            }
        }
        Ok(())
    }
}

/// What is under way.
struct Fetching {
    packs: Packs<(MovingPack, Arc<Seen>)>,
    large: LargeFiles,
    directories: Vec<(Vec<u8>, Attributes)>,
    /// Names for the next pack, and about what it will have.
    names: Vec<Vec<u8>>,
    name_bytes: usize,
    bytes: u64,
    begun: usize,
}

impl Default for Fetching {
    fn default() -> Self {
        Self {
            packs: Packs::new(),
            large: LargeFiles::default(),
            directories: Vec::new(),
            names: Vec::new(),
            name_bytes: 0,
            bytes: 0,
            begun: 0,
        }
    }
}

/// What came for a name.
#[derive(Debug)]
enum Came {
    Moved(Item),
    Large(Vec<u8>),
    Failed(Vec<u8>, Fault),
}

/// Where a pack goes: looks at it and passes it on to the local files.
#[derive(Debug)]
struct Seen {
    names: Vec<Vec<u8>>,
    came: Mutex<Vec<Came>>,
}

impl Seen {
    fn new(names: Vec<Vec<u8>>) -> Self {
        Self {
            names,
            came: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Came>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn only_packs(path: &[u8]) -> Fault {
    let cause = "only packs go here";
    Fault::new(Code::Unsupported, "copy a tree", cause).path(path)
}

impl Store for Seen {
    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        Err(only_packs(path))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        Err(only_packs(&request.path))
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        Err(only_packs(&request.path))
    }

    fn write_pack(&self, root: &[u8], overwrite: bool, pack: &[u8]) -> Result<Failures, Fault> {
        let limits = Limits::default();
        let mut came = Vec::new();
        for entry in PackReader::new(pack, &limits) {
            let entry = entry.map_err(|e| e.fault())?;
            // Nobody writes here what wasn't asked for.
            if self
                .names
                .get(came.len())
                .is_none_or(|name| name != entry.path)
            {
                let cause = "the pack has entries that were not asked for";
                return Err(
                    Fault::new(Code::ProtocolViolation, "copy a tree", cause).path(entry.path)
                );
            }
            came.push(match entry.content {
                Content::Large(_) => Came::Large(entry.path.to_vec()),
                Content::Failed(fault) => Came::Failed(entry.path.to_vec(), fault),
                _ => Came::Moved(Item::of(&entry)),
            });
        }
        if came.is_empty() {
            let cause = "the pack has none of the names that were asked for";
            return Err(Fault::new(Code::ProtocolViolation, "copy a tree", cause).path(root));
        }
        *self.lock() = came;
        LocalStore::unrooted().write_pack(root, overwrite, pack)
    }
}
