//! One end of a channel with digests.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};

use aws_lc_rs::digest::{Context, SHA256};
use crc_fast::CrcAlgorithm;

use crate::control::Control;
use crate::filter::{Filter, first, first_mut};
use crate::stream::Stream;

/// Bytes of a call to the stream below. What it has just copied is still in the cache of the core
/// when the digest reads it; of larger pieces it would have to come from memory once more.
const PIECE_BYTES: usize = 512 << 10;

/// An algorithm.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Kind {
    /// The whole-file digest of a transfer, as S3 uses it.
    #[default]
    Crc64Nvme,
    Blake3,
    Sha256,
}

/// One end of a channel with digests.
#[derive(Debug)]
pub(super) struct Digest {
    sent: State,
    received: State,
}

/// A digest so far.
enum State {
    Crc64Nvme(Box<crc_fast::Digest>),
    Blake3(Box<blake3::Hasher>),
    Sha256(Context),
}

impl Digest {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            sent: State::new(kind),
            received: State::new(kind),
        }
    }
}

impl State {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Crc64Nvme => {
                Self::Crc64Nvme(Box::new(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme)))
            }
            Kind::Blake3 => Self::Blake3(Box::default()),
            Kind::Sha256 => Self::Sha256(Context::new(&SHA256)),
        }
    }

    /// Adds the first `len` bytes of `slices`.
    fn add<'a>(&mut self, slices: impl Iterator<Item = &'a [u8]>, len: usize) {
        let mut left = len;
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            left -= part.len();
            match self {
                Self::Crc64Nvme(state) => state.update(part),
                Self::Blake3(state) => drop(state.update(part)),
                Self::Sha256(state) => state.update(part),
            }
        }
    }

    /// In hex.
    fn text(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect();
        match self {
            Self::Crc64Nvme(state) => format!("{:016x}", state.finalize()),
            Self::Blake3(state) => state.finalize().to_string(),
            Self::Sha256(state) => hex(state.clone().finish().as_ref()),
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl Filter for Digest {
    fn read(
        &mut self,
        below: &mut Box<dyn Stream>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let n = match len > PIECE_BYTES {
            true => below.read_vectored(&mut first_mut(bufs, PIECE_BYTES))?,
            false => below.read_vectored(bufs)?,
        };
        self.received.add(bufs.iter().map(|buf| &**buf), n);
        Ok(n)
    }

    fn write(&mut self, below: &mut Box<dyn Stream>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let n = match len > PIECE_BYTES {
            true => below.write_vectored(&first(bufs, PIECE_BYTES))?,
            false => below.write_vectored(bufs)?,
        };
        self.sent.add(bufs.iter().map(|buf| &**buf), n);
        Ok(n)
    }

    /// The digests so far, in hex.
    fn controls(&self, out: &mut Vec<Control>) {
        out.push(Control::new("digest", "sent", self.sent.text()));
        out.push(Control::new("digest", "received", self.received.text()));
    }
}
