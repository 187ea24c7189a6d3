//! Reads of many ranges of a file in one flight, as a future, without a thread or an open file.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use xdfs_proto::file::{
    DATA_BYTES_MAX, EXTENTS_MAX, Extent, FileAnswer, FileCall, FileFlags, FileOwner,
};
use xdfs_proto::path::{Answer, Attributes, Call, FileKind};
use xdfs_proto::{Code, Fault};

use crate::paths::{Caller, PendingCall};

/// Calls in flight: half of the slots that a session has for them, so that others get through.
const CALLS_MAX: usize = 64;

/// A range of a file in bytes, which is clipped to the file. Negative numbers count from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The first byte.
    pub start: i64,
    /// The byte after the last one; `None` for the end of the file.
    pub end: Option<i64>,
}

/// The ranges of a file that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRanges {
    /// The attributes of the file when it was opened.
    pub attributes: Attributes,
    /// The bytes of each range, in their order. One is short only where the file has become shorter
    /// meanwhile.
    pub ranges: Vec<Vec<u8>>,
}

/// Ranges that are being read, from [`Client::read_ranges`](crate::Client::read_ranges). It is a
/// future for any asynchronous runtime: polling never blocks. Polled again after its end it fails
/// with [`Code::Internal`]. Dropping it ends the reading.
pub struct PendingRanges {
    caller: Caller,
    path: Vec<u8>,
    wanted: Vec<FileRange>,
    state: State,
}

enum State {
    Opening(PendingCall),
    Reading(Reading),
    Ended,
}

struct Reading {
    handle: u32,
    attributes: Attributes,
    ranges: Vec<Vec<u8>>,
    /// The file has ended within the range.
    is_cut: Vec<bool>,
    rest: VecDeque<Piece>,
    calls: VecDeque<(Vec<Piece>, PendingCall)>,
}

/// A part of a range that isn't requested yet, or one extent of a call.
#[derive(Clone, Copy, Debug)]
struct Piece {
    range: usize,
    start: u64,
    end: u64,
}

impl PendingRanges {
    /// Opens the file.
    ///
    /// # Errors
    /// The session has ended, or there are no random numbers.
    pub(crate) fn start(
        caller: Caller,
        path: &[u8],
        wanted: Vec<FileRange>,
    ) -> Result<Self, Fault> {
        let mut owner = [0; 16];
        getrandom::fill(&mut owner).map_err(|error| {
            Fault::new(Code::Internal, "get a random number", error.to_string())
        })?;
        let open = FileCall::Open {
            path: path.to_vec(),
            flags: FileFlags {
                read: true,
                ..FileFlags::default()
            },
            mode: None,
            owner: FileOwner(owner),
            identity: None,
        };
        let state = State::Opening(caller.start_pending(Call::File(open))?);
        Ok(Self {
            caller,
            path: path.to_vec(),
            wanted,
            state,
        })
    }

    /// Begins to read the file that was opened.
    fn opened(&self, answer: Answer) -> Result<Reading, Fault> {
        let Answer::File(FileAnswer::Opened {
            handle, attributes, ..
        }) = answer
        else {
            return Err(unexpected());
        };
        let size = attributes.size;
        let rest = self.wanted.iter().enumerate().map(|(range, wanted)| Piece {
            range,
            start: wanted.start.clipped(size),
            end: wanted.end.map_or(size, |end| end.clipped(size)),
        });
        let reading = Reading {
            handle,
            ranges: vec![Vec::new(); self.wanted.len()],
            is_cut: vec![false; self.wanted.len()],
            rest: rest.filter(|piece| piece.start < piece.end).collect(),
            calls: VecDeque::new(),
            attributes,
        };
        if reading.attributes.kind != FileKind::File {
            reading.close(&self.caller);
            let fault = Fault::new(Code::NotRegularFile, "read", "it is not a regular file");
            return Err(fault.path(&self.path));
        }
        Ok(reading)
    }
}

impl Reading {
    /// Asks for as much as may be in flight.
    fn request(&mut self, caller: &Caller) -> Result<(), Fault> {
        while self.calls.len() < CALLS_MAX && !self.rest.is_empty() {
            let mut pieces = Vec::new();
            let mut room = DATA_BYTES_MAX as u64;
            while let Some(piece) = self.rest.front_mut().filter(|_| room > 0) {
                if pieces.len() == EXTENTS_MAX {
                    break;
                }
                let end = piece.end.min(piece.start.saturating_add(room));
                pieces.push(Piece { end, ..*piece });
                room -= end - piece.start;
                piece.start = end;
                if piece.start == piece.end {
                    self.rest.pop_front();
                }
            }
            let extents = pieces.iter().map(|piece| Extent {
                offset: piece.start,
                length: u32::try_from(piece.end - piece.start).unwrap_or(u32::MAX),
            });
            let call = caller.start_pending(Call::File(FileCall::Read {
                handle: self.handle,
                locked: false,
                extents: extents.collect(),
            }))?;
            self.calls.push_back((pieces, call));
        }
        Ok(())
    }

    /// Adds the bytes of a call, which are in the order of the ranges.
    fn add(&mut self, pieces: &[Piece], answer: Answer) -> Result<(), Fault> {
        let Answer::File(FileAnswer::Data { lengths, bytes }) = answer else {
            return Err(unexpected());
        };
        let mut rest = &bytes[..];
        for (piece, length) in pieces.iter().zip(lengths) {
            let split = rest.split_at_checked(length as usize);
            let (now, later) = split.ok_or_else(unexpected)?;
            rest = later;
            if !self.is_cut[piece.range] {
                self.ranges[piece.range].extend_from_slice(now);
            }
            self.is_cut[piece.range] |= u64::from(length) < piece.end - piece.start;
        }
        Ok(())
    }

    /// Closes the file, without waiting for that.
    fn close(&self, caller: &Caller) {
        let handle = self.handle;
        // The end of a session closes its files.
        let _ = caller.start_pending(Call::File(FileCall::Close { handle }));
    }
}

/// A number of [`FileRange`].
trait Clipped {
    fn clipped(self, size: u64) -> u64;
}

impl Clipped for i64 {
    fn clipped(self, size: u64) -> u64 {
        match u64::try_from(self) {
            Ok(at) => at.min(size),
            Err(_) => size.saturating_sub(self.unsigned_abs()),
        }
    }
}

fn unexpected() -> Fault {
    let cause = "the answer belongs to another call";
    Fault::new(Code::Internal, "read", cause)
}

impl PendingRanges {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        loop {
            match &mut self.state {
                State::Opening(call) => {
                    let answer = ready!(Pin::new(call).poll(context))?;
                    self.state = State::Reading(self.opened(answer)?);
                }
                State::Reading(reading) => {
                    reading.request(&self.caller)?;
                    let Some((pieces, call)) = reading.calls.front_mut() else {
                        return Poll::Ready(Ok(()));
                    };
                    let answer = ready!(Pin::new(call).poll(context));
                    let pieces = std::mem::take(pieces);
                    reading.calls.pop_front();
                    reading.add(&pieces, answer?)?;
                }
                State::Ended => {
                    let cause = "its result was returned already";
                    return Poll::Ready(Err(Fault::new(Code::Internal, "read", cause)));
                }
            }
        }
    }
}

impl Future for PendingRanges {
    type Output = Result<FileRanges, Fault>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let own = self.get_mut();
        let result = ready!(own.poll_end(context));
        let ended = std::mem::replace(&mut own.state, State::Ended);
        let State::Reading(reading) = ended else {
            return Poll::Ready(Err(result.err().unwrap_or_else(unexpected)));
        };
        reading.close(&own.caller);
        Poll::Ready(match result {
            Ok(()) => Ok(FileRanges {
                attributes: reading.attributes,
                ranges: reading.ranges,
            }),
            Err(fault) if fault.path.is_empty() => Err(fault.path(&own.path)),
            Err(fault) => Err(fault),
        })
    }
}

impl Drop for PendingRanges {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Opening(call) => Arc::new(Closing {
                caller: self.caller.clone(),
                call: Mutex::new(Some(call)),
            })
            .wake(),
            State::Reading(reading) => reading.close(&self.caller),
            State::Ended => {}
        }
    }
}

/// Closes a file whose opening isn't answered yet, once it is.
struct Closing {
    caller: Caller,
    call: Mutex<Option<PendingCall>>,
}

impl Wake for Closing {
    fn wake(self: Arc<Self>) {
        let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(opening) = call.as_mut() else {
            return;
        };
        let waker = Waker::from(Arc::clone(&self));
        let answer = Pin::new(opening).poll(&mut Context::from_waker(&waker));
        if let Poll::Ready(answer) = answer {
            *call = None;
            if let Ok(Answer::File(FileAnswer::Opened { handle, .. })) = answer {
                // The end of a session closes its files.
                let close = Call::File(FileCall::Close { handle });
                let _ = self.caller.start_pending(close);
            }
        }
    }
}

impl fmt::Debug for PendingRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRanges")
            .field("path", &self.path.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}
