//! Jobs as values: what is to be done, with all its options, which can be written as text and read
//! again, in this or another process, and the handles of jobs that run.
//!
//! A text has no secrets and no code. What a job needs beside its text is resolved when it starts:
//! the sessions with servers come from a function of the caller.

mod events;
mod place;
mod removal;
mod running;
#[cfg(test)]
mod tests;
mod work;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xdfs_proto::{Code, Fault};

pub use self::events::{JobEvent, JobResult};
pub use self::place::JobPlace;
pub use self::running::RunningJob;
use crate::between::Way;
use crate::client::Client;
use crate::remote::RemotePlace;
use crate::retry::RetryPolicy;
use crate::transfer::TransferOptions;
use crate::tree::{SyncOptions, TreeOptions};

const OPERATION: &str = "read the job";
/// Version of the text form. A change that an older reader would misunderstand raises it; new
/// options don't, since readers refuse fields that they don't know.
const VERSION: u32 = 1;

/// Something to be done, as a value with a text form ([`Job::to_json`]).
///
/// ```
/// use xdfs::{Job, JobPlace, TreeJob, TreeOptions};
///
/// # fn main() -> Result<(), xdfs::Fault> {
/// let job = Job::Tree(TreeJob {
///     source: JobPlace::Local("/data/results".into()),
///     target: JobPlace::Server("xdfs://localhost/archive".parse()?),
///     way: xdfs::Way::Any,
///     options: TreeOptions {
///         journal: Some("/var/lib/archiver/trees".into()),
///         ..TreeOptions::default()
///     },
/// });
/// let text = job.to_json()?;
/// assert_eq!(Job::from_json(&text)?.to_json()?, text);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Job {
    /// Copies a file.
    File(FileJob),
    /// Copies a tree.
    Tree(TreeJob),
    /// Makes a directory equal to another one.
    Sync(SyncJob),
    /// Removes a file or a tree.
    Remove(RemoveJob),
}

/// A file to copy. With a stream or memory, the other place is on a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileJob {
    /// The file.
    pub source: JobPlace,
    /// Its target, or an existing directory, in which it keeps its name.
    pub target: JobPlace,
    /// How it gets from one server to another.
    #[serde(default)]
    pub way: Way,
    /// How it is copied.
    #[serde(default)]
    pub options: TransferOptions,
    /// Retries after transient failures. An attempt that transfers bytes is progress.
    #[serde(default)]
    pub retry: RetryPolicy,
}

/// A tree to copy. Neither of its places is a stream or memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeJob {
    /// The directory.
    pub source: JobPlace,
    /// The tree's new path, or an existing directory, in which it keeps its name
    /// ([`Client::upload_tree`]).
    pub target: JobPlace,
    /// How its files get from one server to another.
    #[serde(default)]
    pub way: Way,
    /// How it is copied. With a journal, the same job resumes after any interruption; without one
    /// it begins again, and skips what exists at the target.
    #[serde(default)]
    pub options: TreeOptions,
}

/// A directory to make equal to another one. Neither of the places is a stream or memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncJob {
    /// The directory that is compared with, and read.
    pub source: JobPlace,
    /// The directory that is changed.
    pub target: JobPlace,
    /// How its files get from one server to another.
    #[serde(default)]
    pub way: Way,
    /// The options. The same job resumes after any interruption, by comparing both again.
    #[serde(default)]
    pub options: SyncOptions,
}

/// A file or tree to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveJob {
    /// What is removed: a file, a link itself, or a directory. The root of a server or of this
    /// machine is refused, as is a path that ends in `.` or `..`.
    pub place: JobPlace,
    /// Remove a directory with its contents. Otherwise it has to be empty.
    #[serde(default)]
    pub recursive: bool,
    /// Retries after the session was lost.
    #[serde(default)]
    pub retry: RetryPolicy,
}

/// Opens the session with a server, or returns an open one.
type Connect = Arc<dyn Fn(&RemotePlace) -> Result<Arc<Client>, Fault> + Send + Sync>;

/// The text form of a job.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadText {
    #[expect(dead_code, reason = "it was looked at before")]
    version: u32,
    job: Job,
}

#[derive(Serialize)]
struct WrittenText<'a> {
    version: u32,
    job: &'a Job,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl Job {
    /// The job as JSON, with every option. [`SyncOptions::consent`](crate::SyncOptions::consent)
    /// and [`TreeOptions::reconnect_observer`](crate::TreeOptions::reconnect_observer) are code and
    /// no part of it.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] if a place has no text form: it has a password or a ticket, which
    /// are secrets, or can't be written as a URL.
    pub fn to_json(&self) -> Result<String, Fault> {
        let text = WrittenText {
            version: VERSION,
            job: self,
        };
        serde_json::to_string(&text).map_err(|error| {
            Fault::new(
                Code::InvalidArgument,
                "write the job as text",
                error.to_string(),
            )
        })
    }

    /// Reads a job as [`Job::to_json`] writes it. Options that are left out have their defaults.
    /// Nothing is looked up or connected.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] if it is no such text, or has a field that this version doesn't
    /// know; [`Code::Unsupported`] if it is a text of a later version.
    pub fn from_json(text: &str) -> Result<Self, Fault> {
        let invalid = |error: serde_json::Error| {
            Fault::new(Code::InvalidArgument, OPERATION, error.to_string())
        };
        let Version { version } = serde_json::from_str(text).map_err(invalid)?;
        if version != VERSION {
            let cause = format!("its version is {version}, and this program knows {VERSION}");
            return Err(Fault::new(Code::Unsupported, OPERATION, cause));
        }
        let text: ReadText = serde_json::from_str(text).map_err(invalid)?;
        Ok(text.job)
    }

    /// Starts the job in a thread of its own. `connect` is called for the session with a server,
    /// in any thread, whenever one is needed; it should return an open session again. It also adds
    /// what the text of a place lacks, such as credentials. It isn't called for this machine.
    ///
    /// A job that was cancelled or interrupted resumes when the same job is started again, as far
    /// as its options have it: files and trees by their journals, synchronisations by comparing.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] if the places don't suit the job; or the thread can't be started.
    pub fn start(
        &self,
        connect: impl Fn(&RemotePlace) -> Result<Arc<Client>, Fault> + Send + Sync + 'static,
    ) -> Result<RunningJob, Fault> {
        RunningJob::start(work::resolve(self, Arc::new(connect))?)
    }
}
