//! Frames of calls about paths and files. The layout of the calls and answers themselves is defined
//! with their types, in [`crate::path`] and [`crate::file`].

use super::body::Body;
use crate::fault::Fault;
use crate::id::CallId;
use crate::limits::Limits;
use crate::path::{Answer, Call};
use crate::wire::{DecodeError, Reader, Writer, flag};

/// XPATHM: a call to the acceptor's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRequest {
    /// The id of the call.
    pub id: CallId,
    /// The call. An unknown operation comes from a newer peer: it is answered by
    /// [`Code::Unsupported`](crate::Code::Unsupported), and the session continues.
    pub call: Result<Call, UnknownOperation>,
}

/// A call with an unknown operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOperation {
    /// Its number.
    pub number: u8,
    /// Its options and fields, undecoded.
    pub rest: Vec<u8>,
}

impl Body for CallRequest {
    fn encode(&self, w: &mut Writer<'_>) {
        w.call_id(self.id);
        match &self.call {
            Ok(call) => call.encode(w),
            Err(unknown) => {
                w.u8(unknown.number);
                w.raw(&unknown.rest);
            }
        }
    }

    fn decode(_: u8, r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        const FIELD: &str = "operation";
        let id = r.call_id()?;
        let call = match r.u8(FIELD)? {
            // Never a valid operation.
            0 => return Err(DecodeError::Invalid(FIELD)),
            number => match Call::options_defined(number) {
                Some(defined) => Ok(Call::decode(number, defined, r, limits)?),
                None => Err(UnknownOperation {
                    number,
                    rest: r.take(r.remaining(), FIELD)?.to_vec(),
                }),
            },
        };
        Ok(Self { id, call })
    }
}

/// ANSWER: a part of the answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPart {
    /// The call.
    pub id: CallId,
    /// The number of the part, from 0. Only listings have more than one part.
    pub part: u32,
    /// No part follows. A fault is always the last part.
    pub last: bool,
    /// The part. One that isn't the last contains at least one entry and a cursor.
    pub answer: Result<Answer, Fault>,
}

impl AnswerPart {
    const LAST: u8 = 1 << 0;

    /// Whether the part is valid at its position: only listings have more than one part, and all
    /// except the last have a cursor and at least one entry.
    fn is_in_place(&self) -> bool {
        match &self.answer {
            Ok(Answer::Entries { entries, cursor }) => {
                self.last || (!entries.is_empty() && cursor.is_some())
            }
            Err(_) => self.last,
            Ok(_) => self.last && self.part == 0,
        }
    }
}

impl Body for AnswerPart {
    const FLAGS_DEFINED: u8 = Self::LAST;

    fn flags(&self) -> u8 {
        flag(self.last, Self::LAST)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.call_id(self.id);
        w.u32(self.part);
        Answer::encode(&self.answer, w);
    }

    fn decode(flags: u8, r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        let part = Self {
            id: r.call_id()?,
            part: r.u32("part of an answer")?,
            last: flags & Self::LAST != 0,
            answer: Answer::decode(r, limits)?,
        };
        if part.is_in_place() {
            Ok(part)
        } else {
            Err(DecodeError::Invalid("part of an answer"))
        }
    }
}

/// TAKEN: the initiator has consumed parts of a listing, so that more may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The call.
    pub id: CallId,
    /// Number of consumed parts, in order, from the first; at least 1.
    pub parts: u32,
    /// No more parts are wanted except the last, whatever it contains.
    pub stop: bool,
}

impl Taken {
    const STOP: u8 = 1 << 0;
}

impl Body for Taken {
    const FLAGS_DEFINED: u8 = Self::STOP;

    fn flags(&self) -> u8 {
        flag(self.stop, Self::STOP)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.call_id(self.id);
        w.u32(self.parts);
    }

    fn decode(flags: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            id: r.call_id()?,
            parts: match r.u32("number of parts")? {
                0 => return Err(DecodeError::Invalid("number of parts")),
                parts => parts,
            },
            stop: flags & Self::STOP != 0,
        })
    }
}
