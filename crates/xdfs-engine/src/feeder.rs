//! Reads a source that can only be read from front to back, such as standard input, in a thread
//! of its own, so that a slow producer never holds up the pipeline.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use xdfs_proto::Fault;
use xdfs_store::Source;
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::{Event, Notifier};

use crate::command::WAKE;
use crate::security::take_on;

/// Blocks that are read ahead.
const AHEAD: usize = 4;

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
            Err(TryRecvError::Disconnected) => {
                self.ended = true;
                Ok(Fed::End)
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
        let result = source.read_at(offset, &mut block).map(|n| {
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
