//! The commands of a session's user to its pipeline, and the events that come back.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use xdfs_proto::frame::{Level, Resume};
use xdfs_proto::pack::{Failures, PackRequest};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{ChannelIndex, DigestKind, DigestValue, Fault, FileId};
use xdfs_store::{Source, Store};
use xdfs_sys::poll::{Event, Notifier, Token};
use xdfs_xio::{PathSample, Stream};

use crate::mailbox;
use crate::security::PeerGuard;
use crate::verdict::TimeShares;

/// The token of events that only wake the pipeline.
pub(crate) const WAKE: Token = Token(usize::MAX - 1);

/// A command to a pipeline.
#[derive(Debug)]
pub enum Command {
    /// Drops the rest of the answer to the call with this number (initiator only). A call not sent
    /// yet is withdrawn; one already sent may still have effects.
    Abandon(u64),
    /// Breaks a channel without warning, as a failing network would.
    BreakChannel,
    /// Makes a call (initiator only). It waits while all slots of the session are in use.
    Call(CallSpec),
    /// Cancels a transfer; durable ranges stay.
    Cancel(FileId),
    /// Ends the session after its transfers and calls. Listings are ended at once, since their
    /// readers may have stopped reading.
    Close,
    /// Refuses new files, and ends the session when its transfers have ended or after this time.
    Drain(Duration),
    /// Adds a channel that has passed the opening exchange (acceptor only).
    Join {
        /// The channel.
        stream: Box<dyn Stream>,
        /// The requested index.
        channel: ChannelIndex,
        /// Bytes received after its JOIN.
        input: Vec<u8>,
        /// Bytes of the opening exchange that are still to be written.
        output: Vec<u8>,
        /// Held while the channel is open.
        guard: Option<PeerGuard>,
    },
    /// Takes one channel out of the session in an orderly way; another takes its place.
    Leave,
    /// Measures the network path of each open channel, where the system does.
    Measure(mpsc::Sender<Vec<PathSample>>),
    /// Opens the channels that packs need, before the first pack is ready (initiator only).
    PreparePacks,
    /// Changes the protection of payload from now on, in both directions (initiator only).
    Protect(Level),
    /// Ends the session at once, in a resumable state, as its user isn't admitted any more for this
    /// reason (acceptor only).
    Withdraw(&'static str),
    /// Starts a transfer (initiator only).
    Start(Box<TransferSpec>),
    /// The user has consumed one part, other than the last, of the answer to the call with this
    /// number (initiator only). The peer may send another one.
    Took(u64),
}

/// The sending end of a pipeline's command queue. Cheap to clone.
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

    /// Sends a command.
    ///
    /// # Errors
    /// The command, if the session has ended.
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

/// A call to make: the parameters of [`Command::Call`].
#[derive(Debug)]
pub struct CallSpec {
    /// A number that no other call of the session has.
    pub number: u64,
    /// The call.
    pub call: Call,
    /// Receives the parts of the answer.
    pub parts: mailbox::Sender<CallPart>,
}

/// A part of the answer to a call.
#[derive(Debug)]
pub struct CallPart {
    /// The part, or why there is none. A fault is always the last.
    pub answer: Result<Answer, Fault>,
    /// No further part follows. Every other part is to be reported by [`Command::Took`] once it is
    /// consumed.
    pub last: bool,
}

/// How files are moved, alone or in trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferParameters {
    /// The digest of a whole file; `None` for the default of the session.
    pub digest: Option<DigestKind>,
    /// Replace what exists at the target.
    pub overwrite: bool,
    /// Whether to resume from what an earlier attempt left: from its journal, or from the published
    /// file.
    pub resume: Resume,
    /// Largest number of bytes per second, over all channels; `None` for no limit.
    pub rate_bytes_per_s_max: Option<u64>,
    /// Check everything and write nothing.
    pub dry_run: bool,
}

/// A transfer to start, as in [`Command::Start`].
#[derive(Debug)]
pub struct TransferSpec {
    /// Its number in the session, above all earlier ones.
    pub file: FileId,
    /// First byte of the source.
    pub offset: u64,
    /// Number of bytes; `None` for all up to the end.
    pub length: Option<u64>,
    /// Ends the transfer after this time as if the source had ended.
    pub duration: Option<Duration>,
    /// How it is moved. Without a digest it has one of the default kind.
    pub parameters: TransferParameters,
    /// The direction, the source and the target.
    pub kind: TransferKind,
    /// Receives the progress and the end.
    pub events: mailbox::Sender<TransferEvent>,
}

/// The direction of a transfer.
#[derive(Debug)]
pub enum TransferKind {
    /// From the acceptor to the initiator.
    Download(DownloadSpec),
    /// From the initiator to the acceptor.
    Upload(UploadSpec),
}

/// A local source and a remote path.
#[derive(Debug)]
pub struct UploadSpec {
    /// The local source.
    pub source: Box<dyn Source>,
    /// Its path or name, for faults.
    pub source_path: Vec<u8>,
    /// Path of the target in the acceptor's store.
    pub target: Vec<u8>,
    /// File name if the target is a directory; may be empty.
    pub name: Vec<u8>,
    /// The source is a pack, to be written beneath `target`.
    pub pack: bool,
    /// For a pack: its files may get their names before they are durable.
    pub relaxed: bool,
    /// For a pack, the last one of a tree: it is carried out if these files have arrived without a
    /// failure, once they have, and unless it is relaxed everything beneath `target` is durable
    /// when it ends. Fails unless the acceptor knows such packs.
    pub last: Option<Vec<FileId>>,
}

/// A remote path and a local store.
#[derive(Debug)]
pub struct DownloadSpec {
    /// Path of the source in the acceptor's store.
    pub source: Vec<u8>,
    /// The local store that opens the target.
    pub store: Arc<dyn Store>,
    /// Path of the target in that store.
    pub target: Vec<u8>,
    /// File name if the target is a directory; may be empty.
    pub name: Vec<u8>,
    /// Fetches these names beneath `source` as a pack, to be written beneath `target`. A request
    /// that follows links fails unless a channel is open to an acceptor that does.
    pub pack_request: Option<PackRequest>,
}

/// The progress of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have arrived, those of an earlier attempt included.
    pub bytes: u64,
    /// Bytes in all, if known.
    pub bytes_total: Option<u64>,
    /// The part of `bytes` that an earlier attempt had made durable.
    pub resumed_bytes: u64,
    /// Channels that are open now.
    pub channels: u32,
}

/// The result of a successful transfer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bytes of the transfer, those of an earlier attempt included.
    pub bytes: u64,
    /// From the command, or from the end of the previous transfer if that was later, to the
    /// publication. Zero for a dry run.
    pub elapsed: Duration,
    /// Largest number of channels open at once, without those that were leaving.
    pub channels: u32,
    /// Bytes that were already durable and were not sent again.
    pub resumed_bytes: u64,
    /// Bytes that were sent more than once.
    pub retransmitted_bytes: u64,
    /// The verified digest.
    pub digest: DigestValue,
    /// Path of the target.
    pub target: Vec<u8>,
    /// Where the time went.
    pub time_shares: TimeShares,
    /// For a pack: the entries that failed.
    pub failures: Failures,
    /// Nothing was moved, since the target exists. The engine itself never skips anything.
    pub is_skipped: bool,
    /// How the file got from one server to another; `None` if one side is this process. The engine
    /// itself leaves that to its callers.
    pub passage: Option<Passage>,
    /// The modification time of the source, in nanoseconds since 1970, if known.
    pub mtime_ns: Option<i64>,
}

/// How a file got from one server to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Without this process.
    Direct,
    /// Through this process, for this reason.
    Client(String),
}

/// An event of a transfer.
#[derive(Debug)]
pub enum TransferEvent {
    /// Progress, at most ten times a second.
    Progress(Progress),
    /// The end. Nothing follows.
    Ended(Result<Outcome, Fault>),
}
