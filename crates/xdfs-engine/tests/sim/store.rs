//! The stores of a simulation: disks that forget what was not synced, fail, and fill up.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard};

use xdfs_proto::digest::{DigestKind, Fragment, FragmentMap};
use xdfs_proto::frame::Resume;
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::range::RangeSet;
use xdfs_proto::{ByteRange, Code, Fault, Retry, SourceTag};
use xdfs_store::{Capabilities, OpenedSink, Sink, SinkRequest, Source, SourceInfo, Store};

use crate::random::mix;
use crate::world::World;

/// What a place holds that nobody wrote, or that a crash took.
const GARBAGE: u8 = 0xa5;

/// How a disk behaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// Chances in a thousand, a call each.
    pub(crate) failing_opens: u64,
    pub(crate) failing_reads: u64,
    /// Sources that turn out to have changed when all of them was read.
    pub(crate) changed_sources: u64,
    pub(crate) failing_writes: u64,
    pub(crate) failing_syncs: u64,
    pub(crate) failing_publishes: u64,
    /// Such faults that may still happen.
    pub(crate) faults_left: u64,
    /// Bytes that partial and published files may have together.
    pub(crate) room: u64,
    /// Writes are given to the storage thread.
    pub(crate) slow_writes: bool,
    pub(crate) random_writes: bool,
    /// Opening and reading take long.
    pub(crate) is_slow: bool,
    /// Published, durable files.
    pub(crate) files: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) partials: BTreeMap<Vec<u8>, Partial>,
    pub(crate) faults_met: u64,
}

/// What is there of a file that isn't published.
#[derive(Clone, Debug)]
pub(crate) struct Partial {
    tag: SourceTag,
    kind: DigestKind,
    block_size: u32,
    image: Vec<u8>,
    /// Written since the last sync that succeeded.
    fresh: RangeSet,
    durable: RangeSet,
    journal: FragmentMap,
    is_open: bool,
}

impl Partial {
    /// What was not durable is gone.
    fn crash(&mut self) {
        for range in std::mem::take(&mut self.fresh).as_slice() {
            self.durable.remove(*range);
            self.image[range.start as usize..range.end as usize].fill(GARBAGE);
        }
    }
}

/// A place with files.
#[derive(Clone, Debug)]
pub(crate) struct SimStore {
    pub(crate) world: Arc<World>,
    pub(crate) disk: Arc<Mutex<Disk>>,
    /// The files that can be read, by path.
    pub(crate) sources: Arc<BTreeMap<Vec<u8>, FileContent>>,
}

/// What a file has.
#[derive(Clone, Debug)]
pub(crate) struct FileContent {
    pub(crate) seed: u64,
    pub(crate) length: u64,
    /// Zeros, of which the store knows.
    pub(crate) hole: ByteRange,
    pub(crate) is_stream: bool,
}

impl FileContent {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length as usize];
        self.read(0, &mut bytes);
        bytes
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let rest = usize::try_from(self.length.saturating_sub(offset)).unwrap();
        let count = buf.len().min(rest);
        let mut word = u64::MAX;
        let mut value = 0;
        for (at, byte) in (offset..).zip(&mut buf[..count]) {
            if word != at / 8 {
                word = at / 8;
                value = mix(self.seed ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            }
            let is_hole = self.hole.start <= at && at < self.hole.end;
            *byte = if is_hole {
                0
            } else {
                value.to_le_bytes()[(at % 8) as usize]
            };
        }
        count
    }

    fn tag(&self) -> SourceTag {
        let mut tag = SourceTag::default();
        if !self.is_stream {
            tag.0[..8].copy_from_slice(&(mix(self.seed) | 1).to_le_bytes());
        }
        tag
    }
}

fn failed(operation: &str) -> Fault {
    Fault::new(Code::Io, operation, "the disk of the simulation failed")
}

impl SimStore {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }

    fn fails(&self, chance: impl FnOnce(&Disk) -> u64, operation: &str) -> Result<(), Fault> {
        let mut disk = self.disk();
        let chance = chance(&disk);
        let has_left = chance > 0 && disk.faults_left > 0;
        if has_left && self.world.choose(|random| random.permille(chance)) {
            disk.faults_left -= 1;
            disk.faults_met += 1;
            return Err(failed(operation));
        }
        Ok(())
    }

    /// The published files.
    pub(crate) fn published(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.disk().files.clone()
    }

    pub(crate) fn file(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.disk().files.get(path).cloned()
    }

    /// Nothing fails any more, and there is room.
    pub(crate) fn mend(&self) {
        let mut disk = self.disk();
        disk.faults_left = 0;
        disk.room = u64::MAX;
    }
}

impl Store for SimStore {
    fn is_slow(&self) -> bool {
        self.disk().is_slow
    }

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        self.fails(|disk| disk.failing_opens, "open the source")?;
        let content = self.sources.get(path).cloned();
        let content =
            content.ok_or_else(|| Fault::new(Code::NotFound, "open", "no such file").path(path))?;
        Ok(Box::new(SimSource {
            opened: self.world.open(path),
            path: path.to_vec(),
            info: SourceInfo {
                length: (!content.is_stream).then_some(content.length),
                tag: content.tag(),
                mode: None,
                mtime_ns: None,
                random_reads: !content.is_stream,
                sparse: !content.hole.is_empty(),
            },
            content,
            store: self.clone(),
        }))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.fails(|disk| disk.failing_opens, "open the target")?;
        let path = request.path.clone();
        let mut disk = self.disk();
        if disk.files.contains_key(&path) && !request.overwrite {
            let fault = Fault::new(Code::AlreadyExists, "open the target", "it exists");
            return Err(fault.path(path));
        }
        let is_open = disk.partials.get(&path).is_some_and(|p| p.is_open);
        if is_open {
            let fault = Fault::new(
                Code::Busy,
                "open the target",
                "another transfer writes there",
            );
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
        let durable: Vec<Fragment> = partial.journal.fragments().copied().collect();
        let block_size = partial.block_size;
        drop(disk);
        let unverified = request.resume == Resume::Verify && !durable.is_empty();
        Ok(OpenedSink {
            sink: Box::new(SimSink {
                store: self.clone(),
                path: path.clone(),
                is_done: false,
            }),
            path,
            durable,
            unverified,
            block_size,
        })
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        Ok(request.path.clone())
    }

    fn call(
        &self,
        call: &Call,
        _: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        self.fails(|disk| disk.failing_reads, call.operation())?;
        Ok(Answer::Done)
    }
}

#[derive(Debug)]
struct SimSource {
    path: Vec<u8>,
    /// How often its path had been opened then.
    opened: u64,
    info: SourceInfo,
    content: FileContent,
    store: SimStore,
}

impl Source for SimSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        self.store
            .fails(|disk| disk.failing_reads, "read the source")?;
        self.store.world.note(offset);
        Ok(self.content.read(offset, buf))
    }

    fn is_slow(&self) -> bool {
        self.store.disk().is_slow
    }

    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<ByteRange>, Fault> {
        let hole = self.content.hole;
        let start = match hole.start <= offset && offset < hole.end {
            true => hole.end,
            false => offset,
        };
        let until = if start < hole.start {
            hole.start.min(end)
        } else {
            end
        };
        let range = ByteRange { start, end: until };
        Ok((start < end).then_some(range))
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        let operation = "read the source";
        let result = self.store.fails(|disk| disk.changed_sources, operation);
        result.map_err(|_| {
            self.store.world.doubt(&self.path, self.opened);
            Fault::new(Code::SourceChanged, operation, "it changed").retry(Retry::Now)
        })
    }
}

#[derive(Debug)]
struct SimSink {
    store: SimStore,
    path: Vec<u8>,
    is_done: bool,
}

impl SimSink {
    fn partial<T>(&self, act: impl FnOnce(&mut Partial) -> T) -> T {
        act(self.store.disk().partials.get_mut(&self.path).unwrap())
    }
}

impl Sink for SimSink {
    fn capabilities(&self) -> Capabilities {
        let disk = self.store.disk();
        Capabilities {
            random_writes: disk.random_writes,
            slow_writes: disk.slow_writes,
            durable: true,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        self.store.fails(|disk| disk.failing_writes, "write")?;
        self.store.world.act(mix(offset));
        let mut disk = self.store.disk();
        let used: usize = disk.partials.values().map(|p| p.image.len()).sum();
        let used = used + disk.files.values().map(Vec::len).sum::<usize>();
        let partial = disk.partials.get_mut(&self.path).unwrap();
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        let end = offset as usize + length;
        let grown = end.saturating_sub(partial.image.len());
        if grown > 0 && (used + grown) as u64 > disk.room {
            disk.faults_met += 1;
            return Err(Fault::new(
                Code::NoSpace,
                "write",
                "no space left on the device",
            ));
        }
        let partial = disk.partials.get_mut(&self.path).unwrap();
        partial.image.resize(partial.image.len().max(end), 0);
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        partial.image[offset as usize..end].copy_from_slice(&bytes);
        let range = ByteRange {
            start: offset,
            end: end as u64,
        };
        partial.fresh.insert(range);
        partial.durable.remove(range);
        Ok(())
    }

    fn hole(&mut self, range: ByteRange) {
        self.partial(|partial| {
            let end = partial.image.len().min(range.end as usize);
            if let Some(bytes) = partial.image.get_mut(range.start as usize..end) {
                bytes.fill(0);
            }
        });
    }

    fn sync(&mut self) -> Result<(), Fault> {
        if let Err(fault) = self.store.fails(|disk| disk.failing_syncs, "sync") {
            // The system may have dropped what it could not write.
            self.partial(Partial::crash);
            return Err(fault);
        }
        self.store.world.act(8);
        self.partial(|partial| {
            for range in std::mem::take(&mut partial.fresh).as_slice() {
                partial.durable.insert(*range);
            }
        });
        Ok(())
    }

    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault> {
        Ok(Some(
            self.partial(|p| p.journal.fragments().copied().collect()),
        ))
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        self.store.fails(|disk| disk.failing_syncs, "record")?;
        let world = Arc::clone(&self.store.world);
        self.partial(|partial| {
            for fragment in durable {
                if partial.fresh.overlaps(fragment.range) {
                    world.violation("a range was recorded before it was durable");
                }
                partial.journal.insert(*fragment);
            }
        });
        Ok(())
    }

    fn publish(&mut self, length: u64, _: &[Fragment]) -> Result<(), Fault> {
        self.sync()?;
        self.store.fails(|disk| disk.failing_publishes, "publish")?;
        if self.store.world.is_doubted(&self.path) {
            let what = "a file was published whose source had changed";
            self.store.world.violation(what);
        }
        let mut disk = self.store.disk();
        let mut partial = disk.partials.remove(&self.path).unwrap();
        partial.image.resize(length as usize, 0);
        disk.files.insert(self.path.clone(), partial.image);
        self.is_done = true;
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.store.disk().partials.remove(&self.path);
        self.is_done = true;
        Ok(())
    }
}

impl Drop for SimSink {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        if let Some(partial) = self.store.disk().partials.get_mut(&self.path) {
            partial.is_open = false;
            // The power fails whenever a file is left.
            partial.crash();
        }
    }
}
