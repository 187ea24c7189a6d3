//! Copies between standard streams and named pipes of a server, which transfers don't support.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use xdfs::{
    Answer, Call, Client, Code, DigestValue, Fault, FileKind, LimitedBy, OpenOptions, Progress,
    StandardInput, StandardOutput, TimeShares, TransferResult, stream_fault,
};

use crate::interrupt::Interrupt;

/// Bytes per read and write.
const PIECE_BYTES: usize = 60 << 10;
/// Interval of checks for an interrupt while waiting for a reader of the pipe.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval of such checks while waiting for the rate limit.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether a path is a named pipe. A failed lookup counts as no, since using the path reports the
/// reason.
pub(crate) fn is_pipe(client: &Client, path: &[u8]) -> bool {
    let call = Call::Stat {
        path: path.to_vec(),
        follow: true,
    };
    matches!(client.call(call), Ok(Answer::Attributes(found)) if found.kind == FileKind::Fifo)
}

fn fault_of(error: io::Error, path: &[u8]) -> Fault {
    let kind = error.kind();
    match error.into_inner().map(|inner| inner.downcast::<Fault>()) {
        Some(Ok(fault)) => *fault,
        _ => Fault::from_io("use a pipe", path, &kind.into()),
    }
}

/// A rate limit. Unused time isn't saved up.
#[derive(Debug)]
struct Pace {
    rate: Option<u64>,
    next: Instant,
}

impl Pace {
    fn new(rate: Option<u64>) -> Self {
        let next = Instant::now();
        Self { rate, next }
    }

    /// Bytes per piece, at least 1: those of a tenth of a second.
    fn piece_bytes(&self) -> usize {
        let share = self.rate.map_or(u64::MAX, |rate| (rate / 10).max(1));
        usize::try_from(share)
            .unwrap_or(PIECE_BYTES)
            .min(PIECE_BYTES)
    }

    /// Waits until this number of bytes may pass, or until the copy is cancelled.
    fn wait(&mut self, bytes: usize, shared: &Shared) {
        let Some(rate) = self.rate else {
            return;
        };
        loop {
            let left = self.next.saturating_duration_since(Instant::now());
            if left.is_zero() || shared.is_cancelled.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(left.min(PAUSE));
        }
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(rate.max(1));
        // A piece takes at most a second, at one byte per second.
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.next = self.next.max(Instant::now()) + cost;
    }
}

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From standard input into a pipe.
    Into,
    /// Out of a pipe to standard output.
    OutOf,
}

/// A running copy between a standard stream and a named pipe.
#[derive(Debug)]
pub(crate) struct Flow {
    direction: Direction,
    client: Arc<Client>,
    shared: Arc<Shared>,
    end: mpsc::Receiver<Result<(), Fault>>,
    result: Option<Result<(), Fault>>,
    path: Vec<u8>,
    started: Instant,
}

#[derive(Debug, Default)]
struct Shared {
    bytes: AtomicU64,
    is_cancelled: AtomicBool,
}

impl Flow {
    /// Starts to copy standard input into a pipe, with at most `rate` bytes per second.
    pub(crate) fn into_pipe(client: Arc<Client>, path: &[u8], rate: Option<u64>) -> Self {
        let act = move |client: &Client, path: &[u8], shared: &Shared| {
            pour(client, path, Pace::new(rate), shared)
        };
        Self::start(Direction::Into, client, path, act)
    }

    /// Starts to copy a pipe to standard output, until no writer is left or after `length` bytes,
    /// with at most `rate` bytes per second.
    pub(crate) fn out_of_pipe(
        client: Arc<Client>,
        path: &[u8],
        length: Option<u64>,
        rate: Option<u64>,
    ) -> Self {
        let act = move |client: &Client, path: &[u8], shared: &Shared| {
            let length = length.unwrap_or(u64::MAX);
            print(client, path, length, Pace::new(rate), shared)
        };
        Self::start(Direction::OutOf, client, path, act)
    }

    /// Starts a thread for the copy, since both ends may block for long.
    fn start(
        direction: Direction,
        client: Arc<Client>,
        path: &[u8],
        act: impl FnOnce(&Client, &[u8], &Shared) -> Result<(), Fault> + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let (sender, end) = mpsc::channel();
        let (theirs, at, own) = (Arc::clone(&shared), path.to_vec(), Arc::clone(&client));
        let work = move || {
            let outcome = act(&own, &at, &theirs);
            // Before the outcome is sent, so that this detached thread isn't the one that ends the
            // session.
            drop(own);
            // After a cancellation nobody receives it.
            let _ = sender.send(outcome);
        };
        let thread = thread::Builder::new().name("xdfs-pipe".into());
        let failed = thread.spawn(work).err();
        let result = failed.map(|error| Err(Fault::from_io("start a thread", "", &error)));
        Self {
            direction,
            client,
            shared,
            end,
            result,
            path: path.to_vec(),
            started: Instant::now(),
        }
    }

    fn operation(&self) -> &'static str {
        match self.direction {
            Direction::Into => "write to a pipe",
            Direction::OutOf => "read from a pipe",
        }
    }

    /// Waits for the next progress.
    pub(crate) fn progress(&mut self, timeout: Duration) -> Option<Progress> {
        if self.result.is_some() {
            return None;
        }
        if self.shared.is_cancelled.load(Ordering::Relaxed) {
            // The thread may be waiting for input.
            self.result = Some(Err(Interrupt::fault(self.operation())));
            return None;
        }
        match self.end.recv_timeout(timeout) {
            Ok(result) => self.result = Some(result),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Some(Progress {
                    bytes: self.shared.bytes.load(Ordering::Relaxed),
                    bytes_total: None,
                    resumed_bytes: 0,
                    channels: 1,
                });
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let cause = "internal error, please report it";
                let fault = Fault::new(Code::Internal, self.operation(), cause);
                self.result = Some(Err(fault));
            }
        }
        None
    }

    /// Whether it has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.result.is_some()
    }

    /// Ends the copy, and its session.
    pub(crate) fn cancel(&self) {
        self.shared.is_cancelled.store(true, Ordering::Relaxed);
        // A read pending at the server would take data from other readers of the pipe.
        self.client.stop();
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The fault that ended it.
    pub(crate) fn wait(mut self) -> Result<TransferResult, Fault> {
        let result = loop {
            if let Some(result) = self.result.take() {
                break result;
            }
            let _ = self.progress(PATIENCE);
        };
        result.map(|()| TransferResult {
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            seconds: self.started.elapsed().as_secs_f64(),
            channels: 1,
            resumed_bytes: 0,
            retransmitted_bytes: 0,
            digest: DigestValue::None,
            target: self.path,
            time_shares: TimeShares::only(match self.direction {
                Direction::Into => LimitedBy::TargetWrite,
                Direction::OutOf => LimitedBy::SourceRead,
            }),
            is_skipped: false,
            passage: None,
            has_cut_time: false,
        })
    }
}

fn print(
    client: &Client,
    path: &[u8],
    length: u64,
    mut pace: Pace,
    shared: &Shared,
) -> Result<(), Fault> {
    let file = client.open_file(path, &OpenOptions::reading())?;
    let mut rest = (&file).take(length);
    let mut out = StandardOutput;
    let mut piece = vec![0; pace.piece_bytes()];
    loop {
        let read = rest
            .read(&mut piece)
            .map_err(|error| fault_of(error, path))?;
        if read == 0 {
            return file.close();
        }
        pace.wait(read, shared);
        if shared.is_cancelled.load(Ordering::Relaxed) {
            return Err(Interrupt::fault("read from a pipe"));
        }
        // Immediately, since a reader may wait for it.
        let written = out.write_all(&piece[..read]).and_then(|()| out.flush());
        written.map_err(|error| stream_fault("write to standard output", "", &error))?;
        shared.bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
}

fn pour(client: &Client, path: &[u8], mut pace: Pace, shared: &Shared) -> Result<(), Fault> {
    let options = OpenOptions {
        write: true,
        patience: PATIENCE,
        ..OpenOptions::default()
    };
    let mut file = loop {
        match client.open_file(path, &options) {
            // The pipe has no reader yet.
            Err(fault)
                if fault.code == Code::Busy && !shared.is_cancelled.load(Ordering::Relaxed) => {}
            opened => break opened?,
        }
    };
    let mut input = StandardInput;
    let mut piece = vec![0; pace.piece_bytes()];
    loop {
        let read = match input.read(&mut piece) {
            Ok(0) => return file.close(),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Fault::from_io("read standard input", "", &error)),
        };
        pace.wait(read, shared);
        if shared.is_cancelled.load(Ordering::Relaxed) {
            return Err(Interrupt::fault("write to a pipe"));
        }
        let written = file.write_all(&piece[..read]);
        written.map_err(|error| fault_of(error, path))?;
        shared.bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
}
