//! What happened, a line of JSON each.
//!
//! An [`Audit`] appends [`Event`]s to a file that only its owner may read. A line is one write, and
//! at most [`LINE_BYTES_MAX`] long, so that lines of several programs don't mix. When the file was
//! renamed away (by a program that rotates logs) or removed, it is made anew; that is looked for
//! once a second at most.
//!
//! An event has no place for secrets. What comes from peers is shown with bytes that aren't UTF-8,
//! control characters and backslashes escaped, so that a line is always text, and one line.
//!
//! A line that can't be written is counted and lost: a full disk doesn't stop the server.
//!
//! Strangers can be refused as often as they like. What they do is written once, and then counted
//! for a minute ([`Audit::record_refusal`]): the line at its end has the count as `repeats`. What
//! was allowed is always a line of its own.

mod line;
mod repeats;
#[cfg(test)]
mod tests;
mod time;

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use xdfs_proto::{Code, Fault, SessionId};
use xdfs_sys::ids::effective_user;

use crate::Method;
use crate::guard::Network;

use repeats::Repeats;

pub use line::LINE_BYTES_MAX;

/// Least time between two looks at the name of the file.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Least time between two complaints that nothing can be written.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A peer proved who it is, or failed to.
    Authenticate,
    /// A peer changed names or attributes.
    Change,
    /// A file that a peer had open was closed.
    Close,
    /// A peer connected.
    Connect,
    /// A peer disconnected.
    Disconnect,
    /// A file was sent to the peer.
    Download,
    /// A peer opened a file to work on it in place.
    Open,
    /// Something was refused.
    Refuse,
    /// A session began or ended.
    Session,
    /// The server started.
    Start,
    /// The server stopped.
    Stop,
    /// A file came from the peer.
    Upload,
}

impl Kind {
    /// The word in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Authenticate => "authenticate",
            Self::Change => "change",
            Self::Close => "close",
            Self::Connect => "connect",
            Self::Disconnect => "disconnect",
            Self::Download => "download",
            Self::Open => "open",
            Self::Refuse => "refuse",
            Self::Session => "session",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Upload => "upload",
        }
    }
}

/// Something that happened. What is `None` or empty isn't written.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// When; it is also the clock of the audit itself.
    pub time: SystemTime,
    /// What it is about.
    pub kind: Kind,
    /// The front door that the peer came by; empty for that of the server's own protocol.
    pub door: &'static str,
    /// Who: the name of the user here.
    pub user: &'a str,
    /// How that was proved.
    pub method: Option<Method>,
    /// The address of the peer.
    pub from: &'a str,
    /// What was done, of a change.
    pub operation: &'a str,
    /// The path, as the peer gave it.
    pub path: &'a [u8],
    /// The second path of a change: what has it now, or what a link says.
    pub to: &'a [u8],
    /// Bytes moved; of a file that is closed those that were read.
    pub bytes: Option<u64>,
    /// Entries of a pack.
    pub entries: Option<u64>,
    /// Entries of a pack that failed.
    pub failed: Option<u64>,
    /// Bytes written to a file that is closed.
    pub written: Option<u64>,
    /// Why it failed; `None` if it didn't.
    pub result: Option<Code>,
    /// The session.
    pub session: Option<SessionId>,
    /// How many refusals alike came since the line about the first of them and were not written.
    pub repeats: Option<u64>,
}

impl Event<'_> {
    /// An event that has nothing but a time and a kind.
    #[must_use]
    pub fn new(time: SystemTime, kind: Kind) -> Self {
        Self {
            time,
            kind,
            door: "",
            user: "",
            method: None,
            from: "",
            operation: "",
            path: b"",
            to: b"",
            bytes: None,
            entries: None,
            failed: None,
            written: None,
            result: None,
            session: None,
            repeats: None,
        }
    }
}

/// Where events are kept.
#[derive(Debug)]
pub struct Audit {
    file: Option<Mutex<Output>>,
    repeats: Mutex<Repeats>,
    failures: AtomicU64,
}

impl Audit {
    /// Appends to the file at `path`, which is made if it isn't there, for its owner alone.
    ///
    /// # Errors
    /// A fault that names the path: it can't be opened, or isn't a regular file.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let file = open(path).map_err(|error| {
            let path = path.as_os_str().as_encoded_bytes();
            Fault::from_io("open the audit file", path, &error)
        })?;
        let output = Output {
            path: path.to_owned(),
            file,
            opened_as: effective_user(),
            looked: None,
            complained: None,
            is_torn: false,
        };
        Ok(Self {
            file: Some(Mutex::new(output)),
            repeats: Mutex::default(),
            failures: AtomicU64::new(0),
        })
    }

    /// Keeps nothing.
    #[must_use]
    pub fn none() -> Self {
        Self {
            file: None,
            repeats: Mutex::default(),
            failures: AtomicU64::new(0),
        }
    }

    /// Writes an event. A failure is counted, and told to the log once a minute at most.
    pub fn record(&self, event: &Event<'_>) {
        self.write_repeats(Some(event.time));
        self.write(event);
    }

    /// Writes that a peer at `address` was refused, unless one like it was written less than a
    /// minute ago: then it is counted.
    pub fn record_refusal(&self, event: &Event<'_>, address: IpAddr) {
        if self.file.is_none() {
            return;
        }
        self.write_repeats(Some(event.time));
        if self.repeats().note(event, Network::of(address)) {
            self.write(event);
        }
    }

    /// Writes the counts whose minute is over at the time `now`. Every event does that too; this is
    /// for times without any.
    pub fn tick(&self, now: SystemTime) {
        self.write_repeats(Some(now));
    }

    fn write_repeats(&self, now: Option<SystemTime>) {
        let runs = self.repeats().take(now);
        runs.iter().for_each(|run| self.write(&run.event()));
    }

    fn repeats(&self) -> MutexGuard<'_, Repeats> {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, event: &Event<'_>) {
        let Some(file) = &self.file else { return };
        let line = line::encode(event);
        let mut output = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = output.write(&line, event.time) {
            let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
            output.complain(&error, failures, event.time);
        }
    }

    /// The number of events that could not be written.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.write_repeats(None);
    }
}

/// An open file and the name that it should have.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    file: File,
    /// The user as whom it was opened.
    opened_as: Option<u32>,
    looked: Option<SystemTime>,
    complained: Option<SystemTime>,
    /// The last line was written in part.
    is_torn: bool,
}

impl Output {
    fn write(&mut self, line: &[u8], now: SystemTime) -> io::Result<()> {
        // A thread with the ids of an account writes to what is open. It must not make a file in
        // place of the one that was moved away, as it would belong to that account.
        let may_open = self.opened_as == effective_user();
        if may_open && is_due(self.looked, now, LOOK_INTERVAL) {
            if !self.is_named()? {
                self.file = open(&self.path)?;
                self.is_torn = false;
            }
            // Not before: without a file under the name every line is a failure.
            self.looked = Some(now);
        }
        let ended;
        let line = if self.is_torn {
            ended = [b"\n", line].concat();
            &ended
        } else {
            line
        };
        // One call, and not again for the rest: lines of others could come between.
        let written = loop {
            match self.file.write(line) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        if written < line.len() {
            self.is_torn |= written > 0;
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.is_torn = false;
        Ok(())
    }

    /// Whether the open file is still the one that has the name.
    fn is_named(&self) -> io::Result<bool> {
        match std::fs::metadata(&self.path) {
            Ok(named) => Ok(is_same(&named, &self.file.metadata()?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn complain(&mut self, error: &io::Error, failures: u64, now: SystemTime) {
        if is_due(self.complained, now, COMPLAINT_INTERVAL) {
            self.complained = Some(now);
            let path = self.path.as_os_str().as_encoded_bytes().escape_ascii();
            tracing::error!(%path, %error, failures, "the audit file can't be written");
        }
    }
}

/// Whether `interval` has gone by since `last`. A clock that was set back counts as that.
fn is_due(last: Option<SystemTime>, now: SystemTime, interval: Duration) -> bool {
    last.and_then(|last| now.duration_since(last).ok())
        .is_none_or(|since| since >= interval)
}

fn open(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for a reader.
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        let cause = "not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

#[cfg(unix)]
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Elsewhere an open file can't be renamed by others.
#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}
