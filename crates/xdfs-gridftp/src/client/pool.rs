//! The pool of connections to a server, and what every use of its files needs.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_proto::path::{Attributes, FileKind};
use xdfs_proto::{Code, Fault, Retry};
use xdfs_store::{SinkRequest, check_cancelled};

use super::channel::{Direction, Mode};
use super::fault::{lacking, refused, violation};
use super::features::Features;
use super::incoming::Incoming;
use super::link::{CHANNELS, Link, STALL};
use super::listed::Listed;
use super::listing::{parse_facts, row_of};
use super::listings::{Files, Listings};
use super::missing;
use super::parked::Parkings;
use super::plain;
use super::resumed;
use super::sink::JOURNALED_BYTES_MIN;
use super::slots::{FULL, FULL_PAUSE, Slot, Slots, is_full};
use super::third_party::Pair;
use super::told_rows::ToldRows;
use super::tree::Tree;
use super::{Protection, Settings};
use crate::archive::Compression;
use crate::reply::Reply;
use crate::segment::{CATALOGUE_BYTES_MAX, Opening};
use crate::wire::LONG_PATH;

/// Most connections that are kept for later.
const IDLE_MAX: usize = 8;
/// Bytes of a tree for which another connection pays.
const AHEAD_BYTES: u64 = 4 << 20;
/// Most servers that are remembered for a server that can't send to them.
const UNREACHABLE_MAX: usize = 64;
/// Most hidden files that are remembered to be removed.
const LEFT_MAX: usize = 10_000;
/// Most data connections that a user may ask for.
const CHANNELS_MAX: u32 = 64;
/// Smaller files get one data connection: they would not fill several.
const LARGE_BYTES: u64 = 8 << 20;

const LIST_TREE: &str = "list the tree";
const WAIT: &str = "wait for a session with the server";
/// Interval of looks at whether a call is still wanted, and at transfers that rest.
const WAIT_TICK: Duration = Duration::from_millis(200);
/// Bytes of a tree that are read at once.
const PIECE_BYTES: usize = 256 << 10;
/// Most memory of segments that is kept: in pieces, and bytes of each.
const SEGMENTS_KEPT: usize = 8;
const SEGMENT_BYTES_KEPT: usize = 8 << 20;
/// Segments that aren't compressed after one for which it was of no use.
const UNCOMPRESSED: u32 = 16;

/// The files of a server. Cheap to clone; clones share the connections.
#[derive(Clone, Debug)]
pub struct FtpStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    slots: Slots,
    idle: Mutex<Vec<Link>>,
    parkings: Parkings,
    /// Of transfers from this server to others.
    pairs: Mutex<Vec<Pair>>,
    /// The servers that send to this one, whose pairs have sessions of it.
    senders: Mutex<Vec<Weak<Self>>>,
    /// Servers to which this one can't send, and why.
    unreachable: Mutex<Vec<(FtpStore, Fault)>>,
    /// Files in a row that did not go straight to another server.
    doubts: AtomicU32,
    listings: Mutex<Listings>,
    /// What listings of a server without MLSD have told.
    told: Mutex<ToldRows>,
    /// LIST has options: `-a` has shown a directory itself.
    lists_hidden: AtomicBool,
    files: Mutex<Files>,
    /// The features that the latest new connection has announced.
    features: Mutex<Features>,
    /// Hidden files that the next new connection removes.
    left: Mutex<Vec<Vec<u8>>>,
    /// The tree that is being read.
    tree: Mutex<Option<Arc<Tree>>>,
    /// Memory of segments.
    segments: Mutex<Vec<Vec<u8>>>,
    /// Segments that are sent as they are, until compression is tried again.
    uncompressed: AtomicU32,
    /// The server can't open connections to this machine.
    is_one_way: AtomicBool,
    /// The server can't begin to send in the middle of a file.
    has_no_restarts: AtomicBool,
    /// This machine can't open connections for data to the server.
    avoids_exchange: AtomicBool,
    /// The path to the server is short.
    is_near: AtomicBool,
    is_closed: Arc<AtomicBool>,
}

/// Time for hidden files to be removed at the end.
const REMOVAL: Duration = Duration::from_secs(3);
/// Files in a row that don't go straight to another server until it counts as out of reach.
const DOUBTS_MAX: u32 = 3;

impl FtpStore {
    /// The files of a server, to which nothing is connected yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            shared: Arc::new(Shared {
                settings,
                slots: Slots::new(),
                idle: Mutex::default(),
                parkings: Parkings::default(),
                pairs: Mutex::default(),
                senders: Mutex::default(),
                unreachable: Mutex::default(),
                doubts: AtomicU32::new(0),
                listings: Mutex::default(),
                told: Mutex::default(),
                lists_hidden: AtomicBool::new(false),
                files: Mutex::default(),
                features: Mutex::default(),
                left: Mutex::default(),
                tree: Mutex::default(),
                segments: Mutex::default(),
                uncompressed: AtomicU32::new(0),
                is_one_way: AtomicBool::new(false),
                has_no_restarts: AtomicBool::new(false),
                avoids_exchange: AtomicBool::new(false),
                is_near: AtomicBool::new(false),
                is_closed: Arc::default(),
            }),
        }
    }

    /// Ends what waits for the server, soon, and everything that is begun later.
    pub(super) fn end(&self) {
        if !self.left().is_empty() {
            self.remove_left();
        }
        self.shared.is_closed.store(true, Ordering::Relaxed);
        self.idle().clear();
        self.shared.parkings.clear();
        self.pairs().clear();
        self.unreachable().clear();
    }

    /// Has hidden files removed, if a connection for that comes about soon; they stay otherwise.
    fn remove_left(&self) {
        let (told, ended) = mpsc::channel::<()>();
        let store = self.clone();
        let removal = thread::Builder::new().name("xdfs-ftp-end".into());
        let begun = removal.spawn(move || {
            // Dropped at the end.
            let _told = told;
            if let Err(fault) = store.with(|link| store.delete_left(link)) {
                tracing::debug!(%fault, "hidden files stay at the server");
            }
        });
        if begun.is_ok() {
            // At the end, or after this time, which is an end too.
            let _ = ended.recv_timeout(REMOVAL);
        }
    }

    fn unreachable(&self) -> MutexGuard<'_, Vec<(Self, Fault)>> {
        let unreachable = self.shared.unreachable.lock();
        unreachable.unwrap_or_else(PoisonError::into_inner)
    }

    /// Why this server can't send to another one, if that is known.
    pub(super) fn cannot_reach(&self, target: &Self) -> Option<Fault> {
        let [own, other] = [self, target].map(|store| &store.shared.settings.protection);
        let refused = match self.is_carried() || target.is_carried() {
            true => Err("connections to a server go through ssh from this machine only"),
            false => own.check_between(other),
        };
        if let Err(cause) = refused {
            let operation = "prepare a transfer between servers";
            return Some(Fault::new(Code::Unsupported, operation, cause));
        }
        let unreachable = self.unreachable();
        let mut all = unreachable.iter();
        let found = all.find(|(other, _)| Arc::ptr_eq(&other.shared, &target.shared));
        found.map(|(_, fault)| fault.clone())
    }

    /// Takes note that this server can't send to another one. Unless it is certain, the third file
    /// in a row makes it so. Returns whether it is.
    pub(super) fn note_unreachable(&self, target: &Self, fault: &Fault, is_certain: bool) -> bool {
        let doubts = self.shared.doubts.fetch_add(1, Ordering::Relaxed) + 1;
        if !is_certain && doubts < DOUBTS_MAX {
            return false;
        }
        if self.cannot_reach(target).is_some() {
            return true;
        }
        let (from, to) = (self.server(), target.server());
        tracing::info!(%fault, "no file can go straight from {from} to {to}");
        let mut unreachable = self.unreachable();
        if unreachable.len() < UNREACHABLE_MAX {
            unreachable.push((target.clone(), fault.clone()));
        }
        true
    }

    /// Takes note that a file went from this server straight to another one.
    pub(super) fn note_reached(&self) {
        self.shared.doubts.store(0, Ordering::Relaxed);
    }

    /// Whether a program carries each control connection.
    pub(super) fn is_carried(&self) -> bool {
        self.shared.settings.carrier.is_some()
    }

    /// The host and the port of the server.
    pub(super) fn server(&self) -> String {
        let Settings { host, port, .. } = &self.shared.settings;
        format!("{host}:{port}")
    }

    /// Whether a user other than `anonymous` logs in over connections that TLS protects.
    pub(super) fn logs_in_by_password(&self) -> bool {
        let Settings {
            user, protection, ..
        } = &self.shared.settings;
        let is_named = user.as_deref().is_some_and(|user| user != "anonymous");
        is_named && matches!(protection, Protection::Tls(_))
    }

    /// The user; empty for `anonymous`.
    pub(super) fn user(&self) -> &str {
        self.shared.settings.user.as_deref().unwrap_or_default()
    }

    /// The directory for the journals of uploads.
    pub(super) fn uploads(&self) -> Option<&Path> {
        self.shared.settings.uploads.as_deref()
    }

    fn pairs(&self) -> MutexGuard<'_, Vec<Pair>> {
        let pairs = self.shared.pairs.lock();
        pairs.unwrap_or_else(PoisonError::into_inner)
    }

    /// Unused connections of a transfer from this server to another one.
    pub(super) fn take_pair(&self, target: &Self) -> Option<Pair> {
        let mut pairs = self.pairs();
        let is_it = |pair: &Pair| Arc::ptr_eq(&pair.target().shared, &target.shared);
        let at = pairs.iter().position(is_it)?;
        Some(pairs.swap_remove(at))
    }

    /// Keeps them for the next file.
    pub(super) fn give_back_pair(&self, pair: Pair) {
        let are_few = |store: &Self| store.shared.slots.are_few();
        if are_few(self) || are_few(pair.target()) {
            return;
        }
        pair.target().note_sender(self);
        let mut pairs = self.pairs();
        if pairs.len() < IDLE_MAX {
            pairs.push(pair);
        }
    }

    fn senders(&self) -> MutexGuard<'_, Vec<Weak<Shared>>> {
        let senders = self.shared.senders.lock();
        senders.unwrap_or_else(PoisonError::into_inner)
    }

    fn note_sender(&self, sender: &Self) {
        let mut senders = self.senders();
        senders.retain(|other| other.strong_count() > 0);
        let sender = Arc::downgrade(&sender.shared);
        if !senders.iter().any(|other| other.ptr_eq(&sender)) {
            senders.push(sender);
        }
    }

    /// Ends the sessions of pairs that are not in use. Returns whether there were any.
    fn end_pairs(&self) -> bool {
        let mut ended = std::mem::take(&mut *self.pairs());
        let senders: Vec<_> = self.senders().iter().filter_map(Weak::upgrade).collect();
        for shared in senders {
            let sender = Self { shared };
            let is_it = |pair: &mut Pair| Arc::ptr_eq(&pair.target().shared, &self.shared);
            ended.extend(sender.pairs().extract_if(.., is_it));
        }
        !ended.is_empty()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.shared
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection: an unused one, if possible with data connections of this kind, or a new one.
    /// If the server takes no more, waits until one is free.
    ///
    /// # Errors
    /// There is none, and none can be opened; or those that there are don't get free.
    pub(super) fn take(&self, wanted: Option<(Direction, u32)>) -> Result<Link, Fault> {
        // Those who transfer files by this store have no part in where it arose.
        self.open(wanted).map_err(Fault::local)
    }

    /// The same. A fault says whether it is the server's.
    fn open(&self, wanted: Option<(Direction, u32)>) -> Result<Link, Fault> {
        loop {
            let seen = self.shared.slots.seen();
            if let Some(link) = self.open_now(wanted)? {
                return Ok(link);
            }
            if self.end_pairs() {
                continue;
            }
            if let Some(mut link) = self.shared.parkings.steal() {
                tracing::debug!("a transfer that rests leaves its session to others");
                if link.abort(None) {
                    return Ok(link);
                }
                continue;
            }
            check_cancelled()?;
            if self.shared.is_closed.load(Ordering::Relaxed) {
                let cause = "the session has ended";
                return Err(Fault::new(Code::Cancelled, WAIT, cause));
            }
            if self.shared.slots.wait(seen, WAIT_TICK) >= STALL {
                let cause = "the server takes no more sessions, and those that are open are in use";
                return Err(Fault::new(Code::Busy, WAIT, cause).retry(Retry::Now));
            }
        }
    }

    /// The same without waiting; `None` if the server takes no more.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub(super) fn take_now(&self, wanted: Option<(Direction, u32)>) -> Result<Option<Link>, Fault> {
        self.open_now(wanted).map_err(Fault::local)
    }

    fn open_now(&self, wanted: Option<(Direction, u32)>) -> Result<Option<Link>, Fault> {
        if let Some(link) = self.take_idle(wanted) {
            return Ok(Some(link));
        }
        match self.shared.slots.open() {
            Some(slot) => self.connected(slot),
            None => Ok(None),
        }
    }

    /// An unused connection.
    fn take_idle(&self, wanted: Option<(Direction, u32)>) -> Option<Link> {
        loop {
            let mut idle = self.idle();
            let suits = |link: &Link| wanted.is_some_and(|(d, n)| link.has_channels(d, n));
            let at = idle
                .iter()
                .rposition(suits)
                .or_else(|| idle.len().checked_sub(1));
            let at = at?;
            let mut link = idle.swap_remove(at);
            drop(idle);
            let has_channels = wanted.is_some_and(|(d, n)| link.has_channels(d, n));
            if link.is_usable() && (has_channels || !link.is_used_up()) {
                return Some(link);
            }
        }
    }

    /// A new connection; `None` if the server refuses it beside others that are open.
    fn connected(&self, slot: Slot) -> Result<Option<Link>, Fault> {
        let slots = &self.shared.slots;
        let full = Instant::now() + FULL;
        let mut slot = slot;
        let mut link = loop {
            let opened = Link::connect(&self.shared.settings, &self.shared.is_closed, slot);
            let fault = match opened {
                Ok(link) => break link,
                Err(fault) => fault,
            };
            if slots.note_refusal(&fault) {
                return Ok(None);
            }
            if !is_full(&fault) || Instant::now() >= full {
                return Err(fault);
            }
            thread::sleep(FULL_PAUSE);
            slot = slots.replacement();
        };
        let is_near = link.round_trip < LONG_PATH;
        self.shared.is_near.store(is_near, Ordering::Relaxed);
        self.features().clone_from(&link.features);
        self.delete_left(&mut link)?;
        Ok(Some(link))
    }

    /// Removes hidden files that were left.
    ///
    /// # Errors
    /// The connection is broken.
    fn delete_left(&self, link: &mut Link) -> Result<(), Fault> {
        let left = std::mem::take(&mut *self.left());
        link.delete_all(&left).inspect_err(|_| {
            left.iter().for_each(|path| self.remove_later(path.clone()));
        })
    }

    /// A connection in place of one that may have ended.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub(super) fn renewed(&self, mut link: Link) -> Result<Link, Fault> {
        if link.is_usable() {
            return Ok(link);
        }
        // Its place stays reserved.
        let slot = self.shared.slots.replacement();
        drop(link);
        match self.connected(slot).map_err(Fault::local)? {
            Some(link) => Ok(link),
            None => self.take(None),
        }
    }

    /// Ends a transfer that isn't wanted any more. Where sessions are few, its session is kept.
    pub(super) fn let_go(&self, mut link: Link) {
        if self.shared.slots.are_few() && link.abort(None) {
            self.give_back(link);
        }
    }

    /// Transfers that wait to be read on.
    pub(super) fn parkings(&self) -> &Parkings {
        &self.shared.parkings
    }

    fn features(&self) -> MutexGuard<'_, Features> {
        let features = self.shared.features.lock();
        features.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a download that is interrupted resumes when it is started again.
    pub(super) fn can_resume_downloads(&self) -> bool {
        resumed::can_resume(&self.features())
    }

    /// The same for an upload of so many bytes.
    pub(super) fn can_resume_upload(&self, bytes: Option<u64>) -> bool {
        let is_long = bytes.is_some_and(|bytes| bytes >= JOURNALED_BYTES_MIN);
        let features = self.features();
        let can_resume = features.checksum().is_some() && features.exclusive && features.extended;
        is_long && can_resume && self.uploads().is_some()
    }

    /// Listings that are not yet served to their end.
    pub(super) fn listings(&self) -> MutexGuard<'_, Listings> {
        let listings = self.shared.listings.lock();
        listings.unwrap_or_else(PoisonError::into_inner)
    }

    /// What listings of a server without MLSD have told of entries.
    pub(super) fn told(&self) -> MutexGuard<'_, ToldRows> {
        let told = self.shared.told.lock();
        told.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether LIST has options: `-a` has shown a directory itself.
    pub(super) fn lists_hidden(&self) -> &AtomicBool {
        &self.shared.lists_hidden
    }

    /// What was listed of files lately.
    pub(super) fn files(&self) -> MutexGuard<'_, Files> {
        let files = self.shared.files.lock();
        files.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the path to the server is long; `false` if it can't be reached.
    pub(super) fn is_far_away(&self) -> bool {
        let is_far = self.with(|link| Ok(link.round_trip >= LONG_PATH));
        is_far.unwrap_or(false)
    }

    /// Asks a server for a tree.
    ///
    /// # Errors
    /// The server has no MODE T, or refuses, or the connection is broken.
    fn ask(&self, link: &mut Link, path: &[u8]) -> Result<Tree, Fault> {
        let root = Self::resolve(link, path);
        // Their checksums are of a kind that can be forged.
        let has_segments = !link.features.segments.is_empty() && !link.features.is_exposed;
        let mode = self.mode(link, Direction::Receive);
        if !has_segments || mode != Mode::Extended {
            return Err(lacking(LIST_TREE, &root, "the server has no MODE T"));
        }
        let mut incoming = self.request(link, "MLSR", &root, None)?;
        let (mut bytes, mut filled) = (Vec::new(), 0);
        while !incoming.is_complete() {
            bytes.resize(filled + PIECE_BYTES, 0);
            filled += incoming.read(link, &mut bytes[filled..])?;
            if filled > CATALOGUE_BYTES_MAX {
                return Err(violation(LIST_TREE, "it has too many bytes").path(root));
            }
        }
        bytes.truncate(filled);
        let said = incoming
            .confirmation()
            .and_then(|reply| reply.lines.first());
        let opening = said.and_then(|line| Opening::parse(line.trim_ascii()));
        let opening = opening
            .ok_or_else(|| violation(LIST_TREE, "the server tells no transaction").path(&root))?;
        if opening.left_out > 0 {
            // The listings of its directories say where.
            let cause = "it has names that can't stand in a listing";
            return Err(lacking(LIST_TREE, &root, cause));
        }
        Tree::read(root, link.home.clone(), &bytes, &opening)
    }

    /// Asks for all of the tree at `path`, if the server has MODE T: then its directories and small
    /// files come in few transfers, until [`Self::forget_tree`]. Returns whether that is so.
    pub(super) fn ask_for_tree(&self, path: &[u8]) -> bool {
        let asked = self.with(|link| self.ask(link, path));
        match asked {
            Ok(tree) => {
                self.open_ahead(tree.bytes());
                *self.tree_slot() = Some(Arc::new(tree));
                true
            }
            Err(fault) => {
                // Whoever reads the tree meets it again.
                tracing::debug!(%fault, "a tree is not read by segments");
                false
            }
        }
    }

    /// Opens connections to a far server while others are already used: each takes many round
    /// trips, and what a tree of so many bytes needs is known.
    fn open_ahead(&self, bytes: u64) {
        if self.is_carried() || !self.is_far_away() {
            return;
        }
        let count = (bytes / AHEAD_BYTES).min(IDLE_MAX as u64);
        for _ in 1..count {
            let store = self.clone();
            let opening = thread::Builder::new().name("xdfs-ftp-ahead".into());
            let begun = opening.spawn(move || {
                let opened = || {
                    let Some(slot) = store.shared.slots.open() else {
                        return Ok(());
                    };
                    if let Some(mut link) = store.connected(slot)? {
                        let mode = store.mode(&link, Direction::Receive);
                        link.prepare(Direction::Receive, mode, 1)?;
                        store.give_back(link);
                    }
                    Ok::<_, Fault>(())
                };
                let opened = opened();
                match opened {
                    Ok(()) => tracing::debug!("a connection is opened ahead"),
                    Err(fault) => tracing::debug!(%fault, "a connection isn't opened ahead"),
                }
            });
            if let Err(error) = begun {
                tracing::debug!(%error, "no thread to open connections ahead");
            }
        }
    }

    /// Directories and files are asked for one by one again.
    pub(super) fn forget_tree(&self) {
        self.segments().clear();
        *self.tree_slot() = None;
    }

    fn tree_slot(&self) -> MutexGuard<'_, Option<Arc<Tree>>> {
        let tree = self.shared.tree.lock();
        tree.unwrap_or_else(PoisonError::into_inner)
    }

    /// The tree that is being read.
    pub(super) fn tree(&self) -> Option<Arc<Tree>> {
        self.tree_slot().clone()
    }

    /// How the next segment is compressed: not at all if the server is near, or if the last one got
    /// hardly smaller.
    pub(super) fn compression(&self, link: &Link) -> Compression {
        let can = link.features.segments.contains(&Compression::Zstd);
        if !can || link.round_trip < LONG_PATH {
            return Compression::None;
        }
        let waits =
            self.shared
                .uncompressed
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                });
        match waits {
            Ok(_) => Compression::None,
            Err(_) => Compression::Zstd,
        }
    }

    /// Takes note of what compression has made of a segment.
    pub(super) fn note_compression(&self, before: usize, after: usize) {
        if after > before / 16 * 15 {
            self.shared
                .uncompressed
                .store(UNCOMPRESSED, Ordering::Relaxed);
        }
    }

    fn left(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        let left = self.shared.left.lock();
        left.unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a hidden file removed over a connection that is there, or else over the next new one.
    pub(super) fn remove_later(&self, path: Vec<u8>) {
        let link = self.idle().pop();
        if let Some(mut link) = link
            && link.is_usable()
            && link.abandon(&path)
        {
            self.give_back(link);
            return;
        }
        let mut left = self.left();
        if left.len() < LEFT_MAX {
            left.push(path);
        }
    }

    /// Keeps a connection on which nothing is under way.
    pub(super) fn give_back(&self, link: Link) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX && !self.shared.is_closed.load(Ordering::Relaxed) {
            idle.push(link);
            drop(idle);
            self.shared.slots.note_change();
        }
    }

    /// Memory for a segment, with any content: fresh memory costs more than filling it.
    pub(super) fn segment_memory(&self) -> Vec<u8> {
        self.segments().pop().unwrap_or_default()
    }

    /// Keeps memory of a segment for the next ones.
    pub(super) fn give_segment_memory(&self, memory: Vec<u8>) {
        let mut segments = self.segments();
        if segments.len() < SEGMENTS_KEPT && memory.capacity() <= SEGMENT_BYTES_KEPT {
            segments.push(memory);
        }
    }

    fn segments(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        let segments = self.shared.segments.lock();
        segments.unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects, so that a server that isn't there is known. The connection is kept for what comes.
    ///
    /// # Errors
    /// The server can't be reached, or refuses the user.
    pub(super) fn connect_first(&self) -> Result<(), Fault> {
        self.open(None).map(|link| self.give_back(link))
    }

    /// Connects anew, in place of connections to a server that has gone away.
    ///
    /// # Errors
    /// As [`Self::connect_first`].
    pub(super) fn connect_again(&self) -> Result<(), Fault> {
        self.idle().clear();
        self.shared.slots.reset();
        self.open(None).map(|link| self.give_back(link))
    }

    /// Does something on a connection, which is kept unless the fault says that it is broken.
    pub(super) fn with<T>(
        &self,
        act: impl FnOnce(&mut Link) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut link = self.take(None)?;
        let result = act(&mut link);
        if result.is_ok() || link.is_usable() {
            self.give_back(link);
        }
        result
    }

    /// The data connections for a file of this size. Over a short path one connection is never
    /// behind, and further ones bring blocks before their turn.
    pub(super) fn parallelism(&self, bytes: Option<u64>) -> u32 {
        match self.shared.is_near.load(Ordering::Relaxed) {
            true => self.parallelism_or(1, bytes),
            false => self.parallelism_or(CHANNELS, bytes),
        }
    }

    /// The same for a path between two servers, of which nothing is known.
    pub(super) fn parallelism_between(&self, bytes: Option<u64>) -> u32 {
        self.parallelism_or(CHANNELS, bytes)
    }

    fn parallelism_or(&self, by_itself: u32, bytes: Option<u64>) -> u32 {
        let wanted = self.shared.settings.channels.unwrap_or(by_itself);
        match bytes {
            Some(bytes) if bytes < LARGE_BYTES => 1,
            _ => wanted.clamp(1, CHANNELS_MAX),
        }
    }

    /// How the server can send to this machine.
    pub(super) fn mode(&self, link: &Link, direction: Direction) -> Mode {
        let is_one_way = self.shared.is_one_way.load(Ordering::Relaxed);
        match link.features.extended && !(is_one_way && direction != Direction::Send) {
            true => Mode::Extended,
            false => Mode::Stream,
        }
    }

    /// The same for a file over so many connections.
    pub(super) fn mode_of(&self, link: &Link, direction: Direction, parallelism: u32) -> Mode {
        let is_avoided = self.shared.avoids_exchange.load(Ordering::Relaxed);
        match link.features.exchange {
            Some(_) if parallelism > 1 && !is_avoided => Mode::Exchange,
            _ => self.mode(link, direction),
        }
    }

    /// Takes note of a transfer in MODE E that did not come about. Returns whether to try again in
    /// stream mode, in which this machine opens the connection.
    pub(super) fn falls_back(&self, mode: Mode, fault: &Fault) -> bool {
        // What is asked for isn't given up.
        if self.shared.settings.stripes.is_some() {
            return false;
        }
        let cannot_connect = matches!(fault.code, Code::ConnectionRefused | Code::Unsupported);
        if mode == Mode::Exchange && cannot_connect {
            tracing::info!(%fault, "this machine can't connect to the server for data");
            self.shared.avoids_exchange.store(true, Ordering::Relaxed);
            return true;
        }
        let falls_back = mode == Mode::Extended && cannot_connect;
        if falls_back && !self.shared.is_one_way.swap(true, Ordering::Relaxed) {
            tracing::info!(
                %fault,
                "the server can't connect to this machine: files come over one connection each"
            );
        }
        falls_back
    }

    /// Whether the server may be asked to begin in the middle of a file.
    pub(super) fn restarts(&self) -> bool {
        !self.shared.has_no_restarts.load(Ordering::Relaxed)
    }

    /// Takes note that the server does not begin in the middle of a file.
    pub(super) fn note_no_restarts(&self, fault: &Fault) {
        if !self.shared.has_no_restarts.swap(true, Ordering::Relaxed) {
            tracing::info!(%fault, "parts of files are read from the beginning on");
        }
    }

    /// Sends a command that the server answers with data, at once or after those before it.
    ///
    /// # Errors
    /// There is no data connection, or the command can't be sent.
    pub(super) fn request(
        &self,
        link: &mut Link,
        verb: &'static str,
        path: &[u8],
        size: Option<u64>,
    ) -> Result<Incoming, Fault> {
        let (direction, operation) = match verb {
            "MLSD" => (Direction::List, "list"),
            _ => (Direction::Receive, "read"),
        };
        let mode = self.mode(link, direction);
        link.prepare(direction, mode, self.parallelism(size.or(Some(0))))?;
        link.command(verb, path)?;
        Ok(Incoming::new(operation, path, mode, 0, size))
    }

    /// The path at the server.
    pub(super) fn resolve(link: &Link, path: &[u8]) -> Vec<u8> {
        link.home.resolve(path)
    }

    /// The attributes of what is at a resolved path, and where it leads if it is a link.
    ///
    /// # Errors
    /// Nothing is there, or the server doesn't tell.
    pub(super) fn look(link: &mut Link, path: &[u8]) -> Result<Listed, Fault> {
        if link.features.mlst {
            let reply = link.exchange("MLST", path)?;
            if !link.lacks_kinds(&reply) {
                let looked = Self::looked(path, &reply);
                return looked.map_err(|fault| missing::explain(link, path, &reply, fault));
            }
        }
        plain::look(link, path)
    }

    /// What a reply to MLST says; a refusal may still have to be explained.
    pub(super) fn looked(path: &[u8], reply: &Reply) -> Result<Listed, Fault> {
        if !matches!(reply.code, 200..300) {
            return Err(refused("look at", path, reply));
        }
        let mut listed = Self::facts(path, row_of(reply))?;
        listed.is_own = false;
        if !path.is_ascii() && listed.name.is_ascii() && listed.name != b"." {
            let cause = "the server takes another path for this one: it repeats it without the \
                bytes that are not ASCII";
            let fault = Fault::new(Code::InvalidArgument, "look at", cause);
            return Err(fault.path(path).hint("give it a name of ASCII characters"));
        }
        Ok(listed)
    }

    pub(super) fn facts(path: &[u8], row: &[u8]) -> Result<Listed, Fault> {
        let facts = parse_facts(row);
        facts.map_err(|error| violation("look at", error.to_string()).path(path))
    }

    /// Whether something is at a resolved path, and which kind it has.
    ///
    /// # Errors
    /// The server doesn't tell.
    pub(super) fn find(link: &mut Link, path: &[u8]) -> Result<Option<Attributes>, Fault> {
        match Self::look(link, path) {
            Ok(listed) => Ok(Some(listed.attributes)),
            Err(fault) if fault.code == Code::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// The path that a sink would publish, and whether anything is there.
    pub(super) fn target(link: &mut Link, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        let mut path = Self::resolve(link, &request.path);
        let mut found = Self::find(link, &path)?;
        let is_directory = |found: &Option<Attributes>| {
            let found = found.as_ref();
            found.is_some_and(|found| found.kind == FileKind::Directory)
        };
        if is_directory(&found) || request.path.ends_with(b"/") {
            if request.name.is_empty() {
                let cause = "it is a directory";
                return Err(Fault::new(Code::IsDirectory, "open the target", cause)
                    .path(path)
                    .hint("name a file, or end the target with '/'"));
            }
            if path != b"/" {
                path.push(b'/');
            }
            path.extend_from_slice(&request.name);
            found = Self::find(link, &path)?;
        }
        if is_directory(&found) {
            let cause = "a directory has the name";
            return Err(Fault::new(Code::IsDirectory, "open the target", cause).path(path));
        }
        if found.is_some() && !request.overwrite {
            return Err(exists("open the target", &path));
        }
        Ok(path)
    }
}

/// The fault of an existing target.
pub(super) fn exists(operation: &str, path: &[u8]) -> Fault {
    Fault::new(Code::AlreadyExists, operation, "the target exists")
        .path(path)
        .hint("use --force to overwrite")
}
