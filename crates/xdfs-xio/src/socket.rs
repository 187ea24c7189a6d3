//! Code shared by the socket drivers.

use std::io;

use socket2::SockRef;

/// Length of the queue for [`crate::Listener::accept`]. A session opens all its channels at once,
/// often a thousand; the system may reduce it (`net.core.somaxconn` on Linux).
pub(crate) const BACKLOG: i32 = 4096;

/// Repeats `call` after interruptions by signals, so that callers only handle `WouldBlock`.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Ends the writing side of a socket. A lost connection has nothing left to end, and its reader
/// gets the reason.
pub(crate) fn shut_writing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()),
        done => done,
    }
}

/// Whether a pending connection is established, from the pending error of its socket and the result
/// of querying the peer's address.
pub(crate) fn connected<A>(
    pending: Option<io::Error>,
    peer: io::Result<A>,
) -> io::Result<Option<A>> {
    if let Some(e) = pending {
        return Err(e);
    }
    match peer {
        Ok(addr) => Ok(Some(addr)),
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(None),
        Err(e) => Err(e),
    }
}

/// Sets both buffers of a socket, in bytes.
pub(crate) fn set_buffers(socket: &SockRef<'_>, bytes: u32) -> io::Result<()> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    socket.set_send_buffer_size(bytes)?;
    socket.set_recv_buffer_size(bytes)
}
