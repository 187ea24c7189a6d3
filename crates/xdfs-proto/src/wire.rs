//! Codec of numbers and byte strings in network order, with all lengths bounded.
//!
//! The codecs of the opening exchange and of the frames are built from `Reader` and `Writer`;
//! `fields` has the types common to several of them, such as faults, digests and attributes. A
//! reader never allocates more than the available bytes, and never panics; a writer can't fail:
//! values that a field can't hold are cut or replaced as documented.

mod fields;

use crate::fault::{Code, Fault};
pub(crate) use fields::{check_mode, check_path, flag, present};

/// Maximum length of a fault's text, and of its path, on the wire, in bytes. Longer ones are cut.
pub const FAULT_TEXT_BYTES_MAX: usize = 1024;
/// Maximum body of a fault on the wire: code, retry, and four texts with their lengths.
pub const FAULT_BYTES_MAX: u32 = 2 + 1 + 4 + 4 * (2 + FAULT_TEXT_BYTES_MAX as u32);

/// Why bytes could not be decoded. Each variant has the field and the violated rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes aren't the magic of xDFS.
    #[error("the first bytes are not those of xDFS")]
    BadMagic,
    /// The frame ends before the field does.
    #[error("the frame ends within {0}")]
    Truncated(&'static str),
    /// Bytes are left after the last field.
    #[error("{0} bytes follow the last field")]
    Trailing(usize),
    /// A field has an invalid value.
    #[error("{0} has no valid value")]
    Invalid(&'static str),
    /// A length is above its limit.
    #[error("{field} of {actual} is over the limit of {limit}")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// The value.
        actual: u64,
        /// The limit.
        limit: u64,
    },
    /// The header of a BLOCK is damaged.
    #[error("the check of a block's header is wrong: its bytes were changed on the way")]
    Damaged,
    /// The kind of the frame is unknown.
    #[error("frame kind {0:#04x} is unknown")]
    UnknownKind(u8),
}

impl DecodeError {
    /// The fault to report to the sending peer.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let code = match self {
            Self::BadMagic => Code::BadMagic,
            Self::TooLarge { .. } => Code::FrameTooLarge,
            Self::Damaged => Code::IntegrityMismatch,
            _ => Code::MalformedFrame,
        };
        Fault::new(code, "understand the other side", self.to_string())
    }
}

/// Checks a length or count against a limit.
pub(crate) fn check_most(
    field: &'static str,
    actual: usize,
    limit: usize,
) -> Result<(), DecodeError> {
    if actual > limit {
        return Err(DecodeError::TooLarge {
            field,
            actual: actual as u64,
            limit: limit as u64,
        });
    }
    Ok(())
}

/// Takes fields off the front of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Number of bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `len` bytes.
    pub(crate) fn take(
        &mut self,
        len: usize,
        field: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(DecodeError::Truncated(field))?;
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Truncated(field))?;
        self.rest = rest;
        Ok(*head)
    }

    /// One byte.
    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(u8::from_be_bytes(self.array(field)?))
    }

    /// Two bytes.
    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    /// Four bytes.
    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array(field)?))
    }

    /// Eight bytes.
    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array(field)?))
    }

    /// Eight bytes, two's complement.
    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array(field)?))
    }

    /// A length of two bytes, at most `max`, and that many bytes.
    pub(crate) fn bytes(
        &mut self,
        max: usize,
        field: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        let len = usize::from(self.u16(field)?);
        check_most(field, len, max)?;
        self.take(len, field)
    }

    /// A path or a name: like [`Self::bytes`], and without a zero byte.
    pub(crate) fn path(&mut self, max: usize, field: &'static str) -> Result<Vec<u8>, DecodeError> {
        let bytes = self.bytes(max, field)?;
        if bytes.contains(&0) {
            Err(DecodeError::Invalid(field))
        } else {
            Ok(bytes.to_vec())
        }
    }

    /// A text: like [`Self::bytes`], in UTF-8 and without control characters, so that it is safe to
    /// display on a terminal.
    pub(crate) fn text(&mut self, max: usize, field: &'static str) -> Result<String, DecodeError> {
        match std::str::from_utf8(self.bytes(max, field)?) {
            Ok(text) if !text.contains(char::is_control) => Ok(text.to_owned()),
            _ => Err(DecodeError::Invalid(field)),
        }
    }

    /// Checks that nothing is left.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }
}

/// Appends fields to a buffer.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// A writer that appends to `out`.
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Raw bytes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// One byte.
    pub(crate) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    /// Two bytes.
    pub(crate) fn u16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }

    /// Four bytes.
    pub(crate) fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    /// Eight bytes.
    pub(crate) fn u64(&mut self, value: u64) {
        self.raw(&value.to_be_bytes());
    }

    /// Eight bytes, two's complement.
    pub(crate) fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    /// A length of two bytes and the bytes, cut at `max` (at most 65,535).
    pub(crate) fn bytes(&mut self, bytes: &[u8], max: usize) {
        let len = u16::try_from(bytes.len().min(max)).unwrap_or(u16::MAX);
        self.u16(len);
        self.raw(&bytes[..usize::from(len)]);
    }

    /// A path or a name. A truncated path would denote another file, so one that the length field
    /// can't hold is replaced by a zero byte, which every decoder refuses.
    pub(crate) fn path(&mut self, path: &[u8]) {
        let path = if path.len() > usize::from(u16::MAX) {
            &[0]
        } else {
            path
        };
        self.bytes(path, usize::from(u16::MAX));
    }

    /// A text, cut at a character boundary so that it takes at most `max` bytes. Control
    /// characters become spaces.
    pub(crate) fn text(&mut self, text: &str, max: usize) {
        let mut clean = String::with_capacity(text.len().min(max));
        for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
            if clean.len() + c.len_utf8() > max {
                break;
            }
            clean.push(c);
        }
        self.bytes(clean.as_bytes(), max);
    }

    /// Overwrites the four bytes at `position`, counted from the start of the buffer, with the
    /// number of bytes written since `body`.
    pub(crate) fn patch_length(&mut self, position: usize, body: usize) {
        let len = u32::try_from(self.out.len().saturating_sub(body)).unwrap_or(u32::MAX);
        if let Some(field) = self.out.get_mut(position..position + 4) {
            field.copy_from_slice(&len.to_be_bytes());
        }
    }

    /// Number of bytes in the buffer.
    pub(crate) fn position(&self) -> usize {
        self.out.len()
    }
}
