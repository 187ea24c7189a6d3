//! The receiver's state of one file: which data frames fit it, and which ranges to request again.

use std::collections::BTreeMap;

use super::{DataFrameKind, File, FileState, violation};
use crate::digest::{DigestKind, FragmentMap};
use crate::fault::Fault;
use crate::frame::Request;
use crate::range::{ByteRange, RangeSet};

impl File {
    pub(super) fn new(state: FileState, digest: DigestKind, request: Option<Request>) -> Self {
        Self {
            state,
            request,
            offer: None,
            accept: None,
            length: None,
            held: FragmentMap::new(digest),
            arriving: BTreeMap::new(),
            dropped: RangeSet::new(),
            accept_confirmed: false,
            tail: None,
            block_size: 1,
            resumed: 0,
            repeats: RangeSet::new(),
            repeated: 0,
            mismatches: 0,
            eofr: None,
        }
    }
    /// Whether the sender is known to have ACCEPT. Frames of a pack prove nothing: they may be
    /// ahead of it.
    pub(super) fn has_confirmed_accept(&self) -> bool {
        self.accept_confirmed && self.offer.as_ref().is_some_and(|o| !o.pack)
    }

    /// The end of what is held or arriving.
    pub(super) fn seen_end(&self) -> u64 {
        let held = self.held.ranges().as_slice().last().map_or(0, |r| r.end);
        let arriving = self
            .arriving
            .values()
            .next_back()
            .map_or(0, |(end, _)| *end);
        held.max(arriving)
    }

    /// Whether any byte of the range is being read on a channel.
    pub(super) fn is_arriving(&self, range: ByteRange) -> bool {
        self.arriving
            .range(..range.end)
            .next_back()
            .is_some_and(|(_, (end, _))| *end > range.start)
    }

    /// Checks that a data frame lies within the file and on its grid.
    pub(super) fn check_shape(
        &mut self,
        range: ByteRange,
        data: DataFrameKind,
    ) -> Result<(), Fault> {
        let known = self.length.or(self.tail);
        if known.is_some_and(|n| range.end > n) {
            return Err(violation(format!(
                "a block at {range} lies past the end of the file at {}",
                known.unwrap_or(0)
            )));
        }
        let grid = self.block_size;
        let off_grid = !range.end.is_multiple_of(grid);
        let is_last = known.is_none_or(|n| n == range.end);
        let too_long = data == DataFrameKind::Block && range.len() > grid;
        if !range.start.is_multiple_of(grid) || (off_grid && !is_last) || too_long {
            return Err(violation(format!(
                "a block at {range} is not on the file's grid of {grid} bytes"
            )));
        }
        if known.is_none() && off_grid {
            // Only the last block may be short, so this one ends the file.
            if self.seen_end() > range.end {
                return Err(violation(format!(
                    "a block at {range} is short, but isn't the last"
                )));
            }
            self.tail = Some(range.end);
        }
        Ok(())
    }

    /// The dropped ranges that are now neither arriving nor held, and must be requested again.
    pub(super) fn take_owed(&mut self) -> Vec<ByteRange> {
        let mut owed = Vec::new();
        if self.dropped.as_slice().is_empty() {
            return owed;
        }
        for range in std::mem::take(&mut self.dropped).as_slice() {
            if self.is_arriving(*range) {
                self.dropped.insert(*range);
                continue;
            }
            for gap in self.held.ranges().gaps(*range).as_slice() {
                self.repeats.insert(*gap);
                self.repeated += gap.len();
                owed.push(*gap);
            }
        }
        owed
    }
}
