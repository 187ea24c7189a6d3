//! Both directions of a compressed channel.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use super::Codec;
use super::decode::Decoder;
use super::encode::Encoder;
use crate::control::Control;
use crate::filter::Filter;
use crate::stream::Stream;

/// One end of a compressed channel.
#[derive(Debug)]
pub(crate) struct Compression<C> {
    codec: C,
    encoder: Encoder,
    decoder: Decoder,
    /// This end was closed.
    is_closed: bool,
}

impl<C: Codec> Compression<C> {
    pub(crate) fn new(codec: C) -> Self {
        Self {
            codec,
            encoder: Encoder::default(),
            decoder: Decoder::default(),
            is_closed: false,
        }
    }
}

impl<C: Codec> Filter for Compression<C> {
    fn read(
        &mut self,
        below: &mut Box<dyn Stream>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        self.decoder.read(&self.codec, &mut **below, bufs)
    }

    fn write(&mut self, below: &mut Box<dyn Stream>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.encoder.write(&self.codec, &mut **below, bufs)
    }

    fn flush(&mut self, below: &mut Box<dyn Stream>) -> io::Result<()> {
        self.encoder.flush(&mut **below)?;
        below.flush()
    }

    fn has_unflushed(&self) -> bool {
        !self.encoder.is_empty()
    }

    fn held_bytes(&self) -> usize {
        self.decoder.held_bytes()
    }

    fn close(&mut self, below: &mut Box<dyn Stream>) -> io::Result<()> {
        self.is_closed = true;
        // A block that isn't written to its end reads as a cut-off stream.
        let _ = self.encoder.flush(&mut **below);
        below.close()
    }

    /// Of the sending direction: bytes of content, of the blocks that they became, the ratio of
    /// both (1 before the first block), and the number of stored blocks.
    fn controls(&self, out: &mut Vec<Control>) {
        let Encoder {
            content_bytes,
            encoded_bytes,
            stored,
            ..
        } = self.encoder;
        let ratio = match encoded_bytes {
            0 => 1.0,
            encoded => content_bytes as f64 / encoded as f64,
        };
        out.push(Control::new(C::NAME, "ratio", ratio));
        out.push(Control::new(C::NAME, "in", content_bytes));
        out.push(Control::new(C::NAME, "out", encoded_bytes));
        out.push(Control::new(C::NAME, "stored", stored));
    }
}
