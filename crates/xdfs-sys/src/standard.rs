//! Standard input and output, and whether the process was started without them.
//!
//! Before `main`, the standard library opens `/dev/null` in place of standard streams that are
//! closed, so that no other file takes their numbers and gets what is meant for them. Then what is
//! written would be lost, and what is read would be nothing, without an error. Only a look before
//! that tells the closed ones apart: others start programs with `/dev/null` as well, opened in the
//! same way. On Linux there is such a look; elsewhere they never count as closed.

use std::io::{self, Read, Write};

/// Whether the process was started with standard input closed.
#[must_use]
pub fn is_input_closed() -> bool {
    #[cfg(target_os = "linux")]
    return before_main::was_closed(&before_main::INPUT);
    #[cfg(not(target_os = "linux"))]
    false
}

/// Whether the process was started with standard output closed.
#[must_use]
pub fn is_output_closed() -> bool {
    #[cfg(target_os = "linux")]
    return before_main::was_closed(&before_main::OUTPUT);
    #[cfg(not(target_os = "linux"))]
    false
}

/// Standard input, of which nothing can be read if the process was started with it closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Input;

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match is_input_closed() {
            true => Err(closed()),
            false => io::stdin().read(bytes),
        }
    }
}

fn closed() -> io::Error {
    io::Error::other("it is closed")
}

/// Standard output, to which nothing can be written if the process was started with it closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match is_output_closed() {
            true => Err(closed()),
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

    pub(super) static INPUT: AtomicBool = AtomicBool::new(false);
    pub(super) static OUTPUT: AtomicBool = AtomicBool::new(false);

    pub(super) fn was_closed(stream: &AtomicBool) -> bool {
        stream.load(Ordering::Relaxed)
    }

    // SAFETY: the section is an array of functions that the C runtime calls one after the other
    // before `main`, with arguments that a function may ignore. This one doesn't unwind, and needs
    // nothing that is set up later: it makes two system calls and stores two flags.
    #[unsafe(link_section = ".init_array")]
    #[used]
    static LOOK: extern "C" fn() = look;

    extern "C" fn look() {
        let is_closed = |found| matches!(found, Err(rustix::io::Errno::BADF));
        let input = is_closed(rustix::io::fcntl_getfd(std::io::stdin()));
        let output = is_closed(rustix::io::fcntl_getfd(std::io::stdout()));
        INPUT.store(input, Ordering::Relaxed);
        OUTPUT.store(output, Ordering::Relaxed);
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
