//! One end of a throttled channel.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use xdfs_sys::poll::{Poller, Token};

use super::bucket::Bucket;
use crate::control::Control;
use crate::filter::{Filter, first};
use crate::stream::Stream;
use crate::timer::{Alarm, Direction};

/// Longest wait between two looks at the bucket.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// One end of a throttled channel; without a bucket, of an unlimited one.
#[derive(Debug)]
pub(super) struct Throttle {
    bucket: Option<Arc<Bucket>>,
    alarm: Alarm,
    /// Calls that had to wait for the limit.
    waits: u64,
}

impl Throttle {
    pub(super) fn new(bucket: Option<Arc<Bucket>>) -> Self {
        Self {
            bucket,
            alarm: Alarm::default(),
            waits: 0,
        }
    }
}

impl Filter for Throttle {
    fn waits(&self) -> bool {
        self.bucket.is_some()
    }

    fn write(&mut self, below: &mut Box<dyn Stream>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(bucket) = &self.bucket else {
            return below.write_vectored(bufs);
        };
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if len == 0 {
            return below.write_vectored(bufs);
        }
        let taken = match bucket.take(len) {
            Ok(taken) => taken,
            Err(wait) => {
                let time = Instant::now() + wait.min(WAIT_MAX);
                self.alarm.set(time, Direction::Writing)?;
                self.waits += 1;
                return Err(ErrorKind::WouldBlock.into());
            }
        };
        let written = if taken == len {
            below.write_vectored(bufs)
        } else {
            below.write_vectored(&first(bufs, taken))
        };
        let sent = written.as_ref().map_or(0, |n| *n);
        if sent < taken {
            bucket.give_back(taken - sent);
        }
        written
    }

    fn registered(&mut self, poller: &Poller, token: Token) {
        self.alarm.register(poller, token);
    }

    fn deregistered(&mut self) {
        self.alarm.deregister();
    }

    /// The number of writes that had to wait for the limit.
    fn controls(&self, out: &mut Vec<Control>) {
        out.push(Control::new("throttle", "waits", self.waits));
    }
}
