//! What is between the two ends of a channel.

use std::collections::VecDeque;
use std::time::Duration;

use xdfs_sys::poll::{Notifier, Token};

use super::notify;

/// Time after which a host gives up a channel of which nothing is acknowledged, as TCP does.
const GIVE_UP: Duration = Duration::from_secs(924);

/// One channel.
#[derive(Default)]
pub(crate) struct Link {
    /// From the client to the server, and back.
    pub(crate) pipes: [Pipe; 2],
    pub(crate) is_broken: bool,
    /// Nothing arrives any more, and nobody is told of anything before [`GIVE_UP`] is over.
    pub(crate) is_silent: bool,
    pub(crate) gives_up_at: Option<Duration>,
    pub(crate) watchers: [Option<(Notifier, Token)>; 2],
    /// The connection isn't made before.
    pub(crate) open_at: Option<Duration>,
    /// It breaks then.
    pub(crate) cut_at: Option<Duration>,
    pub(crate) latency: Duration,
    /// Bytes a second.
    pub(crate) rate: u64,
    /// Bytes that may be on the way in one direction.
    pub(crate) room: usize,
}

/// One direction of a channel.
#[derive(Default)]
pub(crate) struct Pipe {
    under_way: VecDeque<(Duration, Vec<u8>)>,
    pub(crate) arrived: VecDeque<u8>,
    /// Bytes that were written and not read.
    pub(crate) bytes: usize,
    last_due: Duration,
    /// The writer ends it then.
    closes_at: Option<Duration>,
    /// All of it has arrived, and its end.
    has_ended: bool,
    /// Nobody reads it any more.
    pub(crate) is_abandoned: bool,
    /// Nothing more gets through: the channel breaks when what is on the way has arrived.
    pub(crate) is_cut: bool,
}

impl Pipe {
    pub(crate) fn is_closed(&self) -> bool {
        self.closes_at.is_some()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.arrived.is_empty() && self.under_way.is_empty() && self.has_ended
    }

    pub(crate) fn close(&mut self, now: Duration) {
        let at = self.last_due.max(now) + Duration::from_nanos(1);
        self.closes_at.get_or_insert(at);
    }
}

impl Link {
    /// Sends bytes from a side; returns when they are there.
    pub(crate) fn send(&mut self, side: usize, bytes: Vec<u8>, at: Duration) -> Duration {
        let count = bytes.len();
        let takes = Duration::from_nanos(count as u64 * 1_000_000_000 / self.rate);
        let pipe = &mut self.pipes[side];
        pipe.bytes += count;
        pipe.last_due = pipe.last_due.max(at + self.latency) + takes;
        pipe.under_way.push_back((pipe.last_due, bytes));
        pipe.last_due
    }

    pub(crate) fn wake(&self, side: usize, readable: bool, writable: bool) {
        if let Some((notifier, token)) = &self.watchers[side] {
            notify(notifier, *token, readable, writable);
        }
    }

    /// Loses what is on the way, and tells both ends.
    pub(crate) fn break_up(&mut self) {
        if self.is_silent {
            return;
        }
        self.is_broken = true;
        for pipe in &mut self.pipes {
            pipe.under_way.clear();
            pipe.arrived.clear();
        }
        self.wake(0, true, true);
        self.wake(1, true, true);
    }

    /// Loses what is on the way, and tells nobody.
    pub(crate) fn fall_silent(&mut self, now: Duration) {
        self.is_silent = true;
        self.gives_up_at = Some(now + GIVE_UP);
        for pipe in &mut self.pipes {
            pipe.under_way.clear();
        }
    }

    /// Moves what has arrived by now to where it can be read; `true` if there was something.
    pub(crate) fn deliver(&mut self, now: Duration) -> bool {
        if self.gives_up_at.take_if(|at| *at <= now).is_some() {
            self.is_silent = false;
            self.break_up();
            return true;
        }
        if self.is_silent || self.is_broken {
            return false;
        }
        let opens = self.open_at.take_if(|at| *at <= now).is_some();
        if opens {
            self.wake(0, true, true);
        }
        let mut has_come = [false; 2];
        for (pipe, has_come) in self.pipes.iter_mut().zip(&mut has_come) {
            while let Some((_, bytes)) = pipe.under_way.pop_front_if(|(due, _)| *due <= now) {
                pipe.arrived.extend(bytes);
                *has_come = true;
            }
            if !pipe.has_ended && pipe.closes_at.is_some_and(|at| at <= now) {
                pipe.has_ended = true;
                *has_come = true;
            }
        }
        for (side, _) in has_come
            .iter()
            .enumerate()
            .filter(|(_, has_come)| **has_come)
        {
            self.wake(1 - side, true, false);
        }
        let is_cut = self.cut_at.take_if(|at| *at <= now).is_some();
        if is_cut {
            self.break_up();
        }
        opens || is_cut || has_come[0] || has_come[1]
    }

    /// When something arrives next.
    pub(crate) fn next(&self) -> Option<Duration> {
        if self.is_silent || self.is_broken {
            return self.gives_up_at;
        }
        let pipes = self.pipes.iter().flat_map(|pipe| {
            let first = pipe.under_way.front().map(|(due, _)| *due);
            let closes = pipe.closes_at.filter(|_| !pipe.has_ended);
            first.into_iter().chain(closes)
        });
        pipes.chain(self.open_at).chain(self.cut_at).min()
    }
}
