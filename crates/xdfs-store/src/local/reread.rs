//! Reading again what a journal claims, and comparing it with the states of its digests.
//!
//! It goes in steps, since it takes as long as the disk takes for all of it: whoever waits for it
//! does other things in between, and can drop it.

use std::fs::File;

use xdfs_proto::FileId;
use xdfs_proto::digest::{BlockHasher, DigestKind, Fragment, FragmentMap};
use xdfs_sys::fs;

/// Bytes that are read in a step.
const STEP_BYTES: u64 = 8 << 20;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;

/// What is left to read of the records of a journal, and what is known of those that were read.
#[derive(Debug)]
pub(super) struct Reread {
    records: std::vec::IntoIter<Fragment>,
    /// The record that is being read, how far, and the state of what was read.
    current: Option<(Fragment, u64, BlockHasher)>,
    kind: DigestKind,
    /// Those that are as recorded.
    sound: FragmentMap,
    /// Bytes of those that aren't, or can't be read.
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

    /// Reads some more; `false` when there was nothing left to read.
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
                // What can't be read wasn't kept. Written again it may be.
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

    /// What is as recorded, and how many bytes aren't.
    pub(super) fn finish(self) -> (FragmentMap, u64) {
        (self.sound, self.wrong_bytes)
    }
}
