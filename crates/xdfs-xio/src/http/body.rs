//! The body of a response, as it arrives.

use std::io::{self, ErrorKind};

use crate::transform::Room;

/// The most bytes of a head, a line of a chunk, or a trailer.
pub(super) const HEAD_BYTES_MAX: usize = 64 << 10;

/// What is left of a body.
#[derive(Debug)]
pub(super) enum Body {
    /// Bytes.
    Left(u64),
    /// Everything until the connection ends.
    UntilEnd,
    /// Chunks (RFC 9112, section 7.1).
    Chunks(Chunk),
}

#[derive(Debug)]
pub(super) enum Chunk {
    /// The line with the size of the next chunk.
    Size,
    /// Bytes left in it.
    Data(u64),
    /// The end of its line.
    Gap,
    /// Lines after the last chunk, with the bytes of those so far.
    Trailer(usize),
    /// Nothing.
    Over,
}

impl Body {
    pub(super) fn chunked() -> Self {
        Self::Chunks(Chunk::Size)
    }

    /// Whether all of it was read.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Left(0) | Self::Chunks(Chunk::Over))
    }

    /// The connection has ended.
    pub(super) fn end(&self) -> io::Result<()> {
        if self.is_over() || matches!(self, Self::UntilEnd) {
            return Ok(());
        }
        let why = "the connection ended within the body";
        Err(io::Error::new(ErrorKind::UnexpectedEof, why))
    }

    /// Decodes from the front of `encoded` and returns the bytes used.
    pub(super) fn decode(&mut self, encoded: &[u8], room: &mut Room<'_, '_>) -> io::Result<usize> {
        let mut used = 0;
        loop {
            let rest = &encoded[used..];
            match self {
                Self::UntilEnd => return Ok(used + room.put(rest)),
                Self::Left(left) => return Ok(used + copy(left, rest, room)),
                Self::Chunks(Chunk::Data(left)) => {
                    used += copy(left, rest, room);
                    if *left > 0 {
                        return Ok(used);
                    }
                    *self = Self::Chunks(Chunk::Gap);
                }
                Self::Chunks(Chunk::Over) => return Ok(used),
                Self::Chunks(chunk) => match chunk.line(rest)? {
                    Some(length) => used += length,
                    None => return Ok(used),
                },
            }
        }
    }
}

fn copy(left: &mut u64, bytes: &[u8], room: &mut Room<'_, '_>) -> usize {
    let most = usize::try_from(*left)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let n = room.put(&bytes[..most]);
    *left -= n as u64;
    n
}

impl Chunk {
    /// Takes a line between the data of chunks, and returns its length; `None` if it isn't
    /// complete.
    fn line(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
            if bytes.len() > HEAD_BYTES_MAX {
                return Err(invalid("a line between chunks is too long"));
            }
            return Ok(None);
        };
        let (line, length) = (&bytes[..end], end + 2);
        *self = match self {
            Self::Size => match size(line)? {
                0 => Self::Trailer(0),
                size => Self::Data(size),
            },
            Self::Gap if line.is_empty() => Self::Size,
            Self::Gap => return Err(invalid("a chunk is longer than its size")),
            Self::Trailer(_) if line.is_empty() => Self::Over,
            Self::Trailer(before) if *before + length <= HEAD_BYTES_MAX => {
                Self::Trailer(*before + length)
            }
            Self::Trailer(_) => return Err(invalid("the trailer is too long")),
            Self::Data(_) | Self::Over => return Ok(None),
        };
        Ok(Some(length))
    }
}

/// The size of a chunk; extensions are ignored.
fn size(line: &[u8]) -> io::Result<u64> {
    let digits = line.split(|b| *b == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits).unwrap_or_default().trim_end();
    let is_hex = !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    let size = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
    size.ok_or_else(|| invalid("the size of a chunk is no number"))
}

pub(super) fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("invalid HTTP: {why}"))
}
