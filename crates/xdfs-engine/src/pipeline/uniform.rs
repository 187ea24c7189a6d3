//! The block of a source whose bytes are all zero: created once, and hashed once where the digest
//! allows it.

use std::sync::Arc;

use xdfs_proto::digest::{BlockHasher, Fragment};
use xdfs_proto::{ByteRange, DigestKind, FileId};

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct UniformBlock {
    made: Option<CachedBlock>,
}

/// The last block created.
#[derive(Debug)]
struct CachedBlock {
    kind: DigestKind,
    check: bool,
    bytes: Arc<[u8]>,
    hasher: BlockHasher,
}

impl UniformBlock {
    /// The bytes of a range of a file, with their check value and digest state.
    pub(super) fn get(
        &mut self,
        kind: DigestKind,
        check: bool,
        file: FileId,
        range: ByteRange,
    ) -> (u32, Fragment, Arc<[u8]>) {
        // A block is never longer than the session's block size, a `u32`.
        let len = range.len() as usize;
        let known = self
            .made
            .as_ref()
            .filter(|m| m.bytes.len() == len && m.kind == kind && m.check == check)
            .and_then(|m| Some((m.hasher.moved_to(range.start)?, Arc::clone(&m.bytes))));
        if let Some((hasher, bytes)) = known {
            let (value, fragment) = hasher.finish(file);
            return (value, fragment, bytes);
        }
        let bytes: Arc<[u8]> = Arc::from(vec![0; len]);
        let mut hasher = BlockHasher::new(kind, check, range.start);
        hasher.update(&bytes);
        if let Some(hasher) = hasher.moved_to(0) {
            let bytes = Arc::clone(&bytes);
            self.made = Some(CachedBlock {
                kind,
                check,
                bytes,
                hasher,
            });
        }
        let (value, fragment) = hasher.finish(file);
        (value, fragment, bytes)
    }
}
