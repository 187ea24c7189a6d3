//! Channels on their way into the session, and out of it.

use std::time::Duration;

use xdfs_proto::frame::{Frame, JoinRequest, Level, Scope, SessionAccept, SessionRequest};
use xdfs_proto::handshake::{InitiatorStep, Purpose};
use xdfs_proto::{ChannelIndex, Code, Fault, Limits, Retry, SessionId, SessionSecret};
use xdfs_sys::poll::Token;
use xdfs_xio::Endpoint;

use super::{BLOCK_BYTES, BLOCK_BYTES_MIN, Dial, Pipeline, Role, SEND_POOL_BYTES};
use crate::channel::{Channel, Phase};
use crate::kernel::Kernel;

/// Channels that are announced when their number is picked for each file.
const CHANNELS_AUTOMATIC_MAX: u32 = 64;
/// Channels in a row that may fail before no more are opened.
const FAILURES_MAX: u32 = 8;

/// The initiator's side of opening channels.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) dial: Dial,
    endpoint_index: usize,
    request: SessionRequest,
    secret: Option<SessionSecret>,
    /// The acceptor takes payload in the clear.
    pub(super) takes_clear: bool,
    /// How many channels there shall be.
    wanted: u32,
    next_index: u32,
    opening: u32,
    failures: u32,
    not_before: Duration,
    asked_at: Duration,
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
        }
    }
}

impl Dialer {
    fn endpoint(&self) -> Option<&Endpoint> {
        self.dial.endpoints.get(self.endpoint_index)
    }

    /// Whether the user said how many channels there shall be.
    pub(super) fn is_explicit(&self) -> bool {
        self.dial.channels.is_some()
    }
}

/// The SESSION frame that a dial asks for.
pub(super) fn session_request(dial: &Dial, limits: &Limits) -> Result<SessionRequest, Fault> {
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
    getrandom::fill(&mut id)
        .map_err(|e| Fault::new(Code::Internal, "draw a session identifier", e.to_string()))?;
    Ok(SessionRequest {
        id: SessionId(id),
        channels,
        block_size,
        window: dial.window.unwrap_or(0),
        start: dial.start,
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

/// Says to a channel that it can't join, and closes it.
pub(super) fn refuse_join(mut channel: Channel, fault: Fault) {
    channel.push(&Frame::Exception {
        scope: Scope::Channel,
        fault,
    });
    // A fresh connection takes these few bytes at once, or the peer learns it by the end.
    let _ = channel.write();
    let _ = channel.stream.close();
}

/// The one answer to a JOIN that names no session, another secret or a used index: nobody learns
/// from it which of them it was ([S-8]).
pub(crate) fn no_such_session() -> Fault {
    Fault::new(Code::SessionUnknown, "join the session", "no such session")
        .hint("it may have ended, or the secret is wrong")
}

impl<K: Kernel> Pipeline<K> {
    /// Takes a channel that is open into the session.
    pub(super) fn admit(&mut self, mut channel: Channel) {
        let index = channel.index;
        self.used_indexes.insert(index);
        self.local |= channel.stream.capabilities().local;
        if self.window > 0
            && let Err(error) = channel.stream.set_window(self.window)
        {
            tracing::warn!(%error, "the window could not be set");
        }
        if let Some(slot) = self.place(channel) {
            self.opened(slot);
        }
    }

    /// Gives a channel a slot and watches it.
    fn place(&mut self, mut channel: Channel) -> Option<usize> {
        let slot = self.free_slots.pop().unwrap_or(self.channels.len());
        if let Err(error) = self.kernel.attach(channel.stream.as_mut(), Token(slot)) {
            tracing::warn!(%error, "a channel could not be watched");
            self.free_slots.push(slot);
            if slot == self.channels.len() {
                self.channels.push(None);
            }
            return None;
        }
        // Edge-triggered: what was there before the watch began must be looked for once.
        channel.readable = true;
        channel.writable = true;
        if slot == self.channels.len() {
            self.channels.push(Some(channel));
        } else {
            self.channels[slot] = Some(channel);
        }
        self.queue(slot);
        Some(slot)
    }

    /// A channel carries frames from now on.
    fn opened(&mut self, slot: usize) {
        let Some(Some(channel)) = self.channels.get_mut(slot) else {
            return;
        };
        channel.phase = Phase::Open;
        channel.frame_since = None;
        let index = channel.index;
        self.slots.insert(index, slot);
        self.set.up(index);
        self.live_max = self.live_max.max(self.staying());
        self.strict_met |= !self.strict || self.live() >= self.channels_max;
        if let Role::Initiator(dialer) = &self.role
            && dialer.dial.level == Level::Clear
            && let Some(Some(channel)) = self.channels.get_mut(slot)
        {
            channel.set_level(Level::Clear);
        }
        self.offload_private(slot);
        self.sender.channel_up(index, self.now);
        self.receiver.channel_up(index);
        self.calls.look();
        self.queue(slot);
        self.transmit_homeless();
    }

    /// A peer's channel wants to join (acceptor).
    pub(super) fn join(&mut self, mut channel: Channel) {
        let index = channel.index;
        let fault = if !self.set.may_join(self.channels_max as usize) {
            Some(Fault::new(
                Code::TooManyChannels,
                "join the session",
                format!("the session has its {} channels", self.channels_max),
            ))
        } else if index.0 == 0 || self.used_indexes.contains(&index) {
            Some(no_such_session())
        } else {
            None
        };
        if let Some(fault) = fault {
            refuse_join(channel, fault);
            return;
        }
        channel.push(&Frame::JoinOk);
        self.admit(channel);
    }

    /// Sets how many channels there shall be (initiator).
    pub(super) fn want_channels(&mut self, wanted: u32) {
        let max = self.channels_max;
        if let Role::Initiator(dialer) = &mut self.role {
            dialer.wanted = dialer.wanted.max(wanted.min(max));
        }
        self.dial_missing();
    }

    /// Lets a channel leave, and another take its place (initiator).
    pub(super) fn replace_channel(&mut self, slot: usize) {
        let index = self.channels.get(slot).and_then(Option::as_ref);
        if let Some(index) = index.map(|channel| channel.index)
            && self.set.leave(index, self.now)
        {
            self.dial_missing();
        }
    }

    /// Channels that are open.
    pub(super) fn live(&self) -> u32 {
        u32::try_from(self.set.len()).unwrap_or(u32::MAX)
    }

    /// Those of them that don't leave.
    fn staying(&self) -> u32 {
        u32::try_from(self.set.staying()).unwrap_or(u32::MAX)
    }

    /// Opens the channels that are missing (initiator). One that leaves is missing already, so
    /// that the session goes on without a gap.
    pub(super) fn dial_missing(&mut self) {
        let (staying, live) = (self.staying(), self.live());
        loop {
            let Role::Initiator(dialer) = &mut self.role else {
                return;
            };
            let first = dialer.secret.is_none();
            let wanted = if first { 1 } else { dialer.wanted };
            if staying + dialer.opening >= wanted
                || live + dialer.opening >= wanted.saturating_mul(2)
                || dialer.failures >= FAILURES_MAX
                || self.now < dialer.not_before
                || self.ended.is_some()
                || (first && dialer.next_index > 0)
            {
                return;
            }
            let index = ChannelIndex(dialer.next_index);
            dialer.next_index += 1;
            let purpose = match dialer.secret {
                None => Purpose::Session(dialer.request.clone()),
                Some(secret) => Purpose::Join(JoinRequest {
                    id: dialer.request.id,
                    secret,
                    channel: index,
                }),
            };
            let Some(endpoint) = dialer.endpoint().cloned() else {
                let cause = "the host has no address";
                self.end(Err(Fault::new(Code::ConnectionRefused, "connect", cause)));
                return;
            };
            let opened = match &dialer.dial.identity {
                Some(identity) => identity.open(&endpoint),
                None => xdfs_xio::open(&endpoint),
            };
            match opened {
                Ok(mut stream) => {
                    if self.window > 0 {
                        let _ = stream.set_window(self.window);
                    }
                    let phase = Phase::Connecting(purpose);
                    let channel = Channel::new(index, stream, phase, self.now);
                    dialer.opening += 1;
                    if self.place(channel).is_none() {
                        self.dial_failed(None);
                    }
                }
                Err(error) => {
                    if let Role::Initiator(dialer) = &mut self.role {
                        dialer.opening += 1;
                    }
                    let fault = self.connect_fault(&error);
                    self.dial_failed(Some(fault));
                }
            }
        }
    }

    fn connect_fault(&self, error: &std::io::Error) -> Fault {
        let mut fault = Fault::from_io("connect", "", error);
        if let Role::Initiator(dialer) = &self.role {
            let identity = dialer.dial.identity.as_ref();
            if let Some(fault) = identity.and_then(|identity| identity.explain(error)) {
                return fault;
            }
            fault.operation = dialer
                .endpoint()
                .map_or_else(String::new, |e| format!("connect to {e}"));
        }
        if fault.code == Code::ConnectionLost {
            fault.retry = Retry::AfterMs(500);
        }
        fault
    }

    /// A channel could not be opened. The session goes on with those it has.
    fn dial_failed(&mut self, fault: Option<Fault>) {
        let (staying, live) = (self.staying(), self.live());
        let Role::Initiator(dialer) = &mut self.role else {
            return;
        };
        dialer.opening = dialer.opening.saturating_sub(1);
        dialer.failures += 1;
        dialer.not_before = self.now + Duration::from_millis(50 << dialer.failures.min(6));
        if let Some(fault) = &fault {
            tracing::debug!(%fault, "a channel could not be opened");
            // Unless the one that leaves is what was too many.
            if fault.code == Code::TooManyChannels && live == staying {
                dialer.wanted = staying.max(1);
            }
        }
        let unreached = fault.as_ref().is_none_or(|f| {
            matches!(
                f.code,
                Code::ConnectionRefused | Code::DeadlineExceeded | Code::ConnectionLost
            )
        });
        if dialer.secret.is_none()
            && unreached
            && dialer.endpoint_index + 1 < dialer.dial.endpoints.len()
        {
            // The next address of the same host.
            dialer.endpoint_index += 1;
            dialer.next_index = 0;
            dialer.failures = 0;
            dialer.not_before = Duration::ZERO;
            self.dial_missing();
            return;
        }
        // On channels that leave nothing goes on.
        let stuck = live == 0 || (staying == 0 && dialer.failures >= FAILURES_MAX);
        if dialer.secret.is_none() || (stuck && dialer.opening == 0) {
            let began = dialer.secret.is_some();
            let mut fault = fault.unwrap_or_else(|| {
                Fault::new(
                    Code::ConnectionRefused,
                    "open the session",
                    "no channel can be opened",
                )
            });
            if began {
                // For its user the session is lost, whatever the last new channel met.
                fault.code = Code::ConnectionLost;
                fault.retry = Retry::AfterMs(500);
                fault.hint = "run the same command again to go on where it stopped".into();
            }
            self.end(Err(fault));
        }
    }

    /// Goes on with a channel that isn't open yet. Called when it can be read or written.
    pub(super) fn go_on_opening(&mut self, slot: usize) {
        let Some(Some(channel)) = self.channels.get_mut(slot) else {
            return;
        };
        if let Phase::Connecting(_) = channel.phase {
            match channel.stream.finish_open() {
                Ok(false) => {
                    channel.readable = false;
                    channel.writable = false;
                    return;
                }
                Ok(true) => {
                    channel.peer = channel.stream.peer();
                    self.local |= channel.stream.capabilities().local;
                    let bare = channel.stream.protection().is_none();
                    let identified = matches!(&self.role,
                        Role::Initiator(dialer) if dialer.dial.identity.is_some());
                    if identified && bare {
                        let cause = "the channel has no protection, though it is asked for";
                        let fault = Fault::new(Code::ProtectionRefused, "open a channel", cause);
                        self.opening_failed(slot, fault);
                        return;
                    }
                    channel.greet();
                    if let Role::Initiator(dialer) = &mut self.role {
                        dialer.asked_at = self.now;
                    }
                }
                Err(error) => {
                    let fault = self.connect_fault(&error);
                    self.opening_failed(slot, fault);
                    return;
                }
            }
        }
        loop {
            let Some(Some(channel)) = self.channels.get_mut(slot) else {
                return;
            };
            let Phase::Opening(initiator) = &mut channel.phase else {
                return;
            };
            let mut out = Vec::new();
            let step = initiator.receive(&channel.input, &self.limits, &mut out);
            let user = initiator.user().map(str::to_owned);
            let takes_clear = initiator.takes_clear();
            channel.push_bytes(&out);
            match step {
                Ok((InitiatorStep::Wait, used)) => {
                    channel.consume(used);
                    if used > 0 {
                        self.last_heard = self.now;
                        self.measure_round_trip();
                        continue;
                    }
                }
                Ok((InitiatorStep::Open(accepted), used)) => {
                    if let Err(fault) = self.check_level(takes_clear) {
                        self.opening_failed(slot, fault);
                        return;
                    }
                    let Some(Some(channel)) = self.channels.get_mut(slot) else {
                        return;
                    };
                    if let (Role::Initiator(dialer), Some(user)) = (&self.role, &user)
                        && let Some(identity) = &dialer.dial.identity
                    {
                        identity.admitted(user);
                    }
                    channel.takes_clear = takes_clear;
                    channel.consume(used);
                    self.last_heard = self.now;
                    self.measure_round_trip();
                    self.opening_done(slot, accepted);
                    return;
                }
                Ok((step @ (InitiatorStep::Prove(_) | InitiatorStep::Challenge(_)), used)) => {
                    channel.consume(used);
                    self.last_heard = self.now;
                    self.measure_round_trip();
                    if let Err(fault) = self.learn_level(takes_clear) {
                        self.opening_failed(slot, fault);
                        return;
                    }
                    if let Err(fault) = self.prove(slot, step) {
                        self.opening_failed(slot, fault);
                        return;
                    }
                    continue;
                }
                Err(mut fault) => {
                    if let Role::Initiator(dialer) = &self.role
                        && let Some(identity) = &dialer.dial.identity
                    {
                        fault = identity.refused(fault);
                    }
                    self.opening_failed(slot, fault);
                    return;
                }
            }
            if !channel.readable {
                break;
            }
            match channel.read_input(0) {
                Ok(0) => {
                    let fault = Fault::new(
                        Code::ConnectionLost,
                        "open a channel",
                        format!("{} closed it during the opening exchange", channel.peer),
                    )
                    .retry(Retry::AfterMs(500));
                    self.opening_failed(slot, fault);
                    return;
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    channel.readable = false;
                    break;
                }
                Err(error) => {
                    let fault = self.connect_fault(&error);
                    self.opening_failed(slot, fault);
                    return;
                }
            }
        }
        self.queue(slot);
    }

    /// Takes a step of the proof who this side is.
    fn prove(&mut self, slot: usize, step: InitiatorStep) -> Result<(), Fault> {
        let identity = match &self.role {
            Role::Initiator(dialer) => dialer.dial.identity.clone(),
            Role::Acceptor { .. } => None,
        };
        let Some(Some(channel)) = self.channels.get_mut(slot) else {
            return Ok(());
        };
        let (Some(identity), Some(protection)) = (identity, &channel.protection) else {
            let cause = "a proof was asked for on a channel without protection";
            return Err(Fault::new(
                Code::ProtectionRefused,
                "prove who you are",
                cause,
            ));
        };
        let mut out = Vec::new();
        if let Phase::Opening(initiator) = &mut channel.phase {
            match step {
                InitiatorStep::Prove(methods) => {
                    let (request, only) = identity.prove(protection, &methods)?;
                    initiator.prove(request, only, &mut out);
                }
                InitiatorStep::Challenge(challenge) => {
                    let proof = identity.answer(protection, &challenge)?;
                    initiator.answer(proof, &mut out);
                }
                InitiatorStep::Wait | InitiatorStep::Open(_) => {}
            }
        }
        channel.push_bytes(&out);
        Ok(())
    }

    /// The time from the first bytes to their answer is a round trip of this path.
    fn measure_round_trip(&mut self) {
        if let Role::Initiator(dialer) = &self.role
            && self.round_trip.is_none()
        {
            self.now = self.started.elapsed();
            self.set_round_trip(Some(self.now.saturating_sub(dialer.asked_at)));
        }
    }

    fn opening_done(&mut self, slot: usize, accepted: Option<SessionAccept>) {
        if let Role::Initiator(dialer) = &mut self.role {
            dialer.opening = dialer.opening.saturating_sub(1);
            dialer.failures = 0;
        }
        if let Some(accepted) = accepted {
            let size = accepted.block_size;
            if !size.is_power_of_two() || size < 1024 || size > self.block_size {
                let fault = Fault::new(
                    Code::ProtocolViolation,
                    "open the session",
                    "SESSION-OK names a block size that was not offered",
                );
                self.opening_failed(slot, fault);
                return;
            }
            let strict = self.strict;
            self.set_parameters(accepted.channels, size, self.window, strict);
            if let Role::Initiator(dialer) = &mut self.role {
                dialer.secret = Some(accepted.secret);
                dialer.wanted = dialer.wanted.min(accepted.channels);
            }
        }
        if let Some(Some(channel)) = self.channels.get(slot) {
            self.used_indexes.insert(channel.index);
        }
        self.opened(slot);
        if std::mem::take(&mut self.leave_due) {
            self.replace_channel(slot);
        }
        self.pick_channels_late();
        self.dial_missing();
    }

    fn opening_failed(&mut self, slot: usize, fault: Fault) {
        self.remove_channel(slot);
        self.dial_failed(Some(fault));
    }

    /// A channel that was open broke, or was closed in an orderly way.
    pub(super) fn channel_gone(&mut self, slot: usize, why: Option<&Fault>) {
        let Some(Some(channel)) = self.channels.get(slot) else {
            return;
        };
        if !channel.is_open() {
            let fault = why.cloned().unwrap_or_else(|| {
                Fault::new(Code::ConnectionLost, "open a channel", "the peer closed it")
            });
            self.opening_failed(slot, fault);
            return;
        }
        let (index, peer) = (channel.index, channel.peer.clone());
        let arrived = channel.incoming.as_ref().map(|i| {
            let pending = i.piece.as_ref().map_or(0, |(_, filled)| *filled);
            (i.header.file, (i.done + pending) as u64)
        });
        if let Some((file, bytes)) = arrived {
            self.count_again(file, bytes);
        }
        self.set.down(index);
        self.remove_channel(slot);
        self.sender.channel_down(index);
        self.receiver.channel_down(index);
        self.calls.channel_down();
        if let Some(fault) = why {
            tracing::info!(channel = %index, %peer, %fault, "a channel broke");
        }
        let opening = match &self.role {
            Role::Initiator(dialer) => dialer.opening,
            Role::Acceptor { .. } => 0,
        };
        if self.set.is_empty() && opening == 0 && self.ended.is_none() {
            let idle = self.sender.is_idle()
                && self.receiver.is_idle()
                && self.packs.are_idle()
                && self.calls.are_idle();
            let busy = !idle;
            let initiator = matches!(self.role, Role::Initiator(_));
            if !busy && (!initiator || self.draining.is_some()) {
                self.end(Ok(()));
                return;
            }
            let cause = why.map_or_else(|| "the peer closed it".to_owned(), |f| f.cause.clone());
            let fault = Fault::new(
                Code::ConnectionLost,
                format!("go on with the session with {peer}"),
                format!("all channels are lost ({cause})"),
            )
            .hint("run the same command again to go on where it stopped")
            .retry(Retry::AfterMs(200));
            self.end(Err(fault));
            return;
        }
        self.dial_missing();
    }

    /// Takes a channel out of its slot, and its buffers back into their pools.
    pub(super) fn remove_channel(&mut self, slot: usize) {
        let Some(mut channel) = self.channels.get_mut(slot).and_then(Option::take) else {
            return;
        };
        self.kernel.detach(channel.stream.as_mut());
        self.slots.remove(&channel.index);
        if let Some(mut incoming) = channel.incoming.take()
            && let Some((buffer, _)) = incoming.piece.take()
        {
            if incoming.lent {
                self.packs.take_back(incoming.header.file, buffer, false);
            } else {
                self.receive_pool.give(buffer);
            }
        }
        if let Some(payload) = channel.take_outgoing() {
            self.take_back(payload);
        }
        self.free_slots.push(slot);
    }

    /// Looks for channels that take too long to open.
    pub(super) fn check_openings(&mut self) {
        let late: Vec<usize> = self
            .channels
            .iter()
            .enumerate()
            .filter(|(_, c)| {
                c.as_ref().is_some_and(|c| {
                    !c.is_open() && c.opened_at + self.limits.opening_timeout <= self.now
                })
            })
            .map(|(slot, _)| slot)
            .collect();
        for slot in late {
            let seconds = self.limits.opening_timeout.as_secs_f32();
            let peer = match self.channels.get(slot) {
                Some(Some(channel)) => channel.peer.clone(),
                _ => continue,
            };
            let fault = Fault::new(
                Code::DeadlineExceeded,
                "open a channel",
                format!("{peer} did not answer within {seconds} s"),
            )
            .hint("is an xdfs server listening there?");
            self.opening_failed(slot, fault);
        }
        self.dial_missing();
    }
}
