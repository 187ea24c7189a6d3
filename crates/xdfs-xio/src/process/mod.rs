//! The pipes of a program: what is written is its input, and what is read is its output.
//!
//! Guarantees: order; the end of the output is reported when the program has ended, and as an error
//! if it failed ([`crate::Stream::read_vectored`]). `close` ends its input. Dropping the stream
//! ends the program (SIGKILL) and reaps it; programs that it has started are left alone. To let a
//! program finish, read to the end.
//!
//! The command line is split at blanks, with quotes and backslashes as a shell has them, and runs
//! without a shell unless the attribute `shell` is set. The program's messages (standard error) go
//! where those of this process go. Limit: only on Linux, whose process descriptors report the end;
//! elsewhere `open` returns [`std::io::ErrorKind::Unsupported`].

mod command;
mod driver;
#[cfg(target_os = "linux")]
mod stream;

pub use driver::driver;
#[cfg(target_os = "linux")]
pub use stream::ProcessStream;
