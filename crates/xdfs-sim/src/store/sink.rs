//! What is written under no name yet.

use std::io::IoSlice;

use xdfs_proto::digest::{DigestKind, Fragment, FragmentMap};
use xdfs_proto::range::RangeSet;
use xdfs_proto::{ByteRange, Fault, SourceTag};
use xdfs_store::{Capabilities, Sink};

use super::{Content, SimStore, no_space};
use crate::random::mix;
use crate::world::Held;

/// What a place holds that nobody wrote, or that a crash took.
const GARBAGE: u8 = 0xa5;

/// What is there of a file that isn't published.
#[derive(Clone, Debug)]
pub(super) struct Partial {
    pub(super) tag: SourceTag,
    pub(super) kind: DigestKind,
    pub(super) block_size: u32,
    pub(super) image: Vec<u8>,
    /// Written since the last sync that succeeded.
    pub(super) fresh: RangeSet,
    pub(super) durable: RangeSet,
    pub(super) journal: FragmentMap,
    pub(super) is_open: bool,
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

#[derive(Debug)]
pub(super) struct SimSink {
    store: SimStore,
    path: Vec<u8>,
    is_done: bool,
    _held: Held,
}

impl SimSink {
    pub(super) fn new(store: SimStore, path: Vec<u8>) -> Self {
        Self {
            _held: store.world.hold(),
            store,
            path,
            is_done: false,
        }
    }

    fn partial<T>(&self, act: impl FnOnce(&mut Partial) -> T) -> T {
        act(self.store.disk().partials.get_mut(&self.path).unwrap())
    }
}

impl Sink for SimSink {
    fn capabilities(&self) -> Capabilities {
        let disk = self.store.disk();
        Capabilities {
            random_writes: disk.habits.random_writes,
            slow_writes: disk.habits.slow_writes,
            durable: true,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        self.store
            .fails(|habits| habits.failing_writes, "write failed", "write")?;
        self.store.world.act(mix(offset));
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let end = offset as usize + bytes.len();
        let mut disk = self.store.disk();
        let grown = end.saturating_sub(disk.partials[&self.path].image.len());
        if !disk.has_room(grown as u64) {
            self.store.world.count("no space");
            return Err(no_space("write"));
        }
        let partial = disk.partials.get_mut(&self.path).unwrap();
        partial.image.resize(partial.image.len().max(end), 0);
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
        let failed = self
            .store
            .fails(|habits| habits.failing_syncs, "sync failed", "sync");
        if failed.is_err() {
            // The system may have dropped what it could not write.
            self.partial(Partial::crash);
            return failed;
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
        let fragments = |partial: &mut Partial| partial.journal.fragments().copied().collect();
        Ok(Some(self.partial(fragments)))
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        self.store
            .fails(|habits| habits.failing_syncs, "sync failed", "record")?;
        let world = &self.store.world;
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
        let chance = |habits: &super::Habits| habits.failing_publishes;
        self.store.fails(chance, "publish failed", "publish")?;
        let mut disk = self.store.disk();
        let mut partial = disk.partials.remove(&self.path).unwrap();
        partial.image.resize(length as usize, 0);
        disk.tree.put(&self.path, Content::of(partial.image));
        self.is_done = true;
        self.store.world.act(16);
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.store.disk().partials.remove(&self.path);
        self.is_done = true;
        Ok(())
    }

    xdfs_store::defaults!(Sink: begin_direct, end_direct, begin_write_back, read_back, shared);
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
