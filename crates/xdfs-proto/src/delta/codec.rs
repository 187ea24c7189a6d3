//! The codec of calls about versions of a file, and of their answers.

use super::{
    PIECES_MAX, SIGNATURES_MAX, SIGNED_BYTES_MAX, STRONG_BYTES, Seed, SeedPiece, Signature,
    Signatures, is_block,
};
use crate::digest::DigestKind;
use crate::id::SourceTag;
use crate::limits::Limits;
use crate::wire::{DecodeError, Reader, Writer, check_most, check_path};

/// Size of a piece without its state.
const PIECE_BYTES: usize = 8 + 8 + 4;
/// Size of a block's sums.
const SUMS_BYTES: usize = 4 + STRONG_BYTES;

/// Size of the state of a range that doesn't start at 0.
fn state_bytes(kind: DigestKind) -> usize {
    match kind {
        DigestKind::None => 0,
        DigestKind::Crc64Nvme => 8,
        DigestKind::Blake3 => 32,
    }
}

impl Seed {
    /// Checks the rules of a call, except for those of paths.
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        check_most("number of pieces", self.pieces.len(), PIECES_MAX)?;
        self.broken_rule()
            .map_or(Ok(()), |rule| Err(DecodeError::Invalid(rule)))
    }

    /// Appends all fields except the options.
    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.raw(&self.tag.0);
        w.u64(self.length);
        w.digest_kind(self.digest);
        w.u32(self.block_bytes);
        w.path(&self.from);
        w.path(&self.to);
        w.u16(u16::try_from(self.pieces.len()).unwrap_or(u16::MAX));
        for piece in &self.pieces {
            w.u64(piece.offset);
            w.u64(piece.from_offset);
            w.u32(piece.length);
            w.digest_state(piece.offset, &piece.state);
        }
    }

    /// Decodes what [`Self::encode`] wrote. The caller sets the options, and checks it.
    pub(crate) fn decode(r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        let tag = SourceTag(r.array("tag of the source")?);
        let length = r.u64("length")?;
        let digest = r.digest_kind()?;
        let block_bytes = r.u32("block size")?;
        let from = r.path(limits.path_bytes_max, "path")?;
        let to = r.path(limits.path_bytes_max, "path")?;
        check_path(&to, limits.path_bytes_max, "path")?;
        let count = usize::from(r.u16("number of pieces")?);
        check_most("number of pieces", count, PIECES_MAX)?;
        // The peer chooses the count: reserve no more than the available bytes can hold.
        let mut pieces = Vec::with_capacity(count.min(r.remaining() / PIECE_BYTES));
        for _ in 0..count {
            let offset = r.u64("piece")?;
            pieces.push(SeedPiece {
                offset,
                from_offset: r.u64("piece")?,
                length: r.u32("length of a piece")?,
                state: r.digest_state(digest, offset)?,
            });
        }
        Ok(Self {
            from,
            to,
            overwrite: false,
            sparse: false,
            tag,
            length,
            digest,
            block_bytes,
            pieces,
        })
    }
}

impl Signatures {
    /// Size of this number of signatures in an answer.
    #[must_use]
    pub(crate) fn data_bytes(digest: DigestKind, count: u32) -> usize {
        let root = if digest == DigestKind::Blake3 { 32 } else { 0 };
        (count as usize).saturating_mul(SUMS_BYTES + state_bytes(digest)) + root
    }

    /// Checks the parameters of a call for signatures.
    pub(crate) fn check_call(block_bytes: u32, first: u64, count: u32) -> Result<(), DecodeError> {
        if !is_block(block_bytes) {
            return Err(DecodeError::Invalid("block size"));
        }
        if count == 0 {
            return Err(DecodeError::Invalid("number of blocks"));
        }
        check_most("number of blocks", count as usize, SIGNATURES_MAX as usize)?;
        let (block, count) = (u64::from(block_bytes), u64::from(count));
        if block * count > SIGNED_BYTES_MAX {
            return Err(DecodeError::TooLarge {
                field: "bytes of blocks",
                actual: block * count,
                limit: SIGNED_BYTES_MAX,
            });
        }
        let end = first.checked_add(count).and_then(|n| n.checked_mul(block));
        end.map_or(Err(DecodeError::Invalid("number of a block")), |_| Ok(()))
    }

    /// Checks the rules of an answer.
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        let blocks = &self.blocks;
        check_most("number of blocks", blocks.len(), SIGNATURES_MAX as usize)?;
        if blocks.iter().any(|b| b.state.kind() != self.digest) {
            return Err(DecodeError::Invalid("digest kind"));
        }
        Ok(())
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.raw(&self.tag.0);
        w.u64(self.length);
        w.u64(self.first);
        w.digest_kind(self.digest);
        w.u32(u32::try_from(self.blocks.len()).unwrap_or(u32::MAX));
        for (number, block) in (0..).zip(&self.blocks) {
            w.u32(block.weak);
            w.raw(&block.strong);
            w.digest_state(self.first.saturating_add(number), &block.state);
        }
    }

    /// Decodes what [`Self::encode`] wrote. The caller checks it.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = SourceTag(r.array("tag of the source")?);
        let length = r.u64("length")?;
        let first = r.u64("number of a block")?;
        let digest = r.digest_kind()?;
        let count = r.u32("number of blocks")? as usize;
        check_most("number of blocks", count, SIGNATURES_MAX as usize)?;
        let mut blocks = Vec::with_capacity(count.min(r.remaining() / SUMS_BYTES));
        for number in 0..count {
            blocks.push(Signature {
                weak: r.u32("sum of a block")?,
                strong: r.array("sum of a block")?,
                state: r.digest_state(digest, first.saturating_add(number as u64))?,
            });
        }
        Ok(Self {
            tag,
            length,
            first,
            digest,
            blocks,
        })
    }
}
