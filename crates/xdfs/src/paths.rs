//! Calls about paths on the server: look at names, change them, list directories.

mod course;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use xdfs_engine::{CallJob, CallPart, Command, Commands};
pub use xdfs_proto::path::{Answer, Attributes, Call, Entry, FileKind};
use xdfs_proto::{Code, Fault};

use self::course::Course;
use crate::client::Client;
use crate::transfer::SessionEnd;

/// What makes calls in a session.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    commands: Commands,
    end: SessionEnd,
    next: Arc<AtomicU64>,
    listed_bytes_max: u64,
}

impl Caller {
    pub(crate) fn new(commands: Commands, end: SessionEnd, listed_bytes_max: u64) -> Self {
        Self {
            commands,
            end,
            next: Arc::default(),
            listed_bytes_max,
        }
    }

    /// Whether a call failed since the session has ended, or is about to.
    pub(crate) fn is_over(&self, fault: &Fault) -> bool {
        self.end.known().is_some()
            || matches!(
                fault.code,
                Code::ConnectionLost | Code::DeadlineExceeded | Code::ShuttingDown
            )
    }

    /// Starts a call without waiting.
    pub(crate) fn start_pending(&self, call: Call) -> Result<PendingCall, Fault> {
        self.start(call).map(PendingCall)
    }

    fn start(&self, call: Call) -> Result<Running, Fault> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, parts) = mpsc::channel();
        let listing = matches!(call, Call::List { .. });
        let course = Course::new(&call, self.listed_bytes_max);
        let job = CallJob {
            number,
            call,
            parts: sender,
        };
        self.commands
            .send(Command::Call(job))
            .map_err(|_| self.end.fault())?;
        Ok(Running {
            caller: self.clone(),
            number,
            listing,
            parts,
            course,
            ended: false,
        })
    }
}

/// A call that was made.
struct Running {
    caller: Caller,
    number: u64,
    listing: bool,
    parts: mpsc::Receiver<CallPart>,
    course: Course,
    ended: bool,
}

impl Running {
    /// The next part of the answer, and whether it is the last.
    fn next(&mut self) -> Result<(Answer, bool), Fault> {
        let part = self.parts.recv();
        let (answer, last) = match part {
            Ok(CallPart { answer, last }) => (answer, last),
            Err(mpsc::RecvError) => (Err(self.caller.end.fault()), true),
        };
        self.ended |= last || answer.is_err();
        let answer = answer?;
        self.course.pass(&answer)?;
        Ok((answer, last))
    }

    /// A part other than the last was used.
    fn took(&self) {
        // A session that has ended sends nothing more.
        let _ = self.caller.commands.send(Command::Took(self.number));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Parts of a listing would wait for somebody to take them. Anything else ends by itself.
        if self.listing && !self.ended {
            let _ = self.caller.commands.send(Command::Abandon(self.number));
        }
    }
}

/// A call that is under way. Dropping it doesn't undo the call: nobody hears then what came of it.
///
/// Calls that are under way at the same time are carried out in any order, and some of them at the
/// same time. What has to follow something else is started when that has ended.
pub struct PendingCall(Running);

impl PendingCall {
    /// Waits for the end. The parts of a listing are put together.
    ///
    /// # Errors
    /// Why the call failed, or why the session ended. In the second case a call that changes
    /// something may have been carried out all the same; the hint says so. For a listing also what
    /// [`Listing`] says.
    pub fn wait(mut self) -> Result<Answer, Fault> {
        let mut names = Vec::new();
        loop {
            match self.0.next()? {
                (answer, true) if names.is_empty() => return Ok(answer),
                (Answer::Entries { entries, cursor }, last) => {
                    names.extend(entries);
                    if last {
                        let entries = names;
                        return Ok(Answer::Entries { entries, cursor });
                    }
                    self.0.took();
                }
                // Only listings have more than one part, and only entries.
                (answer, _) => return Ok(answer),
            }
        }
    }
}

impl fmt::Debug for PendingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PendingCall").field(&self.0.number).finish()
    }
}

/// The names in a directory, as they come from the server: made by [`Client::list`]. It holds at
/// most the parts that the protocol lets be under way, about 300 KiB, however large the directory.
///
/// It is no picture of one moment: names that are made, removed or renamed meanwhile may be in it
/// or not. After an error nothing follows. Dropping it ends the listing; so does closing the
/// client, with [`Code::Cancelled`](crate::Code::Cancelled).
///
/// It has an end, whatever the server does: one that goes round in circles is a
/// [`Code::ProtocolViolation`], and one with more than
/// [`listed_bytes_max`](crate::Limits::listed_bytes_max) is [`Code::LimitExceeded`].
pub struct Listing {
    caller: Caller,
    path: Vec<u8>,
    state: State,
    entries: std::vec::IntoIter<Entry>,
}

enum State {
    /// A call is to be made that goes on here, as one before it came.
    From(Vec<u8>, Option<Course>),
    /// A call runs. The second says that its latest part isn't reported as used yet.
    Running(Running, bool),
    /// Nothing follows the entries that are here.
    Ended,
}

impl Listing {
    /// Asks the server now, and not when the first name is wanted.
    #[must_use]
    pub fn begin(mut self) -> Self {
        if matches!(self.state, State::From(..)) {
            // If it fails, the session has ended: the first item will say so.
            let _ = self.fetch();
        }
        self
    }

    /// Fetches more entries, if there are any.
    fn fetch(&mut self) -> Result<(), Fault> {
        match &mut self.state {
            State::From(cursor, course) => {
                let call = Call::List {
                    path: self.path.clone(),
                    cursor: std::mem::take(cursor),
                    entries_max: u32::MAX,
                };
                let mut running = self.caller.start(call)?;
                if let Some(mut course) = course.take() {
                    course.go_on();
                    running.course = course;
                }
                self.state = State::Running(running, false);
            }
            State::Running(running, used) => {
                if std::mem::take(used) {
                    running.took();
                }
                let (answer, last) = running.next()?;
                let Answer::Entries { entries, cursor } = answer else {
                    // The engine lets nothing else through.
                    self.state = State::Ended;
                    return Ok(());
                };
                self.entries = entries.into_iter();
                match (last, cursor) {
                    (false, _) => *used = true,
                    (true, Some(cursor)) => {
                        let course = running.course.clone();
                        self.state = State::From(cursor, Some(course));
                    }
                    (true, None) => self.state = State::Ended,
                }
            }
            State::Ended => {}
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
            if matches!(self.state, State::Ended) {
                return None;
            }
            if let Err(fault) = self.fetch() {
                self.state = State::Ended;
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

impl Client {
    /// Makes a call and waits for its end. The parts of a listing are put together; where there
    /// may be many names [`Client::list`] needs less memory.
    ///
    /// # Errors
    /// As [`PendingCall::wait`].
    pub fn call(&self, call: Call) -> Result<Answer, Fault> {
        self.start_call(call)?.wait()
    }

    /// Starts a call without waiting; many may be under way at once. Those that are too many for
    /// the session wait in this process. What the session doesn't need for calls it uses for
    /// transfers at the same time.
    ///
    /// # Errors
    /// The session has ended. What fails later comes from [`PendingCall::wait`].
    pub fn start_call(&self, call: Call) -> Result<PendingCall, Fault> {
        self.caller().start(call).map(PendingCall)
    }

    /// The names in a directory on the server as they come, in bounded memory. Errors come as
    /// items. A listing that isn't read to its end takes one of the 128 places for calls that a
    /// session has until it is dropped. Nothing is asked before the first name is wanted, unless
    /// [`Listing::begin`] does.
    #[must_use]
    pub fn list(&self, path: &[u8]) -> Listing {
        Listing {
            caller: self.caller().clone(),
            path: path.to_vec(),
            state: State::From(Vec::new(), None),
            entries: Vec::new().into_iter(),
        }
    }
}
