//! Single blocks by zstd.

use std::cell::RefCell;

use ::zstd::bulk::{Compressor, Decompressor};

use crate::compress::Codec;

/// The level of trials, whatever the level of the driver: a trial at a high one takes longer than
/// the content that it is for.
const QUICK_LEVEL: i32 = 1;

thread_local! {
    /// The contexts of this thread, with the level of the last block.
    static COMPRESSOR: RefCell<Option<(Compressor<'static>, i32)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compression at a level from 1 to 19.
#[derive(Debug)]
pub(crate) struct Zstd {
    pub(crate) level: i32,
}

impl Codec for Zstd {
    const NAME: &'static str = "zstd";

    fn compress(&self, content: &[u8], room: &mut [u8], quick: bool) -> Option<usize> {
        let level = if quick { QUICK_LEVEL } else { self.level };
        COMPRESSOR.with_borrow_mut(|context| {
            if context.as_ref().is_none_or(|(_, last)| *last != level) {
                *context = match context.take() {
                    Some((mut compressor, _)) => {
                        compressor.set_compression_level(level).ok()?;
                        Some((compressor, level))
                    }
                    None => Some((Compressor::new(level).ok()?, level)),
                };
            }
            let (compressor, _) = context.as_mut()?;
            compressor.compress_to_buffer(content, room).ok()
        })
    }

    fn decompress(&self, encoded: &[u8], room: &mut [u8]) -> Option<usize> {
        DECOMPRESSOR.with_borrow_mut(|context| {
            if context.is_none() {
                *context = Decompressor::new().ok();
            }
            let decompressor = context.as_mut()?;
            decompressor.decompress_to_buffer(encoded, room).ok()
        })
    }
}
