//! The journal of a tree, as the two directions use it: which one it is, what it lets be left out,
//! and what is made durable before it is claimed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xdfs_proto::{Code, Fault};
use xdfs_store::tree_journal::{
    Claim, Earlier, Finished, Header, JournalPlace, Mark, Record, Root, Totals, TreeJournal,
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
    /// What it lets be left out.
    pub(super) index: ResumeIndex,
    /// Makes what was moved durable and claims it, beside what goes on.
    claiming: Option<Claiming>,
    /// It takes claims.
    pub(super) is_usable: bool,
    /// The target is at the server.
    is_remote: bool,
    due: Instant,
    /// Where the tree goes, and whether the journal knows it with its number.
    root: Option<Root>,
    /// What it says is wanted to outlast a crash of the system.
    is_durable: bool,
}

/// Fails if what was moved may not be durable, and never become it; gives what came of the claims.
type Claiming = JoinHandle<Result<Result<(), Fault>, Fault>>;

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
    let place = match key(client, ends, options) {
        Ok(key) => JournalPlace::new(folder, key),
        Err(fault) => {
            report.warn(&fault.hint(WITHOUT));
            return Ok(None);
        }
    };
    let mut nonce = [0; 16];
    let random = getrandom::fill(&mut nonce);
    let random = random.map_err(|error| {
        let cause = error.to_string();
        Fault::new(Code::Io, "keep the journal of the tree", cause).path(path_bytes(folder))
    });
    match random.and_then(|()| place.open(nonce, options.begin_anew)) {
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
        Err(fault) if place.is_left(options.begin_anew) => {
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
    /// Where the tree went before, if that and the source, which has this number, still are what
    /// they were. Otherwise the journal is cleared.
    pub(super) fn earlier_root(
        &mut self,
        source_inode: u64,
        report: &mut Report<'_>,
        look: impl FnOnce(&[u8]) -> LookedUp,
    ) -> Result<Option<Root>, Fault> {
        let Some(root) = self.index.earlier.root.clone() else {
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
                if self.index.earlier.was_whole {
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
            _ if self.index.earlier.was_whole => {}
            None if self.index.earlier.is_empty() => {}
            _ => {
                let fault = Fault::new(Code::Stale, "go on with the tree", cause);
                let fault = self.of_target(fault, &root.path);
                report.warn(&fault.hint("it begins anew"));
            }
        }
        self.index.earlier = Arc::default();
        let mut journal = lock(&self.index.journal);
        // It claims nothing in any case. A failure is told when it is used next.
        let _ = journal.clear().and_then(|()| journal.begin_run());
        drop(journal);
        Ok(None)
    }

    /// What there is to say of the target.
    fn of_target(&self, fault: Fault, path: &[u8]) -> Fault {
        match self.is_remote {
            true => fault.path(path).remote(),
            false => fault.path(path),
        }
    }

    /// Says where the tree goes. That is on the disk before anything is made there: the run after
    /// a crash of the system knows by it what may be the work of this one.
    pub(super) fn begin(&mut self, root: Root, report: &mut Report<'_>) {
        let is_new = self.index.earlier.root.as_ref() != Some(&root);
        let record = is_new.then(|| Record::Root(root.clone()));
        let mut journal = lock(&self.index.journal);
        let begun = journal.append(record.as_slice(), self.is_durable);
        let hint = if journal.is_lost() { WITHOUT } else { FAILED };
        drop(journal);
        if let Err(fault) = begun {
            self.give_up(fault.hint(hint), report);
        }
        self.root = Some(root);
    }

    /// Asks for the number of the target, if it isn't known yet.
    pub(super) fn ask_for_root(&self, target: &Namespace<'_>) -> Option<Pending> {
        let root = self.root.as_ref().filter(|root| root.inode == 0)?;
        Some(target.start_find(&root.path))
    }

    /// The number of the target. Who may not look there goes on without it.
    pub(super) fn learn_root(&mut self, asked: Option<Pending>) -> Result<(), Fault> {
        match (asked.map(Pending::found), &mut self.root) {
            (Some(Ok(Some(found))), Some(root)) => root.inode = found.inode,
            (Some(Err(fault)), _) if fault.ends_session => return Err(fault),
            _ => {}
        }
        Ok(())
    }

    /// Whether claims should be made now.
    pub(super) fn is_due(&self, fresh: u64) -> bool {
        self.is_usable
            && self.claiming.is_none()
            && fresh > 0
            && (Instant::now() >= self.due || fresh >= FRESH_MAX)
    }

    /// Whether claims should be made whatever else would be good to wait for.
    pub(super) fn is_late(&self, fresh: u64) -> bool {
        Instant::now() >= self.due + GRACE || fresh >= FRESH_MAX
    }

    /// Has claims made when `sync` is done, beside what goes on. At most one such order is under
    /// way.
    pub(super) fn claim(&mut self, sync: Option<Pending>, claims: Claims, report: &mut Report<'_>) {
        self.due = Instant::now() + INTERVAL;
        let root = self.root.clone().filter(|root| root.inode != 0);
        let root = root.filter(|root| self.index.earlier.root.as_ref() != Some(root));
        let ResumeIndex {
            journal, header, ..
        } = self.index.clone();
        let claim = move || {
            if let Some(sync) = sync {
                sync.wait()?;
            }
            // The digests are made while others may use the journal.
            let root = root.map(Record::Root).into_iter();
            let records: Vec<_> = root.chain(claims.records(&header)).collect();
            Ok(lock(&journal).append(&records, true))
        };
        let thread = thread::Builder::new().name("xdfs-journal".into());
        match thread.spawn(claim) {
            Ok(claiming) => self.claiming = Some(claiming),
            Err(error) => {
                let fault = Fault::from_io("start the thread of the journal", "", &error);
                self.give_up(fault.hint(FAILED), report);
            }
        }
    }

    /// Looks at what came of the order.
    ///
    /// # Errors
    /// What was moved could not be made durable.
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
        if let Err(fault) = claimed {
            self.give_up(fault.hint(FAILED), report);
        }
        Ok(())
    }

    fn give_up(&mut self, fault: Fault, report: &mut Report<'_>) {
        self.is_usable = false;
        report.warn(&fault);
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
        let last = self.claiming.take();
        self.end_claiming(last, report)?;
        let mut journal = lock(&self.index.journal);
        let claims = claims.records(&self.index.header);
        // An entry that failed may stand at the target even if nothing is claimed.
        let has_root = self.root.as_ref().is_some_and(|root| root.inode != 0);
        let root = self.root.clone().map(Record::Root).into_iter();
        let ended = if !has_root && claims.is_empty() && journal.is_empty() {
            journal.remove()
        } else if !self.is_usable {
            // That was told. What it still says lets the same command copy all of it again.
            Ok(())
        } else if is_whole {
            let all = Record::Directory(Vec::new(), Finished::default());
            let records: Vec<_> = root.chain([all, Record::Run(true)]).collect();
            journal.end(&records)
        } else {
            // As if it had been broken off, and another came to its end.
            let doubts = report.has_doubts().then_some(Record::Run(false));
            let records = root.chain(claims).chain(doubts);
            let records: Vec<_> = records.chain([Record::Run(!report.is_stopped())]).collect();
            journal.append(&records, true)
        };
        drop(journal);
        if let Err(fault) = ended {
            report.warn(&fault.hint(UNKNOWN));
        }
        Ok(())
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        if let Some(claiming) = self.claiming.take() {
            // It ends when what it waits for does: with the session at the latest.
            let _ = claiming.join();
        }
    }
}

fn lock(journal: &Mutex<TreeJournal>) -> MutexGuard<'_, TreeJournal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
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

impl ResumeIndex {
    /// Whether what stands at the target may be the work of an earlier run.
    pub(super) fn has_run(&self) -> bool {
        self.earlier.has_run
    }

    /// What the journal says of a directory; `None` if nothing.
    pub(super) fn of(&self, path: &[u8]) -> Option<FinishedEntries<'_>> {
        let earlier = &self.earlier;
        let has_past = earlier.was_finished(path) || !earlier.past_claims(path).is_empty();
        if !has_past && !earlier.knows_of(path) {
            return None;
        }
        let directories = earlier.finished_in(path);
        let directories = directories.map(|(name, said)| (name.to_vec(), (said, false)));
        Some(FinishedEntries {
            index: self,
            path: path.to_vec(),
            has_past,
            seen: HashMap::new(),
            directories: directories.collect(),
        })
    }

    /// Whether what stands at the target is the work of an earlier run, which may be replaced: a
    /// version that was claimed, or what looks as it is wanted after a run that was broken off, or
    /// in a directory that was finished.
    pub(super) fn is_ours(&self, path: &[u8], there: Mark, wanted: Mark) -> bool {
        let (parent, name) = split(path);
        let earlier = &self.earlier;
        let claim = self.header.claim(parent, name, there);
        // There may be entries that were moved and not claimed.
        let was_broken_off = earlier.was_broken_off || earlier.has_run && !earlier.is_complete;
        (was_broken_off || earlier.was_finished(parent)) && looks_like(there, wanted)
            || is_claimed(earlier.claims(parent), claim)
            || is_claimed(earlier.past_claims(parent), claim)
    }
}

/// What is finished of one directory, and still is there.
pub(super) struct FinishedEntries<'i> {
    index: &'i ResumeIndex,
    path: Vec<u8>,
    /// A run that came to its end made any of it.
    has_past: bool,
    /// Entries that stand at the target as some run may have made them: the times there, and
    /// whether they are claimed.
    seen: HashMap<u64, (i64, bool)>,
    /// Names of directories, with what is said of them, and whether they were seen so.
    directories: HashMap<Vec<u8>, (Finished, bool)>,
}

impl FinishedEntries<'_> {
    /// A directory stands at the target. It is finished no more if something was made or removed in
    /// it since. Returns whether it is finished.
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

    /// Something else stands there. Returns whether it is the work of an earlier run.
    pub(super) fn see(&mut self, name: &[u8], mark: Mark) -> bool {
        let claim = self.index.header.claim(&self.path, name, mark);
        // Of a time in whole seconds is seen later whether it is the one that was claimed.
        let is_claimed = version_of(self.index.earlier.claims(&self.path), claim)
            .is_some_and(|version| version == claim.version || is_coarse(mark.mtime_ns));
        if is_claimed || self.has_past {
            self.seen.insert(claim.entry, (mark.mtime_ns, is_claimed));
        }
        is_claimed || self.was_made(claim)
    }

    /// All that stands at the target was seen: what wasn't is claimed no more, before anything is
    /// made in its place.
    pub(super) fn seen_all(&mut self) {
        let (path, mut records) = (&self.path, Vec::new());
        self.directories.retain(|name, (_, is_there)| {
            if !*is_there {
                records.push(Record::Forget(join(path, name)));
            }
            *is_there
        });
        let is_seen = |claim: &&Claim| {
            let seen = self.seen.get(&claim.entry);
            seen.is_some_and(|(_, is_claimed)| *is_claimed)
        };
        let claims = self.index.earlier.claims(path);
        let seen: Vec<_> = claims.iter().filter(is_seen).copied().collect();
        if seen.len() < claims.len() {
            records.push(Record::ForgetEntries(path.clone()));
            records.push(Record::Entries(path.clone(), seen));
        }
        if !records.is_empty() {
            // It claims nothing any more if that fails, which is told when it is used next.
            let _ = lock(&self.index.journal).append(&records, true);
        }
    }

    /// What a directory in it has that is finished with all below it.
    pub(super) fn directory(&self, name: &[u8]) -> Option<Totals> {
        self.directories.get(name).map(|(said, _)| said.totals)
    }

    /// Whether any entries may be finished.
    pub(super) fn has_entries(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Whether this version of an entry is finished, and still stands at the target.
    pub(super) fn entry(&self, name: &[u8], mark: Mark) -> bool {
        let claim = self.index.header.claim(&self.path, name, mark);
        let claims = self.index.earlier.claims(&self.path);
        let seen = self.seen.get(&claim.entry);
        seen.is_some_and(|(there, is_so)| {
            is_same_time(*there, mark.mtime_ns)
                && (*is_so && is_claimed(claims, claim) || self.was_made(claim))
        })
    }

    /// Whether a run that came to its end made this version.
    fn was_made(&self, claim: Claim) -> bool {
        let earlier = &self.index.earlier;
        earlier.was_finished(&self.path) || is_claimed(earlier.past_claims(&self.path), claim)
    }
}

/// Whether this version is among claims, which are sorted.
fn is_claimed(claims: &[Claim], claim: Claim) -> bool {
    version_of(claims, claim) == Some(claim.version)
}

/// The version of an entry that is among claims.
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
