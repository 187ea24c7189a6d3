//! Disks with a volatile cache, as files of a FUSE file system.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use super::command::run;
use super::image::Image;
use crate::tree::Random;

/// What is written wholly or not at all, as a rule.
const SECTOR_BYTES: usize = 512;
const NO_TIME: Duration = Duration::ZERO;
/// How much a disk keeps before it writes the oldest by itself.
const CACHE_BYTES: usize = 128 << 20;

/// What happens to a disk, and when. Events are writes and flushes, counted from 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// What survives the cut follows from it.
    pub seed: u64,
    /// The power is cut at this event.
    pub cut_at: Option<u64>,
    /// The first write from this event on fails; later ones don't.
    pub fail_write_at: Option<u64>,
    /// The first flush from this event on fails; later ones don't.
    pub fail_flush_at: Option<u64>,
}

/// The place where disks are; unmounted when dropped.
#[derive(Debug)]
pub struct Disks {
    at: PathBuf,
    all: Arc<Mutex<DiskTable>>,
    session: Option<BackgroundSession>,
}

impl Disks {
    /// Mounts the place on a directory that is there.
    ///
    /// # Errors
    /// This user can't mount, or the kernel has no FUSE.
    pub fn mount(at: &Path) -> io::Result<Self> {
        let all = Arc::new(Mutex::new(DiskTable::default()));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("xdfs-powercut".into())];
        let session = fuser::spawn_mount(Layer(Arc::clone(&all)), at, &config)?;
        Ok(Self {
            at: at.to_owned(),
            all,
            session: Some(session),
        })
    }

    /// A disk with this content, all of it durable. Sectors have 512 bytes; what lies in one of the
    /// ranges `whole` is written wholly or not at all.
    #[must_use]
    pub fn add(&self, image: &Image, whole: &'static [Range<u64>]) -> Disk {
        let mut shelf = lock(&self.all);
        shelf.last += 1;
        let number = shelf.last;
        shelf.disks.insert(number, DiskState::new(image, whole));
        Disk {
            path: self.at.join(number.to_string()),
            number,
            all: Arc::clone(&self.all),
        }
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        let _ = run(std::process::Command::new("umount").arg("-l").arg(&self.at));
        drop(self.session.take());
    }
}

/// A disk; when dropped, it answers errors to whatever still uses it.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    number: u64,
    all: Arc<Mutex<DiskTable>>,
}

impl Disk {
    /// The file that is the disk.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to count events, and does at them what the plan says. What was written before, as by
    /// a recovery, is durable.
    pub fn begin(&self, plan: Plan) {
        self.with(|state| {
            state.keep(state.cache.len());
            state.plan = plan;
            state.events = 0;
        });
    }

    /// Events since [`Self::begin`].
    #[must_use]
    pub fn events(&self) -> u64 {
        self.with(|state| state.events).unwrap_or(0)
    }

    /// Whether the power was cut. From then on nothing that is written or flushed is answered, so
    /// that nobody can believe that it was, until [`Self::release`].
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.with(|state| state.after_cut.is_some()).unwrap_or(true)
    }

    /// Whether an error was answered.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.with(|state| state.has_failed).unwrap_or(false)
    }

    /// Cuts the power if it wasn't cut yet.
    pub fn cut(&self) {
        self.with(DiskState::cut);
    }

    /// After a cut: lets go who waits for an answer. To be called when all who would believe it
    /// have been killed.
    pub fn release(&self) {
        let held = self.with(|state| {
            state.is_released = true;
            std::mem::take(&mut state.held)
        });
        for reply in held.into_iter().flatten() {
            reply.done();
        }
    }

    /// What survived the cut, or if there was none, what was written.
    #[must_use]
    pub fn image(&self) -> Image {
        let image = self.with(|state| state.after_cut.as_ref().unwrap_or(&state.now).clone());
        image.unwrap_or_default()
    }

    fn with<T>(&self, act: impl FnOnce(&mut DiskState) -> T) -> Option<T> {
        lock(&self.all).disks.get_mut(&self.number).map(act)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.release();
        lock(&self.all).disks.remove(&self.number);
    }
}

fn lock(shelf: &Mutex<DiskTable>) -> MutexGuard<'_, DiskTable> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct DiskTable {
    disks: HashMap<u64, DiskState>,
    last: u64,
}

/// One disk.
#[derive(Debug)]
struct DiskState {
    /// What is read.
    now: Image,
    /// What survives whatever happens.
    durable: Image,
    /// Writes since the last flush, in their order.
    cache: Vec<(u64, Vec<u8>)>,
    cache_bytes: usize,
    whole: &'static [Range<u64>],
    plan: Plan,
    events: u64,
    has_failed: bool,
    after_cut: Option<Image>,
    held: Vec<HeldReply>,
    is_released: bool,
}

/// An answer that is held back.
#[derive(Debug)]
enum HeldReply {
    Write(ReplyWrite, u32),
    Flush(ReplyEmpty),
}

impl HeldReply {
    fn done(self) {
        match self {
            Self::Write(reply, count) => reply.written(count),
            Self::Flush(reply) => reply.ok(),
        }
    }

    fn fail(self) {
        match self {
            Self::Write(reply, _) => reply.error(Errno::EIO),
            Self::Flush(reply) => reply.error(Errno::EIO),
        }
    }
}

impl DiskState {
    fn new(image: &Image, whole: &'static [Range<u64>]) -> Self {
        Self {
            now: image.clone(),
            durable: image.clone(),
            cache: Vec::new(),
            cache_bytes: 0,
            whole,
            plan: Plan::default(),
            events: 0,
            has_failed: false,
            after_cut: None,
            held: Vec::new(),
            is_released: false,
        }
    }

    /// Counts an event; whether it fails.
    fn event(&mut self, write: bool) -> bool {
        self.events += 1;
        let events = self.events;
        let plan = &mut self.plan;
        let fail_at = if write {
            &mut plan.fail_write_at
        } else {
            &mut plan.fail_flush_at
        };
        let fails = fail_at.take_if(|at| events >= *at).is_some();
        self.has_failed |= fails;
        fails
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        if self.event(true) {
            return false;
        }
        self.now.write(at, bytes);
        self.cache.push((at, bytes.to_vec()));
        self.cache_bytes += bytes.len();
        if self.cache_bytes > CACHE_BYTES {
            let count = self.cache.len() / 2;
            self.keep(count);
        }
        self.cut_if_due();
        true
    }

    fn flush(&mut self) -> bool {
        if self.event(false) {
            return false;
        }
        // A cut at a flush comes before its end.
        self.cut_if_due();
        if self.after_cut.is_none() {
            self.keep(self.cache.len());
        }
        true
    }

    /// Makes the oldest writes durable.
    fn keep(&mut self, count: usize) {
        for (at, bytes) in self.cache.drain(..count) {
            self.cache_bytes -= bytes.len();
            self.durable.write(at, &bytes);
        }
    }

    fn cut_if_due(&mut self) {
        if self.plan.cut_at.is_some_and(|at| self.events >= at) {
            self.cut();
        }
    }

    /// Of what was written since the last flush some sectors survive, and others don't. If a sector
    /// was written several times, any version may be what is left of it.
    fn cut(&mut self) {
        if self.after_cut.is_some() {
            return;
        }
        let mut random = Random::new(self.plan.seed);
        let mut image = self.durable.clone();
        // Of a thousand sectors so many are kept.
        let share = [0, 100, 500, 900, 1000][usize::try_from(random.below(5)).unwrap_or(0)];
        // Some disks tear what was written at once, others don't.
        let tears = random.below(2) == 0;
        for (at, bytes) in &self.cache {
            let keeps_all = random.below(1000) < share;
            let is_whole = !tears || self.whole.iter().any(|whole| whole.contains(at));
            for (at, sector) in (*at..)
                .step_by(SECTOR_BYTES)
                .zip(bytes.chunks(SECTOR_BYTES))
            {
                let keeps_this = random.below(1000) < share;
                let keeps = if is_whole { keeps_all } else { keeps_this };
                if keeps {
                    image.write(at, sector);
                }
            }
        }
        self.after_cut = Some(image);
    }

    /// Answers, or holds the answer back.
    fn answer(&mut self, reply: HeldReply, done: bool) {
        if !done {
            reply.fail();
        } else if self.after_cut.is_some() && !self.is_released {
            self.held.push(reply);
        } else {
            reply.done();
        }
    }
}

#[derive(Debug)]
struct Layer(Arc<Mutex<DiskTable>>);

impl Layer {
    fn attr(&self, ino: u64) -> Result<FileAttr, Errno> {
        let (length, kind) = match ino {
            1 => (0, FileType::Directory),
            _ => {
                let shelf = lock(&self.0);
                let disk = shelf.disks.get(&(ino - 1)).ok_or(Errno::ENOENT)?;
                (disk.now.length(), FileType::RegularFile)
            }
        };
        let time = SystemTime::UNIX_EPOCH;
        Ok(FileAttr {
            ino: INodeNo(ino),
            size: length,
            blocks: length / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for Layer {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
        match number.map_or(Err(Errno::ENOENT), |number| self.attr(number + 1)) {
            Ok(attr) => reply.entry(&NO_TIME, &attr, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino.0) {
            Ok(attr) => reply.attr(&NO_TIME, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // No cache of the kernel lies between the loop device and this disk.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match lock(&self.0).disks.get(&ino.0.wrapping_sub(1)) {
            Some(disk) => reply.data(&disk.now.read(offset, size as usize)),
            None => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut shelf = lock(&self.0);
        let Some(disk) = shelf.disks.get_mut(&ino.0.wrapping_sub(1)) else {
            return reply.error(Errno::EIO);
        };
        let done = disk.write(offset, data);
        let count = u32::try_from(data.len()).unwrap_or(0);
        disk.answer(HeldReply::Write(reply, count), done);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // At each close; it asks for nothing to be durable.
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut shelf = lock(&self.0);
        let Some(disk) = shelf.disks.get_mut(&ino.0.wrapping_sub(1)) else {
            return reply.error(Errno::EIO);
        };
        let done = disk.flush();
        disk.answer(HeldReply::Flush(reply), done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> DiskState {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(1 << 20)
            .unwrap();
        DiskState::new(
            &Image::load(&path).unwrap(),
            std::slice::from_ref(&(0x8000..0x9000)),
        )
    }

    /// Numbers of sectors that hold `byte`, of the first 64.
    fn sectors(image: &Image, byte: u8) -> usize {
        let sectors = image.read(0, 64 * 512);
        sectors.chunks(512).filter(|s| s == &[byte; 512]).count()
    }

    #[test]
    fn what_was_flushed_survives_and_the_rest_by_chance() {
        let mut seen = Vec::new();
        for seed in 0..40 {
            let mut disk = state();
            disk.plan.seed = seed;
            assert!(disk.write(0, &[1; 32 * 512]));
            assert!(disk.flush());
            assert!(disk.write(32 * 512, &[2; 32 * 512]));
            assert_eq!(sectors(&disk.now, 2), 32);
            disk.cut();
            let image = disk.after_cut.unwrap();
            assert_eq!(sectors(&image, 1), 32);
            seen.push(sectors(&image, 2));
        }
        assert!(seen.contains(&0) && seen.contains(&32), "{seen:?}");
        assert!(seen.iter().any(|n| (1..32).contains(n)), "nothing is torn");
    }

    #[test]
    fn the_cut_comes_at_its_event_and_only_once() {
        let mut disk = state();
        disk.plan.cut_at = Some(3);
        assert!(disk.write(0, &[1; 512]) && disk.flush());
        assert!(disk.after_cut.is_none());
        // At a flush: what it was to keep isn't kept for sure.
        assert!(disk.flush());
        let image = disk.after_cut.clone().unwrap();
        assert!(disk.write(0, &[2; 512]) && disk.flush());
        assert!(disk.after_cut == Some(image));
    }

    #[test]
    fn errors_come_once_and_change_nothing() {
        let mut disk = state();
        disk.plan.fail_write_at = Some(2);
        disk.plan.fail_flush_at = Some(1);
        assert!(disk.write(0, &[1; 512]));
        assert!(!disk.write(512, &[1; 512]) && disk.write(1024, &[1; 512]));
        assert_eq!(sectors(&disk.now, 1), 2);
        assert!(!disk.flush());
        assert_eq!(sectors(&disk.durable, 1), 0);
        assert!(disk.flush());
        assert_eq!(sectors(&disk.durable, 1), 2);
    }
}
