//! Rereads the ranges claimed by a journal and compares them with their digest states.
//!
//! It works in steps, since all of it takes as long as the disk needs: the caller does other work
//! in between, and can stop.

use std::fs::File;

use xdfs_proto::FileId;
use xdfs_proto::digest::{BlockHasher, DigestKind, Fragment, FragmentMap};
use xdfs_sys::fs;

/// Bytes read per step.
const STEP_BYTES: u64 = 8 << 20;
/// Bytes read at once.
const PIECE_BYTES: usize = 256 << 10;

/// Records of a journal yet to be reread, and the results so far.
#[derive(Debug)]
pub(super) struct Reread {
    records: std::vec::IntoIter<Fragment>,
    /// The current record, the offset reached in it, and the state of its hasher.
    current: Option<(Fragment, u64, BlockHasher)>,
    kind: DigestKind,
    /// Intact ranges.
    sound: FragmentMap,
    /// Bytes of ranges that differ or can't be read.
    wrong_bytes: u64,
}

impl Reread {
    pub(super) fn new(kind: DigestKind, records: Vec<Fragment>) -> Self {
        Self {
            records: records.into_iter(),
            current: None,
            kind,
            sound: FragmentMap::new(kind),
            wrong_bytes: 0,
        }
    }

    /// Reads one step; `false` when nothing is left.
    pub(super) fn step(&mut self, file: &File) -> bool {
        let mut buf = vec![0; PIECE_BYTES];
        let mut left = STEP_BYTES;
        while left > 0 {
            let Some((record, at, mut hasher)) = self.current.take().or_else(|| {
                let record = self.records.next()?;
                let start = record.range.start;
                Some((record, start, BlockHasher::new(self.kind, false, start)))
            }) else {
                return false;
            };
            let missing = usize::try_from(record.range.end - at).unwrap_or(usize::MAX);
            let piece = &mut buf[..missing.min(PIECE_BYTES)];
            left = left.saturating_sub(piece.len() as u64);
            let read = match fs::read_at(file, piece, at) {
                Ok(read) if read > 0 => read,
                // Unreadable data was not kept. Rewriting it may work.
                _ => {
                    self.wrong_bytes += record.range.len();
                    continue;
                }
            };
            hasher.update(&piece[..read]);
            let at = at + read as u64;
            if at < record.range.end {
                self.current = Some((record, at, hasher));
            } else if hasher.finish(FileId(0)).1 == record {
                self.sound.insert(record);
            } else {
                self.wrong_bytes += record.range.len();
            }
        }
        true
    }

    /// The intact ranges, and the number of bytes in the others.
    pub(super) fn finish(self) -> (FragmentMap, u64) {
        (self.sound, self.wrong_bytes)
    }
}
