//! The stores of a simulation: disks that forget what was not synchronised, fail, and fill up.

mod content;
mod file;
mod pack;
mod sink;
mod source;
mod tree;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use xdfs_proto::digest::FragmentMap;
use xdfs_proto::frame::Resume;
use xdfs_proto::pack::{Failures, PackRequest, PackWriter};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::range::RangeSet;
use xdfs_proto::{Code, Fault, Retry, SourceTag};
use xdfs_store::{
    FileRequest, OpenedFile, OpenedSink, PackOptions, SinkRequest, Source, SourceInfo, Store,
};

pub use content::FileContent;
pub use tree::{Content, Tree};

use crate::random::mix;
use crate::world::World;
use sink::{Partial, SimSink};
use source::{Bytes, SimSource};

/// How a disk behaves.
#[derive(Clone, Debug, Default)]
pub struct Habits {
    /// Chance in a thousand that opening something fails.
    pub failing_opens: u64,
    /// The same for a read, and for a call about paths.
    pub failing_reads: u64,
    /// The same for a source to have changed when all of it was read.
    pub changed_sources: u64,
    /// The same for a write.
    pub failing_writes: u64,
    /// The same for making something durable.
    pub failing_syncs: u64,
    /// The same for giving a file its name.
    pub failing_publishes: u64,
    /// Such faults that may happen in all.
    pub faults: u64,
    /// A channel breaks soon after such a fault.
    pub breaks_channels: bool,
    /// Bytes that partial and published files may have together.
    pub room: u64,
    /// Writes are given to the storage thread.
    pub slow_writes: bool,
    /// Writes may come in any order.
    pub random_writes: bool,
    /// Opening and reading take long.
    pub is_slow: bool,
    /// Packs are carried out by many threads.
    pub packs_wait: bool,
}

/// A place with files. Clones share them.
#[derive(Clone, Debug)]
pub struct SimStore {
    world: Arc<World>,
    disk: Arc<Mutex<Disk>>,
    sources: Arc<BTreeMap<Vec<u8>, FileContent>>,
}

#[derive(Debug)]
struct Disk {
    habits: Habits,
    tree: Tree,
    partials: BTreeMap<Vec<u8>, Partial>,
    /// How often each source was opened, and whether the last of these was found changed.
    readings: BTreeMap<Vec<u8>, (u64, bool)>,
}

impl Disk {
    /// Whether there is room for so many bytes more.
    fn has_room(&self, bytes: u64) -> bool {
        let partials = self
            .partials
            .values()
            .map(|partial| partial.image.len() as u64);
        bytes == 0 || partials.sum::<u64>() + self.tree.bytes() + bytes <= self.habits.room
    }
}

fn no_space(operation: &str) -> Fault {
    Fault::new(Code::NoSpace, operation, "no space left on the device")
}

impl SimStore {
    /// An empty place, beside the `sources` that can be read.
    #[must_use]
    pub fn new(
        world: &Arc<World>,
        habits: Habits,
        sources: BTreeMap<Vec<u8>, FileContent>,
    ) -> Self {
        let disk = Disk {
            habits,
            tree: Tree::default(),
            partials: BTreeMap::new(),
            readings: BTreeMap::new(),
        };
        Self {
            world: Arc::clone(world),
            disk: Arc::new(Mutex::new(disk)),
            sources: Arc::new(sources),
        }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }

    /// Whether a fault of this chance happens now.
    fn happens(&self, chance: impl FnOnce(&Habits) -> u64, fault: &'static str) -> bool {
        let mut disk = self.disk();
        let chance = chance(&disk.habits);
        let may = chance > 0 && disk.habits.faults > 0;
        let happens = may && self.world.choose(|random| random.permille(chance));
        if happens {
            disk.habits.faults -= 1;
            self.world.count(fault);
            if disk.habits.breaks_channels {
                let writes = self.world.choose(|random| random.range(0, 3));
                self.world.network().break_after(writes);
            }
        }
        happens
    }

    fn fails(
        &self,
        chance: impl FnOnce(&Habits) -> u64,
        fault: &'static str,
        operation: &str,
    ) -> Result<(), Fault> {
        match self.happens(chance, fault) {
            true => Err(Fault::new(
                Code::Io,
                operation,
                "the disk of the simulation failed",
            )),
            false => Ok(()),
        }
    }

    /// The content of a source that is only read.
    #[must_use]
    pub fn source(&self, path: &[u8]) -> Option<&FileContent> {
        self.sources.get(path)
    }

    /// The bytes of a published file.
    #[must_use]
    pub fn file(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.disk()
            .tree
            .get(path)
            .map(|content| content.bytes.clone())
    }

    /// All names and contents.
    #[must_use]
    pub fn tree(&self) -> Tree {
        self.disk().tree.clone()
    }

    /// Puts a file there.
    pub fn put(&self, path: &[u8], bytes: Vec<u8>) {
        self.disk().tree.put(path, Content::of(bytes));
    }

    /// What was not durable is gone. Nothing may be open any more.
    pub fn crash(&self) {
        self.disk().tree.crash();
    }

    /// Nothing fails any more, and there is room.
    pub fn mend(&self) {
        let mut disk = self.disk();
        disk.habits.faults = 0;
        disk.habits.room = u64::MAX;
    }

    /// A source is opened: how often it was by now.
    fn begin_reading(&self, path: &[u8]) -> u64 {
        let mut disk = self.disk();
        let (opened, doubted) = disk.readings.entry(path.to_vec()).or_default();
        (*opened, *doubted) = (*opened + 1, false);
        *opened
    }

    /// A source has changed since it was opened for this time.
    fn doubt(&self, path: &[u8], time: u64) {
        if let Some((opened, doubted)) = self.disk().readings.get_mut(path) {
            *doubted |= *opened == time;
        }
    }

    /// Whether a source was found changed since it was opened last.
    #[must_use]
    pub fn is_doubted(&self, path: &[u8]) -> bool {
        let disk = self.disk();
        disk.readings.get(path).is_some_and(|(_, doubted)| *doubted)
    }

    /// Entries from `cursor` on, in parts of a few.
    fn list(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        let Call::List {
            cursor,
            entries_max,
            ..
        } = call
        else {
            return self.disk().tree.call(call);
        };
        let answer = self.disk().tree.call(call)?;
        let Answer::Entries { mut entries, .. } = answer else {
            return Ok(answer);
        };
        entries.retain(|entry| entry.name > *cursor);
        let is_cut = entries.len() > *entries_max as usize;
        entries.truncate(*entries_max as usize);
        let few = self.world.choose(|random| random.range(1, 5)) as usize;
        while entries.len() > few {
            let rest = entries.split_off(few);
            let cursor = entries.last().map(|entry| entry.name.clone());
            part(Answer::Entries { entries, cursor })?;
            entries = rest;
        }
        let last = entries.last().map(|entry| entry.name.clone());
        let cursor = last.filter(|_| is_cut);
        Ok(Answer::Entries { entries, cursor })
    }
}

impl Store for SimStore {
    fn is_slow(&self) -> bool {
        self.disk().habits.is_slow
    }

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        self.fails(
            |habits| habits.failing_opens,
            "open failed",
            "open the source",
        )?;
        let info = |length: u64, tag, is_stream: bool, sparse| SourceInfo {
            length: (!is_stream).then_some(length),
            tag,
            mode: None,
            mtime_ns: None,
            random_reads: !is_stream,
            sparse,
        };
        let (bytes, info) = match (self.sources.get(path), self.file(path)) {
            (Some(content), _) => {
                let sparse = !content.hole.is_empty();
                let info = info(content.length, content.tag(), content.is_stream, sparse);
                (Bytes::Made(content.clone()), info)
            }
            (None, Some(bytes)) => {
                let mut tag = SourceTag::default();
                let word = bytes
                    .iter()
                    .fold(1, |sum, byte| mix(sum ^ u64::from(*byte)));
                tag.0[..8].copy_from_slice(&(word | 1).to_le_bytes());
                let info = info(bytes.len() as u64, tag, false, false);
                (Bytes::Written(bytes), info)
            }
            (None, None) => {
                return Err(Fault::new(Code::NotFound, "open", "no such file").path(path));
            }
        };
        let opened = self.begin_reading(path);
        let source = SimSource::new(self.clone(), path.to_vec(), opened, info, bytes);
        Ok(Box::new(source))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.fails(
            |habits| habits.failing_opens,
            "open failed",
            "open the target",
        )?;
        let path = request.path.clone();
        let mut disk = self.disk();
        if disk.tree.get(&path).is_some() && !request.overwrite {
            let fault = Fault::new(Code::AlreadyExists, "open the target", "it exists");
            return Err(fault.path(path));
        }
        if disk
            .partials
            .get(&path)
            .is_some_and(|partial| partial.is_open)
        {
            let cause = "another transfer writes there";
            let fault = Fault::new(Code::Busy, "open the target", cause);
            return Err(fault.path(path).retry(Retry::AfterMs(200)));
        }
        let is_same = |partial: &Partial| {
            request.resume != Resume::Never
                && request.tag != SourceTag::default()
                && partial.tag == request.tag
                && partial.kind == request.digest
        };
        if !disk.partials.get(&path).is_some_and(is_same) {
            let fresh = Partial {
                tag: request.tag,
                kind: request.digest,
                block_size: request.block_size,
                image: Vec::new(),
                fresh: RangeSet::default(),
                durable: RangeSet::default(),
                journal: FragmentMap::new(request.digest),
                is_open: false,
            };
            disk.partials.insert(path.clone(), fresh);
        }
        let partial = disk.partials.get_mut(&path).unwrap();
        partial.is_open = true;
        let durable: Vec<_> = partial.journal.fragments().copied().collect();
        let block_size = partial.block_size;
        drop(disk);
        let unverified = request.resume == Resume::Verify && !durable.is_empty();
        Ok(OpenedSink {
            sink: Box::new(SimSink::new(self.clone(), path.clone())),
            path,
            durable,
            unverified,
            block_size,
        })
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        Ok(request.path.clone())
    }

    fn read_pack(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        pack::read(self, root, request, pack)
    }

    fn write_pack(&self, root: &[u8], how: PackOptions, pack: &[u8]) -> Result<Failures, Fault> {
        pack::write(self, root, how, pack)
    }

    fn packs_wait(&self, _: &[u8]) -> bool {
        self.disk().habits.packs_wait
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        self.fails(
            |habits| habits.failing_reads,
            "call failed",
            call.operation(),
        )?;
        self.world.act(15);
        self.list(call, part)
    }

    fn open_file(&self, request: &FileRequest) -> Result<OpenedFile, Fault> {
        file::open(self, request)
    }
}
