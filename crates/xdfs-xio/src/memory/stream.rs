//! An open channel in memory.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use xdfs_sys::poll::{Poller, Token};

use super::pipe::{Pipe, Wake};
use crate::stream::{Capabilities, Stream};

/// One end of a channel in memory.
///
/// Dropping it ends both directions. The peer reads what was written, and then the end, or a reset
/// if this end had unread bytes; writes of the peer fail.
#[derive(Debug)]
pub struct MemoryStream {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    peer: String,
}

impl MemoryStream {
    /// Both ends of a new channel, the connecting one first, each with the name of the other.
    pub(super) fn pair(listener: String, client: String) -> (Self, Self) {
        let (up, down) = (Arc::new(Pipe::default()), Arc::new(Pipe::default()));
        let near = Self {
            incoming: Arc::clone(&down),
            outgoing: Arc::clone(&up),
            peer: listener,
        };
        (
            near,
            Self {
                incoming: up,
                outgoing: down,
                peer: client,
            },
        )
    }
}

impl Stream for MemoryStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.incoming.read(bufs)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.outgoing.write(bufs)
    }

    fn lend(
        &mut self,
        first: &[IoSlice<'_>],
        memory: &Arc<Vec<u8>>,
        range: Range<usize>,
    ) -> io::Result<Option<usize>> {
        self.outgoing.lend(first, memory, range).map(Some)
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn close(&mut self) -> io::Result<()> {
        self.outgoing.close().send();
        Ok(())
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let reader: Wake = self.incoming.register_reader(poller.notifier(), token);
        reader
            .merge(self.outgoing.register_writer(poller.notifier(), token))
            .send();
        Ok(())
    }

    /// Withdraws the registration. Events already injected may still be reported.
    fn deregister(&mut self, _: &mut Poller) -> io::Result<()> {
        self.incoming.deregister_reader();
        self.outgoing.deregister_writer();
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: true,
            local: true,
        }
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        // Deregister first: events from here on are not for this end.
        self.incoming.deregister_reader();
        self.outgoing.deregister_writer();
        let (writer, unread) = self.incoming.abandon();
        let reader = if unread {
            self.outgoing.reset()
        } else {
            self.outgoing.close()
        };
        reader.merge(writer).send();
    }
}
