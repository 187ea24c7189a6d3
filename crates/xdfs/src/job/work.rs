//! The work of jobs: the operations of clients, with their events passed on as values.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use xdfs_proto::{Code, Fault};

use super::events::{Events, JobEvent, JobResult, cancelled};
use super::place::JobPlace;
use super::running::Work;
use super::{Connect, FileJob, Job, SyncJob, TreeJob, removal};
use crate::between::{ServerFile, Way};
use crate::client::{Client, ClientOptions};
use crate::events::{Observer, QueueEvent, TreeEvent};
use crate::queue::{self, FileCopy};
use crate::remote::RemotePlace;
use crate::retry::{ReconnectEvent, ReconnectObserver};
use crate::transfer::{LocalPlace, TransferRoute};

const OPERATION: &str = "start the job";

/// The work of a job.
///
/// # Errors
/// Its places don't suit it.
pub(super) fn resolve(job: &Job, connect: Connect) -> Result<Work, Fault> {
    let connect: Connect = Arc::new(move |place| match place.address.is_here() {
        // It has no server for whose sessions the caller could have settings.
        true => Client::connect(place, ClientOptions::default()).map(Arc::new),
        false => connect(place),
    });
    match job {
        Job::File(job) => file(job, connect),
        Job::Tree(job) => tree(job, connect),
        Job::Sync(job) => sync(job, connect),
        Job::Remove(job) => removal::work(job, connect),
    }
}

fn unsuitable(cause: &str) -> Fault {
    Fault::new(Code::InvalidArgument, OPERATION, cause)
}

/// The place of a file that isn't on a server.
fn not_remote(place: &JobPlace) -> Result<LocalPlace, Fault> {
    match place {
        JobPlace::Local(path) => Ok(LocalPlace::Path(path.clone())),
        JobPlace::Memory => Ok(LocalPlace::Memory),
        JobPlace::Standard => Ok(LocalPlace::Standard),
        JobPlace::Server(_) => Err(unsuitable("it is on a server")),
    }
}

/// A source that is on another server than the target, or elsewhere on the same one.
fn server_file(place: &RemotePlace, way: Way, connect: &Connect) -> ServerFile {
    let connect = Arc::clone(connect);
    ServerFile::new(place.clone(), move |server| connect(server)).by(way)
}

/// The file of a job, for a queue.
fn copy_of(job: &FileJob, connect: &Connect) -> Result<FileCopy, Fault> {
    let (server, route) = match (&job.source, &job.target) {
        (JobPlace::Server(source), JobPlace::Server(target)) => {
            let from = LocalPlace::OtherServer(server_file(source, job.way, connect));
            let to = target.path.clone();
            (target.clone(), TransferRoute::Upload { from, to })
        }
        (source, JobPlace::Server(target)) => {
            let from = not_remote(source)?;
            let to = target.path.clone();
            (target.clone(), TransferRoute::Upload { from, to })
        }
        (JobPlace::Server(source), target) => {
            let from = source.path.clone();
            let to = not_remote(target)?;
            (source.clone(), TransferRoute::Download { from, to })
        }
        (JobPlace::Local(source), target @ JobPlace::Local(_)) => {
            let source = RemotePlace::here(source)?;
            let from = source.path.clone();
            let to = not_remote(target)?;
            (source, TransferRoute::Download { from, to })
        }
        _ => return Err(unsuitable("neither of its places is on a server")),
    };
    Ok(FileCopy {
        server,
        route,
        options: job.options.clone(),
    })
}

fn file(job: &FileJob, connect: Connect) -> Result<Work, Fault> {
    let copy = copy_of(job, &connect)?;
    let retry = job.retry.clone();
    Ok(Box::new(move |events| {
        let observer = FileObserver(Arc::clone(events));
        let (canceller, run) =
            queue::run_alone(copy, retry, move |at: &RemotePlace| connect(at), observer);
        events.cancel_by(canceller);
        run();
        // The observer has heard of the end.
        events.result().unwrap_or_else(|| Err(cancelled()))
    }))
}

/// Passes on the events of the only file of a queue.
struct FileObserver(Arc<Events>);

impl Observer for FileObserver {
    fn on_job(&mut self, _number: u64, event: QueueEvent<'_>) -> ControlFlow<()> {
        match event {
            QueueEvent::Progress(progress) => self.0.add(JobEvent::Progress(progress.clone())),
            QueueEvent::Retry {
                fault,
                retry,
                pause,
                ..
            } => self.0.add(JobEvent::Retry {
                fault: fault.clone(),
                retry,
                pause,
            }),
            QueueEvent::Done(result) => {
                self.0.end(Ok(JobResult::File(result.clone())));
                self.0.flow()
            }
            QueueEvent::Failed(fault) => {
                self.0.end(Err(fault.clone()));
                self.0.flow()
            }
            QueueEvent::Started => self.0.flow(),
        }
    }
}

/// The source and the target of a tree, and with them its direction.
enum Ends {
    Up(PathBuf, RemotePlace),
    Down(RemotePlace, PathBuf),
    Between(ServerFile, RemotePlace),
}

impl Ends {
    fn of(
        source: &JobPlace,
        target: &JobPlace,
        way: Way,
        connect: &Connect,
    ) -> Result<Self, Fault> {
        Ok(match (source, target) {
            (JobPlace::Local(source), JobPlace::Server(target)) => {
                Self::Up(source.clone(), target.clone())
            }
            (JobPlace::Server(source), JobPlace::Local(target)) => {
                Self::Down(source.clone(), target.clone())
            }
            (JobPlace::Server(source), JobPlace::Server(target)) => {
                Self::Between(server_file(source, way, connect), target.clone())
            }
            (JobPlace::Local(source), JobPlace::Local(target)) => {
                Self::Down(RemotePlace::here(source)?, target.clone())
            }
            _ => return Err(unsuitable("a tree is no stream and is not in memory")),
        })
    }
}

/// Passes on the events of a tree.
fn tree_observer(events: &Arc<Events>) -> impl FnMut(TreeEvent<'_>) -> ControlFlow<()> + use<> {
    let events = Arc::clone(events);
    move |event| events.add(event.into())
}

/// The observer of a tree's sessions, which passes on their events after telling `own`.
fn reconnect_observer(events: &Arc<Events>, own: ReconnectObserver) -> ReconnectObserver {
    let events = Arc::clone(events);
    ReconnectObserver::new(move |event: ReconnectEvent<'_>| {
        let passed = match JobEvent::of_session(&event) {
            Some(event) => events.add(event),
            None => events.flow(),
        };
        match own.notify(event) {
            ControlFlow::Continue(()) => passed,
            broken => broken,
        }
    })
}

fn tree(job: &TreeJob, connect: Connect) -> Result<Work, Fault> {
    let ends = Ends::of(&job.source, &job.target, job.way, &connect)?;
    let mut options = job.options.clone();
    Ok(Box::new(move |events| {
        options.reconnect_observer = reconnect_observer(events, options.reconnect_observer);
        let observer = &mut tree_observer(events);
        let result = match ends {
            Ends::Up(source, target) => {
                connect(&target)?.upload_tree(&source, &target.path, &options, observer)
            }
            Ends::Down(source, target) => {
                connect(&source)?.download_tree(&source.path, &target, &options, observer)
            }
            Ends::Between(source, target) => {
                connect(&target)?.copy_tree_from(&source, &target.path, &options, observer)
            }
        };
        result.map(JobResult::Tree)
    }))
}

fn sync(job: &SyncJob, connect: Connect) -> Result<Work, Fault> {
    let ends = Ends::of(&job.source, &job.target, job.way, &connect)?;
    let mut options = job.options.clone();
    Ok(Box::new(move |events| {
        let own = options.tree.reconnect_observer;
        options.tree.reconnect_observer = reconnect_observer(events, own);
        let observer = &mut tree_observer(events);
        let result = match ends {
            Ends::Up(source, target) => {
                connect(&target)?.sync_to(&source, &target.path, &options, observer)
            }
            Ends::Down(source, target) => {
                connect(&source)?.sync_from(&source.path, &target, &options, observer)
            }
            Ends::Between(source, target) => {
                connect(&target)?.sync_between(&source, &target.path, &options, observer)
            }
        };
        result.map(JobResult::Sync)
    }))
}
