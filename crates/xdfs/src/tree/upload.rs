//! A tree from here to the server.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use xdfs_engine::command::JobKind;
use xdfs_engine::{PackSource, Spares, UploadJob};
use xdfs_proto::pack::{Content, Entry, Metadata, PACK_BYTES_MAX, PackWriter};
use xdfs_proto::{DigestKind, Fault};
use xdfs_store::local::Added;
use xdfs_store::{LocalStore, Store as _};

use super::moving::{
    Item, Kind, LargeFiles, MovingPack, Packs, Report, ends_session, transfer_options,
    wait_for_pack,
};
use super::{
    Cut, Durability, Observer, SMALL_BYTES_MAX, TreeOptions, TreeResult, is_directory, join,
    last_name, not_a_directory,
};
use crate::client::{Client, path_bytes};
use crate::paths::Call;
use crate::transfer::TransferOptions;

/// Names that the walker gives on at once, and how many such batches may wait.
const BATCH_NAMES: usize = 256;
const BATCHES_WAITING: usize = 64;
/// What packers made and nobody took yet.
const MADE_WAITING: usize = 4;
/// Most threads that read small files.
const PACKERS_MAX: usize = 4;

/// What the packers tell.
pub(super) enum Made {
    Pack {
        memory: Vec<u8>,
        length: usize,
        items: Vec<Item>,
    },
    Large(Vec<u8>),
    /// A further name, and the first one.
    Link(Vec<u8>, Vec<u8>),
    Directories(Vec<Vec<u8>>),
    Failed(Vec<u8>, Fault),
}

/// A name that the walker found.
pub(super) struct Found {
    pub(super) path: Vec<u8>,
    pub(super) is_directory: bool,
}

/// Where names come from if not from the walker.
pub(super) type Provider<'p> =
    dyn Fn(&Upload<'_>, &mpsc::SyncSender<Vec<Found>>, &mpsc::SyncSender<Made>) + Sync + 'p;

/// Files with several names: the first name of each.
type Names = Mutex<HashMap<(u64, u64), Vec<u8>>>;

pub(super) fn run(
    client: &Client,
    source: &Path,
    target: &[u8],
    options: &TreeOptions,
    observer: &mut Observer<'_>,
) -> Result<TreeResult, Fault> {
    let source_bytes = path_bytes(source);
    let meta = std::fs::metadata(source)
        .map_err(|e| Fault::from_io("read the tree", &source_bytes, &e))?;
    if !meta.is_dir() {
        return Err(not_a_directory(&source_bytes));
    }
    let (there, round_trip) = client.look(target)?;
    let root = match &there {
        None => target.to_vec(),
        Some(attributes) if is_directory(Some(attributes)) => {
            join(target, last_name(&source_bytes))
        }
        Some(_) => return Err(not_a_directory(target)),
    };
    let mut relay = |event: super::TreeEvent<'_>| -> ControlFlow<()> { observer(event) };
    let mut report = Report::new(&mut relay);
    report.result.target.clone_from(&root);
    let is_there = there.is_some() && root == target;
    let mut upload = Upload::new(client, source, root, options, Cut::new(client, round_trip));
    upload.into_there = is_there;
    upload.run(None, &mut report)?;
    report.finish()
}

pub(super) struct Upload<'a> {
    client: &'a Client,
    source: &'a Path,
    /// The path of the tree at the server.
    root: Vec<u8>,
    options: &'a TreeOptions,
    cut: Cut,
    spares: Spares,
    /// Nothing more is wanted from the walker and the packers.
    pub(super) stop: AtomicBool,
    /// Packs that were begun.
    packs: AtomicUsize,
    names: Names,
    /// The directory at the server was there, and keeps its mode: it may be that of an export.
    into_there: bool,
}

impl<'a> Upload<'a> {
    pub(super) fn new(
        client: &'a Client,
        source: &'a Path,
        root: Vec<u8>,
        options: &'a TreeOptions,
        cut: Cut,
    ) -> Self {
        Self {
            client,
            source,
            root,
            options,
            cut,
            spares: Spares::default(),
            stop: AtomicBool::new(false),
            packs: AtomicUsize::new(0),
            names: Mutex::default(),
            into_there: false,
        }
    }

    /// Moves what the provider names, or else everything.
    pub(super) fn run(
        &self,
        provider: Option<&Provider<'_>>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let (found, queue) = mpsc::sync_channel(BATCHES_WAITING);
        let (made, products) = mpsc::sync_channel(MADE_WAITING);
        let queue = Mutex::new(queue);
        thread::scope(|scope| {
            let cores = thread::available_parallelism().map_or(1, usize::from);
            let walker_made = made.clone();
            scope.spawn(move || match provider {
                Some(provide) => provide(self, &found, &walker_made),
                None => self.walk(&found, &walker_made),
            });
            for _ in 0..(cores / 2).clamp(1, PACKERS_MAX) {
                let (made, queue) = (made.clone(), &queue);
                scope.spawn(move || {
                    if let Err(fault) = self.gather(queue, &made) {
                        let _ = made.send(Made::Failed(Vec::new(), fault));
                        // Or the walker would wait until somebody takes what it finds.
                        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        while next().is_ok() {}
                    }
                });
            }
            drop(made);
            let result = self.drive(&products, report);
            // The others end when nobody takes what they make.
            self.stop.store(true, Ordering::Relaxed);
            drop(products);
            result
        })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The walker: names in batches, directories before what is in them.
    fn walk(&self, found: &mpsc::SyncSender<Vec<Found>>, made: &mpsc::SyncSender<Made>) {
        let mut directories = vec![Vec::new()];
        let mut batch = vec![Found {
            path: Vec::new(),
            is_directory: true,
        }];
        while let Some(directory) = directories.pop() {
            if self.is_stopped() {
                return;
            }
            let entries = match std::fs::read_dir(self.local(&directory)) {
                Ok(entries) => entries,
                Err(error) => {
                    let fault = Fault::from_io("list a directory", &directory, &error);
                    let _ = made.send(Made::Failed(directory, fault));
                    continue;
                }
            };
            for entry in entries {
                let entry = entry.and_then(|e| Ok((e.file_type()?.is_dir(), e)));
                let (is_directory, entry) = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        let fault = Fault::from_io("list a directory", &directory, &error);
                        let _ = made.send(Made::Failed(directory.clone(), fault));
                        break;
                    }
                };
                let path = join(&directory, &path_bytes(Path::new(&entry.file_name())));
                if self.options.filter.leaves_out(&path, is_directory) {
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
        }
        let _ = found.send(batch);
    }

    fn local(&self, path: &[u8]) -> PathBuf {
        match xdfs_sys::fs::path_from_bytes(path) {
            Ok(path) => self.source.join(path),
            // A name that this system can't have was not found on it.
            Err(_) => self.source.to_path_buf(),
        }
    }

    /// A packer: reads what was found into packs.
    fn gather(
        &self,
        queue: &Mutex<mpsc::Receiver<Vec<Found>>>,
        made: &mpsc::SyncSender<Made>,
    ) -> Result<(), Fault> {
        let mut gather = LocalStore::unrooted().pack_source(
            &path_bytes(self.source),
            self.options.keep(),
            SMALL_BYTES_MAX,
        )?;
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
                if self.options.hard_links
                    && !found.is_directory
                    && let Some(first) = self.first_name(&found.path)
                {
                    let _ = made.send(Made::Link(found.path, first));
                    continue;
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
                        let _ = made.send(Made::Failed(found.path, fault));
                    }
                }
            }
            if !directories.is_empty() {
                let _ = made.send(Made::Directories(directories));
            }
        }
        self.send(&mut pack, made);
        Ok(())
    }

    /// For a further name of a file that has one already: that one.
    fn first_name(&self, path: &[u8]) -> Option<Vec<u8>> {
        let key = several_names(&self.local(path))?;
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        match names.get(&key) {
            Some(first) => Some(first.clone()),
            None => {
                names.insert(key, path.to_vec());
                None
            }
        }
    }

    pub(super) fn begin_pack(&self) -> PackWriter {
        PackWriter::new(self.spares.take(0), PACK_BYTES_MAX)
    }

    pub(super) fn send(&self, pack: &mut PackWriter, made: &mpsc::SyncSender<Made>) {
        if pack.is_empty() {
            return;
        }
        self.packs.fetch_add(1, Ordering::Relaxed);
        let (memory, length) = std::mem::replace(pack, self.begin_pack()).finish();
        let items = Item::of_pack(&memory[..length]);
        let _ = made.send(Made::Pack {
            memory,
            length,
            items,
        });
    }

    /// Moves what the packers make.
    fn drive(&self, products: &mpsc::Receiver<Made>, report: &mut Report<'_>) -> Result<(), Fault> {
        let mut packs = Packs::new();
        let mut large = LargeFiles::default();
        let (mut directories, mut links) = (Vec::new(), Vec::new());
        let mut made_directory = None;
        while let Some(product) = report.next(products) {
            match product {
                Made::Pack {
                    memory,
                    length,
                    items,
                } => {
                    if self.options.dry_run {
                        self.spares.give(memory);
                        items.iter().for_each(|item| report.moved(item));
                        continue;
                    }
                    packs.push(self.start_pack(memory, length, items)?);
                    if let Some(pack) = packs.take_if_full() {
                        wait_for_pack(pack, report)?;
                    }
                }
                Made::Large(path) => {
                    let bytes = std::fs::metadata(self.local(&path)).map_or(0, |m| m.len());
                    if self.options.dry_run {
                        let kind = Kind::File;
                        report.moved(&Item { path, kind, bytes });
                        continue;
                    }
                    self.start_large(path, &mut made_directory, &mut large, report)?;
                }
                Made::Link(path, first) => links.push((path, first)),
                Made::Directories(paths) => directories.extend(paths),
                Made::Failed(path, fault) => report.failed(&path, &fault),
            }
        }
        while let Some(pack) = packs.take() {
            wait_for_pack(pack, report)?;
        }
        large.finish(report)?;
        if report.is_stopped() || self.options.dry_run {
            return Ok(());
        }
        // What was moved has its first names by now, and nothing more is made in directories.
        self.send_entries(
            links.iter().map(|(path, first)| (path, Last::Link(first))),
            report,
        )?;
        // Those below first, since one above may take away the right to get there.
        self.send_entries(
            directories.iter().rev().map(|path| (path, Last::Directory)),
            report,
        )?;
        if report.has_moved() && self.options.durability == Durability::Batch {
            let path = self.root.clone();
            self.client.call(Call::Sync { path })?;
        }
        Ok(())
    }

    fn start_pack(
        &self,
        memory: Vec<u8>,
        length: usize,
        items: Vec<Item>,
    ) -> Result<MovingPack, Fault> {
        let source = PackSource::new(memory, length, self.spares.clone());
        let options = TransferOptions {
            digest: DigestKind::None,
            resume: false,
            ..transfer_options(self.options)
        };
        let job = UploadJob {
            source: Box::new(source),
            source_path: path_bytes(self.source),
            target: self.root.clone(),
            name: Vec::new(),
            pack: true,
        };
        let transfer = self.client.start(&options, JobKind::Upload(job))?;
        Ok(MovingPack { transfer, items })
    }

    fn start_large(
        &self,
        path: Vec<u8>,
        made_directory: &mut Option<Vec<u8>>,
        large: &mut LargeFiles,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let above = match path.iter().rposition(|b| *b == b'/') {
            Some(at) => join(&self.root, &path[..at]),
            None => self.root.clone(),
        };
        // The pack that makes the directory may be on its way.
        if made_directory.as_ref() != Some(&above) {
            let call = Call::MakeDirectory {
                path: above.clone(),
                mode: None,
                parents: true,
            };
            if let Err(fault) = self.client.call(call) {
                if ends_session(&fault) {
                    return Err(fault);
                }
                report.failed(&path, &fault);
                return Ok(());
            }
            *made_directory = Some(above);
        }
        let source_path = path_bytes(&self.local(&path));
        let opened = LocalStore::unrooted().open_source(&source_path);
        let started = opened.and_then(|source| {
            let job = UploadJob {
                source,
                source_path,
                target: join(&self.root, &path),
                // A directory that stands there is no place for it.
                name: Vec::new(),
                pack: false,
            };
            let options = transfer_options(self.options);
            self.client.start(&options, JobKind::Upload(job))
        });
        match started {
            Ok(transfer) => large.push(path, transfer, report),
            Err(fault) if ends_session(&fault) => Err(fault),
            Err(fault) => {
                report.failed(&path, &fault);
                Ok(())
            }
        }
    }

    /// Sends what comes last.
    fn send_entries<'e>(
        &self,
        entries: impl Iterator<Item = (&'e Vec<u8>, Last<'e>)>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let mut packs = Packs::new();
        let mut pack = self.begin_pack();
        for (path, last) in entries {
            let (content, metadata) = match last {
                Last::Link(first) => (Content::HardLink(first), Metadata::default()),
                Last::Directory => match std::fs::symlink_metadata(self.local(path)) {
                    Ok(meta) if meta.is_dir() => {
                        let mut metadata = metadata_of(&meta);
                        if path.is_empty() && self.into_there {
                            metadata.mode = None;
                        }
                        (Content::Attributes, metadata)
                    }
                    // It is gone, or something else by now.
                    _ => continue,
                },
            };
            let entry = Entry {
                path,
                metadata,
                content,
            };
            if !pack.entry(&entry) {
                let full = std::mem::replace(&mut pack, self.begin_pack());
                packs.push(self.start_writer(full)?);
                if let Some(pack) = packs.take_if_full() {
                    wait_for_pack(pack, report)?;
                }
                // A path is shorter than any pack.
                let _ = pack.entry(&entry);
            }
        }
        if !pack.is_empty() {
            packs.push(self.start_writer(pack)?);
        }
        while let Some(pack) = packs.take() {
            wait_for_pack(pack, report)?;
        }
        Ok(())
    }

    pub(super) fn start_writer(&self, pack: PackWriter) -> Result<MovingPack, Fault> {
        let (memory, length) = pack.finish();
        let items = Item::of_pack(&memory[..length]);
        self.start_pack(memory, length, items)
    }
}

/// What is sent when everything else was moved.
enum Last<'a> {
    /// A further name of this file.
    Link(&'a [u8]),
    /// What is known of a directory.
    Directory,
}

/// What names a file that has several names.
#[cfg(unix)]
fn several_names(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = std::fs::symlink_metadata(path).ok()?;
    (meta.nlink() > 1 && !meta.is_dir()).then(|| (meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
fn several_names(_: &Path) -> Option<(u64, u64)> {
    None
}

#[cfg(unix)]
fn metadata_of(meta: &std::fs::Metadata) -> Metadata<'static> {
    use std::os::unix::fs::MetadataExt as _;
    let seconds = meta.mtime().checked_mul(1_000_000_000);
    Metadata {
        mode: u16::try_from(meta.mode() & 0o7777).ok(),
        mtime_ns: seconds.and_then(|s| s.checked_add(meta.mtime_nsec())),
        ..Metadata::default()
    }
}

#[cfg(not(unix))]
fn metadata_of(_: &std::fs::Metadata) -> Metadata<'static> {
    Metadata::default()
}
