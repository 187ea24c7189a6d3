//! Copies the files of a command with the library's queue, and reports them in order.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use xdfs::{
    Address, Client, Code, Fault, LocalPlace, Observer, Queue, QueueEvent, QueueOptions,
    RemotePlace, RetryPolicy, Side, Transfer, TransferOptions, TransferParameters, TransferResult,
    TransferRoute, is_unread,
};

use super::plan::PlannedCopy;
use crate::client::SharedClient;
use crate::interrupt::Interrupt;
use crate::missing;
use crate::report::{Label, Reporter};
use crate::session::{Connector, follow, report_session};

/// The sessions of a command.
#[derive(Clone)]
struct Sessions {
    connector: Connector,
    interrupt: Interrupt,
    /// The sessions that have not ended, with their servers.
    open: Arc<Mutex<Vec<(RemotePlace, SharedClient)>>>,
}

impl Sessions {
    fn open(&self) -> MutexGuard<'_, Vec<(RemotePlace, SharedClient)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, server: &RemotePlace) -> Result<SharedClient, Fault> {
        // While a connection is being made, an immediate end loses nothing.
        self.interrupt.orderly(false);
        let connected = self.connector.connect(server);
        self.interrupt.orderly(true);
        let client = connected?;
        let mut open = self.open();
        let ended = open.extract_if(.., |(_, client)| client.ended().is_some());
        let ended: Vec<_> = ended.collect();
        open.push((server.clone(), client.clone()));
        drop(open);
        // Without the lock, since this waits for their threads.
        drop(ended);
        Ok(client)
    }

    fn report(&self, reporter: &mut Reporter) {
        for (_, client) in &*self.open() {
            report_session(client, reporter);
        }
        if let Some(several) = self.connector.several() {
            several.sessions(|client| report_session(client, reporter));
            several.report_dropped(reporter);
        }
    }

    /// Reports what came from each source of a copy, if it has several.
    fn report_shares(&self, job: &PlannedCopy, reporter: &mut Reporter) {
        let place = match job.route.local() {
            LocalPlace::OtherServer(file) => file.place(),
            _ => &job.server,
        };
        if let Some(several) = self.connector.several() {
            several.report_shares(place, &job.label, reporter);
        }
    }

    /// The effect on a copy when its command is run again.
    fn again(&self, job: &PlannedCopy) -> Again {
        let other = match job.route.local() {
            LocalPlace::OtherServer(file) => Some(&file.place().address),
            _ => None,
        };
        let has_versions = |address: &Address| address.traits().versions;
        if !other.is_none_or(has_versions) {
            return Again::StartsOver;
        }
        if has_versions(&job.server.address) {
            return Again::Resumes;
        }
        let open = self.open();
        let mut open = open.iter();
        let found = open.find(|(server, _)| server.shares_session(&job.server));
        match found.is_some_and(|(_, client)| client.resumes(&job.route, job.bytes)) {
            true => Again::Resumes,
            false => Again::StartsOver,
        }
    }

    /// Leaves the sessions to the steps after the copies.
    fn leave_open(&self) {
        for (server, client) in self.open().drain(..) {
            self.connector.leave(&server, client);
        }
    }
}

/// Forwards job events by number: a start, or the reason of a retry.
struct Relay {
    events: mpsc::Sender<(u64, Option<String>)>,
}

impl Observer for Relay {
    fn on_job(&mut self, number: u64, event: QueueEvent<'_>) -> ControlFlow<()> {
        let retry = match event {
            QueueEvent::Started => None,
            QueueEvent::Retry {
                fault,
                retry,
                retries_max,
                pause,
            } => Some(format!(
                "{fault}; retry {retry} of {retries_max} in {:.1} s",
                pause.as_secs_f64(),
            )),
            _ => return ControlFlow::Continue(()),
        };
        // The receiver is gone after the run was stopped.
        let _ = self.events.send((number, retry));
        ControlFlow::Continue(())
    }
}

/// Copies files, and reports each in order. Returns those that were copied, without streams.
///
/// # Errors
/// The run could not start.
pub(super) fn run(
    connector: &Connector,
    options: &TransferOptions,
    retry: RetryPolicy,
    jobs: Vec<PlannedCopy>,
    interrupt: &Interrupt,
    reporter: &mut Reporter,
) -> Result<Vec<PlannedCopy>, Fault> {
    let sessions = Sessions {
        connector: connector.clone(),
        interrupt: interrupt.clone(),
        open: Arc::default(),
    };
    let config = connector.context.config()?;
    let options_of = |job: &PlannedCopy| TransferOptions {
        parameters: TransferParameters {
            rate_bytes_per_s_max: config
                .session(&job.server)
                .rate(options.parameters.rate_bytes_per_s_max),
            ..options.parameters
        },
        ..options.clone()
    };
    if let [job] = jobs.as_slice()
        && job.is_stream()
    {
        copy_stream(&sessions, &options_of(job), job, reporter);
        return Ok(Vec::new());
    }
    let mut asked: Vec<&RemotePlace> = Vec::new();
    for job in jobs.iter().filter(|job| job.refused.is_none()) {
        if !asked
            .iter()
            .any(|server| server.shares_session(&job.server))
        {
            // If this fails, opening the session fails too, and its files report the reason.
            let _ = connector.ask_ahead(&job.server);
            asked.push(&job.server);
        }
    }
    interrupt.orderly(true);
    let limits = QueueOptions {
        retry,
        ..QueueOptions::default()
    };
    let (sender, events) = mpsc::channel();
    let relay = Relay { events: sender };
    let opened = sessions.clone();
    let connect = move |server: &RemotePlace| -> Result<Arc<Client>, Fault> {
        opened
            .connect(server)
            .map(|client| Arc::clone(client.client()))
    };
    let queue = Queue::new(limits, connect, relay)?;
    let queued: Vec<PlannedCopy> = jobs
        .iter()
        .filter(|job| job.refused.is_none())
        .cloned()
        .collect();
    let transfers = queue.add(queued.iter().map(|job| xdfs::FileCopy {
        server: job.server.clone(),
        route: job.route.clone(),
        options: options_of(job),
    }));
    let mut transfers = (0..).zip(transfers);
    let files = jobs.into_iter().filter_map(|job| match job.copy.refused {
        Some(fault) => Some((job.label, Err(fault))),
        None => Some((job.label, Ok(transfers.next()?))),
    });
    let run = QueueReporter {
        sessions,
        queue,
        events,
        queued,
        waiting: HashSet::new(),
        interrupt,
        reporter,
    };
    Ok(run.follow_all(files))
}

/// Copies a standard stream, which can be read or written only once.
fn copy_stream(
    sessions: &Sessions,
    options: &TransferOptions,
    job: &PlannedCopy,
    reporter: &mut Reporter,
) {
    let copied = sessions.connect(&job.server).and_then(|client| {
        let copying = client.copy(&job.route, options)?;
        let on_tick = |reporter: &mut Reporter| report_session(&client, reporter);
        let interrupt = &sessions.interrupt;
        follow(copying, &job.label, reporter, interrupt, on_tick, || ())
    });
    match copied {
        Ok(result) => reporter.file_done(&job.label, result),
        Err(fault) if is_unread(&fault) => reporter.file_unread(),
        Err(fault) => {
            let fault = explained(fault, Again::Never, Some(&job.route));
            let fault = with_directory(fault, Some(job), sessions);
            reporter.failure(Some(&job.label), &fault);
        }
    }
}

/// Adds how to make the directory of the target if it isn't there.
fn with_directory(fault: Fault, job: Option<&PlannedCopy>, sessions: &Sessions) -> Fault {
    match job.map(|job| (&job.server, &job.route)) {
        Some((server, TransferRoute::Upload { to, .. })) => {
            let several = sessions.connector.several();
            let Some(named) = several.and_then(|several| several.named(server)) else {
                return missing::hinted(fault, server, to);
            };
            // The group answers for its members.
            let there = Fault {
                side: Side::Remote,
                machine: Some(named.address.machine()),
                ..fault.clone()
            };
            let hinted = missing::hinted(there, &named, to);
            match hinted.hint == fault.hint {
                true => fault,
                false => hinted,
            }
        }
        _ => fault,
    }
}

/// Reports the transfers of a queue one after the other.
struct QueueReporter<'a> {
    sessions: Sessions,
    queue: Queue,
    events: mpsc::Receiver<(u64, Option<String>)>,
    /// The jobs, by number.
    queued: Vec<PlannedCopy>,
    /// Jobs that wait for a retry.
    waiting: HashSet<u64>,
    interrupt: &'a Interrupt,
    reporter: &'a mut Reporter,
}

impl QueueReporter<'_> {
    fn follow_all(
        mut self,
        mut files: impl Iterator<Item = (Label, Result<(u64, Transfer), Fault>)>,
    ) -> Vec<PlannedCopy> {
        let mut copied_jobs = Vec::new();
        let mut rest = None;
        while !self.interrupt.requested()
            && let Some((label, transfer)) = files.next()
        {
            let number = transfer.as_ref().ok().map(|(number, _)| *number);
            let copied =
                transfer.and_then(|(number, transfer)| self.follow(number, &label, transfer));
            match copied {
                Ok(result) => {
                    if let Some(job) = number.and_then(|number| self.job(number)).cloned() {
                        self.sessions.report_shares(&job, self.reporter);
                    }
                    self.reporter.file_done(&label, result);
                    copied_jobs.extend(number.and_then(|number| self.job(number)).cloned());
                }
                // Stopped while waiting for a retry.
                Err(_)
                    if self.interrupt.requested()
                        && number.is_some_and(|number| self.waiting.contains(&number)) =>
                {
                    rest = Some(label);
                }
                Err(fault) => {
                    if let Some(job) = number.and_then(|number| self.job(number)).cloned() {
                        self.sessions.report_shares(&job, self.reporter);
                    }
                    let job = number.and_then(|number| self.job(number));
                    let again = job.map_or(Again::Resumes, |job| self.sessions.again(job));
                    let route = job.map(|job| &job.route);
                    let fault = explained(fault, again, route);
                    let fault = with_directory(fault, job, &self.sessions);
                    self.reporter.failure(Some(&label), &fault);
                }
            }
        }
        if self.interrupt.requested() {
            self.queue.stop();
            // One message for all files that had not started.
            if let Some(label) = rest.or_else(|| files.next().map(|(label, _)| label)) {
                let fault = Interrupt::fault("copy").hint(RESUME);
                self.reporter.failure(Some(&label), &fault);
            }
        }
        self.sessions.leave_open();
        copied_jobs
    }

    fn job(&self, number: u64) -> Option<&PlannedCopy> {
        usize::try_from(number)
            .ok()
            .and_then(|number| self.queued.get(number))
    }

    /// Follows one transfer to its end.
    fn follow(
        &mut self,
        number: u64,
        label: &Label,
        transfer: Transfer,
    ) -> Result<TransferResult, Fault> {
        let mut take_events = |reporter: &mut Reporter| {
            self.sessions.report(reporter);
            for (of, retry) in self.events.try_iter() {
                let Some(text) = retry else {
                    self.waiting.remove(&of);
                    continue;
                };
                self.waiting.insert(of);
                let of_whom = usize::try_from(of).ok().and_then(|of| self.queued.get(of));
                if let Some(job) = of_whom {
                    reporter.retry(&format!("{}: {text}", job.label.name()));
                }
                if of == number {
                    reporter.begin(label);
                }
            }
        };
        let stop = || self.queue.stop();
        let followed = follow(
            transfer,
            label,
            self.reporter,
            self.interrupt,
            &mut take_events,
            stop,
        );
        take_events(self.reporter);
        followed
    }
}

/// The effect on an interrupted copy when its command is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// It resumes.
    Resumes,
    /// It starts over.
    StartsOver,
    /// A stream is read or written once.
    Never,
}

/// The hint to a user whose copy was interrupted.
const RESUME: &str = "run the same command again to resume";

/// Whether a fault of a copy is about its source.
fn is_of_source(fault: &Fault, route: &TransferRoute) -> bool {
    match route {
        TransferRoute::Download { .. } => fault.side == Side::Remote,
        TransferRoute::Upload { from, .. } => match from {
            LocalPlace::OtherServer(file) => fault.path == file.place().path,
            // A directory on this side was refused before.
            _ => fault.side == Side::Local,
        },
    }
}

/// Adds a hint to the fault, unless it has one that is right.
fn explained(fault: Fault, again: Again, route: Option<&TransferRoute>) -> Fault {
    if fault.code == Code::IsDirectory && fault.hint.is_empty() {
        let hint = match route.is_none_or(|route| is_of_source(&fault, route)) {
            true => "use --recursive to copy it with its contents",
            false => "name a file in it, or remove the directory",
        };
        return fault.hint(hint);
    }
    let resumable = matches!(
        fault.code,
        Code::Cancelled | Code::ConnectionLost | Code::ShuttingDown
    );
    if !resumable {
        return fault;
    }
    match again {
        Again::Never => {
            fault.hint("a stream can't be resumed: run the command again from the start")
        }
        Again::StartsOver if fault.hint.is_empty() || fault.hint == RESUME => fault
            .hint("run the same command again: this copy starts over, as with most FTP servers"),
        Again::Resumes if fault.hint.is_empty() => fault.hint(RESUME),
        _ => fault,
    }
}
