//! Standard input and output, pipes, and anything else that is read or written once in order.
//!
//! Reads and writes here block until the other end is ready, since no readiness mechanism for
//! streams works on every system.

mod sink;
mod source;

pub use sink::{REORDER_BYTES_MAX, StreamSink};
pub use source::StreamSource;

use std::io;

use xdfs_proto::{Code, Fault};

/// The fault of a stream: a broken pipe is no lost connection.
fn fault(operation: &str, name: &str, error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::BrokenPipe => {
            let cause = "the program that reads the output has ended";
            Fault::new(Code::Io, operation, cause).path(name)
        }
        _ => Fault::from_io(operation, name, error),
    }
}
