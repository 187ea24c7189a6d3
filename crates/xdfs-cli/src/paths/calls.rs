//! Calls to a server about paths: one by one, and many ahead of their answers.

use std::collections::VecDeque;

use xdfs::{Answer, Attributes, Call, Client, Code, Fault, PendingCall};

/// Pending calls at once.
const CALLS_AHEAD: usize = 64;

/// The fault of an answer of the wrong kind.
pub(crate) fn unexpected(operation: &str, path: &[u8]) -> Fault {
    Fault::new(
        Code::ProtocolViolation,
        operation,
        "unexpected kind of answer",
    )
    .path(path)
}

/// Attributes of a path.
///
/// # Errors
/// As the call.
pub(crate) fn stat(client: &Client, path: &[u8], follow: bool) -> Result<Attributes, Fault> {
    let path = path.to_vec();
    match client.call(Call::Stat {
        path: path.clone(),
        follow,
    })? {
        Answer::Attributes(attributes) => Ok(attributes),
        _ => Err(unexpected("look at", &path)),
    }
}

/// Pipelines calls, and returns their outcomes in order.
pub(crate) struct InFlight<'a, T> {
    client: &'a Client,
    waiting: VecDeque<(T, Result<PendingCall, Fault>)>,
}

impl<'a, T> InFlight<'a, T> {
    /// No calls yet.
    pub(crate) fn new(client: &'a Client) -> Self {
        Self {
            client,
            waiting: VecDeque::new(),
        }
    }

    /// Makes a call, and returns the earliest outcome if enough are pending.
    pub(crate) fn push(&mut self, about: T, call: Call) -> Option<(T, Result<Answer, Fault>)> {
        let full = self.waiting.len() >= CALLS_AHEAD;
        let earliest = full.then(|| self.pop()).flatten();
        self.waiting
            .push_back((about, self.client.start_call(call)));
        earliest
    }

    /// Waits for the earliest call; `None` if there is none.
    pub(crate) fn pop(&mut self) -> Option<(T, Result<Answer, Fault>)> {
        let (about, pending) = self.waiting.pop_front()?;
        Some((about, pending.and_then(PendingCall::wait)))
    }
}
