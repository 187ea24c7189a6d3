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

/// An action for the machine's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Deliver a part of the answer to a call. The parts of a call come in order and each once. For
    /// every part but the last, call [`CallClient::took`] once it is consumed: at most
    /// [`PARTS_AHEAD_MAX`] unconsumed parts are delivered.
    Part {
        /// The call.
        id: CallId,
        /// The part, or why there is none. A fault is always the last.
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
    /// Entries that further parts may hold.
    entries_left: u64,
    /// The answer is not wanted.
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
    tell_call: bool,
    tell_taken: bool,
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
    telling: BTreeSet<u16>,
    parts: VecDeque<Output>,
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
            telling: BTreeSet::new(),
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

    /// Makes a call. Its answer comes as [`Output::Part`] with the name returned here.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] or [`Code::NameTooLong`] for what no frame may carry
    /// ([`Call::check`]); [`Code::LimitExceeded`], to be tried again, without
    /// [room](Self::has_room); after [`Self::end`] its fault. Nothing is sent then.
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
            tell_call: true,
            ..Slot::default()
        };
        self.telling.insert(slot);
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

    /// The user is done with one part of a listing, other than the last: a further one may come.
    /// Ignored for calls that ended, and for more parts than were given out.
    pub fn took(&mut self, id: CallId) {
        if let Some(slot) = self.open_slot(id)
            && let Some(open) = &slot.open
            && slot.taken < open.given
        {
            slot.taken += 1;
            slot.tell_taken = true;
            self.telling.insert(id.slot);
        }
    }

    /// Nobody wants the (rest of the) answer: nothing more is given out for this call, except
    /// parts that are among the outputs already. What it changes it may change all the same. Its
    /// place is free when the peer has ended it, which a listing does soon. Ignored for calls that
    /// ended.
    pub fn abandon(&mut self, id: CallId) {
        if let Some(slot) = self.open_slot(id)
            && let Some(open) = &mut slot.open
        {
            open.abandoned = true;
            if matches!(open.call, Call::List { .. }) && open.given > 0 {
                slot.discard_parts();
                self.telling.insert(id.slot);
            }
        }
    }

    fn open_slot(&mut self, id: CallId) -> Option<&mut Slot> {
        self.slots
            .get_mut(usize::from(id.slot))
            .filter(|s| s.sequence == id.sequence && s.open.is_some())
    }

    /// A channel is gone. Calls without any part of their answer are sent again, and so is the
    /// word of the parts that were taken: they may have been lost with it.
    pub fn channel_down(&mut self) {
        for (number, slot) in (0..).zip(&mut self.slots) {
            let unheard = |o: &OpenCall| o.given == 0 && o.early.is_empty();
            slot.tell_call |= slot.open.as_ref().is_some_and(unheard);
            slot.tell_taken |= slot.taken > 0;
            if self.ended.is_none() && (slot.tell_call || slot.tell_taken) {
                self.telling.insert(number);
            }
        }
    }

    /// Takes a frame of the answering side. Frames that aren't for a caller are a violation.
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
                "{} came where a call_client is",
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
            return Err(violation(format!("call {id} was answered and not made")));
        };
        let taken = slot.taken;
        let open = match &mut slot.open {
            Some(open) if slot.sequence == id.sequence => open,
            // It came before, on a channel that was lost for the other side.
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
                self.parts.push_back(Output::Part { id, answer, last });
            }
            if last {
                self.close(id.slot);
                return Ok(());
            }
        }
        if open.abandoned && open.given > 0 {
            slot.discard_parts();
            self.telling.insert(id.slot);
        }
        Ok(())
    }

    /// The last part was given out: the slot is free.
    fn close(&mut self, number: u16) {
        let slot = &mut self.slots[usize::from(number)];
        let Some(open) = slot.open.take() else {
            return;
        };
        slot.tell_call = false;
        if is_kept_until_taken(&open.call) {
            slot.taken = open.given;
            slot.tell_taken = true;
            self.telling.insert(number);
        }
        // One whose numbers are used up stays closed for the rest of the session.
        if slot.sequence < u32::MAX {
            self.free.insert(number);
        }
    }

    /// The session is over, by `fault`. Every call that hasn't ended ends with it, and further
    /// ones are refused with it. Of those that change something nobody knows whether they did;
    /// the hint of their fault says so.
    pub fn end(&mut self, fault: &Fault) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(fault.clone());
        self.telling.clear();
        for (number, slot) in (0..).zip(&mut self.slots) {
            let Some(open) = slot.open.take().filter(|o| !o.abandoned) else {
                continue;
            };
            let mut fault = fault.clone();
            if !open.call.is_read_only() {
                fault.hint = "it may have been done: look before you try again".into();
                fault.retry = Retry::Never;
            }
            if fault.path.is_empty() {
                fault = fault.path(open.call.path());
            }
            self.parts.push_back(Output::Part {
                id: CallId {
                    slot: number,
                    sequence: slot.sequence,
                },
                answer: Err(fault),
                last: true,
            });
        }
    }

    /// What the driver has to do next; `None` if there is nothing at the moment.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Output> {
        if let Some(part) = self.parts.pop_front() {
            return Some(part);
        }
        while let Some(&number) = self.telling.first() {
            if let Some(frame) = self.slots[usize::from(number)].frame(number) {
                return Some(Output::Transmit(frame));
            }
            self.telling.pop_first();
        }
        None
    }
}

impl Slot {
    /// The next frame that it has to send.
    fn frame(&mut self, slot: u16) -> Option<Frame> {
        let id = CallId {
            slot,
            sequence: self.sequence,
        };
        if std::mem::take(&mut self.tell_call)
            && let Some(open) = &self.open
        {
            let call = open.call.clone();
            return Some(Frame::Xpathm(CallRequest { id, call: Ok(call) }));
        }
        (std::mem::take(&mut self.tell_taken) && self.taken > 0).then_some(Frame::Taken(Taken {
            id,
            parts: self.taken,
            stop: self.stop,
        }))
    }

    /// The call is abandoned and has brought parts: they are taken, and no more are wanted.
    fn discard_parts(&mut self) {
        if let Some(open) = &self.open {
            self.taken = open.given;
            self.stop = true;
            self.tell_taken = true;
        }
    }
}

impl OpenCall {
    /// Whether a part that is new may come so.
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
            self.entries_left = left.ok_or_else(|| {
                violation(format!("call {id} got more entries than it asked for"))
            })?;
        }
        Ok(())
    }
}

/// Whether the peer has to keep much of the answer until it hears that it came.
fn is_kept_until_taken(call: &Call) -> bool {
    matches!(call, Call::List { .. }) || call.answer_data_bytes() > 0
}

fn violation(cause: String) -> Fault {
    Fault::new(Code::ProtocolViolation, "take an answer", cause)
}
