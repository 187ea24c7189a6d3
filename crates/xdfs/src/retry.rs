//! How often something that failed is tried again, and after which pauses.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xdfs_proto::{Code, Fault, Retry};

/// Retries after transient failures: how many, and the pauses before them.
///
/// A retry that brings progress resets the count. The default is patient: 30 retries, which take
/// about four minutes while a server can't be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// Largest number of retries in a row without progress; 0 for none.
    pub retries_max: u32,
    /// The pause before the first retry; each further one is twice as long.
    #[serde(with = "crate::text")]
    pub pause_first: Duration,
    /// The longest pause, unless the server asks for a longer one.
    #[serde(with = "crate::text")]
    pub pause_max: Duration,
    /// The longest pause that a server can ask for.
    #[serde(with = "crate::text")]
    pub pause_asked_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries_max: 30,
            pause_first: Duration::from_millis(200),
            pause_max: Duration::from_secs(10),
            pause_asked_max: Duration::from_secs(10),
        }
    }
}

impl RetryPolicy {
    /// No retries.
    #[must_use]
    pub fn none() -> Self {
        Self {
            retries_max: 0,
            ..Self::default()
        }
    }

    /// The pause before the retry that follows `retries` others.
    pub(crate) fn pause(&self, retries: u32, fault: &Fault) -> Duration {
        let doubled = self.pause_first.saturating_mul(1 << retries.min(20));
        let own = doubled.min(self.pause_max);
        match fault.retry {
            Retry::AfterMs(ms) => {
                own.max(Duration::from_millis(ms.into()).min(self.pause_asked_max))
            }
            _ => own,
        }
    }
}

/// Whether a fault says that the session is gone, and that another session with the same server may
/// do better. A server that has come back doesn't know the sessions of before.
pub(crate) fn is_session_lost(fault: &Fault) -> bool {
    let may_pass = matches!(
        fault.code,
        Code::ConnectionLost
            | Code::ConnectionRefused
            | Code::DeadlineExceeded
            | Code::ShuttingDown
            | Code::SessionUnknown
    );
    fault.ends_session && (may_pass || fault.retry != Retry::Never)
}

/// What happens to the session of a tree.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReconnectEvent<'a> {
    /// It broke, or another one could not be opened.
    Lost {
        /// Why.
        fault: &'a Fault,
        /// The number of the retry, 1 for the first one after progress.
        retry: u32,
        /// Time until the retry.
        pause: Duration,
    },
    /// The pause continues; reported at least ten times a second.
    Waiting,
    /// Another session is open.
    Restored,
}

/// A callback for broken sessions of a tree, called in any of its threads. `Break` gives up.
#[derive(Clone)]
pub struct ReconnectObserver(Arc<dyn Fn(ReconnectEvent<'_>) -> ControlFlow<()> + Send + Sync>);

impl ReconnectObserver {
    /// An observer that calls a function.
    pub fn new(
        observe: impl Fn(ReconnectEvent<'_>) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn notify(&self, event: ReconnectEvent<'_>) -> ControlFlow<()> {
        (self.0)(event)
    }
}

impl Default for ReconnectObserver {
    /// An observer that ignores all events.
    fn default() -> Self {
        Self::new(|_| ControlFlow::Continue(()))
    }
}

impl std::fmt::Debug for ReconnectObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReconnectObserver")
    }
}
