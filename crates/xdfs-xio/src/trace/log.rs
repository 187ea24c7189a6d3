//! The file of a trace, and the thread that writes it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Most lines that wait to be written, of about 100 bytes each.
const LINES_MAX: usize = 4096;
/// Bytes of lines that are written at once.
const WRITE_BYTES: usize = 64 << 10;

/// Accepts lines without waiting.
#[derive(Debug)]
pub(super) struct Log {
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
}

impl Log {
    /// Appends to the file at `path`, which is made if it doesn't exist.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let (lines, queue) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let log = Self {
            lines,
            lost: Arc::clone(&lost),
        };
        let thread = thread::Builder::new().name("xdfs-trace".to_owned());
        thread.spawn(move || write(&queue, file, &lost))?;
        Ok(log)
    }

    /// Appends a line, or counts it as lost.
    pub(super) fn line(&self, line: String) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of lines lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Writes lines until the log is dropped: whole lines in each call, so that several processes may
/// append to one file.
fn write(queue: &Receiver<String>, mut file: File, lost: &AtomicU64) {
    while let Ok(mut text) = queue.recv() {
        let mut lines = 1;
        while text.len() < WRITE_BYTES
            && let Ok(line) = queue.try_recv()
        {
            text.push_str(&line);
            lines += 1;
        }
        if file.write_all(text.as_bytes()).is_err() {
            lost.fetch_add(lines, Ordering::Relaxed);
        }
    }
}
