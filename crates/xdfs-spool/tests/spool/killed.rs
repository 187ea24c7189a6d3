//! Processes that write a spool, and are killed.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use xdfs_proto::Code;
use xdfs_proto::relay::ParcelState;
use xdfs_spool::Spool;
use xdfs_testkit::wait;

use crate::incoming::put_incoming;
use crate::scene::{NOW, assert_held, begin, content, finish, id, open, put, save};

/// The directory of the spool that the process writes.
const DIR: &str = "XDFS_TEST_SPOOL";
/// The first number of its parcels.
const FIRST: &str = "XDFS_TEST_FIRST";
const PATIENCE: Duration = Duration::from_secs(120);

/// Length of a parcel.
pub(crate) fn length(seed: u64) -> usize {
    match seed % 5 {
        0 => 0,
        1 => 120_000 + seed as usize % 1000,
        _ => 500 + seed as usize % 3000,
    }
}

/// Writes parcels by several threads, ends some of them, and says what it has been promised.
#[test]
#[ignore = "a part of the other tests"]
fn act_alone() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let spool = open(&dir);
    let say = |word: &str, seed: u64| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{word} {seed}").unwrap();
        out.flush().unwrap();
    };
    thread::scope(|scope| {
        for thread in 0..4 {
            let spool = spool.clone();
            scope.spawn(move || {
                for at in 0..200 {
                    let seed = first + 1000 * thread + at;
                    match at % 4 {
                        // In two steps, of which the first may be all.
                        3 => {
                            let bytes = content(seed, 90_000);
                            let mut opened = begin(&spool, seed, 90_000).unwrap();
                            save(&mut opened, 0, &bytes[..60_000]).unwrap();
                            say("begun", seed);
                            finish(&mut opened, 60_000, &bytes).unwrap();
                            say("late", seed);
                        }
                        // Announced by its end alone.
                        2 => {
                            say("coming", seed);
                            let pieces = 1 + length(seed) / 3;
                            put_incoming(&spool, seed, length(seed), pieces).unwrap();
                            say("held", seed);
                        }
                        _ => {
                            put(&spool, seed, length(seed)).unwrap();
                            say("held", seed);
                        }
                    }
                    if at % 4 == 1 {
                        let number = spool.find("alice", id(seed)).unwrap().number;
                        say("ending", seed);
                        let end = |parcel: &mut xdfs_spool::Parcel| {
                            parcel.state = ParcelState::Delivered;
                            Ok(())
                        };
                        spool.alter(number, NOW, end).unwrap();
                        say("ended", seed);
                    }
                }
            });
        }
    });
}

/// What a process has said.
#[derive(Debug, Default)]
pub(crate) struct Said {
    coming: BTreeSet<u64>,
    held: BTreeSet<u64>,
    begun: BTreeSet<u64>,
    late: BTreeSet<u64>,
    ending: BTreeSet<u64>,
    ended: BTreeSet<u64>,
}

impl Said {
    fn take(&mut self, line: &str) {
        let Some((word, seed)) = line.split_once(' ') else {
            return;
        };
        let (Some(set), Ok(seed)) = (self.of(word), seed.parse()) else {
            return;
        };
        set.insert(seed);
    }

    fn of(&mut self, word: &str) -> Option<&mut BTreeSet<u64>> {
        Some(match word {
            "coming" => &mut self.coming,
            "held" => &mut self.held,
            "begun" => &mut self.begun,
            "late" => &mut self.late,
            "ending" => &mut self.ending,
            "ended" => &mut self.ended,
            _ => return None,
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.held.len() + self.begun.len() + self.late.len() + self.ended.len()
    }

    /// Asserts that all of it is so.
    pub(crate) fn check(&self, spool: &Spool) {
        for seed in self.held.difference(&self.ending) {
            assert_held(spool, *seed, length(*seed));
        }
        for seed in self.coming.difference(&self.held) {
            match spool.find("alice", id(*seed)) {
                Ok(_) => drop(assert_held(spool, *seed, length(*seed))),
                Err(fault) => assert_eq!(fault.code, Code::NotFound, "{fault}"),
            }
        }
        for seed in &self.late {
            assert_held(spool, *seed, 90_000);
        }
        for seed in self.begun.difference(&self.late) {
            let parcel = spool.find("alice", id(*seed)).unwrap();
            assert!(spool.arrived(&parcel).unwrap() >= 60_000, "{seed}");
        }
        for seed in &self.ended {
            let parcel = spool.find("alice", id(*seed)).unwrap();
            assert_eq!(parcel.state, ParcelState::Delivered, "{seed}");
        }
        for seed in self.ending.difference(&self.ended) {
            let parcel = spool.find("alice", id(*seed)).unwrap();
            match parcel.state {
                ParcelState::Delivered => {}
                _ => drop(assert_held(spool, *seed, length(*seed))),
            }
        }
    }
}

/// A process that writes a spool.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) said: Arc<Mutex<Said>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(dir: &Path, first: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["killed::act_alone", "--exact", "--ignored", "--nocapture"]);
        command.env(DIR, dir).env(FIRST, first.to_string());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let said = Arc::<Mutex<Said>>::default();
        let out = child.stdout.take().unwrap();
        let own = Arc::clone(&said);
        let reader = thread::spawn(move || read(out, &own));
        Self {
            child,
            said,
            reader: Some(reader),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.said.lock().unwrap().count()
    }

    /// Kills it, unless it has ended.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits for its end, and returns what it has said.
    pub(crate) fn end(mut self) -> Said {
        self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.said.lock().unwrap())
    }
}

fn read(out: ChildStdout, said: &Mutex<Said>) {
    for line in BufReader::new(out).lines() {
        // The last one may be cut off.
        let Ok(line) = line else { return };
        said.lock().unwrap().take(&line);
    }
}

#[test]
fn what_was_promised_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let rounds = std::env::var("XDFS_TEST_ROUNDS").map_or(12, |rounds| rounds.parse().unwrap());
    let mut all = Vec::new();
    for round in 0..rounds {
        let mut process = Process::start(dir.path(), round * 1_000_000);
        let enough = 1 + (round as usize * 37) % 150;
        assert!(wait::until(PATIENCE, || process.count() >= enough));
        process.kill();
        all.push(process.end());
        let spool = open(dir.path());
        // What earlier ones have said holds, too.
        all.iter().for_each(|said| said.check(&spool));
    }
}
