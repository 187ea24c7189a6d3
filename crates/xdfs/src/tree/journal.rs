//! The journal of a tree, as the two directions use it: which one it is, what it lets be left out,
//! and a thread that makes things durable before they are claimed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_proto::{Code, Fault};
use xdfs_store::tree_journal::{
    self, Claim, Earlier, Header, Mark, Record, Root, Totals, TreeJournal,
};

use super::moving::Report;
use super::namespace::{LookedUp, Namespace, Pending};
use super::options::{Durability, TreeOptions};
use super::tracker::{Claims, split};
use super::version::looks_like;
use crate::client::{Client, path_bytes};
use crate::mtime::{is_coarse, is_same_time};
use crate::paths::{FileKind, join};

/// When the first claims are made, and how often further ones. What takes less than the first is
/// made durable once, at its end.
const FIRST_INTERVAL: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(5);
/// How long claims wait for directories that are just being set.
const GRACE: Duration = Duration::from_secs(1);
/// Entries after which claims are made however early it is, so that their memory is bounded.
const FRESH_MAX: u64 = 200_000;
/// Journals that nobody went on with for so long are removed.
const AGE_MAX: Duration = Duration::from_secs(60 * 24 * 60 * 60);
/// Likewise journals of runs that left nothing to do. The same command knows by them what it did if
/// its end wasn't heard: after a lost connection to the machine, or a power cut.
const ENDED_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How names of journals begin and end.
const NAME: (&str, &str) = ("tree-", ".journal");
/// How those end of runs that left nothing to do.
const ENDED: &str = "ended";

/// What it means that there is no journal.
const WITHOUT: &str = "the tree is copied without a journal: if it is broken off, the same command \
                       can't go on with it, and copies into what is there";

/// What it means that a journal can't be written any more.
const FAILED: &str = "the tree is copied without a journal: if it is broken off, what is there by \
                      then is copied again";

/// What it means that a journal can't say how far a run came.
const UNKNOWN: &str = "what was copied is there, but the same command may not know that";

/// The journal of a tree that is moved.
pub(super) struct JournalWriter {
    journal: Arc<Mutex<TreeJournal>>,
    pub(super) earlier: Arc<Earlier>,
    header: Header,
    orders: Option<mpsc::Sender<ClaimOrder>>,
    answers: mpsc::Receiver<Result<(), ClaimFailure>>,
    thread: Option<thread::JoinHandle<()>>,
    is_busy: bool,
    /// It takes claims.
    is_usable: bool,
    /// The run before left nothing to do.
    was_whole: bool,
    /// The target is at the server.
    is_remote: bool,
    due: Instant,
    /// Where the tree goes, and whether the journal knows it with its number.
    root: Option<Root>,
    /// What it says is wanted to outlast a crash of the system.
    is_durable: bool,
}

struct ClaimOrder {
    /// What has to be done before the claims are true.
    sync: Option<Pending>,
    records: Vec<Record>,
    claims: Claims,
}

/// Why claims weren't made.
enum ClaimFailure {
    /// What was moved may not be durable, and never become it.
    Sync(Fault),
    Journal(Fault),
}

/// Opens the journal of a tree. Without it, and with a warning, if that fails and there is none of
/// an earlier run.
///
/// # Errors
/// [`Code::Busy`] if another run has it: both would write to one target. Why the journal of an
/// earlier run can't be used: only that says where the tree goes.
pub(super) fn open(
    client: &Client,
    ends: [&Namespace<'_>; 2],
    options: &TreeOptions,
    report: &mut Report<'_>,
) -> Result<Option<JournalWriter>, Fault> {
    let Some(folder) = options.journal.as_ref().filter(|_| !options.dry_run) else {
        return Ok(None);
    };
    let key = match key(client, ends, options) {
        Ok(key) => key,
        Err(fault) => {
            report.warn(&fault.hint(WITHOUT));
            return Ok(None);
        }
    };
    let path = path(folder, &key);
    match open_at(folder, &path, key, options.begin_anew) {
        Ok(mut keeper) => {
            keeper.is_durable = options.durability != Durability::None;
            keeper.is_remote = ends[1].is_remote();
            Ok(Some(keeper))
        }
        Err(fault) if fault.code == Code::Busy => Err(fault),
        Err(fault) if is_left(&path, options.begin_anew) => {
            let hint = match options.begin_anew {
                true => "remove it, or let it be written",
                false => "let it be read and written, or use --no-resume to begin anew",
            };
            let cause = format!(
                "{}; an earlier run left it, and only it says where the tree goes",
                fault.cause
            );
            Err(Fault { cause, ..fault }.hint(hint))
        }
        Err(fault) => {
            report.warn(&fault.hint(WITHOUT));
            Ok(None)
        }
    }
}

fn open_at(folder: &Path, path: &Path, key: [u8; 32], anew: bool) -> Result<JournalWriter, Fault> {
    make_folder(folder)?;
    let mut nonce = [0; 16];
    let random = getrandom::fill(&mut nonce);
    random.map_err(|e| fault(path, &e.to_string()))?;
    remove_old(folder, path);
    let was_whole = take_ended(path);
    let (mut journal, mut earlier) = TreeJournal::open(path, key, nonce, anew)?;
    journal.begin_run()?;
    earlier.begin_run();
    let mut keeper = JournalWriter::new(journal, earlier)?;
    keeper.was_whole = was_whole && keeper.has_run();
    Ok(keeper)
}

/// Takes the journal of a run that left nothing to do, if there is one and none of a later run.
fn take_ended(path: &Path) -> bool {
    let ended = path.with_extension(ENDED);
    // Unlike a new name a link doesn't replace what another run makes at this moment.
    let is_taken = std::fs::hard_link(&ended, path).is_ok();
    let _ = std::fs::remove_file(ended);
    is_taken
}

/// Whether there is a journal of an earlier run. With `anew` one that can be removed is.
fn is_left(path: &Path, anew: bool) -> bool {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return false;
    };
    // One that could not be begun, or was emptied, says nothing.
    !((anew || meta.len() == 0) && std::fs::remove_file(path).is_ok()) && meta.len() > 0
}

fn fault(path: &Path, cause: &str) -> Fault {
    Fault::new(Code::Io, "keep the journal of the tree", cause).path(path_bytes(path))
}

fn make_folder(folder: &Path) -> Result<(), Fault> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let made = builder.create(folder);
    made.map_err(|e| Fault::from_io("make the folder of journals", path_bytes(folder), &e))
}

fn path(folder: &Path, key: &[u8; 32]) -> PathBuf {
    let hex: String = key[..16].iter().map(|b| format!("{b:02x}")).collect();
    folder.join(format!("{}{hex}{}", NAME.0, NAME.1))
}

/// Removes journals that are too old to be believed.
fn remove_old(folder: &Path, own: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_ended = Path::new(&*name)
            .extension()
            .is_some_and(|end| end == ENDED);
        let is_ours = name.starts_with(NAME.0) && (is_ended || name.contains(NAME.1));
        let age_max = if is_ended { ENDED_AGE_MAX } else { AGE_MAX };
        let age = entry.metadata().and_then(|m| m.modified());
        let is_old = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > age_max));
        // One that is in use was written to, or is that of a tree that takes longer: it is open.
        let path = entry.path();
        if is_ours && is_old && (path == own || is_free(&path)) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_free(path: &Path) -> bool {
    std::fs::File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// What a journal is for: both ends, as they were named, and everything that changes what comes
/// out.
fn key(
    client: &Client,
    ends: [&Namespace<'_>; 2],
    options: &TreeOptions,
) -> Result<[u8; 32], Fault> {
    let direction: &[u8] = if ends[1].is_remote() { b"up" } else { b"dn" };
    let mut roots = Vec::new();
    for end in ends {
        if end.is_remote() {
            roots.push(end.root().to_vec());
            continue;
        }
        let absolute = xdfs_sys::fs::path_from_bytes(end.root()).and_then(std::path::absolute);
        let absolute = absolute.map_err(|e| Fault::from_io("find", end.root(), &e))?;
        // A slash at the end says that only what is in it is meant.
        let slash: &[u8] = match end.root().ends_with(b"/") {
            true => b"/",
            false => b"",
        };
        roots.push([&path_bytes(&absolute), slash].concat());
    }
    let place = client.place();
    let address = place.address.to_string();
    let kept = [
        options.owner,
        options.xattrs,
        options.read_times,
        options.hard_links,
        // What was claimed without being durable is nothing for who wants it so.
        options.durability == Durability::None,
    ];
    let fields: [&[u8]; 7] = [
        direction,
        address.as_bytes(),
        place.user.as_deref().unwrap_or_default().as_bytes(),
        &roots[0],
        &roots[1],
        &kept.map(u8::from),
        options.filter.identity(),
    ];
    let mut hasher = blake3::Hasher::new_derive_key("xdfs tree journal key");
    for field in fields {
        hasher.update(&(field.len() as u64).to_be_bytes());
        hasher.update(field);
    }
    Ok(hasher.finalize().into())
}

impl JournalWriter {
    fn new(journal: TreeJournal, earlier: Earlier) -> Result<Self, Fault> {
        let header = *journal.header();
        let journal = Arc::new(Mutex::new(journal));
        let (orders, queue) = mpsc::channel();
        let (teller, answers) = mpsc::channel();
        let writer = Arc::clone(&journal);
        let thread = thread::Builder::new()
            .name("xdfs-journal".into())
            .spawn(move || {
                for order in queue {
                    if teller.send(carry_out(order, &writer)).is_err() {
                        return;
                    }
                }
            })
            .map_err(|e| Fault::from_io("start the thread of the journal", "", &e))?;
        Ok(Self {
            journal,
            earlier: Arc::new(earlier),
            header,
            orders: Some(orders),
            answers,
            thread: Some(thread),
            is_busy: false,
            is_usable: true,
            was_whole: false,
            is_remote: false,
            due: Instant::now() + FIRST_INTERVAL,
            root: None,
            is_durable: true,
        })
    }

    /// Whether claims can be made.
    pub(super) fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// Whether what stands at the target may be the work of an earlier run.
    pub(super) fn has_run(&self) -> bool {
        self.earlier.has_run
    }

    /// Where the tree went before, if that and the source, which has this number, still are what
    /// they were. Otherwise the journal is cleared.
    pub(super) fn earlier_root(
        &mut self,
        source_inode: u64,
        report: &mut Report<'_>,
        look: impl FnOnce(&[u8]) -> LookedUp,
    ) -> Result<Option<Root>, Fault> {
        let Some(root) = self.earlier.root.clone() else {
            return Ok(None);
        };
        let is_source = is_same(root.source_inode, source_inode);
        let cause = match is_source {
            true => "its target isn't the one of the earlier run",
            false => "its source isn't the one of the earlier run",
        };
        match look(&root.path)?.filter(|_| is_source) {
            Some(found)
                if found.kind == FileKind::Directory && is_same(root.inode, found.inode) =>
            {
                if self.was_whole {
                    let cause = "the same command has copied all of it before";
                    let fault = Fault::new(Code::AlreadyExists, "copy the tree", cause);
                    let hint = "only what is missing is copied; --no-resume begins anew";
                    report.warn(&self.of_target(fault, &root.path).hint(hint));
                }
                let root = Root {
                    source_inode,
                    ..root
                };
                return Ok(Some(root));
            }
            // What became of a tree since it was copied is nobody's business.
            _ if self.was_whole => {}
            None if self.earlier.is_empty() => {}
            _ => {
                let fault = Fault::new(Code::Stale, "go on with the tree", cause);
                let fault = self.of_target(fault, &root.path);
                report.warn(&fault.hint("it begins anew"));
            }
        }
        self.earlier = Arc::default();
        let mut journal = self.journal();
        // It claims nothing in any case. A failure is told when it is used next.
        let _ = journal.clear().and_then(|()| journal.begin_run());
        drop(journal);
        Ok(None)
    }

    /// What there is to say of the target.
    fn of_target(&self, fault: Fault, path: &[u8]) -> Fault {
        let fault = fault.path(path);
        if self.is_remote {
            fault.remote()
        } else {
            fault
        }
    }

    /// Says where the tree goes. That is on the disk before anything is made there: the run after
    /// a crash of the system knows by it what may be the work of this one.
    pub(super) fn begin(&mut self, root: Root, report: &mut Report<'_>) {
        let is_new = self.earlier.root.as_ref() != Some(&root);
        let record = is_new.then(|| Record::Root(root.clone()));
        let durable = self.is_durable;
        let mut journal = self.journal();
        let begun = journal.append(record.as_slice(), durable);
        let is_lost = journal.is_lost();
        drop(journal);
        if let Err(fault) = begun {
            self.is_usable = false;
            report.warn(&fault.hint(if is_lost { WITHOUT } else { FAILED }));
        }
        self.root = Some(root);
    }

    /// The path of the target, if its number isn't known yet.
    pub(super) fn unknown_root(&self) -> Option<&[u8]> {
        let root = self.root.as_ref()?;
        (root.inode == 0).then_some(&root.path)
    }

    /// The number of the target.
    pub(super) fn learn_root(&mut self, inode: u64) {
        if let Some(root) = &mut self.root {
            root.inode = inode;
        }
    }

    /// What it lets be left out.
    pub(super) fn resume_index(&self) -> ResumeIndex {
        ResumeIndex {
            journal: Arc::clone(&self.journal),
            earlier: Arc::clone(&self.earlier),
            header: self.header,
        }
    }

    /// Whether claims should be made now.
    pub(super) fn is_due(&self, fresh: u64) -> bool {
        self.is_usable
            && !self.is_busy
            && fresh > 0
            && (Instant::now() >= self.due || fresh >= FRESH_MAX)
    }

    /// Whether claims should be made whatever else would be good to wait for.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.due + GRACE
    }

    /// Has claims made when `sync` is done, beside what goes on. At most one such order is under
    /// way.
    pub(super) fn order(&mut self, sync: Option<Pending>, claims: Claims) {
        self.due = Instant::now() + INTERVAL;
        let root = self.root.iter().filter(|root| root.inode != 0);
        let root = root.filter(|root| self.earlier.root.as_ref() != Some(root));
        let order = ClaimOrder {
            sync,
            records: root.cloned().map(Record::Root).collect(),
            claims,
        };
        if let Some(orders) = &self.orders {
            self.is_busy = orders.send(order).is_ok();
        }
    }

    /// Looks at what came of the order. `false` if the journal can't be used any more.
    ///
    /// # Errors
    /// What was moved could not be made durable.
    pub(super) fn poll(&mut self, report: &mut Report<'_>) -> Result<bool, Fault> {
        match self.answers.try_recv() {
            Ok(answer) => self.answered(answer, report),
            Err(_) => Ok(true),
        }
    }

    fn answered(
        &mut self,
        answer: Result<(), ClaimFailure>,
        report: &mut Report<'_>,
    ) -> Result<bool, Fault> {
        self.is_busy = false;
        match answer {
            Ok(()) => Ok(true),
            Err(ClaimFailure::Sync(fault)) => Err(fault),
            Err(ClaimFailure::Journal(fault)) => {
                self.is_usable = false;
                report.warn(&fault.hint(FAILED));
                Ok(false)
            }
        }
    }

    /// The end: everything that was moved is durable. The journal goes if nothing was made, and
    /// says for a while that all was if nothing is left to do.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub(super) fn finish(
        mut self,
        is_whole: bool,
        claims: Claims,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        if self.is_busy
            && let Ok(answer) = self.answers.recv()
        {
            self.answered(answer, report)?;
        }
        let mut journal = lock(&self.journal);
        let claims = claims.records(&self.header);
        // An entry that failed may stand at the target even if nothing is claimed.
        let has_root = self.root.as_ref().is_some_and(|root| root.inode != 0);
        let is_nothing = !has_root && claims.is_empty() && journal.is_empty();
        let ended = if is_nothing {
            journal.remove()
        } else if is_whole && self.is_usable {
            let root = self.root.clone().map(Record::Root);
            let all = Record::Directory(Vec::new(), tree_journal::Finished::default());
            let records: Vec<_> = root.into_iter().chain([all, Record::Run(true)]).collect();
            journal.end(&records, ENDED)
        } else if !self.is_usable {
            // That was told. What it still says lets the same command copy all of it again.
            Ok(())
        } else {
            let root = self.root.clone().map(Record::Root);
            let mut records: Vec<_> = root.into_iter().chain(claims).collect();
            if report.has_doubts() {
                // As if it had been broken off, and another came to its end.
                records.push(Record::Run(false));
            }
            records.push(Record::Run(!report.is_stopped()));
            journal.append(&records, true)
        };
        drop(journal);
        if let Err(fault) = ended {
            report.warn(&fault.hint(UNKNOWN));
        }
        Ok(())
    }

    fn journal(&self) -> MutexGuard<'_, TreeJournal> {
        lock(&self.journal)
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // It ends when what it waits for does: with the session at the latest.
            let _ = thread.join();
        }
    }
}

fn lock(journal: &Mutex<TreeJournal>) -> MutexGuard<'_, TreeJournal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

fn carry_out(order: ClaimOrder, journal: &Mutex<TreeJournal>) -> Result<(), ClaimFailure> {
    if let Some(sync) = order.sync {
        sync.wait().map_err(ClaimFailure::Sync)?;
    }
    let header = *lock(journal).header();
    // The digests are made while others may use the journal.
    let claims = order.claims.records(&header);
    let records: Vec<_> = order.records.into_iter().chain(claims).collect();
    lock(journal)
        .append(&records, true)
        .map_err(ClaimFailure::Journal)
}

/// Whether a directory is the one that a journal knows. Numbers of file systems aren't compared:
/// they change when a machine starts anew.
fn is_same(known: u64, found: u64) -> bool {
    known == 0 || found == 0 || known == found
}

/// What an earlier run finished: for who finds the entries of a tree.
#[derive(Clone)]
pub(super) struct ResumeIndex {
    journal: Arc<Mutex<TreeJournal>>,
    earlier: Arc<Earlier>,
    header: Header,
}

/// What is finished of one directory, and still is there.
#[derive(Debug, Default)]
pub(super) struct FinishedEntries {
    path: Vec<u8>,
    claims: Vec<Claim>,
    /// The times of what was seen of the claims at the target.
    seen: Vec<Option<i64>>,
    /// Names of directories, with what is said of them, and whether they were seen so.
    directories: HashMap<Vec<u8>, (tree_journal::Finished, bool)>,
    /// What stands at the target, if a run that came to its end made any of it.
    there: Option<HashMap<Vec<u8>, Mark>>,
}

impl FinishedEntries {
    /// What a directory has that is finished with all below it.
    pub(super) fn directory(&self, path: &[u8]) -> Option<Totals> {
        self.directories
            .get(split(path).1)
            .map(|(said, _)| said.totals)
    }

    /// Whether any entries are claimed.
    pub(super) fn has_entries(&self) -> bool {
        !self.claims.is_empty() || self.there.as_ref().is_some_and(|there| !there.is_empty())
    }
}

impl ResumeIndex {
    /// What the journal says of a directory; `None` if nothing.
    pub(super) fn of(&self, path: &[u8]) -> Option<FinishedEntries> {
        let earlier = &self.earlier;
        let has_past = earlier.was_finished(path) || !earlier.past_claims(path).is_empty();
        if !has_past && !earlier.knows_of(path) {
            return None;
        }
        let claims = earlier.claims(path).to_vec();
        let directories = self.earlier.finished_in(path);
        let directories = directories.map(|(name, said)| (name.to_vec(), (said, false)));
        Some(FinishedEntries {
            path: path.to_vec(),
            seen: vec![None; claims.len()],
            claims,
            directories: directories.collect(),
            there: has_past.then(HashMap::new),
        })
    }

    /// A directory stands at the target. It is finished no more if something was made or removed in
    /// it since. Returns whether it is finished.
    pub(super) fn see_directory(
        &self,
        finished: &mut FinishedEntries,
        name: &[u8],
        mtime_ns: impl FnOnce() -> Option<i64>,
    ) -> bool {
        let Some((said, is_there)) = finished.directories.get_mut(name) else {
            return false;
        };
        *is_there = said.mtime_ns.is_none_or(|given| {
            let found = mtime_ns();
            found.is_some_and(|found| is_same_time(found, given))
        });
        *is_there
    }

    /// Something else stands there. Returns whether it is the work of an earlier run.
    pub(super) fn see(&self, finished: &mut FinishedEntries, name: &[u8], mark: Mark) -> bool {
        let path = &finished.path;
        let claim = self.header.claim(path, name, mark);
        let mut is_moved = finished.there.is_some()
            && (self.earlier.was_finished(path)
                || is_claimed(self.earlier.past_claims(path), claim));
        let claims = &finished.claims;
        if let Ok(at) = claims.binary_search_by_key(&claim.entry, |c| c.entry) {
            // Of a time in whole seconds is seen later whether it is the one that was claimed.
            let is_so = claims[at].version == claim.version || is_coarse(mark.mtime_ns);
            finished.seen[at] = is_so.then_some(mark.mtime_ns);
            is_moved |= is_so;
        }
        if let Some(there) = &mut finished.there {
            there.insert(name.to_vec(), mark);
        }
        is_moved
    }

    /// All that stands at the target was seen: what wasn't is claimed no more, before anything is
    /// made in its place.
    pub(super) fn seen_all(&self, finished: &mut FinishedEntries) {
        let mut records = Vec::new();
        finished.directories.retain(|name, (_, is_there)| {
            if !*is_there {
                records.push(Record::Forget(join(&finished.path, name)));
            }
            *is_there
        });
        if finished.seen.contains(&None) {
            let mut seen = finished.seen.iter();
            let is_seen = |seen: Option<&Option<i64>>| seen.is_some_and(Option::is_some);
            finished.claims.retain(|_| is_seen(seen.next()));
            finished.seen.retain(Option::is_some);
            let path = finished.path.clone();
            records.push(Record::ForgetEntries(path.clone()));
            records.push(Record::Entries(path, finished.claims.clone()));
        }
        let mut journal = lock(&self.journal);
        if !records.is_empty() {
            // It claims nothing any more if that fails, which is told when it is used next.
            let _ = journal.append(&records, true);
        }
    }

    /// Whether what stands at the target is the work of an earlier run, which may be replaced: a
    /// version that was claimed, or what looks as it is wanted after a run that was broken off, or
    /// in a directory that was finished.
    pub(super) fn is_ours(&self, path: &[u8], there: Mark, wanted: Mark) -> bool {
        let (parent, name) = split(path);
        let earlier = &self.earlier;
        let claim = self.header.claim(parent, name, there);
        (was_broken_off(earlier) || earlier.was_finished(parent)) && looks_like(there, wanted)
            || is_claimed(earlier.claims(parent), claim)
            || is_claimed(earlier.past_claims(parent), claim)
    }

    /// Whether a run that came to its end made this version, and it still stands at the target.
    fn stands(&self, finished: &FinishedEntries, name: &[u8], mark: Mark) -> bool {
        let there = finished.there.as_ref().and_then(|there| there.get(name));
        let path = &finished.path;
        there.is_some_and(|there| looks_like(*there, mark))
            && (self.earlier.was_finished(path)
                || is_claimed(
                    self.earlier.past_claims(path),
                    self.header.claim(path, name, mark),
                ))
    }

    /// Whether this version of an entry is finished.
    pub(super) fn entry(&self, finished: &FinishedEntries, path: &[u8], mark: Mark) -> bool {
        let (parent, name) = split(path);
        let claim = self.header.claim(parent, name, mark);
        let claims = &finished.claims;
        let at = claims.binary_search_by_key(&claim.entry, |c| c.entry);
        at.is_ok_and(|at| {
            claims[at].version == claim.version
                && finished.seen[at].is_some_and(|there| is_same_time(there, mark.mtime_ns))
        }) || self.stands(finished, name, mark)
    }
}

/// Whether this version is among claims, which are sorted.
fn is_claimed(claims: &[Claim], claim: Claim) -> bool {
    let at = claims.binary_search_by_key(&claim.entry, |c| c.entry);
    at.is_ok_and(|at| claims[at].version == claim.version)
}

/// Whether there may be entries that were moved and not claimed.
fn was_broken_off(earlier: &Earlier) -> bool {
    earlier.was_broken_off || earlier.has_run && !earlier.is_complete
}
