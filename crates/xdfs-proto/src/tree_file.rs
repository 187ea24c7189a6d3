//! Trees as one file, as relays have them: a header, an index, and the contents of the files.
//!
//! ```text
//!  "xdfstree", version u8, what is kept u8, 6 zeros, length of the index u64, index, contents
//! ```
//!
//! The index is a pack whose files are all [`Large`](crate::pack::Content::Large): without content.
//! Its first entry is the root, and a directory comes before what is in it. The contents follow in
//! the order of the entries, without gaps.

use crate::fault::{Code, Fault};
use crate::pack::Preserve;

/// Size of the header in bytes.
pub const TREE_HEADER_BYTES: usize = 24;
/// Longest index: some hundred thousand entries, which a relay has in memory while it delivers the
/// tree.
pub const TREE_INDEX_BYTES_MAX: u64 = 64 << 20;

const MAGIC: [u8; 8] = *b"xdfstree";
const VERSION: u8 = 1;
/// Beside the numbers of [`Preserve`].
const HARD_LINKS: u8 = 1 << 3;

/// The header of a tree in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeHeader {
    /// The metadata in the index beside mode and modification time.
    pub keep: Preserve,
    /// Hard links are kept.
    pub hard_links: bool,
    /// Length of the index in bytes, at most [`TREE_INDEX_BYTES_MAX`].
    pub index_bytes: u64,
}

impl TreeHeader {
    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; TREE_HEADER_BYTES] {
        let mut bytes = [0; TREE_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        bytes[9] = self.keep.number() | if self.hard_links { HARD_LINKS } else { 0 };
        bytes[16..].copy_from_slice(&self.index_bytes.to_be_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`Code::MalformedFrame`]: it is none.
    pub fn decode(bytes: &[u8; TREE_HEADER_BYTES]) -> Result<Self, Fault> {
        let (head, length) = bytes.split_at(16);
        let mut index_bytes = [0; 8];
        index_bytes.copy_from_slice(length);
        let index_bytes = u64::from_be_bytes(index_bytes);
        let keep = Preserve::from_number(head[9] & !HARD_LINKS);
        let is_right = head[..8] == MAGIC
            && head[8] == VERSION
            && head[10..] == [0; 6]
            && index_bytes <= TREE_INDEX_BYTES_MAX;
        match keep.filter(|_| is_right) {
            Some(keep) => Ok(Self {
                keep,
                hard_links: head[9] & HARD_LINKS != 0,
                index_bytes,
            }),
            None => {
                let cause = "it is no tree in one file, or one of another version";
                Err(Fault::new(Code::MalformedFrame, "read the tree", cause))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_no_other_is() {
        let header = TreeHeader {
            keep: Preserve {
                owner: true,
                xattrs: false,
                read_times: true,
            },
            hard_links: true,
            index_bytes: 0x0102_0304,
        };
        let bytes = header.encode();
        assert_eq!(bytes[..10], *b"xdfstree\x01\x0d");
        assert_eq!(bytes[10..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(TreeHeader::decode(&bytes), Ok(header));
        for (at, value) in [(0, b'X'), (8, 2), (9, 0x10), (12, 1), (16, 1)] {
            let mut wrong = bytes;
            wrong[at] = value;
            let fault = TreeHeader::decode(&wrong).unwrap_err();
            assert_eq!(fault.code, Code::MalformedFrame, "{at}");
        }
    }
}
