//! The thread of a file that several members of a group write: it sends parts to all of them, and
//! has home, which has the file open, take in what they have written.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use xdfs_engine::TransferParameters;
use xdfs_proto::digest::{DigestKind, Fragment};
use xdfs_proto::frame::Resume;
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::stripes::{PartPlace, StripesCall, TAKEN_BYTES_MAX, TAKEN_MAX, part_path};
use xdfs_proto::{Code, Fault, Retry};
use xdfs_store::MemStore;

use super::join::{BROKEN, Joined, Joining};
use super::pace::{Pace, SILENCE, SILENCE_OF_ALL};
use crate::client::Client;
use crate::paths::PendingCall;
use crate::skip::Skip;
use crate::transfer::{Transfer, TransferOptions};

/// The most bytes of parts that aren't taken in, which are kept in memory.
const AHEAD_BYTES: u64 = 128 << 20;
/// The longest time between two looks at everything.
const TICK: Duration = Duration::from_millis(100);
const PART_NAME: &[u8] = b"part";
const WRITE: &str = "write the parts";

/// A part of the file, which is kept until home has taken it in.
#[derive(Clone, Debug)]
pub(super) struct Part {
    fragment: Fragment,
    store: MemStore,
}

impl Part {
    pub(super) fn new(fragment: Fragment, bytes: Vec<u8>) -> Self {
        let store = MemStore::with_limit(fragment.range.len());
        store.insert(PART_NAME, bytes);
        Self { fragment, store }
    }

    fn bytes(&self) -> u64 {
        self.fragment.range.len()
    }
}

/// The file at the member that has it open.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) client: Arc<Client>,
    /// The number of the open file in the session.
    pub(super) id: u64,
    /// The number of the unfinished file in its file system.
    pub(super) number: u64,
    pub(super) path: Vec<u8>,
    /// Bytes of the largest part.
    pub(super) part_bytes: u64,
}

/// The state that the thread shares with the sink.
#[derive(Debug, Default)]
pub(super) struct Spreading {
    state: Mutex<State>,
    changed: Condvar,
    thread: OnceLock<Thread>,
}

#[derive(Debug, Default)]
struct State {
    /// Parts that no member has got yet.
    queue: VecDeque<Part>,
    /// Bytes of parts that aren't taken in.
    waiting: u64,
    /// So many of them may there be: as many as the members are sent at their rates.
    ahead: u64,
    fault: Option<Fault>,
    is_closed: bool,
}

impl Spreading {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room, or until all parts are taken in.
    fn wait(&self, for_all: bool) -> Result<MutexGuard<'_, State>, Fault> {
        let mut state = self.lock();
        loop {
            if let Some(fault) = &state.fault {
                return Err(fault.clone());
            }
            let most = if for_all { 0 } else { state.ahead };
            if state.waiting <= most {
                return Ok(state);
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Hands over a part, once there is room for it.
    ///
    /// # Errors
    /// No member is left, or home has failed.
    pub(super) fn give(&self, part: Part) -> Result<(), Fault> {
        let mut state = self.wait(false)?;
        state.waiting += part.bytes();
        state.queue.push_back(part);
        drop(state);
        self.wake();
        Ok(())
    }

    /// Waits until all parts are taken in.
    ///
    /// # Errors
    /// As [`Self::give`].
    pub(super) fn finish(&self) -> Result<(), Fault> {
        self.wait(true).map(drop)
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.wake();
    }

    /// Takes parts back, to be given to other members.
    fn give_back(&self, parts: impl IntoIterator<Item = Part>) {
        let mut state = self.lock();
        let parts = parts.into_iter();
        parts.for_each(|part| state.queue.push_front(part));
    }

    fn fail(&self, fault: Fault) {
        self.lock().fault.get_or_insert(fault);
        self.changed.notify_all();
    }
}

/// Fails what waits for the thread, once the thread panics.
struct Guard(Arc<Spreading>);

impl Drop for Guard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(Fault::new(Code::Internal, WRITE, BROKEN));
        }
    }
}

/// Wakes the thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Starts the thread.
///
/// # Errors
/// It can't be started.
pub(super) fn start(joining: Joining, home: Home) -> Result<Arc<Spreading>, Fault> {
    let shared: Arc<Spreading> = Arc::default();
    let spread = Spread {
        joining,
        home,
        shared: Arc::clone(&shared),
        members: Vec::new(),
        written: VecDeque::new(),
        doubtful: VecDeque::new(),
        taking: None,
    };
    let thread = thread::Builder::new()
        .name("xdfs-spread".into())
        .spawn(move || spread.run());
    let thread = thread.map_err(|error| Fault::from_io("start a thread", "", &error))?;
    // There is one.
    let _ = shared.thread.set(thread.thread().clone());
    // The first look may have been before the thread was known.
    thread.thread().unpark();
    Ok(shared)
}

/// A part on its way to a member.
#[derive(Debug)]
struct Sending {
    part: Part,
    transfer: Transfer,
    /// Bytes that have left.
    bytes: u64,
    began: Instant,
}

/// A member that writes.
#[derive(Debug)]
struct Member {
    number: usize,
    client: Arc<Client>,
    sending: Vec<Sending>,
    pace: Pace,
}

/// Parts, and the members that have written them.
type Written = VecDeque<(usize, Part)>;

struct Spread {
    joining: Joining,
    home: Home,
    shared: Arc<Spreading>,
    members: Vec<Member>,
    /// Parts that home isn't asked about yet.
    written: Written,
    /// Parts of which some weren't found: each is asked about by itself.
    doubtful: Written,
    /// The parts that home is asked about.
    taking: Option<(PendingCall, Written)>,
}

impl Spread {
    fn run(mut self) {
        let _guard = Guard(Arc::clone(&self.shared));
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        while !self.shared.lock().is_closed {
            match self.turn(&mut context) {
                // New work wakes the thread only after it has been polled.
                Ok(true) => {}
                Ok(false) => thread::park_timeout(TICK),
                Err(fault) => {
                    self.shared.fail(fault);
                    break;
                }
            }
        }
        for member in &self.members {
            let under_way = member.sending.iter();
            under_way.for_each(|sending| sending.transfer.cancel());
        }
    }

    /// Does what can be done now. Returns whether new work has begun.
    fn turn(&mut self, context: &mut Context<'_>) -> Result<bool, Fault> {
        while let Some(joined) = self.joining.poll() {
            self.add(joined);
        }
        for at in (0..self.members.len()).rev() {
            if let Err(fault) = self.poll(at, context) {
                self.drop_member(at, &fault);
            }
        }
        self.drop_silent();
        self.poll_taking(context)?;
        if self.members.is_empty() && !self.joining.is_under_way() {
            return Err(self.joining.sources.none_left());
        }
        let takes = self.take_in()?;
        let assigns = self.assign();
        self.make_room();
        Ok(assigns || takes)
    }

    /// Bounds the parts in memory by what the members take.
    fn make_room(&self) {
        let part = self.home.part_bytes;
        let of_each = |own: &Member| (1 + own.pace.ranges_max(part) as u64) * part;
        let ahead = self.members.iter().map(of_each).sum::<u64>();
        let mut state = self.shared.lock();
        if state.ahead != ahead.min(AHEAD_BYTES) {
            state.ahead = ahead.min(AHEAD_BYTES);
            self.shared.changed.notify_all();
        }
    }

    fn add(&mut self, joined: Joined) {
        self.joining.sources.log.note_use(joined.number);
        self.members.push(Member {
            number: joined.number,
            client: joined.client,
            sending: Vec::new(),
            pace: Pace::new(),
        });
    }

    fn drop_member(&mut self, at: usize, fault: &Fault) {
        let member = self.members.swap_remove(at);
        let fault = fault.clone().at(&member.client.machine());
        self.joining.sources.log.drop_source(member.number, &fault);
        let parts = member.sending.into_iter().map(|sending| {
            sending.transfer.cancel();
            sending.part
        });
        self.shared.give_back(parts);
        self.joining.try_again(member.number);
    }

    /// Drops members that are silent for long while others aren't. If all are, it may be the line
    /// of this side, and takes longer.
    fn drop_silent(&mut self) {
        let is_silent = |own: &Member| own.pace.silence.is_longer(SILENCE);
        let longest = match self.members.iter().all(is_silent) {
            true => SILENCE_OF_ALL,
            false => SILENCE,
        };
        for at in (0..self.members.len()).rev() {
            if self.members[at].pace.silence.is_longer(longest) {
                let cause = format!("it has taken nothing for {} seconds", longest.as_secs());
                let number = self.members[at].number;
                let sources = &self.joining.sources;
                let fault = sources.fault(number, Code::DeadlineExceeded, cause);
                // Another attempt opens another session.
                self.members[at].client.stop();
                self.drop_member(at, &fault.retry(Retry::Now));
            }
        }
    }

    /// Follows the parts that a member is sent.
    fn poll(&mut self, at: usize, context: &mut Context<'_>) -> Result<(), Fault> {
        let member = &mut self.members[at];
        let mut next = 0;
        while let Some(sending) = member.sending.get_mut(next) {
            let mut is_heard = false;
            // Progress is reported at intervals too, while nothing moves.
            while let Poll::Ready(Some(progress)) = sending.transfer.poll_progress(context) {
                is_heard |= progress.bytes > sending.bytes;
                sending.bytes = progress.bytes;
            }
            if sending.transfer.is_finished() {
                let Sending {
                    part,
                    transfer,
                    began,
                    ..
                } = member.sending.swap_remove(next);
                if let Err(fault) = transfer.wait() {
                    self.shared.give_back([part]);
                    return Err(fault);
                }
                member.pace.measured(part.bytes(), began);
                member.pace.silence.end(member.sending.is_empty());
                self.written.push_back((member.number, part));
                continue;
            }
            if is_heard {
                member.pace.silence.end(false);
            }
            next += 1;
        }
        Ok(())
    }

    /// Asks home to take in what was written; `false` if there is nothing, or it is asked already.
    fn take_in(&mut self) -> Result<bool, Fault> {
        if self.taking.is_some() {
            return Ok(false);
        }
        let mut parts: Written = match self.doubtful.pop_front() {
            Some(one) => [one].into(),
            None => {
                let mut bytes = 0;
                let fits = |(_, part): &&(usize, Part)| {
                    bytes += part.bytes();
                    bytes <= TAKEN_BYTES_MAX
                };
                let count = self.written.iter().take(TAKEN_MAX).take_while(fits).count();
                self.written.drain(..count).collect()
            }
        };
        if parts.is_empty() {
            return Ok(false);
        }
        parts
            .make_contiguous()
            .sort_by_key(|(_, part)| part.fragment.range.start);
        let fragments = parts.iter().map(|(_, part)| part.fragment).collect();
        let call = Call::Stripes(StripesCall::TakeIn {
            id: self.home.id,
            fragments,
        });
        self.taking = Some((self.home.client.start_call(call)?, parts));
        Ok(true)
    }

    /// Takes the answer of home.
    fn poll_taking(&mut self, context: &mut Context<'_>) -> Result<(), Fault> {
        let Some((call, _)) = &mut self.taking else {
            return Ok(());
        };
        let Poll::Ready(answer) = Pin::new(call).poll(context) else {
            return Ok(());
        };
        let Answer::Copied { bytes: taken } = answer? else {
            let sources = &self.joining.sources;
            return Err(sources.fault(0, Code::Internal, "another answer"));
        };
        let parts = self.taking.take().map(|(_, parts)| parts);
        let parts = parts.unwrap_or_default();
        let bytes: u64 = parts.iter().map(|(_, part)| part.bytes()).sum();
        if taken == bytes {
            for (number, part) in &parts {
                self.joining.sources.log.add(*number, part.bytes());
            }
            self.shared.lock().waiting -= bytes;
            self.shared.changed.notify_all();
            return Ok(());
        }
        if parts.len() > 1 {
            self.doubtful.extend(parts);
            return Ok(());
        }
        for (number, part) in parts {
            self.shared.give_back([part]);
            let cause = "the server that has the file doesn't find there what it has written: it \
                         has another storage";
            let sources = &self.joining.sources;
            let fault = sources.fault(number, Code::IntegrityMismatch, cause);
            match self.members.iter().position(|own| own.number == number) {
                Some(at) => self.drop_member(at, &fault),
                None => sources.log.drop_source(number, &fault),
            }
        }
        Ok(())
    }

    /// Gives parts to the members. Returns whether any has begun.
    fn assign(&mut self) -> bool {
        let mut has_begun = false;
        // One part for each in turn.
        loop {
            let mut gives = false;
            for at in (0..self.members.len()).rev() {
                let member = &self.members[at];
                if member.sending.len() >= member.pace.ranges_max(self.home.part_bytes) {
                    continue;
                }
                let Some(part) = self.shared.lock().queue.pop_front() else {
                    return has_begun;
                };
                match self.send(at, part) {
                    Ok(()) => gives = true,
                    Err(fault) => self.drop_member(at, &fault),
                }
            }
            has_begun |= gives;
            if !gives {
                return has_begun;
            }
        }
    }

    fn send(&mut self, at: usize, part: Part) -> Result<(), Fault> {
        let target = part_path(&PartPlace {
            number: self.home.number,
            offset: part.fragment.range.start,
            path: self.home.path.clone(),
        });
        let options = TransferOptions {
            parameters: TransferParameters {
                // Home reads it back, and compares it.
                digest: Some(DigestKind::None),
                overwrite: true,
                resume: Resume::Never,
                ..TransferParameters::default()
            },
            skip: Skip::Never,
            ..TransferOptions::default()
        };
        let member = &mut self.members[at];
        let started = member
            .client
            .upload_from(&part.store, PART_NAME, &target, &options);
        let transfer = match started {
            Ok(transfer) => transfer,
            Err(fault) => {
                self.shared.give_back([part]);
                return Err(fault);
            }
        };
        member.pace.silence.begin();
        member.sending.push(Sending {
            part,
            transfer,
            bytes: 0,
            began: Instant::now(),
        });
        Ok(())
    }
}
