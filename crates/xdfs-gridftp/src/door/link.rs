//! What a step of a job works with, and what becomes of it.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use socket2::SockRef;
use xdfs_access::Clock;
use xdfs_proto::RangeSet;
use xdfs_store::rate::Share;
use xdfs_sys::poll::Poller;

use super::channels::Channels;
use crate::session::{Outcome, Session};

/// Time in which the control connection of a killed client ends after its data connection, beside
/// two round trips.
const LATER_END: Duration = Duration::from_millis(20);
/// The same where nobody tells the round-trip time: on some systems, and through ssh, whose
/// processes at both ends take a while too.
const LATER_END_UNKNOWN: Duration = Duration::from_millis(250);

/// What became of a step.
#[derive(Debug)]
pub(super) enum Step {
    /// There is more to do at once.
    Again,
    /// It is finished.
    Done(Outcome),
    /// It waits for data connections.
    Wait,
    /// It waits for the rate limit until then, and no event may come before.
    Paused(Instant),
}

/// Who is told how far a transfer is.
pub(super) trait Told {
    /// So many bytes have moved.
    fn moved(&mut self, bytes: u64);

    /// Whether so much waits to be sent that there should be no more.
    fn is_full(&self) -> bool;

    /// How far a stripe is, as [`Session::progress`] tells it.
    fn progress(&mut self, stripe: (usize, usize), tenths: u64, bytes: u64, durable: &RangeSet);

    /// Bytes that the peer has told of the file beforehand, if it has.
    fn expected(&self) -> Option<u64>;

    /// Whether an end in stream mode may be somebody else's; `is_told` if the peer has told it.
    fn is_unproved(&self, is_told: bool) -> bool;
}

impl Told for Session {
    fn moved(&mut self, bytes: u64) {
        Self::moved(self, bytes);
    }

    fn is_full(&self) -> bool {
        Self::is_full(self)
    }

    fn progress(&mut self, stripe: (usize, usize), tenths: u64, bytes: u64, durable: &RangeSet) {
        Self::progress(self, stripe, tenths, bytes, durable);
    }

    fn expected(&self) -> Option<u64> {
        Self::expected(self)
    }

    fn is_unproved(&self, is_told: bool) -> bool {
        Self::is_unproved(self, is_told)
    }
}

/// What a step works with.
pub(super) struct Link<'a> {
    /// For payload on its way; its length doesn't change.
    pub(super) buffer: &'a mut [u8],
    pub(super) channels: &'a mut Channels,
    pub(super) control: &'a TcpStream,
    pub(super) machine: &'a mut dyn Told,
    pub(super) poller: &'a Poller,
    pub(super) clock: &'a dyn Clock,
    /// The user's rate limit, and when the session began.
    pub(super) share: Option<&'a mut Share>,
    pub(super) started: Instant,
    /// Set when something moved.
    pub(super) has_moved: bool,
    /// Bytes of payload that this step has moved.
    pub(super) moved_bytes: u64,
    /// The rate limit lets nothing pass before, by what this step has seen. It is looked at once:
    /// if it were looked at again after a decision, it could have opened in between, and nothing
    /// would wake the session.
    pub(super) paused_until: Option<Instant>,
}

impl Link<'_> {
    /// Counts bytes of payload.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.has_moved = true;
        self.moved_bytes += bytes;
        self.machine.moved(bytes);
        if let Some(share) = &mut self.share {
            share.take(bytes, self.clock.instant() - self.started);
            self.look_at_limit();
        }
    }

    /// Sees whether the rate limit lets anything pass now.
    pub(super) fn look_at_limit(&mut self) {
        let now = self.clock.instant();
        let delay = self
            .share
            .as_ref()
            .map(|share| share.delay(now - self.started));
        self.paused_until = delay
            .filter(|delay| !delay.is_zero())
            .map(|delay| now + delay);
    }

    /// Whether the rate limit lets nothing more pass in this step.
    pub(super) fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// Whether the client has closed the control connection, or lost it.
    pub(super) fn is_client_gone(&self) -> bool {
        // Behind commands that wait the end isn't read yet.
        if let Ok(has_ended) = xdfs_sys::poll::has_peer_ended(self.control) {
            return has_ended;
        }
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(self.control).peek(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => !matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
            ),
        }
    }

    /// Time after the end of a data connection in which that of the control connection has come
    /// too, if the client was killed.
    pub(super) fn later_end(&self) -> Duration {
        match xdfs_sys::tcp::info(self.control) {
            Ok(info) => LATER_END + 2 * info.round_trip,
            Err(_) => LATER_END_UNKNOWN,
        }
    }
}
