//! The receiving direction: blocks into content.

use std::io::{self, ErrorKind, IoSliceMut};

use super::{COMPRESSED, COMPRESSED_HEADER, CONTENT_BYTES_MAX, Codec, STORED, STORED_HEADER};
use crate::stream::Stream;
use crate::transform::{Room, give_back, pooled, read_once};

/// Bytes to read where blocks are short.
const READ_BYTES: usize = 64 << 10;
/// Length from which on a stored block is read into the caller's buffers without a copy.
const DIRECT_BYTES_MIN: usize = 16 << 10;
/// Received bytes that are kept in a buffer of their own, so that a peer that stops within a block
/// doesn't occupy a large one.
const SMALL_BYTES: usize = 4 << 10;

/// The place in the sequence of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before or within a header.
    #[default]
    Header,
    /// Within the content of a stored block, with this many bytes to come.
    Stored(usize),
    /// Before the encoded bytes of a compressed block.
    Compressed { encoded: usize, content: usize },
}

/// The blocks of one direction.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    place: Place,
    input: Input,
    /// Content of a block that didn't fit into the reader's buffers, and the number of bytes of it
    /// already read.
    rest: Vec<u8>,
    rest_at: usize,
    /// The last block was a stored one that is worth a read of its own.
    was_direct: bool,
}

impl Decoder {
    pub(super) fn read<C: Codec>(
        &mut self,
        codec: &C,
        below: &mut dyn Stream,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(0);
        }
        let result = self.read_on(codec, below, bufs);
        self.input.settle();
        result
    }

    /// Memory occupied by received bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.input.buffer.len() + self.rest.capacity()
    }

    fn read_on<C: Codec>(
        &mut self,
        codec: &C,
        below: &mut dyn Stream,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        loop {
            let mut room = Room::new(bufs);
            let result = self.decode(codec, &mut room);
            if room.filled() > 0 {
                // An error comes again.
                return Ok(room.filled());
            }
            let missing = result?;
            if let Place::Stored(left) = self.place {
                return self.read_stored(left, below, bufs);
            }
            if self.input.fill(below, missing)? == 0 {
                return if self.place == Place::Header && self.input.held().is_empty() {
                    Ok(0)
                } else {
                    Err(ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// Decodes what was received as far as there is room. Returns the number of bytes to read
    /// next; of a stored block no byte is left then.
    fn decode<C: Codec>(&mut self, codec: &C, room: &mut Room<'_, '_>) -> io::Result<usize> {
        loop {
            if self.rest_at < self.rest.len() {
                self.rest_at += room.put(&self.rest[self.rest_at..]);
                if self.rest_at < self.rest.len() {
                    return Ok(0);
                }
                (self.rest, self.rest_at) = (Vec::new(), 0);
            }
            if room.left() == 0 {
                return Ok(0);
            }
            let held = self.input.held();
            match self.place {
                Place::Header => match header::<C>(held)? {
                    Some((place, used)) => {
                        self.place = place;
                        self.input.consume(used);
                        self.was_direct =
                            matches!(place, Place::Stored(len) if len >= DIRECT_BYTES_MIN);
                    }
                    None if self.was_direct => return Ok(COMPRESSED_HEADER - held.len()),
                    None => return Ok(READ_BYTES),
                },
                Place::Stored(_) if held.is_empty() => return Ok(0),
                Place::Stored(left) => {
                    let n = room.put(&held[..left.min(held.len())]);
                    self.input.consume(n);
                    self.place = stored(left - n);
                }
                Place::Compressed { encoded, content } => {
                    let Some(bytes) = held.get(..encoded) else {
                        return Ok((encoded - held.len() + COMPRESSED_HEADER).max(READ_BYTES));
                    };
                    let fits = room.slice().len() >= content;
                    if fits {
                        expand(codec, bytes, &mut room.slice()[..content])?;
                        room.advance(content);
                    } else {
                        let mut rest = vec![0; content];
                        expand(codec, bytes, &mut rest)?;
                        self.rest = rest;
                    }
                    self.input.consume(encoded);
                    self.place = Place::Header;
                }
            }
        }
    }

    /// Reads content of a stored block into the caller's buffers, and the next header with its
    /// last byte.
    fn read_stored(
        &mut self,
        left: usize,
        below: &mut dyn Stream,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let mut tail = [0; COMPRESSED_HEADER];
        let mut slices: Vec<IoSliceMut<'_>> = Vec::with_capacity(bufs.len() + 1);
        let mut asked = 0;
        for buf in bufs.iter_mut() {
            let n = buf.len().min(left - asked);
            asked += n;
            slices.push(IoSliceMut::new(&mut buf[..n]));
        }
        if asked == left {
            slices.push(IoSliceMut::new(&mut tail));
        }
        let n = read_once(below, &mut slices)?;
        if n == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let content = n.min(asked);
        self.place = stored(left - content);
        self.input.put(&tail[..n - content]);
        Ok(content)
    }
}

fn stored(left: usize) -> Place {
    match left {
        0 => Place::Header,
        left => Place::Stored(left),
    }
}

/// Reads the header at the front of `held`, if it is complete, and returns its length too.
fn header<C: Codec>(held: &[u8]) -> io::Result<Option<(Place, usize)>> {
    let Some(kind) = held.first() else {
        return Ok(None);
    };
    let place = match *kind {
        STORED => {
            let Some(&[a, b, c]) = held.get(1..STORED_HEADER) else {
                return Ok(None);
            };
            let len = size::<C>([a, b, c], CONTENT_BYTES_MAX)?;
            (Place::Stored(len), STORED_HEADER)
        }
        COMPRESSED => {
            let Some(&[a, b, c, d, e, f]) = held.get(1..COMPRESSED_HEADER) else {
                return Ok(None);
            };
            let content = size::<C>([d, e, f], CONTENT_BYTES_MAX)?;
            let encoded = size::<C>([a, b, c], content - 1)?;
            (Place::Compressed { encoded, content }, COMPRESSED_HEADER)
        }
        kind => return Err(invalid::<C>(&format!("there are no blocks of kind {kind}"))),
    };
    Ok(Some(place))
}

fn size<C: Codec>([a, b, c]: [u8; 3], max: usize) -> io::Result<usize> {
    let len = u32::from_le_bytes([a, b, c, 0]) as usize;
    if (1..=max).contains(&len) {
        Ok(len)
    } else {
        let why = format!("a block declares {len} bytes where 1 to {max} are possible");
        Err(invalid::<C>(&why))
    }
}

/// Decompresses a block into `room`, which it has to fill.
fn expand<C: Codec>(codec: &C, encoded: &[u8], room: &mut [u8]) -> io::Result<()> {
    if codec.decompress(encoded, room) == Some(room.len()) {
        Ok(())
    } else {
        let why = format!("a compressed block doesn't hold {} bytes", room.len());
        Err(invalid::<C>(&why))
    }
}

fn invalid<C: Codec>(why: &str) -> io::Error {
    let name = C::NAME;
    let why = format!("the peer sent no valid {name} stream: {why}; is its stack the same?");
    io::Error::new(ErrorKind::InvalidData, why)
}

/// Received bytes.
#[derive(Debug, Default)]
struct Input {
    /// Empty, a small buffer of exactly the held bytes, or a pooled one.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    fn held(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
    }

    /// Replaces the held bytes, of which there are none.
    fn put(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            give_back(std::mem::take(&mut self.buffer));
            self.buffer = bytes.into();
            (self.start, self.end) = (0, bytes.len());
        }
    }

    /// Reads up to `len` bytes more, once. A pooled buffer has room for a whole block and the next
    /// header.
    fn fill(&mut self, below: &mut dyn Stream, len: usize) -> io::Result<usize> {
        if self.buffer.len() - self.end < len {
            let mut buffer = pooled();
            let held = self.held();
            let n = held.len();
            buffer[..n].copy_from_slice(held);
            give_back(std::mem::replace(&mut self.buffer, buffer));
            (self.start, self.end) = (0, n);
        }
        let end = self.buffer.len().min(self.end + len);
        let n = read_once(
            below,
            &mut [IoSliceMut::new(&mut self.buffer[self.end..end])],
        )?;
        self.end += n;
        Ok(n)
    }

    /// Releases a buffer that holds little.
    fn settle(&mut self) {
        let held = self.held();
        let len = held.len();
        if len <= SMALL_BYTES && self.buffer.len() > SMALL_BYTES || len == 0 {
            let small = held.into();
            give_back(std::mem::replace(&mut self.buffer, small));
            (self.start, self.end) = (0, len);
        }
    }
}
