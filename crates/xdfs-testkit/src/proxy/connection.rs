//! The sockets of one connection.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;

/// How often a thread that sleeps or is blocked looks whether its connection was cut.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Makes the last close of a socket a reset.
pub(super) fn reset_on_close(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

/// Both sockets of a connection, and how it stands.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: TcpStream,
    pub(super) server: TcpStream,
    /// Reset, or about to be.
    cut: AtomicBool,
    /// Both writing sides were ended by the plan; what still comes is thrown away.
    closing: AtomicBool,
    /// Nothing goes through.
    pub(super) hung: AtomicBool,
    /// Directions that have ended.
    pub(super) ended: AtomicU64,
}

impl Connection {
    pub(super) fn new(client: TcpStream, server: TcpStream) -> io::Result<Self> {
        for socket in [&client, &server] {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(LOOK))?;
            socket.set_write_timeout(Some(LOOK))?;
        }
        let off = || AtomicBool::new(false);
        let (cut, closing, hung) = (off(), off(), off());
        Ok(Self {
            client,
            server,
            cut,
            closing,
            hung,
            ended: AtomicU64::new(0),
        })
    }

    /// Whether its threads run.
    pub(super) fn is_live(&self) -> bool {
        !self.is_cut() && self.ended.load(Ordering::Acquire) < 2
    }

    /// Whether bytes may still pass.
    pub(super) fn is_open(&self) -> bool {
        self.is_live() && !self.is_closing()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Resets both sides as soon as both threads have let go of the sockets, which is within
    /// [`LOOK`].
    pub(super) fn cut(&self) {
        for socket in [&self.client, &self.server] {
            reset_on_close(socket);
        }
        self.cut.store(true, Ordering::Release);
    }

    /// Ends both sides in an orderly way. The sockets stay until the peers have ended too: closing
    /// one with bytes unread would be a reset.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        for socket in [&self.client, &self.server] {
            let _ = socket.shutdown(Shutdown::Write);
        }
    }
}
