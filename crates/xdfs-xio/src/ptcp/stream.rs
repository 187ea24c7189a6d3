//! A bundle as one stream.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use xdfs_sys::poll::{Poller, Token};

use super::core::{Core, Shared};
use super::service;
use crate::control::{Control, ControlValue};
use crate::stream::{Capabilities, PathSample, Protection, Stream};

/// One end of a bundle, open or on its way to it.
///
/// Dropping it ends both directions. The peer reads what was written, and then the end; its writes
/// fail. After [`Stream::abort`] the peer's reads fail too, whatever was written.
#[derive(Debug)]
pub(super) struct BundleStream {
    shared: Arc<Shared>,
}

impl BundleStream {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Makes a call, and has the service thread look after what needs time then.
    fn call<T>(&self, call: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.shared.core();
        let result = call(&mut core);
        let begins = core.begins_service();
        drop(core);
        if begins {
            service::watch(&self.shared);
        }
        result
    }
}

impl Stream for BundleStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.call(|core| core.read(bufs))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.call(|core| core.write(bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.call(Core::flush)
    }

    fn has_unflushed(&self) -> bool {
        self.shared.core().has_unflushed()
    }

    fn held_bytes(&self) -> usize {
        let core = self.shared.core();
        let below: usize = core.streams().map(Stream::held_bytes).sum();
        let [_, _, _, held] = core.counts();
        // It was a `usize` before.
        held as usize + below
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        self.shared.core().finish_open()
    }

    fn close(&mut self) -> io::Result<()> {
        self.call(Core::close);
        Ok(())
    }

    fn abort(&mut self) {
        self.shared.core().abort();
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.shared.core().register(poller, token)
    }

    fn deregister(&mut self, _: &mut Poller) -> io::Result<()> {
        self.shared.core().deregister()
    }

    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        self.shared.core().set_window(bytes)
    }

    /// The sums of its streams, and the rest from the first of them.
    fn measure(&self) -> Option<PathSample> {
        let core = self.shared.core();
        let mut samples = core.streams().filter_map(Stream::measure);
        let first = samples.next()?;
        Some(samples.fold(first, |all, one| PathSample {
            sent_bytes: all.sent_bytes + one.sent_bytes,
            resent_bytes: all.resent_bytes + one.resent_bytes,
            ..all
        }))
    }

    fn suit_long_path(&mut self) -> io::Result<()> {
        self.shared.core().suit_long_path()
    }

    fn set_pace(&mut self, bytes_per_s: Option<u64>) -> io::Result<()> {
        self.shared.core().set_pace(bytes_per_s)
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.core().first.capabilities
    }

    /// That of the first stream: whoever joined has proved to be an end of it.
    fn protection(&self) -> Option<Protection> {
        self.shared.core().first.protection.clone()
    }

    fn peer(&self) -> String {
        self.shared.core().first.peer.clone()
    }

    fn controls(&self, out: &mut Vec<Control>) {
        let core = self.shared.core();
        let [resent, broken, joined, held] = core.counts();
        let streams = core.streams().count() as u64;
        let all = [
            ("streams", streams),
            ("resent", resent),
            ("broken", broken),
            ("joined", joined),
            ("held", held),
        ];
        for (name, count) in all {
            out.push(Control::new("ptcp", name, ControlValue::Count(count)));
        }
        if let Some(first) = core.streams().next() {
            first.controls(out);
        }
    }
}

impl Drop for BundleStream {
    fn drop(&mut self) {
        if self.shared.core().leave() {
            service::linger(&self.shared);
        }
    }
}
