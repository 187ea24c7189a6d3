//! One tree on its way from a source to a target, of which one is here and the other on the
//! server: what is found goes into packs or moves by itself, and what came of it is counted.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::command::TransferKind;
use xdfs_engine::{PackSource, Spares, UploadSpec};
use xdfs_proto::pack::Failures;
use xdfs_proto::{Code, DigestKind, Fault};
use xdfs_store::tree_journal::Root;
use xdfs_store::{LocalStore, PackOptions, Store as _};

use super::feed::{Event, Feed, Unlisted};
use super::inspector::Received;
use super::item::Item;
use super::journal::{self, JournalWriter, ResumeIndex};
use super::links::{FirstNames, Link};
use super::moving::{
    MovingFile, MovingPack, NextRequest, PROGRESS_INTERVAL, PackTransfer, Report, take_ended,
};
use super::name_collisions::Deferred;
use super::namespace::{FoundName, Namespace};
use super::options::{COMPLETED_WAITING, Durability, PACKS_MAX, PackSizes, TreeOptions};
use super::tracker::CompletedDirectory;
use crate::client::Client;
use crate::events::{Observer, TreeResult};
use crate::paths::{FileKind, join};
use crate::transfer::TransferOptions;

/// Batches of names of a source here that may wait for the packers.
const BATCHES_WAITING: usize = 64;
/// What packers made and nobody took yet.
const PACKS_WAITING: usize = 4;
/// What listings found and nobody took yet.
const LISTED_WAITING: usize = 64;
/// Steps that a dry run of a synchronisation found and nobody took yet.
const STEPS_WAITING: usize = 1024;
/// Most threads that read small files.
const PACKERS_MAX: usize = 4;
/// Directories that are listed at once on the server, on short paths and on long ones.
const LISTINGS_SHORT: usize = 4;
const LISTINGS_LONG: usize = 16;
/// How often is looked at what has ended while other things go on.
const TICK: Duration = Duration::from_millis(100);

/// Where names come from if not from the scanner.
pub(super) type Provider<'p> = dyn Fn(&Feed) + Sync + 'p;

/// Copies the tree `source` to `named`: into it if that is a directory that exists and `source`
/// doesn't end in a slash, else as it.
pub(super) fn copy(
    client: &Client,
    source: &Namespace<'_>,
    named: &Namespace<'_>,
    options: &TreeOptions,
    observer: &mut dyn Observer,
) -> Result<TreeResult, Fault> {
    client.prepare_packs();
    let mut round_trip = Duration::ZERO;
    let Some(attributes) = source.find_directory(&mut round_trip)? else {
        let cause = match source.is_remote() {
            true => "no such directory on the server",
            false => "no such directory",
        };
        return Err(Fault::new(Code::NotFound, "copy a tree", cause).path(source.root()));
    };
    let mut report = Report::new(observer);
    let began = Instant::now();
    let there = named.find_root();
    if named.is_remote() {
        round_trip = began.elapsed();
        if let Err(fault) = there {
            return Err(fault);
        }
    }
    let mut writer = journal::open(client, [source, named], options, &mut report)?;
    let source_inode = attributes.inode;
    let earlier = match &mut writer {
        Some(writer) => writer.earlier_root(source_inode, &mut report, |path| {
            if path == named.root() {
                return there.clone();
            }
            named.with_root(path.to_vec()).find_root()
        })?,
        None => None,
    };
    let mut root = Root {
        path: named.root().to_vec(),
        inode: 0,
        source_inode,
        was_there: false,
    };
    match (earlier, &there) {
        (Some(earlier), _) => root = earlier,
        (None, Ok(Some(found))) if found.kind == FileKind::Directory => {
            root.path = join(named.root(), last_name(source.root()));
            if named.is_remote() && root.path == named.root() {
                (root.inode, root.was_there) = (found.inode, true);
            }
        }
        (None, Ok(Some(_))) => return Err(named.not_a_directory()),
        // Why it can't be looked at here is told when it is made.
        (None, Ok(None) | Err(_)) => {}
    }
    report.result.target.clone_from(&root.path);
    let target = named.with_root(root.path.clone());
    let cut = PackSizes::new(client, round_trip);
    let mut run = TreeRun::new(client, source, &target, options, cut);
    run.keeps_root = root.was_there;
    let (mut claims, mut has_run) = (false, false);
    if let Some(writer) = &mut writer {
        writer.begin(root, &mut report);
        (claims, has_run) = (writer.is_usable, writer.index.has_run());
        run.resume = Some(writer.index.clone());
    }
    if !options.dry_run {
        report.track(claims, has_run);
    }
    let root = FoundName {
        path: Vec::new(),
        is_directory: true,
        attributes: source.is_remote().then_some(attributes),
    };
    run.run(vec![root], None, writer, &mut report)?;
    report.finish()
}

pub(super) struct TreeRun<'a> {
    pub(super) client: &'a Client,
    pub(super) source: &'a Namespace<'a>,
    pub(super) target: &'a Namespace<'a>,
    pub(super) options: &'a TreeOptions,
    pub(super) cut: PackSizes,
    pub(super) spares: Spares,
    /// Nothing more is wanted from the scanner and the packers.
    pub(super) stop: AtomicBool,
    /// Packs that were begun.
    pub(super) begun: AtomicUsize,
    /// The first name of each file that has several.
    pub(super) names: FirstNames,
    /// The root of the target was there, and keeps its mode and owner: it may be that of an export.
    pub(super) keeps_root: bool,
    pub(super) unlisted: Unlisted,
    /// What an earlier run finished.
    pub(super) resume: Option<ResumeIndex>,
    /// Files that packers found, which go without their set-user-id and set-group-id.
    pub(super) unkept: AtomicU64,
}

/// What is under way.
pub(super) struct Moving<'r, 'o> {
    pub(super) run: &'r TreeRun<'r>,
    pub(super) report: &'r mut Report<'o>,
    pub(super) packs: VecDeque<MovingPack>,
    pub(super) large: VecDeque<MovingFile>,
    /// Large files that are there, but for what is kept of them.
    pub(super) bare: Vec<(Item, Vec<u8>)>,
    /// Names for the next pack of a source on the server.
    pub(super) request: NextRequest,
    /// Whether what is begun now replaces what is there.
    pub(super) overwrite: bool,
    /// A pack is being looked through: no other is meanwhile.
    is_in_pack: bool,
    /// A directory of the target that is there.
    pub(super) made_directory: Option<Vec<u8>>,
    /// Further names of files.
    pub(super) links: Vec<Link>,
    /// Directories in which nothing more is made.
    pub(super) completed: VecDeque<CompletedDirectory>,
    /// Those that are being set.
    pub(super) finalizing: Option<(PackTransfer, Vec<CompletedDirectory>)>,
    pub(super) journal: Option<JournalWriter>,
    ticked: Instant,
    /// Names that others may be taken for.
    pub(super) deferred: Deferred<FoundName>,
}

impl<'r, 'o> Moving<'r, 'o> {
    fn new(
        run: &'r TreeRun<'r>,
        report: &'r mut Report<'o>,
        journal: Option<JournalWriter>,
    ) -> Self {
        Self {
            run,
            report,
            packs: VecDeque::new(),
            large: VecDeque::new(),
            bare: Vec::new(),
            request: NextRequest::default(),
            overwrite: run.options.overwrite,
            is_in_pack: false,
            made_directory: None,
            links: Vec::new(),
            completed: VecDeque::new(),
            finalizing: None,
            journal,
            ticked: Instant::now(),
            deferred: Deferred::new(|found| &found.path),
        }
    }

    fn drive(
        mut self,
        roots: Vec<FoundName>,
        provider: Option<&Provider<'_>>,
    ) -> Result<(), Fault> {
        self.pass(roots, provider)?;
        self.drain()?;
        if self.run.options.dry_run || self.report.is_stopped() && self.journal.is_none() {
            return Ok(());
        }
        self.retry()?;
        self.move_deferred()?;
        if !self.report.is_stopped() {
            self.report.give_up_retries();
            // What was moved has its first names by now.
            self.link()?;
        }
        self.finalize_directories()?;
        // A synchronisation does that when all of it is done.
        let is_durable = self.run.options.durability != Durability::None && provider.is_none();
        // Asked for before, so that nothing waits for it by itself.
        let writer = self.journal.as_ref();
        let root = writer.and_then(|writer| writer.ask_for_root(self.run.target));
        if self.report.has_moved() && is_durable {
            self.run.target.start_sync().wait()?;
        }
        let Some(mut writer) = self.journal.take() else {
            return Ok(());
        };
        writer.learn_root(root)?;
        let is_whole = !self.report.is_stopped() && self.report.result.failed == 0;
        let claims = self.report.tracker.take_claims();
        writer.finish(is_whole, claims, self.report)
    }

    /// Moves what the provider names, or else what is found from `roots` on.
    pub(super) fn pass(
        &mut self,
        roots: Vec<FoundName>,
        provider: Option<&Provider<'_>>,
    ) -> Result<(), Fault> {
        let run = self.run;
        let (found, queue) = mpsc::sync_channel(BATCHES_WAITING);
        let queue = Mutex::new(queue);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (scanners, packers, waiting) = match (run.source.is_remote(), run.cut.is_long) {
            (true, false) => (LISTINGS_SHORT, 0, LISTED_WAITING),
            (true, true) => (LISTINGS_LONG, 0, LISTED_WAITING),
            (false, _) => (1, (cores / 2).clamp(1, PACKERS_MAX), PACKS_WAITING),
        };
        let waiting = match provider {
            Some(_) if run.options.dry_run => STEPS_WAITING,
            _ => waiting,
        };
        let (sender, events) = mpsc::sync_channel(waiting);
        let feed = Feed {
            packers: (packers > 0).then_some(found),
            events: sender,
        };
        thread::scope(|scope| {
            for _ in 0..packers {
                let queue = &queue;
                // With the other end of their queue they would wait for themselves.
                let events = Feed {
                    packers: None,
                    events: feed.events.clone(),
                };
                scope.spawn(move || run.build_packs(queue, &events));
            }
            if let Some(provide) = provider {
                let feed = feed.clone();
                scope.spawn(move || provide(&feed));
            } else {
                for root in roots.iter().rev().filter(|root| root.is_directory) {
                    run.unlisted.push(root.path.clone());
                }
                feed.entries(roots);
                for _ in 0..scanners {
                    let feed = feed.clone();
                    scope.spawn(move || run.scan(&feed));
                }
            }
            drop(feed);
            let result = self.take_events(&events);
            if result.is_err() || self.report.is_stopped() {
                // The others end when nobody takes what they find.
                run.stop.store(true, Ordering::Relaxed);
                run.unlisted.wake();
            }
            drop(events);
            result
        })
    }

    fn take_events(&mut self, events: &mpsc::Receiver<Event>) -> Result<(), Fault> {
        loop {
            match self.report.poll(events) {
                Ok(event) => self.on_event(event)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.poll_background()?;
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), Fault> {
        match event {
            Event::Found(entries) => {
                for found in entries {
                    self.sort(found)?;
                }
            }
            Event::Pack { memory, items, .. } if self.run.options.dry_run => {
                self.run.spares.give(memory);
                for item in &items {
                    self.report.count(item);
                }
            }
            Event::Pack {
                memory,
                length,
                items,
            } => {
                let pack = self
                    .run
                    .start_pack((memory, length), items, self.overwrite)?;
                self.push(pack)?;
            }
            Event::Large(path) if self.run.options.dry_run => {
                let size = self
                    .run
                    .source
                    .local_attributes(&path)
                    .map_or(0, |a| a.size);
                self.report.count(&Item::large(path, size, None));
            }
            Event::Large(path) => {
                self.start_large(Item::large(path, 0, None), None)?;
            }
            Event::Step(step, item) => {
                self.report.step(step, &item.path, None);
                self.report.count(&item);
            }
            Event::Deferred(found) => self.deferred.add(found),
            Event::Link(link) => self.links.push(link),
            // Nothing is followed that isn't made.
            Event::Several(_) | Event::Listed { .. } if self.run.options.dry_run => {}
            Event::Several(path) => self.report.tracker.keep_open(&path),
            Event::Listed {
                directory,
                entries,
                taken,
                is_well,
            } => {
                self.report.resumed(&taken);
                let tracker = &mut self.report.tracker;
                tracker.listed(&directory, entries, &taken, is_well);
            }
            Event::Unread(found, fault) => {
                self.report
                    .record_failure(&found.path, found.is_directory, None, fault);
            }
            Event::Failed(_, fault) if fault.ends_session => return Err(fault),
            Event::Failed(path, fault) => self.report.failed(&path, &fault),
        }
        Ok(())
    }

    /// Takes in a pack that was begun, and waits until another may be.
    pub(super) fn push(&mut self, pack: MovingPack) -> Result<(), Fault> {
        if matches!(pack.transfer, PackTransfer::Ended(_)) {
            return self.end_pack(pack);
        }
        self.packs.push_back(pack);
        while self.packs.len() >= PACKS_MAX {
            self.wait_for_packs()?;
        }
        Ok(())
    }

    /// Waits a while for the pack that was begun first.
    fn wait_for_packs(&mut self) -> Result<(), Fault> {
        // They may wait behind those.
        self.cancel_unwanted();
        if let Some(pack) = take_ended(&mut self.packs, PROGRESS_INTERVAL) {
            self.end_pack(pack)?;
        } else {
            self.report.progress();
        }
        self.poll_background()
    }

    /// Waits for a pack, and takes what came of what is in it.
    pub(super) fn end_pack(&mut self, pack: MovingPack) -> Result<(), Fault> {
        let Some(inspector) = pack.inspector else {
            return self.run.count_pack(pack, self.report);
        };
        let failures = match self.run.carry_out(pack.transfer, true)? {
            Ok(failures) => failures,
            Err(fault) => {
                for path in &inspector.names {
                    self.report.record_failure(path, false, None, fault.clone());
                }
                return Ok(());
            }
        };
        let received = inspector.take();
        let count = received.len();
        let is_nested = std::mem::replace(&mut self.is_in_pack, true);
        for (number, received) in (0..).zip(received) {
            match received {
                Received::Moved(item) => match failures.of(number) {
                    Some(fault) => {
                        let fault = fault.clone().path(&item.path);
                        self.report.record_item_failure(&item, fault);
                    }
                    None => self.report.moved(&item),
                },
                Received::Large(item, kept) => self.start_large(item, kept)?,
                Received::Failed(path, fault) => {
                    self.report.record_failure(&path, false, None, fault)
                }
            }
        }
        // What had no room in the pack is asked for again.
        for path in inspector.names.get(count..).unwrap_or_default() {
            self.add_request(path.clone(), 0)?;
        }
        self.is_in_pack = is_nested;
        self.report.progress();
        Ok(())
    }

    /// Waits for everything that is under way.
    pub(super) fn drain(&mut self) -> Result<(), Fault> {
        loop {
            self.send_request()?;
            while !self.packs.is_empty() {
                self.wait_for_packs()?;
            }
            // What had no room in its pack is asked for again.
            if self.request.names.is_empty() || self.report.is_stopped() {
                break;
            }
        }
        while !self.large.is_empty() {
            self.wait_for_large()?;
        }
        self.apply_metadata()?;
        while !self.packs.is_empty() {
            self.wait_for_packs()?;
        }
        Ok(())
    }

    /// What is done from time to time while the tree is moved: takes what has ended, sets what is
    /// known of complete directories, and has claims made. Waits for nothing that is far away.
    pub(super) fn poll_background(&mut self) -> Result<(), Fault> {
        let completed = self.report.tracker.take_completed();
        self.completed.extend(completed);
        let many = self.completed.len() >= COMPLETED_WAITING;
        if !many && self.ticked.elapsed() < TICK {
            return Ok(());
        }
        self.ticked = Instant::now();
        while !self.is_in_pack
            && let Some(pack) = take_ended(&mut self.packs, Duration::ZERO)
        {
            self.end_pack(pack)?;
        }
        self.poll_large()?;
        if let Some((transfer, _)) = &mut self.finalizing
            && (transfer.is_over(Duration::ZERO) || self.completed.len() >= 4 * COMPLETED_WAITING)
        {
            self.end_finalizing()?;
        }
        if many {
            self.start_finalizing()?;
        }
        let Some(writer) = &mut self.journal else {
            return Ok(());
        };
        writer.poll(self.report)?;
        let tracker = &mut self.report.tracker;
        if !writer.is_usable {
            tracker.forgo_claims();
        }
        let fresh = tracker.fresh();
        let (is_due, is_late) = (writer.is_due(fresh), writer.is_late(fresh));
        if is_due {
            self.start_finalizing()?;
            if self.finalizing.is_none() || is_late {
                self.claim()?;
            }
        }
        Ok(())
    }

    /// Has what was moved so far made durable and claimed.
    fn claim(&mut self) -> Result<(), Fault> {
        let Some(writer) = &mut self.journal else {
            return Ok(());
        };
        writer.learn_root(writer.ask_for_root(self.run.target))?;
        let claims = self.report.tracker.take_claims();
        // What arrives from now on is claimed the next time.
        let is_durable = self.run.options.durability != Durability::None;
        let sync = is_durable.then(|| self.run.target.start_sync());
        writer.claim(sync, claims, self.report);
        Ok(())
    }
}

impl<'a> TreeRun<'a> {
    pub(super) fn new(
        client: &'a Client,
        source: &'a Namespace<'a>,
        target: &'a Namespace<'a>,
        options: &'a TreeOptions,
        cut: PackSizes,
    ) -> Self {
        Self {
            client,
            source,
            target,
            options,
            cut,
            spares: Spares::default(),
            stop: AtomicBool::new(false),
            begun: AtomicUsize::new(0),
            names: FirstNames::default(),
            keeps_root: false,
            unlisted: Unlisted::default(),
            resume: None,
            unkept: AtomicU64::new(0),
        }
    }

    /// Moves what the provider names, or else what is found from `roots` on.
    pub(super) fn run(
        &self,
        roots: Vec<FoundName>,
        provider: Option<&Provider<'_>>,
        journal: Option<JournalWriter>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        report.keeps_lost |= self.options.hard_links;
        let result = Moving::new(self, report, journal).drive(roots, provider);
        report.result.unkept += self.unkept.swap(0, Ordering::Relaxed);
        result
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for a pack that was made here, and counts what is in it.
    pub(super) fn count_pack(
        &self,
        pack: MovingPack,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let MovingPack {
            transfer, items, ..
        } = pack;
        let has_names = items.iter().any(|item| item.kind.has_name());
        let done = self.carry_out(transfer, has_names)?;
        for (number, item) in (0..).zip(&items) {
            let fault = match &done {
                Ok(failures) => failures.of(number).cloned().map(|f| f.path(&item.path)),
                Err(fault) => Some(fault.clone()),
            };
            match fault {
                Some(fault) => report.record_item_failure(item, fault),
                None => report.moved(item),
            }
        }
        report.progress();
        Ok(())
    }

    /// Waits until a pack is carried out, and its names are durable if each is to be by then.
    ///
    /// # Errors
    /// The session ended, or the names could not be made durable.
    pub(super) fn carry_out(
        &self,
        transfer: PackTransfer,
        has_names: bool,
    ) -> Result<Result<Failures, Fault>, Fault> {
        let done = transfer.wait();
        match &done {
            Err(fault) if fault.ends_session => return Err(fault.clone()),
            Ok(_) if has_names && self.options.durability == Durability::Full => {
                self.target.start_sync().wait()?;
            }
            _ => {}
        }
        Ok(done)
    }

    /// How a large file is transferred.
    pub(super) fn transfer_options(&self, overwrite: bool) -> TransferOptions {
        TransferOptions {
            rate_bytes_per_s_max: self.options.rate_bytes_per_s_max,
            overwrite,
            digest: self.options.digest,
            resume: !self.options.begin_anew,
            verify_resumed: self.options.verify_resumed,
            ..TransferOptions::default()
        }
    }

    /// How packs are transferred.
    pub(super) fn pack_options(&self, overwrite: bool) -> TransferOptions {
        TransferOptions {
            digest: Some(DigestKind::None),
            resume: false,
            ..self.transfer_options(overwrite)
        }
    }

    /// Has a pack carried out at the target: the first bytes of some memory.
    pub(super) fn start_pack(
        &self,
        (memory, length): (Vec<u8>, usize),
        items: Vec<Item>,
        overwrite: bool,
    ) -> Result<MovingPack, Fault> {
        let root = self.target.root();
        let relaxed = self.options.durability == Durability::None;
        let transfer = if self.target.is_remote() {
            let job = UploadSpec {
                source: Box::new(PackSource::new(memory, length, self.spares.clone())),
                source_path: self.source.root().to_vec(),
                target: root.to_vec(),
                name: Vec::new(),
                pack: true,
                relaxed,
            };
            let options = self.pack_options(overwrite);
            let transfer = self.client.start(&options, TransferKind::Upload(job))?;
            PackTransfer::Moving(Box::new(transfer))
        } else {
            // What is made here sets attributes and links, and has no content that waits.
            let how = PackOptions {
                overwrite,
                relaxed: false,
            };
            let done = LocalStore::unrooted().write_pack(root, how, &memory[..length]);
            self.spares.give(memory);
            PackTransfer::Ended(done)
        };
        Ok(MovingPack {
            transfer,
            items,
            inspector: None,
        })
    }
}

/// The last name of a path; empty if it ends in a slash, or in no name.
fn last_name(path: &[u8]) -> &[u8] {
    match path.rsplit(|b| *b == b'/').next() {
        Some(b"." | b"..") | None => b"",
        Some(name) => name,
    }
}
