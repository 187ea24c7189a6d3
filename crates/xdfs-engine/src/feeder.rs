//! Reads a source that can only be read from front to back, such as standard input, in a thread
//! of its own, so that a slow producer never holds up the pipeline.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use xdfs_proto::{Code, Fault};
use xdfs_store::Source;
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::{Event, Notifier};

use crate::command::WAKE;
use crate::guard::guarded;
use crate::security::take_on;

/// Blocks that are read ahead.
const AHEAD: usize = 4;
const READ: &str = "read the source";

#[derive(Debug)]
pub(crate) struct Feeder {
    blocks: Receiver<Result<Vec<u8>, Fault>>,
    ended: bool,
}

/// What a feeder has at the moment.
#[derive(Debug)]
pub(crate) enum Fed {
    /// The next block; shorter than asked for only at the end.
    Block(Vec<u8>),
    /// The source has ended, without further bytes.
    End,
    /// Nothing yet; the pipeline is woken when there is.
    Wait,
}

impl Feeder {
    /// Starts to read blocks of `block_size` bytes, with `ids` if there are some.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        source: Box<dyn Source>,
        block_size: usize,
        notifier: Notifier,
        ids: Option<Ids>,
    ) -> Result<Self, Fault> {
        let (sender, blocks) = sync_channel(AHEAD);
        thread::Builder::new()
            .name("xdfs-feeder".into())
            .spawn(move || match take_on(ids.as_ref()) {
                Ok(()) => feed(source, block_size, &sender, &notifier),
                Err(fault) => {
                    // Nobody may be waiting any more.
                    let _ = sender.send(Err(fault));
                    wake(&notifier);
                }
            })
            .map_err(|e| Fault::from_io("start a thread", "", &e))?;
        Ok(Self {
            blocks,
            ended: false,
        })
    }

    pub(crate) fn next(&mut self) -> Result<Fed, Fault> {
        if self.ended {
            return Ok(Fed::End);
        }
        match self.blocks.try_recv() {
            Ok(Ok(block)) if block.is_empty() => {
                self.ended = true;
                Ok(Fed::End)
            }
            Ok(Ok(block)) => Ok(Fed::Block(block)),
            Ok(Err(fault)) => Err(fault),
            Err(TryRecvError::Empty) => Ok(Fed::Wait),
            // The end would have been told.
            Err(TryRecvError::Disconnected) => {
                let cause = "the thread that reads it is gone";
                Err(Fault::new(Code::Internal, READ, cause))
            }
        }
    }
}

/// Reads until the end, an error, or until nobody wants the blocks any more.
fn feed(
    mut source: Box<dyn Source>,
    block_size: usize,
    blocks: &SyncSender<Result<Vec<u8>, Fault>>,
    notifier: &Notifier,
) {
    let mut offset = 0;
    loop {
        let mut block = vec![0; block_size];
        let read = || source.read_at(offset, &mut block);
        let result = guarded(READ, read).flatten().map(|n| {
            offset += n as u64;
            block.truncate(n);
            block
        });
        let last = !matches!(&result, Ok(block) if block.len() == block_size);
        // The end is told as an empty block, also after a short one.
        let short = matches!(&result, Ok(block) if !block.is_empty()) && last;
        let gone = blocks.send(result).is_err() || (short && blocks.send(Ok(Vec::new())).is_err());
        wake(notifier);
        if gone || last {
            return;
        }
    }
}

fn wake(notifier: &Notifier) {
    notifier.notify(Event {
        token: WAKE,
        readable: false,
        writable: false,
    });
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use xdfs_proto::frame::SourceTag;
    use xdfs_store::SourceInfo;
    use xdfs_sys::poll::Poller;

    use super::*;

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
    }

    /// What was read of it must not pass for all that it has.
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
        let mut feeder = Feeder::start(source, 10, poller.notifier(), None).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut blocks = 0;
        let fault = loop {
            match feeder.next() {
                Ok(Fed::Block(block)) => blocks += block.len(),
                Ok(Fed::Wait) => thread::sleep(Duration::from_millis(1)),
                Ok(Fed::End) => panic!("it ended"),
                Err(fault) => break fault,
            }
            assert!(Instant::now() < deadline, "nothing came");
        };
        assert_eq!((blocks, fault.code), (10, Code::Internal));
    }
}
