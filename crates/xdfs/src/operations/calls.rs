//! Calls about paths on either side: one by one, and many ahead of their answers.

use std::collections::VecDeque;

use xdfs_proto::{Code, Fault};

use crate::client::Client;
use crate::paths::{Answer, Attributes, Call, PendingCall, call_local};

/// Pending calls at once.
const CALLS_AHEAD: usize = 64;

/// The fault of an answer of the wrong kind, which only a faulty server gives.
#[must_use]
pub fn unexpected_answer(operation: &str, path: &[u8]) -> Fault {
    let cause = "unexpected kind of answer";
    Fault::new(Code::ProtocolViolation, operation, cause).path(path)
}

/// Attributes of a path on a server; with `follow`, of the target of a symbolic link.
///
/// # Errors
/// As [`PendingCall::wait`].
pub fn stat(client: &Client, path: &[u8], follow: bool) -> Result<Attributes, Fault> {
    let call = Call::Stat {
        path: path.to_vec(),
        follow,
    };
    SideCall::from(client.start_call(call)).attributes(path)
}

/// A call in progress. A local one runs when its answer is waited for.
#[derive(Debug)]
pub enum SideCall {
    /// On this machine.
    Local(Call),
    /// On a server; a fault if it couldn't be started.
    Remote(Result<PendingCall, Fault>),
}

impl SideCall {
    /// Waits for the answer.
    ///
    /// # Errors
    /// As [`call_local`] and [`PendingCall::wait`].
    pub fn wait(self) -> Result<Answer, Fault> {
        match self {
            Self::Local(call) => call_local(&call),
            Self::Remote(pending) => pending?.wait(),
        }
    }

    /// Waits for the attributes of `path`.
    ///
    /// # Errors
    /// As [`SideCall::wait`], and [`Code::ProtocolViolation`] for another kind of answer.
    pub fn attributes(self, path: &[u8]) -> Result<Attributes, Fault> {
        match self.wait()? {
            Answer::Attributes(attributes) => Ok(attributes),
            _ => Err(unexpected_answer("look at", path)),
        }
    }
}

impl From<Result<PendingCall, Fault>> for SideCall {
    fn from(pending: Result<PendingCall, Fault>) -> Self {
        Self::Remote(pending)
    }
}

/// Calls in progress, at most 64, whose outcomes are returned in order.
#[derive(Debug)]
pub struct InFlight<T> {
    waiting: VecDeque<(T, SideCall)>,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        let waiting = VecDeque::new();
        Self { waiting }
    }
}

impl<T> InFlight<T> {
    /// No calls yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a call that was started, and returns the earliest outcome if enough are pending.
    pub fn push(
        &mut self,
        about: T,
        call: impl Into<SideCall>,
    ) -> Option<(T, Result<Answer, Fault>)> {
        self.waiting.push_back((about, call.into()));
        let is_full = self.waiting.len() >= CALLS_AHEAD;
        is_full.then(|| self.pop()).flatten()
    }

    /// Waits for the earliest call; `None` if there is none.
    pub fn pop(&mut self) -> Option<(T, Result<Answer, Fault>)> {
        let (about, call) = self.waiting.pop_front()?;
        Some((about, call.wait()))
    }
}
