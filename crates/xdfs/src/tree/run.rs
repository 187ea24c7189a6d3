//! The run of a tree copy between a local and a remote side: entries go into packs or separate
//! transfers, and their outcomes are counted.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::command::TransferKind;
use xdfs_engine::{PackSource, Spares, TimeSum, TransferParameters, UploadSpec};
use xdfs_proto::frame::Resume;
use xdfs_proto::pack::Failures;
use xdfs_proto::{Code, DigestKind, Fault};
use xdfs_store::local::SettableOwners;
use xdfs_store::{LocalStore, PackOptions, Store as _};

use super::apart::OwnTarget;
use super::count::SourceCount;
use super::feed::{Event, Feed, Unlisted};
use super::inspector::Received;
use super::item::{Item, Kind};
use super::journal::{JournalWriter, ResumeIndex};
use super::links::{FirstNames, Link};
use super::moving::{
    MovingFile, MovingPack, NextRequest, PROGRESS_INTERVAL, PackTransfer, Report, take_ended,
};
use super::name_collisions::Deferred;
use super::namespace::{FoundName, Namespace};
use super::options::{
    COMPLETED_WAITING, Durability, IN_FLIGHT_MAX, PACKS_MAX, PackSizes, ROUNDS, TreeOptions,
};
use super::session::TreeSession;
use super::tracker::CompletedDirectory;
use crate::events::TreeActivity;
use crate::skip::Skip;
use crate::transfer::{SharedTime, TransferOptions};

/// Batches of local entries queued for the packers.
const BATCHES_WAITING: usize = 64;
/// Events queued by packers.
const PACKS_WAITING: usize = 4;
/// Events queued by listings.
const LISTED_WAITING: usize = 64;
/// Steps queued by a dry run of a synchronisation.
const STEPS_WAITING: usize = 1024;
/// Found files that wait to be sorted by size, at most.
const UNSORTED_MAX: usize = 200_000;
/// Most threads that read small files.
const PACKERS_MAX: usize = 4;
/// Concurrent listings on the server, on short and long paths.
const LISTINGS_SHORT: usize = 4;
const LISTINGS_LONG: usize = 16;
/// Interval of [`Moving::poll_background`].
const TICK: Duration = Duration::from_millis(100);
/// Entries moved until the target is synchronised though no claim asks for it, so that their memory
/// is bounded.
const UNSYNCED_MAX: usize = 400_000;

/// Replaces the scanner as the source of entries.
pub(super) type Provider<'p> = dyn Fn(&Feed) + Sync + 'p;

pub(super) struct TreeRun<'a> {
    /// The session with the server of the target or, if that is on this machine, of the source.
    pub(super) session: &'a TreeSession<'a>,
    pub(super) source: &'a Namespace<'a>,
    pub(super) target: &'a Namespace<'a>,
    pub(super) options: &'a TreeOptions,
    pub(super) pack_sizes: PackSizes,
    pub(super) spares: Spares,
    /// Ends the scanner and the packers.
    pub(super) stop: AtomicBool,
    /// The first name of each file with several hard links.
    pub(super) names: FirstNames,
    /// The root of the target existed, and keeps its mode and owner: it may be the root of an
    /// export.
    pub(super) keeps_root: bool,
    /// Files are requested in the order of their sizes, in which the server has them at hand.
    pub(super) is_by_size: bool,
    pub(super) unlisted: Unlisted,
    /// Small files travel in packs. Otherwise each file is a transfer of its own.
    pub(super) has_packs: bool,
    /// The target, if the source may have it in it.
    pub(super) own: Option<OwnTarget>,
    /// Entries that an earlier run finished.
    pub(super) resume: Option<ResumeIndex>,
    /// The root of the target exists. Known only in dry runs of copies.
    pub(super) has_root: bool,
    /// Some of the files that exist at the target are skipped.
    pub(super) skips_existing: bool,
    /// Directories that existed at the target and aren't listed yet.
    pub(super) existing_directories: Mutex<HashSet<Vec<u8>>>,
    /// Files that packers sent without their set-user-id and set-group-id bits.
    pub(super) unkept: AtomicU64,
    /// The count of the source, if progress is to have totals.
    pub(super) count: Option<Arc<SourceCount>>,
    /// The owners that the target can give to files, once they are needed.
    pub(super) settable_owners: OnceLock<SettableOwners>,
    /// Directories that were given all rights of their owner for a while, with their modes.
    pub(super) opened: Mutex<BTreeMap<Vec<u8>, u32>>,
    /// Where the time of the transfers went.
    time: Mutex<TimeSum>,
}

/// The state of a run on its own thread.
pub(super) struct Moving<'r, 'o> {
    pub(super) run: &'r TreeRun<'r>,
    pub(super) report: &'r mut Report<'o>,
    pub(super) packs: VecDeque<MovingPack<'r>>,
    pub(super) large: VecDeque<MovingFile>,
    /// Large files whose content has arrived, with the packs that set their metadata.
    pub(super) awaiting_metadata: Vec<(Item, Vec<u8>)>,
    /// The next pack request to a remote source.
    pub(super) request: NextRequest,
    /// Found files that wait for others which may be smaller.
    unsorted: Vec<FoundName>,
    /// Whether new transfers may replace existing entries.
    pub(super) overwrite: bool,
    /// The entries of a pack are being processed; no other pack is taken meanwhile.
    is_in_pack: bool,
    /// A directory known to exist at the target.
    pub(super) made_directory: Option<Vec<u8>>,
    /// Further hard links, created at the end.
    pub(super) links: Vec<Link>,
    /// Complete directories whose metadata is to be set.
    pub(super) completed: VecDeque<CompletedDirectory>,
    /// The pack in flight that sets directory metadata.
    pub(super) finalizing: Option<(PackTransfer<'r>, Vec<CompletedDirectory>)>,
    pub(super) journal: Option<JournalWriter>,
    ticked: Instant,
    /// Entries whose names may collide.
    pub(super) deferred: Deferred<FoundName>,
    /// Paths of those that collided.
    pub(super) refused: HashSet<Vec<u8>>,
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
            awaiting_metadata: Vec::new(),
            request: NextRequest::default(),
            unsorted: Vec::new(),
            overwrite: run.options.parameters.overwrite,
            is_in_pack: false,
            made_directory: None,
            links: Vec::new(),
            completed: VecDeque::new(),
            finalizing: None,
            journal,
            ticked: Instant::now(),
            deferred: Deferred::new(|found| &found.path),
            refused: HashSet::new(),
        }
    }

    fn drive(
        mut self,
        roots: Vec<FoundName>,
        provider: Option<&Provider<'_>>,
    ) -> Result<(), Fault> {
        self.pass(roots, provider)?;
        // What was requested may have to go to another server.
        self.wait_while(|pack| pack.inspector.is_some())?;
        // A synchronisation has an end of its own.
        if provider.is_none() && self.end_in_one_flight()? {
            return match self.journal.take() {
                Some(writer) => {
                    let is_whole = !self.report.is_stopped();
                    let claims = self.report.tracker.take_claims();
                    writer.finish(is_whole, claims, self.report)
                }
                None => Ok(()),
            };
        }
        self.drain()?;
        if self.run.options.parameters.dry_run || self.report.is_stopped() && self.journal.is_none()
        {
            return Ok(());
        }
        self.retry()?;
        self.move_deferred()?;
        if !self.report.is_stopped() {
            self.report.give_up_retries();
            // The first names exist by now.
            self.link()?;
        }
        self.finalize_directories()?;
        // A synchronisation does that at its own end.
        let is_durable = self.run.options.durability != Durability::None && provider.is_none();
        // Requested before the synchronisation, to save a round trip.
        let writer = self.journal.as_ref();
        let root = writer.and_then(|writer| writer.ask_for_root(self.run.target));
        if self.report.has_moved() && is_durable {
            self.run.sync_target(self.report)?;
        }
        let Some(mut writer) = self.journal.take() else {
            return Ok(());
        };
        writer.learn_root(root)?;
        let is_whole = !self.report.is_stopped() && self.report.result.failed == 0;
        let claims = self.report.tracker.take_claims();
        writer.finish(is_whole, claims, self.report)
    }

    /// Moves the entries of the provider, or without one `roots` and everything beneath them.
    pub(super) fn pass(
        &mut self,
        roots: Vec<FoundName>,
        provider: Option<&Provider<'_>>,
    ) -> Result<(), Fault> {
        let run = self.run;
        let (found, queue) = mpsc::sync_channel(BATCHES_WAITING);
        let queue = Mutex::new(queue);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (scanners, packers, waiting) = match (run.source.is_remote(), run.pack_sizes.is_long) {
            (true, false) => (LISTINGS_SHORT, 0, LISTED_WAITING),
            (true, true) => (LISTINGS_LONG, 0, LISTED_WAITING),
            (false, is_long) => {
                let has_run = run.resume.as_ref().is_some_and(|index| index.has_run());
                let asks_target = has_run || run.skips_existing;
                let scanners = match (asks_target, is_long) {
                    (false, _) => 1,
                    (true, false) => LISTINGS_SHORT,
                    (true, true) => LISTINGS_LONG,
                };
                (scanners, (cores / 2).clamp(1, PACKERS_MAX), PACKS_WAITING)
            }
        };
        let waiting = match provider {
            Some(_) if run.options.parameters.dry_run => STEPS_WAITING,
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
                // The sender of their own queue would keep them from ending.
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
                // The other threads end once nobody receives their events.
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
                Err(RecvTimeoutError::Disconnected) => return self.sort_by_size(),
            }
            self.poll_background()?;
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), Fault> {
        match event {
            Event::Found(entries) => {
                for found in entries {
                    match self.run.is_by_size && !found.is_directory {
                        true => self.unsorted.push(found),
                        false => self.sort(found)?,
                    }
                }
                if self.unsorted.len() >= UNSORTED_MAX {
                    self.sort_by_size()?;
                }
            }
            Event::Pack { memory, items, .. } if self.run.options.parameters.dry_run => {
                self.run.spares.give(memory);
                for item in &items {
                    self.report.would_copy(item, item.bytes);
                }
            }
            Event::Pack {
                memory,
                length,
                items,
            } => {
                let pack = (memory, length);
                let has_content = items.iter().any(|item| item.kind.has_name());
                let pack = match has_content {
                    true => self.run.start_pack(pack, items, self.overwrite)?,
                    false => self.run.start_metadata_pack(pack, items, self.overwrite)?,
                };
                self.push(pack)?;
            }
            Event::Large(path) if self.run.options.parameters.dry_run => {
                let found = self.run.source.local_attributes(&path);
                let (size, storage) =
                    found.map_or((0, 0), |found| (found.size, self.run.storage(&found)));
                self.report
                    .would_copy(&Item::large(path, size, None), storage);
            }
            Event::Large(path) => {
                self.start_large(Item::large(path, 0, None), None)?;
            }
            Event::Step {
                step,
                item,
                storage: (needed, replaced),
            } => {
                self.report.needed.add(needed);
                self.report.needed.replace(replaced);
                self.report.step(step, &item.path, None);
                self.report.count(&item);
            }
            Event::Deferred(found) => self.deferred.add(found),
            Event::Link(link) => self.links.push(link),
            // A dry run tracks nothing.
            Event::HardLinked(_) if self.run.options.parameters.dry_run => {}
            Event::Listed { was_there, .. } if self.run.options.parameters.dry_run => {
                self.report.tracker.existing += u64::from(was_there);
            }
            Event::HardLinked(path) => self.report.tracker.keep_open(&path),
            Event::Listed {
                directory,
                was_there,
                entries,
                taken,
                is_well,
            } => {
                self.report.resumed(&taken);
                let tracker = &mut self.report.tracker;
                if was_there {
                    tracker.was_there(&directory);
                }
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

    /// Processes the found files that wait, small ones first.
    fn sort_by_size(&mut self) -> Result<(), Fault> {
        let size = |found: &FoundName| found.attributes.as_ref().map_or(0, |found| found.size);
        let mut files = std::mem::take(&mut self.unsorted);
        files.sort_by(|a, b| size(a).cmp(&size(b)).then_with(|| a.path.cmp(&b.path)));
        for found in files {
            if self.report.is_stopped() {
                break;
            }
            self.sort(found)?;
        }
        Ok(())
    }

    /// Adds a started pack, and waits until another may be started.
    pub(super) fn push(&mut self, pack: MovingPack<'r>) -> Result<(), Fault> {
        if pack.transfer.has_ended() {
            return self.end_pack(pack);
        }
        self.packs.push_back(pack);
        // Large files alone are fewer, so there is a pack to wait for.
        while self.packs.len() >= PACKS_MAX || self.packs.len() + self.large.len() >= IN_FLIGHT_MAX
        {
            self.wait_for_packs()?;
        }
        Ok(())
    }

    /// Waits briefly for the oldest pack.
    fn wait_for_packs(&mut self) -> Result<(), Fault> {
        // Packs may wait behind large files.
        self.cancel_unwanted();
        if let Some(pack) = take_ended(&mut self.packs, PROGRESS_INTERVAL) {
            self.end_pack(pack)?;
        } else {
            self.report.progress();
        }
        self.poll_background()
    }

    /// Waits for a pack, and records the outcome of each entry.
    pub(super) fn end_pack(&mut self, pack: MovingPack<'r>) -> Result<(), Fault> {
        let Some(inspector) = pack.inspector else {
            return self.run.count_pack(pack, self.report);
        };
        let is_here = !self.run.target.is_remote();
        let failures = match self.run.finish_pack(pack.transfer, is_here)?.1 {
            Ok(failures) => failures,
            Err(fault) if fault.ends_session => {
                return self.end_interrupted_request(&inspector, &fault);
            }
            // Any other request fails too.
            Err(fault) if fault.code == Code::FeatureUnsupported => {
                return Err(self.run.source.apart(fault));
            }
            Err(fault) => {
                let fault = self.run.source.apart(fault);
                for path in &inspector.names {
                    self.report.record_failure(path, false, None, fault.clone());
                }
                return Ok(());
            }
        };
        let mut received = inspector.take();
        let count = received.len();
        let is_nested = std::mem::replace(&mut self.is_in_pack, true);
        if let Some(pack) = inspector.take_kept() {
            self.pass_on(pack, &mut received)?;
        }
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
                    let fault = self.run.source.apart(fault);
                    self.report.record_failure(&path, false, None, fault)
                }
            }
        }
        // Request again what didn't fit into the pack.
        for path in inspector.names.get(count..).unwrap_or_default() {
            self.add_request(path.clone(), 0)?;
        }
        self.is_in_pack = is_nested;
        self.report.progress();
        Ok(())
    }

    /// Waits for everything in flight.
    pub(super) fn drain(&mut self) -> Result<(), Fault> {
        self.wait_while(|_| true)?;
        while !self.large.is_empty() {
            self.wait_for_large()?;
        }
        self.apply_metadata()?;
        while !self.packs.is_empty() {
            self.wait_for_packs()?;
        }
        Ok(())
    }

    /// Waits until nothing is left to be requested, and none of these packs is in flight.
    fn wait_while(&mut self, is_awaited: fn(&MovingPack<'_>) -> bool) -> Result<(), Fault> {
        loop {
            self.send_request()?;
            while self.packs.iter().any(is_awaited) {
                self.wait_for_packs()?;
            }
            // Entries that didn't fit into their packs were requested again.
            if self.request.names.is_empty() || self.report.is_stopped() {
                return Ok(());
            }
        }
    }

    /// Periodic work: processes ended transfers, sets the metadata of complete directories, and
    /// starts claims. Doesn't wait for the peer.
    pub(super) fn poll_background(&mut self) -> Result<(), Fault> {
        let completed = self.report.tracker.take_completed();
        self.completed.extend(completed);
        let many = self.completed.len() >= COMPLETED_WAITING;
        if !many && self.ticked.elapsed() < TICK {
            return Ok(());
        }
        self.ticked = Instant::now();
        self.note_activity();
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
        if self.report.unsynced.len() >= UNSYNCED_MAX {
            self.run.sync_target(self.report)?;
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

    fn note_activity(&mut self) {
        let packed = self.packs.iter().map(|pack| match &pack.inspector {
            Some(inspector) => inspector.names.len(),
            None => pack.items.len(),
        });
        let result = &mut self.report.result;
        result.reconnects = self.run.reconnects();
        result.activity.in_flight = (packed.sum::<usize>() + self.large.len()) as u64;
        result.activity.in_flight_bytes = self.large.iter().map(|file| file.bytes).sum();
    }

    /// Starts to make everything moved so far durable, and to claim it.
    fn claim(&mut self) -> Result<(), Fault> {
        let Some(writer) = &mut self.journal else {
            return Ok(());
        };
        writer.learn_root(writer.ask_for_root(self.run.target))?;
        let is_durable = self.run.options.durability != Durability::None;
        let sync = loop {
            self.run.verify_unsynced(self.report)?;
            let sync = is_durable.then(|| self.run.target.start_sync_once());
            // Not in a later session than the one that has everything.
            if self.run.session.generation() == self.report.unsynced_generation {
                break sync;
            }
        };
        // Entries that arrive after this are left to the next claim.
        let claims = self.report.tracker.take_claims();
        self.report.begin_sync();
        writer.claim(sync, claims, self.report);
        Ok(())
    }
}

impl<'a> TreeRun<'a> {
    pub(super) fn new(
        session: &'a TreeSession<'a>,
        source: &'a Namespace<'a>,
        target: &'a Namespace<'a>,
        options: &'a TreeOptions,
        pack_sizes: PackSizes,
    ) -> Self {
        Self {
            session,
            source,
            target,
            options,
            pack_sizes,
            spares: Spares::default(),
            stop: AtomicBool::new(false),
            names: FirstNames::default(),
            keeps_root: false,
            is_by_size: false,
            unlisted: Unlisted::default(),
            has_packs: source.packs_for(target, options),
            own: None,
            resume: None,
            has_root: false,
            skips_existing: false,
            existing_directories: Mutex::default(),
            unkept: AtomicU64::new(0),
            count: None,
            settable_owners: OnceLock::new(),
            opened: Mutex::default(),
            time: Mutex::default(),
        }
    }

    /// Moves the entries of the provider, or without one `roots` and everything beneath them.
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
        report.result.reconnects = self.reconnects();
        report.result.activity = TreeActivity::default();
        let time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        report.result.time_shares = time.shares();
        result
    }

    /// The sessions with the servers of the source and the target.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &'a TreeSession<'a>> {
        let ends = [self.source, self.target];
        ends.into_iter().filter_map(Namespace::session)
    }

    /// Sessions that took the place of broken ones.
    pub(super) fn reconnects(&self) -> u64 {
        self.sessions().map(TreeSession::reconnects).sum()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for a pack that was built locally, and records the outcome of each entry.
    pub(super) fn count_pack(
        &self,
        pack: MovingPack<'a>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let MovingPack {
            transfer, items, ..
        } = pack;
        let has_names = items.iter().any(|item| item.kind.has_name());
        let (is_repeated, mut done) = self.finish_pack(transfer, has_names)?;
        if let Ok(failures) = &done
            && let Some((_, file)) = (0..)
                .zip(&items)
                .find(|(n, item)| item.kind == Kind::File && failures.of(*n).is_none())
            && let Err(fault) = self.learn_server_run(&file.path, report)
        {
            done = Err(fault);
        }
        if let Err(fault) = &done
            && fault.ends_session
        {
            return self.find_interrupted(items, fault, report);
        }
        if is_repeated {
            items
                .iter()
                .for_each(|item| report.note_interrupted(&item.path));
        }
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

    /// Waits for the end of a pack. With [`Durability::Full`] its names are durable then. A pack of
    /// metadata is sent again if its session breaks, which the flag says.
    ///
    /// A fault that ends the session is returned as the result of any other pack: its outcome is
    /// unknown, and another session is there.
    ///
    /// # Errors
    /// No session is there any more, or the names could not be made durable.
    pub(super) fn finish_pack(
        &self,
        transfer: PackTransfer<'a>,
        has_names: bool,
    ) -> Result<(bool, Result<Failures, Fault>), Fault> {
        let PackTransfer {
            state,
            session,
            mut generation,
            repeatable,
        } = transfer;
        let session = session.unwrap_or(self.session);
        let mut is_repeated = false;
        let mut done = self.note_time(state.wait());
        let mut rounds = 0;
        while let Err(fault) = &done {
            if fault.ends_session {
                let other = session.recover(generation, fault);
                other.map_err(|fault| session.named(fault))?;
            } else if repeatable.is_none()
                || rounds == ROUNDS
                || !session.await_server(iter::once(fault))
            {
                break;
            }
            let Some((pack, overwrite)) = &repeatable else {
                return Ok((false, done));
            };
            rounds += 1;
            is_repeated = true;
            let again = self.start_pack((pack.clone(), pack.len()), Vec::new(), *overwrite)?;
            generation = again.transfer.generation;
            done = self.note_time(again.transfer.state.wait());
        }
        if done.is_ok() {
            session.note_progress();
            if has_names && self.options.durability == Durability::Full {
                self.target.start_sync().wait()?;
            }
        }
        Ok((is_repeated, done))
    }

    fn note_time(
        &self,
        done: Result<(Failures, Option<SharedTime>), Fault>,
    ) -> Result<Failures, Fault> {
        let (failures, time) = done?;
        time.into_iter().for_each(|time| self.add_time(time));
        Ok(failures)
    }

    pub(super) fn add_time(&self, (shares, time): SharedTime) {
        let mut sum = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        sum.add(&shares, time);
    }

    /// Looks for entries that were in flight when their session broke: those at the target have
    /// arrived, the others are moved again.
    pub(super) fn find_interrupted(
        &self,
        items: Vec<Item>,
        fault: &Fault,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let found = self.target.look_up(items.iter().map(|item| &item.path[..]));
        for (item, found) in items.into_iter().zip(found) {
            let found = match found {
                Err(fault) if fault.ends_session => return Err(fault),
                found => found.ok().flatten(),
            };
            if found.is_some_and(|found| report.has_arrived(&item, &found)) {
                report.moved(&item);
            } else {
                report.interrupt(item.path, item.mark, fault);
            }
        }
        report.progress();
        Ok(())
    }

    /// Whether the umask decides on the modes at the target.
    pub(super) fn masks_modes(&self) -> bool {
        let is_fetched = self.source.is_remote() && !self.target.is_remote();
        is_fetched && !self.options.has_exact_modes()
    }

    /// The store of a local target.
    pub(super) fn receiving(&self, store: LocalStore) -> LocalStore {
        match self.masks_modes() {
            true => store.masking_modes(),
            false => store,
        }
    }

    /// Options for the transfer of a large file.
    pub(super) fn transfer_options(&self, overwrite: bool) -> TransferOptions {
        TransferOptions {
            parameters: TransferParameters {
                overwrite,
                dry_run: false,
                ..self.options.parameters
            },
            skip: Skip::Never,
            ..TransferOptions::default()
        }
    }

    /// Options for the transfer of a pack.
    pub(super) fn pack_options(&self, overwrite: bool) -> TransferOptions {
        let mut options = self.transfer_options(overwrite);
        options.parameters.digest = Some(DigestKind::None);
        options.parameters.resume = Resume::Never;
        options
    }

    /// Starts a pack at the target: the first `length` bytes of `memory`.
    pub(super) fn start_pack(
        &self,
        (memory, length): (Vec<u8>, usize),
        items: Vec<Item>,
        overwrite: bool,
    ) -> Result<MovingPack<'a>, Fault> {
        let root = self.target.root();
        let relaxed = self.options.durability == Durability::None;
        let transfer = if let Some(session) = self.target.session() {
            let job = UploadSpec {
                source: Box::new(PackSource::new(memory, length, self.spares.clone())),
                source_path: self.source.root().to_vec(),
                target: root.to_vec(),
                name: Vec::new(),
                pack: true,
                relaxed,
                last: None,
            };
            let options = self.pack_options(overwrite);
            PackTransfer::start(session, &options, TransferKind::Upload(job))?
        } else {
            // Packs built here for a local target set metadata and links, without content to make
            // durable.
            let how = PackOptions {
                overwrite,
                relaxed: false,
            };
            let store = self.receiving(LocalStore::unrooted());
            let done = store.write_pack(root, how, &memory[..length]);
            self.spares.give(memory);
            PackTransfer::ended(done)
        };
        Ok(MovingPack {
            transfer,
            items,
            inspector: None,
        })
    }

    /// Likewise a pack without content, which is sent again if its session breaks.
    pub(super) fn start_metadata_pack(
        &self,
        (memory, length): (Vec<u8>, usize),
        items: Vec<Item>,
        overwrite: bool,
    ) -> Result<MovingPack<'a>, Fault> {
        let is_kept = self.target.is_remote() && self.session.may_reconnect();
        let kept = is_kept.then(|| (memory[..length].to_vec(), overwrite));
        let mut pack = self.start_pack((memory, length), items, overwrite)?;
        pack.transfer.repeatable = kept;
        Ok(pack)
    }
}
