//! Channels that join and leave the session.

use xdfs_proto::frame::{Exception, Frame, Level, Scope, SessionAccept};
use xdfs_proto::handshake::{InitiatorStep, Purpose};
use xdfs_proto::{ChannelIndex, Code, Fault, Retry};
use xdfs_sys::poll::Token;

use super::dialer::{AfterFailure, ChannelCounts};
use super::faults::all_channels_lost;
use super::parameters::Parameters;
use super::{Pipeline, Role};
use crate::channel::{Channel, Phase};
use crate::kernel::Kernel;
use crate::path_decision::ChannelsReason;

/// Sends the reason to a channel that can't join, and closes it.
pub(super) fn refuse_join(mut channel: Channel, fault: Fault) {
    channel.push(&Frame::Exception(Exception {
        scope: Scope::Channel,
        fault,
    }));
    // A fresh connection accepts these few bytes at once; otherwise the peer only sees the end.
    let _ = channel.write();
    let _ = channel.stream.close();
}

/// The single answer to a JOIN with an unknown session, a wrong secret or a used index, so that the
/// peer can't tell these apart ([S-8]).
pub(crate) fn no_such_session() -> Fault {
    Fault::new(Code::SessionUnknown, "join the session", "no such session")
        .hint("it may have ended, or the secret is wrong")
}

impl<K: Kernel> Pipeline<K> {
    /// Adds an open channel to the session.
    pub(super) fn admit(&mut self, mut channel: Channel) {
        self.network_path
            .see_channel(channel.stream.capabilities().local);
        if let Some(window) = self.parameters.window()
            && let Err(error) = channel.stream.set_window(window)
        {
            tracing::warn!(%error, "the window could not be set");
        }
        if let Some(slot) = self.place(channel) {
            self.opened(slot);
        }
    }

    /// Assigns a slot to a channel and registers it.
    fn place(&mut self, mut channel: Channel) -> Option<usize> {
        let token = Token(self.channels.vacant());
        if let Err(error) = self.kernel.attach(channel.stream.as_mut(), token) {
            tracing::warn!(%error, "a channel could not be watched");
            return None;
        }
        // Edge-triggered: events before the registration would be missed.
        channel.readable = true;
        channel.writable = true;
        Some(self.channels.insert(channel))
    }

    /// Handles a channel that has completed its opening.
    fn opened(&mut self, slot: usize) {
        let Some(channel) = self.channels.get_mut(slot) else {
            return;
        };
        channel.phase = Phase::Open;
        channel.frame_since = None;
        let index = channel.index;
        self.channels.opened(index, slot);
        self.channel_set.up(index);
        self.open_channels_max = self.open_channels_max.max(self.count().staying);
        self.is_started |= self.parameters.may_start(self.count().live);
        if let Some(tally) = &self.moved.tally {
            tally.channel_opened();
        }
        if let Role::Initiator(dialer) = &self.role
            && dialer.level() == Level::Clear
            && let Some(channel) = self.channels.get_mut(slot)
        {
            channel.set_level(Level::Clear);
        }
        self.suit_channel(slot);
        self.bound_in_flight();
        self.offload_private(slot);
        self.sender.channel_up(index, self.now);
        self.receiver.channel_up(index);
        self.channels.forget_ahead();
        self.calls.mark_due();
        self.channels.queue(slot);
        self.transmit_unrouted();
    }

    /// The first channel, once SESSION was sent on it and isn't answered: requests may follow
    /// there ([S-37]), unless the session waits for all of its channels (initiator).
    pub(super) fn slot_ahead(&self) -> Option<usize> {
        let is_asked = |channel: &Channel| match &channel.phase {
            Phase::Opening(initiator) => initiator.has_requested(),
            _ => false,
        };
        let mut opening = self
            .channels
            .iter()
            .filter(|(_, channel)| is_asked(channel));
        let first = opening.next().map(|(slot, _)| slot);
        first.filter(|_| !self.parameters.is_strict() && self.channel_set.is_empty())
    }

    /// Sends the requests that wait for a channel behind SESSION.
    pub(super) fn transmit_ahead(&mut self) {
        if let Some(slot) = self.slot_ahead() {
            self.channels.send_ahead(slot);
            self.calls.mark_due();
        }
    }

    /// Handles a peer's request to join (acceptor).
    pub(super) fn join(&mut self, mut channel: Channel) {
        let index = channel.index;
        let fault = if !self
            .channel_set
            .may_join(self.parameters.channels_max() as usize)
        {
            Some(Fault::new(
                Code::TooManyChannels,
                "join the session",
                format!(
                    "the session has its {} channels",
                    self.parameters.channels_max()
                ),
            ))
        } else if index.0 == 0 || self.channels.was_used(index) {
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

    /// Raises the target number of channels (initiator).
    pub(super) fn want_channels(&mut self, wanted: u32) {
        let max = self.channels_max();
        if let Role::Initiator(dialer) = &mut self.role {
            let (before, wanted) = dialer.want(wanted, max);
            self.network_path
                .tell_channels(before, wanted, ChannelsReason::Workload);
        }
        self.dial_missing();
    }

    /// The largest number of channels that the peer allows now.
    pub(super) fn channels_max(&self) -> u32 {
        let agreed = self.parameters.channels_max();
        match &self.role {
            Role::Initiator(dialer) => dialer.channels_max(agreed, self.count(), self.now),
            Role::Acceptor { .. } => agreed,
        }
    }

    /// Sets the target number of channels: opens missing ones, or lets the latest ones leave
    /// (initiator).
    pub(super) fn set_channels(&mut self, wanted: u32) {
        let max = self.channels_max();
        if let Role::Initiator(dialer) = &mut self.role {
            dialer.set_wanted(wanted, max);
        }
        let staying = self.count().staying;
        let mut open: Vec<ChannelIndex> = self.channels.open().map(|(_, c)| c.index).collect();
        open.sort_unstable();
        let extra = staying.saturating_sub(wanted.max(1)) as usize;
        let mut left = 0;
        while let Some(index) = open.pop().filter(|_| left < extra) {
            left += usize::from(self.channel_set.leave(index, self.now));
        }
        self.dial_missing();
    }

    /// Measures the path of all channels once in a while where something is moved, and sets their
    /// options as soon as it is known to be long.
    pub(super) fn measure_channels(&mut self) {
        if self.is_idle() || !self.network_path.take_sample_due(self.now) {
            return;
        }
        let slots: Vec<usize> = self.channels.open().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.suit_channel(slot);
        }
        let open = self.channels.open();
        let samples = open.filter_map(|(_, channel)| channel.stream.measure());
        self.network_path.see_channels(samples);
    }

    /// Sets the pace of all channels where this side yields to others.
    pub(super) fn pace_channels(&mut self) {
        let Some(yielding) = &mut self.yielding else {
            return;
        };
        let is_due = yielding.is_due(self.now) && !self.network_path.has_local_address();
        if !is_due || self.channels.open().next().is_none() {
            return;
        }
        let open = self.channels.open();
        let samples = open.filter_map(|(_, channel)| channel.stream.measure());
        let samples: Vec<_> = samples.collect();
        let Some(pace) = yielding.step(&samples, self.now) else {
            return;
        };
        tracing::trace!(pace, channels = samples.len(), "the pace of each channel");
        let slots: Vec<usize> = self.channels.open().map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(channel) = self.channels.get_mut(slot)
                && let Err(error) = channel.stream.set_pace(Some(pace))
            {
                yielding.note_unpaced(&error);
            }
        }
    }

    fn suit_channel(&mut self, slot: usize) {
        if let Some(channel) = self.channels.get_mut(slot)
            && !channel.suits_path
        {
            channel.suits_path = self.network_path.suit_channel(&mut *channel.stream);
        }
    }

    /// Starts to replace a channel (initiator).
    pub(super) fn replace_channel(&mut self, slot: usize) {
        if let Some(index) = self.channels.get(slot).map(|channel| channel.index)
            && self.channel_set.leave(index, self.now)
        {
            self.dial_missing();
        }
    }

    /// The numbers of open channels.
    pub(super) fn count(&self) -> ChannelCounts {
        ChannelCounts {
            live: u32::try_from(self.channel_set.len()).unwrap_or(u32::MAX),
            staying: u32::try_from(self.channel_set.staying()).unwrap_or(u32::MAX),
        }
    }

    /// Opens missing channels (initiator).
    pub(super) fn dial_missing(&mut self) {
        while !self.ending.has_ended() {
            let (count, window) = (self.count(), self.parameters.window());
            let is_long = self.network_path.is_long();
            let Role::Initiator(dialer) = &mut self.role else {
                return;
            };
            let asks = !dialer.has_asked();
            match dialer.open_missing(count, window, is_long, self.now) {
                Some(Ok(channel)) => {
                    if self.place(channel).is_none() {
                        self.dial_failed(asks, None);
                    }
                }
                Some(Err(fault)) => self.dial_failed(asks, Some(fault)),
                None => return,
            }
        }
    }

    /// Handles a channel that could not be opened; `asked` says whether it was for the session
    /// (initiator).
    fn dial_failed(&mut self, asked: bool, fault: Option<Fault>) {
        let (count, were_ahead) = (self.count(), self.channels.are_ahead());
        let Role::Initiator(dialer) = &mut self.role else {
            return;
        };
        match dialer.failed(asked, fault, count, were_ahead, self.now) {
            AfterFailure::Continue => {}
            AfterFailure::NextRoute(fallback) => {
                if let Some(decision) = fallback {
                    self.network_path.tell(decision);
                }
                self.give_up_silent(u32::MAX);
                self.dial_missing();
            }
            AfterFailure::End(fault) => self.end(Err(fault)),
        }
    }

    /// Closes up to `count` channels, the latest first, on which the opening exchange hasn't begun
    /// (initiator).
    fn give_up_silent(&mut self, count: u32) {
        let silent = self.channels.iter().filter(|(_, c)| c.is_silent());
        let mut silent: Vec<_> = silent.map(|(slot, c)| (c.index, slot)).collect();
        silent.sort_unstable();
        for (_, slot) in silent.into_iter().rev().take(count as usize) {
            self.remove_channel(slot);
            if let Role::Initiator(dialer) = &mut self.role {
                dialer.gave_up();
            }
        }
    }

    /// Lets the channels join that were connected before the session had its secret (initiator).
    fn join_connected(&mut self) {
        let count = self.count();
        if let Role::Initiator(dialer) = &self.role {
            self.give_up_silent(dialer.surplus(count));
        }
        let connected = |channel: &Channel| matches!(channel.phase, Phase::Connected);
        let slots = self.channels.iter().filter(|(_, c)| connected(c));
        let slots: Vec<usize> = slots.map(|(slot, _)| slot).collect();
        for slot in slots {
            self.greet(slot);
            if let Some(channel) = self.channels.get_mut(slot) {
                // The peer may have closed it meanwhile.
                channel.readable = true;
            }
            self.channels.queue(slot);
        }
    }

    /// Begins the opening exchange on a channel whose transport is open, or has it wait for the
    /// session's secret (initiator).
    fn greet(&mut self, slot: usize) {
        let (Some(channel), Role::Initiator(dialer)) =
            (self.channels.get_mut(slot), &mut self.role)
        else {
            return;
        };
        match dialer.purpose(channel.index, &self.network_path) {
            None => channel.phase = Phase::Connected,
            Some(Purpose::Session(request)) => {
                self.parameters = Parameters::requested(&request);
                channel.greet(Purpose::Session(request), dialer.yields());
                dialer.request_sent(self.now);
                self.prove_ahead(slot);
                self.transmit_ahead();
                if self.network_path.is_long() {
                    self.pick_channels_late();
                    self.dial_missing();
                }
            }
            Some(other) => {
                channel.greet(other, false);
                channel.heard_at = self.now;
            }
        }
    }

    /// Continues the opening of a channel that has become readable or writable.
    pub(super) fn continue_opening(&mut self, slot: usize) {
        let Some(channel) = self.channels.get_mut(slot) else {
            return;
        };
        let Role::Initiator(dialer) = &mut self.role else {
            return;
        };
        if matches!(channel.phase, Phase::Connected) {
            channel.readable = false;
            return;
        }
        if matches!(channel.phase, Phase::Connecting) {
            match channel.stream.finish_open() {
                Ok(false) => {
                    channel.readable = false;
                    channel.writable = false;
                    return;
                }
                Ok(true) => {
                    channel.peer = channel.stream.peer();
                    self.network_path
                        .see_channel(channel.stream.capabilities().local);
                    let is_unprotected = channel.stream.protection().is_none();
                    if dialer.identity().is_some() && is_unprotected {
                        let cause = "the channel has no protection, though it was requested";
                        let fault = Fault::new(Code::ProtectionRefused, "open a channel", cause);
                        self.opening_failed(slot, fault);
                        return;
                    }
                    channel.suits_path = self.network_path.suit_channel(&mut *channel.stream);
                    self.greet(slot);
                }
                Err(error) => {
                    let fault = dialer.connect_fault(&error);
                    self.opening_failed(slot, fault);
                    return;
                }
            }
        }
        loop {
            let Some(channel) = self.channels.get_mut(slot) else {
                return;
            };
            let Phase::Opening(initiator) = &mut channel.phase else {
                return;
            };
            let mut out = Vec::new();
            let step = initiator.receive(&channel.input, &self.limits, &mut out);
            let user = initiator.user().map(str::to_owned);
            // A driver above TLS hides its clear payload.
            let has_clear = channel.stream.protected().is_some();
            let takes_clear = initiator.takes_clear() && has_clear;
            let follows_links = initiator.follows_links();
            let takes_last_packs = initiator.takes_last_packs();
            let reports_time = initiator.reports_time();
            channel.push_bytes(&out);
            match step {
                Ok((InitiatorStep::Wait, used)) => {
                    channel.consume(used);
                    if used > 0 {
                        self.timers.heard(self.now);
                        self.measure_round_trip();
                        continue;
                    }
                }
                Ok((InitiatorStep::Open(accepted), used)) => {
                    if let Role::Initiator(dialer) = &mut self.role {
                        dialer.learn_features(follows_links, takes_last_packs);
                    }
                    if let Err(fault) = self.check_level(takes_clear) {
                        self.opening_failed(slot, fault);
                        return;
                    }
                    let Some(channel) = self.channels.get_mut(slot) else {
                        return;
                    };
                    if let (Role::Initiator(dialer), Some(user)) = (&self.role, &user)
                        && let Some(identity) = dialer.identity()
                    {
                        identity.admitted(user);
                    }
                    channel.takes_clear = takes_clear;
                    channel.consume(used);
                    self.timers.heard(self.now);
                    self.measure_round_trip();
                    self.opening_done(slot, accepted, reports_time);
                    return;
                }
                Ok((step @ (InitiatorStep::Prove(_) | InitiatorStep::Challenge(_)), used)) => {
                    channel.consume(used);
                    self.timers.heard(self.now);
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
                Ok((InitiatorStep::Tunnel(_), _)) => {
                    // The machine takes TUNNEL-OK only as an answer to TUNNEL.
                    let cause = "a tunnel was granted, and none was asked for";
                    let fault = Fault::new(Code::ProtocolViolation, "open a channel", cause);
                    self.opening_failed(slot, fault);
                    return;
                }
                Ok((InitiatorStep::Mistaken, _)) => {
                    tracing::debug!("the proof went ahead, by a method that isn't supported");
                    self.channels.keep_ahead();
                    self.remove_channel(slot);
                    // They take the place of the one that asks anew.
                    self.give_up_silent(u32::MAX);
                    if let Role::Initiator(dialer) = &mut self.role {
                        dialer.await_methods();
                    }
                    self.dial_missing();
                    return;
                }
                Err(mut fault) => {
                    if let Role::Initiator(dialer) = &self.role
                        && let Some(identity) = dialer.identity()
                    {
                        if let Phase::Opening(initiator) = &channel.phase
                            && initiator.has_requested()
                        {
                            identity.supported(initiator.methods());
                        }
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
                    let Role::Initiator(dialer) = &self.role else {
                        return;
                    };
                    let fault = dialer.connect_fault(&error);
                    self.opening_failed(slot, fault);
                    return;
                }
            }
        }
        self.channels.queue(slot);
    }

    /// Proves this side's identity behind HELLO, if it has a proof that needs no answer to it.
    fn prove_ahead(&mut self, slot: usize) {
        let identity = match &self.role {
            Role::Initiator(dialer) if dialer.may_prove_ahead() => dialer.identity().cloned(),
            _ => None,
        };
        if let Some(identity) = identity
            && let Some(channel) = self.channels.get_mut(slot)
            && let Some(protection) = &channel.protection
            && let Phase::Opening(initiator) = &mut channel.phase
            && initiator.awaits_proof()
            && let Some(request) = identity.prove_ahead(protection)
        {
            let mut out = Vec::new();
            initiator.prove_ahead(request, &mut out);
            channel.push_bytes(&out);
        }
    }

    /// Performs one step of this side's proof of identity.
    fn prove(&mut self, slot: usize, step: InitiatorStep) -> Result<(), Fault> {
        let identity = match &self.role {
            Role::Initiator(dialer) => dialer.identity().cloned(),
            Role::Acceptor { .. } => None,
        };
        let Some(channel) = self.channels.get_mut(slot) else {
            return Ok(());
        };
        let (Some(identity), Some(protection)) = (identity, &channel.protection) else {
            let cause = "a proof was requested on a channel without protection";
            return Err(Fault::new(Code::ProtectionRefused, "authenticate", cause));
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
                InitiatorStep::Wait
                | InitiatorStep::Open(_)
                | InitiatorStep::Tunnel(_)
                | InitiatorStep::Mistaken => {}
            }
        }
        channel.push_bytes(&out);
        self.transmit_ahead();
        Ok(())
    }

    /// Measures the round trip as the time from the first bytes sent to their answer.
    fn measure_round_trip(&mut self) {
        if let Role::Initiator(dialer) = &self.role
            && !self.network_path.is_measured()
        {
            self.now = self.elapsed();
            self.set_round_trip(Some(self.now.saturating_sub(dialer.request_sent_at())));
        }
    }

    fn opening_done(&mut self, slot: usize, accepted: Option<SessionAccept>, reports_time: bool) {
        if let Role::Initiator(dialer) = &mut self.role {
            dialer.opened();
        }
        let joins = accepted.is_none();
        if let Some(accepted) = accepted {
            let size = accepted.block_size;
            if !size.is_power_of_two() || size < 1024 || size > self.parameters.block_size() {
                let fault = Fault::new(
                    Code::ProtocolViolation,
                    "open the session",
                    "SESSION-OK names a block size that was not offered",
                );
                self.opening_failed(slot, fault);
                return;
            }
            self.set_parameters(self.parameters.agreed(&accepted, reports_time));
            if let Role::Initiator(dialer) = &mut self.role {
                dialer.accepted(&accepted);
            }
        }
        // How long a join took. The session's own request is measured by its first answer.
        if joins && let Some(channel) = self.channels.get(slot) {
            self.see_answer(self.now.saturating_sub(channel.heard_at));
        }
        self.opened(slot);
        if let Role::Initiator(dialer) = &mut self.role
            && dialer.take_leave_due()
        {
            self.replace_channel(slot);
        }
        self.join_connected();
        self.pick_channels_late();
        self.dial_missing();
    }

    fn opening_failed(&mut self, slot: usize, fault: Fault) {
        let index = self.channels.get(slot).map(|channel| channel.index);
        self.remove_channel(slot);
        self.dial_failed(index == Some(ChannelIndex(0)), Some(fault));
    }

    /// Handles the loss or orderly close of a channel.
    pub(super) fn channel_gone(&mut self, slot: usize, why: Option<&Fault>) {
        let Some(channel) = self.channels.get(slot) else {
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
        self.channel_set.down(index);
        self.remove_channel(slot);
        self.sender.channel_down(index);
        self.receiver.channel_down(index);
        self.calls.channel_down();
        if let Some(fault) = why {
            tracing::info!(channel = %index, %peer, %fault, "a channel broke");
            if let Some(tally) = &self.moved.tally {
                tally.channel_broke();
            }
        }
        let is_opening = matches!(&self.role, Role::Initiator(dialer) if dialer.is_opening());
        if self.channel_set.is_empty() && !is_opening && !self.ending.has_ended() {
            let initiator = matches!(self.role, Role::Initiator(_));
            if self.is_idle() && (!initiator || self.ending.is_draining()) {
                self.end(Ok(()));
                return;
            }
            let cause = why.map_or_else(|| "the peer closed it".to_owned(), |f| f.cause.clone());
            self.end(Err(all_channels_lost(&peer, &cause)));
            return;
        }
        self.dial_missing();
    }

    /// Removes a channel and returns its buffers to their pools.
    pub(super) fn remove_channel(&mut self, slot: usize) {
        let Some(mut channel) = self.channels.remove(slot) else {
            return;
        };
        self.kernel.detach(channel.stream.as_mut());
        // Its blocks go to others, which may have been passed over in this turn.
        self.sends_more = true;
        if let Some(mut incoming) = channel.incoming.take()
            && let Some((buffer, _)) = incoming.piece.take()
        {
            if incoming.lent {
                self.transfers
                    .take_back(incoming.header.file, buffer, false);
            } else {
                self.buffers.give_received(buffer);
            }
        }
        if let Some(payload) = channel.take_outgoing() {
            self.take_back(payload);
        }
    }

    /// Closes channels that take too long to open.
    pub(super) fn check_openings(&mut self) {
        let limit = self.limits.opening_timeout;
        let is_late =
            |channel: &Channel| !channel.is_open() && channel.opened_at + limit <= self.now;
        let late = self.channels.iter().filter(|(_, channel)| is_late(channel));
        let late: Vec<usize> = late.map(|(slot, _)| slot).collect();
        for slot in late {
            let seconds = self.limits.opening_timeout.as_secs_f32();
            let Some(channel) = self.channels.get(slot) else {
                continue;
            };
            let (peer, phase) = (&channel.peer, &channel.phase);
            let (cause, hint) = match phase {
                Phase::Connecting => (
                    format!("{peer} did not answer within {seconds} s"),
                    "is an xdfs server listening there?",
                ),
                _ => (
                    format!(
                        "{peer} accepted the connection, and did not answer within {seconds} s"
                    ),
                    "the server may be overloaded, or wait for a file system that doesn't answer: \
                     its log says so",
                ),
            };
            let fault = Fault::new(Code::DeadlineExceeded, "open a channel", cause).hint(hint);
            self.opening_failed(slot, fault);
        }
        if let Role::Initiator(dialer) = &mut self.role
            && let Some((before, wanted)) = dialer.take_refusal()
        {
            self.network_path
                .tell_channels(before, wanted, ChannelsReason::Refused);
        }
        self.dial_missing();
    }
}
