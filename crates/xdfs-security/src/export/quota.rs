//! The content of a directory and the transfers in progress, counted against a quota.
//!
//! A [`Ledger`] counts one directory for all sessions. It scans the disk once, on first use; from
//! then on each published file updates the count, and a [`Hold`] reserves the share of a transfer
//! in progress, so that concurrent transfers can't exceed the quota together.
//!
//! - Replacing a file costs the difference. Until publication both exist, so the directory can
//!   temporarily take up at most twice the quota.
//! - An unfinished file left for a later attempt costs its announced length, or else its size;
//!   resuming it releases that first. Otherwise many interrupted transfers would evade the quota.
//!   (If its name is so long that the hidden name is a hash, it can't be recognised after a
//!   restart: it is counted, and not released before the next one.)
//! - Changes made in the directory by other means are noticed after a restart of the server.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::Metadata;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs_proto::{Code, Fault};

use super::turns::Turns;

/// Maximum number of entries scanned, beyond which counting is given up.
const ENTRIES_MAX: u64 = 10_000_000;
/// Transfers of unknown length reserve this many bytes at a time, rather than for each block.
const STEP_BYTES: u64 = 16 << 20;
/// Maximum number of unfinished files tracked by name. Further ones are counted, and not released.
const UNFINISHED_MAX: usize = 65_536;
/// Suffixes of the hidden names of the local store. A test compares them with the actual ones.
const PARTIAL_SUFFIX: &[u8] = b".xdfs-part";
const JOURNAL_SUFFIXES: [&[u8]; 2] = [b".xdfs-journal", b".xdfs-journal-new"];

/// The quota of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Quota {
    /// Total size of all files in bytes.
    pub(super) bytes: Option<u64>,
    /// Number of files and directories.
    pub(super) files: Option<u64>,
}

/// The content of a directory.
#[derive(Debug, Default)]
struct Usage {
    bytes: u64,
    files: u64,
    /// Unfinished files without a writer, by target path, with their share of `bytes`.
    unfinished: HashMap<Vec<u8>, u64>,
}

/// The usage count of a directory.
#[derive(Debug)]
pub(super) struct Ledger {
    entries_max: u64,
    state: Mutex<CountState>,
    /// Serialises changes of the count.
    pub(super) turns: Turns,
}

#[derive(Debug)]
enum CountState {
    Counted(Usage),
    /// The directory is too large to count, and will be on another attempt.
    TooMuch,
    Uncounted,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(ENTRIES_MAX)
    }
}

impl Ledger {
    fn new(entries_max: u64) -> Self {
        Self {
            entries_max,
            state: Mutex::new(CountState::Uncounted),
            turns: Turns::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CountState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accesses the count. The first caller scans the directory, and concurrent callers wait for
    /// that.
    fn with<R>(&self, root: &Path, act: impl FnOnce(&mut Usage) -> R) -> Result<R, Fault> {
        let mut state = self.lock();
        if matches!(*state, CountState::Uncounted) {
            match count(root, self.entries_max) {
                Ok(Some(usage)) => *state = CountState::Counted(usage),
                Ok(None) => *state = CountState::TooMuch,
                Err(error) => {
                    let root = root.as_os_str().as_encoded_bytes().escape_ascii();
                    tracing::warn!(%root, %error, "the content of an export can't be counted");
                    return Err(Fault::from_io(COUNT, "", &error));
                }
            }
        }
        match &mut *state {
            CountState::Counted(usage) => Ok(act(usage)),
            _ => {
                let most = self.entries_max;
                let cause =
                    format!("there are more than {most} files, so that no quota can be kept");
                Err(Fault::new(Code::LimitExceeded, COUNT, cause))
            }
        }
    }

    /// Accesses the count if the directory was scanned.
    fn with_counted(&self, act: impl FnOnce(&mut Usage)) {
        if let CountState::Counted(usage) = &mut *self.lock() {
            act(usage);
        }
    }

    /// Reserves the share of a transfer to `target` that will have `length` bytes, if known, and
    /// replace a file of `replaced` bytes, if there is one.
    pub(super) fn hold(
        self: &Arc<Self>,
        root: &Path,
        quota: Quota,
        target: &[u8],
        length: Option<u64>,
        replaced: Option<u64>,
    ) -> Result<Hold, Fault> {
        let announced = length.unwrap_or(0);
        let held = Share {
            bytes: announced.saturating_sub(replaced.unwrap_or(0)),
            files: u64::from(replaced.is_none()),
        };
        let earlier = self.with(root, |usage| {
            let earlier = usage.take_unfinished(target);
            if let Err(fault) = usage.charge(quota, held) {
                if let Some(bytes) = earlier {
                    usage.keep_unfinished(target, bytes);
                }
                return Err(fault);
            }
            Ok(earlier)
        })??;
        Ok(Hold {
            ledger: Arc::clone(self),
            quota,
            target: target.to_vec(),
            announced,
            end: 0,
            replaced: replaced.unwrap_or(0),
            held,
            earlier,
            is_open: true,
        })
    }

    /// Bytes and files counted.
    pub(super) fn usage(&self, root: &Path) -> Result<(u64, u64), Fault> {
        self.with(root, |usage| (usage.bytes, usage.files))
    }

    /// Reserves for something to be created, if the quota allows.
    pub(super) fn take(
        &self,
        root: &Path,
        quota: Quota,
        bytes: u64,
        files: u64,
    ) -> Result<(), Fault> {
        self.with(root, |usage| usage.charge(quota, Share { bytes, files }))?
    }

    /// Releases what was removed, or not created after all.
    pub(super) fn give(&self, bytes: u64, files: u64) {
        self.with_counted(|usage| usage.subtract(Share { bytes, files }));
    }

    /// Replaces a reservation by the bytes and files actually created, which replaced `replaced`
    /// bytes.
    pub(super) fn settle(&self, taken: (u64, u64), made: (u64, u64), replaced: u64) {
        let share = |(bytes, files)| Share { bytes, files };
        self.with_counted(|usage| {
            usage.subtract(share(taken));
            usage.add(share(made));
            usage.subtract(share((replaced, 0)));
        });
    }

    /// Releases what was removed at a path, including an unfinished file tracked there.
    pub(super) fn removed(&self, path: &[u8], is_file: bool, length: u64) {
        let cut = path
            .iter()
            .rposition(|&b| b == b'/')
            .map_or(0, |cut| cut + 1);
        self.with_counted(|usage| match UnfinishedFile::of(&path[cut..], is_file) {
            Some(UnfinishedFile::Journal) => {}
            Some(UnfinishedFile::Partial(stem)) => {
                usage.take_unfinished(&[&path[..cut], stem].concat());
            }
            None => usage.subtract(Share {
                bytes: if is_file { length } else { 0 },
                files: 1,
            }),
        });
    }

    /// Releases the unfinished file of a target, which was discarded.
    pub(super) fn discarded(&self, target: &[u8]) {
        self.with_counted(|usage| {
            usage.take_unfinished(target);
        });
    }

    /// Records the rename of a directory, with the unfinished files in it.
    pub(super) fn moved(&self, from: &[u8], to: &[u8]) {
        let beneath = |path: &[u8]| {
            let rest = path.strip_prefix(from)?;
            rest.starts_with(b"/").then(|| [to, rest].concat())
        };
        self.with_counted(|usage| {
            let unfinished = std::mem::take(&mut usage.unfinished).into_iter();
            usage.unfinished = unfinished
                .map(|(path, bytes)| (beneath(&path).unwrap_or(path), bytes))
                .collect();
        });
    }

    /// Bytes and files counted.
    #[cfg(test)]
    pub(super) fn used(&self) -> (u64, u64) {
        match &*self.lock() {
            CountState::Counted(usage) => (usage.bytes, usage.files),
            other => panic!("{other:?}"),
        }
    }
}

const COUNT: &str = "count the content of the export";

/// A part of a directory's usage.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    bytes: u64,
    files: u64,
}

impl Usage {
    fn add(&mut self, share: Share) {
        self.bytes = self.bytes.saturating_add(share.bytes);
        self.files = self.files.saturating_add(share.files);
    }

    fn subtract(&mut self, share: Share) {
        self.bytes = self.bytes.saturating_sub(share.bytes);
        self.files = self.files.saturating_sub(share.files);
    }

    /// Adds a share if the quota allows. An empty share is always allowed, even above the quota:
    /// for a file that gets shorter.
    fn charge(&mut self, quota: Quota, share: Share) -> Result<(), Fault> {
        let fits = |used: u64, more: u64, limit: Option<u64>| {
            more == 0 || limit.is_none_or(|limit| used.saturating_add(more) <= limit)
        };
        if !fits(self.bytes, share.bytes, quota.bytes) {
            return Err(exceeded(self.bytes, share.bytes, quota.bytes, "bytes"));
        }
        if !fits(self.files, share.files, quota.files) {
            return Err(exceeded(self.files, share.files, quota.files, "files"));
        }
        self.add(share);
        Ok(())
    }

    fn take_unfinished(&mut self, target: &[u8]) -> Option<u64> {
        let bytes = self.unfinished.remove(target)?;
        self.subtract(Share { bytes, files: 1 });
        Some(bytes)
    }

    /// Counts an unfinished file regardless of the quota, since it exists.
    fn keep_unfinished(&mut self, target: &[u8], bytes: u64) {
        self.add(Share { bytes, files: 1 });
        let has_place = self.unfinished.len() < UNFINISHED_MAX;
        match self.unfinished.entry(target.to_vec()) {
            Entry::Occupied(mut entry) => *entry.get_mut() += bytes,
            Entry::Vacant(entry) if has_place => {
                entry.insert(bytes);
            }
            Entry::Vacant(_) => {}
        }
    }
}

fn exceeded(used: u64, more: u64, limit: Option<u64>, what: &str) -> Fault {
    let limit = limit.unwrap_or(u64::MAX);
    let cause = format!("the quota is {limit} {what}, {used} are used, and {more} more are needed");
    Fault::new(Code::QuotaExceeded, "write", cause)
        .hint("remove something, or ask the server's administrator for more")
}

/// The share of a transfer in progress. If it is dropped without a call about its end, the share is
/// released, as if the sink had never been opened.
#[derive(Debug)]
pub(super) struct Hold {
    ledger: Arc<Ledger>,
    quota: Quota,
    target: Vec<u8>,
    /// The announced length, for which storage may be reserved; 0 if unknown.
    announced: u64,
    /// End of the last byte written.
    end: u64,
    /// Bytes of the file to be replaced.
    replaced: u64,
    /// The share charged for this transfer.
    held: Share,
    /// The share charged for the unfinished file of an earlier attempt.
    earlier: Option<u64>,
    is_open: bool,
}

impl Hold {
    /// Ensures that the file may grow to `end` bytes.
    pub(super) fn reach(&mut self, end: u64) -> Result<(), Fault> {
        let wanted = end.saturating_sub(self.replaced);
        if wanted <= self.held.bytes {
            self.end = self.end.max(end);
            return Ok(());
        }
        let held = self.held.bytes;
        let mut result = Ok(());
        self.ledger.with_counted(|usage| {
            let mut ask = |bytes: u64| {
                let share = Share {
                    bytes: bytes - held,
                    files: 0,
                };
                usage
                    .charge(self.quota, share)
                    .map(|()| self.held.bytes = bytes)
            };
            // Close to the quota, reserve exactly.
            let step = wanted.checked_next_multiple_of(STEP_BYTES);
            result = ask(step.unwrap_or(wanted)).or_else(|_| ask(wanted));
        });
        if result.is_ok() {
            // Refused bytes aren't written, and would count if the rest is kept.
            self.end = self.end.max(end);
        }
        result
    }

    /// The file was published with `length` bytes, replacing one of `replaced` bytes.
    pub(super) fn published(mut self, length: u64, replaced: Option<u64>) {
        self.settle(|usage, target| {
            usage.take_unfinished(target);
            usage.add(Share {
                bytes: length,
                files: 1,
            });
            if let Some(bytes) = replaced {
                usage.subtract(Share { bytes, files: 1 });
            }
        });
    }

    /// The unfinished file is kept for a later attempt.
    pub(super) fn kept(mut self) {
        let bytes = self.announced.max(self.end);
        self.settle(|usage, target| {
            usage.take_unfinished(target);
            usage.keep_unfinished(target, bytes);
        });
    }

    /// The unfinished file was removed.
    pub(super) fn removed(mut self) {
        self.settle(|usage, target| {
            usage.take_unfinished(target);
        });
    }

    fn settle(&mut self, act: impl FnOnce(&mut Usage, &[u8])) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let Self {
            ledger,
            held,
            target,
            ..
        } = self;
        ledger.with_counted(|usage| {
            usage.subtract(*held);
            act(usage, target);
        });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let earlier = self.earlier;
        self.settle(|usage, target| {
            if let Some(bytes) = earlier {
                usage.keep_unfinished(target, bytes);
            }
        });
    }
}

/// Counts the content of a directory tree; `None` if it has more than `entries_max` entries. Links
/// aren't followed, and a file with two hard links counts twice. A directory counts as a file
/// without bytes.
fn count(root: &Path, entries_max: u64) -> io::Result<Option<Usage>> {
    let mut usage = Usage::default();
    let mut entries = 0;
    // Directories yet to be read, with their paths relative to the root.
    let mut todo = vec![(root.to_owned(), Vec::new())];
    while let Some((path, name)) = todo.pop() {
        let is_root = name.is_empty();
        let Some(listing) = unless_gone(std::fs::read_dir(&path), !is_root)? else {
            continue;
        };
        for entry in listing {
            let entry = entry?;
            entries += 1;
            if entries > entries_max {
                return Ok(None);
            }
            let Some(meta) = unless_gone(entry.metadata(), true)? else {
                continue;
            };
            let file_name = entry.file_name();
            let last = file_name.as_encoded_bytes();
            let inner = if is_root {
                last.to_vec()
            } else {
                [&name, &b"/"[..], last].concat()
            };
            if meta.is_dir() {
                usage.add(Share { bytes: 0, files: 1 });
                todo.push((entry.path(), inner));
            } else {
                count_file(&mut usage, &meta, last, &inner);
            }
        }
    }
    Ok(Some(usage))
}

fn count_file(usage: &mut Usage, meta: &Metadata, last: &[u8], inner: &[u8]) {
    match UnfinishedFile::of(last, meta.is_file()) {
        Some(UnfinishedFile::Journal) => return,
        Some(UnfinishedFile::Partial(stem)) => {
            let target = [&inner[..inner.len() - last.len()], stem].concat();
            return usage.keep_unfinished(&target, meta.len().max(allocated(meta)));
        }
        None => {}
    }
    usage.add(Share {
        bytes: if meta.is_file() { meta.len() } else { 0 },
        files: 1,
    });
}

/// A file of an unfinished transfer, by its name.
enum UnfinishedFile<'a> {
    Journal,
    /// The partial file of a target with this name.
    Partial(&'a [u8]),
}

impl<'a> UnfinishedFile<'a> {
    fn of(name: &'a [u8], is_file: bool) -> Option<Self> {
        let hidden = name.strip_prefix(b".").filter(|_| is_file)?;
        if JOURNAL_SUFFIXES.iter().any(|end| hidden.ends_with(end)) {
            return Some(Self::Journal);
        }
        hidden.strip_suffix(PARTIAL_SUFFIX).map(Self::Partial)
    }
}

/// Entries that vanish during the scan are not counted.
fn unless_gone<T>(result: io::Result<T>, may_be_gone: bool) -> io::Result<Option<T>> {
    match result {
        Err(error) if may_be_gone && error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Allocated bytes, including storage reserved past the end of a file.
#[cfg(unix)]
fn allocated(meta: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(meta).saturating_mul(512)
}

#[cfg(not(unix))]
fn allocated(_: &Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_entries_are_not_counted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        for name in ["a", "d/b", "d/c"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let hold = |most| {
            let ledger = Arc::new(Ledger::new(most));
            let first = ledger.hold(dir.path(), Quota::default(), b"x", None, None);
            let again = ledger.hold(dir.path(), Quota::default(), b"x", None, None);
            assert_eq!(first.is_ok(), again.is_ok());
            first.map(|_| ())
        };
        assert_eq!(hold(3).unwrap_err().code, Code::LimitExceeded);
        hold(4).unwrap();
    }

    #[test]
    fn a_directory_that_is_gone_can_be_counted_later() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("later");
        let ledger = Arc::new(Ledger::default());
        let hold = || ledger.hold(&root, Quota::default(), b"x", Some(5), None);
        assert_eq!(hold().unwrap_err().code, Code::NotFound);
        std::fs::create_dir(&root).unwrap();
        let held = hold().unwrap();
        assert_eq!(ledger.used(), (5, 1));
        drop(held);
        assert_eq!(ledger.used(), (0, 0));
    }

    /// Both were about to resume an unfinished file, and one found it locked.
    #[test]
    fn who_comes_second_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Arc::new(Ledger::default());
        let hold = || {
            let quota = Quota::default();
            ledger
                .hold(dir.path(), quota, b"x", Some(10), None)
                .unwrap()
        };
        let ends: [(fn(Hold), _); 3] = [
            (Hold::kept, (10, 1)),
            (Hold::removed, (0, 0)),
            (|hold| hold.published(10, None), (10, 1)),
        ];
        for (end, expected) in ends {
            hold().kept();
            let second = hold();
            let first = hold();
            drop(second);
            assert_eq!(ledger.used(), (20, 2));
            end(first);
            assert_eq!(ledger.used(), expected);
            ledger.with_counted(|usage| *usage = Usage::default());
        }
    }

    /// The steps of a stream's reservations are limited by the quota.
    #[test]
    fn the_last_bytes_are_exact() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Arc::new(Ledger::default());
        let quota = Quota {
            bytes: Some(STEP_BYTES + 10),
            files: None,
        };
        let mut hold = ledger.hold(dir.path(), quota, b"x", None, None).unwrap();
        hold.reach(1).unwrap();
        assert_eq!(ledger.used(), (STEP_BYTES, 1));
        hold.reach(STEP_BYTES + 10).unwrap();
        hold.reach(STEP_BYTES + 11).unwrap_err();
        hold.published(STEP_BYTES, None);
        assert_eq!(ledger.used(), (STEP_BYTES, 1));
    }
}
