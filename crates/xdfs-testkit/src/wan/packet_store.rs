//! Bytes of packets under way, first in, first out, in memory that is used again.

use std::collections::VecDeque;

/// Bytes got from the system at a time; many times the largest packet.
const CHUNK_BYTES: usize = 1 << 20;

/// Chunks in use at most, so that a fast sender on a long link can't take all memory.
const CHUNKS_MAX: usize = 256;

/// Chunks kept for later.
const SPARE_MAX: usize = 64;

#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    /// Where the next packet goes.
    filled: usize,
    /// Where the oldest packet begins.
    taken: usize,
}

/// The packets; how long each one is, its user knows.
#[derive(Debug, Default)]
pub(super) struct PacketStore {
    chunks: VecDeque<Chunk>,
    spare: Vec<Box<[u8]>>,
}

impl PacketStore {
    /// Room for a packet of up to `len` bytes behind all others; `None` if too much is kept.
    pub(super) fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let fits = |chunk: &Chunk| chunk.bytes.len() - chunk.filled >= len;
        if !self.chunks.back().is_some_and(fits) {
            if self.chunks.len() >= CHUNKS_MAX || len > CHUNK_BYTES {
                return None;
            }
            let spare = self.spare.pop();
            self.chunks.push_back(Chunk {
                bytes: spare.unwrap_or_else(|| vec![0; CHUNK_BYTES].into_boxed_slice()),
                filled: 0,
                taken: 0,
            });
        }
        let chunk = self.chunks.back_mut()?;
        chunk.bytes.get_mut(chunk.filled..)?.get_mut(..len)
    }

    /// Keeps the first `len` bytes of the room that was given last.
    pub(super) fn keep(&mut self, len: usize) {
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.filled = (chunk.filled + len).min(chunk.bytes.len());
        }
    }

    /// The oldest packet, which has `len` bytes.
    pub(super) fn oldest(&mut self, len: usize) -> &[u8] {
        self.recycle();
        let chunk = self.chunks.front();
        chunk
            .and_then(|chunk| chunk.bytes[..chunk.filled].get(chunk.taken..)?.get(..len))
            .unwrap_or(&[])
    }

    /// Forgets the oldest packet, which has `len` bytes.
    pub(super) fn forget(&mut self, len: usize) {
        self.recycle();
        if let Some(chunk) = self.chunks.front_mut() {
            chunk.taken = (chunk.taken + len).min(chunk.filled);
        }
        self.recycle();
    }

    /// Makes chunks that hold nothing any more free for new packets.
    fn recycle(&mut self) {
        loop {
            let last = self.chunks.len() == 1;
            let Some(chunk) = self.chunks.front_mut() else {
                return;
            };
            if chunk.taken < chunk.filled {
                return;
            }
            if last {
                (chunk.taken, chunk.filled) = (0, 0);
                return;
            }
            if let Some(chunk) = self.chunks.pop_front()
                && self.spare.len() < SPARE_MAX
            {
                self.spare.push(chunk.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in() {
        let mut store = PacketStore::default();
        let lengths = [60_000, 20, 1500, 65_535, 1, 0, 9000];
        let (mut next_in, mut next_out) = (0_usize, 0_usize);
        for round in 0..200 {
            // More go in than come out, and then all come out.
            for _ in 0..7 {
                let len = lengths[next_in % lengths.len()];
                let room = store.room(65_546).unwrap();
                room[..len].fill(next_in.to_le_bytes()[0]);
                store.keep(len);
                next_in += 1;
            }
            let until = if round == 199 { next_in } else { round * 6 };
            while next_out < until {
                let len = lengths[next_out % lengths.len()];
                let expected = vec![next_out.to_le_bytes()[0]; len];
                assert!(store.oldest(len) == expected, "packet {next_out}");
                store.forget(len);
                next_out += 1;
            }
        }
        assert!(store.chunks.len() == 1 && store.spare.len() <= SPARE_MAX);
    }

    #[test]
    fn memory_is_bounded() {
        let mut store = PacketStore::default();
        let mut kept = 0;
        while store.room(65_536).is_some() {
            store.keep(65_536);
            kept += 65_536;
        }
        assert_eq!(kept, CHUNKS_MAX * CHUNK_BYTES);
        store.forget(65_536);
        assert!(store.room(65_536).is_none(), "the chunk is still in use");
        for _ in 1..16 {
            store.forget(65_536);
        }
        assert!(store.room(65_536).is_some());
        assert!(PacketStore::default().room(CHUNK_BYTES + 1).is_none());
    }
}
