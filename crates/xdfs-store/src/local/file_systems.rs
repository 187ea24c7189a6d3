//! Synchronisation of whole file systems, shared by all writers of the process.
//!
//! Linux reports a failed write-back only through descriptors that were open before the failure. So
//! a descriptor of each file system is opened before the first write and kept until a
//! [`Call::Sync`](xdfs_proto::path::Call::Sync) has covered the writes. All writers share it. A
//! failure is reported to every writer that began before it was found, once for each [`SyncGroup`],
//! such as the threads of a session. Threads outside of groups form one group.
//!
//! One system call makes everything durable that was written before it began. Writers that wait at
//! the same time share the next call.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use xdfs_sys::fs::{self, Dir, SyncKind};

/// Idle file systems whose descriptors are kept. Beyond that the least recently written is closed.
const KEPT_MAX: usize = 64;
/// Directories that are distinguished for a group in one file system; beyond that any is meant.
const PLACES_MAX: usize = 64;
/// The number of the group of all other threads, which also takes over what groups leave behind.
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
    /// A directory of it.
    file: File,
    state: Mutex<SyncState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct SyncState {
    /// The numbers of synchronisations begun and ended. One runs at a time.
    begun: u64,
    ended: u64,
    /// The number of those that failed: earlier writes may be lost.
    losses: u64,
    /// Why the last of them failed.
    loss: Option<Loss>,
}

/// An error that is reported several times.
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

    /// Makes durable what was written before the call. An error if anything was lost after the
    /// first `losses` losses.
    fn sync(&self, losses: u64, sync: &dyn Fn(&File) -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        // One that runs already may have passed by what was written last.
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

/// What is known of a file system.
#[derive(Debug)]
struct WrittenFileSystem {
    system: Arc<FileSystem>,
    writers: usize,
    /// By their groups, and the real paths of the directories beneath which was written; the empty
    /// path means any.
    places: BTreeMap<(u64, Vec<u8>), UnsyncedWrites>,
}

impl WrittenFileSystem {
    /// Notes what a group has written beneath a directory.
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

    /// The losses after which a group is to be told of another one, if anybody has written at such
    /// a place.
    fn losses(&self, sync_group: u64, place: &[u8]) -> Option<u64> {
        let places = self.places.iter();
        let meant = places.filter(|((_, written), _)| are_nested(written, place));
        let mut meant = meant.peekable();
        meant.peek()?;
        let own = meant.filter(|((of, _), _)| is_told(*of, sync_group));
        let own = own.map(|(_, place)| place.losses).min();
        Some(own.unwrap_or_else(|| self.system.lock().losses))
    }
}

/// Whether a group is told of what was written by another.
fn is_told(by: u64, sync_group: u64) -> bool {
    by == sync_group || by == NOBODY
}

/// Writing beneath a directory that no call has covered yet.
#[derive(Clone, Copy, Debug)]
struct UnsyncedWrites {
    /// The number of the last end of it.
    ended: u64,
    /// Losses of the file system when the first of it began.
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
    /// By the number of the device.
    systems: BTreeMap<u64, WrittenFileSystem>,
    /// Grows with each end of writing.
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
    /// Nobody asks for a group any more.
    fn leave(&mut self, sync_group: u64) {
        for known in self.systems.values_mut() {
            let own = |(of, _): &(u64, Vec<u8>), _: &mut UnsyncedWrites| *of == sync_group;
            let left: Vec<_> = known.places.extract_if(.., own).collect();
            for ((_, path), place) in left {
                known.add(NOBODY, path, place);
            }
        }
    }

    /// Lets go what nobody needs any more.
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

/// Somebody who writes to a file system.
#[derive(Debug)]
pub(super) struct Writer {
    registry: &'static Mutex<Registry>,
    device: u64,
    system: Arc<FileSystem>,
    sync_group: u64,
    place: Vec<u8>,
    /// Losses when the writing began that has to be durable.
    losses: u64,
    /// Likewise when the first of it began.
    losses_first: u64,
}

impl Writer {
    /// Somebody is going to write in `dir`, beneath the directory whose real path is `place`, empty
    /// if it isn't known. `None` if the file system can't be made durable as a whole.
    ///
    /// # Errors
    /// What the system says of the directory.
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
            // It may be written to and not be read: each file by itself, then.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut registry = lock(shared);
        // Somebody else may have been faster.
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

    /// What is written from now on is to be durable after the next [`Self::sync`].
    pub(super) fn begin_batch(&mut self) {
        self.losses = self.system.lock().losses;
    }

    /// Makes durable what was written since the beginning, with others who wait for the same.
    ///
    /// # Errors
    /// Something that was written since then may be lost, and has to be written again.
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

/// Makes durable what writers have written beneath the directory whose real path is `place`, or on
/// the way to it, on any file system; the empty path means all. Returns whether `device` is one of
/// those.
///
/// # Errors
/// Something may be lost. Each group is told once of each directory beneath which it wrote.
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
        let meant = registry.systems.iter().filter_map(|(at, known)| {
            let losses = known.losses(sync_group, place)?;
            Some((*at, Arc::clone(&known.system), losses))
        });
        let systems: Vec<_> = meant.collect();
        (systems, registry.number)
    };
    let mut first = Ok(());
    for (_, system, losses) in &systems {
        // The others are made durable all the same.
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
                if is_told(*by, sync_group) && are_nested(written, place) {
                    known.losses = losses;
                }
                // The loss of what others have written is still to be told to them.
                known.ended > number || known.losses < losses
            });
        }
    }
    registry.clean();
    first?;
    Ok(systems.iter().any(|(covered, ..)| *covered == device))
}

/// Whether one of two paths is the other or stands beneath it.
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

    /// Who comes while a synchronisation runs waits for the next one, and all of those share it.
    #[test]
    fn those_who_wait_share_the_next_synchronisation() {
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
        // Who came late may have had to begin one of its own; nobody was served by the first.
        let count = count.load(Ordering::SeqCst);
        assert!((2..=1 + WAITING).contains(&count), "{count}");
    }

    /// The system tells of a loss once. Everybody who wrote before is told.
    #[test]
    fn a_loss_is_told_to_all_who_had_begun() {
        let system = system();
        let begun = system.lock().losses;
        let failing = |_: &File| Err(io::ErrorKind::StorageFull.into());
        assert!(system.sync(begun, &failing).is_err());
        let late = system.sync(begun, &|_| Ok(())).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::StorageFull);
        // Who begins after it isn't concerned.
        let begun = system.lock().losses;
        system.sync(begun, &|_| Ok(())).unwrap();
        let state = system.lock();
        assert_eq!((state.begun, state.ended), (3, 3));
    }

    /// Two sessions have written when the system tells one of them of a loss.
    #[test]
    fn a_loss_is_told_once_of_each_directory() {
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
            // It is told, and nothing was written since.
            assert!(!sync(place, well).unwrap());
            drop(Writer::begin_in(registry, &dir, place).unwrap());
            assert!(sync(place, well).unwrap());
        }
    }

    /// Two sessions have written in the same directories when one of them is told of a loss. Each
    /// thread is one session.
    #[test]
    fn a_loss_is_told_to_each_party() {
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
        // What it writes again is its own, and it has heard of what was lost before.
        assert!(write(b"/a"));
        assert_eq!(sync(b"/a", well), Ok(true));
        // Who began after it isn't concerned, and doesn't hear it in place of those who are.
        late.join();
        assert!(write(b"/a/b"));
        assert_eq!(sync(b"/a", well), Ok(true));
        two.join();
        assert_eq!(sync(b"/a", well), Err(Some(5)));
        // Once: both of its directories were meant.
        assert_ne!(sync(b"/a/b", well), Err(Some(5)));
        // What a group never asked for is told to who asks next, and nothing stays.
        lock(registry).leave(three.0);
        assert_eq!(sync(b"/a", well), Err(Some(5)));
        assert_eq!(sync(b"/a", well), Ok(false));
        assert!(lock(registry).systems.is_empty());
        // However many there are, places are few.
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
