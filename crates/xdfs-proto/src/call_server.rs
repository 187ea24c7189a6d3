//! The machine that answers calls about paths and files: the acceptor of a session.
//!
//! It hands out each call once, however often it arrives, keeps answers until the peer is known to
//! have them, and limits listings to the room of the peer. It does not use a store: its owner takes
//! [`Work`], performs it, and reports the result. Its peer is the
//! [`CallClient`](crate::call_client::CallClient).
//!
//! ```text
//!         ?XPATHM             next_work()           finished()
//!  (free) -------> Waiting ----------------> Working ----------> Done (the next call in the slot)
//!                    ^                       |   ^ part()
//!                    |   ?TAKEN: room again  v   |
//!                    +------------------- paused()
//!
//!   channel lost, in every state: the parts that are kept are sent again
//! ```
//!
//! Drain order: after every method that changes the machine, call [`CallServer::next_work`] while
//! more work can be done, and [`CallServer::poll_output`] while the channels have room; both until
//! they return `None`. The owner MUST NOT poll, nor take new work, while more than a bounded number
//! of bytes are queued on slow channels: the machine bounds the answers that it holds, not those
//! already polled.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{AddAssign, SubAssign};

use crate::fault::{Code, Fault};
use crate::frame::{AnswerPart, CallRequest, Frame, Taken};
use crate::id::{CALL_SLOTS, CallId};
use crate::limits::Limits;
use crate::path::{Answer, Call, PART_BYTES, PARTS_AHEAD_MAX};

/// An action for the owner of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallServerOutput {
    /// Send this frame on any channel that is alive.
    Transmit(Frame),
}

/// A call to perform, or a listing to continue. Each part is passed to [`CallServer::part`]; then
/// [`CallServer::finished`] or [`CallServer::paused`] is called once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Slot and number of the call.
    pub id: CallId,
    /// The call. A listing that continues has the cursor of its latest part.
    pub call: Call,
    /// Number of parts before the last that may be produced now. After that many, stop the listing
    /// and call [`CallServer::paused`]. Other calls have no such parts.
    pub parts_max: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CallState {
    /// Not handed out: a new call, or a paused listing.
    Waiting,
    Working,
    #[default]
    Done,
}

#[derive(Clone, Debug)]
struct KeptPart {
    last: bool,
    answer: Result<Answer, Fault>,
    /// Bytes that count against a limit.
    bytes: KeptBytes,
}

/// Bytes of answers that are kept, or reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KeptBytes {
    /// Of listings, limited by [`Limits::kept_part_bytes_max`].
    listed: usize,
    /// Of file data and signatures, limited by [`Limits::kept_data_bytes_max`].
    data: usize,
}

impl AddAssign for KeptBytes {
    fn add_assign(&mut self, other: Self) {
        self.listed += other.listed;
        self.data += other.data;
    }
}

impl SubAssign for KeptBytes {
    fn sub_assign(&mut self, other: Self) {
        self.listed -= other.listed;
        self.data -= other.data;
    }
}

#[derive(Clone, Debug, Default)]
struct Slot {
    /// The latest call, 0 before the first.
    sequence: u32,
    state: CallState,
    /// The rest of the call; `None` when it is done.
    call: Option<Call>,
    /// Parts from number `taken` on.
    kept: VecDeque<KeptPart>,
    taken: u32,
    /// The number of the next part to send.
    unsent: u32,
    /// Number of parts that the running work may still produce.
    granted: u32,
    /// Bytes reserved for them and for the last part.
    reserved: KeptBytes,
    /// The client doesn't want the rest.
    stop: bool,
    /// The fault of a store that violated its contract.
    broken: Option<Fault>,
}

/// The answering machine of one session. See the module documentation.
#[derive(Clone, Debug)]
pub struct CallServer {
    limits: Limits,
    /// All slots used so far.
    slots: Vec<Slot>,
    /// Slots in the state Waiting, in the order of service.
    waiting: VecDeque<u16>,
    /// Slots with parts to send.
    sending: BTreeSet<u16>,
    /// Bytes kept, or reserved for running calls.
    bytes: KeptBytes,
}

impl CallServer {
    /// A machine without calls.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            slots: Vec::new(),
            waiting: VecDeque::new(),
            sending: BTreeSet::new(),
            bytes: KeptBytes::default(),
        }
    }

    /// Number of calls without a result, waiting ones included. A draining side waits until it is 0
    /// and [`Self::poll_output`] returns `None`.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        let unfinished = |s: &&Slot| s.state != CallState::Done;
        self.slots.iter().filter(unfinished).count()
    }

    /// Handles a frame of the calling side. Other frames are a violation.
    ///
    /// # Errors
    /// A fault that ends the session.
    pub fn handle_frame(&mut self, frame: Frame) -> Result<(), Fault> {
        match frame {
            Frame::Xpathm(CallRequest { id, call }) => {
                self.called(id, call.map_err(|unknown| unsupported(unknown.number)))
            }
            Frame::Taken(Taken { id, parts, stop }) => self.taken(id, parts, stop),
            other => Err(violation(format!(
                "{} is not for a call server",
                other.name()
            ))),
        }
    }

    /// Handles a call, or an unknown operation to be answered by a fault.
    fn called(&mut self, id: CallId, call: Result<Call, Fault>) -> Result<(), Fault> {
        if id.slot >= CALL_SLOTS {
            return Err(violation(format!(
                "call {id} is in a slot that isn't there"
            )));
        }
        let number = usize::from(id.slot);
        if number >= self.slots.len() {
            self.slots.resize_with(number + 1, Slot::default);
        }
        let slot = &mut self.slots[number];
        if id.sequence <= slot.sequence {
            // A duplicate: resent after the loss of a channel, or overtaken.
            return Ok(());
        }
        if id.sequence - slot.sequence > 1 || slot.state != CallState::Done {
            let cause = format!("call {id} was made before the one in its slot was answered");
            return Err(violation(cause));
        }
        for kept in &slot.kept {
            self.bytes -= kept.bytes;
        }
        *slot = Slot {
            sequence: id.sequence,
            ..Slot::default()
        };
        self.sending.remove(&id.slot);
        match call {
            Ok(call) => {
                slot.state = CallState::Waiting;
                slot.call = Some(call);
                self.waiting.push_back(id.slot);
            }
            Err(fault) => self.end(id.slot, Err(fault)),
        }
        Ok(())
    }

    fn taken(&mut self, id: CallId, parts: u32, stop: bool) -> Result<(), Fault> {
        let slot = self.slots.get_mut(usize::from(id.slot));
        let Some(slot) = slot.filter(|s| id.sequence <= s.sequence) else {
            return Err(violation(format!(
                "TAKEN names call {id}, which was not made"
            )));
        };
        if id.sequence < slot.sequence {
            return Ok(());
        }
        if parts > slot.parts_made() {
            let cause = format!("TAKEN counts {parts} parts of call {id}, which has fewer");
            return Err(violation(cause));
        }
        while slot.taken < parts
            && let Some(kept) = slot.kept.pop_front()
        {
            self.bytes -= kept.bytes;
            slot.taken += 1;
        }
        slot.unsent = slot.unsent.max(slot.taken);
        slot.stop |= stop;
        Ok(())
    }

    /// Handles the loss of a channel: resends everything not known to have arrived.
    pub fn channel_down(&mut self) {
        for (number, slot) in (0..).zip(&mut self.slots) {
            slot.unsent = slot.taken;
            if !slot.kept.is_empty() {
                self.sending.insert(number);
            }
        }
    }

    /// The next call to work on, each once. `None` if there is none at present: listings, and calls
    /// that read files, wait until the peer has taken parts.
    #[must_use]
    pub fn next_work(&mut self) -> Option<Work> {
        self.next_work_if(|_| true)
    }

    /// [`Self::next_work`], but calls that may not begin yet are overtaken by others.
    #[must_use]
    pub fn next_work_if(&mut self, may_begin: impl Fn(&Call) -> bool) -> Option<Work> {
        for _ in 0..self.waiting.len() {
            let number = self.waiting.pop_front()?;
            if self.slots[usize::from(number)].stop {
                self.end(number, Err(stopped()));
                continue;
            }
            let call = self.slots[usize::from(number)].call.as_ref();
            if !call.is_some_and(&may_begin) {
                self.waiting.push_back(number);
                continue;
            }
            let Some(work) = self.start(number) else {
                self.waiting.push_back(number);
                continue;
            };
            return Some(work);
        }
        None
    }

    /// Starts work on a slot, unless it is a listing without room for parts, or reads a file
    /// without room for its bytes.
    fn start(&mut self, number: u16) -> Option<Work> {
        let bytes_left = self
            .limits
            .kept_part_bytes_max
            .saturating_sub(self.bytes.listed);
        let slot = &mut self.slots[usize::from(number)];
        let call = slot.call.clone()?;
        if matches!(call, Call::List { .. }) {
            let kept = u32::try_from(slot.kept.len()).unwrap_or(u32::MAX);
            // One more is for the end. A listing without parts in flight may always proceed.
            let room = PARTS_AHEAD_MAX.saturating_sub(kept + 1);
            let by_bytes = u32::try_from(bytes_left / PART_BYTES).unwrap_or(u32::MAX);
            let least = u32::from(kept == 0);
            slot.granted = room.min(by_bytes.saturating_sub(1).max(least));
            if slot.granted == 0 {
                return None;
            }
            slot.reserved.listed = (slot.granted as usize + 1) * PART_BYTES;
            self.bytes += slot.reserved;
        }
        let data = call.answer_data_bytes();
        if data > 0 {
            let limit = self.limits.kept_data_bytes_max;
            // A single call may always proceed.
            if self.bytes.data > 0 && self.bytes.data + data > limit {
                return None;
            }
            slot.reserved.data = data;
            self.bytes += slot.reserved;
        }
        slot.state = CallState::Working;
        Some(Work {
            id: CallId {
                slot: number,
                sequence: slot.sequence,
            },
            call,
            parts_max: slot.granted,
        })
    }

    fn working(&mut self, id: CallId) -> Option<&mut Slot> {
        self.slots
            .get_mut(usize::from(id.slot))
            .filter(|s| s.sequence == id.sequence && s.state == CallState::Working)
    }

    /// Takes a part of a listing before its end: at most [`PART_BYTES`] and one entry more, with a
    /// cursor. Returns whether the listing may continue; if not, the owner stops it and calls
    /// [`Self::paused`]. Ignored for calls that aren't running.
    pub fn part(&mut self, id: CallId, answer: Answer) -> bool {
        let checked = answer.check(&self.limits);
        let Some(slot) = self.working(id) else {
            return false;
        };
        if slot.stop || slot.broken.is_some() {
            return false;
        }
        let fits = if slot.granted == 0 {
            Err("it produced more parts than allowed".into())
        } else {
            checked.map_err(|error| error.to_string())
        };
        if let Err(cause) = fits.and_then(|()| slot.advance(&answer)) {
            slot.broken = Some(broken(&cause));
            return false;
        }
        slot.granted -= 1;
        let more = slot.granted > 0;
        slot.reserved.listed -= PART_BYTES;
        self.bytes.listed -= PART_BYTES;
        self.keep(id.slot, false, Ok(answer));
        more
    }

    /// Ends a call, with the last part or a fault. Ignored for calls that aren't running.
    pub fn finished(&mut self, id: CallId, answer: Result<Answer, Fault>) {
        let checked = answer.as_ref().map_or(Ok(()), |a| a.check(&self.limits));
        let Some(slot) = self.working(id) else {
            return;
        };
        let fits = checked.map_err(|error| error.to_string());
        let answer = match (slot.broken.take(), answer) {
            (Some(fault), _) => Err(fault),
            (None, Err(fault)) => Err(fault),
            (None, Ok(answer)) => match fits.and_then(|()| slot.check_answer(&answer)) {
                Ok(()) => Ok(answer),
                Err(cause) => Err(broken(&cause)),
            },
        };
        self.end(id.slot, answer);
    }

    /// Pauses a listing, because it has used up its parts or [`Self::part`] returned `false`. It
    /// resumes by [`Self::next_work`] when there is room. Ignored for calls that aren't running.
    pub fn paused(&mut self, id: CallId) {
        let Some(slot) = self.working(id) else {
            return;
        };
        let end = match (&slot.call, slot.broken.take()) {
            (_, Some(fault)) => Err(fault),
            _ if slot.stop => Err(stopped()),
            // All requested entries.
            (
                Some(Call::List {
                    cursor,
                    entries_max: 0,
                    ..
                }),
                None,
            ) => Ok(Answer::Entries {
                entries: Vec::new(),
                cursor: Some(cursor.clone()),
            }),
            (Some(Call::List { .. }), None) => {
                slot.state = CallState::Waiting;
                let reserved = std::mem::take(&mut slot.reserved);
                self.bytes -= reserved;
                self.waiting.push_back(id.slot);
                return;
            }
            _ => Err(broken("it stopped before its end")),
        };
        self.end(id.slot, end);
    }

    fn end(&mut self, number: u16, answer: Result<Answer, Fault>) {
        let slot = &mut self.slots[usize::from(number)];
        slot.state = CallState::Done;
        let reserved = std::mem::take(&mut slot.reserved);
        self.bytes -= reserved;
        self.keep(number, true, answer);
        self.slots[usize::from(number)].call = None;
    }

    fn keep(&mut self, number: u16, last: bool, answer: Result<Answer, Fault>) {
        let mut bytes = KeptBytes::default();
        match &answer {
            Ok(answer @ Answer::Entries { .. }) => bytes.listed = answer.body_bytes(),
            Ok(answer) => bytes.data = answer.data_bytes(),
            Err(_) => {}
        }
        self.bytes += bytes;
        let slot = &mut self.slots[usize::from(number)];
        slot.kept.push_back(KeptPart {
            last,
            answer,
            bytes,
        });
        self.sending.insert(number);
    }

    /// The next action; `None` if there is none at present.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<CallServerOutput> {
        while let Some(&number) = self.sending.first() {
            if let Some(frame) = self.slots[usize::from(number)].frame(number) {
                return Some(CallServerOutput::Transmit(frame));
            }
            self.sending.pop_first();
        }
        None
    }
}

impl Slot {
    /// Number of parts produced, including the last.
    fn parts_made(&self) -> u32 {
        let kept = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
        self.taken.saturating_add(kept)
    }

    /// The next frame of the slot.
    fn frame(&mut self, slot: u16) -> Option<Frame> {
        let part = self.unsent;
        let kept = self.kept.get((part - self.taken) as usize)?;
        self.unsent = part.saturating_add(1);
        Some(Frame::Answer(AnswerPart {
            id: CallId {
                slot,
                sequence: self.sequence,
            },
            part,
            last: kept.last,
            answer: kept.answer.clone(),
        }))
    }

    /// Sets the cursor from which the listing continues after a part.
    fn advance(&mut self, answer: &Answer) -> Result<(), String> {
        self.check_answer(answer)?;
        match (&mut self.call, answer) {
            (
                Some(Call::List {
                    cursor,
                    entries_max,
                    ..
                }),
                Answer::Entries {
                    entries,
                    cursor: Some(next),
                },
            ) if !entries.is_empty() => {
                cursor.clone_from(next);
                *entries_max -= u32::try_from(entries.len()).unwrap_or(*entries_max);
                Ok(())
            }
            _ => Err("a part before the end has no entries or no cursor".into()),
        }
    }

    /// Checks that the answer fits the call.
    fn check_answer(&self, answer: &Answer) -> Result<(), String> {
        let Some(call) = self.call.as_ref().filter(|c| c.is_answered_by(answer)) else {
            return Err("its answer is of another kind of call".into());
        };
        match (call, answer) {
            (Call::List { entries_max, .. }, Answer::Entries { entries, .. })
                if entries.len() as u64 > u64::from(*entries_max) =>
            {
                Err("it returned more entries than requested".into())
            }
            _ => Ok(()),
        }
    }
}

/// The fault of an operation that only a newer peer knows.
fn unsupported(operation: u8) -> Fault {
    let cause = format!("calls of the kind {operation:#04x} aren't known here");
    Fault::new(Code::Unsupported, "take a call", cause).hint("this side may be an older version")
}

fn stopped() -> Fault {
    let cause = "the rest is not wanted";
    Fault::new(Code::Cancelled, "list", cause)
}

/// The fault of a store that violates its contract.
fn broken(cause: &str) -> Fault {
    Fault::new(Code::Internal, "answer a call", cause)
}

fn violation(cause: String) -> Fault {
    Fault::new(Code::ProtocolViolation, "take a path call", cause)
}
