//! What is known of a file's bytes here, to be compared with checksums of its server.

use xdfs_proto::{ByteRange, Fault};

use super::link::Link;
use super::source::checksum;
use crate::checksum::{Algorithm, Hasher};

/// Parts of a file, each of which was seen in order.
#[derive(Debug, Default)]
pub(super) struct Runs(Vec<Run>);

#[derive(Debug)]
struct Run {
    range: ByteRange,
    kind: Algorithm,
    hasher: Hasher,
}

impl Runs {
    /// Takes note of the bytes at `offset`. Those that follow the last ones belong to their part.
    pub(super) fn note(&mut self, offset: u64, bytes: &[u8], kind: Algorithm) {
        let end = offset + bytes.len() as u64;
        match self.0.last_mut() {
            Some(run) if run.range.end == offset && run.kind == kind => {
                run.hasher.update(bytes);
                run.range.end = end;
            }
            _ => {
                let mut hasher = Hasher::new(kind);
                hasher.update(bytes);
                let range = ByteRange { start: offset, end };
                self.0.push(Run {
                    range,
                    kind,
                    hasher,
                });
            }
        }
    }

    /// Compares all parts with the server's file, which has `length` bytes if that is known.
    /// Returns `false` if the server refuses to compute a checksum: then size and time are what
    /// there is.
    ///
    /// # Errors
    /// A checksum differs, or the connection is broken.
    pub(super) fn compare(
        self,
        link: &mut Link,
        path: &[u8],
        length: Option<u64>,
    ) -> Result<bool, Fault> {
        let mut are_compared = true;
        for Run {
            range,
            kind,
            hasher,
        } in self.0
        {
            let extent = match (range.start, Some(range.end)) == (0, length) {
                true => "0 -1".to_owned(),
                false => format!("{} {}", range.start, range.len()),
            };
            are_compared &= checksum(link, path, kind, &extent, range.len(), &hasher.finish())?;
        }
        Ok(are_compared)
    }
}
