//! The initiator's side of opening channels: which are missing, their endpoints, and the handling
//! of failures.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::frame::{JoinRequest, Level, SessionAccept, SessionRequest, Start};
use xdfs_proto::handshake::Purpose;
use xdfs_proto::{ChannelIndex, Code, Fault, Limits, Retry, SessionId, SessionSecret};
use xdfs_store::rate::SharedRate;
use xdfs_xio::{Endpoint, Stack};

use super::buffers::{BLOCK_BYTES, SEND_POOL_BYTES};
use super::faults::all_channels_lost;
use super::network_path::NetworkPath;
use crate::channel::{Channel, Phase};
use crate::environment::Environment;
use crate::path_decision::PathDecision;
use crate::security::Identity;

/// Smallest default payload of a block, used when many channels share the buffers.
const BLOCK_BYTES_MIN: u32 = 256 << 10;
/// Number of channels requested when it is chosen per file.
const CHANNELS_AUTOMATIC_MAX: u32 = 64;
/// Number of consecutive failures after which no more channels are opened.
const FAILURES_MAX: u32 = 8;
/// For how long no further channels are asked for after the peer refused one. Its limit may be one
/// of the user, and other sessions end.
const REFUSAL_LASTS: Duration = Duration::from_secs(60);

/// A way to an acceptor.
#[derive(Clone, Debug)]
pub struct Route {
    /// The address of the acceptor.
    pub endpoint: Endpoint,
    /// The driver stack of the channels; it must provide protection if the session has an identity.
    pub stack: Stack,
}

/// Parameters of an initiator's session.
#[derive(Clone, Debug)]
pub struct Dial {
    /// The ways to the acceptor, tried in order until it answers.
    pub routes: Vec<Route>,
    /// Number of channels; `None` chooses it per file.
    pub channels: Option<u32>,
    /// Payload of a block in bytes, a power of two; `None` for the default.
    pub block_size: Option<u32>,
    /// Socket buffer of a channel in bytes; `None` for the system's default.
    pub window: Option<u32>,
    /// Whether the first block waits for all channels.
    pub start: Start,
    /// Name of the user; may be empty.
    pub user: String,
    /// Credentials of this side on protected channels; `None` for unprotected ones.
    pub identity: Option<Arc<dyn Identity>>,
    /// Whether payload on protected channels is encrypted.
    pub level: Level,
    /// Both sides send only what others on the path leave.
    pub yields: bool,
    /// The rate limit for payload in both directions, shared with other sessions; `None` for no
    /// limit.
    pub rate: Option<Arc<SharedRate>>,
}

impl Dial {
    /// Whether the acceptor is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let is_local = |route: &Route| {
            let address = route.endpoint.socket();
            address.is_none_or(|address| address.ip().is_loopback())
        };
        self.routes.iter().all(is_local)
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Dialer {
    dial: Dial,
    route_index: usize,
    request: SessionRequest,
    secret: Option<SessionSecret>,
    /// The acceptor accepts unencrypted payload.
    takes_clear: bool,
    /// It follows symbolic links in requests for packs.
    follows_links: bool,
    /// It knows the last pack of a tree.
    takes_last_packs: bool,
    /// Target number of channels.
    wanted: u32,
    /// The channel that asks for the session is being opened, or was.
    asks: bool,
    /// Index of the next channel that joins.
    next_index: u32,
    opening: u32,
    failures: u32,
    not_before: Duration,
    request_sent_at: Duration,
    /// A channel is to be replaced, and none was open yet: replace the first one.
    leave_due: bool,
    /// The acceptor has refused a proof that went ahead of its methods.
    awaits_methods: bool,
    /// It has refused more than so many channels, and until then that counts.
    allowed: Option<(u32, Duration)>,
    /// The target number before a refusal that isn't told yet.
    refused: Option<u32>,
}

/// What to do after a channel could not be opened.
#[derive(Debug)]
pub(super) enum AfterFailure {
    /// Keep using the other channels.
    Continue,
    /// Try the next route; it is a fallback if its stack is another one.
    NextRoute(Option<PathDecision>),
    /// End the session with this fault.
    End(Fault),
}

/// Numbers of open channels in a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelCounts {
    /// All open channels.
    pub(super) live: u32,
    /// Those that are not leaving.
    pub(super) staying: u32,
}

impl Dialer {
    pub(super) fn new(dial: Dial, request: SessionRequest) -> Self {
        let wanted = dial.channels.unwrap_or(1);
        Self {
            dial,
            route_index: 0,
            request,
            secret: None,
            takes_clear: false,
            follows_links: false,
            takes_last_packs: false,
            wanted,
            asks: false,
            next_index: 1,
            opening: 0,
            failures: 0,
            not_before: Duration::ZERO,
            request_sent_at: Duration::ZERO,
            leave_due: false,
            awaits_methods: false,
            allowed: None,
            refused: None,
        }
    }

    /// Whether the channel that asks for the session is being opened, or was.
    pub(super) fn has_asked(&self) -> bool {
        self.asks
    }

    /// Whether the user specified the number of channels.
    pub(super) fn is_explicit(&self) -> bool {
        self.dial.channels.is_some()
    }

    /// Whether both sides are to yield to others on the path.
    pub(super) fn yields(&self) -> bool {
        self.dial.yields
    }

    /// The credentials of this side, if any.
    pub(super) fn identity(&self) -> Option<&Arc<dyn Identity>> {
        self.dial.identity.as_ref()
    }

    /// Whether the proof may go ahead of the acceptor's answer to HELLO. That answer also tells
    /// whether unencrypted payload is accepted, which comes first.
    pub(super) fn may_prove_ahead(&self) -> bool {
        !self.awaits_methods && self.dial.level == Level::Private
    }

    /// Has the next channel wait for the acceptor's methods, in place of the one that didn't.
    pub(super) fn await_methods(&mut self) {
        self.awaits_methods = true;
        self.asks = false;
        self.opening = self.opening.saturating_sub(1);
    }

    /// The requested level of protection.
    pub(super) fn level(&self) -> Level {
        self.dial.level
    }

    pub(super) fn set_level(&mut self, level: Level) {
        self.dial.level = level;
    }

    /// Whether the acceptor accepts unencrypted payload, as far as is known.
    pub(super) fn takes_clear(&self) -> bool {
        self.takes_clear
    }

    pub(super) fn set_takes_clear(&mut self, takes_clear: bool) {
        self.takes_clear = takes_clear;
    }

    /// Whether the acceptor follows symbolic links in requests for packs, as far as is known.
    pub(super) fn follows_links(&self) -> bool {
        self.follows_links
    }

    /// Whether it knows the last pack of a tree, as far as is known.
    pub(super) fn takes_last_packs(&self) -> bool {
        self.takes_last_packs
    }

    /// Learns both from the answer to HELLO on a channel.
    pub(super) fn learn_features(&mut self, follows_links: bool, takes_last_packs: bool) {
        self.follows_links = follows_links;
        self.takes_last_packs = takes_last_packs;
    }

    /// Raises the target number of channels to `wanted`, at most `max`. Returns it as it was and as
    /// it is.
    pub(super) fn want(&mut self, wanted: u32, max: u32) -> (u32, u32) {
        let before = self.wanted;
        self.wanted = self.wanted.max(wanted.min(max));
        (before, self.wanted)
    }

    /// The largest number of channels: the `agreed` one, or fewer while a refusal counts.
    pub(super) fn channels_max(&self, agreed: u32, count: ChannelCounts, now: Duration) -> u32 {
        match self.allowed {
            Some((allowed, until)) if now < until => agreed.min(allowed.max(count.staying)),
            _ => agreed,
        }
    }

    /// Sets the target number of channels, at most `max`.
    pub(super) fn set_wanted(&mut self, wanted: u32, max: u32) {
        self.wanted = wanted.min(max);
    }

    /// The request of the session on this path: with the user's block size, or what suits the path.
    fn suit_path(&mut self, path: &NetworkPath) -> &SessionRequest {
        if self.dial.block_size.is_none() {
            self.request.block_size = path.block_size(self.request.block_size);
        }
        &self.request
    }

    /// The target number of channels before the peer refused some, and now, once for each time.
    pub(super) fn take_refusal(&mut self) -> Option<(u32, u32)> {
        let before = self.refused.take_if(|_| self.opening == 0)?;
        Some((before, self.wanted))
    }

    /// Replaces a channel as soon as one is open.
    pub(super) fn leave_later(&mut self) {
        self.leave_due = true;
    }

    /// Whether the channel that has just opened is to be replaced; `true` once.
    pub(super) fn take_leave_due(&mut self) -> bool {
        std::mem::take(&mut self.leave_due)
    }

    /// Whether channels are being opened.
    pub(super) fn is_opening(&self) -> bool {
        self.opening > 0
    }

    /// Starts to open a channel if one is missing. Leaving channels count as missing, so that the
    /// replacement is open in time. On a long path the channels that will join connect while the
    /// first one asks for the session.
    pub(super) fn open_missing(
        &mut self,
        count: ChannelCounts,
        window: Option<u32>,
        is_long: bool,
        now: Duration,
    ) -> Option<Result<Channel, Fault>> {
        let wanted = match self.secret.is_some() || (self.asks && is_long) {
            true => self.wanted,
            false => 1,
        };
        if count.staying + self.opening >= wanted
            || count.live + self.opening >= wanted.saturating_mul(2)
            || self.failures >= FAILURES_MAX
            || now < self.not_before
        {
            return None;
        }
        let index = match self.asks {
            true => self.next_index,
            false => 0,
        };
        self.next_index += u32::from(self.asks);
        self.asks = true;
        self.opening += 1;
        Some(self.open(ChannelIndex(index), window, now))
    }

    /// The purpose of a channel that is connected. `None` if it joins a session whose secret isn't
    /// known yet.
    pub(super) fn purpose(&mut self, index: ChannelIndex, path: &NetworkPath) -> Option<Purpose> {
        if index.0 == 0 {
            return Some(Purpose::Session(self.suit_path(path).clone()));
        }
        let secret = self.secret?;
        Some(Purpose::Join(JoinRequest {
            id: self.request.id,
            secret,
            channel: index,
        }))
    }

    /// The number of channels being opened that the session has no place for.
    pub(super) fn surplus(&self, count: ChannelCounts) -> u32 {
        let surplus = (count.staying + self.opening).saturating_sub(self.wanted);
        surplus.min(self.opening)
    }

    /// Counts a channel that was being opened as given up.
    pub(super) fn gave_up(&mut self) {
        self.opening = self.opening.saturating_sub(1);
    }

    fn open(
        &self,
        index: ChannelIndex,
        window: Option<u32>,
        now: Duration,
    ) -> Result<Channel, Fault> {
        let Some(route) = self.route() else {
            let cause = "the host has no address";
            return Err(Fault::new(Code::ConnectionRefused, "connect", cause));
        };
        let opened = route.stack.open(&route.endpoint);
        let mut stream = opened.map_err(|error| self.connect_fault(&error))?;
        if let Some(window) = window {
            let _ = stream.set_window(window);
        }
        Ok(Channel::new(index, stream, Phase::Connecting, now))
    }

    fn route(&self) -> Option<&Route> {
        self.dial.routes.get(self.route_index)
    }

    /// The fault of a connection attempt.
    pub(super) fn connect_fault(&self, error: &io::Error) -> Fault {
        let identity = self.identity();
        if let Some(fault) = identity.and_then(|identity| identity.explain(error)) {
            return fault;
        }
        let mut fault = Fault::from_io("connect", "", error);
        fault.operation = self.route().map_or_else(String::new, |route| {
            format!("connect to {}", route.endpoint)
        });
        if fault.code == Code::ConnectionLost {
            fault.retry = Retry::AfterMs(500);
        }
        fault
    }

    /// The decision that is told if the present route has another stack than the one `before`.
    fn fallback(&self, before: usize, fault: Option<&Fault>) -> Option<PathDecision> {
        let (from, to) = (self.dial.routes.get(before)?, self.route()?);
        (from.stack.spec() != to.stack.spec()).then(|| PathDecision::Fallback {
            from: from.stack.spec().to_string(),
            to: to.stack.spec().to_string(),
            cause: fault.map_or_else(String::new, |fault| fault.cause.clone()),
        })
    }

    /// Records that the first bytes are sent on the channel that asks for the session.
    pub(super) fn request_sent(&mut self, now: Duration) {
        self.request_sent_at = now;
    }

    /// When they were sent.
    pub(super) fn request_sent_at(&self) -> Duration {
        self.request_sent_at
    }

    /// Takes over the acceptor's answer to SESSION.
    pub(super) fn accepted(&mut self, accepted: &SessionAccept) {
        self.secret = Some(accepted.secret);
        self.wanted = self.wanted.min(accepted.channels);
    }

    /// Counts a channel as open.
    pub(super) fn opened(&mut self) {
        self.opening = self.opening.saturating_sub(1);
        self.failures = 0;
    }

    /// Counts a failed attempt and decides how to proceed; `asked` says whether it was for the
    /// session. With `were_ahead`, requests followed SESSION on the channel, and may have been
    /// carried out.
    pub(super) fn failed(
        &mut self,
        asked: bool,
        fault: Option<Fault>,
        count: ChannelCounts,
        were_ahead: bool,
        now: Duration,
    ) -> AfterFailure {
        self.opening = self.opening.saturating_sub(1);
        let has_begun = self.secret.is_some();
        let is_refused = (fault.as_ref()).is_some_and(|f| f.code == Code::TooManyChannels);
        // Unless a leaving channel still counted at the peer.
        if has_begun && is_refused && count.live == count.staying && count.live > 0 {
            // No failure: those that are there can be replaced.
            self.refused.get_or_insert(self.wanted);
            self.wanted = count.staying + self.opening;
            self.allowed = Some((self.wanted, now + REFUSAL_LASTS));
            return AfterFailure::Continue;
        }
        self.failures += 1;
        self.not_before = now + Duration::from_millis(50 << self.failures.min(6));
        if let Some(fault) = &fault {
            tracing::debug!(%fault, "a channel could not be opened");
        }
        let unreached = fault.as_ref().is_none_or(|f| {
            matches!(
                f.code,
                Code::ConnectionRefused | Code::DeadlineExceeded | Code::ConnectionLost
            )
        });
        if !has_begun && !asked {
            return AfterFailure::Continue;
        }
        if !has_begun && unreached && !were_ahead && self.route_index + 1 < self.dial.routes.len() {
            let before = self.route_index;
            self.route_index += 1;
            self.asks = false;
            self.failures = 0;
            self.not_before = Duration::ZERO;
            return AfterFailure::NextRoute(self.fallback(before, fault.as_ref()));
        }
        // Leaving channels can't carry further transfers.
        let stuck = count.live == 0 || (count.staying == 0 && self.failures >= FAILURES_MAX);
        if has_begun && !(stuck && self.opening == 0) {
            return AfterFailure::Continue;
        }
        let fault = fault.unwrap_or_else(|| {
            Fault::new(
                Code::ConnectionRefused,
                "open the session",
                "no channel can be opened",
            )
        });
        // To the user a session that has begun is lost, whatever the last failure.
        AfterFailure::End(match self.route().filter(|_| has_begun) {
            Some(route) => {
                all_channels_lost(&route.endpoint, &fault.cause).retry(Retry::AfterMs(500))
            }
            None => fault,
        })
    }
}

/// The SESSION request for a dial.
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
        .map_err(|e| Fault::new(Code::Internal, "make a session identifier", e.to_string()))?;
    Ok(SessionRequest {
        id: SessionId(id),
        channels,
        block_size,
        window: dial.window.unwrap_or(0),
        // A number of channels chosen per file can't be waited for.
        start: match dial.channels {
            Some(_) => dial.start,
            None => Start::Elastic,
        },
        user: dial.user.clone(),
    })
}

/// The block size for a path and a number of channels. Within one machine large blocks cost least,
/// and few are in flight. On other paths each channel may be in the middle of a block, and needs a
/// buffer.
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

    /// 64 channels are requested in that case, and only as many opened as the files need.
    #[test]
    fn channels_without_a_number_are_not_waited_for() {
        let start_of = |channels| {
            let dial = Dial {
                rate: None,
                routes: Vec::new(),
                channels,
                block_size: None,
                window: None,
                start: Start::Strict,
                user: String::new(),
                identity: None,
                level: Level::Private,
                yields: false,
            };
            session_request(&System, &dial, &Limits::default()).map(|request| request.start)
        };
        assert_eq!(start_of(None), Ok(Start::Elastic));
        assert_eq!(start_of(Some(3)), Ok(Start::Strict));
    }
}
