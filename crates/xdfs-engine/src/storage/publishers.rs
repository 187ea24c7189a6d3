//! Threads that publish files beside the storage thread, which has other files to write meanwhile.
//! Most of a publication is waiting for the disk, and what several threads synchronise at once a
//! file system makes durable together.
//!
//! A publication has all that its sink needs, so files don't share anything. Results go straight
//! to the session's thread, by the channel of the storage thread: earlier results of the same file
//! must be in it before a publication [begins](Publishers::begin).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use xdfs_proto::digest::Fragment;
use xdfs_proto::{Code, Fault, FileId};
use xdfs_store::Sink;

use super::job::{SinkCompletion, StoreTime};
use crate::disk_writers::Surroundings;
use crate::environment::{Environment, wake};
use crate::guard::guarded;
use crate::work_queue::{self, Work};

const PUBLISH: &str = "publish the file";
/// Threads at most: as many files as a tree has in flight that are larger than those of packs.
const PUBLISHERS_MAX: usize = 4;

/// The sink of a complete file, which is published and then closed.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) file: FileId,
    pub(super) sink: Box<dyn Sink>,
    pub(super) length: u64,
    /// Fragments that no checkpoint has recorded.
    pub(super) fresh: Vec<Fragment>,
    /// Time that the store has taken so far.
    pub(super) time: StoreTime,
}

impl Publication {
    /// Publishes the file. The sink is closed afterwards.
    pub(super) fn perform(mut self, environment: &dyn Environment) -> SinkCompletion {
        let file = self.file;
        let start = environment.now();
        let publish = || self.sink.publish(self.length, &self.fresh);
        let result = guarded(PUBLISH, publish).flatten();
        self.time.syncing += environment.now() - start;
        match result {
            Ok(()) => SinkCompletion::Published {
                file,
                time: self.time,
            },
            Err(fault) => SinkCompletion::Failed { file, fault },
        }
    }
}

/// The number of publications that each thread has, whether it has begun them or not.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay(Arc<[AtomicUsize; PUBLISHERS_MAX]>);

impl UnderWay {
    /// Whether each one has ended, and its file is closed.
    pub(super) fn is_none(&self) -> bool {
        self.0.iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }

    /// The thread with the fewest, and of several the first.
    fn least_busy(&self) -> usize {
        let count = |number: &usize| self.0[*number].load(Ordering::SeqCst);
        (0..PUBLISHERS_MAX).min_by_key(count).unwrap_or_default()
    }
}

/// A publication for one of the threads. Its result is sent when this is dropped, so that none is
/// waited for in vain.
#[derive(Debug)]
pub(super) struct Request {
    /// Taken when it is performed.
    publication: Option<Publication>,
    /// Taken when it is sent.
    result: Option<SinkCompletion>,
    number: usize,
    under_way: UnderWay,
    done: mpsc::Sender<SinkCompletion>,
    surroundings: Surroundings,
}

impl Work for Request {
    fn perform(mut self, refusal: Option<&Fault>) {
        let Some(publication) = self.publication.take() else {
            return;
        };
        let file = publication.file;
        self.result = Some(match refusal {
            None => publication.perform(&*self.surroundings.environment),
            Some(fault) => {
                let fault = fault.clone();
                SinkCompletion::Failed { file, fault }
            }
        });
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // Another attempt may begin as soon as its result is known.
        self.publication = None;
        if let Some(result) = self.result.take() {
            // Without a session no result is needed.
            let _ = self.done.send(result);
        }
        // A session that ends waits for this.
        self.under_way.0[self.number].fetch_sub(1, Ordering::SeqCst);
        wake(&self.surroundings.notifier);
    }
}

/// The threads, started on demand, as the storage thread sees them.
#[derive(Debug)]
pub(super) struct Publishers {
    surroundings: Surroundings,
    done: mpsc::Sender<SinkCompletion>,
    workers: Vec<mpsc::Sender<Request>>,
    under_way: UnderWay,
}

impl Publishers {
    /// Without threads so far. Results go to `done`, and `under_way` counts for the session.
    pub(super) fn new(
        surroundings: Surroundings,
        done: mpsc::Sender<SinkCompletion>,
        under_way: UnderWay,
    ) -> Self {
        Self {
            surroundings,
            done,
            workers: Vec::new(),
            under_way,
        }
    }

    /// Whether no thread publishes anything.
    pub(super) fn are_idle(&self) -> bool {
        self.under_way.is_none()
    }

    /// Assigns a publication to a thread. Returns it if there is none and none can be started.
    pub(super) fn prepare(&mut self, publication: Publication) -> Result<Request, Publication> {
        let number = self.under_way.least_busy();
        if number >= self.workers.len() {
            let surroundings = &self.surroundings;
            let worker = work_queue::start(
                &*surroundings.environment,
                "xdfs-publisher",
                &surroundings.notifier,
                surroundings.ids.clone(),
            );
            match worker {
                Ok(worker) => self.workers.push(worker),
                Err(error) => {
                    tracing::debug!(%error, "no thread publishes beside the storage thread");
                    return Err(publication);
                }
            }
        }
        self.under_way.0[number].fetch_add(1, Ordering::SeqCst);
        let (file, cause) = (publication.file, "the thread that publishes it is gone");
        let fault = Fault::new(Code::Internal, PUBLISH, cause);
        Ok(Request {
            publication: Some(publication),
            result: Some(SinkCompletion::Failed { file, fault }),
            number,
            under_way: self.under_way.clone(),
            done: self.done.clone(),
            surroundings: self.surroundings.clone(),
        })
    }

    /// Begins a publication.
    pub(super) fn begin(&self, request: Request) {
        // A thread that has ended drops it.
        if let Some(worker) = self.workers.get(request.number) {
            let _ = worker.send(request);
        }
    }
}
