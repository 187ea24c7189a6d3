//! Sets of hashes, which need no further hashing.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds hashers for keys that are keyed hashes already.
pub(super) type AsIs = BuildHasherDefault<Hashed>;

/// The hash of a hash: itself.
#[derive(Debug, Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        // Hashes of names are written as numbers.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
