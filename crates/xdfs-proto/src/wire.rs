//! Reading and writing numbers and byte strings in network order, with every length bounded.

use crate::fault::{Code, Fault};

/// Why bytes could not be decoded. Each variant says which field broke which rule.
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
    /// A field has a value that it can't have.
    #[error("{0} has no valid value")]
    Invalid(&'static str),
    /// A length is over its limit.
    #[error("{field} of {actual} is over the limit of {limit}")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// What it says.
        actual: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The kind of the frame isn't known.
    #[error("frame kind {0:#04x} is unknown")]
    UnknownKind(u8),
}

impl DecodeError {
    /// The fault to report to the peer that sent it.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let code = match self {
            Self::BadMagic => Code::BadMagic,
            Self::TooLarge { .. } => Code::FrameTooLarge,
            _ => Code::MalformedFrame,
        };
        Fault::new(code, "decode a frame of the peer", self.to_string())
    }
}
