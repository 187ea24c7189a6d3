//! Two descriptors, one for each direction.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use mio::Interest;
use mio::unix::SourceFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use xdfs_sys::poll::{Event, Poller, Token};
use xdfs_sys::standard::is_output_closed;

use crate::socket::uninterrupted;
use crate::stream::{Capabilities, Stream};

/// What a pipe takes at once if it takes anything: PIPE_BUF on Linux, and more than POSIX demands.
#[cfg(target_os = "linux")]
const AT_ONCE: usize = 4096;
/// The least PIPE_BUF that POSIX allows.
#[cfg(not(target_os = "linux"))]
const AT_ONCE: usize = 512;

/// A stream over two descriptors whose mode isn't changed.
#[derive(Debug)]
pub struct StdioStream {
    input: File,
    /// `None` once it is closed.
    output: Option<File>,
    /// The output is a file, which takes everything at once.
    is_file: bool,
}

impl StdioStream {
    /// Copies of the standard input and output of this process.
    ///
    /// # Errors
    /// One of them is closed, or no descriptors are left.
    pub fn of_process() -> io::Result<Self> {
        if is_output_closed() {
            return Err(io::Error::other("standard output is closed"));
        }
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        Self::new(input, output)
    }

    /// A stream that reads from `input` and writes to `output`.
    ///
    /// # Errors
    /// The system doesn't tell what `output` is.
    pub fn new(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        let output = File::from(output);
        let is_file = output.metadata()?.is_file();
        Ok(Self {
            input: input.into(),
            output: Some(output),
            is_file,
        })
    }
}

/// Whether a call for `flags` would not have to wait.
fn check_ready(descriptor: BorrowedFd<'_>, flags: PollFlags) -> io::Result<()> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let ready = uninterrupted(|| {
        Ok(poll(
            &mut [PollFd::from_borrowed_fd(descriptor, flags)],
            Some(&now),
        )?)
    })?;
    match ready {
        0 => Err(ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// Registers a descriptor, or reports it as ready if it always is: epoll refuses files (EPERM).
fn register(
    descriptor: &File,
    poller: &Poller,
    token: Token,
    interest: Interest,
) -> io::Result<()> {
    let raw = descriptor.as_raw_fd();
    let registered = poller
        .registry()
        .register(&mut SourceFd(&raw), mio::Token(token.0), interest);
    match registered {
        Err(e) if e.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            poller.notifier().notify(Event {
                token,
                readable: interest.is_readable(),
                writable: interest.is_writable(),
            });
            Ok(())
        }
        done => done,
    }
}

impl Stream for StdioStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        check_ready(self.input.as_fd(), PollFlags::IN)?;
        uninterrupted(|| self.input.read_vectored(bufs))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let output = self.output.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        check_ready(output.as_fd(), PollFlags::OUT)?;
        if self.is_file {
            return uninterrupted(|| output.write_vectored(bufs));
        }
        let Some(buf) = bufs.iter().find(|buf| !buf.is_empty()) else {
            return Ok(0);
        };
        let part = &buf[..buf.len().min(AT_ONCE)];
        uninterrupted(|| output.write(part))
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn close(&mut self) -> io::Result<()> {
        self.output = None;
        Ok(())
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        register(&self.input, poller, token, Interest::READABLE)?;
        match &self.output {
            Some(output) => register(output, poller, token, Interest::WRITABLE),
            None => Ok(()),
        }
    }

    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()> {
        for descriptor in [Some(&self.input), self.output.as_ref()]
            .into_iter()
            .flatten()
        {
            // A file was never registered.
            let _ = poller
                .registry()
                .deregister(&mut SourceFd(&descriptor.as_raw_fd()));
        }
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: false,
            local: true,
        }
    }

    fn peer(&self) -> String {
        "stdio:".to_owned()
    }
}
