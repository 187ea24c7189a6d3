//! The session of a tree. When it breaks, another one takes its place. Transfers and calls in
//! flight are looked up or started again by the code that started them.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::command::TransferKind;
use xdfs_proto::{Code, Fault};

use super::hashed::AsIs;
use super::options::TreeOptions;
use crate::between::ServerFile;
use crate::client::Client;
use crate::paths::{Answer, Call, Entry, Listing, PendingCall};
use crate::retry::{ReconnectEvent, ReconnectObserver, RetryPolicy, is_session_lost};
use crate::transfer::{Transfer, TransferOptions};

/// Longest part of a pause without a check whether the user wants to stop.
const PAUSE_STEP: Duration = Duration::from_millis(50);

/// The sessions of a client, as a tree uses them.
pub(crate) struct TreeSession<'a> {
    pub(super) client: &'a Client,
    /// The other one of two servers, whose faults say so.
    other: Option<&'a ServerFile>,
    policy: RetryPolicy,
    observer: ReconnectObserver,
    /// Counts signs of progress.
    progress: AtomicU64,
    retries: Mutex<Retries>,
    reconnects: AtomicU64,
    /// The server has answered: one that can't be reached at all isn't tried again.
    is_reached: AtomicBool,
}

#[derive(Default)]
struct Retries {
    /// Retries in a row without progress.
    count: u32,
    /// The progress at the last of them.
    progress: u64,
    /// The reason for which no other session is tried any more.
    given_up: Option<Fault>,
}

impl<'a> TreeSession<'a> {
    pub(crate) fn new(client: &'a Client, options: &TreeOptions) -> Self {
        Self {
            client,
            other: None,
            policy: options.retry.clone(),
            observer: options.reconnect_observer.clone(),
            progress: AtomicU64::new(0),
            retries: Mutex::default(),
            reconnects: AtomicU64::new(0),
            is_reached: AtomicBool::new(false),
        }
    }

    /// The session with the server of a source, where the target is on a server too.
    pub(super) fn with_source(
        client: &'a Client,
        source: &'a ServerFile,
        options: &TreeOptions,
    ) -> Self {
        Self {
            other: Some(source),
            ..Self::new(client, options)
        }
    }

    /// A fault of this server, which says so if there are two.
    pub(super) fn named(&self, fault: Fault) -> Fault {
        match self.other {
            Some(source) => Fault {
                ends_session: fault.ends_session,
                ..source.named(fault)
            },
            None => fault,
        }
    }

    /// The number of the present session.
    pub(crate) fn generation(&self) -> u64 {
        self.client.sessions().caller().0
    }

    /// Sessions that took the place of broken ones.
    pub(super) fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }

    /// Whether sessions that break are replaced.
    pub(super) fn may_reconnect(&self) -> bool {
        self.policy.retries_max > 0
    }

    /// Something was moved, changed or listed.
    pub(crate) fn note_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
        self.note_answer();
    }

    /// The server has answered.
    fn note_answer(&self) {
        self.is_reached.store(true, Ordering::Relaxed);
    }

    /// Starts a transfer. Returns the number of its session too.
    pub(super) fn start(
        &self,
        options: &TransferOptions,
        kind: TransferKind,
    ) -> (u64, Result<Transfer, Fault>) {
        // If the session is replaced in between, the transfer belongs to the new one but is counted
        // for the old one. Its loss then looks repaired, so it is started once more than needed.
        let generation = self.generation();
        (generation, self.client.start(options, kind))
    }

    pub(super) fn start_call(&self, call: Call) -> (u64, Result<PendingCall, Fault>) {
        let (generation, caller) = self.client.sessions().caller();
        (generation, caller.start_pending(call))
    }

    /// Begins to list a directory. Returns the number of its session too.
    pub(super) fn list(&self, path: &[u8]) -> (u64, Listing) {
        let (generation, caller) = self.client.sessions().caller();
        (generation, Listing::new(caller, path).begin())
    }

    /// Waits until another session has taken the place of the one of this number, which ended by
    /// `fault`.
    ///
    /// # Errors
    /// No other session can be opened, or the user doesn't want one.
    pub(crate) fn recover(&self, broken: u64, fault: &Fault) -> Result<(), Fault> {
        let is_reached = self.is_reached.load(Ordering::Relaxed);
        if !is_reached || !self.may_reconnect() || !is_session_lost(fault) {
            return Err(fault.clone());
        }
        // One thread reconnects; all others wait for it here.
        let mut retries = self.retries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fault) = &retries.given_up {
            return Err(fault.clone());
        }
        let mut broken = broken;
        if self.generation() != broken {
            return Ok(());
        }
        let mut fault = fault.clone();
        loop {
            let progress = self.progress.load(Ordering::Relaxed);
            if progress != retries.progress {
                (retries.count, retries.progress) = (0, progress);
            }
            let result = self.try_again(&mut retries.count, &mut broken, &fault);
            match result {
                Ok(()) => return Ok(()),
                Err(next) if is_session_lost(&next) && retries.count < self.policy.retries_max => {
                    fault = next;
                }
                Err(last) => {
                    let last = last.ending_session();
                    retries.given_up = Some(last.clone());
                    return Err(last);
                }
            }
        }
    }

    /// Waits until the server of a place without sessions answers again, if one of these faults
    /// says that it has gone away. Returns whether it does.
    pub(super) fn await_server<'f>(&self, mut faults: impl Iterator<Item = &'f Fault>) -> bool {
        let is_away =
            |fault: &Fault| matches!(fault.code, Code::ConnectionLost | Code::ConnectionRefused);
        if !faults.any(is_away) {
            return false;
        }
        let mut count = 0;
        loop {
            let Some(place) = self.client.behind() else {
                return false;
            };
            match place.reconnect() {
                Ok(()) => break,
                Err(fault) if self.pause(&mut count, &fault).is_err() => return false,
                Err(_) => {}
            }
        }
        if count > 0 {
            let _ = self.observer.notify(ReconnectEvent::Restored);
        }
        true
    }

    /// Waits until the server answers, in another session if that has ended.
    ///
    /// # Errors
    /// It doesn't, as often as the user wants it to be tried.
    pub(super) fn await_answer(&self) -> Result<(), Fault> {
        let look = Call::Stat {
            path: b"/".to_vec(),
            follow: true,
        };
        match RemoteCall::start(self, look).wait() {
            Err(fault) if fault.ends_session => Err(fault),
            _ => Ok(()),
        }
    }

    /// Waits before another try.
    ///
    /// # Errors
    /// There were too many, or the user doesn't want one.
    pub(super) fn pause(&self, count: &mut u32, fault: &Fault) -> Result<(), Fault> {
        if *count >= self.policy.retries_max {
            return Err(fault.clone());
        }
        let pause = self.policy.pause(*count, fault);
        *count += 1;
        let lost = ReconnectEvent::Lost {
            fault,
            retry: *count,
            pause,
        };
        tracing::info!(%fault, retry = *count, ?pause, "the session of the tree was lost");
        let mut goes_on = self.observer.notify(lost).is_continue();
        let end = Instant::now() + pause;
        while goes_on && Instant::now() < end {
            thread::sleep(PAUSE_STEP.min(end.saturating_duration_since(Instant::now())));
            goes_on = self.observer.notify(ReconnectEvent::Waiting).is_continue();
        }
        if !goes_on {
            let cause = "it was stopped";
            return Err(
                Fault::new(Code::Cancelled, "reconnect to the server", cause)
                    .hint("run the same command again to go on"),
            );
        }
        Ok(())
    }

    fn try_again(&self, count: &mut u32, broken: &mut u64, fault: &Fault) -> Result<(), Fault> {
        self.pause(count, fault)?;
        let (generation, caller) = self.client.sessions().replace(*broken)?;
        *broken = generation;
        // Whether the server answers: opening a session doesn't wait for that.
        let probe = Call::Stat {
            path: b"/".to_vec(),
            follow: true,
        };
        match caller.start_pending(probe).and_then(PendingCall::wait) {
            Err(fault) if fault.ends_session => Err(fault),
            _ => {
                self.client.prepare_packs();
                self.reconnects.fetch_add(1, Ordering::Relaxed);
                tracing::info!("the tree has another session");
                let _ = self.observer.notify(ReconnectEvent::Restored);
                Ok(())
            }
        }
    }
}

/// A call to the server that is made again in another session if its own breaks.
pub(crate) struct RemoteCall<'a> {
    session: &'a TreeSession<'a>,
    generation: u64,
    call: Call,
    pending: Result<PendingCall, Fault>,
}

impl<'a> RemoteCall<'a> {
    pub(crate) fn start(session: &'a TreeSession<'a>, call: Call) -> Self {
        let (generation, pending) = session.start_call(call.clone());
        Self {
            session,
            generation,
            call,
            pending,
        }
    }

    pub(crate) fn wait(self) -> Result<Answer, Fault> {
        let session = self.session;
        self.answer().map_err(|fault| session.named(fault))
    }

    fn answer(mut self) -> Result<Answer, Fault> {
        // Whether the call removes a name.
        let removes = matches!(
            self.call,
            Call::RemoveFile { .. } | Call::RemoveDirectory { .. } | Call::Rename { .. }
        );
        let mut is_repeated = false;
        loop {
            let fault = match self.pending.and_then(PendingCall::wait) {
                Ok(answer) => {
                    // Entries in flight are looked up after each break, which alone is no progress.
                    match self.call {
                        Call::Stat { .. } => self.session.note_answer(),
                        _ => self.session.note_progress(),
                    }
                    return Ok(answer);
                }
                // The first call removed or renamed it, and its answer was lost.
                Err(fault) if is_repeated && fault.code == Code::NotFound && removes => {
                    return Ok(Answer::Done);
                }
                Err(fault) if !fault.ends_session => {
                    self.session.note_answer();
                    return Err(fault);
                }
                Err(fault) => fault,
            };
            self.session.recover(self.generation, &fault)?;
            is_repeated = true;
            (self.generation, self.pending) = self.session.start_call(self.call.clone());
        }
    }
}

/// The names in a directory on the server. If the session breaks they are listed again in another
/// one, and each is returned once.
pub(super) struct RemoteEntries<'a> {
    session: &'a TreeSession<'a>,
    generation: u64,
    path: Vec<u8>,
    listing: Listing,
    random: RandomState,
    /// Digests of the returned names.
    given: HashSet<u64, AsIs>,
    is_repeated: bool,
}

impl<'a> RemoteEntries<'a> {
    /// The names in a directory whose listing was begun.
    pub(super) fn new(
        session: &'a TreeSession<'a>,
        path: Vec<u8>,
        (generation, listing): (u64, Listing),
    ) -> Self {
        Self {
            session,
            generation,
            path,
            listing,
            random: RandomState::new(),
            given: HashSet::default(),
            is_repeated: false,
        }
    }
}

impl Iterator for RemoteEntries<'_> {
    type Item = Result<Entry, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.listing.next()? {
                Ok(entry) => {
                    let is_new = self.given.insert(self.random.hash_one(&entry.name));
                    if is_new || !self.is_repeated {
                        self.session.note_progress();
                        return Some(Ok(entry));
                    }
                }
                Err(fault) if fault.ends_session => {
                    if let Err(fault) = self.session.recover(self.generation, &fault) {
                        return Some(Err(self.session.named(fault)));
                    }
                    self.is_repeated = true;
                    (self.generation, self.listing) = self.session.list(&self.path);
                }
                Err(fault) => return Some(Err(self.session.named(fault))),
            }
        }
    }
}
