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
//! ```
//!
//! A job that somebody wants to pause or cancel is *stopping* while its worker still has it: what
//! is in flight becomes durable first. It may still succeed or fail in this time.

use std::fmt;
use std::str::FromStr;

use xdfs::{Code, Fault};

use crate::failure::Failure;

/// The name of a worker: the process and its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerId(pub String);

/// The state of a job, with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for a worker.
    Queued,
    /// The worker has it.
    Running(WorkerId),
    /// The worker has it and is to give it up.
    Stopping(WorkerId, Rest),
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
    /// The word for it in messages and URLs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Succeed => "succeed",
            Self::Fail(_) => "fail",
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
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
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Running,
        Self::Requeueing,
        Self::Pausing,
        Self::Cancelling,
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

    /// Why the job failed.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The state of which these are the parts; `None` if there is none.
    #[must_use]
    pub fn from_parts(
        word: StateName,
        worker: Option<WorkerId>,
        failure: Option<Failure>,
    ) -> Option<Self> {
        Some(match (word, worker, failure) {
            (StateName::Running, Some(worker), None) => Self::Running(worker),
            (StateName::Requeueing, Some(worker), None) => Self::Stopping(worker, Rest::Queued),
            (StateName::Pausing, Some(worker), None) => Self::Stopping(worker, Rest::Paused),
            (StateName::Cancelling, Some(worker), None) => Self::Stopping(worker, Rest::Cancelled),
            (StateName::Failed, None, Some(failure)) => Self::Failed(Box::new(failure)),
            (StateName::Queued, None, None) => Self::Queued,
            (StateName::Paused, None, None) => Self::Paused,
            (StateName::Succeeded, None, None) => Self::Succeeded,
            (StateName::Cancelled, None, None) => Self::Cancelled,
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
            (Self::Queued, C::Start(worker)) => Self::Running(worker),
            (Self::Running(_) | Self::Stopping(..), C::Succeed) => Self::Succeeded,
            (Self::Running(_) | Self::Stopping(..), C::Fail(failure)) => Self::Failed(failure),

            (Self::Running(_) | Self::Stopping(_, Rest::Queued), C::Stopped) => Self::Queued,
            (Self::Stopping(_, Rest::Paused), C::Stopped) => Self::Paused,
            (Self::Stopping(_, Rest::Cancelled), C::Stopped) => Self::Cancelled,

            (Self::Queued, C::Pause) => Self::Paused,
            (Self::Running(worker) | Self::Stopping(worker, Rest::Queued), C::Pause) => {
                Self::Stopping(worker.clone(), Rest::Paused)
            }
            (Self::Paused | Self::Stopping(_, Rest::Paused), C::Pause) => return Ok(None),

            (Self::Paused, C::Resume) => Self::Queued,
            (Self::Stopping(worker, Rest::Paused), C::Resume) => {
                Self::Stopping(worker.clone(), Rest::Queued)
            }
            (Self::Queued | Self::Running(_) | Self::Stopping(_, Rest::Queued), C::Resume) => {
                return Ok(None);
            }

            (Self::Queued | Self::Paused, C::Cancel) => Self::Cancelled,
            (
                Self::Running(worker) | Self::Stopping(worker, Rest::Queued | Rest::Paused),
                C::Cancel,
            ) => Self::Stopping(worker.clone(), Rest::Cancelled),
            (Self::Cancelled | Self::Stopping(_, Rest::Cancelled), C::Cancel) => return Ok(None),

            (Self::Failed(_) | Self::Cancelled, C::Retry) => Self::Queued,

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
            Self::Worker(WorkerId(name)) => write!(f, "worker {name}"),
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

    fn state(word: StateName) -> State {
        let has_worker = matches!(
            word,
            StateName::Running | StateName::Requeueing | StateName::Pausing | StateName::Cancelling
        );
        let failure = (word == StateName::Failed).then(failure);
        let state = State::from_parts(word, has_worker.then(worker), failure);
        state.unwrap_or_else(|| panic!("{word} has these parts"))
    }

    fn changes() -> [Change; 8] {
        [
            Change::Start(worker()),
            Change::Succeed,
            Change::Fail(Box::new(failure())),
            Change::Stopped,
            Change::Pause,
            Change::Resume,
            Change::Cancel,
            Change::Retry,
        ]
    }

    /// For each state what the changes lead to, in their order: a state, `same`, or `-` if the
    /// change is refused.
    const TABLE: [&str; 9] = [
        // state    start   succeed   fail   stop      pause   resume     cancel     retry
        "queued     running -         -      -         paused  same       cancelled  -",
        "running    -       succeeded failed queued    pausing same       cancelling -",
        "requeueing -       succeeded failed queued    pausing same       cancelling -",
        "pausing    -       succeeded failed paused    same    requeueing cancelling -",
        "cancelling -       succeeded failed cancelled -       -          same       -",
        "paused     -       -         -      -         same    queued     cancelled  -",
        "succeeded  -       -         -      -         -       -          -          -",
        "failed     -       -         -      -         -       -          -          queued",
        "cancelled  -       -         -      -         -       -          same       queued",
    ];

    #[test]
    fn every_change_of_every_state_is_as_the_table_has_it() {
        for (word, row) in StateName::ALL.into_iter().zip(TABLE) {
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
            let parts = (state.worker().cloned(), state.failure().cloned());
            assert_eq!(word.as_str().parse::<StateName>(), Ok(word));
            let (has_worker, has_failure) = (parts.0.is_some(), parts.1.is_some());
            assert_eq!(State::from_parts(word, parts.0, parts.1), Some(state));
            let (worker, failure) = ((!has_worker).then(worker), (!has_failure).then(failure));
            assert_eq!(State::from_parts(word, worker, failure), None, "{word}");
        }
        assert!("finished".parse::<StateName>().is_err());
    }

    #[test]
    fn people_can_ask_for_four_changes() {
        let words = ["pause", "resume", "cancel", "retry"];
        assert!(words.iter().all(|word| Change::of_person(word).is_some()));
        for word in ["", "start", "succeed", "fail", "stop", "Cancel"] {
            assert_eq!(Change::of_person(word), None, "{word}");
        }
    }
}
