//! Writes at places of a file on the server, by the library, and what may be left of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use xdfs::{Client, ClientOptions, Fault, OpenOptions, RemotePlace};
use xdfs_testkit::tree::Random;

/// Writes of a run; a few of them lie between two that synchronise.
const WRITES: u32 = 120;
const LENGTH_MAX: u64 = 4_000_000;

#[derive(Debug)]
pub(crate) struct Writer {
    record: Arc<Mutex<Record>>,
    thread: Option<JoinHandle<()>>,
    has_ended: Arc<AtomicBool>,
}

/// What was said to be durable, and what was written since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    durable: Vec<u8>,
    later: Vec<(usize, Vec<u8>)>,
    /// The outcome, once there is one.
    pub(crate) outcome: Option<Result<(), String>>,
}

impl Writer {
    /// Begins to write to a file that has the content `old`; what follows from the seed.
    pub(crate) fn start(address: &str, seed: u64, old: Vec<u8>) -> Self {
        let record = Record {
            durable: old,
            ..Record::default()
        };
        let record = Arc::new(Mutex::new(record));
        let has_ended = Arc::new(AtomicBool::new(false));
        let (shared, ends) = (Arc::clone(&record), Arc::clone(&has_ended));
        let url = format!("xdfs://{address}/copy");
        let thread = thread::spawn(move || {
            let outcome = write(&url, seed, &shared).map_err(|fault| fault.to_string());
            lock(&shared).outcome = Some(outcome);
            ends.store(true, Ordering::Release);
        });
        Self {
            record,
            thread: Some(thread),
            has_ended,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Waits for its end, which comes when the server is gone.
    pub(crate) fn record(mut self) -> Record {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        lock(&self.record).clone()
    }
}

fn lock(record: &Mutex<Record>) -> std::sync::MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(url: &str, seed: u64, record: &Mutex<Record>) -> Result<(), Fault> {
    let place: RemotePlace = url.parse()?;
    let client = Client::connect(&place, ClientOptions::default())?;
    let options = OpenOptions {
        read: true,
        write: true,
        reconnect: Duration::ZERO,
        ..OpenOptions::default()
    };
    let file = client.open_file(&place.path, &options)?;
    let mut random = Random::new(seed);
    for number in 1..=WRITES {
        let at = random.below(LENGTH_MAX);
        let mut bytes = vec![0; usize::try_from(1 + random.below(20_000)).unwrap()];
        random.fill(&mut bytes);
        // Before the call: what failed may have been written all the same.
        let place = usize::try_from(at).unwrap();
        lock(record).later.push((place, bytes.clone()));
        file.write_at(at, &bytes)?;
        if random.below(8) == 0 || number == WRITES {
            if random.below(2) == 0 {
                file.sync()?;
            } else {
                file.sync_data()?;
            }
            lock(record).synchronised();
        }
    }
    file.close()
}

impl Record {
    fn synchronised(&mut self) {
        for (at, bytes) in std::mem::take(&mut self.later) {
            let end = at + bytes.len();
            if self.durable.len() < end {
                self.durable.resize(end, 0);
            }
            self.durable[at..end].copy_from_slice(&bytes);
        }
    }

    /// What is wrong with this content after a power cut.
    pub(crate) fn problem(&self, found: &[u8]) -> Option<String> {
        let ends = self.later.iter().map(|(at, bytes)| at + bytes.len());
        let longest = ends.max().unwrap_or(0).max(self.durable.len());
        if found.len() < self.durable.len() || found.len() > longest {
            let (is, least) = (found.len(), self.durable.len());
            return Some(format!("{is} bytes long, and not {least} to {longest}"));
        }
        let mut right: Vec<bool> = found
            .iter()
            .enumerate()
            .map(|(at, byte)| *byte == self.durable.get(at).copied().unwrap_or(0))
            .collect();
        for (at, bytes) in &self.later {
            for (at, byte) in (*at..).zip(bytes) {
                if found.get(at) == Some(byte) {
                    right[at] = true;
                }
            }
        }
        let wrong = right.iter().filter(|right| !**right).count();
        let first = right.iter().position(|right| !right)?;
        Some(format!(
            "{wrong} bytes were never written so, from {first} on"
        ))
    }
}
