//! Reads a source that can only be read in order, such as standard input, in a thread of its own,
//! so that a slow producer never blocks the pipeline.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use xdfs_proto::{Code, Fault};
use xdfs_store::Source;
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::Notifier;

use crate::environment::{Environment, Task, Turn, Worker, wake};
use crate::guard::guarded;
use crate::memory::Account;
use crate::pool::Memory;
use crate::security::assume_ids;

/// Blocks that are read ahead.
const AHEAD: usize = 4;
/// Blocks that a feeder may have in any case: besides those, one is being read or waits for room,
/// one was looked at, and one is being sent.
const LEAST: usize = AHEAD + 3;
const READ: &str = "read the source";

#[derive(Debug)]
pub(crate) struct Feeder {
    blocks: Receiver<Result<Memory, Fault>>,
    /// A block that [`Self::is_ready`] has received.
    next: Option<Result<Memory, Fault>>,
    ended: bool,
    /// All its blocks, including those that are being sent.
    account: Account,
    block_size: usize,
}

/// The result of polling a feeder.
#[derive(Debug)]
pub(crate) enum FeederPoll {
    /// The next block; shorter than requested only at the end.
    Block(Memory),
    /// The source has ended, without further bytes.
    End,
    /// No block yet; the pipeline is woken when there is one.
    Wait,
}

impl Feeder {
    /// Starts to read blocks of `block_size` bytes, with the session's `ids`. They count in
    /// `account`, which no other feeder has.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn start(
        environment: &dyn Environment,
        source: Box<dyn Source>,
        block_size: usize,
        account: Account,
        notifier: Notifier,
        ids: Option<Ids>,
    ) -> Result<Self, Fault> {
        let (sender, blocks) = sync_channel(AHEAD);
        let told = notifier.clone();
        let own = account.clone();
        let make = move || FeederTask {
            source,
            block_size,
            account,
            offset: 0,
            // Sent in place of a block; nothing follows.
            waiting: assume_ids(ids.as_ref()).err().map(Err),
            blocks: sender,
            notifier,
            is_last: false,
        };
        Worker::start(environment, "xdfs-feeder", &told, make)
            .map_err(|e| Fault::from_io("start a thread", "", &e))?;
        Ok(Self {
            blocks,
            next: None,
            ended: false,
            account: own,
            block_size,
        })
    }

    /// Whether [`Self::next`] returns something other than [`FeederPoll::Wait`].
    pub(crate) fn is_ready(&mut self) -> bool {
        if !self.ended && self.next.is_none() {
            match self.blocks.try_recv() {
                Ok(block) => self.next = Some(block),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => {}
            }
        }
        true
    }

    /// Whether there is memory for the block that is read when one is taken.
    pub(crate) fn has_memory(&self) -> bool {
        let least = LEAST * self.block_size;
        self.account.has_room(self.block_size, least)
    }

    pub(crate) fn next(&mut self) -> Result<FeederPoll, Fault> {
        if self.ended {
            return Ok(FeederPoll::End);
        }
        match self.next.take().map_or_else(|| self.blocks.try_recv(), Ok) {
            Ok(Ok(block)) if block.bytes.is_empty() => {
                self.ended = true;
                Ok(FeederPoll::End)
            }
            Ok(Ok(block)) => Ok(FeederPoll::Block(block)),
            Ok(Err(fault)) => Err(fault),
            Err(TryRecvError::Empty) => Ok(FeederPoll::Wait),
            // A regular end is sent as an empty block.
            Err(TryRecvError::Disconnected) => {
                let cause = "the thread that reads it is gone";
                Err(Fault::new(Code::Internal, READ, cause))
            }
        }
    }
}

/// Reads until the end or an error, or until the feeder is dropped.
#[derive(Debug)]
struct FeederTask {
    source: Box<dyn Source>,
    block_size: usize,
    account: Account,
    offset: u64,
    /// A block or fault that waits for room.
    waiting: Option<Result<Memory, Fault>>,
    blocks: SyncSender<Result<Memory, Fault>>,
    notifier: Notifier,
    is_last: bool,
}

impl FeederTask {
    fn read(&mut self) -> Result<Memory, Fault> {
        let mut block = self.block(self.block_size);
        let read = || self.source.read_at(self.offset, &mut block.bytes);
        let count = guarded(READ, read).flatten()?;
        self.offset += count as u64;
        block.bytes.truncate(count);
        Ok(block)
    }

    fn block(&self, size: usize) -> Memory {
        Memory {
            reserved: self.account.take_at_once(size),
            bytes: vec![0; size],
        }
    }

    /// Continues after a block was sent. The end is an empty block, also after a short one.
    fn sent(&mut self, length: Option<usize>) -> Turn {
        wake(&self.notifier);
        match length {
            None | Some(0) => return Turn::Ended,
            Some(length) if length < self.block_size => {
                self.waiting = Some(Ok(self.block(0)));
            }
            Some(_) => {}
        }
        Turn::Again
    }
}

impl Task for FeederTask {
    fn turn(&mut self) -> Turn {
        if self.is_last {
            return Turn::Ended;
        }
        let block = self.waiting.take().unwrap_or_else(|| self.read());
        let length = length_of(&block);
        match self.blocks.try_send(block) {
            Ok(()) => self.sent(length),
            Err(TrySendError::Full(block)) => {
                self.waiting = Some(block);
                Turn::Wait(None)
            }
            Err(TrySendError::Disconnected(_)) => Turn::Ended,
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        // With a timeout, the next turn tries again.
        if timeout.is_none()
            && let Some(block) = self.waiting.take()
        {
            let length = length_of(&block);
            let gone = self.blocks.send(block).is_err();
            self.is_last = gone || self.sent(length) == Turn::Ended;
        }
        true
    }
}

/// The length of a block; `None` for a fault.
fn length_of(block: &Result<Memory, Fault>) -> Option<usize> {
    block.as_ref().ok().map(|block| block.bytes.len())
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use xdfs_proto::SourceTag;
    use xdfs_store::SourceInfo;
    use xdfs_sys::poll::Poller;

    use super::*;
    use crate::environment::System;

    /// Has one block, and panics where the next would begin.
    #[derive(Debug)]
    struct Broken(SourceInfo);

    impl Source for Broken {
        fn info(&self) -> &SourceInfo {
            &self.0
        }

        fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
            assert_eq!(offset, 0, "on purpose");
            Ok(buf.len())
        }

        fn verify_unchanged(&mut self) -> Result<(), Fault> {
            Ok(())
        }

        xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory,
            is_uniform, shared);
    }

    /// The bytes read so far must not pass for the whole content.
    #[test]
    fn a_source_that_panics_has_failed_and_not_ended() {
        let poller = Poller::new().unwrap();
        let source = Box::new(Broken(SourceInfo {
            length: None,
            tag: SourceTag::default(),
            mode: None,
            mtime_ns: None,
            random_reads: false,
            sparse: false,
        }));
        let mut feeder = Feeder::start(
            &System,
            source,
            10,
            Account::unbounded(),
            poller.notifier(),
            None,
        )
        .unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut blocks = 0;
        let fault = loop {
            match feeder.next() {
                Ok(FeederPoll::Block(block)) => blocks += block.bytes.len(),
                Ok(FeederPoll::Wait) => thread::sleep(Duration::from_millis(1)),
                Ok(FeederPoll::End) => panic!("it ended"),
                Err(fault) => break fault,
            }
            assert!(Instant::now() < deadline, "nothing came");
        };
        assert_eq!((blocks, fault.code), (10, Code::Internal));
    }
}
