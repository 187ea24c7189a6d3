//! Named pipes of a server: what goes into one and comes out of one are streams without names,
//! which no transfer is about.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use xdfs::{
    Answer, Call, Client, Code, DigestValue, Fault, FileKind, LimitedBy, OpenOptions, Progress,
    TransferResult,
};

use crate::interrupt::Interrupt;

/// Bytes that are read and written at once.
const PIECE_BYTES: usize = 60 << 10;
/// After so long without somebody who reads it the wish to stop is looked at.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether a path leads to a named pipe. What can't be found out isn't one: who uses the path hears
/// why.
pub(crate) fn is_pipe(client: &Client, path: &[u8]) -> bool {
    let call = Call::Stat {
        path: path.to_vec(),
        follow: true,
    };
    matches!(client.call(call), Ok(Answer::Attributes(found)) if found.kind == FileKind::Fifo)
}

/// Writes to standard output what comes out of a pipe, until nobody writes to it any more.
pub(crate) fn print(client: &Client, path: &[u8], length: Option<u64>) -> Result<(), Fault> {
    let file = client.open_file(path, &OpenOptions::reading())?;
    let mut rest = (&file).take(length.unwrap_or(u64::MAX));
    let mut out = io::stdout().lock();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = rest
            .read(&mut piece)
            .map_err(|error| fault_of(error, path))?;
        if read == 0 {
            return file.close();
        }
        // At once: somebody may wait for it.
        let written = out.write_all(&piece[..read]).and_then(|()| out.flush());
        written.map_err(|error| Fault::from_io("write to standard output", "", &error))?;
    }
}

fn fault_of(error: io::Error, path: &[u8]) -> Fault {
    let kind = error.kind();
    match error.into_inner().map(|inner| inner.downcast::<Fault>()) {
        Some(Ok(fault)) => *fault,
        _ => Fault::from_io("use a pipe", path, &kind.into()),
    }
}

/// Standard input on its way into a pipe.
#[derive(Debug)]
pub(crate) struct Pouring {
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

impl Pouring {
    /// Begins, in a thread of its own: both ends may be silent for long.
    pub(crate) fn start(client: Arc<Client>, path: &[u8]) -> Self {
        let shared = Arc::new(Shared::default());
        let (teller, end) = mpsc::channel();
        let (theirs, to) = (Arc::clone(&shared), path.to_vec());
        let work = move || {
            // If it was cancelled nobody listens.
            let _ = teller.send(pour(&client, &to, &theirs));
        };
        let thread = thread::Builder::new().name("xdfs-pipe".into());
        let failed = thread.spawn(work).err();
        let result = failed.map(|error| Err(Fault::from_io("start a thread", "", &error)));
        Self {
            shared,
            end,
            result,
            path: path.to_vec(),
            started: Instant::now(),
        }
    }

    pub(crate) fn progress(&mut self, timeout: Duration) -> Option<Progress> {
        if self.result.is_some() {
            return None;
        }
        if self.shared.is_cancelled.load(Ordering::Relaxed) {
            // The thread may wait for input that never comes.
            self.result = Some(Err(Interrupt::fault("write to a pipe")));
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
                let cause = "the thread that did it ended by a defect of the program";
                self.result = Some(Err(Fault::new(Code::Internal, "write to a pipe", cause)));
            }
        }
        None
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.result.is_some()
    }

    pub(crate) fn cancel(&self) {
        self.shared.is_cancelled.store(true, Ordering::Relaxed);
    }

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
            limited_by: LimitedBy::TargetWrite,
        })
    }
}

fn pour(client: &Client, path: &[u8], shared: &Shared) -> Result<(), Fault> {
    let options = OpenOptions {
        write: true,
        patience: PATIENCE,
        ..OpenOptions::default()
    };
    let mut file = loop {
        match client.open_file(path, &options) {
            // Nobody reads it yet.
            Err(fault)
                if fault.code == Code::Busy && !shared.is_cancelled.load(Ordering::Relaxed) => {}
            opened => break opened?,
        }
    };
    let mut input = io::stdin().lock();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = match input.read(&mut piece) {
            Ok(0) => return file.close(),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Fault::from_io("read standard input", "", &error)),
        };
        let written = file.write_all(&piece[..read]);
        written.map_err(|error| fault_of(error, path))?;
        shared.bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
}
