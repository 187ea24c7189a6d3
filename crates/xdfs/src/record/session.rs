//! The records of sessions and of failures.

use serde::Serialize;
use xdfs_engine::{ChannelsReason, PathClass, PathDecision};
use xdfs_proto::{Fault, Machine, Retry, Side};

#[derive(Debug, Serialize)]
pub(super) struct IdentityBody<'a> {
    pub(super) server: &'a str,
    pub(super) user: Option<&'a str>,
    pub(super) fingerprint: Option<String>,
}

/// A decision about the network path: the fields of the others are null.
#[derive(Debug, Default, Serialize)]
pub(super) struct NetworkPathBody<'a> {
    server: &'a str,
    decision: &'static str,
    class: Option<&'static str>,
    round_trip_seconds: Option<f64>,
    congestion: Option<&'a str>,
    refused: Option<&'a str>,
    stack_before: Option<&'a str>,
    stack: Option<&'a str>,
    channels_before: Option<u32>,
    channels: Option<u32>,
    reason: Option<&'static str>,
}

impl<'a> NetworkPathBody<'a> {
    pub(super) fn new(server: &'a str, decision: &'a PathDecision) -> Self {
        let unknown = Self {
            server,
            decision: "other",
            ..Self::default()
        };
        match decision {
            PathDecision::Class { class, round_trip } => Self {
                decision: "class",
                class: Some(PathClass::as_str(*class)),
                round_trip_seconds: round_trip.map(|time| time.as_secs_f64()),
                ..unknown
            },
            PathDecision::Congestion { used, refused } => Self {
                decision: "congestion",
                congestion: Some(used.as_str()).filter(|used| !used.is_empty()),
                refused: refused.as_deref(),
                ..unknown
            },
            PathDecision::Channels {
                before,
                wanted,
                reason,
            } => Self {
                decision: "channels",
                channels_before: Some(*before),
                channels: Some(*wanted),
                reason: Some(ChannelsReason::as_str(*reason)),
                ..unknown
            },
            PathDecision::Fallback { from, to, cause } => Self {
                decision: "fallback",
                stack_before: Some(from),
                stack: Some(to),
                refused: Some(cause),
                ..unknown
            },
            // Variants added later.
            _ => unknown,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ErrorBody<'a> {
    code: &'static str,
    side: String,
    machine: Option<&'a str>,
    operation: &'a str,
    path: Option<String>,
    cause: &'a str,
    hint: Option<&'a str>,
    retry: &'static str,
    retry_after_ms: Option<u32>,
    exit_code: u8,
    source: Option<&'a str>,
    target: Option<&'a str>,
}

impl<'a> ErrorBody<'a> {
    pub(super) fn new(source: Option<&'a str>, target: Option<&'a str>, fault: &'a Fault) -> Self {
        let (retry, retry_after_ms) = match fault.retry {
            Retry::Never => ("never", None),
            Retry::Now => ("now", None),
            Retry::AfterMs(ms) => ("after", Some(ms)),
        };
        let machine = fault.machine.as_ref();
        let is_here = machine.is_some_and(Machine::is_here);
        Self {
            code: fault.code.as_str(),
            side: match is_here {
                true => Side::Local,
                false => fault.side,
            }
            .to_string(),
            machine: machine.filter(|_| !is_here).map(Machine::name),
            operation: &fault.operation,
            path: (!fault.path.is_empty())
                .then(|| String::from_utf8_lossy(&fault.path).into_owned()),
            cause: &fault.cause,
            hint: (!fault.hint.is_empty()).then_some(fault.hint.as_str()),
            retry,
            retry_after_ms,
            exit_code: fault.exit_code(),
            source,
            target,
        }
    }
}
