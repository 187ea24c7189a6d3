//! `xdfs cp --from-file`: a list of sources and targets, one pair a line, as `globus-url-copy -f`
//! has it.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use xdfs::operations::path::local_name;
use xdfs::operations::{PairLine, read_pairs};
use xdfs::{Code, Fault, TransferRoute};

use super::origins::Origins;
use super::plan::{self, PlannedCopy};
use super::{chosen, copy_files, expand, retries_of, several, striped, tree};
use crate::context::Context;
use crate::flags::{CpFlags, Places};
use crate::interrupt::Interrupt;
use crate::place::shown;
use crate::report::{Label, Reporter};
use crate::session::{Connector, check_stripes};

const OPERATION: &str = "read the list of copies";
/// Copies of files that are queued at once.
const BATCH: usize = 256;
/// Interval of looks at whether the user wants to stop.
const TICK: Duration = Duration::from_millis(100);

/// Copies what a list says. Each line is a copy of its own, with the flags of the command.
///
/// # Errors
/// The list can't be opened, or the run can't be started.
pub(super) fn run(
    connector: &Connector,
    context: &Context,
    flags: &CpFlags,
    list: &Path,
    reporter: &mut Reporter,
) -> Result<(), Fault> {
    let lines = read_ahead(list)?;
    let interrupt = context.interrupt()?;
    interrupt.orderly(true);
    let mut run = Run {
        sessions: Sessions::new(connector.clone(), flags),
        sessions_in_clear: None,
        is_in_clear: false,
        context,
        flags,
        interrupt: &interrupt,
        reporter,
        batch: Vec::new(),
        retries_max: None,
        hasher: RandomState::new(),
        targets: HashSet::new(),
        moved: HashSet::new(),
    };
    loop {
        // What is queued isn't kept waiting for lines that are still to be written.
        let next = match lines.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                run.copy_batch()?;
                match lines.recv_timeout(TICK) {
                    Ok(line) => Some(line),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => None,
                }
            }
        };
        if interrupt.requested() {
            break;
        }
        if let Some(line) = next {
            run.take(line)?;
        }
    }
    run.copy_batch()?;
    match interrupt.requested() {
        true => Err(Interrupt::fault("copy").hint("run the same command again to resume")),
        false => Ok(()),
    }
}

/// The sessions of lines.
#[derive(Clone)]
struct Sessions {
    connector: Connector,
    origins: Origins,
}

impl Sessions {
    fn new(connector: Connector, flags: &CpFlags) -> Self {
        Self {
            origins: Origins::new(&connector, flags.servers.between.into()),
            connector,
        }
    }
}

struct Run<'a> {
    sessions: Sessions,
    /// The sessions of lines in which `--insecure` is about places in clear only.
    sessions_in_clear: Option<Sessions>,
    /// The batch is of these.
    is_in_clear: bool,
    context: &'a Context,
    flags: &'a CpFlags,
    interrupt: &'a Interrupt,
    reporter: &'a mut Reporter,
    /// Files to copy, which have the same number of retries.
    batch: Vec<PlannedCopy>,
    retries_max: Option<u32>,
    hasher: RandomState,
    /// Hashes of the targets of the batch.
    targets: HashSet<u64>,
    /// Hashes of the targets of all files whose sources are removed.
    moved: HashSet<u64>,
}

impl Run<'_> {
    /// Plans a line. Its fault is its own, and the others go on.
    fn take(&mut self, line: PairLine) -> Result<(), Fault> {
        // What isn't understood isn't shown: it may have a password.
        let mut label = Label {
            source: format!("line {}", line.number),
            target: String::new(),
        };
        let planned = line.pair.and_then(|pair| {
            let places = places(line.number, pair)?;
            label = Label {
                source: shown(&places.sources[0]),
                target: shown(&places.target),
            };
            self.plan(places)
        });
        match planned {
            Ok(jobs) => jobs.into_iter().try_for_each(|job| self.add(job)),
            Err(fault) => {
                // What comes before it in the list is reported before it.
                self.copy_batch()?;
                self.reporter.failure(Some(&label), &fault);
                Ok(())
            }
        }
    }

    /// The files to copy of a line. Its directories are copied here.
    fn plan(&mut self, places: Places) -> Result<Vec<PlannedCopy>, Fault> {
        let mut flags = CpFlags {
            places,
            ..self.flags.clone()
        };
        flags
            .places
            .sources
            .iter()
            .try_for_each(|word| several::refuse(word))?;
        let words = (&flags.places.sources[..], &*flags.places.target);
        check_stripes(self.context, &flags.stripe, words)?;
        let Sessions { connector, origins } = self.sessions_for(&flags.places)?;
        expand::expand_sources(&connector, &mut flags)?;
        let many = flags.places.sources.len() > 1;
        chosen::leave_out_files(&connector, &mut flags)?;
        if flags.recursive || flags.archive {
            let trees = tree::take_trees(&connector, &mut flags, &origins)?;
            if !trees.is_empty() {
                // In the order of the list.
                self.copy_batch()?;
                let (interrupt, reporter) = (self.interrupt, &mut *self.reporter);
                tree::copy(&connector, &flags, &trees, &origins, interrupt, reporter);
            }
            if flags.places.sources.is_empty() {
                return Ok(Vec::new());
            }
        }
        let groups = striped::groups(&connector, &flags)?;
        let config = self.context.config()?;
        let jobs = plan::plan(config, &flags, (many, &[]), &groups, &origins)?;
        if jobs.iter().any(|job| job.is_stream()) {
            let cause = "a standard stream can't be in a list";
            return Err(Fault::new(Code::InvalidArgument, OPERATION, cause)
                .hint("copy it by a command of its own"));
        }
        Ok(jobs)
    }

    /// The sessions for a line. A batch is of those for all of its lines.
    fn sessions_for(&mut self, places: &Places) -> Result<Sessions, Fault> {
        let words = places.sources.iter().chain([&places.target]);
        let connector = self.sessions.connector.clone().for_words(words);
        let is_in_clear = connector.flags.security.is_consent_to_clear;
        if is_in_clear != self.is_in_clear {
            self.copy_batch()?;
            self.is_in_clear = is_in_clear;
        }
        let flags = self.flags;
        Ok(match is_in_clear {
            true => {
                let new = || Sessions::new(connector, flags);
                self.sessions_in_clear.get_or_insert_with(new).clone()
            }
            false => self.sessions.clone(),
        })
    }

    /// Queues a copy. Those to one target are made in the order of the list, one after the other.
    fn add(&mut self, job: PlannedCopy) -> Result<(), Fault> {
        let several = self.sessions.connector.several();
        // A group writes to the server that is named.
        let named = several.and_then(|several| several.named(&job.server));
        let server = named.as_ref().unwrap_or(&job.server);
        let target = match &job.route {
            TransferRoute::Upload { .. } => Some((&server.address, &server.user)),
            TransferRoute::Download { .. } => None,
        };
        let shown = format!("{target:?} {}", job.label.target);
        let target = self.hasher.hash_one(shown);
        if self.flags.remove_source && !self.moved.insert(target) {
            self.copy_batch()?;
            let cause = "an earlier line moves a file to this target, which would be lost";
            let fault = Fault::new(Code::InvalidArgument, OPERATION, cause)
                .hint("give each file a target of its own; the name of a directory ends with '/'");
            self.reporter.failure(Some(&job.label), &fault);
            return Ok(());
        }
        if self.targets.contains(&target) {
            self.copy_batch()?;
        }
        let retries = retries_of(self.context.config()?, self.flags, &job);
        if self.batch.len() >= BATCH || self.retries_max.is_some_and(|other| other != retries) {
            self.copy_batch()?;
        }
        self.retries_max = Some(retries);
        self.targets.insert(target);
        self.batch.push(job);
        Ok(())
    }

    fn copy_batch(&mut self) -> Result<(), Fault> {
        let jobs = std::mem::take(&mut self.batch);
        self.retries_max = None;
        self.targets.clear();
        if jobs.is_empty() || self.interrupt.requested() {
            return Ok(());
        }
        let in_clear = self.sessions_in_clear.as_ref().filter(|_| self.is_in_clear);
        let Sessions { connector, origins } = in_clear.unwrap_or(&self.sessions);
        copy_files(
            connector,
            self.flags,
            jobs,
            origins,
            self.interrupt,
            self.reporter,
        )
    }
}

/// Reads lines in a thread, which ends with the list or with the receiver. At standard input it may
/// outlive the receiver, and then ends with the process.
fn read_ahead(list: &Path) -> Result<Receiver<PairLine>, Fault> {
    let name = list.as_os_str().as_encoded_bytes();
    if name == b"-" {
        return read_pairs(BufReader::new(std::io::stdin()), name);
    }
    let file = File::open(list).map_err(|error| Fault::from_io(OPERATION, name, &error))?;
    read_pairs(BufReader::new(file), name)
}

/// The places of a line.
fn places(number: u64, pair: [Vec<u8>; 2]) -> Result<Places, Fault> {
    let word = |bytes: Vec<u8>| {
        let name = local_name(&bytes).map(PathBuf::into_os_string);
        name.ok_or_else(|| {
            let cause = format!("line {number} has bytes that can't be in names on this system");
            Fault::new(Code::InvalidArgument, OPERATION, cause)
        })
    };
    let [source, target] = pair.map(word);
    Ok(Places {
        sources: vec![source?],
        target: target?,
    })
}
