//! Blocks read for sending. Data comes from a feeder (a stream), a worker (a slow source), the
//! source's own memory, a shared uniform block, or a read into a pooled buffer.

use std::sync::Arc;

use xdfs_proto::digest::BlockHasher;
use xdfs_proto::frame::Frame;
use xdfs_proto::sender::Extent;
use xdfs_proto::{ByteRange, Code, DigestKind, Fault, FileId};

use super::Pipeline;
use super::buffers::{Buffers, Purpose, SEND_POOL_BYTES};
use super::source::{Reader, Verification};
use crate::channel::Payload;
use crate::feeder::{Feeder, FeederPoll};
use crate::kernel::Kernel;
use crate::reader::{BlockReader, ReadBlock, ReaderEvent, WantedBlock};

/// Workers that read a file from a disk: as many requests keep it busy.
const DISK_READERS: usize = 4;

/// The result of reading an extent for sending.
pub(super) enum ExtentRead {
    /// A block to send.
    Block {
        extent: Extent,
        check: u32,
        payload: Payload,
    },
    /// A hole to send.
    Hole(Extent),
    /// The source has no data yet; another file may proceed.
    Later,
    /// The source has ended.
    Nothing,
    /// No buffer is free.
    Starved,
}

impl<K: Kernel> Pipeline<K> {
    /// Reads an extent for sending, with its check value and digest state.
    pub(super) fn read_extent(&mut self, extent: Extent, check: bool) -> Result<ExtentRead, Fault> {
        let Some(open) = self.transfers.source_mut(extent.file) else {
            return Err(not_open());
        };
        let source = match &open.reader {
            Reader::Stream(..) => return self.read_streamed(extent, check),
            Reader::Slow => return Ok(self.request_read(extent, check)),
            Reader::Random(source) => source,
        };
        let (offset, digest) = (open.offset, open.digest);
        if source.is_uniform() {
            return Ok(self.read_uniform(extent, digest, check));
        }
        if let Some(memory) = source.memory() {
            return Ok(self.read_memory(extent, memory, offset, digest, check));
        }
        if !extent.is_resend && self.reads_ahead(extent)? {
            return Ok(self.request_read(extent, check));
        }
        if let Some(hole) = self.read_hole(extent)? {
            return Ok(ExtentRead::Hole(hole));
        }
        self.read_into_buffer(extent, check)
    }

    /// Whether workers read an extent: one that has to come from a disk. The first one starts them.
    fn reads_ahead(&mut self, extent: Extent) -> Result<bool, Fault> {
        let Some(open) = self.transfers.source_mut(extent.file) else {
            return Err(not_open());
        };
        let Reader::Random(source) = &open.reader else {
            return Ok(false);
        };
        // A block must not overtake those before it.
        if open.ahead.as_ref().is_some_and(|ahead| !ahead.is_idle()) {
            return Ok(true);
        }
        let range = ByteRange {
            start: open.offset + extent.range.start,
            end: open.offset + extent.range.end,
        };
        if !source.is_cold(range) {
            return Ok(false);
        }
        if open.ahead.is_none() {
            let sources: Option<Vec<_>> = (0..DISK_READERS).map(|_| source.direct()).collect();
            let Some(sources) = sources else {
                return Ok(false);
            };
            let (environment, notifier) = (&*self.environment, self.kernel.notifier());
            let ahead = BlockReader::start(environment, sources, &notifier, self.ids.as_ref())?;
            open.ahead = Some(ahead);
        }
        Ok(true)
    }

    /// Asks the workers of a source for an extent, or puts the extent back while the workers hold
    /// too much.
    fn request_read(&mut self, extent: Extent, check: bool) -> ExtentRead {
        let file = extent.file;
        let has_room = self.slow_sources.is_empty() || self.has_room_for_reads();
        let length = extent.range.len() as usize;
        let mut is_paused = true;
        if has_room
            && let Some(open) = self.transfers.source_mut(file)
            && let Some(reader) = &mut open.ahead
            && let Some(memory) = self.buffers.take_to_read(length, self.now)
        {
            reader.read(WantedBlock {
                extent,
                offset: open.offset + extent.range.start,
                memory,
                digest: open.digest,
                check,
            });
            is_paused = !reader.has_room();
        } else {
            self.sender.put_back(extent);
        }
        self.sender.pause(file, is_paused);
        self.slow_sources.wait_for(file);
        ExtentRead::Later
    }

    /// A block of a source whose blocks are all alike, from memory shared with other blocks.
    fn read_uniform(&mut self, extent: Extent, digest: DigestKind, check: bool) -> ExtentRead {
        let file = extent.file;
        let (check, fragment, bytes) = self.uniform.get(digest, check, file, extent.range);
        if !extent.is_resend {
            self.sender.extent_read(file, fragment);
        }
        ExtentRead::Block {
            extent,
            check,
            payload: Payload::Shared(bytes),
        }
    }

    /// A block of a source that is in memory, without a copy.
    fn read_memory(
        &mut self,
        extent: Extent,
        memory: Arc<Vec<u8>>,
        offset: u64,
        digest: DigestKind,
        check: bool,
    ) -> ExtentRead {
        let len = extent.range.len() as usize;
        let start = usize::try_from(offset + extent.range.start).unwrap_or(usize::MAX);
        let bytes = memory
            .get(start..start.saturating_add(len))
            .unwrap_or_default();
        let mut hasher = BlockHasher::new(digest, check, extent.range.start);
        hasher.update(bytes);
        let (check, fragment) = hasher.finish(extent.file);
        if !extent.is_resend {
            self.sender.extent_read(extent.file, fragment);
        }
        ExtentRead::Block {
            extent,
            check,
            payload: Payload::Source(memory, start),
        }
    }

    /// The hole that an extent lies in, widened as far as the hole goes; `None` if there is data in
    /// the extent.
    fn read_hole(&mut self, mut extent: Extent) -> Result<Option<Extent>, Fault> {
        let file = extent.file;
        let Some((grid, Some(end))) = self.sender.shape(file) else {
            return Ok(None);
        };
        let Some(open) = self.transfers.source_mut(file) else {
            return Err(not_open());
        };
        if extent.is_resend || extent.range.end <= open.data_until {
            return Ok(None);
        }
        let data = open.next_data(extent.range.start, end)?;
        let (start, until) = data.map_or((end, end), |data| (data.start, data.end));
        let aligned = if start >= end {
            end
        } else {
            start - start % grid
        };
        if aligned < extent.range.end {
            open.data_until = if start >= end { end } else { until };
            return Ok(None);
        }
        extent.range = self.sender.widen_hole(extent, aligned);
        // The rest is searched again: a hole may be longer than one frame allows.
        open.data_until = extent.range.end;
        self.sender.hole_read(file, extent.range);
        Ok(Some(extent))
    }

    /// Reads a block into a pooled buffer.
    fn read_into_buffer(&mut self, mut extent: Extent, check: bool) -> Result<ExtentRead, Fault> {
        let file = extent.file;
        let len = extent.range.len() as usize;
        let length = self.sender.shape(file).and_then(|(_, length)| length);
        let Some(open) = self.transfers.source_mut(file) else {
            return Err(not_open());
        };
        let Some(mut buffer) = self.buffers.take_to_send(self.now) else {
            return Ok(ExtentRead::Starved);
        };
        if let Some(length) = length {
            open.announce_reads(extent.range.end, length);
        }
        let start = extent.range.start;
        let mut hasher = BlockHasher::new(open.digest, check, start);
        let (environment, ledger) = (&*self.environment, &mut self.ledger);
        let read = open.read_pieces(start, &mut buffer[..len], &mut hasher, environment, ledger);
        let n = match read {
            Ok(n) if n == len || (n > 0 && length.is_none()) => n,
            unusable => {
                self.buffers.give_sent(buffer);
                unusable?;
                if length.is_some() {
                    return Err(became_shorter());
                }
                self.sender.source_ended(file, start);
                return Ok(ExtentRead::Nothing);
            }
        };
        extent.range.end = start + n as u64;
        let (value, fragment) = hasher.finish(file);
        if !extent.is_resend {
            self.sender.extent_read(file, fragment);
        }
        if n < len {
            self.sender.source_ended(file, extent.range.end);
        }
        Ok(ExtentRead::Block {
            extent,
            check: value,
            payload: Payload::Pooled(buffer),
        })
    }

    /// Takes the next block of a source that can only be read in order from its feeder.
    fn read_streamed(&mut self, mut extent: Extent, check: bool) -> Result<ExtentRead, Fault> {
        let file = extent.file;
        if extent.is_resend {
            return Err(Fault::new(
                Code::ConnectionLost,
                "send the stream again",
                "a block was lost, and the source can be read only once",
            ));
        }
        let (notifier, ids) = (self.kernel.notifier(), self.ids.clone());
        let environment = &*self.environment;
        let grid = self
            .sender
            .shape(file)
            .map_or_else(|| self.parameters.block_size().into(), |(grid, _)| grid);
        let Some(open) = self.transfers.source_mut(file) else {
            return Ok(ExtentRead::Nothing);
        };
        let Reader::Stream(source, feeder) = &mut open.reader else {
            return Ok(ExtentRead::Nothing);
        };
        if let Some(source) = source.take() {
            let account = self.buffers.account();
            *feeder = Some(Feeder::start(
                environment,
                source,
                grid as usize,
                account,
                notifier,
                ids,
            )?);
        }
        let has_memory = |feeder: &mut Feeder| feeder.has_memory().then_some(());
        let fed = match feeder {
            Some(feeder) => {
                let get = |_: &mut Buffers| has_memory(feeder);
                let asked = self.buffers.ask(Purpose::Feed, self.now, get);
                asked.map_or(Ok(FeederPoll::Wait), |()| feeder.next())?
            }
            None => FeederPoll::Wait,
        };
        match fed {
            FeederPoll::Wait => {
                self.sender.put_back(extent);
                self.sender.pause(file, true);
                self.slow_sources.wait_for(file);
                Ok(ExtentRead::Later)
            }
            FeederPoll::End => {
                self.sender.source_ended(file, extent.range.start);
                Ok(ExtentRead::Nothing)
            }
            FeederPoll::Block(block) => {
                let length = block.bytes.len();
                extent.range.end = extent.range.start + length as u64;
                let mut hasher = BlockHasher::new(open.digest, check, extent.range.start);
                hasher.update(&block.bytes);
                let (value, fragment) = hasher.finish(file);
                self.sender.extent_read(file, fragment);
                if length < grid as usize {
                    self.sender.source_ended(file, extent.range.end);
                }
                Ok(ExtentRead::Block {
                    extent,
                    check: value,
                    payload: Payload::Owned(block),
                })
            }
        }
    }

    /// Handles the results of slow sources, and resumes files whose sources have data again.
    pub(super) fn process_reads(&mut self) {
        let is_full = !self.has_room_for_reads();
        for file in self.slow_sources.take() {
            let Some(open) = self.transfers.source_mut(file) else {
                continue;
            };
            if let Reader::Stream(_, Some(feeder)) = &mut open.reader {
                match feeder.is_ready() {
                    true => self.sender.pause(file, false),
                    false => self.slow_sources.wait_for(file),
                }
                continue;
            }
            let Some(reader) = &mut open.ahead else {
                continue;
            };
            let (mut failure, mut unchanged) = (None, None);
            while let Some(answer) = reader.poll() {
                match answer {
                    Ok(ReaderEvent::Read) => {}
                    Ok(ReaderEvent::Unchanged) => unchanged = Some(()),
                    Err(fault) => failure = Some(fault),
                }
            }
            self.sender.pause(file, is_full || !reader.has_room());
            let asked = matches!(open.verification, Verification::Asked(_));
            if failure.is_none() && (is_full || asked || !reader.is_idle()) {
                self.slow_sources.wait_for(file);
            }
            let frame = unchanged.and_then(|()| {
                let unchanged = Verification::Unchanged;
                match std::mem::replace(&mut open.verification, unchanged) {
                    Verification::Asked(frame) => Some(frame),
                    _ => None,
                }
            });
            if let Some(fault) = failure {
                if asked {
                    // The machine may repeat EOFR until the receiver knows of the failure.
                    open.verification = Verification::Failed(fault.clone());
                } else {
                    self.transfers.close_source(file);
                }
                // A store that is a client of another server may say that it is that server's.
                self.sender.fail(file, fault.local());
            } else if let Some(frame) = frame {
                self.transmit_end(file, frame);
            }
        }
    }

    /// Whether workers may read one more block. Their memory is bounded for all files of the
    /// session together, as that of the session thread is.
    fn has_room_for_reads(&mut self) -> bool {
        let mut held = 0;
        for file in self.slow_sources.iter() {
            if let Some(open) = self.transfers.source_mut(file)
                && let Some(reader) = &open.ahead
            {
                held += reader.held_bytes();
            }
        }
        held == 0 || held + u64::from(self.parameters.block_size()) <= SEND_POOL_BYTES as u64
    }

    /// A block that workers have read, of the file with the lowest number.
    pub(super) fn next_read(&mut self) -> Option<ReadBlock> {
        for file in self.slow_sources.iter() {
            let Some(open) = self.transfers.source_mut(file) else {
                continue;
            };
            // What was lost comes first, read by the session thread.
            if open.can_be_read_again() && self.sender.is_resending(file) {
                self.sender.pause(file, false);
                continue;
            }
            if let Some(reader) = &mut open.ahead
                && let Some(read) = reader.next()
            {
                self.sender.pause(file, !reader.has_room());
                return Some(read);
            }
        }
        None
    }

    /// Verifies that the source is still what was offered, before `end`, the EOFR of a file, is
    /// sent. `false` if a worker verifies it: the frame is sent when the worker has finished.
    pub(super) fn verify_source(&mut self, file: FileId, end: &Frame) -> Result<bool, Fault> {
        let Some(open) = self.transfers.source_mut(file) else {
            return Ok(true);
        };
        // EOFR is repeated after the loss of a channel, when the receiver may already have
        // published the file.
        match (&mut open.reader, &open.verification) {
            (Reader::Stream(..), _) | (_, Verification::Unchanged) => return Ok(true),
            (_, Verification::Asked(_)) => return Ok(false),
            (_, Verification::Failed(fault)) => return Err(fault.clone()),
            (Reader::Random(source), Verification::NotAsked) => {
                if let Err(fault) = source.verify_unchanged() {
                    // This is final, even if the source looks unchanged later.
                    open.verification = Verification::Failed(fault.clone());
                    return Err(fault);
                }
                open.verification = Verification::Unchanged;
                return Ok(true);
            }
            (Reader::Slow, Verification::NotAsked) => {
                if let Some(reader) = &mut open.ahead {
                    reader.verify();
                }
                open.verification = Verification::Asked(end.clone());
            }
        }
        self.slow_sources.wait_for(file);
        Ok(false)
    }
}

pub(super) fn became_shorter() -> Fault {
    let cause = "it became shorter while it was read";
    Fault::new(Code::SourceChanged, "read the source", cause)
}

fn not_open() -> Fault {
    Fault::new(Code::Internal, "read the source", "not open")
}
