//! Standard input and output, pipes, and anything else that is read or written once in order.
//!
//! Reads and writes here block until the other end is ready, since no readiness mechanism for
//! streams works on every system.

mod sink;
mod source;

pub use sink::{REORDER_BYTES_MAX, StreamSink};
pub use source::StreamSource;

use std::io;

use xdfs_proto::{Code, Fault, Side};

/// The cause of a fault whose stream has no reader any more.
const UNREAD: &str = "the program that reads the output has ended";

/// The fault of a stream: a broken pipe is no lost connection.
#[must_use]
pub fn fault(operation: &str, name: &str, error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Fault::new(Code::Io, operation, UNREAD).path(name),
        _ => Fault::from_io(operation, name, error),
    }
}

/// Whether the fault is that of a stream on this side without a reader, which has ended: it may
/// have read as much as it wanted.
#[must_use]
pub fn is_unread(fault: &Fault) -> bool {
    fault.side == Side::Local && fault.code == Code::Io && fault.cause == UNREAD
}
