//! The sending direction: content into blocks.

use std::io::{self, ErrorKind, IoSlice};

use super::choice::Choice;
use super::{COMPRESSED, COMPRESSED_HEADER, CONTENT_BYTES_MAX, Codec, STORED, STORED_HEADER};
use crate::stream::Stream;
use crate::transform::{Output, give_back, pooled, write_once};

/// Content from which on a stored block is passed on without a copy.
const DIRECT_BYTES_MIN: usize = 16 << 10;
/// Most blocks that one call compresses, so that it takes a bounded time.
const BLOCKS_MAX: usize = 4;

/// The blocks of one direction.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    out: Output,
    choice: Choice,
    /// Bytes of content, and of the blocks that they became.
    pub(super) content_bytes: u64,
    pub(super) encoded_bytes: u64,
    /// Blocks that were stored.
    pub(super) stored: u64,
}

impl Encoder {
    pub(super) fn write<C: Codec>(
        &mut self,
        codec: &C,
        below: &mut dyn Stream,
        bufs: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        self.out.write(below)?;
        let len = bufs.iter().map(|buf| buf.len()).sum();
        if len >= DIRECT_BYTES_MIN && self.choice.stores(len) {
            return self.pass(below, bufs);
        }
        let mut content = Content::new(bufs);
        for _ in 0..BLOCKS_MAX {
            let is_encoded = self.encode(codec, &mut content);
            // The next call passes the rest on without a copy.
            if !is_encoded || content.left >= DIRECT_BYTES_MIN && self.choice.stores(content.left) {
                break;
            }
        }
        match self.out.write(below) {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            _ => Ok(content.taken),
        }
    }

    pub(super) fn flush(&mut self, below: &mut dyn Stream) -> io::Result<()> {
        self.out.write(below)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Writes a stored block from the caller's own slices. What the stream below doesn't take of
    /// it is kept.
    fn pass(&mut self, below: &mut dyn Stream, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(bufs.len() + 1);
        slices.push(IoSlice::new(&[]));
        let mut len = 0;
        for buf in bufs {
            let part = &buf[..buf.len().min(CONTENT_BYTES_MAX - len)];
            len += part.len();
            slices.push(IoSlice::new(part));
        }
        let header = stored_header(len);
        slices[0] = IoSlice::new(&header);
        let mut written = write_once(below, &slices)?;
        self.choice.stored(len);
        self.count(len, STORED_HEADER + len, true);
        for slice in slices {
            let n = written.min(slice.len());
            written -= n;
            if n < slice.len() {
                self.out.extend(&slice[n..]);
            }
        }
        Ok(len)
    }

    /// Appends the next block, if there is content and room for it.
    fn encode<C: Codec>(&mut self, codec: &C, content: &mut Content<'_>) -> bool {
        let room = self.out.room();
        let len_max = self.choice.len_max().min(content.left);
        if len_max == 0 || room.len() < COMPRESSED_HEADER + len_max + len_max / 8 + 64 {
            // The room of an empty output is sufficient.
            return false;
        }
        let stores = self.choice.stores(content.left);
        let is_trial = self.choice.is_trial();
        let choice = &mut self.choice;
        let (len, encoded) = content.next(len_max, |block| {
            if stores {
                choice.stored(block.len());
            } else {
                let encoded = codec.compress(block, &mut room[COMPRESSED_HEADER..], is_trial);
                if choice.accepts(block.len(), encoded) {
                    return encoded;
                }
            }
            room[..STORED_HEADER].copy_from_slice(&stored_header(block.len()));
            room[STORED_HEADER..][..block.len()].copy_from_slice(block);
            None
        });
        let all = match encoded {
            Some(encoded) => {
                let [a, b, c, _] = size(encoded);
                let [d, e, f, _] = size(len);
                room[..COMPRESSED_HEADER].copy_from_slice(&[COMPRESSED, a, b, c, d, e, f]);
                COMPRESSED_HEADER + encoded
            }
            None => STORED_HEADER + len,
        };
        self.out.advance(all);
        self.count(len, all, encoded.is_none());
        true
    }

    fn count(&mut self, content: usize, encoded: usize, is_stored: bool) {
        self.content_bytes += content as u64;
        self.encoded_bytes += encoded as u64;
        self.stored += u64::from(is_stored);
    }
}

/// The caller's slices, from which blocks are taken.
struct Content<'a> {
    bufs: &'a [IoSlice<'a>],
    /// The place in the first slice.
    offset: usize,
    left: usize,
    taken: usize,
}

impl<'a> Content<'a> {
    fn new(bufs: &'a [IoSlice<'a>]) -> Self {
        Self {
            bufs,
            offset: 0,
            left: bufs.iter().map(|buf| buf.len()).sum(),
            taken: 0,
        }
    }

    /// Passes the next block of up to `len_max` bytes to `make`, contiguous: copied only where it
    /// consists of several slices.
    fn next<T>(&mut self, len_max: usize, make: impl FnOnce(&[u8]) -> T) -> (usize, T) {
        let len = self.left.min(len_max);
        let first = self.part(len);
        if first.len() == len {
            self.advance(len);
            return (len, make(first));
        }
        let mut gathered = pooled();
        let mut at = 0;
        while at < len {
            let part = self.part(len - at);
            gathered[at..at + part.len()].copy_from_slice(part);
            at += part.len();
            self.advance(part.len());
        }
        let made = make(&gathered[..len]);
        give_back(gathered);
        (len, made)
    }

    /// Up to `len` bytes of the first slice that has some.
    fn part(&mut self, len: usize) -> &'a [u8] {
        while let Some((first, rest)) = self.bufs.split_first() {
            let first: &'a [u8] = first;
            if self.offset < first.len() {
                let part = &first[self.offset..];
                return &part[..part.len().min(len)];
            }
            (self.bufs, self.offset) = (rest, 0);
        }
        &[]
    }

    fn advance(&mut self, bytes: usize) {
        self.offset += bytes;
        self.left -= bytes;
        self.taken += bytes;
    }
}

fn stored_header(len: usize) -> [u8; STORED_HEADER] {
    let [a, b, c, _] = size(len);
    [STORED, a, b, c]
}

/// A length; those of blocks take three bytes.
fn size(len: usize) -> [u8; 4] {
    (len as u32).to_le_bytes()
}
