//! An upload that can be gone on with: what is known of the bytes that the server has stored.
//!
//! The checksums of the server decide, in the end, about all bytes that any attempt has sent; its
//! markers only say from where it is worth to go on.

use std::collections::VecDeque;

use xdfs_proto::digest::{BlockHasher, Fragment, FragmentMap};
use xdfs_proto::{ByteRange, FileId};

use super::journal::{Journal, PARTS_MAX, Part, Record};
use crate::checksum::{Algorithm, Hasher};

/// Bytes between two places from which an upload can go on. A subtree of BLAKE3.
const STEP_BYTES: u64 = 4 << 20;
/// Places that are remembered at once: the server says every few seconds what it has stored.
const PLACES_MAX: usize = 10_000;

/// A place from which it can go on.
#[derive(Debug)]
struct Place {
    at: u64,
    /// Of the bytes of this attempt before it.
    checksum: String,
    /// Of all bytes before it.
    states: Vec<Fragment>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Begun {
    journal: Journal,
    record: Record,
    /// Where this attempt began.
    start: u64,
    at: u64,
    block: BlockHasher,
    states: FragmentMap,
    places: VecDeque<Place>,
}

impl Begun {
    /// An attempt that goes on behind what is recorded, or at the first byte.
    pub(super) fn new(journal: Journal, record: Record) -> Self {
        let start = record.bytes();
        let mut states = FragmentMap::new(record.digest);
        for state in &record.states {
            states.insert(*state);
        }
        Self {
            block: BlockHasher::new(record.digest, false, start),
            journal,
            record,
            start,
            at: start,
            states,
            places: VecDeque::new(),
        }
    }

    /// Whether an attempt can go on behind what is recorded.
    pub(super) fn is_sound(record: &Record) -> bool {
        let end = record.bytes();
        let mut states = FragmentMap::new(record.digest);
        let are_apart = record.states.iter().all(|state| states.insert(*state));
        let all = [ByteRange { start: 0, end }];
        are_apart && end.is_multiple_of(STEP_BYTES) && states.ranges().as_slice() == all
    }

    /// What earlier attempts have stored.
    pub(super) fn earlier(&self) -> impl Iterator<Item = &Part> {
        let of_before = |part: &&Part| part.range.end <= self.start;
        self.record.parts.iter().filter(of_before)
    }

    /// Where this attempt began.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Whether the server has anything with which the next attempt can go on.
    pub(super) fn has_part(&self) -> bool {
        self.record.bytes() > 0
    }

    /// Hashes bytes that are sent next, with the checksum of this attempt too.
    pub(super) fn hash(&mut self, mut bytes: &[u8], hasher: &mut Hasher) {
        while !bytes.is_empty() {
            let room = STEP_BYTES - self.at % STEP_BYTES;
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let (piece, rest) = bytes.split_at(room.min(bytes.len()));
            hasher.update(piece);
            self.block.update(piece);
            self.at += piece.len() as u64;
            bytes = rest;
            if self.at.is_multiple_of(STEP_BYTES) {
                let next = BlockHasher::new(self.record.digest, false, self.at);
                let block = std::mem::replace(&mut self.block, next);
                self.states.insert(block.finish(FileId(0)).1);
                if self.places.len() == PLACES_MAX {
                    self.places.pop_front();
                }
                self.places.push_back(Place {
                    at: self.at,
                    checksum: hasher.clone().finish(),
                    states: self.states.fragments().copied().collect(),
                });
            }
        }
    }

    /// Records that the server has stored the bytes of this attempt up to `end`.
    ///
    /// # Errors
    /// The journal can't be written.
    pub(super) fn stored(&mut self, end: u64, kind: Algorithm) -> std::io::Result<()> {
        let mut place = None;
        while self.places.front().is_some_and(|next| next.at <= end) {
            place = self.places.pop_front();
        }
        let Some(place) = place else {
            return Ok(());
        };
        let start = self.start;
        self.record.parts.retain(|part| part.range.end <= start);
        if self.record.parts.len() >= PARTS_MAX {
            return Ok(());
        }
        self.record.parts.push(Part {
            range: ByteRange {
                start,
                end: place.at,
            },
            kind,
            checksum: place.checksum,
        });
        self.record.states = place.states;
        self.write()
    }

    /// Writes the journal as it is.
    ///
    /// # Errors
    /// It can't be written.
    pub(super) fn write(&mut self) -> std::io::Result<()> {
        self.journal.write(&self.record)
    }

    /// There is nothing to go on with any more.
    pub(super) fn end(self) {
        self.journal.remove();
    }

    /// There is only a hidden file any more, which the next attempt has to remove.
    pub(super) fn forget(mut self) {
        (self.record.parts, self.record.states) = (Vec::new(), Vec::new());
        if let Err(error) = self.write() {
            tracing::debug!(%error, "the journal of an upload ends");
            self.end();
        }
    }
}
