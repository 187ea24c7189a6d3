//! Standard input and output, pipes, and whatever else is read or written once from front to back.
//!
//! Reads and writes here wait until the other end of the stream is ready, since a stream has no
//! readiness that works on every system.

mod sink;
mod source;

pub use sink::{REORDER_BYTES_MAX, StreamSink};
pub use source::StreamSource;

use std::io;

use xdfs_proto::{Code, Fault};

/// The fault of a stream: a pipe that broke is no lost connection.
fn fault(operation: &str, name: &str, error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::BrokenPipe => {
            let cause = "the program that reads the output has ended";
            Fault::new(Code::Io, operation, cause).path(name)
        }
        _ => Fault::from_io(operation, name, error),
    }
}
