//! Versions of a file: block signatures, and transfers seeded from an old version.

use std::io::IoSlice;

use xdfs_proto::delta::{Seed, Signature, Signatures, strong, weak};
use xdfs_proto::digest::{BlockHasher, DigestKind};
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, Fault, FileId, RangeSet, SourceTag};

use crate::{SinkRequest, Source, Store, work};

/// The signatures of `count` blocks from number `first` on, fewer only at the end. The caller has
/// bounded their total size.
///
/// # Errors
/// A fault of the source; [`Code::Unsupported`] if its version can't be recognised later.
pub(crate) fn signatures(
    source: &mut dyn Source,
    digest: DigestKind,
    block_bytes: u32,
    [first, count]: [u64; 2],
) -> Result<Signatures, Fault> {
    let info = source.info();
    let tag = info.tag;
    let Some(length) = info.length.filter(|_| tag != SourceTag::default()) else {
        let cause = "it has no versions that could be compared";
        return Err(Fault::new(Code::Unsupported, "", cause));
    };
    let block = u64::from(block_bytes);
    let start = first.saturating_mul(block).min(length);
    let end = first.saturating_add(count).saturating_mul(block);
    let mut blocks = Vec::new();
    let mut buf = vec![0; block_bytes as usize];
    let mut at = start;
    while at < end.min(length) {
        let wanted = usize::try_from(length - at).map_or(buf.len(), |left| left.min(buf.len()));
        let bytes = &mut buf[..wanted];
        // A short read is a fault already.
        source.read_at(at, bytes)?;
        let mut hasher = BlockHasher::new(digest, false, at);
        hasher.update(bytes);
        blocks.push(Signature {
            weak: weak(bytes),
            strong: strong(bytes),
            state: hasher.finish(FileId(0)).1.state,
        });
        at += wanted as u64;
        work::passed(wanted as u64)?;
    }
    source.verify_unchanged()?;
    Ok(Signatures {
        tag,
        length,
        first,
        digest,
        blocks,
    })
}

/// Seeds a transfer to a target of `store` with pieces of an old file, as described by
/// [`Call::Seed`](xdfs_proto::path::Call::Seed): copies matching pieces into the partial file of
/// the transfer, makes them durable, and records them in its journal. Ranges already in the journal
/// stay. Returns the number of bytes copied.
///
/// # Errors
/// The faults of opening the old file for reading and the target for a transfer, and of copying;
/// [`Code::Unsupported`] for a target without a journal.
pub fn seed(store: &dyn Store, seed: &Seed) -> Result<u64, Fault> {
    let mut source = store.open_source(&seed.from)?;
    let there = source.info().length.unwrap_or(0);
    let opened = store.open_sink(&SinkRequest {
        path: seed.to.clone(),
        name: Vec::new(),
        offset: 0,
        length: Some(seed.length),
        tag: seed.tag,
        mode: None,
        mtime_ns: None,
        digest: seed.digest,
        block_size: seed.block_bytes,
        overwrite: seed.overwrite,
        resume: Resume::Trust,
        sparse: seed.sparse,
    })?;
    let mut sink = opened.sink;
    let can = sink.capabilities();
    if !can.durable || !can.random_writes {
        let cause = "transfers to it can't be resumed";
        return Err(Fault::new(Code::Unsupported, "", cause).path(&seed.to));
    }
    let mut durable = opened.durable;
    if opened.unverified {
        durable = loop {
            if let Some(durable) = sink.verify()? {
                break durable;
            }
            // Nothing is copied for a while: checks for cancellation.
            work::passed(0)?;
        };
    }
    let mut held = RangeSet::new();
    for fragment in &durable {
        held.insert(fragment.range);
    }
    let mut copied = Vec::new();
    let mut buf = Vec::new();
    for piece in &seed.pieces {
        let end = piece.from_offset.saturating_add(u64::from(piece.length));
        let Some(wanted) = piece.fragment().filter(|_| end <= there) else {
            continue;
        };
        if held.overlaps(wanted.range) {
            continue;
        }
        buf.resize(piece.length as usize, 0);
        source.read_at(piece.from_offset, &mut buf)?;
        work::passed(u64::from(piece.length))?;
        let mut hasher = BlockHasher::new(seed.digest, false, piece.offset);
        hasher.update(&buf);
        // Checked before it is written: the destination may be a hole of the new file.
        if hasher.finish(FileId(0)).1 == wanted {
            sink.write_at(piece.offset, &[IoSlice::new(&buf)])?;
            held.insert(wanted.range);
            copied.push(wanted);
        }
    }
    if !copied.is_empty() {
        sink.sync()?;
        sink.record(&copied)?;
    }
    Ok(copied.iter().map(|fragment| fragment.range.len()).sum())
}
