//! Unfinished work of the library, as an object that Python steps through.

use std::fmt;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use xdfs::{
    Answer, Code, Fault, FileRanges, JobEvent, JobResult, PendingCall, PendingRanges,
    PendingSmallFiles, Progress, RunningJob, SmallFile, Transfer, TransferResult,
};

use crate::fault::{Owner, raised};
use crate::gate::{Permit, Turn};
use crate::values;
use crate::waiting::{LoopWaker, locked, wait_for};

/// A transfer, a call, a job, ranges that are being read, or small files that are being moved.
#[pyclass(frozen, module = "xdfs._xdfs")]
#[derive(Debug)]
pub(crate) struct Operation {
    owner: Owner,
    /// `None` after its end.
    work: Mutex<Option<Running>>,
}

/// Work, and the turn that it has until it is dropped.
#[derive(Debug)]
struct Running {
    work: Work,
    permit: Option<Permit>,
}

#[derive(Debug)]
pub(crate) enum Work {
    Call(PendingCall),
    Job(RunningJob),
    Ranges(PendingRanges),
    /// With the flag they are read into memory.
    Small(PendingSmallFiles, bool),
    Transfer(Box<Transfer>),
    Waiting(Waiting),
}

/// Work that waits for its turn.
pub(crate) struct Waiting {
    pub(crate) turn: Turn,
    pub(crate) start: Box<dyn FnOnce() -> Result<Work, Fault> + Send>,
    pub(crate) is_cancelled: bool,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("is_cancelled", &self.is_cancelled)
            .finish_non_exhaustive()
    }
}

/// A step of an operation.
enum Step {
    Job(Box<JobEvent>),
    Progress(Progress),
    End(Box<Result<End, Fault>>),
}

enum End {
    Answer(Answer),
    Job(JobResult),
    Ranges(FileRanges),
    Small(Vec<Option<SmallFile>>, bool),
    Transfer(TransferResult),
}

impl Work {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        let end = match self {
            // It has begun, or has failed.
            Self::Waiting(_) => return Poll::Pending,
            Self::Call(call) => ready!(Pin::new(call).poll(context)).map(End::Answer),
            Self::Ranges(ranges) => ready!(Pin::new(ranges).poll(context)).map(End::Ranges),
            Self::Small(files, is_read) => {
                let moved = ready!(Pin::new(files).poll(context));
                moved.map(|moved| End::Small(moved, *is_read))
            }
            Self::Job(job) => match ready!(job.poll_event(context)) {
                Some(event) => return Poll::Ready(Step::Job(Box::new(event))),
                None => ready!(Pin::new(job).poll(context)).map(End::Job),
            },
            Self::Transfer(transfer) => match ready!(transfer.poll_progress(context)) {
                Some(progress) => return Poll::Ready(Step::Progress(progress)),
                None => ready!(Pin::new(&mut **transfer).poll(context)).map(End::Transfer),
            },
        };
        Poll::Ready(Step::End(Box::new(end)))
    }

    /// Whether it ends by that. Dropping the others is all there is.
    fn cancel(&mut self) -> bool {
        match self {
            Self::Job(job) => job.cancel(),
            Self::Transfer(transfer) => transfer.cancel(),
            Self::Waiting(waiting) => {
                waiting.is_cancelled = true;
                waiting.turn.wake();
            }
            Self::Call(_) | Self::Ranges(_) | Self::Small(..) => return false,
        }
        true
    }
}

impl Running {
    /// Begins work whose turn it is.
    fn begin(&mut self, context: &Context<'_>) -> Poll<Result<(), Fault>> {
        let Work::Waiting(waiting) = &mut self.work else {
            return Poll::Ready(Ok(()));
        };
        if waiting.is_cancelled {
            let fault = Fault::new(Code::Cancelled, "begin the transfer", "it was cancelled");
            return Poll::Ready(Err(fault));
        }
        self.permit = Some(ready!(waiting.turn.poll(context)));
        let once = || Err(Fault::new(Code::Internal, "begin", "it has begun"));
        let start = std::mem::replace(&mut waiting.start, Box::new(once));
        Poll::Ready(start().map(|work| self.work = work))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        match ready!(self.begin(context)) {
            Ok(()) => self.work.poll(context),
            Err(fault) => Poll::Ready(Step::End(Box::new(Err(fault)))),
        }
    }
}

impl From<Work> for Operation {
    fn from(work: Work) -> Self {
        let permit = None;
        Self {
            owner: Owner::here(),
            work: Mutex::new(Some(Running { work, permit })),
        }
    }
}

impl Operation {
    /// Polls for the next step. What waits for its turn begins without Python's lock, since that
    /// may take as long as a file of this machine takes to be opened.
    fn poll_step(&self, py: Python<'_>, waker: &Waker) -> Poll<PyResult<Step>> {
        let is_waiting = |running: &Running| matches!(running.work, Work::Waiting(_));
        // The lock ends with this statement: the work is locked again.
        let is_waiting = locked(&self.work).as_ref().is_some_and(is_waiting);
        match is_waiting {
            true => py.detach(|| self.poll_work(waker)),
            false => self.poll_work(waker),
        }
    }

    fn poll_work(&self, waker: &Waker) -> Poll<PyResult<Step>> {
        let context = &mut Context::from_waker(waker);
        let mut work = locked(&self.work);
        let Some(running) = work.as_mut() else {
            let error = PyRuntimeError::new_err("the operation has ended");
            return Poll::Ready(Err(error));
        };
        let step = ready!(running.poll(context));
        if matches!(step, Step::End(_)) {
            *work = None;
        }
        Poll::Ready(Ok(step))
    }
}

/// Whether it is the end, and the value; an end that is a fault is raised.
type Stepped = (bool, Py<PyAny>);

fn value(py: Python<'_>, step: Step) -> PyResult<Stepped> {
    let (is_end, value) = match step {
        Step::Progress(progress) => (false, values::progress(py, &progress)?),
        Step::Job(event) => (false, values::event(py, &event)?),
        Step::End(end) => {
            let end = end.map_err(|fault| raised(py, &fault))?;
            let value = match end {
                End::Answer(answer) => values::answer(py, answer)?,
                End::Job(result) => values::job(py, &result)?,
                End::Ranges(read) => values::ranges(py, read)?,
                End::Small(moved, is_read) => values::small_files(py, moved, is_read)?,
                End::Transfer(result) => values::transfer(py, &result)?,
            };
            (true, value)
        }
    };
    Ok((is_end, value.unbind()))
}

#[pymethods]
impl Operation {
    /// Waits for the next step, at most for `timeout` seconds; `None` after that.
    #[pyo3(signature = (timeout=None))]
    fn step(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Stepped>> {
        self.owner.check()?;
        let timeout = match timeout {
            Some(seconds) => match Duration::try_from_secs_f64(seconds) {
                Ok(timeout) => Some(timeout),
                Err(error) => return Err(PyValueError::new_err(error.to_string())),
            },
            None => None,
        };
        let step = wait_for(py, timeout, |waker| self.poll_step(py, waker))?;
        step.map(|step| value(py, step?)).transpose()
    }

    /// The next step, or `None` if there is none yet: then `callback` is called in the event loop
    /// once there may be one.
    fn poll(
        &self,
        py: Python<'_>,
        event_loop: Py<PyAny>,
        callback: Py<PyAny>,
    ) -> PyResult<Option<Stepped>> {
        self.owner.check()?;
        let waker = LoopWaker::waker(event_loop, callback)?;
        match self.poll_step(py, &waker) {
            Poll::Ready(step) => value(py, step?).map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Ends it early, and returns whether its end comes by that. What is durable stays.
    fn cancel(&self) -> bool {
        let mut work = locked(&self.work);
        let work = work.as_mut().filter(|_| self.owner.is_here());
        work.is_some_and(|running| running.work.cancel())
    }

    /// Ends it early, and drops what would come of it.
    fn abandon(&self) {
        self.cancel();
        if self.owner.is_here() {
            let work = locked(&self.work).take();
            self.owner.drop(work);
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let work = self.work.get_mut();
        let work = work.unwrap_or_else(std::sync::PoisonError::into_inner);
        self.owner.drop(work.take());
    }
}
