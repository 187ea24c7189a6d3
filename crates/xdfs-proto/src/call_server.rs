//! The machine that answers calls about paths and files: the acceptor of a session.
//!
//! It hands out each call once, however often it arrives, keeps answers until the peer is known to
//! have them, and limits listings to the room of the peer. It does not use a store: its owner takes
//! [`Work`], does it, and reports the result. Its peer is the
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
//! more work can be done, and [`CallServer::poll_output`] while the channels can take more; both
//! until they return `None`. The owner MUST NOT poll, nor take new work, while more than a bounded
//! number of bytes wait for slow channels: the machine bounds the answers that it holds, and not
//! those that were polled.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{AddAssign, SubAssign};

use crate::fault::{Code, Fault};
use crate::frame::{AnswerPart, CallRequest, Frame, Taken};
use crate::id::{CALL_SLOTS, CallId};
use crate::limits::Limits;
use crate::path::{Answer, Call, PART_BYTES, PARTS_AHEAD_MAX};

/// An action for the machine's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Send this frame on any channel that is alive.
    Transmit(Frame),
}

/// A call to carry out, or a listing to continue. Each part is passed to [`CallServer::part`]; then
/// [`CallServer::finished`] or [`CallServer::paused`] is called once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Slot and number of the call.
    pub id: CallId,
    /// The call. A listing that continues has the cursor of its latest part.
    pub call: Call,
    /// Number of parts before the last that may be made now. After that many, stop the listing and
    /// call [`CallServer::paused`]. Other calls have no such parts.
    pub parts_max: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CallState {
    /// Not handed out: it is new, or a paused listing.
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
    /// Parts that the running work may still make.
    granted: u32,
    /// Bytes reserved for them and for the last part.
    reserved: KeptBytes,
    /// The call client has cancelled the rest.
    stop: bool,
    /// The fault of a store that broke the rules.
    broken: Option<Fault>,
}

/// The answering machine of one session. See the module documentation.
#[derive(Clone, Debug)]
pub struct CallServer {
    limits: Limits,
    /// Slots up to the highest that was used.
    slots: Vec<Slot>,
    /// Slots in the state Waiting, in the order in which they are served.
    waiting: VecDeque<u16>,
    /// Slots with parts to send.
    sending: BTreeSet<u16>,
    /// Bytes that are kept, and set aside for calls that run.
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

    /// Takes a frame of the calling side. Frames that aren't for a call server are a violation.
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
                "{} came where path calls are answered",
                other.name()
            ))),
        }
    }

    /// A call came, or one that has to be answered by a fault.
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
            // It came before; this one was sent again after a lost channel, or was overtaken.
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
        if parts > slot.made() {
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

    /// A channel is gone. What was sent and isn't known to have arrived is sent again.
    pub fn channel_down(&mut self) {
        for (number, slot) in (0..).zip(&mut self.slots) {
            slot.unsent = slot.taken;
            if !slot.kept.is_empty() {
                self.sending.insert(number);
            }
        }
    }

    /// The next call that can be worked on, each once. `None` if there is none at the moment:
    /// listings, and calls that read files, wait until the peer has taken parts.
    #[must_use]
    pub fn next_work(&mut self) -> Option<Work> {
        self.next_work_if(|_| true)
    }

    /// Like [`Self::next_work`], but calls that may not begin yet wait, and others overtake them.
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

    /// Begins to work on a slot, unless it is a listing without room for parts, or reads a file and
    /// there is no room for the bytes.
    fn start(&mut self, number: u16) -> Option<Work> {
        let bytes_left = self
            .limits
            .kept_part_bytes_max
            .saturating_sub(self.bytes.listed);
        let slot = &mut self.slots[usize::from(number)];
        let call = slot.call.clone()?;
        if matches!(call, Call::List { .. }) {
            let kept = u32::try_from(slot.kept.len()).unwrap_or(u32::MAX);
            // One more for the end. A listing that has nothing on its way may always go on.
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
            // One alone may always go on.
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

    /// A part of a listing before its end was made: at most [`PART_BYTES`] and one entry more,
    /// with a cursor. Returns whether the listing may go on; if not, the driver stops it and calls
    /// [`Self::paused`]. What isn't worked on is ignored.
    pub fn part(&mut self, id: CallId, answer: Answer) -> bool {
        let checked = answer.check(&self.limits);
        let Some(slot) = self.working(id) else {
            return false;
        };
        if slot.stop || slot.broken.is_some() {
            return false;
        }
        let fits = if slot.granted == 0 {
            Err("it made more parts than it might".into())
        } else {
            checked.map_err(|error| error.to_string())
        };
        if let Err(cause) = fits.and_then(|()| slot.move_on(&answer)) {
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

    /// The work has ended, with the last part or a fault. What isn't worked on is ignored.
    pub fn finished(&mut self, id: CallId, answer: Result<Answer, Fault>) {
        let checked = answer.as_ref().map_or(Ok(()), |a| a.check(&self.limits));
        let Some(slot) = self.working(id) else {
            return;
        };
        let fits = checked.map_err(|error| error.to_string());
        let answer = match (slot.broken.take(), answer) {
            (Some(fault), _) => Err(fault),
            (None, Err(fault)) => Err(fault),
            (None, Ok(answer)) => match fits.and_then(|()| slot.answers(&answer)) {
                Ok(()) => Ok(answer),
                Err(cause) => Err(broken(&cause)),
            },
        };
        self.end(id.slot, answer);
    }

    /// The driver has stopped the listing, because it made as many parts as it might or because
    /// [`Self::part`] said so. It goes on by [`Self::next_work`] when there is room. What isn't
    /// worked on is ignored.
    pub fn paused(&mut self, id: CallId) {
        let Some(slot) = self.working(id) else {
            return;
        };
        let end = match (&slot.call, slot.broken.take()) {
            (_, Some(fault)) => Err(fault),
            _ if slot.stop => Err(stopped()),
            // As many entries as were asked for.
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

    /// What the driver has to do next; `None` if there is nothing at the moment.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Output> {
        while let Some(&number) = self.sending.first() {
            if let Some(frame) = self.slots[usize::from(number)].frame(number) {
                return Some(Output::Transmit(frame));
            }
            self.sending.pop_first();
        }
        None
    }
}

impl Slot {
    /// Parts that were made, the last one included.
    fn made(&self) -> u32 {
        let kept = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
        self.taken.saturating_add(kept)
    }

    /// The next frame that it has to send.
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

    /// Notes where the listing goes on after a part.
    fn move_on(&mut self, answer: &Answer) -> Result<(), String> {
        self.answers(answer)?;
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

    /// Whether the call may be answered so.
    fn answers(&self, answer: &Answer) -> Result<(), String> {
        let Some(call) = self.call.as_ref().filter(|c| c.is_answered_by(answer)) else {
            return Err("it gave the answer of another kind of call".into());
        };
        match (call, answer) {
            (Call::List { entries_max, .. }, Answer::Entries { entries, .. })
                if entries.len() as u64 > u64::from(*entries_max) =>
            {
                Err("it gave more entries than were asked for".into())
            }
            _ => Ok(()),
        }
    }
}

/// A call of a peer that is newer.
fn unsupported(operation: u8) -> Fault {
    let cause = format!("calls of the kind {operation:#04x} aren't known here");
    Fault::new(Code::Unsupported, "take a call", cause).hint("this side may be an older version")
}

fn stopped() -> Fault {
    let cause = "nobody wants the rest";
    Fault::new(Code::Cancelled, "list a directory", cause)
}

/// A store that doesn't keep to what it promises.
fn broken(cause: &str) -> Fault {
    Fault::new(Code::Internal, "answer a call", cause)
}

fn violation(cause: String) -> Fault {
    Fault::new(Code::ProtocolViolation, "take a path call", cause)
}
