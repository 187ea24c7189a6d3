//! Compression of a channel, for the drivers `zstd` and `lz4`: the blocks on the wire, and the
//! choice of what to compress.
//!
//! Each call that writes content ends a block, so that a byte written arrives without a flush.
//! Blocks are independent of each other: an idle channel holds no memory, all channels of a thread
//! share one context, and what doesn't shrink is passed on as it is (`level` decides). Content
//! stored in this way is neither copied by the writer, unless the stream below takes only a part
//! of a block, nor by the reader.
//!
//! ```text
//! block      = stored / compressed
//! stored     = %x00 content-length content
//! compressed = %x01 encoded-length content-length encoded
//! length     = 3 bytes, least significant first; from 1 to 262144
//! ```
//!
//! A compressed block is shorter than its content. A reader refuses anything else, with
//! [`std::io::ErrorKind::InvalidData`], before it allocates; an end within a block is
//! [`std::io::ErrorKind::UnexpectedEof`]. An end between blocks is that of the stream below.

mod choice;
mod decode;
mod encode;
mod filter;
#[cfg(test)]
mod tests;

pub(crate) use filter::Compression;

/// Most bytes of content in a block. Blocks of zstd gain little above this size.
const CONTENT_BYTES_MAX: usize = 256 << 10;
/// Length of the header of a stored block, and of the other.
const STORED_HEADER: usize = 4;
const COMPRESSED_HEADER: usize = 7;
/// The first byte of a block.
const STORED: u8 = 0x00;
const COMPRESSED: u8 = 0x01;

/// An algorithm that compresses single blocks.
pub(crate) trait Codec: Send + std::fmt::Debug + 'static {
    /// The name of the driver.
    const NAME: &'static str;

    /// Compresses `content` into `room`, which is an eighth and 64 bytes larger, and returns the
    /// length. `None` if it fails. A `quick` call only asks whether there is something to gain.
    fn compress(&self, content: &[u8], room: &mut [u8], quick: bool) -> Option<usize>;

    /// Decompresses `encoded` into `room`, never more than fits, and returns the length. `None` if
    /// the bytes are invalid or the content is longer than `room`.
    fn decompress(&self, encoded: &[u8], room: &mut [u8]) -> Option<usize>;
}
