//! The fields of calls about the versions of a file, and of their answers: see [`crate::delta`].

use super::calls::check_path;
use super::codec::{decode_digest_kind, decode_state, encode_state};
use super::{SourceTag, files};
use crate::delta::{
    PIECES_MAX, SIGNATURES_MAX, SIGNED_BYTES_MAX, STRONG_BYTES, Seed, SeedPiece, Signature,
    Signatures, is_block,
};
use crate::digest::DigestKind;
use crate::limits::Limits;
use crate::wire::{DecodeError, Reader, Writer};

/// Bytes of a piece beside its state.
const PIECE_BYTES: usize = 8 + 8 + 4;
/// Bytes of the sums of a block.
const SUMS_BYTES: usize = 4 + STRONG_BYTES;

/// Bytes of a state of a range that doesn't start at 0.
fn state_bytes(kind: DigestKind) -> usize {
    match kind {
        DigestKind::None => 0,
        DigestKind::Crc64Nvme => 8,
        DigestKind::Blake3 => 32,
    }
}

impl Signatures {
    /// Bytes that so many take in an answer.
    #[must_use]
    pub(crate) fn data_bytes(digest: DigestKind, count: u32) -> usize {
        let root = if digest == DigestKind::Blake3 { 32 } else { 0 };
        (count as usize).saturating_mul(SUMS_BYTES + state_bytes(digest)) + root
    }
}

pub(super) fn check_wish(block_bytes: u32, first: u64, count: u32) -> Result<(), DecodeError> {
    if !is_block(block_bytes) {
        return Err(DecodeError::Invalid("block size"));
    }
    if count == 0 {
        return Err(DecodeError::Invalid("number of blocks"));
    }
    files::check_most("number of blocks", count as usize, SIGNATURES_MAX as usize)?;
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

pub(super) fn check_seed(seed: &Seed) -> Result<(), DecodeError> {
    files::check_most("number of pieces", seed.pieces.len(), PIECES_MAX)?;
    seed.broken_rule()
        .map_or(Ok(()), |rule| Err(DecodeError::Invalid(rule)))
}

pub(super) fn encode_seed(w: &mut Writer<'_>, seed: &Seed) {
    w.raw(&seed.tag.0);
    w.u64(seed.length);
    w.u8(seed.digest.number());
    w.u32(seed.block_bytes);
    w.path(&seed.from);
    w.path(&seed.to);
    w.u16(u16::try_from(seed.pieces.len()).unwrap_or(u16::MAX));
    for piece in &seed.pieces {
        w.u64(piece.offset);
        w.u64(piece.from_offset);
        w.u32(piece.length);
        encode_state(w, piece.offset, &piece.state);
    }
}

/// Reads what [`encode_seed`] wrote. The caller sets the options, and checks it.
pub(super) fn decode_seed(r: &mut Reader<'_>, limits: &Limits) -> Result<Seed, DecodeError> {
    let tag = SourceTag(r.array("tag of the source")?);
    let length = r.u64("length")?;
    let digest = decode_digest_kind(r)?;
    let block_bytes = r.u32("block size")?;
    let from = r.path(limits.path_bytes_max, "path")?;
    let to = r.path(limits.path_bytes_max, "path")?;
    check_path(&to, limits, "path")?;
    let count = usize::from(r.u16("number of pieces")?);
    files::check_most("number of pieces", count, PIECES_MAX)?;
    // The count is the peer's: reserve no more than the bytes that are there can hold.
    let mut pieces = Vec::with_capacity(count.min(r.remaining() / PIECE_BYTES));
    for _ in 0..count {
        let offset = r.u64("piece")?;
        pieces.push(SeedPiece {
            offset,
            from_offset: r.u64("piece")?,
            length: r.u32("length of a piece")?,
            state: decode_state(r, digest, offset)?,
        });
    }
    Ok(Seed {
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

pub(super) fn check_signatures(signatures: &Signatures) -> Result<(), DecodeError> {
    let blocks = &signatures.blocks;
    files::check_most("number of blocks", blocks.len(), SIGNATURES_MAX as usize)?;
    if blocks.iter().any(|b| b.state.kind() != signatures.digest) {
        return Err(DecodeError::Invalid("digest kind"));
    }
    Ok(())
}

pub(super) fn encode_signatures(w: &mut Writer<'_>, signatures: &Signatures) {
    w.raw(&signatures.tag.0);
    w.u64(signatures.length);
    w.u64(signatures.first);
    w.u8(signatures.digest.number());
    w.u32(u32::try_from(signatures.blocks.len()).unwrap_or(u32::MAX));
    for (number, block) in (0..).zip(&signatures.blocks) {
        w.u32(block.weak);
        w.raw(&block.strong);
        encode_state(w, signatures.first.saturating_add(number), &block.state);
    }
}

/// Reads what [`encode_signatures`] wrote. The caller checks it.
pub(super) fn decode_signatures(r: &mut Reader<'_>) -> Result<Signatures, DecodeError> {
    let tag = SourceTag(r.array("tag of the source")?);
    let length = r.u64("length")?;
    let first = r.u64("number of a block")?;
    let digest = decode_digest_kind(r)?;
    let count = r.u32("number of blocks")? as usize;
    files::check_most("number of blocks", count, SIGNATURES_MAX as usize)?;
    let mut blocks = Vec::with_capacity(count.min(r.remaining() / SUMS_BYTES));
    for number in 0..count {
        blocks.push(Signature {
            weak: r.u32("sum of a block")?,
            strong: r.array("sum of a block")?,
            state: decode_state(r, digest, first.saturating_add(number as u64))?,
        });
    }
    Ok(Signatures {
        tag,
        length,
        first,
        digest,
        blocks,
    })
}
