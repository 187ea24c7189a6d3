//! The ranges that are taken next, and from which source. Time is an argument.
//!
//! A range is given to the source that asks for one, so that a fast source takes more. A source
//! that finds none left helps with one that another source has had for longer than it needs itself:
//! at the end, and where the reader waits for a slow source, the copy goes at the pace of the fast
//! ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::{ByteRange, RangeSet};

/// Ranges that are taken or wait for the reader: memory is bounded by so many of them.
pub(super) const RANGES: u64 = 32;
/// The largest and the smallest range in bytes, each a multiple of a block of the comparison.
pub(super) const RANGE_BYTES: [u64; 2] = [4 << 20, 512 << 10];
/// The least time that a source has had a range before another one takes it too.
const PATIENCE: Duration = Duration::from_millis(500);

/// A range that was asked for.
#[derive(Debug, Default)]
struct Taken {
    /// The sources that are sending it, and since when.
    by: Vec<(usize, Duration)>,
    /// Its bytes, and the source that they came from.
    bytes: Option<(usize, Arc<Vec<u8>>)>,
    is_verified: bool,
}

/// The ranges from the reader's position on.
#[derive(Debug)]
pub(super) struct Window {
    length: u64,
    range_bytes: u64,
    /// By number.
    taken: BTreeMap<u64, Taken>,
    /// The first range that the reader needs.
    first: u64,
}

impl Window {
    /// The window of a file of so many bytes, of which several sources take ranges.
    pub(super) fn new(length: u64, sources: usize) -> Self {
        let [largest, smallest] = RANGE_BYTES;
        // Some ranges for each, so that the faster can take more of a small file too.
        let share = length / (4 * sources.max(1) as u64);
        let range_bytes = match share {
            0..=1 => smallest,
            share => (share.next_power_of_two() / 2).clamp(smallest, largest),
        };
        Self {
            length,
            range_bytes,
            taken: BTreeMap::new(),
            first: 0,
        }
    }

    pub(super) fn range_bytes(&self) -> u64 {
        self.range_bytes
    }

    /// The bytes of a range.
    pub(super) fn range(&self, number: u64) -> ByteRange {
        let start = (number.saturating_mul(self.range_bytes)).min(self.length);
        ByteRange {
            start,
            end: (start + self.range_bytes).min(self.length),
        }
    }

    /// Moves to the reader's position. The range before it is kept, since the reader may need its
    /// end again. Returns the ranges that aren't needed any more while sources send them.
    pub(super) fn move_to(&mut self, position: u64) -> Vec<(usize, u64)> {
        self.first = position / self.range_bytes;
        let needed = self.first.saturating_sub(1)..self.first + RANGES;
        let past = self
            .taken
            .extract_if(.., |number, _| !needed.contains(number));
        let sent = past.flat_map(|(number, taken)| {
            let by = taken.by.into_iter();
            by.map(move |(source, _)| (source, number))
        });
        sent.collect()
    }

    /// Gives a range to a source at the time `now`, if there is one for it. `idle` says that it has
    /// no other, and takes so long for one. Ranges entirely within `held` are not needed.
    pub(super) fn take(
        &mut self,
        source: usize,
        now: Duration,
        held: &RangeSet,
        idle: Option<Duration>,
    ) -> Option<u64> {
        let end = self
            .length
            .div_ceil(self.range_bytes)
            .min(self.first + RANGES);
        for number in self.first..end {
            let is_free = match self.taken.get(&number) {
                Some(taken) => taken.by.is_empty() && taken.bytes.is_none(),
                None => !held.contains(self.range(number)),
            };
            if is_free {
                let taken = self.taken.entry(number).or_default();
                taken.by.push((source, now));
                return Some(number);
            }
        }
        let patience = idle?.saturating_mul(2).max(PATIENCE);
        let is_late = |(_, taken): &(&u64, &mut Taken)| {
            let [(other, since)] = taken.by.as_slice() else {
                return false;
            };
            taken.bytes.is_none() && *other != source && now.saturating_sub(*since) >= patience
        };
        let (&number, taken) = self.taken.iter_mut().find(is_late)?;
        taken.by.push((source, now));
        Some(number)
    }

    /// Adds the bytes of a range, unless another source was faster. Returns the others that are
    /// still sending it.
    pub(super) fn arrived(
        &mut self,
        number: u64,
        source: usize,
        bytes: Arc<Vec<u8>>,
    ) -> Vec<usize> {
        let Some(taken) = self.taken.get_mut(&number) else {
            return Vec::new();
        };
        let others = std::mem::take(&mut taken.by);
        if taken.bytes.is_none() {
            taken.bytes = Some((source, bytes));
        }
        let others = others.into_iter().map(|(other, _)| other);
        others.filter(|other| *other != source).collect()
    }

    /// A source doesn't send a range after all.
    pub(super) fn give_back(&mut self, number: u64, source: usize) {
        if let Some(taken) = self.taken.get_mut(&number) {
            taken.by.retain(|(other, _)| *other != source);
        }
    }

    /// Forgets what came from a source and isn't verified yet, and what it is sending.
    pub(super) fn forget(&mut self, source: usize) {
        for taken in self.taken.values_mut() {
            taken.by.retain(|(other, _)| *other != source);
            if !taken.is_verified {
                taken.bytes.take_if(|(from, _)| *from == source);
            }
        }
    }

    /// The ranges that have arrived and aren't verified yet, with their sources.
    pub(super) fn unverified(&self) -> Vec<(u64, usize, Arc<Vec<u8>>)> {
        let arrived = self.taken.iter().filter(|(_, taken)| !taken.is_verified);
        let bytes = arrived.filter_map(|(number, taken)| {
            let (source, bytes) = taken.bytes.as_ref()?;
            Some((*number, *source, Arc::clone(bytes)))
        });
        bytes.collect()
    }

    /// The bytes of a range that came from this source and isn't verified yet.
    pub(super) fn unverified_of(&self, number: u64, source: usize) -> Option<Arc<Vec<u8>>> {
        let taken = self.taken.get(&number).filter(|own| !own.is_verified)?;
        let (_, bytes) = taken.bytes.as_ref().filter(|(from, _)| *from == source)?;
        Some(Arc::clone(bytes))
    }

    /// Marks a range as verified: it has been passed on.
    pub(super) fn verified(&mut self, number: u64) {
        if let Some(taken) = self.taken.get_mut(&number) {
            taken.is_verified = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const IDLE: Option<Duration> = Some(Duration::from_secs(1));

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn bytes() -> Arc<Vec<u8>> {
        Arc::new(vec![1])
    }

    #[test]
    fn ranges_suit_the_file() {
        for (length, sources, bytes) in [
            (0, 2, MIB / 2),
            (1, 2, MIB / 2),
            (16 * MIB, 2, MIB),
            (100 * MIB, 2, 4 * MIB),
            (1 << 40, 8, 4 * MIB),
            (u64::MAX / 2, 1, 4 * MIB),
        ] {
            let window = Window::new(length, sources);
            assert_eq!(window.range_bytes(), bytes, "{length}");
        }
        let window = Window::new(9 * MIB, 1);
        assert_eq!(window.range(4).len(), MIB);
        assert!(window.range(u64::MAX).is_empty());
    }

    #[test]
    fn ranges_are_given_in_order_and_each_once() {
        let mut window = Window::new(8 * MIB, 2);
        let none = RangeSet::new();
        let ranges = 8 * MIB / window.range_bytes();
        for number in 0..ranges {
            assert_eq!(
                window.take(number as usize % 2, at(0), &none, None),
                Some(number)
            );
        }
        assert_eq!(window.take(0, at(100), &none, None), None);
        window.give_back(3, 1);
        assert_eq!(window.take(0, at(0), &none, None), Some(3));
    }

    #[test]
    fn the_window_is_bounded_and_moves_with_the_reader() {
        let mut window = Window::new(1 << 40, 2);
        let none = RangeSet::new();
        let mut count = 0;
        while window.take(0, at(0), &none, None).is_some() {
            count += 1;
        }
        assert_eq!(count, RANGES);
        assert!(window.move_to(window.range_bytes()).is_empty());
        assert_eq!(window.take(1, at(0), &none, None), Some(RANGES));
        // A reader that jumps leaves what is on its way behind.
        let left = window.move_to(1 << 39);
        assert_eq!(left.len() as u64, RANGES + 1);
        assert!(left.contains(&(1, RANGES)));
    }

    #[test]
    fn what_is_at_the_target_is_not_taken() {
        let mut window = Window::new(16 * MIB, 4);
        let mut held = RangeSet::new();
        let range = window.range(0);
        held.insert(ByteRange {
            start: 0,
            end: 2 * range.len() + 1,
        });
        assert_eq!(window.take(0, at(0), &held, None), Some(2));
    }

    #[test]
    fn an_idle_source_helps_with_what_takes_too_long() {
        let mut window = Window::new(MIB, 2);
        let none = RangeSet::new();
        assert_eq!(window.take(0, at(0), &none, None), Some(0));
        assert_eq!(window.take(1, at(1), &none, None), Some(1));
        window.arrived(1, 1, bytes());
        // Not at once, and a source doesn't help itself.
        assert_eq!(window.take(1, at(1), &none, IDLE), None);
        assert_eq!(window.take(0, at(9), &none, IDLE), None);
        assert_eq!(window.take(1, at(2), &none, IDLE), Some(0));
        // No third one.
        assert_eq!(window.take(2, at(9), &none, IDLE), None);
        assert_eq!(window.arrived(0, 1, bytes()), [0]);
        let first = window.unverified().remove(0);
        assert_eq!((first.0, first.1), (0, 1));
    }

    #[test]
    fn what_a_dropped_source_sent_is_taken_again_unless_it_was_verified() {
        let mut window = Window::new(3 * MIB / 2, 1);
        let none = RangeSet::new();
        for number in 0..3 {
            assert_eq!(window.take(0, at(0), &none, None), Some(number));
        }
        window.arrived(0, 0, bytes());
        window.verified(0);
        window.arrived(1, 0, bytes());
        window.forget(0);
        assert_eq!(window.take(1, at(0), &none, None), Some(1));
        assert_eq!(window.take(1, at(0), &none, None), Some(2));
        assert_eq!(window.take(1, at(0), &none, None), None);
    }
}
