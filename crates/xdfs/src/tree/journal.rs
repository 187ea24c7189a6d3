//! The journal of a tree copy, in either direction: its key, the finished entries that a later run
//! skips, and the synchronisation before each claim.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, Fault};
use xdfs_store::tree_journal::{
    Claim, Earlier, Finished, Header, JournalPlace, Mark, Record, Root, Totals, TreeJournal,
};

use super::hashed::AsIs;
use super::moving::Report;
use super::namespace::{LookedUp, Namespace, Pending};
use super::options::{Durability, TreeOptions};
use super::tracker::{Claims, split};
use super::version::looks_like;
use crate::local_path::path_bytes;
use crate::mtime::{is_coarse, is_same_time};
use crate::paths::{FileKind, join};
use crate::retry::is_session_lost;

/// Time until the first claims, and the interval of further ones. A shorter run is made durable
/// once, at its end.
const FIRST_INTERVAL: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(5);
/// How long claims wait for directory metadata in flight.
const GRACE: Duration = Duration::from_secs(1);
/// Entries after which claims are made early, which bounds their memory.
const FRESH_MAX: u64 = 200_000;

/// Hint of a warning: there is no journal.
const HINT_NO_JOURNAL: &str = "the tree is copied without a journal: after an interruption, the \
                               same command can't resume it, and copies into the existing target";

/// Hint of a warning: the journal can't be written any more.
const HINT_JOURNAL_FAILED: &str = "the tree is copied without a journal: after an interruption, \
                                   everything copied by then is copied again";

/// Hint of a warning: the journal lacks the end of the run.
const HINT_END_UNKNOWN: &str =
    "all copied entries are there, but the same command may not recognise them";

/// The journal of a running tree copy.
pub(super) struct JournalWriter {
    /// Entries that earlier runs finished.
    pub(super) index: ResumeIndex,
    /// The claim in progress, on its own thread.
    claiming: Option<Claiming>,
    /// The journal can still be written.
    pub(super) is_usable: bool,
    /// The target is on the server.
    is_remote: bool,
    due: Instant,
    /// The root of the target; its inode is 0 until known.
    root: Option<Root>,
    /// Whether the record of the root has to survive a crash of the system.
    is_durable: bool,
}

/// The outer fault: moved entries could not be made durable. The inner one: the journal could not
/// be written.
type Claiming = JoinHandle<Result<Claimed, Fault>>;

/// The result of a claim; `None` if the session broke before everything was durable.
type Claimed = Option<Result<(), Fault>>;

/// Opens the journal of a tree. If that fails and no earlier run left one, warns and returns
/// `None`.
///
/// # Errors
/// [`Code::Busy`] if another run uses it: both would write to the same target. Any other fault if
/// the journal of an earlier run can't be used: only that journal says where the tree goes.
pub(super) fn open(
    ends: [&Namespace<'_>; 2],
    options: &TreeOptions,
    report: &mut Report<'_>,
) -> Result<Option<JournalWriter>, Fault> {
    let Some(folder) = options
        .journal
        .as_ref()
        .filter(|_| !options.parameters.dry_run)
    else {
        return Ok(None);
    };
    let place = match key(ends, options) {
        Ok(key) => JournalPlace::new(folder, key),
        Err(fault) => {
            report.warn(&fault.hint(HINT_NO_JOURNAL));
            return Ok(None);
        }
    };
    let mut nonce = [0; 16];
    let random = getrandom::fill(&mut nonce);
    let random = random.map_err(|error| {
        let cause = error.to_string();
        Fault::new(Code::Io, "keep the journal of the tree", cause).path(path_bytes(folder))
    });
    let starts_over = options.parameters.resume == Resume::Never;
    match random.and_then(|()| place.open(nonce, starts_over)) {
        Ok((journal, earlier)) => Ok(Some(JournalWriter {
            index: ResumeIndex {
                header: *journal.header(),
                journal: Arc::new(Mutex::new(journal)),
                earlier: Arc::new(earlier),
            },
            claiming: None,
            is_usable: true,
            is_remote: ends[1].is_remote(),
            due: Instant::now() + FIRST_INTERVAL,
            root: None,
            is_durable: options.durability != Durability::None,
        })),
        Err(fault) if fault.code == Code::Busy => Err(fault),
        Err(fault) if place.is_left(starts_over) => {
            let hint = match starts_over {
                true => "remove it, or make it writable",
                false => "make it readable and writable, or use --no-resume to start over",
            };
            let cause = format!(
                "{}; an earlier run left it, and only it says where the tree goes",
                fault.cause
            );
            Err(Fault { cause, ..fault }.hint(hint))
        }
        Err(fault) => {
            report.warn(&fault.hint(HINT_NO_JOURNAL));
            Ok(None)
        }
    }
}

/// Key of a journal: a digest of source and target as the user named them, and of all options that
/// affect the result.
fn key(ends: [&Namespace<'_>; 2], options: &TreeOptions) -> Result<[u8; 32], Fault> {
    let direction: &[u8] = match ends.map(Namespace::is_remote) {
        [true, true] => b"between",
        [_, true] => b"up",
        [_, false] => b"dn",
    };
    let mut roots = Vec::new();
    for end in ends {
        if end.is_remote() {
            roots.push(end.root().to_vec());
            continue;
        }
        let absolute = xdfs_sys::fs::path_from_bytes(end.root()).and_then(std::path::absolute);
        let absolute = absolute.map_err(|e| Fault::from_io("find", end.root(), &e))?;
        // A trailing slash means the contents of the directory.
        let slash: &[u8] = match end.root().ends_with(b"/") {
            true => b"/",
            false => b"",
        };
        roots.push([&path_bytes(&absolute), slash].concat());
    }
    let servers = ends.into_iter().filter_map(Namespace::session);
    let servers: Vec<_> = servers
        .map(|server| {
            let place = server.client.place();
            let user = place.user.clone().unwrap_or_default();
            (place.address.to_string(), user)
        })
        .collect();
    let kept = [
        options.owner,
        options.xattrs,
        options.read_times,
        options.hard_links,
        // Claims of entries that may not be durable are of no use to a run that wants durability.
        options.durability == Durability::None,
    ];
    let mut kept = kept.map(u8::from).to_vec();
    // The journals of earlier versions, which didn't follow links, keep their keys.
    if options.follow_links {
        kept.push(1);
    }
    let servers = servers.iter();
    let servers = servers.flat_map(|(address, user)| [address.as_bytes(), user.as_bytes()]);
    let fields = [direction].into_iter().chain(servers).chain([
        &roots[0][..],
        &roots[1],
        &kept,
        options.filter.identity(),
    ]);
    let mut hasher = blake3::Hasher::new_derive_key("xdfs tree journal key");
    for field in fields {
        hasher.update(&(field.len() as u64).to_be_bytes());
        hasher.update(field);
    }
    Ok(hasher.finalize().into())
}

impl JournalWriter {
    /// The target of the earlier run, if it and the source (by `source_inode`) are still the same
    /// directories. Otherwise the journal is cleared. Says so if it isn't the `usual` target.
    pub(super) fn earlier_root(
        &mut self,
        source_inode: u64,
        usual: &[u8],
        report: &mut Report<'_>,
        look: impl FnOnce(&[u8]) -> LookedUp,
    ) -> Result<Option<Root>, Fault> {
        let Some(root) = self.index.earlier.root.clone() else {
            return Ok(None);
        };
        let is_source = is_same(root.source_inode, source_inode);
        let cause = match is_source {
            true => "not resumed, since its target isn't that of the earlier run",
            false => "not resumed, since its source isn't that of the earlier run",
        };
        match look(&root.path)?.filter(|_| is_source) {
            Some(found)
                if found.kind == FileKind::Directory && is_same(root.inode, found.inode) =>
            {
                if self.index.earlier.was_whole && root.path != usual {
                    let cause = "the same command has copied all of it before";
                    let fault = Fault::new(Code::AlreadyExists, "", cause);
                    let hint = "only missing entries are copied; --no-resume starts over";
                    report.warn(&self.of_target(fault, &root.path).hint(hint));
                }
                let root = Root {
                    source_inode,
                    ..root
                };
                return Ok(Some(root));
            }
            // Changes after a complete copy need no warning.
            _ if self.index.earlier.was_whole => {}
            None if self.index.earlier.is_empty() => {}
            _ => {
                let fault = Fault::new(Code::Stale, "", cause);
                let fault = self.of_target(fault, &root.path);
                report.warn(&fault.hint("everything is compared again"));
            }
        }
        self.index.earlier = Arc::default();
        let mut journal = lock(&self.index.journal);
        // It claims nothing in either case. The next use reports a failure.
        let _ = journal.clear().and_then(|()| journal.begin_run());
        drop(journal);
        Ok(None)
    }

    /// A fault about the target.
    fn of_target(&self, fault: Fault, path: &[u8]) -> Fault {
        match self.is_remote {
            true => fault.path(path).remote(),
            false => fault.path(path),
        }
    }

    /// Records the root of the target. The record is durable before anything is created there, so
    /// that after a crash of the system the next run knows which entries may come from this one.
    pub(super) fn begin(&mut self, root: Root, report: &mut Report<'_>) {
        let is_new = self.index.earlier.root.as_ref() != Some(&root);
        let record = is_new.then(|| Record::Root(root.clone()));
        let mut journal = lock(&self.index.journal);
        let begun = journal.append(record.as_slice(), self.is_durable);
        let hint = match journal.is_lost() {
            true => HINT_NO_JOURNAL,
            false => HINT_JOURNAL_FAILED,
        };
        drop(journal);
        if let Err(fault) = begun {
            self.give_up(fault.hint(hint), report);
        }
        self.root = Some(root);
    }

    /// Looks up the inode of the target, if it isn't known yet.
    pub(super) fn ask_for_root<'a>(&self, target: &Namespace<'a>) -> Option<Pending<'a>> {
        let root = self.root.as_ref().filter(|root| root.inode == 0)?;
        Some(target.start_find(&root.path))
    }

    /// Sets the inode of the target. A user who may not look it up continues without it.
    pub(super) fn learn_root(&mut self, asked: Option<Pending<'_>>) -> Result<(), Fault> {
        match (asked.map(Pending::found), &mut self.root) {
            (Some(Ok(Some(found))), Some(root)) => root.inode = found.inode,
            (Some(Err(fault)), _) if fault.ends_session => return Err(fault),
            _ => {}
        }
        Ok(())
    }

    /// Whether claims are due.
    pub(super) fn is_due(&self, fresh: u64) -> bool {
        self.is_usable
            && self.claiming.is_none()
            && fresh > 0
            && (Instant::now() >= self.due || fresh >= FRESH_MAX)
    }

    /// Whether claims should be made without waiting any longer for directory metadata.
    pub(super) fn is_late(&self, fresh: u64) -> bool {
        Instant::now() >= self.due + GRACE || fresh >= FRESH_MAX
    }

    /// Starts to append claims in the background, after `sync`. At most one claim is in progress.
    pub(super) fn claim(
        &mut self,
        sync: Option<Pending<'static>>,
        claims: Claims,
        report: &mut Report<'_>,
    ) {
        self.due = Instant::now() + INTERVAL;
        let root = self.root.clone().filter(|root| root.inode != 0);
        let root = root.filter(|root| self.index.earlier.root.as_ref() != Some(root));
        let ResumeIndex {
            journal, header, ..
        } = self.index.clone();
        let claim = move || {
            match sync.map(Pending::wait) {
                Some(Err(fault)) if is_session_lost(&fault) => return Ok(None),
                Some(synced) => synced.map(drop)?,
                None => {}
            }
            // The digests are computed before the journal is locked.
            let root = root.map(Record::Root).into_iter();
            let records: Vec<_> = root.chain(claims.records(&header)).collect();
            Ok(Some(lock(&journal).append(&records, true)))
        };
        let thread = thread::Builder::new().name("xdfs-journal".into());
        match thread.spawn(claim) {
            Ok(claiming) => self.claiming = Some(claiming),
            Err(error) => {
                let fault = Fault::from_io("start the thread of the journal", "", &error);
                self.give_up(fault.hint(HINT_JOURNAL_FAILED), report);
            }
        }
    }

    /// Processes the end of a claim.
    ///
    /// # Errors
    /// Moved entries could not be made durable.
    pub(super) fn poll(&mut self, report: &mut Report<'_>) -> Result<(), Fault> {
        let ended = self.claiming.take_if(|claiming| claiming.is_finished());
        self.end_claiming(ended, report)
    }

    fn end_claiming(
        &mut self,
        claiming: Option<Claiming>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let claimed = match claiming.map(JoinHandle::join) {
            Some(Ok(claimed)) => claimed?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => return Ok(()),
        };
        report.end_sync(claimed.is_some());
        if let Some(Err(fault)) = claimed {
            self.give_up(fault.hint(HINT_JOURNAL_FAILED), report);
        }
        Ok(())
    }

    fn give_up(&mut self, fault: Fault, report: &mut Report<'_>) {
        self.is_usable = false;
        report.warn(&fault);
    }

    /// Ends the journal after everything has been made durable. It is removed if nothing was
    /// created. If the tree is complete, a record of that remains for a while.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub(super) fn finish(
        mut self,
        is_whole: bool,
        claims: Claims,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let last = self.claiming.take();
        self.end_claiming(last, report)?;
        let mut journal = lock(&self.index.journal);
        let claims = claims.records(&self.index.header);
        // A failed entry may exist at the target even if nothing is claimed.
        let has_root = self.root.as_ref().is_some_and(|root| root.inode != 0);
        let root = self.root.clone().map(Record::Root).into_iter();
        let ended = if !has_root && claims.is_empty() && journal.is_empty() {
            journal.remove()
        } else if !self.is_usable {
            // Reported already. With its remaining records the same command copies everything
            // again.
            Ok(())
        } else if is_whole {
            let all = Record::Directory(Vec::new(), Finished::default());
            let records: Vec<_> = root.chain([all, Record::Run(true)]).collect();
            journal.end(&records)
        } else {
            // Recorded as an interrupted run followed by one that ended.
            let doubts = report.has_doubts().then_some(Record::Run(false));
            let records = root.chain(claims).chain(doubts);
            let records: Vec<_> = records.chain([Record::Run(!report.is_stopped())]).collect();
            journal.append(&records, true)
        };
        drop(journal);
        if let Err(fault) = ended {
            report.warn(&fault.hint(HINT_END_UNKNOWN));
        }
        Ok(())
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        if let Some(claiming) = self.claiming.take() {
            // It ends with the synchronisation that it waits for, at the latest with the session.
            let _ = claiming.join();
        }
    }
}

fn lock(journal: &Mutex<TreeJournal>) -> MutexGuard<'_, TreeJournal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a directory is the one in the journal. Device numbers aren't compared, since they change
/// when a machine restarts.
fn is_same(known: u64, found: u64) -> bool {
    known == 0 || found == 0 || known == found
}

/// Entries that earlier runs finished, for the scanner.
#[derive(Clone)]
pub(super) struct ResumeIndex {
    journal: Arc<Mutex<TreeJournal>>,
    earlier: Arc<Earlier>,
    header: Header,
}

impl ResumeIndex {
    /// Whether an earlier run may have created entries at the target.
    pub(super) fn has_run(&self) -> bool {
        self.earlier.has_run
    }

    /// Whether entries may exist at the target that an earlier run moved without claiming them, and
    /// which may not be durable.
    pub(super) fn was_broken_off(&self) -> bool {
        let earlier = &self.earlier;
        earlier.was_broken_off || earlier.has_run && !earlier.is_complete
    }

    /// The finished entries of a directory; `None` if the journal has none.
    pub(super) fn of(&self, path: &[u8]) -> Option<FinishedEntries<'_>> {
        let earlier = &self.earlier;
        let (claims, past_claims) = (earlier.claims(path), earlier.past_claims(path));
        let was_finished = earlier.was_finished(path);
        if !was_finished && past_claims.is_empty() && !earlier.knows_of(path) {
            return None;
        }
        let directories = earlier.finished_in(path);
        let directories = directories.map(|(name, said)| (name.to_vec(), (said, false)));
        Some(FinishedEntries {
            index: self,
            path: path.to_vec(),
            claims,
            past_claims,
            was_finished,
            random: RandomState::new(),
            seen: HashMap::default(),
            directories: directories.collect(),
        })
    }

    /// Whether the entry at the target comes from an earlier run, and may thus be replaced: a
    /// claimed version, or one that looks like the wanted version after an interrupted run or in a
    /// finished directory.
    pub(super) fn is_ours(&self, path: &[u8], there: Mark, wanted: Mark) -> bool {
        let (parent, name) = split(path);
        let earlier = &self.earlier;
        let claim = self.header.claim(parent, name, there);
        (self.was_broken_off() || earlier.was_finished(parent)) && looks_like(there, wanted)
            || is_claimed(earlier.claims(parent), claim)
            || is_claimed(earlier.past_claims(parent), claim)
    }
}

/// The finished entries of one directory that still exist.
pub(super) struct FinishedEntries<'i> {
    index: &'i ResumeIndex,
    path: Vec<u8>,
    /// What is claimed about entries, and what was by runs that ended.
    claims: &'i [Claim],
    past_claims: &'i [Claim],
    /// A run that ended had finished the directory.
    was_finished: bool,
    random: RandomState,
    /// Entries at the target that may come from an earlier run, by the hashes of their names, and
    /// the entries that claims of them name.
    seen: HashMap<u64, (Mark, Option<u64>), AsIs>,
    /// Finished directories by name, and whether they were seen unchanged.
    directories: HashMap<Vec<u8>, (Finished, bool)>,
}

impl FinishedEntries<'_> {
    /// Records a directory at the target. Returns whether it is finished: its time must show that
    /// nothing was created or removed in it since.
    pub(super) fn see_directory(
        &mut self,
        name: &[u8],
        mtime_ns: impl FnOnce() -> Option<i64>,
    ) -> bool {
        let Some((said, is_there)) = self.directories.get_mut(name) else {
            return false;
        };
        *is_there = said.mtime_ns.is_none_or(|given| {
            let found = mtime_ns();
            found.is_some_and(|found| is_same_time(found, given))
        });
        *is_there
    }

    /// Records another entry at the target. Returns whether it comes from an earlier run.
    pub(super) fn see(&mut self, name: &[u8], mark: Mark) -> bool {
        let claimed = self.claim_among(self.claims, name, mark);
        // A time in whole seconds may be a truncated one; `entry` compares it with the source.
        let claimed = claimed.filter(|(_, is_same)| *is_same || is_coarse(mark.mtime_ns));
        let has_past = self.was_finished || !self.past_claims.is_empty();
        if claimed.is_some() || has_past {
            let entry = claimed.map(|(entry, _)| entry);
            self.seen.insert(self.random.hash_one(name), (mark, entry));
        }
        claimed.is_some() || self.was_made(name, mark)
    }

    /// Ends the listing of the target: removes the claims of entries that weren't seen, before
    /// anything is created in their place.
    pub(super) fn seen_all(&mut self) {
        let (path, mut records) = (&self.path, Vec::new());
        self.directories.retain(|name, (_, is_there)| {
            if !*is_there {
                records.push(Record::Forget(join(path, name)));
            }
            *is_there
        });
        let claims = self.claims;
        let entries: HashSet<_> = self.seen.values().filter_map(|(_, entry)| *entry).collect();
        let seen = claims.iter().filter(|claim| entries.contains(&claim.entry));
        let seen: Vec<_> = seen.copied().collect();
        if seen.len() < claims.len() {
            records.push(Record::ForgetEntries(path.clone()));
            records.push(Record::Entries(path.clone(), seen));
        }
        if !records.is_empty() {
            // If that fails, the journal claims nothing any more, and its next use reports the
            // failure.
            let _ = lock(&self.index.journal).append(&records, true);
        }
    }

    /// The counts of a finished subdirectory.
    pub(super) fn directory(&self, name: &[u8]) -> Option<Totals> {
        self.directories.get(name).map(|(said, _)| said.totals)
    }

    /// Whether any entries other than directories may be finished.
    pub(super) fn has_entries(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Whether this version of an entry is finished and still at the target.
    pub(super) fn entry(&self, name: &[u8], mark: Mark) -> bool {
        let Some((there, claimed)) = self.seen.get(&self.random.hash_one(name)) else {
            return false;
        };
        let is_claimed = || {
            let claimed = self.claim_among(self.claims, name, mark);
            claimed.is_some_and(|(_, is_same)| is_same)
        };
        looks_like(*there, mark) && (claimed.is_some() && is_claimed() || self.was_made(name, mark))
    }

    /// Whether a run that ended created this version.
    fn was_made(&self, name: &[u8], mark: Mark) -> bool {
        let past = || self.claim_among(self.past_claims, name, mark);
        self.was_finished || past().is_some_and(|(_, is_same)| is_same)
    }

    /// The entry of a claim about this name, kind and size, if there is one, and whether it is of
    /// this version.
    fn claim_among(&self, claims: &[Claim], name: &[u8], mark: Mark) -> Option<(u64, bool)> {
        // Most directories have no claims, and hashes take time.
        if claims.is_empty() {
            return None;
        }
        let claim = self.index.header.claim(&self.path, name, mark);
        let version = version_of(claims, claim)?;
        Some((claim.entry, version == claim.version))
    }
}

/// Whether this version is claimed. Claims are sorted.
fn is_claimed(claims: &[Claim], claim: Claim) -> bool {
    version_of(claims, claim) == Some(claim.version)
}

/// The claimed version of an entry.
fn version_of(claims: &[Claim], claim: Claim) -> Option<u64> {
    let at = claims.binary_search_by_key(&claim.entry, |c| c.entry);
    at.ok().map(|at| claims[at].version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_many_entries_wait_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let place = JournalPlace::new(folder.path(), [1; 32]);
        let (journal, earlier) = place.open([2; 16], false).unwrap();
        let writer = JournalWriter {
            index: ResumeIndex {
                header: *journal.header(),
                journal: Arc::new(Mutex::new(journal)),
                earlier: Arc::new(earlier),
            },
            claiming: None,
            is_usable: true,
            is_remote: true,
            due: Instant::now() + Duration::from_secs(3600),
            root: None,
            is_durable: true,
        };
        let asked = [1, FRESH_MAX - 1, FRESH_MAX];
        let answers = asked.map(|fresh| (writer.is_due(fresh), writer.is_late(fresh)));
        assert_eq!(answers, [(false, false), (false, false), (true, true)]);
    }
}
