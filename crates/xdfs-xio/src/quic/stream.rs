//! An open QUIC stream.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use xdfs_sys::poll::{Poller, Token};

use super::channel::{Channel, Found};
use crate::control::{Control, ControlValue};
use crate::stream::{Capabilities, PathSample, Protection, Stream};

/// One end of a QUIC stream, open or being opened.
///
/// Dropping it ends both directions. The peer reads what was written, and then the end, or a reset
/// if this end had unread bytes; writes of the peer fail.
#[derive(Debug)]
pub(super) struct QuicStream {
    channel: Arc<Channel>,
    /// Received bytes that were taken from the channel.
    received: VecDeque<Bytes>,
    peer: String,
}

impl QuicStream {
    pub(super) fn new(channel: Arc<Channel>, peer: String) -> Self {
        let received = VecDeque::new();
        Self {
            channel,
            received,
            peer,
        }
    }

    /// Copies received bytes to `bufs` from byte `at` on, and returns their number.
    fn copy(&mut self, bufs: &mut [IoSliceMut<'_>], mut at: usize) -> usize {
        let mut copied = 0;
        for buf in bufs {
            let skipped = at.min(buf.len());
            at -= skipped;
            let mut room = &mut buf[skipped..];
            while !room.is_empty() {
                let Some(front) = self.received.front_mut() else {
                    return copied;
                };
                let count = front.len().min(room.len());
                front.copy_to_slice(&mut room[..count]);
                if front.is_empty() {
                    self.received.pop_front();
                }
                room = &mut room[count..];
                copied += count;
            }
        }
        copied
    }
}

impl Stream for QuicStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut total = 0;
        loop {
            total += self.copy(bufs, total);
            if total == wanted {
                return Ok(total);
            }
            match self.channel.take_incoming(&mut self.received) {
                Ok(Found::Some) => {}
                // The end, or its cause, is told again.
                _ if total > 0 => return Ok(total),
                Ok(Found::End) => return Ok(0),
                Ok(Found::Nothing) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(e) => return Err(e),
            }
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.channel.write(bufs)
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        self.channel.finish_open()
    }

    fn close(&mut self) -> io::Result<()> {
        self.channel.close();
        Ok(())
    }

    fn abort(&mut self) {
        self.channel.abort();
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let holds = !self.received.is_empty();
        self.channel.register(poller.notifier(), token, holds);
        Ok(())
    }

    /// Withdraws the registration. Events already injected may still be reported.
    fn deregister(&mut self, _: &mut Poller) -> io::Result<()> {
        self.channel.deregister();
        Ok(())
    }

    /// Times are those of the connection, which its streams share. Bytes are this stream's: those
    /// that the connection took, and its share of those that it lost.
    fn measure(&self) -> Option<PathSample> {
        self.channel.sample()
    }

    /// The pace is this stream's alone. Its bytes reach the connection at this rate; what the
    /// connection sends again isn't counted.
    fn set_pace(&mut self, bytes_per_s: Option<u64>) -> io::Result<()> {
        self.channel.set_pace(bytes_per_s);
        Ok(())
    }

    /// Its connection may have all streams and bytes that are configured, from now on.
    fn admit(&mut self) {
        self.channel.admit();
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: true,
            local: self.channel.facts().is_some_and(|facts| facts.local),
        }
    }

    fn protection(&self) -> Option<Protection> {
        Some(self.channel.facts()?.protection())
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn controls(&self, out: &mut Vec<Control>) {
        let mut add = |name, value: ControlValue| out.push(Control::new("quic", name, value));
        let Some(facts) = self.channel.facts() else {
            return;
        };
        let stats = facts.counters.stats();
        add("version", 1.into());
        add("rtt", stats.path.rtt.into());
        add("rtt_min", stats.path.min_rtt.into());
        add(
            "congestion",
            facts.counters.congestion.as_str().to_owned().into(),
        );
        add("congestion_window", stats.path.cwnd.into());
        add("sent", stats.udp_tx.bytes.into());
        add("sent_packets", stats.path.sent_packets.into());
        add("lost", stats.path.lost_bytes.into());
        add("lost_packets", stats.path.lost_packets.into());
        add("mtu", u64::from(stats.path.current_mtu).into());
    }
}

impl Drop for QuicStream {
    fn drop(&mut self) {
        self.channel.abandon(!self.received.is_empty());
    }
}
