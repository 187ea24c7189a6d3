//! A tree from here to the server.

mod above;
mod end;
mod known;
mod waiting;
mod walk;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::command::JobKind;
use xdfs_engine::{PackSource, Spares, UploadJob};
use xdfs_proto::pack::{Metadata, PACK_BYTES_MAX, PackWriter};
use xdfs_proto::{DigestKind, Fault};
use xdfs_store::local;
use xdfs_store::tree_journal::{Root, Totals};
use xdfs_store::{LocalStore, Store as _};

use self::known::{inode, metadata_of};
use super::alike::{Pathed, Waiting};
use super::journal::{self, Ends, Keeper, MakeDurable, Skip};
use super::links::{FirstNames, Link};
use super::moving::{
    Item, LargeFiles, MovingPack, Packs, Polled, Report, ends_session, is_over, transfer_options,
    wait_for_durable_pack,
};
use super::tracker::Whole;
use super::{
    Cut, Durability, Observer, SMALL_BYTES_MAX, TreeOptions, TreeResult, WHOLE_AT_ONCE,
    is_directory, join, last_name, not_a_directory,
};
use crate::client::{Client, path_bytes};
use crate::paths::{Answer, Call, PendingCall};
use crate::transfer::{Transfer, TransferOptions};

/// Names that the walker gives on at once, and how many such batches may wait.
const BATCH_NAMES: usize = 256;
const BATCHES_WAITING: usize = 64;
/// What packers made and nobody took yet.
const MADE_WAITING: usize = 4;
/// Most threads that read small files.
const PACKERS_MAX: usize = 4;
/// How often is looked at what has ended while other things go on.
const TICK: Duration = Duration::from_millis(100);
/// Calls under way that look at what stands at the target.
const LOOKS_MAX: usize = 64;

/// What the packers tell.
pub(super) enum Made {
    Pack {
        memory: Vec<u8>,
        length: usize,
        items: Vec<Item>,
    },
    Large(Vec<u8>),
    /// A name that waits, since another may be taken for it.
    Alike(Found),
    /// A further name.
    Link(Link),
    Directories(Vec<Vec<u8>>),
    /// A name of a file that has several: each run has to see it.
    Several(Vec<u8>),
    /// All entries of a directory were found: so many are moved, others were moved earlier.
    Listed {
        directory: Vec<u8>,
        entries: u64,
        taken: Totals,
        is_well: bool,
    },
    /// An entry that was found can't be had.
    Missed {
        path: Vec<u8>,
        is_directory: bool,
        fault: Fault,
    },
    Failed(Vec<u8>, Fault),
}

/// A name that the walker found.
pub(super) struct Found {
    pub(super) path: Vec<u8>,
    pub(super) is_directory: bool,
}

impl Pathed for Found {
    fn path(&self) -> &[u8] {
        &self.path
    }
}

/// Where names come from if not from the walker.
pub(super) type Provider<'p> =
    dyn Fn(&Upload<'_>, &mpsc::SyncSender<Vec<Found>>, &mpsc::SyncSender<Made>) + Sync + 'p;

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
    let mut relay = |event: super::TreeEvent<'_>| -> ControlFlow<()> { observer(event) };
    let mut report = Report::new(&mut relay);
    let (there, round_trip) = client.look(target)?;
    let ends = Ends::Up(source, target);
    let mut keeper = journal::open(client, &ends, options, &mut report)?;
    let source_inode = inode(&meta);
    let earlier = match &mut keeper {
        Some(keeper) => keeper.earlier_root(source_inode, &mut report, |path| {
            if path == target {
                return Ok(there.clone());
            }
            Ok(client.look(path)?.0)
        })?,
        None => None,
    };
    let root = match (earlier, &there) {
        (Some((root, _)), _) => root,
        (None, None) => Root {
            path: target.to_vec(),
            inode: 0,
            source_inode,
            was_there: false,
        },
        (None, Some(attributes)) if is_directory(Some(attributes)) => {
            let path = join(target, last_name(&source_bytes));
            let was_there = path == target;
            Root {
                inode: if was_there { attributes.inode } else { 0 },
                path,
                source_inode,
                was_there,
            }
        }
        (None, Some(_)) => return Err(not_a_directory(target).remote()),
    };
    report.result.target.clone_from(&root.path);
    let into_there = root.was_there;
    let mut upload = Upload::new(
        client,
        source,
        root.path.clone(),
        options,
        Cut::new(client, round_trip),
    );
    upload.into_there = into_there;
    if let Some(keeper) = &mut keeper {
        keeper.begin(root, &mut report);
        upload.skip = Some(keeper.skip());
    }
    if !options.dry_run {
        let has_run = keeper.as_ref().is_some_and(Keeper::has_run);
        let claims = keeper.as_ref().is_some_and(Keeper::is_usable);
        report.track(claims, has_run);
    }
    *upload.keeper.lock().unwrap_or_else(PoisonError::into_inner) = keeper;
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
    names: FirstNames,
    /// The directory at the server was there, and keeps its mode: it may be that of an export.
    into_there: bool,
    /// What an earlier run finished.
    skip: Option<Skip>,
    /// Files that go without their set-user-id and set-group-id.
    unkept: AtomicU64,
    /// The journal, until the tree is begun.
    keeper: Mutex<Option<Keeper>>,
}

/// What is under way.
struct Sending {
    packs: Packs<MovingPack>,
    large: LargeFiles,
    made_directory: Option<Vec<u8>>,
    /// Further names.
    links: Vec<Link>,
    /// Directories that are set at the end, if they aren't followed.
    directories: Vec<Vec<u8>>,
    /// Directories that are whole.
    whole: VecDeque<Whole>,
    /// Those that are being set.
    closing: Option<(Transfer, Vec<Whole>)>,
    keeper: Option<Keeper>,
    /// What was whole when claims became due is being set.
    flushed: bool,
    ticked: Instant,
    /// Names that others may be taken for.
    waiting: Waiting<Found>,
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
            names: FirstNames::default(),
            into_there: false,
            skip: None,
            unkept: AtomicU64::new(0),
            keeper: Mutex::default(),
        }
    }

    /// The same, which knows first names that others found.
    pub(super) fn sharing(self, names: &FirstNames) -> Self {
        let names = names.clone();
        Self { names, ..self }
    }

    /// Moves what the provider names, or else everything.
    pub(super) fn run(
        &self,
        provider: Option<&Provider<'_>>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let result = self.drive(provider, report);
        self.stop.store(true, Ordering::Relaxed);
        report.result.unkept += self.unkept.swap(0, Ordering::Relaxed);
        result
    }

    /// Moves what the provider names, or else what is found from `roots` on.
    fn pass(
        &self,
        provider: Option<&Provider<'_>>,
        roots: Vec<Found>,
        sending: &mut Sending,
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
                None => self.walk(roots, &found, &walker_made),
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
            let result = self.take_products(&products, sending, report);
            if result.is_err() || report.is_stopped() {
                // The others end when nobody takes what they make.
                self.stop.store(true, Ordering::Relaxed);
            }
            drop(products);
            result
        })
    }

    fn take_products(
        &self,
        products: &mpsc::Receiver<Made>,
        sending: &mut Sending,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        loop {
            match report.poll(products) {
                Polled::Given(product) => self.take_product(product, sending, report)?,
                Polled::Quiet => {}
                Polled::Ended => return Ok(()),
            }
            self.keep_up(sending, report)?;
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn local(&self, path: &[u8]) -> PathBuf {
        match xdfs_sys::fs::path_from_bytes(path) {
            Ok(path) => self.source.join(path),
            // A name that this system can't have was not found on it.
            Err(_) => self.source.to_path_buf(),
        }
    }

    /// What takes from the source into packs.
    fn pack_source(&self) -> Result<local::PackSource, Fault> {
        let source = path_bytes(self.source);
        LocalStore::unrooted().pack_source(&source, self.options.keep(), SMALL_BYTES_MAX)
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

    fn drive(&self, provider: Option<&Provider<'_>>, report: &mut Report<'_>) -> Result<(), Fault> {
        let keeper = self
            .keeper
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut sending = Sending {
            packs: Packs::new(),
            large: LargeFiles::default(),
            made_directory: None,
            links: Vec::new(),
            directories: Vec::new(),
            whole: VecDeque::new(),
            closing: None,
            keeper,
            flushed: false,
            ticked: Instant::now(),
            waiting: Waiting::default(),
        };
        let root = Found {
            path: Vec::new(),
            is_directory: true,
        };
        if self.options.hard_links {
            report.keep_lost();
        }
        self.pass(provider, vec![root], &mut sending, report)?;
        self.drain(&mut sending, report)?;
        if self.options.dry_run || report.is_stopped() && sending.keeper.is_none() {
            return Ok(());
        }
        self.try_again(&mut sending, report)?;
        self.send_waiting(&mut sending, report)?;
        if !report.is_stopped() {
            report.give_up_again();
            self.link(&mut sending, report)?;
        }
        self.close_all(&mut sending, report)?;
        // A synchronisation does that when all of it is done.
        let is_durable = self.options.durability != Durability::None && provider.is_none();
        // Asked for before, so that nothing waits for it by itself.
        let found = match &sending.keeper {
            Some(keeper) => self.ask_for_root(keeper)?,
            None => None,
        };
        if report.has_moved() && is_durable {
            self.sync()?;
        }
        let Some(mut keeper) = sending.keeper else {
            return Ok(());
        };
        learn_root(&mut keeper, found)?;
        let is_whole = !report.is_stopped() && report.result.failed == 0;
        let tracker = report.tracker.as_mut();
        let claims = tracker.map(|tracker| tracker.take_claims());
        keeper.finish(is_whole, claims.unwrap_or_default(), report)
    }

    fn sync(&self) -> Result<(), Fault> {
        let path = self.root.clone();
        self.client.call(Call::Sync { path }).map(|_| ())
    }

    fn take_product(
        &self,
        product: Made,
        sending: &mut Sending,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        match product {
            Made::Pack {
                memory,
                length,
                items,
            } => {
                if self.options.dry_run {
                    self.spares.give(memory);
                    items.iter().for_each(|item| report.moved(item));
                    return Ok(());
                }
                let overwrite = self.options.overwrite;
                let pack = self.start_pack(memory, length, items, overwrite)?;
                self.push(pack, sending, report)?;
            }
            Made::Large(path) => {
                if self.options.dry_run {
                    let bytes = std::fs::metadata(self.local(&path)).map_or(0, |m| m.len());
                    report.moved(&Item::large(path, bytes, None));
                    return Ok(());
                }
                self.start_large(path, self.options.overwrite, sending, report)?;
            }
            Made::Alike(found) => sending.waiting.add(found),
            Made::Link(link) => sending.links.push(link),
            Made::Directories(paths) if report.tracker.is_none() => {
                sending.directories.extend(paths);
            }
            Made::Directories(_) => {}
            Made::Several(path) => {
                if let Some(tracker) = &mut report.tracker {
                    tracker.keep_open(&path);
                }
            }
            Made::Listed {
                directory,
                entries,
                taken,
                is_well,
            } => {
                report.resumed(&taken);
                if let Some(tracker) = &mut report.tracker {
                    tracker.listed(&directory, entries, &taken, is_well);
                }
            }
            Made::Missed {
                path,
                is_directory,
                fault,
            } => report.missed(&path, is_directory, None, fault),
            Made::Failed(path, fault) => report.failed(&path, &fault),
        }
        Ok(())
    }

    fn push(
        &self,
        pack: MovingPack,
        sending: &mut Sending,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        sending.packs.push(pack);
        while sending.packs.is_full() {
            self.wait_for_packs(sending, report)?;
        }
        Ok(())
    }

    /// Waits a while for the pack that was begun first.
    fn wait_for_packs(&self, sending: &mut Sending, report: &mut Report<'_>) -> Result<(), Fault> {
        // They may wait behind those.
        sending.large.stop_if_unwanted(report);
        if let Some(pack) = sending.packs.take_soon(|pack| &mut pack.transfer) {
            self.wait_for_pack(pack, report)?;
        } else {
            report.progress();
        }
        self.keep_up(sending, report)
    }

    fn wait_for_pack(&self, pack: MovingPack, report: &mut Report<'_>) -> Result<(), Fault> {
        wait_for_durable_pack(pack, report, || match self.options.durability {
            Durability::Full => self.sync(),
            _ => Ok(()),
        })
    }

    /// Waits for everything that is under way.
    fn drain(&self, sending: &mut Sending, report: &mut Report<'_>) -> Result<(), Fault> {
        while !sending.packs.is_empty() {
            self.wait_for_packs(sending, report)?;
        }
        while !sending.large.is_empty() {
            sending.large.wait(report)?;
            self.keep_up(sending, report)?;
        }
        self.dress(sending, report)?;
        while !sending.packs.is_empty() {
            self.wait_for_packs(sending, report)?;
        }
        Ok(())
    }

    /// What is done from time to time while the tree is moved: takes what has ended, sets what is
    /// known of whole directories, and has claims made. Waits for nothing.
    fn keep_up(&self, sending: &mut Sending, report: &mut Report<'_>) -> Result<(), Fault> {
        let Some(tracker) = &mut report.tracker else {
            return Ok(());
        };
        sending.whole.extend(tracker.take_whole(1));
        let many = sending.whole.len() >= WHOLE_AT_ONCE;
        if !many && sending.ticked.elapsed() < TICK {
            return Ok(());
        }
        sending.ticked = Instant::now();
        while let Some(pack) = sending.packs.take_ended(|pack| &mut pack.transfer) {
            self.wait_for_pack(pack, report)?;
        }
        sending.large.poll(report)?;
        if let Some((transfer, _)) = &mut sending.closing
            && (is_over(transfer) || sending.whole.len() >= 4 * WHOLE_AT_ONCE)
        {
            self.end_closing(sending, report)?;
        }
        if many {
            self.start_closing(sending, report)?;
        }
        let (Some(keeper), Some(tracker)) = (&mut sending.keeper, &mut report.tracker) else {
            return Ok(());
        };
        let (is_due, is_late) = (keeper.is_due(tracker.fresh()), keeper.is_late());
        if !keeper.poll(report)? {
            if let Some(tracker) = &mut report.tracker {
                tracker.forgo_claims();
            }
            return Ok(());
        }
        if is_due && !sending.flushed {
            self.start_closing(sending, report)?;
            sending.flushed = true;
        } else if is_due && (sending.closing.is_none() || is_late) {
            sending.flushed = false;
            self.claim(sending, report)?;
        }
        Ok(())
    }

    /// Has what was moved so far made durable and claimed.
    fn claim(&self, sending: &mut Sending, report: &mut Report<'_>) -> Result<(), Fault> {
        let (Some(keeper), Some(tracker)) = (&mut sending.keeper, &mut report.tracker) else {
            return Ok(());
        };
        let found = self.ask_for_root(keeper)?;
        learn_root(keeper, found)?;
        let claims = tracker.take_claims();
        let sync = match self.options.durability {
            Durability::None => MakeDurable::Nothing,
            // What arrives from now on is claimed the next time.
            _ => MakeDurable::Call(self.client.start_call(Call::Sync {
                path: self.root.clone(),
            })?),
        };
        keeper.order(sync, claims);
        Ok(())
    }

    /// Asks for the number of the target, which was made by a pack, if it isn't known.
    fn ask_for_root(&self, keeper: &Keeper) -> Result<Option<PendingCall>, Fault> {
        let path = keeper.unknown_root();
        let call = path.map(|path| Call::Stat {
            path: path.to_vec(),
            follow: true,
        });
        call.map(|call| self.client.start_call(call)).transpose()
    }

    fn start_pack_of(
        &self,
        pack: PackWriter,
        items: Vec<Item>,
        overwrite: bool,
    ) -> Result<MovingPack, Fault> {
        let (memory, length) = pack.finish();
        self.start_pack(memory, length, items, overwrite)
    }

    fn start_full(&self, pack: PackWriter, overwrite: bool) -> Result<MovingPack, Fault> {
        let (memory, length) = pack.finish();
        let items = Item::of_pack(&memory[..length]);
        self.start_pack(memory, length, items, overwrite)
    }

    fn start_pack(
        &self,
        memory: Vec<u8>,
        length: usize,
        items: Vec<Item>,
        overwrite: bool,
    ) -> Result<MovingPack, Fault> {
        let source = PackSource::new(memory, length, self.spares.clone());
        let options = TransferOptions {
            digest: Some(DigestKind::None),
            resume: false,
            overwrite,
            ..transfer_options(self.options)
        };
        let job = UploadJob {
            source: Box::new(source),
            source_path: path_bytes(self.source),
            target: self.root.clone(),
            name: Vec::new(),
            pack: true,
            relaxed: self.options.durability == Durability::None,
        };
        let transfer = self.client.start(&options, JobKind::Upload(job))?;
        Ok(MovingPack { transfer, items })
    }

    fn start_large(
        &self,
        path: Vec<u8>,
        overwrite: bool,
        sending: &mut Sending,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        if let Err(fault) = self.make_above(&path, sending) {
            if ends_session(&fault) {
                return Err(fault);
            }
            report.missed(&path, false, None, fault);
            return Ok(());
        }
        // Before it is read, which changes the time of the last read.
        let kept = match self.options.keeps_more().then(|| self.kept_of(&path)) {
            Some(Err(fault)) => {
                report.missed(&path, false, None, fault);
                return Ok(());
            }
            Some(Ok(kept)) => Some(kept),
            None => None,
        };
        let source_path = path_bytes(&self.local(&path));
        let opened = LocalStore::unrooted().open_source(&source_path);
        let mut item = Item::large(path, 0, None);
        let started = opened.and_then(|source| {
            let info = source.info();
            item = Item::large(
                std::mem::take(&mut item.path),
                info.length.unwrap_or(0),
                info.mtime_ns,
            );
            let job = UploadJob {
                source,
                source_path,
                target: join(&self.root, &item.path),
                // A directory that stands there is no place for it.
                name: Vec::new(),
                pack: false,
                relaxed: false,
            };
            let options = TransferOptions {
                overwrite,
                ..transfer_options(self.options)
            };
            self.client.start(&options, JobKind::Upload(job))
        });
        match started {
            Ok(transfer) => {
                sending.large.push(item, transfer, kept);
                while sending.large.is_full() {
                    sending.large.wait(report)?;
                    self.keep_up(sending, report)?;
                }
                self.dress(sending, report)
            }
            Err(fault) if ends_session(&fault) => Err(fault),
            Err(fault) => {
                report.missed_item(&item, fault);
                Ok(())
            }
        }
    }

    pub(super) fn start_writer(&self, pack: PackWriter) -> Result<MovingPack, Fault> {
        self.start_full(pack, self.options.overwrite)
    }

    /// What a directory is to have; `None` if there is none any more.
    fn metadata_of_directory(&self, path: &[u8]) -> Option<Metadata<'static>> {
        let meta = std::fs::symlink_metadata(self.local(path)).ok();
        let meta = meta.filter(std::fs::Metadata::is_dir)?;
        let mut metadata = metadata_of(&meta);
        // Those below have got theirs with their names.
        if path.is_empty() && self.into_there {
            metadata.mode = None;
        } else if path.is_empty() && self.options.owner {
            metadata.owner = known::owner_of(&meta);
        }
        Some(metadata)
    }
}

/// The number of the target. Who may not look there goes on without it.
fn learn_root(keeper: &mut Keeper, found: Option<PendingCall>) -> Result<(), Fault> {
    match found.map(PendingCall::wait) {
        Some(Ok(Answer::Attributes(found))) => keeper.learn_root(found.inode),
        Some(Err(fault)) if ends_session(&fault) => return Err(fault),
        _ => {}
    }
    Ok(())
}

/// What is sent when everything else was moved.
enum Last<'a> {
    /// A further name of this file.
    Link(&'a [u8]),
    /// What is known of a directory.
    Directory,
}
