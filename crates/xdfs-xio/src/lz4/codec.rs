//! Single blocks by LZ4.

use std::cell::RefCell;

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};

use crate::compress::Codec;

thread_local! {
    /// The table of this thread, about 16 KiB.
    static TABLE: RefCell<CompressTable> = RefCell::new(CompressTable::large());
}

/// Compression without options.
#[derive(Debug)]
pub(crate) struct Lz4;

impl Codec for Lz4 {
    const NAME: &'static str = "lz4";

    fn compress(&self, content: &[u8], room: &mut [u8], _: bool) -> Option<usize> {
        TABLE.with_borrow_mut(|table| compress_into_with_table(content, room, table).ok())
    }

    fn decompress(&self, encoded: &[u8], room: &mut [u8]) -> Option<usize> {
        decompress_into(encoded, room).ok()
    }
}
