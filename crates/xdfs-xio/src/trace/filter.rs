//! One end of a traced channel.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::log::Log;
use crate::control::Control;
use crate::filter::Filter;
use crate::stream::Stream;

/// The number of the next stream.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// One end of a traced channel.
#[derive(Debug)]
pub(super) struct Trace {
    log: Option<Arc<Log>>,
    sample: u64,
    stream: u64,
    start: Instant,
    /// The end of the last call.
    last: Instant,
    calls: u64,
    read_bytes: u64,
    written_bytes: u64,
    /// The last read, or write, would have blocked.
    waits_to_read: bool,
    waits_to_write: bool,
    sums: Sums,
}

/// Where the time went: parts of the whole that don't overlap.
#[derive(Debug, Default)]
struct Sums {
    reading: Duration,
    writing: Duration,
    waiting_to_read: Duration,
    waiting_to_write: Duration,
    waiting_for_both: Duration,
    elsewhere: Duration,
}

impl Trace {
    pub(super) fn new(log: Option<Arc<Log>>, sample: u64) -> Self {
        let now = Instant::now();
        Self {
            log,
            sample,
            stream: NEXT.fetch_add(1, Ordering::Relaxed),
            start: now,
            last: now,
            calls: 0,
            read_bytes: 0,
            written_bytes: 0,
            waits_to_read: false,
            waits_to_write: false,
            sums: Sums::default(),
        }
    }

    /// Counts the time since the last call.
    fn begin(&mut self) -> Instant {
        let now = Instant::now();
        let sums = &mut self.sums;
        let sum = match (self.waits_to_read, self.waits_to_write) {
            (true, true) => &mut sums.waiting_for_both,
            (true, false) => &mut sums.waiting_to_read,
            (false, true) => &mut sums.waiting_to_write,
            (false, false) => &mut sums.elsewhere,
        };
        *sum += now.saturating_duration_since(self.last);
        now
    }

    /// Ends a call that began at `begin`, and returns how long it took.
    fn end(
        &mut self,
        begin: Instant,
        call: &str,
        bytes: usize,
        error: Option<&io::Error>,
    ) -> Duration {
        self.last = Instant::now();
        let took = self.last.saturating_duration_since(begin);
        self.calls += 1;
        if let Some(log) = &self.log
            && self.sample > 0
            && self.calls.is_multiple_of(self.sample)
        {
            log.line(self.line(call, bytes, took, error));
        }
        took
    }

    fn line(&self, call: &str, bytes: usize, took: Duration, error: Option<&io::Error>) -> String {
        let mut line = self.head();
        let us = took.as_micros();
        // Writing to a string doesn't fail.
        let _ = write!(line, r#","call":"{call}","us":{us},"bytes":{bytes}"#);
        if let Some(error) = error {
            line.push_str(r#","error":"#);
            quote(&error.to_string(), &mut line);
        }
        line.push_str("}\n");
        line
    }

    fn head(&self) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = since.unwrap_or_default().as_secs_f64();
        format!(r#"{{"time":{time:.6},"stream":{}"#, self.stream)
    }

    fn summary(&self) -> String {
        let mut line = self.head();
        let all = self.start.elapsed().as_secs_f64();
        let _ = write!(
            line,
            r#","call":"summary","seconds":{all:.6},"calls":{},"read":{},"written":{}"#,
            self.calls, self.read_bytes, self.written_bytes,
        );
        for (name, sum) in self.sums.named() {
            let _ = write!(line, r#","{name}":{:.6}"#, sum.as_secs_f64());
        }
        line.push_str("}\n");
        line
    }
}

impl Sums {
    fn named(&self) -> [(&'static str, Duration); 6] {
        [
            ("reading", self.reading),
            ("writing", self.writing),
            ("waiting_to_read", self.waiting_to_read),
            ("waiting_to_write", self.waiting_to_write),
            ("waiting_for_both", self.waiting_for_both),
            ("elsewhere", self.elsewhere),
        ]
    }
}

fn would_block<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(e) if e.kind() == ErrorKind::WouldBlock)
}

fn bytes(result: &io::Result<usize>) -> usize {
    *result.as_ref().unwrap_or(&0)
}

/// Appends `text` as a JSON string.
pub(super) fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

impl Filter for Trace {
    fn read(
        &mut self,
        below: &mut Box<dyn Stream>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let begin = self.begin();
        let result = below.read_vectored(bufs);
        self.waits_to_read = would_block(&result);
        self.read_bytes += bytes(&result) as u64;
        let took = self.end(begin, "read", bytes(&result), result.as_ref().err());
        self.sums.reading += took;
        result
    }

    fn write(&mut self, below: &mut Box<dyn Stream>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let begin = self.begin();
        let result = below.write_vectored(bufs);
        self.waits_to_write = would_block(&result);
        self.written_bytes += bytes(&result) as u64;
        let took = self.end(begin, "write", bytes(&result), result.as_ref().err());
        self.sums.writing += took;
        result
    }

    fn flush(&mut self, below: &mut Box<dyn Stream>) -> io::Result<()> {
        let begin = self.begin();
        let result = below.flush();
        self.waits_to_write = would_block(&result);
        let took = self.end(begin, "flush", 0, result.as_ref().err());
        self.sums.writing += took;
        result
    }

    fn finish_open(&mut self, below: &mut Box<dyn Stream>) -> io::Result<bool> {
        let begin = self.begin();
        let result = below.finish_open();
        // Until it is open, it waits for the peer.
        self.waits_to_read = matches!(result, Ok(false));
        let took = self.end(begin, "open", 0, result.as_ref().err());
        self.sums.reading += took;
        result
    }

    fn close(&mut self, below: &mut Box<dyn Stream>) -> io::Result<()> {
        let begin = self.begin();
        let result = below.close();
        self.waits_to_write = false;
        let took = self.end(begin, "close", 0, result.as_ref().err());
        self.sums.writing += took;
        result
    }

    /// The number of calls, the lines lost, and the times of the summary.
    fn controls(&self, out: &mut Vec<Control>) {
        let lost = self.log.as_ref().map_or(0, |log| log.lost());
        out.push(Control::new("trace", "calls", self.calls));
        out.push(Control::new("trace", "lost", lost));
        for (name, sum) in self.sums.named() {
            out.push(Control::new("trace", name, sum));
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.begin();
        if let Some(log) = &self.log {
            log.line(self.summary());
        }
    }
}
