//! The work of a job that removes something.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use xdfs_proto::{Code, Fault};
use xdfs_store::watched;

use super::events::{Events, JobEvent, JobResult, cancelled};
use super::place::JobPlace;
use super::running::Work;
use super::{Connect, RemoveJob};
use crate::local_path::path_bytes;
use crate::paths::{Answer, Call, FileKind, call_local, last_part};
use crate::remote::RemotePlace;
use crate::retry::{RetryPolicy, is_session_lost};

const OPERATION: &str = "remove";
/// Interval of looks at whether the job is cancelled.
const TICK: Duration = Duration::from_millis(50);

/// Makes a call, and waits for its answer.
type MakeCall<'a> = dyn FnMut(Call) -> Result<Answer, Fault> + 'a;

/// Something to remove.
struct Removal {
    /// Without slashes at its end, which would follow a link.
    path: Vec<u8>,
    /// It had such slashes.
    is_directory: bool,
    is_recursive: bool,
}

impl Removal {
    /// # Errors
    /// The place isn't one that can be removed.
    fn of(job: &RemoveJob) -> Result<Self, Fault> {
        let path = match &job.place {
            JobPlace::Local(path) => path_bytes(path),
            JobPlace::Server(place) => place.path.clone(),
            JobPlace::Memory | JobPlace::Standard => {
                let cause = "a stream or memory can't be removed";
                return Err(Fault::new(Code::InvalidArgument, OPERATION, cause));
            }
        };
        let refused = |cause: &str| {
            Err(Fault::new(Code::InvalidArgument, OPERATION, cause)
                .path(&path)
                .hint("name the directory itself, or its contents"))
        };
        let end = path.iter().rposition(|byte| *byte != b'/');
        let Some(end) = end else {
            return refused("the root is never removed");
        };
        let stripped = &path[..=end];
        if stripped == b"/~" {
            return refused("the directory of the login is never removed");
        }
        if matches!(&last_part(stripped)[..], b"." | b"..") {
            return refused("the last name of the path is '.' or '..'");
        }
        Ok(Self {
            path: stripped.to_vec(),
            is_directory: stripped.len() < path.len(),
            is_recursive: job.recursive,
        })
    }

    /// Removes it by calls. Returns the number of removed names.
    fn carry_out(&self, call: &mut MakeCall<'_>) -> Result<u64, Fault> {
        let path = || self.path.clone();
        let look = Call::Stat {
            path: path(),
            follow: false,
        };
        let is_directory = match call(look)? {
            Answer::Attributes(found) => found.kind == FileKind::Directory,
            _ => false,
        };
        if self.is_directory && !is_directory {
            let fault = Fault::new(Code::NotDirectory, OPERATION, "not a directory");
            return Err(fault.path(&self.path));
        }
        let answer = call(match (is_directory, self.is_recursive) {
            (false, _) => Call::RemoveFile { path: path() },
            (true, true) => Call::RemoveTree { path: path() },
            (true, false) => Call::RemoveDirectory { path: path() },
        })?;
        Ok(match answer {
            Answer::Removed { entries } => entries,
            _ => 1,
        })
    }
}

/// # Errors
/// The place isn't one that can be removed.
pub(super) fn work(job: &RemoveJob, connect: Connect) -> Result<Work, Fault> {
    let removal = Removal::of(job)?;
    Ok(match &job.place {
        JobPlace::Server(place) => {
            let remote = Remote {
                removal,
                place: place.clone(),
                retry: job.retry.clone(),
                connect,
                is_reached: false,
                has_begun: false,
            };
            Box::new(move |events| remote.run(events))
        }
        _ => Box::new(move |events| local(&removal, events)),
    })
}

fn local(removal: &Removal, events: &Arc<Events>) -> Result<JobResult, Fault> {
    let cancel = Arc::clone(events);
    let check = move || match cancel.is_cancelled() {
        true => Err(cancelled()),
        false => Ok(()),
    };
    let (removed, _) = watched(check, || removal.carry_out(&mut |call| call_local(&call)));
    let names = Some(removed?);
    Ok(JobResult::Removed { names })
}

/// A removal on a server.
struct Remote {
    removal: Removal,
    place: RemotePlace,
    retry: RetryPolicy,
    connect: Connect,
    /// The server has answered: one that can't be reached at all isn't tried again.
    is_reached: bool,
    /// A call that removes was made, and may have been carried out.
    has_begun: bool,
}

impl Remote {
    fn run(mut self, events: &Events) -> Result<JobResult, Fault> {
        let mut retries = 0;
        loop {
            let was_begun = self.has_begun;
            let fault = match self.attempt(events) {
                Ok(names) => return Ok(JobResult::Removed { names: Some(names) }),
                // An earlier attempt has removed it, and its answer was lost.
                Err(fault) if was_begun && fault.code == Code::NotFound => {
                    return Ok(JobResult::Removed { names: None });
                }
                Err(fault) => fault,
            };
            let is_last = !self.is_reached || retries >= self.retry.retries_max;
            if is_last || !is_session_lost(&fault) {
                return Err(fault);
            }
            let pause = self.retry.pause(retries, &fault);
            retries += 1;
            let event = JobEvent::Retry {
                fault,
                retry: retries,
                pause,
            };
            let mut goes_on = events.add(event).is_continue();
            let end = Instant::now() + pause;
            while goes_on && Instant::now() < end {
                thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
                goes_on = !events.is_cancelled();
            }
            if !goes_on {
                return Err(cancelled());
            }
        }
    }

    fn attempt(&mut self, events: &Events) -> Result<u64, Fault> {
        let client = (self.connect)(&self.place)?;
        let (is_reached, has_begun) = (&mut self.is_reached, &mut self.has_begun);
        self.removal.carry_out(&mut |call| {
            *has_begun |= !matches!(call, Call::Stat { .. });
            let mut pending = client.start_call(call)?;
            loop {
                if let Some(answer) = pending.wait_for(TICK) {
                    *is_reached |= answer.is_ok();
                    return answer;
                }
                if events.is_cancelled() {
                    // The end of the session may wait for the call.
                    events.end(Err(cancelled()));
                    return Err(cancelled());
                }
            }
        })
    }
}
