//! The machine that makes calls about paths and files: the initiator of a session.
//!
//! It assigns slots and numbers to calls, resends frames that may have been lost with a channel,
//! orders the parts of an answer, and delivers each of them once. Its peer is the
//! [`CallServer`](crate::call_server::CallServer).
//!
//! ```text
//!         call()           first part           last part
//!  (free) ------> Asked ---------------> Parts -----------> (free; !TAKEN after much)
//!                 |  ^                   |   ^
//!                 +--+                   +---+ took(), abandon(): !TAKEN
//!            channel lost:               channel lost: TAKEN again
//!            the call again
//! ```
//!
//! Drain order: after every method that changes the machine, call [`CallClient::poll_output`] until
//! it returns `None`. Frames are created by `poll_output`, so while the channels are full they may
//! stay in the machine without taking memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::fault::{Code, Fault, Retry};
use crate::frame::{AnswerPart, CallRequest, Frame, Taken};
use crate::id::{CALL_SLOTS, CallId};
use crate::limits::Limits;
use crate::path::{Answer, Call, PARTS_AHEAD_MAX};
use crate::wire::DecodeError;

/// An action for the owner of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallClientOutput {
    /// Deliver a part of the answer to a call. The parts of a call come in order, each once. For
    /// every part except the last, call [`CallClient::took`] once it is consumed: at most
    /// [`PARTS_AHEAD_MAX`] unconsumed parts are delivered.
    Part {
        /// The call.
        id: CallId,
        /// The part, or the fault of the call. A fault is always the last part.
        answer: Result<Answer, Fault>,
        /// No further part follows: the call has ended.
        last: bool,
    },
    /// Send this frame on any channel that is alive.
    Transmit(Frame),
}

/// A call whose last part has not been delivered.
#[derive(Clone, Debug)]
struct OpenCall {
    call: Call,
    /// Parts that overtook one with a lower number.
    early: BTreeMap<u32, Result<Answer, Fault>>,
    /// The number of the last part, once received.
    last: Option<u32>,
    /// Number of parts delivered.
    given: u32,
    /// Number of entries that later parts may still contain.
    entries_left: u64,
    /// The rest of the answer is not wanted.
    abandoned: bool,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    /// The latest call, 0 before the first.
    sequence: u32,
    open: Option<OpenCall>,
    /// Consumed parts of the latest call. If there are any, TAKEN is repeated after the loss of a
    /// channel, even after the end of the call.
    taken: u32,
    stop: bool,
    call_due: bool,
    taken_due: bool,
}

/// The calling machine of one session. See the module documentation.
#[derive(Clone, Debug)]
pub struct CallClient {
    limits: Limits,
    /// The slots used so far.
    slots: Vec<Slot>,
    /// Free ones among them.
    free: BTreeSet<u16>,
    /// Slots with frames to send.
    sending: BTreeSet<u16>,
    parts: VecDeque<CallClientOutput>,
    ended: Option<Fault>,
}

impl CallClient {
    /// A machine without calls.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            slots: Vec::new(),
            free: BTreeSet::new(),
            sending: BTreeSet::new(),
            parts: VecDeque::new(),
            ended: None,
        }
    }

    /// Whether a slot is free, so that [`Self::call`] accepts another call.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.ended.is_none()
            && (!self.free.is_empty() || self.slots.len() < usize::from(CALL_SLOTS))
    }

    /// Number of calls that have not ended, abandoned ones included. EOFT may be sent when it is 0.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.slots.iter().filter(|s| s.open.is_some()).count()
    }

    /// Whether an answer of the peer is due, so that its silence has a deadline. A listing with
    /// unconsumed parts doesn't count: the peer may wait for TAKEN.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        let awaited = |s: &Slot| s.open.as_ref().is_some_and(|o| o.given == s.taken);
        self.slots.iter().any(awaited)
    }

    /// Starts a call. Its answer is delivered as [`CallClientOutput::Part`] with the returned id.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] or [`Code::NameTooLong`] for a call that no frame may carry
    /// ([`Call::check`]); [`Code::LimitExceeded`], to be retried, without [room](Self::has_room);
    /// after [`Self::end`] its fault. Nothing is sent in these cases.
    pub fn call(&mut self, call: Call) -> Result<CallId, Fault> {
        if let Some(fault) = &self.ended {
            return Err(fault.clone());
        }
        call.check(&self.limits).map_err(|error| {
            let code = match error {
                DecodeError::TooLarge { .. } if !call.path().is_empty() => Code::NameTooLong,
                _ => Code::InvalidArgument,
            };
            Fault::new(code, call.operation(), error.to_string()).path(call.path())
        })?;
        let Some(slot) = self.free_slot() else {
            let cause = format!("{CALL_SLOTS} calls are unanswered");
            let fault = Fault::new(Code::LimitExceeded, call.operation(), cause);
            return Err(fault.path(call.path()).retry(Retry::Now));
        };
        let state = &mut self.slots[usize::from(slot)];
        let sequence = state.sequence + 1;
        let entries_left = match &call {
            Call::List { entries_max, .. } => u64::from(*entries_max),
            _ => 0,
        };
        *state = Slot {
            sequence,
            open: Some(OpenCall {
                call,
                early: BTreeMap::new(),
                last: None,
                given: 0,
                entries_left,
                abandoned: false,
            }),
            call_due: true,
            ..Slot::default()
        };
        self.sending.insert(slot);
        Ok(CallId { slot, sequence })
    }

    fn free_slot(&mut self) -> Option<u16> {
        if let Some(slot) = self.free.pop_first() {
            return Some(slot);
        }
        let slot = u16::try_from(self.slots.len()).ok()?;
        (slot < CALL_SLOTS).then(|| {
            self.slots.push(Slot::default());
            slot
        })
    }

    /// Records that one part of a listing, other than the last, was consumed, so that another may
    /// come. Ignored for calls that have ended, and beyond the parts delivered.
    pub fn took(&mut self, id: CallId) {
        if let Some(slot) = self.open_slot(id)
            && let Some(open) = &slot.open
            && slot.taken < open.given
        {
            slot.taken += 1;
            slot.taken_due = true;
            self.sending.insert(id.slot);
        }
    }

    /// Drops the rest of the answer: nothing more is delivered, except parts that are already among
    /// the outputs. The call may still have effects. Its slot becomes free when the peer has ended
    /// it, which happens soon for a listing. Ignored for calls that have ended.
    pub fn abandon(&mut self, id: CallId) {
        if let Some(slot) = self.open_slot(id)
            && let Some(open) = &mut slot.open
        {
            open.abandoned = true;
            if matches!(open.call, Call::List { .. }) && open.given > 0 {
                slot.discard_parts();
                self.sending.insert(id.slot);
            }
        }
    }

    fn open_slot(&mut self, id: CallId) -> Option<&mut Slot> {
        self.slots
            .get_mut(usize::from(id.slot))
            .filter(|s| s.sequence == id.sequence && s.open.is_some())
    }

    /// Handles the loss of a channel. Calls without any part of their answer are resent, and so are
    /// TAKEN frames, since they may have been lost with it.
    pub fn channel_down(&mut self) {
        for (number, slot) in (0..).zip(&mut self.slots) {
            let unheard = |o: &OpenCall| o.given == 0 && o.early.is_empty();
            slot.call_due |= slot.open.as_ref().is_some_and(unheard);
            slot.taken_due |= slot.taken > 0;
            if self.ended.is_none() && (slot.call_due || slot.taken_due) {
                self.sending.insert(number);
            }
        }
    }

    /// Handles a frame of the answering side. Other frames are a violation.
    ///
    /// # Errors
    /// A fault that ends the session; call [`Self::end`] with it.
    pub fn handle_frame(&mut self, frame: Frame) -> Result<(), Fault> {
        match frame {
            _ if self.ended.is_some() => Ok(()),
            Frame::Answer(AnswerPart {
                id,
                part,
                last,
                answer,
            }) => self.answered(id, part, last, answer),
            other => Err(violation(format!(
                "{} is not for a call client",
                other.name()
            ))),
        }
    }

    fn answered(
        &mut self,
        id: CallId,
        part: u32,
        last: bool,
        answer: Result<Answer, Fault>,
    ) -> Result<(), Fault> {
        let slot = self.slots.get_mut(usize::from(id.slot));
        let Some(slot) = slot.filter(|s| id.sequence <= s.sequence) else {
            return Err(violation(format!("call {id} was answered but never made")));
        };
        let taken = slot.taken;
        let open = match &mut slot.open {
            Some(open) if slot.sequence == id.sequence => open,
            // A duplicate: its earlier copy came on a channel that the peer considers lost.
            _ => return Ok(()),
        };
        if part < open.given || open.early.contains_key(&part) {
            return Ok(());
        }
        open.check_part(id, part, taken, last, &answer)?;
        if last {
            open.last = Some(part);
        }
        open.early.insert(part, answer);
        while let Some(answer) = open.early.remove(&open.given) {
            let last = open.last == Some(open.given);
            open.given = open.given.saturating_add(1);
            if !open.abandoned {
                self.parts
                    .push_back(CallClientOutput::Part { id, answer, last });
            }
            if last {
                self.close(id.slot);
                return Ok(());
            }
        }
        if open.abandoned && open.given > 0 {
            slot.discard_parts();
            self.sending.insert(id.slot);
        }
        Ok(())
    }

    /// Frees a slot whose last part was delivered.
    fn close(&mut self, number: u16) {
        let slot = &mut self.slots[usize::from(number)];
        let Some(open) = slot.open.take() else {
            return;
        };
        slot.call_due = false;
        if is_kept_until_taken(&open.call) {
            slot.taken = open.given;
            slot.taken_due = true;
            self.sending.insert(number);
        }
        // A slot whose numbers are exhausted stays closed for the rest of the session.
        if slot.sequence < u32::MAX {
            self.free.insert(number);
        }
    }

    /// Ends the session with `fault`. All unfinished calls fail with it, and so do further ones.
    /// Whether unfinished calls had effects is unknown; the hint of their fault says so.
    pub fn end(&mut self, fault: &Fault) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(fault.clone());
        self.sending.clear();
        for (number, slot) in (0..).zip(&mut self.slots) {
            let Some(open) = slot.open.take().filter(|o| !o.abandoned) else {
                continue;
            };
            let mut fault = fault.clone();
            if !open.call.is_read_only() {
                fault.hint = "it may have been done: look before you try again".into();
                fault.retry = Retry::Never;
            }
            self.parts.push_back(CallClientOutput::Part {
                id: CallId {
                    slot: number,
                    sequence: slot.sequence,
                },
                answer: Err(fault.preventing(open.call.path())),
                last: true,
            });
        }
    }

    /// The next action; `None` if there is none at present.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<CallClientOutput> {
        if let Some(part) = self.parts.pop_front() {
            return Some(part);
        }
        while let Some(&number) = self.sending.first() {
            if let Some(frame) = self.slots[usize::from(number)].frame(number) {
                return Some(CallClientOutput::Transmit(frame));
            }
            self.sending.pop_first();
        }
        None
    }
}

impl Slot {
    /// The next frame of the slot.
    fn frame(&mut self, slot: u16) -> Option<Frame> {
        let id = CallId {
            slot,
            sequence: self.sequence,
        };
        if std::mem::take(&mut self.call_due)
            && let Some(open) = &self.open
        {
            let call = open.call.clone();
            return Some(Frame::Xpathm(CallRequest { id, call: Ok(call) }));
        }
        (std::mem::take(&mut self.taken_due) && self.taken > 0).then_some(Frame::Taken(Taken {
            id,
            parts: self.taken,
            stop: self.stop,
        }))
    }

    /// Counts the parts of an abandoned call as taken, and requests no more.
    fn discard_parts(&mut self) {
        if let Some(open) = &self.open {
            self.taken = open.given;
            self.stop = true;
            self.taken_due = true;
        }
    }
}

impl OpenCall {
    /// Checks the position and kind of a new part.
    fn check_part(
        &mut self,
        id: CallId,
        part: u32,
        taken: u32,
        last: bool,
        answer: &Result<Answer, Fault>,
    ) -> Result<(), Fault> {
        let listing = matches!(self.call, Call::List { .. });
        let ahead = if listing { PARTS_AHEAD_MAX } else { 1 };
        let highest = self.early.last_key_value().map_or(0, |(n, _)| *n);
        if part - taken >= ahead
            || self.last.is_some_and(|end| last || part > end)
            || last && part < highest
        {
            let cause = format!("part {part} of the answer to call {id} is out of range");
            return Err(violation(cause));
        }
        let Ok(answer) = answer else {
            return Ok(());
        };
        if !self.call.is_answered_by(answer) || !listing && !last {
            let cause = format!("call {id} got the answer of another kind of call");
            return Err(violation(cause));
        }
        if let Answer::Entries { entries, .. } = answer {
            let left = self.entries_left.checked_sub(entries.len() as u64);
            self.entries_left = left
                .ok_or_else(|| violation(format!("call {id} got more entries than requested")))?;
        }
        Ok(())
    }
}

/// Whether the peer must keep a large answer until it knows that it arrived.
fn is_kept_until_taken(call: &Call) -> bool {
    matches!(call, Call::List { .. }) || call.answer_data_bytes() > 0
}

fn violation(cause: String) -> Fault {
    Fault::new(Code::ProtocolViolation, "take an answer", cause)
}
