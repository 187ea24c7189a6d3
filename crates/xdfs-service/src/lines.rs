//! Jobs as lines of JSON (`application/x-ndjson`): the job itself, then each of its transfers.
//!
//! The lines are checked while they come, and what a worker needs of them is kept in a file. The
//! database hears of the job when all have come: a submission that breaks off leaves nothing, and a
//! slow client doesn't keep others from the database. The file is removed with [`Spool`], and what
//! a killed service leaves of it when the next one starts.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;
use xdfs::security::trusted;
use xdfs::{Code, Fault, Job};

use crate::access::hex;
use crate::bodies::{Parts, too_large};
use crate::id::JobId;
use crate::problem::Problem;
use crate::scheduler::Link;
use crate::spec::{Spec, Submission, check_for_user, spec_of_line};
use crate::time::Time;

/// Most bytes of a line.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of all lines.
const BYTES_MAX: u64 = 2 << 30;
/// Most transfers of a job.
const TRANSFERS_MAX: u32 = 1_000_000;
/// Most submissions by lines at the same time.
const STREAMS_MAX: usize = 4;
/// Parts that wait to be read.
const PARTS_MAX: usize = 8;
/// Most bytes that are taken after a failure.
const UNREAD_BYTES_MAX: usize = 256 << 20;
const KINDS: [&str; 3] = ["file", "tree", "sync"];

/// The folder of submissions that are under way.
#[derive(Debug)]
pub(crate) struct Incoming {
    folder: PathBuf,
    streams: Arc<Semaphore>,
}

/// A job that was submitted in lines.
#[derive(Debug)]
pub(crate) struct Received {
    /// The first line.
    pub(crate) submission: Submission,
    /// The others.
    pub(crate) transfers: Spool,
    /// The SHA-256 of all lines.
    pub(crate) digest: String,
}

impl Incoming {
    /// The folder, with nothing in it.
    ///
    /// # Errors
    /// It can't be made or emptied.
    pub(crate) fn new(folder: PathBuf) -> Result<Self, Fault> {
        const OPERATION: &str = "empty the folder";
        trusted::make_folder(OPERATION, &folder)?;
        let empty = || {
            for entry in fs::read_dir(&folder)? {
                fs::remove_file(entry?.path())?;
            }
            Ok(())
        };
        let name = folder.as_os_str().as_encoded_bytes();
        empty().map_err(|error: io::Error| Fault::from_io(OPERATION, name, &error))?;
        Ok(Self {
            folder,
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        })
    }

    /// Receives a job of a user, who may be an administrator or not.
    ///
    /// # Errors
    /// It breaks off, is too large, or a line isn't as it should be.
    pub(crate) async fn receive(
        &self,
        body: Body,
        is_administrator: bool,
    ) -> Result<Received, Problem> {
        let Ok(_permit) = self.streams.try_acquire() else {
            let cause = "too many jobs are submitted as lines at this moment";
            return Err(Fault::new(Code::Busy, "take the job", cause).into());
        };
        let spool = Spool::new(&self.folder)?;
        let (sender, receiver) = mpsc::channel(PARTS_MAX);
        let reading = spawn_blocking(move || Reader::new(spool, is_administrator).read(receiver));
        let mut parts = Parts::new(body);
        let mut unread = 0;
        let sent = loop {
            match parts.next().await {
                Ok(Some(part)) => {
                    let bytes = part.len();
                    // The reader has ended early with a failure of its own. A client that still
                    // sends would not read the answer.
                    if sender.send(Some(part)).await.is_err() {
                        unread += bytes;
                        if unread > UNREAD_BYTES_MAX {
                            break Ok(());
                        }
                    }
                }
                Ok(None) => {
                    // Without it the reader knows that the body has broken off.
                    let _ = sender.send(None).await;
                    break Ok(());
                }
                Err(problem) => break Err(problem),
            }
        };
        drop(sender);
        let read = reading.await.unwrap_or_else(|error| {
            Err(Fault::new(Code::Internal, "read the job", error.to_string()).into())
        });
        sent?;
        read
    }
}

/// Reads lines.
struct Reader {
    spool: Spool,
    is_administrator: bool,
    submission: Option<Submission>,
    /// The beginning of a line whose end hasn't come yet.
    begun: Vec<u8>,
    line: u64,
    bytes: u64,
    digest: Sha256,
}

impl Reader {
    fn new(spool: Spool, is_administrator: bool) -> Self {
        Self {
            spool,
            is_administrator,
            submission: None,
            begun: Vec::new(),
            line: 0,
            bytes: 0,
            digest: Sha256::new(),
        }
    }

    fn read(mut self, mut parts: mpsc::Receiver<Option<Bytes>>) -> Result<Received, Problem> {
        loop {
            match parts.blocking_recv() {
                Some(Some(part)) => self.part(&part)?,
                Some(None) => break,
                None => return Err(bad_line(self.line, "the body has broken off").into()),
            }
        }
        let last = std::mem::take(&mut self.begun);
        self.line(&last)?;
        let Some(submission) = self.submission else {
            let problem = bad_line(1, "there is none");
            return Err(Problem::with_status(StatusCode::BAD_REQUEST, problem));
        };
        if self.spool.count == 0 {
            let fault = Fault::new(Code::InvalidArgument, "accept the field", "there are none");
            return Err(fault.path("transfers").into());
        }
        self.spool.finish()?;
        Ok(Received {
            submission,
            transfers: self.spool,
            digest: hex(&self.digest.finalize()),
        })
    }

    fn part(&mut self, part: &[u8]) -> Result<(), Problem> {
        self.bytes += part.len() as u64;
        if self.bytes > BYTES_MAX {
            return Err(too_large("a job as lines has at most 2 GiB"));
        }
        self.digest.update(part);
        let mut rest = part;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            rest = after;
            if self.begun.is_empty() {
                self.line(line)?;
                continue;
            }
            let mut begun = std::mem::take(&mut self.begun);
            begun.extend_from_slice(line);
            self.line(&begun)?;
            begun.clear();
            self.begun = begun;
        }
        if self.begun.len() + rest.len() > LINE_BYTES_MAX {
            return Err(too_large(&format!(
                "line {} has more than {LINE_BYTES_MAX} bytes",
                self.line + 1
            )));
        }
        self.begun.extend_from_slice(rest);
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Problem> {
        self.line += 1;
        let number = self.line;
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        let unread = |error: serde_json::Error| {
            let fault = bad_line(number, &error.to_string());
            Problem::with_status(StatusCode::BAD_REQUEST, fault)
        };
        let Some(submission) = &self.submission else {
            let submission: Submission = serde_json::from_slice(line).map_err(unread)?;
            if !submission.transfers.is_empty() {
                return Err(bad_line(number, "its transfers belong to lines of their own").into());
            }
            submission.check()?;
            self.submission = Some(submission);
            return Ok(());
        };
        if self.spool.count >= TRANSFERS_MAX {
            return Err(too_large(&format!(
                "a job has at most {TRANSFERS_MAX} transfers"
            )));
        }
        let job: Job = serde_json::from_slice(line).map_err(unread)?;
        if !self.is_administrator {
            check_for_user(&job)?;
        }
        // What serde has read is UTF-8.
        let text = String::from_utf8_lossy(line);
        let spec = spec_of_line(&job, &text, submission.manifest).map_err(|fault| {
            let field = String::from_utf8_lossy(&fault.path).into_owned();
            fault.path(format!("line {number}: {field}"))
        })?;
        Ok(self.spool.push(&spec)?)
    }
}

fn bad_line(number: u64, cause: &str) -> Fault {
    Fault::new(Code::InvalidArgument, "read the job", cause).path(format!("line {number}"))
}

/// Transfers in a file, in the order in which they were added.
#[derive(Debug)]
pub(crate) struct Spool {
    file: BufWriter<File>,
    path: PathBuf,
    count: u32,
}

fn spool_failed(error: &io::Error) -> Fault {
    Fault::from_io("keep the transfers of a job", "", error)
}

impl Spool {
    fn new(folder: &Path) -> Result<Self, Fault> {
        let path = folder.join(JobId::new(Time::now())?.to_string());
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(|error| spool_failed(&error))?;
        Ok(Self {
            file: BufWriter::new(file),
            path,
            count: 0,
        })
    }

    fn push(&mut self, spec: &Spec) -> Result<(), Fault> {
        let kind = KINDS.iter().position(|kind| *kind == spec.kind);
        let kind = kind.and_then(|kind| u8::try_from(kind).ok()).unwrap_or(0);
        let mut write = || {
            self.file.write_all(&[kind])?;
            let link = &spec.link;
            for text in [
                &spec.source,
                &spec.target,
                &link.source,
                &link.target,
                &spec.text,
            ] {
                // A line is shorter than 4 GiB.
                let length = u32::try_from(text.len()).map_err(io::Error::other)?;
                self.file.write_all(&length.to_le_bytes())?;
                self.file.write_all(text.as_bytes())?;
            }
            Ok(())
        };
        write().map_err(|error| spool_failed(&error))?;
        self.count += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        let rewound = self.file.flush().and_then(|()| self.file.rewind());
        rewound.map_err(|error| spool_failed(&error))
    }

    /// The transfers.
    ///
    /// # Errors
    /// The file can't be read.
    pub(crate) fn specs(&self) -> Result<SpooledSpecs, Fault> {
        let file = self.file.get_ref().try_clone();
        let file = file.map_err(|error| spool_failed(&error))?;
        Ok(SpooledSpecs {
            file: BufReader::new(file),
            left: self.count,
        })
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "can't remove a file");
        }
    }
}

/// The transfers of a [`Spool`].
#[derive(Debug)]
pub(crate) struct SpooledSpecs {
    file: BufReader<File>,
    left: u32,
}

impl SpooledSpecs {
    fn text(&mut self) -> io::Result<String> {
        let mut length = [0; 4];
        self.file.read_exact(&mut length)?;
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        self.file.read_exact(&mut text)?;
        String::from_utf8(text).map_err(io::Error::other)
    }

    fn spec(&mut self) -> io::Result<Spec> {
        let mut kind = [0];
        self.file.read_exact(&mut kind)?;
        let kind = KINDS.get(usize::from(kind[0]));
        Ok(Spec {
            kind: kind.ok_or(io::ErrorKind::InvalidData)?,
            source: self.text()?,
            target: self.text()?,
            link: Link {
                source: self.text()?,
                target: self.text()?,
            },
            text: self.text()?,
        })
    }
}

impl Iterator for SpooledSpecs {
    type Item = Result<Spec, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.spec().map_err(|error| spool_failed(&error)))
    }
}
