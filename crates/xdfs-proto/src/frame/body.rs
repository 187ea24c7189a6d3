//! The common interface of frames with a body.

use crate::limits::Limits;
use crate::wire::{DecodeError, Reader, Writer};

/// The body of a frame, including the flags derived from it.
///
/// Every body has exactly one encoding: fields declared absent by a flag are zero, and `decode`
/// refuses anything that `encode` would not write. No field is optional by position.
pub(super) trait Body: Sized {
    /// The flag bits that are defined.
    const FLAGS_DEFINED: u8 = 0;

    /// The flags of a frame with this body.
    fn flags(&self) -> u8 {
        0
    }

    /// Appends the body.
    fn encode(&self, w: &mut Writer<'_>);

    /// Decodes a body; `flags` has only defined bits.
    fn decode(flags: u8, r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError>;
}
