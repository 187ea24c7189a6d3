//! One end of a buffered channel.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use crate::control::Control;
use crate::filter::Filter;
use crate::stream::Stream;
use crate::transform::{Room, read_once, write_once};

/// One end of a buffered channel. A buffer is allocated when it is first used, and then kept.
#[derive(Debug)]
pub(super) struct Buffer {
    size: usize,
    /// Bytes to be written, from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    /// Bytes read ahead, from `ahead_at` to `ahead_end`.
    ahead: Vec<u8>,
    ahead_at: usize,
    ahead_end: usize,
    is_closed: bool,
    gathered: u64,
    writes: u64,
}

impl Buffer {
    pub(super) fn new(size: usize) -> Self {
        Self {
            size,
            out: Vec::new(),
            out_at: 0,
            ahead: Vec::new(),
            ahead_at: 0,
            ahead_end: 0,
            is_closed: false,
            gathered: 0,
            writes: 0,
        }
    }

    /// Writes what was gathered. `WouldBlock` if the stream below doesn't accept all of it.
    fn write_out(&mut self, below: &mut dyn Stream) -> io::Result<()> {
        while self.out_at < self.out.len() {
            self.out_at += write_once(below, &[IoSlice::new(&self.out[self.out_at..])])?;
            self.writes += 1;
        }
        self.out.clear();
        self.out_at = 0;
        Ok(())
    }
}

impl Filter for Buffer {
    fn read(
        &mut self,
        below: &mut Box<dyn Stream>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let room: usize = bufs.iter().map(|buf| buf.len()).sum();
        if self.ahead_at == self.ahead_end {
            if room == 0 || room >= self.size {
                return below.read_vectored(bufs);
            }
            self.ahead.resize(self.size, 0);
            let n = read_once(&mut **below, &mut [IoSliceMut::new(&mut self.ahead)])?;
            (self.ahead_at, self.ahead_end) = (0, n);
        }
        let n = Room::new(bufs).put(&self.ahead[self.ahead_at..self.ahead_end]);
        self.ahead_at += n;
        Ok(n)
    }

    fn write(&mut self, below: &mut Box<dyn Stream>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let held = self.out.len() - self.out_at;
        if held + len > self.size || held == self.size {
            self.write_out(&mut **below)?;
        }
        if len >= self.size {
            let n = below.write_vectored(bufs)?;
            self.writes += 1;
            return Ok(n);
        }
        for part in bufs {
            self.out.extend_from_slice(part);
        }
        self.gathered += u64::from(len > 0);
        Ok(len)
    }

    fn flush(&mut self, below: &mut Box<dyn Stream>) -> io::Result<()> {
        self.write_out(&mut **below)?;
        below.flush()
    }

    fn has_unflushed(&self) -> bool {
        !self.out.is_empty()
    }

    fn held_bytes(&self) -> usize {
        self.ahead_end - self.ahead_at
    }

    fn close(&mut self, below: &mut Box<dyn Stream>) -> io::Result<()> {
        self.is_closed = true;
        let flushed = self.write_out(&mut **below);
        below.close()?;
        // What wasn't accepted is lost, and the peer can't tell.
        flushed
    }

    /// The writes that were gathered, and those that the stream below got.
    fn controls(&self, out: &mut Vec<Control>) {
        out.push(Control::new("buffer", "gathered", self.gathered));
        out.push(Control::new("buffer", "writes", self.writes));
    }
}
