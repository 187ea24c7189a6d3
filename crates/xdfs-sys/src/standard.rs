//! Standard output, and whether the process was started without it.
//!
//! Before `main`, the standard library opens `/dev/null` in place of standard streams that are
//! closed, so that no other file takes their numbers and gets what is meant for them. Then what is
//! written would be lost without an error. Only a look before that tells the closed ones apart:
//! others start programs with `/dev/null` as well, opened in the same way. On Linux there is such a
//! look; elsewhere standard output never counts as closed.

use std::io::{self, Write};

/// Whether the process was started with standard output closed.
#[must_use]
pub fn is_output_closed() -> bool {
    #[cfg(target_os = "linux")]
    return before_main::WAS_CLOSED.load(std::sync::atomic::Ordering::Relaxed);
    #[cfg(not(target_os = "linux"))]
    false
}

/// Standard output, to which nothing can be written if the process was started with it closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match is_output_closed() {
            true => Err(io::Error::other("it is closed")),
            false => io::stdout().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

#[cfg(target_os = "linux")]
mod before_main {
    use std::sync::atomic::{AtomicBool, Ordering};

    pub(super) static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

    // SAFETY: the section is an array of functions that the C runtime calls one after the other
    // before `main`, with arguments that a function may ignore. This one doesn't unwind, and needs
    // nothing that is set up later: it makes one system call and stores a flag.
    #[unsafe(link_section = ".init_array")]
    #[used]
    static LOOK: extern "C" fn() = look;

    extern "C" fn look() {
        let found = rustix::io::fcntl_getfd(std::io::stdout());
        let is_closed = matches!(found, Err(rustix::io::Errno::BADF));
        WAS_CLOSED.store(is_closed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_have_a_standard_output() {
        assert!(!is_output_closed());
        Output.write_all(b"").unwrap();
        Output.flush().unwrap();
    }
}
