//! Decisions about the network path of a session. The same value becomes the line of the log and
//! what the session's user is told.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Number of decisions kept until the user takes them. A session makes a few at its beginning, and
/// two or three in each search for the number of channels.
const KEPT_MAX: usize = 256;

/// A decision about the network path of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathDecision {
    /// What the path is, by its measurement. Repeated when a later one shows another class.
    Class {
        /// The class.
        class: PathClass,
        /// The round-trip time that decided it; `None` within one machine.
        round_trip: Option<Duration>,
    },
    /// The congestion control of this side on a long path, told for its first channel.
    Congestion {
        /// The congestion control that the system uses; empty if it doesn't tell.
        used: String,
        /// Why the system refuses the one that suits long paths; `None` if it doesn't.
        refused: Option<String>,
    },
    /// The server isn't reached over one driver stack, and the next of those that the user listed
    /// is tried.
    Fallback {
        /// The stack that failed.
        from: String,
        /// The stack that is tried next.
        to: String,
        /// Why the first one failed.
        cause: String,
    },
    /// There is to be another number of channels.
    Channels {
        /// The number before.
        before: u32,
        /// The number from now on.
        wanted: u32,
        /// Why.
        reason: ChannelsReason,
    },
}

/// What a network path is by its round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathClass {
    /// Both ends are on one machine.
    Local,
    /// Less than 2 ms.
    Short,
    /// From 2 ms.
    Medium,
    /// From 10 ms.
    Long,
    /// From 150 ms.
    VeryLong,
}

impl PathClass {
    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
            Self::VeryLong => "very-long",
        }
    }
}

impl fmt::Display for PathClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why there is to be another number of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelsReason {
    /// It suits what is moved, on this path.
    Workload,
    /// The search tries more.
    Trial,
    /// The last ones brought less than they cost.
    NoGain,
    /// The peer refuses further ones.
    Refused,
}

impl ChannelsReason {
    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workload => "workload",
            Self::Trial => "trial",
            Self::NoGain => "no-gain",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for ChannelsReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PathDecision {
    /// Logs it.
    pub(crate) fn log(&self) {
        match self {
            Self::Class { class, round_trip } => {
                tracing::debug!(%class, ?round_trip, "the network path is measured");
            }
            Self::Congestion {
                used,
                refused: None,
            } => tracing::debug!(congestion = used, "a channel suits a long path"),
            Self::Congestion {
                used,
                refused: Some(error),
            } => tracing::info!(
                %error,
                congestion = used,
                "the system refuses bbr, which suits long paths; more channels are used instead"
            ),
            Self::Fallback { from, to, cause } => {
                tracing::warn!(
                    from,
                    to,
                    cause,
                    "the server isn't reached; trying another stack"
                );
            }
            Self::Channels {
                before,
                wanted,
                reason: reason @ (ChannelsReason::Workload | ChannelsReason::Refused),
            } => tracing::debug!(before, wanted, %reason, "the number of channels is chosen"),
            Self::Channels {
                before,
                wanted,
                reason,
            } => tracing::info!(before, wanted, %reason, "the number of channels changes"),
        }
    }
}

/// The decisions of one session or of several, until their user takes them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PathDecisions(Arc<Mutex<Vec<PathDecision>>>);

impl PathDecisions {
    /// Takes those that were made since the last time. More than 256 are not kept.
    #[must_use]
    pub fn take(&self) -> Vec<PathDecision> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Logs a decision, and keeps it.
    pub(crate) fn tell(&self, decision: PathDecision) {
        decision.log();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(decision);
        }
    }
}
