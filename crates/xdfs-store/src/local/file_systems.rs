//! The file systems that are written to, and how many writers make them durable together.
//!
//! Linux tells of a write that failed later only who had the file system open by then. So a
//! descriptor of each is opened before the first write to it and kept until a
//! [`Call::Sync`](xdfs_proto::path::Call::Sync) has covered what was written. All of this process
//! share it: whoever began to write before a loss was found is told of that loss, whoever's call
//! found it.
//!
//! One call makes everything durable that was written before it began. Those who wait at the same
//! time share the next one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use xdfs_sys::fs::{self, Dir, SyncKind};

/// File systems whose descriptors are kept though nobody writes to them now. Above it the one that
/// was written to longest ago is let go.
const KEPT_MAX: usize = 64;
/// Directories that are told apart in one file system; with more of them any is meant.
const PLACES_MAX: usize = 64;

/// A file system that is written to.
#[derive(Debug)]
struct FileSystem {
    /// A directory of it.
    file: File,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Synchronisations that were begun, and those that have ended. One runs at a time.
    begun: u64,
    ended: u64,
    /// Those that failed: something that was written before may be lost.
    losses: u64,
    /// Why the last of them failed.
    loss: Option<Loss>,
}

/// An error that several are told.
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

    fn lock(&self) -> MutexGuard<'_, State> {
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
struct Known {
    system: Arc<FileSystem>,
    writers: usize,
    /// By the real paths of the directories beneath which was written; the empty path means any.
    places: BTreeMap<Vec<u8>, Place>,
}

/// Writing beneath a directory that no call has covered yet.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The number of the last end of it.
    ended: u64,
    /// Losses of the file system when the first of it began.
    losses: u64,
}

#[derive(Debug, Default)]
struct Registry {
    /// By the number of the device.
    systems: BTreeMap<u64, Known>,
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
    /// Lets go what nobody needs any more.
    fn clean(&mut self) {
        self.systems
            .retain(|_, known| known.writers > 0 || !known.places.is_empty());
        while self.systems.len() > KEPT_MAX {
            let idle = self.systems.iter().filter(|(_, known)| known.writers == 0);
            let last = |known: &Known| known.places.values().map(|place| place.ended).max();
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
        let known = registry.systems.entry(device).or_insert_with(|| Known {
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
            let mut losses = self.losses_first;
            if known.places.len() >= PLACES_MAX && !known.places.contains_key(&self.place) {
                let all = std::mem::take(&mut known.places);
                losses = all.values().map(|p| p.losses).fold(losses, u64::min);
                self.place.clear();
            }
            let first = Place { ended, losses };
            let place = known.places.entry(std::mem::take(&mut self.place));
            let place = place.or_insert(first);
            place.ended = ended;
            place.losses = place.losses.min(losses);
        }
        registry.clean();
    }
}

/// Makes durable what writers have written beneath the directory whose real path is `place`, or on
/// the way to it, on any file system; the empty path means all. Returns whether `device` is one of
/// those.
///
/// # Errors
/// Something may be lost. It is told once of each directory beneath which was written.
pub(super) fn sync_written(place: &[u8], device: u64) -> io::Result<bool> {
    sync_written_in(&REGISTRY, place, device, &fs::sync_file_system)
}

fn sync_written_in(
    shared: &Mutex<Registry>,
    place: &[u8],
    device: u64,
    sync: &dyn Fn(&File) -> io::Result<()>,
) -> io::Result<bool> {
    let (systems, number) = {
        let registry = lock(shared);
        let losses_of = |known: &Known| {
            let places = known.places.iter();
            let meant = places.filter(|(written, _)| are_nested(written, place));
            meant.map(|(_, place)| place.losses).min()
        };
        let meant = registry.systems.iter().filter_map(|(device, known)| {
            let losses = losses_of(known)?;
            Some((*device, Arc::clone(&known.system), losses))
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
            known.places.retain(|written, known| {
                let is_told = are_nested(written, place);
                if is_told {
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
