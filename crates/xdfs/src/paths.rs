//! Calls about paths on the server: inspect and change names, list directories.

mod accounts;
mod listing_guard;

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use xdfs_engine::mailbox::{Mailbox, mailbox};
use xdfs_engine::{CallPart, CallSpec, Command, Commands};
pub use xdfs_proto::path::{
    Account, Answer, Attributes, Call, Entry, FileKind, PartialFile, known_time,
};
use xdfs_proto::{Code, Fault};
use xdfs_store::{LocalStore, Store as _};

use self::accounts::KnownNames;
pub(crate) use self::accounts::look_up;
pub use self::accounts::{AccountNames, OwnerNames, PendingAccountNames};
use self::listing_guard::ListingGuard;
use crate::session_end::SessionEnd;

/// Carries out a call on this machine: on paths as a program here would name them, with the answer
/// that a server gives about its own. A list has all its entries in one answer.
///
/// # Errors
/// As a server's, with [`Side::Local`](crate::Side::Local); [`Code::Unsupported`] for calls about
/// open files.
pub fn call_local(call: &Call) -> Result<Answer, Fault> {
    call_store(&LocalStore::unrooted(), call)
}

/// Carries out a call in a store, a list as a whole.
pub(crate) fn call_store(store: &LocalStore, call: &Call) -> Result<Answer, Fault> {
    let mut names = Vec::new();
    let mut answer = store.call(call, &mut |part| {
        if let Answer::Entries { entries, .. } = part {
            names.extend(entries);
        }
        Ok(())
    })?;
    if let Answer::Entries { entries, .. } = &mut answer {
        names.append(entries);
        *entries = names;
    }
    Ok(answer)
}

/// Makes calls in a session.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    commands: Commands,
    end: SessionEnd,
    next: Arc<AtomicU64>,
    listed_bytes_max: u64,
    names: Arc<Mutex<KnownNames>>,
}

impl Caller {
    pub(crate) fn new(commands: Commands, end: SessionEnd, listed_bytes_max: u64) -> Self {
        Self {
            commands,
            end,
            next: Arc::default(),
            listed_bytes_max,
            names: Arc::default(),
        }
    }

    /// Whether a call failed because the session has ended, or is about to.
    pub(crate) fn is_over(&self, fault: &Fault) -> bool {
        self.end.known().is_some() || fault.ends_session
    }

    /// The reason of the session's end, if it has ended.
    pub(crate) fn ended(&self) -> Option<Fault> {
        self.end.known()
    }

    /// Starts a call without waiting.
    pub(crate) fn start_pending(&self, call: Call) -> Result<PendingCall, Fault> {
        self.start(call).map(PendingCall::new)
    }

    /// Starts a call whose answer is taken part by part.
    pub(crate) fn start(&self, call: Call) -> Result<RunningCall, Fault> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, parts) = mailbox();
        let listing = matches!(call, Call::List { .. });
        let guard = ListingGuard::new(&call, self.listed_bytes_max);
        let spec = CallSpec {
            number,
            call,
            parts: sender,
        };
        self.commands
            .send(Command::Call(spec))
            .map_err(|_| self.end.fault())?;
        Ok(RunningCall {
            caller: self.clone(),
            number,
            listing,
            parts,
            guard,
            ended: false,
        })
    }
}

/// A call without the end of its answer.
pub(crate) struct RunningCall {
    caller: Caller,
    number: u64,
    listing: bool,
    parts: Mailbox<CallPart>,
    guard: ListingGuard,
    ended: bool,
}

impl RunningCall {
    /// The next part of the answer, and whether it is the last.
    fn next(&mut self) -> Result<(Answer, bool), Fault> {
        let part = self.parts.recv().unwrap_or_else(|_| CallPart {
            answer: Err(self.caller.end.fault()),
            last: true,
        });
        self.take(part)
    }

    /// The same without waiting.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(Answer, bool), Fault>> {
        if self.ended {
            let cause = "its result was returned already";
            return Poll::Ready(Err(Fault::new(Code::Internal, "wait for a call", cause)));
        }
        let part = match ready!(self.parts.poll_recv(context)) {
            Some(part) => part,
            None => CallPart {
                answer: Err(ready!(self.caller.end.poll_fault(context.waker()))),
                last: true,
            },
        };
        Poll::Ready(self.take(part))
    }

    /// The same; `None` if it hasn't come within `time`.
    fn next_within(&mut self, time: Duration) -> Option<Result<(Answer, bool), Fault>> {
        match self.parts.recv_timeout(time) {
            Ok(part) => Some(self.take(part)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(self.caller.end.fault())),
        }
    }

    fn take(&mut self, CallPart { answer, last }: CallPart) -> Result<(Answer, bool), Fault> {
        self.ended |= last || answer.is_err();
        let answer = answer.map_err(|fault| self.caller.end.named(fault))?;
        self.guard.pass(&answer)?;
        Ok((answer, last))
    }

    /// A part other than the last was consumed.
    pub(crate) fn took(&self) {
        // A session that has ended sends nothing more.
        let _ = self.caller.commands.send(Command::Took(self.number));
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        // The parts of a listing would wait for ever. Other calls end by themselves.
        if self.listing && !self.ended {
            let _ = self.caller.commands.send(Command::Abandon(self.number));
        }
    }
}

/// A pending call. Dropping it drops the answer; the server may still execute the call.
///
/// Pending calls are executed in any order, some of them concurrently. If one call must follow
/// another, start it after the end of the first.
///
/// It is also a future with the result of [`PendingCall::wait`], for any asynchronous runtime;
/// polling never blocks. Polled again after its end it fails with [`Code::Internal`].
pub struct PendingCall {
    call: RunningCall,
    /// The entries of a listing received so far.
    names: Vec<Entry>,
}

impl PendingCall {
    fn new(call: RunningCall) -> Self {
        let names = Vec::new();
        Self { call, names }
    }

    /// Waits for the end. The parts of a listing are joined.
    ///
    /// # Errors
    /// The fault of the call or of the session. After a fault of the session a call that changes
    /// something may have been executed; the hint says so. A listing also fails as [`Listing`]
    /// describes.
    pub fn wait(mut self) -> Result<Answer, Fault> {
        loop {
            let part = self.call.next()?;
            if let Some(answer) = self.add(part) {
                return Ok(answer);
            }
        }
    }

    /// Waits at most `time` for the end; `None` if it hasn't come by then.
    ///
    /// # Errors
    /// As [`PendingCall::wait`].
    pub(crate) fn wait_for(&mut self, time: Duration) -> Option<Result<Answer, Fault>> {
        match self.call.next_within(time)? {
            Ok(part) => self.add(part).map(Ok),
            Err(fault) => Some(Err(fault)),
        }
    }

    /// The whole answer, if this was its last part.
    fn add(&mut self, part: (Answer, bool)) -> Option<Answer> {
        match part {
            (Answer::Entries { entries, cursor }, last) => {
                self.names.extend(entries);
                if !last {
                    self.call.took();
                    return None;
                }
                let entries = std::mem::take(&mut self.names);
                Some(Answer::Entries { entries, cursor })
            }
            // Only listings have more than one part, and only entries.
            (answer, _) => Some(answer),
        }
    }
}

impl Future for PendingCall {
    type Output = Result<Answer, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let part = ready!(self.call.poll_next(context))?;
            if let Some(answer) = self.add(part) {
                return Poll::Ready(Ok(answer));
            }
        }
    }
}

impl fmt::Debug for PendingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCall")
            .field("number", &self.call.number)
            .finish_non_exhaustive()
    }
}

/// An iterator over the names in a directory on the server, made by
/// [`Client::list`](crate::Client::list). It holds at most the parts that the protocol allows to be
/// unread, about 300 KiB for any size of the directory.
///
/// It is not a snapshot: names created, removed or renamed in the meantime may be in it or not. An
/// error is the last item. Dropping the listing ends it; closing the client ends it with
/// [`Code::Cancelled`].
///
/// It always ends: repeated cursors are a [`Code::ProtocolViolation`], and more than
/// [`listed_bytes_max`](crate::Limits::listed_bytes_max) bytes a [`Code::LimitExceeded`].
pub struct Listing {
    caller: Caller,
    path: Vec<u8>,
    progress: ListingProgress,
    entries: std::vec::IntoIter<Entry>,
}

enum ListingProgress {
    /// The next call starts at this cursor, with the guard of the call before.
    From(Vec<u8>, Option<ListingGuard>),
    /// A call is pending. The flag says that its latest part isn't reported as consumed yet.
    RunningCall(RunningCall, bool),
    /// No further entries will come.
    Ended,
}

impl Listing {
    /// A listing whose first call is not made yet.
    pub(crate) fn new(caller: Caller, path: &[u8]) -> Self {
        Self {
            caller,
            path: path.to_vec(),
            progress: ListingProgress::From(Vec::new(), None),
            entries: Vec::new().into_iter(),
        }
    }

    /// Makes the call now instead of when the first entry is read.
    #[must_use]
    pub fn begin(mut self) -> Self {
        if matches!(self.progress, ListingProgress::From(..)) {
            // If it fails, the session has ended: the first item will say so.
            let _ = self.fetch();
        }
        self
    }

    /// Fetches more entries, if there are any.
    fn fetch(&mut self) -> Result<(), Fault> {
        match &mut self.progress {
            ListingProgress::From(cursor, guard) => {
                let call = Call::List {
                    path: self.path.clone(),
                    cursor: std::mem::take(cursor),
                    entries_max: u32::MAX,
                };
                let mut call = self.caller.start(call)?;
                if let Some(mut guard) = guard.take() {
                    guard.next_call();
                    call.guard = guard;
                }
                self.progress = ListingProgress::RunningCall(call, false);
            }
            ListingProgress::RunningCall(call, used) => {
                if std::mem::take(used) {
                    call.took();
                }
                let (answer, last) = call.next()?;
                let Answer::Entries { entries, cursor } = answer else {
                    // The engine lets nothing else through.
                    self.progress = ListingProgress::Ended;
                    return Ok(());
                };
                self.entries = entries.into_iter();
                match (last, cursor) {
                    (false, _) => *used = true,
                    (true, Some(cursor)) => {
                        let guard = call.guard.clone();
                        self.progress = ListingProgress::From(cursor, Some(guard));
                    }
                    (true, None) => self.progress = ListingProgress::Ended,
                }
            }
            ListingProgress::Ended => {}
        }
        Ok(())
    }
}

impl Iterator for Listing {
    type Item = Result<Entry, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(Ok(entry));
            }
            if matches!(self.progress, ListingProgress::Ended) {
                return None;
            }
            if let Err(fault) = self.fetch() {
                self.progress = ListingProgress::Ended;
                return Some(Err(fault));
            }
        }
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing")
            .field("path", &self.path.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

/// Joins a path and a name beneath it.
pub(crate) fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() || name.is_empty() {
        return [above, name].concat();
    }
    let slash: &[u8] = if above.ends_with(b"/") { b"" } else { b"/" };
    [above, slash, name].concat()
}

/// The name at the end of a path; empty if that ends with a slash.
pub(crate) fn last_part(path: &[u8]) -> Vec<u8> {
    path.rsplit(|b| *b == b'/').next().unwrap_or(&[]).to_vec()
}
