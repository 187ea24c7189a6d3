//! What a pipeline is told from outside, and what it tells.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use xdfs_proto::frame::{Level, Resume};
use xdfs_proto::pack::{Failures, PackRequest};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{ChannelIndex, DigestKind, DigestValue, Fault, FileId};
use xdfs_store::{Source, Store};
use xdfs_sys::poll::{Event, Notifier, Token};
use xdfs_xio::Stream;

use crate::mailbox;
use crate::security::Permit;

/// The token of events that only wake the pipeline.
pub(crate) const WAKE: Token = Token(usize::MAX - 1);

/// An order to a pipeline.
#[derive(Debug)]
pub enum Command {
    /// Nobody wants the (rest of the) answer to the call of this number (initiator only). What it
    /// changes it may change all the same; one that was not made yet isn't made.
    Abandon(u64),
    /// Breaks a channel without warning, as a failing network would.
    BreakChannel,
    /// Makes a path call (initiator only). Beyond what the session may have unanswered, calls wait
    /// here.
    Call(CallJob),
    /// Ends a transfer; durable ranges stay.
    Cancel(FileId),
    /// Ends the session when its files and its calls are done. Listings end at once, since their
    /// users may not go on.
    Close,
    /// Takes no further file, and ends the session when its files are done or after this time.
    Drain(Duration),
    /// A channel that passed the opening exchange and wants to join (acceptor only).
    Join {
        /// The channel.
        stream: Box<dyn Stream>,
        /// The number it asks for.
        channel: ChannelIndex,
        /// Bytes that came after its JOIN.
        input: Vec<u8>,
        /// Bytes of the opening exchange that its transport didn't take yet.
        output: Vec<u8>,
        /// Held as long as the channel.
        permit: Option<Permit>,
    },
    /// Takes one channel out of the session in an orderly way; another takes its place.
    Leave,
    /// Packs are going to be moved: opens the channels for them meanwhile (initiator only).
    PreparePacks,
    /// Changes how payload travels from now on, in both directions (initiator only).
    Protect(Level),
    /// Starts a transfer (initiator only).
    Start(Box<Job>),
    /// The user is done with one part, other than the last, of the answer to the call of this
    /// number (initiator only): a further one may come.
    Took(u64),
}

/// The sending end of a pipeline's orders. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Commands {
    sender: mpsc::Sender<Command>,
    notifier: Notifier,
}

impl Commands {
    pub(crate) fn new(notifier: Notifier) -> (Self, mpsc::Receiver<Command>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender, notifier }, receiver)
    }

    /// Gives an order.
    ///
    /// # Errors
    /// The order, if the session has ended.
    pub fn send(&self, command: Command) -> Result<(), Command> {
        self.sender.send(command).map_err(|e| e.0)?;
        self.notifier.notify(Event {
            token: WAKE,
            readable: false,
            writable: false,
        });
        Ok(())
    }
}

/// A path call to make.
#[derive(Debug)]
pub struct CallJob {
    /// Its number in the session: no other call has it.
    pub number: u64,
    /// What is asked.
    pub call: Call,
    /// Where the answer is told.
    pub parts: mailbox::Sender<CallPart>,
}

/// A part of the answer to a call.
#[derive(Debug)]
pub struct CallPart {
    /// The part, or why there is none. A fault is always the last.
    pub answer: Result<Answer, Fault>,
    /// Nothing follows. Of all others [`Command::Took`] has to be told when they were used.
    pub last: bool,
}

/// A transfer to start.
#[derive(Debug)]
pub struct Job {
    /// Its number in the session: unused and above all earlier ones.
    pub file: FileId,
    /// First byte of the source.
    pub offset: u64,
    /// Number of bytes; `None` up to the end.
    pub length: Option<u64>,
    /// Ends it after this time as if the source had ended.
    pub duration: Option<Duration>,
    /// Most bytes a second; `None` for no bound.
    pub rate_bytes_per_s_max: Option<u64>,
    /// The whole-file digest.
    pub digest: DigestKind,
    /// Replace a target that exists.
    pub overwrite: bool,
    /// What becomes of a journal.
    pub resume: Resume,
    /// Write nothing.
    pub dry_run: bool,
    /// The direction and its ends.
    pub kind: JobKind,
    /// Where progress and the end are told.
    pub events: mailbox::Sender<TransferEvent>,
}

/// The direction of a transfer.
#[derive(Debug)]
pub enum JobKind {
    /// From the acceptor to here.
    Download(DownloadJob),
    /// From here to the acceptor.
    Upload(UploadJob),
}

/// A source here, a path there.
#[derive(Debug)]
pub struct UploadJob {
    /// What to send.
    pub source: Box<dyn Source>,
    /// Its path or name here, for faults.
    pub source_path: Vec<u8>,
    /// Path of the target at the acceptor.
    pub target: Vec<u8>,
    /// Name to use if the target is a directory; empty for none.
    pub name: Vec<u8>,
    /// The source is a pack, to be carried out beneath `target`.
    pub pack: bool,
    /// Of a pack: its files may get their names before they are durable.
    pub relaxed: bool,
}

/// A path there, a store here.
#[derive(Debug)]
pub struct DownloadJob {
    /// Path of the source at the acceptor.
    pub source: Vec<u8>,
    /// Where the target is opened.
    pub store: Arc<dyn Store>,
    /// Its path there.
    pub target: Vec<u8>,
    /// Name to use if the target is a directory; empty for none.
    pub name: Vec<u8>,
    /// What to fetch of beneath `source` as a pack, to be carried out beneath `target`.
    pub wish: Option<PackRequest>,
}

/// How far a transfer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that arrived (or were there already).
    pub bytes: u64,
    /// Bytes in all, if known.
    pub bytes_total: Option<u64>,
    /// Of `bytes`, those that an earlier attempt had made durable.
    pub resumed_bytes: u64,
    /// Channels that are alive now.
    pub channels: u32,
}

/// What held a transfer back for most of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitedBy {
    /// The network, or the processors that move bytes through it.
    Network,
    /// The rate that the user asked for.
    RateLimit,
    /// Reading the source.
    SourceRead,
    /// Writing the target.
    TargetWrite,
}

/// What came of a transfer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bytes of the transfer, those of an earlier attempt included.
    pub bytes: u64,
    /// From the order, or from the end of the transfer before it if that was later, to the
    /// publication. Zero for a dry run.
    pub elapsed: Duration,
    /// Most channels that were alive at once, without those that were leaving.
    pub channels: u32,
    /// Bytes that were durable already and weren't sent again.
    pub resumed_bytes: u64,
    /// Bytes that were sent more than once.
    pub retransmitted_bytes: u64,
    /// The verified digest.
    pub digest: DigestValue,
    /// Path of the target.
    pub target: Vec<u8>,
    /// What held it back.
    pub limited_by: LimitedBy,
    /// Of a pack, what wasn't carried out.
    pub failures: Failures,
}

/// What a transfer tells.
#[derive(Debug)]
pub enum TransferEvent {
    /// It goes on; at most ten times a second.
    Progress(Progress),
    /// It has ended. Nothing follows.
    Ended(Result<Outcome, Fault>),
}
