//! Synchronisation of whole file systems, shared by all writers of the process.
//!
//! Linux reports a failed write-back only through descriptors that were open before the failure. So
//! a descriptor of each file system is opened before the first write and kept until a
//! [`Call::Sync`](xdfs_proto::path::Call::Sync) has covered the writes. All writers share it. A
//! failure is reported to every writer that began before it was found, once for each [`SyncGroup`],
//! such as the threads of a session. Threads outside of groups form one group.
//!
//! One system call makes everything written before it durable. Writers that wait at the same time
//! share the next call.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use xdfs_sys::fs::{self, Dir, SyncKind};

/// Maximum number of idle file systems with a kept descriptor; the least recently written is closed
/// first.
const KEPT_MAX: usize = 64;
/// Maximum number of directories tracked per group and file system; beyond it they are merged into
/// one entry for the whole file system.
const PLACES_MAX: usize = 64;
/// The group of all threads without a group, which also inherits from groups that end.
const NOBODY: u64 = 0;

thread_local! {
    static SYNC_GROUP: Cell<u64> = const { Cell::new(NOBODY) };
}

/// A group of threads, such as those of a session, to which a lost write is reported once: a
/// synchronisation by one thread of the group reports losses of the others too.
#[derive(Debug)]
pub struct SyncGroup(u64);

impl SyncGroup {
    /// A group without threads.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(NOBODY + 1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds the calling thread. The group must outlive the thread's work.
    pub fn join(&self) {
        SYNC_GROUP.set(self.0);
    }

    /// Whether the calling thread belongs to the group.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        SYNC_GROUP.get() == self.0
    }
}

impl Drop for SyncGroup {
    /// A loss that was not reported to the group is reported to the next one that asks, which may
    /// belong to the same peer.
    fn drop(&mut self) {
        lock(&REGISTRY).leave(self.0);
    }
}

/// A file system with writes since the last synchronisation.
#[derive(Debug)]
struct FileSystem {
    /// A directory on it.
    file: File,
    state: Mutex<SyncState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct SyncState {
    /// Numbers of synchronisations begun and ended. One runs at a time.
    begun: u64,
    ended: u64,
    /// Number of failed synchronisations: earlier writes may be lost.
    losses: u64,
    /// The error of the last failure.
    loss: Option<Loss>,
}

/// An error that can be reported several times.
#[derive(Clone, Debug)]
struct Loss {
    kind: io::ErrorKind,
    number: Option<i32>,
    text: String,
}

impl Loss {
    fn of(error: &io::Error) -> Self {
        Self {
            kind: error.kind(),
            number: error.raw_os_error(),
            text: error.to_string(),
        }
    }

    fn error(&self) -> io::Error {
        match self.number {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(self.kind, self.text.clone()),
        }
    }
}

impl FileSystem {
    fn new(file: File) -> Self {
        Self {
            file,
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes everything written before the call durable. Fails if there were more failures than
    /// `losses`.
    fn sync(&self, losses: u64, sync: &dyn Fn(&File) -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        // A synchronisation in progress may have missed the latest writes.
        let wanted = state.begun + 1;
        while state.ended < wanted {
            if state.begun > state.ended {
                let waited = self.ended.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.begun += 1;
            drop(state);
            let result = sync(&self.file);
            state = self.lock();
            state.ended += 1;
            if let Err(error) = result {
                state.losses += 1;
                state.loss = Some(Loss::of(&error));
            }
            self.ended.notify_all();
        }
        match &state.loss {
            Some(loss) if state.losses > losses => Err(loss.error()),
            _ => Ok(()),
        }
    }
}

/// The writes to a file system.
#[derive(Debug)]
struct WrittenFileSystem {
    system: Arc<FileSystem>,
    writers: usize,
    /// By group and real path of the directory written beneath; the empty path means anywhere.
    places: BTreeMap<(u64, Vec<u8>), UnsyncedWrites>,
}

impl WrittenFileSystem {
    /// Records writes of a group beneath a directory.
    fn add(&mut self, sync_group: u64, mut path: Vec<u8>, mut place: UnsyncedWrites) {
        let own = self.places.range((sync_group, Vec::new())..);
        let own = own.take_while(|((of, _), _)| *of == sync_group).count();
        if own >= PLACES_MAX && !self.places.contains_key(&(sync_group, path.clone())) {
            self.places.retain(|(of, _), known| {
                if *of == sync_group {
                    place.join(*known);
                }
                *of != sync_group
            });
            path.clear();
        }
        let known = self.places.entry((sync_group, path)).or_insert(place);
        known.join(place);
    }

    /// The number of losses already known to a group, if anybody has written beneath `place` or an
    /// ancestor of it.
    fn losses(&self, sync_group: u64, place: &[u8]) -> Option<u64> {
        let places = self.places.iter();
        let affected = places.filter(|((_, written), _)| are_nested(written, place));
        let mut affected = affected.peekable();
        affected.peek()?;
        let own = affected.filter(|((of, _), _)| gets_report(*of, sync_group));
        let own = own.map(|(_, place)| place.losses).min();
        Some(own.unwrap_or_else(|| self.system.lock().losses))
    }
}

/// Whether losses of writes by group `by` are reported to `sync_group`.
fn gets_report(by: u64, sync_group: u64) -> bool {
    by == sync_group || by == NOBODY
}

/// Writes beneath a directory that no [`Call::Sync`](xdfs_proto::path::Call::Sync) has covered yet.
#[derive(Clone, Copy, Debug)]
struct UnsyncedWrites {
    /// Sequence number of the writer that ended last.
    ended: u64,
    /// Losses of the file system when the first of these writes began.
    losses: u64,
}

impl UnsyncedWrites {
    fn join(&mut self, other: Self) {
        self.ended = self.ended.max(other.ended);
        self.losses = self.losses.min(other.losses);
    }
}

#[derive(Debug, Default)]
struct Registry {
    /// By device number.
    systems: BTreeMap<u64, WrittenFileSystem>,
    /// Sequence number of the last writer that ended.
    number: u64,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    systems: BTreeMap::new(),
    number: 0,
});

fn lock(registry: &Mutex<Registry>) -> MutexGuard<'_, Registry> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Hands over the writes of a group that has ended.
    fn leave(&mut self, sync_group: u64) {
        for known in self.systems.values_mut() {
            let own = |(of, _): &(u64, Vec<u8>), _: &mut UnsyncedWrites| *of == sync_group;
            let left: Vec<_> = known.places.extract_if(.., own).collect();
            for ((_, path), place) in left {
                known.add(NOBODY, path, place);
            }
        }
    }

    /// Drops file systems without writers and unsynchronised writes, and idle ones above the limit.
    fn clean(&mut self) {
        self.systems
            .retain(|_, known| known.writers > 0 || !known.places.is_empty());
        while self.systems.len() > KEPT_MAX {
            let idle = self.systems.iter().filter(|(_, known)| known.writers == 0);
            let last =
                |known: &WrittenFileSystem| known.places.values().map(|place| place.ended).max();
            let Some(device) = idle.min_by_key(|(_, k)| last(k)).map(|(device, _)| *device) else {
                return;
            };
            self.systems.remove(&device);
        }
    }
}

/// A writer on a file system.
#[derive(Debug)]
pub(super) struct Writer {
    registry: &'static Mutex<Registry>,
    device: u64,
    system: Arc<FileSystem>,
    sync_group: u64,
    place: Vec<u8>,
    /// Losses at the start of the current batch.
    losses: u64,
    /// Losses at the start of the first batch.
    losses_first: u64,
}

impl Writer {
    /// Registers a writer in `dir`, beneath the directory with the real path `place` (empty if
    /// unknown). `None` if the file system can't be synchronised as a whole.
    ///
    /// # Errors
    /// The directory can't be inspected or opened.
    pub(super) fn begin(dir: &Dir, place: &[u8]) -> io::Result<Option<Self>> {
        Self::begin_in(&REGISTRY, dir, place)
    }

    fn begin_in(
        shared: &'static Mutex<Registry>,
        dir: &Dir,
        place: &[u8],
    ) -> io::Result<Option<Self>> {
        if dir.sync_kind() != SyncKind::Whole {
            return Ok(None);
        }
        let Some((device, _)) = dir.meta()?.identity else {
            return Ok(None);
        };
        let mut registry = lock(shared);
        if let Some(known) = registry.systems.get_mut(&device) {
            known.writers += 1;
            return Ok(Some(Self::new(shared, device, &known.system, place)));
        }
        drop(registry);
        let file = match dir.reopen() {
            Ok(file) => file,
            // The directory is writable and not readable, so files must be synchronised one by one.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut registry = lock(shared);
        // Another thread may have been faster.
        let known = registry
            .systems
            .entry(device)
            .or_insert_with(|| WrittenFileSystem {
                system: Arc::new(FileSystem::new(file)),
                writers: 0,
                places: BTreeMap::new(),
            });
        known.writers += 1;
        let writer = Self::new(shared, device, &known.system, place);
        registry.clean();
        Ok(Some(writer))
    }

    fn new(
        registry: &'static Mutex<Registry>,
        device: u64,
        system: &Arc<FileSystem>,
        place: &[u8],
    ) -> Self {
        let losses = system.lock().losses;
        Self {
            registry,
            device,
            system: Arc::clone(system),
            sync_group: SYNC_GROUP.get(),
            place: place.to_vec(),
            losses,
            losses_first: losses,
        }
    }

    /// Starts a batch: the writes covered by the next [`Self::sync`].
    pub(super) fn begin_batch(&mut self) {
        self.losses = self.system.lock().losses;
    }

    /// Makes the batch durable, sharing the system call with other waiting writers.
    ///
    /// # Errors
    /// Data of the batch may be lost, and must be written again.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.system.sync(self.losses, &fs::sync_file_system)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut registry = lock(self.registry);
        registry.number += 1;
        let ended = registry.number;
        if let Some(known) = registry.systems.get_mut(&self.device)
            && Arc::ptr_eq(&known.system, &self.system)
        {
            known.writers -= 1;
            let losses = self.losses_first;
            let place = UnsyncedWrites { ended, losses };
            known.add(self.sync_group, std::mem::take(&mut self.place), place);
        }
        registry.clean();
    }
}

/// Makes durable what writers have written beneath the directory with the real path `place` or in
/// its ancestors, on any file system; the empty path means everything. Returns whether `device` was
/// among the synchronised file systems.
///
/// # Errors
/// Data may be lost. This is reported once per group and directory written beneath.
pub(super) fn sync_written(place: &[u8], device: u64) -> io::Result<bool> {
    sync_written_in(&REGISTRY, place, device, &fs::sync_file_system)
}

fn sync_written_in(
    shared: &Mutex<Registry>,
    place: &[u8],
    device: u64,
    sync: &dyn Fn(&File) -> io::Result<()>,
) -> io::Result<bool> {
    let sync_group = SYNC_GROUP.get();
    let (systems, number) = {
        let registry = lock(shared);
        let affected = registry.systems.iter().filter_map(|(at, known)| {
            let losses = known.losses(sync_group, place)?;
            Some((*at, Arc::clone(&known.system), losses))
        });
        let systems: Vec<_> = affected.collect();
        (systems, registry.number)
    };
    let mut first = Ok(());
    for (_, system, losses) in &systems {
        // The other file systems are synchronised nevertheless.
        let synced = system.sync(*losses, sync);
        first = first.and(synced);
    }
    let mut registry = lock(shared);
    for (device, system, _) in &systems {
        if let Some(known) = registry.systems.get_mut(device)
            && Arc::ptr_eq(&known.system, system)
        {
            let losses = system.lock().losses;
            known.places.retain(|(by, written), known| {
                if gets_report(*by, sync_group) && are_nested(written, place) {
                    known.losses = losses;
                }
                // Losses of other groups' writes are still to be reported to them.
                known.ended > number || known.losses < losses
            });
        }
    }
    registry.clean();
    first?;
    Ok(systems.iter().any(|(covered, ..)| *covered == device))
}

/// Whether one path equals or contains the other.
fn are_nested(a: &[u8], b: &[u8]) -> bool {
    let is_beneath = |a: &[u8], b: &[u8]| {
        a.strip_prefix(b)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || b.ends_with(b"/"))
    };
    a.is_empty() || b.is_empty() || is_beneath(a, b) || is_beneath(b, a)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn system() -> Arc<FileSystem> {
        Arc::new(FileSystem::new(tempfile::tempfile().unwrap()))
    }

    /// Threads that arrive during a synchronisation wait for the next one, and all of them share
    /// it.
    #[test]
    fn waiting_threads_share_the_next_synchronisation() {
        const WAITING: usize = 8;
        let system = system();
        let count = Arc::new(AtomicUsize::new(0));
        let (began, begins) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let first = {
            let (system, count) = (Arc::clone(&system), Arc::clone(&count));
            thread::spawn(move || {
                system.sync(0, &|_| {
                    count.fetch_add(1, Ordering::SeqCst);
                    began.send(()).unwrap();
                    goes_on.recv().unwrap();
                    Ok(())
                })
            })
        };
        begins.recv().unwrap();
        let others: Vec<_> = (0..WAITING)
            .map(|_| {
                let (system, count) = (Arc::clone(&system), Arc::clone(&count));
                let (arrived, arrives) = mpsc::channel();
                let other = thread::spawn(move || {
                    arrived.send(()).unwrap();
                    system.sync(0, &|_| {
                        count.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    })
                });
                arrives.recv().unwrap();
                other
            })
            .collect();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        go_on.send(()).unwrap();
        first.join().unwrap().unwrap();
        for other in others {
            other.join().unwrap().unwrap();
        }
        // Late arrivals may have needed one of their own; the first one served nobody.
        let count = count.load(Ordering::SeqCst);
        assert!((2..=1 + WAITING).contains(&count), "{count}");
    }

    /// The system reports a loss once. Everybody who wrote before it gets the report.
    #[test]
    fn a_loss_is_reported_to_all_earlier_writers() {
        let system = system();
        let begun = system.lock().losses;
        let failing = |_: &File| Err(io::ErrorKind::StorageFull.into());
        assert!(system.sync(begun, &failing).is_err());
        let late = system.sync(begun, &|_| Ok(())).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::StorageFull);
        // Writers that began after it are not affected.
        let begun = system.lock().losses;
        system.sync(begun, &|_| Ok(())).unwrap();
        let state = system.lock();
        assert_eq!((state.begun, state.ended), (3, 3));
    }

    /// Two sessions have written when the system reports a loss to one of them.
    #[test]
    fn a_loss_is_reported_once_per_directory() {
        let registry: &Mutex<Registry> = Box::leak(Box::default());
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::open(folder.path()).unwrap();
        let device = dir.meta().unwrap().identity.unwrap().0;
        let failing = |_: &File| Err(io::Error::from_raw_os_error(5));
        let sync = |place: &[u8], sync| sync_written_in(registry, place, device, sync);
        let well: &dyn Fn(&File) -> io::Result<()> = &|_| Ok(());
        for place in [b"/one", b"/two"] {
            let Some(writer) = Writer::begin_in(registry, &dir, place).unwrap() else {
                return;
            };
            drop(writer);
        }
        assert_eq!(sync(b"/one", &failing).unwrap_err().raw_os_error(), Some(5));
        assert_eq!(sync(b"/two", well).unwrap_err().raw_os_error(), Some(5));
        for place in [b"/one", b"/two"] {
            // Already reported, and nothing was written since.
            assert!(!sync(place, well).unwrap());
            drop(Writer::begin_in(registry, &dir, place).unwrap());
            assert!(sync(place, well).unwrap());
        }
    }

    /// Two sessions have written in the same directories when one of them gets the report of a
    /// loss. Each thread is one session.
    #[test]
    fn a_loss_is_reported_to_each_group() {
        let registry: &Mutex<Registry> = Box::leak(Box::default());
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::open(folder.path()).unwrap();
        let device = dir.meta().unwrap().identity.unwrap().0;
        let failing = |_: &File| Err(io::Error::from_raw_os_error(5));
        let well: &dyn Fn(&File) -> io::Result<()> = &|_| Ok(());
        let sync = |place: &[u8], sync| {
            sync_written_in(registry, place, device, sync).map_err(|error| error.raw_os_error())
        };
        let write = |place: &[u8]| Writer::begin_in(registry, &dir, place).unwrap().is_some();
        let (one, two, three, late) = (
            SyncGroup::new(),
            SyncGroup::new(),
            SyncGroup::new(),
            SyncGroup::new(),
        );
        for (sync_group, place) in [
            (&one, "/a"),
            (&two, "/a"),
            (&two, "/a/b"),
            (&three, "/a/b/c"),
        ] {
            sync_group.join();
            if !write(place.as_bytes()) {
                return;
            }
        }
        one.join();
        assert_eq!(sync(b"/a", &failing), Err(Some(5)));
        // Its later writes are its own, and the earlier loss has been reported to it.
        assert!(write(b"/a"));
        assert_eq!(sync(b"/a", well), Ok(true));
        // A session that began afterwards is not affected, and doesn't take the report away from
        // the others.
        late.join();
        assert!(write(b"/a/b"));
        assert_eq!(sync(b"/a", well), Ok(true));
        two.join();
        assert_eq!(sync(b"/a", well), Err(Some(5)));
        // Once, since the call covered both of its directories.
        assert_ne!(sync(b"/a/b", well), Err(Some(5)));
        // Losses not yet reported to a group that ends go to the next caller, and nothing stays.
        lock(registry).leave(three.0);
        assert_eq!(sync(b"/a", well), Err(Some(5)));
        assert_eq!(sync(b"/a", well), Ok(false));
        assert!(lock(registry).systems.is_empty());
        // The number of tracked directories is bounded.
        for number in 0..3 * PLACES_MAX {
            assert!(write(format!("/{number}").as_bytes()));
        }
        let places = lock(registry).systems[&device].places.len();
        assert!(places <= PLACES_MAX, "{places}");
        assert_eq!(sync(b"/elsewhere", &failing), Err(Some(5)));
    }

    #[test]
    fn paths_are_nested_by_whole_names() {
        for (a, b) in [("/a/b", "/a"), ("/a", "/a"), ("", "/x"), ("/a", "/")] {
            assert!(are_nested(a.as_bytes(), b.as_bytes()), "{a} {b}");
            assert!(are_nested(b.as_bytes(), a.as_bytes()), "{b} {a}");
        }
        assert!(!are_nested(b"/ab", b"/a"));
        assert!(!are_nested(b"/a/b", b"/a/c"));
    }
}
