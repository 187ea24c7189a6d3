//! The states of a job, and the changes that lead from one to another. No input or output, and no
//! clock: see the table in [`State::after`].
//!
//! ```text
//!             start           succeed, fail
//!   queued -----------> running ---------> succeeded | failed
//!    | ^  <-----------   |  |                            |
//!    | |    stopped      |  | pause, cancel              | retry
//!    | |                 v  v                            v
//!    | '------------- stopping ---> paused | cancelled ---> queued
//!    '--- pause, cancel -----------^
//!
//!   running ---- postpone ---> retrying ---- start, when it is time ---> running
//!   queued, retrying, paused ---- expire ---> failed
//! ```
//!
//! A job that somebody wants to pause or cancel is *stopping* while its worker still has it: what
//! is in flight becomes durable first. It may still succeed or fail in this time.

use std::fmt;
use std::str::FromStr;

use xdfs::{Code, Fault};

use crate::failure::Failure;
use crate::time::Time;

/// The name of a process of the service, from its start until its lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId(pub(crate) String);

impl ProcessId {
    /// A new name.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new() -> Result<Self, Fault> {
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|error| Fault::new(Code::Internal, "name the process", error.to_string()))?;
        let number = u64::from_be_bytes(random);
        Ok(Self(format!("{}-{number:016x}", std::process::id())))
    }

    /// A worker of it.
    #[must_use]
    pub(crate) fn worker(&self, number: u64) -> WorkerId {
        WorkerId(format!("{}.{number}", self.0))
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a worker: that of its process, and its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerId(pub String);

impl WorkerId {
    /// The name of its process.
    pub(crate) fn process(&self) -> &str {
        self.0.rsplit_once('.').map_or("", |(process, _)| process)
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The state of a job, with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for a worker.
    Queued,
    /// The worker has it.
    Running(WorkerId),
    /// The worker has it and is to give it up.
    Stopping(WorkerId, Rest),
    /// Something failed that may succeed later: it waits for a worker from this time on.
    Retrying(Box<Failure>, Time),
    /// It waits until somebody resumes it.
    Paused,
    /// All of its transfers have succeeded.
    Succeeded,
    /// A transfer has failed for good.
    Failed(Box<Failure>),
    /// Somebody has cancelled it.
    Cancelled,
}

/// The state of a job after it was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// [`State::Queued`]: it was resumed before it had stopped.
    Queued,
    /// [`State::Paused`].
    Paused,
    /// [`State::Cancelled`].
    Cancelled,
}

/// A change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A worker takes the job.
    Start(WorkerId),
    /// The worker has done everything.
    Succeed,
    /// The worker has done what could be done, and something failed.
    Fail(Box<Failure>),
    /// The worker has done what could be done now, and what failed may succeed at this time.
    Postpone(Box<Failure>, Time),
    /// No worker has the job, and its deadline has passed.
    Expire(Box<Failure>),
    /// No worker has the job any more, and it isn't done.
    Stopped,
    /// Somebody wants it to wait.
    Pause,
    /// Somebody wants a paused job to run.
    Resume,
    /// Somebody wants it to end.
    Cancel,
    /// Somebody wants what failed or was cancelled to be tried again.
    Retry,
}

impl Change {
    /// The end of a job of which every transfer has ended, and its reason: that of the first one
    /// that failed, if one did.
    pub(crate) fn ended(failure: Option<Box<Failure>>) -> (Self, String) {
        match failure {
            None => (Self::Succeed, "all transfers have succeeded".to_owned()),
            Some(failure) => {
                let reason = failure.sentence();
                (Self::Fail(failure), reason)
            }
        }
    }

    /// The word for it in messages and URLs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Succeed => "succeed",
            Self::Fail(_) => "fail",
            Self::Postpone(..) => "postpone",
            Self::Expire(_) => "expire",
            Self::Stopped => "stop",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
            Self::Retry => "retry",
        }
    }

    /// The change that a person may ask for by this word.
    #[must_use]
    pub fn of_person(word: &str) -> Option<Self> {
        let all = [Self::Pause, Self::Resume, Self::Cancel, Self::Retry];
        all.into_iter().find(|change| change.as_str() == word)
    }
}

/// The name of each state, in the database, in JSON and for people.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum StateName {
    /// [`State::Queued`].
    Queued,
    /// [`State::Running`].
    Running,
    /// [`State::Stopping`], to be queued again.
    Requeueing,
    /// [`State::Stopping`], to be paused.
    Pausing,
    /// [`State::Stopping`], to be cancelled.
    Cancelling,
    /// [`State::Retrying`].
    Retrying,
    /// [`State::Paused`].
    Paused,
    /// [`State::Succeeded`].
    Succeeded,
    /// [`State::Failed`].
    Failed,
    /// [`State::Cancelled`].
    Cancelled,
}

impl StateName {
    /// All names.
    pub const ALL: [Self; 10] = [
        Self::Queued,
        Self::Running,
        Self::Requeueing,
        Self::Pausing,
        Self::Cancelling,
        Self::Retrying,
        Self::Paused,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name itself.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Requeueing => "requeueing",
            Self::Pausing => "pausing",
            Self::Cancelling => "cancelling",
            Self::Retrying => "retrying",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing happens to the job any more by itself.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StateName {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let found = Self::ALL.into_iter().find(|word| word.as_str() == text);
        found.ok_or_else(|| {
            let cause = "it is no state of a job";
            Fault::new(Code::InvalidArgument, "understand", cause).path(text)
        })
    }
}

impl State {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> StateName {
        match self {
            Self::Queued => StateName::Queued,
            Self::Running(_) => StateName::Running,
            Self::Stopping(_, Rest::Queued) => StateName::Requeueing,
            Self::Stopping(_, Rest::Paused) => StateName::Pausing,
            Self::Stopping(_, Rest::Cancelled) => StateName::Cancelling,
            Self::Retrying(..) => StateName::Retrying,
            Self::Paused => StateName::Paused,
            Self::Succeeded => StateName::Succeeded,
            Self::Failed(_) => StateName::Failed,
            Self::Cancelled => StateName::Cancelled,
        }
    }

    /// The worker that has the job.
    #[must_use]
    pub fn worker(&self) -> Option<&WorkerId> {
        match self {
            Self::Running(worker) | Self::Stopping(worker, _) => Some(worker),
            _ => None,
        }
    }

    /// Why the job failed, or is tried again.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) | Self::Retrying(failure, _) => Some(failure),
            _ => None,
        }
    }

    /// The time before which no worker takes the job.
    #[must_use]
    pub fn not_before(&self) -> Option<Time> {
        match self {
            Self::Retrying(_, not_before) => Some(*not_before),
            _ => None,
        }
    }

    /// The state of which these are the parts; `None` if there is none.
    #[must_use]
    pub fn from_parts(
        word: StateName,
        worker: Option<WorkerId>,
        failure: Option<Failure>,
        not_before: Option<Time>,
    ) -> Option<Self> {
        use {Rest as R, StateName as N};
        Some(match (word, worker, failure, not_before) {
            (N::Running, Some(worker), None, None) => Self::Running(worker),
            (N::Requeueing, Some(worker), None, None) => Self::Stopping(worker, R::Queued),
            (N::Pausing, Some(worker), None, None) => Self::Stopping(worker, R::Paused),
            (N::Cancelling, Some(worker), None, None) => Self::Stopping(worker, R::Cancelled),
            (N::Retrying, None, Some(failure), Some(not_before)) => {
                Self::Retrying(Box::new(failure), not_before)
            }
            (N::Failed, None, Some(failure), None) => Self::Failed(Box::new(failure)),
            (N::Queued, None, None, None) => Self::Queued,
            (N::Paused, None, None, None) => Self::Paused,
            (N::Succeeded, None, None, None) => Self::Succeeded,
            (N::Cancelled, None, None, None) => Self::Cancelled,
            _ => return None,
        })
    }

    /// The state after a change; `None` if the job is, or will be, as the change has it.
    ///
    /// # Errors
    /// [`Code::Stale`] if the change isn't possible in this state.
    pub fn after(&self, change: Change) -> Result<Option<Self>, Fault> {
        use Change as C;
        let word = change.as_str();
        let after = match (self, change) {
            (Self::Queued | Self::Retrying(..), C::Start(worker)) => Self::Running(worker),
            (Self::Running(_) | Self::Stopping(..), C::Succeed) => Self::Succeeded,
            (Self::Running(_) | Self::Stopping(..), C::Fail(failure)) => Self::Failed(failure),

            (Self::Queued | Self::Retrying(..) | Self::Paused, C::Expire(failure)) => {
                Self::Failed(failure)
            }

            (Self::Running(_), C::Postpone(failure, at)) => Self::Retrying(failure, at),
            (Self::Running(_), C::Stopped) => Self::Queued,
            // Somebody's wish comes first.
            (Self::Stopping(_, rest), C::Stopped | C::Postpone(..)) => match rest {
                Rest::Queued => Self::Queued,
                Rest::Paused => Self::Paused,
                Rest::Cancelled => Self::Cancelled,
            },

            (Self::Queued | Self::Retrying(..), C::Pause) => Self::Paused,
            (Self::Running(worker) | Self::Stopping(worker, Rest::Queued), C::Pause) => {
                Self::Stopping(worker.clone(), Rest::Paused)
            }
            (Self::Paused | Self::Stopping(_, Rest::Paused), C::Pause) => return Ok(None),

            (Self::Paused, C::Resume) => Self::Queued,
            (Self::Stopping(worker, Rest::Paused), C::Resume) => {
                Self::Stopping(worker.clone(), Rest::Queued)
            }
            (
                Self::Queued
                | Self::Retrying(..)
                | Self::Running(_)
                | Self::Stopping(_, Rest::Queued),
                C::Resume,
            ) => return Ok(None),

            (Self::Queued | Self::Retrying(..) | Self::Paused, C::Cancel) => Self::Cancelled,
            (
                Self::Running(worker) | Self::Stopping(worker, Rest::Queued | Rest::Paused),
                C::Cancel,
            ) => Self::Stopping(worker.clone(), Rest::Cancelled),
            (Self::Cancelled | Self::Stopping(_, Rest::Cancelled), C::Cancel) => return Ok(None),

            (Self::Failed(_) | Self::Retrying(..) | Self::Cancelled, C::Retry) => Self::Queued,

            _ => {
                let cause = format!("it is {}", self.name());
                let operation = format!("{word} the job");
                return Err(Fault::new(Code::Stale, operation, cause));
            }
        };
        Ok(Some(after))
    }
}

/// Who changed a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A person or a program with that person's rights.
    User(String),
    /// A worker.
    Worker(WorkerId),
    /// The service itself.
    Service,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::Worker(worker) => write!(f, "worker {worker}"),
            Self::Service => f.write_str("service"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker() -> WorkerId {
        WorkerId("1".to_owned())
    }

    fn failure() -> Failure {
        Failure::from(&Fault::new(Code::NoSpace, "write", "the disk is full"))
    }

    fn time() -> Time {
        Time::from_microseconds(7)
    }

    fn state(word: StateName) -> State {
        let has_worker = matches!(
            word,
            StateName::Running | StateName::Requeueing | StateName::Pausing | StateName::Cancelling
        );
        let is_retried = word == StateName::Retrying;
        let failure = (word == StateName::Failed || is_retried).then(failure);
        let not_before = is_retried.then(time);
        let state = State::from_parts(word, has_worker.then(worker), failure, not_before);
        state.unwrap_or_else(|| panic!("{word} has these parts"))
    }

    fn changes() -> [Change; 10] {
        [
            Change::Start(worker()),
            Change::Succeed,
            Change::Fail(Box::new(failure())),
            Change::Postpone(Box::new(failure()), time()),
            Change::Expire(Box::new(failure())),
            Change::Stopped,
            Change::Pause,
            Change::Resume,
            Change::Cancel,
            Change::Retry,
        ]
    }

    /// For each state what the changes lead to, in their order: a state, `same`, or `-` if the
    /// change is refused.
    const TABLE: &str = "\
state      start   succeed   fail   postpone  expire stop      pause   resume     cancel     retry
queued     running -         -      -         failed -         paused  same       cancelled  -
running    -       succeeded failed retrying  -      queued    pausing same       cancelling -
requeueing -       succeeded failed queued    -      queued    pausing same       cancelling -
pausing    -       succeeded failed paused    -      paused    same    requeueing cancelling -
cancelling -       succeeded failed cancelled -      cancelled -       -          same       -
retrying   running -         -      -         failed -         paused  same       cancelled  queued
paused     -       -         -      -         failed -         same    queued     cancelled  -
succeeded  -       -         -      -         -      -         -       -          -          -
failed     -       -         -      -         -      -         -       -          -          queued
cancelled  -       -         -      -         -      -         -       -          same       queued
";

    #[test]
    fn every_change_of_every_state_is_as_the_table_has_it() {
        for (word, row) in StateName::ALL.into_iter().zip(TABLE.lines().skip(1)) {
            let mut row = row.split_whitespace();
            assert_eq!(row.next(), Some(word.as_str()));
            let before = state(word);
            for change in changes() {
                let expected = row.next().unwrap();
                let after = before.after(change.clone());
                let seen = match &after {
                    Ok(Some(state)) => state.name().as_str(),
                    Ok(None) => "same",
                    Err(fault) => {
                        assert_eq!(fault.code, Code::Stale);
                        "-"
                    }
                };
                assert_eq!(seen, expected, "{word} {}", change.as_str());
                // A worker stays with its job until it gives it up.
                if let Ok(Some(after)) = after
                    && let (Some(before), Some(after)) = (before.worker(), after.worker())
                {
                    assert_eq!(before, after);
                }
            }
        }
    }

    #[test]
    fn a_state_is_its_parts_and_nothing_else_is_one() {
        for word in StateName::ALL {
            let state = state(word);
            assert_eq!(word.as_str().parse::<StateName>(), Ok(word));
            let has = (
                state.worker().is_some(),
                state.failure().is_some(),
                state.not_before().is_some(),
            );
            for other in 0..8 {
                let parts = (other & 1 != 0, other & 2 != 0, other & 4 != 0);
                let (worker, failure) = (parts.0.then(worker), parts.1.then(failure));
                let made = State::from_parts(word, worker, failure, parts.2.then(time));
                assert_eq!(made, (parts == has).then(|| state.clone()), "{word}");
            }
        }
        assert!("finished".parse::<StateName>().is_err());
    }

    #[test]
    fn people_can_ask_for_four_changes() {
        let words = ["pause", "resume", "cancel", "retry"];
        assert!(words.iter().all(|word| Change::of_person(word).is_some()));
        let others = "start succeed fail postpone expire stop Cancel".split(' ');
        for word in others.chain([""]) {
            assert_eq!(Change::of_person(word), None, "{word}");
        }
    }
}
