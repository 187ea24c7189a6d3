//! Calls about paths and files: connects the call machines with the workers (acceptor) or with the
//! library that makes the calls (initiator).
//!
//! The machines bound the frames that they hold. So frames stay in them while the channels are
//! full, and the queues of the channels stay short.

use std::collections::{BTreeMap, BTreeSet};

use xdfs_proto::call_client::{CallClient, CallClientOutput};
use xdfs_proto::call_server::{CallServer, CallServerOutput};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{CallId, Code, Fault, Frame, Limits};

use super::Pipeline;
use super::ending::Ending;
use super::faults::mark_session_end;
use crate::call_workers::{CallProgress, CallWorkers};
use crate::command::{CallPart, CallSpec};
use crate::cost::is_costly;
use crate::environment::Worker;
use crate::kernel::Kernel;
use crate::mailbox;
use crate::tally::SessionTally;

/// Bytes that may be queued on a channel that gets another frame of a call.
const BACKLOG_MAX: usize = 64 << 10;

/// The calls of a session.
#[derive(Debug)]
pub(super) struct Calls {
    side: Side,
    /// The machine may have outputs.
    due: bool,
    /// The machine has outputs that wait for a channel.
    waits: bool,
    /// The machine may have calls that wait for the rate limit.
    throttled: bool,
}

#[derive(Debug)]
enum Side {
    Initiator(InitiatorCalls),
    Acceptor(AcceptorCalls),
}

/// The calls of an initiator.
#[derive(Debug)]
struct InitiatorCalls {
    call_client: CallClient,
    /// Calls that wait for a slot, or for the session to open.
    waiting: BTreeMap<u64, CallSpec>,
    /// Calls whose answers the library waits for.
    pending: BTreeMap<CallId, PendingAnswer>,
    ids: BTreeMap<u64, CallId>,
}

#[derive(Debug)]
struct PendingAnswer {
    number: u64,
    parts: mailbox::Sender<CallPart>,
    listing: bool,
}

/// The calls of an acceptor.
#[derive(Debug)]
struct AcceptorCalls {
    call_server: CallServer,
    threads: CallWorkers,
    /// Listings that are paused until the peer has room.
    paused: BTreeSet<CallId>,
}

impl Calls {
    pub(super) fn initiator(limits: &Limits) -> Self {
        Self::new(Side::Initiator(InitiatorCalls {
            call_client: CallClient::new(limits.clone()),
            waiting: BTreeMap::new(),
            pending: BTreeMap::new(),
            ids: BTreeMap::new(),
        }))
    }

    pub(super) fn acceptor(limits: &Limits, threads: CallWorkers) -> Self {
        Self::new(Side::Acceptor(AcceptorCalls {
            call_server: CallServer::new(limits.clone()),
            threads,
            paused: BTreeSet::new(),
        }))
    }

    fn new(side: Side) -> Self {
        Self {
            side,
            due: false,
            waits: false,
            throttled: false,
        }
    }

    /// Polls the machine in this turn, after an event that it may wait for.
    pub(super) fn mark_due(&mut self) {
        self.due = true;
    }

    /// Polls the machine in this turn if it waits for a channel.
    pub(super) fn mark_due_if_waiting(&mut self) {
        self.due |= self.waits;
    }

    /// Handles a frame of the peer.
    pub(super) fn handle_frame(&mut self, frame: Frame) -> Result<(), Fault> {
        self.due = true;
        match &mut self.side {
            Side::Initiator(initiator) => initiator.call_client.handle_frame(frame),
            Side::Acceptor(acceptor) => acceptor.call_server.handle_frame(frame),
        }
    }

    pub(super) fn channel_down(&mut self) {
        self.due = true;
        match &mut self.side {
            Side::Initiator(initiator) => initiator.call_client.channel_down(),
            Side::Acceptor(acceptor) => acceptor.call_server.channel_down(),
        }
    }

    /// Whether no call is in progress.
    pub(super) fn are_idle(&self) -> bool {
        match &self.side {
            Side::Initiator(initiator) => {
                initiator.call_client.unanswered() == 0 && initiator.waiting.is_empty()
            }
            Side::Acceptor(acceptor) => {
                acceptor.call_server.unfinished() == 0 && !self.waits && !self.due
            }
        }
    }

    /// Makes a call (initiator).
    pub(super) fn call(&mut self, spec: CallSpec, is_closing: bool) {
        let Side::Initiator(initiator) = &mut self.side else {
            return;
        };
        if is_closing {
            refuse(&spec, &closed(&spec.call));
            return;
        }
        self.due = true;
        initiator.waiting.insert(spec.number, spec);
    }

    /// The user has consumed a part (initiator).
    pub(super) fn took(&mut self, number: u64) {
        if let Side::Initiator(initiator) = &mut self.side
            && let Some(id) = initiator.ids.get(&number)
        {
            initiator.call_client.took(*id);
            self.due = true;
        }
    }

    /// The user has dropped the answer (initiator).
    pub(super) fn abandon(&mut self, number: u64) {
        if let Side::Initiator(initiator) = &mut self.side {
            initiator.waiting.remove(&number);
            if let Some(id) = initiator.ids.remove(&number) {
                initiator.pending.remove(&id);
                initiator.call_client.abandon(id);
            }
            self.due = true;
        }
    }

    /// Ends listings, whose users may never read on (initiator).
    pub(super) fn end_listings(&mut self) {
        let Side::Initiator(initiator) = &mut self.side else {
            return;
        };
        let is_listing = |call: &Call| matches!(call, Call::List { .. });
        let mut ended = Vec::new();
        for spec in initiator.waiting.values().filter(|j| is_listing(&j.call)) {
            refuse(spec, &closed(&spec.call));
            ended.push(spec.number);
        }
        for pending in initiator.pending.values().filter(|m| m.listing) {
            let fault = Fault::new(Code::Cancelled, "list", "the session is closed");
            deliver(&pending.parts, Err(fault), true);
            ended.push(pending.number);
        }
        for number in ended {
            self.abandon(number);
        }
    }

    /// Ends all calls with the fault of the session. Returns the workers, which end too.
    pub(super) fn end(&mut self, fault: &Fault) -> Vec<Worker> {
        match &mut self.side {
            Side::Initiator(initiator) => {
                initiator.call_client.end(fault);
                while let Some(CallClientOutput::Part { id, answer, last }) =
                    initiator.call_client.poll_output()
                {
                    initiator.deliver(id, answer, last);
                }
                for spec in initiator.waiting.values() {
                    refuse(spec, fault);
                }
                Vec::new()
            }
            Side::Acceptor(acceptor) => acceptor.threads.finish(),
        }
    }

    /// Handles the results of the workers (acceptor). Returns whether a call was charged to the
    /// user's rate limit.
    pub(super) fn process_completions(&mut self, tally: Option<&SessionTally>) -> bool {
        let mut has_charged = false;
        let Side::Acceptor(acceptor) = &mut self.side else {
            return has_charged;
        };
        while let Some(done) = acceptor.threads.completion() {
            self.due = true;
            match done {
                CallProgress::Part { id, answer } => {
                    if !acceptor.call_server.part(id, answer) {
                        acceptor.threads.stop(id);
                    }
                }
                CallProgress::Finished {
                    id,
                    answer,
                    is_charged,
                } => {
                    has_charged |= is_charged;
                    if let Some(tally) = tally {
                        tally.called(answer.as_ref().err().map(|fault| fault.code));
                    }
                    acceptor.paused.remove(&id);
                    acceptor.call_server.finished(id, answer);
                }
                CallProgress::Parked => {}
                CallProgress::Paused { id } => {
                    acceptor.paused.insert(id);
                    acceptor.call_server.paused(id);
                }
            }
        }
        has_charged
    }

    /// The next frame to send. Calls that read files begin only while the rate limit allows it.
    fn next_frame(&mut self, ending: &Ending, is_rate_open: bool) -> Option<Frame> {
        match &mut self.side {
            Side::Initiator(initiator) => initiator.next_frame(),
            Side::Acceptor(acceptor) => acceptor.next_frame(ending, is_rate_open),
        }
    }

    /// An initiator sends calls once the session has started.
    fn may_send(&self, is_started: bool) -> bool {
        is_started || matches!(self.side, Side::Acceptor(_))
    }
}

impl InitiatorCalls {
    fn next_frame(&mut self) -> Option<Frame> {
        loop {
            while self.call_client.has_room()
                && let Some((_, spec)) = self.waiting.pop_first()
            {
                self.make(spec);
            }
            match self.call_client.poll_output()? {
                CallClientOutput::Part { id, answer, last } => self.deliver(id, answer, last),
                CallClientOutput::Transmit(frame) => return Some(frame),
                _ => {}
            }
        }
    }

    fn make(&mut self, spec: CallSpec) {
        let CallSpec {
            number,
            call,
            parts,
        } = spec;
        let listing = matches!(call, Call::List { .. });
        match self.call_client.call(call) {
            Ok(id) => {
                self.ids.insert(number, id);
                let pending = PendingAnswer {
                    number,
                    parts,
                    listing,
                };
                self.pending.insert(id, pending);
            }
            Err(fault) => deliver(&parts, Err(fault), true),
        }
    }

    fn deliver(&mut self, id: CallId, answer: Result<Answer, Fault>, last: bool) {
        // An abandoned call is no longer here.
        if let Some(pending) = self.pending.get(&id) {
            deliver(&pending.parts, answer, last);
            if last {
                self.ids.remove(&pending.number);
                self.pending.remove(&id);
            }
        }
    }
}

impl AcceptorCalls {
    fn next_frame(&mut self, ending: &Ending, is_rate_open: bool) -> Option<Frame> {
        // A refusal costs nothing.
        let is_draining = ending.is_draining();
        let may_begin = |call: &Call| is_rate_open || is_draining || !is_costly(call);
        loop {
            if let Some(CallServerOutput::Transmit(frame)) = self.call_server.poll_output() {
                return Some(frame);
            }
            if !self.threads.have_room() {
                return None;
            }
            let Some(work) = self.call_server.next_work_if(may_begin) else {
                // Abandoned listings have ended meanwhile.
                return match self.call_server.poll_output() {
                    Some(CallServerOutput::Transmit(frame)) => Some(frame),
                    _ => None,
                };
            };
            let id = work.id;
            let begun = self.paused.remove(&id);
            let refusal = if is_draining && !begun {
                Some(ending.refusal(work.call.operation()).path(work.call.path()))
            } else {
                self.threads.submit(work).err()
            };
            if let Some(fault) = refusal {
                self.call_server.finished(id, Err(fault));
            }
        }
    }
}

/// Delivers a part of an answer. The receiver may be gone.
fn deliver(parts: &mailbox::Sender<CallPart>, answer: Result<Answer, Fault>, last: bool) {
    let answer = answer.map_err(mark_session_end);
    let _ = parts.send(CallPart { answer, last });
}

/// Ends a call that was not sent.
pub(super) fn refuse(spec: &CallSpec, fault: &Fault) {
    let fault = fault.clone().preventing(spec.call.path());
    deliver(&spec.parts, Err(fault), true);
}

fn closed(call: &Call) -> Fault {
    Fault::new(Code::Cancelled, call.operation(), "the session is closed")
}

impl<K: Kernel> Pipeline<K> {
    /// Sends the outputs of the call machine, as far as the channels take them.
    pub(super) fn pump_calls(&mut self) {
        let is_rate_open = self.is_rate_open();
        self.calls.due |= self.calls.throttled && is_rate_open;
        if !self.calls.due || self.ending.has_ended() {
            return;
        }
        if !self
            .calls
            .may_send(!self.channel_set.is_empty() && self.is_started)
        {
            // Polled again when a channel opens.
            self.send_calls_ahead();
            return;
        }
        self.calls.due = false;
        self.calls.throttled = !is_rate_open;
        loop {
            let Some(slot) = self.slot_for_calls() else {
                self.calls.waits = true;
                return;
            };
            let Some(frame) = self.calls.next_frame(&self.ending, is_rate_open) else {
                self.calls.waits = false;
                return;
            };
            self.transmit_on(slot, &frame);
        }
    }

    /// Sends calls on the first channel behind SESSION ([S-37]).
    fn send_calls_ahead(&mut self) {
        let Some(slot) = self.slot_ahead() else {
            return;
        };
        while self.channels.may_send_ahead(slot)
            && let Some(frame) = self.calls.next_frame(&Ending::default(), true)
        {
            self.channels.keep_frame(frame);
            self.channels.send_ahead(slot);
        }
        self.channels.queue(slot);
    }

    /// The open channel with the shortest queue; `None` if all queues are full.
    fn slot_for_calls(&self) -> Option<usize> {
        let open = self.channels.open().filter_map(|(slot, channel)| {
            let waiting = channel.control_pending();
            let left = self.channel_set.has_left(channel.index);
            let rank = (left, channel.outgoing.is_some(), waiting);
            (waiting < BACKLOG_MAX).then_some((rank, slot))
        });
        open.min().map(|(_, slot)| slot)
    }
}
