//! The files of a transfer: those that a copy reports; and of a job with a manifest, at its end
//! those that it didn't, since they had arrived before.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;
use xdfs::operations::path::{join, last_part};
use xdfs::operations::{PathSide, SidePath, Sum, Sums, WalkEntry, WalkOptions, WalkStep};
use xdfs::{
    ChecksumKind, ChecksumValue, Code, DigestKind, DigestValue, Fault, FileKind, FilePace, Job,
    JobPlace, TreeOptions,
};

use crate::id::JobId;
use crate::listed::{FilePath, JobFile, digest_text};
use crate::sessions::TransferSessions;
use crate::store::{Store, Unlisted};
use crate::time::Time;

const OPERATION: &str = "list the files of the job";
/// Files that are stored, or looked up, at once.
const BATCH: usize = 500;
/// Most files that wait to be stored while the database can't be used.
const WAITING_MAX: usize = 10 * BATCH;

/// Asks for digests of small files of a tree too, as large ones have.
pub(crate) fn ask_for_some_digests(job: &mut Job) {
    let tree = match job {
        Job::Tree(job) => &mut job.options,
        Job::Sync(job) => &mut job.options.tree,
        _ => return,
    };
    let digest = tree.parameters.digest.unwrap_or_default();
    tree.file_digests.get_or_insert(digest);
}

/// Asks for the digests that a manifest has.
pub(crate) fn ask_for_digests(job: &mut Job) {
    let blake3 = Some(DigestKind::Blake3);
    let tree = match job {
        Job::File(job) => {
            job.options.parameters.digest = blake3;
            return;
        }
        Job::Tree(job) => &mut job.options,
        Job::Sync(job) => &mut job.options.tree,
        _ => return,
    };
    tree.parameters.digest = blake3;
    tree.file_digests = blake3;
}

/// The files that a copy reports.
#[derive(Debug)]
pub(crate) struct Inventory {
    store: Store,
    id: JobId,
    position: u32,
    attempt: u32,
    waiting: Vec<JobFile>,
    /// Some could not be stored.
    has_lost: bool,
    /// The list has to be whole: it is for a manifest.
    is_manifest: bool,
}

impl Inventory {
    pub(crate) async fn new(
        store: &Store,
        id: JobId,
        position: u32,
        is_manifest: bool,
    ) -> Result<Self, Fault> {
        Ok(Self {
            is_manifest,
            attempt: store.attempt(id, position).await?,
            store: store.clone(),
            id,
            position,
            waiting: Vec::new(),
            has_lost: false,
        })
    }

    /// Adds a file that has arrived. For a manifest, one without a digest is looked at in the end.
    pub(crate) fn add(
        &mut self,
        path: &[u8],
        bytes: u64,
        digest: &DigestValue,
        pace: Option<FilePace>,
    ) {
        if self.is_manifest && digest.kind() != DigestKind::Blake3 {
            return;
        }
        self.waiting.push(JobFile {
            position: self.position,
            path: FilePath::new(path),
            bytes,
            digest: digest_text(digest),
            at: Time::now(),
            attempts: self.attempt,
            rate_bytes_per_s: pace.map(|pace| pace.bytes_per_second),
            limited_by: pace.map(|pace| pace.limited_by.as_str().to_owned()),
        });
    }

    /// Whether it is time to store what has arrived.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= BATCH
    }

    /// Stores what has arrived. What can't be stored now is tried again, as long as it is little.
    pub(crate) async fn store(&mut self) {
        while !self.waiting.is_empty() {
            let files = &self.waiting[..self.waiting.len().min(BATCH)];
            let attempt = (self.position, self.attempt);
            let stored = match self.is_manifest {
                true => self.store.add_files(self.id, self.attempt, files).await,
                false => self.store.add_batch(self.id, attempt, files).await,
            };
            if let Err(fault) = stored {
                tracing::error!(job = %self.id, %fault, "can't store the files of a job");
                if self.waiting.len() >= WAITING_MAX {
                    self.has_lost = true;
                    self.waiting.clear();
                }
                return;
            }
            let count = files.len();
            self.waiting.drain(..count);
        }
    }

    /// Ends an attempt: all that it reported is stored, or what is stored counts no more.
    pub(crate) async fn end(&mut self) -> Result<(), Fault> {
        self.store().await;
        if self.is_manifest && (self.has_lost || !self.waiting.is_empty()) {
            let (id, position) = (self.id, self.position);
            self.store
                .distrust_files(id, position, self.attempt)
                .await?;
        }
        Ok(())
    }

    /// Whether so many files are all that the attempt has stored.
    pub(crate) async fn has_all(&self, files: u64) -> Result<bool, Fault> {
        if !self.is_manifest {
            return Ok(false);
        }
        let (id, position) = (self.id, self.position);
        let stored = self.store.count_files(id, position, self.attempt).await?;
        Ok(!self.has_lost && stored == files)
    }
}

/// Completes the list of a transfer, in a thread that may block.
pub(crate) struct Completion {
    pub(crate) store: Store,
    pub(crate) runtime: Handle,
    pub(crate) sessions: TransferSessions,
    pub(crate) id: JobId,
    pub(crate) transfer: Unlisted,
    pub(crate) stopped: watch::Receiver<bool>,
}

pub(crate) fn path_of(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// The fault of a list that somebody has stopped.
fn stopped() -> Fault {
    Fault::new(Code::Cancelled, OPERATION, "it was stopped")
}

impl Completion {
    /// Completes it.
    ///
    /// # Errors
    /// A place can't be read; [`Code::Cancelled`] if the job was stopped.
    pub(crate) fn run(self) -> Result<(), Fault> {
        let job = Job::from_json(&self.transfer.text)?;
        match &job {
            Job::File(job) => self.file(&job.target)?,
            Job::Tree(job) => self.tree([&job.source, &job.target], &job.options)?,
            Job::Sync(job) => self.tree([&job.source, &job.target], &job.options.tree)?,
            _ => return Err(Fault::new(Code::Unsupported, OPERATION, "it has none")),
        }
        let (position, attempt) = (self.transfer.position, self.transfer.attempt);
        let ended = self.store.end_list(self.id, position, attempt);
        self.runtime.block_on(ended)
    }

    fn side(&self, place: &JobPlace) -> Result<(PathSide, Vec<u8>), Fault> {
        Ok(match place {
            JobPlace::Local(path) => (PathSide::Local, path_of(path).to_vec()),
            JobPlace::Server(place) => {
                let client = self.sessions.get(place)?;
                (PathSide::Remote(Arc::clone(&client)), place.path.clone())
            }
            _ => {
                let cause = "the place is none of files";
                return Err(Fault::new(Code::Unsupported, OPERATION, cause));
            }
        })
    }

    /// The target as it was published.
    fn target(&self, place: &JobPlace) -> Result<SidePath, Fault> {
        let (side, named) = self.side(place)?;
        let path = self.transfer.target.as_deref().unwrap_or(&named);
        Ok(SidePath::new(side, path))
    }

    fn file(&self, place: &JobPlace) -> Result<(), Fault> {
        let target = self.target(place)?;
        let mut sums = Sums::new(&target.side, ChecksumKind::Blake3);
        let name = last_part(&target.path).to_vec();
        sums.push(target.path.clone(), name, None);
        let mut found = Vec::new();
        self.take(&mut sums, &mut found)?;
        self.add(&mut found)
    }

    /// Lists what the tree has at the source, as it is at the target.
    fn tree(&self, [from, to]: [&JobPlace; 2], options: &TreeOptions) -> Result<(), Fault> {
        let target = self.target(to)?;
        let (side, path) = self.side(from)?;
        let source = match options.follow_links {
            false => SidePath::new(side, &path),
            // What links lead to has no path at the source.
            true => target.clone(),
        };
        let attributes = source.stat(true)?;
        let filter = &options.filter;
        let keeps = |found: &WalkEntry| {
            let (path, at) = (source.relative(&found.path), &found.attributes);
            let is_file = at.kind == FileKind::File;
            let is_beyond = is_file && filter.leaves_out_file(at.size, at.mtime_ns);
            !is_beyond && !filter.leaves_out(path, found.is_directory())
        };
        let mut sums = Sums::new(&target.side, ChecksumKind::Blake3);
        let (mut seen, mut found) = (Vec::new(), Vec::new());
        for step in source.walk(attributes, WalkOptions::default()).only(keeps) {
            match step {
                WalkStep::Entry(entry) if entry.attributes.kind == FileKind::File => {
                    seen.push(FilePath::new(source.relative(&entry.path)));
                }
                WalkStep::Entry(_) | WalkStep::Left(_) => {}
                WalkStep::Failed(fault) => return Err(fault),
            }
            if seen.len() >= BATCH {
                self.see(&target, &mut seen, &mut sums, &mut found)?;
            }
        }
        self.see(&target, &mut seen, &mut sums, &mut found)?;
        self.take(&mut sums, &mut found)?;
        self.add(&mut found)
    }

    /// Asks for the digests of files that have no row.
    fn see(
        &self,
        target: &SidePath,
        seen: &mut Vec<FilePath>,
        sums: &mut Sums<'_>,
        found: &mut Vec<JobFile>,
    ) -> Result<(), Fault> {
        let attempt = (self.transfer.position, self.transfer.attempt);
        let unknown = self.store.see_files(self.id, attempt, std::mem::take(seen));
        for path in self.runtime.block_on(unknown)? {
            self.check()?;
            let at = join(&target.path, path.as_bytes());
            if let Some(sum) = sums.push(at, path.as_bytes().to_vec(), None) {
                self.found(sum, found)?;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        match *self.stopped.borrow() {
            true => Err(stopped()),
            false => Ok(()),
        }
    }

    /// Takes the digests that were asked for.
    fn take(&self, sums: &mut Sums<'_>, found: &mut Vec<JobFile>) -> Result<(), Fault> {
        while let Some(sum) = sums.pop() {
            self.check()?;
            self.found(sum, found)?;
        }
        Ok(())
    }

    fn found(&self, sum: Sum, found: &mut Vec<JobFile>) -> Result<(), Fault> {
        let (value, bytes) = sum.digest?;
        let ChecksumValue::Blake3(digest) = value else {
            let cause = "the server has computed another digest than BLAKE3";
            return Err(Fault::new(Code::Unsupported, OPERATION, cause).path(sum.path));
        };
        found.push(JobFile {
            position: self.transfer.position,
            path: FilePath::new(sum.name),
            bytes,
            digest: digest_text(&DigestValue::Blake3(digest)),
            at: Time::now(),
            attempts: self.transfer.attempt,
            rate_bytes_per_s: None,
            limited_by: None,
        });
        match found.len() >= BATCH {
            true => self.add(found),
            false => Ok(()),
        }
    }

    fn add(&self, found: &mut Vec<JobFile>) -> Result<(), Fault> {
        let added = self.store.add_files(self.id, self.transfer.attempt, found);
        self.runtime.block_on(added)?;
        found.clear();
        Ok(())
    }
}
