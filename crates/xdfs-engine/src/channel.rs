//! One channel of a session: its stream, the block being read, and pending output.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::digest::BlockHasher;
use xdfs_proto::frame::{
    BLOCK_HEADER_BYTES, BlockHeader, Exception, Frame, JoinRequest, Level, Scope,
};
use xdfs_proto::handshake::{Initiator, Purpose};
use xdfs_proto::{ChannelIndex, Fault};
use xdfs_xio::{Protected, Protection, Stream};

use crate::pool::{BlockMemory, Buffer, Memory};
use crate::security::PeerGuard;

/// Bytes read at once where no payload is expected. Small, so that little payload is read into the
/// wrong place and a thousand idle channels cost little.
const INPUT_BYTES: usize = 512;
/// Bytes read beyond a payload: the header of the block that most likely follows.
const LOOKAHEAD_BYTES: usize = BLOCK_HEADER_BYTES;

/// State of a channel's opening.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The transport and its protection are being opened.
    Connecting,
    /// They are open; the opening exchange begins when the session has its secret.
    Connected,
    /// The opening exchange is in progress.
    Opening(Initiator),
    /// It carries frames.
    Open,
}

/// A block whose payload is arriving.
#[derive(Debug)]
pub(crate) struct IncomingBlock {
    pub(crate) header: BlockHeader,
    /// `None` if the payload is dropped.
    pub(crate) hasher: Option<BlockHasher>,
    /// Payload bytes not yet read from the stream.
    pub(crate) remaining: usize,
    /// The sink accepts bytes in order only, so nothing is passed on before the whole block is
    /// verified.
    pub(crate) whole: bool,
    /// Payload bytes given to the storage, or dropped.
    pub(crate) done: usize,
    /// The piece is the memory of the pack, which consists of this one block.
    pub(crate) lent: bool,
    /// The piece that is being filled.
    pub(crate) piece: Option<(Buffer, usize)>,
}

/// Payload to be sent.
#[derive(Debug)]
pub(crate) enum Payload {
    /// In a buffer of the pool.
    Pooled(Buffer),
    /// In memory of its own, filled by a feeder.
    Owned(Memory),
    /// In memory that the reader of a slow source has filled.
    Read(BlockMemory),
    /// One block of a uniform source, shared by all channels.
    Shared(Arc<[u8]>),
    /// In the source's memory, from this offset on.
    Source(Arc<Vec<u8>>, usize),
}

impl Payload {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Pooled(b) => b,
            Self::Owned(b) => &b.bytes,
            Self::Read(b) => b.filled(),
            Self::Shared(b) => b,
            Self::Source(b, start) => b.get(*start..).unwrap_or_default(),
        }
    }

    /// Memory that a stream may hold longer than the block, and where the payload begins in it.
    fn shared(&self) -> Option<(&Arc<Vec<u8>>, usize)> {
        match self {
            Self::Read(b) => Some(b.shared()),
            Self::Source(b, start) => Some((b, *start)),
            Self::Pooled(_) | Self::Owned(_) | Self::Shared(_) => None,
        }
    }
}

/// A block that is being written.
#[derive(Debug)]
pub(crate) struct OutgoingBlock {
    header: [u8; BLOCK_HEADER_BYTES],
    payload: Payload,
    len: usize,
    /// The payload is sent unencrypted.
    clear: bool,
    /// Bytes of header and payload that were written.
    written: usize,
}

impl OutgoingBlock {
    /// What is left of the payload, if a stream may hold its memory longer than the block.
    fn shared(&self) -> Option<(&Arc<Vec<u8>>, Range<usize>)> {
        let (memory, start) = self.payload.shared()?;
        let written = self.written.saturating_sub(BLOCK_HEADER_BYTES);
        let range = start + written..start + self.len;
        Some((memory, range)).filter(|(_, range)| !range.is_empty())
    }
}

/// The result of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// All pending bytes are written; holds the payload of a finished block, if there was one.
    All(Option<Payload>),
    /// A block is finished, and control frames are pending.
    Block(Option<Payload>),
    /// The stream takes no more for now.
    Blocked,
}

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) index: ChannelIndex,
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) phase: Phase,
    pub(crate) peer: String,
    /// Blocks carry check values, because the stack does not protect their integrity.
    check: bool,
    /// The peer's payload may be unencrypted, and so is this side's, respectively.
    pub(crate) clear_in: bool,
    clear_out: bool,
    /// The acceptor takes unencrypted payload (initiator).
    pub(crate) takes_clear: bool,
    /// The level to announce before the next block.
    level_due: Option<Level>,
    /// Announcements of unencrypted payload that the peer has not answered yet.
    clear_asked: u32,
    /// Its protection, once it is open.
    pub(crate) protection: Option<Protection>,
    /// Its share of the user's channels (acceptor).
    pub(crate) guard: Option<PeerGuard>,
    pub(crate) readable: bool,
    /// The last read ended in the middle of a frame.
    pub(crate) awaits_rest: bool,
    pub(crate) writable: bool,
    pub(crate) read_queued: bool,
    pub(crate) write_queued: bool,
    pub(crate) idle_queued: bool,
    /// The options for a long path are set, or can't be.
    pub(crate) suits_path: bool,
    /// It waits for a buffer of the pool, or for the memory of a pack.
    pub(crate) starved: bool,
    /// It waits for the rate limit.
    pub(crate) throttled: bool,
    /// When it was opened, and when the first byte of the incomplete frame arrived.
    pub(crate) opened_at: Duration,
    pub(crate) frame_since: Option<Duration>,
    /// When the last byte arrived.
    pub(crate) heard_at: Duration,
    pub(crate) input: Vec<u8>,
    pub(crate) incoming: Option<IncomingBlock>,
    pub(crate) outgoing: Option<OutgoingBlock>,
    control: Vec<u8>,
    control_written: usize,
    /// Bytes of frames that were sent before the channel was open.
    ahead: usize,
}

impl Channel {
    pub(crate) fn new(
        index: ChannelIndex,
        stream: Box<dyn Stream>,
        phase: Phase,
        now: Duration,
    ) -> Self {
        Self {
            index,
            peer: stream.peer(),
            check: !stream.capabilities().integrity,
            clear_in: false,
            clear_out: false,
            takes_clear: false,
            level_due: None,
            clear_asked: 0,
            protection: None,
            guard: None,
            stream,
            phase,
            readable: false,
            awaits_rest: false,
            writable: false,
            read_queued: false,
            write_queued: false,
            idle_queued: false,
            suits_path: false,
            starved: false,
            throttled: false,
            opened_at: now,
            frame_since: None,
            heard_at: now,
            input: Vec::new(),
            incoming: None,
            outgoing: None,
            control: Vec::new(),
            control_written: 0,
            ahead: 0,
        }
    }

    /// Whether it can take the next block.
    pub(crate) fn takes_block(&self) -> bool {
        self.is_open() && self.writable && !self.has_pending()
    }

    /// Whether the opening exchange hasn't begun.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Connected)
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Begins the opening exchange, once the transport and its protection are open. `yields` is for
    /// the channel that asks for the session.
    pub(crate) fn greet(&mut self, purpose: Purpose, yields: bool) {
        self.protection = self.stream.protection();
        let mut hello = Vec::new();
        let initiator = match &self.protection {
            None => Initiator::new(purpose, yields, &mut hello),
            Some(protection) => {
                let purpose = match purpose {
                    Purpose::Join(join) => Purpose::Join(JoinRequest {
                        secret: join.secret.bound_to(&protection.binding, join.channel),
                        ..join
                    }),
                    other => other,
                };
                Initiator::protected(purpose, yields, &mut hello)
            }
        };
        self.phase = Phase::Opening(initiator);
        self.push_bytes(&hello);
    }

    /// Appends a control frame to the pending bytes.
    pub(crate) fn push(&mut self, frame: &Frame) {
        frame.encode(&mut self.control);
    }

    /// Appends a control frame behind the opening exchange, before that is answered.
    pub(crate) fn push_ahead(&mut self, frame: &Frame) {
        let before = self.control.len();
        self.push(frame);
        self.ahead += self.control.len() - before;
    }

    /// Bytes of the frames that were appended so.
    pub(crate) fn sent_ahead(&self) -> usize {
        self.ahead
    }

    /// Appends raw bytes of the opening exchange.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.control.extend_from_slice(bytes);
    }

    /// Pending bytes of control frames.
    pub(crate) fn control_pending(&self) -> usize {
        self.control.len() - self.control_written
    }

    /// Whether a block is sent unencrypted, if it may be.
    pub(crate) fn is_clear(&self, may_be_clear: bool) -> bool {
        self.clear_out && may_be_clear
    }

    /// Whether a block that is sent carries a check value; `clear` says whether it is unencrypted.
    pub(crate) fn checks(&self, clear: bool) -> bool {
        self.check || clear
    }

    /// Whether the stack protects the integrity of headers.
    pub(crate) fn guards_headers(&self) -> bool {
        !self.check
    }

    /// Whether the block with this `header` carries a check value.
    pub(crate) fn is_checked(&self, header: &BlockHeader) -> bool {
        self.check || header.clear
    }

    /// Announces the level of protection of the next blocks.
    pub(crate) fn set_level(&mut self, level: Level) {
        self.level_due = Some(level);
    }

    /// Whether the peer's announcement of unencrypted payload answers one of this side.
    pub(crate) fn take_level_answer(&mut self) -> bool {
        let asked = self.clear_asked;
        self.clear_asked = asked.saturating_sub(1);
        asked > 0
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.outgoing.is_some()
            || self.level_due.is_some()
            || self.control_pending() > 0
            || self.stream.has_unflushed()
    }

    /// Takes the block that is being written, when the channel closes.
    pub(crate) fn take_outgoing(&mut self) -> Option<Payload> {
        self.outgoing.take().map(|o| o.payload)
    }

    /// Starts to send a block, when no other one is being sent.
    pub(crate) fn begin_block(&mut self, header: &BlockHeader, payload: Payload) {
        debug_assert!(self.outgoing.is_none(), "one block at a time");
        self.outgoing = Some(OutgoingBlock {
            header: header.encode(),
            clear: header.clear,
            payload,
            len: header.length as usize,
            written: 0,
        });
    }

    /// Writes the pending bytes, if possible in one call of the stream: first the rest of a begun
    /// block, then control frames, then a new block.
    pub(crate) fn write(&mut self) -> io::Result<Written> {
        loop {
            if self.outgoing.is_none()
                && let Some(level) = self.level_due.take()
            {
                self.push(&Frame::Protect(level));
                self.clear_out = level == Level::Clear;
                self.clear_asked += u32::from(self.clear_out);
            }
            let control = &self.control[self.control_written..];
            let clear = self.outgoing.as_ref().is_some_and(|o| o.clear);
            let begun = self.outgoing.as_ref().is_some_and(|o| o.written > 0);
            let (header, payload) = self.outgoing.as_ref().map_or((&[][..], &[][..]), |o| {
                let payload = &o.payload.bytes()[..o.len];
                match o.written.checked_sub(BLOCK_HEADER_BYTES) {
                    Some(n) => (&[][..], &payload[n..]),
                    None => (&o.header[o.written..], payload),
                }
            });
            let block_len = header.len() + payload.len();
            if control.is_empty() && block_len == 0 {
                return match self.stream.flush() {
                    Ok(()) => Ok(Written::All(self.take_outgoing())),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Written::Blocked),
                    Err(e) => Err(e),
                };
            }
            let slices = if begun {
                [
                    IoSlice::new(header),
                    IoSlice::new(payload),
                    IoSlice::new(control),
                ]
            } else {
                [
                    IoSlice::new(control),
                    IoSlice::new(header),
                    IoSlice::new(payload),
                ]
            };
            let result = match (clear && !payload.is_empty(), begun) {
                (false, _) => {
                    let first = if begun { &slices[..1] } else { &slices[..2] };
                    match self.outgoing.as_ref().and_then(OutgoingBlock::shared) {
                        Some((memory, range)) => match self.stream.lend(first, memory, range) {
                            Ok(None) => self.stream.write_vectored(&slices),
                            lent => lent.map(Option::unwrap_or_default),
                        },
                        None => self.stream.write_vectored(&slices),
                    }
                }
                // A run of unencrypted payload may take a bounded prefix along, and control frames
                // are not bounded.
                (true, false) if !control.is_empty() => self.stream.write_vectored(&slices[..1]),
                (true, false) => protected(&mut *self.stream)
                    .and_then(|stream| stream.write_cleartext(&slices[1..2], payload)),
                (true, true) => protected(&mut *self.stream)
                    .and_then(|stream| stream.write_cleartext(&[], payload)),
            };
            let n = match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Written::Blocked),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let control_len = control.len();
            let (to_block, to_control) = if begun {
                (n.min(block_len), n.saturating_sub(block_len))
            } else {
                (n.saturating_sub(control_len), n.min(control_len))
            };
            self.control_written += to_control;
            if self.control_written == self.control.len() {
                self.control.clear();
                self.control_written = 0;
                if self.control.capacity() > 4 * INPUT_BYTES {
                    self.control.shrink_to(INPUT_BYTES);
                }
            }
            if let Some(outgoing) = &mut self.outgoing {
                outgoing.written += to_block;
                // The buffer stays in use while a transform holds a part of the block, since the
                // pool bounds the bytes in transforms too.
                if outgoing.written == BLOCK_HEADER_BYTES + outgoing.len
                    && !self.stream.has_unflushed()
                {
                    let payload = self.outgoing.take().map(|o| o.payload);
                    return Ok(if self.control_pending() > 0 {
                        Written::Block(payload)
                    } else {
                        Written::All(payload)
                    });
                }
            }
        }
    }

    /// Sends the peer the reason and closes the channel. Within a block no frame can be sent.
    pub(crate) fn take_leave(&mut self, fault: &Fault) {
        if self.outgoing.is_none() {
            let (scope, fault) = (Scope::Channel, fault.clone());
            self.push(&Frame::Exception(Exception { scope, fault }));
            // If the frame can't be written, the peer sees the end only.
            let _ = self.write();
        }
        let _ = self.stream.close();
    }

    /// Reads frames, and whatever follows them. `Ok(0)` is the end of the stream.
    pub(crate) fn read_input(&mut self, need: usize) -> io::Result<usize> {
        let have = self.input.len();
        self.input
            .resize(have + INPUT_BYTES.max(need.saturating_sub(have)), 0);
        let result = self
            .stream
            .read_vectored(&mut [IoSliceMut::new(&mut self.input[have..])]);
        self.input.truncate(have + *result.as_ref().unwrap_or(&0));
        result
    }

    /// Reads at most `limit` bytes of payload into the current piece, and the next header into the
    /// input. Returns the number of payload bytes, and whether the read was complete.
    pub(crate) fn read_payload(&mut self, limit: usize) -> io::Result<Option<(usize, bool)>> {
        let Some(IncomingBlock {
            header,
            remaining,
            piece: Some((buffer, filled)),
            ..
        }) = &mut self.incoming
        else {
            return Ok(None);
        };
        let mut lookahead = [0; LOOKAHEAD_BYTES];
        let want = (*remaining).min(buffer.len() - *filled).min(limit);
        if header.clear {
            let mut bufs = [IoSliceMut::new(&mut buffer[*filled..*filled + want])];
            let n = protected(&mut *self.stream)?.read_cleartext(&mut bufs)?;
            *filled += n;
            *remaining -= n;
            return Ok(Some((n, n == want)));
        }
        let ahead = if want == *remaining {
            LOOKAHEAD_BYTES
        } else {
            0
        };
        let n = self.stream.read_vectored(&mut [
            IoSliceMut::new(&mut buffer[*filled..*filled + want]),
            IoSliceMut::new(&mut lookahead[..ahead]),
        ])?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let payload = n.min(want);
        *filled += payload;
        *remaining -= payload;
        self.input.extend_from_slice(&lookahead[..n - payload]);
        Ok(Some((payload, payload == want)))
    }

    /// Takes the current piece if it is empty.
    pub(crate) fn take_empty_piece(&mut self) -> Option<Buffer> {
        let incoming = self.incoming.as_mut().filter(|i| !i.lent)?;
        incoming
            .piece
            .take_if(|(_, filled)| *filled == 0)
            .map(|(buffer, _)| buffer)
    }

    /// Removes `n` parsed bytes from the front of the input.
    pub(crate) fn consume(&mut self, n: usize) {
        self.input.drain(..n);
        if self.input.is_empty() && self.input.capacity() > 8 * INPUT_BYTES {
            self.input = Vec::new();
        }
    }
}

/// The interface of a stream for unencrypted payload.
fn protected(stream: &mut dyn Stream) -> io::Result<&mut dyn Protected> {
    let protected = stream.protected();
    protected.ok_or_else(|| io::ErrorKind::Unsupported.into())
}
