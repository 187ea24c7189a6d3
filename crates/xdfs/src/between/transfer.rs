//! One file on its way from a server to another. A thread of its own opens it, since that waits for
//! both servers, and chooses the way.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::command::TransferKind;
use xdfs_engine::mailbox::{Mailbox, Sender, mailbox};
use xdfs_engine::{LimitedBy, Outcome, Passage, Progress, TimeShares, TransferEvent, UploadSpec};
use xdfs_proto::pack::Failures;
use xdfs_proto::{Code, DigestKind, DigestValue, Fault, Retry};
use xdfs_store::place::{Copied, DirectRequest, Directly};
use xdfs_store::{Store as _, watched};

use super::order::{OPERATION, impossible};
use super::origin::look;
use super::{Origin, ServerFile, Way};
use crate::client::Client;
use crate::paths::{Answer, Call, FileKind, PendingCall, join};
use crate::transfer::{Transfer, TransferOptions};

/// Interval of looks at whether the copy is still wanted.
const TICK: Duration = Duration::from_millis(100);

/// The work of the thread.
pub(super) struct Course {
    pub(super) target: Client,
    pub(super) file: ServerFile,
    pub(super) path: Vec<u8>,
    /// In a directory at `path` it gets this name. Without one, a directory there is a failure.
    pub(super) name: Vec<u8>,
    pub(super) options: TransferOptions,
    events: Sender<TransferEvent>,
    is_cancelled: Arc<AtomicBool>,
}

impl Client {
    /// Starts to copy a file of another server to `target`, or in a directory there to `name`, if
    /// that isn't empty. Nothing is compared with what exists there.
    pub(crate) fn start_between(
        &self,
        file: &ServerFile,
        target: &[u8],
        name: Vec<u8>,
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        let (course, mailbox) = Course::new(self, file, target, name, options);
        let is_cancelled = Arc::clone(&course.is_cancelled);
        let end = self.session_end()?;
        thread::Builder::new()
            .name("xdfs-between".into())
            .spawn(move || course.run())
            .map_err(|error| Fault::from_io("start the thread of a copy", "", &error))?;
        let cancel = move || is_cancelled.store(true, Ordering::Relaxed);
        Ok(Transfer::new(cancel, mailbox, end))
    }
}

fn cancelled() -> Fault {
    Fault::new(Code::Cancelled, OPERATION, "it was cancelled")
}

impl Course {
    pub(super) fn new(
        client: &Client,
        file: &ServerFile,
        target: &[u8],
        name: Vec<u8>,
        options: &TransferOptions,
    ) -> (Self, Mailbox<TransferEvent>) {
        let (events, mailbox) = mailbox();
        let course = Self {
            target: client.share(),
            file: file.clone(),
            path: target.to_vec(),
            name,
            options: options.clone(),
            events,
            is_cancelled: Arc::new(AtomicBool::new(false)),
        };
        (course, mailbox)
    }

    fn run(self) {
        let flag = Arc::clone(&self.is_cancelled);
        let check = move || match flag.load(Ordering::Relaxed) {
            true => Err(cancelled()),
            false => Ok(()),
        };
        let (result, _) = watched(check, || self.copy());
        let events = self.events.clone();
        // Its session may end with it, and the end is told after that.
        drop(self);
        // Nobody may be listening any more.
        let _ = events.send(TransferEvent::Ended(result));
    }

    fn copy(&self) -> Result<Outcome, Fault> {
        if self.options.parameters.dry_run {
            return self.through_client("nothing is copied in a dry run");
        }
        let why = match (self.direct(), self.file.way) {
            (Ok(outcome), _) => return outcome,
            (Err(why), Way::Direct) => {
                return Err(Fault {
                    code: Code::Unsupported,
                    cause: format!("it can't go straight to the target: {}", why.cause),
                    ..why
                }
                .path(&self.file.place.path)
                .retry(Retry::Never)
                .hint("allow it to go through this machine with --between any"));
            }
            (Err(why), _) => why,
        };
        tracing::info!(%why, "a file goes through this machine");
        if self.is_cancelled() {
            return Err(cancelled());
        }
        let why = match &why.machine {
            Some(_) => why.to_string(),
            None => why.cause,
        };
        self.through_client(&why)
    }

    /// Has the file copied without this process. The fault says why that is impossible.
    fn direct(&self) -> Result<Result<Outcome, Fault>, Fault> {
        let options = &self.options;
        if self.file.way == Way::Client {
            return Err(impossible("it isn't wanted"));
        }
        if options.offset > 0 || options.length.is_some() {
            return Err(impossible("it is a part of a file"));
        }
        let server = self.target.place();
        let is_limited = options.parameters.rate_bytes_per_s_max.is_some();
        let is_within = server.shares_session(&self.file.place);
        if is_within && !is_limited && self.target.traits().copies {
            return self.within();
        }
        self.straight()
    }

    /// Has the server copy the file, if both places are on it.
    fn within(&self) -> Result<Result<Outcome, Fault>, Fault> {
        let began = Instant::now();
        match self.copy_within() {
            // A store without such copies, or two exports.
            Err(fault) if matches!(fault.code, Code::Unsupported | Code::CrossDevice) => Err(fault),
            Err(fault) => Ok(Err(fault)),
            Ok((path, bytes)) => {
                let copied = Copied {
                    bytes,
                    channels: 1,
                    kept_bytes: 0,
                    path,
                };
                Ok(Ok(outcome(copied, began.elapsed())))
            }
        }
    }

    /// Copies the file by a call. Returns the path of the copy, and its bytes.
    fn copy_within(&self) -> Result<(Vec<u8>, u64), Fault> {
        let mut to = self.path.clone();
        if !self.name.is_empty()
            && look(&self.target, &to).is_ok_and(|found| found.kind == FileKind::Directory)
        {
            to = join(&to, &self.name);
        }
        let from = self.file.place.path.clone();
        let look = self.target.start_call(Call::Stat {
            path: from.clone(),
            follow: true,
        })?;
        let copy = self.target.start_call(Call::Copy {
            from,
            to: to.clone(),
            overwrite: self.options.parameters.overwrite,
        })?;
        if let Ok(Answer::Attributes(found)) = self.wait(look) {
            // The server has answered, long before a large file is copied.
            let progress = Progress {
                bytes: 0,
                bytes_total: Some(found.size),
                resumed_bytes: 0,
                channels: 1,
            };
            if self.tell(progress).is_break() {
                self.is_cancelled.store(true, Ordering::Relaxed);
            }
        }
        let copied = self.wait(copy)?;
        let Answer::Copied { bytes } = copied else {
            // The engine lets nothing else through.
            return Err(Fault::new(Code::Internal, OPERATION, "another answer").path(&to));
        };
        self.wait(self.target.start_call(Call::Sync { path: to.clone() })?)?;
        Ok((to, bytes))
    }

    /// Waits for a call at the target, until the copy is cancelled.
    pub(super) fn wait(&self, mut call: PendingCall) -> Result<Answer, Fault> {
        loop {
            if let Some(answer) = call.wait_for(TICK) {
                return answer;
            }
            if self.is_cancelled.load(Ordering::Relaxed) {
                return Err(cancelled());
            }
        }
    }

    /// Has the file sent straight from one server to another. The fault says why that is
    /// impossible.
    fn straight(&self) -> Result<Result<Outcome, Fault>, Fault> {
        let options = &self.options;
        let client = match self.file.client() {
            Ok(client) => client,
            Err(fault) => return Ok(Err(fault)),
        };
        let (Some(source), Some(target)) = (client.behind(), self.target.behind()) else {
            return self.third_party(&client);
        };
        if options.parameters.rate_bytes_per_s_max.is_some() {
            return Err(impossible("its rate is limited"));
        }
        let began = Instant::now();
        let request = DirectRequest {
            from: self.file.place.path.clone(),
            path: self.path.clone(),
            name: self.name.clone(),
            overwrite: options.parameters.overwrite,
            compares: self.target.digest(options.parameters.digest) != DigestKind::None,
        };
        let mut moved = |bytes, total| {
            let progress = Progress {
                bytes,
                bytes_total: Some(total),
                resumed_bytes: 0,
                channels: 1,
            };
            if self.tell(progress).is_break() {
                self.is_cancelled.store(true, Ordering::Relaxed);
            }
        };
        match target.receive_from(&*source, &request, &mut moved) {
            Ok(Directly::Copied(copied)) => Ok(Ok(outcome(copied, began.elapsed()))),
            // The file's own failure, rather than that of the way.
            Ok(Directly::Impossible { why, is_certain })
                if !is_certain && self.file.way == Way::Direct =>
            {
                Ok(Err(why))
            }
            Ok(Directly::Impossible { why, .. }) => Err(why),
            Err(fault) => Ok(Err(fault)),
        }
    }

    /// Copies the file through this process.
    fn through_client(&self, why: &str) -> Result<Outcome, Fault> {
        let path = &self.file.place.path;
        let source = Origin(self.file.clone()).open_source(path)?;
        let kind = TransferKind::Upload(UploadSpec {
            source,
            source_path: path.clone(),
            target: self.path.clone(),
            name: self.name.clone(),
            pack: false,
            relaxed: false,
            last: None,
        });
        let mut transfer = self.target.start(&self.options, kind)?;
        let mut is_wanted = true;
        while !transfer.is_finished() {
            if is_wanted && self.is_cancelled.load(Ordering::Relaxed) {
                is_wanted = false;
                transfer.cancel();
            }
            if let Some(progress) = transfer.progress(TICK)
                && self.tell(progress).is_break()
            {
                self.is_cancelled.store(true, Ordering::Relaxed);
            }
        }
        let outcome = transfer.outcome()?;
        Ok(Outcome {
            passage: Some(Passage::Client(why.to_owned())),
            ..outcome
        })
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Reports progress. Breaks once the receiver is gone.
    pub(super) fn tell(&self, progress: Progress) -> ControlFlow<()> {
        match self.events.send(TransferEvent::Progress(progress)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

fn outcome(copied: Copied, elapsed: Duration) -> Outcome {
    Outcome {
        bytes: copied.bytes,
        elapsed,
        channels: copied.channels,
        resumed_bytes: copied.kept_bytes,
        retransmitted_bytes: 0,
        // The servers have compared digests of their own, or it never left its server.
        digest: DigestValue::None,
        target: copied.path,
        time_shares: TimeShares::only(LimitedBy::Network),
        failures: Failures::default(),
        is_skipped: false,
        passage: Some(Passage::Direct),
        mtime_ns: None,
    }
}
