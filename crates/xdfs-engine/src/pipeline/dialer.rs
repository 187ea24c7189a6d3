//! The initiator's side of opening channels: which are missing, where they lead, and what comes of
//! one that fails.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::frame::{JoinRequest, Level, SessionAccept, SessionRequest, Start};
use xdfs_proto::handshake::Purpose;
use xdfs_proto::{ChannelIndex, Code, Fault, Limits, Retry, SessionId, SessionSecret};
use xdfs_xio::{Endpoint, Stack};

use super::buffers::{BLOCK_BYTES, SEND_POOL_BYTES};
use crate::channel::{Channel, Phase};
use crate::environment::Environment;
use crate::security::Identity;

/// Payload of a block in bytes where many channels share the buffers.
const BLOCK_BYTES_MIN: u32 = 256 << 10;
/// Channels that are announced when their number is picked for each file.
const CHANNELS_AUTOMATIC_MAX: u32 = 64;
/// Channels in a row that may fail before no more are opened.
const FAILURES_MAX: u32 = 8;

/// How an initiator opens its session.
#[derive(Clone, Debug)]
pub struct Dial {
    /// Where the acceptor listens: one after the other is tried until one answers.
    pub endpoints: Vec<Endpoint>,
    /// Opens the channels: one that gives protection if there is an identity to prove.
    pub stack: Stack,
    /// Number of channels; `None` picks it for each file.
    pub channels: Option<u32>,
    /// Payload of a block in bytes, a power of two; `None` for the default.
    pub block_size: Option<u32>,
    /// Socket buffer of a channel in bytes; `None` leaves it to the system.
    pub window: Option<u32>,
    /// Wait for all channels before the first block.
    pub start: Start,
    /// Name of the user; may be empty.
    pub user: String,
    /// Proves who this side is on protected channels; `None` for plain ones.
    pub identity: Option<Arc<dyn Identity>>,
    /// How payload travels on protected channels.
    pub level: Level,
}

impl Dial {
    /// Whether the acceptor is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let is_local = |endpoint: &Endpoint| {
            let address = endpoint.socket();
            address.is_none_or(|address| address.ip().is_loopback())
        };
        self.endpoints.iter().all(is_local)
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Dialer {
    dial: Dial,
    endpoint_index: usize,
    request: SessionRequest,
    secret: Option<SessionSecret>,
    /// The acceptor takes payload in the clear.
    takes_clear: bool,
    /// How many channels there shall be.
    wanted: u32,
    next_index: u32,
    opening: u32,
    failures: u32,
    not_before: Duration,
    asked_at: Duration,
    /// A channel was to leave before one was open: the first one does.
    leave_due: bool,
}

/// What comes of a channel that could not be opened.
#[derive(Debug)]
pub(super) enum AfterFailure {
    /// The session goes on with those it has, and those that are being opened.
    GoOn,
    /// The next address of the host is to be tried.
    Dial,
    /// The session ends by it.
    End(Fault),
}

/// The open channels of a session, in numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    /// All of them.
    pub(super) live: u32,
    /// Those that don't leave.
    pub(super) staying: u32,
}

impl Dialer {
    pub(super) fn new(dial: Dial, request: SessionRequest) -> Self {
        let wanted = dial.channels.unwrap_or(1);
        Self {
            dial,
            endpoint_index: 0,
            request,
            secret: None,
            takes_clear: false,
            wanted,
            next_index: 0,
            opening: 0,
            failures: 0,
            not_before: Duration::ZERO,
            asked_at: Duration::ZERO,
            leave_due: false,
        }
    }

    /// Whether the user said how many channels there shall be.
    pub(super) fn is_explicit(&self) -> bool {
        self.dial.channels.is_some()
    }

    /// Who this side proves to be; `None` without a proof.
    pub(super) fn identity(&self) -> Option<&Arc<dyn Identity>> {
        self.dial.identity.as_ref()
    }

    /// How payload is to travel.
    pub(super) fn level(&self) -> Level {
        self.dial.level
    }

    pub(super) fn set_level(&mut self, level: Level) {
        self.dial.level = level;
    }

    /// Whether the acceptor takes payload in the clear, as far as it is known.
    pub(super) fn takes_clear(&self) -> bool {
        self.takes_clear
    }

    pub(super) fn set_takes_clear(&mut self, takes_clear: bool) {
        self.takes_clear = takes_clear;
    }

    /// Raises the number of channels that there shall be, up to `max`.
    pub(super) fn want(&mut self, wanted: u32, max: u32) {
        self.wanted = self.wanted.max(wanted.min(max));
    }

    /// Lets a channel leave as soon as one is open.
    pub(super) fn leave_later(&mut self) {
        self.leave_due = true;
    }

    /// Whether the channel that is open now is the one to leave.
    pub(super) fn take_leave_due(&mut self) -> bool {
        std::mem::take(&mut self.leave_due)
    }

    /// Whether channels are being opened.
    pub(super) fn is_opening(&self) -> bool {
        self.opening > 0
    }

    /// Begins to open a channel if one is missing: that channel, or why it failed. One that leaves
    /// is missing already, so that the session goes on without a gap.
    pub(super) fn open_missing(
        &mut self,
        count: Count,
        window: Option<u32>,
        now: Duration,
    ) -> Option<Result<Channel, Fault>> {
        let first = self.secret.is_none();
        let wanted = if first { 1 } else { self.wanted };
        if count.staying + self.opening >= wanted
            || count.live + self.opening >= wanted.saturating_mul(2)
            || self.failures >= FAILURES_MAX
            || now < self.not_before
            || (first && self.next_index > 0)
        {
            return None;
        }
        let index = ChannelIndex(self.next_index);
        self.next_index += 1;
        self.opening += 1;
        Some(self.open(index, window, now))
    }

    fn open(
        &self,
        index: ChannelIndex,
        window: Option<u32>,
        now: Duration,
    ) -> Result<Channel, Fault> {
        let purpose = match self.secret {
            None => Purpose::Session(self.request.clone()),
            Some(secret) => Purpose::Join(JoinRequest {
                id: self.request.id,
                secret,
                channel: index,
            }),
        };
        let Some(endpoint) = self.endpoint() else {
            let cause = "the host has no address";
            return Err(Fault::new(Code::ConnectionRefused, "connect", cause));
        };
        let opened = self.dial.stack.open(endpoint);
        let mut stream = opened.map_err(|error| self.connect_fault(&error))?;
        if let Some(window) = window {
            let _ = stream.set_window(window);
        }
        Ok(Channel::new(index, stream, Phase::Connecting(purpose), now))
    }

    fn endpoint(&self) -> Option<&Endpoint> {
        self.dial.endpoints.get(self.endpoint_index)
    }

    /// Why a channel could not be opened.
    pub(super) fn connect_fault(&self, error: &io::Error) -> Fault {
        let identity = self.identity();
        if let Some(fault) = identity.and_then(|identity| identity.explain(error)) {
            return fault;
        }
        let mut fault = Fault::from_io("connect", "", error);
        fault.operation = self
            .endpoint()
            .map_or_else(String::new, |e| format!("connect to {e}"));
        if fault.code == Code::ConnectionLost {
            fault.retry = Retry::AfterMs(500);
        }
        fault
    }

    /// The first bytes go out on a channel.
    pub(super) fn asked(&mut self, now: Duration) {
        self.asked_at = now;
    }

    /// When the first bytes went out on the last channel that was reached.
    pub(super) fn asked_at(&self) -> Duration {
        self.asked_at
    }

    /// The acceptor takes the session.
    pub(super) fn accepted(&mut self, accepted: &SessionAccept) {
        self.secret = Some(accepted.secret);
        self.wanted = self.wanted.min(accepted.channels);
    }

    /// A channel is open.
    pub(super) fn opened(&mut self) {
        self.opening = self.opening.saturating_sub(1);
        self.failures = 0;
    }

    /// A channel could not be opened.
    pub(super) fn failed(
        &mut self,
        fault: Option<Fault>,
        count: Count,
        now: Duration,
    ) -> AfterFailure {
        self.opening = self.opening.saturating_sub(1);
        self.failures += 1;
        self.not_before = now + Duration::from_millis(50 << self.failures.min(6));
        if let Some(fault) = &fault {
            tracing::debug!(%fault, "a channel could not be opened");
            // Unless the one that leaves is what was too many.
            if fault.code == Code::TooManyChannels && count.live == count.staying {
                self.wanted = count.staying.max(1);
            }
        }
        let has_begun = self.secret.is_some();
        let unreached = fault.as_ref().is_none_or(|f| {
            matches!(
                f.code,
                Code::ConnectionRefused | Code::DeadlineExceeded | Code::ConnectionLost
            )
        });
        if !has_begun && unreached && self.endpoint_index + 1 < self.dial.endpoints.len() {
            self.endpoint_index += 1;
            self.next_index = 0;
            self.failures = 0;
            self.not_before = Duration::ZERO;
            return AfterFailure::Dial;
        }
        // On channels that leave nothing goes on.
        let stuck = count.live == 0 || (count.staying == 0 && self.failures >= FAILURES_MAX);
        if has_begun && !(stuck && self.opening == 0) {
            return AfterFailure::GoOn;
        }
        let mut fault = fault.unwrap_or_else(|| {
            Fault::new(
                Code::ConnectionRefused,
                "open the session",
                "no channel can be opened",
            )
        });
        if has_begun {
            // For its user the session is lost, whatever the last new channel met.
            fault.code = Code::ConnectionLost;
            fault.retry = Retry::AfterMs(500);
            fault.hint = "run the same command again to go on where it stopped".into();
        }
        AfterFailure::End(fault)
    }
}

/// The SESSION frame that a dial asks for.
pub(super) fn session_request(
    environment: &dyn Environment,
    dial: &Dial,
    limits: &Limits,
) -> Result<SessionRequest, Fault> {
    let invalid = |cause: String| Fault::new(Code::InvalidArgument, "open the session", cause);
    let channels = dial.channels.unwrap_or(CHANNELS_AUTOMATIC_MAX);
    if channels == 0 || channels > limits.channels_max {
        return Err(invalid(format!(
            "the number of channels must be 1 to {}",
            limits.channels_max
        )));
    }
    let block_size = dial
        .block_size
        .unwrap_or_else(|| automatic_block_size(dial, channels));
    let range = 1024..=limits.block_bytes_max;
    if !block_size.is_power_of_two() || !range.contains(&block_size) {
        return Err(invalid(format!(
            "the block size must be a power of two from 1 KiB to {} MiB",
            limits.block_bytes_max >> 20
        )));
    }
    let mut id = [0; 16];
    environment
        .fill_random(&mut id)
        .map_err(|e| Fault::new(Code::Internal, "draw a session identifier", e.to_string()))?;
    Ok(SessionRequest {
        id: SessionId(id),
        channels,
        block_size,
        window: dial.window.unwrap_or(0),
        // Channels whose number is picked as files come can't be waited for.
        start: match dial.channels {
            Some(_) => dial.start,
            None => Start::Elastic,
        },
        user: dial.user.clone(),
    })
}

/// The block size for a path and a number of channels. Within one machine a large block costs
/// least, and few are in flight. On other paths every channel may be in the middle of a block, for
/// which there must be buffers.
fn automatic_block_size(dial: &Dial, channels: u32) -> u32 {
    let channels = if dial.is_local() {
        1
    } else {
        dial.channels.unwrap_or(1).min(channels)
    };
    let share = u32::try_from(SEND_POOL_BYTES).unwrap_or(u32::MAX) / channels.max(1);
    (1 << share.ilog2()).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::System;

    /// 64 channels are announced then, and as many opened as the files need.
    #[test]
    fn channels_without_a_number_are_not_waited_for() {
        let spec = "memory".parse().unwrap();
        let stack = xdfs_xio::Registry::standard().build(&spec).unwrap();
        let start_of = |channels| {
            let dial = Dial {
                endpoints: Vec::new(),
                stack: stack.clone(),
                channels,
                block_size: None,
                window: None,
                start: Start::Strict,
                user: String::new(),
                identity: None,
                level: Level::Private,
            };
            session_request(&System, &dial, &Limits::default()).map(|request| request.start)
        };
        assert_eq!(start_of(None), Ok(Start::Elastic));
        assert_eq!(start_of(Some(3)), Ok(Start::Strict));
    }
}
