//! Bytes that came before it was their turn. Memory that is free again is used for the next ones:
//! fresh memory costs more than the copy that it is for.

use std::collections::BTreeMap;

/// Bytes that each piece takes beside its memory, counted with it.
const PIECE: usize = 256;
/// Most pieces of memory that are kept for later.
const SPARE_MAX: usize = 16;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// By the number of their first byte that isn't taken.
    pieces: BTreeMap<u64, Piece>,
    held: usize,
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Piece {
    memory: Vec<u8>,
    taken: usize,
    /// Bytes that are counted for it.
    counted: usize,
}

impl Early {
    /// Bytes of memory that are in use.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether a piece begins with byte `offset`.
    pub(super) fn has(&self, offset: u64) -> bool {
        self.pieces.contains_key(&offset)
    }

    /// Memory for a piece, with any content and of any size.
    pub(super) fn memory(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Adds a piece that is in memory of its own. What that has beyond it isn't counted: at
    /// most so much as all that is spare.
    pub(super) fn insert(&mut self, offset: u64, memory: Vec<u8>) {
        self.add(offset, memory.len(), memory);
    }

    fn add(&mut self, offset: u64, bytes: usize, memory: Vec<u8>) {
        let counted = bytes + PIECE;
        self.held += counted;
        let piece = Piece {
            memory,
            taken: 0,
            counted,
        };
        self.pieces.insert(offset, piece);
    }

    /// Adds bytes to the piece before them, or as a piece that will have `expected` bytes.
    pub(super) fn append(&mut self, offset: u64, bytes: &[u8], expected: usize) {
        if let Some((start, piece)) = self.pieces.range_mut(..offset).next_back() {
            let end = start + (piece.memory.len() - piece.taken) as u64;
            let room = piece.memory.capacity() - piece.memory.len();
            if end == offset && bytes.len() <= room {
                piece.memory.extend_from_slice(bytes);
                return;
            }
        }
        let mut memory = self.memory();
        memory.clear();
        memory.reserve(expected.max(bytes.len()));
        memory.extend_from_slice(bytes);
        self.add(offset, memory.capacity(), memory);
    }

    /// Moves bytes from `offset` on to a buffer. Returns their number.
    pub(super) fn take(&mut self, offset: u64, buffer: &mut [u8]) -> usize {
        let Some(first) = self.pieces.first_entry() else {
            return 0;
        };
        if *first.key() != offset || buffer.is_empty() {
            return 0;
        }
        let mut piece = first.remove();
        let left = &piece.memory[piece.taken..];
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        piece.taken += count;
        if piece.taken < piece.memory.len() {
            self.pieces.insert(offset + count as u64, piece);
            return count;
        }
        self.held -= piece.counted;
        if self.spare.len() < SPARE_MAX {
            self.spare.push(piece.memory);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_in_order_and_their_memory_is_used_again() {
        let mut early = Early::default();
        early.append(10, &[1; 4], 8);
        early.append(14, &[2; 4], 8);
        early.append(18, &[3; 4], 8);
        assert!(early.has(10) && early.has(18) && !early.has(14));
        assert!(early.held() >= 2 * (8 + PIECE));
        let mut buffer = [0; 6];
        assert_eq!(early.take(9, &mut buffer), 0);
        assert_eq!(early.take(10, &mut buffer), 6);
        assert_eq!(buffer, [1, 1, 1, 1, 2, 2]);
        assert_eq!(early.take(16, &mut buffer), 2);
        assert_eq!(early.take(18, &mut buffer), 4);
        assert_eq!(buffer, [3, 3, 3, 3, 2, 2]);
        assert!(early.is_empty() && early.held() == 0);
        assert_eq!(early.spare.len(), 2);
        let memory = early.memory();
        assert!(memory.capacity() >= 8);
        early.insert(22, memory);
        assert!(early.has(22));
    }

    #[test]
    fn memory_that_is_kept_is_bounded() {
        let mut early = Early::default();
        for number in 0..100 {
            early.insert(number, vec![0]);
        }
        for number in 0..100 {
            assert_eq!(early.take(number, &mut [0; 2]), 1);
        }
        assert_eq!((early.held(), early.spare.len()), (0, SPARE_MAX));
    }
}
