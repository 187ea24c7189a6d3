//! What every frame with a body has in common.

use crate::limits::Limits;
use crate::wire::{DecodeError, Reader, Writer};

/// The body of a frame, and those of its flags that follow from it.
///
/// Every body has exactly one encoding: fields that a flag declares absent are zero, and `decode`
/// refuses what `encode` would not write. Nothing is optional by position.
pub(super) trait Body: Sized {
    /// The flag bits that are defined.
    const FLAGS_DEFINED: u8 = 0;

    /// The flags that a frame with this body has.
    fn flags(&self) -> u8 {
        0
    }

    /// Appends the body.
    fn encode(&self, w: &mut Writer<'_>);

    /// Reads a body; `flags` has defined bits only.
    fn decode(flags: u8, r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError>;
}
