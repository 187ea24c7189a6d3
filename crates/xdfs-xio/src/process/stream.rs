//! A running program.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};

use mio::Interest;
use mio::unix::SourceFd;
use mio::unix::pipe::{Receiver, Sender};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use xdfs_sys::poll::{Poller, Token};

use crate::control::Control;
use crate::socket::uninterrupted;
use crate::stream::{Capabilities, Stream};

/// A program and both its pipes.
#[derive(Debug)]
pub struct ProcessStream {
    child: Child,
    /// `None` once it is closed.
    input: Option<Sender>,
    output: Receiver,
    /// Readable when the program has ended.
    end: OwnedFd,
    status: Option<ExitStatus>,
    program: String,
}

impl ProcessStream {
    /// Starts the program `words[0]` with the other words as its arguments.
    ///
    /// # Errors
    /// No such program, no permission, no words, or no descriptors or processes left.
    pub fn start(words: &[String]) -> io::Result<Self> {
        let (program, arguments) = words.split_first().ok_or(ErrorKind::InvalidInput)?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("starting '{program}': {e}")))?;
        match Self::prepare(&mut child) {
            Ok((input, output, end)) => Ok(Self {
                child,
                input: Some(input),
                output,
                end,
                status: None,
                program: program.clone(),
            }),
            Err(e) => {
                stop(&mut child);
                Err(e)
            }
        }
    }

    fn prepare(child: &mut Child) -> io::Result<(Sender, Receiver, OwnedFd)> {
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ErrorKind::BrokenPipe.into());
        };
        let (input, output) = (Sender::from(input), Receiver::from(output));
        // The program's own ends stay as they are.
        input.set_nonblocking(true)?;
        output.set_nonblocking(true)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(ErrorKind::InvalidData)?;
        Ok((input, output, pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// The end of reading: `WouldBlock` until the program has ended too.
    fn ended(&mut self) -> io::Result<usize> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        match self.status {
            None => Err(ErrorKind::WouldBlock.into()),
            Some(status) if status.success() => Ok(0),
            Some(status) => {
                let why = format!("the program '{}' failed: {status}", self.program);
                Err(io::Error::other(why))
            }
        }
    }
}

/// Ends a program and reaps it. It can't refuse the signal.
fn stop(child: &mut Child) {
    // Fails only if it has ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

impl Stream for ProcessStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match uninterrupted(|| self.output.read_vectored(bufs))? {
            0 if bufs.iter().any(|buf| !buf.is_empty()) => self.ended(),
            n => Ok(n),
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let input = self.input.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        uninterrupted(|| input.write_vectored(bufs))
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn close(&mut self) -> io::Result<()> {
        self.input = None;
        Ok(())
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let (registry, token) = (poller.registry(), mio::Token(token.0));
        registry.register(&mut self.output, token, Interest::READABLE)?;
        let end = self.end.as_raw_fd();
        registry.register(&mut SourceFd(&end), token, Interest::READABLE)?;
        match &mut self.input {
            Some(input) => registry.register(input, token, Interest::WRITABLE),
            None => Ok(()),
        }
    }

    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()> {
        let registry = poller.registry();
        registry.deregister(&mut self.output)?;
        registry.deregister(&mut SourceFd(&self.end.as_raw_fd()))?;
        match &mut self.input {
            Some(input) => registry.deregister(input),
            None => Ok(()),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: false,
            local: true,
        }
    }

    fn peer(&self) -> String {
        format!("process:{}", self.program)
    }

    /// `status` is there once the program has ended and its output was read to the end.
    fn controls(&self, out: &mut Vec<Control>) {
        out.push(Control::new("process", "id", u64::from(self.child.id())));
        if let Some(status) = self.status {
            out.push(Control::new("process", "status", status.to_string()));
        }
    }
}

impl Drop for ProcessStream {
    fn drop(&mut self) {
        if self.status.is_none() {
            stop(&mut self.child);
        }
    }
}
