//! One end of a channel with a poller of its own. Waits are for events only, and bounded.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use xdfs_sys::poll::{Poller, Token};
use xdfs_xio::{ControlValue, Listener, Stream};

/// Longest time without an event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct End {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) poller: Poller,
}

impl End {
    pub(crate) fn new(mut stream: Box<dyn Stream>) -> Self {
        let mut poller = Poller::new().unwrap();
        stream.register(&mut poller, Token(3)).unwrap();
        Self { stream, poller }
    }

    pub(crate) fn until<T>(
        &mut self,
        mut call: impl FnMut(&mut dyn Stream) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call(&mut *self.stream) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => await_event(&mut self.poller),
                done => return done,
            }
        }
    }

    pub(crate) fn open(&mut self) -> io::Result<()> {
        self.until(|stream| match stream.finish_open()? {
            true => Ok(()),
            false => Err(ErrorKind::WouldBlock.into()),
        })
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let n = self.until(|stream| stream.write_vectored(&[IoSlice::new(bytes)]))?;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    pub(crate) fn read_some(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.until(|stream| stream.read_vectored(&mut [IoSliceMut::new(bytes)]))
    }

    pub(crate) fn read(&mut self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.read_some(bytes)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => bytes = &mut bytes[n..],
            }
        }
        Ok(())
    }

    pub(crate) fn count(&self, control: &str) -> u64 {
        match self.stream.control(control) {
            Some(ControlValue::Count(count)) => count,
            other => panic!("{control} is {other:?}"),
        }
    }
}

pub(crate) fn await_event(poller: &mut Poller) {
    let mut events = Vec::new();
    let start = Instant::now();
    while events.is_empty() {
        let left = PATIENCE.checked_sub(start.elapsed());
        poller
            .wait(&mut events, Some(left.expect("no event came")))
            .unwrap();
    }
}

pub(crate) fn accept(listener: &mut dyn Listener) -> End {
    let mut poller = Poller::new().unwrap();
    listener.register(&mut poller, Token(1)).unwrap();
    loop {
        match listener.accept() {
            Ok(stream) => return End::new(stream),
            Err(e) if e.kind() == ErrorKind::WouldBlock => await_event(&mut poller),
            Err(e) => panic!("{e}"),
        }
    }
}
