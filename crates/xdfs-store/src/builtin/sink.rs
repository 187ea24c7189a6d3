//! `mem:null`.

use std::io::IoSlice;

use xdfs_proto::Fault;
use xdfs_proto::digest::Fragment;

use crate::{Capabilities, Sink};

/// Discards everything.
#[derive(Debug, Default)]
pub struct NullSink(());

impl NullSink {
    /// A sink that discards everything.
    #[must_use]
    pub fn new() -> Self {
        Self(())
    }
}

impl Sink for NullSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: false,
            durable: false,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let _ = (offset, bufs);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        let _ = durable;
        Ok(())
    }

    fn publish(&mut self, length: u64, _fresh: &[Fragment]) -> Result<(), Fault> {
        let _ = length;
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    crate::defaults!(Sink: begin_direct, end_direct, hole, begin_write_back, verify, read_back,
        shared);
}
