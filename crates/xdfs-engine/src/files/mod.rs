//! The open files of a server: handles per session, locks per owner, and the execution of file
//! calls.
//!
//! A handle belongs to its session and ends with it. Locks belong to an owner and survive broken
//! sessions. An owner has at most one open file on the whole server: opening another one closes the
//! previous one, and later calls on that fail. So a session that replaces a broken one can resend
//! its writes, and none of the old session's writes follows them.
//!
//! Nothing here blocks on other owners. Such a call returns [`CallStep::Later`] and is retried, so
//! it occupies no thread: see [`crate::call_workers`].

mod locks;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError, Weak};
use std::time::Duration;

use xdfs_proto::file::{
    Extent, FileAnswer, FileCall, FileFlags, FileIdentity, FileOwner, LockRange, WAIT_MS_MAX,
};
use xdfs_proto::path::{Answer, Attributes};
use xdfs_proto::{Code, Fault, Retry};
use xdfs_store::{File, FileRequest, Store};

use crate::environment::Environment;

use locks::{Locks, OwnerKey, Refusal};

/// Maximum number of open files per session.
const OPEN_MAX: usize = 1024;
/// Assumed descriptor limit if the system reports none.
const DESCRIPTORS: u64 = 4096;
/// Maximum wait for a peer of a pipe, for bytes or room in it, or for running calls of the owner's
/// earlier session.
const WAIT: Duration = Duration::from_millis(WAIT_MS_MAX as u64);

/// State of open files shared by the sessions of a server.
pub struct Files {
    environment: Arc<dyn Environment>,
    locks: Locks,
    /// The open file of each owner.
    owners: Mutex<HashMap<OwnerKey, Weak<OpenFile>>>,
    /// Number of open files.
    open: Arc<AtomicUsize>,
    open_max: usize,
    /// Identifies this boot of the system.
    run: u64,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl Files {
    /// Without open files and locks. Files may use half of the process's descriptors.
    ///
    /// # Errors
    /// No random numbers are available.
    pub fn new(environment: Arc<dyn Environment>) -> Result<Self, Fault> {
        let random = || {
            let mut bytes = [0; 8];
            let drawn = environment.fill_random(&mut bytes);
            drawn.map(|()| u64::from_le_bytes(bytes)).map_err(|error| {
                Fault::new(Code::Internal, "get a random number", error.to_string())
            })
        };
        let run = match xdfs_sys::limit::boot_number() {
            Some(number) => number,
            // Without a boot number a restart of the process counts as a new boot, since
            // unsynchronised writes may have been lost.
            None => random()?,
        };
        let descriptors = xdfs_sys::limit::raise_descriptor_limit().unwrap_or(DESCRIPTORS);
        Ok(Self {
            locks: Locks::new(random()?, Arc::clone(&environment)),
            environment,
            owners: Mutex::default(),
            open: Arc::default(),
            open_max: usize::try_from(descriptors / 2).unwrap_or(usize::MAX),
            run,
        })
    }

    /// Closes an owner's previous file; `false` if calls on it are still running.
    fn close_earlier(&self, key: &OwnerKey) -> bool {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = owners.get(key).and_then(Weak::upgrade) else {
            owners.remove(key);
            return true;
        };
        drop(owners);
        file.is_closed.store(true, Ordering::SeqCst);
        file.try_close()
    }
}

/// Counts an open file for as long as it lives.
#[derive(Debug)]
struct OpenFileCount(Arc<AtomicUsize>);

impl Drop for OpenFileCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct OpenFile {
    /// `None` once closed. Each call holds the read lock.
    file: RwLock<Option<Box<dyn File>>>,
    /// New calls are refused.
    is_closed: AtomicBool,
    key: OwnerKey,
    identity: FileIdentity,
    flags: FileFlags,
    path: Vec<u8>,
    _counted: OpenFileCount,
}

impl OpenFile {
    /// Closes the file unless calls are running on it.
    fn try_close(&self) -> bool {
        let mut file = match self.file.try_write() {
            Ok(file) => file,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        file.take();
        true
    }

    /// Waits for running calls, then closes the file.
    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.file
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

/// Result of one attempt at a call.
#[derive(Debug)]
pub(crate) enum CallStep {
    /// Completed or failed.
    Done(Result<Answer, Fault>),
    /// It must wait for another client.
    Later,
}

/// The open files of a session.
#[derive(Debug)]
pub(crate) struct SessionFiles {
    shared: Arc<Files>,
    user: Arc<str>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The last assigned handle.
    latest: u32,
    open: BTreeMap<u32, Arc<OpenFile>>,
    /// Opens in progress.
    opening: usize,
    is_over: bool,
}

impl SessionFiles {
    pub(crate) fn new(shared: Arc<Files>, user: &str) -> Self {
        Self {
            shared,
            user: user.into(),
            table: Mutex::default(),
        }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes all files. Those with a running call are closed when it ends.
    pub(crate) fn end(&self) {
        let mut table = self.table();
        table.is_over = true;
        let open = std::mem::take(&mut table.open);
        drop(table);
        for file in open.into_values() {
            file.is_closed.store(true, Ordering::SeqCst);
            file.try_close();
        }
    }

    /// Maximum time for which a call may wait for others.
    pub(crate) fn patience(call: &FileCall) -> Duration {
        match call {
            FileCall::Lock { wait_ms, .. } => Duration::from_millis(u64::from(*wait_ms)).min(WAIT),
            _ => WAIT,
        }
    }

    /// Attempts a call; `may_wait` if it may be retried later.
    pub(crate) fn step(&self, store: &dyn Store, call: &FileCall, may_wait: bool) -> CallStep {
        let result = match call {
            FileCall::Open {
                path,
                flags,
                mode,
                owner,
                identity,
            } => {
                let request = FileRequest {
                    path: path.clone(),
                    flags: flags.clone(),
                    mode: *mode,
                    identity: *identity,
                };
                self.open(store, request, *owner)
            }
            call => self.answer(call),
        };
        match result {
            Err(CallFailure::Wait(_)) if may_wait => CallStep::Later,
            Err(CallFailure::Wait(fault) | CallFailure::Fault(fault)) => {
                let mut fault = fault;
                fault.operation = call.operation().into();
                CallStep::Done(Err(fault))
            }
            Ok(answer) => CallStep::Done(Ok(answer)),
        }
    }

    fn open(
        &self,
        store: &dyn Store,
        request: FileRequest,
        owner: FileOwner,
    ) -> Result<Answer, CallFailure> {
        let key = OwnerKey {
            user: Arc::clone(&self.user),
            owner,
        };
        if !self.shared.close_earlier(&key) {
            let cause = "calls of an earlier session are still running";
            let fault = Fault::new(Code::Busy, "", cause).path(&request.path);
            return Err(CallFailure::Wait(fault.retry(Retry::Now)));
        }
        let opening = OpenReservation::begin(self).map_err(|fault| fault.path(&request.path))?;
        let opened = store.open_file(&request).map_err(|fault| {
            let waits = fault.code == Code::Busy && matches!(fault.retry, Retry::AfterMs(_));
            if waits {
                CallFailure::Wait(fault.retry(Retry::Now))
            } else {
                CallFailure::Fault(fault)
            }
        })?;
        let FileRequest { path, flags, .. } = request;
        let file = Arc::new(OpenFile {
            file: RwLock::new(Some(opened.file)),
            is_closed: AtomicBool::new(false),
            key: key.clone(),
            identity: opened.identity,
            flags,
            path,
            _counted: opening.counted(),
        });
        let mut owners = self
            .shared
            .owners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = owners.insert(key.clone(), Arc::downgrade(&file)) {
            // Opened concurrently by another session of this owner.
            if let Some(other) = other.upgrade() {
                other.is_closed.store(true, Ordering::SeqCst);
            }
        }
        if owners.len() > 2 * self.shared.open.load(Ordering::Relaxed) + 64 {
            owners.retain(|_, file| file.strong_count() > 0);
        }
        drop(owners);
        self.shared
            .locks
            .renew(&opened.identity, &key, self.shared.environment.now());
        let mut table = self.table();
        if table.is_over {
            return Err(Fault::new(Code::Cancelled, "", "the session is over").into());
        }
        table.latest = table.latest.checked_add(1).ok_or_else(|| {
            Fault::new(
                Code::LimitExceeded,
                "",
                "the session has used up its handles",
            )
        })?;
        let handle = table.latest;
        table.open.insert(handle, file);
        Ok(Answer::File(FileAnswer::Opened {
            handle,
            identity: opened.identity,
            created: opened.created,
            run: self.shared.run,
            attributes: opened.attributes,
        }))
    }

    fn answer(&self, call: &FileCall) -> Result<Answer, CallFailure> {
        let handle = call.handle().unwrap_or(0);
        let stale = || Fault::new(Code::Stale, "", format!("no file is open as {handle}"));
        let open = self.table().open.get(&handle).cloned().ok_or_else(stale)?;
        if matches!(call, FileCall::Close { .. }) {
            self.table().open.remove(&handle);
            open.close();
            let locks = &self.shared.locks;
            locks.release(&open.identity, &open.key, self.shared.environment.now());
            return Ok(Answer::Done);
        }
        let result = self.use_open(&open, call);
        result.map_err(|failure| failure.with_path(&open.path))
    }

    fn use_open(&self, open: &OpenFile, call: &FileCall) -> Result<Answer, CallFailure> {
        let guard = open.file.read().unwrap_or_else(PoisonError::into_inner);
        let file = guard
            .as_ref()
            .filter(|_| !open.is_closed.load(Ordering::SeqCst));
        let Some(file) = file else {
            let cause = "its owner has opened a file in another session";
            return Err(Fault::new(Code::Stale, "", cause).into());
        };
        check_flags(&open.flags, call)?;
        if file.is_pipe() {
            return use_pipe(&**file, call);
        }
        let locks = &self.shared.locks;
        let now = self.shared.environment.now();
        let in_use = match locked_ranges(&**file, call)? {
            Some((ranges, exclusive)) => {
                let in_use = locks.begin(&open.identity, &open.key, &ranges, exclusive, now);
                Some(in_use.ok_or_else(lock_lost)?)
            }
            None => {
                locks.renew(&open.identity, &open.key, now);
                None
            }
        };
        let answer = match call {
            FileCall::Read { extents, .. } => read(&**file, extents)?,
            FileCall::Write { extents, bytes, .. } => {
                let mut rest = &bytes[..];
                for extent in extents {
                    let (now, later) = rest
                        .split_at_checked(extent.length as usize)
                        .unwrap_or((rest, b""));
                    file.write_at(extent.offset, now)?;
                    rest = later;
                }
                Answer::Done
            }
            FileCall::Append { bytes, .. } => {
                let offset = file.append(bytes)?;
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                Answer::File(FileAnswer::Appended { offset, length })
            }
            FileCall::Flush { data_only, .. } => {
                file.sync(*data_only)?;
                Answer::Done
            }
            FileCall::SetLength { length, .. } => {
                file.set_length(*length)?;
                Answer::Done
            }
            FileCall::Stat { .. } => Answer::Attributes(file.attributes()?),
            call => self.use_locks(open, call)?,
        };
        drop(in_use);
        Ok(answer)
    }

    fn use_locks(&self, open: &OpenFile, call: &FileCall) -> Result<Answer, CallFailure> {
        let (locks, now) = (&self.shared.locks, self.shared.environment.now());
        let (file, key) = (&open.identity, &open.key);
        Ok(match call {
            FileCall::Lock {
                range,
                exclusive,
                lease_s,
                ..
            } => {
                let lease = Duration::from_secs(u64::from(*lease_s));
                let held = locks.lock(file, key, range, *exclusive, lease, now);
                let holding = held.map_err(|refusal| match refusal {
                    Refusal::Held(held) => {
                        let kind = if held.exclusive {
                            "exclusive"
                        } else {
                            "shared"
                        };
                        let from = held.range.offset;
                        let cause = format!("another owner has a {kind} lock from byte {from} on");
                        let fault = Fault::new(Code::Busy, "", cause);
                        CallFailure::Wait(fault.retry(Retry::Now))
                    }
                    Refusal::TooMany => {
                        Fault::new(Code::LimitExceeded, "", "there are too many locks").into()
                    }
                })?;
                Answer::File(FileAnswer::Held { holding })
            }
            FileCall::Unlock { range, .. } => {
                locks.unlock(file, key, range, now);
                Answer::Done
            }
            FileCall::TestLock {
                range, exclusive, ..
            } => {
                let found = locks.in_the_way(file, key, range, *exclusive, now);
                Answer::File(FileAnswer::InTheWay(found))
            }
            FileCall::Renew { holding, .. } => {
                if locks.renew(file, key, now) != Some(*holding) {
                    return Err(lock_lost().into());
                }
                Answer::Done
            }
            _ => return Err(unsupported().into()),
        })
    }
}

/// Why a call was not completed.
#[derive(Debug)]
enum CallFailure {
    /// It may succeed later. The fault applies if it can't wait any longer.
    Wait(Fault),
    Fault(Fault),
}

impl CallFailure {
    /// Adds the file's path if the fault has none.
    fn with_path(self, path: &[u8]) -> Self {
        let named = |fault: Fault| {
            if fault.path.is_empty() {
                fault.path(path)
            } else {
                fault
            }
        };
        match self {
            Self::Wait(fault) => Self::Wait(named(fault)),
            Self::Fault(fault) => Self::Fault(named(fault)),
        }
    }
}

impl From<Fault> for CallFailure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A reserved slot for a file that is being opened.
struct OpenReservation<'a> {
    files: &'a SessionFiles,
    counted: Option<OpenFileCount>,
}

impl<'a> OpenReservation<'a> {
    fn begin(files: &'a SessionFiles) -> Result<Self, Fault> {
        let limit = |cause: String| {
            Fault::new(Code::LimitExceeded, "", cause).hint("close files that aren't needed")
        };
        let shared = &files.shared;
        let counted = OpenFileCount(Arc::clone(&shared.open));
        if shared.open.fetch_add(1, Ordering::Relaxed) >= shared.open_max {
            return Err(limit("the server has too many files open".into()));
        }
        let mut table = files.table();
        if table.open.len() + table.opening >= OPEN_MAX {
            return Err(limit(format!("the session has {OPEN_MAX} files open")));
        }
        table.opening += 1;
        drop(table);
        Ok(Self {
            files,
            counted: Some(counted),
        })
    }

    fn counted(mut self) -> OpenFileCount {
        let counted = self.counted.take();
        counted.unwrap_or_else(|| OpenFileCount(Arc::new(AtomicUsize::new(1))))
    }
}

impl Drop for OpenReservation<'_> {
    fn drop(&mut self) {
        self.files.table().opening -= 1;
    }
}

/// Refuses calls that the file's flags do not allow.
fn check_flags(flags: &FileFlags, call: &FileCall) -> Result<(), Fault> {
    let wrong = match call {
        FileCall::Read { .. } if !flags.read => "the file isn't open for reading",
        FileCall::Write { .. } | FileCall::SetLength { .. } | FileCall::Append { .. }
            if !flags.write =>
        {
            "the file isn't open for writing"
        }
        FileCall::Lock {
            exclusive: true, ..
        } if !flags.write => "an exclusive lock needs a file that is open for writing",
        FileCall::Lock {
            exclusive: false, ..
        } if !flags.read => "a shared lock needs a file that is open for reading",
        FileCall::Write { .. } if flags.append => "the file is open for appending only",
        _ => return Ok(()),
    };
    Err(Fault::new(Code::InvalidArgument, "", wrong))
}

/// Ranges on which the call requires locks, and whether exclusive ones; `None` if it requires none.
fn locked_ranges(
    file: &dyn File,
    call: &FileCall,
) -> Result<Option<(Vec<LockRange>, bool)>, Fault> {
    let of = |extents: &[Extent]| -> Vec<LockRange> {
        let range = |extent: &Extent| LockRange {
            offset: extent.offset,
            length: Some(u64::from(extent.length)),
        };
        extents.iter().map(range).collect()
    };
    let from = |offset| LockRange {
        offset,
        length: None,
    };
    let size = || {
        file.attributes()
            .map(|attributes: Attributes| attributes.size)
    };
    Ok(match call {
        FileCall::Read {
            locked: true,
            extents,
            ..
        } => Some((of(extents), false)),
        FileCall::Write {
            locked: true,
            extents,
            ..
        } => Some((of(extents), true)),
        FileCall::Append { locked: true, .. } => Some((vec![from(size()?)], true)),
        FileCall::SetLength {
            locked: true,
            length,
            ..
        } => Some((vec![from(size()?.min(*length))], true)),
        _ => None,
    })
}

fn read(file: &dyn File, extents: &[Extent]) -> Result<Answer, Fault> {
    let total = extents.iter().map(|extent| extent.length as usize).sum();
    let mut bytes = vec![0; total];
    let mut lengths = Vec::with_capacity(extents.len());
    let mut at = 0;
    for extent in extents {
        let buf = &mut bytes[at..at + extent.length as usize];
        let read = file.read_at(extent.offset, buf)?;
        lengths.push(u32::try_from(read).unwrap_or(u32::MAX));
        at += read;
    }
    bytes.truncate(at);
    let bytes = Arc::new(bytes);
    Ok(Answer::File(FileAnswer::Data { lengths, bytes }))
}

fn use_pipe(file: &dyn File, call: &FileCall) -> Result<Answer, CallFailure> {
    let wait = |cause| CallFailure::Wait(Fault::new(Code::Busy, "", cause).retry(Retry::Now));
    match call {
        FileCall::Read { extents, .. } => {
            let &[extent] = &extents[..] else {
                let cause = "a pipe is read in one piece";
                return Err(Fault::new(Code::InvalidArgument, "", cause).into());
            };
            let mut bytes = vec![0; extent.length as usize];
            let read = file.read_pipe(&mut bytes)?;
            let read = read.ok_or_else(|| wait("there is nothing in the pipe"))?;
            bytes.truncate(read);
            Ok(Answer::File(FileAnswer::Data {
                lengths: vec![u32::try_from(read).unwrap_or(u32::MAX)],
                bytes: Arc::new(bytes),
            }))
        }
        FileCall::Append { bytes, .. } => {
            let written = file.write_pipe(bytes)?;
            let written = written.ok_or_else(|| wait("the pipe is full"))?;
            Ok(Answer::File(FileAnswer::Appended {
                offset: 0,
                length: u32::try_from(written).unwrap_or(u32::MAX),
            }))
        }
        FileCall::Stat { .. } => Ok(Answer::Attributes(file.attributes()?)),
        _ => {
            let cause = "a pipe can only be read, or appended to";
            Err(Fault::new(Code::NotRegularFile, "", cause).into())
        }
    }
}

fn lock_lost() -> Fault {
    let cause = "the lock required for this call is no longer held";
    Fault::new(Code::LockLost, "", cause)
        .hint("lock it again, and check for changes made by others")
}

fn unsupported() -> Fault {
    Fault::new(Code::Unsupported, "", "this call isn't supported")
}

#[cfg(test)]
mod tests;
