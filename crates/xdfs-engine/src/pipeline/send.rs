//! Blocks that go out: any channel that can take one gets the next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use xdfs_proto::digest::{BlockHasher, Fragment};
use xdfs_proto::frame::{BlockHeader, Frame};
use xdfs_proto::sender::Extent;
use xdfs_proto::{ByteRange, Code, DigestKind, Fault, FileId};
use xdfs_store::Source;

use super::{PIECE_BYTES, Pipeline};
use crate::channel::{Payload, Written};
use crate::feeder::{Fed, Feeder};
use crate::kernel::Kernel;

/// How far ahead of the reads the store is told of them, in bytes.
const READ_AHEAD_BYTES: u64 = 16 << 20;
/// How much is announced at once, in bytes.
const READ_AHEAD_STEP: u64 = 4 << 20;
/// Blocks a channel may send before the others get their turn.
const TURN_BLOCKS: usize = 4;

/// A source that is being sent.
#[derive(Debug)]
pub(super) struct OpenSource {
    pub(super) reader: Reader,
    /// Offset in the source of the first byte of the transfer.
    pub(super) offset: u64,
    pub(super) digest: DigestKind,
    /// Up to where reads were announced.
    announced: u64,
    /// Up to where the source holds data, as far as it was looked.
    data_until: u64,
    pub(super) busy: Duration,
    pub(super) opened_at: Duration,
    /// What EOFR told of the time that the store took. It is told again unchanged, since a frame
    /// that is sent again is the same frame.
    pub(super) told_wait: Option<u16>,
    /// It was found unchanged after all of it was read.
    verified: bool,
}

/// How a source is read.
#[derive(Debug)]
pub(super) enum Reader {
    /// Anywhere, in the pipeline's own thread.
    Random(Box<dyn Source>),
    /// From front to back, by a feeder that starts once the block size is known.
    Stream(Option<Box<dyn Source>>, Option<Feeder>),
}

/// One block of a uniform source, made once.
#[derive(Debug)]
pub(super) struct UniformBlock {
    kind: DigestKind,
    check: bool,
    bytes: Arc<[u8]>,
    hasher: BlockHasher,
}

impl OpenSource {
    pub(super) fn new(
        source: Box<dyn Source>,
        offset: u64,
        digest: DigestKind,
        now: Duration,
    ) -> Self {
        let reader = if source.info().random_reads {
            Reader::Random(source)
        } else {
            Reader::Stream(Some(source), None)
        };
        Self {
            reader,
            offset,
            digest,
            announced: 0,
            data_until: 0,
            busy: Duration::ZERO,
            opened_at: now,
            told_wait: None,
            verified: false,
        }
    }
}

/// A block that was made ready.
enum Ready {
    /// Send it.
    Block {
        extent: Extent,
        check: u32,
        payload: Payload,
    },
    /// It is a hole.
    Hole(Extent),
    /// The source has nothing more, or nothing yet.
    Nothing,
    /// No buffer is free.
    Starved,
}

impl<K: Kernel> Pipeline<K> {
    /// Writes what waits, then hands blocks to channels that can take them.
    pub(super) fn send_all(&mut self) {
        for _ in 0..self.write_queue.len() {
            let Some(slot) = self.write_queue.pop_front() else {
                break;
            };
            let Some(Some(channel)) = self.channels.get_mut(slot) else {
                continue;
            };
            channel.write_queued = false;
            if matches!(channel.phase, crate::channel::Phase::Connecting(_)) {
                self.go_on_opening(slot);
                continue;
            }
            self.flush(slot);
        }
        self.more_to_send = false;
        if !self.strict_met || self.ended.is_some() {
            return;
        }
        let mut turns = self.idle_queue.len().max(1) * TURN_BLOCKS;
        // Channels that have nothing to send at the moment keep their places.
        let mut passed = Vec::new();
        while turns > 0 && !self.sender.is_idle() && self.is_rate_open() {
            turns -= 1;
            let Some(slot) = self.next_idle() else { break };
            if !self.send_block(slot) {
                passed.push(slot);
                // What goes ahead of ACCEPT goes on one channel; all else on any.
                if !self.sender.is_ahead() {
                    break;
                }
            }
        }
        self.more_to_send = turns == 0;
        for slot in passed.into_iter().rev() {
            if let Some(Some(channel)) = self.channels.get_mut(slot)
                && !channel.idle_queued
            {
                channel.idle_queued = true;
                self.idle_queue.push_front(slot);
            }
        }
    }

    /// The channel that has waited longest for a block.
    fn next_idle(&mut self) -> Option<usize> {
        while let Some(slot) = self.idle_queue.pop_front() {
            let Some(Some(channel)) = self.channels.get_mut(slot) else {
                continue;
            };
            channel.idle_queued = false;
            let takes = channel.is_open() && channel.writable && !channel.has_pending();
            if takes && !self.set.is_leaving(channel.index) {
                return Some(slot);
            }
        }
        None
    }

    /// Gives a channel the next block and writes it. `false` if there is none.
    fn send_block(&mut self, slot: usize) -> bool {
        let Some(Some(channel)) = self.channels.get(slot) else {
            return false;
        };
        let index = channel.index;
        if let Some(extent) = self.sender.next_extent(index) {
            return self.send_extent(slot, extent);
        }
        let Some(offer) = self.sender.next_pack(index) else {
            return false;
        };
        if let Frame::Offer(offer) = &offer {
            self.offered_at.get_or_insert((offer.file, self.now));
        }
        if let Some(Some(channel)) = self.channels.get_mut(slot) {
            channel.push(&offer);
        }
        let extent = self.sender.next_extent(index);
        if extent.is_none_or(|extent| !self.send_extent(slot, extent)) {
            self.flush(slot);
        }
        true
    }

    /// Gives a channel a block and writes it. `false` if the source has nothing for it now.
    fn send_extent(&mut self, slot: usize, extent: Extent) -> bool {
        let Some(Some(channel)) = self.channels.get(slot) else {
            self.sender.put_back(extent);
            return false;
        };
        let clear = channel.is_clear(self.sender.may_be_clear(extent));
        let (index, check) = (channel.index, channel.checks(clear));
        let ready = match self.prepare(extent, check) {
            Ok(ready) => ready,
            Err(fault) => {
                self.sources.remove(&extent.file);
                self.sender.fail(extent.file, fault);
                return false;
            }
        };
        match ready {
            Ready::Nothing => return false,
            Ready::Starved => {
                self.sender.put_back(extent);
                return false;
            }
            Ready::Hole(extent) => {
                self.sender.assign(index, extent, self.now);
                if let Some(Some(channel)) = self.channels.get_mut(slot) {
                    channel.push(&Frame::Hole {
                        file: extent.file,
                        range: extent.range,
                    });
                }
            }
            Ready::Block {
                extent,
                check,
                payload,
            } => {
                let len = extent.range.len();
                let header = BlockHeader {
                    file: extent.file,
                    check,
                    clear,
                    offset: extent.range.start,
                    // A block is never longer than the session's block size, a `u32`.
                    length: u32::try_from(len).unwrap_or(u32::MAX),
                };
                self.sender.assign(index, extent, self.now);
                self.bounds.take(len, self.now);
                if let Some(Some(channel)) = self.channels.get_mut(slot) {
                    channel.send(&header, payload);
                }
            }
        }
        self.flush(slot);
        true
    }

    /// Writes what waits on a channel, as far as it takes it.
    pub(super) fn flush(&mut self, slot: usize) {
        loop {
            let Some(Some(channel)) = self.channels.get_mut(slot) else {
                return;
            };
            self.last_said = self.now;
            match channel.write() {
                Ok(Written::All(payload)) => {
                    if let Some(payload) = payload {
                        self.take_back(payload);
                    }
                    break;
                }
                Ok(Written::Block(payload)) => {
                    if let Some(payload) = payload {
                        self.take_back(payload);
                    }
                }
                Ok(Written::Blocked) => {
                    channel.writable = false;
                    return;
                }
                Err(error) => {
                    let fault = Fault::from_io("write to a channel", "", &error);
                    self.channel_gone(slot, Some(&fault));
                    return;
                }
            }
        }
        self.queue(slot);
    }

    /// Takes the buffer of a block that is written.
    pub(super) fn take_back(&mut self, payload: Payload) {
        if let Payload::Pooled(buffer) = payload {
            // A channel opened before the block size was agreed on sends no blocks.
            self.send_pool.give(buffer);
        }
    }

    /// Reads an extent and computes its check value and digest state.
    fn prepare(&mut self, mut extent: Extent, check: bool) -> Result<Ready, Fault> {
        let file = extent.file;
        let Some(open) = self.sources.get_mut(&file) else {
            return Err(Fault::new(
                Code::Internal,
                "read the source",
                "it is not open",
            ));
        };
        let source = match &mut open.reader {
            Reader::Stream(..) => return self.prepare_streamed(extent, check),
            Reader::Random(source) => source,
        };
        let len = extent.range.len() as usize;
        let (grid, length) = self.sender.shape(file).unwrap_or((1, None));
        if source.is_uniform() {
            let kind = open.digest;
            let (check, fragment, bytes) = self.uniform_block(kind, check, file, extent.range);
            if !extent.again {
                self.sender.extent_read(file, fragment);
            }
            let payload = Payload::Shared(bytes);
            return Ok(Ready::Block {
                extent,
                check,
                payload,
            });
        }
        if let Some(memory) = source.memory() {
            let start = usize::try_from(open.offset + extent.range.start).unwrap_or(usize::MAX);
            let bytes = memory
                .get(start..start.saturating_add(len))
                .unwrap_or_default();
            let mut hasher = BlockHasher::new(open.digest, check, extent.range.start);
            hasher.update(bytes);
            let (check, fragment) = hasher.finish(file);
            if !extent.again {
                self.sender.extent_read(file, fragment);
            }
            let payload = Payload::Source(memory, start);
            return Ok(Ready::Block {
                extent,
                check,
                payload,
            });
        }
        let base = open.offset;
        let end = length.unwrap_or(u64::MAX);
        if !extent.again && extent.range.end > open.data_until && length.is_some() {
            let from = base + extent.range.start;
            let data = source.next_data(from, base + end)?;
            let (start, until) =
                data.map_or((end, end), |d| (d.start.saturating_sub(base), d.end - base));
            let aligned = if start >= end {
                end
            } else {
                start - start % grid
            };
            if aligned >= extent.range.end {
                extent.range = self.sender.widen_hole(extent, aligned);
                // What follows is looked at again: a hole may be longer than one frame takes.
                open.data_until = extent.range.end;
                self.sender.hole_read(file, extent.range);
                return Ok(Ready::Hole(extent));
            }
            open.data_until = if start >= end { end } else { until };
        }
        let Some(mut buffer) = self.send_pool.take() else {
            return Ok(Ready::Starved);
        };
        if extent.range.end + READ_AHEAD_BYTES > open.announced && length.is_some() {
            let from = open.announced.max(extent.range.end);
            let to = (from + READ_AHEAD_STEP).min(end);
            if from < to && from < extent.range.end + READ_AHEAD_BYTES {
                source.will_read(ByteRange {
                    start: base + from,
                    end: base + to,
                });
                open.announced = to;
            }
        }
        let mut hasher = BlockHasher::new(open.digest, check, extent.range.start);
        let (mut n, mut failed) = (0, None);
        // In pieces, so that what was read is hashed while it is in the cache.
        for piece in buffer[..len].chunks_mut(PIECE_BYTES) {
            let start = Instant::now();
            let read = source.read_at(base + extent.range.start + n as u64, piece);
            open.busy += start.elapsed();
            match read {
                Ok(read) => {
                    hasher.update(&piece[..read]);
                    n += read;
                    if read < piece.len() {
                        break;
                    }
                }
                Err(fault) => {
                    failed = Some(fault);
                    break;
                }
            }
        }
        if let Some(fault) = failed {
            self.send_pool.give(buffer);
            return Err(fault);
        }
        if n < len {
            if length.is_some() {
                self.send_pool.give(buffer);
                return Err(Fault::new(
                    Code::SourceChanged,
                    "read the source",
                    "it became shorter while it was read",
                ));
            }
            if n == 0 {
                self.send_pool.give(buffer);
                self.sender.source_ended(file, extent.range.start);
                return Ok(Ready::Nothing);
            }
            extent.range.end = extent.range.start + n as u64;
        }
        let (value, fragment) = hasher.finish(file);
        if !extent.again {
            self.sender.extent_read(file, fragment);
        }
        if n < len {
            self.sender.source_ended(file, extent.range.end);
        }
        Ok(Ready::Block {
            extent,
            check: value,
            payload: Payload::Pooled(buffer),
        })
    }

    /// The same for a source that is read from front to back.
    fn prepare_streamed(&mut self, mut extent: Extent, check: bool) -> Result<Ready, Fault> {
        let file = extent.file;
        if extent.again {
            return Err(Fault::new(
                Code::ConnectionLost,
                "send the stream again",
                "a block was lost, and the source can be read only once",
            ));
        }
        let (notifier, ids) = (self.kernel.notifier(), self.ids.clone());
        let grid = self
            .sender
            .shape(file)
            .map_or_else(|| self.block_size.into(), |(grid, _)| grid);
        let Some(open) = self.sources.get_mut(&file) else {
            return Ok(Ready::Nothing);
        };
        let Reader::Stream(source, feeder) = &mut open.reader else {
            return Ok(Ready::Nothing);
        };
        if let Some(source) = source.take() {
            *feeder = Some(Feeder::start(source, grid as usize, notifier, ids)?);
        }
        let fed = feeder.as_mut().map_or(Ok(Fed::Wait), Feeder::next)?;
        match fed {
            Fed::Wait => {
                self.sender.put_back(extent);
                Ok(Ready::Nothing)
            }
            Fed::End => {
                self.sender.source_ended(file, extent.range.start);
                Ok(Ready::Nothing)
            }
            Fed::Block(block) => {
                extent.range.end = extent.range.start + block.len() as u64;
                let mut hasher = BlockHasher::new(open.digest, check, extent.range.start);
                hasher.update(&block);
                let (value, fragment) = hasher.finish(file);
                self.sender.extent_read(file, fragment);
                if block.len() < grid as usize {
                    self.sender.source_ended(file, extent.range.end);
                }
                Ok(Ready::Block {
                    extent,
                    check: value,
                    payload: Payload::Owned(block),
                })
            }
        }
    }

    /// A block of zeros: made once for each length, hashed once where the digest allows it.
    fn uniform_block(
        &mut self,
        kind: DigestKind,
        check: bool,
        file: FileId,
        range: ByteRange,
    ) -> (u32, Fragment, Arc<[u8]>) {
        // A block is never longer than the session's block size, a `u32`.
        let len = range.len() as usize;
        let known = self
            .uniform
            .as_ref()
            .filter(|u| u.bytes.len() == len && u.kind == kind && u.check == check)
            .and_then(|u| Some((u.hasher.moved_to(range.start)?, Arc::clone(&u.bytes))));
        if let Some((hasher, bytes)) = known {
            let (value, fragment) = hasher.finish(file);
            return (value, fragment, bytes);
        }
        let bytes: Arc<[u8]> = Arc::from(vec![0; len]);
        let mut hasher = BlockHasher::new(kind, check, range.start);
        hasher.update(&bytes);
        if let Some(hasher) = hasher.moved_to(0) {
            let bytes = Arc::clone(&bytes);
            self.uniform = Some(UniformBlock {
                kind,
                check,
                bytes,
                hasher,
            });
        }
        let (value, fragment) = hasher.finish(file);
        (value, fragment, bytes)
    }

    /// Checks that a source is still what was offered, when all of it was sent.
    pub(super) fn verify_source(&mut self, file: FileId) -> Result<(), Fault> {
        let Some(open) = self.sources.get_mut(&file) else {
            return Ok(());
        };
        // EOFR comes again after a lost channel, when the receiver may have published already.
        if let (Reader::Random(source), false) = (&mut open.reader, open.verified) {
            source.verify_unchanged()?;
            open.verified = true;
        }
        Ok(())
    }
}
