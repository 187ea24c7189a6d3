//! What happens on a channel before it belongs to a session, for both ends.
//!
//! ```text
//! initiator                              acceptor
//!   HELLO (JOIN)  --------------------->
//!                 <---------------------  WELCOME, or the reason why not
//!   SESSION       --------------------->            (channel 0 only)
//!                 <---------------------  SESSION-OK or JOIN-OK, or an exception
//! ```
//!
//! Both machines are fed with the bytes received so far and say how many they used.

use crate::fault::{Code, Fault};
use crate::frame::{
    FRAME_HEADER_BYTES, Frame, FrameHeader, JoinRequest, SessionAccept, SessionRequest,
};
use crate::limits::Limits;
use crate::opening::{Answer, Feature, Hello};

/// Reads one frame that isn't a BLOCK from the front of `bytes`; `Ok(None)` while it isn't there.
///
/// # Errors
/// The frame can't be decoded, or is a BLOCK.
pub fn take_frame(bytes: &[u8], limits: &Limits) -> Result<Option<(Frame, usize)>, Fault> {
    let Some(header) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
        return Ok(None);
    };
    let header = FrameHeader::decode(*header, limits).map_err(|e| e.fault())?;
    if header.is_block() {
        return Err(Fault::new(
            Code::ProtocolViolation,
            "open the channel",
            "a block came before the session was open",
        ));
    }
    let end = FRAME_HEADER_BYTES + header.length as usize;
    let Some(body) = bytes.get(FRAME_HEADER_BYTES..end) else {
        return Ok(None);
    };
    let frame = Frame::decode(header, body, limits).map_err(|e| e.fault())?;
    Ok(Some((frame, end)))
}

/// What an initiator wants of a new channel.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// Register a session.
    Session(SessionRequest),
    /// Join one.
    Join(JoinRequest),
}

/// The initiator's end.
#[derive(Debug)]
pub struct Initiator {
    purpose: Purpose,
    welcomed: bool,
}

/// Where the initiator's end stands.
#[derive(Debug)]
pub enum InitiatorStep {
    /// More bytes are needed.
    Wait,
    /// The channel is open. For the first channel with what the acceptor accepted.
    Open(Option<SessionAccept>),
}

impl Initiator {
    /// Starts, and appends the first bytes to `out`.
    #[must_use]
    pub fn new(purpose: Purpose, out: &mut Vec<u8>) -> Self {
        Hello::default().encode(out);
        // Version and features are known from channel 0, so that joining costs one round trip.
        if let Purpose::Join(join) = &purpose {
            Frame::Join(join.clone()).encode(out);
        }
        Self {
            purpose,
            welcomed: false,
        }
    }

    /// Takes the bytes received and not yet used; returns the step and how many were used. What
    /// has to be sent is appended to `out`.
    ///
    /// # Errors
    /// The acceptor refused, or broke the protocol.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        out: &mut Vec<u8>,
    ) -> Result<(InitiatorStep, usize), Fault> {
        let mut used = 0;
        if !self.welcomed {
            let Some((answer, n)) = Answer::decode(bytes).map_err(|e| e.fault())? else {
                return Ok((InitiatorStep::Wait, 0));
            };
            used = n;
            match answer {
                Answer::Refused(fault) => return Err(fault.remote()),
                Answer::Welcome(welcome) => {
                    Hello::default().check(&welcome)?;
                    self.welcomed = true;
                }
            }
            if let Purpose::Session(request) = &self.purpose {
                Frame::Session(request.clone()).encode(out);
            }
        }
        let frame = loop {
            let Some((frame, n)) = take_frame(bytes.get(used..).unwrap_or(&[]), limits)? else {
                return Ok((InitiatorStep::Wait, used));
            };
            used += n;
            // A busy acceptor may ask for patience.
            if !matches!(frame, Frame::Noop | Frame::Conm) {
                break frame;
            }
        };
        match (frame, &self.purpose) {
            (Frame::SessionOk(accept), Purpose::Session(request)) => {
                if accept.channels == 0 || accept.channels > request.channels {
                    return Err(violation("SESSION-OK raises the number of channels"));
                }
                if request.block_size != 0 && accept.block_size > request.block_size {
                    return Err(violation("SESSION-OK raises the block size"));
                }
                Ok((InitiatorStep::Open(Some(accept)), used))
            }
            (Frame::JoinOk, Purpose::Join(_)) => Ok((InitiatorStep::Open(None), used)),
            (Frame::Exception { fault, .. }, _) => Err(fault.remote()),
            (other, _) => Err(violation(&format!(
                "{} came instead of an answer",
                other.name()
            ))),
        }
    }
}

/// The acceptor's end.
#[derive(Debug)]
pub struct Acceptor {
    greeted: bool,
}

/// Where the acceptor's end stands.
#[derive(Debug)]
pub enum AcceptorStep {
    /// More bytes are needed.
    Wait,
    /// The peer registers a session; answer with SESSION-OK or an exception.
    Session(SessionRequest),
    /// The peer joins one; answer with JOIN-OK or an exception.
    Join(JoinRequest),
}

impl Acceptor {
    /// A fresh channel.
    #[must_use]
    pub fn new() -> Self {
        Self { greeted: false }
    }

    /// Takes the bytes received and not yet used; returns the step and how many were used. What
    /// has to be sent is appended to `out`, also when the result is an error: then send it and
    /// close.
    ///
    /// # Errors
    /// The initiator can't be served, or broke the protocol.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        features: &[Feature],
        limits: &Limits,
        out: &mut Vec<u8>,
    ) -> Result<(AcceptorStep, usize), Fault> {
        let mut used = 0;
        if !self.greeted {
            let hello = match Hello::decode(bytes) {
                Ok(Some(hello)) => hello,
                Ok(None) => return Ok((AcceptorStep::Wait, 0)),
                Err(error) => {
                    let fault = error.fault();
                    Answer::Refused(fault.clone()).encode(out);
                    return Err(fault);
                }
            };
            used = hello.1;
            let answer = hello.0.answer(features);
            answer.encode(out);
            if let Answer::Refused(fault) = answer {
                return Err(fault);
            }
            self.greeted = true;
        }
        let refuse = |fault: Fault, out: &mut Vec<u8>| {
            let scope = crate::frame::Scope::Channel;
            Frame::Exception {
                scope,
                fault: fault.clone(),
            }
            .encode(out);
            fault
        };
        let taken = take_frame(bytes.get(used..).unwrap_or(&[]), limits);
        let Some((frame, n)) = taken.map_err(|f| refuse(f, out))? else {
            return Ok((AcceptorStep::Wait, used));
        };
        used += n;
        match frame {
            Frame::Session(request) => Ok((AcceptorStep::Session(request), used)),
            Frame::Join(request) => Ok((AcceptorStep::Join(request), used)),
            other => {
                let fault = violation(&format!("{} came before SESSION or JOIN", other.name()));
                Err(refuse(fault, out))
            }
        }
    }
}

impl Default for Acceptor {
    fn default() -> Self {
        Self::new()
    }
}

fn violation(cause: &str) -> Fault {
    Fault::new(Code::ProtocolViolation, "open the channel", cause)
}
