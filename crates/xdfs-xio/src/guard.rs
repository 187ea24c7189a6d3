//! The border between the engine and the drivers: a panic in a driver becomes an error of its
//! stream.
//!
//! Every stream and listener of a [`Stack`](crate::Stack) stands behind a guard, so that a fault of
//! one driver ends one channel, and not the thread that serves the others. That is sound, since
//! nothing uses a driver again that has panicked, except to drop it; what drivers share, they keep
//! behind locks that recover from poisoning. The process's panic hook reports the panic itself. A
//! program built with `panic = "abort"` ends.

use std::cell::Cell;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use xdfs_sys::poll::{Poller, Token};

use crate::control::Control;
use crate::endpoint::Endpoint;
use crate::stream::{
    Capabilities, Extension, Listener, Offload, PathSample, Protected, Protection, Stream,
};

/// Calls `work`, code of drivers.
///
/// # Errors
/// It panics.
pub(crate) fn guarded<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> io::Error {
    io::Error::other("internal error: a driver of the channel's stack panicked")
}

/// A stream whose panics are errors.
pub(crate) struct Guarded {
    /// `None` after a panic.
    inner: Option<Box<dyn Stream>>,
    /// A call that can't fail has panicked.
    has_panicked: Cell<bool>,
    /// For a stream that isn't asked any more.
    capabilities: Capabilities,
    peer: String,
}

impl Guarded {
    /// Puts a guard before `inner`.
    pub(crate) fn before(inner: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        guarded(|| {
            let (capabilities, peer) = (inner.capabilities(), inner.peer());
            Ok(Box::new(Self {
                inner: Some(inner),
                has_panicked: Cell::new(false),
                capabilities,
                peer,
            }) as Box<dyn Stream>)
        })
    }

    fn call<T>(&mut self, work: impl FnOnce(&mut dyn Stream) -> io::Result<T>) -> io::Result<T> {
        if self.has_panicked.get() {
            self.give_up();
        }
        let Some(inner) = &mut self.inner else {
            return Err(panicked());
        };
        catch_unwind(AssertUnwindSafe(|| work(&mut **inner))).unwrap_or_else(|_| {
            self.give_up();
            Err(panicked())
        })
    }

    /// Asks what can't fail; `otherwise` of a driver that has panicked, or does so now.
    fn ask<T>(&self, otherwise: T, work: impl FnOnce(&dyn Stream) -> T) -> T {
        let Some(inner) = self.inner.as_ref().filter(|_| !self.has_panicked.get()) else {
            return otherwise;
        };
        catch_unwind(AssertUnwindSafe(|| work(&**inner))).unwrap_or_else(|_| {
            self.has_panicked.set(true);
            otherwise
        })
    }

    fn protected_call<T>(
        &mut self,
        work: impl FnOnce(&mut dyn Protected) -> io::Result<T>,
    ) -> io::Result<T> {
        self.call(|inner| match inner.protected() {
            Some(protected) => work(protected),
            None => Err(io::ErrorKind::Unsupported.into()),
        })
    }

    fn give_up(&mut self) {
        drop_guarded(self.inner.take());
    }
}

/// Drops a driver. What it holds is lost if it panics even there.
fn drop_guarded<T>(inner: Option<T>) {
    // The panic hook has reported it, and there is nothing left to fail.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(inner)));
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.give_up();
    }
}

// A method that isn't passed on would be lost for all stacks.
#[deny(clippy::missing_trait_methods)]
impl Stream for Guarded {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.call(|inner| inner.read_vectored(bufs))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.call(|inner| inner.write_vectored(bufs))
    }

    fn lend(
        &mut self,
        first: &[IoSlice<'_>],
        memory: &Arc<Vec<u8>>,
        range: Range<usize>,
    ) -> io::Result<Option<usize>> {
        self.call(|inner| inner.lend(first, memory, range))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.call(|inner| inner.flush())
    }

    fn has_unflushed(&self) -> bool {
        self.ask(false, |inner| inner.has_unflushed())
    }

    fn held_bytes(&self) -> usize {
        self.ask(0, |inner| inner.held_bytes())
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        self.call(|inner| inner.finish_open())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.call(|inner| inner.finish())
    }

    fn close(&mut self) -> io::Result<()> {
        self.call(|inner| inner.close())
    }

    fn abort(&mut self) {
        // A driver that panics is dropped, which is as abrupt.
        let _ = self.call(|inner| {
            inner.abort();
            Ok(())
        });
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.call(|inner| inner.register(poller, token))
    }

    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()> {
        self.call(|inner| inner.deregister(poller))
    }

    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        self.call(|inner| inner.set_window(bytes))
    }

    fn measure(&self) -> Option<PathSample> {
        self.ask(None, |inner| inner.measure())
    }

    fn suit_long_path(&mut self) -> io::Result<()> {
        self.call(|inner| inner.suit_long_path())
    }

    fn set_pace(&mut self, bytes_per_s: Option<u64>) -> io::Result<()> {
        self.call(|inner| inner.set_pace(bytes_per_s))
    }

    fn admit(&mut self) {
        // The next read or write reports a panic.
        let _ = self.call(|inner| {
            inner.admit();
            Ok(())
        });
    }

    #[cfg(unix)]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        let inner = self.inner.as_ref().filter(|_| !self.has_panicked.get())?;
        catch_unwind(AssertUnwindSafe(|| inner.descriptor())).unwrap_or_else(|_| {
            self.has_panicked.set(true);
            None
        })
    }

    fn capabilities(&self) -> Capabilities {
        self.ask(self.capabilities, |inner| inner.capabilities())
    }

    fn protection(&self) -> Option<Protection> {
        self.ask(None, |inner| inner.protection())
    }

    fn peer(&self) -> String {
        self.ask(self.peer.clone(), |inner| inner.peer())
    }

    fn controls(&self, out: &mut Vec<Control>) {
        let controls = self.ask(Vec::new(), |inner| {
            let mut all = Vec::new();
            inner.controls(&mut all);
            all
        });
        out.extend(controls);
    }

    fn extension(&mut self) -> Extension<'_> {
        let is_protected = self.call(|inner| Ok(inner.protected().is_some()));
        if is_protected.as_ref().is_ok_and(|is| *is) {
            return Extension::Protected(self);
        }
        match &mut self.inner {
            Some(inner) if is_protected.is_ok() => inner.extension(),
            _ => Extension::None,
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Protected for Guarded {
    fn read_cleartext(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.protected_call(|inner| inner.read_cleartext(bufs))
    }

    fn write_cleartext(
        &mut self,
        protected: &[IoSlice<'_>],
        cleartext: &[u8],
    ) -> io::Result<usize> {
        self.protected_call(|inner| inner.write_cleartext(protected, cleartext))
    }

    fn offload(&mut self) {
        // The next read or write reports a panic.
        let _ = self.protected_call(|inner| {
            inner.offload();
            Ok(())
        });
    }

    fn offloaded(&mut self) -> Offload {
        let offloaded = self.protected_call(|inner| Ok(inner.offloaded()));
        offloaded.unwrap_or_default()
    }

    fn is_worn(&mut self) -> bool {
        // A channel that panicked is replaced because of that.
        self.protected_call(|inner| Ok(inner.is_worn()))
            .unwrap_or(false)
    }
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Some(inner) => inner.fmt(f),
            None => f.write_str("a stream that panicked"),
        }
    }
}

/// A listener whose panics are errors.
#[derive(Debug)]
pub(crate) struct GuardedListener {
    /// `None` after a panic.
    inner: Option<Box<dyn Listener>>,
    local: Endpoint,
}

impl GuardedListener {
    /// Puts a guard before `inner`.
    pub(crate) fn before(inner: Box<dyn Listener>) -> io::Result<Box<dyn Listener>> {
        guarded(|| {
            let local = inner.local_endpoint();
            let inner = Some(inner);
            Ok(Box::new(Self { inner, local }) as Box<dyn Listener>)
        })
    }

    fn call<T>(&mut self, work: impl FnOnce(&mut dyn Listener) -> io::Result<T>) -> io::Result<T> {
        let Some(inner) = &mut self.inner else {
            return Err(panicked());
        };
        catch_unwind(AssertUnwindSafe(|| work(&mut **inner))).unwrap_or_else(|_| {
            drop_guarded(self.inner.take());
            Err(panicked())
        })
    }
}

impl Drop for GuardedListener {
    fn drop(&mut self) {
        drop_guarded(self.inner.take());
    }
}

#[deny(clippy::missing_trait_methods)]
impl Listener for GuardedListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        self.call(|inner| inner.accept())
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.call(|inner| inner.register(poller, token))
    }

    fn local_endpoint(&self) -> Endpoint {
        self.local.clone()
    }
}
